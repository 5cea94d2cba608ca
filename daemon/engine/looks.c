/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * looks.c - volumes are looked for without anybody asking, so that a new one counts before its first backup
 *
 * Each class is looked at by a step of its own: a storage that hangs hides nothing of the others. The records are read
 * and written only where something is new; what a look finds is compared with the facts in memory.
 */
#include "daemon/engine/facts.h"
#include "daemon/engine/engine-impl.h"
#include "daemon/records/driver-kind.h"

#include <string.h>

#define LOOK_MIN_S 30
#define LOOK_MAX_S 600
#define LOOK_SHARE 100 /* a look that takes 1 s is made every 100 s at most */
#define LOOK_TIMEOUT_S 120

struct class_look {
    struct class_look *next;
    struct engine *engine;
    char name[128];
    bool running, looked;
    bool listed;     /* the last list had volumes, and all of them were recorded already */
    int64_t at_ns;   /* when the last one began, 0: is due */
    int64_t took_ns; /* how long it took */
    char why[600];   /* why it could not be listed, "": it could */
    json_t *passed;  /* what its driver passed over: text -> hint; NULL: nothing */
};

static struct class_look *look_of(struct engine *g, const char *name)
{
    for (struct class_look *l = g->looks; l; l = l->next)
        if (!strcmp(l->name, name))
            return l;
    struct class_look *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->engine = g;
    snprintf(l->name, sizeof l->name, "%s", name);
    l->next = g->looks;
    g->looks = l;
    return l;
}

void volumes_free(struct engine *g)
{
    while (g->looks) {
        struct class_look *l = g->looks;
        g->looks = l->next;
        json_decref(l->passed);
        free(l);
    }
}

bool volumes_listed_before(const struct engine *g, const char *klass)
{
    const struct class_look *l = g->looks;
    while (l && strcmp(l->name, klass) != 0)
        l = l->next;
    return l && l->listed;
}

struct by_name {
    const char *name;
    struct records *records;
    const struct volume_row *found;
};
static int match_name(const struct volume_row *v, void *arg)
{
    struct by_name *x = arg;
    if (strcmp(v->volume->name, x->name))
        return 0;
    x->found = volume_row_peek(x->records, v->id);
    return 1;
}

struct cfg_subject recorded_subject(const struct engine *g, const char *name)
{
    static const struct volume_row_filter newest = {.newest_first = true};
    struct by_name x = {name, g->records, NULL};
    volume_row_each(g->records, &newest, match_name, &x, NULL);
    return (struct cfg_subject){name, x.found ? x.found->volume->labels : NULL};
}

/* ---- what a look has found ---- */

struct gone {
    struct engine *engine;
    const json_t *seen; /* volume ids */
    const char *klass;
    json_t *ids;
};
static void look_compare(struct fact *v, void *arg)
{
    struct gone *x = arg;
    const struct cfg_class *k =
        v->name && !v->gone ? cfg_class_of(x->engine->cfg, (struct cfg_subject){v->name, v->labels}) : NULL;
    /* One that belongs to another class now is that one's business. */
    if (k && !strcmp(k->name, x->klass) && !json_object_get(x->seen, v->id))
        json_array_append_new(x->ids, json_string(v->id));
}

/* Of one that never was backed up nothing is worth remembering. */
static int is_gone(struct engine *g, const char *id, struct err *e)
{
    CLEANUP(volume_row_clear) struct volume_row v;
    volume_row_init(&v);
    if (volume_row_read(&g->d, id, &v) < 0)
        return 0;
    plan_log(&g->d, LOG_LVL_INFO, "volume %s is no longer there", v.volume->name);
    v.state = VOL_GONE;
    v.gone_ns = decide_now(&g->d);
    return v.last_status != OUTCOME_NONE ? volume_row_save(g->records, &v, e) : volume_row_delete(g->records, id, e);
}

