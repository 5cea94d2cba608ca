/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * commands.h - what snapferry-rbd does (internal to io/rbd)
 *
 * Crash points: rbd-tagged (the owner tag is there, the snapshot is not), rbd-snapped (the tag does not have its number
 * yet), rbd-unsnapped (the snapshot was removed, the tag was not).
 */
#ifndef SNAPFERRY_IO_RBD_COMMANDS_H
#define SNAPFERRY_IO_RBD_COMMANDS_H

#include "io/rbd/cluster.h"

#include <jansson.h>

/*
 * The images that any of the patterns POOL/IMAGE or POOL/NAMESPACE/IMAGE matches (fnmatch(3), an asterisk matches no
 * slash), "=POOL/IMAGE": the one with this name. *ret: {"fsid", "images": [{"pool", "pool_id", "namespace", "name",
 * "id", "size", "watched", "snaps": [{"id", "name", "size"}], "meta": {KEY: VALUE}}], "skipped": [text]}. What cannot
 * be looked at is in "skipped", with the reason; if it was named without a pattern it is an error.
 */
int report_make(const struct cluster *c, char *const *patterns, json_t **ret, struct err *e);

/* Sets the metadata `key` of the image to the JSON object, takes the snapshot, and sets the metadata again with the
 * number of the snapshot as the member "snap": one without that is incomplete. A snapshot of this name that is there,
 * of an interrupted call, is removed first. */
int snapshot_create(const struct cluster *c, const char *const image[3], const char *snap, const char *key, json_t *tag,
                    struct err *e);
/* The reverse; what is gone already is no error. */
int snapshot_remove(const struct cluster *c, const char *const image[3], const char *snap, const char *key,
                    struct err *e);

/*
 * Prints what differs between two snapshots of an image, given by their ids: "START LENGTH" in a line each, then "end
 * N" with the number of lines. "doubt TEXT": it cannot be relied on what Ceph knows of it, or one is missing ("lost
 * TEXT": the earlier one).
 */
int changes_print(const struct cluster *c, const char *const image[3], uint64_t base, uint64_t snap, struct err *e);

/*
 * Serves a snapshot over NBD, read only, to the client at the other end of the socket `fd`, until that closes it: then
 * the process ends. Calls ready() before. "base:allocation" has what Ceph stores of the snapshot. A read, or an extent,
 * is answered only if the image had the snapshot after it was read.
 */
int snapshot_serve(struct image *x, uint64_t snap, int fd, struct err *e);

#endif
