/* SPDX-License-Identifier: GPL-2.0-or-later */
/* runs.c - operations and backups */
#include "daemon/answers/answers-impl.h"

#include "base/time.h"
#include "base/units.h"
#include "daemon/records/opaque.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- operations ---- */

/* What the documented members do not say; never what is long or secret. */
static json_t *operation_details(const struct operation *op)
{
    static const char *const members[] = {
        "exposure", "native",        "native_doc",    "target_name",   "from",          "of",
        "attempts", "identity",      "snapshot_ns",   "snapshot_ms",   "group_skew_ms", "frozen_ms",
        "cancel",   "cancel_reason", "outcome",       "cleanup_error", "reason",        "do",
        "policy",   "into",          "own",           "prune_rounds",  "job",           "rebuilt",
        "size",     "snapshot",      "plugin_id",     "verify",        "differential",  "ranged",
        "offset",   "length",        "configured_ns", "lost",          "base",          "maintain"};
    CLEANUP_JSON json_t *d = operation_to_json(op);
    json_t *o = json_object();
    for (unsigned i = 0; i < sizeof members / sizeof *members; i++)
        copy_member(o, members[i], d, members[i]);
    return o;
}

/* The native snapshot that it took and that still is on the storage, as far as the records know; NULL: none. */
static const struct native_row *native_kept(const struct answer_facts *f, const struct operation *op)
{
    const struct native_row *n =
        op->kind == KIND_BACKUP && op->native[0] ? native_row_peek(f->records, op->native) : NULL;
    return n && n->state == NATIVE_PRESENT && op_state_terminal(op->state) ? n : NULL;
}

/* Members of Velero's volume information (RS-25). */
static void put_native(const struct answer_facts *f, const struct operation *op, json_t *o)
{
    const struct policy *p = op->policy;
    const struct native_row *n = native_kept(f, op);
    if (op->kind != KIND_BACKUP || !op_state_terminal(op->state))
        return;
    jset_bool(o, "snapshotDataMoved", op->state == OP_COMPLETED && p->move_data && !op->gone_ns && !op->lost);
    jset_bool(o, "preserveLocalSnapshot", !p->move_data || p->snapshots_to_retain > 0);
    if (n)
        jset_str(o, "retainedSnapshot", n->id);
}

/* Whether only what changed was read, and if not, why (CF-10, CF-19). */
static void put_reading(json_t *o, const struct operation *op)
{
    put_text(o, "fullReason", full_reason_name(op->full_reason));
    put_text(o, "fullWhy", op->full_why);
    if (!op->base_snapshot[0])
        return;
    jset_str(o, "parentSnapshot", op->base_snapshot);
    jset_int(o, "listedBytes", op->list_bytes);
    jset_int(o, "listedRanges", op->list_ranges);
}

/* No part of how long it took, by the times above. */
static void put_clock(json_t *o, int64_t clock_ns)
{
    if (clock_ns)
        jset_int(o, "clock_set_ns", clock_ns);
}

/* The row of one that a scan has rebuilt is younger than what it is about. Until when it existed is known in any case.
 */
static void put_created(json_t *o, const struct row *row, bool rebuilt, int64_t started_ns, int64_t ended_ns)
{
    const int64_t known_ns = !rebuilt ? 0 : started_ns ? started_ns : ended_ns;
    jset_int(o, "created_ns", known_ns ? known_ns : row->created_ns);
    if (rebuilt)
        jset_int(o, "recorded_ns", row->created_ns);
}

