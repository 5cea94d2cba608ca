/* SPDX-License-Identifier: GPL-2.0-or-later */
/* blob-walk.c - the blobs below a directory (Kopia repository format, section 2.2) */
#include "repo/blob-walk.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "repo/beneath.h"
#include "repo/blob-ops.h"
#include "repo/shards.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Characters of the names of directories that one has together, where something else than a directory is refused; what
 * has more is no part of a repository. */
#define SHARD_MOST 12
#define SHARD_FIRST 3
#define KINDS "_klmnpqsx" /* first characters of blobs */

struct walk {
    const char *location;
    const char *prefix;
    size_t prefix_len;
    blob_list_fn *fn;
    void *arg;
    struct err *e;
    struct blob_info info; /* its name is the accumulated name of the directories, then of the file */
    uint64_t odd;          /* packs that are no regular files: they count as missing */
    char odd_one[BLOB_NAME_MAX + 1];
};

static bool prefix_matches(const struct walk *w, size_t len)
{
    return memcmp(w->info.name, w->prefix, len < w->prefix_len ? len : w->prefix_len) == 0;
}

static int list_failed(const struct walk *w, size_t len, int sys)
{
    int rc = err_set(w->e, ERR_GENERIC, sys, "cannot list the blobs \"%.*s...\" of repository %s", (int)len,
                     w->info.name, w->location);
    if (sys == EACCES || sys == EPERM)
        err_hint(w->e, "run as the owner of %s or as root", w->location);
    return rc;
}

/* A FIFO, link or directory with the name of a blob. A list that left it out would say that there is no such index,
 * epoch or session. A pack is looked for by its name, and missed. */
static int not_regular(struct walk *w)
{
    if (w->prefix[0] == 'p' || w->prefix[0] == 'q') {
        if (w->odd++ == 0)
            snprintf(w->odd_one, sizeof w->odd_one, "%s", w->info.name);
        return 0;
    }
    int rc =
        err_set(w->e, ERR_DAMAGE, EBADMSG, "blob %s of repository %s is not a regular file", w->info.name, w->location);
    err_hint(w->e,
             "find out who has put it there, and remove it; `snapferry verify` then shows whether something is lost");
    return rc;
}

/* Something else than a directory where the files of blobs lie in directories. */
static int not_directory(struct walk *w, size_t len)
{
    int rc = err_set(w->e, ERR_DAMAGE, ENOTDIR, "\"%.*s\", where blobs of repository %s lie, is no directory", (int)len,
                     w->info.name, w->location);
    err_hint(w->e, "links in a repository are not followed: replace it by a directory or a mount");
    return rc;
}

static int walk_file(struct walk *w, int dir, const char *file, size_t len)
{
    struct stat st;
    if (fstatat(dir, file, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : list_failed(w, len, errno);
    if (!S_ISREG(st.st_mode)) /* exchanged just now */
        return not_regular(w);
    w->info.length = (uint64_t)st.st_size;
    w->info.mtime_ns = timespec_ns(st.st_mtim);
    return w->fn(&w->info, w->arg);
}

static int walk_dir(struct walk *w, int fd, size_t len);

static bool may_be_shard(const char *name, size_t len)
{
    return !strchr(name, '.') && len + strlen(name) <= SHARD_MOST &&
           (len > 0 || (strlen(name) <= SHARD_FIRST && strchr(KINDS, name[0])));
}

/* One entry of a directory whose blobs' names begin with the first `len` characters of w->info.name. */
static int walk_entry(struct walk *w, int dir, const struct dirent *de, size_t len)
{
    const char *name = de->d_name;
    size_t n = strlen(name);
    /* Blob names do not begin with a dot, but .shards and the snapshot directories of file servers do. */
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return 0;
    if (len == 0 && (name[0] == '.' || strcmp(name, "lost+found") == 0))
        return 0;
    unsigned char type = de->d_type;
    if (type == DT_UNKNOWN) {
        struct stat st;
        if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            return errno == ENOENT ? 0 : list_failed(w, len, errno);
        type = IFTODT(st.st_mode);
    }
    const size_t suffix = strlen(BLOB_SUFFIX);
    const bool is_dir = type == DT_DIR, is_blob = n > suffix && strcmp(name + n - suffix, BLOB_SUFFIX) == 0;
    if (is_blob)
        n -= suffix;
    else if (type == DT_REG || (!is_dir && !may_be_shard(name, len)))
        return 0;
    if (len + n == 0 || len + n > BLOB_NAME_MAX)
        return 0;
    memcpy(w->info.name + len, name, n);
    w->info.name[len + n] = '\0';
    if (!prefix_matches(w, len + n) || (is_blob && len + n < w->prefix_len))
        return 0;
    if (is_blob)
        return type == DT_REG ? walk_file(w, dir, name, len) : not_regular(w);
    if (!is_dir)
        return not_directory(w, len + n);
    int fd = beneath_open(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    if (fd == -ENOENT)
        return 0;
    if (fd == -ENOTDIR || fd == -ELOOP)
        return not_directory(w, len + n);
    return fd < 0 ? list_failed(w, len + n, -fd) : walk_dir(w, fd, len + n);
}

/* Closes fd. The depth is bounded: every level adds a character to the name. */
static int walk_dir(struct walk *w, int fd, size_t len)
{
    CLEANUP_CLOSEDIR DIR *dir = fdopendir(fd);
    if (!dir) {
        int sys = errno;
        close(fd);
        return list_failed(w, len, sys);
    }
    for (;;) {
        errno = 0;
        const struct dirent *de = readdir(dir);
        if (!de)
            return errno == 0 || errno == ENOENT ? 0 : list_failed(w, len, errno);
        int rc = walk_entry(w, dirfd(dir), de, len);
        if (rc != 0)
            return rc;
    }
}

int blob_walk(int root, const char *location, const char *prefix, blob_list_fn *fn, void *arg, struct err *e)
{
    struct walk w = {
        .location = location, .prefix = prefix, .prefix_len = strlen(prefix), .fn = fn, .arg = arg, .e = e};
    int fd = beneath_open(root, ".", O_RDONLY | O_DIRECTORY, 0);
    int rc = fd < 0 ? list_failed(&w, 0, -fd) : walk_dir(&w, fd, 0);
    if (w.odd)
        log_warning("%llu pack%s of repository %s count%s as missing: not a regular file%s %s",
                    (unsigned long long)w.odd, w.odd == 1 ? "" : "s", location, w.odd == 1 ? "s" : "",
                    w.odd == 1 ? ":" : ", as", w.odd_one);
    return rc;
}
