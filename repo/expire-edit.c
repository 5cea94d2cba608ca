/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * expire-edit.c - single snapshots deleted and pinned
 *
 * Crash points: expire-decided, expire-deleted (expire.c), pin-decided, pin-written.
 */
#include "repo/expire-impl.h"

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/crash.h"
#include "repo/gojson.h"

#include <errno.h>
#include <string.h>

/* ---- deleting ---- */

struct wanted {
    struct seen seen;
    uint8_t (*ids)[16]; /* sorted, unique */
    bool *found;        /* parallel: there is such a manifest */
    size_t n;
};

static void wanted_fini(struct wanted *w)
{
    seen_fini(&w->seen);
    free(w->ids);
    free(w->found);
}

static int by_bytes(const void *a, const void *b)
{
    return memcmp(a, b, 16);
}

static bool *find_wanted(const struct wanted *w, const uint8_t id[16])
{
    const uint8_t(*at)[16] = w->n ? bsearch(id, w->ids, w->n, 16, by_bytes) : NULL;
    return at ? &w->found[at - (const uint8_t(*)[16])w->ids] : NULL;
}

static int wanted_fill(struct wanted *w, const char *const *ids, size_t n, struct err *e)
{
    w->ids = malloc((n ? n : 1) * sizeof *w->ids);
    w->found = calloc(n ? n : 1, sizeof *w->found);
    if (!w->ids || !w->found)
        return err_nomem(e);
    for (size_t i = 0; i < n; i++) {
        if (strlen(ids[i]) != 32 || hex_decode(w->ids[i], ids[i], 32) < 0)
            return err_set(e, ERR_USAGE, EINVAL, "invalid snapshot id \"%.64s\": 32 hexadecimal digits expected",
                           ids[i]);
    }
    qsort(w->ids, n, sizeof *w->ids, by_bytes);
    for (size_t i = 0; i < n; i++) {
        if (!w->n || memcmp(w->ids[w->n - 1], w->ids[i], 16) != 0)
            memmove(w->ids[w->n++], w->ids[i], 16);
    }
    return 0;
}

/* All manifests, because an id may be that of another manifest, or of a malformed snapshot. */
static int wanted_check(const struct manifest *m, void *arg)
{
    struct wanted *w = arg;
    const char *type = json_string_value(json_object_get(m->labels, "type"));
    uint8_t id[16];
    hex_decode(id, m->id, 32);
    bool *found = find_wanted(w, id), is_snapshot = type && !strcmp(type, "snapshot");
    if (!found && !is_snapshot)
        return 0;
    if (!is_snapshot)
        return -EISDIR;
    struct snapshot s;
    int rc = snapshot_parse(&s, m, NULL);
    if (rc == -ENOMEM)
        return rc;
    if (rc < 0) {
        if (!found)
            return 0;
        s = (struct snapshot){.modified_ns = m->modified_ns, .incomplete = "unreadable"};
        memcpy(s.id, m->id, sizeof s.id);
    }
    if (found)
        *found = true;
    rc = seen_add(&w->seen, &s);
    snapshot_clear(&s);
    if (rc == 0)
        w->seen.list[w->seen.n - 1].goes = found != NULL;
    return rc;
}

static int edit_refused(const struct seen_snapshot *s, const char *why, const char *option, struct err *e)
{
    char id[33], text[sizeof(struct snapshot_source) + 8];
    struct snapshot_source src;
    seen_source_get(s->source, &src);
    hex_encode(id, s->id, 16);
    err_set(e, ERR_USAGE, 0, "snapshot %s of %s %s: nothing deleted", id, snapshot_source_text(&src, text, sizeof text),
            why);
    err_hint(e, "%s", option);
    e->sys = EPERM; /* not a usage error: it can be allowed */
    return -EPERM;
}

