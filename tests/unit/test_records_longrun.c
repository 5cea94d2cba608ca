/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What goes from the records and what stays, and a thousand operations with random faults: no growth in rows, files,
 * descriptors or memory.
 */
#include "tests/unit/records.h"

#include "daemon/engine/natives-plan.h"
#include "tests/unit/faulty_vfs.h"

#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>

#define HOUR (3600 * (int64_t)1000000000)

static int64_t now_ns = 20000 * 24 * HOUR;
static int64_t test_clock(void)
{
    return now_ns;
}

static void add(struct records *r, enum rec_kind k, const char *id, const char *parent, const char *state)
{
    struct err e = ERR_INIT;
    CLEANUP(rec_clearp) struct rec a = make_rec(id, state, "{}");
    snprintf(a.parent, sizeof a.parent, "%s", parent);
    assert_ok(records_add(r, k, &a, &e), &e);
}

static bool has(struct records *r, enum rec_kind k, const char *id)
{
    CLEANUP(rec_clearp) struct rec a = REC_INIT;
    return records_get(r, k, id, &a, NULL) == 0;
}

/* ---- records_prune ---- */

static void old_and_finished_rows_go(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    add(r, REC_BACKUP, "done", "", "Completed");
    add(r, REC_OPERATION, "up-done.a", "done", "Completed");
    add(r, REC_OPERATION, "up-done.b", "done", "Failed");
    add(r, REC_BACKUP, "has-native", "", "Completed");
    add(r, REC_OPERATION, "up-has-native", "has-native", "Completed");
    add(r, REC_NATIVE, "alias", "has-native", "present");
    add(r, REC_BACKUP, "has-live", "", "Failed");
    add(r, REC_OPERATION, "up-has-live", "has-live", "CleaningUp");
    add(r, REC_BACKUP, "has-intent", "", "Failed");
    add(r, REC_OPERATION, "up-has-intent", "has-intent", "Failed");
    assert_ok(records_intent_add(r, "up-has-intent", "unit", "u", NULL, NULL, &e), &e);
    add(r, REC_BACKUP, "has-own", "", "Failed");
    add(r, REC_OPERATION, "up-has-own", "has-own", "Failed");
    assert_ok(records_intent_add(r, "has-own", "hook-post", "h", NULL, NULL, &e), &e);
    add(r, REC_BACKUP, "live", "", "Moving");
    add(r, REC_BACKUP, "deleting", "", "Deleting");
    add(r, REC_OPERATION, "down-old", "restore-gone", "Completed");
    add(r, REC_OPERATION, "admin-live", "", "Running");
    add(r, REC_VOLUME, "v", "", "");
    add(r, REC_JOB, "nightly", "", "");
    now_ns += 100 * HOUR;
    add(r, REC_BACKUP, "young", "", "Completed");
    add(r, REC_OPERATION, "up-young", "young", "Completed");
    /* Not as old as that; then among the newest; then none of both. */
    assert_int_equal(records_prune(r, 200 * 3600, 0, &e), 0);
    assert_int_equal(records_prune(r, 50 * 3600, 100, &e), 0);
    assert_int_equal(records_prune(r, 50 * 3600, 0, &e), 4);
    assert_true(!has(r, REC_BACKUP, "done") && !has(r, REC_OPERATION, "up-done.a") &&
                !has(r, REC_OPERATION, "up-done.b"));
    assert_false(has(r, REC_OPERATION, "down-old"));
    static const char *const stay[] = {"has-native", "has-live", "has-intent", "has-own", "live", "deleting", "young"};
    for (size_t i = 0; i < sizeof stay / sizeof *stay; i++) {
        char id[40];
        assert_true(has(r, REC_BACKUP, stay[i]));
        snprintf(id, sizeof id, "up-%s", stay[i]);
        assert_true(i == 4 || i == 5 || has(r, REC_OPERATION, id));
    }
    assert_true(has(r, REC_OPERATION, "admin-live") && has(r, REC_VOLUME, "v") && has(r, REC_JOB, "nightly"));
    /* What kept it is gone: so does it. */
    assert_ok(records_delete(r, REC_NATIVE, "alias", &e), &e);
    assert_int_equal(records_prune(r, 50 * 3600, 0, &e), 2);
    assert_int_equal(records_prune(r, 50 * 3600, 0, &e), 0);
    assert_ok(records_begin(r, &e), &e);
    assert_int_equal(records_prune(r, 0, 0, &e), -EBUSY);
    records_rollback(r);
    /* A clock that went back makes nothing old. */
    now_ns -= 99 * HOUR;
    assert_int_equal(records_prune(r, 50 * 3600, 0, &e), 0);
    assert_int_equal(records_prune(r, INT64_MAX, 0, &e), 0);
    now_ns += 99 * HOUR;
    done(r);
}

