/* SPDX-License-Identifier: GPL-2.0-or-later */
/* check-classes.c - storage classes against the abilities of their drivers on this machine */
#include "daemon/check/classes.h"

#include "base/units.h"
#include "base/cleanup.h"
#include "base/nearest.h"
#include "io/native/driver.h"

#include <errno.h>
#include <string.h>

#define VOLUMES_MAX 20000 /* of one class that are listed */

/* A class as its driver sees it, with the policy that has the options. */
struct view {
    const struct cfg_class *cfg;
    const struct driver *driver; /* NULL: this build has none */
    struct driver_class c;
    struct cfg_policy policy;
    unsigned abilities;
    bool asked, able; /* abilities are known */
    int max_retain;   /* native snapshots that its storage can hold, -1: not said */
    unsigned n_volumes;
    struct volume *first; /* any volume of the class: for the pool */
    bool silent;          /* its volumes could not be listed */
    /* Volumes that an earlier class has, and the first of them. */
    unsigned n_shadowed;
    char *shadowed;
    const struct cfg_class *by;
};

static json_t *options_object(const struct cfg_policy *p)
{
    json_t *o = json_object();
    for (const struct cfg_kv *kv = p->options; kv && kv->key; kv++)
        json_object_set_new(o, kv->key, json_string(kv->value));
    return o;
}

static int view_open(const struct cfg *c, const struct cfg_class *k, struct view *ret, struct err *e)
{
    *ret = (struct view){.cfg = k, .driver = driver_by_name(k->driver)};
    int rc = cfg_policy_of_class(c, k->name, &ret->policy, e);
    if (rc < 0)
        return rc;
    const struct cfg_plugin *g = k->plugin[0] ? cfg_plugin(c, k->plugin) : NULL;
    ret->c = (struct driver_class){
        .name = k->name,
        .driver = k->driver,
        .match = k->match,
        .target = k->target,
        .node = cfg_daemon(c)->node_name,
        .plugin = g ? g->program : NULL,
        .plugin_user = g && g->user[0] ? g->user : NULL,
        .accept_inconsistent = ret->policy.accept_inconsistent,
        .point_in_time = ret->policy.point_in_time,
        .cow_percent = ret->policy.cow_percent,
        .overlay_hook = ret->policy.hook_overlay[0] ? ret->policy.hook_overlay : NULL,
        .options = options_object(&ret->policy),
    };
    return 0;
}

static void view_close(struct view *v)
{
    json_decref(v->c.options);
    cfg_policy_clear(&v->policy);
    free(v->first);
    free(v->shadowed);
}

static void views_free(struct view *views, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        view_close(&views[i]);
    free(views);
}

/* ---- is there such a driver ---- */

static const char *driver_name_at(unsigned i, void *arg)
{
    (void)arg;
    return driver_at(i) ? driver_at(i)->name : NULL;
}

static void check_driver(struct cfg *c, const struct view *v)
{
    char where[CFG_ORIGIN_MAX];
    const char *name = v->cfg->driver;
    if (v->driver || !name[0])
        return;
    cfg_where(c, "storage-class", v->cfg->name, "driver", where);
    const char *near = nearest_meant(name, driver_name_at, NULL);
    cfg_complain(c, CFG_ERROR, where, near ? NULL : "snapferry.ini(5) lists the drivers",
                 "[storage-class \"%s\"]: unknown driver %s%s%s", v->cfg->name, name,
                 near ? "; the nearest known is " : "", near ? near : "");
}

/* ---- what can it do here ---- */

/* Puts a driver's own message into a complaint. */
static void complain_err(struct cfg *c, enum cfg_severity s, const char *where, const struct err *why)
{
    cfg_complain(c, s, where, why->hint, "%s", why->msg);
}

static void abilities_read(struct cfg *c, struct view *v)
{
    struct err why = ERR_INIT;
    char where[CFG_ORIGIN_MAX];
    v->asked = true;
    v->max_retain = -1;
    if (v->driver->abilities(&v->c, &v->abilities, &why) >= 0 &&
        (!v->driver->max_retain || v->driver->max_retain(&v->c, &v->max_retain, &why) >= 0)) {
        v->able = true;
        return;
    }
    cfg_where(c, "storage-class", v->cfg->name, NULL, where);
    /* A class that cannot work as configured, or storage that is currently unavailable. */
    complain_err(c, why.cls == ERR_USAGE ? CFG_ERROR : CFG_WARNING, where, &why);
}

struct gathering {
    struct cfg *cfg;
    struct view *view;
    const struct view **busy; /* of each job: the class, looked at last, of which it names a volume; NULL: none */
    char told[sizeof((struct err *)0)->msg]; /* what was said of a volume last: others have the same reason */
    bool nomem;
};

