/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * listing.h - a list of what a repository has, in order, as pages for the daemon (docs/mover.md)
 *
 * With the file that came with the job as "listing" the list goes into it, as many pages as it has room for; without
 * one, a single page goes into the answer. Whichever: what is listed is walked twice, in any order and alike both
 * times, first noted with its length, then put where it belongs. So a list of any length costs two walks, and memory
 * for the places alone.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_AGENT_LISTING_H
#define SNAPFERRY_DAEMON_MOVER_AGENT_LISTING_H

#include "daemon/mover/agent/agent.h"

struct listing;

/* `name`: member of a page that has the items; static. Ordered by time, then by id. `after`: what
 * listing_end() answered as "next", "": from the beginning. */
int listing_new(struct listing **ret, struct run_context *x, const char *name, const char *after, struct err *e);
void listing_free(struct listing *l);
static inline void listing_freep(struct listing **l)
{
    listing_free(*l);
}

/* The first walk: an item, with its time and its id (32 hex digits). The item stays the caller's.
 * -ENOMEM. */
int listing_note(struct listing *l, int64_t time_ns, const char *id, const json_t *item);
/* Between the walks. */
void listing_place(struct listing *l);
/* The second walk. One that has no place is none of these pages. -ENOMEM, or -errno of the file. */
int listing_put(struct listing *l, int64_t time_ns, const char *id, const json_t *item);
/* Adds to the answer "pages" (bytes of each, in order) or the page itself, and "next": where the next list begins, "":
 * there is nothing more. */
int listing_end(struct listing *l, json_t *answer, struct err *e);

#endif
