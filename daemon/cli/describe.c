/* SPDX-License-Identifier: GPL-2.0-or-later */
/* describe.c - one thing with all that is known of it, and the policy of a volume with its reasons */
#include "daemon/cli/daemon.h"
#include "daemon/cli/stages.h"

#include <errno.h>
#include <string.h>

#define DEPTH_MAX 6
#define KEY_WIDTH 20

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

static bool in_bytes(const char *key)
{
    static const char *const keys[] = {"size", "used",  "new",       "stored", "read",      "zero",
                                       "done", "bytes", "allocated", "copied", "duplicate", "skipped"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(key, keys[i]))
            return true;
    return ends_with(key, "_bytes") || ends_with(key, "Bytes");
}

/* One value in words: times, sizes and durations by the end of the member's name, as docs/control.md fixes them. */
static void print_value(const char *key, const json_t *v)
{
    if (json_is_string(v))
        fputs(text_name(json_string_value(v)), stdout);
    else if (json_is_integer(v) && ends_with(key, "_ns") && json_integer_value(v) > 0)
        printf("%s (%s)", text_local_time(json_integer_value(v)), text_ago(json_integer_value(v)));
    else if (json_is_integer(v) && in_bytes(key) && json_integer_value(v) >= 0)
        printf("%s (%lld)", text_bytes((uint64_t)json_integer_value(v)), (long long)json_integer_value(v));
    else if (json_is_number(v) && ends_with(key, "_s"))
        fputs(text_seconds(json_number_value(v)), stdout);
    else if (json_is_number(v) && !strcmp(key, "rate"))
        fputs(text_rate(json_number_value(v)), stdout);
    else if (json_is_integer(v))
        printf("%lld", (long long)json_integer_value(v));
    else if (json_is_real(v))
        printf("%.3f", json_real_value(v));
    else
        fputs(json_is_true(v) ? "yes" : json_is_false(v) ? "no" : "-", stdout);
}

static bool is_empty(const json_t *v)
{
    return json_is_null(v) || (json_is_string(v) && !*json_string_value(v)) ||
           (json_is_array(v) && !json_array_size(v)) || (json_is_object(v) && !json_object_size(v)) ||
           (json_is_integer(v) && !json_integer_value(v));
}

static void print_members(const json_t *o, unsigned depth);

/* Long, and of use to somebody who takes --json anyway. */
static bool for_machines(const char *key)
{
    static const char *const keys[] = {"stages", "policy", "own", "into", "native_doc", "lockdown", "native_class"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(key, keys[i]))
            return true;
    return false;
}

/* The stages of a result in one sentence instead of a list of numbers. */
static void print_stages(const json_t *result, unsigned depth)
{
    char text[1024];
    if (!stages_text_json(text, sizeof text, jarr(result, "stages"), jstr(result, "bottleneck")))
        return;
    printf("%*s%s%-*s%s ", (int)(2 * depth), "", tint_on(TINT_DIM), (int)(KEY_WIDTH - 1 - 2 * depth), "time",
           tint_off(TINT_DIM));
    print_paragraph(stdout, text, KEY_WIDTH, KEY_WIDTH);
}

static void print_member(const char *key, const json_t *v, unsigned depth)
{
    size_t i;
    const json_t *item;
    if (is_empty(v) || depth > DEPTH_MAX || (depth && for_machines(key)))
        return;
    printf("%*s%s%-*s%s ", (int)(2 * depth), "", tint_on(TINT_DIM), (int)(KEY_WIDTH - 1 - 2 * depth), text_name(key),
           tint_off(TINT_DIM));
    if (json_is_object(v)) {
        putchar('\n');
        print_members(v, depth + 1);
        print_stages(v, depth + 1);
    } else if (json_is_array(v)) {
        putchar('\n');
        json_array_foreach(v, i, item)
        {
            printf("%*s- ", (int)(2 * depth + 2), "");
            if (json_is_object(item)) {
                putchar('\n');
                print_members(item, depth + 2);
            } else {
                print_value(key, item);
                putchar('\n');
            }
        }
    } else {
        print_value(key, v);
        putchar('\n');
    }
}

static void print_members(const json_t *o, unsigned depth)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)o, key, v) print_member(key, v, depth);
}

static void print_error_of(const json_t *doc)
{
    const json_t *error = jobj(doc, "error");
    if (!error)
        return;
    printf("%serror%s               %s%s%s (%s%s%s)\n", tint_on(TINT_DIM), tint_off(TINT_DIM), tint_on(TINT_BAD),
           text_name(jstr(error, "message")), tint_off(TINT_BAD), text_name(jstr(error, "class")),
           *jstr(error, "stage") ? " in " : "", text_name(jstr(error, "stage")));
    if (*jstr(error, "hint"))
        printf("%*s→ %s\n", KEY_WIDTH, "", text_name(jstr(error, "hint")));
}

