/* SPDX-License-Identifier: GPL-2.0-or-later */
/* model-world.h - a clock, a storage and a repository without a daemon, and what work does to them; for model.h */
#ifndef SNAPFERRY_TESTS_UNIT_MODEL_WORLD_H
#define SNAPFERRY_TESTS_UNIT_MODEL_WORLD_H

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
    bool read;   /* it has read the first byte */
    bool undone; /* the turn that started it was undone: it was asked to end, and has no go */
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
    json_t *natives;       /* alias -> {"volume", "operation"}: on the storage */
    json_t *bookmarks;     /* alias -> true: of native snapshots, on the storage */
    json_t *exposures;     /* alias -> true */
    json_t *targets;       /* alias -> true: made, not put into place */
    json_t *frozen;        /* operation -> true: its pre-snapshot hook has run, its post-snapshot hook has not */
    json_t *snapshots;     /* of the repository: id -> {"operation", "volume", "readable"} */
    json_t *results;       /* operation -> result file that a mover left */
    json_t *outcomes;      /* operation -> outcome as first recorded */
    json_t *ended;         /* operation or backup -> kind of its row: it ended, and that is durable */
    json_t *ending;        /* the same of the transaction that is open: [{"id", "kind", ...}] */
    json_t *first_exposed; /* operation -> native snapshot */
    json_t *whole;         /* backups none of whose snapshots had been found missing when they ended */
    json_t *last_ended, *last_completed; /* volume -> its last operation that ended, and that was Completed */
    json_t *answered;   /* alias -> "gone" or "error": what the storage answered last, and the daemon has read */
    json_t *unprepared; /* operation -> true: its prepare hook has failed, and hook-on-error is fail */
    json_t *late;       /* operation -> true: prepare-timeout passed */
    json_t *read;       /* operation -> true: the daemon knows that its mover has read */
    json_t *refused;    /* snapshot -> true: the repository has refused to delete it when it was asked last */
    json_t *pruned;     /* operation -> what it has pruned since the pool was measured for it */
    json_t *recorded;   /* "REPOSITORY/BACKUP" -> outcome as its repository has it (AO-16) */
    json_t *forced;     /* backup -> true: its deletion forgets what is not removed; alias: such a one */
    json_t *given_up;   /* operation -> true: a restart with on-restart = fail has found it begun, and no mover of it */
    bool repo_up, trace;
    bool quiet;               /* nothing happens by chance */
    json_t *liars;            /* operation -> true: its mover has named a snapshot of another one */
    bool fail_commit, blamed; /* blamed: a unit could not be recorded */
    bool narrow;              /* the next turn has one unit */
    struct err blame;         /* what a scenario's commit fails for; cls ERR_NONE: nothing of the turn */
    /* Those who look on (NULL: nobody): at each action before it is carried out, at each row that was changed. */
    void (*acting)(const struct act *a);
    void (*meanwhile)(void); /* something happens while a turn goes on; NULL: turns do not */
    void (*between)(void);   /* the same between two parts of a request */
    void (*died)(void);      /* after a restart, before anything else */
    void (*changing)(enum row_kind k, const char *id, const void *was, const void *now);
    unsigned step, failures;
    uint64_t seed, boot;
} m;

static uint64_t bookmarks_used; /* lists of changes since a native snapshot that was gone */
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

#include "tests/unit/model-cells.h"

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

/* Its deletion was asked for with --even-kept. */
static bool deletes_even_kept(const char *backup)
{
    CLEANUP(backup_clear) struct backup b = ROW_INIT;
    const struct operation *op =
        backup_get(m.records, backup, &b, NULL) == 0 ? operation_peek(m.records, b.deleting) : NULL;
    return op && op->even_kept;
}

/* Class b has changed-blocks = auto in all configurations. */
static bool keeps_parents(const struct native_row *n)
{
    return !strcmp(n->klass->name, "b");
}

/* The next incremental backup can be based on it, and nobody wants it gone. */
static bool is_parent(const struct native_row *row)
{
    return row && row->cbt_parent && row->policy->changed_blocks && !row->expired && !is_unwanted(row->parent) &&
           keeps_parents(row);
}

