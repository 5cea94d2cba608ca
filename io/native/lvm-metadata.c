/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lvm-metadata.c - the metadata snapshot of a thin pool
 *
 * The metadata of a pool that is in use can be read from a snapshot of them alone, the "held root", of which a pool has
 * one: who reserves it excludes all others, and who does not release it does so for ever, over reboots, too. Nothing in
 * it says whose it is; releasing that of another program would let it read blocks that are used for something else.
 * So a tag on the pool says before the reservation that we want it, and another one which block it is. The second one
 * is written by the shell that reserves, which nothing interrupts but the end of the machine: a process of ours may be
 * killed at any time and what it reserved is found by its number. Between these two commands a power failure leaves a
 * root of which it is not certain whose it is: then it is not released, and the error has the command.
 *
 * Crash points: lvm-metadata-intended, lvm-metadata-reserved, lvm-metadata-read (lvm-changed.c), lvm-metadata-released.
 */
#include "io/native/lvm.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SECTOR 512
/* How long another user of the metadata snapshot is waited for. Ours are known to end. */
#define OTHERS_S 30
#define OURS_S 240
#define TRIES 5

static const char dmsetup[] = "/usr/sbin/dmsetup";
static const char shell[] = "/bin/sh";

/* UUID, beginning of the tag, "VG/POOL": prints the number of the root. 3: it cannot be reserved; 4: not recorded, and
 * so released. */
static const char reserve_script[] = "dmsetup message --uuid \"$1\" 0 reserve_metadata_snap || exit 3\n"
                                     "set -f\n"
                                     "status=$(dmsetup status --noflush --uuid \"$1\")\n"
                                     "root=$(set -- $status; echo \"${7-}\")\n"
                                     "case $root in\n"
                                     "'' | *[!0-9]*) ;;\n"
                                     "*) if lvm lvchange --addtag \"$2$root\" \"$3\" >&2; then\n"
                                     "    echo \"$root\"; exit 0\n"
                                     "fi ;;\n"
                                     "esac\n"
                                     "dmsetup message --uuid \"$1\" 0 release_metadata_snap\n"
                                     "exit 4\n";
#define RESERVE_BUSY 3
/* UUID, number of the root. 5: another one is held, or none. */
static const char release_script[] = "set -f\n"
                                     "status=$(dmsetup status --noflush --uuid \"$1\") || exit 3\n"
                                     "root=$(set -- $status; echo \"${7-}\")\n"
                                     "[ \"$root\" = \"$2\" ] || exit 5\n"
                                     "dmsetup message --uuid \"$1\" 0 release_metadata_snap || exit 4\n";
#define RELEASE_OTHER 5

/* ---- device mapper ---- */

struct thin_status {
    uint64_t root; /* 0: none is held */
};

/* "0 1024000 thin-pool 1 12/1024 0/8000 - rw ...": the seventh is the held root (thin-provisioning.rst). */
static int status_read(const char *uuid, const char *pool, struct thin_status *ret, struct err *e)
{
    const char *const argv[] = {dmsetup, "status", "--noflush", "--uuid", uuid, NULL};
    CLEANUP_FREE char *out = NULL;
    char kind[16] = "", transaction[24] = "", used[48], root[24] = "", *end;
    int rc = lvm_tool_run("dmsetup status", argv, false, &out, NULL, NULL, e);
    if (rc < 0)
        return rc;
    if (sscanf(out, "%*u %*u %15s %23s %47s %*s %23s", kind, transaction, used, root) < 3 ||
        strcmp(kind, "thin-pool") != 0)
        return err_plain(e, ERR_SOURCE, EIO, "the status of thin pool %s cannot be read: %.100s%.20s", pool, kind,
                         strcmp(transaction, "Fail") == 0 ? " has failed" : "");
    errno = 0;
    ret->root = strcmp(root, "-") == 0 ? 0 : strtoull(root, &end, 10);
    if (strcmp(root, "-") != 0 && (root[0] < '1' || root[0] > '9' || *end || errno))
        return err_plain(e, ERR_SOURCE, EIO, "the status of thin pool %s has no metadata snapshot: \"%.20s\"", pool,
                         root);
    return 0;
}

