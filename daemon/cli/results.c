/* SPDX-License-Identifier: GPL-2.0-or-later */
/* results.c - see results.h */
#include "daemon/cli/results.h"

#include "base/units.h"
#include "daemon/cli/labels.h"
#include "daemon/cli/stages.h"
#include "daemon/records/types.h"

#include <stdarg.h>
#include <string.h>

const char *result_task(const json_t *op)
{
    static char buf[4][700];
    static unsigned turn;
    const bool maintain = !strcmp(jstr(op, "kind"), "maintain");
    char copy[160];
    snprintf(copy, sizeof copy, "copy %.127s of", jstr(op, "copy"));
    const char *what =
        maintain ? jbool(jobj(jobj(op, "result"), "maintenance"), "full") ? "full maintenance of" : "maintenance of"
        : *jstr(op, "copy") ? copy
        : *jstr(op, "does") ? jstr(op, "does")
                            : jstr(op, "kind");
    const char *of = *jstr(op, "deletes") ? jstr(op, "deletes") : jstr(op, "repository");
    char *out = buf[turn++ % 4];
    snprintf(out, sizeof buf[0], "%.140s%s%.500s", what, *of ? " " : "", of);
    return out;
}

const char *full_reason_text(const char *word)
{
    static const char *const texts[FULL_REASONS] = {
        [FULL_FORCED] = "that was asked for",
        [FULL_PERIODIC] = "that was due (full-every)",
        [FULL_WRITABLE] = "what is read may be modified meanwhile (backup-read-only = no)",
        [FULL_NO_PARENT] = "no earlier backup has a native snapshot to compare with",
        [FULL_PARENT_LOST] = "the native snapshot to compare with is no longer there",
        [FULL_PARENT_OTHER] = "what is there is not the native snapshot to compare with",
        [FULL_PARENT_UNFIT] = "the earlier snapshot in the repository is gone, or cannot be used",
        [FULL_UNSUPPORTED] = "the storage cannot list changes there",
        [FULL_UNCERTAIN] = "what the storage lists cannot be relied on",
        [FULL_BUSY] = "another program used what lists changes",
        [FULL_FAILED] = "changes could not be listed",
        [FULL_TIMEOUT] = "it took too long to list changes",
        [FULL_MISMATCH] = "the list of changes was wrong (verify-sample)",
        [FULL_DISTRUSTED] = "an earlier list of changes was wrong",
    };
    const int reason = enum_value(&full_reason_names, word);
    return reason > FULL_NONE && texts[reason] ? texts[reason] : word;
}

/* ---- texts ---- */

struct text {
    char *out;
    size_t cap, len;
};

