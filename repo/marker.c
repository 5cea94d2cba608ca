/* SPDX-License-Identifier: GPL-2.0-or-later */
/* marker.c - session ids, session markers, and the records of this node's sessions */
#include "repo/marker.h"
#include "repo/index-cache.h"
#include "repo/item.h"
#include "repo/repo-impl.h"

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define YEAR_2000_S INT64_C(946684800)
#define MONTH_S (INT64_C(30) * 24 * 3600)
#define CLOCK_LIMIT_NS (5 * NS_PER_MIN)
#define CLOCK_LOOKS 3
#define LOOK_PAUSE_NS NS_PER_S

int session_id_new(char out[SESSION_ID_TEXT], int64_t now_ns, struct err *e)
{
    uint8_t r[8];
    char hex[17];
    int rc = random_bytes(r, sizeof r, e);
    if (rc < 0)
        return rc;
    int64_t s = now_ns / NS_PER_S - YEAR_2000_S;
    snprintf(out, SESSION_ID_TEXT, "s%s%" PRIx64, hex_encode(hex, r, sizeof r), (uint64_t)(s > 0 ? s / MONTH_S : 0));
    return 0;
}

bool session_id_of_blob(const char *blob, char out[SESSION_ID_TEXT])
{
    out[0] = '\0';
    for (const char *p = strchr(blob, '-'); p; p = strchr(p, '-')) {
        p++;
        size_t len = strcspn(p, "-");
        if (*p != 's')
            continue;
        if (len >= SESSION_ID_TEXT)
            return false;
        memcpy(out, p, len);
        out[len] = '\0';
        return true;
    }
    return false;
}

static char *marker_text(const struct repo *r, const char *session_id, int64_t start_ns, int64_t now_ns)
{
    char start[TIME_TEXT], now[TIME_TEXT];
    time_text(start_ns, start);
    time_text(now_ns, now);
    json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:s}", "id", session_id, "startTime", start, "checkpointTime", now,
                          "username", r->username, "hostname", r->hostname);
    char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
    json_decref(j);
    return text;
}

/* A slow store is not an error: its time only has to lie near the duration of the put. */
static bool is_near(int64_t t, int64_t before, int64_t after)
{
    return t >= before - CLOCK_LIMIT_NS && t <= after + CLOCK_LIMIT_NS;
}

static int look_pause(struct repo *r, struct err *e)
{
    const int64_t until = mono_ns() + LOOK_PAUSE_NS;
    int rc;
    while ((rc = blobs_stopped(r->blobs, e)) == 0 && mono_ns() < until) {
        const struct timespec t = ns_timespec(LOOK_PAUSE_NS / 20);
        nanosleep(&t, NULL);
    }
    return rc;
}

static int check_clock(struct repo *r, const char *marker, int64_t before, struct err *e)
{
    struct blob_info info;
    int rc = blobs_stat(r->blobs, marker, &info, e);
    const int64_t after = now_ns();
    /* Some object stores answer with what they have at hand, of an older time. A wrong clock stays wrong. */
    for (unsigned i = 1; rc == 0 && i < CLOCK_LOOKS && blobs_lists_lag(r->blobs); i++) {
        if (is_near(info.mtime_ns, before, after))
            break;
        rc = look_pause(r, e);
        if (rc == 0)
            rc = blobs_stat(r->blobs, marker, &info, e);
    }
    if (rc < 0)
        return err_wrap(e, "cannot stat the session marker just written");
    repo_note_skew(r, info.mtime_ns < before  ? info.mtime_ns - before
                      : info.mtime_ns > after ? info.mtime_ns - after
                                              : 0);
    if (is_near(info.mtime_ns, before, after))
        return 0;
    char ours[TIME_TEXT], theirs[TIME_TEXT];
    time_text(after / NS_PER_S * NS_PER_S, ours);
    time_text(info.mtime_ns / NS_PER_S * NS_PER_S, theirs);
    rc = err_set(e, ERR_CLOCK, 0,
                 "clocks differ by more than 5 minutes: local time %s, time of the repository's storage %s (%s)", ours,
                 theirs, blobs_location(r->blobs));
    err_hint(e, "set the clock that is wrong (see timedatectl), then retry");
    return rc;
}

int marker_put(struct repo *r, const char *session_id, int64_t start_ns, char name[BLOB_NAME_MAX + 1], struct err *e)
{
    int64_t before = now_ns();
    CLEANUP_FREE char *text = marker_text(r, session_id, start_ns, before);
    CLEANUP_FREE uint8_t *sealed = NULL;
    size_t len;
    if (!text)
        return err_set(e, ERR_USAGE, EINVAL, "user \"%s\" and host \"%s\" must be valid UTF-8", r->username,
                       r->hostname);
    int rc = named_seal(r->sealer, "s", session_id, text, strlen(text), name, &sealed, &len, e);
    if (rc < 0)
        return rc;
    rc = blobs_put(r->blobs, name, sealed, len, e);
    if (rc < 0)
        return rc;
    crash_point("marker-put");
    return check_clock(r, name, before, e);
}

