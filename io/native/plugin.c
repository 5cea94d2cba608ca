/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * plugin.c - the driver whose storage is known to a program: struct driver spoken over the plugin protocol
 *
 * Each call is one exec of the program of the class. An answer is compared with the question before anybody acts on it:
 * another alias, another volume, another size, a path outside of the class's directories, an object twice, a removal
 * that removed nothing are errors that name the plugin. Optional verbs are asked for only after `describe` has named
 * the ability.
 */
#include "io/native/driver.h"
#include "base/cleanup.h"
#include "io/native/plugin-shapes.h"
#include "proc/plugin-call.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIST_MAX 1000000u /* objects in one answer */

/* One conversation with the plugin of a class. */
struct talk {
    const struct driver_class *c;
    struct plugin_program p;
    struct plugin_info info; /* kind 0: not asked yet */
};

static int talk_to(struct talk *t, const struct driver_class *c, struct err *e)
{
    const char *colon = c->driver ? strchr(c->driver, ':') : NULL;
    *t = (struct talk){c, {colon ? colon + 1 : c->name, c->plugin, c->plugin_user, 0}, {.kind = 0}};
    if (c->plugin && *c->plugin)
        return 0;
    err_set(e, ERR_USAGE, EINVAL, "[storage-class \"%s\"] has a plugin as its driver that no [plugin] section names",
            c->name);
    return err_hint(e, "add [plugin \"%s\"] with kind = driver and program = PATH", t->p.name);
}

/* Asks describe once per conversation, and whether the verb can be asked. */
static int able(struct talk *t, enum plugin_verb v, unsigned ability, struct err *e)
{
    int rc = t->info.kind ? 0 : plugin_describe(&t->p, &t->info, e);
    if (rc == 0)
        rc = plugin_can(&t->p, &t->info, PLUGIN_DRIVER, v, e);
    if (rc == 0 && ability && !(t->info.abilities & ability)) {
        err_set(e, ERR_GENERIC, ENOTSUP, "%s: its abilities do not include this, plugin: %s", plugin_verb_at(v)->name,
                t->p.name);
        return -ENOTSUP;
    }
    return rc;
}

static json_t *class_json(const struct driver_class *c)
{
    CLEANUP_PLUGIN_JSON json_t *match = json_array();
    for (size_t i = 0; match && c->match && c->match[i]; i++)
        if (json_array_append_new(match, json_string(c->match[i])) < 0)
            return NULL;
    return json_pack("{s:s, s:s, s:s, s:O, s:o}", "name", c->name, "driver", c->driver ? c->driver : "", "target",
                     c->target ? c->target : "", "match", match, "options",
                     c->options ? json_incref(c->options) : json_object());
}

/* The members that every request of a driver has; `more` (may be NULL) is taken over. */
static json_t *args_of(const struct driver_class *c, json_t *more)
{
    CLEANUP_PLUGIN_JSON json_t *held = more;
    CLEANUP_PLUGIN_JSON json_t *args = json_pack("{s:o, s:s}", "class", class_json(c), "node", c->node ? c->node : "");
    if (!args || (held && json_object_update(args, held) < 0))
        return NULL;
    return take_ptr(&args);
}

/* One call with one document as its answer. `more` is taken over. */
static int ask(struct talk *t, enum plugin_verb v, json_t *more, json_t **answer, struct err *e)
{
    CLEANUP_PLUGIN_JSON json_t *args = args_of(t->c, more);
    if (!args)
        return err_set(e, ERR_GENERIC, EINVAL, "%s: the request cannot be put into JSON (a name that is not UTF-8?)",
                       plugin_verb_at(v)->name);
    return plugin_call(&t->p, v, args, plugin_timeout(&t->p, t->info.kind ? &t->info : NULL, v), answer, e);
}

static int ask_lines(struct talk *t, enum plugin_verb v, json_t *more, plugin_line_fn *fn, void *arg, struct err *e)
{
    CLEANUP_PLUGIN_JSON json_t *args = args_of(t->c, more);
    if (!args)
        return err_nomem(e);
    return plugin_call_lines(&t->p, v, args, plugin_timeout(&t->p, t->info.kind ? &t->info : NULL, v), fn, arg, e);
}

