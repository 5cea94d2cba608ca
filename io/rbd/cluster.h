/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * cluster.h - a connection to a Ceph cluster, its pools and images (internal to io/rbd)
 *
 * Calls block until Ceph answers, at most CLUSTER_TIMEOUT_S. Not thread-safe, except where the text says so.
 */
#ifndef SNAPFERRY_IO_RBD_CLUSTER_H
#define SNAPFERRY_IO_RBD_CLUSTER_H

#include "io/rbd/rbd-lib.h"

#define CLUSTER_TIMEOUT_S "120"
#define CLUSTER_CONNECT_S "30"

struct cluster {
    const struct ceph_lib *lib;
    rados_t rados;
    char fsid[40];
};
/* `conf` NULL or "": Ceph's default; `user` likewise (admin). ERR_USAGE without the libraries, ERR_PERMISSION,
 * ERR_SOURCE. */
int cluster_open(struct cluster *c, const char *conf, const char *user, struct err *e);
void cluster_close(struct cluster *c);

/* An error of Ceph (negative errno) with its class: `fmt` says what could not be done. Returns `rc`. */
int ceph_error(struct err *e, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* A pool, with a namespace of it ("": the default one). ERR_NOT_FOUND. */
int cluster_pool(const struct cluster *c, const char *pool, const char *space, rados_ioctx_t *ret, struct err *e);

/* An image that is open. */
struct image {
    const struct cluster *cluster;
    rados_ioctx_t io;
    rbd_image_t rbd;
    char name[256]; /* for errors */
    char header[128];
};
/* By its id. To be closed also after an error. ERR_NOT_FOUND. */
int ceph_image_open(struct image *x, const struct cluster *c, const char *pool, const char *space, const char *id,
                    bool writable, struct err *e);
void ceph_image_close(struct image *x);
/* From now on it is read as of that snapshot. ERR_NOT_FOUND. */
int ceph_image_at(struct image *x, uint64_t snap, struct err *e);
/*
 * Whether the image still has the snapshot, as its header in the cluster says now. What was read of the snapshot
 * before this call was of the snapshot: Ceph takes one out of the header before its data goes. Reading one whose data
 * is gone gives zeros and no error. Thread-safe. ERR_NOT_FOUND.
 */
int ceph_image_has_snap(const struct image *x, uint64_t snap, struct err *e);

/* The snapshots of an image, as librbd has them. */
struct snaps {
    struct rbd_snap_info *v;
    int n;
};
int snaps_read(struct snaps *ret, const struct image *x, struct err *e);
void snaps_free(struct snaps *s, const struct image *x);

#endif