static void put_text(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put_text(struct text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = t->len < t->cap ? vsnprintf(t->out + t->len, t->cap - t->len, fmt, ap) : 0;
    va_end(ap);
    t->len += n > 0 ? (size_t)n : 0;
}

/* "64.0 MiB in 0.5 s (128.0 MiB/s)" */
static void put_pace(struct text *t, int64_t bytes, const json_t *r)
{
    double s = json_number_value(json_object_get(r, "seconds"));
    put_text(t, "%s in %s", text_bytes(bytes > 0 ? (uint64_t)bytes : 0), text_seconds(s));
    if (bytes > 0 && s > 1e-6)
        put_text(t, " (%s)", text_rate((double)bytes / s));
}

/* "ITEM, ITEM": the comma only where something is before. */
static void put_item(struct text *t, const json_t *r, const char *member, const char *what)
{
    if (jint(r, member) > 0)
        put_text(t, "%s%s %s", t->len ? ", " : "", text_bytes((uint64_t)jint(r, member)), what);
}

/* What an incremental run has not read has no pace. */
static void backup_text(struct text *t, const json_t *r)
{
    const int64_t bytes = jint(r, json_object_get(r, "doneBytes") ? "doneBytes" : "totalBytes");
    if (json_is_true(json_object_get(jobj(r, "incremental"), "used")))
        put_text(t, "%s in %s, %s read", text_bytes(bytes > 0 ? (uint64_t)bytes : 0),
                 text_seconds(json_number_value(json_object_get(r, "seconds"))), text_size(r, "readBytes"));
    else
        put_pace(t, bytes, r);
    put_text(t, ", %s new", text_size(r, "incrementalBytes"));
    put_item(t, r, "uploadedBytes", "stored");
    if (*jstr(r, "snapshotID"))
        put_text(t, ", snapshot %.16s", jstr(r, "snapshotID"));
    put_item(t, r, "badBytes", "UNREADABLE, stored as zeros");
}

static void backup_details(struct text *t, const json_t *r)
{
    put_item(t, r, "readBytes", "read");
    put_item(t, r, "holeBytes", "of holes");
    put_item(t, r, "zeroBytes", "of zeros");
    put_item(t, r, "dedupedBytes", "duplicate");
}

static void restore_text(struct text *t, const json_t *r)
{
    put_pace(t, jint(r, "totalBytes"), r);
    put_item(t, r, "equalBytes", "unchanged");
    put_item(t, r, "resumedBytes", "restored before");
    put_item(t, r, "verifiedBytes", "verified");
}

static void restore_details(struct text *t, const json_t *r)
{
    put_item(t, r, "fetchedBytes", "fetched");
    put_item(t, r, "writtenBytes", "written");
    put_item(t, r, "zeroBytes", "of zeros");
    if (jint(r, "resumedFrom") > 0)
        put_text(t, "%sresumed at %s", t->len ? ", " : "", text_bytes((uint64_t)jint(r, "resumedFrom")));
}

/* Contents and index blobs that error correction had to restore. */
static long long corrected_of(const json_t *r)
{
    return (long long)(jint(r, "corrected") + jint(r, "correctedIndexBlobs"));
}

/* One that is not complete has an error that is not what it has found. */
static void verify_text(struct text *t, const json_t *r)
{
    const json_t *error = jobj(r, "error");
    const bool incomplete = error && strcmp(jstr(error, "class"), "damage") != 0;
    put_text(t, "%lld snapshot%s: ", (long long)jint(r, "snapshots"), jint(r, "snapshots") == 1 ? "" : "s");
    put_pace(t, jint(r, "bytesRead") - jint(r, "resumedBytes"), r);
    put_item(t, r, "resumedBytes", "read before it was interrupted");
    if (jint(r, "damages"))
        put_text(t, ", %lld DAMAGED", (long long)jint(r, "damages"));
    else
        put_text(t, corrected_of(r) ? ", nothing is lost" : ", no damage found");
    if (incomplete)
        put_text(t, " until it was interrupted");
    if (corrected_of(r))
        put_text(t, ", %lld CORRECTED", corrected_of(r));
    if (incomplete && *jstr(error, "hint"))
        put_text(t, "; %s", jstr(error, "hint"));
}

static void verify_details(struct text *t, const json_t *r)
{
    char since[TIME_TEXT];
    put_text(t, "%lld of %lld content%s read, %lld object%s", (long long)jint(r, "contentsRead"),
             (long long)jint(r, "contents"), plural((uint64_t)jint(r, "contents")), (long long)jint(r, "objects"),
             plural((uint64_t)jint(r, "objects")));
    if (jint(r, "resumedContents"))
        put_text(t, ", resumed: %lld of them were read before, since %s", (long long)jint(r, "resumedContents"),
                 time_text(jint(r, "readSinceNs"), since));
    if (jint(r, "corrected"))
        put_text(t, ", %lld in %lld pack%s corrected", (long long)jint(r, "corrected"),
                 (long long)jint(r, "correctedPacks"), plural((uint64_t)jint(r, "correctedPacks")));
    if (jint(r, "correctedIndexBlobs"))
        put_text(t, ", %lld index blob%s corrected", (long long)jint(r, "correctedIndexBlobs"),
                 plural((uint64_t)jint(r, "correctedIndexBlobs")));
}

static long long count_readable(const json_t *list)
{
    const char *id;
    json_t *v;
    long long n = 0;
    json_object_foreach((json_t *)(uintptr_t)list, id, v) n += json_is_true(v);
    return n;
}

/* "1 of 2 snapshots deleted"; `some` < 0: "2 snapshots deleted". */
static void put_snapshots(struct text *t, long long some, long long all, const char *how)
{
    if (some >= 0)
        put_text(t, "%lld of ", some);
    put_text(t, "%lld snapshot%s %s", all, plural((uint64_t)all), how);
}

static void admin_text(struct text *t, const json_t *r)
{
    const json_t *a;
    size_t i;
    json_array_foreach(jarr(r, "answers"), i, a)
    {
        const char *verb = jstr(a, "verb");
        if (jobj(a, "error"))
            continue; /* the error of the operation */
        put_text(t, "%s", t->len ? "; " : "");
        if (!strcmp(verb, "scan"))
            put_snapshots(t, -1, (long long)json_array_size(jarr(a, "snapshots")), "found");
        else if (!strcmp(verb, "check") && jarr(a, "proven"))
            put_snapshots(t, (long long)json_array_size(jarr(a, "proven")),
                          (long long)(json_array_size(jarr(a, "proven")) + json_object_size(jobj(a, "refused"))),
                          "readable");
        else if (!strcmp(verb, "check"))
            put_snapshots(t, count_readable(jobj(a, "readable")), (long long)json_object_size(jobj(a, "readable")),
                          "readable");
        else if (!strcmp(verb, "delete")) {
            put_snapshots(t, -1, jint(a, "deleted"), "deleted");
            put_text(t, ", %lld did not exist", (long long)jint(a, "gone"));
        } else if (!strcmp(verb, "expire"))
            put_snapshots(t, jint(a, "expired"), jint(a, "expired") + jint(a, "kept"),
                          jbool(a, "dryRun") ? "would be deleted" : "deleted");
        else
            put_text(t, "%s done", verb);
    }
}

static void put_merged(struct text *t, const json_t *m)
{
    if (jint(m, "mergedManifests") > 0)
        put_text(t, ", %lld contents of manifests stored together", (long long)jint(m, "mergedManifests"));
}

static void maintain_text(struct text *t, const json_t *r)
{
    const json_t *m = jobj(r, "maintenance"), *summary = jobj(m, "summary"), *index = jobj(summary, "index");
    if (*jstr(m, "refused"))
        return; /* why is said with the state */
    if (!jbool(m, "full")) {
        put_text(t, "%lld index epoch%s compacted, %lld index blob%s deleted",
                 (long long)jint(index, "epochsCompacted"), plural((uint64_t)jint(index, "epochsCompacted")),
                 (long long)jint(index, "blobsDeleted"), plural((uint64_t)jint(index, "blobsDeleted")));
        put_merged(t, m);
        return;
    }
    put_text(t, "%s%s of %s in packs", jbool(m, "dryRun") ? "would free " : "freed ",
             text_size(jobj(summary, "deletedPacks"), "bytes"), text_size(m, "packBytes"));
    put_item(t, jobj(summary, "leftovers"), "bytes", "of unfinished files of killed writers");
    if (jint(m, "reclaimableBytes") > 0)
        put_text(t, ", %s kept for now", text_size(m, "reclaimableBytes"));
    if (jint(m, "backFromNs") > 0)
        put_text(t, " until %s or later", text_local_time(jint(m, "backFromNs")));
    if (jint(m, "renewed") > 0)
        put_text(t, ", %lld decayed content%s stored again", (long long)jint(m, "renewed"),
                 plural((uint64_t)jint(m, "renewed")));
    put_merged(t, m);
    if (jint(m, "damaged") > 0)
        put_text(t, ", %lld content%s DAMAGED", (long long)jint(m, "damaged"), plural((uint64_t)jint(m, "damaged")));
}

/* "1.2 GiB in 12 s (100 MiB/s), 34.5 GiB were there, verified" */
static void copy_text(struct text *t, const json_t *r)
{
    const json_t *c = jobj(r, "copy");
    put_pace(t, jint(c, "copiedBytes"), c);
    put_item(t, c, "presentBytes", "were there");
    put_item(t, c, "surplusBytes", "not in the repository any more");
    put_item(t, c, "deletedBytes", "of that deleted");
    put_item(t, c, "lostBytes", "LOST by the repository, and kept");
    put_item(t, c, "heldBytes", "NOT deleted, since it is more than half of the copy");
    put_item(t, c, "leftoverBytes", "of killed writers removed");
    put_item(t, c, "extendedBytes", "with object locks extended");
    if (jbool(c, "verified"))
        put_text(t, ", verified");
}

static void plugin_verify_text(struct text *t, const json_t *r)
{
    put_text(t, "%lld backup%s intact, %lld damaged, %lld missing, %lld not verified", (long long)jint(r, "done"),
             plural((uint64_t)jint(r, "done")), (long long)jint(r, "damaged"), (long long)jint(r, "missing"),
             (long long)jint(r, "failed"));
}

static void plugin_delete_text(struct text *t, const json_t *r)
{
    put_text(t, "%lld backup%s deleted by plugin %s", (long long)jint(r, "done"), plural((uint64_t)jint(r, "done")),
             jstr(r, "plugin"));
    if (jint(r, "failed"))
        put_text(t, ", %lld could not be deleted", (long long)jint(r, "failed"));
}

static const struct kind {
    const char *kind, *member; /* absent if it ended too early */
    void (*put)(struct text *t, const json_t *r);
    void (*put_details)(struct text *t, const json_t *r);
} kinds[] = {
    {"backup", "readBytes", backup_text, backup_details}, {"restore", "fetchedBytes", restore_text, restore_details},
    {"verify", "bytesRead", verify_text, verify_details}, {"admin", "answers", admin_text, NULL},
    {"maintain", "maintenance", maintain_text, NULL},     {"copy", "copy", copy_text, NULL},
    {"verify", "plugin", plugin_verify_text, NULL},       {"admin", "plugin", plugin_delete_text, NULL}};

/* NULL: it left no result. */
static const struct kind *kind_of(const json_t *op)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(jstr(op, "kind"), kinds[i].kind) && json_object_get(jobj(op, "result"), kinds[i].member))
            return &kinds[i];
    return NULL;
}

