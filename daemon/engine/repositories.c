/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * repositories.c - whether repositories can be used, found out without anybody asking
 *
 * A step looks at the storage: the directory, its format blob, the password file; for a bucket at the files of its keys
 * and certificates. Whenever one of these is another one than before (at the start, after a reload, after a change on
 * the storage) a mover of kind "look" opens the format with the password and answers the unique id of the repository. A
 * wrong password and another repository at the same place (CF-31) are then known before the first backup of the night
 * fails. Only movers speak to a storage service: a bucket is opened every few minutes although nothing has changed, and
 * more often while it cannot be used.
 */
#include "base/time.h"
#include "daemon/engine/engine-impl.h"
#include "daemon/protocol/mover-wire.h"
#include "daemon/records/opaque.h"

#include <stdlib.h>
#include <string.h>

#define CHECK_S 30             /* between looks at the storage of one that is available */
#define CHECK_DOWN_S 10        /* likewise, of one that is not: who has mended it is not to wait */
#define CHECK_ASKED_S 1        /* likewise, when somebody has just asked for something */
#define OPEN_S 3600            /* between openings of one that has not changed */
#define OPEN_REMOTE_S 300      /* likewise, of a bucket: three requests */
#define OPEN_REFUSED_S 20      /* likewise, while it cannot be used */
#define REPOSITORY_ID_TEXT 129 /* a unique id in hexadecimal */
#define TRIES 3                /* openings in a row that tell nothing of the repository: then that is its problem */
#define LOOK_PREFIX "look-"

/* Its Unix time in seconds; labels repository and id (hexadecimal). Part of the records: exported as a metric, too. */
#define RECORDED "repository_recorded_timestamp_seconds"

struct repository_look {
    struct repository_look *next;
    struct engine *engine;
    struct repo_health *health;
    char id[REPOSITORY_ID_TEXT]; /* as recorded; "": not yet */
    int64_t recorded_ns;
    char stamp[256];   /* of the files, as last seen; "": they could not be seen */
    char opened[256];  /* stamp when it was last opened or refused */
    char opening[256]; /* stamp when the mover that runs was started */
    char mover[192];   /* its name; "": none runs */
    int64_t opened_ns; /* boot_ns() */
    int64_t began_ns;  /* the look that runs, or ran last; likewise */
    unsigned tries;
    struct err refused; /* why it cannot be opened; ERR_NONE: it can */
};

/* ---- the recorded id ---- */

struct recorded {
    const char *name;
    char *id; /* REPOSITORY_ID_TEXT */
    double at;
};
static int see_recorded(const char *name, const json_t *labels, double at, void *arg)
{
    struct recorded *x = arg;
    if (strcmp(name, RECORDED) != 0 || strcmp(counter_label(labels, "repository"), x->name) != 0 || at < x->at)
        return 0;
    x->at = at;
    snprintf(x->id, REPOSITORY_ID_TEXT, "%s", counter_label(labels, "id"));
    return 0;
}

static void read_id(struct repository_look *l)
{
    struct recorded x = {l->health->name, l->id, 0};
    l->id[0] = '\0';
    records_counters(l->engine->records, see_recorded, &x, NULL);
    l->recorded_ns = (int64_t)(x.at * 1e9);
}

static void record_id(struct repository_look *l, const char *id)
{
    struct engine *g = l->engine;
    CLEANUP_JSON json_t *old = json_pack("{s:s,s:s}", "repository", l->health->name, "id", l->id);
    CLEANUP_JSON json_t *labels = json_pack("{s:s,s:s}", "repository", l->health->name, "id", id);
    struct err e = ERR_INIT;
    if (records_counter_set(g->records, RECORDED, labels, (double)now_ns() / 1e9, &e) < 0) {
        log_warning("repository \"%s\": its unique id cannot be recorded: %s", l->health->name, e.msg);
        return;
    }
    if (l->id[0] && records_counter_remove(g->records, RECORDED, old, &e) < 0)
        log_warning("repository \"%s\": the id recorded before stays in the records: %s", l->health->name, e.msg);
    log_info("repository \"%s\" is recorded by its unique id %s", l->health->name, id);
    snprintf(l->id, sizeof l->id, "%s", id);
    l->recorded_ns = now_ns();
}

