/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * reflink-changed.c - what differs between two copies of an image that share blocks
 *
 * A block that both copies have at the same place of the storage and at the same place of the file is the same block:
 * neither copy is ever written to, and what the image writes meanwhile goes elsewhere, since the block is shared. All
 * else counts as changed: that may be too much (moved by a defragmentation, written again with what was there), never
 * too little. Extents that tell no place, or one that does not mean what it seems to, count as changed, too:
 *
 *   encoded     (btrfs, compressed): the address is that of the whole compressed extent, with no offset into it
 *   inline, tail, not aligned: the data lie among metadata, the address is none
 *   delayed allocation, unknown: there is no address yet. Both are synced first, so there should be none
 *
 * The state "unwritten" is part of what is compared. Blocks may be moved while the maps are read (balance of btrfs),
 * and their old place given to others: the earlier copy holds on to its blocks unless they are moved, so its map is
 * read once more afterwards, and if it differs nothing is known.
 */
#include "io/native/reflink.h"

#include "base/cleanup.h"
#include "io/native/fsinfo.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define EXTENTS_AT_ONCE 2048
#define NO_PLACE                                                                                                       \
    (FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC | FIEMAP_EXTENT_ENCODED | FIEMAP_EXTENT_DATA_ENCRYPTED |           \
     FIEMAP_EXTENT_NOT_ALIGNED | FIEMAP_EXTENT_DATA_INLINE | FIEMAP_EXTENT_DATA_TAIL)
/* These say how the map is reported, or who else uses the block. */
#define NO_DIFFERENCE (FIEMAP_EXTENT_LAST | FIEMAP_EXTENT_MERGED | FIEMAP_EXTENT_SHARED)

/* A file's map, read a part at a time. */
struct map {
    int fd;
    const char *path;
    uint64_t size;
    struct fiemap *part;
    unsigned at;
    uint64_t next; /* where the part after this one begins */
    bool last;     /* there is none */
    uint64_t digest;
};

/* A piece of the map: [start, end), a hole if there is no extent. */
struct piece {
    uint64_t start, end;
    uint64_t physical;
    uint32_t flags;
    bool hole;
};

static int map_open(struct map *m, const char *path, uint64_t size, struct err *e)
{
    *m = (struct map){.fd = -1, .path = path, .size = size};
    m->part = calloc(1, sizeof *m->part + EXTENTS_AT_ONCE * sizeof m->part->fm_extents[0]);
    if (!m->part)
        return err_nomem(e);
    m->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (m->fd < 0)
        return err_set(e, ERR_SOURCE, errno, "cannot open native snapshot %s", path);
    if (fsync(m->fd) < 0)
        return err_set(e, ERR_SOURCE, errno, "cannot sync native snapshot %s", path);
    return 0;
}

static void map_close(struct map *m)
{
    if (m->fd >= 0)
        close(m->fd);
    free(m->part);
}

static void map_rewind(struct map *m)
{
    m->at = 0;
    m->next = 0;
    m->last = false;
    m->digest = 0;
    m->part->fm_mapped_extents = 0;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15;
    return h ^ (h >> 29);
}

static int map_fill(struct map *m, struct err *e)
{
    struct fiemap *p = m->part;
    p->fm_start = m->next;
    p->fm_length = FIEMAP_MAX_OFFSET - m->next;
    p->fm_flags = FIEMAP_FLAG_SYNC;
    p->fm_extent_count = EXTENTS_AT_ONCE;
    p->fm_mapped_extents = 0;
    if (ioctl(m->fd, FS_IOC_FIEMAP, p) < 0)
        return err_set(e, ERR_SOURCE, errno, "cannot read the map of native snapshot %s (FIEMAP)", m->path);
    m->at = 0;
    if (p->fm_mapped_extents == 0) {
        m->last = true;
        return 0;
    }
    const struct fiemap_extent *x = &p->fm_extents[p->fm_mapped_extents - 1];
    const uint64_t end = x->fe_logical + x->fe_length;
    m->last = (x->fe_flags & FIEMAP_EXTENT_LAST) || end >= m->size;
    if (!m->last && end <= m->next)
        return err_set(e, ERR_SOURCE, EIO, "the map of native snapshot %s does not advance", m->path);
    m->next = end;
    return 0;
}

/* The piece at `pos`, which never decreases. */
static int map_piece(struct map *m, uint64_t pos, struct piece *ret, struct err *e)
{
    for (;;) {
        while (m->at < m->part->fm_mapped_extents) {
            const struct fiemap_extent *x = &m->part->fm_extents[m->at];
            if (x->fe_logical > pos) {
                *ret = (struct piece){pos, x->fe_logical, 0, 0, true};
                return 0;
            }
            if (x->fe_logical + x->fe_length > pos) {
                const uint64_t skip = pos - x->fe_logical;
                *ret = (struct piece){pos, x->fe_logical + x->fe_length, x->fe_physical + skip,
                                      x->fe_flags & ~NO_DIFFERENCE, false};
                return 0;
            }
            m->digest = mix(mix(mix(mix(m->digest, x->fe_logical), x->fe_length), x->fe_physical),
                            x->fe_flags & ~NO_DIFFERENCE);
            m->at++;
        }
        if (m->last) {
            *ret = (struct piece){pos, UINT64_MAX, 0, 0, true};
            return 0;
        }
        int rc = map_fill(m, e);
        if (rc < 0)
            return rc;
    }
}

