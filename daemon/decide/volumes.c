/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * volumes.c - what is recorded of volumes, and which of their backups still exist
 */
#include "base/cleanup.h"
#include "daemon/decide/decide.h"

#include <errno.h>
#include <string.h>

/* ---- records ---- */

void volume_note(struct decide *d, const struct volume_desc *volume, const char *klass, volume_change_fn *change,
                 const void *arg)
{
    CLEANUP(volume_row_clear) struct volume_row v;
    struct err e = ERR_INIT;
    volume_row_init(&v);
    if (!volume->id[0])
        return;
    bool fresh = volume_row_get(d->records, volume->id, &v, NULL) < 0;
    if (fresh) {
        str_set(&v.id, volume->id);
        str_set(&v.volume_id, volume->id);
        v.state = VOL_KNOWN;
    }
    if (v.state == VOL_GONE) {
        v.state = VOL_KNOWN;
        v.gone_ns = 0;
    }
    volume_desc_set(&v.volume, volume);
    str_set(&v.klass, klass);
    if (change)
        change(&v, arg);
    int rc = fresh ? volume_row_add(d->records, &v, &e) : volume_row_save(d->records, &v, &e);
    if (rc < 0)
        plan_log(d, LOG_LVL_WARNING, "volume %s: %s", volume->name, e.msg);
}

struct by_name {
    const char *name;
    struct volume_row *ret;
    bool found;
};
static int match_name(const struct volume_row *v, void *arg)
{
    struct by_name *x = arg;
    if (strcmp(v->volume->name, x->name) != 0)
        return 0;
    x->found = volume_row_copy(x->ret, v) == 0;
    return 1;
}

int volume_find(struct decide *d, const char *what, struct volume_row *ret)
{
    struct by_name x = {what, ret, false};
    const struct volume_row_filter newest = {.newest_first = true};
    if (volume_row_get(d->records, what, ret, NULL) == 0)
        return 0;
    volume_row_each(d->records, &newest, match_name, &x, NULL);
    return x.found ? 0 : -ENOENT;
}

/* ---- the last good backup ---- */

const char *operation_evidence(const struct operation *op)
{
    if (!op->policy->move_data)
        return "native";
    return op->policy->mover[0] ? op->policy->mover : op->verified_ns || op->rebuilt ? "" : "mover";
}

bool operation_is_last_good(struct records *r, const struct operation *op)
{
    CLEANUP(volume_row_clear) struct volume_row v;
    volume_row_init(&v);
    return volume_row_get(r, op->volume_id, &v, NULL) == 0 && !strcmp(v.last_good_backup, op->parent);
}

struct newest {
    struct decide *decide;
    const char *except; /* a backup that is on its way out */
    operation_gone_fn *gone;
    void *arg;
    int64_t order_ns, end_ns, snapshot_ns, changed;
    char backup[192], repository[128], evidence[192];
};

/* Whether what an operation made can still be restored, as far as is known. */
static bool still_there(struct decide *d, const struct operation *op)
{
    CLEANUP(native_row_clear) struct native_row n;
    native_row_init(&n);
    if (op->lost || op->unverified[0] || op->gone_ns)
        return false;
    if (op->policy->move_data)
        return true;
    return native_row_read(d, op->native, &n) == 0 && n.state != NATIVE_MISSING;
}

int64_t operation_changed_bytes(const struct operation *op)
{
    return op->result.incremental;
}

static int look_at_backup(const struct operation *op, void *arg)
{
    struct newest *x = arg;
    /* One that only has to release what it owns has succeeded: what is pruned in favour of it leaves no gap. */
    const bool releasing = op->state == OP_CLEANING_UP && op->outcome == OUTCOME_COMPLETED;
    /* What a scan has found of another node's protects nothing of this one's. */
    const bool foreign =
        op->rebuilt && op->own->node[0] && strcmp(op->own->node, cfg_daemon(x->decide->world.cfg)->node_name) != 0;
    const int64_t end = releasing ? op->ended_ns : op->completed_ns;
    /* One that failed and was tried again is of an earlier time (RS-03). */
    const int64_t order = op->retry_of[0] ? op->snapshot_ns : end;
    if (op->kind != KIND_BACKUP || foreign || (op->state != OP_COMPLETED && !releasing) || order <= x->order_ns ||
        !strcmp(op->parent, x->except) || !still_there(x->decide, op) || (x->gone && x->gone(op, x->arg)))
        return 0;
    x->order_ns = order;
    x->end_ns = end;
    x->snapshot_ns = op->snapshot_ns;
    x->changed = operation_changed_bytes(op);
    snprintf(x->backup, sizeof x->backup, "%s", op->parent);
    snprintf(x->repository, sizeof x->repository, "%s", op->policy->repository);
    snprintf(x->evidence, sizeof x->evidence, "%s", operation_evidence(op));
    return 0;
}

