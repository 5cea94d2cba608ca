/* SPDX-License-Identifier: GPL-2.0-or-later */
/* cfg.c - a configuration from its files to its end: loading, counting, looking up */
#include "cfg/internal.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fnmatch.h>
#include <string.h>

static struct cfg *cfg_new(struct err *e)
{
    struct cfg *c = calloc(1, sizeof *c);
    if (!c) {
        err_nomem(e);
        return NULL;
    }
    atomic_init(&c->refs, 1);
    return c;
}

struct cfg *cfg_ref(struct cfg *c)
{
    if (c)
        atomic_fetch_add(&c->refs, 1);
    return c;
}

static void free_sections(struct cfg *c)
{
    for (unsigned i = 0; i < c->n_sections; i++) {
        struct section *s = &c->sections[i];
        for (unsigned k = 0; k < s->n_values; k++) {
            free(s->values[k].option);
            free(s->values[k].text);
        }
        free(s->values);
    }
    free(c->sections);
}

void cfg_free(struct cfg *c)
{
    if (!c || atomic_fetch_sub(&c->refs, 1) != 1)
        return;
    free_sections(c);
    for (unsigned i = 0; i < c->n_complaints; i++)
        free(c->complaints[i]);
    free(c->complaints);
    for (unsigned i = 0; i < c->n_files; i++)
        free(c->files[i]);
    free(c->files);
    free(c->repositories);
    free(c->classes);
    free(c->jobs);
    free(c->plugins);
    free(c->volumes);
    free(c->rules);
    arena_clear(&c->arena);
    free(c);
}

/* The first error and how many more, as one sentence. */
static int say_errors(const struct cfg *c, bool repositories_only, struct err *e)
{
    const struct complaint *first = NULL;
    unsigned n = repositories_only ? 0 : c->n_errors;
    for (unsigned i = 0; i < c->n_complaints; i++) {
        const struct complaint *x = c->complaints[i];
        if (x->pub.severity != CFG_ERROR || (repositories_only && x->elsewhere))
            continue;
        n += repositories_only;
        if (!first)
            first = x;
    }
    if (!n)
        return 0;
    if (!first)
        return err_nomem(e);
    if (n > 1)
        err_set(e, ERR_USAGE, EINVAL, "%s: %s (and %u more errors in the configuration)", first->pub.where,
                first->pub.text, n - 1);
    else
        err_set(e, ERR_USAGE, EINVAL, "%s: %s", first->pub.where, first->pub.text);
    if (first->pub.hint[0])
        err_hint(e, "%s", first->pub.hint);
    return -EINVAL;
}

int cfg_load(struct cfg **ret, const char *file, struct err *e)
{
    CLEANUP(cfg_freep) struct cfg *c = cfg_new(e);
    if (!c)
        return -ENOMEM;
    int rc = cfg_read(c, file ? file : CFG_DEFAULT_FILE, file != NULL, e);
    if (rc >= 0)
        rc = cfg_build(c, e);
    if (rc < 0)
        return rc;
    cfg_check_repositories(c);
    for (unsigned i = 0; i < c->n_complaints; i++) {
        const struct complaint *x = c->complaints[i];
        bool matters = x->pub.severity == CFG_ERROR && !x->elsewhere;
        log_line(matters ? LOG_LVL_ERROR : LOG_LVL_DEBUG, "%s: %s", x->pub.where, x->pub.text);
    }
    rc = say_errors(c, true, e);
    if (rc < 0)
        return rc;
    *ret = take_ptr(&c);
    return 0;
}

int cfg_load_dir(struct cfg **ret, const char *config_dir, struct err *e)
{
    *ret = NULL;
    char file[4096];
    if ((size_t)snprintf(file, sizeof file, "%s/snapferry.ini", config_dir) >= sizeof file)
        return err_set(e, ERR_USAGE, ENAMETOOLONG, "the name of the configuration directory is too long");
    struct cfg *c = cfg_new(e);
    if (!c)
        return -ENOMEM;
    int rc = cfg_read(c, file, 2, e);
    if (rc == -ENOMEM) {
        cfg_free(c);
        return rc;
    }
    if (rc < 0)
        complain(c, CFG_ERROR, 0, 0, false, e ? e->hint : NULL, "%s", e ? e->msg : "the configuration cannot be read");
    if (cfg_build(c, e) < 0) {
        cfg_free(c);
        return -ENOMEM;
    }
    cfg_check_repositories(c);
    cfg_cross_check(c);
    *ret = c;
    return rc < 0 ? -EINVAL : say_errors(c, false, e);
}

