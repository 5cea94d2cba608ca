/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * keys.h - keys of repositories that one mover derived from the password, for later ones (internal to the room)
 *
 * The derivation costs each mover 0.13 s of CPU time and 64 MiB; a job of many small volumes pays it once. A key is
 * kept as received from the mover, in sealed memory that is locked (never swapped) and excluded from core dumps and
 * children; it is in no file, and the daemon does not read it. It is passed only to movers of the same repository with
 * the same password; of these only a keyed hash is stored, whose key is in memory of the same kind. One thread.
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
/* The descriptor of its key, borrowed; -1: none. A key derived from another password is dropped. */
int keys_find(struct keys *k, const struct key_id *id);
/* Keeps a key received from a mover, replacing an older one; takes the descriptor. False: not a key. */
bool keys_put(struct keys *k, const struct key_id *id, int fd);
void keys_forget(struct keys *k);

#endif
