/* SPDX-License-Identifier: GPL-2.0-or-later */
/* config.c - check-config and import-velero */
#include "cfg/cfg.h"
#include "daemon/check/check.h"
#include "daemon/cli/daemon.h"
#include "daemon/import/velero.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define IMPORT_MAX (4 << 20)

/* ---- printing ---- */

/* Paths relative to the configuration directory. */
static const char *short_origin(const struct options *o, const char *origin)
{
    size_t n = strlen(o->config_dir);
    while (n > 1 && o->config_dir[n - 1] == '/')
        n--;
    return !strncmp(origin, o->config_dir, n) && origin[n] == '/' ? origin + n + 1 : origin;
}

static void print_section(const struct options *o, const json_t *s)
{
    const char *name = jstr(s, "name"), *key;
    const json_t *v;
    if (*name)
        printf("[%s \"%s\"]\n", jstr(s, "kind"), text_name(name));
    else
        printf("[%s]\n", jstr(s, "kind"));
    struct table *t = table_new(NULL, "lss");
    json_object_foreach(jobj(s, "keys"), key, v)
    {
        bool set = strcmp(jstr(v, "origin"), "default") != 0;
        table_cell(t, set ? TINT_NONE : TINT_DIM, "%s", key);
        table_cell(t, set ? TINT_NONE : TINT_DIM, "%s", jstr(v, "value"));
        table_cell(t, TINT_DIM, "%s", short_origin(o, jstr(v, "origin")));
    }
    table_print(t, stdout, "  ");
    putchar('\n');
}

static void print_memory(const json_t *m)
{
    static const char *const heads[] = {"MOVERS", "BUDGET", "INDEX", "MARGIN", "NEED"};
    size_t i;
    const json_t *v;
    struct table *t = table_new(heads, "srrrr");
    json_array_foreach(jarr(m, "movers"), i, v)
    {
        table_cell(t, TINT_NONE, "%s", jstr(v, "who"));
        table_cell(t, TINT_NONE, "%s", text_bytes((uint64_t)jint(v, "memory")));
        table_cell(t, TINT_NONE, "%s", text_bytes((uint64_t)jint(v, "index_memory")));
        table_cell(t, TINT_NONE, "%s", text_bytes((uint64_t)jint(v, "margin")));
        table_cell(t, TINT_NONE, "%s", text_bytes((uint64_t)jint(v, "need")));
    }
    printf("Memory\n");
    table_print(t, stdout, "  ");
    printf("  %lld + %lld slots need up to %s; memory-total is %s, room for %lld at once\n\n",
           (long long)jint(m, "slots"), (long long)jint(m, "restore_reserved"),
           text_bytes((uint64_t)jint(m, "together")), text_bytes((uint64_t)jint(m, "total")),
           (long long)jint(m, "at_once"));
}

/* Appends a hint; one that is a sentence becomes a part of this one. */
static void join_hint(char *text, size_t cap, const char *hint)
{
    size_t n = strlen(text), len = strlen(hint);
    bool sentence = len > 2 && isupper((unsigned char)hint[0]) && islower((unsigned char)hint[1]);
    snprintf(text + n, cap - n, "%s", hint);
    if (sentence && n + len < cap) {
        text[n] = (char)tolower((unsigned char)text[n]);
        if (text[n + len - 1] == '.')
            text[n + len - 1] = '\0';
    }
}

/* "FILE:LINE: error: message; hint", like compilers, with the complete path. */
static void print_complaints(const struct cfg *c)
{
    const struct cfg_complaint *x;
    for (unsigned i = 0; (x = cfg_complaint_at(c, i)); i++) {
        bool bad = x->severity == CFG_ERROR;
        enum tint t = bad ? TINT_BAD : TINT_WARN;
        const char *where = x->where[0] ? text_name(x->where) : "", *word = bad ? "error" : "warning";
        char text[6000], head[CFG_ORIGIN_MAX + 16];
        snprintf(head, sizeof head, "%s%s%s:", x->where, x->where[0] ? ": " : "", word);
        unsigned column = text_width(text_name(head)) + 1, width = screen_width();
        snprintf(text, sizeof text, "%s%s", x->text, x->hint[0] ? "; " : "");
        join_hint(text, sizeof text, x->hint);
        if (column + 16 > width) { /* on its own line */
            print_paragraph(stdout, head, 0, 4);
            printf("    ");
            column = 4;
        } else {
            printf("%s%s%s%s%s: ", where, *where ? ": " : "", tint_on(t), word, tint_off(t));
        }
        print_paragraph(stdout, text, column, 4);
    }
}

