/* SPDX-License-Identifier: GPL-2.0-or-later */
/* plugin-check-driver.c - the rules of a driver plugin, called through the driver that the daemon uses */
#include "base/time.h"
#include "daemon/check/plugin-check-impl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct driver *const d = &driver_plugin;
#define SAMPLE 65536

int check_driver_begin(struct check *k, struct err *e)
{
    const char *volume = check_option(k, "volume");
    static const char *const own[] = {"volume", "match", "target", "node"};
    if (!volume) {
        err_set(e, ERR_USAGE, EINVAL, "checking a driver plugin needs a real volume");
        return err_hint(e, "name one on which a few snapshots may exist for a minute: volume=NAME, and what the class "
                           "needs: match=PATTERN target=DIRECTORY");
    }
    k->options = json_deep_copy(k->o->options);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        json_object_del(k->options, own[i]);
    k->match[0] = check_option(k, "match") ? check_option(k, "match") : volume;
    k->c = (struct driver_class){.name = "plugin-check",
                                 .driver = "plugin:check",
                                 .match = k->match,
                                 .target = check_option(k, "target") ? check_option(k, "target") : "",
                                 .node = check_option(k, "node") ? check_option(k, "node") : "snapferry-plugin-check",
                                 .plugin = k->p.path,
                                 .plugin_user = k->p.user,
                                 .options = k->options};
    return 0;
}

/* After any failure: what was created is removed. */
void check_driver_end(struct check *k)
{
    bool gone;
    if (k->target_made)
        d->target_abort(&k->c, &k->target, NULL);
    if (k->cloned)
        d->unexpose(&k->c, &k->clone, NULL);
    if (k->taken_second)
        d->remove(&k->c, &k->second, &gone, NULL);
    if (k->taken)
        d->remove(&k->c, &k->native, &gone, NULL);
}

/* ---- volumes ---- */

static int rule_applies(struct check *k, struct err *e)
{
    unsigned abilities;
    return d->abilities(&k->c, &abilities, e);
}

static int volume_seek(const struct volume *v, void *arg)
{
    struct check *k = arg;
    if (v->id[0] && strcmp(v->name, check_option(k, "volume")) == 0)
        k->resolved = true;
    return 0;
}
static int rule_volumes(struct check *k, struct err *e)
{
    int rc = d->volumes(&k->c, volume_seek, k, e);
    if (rc < 0)
        return rc;
    bool listed = k->resolved;
    k->resolved = false;
    return listed ? 0 : check_fails(e, "%s is not listed", check_option(k, "volume"));
}

static int rule_resolve(struct check *k, struct err *e)
{
    struct volume *again = calloc(1, sizeof *again);
    if (!again)
        return err_nomem(e);
    int rc = d->resolve(&k->c, check_option(k, "volume"), &k->volume, e);
    k->resolved = rc == 0;
    if (rc == 0)
        rc = d->resolve(&k->c, check_option(k, "volume"), again, e);
    if (rc == 0 && strcmp(again->id, k->volume.id) != 0)
        rc = check_fails(e, "the id changed from %s to %s", k->volume.id, again->id);
    free(again);
    return rc;
}

/* `rc` and `e` of a call that must fail with exit code 16. */
static int expect_not_found(int rc, struct err *e)
{
    if (rc == 0)
        return check_fails(e, "found");
    return e->cls == ERR_NOT_FOUND ? (*e = (struct err)ERR_INIT, 0) : rc;
}

static int rule_resolve_unknown(struct check *k, struct err *e)
{
    struct volume *v = calloc(1, sizeof *v);
    if (!v)
        return err_nomem(e);
    int rc = expect_not_found(d->resolve(&k->c, "/nonexistent/snapferry-plugin-check", v, e), e);
    free(v);
    return rc;
}

/* ---- snapshots ---- */