/* One source: its list, newest first. */
static int check_group(const struct seen_snapshot *list, size_t n, const struct delete_opts *o, struct err *e)
{
    const struct seen_snapshot *last = NULL;
    bool stays = false;
    for (size_t i = 0; i < n; i++) {
        if (list[i].goes && list[i].pinned && !o->pinned)
            return edit_refused(&list[i], "is pinned", "remove the pin first, or use --force", e);
        if (list[i].incomplete)
            continue;
        if (!list[i].goes)
            stays = true;
        else if (!last)
            last = &list[i];
    }
    if (last && !stays && !o->last_good)
        return edit_refused(last, "is the last good copy of its volume", "use --force to delete it", e);
    return 0;
}

int seen_check(const struct seen *all, const struct delete_opts *o, struct err *e)
{
    int rc = 0;
    for (size_t at = 0, n; at < all->n && rc == 0; at += n) {
        n = seen_group(all, at);
        rc = check_group(all->list + at, n, o, e);
    }
    return rc;
}

int snapshots_delete(struct repo *r, const char *const *ids, size_t n, const struct delete_opts *o,
                     struct delete_result *res, struct err *e)
{
    static const struct delete_opts careful = {0};
    struct wanted w CLEANUP(wanted_fini) = {0};
    struct delete_result done = {0};
    o = o ? o : &careful;
    int rc = wanted_fill(&w, ids, n, e);
    if (rc < 0)
        return rc;
    rc = n ? manifests_each(r, NULL, wanted_check, &w, e) : 0;
    if (rc == -ENOMEM)
        return err_nomem(e);
    if (rc == -EISDIR)
        return err_set(e, ERR_USAGE, EINVAL,
                       "one of the ids belongs to a manifest that is not a snapshot: nothing deleted");
    for (size_t i = 0; i < w.n; i++) {
        done.deleted += w.found[i];
        done.gone += !w.found[i];
    }
    seen_sort(&w.seen);
    if (rc == 0)
        rc = seen_check(&w.seen, o, e);
    if (rc == 0 && done.deleted && !o->dry_run)
        rc = seen_delete(r, &w.seen, e);
    if (rc == 0 && res)
        *res = done;
    return rc;
}

/* ---- pins ---- */

struct pinning {
    const char *id;
    json_t *labels, *data;
    int64_t modified_ns;
    bool unreadable;
};

static void pinning_fini(struct pinning *p)
{
    json_decref(p->labels);
    json_decref(p->data);
}

static bool wanted_add(const char *id, void *arg)
{
    const struct pinning *p = arg;
    return !strcmp(id, p->id);
}

static int take_one(const struct manifest *m, void *arg)
{
    struct pinning *p = arg;
    struct snapshot s;
    if (strcmp(m->id, p->id) != 0)
        return 0;
    int rc = snapshot_parse(&s, m, NULL);
    if (rc == -EINVAL)
        p->unreadable = true;
    if (rc < 0)
        return rc == -EINVAL ? 0 : rc;
    snapshot_clear(&s);
    p->labels = json_deep_copy(m->labels);
    p->data = json_deep_copy(m->data);
    p->modified_ns = m->modified_ns;
    return p->labels && p->data ? 0 : -ENOMEM;
}

static int by_pin(const void *a, const void *b)
{
    return strcmp(json_string_value(*(json_t *const *)a), json_string_value(*(json_t *const *)b));
}

/* Adds or removes one pin; 1: changed. */
static int set_pin(json_t *pins, const char *name, bool want)
{
    size_t i;
    json_t *v;
    json_array_foreach(pins, i, v)
    {
        if (strcmp(json_string_value(v), name) != 0)
            continue;
        if (!want)
            json_array_remove(pins, i);
        return want ? 0 : 1;
    }
    if (!want)
        return 0;
    v = json_string(name);
    return v && json_array_append_new(pins, v) == 0 ? 1 : -1;
}

