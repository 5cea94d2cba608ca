/* SPDX-License-Identifier: GPL-2.0-or-later */
/* rules.c - checks of the whole configuration: names without a section, contradictions, unused sections */
#include "cfg/internal.h"
#include "base/units.h"

#include <errno.h>
#include <fnmatch.h>
#include <string.h>

#define DELETE_AFTER_MIN 86400 /* seconds */
#define SECTION_OF(c, array, i) (&(c)->sections[(c)->array[i].section])

static bool has_key(const struct section *s, const char *key)
{
    const struct value *v = section_value(s, key);
    return v && v->text[0];
}

/* A key that must be set and not be empty. */
static bool lacks_key(struct cfg *c, const struct section *s, const char *key)
{
    if (has_key(s, key))
        return false;
    char title[80];
    section_title(s, title, sizeof title);
    if (!s->broken)
        complain_value(c, CFG_ERROR, s, section_value(s, key), NULL, "%s has no %s", title, key);
    return true;
}

/* Names of sections of one kind, for the nearest. */
struct names {
    const struct cfg *c;
    enum kind kind;
};
static const char *name_at(unsigned i, void *arg)
{
    const struct names *n = arg;
    for (unsigned k = 0; k < n->c->n_sections; k++)
        if (n->c->sections[k].kind == n->kind && i-- == 0)
            return n->c->sections[k].name;
    return NULL;
}

const char *cfg_near_job(const struct cfg *c, const char *name)
{
    struct names n = {c, KIND_JOB};
    return nearest_meant(name, name_at, &n);
}

const char *cfg_near_class(const struct cfg *c, const char *name)
{
    struct names n = {c, KIND_CLASS};
    return nearest_meant(name, name_at, &n);
}

const char *cfg_near_copy(const struct cfg *c, const char *name)
{
    struct names n = {c, KIND_COPY};
    return nearest_meant(name, name_at, &n);
}

const char *cfg_near_repository(const struct cfg *c, const char *name)
{
    struct names n = {c, KIND_REPOSITORY};
    return nearest_meant(name, name_at, &n);
}

/* "; the nearest known is NAME" if it may be a slip. */
static void unknown_section(struct cfg *c, const struct section *s, const struct value *v, enum kind kind,
                            const char *name)
{
    struct names n = {c, kind};
    const char *near = nearest_meant(name, name_at, &n);
    if (near)
        complain_value(c, CFG_ERROR, s, v, NULL, "%s: no [%s \"%s\"]; the nearest known is \"%s\"", v->key->pub.name,
                       kind_names[kind], name, near);
    else
        complain_value(c, CFG_ERROR, s, v, NULL, "%s: no [%s \"%s\"]", v->key->pub.name, kind_names[kind], name);
}

/* ---- repositories ---- */

static const char *const s3_keys[] = {"endpoint",    "bucket",  "prefix",       "region",
                                      "credentials", "ca-file", "virtual-host", "parallel-puts"};

static void check_s3(struct cfg *c, const struct section *s)
{
    if (has_key(s, "path"))
        complain_value(c, CFG_ERROR, s, section_value(s, "path"), NULL,
                       "path belongs to type = filesystem; s3 has endpoint, bucket and prefix");
    static const char *const required[] = {"endpoint", "bucket", "credentials"};
    for (size_t i = 0; i < sizeof required / sizeof *required; i++)
        lacks_key(c, s, required[i]);
    const struct value *v = section_value(s, "endpoint");
    if (v && strstr(v->text, "://") && strncmp(v->text, "http://", 7) != 0 && strncmp(v->text, "https://", 8) != 0)
        complain_value(c, CFG_ERROR, s, v, "write https://HOST or https://HOST:PORT",
                       "endpoint: neither https nor http");
    else if (v && !strncmp(v->text, "http://", 7))
        complain_value(c, CFG_WARNING, s, v, "use https:// where the network is not your own",
                       "endpoint: the connection is not encrypted; the data is, by the repository's password");
    v = section_value(s, "prefix");
    if (v && v->text[0] == '/')
        complain_value(c, CFG_ERROR, s, v, NULL, "prefix: a key does not begin with a slash");
}