/* ---- abilities, volumes ---- */

static int plugin_abilities(const struct driver_class *c, unsigned *ret, struct err *e)
{
    static const struct {
        unsigned plugin, driver;
    } map[] = {{PA_SNAPSHOT, DRIVER_SNAPSHOT}, {PA_NATIVE_RO, DRIVER_NATIVE_RO},     {PA_CLONE, DRIVER_CLONE},
               {PA_OVERLAY, DRIVER_OVERLAY},   {PA_COPY_TARGET, DRIVER_COPY_TARGET}, {PA_ALLOCATED, DRIVER_ALLOCATED},
               {PA_CHANGED, DRIVER_CHANGED},   {PA_TARGET, DRIVER_TARGET},           {PA_POOL, DRIVER_POOL}};
    struct talk t;
    int rc = talk_to(&t, c, e);
    if (rc == 0)
        rc = able(&t, PV_VOLUMES, 0, e);
    if (rc < 0)
        return rc;
    unsigned bits = 0;
    for (size_t i = 0; i < sizeof map / sizeof *map; i++)
        if (t.info.abilities & map[i].plugin)
            bits |= map[i].driver;
    CLEANUP_PLUGIN_JSON json_t *answer = NULL;
    rc = ask(&t, PV_APPLIES, NULL, &answer, e);
    if (rc < 0)
        return rc;
    struct answer a = {&t.p, PV_APPLIES, answer, ""};
    bool applies = false;
    char why[256];
    if ((rc = answer_bool(&a, "applies", ANSWER_REQUIRED, &applies, e)) < 0 ||
        (rc = answer_text(&a, "reason", 0, why, sizeof why, e)) < 0)
        return rc;
    if (!applies)
        return err_set(e, ERR_USAGE, EINVAL, "[storage-class \"%s\"] is not for this plugin: %s, plugin: %s", c->name,
                       *why ? why : "no reason was given", t.p.name);
    *ret = bits;
    return 0;
}

/* What is known of a list while it is read: no object may come twice. */
struct listing {
    struct talk *t;
    enum plugin_verb verb;
    json_t *seen;
    size_t n;
    volume_fn *volume;
    native_fn *native;
    exposure_fn *exposure;
    driver_extent_fn *extent;
    driver_extent_fn *zeros; /* instead, for those that are zeros; NULL: the word is not known here */
    void *arg;
    uint64_t at, size; /* extents: end of the last one, of the volume */
};

static int not_seen(struct listing *l, const char *what, const char *name, struct err *e)
{
    if (json_object_get(l->seen, name))
        return plugin_lies(&l->t->p, l->verb, e, "%s %.200s comes twice", what, name);
    if (++l->n > LIST_MAX)
        return plugin_lies(&l->t->p, l->verb, e, "it lists more than %u objects", LIST_MAX);
    return json_object_set_new(l->seen, name, json_true()) < 0 ? err_nomem(e) : 0;
}

static int ask_list(struct listing *l, json_t *more, plugin_line_fn *fn, struct err *e)
{
    CLEANUP_PLUGIN_JSON json_t *seen = json_object();
    if (!seen) {
        json_decref(more);
        return err_nomem(e);
    }
    l->seen = seen;
    return ask_lines(l->t, l->verb, more, fn, l, e);
}

static int volume_line(const json_t *line, bool act, void *arg, struct err *e)
{
    struct listing *l = arg;
    struct answer a = {&l->t->p, l->verb, line, ""};
    struct volume v;
    int rc = plugin_volume_read(&a, &v, e);
    if (rc == 0 && !act) {
        char id[VOLUME_ID_MAX + 8], name[VOLUME_NAME_MAX + 8];
        snprintf(id, sizeof id, "id %s", v.id);
        snprintf(name, sizeof name, "name %s", v.name);
        rc = not_seen(l, "the volume", id, e);
        if (rc == 0)
            rc = not_seen(l, "the volume", name, e);
    }
    return rc == 0 && act ? l->volume(&v, l->arg) : rc;
}

