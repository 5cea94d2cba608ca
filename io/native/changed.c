/* SPDX-License-Identifier: GPL-2.0-or-later */
/* changed.c - what differs between two native snapshots: the checks that hold for every driver */
#include "io/native/driver.h"

#include "base/cleanup.h"
#include "proc/descriptors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* An error becomes an answer: without a list everything is read. */
static int changed_error(struct changed_answer *a, int rc, const struct err *why, struct err *e)
{
    if (rc == -ENOMEM)
        return err_nomem(e);
    const enum changed_state s = why->cls == ERR_BUSY ? CHANGED_BUSY : CHANGED_FAILED;
    return changed_doubt(a, s, "%.500s", why->msg[0] ? why->msg : strerror(-rc));
}

/* Where it is known to be gone it is not searched for first, which may mean all volumes. */
static int base_find(const struct driver_class *c, const struct volume *v, const struct native *known,
                     const struct native *newer, struct native *found, struct err *e)
{
    const struct driver *d = driver_by_name(c->driver);
    bool marked = known->gone && d->bookmark_find;
    for (bool again = false;; again = true, marked = !marked) {
        *e = (struct err)ERR_INIT;
        int rc = marked ? d->bookmark_find(c, known, newer, found, e)
                        : d->find(c, v, known->tag.alias, known->handle, found, e);
        if (rc == 0 || e->cls != ERR_NOT_FOUND || again || !d->bookmark_find)
            return rc;
    }
}

/* Looks for one of both on the storage; it must be the one that was recorded. `newer`: of the base, for which its
 * bookmark will do; NULL: it is the newer one. */
static int snapshot_check(const struct driver_class *c, const struct native *known, const struct native *newer,
                          struct native *found, struct changed_answer *a, struct err *e)
{
    const struct driver *d = driver_by_name(c->driver);
    CLEANUP_FREE struct volume *v = calloc(1, sizeof *v);
    const bool is_base = newer != NULL;
    const char *what = is_base ? "the parent's native snapshot" : "the new native snapshot";
    struct err why = ERR_INIT;
    if (!v)
        return err_nomem(e);
    memcpy(v->name, known->tag.volume_name, sizeof v->name);
    memcpy(v->id, known->tag.volume_id, sizeof v->id);
    v->size = known->size;
    v->allocated = UINT64_MAX;
    int rc = is_base ? base_find(c, v, known, newer, found, &why)
                     : d->find(c, v, known->tag.alias, known->handle, found, &why);
    if (rc < 0 && why.cls == ERR_NOT_FOUND)
        return changed_doubt(a, is_base ? CHANGED_BASE_LOST : CHANGED_FAILED, "%s %s is no longer on the storage%s",
                             what, known->tag.alias, is_base && d->bookmark_find ? ", nor its bookmark" : "");
    if (rc < 0)
        return changed_error(a, rc, &why, e);
    if (!found->change_id[0] || strcmp(found->change_id, known->change_id) != 0 || found->size != known->size)
        return changed_doubt(a, is_base ? CHANGED_BASE_OTHER : CHANGED_FAILED,
                             "%s %s is not what it was when it was taken (change id %.100s, was %.100s)", what,
                             known->tag.alias, found->change_id[0] ? found->change_id : "none", known->change_id);
    return 0;
}

/* From the last byte of the shorter one on nothing is common. */
static int add_difference_of_sizes(struct changes *list, uint64_t base, uint64_t size, struct err *e)
{
    const uint64_t common = base < size ? base : size;
    if (base == size)
        return 0;
    return common ? changes_add(list, common - 1, size - (common - 1), e) : changes_add(list, 0, size, e);
}

/* No range ends behind the volume. */
static int clip(struct changes **list, uint64_t size, struct err *e)
{
    struct changes *clipped;
    changes_finish(*list);
    int rc = changes_new(&clipped, e);
    if (rc < 0)
        return rc;
    rc = changes_add_within(clipped, *list, size, e);
    changes_free(*list);
    *list = clipped;
    return rc;
}