static int snapshot_take(struct check *k, struct native *ret, struct err *e)
{
    struct native_tag t = {.seq = 1};
    t.created_ns = now_ns();
    alias_new(t.alias);
    snprintf(t.volume_id, sizeof t.volume_id, "%s", k->volume.id);
    snprintf(t.volume_name, sizeof t.volume_name, "%s", k->volume.name);
    snprintf(t.backup, sizeof t.backup, "%s", k->tag_text);
    snprintf(t.operation, sizeof t.operation, "up-%s.%.200s", k->tag_text, k->volume.id);
    ret->tag = t; /* known to check_driver_end() even if the answer is refused */
    return d->snapshot(&k->c, &k->volume, &t, ret, e);
}

static int rule_snapshot(struct check *k, struct err *e)
{
    if (!k->resolved)
        return check_skips(e, "the volume could not be resolved");
    k->taken = true;
    return snapshot_take(k, &k->native, e);
}
static int rule_snapshot_twice(struct check *k, struct err *e)
{
    if (!k->native.handle[0])
        return check_skips(e, "no snapshot");
    struct native n;
    int rc = d->snapshot(&k->c, &k->volume, &k->native.tag, &n, e);
    if (rc < 0)
        return rc;
    if (strcmp(n.handle, k->native.handle) != 0 || n.size != k->native.size)
        return check_fails(e, "another snapshot was created: %.200s, before %.200s", n.handle, k->native.handle);
    return 0;
}
static int rule_find(struct check *k, struct err *e)
{
    struct native n;
    if (!k->native.handle[0])
        return check_skips(e, "no snapshot");
    int rc = d->find(&k->c, &k->volume, k->native.tag.alias, "/no/longer/there", &n, e);
    if (rc == 0 && n.size != k->native.size)
        return check_fails(e, "size is %" PRIu64 " bytes, was %" PRIu64, n.size, k->native.size);
    return rc;
}
static int rule_find_unknown(struct check *k, struct err *e)
{
    struct native n;
    char alias[ALIAS_LEN + 1];
    alias_new(alias);
    return expect_not_found(d->find(&k->c, &k->volume, alias, "", &n, e), e);
}

struct looking {
    const char *alias;
    unsigned n;
    struct native_tag tag;
};
static int native_check(const struct native *n, void *arg)
{
    struct looking *l = arg;
    if (strcmp(n->tag.alias, l->alias) == 0) {
        l->n++;
        l->tag = n->tag;
    }
    return 0;
}
static int exposure_check(const struct exposure *x, const struct native_tag *t, void *arg)
{
    struct looking *l = arg;
    if (strcmp(x->alias, l->alias) == 0) {
        l->n++;
        l->tag = *t;
    }
    return 0;
}

static int rule_list(struct check *k, struct err *e)
{
    if (!k->native.handle[0])
        return check_skips(e, "no snapshot");
    struct looking l = {.alias = k->native.tag.alias};
    int rc = d->list(&k->c, native_check, &l, e);
    if (rc < 0)
        return rc;
    const struct native_tag *t = &k->native.tag;
    if (l.n != 1)
        return check_fails(e, "alias %s is listed %u times", t->alias, l.n);
    if (strcmp(l.tag.volume_id, t->volume_id) != 0 || strcmp(l.tag.volume_name, t->volume_name) != 0 ||
        strcmp(l.tag.backup, t->backup) != 0 || strcmp(l.tag.operation, t->operation) != 0 || l.tag.seq != t->seq ||
        l.tag.created_ns != t->created_ns)
        return check_fails(e, "its tag differs from the one passed to snapshot (RS-27)");
    return 0;
}
static int rule_list_other_node(struct check *k, struct err *e)
{
    if (!k->native.handle[0])
        return check_skips(e, "no snapshot");
    struct driver_class other = k->c;
    other.node = "snapferry-plugin-check-another-node";
    struct looking l = {.alias = k->native.tag.alias};
    int rc = d->list(&other, native_check, &l, e);
    return rc < 0 ? rc : l.n ? check_fails(e, "a snapshot of this node is listed for another node") : 0;
}

