/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * index.h - content ids and index tables, version 1 and 2 (Kopia repository format, sections 4 and 8)
 */
#ifndef SNAPFERRY_REPO_INDEX_H
#define SNAPFERRY_REPO_INDEX_H

#include "base/err.h"
#include "repo/blob.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A content id: an optional prefix letter g..z and a hash. */
struct content_id {
    char prefix;      /* 0: none */
    uint8_t len;      /* of hash, 1..32; 0: no id */
    uint8_t hash[32]; /* bytes beyond len are 0 */
};

#define CONTENT_ID_TEXT 66 /* room for the text form with NUL */

int content_id_parse(struct content_id *ret, const char *text, size_t len);    /* 0 or -EINVAL */
char *content_id_text(const struct content_id *id, char out[CONTENT_ID_TEXT]); /* returns out */
int content_id_cmp(const struct content_id *a, const struct content_id *b);    /* order of index keys */
static inline bool content_id_equal(const struct content_id *a, const struct content_id *b)
{
    return content_id_cmp(a, b) == 0;
}

/* One entry, self-contained. */
struct index_entry {
    struct content_id id;
    char pack[BLOB_NAME_MAX + 1];
    uint32_t offset;      /* in the pack, bytes */
    uint32_t packed;      /* stored length */
    uint32_t length;      /* plaintext length */
    uint32_t compression; /* header id, 0: none */
    int64_t time;         /* unix seconds */
    bool deleted;
    uint8_t format_version;
    uint8_t key_id; /* always 0; others are refused when data are read */
};

/* A parsed table: refers to the caller's bytes (mapped or not), copies nothing, needs no memory per entry. */
struct index_table {
    const uint8_t *data;
    size_t size;
    unsigned version, key_len, entry_len;
    uint64_t count;
    uint32_t packs, formats;
    uint32_t base_time;
    size_t packs_at, formats_at; /* offsets */
};

/* Checks the structure (header, sizes; not every entry). ERR_DAMAGE. An empty v1 index (key length 255) is legal. */
int index_parse(struct index_table *ret, const void *data, size_t size, struct err *e);
/* Entry i < count. ERR_DAMAGE if it points outside the table. */
int index_entry_at(const struct index_table *t, uint64_t i, struct index_entry *ret, struct err *e);
/* Position of the first entry whose id is >= `id` (count if none; an id without hash sorts before all of its prefix).
 */
uint64_t index_lower_bound(const struct index_table *t, const struct content_id *id);

/* The key (prefix byte and hash, t->key_len bytes) of entry i < count. */
const uint8_t *index_key_at(const struct index_table *t, uint64_t i);

/* Positions of a table that a look-up read, to count mapped pages. The caller sets n to 0. */
#define INDEX_TRACE_MAX 64
struct index_trace {
    unsigned n;
    const uint8_t *at[INDEX_TRACE_MAX];
};
int index_find_traced(const struct index_table *t, const struct content_id *id, struct index_entry *ret,
                      struct index_trace *tr, struct err *e);
int index_entry_at_traced(const struct index_table *t, uint64_t i, struct index_entry *ret, struct index_trace *tr,
                          struct err *e);

/* Whether entry a takes precedence over b, both for the same content (section 8.4). A total order. */
bool index_entry_wins(const struct index_entry *a, const struct index_entry *b);

/*
 * Builds a table of version 1 or 2 from n entries sorted by id without duplicates (index_sort() does both). *ret is
 * malloc()ed. `random_suffix`: 32 random bytes behind it, as in pack-local indexes. Errors: ERR_GENERIC -ERANGE when an
 * entry cannot be represented (lengths >= 2^28, offset >= 2^30, compression or other length than packed-28 in v1).
 */
int index_build(const struct index_entry *entries, size_t n, unsigned version, bool random_suffix, uint8_t **ret,
                size_t *len, struct err *e);
/* Sorts by id; of several entries for one id the winner stays. Returns the new count. */
size_t index_sort(struct index_entry *entries, size_t n);

/* Pack postamble (section 7.3): where the local index lies. Returns 0, or -ENOENT if the bytes end in none. `tail` are
 * the last bytes of the pack (up to 8192), pack_len its whole length. */
struct postamble {
    uint8_t iv[32];
    size_t iv_len;
    uint64_t offset, length; /* of the sealed local index in the pack */
};
int postamble_parse(struct postamble *ret, const uint8_t *tail, size_t tail_len, uint64_t pack_len);
/* Writes at most 128 bytes, returns how many. */
size_t postamble_build(const struct postamble *p, uint8_t out[128]);

#endif
