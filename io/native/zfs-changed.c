/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * zfs-changed.c - what changed between two snapshots of a zvol, or since a bookmark, and what is allocated in one
 *
 * `zfs send -i BASE SNAPSHOT` walks the blocks that were born after BASE. Its stream has their offsets, and their data,
 * which are dropped: what is to be stored is read from the device. Blocks are sent as they are on disk (-c, -e, -L), so
 * that the stream is no longer than it must be. A stream of an encrypted dataset whose keys are not loaded would be
 * raw; such a volume has no device, and is not read at all.
 *
 * A stream of the whole snapshot has what is allocated. The data of it are read twice then, so it is asked for only
 * where most of the volume is not.
 */
#include "io/native/zfs.h"

#include "base/cleanup.h"
#include "base/throttle.h"
#include "base/time.h"
#include "io/blockdev.h"
#include "io/native/zfs-stream.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *module_parameters = "/sys/module/zfs/parameters";

void zfs_module_test(const char *parameters)
{
    module_parameters = parameters;
}

/* Versions with the fault of 2016 (hole_birth) recorded wrong birth times of holes: they are sent again as long as this
 * is set, which it is by default. */
static bool holes_are_sent(void)
{
    char text[16];
    return sysfs_line(module_parameters, "send_holes_without_birth_time", text, sizeof text) && strcmp(text, "1") == 0;
}

/* The whole is listed by its stream if it has at most this much data, and this share of the volume. */
#define WHOLE_MAX ((uint64_t)64 << 30)
#define WHOLE_SHARE 4

struct feeding {
    struct zfs_stream *s;
    const struct driver_class *c;
};

/* While it waits the pipe is full, and `zfs send` reads nothing more. */
static int feed(const void *p, size_t n, void *arg, struct err *e)
{
    const struct feeding *f = arg;
    if (f->c->list_reads && mono_ns() < f->c->list_reads_until)
        throttle_wait(f->c->list_reads, n);
    return zfs_stream_feed(f->s, p, n, e);
}

/* `from`: guid of the base; 0: the stream is of the whole snapshot. */
static int stream_read(const struct driver_class *c, const char *const *args, uint64_t from, const struct zfs_row *n,
                       struct changes *list, struct err *e)
{
    struct zfs_stream *s CLEANUP(zfs_stream_freep) = NULL;
    int rc = zfs_stream_new(&s, from, n->guid, list, e);
    struct feeding f = {s, c};
    if (rc == 0)
        rc = zfs_send(args, feed, &f, e);
    if (rc == 0)
        rc = zfs_stream_end(s, e);
    if (rc == 0)
        log_debug("%s: %" PRIu64 " bytes of send stream", n->name, zfs_stream_bytes(s));
    return rc;
}

static int list_stream(const struct driver_class *c, const struct zfs_row *base, const struct zfs_row *n,
                       struct changes *list, struct changed_answer *ret, struct err *e)
{
    const char *const args[] = {"send", "-L", "-c", "-e", "-i", base->name, n->name, NULL};
    struct err why = ERR_INIT;
    int rc = stream_read(c, args, base->guid, n, list, &why);
    if (rc == -ESTALE)
        return changed_doubt(ret, CHANGED_BASE_OTHER, "%.500s", why.msg);
    if (rc == -ENOTSUP)
        return changed_doubt(ret, CHANGED_UNCERTAIN, "%.500s", why.msg);
    if (rc < 0 && e)
        *e = why;
    return rc;
}

/* The base: a snapshot of ours, or a bookmark of one that is gone. -ENOENT without a message. */
struct base {
    struct zfs_report report;
    struct zfs_row mark;
    char name[ZFS_NAME_MAX];
    const struct zfs_row *row;
};

static int base_read(const struct driver_class *c, const struct native *n, struct base *ret, struct err *e)
{
    char dataset[ZFS_NAME_MAX];
    int rc;
    if (strchr(n->handle, '#')) {
        zfs_dataset_of(n->handle, dataset);
        rc = zfs_bookmark_row(c, n->tag.alias, dataset, ret->name, &ret->mark, e);
        ret->row = rc == 0 ? &ret->mark : NULL;
        return rc;
    }
    rc = zfs_report_read(&ret->report, n->handle, e);
    ret->row = rc == 0 ? zfs_find(&ret->report, n->handle) : NULL;
    return rc == 0 && !ret->row ? -ENOENT : rc;
}

/* The volume may be a clone of the one of which the base is a snapshot; a bookmark does not serve for clones. */
static bool is_earlier(const struct zfs_row *base, const struct zfs_row *volume)
{
    char of[ZFS_NAME_MAX];
    zfs_dataset_of(base->name, of);
    return strcmp(of, volume->name) == 0 || strcmp(volume->origin, base->name) == 0;
}