/* What a volume of an answer is to the class that was listed. */
enum belongs {
    BELONGS_NOT, /* it is that of another class, or of none, and was not of this one */
    BELONGS_HERE,
    BELONGED /* what selected it has been taken from it: its label */
};
static enum belongs belongs(const struct engine *g, const struct volume_seen *v, const char *klass)
{
    const struct cfg_class *c = cfg_class_of(g->cfg, (struct cfg_subject){v->name, v->labels});
    const struct fact *f = c ? NULL : facts_find(g, ROW_VOLUME, v->id);
    if (c)
        return strcmp(c->name, klass) ? BELONGS_NOT : BELONGS_HERE;
    return f && !f->gone && f->klass && !strcmp(f->klass, klass) ? BELONGED : BELONGS_NOT;
}

/* Whether it is known as it is. */
static bool is_known(const struct engine *g, const struct volume_seen *v, const char *klass)
{
    const struct fact *f = facts_find(g, ROW_VOLUME, v->id);
    return f && !f->gone && f->name && !strcmp(f->name, v->name) && f->klass && !strcmp(f->klass, klass) &&
           f->size == v->size && !strcmp(f->labels ? f->labels : "", v->labels);
}

static void volume_appear(struct volume_row *v, const void *now_ns)
{
    v->appeared_ns = *(const int64_t *)now_ns;
}

static void is_there(struct engine *g, const json_t *doc, const char *klass)
{
    const struct volume_seen v = volume_seen_of(doc);
    const struct fact *f = facts_find(g, ROW_VOLUME, v.id);
    const enum belongs b = belongs(g, &v, klass);
    if (b == BELONGS_NOT || is_known(g, &v, klass))
        return;
    if (b == BELONGED)
        plan_log(&g->d, LOG_LVL_WARNING,
                 "volume %s has lost the label by which storage class \"%s\" selected it: it is no longer backed up",
                 v.name, klass);
    else if (!f || f->gone)
        plan_log(&g->d, LOG_LVL_INFO, "volume %s is %s", v.name, f ? "available again" : "new");
    if (f && f->gone) /* its native snapshots as well: they are looked for at once */
        g->orphans_ns = 0;
    CLEANUP(volume_desc_unrefp) const struct volume_desc *desc = volume_desc_from_json(doc);
    const int64_t now = decide_now(&g->d);
    volume_note(&g->d, desc, klass, !f && volumes_listed_before(g, klass) ? volume_appear : NULL, &now);
}

/* Many volumes may have one reason. `before`: what was told before. */
static void pass_over(json_t *list, const json_t *before, const char *text, const char *hint)
{
    if (json_object_get(list, text))
        return;
    if (!json_object_get(before, text))
        log_warning("%s", text);
    json_object_set_new(list, text, json_string(hint[0] ? hint : "it is not backed up"));
}

/* Volumes of a class that are not listed, and whose file system was not seen either. */
struct away {
    struct engine *engine;
    const struct class_seen *seen;
    json_t *ids;   /* that are listed */
    json_t *pools; /* pool -> [names] */
};
static void find_away(struct fact *v, void *arg)
{
    struct away *x = arg;
    if (!v->name || !v->pool || !v->pool[0] || json_object_get(x->seen->places, v->pool) ||
        json_object_get(x->ids, v->id))
        return;
    const struct cfg_class *k = cfg_class_of(x->engine->cfg, (struct cfg_subject){v->name, v->labels});
    if (!k || strcmp(k->name, x->seen->name) != 0)
        return;
    if (!json_object_get(x->pools, v->pool))
        json_object_set_new(x->pools, v->pool, json_array());
    json_array_append_new(json_object_get(x->pools, v->pool), json_string(v->name));
}

/* One that is removed is no problem; one that has disappeared with its file system is: that below the place where it
 * was mounted may have no volumes and be as good as it; with its pool or group: patterns need not name it. If all of
 * the class have, status says so of the class. */