static void check_filesystem(struct cfg *c, const struct section *s)
{
    lacks_key(c, s, "path");
    /* Ignored it would be what is there now, and written to. */
    if (has_key(s, "point-in-time"))
        complain_value(c, CFG_ERROR, s, NULL, "snapshots of its file system are what a directory has instead",
                       "point-in-time belongs to type = s3: a directory has no versions");
    for (size_t i = 0; i < sizeof s3_keys / sizeof *s3_keys; i++)
        if (has_key(s, s3_keys[i]))
            complain_value(c, CFG_WARNING, s, section_value(s, s3_keys[i]), NULL,
                           "%s is not used with type = filesystem", s3_keys[i]);
}

/* Trailing slashes are ignored. */
static bool same_path(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    while (n > 1 && a[n - 1] == '/')
        n--;
    while (m > 1 && b[m - 1] == '/')
        m--;
    return n == m && !memcmp(a, b, n);
}

static void check_other_nodes(struct cfg *c, const struct section *s, const struct cfg_repository *r)
{
    const struct value *v = section_value(s, "other-nodes");
    for (const char *const *n = v ? r->other_nodes : NULL; n && *n; n++) {
        if (is_pattern(*n) || strchr(*n, '!'))
            complain_value(c, CFG_ERROR, s, v, "list each node by its node-name",
                           "other-nodes: %s is a pattern; names are expected", *n);
        else if (strlen(*n) > 255)
            complain_value(c, CFG_ERROR, s, v, NULL, "other-nodes: a name is longer than 255 bytes");
        else if (!strcmp(*n, c->daemon.node_name))
            complain_value(c, CFG_ERROR, s, v, "remove it: the backups of this node are in its records anyway",
                           "other-nodes: %s is this node", *n);
    }
}

void cfg_check_repositories(struct cfg *c)
{
    for (unsigned i = 0; i < c->n_repositories; i++) {
        const struct section *s = SECTION_OF(c, repositories, i);
        const struct cfg_repository *r = &c->repositories[i].pub;
        if (r->at_ns)
            c->repositories[i].pub.maintenance = false; /* it would write */
        if (!strcmp(r->type, "s3"))
            check_s3(c, s);
        else
            check_filesystem(c, s);
        check_other_nodes(c, s, r);
        for (unsigned k = 0; k < i; k++)
            if (r->path[0] && same_path(r->path, c->repositories[k].pub.path))
                complain_value(c, CFG_ERROR, s, section_value(s, "path"), NULL,
                               "[repository \"%s\"] has the same path as [repository \"%s\"]", r->name,
                               c->repositories[k].pub.name);
    }
}

/* ---- copies ---- */

static bool same_place(const struct cfg_repository *a, const struct cfg_repository *b)
{
    if (strcmp(a->type, b->type) != 0)
        return false;
    if (strcmp(a->type, "s3") != 0)
        return a->path[0] && same_path(a->path, b->path);
    return a->bucket[0] && !strcmp(a->endpoint, b->endpoint) && !strcmp(a->bucket, b->bucket) &&
           !strcmp(a->prefix, b->prefix);
}

/* A directory in the other: its files would be taken for blobs of the other. */
static bool is_inside(const char *path, const char *dir)
{
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/')
        n--;
    return n > 1 && !strncmp(path, dir, n) && path[n] == '/' && path[n + strspn(path + n, "/")];
}

static void check_copy_place(struct cfg *c, const struct section *s, const struct cfg_copy *k)
{
    for (unsigned i = 0; i < c->n_repositories; i++) {
        const struct cfg_repository *r = &c->repositories[i].pub;
        if (same_place(&k->place, r))
            complain_value(c, CFG_ERROR, s, section_value(s, "path"), NULL,
                           "[copy \"%s\"] is at the place of [repository \"%s\"]", k->name, r->name);
        else if (k->place.path[0] && r->path[0] &&
                 (is_inside(k->place.path, r->path) || is_inside(r->path, k->place.path)))
            complain_value(c, CFG_ERROR, s, section_value(s, "path"), NULL,
                           "[copy \"%s\"] and [repository \"%s\"]: one is in the other", k->name, r->name);
    }
    for (const struct copy *o = c->copies; &o->pub != k; o++)
        if (same_place(&k->place, &o->pub.place))
            complain_value(c, CFG_ERROR, s, section_value(s, "path"), NULL,
                           "[copy \"%s\"] is at the place of [copy \"%s\"]", k->name, o->pub.name);
}