int zfs_changed(const struct driver_class *c, const struct native *base, const struct native *n, struct changes *list,
                struct changed_answer *ret, struct err *e)
{
    struct base old = {.report = ZFS_REPORT_INIT};
    struct zfs_report new = ZFS_REPORT_INIT;
    char of_new[ZFS_NAME_MAX];
    if (!holes_are_sent())
        return changed_doubt(ret, CHANGED_UNCERTAIN,
                             "the parameter send_holes_without_birth_time of the module zfs is not "
                             "1: a send stream may omit holes");
    zfs_dataset_of(n->handle, of_new);
    int rc = base_read(c, base, &old, e);
    if (rc == -ENOENT)
        rc = 0;
    if (rc == 0)
        rc = zfs_report_read(&new, of_new, e);
    const struct zfs_row *b = rc == 0 ? old.row : NULL;
    const struct zfs_row *v = rc == 0 ? zfs_find(&new, of_new) : NULL, *s = rc == 0 ? zfs_find(&new, n->handle) : NULL;
    if (rc == 0 && !b)
        changed_doubt(ret, CHANGED_BASE_LOST, "%s is no longer on the storage", base->handle);
    else if (rc == 0 && (!v || !s))
        changed_doubt(ret, CHANGED_FAILED, "%s is no longer on the storage", n->handle);
    else if (rc == 0 && !is_earlier(b, v))
        changed_doubt(ret, CHANGED_BASE_OTHER, "the volume was replaced since: %s is not an earlier snapshot of %s",
                      b->name, of_new);
    else if (rc == 0 && b->txg >= s->txg)
        changed_doubt(ret, CHANGED_BASE_OTHER, "%s is not older than %s", b->name, s->name);
    else if (rc == 0 && b == &old.mark)
        rc = zfs_bookmark_check(base, b, &new, s, ret, e);
    if (rc == 0 && ret->state == CHANGED_LISTED)
        rc = list_stream(c, b, s, list, ret, e);
    zfs_report_free(&old.report);
    zfs_report_free(&new);
    return rc;
}

/* ---- what is allocated ---- */

/* The snapshot that is read by its own device or by a clone. */
static int exposed_snapshot(const struct exposure *x, char ret[ZFS_NAME_MAX], struct err *e)
{
    char path[VOLUME_NAME_MAX], dataset[ZFS_NAME_MAX];
    struct zfs_report r = ZFS_REPORT_INIT;
    const size_t n = strcspn(x->path, "@");
    snprintf(path, sizeof path, "%.*s", (int)n, x->path);
    int rc = zfs_path_split(path, dataset, e);
    if (rc == 0 && x->path[n]) {
        if (snprintf(ret, ZFS_NAME_MAX, "%s%s", dataset, x->path + n) >= ZFS_NAME_MAX)
            rc = err_set(e, ERR_USAGE, ENAMETOOLONG, "%s", x->path);
        return rc;
    }
    if (rc == 0)
        rc = zfs_report_volume(&r, dataset, e);
    const struct zfs_row *row = rc == 0 ? zfs_find(&r, dataset) : NULL;
    if (rc == 0 && (!row || !strchr(row->origin, '@')))
        rc = err_plain(e, ERR_NOT_FOUND, ENOENT, "%s is not the clone that was exposed", x->path);
    if (rc == 0)
        snprintf(ret, ZFS_NAME_MAX, "%s", row->origin);
    zfs_report_free(&r);
    return rc;
}

static int emit(const struct changes *list, uint64_t size, driver_extent_fn *fn, void *arg)
{
    struct changes_cursor cursor = {0};
    struct change x;
    bool zeros;
    int rc = 0;
    for (uint64_t pos = 0; rc == 0 && pos < size && changes_part_after(list, &cursor, pos, &x, &zeros);
         pos = x.start + x.len)
        if (!zeros && x.start < size)
            rc = fn(x.start, x.len < size - x.start ? x.len : size - x.start, arg);
    return rc;
}

int zfs_allocated(const struct driver_class *c, const struct exposure *x, driver_extent_fn *fn, void *arg,
                  struct err *e)
{
    char name[ZFS_NAME_MAX];
    struct zfs_report r = ZFS_REPORT_INIT;
    struct changes *list CLEANUP(changes_freep) = NULL;
    const char *const args[] = {"send", "-L", "-c", "-e", name, NULL};
    int rc = exposed_snapshot(x, name, e);
    if (rc == 0 && !x->read_only)
        rc = err_plain(e, ERR_SOURCE, EBUSY, "%s is writable: what is allocated in it may change", x->path);
    if (rc == 0)
        rc = zfs_report_read(&r, name, e);
    const struct zfs_row *n = rc == 0 ? zfs_find(&r, name) : NULL;
    if (rc == 0 && (!n || n->size != x->size))
        rc = err_plain(e, ERR_NOT_FOUND, ENOENT, "%s is no longer what was exposed", name);
    if (rc == 0 && (n->referenced > WHOLE_MAX || n->referenced > n->size / WHOLE_SHARE))
        rc = err_plain(e, ERR_SOURCE, E2BIG,
                       "%" PRIu64 " of its %" PRIu64 " MiB are allocated, too much to be read once more for a list",
                       n->referenced >> 20, n->size >> 20);
    if (rc == 0)
        rc = changes_new(&list, e);
    if (rc == 0)
        rc = stream_read(c, args, 0, n, list, e);
    if (rc == 0) {
        changes_finish(list);
        rc = emit(list, x->size, fn, arg);
    }
    zfs_report_free(&r);
    return rc;
}
