/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * copy.c - the read-only view: works on a private copy, so that nothing of the daemon's is written or locked
 *
 * Not for the process that has the same records open for writing: closing a descriptor of the database would drop the
 * locks that SQLite holds on it.
 */
#include "daemon/records/records-impl.h"

#include "base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ATTEMPTS 30
#define WAL_HEADER 32
#define COPY_PREFIX "snapferry-records-copy-"
#define ABANDONED_AGE 60 /* seconds: a copy is locked at once after its creation */

/* The head of the log tells its generation: as long as it stays, the log only grows. */
struct moment {
    char log[WAL_HEADER];
    ssize_t log_len; /* 0: there is no log, or it is empty */
    struct stat db;
    bool rebuilt; /* a replacement was decided: it counts, not the damaged one */
};

static int look(const char *dir, struct moment *m, struct err *e)
{
    char p[PATH_MAX + 64];
    struct stat st;
    memset(m, 0, sizeof *m);
    snprintf(p, sizeof p, "%s/records.db.rebuilt", dir);
    m->rebuilt = stat(p, &st) == 0;
    if (!m->rebuilt)
        snprintf(p, sizeof p, "%s/" RECORDS_DB, dir);
    if (stat(p, &m->db) < 0) {
        if (errno != ENOENT)
            return err_set(e, ERR_GENERIC, errno, "cannot read %s", p);
        err_plain(e, ERR_NOT_FOUND, ENOENT, "there are no records in %s", dir);
        return err_hint(e, "snapferryd has not run with this state directory");
    }
    if (m->rebuilt)
        return 0;
    snprintf(p, sizeof p, "%s/" RECORDS_DB "-wal", dir);
    CLEANUP_CLOSE int fd = open(p, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : err_set(e, ERR_GENERIC, errno, "cannot read %s", p);
    m->log_len = pread(fd, m->log, WAL_HEADER, 0);
    if (m->log_len < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot read %s", p);
    if (m->log_len < WAL_HEADER)
        m->log_len = 0;
    return 0;
}

/* Whether what was copied between the two moments belongs together. With the same log all along, every page that was
 * being folded into the database meanwhile is in the log's copy too. */
static bool same_moment(const struct moment *a, const struct moment *b)
{
    if (a->rebuilt != b->rebuilt || a->db.st_ino != b->db.st_ino || a->log_len != b->log_len)
        return false;
    if (a->log_len)
        return memcmp(a->log, b->log, WAL_HEADER) == 0;
    return a->db.st_size == b->db.st_size && a->db.st_mtim.tv_sec == b->db.st_mtim.tv_sec &&
           a->db.st_mtim.tv_nsec == b->db.st_mtim.tv_nsec;
}

static int copy_file(const char *dir, const char *from, const char *to_dir, const char *to, struct err *e)
{
    char a[PATH_MAX + 64], b[PATH_MAX + 64];
    snprintf(a, sizeof a, "%s/%s", dir, from);
    snprintf(b, sizeof b, "%s/%s", to_dir, to);
    CLEANUP_CLOSE int in = open(a, O_RDONLY | O_CLOEXEC);
    if (in < 0)
        return errno == ENOENT ? 0 : err_set(e, ERR_GENERIC, errno, "cannot read %s", a);
    CLEANUP_CLOSE int out = open(b, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (out < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot make %s", b);
    char buf[65536];
    for (;;) {
        ssize_t n = read(in, buf, sizeof buf);
        if (n < 0)
            return err_set(e, ERR_GENERIC, errno, "cannot read %s", a);
        if (n == 0)
            return 0;
        for (ssize_t done = 0, w; done < n; done += w)
            if ((w = write(out, buf + done, (size_t)(n - done))) < 0)
                return err_set(e, ERR_GENERIC, errno, "cannot write %s", b);
    }
}

static void empty_dir(const char *dir)
{
    CLEANUP_CLOSEDIR DIR *d = opendir(dir);
    struct dirent *de;
    while (d && (de = readdir(d)))
        if (de->d_name[0] != '.')
            unlinkat(dirfd(d), de->d_name, 0);
}

/* One attempt. 1: the daemon was faster. */
static int copy_once(const char *dir, const char *to, struct err *e)
{
    struct moment before, after;
    int rc = look(dir, &before, e);
    if (rc < 0)
        return rc;
    rc = copy_file(dir, before.rebuilt ? "records.db.rebuilt" : RECORDS_DB, to, RECORDS_DB, e);
    if (rc >= 0 && !before.rebuilt)
        rc = copy_file(dir, RECORDS_DB "-wal", to, RECORDS_DB "-wal", e);
    if (rc < 0 || (rc = look(dir, &after, e)) < 0)
        return rc;
    return same_moment(&before, &after) ? 0 : 1;
}

static int open_copy(struct records *r, const char *dir, struct err *e)
{
    struct records_news news = {0};
    int rc = 1;
    for (int i = 0; i < ATTEMPTS; i++) {
        struct timespec pause = {.tv_nsec = 20000000L * (i < 5 ? i : 5)};
        nanosleep(&pause, NULL);
        records_close_database(r);
        empty_dir(r->dir);
        if ((rc = copy_once(dir, r->dir, e)) < 0)
            return rc;
        if (rc > 0)
            continue;
        rc = records_open_database(r, true, &news, e);
        /* Damage may come from the copying after all: only believed when it stays. */
        if (rc != -EBADMSG || i >= 2)
            return rc;
    }
    if (rc > 0)
        return err_set(e, ERR_BUSY, EBUSY, "the records in %s change too fast to be copied", dir);
    return 0;
}

/* Removes what processes that were killed while they copied have left: nobody has it locked. */
static void remove_abandoned(const char *tmp)
{
    char path[PATH_MAX];
    CLEANUP_CLOSEDIR DIR *d = opendir(tmp);
    struct dirent *de;
    while (d && (de = readdir(d))) {
        struct stat st;
        if (strncmp(de->d_name, COPY_PREFIX, strlen(COPY_PREFIX)) != 0)
            continue;
        CLEANUP_CLOSE int fd = openat(dirfd(d), de->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != geteuid() || time(NULL) - st.st_mtim.tv_sec < ABANDONED_AGE ||
            flock(fd, LOCK_EX | LOCK_NB) < 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", tmp, de->d_name);
        empty_dir(path);
        rmdir(path);
    }
}

/* A directory of our own in `tmp`; *lock is held while files in it have names. */
static int copy_dir(struct records *r, const char *tmp, int *lock, struct err *e)
{
    snprintf(r->dir, sizeof r->dir, "%s/" COPY_PREFIX "XXXXXX", tmp);
    if (!mkdtemp(r->dir))
        return err_set(e, ERR_GENERIC, errno, "cannot make %s", r->dir);
    *lock = open(r->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*lock >= 0 && flock(*lock, LOCK_EX | LOCK_NB) == 0)
        return 0;
    const int sys = errno;
    rmdir(r->dir);
    return err_set(e, ERR_GENERIC, sys, "cannot lock %s", r->dir);
}

int records_open_read_only(struct records **ret, const char *state_dir, struct err *e)
{
    const char *tmp = getenv("TMPDIR");
    tmp = tmp && tmp[0] == '/' ? tmp : "/tmp";
    CLEANUP_CLOSE int lock = -1;
    struct records *r = records_new(&records_schema_shipped);
    if (!r)
        return err_nomem(e);
    r->read_only = true;
    struct moment first;
    int rc = look(state_dir, &first, e);
    if (rc >= 0) {
        remove_abandoned(tmp);
        rc = copy_dir(r, tmp, &lock, e);
    }
    if (rc >= 0) {
        snprintf(r->path, sizeof r->path, "%s/%s", r->dir, RECORDS_DB);
        rc = open_copy(r, state_dir, e);
        /* The files stay open without names: nothing is left behind, whatever ends the process. */
        empty_dir(r->dir);
        rmdir(r->dir);
    }
    if (rc < 0) {
        records_free(r);
        return rc;
    }
    *ret = r;
    return 0;
}
