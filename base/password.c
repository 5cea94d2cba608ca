/* SPDX-License-Identifier: GPL-2.0-or-later */
/* password.c - passwords from files and credentials: never from arguments, wiped after use */
#include "base/password.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#define PASSWORD_MAX 65536
#define SHORT 512

/* The characters that Go's unicode.IsSpace() accepts, in UTF-8. */
static const char *const spaces[] = {
    "\t",           "\n",           "\v",           "\f",           "\r",           " ",
    "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81", "\xe2\x80\x82",
    "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86", "\xe2\x80\x87", "\xe2\x80\x88",
    "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8", "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f",
    "\xe3\x80\x80",
};

/* Length of the space that text[0..len) begins or (at_end) ends with, 0 if none. A lead byte never stands inside
 * another character, so comparing bytes at the end is enough. */
static size_t space_len(const char *text, size_t len, bool at_end)
{
    for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; i++) {
        size_t n = strlen(spaces[i]);
        if (n <= len && memcmp(at_end ? text + len - n : text, spaces[i], n) == 0)
            return n;
    }
    return 0;
}

static int credential_path(char *path, size_t cap, const char *name, struct err *e)
{
    const char *dir = getenv("CREDENTIALS_DIRECTORY");
    if (!name[0] || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return err_set(e, ERR_USAGE, EINVAL, "\"cred:%.200s\" is not the name of a credential", name);
    if (!dir || dir[0] != '/') {
        err_set(e, ERR_USAGE, ENOENT, "cannot read the credential %.200s: no credentials were passed to this process",
                name);
        return err_hint(e, "cred:NAME requires a systemd unit with LoadCredential=NAME:FILE; elsewhere use a file");
    }
    int n = snprintf(path, cap, "%s/%s", dir, name);
    if (n < 0 || (size_t)n >= cap)
        return err_set(e, ERR_USAGE, ENAMETOOLONG, "cannot read the credential %.200s", name);
    return 0;
}

void password_free(char *p)
{
    if (!p)
        return;
    OPENSSL_cleanse(p, strlen(p));
    free(p);
}

/* buf has room for `most` bytes. */
static ssize_t read_upto(int fd, char *buf, size_t most)
{
    size_t len = 0;
    while (len < most) {
        ssize_t n = read(fd, buf + len, most - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        len += (size_t)n;
    }
    return (ssize_t)len;
}

/* Checks and strips what was read. */
static int take_password(char **ret, const char *what, const char *file, const char *buf, size_t len, struct err *e)
{
    if (len > PASSWORD_MAX)
        return err_set(e, ERR_USAGE, EFBIG, "the %s file %s is longer than 64 KiB", what, file);
    if (memchr(buf, '\0', len)) {
        err_set(e, ERR_USAGE, EINVAL, "the %s file %s contains a NUL byte", what, file);
        return err_hint(e, "is it UTF-16, or another file?");
    }
    size_t n;
    while ((n = space_len(buf, len, true)) > 0)
        len -= n;
    while ((n = space_len(buf, len, false)) > 0) {
        buf += n;
        len -= n;
    }
    if (len == 0) {
        err_set(e, ERR_USAGE, EINVAL, "the %s file %s is empty", what, file);
        return err_hint(e, "white space at both ends is ignored, as by stock clients");
    }
    *ret = malloc(len + 1);
    if (!*ret)
        return err_nomem(e);
    memcpy(*ret, buf, len);
    (*ret)[len] = '\0';
    return 0;
}

bool is_inherited_pipe(int fd, const struct stat *st)
{
    struct statfs fs;
    return S_ISFIFO(st->st_mode) && fstatfs(fd, &fs) == 0 && fs.f_type == PIPEFS_MAGIC;
}

static bool is_credential(const char *path)
{
    const char *dir = getenv("CREDENTIALS_DIRECTORY");
    const size_t n = dir && dir[0] == '/' ? strlen(dir) : 0;
    return n > 1 && !strncmp(path, dir, n) && path[n] == '/' && !strchr(path + n + 1, '/');
}

bool password_exposed(int fd, const char *path, const struct stat *st)
{
    static const char acl[] = "system.posix_acl_access";
    if (!S_ISREG(st->st_mode) || is_credential(path))
        return false;
    if (st->st_mode & S_IROTH)
        return true;
    if (!(st->st_mode & S_IRGRP))
        return false; /* with a list: its mask */
    if (st->st_gid != 0 && st->st_gid != getegid())
        return true;
    return (fd >= 0 ? fgetxattr(fd, acl, NULL, 0) : getxattr(path, acl, NULL, 0)) > 0;
}

static int refuse_exposed(const char *what, const char *path, const struct stat *st, struct err *e)
{
    err_set(e, ERR_USAGE, EINVAL, "%s file %s is readable by others (mode %04o)", what, path, st->st_mode & 07777u);
    if (strcmp(what, "password") != 0)
        return err_hint(e, "chmod 600 %s", path);
    return err_hint(e, "chmod 600 %s, or allow it with insecure-password-file = yes or --insecure", path);
}

static int read_it(char **ret, const char *what, const char *file, bool insecure, bool warn, struct err *e)
{
    char credential[PATH_MAX];
    const char *path = file;
    if (strncmp(file, "cred:", 5) == 0) {
        int rc = credential_path(credential, sizeof credential, file + 5, e);
        if (rc < 0)
            return rc;
        path = credential;
    }
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT && path != file) {
        err_set(e, ERR_USAGE, ENOENT, "cannot read the credential %.200s: it was not passed to this process", file + 5);
        return err_hint(e, "LoadCredential=%.200s:FILE in a drop-in of its unit, then restart it", file + 5);
    }
    if (fd < 0)
        return err_set(e, errno == ENOENT || errno == ENOTDIR ? ERR_USAGE : ERR_GENERIC, errno,
                       errno == ENOENT ? "cannot read the %s file %s: No such file or directory"
                                       : "cannot read the %s file %s",
                       what, path);
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot read the %s file %s", what, path);
    /* A FIFO or terminal waits for somebody; the pipe of `--password-file <(COMMAND)` has its writer already. */
    if (!S_ISREG(st.st_mode) && !is_inherited_pipe(fd, &st)) {
        err_set(e, ERR_USAGE, EINVAL, "the %s file %s is not a regular file", what, path);
        return err_hint(e, "write the %s into a file that only its owner can read", what);
    }
    fcntl(fd, F_SETFL, 0); /* O_NONBLOCK was for the opening */
    const bool exposed = path == file && password_exposed(fd, path, &st);
    if (exposed && !insecure)
        return refuse_exposed(what, path, &st, e);
    if (exposed && warn)
        log_warning("%s file %s is readable by others (mode %04o): chmod 600 %s", what, path, st.st_mode & 07777u,
                    path);
    /* The daemon reads it for each mover: what is short needs no large block of memory. What has grown since is longer
     * than it may be. */
    const size_t most = S_ISREG(st.st_mode) && st.st_size < SHORT ? SHORT : PASSWORD_MAX + 1;
    char *buf = malloc(most);
    if (!buf)
        return err_nomem(e);
    const ssize_t len = read_upto(fd, buf, most);
    int rc = len < 0 ? err_set(e, ERR_GENERIC, (int)-len, "cannot read the %s file %s", what, path)
             : most == SHORT && len == SHORT
                 ? err_set(e, ERR_USAGE, EBUSY, "the %s file %s is being written", what, path)
                 : take_password(ret, what, path, buf, (size_t)len, e);
    OPENSSL_cleanse(buf, most);
    free(buf);
    return rc;
}

int password_read(char **ret, const char *file, bool insecure, struct err *e)
{
    return read_it(ret, "password", file, insecure, true, e);
}

int secret_read(char **ret, const char *what, const char *file, struct err *e)
{
    return read_it(ret, what, file, false, false, e);
}

int password_check(const char *file, bool insecure, struct err *e)
{
    char *p = NULL;
    int rc = read_it(&p, "password", file, insecure, false, e);
    password_free(p);
    return rc;
}
