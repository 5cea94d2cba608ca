/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * engine-restore.c - what is restored from where: the native snapshot if it is still good, else the repository (RS-22,
 * RS-26)
 */
#include "base/crash.h"
#include "daemon/records/names.h"
#include "daemon/engine/engine-impl.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

struct restore {
    struct engine *engine;
    engine_reply_fn *reply;
    void *arg;
    json_t *req;
    struct rec op; /* of the backup: the source */
    struct rec native;
    bool has_native;
};

static void restore_end(struct restore *r, json_t *answer, const struct err *e)
{
    if (r->reply)
        r->reply(e->cls ? NULL : answer, e->cls ? e : NULL, r->arg);
    rec_clear(&r->op);
    rec_clear(&r->native);
    json_decref(r->req);
    free(r);
}

/* ---- which volume of which backup ---- */

struct pick {
    const char *volume;
    struct rec *ret;
    unsigned n;
    bool rooted; /* also the name without the slash that it begins with: BACKUP/srv/vm/a.img */
};
static bool is_picked(const struct pick *p, const json_t *v)
{
    return !p->volume[0] || name_is_volume(v, p->volume, p->rooted);
}
static int pick_op(struct rec *op, void *arg)
{
    struct pick *p = arg;
    if (strcmp(jstr(op->doc, "kind"), "backup") || !is_picked(p, jobj(op->doc, "volume")))
        return 0;
    if (p->n++ == 0) {
        *p->ret = *op;
        op->doc = NULL;
    }
    return 0;
}

static int find_source(struct restore *r, struct err *e)
{
    struct engine *g = r->engine;
    const char *backup = jstr(r->req, "backup"), *volume = jstr(r->req, "volume");
    struct pick p = {volume, &r->op, 0, false};
    struct rec_filter f = {.parent = backup};
    CLEANUP(rec_clearp) struct rec b = REC_INIT;
    if (rec_get(g, REC_BACKUP, backup, &b) < 0) {
        err_set(e, ERR_NOT_FOUND, 0, "there is no backup %s in the records", backup);
        return err_hint(e, "`snapferry backups` lists them; a snapshot that only the repository knows is restored with "
                           "`snapferry -r REPOSITORY restore SNAPSHOT TARGET`");
    }
    do /* exactly first */
        records_each(g->records, REC_OPERATION, &f, pick_op, &p, NULL);
    while (p.n == 0 && !p.rooted && (p.rooted = true));
    if (p.n == 0) {
        err_set(e, ERR_NOT_FOUND, 0, "backup %s has no volume %s", backup, volume);
        return err_hint(e, "`snapferry describe %s` lists its volumes", backup);
    }
    if (p.n > 1) {
        err_set(e, ERR_USAGE, 0, "backup %s has %u volumes: which one?", backup, p.n);
        return err_hint(e, "name it: %s/VOLUME; `snapferry describe %s` lists them", backup, backup);
    }
    if (!state_terminal(b.state) && !jbool(r->req, "allow_incomplete")) {
        err_set(e, ERR_BUSY, 0, "backup %s is still %s", backup, b.state);
        return err_hint(e, "--allow-incomplete restores a volume of it that is Completed already (AO-14)");
    }
    return 0;
}

/* ---- records ---- */

static bool same_volume(const struct restore *r, const char *target)
{
    return !strcmp(jstr(jobj(r->op.doc, "volume"), "name"), target);
}

