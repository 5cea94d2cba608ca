/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * engine-standin.h - an engine that only pretends to move data, for tests of the control socket and of the command
 *
 * Real records, real documents (daemon/answers/answers.h), a real event loop; what happens to a backup is decided by
 * the names of its volumes: "fail..." fails (class source), "cancelme..." and all others take `ticks` ticks of 20 ms,
 * "hang..." runs until it is canceled. Include it in one file of a program.
 */
#ifndef SNAPFERRY_TESTS_UNIT_ENGINE_STANDIN_H
#define SNAPFERRY_TESTS_UNIT_ENGINE_STANDIN_H

#include "daemon/answers/answers.h"
#include "daemon/engine/engine.h"
#include "base/json.h"
#include "base/time.h"
#include "rows.h"

#include <errno.h>
#include <string.h>
#include <time.h>

struct standin_wait {
    struct standin_wait *next;
    char id[512];
    engine_wait_fn *fn; /* NULL: gone */
    void *arg;
};

struct standin_later {
    sd_event_source *source;
    engine_reply_fn *reply;
    void *arg;
    json_t *answer;
    struct err err;
};

struct engine {
    sd_event *loop;
    struct records *records;
    struct cfg *cfg;
    sd_event_source *tick;
    struct standin_wait *waits;
    unsigned ticks, rows, serial, replies_pending;
    bool late, refuse_reload;
    unsigned calls;
    struct request_args last; /* the last request */
    size_t big;               /* status carries a text of this length */
};

static int64_t standin_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

struct records *engine_records(struct engine *g)
{
    return g->records;
}
const struct schedule *engine_schedule(const struct engine *g)
{
    (void)g;
    return NULL;
}

const struct cfg *engine_cfg(const struct engine *g)
{
    return g->cfg;
}

void engine_facts(struct engine *g, struct answer_facts *f)
{
    *f = (struct answer_facts){
        .records = g->records, .cfg = g->cfg, .now_ns = now_ns(), .config = {.ok = true, .error = ""}};
    f->jobs.v = schedule_views(NULL, f->now_ns, &f->jobs.n);
}

static json_t *standin_document(struct engine *g, const struct backup *b)
{
    CLEANUP(answer_facts_clear) struct answer_facts f;
    engine_facts(g, &f);
    return answer_backup(&f, b, true);
}
json_t *engine_debug_json(struct engine *g)
{
    return json_pack("{s:i}", "calls", (int)g->calls);
}

static int standin_later_done(sd_event_source *s, uint64_t usec, void *arg)
{
    struct standin_later *l = arg;
    (void)s, (void)usec;
    l->reply(l->answer, l->err.cls ? &l->err : NULL, l->arg);
    json_decref(l->answer);
    sd_event_source_disable_unref(l->source);
    free(l);
    return 0;
}

/* Takes the answer over; at once, or 30 ms later. */
static void standin_reply(struct engine *g, const struct request_args *req, json_t *answer, const struct err *e,
                          engine_reply_fn *reply, void *arg)
{
    g->calls++;
    request_args_clear(&g->last);
    if (req)
        request_args_copy(&g->last, req);
    struct standin_later *l = g->late ? calloc(1, sizeof *l) : NULL;
    if (!l) {
        reply(e ? NULL : answer, e, arg);
        json_decref(answer);
        return;
    }
    *l = (struct standin_later){.reply = reply, .arg = arg, .answer = answer};
    if (e)
        l->err = *e;
    uint64_t now;
    sd_event_now(g->loop, CLOCK_MONOTONIC, &now);
    sd_event_add_time(g->loop, &l->source, CLOCK_MONOTONIC, now + 30000, 1000, standin_later_done, l);
}

/* ---- records that change ---- */

static int standin_add(struct engine *g, enum row_kind k, const char *id, const char *parent, const char *volume,
                       const char *state, json_t *doc)
{
    return row_add_doc(g->records, k, id, parent, volume, state, doc, NULL);
}

