/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_model.c - the engine's decisions against a model: a clock, movers, a storage and a repository of its own
 *
 * Random sequences of events (ends of work, movers, requests, clock jumps, reloads, outages, commits that fail, daemons
 * that die between commit and act, reboots) are played against daemon/decide and the records. After each turn, and when
 * all has come to rest, the invariants below are checked; each is named after the requirement it stands for.
 *
 * The same seed plays the same sequence. A sequence that violates an invariant is printed with its seed, shrunk to the
 * steps that matter, and can be played again:
 *
 *   MODEL_SECONDS=30     how long (the default)
 *   MODEL_SEQUENCES=N    how many instead; each cell of model-table.h must then be reached MODEL_CELLS times (20,000 or
 * more) MODEL_SEED=N         the first seed (default 1) MODEL_STEPS=a,b,c    with MODEL_SEQUENCES=1: only these steps
 * of it MODEL_TRACE=1        prints each step MODEL_SHOW=1         prints how often each cell was reached (make model
 * adds up those of its parts)
 */
#include "daemon/decide/copies.h"
#include "tests/unit/model-kept.h"
#include "tests/unit/model-parts.h"
#include "tests/unit/model-rules.h"
#include "tests/unit/model-table.h"

#include <sys/stat.h>

static uint64_t events_played, sequences_played, retries_played, kept_played, queued_reasons;

/* ---- movers ---- */

/* A mover takes its next step. */
static void play_mover(void)
{
    struct model_mover *v = m.n_movers ? &m.movers[pick(m.n_movers)] : NULL;
    static const enum mover_outcome bad[] = {MOVER_FAILED, MOVER_TRANSIENT, MOVER_SOURCE_LOST, MOVER_DIED,
                                             MOVER_OOM,    MOVER_HUNG,      MOVER_CANCELED,    MOVER_MISMATCH};
    if (!v)
        return;
    if (v->here && !v->told)
        one_in(12) ? end_mover(v, MOVER_NEVER_STARTED) : ready_mover(v);
    else if (v->cancel)
        end_mover(v, pick(3) || m.quiet ? MOVER_CANCELED : pick(3) ? MOVER_OK : MOVER_DIED);
    else if (v->go && !v->read && !m.quiet && pick(3))
        read_mover(v);
    else if (v->go)
        end_mover(v, one_in(4) ? bad[pick(sizeof bad / sizeof *bad)] : MOVER_OK);
    else if (one_in(10))
        end_mover(v, MOVER_NEVER_STARTED); /* nobody has let it begin in time */
}

static void play_meanwhile(void)
{
    if (m.n_works && pick(2))
        end_work(pick(m.n_works), one_in(8) ? 1 + pick(3) : 0, false);
    else
        play_mover();
}

/* ---- requests ---- */

static void submit_backup(void)
{
    CLEANUP(backup_clear) struct backup b;
    CLEANUP_JSON json_t *ids = json_array();
    const unsigned first = pick(VOLUMES), n = 1 + pick(3);
    char id[64], volume[16], name[64];
    backup_init(&b);
    snprintf(id, sizeof id, "b%llu", (unsigned long long)++m.serial);
    trace("backup %s of %u volumes from %u", id, n, first);
    str_set(&b.id, id);
    b.state = BACKUP_QUEUED;
    b.kind = KIND_BACKUP;
    records_begin(m.records, NULL);
    for (unsigned i = 0; i < n; i++) {
        const unsigned v = (first + i) % VOLUMES;
        snprintf(volume, sizeof volume, "v%u", v);
        snprintf(name, sizeof name, "/srv/%c/%u.img", "abcd"[v % 4], v);
        json_array_append_new(ids, json_string(volume));
        add_operation(m.cfg[m.cfg_now], id, volume, name, v % 2 ? "pool1" : "pool0", "");
    }
    strs_from_json(&b.volume_ids, ids);
    backup_add(m.records, &b, NULL);
    if (records_commit(m.records, NULL) < 0)
        violated("the model", "a backup cannot be recorded");
}

struct choose {
    char id[BOARD_ID_MAX];
    unsigned seen;
    enum op_kind kind;
};
static int choose_operation(const struct operation *op, void *arg)
{
    struct choose *x = arg;
    if ((!x->kind || op->kind == x->kind) && pick(++x->seen) == 0)
        snprintf(x->id, sizeof x->id, "%s", op->id);
    return 0;
}
static int choose_backup(const struct backup *b, void *arg)
{
    struct choose *x = arg;
    if ((!x->kind || b->kind == x->kind) && pick(++x->seen) == 0)
        snprintf(x->id, sizeof x->id, "%s", b->id);
    return 0;
}
static int choose_native(const struct native_row *n, void *arg)
{
    struct choose *x = arg;
    if (pick(++x->seen) == 0)
        snprintf(x->id, sizeof x->id, "%s", n->id);
    return 0;
}

