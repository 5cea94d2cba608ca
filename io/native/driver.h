/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * driver.h - native snapshots: one driver per kind of storage behind one interface
 *
 * Every call is synchronous, may block indefinitely and is therefore made in a process of its own (proc/step.h), never
 * in the daemon's event loop. No state is kept between calls: what a driver needs again is in the structs, which the
 * daemon records. Every call is idempotent: repeated for the same alias it finds what the first call created. Objects
 * created by a driver have the owner tag (node and alias), so that they can be found from the storage alone; a driver
 * never changes an object without it.
 */
#ifndef SNAPFERRY_IO_NATIVE_DRIVER_H
#define SNAPFERRY_IO_NATIVE_DRIVER_H

#include "base/err.h"
#include "io/changes.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ALIAS_LEN 36 /* UUID text */
#define VOLUME_ID_MAX 256
#define VOLUME_NAME_MAX 4096
#define CHANGE_ID_MAX 256
#define VOLUME_LABELS_MAX 4096

/* A [storage-class] as passed to a driver; strings and arrays are borrowed. */
struct driver_class {
    const char *name;   /* of the section */
    const char *driver; /* "reflink", "device", "lvm-thin", "lvm", "zfs", "nbd", "qemu", "rbd", "plugin:NAME" */
    /* Patterns of volume names (fnmatch with FNM_PATHNAME) and of labels (KIND:PATTERN); NULL-terminated; may be empty.
     */
    const char *const *match;
    const char *const
        *peers; /* DRIVER_PEERS: patterns of the driver's other classes, an empty one after each class; NULL: none */
    const char *target;      /* where intermediates and restored volumes are created (directory, pool); "" if not set */
    const char *node;        /* configured node name: the owner tag's first half */
    const char *plugin;      /* absolute path of the plugin's program; NULL for built-in drivers */
    const char *plugin_user; /* user it runs as; NULL: no change */
    bool accept_inconsistent; /* device: back up without a snapshot, also mounted read-write; nbd: while it is written
                                 to */
    bool point_in_time;       /* nbd: the exports are of one point in time */
    unsigned cow_percent;     /* lvm: COW space of a snapshot, percent of its volume; 0: the default */
    const char *overlay_hook; /* device: program that makes and removes an overlay; NULL: none */
    const char *const *unfrozen; /* snapshot(), group(): paths whose file systems are not frozen; NULL: none */
    /* The limit of changed() and allocated() where they read the volume's data for their list, borrowed, and the time
     * (mono_ns()) up to which it holds. NULL: no limit. */
    struct throttle *list_reads;
    int64_t list_reads_until;
    json_t *options; /* object of strings: backup-option.KEY of the class and volume; may be NULL */
};

/* A volume as a driver sees it. */
struct volume {
    char name[VOLUME_NAME_MAX]; /* name used by the administrator: path of the image or device */
    char id[VOLUME_ID_MAX];     /* stable and unique on this node; [A-Za-z0-9._:-] only; survives rename and reboot */
    char pool[VOLUME_ID_MAX];   /* device group for slots: file system UUID, disk; "" if unknown */
    /* What the storage says of it, by which `match` selects it: words KIND:VALUE with blanks between them ("vg:vg0
     * tag:db"). What has no room is left out, and the driver warns of it. */
    char labels[VOLUME_LABELS_MAX];
    uint64_t size, allocated; /* bytes; allocated: of size, UINT64_MAX if unknown */
    uint32_t sector;          /* logical sector size */
    bool block;               /* block device (else regular file) */
    bool in_use;              /* open for writing or mounted read-write, as far as can be determined */
    /* volumes() only: it is there, but must not be backed up, since another one has its identity; borrowed. NULL: none
     * has. Without an id: `name` is a place whose volumes cannot be told; without either it is a place on `pool`, where
     * volumes were looked for: with one that is not told the volumes on it have disappeared. */
    const struct err *doubt;
};

/* Owner tag of a native snapshot or intermediate on the storage (xattrs, tags, properties). */
struct native_tag {
    char alias[ALIAS_LEN + 1];     /* UUIDv4 made by the daemon and written to an intent before the call (RS-12) */
    char volume_id[VOLUME_ID_MAX]; /* RS-13 */
    char volume_name[VOLUME_NAME_MAX];
    char backup[192], operation[512], repository[128];
    int64_t created_ns; /* when the daemon decided it */
    uint64_t seq;       /* creation sequence on this node: age is by this, not by the clock (RS-07) */
};