static void standin_tell(struct engine *g, const struct backup *b)
{
    json_t *state = standin_document(g, b);
    for (struct standin_wait *w = g->waits; w; w = w->next)
        if (w->fn && !strcmp(w->id, b->id))
            w->fn(state, backup_state_terminal(b->state), w->arg);
    json_decref(state);
    for (struct standin_wait **at = &g->waits; *at;) {
        struct standin_wait *w = *at;
        if (w->fn) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        free(w);
    }
}

static enum op_state standin_failed(struct operation *op, enum err_class code, const char *message, const char *hint)
{
    op->error.code = code;
    str_set(&op->error.message, message);
    str_set(&op->error.hint, hint);
    str_set(&op->error.stage, *hint ? "move" : "");
    return OP_FAILED;
}

static enum op_state standin_advance(struct engine *g, struct operation *op, bool cancel)
{
    const char *name = op->volume->name;
    const int64_t total = jint(op->progress, "total"),
                  done = jint(op->progress, "done") + total / (g->ticks ? g->ticks : 1);
    if (cancel)
        return OP_CANCELED;
    if (!strncmp(name, "hang", 4))
        return OP_RUNNING;
    json_t *p = json_copy(op->progress);
    jset_int(p, "done", done < total ? done : total);
    json_take(&op->progress, p);
    if (done < total)
        return OP_RUNNING;
    op->completed_ns = standin_now();
    if (!strncmp(name, "odd", 3))
        return standin_failed(op, ERR_GENERIC, "it did not work", "");
    if (!strncmp(name, "fail", 4))
        return standin_failed(op, ERR_SOURCE, "the device has a bad sector", "replace the disk");
    return OP_COMPLETED;
}

struct standin_round {
    unsigned running, failed, completed;
    char ids[64][512];
    unsigned n;
};
static int standin_collect(const struct operation *op, void *arg)
{
    struct standin_round *x = arg;
    if (x->n < 64)
        snprintf(x->ids[x->n++], 512, "%s", op->id);
    return 0;
}

static int standin_backup(const struct backup *row, void *arg)
{
    struct engine *g = arg;
    const struct operation_filter f = {.parent = row->id};
    struct backup b;
    if (json_is_true(json_object_get(row->unknown, "canned")))
        return 0;
    struct standin_round *x = calloc(1, sizeof *x);
    backup_copy(&b, row);
    operation_each(g->records, &f, standin_collect, x, NULL);
    for (unsigned i = 0; i < x->n; i++) {
        struct operation op;
        if (operation_get(g->records, x->ids[i], &op, NULL) < 0)
            continue;
        if (!op_state_terminal(op.state)) {
            op.state = standin_advance(g, &op, b.cancel);
            operation_save(g->records, &op, NULL);
        }
        x->running += !op_state_terminal(op.state);
        x->failed += op.state == OP_FAILED;
        x->completed += op.state == OP_COMPLETED;
        operation_clear(&op);
    }
    if (!x->running) {
        b.state = b.cancel                    ? BACKUP_CANCELED
                  : x->failed && x->completed ? BACKUP_PARTIALLY_FAILED
                  : x->failed                 ? BACKUP_FAILED
                                              : BACKUP_COMPLETED;
        b.completed_ns = standin_now();
        backup_save(g->records, &b, NULL);
    }
    free(x);
    standin_tell(g, &b);
    backup_clear(&b);
    return 0;
}

static int standin_tick(sd_event_source *s, uint64_t usec, void *arg)
{
    struct engine *g = arg;
    const struct backup_filter f = {.live = true};
    backup_each(g->records, &f, standin_backup, g, NULL);
    sd_event_source_set_time(s, usec + 20000);
    return sd_event_source_set_enabled(s, SD_EVENT_ON);
}

/* ---- requests ---- */

