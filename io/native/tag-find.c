/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tag-find.c - tagged files, wherever an administrator may have moved them */
#include "base/cleanup.h"
#include "io/native/path.h"
#include "io/native/pattern.h"
#include "io/native/tag.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

/* ---- directories ---- */

void dirs_free(struct dirs *d)
{
    for (size_t i = 0; i < d->n; i++)
        free(d->path[i]);
    free(d->path);
    free(d->id);
    memset(d, 0, sizeof *d);
}

int dirs_add(struct dirs *d, const char *path, struct err *e)
{
    struct stat st;
    if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode))
        return 0;
    for (size_t i = 0; i < d->n; i++)
        if (d->id[i].dev == st.st_dev && d->id[i].ino == st.st_ino)
            return 0;
    if (d->n % 16 == 0) {
        void *p = reallocarray(d->path, d->n + 16, sizeof *d->path);
        if (!p)
            return err_nomem(e);
        d->path = p;
        p = reallocarray(d->id, d->n + 16, sizeof *d->id);
        if (!p)
            return err_nomem(e);
        d->id = p;
    }
    if (!(d->path[d->n] = strdup(path)))
        return err_nomem(e);
    d->id[d->n].dev = st.st_dev;
    d->id[d->n++].ino = st.st_ino;
    return 0;
}

int dirs_add_of(struct dirs *d, const char *file, struct err *e)
{
    char dir[VOLUME_NAME_MAX];
    const char *name;
    if (path_split(file, dir, &name, NULL) < 0)
        return 0;
    char *last = strrchr(dir, '/');
    if (last != dir && strcmp(last + 1, HIDDEN_DIR) == 0)
        *last = '\0';
    return dirs_add(d, dir, e);
}

struct adding {
    struct dirs *d;
    struct err *e;
};

static int add_dir(const char *dir, const char *last, void *arg)
{
    (void)last;
    struct adding *a = arg;
    return dirs_add(a->d, dir, a->e);
}

int dirs_of_class(struct dirs *d, const struct driver_class *c, struct err *e)
{
    struct adding a = {d, e};
    int rc = c->target && *c->target ? dirs_add(d, c->target, e) : 0;
    for (size_t i = 0; rc == 0 && c->match && c->match[i]; i++)
        rc = pattern_dirs(c->match[i], add_dir, &a, e);
    return rc;
}

/* ---- looking at files ---- */

/* Whether the name has a tag at all, without opening it: most files of a directory have none. */
static bool has_tag(int dir, const char *name)
{
    char path[64 + NAME_MAX + 1];
    snprintf(path, sizeof path, "/proc/self/fd/%d/%s", dir, name);
    return lgetxattr(path, "trusted.snapferry.tag", NULL, 0) >= 0 ||
           lgetxattr(path, "user.snapferry.tag", NULL, 0) >= 0;
}