static int plugin_volumes(const struct driver_class *c, volume_fn *fn, void *arg, struct err *e)
{
    struct talk t;
    int rc = talk_to(&t, c, e);
    struct listing l = {.t = &t, .verb = PV_VOLUMES, .volume = fn, .arg = arg};
    return rc < 0 ? rc : ask_list(&l, NULL, volume_line, e);
}

static int resolve(struct talk *t, const char *name, struct volume *ret, struct err *e)
{
    CLEANUP_PLUGIN_JSON json_t *answer = NULL;
    int rc = ask(t, PV_RESOLVE, json_pack("{s:s}", "name", name), &answer, e);
    struct answer a = {&t->p, PV_RESOLVE, answer, ""}, v;
    struct volume found;
    if (rc < 0 || (rc = answer_object(&a, "volume", "volume.", &v, e)) < 0 ||
        (rc = plugin_volume_read(&v, &found, e)) < 0)
        return rc;
    if (strcmp(found.name, name) != 0)
        return plugin_lies(&t->p, PV_RESOLVE, e, "asked for volume %.200s it answers with %.200s", name, found.name);
    *ret = found;
    return 0;
}

static int plugin_resolve(const struct driver_class *c, const char *name, struct volume *ret, struct err *e)
{
    struct talk t;
    int rc = talk_to(&t, c, e);
    return rc < 0 ? rc : resolve(&t, name, ret, e);
}

/* ---- native snapshots ---- */

static int read_native(struct talk *t, enum plugin_verb v, const json_t *answer, const char *alias, struct native *ret,
                       struct err *e)
{
    struct answer a = {&t->p, v, answer, ""}, s;
    struct native n;
    int rc;
    if ((rc = answer_object(&a, "snapshot", "snapshot.", &s, e)) < 0 ||
        (rc = plugin_native_read(&s, t->c->node ? t->c->node : "", &n, e)) < 0)
        return rc;
    if (strcmp(n.tag.alias, alias) != 0)
        return plugin_lies(&t->p, v, e, "asked for alias %s it answers with %s", alias, n.tag.alias);
    if (n.size == 0)
        return plugin_lies(&t->p, v, e, "the snapshot %.200s has no size", n.handle);
    *ret = n;
    return 0;
}

static int plugin_snapshot(const struct driver_class *c, const struct volume *v, const struct native_tag *tag,
                           struct native *ret, struct err *e)
{
    struct talk t;
    CLEANUP_PLUGIN_JSON json_t *answer = NULL;
    struct native n;
    int rc = talk_to(&t, c, e);
    if (rc < 0 || (rc = able(&t, PV_SNAPSHOT, 0, e)) < 0 ||
        (rc = ask(&t, PV_SNAPSHOT,
                  json_pack("{s:o, s:o}", "volume", plugin_volume_json(v), "tag", plugin_tag_json(tag, c->node)),
                  &answer, e)) < 0 ||
        (rc = read_native(&t, PV_SNAPSHOT, answer, tag->alias, &n, e)) < 0)
        return rc;
    if (strcmp(n.tag.volume_id, tag->volume_id) != 0)
        return plugin_lies(&t.p, PV_SNAPSHOT, e, "asked for volume id %.200s it answers with %.200s", tag->volume_id,
                           n.tag.volume_id);
    if (n.size != v->size) {
        /* Grown since it was looked at, or a lie: the volume itself tells. A snapshot that was there already may be
         * older than the growth; its size is then what `find` says about it each time. */
        struct volume now;
        if ((rc = resolve(&t, v->name, &now, e)) < 0)
            return rc;
        if (n.size != now.size && now.size == v->size)
            return plugin_lies(&t.p, PV_SNAPSHOT, e,
                               "the snapshot has %" PRIu64 " bytes, and the volume %.200s has %" PRIu64, n.size,
                               v->name, now.size);
    }
    n.tag = *tag;
    *ret = n;
    return 0;
}