static void where_of(const struct cfg *c, const struct cfg_policy *p, const char *key, const char *klass,
                     char out[CFG_ORIGIN_MAX])
{
    const char *where = cfg_policy_where(p, key);
    if (where)
        snprintf(out, CFG_ORIGIN_MAX, "%s", where);
    else
        cfg_where(c, "storage-class", klass, NULL, out);
}

#define ANY_SCOPE (-1)

/* Options are for the driver, or for a plugin that moves the data. The first one that nobody obeys is reported;
 * with a scope, of those that such a section has. */
static void check_options(struct cfg *c, const struct view *own, const struct cfg_policy *p, int scope)
{
    char where[CFG_ORIGIN_MAX], key[200] = "";
    struct driver_class k = own->c;
    const struct cfg_kv *kv = p->mover[0] || p->exclude ? NULL : p->options;
    k.overlay_hook = p->hook_overlay[0] ? p->hook_overlay : NULL;
    for (; kv && kv->key; kv++) {
        snprintf(key, sizeof key, "backup-option.%.180s", kv->key);
        if ((scope == ANY_SCOPE || (int)cfg_policy_scope(p, key) == scope) &&
            !(own->driver->takes_option && own->driver->takes_option(&k, kv->key)))
            break;
    }
    if (!kv || !kv->key)
        return;
    where_of(c, p, key, own->cfg->name, where);
    cfg_complain(c, CFG_ERROR, where, "options are passed to plugins and to hook-overlay",
                 "[storage-class \"%s\"]: %s has no effect with driver %s", own->cfg->name, key, own->cfg->driver);
}

static void check_job_options(struct gathering *g, struct cfg_subject s, const struct cfg_job *j)
{
    struct cfg_policy p = {.effective = NULL};
    if (cfg_policy(g->cfg, s, j->name, &p, NULL) == 0)
        check_options(g->cfg, g->view, &p, SCOPE_JOB);
    cfg_policy_clear(&p);
}

/* Its [volume] section says which class it belongs to. */
static bool section_names_class(const struct cfg *c, const char *name)
{
    const struct cfg_volume *s;
    for (unsigned i = 0; (s = cfg_volume_at(c, i)); i++)
        if (!strcmp(s->name, name))
            return s->klass[0] != '\0';
    return false;
}

static void tell_doubt(struct gathering *g, const struct err *doubt)
{
    char where[CFG_ORIGIN_MAX];
    const char *klass = g->view->cfg->name;
    if (!strcmp(g->told, doubt->msg))
        return;
    snprintf(g->told, sizeof g->told, "%s", doubt->msg);
    cfg_where(g->cfg, "storage-class", klass, "match", where);
    cfg_complain(g->cfg, CFG_WARNING, where, doubt->hint, "[storage-class \"%s\"]: %s", klass, doubt->msg);
}

static int on_volume(const struct volume *v, void *arg)
{
    struct gathering *g = arg;
    if (v->doubt)
        tell_doubt(g, v->doubt);
    if (!v->id[0]) /* a place that is passed over */
        return 0;
    const struct cfg_subject s = {v->name, v->labels};
    const struct cfg_class *of = cfg_class_of(g->cfg, s);
    const struct cfg_job *j;
    if (!of) /* none of its labels is asked for */
        return 0;
    if (of != g->view->cfg) { /* belongs to an earlier class or a [volume] */
        if (!section_names_class(g->cfg, v->name) && cfg_class_selects(g->view->cfg, s) && !g->view->n_shadowed++) {
            g->view->shadowed = strdup(v->name);
            g->view->by = of;
        }
        return 0;
    }
    for (unsigned i = 0; !cfg_excluded(g->cfg, of, s, v->size) && (j = cfg_job_at(g->cfg, i)); i++)
        if (cfg_job_names(j, of, s)) {
            if (g->busy[i] != g->view)
                check_job_options(g, s, j);
            g->busy[i] = g->view;
        }
    if (!g->view->first) {
        g->view->first = malloc(sizeof *v);
        if (!g->view->first) {
            g->nomem = true;
            return -ENOMEM;
        }
        *g->view->first = *v;
        g->view->first->doubt = NULL;
    }
    cfg_check_volume(g->cfg, s);
    return ++g->view->n_volumes < VOLUMES_MAX ? 0 : -E2BIG;
}

static void check_shadowed(struct cfg *c, const struct view *v)
{
    char where[CFG_ORIGIN_MAX];
    const struct cfg_class *of = v->shadowed ? v->by : NULL;
    if (!of)
        return;
    cfg_where(c, "storage-class", v->cfg->name, "match", where);
    cfg_complain(c, CFG_WARNING, where, "the first class in the configuration counts",
                 "[storage-class \"%s\"]: %u volume%s that it matches belong%s to storage class \"%s\", which comes "
                 "first: %s",
                 v->cfg->name, v->n_shadowed, v->n_shadowed == 1 ? "" : "s", v->n_shadowed == 1 ? "s" : "", of->name,
                 v->shadowed);
}