static void submit_restore(void)
{
    CLEANUP(backup_clear) struct backup b;
    CLEANUP(operation_clear) struct operation op, of = ROW_INIT;
    CLEANUP(native_row_clear) struct native_row n = ROW_INIT;
    struct choose x = {.kind = KIND_BACKUP};
    const struct operation_filter completed = {.state = OP_COMPLETED, .newest_first = true, .limit = 1 + pick(8)};
    operation_each(m.records, &completed, choose_operation, &x, NULL);
    backup_init(&b);
    operation_init(&op);
    if (!x.id[0] || operation_get(m.records, x.id, &of, NULL) < 0)
        return;
    trace("restore of %s", x.id);
    str_setf(&b.id, "restore-r%llu", (unsigned long long)++m.serial);
    b.state = BACKUP_QUEUED;
    b.kind = KIND_RESTORE;
    str_set(&b.of, of.parent);
    str_setf(&op.id, "down-%s", b.id);
    str_set(&op.parent, b.id);
    str_set(&op.volume_id, of.volume_id);
    op.state = OP_QUEUED;
    op.kind = KIND_RESTORE;
    policy_set(&op.policy, of.policy);
    class_desc_set(&op.own, of.own);
    volume_desc_set(&op.volume, of.volume);
    str_set(&op.of, of.id);
    const bool back = pick(2), in_place = back && pick(3);
    str_set(&b.target, back ? of.volume->name : "/srv/out");
    str_set(&op.target_name, b.target);
    op.in_place = in_place;
    op.size = 1 << 20;
    struct err busy = ERR_INIT;
    if (target_in_use(&m.d, b.target, in_place, &busy) < 0) {
        trace("refused: %s", busy.msg);
        return;
    }
    if (pick(2) && native_row_get(m.records, of.native, &n, NULL) == 0 && n.state == NATIVE_PRESENT) {
        op.from = FROM_NATIVE;
        native_desc_set(&op.native_doc, n.native);
        str_set(&op.native, n.id);
        class_desc_set(&op.native_class, n.klass);
    } else {
        op.from = FROM_REPOSITORY;
        str_set(&op.snapshot, of.result.snapshot);
    }
    records_begin(m.records, NULL);
    backup_add(m.records, &b, NULL);
    operation_add(m.records, &op, NULL);
    records_commit(m.records, NULL);
}

static void sweep(void)
{
    count_all(CELL_LOOK);
    decide_look_at_all(&m.d);
}

static void reload(unsigned to)
{
    m.cfg_now = to;
    m.d.world.cfg = m.cfg[to];
    records_begin(m.records, NULL);
    configure_waiting(&m.d);
    records_commit(m.records, NULL);
}

static void cancel_backup(const char *id)
{
    CLEANUP(backup_clear) struct backup b;
    if (backup_get(m.records, id, &b, NULL) < 0 || backup_state_terminal(b.state) || b.cancel)
        return;
    trace("cancel %s", id);
    count_backup_cell(id, CELL_CANCEL);
    b.cancel = true;
    b.cancel_ns = m.now;
    backup_save(m.records, &b, NULL);
}

static void cancel_operation(const char *id)
{
    CLEANUP(operation_clear) struct operation op;
    if (operation_get(m.records, id, &op, NULL) < 0 || op_state_terminal(op.state))
        return;
    trace("cancel %s", id);
    count_cell(id, CELL_CANCEL);
    operation_ask_cancel(&m.d, &op, "asked for");
}

static void play_cancel(void)
{
    /* States that last for one event only are asked for. */
    static const enum op_state states[] = {OP_NONE,    OP_NONE,     OP_EXPOSING,   OP_STARTING,
                                           OP_RUNNING, OP_RETRYING, OP_CLEANING_UP};
    struct choose x = {.kind = (enum op_kind)pick(KINDS)};
    const struct operation_filter any = {.live = true},
                                  some = {.live = true, .state = states[pick(sizeof states / sizeof *states)]};
    const struct backup_filter backups = {.live = true};
    if (pick(3)) {
        operation_each(m.records, &some, choose_operation, &x, NULL);
        if (!x.id[0])
            operation_each(m.records, &any, choose_operation, &x, NULL);
        cancel_operation(x.id);
    } else {
        x.kind = KIND_NONE;
        backup_each(m.records, &backups, choose_backup, &x, NULL);
        cancel_backup(x.id);
    }
    if (pick(4))
        return;
    turn(); /* while it is being canceled */
    if (pick(2))
        restart(one_in(4));
    else
        sweep();
}

