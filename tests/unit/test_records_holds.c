/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What is held stays held when the database is lost, replaced or older, whenever the process dies. */
#include "tests/unit/records.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static const char NOTE[] = "until\tthe audit,\n100 % sure \xc3\xa9";

static void make(struct records *r, const char *alias)
{
    struct err e = ERR_INIT;
    CLEANUP(native_row_clear) struct native_row n = make_native_row(alias, NATIVE_PRESENT, NULL);
    struct native_desc native;
    struct volume_desc volume;
    native_desc_init(&native);
    native.seq = 17;
    native.created_ns = 1700000000000000005;
    native_desc_take(&n.native, native_desc_make(&native));
    volume_desc_init(&volume);
    str_set(&volume.name, "/srv/vm/a b.img");
    volume_desc_take(&n.volume, volume_desc_make(&volume));
    str_set(&n.parent, "nightly-1");
    str_set(&n.volume_id, "v.1");
    assert_ok(native_row_add(r, &n, &e), &e);
}

static int try_hold(struct records *r, const char *alias, bool held, struct err *e)
{
    CLEANUP(native_row_clear) struct native_row n;
    int rc = native_row_get(r, alias, &n, e);
    if (rc < 0)
        return rc;
    n.hold.held = held;
    n.hold.at_ns = held ? 1700000000000000007 : 0;
    str_set(&n.hold.note, held ? NOTE : "");
    return native_row_save(r, &n, e);
}

static void hold(struct records *r, const char *alias, bool held)
{
    struct err e = ERR_INIT;
    assert_ok(try_hold(r, alias, held, &e), &e);
}

static bool held(struct records *r, const char *alias)
{
    const struct native_row *n = native_row_peek(r, alias);
    return n && n->hold.held;
}

static void lose(void)
{
    static const char *const files[] = {"records.db", "records.db-wal", "records.db-shm"};
    for (unsigned i = 0; i < 3; i++)
        unlink(in_dir(files[i]));
}

static bool there(const char *name)
{
    return access(in_dir(name), F_OK) == 0;
}

static void copy(const char *from, const char *to)
{
    char cmd[600];
    snprintf(cmd, sizeof cmd, "cp -p %s %s", in_dir(from), in_dir(to));
    assert_int_equal(system(cmd), 0);
}

/* ---- a loss ---- */

static void what_is_held_survives_the_database(void **state)
{
    (void)state;
    struct records *r = fresh();
    assert_true(records_holds_unknown(r)); /* of before: whether there was one nobody knows */
    make(r, "one");
    make(r, "two");
    make(r, "three");
    hold(r, "one", true);
    hold(r, "two", true);
    hold(r, "two", false);
    records_close(r);
    for (int i = 0; i < 2; i++) { /* also before it was seen again */
        lose();
        r = open_again();
        assert_true(news.created);
        assert_false(records_holds_unknown(r));
        assert_int_equal(count_native_row(r, NULL), 1);
        const struct native_row *n = native_row_peek(r, "one");
        assert_true(n && n->hold.held && native_row_awaited(n));
        assert_string_equal(n->hold.note, NOTE);
        assert_int_equal(n->hold.at_ns, 1700000000000000007);
        assert_string_equal(n->parent, "nightly-1");
        assert_string_equal(n->volume_id, "v.1");
        assert_string_equal(n->volume->name, "/srv/vm/a b.img");
        assert_int_equal(n->native->seq, 17);
        assert_int_equal(n->native->created_ns, 1700000000000000005);
        records_close(r);
    }
    r = open_again();
    hold(r, "one", false);
    records_close(r);
    lose();
    r = open_again();
    assert_int_equal(count_native_row(r, NULL), 0);
    assert_false(records_holds_unknown(r));
    done(r);
}

static void a_removed_one_is_held_no_longer(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    make(r, "one");
    hold(r, "one", true);
    assert_ok(native_row_delete(r, "one", &e), &e);
    records_close(r);
    lose();
    r = open_again();
    assert_int_equal(count_native_row(r, NULL), 0);
    done(r);
}

/* A copy of yesterday's database is put in its place; the file of today beside it. */
static void an_older_database_gets_the_holds_of_the_file(void **state)
{
    (void)state;
    struct records *r = fresh();
    make(r, "one");
    make(r, "two");
    hold(r, "one", true);
    records_close(r);
    copy("records.db", "old");
    r = open_again();
    make(r, "three");
    hold(r, "three", true);
    hold(r, "two", true);
    hold(r, "one", false);
    records_close(r);
    lose();
    copy("old", "records.db");
    r = open_again();
    assert_true(!held(r, "one") && held(r, "two") && held(r, "three"));
    assert_true(native_row_awaited(native_row_peek(r, "three")));
    assert_false(native_row_awaited(native_row_peek(r, "two")));
    done(r);
}

/* A copy of the directory without the file, or with one of before: the database has it all. */
static void an_older_or_lost_file_is_made_anew(void **state)
{
    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        struct records *r = fresh();
        make(r, "one");
        make(r, "two");
        hold(r, "two", true);
        copy("holds", "old");
        hold(r, "one", true);
        hold(r, "two", false);
        records_close(r);
        if (lost)
            unlink(in_dir("holds"));
        else
            copy("old", "holds");
        r = open_again();
        assert_true(held(r, "one") && !held(r, "two"));
        records_close(r);
        lose();
        r = open_again();
        assert_true(held(r, "one") && !held(r, "two"));
        done(r);
    }
}

