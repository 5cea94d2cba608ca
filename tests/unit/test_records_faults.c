/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Records when the disk is full or fails (MS-21), what a save costs, and random histories against a model.
 */
#include "tests/unit/records.h"

#include "tests/unit/faulty_vfs.h"

#include <sys/stat.h>

static void fail_after(int code, long after, long times)
{
    faults.code = code;
    faults.after = after;
    faults.count = times;
}

/* ---- cost ---- */

static off_t size_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? st.st_size : 0;
}

static void a_save_costs_one_sync(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    CLEANUP(operation_clear) struct operation a = make_operation("a", OP_RUNNING, NULL), b = ROW_INIT;
    assert_ok(operation_add(r, &a, &e), &e);
    unsigned long before = faults.syncs;
    for (int i = 0; i < 50; i++) {
        a.attempt = i;
        assert_ok(operation_save(r, &a, &e), &e);
        assert_ok(records_counter_add(r, "c", NULL, 1, &e), &e); /* goes with the next save */
    }
    assert_int_equal(faults.syncs - before, 50);
    before = faults.syncs;
    assert_ok(records_begin(r, &e), &e);
    for (int i = 0; i < 50; i++)
        assert_ok(operation_save(r, &a, &e), &e);
    assert_int_equal(faults.syncs, before);
    assert_ok(records_commit(r, &e), &e);
    assert_int_equal(faults.syncs - before, 1);
    before = faults.syncs;
    assert_ok(operation_get(r, "a", &b, &e), &e);
    assert_int_equal(count_operation(r, NULL), 1);
    assert_ok(records_begin(r, &e), &e);
    assert_ok(records_commit(r, &e), &e); /* of nothing */
    assert_int_equal(faults.syncs, before);
    done(r);
}

/* A thousand operations of twelve saves each: the log is folded in and used again, the file does not grow. */
static void a_thousand_operations_have_bounded_size(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    char pad[2000];
    memset(pad, 'p', sizeof pad - 1);
    pad[sizeof pad - 1] = '\0';
    exec(r, "PRAGMA synchronous=OFF"); /* the disk is not what is looked at here */
    off_t largest = 0, largest_log = 0;
    for (int i = 0; i < 1000; i++) {
        char id[24];
        snprintf(id, sizeof id, "op-%d", i);
        CLEANUP(operation_clear) struct operation a = make_operation(id, OP_QUEUED, NULL);
        str_set(&a.description, pad);
        assert_ok(operation_add(r, &a, &e), &e);
        for (int k = 0; k < 11; k++) {
            a.state = k < 10 ? OP_RUNNING : OP_COMPLETED;
            assert_ok(operation_save(r, &a, &e), &e);
        }
        if (i % 100 == 99) {
            assert_true(prune_all(r, 0, 20, &e) >= 0);
            off_t s = size_of(in_dir("records.db"));
            largest = s > largest ? s : largest;
        }
        off_t w = size_of(in_dir("records.db-wal"));
        largest_log = w > largest_log ? w : largest_log;
    }
    assert_true(largest < 1 << 20);
    assert_true(largest_log < 6 << 20);
    assert_int_equal(count_operation(r, NULL), 20);
    done(r);
}

/* ---- the disk fails ---- */

