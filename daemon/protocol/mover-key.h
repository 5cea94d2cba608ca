/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * mover-key.h - the key of a repository that a mover derived from the password, for the movers that come after it
 *
 * Exactly this, in a sealed memory file: from the mover with KEY, to later ones with JOB. It is never written into any
 * other file. Both sides run on the same machine: integers are in its byte order.
 */
#ifndef SNAPFERRY_DAEMON_PROTOCOL_MOVER_KEY_H
#define SNAPFERRY_DAEMON_PROTOCOL_MOVER_KEY_H

#include <stdint.h>

#define MOVER_KEY_MAGIC "SFKEY 1"

struct mover_key {
    char magic[8];
    char algo[32]; /* of the derivation */
    uint8_t unique_id[64];
    uint32_t unique_id_len;
    uint8_t format_hash[32]; /* SHA-256 of the format blob that it opened */
    uint8_t key[32];
};
_Static_assert(sizeof(struct mover_key) == 172, "no padding");

#endif
