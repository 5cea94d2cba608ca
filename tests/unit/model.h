/* SPDX-License-Identifier: GPL-2.0-or-later */
/* model.h - a storage, a repository, movers, a clock and a daemon for test_model.c and test_decide.c; include it in one
 * file of a program */
#ifndef SNAPFERRY_TESTS_UNIT_MODEL_H
#define SNAPFERRY_TESTS_UNIT_MODEL_H

#include "tests/unit/test.h"

#include "base/time.h"
#include "daemon/decide/decide.h"
#include "daemon/records/records-impl.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STEPS_MAX 120
#define VOLUMES 6
#define WORKS_MAX 64
#define MOVERS_MAX 64

/* ---- the model ---- */

struct model_work {
    enum row_kind row;
    enum work work;
    json_t *in;
    char id[BOARD_ID_MAX];
};
struct model_mover {
    char id[BOARD_ID_MAX];
    enum op_kind kind;
    bool here; /* the daemon that lives now watches it */
    bool told; /* it was reported ready */
    bool go, cancel;
    json_t *job; /* of its operation */
};

static struct model {
    struct decide d;
    struct records *records;
    struct cfg *cfg[3];
    unsigned cfg_now;
    struct ids ids;
    uint64_t rng, serial; /* of backups and restores */
    uint64_t aliases, stamps, moves;
    int64_t now;
    char dir[64];
    struct model_work works[WORKS_MAX];
    unsigned n_works;
    struct model_mover movers[MOVERS_MAX];
    unsigned n_movers;
    json_t *natives;   /* alias -> {"volume", "operation"}: on the storage */
    json_t *exposures; /* alias -> true */
    json_t *targets;   /* alias -> true: made, not put into place */
    json_t *frozen;    /* operation -> true: its pre-snapshot hook has run, its post-snapshot hook has not */
    json_t *snapshots; /* of the repository: id -> {"operation", "volume", "readable"} */
    json_t *results;   /* operation -> result file that a mover left */
    json_t *outcomes;  /* operation -> outcome as first recorded */
    json_t *ended;     /* operation or backup -> kind of its row: it ended, and that is durable */
    json_t *ending;    /* the same of the transaction that is open: [{"id", "kind", ...}] */
    json_t *last_ended, *last_completed; /* volume -> its last operation that ended, and that was Completed */
    json_t *answered;   /* alias -> "gone" or "error": what the storage answered last, and the daemon has read */
    json_t *unprepared; /* operation -> true: its prepare hook has failed, and hook-on-error is fail */
    json_t *late;       /* operation -> true: prepare-timeout passed */
    json_t *pruned;     /* operation -> what it has pruned since the pool was measured for it */
    bool repo_up, trace;
    bool quiet; /* nothing happens by chance */
    bool fail_commit;
    /* Those who look on (NULL: nobody): at each action before it is carried out, at each row that was changed. */
    void (*acting)(const struct act *a);
    void (*changing)(enum row_kind k, const char *id, const void *was, const void *now);
    unsigned step, failures;
    uint64_t seed, boot;
} m;

/* state x event of operations, by kind: how often */
enum cell {
    CELL_LOOK,
    CELL_CANCEL,
    CELL_WORK,
    CELL_WORK_FAILED,
    CELL_READY,
    CELL_OK,
    CELL_FAILED,
    CELL_RESTART,
    CELLS
};
static const char *const cell_names[CELLS] = {"sweep", "cancel", "work done",   "work failed",
                                              "ready", "moved",  "move failed", "restart"};
static uint64_t cells[KINDS][OP_STATES][CELLS];

static jmp_buf violation;
static char violated_what[1024];

static void violated(const char *rule, const char *fmt, ...) __attribute__((format(printf, 2, 3), noreturn));
static void violated(const char *rule, const char *fmt, ...)
{
    char text[800];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    snprintf(violated_what, sizeof violated_what, "%s: %s", rule, text);
    longjmp(violation, 1);
}