void engine_submit_backup(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    struct err e = ERR_INIT;
    const json_t *v;
    size_t i;
    char id[64];
    snprintf(id, sizeof id, "%s-20261121T0200%02u-%04x", *req->job ? req->job : "manual", g->serial % 60,
             g->serial + 1);
    g->serial++;
    json_t *ops = json_array(), *skipped = json_array(), *volumes = json_array();
    for (unsigned k = 0; k < req->volumes.n; k++)
        json_array_append_new(volumes, json_string(req->volumes.v[k]));
    json_t *job = json_pack("[s]", "vg0/job");
    json_array_foreach(req->volumes.n ? volumes : job, i, v)
    {
        const char *name = json_string_value(v);
        if (!strncmp(name, "no", 2)) {
            err_set(&e, ERR_NOT_FOUND, 0, "there is no volume %s", name);
            err_hint(&e, "snapferry volumes lists them");
        } else if (!strncmp(name, "skip", 4)) {
            json_array_append_new(skipped, json_pack("{s:s,s:s}", "volume", name, "reason", "excluded by [volume]"));
        } else {
            char op[512];
            snprintf(op, sizeof op, "up-%s.id-%zu", id, i);
            json_array_append_new(ops, json_pack("{s:s,s:s}", "id", op, "volume", name));
        }
    }
    if (!e.cls) {
        standin_add(g, ROW_BACKUP, id, "", "", "Moving", json_pack("{s:s,s:s}", "kind", "backup", "job", req->job));
        json_array_foreach(ops, i, v)
        {
            char vid[32];
            snprintf(vid, sizeof vid, "id-%zu", i);
            standin_add(g, ROW_OPERATION, jstr(v, "id"), id, vid, "Running",
                        json_pack("{s:s,s:{s:s,s:s,s:I},s:{s:s,s:I,s:I},s:I}", "kind", "backup", "volume", "name",
                                  jstr(v, "volume"), "id", vid, "size", (json_int_t)1 << 30, "progress", "phase",
                                  "moving", "total", (json_int_t)1 << 30, "done", (json_int_t)0, "started_ns",
                                  standin_now()));
        }
    }
    json_t *answer = json_pack("{s:s,s:o,s:o}", "backup", id, "operations", ops, "skipped", skipped);
    json_decref(job);
    json_decref(volumes);
    standin_reply(g, req, answer, e.cls ? &e : NULL, reply, arg);
}

void engine_submit_restore(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    standin_reply(g, req,
                  json_pack("{s:s,s:s,s:s,s:s}", "restore", "restore-1", "operation", "down-restore-1.id-0", "from",
                            "native", "why", "the native snapshot is there"),
                  NULL, reply, arg);
}

void engine_verify(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    standin_reply(g, req, json_pack("{s:s,s:s}", "operation", "verify-1", "repository", req->repository), NULL, reply,
                  arg);
}

void engine_cancel(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    struct err e = ERR_INIT;
    struct backup b;
    json_t *answer = NULL;
    if (backup_get(g->records, req->id, &b, &e) >= 0) {
        bool already = backup_state_terminal(b.state);
        answer = json_pack("{s:s,s:b,s:s}", "id", b.id, "already", (int)already, "state", backup_state_name(b.state));
        b.cancel = true;
        if (!already)
            backup_save(g->records, &b, NULL);
    }
    backup_clear(&b);
    standin_reply(g, req, answer, e.cls ? &e : NULL, reply, arg);
}

void engine_delete(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    standin_reply(g, req, json_pack("{s:s,s:s,s:s}", "id", req->id, "operation", "admin-1", "state", "Deleting"), NULL,
                  reply, arg);
}

void engine_retry(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    standin_reply(g, req, json_pack("{s:s,s:s,s:[]}", "backup", "retry-1", "retry_of", req->backup, "operations"), NULL,
                  reply, arg);
}

void engine_hold(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    standin_reply(g, req, json_pack("{s:[s],s:b}", "held", req->native, "hold", (int)req->hold), NULL, reply, arg);
}

void engine_native_prune(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    standin_reply(g, req, json_pack("{s:[],s:i}", "natives", "started", 0), NULL, reply, arg);
}

void engine_native_release(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    standin_reply(g, req, json_pack("{s:[],s:i}", "natives", "started", 0), NULL, reply, arg);
}

void engine_expire(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    standin_reply(g, req, json_pack("{s:s}", "operation", "admin-2"), NULL, reply, arg);
}

void engine_maintain(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    standin_reply(g, req, json_pack("{s:s}", "operation", "maintain-1"), NULL, reply, arg);
}

