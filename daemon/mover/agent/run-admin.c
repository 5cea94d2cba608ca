/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * run-admin.c - operations of the daemon on a repository: a list of steps, each with an answer
 *
 * The steps are done in order. A failed step has its error in its answer and does not prevent the others; the first
 * error becomes the run's.
 */
#include "daemon/mover/agent/listing.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "base/units.h"
#include "daemon/mover/backup-records.h"
#include "repo/expire.h"
#include "repo/leftovers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DOCUMENTS_MAX (256u << 10)
#define METADATA_COMPRESSION 0x1101 /* zstd-fastest */

static int bad_step(struct err *e, const char *verb, const char *what)
{
    err_set(e, ERR_USAGE, EINVAL, "admin step \"%.40s\": %s", verb, what);
    return -EINVAL;
}

static int step_source(const json_t *step, const char *verb, bool required, struct snapshot_source *ret, bool *given,
                       struct err *e)
{
    const json_t *v = json_object_get(step, "source");
    *given = v && !json_is_null(v) && !(json_is_string(v) && !json_string_length(v));
    if (!*given)
        return required ? bad_step(e, verb, "source missing") : 0;
    if (!json_is_string(v))
        return bad_step(e, verb, "source is not a string");
    return snapshot_source_parse(ret, json_string_value(v), e);
}

/* ---- scan ---- */

#define SCANNED_MAX (32u << 10) /* bytes of one snapshot; those of this program have less than 2 KiB */

struct scan {
    struct run_context *run;
    struct listing *list;
    const char *node; /* NULL: a source was named */
    bool put;         /* the second walk */
    unsigned large;
    int rc;
};

/* What the daemon reads of a snapshot. */
static json_t *scanned_json(const struct snapshot *s)
{
    static const char *const names[] = {"backup", "operation", "job", "class", "volume", "volume-id", "native", "size"};
    char text[4500], end[TIME_TEXT], key[32];
    json_t *tags = json_object();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(key, sizeof key, "tag:%s", names[i]);
        json_t *v = json_object_get(s->tags, key);
        if (v)
            json_object_set(tags, key, v);
    }
    return json_pack("{s:s,s:s,s:s,s:s,s:o}", "id", s->id, "as", snapshot_source_text(&s->source, text, sizeof text),
                     "endTime", time_text(s->end_ns, end), "incomplete", s->incomplete, "tags", tags);
}

static int scan_one(struct snapshot *s, void *arg)
{
    struct scan *x = arg;
    if (atomic_load(&x->run->cancel->requested))
        return x->rc = -ECANCELED;
    if (x->node && (strcmp(s->source.user, "snapferry") != 0 || strcmp(s->source.host, x->node) != 0))
        return 0;
    json_t *j CLEANUP(json_decrefp) = scanned_json(s);
    const size_t len = json_dumpb(j, NULL, 0, JSON_COMPACT);
    if (!j || !len)
        return x->rc = -ENOMEM;
    if (len <= SCANNED_MAX)
        return x->rc =
                   x->put ? listing_put(x->list, s->start_ns, s->id, j) : listing_note(x->list, s->start_ns, s->id, j);
    if (!x->put && x->large++ == 0)
        log_line(LOG_LVL_WARNING, "snapshot %s is passed over: its manifest has %zu bytes", s->id, len);
    return 0;
}

/* Twice: noted, then put in order of their start time and id. */
static int scan_walks(struct scan *s, struct repo *r, const struct snapshot_source *only, unsigned *bad, struct err *e)
{
    int rc = snapshots_each(r, only, false, scan_one, s, bad, e);
    if (rc < 0 || s->rc < 0)
        return rc;
    listing_place(s->list);
    s->put = true;
    return snapshots_each(r, only, false, scan_one, s, NULL, e);
}

