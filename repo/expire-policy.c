/* SPDX-License-Identifier: GPL-2.0-or-later */
/* expire-policy.c - retention in the policies of a repository, and this node's policies among them */
#include "repo/expire.h"

#include "base/cleanup.h"
#include "repo/gojson.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *key;
    size_t at; /* in struct retention_policy */
    size_t origin;
    int by_default;
} members[RETENTION_KINDS] = {
#define M(key, field, n)                                                                                               \
    {                                                                                                                  \
        key, offsetof(struct retention_policy, field), offsetof(struct retention_origin, field), n                     \
    }
    M("keepLatest", latest, 10), M("keepHourly", hourly, 48),   M("keepDaily", daily, 7),
    M("keepWeekly", weekly, 4),  M("keepMonthly", monthly, 24), M("keepAnnual", annual, 3),
#undef M
};

static int *member_of(struct retention_policy *p, size_t i)
{
    return (int *)(void *)((char *)p + members[i].at);
}

static int retention_wanted(const struct retention_policy *p, size_t i)
{
    return *(const int *)(const void *)((const char *)p + members[i].at);
}

static bool label_is(const struct manifest *m, const char *key, const char *value)
{
    const char *s = json_string_value(json_object_get(m->labels, key));
    return s && !strcmp(s, value);
}

/* ---- a source's own policy, written ---- */

struct own_policy {
    const struct snapshot_source *src;
    json_t *data; /* of the latest */
    int64_t modified_ns;
    char (*ids)[33];
    size_t n;
};

static void own_policy_fini(struct own_policy *a)
{
    json_decref(a->data);
    free(a->ids);
}

static int own_policy_one(const struct manifest *m, void *arg)
{
    struct own_policy *a = arg;
    if (!label_is(m, "policyType", "path") || !label_is(m, "username", a->src->user) ||
        !label_is(m, "hostname", a->src->host) || !label_is(m, "path", a->src->path))
        return 0;
    char(*ids)[33] = realloc(a->ids, (a->n + 1) * sizeof *ids);
    if (!ids)
        return -ENOMEM;
    a->ids = ids;
    memcpy(a->ids[a->n++], m->id, sizeof m->id);
    if (!a->data || m->modified_ns > a->modified_ns) {
        json_decref(a->data);
        a->data = json_deep_copy(m->data);
        a->modified_ns = m->modified_ns;
        if (!a->data)
            return -ENOMEM;
    }
    return 0;
}

/* What a stock client writes for a policy that only sets "manual". */
static const char manual_policy[] =
    "{\"retention\":{},\"files\":{},\"errorHandling\":{},\"scheduling\":{\"manual\":true},\"compression\":{},"
    "\"metadataCompression\":{},\"splitter\":{},\"actions\":{},\"osSnapshots\":{\"volumeShadowCopy\":{}},"
    "\"logging\":{\"directories\":{},\"entries\":{}},\"upload\":{}}";

/* The spelling that an object has for a key; if there are several, the effective one. */
static const char *key_spelling(json_t *obj, const char *key)
{
    const char *found = key, *k;
    json_t *v;
    json_object_foreach(obj, k, v)
    {
        if (!strcasecmp(k, key))
            found = k;
    }
    return found;
}

static bool is_manual(const json_t *policy)
{
    bool manual = false;
    const json_t *scheduling = go_member(policy, "scheduling");
    return scheduling && go_bool(scheduling, "manual", &manual) == 0 && manual;
}

static void remove_member(json_t *obj, const char *key)
{
    void *i = json_object_iter(obj);
    while (i) {
        const char *k = json_object_iter_key(i);
        if (!strcasecmp(k, key)) {
            json_object_del(obj, k);
            i = json_object_iter(obj);
        } else {
            i = json_object_iter_next(obj, i);
        }
    }
}

static bool keep_is_set(const struct retention_policy *keep)
{
    for (size_t i = 0; keep && i < RETENTION_KINDS; i++) {
        if (retention_wanted(keep, i) >= 0)
            return true;
    }
    return false;
}

/* True if the policy's retention is already equal. */
static bool retention_equals(const json_t *retention, const struct retention_policy *keep)
{
    for (size_t i = 0; i < RETENTION_KINDS; i++) {
        const json_t *v = json_is_object(retention) ? go_member(retention, members[i].key) : NULL;
        if (retention_wanted(keep, i) < 0 ? v != NULL
                                          : !json_is_integer(v) || json_integer_value(v) != retention_wanted(keep, i))
            return false;
    }
    return true;
}

/* The new retention member: ours in the order of stock clients, then the others. */
static json_t *new_retention(const json_t *old, const struct retention_policy *keep)
{
    json_t *v = json_object();
    json_t *rest CLEANUP(json_decrefp) = json_is_object(old) ? json_copy((json_t *)(uintptr_t)old) : json_object();
    int rc = v && rest ? 0 : -1;
    for (size_t i = 0; i < RETENTION_KINDS && rc == 0; i++) {
        remove_member(rest, members[i].key);
        if (retention_wanted(keep, i) >= 0)
            rc = go_set(v, members[i].key, json_integer(retention_wanted(keep, i)));
    }
    if (rc == 0 && json_object_update(v, rest) == 0)
        return v;
    json_decref(v);
    return NULL;
}

