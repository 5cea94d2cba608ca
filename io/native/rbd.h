/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * rbd.h - parts of the driver rbd: images of Ceph (internal to io/native)
 *
 * A volume is called POOL/IMAGE or POOL/NAMESPACE/IMAGE. Its id is made of the id of the cluster, the number of the
 * pool and the id of the image, which renaming leaves as they are. Everything is done by the program snapferry-rbd
 * (daemon/main/snapferry-rbd.c), which runs in a unit of its own and is in a package of its own.
 *
 * A native snapshot is the snapshot snapferry-ALIAS of the image, with the metadata snapferry.native.ALIAS of the image
 * as its owner tag: a JSON document that names node, cluster, pool and image, so that in an image that was copied or
 * mirrored with its snapshots nothing is ours. The tag is set before the snapshot is taken, gets its number after that,
 * and is removed after it: one without a number is what an interrupted call has left, one with the number of a snapshot
 * that is not there is left of one that somebody has removed, and goes when the next one is taken.
 *
 * A restore target has the metadata snapferry.restore.ALIAS. A new image is called snapferry-ALIAS until it is
 * complete. One that exists is written in place, so that it keeps its id, its snapshots, clones and settings; what it
 * was before is its snapshot snapferry-before-ALIAS until then, to which it is rolled back if the restore ends without
 * being complete.
 */
#ifndef SNAPFERRY_IO_NATIVE_RBD_H
#define SNAPFERRY_IO_NATIVE_RBD_H

#include "io/native/driver.h"

#define RBD_PART_MAX 256
/* In the address by which a mover calls what it reads or writes: the server is snapferry-rbd, at the other end of a
 * socket that the mover gets. */
#define RBD_SERVER "/snapferry-rbd"
#define RBD_PREFIX "snapferry-"
#define RBD_OWNER "snapferry.native."
#define RBD_TARGET "snapferry.restore."
#define RBD_BEFORE "snapferry-before-"
#define RBD_RESTORED "snapferry.restored" /* the key of the tag of the last restore that is complete */
#define RBD_WORDS "snapferry.tag"         /* set by the administrator: words for `match = tag:WORD` */

/* ---- rbd-tool.c: the program ---- */

struct rbd_snap {
    const char *name;
    uint64_t id, size;
};
struct rbd_tag {
    struct native_tag tag;
    uint64_t snap; /* its number, 0: incomplete */
};
/* Strings belong to the report. */
struct rbd_image {
    const char *pool, *space, *name, *id;
    uint64_t pool_id, size;
    int64_t created_ns; /* 0: not known */
    bool watched;
    const json_t *snaps, *meta;
};
struct rbd_report {
    json_t *doc;
    const char *fsid;
    struct rbd_image *image;
    size_t n;
};
/* ERR_SOURCE: the program is not installed. */
int rbd_installed(struct err *e);
void rbd_program_test(const char *path);
/* The images that patterns match (report_make() in io/rbd/commands.h); what was skipped is logged for the class. */
int rbd_report_read(struct rbd_report *ret, const struct driver_class *c, const char *const *patterns, struct err *e);
/* Takes `text` of malloc() over. */
int rbd_report_parse(struct rbd_report *ret, const struct driver_class *c, char *text, struct err *e);
void rbd_report_free(struct rbd_report *r);
/* A command that prints nothing: NULL-terminated, its name first. */
int rbd_change(const struct driver_class *c, const char *what, const char *const *args, const char *input,
               struct err *e);
/* The same of one that has to look at, copy or remove each object of an image of that size. */
int rbd_change_all(const struct driver_class *c, const char *what, const char *const *args, const char *input,
                   uint64_t size, struct err *e);
/* Passes its output on. */
int rbd_print(const struct driver_class *c, const char *const *args,
              int (*fn)(const void *, size_t, void *, struct err *), void *arg, struct err *e);
/* A server of what `args` (NULL-terminated) name at the other end of *fd; `name`: for errors. */
int rbd_serve(const struct driver_class *c, const char *const *args, const char *name, int *fd, struct err *e);

/* ---- rbd-image.c: what a report says ---- */

