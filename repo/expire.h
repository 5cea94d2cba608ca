/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * expire.h - policies of sources, and expiry of snapshots (Kopia repository format, sections 13 and 12.3)
 *
 * Retention is Kopia's: it belongs to the source, it is written as a Kopia policy, and what expires here is what a
 * stock client would expire from the same repository in the same time zone. Two rules are stricter: a source's newest
 * complete snapshot never expires (E-11), and nothing is deleted when a policy cannot be read. Deleting removes
 * snapshots from the list; their space is reclaimed by maintenance.
 *
 * Functions that change the repository open a session of their own and return when the change is durable and visible to
 * other clients; it is made completely or not at all.
 */
#ifndef SNAPFERRY_REPO_EXPIRE_H
#define SNAPFERRY_REPO_EXPIRE_H

#include "base/retention.h"
#include "repo/snapshot.h"

/* ---- policies ---- */

/*
 * Adds to the batch a change of the source's own policy to `keep`, with scheduling.manual = true; all other members of
 * an existing policy are preserved. A negative member is removed, so that it is inherited; if all are negative, the
 * retention of the policy is not changed. Nothing is added when nothing changes. A policy that is not a JSON object is
 * not changed (warning).
 */
int source_policy_keep(struct repo *r, const struct snapshot_source *src, const struct retention_policy *keep,
                       struct manifest_batch *b, struct err *e);

/* As stock clients inherit: the source, the paths above it, user@host, host, global, built-in defaults; a policy
 * with noParent ends the chain, and members not set by then are negative. An effective policy that cannot be read is
 * ERR_DAMAGE. */
int source_policy_effective(struct repo *r, const struct snapshot_source *src, struct retention_policy *ret,
                            struct err *e);

/* The same for many sources: all policies are read once. */
struct policies;
int policies_load(struct policies **ret, struct repo *r, struct err *e);
void policies_free(struct policies *p);
static inline void policies_freep(struct policies **p)
{
    policies_free(*p);
}
/* Where each member of an effective policy comes from: "source", "path", "user", "host", "global", "default", or "" for
 * one that is not set. */
struct retention_origin {
    const char *latest, *hourly, *daily, *weekly, *monthly, *annual;
};
int policies_effective(const struct policies *p, const struct snapshot_source *src, struct retention_policy *ret,
                       struct retention_origin *origin, struct err *e);

/* ---- expiring ---- */

struct expire_opts {
    const struct snapshot_source *source; /* this one; NULL: all of `user` and `host` */
    const char *user, *host;              /* NULL: any */
    const struct retention_policy *keep;  /* instead of each source's effective policy; NULL: that */
    const char *tz;                       /* as in retention_apply(); NULL: the process's zone */
    bool dry_run;
};

/* What is decided about one snapshot. */
struct expire_verdict {
    char id[33];
    const struct snapshot_source *source;
    const char *volume;                    /* what the newest of the source is tagged with; "" without such a tag */
    const char *operation;                 /* what it is tagged with, likewise */
    const struct retention_policy *policy; /* in force for it */
    const struct retention_origin *origin;
    int64_t start_ns, end_ns, size;
    bool incomplete, pinned;
    bool keep;
    const char (*reasons)[24]; /* Kopia's: "latest-1", "daily-3", "incomplete"; may be empty although it is kept */
    unsigned n_reasons;
    char why[256]; /* "latest-1, daily-3", "pinned", "the newest complete one", "not among the newest 10; older than 7
                      daily" */
};
typedef int expire_fn(const struct expire_verdict *v, void *arg);

struct expire_result {
    unsigned sources;
    uint64_t kept, expired; /* with dry_run: would be */
    unsigned unreadable;    /* snapshot manifests that cannot be parsed; they are not changed */
};

/*
 * Decides about every selected snapshot, calls fn (may be NULL) for each, source by source and newest first, and then,
 * unless dry_run, deletes the expired ones. A non-zero return of fn ends it before anything is deleted and is returned.
 * Nothing to expire is not an error; nor is a missing source (all counts 0).
 */
int snapshots_expire(struct repo *r, const struct expire_opts *o, expire_fn *fn, void *arg, struct expire_result *res,
                     struct err *e);

/* ---- by name ---- */

struct delete_opts {
    bool pinned;    /* also what is pinned */
    bool last_good; /* also the last complete snapshot of a source */
    bool dry_run;
};
struct delete_result {
    size_t deleted, gone; /* gone: there was no such snapshot */
};
/* Deletes snapshots by their full manifest ids, all or none: none if one is pinned or the last complete one of its
 * source and the options do not allow it (ERR_USAGE, -EPERM, naming it). Manifests of other types are ERR_USAGE. A
 * snapshot manifest that cannot be parsed may be deleted. */
int snapshots_delete(struct repo *r, const char *const *ids, size_t n, const struct delete_opts *o,
                     struct delete_result *res, struct err *e);

/* ---- all of a node ---- */

/* What a node has stored of one source. */
struct node_source {
    const struct snapshot_source *source;
    const char *volume; /* as in struct expire_verdict */
    size_t snapshots, incomplete, pinned;
    int64_t oldest_ns, newest_ns;
    int64_t size; /* of the newest; negative: unknown */
};
typedef int node_source_fn(const struct node_source *s, void *arg);

struct node_result {
    size_t sources, snapshots, incomplete, pinned, policies; /* with dry_run: would be deleted */
    int64_t newest_ns;                                       /* INT64_MIN: there is none */
    size_t others;       /* snapshots of other users of that host: other clients made them, and they stay */
    unsigned unreadable; /* snapshot manifests of that host that cannot be parsed; they stay */
};
/* Deletes all snapshots of user@host, the last good copies too (o->last_good is not asked), all or none, and then the
 * policies of its sources and its own. fn (may be NULL) is called for each source before, and if it is refused for a
 * pinned one (ERR_USAGE, -EPERM); its non-zero return ends it. *res is set as far as it came. */
int snapshots_delete_node(struct repo *r, const char *user, const char *host, const struct delete_opts *o,
                          node_source_fn *fn, void *arg, struct node_result *res, struct err *e);

/* Adds and removes pins (NULL-terminated lists, each may be NULL). A changed snapshot is rewritten, so its id
 * changes, as with stock clients: *new_id gets it (the old one when nothing changed). `id` is a full manifest id.
 * ERR_NOT_FOUND. */
int snapshot_pin(struct repo *r, const char *id, const char *const *add, const char *const *remove, char new_id[33],
                 struct err *e);

#endif