static void trace(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void trace(const char *fmt, ...)
{
    if (!m.trace)
        return;
    va_list ap;
    va_start(ap, fmt);
    printf("#   ");
    vprintf(fmt, ap);
    putchar('\n');
    va_end(ap);
}

static unsigned pick(unsigned n)
{
    return n ? (unsigned)(splitmix64(&m.rng) % n) : 0;
}

static bool one_in(unsigned n)
{
    return !m.quiet && pick(n) == 0;
}

static bool maybe(void)
{
    return !m.quiet && pick(2);
}

static int64_t model_clock(void)
{
    return m.now;
}

static void model_stamp(struct ids *ids, int64_t now_ns, char out[32])
{
    (void)ids, (void)now_ns;
    snprintf(out, 32, "t%llu", (unsigned long long)++m.stamps);
}

static void model_alias(struct ids *ids, char out[ALIAS_TEXT])
{
    (void)ids;
    snprintf(out, ALIAS_TEXT, "a%llu", (unsigned long long)++m.aliases);
}

static void put(json_t *set, const char *key)
{
    json_object_set_new(set, key, json_true());
}

static enum op_state state_of(const char *id, enum op_kind *kind)
{
    const struct operation *op = operation_peek(m.records, id);
    *kind = op ? op->kind : KIND_NONE;
    return op ? op->state : OP_NONE;
}

static void count_cell(const char *id, enum cell c)
{
    enum op_kind kind;
    const enum op_state s = state_of(id, &kind);
    cells[kind][s][c]++;
}

/* ---- rows that are durable, as the next daemon would find them ---- */

struct find_intent {
    const char *name, *kind;
    bool found;
};
static int match_intent(struct intent *i, void *arg)
{
    struct find_intent *x = arg;
    x->found |= !strcmp(i->name, x->name) && !strcmp(i->kind, x->kind);
    return 0;
}

/* E-04: nothing is created without an intent. */
static void need_intent(const char *owner, const char *kind, const char *name)
{
    struct find_intent x = {name, kind, false};
    records_intents(m.records, owner, match_intent, &x, NULL);
    if (!x.found)
        violated("E-04", "%s makes %s %s without an intent", owner, kind, name);
}

/* ---- work ---- */

static struct model_work *work_of(const char *id)
{
    for (unsigned i = 0; i < m.n_works; i++)
        if (!strcmp(m.works[i].id, id))
            return &m.works[i];
    return NULL;
}

static json_t *answer_error(const char *text, enum err_class cls)
{
    return json_pack("{s:s,s:i,s:i,s:s}", "message", text, "class", (int)cls, "errno", 0, "hint", "");
}

/* Somebody wants the backup gone, with all it owns. */
static bool is_unwanted(const char *backup)
{
    CLEANUP(backup_clear) struct backup b;
    return backup_get(m.records, backup, &b, NULL) < 0 || b.deleting[0];
}

/* A removal: what it answers of each item, and what it does. */
static json_t *apply_remove(const json_t *in, bool by_request)
{
    json_t *out = json_array();
    const json_t *item;
    size_t i;
    json_array_foreach(jarr(in, "items"), i, item)
    {
        const char *alias = jstr(item, "alias");
        const json_t *n = json_object_get(m.natives, alias);
        const struct native_row *row = native_row_peek(m.records, alias);
        if (row && row->state != NATIVE_REMOVING && row->state != NATIVE_MISSING && !by_request)
            violated("E-04", "native snapshot %s is removed and its record says %s", alias,
                     native_state_name(row->state));
        if (row && row->hold.held && !by_request)
            violated("RS-16", "native snapshot %s is held and removed", alias);
        if (n && jbool(item, "missing")) { /* it was missing: only its record was to go */
            json_array_append_new(out, json_pack("{s:s,s:b}", "alias", alias, "there", 1));
            continue;
        }
        if (one_in(12)) {
            json_array_append_new(
                out, json_pack("{s:s,s:o}", "alias", alias, "error", answer_error("it is busy", ERR_BUSY)));
            continue;
        }
        if (!n) {
            json_array_append_new(out, json_pack("{s:s,s:b}", "alias", alias, "gone", 1));
            continue;
        }
        /* RS-18: what is pruned can be restored from the repository, or it failed, or its backup was deleted. */
        if (row && row->moved && !row->policy->mover[0] && !by_request && !row->expired && !is_unwanted(row->parent)) {
            const json_t *s = json_object_get(m.snapshots, row->snapshot);
            if (!s || !jbool(s, "readable"))
                violated("RS-18", "native snapshot %s was pruned; snapshot %s of the repository %s", alias,
                         row->snapshot, s ? "cannot be read" : "is not there");
            if (n && strcmp(jstr(n, "operation"), jstr(s, "operation")) != 0)
                violated("RS-18", "native snapshot %s was pruned for snapshot %s, which is of %s", alias, row->snapshot,
                         jstr(s, "operation"));
        }
        if (row && !row->moved && !row->failed && !row->snapshot_only && !row->expired && !by_request) {
            if (!is_unwanted(row->parent))
                violated("RS-16", "native snapshot %s was pruned and its data is in no repository", alias);
        }
        json_object_del(m.natives, alias);
        json_array_append_new(out, json_pack("{s:s}", "alias", alias));
    }
    return json_pack("{s:o}", "items", out);
}

static json_t *apply_snapshot(const json_t *in)
{
    json_t *out = json_array();
    const json_t *item;
    size_t i;
    json_array_foreach(jarr(in, "items"), i, item)
    {
        const json_t *tag = jobj(item, "tag");
        const char *alias = jstr(tag, "alias"), *op = jstr(item, "operation");
        need_intent(op, "native", alias);
        if (one_in(10)) {
            json_array_append_new(out, json_pack("{s:s,s:o}", "operation", op, "error",
                                                 answer_error("it did not work", pick(2) ? ERR_GENERIC : ERR_USAGE)));
            continue;
        }
        if (!json_object_get(m.natives, alias))
            json_object_set_new(m.natives, alias,
                                json_pack("{s:s,s:s}", "volume", jstr(jobj(item, "volume"), "id"), "operation", op));
        json_t *native = json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:I,s:I,s:s,s:I,s:I,s:b}", "alias", alias, "volume_id",
                                   jstr(jobj(item, "volume"), "id"), "volume_name", jstr(jobj(item, "volume"), "name"),
                                   "backup", jstr(tag, "backup"), "operation", op, "repository", "main", "created_ns",
                                   (json_int_t)m.now, "seq", (json_int_t)jint(tag, "seq"), "handle", alias, "size",
                                   (json_int_t)1 << 20, "used", (json_int_t)4096, "crash_consistent", 1);
        const json_int_t took = one_in(8) ? 5 * NS_PER_S : NS_PER_MS;
        json_array_append_new(out, json_pack("{s:s,s:o,s:I,s:I}", "operation", op, "native", native, "begin_ns",
                                             (json_int_t)m.now, "end_ns", (json_int_t)m.now + took));
    }
    return json_pack("{s:o}", "items", out);
}

