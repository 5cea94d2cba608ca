/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * zfs.h - parts of the driver zfs (internal to io/native)
 *
 * Everything known of ZFS comes from `zfs get` and `zpool get` with columns by name, everything is changed by zfs(8).
 * The programs run in units of their own (proc/program.h), since the daemon's sandbox has no /dev/zfs.
 *
 * Ours is what has the property snapferry:owner of its own (source "local": neither inherited from a parent or volume,
 * nor received with a stream) with the guid of the pool in which it was set: a pool that was split off, or a replica,
 * has our properties but is not ours. A name proves nothing. The property is set by the command that creates the
 * snapshot or volume, in the same transaction group: there is nothing half-made to be found. The value is a JSON array
 * of one document. A command that takes several snapshots (zfs-group.c) sets the same value on all of them: a document
 * of the group, by which each is ours until it has the tag of its own. Bookmarks cannot have properties:
 * zfs-bookmark.c.
 */
#ifndef SNAPFERRY_IO_NATIVE_ZFS_H
#define SNAPFERRY_IO_NATIVE_ZFS_H

#include "io/native/driver.h"

#define ZFS_DRIVER "zfs"
#define ZFS_NAME_MAX 256   /* of a dataset or snapshot: limit of ZFS with the NUL */
#define ZFS_VALUE_MAX 8192 /* of a property, with the NUL */
#define ZFS_PREFIX "snapferry-"
#define ZFS_DEV "/dev/zvol/"
#define ZFS_OWNER "snapferry:owner"
#define ZFS_VOLUME "snapferry:volume"
#define ZFS_SNAPDEV "snapferry:snapdev"
#define ZFS_WORDS "snapferry:tag" /* set by the administrator: words for `match = tag:WORD` */
/* Above this share of the pool no native snapshot is made. */
#define ZFS_POOL_FULL 95.0

/* ---- zfs-report.c: what ZFS has ---- */

/* A volume or a snapshot of one. Strings belong to the report, never NULL; numbers that do not apply are 0. */
struct zfs_row {
    const char *name; /* POOL/PATH or POOL/PATH@SNAPSHOT */
    bool snapshot;
    uint64_t guid, txg, size, block, used, available, referenced, reserved, users;
    const char *origin, *clones, *snapdev, *snapdev_from, *volmode, *keys, *defer;
    const char *owner, *volume, *snapdev_was; /* properties of ours, if set on this very object; else "" */
};
struct zfs_report {
    char *text;
    struct zfs_row *row; /* sorted by name */
    size_t n;
};
#define ZFS_REPORT_INIT                                                                                                \
    {                                                                                                                  \
        NULL, NULL, 0                                                                                                  \
    }
/* Properties of the report, for `zfs get -o name,property,source,value`. */
extern const char zfs_properties[];
/* Takes `text` (of malloc()) over in any case. Strict: each object has all properties, in order. */
int zfs_report_parse(struct zfs_report *ret, char *text, struct err *e);
void zfs_report_free(struct zfs_report *r);
const struct zfs_row *zfs_find(const struct zfs_report *r, const char *name);
void zfs_pool_of(const char *dataset, char ret[ZFS_NAME_MAX]);
/* The dataset of a snapshot; the parent of a volume ("" of a pool). */
void zfs_dataset_of(const char *snapshot, char ret[ZFS_NAME_MAX]);
void zfs_parent_of(const char *dataset, char ret[ZFS_NAME_MAX]);
/* Path of a volume or snapshot. */
void zfs_path(const char *dataset, char ret[VOLUME_NAME_MAX]);

struct zfs_pool {
    char name[ZFS_NAME_MAX];
    uint64_t guid, size, allocated;
    uint64_t freeing; /* of what is allocated: of what was destroyed, on its way to be free */
    char health[32];
    bool read_only;
};
#define ZFS_POOL_PROPERTIES "guid,size,allocated,freeing,health,readonly"
/* Output of `zpool get -Hp -o name,property,value` with these properties, of one pool. */
int zfs_pool_parse(struct zfs_pool *ret, const char *text, struct err *e);

/* User properties of volumes as `zfs get all` prints them: fn() gets the words of one volume; an element other than 0
 * ends the walk. What does not fit is left out, *full is set. */
