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
    CLEANUP(rec_clearp) struct rec a = make_rec("a", "Running", "{\"n\":0}");
    assert_ok(records_add(r, REC_OPERATION, &a, &e), &e);
    unsigned long before = faults.syncs;
    for (int i = 0; i < 50; i++) {
        json_object_set_new(a.doc, "n", json_integer(i));
        assert_ok(records_save(r, REC_OPERATION, &a, &e), &e);
        assert_ok(records_counter_add(r, "c", NULL, 1, &e), &e); /* goes with the next save */
    }
    assert_int_equal(faults.syncs - before, 50);
    before = faults.syncs;
    assert_ok(records_begin(r, &e), &e);
    for (int i = 0; i < 50; i++)
        assert_ok(records_save(r, REC_OPERATION, &a, &e), &e);
    assert_int_equal(faults.syncs, before);
    assert_ok(records_commit(r, &e), &e);
    assert_int_equal(faults.syncs - before, 1);
    before = faults.syncs;
    CLEANUP(rec_clearp) struct rec b = REC_INIT;
    assert_ok(records_get(r, REC_OPERATION, "a", &b, &e), &e);
    assert_int_equal(count(r, REC_OPERATION, NULL), 1);
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
        CLEANUP(rec_clearp) struct rec a = make_rec(id, "Queued", "{}");
        json_object_set_new(a.doc, "pad", json_string(pad));
        assert_ok(records_add(r, REC_OPERATION, &a, &e), &e);
        for (int k = 0; k < 11; k++) {
            snprintf(a.state, sizeof a.state, "%s", k < 10 ? "Running" : "Completed");
            assert_ok(records_save(r, REC_OPERATION, &a, &e), &e);
        }
        if (i % 100 == 99) {
            assert_true(records_prune(r, 0, 20, &e) >= 0);
            off_t s = size_of(in_dir("records.db"));
            largest = s > largest ? s : largest;
        }
        off_t w = size_of(in_dir("records.db-wal"));
        largest_log = w > largest_log ? w : largest_log;
    }
    assert_true(largest < 1 << 20);
    assert_true(largest_log < 6 << 20);
    assert_int_equal(count(r, REC_OPERATION, NULL), 20);
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
        CLEANUP(rec_clearp) struct rec a = make_rec("a", "Queued", "{}"), b = make_rec("b", "Queued", "{}");
        assert_ok(records_add(r, REC_BACKUP, &a, &e), &e);
        fail_after(t[i].code, 0, 1);
        assert_int_equal(records_add(r, REC_BACKUP, &b, &e), t[i].rc);
        assert_int_equal(e.cls, t[i].cls);
        assert_non_null(strstr(e.msg, "records.db"));
        assert_true(records_degraded(r));
        assert_int_equal(records_write_errors(r), 1);
        /* Nothing half-written, reading goes on, and the first success ends it. */
        assert_int_equal(count(r, REC_BACKUP, NULL), 1);
        assert_true(records_degraded(r));
        assert_ok(records_add(r, REC_BACKUP, &b, &e), &e);
        assert_false(records_degraded(r));
        assert_int_equal(records_write_errors(r), 1);
        r = reopen(r);
        assert_int_equal(count(r, REC_BACKUP, NULL), 2);
        rec_clear(&b);
        done(r);
    }
}

static void a_failed_transaction_is_undone_whole(void **state)
{
    (void)state;
    for (long after = 0; after < 12; after++) {
        struct records *r = fresh();
        struct err e = ERR_INIT;
        CLEANUP(rec_clearp) struct rec a = make_rec("a", "Queued", "{}"), b = make_rec("b", "Queued", "{}");
        assert_ok(records_begin(r, &e), &e);
        assert_ok(records_add(r, REC_OPERATION, &a, &e), &e);
        assert_ok(records_intent_add(r, "a", "native", "x", NULL, NULL, &e), &e);
        assert_ok(records_add(r, REC_NATIVE, &b, &e), &e);
        assert_ok(records_counter_add(r, "c", NULL, 1, &e), &e);
        fail_after(SQLITE_FULL, after, 1);
        int rc = records_commit(r, &e);
        bool failed = faults.count == 0;
        faults.count = 0;
        if (failed)
            assert_int_equal(rc, -ENOSPC);
        else
            assert_int_equal(rc, 0);
        assert_int_equal(count(r, REC_OPERATION, NULL), !failed);
        assert_int_equal(count(r, REC_NATIVE, NULL), !failed);
        assert_int_equal(number(r, "SELECT count(*) FROM intents"), !failed);
        assert_true(r->counters[0]->value == 1 && r->counters[0]->dirty == failed);
        rec_clear(&b);
        r = reopen(r);
        assert_int_equal(count(r, REC_NATIVE, NULL), !failed);
        assert_int_equal(r->counter_n, 1); /* they were written when it closed */
        done(r);
    }
}

