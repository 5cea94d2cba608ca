/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Records: typed rows are added, saved, found, counted and walked (MS-11, MS-62, RS-23). */
#include "tests/unit/records.h"

#include "base/json.h"

static void add_operation(struct records *r, const char *id, const char *parent, enum op_state s)
{
    CLEANUP(operation_clear) struct operation op;
    struct err e = ERR_INIT;
    operation_init(&op);
    str_set(&op.id, id);
    str_set(&op.parent, parent);
    str_set(&op.volume_id, "vol");
    op.state = s;
    op.kind = KIND_BACKUP;
    assert_ok(operation_add(r, &op, &e), &e);
}

static void a_row_is_what_was_written(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    CLEANUP(operation_clear) struct operation op, got, stale;
    operation_init(&op);
    str_set(&op.id, "up-1");
    str_set(&op.parent, "nightly-1");
    str_set(&op.volume_id, "v1");
    op.state = OP_QUEUED;
    op.kind = KIND_BACKUP;
    op.wake_ns = 7;
    str_set(&op.job, "nightly");
    struct policy p;
    policy_init(&p);
    str_set(&p.repository, "main");
    p.retries = 3;
    policy_take(&op.policy, policy_make(&p));
    assert_ok(operation_add(r, &op, &e), &e);
    assert_true(op.seq > 0 && op.generation == 1 && op.created_ns > 0);
    assert_int_equal(operation_add(r, &op, &e), -EEXIST);
    r = reopen(r);
    assert_ok(operation_get(r, "up-1", &got, &e), &e);
    assert_string_equal(got.parent, "nightly-1");
    assert_string_equal(got.volume_id, "v1");
    assert_string_equal(got.job, "nightly");
    assert_int_equal(got.state, OP_QUEUED);
    assert_int_equal(got.wake_ns, 7);
    assert_int_equal(got.seq, op.seq);
    assert_ptr_equal(got.policy, op.policy);
    assert_true(fields_equal(&operation_fields, &got, &op));
    operation_copy(&stale, &got);
    got.stage = STAGE_POST;
    assert_ok(operation_save(r, &got, &e), &e);
    assert_int_equal(got.generation, 2);
    assert_int_equal(operation_save(r, &stale, &e), -ESTALE);
    operation_clear(&op);
    assert_int_equal(operation_get(r, "up-2", &op, &e), -ENOENT);
    assert_string_equal(op.id, "");
    done(r);
}

static void terminal_states_are_absorbing(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    add_operation(r, "up-1", "b", OP_FAILED);
    CLEANUP(operation_clear) struct operation op;
    assert_ok(operation_get(r, "up-1", &op, &e), &e);
    op.state = OP_QUEUED;
    assert_int_equal(operation_save(r, &op, &e), -EINVAL);
    op.state = OP_COMPLETED;
    assert_int_equal(operation_save(r, &op, &e), -EINVAL);
    op.state = OP_FAILED;
    op.lost = true;
    assert_ok(operation_save(r, &op, &e), &e);
    CLEANUP(backup_clear) struct backup b;
    backup_init(&b);
    str_set(&b.id, "b");
    b.state = BACKUP_COMPLETED;
    assert_ok(backup_add(r, &b, &e), &e);
    b.state = BACKUP_MOVING;
    assert_int_equal(backup_save(r, &b, &e), -EINVAL);
    b.state = BACKUP_DELETING;
    assert_ok(backup_save(r, &b, &e), &e);
    b.state = BACKUP_COMPLETED;
    assert_int_equal(backup_save(r, &b, &e), -EINVAL);
    done(r);
}

struct seen {
    struct records *r;
    char ids[200];
    const char *deletes;
};
static int see(const struct operation *op, void *arg)
{
    struct seen *s = arg;
    strcat(s->ids, op->id);
    if (s->deletes)
        operation_delete(s->r, s->deletes, NULL);
    s->deletes = NULL;
    assert_int_equal(op->kind, KIND_BACKUP);
    return 0;
}

