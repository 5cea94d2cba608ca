/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * submit.c - a request becomes records, or is refused with everything that is wrong with it
 *
 * What the request names is looked up on the storage by a step; then policies are worked out, checked, and the next
 * turn writes the backup and its operations. Nothing is left behind by a request that is refused.
 */
#include "base/nearest.h"
#include "daemon/engine/facts.h"
#include "daemon/records/opaque.h"

#include <errno.h>
#include <fnmatch.h>
#include <string.h>

struct submit {
    struct engine *engine;
    engine_reply_fn *reply;
    void *arg;
    struct request_args req;
    struct cfg *cfg; /* the one it was asked under */
    char job[128];
    char advice[sizeof((struct err *)0)->hint]; /* the hint of the first thing that is missing; "": it has none */
    bool begun;                                 /* the job is to be run: if that is not possible, its run has failed */
    json_t *skipped;
    json_t *by_label;            /* names whose class, if they have one, only the storage tells */
    json_t *missing;             /* of these, what is not there or cannot be backed up as it is configured */
    size_t n_skipped, n_missing; /* before they are recorded */
    json_t *classes;             /* what the storage has answered */
    json_t *answer;
    /* while it is written */
    struct {
        size_t klass, volume; /* where it is in the classes */
        json_t *ops, *ids;    /* of those that are written */
        json_t *seen;         /* volume id -> true */
        char backup[192];
    } at;
};

static void submit_free(struct submit *s)
{
    if (!s)
        return;
    request_args_clear(&s->req);
    json_decref(s->skipped);
    json_decref(s->missing);
    json_decref(s->by_label);
    json_decref(s->classes);
    json_decref(s->answer);
    json_decref(s->at.ops);
    json_decref(s->at.ids);
    json_decref(s->at.seen);
    cfg_free(s->cfg);
    free(s);
}

/* Of the machine, not of the request: a process that could not be made or was killed, storage that did not answer in
 * time, records that cannot be written. */
static bool reason_passes(const struct err *e)
{
    return e->cls == ERR_GENERIC || e->cls == ERR_MEMORY || e->cls == ERR_BUSY || e->cls == ERR_NO_SPACE;
}

/* Who counts runs and watches jobs must not miss one that came to nothing. */
static void start_failed(struct submit *s, const struct err *why)
{
    struct err e = ERR_INIT;
    count_start_failed(&s->engine->d, s->job);
    if (schedule_failed(s->engine->schedule, s->job, s->req.planned_ns, why, reason_passes(why), s->missing, now_ns(),
                        &e) < 0)
        log_warning("job \"%s\": %s", s->job, e.msg);
    jobs_record(s->engine);
}

static void submit_end(struct submit *s, const json_t *answer, const struct err *e)
{
    if (e && e->cls && s->begun && !s->engine->stopping)
        start_failed(s, e);
    if (s->reply)
        s->reply(e && e->cls ? NULL : (json_t *)answer, e && e->cls ? e : NULL, s->arg);
    else if (e && e->cls)
        log_warning("job \"%s\" could not be started: %s%s%s", s->job, e->msg, e->hint[0] ? "; " : "", e->hint);
    submit_free(s);
}

static bool is_pattern(const char *s)
{
    return strpbrk(s, "*?[") != NULL;
}

/* Whether this volume is asked for. */
static bool volume_wanted(const struct submit *s, struct cfg_subject v)
{
    const struct cfg_job *j = s->job[0] ? cfg_job(s->cfg, s->job) : NULL;
    if (j)
        return cfg_job_has(s->cfg, j, v);
    for (unsigned i = 0; i < s->req.volumes.n; i++) {
        const char *text = s->req.volumes.v[i];
        if (!strncmp(text, "class:", 6)) {
            const struct cfg_class *k = cfg_class_of(s->cfg, v);
            if (k && !strcmp(k->name, text + 6))
                return true;
        } else if (cfg_word_matches(text, v)) {
            return true;
        }
    }
    return false;
}

/* ---- what to ask the storage ---- */