static void failures_have_their_class(void **state)
{
    (void)state;
    static const struct {
        int code, rc;
        enum err_class cls;
    } t[] = {{SQLITE_FULL, -ENOSPC, ERR_NO_SPACE},
             {SQLITE_IOERR_WRITE, -EIO, ERR_GENERIC},
             {SQLITE_IOERR_FSYNC, -EIO, ERR_GENERIC}};
    for (size_t i = 0; i < 3; i++) {
        struct records *r = fresh();
        struct err e = ERR_INIT;
        CLEANUP(backup_clear)
        struct backup a = make_backup("a", BACKUP_QUEUED, NULL), b = make_backup("b", BACKUP_QUEUED, NULL);
        assert_ok(backup_add(r, &a, &e), &e);
        fail_after(t[i].code, 0, 1);
        assert_int_equal(backup_add(r, &b, &e), t[i].rc);
        assert_int_equal(e.cls, t[i].cls);
        assert_non_null(strstr(e.msg, "records.db"));
        assert_true(records_degraded(r));
        assert_int_equal(records_write_errors(r), 1);
        /* Nothing half-written, in memory neither, reading goes on, and the first success ends it. */
        assert_int_equal(count_backup(r, NULL), 1);
        assert_null(backup_peek(r, "b"));
        assert_true(records_degraded(r));
        assert_ok(backup_add(r, &b, &e), &e);
        assert_false(records_degraded(r));
        assert_int_equal(records_write_errors(r), 1);
        r = reopen(r);
        assert_int_equal(count_backup(r, NULL), 2);
        done(r);
    }
}

static void a_failed_transaction_is_undone_whole(void **state)
{
    (void)state;
    for (long after = 0; after < 12; after++) {
        struct records *r = fresh();
        struct err e = ERR_INIT;
        CLEANUP(operation_clear) struct operation a = make_operation("a", OP_QUEUED, NULL);
        CLEANUP(native_row_clear) struct native_row b = make_native_row("b", NATIVE_CREATING, NULL);
        assert_ok(records_begin(r, &e), &e);
        assert_ok(operation_add(r, &a, &e), &e);
        assert_ok(records_intent_add(r, "a", "native", "x", NULL, NULL, &e), &e);
        assert_ok(native_row_add(r, &b, &e), &e);
        assert_ok(records_counter_add(r, "c", NULL, 1, &e), &e);
        fail_after(SQLITE_FULL, after, 1);
        int rc = records_commit(r, &e);
        bool failed = faults.count == 0;
        faults.count = 0;
        if (failed)
            assert_int_equal(rc, -ENOSPC);
        else
            assert_int_equal(rc, 0);
        assert_int_equal(count_operation(r, NULL), !failed);
        assert_int_equal(count_native_row(r, NULL), !failed);
        assert_int_equal(number(r, "SELECT count(*) FROM intents"), !failed);
        assert_int_equal(image_intents(&r->image, "a") != NULL, !failed);
        assert_true(r->counters[0]->value == 1 && r->counters[0]->dirty == failed);
        r = reopen(r);
        assert_int_equal(count_native_row(r, NULL), !failed);
        assert_int_equal(r->counter_n, 1); /* they were written when it closed */
        done(r);
    }
}

/* A transaction that fails in its middle, where SQLite undoes it by itself: all of it is undone. */
static void a_large_transaction_that_fails(void **state)
{
    (void)state;
    static const int codes[] = {SQLITE_FULL, SQLITE_IOERR_WRITE};
    for (int i = 0; i < 2; i++) {
        struct records *r = fresh();
        struct err e = ERR_INIT;
        char pad[20000];
        memset(pad, 'p', sizeof pad - 1);
        pad[sizeof pad - 1] = '\0';
        exec(r, "PRAGMA cache_size=10"); /* pages are written before the commit */
        assert_ok(records_begin(r, &e), &e);
        for (int k = 0; k < 40; k++) {
            char id[8];
            snprintf(id, sizeof id, "r%d", k);
            CLEANUP(backup_clear) struct backup a = make_backup(id, BACKUP_QUEUED, NULL);
            str_set(&a.description, pad);
            assert_ok(backup_add(r, &a, &e), &e);
        }
        fail_after(codes[i], 60, 1);
        assert_true(records_commit(r, &e) < 0);
        assert_int_equal(faults.count, 0);
        assert_int_equal(count_backup(r, NULL), 0);
        CLEANUP(backup_clear) struct backup a = make_backup("after", BACKUP_QUEUED, NULL);
        assert_ok(backup_add(r, &a, &e), &e);
        r = reopen(r);
        assert_int_equal(count_backup(r, NULL), 1);
        done(r);
    }
}

