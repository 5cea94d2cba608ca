/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "proc/program-path.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINKS_MAX 40 /* as the kernel */

struct walk {
    bool root_only;      /* also where this user is not root */
    int dir;             /* where it is */
    char at[PATH_MAX];   /* its name, without a slash at the end */
    char rest[PATH_MAX]; /* what is still to be walked */
    unsigned links;
    char *why;
    size_t cap;
};

static bool is_others(const struct walk *w, uid_t uid)
{
    return uid != 0 && (w->root_only || geteuid() == 0 || uid != geteuid());
}

static int check_directory(struct walk *w)
{
    struct stat st;
    const char *name = w->at[0] ? w->at : "/";
    if (fstat(w->dir, &st) < 0)
        return -errno;
    if (is_others(w, st.st_uid))
        snprintf(w->why, w->cap, "its directory %.300s is owned by user %u", name, (unsigned)st.st_uid);
    else if ((st.st_mode & (S_IWGRP | S_IWOTH)) && !(st.st_mode & S_ISVTX))
        snprintf(w->why, w->cap, "its directory %.300s is writable by others", name);
    else
        return 0;
    return -EPERM;
}

static int go_to_root(struct walk *w)
{
    closep(&w->dir);
    w->dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    w->at[0] = '\0';
    return w->dir < 0 ? -errno : check_directory(w);
}

/* Takes the next component off `rest`; false: there is none. */
static bool next_component(struct walk *w, char out[NAME_MAX + 2])
{
    const char *p = w->rest + strspn(w->rest, "/");
    const size_t n = strcspn(p, "/");
    if (!n)
        return false;
    snprintf(out, NAME_MAX + 2, "%.*s", (int)(n > NAME_MAX + 1 ? NAME_MAX + 1 : n), p);
    memmove(w->rest, p + n, strlen(p + n) + 1);
    return true;
}

/* What a link names comes before what is left. */
static int follow(struct walk *w, int link, const char *name)
{
    char target[PATH_MAX], rest[PATH_MAX];
    struct stat st;
    if (fstat(link, &st) < 0)
        return -errno;
    if (is_others(w, st.st_uid)) {
        snprintf(w->why, w->cap, "its link %.200s/%.100s is owned by user %u", w->at, name, (unsigned)st.st_uid);
        return -EPERM;
    }
    const ssize_t n = readlinkat(link, "", target, sizeof target);
    if (n < 0)
        return -errno;
    if (++w->links > LINKS_MAX)
        return -ELOOP;
    if (n == 0 || snprintf(rest, sizeof rest, "%.*s%s", (int)n, target, w->rest) >= (int)sizeof rest)
        return n == 0 ? -ENOENT : -ENAMETOOLONG;
    memcpy(w->rest, rest, sizeof rest);
    return rest[0] == '/' ? go_to_root(w) : 0;
}

static int enter(struct walk *w, int *fd, const char *name)
{
    const size_t n = strlen(w->at);
    closep(&w->dir);
    w->dir = take_fd(fd);
    if (snprintf(w->at + n, sizeof w->at - n, "/%s", name) >= (int)(sizeof w->at - n))
        return -ENAMETOOLONG;
    return check_directory(w);
}

/* -EPERM: *why says what others could replace. */
static int walk_path(struct walk *w, const char *path, int *ret)
{
    char name[NAME_MAX + 2];
    if (snprintf(w->rest, sizeof w->rest, "%s", path) >= (int)sizeof w->rest)
        return -ENAMETOOLONG;
    int rc = go_to_root(w);
    while (rc == 0 && next_component(w, name)) {
        struct stat st;
        CLEANUP_CLOSE int fd = openat(w->dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0)
            return -errno;
        if (S_ISLNK(st.st_mode)) {
            rc = follow(w, fd, name);
        } else if (S_ISDIR(st.st_mode)) {
            rc = enter(w, &fd, name);
        } else if (w->rest[0]) {
            return -ENOTDIR;
        } else {
            *ret = take_fd(&fd);
            return 0;
        }
    }
    return rc < 0 ? rc : -EISDIR;
}

static int open_at(const char *path, bool root_only, int *ret, char *why, size_t cap)
{
    struct walk w = {.root_only = root_only, .dir = -1, .why = why, .cap = cap};
    const int rc = walk_path(&w, path, ret);
    closep(&w.dir);
    return rc;
}

