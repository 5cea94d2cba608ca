/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Commits in a thread: reading goes on, writing waits, and what fails is undone (MS-21, MS-62). */
#include "tests/unit/records.h"

#include "base/json.h"
#include "base/time.h"
#include "tests/unit/faulty_vfs.h"

#include <poll.h>

#define FINISHED 40
#define LIVE 40

static bool readable(struct records *r, int ms)
{
    struct pollfd p = {.fd = records_commit_fd(r), .events = POLLIN};
    return poll(&p, 1, ms) == 1;
}

static void fail_with(int code)
{
    faults.code = code;
    faults.after = 0;
    faults.count = 1;
}

/* old-0 ... are finished, op-0 ... are not. */
static struct records *filled(void)
{
    struct err e = ERR_INIT;
    struct records *r = fresh();
    assert_ok(records_begin(r, &e), &e);
    for (int i = 0; i < FINISHED + LIVE; i++) {
        char id[24];
        snprintf(id, sizeof id, i < FINISHED ? "old-%d" : "op-%d", i < FINISHED ? i : i - FINISHED);
        CLEANUP(operation_clear)
        struct operation op = make_operation(id, i < FINISHED ? OP_COMPLETED : OP_RUNNING, NULL);
        str_set(&op.parent, i % 2 ? "odd" : "even");
        assert_ok(operation_add(r, &op, &e), &e);
    }
    assert_ok(records_commit(r, &e), &e);
    return r;
}

static void become(struct records *r, const char *id, enum op_state state, int64_t attempt)
{
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    struct err e = ERR_INIT;
    assert_ok(operation_get(r, id, &op, &e), &e);
    op.state = state;
    op.attempt = attempt;
    assert_ok(operation_save(r, &op, &e), &e);
}

static void add(struct records *r, const char *id, enum op_state state)
{
    struct err e = ERR_INIT;
    CLEANUP(operation_clear) struct operation op = make_operation(id, state, NULL);
    str_set(&op.parent, "new");
    assert_ok(operation_add(r, &op, &e), &e);
}

/* One transaction with a change of each sort. */
static void change(struct records *r)
{
    struct err e = ERR_INIT;
    assert_ok(records_begin(r, &e), &e);
    become(r, "op-0", OP_EXPOSING, 7);
    become(r, "op-1", OP_COMPLETED, 8);
    become(r, "old-0", OP_COMPLETED, 9);
    add(r, "new-live", OP_QUEUED);
    add(r, "new-done", OP_FAILED);
    assert_ok(operation_delete(r, "op-2", &e), &e);
    assert_ok(operation_delete(r, "old-1", &e), &e);
    assert_ok(operation_delete(r, "old-2", &e), &e);
    add(r, "old-2", OP_CANCELED);
    assert_ok(records_intent_add(r, "op-0", "native", "n", NULL, NULL, &e), &e);
    assert_ok(records_counter_add(r, "changes", NULL, 1, &e), &e);
}

static int64_t attempt_of(struct records *r, const char *id)
{
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    struct err e = ERR_INIT;
    assert_ok(operation_get(r, id, &op, &e), &e);
    assert_string_equal(op.id, id);
    return op.attempt;
}

static bool is_there(struct records *r, const char *id)
{
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    return operation_get(r, id, &op, NULL) == 0;
}

static int count_row(const struct operation *op, void *arg)
{
    assert_true(op->id[0] && op->seq);
    ++*(uint64_t *)arg;
    return 0;
}

static void check_count(struct records *r, struct operation_filter f, uint64_t want)
{
    struct err e = ERR_INIT;
    uint64_t n = 0;
    assert_ok(operation_each(r, &f, count_row, &n, &e), &e);
    assert_int_equal(n, want);
    assert_int_equal(count_operation(r, &f), want);
}

static int count_intent(struct intent *i, void *arg)
{
    (void)i;
    ++*(unsigned *)arg;
    return 0;
}