typedef int zfs_labels_fn(const char *name, const char *labels, bool full, void *arg);
int zfs_labels_parse(char *text, zfs_labels_fn *fn, void *arg, struct err *e);

/* ---- zfs-tag.c: properties of ours ---- */

enum zfs_kind { ZFS_NATIVE, ZFS_INTERMEDIATE, ZFS_STAGING, ZFS_REPLACED };
struct zfs_tag {
    enum zfs_kind kind;
    char node[256];
    uint64_t pool;         /* guid */
    uint64_t volume;       /* guid of the volume of a snapshot; 0 else */
    struct native_tag tag; /* alias: of the object itself */
    uint64_t size;
    bool read_only, overwrite, thick; /* of an intermediate; of a staging volume */
    bool unfinished;                  /* of a native snapshot: it has the tag of its group alone */
    char klass[128];                  /* of an intermediate */
    char final[VOLUME_NAME_MAX];      /* of a staging volume: its path after the commit */
};
int zfs_tag_write(const struct zfs_tag *t, char ret[ZFS_VALUE_MAX], struct err *e);
/* That of the native snapshots of several volumes of a pool, all of this node: alias by guid of the volume. -E2BIG:
 * they are too many. */
int zfs_group_tag_write(const struct zfs_tag *const *t, size_t n, char ret[ZFS_VALUE_MAX], struct err *e);
/* 0, or -ENODATA: no tag, a malformed one, one of another pool. `volume`: guid of the volume of a snapshot. Of any
 * node. */
int zfs_tag_read(const struct zfs_row *row, uint64_t pool, uint64_t volume, struct zfs_tag *ret);
/* Whether a volume is something of snapferry: never one to back up. What is staged is a volume once it has its final
 * name. */
bool zfs_is_ours(const struct zfs_row *row, const struct zfs_tag *t);
bool zfs_has_our_name(const char *name);

/* The id that a restored volume has inherited from the one that it replaced: valid on the volume with that guid. */
void zfs_inherited_write(const char *id, uint64_t guid, const char *restored, char ret[ZFS_VALUE_MAX]);
/* Id of a volume: "zfs:GUID", or the one that it inherited. */
void zfs_volume_id(const struct zfs_row *row, char ret[VOLUME_ID_MAX]);
bool zfs_restored_by(const struct zfs_row *row, const char *alias);

/* A hold of ours: "snapferry:ALIAS:TIME:NODE". False: it is of somebody else. */
struct zfs_hold {
    char alias[ALIAS_LEN + 1], node[256];
    int64_t created_ns;
};
int zfs_hold_write(const struct zfs_hold *h, char ret[ZFS_NAME_MAX], struct err *e);
bool zfs_hold_read(const char *tag, struct zfs_hold *ret);

/* ---- zfs-tool.c: zfs(8) and zpool(8) ---- */

/* One volume with all its snapshots (`of` a volume), one snapshot, or all volumes without snapshots (NULL). What does
 * not exist is an empty report. */
int zfs_report_read(struct zfs_report *ret, const char *of, struct err *e);
/* The same, of the volume and its snapshots without those of others. `names`: volumes, at most ZFS_NAMES_MAX. */
#define ZFS_NAMES_MAX 100
int zfs_report_snapshots(struct zfs_report *ret, const char *const *names, size_t n, struct err *e);
int zfs_report_volume(struct zfs_report *ret, const char *name, struct err *e); /* without its snapshots */
/* The pool of a dataset. ERR_NOT_FOUND. */
int zfs_pool_read(struct zfs_pool *ret, const char *dataset, struct err *e);
/* Output of a command that only looks; its arguments after "zfs". -ENOENT: the dataset does not exist. */
int zfs_look(const char *const *args, char **out, struct err *e);
/* A command that changes something: `args` after "zfs", NULL-terminated. Not killed by a deadline nor by the end of the
 * caller. A busy dataset is tried again for a while: udev opens what appears or changes. `what` for messages. */