/* Adds a name to what its class is asked for; without names the class lists everything. */
static int classes_ask(const struct submit *s, json_t *classes, const struct cfg_class *k, const char *name)
{
    json_t *q = NULL, *have, *names;
    size_t i;
    json_array_foreach(classes, i, have) if (!strcmp(class_seen_of(have).name, k->name)) q = have;
    if (!q) {
        struct cfg_policy p = {.effective = NULL};
        if (name && cfg_policy(s->cfg, cfg_named(name), s->job[0] ? s->job : NULL, &p, NULL) < 0)
            return -ENOMEM;
        q = json_pack("{s:o}", "class", class_doc(s->cfg, k, &p));
        cfg_policy_clear(&p);
        if (name)
            json_object_set_new(q, "names", json_array());
        json_array_append_new(classes, q);
    }
    if (!name)
        json_object_del(q, "names");
    else if ((names = json_object_get(q, "names")))
        json_array_append_new(names, json_string(name));
    return 0;
}
/* Lists what may be selected by labels, to see whether the volume of that name is. */
static int ask_by_label(const struct submit *s, json_t *classes, const char *name)
{
    const struct cfg_class *k;
    for (unsigned i = 0; (k = cfg_class_at(s->cfg, i)); i++)
        if (cfg_matches_labels(s->cfg, k))
            classes_ask(s, classes, k, NULL);
    return json_array_append_new(s->by_label, json_string(name)) < 0 ? -ENOMEM : 0;
}

static int no_class(const char *name, struct err *e)
{
    err_set(e, ERR_USAGE, 0, "no storage class matches %s", name);
    return err_hint(e, "`snapferry explain %s` shows which patterns were tried; classes are in snapferry.ini", name);
}

static int ask_all(const struct submit *s, json_t *classes, const char *text, struct err *e)
{
    const struct cfg_class *k;
    if (!strncmp(text, "class:", 6)) {
        k = cfg_class(s->cfg, text + 6);
        if (!k) {
            err_set(e, ERR_USAGE, 0, "there is no storage class \"%s\"", text + 6);
            return nearest_hint(e, cfg_near_class(s->cfg, text + 6), "`snapferry check-config` lists the classes");
        }
        return classes_ask(s, classes, k, NULL);
    }
    if (!is_pattern(text) && !cfg_is_label(text) && (k = cfg_class_of(s->cfg, cfg_named(text))))
        return classes_ask(s, classes, k, text);
    if (is_pattern(text) || cfg_is_label(text)) {
        for (unsigned i = 0; (k = cfg_class_at(s->cfg, i)); i++)
            classes_ask(s, classes, k, NULL);
        return 0;
    }
    return cfg_matches_labels(s->cfg, NULL) ? ask_by_label(s, classes, text) : no_class(text, e);
}

/* ---- records ---- */

/* What to do about the first thing that is missing. */
static void submit_advise(struct submit *s, const char *hint)
{
    if (!s->advice[0])
        snprintf(s->advice, sizeof s->advice, "%s", hint);
}

static void volume_skip(struct submit *s, const char *name, const char *why)
{
    json_array_append_new(s->skipped, json_pack("{s:s,s:s}", "volume", name, "reason", why));
}

/* Nobody wanted that: the others of the job go on, and this one is named. */
static void volume_lack(struct submit *s, const char *name, const char *why)
{
    volume_skip(s, name, why);
    json_array_append(s->missing, json_array_get(s->skipped, json_array_size(s->skipped) - 1));
}

