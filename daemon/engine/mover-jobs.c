/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * mover-jobs.c - movers are started and adopted: their jobs, passwords, limits
 *
 * Crash point: engine-mover-started.
 */
#include "base/crash.h"
#include "base/json.h"
#include "base/machine.h"
#include "daemon/decide/copies.h"
#include "daemon/decide/verification.h"
#include "daemon/engine/engine-impl.h"
#include "daemon/protocol/mover-wire.h"
#include "daemon/records/opaque.h"
#include "io/native/driver.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- jobs ---- */

static json_t *backup_job(struct engine *g, const struct operation *op)
{
    const struct policy *policy = op->policy;
    const struct volume_desc *v = op->volume;
    const struct native_desc *n = op->native_doc;
    const struct exposed x = exposure_read(op->exposure);
    char as[700];
    snprintf(as, sizeof as, "snapferry@%s:/%s", op->own->node, op->volume_id);
    json_t *source =
        json_pack("{s:s,s:s,s:s,s:s,s:b,s:s,s:b,s:I,s:{s:s,s:I,s:s}}", "name", v->name, "id", v->id, "class",
                  op->own->name, "driver", op->own->driver, "crash_consistent", n->crash_consistent, "mechanism",
                  enum_name(&exposed_as_names, (int)x.as), "block", v->block, "size", (json_int_t)x.size, "native",
                  "alias", op->native, "created_ns", (json_int_t)op->snapshot_ns, "handle", n->handle);
    /* Read over a socket, by another name than the volume's: the mover negotiates. */
    if (source && !strncmp(x.path, "nbd+unix:", 9) && strcmp(x.path, v->name) != 0)
        jset_str(source, "address", x.path);
    /* What was read is what the native snapshot has: a later backup may be based on it. */
    if (source && policy->changed_blocks && policy->backup_read_only && n->change_id[0])
        jset_str(source, "change_id", n->change_id);
    /* What a node that was installed anew needs to know again (RS-15). */
    json_t *tags = json_pack("{s:s,s:s,s:s,s:s,s:s}", "backup", op->parent, "operation", op->id, "volume-id",
                             op->volume_id, "class", op->own->name, "native", op->native);
    char size[24];
    snprintf(size, sizeof size, "%lld", (long long)x.size);
    jset_str(tags, "size", size);
    jset_str(tags, "volume", v->name);
    if (op->job[0])
        jset_str(tags, "job", op->job);
    if (policy->group[0])
        jset_str(tags, "group", policy->group);
    json_t *job = json_pack("{s:i,s:s,s:s,s:s,s:s,s:o?,s:s,s:o?,s:s,s:o?,s:s,s:s,s:b,s:b,s:s,s:o}", "protocol",
                            MOVER_PROTOCOL, "operation", op->id, "kind", "backup", "backup", op->parent, "node",
                            op->own->node, "repository", repository_job(g, policy->repository), "cache_dir",
                            g->paths.cache_dir, "source", source, "as", as, "tags", tags, "splitter", policy->splitter,
                            "compression", policy->compression, "map_bad", policy->map_bad, "full", policy->full,
                            "description", op->description, "keep", policy_keep_to_json(&policy->keep));
    json_t *record = job ? record_provisional(g, op) : NULL;
    if (record)
        json_object_set_new(job, "record", record);
    limits_job(job, policy);
    return job;
}

static json_t *restore_job(struct engine *g, const struct operation *op)
{
    const struct policy *policy = op->policy;
    const char *path = target_paths_read(op->target).path;
    json_t *job =
        json_pack("{s:i,s:s,s:s,s:s,s:s,s:o?,s:s,s:s,s:s,s:I,s:b,s:s}", "protocol", MOVER_PROTOCOL, "operation", op->id,
                  "kind", "restore", "backup", op->parent, "node", cfg_daemon(g->cfg)->node_name, "repository",
                  repository_job(g, policy->repository), "cache_dir", g->paths.cache_dir, "snapshot", op->snapshot,
                  "path", "volume.img", "size", (json_int_t)op->size, "verify", op->verify, "target",
                  driver_target_is_export(path) ? path : op->target_name);
    /* The target was made, or looked at, by its driver: what lies in it now is allowed to. */
    jset_bool(job, "overwrite", true);
    if (op->differential)
        jset_bool(job, "differential", true);
    if (op->ranged) {
        jset_int(job, "offset", op->offset);
        if (op->length)
            jset_int(job, "length", op->length);
    }
    limits_job(job, policy);
    return job;
}

