/* SPDX-License-Identifier: GPL-2.0-or-later */
/* reflink.h - parts of the reflink driver (internal to io/native) */
#ifndef SNAPFERRY_IO_NATIVE_REFLINK_H
#define SNAPFERRY_IO_NATIVE_REFLINK_H

#include "io/native/tag.h"

#define REFLINK_NAME "reflink"

/* Opens an image file: a regular file reached by an absolute path whose last component is no symbolic link, and none of
 * our own files. ERR_NOT_FOUND, ERR_USAGE, ERR_PERMISSION, ERR_SOURCE. Returns the descriptor. */
int image_open(const char *path, struct stat *st, struct err *e);
/* The volume's id: that of the file, or the one that a restored file inherited. */
int image_id(int fd, const char *path, char ret[VOLUME_ID_MAX], struct err *e);
/* Who uses the file, as far as a look can tell: file locks (QEMU), loop devices. */
bool image_user(int fd, const struct stat *st, char *out, size_t size);
/* Locks alone. */
bool image_locked(int fd, char *out, size_t size);
/*
 * File systems of which one is a copy of another, mounted beside it with `nouuid`: their files have the same ids
 * (reflink-copies.c). Those that patterns of the class and of the driver's other classes name are looked at.
 */
struct file_systems {
    struct one_file_system *v;
    size_t n;
};
/* Release it with copies_free(), also after an error. */
int copies_find(const struct driver_class *c, struct file_systems *ret, struct err *e);
void copies_free(struct file_systems *s);
/* -ENOTUNIQ if the open file is on one of them. `path` is for the message. */
int copies_refuse(const struct file_systems *s, int fd, const char *path, struct err *e);
/* Likewise, if there are any. */
int copies_refuse_all(const struct file_systems *s, struct err *e);
int reflink_snapshot(const struct driver_class *c, const struct volume *v, const struct native_tag *tag,
                     struct native *ret, struct err *e);
int reflink_list(const struct driver_class *c, native_fn *fn, void *arg, struct err *e);
int reflink_remove(const struct driver_class *c, const struct native *n, bool *gone, struct err *e);
int reflink_untagged(const struct driver_class *c, const struct native *n, struct err *e);
int reflink_pool(const struct driver_class *c, const struct volume *v, struct pool_usage *ret, struct err *e);
int reflink_find(const struct driver_class *c, const struct volume *v, const char *alias, const char *hint,
                 struct native *ret, struct err *e);
int reflink_expose(const struct driver_class *c, const struct native *n, const struct driver_class *into,
                   enum expose_mechanism m, bool read_only, const char *alias, struct exposure *ret, struct err *e);
int reflink_copy(const struct driver_class *into, const struct driver *owner, const struct driver_class *c,
                 const struct native *n, bool read_only, const char *alias, uint64_t rate, struct exposure *ret,
                 struct err *e);
int reflink_changed(const struct driver_class *c, const struct native *base, const struct native *n,
                    struct changes *list, struct changed_answer *ret, struct err *e);
int reflink_open(const struct driver_class *c, const struct exposure *x, int *fd, struct err *e);
int reflink_target(const struct driver_class *c, const char *name, uint64_t size, const char *alias,
                   enum target_use use, struct restore_target *ret, struct err *e);
int reflink_target_commit(const struct driver_class *c, const struct restore_target *t, struct err *e);
int reflink_target_abort(const struct driver_class *c, const struct restore_target *t, struct err *e);
bool reflink_target_kept(const struct driver_class *c, const struct restore_target *t);
int reflink_target_from_native(const struct driver_class *c, const struct native *n, const struct restore_target *t,
                               const struct fill *how, struct err *e);

int reflink_group_domain(const struct driver_class *c, const struct volume *v, char ret[VOLUME_ID_MAX], struct err *e);
int reflink_group(struct group_member *m, size_t n, struct err *e);

/* ---- reflink-subvolume.c: btrfs ---- */

/* The top directory of the subvolume that an open directory is in, and the path of the latter below it ("": itself).
 * Quiet: -EPERM: this process may not remove subvolumes; -EXDEV: the top is not mounted here. */
int subvolume_top(int dir, int *top, char below[VOLUME_NAME_MAX]);
/* Takes a read-only snapshot of the subvolume into HIDDEN_DIR, which is open as `hidden`, and opens it. -ENOTSUP: it
 * cannot be taken here, and nothing was made. */
int subvolume_snapshot(int top, int hidden, const char *hidden_path, const char *alias, int *fd, struct err *e);
/* Removes it, durably; it may be gone. */
int subvolume_snapshot_remove(int hidden, const char *hidden_path, const char *alias, struct err *e);

#endif
