/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Counters that count once whatever fails, distributions, and who is told of rows. */
#include "tests/unit/records.h"

#include "base/json.h"
#include "tests/unit/faulty_vfs.h"

#include <errno.h>

struct look {
    const char *name, *le;
    double value;
    unsigned n;
};
static int look_at(const char *name, const json_t *labels, double value, void *arg)
{
    struct look *l = arg;
    l->n++;
    if (!strcmp(name, l->name) && (!l->le || !strcmp(jstr(labels, "le"), l->le)))
        l->value += value;
    return 0;
}
static double value(struct records *r, const char *name, const char *le)
{
    struct look l = {name, le, 0, 0};
    struct err e = ERR_INIT;
    assert_ok(records_counters(r, look_at, &l, &e), &e);
    return l.value;
}

static double on_disk(struct records *r, const char *name)
{
    sqlite3_stmt *st;
    double v = 0;
    assert_int_equal(sqlite3_prepare_v2(r->writer.db, "SELECT sum(value) FROM counters WHERE name=?1", -1, &st, NULL),
                     SQLITE_OK);
    sqlite3_bind_text(st, 1, name, -1, SQLITE_STATIC);
    if (sqlite3_step(st) == SQLITE_ROW)
        v = sqlite3_column_double(st, 0);
    sqlite3_finalize(st);
    return v;
}

static void what_is_held_goes_with_the_record(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    CLEANUP(operation_clear) struct operation a = make_operation("a", OP_RUNNING, NULL);
    assert_ok(operation_add(r, &a, &e), &e);
    records_counters_hold(r);
    assert_ok(records_counter_add(r, "ended", NULL, 1, &e), &e);
    assert_true(on_disk(r, "ended") == 0);
    a.state = OP_COMPLETED;
    assert_ok(operation_save(r, &a, &e), &e);
    assert_true(on_disk(r, "ended") == 1); /* by the same commit */
    records_counters_settle(r);
    assert_true(value(r, "ended", NULL) == 1);
    done(r);
}

static void what_failed_is_not_counted(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    CLEANUP(operation_clear) struct operation a = make_operation("a", OP_RUNNING, NULL);
    assert_ok(operation_add(r, &a, &e), &e);
    assert_ok(records_counter_add(r, "ended", NULL, 5, &e), &e);
    for (int i = 0; i < 3; i++) { /* tried again and again */
        records_counters_hold(r);
        assert_ok(records_counter_add(r, "ended", NULL, 1, &e), &e);
        assert_ok(records_counter_add(r, "fresh", NULL, 1, &e), &e);
        faults.after = 0, faults.count = 100, faults.code = SQLITE_FULL;
        assert_true(operation_save(r, &a, NULL) < 0);
        faults.count = 0;
        records_counters_settle(r);
        assert_true(value(r, "ended", NULL) == 5 && value(r, "fresh", NULL) == 0);
    }
    records_counters_hold(r);
    assert_ok(records_counter_add(r, "ended", NULL, 1, &e), &e);
    assert_ok(operation_save(r, &a, &e), &e);
    records_counters_settle(r);
    assert_true(value(r, "ended", NULL) == 6 && on_disk(r, "ended") == 6);
    done(r);
}

static void holds_nest(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    records_counters_hold(r);
    assert_ok(records_counter_add(r, "x", NULL, 1, &e), &e);
    records_counters_hold(r);
    assert_ok(records_counter_add(r, "x", NULL, 1, &e), &e);
    records_counters_settle(r);
    assert_true(value(r, "x", NULL) == 2); /* the outer one is open */
    records_counters_settle(r);
    assert_true(value(r, "x", NULL) == 0);
    records_counters_settle(r); /* one too many does nothing */
    done(r);
}

