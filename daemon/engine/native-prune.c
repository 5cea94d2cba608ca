/* SPDX-License-Identifier: GPL-2.0-or-later */
/* native-prune.c - native snapshots are pruned on demand, and looked at with each sweep of the storage */
#include "daemon/answers/answers.h"
#include "daemon/engine/facts.h"
#include "daemon/records/names.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS_MAX 100 /* of a pool that stays full whatever is removed */
#define AGAIN_MS 500   /* while somebody else removes one from the same pool, */
#define AGAIN_MAX 180  /* and so often: longer than that counts as under way */

struct prune {
    struct engine *engine;
    engine_reply_fn *reply;
    void *arg;
    json_t *natives, *items;
    json_t *pruned;  /* of the rounds before: as in natives */
    json_t *out;     /* of the step that removed some */
    json_t *check;   /* repository -> {snapshot id: alias} */
    json_t *checks;  /* ids of operations that ask the repositories */
    json_t *checked; /* the same, for the plan that looks at what they have found */
    json_t *ratios;  /* volume id -> how full its pool is, 0..1 */
    char volume[VOLUME_NAME_MAX];
    bool dry_run, asked;
    bool gone; /* only of volumes and jobs that have ended, and all of them that are safe elsewhere */
    int64_t since_ns;
    int64_t looked_ns;   /* boot_ns(): when the pools were looked at */
    int64_t measured_ns; /* likewise, by the wall clock */
    unsigned pending;
    bool full;  /* one goes since its pool is full: what that has freed is measured, and then another one may be due */
    bool again; /* none goes before the pool is measured again: the sweep, or a backup, removes one from it */
    unsigned rounds, removed, waits;
};

static double ratio_of(const struct prune *p, const char *volume_id)
{
    const json_t *r = json_object_get(p->ratios, volume_id);
    return json_is_number(r) ? json_number_value(r) : -1;
}

/* Of a volume. */
static bool is_meant(const struct prune *p, const struct native_row *const *rows, size_t count)
{
    const struct native_row *n = rows[0];
    bool ended = !p->gone || volume_ended_why(p->engine->records, p->engine->cfg, n->volume_id);
    for (size_t i = 0; i < count && !ended; i++)
        ended = native_job_ended(p->engine->records, p->engine->cfg, rows[i]);
    if (!ended)
        return false;
    return !p->volume[0] || !strcmp(p->volume, n->volume_id) || !strcmp(p->volume, n->volume->name);
}

static void rules_of(const struct prune *p, const char *volume_id, const struct policy *policy, struct native_rules *r)
{
    native_rules(r, policy, "", ratio_of(p, volume_id), false, decide_now(&p->engine->d));
    r->pool_ns = p->measured_ns;
    r->ended = volume_ended_why(p->engine->records, p->engine->cfg, volume_id);
    r->prune_ended = p->gone;
}

/* Of one volume: rows and what is known of them, the oldest first. */
static int list_volume(const struct native_row *const *rows, struct native_facts *f, size_t n, void *arg)
{
    struct prune *p = arg;
    struct native_rules rules;
    struct native_verdict v;
    if (!is_meant(p, rows, n))
        return 0;
    CLEANUP(policy_unrefp)
    const struct policy *policy = native_policy(p->engine->records, p->engine->cfg, rows[0], false);
    rules_of(p, rows[0]->volume_id, policy, &rules);
    natives_note_jobs(p->engine->records, p->engine->cfg, &rules, f, n);
    natives_plan(&rules, f, n, &v);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(p->natives, answer_native_planned(rows[i], &f[i]));
    return 0;
}

static int note_volume(const struct native_row *const *rows, struct native_facts *f, size_t n, void *arg)
{
    struct prune *p = arg;
    (void)f;
    if (is_meant(p, rows, n)) /* the oldest of each volume */
        json_array_append_new(p->items, json_string(rows[0]->id));
    return 0;
}

static int plan_volume(struct prune *p, const char *alias, struct err *e)
{
    struct decide *d = &p->engine->d;
    CLEANUP_JSON json_t *items = NULL, *check = NULL;
    struct native_rules rules;
    struct native_verdict v;
    const struct native_row *n = native_row_peek(d->records, alias);
    if (!n)
        return 0;
    CLEANUP(policy_unrefp) const struct policy *policy = native_policy(p->engine->records, p->engine->cfg, n, false);
    CLEANUP_FREE char *volume = strdup(n->volume_id);
    if (!volume)
        return err_nomem(e);
    rules_of(p, volume, policy, &rules);
    int rc = natives_plan_prune(d, volume, &rules, p->since_ns, &items, &check, &v, e);
    if (rc >= 0)
        rc = natives_ask_again(d, volume, policy->repository, p->since_ns, check, e);
    if (rc < 0)
        return rc;
    p->full |= v.over_high_water && json_array_size(items);
    p->again |= v.measure_again;
    json_array_extend(p->items, items);
    if (json_object_size(check)) {
        json_t *asked = json_object_get(p->check, policy->repository);
        if (asked)
            json_object_update(asked, check);
        else
            json_object_set(p->check, policy->repository, check);
    }
    return 0;
}