static int write_restore(struct restore *r, const char *from, const char *why, json_t **answer, struct err *e)
{
    struct engine *g = r->engine;
    CLEANUP(rec_clearp) struct rec b = {.doc = json_object()}, op = {.doc = json_object()};
    const char *target = jstr(r->req, "target");
    const json_t *result = jobj(r->op.doc, "result"), *v = jobj(r->op.doc, "volume"),
                 *n = jobj(r->native.doc, "native");
    bool native = !strcmp(from, "native");
    char stamp[32];
    struct cfg_policy p = {.effective = NULL};
    const json_t *x = jobj(r->op.doc, "exposure");
    int64_t size = native                                  ? jint(n, "size")
                   : json_object_get(result, "totalBytes") ? jint(result, "totalBytes")
                                                           : jint(x, "size");
    stamp_text(stamp);
    snprintf(b.id, sizeof b.id, "restore-%s", stamp);
    snprintf(b.state, sizeof b.state, "Queued");
    jset_str(b.doc, "kind", "restore");
    jset_str(b.doc, "of", r->op.parent);
    jset_str(b.doc, "of_job", jstr(r->op.doc, "job"));
    jset_str(b.doc, "from", from);
    jset_str(b.doc, "target", target);
    json_object_set_new(b.doc, "volume_ids", json_array());
    snprintf(op.id, sizeof op.id, "down-%s.%s", b.id, r->op.volume);
    snprintf(op.parent, sizeof op.parent, "%s", b.id);
    snprintf(op.volume, sizeof op.volume, "%s", r->op.volume);
    snprintf(op.state, sizeof op.state, "Queued");
    int rc = cfg_policy(g->cfg, jstr(v, "name"), NULL, &p, e);
    if (rc < 0)
        return rc;
    json_t *policy = policy_doc(&p);
    cfg_policy_clear(&p);
    /* Where it was stored, not where today's configuration would store it. */
    jset_str(policy, "repository", jstr(jobj(r->op.doc, "policy"), "repository"));
    jset_str(policy, "mover", native ? "" : jstr(jobj(r->op.doc, "policy"), "mover"));
    json_object_set_new(op.doc, "policy", policy);
    json_object_set_new(op.doc, "own", class_for_path(g->cfg, target, jbool(r->req, "target_is_block")));
    jset_str(op.doc, "kind", "restore");
    jset_str(op.doc, "of", r->op.id);
    jset_str(op.doc, "from", from);
    jset_str(op.doc, "why", why);
    jset_str(op.doc, "target_name", target);
    jset_int(op.doc, "size", size);
    jset_bool(op.doc, "overwrite", jbool(r->req, "overwrite"));
    jset_bool(op.doc, "verify", jbool(r->req, "verify"));
    jset_bool(op.doc, "onto_itself", same_volume(r, target));
    json_object_set(op.doc, "volume", (json_t *)v);
    if (native) {
        json_object_set(op.doc, "native_doc", (json_t *)n);
        jset_str(op.doc, "native", r->native.id);
        json_object_set(op.doc, "native_class", jobj(r->native.doc, "class"));
    } else {
        jset_str(op.doc, "snapshot", jstr(result, "snapshotID"));
        if (json_object_get(result, "stored"))
            json_object_set(op.doc, "stored", json_object_get(result, "stored"));
        if (jstr(result, "id")[0])
            jset_str(op.doc, "stored_id", jstr(result, "id"));
    }
    rc = records_begin(g->records, e);
    if (rc < 0)
        return rc;
    rc = records_add(g->records, REC_BACKUP, &b, e);
    if (rc == 0)
        rc = records_add(g->records, REC_OPERATION, &op, e);
    if (rc < 0) {
        records_rollback(g->records);
        return rc;
    }
    records_counters_hold(g->records);
    count_backup_begun(g, jstr(r->op.doc, "job"), true);
    rc = records_commit(g->records, e);
    records_counters_settle(g->records);
    if (rc < 0)
        return rc;
    log_info("%s: %s from %s (%s)", b.id, target, from, why);
    *answer = json_pack("{s:s,s:s,s:s,s:s}", "restore", b.id, "operation", op.id, "from", from, "why", why);
    engine_kick(g);
    return 0;
}

static bool in_repository(const struct restore *r)
{
    const json_t *result = jobj(r->op.doc, "result");
    return !strcmp(r->op.state, "Completed") && (jstr(result, "snapshotID")[0] || json_object_get(result, "stored"));
}