static bool result_text(const json_t *op, char *out, size_t cap)
{
    const struct kind *k = kind_of(op);
    struct text t = {out, cap, 0};
    *out = '\0';
    if (k)
        k->put(&t, jobj(op, "result"));
    if (!strcmp(jstr(op, "kind"), "delete") && !strcmp(jstr(op, "state"), "Completed") && *jstr(op, "deletes"))
        put_text(&t, "%s deleted", jstr(op, "deletes"));
    return t.len > 0;
}

/* Counts, and the time of each stage. */
static void print_details(const json_t *op, unsigned indent)
{
    const struct kind *k = kind_of(op);
    const json_t *r = jobj(op, "result");
    char text[1024] = "";
    struct text t = {text, sizeof text, 0};
    if (k && k->put_details)
        k->put_details(&t, r);
    if (*text) {
        printf("%*s", (int)indent, "");
        print_paragraph(stdout, text, indent, indent + 2);
    }
    if (!stages_text_json(text, sizeof text, jarr(r, "stages"), jstr(r, "bottleneck")))
        return;
    printf("%*stime: ", (int)indent, "");
    print_paragraph(stdout, text, indent + 6, indent + 6);
}

static const char *bytes_of(const json_t *op, const char *in_result, const char *in_progress)
{
    const json_t *p = jobj(op, "progress"), *r = jobj(op, "result");
    return json_object_get(r, in_result)     ? text_size(r, in_result)
           : json_object_get(p, in_progress) ? text_size(p, in_progress)
                                             : "";
}