/* All that there is after change(), or before. */
static void check_rows(struct records *r, bool changed)
{
    struct err e = ERR_INIT;
    unsigned intents = 0;
    assert_int_equal(operation_peek(r, "op-0")->attempt, changed ? 7 : 0);
    assert_int_equal(operation_peek(r, "op-1") != NULL, !changed);
    assert_int_equal(attempt_of(r, "op-1"), changed ? 8 : 0);
    assert_int_equal(attempt_of(r, "old-0"), changed ? 9 : 0);
    assert_int_equal(attempt_of(r, "old-3"), 0);
    assert_int_equal(is_there(r, "new-live"), changed);
    assert_int_equal(is_there(r, "new-done"), changed);
    assert_int_equal(is_there(r, "op-2"), !changed);
    assert_int_equal(is_there(r, "old-1"), !changed);
    assert_true(is_there(r, "old-2"));
    assert_ok(records_intents(r, "op-0", count_intent, &intents, &e), &e);
    assert_int_equal(intents, changed);
    check_count(r, (struct operation_filter){.parent = NULL}, FINISHED + LIVE);
    check_count(r, (struct operation_filter){.live = true}, changed ? LIVE - 1 : LIVE);
    check_count(r, (struct operation_filter){.parent = "new"}, changed ? 3 : 0);
    check_count(r, (struct operation_filter){.parent = "even", .newest_first = true}, changed ? 38 : 40);
    check_count(r, (struct operation_filter){.state = OP_COMPLETED}, changed ? FINISHED - 1 : FINISHED);
    check_count(r, (struct operation_filter){.state = OP_CANCELED}, changed);
    check_count(r, (struct operation_filter){.limit = 3, .newest_first = true}, 3);
}

/* A disk that takes two seconds for a sync delays what waits for it, and nobody else. */
static void reading_goes_on(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = filled();
    int64_t longest = 0;
    change(r);
    faults.sync_ms = 2000;
    assert_int_equal(records_commit_start(r, &e), 1);
    assert_true(records_committing(r));
    assert_false(readable(r, 0));
    int64_t began = mono_ns();
    check_rows(r, true);
    for (int i = 0; i < 10000; i++) {
        char id[24];
        int64_t t = mono_ns();
        snprintf(id, sizeof id, i % 2 ? "old-%d" : "op-%d", 3 + i % (FINISHED - 3));
        if (i % 2 == 0)
            assert_non_null(operation_peek(r, id));
        assert_int_equal(attempt_of(r, id), 0);
        t = mono_ns() - t;
        longest = t > longest ? t : longest;
    }
    check_rows(r, true);
    int64_t took = mono_ns() - began;
    if (took < 1500 * NS_PER_MS)
        assert_false(readable(r, 0));
    assert_true(longest < NS_PER_S);
    print_message("10000 reads beside a commit: %.1f ms, the longest %.2f ms\n", (double)took / 1e6,
                  (double)longest / 1e6);
    assert_true(readable(r, 20000));
    assert_ok(records_commit_end(r, &e), &e);
    faults.sync_ms = 0;
    assert_false(readable(r, 0));
    assert_false(records_committing(r));
    check_rows(r, true);
    assert_int_equal(number(r, "SELECT count(*) FROM operations WHERE id = 'new-done'"), 1);
    records_abandon(r);
    r = open_again();
    check_rows(r, true);
    done(r);
}

struct heard {
    unsigned changes, undone;
};
static void hear(enum row_kind k, const char *id, const void *was, const void *now, void *arg)
{
    struct heard *h = arg;
    (void)k, (void)id;
    const struct row *a = was, *b = now;
    h->changes++;
    h->undone += a && b && b->generation < a->generation;
}

static void what_fails_is_undone(void **state)
{
    (void)state;
    static const struct {
        int code, rc;
        enum err_class cls;
    } t[] = {{SQLITE_FULL, -ENOSPC, ERR_NO_SPACE},
             {SQLITE_IOERR_WRITE, -EIO, ERR_GENERIC},
             {SQLITE_IOERR_FSYNC, -EIO, ERR_GENERIC}};
    for (size_t i = 0; i < 3; i++) {
        struct err e = ERR_INIT, why = ERR_INIT;
        struct heard h = {0};
        struct records *r = filled();
        assert_int_equal(rows_watch(r, hear, &h), 0);
        change(r);
        assert_int_equal(h.changes, 9);
        fail_with(t[i].code);
        assert_int_equal(records_commit_start(r, &e), 1);
        assert_true(readable(r, 20000));
        check_rows(r, true); /* it has failed, which is not known yet */
        assert_int_equal(records_write_errors(r), 0);
        assert_int_equal(records_commit_end(r, &why), t[i].rc);
        assert_int_equal(why.cls, t[i].cls);
        assert_non_null(strstr(why.msg, "records.db"));
        assert_true(records_degraded(r));
        assert_int_equal(records_write_errors(r), 1);
        assert_int_equal(h.changes, 9 + 8);
        assert_int_equal(h.undone, 3);
        check_rows(r, false);
        assert_false(records_committing(r));
        /* The same again. */
        change(r);
        assert_int_equal(records_commit_start(r, &e), 1);
        assert_ok(records_commit_end(r, &e), &e);
        assert_false(records_degraded(r));
        r = reopen(r);
        check_rows(r, true);
        done(r);
    }
}

