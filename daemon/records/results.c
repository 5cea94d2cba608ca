/* SPDX-License-Identifier: GPL-2.0-or-later */
/* results.c - see results.h */
#include "daemon/records/results.h"

#include "base/json.h"
#include "daemon/records/table-impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THERE(member) FIELD(member, "", FIELD_BOOL, .flags = FIELD_THERE)
#define NUMBER(member, wire, ...) FIELD(member, wire, FIELD_INT, .unset = -1, __VA_ARGS__)
#define SIZE(member, wire, ...) NUMBER(member, wire, .unit = "bytes", __VA_ARGS__)

/* ---- the part that is asked for again ---- */

#define S struct mover_stage
static const struct field_desc mover_stage_table[] = {
    STR(name),
    FIELD(busy_s, "busySeconds", FIELD_REAL, .unset = -1, .unit = "s"),
    FIELD(stalled_s, "stalledSeconds", FIELD_REAL, .unset = -1, .unit = "s"),
    SIZE(bytes, "bytes"),
};
TABLE(mover_stage, "stage", .keep_text = false);
#undef S

#define S struct plugin_failure
static const struct field_desc plugin_failure_table[] = {STR(operation), STR(volume), STR(error)};
static TABLE(plugin_failure, "failure", .keep_text = false);
#undef S

#define S struct mover_incremental
static const struct field_desc mover_incremental_table[] = {
    THERE(there),
    BOOL(used, ALWAYS),
    BOOL(distrusted, .about = "the list was wrong"),
    BOOL(failed, .about = "the list could not be used at all"),
    SIZE(changed, "changedBytes", .about = "in the list"),
    SIZE(cloned, "clonedBytes", .about = "taken over from the parent"),
    SIZE(sampled, "sampledBytes", .about = "of these, read and compared"),
    STR(why, .about = "why all data was read"),
};
static TABLE(mover_incremental, "incremental", .keep_text = false);
#undef S

NAMES(maintain_refusal, "", "owner", "unsupported", "busy", "machine");
_Static_assert(COUNT(maintain_refusal_words) == REFUSALS, "each value has a word");

#define S struct mover_maintenance
static const struct field_desc mover_maintenance_table[] = {
    THERE(there),
    ENUM(refused, maintain_refusal, .about = "why nothing was done"),
    STR(owner, .about = "of maintenance, in the repository"),
    STR(hint),
    NUMBER(quick_s, "quickSeconds", .unit = "s", .about = "interval, 0: disabled"),
    NUMBER(full_s, "fullSeconds", .unit = "s"),
    BOOL(full, ALWAYS),
    FIELD(dry_run, "dryRun", FIELD_BOOL),
    FIELD(seconds, "seconds", FIELD_REAL, .unit = "s"),
    SIZE(freed, "freedBytes"),
    SIZE(packs, "packBytes", .about = "before the run"),
    SIZE(reclaimable, "reclaimableBytes", .about = "unneeded, and kept for now"),
    SIZE(trapped, "trappedBytes", .about = "unneeded, in packs with needed contents"),
    NUMBER(damaged, "damaged", .about = "contents that cannot be read"),
    NUMBER(renewed, "renewed", .about = "contents that error correction had to restore, stored again"),
    NUMBER(merged, "mergedManifests", .about = "contents of manifests that were stored together"),
    FIELD(back_from_ns, "backFromNs", FIELD_INT, .unit = "ns", .about = "when the first of them can be freed"),
    FIELD(silent_ns, "silentSinceNs", FIELD_INT, .unit = "ns",
          .about = "since when the owner, another one, has not run it; none: it does"),
    FIELD(summary, "summary", FIELD_OBJECT, .about = "all numbers, as of maintenance --json"),
};
static TABLE(mover_maintenance, "maintenance", .keep_text = false);
#undef S