struct held {
    const char *backup;
    bool is;
};
/* What was kept of an operation is of its backup, though the native snapshot may be that of a retry. */
static int note_held(const struct native_row *n, void *arg)
{
    struct held *h = arg;
    const bool kept = n->kept.there && !n->kept.released, own = strcmp(n->parent, h->backup) == 0;
    CLEANUP(operation_clear) struct operation failed = ROW_INIT;
    h->is |= own && (n->hold.held || kept);
    h->is |=
        kept && operation_get(m.records, n->kept.operation, &failed, NULL) == 0 && !strcmp(failed.parent, h->backup);
    return 0;
}

static void play_delete(void)
{
    struct choose x = {.kind = KIND_BACKUP};
    struct err e = ERR_INIT;
    json_t *answer = NULL;
    CLEANUP(backup_clear) struct backup b = ROW_INIT;
    backup_each(m.records, NULL, choose_backup, &x, NULL);
    if (!x.id[0] || backup_get(m.records, x.id, &b, NULL) < 0)
        return;
    const bool force = pick(2), even_kept = pick(2), busy = !backup_state_terminal(b.state);
    struct held held = {.backup = x.id};
    native_row_each(m.records, NULL, note_held, &held, NULL);
    records_begin(m.records, NULL);
    const bool accepted = delete_submit(&m.d, x.id, force, even_kept, &answer, &e) == 0;
    if (records_commit(m.records, NULL) < 0)
        violated("the model", "a deletion cannot be recorded");
    json_decref(answer);
    trace("delete %s%s%s%s", x.id, force ? ", force" : "", even_kept ? ", even kept" : "", accepted ? "" : ": refused");
    if (accepted && force)
        put(m.forced, x.id);
    if (accepted != (b.deleting[0] || ((force || !busy) && (even_kept || !held.is))))
        violated("RS-23", "deletion of %s was %s; it is %s%s", x.id, accepted ? "accepted" : "refused",
                 backup_state_name(b.state), held.is ? ", a native snapshot of it is held" : "");
}

/* Of an operation "up-BACKUP.VOLUME". */
static bool was_forced(const char *operation)
{
    char backup[BOARD_ID_MAX];
    snprintf(backup, sizeof backup, "%s", operation + strlen("up-"));
    backup[strcspn(backup, ".")] = '\0';
    return json_object_get(m.forced, backup);
}

static void play_hold(void)
{
    CLEANUP(native_row_clear) struct native_row n;
    struct choose x = {.seen = 0};
    native_row_each(m.records, NULL, choose_native, &x, NULL);
    if (native_row_get(m.records, x.id, &n, NULL) < 0 || n.state == NATIVE_REMOVING)
        return; /* which is refused */
    if (n.kept.there && pick(2)) {
        trace("release %s", x.id);
        release_kept(x.id);
        if (pick(2))
            sweep_kept(one_in(4));
        return;
    }
    n.hold.held = !n.hold.held;
    native_row_save(m.records, &n, NULL);
}

static int note_user(const struct operation *op, void *arg)
{
    struct choose *x = arg;
    x->seen += !strcmp(op->native, x->id);
    return 0;
}

static int choose_base(const struct native_row *n, void *arg)
{
    return n->state == NATIVE_PRESENT && n->bookmark && n->moved && !n->kept.there ? choose_native(n, arg) : 0;
}

/* Another tool destroys a native snapshot of which there is a bookmark, maybe that too, and the sweep finds it gone. */
static void play_vanish(void)
{
    CLEANUP(native_row_clear) struct native_row n = ROW_INIT;
    const struct operation_filter live = {.live = true};
    struct choose x = {.seen = 0};
    native_row_each(m.records, NULL, choose_base, &x, NULL);
    x.seen = 0;
    operation_each(m.records, &live, note_user, &x, NULL);
    if (x.seen || native_row_get(m.records, x.id, &n, NULL) < 0)
        return;
    trace("native snapshot %s is destroyed by another tool", x.id);
    json_object_del(m.natives, x.id);
    if (one_in(4))
        json_object_del(m.bookmarks, x.id);
    n.state = NATIVE_MISSING;
    native_row_save(m.records, &n, NULL);
}