static void opening_on_a_failing_disk(void **state)
{
    (void)state;
    for (int code = 0; code < 2; code++)
        for (long after = 0; after < 12; after++) {
            struct records *r;
            struct err e = ERR_INIT;
            new_dir();
            fail_after(code ? SQLITE_IOERR_WRITE : SQLITE_FULL, after, 1000);
            int rc = records_open(&r, dir, &news, &e);
            bool failed = faults.count < 1000;
            faults.count = 0;
            if (rc == 0) {
                records_close(r);
                assert_false(failed);
            } else {
                assert_int_equal(e.cls, code ? ERR_GENERIC : ERR_NO_SPACE);
            }
            r = open_again();
            assert_false(news.recovered);
            CLEANUP(backup_clear) struct backup a = make_backup("a", BACKUP_QUEUED, NULL);
            assert_ok(backup_add(r, &a, &e), &e);
            done(r);
        }
}

static void add_thirty(struct records *r)
{
    struct err e = ERR_INIT;
    for (int i = 0; i < 30; i++) {
        char id[8];
        snprintf(id, sizeof id, "r%d", i);
        CLEANUP(backup_clear) struct backup a = make_backup(id, BACKUP_QUEUED, NULL);
        assert_ok(backup_add(r, &a, &e), &e);
    }
}

static void spoil_page(int64_t page)
{
    FILE *f = fopen(in_dir("records.db"), "r+");
    assert_non_null(f);
    fseek(f, (page - 1) * 4096, SEEK_SET);
    fputs("\xff\xff\xff", f);
    fclose(f);
}

/* A replacement that has no room leaves everything as it was, and is made when there is. */
static void a_replacement_without_room(void **state)
{
    (void)state;
    for (long after = 0; after < 40; after += 3) {
        struct records *r = fresh();
        struct err e = ERR_INIT;
        add_thirty(r);
        int64_t page = number(r, "SELECT pageno FROM dbstat WHERE name='backups_id' LIMIT 1");
        records_close(r);
        spoil_page(page);
        fail_after(SQLITE_FULL, after, 1000);
        int rc = records_open(&r, dir, &news, &e);
        bool failed = faults.count < 1000;
        faults.count = 0;
        if (rc == 0) {
            records_close(r);
            assert_true(news.recovered);
        } else {
            assert_true(failed);
            assert_int_equal(e.cls, ERR_NO_SPACE);
            assert_int_not_equal(access(in_dir("records.db.new"), F_OK), 0);
        }
        r = open_again();
        assert_int_equal(news.recovered, rc != 0);
        assert_int_equal(count_backup(r, NULL), 0);
        done(r);
    }
}

/* While the daemon runs what is in memory is not lost by that, and goes into the new database when there is room. */
static void a_replacement_without_room_while_running(void **state)
{
    (void)state;
    for (long after = 0; after < 60; after += 3) {
        struct records *r = fresh();
        struct err e = ERR_INIT;
        add_thirty(r);
        CLEANUP(backup_clear) struct backup b = ROW_INIT;
        assert_ok(records_intent_add(r, "r0", "native", "x", NULL, NULL, &e), &e);
        r->noted.corrupt = true;
        fail_after(SQLITE_FULL, after, 1000);
        int rc = backup_get(r, "r0", &b, &e);
        bool failed = faults.count < 1000;
        faults.count = 0;
        if (failed) {
            assert_true(rc < 0 && r->noted.corrupt && records_degraded(r));
            r->recover_after = 0;
            rc = backup_get(r, "r0", &b, &e);
        }
        assert_ok(rc, &e);
        assert_int_equal(records_recoveries(r), 1);
        b.state = BACKUP_MOVING;
        assert_ok(backup_save(r, &b, &e), &e);
        records_abandon(r);
        r = open_again();
        assert_false(news.recovered);
        assert_int_equal(count_backup(r, NULL), 30);
        assert_int_equal(backup_peek(r, "r0")->state, BACKUP_MOVING);
        assert_non_null(image_intents(&r->image, "r0"));
        done(r);
    }
}

