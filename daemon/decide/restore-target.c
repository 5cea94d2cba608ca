/* SPDX-License-Identifier: GPL-2.0-or-later */
/* restore-target.c - the storage class of what is restored into */
#include "base/cleanup.h"
#include "daemon/decide/decide.h"
#include "daemon/records/driver-kind.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The class that knows how to reach the cluster of an image that no class selects: the volume's own, or the only one of
 * this driver. */
static const struct cfg_class *class_with_driver(const struct cfg *c, const char *own, const char *driver)
{
    const struct cfg_class *k = cfg_class(c, own), *found = NULL;
    if (k && !strcmp(k->driver, driver))
        return k;
    for (unsigned i = 0; (k = cfg_class_at(c, i)); i++) {
        if (strcmp(k->driver, driver) != 0)
            continue;
        if (found)
            return NULL;
        found = k;
    }
    return found;
}

const struct class_desc *class_of_target(const struct cfg *c, const struct target_named *t)
{
    const bool guessed = driver_kind_of(t->driver)->has_cluster && !cfg_class_of(c, t->subject);
    const struct cfg_class *k = guessed ? class_with_driver(c, t->own, t->driver) : NULL;
    struct cfg_policy p = {.effective = NULL};
    if (!k || cfg_policy_of_class(c, k->name, &p, NULL) < 0)
        return class_for_path(c, t->subject, t->driver);
    const struct class_desc *ret = class_from_cfg(c, k, &p);
    cfg_policy_clear(&p);
    return ret;
}

int target_refused(const struct cfg *c, const struct target_named *t, const struct operation *of, struct err *e)
{
    if (!driver_kind_of(t->driver)->has_cluster)
        return 0;
    CLEANUP(class_desc_unrefp) const struct class_desc *k = class_of_target(c, t);
    if (!strcmp(k->name, CLASS_OF_TARGET)) {
        err_set(e, ERR_USAGE, EINVAL, "%s is neither an absolute path nor an image of a storage class with driver %s",
                t->subject.name, t->driver);
        return err_hint(e, "if several classes have this driver, the one whose `match` selects the image counts");
    }
    if (of->policy->mover[0])
        return err_set(e, ERR_USAGE, ENOTSUP,
                       "%s was stored by a mover plugin, which restores it to a file or a device, not to an image",
                       of->volume->name);
    return 0;
}

/* ---- what else is under way ---- */

struct same_target {
    struct decide *decide;
    const char *name;
    char restore[192]; /* that has it */
    bool only_in_place;
};

static int note_in_place(const struct operation *op, void *arg)
{
    *(bool *)arg |= op->in_place;
    return 0;
}

static int note_restore(const struct backup *b, void *arg)
{
    struct same_target *x = arg;
    const struct operation_filter of_it = {.parent = b->id, .live = true};
    bool in_place = false;
    if (b->kind != KIND_RESTORE || strcmp(b->target, x->name) != 0)
        return 0;
    operation_each(x->decide->records, &of_it, note_in_place, &in_place, NULL);
    if (x->only_in_place && !in_place)
        return 0;
    snprintf(x->restore, sizeof x->restore, "%s", b->id);
    return 1;
}

/* The restore that has not ended with this target; "": none. */
static void find_restore(struct same_target *x)
{
    const struct backup_filter live = {.live = true};
    backup_each(x->decide->records, &live, note_restore, x, NULL);
}

struct reader {
    const char *name;
    char backup[192];
    bool snapshot; /* is taken of it */
};

/* One that has no snapshot yet waits until the restore has ended. */
static int note_reader(const struct operation *op, void *arg)
{
    struct reader *x = arg;
    if (op->kind != KIND_BACKUP || strcmp(op->volume->name, x->name) != 0)
        return 0;
    x->snapshot = op->state == OP_SNAPSHOTTING;
    if (!x->snapshot && (!driver_is_raw(op->own->driver) || is_none(op->native_doc)))
        return 0;
    snprintf(x->backup, sizeof x->backup, "%s", op->parent);
    return 1;
}

int target_in_use(struct decide *d, const char *target, bool in_place, struct err *e)
{
    const struct operation_filter live = {.live = true};
    struct same_target x = {.decide = d, .name = target};
    struct reader reader = {.name = target};
    find_restore(&x);
    if (x.restore[0]) {
        err_plain(e, ERR_BUSY, EBUSY, "%s is the target of %s, which has not ended", target, x.restore);
        return err_hint(e, "`snapferry describe %s` shows how far it is, `snapferry cancel %s` ends it", x.restore,
                        x.restore);
    }
    if (in_place)
        operation_each(d->records, &live, note_reader, &reader, NULL);
    if (!reader.backup[0])
        return 0;
    if (reader.snapshot)
        err_plain(e, ERR_BUSY, EBUSY, "backup %s is taking a snapshot of %s", reader.backup, target);
    else
        err_plain(e, ERR_BUSY, EBUSY, "backup %s reads %s directly, without a snapshot", reader.backup, target);
    return err_hint(e, "wait until it has ended, or end it with `snapferry cancel %s`", reader.backup);
}

int restore_under_way(struct decide *d, const struct operation *op, struct err *e)
{
    struct same_target x = {.decide = d, .name = op->volume->name, .only_in_place = true};
    find_restore(&x);
    if (!x.restore[0])
        return 0;
    err_plain(e, ERR_BUSY, EBUSY, "%s is not backed up while %s writes to it", op->volume->name, x.restore);
    return err_hint(e, "`snapferry describe %s` shows how far it is, `snapferry cancel %s` ends it", x.restore,
                    x.restore);
}

/* ---- what is there ---- */

int target_found_refused(const struct request_args *req, const struct target_found *found, struct err *e)
{
    const bool keeps = req->differential || request_is_ranged(req);
    if (!found->exists)
        return 0;
    if (req->only_new)
        return err_plain(e, ERR_TARGET, EEXIST, "%s exists, and --new was given", req->target);
    if (found->block || req->overwrite || keeps) /* a driver refuses a device that is in use */
        return 0;
    err_plain(e, ERR_TARGET, EEXIST, "%s exists", req->target);
    return err_hint(e, "--overwrite replaces it when the restore is complete, another name leaves it alone");
}
