/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/s3-journal.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "repo/repo-impl.h"

#include <fcntl.h>
#include <inttypes.h>
#include <isa-l/crc64.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORD_MAX 512
#define SUM_LEN 16                     /* hex digits, then a space */
#define WRITE_MAX (2 * S3_JOURNAL_MAX) /* while its name cannot be changed */
#define READ_MAX (3 * S3_JOURNAL_MAX)  /* a longer one is not of ours */
#define AHEAD_NS NS_PER_MIN            /* a time that is later by more: the clock was set back */

_Static_assert(SUM_LEN + 4 * 24 + 16 + BLOB_NAME_MAX < RECORD_MAX, "a record fits");

struct s3_journal {
    pthread_mutex_t lock; /* of fd */
    int fd;
    uint64_t place; /* what the checksums begin with */
    char writer[17];
    char *path, *old;
};

struct s3_journal *s3_journal_new(const char *dir, const char *place)
{
    struct s3_journal *j = calloc(1, sizeof *j);
    uint64_t id;
    if (!j)
        return NULL;
    pthread_mutex_init(&j->lock, NULL);
    j->fd = -1;
    j->place = crc64_ecma_refl(0, (const uint8_t *)place, strlen(place));
    if (asprintf(&j->path, "%s/recent-%016" PRIx64, dir, j->place) < 0)
        j->path = NULL;
    if (!j->path || asprintf(&j->old, "%s.old", j->path) < 0)
        j->old = NULL;
    if (!j->old || random_bytes(&id, sizeof id, NULL) < 0) {
        s3_journal_free(j);
        return NULL;
    }
    snprintf(j->writer, sizeof j->writer, "%016" PRIx64, id);
    return j;
}

void s3_journal_free(struct s3_journal *j)
{
    if (!j)
        return;
    if (j->fd >= 0)
        close(j->fd);
    pthread_mutex_destroy(&j->lock);
    free(j->path);
    free(j->old);
    free(j);
}

/* As blob.c wants it, and one word of a line. */
static bool is_name(const char *name)
{
    const size_t len = strlen(name);
    for (size_t i = 0; i < len; i++)
        if (name[i] <= ' ' || name[i] > '~' || name[i] == '/')
            return false;
    return len >= 1 && len <= BLOB_NAME_MAX && name[0] != '.' && !strstr(name, "..");
}

/* Who may write to the directory must not lead others to a file elsewhere. */
static bool is_usable(int fd, struct stat *st)
{
    return fstat(fd, st) == 0 && S_ISREG(st->st_mode) && st->st_nlink <= 1;
}

static bool is_stale(int64_t time_ns, int64_t now)
{
    return now - time_ns > S3_RECENT_NS || time_ns - now > AHEAD_NS;
}

/* ---- writing ---- */

static int open_anew(const struct s3_journal *j)
{
    const int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    struct stat st;
    int fd = open(j->path, flags, 0600);
    if (fd >= 0 && is_usable(fd, &st))
        return fd;
    /* Of another user, who used this directory by hand, or none that one writes to. */
    const bool foreign = fd >= 0 || errno == EACCES || errno == ELOOP || errno == ENXIO;
    if (fd >= 0)
        close(fd);
    return foreign && unlink(j->path) == 0 ? open(j->path, flags | O_EXCL, 0600) : -1;
}

/* The lock is that of the file which is there: of two processes that find it full one gives it the other name. */
static void set_aside(const struct s3_journal *j, const struct stat *st)
{
    struct stat there;
    if (flock(j->fd, LOCK_EX | LOCK_NB) < 0)
        return;
    if (lstat(j->path, &there) == 0 && there.st_dev == st->st_dev && there.st_ino == st->st_ino)
        (void)rename(j->path, j->old); /* if it cannot be, it grows up to WRITE_MAX */
}

/* Opens the file where what is open is not the one to write to. A lock ends when its file is closed. */
static bool is_ready(struct s3_journal *j, int64_t now)
{
    struct stat st;
    for (unsigned n = 0; n < 2; n++) {
        if (j->fd < 0 && (j->fd = open_anew(j)) < 0)
            return false;
        if (fstat(j->fd, &st) < 0)
            return false;
        if (st.st_nlink > 0) {
            if (st.st_size < S3_JOURNAL_MAX && (st.st_size == 0 || !is_stale(timespec_ns(st.st_mtim), now)))
                return true;
            set_aside(j, &st);
        }
        close(take_fd(&j->fd));
    }
    /* Another process holds its lock. */
    return (j->fd = open_anew(j)) >= 0 && fstat(j->fd, &st) == 0 && st.st_size < WRITE_MAX;
}

