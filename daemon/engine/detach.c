/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * detach.c - a repository is given up: its backups leave the records (CF-55)
 *
 * Nothing is deleted in the repository. Native snapshots whose data was only there count as not moved from then on, so
 * that no plan takes them for copies of something that can still be restored.
 */
#include "base/units.h"
#include "base/nearest.h"
#include "daemon/engine/engine-impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct detach {
    struct engine *engine;
    engine_reply_fn *reply;
    void *arg;
    char repository[128];

    char user[512];     /* an operation that is not finished */
    json_t *operations; /* ids that go */
    json_t *backups;    /* id -> number of operations that stay */
    json_t *volumes;    /* id -> its last good backup, of those that have it there */
    unsigned natives, removed;

    /* It is written in parts: what has been done, and in this one */
    enum { DETACH_READ, DETACH_NATIVES, DETACH_OPERATIONS, DETACH_BACKUPS, DETACH_VOLUMES } stage;
    uint64_t after; /* number of the last row of the stage */
    size_t at;      /* of the operations */
    unsigned seen;
};

static int detach_look(const struct operation *op, void *arg)
{
    struct detach *d = arg;
    d->after = op->seq;
    d->seen++;
    bool here = !strcmp(op->policy->repository, d->repository) && !op->policy->mover[0];
    if (here && !op_state_terminal(op->state))
        snprintf(d->user, sizeof d->user, "%s", op->id);
    if (op->parent[0]) {
        int64_t stay = json_integer_value(json_object_get(d->backups, op->parent));
        jset_int(d->backups, op->parent, stay + !here);
    }
    return here ? json_array_append_new(d->operations, json_string(op->id)) : 0;
}

static int look_at_volume(const struct volume_row *v, void *arg)
{
    struct detach *d = arg;
    char repository[128];
    volume_repository(&d->engine->d, v, repository, sizeof repository);
    if (v->last_success_ns && !strcmp(repository, d->repository))
        json_object_set_new(d->volumes, v->id, json_string(v->last_good_backup));
    return 0;
}

static int forget_moved(const struct native_row *row, void *arg)
{
    struct detach *d = arg;
    CLEANUP(native_row_clear) struct native_row n;
    d->after = row->seq;
    d->seen++;
    native_row_init(&n);
    if (strcmp(row->policy->repository, d->repository) != 0 || !row->moved)
        return 0;
    int rc = native_row_copy(&n, row);
    n.moved = false;
    n.moved_verified = false;
    d->natives++;
    return rc < 0 ? rc : native_row_save(d->engine->records, &n, NULL);
}

/* What is to go, or why nothing may go. 1: more rows are to be read. */
static int detach_find(struct detach *d, struct err *e)
{
    struct engine *g = d->engine;
    const struct operation_filter f = {.after = d->after, .limit = ENGINE_PART};
    int rc = operation_each(g->records, &f, detach_look, d, e);
    if (rc >= 0 && d->user[0]) {
        err_set(e, ERR_BUSY, 0, "%s still uses repository \"%s\"", d->user, d->repository);
        return err_hint(e, "wait for it, or `snapferry cancel %s`", d->user);
    }
    if (rc < 0 || d->seen == ENGINE_PART)
        return rc < 0 ? rc : 1;
    rc = volume_row_each(g->records, NULL, look_at_volume, d, e);
    if (rc < 0 || json_array_size(d->operations) > 0 || json_object_size(d->volumes) > 0)
        return rc;
    err_set(e, ERR_NOT_FOUND, 0, "no recorded backup is in a repository \"%s\"", d->repository);
    return nearest_hint(e, cfg_near_repository(g->cfg, d->repository),
                        "`snapferry check-config` lists the repositories");
}

static int forget_natives(struct detach *d, struct err *e)
{
    const struct native_row_filter f = {.after = d->after, .limit = ENGINE_PART};
    const int rc = native_row_each(d->engine->records, &f, forget_moved, d, e);
    return rc < 0 ? rc : d->seen == ENGINE_PART;
}

