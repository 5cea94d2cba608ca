/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_turn_parts.c - requests that change many rows do so in parts, and clients are served in between (AO-53) */
#include "tests/unit/turn.h"

#include "daemon/protocol/backup-record.h"

struct parts {
    struct fixture *x;
    unsigned n, done, begun, fails_at; /* fails_at: at this part; 0: at none */
    unsigned in_one_go, most;          /* parts of one iteration of the loop, and of the longest */
    uint64_t turn;
    bool ended;
    struct err err;
};

static int write_part(struct decide *d, void *arg, struct err *e)
{
    struct parts *p = arg;
    char alias[64];
    if (!request_goes_on(d)) {
        p->done = 0;
        p->begun++;
        p->turn = d->turn;
    }
    assert_int_equal(records_counter_add(d->records, "inside_total", NULL, 1, NULL), 0);
    assert_int_equal(records_counter_add(d->records, "both_total", NULL, 1, NULL), 0);
    assert_int_equal(d->turn, p->turn);
    p->most = ++p->in_one_go > p->most ? p->in_one_go : p->most;
    snprintf(alias, sizeof alias, "part-%u", p->done);
    add_native(p->x, alias, "b-parts", NATIVE_PRESENT);
    if (++p->done == p->fails_at)
        return err_set(e, ERR_USAGE, 0, "part %u is refused", p->done);
    return p->done < p->n;
}

static void parts_ended(const struct err *e, void *arg)
{
    struct parts *p = arg;
    assert_false(p->ended);
    p->ended = true;
    p->err = *e;
}

static struct parts parts;
static bool parts_are_half_done(struct fixture *x)
{
    (void)x;
    parts.in_one_go = 0;
    return parts.done >= parts.n / 2;
}
static bool parts_are_done(struct fixture *x)
{
    (void)x;
    parts.in_one_go = 0;
    return parts.done == parts.n;
}
static bool parts_have_ended(struct fixture *x)
{
    (void)x;
    parts.in_one_go = 0;
    return parts.ended;
}

static uint64_t parts_in_records(struct fixture *x)
{
    const struct native_row_filter f = {.parent = "b-parts"};
    uint64_t n = 0;
    native_row_count(x->r, &f, &n, NULL);
    return n;
}

static void post_parts(struct fixture *x, unsigned n, unsigned fails_at)
{
    parts = (struct parts){.x = x, .n = n, .fails_at = fails_at};
    engine_request(x->g, write_part, parts_ended, &parts);
}

/* Clients are served between two parts, nothing of it is synced before the last one, and what is asked meanwhile is
 * written behind it. */
static void others_are_served_between_parts(void **state)
{
    struct fixture *x = *state;
    post_parts(x, 40, 0);
    faults.hold = true;
    run_until(x, parts_are_half_done, "half of the parts");
    assert_false(engine_is_writing(x->g));
    CLEANUP_JSON json_t *status = engine_status(x->g);
    assert_non_null(status);
    verify(x);
    run_until(x, parts_are_done, "all parts");
    assert_false(parts.ended);
    run_until(x, is_held, "the sync");
    assert_int_equal(parts.begun, 1);
    assert_int_equal(parts.most, 1);
    assert_false(parts.ended);
    faults.hold = false;
    run_until(x, parts_have_ended, "the end");
    assert_int_equal(parts.err.cls, ERR_NONE);
    assert_int_equal(parts_in_records(x), 40);
    wanted = 1;
    run_until(x, has_answers, "verify");
    assert_int_equal(got.failed, 0);
}

/* One that is refused in the middle has changed nothing. */
static void a_part_that_is_refused_undoes_all(void **state)
{
    struct fixture *x = *state;
    post_parts(x, 20, 13);
    verify(x);
    run_until(x, parts_have_ended, "the end");
    assert_int_equal(parts.err.cls, ERR_USAGE);
    assert_int_equal(parts.begun, 1);
    wanted = 1;
    run_until(x, has_answers, "verify");
    assert_int_equal(got.failed, 0);
    assert_int_equal(parts_in_records(x), 0);
}

