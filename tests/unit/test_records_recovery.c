/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A records database that is damaged, older, newer, or whose process died: what is opened then. */
#include "tests/unit/records.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ROWS 400

static void fill(struct records *r, unsigned n)
{
    struct err e = ERR_INIT;
    char id[24], pad[1200];
    memset(pad, 'x', sizeof pad - 1);
    pad[sizeof pad - 1] = '\0';
    assert_ok(records_begin(r, &e), &e);
    for (unsigned i = 0; i < n; i++) {
        snprintf(id, sizeof id, "op-%04u", i);
        CLEANUP(operation_clear) struct operation a = make_operation(id, i % 4 ? OP_COMPLETED : OP_RUNNING, NULL);
        a.attempt = i;
        str_set(&a.description, pad);
        assert_ok(operation_add(r, &a, &e), &e);
        if (i % 10 == 0)
            assert_ok(records_intent_add(r, id, "native", id, NULL, NULL, &e), &e);
    }
    assert_ok(records_counter_add(r, "ops", NULL, 5, &e), &e);
    assert_ok(records_commit(r, &e), &e);
}

static off_t size_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? st.st_size : -1;
}

static void scribble(const char *name, off_t at, const void *bytes, size_t n)
{
    CLEANUP_CLOSE int fd = open(in_dir(name), O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, n, at), n);
}

/* Files whose name starts so. */
static unsigned files(const char *start)
{
    CLEANUP_CLOSEDIR DIR *d = opendir(dir);
    unsigned n = 0;
    struct dirent *de;
    assert_non_null(d);
    while ((de = readdir(d)))
        n += strncmp(de->d_name, start, strlen(start)) == 0;
    return n;
}

/* Page that holds the table leaf with row number `k` in its order. */
static unsigned leaf_page(struct records *r, const char *table, unsigned k)
{
    char sql[200];
    snprintf(sql, sizeof sql, "SELECT pageno FROM dbstat WHERE name='%s' AND pagetype='leaf' LIMIT 1 OFFSET %u", table,
             k);
    return (unsigned)number(r, sql);
}

struct tally {
    unsigned n, bad;
};
static int tally_row(const struct operation *op, void *arg)
{
    struct tally *t = arg;
    char id[24];
    snprintf(id, sizeof id, "op-%04d", (int)op->attempt);
    t->bad += strcmp(id, op->id) != 0 || op->state != (op->attempt % 4 ? OP_COMPLETED : OP_RUNNING);
    t->n++;
    return 0;
}
static struct tally tally(struct records *r)
{
    struct tally t = {0, 0};
    struct err e = ERR_INIT;
    assert_ok(operation_each(r, NULL, tally_row, &t, &e), &e);
    return t;
}

static int one_more(struct intent *i, void *arg)
{
    (void)i;
    ++*(unsigned *)arg;
    return 0;
}
static unsigned intents(struct records *r)
{
    unsigned n = 0;
    struct err e = ERR_INIT;
    assert_ok(records_intents(r, NULL, one_more, &n, &e), &e);
    return n;
}

static void check_usable(struct records *r)
{
    struct err e = ERR_INIT;
    CLEANUP(operation_clear) struct operation a = make_operation("after", OP_QUEUED, NULL);
    assert_ok(operation_add(r, &a, &e), &e);
    assert_ok(operation_delete(r, "after", &e), &e);
    char text[64];
    snprintf(text, sizeof text, "%lld",
             (long long)number(r, "SELECT count(*) FROM pragma_integrity_check WHERE "
                                  "integrity_check='ok'"));
    assert_string_equal(text, "1");
}

/* ---- damage at rest ---- */

static const uint8_t junk[64] = {0xff, 0x13, 0xff};

/* One way back: set aside, a new one is empty, its numbers are above those of the old one (storage and repository have
 * the rest). */