static json_t *apply_undo(const json_t *in)
{
    json_t *out = json_array();
    const json_t *item;
    size_t i;
    json_array_foreach(jarr(in, "intents"), i, item)
    {
        const char *kind = jstr(item, "kind"), *name = jstr(item, "name");
        json_t *a = json_pack("{s:O}", "id", json_object_get(item, "id"));
        json_array_append_new(out, a);
        if (one_in(12)) {
            json_object_set_new(a, "error", answer_error("it is busy", ERR_BUSY));
            continue;
        }
        if (!strcmp(kind, "native"))
            json_object_del(m.natives, name);
        else if (!strcmp(kind, "exposure"))
            json_object_del(m.exposures, name);
        else if (!strcmp(kind, "target"))
            json_object_del(m.targets, name);
    }
    return json_pack("{s:o}", "intents", out);
}

/* Something else than the last time: a daemon that dies meanwhile removes the same again. */
static bool prunes_more(const struct model_work *w)
{
    const json_t *before = json_object_get(m.pruned, w->id), *item, *old;
    size_t i, k;
    bool more = false;
    json_array_foreach(jarr(w->in, "items"), i, item)
    {
        bool found = !before;
        json_array_foreach(before, k, old) found |= !strcmp(jstr(old, "alias"), jstr(item, "alias"));
        more |= !found;
    }
    return more;
}

/* What a piece of work does to the storage; its answer. */
static json_t *apply(const struct model_work *w)
{
    const struct operation *op = w->row == ROW_OPERATION ? operation_peek(m.records, w->id) : NULL;
    switch (w->work) {
    case WORK_POOL:
        json_object_del(m.pruned, w->id);
        return one_in(3) ? json_pack("{s:[{s:f}]}", "items", "used_ratio", pick(2) ? 0.3 : 0.97)
                         : json_pack("{s:[{}]}", "items");
    case WORK_PRUNE:
        /* RS-30: what the last removal has freed is measured before the next */
        if (op && op->state == OP_SNAPSHOTTING && op->pool_ratio >= 0.85 && prunes_more(w))
            violated("RS-30", "%s prunes again and has not measured the pool since", w->id);
        json_object_set(m.pruned, w->id, json_object_get(w->in, "items"));
        return apply_remove(w->in, false);
    case WORK_DELETE_NATIVES:
        return apply_remove(w->in, true);
    case WORK_PRE_HOOK:
        if (op && op->policy->hook_post_snapshot[0])
            put(m.frozen, w->id);
        return json_object();
    case WORK_POST_HOOK:
        json_object_del(m.frozen, w->id);
        return json_object();
    case WORK_SNAPSHOT:
        return apply_snapshot(w->in);
    case WORK_EXPOSE:
        need_intent(w->id, "exposure", jstr(w->in, "alias"));
        put(m.exposures, jstr(w->in, "alias"));
        return json_pack("{s:s,s:I,s:s,s:b}", "path", "/dev/x", "size", (json_int_t)1 << 20, "mechanism", "clone",
                         "read_only", op && op->policy->backup_read_only);
    case WORK_TARGET:
        need_intent(w->id, "target", jstr(w->in, "alias"));
        put(m.targets, jstr(w->in, "alias"));
        return json_pack("{s:{s:s,s:s,s:I},s:b}", "target", "path", "/dev/t", "alias", jstr(w->in, "alias"), "size",
                         (json_int_t)1 << 20, "filled", jobj(w->in, "native") && maybe());
    case WORK_COMMIT:
        json_object_del(m.targets, jstr(jobj(w->in, "target"), "alias"));
        return json_object();
    case WORK_UNDO:
        json_object_del(m.frozen, w->id);
        return apply_undo(w->in);
    case WORK_NONE:
    case WORK_PREPARE_HOOK:
    case WORK_OPEN:
    case WORK_TARGET_OPEN:
    case WORK_DELETE_PLUGIN:
    case WORK_RUN_HOOK:
    case WORKS:
        break;
    }
    return json_object();
}

static void drop_work(unsigned i)
{
    json_decref(m.works[i].in);
    m.works[i] = m.works[--m.n_works];
}

