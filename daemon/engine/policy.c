/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * engine-policy.c - what an operation takes along from the configuration
 *
 * An operation lives by the configuration it was submitted under: its policy and the classes it needs are copied into
 * its record, so that a reload, a renamed section or a new daemon changes nothing for what is already under way
 * (RS-10), and what it made can be removed when its class is long gone.
 */
#include "base/password.h"
#include "daemon/engine/engine-impl.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static int limits_from_cfg(struct mover_limits *l, const struct cfg_mover *m)
{
    int rc = 0;
#define TEXT_OF(name, size) rc |= str_set(&l->name, m->name);
#define NUMBER_OF(name, ...) l->name = m->name;
#define LIST_OF(name)                                                                                                  \
    for (unsigned i = 0; m->name && m->name[i]; i++)                                                                   \
        rc |= strs_add(&l->name, m->name[i]);
    MOVER_LIMITS(TEXT_OF, NUMBER_OF, NUMBER_OF, LIST_OF)
    return rc;
}

void limits_job(json_t *job, const struct policy *policy)
{
    if (!job)
        return;
#define MEMBER_OF(name, ...) jset_int(job, #name, policy->limits.name);
    MOVER_JOB_LIMITS(MEMBER_OF)
}

static json_t *options_from_cfg(const struct cfg_kv *kv)
{
    json_t *o = json_object();
    for (; kv && kv->key; kv++)
        jset_str(o, kv->key, kv->value);
    return o;
}

int policy_from_cfg(struct policy *o, const struct cfg_policy *p)
{
    int rc = 0;
    policy_init(o);
    rc |= str_set(&o->repository, p->repository);
    rc |= str_set(&o->group, p->group);
    o->group_strict = p->group_consistency == GROUP_STRICT;
    o->group_max_skew_ms = p->group_max_skew_ms;
    o->move_data = p->move_data;
    o->snapshots_to_retain = p->snapshots_to_retain;
    /* A job's own number counts only its own (RS-29). */
    CLEANUP_JSON json_t *all = cfg_policy_json(p);
    o->job_retain = !strcmp(jstr(jobj(all, "snapshots-to-retain"), "scope"), "job");
    o->retain_max_age_s = p->retain_max_age_s;
    o->keep_on_failure = p->keep_on_failure;
    o->prune_before = p->prune_before;
    o->max_snapshots_per_volume = p->max_snapshots_per_volume;
    o->pool_high_water = p->pool_high_water;
    o->snapshot_only_keep = p->snapshot_only_keep;
    o->snapshot_only_max_age_s = p->snapshot_only_max_age_s;
    rc |= str_set(&o->backup_storage_class, p->backup_storage_class);
    o->backup_read_only = p->backup_read_only;
    json_take(&o->options, options_from_cfg(p->options));
    o->expose_keep_on_failure = p->expose_keep_on_failure;
    o->copy_limit = (int64_t)p->copy_limit;
    o->snapshot_timeout_s = p->snapshot_timeout_s;
    o->prepare_timeout_s = p->prepare_timeout_s;
    o->go_timeout_s = p->go_timeout_s;
    o->stall_timeout_s = p->stall_timeout_s;
    o->max_duration_s = p->max_duration_s;
    o->cancel_grace_s = p->cancel_grace_s;
    o->repo_outage_max_s = p->repo_outage_max_s;
    o->retries = p->retries;
    o->retry_first_s = p->retry_first_s;
    o->retry_max_s = p->retry_max_s;
    rc |= str_set(&o->mover, p->mover);
    rc |= str_set(&o->splitter, p->splitter);
    rc |= str_set(&o->compression, p->compression);
    o->map_bad = p->map_bad_reads;
    o->full = p->full;
    rc |= limits_from_cfg(&o->limits, &p->limits);
    rc |= str_set(&o->hook_pre_snapshot, p->hook_pre_snapshot);
    rc |= str_set(&o->hook_post_snapshot, p->hook_post_snapshot);
    rc |= str_set(&o->hook_post_backup, p->hook_post_backup);
    rc |= str_set(&o->hook_prepare, p->hook_prepare);
    rc |= str_set(&o->hook_post_restore, p->hook_post_restore);
    o->hook_timeout_s = p->hook_timeout_s;
    o->hook_continue = p->hook_on_error == ON_ERROR_CONTINUE;
    o->keep = (struct policy_keep){.latest = p->keep_latest,
                                   .hourly = p->keep_hourly,
                                   .daily = p->keep_daily,
                                   .weekly = p->keep_weekly,
                                   .monthly = p->keep_monthly,
                                   .annual = p->keep_annual};
    o->max_per_class = p->max_per_class;
    o->max_per_device = p->max_per_device;
    o->priority = p->priority;
    return rc;
}