static void walks(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    add_operation(r, "a", "b1", OP_QUEUED);
    add_operation(r, "b", "b2", OP_RUNNING);
    add_operation(r, "c", "b1", OP_COMPLETED);
    add_operation(r, "d", "b1", OP_QUEUED);
    static const struct {
        struct operation_filter f;
        const char *want;
    } cases[] = {
        {{.parent = NULL}, "abcd"},   {{.parent = "b1"}, "acd"},
        {{.live = true}, "abd"},      {{.parent = "b1", .live = true, .newest_first = true}, "da"},
        {{.state = OP_QUEUED}, "ad"}, {{.volume_id = "vol", .limit = 2}, "ab"},
        {{.volume_id = "none"}, ""},  {{.state = OP_COMPLETED, .live = true}, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct seen s = {.r = r};
        uint64_t n;
        assert_ok(operation_each(r, &cases[i].f, see, &s, &e), &e);
        assert_string_equal(s.ids, cases[i].want);
        assert_ok(operation_count(r, &cases[i].f, &n, &e), &e);
        if (!cases[i].f.limit)
            assert_int_equal(n, strlen(cases[i].want));
    }
    struct seen s = {.r = r, .deletes = "d"};
    assert_ok(operation_each(r, NULL, see, &s, &e), &e);
    assert_string_equal(s.ids, "abc");
    assert_ok(operation_delete(r, "a", &e), &e);
    assert_int_equal(operation_delete(r, "a", &e), -ENOENT);
    done(r);
}

/* ---- lists of several pages ---- */

#define MANY 900

/* m-0 ... m-349; each third is not finished. */
static struct records *many(void)
{
    struct err e = ERR_INIT;
    struct records *r = fresh();
    assert_ok(records_begin(r, &e), &e);
    for (int i = 0; i < MANY; i++) {
        char id[16];
        snprintf(id, sizeof id, "m-%d", i);
        add_operation(r, id, i % 2 ? "odd" : "even", i % 3 == 0 ? OP_RUNNING : i % 5 ? OP_COMPLETED : OP_FAILED);
    }
    assert_ok(records_commit(r, &e), &e);
    return r;
}

struct listed {
    struct records *r;
    bool newest_first, changes, seen[MANY];
    int n, last, stop;
};
static void become(struct records *r, int i, enum op_state state)
{
    char id[16];
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    snprintf(id, sizeof id, "m-%d", i);
    struct err e = ERR_INIT;
    assert_ok(operation_get(r, id, &op, &e), &e);
    op.state = state;
    assert_ok(operation_save(r, &op, &e), &e);
}

static int list_one(const struct operation *op, void *arg)
{
    struct listed *l = arg;
    const int i = atoi(op->id + 2);
    assert_true(i >= 0 && i < MANY && !l->seen[i]);
    if (l->n++)
        assert_true(l->newest_first ? i < l->last : i > l->last);
    l->seen[i] = true;
    l->last = i;
    if (l->changes && l->n % 20 == 1) {
        char id[16];
        /* The one after the next goes, a live one ahead is finished, and one more comes. */
        const int gone = l->newest_first ? i - 2 : i + 2, done = l->newest_first ? i / 3 * 3 - 9 : i / 3 * 3 + 9;
        snprintf(id, sizeof id, "m-%d", gone);
        if (gone >= 0 && gone < MANY)
            assert_int_equal(operation_delete(l->r, id, NULL), 0);
        if (done >= 0 && done < MANY && done != gone)
            become(l->r, done, OP_COMPLETED);
        snprintf(id, sizeof id, "m-%d", MANY + i);
        add_operation(l->r, id, "even", OP_COMPLETED);
    }
    return l->stop && l->n == l->stop ? 7 : 0;
}

static int accesses(struct records *r)
{
    int hit = 0, miss = 0, high;
    sqlite3_db_status(r->reader.db, SQLITE_DBSTATUS_CACHE_HIT, &hit, &high, 1);
    sqlite3_db_status(r->reader.db, SQLITE_DBSTATUS_CACHE_MISS, &miss, &high, 1);
    return hit + miss;
}

static void long_lists_are_read_in_pages(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = many();
    for (int newest = 0; newest < 2; newest++) {
        struct listed all = {.newest_first = newest}, some = {.newest_first = newest}, few = some;
        struct operation_filter f = {.newest_first = newest};
        accesses(r);
        assert_ok(operation_each(r, &f, list_one, &all, &e), &e);
        assert_int_equal(all.n, MANY);
        const int whole = accesses(r);
        few.stop = 5;
        assert_int_equal(operation_each(r, &f, list_one, &few, &e), 7);
        assert_int_equal(few.n, 5);
        assert_true(accesses(r) < whole / 10);
        f.limit = 5;
        assert_ok(operation_each(r, &f, list_one, &some, &e), &e);
        assert_int_equal(some.n, 5);
        assert_true(accesses(r) < whole / 10);
        assert_int_equal(some.last, newest ? MANY - 5 : 4);
    }
    done(r);
}

/* Rows that are changed, finished, removed and added while a list is read; in one transaction, too. */
static void a_list_of_rows_that_change(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        struct err e = ERR_INIT;
        struct records *r = many();
        struct listed l = {.r = r, .newest_first = how % 2, .changes = true};
        const struct operation_filter f = {.newest_first = how % 2};
        if (how / 2)
            assert_ok(records_begin(r, &e), &e);
        assert_ok(operation_each(r, &f, list_one, &l, &e), &e);
        const uint64_t added = 1 + (uint64_t)(l.n - 1) / 20;
        assert_int_equal(count_operation(r, NULL), (uint64_t)l.n + added); /* those that were removed were not seen */
        if (how / 2)
            assert_ok(records_commit(r, &e), &e);
        assert_int_equal(count_operation(r, NULL), (uint64_t)l.n + added);
        assert_true(l.n > MANY - MANY / 10 && l.n < MANY);
        done(r);
    }
}