struct markers {
    struct session_marker *all;
    size_t n;
    struct err *e;
};

static int marker_add(const struct blob_info *info, void *arg)
{
    struct markers *m = arg;
    if ((m->n & (m->n - 1)) == 0) {
        void *p = realloc(m->all, (m->n ? 2 * m->n : 1) * sizeof *m->all);
        if (!p)
            return err_nomem(m->e);
        m->all = p;
    }
    struct session_marker *a = &m->all[m->n];
    memcpy(a->name, info->name, sizeof a->name);
    a->mtime_ns = info->mtime_ns;
    if (!session_id_of_blob(info->name, a->id))
        return err_set(m->e, ERR_DAMAGE, EBADMSG, "the name of session marker %s contains no session id", info->name);
    m->n++;
    return 0;
}

#define MARKER_MAX ((size_t)1 << 20)

/* Whether a process of this machine is writing the session. Unlike the times in its marker, that does not depend on a
 * clock, which may have been set since. */
static bool record_is_locked(const struct repo *r, const char *session_id)
{
    char path[4400];
    if (session_id[1 + strspn(session_id + 1, "0123456789abcdef")])
        return false; /* none of ours; a name of somebody's choice is not opened */
    snprintf(path, sizeof path, "%s/sessions/%s", r->cache_dir, session_id);
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

/* *ret: NULL if what it has is no document. */
static int marker_open(struct repo *r, const char *name, json_t **ret, struct err *e)
{
    CLEANUP_FREE uint8_t *sealed = NULL, *text = NULL;
    size_t sealed_len, len;
    int rc = blobs_get(r->blobs, name, MARKER_MAX, &sealed, &sealed_len, e);
    if (rc < 0)
        return rc;
    rc = named_open(r->sealer, name, sealed, sealed_len, &text, &len, e);
    if (rc < 0)
        return err_wrap(e, "session marker %s", name);
    *ret = json_loadb((const char *)text, len, 0, NULL);
    return 0;
}

/* Of a marker, or of a record of a session. */
static bool names_us(const struct repo *r, const json_t *j)
{
    const char *user = json_string_value(json_object_get(j, "username"));
    const char *host = json_string_value(json_object_get(j, "hostname"));
    return user && host && !strcmp(user, r->username) && !strcmp(host, r->hostname);
}

bool marker_is_ours(struct repo *r, const char *name)
{
    json_t *j = NULL;
    struct err why = ERR_INIT;
    const int rc = marker_open(r, name, &j, &why);
    if (rc < 0 && rc != -ENOENT)
        log_warning("the marker of an interrupted session stays: %s", why.msg);
    const bool ours = names_us(r, j);
    json_decref(j);
    return ours;
}

static int marker_read(struct repo *r, struct session_marker *a, struct err *e)
{
    json_t *j = NULL;
    int rc = marker_open(r, a->name, &j, e);
    if (rc < 0)
        return rc;
    const char *seen = json_string_value(json_object_get(j, "checkpointTime"));
    if (!seen || time_parse(&a->seen_ns, seen) < 0)
        rc = err_set(e, ERR_DAMAGE, EBADMSG, "session marker %s is malformed", a->name);
    else
        a->seen_ns = ns_bounded(a->seen_ns);
    const char *user = json_string_value(json_object_get(j, "username"));
    a->repair = user && !strcmp(user, REPAIR_USER);
    json_decref(j);
    const int64_t now = now_ns();
    if (rc == 0 && a->seen_ns < now && record_is_locked(r, a->id))
        a->seen_ns = now;
    return rc;
}

int markers_load(struct repo *r, struct session_marker **ret, size_t *n, struct err *e)
{
    struct markers m = {.e = e};
    size_t kept = 0;
    int rc = blobs_list(r->blobs, "s", marker_add, &m, e);
    for (size_t i = 0; rc == 0 && i < m.n; i++) {
        struct err own = ERR_INIT;
        rc = marker_read(r, &m.all[i], &own);
        if (rc == 0)
            m.all[kept++] = m.all[i];
        else if (rc != -ENOENT)
            *e = own;
        if (rc == -ENOENT)
            rc = 0;
    }
    if (rc < 0) {
        free(m.all);
        return rc;
    }
    *ret = m.all;
    *n = kept;
    return 0;
}

struct session_record {
    int fd; /* holds the lock */
    char *path;
    char id[SESSION_ID_TEXT];
};

const char *session_record_id(const struct session_record *s)
{
    return s->id;
}

void session_record_end(struct session_record *s, bool remove)
{
    if (!s)
        return;
    if (remove)
        unlink(s->path); /* while locked, so that no other process takes it for a stale one */
    close(s->fd);
    free(s->path);
    free(s);
}

static int records_dir(const struct repo *r, char **ret, struct err *e)
{
    if (asprintf(ret, "%s/sessions", r->cache_dir) < 0) {
        *ret = NULL;
        return err_nomem(e);
    }
    return make_dirs(*ret, e);
}

static int record_failed(const char *path, struct err *e)
{
    int rc = err_set(e, ERR_GENERIC, errno, "cannot record the session in %s", path);
    cache_hint(e);
    return rc;
}

int session_record_new(struct session_record **ret, struct repo *r, const char *session_id, struct err *e)
{
    CLEANUP_FREE char *dir = NULL, *path = NULL, *temp = NULL;
    CLEANUP_CLOSE int fd = -1;
    int rc = records_dir(r, &dir, e);
    if (rc < 0)
        return rc;
    if (asprintf(&path, "%s/%s", dir, session_id) < 0)
        path = NULL;
    if (asprintf(&temp, "%s/.%s", dir, session_id) < 0)
        temp = NULL;
    json_t *j = json_pack("{s:s, s:s}", "username", r->username, "hostname", r->hostname);
    CLEANUP_FREE char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
    json_decref(j);
    struct session_record *s = calloc(1, sizeof *s);
    if (!path || !temp || !text || !s) {
        free(s);
        return err_nomem(e);
    }
    /* It gets its name when it is complete and locked, so that it never looks like a stale one. */
    fd = open(temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) ||
        rename(temp, path) < 0) {
        rc = record_failed(path, e);
        if (fd >= 0)
            unlink(temp);
        free(s);
        return rc;
    }
    s->fd = take_fd(&fd);
    s->path = take_ptr(&path);
    snprintf(s->id, sizeof s->id, "%s", session_id);
    *ret = s;
    return 0;
}