void engine_copy(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    standin_reply(g, req, json_pack("{s:s}", "operation", "copy-1"), NULL, reply, arg);
}

void engine_logs(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    standin_reply(g, req, json_pack("{s:b}", "fetched", 0), NULL, reply, arg);
}

void engine_scan(struct engine *g, const struct request_args *req, engine_wait_fn *told, engine_reply_fn *reply,
                 void *arg)
{
    (void)told;
    standin_reply(g, req, json_pack("{s:s}", "operation", "admin-3"), NULL, reply, arg);
}

void engine_detach(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    standin_reply(g, req, json_pack("{s:s,s:i,s:i}", "repository", req->repository, "backups", 0, "natives", 0), NULL,
                  reply, arg);
}

void engine_forget(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    standin_reply(g, req, json_pack("{s:s,s:i}", "volume", req->volume, "forgotten", 1), NULL, reply, arg);
}

/* Names with everything that a terminal should not see, and long ones. */
static json_t *standin_volumes(const struct engine *g)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < g->rows; i++) {
        char name[300];
        bool good = i % 3 != 0;
        snprintf(name, sizeof name,
                 i % 5 == 4   ? "vg%u/\033[31mred\xc2\x9b\nline"
                 : i % 7 == 6 ? "/srv/vm/a-very-long-directory-name-that-goes-on-and-on/and-on/%u.img"
                              : "vg0/db%u",
                 i);
        json_t *v = json_pack("{s:s,s:s,s:s,s:I,s:b,s:I,s:I,s:i}", "name", name, "id", name, "class", "gold", "size",
                              (json_int_t)27 << 30, "protected", (int)good, "last_success_ns",
                              good ? standin_now() - (int64_t)i * 3600 * 1000000000 : 0, "next_ns",
                              standin_now() + INT64_C(3600000000000), "natives", (int)i % 4);
        if (!good)
            json_object_set_new(v, "why", json_string("not backed up yet, and no job names it"));
        json_array_append_new(list, v);
    }
    return list;
}

void engine_volume(struct engine *g, const char *what, engine_reply_fn *reply, void *arg)
{
    (void)what;
    standin_reply(g, NULL, json_pack("{s:o}", "volumes", standin_volumes(g)), NULL, reply, arg);
}

void engine_volumes(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    standin_reply(g, req, json_pack("{s:o}", "volumes", standin_volumes(g)), NULL, reply, arg);
}

void engine_explain(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    standin_reply(g, req,
                  json_pack("{s:s,s:s,s:[s],s:{s:{s:s,s:s}}}", "volume", req->volume, "mechanism", "native", "text",
                            "It is protected.", "policy", "snapshots-to-retain", "value", "3", "origin",
                            "[storage-class gold] /etc/snapferry/snapferry.ini:12"),
                  NULL, reply, arg);
}

void engine_reload(struct engine *g, engine_reply_fn *reply, void *arg)
{
    struct err e = ERR_INIT;
    if (g->refuse_reload) {
        err_set(&e, ERR_USAGE, 0, "/etc/snapferry/snapferry.ini:7: unknown key \"mtach\"");
        err_hint(&e, "did you mean match?");
    }
    standin_reply(g, NULL, json_pack("{s:b,s:s}", "reloaded", 1, "hash", "abc"), e.cls ? &e : NULL, reply, arg);
}

void engine_status_asked(struct engine *g, engine_reply_fn *reply, void *arg)
{
    CLEANUP_JSON json_t *status = engine_status(g);
    reply(status, NULL, arg);
}

void engine_pools_asked(struct engine *g, engine_reply_fn *reply, void *arg)
{
    (void)g;
    reply(NULL, NULL, arg);
}

