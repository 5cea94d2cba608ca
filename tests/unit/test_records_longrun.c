/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What goes from the records and what stays, and a thousand operations with random faults: no growth in rows, files,
 * descriptors or memory.
 */
#include "tests/unit/records.h"

#include "base/json.h"

#include "daemon/records/records-test.h"

#include "daemon/decide/natives-plan.h"
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

static void add(struct records *r, enum row_kind k, const char *id, const char *parent, int state)
{
    struct err e = ERR_INIT;
    const struct fields *t = row_types[k].fields;
    struct row *row = malloc(t->size);
    row_init(t, row);
    str_set(&row->id, id);
    str_set(&row->parent, parent);
    row_set_state(k, row, state);
    assert_ok(row_add(r, k, row, &e), &e);
    row_clear(t, row);
    free(row);
}

static bool has(struct records *r, enum row_kind k, const char *id)
{
    const struct fields *t = row_types[k].fields;
    void *row = malloc(t->size);
    bool found = row_get(r, k, id, row, NULL) == 0;
    row_clear(t, row);
    free(row);
    return found;
}

/* ---- records_prune ---- */

static void old_and_finished_rows_go(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    add(r, ROW_BACKUP, "done", "", BACKUP_COMPLETED);
    add(r, ROW_OPERATION, "up-done.a", "done", OP_COMPLETED);
    add(r, ROW_OPERATION, "up-done.b", "done", OP_FAILED);
    add(r, ROW_BACKUP, "has-native", "", BACKUP_COMPLETED);
    add(r, ROW_OPERATION, "up-has-native", "has-native", OP_COMPLETED);
    add(r, ROW_NATIVE, "alias", "has-native", NATIVE_PRESENT);
    add(r, ROW_BACKUP, "has-live", "", BACKUP_FAILED);
    add(r, ROW_OPERATION, "up-has-live", "has-live", OP_CLEANING_UP);
    add(r, ROW_BACKUP, "has-intent", "", BACKUP_FAILED);
    add(r, ROW_OPERATION, "up-has-intent", "has-intent", OP_FAILED);
    assert_ok(records_intent_add(r, "up-has-intent", "unit", "u", NULL, NULL, &e), &e);
    add(r, ROW_BACKUP, "has-own", "", BACKUP_FAILED);
    add(r, ROW_OPERATION, "up-has-own", "has-own", OP_FAILED);
    assert_ok(records_intent_add(r, "has-own", "hook-post", "h", NULL, NULL, &e), &e);
    add(r, ROW_BACKUP, "live", "", BACKUP_MOVING);
    add(r, ROW_BACKUP, "deleting", "", BACKUP_DELETING);
    add(r, ROW_OPERATION, "down-old", "restore-gone", OP_COMPLETED);
    add(r, ROW_OPERATION, "admin-live", "", OP_RUNNING);
    add(r, ROW_VOLUME, "v", "", VOL_NONE);
    add(r, ROW_JOB, "nightly", "", JOB_NONE);
    now_ns += 100 * HOUR;
    add(r, ROW_BACKUP, "young", "", BACKUP_COMPLETED);
    add(r, ROW_OPERATION, "up-young", "young", OP_COMPLETED);
    /* Not as old as that; then among the newest; then none of both. */
    assert_int_equal(prune_all(r, 200 * 3600, 0, &e), 0);
    assert_int_equal(prune_all(r, 50 * 3600, 100, &e), 0);
    assert_int_equal(prune_all(r, 50 * 3600, 0, &e), 4);
    assert_true(!has(r, ROW_BACKUP, "done") && !has(r, ROW_OPERATION, "up-done.a") &&
                !has(r, ROW_OPERATION, "up-done.b"));
    assert_false(has(r, ROW_OPERATION, "down-old"));
    static const char *const stay[] = {"has-native", "has-live", "has-intent", "has-own", "live", "deleting", "young"};
    for (size_t i = 0; i < sizeof stay / sizeof *stay; i++) {
        char id[40];
        assert_true(has(r, ROW_BACKUP, stay[i]));
        snprintf(id, sizeof id, "up-%s", stay[i]);
        assert_true(i == 4 || i == 5 || has(r, ROW_OPERATION, id));
    }
    assert_true(has(r, ROW_OPERATION, "admin-live") && has(r, ROW_VOLUME, "v") && has(r, ROW_JOB, "nightly"));
    /* What kept it is gone: so does it. */
    assert_ok(native_row_delete(r, "alias", &e), &e);
    assert_int_equal(prune_all(r, 50 * 3600, 0, &e), 2);
    assert_int_equal(prune_all(r, 50 * 3600, 0, &e), 0);
    assert_ok(records_begin(r, &e), &e);
    assert_int_equal(prune_all(r, 0, 0, &e), -EBUSY);
    records_rollback(r);
    /* A clock that went back makes nothing old. */
    now_ns -= 99 * HOUR;
    assert_int_equal(prune_all(r, 50 * 3600, 0, &e), 0);
    assert_int_equal(prune_all(r, INT64_MAX, 0, &e), 0);
    now_ns += 99 * HOUR;
    done(r);
}