static int64_t clock_ns = 1;
static int64_t test_clock(void)
{
    return clock_ns;
}

static int count_one(const void *row, void *arg)
{
    (void)row;
    ++*(uint64_t *)arg;
    return 0;
}

/* Before a number, and changed since: against one look at each row. */
static void lists_from_a_number_or_a_time(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    int64_t (*clock)(void) = records_clock;
    records_clock = test_clock;
    struct records *r = many();
    clock_ns = 1000;
    for (int i = 0; i < MANY; i += 7)
        become(r, i, i % 3 == 0 ? OP_QUEUED : i % 5 ? OP_COMPLETED : OP_FAILED);
    CLEANUP(operation_clear) struct operation mid = ROW_INIT;
    assert_ok(operation_get(r, "m-200", &mid, &e), &e);
    for (unsigned x = 0; x < 64; x++) {
        const struct row_filter f = {.before = x & 1 ? mid.seq : 0,
                                     .since_ns = x & 2 ? 1000 : 0,
                                     .live = x & 4,
                                     .newest_first = x & 8,
                                     .parent = x & 16 ? "odd" : NULL,
                                     .state = x & 32 ? OP_FAILED : 0};
        uint64_t want = 0, n = 0, counted = 0;
        for (int i = 0; i < MANY; i++)
            want += !(x & 1 && i >= 200) && !(x & 2 && i % 7) && !(x & 4 && i % 3) && !(x & 16 && i % 2 == 0) &&
                    !(x & 32 && (i % 3 == 0 || i % 5));
        assert_ok(row_each(r, ROW_OPERATION, &f, count_one, &n, &e), &e);
        assert_int_equal(n, want);
        assert_ok(row_count(r, ROW_OPERATION, &f, &counted, &e), &e);
        assert_int_equal(counted, want);
    }
    records_clock = clock;
    done(r);
}