static void a_damaged_database_is_set_aside(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    fill(r, ROWS);
    uint64_t next = r->next_seq;
    unsigned page = leaf_page(r, "operations", 20);
    records_close(r);
    scribble("records.db", (off_t)(page - 1) * 4096, junk, sizeof junk);
    r = open_again();
    assert_true(news.recovered && !news.created);
    assert_non_null(strstr(news.text, "corrupt"));
    assert_non_null(strstr(news.text, "records.db.corrupt-"));
    assert_int_equal(files("records.db.corrupt-"), 1);
    assert_int_equal(tally(r).n, 0);
    assert_int_equal(intents(r), 0);
    CLEANUP(operation_clear) struct operation n = make_operation("n", OP_QUEUED, NULL);
    assert_ok(operation_add(r, &n, &e), &e);
    assert_true(n.seq > next + 1000); /* numbers of lost rows are not given again */
    assert_ok(operation_delete(r, "n", &e), &e);
    check_usable(r);
    r = reopen(r);
    assert_false(news.recovered);
    done(r);
}

static void an_index_that_lies_is_found(void **state)
{
    (void)state;
    struct records *r = fresh();
    fill(r, ROWS);
    exec(r, "PRAGMA writable_schema=ON");
    sqlite3_db_config(r->writer.db, SQLITE_DBCONFIG_DEFENSIVE, 0, NULL);
    exec(r, "PRAGMA writable_schema=ON");
    exec(r, "UPDATE sqlite_schema SET rootpage=(SELECT rootpage FROM sqlite_schema WHERE name='jobs_id') WHERE "
            "name='operations_id'");
    records_close(r);
    r = open_again();
    assert_true(news.recovered);
    check_usable(r);
    done(r);
}

/* A database that is too large to be checked first: rows that are needed are read at start, the others beside the work.
 */
static void a_large_database_is_checked_beside_the_work(void **state)
{
    (void)state;
    records_check_max = 0;
    for (int where = 0; where < 3; where++) {
        struct err e = ERR_INIT;
        struct records *r = fresh();
        fill(r, ROWS);
        unsigned page = 0, live = number(r, "SELECT count(*) FROM operations WHERE state='Running'");
        if (where == 1) /* a leaf of rows, among them live ones */
            page = leaf_page(r, "operations", 20);
        else if (where == 2) {
            exec(r, "UPDATE operations SET state='Completed'");
            page = leaf_page(r, "operations", 20);
        }
        records_close(r);
        if (page)
            scribble("records.db", (off_t)(page - 1) * 4096, junk, sizeof junk);
        r = open_again();
        assert_int_equal(news.recovered, where == 1);
        if (where == 1) {
            assert_int_equal(tally(r).n, 0);
            done(r);
            continue;
        }
        for (int i = 0; i < 500 && r->integrity && records_recoveries(r) == 0; i++) {
            CLEANUP(operation_clear) struct operation a = ROW_INIT;
            operation_get(r, "none", &a, &e);
            usleep(10000);
        }
        assert_null(r->integrity);
        assert_int_equal(records_recoveries(r), where == 2);
        if (where == 0) {
            assert_int_equal(tally(r).n, ROWS);
            assert_int_equal(count_operation(r, &(struct operation_filter){.live = true}), live);
        }
        check_usable(r);
        done(r);
    }
    records_check_max = RECORDS_CHECK_MAX;
}

/* It ends with the records, however much there is to read. */
static void a_check_ends_when_the_records_are_closed(void **state)
{
    (void)state;
    struct records *r = fresh();
    fill(r, ROWS);
    records_close(r);
    records_check_max = 0;
    for (int i = 0; i < 20; i++) {
        r = open_again();
        usleep((useconds_t)i * 200);
        records_close(r);
    }
    records_check_max = RECORDS_CHECK_MAX;
}

static void what_is_no_database_at_all(void **state)
{
    (void)state;
    static const char *const texts[] = {"hello", "SQLite format 3", ""};
    for (int i = 0; i < 5; i++) {
        struct records *r = fresh();
        fill(r, 50);
        if (i == 4)
            records_abandon(r); /* the log is not empty, the database is */
        else
            records_close(r);
        if (i < 3) {
            FILE *f = fopen(in_dir("records.db"), "w");
            fputs(texts[i], f);
            for (int k = 0; texts[i][0] && k < 9000; k++)
                fputc(k * 7, f);
            fclose(f);
        } else {
            assert_return_code(truncate(in_dir("records.db"), i == 3 ? 6000 : 0), errno);
        }
        r = open_again();
        assert_true(i == 2 ? news.created && !news.recovered : news.recovered && !news.created);
        check_usable(r);
        assert_int_equal(files("records.db.corrupt-"), i == 2 ? 0 : i == 4 ? 2 : 1);
        done(r);
    }
}