/* Only the record knows what a mover plugin stored. */
static void what_a_plugin_stores_stays(void **state)
{
    (void)state;
    static const struct {
        const char *id, *result;
        bool lost, stays;
    } ops[] = {{"stored", "{\"plugin\": \"tape\", \"id\": \"7\", \"stored\": {\"tape\": 1}}", false, true},
               {"deleted", "{\"plugin\": \"tape\", \"id\": \"8\"}", true, false},
               {"skipped", "{\"plugin\": \"tape\", \"skip\": \"nothing to do\"}", false, false},
               {"ours", "{\"snapshotID\": \"plugin\"}", false, false}};
    struct err e = ERR_INIT;
    struct records *r = fresh();
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        CLEANUP(operation_clear) struct operation op;
        char id[64];
        add(r, ROW_BACKUP, ops[i].id, "", BACKUP_COMPLETED);
        operation_init(&op);
        snprintf(id, sizeof id, "up-%s", ops[i].id);
        str_set(&op.id, id);
        str_set(&op.parent, ops[i].id);
        op.state = OP_COMPLETED;
        op.kind = KIND_BACKUP;
        op.lost = ops[i].lost;
        CLEANUP_JSON json_t *result = json_loads(ops[i].result, 0, NULL);
        assert_int_equal(mover_result_load(&op.result, result), 0);
        assert_ok(operation_add(r, &op, &e), &e);
    }
    now_ns += 100 * HOUR;
    assert_int_equal(prune_all(r, 50 * 3600, 0, &e), 6);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        assert_int_equal(has(r, ROW_BACKUP, ops[i].id), ops[i].stays);
    CLEANUP(operation_clear) struct operation op;
    assert_ok(operation_get(r, "up-stored", &op, &e), &e);
    op.lost = true; /* its plugin has deleted it: a newer change, as old again later */
    assert_ok(operation_save(r, &op, &e), &e);
    now_ns += 100 * HOUR;
    assert_int_equal(prune_all(r, 50 * 3600, 0, &e), 2);
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
        add(r, ROW_BACKUP, id, "", BACKUP_COMPLETED);
        add(r, ROW_OPERATION, op, id, OP_COMPLETED);
    }
    now_ns += 10 * HOUR;
    assert_int_equal(prune_all(r, 3600, 30, &e), 2 * 670);
    assert_int_equal(count_backup(r, NULL), 30);
    assert_int_equal(count_operation(r, NULL), 30);
    assert_true(has(r, ROW_BACKUP, "b670") && !has(r, ROW_BACKUP, "b669"));
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
        if (f[i].prune && !may(native_row_delete(r, f[i].alias, &e), &e))
            return false;
    return v.may_create;
}

static bool begin_operation(struct records *r, unsigned i, const char *volume, uint64_t *intent)
{
    struct err e = ERR_INIT;
    char b[24];
    snprintf(b, sizeof b, "b%06u", i);
    CLEANUP(operation_clear) struct operation op = make_operation("", OP_SNAPSHOTTING, NULL);
    CLEANUP(backup_clear) struct backup back = make_backup(b, BACKUP_SNAPSHOTTING, NULL);
    CLEANUP(native_row_clear) struct native_row n = make_native_row("", NATIVE_PRESENT, NULL);
    str_setf(&op.id, "up-%s", b);
    str_setf(&n.id, "n-%s", b);
    str_set(&op.parent, b);
    str_set(&n.parent, b);
    str_set(&op.volume_id, volume);
    str_set(&n.volume_id, volume);
    str_set(&op.native, n.id);
    if (!may(records_begin(r, &e), &e))
        return false;
    if (backup_add(r, &back, &e) < 0 || operation_add(r, &op, &e) < 0 || native_row_add(r, &n, &e) < 0 ||
        records_intent_add(r, op.id, "exposure", n.id, json_object(), intent, &e) < 0) {
        records_rollback(r);
        return may(-1, &e);
    }
    return may(records_commit(r, &e), &e);
}