static int find(struct talk *t, const char *volume_id, const char *volume_name, const char *alias, const char *hint,
                struct native *ret, struct err *e)
{
    CLEANUP_PLUGIN_JSON json_t *answer = NULL;
    int rc = ask(t, PV_FIND,
                 json_pack("{s:s, s:s, s:s, s:s}", "alias", alias, "handle", hint ? hint : "", "volume-id", volume_id,
                           "volume-name", volume_name),
                 &answer, e);
    if (rc == 0)
        rc = read_native(t, PV_FIND, answer, alias, ret, e);
    if (rc == 0 && *volume_id && strcmp(ret->tag.volume_id, volume_id) != 0)
        return plugin_lies(&t->p, PV_FIND, e, "snapshot %s is of volume id %.200s, and it says %.200s", alias,
                           volume_id, ret->tag.volume_id);
    return rc;
}

static int plugin_find(const struct driver_class *c, const struct volume *v, const char *alias, const char *hint,
                       struct native *ret, struct err *e)
{
    struct talk t;
    int rc = talk_to(&t, c, e);
    if (rc == 0)
        rc = able(&t, PV_FIND, 0, e);
    return rc < 0 ? rc : find(&t, v ? v->id : "", v ? v->name : "", alias, hint, ret, e);
}

static int native_line(const json_t *line, bool act, void *arg, struct err *e)
{
    struct listing *l = arg;
    struct answer a = {&l->t->p, l->verb, line, ""};
    struct native n;
    int rc = plugin_native_read(&a, l->t->c->node ? l->t->c->node : "", &n, e);
    if (rc == 0 && !act)
        rc = not_seen(l, "the snapshot", n.tag.alias, e);
    return rc == 0 && act ? l->native(&n, l->arg) : rc;
}

static int plugin_list(const struct driver_class *c, native_fn *fn, void *arg, struct err *e)
{
    struct talk t;
    int rc = talk_to(&t, c, e);
    if (rc == 0)
        rc = able(&t, PV_LIST, 0, e);
    struct listing l = {.t = &t, .verb = PV_LIST, .native = fn, .arg = arg};
    return rc < 0 ? rc : ask_list(&l, NULL, native_line, e);
}

static int plugin_remove(const struct driver_class *c, const struct native *n, bool *gone, struct err *e)
{
    struct talk t;
    CLEANUP_PLUGIN_JSON json_t *answer = NULL;
    bool was_gone = false;
    int rc = talk_to(&t, c, e);
    if (rc < 0 || (rc = able(&t, PV_REMOVE, 0, e)) < 0 ||
        (rc = ask(&t, PV_REMOVE, json_pack("{s:o}", "snapshot", plugin_native_json(n, c->node)), &answer, e)) < 0)
        return rc;
    struct answer a = {&t.p, PV_REMOVE, answer, ""};
    if ((rc = answer_bool(&a, "gone", 0, &was_gone, e)) < 0)
        return rc;
    struct native left;
    struct err fe = ERR_INIT;
    rc = find(&t, n->tag.volume_id, n->tag.volume_name, n->tag.alias, n->handle, &left, &fe);
    if (rc == 0)
        return plugin_lies(&t.p, PV_REMOVE, e, "it says that snapshot %s is removed, and still finds it", n->tag.alias);
    if (fe.cls != ERR_NOT_FOUND) {
        if (e)
            *e = fe;
        return rc;
    }
    if (gone)
        *gone = was_gone;
    return 0;
}

/* ---- exposing ---- */

static unsigned mechanism_ability(enum expose_mechanism m)
{
    static const unsigned bit[] = {[EXPOSE_NATIVE] = PA_NATIVE_RO,
                                   [EXPOSE_CLONE] = PA_CLONE,
                                   [EXPOSE_OVERLAY] = PA_OVERLAY,
                                   [EXPOSE_COPY] = PA_COPY_TARGET};
    return bit[m];
}