int driver_changed(const struct driver_class *c, const struct native *base, const struct native *n,
                   struct changes *list, struct changed_answer *ret, struct err *e)
{
    const struct driver *d = driver_by_name(c->driver);
    CLEANUP_FREE struct native *b = calloc(1, sizeof *b), *new = calloc(1, sizeof *new);
    struct changes *raw CLEANUP(changes_freep) = NULL;
    struct err why = ERR_INIT;
    *ret = (struct changed_answer){.state = CHANGED_LISTED};
    if (!b || !new)
        return err_nomem(e);
    if (!d || !d->changed || !d->find)
        return changed_doubt(ret, CHANGED_UNSUPPORTED, "driver %s cannot list changes", c->driver);
    if (!base->change_id[0] || !n->change_id[0])
        return changed_doubt(ret, CHANGED_UNSUPPORTED, "%s native snapshot %s has no change id",
                             base->change_id[0] ? "the new" : "the parent's",
                             base->change_id[0] ? n->tag.alias : base->tag.alias);
    if (strcmp(base->tag.volume_id, n->tag.volume_id) != 0)
        return changed_doubt(ret, CHANGED_BASE_OTHER, "native snapshot %s is of another volume (%.200s)",
                             base->tag.alias, base->tag.volume_id);
    int rc = changes_new(&raw, e);
    if (rc == 0)
        rc = snapshot_check(c, base, n, b, ret, e);
    if (rc == 0 && ret->state == CHANGED_LISTED)
        rc = snapshot_check(c, n, NULL, new, ret, e);
    if (rc < 0 || ret->state != CHANGED_LISTED)
        return rc;
    rc = d->changed(c, b, new, raw, ret, &why);
    if (rc < 0)
        return changed_error(ret, rc, &why, e);
    /* What was compared must have been there until the end. */
    if (ret->state == CHANGED_LISTED)
        rc = snapshot_check(c, base, n, b, ret, e);
    if (rc < 0 || ret->state != CHANGED_LISTED)
        return rc;
    rc = add_difference_of_sizes(raw, base->size, n->size, e);
    if (rc == 0)
        rc = clip(&raw, n->size, e);
    if (rc == 0) {
        changes_finish(raw);
        rc = changes_add_all(list, raw, e);
        changes_finish(list);
    }
    return rc;
}

/* What is known to be zeros is not read, and no range. */
static uint64_t count_ranges(const struct changes *list)
{
    struct changes_cursor cursor = {0};
    struct change x;
    bool zeros;
    uint64_t n = 0;
    for (uint64_t pos = 0; changes_part_after(list, &cursor, pos, &x, &zeros); pos = x.start + x.len)
        n += !zeros;
    return n;
}

/* The list as others get it. */
static int seal(const struct changes *list, enum changes_kind kind, uint64_t size, int *fd, struct changed_answer *ret,
                struct err *e)
{
    CLEANUP_FREE uint8_t *bytes = NULL;
    size_t len;
    ret->ranges = count_ranges(list);
    ret->bytes = changes_bytes(list) - changes_zero_bytes(list);
    int rc = changes_pack(list, kind, size, &bytes, &len, e);
    if (rc == 0)
        rc = *fd = memory_sealed("list of ranges", bytes, len, e);
    return rc < 0 ? rc : 0;
}

int driver_changed_sealed(const struct driver_class *c, const struct native *base, const struct native *n, int *fd,
                          struct changed_answer *ret, struct err *e)
{
    struct changes *list CLEANUP(changes_freep) = NULL;
    *fd = -1;
    int rc = changes_new(&list, e);
    if (rc == 0)
        rc = driver_changed(c, base, n, list, ret, e);
    return rc < 0 || ret->state != CHANGED_LISTED ? rc : seal(list, CHANGES_DIFFER, n->size, fd, ret, e);
}

/* ---- what holds data ---- */

struct extents {
    struct changes *list;
    uint64_t next, size;
    struct err *e;
};

static int extent_add(uint64_t start, uint64_t len, void *arg)
{
    struct extents *x = arg;
    if (start < x->next || start > x->size || len > x->size - start)
        return err_set(x->e, ERR_GENERIC, EBADMSG, "invalid extent: %llu bytes at %llu", (unsigned long long)len,
                       (unsigned long long)start);
    x->next = start + len;
    return changes_add(x->list, start, len, x->e);
}

int driver_allocated_sealed(const struct driver_class *c, const struct exposure *x, int *fd, struct changed_answer *ret,
                            struct err *e)
{
    const struct driver *d = driver_by_name(c->driver);
    struct changes *list CLEANUP(changes_freep) = NULL;
    struct err why = ERR_INIT;
    *fd = -1;
    *ret = (struct changed_answer){.state = CHANGED_LISTED};
    if (!d || !d->allocated)
        return changed_doubt(ret, CHANGED_UNSUPPORTED, "driver %s does not list what is allocated", c->driver);
    int rc = changes_new(&list, e);
    if (rc < 0)
        return rc;
    struct extents into = {list, 0, x->size, &why};
    rc = d->allocated(c, x, extent_add, &into, &why);
    if (rc < 0)
        return changed_error(ret, rc, &why, e);
    changes_finish(list);
    return seal(list, CHANGES_ALLOCATED, x->size, fd, ret, e);
}