static void closing_waits(void **state)
{
    (void)state;
    for (int fails = 0; fails < 2; fails++) {
        struct err e = ERR_INIT;
        struct records *r = filled();
        change(r);
        faults.sync_ms = 100;
        if (fails)
            fail_with(SQLITE_FULL);
        assert_int_equal(records_commit_start(r, &e), 1);
        logged = 0;
        records_close(r);
        assert_int_equal(logged, fails);
        faults.sync_ms = 0;
        r = open_again();
        check_rows(r, !fails);
        done(r);
    }
}

static struct records *count_one(struct records *r)
{
    struct err e = ERR_INIT;
    assert_ok(records_counter_add(r, "n", NULL, 1, &e), &e);
    return r;
}

static void writing_waits(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    for (int how = 0; how < 7; how++) {
        struct records *r = filled();
        CLEANUP(operation_clear) struct operation op = make_operation("late", OP_QUEUED, NULL), old = ROW_INIT;
        change(r);
        assert_ok(operation_get(r, "op-0", &old, &e), &e);
        old.attempt = 70;
        faults.sync_ms = 100;
        assert_int_equal(records_commit_start(r, &e), 1);
        if (how == 0)
            assert_ok(operation_add(r, &op, &e), &e);
        else if (how == 1)
            assert_ok(operation_save(r, &old, &e), &e);
        else if (how == 2)
            assert_ok(operation_delete(r, "op-3", &e), &e);
        else if (how == 3)
            assert_ok(records_intent_add(r, "op-9", "native", "n", NULL, NULL, &e), &e);
        else if (how == 4)
            assert_ok(records_flush(count_one(r), &e), &e);
        else if (how == 5)
            assert_ok(records_begin(r, &e), &e);
        else
            assert_ok(records_seq_at_least(r, UINT64_C(1) << 40, &e), &e);
        assert_true(readable(r, 0)); /* the one before was waited for, and its result is still to be taken */
        assert_true(records_committing(r));
        if (how == 5) {
            become(r, "op-5", OP_QUEUED, 5);
            assert_ok(records_commit(r, &e), &e);
        }
        assert_ok(records_commit_end(r, &e), &e);
        assert_int_equal(records_commit_end(r, &e), -EINVAL);
        faults.sync_ms = 0;
        r = reopen(r);
        assert_true(is_there(r, "new-done"));
        assert_int_equal(is_there(r, "late"), how == 0);
        assert_int_equal(attempt_of(r, "op-0"), how == 1 ? 70 : 7);
        assert_int_equal(is_there(r, "op-3"), how != 2);
        assert_int_equal(attempt_of(r, "op-5"), how == 5 ? 5 : 0);
        done(r);
    }
}

/* What can be done later does not wait. */
static void pruning_does_not_wait(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = filled();
    change(r);
    faults.sync_ms = 300;
    assert_int_equal(records_commit_start(r, &e), 1);
    assert_int_equal(prune_all(r, 0, 10, &e), 0);
    assert_true(records_committing(r) && r->commit.running);
    assert_ok(records_commit_end(r, &e), &e);
    faults.sync_ms = 0;
    assert_true(prune_all(r, 0, 10, &e) > 0);
    done(r);
}

