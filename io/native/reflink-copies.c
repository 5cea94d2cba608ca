/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * reflink-copies.c - a file system and its copy, mounted at the same time
 *
 * A snapshot of the disk, or a copy of it, has the UUID, the inodes and the tags of the original: nothing tells the
 * files of one from those of the other. XFS mounts the second one with `nouuid` only, so that without such a mount
 * nothing is to be compared. btrfs refuses it, or gives it a random UUID for as long as it is mounted.
 */
#include "io/native/reflink.h"

#include "base/cleanup.h"
#include "io/mounts.h"
#include "io/native/fsinfo.h"
#include "io/native/pattern.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct one_file_system {
    dev_t dev;
    char pool[64]; /* its UUID */
    char *dir;     /* a directory of it that a pattern names */
    const struct one_file_system *copy;
};

struct finding {
    struct file_systems *s;
    struct err *e;
};

static bool is_nouuid(const struct mount_row *m, void *arg)
{
    (void)arg;
    return m->nouuid;
}

static int add_dir(const char *dir, const char *last, void *arg)
{
    (void)last;
    struct finding *f = arg;
    struct fs_info fs;
    struct stat st;
    if (stat(dir, &st) < 0)
        return 0;
    for (size_t i = 0; i < f->s->n; i++)
        if (f->s->v[i].dev == st.st_dev)
            return 0;
    /* What cannot be looked at has no volumes either. The subvolumes of btrfs have one UUID. */
    if (fs_info_path(dir, &fs, NULL) < 0 || fs.subvol)
        return 0;
    struct one_file_system *v = reallocarray(f->s->v, f->s->n + 1, sizeof *v);
    if (!v)
        return err_nomem(f->e);
    f->s->v = v;
    struct one_file_system *own = &v[f->s->n];
    *own = (struct one_file_system){.dev = st.st_dev, .dir = strdup(dir)};
    snprintf(own->pool, sizeof own->pool, "%s", fs.pool);
    f->s->n++;
    return own->dir ? 0 : err_nomem(f->e);
}

static void find_copies(struct file_systems *s)
{
    for (size_t i = 0; i < s->n; i++)
        for (size_t k = 0; k < s->n && !s->v[i].copy; k++)
            if (k != i && strcmp(s->v[k].pool, s->v[i].pool) == 0)
                s->v[i].copy = &s->v[k];
}

void copies_free(struct file_systems *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->v[i].dir);
    free(s->v);
    *s = (struct file_systems){NULL, 0};
}

int copies_find(const struct driver_class *c, struct file_systems *ret, struct err *e)
{
    struct finding f = {ret, e};
    int rc = 0;
    *ret = (struct file_systems){NULL, 0};
    if (!mounts_each("/proc/self/mountinfo", is_nouuid, NULL))
        return 0;
    for (size_t i = 0; rc == 0 && c->match && c->match[i]; i++)
        rc = pattern_dirs(c->match[i], add_dir, &f, e);
    /* An error in a pattern of another class is told where that is used. */
    for (size_t i = 0; rc == 0 && c->peers && c->peers[i]; i++)
        if (c->peers[i][0] == '/')
            rc = pattern_dirs(c->peers[i], add_dir, &f, e);
    if (rc < 0)
        copies_free(ret);
    else
        find_copies(ret);
    return rc;
}

/* The same text for every image of both. */
static int refuse(const struct one_file_system *v, struct err *e)
{
    const bool first = strcmp(v->dir, v->copy->dir) < 0;
    err_plain(
        e, ERR_SOURCE, ENOTUNIQ,
        "the file systems of %s and %s have the same identity (UUID %s), so that nothing tells their images apart: "
        "none of them is backed up",
        first ? v->dir : v->copy->dir, first ? v->copy->dir : v->dir, v->pool);
    err_hint(e, "unmount the copy and give it a UUID of its own (xfs_admin -U generate DEVICE), or remove it from the "
                "match of its class");
    return -ENOTUNIQ;
}

int copies_refuse(const struct file_systems *s, int fd, const char *path, struct err *e)
{
    struct stat st;
    size_t i = 0;
    if (s->n == 0)
        return 0;
    if (fstat(fd, &st) < 0)
        return err_set(e, ERR_SOURCE, errno, "cannot stat %s", path);
    while (i < s->n && s->v[i].dev != st.st_dev)
        i++;
    return i < s->n && s->v[i].copy ? refuse(&s->v[i], e) : 0;
}

int copies_refuse_all(const struct file_systems *s, struct err *e)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i].copy)
            return refuse(&s->v[i], e);
    return 0;
}