void rbd_name_of(const struct rbd_image *i, char ret[VOLUME_NAME_MAX]);
/* "POOL/IMAGE" or "POOL/NAMESPACE/IMAGE", also of patterns. ERR_USAGE. */
int rbd_name_check(const char *name, struct err *e);
bool rbd_is_label(const char *word);
void rbd_describe(const struct rbd_report *r, const struct rbd_image *i, struct volume *ret);
/* What the id of a volume says: the id of the cluster, which is left in `id`, number of the pool and id of the image.
 * False: it is none of this driver. */
bool rbd_id_split(char id[VOLUME_ID_MAX], struct rbd_image *ret, const char **fsid);
/* Whether a word of `match` selects it. */
bool rbd_is_matched(const struct driver_class *c, const struct volume *v);
/* What may be a volume of the class, as patterns of names (`wide`: all images of their pools), NULL-terminated; set,
 * and to be freed, also after an error. */
int rbd_patterns(const struct driver_class *c, bool wide, char ***ret, struct err *e);
void rbd_patterns_free(char ***patterns);
/* The snapshot of an image with this name. False: none. */
bool rbd_snap_find(const struct rbd_image *i, const char *name, struct rbd_snap *ret);

/*
 * What all tags have in common: an object in the metadata `key` that names version, node, cluster, pool, image and
 * alias. read: NULL if there is none, or it is not of this very image and of this node; write: adds the members to
 * `own`, which it takes over, for an image that is there (NULL: snapferry-rbd adds those of a new one), as text of
 * malloc().
 */
json_t *rbd_mark_read(const struct driver_class *c, const struct rbd_report *r, const struct rbd_image *i,
                      const char *key, const char *alias);
int rbd_mark_write(const struct driver_class *c, const char *fsid, const struct rbd_image *i, json_t *own, char **ret,
                   struct err *e);

/* Metadata of an owner tag: its key, and the document, of malloc(). */
void rbd_tag_key(const char *alias, char ret[64]);
int rbd_tag_write(const struct driver_class *c, const struct rbd_report *r, const struct rbd_image *i,
                  const struct native_tag *tag, char **ret, struct err *e);
/* The tag with this alias, of this very image and of this node. -ENODATA. */
int rbd_tag_read(const struct driver_class *c, const struct rbd_report *r, const struct rbd_image *i, const char *alias,
                 struct rbd_tag *ret);
/* A native snapshot as its tag has it. False: it is incomplete, or the snapshot is not there; then its size is 0, and
 * it has no change id. */
bool rbd_native_of(const struct rbd_report *r, const struct rbd_image *i, const struct rbd_tag *t, struct native *ret);
/* Each tag of this node in an image. A value other than 0 ends the walk. */
typedef int rbd_tag_fn(const struct rbd_report *r, const struct rbd_image *i, const struct rbd_tag *t, void *arg);
int rbd_tags(const struct driver_class *c, const struct rbd_report *r, rbd_tag_fn *fn, void *arg, struct err *e);

/* The image of this name. ERR_NOT_FOUND; to be freed also after an error. */
int rbd_report_of(struct rbd_report *ret, const struct driver_class *c, const char *name, struct err *e);
/*
 * What has this alias: in the image that the hint names (a name, or one with "@SNAPSHOT"), else in all images of the
 * class's pools. -ENOENT without a message. The report is the caller's to free in any case.
 */
int rbd_find_ours(const struct driver_class *c, struct rbd_report *r, const char *hint, const char *alias,
                  const struct rbd_image **image, struct rbd_tag *t, struct err *e);

/* ---- rbd-expose.c ---- */

int rbd_expose(const struct driver_class *c, const struct native *n, const struct driver_class *into,
               enum expose_mechanism m, bool read_only, const char *alias, struct exposure *ret, struct err *e);
/* A socket with a server of its own at the other end: who reads negotiates. */
int rbd_open(const struct driver_class *c, const struct exposure *x, int *fd, struct err *e);

/* ---- rbd-native.c ---- */

int rbd_snapshot(const struct driver_class *c, const struct volume *v, const struct native_tag *tag, struct native *ret,
                 struct err *e);
