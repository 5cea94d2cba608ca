/* SPDX-License-Identifier: GPL-2.0-or-later */
/* repository-make.c - the password and the directory of a new repository */
#include "daemon/cli/cli.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <pwd.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#define PASSWORD_BYTES 24

int password_make(const char *file, struct err *e)
{
    unsigned char raw[PASSWORD_BYTES], text[PASSWORD_BYTES / 3 * 4 + 2];
    if (!strncmp(file, "cred:", 5)) {
        err_set(e, ERR_USAGE, 0, "%s is a systemd credential", text_name(file));
        return err_hint(e, "create it with systemd-creds(1); see snapferry.ini(5) for the unit");
    }
    if (getrandom(raw, sizeof raw, 0) != (ssize_t)sizeof raw)
        return err_set(e, ERR_GENERIC, errno, "getrandom");
    int n = EVP_EncodeBlock(text, raw, sizeof raw);
    text[n++] = '\n';
    explicit_bzero(raw, sizeof raw);
    CLEANUP_CLOSE int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int failed = fd < 0 ? errno : 0;
    /* Durable before it is used. */
    if (!failed && (write(fd, text, (size_t)n) != n || fsync(fd) < 0)) {
        failed = errno ? errno : EIO;
        unlink(file);
    }
    explicit_bzero(text, sizeof text);
    if (failed == EEXIST)
        return 0;
    return failed ? err_set(e, ERR_GENERIC, failed, "cannot create the password file %s", text_name(file)) : 1;
}

/* Empty except for lost+found. */
static bool dir_is_empty(int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *n;
    bool found = !d;
    if (!d && fd >= 0)
        close(fd);
    while (d && !found && (n = readdir(d)))
        found = strcmp(n->d_name, ".") != 0 && strcmp(n->d_name, "..") != 0 && strcmp(n->d_name, "lost+found") != 0;
    if (d)
        closedir(d);
    return !found;
}

/* Searchable for movers. Errors are found when the directory itself is created. */
static void make_parents(const char *dir)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s", dir) >= (int)sizeof path)
        return;
    for (char *p = path; (p = strchr(p + 1, '/'));) {
        *p = '\0';
        if (mkdir(path, 0755) == 0 && chmod(path, 0755) < 0)
            return;
        *p = '/';
    }
}

int repository_dir_make(const char *dir, const char *user, struct err *e)
{
    if (!user || !*user || geteuid() != 0)
        return 0;
    const struct passwd *p = getpwnam(user);
    /* A missing user is reported by the daemon; root needs nothing. */
    if (!p || p->pw_uid == 0)
        return 0;
    make_parents(dir);
    bool made = mkdir(dir, 0700) == 0;
    /* Other errors are reported when the repository is opened. */
    CLEANUP_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != 0 || (!made && !dir_is_empty(fd)))
        return 0;
    if (fchown(fd, p->pw_uid, p->pw_gid) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot change the owner of directory %s to %s, the user of movers",
                       text_name(dir), user);
    return 0;
}