/* ---- exposing ---- */

/* First and last bytes of an exposed volume, as a fingerprint; the whole of a volume may be too much. */
static int exposure_sample(struct check *k, const struct exposure *x, char out[2 * SAMPLE], struct err *e)
{
    CLEANUP_CLOSE int fd = -1;
    int rc = d->open(&k->c, x, &fd, e);
    if (rc < 0)
        return rc;
    memset(out, 0, 2 * SAMPLE);
    off_t last = x->size > SAMPLE ? (off_t)x->size - SAMPLE : 0;
    size_t want = x->size < SAMPLE ? (size_t)x->size : SAMPLE;
    if (pread(fd, out, want, 0) != (ssize_t)want || pread(fd, out + SAMPLE, want, last) != (ssize_t)want)
        return check_fails(e, "cannot read %.300s completely: %s", x->path, strerror(errno));
    return 0;
}

static int rule_native(struct check *k, struct err *e)
{
    static char bytes[2 * SAMPLE];
    struct exposure x;
    if (!k->native.handle[0])
        return check_skips(e, "no snapshot");
    int rc = d->expose(&k->c, &k->native, &k->c, EXPOSE_NATIVE, true, "", &k->exposure, e);
    k->exposed = rc == 0;
    if (rc == 0)
        rc = exposure_sample(k, &k->exposure, bytes, e);
    if (rc == 0)
        rc = d->expose(&k->c, &k->native, &k->c, EXPOSE_NATIVE, true, "", &x, e);
    if (rc == 0 && strcmp(x.path, k->exposure.path) != 0)
        rc = check_fails(e, "the second expose returns %.300s, the first %.300s", x.path, k->exposure.path);
    return rc;
}
static int rule_native_undo(struct check *k, struct err *e)
{
    struct native n;
    if (!k->exposed)
        return check_skips(e, "nothing was exposed");
    int rc = d->unexpose(&k->c, &k->exposure, e);
    if (rc == 0)
        rc = d->unexpose(&k->c, &k->exposure, e);
    if (rc == 0)
        rc = d->find(&k->c, &k->volume, k->native.tag.alias, k->native.handle, &n, e);
    return rc;
}

