/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * zfs-changed.c - what changed between two snapshots of a zvol, or since a bookmark
 *
 * `zfs send -i BASE SNAPSHOT` walks the blocks that were born after BASE. Its stream has their offsets, and their data,
 * which are dropped: what is to be stored is read from the device. Blocks are sent as they are on disk (-c, -e, -L), so
 * that the stream is no longer than it must be. A stream of an encrypted dataset whose keys are not loaded would be
 * raw; such a volume has no device, and is not read at all.
 */
#include "io/native/zfs.h"

#include "base/cleanup.h"
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

static int feed(const void *p, size_t n, void *arg, struct err *e)
{
    return zfs_stream_feed(arg, p, n, e);
}

static int list_stream(const struct zfs_row *base, const struct zfs_row *n, struct changes *list,
                       struct changed_answer *ret, struct err *e)
{
    struct zfs_stream *s CLEANUP(zfs_stream_freep) = NULL;
    const char *const args[] = {"send", "-L", "-c", "-e", "-i", base->name, n->name, NULL};
    struct err why = ERR_INIT;
    int rc = zfs_stream_new(&s, base->guid, n->guid, list, e);
    if (rc < 0)
        return rc;
    rc = zfs_send(args, feed, s, &why);
    if (rc == 0)
        rc = zfs_stream_end(s, &why);
    if (rc == -ESTALE)
        return changed_doubt(ret, CHANGED_BASE_OTHER, "%.500s", why.msg);
    if (rc == -ENOTSUP)
        return changed_doubt(ret, CHANGED_UNCERTAIN, "%.500s", why.msg);
    if (rc < 0 && e)
        *e = why;
    else
        log_debug("%s: %" PRIu64 " bytes of send stream since %s", n->name, zfs_stream_bytes(s), base->name);
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
    else if (rc == 0)
        rc = list_stream(b, s, list, ret, e);
    zfs_report_free(&old.report);
    zfs_report_free(&new);
    return rc;
}