void s3_journal_add(struct s3_journal *j, const char *name, uint64_t length, int64_t mtime_ns, bool deleted)
{
    char text[RECORD_MAX], line[RECORD_MAX + SUM_LEN + 4];
    const int64_t now = now_ns();
    if (!j || !is_name(name))
        return;
    const int len = snprintf(text, sizeof text, "%" PRId64 " %" PRId64 " %" PRIu64 " %c %s %s", now, mtime_ns, length,
                             deleted ? 'd' : 'p', j->writer, name);
    const uint64_t sum = crc64_ecma_refl(j->place, (const uint8_t *)text, (size_t)len);
    const int all = snprintf(line, sizeof line, "\n%016" PRIx64 " %s\n", sum, text);
    pthread_mutex_lock(&j->lock);
    if (is_ready(j, now) && write(j->fd, line, (size_t)all) < 0)
        close(take_fd(&j->fd)); /* a full disk, for instance: the others do without */
    pthread_mutex_unlock(&j->lock);
}

/* ---- reading ---- */

struct told {
    const struct s3_journal *j;
    const char *prefix;
    int64_t now, mono;
    struct s3_change *all;
    size_t n, cap;
};

static void told_clear(struct told *t)
{
    for (size_t i = 0; i < t->n; i++)
        free(t->all[i].name);
    free(t->all);
}

static int told_add(struct told *t, const struct s3_change *c)
{
    if (t->n == t->cap) {
        const size_t cap = t->cap ? 2 * t->cap : 64;
        struct s3_change *all = realloc(t->all, cap * sizeof *all);
        if (!all)
            return -ENOMEM;
        t->all = all;
        t->cap = cap;
    }
    t->all[t->n] = *c;
    if (!(t->all[t->n].name = strdup(c->name)))
        return -ENOMEM;
    t->n++;
    return 0;
}

static int take_line(struct told *t, const char *from, size_t len)
{
    char line[RECORD_MAX], writer[17], name[BLOB_NAME_MAX + 1], kind, more;
    uint64_t sum, length;
    int64_t time_ns, mtime_ns;
    if (len <= SUM_LEN + 1 || len >= sizeof line)
        return 0;
    memcpy(line, from, len);
    line[len] = '\0';
    const char *text = line + SUM_LEN + 1;
    if (sscanf(line, "%16" SCNx64, &sum) != 1 ||
        sum != crc64_ecma_refl(t->j->place, (const uint8_t *)text, len - SUM_LEN - 1) ||
        sscanf(text, "%" SCNd64 " %" SCNd64 " %" SCNu64 " %c %16s %255s%c", &time_ns, &mtime_ns, &length, &kind, writer,
               name, &more) != 6 ||
        (kind != 'p' && kind != 'd'))
        return 0;
    time_ns = ns_bounded(time_ns);
    if (is_stale(time_ns, t->now) || !strcmp(writer, t->j->writer) || !is_name(name) ||
        strncmp(name, t->prefix, strlen(t->prefix)) != 0)
        return 0;
    const struct s3_change c = {.name = name,
                                .length = length,
                                .mtime_ns = ns_bounded(mtime_ns),
                                .since_ns = t->mono - (t->now - time_ns),
                                .deleted = kind == 'd',
                                .told = true};
    return told_add(t, &c);
}

static int take_file(struct told *t, const char *path)
{
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || !is_usable(fd, &st) || st.st_size > READ_MAX)
        return 0;
    CLEANUP_FREE char *data = malloc((size_t)st.st_size + 1);
    if (!data)
        return -ENOMEM;
    size_t len = 0;
    for (ssize_t n = 1; n > 0 && len<(size_t)st.st_size; len += n> 0 ? (size_t)n : 0)
        n = pread(fd, data + len, (size_t)st.st_size - len, (off_t)len);
    int rc = 0;
    for (size_t at = 0, next; rc == 0 && at < len; at = next + 1) {
        const char *end = memchr(data + at, '\n', len - at);
        next = end ? (size_t)(end - data) : len; /* without an end: it was cut, or is being written */
        rc = end ? take_line(t, data + at, next - at) : 0;
    }
    return rc;
}

/* Of the same name the last one first. */
static int by_name_and_time(const void *pa, const void *pb)
{
    const struct s3_change *a = pa, *b = pb;
    const int order = strcmp(a->name, b->name);
    return order ? order : (a->since_ns < b->since_ns) - (a->since_ns > b->since_ns);
}

int s3_journal_merge(struct s3_journal *j, const char *prefix, struct s3_changes *c)
{
    if (!j)
        return 0;
    CLEANUP(told_clear) struct told t = {.j = j, .prefix = prefix, .now = now_ns(), .mono = mono_ns()};
    int rc = take_file(&t, j->old);
    if (rc == 0)
        rc = take_file(&t, j->path);
    if (rc < 0 || t.n == 0)
        return rc;
    qsort(t.all, t.n, sizeof *t.all, by_name_and_time);
    struct s3_change *all = realloc(c->all, (c->n + t.n) * sizeof *all);
    if (!all)
        return -ENOMEM;
    c->all = all;
    /* What this process has done itself it need not be told. */
    const struct s3_changes own = *c;
    const char *last = "";
    for (size_t i = 0; i < t.n; i++)
        if (strcmp(t.all[i].name, last) != 0 && !s3_changes_find(&own, t.all[i].name)) {
            last = t.all[i].name;
            c->all[c->n++] = t.all[i];
            t.all[i].name = NULL;
        }
    s3_changes_sort(c);
    return 0;
}