/* A row that was read before a commit failed is not written: what it was made from has been undone. */
static void a_row_of_what_was_undone_is_stale(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = filled();
    CLEANUP(operation_clear) struct operation old = ROW_INIT, fresh_one = ROW_INIT;
    change(r);
    assert_ok(operation_get(r, "op-0", &old, &e), &e);
    assert_ok(operation_get(r, "new-live", &fresh_one, &e), &e);
    fail_with(SQLITE_IOERR_FSYNC);
    assert_int_equal(records_commit_start(r, &e), 1);
    assert_int_equal(operation_save(r, &old, &e), -ESTALE);
    assert_int_equal(operation_save(r, &fresh_one, &e), -ENOENT);
    assert_int_equal(records_commit_end(r, &e), -EIO);
    check_rows(r, false);
    done(r);
}

static void where_nothing_is_to_be_written(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = filled();
    assert_int_equal(records_commit_start(r, &e), -EINVAL);
    assert_int_equal(records_commit_end(r, &e), -EINVAL);
    assert_ok(records_begin(r, &e), &e);
    assert_int_equal(records_commit_start(r, &e), 0);
    assert_false(records_committing(r));
    /* An inner level only ends. */
    assert_ok(records_begin(r, &e), &e);
    assert_ok(records_begin(r, &e), &e);
    become(r, "op-0", OP_QUEUED, 1);
    assert_int_equal(records_commit_start(r, &e), 0);
    assert_false(records_committing(r));
    records_rollback(r);
    assert_int_equal(attempt_of(r, "op-0"), 0);
    /* One that was undone inside. */
    assert_ok(records_begin(r, &e), &e);
    assert_ok(records_begin(r, &e), &e);
    records_rollback(r);
    assert_int_equal(records_commit_start(r, &e), -ECANCELED);
    /* Two without the result of the first. */
    change(r);
    assert_int_equal(records_commit_start(r, &e), 1);
    assert_ok(records_begin(r, &e), &e);
    become(r, "op-5", OP_QUEUED, 1);
    assert_int_equal(records_commit_start(r, &e), -EBUSY);
    assert_int_equal(attempt_of(r, "op-5"), 0);
    assert_ok(records_commit_end(r, &e), &e);
    check_rows(r, true);
    done(r);
}

static double value(struct records *r, const char *name)
{
    double v = -1;
    records_counter_get(r, name, NULL, &v);
    return v;
}

static double value_on_disk(struct records *r, const char *name)
{
    char sql[100];
    snprintf(sql, sizeof sql, "SELECT coalesce(sum(value), -1) FROM counters WHERE name='%s'", name);
    return (double)number(r, sql);
}

static void count(struct records *r, const char *name, double n)
{
    struct err e = ERR_INIT;
    assert_ok(records_counter_add(r, name, NULL, n, &e), &e);
}