/* "0 1024000 thin-pool 253:0 253:1 128 0 ...": metadata, data, sectors of a block. */
static int table_read(struct lvm_metadata *m, struct err *e)
{
    const char *const argv[] = {dmsetup, "table", "--uuid", m->dm_uuid, NULL};
    CLEANUP_FREE char *out = NULL;
    unsigned major, minor;
    uint64_t sectors;
    int rc = lvm_tool_run("dmsetup table", argv, false, &out, NULL, NULL, e);
    if (rc < 0)
        return rc;
    if (sscanf(out, "%*u %*u thin-pool %u:%u %*u:%*u %" SCNu64, &major, &minor, &sectors) != 3 || !sectors ||
        sectors > UINT32_MAX)
        return err_plain(e, ERR_SOURCE, EIO, "the table of thin pool %s cannot be read", m->pool);
    snprintf(m->device, sizeof m->device, "/dev/block/%u:%u", major, minor);
    m->block_bytes = sectors * SECTOR;
    return 0;
}

/* ---- what is recorded ---- */

static bool is_running(const struct lvm_reserved *x)
{
    int fd = process_open_running(&x->owner);
    if (fd >= 0)
        close(fd);
    return fd >= 0 || fd != -ESRCH; /* unknown is not gone */
}

static int tag_change(const struct lvm_metadata *m, const char *how, const char *tag, const char *what, struct err *e)
{
    const char *const args[] = {"lvchange", how, tag, m->pool, NULL};
    return lvm_change(what, args, e);
}

static int describe(struct lvm_metadata *m, const struct lvm_lv *pool)
{
    const char *name = strrchr(pool->dm_path, '/');
    memset(m, 0, sizeof *m);
    snprintf(m->pool, sizeof m->pool, "%s/%s", pool->vg, pool->name);
    lvm_dm_uuid(pool, "-tpool", m->dm_uuid);
    snprintf(m->dm_name, sizeof m->dm_name, "%.500s-tpool", name ? name + 1 : pool->name);
    return 0;
}

struct records {
    const char *node, *vg_uuid, *alias; /* alias NULL: any */
    struct lvm_reserved found[16];
    unsigned n;
};

/* Both tags of a reservation are one record: that with a number counts. */
static int record_gather(const char *tag, void *arg)
{
    struct records *all = arg;
    struct lvm_reserved x;
    if (!lvm_reserved_read(tag, all->vg_uuid, &x) || strcmp(x.node, all->node) != 0 ||
        (all->alias && strcmp(all->alias, x.alias) != 0))
        return 0;
    for (unsigned i = 0; i < all->n; i++)
        if (strcmp(all->found[i].alias, x.alias) == 0) {
            if (x.root)
                all->found[i].root = x.root;
            return 0;
        }
    if (all->n < sizeof all->found / sizeof *all->found)
        all->found[all->n++] = x;
    return 0;
}

static void records_of(const struct driver_class *c, const struct lvm_lv *pool, const char *alias, struct records *ret)
{
    *ret = (struct records){.node = c->node, .vg_uuid = pool->vg_uuid, .alias = alias};
    lvm_each_tag(pool->tags, record_gather, ret);
}

/* ---- releasing ---- */

/* Both of them; one that is not there is no error of lvchange. */
static int tags_remove(const struct lvm_metadata *m, const struct lvm_reserved *x, struct err *e)
{
    char tag[LVM_TAG_MAX];
    const char *what = "cannot remove the tag of a metadata snapshot";
    struct lvm_reserved copy = *x;
    copy.root = 0;
    int rc = lvm_reserved_write(&copy, tag, e);
    if (rc == 0)
        rc = tag_change(m, "--deltag", tag, what, e);
    if (rc < 0 || !x->root)
        return rc;
    rc = lvm_reserved_write(x, tag, e);
    return rc < 0 ? rc : tag_change(m, "--deltag", tag, what, e);
}

static int not_certain(const struct lvm_metadata *m, uint64_t root, struct err *e)
{
    err_plain(e, ERR_BUSY, EBUSY,
              "the metadata snapshot of thin pool %s is held (block %" PRIu64
              "), and it is not certain whether another program uses it",
              m->pool, root);
    return err_hint(e, "if none does, release it: dmsetup message %.200s 0 release_metadata_snap", m->dm_name);
}

static int release(const struct lvm_metadata *m, const struct lvm_reserved *x, struct err *e)
{
    char number[24];
    struct thin_status now = {0};
    int status = 0, rc = 0;
    snprintf(number, sizeof number, "%" PRIu64, x->root);
    const char *const argv[] = {shell, "-c", release_script, "sh", m->dm_uuid, number, NULL};
    if (!x->root) {
        rc = status_read(m->dm_uuid, m->pool, &now, e);
        if (rc == 0 && now.root)
            return not_certain(m, now.root, e);
    } else {
        rc = lvm_tool_run("release of a metadata snapshot", argv, true, NULL, NULL, &status, e);
        if (rc == 0 && status && status != RELEASE_OTHER)
            rc = -EIO; /* e has the words of dmsetup */
    }
    if (rc < 0)
        return err_wrap(e, "cannot release the metadata snapshot of thin pool %s", m->pool);
    crash_point("lvm-metadata-released");
    return tags_remove(m, x, e);
}