int zfs_change(const char *what, const char *const *args, struct err *e);
/* `zfs send`: the stream goes to fn. */
int zfs_send(const char *const *args, int (*fn)(const void *, size_t, void *, struct err *), void *arg, struct err *e);
/* Whether zfs(8) and zpool(8) are installed. ERR_USAGE. */
int zfs_installed(struct err *e);
void zfs_programs_test(const char *zfs, const char *zpool);

/* ---- zfs-volume.c: volumes, pools, devices, objects of ours ---- */

/* Dataset of "/dev/zvol/POOL/PATH". ERR_USAGE for another path. */
int zfs_path_split(const char *path, char dataset[ZFS_NAME_MAX], struct err *e);
/* Target of a class: a pool or a dataset, or "". */
int zfs_class_target(const struct driver_class *c, char dataset[ZFS_NAME_MAX], struct err *e);
bool zfs_is_label(const char *word);
bool zfs_is_matched(const struct driver_class *c, const struct volume *v);
bool zfs_selects_labels(const struct driver_class *c);
/* All but the labels of user properties. */
void zfs_describe(const struct zfs_row *row, struct volume *ret);
/* Refuses what cannot be a volume: ERR_USAGE for what is ours, else ERR_SOURCE. */
int zfs_refuse(const struct zfs_row *row, struct err *e);
/* Refuses a pool on which nothing may be created: suspended, read-only, nearly full. */
int zfs_pool_check(const struct zfs_pool *p, const char *what, struct err *e);
/* Whether something uses the device, with its user. */
bool zfs_used(const char *dataset, char *by, size_t size);
/* Opens the device of a volume or snapshot, which udev may be about to make. */
int zfs_open_device(const char *dataset, int flags, int *fd, struct err *e);
/* Waits until the path is there (or gone). Never fails: who opens it checks it. */
void zfs_settle(const char *dataset, bool there);
/* Destroys a volume of ours; `snapshots`: with those that others have taken of it since it was made, else it is an
 * error that there are any. */
int zfs_destroy(const struct zfs_row *row, bool snapshots, const char *what, struct err *e);

/* Something of ours by alias and kind: at the hint (dataset, snapshot or path) first, then everywhere. -ENOENT without
 * a message. The row belongs to *r, which the caller frees in any case. */
int zfs_find_ours(const struct driver_class *c, struct zfs_report *r, const char *hint, enum zfs_kind kind,
                  const char *alias, const struct zfs_row **row, struct zfs_tag *tag, struct err *e);
/* Everything of this node; a value other than 0 ends the walk and is returned. `volume`: that of a snapshot. */
typedef int zfs_ours_fn(const struct zfs_row *row, const struct zfs_row *volume, const struct zfs_tag *t, void *arg);
int zfs_each(const struct driver_class *c, zfs_ours_fn *fn, void *arg, struct err *e);
/* Guid of the volume of a snapshot in the report, 0: not in it. */
uint64_t zfs_volume_guid(const struct zfs_report *r, const char *snapshot);

/* A native snapshot that can be read: of the size that it had, with its key. ERR_DAMAGE, ERR_SOURCE. */
int zfs_native_healthy(const struct zfs_row *row, const struct zfs_tag *t, struct err *e);

/* ---- zfs-native.c: for zfs-group.c, too ---- */

/* The volume as it is now, if it is still the one that was looked up; `now`: zfs_describe(). The row belongs to *r,
 * which the caller frees in any case. ERR_NOT_FOUND, ERR_SOURCE. */
int zfs_volume_now(const struct volume *v, struct zfs_report *r, const struct zfs_row **row, struct volume *now,
                   struct err *e);
/* The tag of a native snapshot of it, and its name. `what` for messages. ERR_USAGE: the name would be too long. */
void zfs_native_tag(const struct driver_class *c, const struct zfs_row *row, const struct volume *now,
                    const struct native_tag *tag, uint64_t pool, struct zfs_tag *ret);
int zfs_native_name(const char *dataset, const char *alias, const char *what, char ret[ZFS_NAME_MAX], struct err *e);
void zfs_native_describe(const struct zfs_row *row, const struct zfs_tag *t, struct native *ret);
/* What a call has made under this alias in the volume; `unfinished` as in the tag. -ENOENT without a message.
 * ERR_TARGET: what has its name is not ours. */