/* What is needed to take one; all of it but `document` is borrowed. */
struct rbd_taking {
    const struct driver_class *c;
    const struct rbd_image *image;
    const char *name; /* of the volume */
    char key[64], snap[64];
    char *document; /* the owner tag; to be freed, also after an error */
};
/* Of the only image of a report; it must be the volume that was looked up. Tags without a snapshot are removed. */
int rbd_taking_prepare(struct rbd_taking *t, const struct driver_class *c, const struct rbd_report *r,
                       const struct volume *v, const struct native_tag *tag, struct err *e);
int rbd_taking_make(const struct rbd_taking *t, struct err *e);
/* One with this alias, complete, of the only image of a report. -ENOENT without a message: there is none. ERR_TARGET:
 * what has its name is not ours. */
int rbd_native_taken(const struct driver_class *c, const struct rbd_report *r, const char *alias, struct native *ret,
                     struct err *e);
/* As it was taken just now; `name`: of the volume. */
int rbd_taken_now(const struct driver_class *c, const char *name, const char *alias, struct native *ret, struct err *e);
int rbd_native_find(const struct driver_class *c, const struct volume *v, const char *alias, const char *hint,
                    struct native *ret, struct err *e);
int rbd_native_list(const struct driver_class *c, native_fn *fn, void *arg, struct err *e);
int rbd_native_remove(const struct driver_class *c, const struct native *n, bool *gone, struct err *e);
int rbd_native_untagged(const struct driver_class *c, const struct native *n, struct err *e);

/* ---- rbd-mapped.c ---- */

#define RBD_DEVICE_MAX 32
/* The devices on this node (/dev/rbdN) that the kernel shows the image itself by, not a snapshot of it: how many of at
 * most `max` are in `ret`. Found by the ids of cluster, pool and image, which a rename leaves as they are. */
size_t rbd_mapped(const char *fsid, const struct rbd_image *i, char (*ret)[RBD_DEVICE_MAX], size_t max);
/* What is mounted from them is frozen; for frozen_thaw(). NULL: nothing (freeze.h). */
struct frozen *rbd_freeze(const struct driver_class *c, const char *fsid, const struct rbd_image *i);

/* ---- rbd-group.c ---- */

int rbd_group_domain(const struct driver_class *c, const struct volume *v, char ret[VOLUME_ID_MAX], struct err *e);
int rbd_group(struct group_member *m, size_t n, struct err *e);

/* ---- rbd-changed.c ---- */

int rbd_changed(const struct driver_class *c, const struct native *base, const struct native *n, struct changes *list,
                struct changed_answer *ret, struct err *e);

/* ---- rbd-target.c ---- */

struct rbd_target_tag {
    char alias[ALIAS_LEN + 1], final[VOLUME_NAME_MAX];
    uint64_t size;
    int64_t created_ns;
    bool in_place, committed;
};
/* Whether the name is one that images have only until they are complete. */
bool rbd_is_staged(const char *name);
/* The tag with this alias, of this very image and of this node. -ENODATA. */
int rbd_target_tag_read(const struct driver_class *c, const struct rbd_report *r, const struct rbd_image *i,
                        const char *alias, struct rbd_target_tag *ret);
int rbd_target(const struct driver_class *c, const char *name, uint64_t size, const char *alias, enum target_use use,
               struct restore_target *ret, struct err *e);
int rbd_target_open(const struct driver_class *c, const struct restore_target *t, int *fd, struct err *e);
/* rbd-copy.c */
int rbd_target_from_native(const struct driver_class *c, const struct native *n, const struct restore_target *t,
                           const struct fill *how, struct err *e);
int rbd_target_commit(const struct driver_class *c, const struct restore_target *t, struct err *e);
int rbd_target_abort(const struct driver_class *c, const struct restore_target *t, struct err *e);
bool rbd_target_kept(const struct driver_class *c, const struct restore_target *t);
/* For the sweep: targets of restores that have not ended, and what is left of them. */
int rbd_exposures(const struct driver_class *into, exposure_fn *fn, void *arg, struct err *e);
int rbd_unexpose(const struct driver_class *into, const struct exposure *x, struct err *e);

#endif