int lvm_metadata_release(const struct lvm_metadata *m, struct err *e)
{
    return release(m, &m->mine, e);
}

/* What processes that are gone have left of this pool. Of what cannot be released *why says so. */
static int release_left(const struct driver_class *c, const struct lvm_metadata *m, bool *others_of_ours,
                        struct err *why, struct err *e)
{
    struct lvm_report r = LVM_REPORT_INIT;
    char vg[LVM_NAME_MAX];
    const char *slash = strchr(m->pool, '/');
    snprintf(vg, sizeof vg, "%.*s", (int)(slash - m->pool), m->pool);
    *others_of_ours = false;
    int rc = lvm_report_read(&r, vg, e);
    const struct lvm_lv *pool = rc == 0 ? lvm_find(&r, vg, slash + 1) : NULL;
    struct records all = {.n = 0};
    if (pool)
        records_of(c, pool, NULL, &all);
    for (unsigned i = 0; i < all.n; i++) {
        if (is_running(&all.found[i]))
            *others_of_ours |= strcmp(all.found[i].alias, m->mine.alias) != 0;
        else
            release(m, &all.found[i], why);
    }
    lvm_report_free(&r);
    return rc;
}

/* ---- reserving ---- */

static int intend(const struct driver_class *c, const struct lvm_lv *pool, struct lvm_metadata *m, struct err *e)
{
    char tag[LVM_TAG_MAX];
    snprintf(m->mine.node, sizeof m->mine.node, "%s", c->node);
    snprintf(m->mine.vg_uuid, sizeof m->mine.vg_uuid, "%s", pool->vg_uuid);
    m->mine.created_ns = now_ns();
    m->mine.root = 0;
    alias_new(m->mine.alias);
    int rc = process_identify(&m->mine.owner, getpid());
    if (rc < 0)
        return err_set(e, ERR_GENERIC, -rc, "cannot identify this process");
    rc = lvm_reserved_write(&m->mine, tag, e);
    if (rc == 0)
        rc = tag_change(m, "--addtag", tag, "cannot record the use of a metadata snapshot", e);
    crash_point("lvm-metadata-intended");
    return rc;
}

/* 1: another one was faster. */
static int reserve(struct lvm_metadata *m, struct err *e)
{
    char tag[LVM_TAG_MAX], *end;
    CLEANUP_FREE char *out = NULL;
    int status = 0, rc = lvm_reserved_write(&m->mine, tag, e);
    tag[strlen(tag) - 1] = '\0'; /* the number takes the place of "-" */
    const char *const argv[] = {shell, "-c", reserve_script, "sh", m->dm_uuid, tag, m->pool, NULL};
    if (rc == 0)
        rc = lvm_tool_run("reservation of a metadata snapshot", argv, true, &out, NULL, &status, e);
    crash_point("lvm-metadata-reserved");
    if (rc < 0 || status)
        return rc < 0 ? rc : status == RESERVE_BUSY ? 1 : -EIO;
    m->mine.root = strtoull(out, &end, 10);
    return m->mine.root && *end == '\n'
               ? 0
               : err_plain(e, ERR_GENERIC, EBADMSG, "the root of the metadata snapshot of thin pool %s is unknown",
                           m->pool);
}

static void pause_s(unsigned s)
{
    const struct timespec t = {(time_t)s, 0};
    nanosleep(&t, NULL);
}

/* Waits until nobody holds it; CHANGED_BUSY when it takes too long. */
static int wait_free(const struct driver_class *c, const struct lvm_metadata *m, int64_t began,
                     struct changed_answer *a, struct err *e)
{
    for (;;) {
        struct thin_status now = {0};
        struct err why = ERR_INIT;
        bool of_ours = false;
        int rc = status_read(m->dm_uuid, m->pool, &now, e);
        if (rc < 0 || !now.root)
            return rc;
        rc = release_left(c, m, &of_ours, &why, e);
        if (rc == 0)
            rc = status_read(m->dm_uuid, m->pool, &now, e);
        if (rc < 0 || !now.root)
            return rc;
        const int64_t waited = (mono_ns() - began) / NS_PER_S;
        if (waited >= (of_ours ? OURS_S : OTHERS_S))
            return changed_doubt(a, CHANGED_BUSY,
                                 "the metadata snapshot of thin pool %s is held by another program (block %" PRIu64
                                 ") since %" PRId64 " s or longer%s%s",
                                 m->pool, now.root, waited, why.hint[0] ? "; " : "", why.hint);
        pause_s(1);
    }
}