/* Whatever the bytes are, opening ends, and with something that works. */
static void random_damage(void **state)
{
    (void)state;
    struct records *r = fresh();
    fill(r, 60);
    r = reopen(r);
    exec(r, "UPDATE operations SET wake_ns=5 WHERE seq % 7 = 0");
    records_abandon(r);
    char good[200], cmd[500];
    snprintf(good, sizeof good, "%s-good", dir);
    snprintf(cmd, sizeof cmd, "cp -r %s %s", dir, good);
    assert_int_equal(system(cmd), 0);
    unsigned recovered = 0;
    for (uint64_t seed = 0; seed < 150; seed++) {
        uint64_t s = seed;
        new_dir();
        snprintf(cmd, sizeof cmd, "cp -r %s %s", good, dir);
        assert_int_equal(system(cmd), 0);
        const char *name = seed % 3 ? "records.db" : "records.db-wal";
        off_t size = size_of(in_dir(name));
        if (seed % 5 == 4)
            assert_return_code(truncate(in_dir(name), (off_t)(splitmix64(&s) % (uint64_t)size)), errno);
        for (unsigned k = 0; size && k < 1 + seed % 40; k++) {
            uint64_t x = splitmix64(&s);
            uint8_t byte = (uint8_t)x;
            scribble(name, (off_t)((x >> 8) % (seed % 2 ? 4096 : (uint64_t)size)), &byte, 1);
        }
        struct err e = ERR_INIT;
        int rc = records_open(&r, dir, &news, &e);
        if (rc < 0) {
            assert_int_equal(e.cls, ERR_FORMAT); /* the version itself was hit */
            continue;
        }
        recovered += news.recovered;
        tally(r);
        intents(r);
        if (!r->noted.corrupt)
            check_usable(r);
        records_close(r);
        snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
        assert_int_equal(system(cmd), 0);
    }
    assert_true(recovered > 20);
}

/* ---- damage while running ---- */

/* What is not finished is in memory, and goes into the new database. */
static void damage_met_while_running(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    fill(r, ROWS);
    CLEANUP(native_row_clear) struct native_row n = make_native_row("alias", NATIVE_PRESENT, "{\"hold\":true}");
    assert_ok(native_row_add(r, &n, &e), &e);
    r = reopen(r); /* all in the database, nothing in its cache */
    unsigned page = leaf_page(r, "operations", 20);
    assert_ok(records_counter_add(r, "ops", NULL, 2, &e), &e);
    uint64_t next = r->next_seq;
    sqlite3_db_release_memory(r->writer.db);
    scribble("records.db", (off_t)(page - 1) * 4096, junk, sizeof junk);
    struct tally t = {0, 0};
    assert_int_equal(operation_each(r, NULL, tally_row, &t, &e), -EBADMSG);
    assert_int_equal(e.cls, ERR_DAMAGE);
    assert_int_equal(records_recoveries(r), 0);
    logged = 0;
    t = tally(r); /* the next call finds it replaced */
    assert_int_equal(records_recoveries(r), 1);
    assert_int_equal(logged, 1);
    assert_non_null(strstr(last_line, "in memory"));
    assert_int_equal(t.n, ROWS / 4);
    assert_int_equal(t.bad, 0);
    assert_int_equal(intents(r), ROWS / 10);
    assert_true(native_row_peek(r, "alias")->hold.held);
    assert_true(r->next_seq >= next);
    check_usable(r);
    r = reopen(r);
    assert_false(news.recovered);
    assert_int_equal(tally(r).n, ROWS / 4);
    assert_int_equal(intents(r), ROWS / 10);
    assert_true(native_row_peek(r, "alias")->hold.held);
    assert_int_equal(r->counter_n, 1);
    assert_true(r->counters[0]->value == 7);
    done(r);
}