static json_t *operation_document(const struct operation *op)
{
    json_t *o = json_object();
    jset_str(o, "id", op->id);
    jset_str(o, "kind", op_kind_name(op->kind));
    jset_str(o, "state", op_state_name(op->state));
    put_text(o, "backup", op->parent);
    put_text(o, "volume", op->volume->name);
    put_text(o, "volume_id", op->volume_id);
    put_text(o, "class", op->own->name);
    put_text(o, "repository", op->policy->repository);
    copy_member(o, "does", json_array_get(op->does, 0), "verb");
    put_text(o, "deletes", op->deletes);
    put_text(o, "copy", op->kind == KIND_COPY ? op->target_name : "");
    put_created(o, &op->row, op->rebuilt, op->started_ns, op->completed_ns);
    put_ns(o, "started_ns", op->started_ns);
    put_ns(o, "ended_ns", op->completed_ns);
    put_clock(o, op->clock_ns);
    if (op->attempt)
        jset_int(o, "attempt", op->attempt + 1);
    if (op->state == OP_RETRYING)
        put_ns(o, "retry_ns", op->wake_ns);
    if (!op_state_terminal(op->state) && json_is_object(op->progress))
        json_object_set(o, "progress", op->progress);
    if (op->state == OP_SKIPPED)
        put_text(o, "why", op->skip_reason);
    else if (op->state == OP_COMPLETED)
        put_text(o, "why", op->degraded_why);
    else if (!op_state_terminal(op->state))
        put_text(o, "why", op->cleanup_error[0] ? op->cleanup_error : op->waiting);
    put_text(o, "config_kept", op->config_kept);
    put_ns(o, "gone_ns", op->gone_ns);
    put_text(o, "gone_why", op->gone_why);
    put_error(o, &op->error);
    put_text(o, "target_state", target_state_name(op->target_state));
    CLEANUP_JSON json_t *mover = text_document(op->mover), *result = mover_result_to_json(&op->result);
    put_json(o, "mover", mover);
    put_reading(o, op);
    put_json(o, "result", result);
    return o;
}

/* What is in memory of one that is not finished; false: nothing is. */
static bool live_of(const struct answer_facts *f, const struct operation *op, struct answer_live *ret)
{
    *ret = (struct answer_live){.left_s = -1};
    return f->source && !op_state_terminal(op->state) && f->source->live(op, ret, f->arg);
}

static json_t *progress_document(const struct answer_live *l)
{
    json_t *p = json_deep_copy(l->progress);
    if (json_object_get(p, "fresh"))
        json_object_set(p, "new", json_object_get(p, "fresh"));
    json_object_set_new(p, "rate", json_real(l->rate));
    if (l->left_s >= 0)
        json_object_set_new(p, "eta_s", json_real(l->left_s));
    jset_int(p, "at_ns", l->progress_ns);
    return p;
}

/* AO-47: place and reason, also of the first one. */
static void put_place(const struct answer_facts *f, const struct operation *op, json_t *o)
{
    const unsigned place = f->overview ? overview_place(f->overview, op) : 0;
    if (place)
        jset_int(o, "position", place);
    if (place || op->state == OP_QUEUED)
        put_ns(o, "gives_up_ns", operation_gives_up_ns(op));
}

#define SILENT_S 15 /* longer than what is slow, much less than a stall */

/* A mover that waits for an answer, of a server that has stopped to give any, says nothing by itself. */
static void put_silence(const struct operation *op, const json_t *mover, json_t *o)
{
    char why[400];
    const struct mover_progress p = progress_read(json_object_get(mover, "progress"));
    const double silent_s = json_number_value(json_object_get(mover, "last_life_s"));
    const bool opens = !p.phase[0] || !strcmp(p.phase, "opening");
    if (silent_s < SILENT_S)
        return;
    snprintf(why, sizeof why, "no progress for %s%s%.128s%s", duration_words((int64_t)silent_s),
             opens ? ": it opens repository \"" : "", opens ? op->policy->repository : "",
             opens ? "\", which may not answer" : "");
    put_text(o, "why", why);
}

