/* SPDX-License-Identifier: GPL-2.0-or-later */
/* files.c - result files, log files */
#include "daemon/movers/builtin-impl.h"

#include "base/cleanup.h"
#include "base/time.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_MAX (4u << 20)      /* bytes of one operation's log */
#define LOGS_MAX 500            /* files kept */
#define RESULT_ROOM (256 << 10) /* enough for all but lists of damage and of snapshots */

int make_dir(const char *path, mode_t mode, struct err *e)
{
    if (mkdir(path, mode) < 0 && errno != EEXIST)
        return err_set(e, ERR_GENERIC, errno, "cannot create directory %s", path);
    return 0;
}

/* ---- result files that are used again ---- */

static void spare_path(char *out, size_t cap, const struct builtin_movers *m, unsigned i)
{
    snprintf(out, cap, "%s/spare-%u", m->results_dir, i);
}

void results_spare_none(struct builtin_movers *m, bool of_others)
{
    char path[4300];
    for (unsigned i = 0; i < RESULT_SPARES; i++) {
        if (!of_others && !m->spares.of[i][0])
            continue;
        spare_path(path, sizeof path, m, i);
        if (unlink(path) < 0 && errno != ENOENT)
            log_warning("cannot remove the unused result file %s: %s", path, strerror(errno));
        m->spares.of[i][0] = '\0';
    }
}

#define BUSY_LEVEL 4 /* two movers are started each second: between two of them there may be none for a moment */

void results_spare_tick(struct builtin_movers *m)
{
    struct result_spares *s = &m->spares;
    s->level = s->level / 2 + m->starts - s->starts;
    s->busy = s->level >= BUSY_LEVEL;
    s->starts = m->starts;
    if (!m->list && !s->busy)
        results_spare_none(m, false);
}

void result_ended(struct builtin_movers *m, const char *operation)
{
    struct result_spares *s = &m->spares;
    snprintf(s->ended[s->next++ % RESULT_SPARES], sizeof s->ended[0], "%s", operation);
}

/* True: it will be used again. */
static bool result_spare(struct builtin_movers *m, const char *operation, const char *path)
{
    struct result_spares *s = &m->spares;
    char spare[4300];
    unsigned i = 0, free_one = 0;
    while (i < RESULT_SPARES && strcmp(s->ended[i], operation) != 0)
        i++;
    while (free_one < RESULT_SPARES && s->of[free_one][0])
        free_one++;
    if (i == RESULT_SPARES || free_one == RESULT_SPARES)
        return false;
    s->ended[i][0] = '\0';
    spare_path(spare, sizeof spare, m, free_one);
    if (rename(path, spare) < 0)
        return false;
    snprintf(s->of[free_one], sizeof s->of[0], "%s", operation);
    return true;
}

/*
 * Replaces `path`; -1: there is none. It is never one of the same operation: after a crash of the machine it may have
 * what it had before, which then belongs to another operation, and is no result.
 */
static int result_reuse(struct builtin_movers *m, const char *operation, const char *path)
{
    struct result_spares *s = &m->spares;
    char spare[4300];
    unsigned i = 0;
    while (i < RESULT_SPARES && (!s->of[i][0] || !strcmp(s->of[i], operation)))
        i++;
    if (i == RESULT_SPARES)
        return -1;
    s->of[i][0] = '\0';
    spare_path(spare, sizeof spare, m, i);
    int fd = open(spare, O_RDWR | O_TRUNC | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && rename(spare, path) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    unlink(spare);
    return -1;
}

int result_create(struct builtin_movers *m, const char *operation, struct err *e)
{
    char path[4300];
    mover_result_path(path, sizeof path, m->state_dir, operation);
    int fd = result_reuse(m, operation, path);
    /* A new file each time: a process of an earlier attempt that has not ended yet writes to the old one. */
    if (fd < 0 && unlink(path) < 0 && errno != ENOENT)
        return err_set(e, ERR_GENERIC, errno, "cannot remove the old result file %s", path);
    if (fd < 0)
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot create the result file %s", path);
    /* Space for the result is allocated now: a disk that becomes full meanwhile must not cost hours of work. */
    if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, RESULT_ROOM) < 0 && (errno == ENOSPC || errno == EDQUOT)) {
        int sys = errno;
        unlink(path);
        close(fd);
        return err_set(e, ERR_NO_SPACE, sys, "no space for the result file %s", path);
    }
    return fd;
}