/* One of each in a transaction; what cannot be written is met by the commit at the latest. */
static void write_each(struct records *r)
{
    struct err e = ERR_INIT;
    CLEANUP(operation_clear) struct operation o = make_operation("op-x", OP_QUEUED, NULL);
    CLEANUP(backup_clear) struct backup b = make_backup("b-x", BACKUP_QUEUED, NULL);
    CLEANUP(native_row_clear) struct native_row n = make_native_row("n-x", NATIVE_PRESENT, NULL);
    CLEANUP(volume_row_clear) struct volume_row v = make_volume_row("v-x", VOL_KNOWN, NULL);
    CLEANUP(job_run_clear) struct job_run j = make_job_run("j-x", JOB_NONE, NULL);
    if (records_begin(r, &e) < 0)
        return;
    operation_add(r, &o, &e);
    backup_add(r, &b, &e);
    native_row_add(r, &n, &e);
    volume_row_add(r, &v, &e);
    job_run_add(r, &j, &e);
    records_intent_add(r, "op-x", "native", "i-x", NULL, NULL, &e);
    records_counter_add(r, "ops", NULL, 2, &e);
    records_commit(r, &e);
}

/* A table that is missing is damage like any other, at start and while running. */
static void a_missing_table_is_damage(void **state)
{
    (void)state;
    static const char *const tables[] = {"backups", "counter_names", "counter_values", "intents",   "jobs",
                                         "meta",    "natives",       "operations",     "set_aside", "volumes"};
    struct records *r = fresh();
    assert_int_equal(number(r, "SELECT count(*) FROM sqlite_schema WHERE type='table'"), 10);
    done(r);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        char sql[64];
        snprintf(sql, sizeof sql, "DROP TABLE %s", tables[i]);
        r = fresh();
        fill(r, 40);
        exec(r, sql);
        r = reopen(r);
        assert_true(news.recovered);
        assert_non_null(strstr(news.text, tables[i]));
        assert_int_equal(files("records.db.corrupt-"), 1);
        check_usable(r);
        done(r);

        if (!strcmp(tables[i], "set_aside") || !strcmp(tables[i], "counter_names")) /* not written in these */
            continue;
        r = fresh();
        fill(r, 40);
        r = reopen(r);
        sqlite3 *other;
        assert_int_equal(sqlite3_open(in_dir("records.db"), &other), SQLITE_OK);
        assert_int_equal(sqlite3_exec(other, sql, NULL, NULL, NULL), SQLITE_OK);
        sqlite3_close(other);
        write_each(r);
        write_each(r); /* finds it replaced */
        assert_int_equal(records_recoveries(r), 1);
        assert_non_null(operation_peek(r, "op-x"));
        check_usable(r);
        r = reopen(r);
        assert_false(news.recovered);
        assert_int_equal(intents(r), 5);
        done(r);
    }
}

static void a_transaction_that_meets_damage_is_undone(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct records *r = fresh();
    fill(r, ROWS);
    r = reopen(r);
    unsigned page = leaf_page(r, "operations", 20);
    sqlite3_db_release_memory(r->writer.db);
    scribble("records.db", (off_t)(page - 1) * 4096, junk, sizeof junk);
    assert_ok(records_begin(r, &e), &e);
    CLEANUP(backup_clear) struct backup a = make_backup("in-vain", BACKUP_QUEUED, NULL);
    assert_ok(backup_add(r, &a, &e), &e);
    struct tally t = {0, 0};
    assert_true(operation_each(r, NULL, tally_row, &t, &e) < 0);
    assert_int_equal(backup_add(r, &a, &e) < 0, 1);
    assert_int_equal(records_commit(r, &e), -ECANCELED);
    assert_int_equal(count_backup(r, NULL), 0);
    assert_int_equal(records_recoveries(r), 1);
    check_usable(r);
    done(r);
}

static void few_damaged_ones_are_kept(void **state)
{
    (void)state;
    struct records *r = fresh();
    fill(r, 20);
    for (int i = 0; i < 6; i++) {
        unsigned page = leaf_page(r, "operations", 1);
        records_close(r);
        scribble("records.db", (off_t)(page - 1) * 4096, junk, sizeof junk);
        r = open_again();
        assert_true(news.recovered);
        fill(r, 20);
    }
    assert_int_equal(files("records.db.corrupt-"), RECORDS_CORRUPT_KEPT);
    done(r);
}

/* ---- a process that died ---- */

/* Runs fn in a child that dies at a crash point; false if it never got there. */
static bool dies_at(const char *point, void (*fn)(void))
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setenv("SNAPFERRY_CRASH_AT", point, 1);
        fn();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