static int change_policy(const struct own_policy *a, const struct retention_policy *keep, struct manifest_batch *b,
                         struct err *e)
{
    if (a->data && !json_is_object(a->data)) {
        log_warning("malformed policy %s of %s@%s:%s: not changed", a->ids[0], a->src->user, a->src->host,
                    a->src->path);
        return 0;
    }
    bool set_keep = keep_is_set(keep) && !(a->data && retention_equals(go_member(a->data, "retention"), keep));
    bool set_manual = !a->data || !is_manual(a->data);
    if (!set_keep && !set_manual)
        return 0;
    json_t *policy CLEANUP(json_decrefp) =
        a->data ? json_incref(a->data) : go_parse(manual_policy, sizeof manual_policy - 1);
    json_t *labels CLEANUP(json_decrefp) =
        json_pack("{s:s, s:s, s:s, s:s, s:s}", "type", "policy", "policyType", "path", "hostname", a->src->host,
                  "username", a->src->user, "path", a->src->path);
    if (!policy || !labels)
        return err_nomem(e);
    /* Stock refuses a policy with "manual" beside any other member of scheduling. */
    if (set_manual && go_set(policy, key_spelling(policy, "scheduling"), json_pack("{s:b}", "manual", 1)) < 0)
        return err_nomem(e);
    if (set_keep &&
        go_set(policy, key_spelling(policy, "retention"), new_retention(go_member(policy, "retention"), keep)) < 0)
        return err_nomem(e);
    int rc = manifest_batch_add(b, labels, policy, NULL, e);
    /* With two live policies of one target the effective one would be undefined (pitfall P18). */
    for (size_t i = 0; i < a->n && rc == 0; i++)
        rc = manifest_batch_delete(b, a->ids[i], e);
    return rc;
}

int source_policy_keep(struct repo *r, const struct snapshot_source *src, const struct retention_policy *keep,
                       struct manifest_batch *b, struct err *e)
{
    struct own_policy a CLEANUP(own_policy_fini) = {.src = src};
    int rc = manifests_each(r, "policy", own_policy_one, &a, e);
    if (rc < 0)
        return rc == -ENOMEM ? err_nomem(e) : rc;
    return change_policy(&a, keep, b, e);
}

int source_policy_manual(struct repo *r, const struct snapshot_source *src, struct manifest_batch *b, struct err *e)
{
    return source_policy_keep(r, src, NULL, b, e);
}

/* ---- effective policies ---- */

enum target { TARGET_PATH, TARGET_USER, TARGET_HOST, TARGET_GLOBAL };

struct policy {
    char id[33];
    enum target target;
    int64_t modified_ns;
    const char *bad; /* malformed member, NULL: none */
    bool no_parent;
    int64_t keep[RETENTION_KINDS]; /* negative: not set */
    char *user, *host, *path;      /* "" where the target has none; one allocation, at `user` */
};

struct policies {
    struct policy *list;
    size_t n, cap;
};

void policies_free(struct policies *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n; i++)
        free(p->list[i].user);
    free(p->list);
    free(p);
}

static const char *policy_label(const struct manifest *m, const char *key)
{
    const char *s = json_string_value(json_object_get(m->labels, key));
    return s ? s : "";
}

/* As in stock clients, one malformed member makes the whole document unreadable. */
static void read_policy(struct policy *p, const json_t *data)
{
    for (size_t i = 0; i < RETENTION_KINDS; i++)
        p->keep[i] = -1;
    const json_t *retention = json_is_object(data) ? go_member(data, "retention") : NULL;
    if (!json_is_object(data))
        p->bad = "document";
    else if (go_bool(data, "noParent", &p->no_parent) < 0)
        p->bad = "noParent";
    else if (retention && !json_is_object(retention))
        p->bad = "retention";
    for (size_t i = 0; i < RETENTION_KINDS && retention && !p->bad; i++) {
        bool set = go_member(retention, members[i].key) != NULL;
        if (go_int(retention, members[i].key, INT64_MIN, INT64_MAX, &p->keep[i]) < 0)
            p->bad = members[i].key;
        /* A negative number keeps nothing; unlike a missing one it overrides inherited values. */
        else if (set && p->keep[i] < 0)
            p->keep[i] = 0;
    }
}

