/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * expire-node.c - all that a node has stored, deleted: its snapshots, and the policies of its sources
 *
 * Crash points: expire-decided, expire-deleted (expire.c). Policies are deleted after the snapshots: whoever is
 * interrupted in between deletes them with the next attempt.
 */
#include "repo/expire-impl.h"

#include "base/cleanup.h"

#include <errno.h>
#include <string.h>

/* Tombstones of one content. */
#define POLICIES_AT_ONCE 2000

struct whose {
    struct seen seen;
    const char *user, *host;
    size_t others;
    struct policy_id {
        char id[33];
        int64_t modified_ns;
    } * policies;
    size_t n_policies;
};

static void whose_fini(struct whose *w)
{
    seen_fini(&w->seen);
    free(w->policies);
}

static bool label_is(const json_t *labels, const char *key, const char *value)
{
    const char *s = json_string_value(json_object_get(labels, key));
    return s && !strcmp(s, value);
}

/* Labels that name no host are those of a malformed manifest, which is counted. */
static bool of_host(const char *id, const json_t *labels, void *arg)
{
    const struct whose *w = arg;
    (void)id;
    return label_is(labels, "hostname", w->host) || !json_is_string(json_object_get(labels, "hostname"));
}

static int collect(struct snapshot *s, void *arg)
{
    struct whose *w = arg;
    if (strcmp(s->source.host, w->host) != 0)
        return 0;
    if (strcmp(s->source.user, w->user) != 0) {
        w->others++;
        return 0;
    }
    const int rc = seen_add(&w->seen, s);
    if (rc == 0)
        w->seen.list[w->seen.n - 1].goes = true;
    return rc;
}

/* Those of its sources, and its own. That of the host is also for other clients there. */
static int collect_policy(const struct manifest *m, void *arg)
{
    struct whose *w = arg;
    if (!label_is(m->labels, "hostname", w->host) || !label_is(m->labels, "username", w->user) ||
        (!label_is(m->labels, "policyType", "path") && !label_is(m->labels, "policyType", "user")))
        return 0;
    struct policy_id *list = realloc(w->policies, (w->n_policies + 1) * sizeof *list);
    if (!list)
        return -ENOMEM;
    w->policies = list;
    list[w->n_policies].modified_ns = m->modified_ns;
    memcpy(list[w->n_policies++].id, m->id, sizeof m->id);
    return 0;
}

static int describe_source(const struct whose *w, size_t at, size_t n, node_source_fn *fn, void *arg,
                           struct node_result *res)
{
    const struct seen_snapshot *list = w->seen.list + at; /* newest first */
    struct snapshot_source source;
    struct node_source s = {.source = &source,
                            .volume = list->source->volume ? list->source->volume : "",
                            .snapshots = n,
                            .newest_ns = list[0].start_ns,
                            .oldest_ns = list[n - 1].start_ns,
                            .size = list[0].size};
    for (size_t i = 0; i < n; i++) {
        s.incomplete += list[i].incomplete;
        s.pinned += list[i].pinned;
    }
    seen_source_get(list->source, &source);
    res->sources++;
    res->snapshots += n;
    res->incomplete += s.incomplete;
    res->pinned += s.pinned;
    if (res->newest_ns < s.newest_ns)
        res->newest_ns = s.newest_ns;
    return fn ? fn(&s, arg) : 0;
}

static int policies_delete(struct repo *r, const struct whose *w, struct err *e)
{
    int rc = 0;
    for (size_t at = 0; at < w->n_policies && rc == 0; at += POLICIES_AT_ONCE) {
        CLEANUP(manifest_batch_freep) struct manifest_batch *b = NULL;
        rc = manifest_batch_new(&b, e);
        for (size_t i = at; i < w->n_policies && i < at + POLICIES_AT_ONCE && rc == 0; i++) {
            rc = wait_until_younger(w->policies[i].modified_ns, w->policies[i].id, e);
            if (rc == 0)
                rc = manifest_batch_delete(b, w->policies[i].id, e);
        }
        if (rc == 0)
            rc = batch_commit(r, b, e);
    }
    return rc;
}

int snapshots_delete_node(struct repo *r, const char *user, const char *host, const struct delete_opts *o,
                          node_source_fn *fn, void *arg, struct node_result *res, struct err *e)
{
    struct whose w CLEANUP(whose_fini) = {.user = user, .host = host};
    const struct delete_opts how = {.pinned = o->pinned, .last_good = true, .dry_run = o->dry_run};
    *res = (struct node_result){.newest_ns = INT64_MIN};
    int rc = snapshots_wanted(r, of_host, collect, &w, &res->unreadable, e);
    if (rc == 0)
        rc = manifests_each(r, "policy", collect_policy, &w, e);
    if (rc < 0)
        return rc == -ENOMEM ? err_nomem(e) : rc;
    res->others = w.others;
    res->policies = w.n_policies;
    seen_sort(&w.seen);
    for (size_t at = 0, n; at < w.seen.n && rc == 0; at += n) {
        n = seen_group(&w.seen, at);
        rc = describe_source(&w, at, n, fn, arg, res);
    }
    if (rc == 0)
        rc = seen_check(&w.seen, &how, e);
    if (rc == 0 && !o->dry_run && w.seen.n)
        rc = seen_delete(r, &w.seen, e);
    return rc == 0 && !o->dry_run ? policies_delete(r, &w, e) : rc;
}