/* One that cannot be committed begins anew, alone, and is refused; the other one is not. */
static void parts_that_cannot_be_committed(void **state)
{
    struct fixture *x = *state;
    sql(x, "CREATE TRIGGER bad BEFORE INSERT ON natives WHEN NEW.id='part-7' "
           "BEGIN SELECT RAISE(ABORT,'a bad page'); END");
    post_parts(x, 10, 0);
    verify(x);
    wanted = 1;
    run_until(x, has_answers, "verify");
    run_until(x, parts_have_ended, "the end");
    assert_true(parts.begun > 1);
    assert_non_null(strstr(parts.err.msg, "a bad page"));
    assert_int_equal(got.failed, 0);
    assert_int_equal(parts_in_records(x), 0);
}

/* What the engine counts and notes by itself, also between two parts. */
static void count_outside(struct fixture *x)
{
    assert_int_equal(records_counter_add(x->r, "outside_total", NULL, 1, NULL), 0);
    assert_int_equal(records_counter_add(x->r, "both_total", NULL, 100, NULL), 0);
    assert_int_equal(records_counter_set(x->r, "seen", NULL, 7, NULL), 0);
    assert_int_equal(records_counter_remove(x->r, "forgotten", NULL, NULL), 0);
}

static double counted(struct fixture *x, const char *name)
{
    double v = 0;
    return records_counter_get(x->r, name, NULL, &v) ? v : 0;
}

static double counted_on_disk(struct fixture *x, const char *name)
{
    sqlite3_stmt *st;
    assert_int_equal(sqlite3_prepare_v2(x->r->writer.db, "SELECT value FROM counters WHERE name=?1", -1, &st, NULL),
                     SQLITE_OK);
    sqlite3_bind_text(st, 1, name, -1, SQLITE_STATIC);
    const double v = sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_double(st, 0) : 0;
    sqlite3_finalize(st);
    return v;
}

static void check_counted(struct fixture *x, unsigned inside)
{
    struct {
        const char *name;
        double v;
    } const want[] = {
        {"outside_total", 1}, {"both_total", 100 + inside}, {"seen", 7}, {"forgotten", 0}, {"inside_total", inside}};
    wanted = got.n + 1;
    verify(x); /* a commit that takes all */
    run_until(x, has_answers, "verify");
    run_until(x, is_idle, "the commit");
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        if (counted(x, want[i].name) != want[i].v || counted_on_disk(x, want[i].name) != want[i].v)
            fail_msg("%s is %g, %g on disk, and not %g", want[i].name, counted(x, want[i].name),
                     counted_on_disk(x, want[i].name), want[i].v);
    }
}

/* A request that is refused, is undone or cannot be committed takes back what it has counted, and nothing else. */
static void what_is_counted_between_parts_stays(void **state)
{
    struct fixture *x = *state;
    assert_int_equal(records_counter_set(x->r, "forgotten", NULL, 1, NULL), 0);
    post_parts(x, 20, 13);
    run_until(x, parts_are_half_done, "half of the parts");
    assert_true(decide_pauses(&x->g->d));
    count_outside(x);
    run_until(x, parts_have_ended, "the end");
    assert_int_equal(parts.err.cls, ERR_USAGE);
    check_counted(x, 0);
}
static void what_is_counted_between_parts_is_committed(void **state)
{
    struct fixture *x = *state;
    assert_int_equal(records_counter_set(x->r, "forgotten", NULL, 1, NULL), 0);
    post_parts(x, 20, 0);
    run_until(x, parts_are_half_done, "half of the parts");
    count_outside(x);
    run_until(x, parts_have_ended, "the end");
    assert_int_equal(parts.err.cls, ERR_NONE);
    check_counted(x, 20);
}
static void what_is_counted_between_parts_survives_a_commit_that_fails(void **state)
{
    struct fixture *x = *state;
    assert_int_equal(records_counter_set(x->r, "forgotten", NULL, 1, NULL), 0);
    sql(x, "CREATE TRIGGER bad BEFORE INSERT ON natives WHEN NEW.id='part-7' "
           "BEGIN SELECT RAISE(ABORT,'a bad page'); END");
    post_parts(x, 10, 0);
    run_until(x, parts_are_half_done, "half of the parts");
    count_outside(x);
    run_until(x, parts_have_ended, "the end");
    assert_non_null(strstr(parts.err.msg, "a bad page"));
    check_counted(x, 0);
}

