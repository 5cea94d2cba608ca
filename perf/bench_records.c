/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench_records - what reading and writing the daemon's records costs
 *
 *   bench_records [--finished N] [--live N] [--dir DIR]
 *
 * Records are made in a directory below DIR (default $TMPDIR or /tmp) with N finished operations (default 20000) and N
 * live ones (1000) of 3 KB each. Then: opening; peeks, gets and saves of random operations, with 64 saves in each
 * transaction; commits of one save, in place and in a thread, and how many reads go on beside one; lists of finished
 * operations. On a file system in memory it is the cost without the disk.
 */
#include "base/cleanup.h"
#include "base/time.h"
#include "daemon/records/records.h"

#include <ftw.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BATCH 64

static struct records *records;
static unsigned long finished = 20000, live = 1000;
static uint64_t seed = 1;

static void must(int rc, const struct err *e)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "bench_records: %s\n", e->msg);
    exit(1);
}

static uint64_t some(uint64_t n)
{
    uint64_t z = seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    return (z ^ (z >> 31)) % n;
}

static void show(const char *what, double value, const char *unit)
{
    printf("%-60s %12.2f %s\n", what, value, unit);
}

/* ---- rows ---- */

static void add_one(unsigned long i, enum op_state state)
{
    static char pad[2400];
    CLEANUP(operation_clear) struct operation op;
    struct err e = ERR_INIT;
    memset(pad, 'p', sizeof pad - 1);
    operation_init(&op);
    str_setf(&op.id, "%s-%lu", state == OP_COMPLETED ? "old" : "op", i);
    str_setf(&op.parent, "nightly-%lu", i / 100);
    str_setf(&op.volume_id, "volume-%lu", i % 1000);
    str_set(&op.description, pad);
    op.kind = KIND_BACKUP;
    op.state = state;
    must(operation_add(records, &op, &e), &e);
}

static void fill(void)
{
    struct err e = ERR_INIT;
    for (unsigned long i = 0; i < finished + live; i++) {
        if (i % 1000 == 0)
            must(records_begin(records, &e), &e);
        add_one(i < finished ? i : i - finished, i < finished ? OP_COMPLETED : OP_RUNNING);
        if (i % 1000 == 999 || i + 1 == finished + live)
            must(records_commit(records, &e), &e);
    }
}

static const char *live_id(void)
{
    static char id[32];
    snprintf(id, sizeof id, "op-%lu", (unsigned long)some(live));
    return id;
}

static const char *finished_id(void)
{
    static char id[32];
    snprintf(id, sizeof id, "old-%lu", (unsigned long)some(finished));
    return id;
}

static void save_one(void)
{
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    struct err e = ERR_INIT;
    must(operation_get(records, live_id(), &op, &e), &e);
    op.attempt++;
    must(operation_save(records, &op, &e), &e);
}

/* ---- what is measured ---- */

static void measure_reads(void)
{
    const unsigned n = 100000, few = 5000;
    struct err e = ERR_INIT;
    int64_t at = mono_ns();
    for (unsigned i = 0; i < n; i++)
        must(operation_peek(records, live_id()) ? 0 : -1, &e);
    show("peek of a live operation", (double)(mono_ns() - at) / n / 1e3, "us");
    at = mono_ns();
    for (unsigned i = 0; i < n; i++) {
        CLEANUP(operation_clear) struct operation op = ROW_INIT;
        must(operation_get(records, live_id(), &op, &e), &e);
    }
    show("get of a live operation", (double)(mono_ns() - at) / n / 1e3, "us");
    at = mono_ns();
    for (unsigned i = 0; i < few && finished; i++) {
        CLEANUP(operation_clear) struct operation op = ROW_INIT;
        must(operation_get(records, finished_id(), &op, &e), &e);
    }
    show("get of a finished operation", (double)(mono_ns() - at) / few / 1e3, "us");
}