/* ---- state ---- */

static struct repository_look *look_of(struct engine *g, const char *name)
{
    for (struct repository_look *l = g->repository_looks; l; l = l->next)
        if (!strcmp(l->health->name, name))
            return l;
    struct repo_health *h = repository_health(&g->d, name);
    struct repository_look *l = h ? calloc(1, sizeof *l) : NULL;
    if (!l)
        return NULL;
    l->engine = g;
    l->health = h;
    l->next = g->repository_looks;
    read_id(l);
    g->repository_looks = l;
    return l;
}

const char *repository_id(struct engine *g, const char *name)
{
    const struct repository_look *l = look_of(g, name);
    return l ? l->id : "";
}

int64_t repository_recorded_ns(struct engine *g, const char *name)
{
    const struct repository_look *l = look_of(g, name);
    return l && l->id[0] ? l->recorded_ns : 0;
}

static bool is_remote(const struct cfg_repository *r)
{
    return !strcmp(r->type, "s3");
}

json_t *place_job(const struct cfg_repository *r)
{
    return is_remote(r)
               ? json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:b,s:i,s:I}", "name", r->name, "type", r->type, "endpoint",
                           r->endpoint, "bucket", r->bucket, "prefix", r->prefix, "region", r->region, "virtual_host",
                           (int)r->virtual_host, "parallel_puts", (int)r->parallel_puts, "at_ns", (json_int_t)r->at_ns)
               : json_pack("{s:s,s:s,s:s}", "name", r->name, "type", r->type, "path", r->path);
}

json_t *repository_job(struct engine *g, const char *name)
{
    const struct cfg_repository *r = cfg_repository(g->cfg, name);
    json_t *job = r ? place_job(r) : NULL;
    const char *id = repository_id(g, name);
    if (job && id[0])
        jset_str(job, "unique_id", id); /* another repository at that place is refused (CF-31) */
    return job;
}

void place_job_authorities(json_t *job, const char *member, const struct repository_secrets *s)
{
    if (s->authorities)
        jset_str(json_object_get(job, member), "ca", s->authorities);
}

void repositories_free(struct engine *g)
{
    while (g->repository_looks) {
        struct repository_look *l = g->repository_looks;
        g->repository_looks = l->next;
        free(l);
    }
}

void repositories_clock_set(struct engine *g, int64_t by_ns)
{
    for (struct repository_look *l = g->repository_looks; l; l = l->next) {
        l->health->since_ns += l->health->since_ns ? by_ns : 0;
        l->health->checked_ns += l->health->checked_ns ? by_ns : 0;
        l->health->seen_ns += l->health->seen_ns ? by_ns : 0;
    }
}

/* `why` NULL: it can be used. */
static void set_state(struct repository_look *l, const char *why, const char *hint, enum err_class cls)
{
    struct repo_health *h = l->health;
    struct engine *g = l->engine;
    const bool up = !why, changed = !h->known || up != h->up;
    if (why && strcmp(why, h->why) != 0)
        log_warning("repository \"%s\": %s", h->name, why);
    else if (changed && h->known && up)
        log_info("repository \"%s\" is available again", h->name);
    if (changed)
        h->since_ns = now_ns();
    h->known = true;
    h->up = up;
    snprintf(h->why, sizeof h->why, "%s", why ? why : "");
    snprintf(h->hint, sizeof h->hint, "%s", why ? hint : "");
    h->cls = why ? cls : ERR_NONE;
    if (changed)
        engine_look_at_all(g);
    queue_mark_down(&g->d);
    engine_kick(g);
}

static void set_verdict(struct repository_look *l)
{
    set_state(l, l->refused.cls ? l->refused.msg : NULL, l->refused.hint, l->refused.cls);
}

/* Who has asked how they are may wait for it (status-asked.c). */
static void tell_asked(struct engine *g)
{
    if (g->status_asked)
        sd_event_source_set_time_relative(g->status_due, 0);
}

/* ---- opening ---- */