static int add_policy(const struct manifest *m, void *arg)
{
    static const char *const types[] = {"path", "user", "host", "global"};
    struct policies *all = arg;
    struct policy p = {.modified_ns = m->modified_ns};
    while (p.target < TARGET_GLOBAL && !label_is(m, "policyType", types[p.target]))
        p.target++;
    if (p.target == TARGET_GLOBAL && !label_is(m, "policyType", "global"))
        return 0;
    const char *user = p.target <= TARGET_USER ? policy_label(m, "username") : "";
    const char *host = p.target <= TARGET_HOST ? policy_label(m, "hostname") : "";
    const char *path = p.target == TARGET_PATH ? policy_label(m, "path") : "";
    if (all->n == all->cap) {
        size_t cap = all->cap ? all->cap * 2 : 16;
        struct policy *list = realloc(all->list, cap * sizeof *list);
        if (!list)
            return -ENOMEM;
        all->list = list;
        all->cap = cap;
    }
    size_t nu = strlen(user) + 1, nh = strlen(host) + 1, np = strlen(path) + 1;
    p.user = malloc(nu + nh + np);
    if (!p.user)
        return -ENOMEM;
    p.host = p.user + nu;
    p.path = p.host + nh;
    memcpy(p.user, user, nu);
    memcpy(p.host, host, nh);
    memcpy(p.path, path, np);
    memcpy(p.id, m->id, sizeof p.id);
    read_policy(&p, m->data);
    all->list[all->n++] = p;
    return 0;
}

int policies_load(struct policies **ret, struct repo *r, struct err *e)
{
    CLEANUP(policies_freep) struct policies *p = calloc(1, sizeof *p);
    if (!p)
        return err_nomem(e);
    int rc = manifests_each(r, "policy", add_policy, p, e);
    if (rc < 0)
        return rc == -ENOMEM ? err_nomem(e) : rc;
    *ret = take_ptr(&p);
    return 0;
}

static const struct policy *find_policy(const struct policies *all, enum target t, const char *user, const char *host,
                                        const char *path, size_t path_len)
{
    const struct policy *best = NULL;
    for (size_t i = 0; i < all->n; i++) {
        const struct policy *p = &all->list[i];
        if (p->target == t && !strcmp(p->user, user) && !strcmp(p->host, host) && strlen(p->path) == path_len &&
            !memcmp(p->path, path, path_len) && (!best || p->modified_ns > best->modified_ns))
            best = p;
    }
    return best;
}

/* Inherits what is not set yet. 1: policies above do not apply. */
static int policy_merge(const struct policy *p, const char *origin, struct retention_policy *ret,
                        struct retention_origin *from, struct err *e)
{
    if (!p)
        return 0;
    if (p->bad) {
        err_set(e, ERR_DAMAGE, EBADMSG, "malformed policy %s (%s%s%s%s%s): %s; no retention is applied", p->id, origin,
                *p->user || *p->host ? " " : "", p->user, *p->user ? "@" : "", p->host, p->bad);
        return err_hint(e, "set it again with \"kopia policy set\", or remove it");
    }
    for (size_t i = 0; i < RETENTION_KINDS; i++) {
        const char **o = (const char **)(void *)((char *)from + members[i].origin);
        if (p->keep[i] < 0 || **o)
            continue;
        *member_of(ret, i) = p->keep[i] > INT_MAX ? INT_MAX : (int)p->keep[i];
        *o = origin;
    }
    return p->no_parent;
}

/* Length of the parent path of the first n bytes; n itself at the top. */
static size_t parent_length(const char *path, size_t n)
{
    size_t top = *path == '/' ? 1 : 0, from = n;
    if (n <= top)
        return n;
    while (n > top && path[n - 1] != '/')
        n--;
    while (n > top && path[n - 1] == '/')
        n--;
    return n ? n : from;
}

int policies_effective(const struct policies *all, const struct snapshot_source *src, struct retention_policy *ret,
                       struct retention_origin *origin, struct err *e)
{
    struct retention_policy keep = {-1, -1, -1, -1, -1, -1};
    struct retention_origin from = {"", "", "", "", "", ""};
    int rc = 0;
    for (size_t n = strlen(src->path), up; rc == 0; n = up) {
        bool own = !src->path[n];
        rc = policy_merge(find_policy(all, TARGET_PATH, src->user, src->host, src->path, n), own ? "source" : "path",
                          &keep, &from, e);
        up = parent_length(src->path, n);
        if (up == n)
            break;
    }
    if (rc == 0)
        rc = policy_merge(find_policy(all, TARGET_USER, src->user, src->host, "", 0), "user", &keep, &from, e);
    if (rc == 0)
        rc = policy_merge(find_policy(all, TARGET_HOST, "", src->host, "", 0), "host", &keep, &from, e);
    if (rc == 0)
        rc = policy_merge(find_policy(all, TARGET_GLOBAL, "", "", "", 0), "global", &keep, &from, e);
    if (rc == 0) {
        struct policy defaults = {.user = (char[]){""}, .host = (char[]){""}};
        for (size_t i = 0; i < RETENTION_KINDS; i++)
            defaults.keep[i] = members[i].by_default;
        rc = policy_merge(&defaults, "default", &keep, &from, e);
    }
    if (rc < 0)
        return rc;
    *ret = keep;
    if (origin)
        *origin = from;
    return 0;
}

int source_policy_effective(struct repo *r, const struct snapshot_source *src, struct retention_policy *ret,
                            struct err *e)
{
    CLEANUP(policies_freep) struct policies *p = NULL;
    int rc = policies_load(&p, r, e);
    return rc < 0 ? rc : policies_effective(p, src, ret, NULL, e);
}