static void check_copies(struct cfg *c)
{
    for (unsigned i = 0; i < c->n_copies; i++) {
        const struct section *s = SECTION_OF(c, copies, i);
        const struct cfg_copy *k = &c->copies[i].pub;
        if (!strcmp(k->place.type, "s3"))
            check_s3(c, s);
        else
            check_filesystem(c, s);
        if (!k->repository[0] && c->n_repositories)
            complain_value(c, CFG_ERROR, s, NULL, "set repository = NAME",
                           "[copy \"%s\"]: repository not set, and there are %u repositories", k->name,
                           c->n_repositories);
        else if (!k->repository[0])
            complain_value(c, CFG_ERROR, s, NULL, NULL, "[copy \"%s\"]: there is no [repository] section", k->name);
        if (cfg_repository(c, k->name))
            complain_value(c, CFG_ERROR, s, NULL, "`snapferry -r NAME` could mean either",
                           "[copy \"%s\"] has the name of a [repository]", k->name);
        if (k->delete_after_s && k->delete_after_s < DELETE_AFTER_MIN)
            complain_value(c, CFG_ERROR, s, section_value(s, "delete-after"), NULL,
                           "delete-after: at least a day, or 0 for never");
        check_copy_place(c, s, k);
    }
}

/* ---- references to sections ---- */

static void check_mover(struct cfg *c, const struct section *s, const struct value *v)
{
    const char *name = v->text + 7;
    if (strncmp(v->text, "plugin:", 7) != 0)
        return;
    const struct cfg_plugin *g = cfg_plugin(c, name);
    if (!g)
        unknown_section(c, s, v, KIND_PLUGIN, name);
    else if (g->kind[0] && strcmp(g->kind, "mover") != 0)
        complain_value(c, CFG_ERROR, s, v, NULL, "mover: [plugin \"%s\"] is of kind %s, not mover", name, g->kind);
}

static void check_references(struct cfg *c, const struct section *s)
{
    for (unsigned i = 0; i < s->n_values; i++) {
        const struct value *v = &s->values[i];
        const char *key = v->key->pub.name;
        if (!v->text[0])
            continue;
        if (!strcmp(key, "repository") && !cfg_repository(c, v->text))
            unknown_section(c, s, v, KIND_REPOSITORY, v->text);
        else if (!strcmp(key, "backup-storage-class") && !cfg_class(c, v->text))
            unknown_section(c, s, v, KIND_CLASS, v->text);
        else if (v->key->type == V_MOVER)
            check_mover(c, s, v);
    }
}

/* ---- removed keys ---- */

void cfg_check_removed(struct cfg *c)
{
    for (unsigned i = 0; i < c->n_sections; i++) {
        const struct section *s = &c->sections[i];
        for (unsigned k = 0; k < s->n_values; k++) {
            const struct removed_key *r = removed_of(s->values[k].key);
            if (r)
                complain_value(c, CFG_WARNING, s, &s->values[k],
                               s->values[k].text[0] ? r->instead : "empty value: delete the line",
                               "%s was removed in %s", r->key.pub.name, r->since);
        }
    }
}

/* ---- daemon ---- */

static void check_daemon(struct cfg *c)
{
    const struct section *s = section_find(c, KIND_DAEMON, "");
    const struct value *v = section_value(s, "node-name");
    if (v && (!v->text[0] || strpbrk(v->text, "@:/+")))
        complain_value(c, CFG_ERROR, s, v, NULL, "invalid node-name \"%s\": letters, digits, dots, - and _ allowed",
                       v->text);
    v = section_value(s, "slots");
    if (v && c->daemon.slots == 0)
        complain_value(c, CFG_WARNING, s, v, NULL, "slots = 0: maintenance mode, no operations start");
}

/* ---- metrics ---- */

static void check_metrics(struct cfg *c)
{
    const struct section *s = section_find(c, KIND_METRICS, "");
    const struct cfg_metrics *m = &c->metrics;
    for (const char *const *w = m->listen; w && *w && w[1]; w++)
        complain_value(c, CFG_WARNING, s, section_value(s, "listen"),
                       "one address since 0.2; use a reverse proxy for others, see snapferry-metrics(7)",
                       "listen: metrics are not served at %s, only at %s", w[1], m->listen[0]);
    size_t n = strlen(m->textfile);
    if (n && (n < 6 || strcmp(m->textfile + n - 5, ".prom") != 0))
        complain_value(c, CFG_ERROR, s, section_value(s, "textfile"), NULL,
                       "textfile: node_exporter only reads files *.prom, not %s", m->textfile);
}

/* ---- plugins ---- */

