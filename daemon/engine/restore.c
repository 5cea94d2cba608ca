/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * restore.c - what is restored from where: the native snapshot if it is still good, else the repository (RS-22,
 * RS-26)
 */
#include "daemon/records/names.h"
#include "daemon/engine/engine-impl.h"
#include "io/native/driver.h"
#include "daemon/records/opaque.h"
#include "daemon/records/step-request.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

struct restore {
    struct engine *engine;
    engine_reply_fn *reply;
    void *arg;
    struct request_args req;
    const char *target_driver; /* if it is in no class */
    bool target_exists, target_device;
    char target_labels[VOLUME_LABELS_MAX];
    struct operation op; /* of the backup: the source */
    struct native_row native;
    bool has_native;
    /* what is to be recorded */
    enum restore_from from;
    bool native_missing; /* its native snapshot is no longer there */
    char why[RESTORE_WHY];
    struct err refused; /* why there is no restore */
    json_t *answer;
};

static void restore_end(struct restore *r, const struct err *e)
{
    if (r->reply)
        r->reply(e->cls ? NULL : r->answer, e->cls ? e : NULL, r->arg);
    json_decref(r->answer);
    operation_clear(&r->op);
    native_row_clear(&r->native);
    request_args_clear(&r->req);
    free(r);
}

/* ---- which volume of which backup ---- */

struct pick {
    const char *volume;
    struct operation *ret;
    unsigned n;
    bool paths;  /* some have names that begin with a slash: that after the backup's id may be the name's own */
    bool rooted; /* also the name without the slash that it begins with: BACKUP/srv/vm/a.img */
};
static bool is_picked(const struct pick *p, const struct volume_desc *v)
{
    return !p->volume[0] || name_is_volume(v, p->volume, p->rooted);
}
static int pick_op(const struct operation *op, void *arg)
{
    struct pick *p = arg;
    p->paths |= op->volume->name[0] == '/';
    if (op->kind != KIND_BACKUP || !is_picked(p, op->volume))
        return 0;
    return p->n++ == 0 ? operation_copy(p->ret, op) : 0;
}

static int find_source(struct restore *r, struct err *e)
{
    struct engine *g = r->engine;
    const char *backup = r->req.backup, *volume = r->req.volume;
    struct pick p = {volume, &r->op, 0, false, false};
    struct operation_filter f = {.parent = backup};
    CLEANUP(backup_clear) struct backup b;
    if (backup_read(&g->d, backup, &b) < 0) {
        err_set(e, ERR_NOT_FOUND, 0, "there is no backup %s in the records", backup);
        return err_hint(e, "`snapferry backups` lists them; a snapshot that only the repository knows is restored with "
                           "`snapferry -r REPOSITORY restore SNAPSHOT TARGET`");
    }
    do /* exactly first */
        operation_each(g->records, &f, pick_op, &p, NULL);
    while (p.n == 0 && !p.rooted && (p.rooted = true));
    if (p.n == 0) {
        err_set(e, ERR_NOT_FOUND, 0, "backup %s has no volume %s%s", backup, p.paths && volume[0] != '/' ? "/" : "",
                volume);
        return err_hint(e, "`snapferry describe %s` lists its volumes", backup);
    }
    if (p.n > 1) {
        err_set(e, ERR_USAGE, 0, "backup %s has %u volumes; name one", backup, p.n);
        return err_hint(e, "name it: %s/VOLUME; `snapferry describe %s` lists them", backup, backup);
    }
    if (!backup_state_terminal(b.state) && !r->req.allow_incomplete) {
        err_set(e, ERR_BUSY, 0, "backup %s is still %s", backup, backup_state_name(b.state));
        return err_hint(e, "--allow-incomplete restores a volume of it that is Completed already (AO-14)");
    }
    return 0;
}

/* ---- records ---- */

static bool same_volume(const struct restore *r, const char *target)
{
    return !strcmp(r->op.volume->name, target);
}