static int do_scan(struct run_context *x, struct repo *r, const json_t *step, json_t *answer, struct err *e)
{
    struct snapshot_source src;
    CLEANUP(listing_freep) struct listing *list = NULL;
    bool given;
    unsigned bad = 0;
    const char *after = json_string_value(json_object_get(step, "after"));
    const char *node = json_string_value(json_object_get(step, "node"));
    int rc = step_source(step, "scan", false, &src, &given, e);
    if (rc == 0)
        rc = listing_new(&list, x, "snapshots", after ? after : "", e);
    if (rc < 0)
        return rc;
    struct scan s = {.run = x, .list = list, .node = given ? NULL : node && *node ? node : x->job->node};
    rc = scan_walks(&s, r, given ? &src : NULL, &bad, e);
    json_object_set_new(answer, "unreadable", json_integer((json_int_t)bad + s.large));
    if (s.rc == -ECANCELED)
        return err_set(e, ERR_INTERRUPTED, ECANCELED, "interrupted while the snapshots were listed");
    if (s.rc < 0)
        return s.rc == -ENOMEM ? err_nomem(e) : err_set(e, ERR_GENERIC, -s.rc, "cannot list the snapshots");
    return rc < 0 ? rc : listing_end(list, answer, e);
}

/* ---- delete ---- */

/* A mover may have reported a snapshot that another operation wrote: it is not its backup's to delete. */
struct ownership {
    struct run_context *run;
    const json_t *operations; /* snapshot id -> the operation that has it in its record */
    json_t *foreign;          /* array of ids */
};

static int note_foreign(struct snapshot *s, void *arg)
{
    struct ownership *x = arg;
    const char *operation = json_string_value(json_object_get(x->operations, s->id));
    const char *tagged = json_string_value(json_object_get(s->tags, "tag:operation"));
    if (atomic_load(&x->run->cancel->requested))
        return -ECANCELED;
    if (!operation || !strcmp(tagged ? tagged : "", operation))
        return 0;
    log_warning("snapshot %s was written by operation \"%.200s\", not by %.200s: it stays", s->id, tagged ? tagged : "",
                operation);
    return json_array_append_new(x->foreign, json_string(s->id)) < 0 ? -ENOMEM : 0;
}

static bool array_has(const json_t *a, const char *text)
{
    const json_t *v;
    size_t i;
    json_array_foreach(a, i, v) if (!strcmp(json_string_value(v), text)) return true;
    return false;
}

static int do_delete(struct run_context *x, struct repo *r, const json_t *step, json_t *answer, struct err *e)
{
    CLEANUP_FREE char(*ids)[33] = NULL;
    size_t all, n = 0;
    int rc = job_ids(json_object_get(step, "snapshots"), "do.snapshots", &ids, &all, e);
    if (rc < 0)
        return rc;
    CLEANUP_FREE const char **list = calloc(all + 1, sizeof *list);
    struct ownership own = {.run = x, .operations = json_object_get(step, "operations"), .foreign = json_array()};
    json_object_set_new(answer, "foreign", own.foreign);
    if (!list)
        return err_nomem(e);
    if (json_object_size(own.operations) && (rc = snapshots_each(r, NULL, false, note_foreign, &own, NULL, e)) < 0) {
        if (!e->cls)
            err_set(e, rc == -ECANCELED ? ERR_INTERRUPTED : ERR_GENERIC, -rc,
                    "cannot look for the snapshots to delete");
        return rc;
    }
    for (size_t i = 0; i < all; i++)
        if (!array_has(own.foreign, ids[i]))
            list[n++] = ids[i];
    const struct delete_opts o = {.pinned = json_is_true(json_object_get(step, "pinned")),
                                  .last_good = json_is_true(json_object_get(step, "last_good")),
                                  .dry_run = json_is_true(json_object_get(step, "dry_run"))};
    struct delete_result d = {0};
    rc = snapshots_delete(r, list, n, &o, &d, e);
    json_object_set_new(answer, "deleted", json_integer((json_int_t)d.deleted));
    json_object_set_new(answer, "gone", json_integer((json_int_t)d.gone));
    const char *backup = json_string_value(json_object_get(step, "backup"));
    unsigned records = 0;
    if (rc == 0 && backup && !o.dry_run)
        rc = backup_records_remove(r, x->job->node, backup, &records, e);
    json_object_set_new(answer, "records", json_integer(records));
    return rc;
}