/* A transaction that fails in its middle, where SQLite undoes it by itself: what follows must not stand alone. */
static void nothing_follows_a_failure_in_a_transaction(void **state)
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
        fail_after(codes[i], 60, 1);
        unsigned written = 0, refused = 0;
        for (int k = 0; k < 40; k++) {
            char id[8];
            snprintf(id, sizeof id, "r%d", k);
            CLEANUP(rec_clearp) struct rec a = make_rec(id, "Queued", "{}");
            json_object_set_new(a.doc, "pad", json_string(pad));
            int rc = records_add(r, REC_BACKUP, &a, &e);
            written += rc == 0;
            assert_true(rc == 0 ? refused == 0 : refused == 0 || rc == -ECANCELED);
            refused += rc < 0;
        }
        assert_int_equal(faults.count, 0);
        assert_true(written > 0 && refused > 10);
        assert_int_equal(records_commit(r, &e), -ECANCELED);
        assert_int_equal(count(r, REC_BACKUP, NULL), 0);
        CLEANUP(rec_clearp) struct rec a = make_rec("after", "Queued", "{}");
        assert_ok(records_add(r, REC_BACKUP, &a, &e), &e);
        r = reopen(r);
        assert_int_equal(count(r, REC_BACKUP, NULL), 1);
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
            CLEANUP(rec_clearp) struct rec a = make_rec("a", "Queued", "{}");
            assert_ok(records_add(r, REC_BACKUP, &a, &e), &e);
            done(r);
        }
}

/* A salvage that has no room leaves everything as it was, and is made when there is. */
static void a_salvage_without_room(void **state)
{
    (void)state;
    for (long after = 0; after < 40; after += 3) {
        struct records *r = fresh();
        struct err e = ERR_INIT;
        for (int i = 0; i < 30; i++) {
            char id[8];
            snprintf(id, sizeof id, "r%d", i);
            CLEANUP(rec_clearp) struct rec a = make_rec(id, "Queued", "{}");
            assert_ok(records_add(r, REC_BACKUP, &a, &e), &e);
        }
        int64_t page = number(r, "SELECT pageno FROM dbstat WHERE name='backups_id' LIMIT 1");
        records_close(r);
        FILE *f = fopen(in_dir("records.db"), "r+");
        fseek(f, (page - 1) * 4096, SEEK_SET);
        fputs("\xff\xff\xff", f);
        fclose(f);
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
            assert_int_not_equal(access(in_dir("records.db.salvage"), F_OK), 0);
        }
        r = open_again();
        assert_int_equal(news.recovered, rc != 0);
        assert_int_equal(count(r, REC_BACKUP, NULL), 30);
        done(r);
    }
}

/* ---- random histories against a model ---- */

#define IDS 12
#define WORDS 5
static const char *const words[WORDS] = {"Queued", "Running", "Completed", "Failed", "CleaningUp"};

struct model_row {
    bool exists;
    int word, value;
    uint64_t seq, generation;
};
struct model {
    struct model_row row[IDS];
    bool intent[IDS];
};