/* A volume that is made for the restore has no record, but its name tells some of its labels. */
static struct cfg_subject target_subject(struct restore *r)
{
    const struct engine *g = r->engine;
    const char *name = r->req.target;
    const struct cfg_subject known = recorded_subject(g, name);
    const struct cfg_subject new = {name, r->target_labels};
    const bool is_known = r->target_exists || known.labels || cfg_class_of(g->cfg, known);
    return is_known || !driver_target_labels(name, r->target_labels) ? known : new;
}

static struct target_named target_named(struct restore *r)
{
    return (struct target_named){target_subject(r), r->target_driver, r->op.own->name};
}

static const struct class_desc *target_class(struct restore *r)
{
    const struct target_named t = target_named(r);
    return class_of_target(r->engine->cfg, &t);
}

/* A file is replaced as a whole, when all is written. */
static bool in_place(const struct restore *r)
{
    return r->target_device || r->req.differential || request_is_ranged(&r->req);
}

static int write_restore(struct restore *r, struct err *e)
{
    struct engine *g = r->engine;
    const enum restore_from from = r->from;
    const char *why = r->why;
    CLEANUP(backup_clear) struct backup b;
    CLEANUP(operation_clear) struct operation op;
    const char *target = r->req.target;
    const struct mover_result *result = &r->op.result;
    const bool native = from == FROM_NATIVE;
    struct cfg_policy p = {.effective = NULL};
    struct policy policy;
    char stamp[32];
    backup_init(&b);
    operation_init(&op);
    g->ids.stamp(&g->ids, now_ns(), stamp);
    str_setf(&b.id, "restore-%s", stamp);
    b.state = BACKUP_QUEUED;
    b.kind = KIND_RESTORE;
    str_set(&b.of, r->op.parent);
    str_set(&b.of_job, r->op.job);
    b.from = from;
    str_set(&b.target, target);
    str_setf(&op.id, "down-%s.%s", b.id, r->op.volume_id);
    str_set(&op.parent, b.id);
    str_set(&op.volume_id, r->op.volume_id);
    op.state = OP_QUEUED;
    int rc = target_in_use(&g->d, target, in_place(r), e);
    if (rc == 0)
        rc = cfg_policy(g->cfg, volume_subject(r->op.volume), NULL, &p, e);
    if (rc < 0)
        return rc;
    policy_from_cfg(&policy, &p);
    cfg_policy_clear(&p);
    /* Where it was stored, not where today's configuration would store it. */
    str_set(&policy.repository, r->op.policy->repository);
    str_set(&policy.mover, native ? "" : r->op.policy->mover);
    policy_take(&op.policy, policy_make(&policy));
    class_desc_take(&op.own, target_class(r));
    op.kind = KIND_RESTORE;
    str_set(&op.of, r->op.id);
    op.from = from;
    str_set(&op.why, why);
    str_set(&op.target_name, target);
    op.size = native ? r->native.native->size : result->total >= 0 ? result->total : exposure_read(r->op.exposure).size;
    op.overwrite = r->req.overwrite;
    op.verify = r->req.verify;
    op.differential = r->req.differential;
    op.ranged = request_is_ranged(&r->req);
    op.offset = r->req.offset > 0 ? r->req.offset : 0;
    op.length = r->req.length > 0 ? r->req.length : 0;
    if (op.ranged && op.offset >= op.size)
        return err_set(e, ERR_USAGE, EINVAL, "offset %lld is beyond the end: the volume has %lld bytes",
                       (long long)op.offset, (long long)op.size);
    op.onto_itself = same_volume(r, target);
    op.in_place = in_place(r);
    volume_desc_set(&op.volume, r->op.volume);
    if (native) {
        native_desc_set(&op.native_doc, r->native.native);
        str_set(&op.native, r->native.id);
        class_desc_set(&op.native_class, r->native.klass);
    } else {
        str_set(&op.snapshot, result->snapshot);
        json_set(&op.stored, result->stored);
        str_set(&op.stored_id, result->id);
    }
    rc = backup_add(g->records, &b, e);
    if (rc == 0)
        rc = operation_add(g->records, &op, e);
    if (rc < 0)
        return rc;
    count_backup_begun(&g->d, r->op.job, true);
    plan_log(&g->d, LOG_LVL_INFO, "%s: %s from %s (%s)", b.id, target, restore_from_name(from), why);
    json_take(&r->answer, json_pack("{s:s,s:s,s:s,s:s}", "restore", b.id, "operation", op.id, "from",
                                    restore_from_name(from), "why", why));
    return 0;
}

