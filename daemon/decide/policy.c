/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * policy.c - what an operation takes along from the configuration
 *
 * An operation has its policy and the classes it needs in its record, so that a reload, a renamed section or a new
 * daemon changes nothing for what is already under way (RS-10), and what it made can be removed when its class is long
 * gone. As long as it waits it takes over a changed configuration (configure.c).
 */
#include "base/cleanup.h"
#include "daemon/decide/decide.h"
#include "daemon/decide/judge.h"
#include "daemon/records/driver-kind.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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

void limits_of_copy(struct mover_limits *l, const struct cfg_copy *k)
{
    if (k && k->read_limit)
        l->read_limit = k->read_limit;
    if (k && k->write_limit)
        l->write_limit = k->write_limit;
}

int limits_of(const struct cfg *c, const struct operation *op, struct mover_limits *ret)
{
    struct cfg_policy p = {.effective = NULL};
    const bool moves = op->kind == KIND_BACKUP || op->kind == KIND_RESTORE;
    const char *job = moves && op->job[0] ? op->job : NULL;
    fields_init(&mover_limits_fields, ret);
    if (job && !cfg_job(c, job))
        return -ENOENT;
    int rc = cfg_policy(c, moves ? volume_subject(op->volume) : cfg_named(""), job, &p, NULL);
    if (rc < 0)
        return rc;
    rc = limits_from_cfg(ret, &p.limits);
    if (op->kind == KIND_COPY)
        limits_of_copy(ret, cfg_copy(c, op->target_name));
    cfg_policy_clear(&p);
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
    o->job_retain = cfg_policy_scope(p, "snapshots-to-retain") == SCOPE_JOB;
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
    o->changed_blocks = p->changed_blocks;
    o->full_every_s = p->changed_blocks ? p->full_every_s : -1;
    o->verify_sample_ppm = p->changed_blocks ? (int64_t)p->verify_sample_ppm : -1;
    rc |= limits_from_cfg(&o->limits, &p->limits);
    rc |= str_set(&o->hook_pre_backup, p->hook_pre_backup);
    rc |= str_set(&o->hook_pre_restore, p->hook_pre_restore);
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

/* Volumes that name the class themselves belong to it as much as those that its patterns match. */
static void add_patterns(const struct cfg *c, const struct cfg_class *k, struct strs *list)
{
    const struct cfg_volume *v;
    for (unsigned i = 0; k->match && k->match[i]; i++)
        strs_add(list, k->match[i]);
    for (unsigned i = 0; (v = cfg_volume_at(c, i)); i++)
        if (!strcmp(v->klass, k->name))
            strs_add(list, v->name);
}

/* Two volumes of one identity are refused whatever their classes are. */
static void add_peers(const struct cfg *c, const struct cfg_class *own, struct strs *list)
{
    const struct cfg_class *k;
    for (unsigned i = 0; (k = cfg_class_at(c, i)); i++)
        if (k != own && !strcmp(k->driver, own->driver) && cfg_class_here(c, k)) {
            add_patterns(c, k, list);
            strs_add(list, "");
        }
}

/* Of a volume, or, where a look at the storage is at all volumes of the class, of the class: without them a driver may
 * not find its storage. */
static json_t *class_options(const struct cfg *c, const struct cfg_class *k, const struct cfg_policy *p)
{
    struct cfg_policy own = {.effective = NULL};
    if ((p && p->effective) || cfg_policy_of_class(c, k->name, &own, NULL) < 0)
        return options_from_cfg(p ? p->options : NULL);
    json_t *ret = options_from_cfg(own.options);
    cfg_policy_clear(&own);
    return ret;
}

const struct class_desc *class_from_cfg(const struct cfg *c, const struct cfg_class *k, const struct cfg_policy *p)
{
    struct class_desc o;
    class_desc_init(&o);
    str_set(&o.name, k->name);
    str_set(&o.driver, k->driver);
    add_patterns(c, k, &o.match);
    const struct driver_kind *kind = driver_kind_of(k->driver);
    if (kind->has_peers)
        add_peers(c, k, &o.peers);
    str_set(&o.target, k->target);
    str_set(&o.node, cfg_daemon(c)->node_name);
    o.max = k->max;
    const struct cfg_plugin *g = k->plugin[0] ? cfg_plugin(c, k->plugin) : NULL;
    if (g) {
        str_set(&o.plugin, g->program);
        str_set(&o.plugin_user, g->user);
    }
    json_take(&o.options, class_options(c, k, p));
    o.accept_inconsistent = p && p->accept_inconsistent;
    o.point_in_time = p && p->point_in_time;
    o.cow_percent = p && kind->has_cow ? p->cow_percent : 0;
    str_set(&o.overlay_hook, p ? p->hook_overlay : "");
    return class_desc_make(&o);
}

json_t *class_doc(const struct cfg *c, const struct cfg_class *k, const struct cfg_policy *p)
{
    CLEANUP(class_desc_unrefp) const struct class_desc *own = class_from_cfg(c, k, p);
    return class_desc_to_json(own);
}

const struct class_desc *class_for_path(const struct cfg *c, struct cfg_subject v, const char *driver)
{
    const struct cfg_class *k = cfg_class_of(c, v);
    struct cfg_policy p = {.effective = NULL};
    if (k && cfg_policy(c, v, NULL, &p, NULL) == 0) {
        const struct class_desc *own = class_from_cfg(c, k, &p);
        cfg_policy_clear(&p);
        return own;
    }
    struct class_desc o;
    class_desc_init(&o);
    str_set(&o.name, CLASS_OF_TARGET);
    str_set(&o.driver, driver);
    str_set(&o.node, cfg_daemon(c)->node_name);
    return class_desc_make(&o);
}
