/* SPDX-License-Identifier: GPL-2.0-or-later */
/* expire-impl.h - what the files of expire*.c share: the snapshots of a repository in about 130 bytes each */
#ifndef SNAPFERRY_REPO_EXPIRE_IMPL_H
#define SNAPFERRY_REPO_EXPIRE_IMPL_H

#include "repo/expire.h"

/* A source, once for all of its snapshots: user, host and path, each with its NUL. */
struct seen_source {
    char *volume; /* tag "volume" of the newest snapshot that has one, NULL: none */
    int64_t volume_ns;
    size_t len;
    char text[];
};
void seen_source_get(const struct seen_source *s, struct snapshot_source *ret);

struct seen_snapshot {
    uint8_t id[16];
    const struct seen_source *source; /* the same pointer for the same source */
    int64_t modified_ns, start_ns, end_ns, size;
    char *operation; /* that made it, by its tag; NULL: it has none */
    bool incomplete, pinned;
    bool goes; /* decided */
};

struct seen {
    struct seen_snapshot *list;
    size_t n, cap;
    void *sources; /* tree of struct seen_source */
    unsigned n_sources;
};
void seen_fini(struct seen *all);
int seen_add(struct seen *all, const struct snapshot *s); /* 0 or -ENOMEM */
/* Sources together, each newest first; then the number of snapshots of the source that begins at `from`. */
void seen_sort(struct seen *all);
size_t seen_group(const struct seen *all, size_t from);
/* ERR_USAGE, -EPERM if the options do not allow the deletion of the selected ones. Sorted. */
int seen_check(const struct seen *all, const struct delete_opts *o, struct err *e);
/* Deletes the selected ones, all or none; durable when it returns. */
int seen_delete(struct repo *r, const struct seen *all, struct err *e);

/* Writes a small batch in a session of its own; durable when it returns. */
int batch_commit(struct repo *r, struct manifest_batch *b, struct err *e);

/* A tombstone must be newer than what it deletes: waits up to 2 s, else ERR_CLOCK. */
int wait_until_younger(int64_t modified_ns, const char *id, struct err *e);

#endif
