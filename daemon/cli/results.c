/* SPDX-License-Identifier: GPL-2.0-or-later */
/* results.c - see results.h */
#include "daemon/cli/results.h"

#include "daemon/cli/stages.h"

#include <stdarg.h>
#include <string.h>

const char *result_task(const json_t *op)
{
    static char buf[4][700];
    static unsigned turn;
    const char *what = *jstr(op, "does") ? jstr(op, "does") : jstr(op, "kind");
    const char *of = *jstr(op, "deletes") ? jstr(op, "deletes") : jstr(op, "repository");
    char *out = buf[turn++ % 4];
    snprintf(out, sizeof buf[0], "%.60s%s%.600s", what, *of ? " " : "", of);
    return out;
}

/* ---- sentences ---- */

struct text {
    char *out;
    size_t cap, len;
};

static void put(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(struct text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = t->len < t->cap ? vsnprintf(t->out + t->len, t->cap - t->len, fmt, ap) : 0;
    va_end(ap);
    t->len += n > 0 ? (size_t)n : 0;
}

static void put_bytes(struct text *t, const char *before, const json_t *r, const char *member, const char *after)
{
    if (jint(r, member) > 0)
        put(t, "%s%s%s", before, text_bytes((uint64_t)jint(r, member)), after);
}

/* "64.0 MiB in 0.5 s (128.0 MiB/s)" */
static void put_pace(struct text *t, int64_t bytes, const json_t *r)
{
    double s = json_number_value(json_object_get(r, "seconds"));
    put(t, "%s in %s", text_bytes(bytes > 0 ? (uint64_t)bytes : 0), text_seconds(s));
    if (bytes > 0 && s > 1e-6)
        put(t, " (%s)", text_rate((double)bytes / s));
}

static void backup_text(struct text *t, const json_t *r)
{
    put_pace(t, jint(r, json_object_get(r, "doneBytes") ? "doneBytes" : "totalBytes"), r);
    put(t, ": read %s", text_size(r, "readBytes"));
    put_bytes(t, ", duplicate ", r, "dedupedBytes", "");
    put(t, ", new %s", text_size(r, "incrementalBytes"));
    put_bytes(t, ", stored as ", r, "uploadedBytes", "");
    put_bytes(t, "; ", r, "badBytes", " UNREADABLE, stored as zeros");
}

static void restore_text(struct text *t, const json_t *r)
{
    put_pace(t, jint(r, "totalBytes"), r);
    put(t, ": fetched %s, wrote %s", text_size(r, "fetchedBytes"), text_size(r, "writtenBytes"));
    put_bytes(t, ", zeros ", r, "zeroBytes", "");
    put_bytes(t, ", ", r, "equalBytes", " were there already");
    put_bytes(t, ", ", r, "resumedBytes", " were restored before");
    put_bytes(t, "; ", r, "verifiedBytes", " read back");
}

static void verify_text(struct text *t, const json_t *r)
{
    put(t, "%lld snapshots, %lld objects, %lld contents; read ", (long long)jint(r, "snapshots"),
        (long long)jint(r, "objects"), (long long)jint(r, "contents"));
    put_pace(t, jint(r, "bytesRead"), r);
    put(t, ", %lld contents: ", (long long)jint(r, "contentsRead"));
    if (jint(r, "damages"))
        put(t, "%lld DAMAGED", (long long)jint(r, "damages"));
    else
        put(t, "no damage");
}

static long long readable(const json_t *list)
{
    const char *id;
    json_t *v;
    long long n = 0;
    json_object_foreach((json_t *)(uintptr_t)list, id, v) n += json_is_true(v);
    return n;
}

static void admin_text(struct text *t, const json_t *r)
{
    const json_t *a;
    size_t i;
    json_array_foreach(jarr(r, "answers"), i, a)
    {
        const char *verb = jstr(a, "verb");
        if (jobj(a, "error"))
            continue; /* told as the operation's */
        put(t, "%s", t->len ? "; " : "");
        if (!strcmp(verb, "scan"))
            put(t, "%zu snapshots found", json_array_size(jarr(a, "snapshots")));
        else if (!strcmp(verb, "check"))
            put(t, "%lld of %zu snapshots can be restored", readable(jobj(a, "readable")),
                json_object_size(jobj(a, "readable")));
        else if (!strcmp(verb, "delete"))
            put(t, "%lld snapshots deleted, %lld were gone before", (long long)jint(a, "deleted"),
                (long long)jint(a, "gone"));
        else if (!strcmp(verb, "expire"))
            put(t, "%lld of %lld snapshots %s", (long long)jint(a, "expired"),
                (long long)(jint(a, "expired") + jint(a, "kept")), jbool(a, "dryRun") ? "would go" : "are deleted");
        else
            put(t, "%s done", verb);
    }
}

bool result_text(const json_t *op, char *out, size_t cap)
{
    static const struct {
        const char *kind, *member; /* without that member it did not get so far */
        void (*put)(struct text *t, const json_t *r);
    } kinds[] = {{"backup", "readBytes", backup_text},
                 {"restore", "fetchedBytes", restore_text},
                 {"verify", "bytesRead", verify_text},
                 {"admin", "answers", admin_text}};
    const json_t *r = jobj(op, "result");
    struct text t = {out, cap, 0};
    *out = '\0';
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(jstr(op, "kind"), kinds[i].kind) && json_object_get(r, kinds[i].member))
            kinds[i].put(&t, r);
    if (!strcmp(jstr(op, "kind"), "delete") && !strcmp(jstr(op, "state"), "Completed") && *jstr(op, "deletes"))
        put(&t, "%s is gone, with all that it kept", jstr(op, "deletes"));
    return t.len > 0;
}

static const char *bytes_of(const json_t *op, const char *in_result, const char *in_progress)
{
    const json_t *p = jobj(op, "progress"), *r = jobj(op, "result");
    return json_object_get(r, in_result)     ? text_size(r, in_result)
           : json_object_get(p, in_progress) ? text_size(p, in_progress)
                                             : "";
}

const char *result_size(const json_t *op)
{
    return bytes_of(op, "totalBytes", "total");
}

const char *result_new(const json_t *op)
{
    return bytes_of(op, "incrementalBytes", "new");
}

void result_print(const json_t *op, const char *name, unsigned indent)
{
    char text[1024], line[6000];
    const json_t *r = jobj(op, "result");
    if (!result_text(op, text, sizeof text))
        return;
    snprintf(line, sizeof line, "%.4200s%s%s", name ? name : "", name ? ": " : "", text);
    printf("%*s", (int)indent, "");
    print_paragraph(stdout, line, indent, indent + 2);
    if (!stages_text_json(text, sizeof text, jarr(r, "stages"), jstr(r, "bottleneck")))
        return;
    printf("%*stime: ", (int)indent + 2, "");
    print_paragraph(stdout, text, indent + 8, indent + 8);
}
