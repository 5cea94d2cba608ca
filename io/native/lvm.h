/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lvm.h - parts of the drivers lvm-thin and lvm (internal to io/native)
 *
 * Everything known of LVM comes from one report of lvm(8) (`lvs --reportformat json` with columns by name), everything
 * is changed by lvm(8); its metadata and devices are never touched directly. The programs run in units of their own
 * (proc/program.h), since the daemon's sandbox has neither /dev/mapper/control nor the directories of LVM.
 *
 * Ours is a logical volume that has an owner tag. A name proves nothing. The tag is written by the command that
 * creates the volume, in the same transaction of LVM: there is nothing half-made to be found. It has the UUID of the
 * volume group: the copy of a group that vgimportclone(8) imports has our tags but is not ours.
 */
#ifndef SNAPFERRY_IO_NATIVE_LVM_H
#define SNAPFERRY_IO_NATIVE_LVM_H

#include "io/native/driver.h"
#include "proc/process.h"

#define LVM_THIN_NAME "lvm-thin"
#define LVM_THICK_NAME "lvm"
#define LVM_NAME_MAX 128 /* of a group or volume: limit of LVM with the NUL */
#define LVM_PREFIX "snapferry-"
/* Above this share of data or metadata no native snapshot is made: a full pool stops its volumes. */
#define LVM_POOL_FULL 95.0

/* ---- lvm-report.c: what LVM has ---- */

/* A row. Strings belong to the report; never NULL. */
struct lvm_lv {
    const char *vg, *vg_uuid, *vg_attr, *name, *uuid, *attr, *tags, *pool, *origin, *health, *path, *dm_path;
    /* thin: its id in the pool's metadata; and in which transaction of the pool it was created (pool: its last one);
     * "" of all else */
    const char *thin_id, *transaction;
    uint64_t size, origin_size, vg_free,
        vg_size;                /* origin_size: what a COW snapshot shows; its size is its COW space */
    double data, metadata, cow; /* percent; negative: not known */
    unsigned major, minor;
    bool active, open, suspended, invalid, merging, check_needed;
};
struct lvm_report {
    json_t *doc;
    struct lvm_lv *lv; /* sorted by path */
    size_t n;
};
#define LVM_REPORT_INIT                                                                                                \
    {                                                                                                                  \
        NULL, NULL, 0                                                                                                  \
    }
/* Columns of the report, for `-o`. */
extern const char lvm_columns[];
/* Strict where something is relied upon: a column that is missing or of another type is an error. */
int lvm_report_parse(struct lvm_report *ret, const char *text, size_t len, struct err *e);
void lvm_report_free(struct lvm_report *r);

const struct lvm_lv *lvm_find(const struct lvm_report *r, const char *vg, const char *name);
const struct lvm_lv *lvm_find_path(const struct lvm_report *r, const char *path);
bool lvm_is_thin(const struct lvm_lv *lv);     /* thin volume, also a thin snapshot */
bool lvm_is_pool(const struct lvm_lv *lv);     /* thin pool */
bool lvm_is_cow(const struct lvm_lv *lv);      /* COW snapshot */
bool lvm_is_ordinary(const struct lvm_lv *lv); /* linear, striped, mirrored, RAID, cached: what can have COW ones */
/* Id of the volume: "lvm:UUID", or the one that a restored volume inherited. */
void lvm_volume_id(const struct lvm_lv *lv, char ret[VOLUME_ID_MAX]);

/* ---- lvm-tag.c: owner tags ---- */