const struct class_desc *class_from_cfg(const struct cfg *c, const struct cfg_class *k, const struct cfg_policy *p)
{
    struct class_desc o;
    class_desc_init(&o);
    str_set(&o.name, k->name);
    str_set(&o.driver, k->driver);
    for (unsigned i = 0; k->match && k->match[i]; i++)
        strs_add(&o.match, k->match[i]);
    /* Volumes that name the class themselves belong to it as much as those that its patterns match. */
    const struct cfg_volume *v;
    for (unsigned i = 0; (v = cfg_volume_at(c, i)); i++)
        if (!strcmp(v->klass, k->name))
            strs_add(&o.match, v->name);
    str_set(&o.target, k->target);
    str_set(&o.node, cfg_daemon(c)->node_name);
    o.max = k->max;
    const struct cfg_plugin *g = k->plugin[0] ? cfg_plugin(c, k->plugin) : NULL;
    if (g) {
        str_set(&o.plugin, g->program);
        str_set(&o.plugin_user, g->user);
    }
    json_take(&o.options, options_from_cfg(p ? p->options : NULL));
    o.accept_inconsistent = p && p->accept_inconsistent;
    str_set(&o.overlay_hook, p ? p->hook_overlay : "");
    return class_desc_make(&o);
}

json_t *class_doc(const struct cfg *c, const struct cfg_class *k, const struct cfg_policy *p)
{
    CLEANUP(class_desc_unrefp) const struct class_desc *own = class_from_cfg(c, k, p);
    return class_desc_to_json(own);
}

const struct class_desc *class_for_path(const struct cfg *c, const char *path, bool block)
{
    const struct cfg_class *k = cfg_class_of(c, path);
    struct cfg_policy p = {.effective = NULL};
    if (k && cfg_policy(c, path, NULL, &p, NULL) == 0) {
        const struct class_desc *own = class_from_cfg(c, k, &p);
        cfg_policy_clear(&p);
        return own;
    }
    struct class_desc o;
    class_desc_init(&o);
    str_set(&o.name, CLASS_OF_TARGET);
    str_set(&o.driver, block ? "device" : "reflink");
    str_set(&o.node, cfg_daemon(c)->node_name);
    return class_desc_make(&o);
}

int class_view(struct class_view *v, const json_t *doc, struct err *e)
{
    const json_t *match = jarr(doc, "match");
    size_t n = json_array_size(match), k = 0;
    memset(v, 0, sizeof *v);
    if (!jstr(doc, "driver")[0])
        return err_set(e, ERR_GENERIC, EINVAL, "a record names no storage class");
    v->match = calloc(n + 1, sizeof *v->match);
    if (!v->match)
        return err_nomem(e);
    for (size_t i = 0; i < n; i++)
        if (json_is_string(json_array_get(match, i)))
            v->match[k++] = json_string_value(json_array_get(match, i));
    v->c.name = jstr(doc, "name");
    v->c.driver = jstr(doc, "driver");
    v->c.match = v->match;
    v->c.target = jstr(doc, "target");
    v->c.node = jstr(doc, "node");
    v->c.plugin = jstr(doc, "plugin")[0] ? jstr(doc, "plugin") : NULL;
    v->c.plugin_user = jstr(doc, "plugin_user")[0] ? jstr(doc, "plugin_user") : NULL;
    v->c.accept_inconsistent = jbool(doc, "accept_inconsistent");
    v->c.overlay_hook = jstr(doc, "overlay_hook")[0] ? jstr(doc, "overlay_hook") : NULL;
    v->c.options = jobj(doc, "options");
    return 0;
}

void class_view_clear(struct class_view *v)
{
    free(v->match);
    v->match = NULL;
}

int repository_password(const struct cfg *c, const char *name, char **ret, struct err *e)
{
    const struct cfg_repository *r = cfg_repository(c, name);
    struct stat st;
    if (!r) {
        err_set(e, ERR_USAGE, 0, "there is no [repository \"%s\"] in the configuration", name);
        return err_hint(e, "add it, or change repository = in the class, job or volume, then `snapferry reload`");
    }
    if (!r->password_file[0])
        return err_set(e, ERR_USAGE, 0, "%s: repository \"%s\" has no password-file", r->origin, name);
    /* Reading a FIFO or a terminal would hold up the loop. */
    if (strncmp(r->password_file, "cred:", 5) && stat(r->password_file, &st) == 0 && !S_ISREG(st.st_mode))
        return err_set(e, ERR_USAGE, 0, "the password file %s is not a regular file", r->password_file);
    return password_read(ret, r->password_file, e);
}
