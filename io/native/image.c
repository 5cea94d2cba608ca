/* SPDX-License-Identifier: GPL-2.0-or-later */
/* image.c - image files: safe opening, their identity, their users */
#include "io/native/reflink.h"

#include "base/cleanup.h"
#include "io/in-use.h"
#include "io/native/fsinfo.h"
#include "io/native/path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static int image_error(const char *path, int sys, struct err *e)
{
    bool absent = sys == ENOENT || sys == ENOTDIR;
    return err_set(e,
                   absent                          ? ERR_NOT_FOUND
                   : sys == EACCES || sys == EPERM ? ERR_PERMISSION
                                                   : ERR_SOURCE,
                   sys, "cannot open image %s", path);
}

int image_open(const char *path, struct stat *st, struct err *e)
{
    char dir[VOLUME_NAME_MAX];
    const char *name;
    struct file_tag tag;
    int rc = path_split(path, dir, &name, e);
    if (rc == 0)
        rc = path_plain(path, e);
    if (rc < 0)
        return rc;
    if (!name_is_text(path))
        return err_set(e, ERR_USAGE, EILSEQ, "name in %s is not valid UTF-8: rename the file", dir);
    if (strstr(path, "/" HIDDEN_DIR "/"))
        return err_set(e, ERR_USAGE, EINVAL, "%s is a file of snapferry, not a volume", path);
    /* Checked before it is opened: opening a device or a pipe has effects. */
    if (lstat(path, st) < 0)
        return image_error(path, errno, e);
    if (!S_ISREG(st->st_mode))
        return err_set(e, ERR_USAGE, EINVAL, "%s is not a regular file%s", path,
                       S_ISLNK(st->st_mode) ? " but a symbolic link: use the file itself" : "");
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return image_error(path, errno, e);
    if (fstat(fd, st) < 0 || !S_ISREG(st->st_mode))
        return err_set(e, ERR_SOURCE, ESTALE, "%s changed while it was opened", path);
    if (tag_read(fd, &tag) == 0 && (tag.kind != TAG_STAGING || staging_named(name, tag.tag.alias)))
        return err_set(e, ERR_USAGE, EINVAL, "%s is a file of snapferry, not a volume (it has an owner tag)", path);
    return take_fd(&fd);
}

int image_id(int fd, const char *path, char ret[VOLUME_ID_MAX], struct err *e)
{
    struct stat st;
    /* Several names of one file: the inherited id could stand for more than one of them. */
    if (fstat(fd, &st) == 0 && st.st_nlink == 1 && volume_mark_read(fd, ret, NULL) == 0)
        return 0;
    return file_object_id(fd, path, ret, e);
}

bool image_locked(int fd, char *out, size_t size)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET}; /* only queried, never taken */
    if (fcntl(fd, F_OFD_GETLK, &lock) < 0 || lock.l_type == F_UNLCK)
        return false;
    if (lock.l_pid > 0)
        snprintf(out, size, "process %d, which holds a lock on it", (int)lock.l_pid);
    else
        snprintf(out, size, "a process that holds a lock on it");
    return true;
}

bool image_user(int fd, const struct stat *st, char *out, size_t size)
{
    return image_locked(fd, out, size) || in_use_loop(st, out, size);
}