/* What the daemon will read of it, for the rules at rest. */
static void note_work_end(const struct model_work *w, unsigned how, const json_t *out)
{
    const struct operation *op = w->row == ROW_OPERATION ? operation_peek(m.records, w->id) : NULL;
    const json_t *a;
    size_t i;
    if (!op || op_state_terminal(op->state))
        return;
    if (w->work == WORK_PRUNE || w->work == WORK_DELETE_NATIVES)
        json_array_foreach(jarr(out, "items"), i, a)
            json_object_set_new(m.answered, jstr(a, "alias"), json_string(jobj(a, "error") ? "error" : "gone"));
    if (w->work == WORK_PREPARE_HOOK && how && !op->policy->hook_continue)
        put(m.unprepared, w->id);
    if (w->work == WORK_EXPOSE && how == 3)
        put(m.late, w->id);
}

/* how: 0 it succeeds, 1 it fails and has done nothing, 2 it has done its work and fails, 3 it does not end in time */
static void end_work(unsigned i, unsigned how, bool canceled)
{
    struct model_work *w = &m.works[i];
    struct event *ev = event_new(EVENT_WORK, w->row, w->id);
    json_t *out = how == 0 || how == 2 ? apply(w) : NULL;
    ev->work = w->work;
    ev->result.in = json_incref(w->in);
    trace("%s %s %s", work_name(w->work), w->id, how == 0 ? "succeeds" : canceled ? "is canceled" : "fails");
    if (how == 0) {
        ev->result.out = out;
        if (w->work == WORK_EXPOSE && jbool(w->in, "open") && !m.quiet && !pick(2))
            ev->result.fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    } else {
        json_decref(out);
        ev->result.canceled = canceled;
        ev->result.timed_out = how == 3;
        err_set(&ev->result.err, pick(4) ? ERR_GENERIC : ERR_USAGE, EIO, "the model lets it fail");
        m.failures++;
    }
    note_work_end(w, how, ev->result.out);
    if (w->work == WORK_POST_HOOK && !canceled)
        json_object_del(m.frozen, w->id); /* it has run, whatever it answered */
    if (w->work == WORK_POST_HOOK && how == 0)
        ev->result.fired = one_in(20);
    if (w->row == ROW_OPERATION)
        count_cell(w->id, how == 0 ? CELL_WORK : CELL_WORK_FAILED);
    drop_work(i);
    event_post(&m.d, ev);
}

/* ---- movers ---- */

static struct model_mover *mover_of(const char *id)
{
    for (unsigned i = 0; i < m.n_movers; i++)
        if (!strcmp(m.movers[i].id, id))
            return &m.movers[i];
    return NULL;
}

static void drop_mover(struct model_mover *v)
{
    json_decref(v->job);
    *v = m.movers[--m.n_movers];
}

/* What a mover of kind admin does and answers. */
static json_t *admin_result(const json_t *steps)
{
    json_t *answers = json_array();
    const json_t *step, *id;
    size_t i, k;
    json_array_foreach(steps, i, step)
    {
        json_t *a = json_object();
        json_array_append_new(answers, a);
        if (!strcmp(jstr(step, "verb"), "check")) {
            json_t *readable = json_object();
            json_array_foreach(jarr(step, "snapshots"), k, id)
            {
                const json_t *s = json_object_get(m.snapshots, json_string_value(id));
                const json_t *x = jobj(jobj(step, "expect"), json_string_value(id));
                const bool same = !jstr(x, "operation")[0] || !strcmp(jstr(x, "operation"), jstr(s, "operation"));
                json_object_set_new(readable, json_string_value(id), json_boolean(s && jbool(s, "readable") && same));
            }
            json_object_set_new(a, "readable", readable);
        } else if (!strcmp(jstr(step, "verb"), "delete")) {
            json_array_foreach(jarr(step, "snapshots"), k, id) json_object_del(m.snapshots, json_string_value(id));
        }
    }
    return json_pack("{s:o}", "answers", answers);
}

/* The result of a mover that succeeds, and what it has done. */
static json_t *mover_result(const struct model_mover *v)
{
    char id[64];
    switch (v->kind) {
    case KIND_BACKUP:
        if (one_in(8) && json_object_size(m.snapshots)) { /* it lies: that is somebody else's */
            snprintf(id, sizeof id, "%s", json_object_iter_key(json_object_iter(m.snapshots)));
            return json_pack("{s:s,s:i,s:i,s:i}", "snapshotID", id, "totalBytes", 1 << 20, "incrementalBytes", 4096,
                             "uploadedBytes", 1024);
        }
        snprintf(id, sizeof id, "snap%llu", (unsigned long long)++m.moves);
        json_object_set_new(m.snapshots, id,
                            json_pack("{s:s,s:s,s:b,s:b}", "operation", v->id, "volume", jstr(v->job, "volume"),
                                      "readable", !one_in(15), "kept", (int)one_in(6)));
        return json_pack("{s:s,s:i,s:i,s:i}", "snapshotID", id, "totalBytes", 1 << 20, "incrementalBytes", 4096,
                         "uploadedBytes", 1024);
    case KIND_ADMIN:
        return admin_result(jarr(v->job, "do"));
    case KIND_RESTORE:
    case KIND_VERIFY:
    case KIND_NONE:
    case KIND_DELETE:
    case KINDS:
        break;
    }
    return json_pack("{s:i}", "totalBytes", 1 << 20);
}

