/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * keys.h - keys of repositories that one mover derived from the password, for the next ones (internal to the room)
 *
 * Deriving costs each mover 0.13 s of a processor and 64 MiB; a job of many small volumes pays it once. A key is kept
 * as the mover sent it, in sealed memory that is locked (never swapped) and left out of core dumps and of children; it
 * is in no file, and the daemon does not look at it. It is given only to a mover of the same repository with the same
 * password; what of these is remembered is a keyed hash, whose key is in memory of the same kind. One thread.
 */
#ifndef SNAPFERRY_DAEMON_MOVERS_KEYS_H
#define SNAPFERRY_DAEMON_MOVERS_KEYS_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct keys;

/* A repository (name and path), and the same with a password. */
struct key_id {
    uint8_t repository[32], secret[32];
};

int keys_new(struct keys **ret, struct err *e);
void keys_free(struct keys *k);

/* `repository`: the job's member. False: nothing can be kept for it. */
bool keys_id(const struct keys *k, const json_t *repository, const char *password, struct key_id *ret);
/* The descriptor of its key, borrowed; -1: none. One that was derived from another password is forgotten. */
int keys_find(struct keys *k, const struct key_id *id);
/* Keeps what a mover sent, in place of an older one; the descriptor is taken over. False: it is no key. */
bool keys_put(struct keys *k, const struct key_id *id, int fd);
void keys_forget(struct keys *k);

#endif