/* A native snapshot. */
struct native {
    struct native_tag tag;
    char handle[VOLUME_NAME_MAX]; /* the driver's current name for it (path); changes when it is renamed */
    uint64_t size;                /* exact bytes of the volume at that time */
    uint64_t used;                /* bytes it holds exclusively, UINT64_MAX if unknown */
    bool crash_consistent;        /* false: taken without a snapshot (device), or not at one point in time */
    bool gone;                    /* of a base that was recorded: it is not there, and a bookmark of it is left */
    bool removed;                 /* of one that is gone: it was us who removed it, no other program */
    /* What its storage knows it by and never gives to another one (LV UUID, thin id and transaction; guid; inode and
     * generation): equal only if it is the very same state of the volume. [A-Za-z0-9._:-]; "": it cannot be compared
     * with another one. */
    char change_id[CHANGE_ID_MAX];
};

/* Whether it is known what differs between two native snapshots of a volume. */
enum changed_state {
    CHANGED_LISTED,      /* what the list does not contain is equal in both */
    CHANGED_UNSUPPORTED, /* nothing keeps track of changes here */
    CHANGED_BASE_LOST,   /* the earlier one is no longer on the storage */
    CHANGED_BASE_OTHER,  /* what is found by its name is another one: ids are reused */
    CHANGED_UNCERTAIN,   /* what the storage answers cannot be relied on (moved meanwhile, compressed, invalid map) */
    CHANGED_BUSY,        /* what is needed can be used by one program at a time, and another one uses it */
    CHANGED_FAILED,      /* an error occurred */
    CHANGED_STATES
};
/* "listed", "unsupported", "base-lost", "base-other", "uncertain", "busy", "failed" */
const char *changed_state_name(enum changed_state s);
/* By its name; CHANGED_FAILED for any other. */
enum changed_state changed_state_of(const char *name);

