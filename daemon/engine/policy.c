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

static json_t *limits_doc(const struct cfg_mover *m)
{
    json_t *o = json_object(), *props = json_array();
    jset_str(o, "user", m->user);
    jset_int(o, "memory", (int64_t)m->memory);
    jset_int(o, "memory_max", (int64_t)m->memory_max);
    jset_int(o, "index_memory", (int64_t)m->index_memory);
    jset_int(o, "workers", m->workers);
    jset_int(o, "cpu_quota", m->cpu_quota);
    jset_int(o, "cpu_weight", m->cpu_weight);
    jset_int(o, "io_weight", m->io_weight);
    jset_int(o, "tasks_max", m->tasks_max);
    jset_int(o, "nice", m->nice);
    jset_str(o, "ioclass", m->ioclass);
    jset_str(o, "cpus", m->cpus);
    jset_str(o, "slice", m->slice);
    jset_int(o, "read_limit", (int64_t)m->read_limit);
    jset_int(o, "write_limit", (int64_t)m->write_limit);
    for (unsigned i = 0; m->unit_properties && m->unit_properties[i] && i < 32; i++)
        json_array_append_new(props, json_string(m->unit_properties[i]));
    json_object_set_new(o, "unit_properties", props);
    return o;
}

void limits_job(json_t *job, const json_t *policy)
{
    static const char *const members[] = {"memory", "index_memory", "workers", "read_limit", "write_limit"};
    const json_t *limits = jobj(policy, "limits");
    for (size_t i = 0; job && i < sizeof members / sizeof *members; i++)
        jset_int(job, members[i], jint(limits, members[i]));
}

void limits_view(struct cfg_mover *m, const json_t *policy, const char *props[33])
{
    const json_t *o = jobj(policy, "limits"), *list = jarr(o, "unit_properties");
    unsigned n = 0;
    memset(m, 0, sizeof *m);
    snprintf(m->user, sizeof m->user, "%s", jstr(o, "user"));
    m->memory = (uint64_t)jint(o, "memory");
    m->memory_max = (uint64_t)jint(o, "memory_max");
    m->index_memory = (uint64_t)jint(o, "index_memory");
    m->workers = (unsigned)jint(o, "workers");
    m->cpu_quota = (unsigned)jint(o, "cpu_quota");
    m->cpu_weight = (unsigned)jint(o, "cpu_weight");
    m->io_weight = (unsigned)jint(o, "io_weight");
    m->tasks_max = (unsigned)jint(o, "tasks_max");
    m->nice = (int)jint(o, "nice");
    snprintf(m->ioclass, sizeof m->ioclass, "%s", jstr(o, "ioclass"));
    snprintf(m->cpus, sizeof m->cpus, "%s", jstr(o, "cpus"));
    snprintf(m->slice, sizeof m->slice, "%s", jstr(o, "slice"));
    m->read_limit = (uint64_t)jint(o, "read_limit");
    m->write_limit = (uint64_t)jint(o, "write_limit");
    for (size_t i = 0; i < json_array_size(list) && n < 32; i++)
        if (json_is_string(json_array_get(list, i)))
            props[n++] = json_string_value(json_array_get(list, i));
    props[n] = NULL;
    m->unit_properties = props;
}

static json_t *keep_doc(const struct cfg_policy *p)
{
    const int keep[] = {p->keep_latest, p->keep_hourly, p->keep_daily, p->keep_weekly, p->keep_monthly, p->keep_annual};
    static const char *const name[] = {"latest", "hourly", "daily", "weekly", "monthly", "annual"};
    json_t *o = json_object();
    for (unsigned i = 0; i < 6; i++)
        if (keep[i] >= 0)
            jset_int(o, name[i], keep[i]);
    if (json_object_size(o))
        return o;
    json_decref(o);
    return json_null();
}

