/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * retry.c - the volumes that failed are backed up again, from the native snapshots that were taken then (RS-03)
 *
 * A new backup, since an outcome that is recorded does not change. Its operations take over the native snapshots (the
 * records of these name it from then on), and take none of their own in any case: what it stores is of the time of the
 * backup that failed. A native snapshot that is gone makes the operation fail.
 */
#include "base/cleanup.h"
#include "base/time.h"
#include "daemon/decide/decide.h"
#include "daemon/records/driver-kind.h"
#include "daemon/records/names.h"
#include "daemon/records/step-answer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define HINT                                                                                                           \
    "back up the volume again; a retry needs a volume that failed and its native snapshot, which keep-on-failure = "   \
    "yes keeps"

struct retry {
    struct decide *decide;
    const char *volume;  /* "": all that failed */
    struct backup b;     /* that failed */
    struct strs ids;     /* operations that can be tried again */
    json_t *lacking;     /* [{"volume", "reason"}] */
    char first_why[700]; /* of the first of them */
    const struct volume_desc *first;
    const struct step_answer *seen; /* NULL: the storage has not been looked at */
    bool paths; /* names of volumes begin with a slash: that after the backup's id may be the name's own */
    bool no_memory;
};

static void retry_clear(struct retry *r)
{
    backup_clear(&r->b);
    strs_clear(&r->ids);
    json_decref(r->lacking);
    volume_desc_unref(r->first);
}

/* ---- which operations ---- */

static bool is_wanted(const struct retry *r, const struct operation *op, bool failed)
{
    return r->volume[0] ? name_is_volume(op->volume, r->volume, true) || name_is_volume(op->volume, r->volume, false)
                        : failed;
}

/* What was seen of a native snapshot; NULL: nothing. */
static const struct native_seen *seen_of(const struct retry *r, const char *alias)
{
    const struct native_seen *v = r->seen ? r->seen->natives.v : NULL;
    for (unsigned i = 0; v && i < r->seen->natives.n; i++)
        if (!strcmp(v[i].alias, alias))
            return &v[i];
    return NULL;
}

/* Why the native snapshot of this operation cannot be used; "" if it can. */
static void why_native_not(const struct retry *r, const struct operation *op, const struct native_row *n, char *out,
                           size_t cap)
{
    const struct native_seen *seen = seen_of(r, op->native);
    const char *raw = driver_kind_of(op->own->driver)->raw;
    out[0] = '\0';
    if (!op->native[0])
        snprintf(out, cap, "no native snapshot was taken");
    else if (raw)
        snprintf(out, cap, "%s has no native snapshot: its data may have changed since the backup", raw);
    else if (!n)
        snprintf(out, cap, "its native snapshot %s is gone", op->native);
    else if (strcmp(n->parent, op->parent) != 0)
        snprintf(out, cap, "its native snapshot %s belongs to backup %s, which tried it again", op->native, n->parent);
    else if (n->state != NATIVE_PRESENT || (seen && seen->state == SEEN_MISSING))
        snprintf(out, cap, "its native snapshot %s is %s", op->native,
                 n->state == NATIVE_REMOVING ? "being removed" : "no longer on the storage");
    else if (r->seen && (!seen || seen->state != SEEN_PRESENT))
        snprintf(out, cap, "its native snapshot %s could not be looked for: %.400s", op->native,
                 seen ? seen->why : "it was not found among what was looked at");
}

static int note_member(const struct operation *op, void *arg)
{
    struct retry *r = arg;
    const bool failed = op->state == OP_FAILED || op->state == OP_CANCELED;
    char why[700];
    r->paths |= op->kind == KIND_BACKUP && op->volume->name[0] == '/';
    if (op->kind != KIND_BACKUP || !is_wanted(r, op, failed))
        return 0;
    if (!failed)
        snprintf(why, sizeof why, "it is %s", op_state_name(op->state));
    else if (!op->policy->move_data)
        snprintf(why, sizeof why, "its data is not moved (move-data = no)");
    else
        why_native_not(r, op, native_row_peek(r->decide->records, op->native), why, sizeof why);
    if (why[0] && !r->first_why[0]) {
        snprintf(r->first_why, sizeof r->first_why, "%s", why);
        volume_desc_set(&r->first, op->volume);
    }
    if (why[0])
        json_array_append_new(r->lacking, json_pack("{s:s,s:s}", "volume", op->volume->name, "reason", why));
    else if (strs_add(&r->ids, op->id) < 0)
        r->no_memory = true;
    return 0;
}

