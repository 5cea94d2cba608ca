/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * object.h - files of any size made of contents (Kopia repository format, section 11)
 */
#ifndef SNAPFERRY_REPO_OBJECT_H
#define SNAPFERRY_REPO_OBJECT_H

#include "repo/content-ahead.h"
#include "repo/repo.h"

/* Object id: I...I [Z] [D] content id. */
struct object_id {
    uint8_t indirection; /* number of I */
    bool compressed;     /* Z: the content's plaintext is a compressed payload (index v1 repositories) */
    struct content_id content;
};
#define OBJECT_ID_TEXT 96
int object_id_parse(struct object_id *ret, const char *text, size_t len); /* 0 or -EINVAL; empty content id: -EINVAL */
char *object_id_text(const struct object_id *id, char out[OBJECT_ID_TEXT]);
bool object_id_equal(const struct object_id *a, const struct object_id *b);
/* What distinguishes objects that are read from the same content: a directory is walked, too. Two that are nested by
 * multiples of 32 have the same; one of them at least cannot be read at all. */
static inline uint8_t object_tag(const struct object_id *id, bool is_dir)
{
    return (uint8_t)((id->indirection & 31) | (id->compressed ? 32 : 0) | (is_dir ? 64 : 0));
}

/* ---- the chunks of an object, in order, streamed ---- */

struct object_part {
    uint64_t start, len; /* in the object, bytes */
    struct object_id id; /* direct (indirection 0) */
};

/*
 * Walks the parts of an object, through index documents of any depth, holding one content per level. A direct object is
 * one part whose length comes from the index. Damaged documents (gaps, overlaps, empty, not JSON, too deep: more than
 * 16 levels) are ERR_DAMAGE.
 */
struct object_parts;
int object_parts_open(struct object_parts **ret, struct repo *r, const struct object_id *id, struct err *e);
/* The same with contents that may have been read ahead. `ahead`: NULL, or borrowed until it is freed. */
int object_parts_open_ahead(struct object_parts **ret, struct repo *r, struct content_ahead *ahead,
                            const struct object_id *id, struct err *e);
void object_parts_free(struct object_parts *p);
static inline void object_parts_freep(struct object_parts **p)
{
    object_parts_free(*p);
}
/* 1: *ret is the next part; 0: end; negative: error. */
int object_parts_next(struct object_parts *p, struct object_part *ret, struct err *e);
/* The same, with those behind it that have the same length and content: *count of them, one after the other, at least
 * one. It is one step for many of the millions of parts that a sparse image has, but not for all of a run. */
int object_parts_next_run(struct object_parts *p, struct object_part *ret, uint64_t *count, struct err *e);
/* Skips to the part that contains `offset` (only forward); what comes next may be one before it. */
int object_parts_seek(struct object_parts *p, uint64_t offset, struct err *e);

/*
 * Calls fn for every content that the object needs: those of its parts and of its index documents, of all levels. Some
 * may come more than once. Only index documents are read, which may have been read ahead (`ahead`; NULL: none). A
 * negative result of fn ends it and is returned.
 */
typedef int object_content_fn(const struct content_id *id, void *arg, struct err *e);
int object_contents_each(struct repo *r, struct content_ahead *ahead, const struct object_id *id, object_content_fn *fn,
                         void *arg, struct err *e);

/* ---- reading an object as a byte stream ---- */

struct object_reader;
int object_reader_open(struct object_reader **ret, struct repo *r, const struct object_id *id, struct err *e);
/* As object_parts_open_ahead(). */
int object_reader_open_ahead(struct object_reader **ret, struct repo *r, struct content_ahead *ahead,
                             const struct object_id *id, struct err *e);
void object_reader_free(struct object_reader *o);
static inline void object_reader_freep(struct object_reader **o)
{
    object_reader_free(*o);
}
/* Up to len bytes from the current position (0 = end); negative: error. */
int64_t object_reader_read(struct object_reader *o, void *buf, size_t len, struct err *e);
/* A whole object of at most `max` bytes; *ret is malloc()ed (one NUL behind it). */
int64_t object_get(struct repo *r, const struct object_id *id, uint8_t **ret, size_t max, struct err *e);

/* ---- writing ---- */

/* Writes a document of any length as an object with prefix letter `prefix` (0: none), split by the repository's default
 * splitter, contents and index documents compressed with `compression` (metadata: zstd-fastest, 0x1101). */
int object_put(struct session *s, struct put_scratch *p, char prefix, const void *data, size_t len,
               uint32_t compression, struct object_id *ret, struct err *e);

/*
 * The index document of a large object, written as its parts become known: one chunk per level is held in memory. The
 * id is the one that stock Kopia computes for the same parts (byte-identical documents). A single part: that part's id,
 * no document. Parts are contiguous and ascending from 0; zero-length parts are allowed (empty last section of a file).
 */
struct object_table;
int object_table_new(struct object_table **ret, struct session *s, char prefix, struct err *e);
void object_table_free(struct object_table *t);
static inline void object_table_freep(struct object_table **t)
{
    object_table_free(*t);
}
/* Memory that a table takes at most, for the budget. */
size_t object_table_memory(const struct repo *r);
/* Adds `count` parts of `len` bytes each with the same id (count > 1: a run of zero chunks). */
int object_table_add(struct object_table *t, uint64_t len, const struct object_id *id, uint64_t count, struct err *e);
/* Id of the object made of the parts so far (checkpoint); the table can be continued. */
int object_table_checkpoint(struct object_table *t, struct object_id *ret, struct err *e);
/* The final id. At least one part is needed (a zero-byte object is one empty content). */
int object_table_finish(struct object_table *t, struct object_id *ret, struct err *e);

#endif