#define S struct mover_result
static const struct field_desc mover_result_table[] = {
    THERE(there),
    FIELD(snapshot, "snapshotID", FIELD_STR, .about = "in the repository"),
    FIELD(as, "as", FIELD_STR, .about = "source of that snapshot"),
    SIZE(total, "totalBytes"),
    SIZE(incremental, "incrementalBytes", .about = "that the repository did not have"),
    SIZE(uploaded, "uploadedBytes"),
    FIELD(incremental_run, "incremental", FIELD_STRUCT, .of = &mover_incremental_fields),
    STR(skip, .about = "why a plugin did not take the volume"),
    FIELD(id, "id", FIELD_STR, .about = "a plugin's name for the operation"),
    STR(plugin),
    FIELD(stored, "stored", FIELD_JSON, .about = "what a plugin stored"),
    FIELD(stages, "stages", FIELD_STRUCTS, .of = &mover_stage_fields),
    FIELD(answers, "answers", FIELD_ARRAY, .about = "of an admin operation, one for each step"),
    NUMBER(damages, "damages", .about = "of a verification: damaged or missing pieces"),
    FIELD(since_ns, "readSinceNs", FIELD_INT, .unit = "ns",
          .about = "of a verification: since when what it counts as read was read, by itself or by an interrupted one"),
    NUMBER(corrected, "corrected", .about = "contents that only error correction could restore"),
    NUMBER(corrected_packs, "correctedPacks", .about = "that have them"),
    NUMBER(corrected_indexes, "correctedIndexBlobs", .about = "index blobs, likewise"),
    FIELD(damage_list, "damageList", FIELD_ARRAY, .about = "of a verification: the pieces, and what they are parts of"),
    NUMBER(done, "done", .about = "operations that a plugin deleted or verified"),
    NUMBER(damaged, "damaged"),
    NUMBER(missing, "missing"),
    NUMBER(failed, "failed"),
    FIELD(failures, "failures", FIELD_STRUCTS, .of = &plugin_failure_fields),
    STRUCT(maintenance, mover_maintenance),
    FIELD(copy, "copy", FIELD_OBJECT, .about = "of a repository: blobs and bytes"),
    FIELD(repository, "repository", FIELD_TEXT, .about = "requests and bytes (docs/mover.md)"),
    FIELD(rest, "", FIELD_REST),
};
TABLE(mover_result, "result", .keep_text = false);
#undef S

/* Into a struct whose first field says whether it is there. */
static int load_there(const struct fields *t, void *s, bool *there, const json_t *doc)
{
    int rc = 0;
    if (json_is_object(doc))
        rc = fields_load(t, s, doc);
    else
        fields_clear(t, s);
    *there = json_is_object(doc);
    return rc;
}

int mover_result_load(struct mover_result *r, const json_t *doc)
{
    return load_there(&mover_result_fields, r, &r->there, doc);
}

int mover_result_copy(struct mover_result *r, const struct mover_result *from)
{
    struct mover_result copy;
    int rc = fields_copy(&mover_result_fields, &copy, from);
    mover_result_clear(r);
    *r = copy;
    return rc;
}

json_t *mover_result_to_json(const struct mover_result *r)
{
    return r->there ? fields_to_json(&mover_result_fields, r) : NULL;
}

int mover_result_add_failure(struct mover_result *r, const char *operation, const char *volume, const char *error)
{
    struct plugin_failure *v = reallocarray(r->failures.v, r->failures.n + 1, sizeof *v);
    if (!v)
        return strings_set_nomem();
    r->failures.v = v;
    v += r->failures.n++;
    fields_init(&plugin_failure_fields, v);
    str_set(&v->operation, operation);
    str_set(&v->volume, volume);
    return str_set(&v->error, error);
}

struct mover_copy mover_copy_of(const struct mover_result *r)
{
    const json_t *c = r->copy;
    return (struct mover_copy){.there = c != NULL,
                               .copied = jint(c, "copiedBlobs"),
                               .copied_bytes = jint(c, "copiedBytes"),
                               .present = jint(c, "presentBlobs"),
                               .present_bytes = jint(c, "presentBytes"),
                               .surplus = jint(c, "surplusBlobs"),
                               .surplus_bytes = jint(c, "surplusBytes"),
                               .deleted = jint(c, "deletedBlobs"),
                               .deleted_bytes = jint(c, "deletedBytes"),
                               .held_bytes = jint(c, "heldBytes"),
                               .lost = jint(c, "lostBlobs"),
                               .extended = jint(c, "extendedBlobs")};
}