/* What was held for a commit is counted with it or not at all, whatever is counted meanwhile. */
static void counting_goes_on(void **state)
{
    (void)state;
    for (int fails = 0; fails < 2; fails++) {
        struct err e = ERR_INIT;
        struct records *r = filled();
        count(r, "held", 100);
        count(r, "both", 100);
        assert_ok(records_counter_set(r, "gauge", NULL, 5, &e), &e);
        assert_ok(records_flush(r, &e), &e);
        records_counters_hold(r);
        count(r, "held", 1);
        count(r, "both", 1);
        count(r, "fresh", 1);
        assert_ok(records_counter_set(r, "gauge", NULL, 6, &e), &e);
        records_counters_settle(r); /* not of this one: it has no commit */
        assert_true(value(r, "held") == 100 && value(r, "gauge") == 5);
        records_counters_hold(r);
        count(r, "held", 1);
        count(r, "both", 1);
        count(r, "fresh", 1);
        count(r, "removed", 1);
        assert_ok(records_counter_set(r, "gauge", NULL, 6, &e), &e);
        assert_ok(records_begin(r, &e), &e);
        become(r, "op-0", OP_QUEUED, 1);
        faults.sync_ms = 50;
        if (fails)
            fail_with(SQLITE_FULL);
        assert_int_equal(records_commit_start(r, &e), 1);
        records_counters_settle(r);
        assert_true(value(r, "held") == 101 && value(r, "both") == 101 && value(r, "fresh") == 1);
        /* Meanwhile. */
        count(r, "both", 10);
        count(r, "plain", 10);
        assert_ok(records_counter_set(r, "gauge", NULL, 7, &e), &e);
        assert_ok(records_counter_remove(r, "removed", NULL, &e), &e);
        records_counters_hold(r); /* for a commit that does not come */
        count(r, "both", 1000);
        assert_ok(records_counter_set(r, "gauge", NULL, 8, &e), &e);
        assert_int_equal(records_commit_end(r, &e), fails ? -ENOSPC : 0);
        faults.sync_ms = 0;
        assert_true(value(r, "both") == (fails ? 1110 : 1111));
        records_counters_settle(r);
        assert_true(value(r, "held") == (fails ? 100 : 101));
        assert_true(value(r, "both") == (fails ? 110 : 111));
        assert_true(value(r, "fresh") == (fails ? 0 : 1));
        assert_true(value(r, "gauge") == 7);
        assert_true(value(r, "plain") == 10);
        assert_true(value(r, "removed") == -1);
        assert_true(value_on_disk(r, "held") == (fails ? 100 : 101));
        assert_true(value_on_disk(r, "both") == (fails ? 100 : 101)); /* what came later is for the next one */
        assert_true(value_on_disk(r, "plain") == -1);
        become(r, "op-0", OP_RUNNING, 2);
        assert_true(value_on_disk(r, "held") == (fails ? 100 : 101));
        assert_true(value_on_disk(r, "both") == (fails ? 110 : 111));
        assert_true(value_on_disk(r, "gauge") == 7 && value_on_disk(r, "plain") == 10);
        assert_true(value_on_disk(r, "removed") == -1);
        done(r);
    }
}

/* The hold is still open when its commit fails: what it has counted goes with the next one. */
static void a_hold_outlives_its_commit(void **state)
{
    (void)state;
    for (int again = 0; again < 2; again++) {
        struct err e = ERR_INIT;
        struct records *r = filled();
        records_counters_hold(r);
        count(r, "held", 1);
        assert_ok(records_begin(r, &e), &e);
        become(r, "op-0", OP_QUEUED, 1);
        fail_with(SQLITE_FULL);
        assert_int_equal(records_commit_start(r, &e), 1);
        count(r, "held", 1);
        assert_int_equal(records_commit_end(r, &e), -ENOSPC);
        assert_true(value(r, "held") == 2);
        if (again)
            become(r, "op-0", OP_QUEUED, 1);
        records_counters_settle(r);
        assert_true(value(r, "held") == (again ? 2 : 0));
        done(r);
    }
}

/* Counters alone are a commit, too; more of them wait for the next one and not for the disk. */
static void a_commit_of_counters(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = filled();
    count(r, "a", 1);
    assert_ok(records_begin(r, &e), &e);
    faults.sync_ms = 200;
    assert_int_equal(records_commit_start(r, &e), 1);
    int64_t began = mono_ns();
    count(r, "a", 1);
    count(r, "b", 1);
    bool waited = mono_ns() - began > 150 * NS_PER_MS && !readable(r, 0);
    assert_false(waited);
    assert_true(records_committing(r));
    assert_ok(records_commit_end(r, &e), &e);
    faults.sync_ms = 0;
    assert_true(value_on_disk(r, "a") == 1);
    r = reopen(r);
    assert_true(value(r, "a") == 2 && value(r, "b") == 1);
    done(r);
}

/* Damage that is met while a commit is under way: the database is replaced when that has ended. */
static void damage_meanwhile(void **state)
{
    (void)state;
    for (int fails = 0; fails < 2; fails++) {
        struct err e = ERR_INIT;
        struct records *r = filled();
        CLEANUP(operation_clear) struct operation op = ROW_INIT;
        change(r);
        faults.sync_ms = 50;
        if (fails)
            fail_with(SQLITE_IOERR_WRITE);
        assert_int_equal(records_commit_start(r, &e), 1);
        r->noted.corrupt = true;
        assert_ok(operation_get(r, "op-0", &op, &e), &e);
        faults.sync_ms = 0;
        assert_int_equal(op.attempt, fails ? 0 : 7);
        assert_int_equal(records_recoveries(r), 1);
        assert_int_equal(records_commit_end(r, &e), fails ? -EIO : 0);
        assert_false(is_there(r, "old-3")); /* what is not in memory is found again elsewhere */
        r = reopen(r);
        assert_int_equal(attempt_of(r, "op-0"), fails ? 0 : 7);
        check_count(r, (struct operation_filter){.live = true}, fails ? LIVE : LIVE - 1);
        done(r);
    }
}