/* ---- random histories against a model ---- */

#define IDS 12
#define WORDS 5
static const enum op_state words[WORDS] = {OP_QUEUED, OP_RUNNING, OP_COMPLETED, OP_FAILED, OP_CLEANING_UP};

struct model_row {
    bool exists;
    enum op_state state;
    int value;
    unsigned parent;
    uint64_t seq, generation;
};
struct model {
    struct model_row row[IDS];
    bool intent[IDS];
};

struct walked {
    const struct model *m;
    unsigned n;
    uint64_t last;
};
static int walk_model(const struct operation *op, void *arg)
{
    struct walked *w = arg;
    const struct model_row *x = &w->m->row[atoi(op->id + 1)];
    assert_true(x->exists && op->state == x->state && op->attempt == x->value && op->seq == x->seq);
    assert_true(op->seq > w->last);
    w->last = op->seq;
    w->n++;
    return 0;
}

static void check_filter(struct records *r, const struct model *m, struct operation_filter f, unsigned parent)
{
    struct walked w = {.m = m};
    struct err e = ERR_INIT;
    unsigned want = 0;
    for (int i = 0; i < IDS; i++) {
        const struct model_row *x = &m->row[i];
        want += x->exists && (!f.parent || x->parent == parent) && (!f.state || f.state == x->state) &&
                (!f.live || !op_state_terminal(x->state));
    }
    assert_ok(operation_each(r, &f, walk_model, &w, &e), &e);
    assert_int_equal(w.n, want);
    assert_int_equal(count_operation(r, &f), want);
}

/* What is in memory and on disk is what the model says, also in the middle of a transaction. */
static void check_model(struct records *r, const struct model *m, bool on_disk)
{
    struct err e = ERR_INIT;
    unsigned live = 0, rows = 0, intents = 0;
    for (int i = 0; i < IDS; i++) {
        char id[8];
        snprintf(id, sizeof id, "m%d", i);
        CLEANUP(operation_clear) struct operation a = ROW_INIT;
        const struct model_row *x = &m->row[i];
        int rc = operation_get(r, id, &a, &e);
        assert_int_equal(rc, x->exists ? 0 : -ENOENT);
        intents += m->intent[i];
        const struct operation *peek = operation_peek(r, id);
        assert_int_equal(peek != NULL, x->exists && !op_state_terminal(x->state));
        if (!x->exists)
            continue;
        rows++;
        live += !op_state_terminal(x->state);
        assert_true(a.state == x->state && a.attempt == x->value);
        assert_true(a.seq == x->seq && a.generation == x->generation);
    }
    check_filter(r, m, (struct operation_filter){.parent = NULL}, 0);
    check_filter(r, m, (struct operation_filter){.live = true}, 0);
    check_filter(r, m, (struct operation_filter){.state = OP_FAILED}, 0);
    check_filter(r, m, (struct operation_filter){.parent = "p1"}, 1);
    check_filter(r, m, (struct operation_filter){.parent = "p2", .live = true}, 2);
    if (!on_disk)
        return;
    assert_int_equal(number(r, "SELECT count(*) FROM intents"), intents);
    assert_int_equal(number(r, "SELECT count(*) FROM operations"), rows);
    assert_int_equal(r->image.ids[ROW_OPERATION].n, live); /* nothing finished is left in memory */
    assert_int_equal(r->image.intents.n, intents);
}

/* What somebody who watches knows. */
static struct model seen;
static void watch_model(enum row_kind k, const char *id, const void *was, const void *now, void *arg)
{
    struct model_row *x = &((struct model *)arg)->row[atoi(id + 1)];
    const struct operation *a = was, *b = now;
    assert_int_equal(k, ROW_OPERATION);
    assert_int_equal(x->exists, a != NULL);
    if (a)
        assert_true(x->state == a->state && x->seq == a->seq && x->generation == a->generation);
    *x = (struct model_row){.exists = false};
    if (b)
        *x = (struct model_row){true, b->state, (int)b->attempt, 0, b->seq, b->generation};
}

