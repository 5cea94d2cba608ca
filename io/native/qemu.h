/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qemu.h - parts of the driver qemu: disks of running virtual machines (internal to io/native)
 *
 * A volume is a drive of a machine, called qemu:///PATH-OF-ITS-QMP-SOCKET/NODE: NODE is the name of the block node that
 * a device of the guest has as its root. A native snapshot is made of
 *
 *   - the bitmap "snapferry:TAG" of NODE, which records what is written since: it is there first and removed last, and
 *     its name is the owner tag;
 *   - a fleecing image, an unnamed file in the target of the class, which QEMU gets as a descriptor (node NAME-f);
 *   - a filter between device and NODE, which copies what is overwritten into the image before (node NAME-c,
 *     copy-before-write), and gives up the snapshot rather than the guest's write if it cannot;
 *   - while it is taken at one instant with others: a node between device and filter that passes all on (NAME-p, raw),
 *     by which QEMU puts all the filters in at once;
 *   - bitmaps "snapferry-base:ALIAS:ALIAS" that never change: what was written between an earlier snapshot and this
 * one;
 *   - a node that shows the volume as it was (NAME-a, snapshot-access), and its export over the NBD server of QEMU.
 *
 * When its backup has ended all but the first are removed: the guest's writes are copied no longer, and what they are
 * is recorded for the next backup. Nothing survives the process: bitmaps are not persistent, so that none can be that
 * of an image which was written to meanwhile. The name of a bitmap has the identity of the process: one that was
 * migrated is another one.
 */
#ifndef SNAPFERRY_IO_NATIVE_QEMU_H
#define SNAPFERRY_IO_NATIVE_QEMU_H

#include "io/native/driver.h"
#include "io/native/qmp.h"
#include "io/nbd-uri.h"

#define QEMU_PREFIX "qemu://"
#define QEMU_NODE_MAX 32     /* of QEMU, with the NUL */
#define QEMU_BITMAP_MAX 1024 /* likewise */
#define QEMU_OWNER "snapferry:"
#define QEMU_BASE "snapferry-base:"
#define QEMU_EXPORT NBD_POINT_IN_TIME /* + alias: id and name of the export, mark of the descriptor of the image */
#define QEMU_RUN_MAX 96

/* ---- qemu-name.c: names ---- */

struct qemu_name {
    char socket[108];
    char node[QEMU_NODE_MAX]; /* may be a pattern, as the socket */
};
/* ERR_USAGE for what is no name of a volume, or pattern of some. */
int qemu_name_parse(struct qemu_name *ret, const char *text, struct err *e);
void qemu_name_text(const struct qemu_name *n, char out[VOLUME_NAME_MAX]);
void qemu_volume_id(const struct qemu_name *n, char out[VOLUME_ID_MAX]);
/* Refuses the sockets of machines that libvirt or Proxmox VE runs, by their path. */
int qemu_refuse_managed(const char *socket, struct err *e);
/* The same by what such a machine has: the label of a character device, the name of a block node; NULL: neither. */
int qemu_refuse_monitored(const char *socket, const char *chardev, const char *node, struct err *e);

struct qemu_tag {
    struct native_tag tag;  /* without volume_id and volume_name */
    char node[256];         /* owner */
    char run[QEMU_RUN_MAX]; /* identity of the process of QEMU */
    uint64_t size;
};
int qemu_tag_write(const struct qemu_tag *t, char out[QEMU_BITMAP_MAX], struct err *e);
/* 0, or -ENODATA: it is no tag. */
int qemu_tag_read(const char *bitmap, struct qemu_tag *ret);
/* Completes what was read by what is known of the volume. */
void qemu_tag_of(struct qemu_tag *t, const struct qemu_name *n);
/* Name of a node of ours: its last letter is f, c, p or a. */
void qemu_node_name(const char *alias, char what, char out[QEMU_NODE_MAX]);
void qemu_base_name(const char *base, const char *alias, char out[QEMU_BITMAP_MAX]);

/* ---- qemu-state.c: what a machine has ---- */