static int add_operation(struct submit *s, const json_t *volume, const struct cfg_class *k, struct err *e)
{
    CLEANUP(operation_clear) struct operation op;
    struct cfg_policy p = {.effective = NULL};
    struct policy policy;
    const struct volume_seen seen = volume_seen_of(volume);
    const struct cfg_subject v = {seen.name, seen.labels};
    const char *name = seen.name, *id = seen.id;
    const struct cfg *c = s->cfg;
    operation_init(&op);
    int rc = cfg_policy(c, v, s->job[0] ? s->job : NULL, &p, e);
    if (rc == 0)
        rc = cfg_policy_size(c, &p, v, (uint64_t)seen.size, e);
    if (rc < 0) {
        cfg_policy_clear(&p);
        return rc;
    }
    policy_from_cfg(&policy, &p);
    if (s->req.move_data)
        policy.move_data = json_is_true(s->req.move_data);
    if (s->req.full)
        policy.full = true;
    /* A raw device has no snapshot that could be retained, or be all there is. */
    bool raw = driver_is_raw(k->driver);
    if (raw)
        policy.snapshots_to_retain = 0;
    const bool moves = policy.move_data;
    policy_take(&op.policy, policy_make(&policy));
    class_desc_take(&op.own, class_from_cfg(c, k, &p));
    const struct cfg_class *into = p.backup_storage_class[0] ? cfg_class(c, p.backup_storage_class) : NULL;
    if (into && into != k)
        class_desc_take(&op.into, class_from_cfg(c, into, &p));
    if (p.exclude) {
        volume_skip(s, name, p.exclude_reason[0] ? p.exclude_reason : "excluded by the configuration");
        cfg_policy_clear(&p);
        return 0;
    }
    if (p.backup_storage_class[0] && !into)
        rc = err_set(e, ERR_USAGE, 0, "%s: backup-storage-class \"%s\" does not exist", name, p.backup_storage_class);
    else if (moves && !p.mover[0] && !cfg_repository(c, p.repository)) {
        rc = err_set(e, ERR_USAGE, 0, "%s: repository \"%s\" is not in the configuration", name, p.repository);
        err_hint(e, "set repository = in the class, or add [repository \"%s\"]", p.repository);
    } else if (p.mover[0] && (strncmp(p.mover, "plugin:", 7) || !cfg_plugin(c, p.mover + 7)))
        rc = err_set(e, ERR_USAGE, 0, "%s: mover \"%s\" does not exist", name,
                     p.mover); /* AP-25: at once, not by timeout */
    else if (raw && !moves) {
        rc = err_set(e, ERR_USAGE, 0, "%s: driver %s takes no native snapshots, and move-data = no moves nothing", name,
                     k->driver);
        err_hint(e, "set move-data = yes for it, or leave it out");
    }
    cfg_policy_clear(&p);
    if (rc < 0 && s->job[0]) {
        log_warning("job \"%s\": %s", s->job, e->msg);
        volume_lack(s, name, e->msg);
        *e = (struct err)ERR_INIT;
        return 0;
    }
    if (rc < 0)
        return rc;
    str_setf(&op.id, "up-%s.%s", s->at.backup, id);
    str_set(&op.parent, s->at.backup);
    str_set(&op.volume_id, id);
    op.state = OP_QUEUED;
    op.kind = KIND_BACKUP;
    str_set(&op.job, s->job);
    str_set(&op.description, s->req.description);
    op.debug = s->req.debug;
    volume_desc_take(&op.volume, volume_desc_from_json(volume));
    rc = operation_add(s->engine->records, &op, e);
    if (rc < 0)
        return rc;
    json_array_append_new(s->at.ops, json_pack("{s:s,s:s}", "id", op.id, "volume", name));
    json_array_append_new(s->at.ids, json_string(id));
    volume_note(&s->engine->d, op.volume, k->name, NULL, NULL);
    return 0;
}

/* A run of write_records() before may have been undone. */
static void lists_cut(json_t *list, size_t n)
{
    while (json_array_size(list) > n)
        json_array_remove(list, json_array_size(list) - 1);
}

static int add_volume(struct submit *s, const char *klass, const json_t *v, struct err *e)
{
    const struct volume_seen seen = volume_seen_of(v);
    const struct cfg_subject subject = {seen.name, seen.labels};
    const struct cfg_class *own = cfg_class_of(s->cfg, subject);
    const size_t before = json_array_size(s->at.ids);
    if (!own || strcmp(own->name, klass) != 0 || !volume_wanted(s, subject) || json_object_get(s->at.seen, seen.id))
        return 0;
    if (!cfg_class_here(s->cfg, own)) {
        volume_skip(s, seen.name, "its class is for other nodes (only-on-node)");
        return 0;
    }
    const int rc = add_operation(s, v, own, e);
    if (rc >= 0 && json_array_size(s->at.ids) > before)
        json_object_set_new(s->at.seen, seen.id, json_true());
    return rc;
}

/* The next volumes of what the storage has answered. 1: there are more. */
static int add_operations(struct submit *s, struct err *e)
{
    for (unsigned n = 0; s->at.klass < json_array_size(s->classes); s->at.klass++, s->at.volume = 0) {
        const struct class_seen seen = class_seen_of(json_array_get(s->classes, s->at.klass));
        for (; s->at.volume < json_array_size(seen.volumes); s->at.volume++) {
            if (n++ == ENGINE_PART)
                return 1;
            const int rc = add_volume(s, seen.name, json_array_get(seen.volumes, s->at.volume), e);
            if (rc < 0)
                return rc;
        }
    }
    if (json_array_size(s->at.ops) > 0)
        return 0;
    err_set(e, ERR_NOT_FOUND, 0, "there is nothing to back up: %s",
            json_array_size(s->skipped) ? skipped_at(s->skipped, 0).reason : "no volume matches");
    return err_hint(e, "%s", s->advice[0] ? s->advice : "`snapferry volumes` lists what the classes match");
}