static void tell_away(struct engine *g, const struct class_seen *seen, json_t *passed, const json_t *before)
{
    CLEANUP_JSON json_t *ids = json_object(), *pools = json_object();
    struct away x = {g, seen, ids, pools};
    const json_t *v;
    json_t *names;
    const char *pool;
    size_t i;
    const struct cfg_class *c = cfg_class(g->cfg, seen->name);
    const struct driver_kind *k = driver_kind_of(c ? c->driver : "");
    if (!seen->whole || !json_object_size(seen->places) || !json_array_size(seen->volumes))
        return;
    json_array_foreach(seen->volumes, i, v) json_object_set_new(ids, volume_seen_of(v).id, json_true());
    json_array_foreach(seen->missing, i, v) json_object_set_new(ids, unseen_of(v).id, json_true());
    facts_each(g, ROW_VOLUME, find_away, &x);
    json_object_foreach(pools, pool, names)
    {
        char text[1400], hint[900], back[300];
        const char *first = json_string_value(json_array_get(names, 0));
        const size_t n = json_array_size(names);
        json_array_foreach(names, i, v) if (strcmp(json_string_value(v), first) < 0) first = json_string_value(v);
        snprintf(text, sizeof text, "storage class \"%s\": the %s%s%.255s of %zu volume%s is no longer there: %.800s",
                 seen->name, k->place ? k->place : "file system", k->place ? " " : "", k->place ? pool : "", n,
                 n == 1 ? "" : "s", first);
        snprintf(back, sizeof back, k->place ? "%s" : "mount it (UUID %.64s)", k->place ? k->get_back : pool);
        snprintf(hint, sizeof hint,
                 n == 1 ? "%s; if it was removed: `snapferry forget %.400s`"
                        : "%s; if it was removed: `snapferry forget VOLUME` for each, first %.400s",
                 back, first);
        pass_over(passed, before, text, hint);
    }
}

/* News once, however often it is looked. */
static void note_problems(struct engine *g, const struct class_seen *seen)
{
    const char *klass = seen->name;
    struct class_look *l = look_of(g, klass);
    json_t *passed = json_object();
    const char *why = class_message(klass, seen->error.message);
    const json_t *v;
    size_t i;
    if (!l)
        return;
    if (why[0] && strcmp(l->why, why))
        log_warning("storage class \"%s\" cannot be listed: %s", klass, why);
    snprintf(l->why, sizeof l->why, "%s", why);
    json_array_foreach(seen->passed, i, v) pass_over(passed, l->passed, json_string_value(v), "it is not backed up");
    json_array_foreach(seen->missing, i, v) pass_over(passed, l->passed, unseen_of(v).message, unseen_of(v).hint);
    tell_away(g, seen, passed, l->passed);
    /* A file system may have been mounted: what is on it is looked for at once. */
    if (json_object_size(passed) < json_object_size(l->passed))
        g->orphans_ns = 0;
    json_decref(l->passed);
    l->passed = passed;
}

/* Volumes of an answer that says all of a class, and of those that are recorded the ones that are gone (`gone`). NULL:
 * it does not. */
static const json_t *volumes_of(struct engine *g, const struct class_seen *answer, json_t *gone)
{
    CLEANUP_JSON json_t *seen = json_object();
    const struct cfg_class *c = cfg_class(g->cfg, answer->name);
    struct gone x = {g, seen, answer->name, gone};
    const json_t *v;
    size_t i;
    if (!c || !cfg_class_here(g->cfg, c) || !answer->all || answer->failed)
        return NULL;
    json_array_foreach(answer->volumes, i, v) json_object_set_new(seen, volume_seen_of(v).id, json_true());
    json_array_foreach(answer->missing, i, v) json_object_set_new(seen, unseen_of(v).id, json_true());
    if (answer->whole)
        facts_each(g, ROW_VOLUME, look_compare, &x);
    return answer->volumes;
}