/* What the step does with the bookmark, once the native snapshot itself is gone. */
static void remove_bookmark(const json_t *item, const struct native_row *row, bool by_request, json_t *answer)
{
    const char *alias = jstr(item, "alias");
    const bool leave = jbool(item, "leave_bookmark");
    if (row && row->bookmark && is_parent(row) && !leave && !by_request)
        violated("RS-28",
                 "the bookmark of native snapshot %s is removed, and is the base of the next incremental backup",
                 alias);
    if (leave)
        jset_bool(answer, "bookmark", true);
    else if (jbool(item, "bookmark"))
        json_object_del(m.bookmarks, alias);
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
        if (row && row->hold.held && !by_request && !(n && jbool(item, "missing"))) /* that is only looked for */
            violated("RS-16", "native snapshot %s is held and removed", alias);
        if (row && row->kept.there && !row->kept.released && !(by_request && deletes_even_kept(row->parent)))
            violated("PVC-11", "native snapshot %s is kept for inspection and removed", alias);
        if (row && row->kept.alias[0] && strcmp(row->kept.alias, jstr(jobj(item, "kept"), "name")) != 0)
            violated("PVC-11", "native snapshot %s is removed without its intermediate %s", alias, row->kept.alias);
        if (n && jbool(item, "missing")) { /* it was missing: only its record was to go */
            json_array_append_new(out, json_pack("{s:s,s:b}", "alias", alias, "there", 1));
            continue;
        }
        if (one_in(12)) {
            json_array_append_new(
                out, json_pack("{s:s,s:o}", "alias", alias, "error", answer_error("it is busy", ERR_BUSY)));
            continue;
        }
        if (jobj(item, "kept")) /* comes first */
            json_object_del(m.exposures, jstr(jobj(item, "kept"), "name"));
        if (n && !m.quiet && one_in(40)) { /* something else has its place */
            json_t *error = answer_error("it does not have the tag", ERR_PERMISSION);
            jset_int(error, "errno", ESTALE);
            put(m.forced, alias); /* if the deletion is forced, whichever backup it is of by now */
            json_array_append_new(out, json_pack("{s:s,s:o}", "alias", alias, "error", error));
            continue;
        }
        if (!n) {
            json_t *gone = json_pack("{s:s,s:b}", "alias", alias, "gone", 1);
            remove_bookmark(item, row, by_request, gone);
            json_array_append_new(out, gone);
            continue;
        }
        /* RS-18: what is pruned can be restored from the repository, or it failed, or its backup was deleted. */
        if (row && row->moved && !row->policy->mover[0] && !by_request && !row->expired && !is_unwanted(row->parent)) {
            const json_t *s = json_object_get(m.snapshots, row->snapshot);
            if ((!s && !json_object_get(m.liars, row->operation)) || (s && !jbool(s, "readable")))
                violated("RS-18", "native snapshot %s was pruned; snapshot %s of the repository %s", alias,
                         row->snapshot, s ? "cannot be read" : "is not there");
            if (n && strcmp(row->operation, jstr(s, "operation")) != 0)
                violated("RS-18", "native snapshot %s was pruned for snapshot %s, which is of %s", alias, row->snapshot,
                         jstr(s, "operation"));
        }
        if (row && !row->moved && !row->failed && !row->snapshot_only && !row->expired && !by_request) {
            if (!is_unwanted(row->parent))
                violated("RS-16", "native snapshot %s was pruned and its data is in no repository", alias);
        }
        /* The parent stays until the next success, but at the limits. */
        if (is_parent(row) && !by_request && !strstr(row->why_removed, "pool-high-water"))
            violated("RS-28", "native snapshot %s was pruned, and the next incremental backup is based on it", alias);
        json_object_del(m.natives, alias);
        json_t *removed = json_pack("{s:s}", "alias", alias);
        if (jbool(item, "bookmark") && one_in(20)) { /* all but its bookmark is removed */
            json_object_set_new(removed, "error", answer_error("it is busy", ERR_BUSY));
        } else {
            remove_bookmark(item, row, by_request, removed);
        }
        json_array_append_new(out, removed);
    }
    return json_pack("{s:o}", "items", out);
}

/* How the storage takes those of one step: by themselves, or all of a domain at one instant. */
struct instant {
    int64_t took;
    bool fails;
};