static void measure_writes(void)
{
    const unsigned rounds = 100, commits = 1000;
    struct err e = ERR_INIT;
    int64_t saving = 0, committing = 0, starting = 0;
    for (unsigned i = 0; i < rounds; i++) {
        int64_t at = mono_ns();
        must(records_begin(records, &e), &e);
        for (unsigned k = 0; k < BATCH; k++)
            save_one();
        saving += mono_ns() - at;
        at = mono_ns();
        must(records_commit(records, &e), &e);
        committing += mono_ns() - at;
    }
    show("get and save in a transaction of 64, each", (double)saving / rounds / BATCH / 1e3, "us");
    show("commit of 64 saves", (double)committing / rounds / 1e3, "us");
    int64_t at = mono_ns();
    for (unsigned i = 0; i < commits; i++)
        save_one();
    show("commits of one save", commits / ((double)(mono_ns() - at) / 1e9), "/s");
    at = mono_ns();
    for (unsigned i = 0; i < commits; i++) {
        struct pollfd p = {.fd = records_commit_fd(records), .events = POLLIN};
        must(records_begin(records, &e), &e);
        save_one();
        int64_t began = mono_ns();
        must(records_commit_start(records, &e), &e);
        starting += mono_ns() - began;
        poll(&p, 1, -1);
        must(records_commit_end(records, &e), &e);
    }
    show("commits of one save in a thread", commits / ((double)(mono_ns() - at) / 1e9), "/s");
    show("start of a commit in a thread", (double)starting / commits / 1e3, "us");
}

struct listed {
    unsigned long n, most;
};
static int list_one(const void *row, void *arg)
{
    struct listed *l = arg;
    (void)row;
    return ++l->n >= l->most;
}

static void measure_list(const char *what, struct row_filter f, unsigned long most)
{
    struct err e = ERR_INIT;
    struct listed l = {0, most};
    int64_t at = mono_ns();
    must(row_each(records, ROW_OPERATION, &f, list_one, &l, &e), &e);
    char text[120];
    snprintf(text, sizeof text, "%s (%lu)", what, l.n);
    show(text, (double)(mono_ns() - at) / 1e6, "ms");
}

static void measure_lists(int64_t recent_ns)
{
    struct err e = ERR_INIT;
    uint64_t n, last = operation_peek(records, "op-0")->seq;
    const struct operation_filter completed = {.state = OP_COMPLETED}, backup = {.parent = "nightly-7"};
    measure_list("first page of finished operations", (struct row_filter){.newest_first = true, .before = last}, 50);
    measure_list("a page in the middle",
                 (struct row_filter){.newest_first = true, .before = last - finished / 2, .limit = 50}, ULONG_MAX);
    measure_list("the operations of one backup", (struct row_filter){.parent = "nightly-7"}, ULONG_MAX);
    measure_list("changed since, which none was", (struct row_filter){.newest_first = true, .since_ns = recent_ns},
                 ULONG_MAX);
    measure_list("in a state that none has", (struct row_filter){.newest_first = true, .state = OP_FAILED}, ULONG_MAX);
    measure_list("all", (struct row_filter){.newest_first = true}, ULONG_MAX);
    int64_t at = mono_ns();
    must(operation_count(records, &completed, &n, &e), &e);
    show("count of a state", (double)(mono_ns() - at) / 1e6, "ms");
    at = mono_ns();
    must(operation_count(records, &backup, &n, &e), &e);
    show("count of one backup", (double)(mono_ns() - at) / 1e6, "ms");
}

/* ---- life ---- */

static int remove_entry(const char *path, const struct stat *st, int what, struct FTW *f)
{
    (void)st, (void)what, (void)f;
    return remove(path);
}

static void open_it(const char *dir, const char *what)
{
    struct err e = ERR_INIT;
    int64_t at = mono_ns();
    must(records_open(&records, dir, NULL, &e), &e);
    if (what)
        show(what, (double)(mono_ns() - at) / 1e6, "ms");
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"finished", required_argument, NULL, 'f'},
                                            {"live", required_argument, NULL, 'l'},
                                            {"dir", required_argument, NULL, 'd'},
                                            {NULL, 0, NULL, 0}};
    const char *at = getenv("TMPDIR");
    char dir[4096];
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 'f')
            finished = strtoul(optarg, NULL, 10);
        else if (c == 'l')
            live = strtoul(optarg, NULL, 10);
        else if (c == 'd')
            at = optarg;
        else
            return 2;
    }
    snprintf(dir, sizeof dir, "%s/bench-records-XXXXXX", at && *at ? at : "/tmp");
    if (!live || !mkdtemp(dir)) {
        fprintf(stderr, "bench_records: %s cannot be used\n", dir);
        return 2;
    }
    open_it(dir, NULL);
    fill();
    records_close(records);
    int64_t filled_ns = now_ns();
    open_it(dir, "opening");
    measure_reads();
    measure_lists(filled_ns);
    measure_writes();
    records_close(records);
    nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}