static bool same_place(const struct piece *a, const struct piece *b)
{
    if (a->hole || b->hole)
        return a->hole && b->hole;
    return !((a->flags | b->flags) & NO_PLACE) && a->flags == b->flags && a->physical == b->physical;
}

/* What the walk has seen besides the ranges. */
struct walk {
    uint64_t encoded, data; /* bytes of the new copy: with compressed extents, of all */
};

static int maps_compare(struct map *base, struct map *new, uint64_t common, struct changes *list, struct walk *w,
                        struct err *e)
{
    struct piece a, b;
    int rc = 0;
    for (uint64_t pos = 0; pos < common && rc == 0;) {
        if ((rc = map_piece(base, pos, &a, e)) < 0 || (rc = map_piece(new, pos, &b, e)) < 0)
            return rc;
        uint64_t end = a.end < b.end ? a.end : b.end;
        if (end > common)
            end = common;
        if (!same_place(&a, &b))
            rc = changes_add(list, pos, end - pos, e);
        w->data += b.hole ? 0 : end - pos;
        w->encoded += !b.hole && (b.flags & FIEMAP_EXTENT_ENCODED) ? end - pos : 0;
        pos = end;
    }
    return rc;
}

/* To the end, for the digest. */
static int map_finish(struct map *m, struct err *e)
{
    struct piece p;
    return map_piece(m, UINT64_MAX - 1, &p, e);
}

static int map_digest_again(struct map *m, uint64_t *ret, struct err *e)
{
    map_rewind(m);
    int rc = map_finish(m, e);
    *ret = m->digest;
    return rc;
}

/* Addresses of different devices cannot be compared: another file system, or the realtime device of XFS. */
static int comparable(const struct map *a, const struct map *b, bool *ret, struct err *e)
{
    struct fs_info fa, fb;
    struct fsxattr xa = {0}, xb = {0};
    int rc = fs_info_fd(a->fd, a->path, &fa, e);
    if (rc == 0)
        rc = fs_info_fd(b->fd, b->path, &fb, e);
    if (rc < 0)
        return rc;
    *ret = strcmp(fa.type, fb.type) == 0 && fa.pool[0] && strcmp(fa.pool, fb.pool) == 0 &&
           (strcmp(fa.type, "xfs") == 0 || strcmp(fa.type, "btrfs") == 0);
    if (*ret && strcmp(fa.type, "xfs") == 0)
        *ret = ioctl(a->fd, FS_IOC_FSGETXATTR, &xa) == 0 && ioctl(b->fd, FS_IOC_FSGETXATTR, &xb) == 0 &&
               (xa.fsx_xflags & FS_XFLAG_REALTIME) == (xb.fsx_xflags & FS_XFLAG_REALTIME);
    return 0;
}

static int maps_list(struct map *base, struct map *new, struct changes *list, struct changed_answer *ret, struct err *e)
{
    bool can = false;
    uint64_t again = 0;
    struct walk w = {0};
    int rc = comparable(base, new, &can, e);
    if (rc < 0)
        return rc;
    if (!can)
        return changed_doubt(ret, CHANGED_UNCERTAIN, "%s and %s are not on the same device", base->path, new->path);
    rc = maps_compare(base, new, base->size < new->size ? base->size : new->size, list, &w, e);
    if (rc == 0)
        rc = map_finish(base, e);
    const uint64_t digest = base->digest;
    if (rc == 0)
        rc = map_digest_again(base, &again, e);
    if (rc < 0)
        return rc;
    if (again != digest)
        return changed_doubt(ret, CHANGED_UNCERTAIN,
                             "blocks of %s were moved while it was compared (balance, defragmentation)", base->path);
    if (w.data && w.encoded == w.data)
        return changed_doubt(ret, CHANGED_UNCERTAIN,
                             "%s is compressed: its file system does not tell where its data are", new->path);
    return 0;
}

int reflink_changed(const struct driver_class *c, const struct native *base, const struct native *n,
                    struct changes *list, struct changed_answer *ret, struct err *e)
{
    struct map old = {.fd = -1}, new = {.fd = -1};
    (void)c;
    int rc = map_open(&old, base->handle, base->size, e);
    if (rc == 0)
        rc = map_open(&new, n->handle, n->size, e);
    if (rc == 0)
        rc = maps_list(&old, &new, list, ret, e);
    map_close(&old);
    map_close(&new);
    return rc;
}