bool program_replaceable(const char *path, char *why, size_t cap)
{
    CLEANUP_CLOSE int fd = -1;
    return open_at(path, false, &fd, why, cap) == -EPERM;
}

static int check_file(const char *label, const char *path, int fd, bool root_only, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_set(e, ERR_GENERIC, errno, "%s: cannot run %s", label, path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_USAGE, EINVAL, "%s: %s is not a file", label, path);
    if (st.st_uid != 0 && (root_only || geteuid() == 0 || st.st_uid != geteuid())) {
        err_set(e, ERR_PERMISSION, EPERM, "%s: %s is owned by user %u and is not run", label, path,
                (unsigned)st.st_uid);
        return err_hint(e, "chown root %s", path);
    }
    if (st.st_mode & (S_IWGRP | S_IWOTH)) {
        err_set(e, ERR_PERMISSION, EPERM, "%s: %s is writable by others and is not run", label, path);
        return err_hint(e, "chmod go-w %s", path);
    }
    if (!(st.st_mode & S_IXUSR)) {
        err_set(e, ERR_PERMISSION, EACCES, "%s: %s is not executable", label, path);
        return err_hint(e, "chmod +x %s", path);
    }
    return 0;
}

static int open_checked(const char *label, const char *path, bool root_only, int *ret, struct err *e)
{
    char why[400];
    CLEANUP_CLOSE int fd = -1;
    if (path[0] != '/')
        return err_set(e, ERR_USAGE, EINVAL, "%s: the program \"%s\" is not an absolute path", label, path);
    int rc = open_at(path, root_only, &fd, why, sizeof why);
    if (rc == -EISDIR)
        return err_set(e, ERR_USAGE, EINVAL, "%s: %s is not a file", label, path);
    if (rc == -EPERM) {
        err_set(e, ERR_PERMISSION, EPERM, "%s: %s is not run: %s", label, path, why);
        return err_hint(e, "each directory of its path must belong to root and be writable by root only");
    }
    if (rc < 0)
        return err_set(e, rc == -ENOENT ? ERR_NOT_FOUND : ERR_GENERIC, -rc, "%s: cannot run %s", label, path);
    rc = check_file(label, path, fd, root_only, e);
    if (rc == 0)
        *ret = take_fd(&fd);
    return rc;
}

int program_open(const char *label, const char *path, int *ret, struct err *e)
{
    return open_checked(label, path, false, ret, e);
}

int program_check(const char *label, const char *path, struct err *e)
{
    CLEANUP_CLOSE int fd = -1;
    return program_open(label, path, &fd, e);
}

/* ---- execution ---- */

int program_execute(int program, char *const *argv, char *const *env)
{
    execveat(program, "", argv, env, AT_EMPTY_PATH);
    if (errno != ENOENT)
        return errno;
    /* A script: its interpreter needs the descriptor. */
    const int fd = fcntl(program, F_DUPFD, PROGRAM_FD);
    if (fd < 0)
        return errno;
    execveat(fd, "", argv, env, AT_EMPTY_PATH);
    return errno;
}

int program_self(char *out, size_t cap, struct err *e)
{
    static const char deleted[] = " (deleted)";
    const ssize_t n = readlink("/proc/self/exe", out, cap);
    if (n < 0 || (size_t)n >= cap)
        return err_set(e, ERR_GENERIC, n < 0 ? errno : ENAMETOOLONG, "cannot find the path of this program");
    out[n] = '\0';
    const size_t tail = sizeof deleted - 1;
    if ((size_t)n > tail && !strcmp(out + n - tail, deleted))
        out[(size_t)n - tail] = '\0';
    return 0;
}

int program_run_main(int argc, char **argv)
{
    struct err e = ERR_INIT;
    CLEANUP_CLOSE int fd = -1;
    int env = 3, end = 3;
    while (end < argc && strcmp(argv[end], "--") != 0)
        end++;
    if (argc < 4 || end + 1 >= argc) {
        fprintf(stderr, "%s: for the units of this program only\n", argv[0]);
        return PROGRAM_RUN_FAILED;
    }
    argv[end] = NULL; /* of the environment */
    char *const *program = argv + end + 1;
    if (open_checked(argv[2], program[0], true, &fd, &e) == 0)
        err_set(&e, ERR_GENERIC, program_execute(fd, program, argv + env), "%s: cannot run %s", argv[2], program[0]);
    fprintf(stderr, "%s\n", e.msg);
    return PROGRAM_RUN_FAILED;
}