int lvm_metadata_reserve(const struct driver_class *c, const char *vg, const char *pool_name, struct lvm_metadata *ret,
                         struct changed_answer *a, struct err *e)
{
    const int64_t began = mono_ns();
    struct lvm_report r = LVM_REPORT_INIT;
    int rc = lvm_report_read(&r, vg, e);
    const struct lvm_lv *pool = rc == 0 ? lvm_find(&r, vg, pool_name) : NULL;
    if (rc == 0 && !pool)
        rc = err_plain(e, ERR_NOT_FOUND, ENOENT, "no thin pool %s/%s", vg, pool_name);
    if (rc == 0)
        rc = describe(ret, pool);
    if (rc == 0 && pool->check_needed)
        rc = err_plain(e, ERR_SOURCE, EIO, "the metadata of thin pool %s must be checked (needs_check)", ret->pool);
    if (rc == 0)
        rc = table_read(ret, e);
    unsigned tries = 0;
    for (bool done = false; rc == 0 && !done && a->state == CHANGED_LISTED;) {
        rc = wait_free(c, ret, began, a, e);
        if (rc < 0 || a->state != CHANGED_LISTED)
            break;
        rc = intend(c, pool, ret, e);
        if (rc == 0)
            rc = reserve(ret, e);
        done = rc == 0;
        if (!done && ret->mine.alias[0]) { /* it did not come to a reservation: nothing of it may remain */
            struct err second = ERR_INIT;
            tags_remove(ret, &ret->mine, &second);
        }
        if (rc == 1 && ++tries < TRIES) {
            rc = 0;
            pause_s(1);
        } else if (rc == 1) { /* nobody holds it, and still it cannot be reserved: e has the words of dmsetup */
            rc = -EIO;
        }
    }
    lvm_report_free(&r);
    return rc;
}

int lvm_metadata_check(const struct lvm_metadata *m, struct changed_answer *a, struct err *e)
{
    struct thin_status now = {0};
    int rc = status_read(m->dm_uuid, m->pool, &now, e);
    if (rc < 0 || now.root == m->mine.root)
        return rc;
    return changed_doubt(a, CHANGED_UNCERTAIN,
                         "another program has released the metadata snapshot of thin pool %s while it was read",
                         m->pool);
}

/* ---- what is left ---- */

int lvm_metadata_left(const struct driver_class *c, const struct lvm_lv *pool, exposure_fn *fn, void *arg)
{
    struct records all;
    CLEANUP_FREE struct exposure *x = calloc(1, sizeof *x);
    CLEANUP_FREE struct native_tag *of = calloc(1, sizeof *of);
    int rc = 0;
    if (!x || !of)
        return -ENOMEM;
    records_of(c, pool, NULL, &all);
    for (unsigned i = 0; rc == 0 && i < all.n; i++) {
        if (is_running(&all.found[i]))
            continue;
        memset(x, 0, sizeof *x);
        x->mechanism = EXPOSE_NATIVE;
        x->read_only = true;
        snprintf(x->path, sizeof x->path, "%s", pool->dm_path);
        snprintf(x->alias, sizeof x->alias, "%s", all.found[i].alias);
        snprintf(x->klass, sizeof x->klass, "%s", c->name);
        snprintf(x->where, sizeof x->where, "%s/%s", pool->vg, pool->name);
        snprintf(of->alias, sizeof of->alias, "%s", all.found[i].alias);
        of->created_ns = 0; /* its process is gone: nobody needs it, and others wait for it */
        rc = fn(x, of, arg);
    }
    return rc;
}

int lvm_metadata_undo(const struct driver_class *c, const struct lvm_report *r, const char *alias, struct err *e)
{
    struct lvm_metadata m;
    struct records one;
    for (size_t i = 0; i < r->n; i++) {
        if (!lvm_is_pool(&r->lv[i]) || !strstr(r->lv[i].tags, alias))
            continue;
        records_of(c, &r->lv[i], alias, &one);
        if (!one.n)
            continue;
        describe(&m, &r->lv[i]);
        if (is_running(&one.found[0]))
            return err_plain(e, ERR_BUSY, EBUSY, "the metadata snapshot of thin pool %s is in use (process %d)", m.pool,
                             (int)one.found[0].owner.pid);
        return release(&m, &one.found[0], e);
    }
    return -ENOENT;
}