/* What is left of it counts: rather one too many than one too few. And nothing is said to be known that is not. */
static void what_can_be_read_of_a_damaged_file_is_held(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    for (int lost = 0; lost < 2; lost++) {
        struct records *r = fresh();
        make(r, "one");
        make(r, "two");
        hold(r, "one", true);
        hold(r, "two", true);
        records_close(r);
        struct stat st;
        assert_int_equal(stat(in_dir("holds"), &st), 0);
        assert_int_equal(truncate(in_dir("holds"), st.st_size - 60), 0);
        if (lost)
            lose();
        r = open_again();
        assert_true(held(r, "one"));
        assert_int_equal(held(r, "two"), !lost);
        assert_int_equal(records_holds_unknown(r), 1); /* of before the first one */
        char cmd[300];
        snprintf(cmd, sizeof cmd, "ls %s/holds.corrupt-* >/dev/null", dir);
        assert_int_equal(system(cmd), 0);
        assert_string_equal(records_holds_failing(r), "");
        assert_ok(records_begin(r, &e), &e);
        assert_ok(records_commit(r, &e), &e);
        records_close(r);
        lose();
        r = open_again();
        assert_true(held(r, "one"));
        done(r);
    }
}

/* ---- a disk that refuses ---- */

/* It cannot be made: the name is taken by a directory. */
static void without_the_file_nothing_is_held(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    make(r, "one");
    make(r, "two");
    hold(r, "two", true);
    assert_int_equal(mkdir(in_dir("holds.new"), 0700), 0);
    assert_true(try_hold(r, "one", true, &e) < 0);
    assert_non_null(strstr(e.msg, "cannot write"));
    assert_non_null(strstr(e.msg, "/holds.new: "));
    assert_false(held(r, "one"));
    assert_string_equal(records_holds_failing(r), "");
    /* What is released needs no room. */
    hold(r, "two", false);
    assert_false(held(r, "two"));
    assert_non_null(strstr(records_holds_failing(r), "/holds.new"));
    make(r, "three"); /* nor does anything else */
    r = reopen(r);
    assert_false(held(r, "two"));
    assert_int_equal(rmdir(in_dir("holds.new")), 0);
    make(r, "four");
    assert_string_equal(records_holds_failing(r), "");
    records_close(r);
    lose();
    r = open_again();
    assert_int_equal(count_native_row(r, NULL), 0);
    done(r);
}

/* ---- a process that dies ---- */

static bool child_holds;
static void child(void)
{
    struct records *r;
    struct err e = ERR_INIT;
    if (records_open(&r, dir, NULL, &e) < 0)
        _exit(1);
    setenv("SNAPFERRY_CRASH_AT", getenv("POINT"), 1);
    if (try_hold(r, child_holds ? "one" : "two", child_holds, &e) < 0)
        _exit(1);
}

static void it_dies_at(const char *point)
{
    fflush(NULL);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setenv("POINT", point, 1);
        child();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* It is held, or not: by the database, and by the file when the database is lost after that. */
static void a_hold_that_dies_is_before_or_after(void **state)
{
    (void)state;
    static const char *const points[] = {"records-holds-new", "records-commit", "records-committed",
                                         "records-holds-named"};
    for (unsigned i = 0; i < 8; i++) {
        const bool after = i % 4 >= 2;
        child_holds = i < 4;
        struct records *r = fresh();
        make(r, "one");
        make(r, "two");
        hold(r, "two", true);
        records_close(r);
        it_dies_at(points[i % 4]);
        r = open_again();
        assert_int_equal(held(r, "one"), child_holds && after);
        assert_int_equal(held(r, "two"), child_holds || !after);
        assert_false(there("holds.new"));
        records_close(r);
        lose();
        r = open_again();
        assert_int_equal(held(r, "one"), child_holds && after);
        assert_int_equal(held(r, "two"), child_holds || !after);
        done(r);
    }
}

/* Whoever asked for it has an answer only when the file has its name. */
static void a_taking_over_that_dies_is_begun_again(void **state)
{
    (void)state;
    static const char *const points[] = {"records-created", "records-holds-new", "records-commit", "records-committed",
                                         "records-holds-named"};
    for (unsigned i = 0; i < 5; i++) {
        struct records *r = fresh();
        make(r, "one");
        hold(r, "one", true);
        records_close(r);
        lose();
        fflush(NULL);
        const pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            setenv("SNAPFERRY_CRASH_AT", points[i], 1);
            records_open(&r, dir, NULL, NULL);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        r = open_again();
        assert_true(held(r, "one"));
        assert_false(records_holds_unknown(r));
        done(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_held_survives_the_database),
        cmocka_unit_test(a_removed_one_is_held_no_longer),
        cmocka_unit_test(an_older_database_gets_the_holds_of_the_file),
        cmocka_unit_test(an_older_or_lost_file_is_made_anew),
        cmocka_unit_test(what_can_be_read_of_a_damaged_file_is_held),
        cmocka_unit_test(without_the_file_nothing_is_held),
        cmocka_unit_test(a_hold_that_dies_is_before_or_after),
        cmocka_unit_test(a_taking_over_that_dies_is_begun_again),
    };
    return cmocka_run_group_tests(tests, records_setup, records_teardown);
}