struct qemu_bitmap {
    const char *name;
    bool recording, busy, persistent, inconsistent;
};
struct qemu_node {
    const char *name, *driver;
    uint64_t size;
    bool read_only;
    struct qemu_bitmap *bitmap;
    size_t n_bitmaps;
};
struct qemu_device {
    const char *path, *root; /* in the object tree of QEMU; name of the node */
};
/* Strings belong to the answers of QEMU in it. */
struct qemu_state {
    json_t *nodes, *blocks, *exports_doc;
    struct qemu_node *node;
    struct qemu_device *device;
    const char **export; /* ids */
    size_t n_nodes, n_devices, n_exports;
    char run[QEMU_RUN_MAX]; /* "": it is not known which process it is */
};
int qemu_state_read(struct qmp *q, struct qemu_state *ret, struct err *e);
/* Takes the three answers over. */
int qemu_state_parse(struct qemu_state *ret, json_t *nodes, json_t *blocks, json_t *exports, struct err *e);
void qemu_state_free(struct qemu_state *s);
const struct qemu_node *qemu_node_find(const struct qemu_state *s, const char *name);
const struct qemu_bitmap *qemu_bitmap_find(const struct qemu_node *n, const char *name);
bool qemu_export_exists(const struct qemu_state *s, const char *id);
/* The device whose disk the node is, below a filter of ours or not. NULL: none. *filter: the filter's name, or "". */
const struct qemu_device *qemu_device_of(const struct qemu_state *s, const struct qemu_node *n,
                                         char filter[QEMU_NODE_MAX]);
/* The bitmap of ours with this alias, and its node. NULL: there is none. */
const struct qemu_bitmap *qemu_ours(const struct qemu_state *s, const char *alias, const struct qemu_node **node,
                                    struct qemu_tag *t);
/* A machine that is being looked at. */
struct qemu_machine {
    struct qmp *q;
    struct qemu_state s;
};
/* Connects, refuses machines that another program runs, reads. */
int qemu_machine_open(struct qemu_machine *m, const char *socket, struct err *e);
/* Reads again: what was found is void. */
int qemu_machine_again(struct qemu_machine *m, struct err *e);
void qemu_machine_close(struct qemu_machine *m);

/* ---- qemu-snapshot.c: making and removing ---- */

/* Where the server of the machine listens for us. ERR_USAGE: the class has no target, or its path is too long. */
int qemu_server_uri(const struct driver_class *c, const struct qemu_name *n, const char *alias, struct nbd_uri *ret,
                    struct err *e);
/* Makes all that a snapshot is made of; an incomplete one was removed. */
int qemu_make(const struct driver_class *c, struct qmp *q, const struct qemu_state *s, const struct qemu_name *n,
              const struct qemu_node *node, const struct qemu_tag *t, struct err *e);
/* One of several drives of a machine. */
struct qemu_member {
    const struct driver_class *c;
    const struct qemu_name *name;
    const struct qemu_node *node;
    const struct qemu_tag *tag;
    struct err *err; /* ERR_NONE: it was made */
};
/* The same of two or more, at one instant: QEMU changes all of them by one command, the file systems of the guest are
 * frozen once. An error: nothing was made of any. -ENOTSUP: QEMU refuses that command. */
int qemu_make_group(struct qmp *q, const struct qemu_state *s, const struct qemu_member *m, size_t n, struct err *e);
/* Ends the point in time: removes all but the bitmap; with `all` also that. What is gone already is no error. */
int qemu_unmake(const struct driver_class *c, struct qmp *q, const struct qemu_name *n, const char *alias, bool all,
                struct err *e);

/* ---- qemu-native.c: calls of the driver, and what they share ---- */

/* The node of a drive, and why it cannot be backed up. */
int qemu_drive_find(const struct qemu_state *s, const struct qemu_name *n, const struct qemu_node **ret, struct err *e);
void qemu_native_of(const struct qemu_tag *t, const struct qemu_state *s, const struct qemu_bitmap *b,
                    const struct qemu_name *n, struct native *ret);
int qemu_snapshot(const struct driver_class *c, const struct volume *v, const struct native_tag *tag,
                  struct native *ret, struct err *e);
int qemu_group_domain(const struct driver_class *c, const struct volume *v, char ret[VOLUME_ID_MAX], struct err *e);
int qemu_group(struct group_member *m, size_t n, struct err *e);
int qemu_find(const struct driver_class *c, const struct volume *v, const char *alias, const char *hint,
              struct native *ret, struct err *e);

/* ---- qemu-agent.c: file systems of the guest ---- */

/* Freezes the file systems of the guest, if an agent answers; a process of its own thaws them if this one ends or
 * takes longer than 20 s. NULL: none answers, or they cannot be frozen (the log has it). */
struct qemu_frozen;
struct qemu_frozen *qemu_freeze(struct qmp *q, const char *socket);
/* Thaws. False: it was too late, they may have been thawed before. NULL: true. */
bool qemu_thaw(struct qemu_frozen *f);

#endif