static json_t *apply_snapshot(const json_t *in)
{
    json_t *out = json_array();
    const json_t *item;
    struct instant domain[3];
    const unsigned domains = json_array_size(jarr(in, "items")) > 1 && maybe() ? 1 + pick(2) : 0;
    size_t i;
    for (unsigned k = 0; k <= domains; k++)
        domain[k] = (struct instant){one_in(8) ? 5 * NS_PER_S : NS_PER_MS, k && one_in(8)};
    json_array_foreach(jarr(in, "items"), i, item)
    {
        const json_t *tag = jobj(item, "tag");
        const char *alias = jstr(tag, "alias"), *op = jstr(item, "operation");
        need_intent(op, "native", alias);
        if (operation_peek(m.records, op) && operation_peek(m.records, op)->retry_of[0])
            violated("RS-03", "%s is a retry, and a new native snapshot is taken for it", op);
        const unsigned k = domains ? pick(domains + 1) : 0;
        if (domain[k].fails || one_in(10)) {
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
        if (!one_in(6)) /* the storage may keep no track */
            jset_str(native, "change_id", alias);
        const int64_t took = k ? domain[k].took : one_in(8) ? 5 * NS_PER_S : NS_PER_MS;
        json_t *answer = json_pack("{s:s,s:o,s:I,s:I,s:I}", "operation", op, "native", native, "begin_ns",
                                   (json_int_t)m.now, "end_ns", (json_int_t)(m.now + took), "instant", (json_int_t)k);
        json_array_append_new(out, answer);
        if (jbool(item, "bookmark") && one_in(6) && !json_object_get(m.bookmarks, alias)) {
            jset_str(answer, "no_bookmark", "the pool has none");
        } else if (jbool(item, "bookmark")) {
            put(m.bookmarks, alias);
            jset_bool(answer, "bookmark", true);
        }
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
        if (!strcmp(kind, "native")) {
            json_object_del(m.natives, name);
            json_object_del(m.bookmarks, name);
        } else if (!strcmp(kind, "exposure"))
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
        return one_in(3) ? json_pack("{s:[{s:f,s:I}]}", "items", "used_ratio", pick(2) ? 0.3 : 0.97, "begin_ns",
                                     (json_int_t)m.now)
                         : json_pack("{s:[{s:I}]}", "items", "begin_ns", (json_int_t)m.now);
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
        if (one_in(3))
            return json_pack("{s:s,s:I,s:s,s:b,s:b}", "path", "/dev/x", "size", (json_int_t)1 << 20, "mechanism",
                             "native", "read_only", op && op->policy->backup_read_only, "nothing_made", 1);
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
    case WORK_LOOK: {
        json_t *natives = json_array();
        const json_t *alias;
        size_t i;
        json_array_foreach(jarr(w->in, "aliases"), i, alias) json_array_append_new(
            natives, json_pack("{s:O,s:s}", "alias", alias, "state",
                               json_object_get(m.natives, json_string_value(alias)) ? "present" : "missing"));
        return json_pack("{s:o}", "natives", natives);
    }
    case WORK_CHANGES: {
        static const char *const doubts[] = {"", "", "", "parent-lost", "uncertain", "malformed"};
        const char *doubt = doubts[m.quiet ? 0 : pick(6)], *base = jstr(jobj(w->in, "base"), "alias");
        const bool there = !*base || json_object_get(m.natives, base);
        if (!there && !json_object_get(m.bookmarks, base))
            doubt = "parent-lost";
        bookmarks_used += !there && !*doubt;
        return json_pack("{s:b,s:s,s:s,s:I,s:I}", "listed", !*doubt, "doubt", doubt, "why", "because", "ranges",
                         (json_int_t)3, "bytes", (json_int_t)4096);
    }
    case WORK_NONE:
    case WORK_BEGIN_HOOK:
    case WORK_PREPARE_HOOK:
    case WORK_OPEN:
    case WORK_TARGET_OPEN:
    case WORK_DELETE_PLUGIN:
    case WORK_ASK_PLUGIN:
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
        json_array_foreach(jarr(out, "items"), i, a) json_object_set_new(m.answered, jstr(a, "alias"),
                                                                         json_string(jobj(a, "error")       ? "error"
                                                                                     : jbool(a, "there")    ? "there"
                                                                                     : jbool(a, "bookmark") ? "bookmark"
                                                                                                            : "gone"));
    if (w->work == WORK_PREPARE_HOOK && how && !op->policy->hook_continue)
        put(m.unprepared, w->id);
    if (w->work == WORK_EXPOSE && how == 3 && !op->read_begun) /* what was read in time is in time */
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
        if (w->work == WORK_CHANGES && jbool(out, "listed"))
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
    count_work(w, how == 0 ? CELL_WORK : CELL_WORK_FAILED);
    drop_work(i);
    event_post(&m.d, ev);
}

#endif