static void print_operations(const json_t *list)
{
    static const char *const heads[] = {"STATE", "VOLUME", "DONE", "NEW", "ID"};
    struct table *t = table_new(heads, "lsrrs");
    size_t i;
    const json_t *op;
    json_array_foreach(list, i, op)
    {
        const json_t *p = jobj(op, "progress");
        table_cell(t, tint_of_state(jstr(op, "state")), "%s", jstr(op, "state"));
        table_cell(t, TINT_NONE, "%s", jstr(op, "volume"));
        table_cell(t, TINT_NONE, "%s", text_percent(p));
        table_cell(t, TINT_NONE, "%s", p && json_object_get(p, "new") ? text_bytes((uint64_t)jint(p, "new")) : "");
        table_cell(t, TINT_NONE, "%s", jstr(op, "id"));
    }
    if (table_rows(t))
        puts("\nOperations");
    table_print(t, stdout, "  ");
    json_array_foreach(list, i, op)
    {
        if (!jobj(op, "error"))
            continue;
        printf("\n%s\n", text_name(jstr(op, "id")));
        print_error_of(op);
    }
}

/* Known members first, what else is recorded last. */
static void print_document(const json_t *doc)
{
    const char *key;
    json_t *v;
    const char *state = jstr(doc, "state");
    json_object_foreach((json_t *)(uintptr_t)doc, key, v)
    {
        if (!strcmp(key, "details") || !strcmp(key, "operations") || !strcmp(key, "error"))
            continue;
        if (!strcmp(key, "state"))
            printf("%s%-*s%s%s%s%s\n", tint_on(TINT_DIM), KEY_WIDTH, key, tint_off(TINT_DIM),
                   tint_on(tint_of_state(state)), text_name(state), tint_off(tint_of_state(state)));
        else
            print_member(key, v, 0);
    }
    print_error_of(doc);
    print_operations(jarr(doc, "operations"));
    const json_t *details = jobj(doc, "details");
    if (details && json_object_size(details)) {
        puts("\nDetails (--json has all)");
        print_members(details, 1);
    }
}

int ask_describe(const struct options *o, struct err *e)
{
    CLEANUP_JSON json_t *answer = NULL;
    int rc = ask_or_read(o, "describe", json_pack("{s:s}", "id", o->args[0]), &answer, e);
    if (rc < 0)
        return rc;
    if (answered(o, answer))
        return 0;
    print_document(jobj(answer, jstr(answer, "kind")));
    return 0;
}

/* ---- explain ---- */

static void print_policy(const json_t *policy)
{
    static const char *const heads[] = {"KEY", "VALUE", "FROM"};
    struct table *t = table_new(heads, "lss");
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)policy, key, v)
    {
        const json_t *value = json_object_get(v, "value");
        char text[1024] = "";
        if (json_is_string(value))
            snprintf(text, sizeof text, "%s", json_string_value(value));
        else if (json_is_integer(value))
            snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
        else if (json_is_boolean(value))
            snprintf(text, sizeof text, "%s", json_is_true(value) ? "yes" : "no");
        bool set = strcmp(jstr(v, "origin"), "default") != 0;
        table_cell(t, TINT_NONE, "%s", key);
        table_cell(t, TINT_NONE, "%s", text);
        /* The file's place is what one wants to see: its end. */
        table_cell(t, set ? TINT_NONE : TINT_DIM, "%s", jstr(v, "origin"));
    }
    if (table_rows(t))
        puts("\nPolicy");
    table_print(t, stdout, "  ");
}

int ask_explain(const struct options *o, struct err *e)
{
    CLEANUP_JSON json_t *answer = NULL;
    int rc = ask_or_read(o, "explain", json_pack("{s:s}", "volume", o->args[0]), &answer, e);
    if (rc < 0)
        return rc;
    if (answered(o, answer))
        return 0;
    size_t i;
    const json_t *line;
    json_array_foreach(jarr(answer, "text"), i, line)
        puts(text_name(json_string_value(line) ? json_string_value(line) : ""));
    const char *key;
    json_t *v;
    json_object_foreach(answer, key, v) if (strcmp(key, "text") != 0 && strcmp(key, "policy") != 0 &&
                                            strcmp(key, "natives") != 0 && strncmp(key, "offline", 7) != 0)
        print_member(key, v, 0);
    print_policy(jobj(answer, "policy"));
    if (json_array_size(jarr(answer, "natives"))) {
        puts("\nNative snapshots");
        json_array_foreach(jarr(answer, "natives"), i, line) printf(
            "  %.8s  %s  %s\n", jstr(line, "alias"), text_ago(jint(line, "created_ns")), text_name(jstr(line, "why")));
    }
    return 0;
}