static void prune_finish(struct prune *p, const struct err *e)
{
    json_array_extend(p->pruned, p->natives);
    CLEANUP_JSON json_t *answer = json_pack("{s:O,s:i}", "natives", p->pruned, "started", (int)p->removed);
    if (p->reply)
        p->reply(e ? NULL : answer, e, p->arg);
    json_decref(p->natives);
    json_decref(p->pruned);
    json_decref(p->out);
    json_decref(p->items);
    json_decref(p->check);
    json_decref(p->checks);
    json_decref(p->checked);
    json_decref(p->ratios);
    free(p);
}

static int write_removed(struct engine *g, const json_t *out, struct err *e)
{
    CLEANUP(step_answer_clear) struct step_answer answer;
    step_answer_init(&answer);
    if (step_answer_load(&answer, out) < 0)
        return err_nomem(e);
    natives_removed(&g->d, &answer);
    return 0;
}

void engine_record_removed(struct engine *g, const struct step_result *s)
{
    if (!s->err.cls && s->out)
        engine_record(g, "removed native snapshots", write_removed, json_incref(s->out));
}

static void prune_begin(struct prune *p);

/* Moves those that this round has removed: what the next one says of them is nothing. */
static void keep_pruned(struct prune *p)
{
    const json_t *n, *item;
    size_t i, k;
    json_array_foreach(p->natives, i, n) json_array_foreach(p->items, k, item)
    {
        if (json_equal(json_object_get(n, "alias"), json_object_get(item, "alias")))
            json_array_append(p->pruned, (json_t *)(uintptr_t)n);
    }
    json_array_clear(p->natives);
}

static int write_done(struct decide *d, void *arg, struct err *e)
{
    const struct prune *p = arg;
    (void)d;
    return write_removed(p->engine, p->out, e);
}

/* What one has freed is known once its record is gone. */
static void done_written(const struct err *e, void *arg)
{
    struct prune *p = arg;
    const unsigned before = p->removed;
    CLEANUP(step_answer_clear) struct step_answer answer;
    step_answer_init(&answer);
    step_answer_load(&answer, p->out);
    const struct step_item *item = answer.items.v;
    for (unsigned i = 0; i < answer.items.n; i++)
        p->removed += item[i].error.code == ERR_NONE;
    if (e->cls || (!p->full && !p->again) || p->removed == before || ++p->rounds == ROUNDS_MAX) {
        prune_finish(p, NULL);
        return;
    }
    keep_pruned(p);
    prune_begin(p);
}

static void prune_done(struct step_result *s, void *arg)
{
    struct prune *p = arg;
    if (s->err.cls) {
        prune_finish(p, &s->err);
        return;
    }
    json_take(&p->out, json_incref(s->out));
    engine_request(p->engine, write_done, done_written, p);
}

static void prune_run(struct prune *p);

static void prune_stopped(const struct err *e, void *arg)
{
    prune_finish(arg, e);
}

/* One repository has answered (or not: then what it was asked about stays). */
static void prune_checked(const json_t *state, bool terminal, void *arg)
{
    struct prune *p = arg;
    (void)state;
    if (terminal && --p->pending == 0) {
        engine_unwait(p->engine, p);
        prune_run(p);
    }
}

static int ask_repositories(struct prune *p)
{
    const char *repo;
    json_t *check;
    json_object_foreach(p->check, repo, check)
    {
        char id[512];
        if (natives_ask_repository(&p->engine->d, repo, check, ASK_REQUEST, id, NULL) == 0)
            json_array_append_new(p->checks, json_string(id));
    }
    return 0;
}

/* What goes is recorded before it is removed, and what the repositories have to be asked. */
static int write_plan(struct decide *d, void *arg, struct err *e)
{
    struct prune *p = arg;
    const json_t *v;
    size_t i;
    json_array_clear(p->checks);
    json_object_clear(p->check);
    json_array_clear(p->items);
    p->full = p->again = false;
    json_array_foreach(p->checked, i, v)
    {
        CLEANUP(operation_clear) struct operation op;
        if (operation_read(d, json_string_value(v), &op) == 0)
            natives_note_checked(d, &op);
    }
    int rc = natives_each(d->records, note_volume, p, e);
    CLEANUP_JSON json_t *volumes = json_copy(p->items);
    json_array_clear(p->items);
    json_array_foreach(volumes, i, v) if (rc >= 0) rc = plan_volume(p, json_string_value(v), e);
    return rc >= 0 && !p->asked ? ask_repositories(p) : rc;
}