static bool detached(struct fixture *x)
{
    parts.done += decide_pauses(&x->g->d);
    return got.n > 0;
}

/* Backups "b-0", ... of `each` finished operations. */
static void add_finished(struct fixture *x, unsigned n, unsigned each)
{
    struct policy policy;
    struct err e = ERR_INIT;
    policy_init(&policy);
    str_set(&policy.repository, "main");
    const struct policy *shared = policy_make(&policy);
    assert_ok(records_begin(x->r, &e), &e);
    for (unsigned i = 0; i < n; i++) {
        CLEANUP(operation_clear) struct operation op = ROW_INIT;
        CLEANUP(backup_clear) struct backup b = ROW_INIT;
        char backup[32];
        snprintf(backup, sizeof backup, "b-%u", i / each);
        if (i % each == 0) {
            backup_init(&b);
            str_set(&b.id, backup);
            b.state = BACKUP_COMPLETED;
            b.outcome = OUTCOME_COMPLETED;
            b.kind = KIND_BACKUP;
            for (unsigned k = 0; k < each; k++) {
                char id[32];
                snprintf(id, sizeof id, "v-%u", k);
                assert_int_equal(strs_add(&b.volume_ids, id), 0);
            }
            assert_ok(backup_add(x->r, &b, &e), &e);
        }
        operation_init(&op);
        str_setf(&op.id, "up-%u", i);
        str_setf(&op.volume_id, "v-%u", i % each);
        str_set(&op.parent, backup);
        op.kind = KIND_BACKUP;
        op.state = OP_COMPLETED;
        op.outcome = OUTCOME_COMPLETED;
        policy_set(&op.policy, shared);
        assert_ok(operation_add(x->r, &op, &e), &e);
    }
    assert_ok(records_commit(x->r, &e), &e);
    policy_unref(shared);
}

/* Finished rows are read, and removed, a part at a time (AO-53). */
static void a_repository_of_many_rows_is_detached_in_parts(void **state)
{
    struct fixture *x = *state;
    const struct operation_filter all = {.live = false};
    struct err e = ERR_INIT;
    uint64_t left = 1;
    add_finished(x, 5 * ENGINE_PART, 2);
    parts = (struct parts){.x = x};
    engine_detach(x->g, &(const struct request_args){.repository = (char[]){"main"}}, on_reply, NULL);
    run_until(x, detached, "detach");
    assert_int_equal(got.failed, 0);
    assert_int_equal(jint(got.last, "backups"), 5 * ENGINE_PART / 2);
    assert_true(parts.done >= 5 + 5 + 2); /* read, operations removed, backups removed */
    assert_ok(operation_count(x->r, &all, &left, &e), &e);
    assert_int_equal(left, 0);
}

/* ---- outcomes of backups ---- */

static void recorder_of(struct operation *op, const char *first, const char *second)
{
    struct policy policy;
    operation_init(op);
    policy_init(&policy);
    str_set(&policy.repository, "main");
    policy_take(&op->policy, policy_make(&policy));
    str_set(&op->id, "record-b-0");
    op->kind = KIND_ADMIN;
    assert_int_equal(strs_add(&op->records, first), 0);
    if (second)
        assert_int_equal(strs_add(&op->records, second), 0);
}