static int start_mover(struct repository_look *l, const struct cfg_repository *r, struct err *e)
{
    struct engine *g = l->engine;
    struct cfg_policy p = {.effective = NULL};
    struct policy policy;
    CLEANUP(repository_secrets_clear) struct repository_secrets secrets;
    int rc = repository_secrets(g->cfg, r->name, &secrets, e);
    if (rc == 0)
        rc = cfg_policy(g->cfg, cfg_named(""), NULL, &p, e);
    if (rc == 0) {
        snprintf(l->mover, sizeof l->mover, LOOK_PREFIX "%.127s", r->name);
        for (char *c = l->mover; *c; c++)
            if ((unsigned char)*c < 0x21 || *c == 0x7f)
                *c = '_';
        policy_from_cfg(&policy, &p);
        cfg_policy_clear(&p);
        CLEANUP(policy_unrefp) const struct policy *limits = policy_make(&policy);
        CLEANUP_JSON json_t *job = json_pack("{s:i,s:s,s:s,s:s,s:o?,s:s}", "protocol", MOVER_PROTOCOL, "operation",
                                             l->mover, "kind", MOVER_KIND_LOOK, "node", cfg_daemon(g->cfg)->node_name,
                                             "repository", repository_job(g, r->name), "cache_dir", g->paths.cache_dir);
        limits_job(job, limits);
        place_job_authorities(job, "repository", &secrets);
        const struct mover_spec s = {.operation = l->mover,
                                     .times = {.go_timeout_s = 60, .cancel_grace_s = 5, .max_duration_s = 120},
                                     .kind = MOVER_KIND_LOOK,
                                     .job = job,
                                     .device_fd = -1,
                                     .password = secrets.password,
                                     .credentials = secrets.credentials,
                                     .limits = &limits->limits};
        rc = job ? movers_start(g->movers, &s, e) : err_nomem(e);
    }
    if (rc < 0)
        l->mover[0] = '\0';
    return rc;
}

/* It told nothing of the repository: another try with the next look, and after some that is the problem. */
static void no_verdict(struct repository_look *l, const struct err *e)
{
    if (++l->tries >= TRIES) {
        l->refused = *e;
        l->opened_ns = boot_ns();
        set_verdict(l);
    } else if (!l->health->known) {
        set_state(l, NULL, NULL, ERR_NONE);
    }
}

static void open_repository(struct repository_look *l, const struct cfg_repository *r)
{
    struct err e = ERR_INIT;
    if (l->mover[0])
        return;
    snprintf(l->opening, sizeof l->opening, "%s", l->stamp);
    /* Where the records cannot be written no mover can be started: that is no fault of the repository's. */
    if (start_mover(l, r, &e) < 0 && !records_degraded(l->engine->records))
        no_verdict(l, &e);
}

static void refuse_other(struct repository_look *l, const char *id)
{
    const struct cfg_repository *r = cfg_repository(l->engine->cfg, l->health->name);
    char place[CFG_PLACE_MAX] = "";
    err_set(&l->refused, ERR_NO_REPO, 0,
            "another repository is at %s: its unique id is %.16s..., the recorded one is %.16s...",
            r ? cfg_repository_place(r, place) : "", id, l->id);
    err_hint(&l->refused, "%s? If it was replaced on purpose: `snapferry scan %s --replaced`",
             r && is_remote(r) ? "are endpoint, bucket and prefix right" : "is the right file system mounted",
             l->health->name);
}

/* Whether its end tells something of the repository. That a service does not answer tells that it cannot be used. */
static bool is_verdict(const struct repository_look *l, const struct mover_end *end)
{
    const struct cfg_repository *r = cfg_repository(l->engine->cfg, l->health->name);
    return end->outcome == MOVER_OK || end->outcome == MOVER_FAILED ||
           (end->outcome == MOVER_TRANSIENT && r && is_remote(r) &&
            (end->err.cls == ERR_NO_REPO || end->err.cls == ERR_PERMISSION || end->err.cls == ERR_CLOCK));
}