/* ---- expire and policy ---- */

static int step_keep(const json_t *step, struct retention_policy *ret, bool *given, struct err *e)
{
    const json_t *v = json_object_get(step, "keep");
    struct job_keep k;
    *given = v && !json_is_null(v);
    int rc = *given ? job_keep_parse(&k, v, "do.keep", e) : 0;
    if (*given && rc == 0)
        *ret = (struct retention_policy){.latest = k.latest,
                                         .hourly = k.hourly,
                                         .daily = k.daily,
                                         .weekly = k.weekly,
                                         .monthly = k.monthly,
                                         .annual = k.annual};
    return rc;
}

static json_t *keep_json(const struct retention_policy *p)
{
    const struct {
        const char *name;
        int n;
    } members[] = {{"latest", p->latest}, {"hourly", p->hourly},   {"daily", p->daily},
                   {"weekly", p->weekly}, {"monthly", p->monthly}, {"annual", p->annual}};
    json_t *o = json_object();
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        json_object_set_new(o, members[i].name, members[i].n < 0 ? json_null() : json_integer(members[i].n));
    return o;
}

#define REMOVED_MAX 2000 /* ids; the native snapshots of others count as only copies */
/* What has no room in the result is counted. */
struct verdicts {
    struct run_context *run;
    json_t *list;
    json_int_t omitted;
    json_t *removed; /* what expires; NULL: nothing does, it is a dry run */
};

static int note_verdict(const struct expire_verdict *v, void *arg)
{
    struct verdicts *x = arg;
    char source[4500], start[TIME_TEXT];
    if (atomic_load(&x->run->cancel->requested))
        return -ECANCELED;
    if (x->removed && !v->keep && json_array_size(x->removed) < REMOVED_MAX)
        list_add(x->run, x->removed,
                 v->operation[0] ? json_pack("{s:s,s:s}", "snapshot", v->id, "operation", v->operation)
                                 : json_string(v->id));
    if (!x->list)
        return 0;
    json_t *reasons = json_array();
    for (unsigned i = 0; i < v->n_reasons; i++)
        json_array_append_new(reasons, json_string(v->reasons[i]));
    json_t *j =
        json_pack("{s:s, s:s, s:s, s:s, s:I, s:b, s:b, s:b, s:o, s:s, s:o}", "id", v->id, "volume", v->volume, "source",
                  snapshot_source_text(v->source, source, sizeof source), "startTime", time_text(v->start_ns, start),
                  "size", (json_int_t)v->size, "incomplete", (int)v->incomplete, "pinned", (int)v->pinned, "keep",
                  (int)v->keep, "reasons", reasons, "why", v->why, "policy", keep_json(v->policy));
    x->omitted += !list_add(x->run, x->list, j);
    return 0;
}

static int expire_source(struct repo *r, const json_t *entry, const char *node, bool dry_run, struct verdicts *verdicts,
                         struct expire_result *sum, struct err *e)
{
    struct snapshot_source src;
    struct retention_policy keep;
    bool has_source = false, has_keep = false;
    int rc = entry ? step_source(entry, "expire", true, &src, &has_source, e) : 0;
    if (rc == 0 && entry)
        rc = step_keep(entry, &keep, &has_keep, e);
    if (rc < 0)
        return rc;
    const struct expire_opts o = {.source = has_source ? &src : NULL,
                                  .user = has_source ? NULL : "snapferry",
                                  .host = has_source ? NULL : node,
                                  .keep = has_keep ? &keep : NULL,
                                  .dry_run = dry_run};
    struct expire_result res = {0};
    rc = snapshots_expire(r, &o, note_verdict, verdicts, &res, e);
    sum->sources += res.sources;
    sum->kept += res.kept;
    sum->expired += res.expired;
    sum->unreadable += res.unreadable;
    return rc;
}