static void the_newest_are_kept(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    char id[24], op[32];
    for (int i = 0; i < 700; i++) {
        snprintf(id, sizeof id, "b%03d", i);
        snprintf(op, sizeof op, "up-%s", id);
        add(r, REC_BACKUP, id, "", "Completed");
        add(r, REC_OPERATION, op, id, "Completed");
    }
    now_ns += 10 * HOUR;
    assert_int_equal(records_prune(r, 3600, 30, &e), 2 * 670);
    assert_int_equal(count(r, REC_BACKUP, NULL), 30);
    assert_int_equal(count(r, REC_OPERATION, NULL), 30);
    assert_true(has(r, REC_BACKUP, "b670") && !has(r, REC_BACKUP, "b669"));
    assert_true(number(r, "PRAGMA freelist_count") <= 64);
    done(r);
}

/* ---- a thousand operations ---- */

#define VOLUMES 5
#define RETAIN 3

static unsigned descriptors(void)
{
    CLEANUP_CLOSEDIR DIR *d = opendir("/proc/self/fd");
    unsigned n = 0;
    while (d && readdir(d))
        n++;
    return n;
}

static unsigned files_in_dir(off_t *bytes)
{
    CLEANUP_CLOSEDIR DIR *d = opendir(dir);
    unsigned n = 0;
    struct dirent *de;
    *bytes = 0;
    while (d && (de = readdir(d))) {
        struct stat st;
        if (de->d_name[0] != '.' && stat(in_dir(de->d_name), &st) == 0) {
            n++;
            *bytes += st.st_size;
        }
    }
    return n;
}

/* Everything that may fail here fails now and then; it is tried again as the daemon does, from what the records say. */
static bool may(int rc, const struct err *e)
{
    if (rc >= 0)
        return true;
    assert_true(e->cls == ERR_NO_SPACE || e->cls == ERR_GENERIC);
    return false;
}

/* Carries a plan out, as the engine does before each new snapshot. */
static bool prune_natives(struct records *r, const char *volume, bool before)
{
    struct err e = ERR_INIT;
    CLEANUP_FREE struct native_facts *f = NULL;
    struct native_verdict v;
    struct native_rules rules = {
        .retain = RETAIN, .max_per_volume = 8, .about_to_create = before, .pool_used_ratio = -1, .now_ns = now_ns};
    size_t n;
    if (!may(natives_gather(r, volume, &f, &n, &e), &e))
        return false;
    natives_plan(&rules, f, n, &v);
    for (size_t i = 0; i < n; i++)
        if (f[i].prune && !may(records_delete(r, REC_NATIVE, f[i].alias, &e), &e))
            return false;
    return v.may_create;
}

static bool begin_operation(struct records *r, unsigned i, const char *volume, uint64_t *intent)
{
    struct err e = ERR_INIT;
    char b[24], id[40];
    snprintf(b, sizeof b, "b%06u", i);
    snprintf(id, sizeof id, "up-%s", b);
    CLEANUP(rec_clearp) struct rec op = make_rec(id, "Snapshotting", "{}");
    CLEANUP(rec_clearp) struct rec back = make_rec(b, "Snapshotting", "{}");
    CLEANUP(rec_clearp) struct rec n = make_rec("", "present", "{\"moved\":false}");
    snprintf(n.id, sizeof n.id, "n-%s", b);
    snprintf(op.parent, sizeof op.parent, "%s", b);
    snprintf(n.parent, sizeof n.parent, "%s", b);
    snprintf(op.volume, sizeof op.volume, "%s", volume);
    snprintf(n.volume, sizeof n.volume, "%s", volume);
    json_object_set_new(op.doc, "native", json_string(n.id));
    if (!may(records_begin(r, &e), &e))
        return false;
    if (records_add(r, REC_BACKUP, &back, &e) < 0 || records_add(r, REC_OPERATION, &op, &e) < 0 ||
        records_add(r, REC_NATIVE, &n, &e) < 0 ||
        records_intent_add(r, id, "exposure", n.id, json_object(), intent, &e) < 0) {
        records_rollback(r);
        return may(-1, &e);
    }
    return may(records_commit(r, &e), &e);
}

/* Brings one row to a state, with the native's end for an operation; true when it is so. */
static bool set_state(struct records *r, enum rec_kind k, const char *id, const char *state)
{
    struct err e = ERR_INIT;
    CLEANUP(rec_clearp) struct rec a = REC_INIT;
    if (records_get(r, k, id, &a, &e) < 0 || strcmp(a.state, state) == 0)
        return true;
    if (state_terminal(a.state))
        return true;
    snprintf(a.state, sizeof a.state, "%s", state);
    return may(records_save(r, k, &a, &e), &e);
}

static int drop_intent(struct intent *i, void *arg)
{
    struct err e = ERR_INIT;
    return may(records_intent_resolve(arg, i->id, &e), &e) ? 0 : -1;
}