/* The part of a pattern before its first wildcard. */
static size_t literal_len(const char *pattern)
{
    return strcspn(pattern, "*?[");
}

/* Whether two patterns may match the same name, as far as their literal beginnings tell. Any volume may have a label.
 */
static bool may_meet(const char *a, const char *b)
{
    if (cfg_is_label(a) || cfg_is_label(b))
        return true;
    size_t n = literal_len(a), m = literal_len(b), least = n < m ? n : m;
    if (!a[n] || !b[m])
        return !strcmp(a, b) || fnmatch(a, b, FNM_PATHNAME) == 0 || fnmatch(b, a, FNM_PATHNAME) == 0;
    return !strncmp(a, b, least);
}

static bool lists_may_meet(const char *const *a, const char *const *b)
{
    if (!a || !*a || !b || !*b)
        return true;
    for (; *a; a++)
        for (const char *const *k = b; *k; k++)
            if (may_meet(*a, *k))
                return true;
    return false;
}

static bool is_assigned_automatically(const struct cfg_plugin *g)
{
    return !strcmp(g->kind, "mover") && ((g->match_class && *g->match_class) || (g->match_path && *g->match_path) ||
                                         g->min_size > 0 || g->max_size < UINT64_MAX);
}

static void check_ambiguity(struct cfg *c, unsigned i)
{
    const struct cfg_plugin *g = &c->plugins[i].pub;
    for (unsigned k = 0; k < i; k++) {
        const struct cfg_plugin *o = &c->plugins[k].pub;
        if (is_assigned_automatically(g) && is_assigned_automatically(o) && g->priority == o->priority &&
            lists_may_meet(g->match_class, o->match_class) && lists_may_meet(g->match_path, o->match_path) &&
            g->min_size <= o->max_size && o->min_size <= g->max_size)
            complain_value(c, CFG_ERROR, SECTION_OF(c, plugins, i), NULL,
                           "set different priorities, or name the plugin with mover = plugin:NAME",
                           "[plugin \"%s\"] and [plugin \"%s\"] may match the same volume with the same priority %u",
                           g->name, o->name, g->priority);
    }
}

static void check_plugins(struct cfg *c)
{
    for (unsigned i = 0; i < c->n_plugins; i++) {
        const struct section *s = SECTION_OF(c, plugins, i);
        const struct cfg_plugin *g = &c->plugins[i].pub;
        lacks_key(c, s, "kind");
        lacks_key(c, s, "program");
        if (g->min_size > g->max_size)
            complain_value(c, CFG_ERROR, s, section_value(s, "min-size"), NULL, "min-size is larger than max-size");
        check_ambiguity(c, i);
    }
}

/* ---- classes ---- */

static bool is_lvm(const char *driver)
{
    return !strcmp(driver, "lvm-thin") || !strcmp(driver, "lvm");
}

static bool is_zfs(const char *driver)
{
    return !strcmp(driver, "zfs");
}

static bool names_paths(const char *driver)
{
    return !strcmp(driver, "reflink") || !strcmp(driver, "device") || is_lvm(driver) || is_zfs(driver);
}

/* What drivers say of their volumes besides the name. */
static const struct {
    const char *driver, *kinds[4];
} labels[] = {{"lvm-thin", {"vg:", "pool:", "tag:"}},
              {"lvm", {"vg:", "tag:"}},
              {"zfs", {"dataset:", "pool:", "tag:"}},
              {"rbd", {"pool:", "tag:"}}};

/* Whether the driver (NULL: any) has labels of that kind. */
static bool label_known(const char *driver, const char *word)
{
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++)
        for (const char *const *k = labels[i].kinds; (!driver || !strcmp(driver, labels[i].driver)) && *k; k++)
            if (cfg_is_label(word) && !strncmp(word, *k, strlen(*k)))
                return true;
    return false;
}