static void play_retry(void)
{
    const struct operation_filter failed = {.state = OP_FAILED, .newest_first = true, .limit = 1 + pick(8)};
    struct choose x = {.kind = KIND_BACKUP};
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    CLEANUP_JSON json_t *answer = NULL;
    struct err e = ERR_INIT;
    operation_each(m.records, &failed, choose_operation, &x, NULL);
    if (!x.id[0] || operation_get(m.records, x.id, &op, NULL) < 0)
        return;
    const int rc = submit_retry(op.parent, pick(2) ? op.volume_id : "", &answer, &e);
    trace("retry %s: %s", op.parent, rc < 0 ? e.msg : jstr(answer, "backup"));
    retries_played += rc == 0;
}

static int count_maintenance(const struct operation *op, void *arg)
{
    *(unsigned *)arg += op->kind == KIND_MAINTAIN;
    return 0;
}

static void play_maintain(void)
{
    const struct operation_filter live = {.live = true};
    const struct maintain_order order = {.there = true, .full = pick(2), .dry_run = one_in(5), .scheduled = pick(2)};
    unsigned running = 0;
    char id[512] = "";
    struct err e = ERR_INIT;
    operation_each(m.records, &live, count_maintenance, &running, NULL);
    const int rc = maintain_submit(&m.d, "main", &order, id, &e);
    trace("maintain: %s", rc < 0 ? e.msg : id);
    if (running && rc == 0)
        violated("CF-35", "maintenance %s is begun beside another one", id);
}

static int count_copies(const struct operation *op, void *arg)
{
    *(unsigned *)arg += op->kind == KIND_COPY;
    return 0;
}

static void play_copy(void)
{
    const struct operation_filter live = {.live = true};
    const struct cfg_copy *k = cfg_copy(m.cfg[m.cfg_now], "offsite");
    unsigned running = 0;
    char id[512] = "";
    struct err e = ERR_INIT;
    operation_each(m.records, &live, count_copies, &running, NULL);
    const int rc = copy_submit(&m.d, k, (struct copy_allow){one_in(8), one_in(8)}, id, &e);
    trace("copy: %s", rc < 0 ? e.msg : id);
    if (running && rc == 0)
        violated("copies", "copy %s is begun beside another one", id);
}

static void play_admin(void)
{
    CLEANUP(operation_clear) struct operation op;
    char id[512];
    struct err e = ERR_INIT;
    operation_init(&op);
    if (one_in(3)) {
        play_maintain();
    } else if (one_in(3)) {
        play_copy();
    } else if (pick(2)) {
        op.does = json_pack("[{s:s}]", "verb", "expire");
        admin_add(&m.d, KIND_ADMIN, "admin-expire", "main", &op, NULL, id, &e);
    } else if (pick(2)) {
        verification_submit(&m.d, cfg_repository(m.cfg[m.cfg_now], "main"), &e);
    } else {
        op.read_percent = 100;
        admin_add(&m.d, KIND_VERIFY, "verify", "main", &op, NULL, id, &e);
    }
}

static void to_next_wake(void)
{
    const int64_t wake = decide_wake(&m.d);
    m.now = wake > m.now ? wake + NS_PER_MS : m.now + NS_PER_S;
}

/* ---- what waits ---- */

static int waits_for_nothing(const struct operation *op, void *arg)
{
    char why[1300];
    (void)arg;
    if (!operation_is_restore(op) || op->state != OP_QUEUED || op->cancel || busy(&m.d, op->id))
        return 0;
    operation_waits_for(&m.d, op, why, sizeof why);
    if (why[0])
        queued_reasons++;
    else if (!op->wake_ns)
        violated("AO-47: what is queued waits for something", "%s is Queued, and nothing prevents it", op->id);
    return 0;
}

/* When all that is known was decided on, each restore that is still queued has a reason, or a time at which it is
 * looked at again. */
static void rule_of_queue(void)
{
    const struct operation_filter live = {.live = true};
    for (unsigned i = 0; i < 20 && (board_is_marked(m.d.board) || requests_wait(&m.d)); i++)
        turn();
    if (!board_is_marked(m.d.board) && !requests_wait(&m.d) && !m.fail_commit && m.d.world.writable)
        operation_each(m.records, &live, waits_for_nothing, NULL, NULL);
}

static int choose_brief(const struct backup *b, void *arg)
{
    const bool brief = b->kind == KIND_RESTORE && (b->state == BACKUP_QUEUED || b->state == BACKUP_FINALIZING);
    return brief ? choose_backup(b, arg) : 0;
}

/* What a restore passes in one turn would hardly ever be met by these. */
static void play_in_brief_state(void)
{
    const struct backup_filter live = {.live = true};
    struct choose x = {.kind = KIND_NONE};
    backup_each(m.records, &live, choose_brief, &x, NULL);
    if (!x.id[0])
        return;
    switch (pick(4)) {
    case 0:
        sweep();
        break;
    case 1:
        cancel_backup(x.id);
        break;
    case 2:
        restart(one_in(4));
        break;
    }
}

