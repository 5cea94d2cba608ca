/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * commands.h - what snapferry-rbd does (internal to io/rbd)
 *
 * Crash points: rbd-tagged (the owner tag is there, the snapshot is not), rbd-snapped (the tag does not have its number
 * yet), rbd-unsnapped (the snapshot was removed, the tag was not). Of restore targets: rbd-target-created, -tagged,
 * -made (a new image: without a tag, without its size, complete); -claimed, -snapped, -kept, -grown (one that exists:
 * its tag, its snapshot, the number of that in the tag, its size); -renamed, -shrunk, -committed, -dropped, -noted
 * (into place); -reverted, -discarded.
 */
#ifndef SNAPFERRY_IO_RBD_COMMANDS_H
#define SNAPFERRY_IO_RBD_COMMANDS_H

#include "io/rbd/cluster.h"

#include <jansson.h>

/*
 * The images that any of the patterns POOL/IMAGE or POOL/NAMESPACE/IMAGE matches (fnmatch(3), an asterisk matches no
 * slash), "=POOL/IMAGE": the one with this name. *ret: {"fsid", "images": [{"pool", "pool_id", "namespace", "name",
 * "id", "size", "created" (seconds), "watched", "snaps": [{"id", "name", "size"}], "meta": {KEY: VALUE}}], "skipped":
 * [text]}. What cannot be looked at is in "skipped", with the reason; if it was named without a pattern it is an error.
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

/* ---- snapshot.c ---- */

int ceph_tag_set(const struct image *x, const char *key, const json_t *tag, struct err *e);
/* One of this name that is there is removed first. `point`: the crash point behind it. */
int ceph_snap_take(const struct image *x, const char *snap, const char *point, uint64_t *id, struct err *e);
/* What is gone already is no error. */
int ceph_snap_drop(const struct image *x, const char *snap, struct err *e);
int ceph_meta_drop(const struct image *x, const char *key, struct err *e);

/*
 * ---- target.c: restore targets ----
 *
 * The metadata `key` of an image are its tag: an object with "size" (bytes), "in_place" (the image was there before),
 * and what is added here: "snap" (the number of the snapshot `snap`, which is what the image was before), "committed",
 * "used" (by others, after the restore had ended). All can be called again after a kill. An image that somebody else
 * has open is ERR_TARGET with errno EBUSY; an earlier client of ours that has not ended ERR_BUSY, after a wait.
 */

/* A new image with that name, first without size, then with the tag, then with the size; image[2] is its name. The tag
 * gets "image" and "pool_id". */
int target_make(const struct cluster *c, const char *const image[3], const char *key, json_t *tag, struct err *e);
/* Tags an image that is there, if nobody else uses it and it can be locked. */
int target_claim(const struct cluster *c, const char *const image[3], const char *key, json_t *tag, struct err *e);
/*
 * Holds the exclusive lock of the image, takes the snapshot of one that was there before, unless that was done, makes
 * it large enough, calls ready(), and serves it over NBD as snapshot_serve() does, for reading and writing, "size"
 * bytes of it, until the client has ended.
 */
int target_fill(const struct cluster *c, const char *const image[3], const char *key, const char *snap, int fd,
                void (*ready)(void), struct err *e);
/* A new image gets its name, and the metadata `done` with `key` as its value in place of the tag. ERR_TARGET: another
 * image has that name. */
int target_place(const struct cluster *c, const char *const image[3], const char *key, const char *name,
                 const char *done, struct err *e);
/* The same of one that was there before: it gets the size that was asked for; its snapshot goes. */
int target_settle(const struct cluster *c, const char *const image[3], const char *key, const char *snap,
                  const char *done, struct err *e);
/* Rolls an image that was there before back to what it was. Not if somebody else has used it since: ERR_BUSY, until
 * the tag was removed by the administrator. */
int target_revert(const struct cluster *c, const char *const image[3], const char *key, const char *snap,
                  struct err *e);
/* Removes a new image by its name, and what an interrupted removal has left. */
int target_discard(const struct cluster *c, const char *const image[3], const char *key, struct err *e);

/* ---- serve.c ---- */

/* Returns when the client has ended and all that it had asked for was done. */
int target_serve(struct image *x, uint64_t size, int fd, struct err *e);

#endif