static int volumes_check(struct cfg *c, struct view *v, const struct view **busy, struct err *e)
{
    if (!v->cfg->match || !*v->cfg->match)
        return 0;
    struct gathering g = {.cfg = c, .view = v, .busy = busy};
    struct err why = ERR_INIT;
    char where[CFG_ORIGIN_MAX];
    cfg_where(c, "storage-class", v->cfg->name, "match", where);
    int rc = v->driver->volumes(&v->c, on_volume, &g, &why);
    if (g.nomem)
        return err_nomem(e);
    if (rc < 0 && v->n_volumes < VOLUMES_MAX) {
        v->silent = true;
        complain_err(c, CFG_WARNING, where, &why);
    }
    check_shadowed(c, v);
    v->silent |= g.told[0] && !v->n_volumes;
    if (rc >= 0 && !v->n_volumes && !v->n_shadowed && !v->silent)
        cfg_complain(c, CFG_WARNING, where, NULL, "[storage-class \"%s\"]: no volume matches at present", v->cfg->name);
    return 0;
}

/* ---- what is asked of it ---- */

static struct view *view_of(struct view *views, unsigned n, const char *klass)
{
    for (unsigned i = 0; i < n; i++)
        if (!strcmp(views[i].cfg->name, klass))
            return &views[i];
    return NULL;
}

static void check_mechanism(struct cfg *c, const struct view *own, const struct cfg_policy *p, const struct view *into,
                            const struct volume *v)
{
    char where[CFG_ORIGIN_MAX];
    bool other = into != own;
    struct expose_request q = {
        .own = &own->c,
        .own_abilities = own->abilities,
        .into = other ? &into->c : NULL,
        .into_abilities = other ? into->abilities : own->abilities,
        .same_pool = other && v && expose_same_pool(&own->c, v, &into->c),
        .read_only = p->backup_read_only,
    };
    enum expose_mechanism m;
    struct err why = ERR_INIT;
    if (expose_choose(&q, &m, &why) >= 0)
        return;
    where_of(c, p, other ? "backup-storage-class" : "backup-read-only", own->cfg->name, where);
    complain_err(c, CFG_ERROR, where, &why);
}

/* A policy of a class, or of one of its volumes that has a section. `name`: of the volume, NULL for the class. */
static void check_policy(struct cfg *c, struct view *views, unsigned n, const struct view *own,
                         const struct cfg_policy *p, const struct volume *v)
{
    char where[CFG_ORIGIN_MAX];
    struct view *into = p->backup_storage_class[0] ? view_of(views, n, p->backup_storage_class) : (struct view *)own;
    if (!into || p->exclude)
        return;
    if (!p->move_data && !(own->abilities & DRIVER_SNAPSHOT)) {
        where_of(c, p, "move-data", own->cfg->name, where);
        cfg_complain(c, CFG_ERROR, where, NULL,
                     "[storage-class \"%s\"]: nothing is backed up: move-data = no, and driver %s does not support "
                     "native snapshots",
                     own->cfg->name, own->cfg->driver);
        return;
    }
    if (p->snapshots_to_retain && !(own->abilities & DRIVER_SNAPSHOT)) {
        where_of(c, p, "snapshots-to-retain", own->cfg->name, where);
        cfg_complain(c, CFG_WARNING, where, NULL,
                     "[storage-class \"%s\"]: driver %s does not support native snapshots, so none is retained",
                     own->cfg->name, own->cfg->driver);
    }
    if (own->max_retain >= 0 && p->snapshots_to_retain > (unsigned)own->max_retain) {
        where_of(c, p, "snapshots-to-retain", own->cfg->name, where);
        cfg_complain(
            c, CFG_ERROR, where, NULL,
            "[storage-class \"%s\"]: snapshots-to-retain is %u, and the storage of %s holds %d native snapshot%s "
            "of a volume (max-retain)",
            own->cfg->name, p->snapshots_to_retain, own->cfg->driver, own->max_retain,
            plural((uint64_t)own->max_retain));
    }
    if (!p->move_data || p->mover[0])
        return;
    if (into == own || into->able)
        check_mechanism(c, own, p, into, v);
    else if (into->driver == NULL) {
        where_of(c, p, "backup-storage-class", own->cfg->name, where);
        cfg_complain(c, CFG_WARNING, where, "backups of this class are refused",
                     "[storage-class \"%s\"]: this build has no driver %s for the intermediates in [storage-class "
                     "\"%s\"]",
                     own->cfg->name, into->cfg->driver, into->cfg->name);
    }
}

