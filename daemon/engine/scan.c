/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * engine-scan.c - what a repository has of this node is compared with the records (RS-15)
 *
 * A snapshot that no record knows becomes a backup of the records again; a backup whose snapshot is not there any more
 * (somebody else deleted it) no longer counts as one.
 */
#include "base/time.h"
#include "daemon/engine/volumes.h"

#include <errno.h>
#include <string.h>

struct scan {
    struct engine *engine;
    engine_reply_fn *reply;
    void *arg;
};

static const char *tag(const json_t *tags, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "tag:%s", name);
    return jstr(tags, key);
}

static int add_rebuilt(struct engine *g, const char *repository, const json_t *s, struct rec *op)
{
    const json_t *tags = jobj(s, "tags");
    const char *volume = tag(tags, "volume-id"), *name = tag(tags, "volume");
    int64_t size = strtoll(tag(tags, "size"), NULL, 10), end;
    if (time_parse(&end, jstr(s, "endTime")) < 0)
        end = 0;
    CLEANUP(rec_clearp) struct rec b = REC_INIT;
    struct err e = ERR_INIT;
    if (rec_get(g, REC_BACKUP, tag(tags, "backup"), &b) < 0) {
        rec_clear(&b);
        b.doc = json_pack("{s:s,s:s,s:b,s:I,s:[]}", "kind", "backup", "job", tag(tags, "job"), "rebuilt", 1,
                          "completed_ns", (json_int_t)end, "volume_ids");
        snprintf(b.id, sizeof b.id, "%s", tag(tags, "backup"));
        snprintf(b.state, sizeof b.state, "Completed");
        if (records_add(g->records, REC_BACKUP, &b, &e) < 0)
            return -1;
    }
    op->doc = json_pack("{s:s,s:b,s:I,s:s,s:{s:s,s:I},s:{s:s,s:b,s:s},s:{s:s,s:s},s:{s:s,s:s,s:I}}", "kind", "backup",
                        "rebuilt", 1, "completed_ns", (json_int_t)end, "native", tag(tags, "native"), "result",
                        "snapshotID", jstr(s, "id"), "totalBytes", (json_int_t)size, "policy", "repository", repository,
                        "move_data", 1, "mover", "", "own", "name", tag(tags, "class"), "driver", "", "volume", "id",
                        volume, "name", name[0] ? name : volume, "size", (json_int_t)size);
    snprintf(op->id, sizeof op->id, "%s", tag(tags, "operation"));
    snprintf(op->parent, sizeof op->parent, "%s", b.id);
    snprintf(op->volume, sizeof op->volume, "%s", volume);
    snprintf(op->state, sizeof op->state, "Completed");
    if (!op->doc || records_add(g->records, REC_OPERATION, op, &e) < 0)
        return -1;
    /* What is known of the volume by other means is newer than the tags of a snapshot. */
    CLEANUP(rec_clearp) struct rec v = REC_INIT;
    if (rec_get(g, REC_VOLUME, volume, &v) < 0) {
        CLEANUP_JSON json_t *more = json_pack("{s:s,s:s,s:I}", "last_status", "Completed", "last_verdict", "Completed",
                                              "last_end_ns", (json_int_t)end);
        volume_note(g, jobj(op->doc, "volume"), tag(tags, "class"), more);
    }
    volume_backup_found(g, volume);
    return 0;
}

/* A snapshot of the repository that no record knows becomes a Completed backup record again. */
static void scan_one(struct engine *g, const char *repository, const json_t *s, unsigned *added, unsigned *matched)
{
    const json_t *tags = jobj(s, "tags");
    CLEANUP(rec_clearp) struct rec op = REC_INIT, n = REC_INIT;
    if (!tag(tags, "backup")[0] || !tag(tags, "operation")[0] || !tag(tags, "volume-id")[0] || jstr(s, "incomplete")[0])
        return;
    if (rec_get(g, REC_OPERATION, tag(tags, "operation"), &op) == 0) {
        (*matched)++;
    } else {
        rec_clear(&op);
        if (add_rebuilt(g, repository, s, &op) < 0)
            return;
        (*added)++;
    }
    /* A native snapshot that was found on the storage: its data is safe in the repository after all. */
    const char *alias = tag(tags, "native");
    if (alias[0] && rec_get(g, REC_NATIVE, alias, &n) == 0 && !jbool(n.doc, "moved")) {
        jset_bool(n.doc, "moved", true);
        jset_bool(n.doc, "moved_verified", true);
        jset_bool(n.doc, "failed", false);
        jset_str(n.doc, "snapshot", jstr(s, "id"));
        jset_str(n.doc, "operation", op.id);
        save(g, REC_NATIVE, &n);
    }
}

/* ---- backups whose snapshot is gone ---- */

struct missing {
    struct engine *engine;
    const char *repository;
    const json_t *there; /* operation -> true */
    int64_t before_ns;   /* what ended later the scan may not have seen */
    unsigned lost;
};

