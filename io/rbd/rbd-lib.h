/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * rbd-lib.h - librados and librbd of Ceph, loaded when they are first needed (internal to io/rbd)
 *
 * The functions and structs are declared here, as the libraries have had them since Ceph 14, so that nothing of Ceph is
 * needed to build, and a node without Ceph needs no library of it.
 */
#ifndef SNAPFERRY_IO_RBD_RBD_LIB_H
#define SNAPFERRY_IO_RBD_RBD_LIB_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

typedef void *rados_t;
typedef void *rados_ioctx_t;
typedef void *rbd_image_t;
typedef void *rbd_image_options_t;
typedef int rbd_diff_fn(uint64_t pos, size_t len, int exists, void *arg);

struct rbd_image_spec {
    char *id, *name;
};
struct rbd_snap_info {
    uint64_t id, size;
    const char *name;
};
struct rbd_image_watcher {
    char *addr;
    int64_t id;
    uint64_t cookie;
};

#define RBD_FEATURE_EXCLUSIVE_LOCK (UINT64_C(1) << 2)
#define RBD_FEATURE_FAST_DIFF (UINT64_C(1) << 4)
#define RBD_LOCK_EXCLUSIVE 0
#define RBD_FLAG_OBJECT_MAP_INVALID (UINT64_C(1) << 0)
#define RBD_FLAG_FAST_DIFF_INVALID (UINT64_C(1) << 1)

#define RADOS_FUNCTIONS(X)                                                                                             \
    X(int, rados_create2, (rados_t *, const char *, const char *, uint64_t))                                           \
    X(int, rados_conf_read_file, (rados_t, const char *))                                                              \
    X(int, rados_conf_set, (rados_t, const char *, const char *))                                                      \
    X(int, rados_connect, (rados_t))                                                                                   \
    X(void, rados_shutdown, (rados_t))                                                                                 \
    X(int, rados_cluster_fsid, (rados_t, char *, size_t))                                                              \
    X(int, rados_pool_list, (rados_t, char *, size_t))                                                                 \
    X(int, rados_ioctx_create, (rados_t, const char *, rados_ioctx_t *))                                               \
    X(void, rados_ioctx_destroy, (rados_ioctx_t))                                                                      \
    X(void, rados_ioctx_set_namespace, (rados_ioctx_t, const char *))                                                  \
    X(int64_t, rados_ioctx_get_id, (rados_ioctx_t))                                                                    \
    X(void, rados_set_osdmap_full_try, (rados_ioctx_t))                                                                \
    X(uint64_t, rados_get_instance_id, (rados_t))                                                                      \
    X(int, rados_exec, (rados_ioctx_t, const char *, const char *, const char *, const char *, size_t, char *, size_t))

#define RBD_FUNCTIONS(X)                                                                                               \
    X(int, rbd_list2, (rados_ioctx_t, struct rbd_image_spec *, size_t *))                                              \
    X(void, rbd_image_spec_list_cleanup, (struct rbd_image_spec *, size_t))                                            \
    X(int, rbd_namespace_list, (rados_ioctx_t, char *, size_t *))                                                      \
    X(int, rbd_open_by_id, (rados_ioctx_t, const char *, rbd_image_t *, const char *))                                 \
    X(int, rbd_open_by_id_read_only, (rados_ioctx_t, const char *, rbd_image_t *, const char *))                       \
    X(int, rbd_open, (rados_ioctx_t, const char *, rbd_image_t *, const char *))                                       \
    X(int, rbd_close, (rbd_image_t))                                                                                   \
    X(void, rbd_image_options_create, (rbd_image_options_t *))                                                         \
    X(void, rbd_image_options_destroy, (rbd_image_options_t))                                                          \
    X(int, rbd_create4, (rados_ioctx_t, const char *, uint64_t, rbd_image_options_t))                                  \
    X(int, rbd_remove, (rados_ioctx_t, const char *))                                                                  \
    X(int, rbd_rename, (rados_ioctx_t, const char *, const char *))                                                    \
    X(int, rbd_resize, (rbd_image_t, uint64_t))                                                                        \
    X(int, rbd_get_id, (rbd_image_t, char *, size_t))                                                                  \
    X(int, rbd_get_name, (rbd_image_t, char *, size_t *))                                                              \
    X(int, rbd_get_create_timestamp, (rbd_image_t, struct timespec *))                                                 \
    X(int, rbd_lock_acquire, (rbd_image_t, int))                                                                       \
    X(int, rbd_get_size, (rbd_image_t, uint64_t *))                                                                    \
    X(int, rbd_get_features, (rbd_image_t, uint64_t *))                                                                \
    X(int, rbd_get_flags, (rbd_image_t, uint64_t *))                                                                   \
    X(int, rbd_snap_list, (rbd_image_t, struct rbd_snap_info *, int *))                                                \
    X(void, rbd_snap_list_end, (struct rbd_snap_info *))                                                               \
    X(int, rbd_snap_create, (rbd_image_t, const char *))                                                               \
    X(int, rbd_snap_remove, (rbd_image_t, const char *))                                                               \
    X(int, rbd_snap_set_by_id, (rbd_image_t, uint64_t))                                                                \
    X(int, rbd_snap_rollback, (rbd_image_t, const char *))                                                             \
    X(ssize_t, rbd_read, (rbd_image_t, uint64_t, size_t, char *))                                                      \
    X(ssize_t, rbd_write, (rbd_image_t, uint64_t, size_t, const char *))                                               \
    X(ssize_t, rbd_writesame, (rbd_image_t, uint64_t, size_t, const char *, size_t, int))                              \
    X(int, rbd_flush, (rbd_image_t))                                                                                   \
    X(int, rbd_diff_iterate2,                                                                                          \
      (rbd_image_t, const char *, uint64_t, uint64_t, uint8_t, uint8_t, rbd_diff_fn *, void *))                        \
    X(int, rbd_metadata_get, (rbd_image_t, const char *, char *, size_t *))                                            \
    X(int, rbd_metadata_set, (rbd_image_t, const char *, const char *))                                                \
    X(int, rbd_metadata_remove, (rbd_image_t, const char *))                                                           \
    X(int, rbd_metadata_list, (rbd_image_t, const char *, uint64_t, char *, size_t *, char *, size_t *))               \
    X(int, rbd_watchers_list, (rbd_image_t, struct rbd_image_watcher *, size_t *))                                     \
    X(void, rbd_watchers_list_cleanup, (struct rbd_image_watcher *, size_t))

struct ceph_lib {
#define CEPH_MEMBER(type, f, args) type(*f) args;
    RADOS_FUNCTIONS(CEPH_MEMBER)
    RBD_FUNCTIONS(CEPH_MEMBER)
#undef CEPH_MEMBER
};

/* NULL if they are not installed: ERR_USAGE, and how to install them. Not thread-safe. */
const struct ceph_lib *ceph_lib(struct err *e);

#endif