static void put_live(const struct answer_facts *f, const struct operation *op, const struct answer_live *l, json_t *o)
{
    json_t *mover = f->source ? f->source->mover(op, f->arg) : NULL;
    if (l->progress)
        json_object_set_new(o, "progress", progress_document(l));
    if (f->source && !op_state_terminal(op->state) && !json_object_get(o, "why")) {
        char why[1300] = "";
        f->source->waits(op, why, sizeof why, f->arg);
        put_text(o, "why", why);
    }
    if (mover)
        json_object_set_new(o, "mover", mover);
    if (mover && op->state == OP_RUNNING && !json_object_get(o, "why"))
        put_silence(op, mover, o);
    put_place(f, op, o);
}

json_t *operation_line(const struct answer_facts *f, const struct operation *op)
{
    struct answer_live l;
    json_t *o = operation_document(op);
    put_native(f, op, o);
    live_of(f, op, &l);
    put_live(f, op, &l, o);
    return o;
}

json_t *answer_operation(const struct answer_facts *f, const struct operation *op)
{
    struct answer_live l;
    json_t *o = operation_line(f, op);
    json_t *details = operation_details(op);
    if (live_of(f, op, &l) && l.doing)
        json_object_set_new(details, "doing", json_pack("{s:s,s:f}", "what", l.doing, "seconds", l.doing_s));
    json_object_set_new(o, "details", details);
    return o;
}

/* ---- backups ---- */

static const char *velero_phase(enum backup_state state, bool degraded)
{
    static const struct {
        const char *velero, *degraded;
    } names[BACKUP_STATES] = {
        [BACKUP_QUEUED] = {"Queued", "Queued"},
        [BACKUP_SNAPSHOTTING] = {"InProgress", "InProgress"},
        [BACKUP_MOVING] = {"WaitingForPluginOperations", "WaitingForPluginOperationsPartiallyFailed"},
        [BACKUP_FINALIZING] = {"Finalizing", "FinalizingPartiallyFailed"},
        [BACKUP_DELETING] = {"Deleting", "Deleting"},
        [BACKUP_COMPLETED] = {"Completed", "PartiallyFailed"},
        [BACKUP_PARTIALLY_FAILED] = {"PartiallyFailed", "PartiallyFailed"},
        [BACKUP_FAILED] = {"Failed", "Failed"},
        [BACKUP_CANCELED] = {"Failed", "Failed"},
    };
    const char *name = degraded ? names[state].degraded : names[state].velero;
    return name ? name : "";
}

#define QUEUED_SHOWN 10 /* of a large backup, to those that wait for it */

enum members_shown { NO_MEMBERS, MEMBER_LINES, WHOLE_MEMBERS };

/* All operations of a backup. */
struct members {
    const struct answer_facts *facts;
    json_t *volumes, *operations; /* operations NULL: not wanted */
    json_t *retained;             /* native snapshots that stay */
    json_t *read_fully;           /* reason -> of how many all data was read for it; NULL: of none */
    bool details;                 /* of the operations */
    bool under_way;               /* only these that have not ended, and the first queued ones */
    unsigned most;                /* of these, and of operations without a slot */
    unsigned queued, idle;
    unsigned n, completed, failed, canceled;
    unsigned left; /* of which something is left to restore */
    int64_t size, fresh;
    /* progress of the whole */
    int64_t total, done, at_ns;
    double rate, bytes, left_s; /* bytes still to read; seconds of the one that takes longest, < 0: unknown */
    char phase[64];
    unsigned running;
};

static void add_member_progress(struct members *x, const struct operation *op)
{
    struct answer_live l;
    int64_t size = op->volume->size;
    const bool live = live_of(x->facts, op, &l);
    const struct mover_progress p = progress_read(live && l.progress ? l.progress : op->progress);
    if (p.total)
        size = p.total;
    x->total += size;
    if (op_state_terminal(op->state)) {
        /* What failed or was cancelled has done what it has done. */
        const bool whole = op->state == OP_COMPLETED || op->state == OP_SKIPPED;
        x->done += whole ? size : p.done;
        return;
    }
    x->done += p.done;
    if (!l.progress) {
        const int64_t allocated = op->volume->allocated;
        x->bytes += (double)(allocated > 0 && allocated < size ? allocated : size);
        return;
    }
    const bool all = p.total > 0 && p.done >= p.total;
    const double left = all ? 0 : l.left_s;
    x->rate += l.rate;
    x->bytes += left > 0 ? left * l.rate : 0;
    x->left_s = x->left_s < 0 || left < 0 ? -1 : left > x->left_s ? left : x->left_s;
    x->running++;
    if (l.progress_ns > x->at_ns)
        x->at_ns = l.progress_ns;
    snprintf(x->phase, sizeof x->phase, "%s", p.phase);
}

