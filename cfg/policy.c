/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * policy.c - the effective policy of a volume, and its origin
 *
 * Each key is looked up in the sections that apply to the volume, the most specific first; the first value is
 * effective, the others are recorded as overridden.
 */
#include "cfg/internal.h"

#include "base/cleanup.h"

#include <errno.h>
#include <string.h>

#define SCOPES_MAX 8

struct scoped {
    enum cfg_scope scope;
    const struct section *section; /* NULL: only `keeper` applies */
    const struct section
        *keeper; /* in its place for keep-*: Kopia's retention belongs to the volume, regardless of the job */
};

/* Sections that apply to one volume, the most specific first. */
struct sections {
    struct scoped of[SCOPES_MAX];
    unsigned n;
};

struct given {
    const char *value, *origin;
    const char *where; /* file:line in origin, NULL: default */
    enum cfg_scope scope;
};

/* One effective key: what[0] is the value, the rest is overridden. */
struct effective {
    const struct key *key;
    const char *name; /* with the option's name for backup-option.* */
    struct given *what;
    unsigned n, cap;
};

struct cfg_effective {
    struct arena arena;
    struct effective *keys;
    unsigned n, cap;
    bool sized; /* cfg_policy_size() has decided */
};

const char *cfg_scope_name(enum cfg_scope s)
{
    static const char *const names[] = {"daemon", "driver",  "storage-class", "job",
                                        "volume", "default", "policy",        "repository"};
    return names[s];
}

void cfg_policy_clear(struct cfg_policy *p)
{
    struct cfg_effective *f = p->effective;
    if (f) {
        for (unsigned i = 0; i < f->n; i++)
            free(f->keys[i].what);
        free(f->keys);
        arena_clear(&f->arena);
        free(f);
    }
    memset(p, 0, sizeof *p);
}

/* ---- which sections speak ---- */

static void add_scope(struct sections *s, enum cfg_scope scope, const struct section *section)
{
    if (section)
        s->of[s->n++] = (struct scoped){scope, section, section};
}

static bool gives_keep(const struct section *s)
{
    for (unsigned i = 0; s && i < s->n_values; i++)
        if (s->values[i].key->type == V_KEEP)
            return true;
    return false;
}

static const struct section *keeping_job(const struct cfg *c, struct cfg_subject v, const struct section *asked)
{
    if (gives_keep(asked))
        return asked;
    for (unsigned i = 0; v.name && i < c->n_jobs; i++)
        if (gives_keep(&c->sections[c->jobs[i].section]) && cfg_job_has(c, &c->jobs[i].pub, v))
            return &c->sections[c->jobs[i].section];
    return NULL;
}

static void find_volume_section(const struct cfg *c, const char *name, struct sections *ret)
{
    const struct volume_section *v = name ? volume_section(c, name) : NULL;
    *ret = (struct sections){.n = 0};
    add_scope(ret, SCOPE_VOLUME, v ? &c->sections[v->section] : NULL);
}

static void find_general_sections(const struct cfg *c, const struct cfg_class *k, struct sections *ret)
{
    if (k) {
        add_scope(ret, SCOPE_CLASS, section_find(c, KIND_CLASS, k->name));
        add_scope(ret, SCOPE_DRIVER, section_find(c, KIND_DRIVER, k->driver));
    }
    add_scope(ret, SCOPE_DAEMON, section_find(c, KIND_DAEMON, ""));
    add_scope(ret, SCOPE_DAEMON, section_find(c, KIND_MOVER, ""));
}

static void find_sections(const struct cfg *c, struct cfg_subject v, const char *job, const struct cfg_class *k,
                          struct sections *ret)
{
    const struct section *j = job ? section_find(c, KIND_JOB, job) : NULL;
    find_volume_section(c, v.name, ret);
    ret->of[ret->n++] = (struct scoped){SCOPE_JOB, j, keeping_job(c, v, j)};
    find_general_sections(c, k, ret);
}

/* ---- values with their origins ---- */

#define WHERE_MAX (CFG_ORIGIN_MAX - 96)

/* "[storage-class "gold"] file:line" */
static int give_origin(struct given *g, struct arena *a, const char *title, const char *where)
{
    char text[CFG_ORIGIN_MAX];
    snprintf(text, sizeof text, "%s %s", title, where);
    g->origin = arena_text(a, text);
    g->where = g->origin ? g->origin + strlen(title) + 1 : NULL;
    return g->origin ? 0 : -ENOMEM;
}