/* A snapshot can be put back by the driver that took it; into another kind of storage the data goes by the repository.
 */
static bool target_takes(const struct restore *r)
{
    CLEANUP_JSON json_t *to = class_for_path(r->engine->cfg, jstr(r->req, "target"), jbool(r->req, "target_is_block"));
    const json_t *from = jobj(r->native.doc, "class");
    return !strcmp(jstr(to, "driver"), jstr(from, "driver")) && !strcmp(jstr(to, "plugin"), jstr(from, "plugin"));
}

static void decide(struct restore *r, bool native_ok, const char *native_why)
{
    const char *from = jstr(r->req, "from");
    struct err e = ERR_INIT;
    CLEANUP_JSON json_t *answer = NULL;
    bool want_native = !strcmp(from, "native"), want_repo = !strcmp(from, "repository");
    char why[700];
    if (native_ok && !want_repo) {
        write_restore(r, "native", want_native ? "asked for" : "the native snapshot exists and is healthy", &answer,
                      &e);
    } else if (want_native) {
        err_set(&e, ERR_NOT_FOUND, 0, "%s cannot be restored from its native snapshot: %s",
                jstr(jobj(r->op.doc, "volume"), "name"), native_why);
        err_hint(&e, "--from auto or --from repository takes the data from the repository");
    } else if (in_repository(r)) {
        if (r->has_native && !want_repo) {
            log_warning("the native snapshot of %s cannot be used, the repository is: %s",
                        jstr(jobj(r->op.doc, "volume"), "name"), native_why);
            records_counter_add(r->engine->records, "restore_native_missing_total", NULL, 1, NULL);
        }
        snprintf(why, sizeof why, "%s", want_repo ? "asked for" : native_why);
        write_restore(r, "repository", why, &answer, &e);
    } else {
        err_set(&e, ERR_NOT_FOUND, 0, "%s of backup %s was %s and cannot be restored%s%s",
                jstr(jobj(r->op.doc, "volume"), "name"), r->op.parent, r->op.state, native_why[0] ? ": " : "",
                native_why);
        err_hint(&e, "`snapferry backups` shows which backups of it are Completed");
    }
    restore_end(r, answer, &e);
}

static void native_seen(struct step_result *s, void *arg)
{
    struct restore *r = arg;
    if (!s->err.cls && s->out) {
        json_object_set(r->native.doc, "native", s->out);
        bool takes = target_takes(r);
        decide(r, takes, takes ? "" : "the target lies on another kind of storage than the native snapshot");
        return;
    }
    if (s->err.cls == ERR_NOT_FOUND && !strcmp(r->native.state, "present"))
        save_state(r->engine, REC_NATIVE, &r->native, "missing");
    decide(r, false, s->err.msg);
}

/* The native snapshot that was taken for this operation, if it is still recorded. */
static void look_at_native(struct restore *r)
{
    struct engine *g = r->engine;
    const char *alias = jstr(r->op.doc, "native");
    struct err e = ERR_INIT;
    r->has_native = alias[0] && rec_get(g, REC_NATIVE, alias, &r->native) == 0 && strcmp(r->native.state, "removing") &&
                    strcmp(r->native.state, "creating") && jobj(r->native.doc, "native");
    if (r->has_native && !jbool(jobj(r->native.doc, "native"), "crash_consistent") &&
        !strcmp(jstr(r->native.doc, "driver"), "device"))
        r->has_native = false; /* a raw device has no snapshot: what it holds now is not the backup */
    if (!r->has_native || !strcmp(jstr(r->req, "from"), "repository")) {
        decide(r, false, "no native snapshot of this backup is retained");
        return;
    }
    CLEANUP_JSON json_t *in =
        json_pack("{s:O,s:O,s:s,s:s}", "class", jobj(r->native.doc, "class"), "volume", jobj(r->native.doc, "volume"),
                  "alias", alias, "hint", jstr(jobj(r->native.doc, "native"), "handle"));
    if (step_start(g->steps, "look for the native snapshot", step_find, in, 60, native_seen, r, NULL, &e) < 0)
        decide(r, false, e.msg);
}