/* The thread itself meets damage. */
static void damage_in_the_commit(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = filled();
    change(r);
    fail_with(SQLITE_CORRUPT);
    assert_int_equal(records_commit_start(r, &e), 1);
    assert_int_equal(records_commit_end(r, &e), -EBADMSG);
    assert_int_equal(records_recoveries(r), 0);
    assert_int_equal(attempt_of(r, "op-0"), 0);
    assert_int_equal(records_recoveries(r), 1);
    add(r, "late", OP_QUEUED);
    r = reopen(r);
    check_count(r, (struct operation_filter){.live = true}, LIVE + 1);
    done(r);
}

/* A row that cannot be used is met while the disk is busy: it is set aside the next time. */
static void a_row_that_cannot_be_used_meanwhile(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = reopen(filled()); /* finished ones are read from the disk, not from memory */
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    exec(r, "UPDATE operations SET doc = '[]' WHERE id = 'old-7'");
    change(r);
    faults.sync_ms = 50;
    assert_int_equal(records_commit_start(r, &e), 1);
    uint64_t n = 0;
    assert_int_equal(operation_get(r, "old-7", &op, &e), -EBADMSG);
    assert_ok(operation_each(r, NULL, count_row, &n, &e), &e);
    assert_int_equal(n, FINISHED + LIVE - 1);
    assert_int_equal(r->set_aside, 0);
    assert_ok(records_commit_end(r, &e), &e);
    faults.sync_ms = 0;
    assert_int_equal(operation_get(r, "old-7", &op, &e), -EBADMSG);
    assert_int_equal(r->set_aside, 1);
    assert_int_equal(number(r, "SELECT count(*) FROM set_aside"), 1);
    assert_int_equal(operation_get(r, "old-7", &op, &e), -ENOENT);
    done(r);
}

/* ---- savepoints ---- */

struct picture {
    char text[65536];
    size_t n;
};

static int put_operation(const struct operation *op, void *arg)
{
    struct picture *p = arg;
    p->n += (size_t)snprintf(p->text + p->n, sizeof p->text - p->n, "%s %llu.%llu %s %s %lld\n", op->id,
                             (unsigned long long)op->seq, (unsigned long long)op->generation, op->parent,
                             op_state_name(op->state), (long long)op->attempt);
    return 0;
}

static int put_intent(struct intent *i, void *arg)
{
    struct picture *p = arg;
    CLEANUP_FREE char *doc = json_dumps(i->doc, JSON_COMPACT);
    p->n += (size_t)snprintf(p->text + p->n, sizeof p->text - p->n, "%llu %s %s\n", (unsigned long long)i->id, i->owner,
                             doc);
    return 0;
}

static struct picture *picture_of(struct records *r)
{
    static struct picture kept[3];
    static unsigned which;
    struct picture *p = &kept[which++ % 3];
    struct err e = ERR_INIT;
    double counted = 0;
    p->n = 0;
    assert_ok(operation_each(r, NULL, put_operation, p, &e), &e);
    assert_ok(records_intents(r, NULL, put_intent, p, &e), &e);
    for (int parent = 0; parent < 2; parent++) {
        const struct operation_filter f = {.parent = parent ? "new" : "even"};
        p->n += (size_t)snprintf(p->text + p->n, sizeof p->text - p->n, "%llu\n",
                                 (unsigned long long)count_operation(r, &f));
    }
    records_counter_get(r, "changes", NULL, &counted);
    p->n += (size_t)snprintf(p->text + p->n, sizeof p->text - p->n, "%g\n", counted);
    assert_true(p->n < sizeof p->text);
    return p;
}

static void check_same(const struct picture *is, const struct picture *should)
{
    size_t at = 0;
    while (is->text[at] && is->text[at] == should->text[at])
        at++;
    while (at && is->text[at - 1] != '\n')
        at--;
    if (strcmp(is->text, should->text) != 0)
        fail_msg("\"%.60s\", not \"%.60s\"", is->text + at, should->text + at);
}