/* One event, chosen by a word. */
static void play(uint64_t word)
{
    m.rng = word;
    const unsigned what = pick(100);
    events_played++;
    if (what < 34 && m.n_works)
        for (unsigned n = 1 + pick(3); n && m.n_works; n--)
            end_work(pick(m.n_works), one_in(8) ? 1 + pick(3) : 0, false);
    else if (what < 56)
        for (unsigned n = 1 + pick(2); n; n--)
            play_mover();
    else if (what < 66)
        to_next_wake();
    else if (what < 68)
        m.now += (int64_t)pick(7200) * NS_PER_S;
    else if (what < 69)
        m.now -= (int64_t)pick(600) * NS_PER_S; /* the clock is set back */
    else if (what < 75)
        pick(2) ? submit_in_parts() : submit_backup();
    else if (what < 79)
        submit_restore();
    else if (what < 84)
        play_cancel();
    else if (what < 86)
        play_delete();
    else if (what < 87)
        play_hold();
    else if (what < 88)
        restart(!pick(3));
    else if (what < 90)
        sweep();
    else if (what < 91)
        reload(pick(3));
    else if (what < 93) {
        m.repo_up = !m.repo_up || pick(3); /* it is away for some time, not for half of it */
        set_repository();
        queue_mark_down(&m.d);
    } else if (what < 95)
        m.fail_commit = true;
    else if (what < 97)
        play_admin();
    else if (what < 98)
        play_retry();
    else if (what < 99)
        sweep();
    else
        play_vanish();
    play_in_brief_state();
    if (one_in(10))
        sweep_kept(one_in(4));
    turn();
    if (pick(2))
        turn();
    if (!requests_wait(&m.d))
        rules_of_parts();
    if (one_in(8))
        rule_of_queue();
}

/* ---- rest ---- */

static int cancel_live(const struct operation *op, void *arg)
{
    (void)arg;
    if (op->kind != KIND_DELETE)
        cancel_operation(op->id);
    return 0;
}

static int cancel_live_backup(const struct backup *b, void *arg)
{
    (void)arg;
    cancel_backup(b->id);
    return 0;
}

struct left {
    unsigned n;
    char text[400];
};
static int note_left(const struct operation *op, void *arg)
{
    struct left *x = arg;
    if (!x->n++)
        snprintf(x->text, sizeof x->text, "%s is %s%s (%s)", op->id, op_state_name(op->state),
                 op->cancel ? " and was canceled" : "", op->waiting);
    return 0;
}
static int note_left_backup(const struct backup *b, void *arg)
{
    struct left *x = arg;
    if (b->state != BACKUP_DELETING && !x->n++)
        snprintf(x->text, sizeof x->text, "%s is %s", b->id, backup_state_name(b->state));
    return 0;
}
static int note_left_intent(struct intent *i, void *arg)
{
    struct left *x = arg;
    if (!x->n++)
        snprintf(x->text, sizeof x->text, "%s has an intent for %s %s", i->owner, i->kind, i->name);
    return 0;
}

static struct left what_is_left(void)
{
    const struct operation_filter live = {.live = true};
    const struct backup_filter backups = {.live = true};
    struct left x = {.n = 0};
    operation_each(m.records, &live, note_left, &x, NULL);
    backup_each(m.records, &backups, note_left_backup, &x, NULL);
    return x;
}

static void need_empty(const json_t *set, const char *rule, const char *what)
{
    const char *key = json_object_iter_key(json_object_iter((json_t *)(uintptr_t)set));
    if (key)
        violated(rule, "%s %s is left", what, key);
}

struct per_volume {
    unsigned retained[VOLUMES], limit[VOLUMES];
    unsigned parents[VOLUMES];
    bool odd[VOLUMES]; /* something of it failed, is held or is pruned later: the limit may be exceeded */
    /* A restore has read one, which was in use when others were pruned; or a backup was canceled when it was moved:
     * then the repository is not waited for. The next backup prunes it. */
    bool used[VOLUMES];
};
static int note_used(const struct operation *op, void *arg)
{
    struct per_volume *x = arg;
    if (op->kind == KIND_RESTORE ? op->from == FROM_NATIVE : op->kind == KIND_BACKUP && op->cancel)
        x->used[(unsigned)(op->volume_id[1] - '0') % VOLUMES] = true;
    return 0;
}
static int count_retained(const struct native_row *n, void *arg)
{
    struct per_volume *x = arg;
    const unsigned v = (unsigned)(n->volume_id[1] - '0') % VOLUMES;
    if (!json_object_get(m.natives, n->id) && n->state == NATIVE_PRESENT)
        violated("RS-26", "native snapshot %s is recorded as present and is not there", n->id);
    x->retained[v] += n->state == NATIVE_PRESENT && n->moved && !n->hold.held;
    x->parents[v] += (n->state == NATIVE_PRESENT || native_row_is_bookmark(n)) && n->cbt_parent && !n->expired;
    x->odd[v] |= n->state == NATIVE_REMOVING || n->hold.held || !n->moved_verified || n->failed;
    if ((unsigned)n->effective_retain > x->limit[v])
        x->limit[v] = (unsigned)n->effective_retain;
    return 0;
}

