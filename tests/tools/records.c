/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * records.c - writes and checks records in a state directory, for tests of full disks and killed processes
 *
 * usage: records STATE-DIR write FROM COUNT [MS]   each an operation, its intent and its native in one transaction;
 *                                              prints "N" once it is durable, "N CLASS" if it failed and goes on,
 *                                              MS milliseconds after the one before
 *        records STATE-DIR beside FROM COUNT   the same, committed in a thread
 *        records STATE-DIR check               all or nothing of each; prints "N rows" and news of the opening
 *        records STATE-DIR peek                the same by the read-only view
 *        records STATE-DIR hold SECONDS        keeps the lock
 */
#include "daemon/records/records.h"

#include "base/cleanup.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void print_log(enum log_level lvl, const char *line, void *arg)
{
    (void)lvl;
    (void)arg;
    fprintf(stderr, "%s\n", line);
}

static int complain(const struct err *e)
{
    fprintf(stderr, "%s\n", e->msg);
    return (int)e->cls;
}

static int commit_beside(struct records *r, struct err *e)
{
    struct pollfd p = {.fd = records_commit_fd(r), .events = POLLIN};
    int rc = records_commit_start(r, e);
    if (rc <= 0)
        return rc;
    while (poll(&p, 1, -1) != 1)
        continue;
    return records_commit_end(r, e);
}

static int write_one(struct records *r, long i, bool beside, struct err *e)
{
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    CLEANUP(native_row_clear) struct native_row n = ROW_INIT;
    char pad[4000];
    memset(pad, 'p', sizeof pad - 1);
    pad[sizeof pad - 1] = '\0';
    operation_init(&op);
    native_row_init(&n);
    str_setf(&op.id, "op-%ld", i);
    op.state = i % 2 ? OP_RUNNING : OP_COMPLETED;
    str_set(&op.description, pad);
    str_set(&n.id, op.id);
    n.state = NATIVE_CREATING;
    int rc = records_begin(r, e);
    if (rc < 0)
        return rc;
    if ((rc = operation_add(r, &op, e)) < 0 ||
        (rc = records_intent_add(r, op.id, "native", op.id, NULL, NULL, e)) < 0 || (rc = native_row_add(r, &n, e)) < 0)
        records_rollback(r);
    else
        rc = beside ? commit_beside(r, e) : records_commit(r, e);
    return rc;
}

static int write_many(struct records *r, long from, long n, long ms, bool beside)
{
    int worst = 0;
    for (long i = from; i < from + n; i++) {
        struct err e = ERR_INIT;
        if (write_one(r, i, beside, &e) < 0) {
            printf("%ld %s%s\n", i, err_class_name(e.cls), records_degraded(r) ? " degraded" : "");
            worst = complain(&e);
        } else {
            printf("%ld%s\n", i, records_degraded(r) ? " degraded" : "");
        }
        fflush(stdout);
        usleep((useconds_t)ms * 1000);
    }
    return worst;
}

struct check {
    struct records *r;
    uint64_t rows, halves;
};

static int count_intent(struct intent *i, void *arg)
{
    (void)i;
    ++*(unsigned *)arg;
    return 0;
}

static int check_row(const struct operation *op, void *arg)
{
    struct check *c = arg;
    unsigned intents = 0;
    struct err e = ERR_INIT;
    c->rows++;
    c->halves +=
        !native_row_peek(c->r, op->id) || records_intents(c->r, op->id, count_intent, &intents, &e) < 0 || intents != 1;
    return 0;
}

static int check(struct records *r, const struct records_news *news)
{
    struct err e = ERR_INIT;
    struct check c = {.r = r};
    uint64_t natives;
    if (operation_each(r, NULL, check_row, &c, &e) < 0 || native_row_count(r, NULL, &natives, &e) < 0)
        return complain(&e);
    printf("%llu rows%s%s\n", (unsigned long long)c.rows, news && news->recovered ? ", recovered" : "",
           news && news->created ? ", created" : "");
    return c.halves || natives != c.rows;
}

int main(int argc, char **argv)
{
    struct records *r;
    struct records_news news;
    struct err e = ERR_INIT;
    log_to(print_log, NULL);
    if (argc < 3)
        return ERR_USAGE;
    bool peek = strcmp(argv[2], "peek") == 0;
    int rc = peek ? records_open_read_only(&r, argv[1], &e) : records_open(&r, argv[1], &news, &e);
    if (rc < 0)
        return complain(&e);
    int ret = ERR_USAGE;
    if (strcmp(argv[2], "write") == 0 && (argc == 5 || argc == 6))
        ret = write_many(r, atol(argv[3]), atol(argv[4]), argc == 6 ? atol(argv[5]) : 0, false);
    else if (strcmp(argv[2], "beside") == 0 && argc == 5)
        ret = write_many(r, atol(argv[3]), atol(argv[4]), 0, true);
    else if (peek || strcmp(argv[2], "check") == 0)
        ret = check(r, peek ? NULL : &news);
    else if (strcmp(argv[2], "hold") == 0 && argc == 4) {
        puts("held");
        fflush(stdout);
        sleep((unsigned)atoi(argv[3]));
        ret = 0;
    }
    records_close(r);
    return ret;
}
