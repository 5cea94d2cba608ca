/* SPDX-License-Identifier: GPL-2.0-or-later */
/* document.c - see document.h */
#include "daemon/cli/document.h"
#include "daemon/cli/live.h"
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
    static const char *const keys[] = {"size", "used", "new", "stored", "bytes", "allocated", "copied"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(key, keys[i]))
            return true;
    return ends_with(key, "_bytes") || ends_with(key, "Bytes");
}

/* Times in the future by definition. */
static bool is_to_come(const char *key)
{
    static const char *const keys[] = {"next_ns", "wake_ns", "deadline_ns", "cancel_deadline_ns"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(key, keys[i]))
            return true;
    return false;
}

/* The text of a value; the suffix of the name gives the unit (docs/control.md). */
static void value_text(const char *key, const json_t *v, char *out, size_t cap)
{
    int64_t n = json_is_integer(v) ? json_integer_value(v) : 0;
    if (json_is_string(v))
        snprintf(out, cap, "%s", json_string_value(v));
    else if (json_is_integer(v) && ends_with(key, "_ns") && n > 0)
        snprintf(out, cap, "%s (%s)", text_local_time(n), is_to_come(key) ? text_in(n) : text_ago(n));
    else if (json_is_integer(v) && in_bytes(key) && n >= 0)
        snprintf(out, cap, "%s (%lld)", text_bytes((uint64_t)n), (long long)n);
    else if (json_is_number(v) && ends_with(key, "_s"))
        snprintf(out, cap, "%s", text_seconds(json_number_value(v)));
    else if (json_is_number(v) && !strcmp(key, "rate"))
        snprintf(out, cap, "%s", text_rate(json_number_value(v)));
    else if (json_is_integer(v))
        snprintf(out, cap, "%lld", (long long)n);
    else if (json_is_real(v))
        snprintf(out, cap, "%.3f", json_real_value(v));
    else
        snprintf(out, cap, "%s", json_is_true(v) ? "yes" : json_is_false(v) ? "no" : "-");
}

/* After text that ends in `column`. */
static void print_value(const char *key, const json_t *v, unsigned column, unsigned indent)
{
    char text[8192];
    value_text(key, v, text, sizeof text);
    print_paragraph(stdout, text, column, indent);
}

/* The name of a member without the suffix of its unit. Static buffers, four in turn. */
static const char *plain_key(const char *key)
{
    static char buf[4][128];
    static unsigned turn;
    char *out = buf[turn++ % 4];
    size_t n = strlen(key);
    snprintf(out, sizeof buf[0], "%.*s", (int)(ends_with(key, "_ns") ? n - 3 : ends_with(key, "_s") ? n - 2 : n), key);
    return text_name(out);
}

/* "  key                 "; returns the column after it. */
static unsigned print_key(const char *key, unsigned depth)
{
    const char *name = plain_key(key);
    unsigned left = 2 * depth, width = text_width(name), room = KEY_WIDTH - 1 > left ? KEY_WIDTH - 1 - left : 0;
    printf("%*s%s%s%s", (int)left, "", tint_on(TINT_DIM), name, tint_off(TINT_DIM));
    return left + width + (width < room ? room - width : 0);
}

/* The blanks after it. */
static unsigned print_gap(const char *key, unsigned depth, unsigned column)
{
    unsigned at = 2 * depth + text_width(plain_key(key));
    printf("%*s", (int)(column + 1 - at), "");
    return column + 1;
}

static bool is_empty(const json_t *v)
{
    return json_is_null(v) || (json_is_string(v) && !*json_string_value(v)) ||
           (json_is_array(v) && !json_array_size(v)) || (json_is_object(v) && !json_object_size(v)) ||
           (json_is_integer(v) && !json_integer_value(v));
}

static void print_members(const json_t *o, unsigned depth);

/* The members of an object "bytes". */
static void print_amounts(const json_t *o, unsigned depth)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)o, key, v)
    {
        if (!json_is_integer(v) || !json_integer_value(v))
            continue;
        unsigned column = print_gap(key, depth, print_key(key, depth));
        print_value("bytes", v, column, KEY_WIDTH);
    }
}

/* Long documents, only shown with --json. */
static bool for_machines(const char *key)
{
    static const char *const keys[] = {"stages", "policy", "own", "into", "native_doc", "lockdown", "native_class"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(key, keys[i]))
            return true;
    return false;
}

/* One line, as by wait. */
static void print_progress(const json_t *v, unsigned column)
{
    struct shown s;
    char line[1024];
    shown_from_json(&s, v);
    progress_line(&s, SCREEN_ENDLESS, line, sizeof line);
    print_escaped(stdout, line, column, KEY_WIDTH);
}

/* The stages of a result as one text. */
static void print_stages(const json_t *result, unsigned depth)
{
    char text[1024];
    if (!stages_text_json(text, sizeof text, jarr(result, "stages"), jstr(result, "bottleneck")))
        return;
    print_paragraph(stdout, text, print_gap("time", depth, print_key("time", depth)), KEY_WIDTH);
}

static void print_member(const char *key, const json_t *v, unsigned depth)
{
    size_t i;
    const json_t *item;
    if (is_empty(v) || depth > DEPTH_MAX || (depth && for_machines(key)))
        return;
    unsigned column = print_key(key, depth);
    if (!strcmp(key, "progress") && json_is_object(v)) {
        print_progress(v, print_gap(key, depth, column));
    } else if (!strcmp(key, "bytes") && json_is_object(v)) {
        putchar('\n');
        print_amounts(v, depth + 1);
    } else if (json_is_object(v)) {
        putchar('\n');
        print_members(v, depth + 1);
        print_stages(v, depth + 1);
    } else if (json_is_array(v)) {
        putchar('\n');
        json_array_foreach(v, i, item)
        {
            printf("%*s-", (int)(2 * depth + 2), "");
            if (json_is_object(item)) {
                putchar('\n');
                print_members(item, depth + 2);
            } else {
                putchar(' ');
                print_value(key, item, 2 * depth + 4, 2 * depth + 4);
            }
        }
    } else {
        print_value(key, v, print_gap(key, depth, column), KEY_WIDTH);
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* In the order of their names: that of a document is the order in which it was made. */
static void print_members(const json_t *o, unsigned depth)
{
    const char *key;
    json_t *v;
    size_t n = 0;
    CLEANUP_FREE const char **keys = calloc(json_object_size(o) + 1, sizeof *keys);
    json_object_foreach((json_t *)(uintptr_t)o, key, v) if (keys) keys[n++] = key;
    if (keys)
        qsort(keys, n, sizeof *keys, by_name);
    for (size_t i = 0; i < n; i++)
        print_member(keys[i], json_object_get(o, keys[i]), depth);
}

/* Known members first, details last. */
void print_document(const json_t *doc)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)doc, key, v) if (strcmp(key, "details") && strcmp(key, "operations"))
        print_member(key, v, 0);
    const json_t *details = jobj(doc, "details");
    if (details && json_object_size(details)) {
        puts("\nDetails (complete with --json)");
        print_members(details, 1);
    }
}
