/* SPDX-License-Identifier: GPL-2.0-or-later */
/* sections.c - sections as read: look-up of sections and values, and their places */
#include "cfg/internal.h"

#include <string.h>

const struct value *section_value(const struct section *s, const char *key)
{
    for (unsigned i = 0; s && i < s->n_values; i++)
        if (!strcmp(s->values[i].key->pub.name, key))
            return &s->values[i];
    return NULL;
}

const struct section *section_find(const struct cfg *c, enum kind kind, const char *name)
{
    for (unsigned i = 0; i < c->n_sections; i++)
        if (c->sections[i].kind == kind && !strcmp(c->sections[i].name, name))
            return &c->sections[i];
    return NULL;
}

void origin_text(const struct cfg *c, unsigned file, unsigned line, char *out, size_t cap)
{
    const char *name = file < c->n_files ? c->files[file] : "";
    if (line)
        snprintf(out, cap, "%s:%u", name, line);
    else
        snprintf(out, cap, "%s", name);
}

void section_title(const struct section *s, char *out, size_t cap)
{
    if (s->name[0])
        snprintf(out, cap, "[%s \"%s\"]", kind_names[s->kind], s->name);
    else
        snprintf(out, cap, "[%s]", kind_names[s->kind]);
}

void cfg_where(const struct cfg *c, const char *kind, const char *name, const char *key, char out[CFG_ORIGIN_MAX])
{
    out[0] = '\0';
    for (unsigned i = 0; i < c->n_sections; i++) {
        const struct section *s = &c->sections[i];
        if (strcmp(kind_names[s->kind], kind) != 0 || strcmp(s->name, name) != 0)
            continue;
        const struct value *v = key ? section_value(s, key) : NULL;
        origin_text(c, v ? v->file : s->file, v ? v->line : s->line, out, CFG_ORIGIN_MAX);
    }
}
