/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * manifest.h - the JSON documents of a repository: snapshots, policies, maintenance (Kopia repository format,
 * section 12.1)
 */
#ifndef SNAPFERRY_REPO_MANIFEST_H
#define SNAPFERRY_REPO_MANIFEST_H

#include "base/time.h"
#include "repo/object.h"

#include <jansson.h>

#define MANIFEST_PREFIX 'm' /* of the contents that hold manifests */

struct manifest {
    char id[33]; /* hex of 16 bytes */
    int64_t modified_ns;
    json_t *labels; /* object of strings; borrowed: valid during the call */
    json_t *data;
};

/* Calls fn for each live manifest with label type = `type` (NULL: all), in no order. Reads every m content,
 * streaming: 40 bytes per manifest remain in memory, and entries of small contents (expanded.h). A damaged m content is
 * ERR_DAMAGE, as for stock clients. fn's non-zero return ends it and is returned. */
typedef int manifest_fn(const struct manifest *m, void *arg);
int manifests_each(struct repo *r, const char *type, manifest_fn *fn, void *arg, struct err *e);

/* The same in two steps, for several walks over one state: manifests_open() determines the live manifests,
 * manifests_walk() reads them. A manifest whose document cannot be represented as JSON has data = JSON null. */
struct manifests;
int manifests_open(struct manifests **ret, struct repo *r, struct err *e);
void manifests_free(struct manifests *m);
static inline void manifests_freep(struct manifests **m)
{
    manifests_free(*m);
}
/* Entries with an id that no client makes: other clients may still see manifests in them. */
uint64_t manifests_ignored(const struct manifests *m);
/* `want` (NULL: all) is called before a document is parsed; it gets `arg` too. */
typedef bool manifest_want_fn(const char *id, void *arg);
int manifests_walk(struct manifests *m, const char *type, manifest_want_fn *want, manifest_fn *fn, void *arg,
                   struct err *e);
/* The same with `choose`, which gets the labels of each of that type: `data` is NULL still, and is parsed of those only
 * for which it returns true. */
typedef bool manifest_choose_fn(const struct manifest *m, void *arg);
int manifests_choose(struct manifests *m, const char *type, manifest_choose_fn *choose, manifest_fn *fn, void *arg,
                     struct err *e);

/* The manifests of one decompressed collection, as manifests_walk() reads them, live or deleted (tests, fuzzing).
 * `deleted`: a tombstone. */
int manifest_collection_parse(const void *gz, size_t len, int (*fn)(const struct manifest *m, bool deleted, void *arg),
                              void *arg, struct err *e);

/* Changes of manifests, committed together: they go into one new m content at manifest_batch_put(), and exist for other
 * clients after the session_flush() that follows. `data` and `labels` are copied. New ids are random. */
struct manifest_batch;
int manifest_batch_new(struct manifest_batch **ret, struct err *e);
void manifest_batch_free(struct manifest_batch *b);
static inline void manifest_batch_freep(struct manifest_batch **b)
{
    manifest_batch_free(*b);
}
int manifest_batch_add(struct manifest_batch *b, json_t *labels, json_t *data, char id[33], struct err *e);
int manifest_batch_delete(struct manifest_batch *b, const char *id, struct err *e);
int manifest_batch_put(struct manifest_batch *b, struct session *s, struct put_scratch *p, struct err *e);

#define MAINTENANCE_MACHINE "snapferryMachine" /* member of the maintenance parameters: the machine of the owner */
/* What `repo create` writes into a new repository: global policy and maintenance parameters (section 3.5, owner =
 * `owner`, on `machine`, "": not told), in one session, flushed. */
int manifests_initialise(struct repo *r, const char *owner, const char *machine, struct err *e);

/* JSON text as Go's encoder writes it: no spaces, <>& and U+2028/9 escaped. malloc()ed. `newline`: one at the end. */
char *json_go_text(const json_t *v, bool newline, size_t *len);

#endif