static int add_backup(struct submit *s, struct err *e)
{
    struct engine *g = s->engine;
    CLEANUP(backup_clear) struct backup b;
    backup_init(&b);
    str_set(&b.id, s->at.backup);
    b.state = BACKUP_QUEUED;
    b.kind = KIND_BACKUP;
    str_set(&b.job, s->job);
    b.origin = s->req.planned_ns ? ORIGIN_TIMER : ORIGIN_REQUEST;
    b.caught_up = s->req.caught_up;
    b.planned_ns = s->req.planned_ns;
    str_set(&b.description, s->req.description);
    strs_from_json(&b.volume_ids, s->at.ids);
    json_set(&b.skipped, s->skipped);
    return backup_add(g->records, &b, e);
}

/* Anew: a run before may have been undone. */
static void begin_writing(struct submit *s)
{
    struct engine *g = s->engine;
    char stamp[32];
    lists_cut(s->skipped, s->n_skipped);
    lists_cut(s->missing, s->n_missing);
    g->ids.stamp(&g->ids, now_ns(), stamp);
    snprintf(s->at.backup, sizeof s->at.backup, "%.120s-%s", s->job[0] ? s->job : "manual", stamp);
    s->at.klass = s->at.volume = 0;
    json_take(&s->at.ops, json_array());
    json_take(&s->at.ids, json_array());
    json_take(&s->at.seen, json_object());
}

/* One part after the other, in one transaction: all of it is durable, or nothing. */
static int write_records(struct decide *d, void *arg, struct err *e)
{
    struct submit *s = arg;
    if (!request_goes_on(d))
        begin_writing(s);
    int rc = add_operations(s, e);
    if (rc != 0)
        return rc;
    count_backup_begun(d, s->job, false);
    rc = add_backup(s, e);
    /* In the same transaction: a crash can neither lose the run nor have it twice. */
    if (rc == 0 && s->job[0])
        rc = schedule_ran(s->engine->schedule, s->job, s->req.planned_ns, s->at.backup, s->missing, now_ns(), e);
    if (rc < 0)
        return rc;
    const size_t n = json_array_size(s->at.ops);
    plan_crash_point(d, "engine-submitted");
    plan_log(d, LOG_LVL_INFO, "%s: %zu volume%s", s->at.backup, n, n == 1 ? "" : "s");
    json_take(&s->answer,
              json_pack("{s:s,s:O,s:O}", "backup", s->at.backup, "operations", s->at.ops, "skipped", s->skipped));
    return 0;
}

static void records_written(const struct err *e, void *arg)
{
    struct submit *s = arg;
    submit_end(s, s->answer, e);
}

/* Whether a class has listed this volume as one of its own. */
static bool is_listed(const struct submit *s, const json_t *classes, const char *name)
{
    const json_t *a, *v;
    size_t i, k;
    json_array_foreach(classes, i, a)
    {
        const json_t *volumes = class_seen_of(a).volumes;
        json_array_foreach(volumes, k, v)
        {
            const struct volume_seen seen = volume_seen_of(v);
            if (!strcmp(seen.name, name) && cfg_class_of(s->cfg, (struct cfg_subject){name, seen.labels}))
                return true;
        }
    }
    return false;
}

/* Names without a class after all; unknown while one cannot be listed, which is said already. */
static void lack_by_label(struct submit *s, const json_t *classes, struct err *e)
{
    const json_t *name, *a;
    size_t i;
    json_array_foreach(classes, i, a) if (json_object_get(a, "error")) return;
    json_array_foreach(s->by_label, i, name)
    {
        if (is_listed(s, classes, json_string_value(name)))
            continue;
        if (s->job[0])
            volume_lack(s, json_string_value(name), "no storage class matches it");
        else if (!e->cls)
            no_class(json_string_value(name), e);
    }
}

/* Whether volumes in that directory are asked for: by their class, or by a pattern of paths. */
static bool place_wanted(const struct submit *s, const char *klass, const char *dir)
{
    const struct cfg_job *j = s->job[0] ? cfg_job(s->cfg, s->job) : NULL;
    for (unsigned i = 0; j ? j->volumes && j->volumes[i] : i < s->req.volumes.n; i++) {
        const char *text = j ? j->volumes[i] : s->req.volumes.v[i], *last = strrchr(text, '/');
        if (!strncmp(text, "class:", 6)) {
            if (!strcmp(text + 6, klass))
                return true;
            continue;
        }
        CLEANUP_FREE char *dirs = last && text[0] == '/' ? strndup(text, (size_t)(last - text)) : NULL;
        if (dirs && fnmatch(dirs, dir, FNM_PATHNAME) == 0)
            return true;
    }
    return false;
}