/* Compares with what was asked, and looks at the object itself. */
static int check_exposure(struct talk *t, const struct native *n, enum expose_mechanism m, bool read_only,
                          const char *alias, const struct exposure *x, struct err *e)
{
    if (x->mechanism != m)
        return plugin_lies(&t->p, PV_EXPOSE, e, "asked for %s it made %s", expose_mechanism_name(m),
                           expose_mechanism_name(x->mechanism));
    if (x->read_only != read_only)
        return plugin_lies(&t->p, PV_EXPOSE, e, "asked for %s it made it %s", read_only ? "read-only" : "writable",
                           x->read_only ? "read-only" : "writable");
    if (x->size != n->size)
        return plugin_lies(&t->p, PV_EXPOSE, e, "it exposes %" PRIu64 " bytes of a snapshot of %" PRIu64, x->size,
                           n->size);
    if (m != EXPOSE_NATIVE && strcmp(x->alias, alias) != 0)
        return plugin_lies(&t->p, PV_EXPOSE, e, "asked for alias %s it answers with %s", alias, x->alias);
    if (m != EXPOSE_NATIVE && strcmp(x->handle, n->handle) == 0)
        return plugin_lies(&t->p, PV_EXPOSE, e, "the intermediate is the snapshot itself");
    if (strcmp(x->path, n->tag.volume_name) == 0)
        return plugin_lies(&t->p, PV_EXPOSE, e, "it exposes the volume itself instead of its snapshot");
    CLEANUP_CLOSE int fd = -1;
    return plugin_path_open(t->c, &t->p, PV_EXPOSE, x->path, x->size, O_RDONLY, &fd, e);
}

/* Asks the plugin of class `where`, in which what it makes is to lie. `from`: the class of the snapshot. */
static int expose(const struct driver_class *where, const struct driver_class *from, const struct native *n,
                  enum expose_mechanism m, bool read_only, const char *alias, uint64_t rate, struct exposure *ret,
                  struct err *e)
{
    struct talk t;
    CLEANUP_PLUGIN_JSON json_t *answer = NULL;
    int rc = talk_to(&t, where, e);
    if (rc < 0 || (rc = able(&t, PV_EXPOSE, mechanism_ability(m), e)) < 0)
        return rc;
    json_t *more = json_pack("{s:o, s:o, s:s, s:b, s:s, s:I}", "snapshot", plugin_native_json(n, where->node), "from",
                             class_json(from), "mechanism", expose_mechanism_name(m), "read-only", read_only, "alias",
                             alias ? alias : "", "rate", (json_int_t)rate);
    struct exposure x;
    struct native_tag tag;
    if ((rc = ask(&t, PV_EXPOSE, more, &answer, e)) < 0)
        return rc;
    struct answer a = {&t.p, PV_EXPOSE, answer, ""}, ao;
    if ((rc = answer_object(&a, "exposure", "exposure.", &ao, e)) < 0 ||
        (rc = plugin_exposure_read(&ao, where->node, &x, &tag, e)) < 0 ||
        (rc = check_exposure(&t, n, m, read_only, alias ? alias : "", &x, e)) < 0)
        return rc;
    snprintf(x.klass, sizeof x.klass, "%s", where->name);
    if (m == EXPOSE_NATIVE)
        x.handle[0] = x.alias[0] = '\0';
    *ret = x;
    return 0;
}

static int plugin_expose(const struct driver_class *c, const struct native *n, const struct driver_class *into,
                         enum expose_mechanism m, bool read_only, const char *alias, struct exposure *ret,
                         struct err *e)
{
    return expose(m == EXPOSE_NATIVE || !into ? c : into, c, n, m, read_only, alias, 0, ret, e);
}

/* The plugin reads the snapshot itself. */
static int plugin_copy(const struct driver_class *into, const struct driver *owner, const struct driver_class *c,
                       const struct native *n, bool read_only, const char *alias, uint64_t rate, struct exposure *ret,
                       struct err *e)
{
    (void)owner;
    return expose(into, c, n, EXPOSE_COPY, read_only, alias, rate, ret, e);
}