static void check_seen(const struct model *m)
{
    for (int i = 0; i < IDS; i++) {
        const struct model_row *x = &seen.row[i], *y = &m->row[i];
        assert_int_equal(x->exists, y->exists);
        if (x->exists)
            assert_true(x->state == y->state && x->seq == y->seq && x->generation == y->generation &&
                        x->value == y->value);
    }
}

/* One random write; the model follows if it succeeded. */
static int random_write(struct records *r, struct model *m, uint64_t *ids, uint64_t x, uint64_t *last_seq,
                        struct err *e)
{
    unsigned i = (unsigned)(x >> 8) % IDS;
    enum op_state to = words[(x >> 16) % WORDS];
    struct model_row *row = &m->row[i];
    char id[8];
    snprintf(id, sizeof id, "m%u", i);
    CLEANUP(operation_clear) struct operation a = make_operation(id, to, NULL);
    int value = (int)(x >> 24 & 0xffff), rc;
    unsigned parent = (unsigned)(x >> 44) % 3;
    a.attempt = value;
    str_set(&a.parent, parent ? parent == 1 ? "p1" : "p2" : "");
    switch (x % 8) {
    case 0:
    case 1:
        rc = operation_add(r, &a, e);
        if (rc == 0) {
            assert_false(row->exists);
            assert_true(a.seq > *last_seq);
            *last_seq = a.seq;
            *row = (struct model_row){true, to, value, parent, a.seq, a.generation};
        } else if (rc == -EEXIST) {
            assert_true(row->exists);
        }
        return rc == -EEXIST ? 0 : rc;
    case 2:
    case 3:
    case 4:
        a.seq = row->seq;
        a.generation = row->generation - (x >> 40) % 2;
        rc = operation_save(r, &a, e);
        if (rc == 0) {
            assert_true(row->exists);
            assert_true(!op_state_terminal(row->state) || row->state == to);
            *row = (struct model_row){true, to, value, parent, a.seq, a.generation};
        } else if (rc == -ENOENT) {
            assert_false(row->exists);
        } else if (rc == -EINVAL) {
            assert_true(op_state_terminal(row->state));
        } else if (rc == -ESTALE) {
            assert_true((x >> 40) % 2);
        }
        return rc == -ENOENT || rc == -EINVAL || rc == -ESTALE ? 0 : rc;
    case 5:
        rc = operation_delete(r, id, e);
        if (rc == 0)
            row->exists = false;
        return rc == -ENOENT ? 0 : rc;
    default:
        if (!m->intent[i]) {
            rc = records_intent_add(r, id, "native", id, NULL, &ids[i], e);
            if (rc == 0)
                m->intent[i] = true;
        } else if (x % 3) {
            rc = records_intent_resolve(r, ids[i], e);
            if (rc == 0)
                m->intent[i] = false;
        } else {
            rc = records_intent_update(r, ids[i], NULL, e);
        }
        return rc;
    }
}

