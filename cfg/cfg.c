/* SPDX-License-Identifier: GPL-2.0-or-later */
/* cfg.c - loading and freeing a configuration */
#include "cfg/internal.h"

#include "base/cleanup.h"
#include "base/units.h"

#include <errno.h>
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
    free(c->copies);
    free(c->classes);
    free(c->jobs);
    free(c->plugins);
    free(c->volumes);
    free(c->volumes_by_name);
    free(c->rules);
    arena_clear(&c->arena);
    free(c);
}

/* The first error and the number of further ones, as one message. */
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
        err_set(e, ERR_USAGE, EINVAL, "%s: %s (and %u more error%s in the configuration)", first->pub.where,
                first->pub.text, n - 1, plural(n - 1));
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
    cfg_check_removed(c);
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
        return err_set(e, ERR_USAGE, ENAMETOOLONG, "configuration directory name too long");
    struct cfg *c = cfg_new(e);
    if (!c)
        return -ENOMEM;
    int rc = cfg_read(c, file, 2, e);
    if (rc == -ENOMEM) {
        cfg_free(c);
        return rc;
    }
    if (rc < 0)
        complain(c, CFG_ERROR, 0, 0, false, e ? e->hint : NULL, "%s", e ? e->msg : "cannot read the configuration");
    if (cfg_build(c, e) < 0) {
        cfg_free(c);
        return -ENOMEM;
    }
    cfg_check_removed(c);
    cfg_check_repositories(c);
    cfg_cross_check(c);
    *ret = c;
    return rc < 0 ? -EINVAL : say_errors(c, false, e);
}

int cfg_node_name(const struct cfg *c, char out[256], struct err *e)
{
    const struct section *s = section_find(c, KIND_DAEMON, "");
    const struct value *v = s ? section_value(s, "node-name") : NULL;
    const bool set = v && v->text[0];
    if (!set && c->n_errors) {
        const struct cfg_complaint *first;
        for (unsigned i = 0; (first = cfg_complaint_at(c, i)) && first->severity != CFG_ERROR;)
            i++;
        return err_set(e, ERR_USAGE, EINVAL,
                       "the node's name is not certain, as the configuration has an error: %s: %s",
                       first ? first->where : "", first ? first->text : "");
    }
    snprintf(out, 256, "%s", c->daemon.node_name);
    return 0;
}
