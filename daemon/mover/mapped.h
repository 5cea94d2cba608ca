/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * mapped.h - tables that grow with the repository: in unlinked files, mapped, never on the heap
 *
 * pack_table: every pack blob with its length. id_set: content ids seen. Both are in files of the cache directory that
 * are unlinked immediately; of each at most MAPPED_RESIDENT bytes are resident, whatever its size. Not thread-safe.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_MAPPED_H
#define SNAPFERRY_DAEMON_MOVER_MAPPED_H

#include "repo/index.h"

#define MAPPED_RESIDENT ((uint64_t)12 << 20)

struct pack_record {
    uint64_t length; /* bytes */
    uint64_t dead;   /* bytes that nothing needs, counted by the user */
    uint64_t live;   /* bytes of contents that stand, counted by the user */
    int64_t time_ns; /* of the blob, if the user sets it */
    uint32_t damage; /* flags of the user */
    char name[116];  /* longer names are not recorded: pack_table_add() refuses them */
};

struct pack_table;
int pack_table_new(struct pack_table **ret, const char *dir, struct err *e);
void pack_table_free(struct pack_table *t);
static inline void pack_table_freep(struct pack_table **t)
{
    pack_table_free(*t);
}
int pack_table_add(struct pack_table *t, const char *name, uint64_t length, struct err *e);
/* After the last add, before the first find. */
int pack_table_index(struct pack_table *t, struct err *e);
/* NULL if there is no such pack. The record may be changed in place. */
struct pack_record *pack_table_find(struct pack_table *t, const char *name);
/* Of one that was found before, and was not read since. */
const char *pack_table_name(struct pack_table *t, const struct pack_record *r);
uint64_t pack_table_count(const struct pack_table *t);

struct id_set;
/* Room for `expected` ids without growing (it grows). */
int id_set_new(struct id_set **ret, const char *dir, uint64_t expected, struct err *e);
void id_set_free(struct id_set *s);
static inline void id_set_freep(struct id_set **s)
{
    id_set_free(*s);
}
/* `tag` distinguishes uses of the same id (0..255). 1: new; 0: already present; negative: error. */
int id_set_add(struct id_set *s, const struct content_id *id, uint8_t tag, struct err *e);
/* For many ids in random order: they are kept (16 MiB) and added in the order of the table, so that its pages are
 * touched one after the other. Before the set is asked, id_set_settle() adds the rest. Both: 0 or negative. */
int id_set_add_later(struct id_set *s, const struct content_id *id, uint8_t tag, struct err *e);
int id_set_settle(struct id_set *s, struct err *e);
bool id_set_has(struct id_set *s, const struct content_id *id, uint8_t tag);
uint64_t id_set_count(const struct id_set *s);

#endif
