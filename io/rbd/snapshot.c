/* SPDX-License-Identifier: GPL-2.0-or-later */
/* snapshot.c - taking and removing a snapshot with its owner tag, and what differs between two */
#include "io/rbd/commands.h"

#include "base/cleanup.h"
#include "base/crash.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int ceph_tag_set(const struct image *x, const char *key, const json_t *tag, struct err *e)
{
    CLEANUP_FREE char *text = json_dumps(tag, JSON_COMPACT | JSON_SORT_KEYS);
    if (!text)
        return err_nomem(e);
    const int rc = x->cluster->lib->rbd_metadata_set(x->rbd, key, text);
    return rc < 0 ? ceph_error(e, rc, "cannot set metadata of image %s", x->name) : 0;
}

static int snap_number(const struct image *x, const char *name, uint64_t *ret, struct err *e)
{
    struct snaps s;
    int rc = snaps_read(&s, x, e);
    *ret = 0;
    for (int i = 0; rc == 0 && i < s.n; i++)
        if (strcmp(s.v[i].name, name) == 0)
            *ret = s.v[i].id;
    snaps_free(&s, x);
    if (rc == 0 && !*ret)
        rc = err_plain(e, ERR_SOURCE, ENOENT, "snapshot %s of image %s disappeared after its creation", name, x->name);
    return rc;
}

int ceph_snap_take(const struct image *x, const char *snap, const char *point, uint64_t *id, struct err *e)
{
    int rc = x->cluster->lib->rbd_snap_create(x->rbd, snap);
    if (rc == -EEXIST) {
        rc = x->cluster->lib->rbd_snap_remove(x->rbd, snap);
        if (rc == 0)
            rc = x->cluster->lib->rbd_snap_create(x->rbd, snap);
    }
    if (rc < 0)
        ceph_error(e, rc, "cannot take a snapshot of image %s", x->name);
    if (rc == -EDQUOT && e)
        err_hint(e, "the image has a limit: rbd snap limit");
    if (rc < 0)
        return rc;
    crash_point(point);
    return snap_number(x, snap, id, e);
}

int ceph_snap_drop(const struct image *x, const char *snap, struct err *e)
{
    const int rc = x->cluster->lib->rbd_snap_remove(x->rbd, snap);
    if (rc >= 0 || rc == -ENOENT)
        return 0;
    ceph_error(e, rc, "cannot remove snapshot %s of image %s", snap, x->name);
    if (rc == -EBUSY && e)
        err_hint(e, "it is protected, or has clones: rbd children, rbd snap unprotect");
    return rc;
}

int ceph_meta_drop(const struct image *x, const char *key, struct err *e)
{
    const int rc = x->cluster->lib->rbd_metadata_remove(x->rbd, key);
    return rc >= 0 || rc == -ENOENT ? 0 : ceph_error(e, rc, "cannot remove metadata of image %s", x->name);
}

int snapshot_create(const struct cluster *c, const char *const image[3], const char *snap, const char *key, json_t *tag,
                    struct err *e)
{
    struct image x;
    uint64_t id = 0;
    int rc = ceph_image_open(&x, c, image[0], image[1], image[2], true, e);
    if (rc == 0)
        rc = ceph_tag_set(&x, key, tag, e);
    if (rc == 0) {
        crash_point("rbd-tagged");
        rc = ceph_snap_take(&x, snap, "rbd-snapped", &id, e);
    }
    if (rc == 0 && json_object_set_new(tag, "snap", json_integer((json_int_t)id)) < 0)
        rc = err_nomem(e);
    if (rc == 0)
        rc = ceph_tag_set(&x, key, tag, e);
    ceph_image_close(&x);
    return rc;
}

int snapshot_remove(const struct cluster *c, const char *const image[3], const char *snap, const char *key,
                    struct err *e)
{
    struct image x;
    int rc = ceph_image_open(&x, c, image[0], image[1], image[2], true, e);
    if (rc == 0)
        rc = ceph_snap_drop(&x, snap, e);
    if (rc == 0) {
        crash_point("rbd-unsnapped");
        rc = ceph_meta_drop(&x, key, e);
    }
    ceph_image_close(&x);
    return rc;
}

/* ---- what differs ---- */

static const struct rbd_snap_info *snap_find(const struct snaps *s, uint64_t id)
{
    for (int i = 0; i < s->n; i++)
        if (s->v[i].id == id)
            return &s->v[i];
    return NULL;
}

/* What an interrupted client, or a repair, has left of the object map of a snapshot. */
static int map_is_valid(struct image *x, uint64_t snap, bool *valid, struct err *e)
{
    uint64_t flags = 0;
    int rc = ceph_image_at(x, snap, e);
    if (rc == 0 && (rc = x->cluster->lib->rbd_get_flags(x->rbd, &flags)) < 0)
        ceph_error(e, rc, "cannot read the flags of image %s", x->name);
    *valid = !(flags & (RBD_FLAG_OBJECT_MAP_INVALID | RBD_FLAG_FAST_DIFF_INVALID));
    return rc;
}

static int print_range(uint64_t pos, size_t len, int exists, void *arg)
{
    (void)exists; /* discarded since: changed, too */
    ++*(uint64_t *)arg;
    return printf("%" PRIu64 " %zu\n", pos, len) < 0 ? -EPIPE : 0;
}

/*
 * By asking the OSDs for each object: after a rollback of the image the object maps (whole_object) omit what differs
 * (seen with 16.2.15: the snapshot that was rolled back to knows nothing of the ones after it).
 */
static int print_changes(struct image *x, const struct rbd_snap_info *base, const struct rbd_snap_info *snap,
                         struct err *e)
{
    uint64_t n = 0;
    bool old_valid, new_valid;
    int rc = map_is_valid(x, base->id, &old_valid, e);
    if (rc == 0)
        rc = map_is_valid(x, snap->id, &new_valid, e);
    if (rc < 0)
        return rc;
    if (!old_valid || !new_valid) {
        printf("doubt the object map of snapshot %s is invalid: rbd object-map rebuild repairs it\n",
               old_valid ? snap->name : base->name);
        return 0;
    }
    rc = x->cluster->lib->rbd_diff_iterate2(x->rbd, base->name, 0, snap->size, 1, 0, print_range, &n);
    if (rc < 0)
        return ceph_error(e, rc, "cannot compare two snapshots of image %s", x->name);
    rc = ceph_image_has_snap(x, base->id, e);
    if (rc == 0)
        rc = ceph_image_has_snap(x, snap->id, e);
    if (rc == 0)
        printf("end %" PRIu64 "\n", n);
    return rc;
}

int changes_print(const struct cluster *c, const char *const image[3], uint64_t base, uint64_t snap, struct err *e)
{
    struct image x;
    struct snaps s = {NULL, 0};
    int rc = ceph_image_open(&x, c, image[0], image[1], image[2], false, e);
    if (rc == 0)
        rc = snaps_read(&s, &x, e);
    const struct rbd_snap_info *old = snap_find(&s, base), *new = snap_find(&s, snap);
    if (rc == 0 && !new)
        rc = err_plain(e, ERR_NOT_FOUND, ENOENT, "image %s has no snapshot %" PRIu64, x.name, snap);
    else if (rc == 0 && !old)
        printf("lost the image has no snapshot %" PRIu64 " any more\n", base);
    else if (rc == 0 && old->id >= new->id)
        printf("doubt snapshot %s is not older than %s\n", old->name, new->name);
    else if (rc == 0)
        rc = print_changes(&x, old, new, e);
    snaps_free(&s, &x);
    ceph_image_close(&x);
    return rc;
}