static void look_ended(struct repository_look *l, const struct mover_end *end)
{
    const char *id = mover_result_repository(end->result);
    l->mover[0] = '\0';
    if (!is_verdict(l, end)) {
        no_verdict(l, &end->err);
        return;
    }
    l->tries = 0;
    l->opened_ns = boot_ns();
    memcpy(l->opened, l->opening, sizeof l->opened);
    l->refused = end->err;
    if (end->outcome == MOVER_OK && id[0] && l->id[0] && strcmp(id, l->id) != 0)
        refuse_other(l, id);
    else if (end->outcome == MOVER_OK && id[0] && !l->id[0])
        record_id(l, id);
    if (!l->stamp[0])
        return;
    l->health->seen_ns = now_ns();
    set_verdict(l);
}

static struct repository_look *look_of_mover(struct engine *g, const char *operation)
{
    if (strncmp(operation, LOOK_PREFIX, strlen(LOOK_PREFIX)) != 0)
        return NULL;
    for (struct repository_look *l = g->repository_looks; l; l = l->next)
        if (!strcmp(l->mover, operation))
            return l;
    return NULL;
}

bool repository_mover_ready(struct engine *g, const char *operation)
{
    struct err e = ERR_INIT;
    if (!look_of_mover(g, operation))
        return false;
    if (movers_go(g->movers, operation, &e) < 0)
        log_debug("%s", e.msg);
    return true;
}

bool repository_mover_ended(struct engine *g, const char *operation, const struct mover_end *end)
{
    struct repository_look *l = look_of_mover(g, operation);
    if (!l)
        return false;
    movers_forget(g->movers, operation, NULL, NULL, NULL);
    look_ended(l, end);
    tell_asked(g);
    return true;
}

/* ---- looking ---- */

static void repository_seen(struct step_result *s, void *arg)
{
    struct repository_look *l = arg;
    struct repo_health *h = l->health;
    const struct cfg_repository *r = cfg_repository(l->engine->cfg, h->name);
    const bool up = !s->err.cls;
    const int64_t period_s = !r || !is_remote(r) ? OPEN_S : l->refused.cls ? OPEN_REFUSED_S : OPEN_REMOTE_S;
    char why[sizeof h->why];
    h->checking = false;
    h->checked_ns = now_ns();
    const struct repository_found seen = repository_found_of(s->out);
    h->free_bytes = up && s->out ? seen.free : -1;
    h->size_bytes = up && s->out ? seen.total : -1;
    h->exposed = up && s->out && seen.exposed;
    h->read_only = up && s->out && seen.read_only;
    snprintf(l->stamp, sizeof l->stamp, "%s", up ? seen.stamp : "");
    if (!up) {
        snprintf(why, sizeof why, "%s%.480s", s->timed_out ? "no response: " : "", s->err.msg);
        if (s->err.cls == ERR_NO_REPO && !l->id[0]) /* it was never seen */
            err_hint(&s->err, "mount its file system, or make a new one: `snapferry -r %s repo create`", h->name);
        else if (s->err.cls == ERR_NO_REPO)
            err_hint(&s->err, "mount its file system, or bring it back");
        h->seen_ns = now_ns();
        set_state(l, why, s->err.hint, s->err.cls);
    } else if (r && (strcmp(l->stamp, l->opened) != 0 || boot_ns() - l->opened_ns > period_s * NS_PER_S)) {
        open_repository(l, r);
    } else {
        h->seen_ns = r && is_remote(r) ? h->seen_ns : now_ns();
        set_verdict(l);
    }
    tell_asked(l->engine);
}

static void look_at(struct repository_look *l, const struct cfg_repository *r)
{
    struct err e = ERR_INIT;
    char name[200];
    CLEANUP_JSON json_t *in =
        json_pack("{s:s,s:s,s:s,s:s,s:b}", "path", r->path, "credentials", is_remote(r) ? r->credentials : "",
                  "ca_file", r->ca_file, "password_file", r->password_file, "insecure", (int)r->insecure_password_file);
    snprintf(name, sizeof name, "look at repository %s", r->name);
    l->health->checking = true;
    l->began_ns = boot_ns();
    if (step_start(l->engine->steps, name, step_repository, in, 20, repository_seen, l, NULL, &e) < 0) {
        l->health->checking = false;
        log_warning("%s", e.msg);
    }
}

/* Nanoseconds until one that is known is to be looked at again, when that is so long after the last look. */
static int64_t look_due(const struct repo_health *h, int64_t period_s)
{
    const int64_t since = now_ns() - h->checked_ns;
    return since < 0 || since >= period_s * NS_PER_S ? 0 : period_s * NS_PER_S - since;
}