json_t *policy_doc(const struct cfg_policy *p)
{
    json_t *o = json_object(), *options = json_object();
    jset_str(o, "repository", p->repository);
    jset_str(o, "group", p->group);
    jset_bool(o, "group_strict", p->group_consistency == GROUP_STRICT);
    jset_int(o, "group_max_skew_ms", p->group_max_skew_ms);
    jset_bool(o, "move_data", p->move_data);
    jset_int(o, "snapshots_to_retain", p->snapshots_to_retain);
    /* A job's own number counts only its own (RS-29). */
    CLEANUP_JSON json_t *all = cfg_policy_json(p);
    jset_bool(o, "job_retain", !strcmp(jstr(jobj(all, "snapshots-to-retain"), "scope"), "job"));
    jset_int(o, "retain_max_age_s", p->retain_max_age_s);
    jset_bool(o, "keep_on_failure", p->keep_on_failure);
    jset_bool(o, "prune_before", p->prune_before);
    jset_int(o, "max_snapshots_per_volume", p->max_snapshots_per_volume);
    jset_int(o, "pool_high_water", p->pool_high_water);
    jset_int(o, "snapshot_only_keep", p->snapshot_only_keep);
    jset_int(o, "snapshot_only_max_age_s", p->snapshot_only_max_age_s);
    jset_str(o, "backup_storage_class", p->backup_storage_class);
    jset_bool(o, "backup_read_only", p->backup_read_only);
    for (const struct cfg_kv *kv = p->options; kv && kv->key; kv++)
        jset_str(options, kv->key, kv->value);
    json_object_set_new(o, "options", options);
    jset_bool(o, "expose_keep_on_failure", p->expose_keep_on_failure);
    jset_int(o, "copy_limit", (int64_t)p->copy_limit);
    jset_int(o, "snapshot_timeout_s", p->snapshot_timeout_s);
    jset_int(o, "prepare_timeout_s", p->prepare_timeout_s);
    jset_int(o, "go_timeout_s", p->go_timeout_s);
    jset_int(o, "stall_timeout_s", p->stall_timeout_s);
    jset_int(o, "max_duration_s", p->max_duration_s);
    jset_int(o, "cancel_grace_s", p->cancel_grace_s);
    jset_int(o, "repo_outage_max_s", p->repo_outage_max_s);
    jset_int(o, "retries", p->retries);
    jset_int(o, "retry_first_s", p->retry_first_s);
    jset_int(o, "retry_max_s", p->retry_max_s);
    jset_str(o, "mover", p->mover);
    jset_str(o, "splitter", p->splitter);
    jset_str(o, "compression", p->compression);
    jset_bool(o, "map_bad", p->map_bad_reads);
    jset_bool(o, "full", p->full);
    json_object_set_new(o, "limits", limits_doc(&p->limits));
    jset_str(o, "hook_pre_snapshot", p->hook_pre_snapshot);
    jset_str(o, "hook_post_snapshot", p->hook_post_snapshot);
    jset_str(o, "hook_post_backup", p->hook_post_backup);
    jset_str(o, "hook_prepare", p->hook_prepare);
    jset_str(o, "hook_post_restore", p->hook_post_restore);
    jset_int(o, "hook_timeout_s", p->hook_timeout_s);
    jset_bool(o, "hook_continue", p->hook_on_error == ON_ERROR_CONTINUE);
    json_object_set_new(o, "keep", keep_doc(p));
    jset_int(o, "max_per_class", p->max_per_class);
    jset_int(o, "max_per_device", p->max_per_device);
    jset_int(o, "priority", p->priority);
    return o;
}

json_t *class_doc(const struct cfg *c, const struct cfg_class *k, const struct cfg_policy *p)
{
    json_t *o = json_object(), *match = json_array(), *options = json_object();
    jset_str(o, "name", k->name);
    jset_str(o, "driver", k->driver);
    for (unsigned i = 0; k->match && k->match[i]; i++)
        json_array_append_new(match, json_string(k->match[i]));
    /* Volumes that name the class themselves belong to it as much as those that its patterns match. */
    const struct cfg_volume *v;
    for (unsigned i = 0; (v = cfg_volume_at(c, i)); i++)
        if (!strcmp(v->klass, k->name))
            json_array_append_new(match, json_string(v->name));
    json_object_set_new(o, "match", match);
    jset_str(o, "target", k->target);
    jset_str(o, "node", cfg_daemon(c)->node_name);
    jset_int(o, "max", k->max);
    if (k->plugin[0]) {
        const struct cfg_plugin *g = cfg_plugin(c, k->plugin);
        if (g) {
            jset_str(o, "plugin", g->program);
            jset_str(o, "plugin_user", g->user);
        }
    }
    for (const struct cfg_kv *kv = p ? p->options : NULL; kv && kv->key; kv++)
        jset_str(options, kv->key, kv->value);
    json_object_set_new(o, "options", options);
    jset_bool(o, "accept_inconsistent", p && p->accept_inconsistent);
    jset_str(o, "overlay_hook", p ? p->hook_overlay : "");
    return o;
}

json_t *class_for_path(const struct cfg *c, const char *path, bool block)
{
    const struct cfg_class *k = cfg_class_of(c, path);
    if (k) {
        struct cfg_policy p = {.effective = NULL};
        if (cfg_policy(c, path, NULL, &p, NULL) == 0) {
            json_t *doc = class_doc(c, k, &p);
            cfg_policy_clear(&p);
            return doc;
        }
    }
    return json_pack("{s:s,s:s,s:[],s:s,s:s}", "name", CLASS_OF_TARGET, "driver", block ? "device" : "reflink", "match",
                     "target", "", "node", cfg_daemon(c)->node_name);
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