static int clone(struct check *k, bool read_only, struct err *e)
{
    struct exposure x;
    alias_new(k->clone.alias);
    char alias[ALIAS_LEN + 1];
    memcpy(alias, k->clone.alias, sizeof alias);
    k->clone.mechanism = EXPOSE_CLONE;
    k->cloned = true;
    int rc = d->expose(&k->c, &k->native, &k->c, EXPOSE_CLONE, read_only, alias, &k->clone, e);
    if (rc == 0)
        rc = d->expose(&k->c, &k->native, &k->c, EXPOSE_CLONE, read_only, alias, &x, e);
    if (rc == 0 && strcmp(x.path, k->clone.path) != 0)
        rc = check_fails(e, "the second expose returns %.300s, the first %.300s", x.path, k->clone.path);
    return rc;
}
static int unclone(struct check *k, struct err *e)
{
    int rc = d->unexpose(&k->c, &k->clone, e);
    if (rc == 0)
        rc = d->unexpose(&k->c, &k->clone, e);
    if (rc == 0)
        k->cloned = false;
    return rc;
}
static int rule_clone(struct check *k, struct err *e)
{
    static char bytes[2 * SAMPLE];
    if (!k->native.handle[0])
        return check_skips(e, "no snapshot");
    int rc = clone(k, true, e);
    if (rc == 0)
        rc = exposure_sample(k, &k->clone, bytes, e);
    if (rc < 0)
        return rc;
    struct looking l = {.alias = k->clone.alias};
    rc = d->exposures(&k->c, exposure_check, &l, e);
    if (rc < 0)
        return rc;
    if (l.n != 1)
        return check_fails(e, "listed %u times in exposures", l.n);
    if (strcmp(l.tag.volume_id, k->native.tag.volume_id) != 0)
        return check_fails(e, "volume id \"%.200s\" in exposures", l.tag.volume_id);
    rc = unclone(k, e);
    l.n = 0;
    if (rc == 0)
        rc = d->exposures(&k->c, exposure_check, &l, e);
    return rc == 0 && l.n ? check_fails(e, "still listed in exposures after unexpose") : rc;
}
/* Writing to it must not change the native snapshot. */
static int rule_clone_writable(struct check *k, struct err *e)
{
    static char before[2 * SAMPLE], after[2 * SAMPLE];
    if (!k->native.handle[0])
        return check_skips(e, "no snapshot");
    CLEANUP_CLOSE int fd = -1;
    bool compare = k->exposed && d->expose(&k->c, &k->native, &k->c, EXPOSE_NATIVE, true, "", &k->exposure, e) == 0;
    int rc = compare ? exposure_sample(k, &k->exposure, before, e) : 0;
    if (rc == 0)
        rc = clone(k, false, e);
    if (rc == 0)
        rc = d->open(&k->c, &k->clone, &fd, e);
    if (rc < 0)
        return rc;
    static const char text[512] = "written by snapferry plugin-check";
    if (pwrite(fd, text, sizeof text, 0) != (ssize_t)sizeof text || fsync(fd) < 0)
        return check_fails(e, "cannot write to it: %s", strerror(errno));
    if (compare && (rc = exposure_sample(k, &k->exposure, after, e)) < 0)
        return rc;
    if (compare && memcmp(before, after, sizeof before) != 0)
        return check_fails(e, "the native snapshot changed when its clone was written");
    rc = unclone(k, e);
    /* What a daemon knows after a crash between its intent and the answer. */
    struct exposure *known = calloc(1, sizeof *known);
    if (rc == 0 && known && (rc = clone(k, false, e)) == 0) {
        memcpy(known->alias, k->clone.alias, sizeof known->alias);
        rc = d->unexpose(&k->c, known, e);
        if (rc == 0 && access(k->clone.path, F_OK) == 0)
            rc = check_fails(e, "not removed by unexpose with only the alias");
        if (rc == 0)
            k->cloned = false;
    }
    free(known);
    return rc;
}

/* ---- extents, pool ---- */

static int add_extent(uint64_t start, uint64_t len, void *arg)
{
    (void)start;
    *(uint64_t *)arg += len;
    return 0;
}
static int rule_allocated(struct check *k, struct err *e)
{
    uint64_t sum = 0;
    if (!k->exposed)
        return check_skips(e, "nothing was exposed");
    return d->allocated(&k->c, &k->exposure, add_extent, &sum, e);
}
static int rule_changed(struct check *k, struct err *e)
{
    struct changed_answer answer;
    CLEANUP_CLOSE int fd = -1;
    if (!k->native.handle[0])
        return check_skips(e, "no snapshot");
    k->taken_second = true;
    int rc = snapshot_take(k, &k->second, e);
    if (rc == 0)
        rc = driver_changed_sealed(&k->c, &k->native, &k->second, &fd, &answer, e);
    return rc < 0 || answer.state == CHANGED_LISTED ? rc : check_fails(e, "%.400s", answer.why);
}
static int rule_pool(struct check *k, struct err *e)
{
    struct pool_usage u;
    return k->resolved ? d->pool(&k->c, &k->volume, &u, e) : check_skips(e, "the volume could not be resolved");
}

/* ---- restore ---- */