json_t *engine_status(struct engine *g)
{
    json_t *running = json_array(), *queue = json_array();
    for (unsigned i = 0; i < g->rows && i < 50; i++) {
        char id[64];
        snprintf(id, sizeof id, "up-nightly-20261121T020000-3f9a.id-%u", i);
        json_array_append_new(running, json_pack("{s:s,s:s,s:s,s:s,s:I,s:{s:s,s:I,s:I,s:f,s:f}}", "id", id, "kind",
                                                 "backup", "state", "Running", "volume",
                                                 "vg0/a-rather-long-name-of-a-volume", "created_ns", standin_now(),
                                                 "progress", "phase", "moving", "total", (json_int_t)27 << 30, "done",
                                                 (json_int_t)12 << 30, "rate", 220.0e6, "eta_s", 70.0));
        json_array_append_new(queue, json_pack("{s:s,s:s,s:s,s:s,s:I,s:i,s:s}", "id", id, "kind", "backup", "state",
                                               "Queued", "volume", "vg0/home", "created_ns", standin_now(), "position",
                                               (int)i + 1, "why", "all slots are in use"));
    }
    char *text = malloc(g->big + 64);
    snprintf(text, 64, "the repository \"main\" cannot be reached");
    if (g->big)
        memset(text, 'x', g->big), text[g->big] = '\0';
    json_t *s = json_pack(
        "{s:{s:s,s:i,s:s,s:I,s:b,s:b},s:{s:b,s:s,s:I},s:[{s:s,s:s,s:b,s:s}],s:{s:i,s:i,s:i,s:i},s:o,"
        "s:o,s:o,s:[],s:{s:i,s:s},"
        "s:[{s:s,s:s,s:s}]}",
        "daemon", "version", "0.1.0", "pid", 1, "node", "nas1", "started_ns", standin_now() - 100000000000, "degraded",
        0, "maintenance", 0, "config", "ok", 1, "hash", "abc", "loaded_ns", standin_now() - 100000000000,
        "repositories", "name", "main", "path", "/srv/backup", "up", 0, "why", "No such device", "slots", "total", 2,
        "used", 2, "restore_reserved", 1, "queued", (int)json_array_size(queue), "running", running, "queue", queue,
        "volumes", standin_volumes(g), "jobs", "natives", "count", 3, "text",
        "3 retained; next to go: 0b5e of vg0/db1 (older than 3 newer ones)", "problems", "severity", "error", "text",
        text, "hint", "mount it; backups into the repository wait until it can be used");
    free(text);
    return s;
}

int engine_wait(struct engine *g, const char *id, engine_wait_fn *fn, void *arg, struct err *e)
{
    struct backup b;
    int rc = backup_get(g->records, id, &b, e);
    if (rc < 0)
        return rc;
    bool terminal = backup_state_terminal(b.state);
    json_t *state = standin_document(g, &b);
    if (!terminal) {
        struct standin_wait *w = calloc(1, sizeof *w);
        snprintf(w->id, sizeof w->id, "%s", id);
        w->fn = fn;
        w->arg = arg;
        w->next = g->waits;
        g->waits = w;
    }
    fn(state, terminal, arg);
    json_decref(state);
    backup_clear(&b);
    return 0;
}

void engine_unwait(struct engine *g, void *arg)
{
    for (struct standin_wait *w = g->waits; w; w = w->next)
        if (w->arg == arg)
            w->fn = NULL;
}

static inline unsigned standin_waits(const struct engine *g)
{
    unsigned n = 0;
    for (const struct standin_wait *w = g->waits; w; w = w->next)
        n += w->fn != NULL;
    return n;
}

static int standin_new(struct engine *g, sd_event *loop, const char *state_dir, struct err *e)
{
    struct records_news news;
    uint64_t now;
    *g = (struct engine){.loop = loop, .ticks = 5};
    int rc = records_open(&g->records, state_dir, &news, e);
    if (rc < 0)
        return rc;
    /* There is no configuration there: an empty one, with a complaint. */
    (void)cfg_load_dir(&g->cfg, state_dir, NULL);
    sd_event_now(loop, CLOCK_MONOTONIC, &now);
    return sd_event_add_time(loop, &g->tick, CLOCK_MONOTONIC, now + 20000, 1000, standin_tick, g);
}

static void standin_free(struct engine *g)
{
    sd_event_source_disable_unref(g->tick);
    while (g->waits) {
        struct standin_wait *w = g->waits;
        g->waits = w->next;
        free(w);
    }
    records_close(g->records);
    cfg_free(g->cfg);
    request_args_clear(&g->last);
}

#endif