static int look_missing(struct rec *op, void *arg)
{
    struct missing *m = arg;
    const json_t *policy = jobj(op->doc, "policy");
    struct err e = ERR_INIT;
    char why[200];
    if (strcmp(jstr(op->doc, "kind"), "backup") || strcmp(op->state, "Completed") || jstr(policy, "mover")[0] ||
        strcmp(jstr(policy, "repository"), m->repository) || !jstr(jobj(op->doc, "result"), "snapshotID")[0] ||
        jint(op->doc, "completed_ns") >= m->before_ns)
        return 0;
    const char *node = jstr(jobj(op->doc, "own"), "node"); /* the scan is of what carries this node's name */
    if (node[0] && strcmp(node, cfg_daemon(m->engine->cfg)->node_name))
        return 0;
    bool lost = !json_object_get(m->there, op->id);
    if (lost == jbool(op->doc, "lost"))
        return 0;
    jset_bool(op->doc, "lost", lost);
    if (records_save(m->engine->records, REC_OPERATION, op, &e) < 0) {
        log_warning("%s: %s", op->id, e.msg);
        return 0;
    }
    m->lost += lost;
    if (!lost) {
        volume_backup_found(m->engine, op->volume);
        return 0;
    }
    log_warning("%s: its snapshot is no longer in repository \"%s\"", op->id, m->repository);
    snprintf(why, sizeof why, "is no longer in repository \"%s\"", m->repository);
    if (volume_backup_lost(m->engine, op->volume, op->parent, why, &e) < 0)
        log_warning("%s: %s", op->id, e.msg);
    return 0;
}

/* Not told by a scan that could not read all: a manifest that cannot be read may be the one. */
static unsigned find_missing(struct engine *g, const struct rec *scan, const json_t *answer)
{
    CLEANUP_JSON json_t *there = json_object();
    struct missing m = {g, jstr(jobj(scan->doc, "policy"), "repository"), there, scan->created_ns, 0};
    const json_t *s;
    size_t i;
    if (!jarr(answer, "snapshots") || jint(answer, "unreadable"))
        return 0;
    json_array_foreach(jarr(answer, "snapshots"), i, s) if (!jstr(s, "incomplete")[0])
        json_object_set_new(there, tag(jobj(s, "tags"), "operation"), json_true());
    records_each(g->records, REC_OPERATION, NULL, look_missing, &m, NULL);
    return m.lost;
}

/* ---- the whole ---- */

static void scan_ended(const json_t *state, bool terminal, void *arg)
{
    struct scan *s = arg;
    struct engine *g = s->engine;
    CLEANUP(rec_clearp) struct rec op = REC_INIT;
    struct err e = ERR_INIT;
    unsigned added = 0, matched = 0;
    const json_t *v;
    size_t i;
    if (!terminal)
        return;
    engine_unwait(g, s);
    rec_get(g, REC_OPERATION, jstr(state, "id"), &op);
    const json_t *answer = admin_answer(&op, 0);
    if (strcmp(op.state, "Completed"))
        err_set(&e, (enum err_class)jint(jobj(op.doc, "error"), "code"), 0, "%s",
                jstr(jobj(op.doc, "error"), "message"));
    json_array_foreach(jarr(answer, "snapshots"), i, v)
        scan_one(g, jstr(jobj(op.doc, "policy"), "repository"), v, &added, &matched);
    unsigned lost = e.cls ? 0 : find_missing(g, &op, answer);
    CLEANUP_JSON json_t *out = json_pack(
        "{s:s,s:s,s:i,s:i,s:i,s:i}", "operation", op.id, "repository", jstr(jobj(op.doc, "policy"), "repository"),
        "snapshots", (int)json_array_size(jarr(answer, "snapshots")), "added", added, "known", matched, "lost", lost);
    if (s->reply)
        s->reply(e.cls ? NULL : out, e.cls ? &e : NULL, s->arg);
    else if (e.cls)
        log_warning("repository \"%s\" cannot be scanned: %s", jstr(jobj(op.doc, "policy"), "repository"), e.msg);
    else if (added)
        log_info("repository \"%s\" has %u snapshots of this node that were not in the records: they are now",
                 jstr(jobj(op.doc, "policy"), "repository"), added);
    engine_kick(g);
    free(s);
}

void engine_scan(struct engine *g, const json_t *req, engine_reply_fn *reply, void *arg)
{
    struct scan *s = calloc(1, sizeof *s);
    struct err e = ERR_INIT;
    char id[512];
    const char *name = jstr(req, "repository");
    const struct cfg_repository *only = cfg_repository_at(g->cfg, 0);
    if (!name[0] && only && !cfg_repository_at(g->cfg, 1))
        name = only->name;
    if (!s)
        err_nomem(&e);
    if (!e.cls) {
        *s = (struct scan){g, reply, arg};
        json_t *steps = json_pack("[{s:s}]", "verb", "scan");
        if (admin_submit(g, name, steps, NULL, "admin-scan", id, &e) == 0 &&
            engine_wait(g, id, scan_ended, s, &e) == 0) {
            if (reply) { /* asked for: the storage is looked at as well, whenever it was seen last (RS-15) */
                g->orphans_ns = 0;
                sweep_storage(g);
            }
            return;
        }
    }
    free(s);
    if (reply)
        reply(NULL, &e, arg);
    else
        log_warning("a scan of repository \"%s\" could not be started: %s", name, e.msg);
}