static struct mover_times times_of(const struct operation *op)
{
    const struct policy *policy = op->policy;
    const bool moves = op->kind == KIND_BACKUP || op->kind == KIND_RESTORE;
    return (struct mover_times){.go_timeout_s = policy->go_timeout_s,
                                .stall_timeout_s = policy->stall_timeout_s,
                                .cancel_grace_s = policy->cancel_grace_s,
                                .max_duration_s = moves ? policy->max_duration_s : 0};
}

const struct cfg_plugin *operation_plugin(struct engine *g, const struct operation *op)
{
    const char *m = op->policy->mover;
    return !strncmp(m, "plugin:", 7) ? cfg_plugin(g->cfg, m + 7) : NULL;
}

static json_t *plugin_request(const struct operation *op)
{
    const bool restore = operation_is_restore(op);
    const struct target_paths x = target_paths_read(restore ? op->target : op->exposure);
    json_t *r = json_pack("{s:s,s:s,s:s,s:o,s:s,s:I,s:s}", "direction", restore ? "restore" : "backup", "operation",
                          op->id, "backup", op->parent, "volume", volume_desc_to_json(op->volume), "device", x.path,
                          "size", (json_int_t)x.size, "node", op->own->node);
    if (r && op->policy->options)
        json_object_set(r, "options", op->policy->options);
    if (r && restore && op->stored)
        json_object_set(r, "stored", op->stored);
    return r;
}

static json_t *admin_job(struct engine *g, const struct operation *op)
{
    const struct policy *policy = op->policy;
    json_t *job = json_pack("{s:i,s:s,s:s,s:s,s:o?,s:s}", "protocol", MOVER_PROTOCOL, "operation", op->id, "kind",
                            op_kind_name(op->kind), "node", cfg_daemon(g->cfg)->node_name, "repository",
                            repository_job(g, policy->repository), "cache_dir", g->paths.cache_dir);
    limits_job(job, policy);
    if (job && op->does)
        json_object_set(job, "do", op->does);
    if (job && op->read_percent >= 0)
        json_object_set_new(job, "read_percent", json_real(op->read_percent));
    if (job && op->anew) /* what another attempt of this one has read still counts */
        json_object_set_new(job, "anew_ns", json_integer(op->created_ns));
    if (job && op->read_from_ppm >= 0)
        json_object_set_new(job, "read_from", json_real((double)op->read_from_ppm * 100 / VERIFY_SHARES));
    if (job && op->snapshots)
        json_object_set(job, "snapshots", op->snapshots);
    if (job && op->kind == KIND_MAINTAIN) {
        jset_bool(job, "full", op->maintain.full);
        jset_bool(job, "dry_run", op->maintain.dry_run);
        jset_bool(job, "unsafe", op->maintain.unsafe);
        jset_bool(job, "take_over", op->maintain.scheduled);
        if (machine_text()[0])
            jset_str(job, "machine", machine_text());
    }
    return job;
}

/* The place to which a repository is copied. `expected`: one was made there, and it has to be there. */
static int copy_job(struct engine *g, const struct operation *op, const struct cfg_copy *k, json_t *job,
                    struct repository_secrets *secrets, struct err *e)
{
    int rc = place_secrets(&k->place, secrets, e);
    if (rc < 0)
        return rc;
    json_t *place = place_job(&k->place);
    if (!place || json_object_set_new(job, "copy", place) < 0)
        return err_nomem(e);
    place_job_authorities(job, "copy", secrets);
    jset_bool(job, "verify", op->verify);
    if (k->delete_after_s) {
        jset_int(job, "delete_after", k->delete_after_s);
        jset_bool(job, "delete_most", op->force);
    }
    jset_bool(job, "expected", !op->overwrite && copy_is_expected(k, copy_known(g->records, k->name)));
    return 0;
}

static json_t *job_of_kind(struct engine *g, const struct operation *op)
{
    switch (op->kind) {
    case KIND_BACKUP:
        return backup_job(g, op);
    case KIND_RESTORE:
        return restore_job(g, op);
    case KIND_VERIFY:
    case KIND_ADMIN:
    case KIND_MAINTAIN:
    case KIND_COPY:
        return admin_job(g, op);
    case KIND_NONE:
    case KIND_DELETE:
    case KINDS:
        break;
    }
    return NULL;
}