static int plugin_unexpose(const struct driver_class *into, const struct exposure *x, struct err *e)
{
    struct talk t;
    int rc = talk_to(&t, into, e);
    if (rc < 0 || (rc = able(&t, PV_UNEXPOSE, 0, e)) < 0 ||
        (rc = ask(&t, PV_UNEXPOSE, json_pack("{s:o}", "exposure", plugin_exposure_json(x, into->node)), NULL, e)) < 0)
        return rc;
    struct stat st;
    if (x->mechanism != EXPOSE_NATIVE && lstat(x->path, &st) == 0)
        return plugin_lies(&t.p, PV_UNEXPOSE, e, "it says that %.500s is removed, and it is still there", x->path);
    return 0;
}

static int exposure_line(const json_t *line, bool act, void *arg, struct err *e)
{
    struct listing *l = arg;
    struct answer a = {&l->t->p, l->verb, line, ""};
    struct exposure x;
    struct native_tag tag;
    int rc = plugin_exposure_read(&a, l->t->c->node ? l->t->c->node : "", &x, &tag, e);
    if (rc < 0)
        return rc;
    if (!act && !tag.alias[0])
        return plugin_lies(&l->t->p, l->verb, e, "the intermediate %.200s has no \"tag\"", x.path);
    if (!act && !plugin_path_inside(l->t->c, x.path))
        return plugin_lies(&l->t->p, l->verb, e, "%.500s lies outside of the directories of [storage-class \"%s\"]",
                           x.path, l->t->c->name);
    snprintf(x.klass, sizeof x.klass, "%s", l->t->c->name);
    return act ? l->exposure(&x, &tag, l->arg) : not_seen(l, "the intermediate", x.alias[0] ? x.alias : x.path, e);
}

static int plugin_max_retain(const struct driver_class *c, int *ret, struct err *e)
{
    struct talk t;
    int rc = talk_to(&t, c, e);
    if (rc < 0 || (rc = plugin_describe(&t.p, &t.info, e)) < 0)
        return rc;
    *ret = t.info.max_retain;
    return 0;
}

static int plugin_exposures(const struct driver_class *into, exposure_fn *fn, void *arg, struct err *e)
{
    struct talk t;
    int rc = talk_to(&t, into, e);
    if (rc < 0 || (rc = plugin_describe(&t.p, &t.info, e)) < 0)
        return rc;
    /* Without an ability to make intermediates there are none. */
    if (!(t.info.abilities & plugin_verb_at(PV_EXPOSURES)->ability))
        return 0;
    struct listing l = {.t = &t, .verb = PV_EXPOSURES, .exposure = fn, .arg = arg};
    return ask_list(&l, NULL, exposure_line, e);
}

static int plugin_open(const struct driver_class *c, const struct exposure *x, int *fd, struct err *e)
{
    struct talk t;
    int rc = talk_to(&t, c, e);
    if (rc < 0)
        return rc;
    return plugin_path_open(c, &t.p, PV_EXPOSE, x->path, x->size, x->read_only ? O_RDONLY : O_RDWR, fd, e);
}

/* ---- extents, pool ---- */

static int extent_line(const json_t *line, bool act, void *arg, struct err *e)
{
    struct listing *l = arg;
    struct answer a = {&l->t->p, l->verb, line, ""};
    uint64_t start, len;
    bool zeros = false;
    int rc = plugin_extent_read(&a, &start, &len, l->zeros ? &zeros : NULL, e);
    if (rc < 0)
        return rc;
    if (act)
        return zeros ? l->zeros(start, len, l->arg) : l->extent(start, len, l->arg);
    if (start < l->at)
        return plugin_lies(&l->t->p, l->verb, e, "the extent at %" PRIu64 " lies before the end of the one before it",
                           start);
    if (start > l->size || len > l->size - start)
        return plugin_lies(&l->t->p, l->verb, e, "the extent at %" PRIu64 " ends behind the volume's %" PRIu64 " bytes",
                           start, l->size);
    l->at = start + len;
    return 0;
}