/* `value` is borrowed for as long as the policy is there; NULL: no memory. */
static struct given *add_given(struct effective *k, const char *value, enum cfg_scope scope)
{
    if (k->n == k->cap) {
        const unsigned cap = k->cap ? 2 * k->cap : 1; /* most keys have their default only */
        struct given *grown = realloc(k->what, cap * sizeof *grown);
        if (!grown)
            return NULL;
        k->what = grown;
        k->cap = cap;
    }
    if (!value)
        return NULL;
    k->what[k->n] = (struct given){.value = value, .scope = scope};
    return &k->what[k->n++];
}

static int add_value(const struct cfg *c, struct cfg_effective *f, struct effective *k, const struct section *s,
                     const struct value *v, enum cfg_scope scope)
{
    char title[80], where[WHERE_MAX];
    struct given *g = add_given(k, arena_text(&f->arena, v->text), scope);
    section_title(s, title, sizeof title);
    origin_text(c, v->file, v->line, where, sizeof where);
    return g ? give_origin(g, &f->arena, title, where) : -ENOMEM;
}

static struct effective *add_key(struct cfg_effective *f, const struct key *key, const char *name)
{
    if (f->n == f->cap) {
        const unsigned cap = f->cap ? 2 * f->cap : n_keys;
        struct effective *grown = realloc(f->keys, cap * sizeof *grown);
        if (!grown)
            return NULL;
        f->keys = grown;
        f->cap = cap;
    }
    f->keys[f->n] = (struct effective){.key = key, .name = name};
    return &f->keys[f->n++];
}

static const struct value *value_find(const struct section *s, const struct key *k, const char *option)
{
    for (unsigned i = 0; i < s->n_values; i++)
        if (s->values[i].key == k && (!option || !strcmp(s->values[i].option, option)))
            return &s->values[i];
    return NULL;
}