static int rule_target(struct check *k, struct err *e)
{
    char alias[ALIAS_LEN + 1], name[VOLUME_NAME_MAX + 32];
    struct restore_target again;
    if (!k->resolved)
        return check_skips(e, "the volume could not be resolved");
    snprintf(name, sizeof name, "%.4000s.%s", k->volume.name, k->tag_text);
    alias_new(alias);
    uint64_t size = k->native.size ? k->native.size : k->volume.size;
    int rc = d->target(&k->c, name, size, alias, false, &k->target, e);
    k->target_made = rc == 0;
    if (rc == 0)
        rc = d->target(&k->c, name, size, alias, false, &again, e);
    if (rc == 0 && strcmp(again.path, k->target.path) != 0)
        rc = check_fails(e, "the second call creates %.300s in addition to %.300s", again.path, k->target.path);
    return rc;
}
static int rule_target_exists(struct check *k, struct err *e)
{
    char alias[ALIAS_LEN + 1];
    struct restore_target t;
    if (!k->resolved)
        return check_skips(e, "the volume could not be resolved");
    alias_new(alias);
    int rc = d->target(&k->c, k->volume.name, k->volume.size, alias, false, &t, e);
    if (rc == 0) {
        d->target_abort(&k->c, &t, NULL);
        return check_fails(e, "it would overwrite %.300s", k->volume.name);
    }
    return e->cls == ERR_TARGET ? (*e = (struct err)ERR_INIT, 0) : rc;
}
static int rule_target_from_native(struct check *k, struct err *e)
{
    static char want[2 * SAMPLE], have[2 * SAMPLE];
    struct exposure *x = calloc(1, sizeof *x);
    if (!x)
        return err_nomem(e);
    int rc = 0;
    if (!k->target_made || !k->native.handle[0])
        rc = check_skips(e, "no target or no snapshot");
    else
        rc = d->target_from_native(&k->c, &k->native, &k->target, &(struct fill){.rate = 0}, e);
    if (rc == 0 && k->exposed) {
        rc = d->expose(&k->c, &k->native, &k->c, EXPOSE_NATIVE, true, "", &k->exposure, e);
        if (rc == 0)
            rc = exposure_sample(k, &k->exposure, want, e);
        snprintf(x->path, sizeof x->path, "%s", k->target.path);
        x->size = k->target.size;
        x->read_only = true;
        if (rc == 0)
            rc = exposure_sample(k, x, have, e);
        if (rc == 0 && memcmp(want, have, sizeof want) != 0)
            rc = check_fails(e, "contents of the target differ from the snapshot");
    }
    free(x);
    return rc;
}
static int rule_target_abort(struct check *k, struct err *e)
{
    if (!k->target_made)
        return check_skips(e, "no target");
    int rc = d->target_abort(&k->c, &k->target, e);
    if (rc == 0)
        rc = d->target_abort(&k->c, &k->target, e);
    if (rc == 0)
        k->target_made = false;
    return rc;
}

/* ---- removing ---- */

static int rule_remove_foreign(struct check *k, struct err *e)
{
    struct native n;
    bool gone;
    if (!k->native.handle[0])
        return check_skips(e, "no snapshot");
    n = k->native;
    alias_new(n.tag.alias);
    d->remove(&k->c, &n, &gone, e); /* success ("already gone") or refusal: both are right */
    *e = (struct err)ERR_INIT;
    if (d->find(&k->c, &k->volume, k->native.tag.alias, k->native.handle, &n, e) < 0)
        return check_fails(e, "%.300s was removed although the alias differs", k->native.handle);
    return 0;
}
static int rule_remove(struct check *k, struct err *e)
{
    bool gone = false;
    if (!k->native.handle[0])
        return check_skips(e, "no snapshot");
    int rc = d->remove(&k->c, &k->native, &gone, e);
    if (rc == 0 && gone)
        rc = check_fails(e, "reported as already gone");
    if (rc == 0)
        rc = d->remove(&k->c, &k->native, &gone, e);
    if (rc == 0 && !gone)
        rc = check_fails(e, "no \"gone\": true the second time");
    if (rc == 0)
        k->taken = false;
    return rc;
}
static int rule_nothing_left(struct check *k, struct err *e)
{
    bool gone;
    int rc = k->taken_second ? d->remove(&k->c, &k->second, &gone, e) : 0;
    const char *const aliases[] = {k->native.tag.alias, k->second.tag.alias};
    if (rc == 0)
        k->taken_second = false;
    for (size_t i = 0; rc == 0 && i < 2; i++) {
        struct looking l = {.alias = aliases[i]};
        if (!*l.alias)
            continue;
        rc = d->list(&k->c, native_check, &l, e);
        if (rc == 0 && l.n)
            rc = check_fails(e, "list still contains %s", l.alias);
    }
    struct looking l = {.alias = k->clone.alias};
    if (rc == 0 && *l.alias)
        rc = d->exposures(&k->c, exposure_check, &l, e);
    return rc == 0 && l.n ? check_fails(e, "exposures still contains %s", l.alias) : rc;
}