const char *gone_text(const json_t *doc, char *out, size_t cap)
{
    const long long gone = jint(doc, "gone"), total = jint(doc, "total");
    const int64_t since = jint(doc, "gone_ns");
    char some[80] = "";
    if (gone && (gone > 1 || total > 1))
        snprintf(some, sizeof some, "%lld volume%s ", gone, gone == 1 ? "" : "s");
    snprintf(out, cap, "%snot whole in the repository since %s (%s): %s", some, text_local_time(since), text_ago(since),
             jstr(doc, "gone_why"));
    return out;
}

const char *lost_text(const json_t *doc, char *out, size_t cap)
{
    const long long lost = jint(doc, "lost"), completed = jint(doc, "completed");
    const int64_t since = jint(doc, "lost_ns");
    const char *left = jbool(doc, "expired") ? "; nothing of it is left" : "";
    char some[80] = "";
    if (jint(doc, "gone_ns") || (!lost && !*left))
        return "";
    if (completed > 1)
        snprintf(some, sizeof some, "%lld of %lld volumes ", lost, completed);
    if (lost)
        snprintf(out, cap, "%sno longer in the repository: %s, %s (%s)%s", some, jstr(doc, "lost_why"),
                 text_local_time(since), text_ago(since), left);
    else
        snprintf(out, cap, "its native snapshots are no longer on the storage%s", left);
    return out;
}

const char *result_size(const json_t *op)
{
    return bytes_of(op, "totalBytes", "total");
}

const char *result_new(const json_t *op)
{
    return bytes_of(op, "incrementalBytes", "new");
}

void result_print(const json_t *op, const char *name, unsigned indent, bool details)
{
    char text[1024], line[6000];
    if (!result_text(op, text, sizeof text))
        return;
    snprintf(line, sizeof line, "%.4200s%s%s", name ? name : "", name ? ": " : "", text);
    printf("%*s", (int)indent, "");
    print_paragraph(stdout, line, indent, indent + 2);
    if (details)
        print_details(op, indent + 2);
}

#define DAMAGED_SHOWN 20

/* What a verification has found, of the snapshots that it is part of first. */
static void print_damaged(const json_t *r)
{
    const json_t *list = jarr(r, "damageList"), *piece;
    size_t i;
    json_array_foreach(list, i, piece)
    {
        const char *snapshot = jstr(piece, "snapshot");
        char of[5200] = "";
        if (i == DAMAGED_SHOWN)
            break;
        if (snapshot[0])
            snprintf(of, sizeof of, "%.4500s, snapshot %.64s, %.500s: ", jstr(piece, "source"), snapshot,
                     jstr(piece, "path"));
        print_line("Damaged", "%s%.900s", of, jstr(piece, "why"));
    }
    if (json_array_size(list) > DAMAGED_SHOWN)
        print_line("", "and more: --json lists up to 1,000");
}

void result_print_labelled(const json_t *op)
{
    char text[1024];
    if (result_text(op, text, sizeof text))
        print_line("Result", "%s", text);
    print_damaged(jobj(op, "result"));
}
