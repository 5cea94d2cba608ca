/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * maintain-mark.c - what snapshots need
 *
 * All snapshots, incomplete ones included, are walked down to the last content. Whatever cannot be read or understood
 * ends the walk: contents that only it would have led to must not be taken for garbage.
 */
#include "base/cleanup.h"
#include "daemon/mover/maintain.h"
#include "daemon/mover/mapped.h"

#include <errno.h>
#include <string.h>

#define DEPTH_MAX 512 /* nested directories */

struct level {
    struct maintain_mark *m;
    unsigned depth;
    struct err *e;
};

int maintain_stopped(const struct mover_cancel *c, struct err *e)
{
    return c && atomic_load_explicit(&c->requested, memory_order_relaxed)
               ? err_set(e, ERR_INTERRUPTED, ECANCELED, "maintenance was interrupted; the next one begins anew")
               : 0;
}

static int mark_content(const struct content_id *id, void *arg, struct err *e)
{
    struct maintain_mark *m = arg;
    int rc = id_set_add_later(m->used, id, 0, e);
    return rc < 0 ? rc : maintain_stopped(m->cancel, e);
}

static int mark_entry(struct maintain_mark *m, const struct dir_entry *d, unsigned depth, struct err *e);

static int mark_child(struct dir_entry *d, void *arg)
{
    const struct level *l = arg;
    return mark_entry(l->m, d, l->depth, l->e);
}

static int mark_entry(struct maintain_mark *m, const struct dir_entry *d, unsigned depth, struct err *e)
{
    char text[OBJECT_ID_TEXT];
    if (!d->obj.content.len)
        return 0;
    const bool dir = d->type == 'd';
    const uint8_t tag = (uint8_t)((d->obj.indirection & 31) | (d->obj.compressed ? 32 : 0) | (dir ? 64 : 0));
    /* Two depths of one object have the same tag only if one cannot be read at all. */
    if (d->obj.indirection > 31)
        return err_set(e, ERR_DAMAGE, EBADMSG, "object %s is nested too deeply", object_id_text(&d->obj, text));
    int rc = id_set_add(m->objects, &d->obj.content, tag, e);
    if (rc <= 0)
        return rc;
    rc = object_contents_each(m->r, &d->obj, mark_content, m, e);
    if (rc < 0 || !dir)
        return rc;
    if (depth >= DEPTH_MAX)
        return err_set(e, ERR_DAMAGE, EBADMSG, "directories nested deeper than %d", DEPTH_MAX);
    struct err inner = ERR_INIT;
    struct level l = {.m = m, .depth = depth + 1, .e = &inner};
    rc = dir_each(m->r, &d->obj, mark_child, &l, e);
    if (rc < 0 && inner.cls != ERR_NONE)
        *e = inner;
    return rc;
}

static int mark_snapshot(const struct manifest *f, void *arg)
{
    const struct level *l = arg;
    struct maintain_mark *m = l->m;
    struct snapshot s;
    const char *why = "";
    int rc = maintain_stopped(m->cancel, l->e);
    if (rc < 0)
        return rc;
    rc = snapshot_parse(&s, f, &why);
    if (rc == -EINVAL) {
        err_set(l->e, ERR_DAMAGE, EBADMSG, "the manifest of snapshot %s is malformed (%s): what it needs is unknown",
                f->id, why);
        return err_hint(l->e, "see `snapshot delete` for a snapshot that is not needed any more, and "
                              "snapferry-recovery(7)");
    }
    if (rc < 0)
        return err_nomem(l->e);
    m->snapshots++;
    if (*s.incomplete) {
        m->incomplete++;
        if (s.modified_ns > m->checkpoint_ns)
            m->checkpoint_ns = s.modified_ns;
    }
    rc = mark_entry(m, &s.root, 0, l->e);
    if (rc < 0 && l->e->cls == ERR_DAMAGE) {
        err_wrap(l->e, "snapshot %s", f->id);
        err_hint(l->e, "run verify: it lists what is damaged; nothing is removed while a snapshot cannot be read");
    }
    snapshot_clear(&s);
    return rc;
}

int maintain_mark(struct maintain_mark *m, struct err *e)
{
    struct manifests *all CLEANUP(manifests_freep) = NULL;
    struct err inner = ERR_INIT;
    struct level l = {.m = m, .e = &inner};
    m->snapshots = m->incomplete = 0;
    m->checkpoint_ns = INT64_MIN;
    int rc = manifests_open(&all, m->r, e);
    if (rc == 0)
        rc = manifests_walk(all, "snapshot", NULL, mark_snapshot, &l, e);
    if (rc < 0 && inner.cls != ERR_NONE)
        *e = inner;
    if (rc == 0)
        rc = id_set_settle(m->used, e);
    if (rc == 0 && manifests_ignored(all))
        rc = err_set(
            e, ERR_DAMAGE, EBADMSG, "%llu manifest%s that no client makes: what %s is unknown, so nothing is removed",
            (unsigned long long)manifests_ignored(all), manifests_ignored(all) == 1 ? " has an id" : "s have ids",
            manifests_ignored(all) == 1 ? "it needs" : "they need");
    return rc;
}
