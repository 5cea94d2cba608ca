/* SPDX-License-Identifier: GPL-2.0-or-later */
/* build.c - sections into typed structs */
#include "cfg/internal.h"

#include <errno.h>
#include <fnmatch.h>
#include <string.h>
#include <unistd.h>

/* Stores the values of a section that belong to a place. */
static int store_values(struct cfg *c, const struct section *s, enum place place, void *base)
{
    for (unsigned i = 0; s && i < s->n_values; i++)
        if (s->values[i].key->place == place && value_store(s->values[i].key, s->values[i].text, &c->arena, base) < 0)
            return -ENOMEM;
    return 0;
}

static unsigned count_kind(const struct cfg *c, enum kind kind)
{
    unsigned n = 0;
    for (unsigned i = 0; i < c->n_sections; i++)
        n += c->sections[i].kind == kind;
    return n;
}

/* One array of typed sections: `type` has members pub and section, pub has name and origin. */
#define BUILD(c, type, kind_, place_, array, count)                                                                    \
    do {                                                                                                               \
        (c)->count = count_kind(c, kind_);                                                                             \
        (c)->array = calloc((c)->count + 1, sizeof(struct type));                                                      \
        if (!(c)->array)                                                                                               \
            return -ENOMEM;                                                                                            \
        struct type *at_ = (c)->array;                                                                                 \
        for (unsigned i_ = 0; i_ < (c)->n_sections; i_++) {                                                            \
            const struct section *s_ = &(c)->sections[i_];                                                             \
            if (s_->kind != (kind_))                                                                                   \
                continue;                                                                                              \
            at_->section = i_;                                                                                         \
            if (defaults_store(place_, &(c)->arena, &at_->pub) < 0)                                                    \
                return -ENOMEM;                                                                                        \
            snprintf(at_->pub.name, sizeof at_->pub.name, "%s", s_->name);                                             \
            origin_text(c, s_->file, s_->line, at_->pub.origin, sizeof at_->pub.origin);                               \
            if (store_values(c, s_, place_, &at_->pub) < 0)                                                            \
                return -ENOMEM;                                                                                        \
            at_++;                                                                                                     \
        }                                                                                                              \
    } while (0)

static int build_sections(struct cfg *c)
{
    BUILD(c, repository, KIND_REPOSITORY, IN_REPOSITORY, repositories, n_repositories);
    BUILD(c, klass, KIND_CLASS, IN_CLASS, classes, n_classes);
    BUILD(c, volume_section, KIND_VOLUME, IN_VOLUME, volumes, n_volumes);
    BUILD(c, job, KIND_JOB, IN_JOB, jobs, n_jobs);
    BUILD(c, plugin, KIND_PLUGIN, IN_PLUGIN, plugins, n_plugins);
    BUILD(c, rule, KIND_RULE, IN_RULE, rules, n_rules);
    BUILD(c, copy, KIND_COPY, IN_COPY, copies, n_copies);
    return 0;
}

/* The place has the keys of a repository's; the password is that of the repository. */
static int finish_copies(struct cfg *c)
{
    for (unsigned i = 0; i < c->n_copies; i++) {
        struct cfg_copy *k = &c->copies[i].pub;
        struct cfg_repository *p = &k->place;
        if (defaults_store(IN_REPOSITORY, &c->arena, p) < 0 ||
            store_values(c, &c->sections[c->copies[i].section], IN_REPOSITORY, p) < 0)
            return -ENOMEM;
        memcpy(p->name, k->name, sizeof p->name);
        memcpy(p->origin, k->origin, sizeof p->origin);
        if (!k->repository[0] && c->n_repositories == 1)
            memcpy(k->repository, c->repositories[0].pub.name, sizeof k->repository);
        const struct cfg_repository *of = cfg_repository(c, k->repository);
        if (of) {
            memcpy(p->password_file, of->password_file, sizeof p->password_file);
            p->insecure_password_file = of->insecure_password_file;
        }
    }
    return 0;
}