enum lvm_kind { LVM_NATIVE, LVM_INTERMEDIATE, LVM_STAGING, LVM_REPLACED };
struct lvm_tag {
    enum lvm_kind kind;
    char node[256];
    char vg_uuid[64];
    struct native_tag tag; /* alias: of the object itself */
    uint64_t size;
    bool read_only, overwrite, keep; /* of an intermediate; of a staging volume */
    char klass[128];                 /* of an intermediate */
    char final[VOLUME_NAME_MAX];     /* of a staging volume: its path after the commit */
};
/* LVM limits a tag to 1024 characters: longer ones are divided. */
#define LVM_TAGS_MAX 16
#define LVM_TAG_MAX 1024
struct lvm_tags {
    char text[LVM_TAGS_MAX][LVM_TAG_MAX];
    unsigned n;
};
int lvm_tag_write(const struct lvm_tag *t, struct lvm_tags *ret, struct err *e);
/* 0, or -ENODATA: no tag, an incomplete or malformed one, one of another volume group. Of any node. */
int lvm_tag_read(const struct lvm_lv *lv, struct lvm_tag *ret);
/* Whether it is something of snapferry, of any node: never a volume. What is staged is a volume once it has its final
 * name. */
bool lvm_is_ours(const struct lvm_lv *lv, const struct lvm_tag *t);
/* Each tag of the volume; a value other than 0 ends the walk and is returned. */
typedef int lvm_each_tag_fn(const char *tag, void *arg);
int lvm_each_tag(const char *tags, lvm_each_tag_fn *fn, void *arg);

/* A native snapshot that is exposed has a second tag while its device is active: who looks at the storage alone sees
 * what is to be deactivated. */
struct lvm_exposed {
    char alias[ALIAS_LEN + 1];
    char node[256];
    int64_t created_ns;
};
int lvm_exposed_write(const struct lvm_exposed *x, char ret[LVM_TAG_MAX], struct err *e);
bool lvm_exposed_read(const char *tag, struct lvm_exposed *ret);

/* A thin pool whose metadata snapshot is reserved by us, or is about to be, has such a tag. */
struct lvm_reserved {
    char alias[ALIAS_LEN + 1];
    char node[256];
    char vg_uuid[64];
    int64_t created_ns;
    struct process_identity owner; /* who uses it; without a unit */
    uint64_t root;                 /* block of the held root; 0: only intended */
};
/* The number of the root is the last member: a tag with 0 ends in "+-". */
int lvm_reserved_write(const struct lvm_reserved *x, char ret[LVM_TAG_MAX], struct err *e);
bool lvm_reserved_read(const char *tag, const char *vg_uuid, struct lvm_reserved *ret);

/* The id that a restored volume has inherited from the one that it replaced. */
int lvm_inherited_write(const char *id, const char *vg_uuid, const char *restored, char ret[LVM_TAG_MAX],
                        struct err *e);
bool lvm_inherited_read(const char *tag, const char *vg_uuid, char id[VOLUME_ID_MAX], char restored[ALIAS_LEN + 1]);
/* Whether the restore with this alias has made the volume. */
bool lvm_restored_by(const struct lvm_lv *lv, const char *alias);
bool lvm_is_our_tag(const char *tag);

/* ---- lvm-tool.c: lvm(8) ---- */

/* The report of one group, or of all (NULL). An unknown group is an empty report. */
int lvm_report_read(struct lvm_report *ret, const char *vg, struct err *e);
/* A command that changes something: `args` after "lvm", NULL-terminated. It is not killed by a deadline (a device could
 * remain suspended) nor by the end of the caller. `what` for messages: "cannot take a snapshot of /dev/vg0/db1". */
int lvm_change(const char *what, const char *const *args, struct err *e);
/* Another tool of device mapper, in the same environment, which may write up to 1 MiB; argv[0] is a path. `finish` and
 * *status as in proc/program.h; *out may be NULL. */
int lvm_tool_run(const char *label, const char *const *argv, bool finish, char **out, size_t *len, int *status,
                 struct err *e);
extern const char *const lvm_environment[];
/* Whether lvm(8) is installed. ERR_USAGE. */
int lvm_installed(struct err *e);
void lvm_program_test(const char *path);

/* ---- lvm-lv.c: logical volumes ---- */