/* Brings a row to its end; true when it is so. */
static bool end_operation(struct records *r, const char *id, enum op_state to)
{
    struct err e = ERR_INIT;
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    if (operation_get(r, id, &op, &e) < 0 || op_state_terminal(op.state))
        return true;
    op.state = to;
    return may(operation_save(r, &op, &e), &e);
}

static bool end_backup(struct records *r, const char *id, enum backup_state to)
{
    struct err e = ERR_INIT;
    CLEANUP(backup_clear) struct backup b = ROW_INIT;
    if (backup_get(r, id, &b, &e) < 0 || backup_state_terminal(b.state))
        return true;
    b.state = to;
    return may(backup_save(r, &b, &e), &e);
}

static int drop_intent(struct intent *i, void *arg)
{
    struct err e = ERR_INIT;
    return may(records_intent_resolve(arg, i->id, &e), &e) ? 0 : -1;
}

static int finish(const struct operation *op, void *arg)
{
    struct records *r = arg;
    struct err e = ERR_INIT;
    CLEANUP(native_row_clear) struct native_row n = ROW_INIT;
    bool failed = op->seq % 7 == 0;
    if (records_intents(r, op->id, drop_intent, r, &e) != 0)
        return 0;
    if (native_row_get(r, op->native, &n, &e) == 0) {
        n.failed = failed;
        n.moved = n.moved_verified = !failed;
        if (!may(native_row_save(r, &n, &e), &e))
            return 0;
    }
    if (end_operation(r, op->id, failed ? OP_FAILED : OP_COMPLETED))
        end_backup(r, op->parent, failed ? BACKUP_FAILED : BACKUP_COMPLETED);
    return 0;
}

static int look_at_backup(const struct backup *b, void *arg)
{
    struct operation_filter f = {.parent = b->id, .live = true};
    uint64_t n;
    struct err e = ERR_INIT;
    if (may(operation_count(arg, &f, &n, &e), &e) && n == 0)
        end_backup(arg, b->id, BACKUP_FAILED);
    return 0;
}

/* One level-triggered pass over what is not finished. */
static void sweep(struct records *r)
{
    struct err e = ERR_INIT;
    may(operation_each(r, &(struct operation_filter){.live = true}, finish, r, &e), &e);
    may(backup_each(r, &(struct backup_filter){.live = true}, look_at_backup, r, &e), &e);
}

struct size {
    unsigned files, fds;
    off_t bytes;
    int64_t memory;
    size_t strings, in_memory;
    uint64_t backups, operations, natives;
};
static struct size measure(struct records *r)
{
    struct size s = {.fds = descriptors(), .memory = sqlite3_memory_used()};
    s.files = files_in_dir(&s.bytes);
    s.strings = str_count();
    for (enum row_kind k = 0; k < ROW_KINDS; k++)
        s.in_memory += r->image.ids[k].n + r->image.groups[k].n;
    s.backups = count_backup(r, NULL);
    s.operations = count_operation(r, NULL);
    s.natives = count_native_row(r, NULL);
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
            assert_true(prune_all(r, 24 * 3600, 40, &e) >= 0);
        if (i == 299)
            warm = measure(r);
    }
    end = measure(r);
    assert_true(crashes > 10 && lost > 10);
    assert_int_equal(count_operation(r, &(struct operation_filter){.live = true}), 0);
    assert_int_equal(count_backup(r, &(struct backup_filter){.live = true}), 0);
    assert_int_equal(number(r, "SELECT count(*) FROM intents"), 0);
    assert_true(end.natives <= VOLUMES * RETAIN);
    assert_true(end.backups <= warm.backups + 10 && end.operations <= warm.operations + 10);
    assert_int_equal(end.files, warm.files);
    assert_int_equal(end.fds, warm.fds);
    assert_true(end.strings <= warm.strings + 60 && end.in_memory <= warm.in_memory + 60);
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
        cmocka_unit_test(what_a_plugin_stores_stays),
        cmocka_unit_test(the_newest_are_kept),
        cmocka_unit_test(a_thousand_operations_leave_no_growth),
    };
    return cmocka_run_group_tests_name("records_longrun", tests, setup, records_teardown);
}