static void set_and_remove(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    assert_ok(records_counter_set(r, "g", NULL, 7, &e), &e);
    assert_ok(records_counter_set(r, "g", NULL, 3, &e), &e);
    assert_ok(records_flush(r, &e), &e);
    r = reopen(r);
    assert_true(value(r, "g", NULL) == 3);
    assert_ok(records_counter_remove(r, "g", NULL, &e), &e);
    assert_ok(records_counter_remove(r, "never", NULL, &e), &e);
    assert_true(value(r, "g", NULL) == 0);
    assert_ok(records_flush(r, &e), &e);
    assert_true(on_disk(r, "g") == 0);
    assert_ok(records_counter_add(r, "g", NULL, 2, &e), &e); /* begins anew */
    r = reopen(r);
    assert_true(value(r, "g", NULL) == 2);
    done(r);
}

static int64_t pages(struct records *r)
{
    sqlite3_stmt *st;
    assert_int_equal(sqlite3_prepare_v2(r->writer.db, "SELECT count(*) FROM counter_values", -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    const int64_t n = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return n;
}

/* Of classes, jobs and repositories that come and go no values pile up. */
static void rows_of_removed_ones_go(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    char name[16];
    for (unsigned i = 0; i < 3 * COUNTERS_OF_PAGE; i++) {
        snprintf(name, sizeof name, "c%03u", i);
        assert_ok(records_counter_set(r, name, NULL, i, &e), &e);
    }
    assert_ok(records_flush(r, &e), &e);
    assert_int_equal(pages(r), 3);
    for (unsigned i = 0; i < 2 * COUNTERS_OF_PAGE - 1; i++) {
        snprintf(name, sizeof name, "c%03u", i);
        assert_ok(records_counter_remove(r, name, NULL, &e), &e);
    }
    assert_ok(records_flush(r, &e), &e);
    r = reopen(r);
    assert_int_equal(pages(r), 2);
    snprintf(name, sizeof name, "c%03u", 2 * COUNTERS_OF_PAGE - 1);
    assert_true(value(r, name, NULL) == 2 * COUNTERS_OF_PAGE - 1);
    snprintf(name, sizeof name, "c%03u", 3 * COUNTERS_OF_PAGE - 1);
    assert_true(value(r, name, NULL) == 3 * COUNTERS_OF_PAGE - 1);
    assert_ok(records_counter_add(r, "new", NULL, 5, &e), &e);
    r = reopen(r);
    assert_true(value(r, "new", NULL) == 5 && value(r, name, NULL) == 3 * COUNTERS_OF_PAGE - 1);
    done(r);
}

static void distributions_are_cumulative(void **state)
{
    (void)state;
    static const double bounds[] = {0.001, 1, 60};
    static const double values[] = {0, 0.001, 0.5, 1, 1.5, 60, 61, 1e6};
    struct err e = ERR_INIT;
    struct records *r = fresh();
    CLEANUP_JSON json_t *labels = json_pack("{s:s}", "stage", "read");
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        assert_ok(records_histogram_observe(r, "d", labels, bounds, 3, values[i], &e), &e);
    assert_true(value(r, "d_bucket", "0.001") == 2);
    assert_true(value(r, "d_bucket", "1") == 4);
    assert_true(value(r, "d_bucket", "60") == 6);
    assert_true(value(r, "d_bucket", "+Inf") == 8);
    assert_true(value(r, "d_count", NULL) == 8);
    assert_true(fabs(value(r, "d_sum", NULL) - 1000124.001) < 1e-6);
    static const uint64_t counts[] = {1, 0, 2, 4};
    assert_ok(records_histogram_add(r, "d", labels, bounds, 3, counts, 500, &e), &e);
    assert_true(value(r, "d_bucket", "0.001") == 3 && value(r, "d_bucket", "1") == 5);
    assert_true(value(r, "d_bucket", "60") == 9 && value(r, "d_bucket", "+Inf") == 15);
    assert_int_equal(records_histogram_observe(r, "d", labels, bounds, 3, NAN, &e), -EINVAL);
    assert_null(json_object_get(labels, "le")); /* the caller's labels are left alone */
    r = reopen(r);
    assert_true(value(r, "d_count", NULL) == 15);
    assert_true(value(r, "d_bucket", "1") == 5 && value(r, "d_bucket", "+Inf") == 15);
    assert_ok(records_histogram_observe(r, "d", labels, bounds, 3, 0.5, &e), &e);
    assert_true(value(r, "d_bucket", "0.001") == 3 && value(r, "d_bucket", "1") == 6);
    assert_true(value(r, "d_bucket", "60") == 10 && value(r, "d_bucket", "+Inf") == 16);
    done(r);
}

/* A value changes its bucket, the sum and the count, which lie in one row, however many bounds there are. */
static void a_value_writes_one_row(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    assert_ok(records_histogram_observe(r, "d", NULL, histogram_bounds, HISTOGRAM_BOUNDS, 2, &e), &e);
    assert_ok(records_flush(r, &e), &e);
    const int before = sqlite3_total_changes(r->writer.db);
    assert_ok(records_histogram_observe(r, "d", NULL, histogram_bounds, HISTOGRAM_BOUNDS, 2, &e), &e);
    assert_ok(records_flush(r, &e), &e);
    assert_int_equal(sqlite3_total_changes(r->writer.db) - before, 1);
    done(r);
}

/* What earlier versions wrote: each bucket with all that is below it. */
static void distributions_of_earlier_versions_go_on(void **state)
{
    (void)state;
    static const double bounds[] = {1, 60};
    static const char *const le[] = {"1", "60", "+Inf"};
    struct err e = ERR_INIT;
    struct records *r = fresh();
    CLEANUP_JSON json_t *labels = json_pack("{s:s}", "stage", "read");
    for (int i = 0; i < 3; i++) {
        CLEANUP_JSON json_t *own = json_pack("{s:s,s:s}", "stage", "read", "le", le[i]);
        assert_ok(records_counter_add(r, "d_bucket", own, 2 * i + 1, &e), &e);
    }
    assert_ok(records_counter_add(r, "d_count", labels, 5, &e), &e);
    r = reopen(r);
    assert_true(value(r, "d_bucket", "60") == 3 && value(r, "d_bucket", "+Inf") == 5);
    records_counters_hold(r);
    assert_ok(records_histogram_observe(r, "d", labels, bounds, 2, 2, &e), &e);
    assert_true(value(r, "d_bucket", "1") == 1 && value(r, "d_bucket", "60") == 4 && value(r, "d_bucket", "+Inf") == 6);
    records_counters_settle(r); /* it was not recorded: what was there before stays */
    assert_true(value(r, "d_bucket", "1") == 1 && value(r, "d_bucket", "60") == 3 && value(r, "d_bucket", "+Inf") == 5);
    assert_ok(records_histogram_observe(r, "d", labels, bounds, 2, 0, &e), &e);
    assert_ok(records_flush(r, &e), &e);
    assert_true(on_disk(r, "d_bucket") == 0 && on_disk(r, "d_in") == 6);
    r = reopen(r);
    assert_true(value(r, "d_bucket", "1") == 2 && value(r, "d_bucket", "60") == 4 && value(r, "d_bucket", "+Inf") == 6);
    assert_true(value(r, "d_count", NULL) == 6);
    done(r);
}

struct heard {
    char text[1000];
};
static void hear(enum row_kind k, const char *id, const void *was, const void *now, void *arg)
{
    struct heard *h = arg;
    size_t n = strlen(h->text);
    snprintf(h->text + n, sizeof h->text - n, "%d:%s:%s>%s ", (int)k, id,
             was ? enum_name(row_types[k].states, row_state(k, was)) : "-",
             now ? enum_name(row_types[k].states, row_state(k, now)) : "-");
}

static void each_change_is_reported_when_it_is_made(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct heard h = {""}, other = {""};
    struct records *r = fresh();
    CLEANUP(operation_clear) struct operation a = make_operation("a", OP_RUNNING, NULL);
    CLEANUP(volume_row_clear)
    struct volume_row b = make_volume_row("b", VOL_KNOWN, NULL), c = make_volume_row("c", VOL_KNOWN, NULL);
    assert_int_equal(rows_watch(r, hear, &h), 0);
    assert_int_equal(rows_watch(r, hear, &other), 0);
    assert_ok(operation_add(r, &a, &e), &e);
    a.state = OP_COMPLETED;
    assert_ok(operation_save(r, &a, &e), &e);
    a.lost = true;
    assert_ok(operation_save(r, &a, &e), &e); /* one that is only on disk */
    assert_ok(volume_row_add(r, &b, &e), &e);
    assert_ok(volume_row_delete(r, "b", &e), &e);
    assert_string_equal(h.text, "1:a:->Running 1:a:Running>Completed 1:a:Completed>Completed 3:b:->known 3:b:known>- ");
    h.text[0] = '\0';
    assert_true(volume_row_delete(r, "b", &e) < 0); /* nothing happened, nothing is told */
    a.generation--;
    assert_int_equal(operation_save(r, &a, &e), -ESTALE);
    a.generation++;
    assert_string_equal(h.text, "");
    /* Inside a transaction each by itself; its commit tells nothing more. */
    assert_ok(records_begin(r, &e), &e);
    assert_ok(volume_row_add(r, &c, &e), &e);
    assert_string_equal(h.text, "3:c:->known ");
    c.state = VOL_GONE;
    assert_ok(volume_row_save(r, &c, &e), &e);
    assert_string_equal(h.text, "3:c:->known 3:c:known>gone ");
    assert_ok(volume_row_add(r, &b, &e), &e);
    assert_ok(volume_row_delete(r, "b", &e), &e);
    assert_string_equal(h.text, "3:c:->known 3:c:known>gone 3:b:->known 3:b:known>- ");
    assert_ok(records_commit(r, &e), &e);
    assert_string_equal(h.text, "3:c:->known 3:c:known>gone 3:b:->known 3:b:known>- ");
    assert_non_null(strstr(other.text, h.text));
    rows_unwatch(r, &other);
    rows_unwatch(r, &h);
    h.text[0] = '\0';
    assert_ok(volume_row_delete(r, "c", &e), &e);
    assert_string_equal(h.text, "");
    done(r);
}

static void what_is_undone_is_reported(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct heard h = {""};
    struct records *r = fresh();
    CLEANUP(volume_row_clear)
    struct volume_row b = make_volume_row("b", VOL_KNOWN, NULL), c = make_volume_row("c", VOL_KNOWN, NULL),
                      d = make_volume_row("d", VOL_KNOWN, NULL), kept = ROW_INIT;
    CLEANUP(operation_clear) struct operation a = make_operation("a", OP_COMPLETED, NULL);
    assert_ok(volume_row_add(r, &b, &e), &e);
    assert_ok(volume_row_get(r, "b", &kept, &e), &e);
    assert_ok(operation_add(r, &a, &e), &e);
    assert_int_equal(rows_watch(r, hear, &h), 0);
    for (int how = 0; how < 4; how++) {
        h.text[0] = '\0';
        assert_ok(records_begin(r, &e), &e);
        volume_row_clear(&b);
        volume_row_copy(&b, &kept);
        b.state = VOL_GONE;
        assert_ok(volume_row_save(r, &b, &e), &e);
        assert_ok(volume_row_save(r, &b, &e), &e);
        assert_ok(volume_row_add(r, &c, &e), &e);
        assert_ok(volume_row_add(r, &d, &e), &e);
        assert_ok(volume_row_delete(r, "d", &e), &e);
        assert_ok(operation_delete(r, "a", &e), &e);
        assert_string_equal(h.text,
                            "3:b:known>gone 3:b:gone>gone 3:c:->known 3:d:->known 3:d:known>- 1:a:Completed>- ");
        h.text[0] = '\0';
        if (how == 0) {
            records_rollback(r);
        } else if (how == 1) {
            faults.after = 0, faults.count = 1, faults.code = SQLITE_FULL;
            assert_int_equal(records_commit(r, &e), -ENOSPC);
            faults.count = 0;
        } else {
            /* Inside another one: undone when the inner one is, and what follows is refused and not told. */
            assert_ok(records_begin(r, &e), &e);
            assert_int_equal(volume_row_add(r, &c, &e), -EEXIST);
            assert_string_equal(h.text, "");
            records_rollback(r);
            assert_string_not_equal(h.text, "");
            assert_int_equal(volume_row_add(r, &d, &e), -ECANCELED);
            if (how == 2)
                assert_int_equal(records_commit(r, &e), -ECANCELED);
            else
                records_rollback(r);
        }
        assert_string_equal(h.text, "3:b:gone>known 3:c:known>- 1:a:->Completed ");
        assert_int_equal(volume_row_peek(r, "b")->state, VOL_KNOWN);
        assert_null(volume_row_peek(r, "c"));
    }
    /* A write without a transaction that fails. */
    h.text[0] = '\0';
    faults.after = 0, faults.count = 1, faults.code = SQLITE_IOERR_FSYNC;
    assert_int_equal(volume_row_add(r, &d, &e), -EIO);
    faults.count = 0;
    assert_string_equal(h.text, "3:d:->known 3:d:known>- ");
    done(r);
    assert_string_equal(h.text, "3:d:->known 3:d:known>- ");
}

/* Another row under the id of one that was deleted in the same transaction. */
static void a_replaced_row_that_comes_back_is_reported(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct heard h = {""};
    struct records *r = fresh();
    CLEANUP(volume_row_clear)
    struct volume_row a = make_volume_row("a", VOL_KNOWN, NULL), b = make_volume_row("a", VOL_GONE, NULL);
    assert_ok(volume_row_add(r, &a, &e), &e);
    assert_int_equal(rows_watch(r, hear, &h), 0);
    assert_ok(records_begin(r, &e), &e);
    assert_ok(volume_row_delete(r, "a", &e), &e);
    assert_ok(volume_row_add(r, &b, &e), &e);
    records_rollback(r);
    assert_string_equal(h.text, "3:a:known>- 3:a:->gone 3:a:gone>known ");
    assert_int_equal(volume_row_peek(r, "a")->seq, a.seq);
    done(r);
}

static void a_replaced_database_is_reported(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct heard h = {""};
    struct records *r = fresh();
    CLEANUP(volume_row_clear) struct volume_row a = make_volume_row("a", VOL_KNOWN, NULL);
    assert_int_equal(rows_watch(r, hear, &h), 0);
    r->noted.corrupt = true;
    assert_ok(volume_row_add(r, &a, &e), &e);
    char want[40];
    snprintf(want, sizeof want, "%d::->- 3:a:->known ", ROW_KINDS);
    assert_string_equal(h.text, want);
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
        cmocka_unit_test(what_is_held_goes_with_the_record),
        cmocka_unit_test(what_failed_is_not_counted),
        cmocka_unit_test(holds_nest),
        cmocka_unit_test(set_and_remove),
        cmocka_unit_test(rows_of_removed_ones_go),
        cmocka_unit_test(distributions_are_cumulative),
        cmocka_unit_test(a_value_writes_one_row),
        cmocka_unit_test(distributions_of_earlier_versions_go_on),
        cmocka_unit_test(each_change_is_reported_when_it_is_made),
        cmocka_unit_test(what_is_undone_is_reported),
        cmocka_unit_test(a_replaced_row_that_comes_back_is_reported),
        cmocka_unit_test(a_replaced_database_is_reported),
    };
    return cmocka_run_group_tests_name("records_counting", tests, setup, records_teardown);
}