/* How many volumes the records in the file have, in the order of their backup; *n: how many there are. */
static unsigned volumes_recorded(int fd, const char *backup, unsigned *n)
{
    CLEANUP_FREE char *text = calloc(1, 16u << 20);
    unsigned found = 0;
    const ssize_t got_n = pread(fd, text, (16u << 20) - 2, 0);
    assert_true(got_n > 0);
    text[got_n] = '}';
    CLEANUP_JSON json_t *job = json_loads(text, 0, NULL);
    const json_t *records = jarr(json_array_get(jarr(job, "do"), 0), "records"), *r, *v;
    size_t i, k;
    assert_string_equal(jstr(json_array_get(jarr(job, "do"), 0), "verb"), "record");
    *n = (unsigned)json_array_size(records);
    json_array_foreach(records, i, r)
    {
        if (strcmp(jstr(jobj(r, "labels"), "backup"), backup) != 0)
            continue;
        json_array_foreach(jarr(jobj(r, "data"), "volumes"), k, v)
        {
            char id[32];
            snprintf(id, sizeof id, "v-%u", found++);
            assert_string_equal(jstr(v, "volumeID"), id);
        }
    }
    return found;
}

/* The outcome of a backup is made of its finished operations a part at a time, whole and in their order (AO-53). */
static void an_outcome_is_read_in_parts(void **state)
{
    struct fixture *x = *state;
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    struct records_text *t;
    struct err e = ERR_INIT;
    unsigned calls = 0, n;
    int rc;
    add_finished(x, 10 * ENGINE_PART, 5 * ENGINE_PART);
    recorder_of(&op, "b-0", "b-1");
    assert_int_equal(strs_add(&op.records, "b-none"), 0);
    assert_ok(records_text_new(&t, x->g, &op, &e), &e);
    while ((rc = records_text_part(t, &e)) > 0)
        calls++;
    assert_ok(rc, &e);
    assert_true(calls >= 10);
    assert_int_equal(volumes_recorded(records_text_fd(t), "b-0", &n), 5 * ENGINE_PART);
    assert_int_equal(volumes_recorded(records_text_fd(t), "b-1", &n), 5 * ENGINE_PART);
    assert_int_equal(n, 2 * ((5 * ENGINE_PART + RECORD_VOLUMES - 1) / RECORD_VOLUMES));
    records_text_free(t);
}

static bool records_nothing(struct fixture *x)
{
    CLEANUP_JSON json_t *status = engine_status(x->g);
    assert_non_null(status);
    parts.done += x->g->starting != NULL;
    return !x->g->starting;
}

static bool recorder_starts(struct fixture *x)
{
    return x->g->starting != NULL;
}

/* Clients are served while it is read. */
static void others_are_served_while_an_outcome_is_read(void **state)
{
    struct fixture *x = *state;
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    struct err e = ERR_INIT;
    bool transient;
    add_finished(x, 5 * ENGINE_PART, 5 * ENGINE_PART);
    recorder_of(&op, "b-0", NULL);
    parts = (struct parts){.x = x};
    assert_ok(mover_start(x->g, &op, -1, -1, &transient, &e), &e);
    assert_true(recorder_starts(x));
    run_until(x, records_nothing, "the start");
    assert_true(parts.done >= 5);
}

static bool recorder_is_canceled(struct fixture *x)
{
    const struct operation *op = operation_peek(x->r, "record-b-0");
    parts.done += x->g->starting != NULL;
    return !op || op_state_terminal(op->state);
}

/* One that is canceled meanwhile is not read to its end. */
static void a_recorder_is_canceled_while_it_is_read(void **state)
{
    struct fixture *x = *state;
    CLEANUP(operation_clear) struct operation op = ROW_INIT, ended = ROW_INIT;
    struct err e = ERR_INIT;
    const unsigned n = 20;
    char id[512];
    struct repo_health *h = repository_health(&x->g->d, "main");
    add_finished(x, n * ENGINE_PART, n * ENGINE_PART);
    h->known = h->up = true;
    recorder_of(&op, "b-0", NULL);
    assert_ok(admin_add(&x->g->d, KIND_ADMIN, NULL, "main", &op, NULL, id, &e), &e);
    run_until(x, recorder_starts, "the start");
    parts = (struct parts){.x = x};
    cancel(x, id);
    run_until(x, recorder_is_canceled, "the cancel");
    assert_true(parts.done < n);
    assert_null(x->g->starting);
    assert_ok(operation_get(x->r, id, &ended, &e), &e);
    assert_int_equal(ended.state, OP_CANCELED);
}