static void report_of(struct mover_report *r, const char *id, enum mover_outcome outcome, json_t *result)
{
    *r = (struct mover_report){.outcome = outcome, .result = result, .status = outcome == MOVER_OK ? 0 : -1};
    if (outcome != MOVER_OK && outcome != MOVER_CANCELED)
        err_set(&r->err, outcome == MOVER_SOURCE_LOST ? ERR_SOURCE : ERR_GENERIC, 0, "the mover of %s ended", id);
}

/* RS-23: pinned, or the last good copy of its volume. */
static bool refuses_to_delete(const struct model_mover *v)
{
    const json_t *step = json_array_get(jarr(v->job, "do"), 0), *id;
    size_t i;
    if (strcmp(jstr(step, "verb"), "delete") != 0 || jbool(step, "last_good"))
        return false;
    json_array_foreach(jarr(step, "snapshots"), i,
                       id) if (jbool(json_object_get(m.snapshots, json_string_value(id)), "kept")) return true;
    return false;
}

static void end_mover(struct model_mover *v, enum mover_outcome outcome)
{
    char id[BOARD_ID_MAX];
    const bool deletes = !strcmp(jstr(json_array_get(jarr(v->job, "do"), 0), "verb"), "delete");
    const bool refuses = outcome == MOVER_OK && refuses_to_delete(v);
    if (refuses || (outcome == MOVER_OK && deletes && one_in(6)))
        outcome = MOVER_FAILED;
    json_t *result = outcome == MOVER_OK ? mover_result(v) : NULL;
    snprintf(id, sizeof id, "%s", v->id);
    trace("the mover of %s ends: %s%s", id, mover_outcome_name(outcome), v->here ? "" : ", seen by nobody");
    if (result)
        json_object_set(m.results, id, result);
    count_cell(id, outcome == MOVER_OK ? CELL_OK : CELL_FAILED);
    if (v->here) {
        struct event *ev = event_new(EVENT_ENDED, ROW_OPERATION, id);
        report_of(&ev->report, id, outcome, json_incref(result));
        if (refuses) {
            ev->report.err = (struct err)ERR_INIT;
            err_set(&ev->report.err, ERR_GENERIC, EPERM, "it is the last good copy");
        } else if (deletes && outcome == MOVER_FAILED && pick(2)) {
            ev->report.err = (struct err)ERR_INIT;
            err_set(&ev->report.err, ERR_BUSY, 0, "the repository is locked");
        }
        event_post(&m.d, ev);
    }
    json_decref(result);
    drop_mover(v);
}

static void ready_mover(struct model_mover *v)
{
    struct event *ev = event_new(EVENT_READY, ROW_OPERATION, v->id);
    char boot[SD_ID128_STRING_MAX];
    ev->identity =
        json_pack("{s:i,s:s,s:s}", "pid", 4711, "bootId", sd_id128_to_string(m.d.world.boot, boot), "unit", v->id);
    v->told = true;
    trace("the mover of %s is ready", v->id);
    count_cell(v->id, CELL_READY);
    event_post(&m.d, ev);
}

/* ---- acting ---- */

static bool post_hook_wanted(const struct operation *op)
{
    return (op->kind == KIND_BACKUP ? op->policy->hook_post_backup : op->policy->hook_post_restore)[0] != '\0';
}

struct in_batch {
    const struct operation *of;
    const json_t *items;
};
static int check_batch(const struct operation *op, void *arg)
{
    const struct in_batch *x = arg;
    const json_t *item;
    size_t i;
    if (strcmp(op->policy->group, x->of->policy->group) != 0 || op->state != OP_SNAPSHOTTING || op->cancel)
        return 0;
    if (op->stage < STAGE_SNAPSHOT)
        violated("CF-47", "%s is snapshotted before %s of its group is ready", x->of->id, op->id);
    if (op->stage != STAGE_SNAPSHOT)
        return 0;
    json_array_foreach(x->items, i, item) if (!strcmp(jstr(item, "operation"), op->id)) return 0;
    violated("CF-47", "%s is snapshotted without %s of its group", x->of->id, op->id);
}

/* Of each piece of work before it begins. */
static void check_work(const struct act *a)
{
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    CLEANUP(backup_clear) struct backup b = ROW_INIT;
    if (a->work == WORK_RUN_HOOK) {
        if (operation_get(m.records, jstr(a->doc, "operation"), &op, NULL) < 0 || op.post_hook_done ||
            !op_state_terminal(op.state) || !post_hook_wanted(&op))
            violated("CF-48", "the hook after %s runs, its operation %s is %s%s", a->id, jstr(a->doc, "operation"),
                     op_state_name(op.state), op.post_hook_done ? " and its hook has run" : "");
        if (backup_get(m.records, a->id, &b, NULL) < 0 || b.state != BACKUP_FINALIZING)
            violated("CF-48", "the hook after %s runs before its end", a->id);
        return;
    }
    if (operation_get(m.records, a->id, &op, NULL) < 0)
        violated("AO-41", "%s for %s, which is not there", work_name(a->work), a->id);
    if (a->work == WORK_PREPARE_HOOK && (op.prepared || !op.exposure || jbool(op.exposure, "read_only")))
        violated("PVC-25", "the prepare hook of %s runs on what is no writable intermediate", a->id);
    if (a->work == WORK_OPEN && op.policy->hook_prepare[0] && !op.prepared && !jbool(op.exposure, "read_only"))
        violated("PVC-25", "%s is moved and its prepare hook has not run", a->id);
    if (a->work == WORK_SNAPSHOT && op.policy->group[0]) {
        const struct operation_filter f = {.parent = op.parent, .live = true};
        struct in_batch x = {&op, jarr(a->doc, "items")};
        operation_each(m.records, &f, check_batch, &x, NULL);
    }
}

