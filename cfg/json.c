/* SPDX-License-Identifier: GPL-2.0-or-later */
/* json.c - the effective configuration as a document */
#include "cfg/internal.h"

#include <string.h>

static json_t *key_json(const char *value, const char *origin)
{
    return json_pack("{s:s, s:s}", "value", value, "origin", origin);
}

/* A value as the section has it, with the name of the option for backup-option.*. */
static void put_value(const struct cfg *c, json_t *keys, const struct value *v)
{
    char name[LINE_MAX_LEN + 32], where[CFG_ORIGIN_MAX];
    const char *known = v->key->pub.name;
    if (v->option)
        snprintf(name, sizeof name, "%.*s%s", (int)strlen(known) - 1, known, v->option);
    else
        snprintf(name, sizeof name, "%s", known);
    origin_text(c, v->file, v->line, where, sizeof where);
    json_object_set_new(keys, name, key_json(v->text, where));
}

/* Defaults from the table; those that depend on other values are computed. */
static const char *default_in(const struct cfg *c, const struct key *k, char *buf, size_t cap)
{
    if (k->pub.default_text[0] != '(')
        return k->pub.default_text;
    if (!strcmp(k->pub.name, "node-name"))
        return c->daemon.node_name;
    if (strcmp(k->pub.name, "prepare-ahead") != 0)
        return "";
    snprintf(buf, cap, "%u", c->daemon.prepare_ahead);
    return buf;
}

/* Keys that are not set, in the one section that applies to all. Policy keys of [daemon] have no such section: their
 * defaults are shown there as well. */
static void put_defaults(const struct cfg *c, json_t *keys, enum kind kind)
{
    for (unsigned i = 0; i < n_keys; i++) {
        const struct key *k = &key_table[i];
        char buf[32];
        if (!key_in(k, kind) || k->type == V_OPTIONS || json_object_get(keys, k->pub.name))
            continue;
        if (k->place == IN_POLICY && kind != KIND_DAEMON && kind != KIND_MOVER)
            continue;
        const char *text = default_in(c, k, buf, sizeof buf);
        if (*text)
            json_object_set_new(keys, k->pub.name, key_json(text, "default"));
    }
}

static json_t *section_json(const struct cfg *c, enum kind kind, const struct section *s)
{
    char where[CFG_ORIGIN_MAX] = "default";
    if (s)
        origin_text(c, s->file, s->line, where, sizeof where);
    json_t *keys = json_object();
    for (unsigned i = 0; s && i < s->n_values; i++)
        put_value(c, keys, &s->values[i]);
    put_defaults(c, keys, kind);
    return json_pack("{s:s, s:s, s:s, s:o}", "kind", kind_names[kind], "name", s ? s->name : "", "origin", where,
                     "keys", keys);
}

static json_t *sections_json(const struct cfg *c)
{
    json_t *list = json_array();
    for (enum kind kind = 0; kind < KIND_COUNT; kind++) {
        bool any = false;
        for (unsigned i = 0; i < c->n_sections; i++)
            if (c->sections[i].kind == kind) {
                json_array_append_new(list, section_json(c, kind, &c->sections[i]));
                any = true;
            }
        if (!any && (kind == KIND_DAEMON || kind == KIND_MOVER || kind == KIND_METRICS))
            json_array_append_new(list, section_json(c, kind, NULL));
    }
    return list;
}

static json_t *complaints_json(const struct cfg *c)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < c->n_complaints; i++) {
        const struct cfg_complaint *x = &c->complaints[i]->pub;
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s}", "severity",
                                              x->severity == CFG_ERROR ? "error" : "warning", "where", x->where, "text",
                                              x->text, "hint", x->hint));
    }
    return list;
}

json_t *cfg_json(const struct cfg *c)
{
    json_t *files = json_array();
    for (unsigned i = 0; i < c->n_files; i++)
        json_array_append_new(files, json_string(c->files[i]));
    return json_pack("{s:o, s:s, s:o, s:o, s:i, s:i}", "files", files, "hash", c->hash, "sections", sections_json(c),
                     "complaints", complaints_json(c), "errors", (int)c->n_errors, "dropped", (int)c->n_dropped);
}