static int count_kept(const struct native_row *n, void *arg)
{
    (void)arg;
    kept_played += n->kept.there;
    return 0;
}

/* Everything ends by itself once nothing fails any more, canceled or not. */
static void come_to_rest(bool cancel)
{
    const struct operation_filter live = {.live = true};
    const struct backup_filter backups = {.live = true};
    struct left left;
    m.quiet = true;
    m.repo_up = true;
    m.fail_commit = false;
    set_repository();
    if (cancel) {
        backup_each(m.records, &backups, cancel_live_backup, NULL, NULL);
        operation_each(m.records, &live, cancel_live, NULL, NULL);
    }
    if (cfg_daemon(m.cfg[m.cfg_now])->slots == 0)
        m.cfg_now = 0;
    /* A request in parts may have begun nothing yet. */
    for (unsigned i = 0; (left = what_is_left()).n || requests_wait(&m.d); i++) {
        if (i == 600)
            violated(cancel ? "AO-19: cancel always ends" : "AO-41: everything ends", "%s", left.text);
        while (m.n_works)
            end_work(0, 0, false);
        for (unsigned k = 0, n = m.n_movers; k < n; k++)
            play_mover();
        if (i % 3 == 2)
            to_next_wake();
        if (i % 20 == 19) {
            m.now += NS_PER_MIN;
            sweep();
        }
        sweep_kept(false);
        turn();
    }
    if (requests_wait(&m.d))
        violated(rule_parts, "a request still waits");
    rules_of_parts();
    sweep_kept(false);
    /* movers that nobody watches are ended by the sweep for strays, which is not decided here */
    while (m.n_movers) {
        if (m.movers[0].here)
            violated("MS-11", "a mover of %s is left", m.movers[0].id);
        drop_mover(&m.movers[0]);
    }
    if (m.n_works)
        violated("one piece of work for one record", "%s %s is left", work_name(m.works[0].work), m.works[0].id);
    struct left intents = {.n = 0};
    records_intents(m.records, NULL, note_left_intent, &intents, NULL);
    if (intents.n)
        violated("E-04", "%s", intents.text);
    need_empty(m.targets, "E-04: nothing leaks", "target");
    need_empty(m.frozen, "CF-48: the post-snapshot hook always runs", "the frozen state of");
    const char *alias;
    json_t *n;
    json_object_foreach(m.natives, alias, n)
    {
        if (!native_row_peek(m.records, alias) && !was_forced(jstr(n, "operation")) &&
            !json_object_get(m.forced, alias)) /* a later sweep finds that */
            violated("E-04: nothing leaks", "no record knows native snapshot %s of %s", alias, jstr(n, "operation"));
    }
    json_object_foreach(m.bookmarks, alias, n)
    {
        const struct native_row *row = native_row_peek(m.records, alias);
        if (!(row && row->bookmark) && !json_object_get(m.forced, alias))
            violated("E-04: nothing leaks", "no record knows the bookmark of native snapshot %s", alias);
    }
    struct per_volume x = {.limit = {0}};
    native_row_each(m.records, NULL, count_retained, &x, NULL);
    operation_each(m.records, NULL, note_used, &x, NULL);
    for (unsigned v = 0; v < VOLUMES; v++)
        if (!x.odd[v] && x.retained[v] > x.limit[v] + 1 + x.used[v])
            violated("RS-17", "volume %u has %u retained native snapshots, its limit was at most %u", v, x.retained[v],
                     x.limit[v]);
    native_row_each(m.records, NULL, count_kept, NULL, NULL);
    for (unsigned v = 0; v < VOLUMES; v++)
        if (x.parents[v] > 1)
            violated("RS-28", "volume %u has %u native snapshots for the next incremental backup", v, x.parents[v]);
    rules_at_rest();
}

/* ---- sequences ---- */

/* Three configurations that a daemon may have, reloaded at any time: with on-restart = resume, and with fail. */
static struct cfg *configurations[2][3];