const char *cfg_hash(const struct cfg *c)
{
    return c->hash;
}

const struct cfg_daemon *cfg_daemon(const struct cfg *c)
{
    return &c->daemon;
}

const struct cfg_mover *cfg_mover(const struct cfg *c)
{
    return &c->mover;
}

const struct cfg_metrics *cfg_metrics(const struct cfg *c)
{
    return &c->metrics;
}

#define ACCESSOR(fn, array)                                                                                            \
    const struct fn *fn##_at(const struct cfg *c, unsigned i)                                                          \
    {                                                                                                                  \
        return i < c->n_##array ? &c->array[i].pub : NULL;                                                             \
    }
#define BY_NAME(fn, array)                                                                                             \
    const struct fn *fn(const struct cfg *c, const char *wanted)                                                       \
    {                                                                                                                  \
        for (unsigned i = 0; i < c->n_##array; i++)                                                                    \
            if (!strcmp(c->array[i].pub.name, wanted))                                                                 \
                return &c->array[i].pub;                                                                               \
        return NULL;                                                                                                   \
    }
ACCESSOR(cfg_repository, repositories)
ACCESSOR(cfg_class, classes)
ACCESSOR(cfg_job, jobs)
ACCESSOR(cfg_plugin, plugins)
ACCESSOR(cfg_volume, volumes)
ACCESSOR(cfg_rule, rules)
BY_NAME(cfg_repository, repositories)
BY_NAME(cfg_class, classes)
BY_NAME(cfg_job, jobs)
BY_NAME(cfg_plugin, plugins)

/* ---- what matches what ---- */

bool pattern_match(const char *const *patterns, const char *name)
{
    for (; patterns && *patterns; patterns++)
        if (!strcmp(*patterns, name) || fnmatch(*patterns, name, FNM_PATHNAME) == 0)
            return true;
    return false;
}

bool is_pattern(const char *text)
{
    return text[strcspn(text, "*?[")] != '\0';
}

const struct volume_section *volume_section(const struct cfg *c, const char *volume)
{
    for (unsigned i = 0; i < c->n_volumes; i++)
        if (!strcmp(c->volumes[i].pub.name, volume))
            return &c->volumes[i];
    return NULL;
}

const struct cfg_class *cfg_class_of(const struct cfg *c, const char *volume)
{
    const struct volume_section *v = volume_section(c, volume);
    if (v && v->pub.klass[0])
        return cfg_class(c, v->pub.klass);
    for (unsigned i = 0; i < c->n_classes; i++)
        if (pattern_match(c->classes[i].pub.match, volume))
            return &c->classes[i].pub;
    return NULL;
}

bool cfg_job_has(const struct cfg *c, const struct cfg_job *j, const char *volume)
{
    const struct cfg_class *k = cfg_class_of(c, volume);
    for (const char *const *w = j->volumes; w && *w; w++) {
        if (!strncmp(*w, "class:", 6)) {
            if (k && !strcmp(k->name, *w + 6))
                return true;
        } else if (!strcmp(*w, volume) || fnmatch(*w, volume, FNM_PATHNAME) == 0) {
            return true;
        }
    }
    return false;
}

bool cfg_node_matches(const char *const *only_on_node, const char *node)
{
    bool any = false, wanted = false;
    for (const char *const *p = only_on_node; p && *p; p++) {
        bool not = **p == '!';
        bool hit = fnmatch(*p + not, node, 0) == 0;
        if (not &&hit)
            return false;
        any |= !not ;
        wanted |= !not &&hit;
    }
    return wanted || !any;
}

bool cfg_class_here(const struct cfg *c, const struct cfg_class *k)
{
    const char *const *own = k->only_on_node;
    return cfg_node_matches(own && *own ? own : c->daemon.only_on_node, c->daemon.node_name);
}