/* The daemon stops in between: nothing of it is recorded, and who asked is told. */
static void a_stop_between_parts(void **state)
{
    struct fixture *x = *state;
    char text[200];
    post_parts(x, 20, 0);
    run_until(x, parts_are_half_done, "half of the parts");
    assert_int_equal(parts_in_records(x), parts.done);
    engine_stop(x->g, text, sizeof text);
    assert_true(parts.ended);
    assert_int_equal(parts.err.cls, ERR_BUSY);
    assert_int_equal(parts_in_records(x), 0);
}

/* A turn starts a mover, goes on, sees its end of `kind`, and is undone: no attempt of the operation has failed. */
static void end_in_a_turn_that_is_undone(struct fixture *x, enum event_kind kind)
{
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    struct decide *d = &x->g->d;
    struct err e = ERR_INIT;
    char id[512];
    struct repo_health *h = repository_health(d, "main");
    h->known = h->up = true;
    recorder_of(&op, "b-0", NULL);
    assert_ok(admin_add(d, KIND_ADMIN, NULL, "main", &op, NULL, id, &e), &e);
    assert_ok(records_begin(x->r, &e), &e);
    records_counters_hold(x->r);
    decide_turn(d, 10);
    assert_true(decide_may_go_on(d));
    for (size_t i = 0; i < d->plan.n; i++)
        d->plan.acts[i].done |= act_is_early(&d->plan.acts[i]);
    live_get(d, id)->mover = kind == EVENT_ENDED;
    decide_go_on(d);
    struct event *ev = event_new(kind, ROW_OPERATION, id);
    ev->report.outcome = MOVER_NEVER_STARTED;
    err_set(&ev->report.err, ERR_GENERIC, 0, "it has died");
    ev->err = ev->report.err;
    ev->transient = true;
    event_post(d, ev);
    decide_turn(d, 10);
    assert_int_equal(operation_peek(x->r, id)->state, OP_RETRYING);
    records_rollback(x->r);
    records_counters_settle(x->r);
    decide_undone(d);
    assert_int_equal(operation_peek(x->r, id)->state, OP_QUEUED);
    assert_ok(records_begin(x->r, &e), &e);
    decide_turn(d, 10);
    assert_int_equal(operation_peek(x->r, id)->attempt, 0);
    assert_int_not_equal(operation_peek(x->r, id)->state, OP_RETRYING);
    assert_ok(records_commit(x->r, &e), &e);
    for (size_t i = 0; i < d->plan.n; i++)
        if (d->plan.acts[i].kind == ACT_MOVER_FORGET)
            live_get(d, id)->undone = false; /* as act.c does */
    decide_acted(d);
    decide_look_at_all(d);
    assert_ok(records_begin(x->r, &e), &e);
    decide_turn(d, 10);
    assert_int_equal(operation_peek(x->r, id)->state, OP_STARTING); /* it is tried again at once */
    assert_ok(records_commit(x->r, &e), &e);
    decide_acted(d);
}
static void a_mover_ends_in_a_turn_that_is_undone(void **state)
{
    end_in_a_turn_that_is_undone(*state, EVENT_ENDED);
}
static void a_mover_cannot_be_started_in_a_turn_that_is_undone(void **state)
{
    end_in_a_turn_that_is_undone(*state, EVENT_NOT_STARTED);
}

int main(void)
{
    faulty_vfs_install();
    const struct CMUnitTest tests[] = {
        T(others_are_served_between_parts),
        T(a_part_that_is_refused_undoes_all),
        T(parts_that_cannot_be_committed),
        T(what_is_counted_between_parts_stays),
        T(what_is_counted_between_parts_is_committed),
        T(what_is_counted_between_parts_survives_a_commit_that_fails),
        T(a_repository_of_many_rows_is_detached_in_parts),
        T(a_stop_between_parts),
        T(an_outcome_is_read_in_parts),
        T(others_are_served_while_an_outcome_is_read),
        T(a_recorder_is_canceled_while_it_is_read),
        T(a_mover_ends_in_a_turn_that_is_undone),
        T(a_mover_cannot_be_started_in_a_turn_that_is_undone),
    };
    return cmocka_run_group_tests_name("turn_parts", tests, NULL, NULL);
}