static void child_opens(void)
{
    struct records *r;
    struct err e = ERR_INIT;
    if (records_open(&r, dir, NULL, &e) < 0)
        _exit(1);
}

static void child_recovers(void)
{
    struct records *r;
    struct err e = ERR_INIT;
    if (records_open(&r, dir, NULL, &e) < 0)
        _exit(1);
    r->noted.corrupt = true;
    if (records_ready(r, &e) < 0)
        _exit(1);
}

/* At start nothing is kept; while it runs all that was in memory, from the moment on at which the change is decided. */
static void a_replacement_that_dies_is_finished(void **state)
{
    (void)state;
    static const char *const points[] = {"records-new", "records-rebuilt", "records-log-aside", "records-aside",
                                         "records-swapped"};
    for (size_t i = 0; i < 10; i++) {
        bool running = i >= 5;
        struct records *r = fresh();
        fill(r, ROWS);
        unsigned page = leaf_page(r, "operations", 20);
        r = reopen(r);
        struct err e = ERR_INIT;
        CLEANUP(backup_clear) struct backup late = make_backup("late", BACKUP_QUEUED, NULL);
        assert_ok(backup_add(r, &late, &e), &e); /* in the log */
        records_abandon(r);
        if (!running)
            scribble("records.db", (off_t)(page - 1) * 4096, junk, sizeof junk);
        assert_true(dies_at(points[i % 5], running ? child_recovers : child_opens));
        r = open_again();
        assert_int_equal(news.recovered, running ? i != 5 && i != 9 : i != 4);
        struct tally t = tally(r);
        assert_int_equal(t.n, !running ? 0 : i == 5 ? ROWS : ROWS / 4);
        assert_int_equal(t.bad, 0);
        assert_int_equal(intents(r), running ? ROWS / 10 : 0);
        assert_int_equal(count_backup(r, NULL), running);
        assert_int_equal(files("records.db.corrupt-"), i == 5 ? 0 : 2); /* with its log */
        assert_int_equal(files("records.db.new"), i == 5 ? 1 : 0);      /* made anew when it is needed */
        assert_int_equal(files("records.db.rebuilt"), 0);
        check_usable(r);
        done(r);
    }
}

static void a_creation_that_dies_is_begun_again(void **state)
{
    (void)state;
    new_dir();
    assert_true(dies_at("records-created", child_opens));
    struct records *r = open_again();
    assert_true(news.created && !news.recovered);
    check_usable(r);
    done(r);
}

/* One transaction: an operation, its intent and its native, which belong together. */
static void add_three(struct records *r, unsigned i)
{
    struct err e = ERR_INIT;
    char id[24];
    snprintf(id, sizeof id, "op-%04u", i);
    CLEANUP(operation_clear) struct operation a = make_operation(id, i % 4 ? OP_COMPLETED : OP_RUNNING, NULL);
    CLEANUP(native_row_clear) struct native_row b = make_native_row(id, NATIVE_CREATING, NULL);
    a.attempt = i;
    if (records_begin(r, &e) < 0 || operation_add(r, &a, &e) < 0 ||
        records_intent_add(r, id, "native", id, NULL, NULL, &e) < 0 || native_row_add(r, &b, &e) < 0 ||
        records_commit(r, &e) < 0)
        _exit(1);
}
static void child_writes(void)
{
    struct records *r;
    struct err e = ERR_INIT;
    if (records_open(&r, dir, NULL, &e) < 0)
        _exit(1);
    for (unsigned i = 0; i < 20; i++)
        add_three(r, i);
}

/* E-04: records are before or after, never between; an intent is there with what it is for. */
static void a_commit_that_dies_is_before_or_after(void **state)
{
    (void)state;
    for (unsigned k = 1; k <= 20; k += 3)
        for (int after = 0; after < 2; after++) {
            char point[40];
            new_dir();
            snprintf(point, sizeof point, "%s:%u", after ? "records-committed" : "records-commit", k);
            assert_true(dies_at(point, child_writes));
            struct records *r = open_again();
            assert_false(news.recovered);
            unsigned want = after ? k : k - 1;
            struct tally t = tally(r);
            assert_true(t.n == want && t.bad == 0);
            assert_int_equal(intents(r), want);
            assert_int_equal(count_native_row(r, NULL), want);
            check_usable(r);
            done(r);
        }
}