static int plugin_allocated(const struct driver_class *c, const struct exposure *x, driver_extent_fn *fn, void *arg,
                            struct err *e)
{
    struct talk t;
    int rc = talk_to(&t, c, e);
    if (rc == 0)
        rc = able(&t, PV_ALLOCATED, 0, e);
    struct listing l = {.t = &t, .verb = PV_ALLOCATED, .extent = fn, .arg = arg, .size = x->size};
    return rc < 0 ? rc : ask_list(&l, json_pack("{s:o}", "exposure", plugin_exposure_json(x, c->node)), extent_line, e);
}

struct changed_list {
    struct changes *list;
    struct err *e;
};
static int add_changed(uint64_t start, uint64_t len, void *arg)
{
    struct changed_list *l = arg;
    return changes_add(l->list, start, len, l->e);
}

static int add_zeros(uint64_t start, uint64_t len, void *arg)
{
    struct changed_list *l = arg;
    return changes_add_zeros(l->list, start, len, l->e);
}

static int plugin_changed(const struct driver_class *c, const struct native *base, const struct native *n,
                          struct changes *list, struct changed_answer *ret, struct err *e)
{
    struct talk t;
    struct changed_list into = {list, e};
    int rc = talk_to(&t, c, e);
    if (rc == 0)
        rc = plugin_describe(&t.p, &t.info, e);
    if (rc < 0)
        return rc;
    if (!(t.info.abilities & DRIVER_CHANGED))
        return changed_doubt(ret, CHANGED_UNSUPPORTED, "plugin %s cannot list changes", t.p.name);
    struct listing l = {
        .t = &t, .verb = PV_CHANGED, .extent = add_changed, .zeros = add_zeros, .arg = &into, .size = n->size};
    return ask_list(
        &l,
        json_pack("{s:o, s:o}", "base", plugin_native_json(base, c->node), "snapshot", plugin_native_json(n, c->node)),
        extent_line, e);
}

static int plugin_pool(const struct driver_class *c, const struct volume *v, struct pool_usage *ret, struct err *e)
{
    struct talk t;
    CLEANUP_PLUGIN_JSON json_t *answer = NULL;
    int rc = talk_to(&t, c, e);
    if (rc < 0 || (rc = able(&t, PV_POOL, 0, e)) < 0 ||
        (rc = ask(&t, PV_POOL, v ? json_pack("{s:o}", "volume", plugin_volume_json(v)) : NULL, &answer, e)) < 0)
        return rc;
    struct answer a = {&t.p, PV_POOL, answer, ""};
    return plugin_pool_read(&a, ret, e);
}

/* ---- restore ---- */

static int plugin_target(const struct driver_class *c, const char *name, uint64_t size, const char *alias,
                         enum target_use use, struct restore_target *ret, struct err *e)
{
    struct talk t;
    CLEANUP_PLUGIN_JSON json_t *answer = NULL;
    if (use == TARGET_UPDATE || use == TARGET_PATCH) {
        err_set(e, ERR_USAGE, ENOTSUP, "storage class \"%s\": a plugin's volumes are restored as a whole", c->name);
        err_hint(e, "restore without --differential, --offset and --length");
        return -ENOTSUP;
    }
    int rc = talk_to(&t, c, e);
    if (rc < 0 || (rc = able(&t, PV_TARGET, 0, e)) < 0)
        return rc;
    json_t *more = json_pack("{s:s, s:I, s:s, s:b}", "name", name, "size", (json_int_t)size, "alias", alias,
                             "overwrite", use == TARGET_REPLACE);
    if ((rc = ask(&t, PV_TARGET, more, &answer, e)) < 0)
        return rc;
    struct answer a = {&t.p, PV_TARGET, answer, ""}, o;
    struct restore_target r;
    if ((rc = answer_object(&a, "target", "target.", &o, e)) < 0 || (rc = plugin_target_read(&o, &r, e)) < 0)
        return rc;
    if (r.size != size)
        return plugin_lies(&t.p, PV_TARGET, e, "asked for %" PRIu64 " bytes it made %" PRIu64, size, r.size);
    if (strcmp(r.final, name) != 0)
        return plugin_lies(&t.p, PV_TARGET, e, "asked for volume %.200s it prepares %.200s", name, r.final);
    if (strcmp(r.path, r.final) == 0)
        return plugin_lies(&t.p, PV_TARGET, e, "the staging object is the volume %.200s itself", name);
    CLEANUP_CLOSE int fd = -1;
    if ((rc = plugin_path_open(c, &t.p, PV_TARGET, r.path, size, O_RDWR, &fd, e)) < 0)
        return rc;
    *ret = r;
    return 0;
}