/* What the look for the native snapshot has found, and the restore, if there is one. */
static int write_rows(struct decide *d, void *arg, struct err *e)
{
    struct restore *r = arg;
    CLEANUP(native_row_clear) struct native_row n;
    native_row_init(&n);
    if (r->native_missing && native_row_read(d, r->native.id, &n) == 0 && n.state == NATIVE_PRESENT)
        native_row_become(d, &n, NATIVE_MISSING);
    return r->from == FROM_NONE ? 0 : write_restore(r, e);
}

static void rows_written(const struct err *e, void *arg)
{
    restore_end(arg, e);
}

/* A snapshot can be put back by the driver that took it; into another kind of storage the data goes by the repository.
 */
static bool target_takes(struct restore *r)
{
    CLEANUP(class_desc_unrefp) const struct class_desc *to = target_class(r);
    const struct class_desc *from = r->native.klass;
    const struct driver *d = driver_by_name(to->driver);
    return d && d->target_from_native && !strcmp(to->driver, from->driver) && !strcmp(to->plugin, from->plugin);
}

static void note_missing_ended(const struct err *e, void *arg)
{
    struct restore *r = arg;
    (void)e; /* the next look at the storage finds it missing again */
    restore_end(r, &r->refused);
}

static void restore_record(struct restore *r)
{
    if (r->req.check) { /* only whether it could be done */
        struct err fine = ERR_INIT;
        target_in_use(&r->engine->d, r->req.target, in_place(r), &fine);
        r->answer =
            json_pack("{s:s,s:s,s:s}", "target", r->req.target, "from", restore_from_name(r->from), "why", r->why);
        restore_end(r, &fine);
        return;
    }
    engine_request(r->engine, write_rows, rows_written, r);
}

static void restore_refuse(struct restore *r, const struct err *e)
{
    r->refused = *e;
    if (r->native_missing && !r->req.check)
        engine_request(r->engine, write_rows, note_missing_ended, r);
    else
        restore_end(r, e);
}

static void source_choose(struct restore *r, bool native_ok, const char *native_why)
{
    struct err e = ERR_INIT;
    const struct native_offer native = {native_ok, native_why};
    r->from = restore_source(&r->op, &r->req, &native, r->why, &e);
    if (r->from == FROM_NONE) {
        restore_refuse(r, &e);
        return;
    }
    if (r->has_native && r->from == FROM_REPOSITORY && r->req.from != FROM_REPOSITORY &&
        !restore_only_of_repository(&r->req)) {
        log_warning("the native snapshot of %s cannot be used, the repository is: %s", r->op.volume->name, native_why);
        records_counter_add(r->engine->records, "restore_native_missing_total", NULL, 1, NULL);
    }
    restore_record(r);
}

static void native_looked_at(struct step_result *s, void *arg)
{
    struct restore *r = arg;
    if (!s->err.cls && s->out) {
        native_desc_take(&r->native.native, native_desc_from_json(s->out));
        bool takes = target_takes(r);
        source_choose(
            r, takes,
            takes ? ""
                  : "the target's driver cannot put it back: it is of another kind of storage, or writes in place");
        return;
    }
    r->native_missing = s->err.cls == ERR_NOT_FOUND && r->native.state == NATIVE_PRESENT;
    source_choose(r, false, s->err.msg);
}

/* The native snapshot that was taken for this operation, if it is still recorded. */
static void look_at_native(struct restore *r)
{
    struct engine *g = r->engine;
    const char *alias = r->op.native;
    struct err e = ERR_INIT;
    r->has_native = alias[0] && native_row_read(&g->d, alias, &r->native) == 0 && restore_native_recorded(&r->native);
    if (!r->has_native || r->req.from == FROM_REPOSITORY || restore_only_of_repository(&r->req)) {
        source_choose(r, false, "no native snapshot of this backup is retained");
        return;
    }
    CLEANUP_JSON json_t *in =
        json_pack("{s:o,s:o,s:s,s:s}", "class", class_desc_to_json(r->native.klass), "volume",
                  volume_desc_to_json(r->native.volume), "alias", alias, "hint", r->native.native->handle);
    if (step_start(g->steps, "look for the native snapshot", step_find, in, 60, native_looked_at, r, NULL, &e) < 0)
        source_choose(r, false, e.msg);
}

