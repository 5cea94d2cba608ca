/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * snapshot.h - snapshot manifests and directories (Kopia repository format, sections 12.3-12.8)
 */
#ifndef SNAPFERRY_REPO_SNAPSHOT_H
#define SNAPFERRY_REPO_SNAPSHOT_H

#include "repo/manifest.h"

/* user@host:/path */
struct snapshot_source {
    char user[128], host[256], path[4096];
};
/* "USER@HOST:/PATH"; ERR_USAGE. */
int snapshot_source_parse(struct snapshot_source *ret, const char *text, struct err *e);
char *snapshot_source_text(const struct snapshot_source *s, char *out, size_t cap);
bool snapshot_source_equal(const struct snapshot_source *a, const struct snapshot_source *b);

/* A directory entry (also a snapshot's root). */
struct dir_entry {
    char *name;    /* malloc()ed by the reader */
    char type;     /* 'f' 'd' 's', or '?' for anything else */
    uint32_t mode; /* Unix bits 07777 (Go's setuid/setgid/sticky bits are translated) */
    int64_t size;  /* files; -1: absent */
    int64_t mtime_ns;
    uint32_t uid, gid;
    struct object_id obj; /* content.len 0: none */
    /* summary of a directory (present if has_summary) */
    bool has_summary;
    int64_t sum_size, sum_files, sum_symlinks, sum_dirs, sum_max_time_ns, sum_failed, sum_ignored;
    char sum_incomplete[32];
};
void dir_entry_clear(struct dir_entry *d);
/* From and to its JSON form (section 12.4): refuses (-EINVAL) what stock clients refuse; -ENOMEM. New reference, NULL:
 * no memory, or a name that is not UTF-8. A file without a size has 0 bytes. */
int dir_entry_parse(struct dir_entry *ret, const json_t *v);
json_t *dir_entry_to_json(const struct dir_entry *d);

struct snapshot {
    char id[33]; /* manifest id */
    int64_t modified_ns;
    struct snapshot_source source;
    char description[1024];
    int64_t start_ns, end_ns;
    int64_t total_size, file_count, dir_count, error_count, ignored_errors;
    char incomplete[32]; /* "": complete */
    struct dir_entry root;
    json_t *tags; /* "tag:KEY" -> value, or NULL; owned */
    json_t *pins; /* list of strings, or NULL; owned */
};
void snapshot_clear(struct snapshot *s);
/* Parses and validates a document of type "snapshot" as strictly as stock clients do (pitfall P1). -EINVAL: `why`
 * (if not NULL) names the member; -ENOMEM. A description that is too long is truncated. */
int snapshot_parse(struct snapshot *ret, const struct manifest *m, const char **why);

/* Calls fn for every snapshot, oldest start first when `sorted` is set (then 32 bytes per snapshot are held in
 * addition). Documents that cannot be parsed are reported as warnings (log) and counted in *bad (NULL allowed), never
 * silently dropped. The snapshot is cleared after the call. */
typedef int snapshot_fn(struct snapshot *s, void *arg);
int snapshots_each(struct repo *r, const struct snapshot_source *only, bool sorted, snapshot_fn *fn, void *arg,
                   unsigned *bad, struct err *e);

/* The same, in no order, of the snapshots that `want` accepts by their id and their labels (source and tags, as every
 * client writes them): the documents of others are not parsed, which costs most of a walk. *bad (NULL allowed): how
 * many of these are malformed. */
typedef bool snapshot_want_fn(const char *id, const json_t *labels, void *arg);
int snapshots_wanted(struct repo *r, snapshot_want_fn *want, snapshot_fn *fn, void *arg, unsigned *bad, struct err *e);
/* Whether labels name another source; a path "" in `source` is any path. False if they name none. */
bool snapshot_labels_differ(const json_t *labels, const struct snapshot_source *source);

/*
 * Finds one snapshot: a manifest id, the object id of its root directory ("k..."; what stock clients list), a unique
 * prefix of either of at least 4 digits, or "latest" (newest complete one; of `only` if given; without it, if several
 * sources exist: ERR_USAGE naming some of them and --as). ERR_NOT_FOUND; an ambiguous prefix, or a root directory that
 * several snapshots share as nothing had changed, is ERR_USAGE naming the candidates.
 */
int snapshot_find(struct repo *r, const char *what, const struct snapshot_source *only, struct snapshot *ret,
                  struct err *e);

/* The two parents of a new snapshot of `src`: the latest complete one and the newest incomplete one that is newer (each
 * may be missing: has_* false). Also lists the ids of all incomplete ones of that source (to be superseded): *old_ids
 * is malloc()ed, n_old entries of 33 bytes. */
int snapshot_parents(struct repo *r, const struct snapshot_source *src, struct snapshot *complete, bool *has_complete,
                     struct snapshot *incomplete, bool *has_incomplete, char (**old_ids)[33], size_t *n_old,
                     struct err *e);

/* ---- directories ---- */

/* Calls fn for each entry of a directory object, streaming (any number of entries). The entry is cleared afterwards. */
typedef int dir_fn(struct dir_entry *d, void *arg);
int dir_each(struct repo *r, const struct object_id *dir, dir_fn *fn, void *arg, struct err *e);
/* The same with contents that may have been read ahead (tree-ahead.h); NULL: none. */
int dir_each_ahead(struct repo *r, struct content_ahead *ahead, const struct object_id *dir, dir_fn *fn, void *arg,
                   struct err *e);

/* Walks a path ("" = root itself, "a/b") from a snapshot's root. ERR_NOT_FOUND names the part that is missing. */
int dir_lookup(struct repo *r, const struct dir_entry *root, const char *path, struct dir_entry *ret, struct err *e);

/* ---- writing a volume's snapshot ---- */

/* What a volume looks like in the repository: root directory "NAME" with volume.img and volume.json. */
struct volume_snapshot {
    struct snapshot_source source;
    const char *description;
    int64_t start_ns, end_ns;
    uint64_t size;          /* exact size of the image */
    struct object_id image; /* volume.img */
    int64_t image_mtime_ns;
    json_t *volume_json;    /* document volume.json; borrowed */
    const char *incomplete; /* NULL: complete; else "checkpoint" or "canceled": the image is then named
                               ".checkpointed.volume.img.<32 hex>" */
    unsigned errors;        /* unreadable ranges mapped: errorCount, numFailed */
    bool cached;            /* statistics: image reused from the parent without change */
    json_t *tags;           /* object "KEY" -> value (without "tag:"), or NULL; borrowed */
};

/* Writes volume.json, the directory and adds the manifest to the batch. Everything is validated before (pitfall P1).
 * *manifest_id gets the new id; the snapshot exists after manifest_batch_put() and session_flush(). */
int volume_snapshot_write(struct session *s, struct put_scratch *p, const struct volume_snapshot *v,
                          struct manifest_batch *b, char manifest_id[33], struct err *e);

/* Ensures that the source's policy has scheduling.manual = true (added to the batch if necessary). */
int source_policy_manual(struct repo *r, const struct snapshot_source *src, struct manifest_batch *b, struct err *e);

/* One snapshot as the documented JSON object of `snapshot list --json` (new reference). */
json_t *snapshot_to_json(const struct snapshot *s);

#endif