struct changed_answer {
    enum changed_state state;
    char why[512];          /* a sentence without capital and full stop; "" if listed */
    uint64_t ranges, bytes; /* of the list, without what is known to be zeros; set by driver_changed_sealed() */
};
/* Sets both; returns 0, for a driver to return. */
int changed_doubt(struct changed_answer *a, enum changed_state s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

enum expose_mechanism { EXPOSE_NATIVE, EXPOSE_CLONE, EXPOSE_OVERLAY, EXPOSE_COPY };
const char *expose_mechanism_name(enum expose_mechanism m); /* "native", "clone", "overlay", "copy" */

/* A native snapshot (or a raw device) made readable for a mover, and what must be undone. */
struct exposure {
    enum expose_mechanism mechanism;
    bool read_only;
    char path[VOLUME_NAME_MAX];   /* what the mover reads, opened by the daemon and passed as a descriptor */
    char handle[VOLUME_NAME_MAX]; /* intermediate to remove; "" if there is none (EXPOSE_NATIVE) */
    char alias[ALIAS_LEN + 1];    /* owner tag of the intermediate, "" likewise */
    char klass[128];              /* storage class in which it lies */
    char where[VOLUME_NAME_MAX];  /* where it is stored: directory, pool, device */
    uint64_t size;                /* bytes, exactly the snapshot's */
    uint64_t copied;              /* bytes that making it copied (EXPOSE_COPY) */
    double seconds;               /* time of its creation */
};

/* Space of the storage where a class keeps snapshots or intermediates. */
struct pool_usage {
    char name[VOLUME_ID_MAX];
    uint64_t size, free; /* bytes */
    double used_ratio;   /* 0..1, the worst of data and metadata */
};

/* A volume to restore into. */
struct restore_target {
    char path[VOLUME_NAME_MAX];   /* what the mover writes */
    char handle[VOLUME_NAME_MAX]; /* staging object: renamed into place by target_commit, removed by target_abort */
    char final[VOLUME_NAME_MAX];  /* name after the commit */
    uint64_t size;
};

/* What becomes of a volume that has the target's name. */
enum target_use {
    TARGET_NEW,     /* refused */
    TARGET_REPLACE, /* its contents are lost */
    TARGET_UPDATE,  /* its contents are kept as far as they are equal (a differential restore); then of the size asked
                       for */
    TARGET_PATCH    /* a range of it is overwritten, the rest stays; not shortened */
};

enum driver_ability {
    DRIVER_SNAPSHOT = 1 << 0,    /* takes native snapshots */
    DRIVER_NATIVE_RO = 1 << 1,   /* the native snapshot itself is readable */
    DRIVER_CLONE = 1 << 2,       /* writable or read-only clone of a snapshot, in a class of the same pool */
    DRIVER_OVERLAY = 1 << 3,     /* writable overlay over a read-only snapshot */
    DRIVER_COPY_TARGET = 1 << 4, /* can hold a full copy of another class's snapshot */
    DRIVER_ALLOCATED = 1 << 5,   /* knows what is allocated */
    DRIVER_CHANGED = 1 << 6,     /* knows what changed since another snapshot */
    DRIVER_TARGET = 1 << 7,      /* makes volumes to restore into */
    DRIVER_POOL = 1 << 8,        /* knows its pool's space */
    DRIVER_SOCKET = 1 << 9       /* what open() returns is no file: no other class can hold a copy of it */
};

/* What is true of a driver for every class (daemon/records/driver-kind.h has the same). */
enum driver_trait {
    DRIVER_RAW = 1 << 0,      /* takes no native snapshots: what is read is the volume itself */
    DRIVER_PEERS = 1 << 1,    /* looks at `peers` of a class */
    DRIVER_COW_SIZE = 1 << 2, /* obeys `cow_percent` */
    DRIVER_CLUSTER = 1 << 3,  /* cannot reach a volume, or a restore target, without the options of a class */
    DRIVER_BOOKMARKS = 1 << 4 /* has bookmark() */
};

/* One of several native snapshots that are taken at one instant. */
struct group_member {
    const struct driver_class *c;
    const struct volume *v; /* as resolve() has just returned it */
    const struct native_tag *tag;
    struct native *ret;
    struct err err; /* ERR_NONE: it was taken, and is in *ret */
};

/* How far a driver that copies the contents of a restore target itself has got, in bytes of it. */
struct fill_progress {
    uint64_t done;    /* of the target's size */
    uint64_t read;    /* of the snapshot */
    uint64_t skipped; /* of done: holes, and what was equal already */
};
/* What such a copy obeys, and whom it reports to. */
struct fill {
    uint64_t rate;                                                /* bytes written per second; 0: no limit */
    void (*progress)(const struct fill_progress *now, void *arg); /* often; NULL: nobody watches */
    void *arg;
};

typedef int volume_fn(const struct volume *v, void *arg);
typedef int native_fn(const struct native *n, void *arg);
typedef int exposure_fn(const struct exposure *x, const struct native_tag *t, void *arg);
typedef int driver_extent_fn(uint64_t start, uint64_t len, void *arg);

struct driver {
    const char *name;
    const char *text; /* one line of description */
    unsigned traits;  /* DRIVER_* bits of enum driver_trait */

    /* Abilities for this class on this machine (DRIVER_* bits): built-in ones examine the file system or tools, a
     * plugin is called (`describe`). Also validates the class: ERR_USAGE for an unusable one. */
    int (*abilities)(const struct driver_class *c, unsigned *ret, struct err *e);
    /* Whether it obeys backup-option.KEY of this class. NULL: it obeys none. */
    bool (*takes_option)(const struct driver_class *c, const char *key);
    /* How many native snapshots of a volume its storage can hold, -1: not said. NULL: any number. */
    int (*max_retain)(const struct driver_class *c, int *ret, struct err *e);

    /* All volumes that the class's patterns match, sorted by name. snapferry's own files (snapshots, intermediates,
     * staging) are never volumes. If patterns are compared with labels, volumes that none matches may be among them:
     * the caller compares again, and learns that one has lost its label and not that it is gone. */
    int (*volumes)(const struct driver_class *c, volume_fn *fn, void *arg, struct err *e);
    /* One volume by name. ERR_NOT_FOUND. */
    int (*resolve)(const struct driver_class *c, const char *name, struct volume *ret, struct err *e);

    /* Takes a native snapshot with tag->alias, durable and tagged when it returns (RS-20 snapped, tagged). An
     * existing complete one with that alias is returned; an incomplete one is removed first. */
    int (*snapshot)(const struct driver_class *c, const struct volume *v, const struct native_tag *tag,
                    struct native *ret, struct err *e);
    /* What volumes have in common whose native snapshots group() takes at one instant (a pool, a machine): those with
     * equal text, also if they are of several classes. "": this one's is taken by itself. NULL where group() is. */
    int (*group_domain)(const struct driver_class *c, const struct volume *v, char ret[VOLUME_ID_MAX], struct err *e);
    /*
     * Takes the native snapshots of two or more volumes of one domain at one instant; each is then as if snapshot() had
     * taken it. What is there under these aliases is removed first: a call that was interrupted may have taken it at
     * another instant. A member that cannot be among them has the reason in its `err`, and is left out. An error: none
     * was taken, and no member's `err` is set; what could not be removed is found by list(). -ENOTSUP: the storage
     * cannot do it here, and nothing was made: they can be taken one after the other. NULL: never.
     */
    int (*group)(struct group_member *m, size_t n, struct err *e);
    /* By alias, wherever it is; `hint` is the last known handle or "". ERR_NOT_FOUND: it no longer exists. Checks
     * that it is intact (size as recorded, readable). */
    int (*find)(const struct driver_class *c, const struct volume *v, const char *alias, const char *hint,
                struct native *ret, struct err *e);
    /* All objects on this class's storage with the owner tag of this node, including incomplete ones. */
    int (*list)(const struct driver_class *c, native_fn *fn, void *arg, struct err *e);
    /* Removes; already removed is success with *gone = true (RS-21). Refuses objects without the tag. */
    int (*remove)(const struct driver_class *c, const struct native *n, bool *gone, struct err *e);
    /* Whether anything is in the place of one that list() and find() do not see: native_foreign(); 0: nothing is.
     * Removes nothing, whatever tag it may have by now. NULL: its place tells nothing. */
    int (*untagged)(const struct driver_class *c, const struct native *n, struct err *e);

    /*
     * A bookmark is what can be kept of a native snapshot that is gone: it takes no space, and changed() lists by it
     * what differs since. remove() leaves it. All four are NULL where there is no such thing (DRIVER_BOOKMARKS).
     */
    /* Makes that of a native snapshot that is there; made already is success. */
    int (*bookmark)(const struct driver_class *c, const struct native *n, struct err *e);
    /* That of a native snapshot as it was recorded, where it serves for changes up to `newer`: *ret is then a base for
     * changed(), whose change id is that of the snapshot it was made of. ERR_NOT_FOUND. */
    int (*bookmark_find)(const struct driver_class *c, const struct native *known, const struct native *newer,
                         struct native *ret, struct err *e);
    /* By alias, wherever it is; already removed is success. */
    int (*bookmark_remove)(const struct driver_class *c, const struct native *n, struct err *e);
    /* All of this node on the storage, whether their native snapshots are there or not. Of the tag they have alias,
     * name of the volume and time of creation. */
    int (*bookmarks)(const struct driver_class *c, native_fn *fn, void *arg, struct err *e);

    /* Whether `into`, another class of this driver, can natively clone objects of `c`. Accesses the storage. NULL:
     * never. */
    bool (*same_pool)(const struct driver_class *c, const struct volume *v, const struct driver_class *into);
    /*
     * Makes the snapshot readable by the mechanism chosen by expose_choose(), except EXPOSE_COPY. `into` is the class
     * of the intermediate (c itself for EXPOSE_NATIVE). The space is checked first. `alias` names the intermediate.
     * Idempotent by alias.
     */
    int (*expose)(const struct driver_class *c, const struct native *n, const struct driver_class *into,
                  enum expose_mechanism m, bool read_only, const char *alias, struct exposure *ret, struct err *e);
    /* EXPOSE_COPY: a full copy in class `into` of this driver of a snapshot of class `c`, which its own driver,
     * `owner`, can expose read-only. `rate`: bytes per second, 0 unlimited. The rest as above. NULL: not supported. */
    int (*copy)(const struct driver_class *into, const struct driver *owner, const struct driver_class *c,
                const struct native *n, bool read_only, const char *alias, uint64_t rate, struct exposure *ret,
                struct err *e);
    /* Undoes it; already undone is success. */
    int (*unexpose)(const struct driver_class *into, const struct exposure *x, struct err *e);
    /* Intermediates and staging objects of restores with the owner tag (for the sweep). */
    int (*exposures)(const struct driver_class *into, exposure_fn *fn, void *arg, struct err *e);
    /* Opens what a mover reads: O_RDONLY, or read-write for a writable intermediate that a hook will modify. The
     * descriptor is owned by the caller. */
    int (*open)(const struct driver_class *c, const struct exposure *x, int *fd, struct err *e);

    /* Extents that hold data, sorted: all else is zeros and is not read. Called by driver_allocated_sealed() only, for
     * an exposure that nobody writes to; an error means that everything is read. May be killed at any time, as
     * changed(). NULL where the data path finds holes itself (regular files), or nothing is known. */
    int (*allocated)(const struct driver_class *c, const struct exposure *x, driver_extent_fn *fn, void *arg,
                     struct err *e);
    /*
     * Lists what differs between `base` and the newer `n`, two native snapshots of one volume, both as find() (the base
     * maybe bookmark_find()) has just returned them: adds each range to `list` (changes_add(), in any order; its memory
     * is bounded), rounded outward, rather too much than too little. What surely reads as zeros in `n` it may
     * add by changes_add_zeros(), not rounded. *ret is CHANGED_LISTED at first. If that cannot be done it returns 0
     * with changed_doubt(); an error is reported as CHANGED_FAILED. What it added then is ignored.
     * Called by driver_changed() only, in a step that can be killed at any time: what it creates must be found and
     * removed by a later call. NULL: CHANGED_UNSUPPORTED.
     */
    int (*changed)(const struct driver_class *c, const struct native *base, const struct native *n,
                   struct changes *list, struct changed_answer *ret, struct err *e);

    int (*pool)(const struct driver_class *c, const struct volume *v, struct pool_usage *ret, struct err *e);

    /* Restore: a staging object of exactly `size` bytes for volume name `name` (TARGET_PATCH: at least); ERR_TARGET if
     * it exists and `use` is TARGET_NEW. commit puts it into place (fsync, rename, fsync of the directory), abort
     * removes it (idempotent) if it is still what was made: another file of that name is left alone. */
    int (*target)(const struct driver_class *c, const char *name, uint64_t size, const char *alias, enum target_use use,
                  struct restore_target *ret, struct err *e);
    /* Opens it for a mover as driver_target_open() does, for targets whose path is no address that anybody could
     * connect to. Called before each attempt of a restore. NULL: driver_target_open() of its path. */
    int (*target_open)(const struct driver_class *c, const struct restore_target *t, int *fd, struct err *e);
    int (*target_commit)(const struct driver_class *c, const struct restore_target *t, struct err *e);
    int (*target_abort)(const struct driver_class *c, const struct restore_target *t, struct err *e);
    /* After a failed target_commit: whether what has the final name, or that nothing has it, is certainly not the work
     * of that commit. NULL: never certain. */
    bool (*target_kept)(const struct driver_class *c, const struct restore_target *t);
    /* Fast restore from a native snapshot: fills the staging object, by a clone or, as `how` has it, by a copy. NULL: a
     * mover copies. */
    int (*target_from_native)(const struct driver_class *c, const struct native *n, const struct restore_target *t,
                              const struct fill *how, struct err *e);
};

/* Opens a target for reading and writing and claims it until the last duplicate of the descriptor is closed (a device
 * with O_EXCL): ERR_TARGET if it is in use. The address of an NBD export: a connected socket; it is not
 * claimed; errno ESHUTDOWN: its server is not there. */
int driver_target_open(const char *path, int *fd, struct err *e);
/* What fills a target that is in no storage class: "nbd" for the address of an export, "rbd" for POOL/IMAGE, else
 * "device" or "reflink". */
const char *driver_of_target(const char *name, bool block);
/* Whether the target is no path that could be looked at: its driver does. */
bool driver_target_is_remote(const char *name);
/* Whether it is the address of an export: a mover needs that, whatever the target is called. */
bool driver_target_is_export(const char *path);
/* Labels that a volume which is made under this name will have, as far as the name tells: by them a class that selects
 * by labels is found for a target that is not there yet. False: none. */
bool driver_target_labels(const char *name, char out[VOLUME_LABELS_MAX]);
/* What a device is recognised by whatever is stored on it: UUID of device mapper, WWID, serial number, file of a loop
 * device. One without is the same only until it is detached or the machine goes down. An NBD export: whatever has its
 * address. False: no device. */
bool driver_target_identity(const char *path, char *out, size_t size);

/* Driver of a class by its configured name; "plugin:NAME" is the plugin driver. NULL: not implemented in this build. */
const struct driver *driver_by_name(const char *name);
/* What is in the place of a native snapshot (`path`) and does not have its tag is not removed: ERR_PERMISSION, ESTALE.
 * `how`: what to do with it. */
int native_foreign(const char *path, const char *alias, const char *how, struct err *e);
/* Built-in drivers, NULL past the end. */
const struct driver *driver_at(unsigned i);
/* Input of the choice of mechanism. */
struct expose_request {
    const struct driver_class *own;
    unsigned own_abilities;
    const struct driver_class *into; /* NULL: own */
    unsigned into_abilities;
    bool same_pool; /* `into` can clone natively what is in `own` */
    bool read_only;
};
/*
 * Chooses the mechanism, or ERR_USAGE with the reason why none is possible. Own class: native when read-only; else
 * clone, else overlay. Another class that can clone natively: clone. Elsewhere: copy when read-only; else overlay, else
 * copy.
 */
int expose_choose(const struct expose_request *q, enum expose_mechanism *ret, struct err *e);
/* Whether `into` can clone natively what lies in `own` (same driver, same pool or file system). Looks at the storage.
 */
bool expose_same_pool(const struct driver_class *own, const struct volume *v, const struct driver_class *into);
/* Exposes: a copy is made by the driver of its class, all else by that of the snapshot's own class. `into` NULL:
 * own. */
int driver_expose(const struct driver_class *c, const struct native *n, const struct driver_class *into,
                  enum expose_mechanism m, bool read_only, const char *alias, uint64_t rate, struct exposure *ret,
                  struct err *e);

/*
 * What differs between two native snapshots of class `c`, as recorded: looks for both before and after, compares their
 * change ids, and asks the driver. Ranges lie within n->size; where the sizes differ, the last byte of the shorter one
 * and all behind it are in the list (CF-14). `list` is empty at first; finished only if ret->state is CHANGED_LISTED.
 * An error is returned for lack of memory alone: all else is an answer.
 */
int driver_changed(const struct driver_class *c, const struct native *base, const struct native *n,
                   struct changes *list, struct changed_answer *ret, struct err *e);
/* The same, as a descriptor of sealed memory (changes_pack()) that the caller owns; -1 if nothing is listed. */
int driver_changed_sealed(const struct driver_class *c, const struct native *base, const struct native *n, int *fd,
                          struct changed_answer *ret, struct err *e);
/* What holds data in an exposed native snapshot of class `c`, likewise as a descriptor. -1: it is not known, and
 * ret->why says why. */
int driver_allocated_sealed(const struct driver_class *c, const struct exposure *x, int *fd, struct changed_answer *ret,
                            struct err *e);

/*
 * To and from JSON, for records and for passing between processes; from: ERR_GENERIC names the member that is missing,
 * of the wrong type or too long. NULL for what cannot be represented: text that is not UTF-8. volume: name, id, pool,
 * labels (absent: none), size, allocated (null: unknown), sector, block, in_use; all but name, id and size may be
 * absent. native: alias, volume_id, volume_name, backup, operation, repository, created_ns, seq, handle, size, used
 * (null: unknown), crash_consistent, change_id (may be absent), gone and removed (read only, may be absent). exposure:
 * mechanism (its name), read_only, path, handle, alias, class, where, size, copied, seconds. target: path, handle,
 * final, size.
 */
json_t *volume_to_json(const struct volume *v);
int volume_from_json(struct volume *ret, const json_t *j, struct err *e);
json_t *native_to_json(const struct native *n);
int native_from_json(struct native *ret, const json_t *j, struct err *e);
json_t *exposure_to_json(const struct exposure *x);
int exposure_from_json(struct exposure *ret, const json_t *j, struct err *e);
/* Whether unexpose of `d` would have nothing to do: a native snapshot is read as it is, which only plugins may have to
 * prepare. */
bool exposure_made_nothing(const struct driver *d, const struct exposure *x);
json_t *target_to_json(const struct restore_target *t);
int target_from_json(struct restore_target *ret, const json_t *j, struct err *e);

/* New UUIDv4 text. */
void alias_new(char ret[ALIAS_LEN + 1]);
/* Exactly a lower-case UUID text: such an alias can be a part of a file name. */
bool alias_valid(const char *s);

extern const struct driver driver_reflink, driver_device, driver_lvm_thin, driver_lvm, driver_zfs, driver_nbd,
    driver_qemu, driver_rbd, driver_plugin;

#endif