static int write_volumes(struct engine *g, const json_t *classes, struct err *e)
{
    const json_t *a, *v;
    size_t i, k;
    int rc = 0;
    json_array_foreach(classes, i, a)
    {
        CLEANUP_JSON json_t *gone = json_array();
        const struct class_seen seen = class_seen_of(a);
        const json_t *volumes = volumes_of(g, &seen, gone);
        json_array_foreach(volumes, k, v) is_there(g, v, seen.name);
        json_array_foreach(gone, k, v) if (rc >= 0) rc = is_gone(g, json_string_value(v), e);
    }
    return rc;
}

/* Most looks find nothing new: nothing is to be recorded then. */
static bool is_news(struct engine *g, const struct class_seen *answer)
{
    CLEANUP_JSON json_t *gone = json_array();
    const json_t *volumes = volumes_of(g, answer, gone), *v; /* once: the loop evaluates its array at each turn */
    struct class_look *l = volumes ? look_of(g, answer->name) : NULL;
    bool fresh = false;
    size_t i;
    json_array_foreach(volumes, i, v)
    {
        const struct volume_seen seen = volume_seen_of(v);
        fresh |= !is_known(g, &seen, answer->name) && belongs(g, &seen, answer->name) != BELONGS_NOT;
    }
    /* What comes back with a file system that was away is not new. */
    if (l && json_array_size(gone))
        l->listed = false;
    else if (l && !fresh)
        l->listed = json_array_size(volumes) > 0;
    return fresh || json_array_size(gone) > 0;
}

void volumes_listed(struct engine *g, const json_t *classes)
{
    const json_t *a;
    size_t i;
    bool news = false;
    json_array_foreach(classes, i, a)
    {
        const struct class_seen seen = class_seen_of(a);
        const struct cfg_class *c = cfg_class(g->cfg, seen.name);
        if (c && cfg_class_here(g->cfg, c) && (seen.all || seen.failed))
            note_problems(g, &seen);
        news |= is_news(g, &seen);
    }
    if (news)
        engine_record(g, "volumes that were looked for", write_volumes, json_incref((json_t *)(uintptr_t)classes));
}

/* ---- looking ---- */

static bool due(const struct class_look *l, int64_t now)
{
    int64_t period = cfg_daemon(l->engine->cfg)->sweep_s, slow = l->took_ns * LOOK_SHARE / NS_PER_S;
    period = period < LOOK_MIN_S ? LOOK_MIN_S : period;
    period = period < slow ? slow : period;
    period = period > LOOK_MAX_S ? LOOK_MAX_S : period;
    /* The sweep's own clock is not exact: what is due in a second is due. */
    return !l->running && (!l->at_ns || now < l->at_ns || now - l->at_ns >= (period - 1) * NS_PER_S);
}

static void looked(struct step_result *s, void *arg)
{
    struct class_look *l = arg;
    struct engine *g = l->engine;
    l->running = false;
    l->looked = true;
    l->took_ns = now_ns() - l->at_ns;
    if (l->took_ns < 0)
        l->took_ns = 0;
    if (s->err.cls) {
        const struct class_seen failed = {.name = l->name, .failed = true, .error.message = s->err.msg};
        note_problems(g, &failed);
    } else {
        volumes_listed(g, json_object_get(s->out, "classes"));
    }
}

struct aged {
    struct engine *engine;
    int64_t before_ns;
    json_t *ids;
};
static void find_aged(struct fact *v, void *arg)
{
    struct aged *x = arg;
    if (v->gone && v->since_ns && v->since_ns < x->before_ns)
        json_array_append_new(x->ids, json_string(v->id));
}

static int write_forgotten(struct engine *g, const json_t *ids, struct err *e)
{
    const json_t *v;
    size_t i;
    int rc = 0;
    json_array_foreach(ids, i, v) if (rc >= 0 && volume_row_peek(g->records, json_string_value(v))) rc =
        volume_row_delete(g->records, json_string_value(v), e);
    return rc;
}