static void finish_plugins(struct cfg *c)
{
    for (unsigned i = 0; i < c->n_plugins; i++) {
        struct cfg_plugin *g = &c->plugins[i].pub;
        if (!section_value(&c->sections[c->plugins[i].section], "max-size"))
            g->max_size = UINT64_MAX;
        if (g->privileged)
            g->user[0] = '\0';
    }
}

/* "": not set, any. */
static const char *const *any_if_empty(const char *const *list)
{
    return list && list[0] ? list : NULL;
}

static void finish_rules(struct cfg *c)
{
    for (unsigned i = 0; i < c->n_rules; i++) {
        struct cfg_rule *r = &c->rules[i].pub;
        if (!section_value(&c->sections[c->rules[i].section], "max-size"))
            r->max_size = UINT64_MAX;
        r->match = any_if_empty(r->match);
        r->classes = any_if_empty(r->classes);
        r->drivers = any_if_empty(r->drivers);
    }
}

/* CF-20: of several that match, the smallest number. */
static void node_slots(struct cfg_daemon *d)
{
    bool found = false;
    for (const char *const *w = d->slots_on_node; w && *w; w++) {
        char pattern[256];
        unsigned n;
        if (parse_slots_word(*w, pattern, sizeof pattern, &n) < 0 || fnmatch(pattern, d->node_name, 0) != 0)
            continue;
        d->slots = found && d->slots < n ? d->slots : n;
        found = true;
    }
}

static int build_daemon(struct cfg *c)
{
    struct cfg_daemon *d = &c->daemon;
    const struct section *s = section_find(c, KIND_DAEMON, "");
    if (defaults_store(IN_DAEMON, &c->arena, d) < 0 || store_values(c, s, IN_DAEMON, d) < 0)
        return -ENOMEM;
    if (s)
        origin_text(c, s->file, s->line, d->origin, sizeof d->origin);
    if (!d->node_name[0] && gethostname(d->node_name, sizeof d->node_name - 1) < 0)
        snprintf(d->node_name, sizeof d->node_name, "localhost");
    node_slots(d);
    if (!d->prepare_ahead)
        d->prepare_ahead = d->slots + 1;
    return 0;
}

/* The daemon's limits of movers: [mover] alone. The keys are the policy's. */
static int build_mover(struct cfg *c)
{
    struct cfg_policy *p = calloc(1, sizeof *p);
    if (!p)
        return -ENOMEM;
    int rc = defaults_store(IN_POLICY, &c->arena, p);
    if (rc == 0)
        rc = store_values(c, section_find(c, KIND_MOVER, ""), IN_POLICY, p);
    c->mover = p->limits;
    free(p);
    return rc;
}

static int build_metrics(struct cfg *c)
{
    const struct section *s = section_find(c, KIND_METRICS, "");
    if (defaults_store(IN_METRICS, &c->arena, &c->metrics) < 0 || store_values(c, s, IN_METRICS, &c->metrics) < 0)
        return -ENOMEM;
    for (unsigned i = 0; s && i < s->n_values && !c->metrics.closed[0]; i++) {
        const struct removed_key *r = removed_of(s->values[i].key);
        if (r && r->guards_metrics && s->values[i].text[0])
            snprintf(c->metrics.closed, sizeof c->metrics.closed, "%s was removed in %s", r->key.pub.name, r->since);
    }
    return 0;
}

static int finish_classes(struct cfg *c, struct err *e)
{
    for (unsigned i = 0; i < c->n_classes; i++) {
        struct cfg_class *k = &c->classes[i].pub;
        struct cfg_policy p;
        if (!strncmp(k->driver, "plugin:", 7))
            snprintf(k->plugin, sizeof k->plugin, "%s", k->driver + 7);
        int rc = cfg_policy_of_class(c, k->name, &p, e);
        if (rc < 0)
            return rc;
        k->max = p.max_per_class;
        cfg_policy_clear(&p);
    }
    return 0;
}

int cfg_build(struct cfg *c, struct err *e)
{
    if (build_sections(c) < 0 || finish_copies(c) < 0 || lookup_index(c) < 0 || build_daemon(c) < 0 ||
        build_mover(c) < 0 || build_metrics(c) < 0)
        return err_nomem(e);
    finish_plugins(c);
    finish_rules(c);
    return finish_classes(c, e);
}