/* A database of an earlier version has no index for lists. */
static void the_index_of_lists_is_made(void **state)
{
    (void)state;
    static const char indexes[] =
        "SELECT count(*) FROM sqlite_schema WHERE name IN ('operations_finished','backups_finished')";
    struct records *r = many();
    assert_int_equal(number(r, indexes), 2);
    exec(r, "DROP INDEX operations_finished; DROP INDEX backups_finished");
    r = reopen(r);
    assert_int_equal(number(r, indexes), 2);
    assert_int_equal(count_operation(r, NULL), MANY);
    done(r);
}

/* ---- finished operations that are read again (image_recent()) ---- */

struct again {
    unsigned n, lost;
    uint64_t sum; /* of seq and generation */
};
static int see_again(const struct operation *op, void *arg)
{
    struct again *x = arg;
    char id[32];
    snprintf(id, sizeof id, "op-%llu", (unsigned long long)op->size);
    assert_string_equal(op->id, id);
    assert_int_equal(op->state, OP_COMPLETED);
    x->n++;
    x->lost += op->lost;
    x->sum += op->seq * 1000 + op->generation;
    return 0;
}

static struct again all_again(struct records *r)
{
    const struct operation_filter f = {.parent = "nightly-1"};
    struct again x = {0, 0, 0};
    struct err e = ERR_INIT;
    assert_ok(operation_each(r, &f, see_again, &x, &e), &e);
    return x;
}

#define FINISHED 600 /* more than are kept */

static void finished_operations_are_read_again_as_they_are(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    CLEANUP(operation_clear) struct operation op;
    operation_init(&op);
    for (int i = 0; i < FINISHED; i++) {
        char id[32];
        snprintf(id, sizeof id, "op-%d", i);
        add_operation(r, id, "nightly-1", OP_RUNNING);
        assert_ok(operation_get(r, id, &op, &e), &e);
        op.state = OP_COMPLETED;
        op.size = i;
        assert_ok(operation_save(r, &op, &e), &e);
        operation_clear(&op);
    }
    struct again now = all_again(r), then;
    assert_int_equal(now.n, FINISHED);
    r = reopen(r); /* from disk */
    then = all_again(r);
    assert_memory_equal(&now, &then, sizeof now);
    /* One of the last ones, and one that is only on disk, change. */
    static const char *const changed[] = {"op-599", "op-3"};
    for (unsigned i = 0; i < 2; i++) {
        assert_ok(operation_get(r, changed[i], &op, &e), &e);
        op.lost = true;
        assert_ok(operation_save(r, &op, &e), &e);
        operation_clear(&op);
    }
    assert_int_equal(all_again(r).lost, 2);
    /* A change that is undone was none. */
    assert_ok(records_begin(r, &e), &e);
    assert_ok(operation_get(r, "op-599", &op, &e), &e);
    op.lost = false;
    assert_ok(operation_save(r, &op, &e), &e);
    assert_int_equal(all_again(r).lost, 1);
    records_rollback(r);
    assert_int_equal(all_again(r).lost, 2);
    assert_ok(operation_delete(r, "op-599", &e), &e);
    assert_ok(operation_delete(r, "op-5", &e), &e);
    now = all_again(r);
    assert_int_equal(now.n, FINISHED - 2);
    assert_int_equal(now.lost, 1);
    r = reopen(r);
    then = all_again(r);
    assert_memory_equal(&now, &then, sizeof now);
    done(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_is_what_was_written),
        cmocka_unit_test(terminal_states_are_absorbing),
        cmocka_unit_test(walks),
        cmocka_unit_test(long_lists_are_read_in_pages),
        cmocka_unit_test(a_list_of_rows_that_change),
        cmocka_unit_test(lists_from_a_number_or_a_time),
        cmocka_unit_test(finished_operations_are_read_again_as_they_are),
        cmocka_unit_test(the_index_of_lists_is_made),
    };
    return cmocka_run_group_tests(tests, records_setup, records_teardown);
}