static json_t *job_of(struct engine *g, const struct operation *op)
{
    json_t *job = job_of_kind(g, op);
    if (job)
        jset_int(job, "cache_size", (json_int_t)cfg_cache_part(g->cfg));
    return job;
}

/* Descriptors of a mover's job; -1: none. */
struct job_fds {
    int device, changes, records;
};

/* Those of its policy, but rates and their times as the configuration has them by now: a reload while it was prepared,
 * or waited, has changed them for all movers. */
static int limits_begin(struct engine *g, const struct operation *op, struct mover_limits *ret, struct err *e)
{
    struct mover_limits now;
    if (fields_copy(&mover_limits_fields, ret, &op->policy->limits) < 0)
        return err_nomem(e);
    int rc = 0;
    if (limits_of(g->cfg, op, &now) == 0) {
        ret->read_limit = now.read_limit;
        ret->write_limit = now.write_limit;
        rc = str_set(&ret->limit_times, now.limit_times);
    }
    fields_clear(&mover_limits_fields, &now);
    return rc < 0 ? err_nomem(e) : 0;
}

static int start_builtin(struct engine *g, const struct operation *op, struct job_fds fds, bool *transient,
                         struct err *e)
{
    const struct policy *policy = op->policy;
    CLEANUP(repository_secrets_clear) struct repository_secrets secrets = {.password = NULL}, of_copy = secrets;
    const struct cfg_copy *copy = op->kind == KIND_COPY ? cfg_copy(g->cfg, op->target_name) : NULL;
    *transient = false;
    if (op->kind == KIND_COPY && !copy)
        return err_set(e, ERR_USAGE, 0, "copy \"%s\" is no longer in the configuration", op->target_name);
    if (!cfg_repository(g->cfg, policy->repository)) {
        err_set(e, ERR_USAGE, 0, "repository \"%s\" is no longer in the configuration", policy->repository);
        return err_hint(e, "add [repository \"%s\"] again, or `snapferry delete` the backup", policy->repository);
    }
    *transient = true;
    if (repository_secrets(g->cfg, policy->repository, &secrets, e) < 0) {
        repositories_refresh(g, true); /* the next attempt waits until it can be read */
        if (e->cls == ERR_USAGE)
            e->cls = ERR_PASSWORD; /* not for good: the file can be mended */
        return -EACCES;
    }
    CLEANUP_JSON json_t *job = job_of(g, op);
    if (job && fds.changes >= 0)
        json_object_set_new(job, changes_member(op), changes_job(op));
    if (!job)
        return err_nomem(e);
    place_job_authorities(job, "repository", &secrets);
    if (copy && copy_job(g, op, copy, job, &of_copy, e) < 0) {
        if (e->cls == ERR_USAGE)
            e->cls = ERR_PERMISSION; /* not for good, as above */
        return -EACCES;
    }
    struct mover_limits limits;
    int rc = limits_begin(g, op, &limits, e);
    struct mover_spec s = {.operation = op->id,
                           .times = times_of(op),
                           .kind = op_kind_name(op->kind),
                           .job = job,
                           .job_fd = fds.records,
                           .device_fd = fds.device,
                           .changes_fd = fds.changes,
                           .listing_fd = scan_listing(g, op->id),
                           .password = secrets.password,
                           .credentials = secrets.credentials,
                           .copy_credentials = of_copy.credentials,
                           .limits = &limits,
                           .debug = op->debug};
    if (rc == 0)
        rc = movers_start(g->movers, &s, e);
    fields_clear(&mover_limits_fields, &limits);
    crash_point("engine-mover-started");
    *transient = e->cls != ERR_USAGE;
    return rc;
}

/* ---- jobs that are made a part at a time ---- */

struct starting {
    struct starting *next;
    struct operation op;
    struct records_text *text;
};

static void starting_free(struct starting *s)
{
    records_text_free(s->text);
    operation_clear(&s->op);
    free(s);
}