/* What a watcher knows: generations of the rows, by what it was told. */
static struct {
    char id[200][16];
    uint64_t generation[200];
    unsigned n;
} told;

static void tell(enum row_kind k, const char *id, const void *was, const void *now, void *arg)
{
    unsigned i = 0;
    (void)k, (void)was, (void)arg;
    while (i < told.n && strcmp(told.id[i], id) != 0)
        i++;
    assert_true(i < 200);
    if (i == told.n)
        snprintf(told.id[told.n++], sizeof told.id[0], "%s", id);
    told.generation[i] = now ? ((const struct operation *)now)->generation : 0;
}

static void check_told(struct records *r)
{
    for (unsigned i = 0; i < told.n; i++) {
        CLEANUP(operation_clear) struct operation op = ROW_INIT;
        const bool there = operation_get(r, told.id[i], &op, NULL) == 0;
        assert_int_equal(told.generation[i], there ? op.generation : 0);
    }
}

static void change_at_random(struct records *r, uint64_t *rng, uint64_t *intents, unsigned *n_intents)
{
    struct err e = ERR_INIT;
    char id[16];
    const unsigned what = (unsigned)(splitmix64(rng) % 8), which = (unsigned)(splitmix64(rng) % 12);
    snprintf(id, sizeof id, "%s-%u", which % 3 == 0 ? "old" : which % 3 == 1 ? "op" : "x", which / 3);
    if (what < 3) {
        if (is_there(r, id)) {
            CLEANUP(operation_clear) struct operation op = ROW_INIT;
            assert_ok(operation_get(r, id, &op, &e), &e);
            if (!op_state_terminal(op.state) && splitmix64(rng) % 6 == 0)
                op.state = OP_FAILED;
            op.attempt++;
            assert_ok(operation_save(r, &op, &e), &e);
        } else {
            add(r, id, splitmix64(rng) % 2 ? OP_QUEUED : OP_CANCELED);
        }
    } else if (what == 3 && is_there(r, id)) {
        assert_ok(operation_delete(r, id, &e), &e);
    } else if (what == 4 && *n_intents < 32) {
        assert_ok(records_intent_add(r, id, "native", "n", NULL, &intents[*n_intents], &e), &e);
        ++*n_intents;
    } else if (what == 5 && *n_intents) {
        const uint64_t at = intents[splitmix64(rng) % *n_intents];
        records_intent_update(r, at, json_pack("{s:I}", "n", (json_int_t)(splitmix64(rng) % 100)), NULL);
    } else if (what == 6 && *n_intents) {
        records_intent_resolve(r, intents[splitmix64(rng) % *n_intents], NULL);
    } else {
        assert_ok(records_counter_add(r, "changes", NULL, 1, &e), &e);
    }
}

/* What was made since a savepoint is undone, and nothing else; what stays reaches the disk. */
static void savepoints(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    unsigned undone = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct records *r = filled();
        uint64_t rng = seed, intents[32];
        unsigned n = 0;
        told.n = 0;
        assert_int_equal(rows_watch(r, tell, NULL), 0);
        const struct picture first = *picture_of(r);
        assert_ok(records_begin(r, &e), &e);
        records_counters_hold(r);
        for (unsigned part = 0; part < 6; part++) {
            const struct picture *before = picture_of(r);
            const unsigned n_before = n;
            records_savepoint(r);
            for (unsigned i = 0; i < 6; i++)
                change_at_random(r, &rng, intents, &n);
            if (splitmix64(&rng) % 2) {
                records_savepoint_undo(r);
                check_same(picture_of(r), before);
                n = n_before;
                undone++;
            } else {
                records_savepoint_keep(r);
            }
            check_told(r);
        }
        const struct picture last = *picture_of(r);
        const bool fails = seed % 3 == 0;
        if (fails)
            fail_with(SQLITE_IOERR_FSYNC);
        const int rc = records_commit(r, &e);
        records_counters_settle(r);
        faults.count = 0;
        assert_true(fails ? rc < 0 || strcmp(first.text, last.text) == 0 : rc == 0);
        check_same(picture_of(r), rc < 0 ? &first : &last);
        check_told(r);
        r = reopen(r);
        check_same(picture_of(r), rc < 0 ? &first : &last);
        done(r);
    }
    assert_true(undone > 500);
}