/* Those that have a slot are few. */
static bool is_shown(struct members *x, const struct operation *op)
{
    if (!x->under_way)
        return json_array_size(x->operations) < x->most;
    if (op->state == OP_QUEUED)
        return x->queued <= QUEUED_SHOWN;
    return op->state == OP_EXPOSING || op->state == OP_STARTING || op->state == OP_RUNNING || x->idle++ < x->most;
}

/* A backup of which a repository, a mover plugin or the storage still has the data, as far as the records know. */
static bool is_left(const struct answer_facts *f, const struct operation *op)
{
    return op->state == OP_COMPLETED && ((op->policy->move_data && !op->lost && !op->gone_ns) || native_kept(f, op));
}

static void add_reading(struct members *x, const struct operation *op)
{
    const char *reason = full_reason_name(op->full_reason);
    if (!op_state_terminal(op->state) || !*reason)
        return;
    if (!x->read_fully)
        x->read_fully = json_object();
    const json_int_t n = json_integer_value(json_object_get(x->read_fully, reason));
    json_object_set_new(x->read_fully, reason, json_integer(n + 1));
}

static int add_member(const struct operation *op, void *arg)
{
    struct members *x = arg;
    if (!is_move(op))
        return 0;
    add_reading(x, op);
    x->n++;
    x->completed += op->state == OP_COMPLETED;
    x->failed += op->state == OP_FAILED;
    x->canceled += op->state == OP_CANCELED;
    x->left += is_left(x->facts, op);
    result_bytes_add(&x->size, op->result.total);
    result_bytes_add(&x->fresh, op->result.incremental);
    if (json_array_size(x->volumes) < 1000)
        json_array_append_new(x->volumes, json_string(op->volume->name));
    const struct native_row *kept = native_kept(x->facts, op);
    if (kept && json_array_size(x->retained) < 1000)
        json_array_append_new(x->retained, json_string(kept->id));
    x->queued += op->state == OP_QUEUED;
    if (x->operations && is_shown(x, op))
        json_array_append_new(x->operations,
                              x->details ? answer_operation(x->facts, op) : operation_line(x->facts, op));
    add_member_progress(x, op);
    return 0;
}

/* How many of the finished operations of a large backup are read from the disk: for a list, for those that wait, and to
 * describe it. */
static const unsigned members_read[] = {
    [NO_MEMBERS] = 20, [MEMBER_LINES] = ANSWER_OPERATIONS_MAX, [WHOLE_MEMBERS] = ANSWER_OPERATIONS_MAX};

static int add_retained(const struct native_row *n, void *arg)
{
    struct members *x = arg;
    if (n->state == NATIVE_PRESENT && json_array_size(x->retained) < 1000)
        json_array_append_new(x->retained, json_string(n->id));
    return 0;
}

static int find_left(const struct operation *op, void *arg)
{
    struct members *x = arg;
    x->left = is_move(op) && is_left(x->facts, op);
    return (int)x->left;
}

/* From its row; one of its operations that is both lost and gone is counted twice there: they are read where that
 * decides. */
static void find_left_of_ended(struct members *x, const struct backup *b)
{
    const int64_t moved = b->counts.completed - b->alone;
    x->left = (unsigned)json_array_size(x->retained);
    if (moved > b->lost + b->gone)
        x->left = (unsigned)(moved - b->lost - b->gone);
    else if (!x->left && moved > b->lost && moved > b->gone) {
        const struct operation_filter its = {.parent = b->id, .state = OP_COMPLETED};
        operation_each(x->facts->records, &its, find_left, x, NULL);
    }
}