static void load_configurations(bool fail)
{
    static const char *const daemon_keys[] = {"slots = 2\nprepare-ahead = 3", "slots = 1\nrestore-reserved = 0",
                                              "slots = 3\nper-device = 3"};
    static const char *const limits[] = {"", "", "max-per-class = 1\nmax-per-device = 2\n"};
    /* volumes 0 and 1 are of one group in the last */
    static const char *const groups[] = {"", "",
                                         ("[volume \"/srv/a/0.img\"]\ngroup = g\ngroup-consistency = strict\n"
                                          "[volume \"/srv/b/1.img\"]\ngroup = g\ngroup-consistency = strict\n")};
    char ini[3000];
    struct err e = ERR_INIT;
    for (unsigned i = 0; i < 3; i++) {
        snprintf(
            ini, sizeof ini,
            "[daemon]\nnode-name = n\non-restart = %s\n%s\n[repository \"main\"]\ntype = filesystem\npath = /srv/r\n"
            "password-file = /etc/p\n[copy \"offsite\"]\npath = /srv/copy\n"
            "[storage-class \"a\"]\ndriver = reflink\nmatch = /srv/a/*.img\nsnapshots-to-retain = %u\nprune = before\n"
            "backup-read-only = no\nhook-prepare = /bin/true\nchanged-blocks = no\n%s"
            "[storage-class \"b\"]\ndriver = zfs\nmatch = /srv/b/*.img\nsnapshots-to-retain = 1\n"
            "hook-pre-backup = /bin/true\nhook-pre-snapshot = /bin/true\nhook-post-snapshot = /bin/true\n"
            "keep-on-failure = yes\nkeep-latest = 3\nchanged-blocks = auto\nfull-every = 2h\n"
            "[storage-class \"c\"]\ndriver = reflink\nmatch = /srv/c/*.img\nmove-data = no\nsnapshot-only-keep = 2\n"
            "[storage-class \"d\"]\ndriver = reflink\nmatch = /srv/d/*.img\nsnapshots-to-retain = 0\n"
            "hook-post-backup = /bin/true\nhook-pre-snapshot = /bin/true\nretries = 1\nhook-pre-restore = /bin/true\n"
            "changed-blocks = auto\nbackup-read-only = no\nhook-prepare = /bin/true\nhook-on-error = "
            "continue\nhook-post-restore = "
            "/bin/true\nexpose-keep-on-failure = yes\n%s%s",
            fail ? "fail" : "resume", daemon_keys[i], i, limits[i], limits[i], groups[i]);
        write_text(m.dir, ini);
        if (cfg_load_dir(&configurations[fail][i], m.dir, &e) < 0)
            fail_msg("%s", e.msg);
    }
}

/* Plays the steps of a sequence that `keep` has (NULL: all). Returns whether an invariant was violated. */
static bool play_sequence(uint64_t seed, const bool *keep)
{
    static uint64_t rng; /* longjmp() leaves it as it is */
    rng = seed; /* not a multiple of the generator's own step: that is the sequence of the next seed, shifted */
    rng = splitmix64(&rng);
    const unsigned n = 30 + (unsigned)(splitmix64(&rng) % (STEPS_MAX - 30));
    forget_all();
    m.rng = rng;
    m.seed = seed;
    m.serial = m.aliases = m.stamps = m.moves = 0;
    m.boot = 1;
    m.now = INT64_C(1700000000) * NS_PER_S;
    m.cfg_now = (unsigned)(seed % 3);
    memcpy(m.cfg, configurations[seed % 4 == 0], sizeof m.cfg);
    m.repo_up = true;
    m.quiet = m.fail_commit = m.blamed = false;
    m.meanwhile = play_meanwhile;
    m.between = between_parts;
    m.died = parts_die;
    parts_new();
    odd_state[0] = '\0';
    if (setjmp(violation)) {
        if (m.records) {
            rows_undone = true;
            records_rollback(m.records);
            rows_undone = false;
            m.d.in_turn = m.d.in_flight = false;
            daemon_end(false);
        }
        return true;
    }
    daemon_start();
    for (m.step = 0; m.step < n; m.step++) {
        const uint64_t word = splitmix64(&rng);
        if (!keep || keep[m.step]) {
            trace("step %u", m.step);
            play(word);
        }
    }
    trace("rest");
    come_to_rest(splitmix64(&rng) % 2);
    daemon_end(false);
    sequences_played++;
    return false;
}