void repositories_refresh(struct engine *g, bool force)
{
    const struct cfg_repository *r;
    for (unsigned i = 0; (r = cfg_repository_at(g->cfg, i)); i++) {
        struct repository_look *l = look_of(g, r->name);
        const struct repo_health *h = l ? l->health : NULL;
        if (h && !h->checking && (force || !h->known || !h->up || !look_due(h, CHECK_S)))
            look_at(l, r);
    }
}

/* One that cannot be used, and of which nobody finds out just now whether it can again. */
static bool is_down(const struct repo_health *h)
{
    return h && h->known && !h->up && !h->checking;
}

void repositories_look_again(struct engine *g, bool asked)
{
    const struct cfg_repository *r;
    for (unsigned i = 0; (r = cfg_repository_at(g->cfg, i)); i++) {
        struct repository_look *l = look_of(g, r->name);
        if (l && is_down(l->health) && !look_due(l->health, asked ? CHECK_ASKED_S : CHECK_DOWN_S))
            look_at(l, r);
    }
}

void repositories_look_since(struct engine *g, int64_t since_ns)
{
    const struct cfg_repository *r;
    for (unsigned i = 0; (r = cfg_repository_at(g->cfg, i)); i++) {
        struct repository_look *l = look_of(g, r->name);
        if (l && !l->health->checking && l->began_ns < since_ns)
            look_at(l, r);
    }
}

bool repositories_seen_since(const struct engine *g, int64_t since_ns, int64_t hangs_ns)
{
    for (const struct repository_look *l = g->repository_looks; l; l = l->next) {
        const bool runs = l->health->checking || l->mover[0];
        if (cfg_repository(g->cfg, l->health->name) && (runs || l->began_ns < since_ns) &&
            !(runs && boot_ns() - l->began_ns >= hangs_ns))
            return false;
    }
    return true;
}

int64_t repositories_due_ns(const struct engine *g)
{
    int64_t next = INT64_MAX;
    for (const struct repository_look *l = g->repository_looks; l; l = l->next)
        if (is_down(l->health) && cfg_repository(g->cfg, l->health->name) && look_due(l->health, CHECK_DOWN_S) < next)
            next = look_due(l->health, CHECK_DOWN_S);
    return next;
}

int repository_mover_credentials(struct engine *g, const char *operation, bool copy, char **ret, struct err *e)
{
    const struct repository_look *l = look_of_mover(g, operation);
    const struct operation *op = l ? NULL : operation_peek(g->records, operation);
    if (!l && !op)
        return err_set(e, ERR_NOT_FOUND, 0, "there is no operation %s", operation);
    const char *name = l ? l->health->name : copy ? op->target_name : op->policy->repository;
    const struct cfg_copy *k = copy ? cfg_copy(g->cfg, name) : NULL;
    const struct cfg_repository *place = k ? &k->place : copy ? NULL : cfg_repository(g->cfg, name);
    if (!place)
        return err_set(e, ERR_USAGE, 0, "%s \"%s\" is no longer in the configuration", copy ? "copy" : "repository",
                       name);
    return place_credentials(place, ret, e);
}

void repositories_reopen(struct engine *g, const char *name)
{
    for (struct repository_look *l = g->repository_looks; l; l = l->next)
        if (!name || !strcmp(l->health->name, name))
            l->opened[0] = '\0';
    repositories_refresh(g, true);
}

int repository_forget_id(struct engine *g, const char *name, struct err *e)
{
    const struct repository_look *l = look_of(g, name);
    CLEANUP_JSON json_t *old = l ? json_pack("{s:s,s:s}", "repository", name, "id", l->id) : NULL;
    return l && l->id[0] ? records_counter_remove(g->records, RECORDED, old, e) : 0;
}

void repository_replaced(struct engine *g, const char *name)
{
    struct repository_look *l = look_of(g, name);
    if (!l || !l->id[0])
        return;
    log_warning("repository \"%s\": the recorded unique id %s is no longer expected, as requested", name, l->id);
    l->id[0] = '\0';
    repositories_reopen(g, name);
}