/* The first ones of a large backup that has ended, those that failed first; all are counted in its row. */
static void add_ended_members(struct members *x, const struct backup *b, unsigned most)
{
    static const enum op_state order[] = {OP_FAILED, OP_PARTIALLY_FAILED, OP_CANCELED, OP_SKIPPED, OP_COMPLETED};
    const size_t last = sizeof order / sizeof *order - 1;
    /* To look for those of a state goes through all of the backup's. */
    for (size_t i = b->counts.completed == b->counts.attempted ? last : 0; i <= last && x->n < most; i++) {
        const struct operation_filter its = {.parent = b->id, .state = order[i], .limit = most - x->n};
        operation_each(x->facts->records, &its, add_member, x, NULL);
    }
    const struct native_row_filter natives = {.parent = b->id};
    json_array_clear(x->retained);
    native_row_each(x->facts->records, &natives, add_retained, x, NULL);
    x->n = (unsigned)b->counts.attempted;
    x->completed = (unsigned)b->counts.completed;
    x->failed = (unsigned)b->counts.failed;
    x->canceled = (unsigned)b->counts.canceled;
    find_left_of_ended(x, b);
    x->size = b->bytes.total;
    x->fresh = b->bytes.incremental;
    json_decref(x->read_fully);
    x->read_fully = json_deep_copy(b->read_fully);
}

static json_t *whole_progress(const struct members *x, enum backup_state state)
{
    json_t *p = json_pack("{s:s,s:I,s:I,s:f,s:I}", "phase", x->phase[0] ? x->phase : backup_state_name(state), "total",
                          (json_int_t)x->total, "done", (json_int_t)x->done, "rate", x->rate, "at_ns",
                          (json_int_t)(x->at_ns ? x->at_ns : x->facts->now_ns));
    /* Those that wait will go at the pace of those that run. */
    if (x->running && x->left_s >= 0 && x->rate > 1 && x->bytes > 0)
        json_object_set_new(p, "eta_s", json_real(x->left_s > x->bytes / x->rate ? x->left_s : x->bytes / x->rate));
    return p;
}

static void put_position(const struct answer_facts *f, const struct backup *b, json_t *o)
{
    char by[192] = "";
    if (f->source && b->state == BACKUP_QUEUED) {
        jset_int(o, "position", f->source->position(b, by, f->arg));
        put_text(o, "blocked_by", by);
    }
}

/* How many of a list are not in the answer. */
static void note_omitted(json_t *omitted, const char *member, const json_t *list, size_t all)
{
    if (json_array_size(list) < all)
        jset_int(omitted, member, (int64_t)(all - json_array_size(list)));
}

static void put_omitted(json_t *o, json_t *omitted)
{
    if (json_object_size(omitted))
        json_object_set(o, "omitted", omitted);
    json_decref(omitted);
}

/* Lists may have an entry for each volume. */
static void cut_lists(json_t *o)
{
    json_t *omitted = json_object(), *list;
    const char *member;
    json_object_foreach(o, member, list)
    {
        const size_t all = json_array_size(list);
        while (json_array_size(list) > ANSWER_OPERATIONS_MAX)
            json_array_remove(list, json_array_size(list) - 1);
        if (all)
            note_omitted(omitted, member, list, all);
    }
    put_omitted(o, omitted);
}

static json_t *backup_details(const struct backup *b)
{
    static const char *const members[] = {"skipped",   "counts", "bytes",  "failed_volumes", "errors",  "origin",
                                          "caught_up", "of",     "cancel", "rebuilt",        "deleting"};
    CLEANUP_JSON json_t *d = backup_to_json(b);
    json_t *o = json_object();
    for (unsigned i = 0; i < sizeof members / sizeof *members; i++)
        copy_member(o, members[i], d, members[i]);
    cut_lists(o);
    return o;
}