static int target_verb(const struct driver_class *c, enum plugin_verb v, const struct restore_target *r, struct talk *t,
                       struct err *e)
{
    int rc = talk_to(t, c, e);
    if (rc == 0)
        rc = able(t, v, 0, e);
    return rc < 0 ? rc : ask(t, v, json_pack("{s:o}", "target", plugin_target_json(r)), NULL, e);
}

static int plugin_target_commit(const struct driver_class *c, const struct restore_target *r, struct err *e)
{
    struct talk t;
    struct volume v;
    int rc = target_verb(c, PV_TARGET_COMMIT, r, &t, e);
    if (rc < 0 || (rc = resolve(&t, r->final, &v, e)) < 0)
        return rc;
    if (v.size != r->size)
        return plugin_lies(&t.p, PV_TARGET_COMMIT, e, "volume %.200s has %" PRIu64 " bytes after it, not %" PRIu64,
                           r->final, v.size, r->size);
    return 0;
}

static int plugin_target_abort(const struct driver_class *c, const struct restore_target *r, struct err *e)
{
    struct talk t;
    struct stat st;
    int rc = target_verb(c, PV_TARGET_ABORT, r, &t, e);
    if (rc == 0 && lstat(r->path, &st) == 0)
        return plugin_lies(&t.p, PV_TARGET_ABORT, e, "it says that %.500s is removed, and it is still there", r->path);
    return rc;
}

static int plugin_target_from_native(const struct driver_class *c, const struct native *n,
                                     const struct restore_target *r, const struct fill *how, struct err *e)
{
    struct talk t;
    int rc = talk_to(&t, c, e);
    if (rc == 0)
        rc = able(&t, PV_TARGET_FROM_NATIVE, 0, e);
    /* Of its progress the protocol has no words. */
    return rc < 0 ? rc
                  : ask(&t, PV_TARGET_FROM_NATIVE,
                        json_pack("{s:o, s:o, s:I}", "target", plugin_target_json(r), "snapshot",
                                  plugin_native_json(n, c->node), "rate", (json_int_t)how->rate),
                        NULL, e);
}

static bool same_text(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

/* A plugin's pools are words of its own: a class of the same plugin is in the volume's pool if its target names that,
 * or names the same place as the volume's class. */
static bool plugin_same_pool(const struct driver_class *c, const struct volume *v, const struct driver_class *into)
{
    return into->target && *into->target && (same_text(into->target, v->pool) || same_text(into->target, c->target));
}

/* Its program may obey any. */
static bool plugin_takes_option(const struct driver_class *c, const char *key)
{
    (void)c, (void)key;
    return true;
}

const struct driver driver_plugin = {
    .name = "plugin",
    .text = "storage that a program knows: snapferry-plugin(7)",
    .abilities = plugin_abilities,
    .takes_option = plugin_takes_option,
    .max_retain = plugin_max_retain,
    .volumes = plugin_volumes,
    .resolve = plugin_resolve,
    .snapshot = plugin_snapshot,
    .find = plugin_find,
    .list = plugin_list,
    .remove = plugin_remove,
    .same_pool = plugin_same_pool,
    .expose = plugin_expose,
    .copy = plugin_copy,
    .unexpose = plugin_unexpose,
    .exposures = plugin_exposures,
    .open = plugin_open,
    .allocated = plugin_allocated,
    .changed = plugin_changed,
    .pool = plugin_pool,
    .target = plugin_target,
    .target_commit = plugin_target_commit,
    .target_abort = plugin_target_abort,
    .target_from_native = plugin_target_from_native,
};