static int refuse_lacking(const struct retry *r, struct err *e)
{
    const size_t n = json_array_size(r->lacking);
    if (!n) {
        const char *slash = r->paths && r->volume[0] && r->volume[0] != '/' ? "/" : "";
        err_set(e, ERR_NOT_FOUND, 0, "backup %s has no volume %s%s", r->b.id, slash,
                r->volume[0] ? r->volume : "that failed");
        return err_hint(e, "`snapferry describe %s` lists its volumes", r->b.id);
    }
    err_set(e, ERR_NOT_FOUND, 0, "%s of backup %s cannot be tried again: %s%s", r->first->name, r->b.id, r->first_why,
            n > 1 ? "; nor can other volumes of it" : "");
    return err_hint(e, HINT);
}

static int look(struct retry *r, struct decide *d, const char *id, const char *volume, const struct step_answer *seen,
                struct err *e)
{
    const struct operation_filter f = {.parent = id};
    *r = (struct retry){
        .decide = d, .volume = volume, .seen = seen, .lacking = json_array(), .first = &volume_desc_none};
    backup_init(&r->b);
    if (backup_read(d, id, &r->b) < 0) {
        err_set(e, ERR_NOT_FOUND, 0, "there is no backup %s in the records", id);
        return err_hint(e, "`snapferry backups` lists them");
    }
    if (r->b.kind == KIND_RESTORE)
        return err_set(e, ERR_USAGE, EINVAL, "%s is a restore: submit it again", id);
    if (r->b.node[0])
        return err_set(e, ERR_PERMISSION, 0, "backup %s is of node %s, which alone can try it again", id, r->b.node);
    if (r->b.deleting[0])
        return err_set(e, ERR_BUSY, 0, "backup %s is being deleted", id);
    if (!backup_state_terminal(r->b.state)) {
        err_set(e, ERR_BUSY, 0, "backup %s is still %s", id, backup_state_name(r->b.state));
        return err_hint(e, "`snapferry wait %s` waits for its end", id);
    }
    int rc = operation_each(d->records, &f, note_member, r, e);
    if (rc >= 0 && r->no_memory)
        rc = err_nomem(e);
    return rc >= 0 && r->ids.n == 0 ? refuse_lacking(r, e) : rc;
}

json_t *retry_look(struct decide *d, const char *backup, const char *volume, struct err *e)
{
    CLEANUP(retry_clear) struct retry r;
    CLEANUP_JSON json_t *classes = json_object(), *aliases = json_array(), *list = json_array();
    const char *key;
    json_t *v;
    if (look(&r, d, backup, volume, NULL, e) < 0)
        return NULL;
    for (unsigned i = 0; i < r.ids.n; i++) {
        CLEANUP(operation_clear) struct operation op = ROW_INIT;
        if (operation_get(d->records, r.ids.v[i], &op, e) < 0)
            return NULL;
        const struct native_row *n = native_row_peek(d->records, op.native);
        if (!n)
            continue;
        json_array_append_new(aliases, json_string(n->id));
        if (!json_object_get(classes, n->klass->name))
            json_object_set_new(classes, n->klass->name, class_desc_to_json(n->klass));
    }
    json_object_foreach(classes, key, v) json_array_append(list, v);
    json_t *ret = json_pack("{s:O,s:O}", "classes", list, "aliases", aliases);
    if (!ret)
        err_nomem(e);
    return ret;
}

/* ---- the new backup ---- */