static void history(uint64_t seed, bool with_faults)
{
    struct records *r = fresh();
    struct model now = {0}, saved[8];
    uint64_t ids[IDS] = {0}, saved_ids[8][IDS], last_seq = 0, durable_seq = 0, s = seed;
    unsigned depth = 0;
    bool undone = false, beside = false; /* a commit is under way in a thread */
    int taken = 1;                       /* its result, waited for by a write; 1: none */
    if (!with_faults)
        exec(r, "PRAGMA synchronous=OFF");
    seen = now;
    assert_int_equal(rows_watch(r, watch_model, &seen), 0);
    for (int step = 0; step < 120; step++) {
        struct err e = ERR_INIT;
        uint64_t x = splitmix64(&s);
        if (beside) {
            check_model(r, &now, false);
            check_seen(&now);
            if (x % 3 == 0)
                continue;
            if (x % 3 == 1) {
                taken = records_commit_end(r, &e);
            } else {
                records_write_wait(r); /* as a write does */
                taken = r->ended_rc;
            }
            beside = false;
            faults.count = 0;
            assert_true(taken == 0 || with_faults);
            if (taken < 0) {
                now = saved[0];
                memcpy(ids, saved_ids[0], sizeof ids);
            }
            check_model(r, &now, true);
            check_seen(&now);
        }
        if (taken < 1 && (x % 3 == 1 || x % 5 == 0)) {
            if (records_committing(r))
                assert_int_equal(records_commit_end(r, &e), taken);
            taken = 1;
        }
        if (with_faults && x % 11 == 0)
            fail_after(x % 2 ? SQLITE_FULL : SQLITE_IOERR_FSYNC, (long)(x >> 32) % 6, 1 + (long)(x >> 40) % 2);
        unsigned what = (unsigned)(x >> 4) % 16;
        if (what == 0 && depth < 4) {
            if (records_begin(r, &e) == 0) {
                saved[depth] = now;
                memcpy(saved_ids[depth++], ids, sizeof ids);
            } else {
                assert_true(undone || with_faults);
            }
        } else if (what < 4 && depth > 0) {
            const bool start = what == 3 && depth == 1 && taken == 1;
            int rc = what == 1 ? -1 : start ? records_commit_start(r, &e) : records_commit(r, &e);
            if (what == 1)
                records_rollback(r);
            depth--;
            beside = rc > 0;
            assert_true(rc <= 0 || start);
            if (undone || what == 1) {
                assert_true(rc < 0);
                undone = true;
            } else if (rc < 0) {
                assert_true(with_faults);
                undone = true;
            }
            if (depth == 0 && undone) {
                now = saved[0];
                memcpy(ids, saved_ids[0], sizeof ids);
                undone = false;
            }
        } else if (what == 4 && depth == 0) {
            faults.count = 0;
            taken = 1;
            r = reopen(r);
            assert_int_equal(rows_watch(r, watch_model, &seen), 0);
            last_seq = durable_seq; /* numbers of what was undone are lost with the process */
        } else {
            struct model before = now;
            int rc = random_write(r, &now, ids, x >> 8, &last_seq, &e);
            if (rc < 0) {
                assert_true(with_faults || undone);
                if (depth > 0)
                    undone = true;
                else
                    now = before;
            }
        }
        if (!undone)
            check_model(r, &now, depth == 0 && !beside);
        check_seen(undone ? &saved[0] : &now);
        if (depth == 0 && !beside) {
            for (int i = 0; i < IDS; i++)
                if (now.row[i].exists && now.row[i].seq > durable_seq)
                    durable_seq = now.row[i].seq;
        }
    }
    for (; depth > 0; depth--)
        records_rollback(r);
    records_write_wait(r);
    faults.count = 0;
    done(r);
}

static void random_histories(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++)
        history(seed, false);
}

static void random_histories_on_a_failing_disk(void **state)
{
    (void)state;
    for (uint64_t seed = 1001; seed <= 1060; seed++)
        history(seed, true);
}

static int setup(void **state)
{
    faulty_vfs_install();
    return records_setup(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_save_costs_one_sync),
        cmocka_unit_test(a_thousand_operations_have_bounded_size),
        cmocka_unit_test(failures_have_their_class),
        cmocka_unit_test(a_failed_transaction_is_undone_whole),
        cmocka_unit_test(a_large_transaction_that_fails),
        cmocka_unit_test(opening_on_a_failing_disk),
        cmocka_unit_test(a_replacement_without_room),
        cmocka_unit_test(a_replacement_without_room_while_running),
        cmocka_unit_test(random_histories),
        cmocka_unit_test(random_histories_on_a_failing_disk),
    };
    return cmocka_run_group_tests_name("records_faults", tests, setup, records_teardown);
}