/* ---- schemas ---- */

static const struct records_migration two_steps[] = {
    {RECORDS_SCHEMA, "ALTER TABLE natives ADD COLUMN pool TEXT NOT NULL DEFAULT 'none';"
                     "UPDATE natives SET pool = coalesce(json_extract(doc, '$.pool'), 'none')"},
    {RECORDS_SCHEMA + 1, "CREATE TABLE repositories(seq INTEGER PRIMARY KEY, id TEXT NOT NULL) STRICT"},
};
static const struct records_schema schema_later = {RECORDS_SCHEMA + 2, two_steps, 2},
                                   schema_hole = {RECORDS_SCHEMA + 2, &two_steps[1], 1};
static const struct records_migration broken[] = {{RECORDS_SCHEMA, "UPDATE natives SET state='x'; SELECT nonsense(1)"}};
static const struct records_schema schema_broken = {RECORDS_SCHEMA + 1, broken, 1};

static struct records *old_one(void)
{
    struct records *r = fresh();
    struct err e = ERR_INIT;
    fill(r, 30);
    CLEANUP(native_row_clear) struct native_row a = make_native_row("alias", NATIVE_PRESENT, "{\"pool\":\"vg0\"}");
    assert_ok(native_row_add(r, &a, &e), &e);
    return r;
}

static void check_migrated(void)
{
    struct records *r;
    struct err e = ERR_INIT;
    assert_ok(records_open_with(&r, dir, &schema_later, &news, &e), &e);
    assert_int_equal(number(r, "SELECT count(*) FROM natives WHERE pool='vg0'"), 1);
    assert_int_equal(number(r, "SELECT count(*) FROM repositories"), 0);
    assert_int_equal(number(r, "SELECT value FROM meta WHERE key='schema'"), RECORDS_SCHEMA + 2);
    assert_int_equal(tally(r).n, 30);
    check_usable(r);
    records_close(r);
}

static void child_migrates(void)
{
    struct records *r;
    struct err e = ERR_INIT;
    if (records_open_with(&r, dir, &schema_later, NULL, &e) < 0)
        _exit(1);
}

static void an_older_schema_is_migrated(void **state)
{
    (void)state;
    records_close(old_one());
    check_migrated();
    assert_true(news.migrated && !news.created && !news.recovered);
    assert_non_null(strstr(news.text, "records.db.v2"));
    struct stat st;
    assert_return_code(stat(in_dir("records.db.v2"), &st), errno);
    assert_int_equal(st.st_mode & 0777, 0600);
    check_migrated();
    assert_false(news.migrated);
    /* The copy is the old one, whole. */
    char was[128];
    snprintf(was, sizeof was, "%s", dir);
    char cmd[400];
    new_dir();
    snprintf(cmd, sizeof cmd, "mkdir -m 700 %s && cp %s/records.db.v2 %s/records.db", dir, was, dir);
    assert_int_equal(system(cmd), 0);
    struct records *r = open_again();
    assert_int_equal(tally(r).n, 30);
    assert_true(!news.recovered && !news.migrated);
    done(r);
}

static void a_migration_that_dies_is_begun_again(void **state)
{
    (void)state;
    static const char *const points[] = {"records-migrate-copied", "records-migrate-steps", "records-migrated"};
    for (size_t i = 0; i < 3; i++) {
        records_abandon(old_one());
        assert_true(dies_at(points[i], child_migrates));
        check_migrated();
        assert_int_equal(news.migrated, i < 2);
    }
}

static void a_migration_that_fails_changes_nothing(void **state)
{
    (void)state;
    struct records *r;
    struct err e = ERR_INIT;
    records_close(old_one());
    assert_true(records_open_with(&r, dir, &schema_broken, NULL, &e) < 0);
    assert_non_null(strstr(e.msg, "nonsense"));
    assert_int_equal(records_open_with(&r, dir, &schema_hole, NULL, &e), -ENOTSUP);
    assert_int_equal(e.cls, ERR_FORMAT);
    r = open_again();
    assert_int_equal(number(r, "SELECT count(*) FROM natives WHERE state='present'"), 1);
    assert_int_equal(number(r, "SELECT value FROM meta WHERE key='schema'"), RECORDS_SCHEMA);
    done(r);
}