static int add_operation(struct retry *r, const char *backup, const struct operation *of, struct err *e)
{
    struct decide *d = r->decide;
    CLEANUP(operation_clear) struct operation op;
    CLEANUP(native_row_clear) struct native_row n;
    operation_init(&op);
    native_row_init(&n);
    if (native_row_read(d, of->native, &n) < 0)
        return err_set(e, ERR_NOT_FOUND, 0, "native snapshot %s is gone", of->native);
    str_setf(&op.id, "up-%s.%s", backup, of->volume_id);
    str_set(&op.parent, backup);
    str_set(&op.volume_id, of->volume_id);
    op.state = OP_QUEUED;
    op.kind = KIND_BACKUP;
    str_set(&op.retry_of, of->id);
    str_set(&op.job, of->job);
    str_set(&op.description, of->description);
    op.debug = of->debug;
    policy_set(&op.policy, of->policy);
    class_desc_set(&op.own, of->own);
    class_desc_set(&op.into, of->into);
    volume_desc_set(&op.volume, of->volume);
    str_set(&op.native, of->native);
    tag_desc_set(&op.tag, of->tag);
    op.snapshot_ns = of->snapshot_ns;
    op.snapshot_ms = of->snapshot_ms;
    op.group_skew_ms = of->group_skew_ms;
    op.frozen_ms = of->frozen_ms;
    operation_configure(d, &op);
    int rc = operation_add(d->records, &op, e);
    str_set(&n.parent, backup);
    str_set(&n.operation, op.id);
    n.failed = false;
    n.expired = false;
    return rc < 0 ? rc : native_row_save(d->records, &n, e);
}

int retry_submit(struct decide *d, const char *backup, const char *volume, const struct step_answer *seen,
                 json_t **answer, struct err *e)
{
    CLEANUP(retry_clear) struct retry r;
    CLEANUP(backup_clear) struct backup b;
    json_t *ops = json_array();
    char stamp[32];
    backup_init(&b);
    *answer = NULL;
    int rc = look(&r, d, backup, volume, seen, e);
    if (rc < 0) {
        json_decref(ops);
        return rc;
    }
    d->world.ids->stamp(d->world.ids, decide_now(d), stamp);
    str_setf(&b.id, "retry-%s", stamp);
    b.state = BACKUP_QUEUED;
    b.kind = KIND_BACKUP;
    b.origin = ORIGIN_REQUEST;
    str_set(&b.job, r.b.job);
    str_set(&b.description, r.b.description);
    str_set(&b.retry_of, r.b.id);
    json_set(&b.skipped, r.lacking);
    b.snapshots_done_ns = r.b.snapshots_done_ns; /* the point in time that can be restored is that of the first one */
    for (unsigned i = 0; rc >= 0 && i < r.ids.n; i++) {
        CLEANUP(operation_clear) struct operation of = ROW_INIT;
        if ((rc = operation_get(d->records, r.ids.v[i], &of, e)) < 0)
            break;
        rc = add_operation(&r, b.id, &of, e);
        strs_add(&b.volume_ids, of.volume_id);
        if (!b.snapshots_done_ns)
            b.snapshots_done_ns = of.snapshot_ns;
        json_array_append_new(ops, json_pack("{s:o,s:s,s:s}", "id", json_sprintf("up-%s.%s", b.id, of.volume_id),
                                             "volume", of.volume->name, "native", of.native));
    }
    if (rc >= 0)
        rc = backup_add(d->records, &b, e);
    if (rc >= 0) {
        count_backup_begun(d, b.job, false);
        plan_log(d, LOG_LVL_INFO, "%s: %u volume%s of backup %s, from the native snapshots taken then", b.id, r.ids.n,
                 r.ids.n == 1 ? "" : "s", r.b.id);
        *answer =
            json_pack("{s:s,s:s,s:O,s:O}", "backup", b.id, "retry_of", r.b.id, "operations", ops, "skipped", r.lacking);
        plan_crash_point(d, "engine-retry-submitted");
    }
    json_decref(ops);
    return rc < 0 ? rc : 0;
}

/* ---- phase 1 ---- */

void retry_begin(struct decide *d, struct operation *op)
{
    const struct native_row *n = native_row_peek(d->records, op->native);
    struct err e = ERR_INIT;
    if (!n || n->state != NATIVE_PRESENT || strcmp(n->parent, op->parent) != 0) {
        err_set(&e, ERR_NOT_FOUND, 0, "native snapshot %s of %s, which was to be backed up again, is %s", op->native,
                op->volume->name,
                !n                              ? "gone"
                : n->state == NATIVE_REMOVING   ? "being removed"
                : strcmp(n->parent, op->parent) ? "of another backup"
                                                : "no longer on the storage");
        err_hint(&e, HINT);
        operation_fail(d, op, "snapshot", &e);
        return;
    }
    native_desc_set(&op->native_doc, n->native);
    op->stage = STAGE_SNAPPED;
    operation_become(d, op, OP_QUEUED);
}