/* One of a class that was listed, which is there twice, or a place of it that was passed over: the others go on. */
static void lack_listed(struct submit *s, const char *klass, const struct unseen *bad)
{
    const struct cfg_subject v = {bad->volume, bad->labels};
    const struct cfg_class *own = cfg_class_of(s->cfg, v);
    if (bad->id[0] ? !own || strcmp(own->name, klass) != 0 || !volume_wanted(s, v)
                   : !place_wanted(s, klass, bad->volume))
        return;
    submit_advise(s, bad->hint);
    if (s->job[0])
        volume_lack(s, bad->volume, bad->message);
    else
        volume_skip(s, bad->volume, bad->message);
}

static void volumes_seen(struct step_result *r, void *arg)
{
    struct submit *s = arg;
    struct err e = r->err;
    const json_t *a, *m;
    size_t i, k;
    json_array_foreach(json_object_get(r->out, "classes"), i, a)
    {
        const struct class_seen seen = class_seen_of(a);
        json_array_foreach(seen.missing, k, m)
        {
            const struct unseen bad = unseen_of(m);
            if (seen.all)
                lack_listed(s, seen.name, &bad);
            else if (s->job[0]) {
                submit_advise(s, bad.hint);
                volume_lack(s, bad.volume, bad.message);
            } else if (!e.cls) {
                err_set(&e, bad.class, 0, "%s", bad.message);
                err_hint(&e, "%s", bad.hint);
            }
        }
        if (seen.failed && s->job[0]) {
            submit_advise(s, seen.error.hint);
            volume_lack(s, seen.name, seen.error.message);
        } else if (seen.failed && !e.cls) {
            err_set(&e, seen.error.class, 0, "storage class \"%s\": %s", seen.name,
                    class_message(seen.name, seen.error.message));
            err_hint(&e, "%s", seen.error.hint);
        }
    }
    if (!e.cls)
        lack_by_label(s, json_object_get(r->out, "classes"), &e);
    volumes_listed(s->engine, json_object_get(r->out, "classes"));
    if (e.cls) {
        submit_end(s, NULL, &e);
        return;
    }
    s->classes = json_incref(json_object_get(r->out, "classes"));
    s->n_skipped = json_array_size(s->skipped);
    s->n_missing = json_array_size(s->missing);
    engine_request(s->engine, write_records, records_written, s);
}

void engine_submit_backup(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    struct submit *s = calloc(1, sizeof *s);
    struct err e = ERR_INIT;
    CLEANUP_JSON json_t *classes = json_array();
    if (!s) {
        err_nomem(&e);
        if (reply)
            reply(NULL, &e, arg);
        return;
    }
    *s = (struct submit){.engine = g,
                         .reply = reply,
                         .arg = arg,
                         .cfg = cfg_ref(g->cfg),
                         .skipped = json_array(),
                         .missing = json_array(),
                         .by_label = json_array()};
    snprintf(s->job, sizeof s->job, "%s", req->job);
    if (request_args_copy(&s->req, req) < 0)
        err_nomem(&e);
    else if (g->stopping)
        err_set(&e, ERR_BUSY, 0, "the daemon is stopping and takes no new work");
    else if (s->job[0]) {
        const struct cfg_job *j = cfg_job(s->cfg, s->job);
        if (!j) {
            err_set(&e, ERR_NOT_FOUND, 0, "there is no job \"%s\" in the configuration", s->job);
            nearest_hint(&e, cfg_near_job(s->cfg, s->job), "`snapferry check-config` lists the jobs");
        } else if (!cfg_node_matches(j->only_on_node, cfg_daemon(s->cfg)->node_name))
            err_set(&e, ERR_USAGE, 0, "job \"%s\" is for other nodes (only-on-node)", s->job);
        else if (req->from_timer)
            err_set(&e, ERR_BUSY, 0, "the daemon runs job \"%s\" by itself: a timer of an earlier version does nothing",
                    s->job);
        s->begun = !e.cls || req->planned_ns;
        for (unsigned i = 0; !e.cls && j->volumes && j->volumes[i]; i++)
            ask_all(s, classes, j->volumes[i], &e);
    } else {
        if (!req->volumes.n)
            err_set(&e, ERR_USAGE, 0, "a backup needs volumes or a job");
        for (unsigned i = 0; !e.cls && i < req->volumes.n; i++)
            ask_all(s, classes, req->volumes.v[i], &e);
    }
    CLEANUP_JSON json_t *in = json_pack("{s:O}", "classes", classes);
    if (!e.cls && step_start(g->steps, "look for volumes", step_volumes, in, 120, volumes_seen, s, NULL, &e) == 0)
        return;
    submit_end(s, NULL, &e);
}
