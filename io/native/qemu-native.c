/* SPDX-License-Identifier: GPL-2.0-or-later */
/* qemu-native.c - native snapshots of drives: taken, one or several of a machine at one instant, and found (qemu.h) */
#include "io/native/qemu.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLEANUP_MACHINE CLEANUP(qemu_machine_close)

/* The node of a drive, and why it cannot be backed up. */
int qemu_drive_find(const struct qemu_state *s, const struct qemu_name *n, const struct qemu_node **ret, struct err *e)
{
    char filter[QEMU_NODE_MAX];
    const struct qemu_node *node = qemu_node_find(s, n->node);
    *ret = node;
    if (!node) {
        err_plain(e, ERR_NOT_FOUND, ENOENT, "the machine of %s has no block node %s", n->socket, n->node);
        return err_hint(e, "a drive needs a node-name: -blockdev node-name=NAME,...");
    }
    if (!qemu_device_of(s, node, filter))
        return err_plain(e, ERR_SOURCE, ENODEV, "no device of the guest has the block node %s of %s as its root",
                         n->node, n->socket);
    if (node->read_only)
        return err_plain(e, ERR_SOURCE, EROFS, "the drive %s of %s is read-only: back up the file behind it", n->node,
                         n->socket);
    return 0;
}

void qemu_native_of(const struct qemu_tag *t, const struct qemu_state *s, const struct qemu_bitmap *b,
                    const struct qemu_name *n, struct native *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->tag = t->tag;
    qemu_name_text(n, ret->handle);
    ret->size = t->size;
    ret->used = UINT64_MAX;
    ret->crash_consistent = true;
    /* Of another process, or not as it was made: it says nothing of what has changed. */
    if (t->run[0] && strcmp(t->run, s->run) == 0 && b->recording && !b->inconsistent)
        snprintf(ret->change_id, sizeof ret->change_id, "qemu:%s", t->tag.alias);
}

static int removed_meanwhile(const char *alias, const struct qemu_name *n, struct err *e)
{
    return err_plain(e, ERR_NOT_FOUND, ENOENT, "native snapshot %s of %s/%s is gone: it ends with the process of QEMU",
                     alias, n->socket, n->node);
}

/* What of ours has this alias. */
static int native_look(const struct driver_class *c, const struct qemu_machine *m, const struct qemu_name *n,
                       const char *alias, struct native *ret, struct err *e)
{
    const struct qemu_node *node;
    CLEANUP_FREE struct qemu_tag *t = malloc(sizeof *t);
    if (!t)
        return err_nomem(e);
    const struct qemu_bitmap *b = qemu_ours(&m->s, alias, &node, t);
    if (!b || strcmp(t->node, c->node) != 0 || strcmp(node->name, n->node) != 0)
        return removed_meanwhile(alias, n, e);
    qemu_tag_of(t, n);
    qemu_native_of(t, &m->s, b, n, ret);
    return 0;
}

static void tag_make(struct qemu_tag *t, const struct driver_class *c, const struct native_tag *tag,
                     const struct volume *v, const struct qemu_state *s, uint64_t size)
{
    memset(t, 0, sizeof *t);
    t->tag = *tag;
    memcpy(t->tag.volume_id, v->id, sizeof t->tag.volume_id);
    memcpy(t->tag.volume_name, v->name, sizeof t->tag.volume_name);
    snprintf(t->node, sizeof t->node, "%s", c->node);
    snprintf(t->run, sizeof t->run, "%s", s->run);
    t->size = size;
}

/* One that is complete is what was asked for; what is left of one that is not is removed. */
static int take(const struct driver_class *c, struct qemu_machine *m, const struct qemu_name *n, const struct volume *v,
                const struct native_tag *tag, struct native *ret, struct err *e)
{
    char export[64];
    const struct qemu_node *node;
    CLEANUP_FREE struct qemu_tag *t = malloc(sizeof *t);
    if (!t)
        return err_nomem(e);
    snprintf(export, sizeof export, QEMU_EXPORT "%s", tag->alias);
    if (qemu_export_exists(&m->s, export))
        return native_look(c, m, n, tag->alias, ret, e);
    int rc = 0;
    if (qemu_ours(&m->s, tag->alias, &node, t)) {
        rc = qemu_unmake(c, m->q, n, tag->alias, true, e);
        if (rc == 0)
            rc = qemu_machine_again(m, e);
    }
    if (rc == 0)
        rc = qemu_drive_find(&m->s, n, &node, e);
    if (rc < 0)
        return rc;
    tag_make(t, c, tag, v, &m->s, node->size);
    rc = qemu_make(c, m->q, &m->s, n, node, t, e);
    if (rc == 0)
        rc = qemu_machine_again(m, e);
    return rc < 0 ? rc : native_look(c, m, n, tag->alias, ret, e);
}

