/* SPDX-License-Identifier: GPL-2.0-or-later */
/* textfile.c - a page as a file of node_exporter's textfile collector */
#include "daemon/metrics/textfile.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

static int write_whole(int fd, const char *text, size_t len)
{
    while (len) {
        ssize_t n = write(fd, text, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        text += n;
        len -= (size_t)n;
    }
    return fchmod(fd, 0644) < 0 ? -errno : 0;
}

int textfile_write(const char *path, const char *text, size_t len, struct err *e)
{
    char temp[PATH_MAX];
    /* The collector reads *.prom only: never this one. A fixed name, so that a killed daemon leaves one file at
     * most. */
    if ((size_t)snprintf(temp, sizeof temp, "%s.tmp", path) >= sizeof temp)
        return err_set(e, ERR_USAGE, ENAMETOOLONG, "the name of the text file is too long");
    if (unlink(temp) < 0 && errno != ENOENT)
        return err_set(e, ERR_GENERIC, errno, "cannot remove %s", temp);
    CLEANUP_CLOSE int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_set(e, ERR_GENERIC, errno, "the metrics cannot be written to %s", path);
    int rc = write_whole(fd, text, len);
    if (rc == 0 && rename(temp, path) < 0)
        rc = -errno;
    if (rc < 0) {
        unlink(temp);
        return err_set(e, ERR_GENERIC, -rc, "the metrics cannot be written to %s", path);
    }
    return 0;
}

int textfile_step(const json_t *in, json_t **out, int *fd, struct err *e)
{
    const json_t *text = json_object_get(in, "text");
    (void)out, (void)fd;
    return textfile_write(json_string_value(json_object_get(in, "path")), json_string_value(text),
                          json_string_length(text), e);
}

int textfile_remove_step(const json_t *in, json_t **out, int *fd, struct err *e)
{
    const char *path = json_string_value(json_object_get(in, "path"));
    (void)out, (void)fd;
    if (unlink(path) < 0 && errno != ENOENT)
        return err_set(e, ERR_GENERIC, errno, "cannot remove %s, which is no longer written", path);
    return 0;
}