static unsigned count_warnings(const struct cfg *c)
{
    unsigned n = 0;
    const struct cfg_complaint *x;
    for (unsigned i = 0; (x = cfg_complaint_at(c, i)); i++)
        n += x->severity == CFG_WARNING;
    return n;
}

static void print_all(const struct options *o, const struct cfg *c)
{
    CLEANUP_JSON json_t *j = cfg_json(c);
    CLEANUP_JSON json_t *m = config_memory_json(c);
    size_t i;
    const json_t *s;
    if (o->json) {
        json_object_set(j, "memory", m);
        json_object_set_new(j, "warnings", json_integer(count_warnings(c)));
        print_answer(o, j);
        return;
    }
    /* Effective values are not shown if the configuration is refused. */
    if (cfg_errors(c)) {
        print_complaints(c);
        return;
    }
    unsigned warnings = count_warnings(c);
    if (o->quiet) {
        print_complaints(c);
        return;
    }
    json_array_foreach(jarr(j, "sections"), i, s) print_section(o, s);
    print_memory(m);
    print_complaints(c);
    printf("%s%s%s, %u warning%s\n", tint_on(TINT_GOOD), "no errors", tint_off(TINT_GOOD), warnings,
           warnings == 1 ? "" : "s");
}

int cli_check_config(const struct options *o, struct err *e)
{
    CLEANUP(cfg_freep) struct cfg *c = NULL;
    int rc = cfg_load_dir(&c, o->config_dir, e);
    if (!c)
        return rc;
    rc = config_check(c, cfg_errors(c) == 0, e);
    if (rc < 0 && rc != -EINVAL)
        return rc;
    print_all(o, c);
    if (!cfg_errors(c))
        return 0;
    unsigned warnings = count_warnings(c);
    char more[40] = "";
    if (warnings)
        snprintf(more, sizeof more, ", and %u warning%s", warnings, warnings == 1 ? "" : "s");
    err_set(e, ERR_USAGE, EINVAL, "%u error%s in the configuration in %s%s", cfg_errors(c),
            cfg_errors(c) == 1 ? "" : "s", text_name(o->config_dir), more);
    return -EINVAL;
}

/* ---- import-velero ---- */

static int read_document(const char *path, char **ret, struct err *e)
{
    bool from_stdin = !strcmp(path, "-");
    CLEANUP_FCLOSE FILE *f = from_stdin ? NULL : fopen(path, "re");
    FILE *in = from_stdin ? stdin : f;
    if (!in)
        return err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_GENERIC, errno, "cannot read %s", text_name(path));
    CLEANUP_FREE char *text = malloc(IMPORT_MAX + 1);
    if (!text)
        return err_nomem(e);
    size_t n = fread(text, 1, IMPORT_MAX, in);
    if (ferror(in))
        return err_set(e, ERR_GENERIC, errno, "cannot read %s", text_name(path));
    if (n == IMPORT_MAX)
        return err_set(e, ERR_USAGE, EFBIG, "%s is too large for a ConfigMap", text_name(path));
    if (memchr(text, 0, n))
        return err_set(e, ERR_USAGE, EINVAL, "%s is not a text file", text_name(path));
    text[n] = '\0';
    *ret = take_ptr(&text);
    return 0;
}

int cli_config_import(const struct options *o, struct err *e)
{
    CLEANUP_FREE char *text = NULL, *ini = NULL;
    int rc = read_document(o->args[0], &text, e);
    if (rc >= 0)
        rc = import_velero(text, &ini, e);
    if (rc < 0)
        return rc;
    if (o->json)
        print_json(json_pack("{s:s, s:s, s:s}", "type", "result", "verb", "import-velero", "ini", ini));
    else
        fputs(ini, stdout);
    return 0;
}