bool lvm_thin_class(const struct driver_class *c);
/* Whether a word of `match` is compared with labels ("vg:", "pool:", "tag:"), and whether one of the class is. */
bool lvm_is_label(const char *word);
bool lvm_selects_labels(const struct driver_class *c);
/* Whether a pattern of the class matches the volume's path or one of its labels. */
bool lvm_is_matched(const struct driver_class *c, const struct volume *v);
/* Group and volume of "/dev/VG/LV". ERR_USAGE for another path. */
int lvm_path_split(const char *path, char vg[LVM_NAME_MAX], char name[LVM_NAME_MAX], struct err *e);
/* Target of a class: "VG" or "VG/POOL". */
int lvm_class_target(const struct driver_class *c, char vg[LVM_NAME_MAX], char pool[LVM_NAME_MAX], struct err *e);
/* An object of ours by alias and kind: `r` is of the group of a hint first, then of all. -ENOENT without a message. The
 * row belongs to *r, which the caller frees in any case. */
int lvm_find_ours(const struct driver_class *c, struct lvm_report *r, const char *hint, enum lvm_kind kind,
                  const char *alias, const struct lvm_lv **lv, struct lvm_tag *tag, struct err *e);
/* The same in the group of the path alone. */
int lvm_find_ours_in(const struct driver_class *c, struct lvm_report *r, const char *path, enum lvm_kind kind,
                     const char *alias, const struct lvm_lv **lv, struct lvm_tag *tag, struct err *e);
/* False: its labels have no room for all of its tags. */
bool lvm_describe(const struct lvm_lv *lv, struct volume *ret);
/* Refuses what cannot be a volume of the class: ERR_USAGE for another kind and what is ours, else ERR_SOURCE. */
int lvm_refuse(const struct driver_class *c, const struct lvm_report *r, const struct lvm_lv *lv, struct err *e);
/* Describes the volume of a report; ERR_NOT_FOUND, and refuses what is none of this class's driver. */
int lvm_describe_volume(const struct driver_class *c, const char *path, const struct lvm_report *r, struct volume *ret,
                        struct err *e);
/* Refuses a pool on which nothing may be created: failed, read-only, to be repaired, nearly full. */
int lvm_pool_check(const struct lvm_report *r, const struct lvm_lv *pool, const char *what, struct err *e);
/* Activates, and waits for its device. Snapshots are activated in spite of their flag. */
int lvm_activate(const struct lvm_lv *lv, const char *what, struct err *e);
int lvm_deactivate(const struct lvm_lv *lv, const char *what, struct err *e);
int lvm_remove_lv(const struct lvm_lv *lv, const char *what, struct err *e);
/* The UUID by which device mapper knows it: "LVM-", both UUIDs, and the suffix of a layer ("-tpool") or "". */
#define LVM_DM_UUID_MAX 176
void lvm_dm_uuid(const struct lvm_lv *lv, const char *suffix, char out[LVM_DM_UUID_MAX]);
/* Opens the device of a volume and compares it with the UUIDs of the report. */
int lvm_open_device(const struct lvm_lv *lv, int flags, int *fd, struct err *e);

/* ---- lvm-native.c, lvm-expose.c, lvm-target.c: the drivers' functions ---- */

/* A native snapshot that can be read: not overflowed, of the size that it had. ERR_DAMAGE, ERR_SOURCE. */
int lvm_native_healthy(const struct lvm_report *r, const struct lvm_lv *lv, const struct lvm_tag *t, struct err *e);
int lvm_snapshot(const struct driver_class *c, const struct volume *v, const struct native_tag *tag, struct native *ret,
                 struct err *e);
int lvm_native_find(const struct driver_class *c, const struct volume *v, const char *alias, const char *hint,
                    struct native *ret, struct err *e);
