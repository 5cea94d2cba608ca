/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * image.h - the rows and intents that are in memory: all that is not finished, and what a transaction has changed
 *
 * Rows are versions: a save makes a new one, and who still reads the old one keeps it. The changes of a transaction are
 * made here first, and what was before is remembered, so that they can be written together or undone.
 *
 * Finished operations and backups are on disk; one that is changed is here until the transaction has ended, and the
 * last operations that were let go can be read here as well.
 */
#ifndef SNAPFERRY_DAEMON_RECORDS_IMAGE_H
#define SNAPFERRY_DAEMON_RECORDS_IMAGE_H

#include "daemon/records/types.h"

#include <stdalign.h>

enum order { BY_AGE, BY_PARENT, BY_VOLUME, ORDERS };

/* Rows of a kind by seq: all of them, those with one parent, those of one volume. */
struct group {
    struct group *next; /* of the same bucket */
    enum order order;
    unsigned users; /* versions */
    char *key;
    struct object *first, *last;
};

/* One version of a row. */
struct version {
    uint32_t refs;
    enum row_kind kind;
    struct group *group[ORDERS];      /* while it is in the image */
    alignas(16) unsigned char data[]; /* struct operation, ... */
};

struct object {
    struct object *next_id, *next_seq; /* of the same bucket */
    struct object *older[ORDERS], *younger[ORDERS];
    char *id;
    uint64_t seq;
    struct version *now; /* NULL: deleted by the transaction */
    struct version *was; /* of a changed one: what is on disk, NULL: nothing */
    struct object *next_changed;
    enum row_kind kind;
    bool changed;
};

struct owner {
    struct owner *next; /* of the same bucket */
    char *id;
    struct noted *newest;
};

/* An intent. */
struct noted {
    struct noted *next_id, *next_changed;
    struct noted *older[2], *younger[2]; /* of all, of its owner's */
    struct owner *owner;
    uint64_t id;
    char *kind, *name;
    int64_t created_ns;
    char *doc, *was_doc; /* JSON text; was: of a changed one, what is on disk. NULL: it is not there (any more) */
    bool changed;
};

struct table {
    void **buckets;
    size_t n_buckets, n;
};

/* What a change since the savepoint has replaced. */
struct replaced_row {
    struct object *obj;
    struct version *was;
    uint64_t seq; /* of the object, which may have become another row */
};
struct replaced_intent {
    struct noted *intent;
    char *was;
};
struct savepoint {
    bool set;
    struct object **changed_end; /* as they were */
    struct noted **changed_intents_end;
    size_t replaced;
    struct replaced_row *rows; /* in the order of the changes */
    struct replaced_intent *intents;
    size_t n_rows, cap_rows, n_intents, cap_intents;
};

/* Finished operations that left memory or were read last, by seq: when their backup ends they are read again more than
 * once. */
#define RECENT_OPERATIONS 512

struct image {
    struct table ids[ROW_KINDS], seqs[ROW_KINDS], groups[ROW_KINDS];
    uint64_t states[ROW_KINDS][OP_STATES]; /* how many there are of each */
    struct object *changed, **changed_end; /* in the order of their first change */
    size_t replaced;                       /* of them, deleted and made anew under the same id */
    struct table intents, owners;
    struct noted *newest;
    struct noted *changed_intents, **changed_intents_end;
    struct savepoint save;
    struct version *recent[RECENT_OPERATIONS];
    uint32_t recent_hash[RECENT_OPERATIONS]; /* of their ids */
};
_Static_assert((int)BACKUP_STATES <= (int)OP_STATES && (int)NATIVE_STATES <= (int)OP_STATES,
               "there is a counter for each state");

void image_init(struct image *m);
void image_free(struct image *m);

/* ---- versions ---- */

/* With an empty row; NULL: no memory. */
struct version *version_blank(enum row_kind k);
/* A copy of `row`; NULL: no memory. */
struct version *version_new(enum row_kind k, const void *row);
struct version *version_ref(struct version *v);
void version_unref(struct version *v);
static inline struct row *version_row(struct version *v)
{
    return (struct row *)(void *)v->data;
}
static inline int version_state(struct version *v)
{
    return row_state(v->kind, v->data);
}

/* ---- rows ---- */

/* Whether a row of that kind in that state stays in memory. */
bool image_keeps(enum row_kind k, int state);
/* NULL: it is not in memory. One that is found may be deleted (now NULL). */
struct object *image_find(const struct image *m, enum row_kind k, const char *id);
struct object *image_find_seq(const struct image *m, enum row_kind k, uint64_t seq);
/* The oldest of a kind (key NULL), of a parent or a volume; the next one is younger[order]. */
struct object *image_first(const struct image *m, enum row_kind k, enum order o, const char *key);
/* What is on disk comes into memory. Takes the reference over; NULL: no memory. */
struct object *image_put(struct image *m, struct version *v);
/* A change by the transaction; v NULL: it is deleted. Takes the reference over. */
int image_change(struct image *m, struct object *obj, struct version *v);
/* A new row of the transaction. Takes the reference over. */
int image_add(struct image *m, struct version *v);
/* Whether a row on disk was deleted by the transaction, and another one made under its id. */
bool image_replaces(const struct image *m, enum row_kind k, uint64_t seq);
/* Lets one go that is neither changed nor kept. */
void image_tidy(struct image *m, struct object *obj);
/* One on disk that was let go or read lately, as it is there; NULL: it was not. Borrowed. */
struct version *image_recent(const struct image *m, enum row_kind k, uint64_t seq);
/* The same by its id. */
struct version *image_recent_id(const struct image *m, enum row_kind k, const char *id);
/* One was read from disk: it may be read again soon, or be changed. Keeps a reference. */
void image_note_recent(struct image *m, struct version *v);
/* Rows on disk were removed beside the image. */
void image_forget_recent(struct image *m);

/* ---- intents ---- */

struct noted *image_intent(const struct image *m, uint64_t id);
/* The newest of an owner, the next is older[1]; owner NULL: of all, older[0]. Also those that are no longer there. */
struct noted *image_intents(const struct image *m, const char *owner);
/* Takes doc over. on_disk: it was read; else the transaction adds it. */
int image_intent_add(struct image *m, uint64_t id, const char *owner, const char *kind, const char *name,
                     int64_t created_ns, char *doc, bool on_disk);
/* doc NULL: it is resolved. Takes doc over. */
int image_intent_change(struct image *m, struct noted *i, char *doc);

/* ---- transactions ---- */

static inline bool image_is_changed(const struct image *m)
{
    return m->changed || m->changed_intents;
}
/* All is as it was before the transaction. */
void image_undo(struct image *m);
/* All is on disk. */
void image_settle(struct image *m);

/*
 * Part of a transaction that can be undone alone; there is one at a time. image_savepoint_undo() calls fn for each row
 * that becomes what it was, before that: `from` is what it is, NULL: nothing.
 */
typedef void image_undo_fn(const struct object *obj, const struct version *from, const struct version *to, void *arg);
void image_savepoint(struct image *m);
void image_savepoint_keep(struct image *m);
void image_savepoint_undo(struct image *m, image_undo_fn *fn, void *arg);

#endif