static int do_expire(struct run_context *x, struct repo *r, const json_t *step, json_t *answer, struct err *e)
{
    const json_t *sources = json_object_get(step, "sources");
    const bool dry = json_is_true(json_object_get(step, "dry_run"));
    const bool listed = dry || json_is_true(json_object_get(step, "explain"));
    struct verdicts verdicts = {.run = x, .list = listed ? json_array() : NULL, .removed = dry ? NULL : json_array()};
    struct expire_result sum = {0};
    int rc = 0;
    if (!sources || json_is_null(sources))
        rc = expire_source(r, NULL, x->job->node, dry, &verdicts, &sum, e);
    else if (!json_is_array(sources))
        rc = bad_step(e, "expire", "sources are not a list");
    else
        for (size_t i = 0; i < json_array_size(sources) && rc == 0; i++)
            rc = expire_source(r, json_array_get(sources, i), x->job->node, dry, &verdicts, &sum, e);
    struct blob_leftovers left = {0};
    if (rc == 0)
        rc = leftovers_remove(r, dry, &left, e);
    if (left.files && !dry)
        log_info("%llu unfinished file%s of killed writers removed (%llu bytes)", (unsigned long long)left.files,
                 plural(left.files), (unsigned long long)left.bytes);
    if (listed) {
        json_object_set_new(answer, "snapshots", verdicts.list);
        json_object_set_new(answer, "omitted", json_integer(verdicts.omitted));
    }
    if (rc == 0 && json_array_size(verdicts.removed))
        json_object_set(answer, "removed", verdicts.removed);
    json_decref(verdicts.removed);
    json_object_set_new(answer, "dryRun", json_boolean(dry));
    json_object_set_new(answer, "sources", json_integer(sum.sources));
    json_object_set_new(answer, "kept", json_integer((json_int_t)sum.kept));
    json_object_set_new(answer, "expired", json_integer((json_int_t)sum.expired));
    json_object_set_new(answer, "unreadable", json_integer(sum.unreadable));
    json_object_set_new(answer, "leftovers", json_integer((json_int_t)left.files));
    json_object_set_new(answer, "leftoverBytes", json_integer((json_int_t)left.bytes));
    if (rc == 0 && !dry && sum.expired)
        admin_records_tidy(x, r, answer);
    return rc == -ECANCELED && !e->cls ? err_set(e, ERR_INTERRUPTED, ECANCELED, "interrupted while snapshots expire")
                                       : rc;
}

int policy_write(struct repo *r, const struct snapshot_source *src, const struct retention_policy *keep, struct err *e)
{
    CLEANUP(manifest_batch_freep) struct manifest_batch *b = NULL;
    CLEANUP(session_freep) struct session *s = NULL;
    CLEANUP(put_scratch_freep) struct put_scratch *p = NULL;
    int rc = manifest_batch_new(&b, e);
    if (rc == 0)
        rc = source_policy_keep(r, src, keep, b, e);
    if (rc == 0)
        rc = session_new(&s, r, &(struct session_opts){.no_adopt = true}, e);
    if (rc == 0)
        rc = put_scratch_new(&p, r, METADATA_COMPRESSION, DOCUMENTS_MAX, e);
    if (rc == 0)
        rc = manifest_batch_put(b, s, p, e);
    return rc == 0 && session_pending(s) > 0 ? session_flush(s, e) : rc;
}