static int look_for_newest(struct decide *d, const char *volume_id, struct newest *x, struct err *e)
{
    const struct operation_filter f = {.volume_id = volume_id};
    x->decide = d;
    x->changed = -1;
    return operation_each(d->records, &f, look_at_backup, x, e);
}

static int save_newest(struct decide *d, struct volume_row *v, const struct newest *x, struct err *e)
{
    v->last_success_ns = x->end_ns;
    v->last_snapshot_ns = x->snapshot_ns;
    str_set(&v->last_good_backup, x->backup);
    str_set(&v->last_good_repository, x->repository);
    str_set(&v->last_good_evidence, x->evidence);
    v->last_changed_bytes = x->changed;
    return volume_row_save(d->records, v, e);
}

int volume_backup_lost(struct decide *d, const char *volume_id, const char *backup, const char *why, struct err *e)
{
    return volume_backup_lost_of(d, volume_id, backup, why, NULL, NULL, e);
}

int volume_backup_lost_of(struct decide *d, const char *volume_id, const char *backup, const char *why,
                          operation_gone_fn *gone, void *arg, struct err *e)
{
    CLEANUP(volume_row_clear) struct volume_row v;
    volume_row_init(&v);
    struct newest x = {.except = backup, .gone = gone, .arg = arg};
    if (!volume_id[0] || volume_row_read(d, volume_id, &v) < 0)
        return 0;
    bool last = !strcmp(v.last_backup, backup);
    if (last)
        str_clear(&v.last_backup);
    if (strcmp(v.last_good_backup, backup))
        return last ? volume_row_save(d->records, &v, e) : 0;
    int rc = look_for_newest(d, volume_id, &x, e);
    if (rc < 0)
        return rc;
    const char *name = v.volume->name;
    if (x.backup[0]) {
        str_clear(&v.last_good_lost);
        plan_log(d, LOG_LVL_INFO, "%s: backup %s %s; the last good one is %s now", name, backup, why, x.backup);
    } else {
        char text[700];
        snprintf(text, sizeof text, "the last one, %s, %s", backup, why);
        str_set(&v.last_good_lost, text);
        plan_log(d, LOG_LVL_WARNING, "%s: no backups are left: %s", name, text);
    }
    return save_newest(d, &v, &x, e);
}

static void take_newest(struct decide *d, struct volume_row *v, const struct newest *x)
{
    struct err e = ERR_INIT;
    if (x->end_ns <= v->last_success_ns)
        return;
    str_clear(&v->last_good_lost);
    if (save_newest(d, v, x, &e) < 0)
        plan_log(d, LOG_LVL_WARNING, "volume %s: %s", v->volume->name, e.msg);
}

void volume_backup_found(struct decide *d, const char *volume_id)
{
    CLEANUP(volume_row_clear) struct volume_row v;
    volume_row_init(&v);
    struct newest x = {.except = ""};
    struct err e = ERR_INIT;
    if (volume_id[0] && volume_row_read(d, volume_id, &v) == 0 && look_for_newest(d, volume_id, &x, &e) >= 0)
        take_newest(d, &v, &x);
}

void volume_backup_there(struct decide *d, const struct operation *op)
{
    CLEANUP(volume_row_clear) struct volume_row v;
    volume_row_init(&v);
    struct newest x = {.decide = d, .except = "", .changed = -1};
    if (op->retry_of[0]) { /* newer than others by another time than that of its end */
        volume_backup_found(d, op->volume_id);
        return;
    }
    if (!op->volume_id[0] || volume_row_read(d, op->volume_id, &v) < 0)
        return;
    look_at_backup(op, &x);
    take_newest(d, &v, &x);
}

struct repository_of {
    const char *backup;
    char *out;
    size_t cap;
};
static int match_backup(const struct operation *op, void *arg)
{
    struct repository_of *x = arg;
    if (strcmp(op->parent, x->backup) || op->kind != KIND_BACKUP)
        return 0;
    snprintf(x->out, x->cap, "%s", op->policy->repository);
    return 1;
}

void volume_repository(struct decide *d, const struct volume_row *v, char *out, size_t cap)
{
    struct repository_of x = {v->last_good_backup, out, cap};
    const struct operation_filter f = {.volume_id = v->id};
    snprintf(out, cap, "%s", v->last_good_repository);
    if (!out[0] && x.backup[0]) /* noted by a daemon that did not remember it */
        operation_each(d->records, &f, match_backup, &x, NULL);
}