static void prune_remove(struct prune *p)
{
    struct err e = ERR_INIT;
    CLEANUP_JSON json_t *in = json_pack("{s:O}", "items", p->items);
    const bool none = json_array_size(p->items) == 0;
    /* Whoever asked is told of what is done when nothing more is due; a sweep comes again by itself. */
    if (none && p->again && p->reply && p->waits++ < AGAIN_MAX)
        prune_begin(p);
    else if (none)
        prune_finish(p, NULL);
    else if (step_start(p->engine->steps, "native prune", step_remove, in, 600, prune_done, p, NULL, &e) < 0)
        prune_finish(p, &e);
}

static void plan_written(const struct err *e, void *arg)
{
    struct prune *p = arg;
    const json_t *id;
    size_t i;
    if (e->cls) {
        prune_finish(p, e);
        return;
    }
    if (p->asked || json_array_size(p->checks) == 0) {
        prune_remove(p);
        return;
    }
    p->asked = true;
    p->pending = 1;
    json_array_extend(p->checked, p->checks);
    json_array_foreach(p->checks, i, id) p->pending +=
        engine_wait(p->engine, json_string_value(id), prune_checked, p, NULL) == 0;
    if (--p->pending == 0)
        prune_run(p);
    else
        waiters_on_stop(p->engine, p, prune_stopped);
}

static void prune_run(struct prune *p)
{
    struct err e = ERR_INIT;
    json_array_clear(p->natives);
    if (p->reply && natives_each(p->engine->records, list_volume, p, &e) < 0)
        prune_finish(p, &e);
    else if (p->dry_run)
        prune_finish(p, NULL);
    else
        engine_request(p->engine, write_plan, plan_written, p);
}

/* How full the pools are is a fact of the plan (RS-30), and worth an alarm by itself. */
static void pools_seen(struct step_result *s, void *arg)
{
    struct prune *p = arg;
    json_decref(p->ratios);
    p->ratios = pools_note(p->engine, s->out, p->looked_ns);
    prune_run(p);
}

static void prune_begin(struct prune *p)
{
    CLEANUP_JSON json_t *in = json_pack("{s:o}", "items", pools_to_ask(p->engine));
    json_t *first = json_array_get(json_object_get(in, "items"), 0);
    if (p->again && first)
        jset_int(first, "pause_ms", AGAIN_MS);
    p->asked = false;
    p->looked_ns = boot_ns();
    p->measured_ns = now_ns();
    json_array_clear(p->checked);
    if (json_array_size(json_object_get(in, "items")) == 0 ||
        step_start(p->engine->steps, "look at the pools", step_pool, in, 60, pools_seen, p, NULL, NULL) < 0)
        prune_run(p);
}

static int is_of(const struct native_row *n, void *arg)
{
    const char *volume = arg;
    return !strcmp(volume, n->volume_id) || !strcmp(volume, n->volume->name);
}

/* A name that is no volume's, as of a slip, is not one of which nothing is due. */
static int may_prune(struct engine *g, const struct request_args *req, struct err *e)
{
    char *volume = req->volume;
    if (req->gone && !volumes_looked(g)) {
        err_set(e, ERR_BUSY, EAGAIN,
                "not all storage was looked at since the daemon started: which volumes are gone is "
                "not known yet");
        return err_hint(e, "`snapferry status` shows which storage class cannot be listed");
    }
    return !volume[0] || native_row_each(g->records, NULL, is_of, volume, NULL) > 0
               ? 0
               : volume_known(g->records, volume, e);
}

void engine_native_prune(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    struct err e = ERR_INIT;
    if (may_prune(g, req, &e) < 0) {
        if (reply)
            reply(NULL, &e, arg);
        return;
    }
    struct prune *p = calloc(1, sizeof *p);
    if (!p) {
        err_nomem(&e);
        if (reply)
            reply(NULL, &e, arg);
        return;
    }
    *p = (struct prune){.engine = g,
                        .reply = reply,
                        .arg = arg,
                        .natives = json_array(),
                        .pruned = json_array(),
                        .items = json_array(),
                        .check = json_object(),
                        .checks = json_array(),
                        .checked = json_array(),
                        .ratios = json_object(),
                        .dry_run = req->dry_run,
                        .gone = req->gone,
                        .since_ns = now_ns()};
    snprintf(p->volume, sizeof p->volume, "%s", req->volume);
    prune_begin(p);
}