static int do_policy(struct run_context *x, struct repo *r, const json_t *step, json_t *answer, struct err *e)
{
    (void)x;
    struct snapshot_source src;
    struct retention_policy keep;
    bool has_source, has_keep;
    int rc = step_source(step, "policy", true, &src, &has_source, e);
    if (rc == 0)
        rc = step_keep(step, &keep, &has_keep, e);
    if (rc == 0 && !has_keep)
        rc = bad_step(e, "policy", "retention (keep) missing");
    if (rc == 0)
        rc = policy_write(r, &src, &keep, e);
    if (rc == 0 && source_policy_effective(r, &src, &keep, e) == 0)
        json_object_set_new(answer, "effective", keep_json(&keep));
    return rc;
}

/* ---- pin ---- */

static int strings(const json_t *list, const char ***ret, struct err *e)
{
    *ret = NULL;
    if (!list || json_is_null(list))
        return 0;
    if (!json_is_array(list))
        return bad_step(e, "pin", "pins are not a list");
    *ret = calloc(json_array_size(list) + 1, sizeof **ret);
    if (!*ret)
        return err_nomem(e);
    for (size_t i = 0; i < json_array_size(list); i++) {
        (*ret)[i] = json_string_value(json_array_get(list, i));
        if (!(*ret)[i])
            return bad_step(e, "pin", "a pin is not a string");
    }
    return 0;
}

static int do_pin(struct run_context *x, struct repo *r, const json_t *step, json_t *answer, struct err *e)
{
    (void)x;
    CLEANUP_FREE const char **add = NULL;
    CLEANUP_FREE const char **remove = NULL;
    const char *id = json_string_value(json_object_get(step, "snapshot"));
    char new_id[33] = "";
    int rc = id ? strings(json_object_get(step, "add"), &add, e) : bad_step(e, "pin", "snapshot missing");
    if (rc == 0)
        rc = strings(json_object_get(step, "remove"), &remove, e);
    if (rc == 0)
        rc = snapshot_pin(r, id, add, remove, new_id, e);
    json_object_set_new(answer, "snapshot", json_string(new_id));
    return rc;
}

/* ---- the list ---- */

static const struct verb {
    const char *name;
    int (*run)(struct run_context *x, struct repo *r, const json_t *step, json_t *answer, struct err *e);
} verbs[] = {
    {"scan", do_scan},     {"check", admin_check}, {"delete", do_delete},    {"expire", do_expire},
    {"policy", do_policy}, {"pin", do_pin},        {"record", admin_record}, {"records", admin_records},
};

static int do_step(struct run_context *x, struct repo *r, const json_t *step, json_t *answer, struct err *e)
{
    const char *name = json_string_value(json_object_get(step, "verb"));
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (!strcmp(verbs[i].name, name))
            return verbs[i].run(x, r, step, answer, e);
    return bad_step(e, name, "unknown verb");
}

int run_admin(struct run_context *x, struct repo *r, struct err *e)
{
    json_t *answers = json_array();
    json_object_set_new(x->result, "answers", answers);
    struct err first = ERR_INIT;
    int first_rc = 0;
    const size_t n = json_array_size(x->job->steps);
    atomic_store(&x->progress->phase, PHASE_MOVING);
    atomic_store(&x->progress->total, n);
    for (size_t i = 0; i < n; i++) {
        const json_t *step = json_array_get(x->job->steps, i);
        json_t *answer = json_object();
        struct err mine = ERR_INIT;
        int rc = 0;
        json_object_set(answer, "verb", json_object_get(step, "verb"));
        if (atomic_load(&x->cancel->requested))
            rc = err_set(&mine, ERR_INTERRUPTED, ECANCELED, "interrupted after %zu of %zu step%s", i, n, plural(n));
        else
            rc = do_step(x, r, step, answer, &mine);
        json_object_set_new(answer, "error", rc < 0 ? result_error_json(&mine) : json_null());
        json_array_append_new(answers, answer);
        if (rc < 0 && first_rc == 0) {
            first = mine;
            first_rc = rc;
        }
        atomic_store(&x->progress->done, i + 1);
        if (mine.cls == ERR_INTERRUPTED)
            break;
    }
    if (first_rc < 0)
        *e = first;
    return first_rc;
}
