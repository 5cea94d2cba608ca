/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * snapferry-rbd.c - images of Ceph for snapferryd: lists, snapshots, what changed, and a server of their data
 *
 * A program of its own, so that librbd with its threads and memory is in no other process, and in a package of its own.
 * What it prints is JSON (changed: text, see io/rbd/commands.h). Exit code 0, or 1 with {"class", "errno", "message",
 * "hint"} as its last line.
 */
#include "io/rbd/commands.h"

#include "base/cleanup.h"

#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] = "usage: snapferry-rbd [--config FILE] [--user NAME] COMMAND\n"
                            "       snapferry-rbd --version | --help\n"
                            "\n"
                            "  report PATTERN...                          images and their snapshots\n"
                            "  create POOL NAMESPACE ID SNAPSHOT KEY      metadata (standard input), snapshot\n"
                            "  remove POOL NAMESPACE ID SNAPSHOT KEY\n"
                            "  changed POOL NAMESPACE ID FROM TO          numbers of snapshots\n"
                            "  serve POOL NAMESPACE ID NUMBER             NBD, on the socket that is standard input\n"
                            "\n"
                            "  make POOL NAMESPACE NAME KEY               a new image to restore into: metadata\n"
                            "                                             (standard input)\n"
                            "  claim POOL NAMESPACE ID KEY                the same of an image that exists\n"
                            "  fill POOL NAMESPACE ID KEY SNAPSHOT        NBD, for writing, as serve\n"
                            "  place POOL NAMESPACE ID KEY NAME DONE      a new image gets its name\n"
                            "  settle POOL NAMESPACE ID KEY SNAPSHOT DONE one that existed is complete\n"
                            "  revert POOL NAMESPACE ID KEY SNAPSHOT      and is rolled back\n"
                            "  discard POOL NAMESPACE NAME KEY            a new image is removed\n"
                            "\n"
                            "Started by snapferryd. See snapferry.ini(5), driver rbd.\n";

static int number(const char *text, uint64_t *ret, struct err *e)
{
    char *end;
    errno = 0;
    *ret = strtoull(text, &end, 10);
    return *text < '0' || *text > '9' || *end || errno
               ? err_set(e, ERR_USAGE, EINVAL, "\"%.64s\" is no number of a snapshot", text)
               : 0;
}

static int do_report(const struct cluster *c, char **a, struct err *e)
{
    json_t *j;
    int rc = report_make(c, a, &j, e);
    if (rc < 0)
        return rc;
    CLEANUP_FREE char *text = json_dumps(j, JSON_COMPACT);
    json_decref(j);
    return text ? puts(text) < 0 ? -EPIPE : 0 : err_nomem(e);
}

static int do_create(const struct cluster *c, char **a, struct err *e)
{
    json_t *tag = json_loadf(stdin, JSON_REJECT_DUPLICATES, NULL);
    int rc = json_is_object(tag) ? snapshot_create(c, (const char *const *)a, a[3], a[4], tag, e)
                                 : err_set(e, ERR_USAGE, EINVAL, "the metadata on standard input are no object");
    json_decref(tag);
    return rc;
}

static int do_remove(const struct cluster *c, char **a, struct err *e)
{
    return snapshot_remove(c, (const char *const *)a, a[3], a[4], e);
}

static int do_changed(const struct cluster *c, char **a, struct err *e)
{
    uint64_t from, to;
    int rc = number(a[3], &from, e);
    if (rc == 0)
        rc = number(a[4], &to, e);
    return rc < 0 ? rc : changes_print(c, (const char *const *)a, from, to, e);
}

/* "ready" when it can be read; the output is closed then. */
static int do_serve(const struct cluster *c, char **a, struct err *e)
{
    struct image x = {.rbd = NULL};
    uint64_t snap;
    int rc = number(a[3], &snap, e);
    if (rc == 0)
        rc = ceph_image_open(&x, c, a[0], a[1], a[2], false, e);
    if (rc == 0)
        rc = ceph_image_has_snap(&x, snap, e);
    if (rc == 0)
        rc = ceph_image_at(&x, snap, e);
    if (rc == 0) {
        puts("ready");
        fclose(stdout);
        rc = snapshot_serve(&x, snap, STDIN_FILENO, e);
        _exit(rc < 0); /* nothing of it is worth waiting for Ceph */
    }
    ceph_image_close(&x);
    return rc;
}

