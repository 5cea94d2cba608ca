/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tag.h - files that are ours: native snapshots, intermediates and staging files with an owner tag (internal)
 *
 * The tag is one extended attribute (trusted.snapferry.tag; user.snapferry.tag where we lack CAP_SYS_ADMIN, and then
 * believed only on files of our own user). It names the node, the alias, and the identity of the file that it was put
 * on: a copy of the file, made by an administrator or a backup tool, carries the attribute along but is another object,
 * so it is not ours. What is ours and not yet in use lies in the directory HIDDEN_DIR (mode 0700) beside the volume.
 *
 * Files are made unnamed (O_TMPFILE), filled, tagged and synced, and get their name last: a crash on the way leaves
 * nothing behind, since the kernel frees what has no name. So there are no half-made files to find.
 */
#ifndef SNAPFERRY_IO_NATIVE_TAG_H
#define SNAPFERRY_IO_NATIVE_TAG_H

#include "io/native/driver.h"

#include <limits.h>
#include <sys/stat.h>

#define HIDDEN_DIR ".snapferry"

enum tag_kind { TAG_NATIVE, TAG_INTERMEDIATE, TAG_STAGING };

struct file_tag {
    enum tag_kind kind;
    char node[256];
    struct native_tag tag; /* alias: of the intermediate or staging file itself */
    uint64_t size;
    /* TAG_INTERMEDIATE */
    enum expose_mechanism mechanism;
    bool read_only;
    char klass[128];
    char native[ALIAS_LEN + 1]; /* snapshot that it was made from */
    uint64_t copied;
    double seconds;
    /* TAG_STAGING */
    bool overwrite;
    char final[VOLUME_NAME_MAX];
};

int tag_write(int fd, const char *path, const struct file_tag *t, struct err *e);
/* Quiet: 0, -ENODATA (no tag, not a valid one, or one that was put on another file), or another negative errno. */
int tag_read(int fd, struct file_tag *ret);
int tag_remove(int fd, const char *path, struct err *e);

/*
 * The id of a volume that was restored over another one: the volume stays the same volume although its file is a new
 * one. Kept in an attribute of the file, with the file's identity as in a tag. `restored`: alias of the restore.
 */
int volume_mark_write(int fd, const char *path, const char *id, const char *restored, struct err *e);
/* 0, or -ENODATA if there is none. Either buffer may be NULL. */
int volume_mark_read(int fd, char id[VOLUME_ID_MAX], char restored[ALIAS_LEN + 1]);

/* An open tagged file and the place where it was found. */
struct tagged {
    int dir, fd;
    char path[VOLUME_NAME_MAX], name[NAME_MAX + 1];
    struct stat st;
    struct file_tag tag;
};
#define TAGGED_INIT                                                                                                    \
    {                                                                                                                  \
        .dir = -1, .fd = -1                                                                                            \
    }
void tagged_close(struct tagged *f);

/* HIDDEN_DIR of an open directory, made if `create`. -ENOENT without words if there is none and !create. A thing of
 * that name that is no directory, or one that others may write into, is refused. */
int hidden_open(int dir, const char *path, bool create, struct err *e);

/* Makes a file as said above. `fill` gets it unnamed and empty; what it finds out (copied, seconds, size) it puts into
 * the tag. -EEXIST if the name is taken. */
typedef int tagged_fill_fn(int fd, const char *path, struct file_tag *t, void *arg, struct err *e);
int tagged_create(int dir, const char *dir_path, const char *name, mode_t mode, struct file_tag *t,
                  tagged_fill_fn *fill, void *arg, struct err *e);

/* Removes the file, having looked again that the name still is that file; syncs the directory. */
int tagged_unlink(const struct tagged *f, struct err *e);

/* Where a class may have files of ours: directories of its patterns, its target, and what was added. */
struct dirs {
    char **path;
    struct {
        dev_t dev;
        ino_t ino;
    } * id;
    size_t n;
};
void dirs_free(struct dirs *d);
/* Adds a directory unless it is absent or there already (under any name). */
int dirs_add(struct dirs *d, const char *path, struct err *e);
/* The directory of a file; that of HIDDEN_DIR for a file in it. */
int dirs_add_of(struct dirs *d, const char *file, struct err *e);
int dirs_of_class(struct dirs *d, const struct driver_class *c, struct err *e);

/* Calls fn for every tagged file of this kind and node in the directories and their HIDDEN_DIRs; a value other than 0
 * ends the walk and is returned. What cannot be read is logged and passed over. */
typedef int tagged_fn(const struct tagged *f, void *arg);
int tagged_each(const struct dirs *d, const char *node, enum tag_kind kind, tagged_fn *fn, void *arg, struct err *e);

/* By alias: at `hint` first, then everywhere in the directories. -ENOENT without words if it is nowhere. */
int tagged_find(const struct dirs *d, const char *node, enum tag_kind kind, const char *alias, const char *hint,
                struct tagged *ret, struct err *e);

/* The name of a staging file beside its final name; it tells what it is even before its tag is read. With its final
 * name the file is a volume, though it may still carry the tag: the rename is what completes a restore. */
void staging_name(const char *final_name, const char *alias, char ret[NAME_MAX + 1]);
bool staging_named(const char *name, const char *alias);
#endif
