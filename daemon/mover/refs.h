/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * refs.h - contents that the snapshot in progress reuses and no committed manifest refers to yet (internal to the
 * mover)
 *
 * Garbage collection may delete a content without references, so one that was found in the index must be referred to by
 * a committed manifest within 45 minutes (Kopia repository format, section 14.8, R5). If that was missed (suspend,
 * throttling, an outage), all of them have to be looked up again. They are kept in an unlinked file, not in memory.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_REFS_H
#define SNAPFERRY_DAEMON_MOVER_REFS_H

#include "base/time.h"
#include "repo/object.h"

#define REFS_SAFE_NS (45 * NS_PER_MIN)

struct refs;
int refs_new(struct refs **ret, const char *dir, struct err *e);
void refs_free(struct refs *x);
static inline void refs_freep(struct refs **x)
{
    refs_free(*x);
}
int refs_add(struct refs *x, const struct content_id *id, struct err *e);
/* Looks all of them up, and the documents of the object that they form. ERR_GENERIC (-ESTALE) if one was deleted. */
int refs_check(struct refs *x, struct session *s, const struct object_id *image, struct err *e);
/* A manifest that refers to all of them has been committed. */
int refs_clear(struct refs *x, struct err *e);

#endif