static int start_later(struct engine *g, const struct operation *op, bool *transient, struct err *e)
{
    struct starting *s = calloc(1, sizeof *s), **end = &g->starting;
    *transient = true;
    if (!s)
        return err_nomem(e);
    s->op = (struct operation)ROW_INIT;
    int rc = operation_copy(&s->op, op) < 0 ? err_nomem(e) : records_text_new(&s->text, g, op, e);
    if (rc < 0) {
        starting_free(s);
        return rc;
    }
    while (*end)
        end = &(*end)->next;
    *end = s;
    engine_kick(g);
    return 0;
}

bool mover_start_part(struct engine *g)
{
    struct starting *s = g->starting;
    struct err e = ERR_INIT;
    bool transient = true;
    int rc = s ? records_text_part(s->text, &e) : 0;
    if (!s || rc > 0)
        return s != NULL;
    g->starting = s->next;
    if (rc == 0)
        rc = start_builtin(g, &s->op, (struct job_fds){-1, -1, records_text_fd(s->text)}, &transient, &e);
    if (rc < 0)
        engine_post_not_started(g, s->op.id, transient, &e);
    starting_free(s);
    return true;
}

bool mover_start_drop(struct engine *g, const char *id)
{
    for (struct starting **at = &g->starting, *s; (s = *at); at = &s->next) {
        if (strcmp(s->op.id, id) != 0)
            continue;
        *at = s->next;
        starting_free(s);
        return true;
    }
    return false;
}

void movers_start_free(struct engine *g)
{
    while (g->starting)
        mover_start_drop(g, g->starting->op.id);
}

/* A plugin that has begun under an earlier daemon is found again by its id. */
static int start_plugin(struct engine *g, const struct operation *op, struct err *e)
{
    const struct cfg_plugin *p = operation_plugin(g, op);
    CLEANUP_JSON json_t *req = plugin_request(op);
    if (!p)
        return err_set(e, ERR_USAGE, 0, "plugin %s is not installed: there is no such [plugin] section",
                       op->policy->mover + strlen("plugin:"));
    const struct mover_spec s = {.operation = op->id,
                                 .plugin = p,
                                 .plugin_id = op->plugin_id,
                                 .times = times_of(op),
                                 .job = req,
                                 .device_fd = -1};
    return op->plugin_id[0] ? movers_adopt(g->movers, NULL, &s, e) : movers_start(g->movers, &s, e);
}

int mover_start(struct engine *g, const struct operation *op, int device, int changes, bool *transient, struct err *e)
{
    int rc;
    if (op->policy->mover[0]) {
        *transient = false;
        rc = start_plugin(g, op, e);
    } else if (op->records.n) {
        rc = start_later(g, op, transient, e);
    } else {
        rc = start_builtin(g, op, (struct job_fds){device, changes, -1}, transient, e);
    }
    return rc == -EEXIST ? 0 : rc; /* ours, under way: its events come */
}

/* Rates change nothing of what is written: they follow the configuration also while data is being moved. */
static int limit_again(const struct operation *op, void *arg)
{
    struct engine *g = arg;
    struct mover_limits l;
    if (!movers_has(g->movers, op->id))
        return 0;
    if (limits_of(g->cfg, op, &l) == 0)
        movers_limit(g->movers, op->id, &l);
    fields_clear(&mover_limits_fields, &l);
    return 0;
}

void movers_limit_again(struct engine *g)
{
    const struct operation_filter live = {.live = true};
    operation_each(g->d.records, &live, limit_again, g, NULL);
}

int mover_adopt(struct engine *g, const struct operation *op, struct err *e)
{
    struct process_identity id;
    int rc;
    if (op->policy->mover[0]) {
        rc = start_plugin(g, op, e);
        return rc == -EEXIST ? 0 : rc;
    }
    const struct mover_spec s = {.operation = op->id,
                                 .times = times_of(op),
                                 .kind = op_kind_name(op->kind),
                                 .device_fd = -1,
                                 .limits = &op->policy->limits};
    CLEANUP_JSON json_t *identity = text_document(op->identity);
    rc = mover_identity_from_json(&id, identity, e);
    if (rc == 0)
        rc = movers_adopt(g->movers, &id, &s, e);
    if (rc == 0) {
        limit_again(op, g);
        log_info("%s: its mover (process %d) is still running and was adopted", operation_label(op), (int)id.pid);
        return 0;
    }
    *e = (struct err)ERR_INIT;
    return movers_result(g->movers, op->id, e);
}