/* Complaints about the class have been made already. */
static bool needs_more(const struct cfg_policy *p, const struct cfg_policy *of_class)
{
    return p->backup_read_only != of_class->backup_read_only || p->move_data != of_class->move_data ||
           strcmp(p->backup_storage_class, of_class->backup_storage_class) != 0;
}

/* The class of a volume that has a section; by its labels, if some class asks for any and its driver knows the volume.
 */
static struct view *view_of_section(const struct cfg *c, struct view *views, unsigned n, const char *name,
                                    struct volume *v)
{
    const struct cfg_class *k = cfg_class_of(c, cfg_named(name));
    for (unsigned i = 0; !k && i < n; i++)
        if (views[i].able && cfg_matches_labels(c, views[i].cfg) &&
            views[i].driver->resolve(&views[i].c, name, v, NULL) >= 0)
            k = cfg_class_of(c, (struct cfg_subject){name, v->labels});
    return k ? view_of(views, n, k->name) : NULL;
}

/* A volume with a section of its own may have other needs than its class. */
static int check_volume_sections(struct cfg *c, struct view *views, unsigned n, struct err *e)
{
    const struct cfg_volume *s;
    for (unsigned i = 0; (s = cfg_volume_at(c, i)); i++) {
        struct err why = ERR_INIT;
        CLEANUP_FREE struct volume *v = calloc(1, sizeof *v);
        if (!v)
            return err_nomem(e);
        struct view *own = view_of_section(c, views, n, s->name, v);
        if (!own || !own->able)
            continue;
        bool there = own->driver->resolve(&own->c, s->name, v, &why) >= 0;
        if (!there)
            cfg_complain(c, CFG_WARNING, s->origin, why.hint, "[volume]: %s", why.msg);
        struct cfg_policy p;
        int rc = cfg_policy(c, (struct cfg_subject){s->name, v->labels}, NULL, &p, e);
        if (rc < 0)
            return rc;
        check_options(c, own, &p, SCOPE_VOLUME);
        if (needs_more(&p, &own->policy))
            check_policy(c, views, n, own, &p, there ? v : NULL);
        cfg_policy_clear(&p);
    }
    return 0;
}

/* A job that would back up nothing; unknown while a class cannot be listed. */
static void check_jobs(struct cfg *c, const struct view *views, unsigned n, const struct view *const *busy)
{
    const struct cfg_job *j;
    char where[CFG_ORIGIN_MAX];
    for (unsigned i = 0; i < n; i++)
        if (views[i].silent || (views[i].driver && !views[i].able))
            return;
    for (unsigned i = 0; (j = cfg_job_at(c, i)); i++) {
        if (busy[i] || !cfg_node_matches(j->only_on_node, cfg_daemon(c)->node_name))
            continue;
        cfg_where(c, "job", j->name, "volumes", where);
        cfg_complain(c, CFG_WARNING, where, NULL, "[job \"%s\"]: backs up nothing: it names no volume that is there",
                     j->name);
    }
}

static int drivers_check(struct cfg *c, struct view *views, unsigned n, struct err *e)
{
    unsigned n_jobs = 0;
    while (cfg_job_at(c, n_jobs))
        n_jobs++;
    CLEANUP_FREE const struct view **busy = calloc(n_jobs + 1, sizeof *busy);
    if (!busy)
        return err_nomem(e);
    for (unsigned i = 0; i < n; i++)
        if (views[i].driver)
            abilities_read(c, &views[i]);
    for (unsigned i = 0; i < n; i++) {
        struct view *v = &views[i];
        if (!v->able)
            continue;
        if (volumes_check(c, v, busy, e) < 0)
            return -ENOMEM;
        if (v->cfg->match && *v->cfg->match) {
            check_options(c, v, &v->policy, ANY_SCOPE);
            check_policy(c, views, n, v, &v->policy, v->first);
        }
    }
    check_jobs(c, views, n, busy);
    return check_volume_sections(c, views, n, e);
}

int check_classes(struct cfg *c, bool storage, struct err *e)
{
    unsigned n = 0;
    while (cfg_class_at(c, n))
        n++;
    struct view *views = calloc(n + 1, sizeof *views);
    if (!views)
        return err_nomem(e);
    int rc = 0;
    unsigned opened = 0;
    for (; opened < n && rc >= 0; opened++) {
        rc = view_open(c, cfg_class_at(c, opened), &views[opened], e);
        if (rc >= 0)
            check_driver(c, &views[opened]);
    }
    if (rc >= 0 && storage)
        rc = drivers_check(c, views, n, e);
    views_free(views, opened);
    return rc;
}