#define D PLUGIN_DRIVER
const struct plugin_rule check_driver_rules[] = {
    {"driver.applies", D, 0, "applies accepts the class", rule_applies},
    {"driver.volumes", D, 0, "volumes lists the volume, each once, with valid members", rule_volumes},
    {"driver.resolve", D, 0, "resolve finds the volume, and its id is stable", rule_resolve},
    {"driver.resolve-unknown", D, 0, "resolve of a name that does not exist ends with exit code 16",
     rule_resolve_unknown},
    {"driver.snapshot", D, PA_SNAPSHOT, "snapshot returns the tag, the volume's size and a handle", rule_snapshot},
    {"driver.snapshot-twice", D, PA_SNAPSHOT, "the same alias again is the same snapshot", rule_snapshot_twice},
    {"driver.find", D, PA_SNAPSHOT, "find finds the alias although the handle is stale", rule_find},
    {"driver.find-unknown", D, PA_SNAPSHOT, "find of an unknown alias ends with exit code 16", rule_find_unknown},
    {"driver.list-tags", D, PA_SNAPSHOT, "list contains it once, with the complete tag", rule_list},
    {"driver.list-other-node", D, PA_SNAPSHOT, "list for another node does not contain it", rule_list_other_node},
    {"driver.expose-native", D, PA_NATIVE_RO,
     "the snapshot can be read at its exact size, and exposing it again gives "
     "the same path",
     rule_native},
    {"driver.unexpose-native", D, PA_NATIVE_RO, "unexpose works twice and leaves the snapshot", rule_native_undo},
    {"driver.clone", D, PA_CLONE, "a read-only clone can be read, is in exposures with its tag, and is removed",
     rule_clone},
    {"driver.clone-writable", D, PA_CLONE,
     "a writable clone can be written without changing the snapshot, and is "
     "found by its alias alone",
     rule_clone_writable},
    {"driver.allocated", D, PA_ALLOCATED, "extents are sorted and within the volume", rule_allocated},
    {"driver.changed", D, PA_CHANGED, "extents are sorted and within the volume", rule_changed},
    {"driver.pool", D, PA_POOL, "pool returns size and free space", rule_pool},
    {"driver.target", D, PA_TARGET, "target creates a staging object of the exact size, and returns the same one again",
     rule_target},
    {"driver.target-exists", D, PA_TARGET, "target for a volume that exists ends with exit code 17",
     rule_target_exists},
    {"driver.target-from-native", D, PA_TARGET_FROM_NATIVE, "the staging object then has the contents of the snapshot",
     rule_target_from_native},
    {"driver.target-abort", D, PA_TARGET, "target-abort removes it, and works twice", rule_target_abort},
    {"driver.remove-foreign", D, PA_SNAPSHOT,
     "remove with another alias does not remove the snapshot, whatever the handle", rule_remove_foreign},
    {"driver.remove", D, PA_SNAPSHOT, "remove removes it, and returns \"gone\" the second time", rule_remove},
    {"driver.nothing-left", D, PA_SNAPSHOT, "no object of the check remains", rule_nothing_left},
};
const unsigned check_n_driver_rules = sizeof check_driver_rules / sizeof *check_driver_rules;