static void check_class_word(struct cfg *c, const struct section *s, const struct value *v, const char *driver,
                             const char *word)
{
    if (!strcmp(driver, "nbd") && strncmp(word, "nbd+unix:///", 12) != 0 && strncmp(word, "nbd://", 6) != 0)
        complain_value(c, CFG_ERROR, s, v, "nbd+unix:///EXPORT?socket=PATH or nbd://HOST:PORT/EXPORT",
                       "match: volumes of driver nbd are addresses of exports, not \"%s\"", word);
    if (!strcmp(driver, "qemu") && strncmp(word, "qemu:///", 8) != 0)
        complain_value(c, CFG_ERROR, s, v, "qemu:///PATH/OF/QMP.sock/NODE",
                       "match: volumes of driver qemu are drives of machines, not \"%s\"", word);
    if (!strcmp(driver, "rbd") && !label_known(driver, word) && (*word == '/' || !strchr(word, '/')))
        complain_value(c, CFG_ERROR, s, v, "or POOL/NAMESPACE/IMAGE, with * for a part",
                       "match: volumes of driver rbd are POOL/IMAGE, pool: or tag:, not \"%s\"", word);
    if (!names_paths(driver) || *word == '/' || label_known(driver, word))
        return;
    if (is_lvm(driver))
        complain_value(c, CFG_ERROR, s, v,
                       strcmp(driver, "lvm") ? "a pool is pool:GROUP/POOL, a tag of a volume tag:NAME"
                                             : "a volume group is vg:NAME, a tag of a volume tag:NAME",
                       "match: volumes of driver %s are paths, vg:, %stag:, not \"%s\"", driver,
                       strcmp(driver, "lvm") ? "pool: or " : "or ", word);
    else if (is_zfs(driver))
        complain_value(c, CFG_ERROR, s, v,
                       strchr(word, '/') ? "by its name a volume is dataset:POOL/PATH"
                                         : "a pool is pool:NAME, a user property tag:NAME",
                       "match: volumes of driver zfs are paths (/dev/zvol/POOL/PATH), dataset:, pool: or tag:, not "
                       "\"%s\"",
                       word);
    else
        complain_value(c, CFG_ERROR, s, v, NULL, "match: volumes of driver %s are absolute paths, not \"%s\"", driver,
                       word);
}

static bool is_intermediate_of(const struct cfg *c, const char *klass)
{
    for (unsigned i = 0; i < c->n_sections; i++) {
        const struct value *v = section_value(&c->sections[i], "backup-storage-class");
        if (v && !strcmp(v->text, klass))
            return true;
    }
    return false;
}

static void check_class_driver(struct cfg *c, const struct section *s, const struct cfg_class *k)
{
    const struct value *v = section_value(s, "driver");
    if (lacks_key(c, s, "driver") || !k->plugin[0])
        return;
    const struct cfg_plugin *g = cfg_plugin(c, k->plugin);
    if (!g)
        unknown_section(c, s, v, KIND_PLUGIN, k->plugin);
    else if (g->kind[0] && strcmp(g->kind, "driver") != 0)
        complain_value(c, CFG_ERROR, s, v, NULL, "driver: [plugin \"%s\"] is of kind %s, not driver", k->plugin,
                       g->kind);
}

static void check_class_patterns(struct cfg *c, unsigned i)
{
    const struct section *s = SECTION_OF(c, classes, i);
    const struct cfg_class *k = &c->classes[i].pub;
    const struct value *v = section_value(s, "match");
    bool paths = names_paths(k->driver);
    for (const char *const *w = k->match; w && *w; w++) {
        check_class_word(c, s, v, k->driver, *w);
        for (unsigned o = 0; o < i; o++)
            for (const char *const *x = c->classes[o].pub.match; x && *x; x++)
                if (!strcmp(*w, *x))
                    complain_value(c, CFG_WARNING, s, v, "the first class in file order wins",
                                   "match: \"%s\" already belongs to [storage-class \"%s\"]", *w,
                                   c->classes[o].pub.name);
    }
    if (paths && !is_lvm(k->driver) && !is_zfs(k->driver) && k->target[0] && k->target[0] != '/')
        complain_value(c, CFG_ERROR, s, section_value(s, "target"), NULL,
                       "target of driver %s must be an absolute path, not \"%s\"", k->driver, k->target);
}