/* Those that are gone longer than finished operations are remembered, unless a native snapshot of theirs is left. */
static void forget_aged(struct engine *g)
{
    CLEANUP_JSON json_t *ids = json_array(), *forget = json_array();
    struct aged x = {g, now_ns() - cfg_daemon(g->cfg)->keep_records_s * NS_PER_S, ids};
    json_t *v;
    size_t i;
    facts_each(g, ROW_VOLUME, find_aged, &x);
    json_array_foreach(ids, i, v)
    {
        const struct native_row_filter f = {.volume_id = json_string_value(v)};
        uint64_t natives = 1;
        if (native_row_count(g->records, &f, &natives, NULL) == 0 && !natives)
            json_array_append(forget, v);
    }
    if (json_array_size(forget))
        engine_record(g, "volumes that are long gone", write_forgotten, json_incref(forget));
}

void sweep_volumes(struct engine *g)
{
    const struct cfg_class *k;
    int64_t now = now_ns();
    forget_aged(g);
    for (unsigned i = 0; (k = cfg_class_at(g->cfg, i)); i++) {
        struct class_look *l = look_of(g, k->name);
        struct cfg_policy p = {.effective = NULL};
        struct err e = ERR_INIT;
        char name[200];
        if (!l || !driver_by_name(k->driver) || !cfg_class_here(g->cfg, k) || !due(l, now))
            continue;
        CLEANUP_JSON json_t *in = json_pack("{s:[{s:o}]}", "classes", "class", class_doc(g->cfg, k, &p));
        snprintf(name, sizeof name, "look for volumes of class %.100s", k->name);
        if (step_start(g->steps, name, step_volumes, in, LOOK_TIMEOUT_S, looked, l, NULL, &e) < 0) {
            log_warning("%s", e.msg);
            continue;
        }
        l->running = true;
        l->at_ns = now;
    }
}

void volumes_look_again(struct engine *g)
{
    for (struct class_look *l = g->looks; l; l = l->next) {
        l->at_ns = 0;
        l->looked = l->listed = false;
    }
    sweep_volumes(g);
}

/* NULL: this class is for other nodes, or this build has its driver. */
static const char *driver_missing(const struct engine *g, const struct cfg_class *k)
{
    return cfg_class_here(g->cfg, k) && k->driver[0] && !driver_by_name(k->driver) ? k->driver : NULL;
}

bool volumes_looked(const struct engine *g)
{
    const struct cfg_class *k;
    for (unsigned i = 0; (k = cfg_class_at(g->cfg, i)); i++) {
        const struct class_look *l = g->looks;
        if (!cfg_class_here(g->cfg, k) || driver_missing(g, k))
            continue;
        while (l && strcmp(l->name, k->name) != 0)
            l = l->next;
        if (!l || !l->looked)
            return false;
    }
    return true;
}

static void problems_of_drivers(const struct engine *g, volumes_problem_fn *fn, void *arg)
{
    const struct cfg_class *k;
    char text[400];
    for (unsigned i = 0; (k = cfg_class_at(g->cfg, i)); i++) {
        if (!driver_missing(g, k))
            continue;
        snprintf(text, sizeof text, "storage class \"%s\" cannot be used: this build has no driver %s", k->name,
                 k->driver);
        fn("error", text, "its volumes are neither found nor backed up; use another driver, or remove the class", arg);
    }
}

void volumes_problems(struct engine *g, volumes_problem_fn *fn, void *arg)
{
    char text[1400];
    const char *key;
    json_t *v;
    problems_of_drivers(g, fn, arg);
    for (struct class_look *l = g->looks; l; l = l->next) {
        const struct cfg_class *k = cfg_class(g->cfg, l->name);
        if (!k || !cfg_class_here(g->cfg, k))
            continue;
        if (l->why[0]) {
            snprintf(text, sizeof text, "storage class \"%s\" cannot be listed: %s", l->name, l->why);
            fn("warning", text, "its volumes are shown as they were last seen", arg);
        }
        json_object_foreach(l->passed, key, v) fn("warning", key, json_string_value(v), arg);
    }
}
