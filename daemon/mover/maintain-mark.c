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
#include "repo/tree-ahead.h"

#include <errno.h>
#include <string.h>

#define DEPTH_MAX 512 /* nested directories */
#define AHEAD_MEMORY ((size_t)16 << 20)

struct level {
    struct maintain_mark *m;
    struct content_ahead *ahead;
    unsigned depth;
    struct err *e;
};

struct marking {
    struct maintain_mark *m;
    struct tree_ahead *trees;
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

static int mark_entry(const struct level *at, const struct dir_entry *d, struct err *e);

static int mark_child(struct dir_entry *d, void *arg)
{
    const struct level *l = arg;
    return mark_entry(l, d, l->e);
}

static int mark_entry(const struct level *at, const struct dir_entry *d, struct err *e)
{
    struct maintain_mark *m = at->m;
    char text[OBJECT_ID_TEXT];
    if (!d->obj.content.len)
        return 0;
    const bool dir = d->type == 'd';
    if (d->obj.indirection > 31)
        return err_set(e, ERR_DAMAGE, EBADMSG, "object %s is nested too deeply", object_id_text(&d->obj, text));
    int rc = id_set_add(m->objects, &d->obj.content, object_tag(&d->obj, dir), e);
    if (rc <= 0)
        return rc;
    rc = object_contents_each(m->r, at->ahead, &d->obj, mark_content, m, e);
    if (rc < 0 || !dir)
        return rc;
    if (at->depth >= DEPTH_MAX)
        return err_set(e, ERR_DAMAGE, EBADMSG, "directories nested deeper than %d", DEPTH_MAX);
    struct err inner = ERR_INIT;
    struct level l = {.m = m, .ahead = at->ahead, .depth = at->depth + 1, .e = &inner};
    rc = dir_each_ahead(m->r, at->ahead, &d->obj, mark_child, &l, e);
    if (rc < 0 && inner.cls != ERR_NONE)
        *e = inner;
    return rc;
}

static int mark_snapshot(struct snapshot *s, struct content_ahead *ahead, void *arg)
{
    const struct marking *k = arg;
    struct maintain_mark *m = k->m;
    const struct level l = {.m = m, .ahead = ahead};
    int rc = maintain_stopped(m->cancel, k->e);
    if (rc < 0)
        return rc;
    m->snapshots++;
    if (*s->incomplete) {
        m->incomplete++;
        if (s->modified_ns > m->checkpoint_ns)
            m->checkpoint_ns = s->modified_ns;
    }
    rc = mark_entry(&l, &s->root, k->e);
    if (rc < 0 && k->e->cls == ERR_DAMAGE) {
        err_wrap(k->e, "snapshot %s", s->id);
        err_hint(k->e, "run verify: it lists what is damaged; nothing is removed while a snapshot cannot be read");
    }
    return rc;
}

static int add_snapshot(const struct manifest *f, void *arg)
{
    const struct marking *k = arg;
    struct snapshot s;
    const char *why = "";
    int rc = maintain_stopped(k->m->cancel, k->e);
    if (rc < 0)
        return rc;
    rc = snapshot_parse(&s, f, &why);
    if (rc == -EINVAL) {
        err_set(k->e, ERR_DAMAGE, EBADMSG, "the manifest of snapshot %s is malformed (%s): what it needs is unknown",
                f->id, why);
        return err_hint(k->e, "see `snapshot delete` for a snapshot that is not needed any more, and "
                              "snapferry-recovery(7)");
    }
    if (rc < 0)
        return err_nomem(k->e);
    const bool known = id_set_has(k->m->objects, &s.root.obj.content, object_tag(&s.root.obj, s.root.type == 'd'));
    rc = tree_ahead_add(k->trees, &s, known);
    snapshot_clear(&s);
    return rc;
}

int maintain_mark(struct maintain_mark *m, struct err *e)
{
    struct manifests *all CLEANUP(manifests_freep) = NULL;
    struct tree_ahead *trees CLEANUP(tree_ahead_freep) = NULL;
    struct err inner = ERR_INIT;
    struct marking k = {.m = m, .e = &inner};
    m->snapshots = m->incomplete = 0;
    m->checkpoint_ns = INT64_MIN;
    int rc = manifests_open(&all, m->r, e);
    if (rc == 0)
        rc = tree_ahead_new(&trees, m->r, AHEAD_MEMORY, mark_snapshot, &k, e);
    k.trees = trees;
    if (rc == 0) {
        rc = manifests_walk(all, "snapshot", NULL, add_snapshot, &k, e);
        rc = tree_ahead_end(trees, rc, &inner);
    }
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
