/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * explain.c - a volume's class, protection and native snapshots, and the settings in force for it
 *
 * Settings are grouped by the section that sets them, the most specific first. Those with their default values are left
 * out without --all.
 */
#include "daemon/cli/labels.h"

#include <string.h>

#define SECTIONS_MAX 64

/* ---- the volume ---- */

static void print_volume(const json_t *answer)
{
    const json_t *volume = jobj(answer, "details"), *class = jobj(answer, "class"), *note;
    size_t i;
    print_line("Volume", "%s%s%s", jstr(answer, "volume"), jint(volume, "size") > 0 ? ", " : "",
               jint(volume, "size") > 0 ? text_size(volume, "size") : "");
    if (class)
        print_line("Storage class", "%s, driver %s, %s", jstr(class, "name"), jstr(class, "driver"),
                   jstr(class, "origin"));
    else if (*jstr(answer, "class"))
        print_line("Storage class", "%s", jstr(answer, "class"));
    if (*jstr(answer, "labels"))
        print_line("Labels", "%s", jstr(answer, "labels"));
    if (*jstr(answer, "mechanism"))
        print_line("Exposed as", "%s", jstr(answer, "mechanism"));
    if (volume)
        print_jobs(volume);
    if (volume)
        print_protection(volume);
    json_array_foreach(jarr(answer, "notes"), i, note)
        print_line(i ? "" : "Notes", "%s", json_string_value(note) ? json_string_value(note) : "");
}

/* ---- settings ---- */

struct setting {
    const char *key;
    const json_t *value; /* see docs/control.md */
    char section[1100];  /* "[storage-class "gold"]"; "" for the default */
    const char *where;   /* file:line */
    unsigned rank;       /* of the section */
    size_t at;           /* in the policy */
    bool differs;        /* from the default */
};

static void value_text(const json_t *v, char *out, size_t cap)
{
    const json_t *value = json_object_get(v, "value");
    if (json_is_integer(value))
        snprintf(out, cap, "%lld", (long long)json_integer_value(value));
    else if (json_is_boolean(value))
        snprintf(out, cap, "%s", json_is_true(value) ? "yes" : "no");
    else
        snprintf(out, cap, "%s", json_is_string(value) ? json_string_value(value) : "");
}

/* "[volume "x"] /etc/...:9" into its two parts; the place is the whole where there is no section. */
static const char *split_origin(const char *origin, char *section, size_t cap)
{
    const char *end = NULL, *at = origin;
    *section = '\0';
    if (*origin != '[')
        return origin;
    while ((at = strstr(at, "] ")))
        end = at++;
    if (!end)
        return origin;
    snprintf(section, cap, "%.*s", (int)(end + 1 - origin), origin);
    return end + 2;
}

/* The most specific section first. */
static unsigned section_rank(const char *section)
{
    static const char *const order[] = {"[volume", "[policy",     "[job",   "[storage-class",
                                        "[driver", "[repository", "[mover", "[daemon"};
    unsigned i = 0;
    while (i < sizeof order / sizeof *order && strncmp(section, order[i], strlen(order[i])) != 0)
        i++;
    return i;
}

static bool same_as_default(const json_t *v)
{
    char now[1024], other[1024];
    const json_t *o;
    size_t i;
    value_text(v, now, sizeof now);
    json_array_foreach(jarr(v, "overrides"), i, o)
    {
        value_text(o, other, sizeof other);
        if (!strcmp(jstr(o, "scope"), "default"))
            return !strcmp(now, other);
    }
    return false;
}

static int by_section(const void *a, const void *b)
{
    const struct setting *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    int d = strcmp(x->section, y->section);
    return d ? d : x->at < y->at ? -1 : x->at > y->at;
}

/* "overrides 3 of [storage-class "gold"], /etc/...:4" */
static void note_overrides(struct table *t, const json_t *v)
{
    const json_t *o;
    size_t i;
    json_array_foreach(jarr(v, "overrides"), i, o)
    {
        char section[1100], value[1024], text[3600];
        if (!strcmp(jstr(o, "scope"), "default"))
            continue;
        value_text(o, value, sizeof value);
        const char *where = split_origin(jstr(o, "origin"), section, sizeof section);
        snprintf(text, sizeof text, "overrides %s of %s, %.1200s", *value ? value : "-", section, where);
        table_note(t, TINT_DIM, text);
    }
}

static void print_section(const struct setting *s, size_t n, int key_width)
{
    struct table *t = table_new(NULL, *s->section ? "lss" : "ls");
    printf("\n%s\n", *s->section ? text_name(s->section) : "Defaults");
    for (size_t i = 0; i < n; i++) {
        char value[1024];
        value_text(s[i].value, value, sizeof value);
        table_cell(t, TINT_NONE, "%-*s", key_width, s[i].key);
        table_cell(t, TINT_NONE, "%s", *value ? value : "-");
        if (*s->section)
            table_cell(t, TINT_DIM, "%s", s[i].where);
        if (*s->section)
            note_overrides(t, s[i].value);
    }
    table_print(t, stdout, "  ");
}

static int print_settings(const json_t *policy, bool all, struct err *e)
{
    const char *key;
    json_t *v;
    size_t total = json_object_size(policy), n = 0, from = 0, hidden = 0;
    int width = 0;
    CLEANUP_FREE struct setting *list = calloc(total + 1, sizeof *list);
    if (!list)
        return err_nomem(e);
    json_object_foreach((json_t *)(uintptr_t)policy, key, v)
    {
        struct setting *s = &list[n];
        *s = (struct setting){.key = key, .value = v, .at = n};
        if (strcmp(jstr(v, "origin"), "default") != 0) {
            s->where = split_origin(jstr(v, "origin"), s->section, sizeof s->section);
            s->differs = !same_as_default(v);
        }
        s->rank = *s->section ? section_rank(s->section) : UINT32_MAX;
        if (!s->differs && !all) {
            hidden++;
            continue;
        }
        width = (int)strlen(key) > width ? (int)strlen(key) : width;
        n++;
    }
    qsort(list, n, sizeof *list, by_section);
    for (size_t i = 1; i <= n; i++) {
        if (i < n && !strcmp(list[i].section, list[from].section))
            continue;
        print_section(&list[from], i - from, width);
        from = i;
    }
    if (hidden) {
        char text[128];
        snprintf(text, sizeof text, "%zu %s (--all shows %s).", hidden,
                 hidden == 1 ? "setting has its default value" : "settings have their default values",
                 hidden == 1 ? "it" : "them");
        putchar('\n');
        print_paragraph(stdout, text, 0, 2);
    }
    return 0;
}

int ask_explain(const struct options *o, struct err *e)
{
    CLEANUP_JSON json_t *answer = NULL;
    int rc = ask_or_read(o, "explain", json_pack("{s:s}", "volume", o->args[0]), &answer, e);
    if (rc < 0)
        return rc;
    if (answered(o, answer))
        return 0;
    print_volume(answer);
    rc = print_settings(jobj(answer, "policy"), o->all, e);
    struct table *t = table_new(NULL, "lle");
    size_t i;
    const json_t *n;
    json_array_foreach(jarr(answer, "natives"), i, n)
    {
        table_cell(t, TINT_NONE, "%.8s", jstr(n, "alias"));
        table_cell(t, TINT_NONE, "%s", text_ago(jint(n, "created_ns")));
        table_cell(t, TINT_NONE, "%s", jstr(n, "why"));
    }
    if (table_rows(t))
        puts("\nNative snapshots");
    table_print(t, stdout, "  ");
    return rc;
}