/* A newer schema: one sentence, and not a byte or a file is changed. */
static void a_newer_schema_is_left_alone(void **state)
{
    (void)state;
    for (int with_log = 0; with_log < 2; with_log++) {
        struct records *r = old_one();
        struct err e = ERR_INIT;
        exec(r, "UPDATE meta SET value='3' WHERE key='schema'");
        if (with_log)
            records_abandon(r);
        else
            records_close(r);
        char cmd[400], before[200], after[200];
        snprintf(cmd, sizeof cmd, "cd %s && cat $(ls | grep -v -e -shm -e lock) | sha256sum && ls | grep -v -e -shm",
                 dir);
        FILE *p = popen(cmd, "r");
        before[fread(before, 1, sizeof before - 1, p)] = '\0';
        pclose(p);
        assert_int_equal(records_open(&r, dir, NULL, &e), -ENOTSUP);
        assert_int_equal(e.cls, ERR_FORMAT);
        assert_non_null(strstr(e.msg, "newer"));
        assert_true(e.hint[0]);
        p = popen(cmd, "r");
        after[fread(after, 1, sizeof after - 1, p)] = '\0';
        pclose(p);
        assert_string_equal(before, after);
        assert_int_equal(records_open_read_only(&r, dir, &e), -ENOTSUP);
    }
}

/* ---- reading beside the daemon ---- */