/* Contradictions in the policy of a class's volumes. */
static void check_class_policy(struct cfg *c, const struct section *s, const struct cfg_class *k)
{
    struct cfg_policy p;
    if (cfg_policy_of_class(c, k->name, &p, NULL) < 0)
        return;
    const struct value *repo = section_value(s, "repository");
    if (p.move_data && !p.mover[0] && !p.repository[0] && k->match && *k->match) {
        if (c->n_repositories)
            complain_value(c, CFG_ERROR, s, repo, "set repository = NAME in the class or in [daemon]",
                           "[storage-class \"%s\"]: repository not set, and there are %u repositories", k->name,
                           c->n_repositories);
        else
            complain_value(c, CFG_ERROR, s, repo, "add one, or set move-data = no",
                           "[storage-class \"%s\"] moves data, but there is no [repository] section", k->name);
    }
    const struct cfg_repository *r = p.repository[0] ? cfg_repository(c, p.repository) : NULL;
    if (r && p.move_data && !p.mover[0] && k->match && *k->match && !r->password_file[0])
        complain_value(c, CFG_ERROR, section_find(c, KIND_REPOSITORY, r->name), NULL, NULL,
                       "[repository \"%s\"] has no password-file: the daemon cannot open it", r->name);
    if (r && r->at_ns && p.move_data && !p.mover[0] && k->match && *k->match)
        complain_value(c, CFG_ERROR, s, repo, "back up to another repository, or remove point-in-time",
                       "[storage-class \"%s\"] backs up to [repository \"%s\"], which is read only: point-in-time",
                       k->name, r->name);
    cfg_policy_clear(&p);
}

/* Contradictory numbers in one policy; reported at the most specific section. */
static void check_numbers(struct cfg *c, const struct section *s, const struct cfg_policy *p)
{
    unsigned need = p->move_data ? p->snapshots_to_retain + 1 : p->snapshot_only_keep + 1;
    if (p->max_snapshots_per_volume < need)
        complain_value(c, CFG_ERROR, s, section_value(s, p->move_data ? "snapshots-to-retain" : "snapshot-only-keep"),
                       "one more than are retained must be allowed while the new one is taken",
                       "max-snapshots-per-volume = %u is too low to retain %u native snapshot%s",
                       p->max_snapshots_per_volume, need - 1, plural(need - 1));
    if (p->retry_first_s > p->retry_max_s)
        complain_value(c, CFG_ERROR, s, section_value(s, "retry-first"), NULL,
                       "retry-first (%lld s) is longer than retry-max (%lld s)", (long long)p->retry_first_s,
                       (long long)p->retry_max_s);
    if (p->snapshot_timeout_s > p->prepare_timeout_s)
        complain_value(c, CFG_ERROR, s, section_value(s, "snapshot-timeout"), NULL,
                       "snapshot-timeout (%lld s) is longer than prepare-timeout (%lld s)",
                       (long long)p->snapshot_timeout_s, (long long)p->prepare_timeout_s);
    int64_t least = p->limits.memory + p->limits.index_memory;
    if (p->limits.memory_max && p->limits.memory_max < least)
        complain_value(c, CFG_ERROR, s, section_value(s, "memory-max"), "0: computed",
                       "memory-max is less than memory + index-memory: %lld of %lld bytes",
                       (long long)p->limits.memory_max, (long long)least);
}

