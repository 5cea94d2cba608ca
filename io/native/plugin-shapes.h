/* SPDX-License-Identifier: GPL-2.0-or-later */
/* plugin-shapes.h - volumes, native snapshots, exposures in the protocol of driver plugins, written and read */
#ifndef SNAPFERRY_IO_NATIVE_PLUGIN_SHAPES_H
#define SNAPFERRY_IO_NATIVE_PLUGIN_SHAPES_H

#include "io/native/driver.h"
#include "proc/plugin-answer.h"

/* The objects of the protocol (snapferry-plugin(7)). `node` is this one: a tag of another one is refused. */
json_t *plugin_volume_json(const struct volume *v);
int plugin_volume_read(const struct answer *a, struct volume *ret, struct err *e);
json_t *plugin_tag_json(const struct native_tag *t, const char *node);
json_t *plugin_native_json(const struct native *n, const char *node);
int plugin_native_read(const struct answer *a, const char *node, struct native *ret, struct err *e);
json_t *plugin_exposure_json(const struct exposure *x, const char *node);
/* The tag may be missing (t->alias ""): only exposures() needs it. */
int plugin_exposure_read(const struct answer *a, const char *node, struct exposure *ret, struct native_tag *t,
                         struct err *e);
json_t *plugin_target_json(const struct restore_target *t);
int plugin_target_read(const struct answer *a, struct restore_target *ret, struct err *e);
int plugin_pool_read(const struct answer *a, struct pool_usage *ret, struct err *e);
/* `zeros`: where the extent may say so; NULL: where it may not. */
int plugin_extent_read(const struct answer *a, uint64_t *start, uint64_t *len, bool *zeros, struct err *e);

/*
 * Directories in which the objects of a class may be: `target`, the part of each pattern before its first wildcard, and
 * the directories in backup-option.paths (separated by colons). Other paths are refused: an unprivileged plugin must
 * not make the daemon open /etc/shadow for it.
 */
bool plugin_path_inside(const struct driver_class *c, const char *path);
/* Opens such a path: no symbolic links in a regular file's path; only regular files and block devices, never waiting;
 * of exactly `size` bytes. `flags`: O_RDONLY or O_RDWR. */
int plugin_path_open(const struct driver_class *c, const struct plugin_program *p, enum plugin_verb v, const char *path,
                     uint64_t size, int flags, int *fd, struct err *e);

#endif