int results_sync(const struct builtin_movers *m, struct err *e)
{
    CLEANUP_CLOSE int fd = open(m->results_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot sync the directory of result files %s", m->results_dir);
    return 0;
}

static bool is_id(const char *s)
{
    return s && strlen(s) == 32 && strspn(s, "0123456789abcdef") == 32;
}

const char *result_fault(const json_t *j, const char *operation, const char *kind, pid_t pid)
{
    const json_t *code = json_object_get(j, "code"), *error = json_object_get(j, "error");
    const char *op = json_string_value(json_object_get(j, "operation"));
    const char *what = json_string_value(json_object_get(j, "kind"));
    if (!json_is_object(j))
        return "not a JSON object";
    if (!op || strcmp(op, operation) != 0)
        return "belongs to another operation";
    if (!json_is_integer(code) || json_integer_value(code) < 0 || json_integer_value(code) >= RESULT_CODES)
        return "code not in 0 to 4";
    if (pid && json_integer_value(json_object_get(j, "pid")) != pid)
        return "written by another process";
    if (json_integer_value(code) == RESULT_OK) {
        if (error && !json_is_null(error))
            return "success with an error";
        if (kind && *kind && (!what || strcmp(what, kind) != 0))
            return "belongs to another kind of operation";
        if (what && !strcmp(what, "backup") && !is_id(json_string_value(json_object_get(j, "snapshotID"))))
            return "success without a snapshot";
    } else if (!json_is_object(error)) {
        return "failure without an error";
    }
    return NULL;
}

struct parse *result_begin(const struct builtin_movers *m, const char *operation, parse_done_fn *done, void *arg)
{
    static const struct parse_limits limits = {.bytes = WIRE_RESULT_MAX,
                                               .bounds = {WIRE_RESULT_VALUES_MAX, WIRE_RESULT_DEPTH_MAX},
                                               .flags = JSON_REJECT_DUPLICATES};
    char path[4300];
    mover_result_path(path, sizeof path, m->state_dir, operation);
    return parse_file(m->parser, path, &limits, done, arg);
}

int result_forget(struct builtin_movers *m, const char *operation, struct err *e)
{
    char path[4400];
    mover_result_path(path, sizeof path, m->state_dir, operation);
    if ((m->list || m->spares.busy) && result_spare(m, operation, path))
        return 0;
    if (unlink(path) < 0 && errno != ENOENT)
        return err_set(e, ERR_GENERIC, errno, "cannot remove the result file %s", path);
    if (!m->list && !m->spares.busy)
        results_spare_none(m, false);
    return 0;
}

/* ---- result files without an operation ---- */

#define LEFT_MAX 1000

struct left_results {
    char dir[4200];
    unsigned n;
    char hash[LEFT_MAX][OPERATION_HASH_TEXT]; /* "": it is to be kept */
};

static bool is_result(const char *name)
{
    const size_t len = strspn(name, "0123456789abcdef");
    return len == OPERATION_HASH_TEXT - 1 && !strcmp(name + len, ".json");
}

struct left_results *results_left(const struct builtin_movers *m)
{
    CLEANUP_CLOSEDIR DIR *d = opendir(m->results_dir);
    struct left_results *l = d ? calloc(1, sizeof *l) : NULL;
    if (!l)
        return NULL;
    snprintf(l->dir, sizeof l->dir, "%s", m->results_dir);
    for (const struct dirent *entry; l->n < LEFT_MAX && (entry = readdir(d));)
        if (is_result(entry->d_name))
            snprintf(l->hash[l->n++], sizeof l->hash[0], "%.32s", entry->d_name);
    for (const struct mover *v = m->list; v; v = v->next)
        left_results_keep(l, v->operation);
    for (unsigned i = 0; i < l->n; i++)
        if (l->hash[i][0])
            return l;
    left_results_free(l);
    return NULL;
}

void left_results_keep(struct left_results *l, const char *operation)
{
    char hash[OPERATION_HASH_TEXT];
    operation_hash(hash, operation);
    for (unsigned i = 0; i < l->n; i++)
        if (!strcmp(l->hash[i], hash))
            l->hash[i][0] = '\0';
}

unsigned left_results_remove(struct left_results *l)
{
    unsigned n = 0;
    for (unsigned i = 0; i < l->n; i++) {
        char path[4300];
        if (!l->hash[i][0])
            continue;
        snprintf(path, sizeof path, "%s/%s.json", l->dir, l->hash[i]);
        if (unlink(path) == 0)
            n++;
        else if (errno != ENOENT)
            log_warning("cannot remove the result file %s: %s", path, strerror(errno));
    }
    left_results_free(l);
    return n;
}

void left_results_free(struct left_results *l)
{
    free(l);
}

/* ---- logs ---- */

/* The process limits its log itself; this limits one that does not. */
void log_bound(const struct mover *v)
{
    static const char note[] = "# earlier lines were dropped: log too long\n";
    char path[4300];
    struct stat st;
    if (v->owner->units || mover_log_path(path, sizeof path, v->owner->state_dir, v->operation) < 0 ||
        lstat(path, &st) < 0 || st.st_size <= (off_t)LOG_MAX)
        return;
    CLEANUP_CLOSE int fd = open(path, O_WRONLY | O_APPEND | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || write(fd, note, sizeof note - 1) < 0)
        log_warning("cannot truncate the log of %s: %s", v->operation, strerror(errno));
}

struct log_file {
    int64_t mtime;
    char name[64];
};

static int compare_mtime(const void *a, const void *b)
{
    const struct log_file *x = a, *y = b;
    return x->mtime < y->mtime ? 1 : x->mtime > y->mtime ? -1 : strcmp(x->name, y->name);
}

void logs_prune(struct builtin_movers *m)
{
    CLEANUP_CLOSEDIR DIR *d = opendir(m->logs_dir);
    CLEANUP_FREE struct log_file *list = NULL;
    size_t n = 0, cap = 0;
    const struct dirent *entry;
    while (d && (entry = readdir(d))) {
        struct stat st;
        size_t len = strlen(entry->d_name);
        if (len >= sizeof list->name || len < 4 || strcmp(entry->d_name + len - 4, ".log") != 0 ||
            fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (n == cap) {
            cap = cap ? 2 * cap : 64;
            struct log_file *more = realloc(list, cap * sizeof *list);
            if (!more)
                return;
            list = more;
        }
        list[n].mtime = timespec_ns(st.st_mtim);
        memcpy(list[n++].name, entry->d_name, len + 1);
    }
    if (n <= LOGS_MAX)
        return;
    qsort(list, n, sizeof *list, compare_mtime);
    for (size_t i = LOGS_MAX; i < n; i++)
        unlinkat(dirfd(d), list[i].name, 0);
}