typedef int tagging_fn(const struct cluster *c, const char *const image[3], const char *key, json_t *tag,
                       struct err *e);

static int with_tag(const struct cluster *c, char **a, tagging_fn *fn, struct err *e)
{
    json_t *tag = json_loadf(stdin, JSON_REJECT_DUPLICATES, NULL);
    int rc = json_is_object(tag) ? fn(c, (const char *const *)a, a[3], tag, e)
                                 : err_set(e, ERR_USAGE, EINVAL, "the metadata on standard input are no object");
    json_decref(tag);
    return rc;
}

static int do_make(const struct cluster *c, char **a, struct err *e)
{
    return with_tag(c, a, target_make, e);
}

static int do_claim(const struct cluster *c, char **a, struct err *e)
{
    return with_tag(c, a, target_claim, e);
}

static bool is_serving;

static void say_ready(void)
{
    puts("ready");
    fclose(stdout);
    is_serving = true;
}

/* The image is closed in good order: its lock and its watch end with it. */
static int do_fill(const struct cluster *c, char **a, struct err *e)
{
    int rc = target_fill(c, (const char *const *)a, a[3], a[4], STDIN_FILENO, say_ready, e);
    if (!is_serving)
        return rc;
    struct cluster mine = *c;
    cluster_close(&mine);
    _exit(rc < 0);
}

static int do_place(const struct cluster *c, char **a, struct err *e)
{
    return target_place(c, (const char *const *)a, a[3], a[4], a[5], e);
}

static int do_settle(const struct cluster *c, char **a, struct err *e)
{
    return target_settle(c, (const char *const *)a, a[3], a[4], a[5], e);
}

static int do_revert(const struct cluster *c, char **a, struct err *e)
{
    return target_revert(c, (const char *const *)a, a[3], a[4], e);
}

static int do_discard(const struct cluster *c, char **a, struct err *e)
{
    return target_discard(c, (const char *const *)a, a[3], e);
}

static const struct command {
    const char *name;
    int least, most;
    int (*run)(const struct cluster *c, char **a, struct err *e);
} commands[] = {{"report", 1, 4096, do_report}, {"create", 5, 5, do_create}, {"remove", 5, 5, do_remove},
                {"changed", 5, 5, do_changed},  {"serve", 4, 4, do_serve},   {"make", 4, 4, do_make},
                {"claim", 4, 4, do_claim},      {"fill", 5, 5, do_fill},     {"place", 6, 6, do_place},
                {"settle", 6, 6, do_settle},    {"revert", 5, 5, do_revert}, {"discard", 4, 4, do_discard}};

static const struct command *command_of(int n, char **a)
{
    for (size_t i = 0; n > 0 && i < sizeof commands / sizeof *commands; i++)
        if (strcmp(commands[i].name, a[0]) == 0 && n - 1 >= commands[i].least && n - 1 <= commands[i].most)
            return &commands[i];
    return NULL;
}

static int failed(const struct err *e)
{
    json_t *j =
        json_pack("{s:i, s:i, s:s, s:s}", "class", (int)e->cls, "errno", e->sys, "message", e->msg, "hint", e->hint);
    CLEANUP_FREE char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
    json_decref(j);
    puts(text ? text : "{}");
    return 1;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                            {"user", required_argument, NULL, 'u'},
                                            {"version", no_argument, NULL, 'V'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    const char *config = NULL, *user = NULL;
    struct cluster c;
    struct err e = ERR_INIT;
    for (int o; (o = getopt_long(argc, argv, "+", options, NULL)) != -1;) {
        switch (o) {
        case 'c':
            config = optarg;
            break;
        case 'u':
            user = optarg;
            break;
        case 'V':
            printf("snapferry-rbd %s\n", SNAPFERRY_VERSION);
            return 0;
        case 'h':
            fputs(usage, stdout);
            return 0;
        default:
            fputs(usage, stderr);
            return 2;
        }
    }
    const struct command *k = command_of(argc - optind, argv + optind);
    if (!k) {
        fputs(usage, stderr);
        return 2;
    }
    int rc = cluster_open(&c, config, user, &e);
    if (rc == 0)
        rc = k->run(&c, argv + optind + 1, &e);
    if (rc < 0)
        failed(&e);
    fflush(stdout);
    cluster_close(&c);
    return rc < 0;
}