/* The answer of the step that looked at it; NULL: none did. */
static const json_t *answer_about(const struct mover_result *r, const char *snapshot)
{
    const json_t *answer;
    size_t i;
    json_array_foreach(r->answers, i, answer) if (json_object_get(jobj(answer, "readable"), snapshot)) return answer;
    return NULL;
}

int64_t mover_result_checked_of(const struct mover_result *r, const char *snapshot)
{
    const json_t *v = json_object_get(jobj(answer_about(r, snapshot), "of"), snapshot);
    return json_is_integer(v) ? json_integer_value(v) : -1;
}

enum checked mover_result_checked(const struct mover_result *r, const char *snapshot, const char **why)
{
    const json_t *answer = answer_about(r, snapshot), *v = json_object_get(jobj(answer, "readable"), snapshot);
    *why = jstr(jobj(answer, "why"), snapshot);
    return !v ? CHECKED_NONE : json_is_true(v) ? CHECKED_READABLE : CHECKED_UNREADABLE;
}

enum unfit mover_result_unfit(const struct mover_result *r, const char *snapshot)
{
    static const char *const names[] = {
        [UNFIT_ABSENT] = "absent", [UNFIT_DAMAGED] = "damaged", [UNFIT_OTHER] = "other"};
    const char *unfit = jstr(jobj(answer_about(r, snapshot), "unfit"), snapshot);
    for (enum unfit u = UNFIT_ABSENT; u <= UNFIT_OTHER; u++)
        if (!strcmp(unfit, names[u]))
            return u;
    return UNFIT_UNKNOWN;
}

/* In a list that is sorted; in one that is not it may be overlooked. */
static bool list_has_number(const json_t *list, int64_t number)
{
    size_t from = 0, to = json_array_size(list);
    while (from < to) {
        const size_t mid = from + (to - from) / 2;
        const json_t *v = json_array_get(list, mid);
        if (!json_is_integer(v))
            return false;
        if (json_integer_value(v) == number)
            return true;
        if (json_integer_value(v) < number)
            from = mid + 1;
        else
            to = mid;
    }
    return false;
}

enum checked mover_result_checked_number(const struct mover_result *r, int64_t number, const char **why)
{
    enum checked found = CHECKED_NONE;
    const json_t *answer;
    char key[24];
    size_t i;
    snprintf(key, sizeof key, "%lld", (long long)number);
    *why = "";
    json_array_foreach(r->answers, i, answer)
    {
        if (json_object_get(jobj(answer, "refused"), key)) {
            *why = jstr(jobj(answer, "refused"), key);
            return CHECKED_UNREADABLE;
        }
        if (list_has_number(jarr(answer, "proven"), number))
            found = CHECKED_READABLE;
    }
    return found;
}

json_t *mover_result_damaged(const struct mover_result *r, json_t *sources)
{
    const json_t *piece;
    size_t i;
    json_t *set = NULL;
    json_array_foreach(r->damage_list, i, piece)
    {
        const char *id = jstr(piece, "snapshot");
        if (!id[0] || json_object_get(set, id))
            continue;
        if (!set)
            set = json_object();
        jset_str(set, id, jstr(piece, "why"));
        json_object_set_new(sources, jstr(piece, "source"), json_true());
    }
    return set;
}

json_t *mover_result_expired(const struct mover_result *r)
{
    const json_t *answer, *id;
    size_t i, k;
    json_t *set = NULL;
    json_array_foreach(r->answers, i, answer)
    {
        json_array_foreach(jarr(answer, "removed"), k, id)
        {
            if (!set)
                set = json_object();
            jset_str(set, json_is_string(id) ? json_string_value(id) : jstr(id, "snapshot"), jstr(id, "operation"));
        }
    }
    return set;
}