/* All of a transaction may be undone within a savepoint. */
static void a_savepoint_of_what_was_undone(void **state)
{
    (void)state;
    struct records *r = filled();
    change(r);
    records_savepoint(r);
    become(r, "op-0", OP_RUNNING, 70);
    become(r, "op-5", OP_RUNNING, 5);
    records_rollback(r);
    records_savepoint_undo(r);
    check_rows(r, false);
    assert_int_equal(attempt_of(r, "op-5"), 0);
    done(r);
}

struct first {
    unsigned n;
    bool beside, fails;
    pthread_t caller;
};
static int do_first(void *arg, struct err *e)
{
    struct first *x = arg;
    x->n++;
    x->beside = !pthread_equal(pthread_self(), x->caller);
    return x->fails ? err_set(e, ERR_GENERIC, EIO, "what comes first fails") : 0;
}

/* What has to be durable before a commit is done once, in its thread; if it fails, so does the commit. */
static void what_comes_first(void **state)
{
    struct first x = {.caller = pthread_self()};
    struct err e = ERR_INIT;
    (void)state;
    struct records *r = filled();
    records_commit_before(r, do_first, &x);
    assert_ok(records_begin(r, &e), &e);
    assert_int_equal(records_commit_start(r, &e), 0); /* nothing is written */
    assert_int_equal(x.n, 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_ok(records_begin(r, &e), &e);
        become(r, "op-1", OP_RUNNING, 5 + i);
        assert_int_equal(records_commit_start(r, &e), 1);
        assert_ok(records_commit_end(r, &e), &e);
        assert_int_equal(x.n, 1);
        assert_true(x.beside);
    }
    x.fails = true;
    records_commit_before(r, do_first, &x);
    assert_ok(records_begin(r, &e), &e);
    become(r, "op-1", OP_RUNNING, 9);
    assert_int_equal(records_commit_start(r, &e), 1);
    assert_int_equal(records_commit_end(r, &e), -EIO);
    assert_string_equal(e.msg, "what comes first fails: Input/output error");
    assert_int_equal(operation_peek(r, "op-1")->attempt, 6);
    e = (struct err)ERR_INIT;
    assert_ok(records_begin(r, &e), &e);
    become(r, "op-1", OP_RUNNING, 10);
    assert_int_equal(records_commit_start(r, &e), 1);
    assert_ok(records_commit_end(r, &e), &e);
    assert_int_equal(x.n, 2);
    records_close(r);
}

/* A transaction that changes nothing finds out whether anything can be written. */
static void a_probe(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = filled();
    for (int bad = 1; bad >= 0; bad--) {
        if (bad)
            fail_with(SQLITE_FULL);
        assert_ok(records_begin(r, &e), &e);
        records_probe(r);
        assert_int_equal(records_commit_start(r, &e), 1);
        assert_int_equal(records_commit_end(r, &e), bad ? -ENOSPC : 0);
        assert_int_equal(records_degraded(r), bad);
    }
    done(r);
}

static int setup(void **state)
{
    faulty_vfs_install();
    return records_setup(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reading_goes_on),
        cmocka_unit_test(what_fails_is_undone),
        cmocka_unit_test(closing_waits),
        cmocka_unit_test(writing_waits),
        cmocka_unit_test(pruning_does_not_wait),
        cmocka_unit_test(a_row_of_what_was_undone_is_stale),
        cmocka_unit_test(where_nothing_is_to_be_written),
        cmocka_unit_test(counting_goes_on),
        cmocka_unit_test(a_hold_outlives_its_commit),
        cmocka_unit_test(a_commit_of_counters),
        cmocka_unit_test(damage_meanwhile),
        cmocka_unit_test(damage_in_the_commit),
        cmocka_unit_test(a_row_that_cannot_be_used_meanwhile),
        cmocka_unit_test(savepoints),
        cmocka_unit_test(a_savepoint_of_what_was_undone),
        cmocka_unit_test(what_comes_first),
        cmocka_unit_test(a_probe),
    };
    return cmocka_run_group_tests_name("records_commit", tests, setup, records_teardown);
}