/* What the target is has to be known before a driver is chosen. */
static int step_look_target(const json_t *in, json_t **out, int *fd, struct err *e)
{
    CLEANUP(step_request_clear) struct step_request r;
    struct stat st;
    (void)fd;
    if (step_request_load(&r, in, e) < 0)
        return -ENOMEM;
    const char *path = r.path;
    if (driver_target_is_remote(path)) { /* its driver looks at it; an export is there before */
        *out = json_pack("{s:b,s:b}", "exists", driver_target_is_export(path), "block", 1);
        return 0;
    }
    bool there = stat(path, &st) == 0;
    if (there && S_ISDIR(st.st_mode))
        return err_set(e, ERR_TARGET, 0, "%s is a directory: name the file or device to restore to", path);
    *out = json_pack("{s:b,s:b}", "exists", there, "block", there && S_ISBLK(st.st_mode));
    return 0;
}

static void target_seen(struct step_result *s, void *arg)
{
    struct restore *r = arg;
    struct err e = s->err;
    const struct target_found found = target_found_of(s->out);
    if (e.cls || target_found_refused(&r->req, &found, &e) < 0) {
        restore_end(r, &e);
        return;
    }
    r->target_exists = found.exists;
    r->target_device = found.block;
    r->target_driver = driver_of_target(r->req.target, found.block);
    const struct target_named named = target_named(r);
    if (target_refused(r->engine->cfg, &named, &r->op, &e) < 0)
        restore_end(r, &e);
    else
        look_at_native(r);
}

/* Without a target: the volume's name in the class that --class-map gives for its own (CF-51). */
static int map_target(struct restore *r, struct err *e)
{
    const char *own = r->op.own->name, *name = r->op.volume->name;
    const char *to = request_class_for(&r->req, own), *slash = strrchr(name, '/');
    const struct cfg_class *k = to[0] ? cfg_class(r->engine->cfg, to) : NULL;
    char path[VOLUME_NAME_MAX];
    if (!to[0]) {
        err_set(e, ERR_USAGE, 0, "--class-map has no entry for class \"%s\" of %s", own, name);
        return err_hint(e, "add %s=CLASS, or name a target", own);
    }
    if (!k || k->target[0] != '/')
        return err_set(e, ERR_USAGE, 0, "storage class \"%s\" %s", to,
                       k ? "has no directory as target" : "does not exist");
    snprintf(path, sizeof path, "%s/%s", k->target, slash ? slash + 1 : name);
    return str_set(&r->req.target, path) < 0 ? err_nomem(e) : 0;
}

void engine_submit_restore(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    struct restore *r = calloc(1, sizeof *r);
    struct err e = ERR_INIT;
    const char *target = req->target;
    if (!r) {
        err_nomem(&e);
        reply(NULL, &e, arg);
        return;
    }
    *r = (struct restore){.engine = g, .reply = reply, .arg = arg};
    operation_init(&r->op);
    native_row_init(&r->native);
    if (request_args_copy(&r->req, req) < 0)
        err_nomem(&e);
    else if (g->stopping)
        err_set(&e, ERR_BUSY, 0, "the daemon is stopping and takes no new work");
    else if (restore_refused(&r->req, target[0] == '/' || driver_target_is_remote(target), &e) == 0 &&
             find_source(r, &e) == 0 && !target[0])
        map_target(r, &e);
    CLEANUP_JSON json_t *in = json_pack("{s:s}", "path", r->req.target);
    if (!e.cls && step_start(g->steps, "look at the target", step_look_target, in, 60, target_seen, r, NULL, &e) == 0)
        return;
    restore_end(r, &e);
}