int lvm_native_list(const struct driver_class *c, native_fn *fn, void *arg, struct err *e);
int lvm_native_remove(const struct driver_class *c, const struct native *n, bool *gone, struct err *e);
int lvm_native_untagged(const struct driver_class *c, const struct native *n, struct err *e);

int lvm_expose(const struct driver_class *c, const struct native *n, const struct driver_class *into,
               enum expose_mechanism m, bool read_only, const char *alias, struct exposure *ret, struct err *e);
int lvm_unexpose(const struct driver_class *into, const struct exposure *x, struct err *e);
int lvm_exposures(const struct driver_class *into, exposure_fn *fn, void *arg, struct err *e);
int lvm_open(const struct driver_class *c, const struct exposure *x, int *fd, struct err *e);

int lvm_target(const struct driver_class *c, const char *name, uint64_t size, const char *alias, enum target_use use,
               struct restore_target *ret, struct err *e);
int lvm_target_commit(const struct driver_class *c, const struct restore_target *t, struct err *e);
int lvm_target_abort(const struct driver_class *c, const struct restore_target *t, struct err *e);
/* What a restore with this alias has left: taken back, or completed if the new volume has its name. Nothing left: 0. */
int lvm_target_undo(const struct driver_class *c, const struct lvm_report *r, const char *alias, struct err *e);
int lvm_target_from_native(const struct driver_class *c, const struct native *n, const struct restore_target *t,
                           const struct fill *how, struct err *e);

/* ---- lvm-metadata.c: the metadata snapshot of a thin pool ---- */

/* A pool has one at a time, of anybody's. */
struct lvm_metadata {
    char pool[2 * LVM_NAME_MAX + 2]; /* "VG/POOL" */
    char dm_uuid[LVM_DM_UUID_MAX];   /* of the active pool */
    char dm_name[4 * LVM_NAME_MAX];
    char device[40];      /* with the metadata */
    uint64_t block_bytes; /* chunk size, as the kernel has it */
    struct lvm_reserved mine;
};
/*
 * Reserves it for this process, which must call lvm_metadata_release(). Before that the pool gets a tag that says so,
 * and together with the reservation one with the number of its root: a later call finds both if this process is killed.
 * What an earlier process of this node left is released. If another one uses it: waits, a bounded time, then
 * CHANGED_BUSY in *a. 0 with a->state CHANGED_LISTED: it is reserved.
 */
int lvm_metadata_reserve(const struct driver_class *c, const char *vg, const char *pool, struct lvm_metadata *ret,
                         struct changed_answer *a, struct err *e);
/* Whether it is still the one that was reserved; CHANGED_UNCERTAIN if not. */
int lvm_metadata_check(const struct lvm_metadata *m, struct changed_answer *a, struct err *e);
/* Releases it if its root is the recorded one, and removes the tags. */
int lvm_metadata_release(const struct lvm_metadata *m, struct err *e);
/* Calls fn for what is recorded of a pool by processes of this node that no longer exist. */
int lvm_metadata_left(const struct driver_class *c, const struct lvm_lv *pool, exposure_fn *fn, void *arg);
/* Undoes it by its alias. -ENOENT without a message: nothing is recorded of it. ERR_BUSY: its process still exists, or
 * it is not certain whose the held root is. */
int lvm_metadata_undo(const struct driver_class *c, const struct lvm_report *r, const char *alias, struct err *e);

/* ---- lvm-changed.c: what differs, what is mapped ---- */

/* What two native snapshots are compared by: LV UUID, thin id and transaction, UUID of the pool. "" if not known. */
void lvm_change_id(const struct lvm_report *r, const struct lvm_lv *lv, char ret[CHANGE_ID_MAX]);
int lvm_changed(const struct driver_class *c, const struct native *base, const struct native *n, struct changes *list,
                struct changed_answer *ret, struct err *e);
int lvm_allocated(const struct driver_class *c, const struct exposure *x, driver_extent_fn *fn, void *arg,
                  struct err *e);

#endif