/* Whether the section itself sets one of the numbers; others are reported at their own section. */
static bool sets_numbers(const struct section *s)
{
    static const char *const keys[] = {
        "snapshots-to-retain", "max-snapshots-per-volume", "snapshot-only-keep", "move-data", "retry-first",
        "retry-max",           "snapshot-timeout",         "prepare-timeout",    "memory",    "index-memory",
        "memory-max"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (section_value(s, keys[i]))
            return true;
    return false;
}

static void check_classes(struct cfg *c)
{
    for (unsigned i = 0; i < c->n_classes; i++) {
        const struct section *s = SECTION_OF(c, classes, i);
        const struct cfg_class *k = &c->classes[i].pub;
        check_class_driver(c, s, k);
        check_class_patterns(c, i);
        check_class_policy(c, s, k);
        struct cfg_policy p;
        if (cfg_policy_of_class(c, k->name, &p, NULL) == 0) {
            check_numbers(c, s, &p);
            cfg_policy_clear(&p);
        }
        if ((!k->match || !*k->match) && !is_intermediate_of(c, k->name))
            complain_value(c, CFG_WARNING, s, section_value(s, "match"), NULL,
                           "[storage-class \"%s\"] has no volumes and is not a backup-storage-class", k->name);
    }
}

static void check_drivers(struct cfg *c)
{
    for (unsigned i = 0; i < c->n_sections; i++) {
        const struct section *s = &c->sections[i];
        bool used = s->kind != KIND_DRIVER;
        for (unsigned k = 0; k < c->n_classes && !used; k++)
            used = !strcmp(c->classes[k].pub.driver, s->name);
        if (!used)
            complain_value(c, CFG_WARNING, s, NULL, NULL, "[driver \"%s\"]: no storage class has this driver", s->name);
    }
}

/* ---- volumes ---- */

static void check_volume_class(struct cfg *c, const struct section *s, const struct cfg_volume *v)
{
    const struct value *value = section_value(s, "class");
    const struct cfg_class *k = cfg_class_of(c, cfg_named(v->name));
    if (!v->klass[0]) {
        if (!k && !cfg_matches_labels(c, NULL))
            complain_value(c, CFG_WARNING, s, NULL, "add it to the match of a class, or set class = NAME",
                           "[volume \"%s\"] is in no storage class: it is not backed up", s->name);
    } else if (!k) {
        unknown_section(c, s, value, KIND_CLASS, v->klass);
    } else if (!k->match || !*k->match) {
        complain_value(c, CFG_ERROR, s, value, "a class with an empty match holds intermediates only",
                       "class: [storage-class \"%s\"] has no volumes of its own", k->name);
    }
}

static void check_volumes(struct cfg *c)
{
    for (unsigned i = 0; i < c->n_volumes; i++) {
        const struct section *s = SECTION_OF(c, volumes, i);
        const struct cfg_volume *v = &c->volumes[i].pub;
        if (!v->name[0])
            complain_value(c, CFG_ERROR, s, section_value(s, "name"), NULL, "name must not be empty");
        for (unsigned k = 0; k < i; k++)
            if (!strcmp(v->name, c->volumes[k].pub.name))
                complain_value(c, CFG_ERROR, s, section_value(s, "name"), NULL,
                               "[volume \"%s\"] and [volume \"%s\"] are the same volume", s->name,
                               SECTION_OF(c, volumes, k)->name);
        if (is_pattern(v->name))
            complain_value(c, CFG_WARNING, s, NULL, "use patterns in the match of a storage class",
                           "[volume \"%s\"] applies only to the volume of exactly that name", s->name);
        check_volume_class(c, s, v);
        struct cfg_policy p;
        if (sets_numbers(s) && cfg_policy(c, cfg_named(v->name), NULL, &p, NULL) == 0) {
            check_numbers(c, s, &p);
            cfg_policy_clear(&p);
        }
    }
}

/* ---- jobs ---- */

static void check_job_words(struct cfg *c, unsigned i)
{
    const struct section *s = SECTION_OF(c, jobs, i);
    const struct value *v = section_value(s, "volumes");
    for (const char *const *w = c->jobs[i].pub.volumes; w && *w; w++) {
        if (!strncmp(*w, "class:", 6)) {
            const struct cfg_class *k = cfg_class(c, *w + 6);
            if (!k)
                unknown_section(c, s, v, KIND_CLASS, *w + 6);
            else if (!k->match || !*k->match)
                complain_value(c, CFG_ERROR, s, v, NULL, "volumes: [storage-class \"%s\"] has no volumes of its own",
                               k->name);
        } else if (!is_pattern(*w) && !cfg_class_of(c, cfg_named(*w)) && !label_known(NULL, *w) &&
                   (cfg_is_label(*w) || !cfg_matches_labels(c, NULL))) {
            complain_value(c, CFG_WARNING, s, v, "add it to the match of a class, or a [volume] section with class =",
                           "volumes: \"%s\" is in no storage class: it is not backed up", *w);
        }
    }
}

/* The keep-* of a job as one text, without those that [volume] overrides. */
static void keep_text(const struct section *job, const struct section *volume, char *out, size_t cap)
{
    size_t n = 0;
    out[0] = '\0';
    for (unsigned i = 0; i < n_keys && n < cap; i++) {
        const struct key *k = &key_table[i];
        if (k->type != V_KEEP || (volume && section_value(volume, k->pub.name)))
            continue;
        const struct value *v = section_value(job, k->pub.name);
        if (v && v->text[0])
            n += (size_t)snprintf(out + n, cap - n, "%s%s = %s", n ? ", " : "", k->pub.name, v->text);
    }
}

/* Two jobs with `volume` and different retention. */
static bool keeps_differ(const struct cfg *c, unsigned a, unsigned b, struct cfg_subject volume, char keep[2][256])
{
    const struct volume_section *v = volume_section(c, volume.name);
    const struct section *s = v ? &c->sections[v->section] : NULL;
    if (!cfg_job_has(c, &c->jobs[a].pub, volume) || !cfg_job_has(c, &c->jobs[b].pub, volume))
        return false;
    keep_text(SECTION_OF(c, jobs, a), s, keep[0], 256);
    keep_text(SECTION_OF(c, jobs, b), s, keep[1], 256);
    return keep[0][0] && keep[1][0] && strcmp(keep[0], keep[1]) != 0;
}

static bool report_keeps(struct cfg *c, unsigned a, unsigned b, struct cfg_subject volume)
{
    char keep[2][256];
    if (c->jobs[b].keeps_told || !keeps_differ(c, a, b, volume, keep))
        return c->jobs[b].keeps_told;
    c->jobs[b].keeps_told = true;
    complain_value(c, CFG_ERROR, SECTION_OF(c, jobs, b), NULL,
                   "retention belongs to the volume: set it in one job, or in the [volume] section",
                   "[job \"%s\"] and [job \"%s\"] set different retention for \"%s\": %s; %s", c->jobs[a].pub.name,
                   c->jobs[b].pub.name, volume.name, keep[0], keep[1]);
    return true;
}

/* A word of a job may be the name of a volume: a pattern matches itself, and may be matched by others. */
static bool report_keeps_of(struct cfg *c, unsigned a, unsigned b, const char *const *words)
{
    for (; words && *words; words++) {
        if (strncmp(*words, "class:", 6) != 0) {
            if (report_keeps(c, a, b, cfg_named(*words)))
                return true;
            continue;
        }
        const struct cfg_class *k = cfg_class(c, *words + 6);
        for (const char *const *m = k ? k->match : NULL; m && *m; m++)
            if (report_keeps(c, a, b, cfg_named(*m)))
                return true;
    }
    return false;
}

static void check_keeps(struct cfg *c, unsigned a, unsigned b)
{
    if (c->jobs[b].keeps_told || !c->jobs[a].keep[0] || !c->jobs[b].keep[0] ||
        !strcmp(c->jobs[a].keep, c->jobs[b].keep))
        return;
    if (report_keeps_of(c, a, b, c->jobs[a].pub.volumes) || report_keeps_of(c, a, b, c->jobs[b].pub.volumes))
        return;
    for (unsigned i = 0; i < c->n_volumes; i++)
        if (report_keeps(c, a, b, cfg_named(c->volumes[i].pub.name)))
            return;
}

void cfg_check_volume(struct cfg *c, struct cfg_subject v)
{
    for (unsigned i = 0; i < c->n_jobs; i++)
        for (unsigned k = 0; k < i; k++)
            report_keeps(c, k, i, v);
}

static void check_jobs(struct cfg *c)
{
    for (unsigned i = 0; i < c->n_jobs; i++) {
        const struct section *s = SECTION_OF(c, jobs, i);
        lacks_key(c, s, "volumes");
        keep_text(s, NULL, c->jobs[i].keep, sizeof c->jobs[i].keep);
        check_job_words(c, i);
        struct cfg_policy p;
        if (sets_numbers(s) && cfg_policy(c, cfg_named(""), s->name, &p, NULL) == 0) {
            check_numbers(c, s, &p);
            cfg_policy_clear(&p);
        }
        for (unsigned k = 0; k < i; k++)
            check_keeps(c, k, i);
    }
}

/* ---- [policy] ---- */

static bool matches_all(const struct cfg_rule *r)
{
    return !r->match && !r->classes && !r->drivers && !r->min_size && r->max_size == UINT64_MAX;
}

static void check_rules(struct cfg *c)
{
    for (unsigned i = 0; i < c->n_rules; i++) {
        const struct section *s = SECTION_OF(c, rules, i);
        const struct cfg_rule *r = &c->rules[i].pub;
        lacks_key(c, s, "action");
        for (const char *const *k = r->classes; k && *k; k++)
            if (!cfg_class(c, *k))
                unknown_section(c, s, section_value(s, "class"), KIND_CLASS, *k);
        if (r->min_size > r->max_size)
            complain_value(c, CFG_ERROR, s, section_value(s, "min-size"), NULL, "min-size is larger than max-size");
        if (matches_all(r) && i + 1 < c->n_rules)
            complain_value(c, CFG_WARNING, s, NULL, "the first policy that matches wins",
                           "[policy \"%s\"] matches every volume: later policies have no effect", s->name);
    }
}

void cfg_cross_check(struct cfg *c)
{
    for (unsigned i = 0; i < c->n_sections; i++)
        check_references(c, &c->sections[i]);
    check_daemon(c);
    check_metrics(c);
    check_plugins(c);
    check_classes(c);
    check_drivers(c);
    check_volumes(c);
    check_jobs(c);
    check_rules(c);
    check_copies(c);
}