int zfs_native_taken(const struct driver_class *c, const char *dataset, const char *alias, struct native *ret,
                     bool *unfinished, struct err *e);

/* ---- the driver's functions ---- */

int zfs_snapshot(const struct driver_class *c, const struct volume *v, const struct native_tag *tag, struct native *ret,
                 struct err *e);
int zfs_group_domain(const struct driver_class *c, const struct volume *v, char ret[VOLUME_ID_MAX], struct err *e);
int zfs_group(struct group_member *m, size_t n, struct err *e);
int zfs_native_find(const struct driver_class *c, const struct volume *v, const char *alias, const char *hint,
                    struct native *ret, struct err *e);
int zfs_native_list(const struct driver_class *c, native_fn *fn, void *arg, struct err *e);
int zfs_native_remove(const struct driver_class *c, const struct native *n, bool *gone, struct err *e);
int zfs_native_untagged(const struct driver_class *c, const struct native *n, struct err *e);
int zfs_changed(const struct driver_class *c, const struct native *base, const struct native *n, struct changes *list,
                struct changed_answer *ret, struct err *e);
int zfs_allocated(const struct driver_class *c, const struct exposure *x, driver_extent_fn *fn, void *arg,
                  struct err *e);

/* Alias, guid of the pool and node in the name of a bookmark of ours. False: it is somebody else's. */
bool zfs_bookmark_split(const char *name, char alias[ALIAS_LEN + 1], uint64_t *pool, const char **node);
/* The bookmark of a native snapshot of this node in a volume, or anywhere (`dataset` NULL), as far as a row has it:
 * name (which is `name`), guid, txg. -ENOENT without a message. */
int zfs_bookmark_row(const struct driver_class *c, const char *alias, const char *dataset, char name[ZFS_NAME_MAX],
                     struct zfs_row *ret, struct err *e);
/*
 * Whether the volume has gone on from the bookmark `mark` of `base` to its snapshot `newer`, as far as its snapshots
 * tell: `zfs receive -F` destroys what is newer than what it received before, puts the volume back to that, and leaves
 * bookmarks alone. `of`: the volume with all its snapshots. Else CHANGED_UNCERTAIN.
 */
int zfs_bookmark_check(const struct native *base, const struct zfs_row *mark, const struct zfs_report *of,
                       const struct zfs_row *newer, struct changed_answer *a, struct err *e);
int zfs_bookmark(const struct driver_class *c, const struct native *n, struct err *e);
int zfs_bookmark_find(const struct driver_class *c, const struct native *known, const struct native *newer,
                      struct native *ret, struct err *e);
int zfs_bookmark_remove(const struct driver_class *c, const struct native *n, struct err *e);
int zfs_bookmarks(const struct driver_class *c, native_fn *fn, void *arg, struct err *e);

void zfs_module_test(const char *parameters); /* directory in place of /sys/module/zfs/parameters */

int zfs_expose(const struct driver_class *c, const struct native *n, const struct driver_class *into,
               enum expose_mechanism m, bool read_only, const char *alias, struct exposure *ret, struct err *e);
int zfs_unexpose(const struct driver_class *into, const struct exposure *x, struct err *e);
int zfs_exposures(const struct driver_class *into, exposure_fn *fn, void *arg, struct err *e);
int zfs_open(const struct driver_class *c, const struct exposure *x, int *fd, struct err *e);
/* Releases all holds of this node, and hides the devices of the volume's snapshots if no other hold needs them. */
int zfs_release_all(const struct driver_class *c, const struct zfs_row *row, struct err *e);

int zfs_target(const struct driver_class *c, const char *name, uint64_t size, const char *alias, enum target_use use,
               struct restore_target *ret, struct err *e);
int zfs_target_commit(const struct driver_class *c, const struct restore_target *t, struct err *e);
int zfs_target_abort(const struct driver_class *c, const struct restore_target *t, struct err *e);
int zfs_target_from_native(const struct driver_class *c, const struct native *n, const struct restore_target *t,
                           const struct fill *how, struct err *e);
/* What a restore with this alias has left: taken back, or completed if the new volume has its name. Nothing left: 0. */
int zfs_target_undo(const struct driver_class *c, const char *alias, struct err *e);

#endif
