/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * pending.h - the contents that a session has put and not yet indexed: a hash table of fixed size, 72 bytes a content
 *
 * Not locked: the session does that. Entries keep their number and place from pending_add() to pending_remove(). Packs
 * appear by the session's number, not by name.
 */
#ifndef SNAPFERRY_REPO_PENDING_H
#define SNAPFERRY_REPO_PENDING_H

#include "repo/index.h"

#define PENDING_NONE UINT32_MAX

enum pending_state {
    PENDING_FREE,
    PENDING_CLAIMED, /* a thread is about to write it */
    PENDING_WRITTEN  /* its bytes are in a pack (or it is a deletion) */
};

struct pending_entry {
    uint8_t hash[32];
    char prefix;
    uint8_t state;
    uint8_t format_version, key_id;
    uint32_t pack;   /* the session's number */
    uint32_t next;   /* next entry of the same pack; free ones: next free one */
    uint32_t offset; /* bit 31: deleted */
    uint32_t packed, length;
    uint32_t time;        /* unix seconds; enough until 2106, as in the index */
    uint16_t compression; /* header id */
    uint8_t len;          /* of hash */
    uint8_t unused;
};

#define PENDING_DELETED (UINT32_C(1) << 31)

struct pending {
    struct pending_entry *entries;
    uint32_t *slots; /* entry number + 1, 0: empty; linear probing */
    uint32_t cap, mask, count, used, free;
};

int pending_init(struct pending *t, uint32_t cap, struct err *e);
void pending_clear(struct pending *t);
uint32_t pending_find(const struct pending *t, const struct content_id *id);
/* An entry for an id that is not there, PENDING_CLAIMED and otherwise zero. PENDING_NONE: full. */
uint32_t pending_add(struct pending *t, const struct content_id *id);
void pending_remove(struct pending *t, uint32_t i);
void pending_id(const struct pending_entry *p, struct content_id *ret);
int pending_cmp(const struct pending_entry *a, const struct pending_entry *b); /* order of index keys */

#endif
