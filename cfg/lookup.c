/* SPDX-License-Identifier: GPL-2.0-or-later */
/* lookup.c - look-up in a configuration by number and name, and pattern matching */
#include "cfg/internal.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

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
ACCESSOR(cfg_copy, copies)
ACCESSOR(cfg_class, classes)
ACCESSOR(cfg_job, jobs)
ACCESSOR(cfg_plugin, plugins)
ACCESSOR(cfg_volume, volumes)
BY_NAME(cfg_repository, repositories)
BY_NAME(cfg_copy, copies)
BY_NAME(cfg_class, classes)
BY_NAME(cfg_job, jobs)
BY_NAME(cfg_plugin, plugins)

uint64_t cfg_cache_part(const struct cfg *c)
{
    return c->daemon.cache_max / (c->n_repositories ? c->n_repositories : 1);
}

/* ---- what matches what ---- */

#define SPECIAL "*?[\\" /* characters of fnmatch(3) */
#define LABEL_MAX 1100  /* of LVM a tag has 1024 characters at most */

/* fnmatch(3) is called only if the text before the first special character matches. */
static bool match_one(const char *pattern, const char *name)
{
    const size_t n = strcspn(pattern, SPECIAL);
    if (strncmp(pattern, name, n) != 0)
        return false;
    return pattern[n] ? fnmatch(pattern, name, FNM_PATHNAME) == 0 || !strcmp(pattern, name) : !name[n];
}

bool pattern_match(const char *const *patterns, const char *name)
{
    for (; patterns && *patterns; patterns++)
        if (match_one(*patterns, name))
            return true;
    return false;
}

bool cfg_is_label(const char *word)
{
    const size_t n = strspn(word, "abcdefghijklmnopqrstuvwxyz-");
    return n && word[n] == ':' && word[n + 1] && strncmp(word + n, "://", 3) != 0 && strncmp(word, "class:", 6) != 0;
}

/* Each of the labels with a pattern that names the same kind. */
static bool match_labels(const char *pattern, const char *labels)
{
    const size_t kind = strcspn(pattern, ":") + 1;
    char label[LABEL_MAX + 1];
    while (labels && *labels) {
        const size_t n = strcspn(labels, " ");
        if (n > kind && n < sizeof label && strncmp(pattern, labels, kind) == 0) {
            memcpy(label, labels, n);
            label[n] = '\0';
            if (match_one(pattern, label))
                return true;
        }
        labels += n + (labels[n] == ' ');
    }
    return false;
}

bool subject_match(const char *const *patterns, struct cfg_subject v)
{
    for (const char *const *p = patterns; v.labels && p && *p; p++)
        if (cfg_is_label(*p) && match_labels(*p, v.labels))
            return true;
    return pattern_match(patterns, v.name);
}

bool cfg_word_matches(const char *word, struct cfg_subject v)
{
    const char *const words[] = {word, NULL};
    return subject_match(words, v);
}

bool is_pattern(const char *text)
{
    return text[strcspn(text, "*?[")] != '\0';
}