/* Runs a check in a child, as somebody who may read but not write if there is such a user. */
static int read_only_child(bool unprivileged, unsigned at_least, unsigned times)
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (unprivileged && (setgid(65534) < 0 || setuid(65534) < 0))
            _exit(9);
        for (unsigned i = 0; i < times; i++) {
            struct records *r;
            struct err e = ERR_INIT;
            if (records_open_read_only(&r, dir, &e) < 0) {
                fprintf(stderr, "%s\n", e.msg);
                _exit(1);
            }
            struct tally t = {0, 0};
            uint64_t natives, n = 0;
            if (operation_each(r, NULL, tally_row, &t, &e) < 0 || native_row_count(r, NULL, &natives, &e) < 0)
                _exit(2);
            struct operation_filter f = {.limit = 1};
            operation_count(r, &f, &n, &e);
            CLEANUP(backup_clear) struct backup a = make_backup("x", BACKUP_QUEUED, NULL);
            if (t.n < at_least || t.n != natives || t.bad)
                _exit(3);
            if (backup_add(r, &a, &e) != -EROFS || records_begin(r, &e) != -EROFS || prune_all(r, 0, 0, &e) != -EROFS ||
                records_intent_add(r, "o", "k", "n", NULL, NULL, &e) != -EROFS || e.cls != ERR_PERMISSION)
                _exit(4);
            records_close(r);
        }
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static void reading_while_the_daemon_writes(void **state)
{
    (void)state;
    struct records *r = fresh();
    for (unsigned i = 0; i < 20; i++)
        add_three(r, i);
    fflush(NULL);
    pid_t reader = fork();
    if (reader == 0) {
        /* Only its own copy: the parent's connection is not used in the child. */
        _exit(read_only_child(false, 20, 15));
    }
    int status = 0;
    unsigned i = 20;
    while (waitpid(reader, &status, WNOHANG) == 0 && i < 20000) {
        add_three(r, i++);
        if (i % 500 == 0)
            exec(r, "PRAGMA wal_checkpoint(TRUNCATE)");
        usleep(500); /* a busy daemon, not a benchmark */
    }
    if (i >= 20000)
        waitpid(reader, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_true(i > 21);
    done(r);
}

static void reading_after_the_daemon_crashed(void **state)
{
    (void)state;
    new_dir();
    assert_true(dies_at("records-committed:7", child_writes));
    assert_true(size_of(in_dir("records.db-wal")) > 0);
    bool root = geteuid() == 0;
    char cmd[400];
    if (root) {
        /* Somebody else may read, nobody may write. */
        snprintf(cmd, sizeof cmd,
                 "chmod 755 %s && chown -R 65534:65534 %s && chmod 400 %s/* && chmod 500 %s && rm -f %s/*-shm", base,
                 dir, dir, dir, dir);
        assert_int_equal(system(cmd), 0);
    }
    char list[300], before[300], after[300];
    snprintf(list, sizeof list, "cd %s && ls --time-style=full-iso -l && cat * | sha256sum", dir);
    FILE *p = popen(list, "r");
    before[fread(before, 1, sizeof before - 1, p)] = '\0';
    pclose(p);
    assert_int_equal(read_only_child(root, 7, 2), 0);
    p = popen(list, "r");
    after[fread(after, 1, sizeof after - 1, p)] = '\0';
    pclose(p);
    assert_string_equal(before, after);
}

static void reading_what_is_not_there_or_damaged(void **state)
{
    (void)state;
    struct records *r;
    struct err e = ERR_INIT;
    new_dir();
    assert_int_equal(records_open_read_only(&r, dir, &e), -ENOENT);
    assert_int_equal(e.cls, ERR_NOT_FOUND);
    r = fresh();
    fill(r, ROWS);
    unsigned page = leaf_page(r, "operations", 20);
    records_close(r);
    scribble("records.db", (off_t)(page - 1) * 4096, junk, sizeof junk);
    assert_int_equal(records_open_read_only(&r, dir, &e), -EBADMSG);
    assert_int_equal(e.cls, ERR_DAMAGE);
    assert_non_null(strstr(e.hint, "rebuilds"));
    assert_int_equal(files("records.db"), 1); /* the damaged one is left for the daemon */
}

/* A copy that a killed command has left: of some age, with files in it, locked by nobody. */
static int make_copy(char path[PATH_MAX], const char *name, int64_t age, bool locked)
{
    char file[PATH_MAX + 16];
    snprintf(path, PATH_MAX, "%s/%s", dir, name);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(file, sizeof file, "%s/records.db", path);
    close(open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    const struct timespec t[2] = {{.tv_sec = time(NULL) - age}, {.tv_sec = time(NULL) - age}};
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    if (locked)
        assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    return fd;
}

static void copies_that_were_left_are_removed(void **state)
{
    (void)state;
    char old[PATH_MAX], young[PATH_MAX], busy[PATH_MAX], other[PATH_MAX];
    struct err e = ERR_INIT;
    struct records *r = fresh();
    records_close(r);
    const int fds[] = {make_copy(old, "snapferry-records-copy-111111", 3600, false),
                       make_copy(young, "snapferry-records-copy-222222", 10, false),
                       make_copy(busy, "snapferry-records-copy-333333", 3600, true),
                       make_copy(other, "snapferry-records-444444", 3600, false)};
    setenv("TMPDIR", dir, 1);
    assert_int_equal(records_open_read_only(&r, dir, &e), 0);
    records_close(r);
    unsetenv("TMPDIR");
    assert_int_equal(access(old, F_OK), -1);
    assert_int_equal(access(young, F_OK), 0);
    assert_int_equal(access(busy, F_OK), 0);
    assert_int_equal(access(other, F_OK), 0);
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        close(fds[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_that_were_left_are_removed),
        cmocka_unit_test(a_damaged_database_is_set_aside),
        cmocka_unit_test(an_index_that_lies_is_found),
        cmocka_unit_test(a_large_database_is_checked_beside_the_work),
        cmocka_unit_test(a_check_ends_when_the_records_are_closed),
        cmocka_unit_test(what_is_no_database_at_all),
        cmocka_unit_test(random_damage),
        cmocka_unit_test(damage_met_while_running),
        cmocka_unit_test(a_missing_table_is_damage),
        cmocka_unit_test(a_transaction_that_meets_damage_is_undone),
        cmocka_unit_test(few_damaged_ones_are_kept),
        cmocka_unit_test(a_replacement_that_dies_is_finished),
        cmocka_unit_test(a_creation_that_dies_is_begun_again),
        cmocka_unit_test(a_commit_that_dies_is_before_or_after),
        cmocka_unit_test(an_older_schema_is_migrated),
        cmocka_unit_test(a_migration_that_dies_is_begun_again),
        cmocka_unit_test(a_migration_that_fails_changes_nothing),
        cmocka_unit_test(a_newer_schema_is_left_alone),
        cmocka_unit_test(reading_while_the_daemon_writes),
        cmocka_unit_test(reading_after_the_daemon_crashed),
        cmocka_unit_test(reading_what_is_not_there_or_damaged),
    };
    return cmocka_run_group_tests_name("records_recovery", tests, records_setup, records_teardown);
}