/* All values of a key, the most specific first. */
static int values_collect(const struct cfg *c, const struct sections *from, const struct key *k, const char *option,
                          struct cfg_effective *f, struct effective *into)
{
    for (unsigned i = 0; i < from->n; i++) {
        const struct section *s = k->type == V_KEEP ? from->of[i].keeper : from->of[i].section;
        const struct value *v = s ? value_find(s, k, option) : NULL;
        if (v && add_value(c, f, into, s, v, from->of[i].scope) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* The value if none is set; defaults that depend on other values are computed here. */
static const char *default_value(const struct cfg *c, const struct key *k, char *buf, size_t cap)
{
    if (k->pub.default_text[0] != '(')
        return k->pub.default_text;
    if (!strcmp(k->pub.name, "repository"))
        return c->n_repositories == 1 ? c->repositories[0].pub.name : "";
    if (!strcmp(k->pub.name, "max-per-device")) {
        snprintf(buf, cap, "%u", c->daemon.per_device);
        return buf;
    }
    return "";
}

static int one_key(const struct cfg *c, const struct sections *from, const struct key *k, struct cfg_policy *p)
{
    struct cfg_effective *f = p->effective;
    struct effective *e = add_key(f, k, k->pub.name);
    char buf[32];
    if (!e || values_collect(c, from, k, NULL, f, e) < 0)
        return -ENOMEM;
    const char *fallback = default_value(c, k, buf, sizeof buf);
    if (fallback != k->pub.default_text)
        fallback = arena_text(&f->arena, fallback);
    struct given *last = add_given(e, fallback, SCOPE_DEFAULT);
    if (!last)
        return -ENOMEM;
    last->origin = "default";
    if (value_store(k, fallback, &f->arena, p) < 0) /* remains if the effective value is invalid */
        return -ENOMEM;
    return e->n > 1 ? value_store(k, e->what[0].value, &f->arena, p) : 0;
}

/* ---- backup-option.* ---- */

static bool has_option(const struct cfg_effective *f, const struct key *k, const char *name)
{
    for (unsigned i = 0; i < f->n; i++)
        if (f->keys[i].key == k && !strcmp(f->keys[i].name, name))
            return true;
    return false;
}

static int one_option(const struct cfg *c, const struct sections *from, const struct value *v, struct cfg_effective *f)
{
    char name[LINE_MAX_LEN + 32];
    snprintf(name, sizeof name, "%.*s%s", (int)strlen(v->key->pub.name) - 1, v->key->pub.name, v->option);
    if (has_option(f, v->key, name))
        return 0;
    char *copy = arena_text(&f->arena, name);
    struct effective *e = copy ? add_key(f, v->key, copy) : NULL;
    return e ? values_collect(c, from, v->key, v->option, f, e) : -ENOMEM;
}

/* The effective ones as the array passed to drivers. An empty value removes an option. */
static int list_options(struct cfg_policy *p, const struct key *k)
{
    struct cfg_effective *f = p->effective;
    struct cfg_kv *list = arena_take(&f->arena, calloc(f->n + 1, sizeof *list));
    if (!list)
        return -ENOMEM;
    unsigned n = 0;
    for (unsigned i = 0; i < f->n; i++)
        if (f->keys[i].key == k && f->keys[i].what[0].value[0])
            list[n++] = (struct cfg_kv){f->keys[i].name + strlen(k->pub.name) - 1, f->keys[i].what[0].value};
    p->options = list;
    return 0;
}

static int all_options(const struct cfg *c, const struct sections *from, const struct key *k, struct cfg_policy *p)
{
    for (unsigned i = 0; i < from->n; i++) {
        const struct section *s = from->of[i].section;
        for (unsigned n = 0; s && n < s->n_values; n++)
            if (s->values[n].key == k && one_option(c, from, &s->values[n], p->effective) < 0)
                return -ENOMEM;
    }
    return list_options(p, k);
}

/* ---- the whole ---- */

static struct effective *effective_key(struct cfg_effective *f, const char *name)
{
    for (unsigned i = 0; i < f->n; i++)
        if (!strcmp(f->keys[i].name, name))
            return &f->keys[i];
    return NULL;
}

static void set_exclude_reason(struct cfg_policy *p)
{
    struct effective *e = effective_key(p->effective, "exclude");
    p->exclude_reason[0] = '\0';
    if (p->exclude && e)
        snprintf(p->exclude_reason, sizeof p->exclude_reason, "excluded by %s", e->what[0].origin);
}

static int put_first(struct cfg_policy *p, struct effective *e, const char *value, enum cfg_scope scope,
                     const char *title, const char *where)
{
    struct cfg_effective *f = p->effective;
    struct given *g = add_given(e, arena_text(&f->arena, value), scope);
    if (!g || give_origin(g, &f->arena, title, where) < 0)
        return -ENOMEM;
    struct given first = *g;
    memmove(e->what + 1, e->what, (e->n - 1) * sizeof *e->what);
    e->what[0] = first;
    return value_store(e->key, value, &f->arena, p);
}

/* Splitter and compression default to those of the repository. */
static int apply_repository(const struct cfg *c, struct cfg_policy *p)
{
    static const char *const names[] = {"splitter", "compression"};
    const struct section *s = p->repository[0] ? section_find(c, KIND_REPOSITORY, p->repository) : NULL;
    for (unsigned i = 0; s && i < sizeof names / sizeof *names; i++) {
        struct effective *e = effective_key(p->effective, names[i]);
        const struct value *v = section_value(s, names[i]);
        char title[80], where[WHERE_MAX];
        if (!e || !v || e->what[0].scope != SCOPE_DEFAULT)
            continue;
        section_title(s, title, sizeof title);
        origin_text(c, v->file, v->line, where, sizeof where);
        if (put_first(p, e, v->text, SCOPE_REPOSITORY, title, where) < 0)
            return -ENOMEM;
    }
    return 0;
}

static int policy_fill(const struct cfg *c, const struct sections *from, struct cfg_policy *p)
{
    for (unsigned i = 0; i < n_keys; i++) {
        const struct key *k = &key_table[i];
        if (k->place != IN_POLICY)
            continue;
        int rc = k->type == V_OPTIONS ? all_options(c, from, k, p) : one_key(c, from, k, p);
        if (rc < 0)
            return rc;
    }
    set_exclude_reason(p);
    return apply_repository(c, p);
}

static int policy_make(const struct cfg *c, struct cfg_subject v, const char *job, const struct cfg_class *k,
                       struct cfg_policy *ret, struct err *e)
{
    struct sections from;
    memset(ret, 0, sizeof *ret);
    ret->effective = calloc(1, sizeof *ret->effective);
    if (!ret->effective)
        return err_nomem(e);
    if (k) {
        snprintf(ret->klass, sizeof ret->klass, "%s", k->name);
        snprintf(ret->driver, sizeof ret->driver, "%s", k->driver);
    }
    find_sections(c, v, job, k, &from);
    if (policy_fill(c, &from, ret) < 0) {
        cfg_policy_clear(ret);
        return err_nomem(e);
    }
    return 0;
}

int cfg_policy(const struct cfg *c, struct cfg_subject v, const char *job, struct cfg_policy *ret, struct err *e)
{
    int rc = policy_make(c, v, job, cfg_class_of(c, v), ret, e);
    return rc < 0 ? rc : cfg_policy_size(c, ret, v, UINT64_MAX, e);
}

int cfg_policy_of_class(const struct cfg *c, const char *klass, struct cfg_policy *ret, struct err *e)
{
    const struct cfg_class *k = cfg_class(c, klass);
    if (!k) {
        memset(ret, 0, sizeof *ret);
        return err_set(e, ERR_NOT_FOUND, ENOENT, "no [storage-class \"%s\"]", klass);
    }
    return policy_make(c, cfg_named(NULL), NULL, k, ret, e);
}

/* ---- what needs the volume's size ---- */

static bool word_in(const char *const *words, const char *word)
{
    for (; words && *words; words++)
        if (!strcmp(*words, word))
            return true;
    return false;
}

static bool rule_but_size(const struct cfg_rule *r, const struct cfg_class *k, struct cfg_subject v)
{
    return (!r->match || subject_match(r->match, v)) && (!r->classes || (k && word_in(r->classes, k->name))) &&
           (!r->drivers || (k && word_in(r->drivers, k->driver)));
}

static bool in_size(uint64_t size, uint64_t min, uint64_t max)
{
    return size >= min && size <= max;
}

/* The first [policy] that matches a volume of `size` bytes (UINT64_MAX: not known), NULL: none. *open: the size is not
 * known and would decide. */
static const struct cfg_rule *find_rule(const struct cfg *c, struct cfg_subject v, uint64_t size, bool *open)
{
    const struct cfg_class *k = c->n_rules ? cfg_class_of(c, v) : NULL;
    for (unsigned i = 0; i < c->n_rules; i++) {
        const struct cfg_rule *r = &c->rules[i].pub;
        if (!rule_but_size(r, k, v))
            continue;
        bool asks = r->min_size > 0 || r->max_size < UINT64_MAX;
        if (asks && size == UINT64_MAX) {
            *open = true;
            continue;
        }
        if (in_size(size, r->min_size, r->max_size))
            return r;
    }
    return NULL;
}

/* The plugin assigned to a volume whose policy names no mover: the [plugin] of kind mover whose match-* all hold, by
 * highest priority (AP-18); NULL: none, the built-in mover. A plugin without any match-* is never assigned
 * automatically. */
static const struct cfg_plugin *find_plugin(const struct cfg *c, struct cfg_subject v, uint64_t size, bool *open)
{
    const struct cfg_class *k = c->n_plugins ? cfg_class_of(c, v) : NULL;
    const struct cfg_plugin *best = NULL;
    for (unsigned i = 0; i < c->n_plugins; i++) {
        const struct cfg_plugin *g = &c->plugins[i].pub;
        bool by_class = g->match_class && g->match_class[0], by_path = g->match_path && g->match_path[0];
        bool by_size = g->min_size > 0 || g->max_size < UINT64_MAX;
        if (strcmp(g->kind, "mover") != 0 || (!by_class && !by_path && !by_size) ||
            (by_class && (!k || !pattern_match(g->match_class, k->name))) ||
            (by_path && !subject_match(g->match_path, v)) || (best && g->priority <= best->priority))
            continue;
        if (by_size && size == UINT64_MAX)
            *open = true;
        else if (in_size(size, g->min_size, g->max_size))
            best = g;
    }
    return best;
}

/* Sets a value unless a higher-precedence value is set. */
static int value_decide(struct cfg_policy *p, const char *key, const char *value, const char *title, const char *where,
                        bool only_default)
{
    struct effective *e = effective_key(p->effective, key);
    if (!e || e->what[0].scope == SCOPE_VOLUME || (only_default && e->what[0].scope != SCOPE_DEFAULT))
        return 0;
    return put_first(p, e, value, SCOPE_RULE, title, where);
}

static int apply_rule(struct cfg_policy *p, const struct cfg_rule *r)
{
    char title[160], where[WHERE_MAX];
    snprintf(title, sizeof title, "[policy \"%s\"]", r->name);
    snprintf(where, sizeof where, "%s", r->origin);
    if (r->action != ACTION_SKIP)
        return value_decide(p, "move-data", r->action == ACTION_BACKUP ? "yes" : "no", title, where, false);
    int rc = value_decide(p, "exclude", "yes", title, where, false);
    set_exclude_reason(p);
    return rc;
}

static int apply_plugin(struct cfg_policy *p, const struct cfg_plugin *g)
{
    char title[160], where[WHERE_MAX], value[160];
    snprintf(title, sizeof title, "[plugin \"%s\"]", g->name);
    snprintf(where, sizeof where, "%s", g->origin);
    snprintf(value, sizeof value, "plugin:%s", g->name);
    return value_decide(p, "mover", value, title, where, true);
}

int cfg_policy_size(const struct cfg *c, struct cfg_policy *p, struct cfg_subject v, uint64_t size, struct err *e)
{
    if (!p->effective || p->effective->sized)
        return 0;
    bool open = false;
    const struct cfg_rule *r = find_rule(c, v, size, &open);
    const struct cfg_plugin *g = find_plugin(c, v, size, &open);
    if (open)
        return 0; /* called again with the size */
    p->effective->sized = true;
    if ((r && apply_rule(p, r) < 0) || (g && apply_plugin(p, g) < 0))
        return err_nomem(e);
    return 0;
}

/* ---- single values ---- */

/* The most specific section's value of a key that is not keep-*; NULL: it is the default. */
static const struct value *value_in_force(const struct sections *from, const char *key, enum cfg_scope *scope)
{
    for (unsigned i = 0; i < from->n; i++) {
        const struct value *v = section_value(from->of[i].section, key);
        *scope = from->of[i].scope;
        if (v)
            return v;
    }
    *scope = SCOPE_DEFAULT;
    return NULL;
}

bool cfg_excluded(const struct cfg *c, const struct cfg_class *k, struct cfg_subject v, uint64_t size)
{
    struct sections from;
    struct cfg_policy p;
    enum cfg_scope scope;
    bool open = false;
    find_volume_section(c, v.name, &from); /* exclude has its place there and in classes */
    add_scope(&from, SCOPE_CLASS, k ? &c->sections[((const struct klass *)k)->section] : NULL);
    const struct value *x = value_in_force(&from, "exclude", &scope);
    p.exclude = false;
    if (x)
        (void)value_store(x->key, x->text, NULL, &p);
    if (p.exclude || scope == SCOPE_VOLUME || !c->n_rules)
        return p.exclude;
    const struct cfg_rule *r = find_rule(c, v, size, &open);
    (void)find_plugin(c, v, size, &open); /* as cfg_policy_size(): one that asks for the size leaves all open */
    return r && r->action == ACTION_SKIP && !open;
}

unsigned cfg_pool_high_water(const struct cfg *c, struct cfg_subject v)
{
    static const char key[] = "pool-high-water";
    const struct key *k = key_anywhere(key);
    struct sections from;
    struct cfg_policy p;
    enum cfg_scope scope;
    find_volume_section(c, v.name, &from);
    find_general_sections(c, cfg_class_of(c, v), &from);
    const struct value *x = value_in_force(&from, key, &scope);
    p.pool_high_water = 0;
    (void)value_store(k, k->pub.default_text, NULL, &p);
    if (x)
        (void)value_store(x->key, x->text, NULL, &p);
    return p.pool_high_water;
}

bool cfg_jobs_retain(const struct cfg *c, struct cfg_subject v)
{
    const struct key *k = key_anywhere("snapshots-to-retain");
    struct sections from;
    find_volume_section(c, v.name, &from); /* its number is above those of jobs */
    if (from.n && value_find(from.of[0].section, k, NULL))
        return false;
    for (unsigned i = 0; v.name && i < c->n_jobs; i++)
        if (value_find(&c->sections[c->jobs[i].section], k, NULL) && cfg_job_has(c, &c->jobs[i].pub, v))
            return true;
    return false;
}

/* ---- explain ---- */

const char *cfg_policy_where(const struct cfg_policy *p, const char *key)
{
    const struct effective *e = p->effective ? effective_key(p->effective, key) : NULL;
    return e ? e->what[0].where : NULL;
}

enum cfg_scope cfg_policy_scope(const struct cfg_policy *p, const char *key)
{
    const struct effective *e = p->effective ? effective_key(p->effective, key) : NULL;
    return e ? e->what[0].scope : SCOPE_DEFAULT;
}

static json_t *given_json(const struct given *g)
{
    return json_pack("{s:s, s:s, s:s}", "value", g->value, "origin", g->origin, "scope", cfg_scope_name(g->scope));
}

static json_t *effective_json(const struct effective *k)
{
    json_t *o = given_json(&k->what[0]), *over = json_array();
    for (unsigned i = 1; i < k->n; i++)
        json_array_append_new(over, given_json(&k->what[i]));
    json_object_set_new(o, "overrides", over);
    return o;
}

json_t *cfg_policy_json(const struct cfg_policy *p)
{
    json_t *o = json_object();
    for (unsigned i = 0; p->effective && i < p->effective->n; i++)
        json_object_set_new(o, p->effective->keys[i].name, effective_json(&p->effective->keys[i]));
    return o;
}