/* Those that are not there come first. */
static void put_natives_seen(json_t *o, json_t *omitted, const struct backup *b)
{
    const struct native_seen *v = b->natives_seen.v;
    json_t *list = b->natives_seen.n ? json_array() : NULL;
    for (unsigned pass = 0; list && pass < 2; pass++)
        for (unsigned i = 0; i < b->natives_seen.n && json_array_size(list) < ANSWER_OPERATIONS_MAX; i++)
            if ((v[i].state == SEEN_PRESENT) == pass)
                json_array_append_new(list, fields_to_json(&native_seen_fields, &v[i]));
    note_omitted(omitted, "natives_seen", list, b->natives_seen.n);
    if (list)
        json_object_set_new(o, "natives_seen", list);
}

/* Whether the repositories have its outcome, and what its native snapshots were found to be at its end (AO-16, AO-38).
 */
static void put_outcome(const struct answer_facts *f, const struct backup *b, json_t *omitted, json_t *o)
{
    const char *name;
    json_t *id, *recorded = json_object(), *given_up = json_object();
    json_object_foreach(b->recorders, name, id)
    {
        CLEANUP(operation_clear) struct operation op = ROW_INIT;
        const bool there = operation_get(f->records, json_string_value(id), &op, NULL) == 0;
        /* The row of the operation goes before the backup's; a rebuilt one was found there. */
        const bool done = b->outcome != OUTCOME_NONE && (!there || op.state == OP_COMPLETED);
        json_object_set_new(recorded, name, json_boolean(done));
        if (!done && there && op_state_terminal(op.state))
            jset_str(given_up, name, op.error.code ? op.error.message : op_state_name(op.state));
    }
    if (json_object_size(recorded))
        json_object_set(o, "recorded", recorded);
    if (json_object_size(given_up))
        json_object_set(o, "not_recorded", given_up);
    json_decref(recorded);
    json_decref(given_up);
    put_natives_seen(o, omitted, b);
}

static void put_lost(json_t *o, const struct backup *b)
{
    if (b->lost)
        jset_int(o, "lost", b->lost);
    put_ns(o, "lost_ns", b->lost_ns);
    put_text(o, "lost_why", b->lost_why);
}