/* Leaves steps out as long as the same rule is violated. */
static void shrink(uint64_t seed)
{
    bool keep[STEPS_MAX];
    char rule[1024];
    memset(keep, 1, sizeof keep);
    snprintf(rule, sizeof rule, "%.*s", (int)strcspn(violated_what, ":"), violated_what);
    for (unsigned width = 32; width; width /= 2)
        for (unsigned at = 0; at < STEPS_MAX; at += width) {
            bool saved[STEPS_MAX];
            memcpy(saved, keep, sizeof keep);
            memset(keep + at, 0, at + width > STEPS_MAX ? STEPS_MAX - at : width);
            if (!play_sequence(seed, keep) || strncmp(rule, violated_what, strlen(rule)) != 0)
                memcpy(keep, saved, sizeof keep);
        }
    m.trace = true;
    play_sequence(seed, keep);
    m.trace = false;
    printf("# %s\n# again: MODEL_SEED=%llu MODEL_SEQUENCES=1 MODEL_STEPS=", violated_what, (unsigned long long)seed);
    for (unsigned i = 0, more = 0; i < STEPS_MAX; i++)
        if (keep[i])
            printf("%s%u", more++ ? "," : "", i);
    printf(" MODEL_TRACE=1\n");
}

static bool steps_asked(bool keep[STEPS_MAX])
{
    const char *s = getenv("MODEL_STEPS");
    memset(keep, 0, STEPS_MAX);
    while (s && *s) {
        unsigned long n = strtoul(s, (char **)&s, 10);
        if (n < STEPS_MAX)
            keep[n] = true;
        s += *s == ',';
    }
    return getenv("MODEL_STEPS") != NULL;
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *s = getenv(name);
    return s ? strtoull(s, NULL, 10) : otherwise;
}

static void sequences_keep_the_invariants(void **state)
{
    const uint64_t sequences = number("MODEL_SEQUENCES", 0), first = number("MODEL_SEED", 1);
    const double end = seconds_now() + (double)number("MODEL_SECONDS", 30);
    bool keep[STEPS_MAX];
    const bool only = steps_asked(keep);
    (void)state;
    m.trace = number("MODEL_TRACE", 0) != 0;
    for (uint64_t i = 0; sequences ? i < sequences : seconds_now() < end; i++) {
        if (!play_sequence(first + i, only ? keep : NULL))
            continue;
        printf("# seed %llu, step %u: %s\n", (unsigned long long)(first + i), m.step, violated_what);
        if (!only)
            shrink(first + i);
        fail_msg("%s", violated_what);
    }
    printf("# %llu sequences, %.1f events each, %llu retries, %llu kept for inspection, %llu lists by a bookmark\n",
           (unsigned long long)sequences_played,
           (double)events_played / (double)(sequences_played ? sequences_played : 1),
           (unsigned long long)retries_played, (unsigned long long)kept_played, (unsigned long long)bookmarks_used);
    printf("# %llu requests in parts recorded, %llu refused, %llu pauses\n", (unsigned long long)asked.accepted,
           (unsigned long long)asked.refused, (unsigned long long)asked.pauses);
    if (sequences_played >= 500) {
        assert_true(events_played >= 40 * sequences_played);
        assert_true(retries_played > 0 && kept_played > 0 && queued_reasons > 0);
        assert_true(bookmarks_used > 0 || sequences_played < 3000);
        assert_true(asked.accepted > 0 && asked.refused > 0 && asked.pauses > 0);
    }
}

/* ---- cells ---- */

static void every_cell_is_reached(void **state)
{
    struct judge j = {.least = number("MODEL_CELLS", number("MODEL_SEQUENCES", 0) ? 100 : 1),
                      .show = number("MODEL_SHOW", 0),
                      .judges = sequences_played >= 20000};
    (void)state;
    if (!j.judges && !j.show)
        printf("# %llu sequences are too few to judge the cells\n", (unsigned long long)sequences_played);
    judge_all(&j);
    assert_int_equal(j.poor, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sequences_keep_the_invariants),
                                       cmocka_unit_test(every_cell_is_reached)};
    char command[128];
    m.ids = (struct ids){.stamp = model_stamp, .alias = model_alias};
    records_clock = model_clock;
    records_volatile = true;
    m.now = INT64_C(1700000000) * NS_PER_S;
    /* Nothing here has to survive a power cut: in memory where the machine has room for that. */
    snprintf(m.dir, sizeof m.dir, "%s/snapferry-model.XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(m.dir))
        return 1;
    load_configurations(false);
    load_configurations(true);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    sets_new();
    for (unsigned i = 0; i < 6; i++)
        cfg_free(configurations[i / 3][i % 3]);
    snprintf(command, sizeof command, "rm -rf %s", m.dir);
    return system(command) || failed;
}