/* ---- indexes ---- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int index_words(struct arena *a, const char *const *words, struct word_index *ret)
{
    unsigned n = 0, others = 0, labels = 0;
    while (words && words[n])
        n++;
    ret->names = arena_take(a, calloc(n + 1, sizeof *ret->names));
    ret->others = arena_take(a, calloc(n + 1, sizeof *ret->others));
    ret->labels = arena_take(a, calloc(n + 1, sizeof *ret->labels));
    if (!ret->names || !ret->others || !ret->labels)
        return -ENOMEM;
    for (unsigned i = 0; i < n; i++) {
        if (words[i][strcspn(words[i], SPECIAL)] || !strncmp(words[i], "class:", 6))
            ret->others[others++] = words[i];
        else
            ret->names[ret->n_names++] = words[i];
        if (cfg_is_label(words[i]))
            ret->labels[labels++] = words[i];
    }
    qsort(ret->names, ret->n_names, sizeof *ret->names, by_text);
    return 0;
}

static bool index_names(const struct word_index *x, const char *name)
{
    return x->n_names && bsearch(&name, x->names, x->n_names, sizeof *x->names, by_text);
}

static bool index_labels(const struct word_index *x, const char *labels)
{
    for (const char *const *w = (const char *const *)x->labels; labels && *labels && w && *w; w++)
        if (match_labels(*w, labels))
            return true;
    return false;
}

static int by_section_name(const void *a, const void *b)
{
    const struct volume_section *x = *(const struct volume_section *const *)a,
                                *y = *(const struct volume_section *const *)b;
    return strcmp(x->pub.name, y->pub.name);
}

int lookup_index(struct cfg *c)
{
    c->volumes_by_name = calloc(c->n_volumes + 1, sizeof(const struct volume_section *));
    if (!c->volumes_by_name)
        return -ENOMEM;
    for (unsigned i = 0; i < c->n_volumes; i++)
        c->volumes_by_name[i] = &c->volumes[i];
    qsort(c->volumes_by_name, c->n_volumes, sizeof(const struct volume_section *), by_section_name);
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < c->n_classes; i++)
        rc = index_words(&c->arena, c->classes[i].pub.match, &c->classes[i].match);
    for (unsigned i = 0; rc == 0 && i < c->n_jobs; i++)
        rc = index_words(&c->arena, c->jobs[i].pub.volumes, &c->jobs[i].words);
    return rc;
}

static int compare_section(const void *name, const void *section)
{
    return strcmp(name, (*(const struct volume_section *const *)section)->pub.name);
}

const struct volume_section *volume_section(const struct cfg *c, const char *volume)
{
    const struct volume_section *const *found =
        c->n_volumes
            ? bsearch(volume, c->volumes_by_name, c->n_volumes, sizeof(const struct volume_section *), compare_section)
            : NULL;
    return found ? *found : NULL;
}

bool cfg_class_selects(const struct cfg_class *k, struct cfg_subject v)
{
    _Static_assert(offsetof(struct klass, pub) == 0, "what is found by its public part");
    const struct word_index *x = &((const struct klass *)k)->match;
    return index_names(x, v.name) || index_labels(x, v.labels) || pattern_match((const char *const *)x->others, v.name);
}

const struct cfg_class *cfg_class_of(const struct cfg *c, struct cfg_subject v)
{
    const struct volume_section *s = volume_section(c, v.name);
    if (s && s->pub.klass[0])
        return cfg_class(c, s->pub.klass);
    for (unsigned i = 0; i < c->n_classes; i++)
        if (cfg_class_selects(&c->classes[i].pub, v))
            return &c->classes[i].pub;
    return NULL;
}

bool cfg_matches_labels(const struct cfg *c, const struct cfg_class *k)
{
    for (unsigned i = 0; i < c->n_classes; i++)
        if ((!k || &c->classes[i].pub == k) && c->classes[i].match.labels[0])
            return true;
    return false;
}

bool cfg_job_names(const struct cfg_job *j, const struct cfg_class *k, struct cfg_subject v)
{
    _Static_assert(offsetof(struct job, pub) == 0, "what is found by its public part");
    const struct word_index *x = &((const struct job *)j)->words;
    if (index_names(x, v.name) || index_labels(x, v.labels))
        return true;
    for (const char *const *w = (const char *const *)x->others; w && *w; w++) {
        if (!strncmp(*w, "class:", 6)) {
            if (k && !strcmp(k->name, *w + 6))
                return true;
        } else if (match_one(*w, v.name)) {
            return true;
        }
    }
    return false;
}

bool cfg_job_has(const struct cfg *c, const struct cfg_job *j, struct cfg_subject v)
{
    return cfg_job_names(j, cfg_class_of(c, v), v);
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

const char *cfg_repository_place(const struct cfg_repository *r, char out[CFG_PLACE_MAX])
{
    if (strcmp(r->type, "s3") != 0)
        snprintf(out, CFG_PLACE_MAX, "%s", r->path);
    else
        snprintf(out, CFG_PLACE_MAX, "%s%s/%s%s%s", strstr(r->endpoint, "://") ? "" : "https://", r->endpoint,
                 r->bucket, r->prefix[0] ? "/" : "", r->prefix);
    return out;
}
