/* SPDX-License-Identifier: GPL-2.0-or-later */
/* path.c - paths of files as text */
#include "io/native/path.h"

#include "base/plain-path.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

int path_join(char out[VOLUME_NAME_MAX], const char *dir, const char *name, struct err *e)
{
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/')
        n--;
    if (n == 1 && dir[0] == '/')
        n = 0;
    if (n + 1 + strlen(name) >= VOLUME_NAME_MAX)
        return err_set(e, ERR_USAGE, ENAMETOOLONG, "path of \"%s\" in %.512s is longer than %d bytes", name, dir,
                       VOLUME_NAME_MAX - 1);
    memmove(out, dir, n);
    out[n] = '/';
    memcpy(out + n + 1, name, strlen(name) + 1);
    return 0;
}

int path_split(const char *path, char dir[VOLUME_NAME_MAX], const char **name, struct err *e)
{
    size_t n = strlen(path);
    const char *slash = strrchr(path, '/');
    if (path[0] != '/' || n >= VOLUME_NAME_MAX)
        return err_set(e, ERR_USAGE, EINVAL, "\"%.512s\" is not an absolute path of at most %d bytes", path,
                       VOLUME_NAME_MAX - 1);
    if (slash[1] == '\0' || strcmp(slash, "/.") == 0 || strcmp(slash, "/..") == 0)
        return err_set(e, ERR_USAGE, EINVAL, "\"%s\" does not name a file", path);
    size_t d = slash == path ? 1 : (size_t)(slash - path);
    memcpy(dir, path, d);
    dir[d] = '\0';
    *name = slash + 1;
    return 0;
}

int path_plain(const char *path, struct err *e)
{
    return is_plain_path(path) ? 0
                               : err_set(e, ERR_USAGE, EINVAL, "\"%.512s\": path with \".\", \"..\" or \"//\"", path);
}

bool name_is_text(const char *name)
{
    json_t *j = json_string(name);
    json_decref(j);
    return j != NULL;
}