static void act_work(const struct act *a)
{
    if (work_of(a->id))
        violated("one piece of work for one record", "%s is begun while %s runs for %s", work_name(a->work),
                 work_name(work_of(a->id)->work), a->id);
    if (m.n_works == WORKS_MAX)
        violated("E-02", "more than %u pieces of work run", WORKS_MAX);
    struct live *l = live_get(&m.d, a->id);
    const json_t *item;
    size_t i;
    check_work(a);
    l->working = a->work;
    if (a->work == WORK_SNAPSHOT)
        json_array_foreach(jarr(a->doc, "items"), i, item) live_get(&m.d, jstr(item, "operation"))->working = a->work;
    struct model_work *w = &m.works[m.n_works++];
    *w = (struct model_work){.row = a->row, .work = a->work, .in = json_incref(a->doc)};
    snprintf(w->id, sizeof w->id, "%s", a->id);
    if (one_in(60)) { /* no process can be made */
        struct event *ev = event_new(EVENT_WORK, w->row, w->id);
        ev->work = w->work;
        ev->result.in = json_incref(w->in);
        ev->result.not_started = true;
        err_set(&ev->result.err, ERR_GENERIC, EAGAIN, "cannot start a process");
        drop_work(m.n_works - 1);
        event_post(&m.d, ev);
    }
}

static void act_start(const struct act *a)
{
    struct model_mover *old = mover_of(a->id);
    if (old && (old->here || old->go))
        violated("MS-11", "a second mover of %s is started", a->id);
    if (old) /* of a daemon that died: it waits for its go, which never comes */
        drop_mover(old);
    if (a->op->state != OP_STARTING)
        violated("MS-19", "a mover of %s is started while it is %s", a->id, op_state_name(a->op->state));
    if (one_in(25)) {
        struct event *ev = event_new(EVENT_NOT_STARTED, ROW_OPERATION, a->id);
        ev->transient = pick(3) != 0;
        err_set(&ev->err, ev->transient ? ERR_PASSWORD : ERR_USAGE, 0, "the password cannot be read");
        event_post(&m.d, ev);
        return;
    }
    if (m.n_movers == MOVERS_MAX)
        violated("E-02", "more than %u movers run", MOVERS_MAX);
    struct model_mover *v = &m.movers[m.n_movers++];
    *v = (struct model_mover){.kind = a->op->kind, .here = true};
    v->job = json_pack("{s:s,s:O?}", "volume", a->op->volume_id, "do", a->op->does);
    snprintf(v->id, sizeof v->id, "%s", a->id);
    json_object_del(m.results, a->id); /* it begins with an empty result file */
    live_get(&m.d, a->id)->mover = true;
}

static void act_go(const struct act *a)
{
    struct model_mover *v = mover_of(a->id);
    const struct operation *op = operation_peek(m.records, a->id);
    if (!op || op->state != OP_RUNNING || !op->identity)
        violated("MS-19", "the mover of %s may begin and its record says %s", a->id,
                 op ? op_state_name(op->state) : "nothing");
    if (v)
        v->go = true;
}

static void act_adopt(const struct act *a)
{
    struct model_mover *v = mover_of(a->id);
    if (v) {
        if (v->here)
            violated("MS-50", "the mover of %s is adopted twice", a->id);
        v->here = true;
        v->told = true;
        v->cancel |= a->op->cancel;
        live_get(&m.d, a->id)->mover = true;
        if (!v->go && !v->cancel) /* its go was lost with the daemon: it gives up by itself */
            v->cancel = true;
        return;
    }
    struct event *ev = event_new(EVENT_ENDED, ROW_OPERATION, a->id);
    json_t *result = json_object_get(m.results, a->id);
    report_of(&ev->report, a->id, result ? MOVER_OK : MOVER_DIED, json_incref(result));
    count_cell(a->id, result ? CELL_OK : CELL_FAILED);
    event_post(&m.d, ev);
}