static json_t *backup_document(const struct answer_facts *f, const struct backup *b, enum members_shown shown,
                               json_t *omitted, bool *expired)
{
    struct operation_filter its = {.parent = b->id};
    struct board_ended ended;
    struct members x = {.facts = f,
                        .volumes = json_array(),
                        .retained = json_array(),
                        .operations = shown == NO_MEMBERS ? NULL : json_array(),
                        .most = members_read[shown],
                        .details = shown == WHOLE_MEMBERS};
    json_t *o = json_object();
    const bool deleting = b->deleting[0] != '\0';
    const enum backup_state state = deleting ? BACKUP_DELETING : b->state;
    const bool large = b->volume_ids.n > members_read[shown];
    /* Finished ones lie on the disk: nobody reads thousands of them for one answer. */
    if (large && !backup_state_terminal(b->state) && f->source && f->source->ended &&
        f->source->ended(b, &ended, f->arg)) {
        its.live = x.under_way = true;
        x.n = ended.n;
        x.completed = ended.completed;
        x.failed = ended.failed;
        x.canceled = ended.canceled;
        x.size = ended.size;
        x.fresh = ended.fresh;
        x.total = ended.total;
        x.done = ended.done;
    }
    if (large && backup_state_terminal(b->state) && b->counts.attempted > 0)
        add_ended_members(&x, b, members_read[shown]);
    else
        operation_each(f->records, &its, add_member, &x, NULL);
    jset_str(o, "id", b->id);
    jset_str(o, "kind", b->kind == KIND_NONE ? "backup" : op_kind_name(b->kind));
    jset_str(o, "state", b->unproven && !deleting ? STATE_UNKNOWN : backup_state_name(state));
    put_text(o, "velero", b->unproven ? "" : velero_phase(state, b->degraded_phase));
    put_text(o, "node", b->node);
    if (b->unproven)
        put_text(o, "why",
                 "found in the repository, which has no record of its outcome: other volumes may have failed");
    put_text(o, "job", b->job);
    put_text(o, "description", b->description);
    jset_bool(o, "degraded", b->degraded_phase || b->degraded);
    put_created(o, &b->row, b->rebuilt, b->started_ns, b->completed_ns);
    put_ns(o, "snapshots_done_ns", b->snapshots_done_ns);
    put_ns(o, "started_ns", b->started_ns);
    put_ns(o, "ended_ns", b->completed_ns);
    put_clock(o, b->clock_ns);
    put_gone(o, b);
    put_lost(o, b);
    json_object_set_new(o, "volumes", x.volumes);
    if (json_array_size(x.retained))
        json_object_set(o, "retainedSnapshots", x.retained);
    json_decref(x.retained);
    jset_int(o, "total", x.n);
    jset_int(o, "completed", x.completed);
    jset_int(o, "failed", x.failed);
    *expired = b->kind == KIND_BACKUP && backup_state_terminal(b->state) && x.completed && !x.left;
    if (*expired)
        jset_bool(o, "expired", true);
    if (x.canceled)
        jset_int(o, "canceled", x.canceled);
    jset_int(o, "size", x.size);
    jset_int(o, "new", x.fresh);
    put_json(o, "fullReasons", x.read_fully);
    json_decref(x.read_fully);
    if (!backup_state_terminal(b->state)) {
        if (b->position)
            jset_int(o, "position", b->position);
        put_text(o, "blocked_by", b->blocked_by);
    }
    put_position(f, b, o);
    put_text(o, "retry_of", b->retry_of);
    put_text(o, "target", b->target);
    put_text(o, "from", restore_from_name(b->from));
    put_error(o, &b->error);
    if (deleting) {
        CLEANUP(operation_clear) struct operation del;
        if (operation_get(f->records, b->deleting, &del, NULL) == 0)
            put_text(o, "why", del.waiting);
    }
    if (x.operations) {
        json_object_set_new(o, "operations", x.operations);
        note_omitted(omitted, "operations", x.operations, x.n);
    }
    if (!backup_state_terminal(b->state) && x.total > 0)
        json_object_set_new(o, "progress", whole_progress(&x, b->state));
    return o;
}

void put_gone(json_t *o, const struct backup *b)
{
    if (b->gone)
        jset_int(o, "gone", b->gone);
    put_ns(o, "gone_ns", b->gone_ns);
    put_text(o, "gone_why", b->gone_why);
}

json_t *backup_line(const struct answer_facts *f, const struct backup *b)
{
    bool expired;
    return backup_document(f, b, NO_MEMBERS, NULL, &expired);
}

bool backup_has_expired(const struct answer_facts *f, const struct backup *b)
{
    bool expired;
    json_decref(backup_document(f, b, NO_MEMBERS, NULL, &expired));
    return expired && !b->gone_ns;
}

json_t *answer_backup_progress(const struct answer_facts *f, const struct backup *b)
{
    bool expired;
    json_t *omitted = json_object(), *o = backup_document(f, b, MEMBER_LINES, omitted, &expired);
    put_omitted(o, omitted);
    return o;
}

json_t *answer_backup(const struct answer_facts *f, const struct backup *b, bool with_operations)
{
    json_t *omitted = json_object();
    bool expired;
    json_t *o = backup_document(f, b, with_operations ? WHOLE_MEMBERS : NO_MEMBERS, omitted, &expired);
    put_outcome(f, b, omitted, o);
    put_omitted(o, omitted);
    json_object_set_new(o, "details", backup_details(b));
    return o;
}