static int forget_operations(struct detach *d, struct err *e)
{
    const size_t n = json_array_size(d->operations), to = n - d->at < ENGINE_PART ? n : d->at + ENGINE_PART;
    for (; d->at < to; d->at++) {
        const int rc = operation_delete(d->engine->records, json_string_value(json_array_get(d->operations, d->at)), e);
        if (rc < 0)
            return rc;
    }
    return d->at < n;
}

/* Those of which no operation stays. */
static int forget_backups(struct detach *d, struct err *e)
{
    struct records *r = d->engine->records;
    const char *id;
    void *next;
    json_t *v;
    unsigned n = 0;
    json_object_foreach_safe(d->backups, next, id, v)
    {
        CLEANUP(backup_clear) struct backup b;
        if (n++ == ENGINE_PART)
            return 1;
        backup_init(&b);
        if (json_integer_value(v) == 0 && backup_get(r, id, &b, NULL) >= 0) {
            const int rc = backup_delete(r, id, e);
            if (rc < 0)
                return rc;
            d->removed++;
        }
        json_object_del(d->backups, id);
    }
    return 0;
}

static int forget_volumes(struct detach *d, struct err *e)
{
    const char *id;
    void *next;
    json_t *v;
    unsigned n = 0;
    char why[200];
    snprintf(why, sizeof why, "was in repository \"%s\", which was detached", d->repository);
    json_object_foreach_safe(d->volumes, next, id, v)
    {
        if (n++ == ENGINE_PART)
            return 1;
        const int rc = volume_backup_lost(&d->engine->d, id, json_string_value(v), why, e);
        if (rc < 0)
            return rc;
        json_object_del(d->volumes, id);
    }
    return 0;
}

static void lists_clear(struct detach *d)
{
    json_take(&d->operations, NULL);
    json_take(&d->backups, NULL);
    json_take(&d->volumes, NULL);
}

static void detach_begin(struct detach *d)
{
    lists_clear(d);
    d->user[0] = '\0';
    d->operations = json_array();
    d->backups = json_object();
    d->volumes = json_object();
    d->natives = d->removed = 0;
    d->stage = DETACH_READ;
    d->after = d->at = 0;
}

/* In one transaction: all of it is durable, or nothing. */
static int write_detach(struct decide *decide, void *arg, struct err *e)
{
    typedef int stage_fn(struct detach * d, struct err * e);
    static stage_fn *const stages[] = {[DETACH_READ] = detach_find,
                                       [DETACH_NATIVES] = forget_natives,
                                       [DETACH_OPERATIONS] = forget_operations,
                                       [DETACH_BACKUPS] = forget_backups,
                                       [DETACH_VOLUMES] = forget_volumes};
    struct detach *d = arg;
    if (!request_goes_on(decide))
        detach_begin(d);
    d->seen = 0;
    const int rc = stages[d->stage](d, e);
    if (rc != 0)
        return rc < 0 ? rc : 1;
    d->after = 0;
    return d->stage++ != DETACH_VOLUMES;
}

static void detach_ended(const struct err *e, void *arg)
{
    struct detach *d = arg;
    CLEANUP_JSON json_t *answer =
        json_pack("{s:s,s:i,s:i}", "repository", d->repository, "backups", (int)d->removed, "natives", (int)d->natives);
    if (!e->cls)
        log_info("repository \"%s\" is detached: %u backup%s removed from the records, its data is unchanged",
                 d->repository, d->removed, plural(d->removed));
    d->reply(e->cls ? NULL : answer, e->cls ? e : NULL, d->arg);
    lists_clear(d);
    free(d);
}

void engine_detach(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    struct detach *d = calloc(1, sizeof *d);
    struct err e = ERR_INIT;
    if (!d)
        err_nomem(&e);
    else if (!req->repository[0])
        err_set(&e, ERR_USAGE, 0, "detach needs the name of a repository");
    if (e.cls) {
        free(d);
        reply(NULL, &e, arg);
        return;
    }
    *d = (struct detach){.engine = g, .reply = reply, .arg = arg};
    snprintf(d->repository, sizeof d->repository, "%s", req->repository);
    engine_request(g, write_detach, detach_ended, d);
}