static void act_one(const struct act *a)
{
    struct model_mover *v;
    switch (a->kind) {
    case ACT_WORK:
        act_work(a);
        break;
    case ACT_WORK_CANCEL:
        for (unsigned i = 0; i < m.n_works; i++)
            if (!strcmp(m.works[i].id, a->id)) {
                end_work(i, maybe() ? 2 : 1, true);
                break;
            }
        break;
    case ACT_MOVER_START:
        act_start(a);
        break;
    case ACT_MOVER_GO:
        act_go(a);
        break;
    case ACT_MOVER_ADOPT:
        act_adopt(a);
        break;
    case ACT_MOVER_CANCEL:
        if (one_in(20) && live_find(&m.d, a->id))
            live_find(&m.d, a->id)->cancel_failed = true;
        else if ((v = mover_of(a->id)))
            v->cancel = true;
        break;
    case ACT_MOVER_FORGET:
        if (!mover_of(a->id))
            json_object_del(m.results, a->id);
        break;
    case ACT_LIVE_DROP:
        live_drop(&m.d, a->id);
        break;
    case ACT_LOG:
        trace("log: %s", a->text);
        break;
    case ACT_JOURNAL_OPERATION:
    case ACT_JOURNAL_RUN:
    case ACT_NATIVES:
    case ACT_CRASH_POINT:
        break;
    }
}

/* ---- daemons ---- */

/* A row that has ended counts once its transaction is durable. */
static void note_end(enum row_kind k, const char *id, const void *was, const void *now)
{
    const struct operation *o = now, *p = was;
    const struct backup *b = now, *c = was;
    if (k == ROW_OPERATION && o && op_state_terminal(o->state) && p && !op_state_terminal(p->state))
        json_array_append_new(
            m.ending, json_pack("{s:s,s:i,s:s,s:s,s:i,s:b,s:b}", "operation", id, "kind", (int)k, "backup", o->parent,
                                "volume", o->kind == KIND_BACKUP ? o->volume_id : "", "outcome", (int)o->outcome,
                                "moved", (int)o->policy->move_data, "completed", (int)(o->state == OP_COMPLETED)));
    else if (k == ROW_BACKUP && b && backup_state_terminal(b->state) && c && !backup_state_terminal(c->state))
        json_array_append_new(m.ending, json_pack("{s:s,s:i}", "operation", id, "kind", (int)k));
}

static void ends_durable(bool durable)
{
    const json_t *x;
    size_t i;
    json_array_foreach(m.ending, i, x)
    {
        const char *id = jstr(x, "operation"), *volume = jstr(x, "volume");
        if (!durable)
            continue;
        if (json_object_get(m.ended, id))
            violated("exactly once", "%s ends a second time", id);
        json_object_set(m.ended, id, json_object_get(x, "kind"));
        if (volume[0])
            json_object_set(m.last_ended, volume, (json_t *)(uintptr_t)x);
        if (volume[0] && jbool(x, "completed"))
            json_object_set(m.last_completed, volume, (json_t *)(uintptr_t)x);
    }
    json_array_clear(m.ending);
}

static void row_changed(enum row_kind k, const char *id, const void *was, const void *now, void *arg)
{
    (void)arg;
    note_end(k, id, was, now);
    if (m.changing)
        m.changing(k, id, was, now);
    decide_row_changed(&m.d, k, id, was, now);
}

static void set_repository(void)
{
    struct repo_health *h = repository_health(&m.d, "main");
    h->known = true;
    h->up = m.repo_up;
    snprintf(h->why, sizeof h->why, "%s", m.repo_up ? "" : "it is away");
}

static void daemon_start(void)
{
    struct err e = ERR_INIT;
    struct records_news news;
    m.d = (struct decide){.world = {.clock = model_clock, .cfg = m.cfg[m.cfg_now], .ids = &m.ids, .writable = true}};
    m.d.world.boot.qwords[0] = m.boot;
    if (records_open(&m.records, m.dir, &news, &e) < 0)
        violated("AO-41", "the records do not open: %s", e.msg);
    m.d.records = m.records;
    if (decide_init(&m.d, &e) < 0 || rows_watch(m.records, row_changed, &m) < 0)
        violated("AO-41", "it does not start: %s", e.msg);
    set_repository();
    decide_look_at_all(&m.d);
}

static void daemon_end(void)
{
    rows_unwatch(m.records, &m);
    decide_free(&m.d);
    records_close(m.records);
    m.records = NULL;
}

static int note_restart(const struct operation *op, void *arg)
{
    (void)arg;
    cells[op->kind][op->state][CELL_RESTART]++;
    return 0;
}

/* The daemon dies, with the machine or alone; another one is started. */
static void restart(bool reboot)
{
    const struct operation_filter live = {.live = true};
    trace(reboot ? "the machine reboots" : "the daemon dies");
    json_object_clear(m.answered); /* what it was told is lost */
    json_object_clear(m.unprepared);
    json_object_clear(m.late);
    operation_each(m.records, &live, note_restart, NULL, NULL);
    while (m.n_works) { /* its children die with it, at any point of what they do */
        if (maybe() && m.works[0].work != WORK_COMMIT)
            json_decref(apply(&m.works[0]));
        drop_work(0);
    }
    daemon_end();
    for (unsigned i = m.n_movers; i-- > 0;) {
        struct model_mover *v = &m.movers[i];
        v->here = false;
        if (reboot)
            drop_mover(v);
        else if (!v->told && maybe())
            drop_mover(v); /* it was only being started */
    }
    if (reboot) {
        m.boot++;
        m.now += NS_PER_MIN;
    }
    daemon_start();
}

/* ---- turns ---- */