static int finish(struct rec *op, void *arg)
{
    struct records *r = arg;
    struct err e = ERR_INIT;
    CLEANUP(rec_clearp) struct rec n = REC_INIT;
    bool failed = op->seq % 7 == 0;
    const char *alias = json_string_value(json_object_get(op->doc, "native"));
    if (records_intents(r, op->id, drop_intent, r, &e) != 0)
        return 0;
    if (records_get(r, REC_NATIVE, alias, &n, &e) == 0) {
        json_object_set_new(n.doc, failed ? "failed" : "moved", json_true());
        json_object_set_new(n.doc, "moved_verified", json_boolean(!failed));
        if (!may(records_save(r, REC_NATIVE, &n, &e), &e))
            return 0;
    }
    if (set_state(r, REC_OPERATION, op->id, failed ? "Failed" : "Completed"))
        set_state(r, REC_BACKUP, op->parent, failed ? "Failed" : "Completed");
    return 0;
}

static int end_backup(struct rec *b, void *arg)
{
    struct rec_filter f = {.parent = b->id, .live = true};
    uint64_t n;
    struct err e = ERR_INIT;
    if (may(records_count(arg, REC_OPERATION, &f, &n, &e), &e) && n == 0)
        set_state(arg, REC_BACKUP, b->id, "Failed");
    return 0;
}

/* One level-triggered pass over what is not finished. */
static void sweep(struct records *r)
{
    struct err e = ERR_INIT;
    struct rec_filter live = {.live = true};
    may(records_each(r, REC_OPERATION, &live, finish, r, &e), &e);
    may(records_each(r, REC_BACKUP, &live, end_backup, r, &e), &e);
}

struct size {
    unsigned files, fds;
    off_t bytes;
    int64_t memory;
    uint64_t backups, operations, natives;
};
static struct size measure(struct records *r)
{
    struct size s = {.fds = descriptors(), .memory = sqlite3_memory_used()};
    s.files = files_in_dir(&s.bytes);
    s.backups = count(r, REC_BACKUP, NULL);
    s.operations = count(r, REC_OPERATION, NULL);
    s.natives = count(r, REC_NATIVE, NULL);
    return s;
}

static void a_thousand_operations_leave_no_growth(void **state)
{
    (void)state;
    struct records *r = fresh();
    struct size warm = {0}, end;
    uint64_t seed = 7;
    unsigned crashes = 0, lost = 0;
    for (unsigned i = 0; i < 1000; i++) {
        struct err e = ERR_INIT;
        uint64_t x = splitmix64(&seed), intent;
        char volume[8];
        snprintf(volume, sizeof volume, "v%u", i % VOLUMES);
        now_ns += HOUR;
        if (x % 5 == 0) {
            faults.code = x % 2 ? SQLITE_FULL : SQLITE_IOERR_WRITE;
            faults.after = (long)(x >> 8) % 12;
            faults.count = 1 + (long)(x >> 16) % 3;
        }
        if (prune_natives(r, volume, true))
            lost += !begin_operation(r, i, volume, &intent);
        if (x % 37 == 0) {
            faults.count = 0;
            records_abandon(r); /* the daemon dies in mid-operation */
            r = open_again();
            assert_false(news.recovered);
            crashes++;
        }
        sweep(r);
        faults.count = 0;
        sweep(r); /* the next minute, with the disk in order */
        assert_true(prune_natives(r, volume, false));
        if (i % 50 == 49)
            assert_true(records_prune(r, 24 * 3600, 40, &e) >= 0);
        if (i == 299)
            warm = measure(r);
    }
    end = measure(r);
    assert_true(crashes > 10 && lost > 10);
    assert_int_equal(count(r, REC_OPERATION, &(struct rec_filter){.live = true}), 0);
    assert_int_equal(count(r, REC_BACKUP, &(struct rec_filter){.live = true}), 0);
    assert_int_equal(number(r, "SELECT count(*) FROM intents"), 0);
    assert_true(end.natives <= VOLUMES * RETAIN);
    assert_true(end.backups <= warm.backups + 10 && end.operations <= warm.operations + 10);
    assert_int_equal(end.files, warm.files);
    assert_int_equal(end.fds, warm.fds);
    assert_true(end.bytes <= warm.bytes + (256 << 10));
    assert_true(end.memory <= warm.memory + (256 << 10));
    done(r);
}

static int setup(void **state)
{
    faulty_vfs_install();
    records_clock = test_clock;
    return records_setup(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(old_and_finished_rows_go),
        cmocka_unit_test(the_newest_are_kept),
        cmocka_unit_test(a_thousand_operations_leave_no_growth),
    };
    return cmocka_run_group_tests_name("records_longrun", tests, setup, records_teardown);
}