/* ---- what is counted ---- */

const char *const request_kinds[REQUESTS] = {"get", "put", "list", "delete", "stat"};
const char *const request_codes[REQUEST_CODES] = {"ok", "not-found", "no-space", "permission", "damage", "error"};

#define S struct repository_figures
static const struct field_desc repository_figures_table[] = {
    THERE(there),
    SIZE(uploaded, "uploadedBytes"),
    SIZE(downloaded, "downloadedBytes"),
    NUMBER(retries, "retries"),
    SIZE(stored, "storedBytes"),
    NUMBER(contents, "contents"),
    NUMBER(index_blobs, "indexBlobs"),
    SIZE(index_cache, "indexCacheBytes"),
    SIZE(unreferenced, "unreferencedBytes"),
    FIELD(clock_skew_s, "clockSkewSeconds", FIELD_JSON),
    FIELD(requests_doc, "requests", FIELD_OBJECT),
};
static TABLE(repository_figures, "repository", .keep_text = false);
#undef S

#define S struct reader_figures
static const struct field_desc reader_figures_table[] = {
    THERE(there),
    SIZE(skipped, "skippedBytes"),
    NUMBER(inflight_max, "inflightMax"),
};
static TABLE(reader_figures, "reader", .keep_text = false);
#undef S

#define S struct mover_figures
static const struct field_desc mover_figures_table[] = {
    THERE(there),
    STR(bottleneck),
    FIELD(policy_error, "policyError", FIELD_STR),
    BOOL(partial),
    BOOL(recorded),
    FIELD(untouched, "targetUntouched", FIELD_BOOL),
    SIZE(read, "readBytes"),
    SIZE(zero, "zeroBytes"),
    SIZE(hole, "holeBytes"),
    NUMBER(chunks, "chunks"),
    SIZE(deduped, "dedupedBytes"),
    SIZE(bad, "badBytes"),
    SIZE(written, "writtenBytes"),
    NUMBER(contents, "contents"),
    NUMBER(contents_read, "contentsRead"),
    NUMBER(damages, "damages"),
    FIELD(bad_ranges, "badRanges", FIELD_ARRAY),
    STRUCT(reader, reader_figures),
    STRUCT(repository, repository_figures),
};
static TABLE(mover_figures, "figures", .keep_text = false);
#undef S

bool mover_result_recorded(const json_t *doc)
{
    return jbool(doc, "recorded");
}

const char *mover_result_repository(const json_t *doc)
{
    return jstr(doc, "uniqueID");
}

static int64_t count_at(const json_t *list, size_t i)
{
    return json_integer_value(json_array_get(list, i));
}

static void load_requests(struct request_figures *q, const json_t *doc)
{
    const json_t *times = jarr(doc, "counts"), *codes = jobj(doc, "codes");
    for (unsigned i = 0; i < REQUEST_CODES; i++)
        q->codes[i] = jint(codes, request_codes[i]);
    q->has_times = json_array_size(times) == REQUEST_TIMES;
    for (unsigned i = 0; q->has_times && i < REQUEST_TIMES; i++)
        q->times[i] = count_at(times, i);
    q->seconds = json_number_value(json_object_get(doc, "seconds"));
}

int mover_figures_load(struct mover_figures *f, const json_t *doc)
{
    fields_init(&mover_figures_fields, f);
    mover_result_init(&f->result);
    int rc = load_there(&mover_figures_fields, f, &f->there, doc);
    const int result = mover_result_load(&f->result, doc);
    for (unsigned i = 0; i < REQUESTS; i++)
        load_requests(&f->requests[i], jobj(f->repository.requests_doc, request_kinds[i]));
    return rc < 0 ? rc : result;
}

void mover_figures_clear(struct mover_figures *f)
{
    mover_result_clear(&f->result);
    fields_clear(&mover_figures_fields, f);
}
