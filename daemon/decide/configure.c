/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * configure.c - a changed configuration reaches what waits
 *
 * What an operation backs up is fixed when it is submitted: volume, storage class, move-data, mover, group. Where and
 * how is read again as long as it waits, at each reload, at the daemon's start and before another attempt: until the
 * native snapshot exists its repository and driver options, until the intermediate exists where that lies, and limits,
 * timeouts, retries, retention and hooks at any time. An operation whose data is being moved is left alone. What is
 * not taken over is in its record, with the reason and what to do (op->config_kept).
 */
#include "base/cleanup.h"
#include "daemon/decide/decide.h"
#include "daemon/decide/judge.h"

#include <stdio.h>
#include <string.h>

#define AGAIN "cancel the operation and submit it again"

/* Why parts of the configuration are not taken over; the first reason counts. */
struct kept {
    char why[400];
};

static void keep(struct kept *k, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void keep(struct kept *k, const char *fmt, ...)
{
    va_list ap;
    if (k->why[0])
        return;
    va_start(ap, fmt);
    vsnprintf(k->why, sizeof k->why, fmt, ap);
    va_end(ap);
}

static bool still_waits(const struct operation *op)
{
    return (op->kind == KIND_BACKUP || op->kind == KIND_RESTORE) && !op->cancel &&
           (op->state == OP_QUEUED || op->state == OP_RETRYING || op->state == OP_EXPOSING ||
            (op->state == OP_SNAPSHOTTING && op->stage == STAGE_NEW));
}

static void keep_text(struct kept *k, char **fresh, const char *old, const char *key, const char *why)
{
    if (!strcmp(*fresh, old))
        return;
    keep(k, "%s = %s is not taken over: %s; " AGAIN, key, (*fresh)[0] ? *fresh : "(none)", why);
    str_set(fresh, old);
}

/* What is backed up, together with what, and by whom. */
static void keep_submitted(struct kept *k, struct policy *fresh, const struct operation *op)
{
    static const char fixed[] = "it is fixed when an operation is submitted";
    const struct policy *old = op->policy;
    keep_text(k, &fresh->mover, old->mover, "mover", fixed);
    keep_text(k, &fresh->group, old->group, "group", fixed);
    fresh->move_data = old->move_data; /* also set by the request */
    fresh->full = old->full;
    fresh->group_strict = old->group_strict;
    fresh->group_max_skew_ms = old->group_max_skew_ms;
    if (driver_is_raw(op->own->driver))
        fresh->snapshots_to_retain = 0;
}

/* Members that what exists already was made with. */
static void keep_made(struct kept *k, struct policy *fresh, const struct operation *op)
{
    const struct policy *old = op->policy;
    if (operation_is_restore(op)) {
        str_set(&fresh->repository, old->repository); /* where the data is */
        return;
    }
    if (op->native[0])
        keep_text(k, &fresh->repository, old->repository, "repository", "its native snapshot was taken for another");
    if (op->hook_intent)
        str_set(&fresh->hook_post_snapshot, old->hook_post_snapshot);
    if (op->expose_intent) {
        keep_text(k, &fresh->backup_storage_class, old->backup_storage_class, "backup-storage-class",
                  "its intermediate exists");
        fresh->backup_read_only = old->backup_read_only;
        json_set(&fresh->options, old->options);
    }
}

/* The classes that the policy is of; false: the operation stays as it is. */
static bool configure_classes(struct decide *d, struct operation *op, const struct cfg_policy *p, struct kept *k)
{
    const struct cfg *c = d->world.cfg;
    const struct cfg_class *own = cfg_class_of(c, volume_subject(op->volume)), *into = NULL;
    if (!own) {
        keep(k, "no storage class matches the volume any more: the operation continues as it was submitted");
        return false;
    }
    if (strcmp(own->name, op->own->name) != 0 || strcmp(own->driver, op->own->driver) != 0) {
        keep(k,
             "the volume is of storage class \"%s\" (driver %s) now: the class is fixed when an operation is "
             "submitted; " AGAIN,
             own->name, own->driver);
        return false;
    }
    if (p->backup_storage_class[0] && !(into = cfg_class(c, p->backup_storage_class)))
        return false; /* refused at the reload */
    if (!op->native[0]) {
        class_desc_take(&op->own, class_from_cfg(c, own, p));
    } else if (op->own->max != own->max) {
        struct class_desc o;
        class_desc_copy(&o, op->own);
        o.max = own->max;
        class_desc_take(&op->own, class_desc_make(&o));
    }
    if (!op->expose_intent)
        class_desc_take(&op->into, into && into != own ? class_from_cfg(c, into, p) : class_desc_from_json(NULL));
    return true;
}

static bool configure(struct decide *d, struct operation *op, struct kept *k)
{
    const struct cfg *c = d->world.cfg;
    struct cfg_policy p = {.effective = NULL};
    struct policy fresh;
    if (op->job[0] && !cfg_job(c, op->job)) {
        keep(k, "job \"%s\" is no longer in the configuration: the operation continues as it was submitted", op->job);
        return false;
    }
    bool ok = cfg_policy(c, volume_subject(op->volume), op->job[0] ? op->job : NULL, &p, NULL) == 0 &&
              cfg_policy_size(c, &p, volume_subject(op->volume), (uint64_t)op->volume->size, NULL) == 0;
    if (ok && p.exclude && !operation_is_restore(op))
        keep(k, "the volume is excluded now: the operation continues as it was submitted; cancel it if it should not");
    ok = ok && (operation_is_restore(op) || configure_classes(d, op, &p, k));
    if (ok && policy_from_cfg(&fresh, &p) == 0) {
        if (operation_is_restore(op))
            str_set(&fresh.mover, op->policy->mover);
        keep_submitted(k, &fresh, op);
        keep_made(k, &fresh, op);
        policy_take(&op->policy, policy_make(&fresh));
    } else {
        ok = false;
    }
    cfg_policy_clear(&p);
    return ok;
}

bool operation_configure(struct decide *d, struct operation *op)
{
    struct kept k = {.why = ""};
    const struct policy *policy = op->policy;
    const struct class_desc *own = op->own, *into = op->into;
    CLEANUP(operation_clear) struct operation was = ROW_INIT;
    if (!still_waits(op) || operation_copy(&was, op) < 0)
        return false;
    configure(d, op, &k);
    const bool changed = op->policy != policy || op->own != own || op->into != into;
    if (strcmp(k.why, op->config_kept) != 0 && k.why[0])
        plan_log(d, LOG_LVL_WARNING, "%s: %s", operation_label(op), k.why);
    const bool noted = strcmp(k.why, op->config_kept) != 0;
    str_set(&op->config_kept, k.why);
    if (changed)
        op->configured_ns = decide_now(d);
    return changed || noted;
}

struct configuring {
    struct decide *decide;
    struct configured *ret;
};

static int configure_one(const struct operation *op, void *arg)
{
    struct configuring *x = arg;
    CLEANUP(operation_clear) struct operation own = ROW_INIT;
    if (!still_waits(op) || operation_copy(&own, op) < 0)
        return 0;
    const struct policy *policy = op->policy;
    if (operation_configure(x->decide, &own) && operation_write(x->decide, &own) == 0)
        x->ret->changed += own.policy != policy;
    x->ret->kept += own.config_kept[0] != '\0';
    return 0;
}

struct configured configure_waiting(struct decide *d)
{
    struct configured ret = {.changed = 0};
    const struct operation_filter live = {.live = true};
    struct configuring x = {d, &ret};
    operation_each(d->records, &live, configure_one, &x, NULL);
    return ret;
}