/* Opens dir/name if it is a regular file with a valid tag; -ENODATA if not. `dir` is duplicated on success. */
static int open_tagged(int dir, const char *dir_path, const char *name, struct tagged *f)
{
    *f = (struct tagged)TAGGED_INIT;
    if (strlen(name) > NAME_MAX || !has_tag(dir, name))
        return -ENODATA;
    if (fstatat(dir, name, &f->st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(f->st.st_mode))
        return -ENODATA;
    f->fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    int rc = f->fd < 0 || fstat(f->fd, &f->st) < 0 ? -errno : 0;
    if (rc == 0 && !S_ISREG(f->st.st_mode))
        rc = -ENODATA;
    if (rc == 0)
        rc = tag_read(f->fd, &f->tag);
    if (rc == 0 && f->tag.kind == TAG_STAGING && !staging_named(name, f->tag.tag.alias))
        rc = -ENODATA;
    if (rc == 0)
        rc = path_join(f->path, dir_path, name, NULL);
    if (rc == 0 && (f->dir = fcntl(dir, F_DUPFD_CLOEXEC, 3)) < 0)
        rc = -errno;
    snprintf(f->name, sizeof f->name, "%s", name);
    if (rc < 0)
        tagged_close(f);
    return rc;
}

struct wanted {
    const char *node, *alias; /* alias NULL: any */
    enum tag_kind kind;
    tagged_fn *fn;
    void *arg;
};

static bool is_wanted(const struct wanted *w, const struct tagged *f)
{
    return f->tag.kind == w->kind && strcmp(f->tag.node, w->node) == 0 &&
           (!w->alias || strcmp(f->tag.tag.alias, w->alias) == 0);
}

/* Takes the descriptor. */
static int scan(int fd, const char *path, const struct wanted *w)
{
    CLEANUP_CLOSEDIR DIR *d = fdopendir(fd);
    if (!d) {
        close(fd);
        return 0;
    }
    const struct dirent *de;
    int rc = 0;
    while (rc == 0 && (de = readdir(d))) {
        if (de->d_type != DT_REG && de->d_type != DT_UNKNOWN)
            continue;
        struct tagged f;
        int got = open_tagged(dirfd(d), path, de->d_name, &f);
        if (got < 0 && got != -ENODATA && got != -ENOENT)
            log_warning("cannot look at %s/%s: %s", path, de->d_name, strerror(-got));
        if (got == 0) {
            if (!name_is_text(f.path)) /* cannot be represented in a document */
                log_warning("name of a tagged file in %s is not valid UTF-8: rename it", path);
            else if (is_wanted(w, &f))
                rc = w->fn(&f, w->arg);
            tagged_close(&f);
        }
    }
    return rc;
}

static int scan_both(const char *path, const struct wanted *w)
{
    CLEANUP_CLOSE int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct err e = ERR_INIT;
    char hidden[VOLUME_NAME_MAX];
    if (dir < 0) {
        if (errno != ENOENT && errno != ENOTDIR)
            log_warning("cannot search %s for snapshots: %s", path, strerror(errno));
        return 0;
    }
    int fd = hidden_open(dir, path, false, &e);
    if (fd < 0 && fd != -ENOENT)
        log_warning("ignored: %s", e.msg);
    int rc = 0;
    if (fd >= 0) {
        if (path_join(hidden, path, HIDDEN_DIR, NULL) == 0)
            rc = scan(fd, hidden, w);
        else
            close(fd);
    }
    return rc ? rc : scan(take_fd(&dir), path, w);
}

int tagged_each(const struct dirs *d, const char *node, enum tag_kind kind, tagged_fn *fn, void *arg, struct err *e)
{
    (void)e;
    const struct wanted w = {.node = node, .kind = kind, .fn = fn, .arg = arg};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < d->n; i++)
        rc = scan_both(d->path[i], &w);
    return rc;
}

/* ---- finding one ---- */

static int keep(const struct tagged *f, void *arg)
{
    struct tagged *ret = arg;
    *ret = *f;
    ret->fd = fcntl(f->fd, F_DUPFD_CLOEXEC, 3);
    ret->dir = fcntl(f->dir, F_DUPFD_CLOEXEC, 3);
    if (ret->fd < 0 || ret->dir < 0) {
        int sys = errno;
        tagged_close(ret);
        return -sys;
    }
    return 1;
}

static bool at_hint(const char *hint, const struct wanted *w, struct tagged *ret)
{
    char dir[VOLUME_NAME_MAX];
    const char *name;
    if (!hint || !*hint || path_split(hint, dir, &name, NULL) < 0)
        return false;
    CLEANUP_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || open_tagged(fd, dir, name, ret) < 0)
        return false;
    if (is_wanted(w, ret))
        return true;
    tagged_close(ret);
    return false;
}

int tagged_find(const struct dirs *d, const char *node, enum tag_kind kind, const char *alias, const char *hint,
                struct tagged *ret, struct err *e)
{
    static const char *const suffix[] = {"native", "intermediate", "staging"};
    const struct wanted w = {.node = node, .alias = alias, .kind = kind, .fn = keep, .arg = ret};
    if (at_hint(hint, &w, ret))
        return 0;
    /* At the recorded place, then everywhere. */
    for (size_t i = 0; i < d->n; i++) {
        char path[VOLUME_NAME_MAX + 128];
        snprintf(path, sizeof path, "%s/%s/%s.%s", d->path[i], HIDDEN_DIR, alias, suffix[kind]);
        if (at_hint(path, &w, ret))
            return 0;
    }
    for (size_t i = 0; i < d->n; i++) {
        int rc = scan_both(d->path[i], &w);
        if (rc < 0)
            return err_set(e, ERR_GENERIC, -rc, "cannot open the snapshot %s", alias);
        if (rc > 0)
            return 0;
    }
    *ret = (struct tagged)TAGGED_INIT;
    return -ENOENT;
}