/* The drive that a volume is, as it was looked up. */
static int drive_of(const struct volume *v, const char *alias, struct qemu_name *ret, struct err *e)
{
    char id[VOLUME_ID_MAX];
    if (!alias_valid(alias))
        return err_set(e, ERR_USAGE, EINVAL, "invalid alias \"%.64s\"", alias);
    int rc = qemu_name_parse(ret, v->name, e);
    if (rc < 0)
        return rc;
    qemu_volume_id(ret, id);
    if (strcmp(id, v->id) != 0)
        return err_set(e, ERR_SOURCE, ESTALE, "%s is no longer the volume that was looked up (%s, now %s)", v->name,
                       v->id, id);
    return 0;
}

int qemu_snapshot(const struct driver_class *c, const struct volume *v, const struct native_tag *tag,
                  struct native *ret, struct err *e)
{
    CLEANUP_MACHINE struct qemu_machine m = {.q = NULL};
    struct qemu_name n;
    int rc = drive_of(v, tag->alias, &n, e);
    if (rc == 0)
        rc = qemu_machine_open(&m, n.socket, e);
    return rc < 0 ? rc : take(c, &m, &n, v, tag, ret, e);
}

/* ---- several drives of a machine ---- */

int qemu_group_domain(const struct driver_class *c, const struct volume *v, char ret[VOLUME_ID_MAX], struct err *e)
{
    struct qemu_name n;
    (void)c;
    int rc = qemu_name_parse(&n, v->name, e);
    if (rc < 0)
        return rc;
    snprintf(n.node, sizeof n.node, "-");
    qemu_volume_id(&n, ret);
    return 0;
}

struct drives {
    struct qemu_name *name;
    struct qemu_tag *tag;
    struct qemu_member *made;
    size_t *of; /* whose `made` it is */
    size_t n;
};

static void drives_free(struct drives *d)
{
    free(d->name);
    free(d->tag);
    free(d->made);
    free(d->of);
}

static int drives_name(struct drives *d, const struct group_member *m, size_t n, struct err *e)
{
    d->name = calloc(n, sizeof *d->name);
    d->tag = calloc(n, sizeof *d->tag);
    d->made = calloc(n, sizeof *d->made);
    d->of = calloc(n, sizeof *d->of);
    int rc = d->name && d->tag && d->made && d->of ? 0 : err_nomem(e);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = drive_of(m[i].v, m[i].tag->alias, &d->name[i], e);
    return rc;
}

/* What an interrupted call has left of another instant. */
static int group_remove(struct qemu_machine *x, const struct drives *d, const struct group_member *m, size_t n,
                        struct err *e)
{
    CLEANUP_FREE struct qemu_tag *t = malloc(sizeof *t);
    int rc = t ? 0 : err_nomem(e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const struct qemu_node *node;
        if (!qemu_ours(&x->s, m[i].tag->alias, &node, t))
            continue;
        rc = qemu_unmake(m[i].c, x->q, &d->name[i], m[i].tag->alias, true, e);
        if (rc == 0)
            rc = qemu_machine_again(x, e);
    }
    return rc;
}

int qemu_group(struct group_member *m, size_t n, struct err *e)
{
    CLEANUP_MACHINE struct qemu_machine x = {.q = NULL};
    CLEANUP(drives_free) struct drives d = {.n = 0};
    int rc = drives_name(&d, m, n, e);
    if (rc == 0)
        rc = qemu_machine_open(&x, d.name[0].socket, e);
    if (rc == 0)
        rc = group_remove(&x, &d, m, n, e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const struct qemu_node *node;
        if (qemu_drive_find(&x.s, &d.name[i], &node, &m[i].err) < 0)
            continue;
        tag_make(&d.tag[i], m[i].c, m[i].tag, m[i].v, &x.s, node->size);
        d.of[d.n] = i;
        d.made[d.n++] = (struct qemu_member){m[i].c, &d.name[i], node, &d.tag[i], &m[i].err};
    }
    if (rc == 0 && d.n)
        rc = qemu_make_group(x.q, &x.s, d.made, d.n, e);
    if (rc == 0)
        rc = qemu_machine_again(&x, e);
    for (size_t k = 0; rc == 0 && k < d.n; k++) {
        struct group_member *one = &m[d.of[k]];
        if (!one->err.cls)
            native_look(one->c, &x, &d.name[d.of[k]], one->tag->alias, one->ret, &one->err);
    }
    for (size_t i = 0; rc < 0 && i < n; i++)
        m[i].err = (struct err)ERR_INIT;
    return rc;
}

int qemu_find(const struct driver_class *c, const struct volume *v, const char *alias, const char *hint,
              struct native *ret, struct err *e)
{
    CLEANUP_MACHINE struct qemu_machine m = {.q = NULL};
    struct qemu_name n;
    if (!alias_valid(alias) || (!v && !*hint))
        return err_set(e, ERR_USAGE, EINVAL, "invalid alias \"%.64s\"", alias);
    int rc = qemu_name_parse(&n, v ? v->name : hint, e);
    if (rc == 0)
        rc = qemu_machine_open(&m, n.socket, e);
    return rc < 0 ? rc : native_look(c, &m, &n, alias, ret, e);
}