/* Sorted, each once, as stock clients write them. NULL: no memory. */
static json_t *sorted_pins(json_t *pins)
{
    size_t n = json_array_size(pins), i;
    json_t *v, **all CLEANUP_FREE = malloc((n ? n : 1) * sizeof(json_t *)), *out = json_array();
    if (!all || !out) {
        json_decref(out);
        return NULL;
    }
    json_array_foreach(pins, i, v) all[i] = v;
    qsort(all, n, sizeof(json_t *), by_pin);
    for (i = 0; i < n && out; i++) {
        if (i && !strcmp(json_string_value(all[i]), json_string_value(all[i - 1])))
            continue;
        if (json_array_append(out, all[i]) < 0) {
            json_decref(out);
            out = NULL;
        }
    }
    return out;
}

static int check_pins(const char *const *names, struct err *e)
{
    for (; names && *names; names++) {
        json_t *v CLEANUP(json_decrefp) = json_string(*names);
        if (!**names || !v || strlen(*names) > 256)
            return err_set(e, ERR_USAGE, EINVAL, "invalid name of a pin: 1 to 256 bytes of UTF-8 expected");
    }
    return 0;
}

/* 1: changed, 0: nothing to do. */
static int change_pins(struct pinning *p, const char *const *add, const char *const *remove, struct err *e)
{
    json_t *old = go_member(p->data, "pins");
    json_t *pins CLEANUP(json_decrefp) = old ? json_copy(old) : json_array();
    int changed = 0, rc = pins ? 0 : -1;
    for (; add && *add && rc >= 0; add++)
        changed |= rc = set_pin(pins, *add, true);
    for (; remove && *remove && rc >= 0; remove++)
        changed |= rc = set_pin(pins, *remove, false);
    if (rc < 0)
        return err_nomem(e);
    if (!changed)
        return 0;
    for (void *i = json_object_iter(p->data), *next; i; i = next) {
        const char *k = json_object_iter_key(i);
        next = json_object_iter_next(p->data, i);
        if (!strcasecmp(k, "pins"))
            json_object_del(p->data, k);
    }
    if (json_array_size(pins) && go_set(p->data, "pins", sorted_pins(pins)) < 0)
        return err_nomem(e);
    return 1;
}

int snapshot_pin(struct repo *r, const char *id, const char *const *add, const char *const *remove, char new_id[33],
                 struct err *e)
{
    struct pinning p CLEANUP(pinning_fini) = {.id = id};
    CLEANUP(manifests_freep) struct manifests *all = NULL;
    CLEANUP(manifest_batch_freep) struct manifest_batch *b = NULL;
    char fresh[33];
    int rc = check_pins(add, e);
    if (rc == 0)
        rc = check_pins(remove, e);
    if (rc == 0)
        rc = manifests_open(&all, r, e);
    if (rc == 0)
        rc = manifests_walk(all, "snapshot", wanted_add, take_one, &p, e);
    if (rc < 0)
        return rc == -ENOMEM ? err_nomem(e) : rc;
    if (p.unreadable)
        return err_set(e, ERR_DAMAGE, EBADMSG, "malformed manifest of snapshot %s", id);
    if (!p.data)
        return err_plain(e, ERR_NOT_FOUND, ENOENT, "no snapshot with id \"%.64s\"", id);
    rc = change_pins(&p, add, remove, e);
    if (rc == 0 && new_id)
        snprintf(new_id, 33, "%s", id);
    if (rc <= 0)
        return rc;
    rc = wait_until_younger(p.modified_ns, id, e);
    if (rc == 0)
        rc = manifest_batch_new(&b, e);
    if (rc == 0)
        rc = manifest_batch_add(b, p.labels, p.data, fresh, e);
    if (rc == 0)
        rc = manifest_batch_delete(b, id, e);
    crash_point("pin-decided");
    if (rc == 0)
        rc = batch_commit(r, b, e);
    crash_point("pin-written");
    if (rc == 0 && new_id)
        memcpy(new_id, fresh, sizeof fresh);
    return rc;
}