static void check_model(struct records *r, const struct model *m)
{
    struct err e = ERR_INIT;
    unsigned rows = 0, live = 0, intents = 0;
    for (int i = 0; i < IDS; i++) {
        char id[8];
        snprintf(id, sizeof id, "m%d", i);
        CLEANUP(rec_clearp) struct rec a = REC_INIT;
        const struct model_row *x = &m->row[i];
        int rc = records_get(r, REC_OPERATION, id, &a, &e);
        assert_int_equal(rc, x->exists ? 0 : -ENOENT);
        intents += m->intent[i];
        if (!x->exists)
            continue;
        rows++;
        live += !state_terminal(words[x->word]);
        assert_string_equal(a.state, words[x->word]);
        assert_int_equal(json_integer_value(json_object_get(a.doc, "v")), x->value);
        assert_true(a.seq == x->seq && a.generation == x->generation);
    }
    assert_int_equal(count(r, REC_OPERATION, NULL), rows);
    assert_int_equal(count(r, REC_OPERATION, &(struct rec_filter){.live = true}), live);
    assert_int_equal(number(r, "SELECT count(*) FROM intents"), intents);
}

/* One random write; the model follows if it succeeded. */
static int random_write(struct records *r, struct model *m, uint64_t *ids, uint64_t x, uint64_t *last_seq,
                        struct err *e)
{
    unsigned i = (unsigned)(x >> 8) % IDS, word = (unsigned)(x >> 16) % WORDS;
    struct model_row *row = &m->row[i];
    char id[8];
    snprintf(id, sizeof id, "m%u", i);
    CLEANUP(rec_clearp) struct rec a = make_rec(id, words[word], "{}");
    int value = (int)(x >> 24 & 0xffff), rc;
    json_object_set_new(a.doc, "v", json_integer(value));
    switch (x % 8) {
    case 0:
    case 1:
        rc = records_add(r, REC_OPERATION, &a, e);
        if (rc == 0) {
            assert_false(row->exists);
            assert_true(a.seq > *last_seq);
            *last_seq = a.seq;
            *row = (struct model_row){true, (int)word, value, a.seq, a.generation};
        } else if (rc == -EEXIST) {
            assert_true(row->exists);
        }
        return rc == -EEXIST ? 0 : rc;
    case 2:
    case 3:
    case 4:
        a.seq = row->seq;
        a.generation = row->generation - (x >> 40) % 2;
        rc = records_save(r, REC_OPERATION, &a, e);
        if (rc == 0) {
            assert_true(row->exists);
            assert_true(!state_terminal(words[row->word]) || row->word == (int)word);
            row->word = (int)word;
            row->value = value;
            row->generation = a.generation;
        } else if (rc == -ENOENT) {
            assert_false(row->exists);
        } else if (rc == -EINVAL) {
            assert_true(state_terminal(words[row->word]));
        } else if (rc == -ESTALE) {
            assert_true((x >> 40) % 2);
        }
        return rc == -ENOENT || rc == -EINVAL || rc == -ESTALE ? 0 : rc;
    case 5:
        rc = records_delete(r, REC_OPERATION, id, e);
        if (rc == 0)
            row->exists = false;
        return rc == -ENOENT ? 0 : rc;
    default:
        if (!m->intent[i]) {
            rc = records_intent_add(r, id, "native", id, NULL, &ids[i], e);
            if (rc == 0)
                m->intent[i] = true;
        } else {
            rc = records_intent_resolve(r, ids[i], e);
            if (rc == 0)
                m->intent[i] = false;
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
    bool undone = false;
    if (!with_faults)
        exec(r, "PRAGMA synchronous=OFF");
    for (int step = 0; step < 120; step++) {
        struct err e = ERR_INIT;
        uint64_t x = splitmix64(&s);
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
            int rc = what == 1 ? -1 : records_commit(r, &e);
            if (what == 1)
                records_rollback(r);
            depth--;
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
            r = reopen(r);
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
        if (depth == 0) {
            long pending = faults.count;
            faults.count = 0;
            check_model(r, &now);
            for (int i = 0; i < IDS; i++)
                if (now.row[i].exists && now.row[i].seq > durable_seq)
                    durable_seq = now.row[i].seq;
            faults.count = pending;
        }
    }
    faults.count = 0;
    for (; depth > 0; depth--)
        records_rollback(r);
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
        cmocka_unit_test(nothing_follows_a_failure_in_a_transaction),
        cmocka_unit_test(opening_on_a_failing_disk),
        cmocka_unit_test(a_salvage_without_room),
        cmocka_unit_test(random_histories),
        cmocka_unit_test(random_histories_on_a_failing_disk),
    };
    return cmocka_run_group_tests_name("records_faults", tests, setup, records_teardown);
}