/* Reads the owner of a record. Damaged ones (after a power failure) have no owner. */
static bool record_is_ours(const struct repo *r, int fd)
{
    char text[2048];
    ssize_t n = pread(fd, text, sizeof text, 0);
    json_t *j = n > 0 ? json_loadb(text, (size_t)n, 0, NULL) : NULL;
    bool ours = names_us(r, j);
    json_decref(j);
    return ours;
}

/* Opens and locks a record if its process no longer exists. The file must still have its name: another process may
 * have removed it since the directory was read. */
static int lock_dead(const char *path)
{
    CLEANUP_CLOSE int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat a, b;
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || fstat(fd, &a) < 0 || !S_ISREG(a.st_mode) || stat(path, &b) < 0 ||
        a.st_ino != b.st_ino || a.st_dev != b.st_dev)
        return -1;
    return take_fd(&fd);
}

/* A record whose process crashed before naming it. Naming takes an instant only. */
static void remove_unnamed(int dir, const char *name)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && now_ns() / NS_PER_S - st.st_mtime > 3600)
        unlinkat(dir, name, 0);
}

int session_records_dead(struct repo *r, session_record_fn *fn, void *arg, struct err *e)
{
    CLEANUP_FREE char *dir = NULL;
    int rc = records_dir(r, &dir, e);
    if (rc < 0)
        return rc;
    CLEANUP_CLOSEDIR DIR *d = opendir(dir);
    if (!d)
        return err_set(e, ERR_GENERIC, errno, "cannot read directory %s", dir);
    for (const struct dirent *n; (n = readdir(d));) {
        size_t len = strlen(n->d_name);
        if (n->d_name[0] == '.' && n->d_name[1] == 's')
            remove_unnamed(dirfd(d), n->d_name);
        if (n->d_name[0] != 's' || len >= SESSION_ID_TEXT)
            continue;
        CLEANUP_FREE char *path = NULL;
        if (asprintf(&path, "%s/%s", dir, n->d_name) < 0) {
            path = NULL;
            return err_nomem(e);
        }
        CLEANUP_CLOSE int fd = lock_dead(path);
        if (fd < 0 || !record_is_ours(r, fd))
            continue;
        struct session_record *s = calloc(1, sizeof *s);
        if (!s)
            return err_nomem(e);
        s->fd = take_fd(&fd);
        s->path = take_ptr(&path);
        memcpy(s->id, n->d_name, len + 1);
        rc = fn(s, arg);
        if (rc != 0)
            return rc;
    }
    return 0;
}