/* What the target is has to be known before a driver is chosen. */
static int step_look_target(const json_t *in, json_t **out, int *fd, struct err *e)
{
    struct stat st;
    (void)fd;
    const char *path = jstr(in, "path");
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
    if (!e.cls && jbool(r->req, "new") && jbool(s->out, "exists"))
        err_plain(&e, ERR_TARGET, EEXIST, "%s exists, and --new was asked for", jstr(r->req, "target"));
    if (!e.cls && jbool(s->out, "exists") && !jbool(s->out, "block") && !jbool(r->req, "overwrite")) {
        err_plain(&e, ERR_TARGET, EEXIST, "%s exists", jstr(r->req, "target"));
        err_hint(&e, "--overwrite replaces it when the restore is complete, another name leaves it alone");
    }
    if (e.cls) {
        restore_end(r, NULL, &e);
        return;
    }
    jset_bool(r->req, "target_is_block", jbool(s->out, "block"));
    look_at_native(r);
}

/* Without a target: the volume's name in the class that --class-map gives for its own (CF-51). */
static int map_target(struct restore *r, struct err *e)
{
    const char *own = jstr(jobj(r->op.doc, "own"), "name"), *name = jstr(jobj(r->op.doc, "volume"), "name");
    const char *to = jstr(jobj(r->req, "class_map"), own), *slash = strrchr(name, '/');
    const struct cfg_class *k = to[0] ? cfg_class(r->engine->cfg, to) : NULL;
    char path[VOLUME_NAME_MAX];
    if (!to[0]) {
        err_set(e, ERR_USAGE, 0, "--class-map says nothing about class \"%s\" of %s", own, name);
        return err_hint(e, "add %s=CLASS, or name a target", own);
    }
    if (!k || k->target[0] != '/')
        return err_set(e, ERR_USAGE, 0, "storage class \"%s\" %s", to,
                       k ? "has no directory as target" : "does not exist");
    snprintf(path, sizeof path, "%s/%s", k->target, slash ? slash + 1 : name);
    jset_str(r->req, "target", path);
    return 0;
}

void engine_submit_restore(struct engine *g, const json_t *req, engine_reply_fn *reply, void *arg)
{
    struct restore *r = calloc(1, sizeof *r);
    struct err e = ERR_INIT;
    const char *from = jstr(req, "from"), *target = jstr(req, "target");
    if (!r) {
        err_nomem(&e);
        reply(NULL, &e, arg);
        return;
    }
    *r = (struct restore){.engine = g, .reply = reply, .arg = arg, .req = json_deep_copy(req)};
    if (g->stopping)
        err_set(&e, ERR_BUSY, 0, "the daemon is stopping and takes no new work");
    else if (!target[0] && jobj(r->req, "class_map") && find_source(r, &e) == 0)
        map_target(r, &e);
    else if (!e.cls && target[0] != '/')
        err_set(&e, ERR_USAGE, 0, "the restore target \"%s\" must be an absolute path", target);
    else if (!e.cls && from[0] && strcmp(from, "auto") && strcmp(from, "native") && strcmp(from, "repository"))
        err_set(&e, ERR_USAGE, 0, "--from is auto, native or repository, not \"%s\"", from);
    else if (!e.cls)
        find_source(r, &e);
    CLEANUP_JSON json_t *in = json_pack("{s:s}", "path", jstr(r->req, "target"));
    if (!e.cls && step_start(g->steps, "look at the target", step_look_target, in, 60, target_seen, r, NULL, &e) == 0)
        return;
    restore_end(r, NULL, &e);
}