/* What moves in each class and on each device, and the highest limit of those that do: each found the others below its
 * own when it began. */
#define LIMITS 14 /* four classes, ten devices */
struct limits {
    unsigned n[LIMITS], most[LIMITS];
};

static void note_limit(struct limits *x, unsigned i, int64_t limit)
{
    const unsigned most = limit ? (unsigned)limit : UINT_MAX;
    x->n[i]++;
    if (most > x->most[i])
        x->most[i] = most;
}

static void note_limits(const struct operation *op, struct limits *x)
{
    const bool moving = op->state == OP_STARTING || op->state == OP_RUNNING || op->state == OP_CANCELLING;
    int64_t per_device = op->policy->max_per_device;
    if (!moving || (op->kind != KIND_BACKUP && op->kind != KIND_RESTORE) || op->filled)
        return;
    for (unsigned i = 0; i < 3 && !op->policy->max_per_device; i++)
        if (cfg_daemon(m.cfg[i])->per_device > per_device)
            per_device = cfg_daemon(m.cfg[i])->per_device;
    note_limit(x, (unsigned)(op->own->name[0] - 'a') % 4, op->policy->max_per_class);
    note_limit(x, 4 + (unsigned)(op->volume->pool[4] - '0') % 10, per_device);
}

static int check_operation(const struct operation *op, void *arg)
{
    const char *was = jstr(m.outcomes, op->id), *now = outcome_name(op->outcome);
    /* MS-62, AO-09: an outcome that is recorded does not change. */
    if (was[0] && strcmp(was, now) != 0)
        violated("MS-62", "the outcome of %s was %s and is %s", op->id, was, now);
    if (now[0] && !was[0])
        json_object_set_new(m.outcomes, op->id, json_string(now));
    const struct policy *p = op->policy;
    if (op->attempt > p->retries)
        violated("MS-17", "%s is in attempt %lld, retries are %lld", op->id, (long long)op->attempt + 1,
                 (long long)p->retries);
    if (op->state == OP_RETRYING && !op->interruptions && op->wake_ns &&
        (op->wake_ns < op->state_since_ns + p->retry_first_s * NS_PER_S ||
         op->wake_ns > op->state_since_ns + p->retry_max_s * NS_PER_S))
        violated("MS-17", "%s is tried again after %lld s", op->id,
                 (long long)((op->wake_ns - op->state_since_ns) / NS_PER_S));
    note_limits(op, arg);
    return 0;
}

static void check_limits(const struct limits *x)
{
    for (unsigned i = 0; i < LIMITS; i++)
        if (x->n[i] > x->most[i])
            violated(i < 4 ? "CF-20: max-per-class" : "CF-20: max-per-device", "%u operations move, %u may", x->n[i],
                     x->most[i]);
}

struct running {
    unsigned backups, restores;
};

static void check_slots(void)
{
    struct running x = {0};
    for (unsigned i = 0; i < m.n_movers; i++) {
        if (!m.movers[i].here && !m.movers[i].go)
            continue; /* of a daemon that died: it waits for its go, which never comes */
        x.backups += m.movers[i].kind == KIND_BACKUP;
        x.restores += m.movers[i].kind == KIND_RESTORE;
    }
    unsigned slots = 0, reserved = 0;
    for (unsigned i = 0; i < 3; i++) { /* a reload may have lowered them */
        const struct cfg_daemon *c = cfg_daemon(m.cfg[i]);
        slots = c->slots > slots ? c->slots : slots;
        reserved = c->restore_reserved > reserved ? c->restore_reserved : reserved;
    }
    if (x.backups > slots || x.backups + x.restores > slots + reserved)
        violated("E-02", "%u backups and %u restores move with %u and %u slots", x.backups, x.restores, slots,
                 reserved);
}

static void turn(void)
{
    const struct operation_filter live = {.live = true};
    struct err e = ERR_INIT;
    if (records_begin(m.records, &e) < 0)
        violated("AO-41", "no transaction: %s", e.msg);
    records_counters_hold(m.records);
    m.d.world.cfg = m.cfg[m.cfg_now];
    decide_turn(&m.d, 256);
    if (m.d.plan.failed)
        violated("AO-41", "a plan fails without a cause");
    if (m.fail_commit) {
        trace("the commit fails");
        m.fail_commit = false;
        records_rollback(m.records);
        ends_durable(false);
        records_counters_settle(m.records);
        decide_undone(&m.d);
        return;
    }
    if (records_commit(m.records, &e) < 0)
        violated("AO-41", "no commit: %s", e.msg);
    ends_durable(true);
    records_counters_settle(m.records);
    const size_t n = m.d.plan.n, until = one_in(80) ? pick((unsigned)n + 1) : n;
    for (size_t i = 0; i < until; i++) {
        if (m.acting)
            m.acting(&m.d.plan.acts[i]);
        act_one(&m.d.plan.acts[i]);
    }
    decide_acted(&m.d);
    check_slots();
    struct limits limits = {.n = {0}};
    operation_each(m.records, &live, check_operation, &limits, NULL);
    check_limits(&limits);
    if (until < n)
        restart(false); /* between commit and act */
}

#endif
