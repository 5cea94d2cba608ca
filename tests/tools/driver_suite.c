/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * driver_suite - one suite for every driver of native snapshots (output is TAP)
 *
 * driver_suite --driver D --match PATTERN --volume NAME [--name CLASS] [--target T] [--node N] [--accept]
 *              [--hook PROGRAM] [--plugin PROGRAM] [--plugin-user USER] [--dir DIR] [--near DIR] [--far DIR] [--tiny
 *              DIR] [--option KEY=VALUE]... [--write PROGRAM] [--absent NAME]
 *
 * NAME is an existing volume that may be written to, of at least 4 MiB. DIR: files made there are volumes of the
 * class (files come and go: more is tested). --near: a directory that is the target of a class of the same driver in
 * the same pool; --far: one of driver reflink on another file system; --tiny: the same with little room. --write: for
 * volumes that are no files: PROGRAM NAME POSITION writes its standard input into one. --absent: a name that no volume
 * has. What a driver says that it cannot do is skipped by name; what it says it can do must work.
 */
#include "base/cleanup.h"
#include "io/native/driver.h"
#include "io/native/rbd.h"
#include "io/source.h"
#include "io/target-nbd.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <libgen.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define TIB ((uint64_t)1 << 40)

static const struct fill unwatched = {.rate = 0};
static struct driver_class own = {.name = "gold", .driver = "reflink", .node = "node1", .target = ""};
static struct driver_class near_class, far_class, tiny_class;
static const char *match[8], *no_match[1];
static const struct driver *d;
static const char *name, *dir;
static unsigned can;
static bool logical; /* volumes of LVM or ZFS: a snapshot's node is there only while it is exposed */
static bool zfs;
static const char *writer; /* NULL: volumes are files or devices */
static const char *absent;
static bool snapshots; /* it takes native snapshots, whether they can be retained or not */
static bool ends;      /* a native snapshot is readable until its backup has ended, and another one waits for that */
static bool plugin;    /* names, modes and classes of errors are its own business */
static int number, failures;
static struct err e;

/* ---- TAP ---- */

static bool ok(bool good, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool ok(bool good, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (char *p = text; *p; p++)
        if (*p == '\n' || *p == '#')
            *p = '?';
    printf("%sok %d - %s: %s\n", good ? "" : "not ", ++number, own.driver, text);
    if (!good && e.cls)
        printf("# %s: %s\n", err_class_name(e.cls), e.msg);
    failures += !good;
    e = (struct err)ERR_INIT;
    fflush(stdout);
    return good;
}

static void not_of(const char *what, const char *why)
{
    printf("# not of driver %s: %s: %s\n", own.driver, what, why);
}

/* The call failed, in this class, and said something. */
static bool refused(int rc, enum err_class cls, const char *what)
{
    bool good = rc < 0 && (e.cls == cls || (plugin && cls != ERR_NOT_FOUND)) && strlen(e.msg) > 10;
    if (!good)
        printf("# returned %d, class %s: %s\n", rc, err_class_name(e.cls), e.msg);
    return ok(good, "%s", what);
}

/* ---- data ---- */

static void fill(uint8_t *buf, size_t len, uint64_t seed)
{
    for (size_t i = 0; i < len; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        buf[i] = (uint8_t)(seed >> 56);
    }
}

static bool write_by_program(const char *path, uint64_t pos, const uint8_t *buf, size_t len)
{
    char cmd[VOLUME_NAME_MAX];
    snprintf(cmd, sizeof cmd, "'%s' '%.1000s' %" PRIu64, writer, path, pos);
    FILE *f = popen(cmd, "we");
    const bool good = f && fwrite(buf, 1, len, f) == len;
    return f && pclose(f) == 0 && good;
}

static bool write_pattern(const char *path, uint64_t pos, size_t len, uint64_t seed)
{
    CLEANUP_FREE uint8_t *buf = malloc(len);
    if (writer && buf) {
        fill(buf, len, seed);
        return write_by_program(path, pos, buf, len);
    }
    CLEANUP_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (!buf || fd < 0)
        return false;
    fill(buf, len, seed);
    return pwrite(fd, buf, len, (off_t)pos) == (ssize_t)len && fsync(fd) == 0;
}

/* A socket is a server of NBD, to be asked once. */
static bool served(int fd, const char *path, void *buf, uint64_t pos, size_t len)
{
    struct source *s = NULL;
    CLEANUP_FREE uint8_t *into = aligned_alloc(4096, len + SOURCE_READ_EXTRA);
    const uint8_t *p = NULL;
    bool good = into && source_from_fd(&s, fcntl(fd, F_DUPFD_CLOEXEC, 3), path, "driver-suite", &e) == 0 &&
                source_read(s, pos, len, into, &p, &e) == 0;
    if (good)
        memcpy(buf, p, len);
    source_free(s);
    return good;
}

static bool has_pattern(int fd, uint64_t pos, size_t len, uint64_t seed)
{
    CLEANUP_FREE uint8_t *want = malloc(len), *got = malloc(len);
    if (!want || !got || pread(fd, got, len, (off_t)pos) != (ssize_t)len)
        return false;
    fill(want, len, seed);
    return memcmp(want, got, len) == 0;
}

static bool make_file(const char *path, uint64_t size, uint64_t seed)
{
    CLEANUP_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
    if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
        return false;
    return size == 0 || size > 64 * MIB || write_pattern(path, 0, (size_t)size, seed);
}

static char *path_in(const char *where, const char *file)
{
    static char turn[6][VOLUME_NAME_MAX];
    static unsigned n;
    char *p = turn[n++ % 6];
    snprintf(p, VOLUME_NAME_MAX, "%s/%s", where, file);
    return p;
}

static bool exists(const char *path)
{
    struct stat st;
    return *path && lstat(path, &st) == 0;
}

/* The intermediate's object is there; an overlay's is the hook's business (its device node may stay). */
static bool made(const struct exposure *x)
{
    return x->mechanism == EXPOSE_OVERLAY || exists(x->handle);
}

static bool unmade(const struct exposure *x)
{
    return x->mechanism == EXPOSE_OVERLAY || !exists(x->handle);
}

static dev_t device_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? st.st_dev : 0;
}

/* ---- calls ---- */

static uint64_t seq;

static struct native_tag new_tag(const struct volume *v)
{
    struct native_tag t = {.created_ns = 1700000000000000000 + (int64_t)seq, .seq = seq + 1};
    seq++;
    alias_new(t.alias);
    snprintf(t.volume_id, sizeof t.volume_id, "%s", v->id);
    snprintf(t.volume_name, sizeof t.volume_name, "%s", v->name);
    snprintf(t.backup, sizeof t.backup, "manual-20261121T020000-3f9a");
    snprintf(t.operation, sizeof t.operation, "up-manual-20261121T020000-3f9a.%s", v->id);
    snprintf(t.repository, sizeof t.repository, "main");
    return t;
}

static bool take(const char *volume, struct volume *v, struct native *n)
{
    if (!ok(d->resolve(&own, volume, v, &e) == 0, "resolve %s", volume))
        return false;
    struct native_tag t = new_tag(v);
    return ok(d->snapshot(&own, v, &t, n, &e) == 0, "snapshot of %s", volume);
}

struct search {
    const char *alias;
    unsigned all, hits;
    struct native found;
    struct exposure x;
    struct native_tag tag;
};

static int on_native(const struct native *n, void *arg)
{
    struct search *s = arg;
    s->all++;
    if (strcmp(n->tag.alias, s->alias) == 0) {
        s->hits++;
        s->found = *n;
    }
    return 0;
}

static int on_exposure(const struct exposure *x, const struct native_tag *t, void *arg)
{
    struct search *s = arg;
    s->all++;
    if (strcmp(x->alias, s->alias) == 0) {
        s->hits++;
        s->x = *x;
        s->tag = *t;
    }
    return 0;
}

static struct search listed(const char *alias)
{
    struct search s = {.alias = alias};
    if (d->list(&own, on_native, &s, &e) < 0)
        s.hits = 99;
    return s;
}

static struct search exposed(const struct driver_class *c, const char *alias)
{
    struct search s = {.alias = alias};
    if (driver_by_name(c->driver)->exposures(c, on_exposure, &s, &e) < 0)
        s.hits = 99;
    return s;
}

static bool same_tag(const struct native_tag *a, const struct native_tag *b)
{
    return strcmp(a->alias, b->alias) == 0 && strcmp(a->volume_id, b->volume_id) == 0 &&
           strcmp(a->volume_name, b->volume_name) == 0 && strcmp(a->backup, b->backup) == 0 &&
           strcmp(a->operation, b->operation) == 0 && strcmp(a->repository, b->repository) == 0 &&
           a->created_ns == b->created_ns && a->seq == b->seq;
}

/* The backup of it has ended. */
static void backup_ends(const struct native *n)
{
    struct exposure x;
    if (ends)
        ok(d->expose(&own, n, &own, EXPOSE_NATIVE, true, "", &x, &e) == 0 && d->unexpose(&own, &x, &e) == 0,
           "its backup ends");
}

static bool drop(const struct native *n)
{
    bool gone = true;
    bool removed = ok(d->remove(&own, n, &gone, &e) == 0 && !gone, "remove %s", n->tag.alias);
    return ok(!snapshots || !exists(n->handle), "it is gone from the storage") && removed;
}

/* ---- tests ---- */

struct volume_search {
    unsigned hits, unsorted;
    char last[VOLUME_NAME_MAX];
    struct volume v;
    const char *want;
};

static int on_volume(const struct volume *v, void *arg)
{
    struct volume_search *s = arg;
    if (!v->id[0] && !v->doubt) /* a place */
        return 0;
    s->unsorted += strcmp(s->last, v->name) >= 0;
    memcpy(s->last, v->name, sizeof s->last);
    if (strcmp(v->name, s->want) == 0) {
        s->hits++;
        s->v = *v;
    }
    return 0;
}

static void test_volumes(void)
{
    struct volume_search s = {.want = name};
    struct volume v, again, back;
    ok(d->volumes(&own, on_volume, &s, &e) == 0, "volumes");
    ok(s.hits == 1 && s.unsorted == 0, "the volume is listed once, in order of names");
    ok(d->resolve(&own, name, &v, &e) == 0 && d->resolve(&own, name, &again, &e) == 0, "resolve");
    ok(strcmp(v.id, again.id) == 0 && strcmp(v.id, s.v.id) == 0, "its id stays (%.200s)", v.id);
    ok(v.id[0] && v.id[strspn(v.id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-")] == '\0',
       "the id has allowed characters only");
    ok(v.size >= 4 * MIB && v.sector >= 512, "size and sector");
    json_t *j = volume_to_json(&v);
    ok(j && volume_from_json(&back, j, &e) == 0 && memcmp(&back, &v, sizeof v) == 0, "as a document and back");
    json_decref(j);
    refused(d->resolve(&own, absent ? absent : path_in(dir ? dir : "/dev", "no-such-volume.img"), &v, &e),
            ERR_NOT_FOUND, "a volume that is not there");
    refused(d->resolve(&own, "relative.img", &v, &e), ERR_USAGE, "a name that is no path");
    refused(d->resolve(&own, dir ? dir : "/dev", &v, &e), ERR_USAGE, "a directory is no volume");
}

/* A copy is opened as a thing of the class in which it lies. */
static int open_it(const struct driver_class *into, const struct exposure *x, int *fd)
{
    return x->mechanism == EXPOSE_COPY ? driver_by_name(into->driver)->open(into, x, fd, &e) : d->open(&own, x, fd, &e);
}

static void check_read_only(const struct driver_class *c, const struct exposure *x, uint64_t seed)
{
    CLEANUP_CLOSE int fd = -1;
    struct stat st;
    if (!ok(open_it(c, x, &fd) == 0, "open the %s", expose_mechanism_name(x->mechanism)))
        return;
    if (fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode)) {
        CLEANUP_FREE uint8_t *want = malloc(4 * MIB), *got = malloc(4 * MIB);
        if (want)
            fill(want, 4 * MIB, seed);
        ok(want && got && served(fd, x->path, got, 0, 4 * MIB) && memcmp(want, got, 4 * MIB) == 0,
           "what is served is what the volume held");
        return;
    }
    ok(has_pattern(fd, 0, 4 * MIB, seed), "it holds what the volume held");
    ok(pwrite(fd, "x", 1, 0) < 0 && errno == EBADF, "a write through the descriptor fails (PVC-07)");
    ok((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY && fstat(fd, &st) == 0, "the descriptor is read-only");
    if (S_ISREG(st.st_mode) && !plugin)
        ok((st.st_mode & 0222) == 0 && (uint64_t)st.st_size == x->size, "so is the file, of the exact size");
}

static void test_native(void)
{
    struct volume v, grown;
    struct native n, again, back;
    struct exposure x;
    bool gone;
    ok(write_pattern(name, 0, 4 * MIB, 1), "write to the volume");
    if (!take(name, &v, &n))
        return;
    ok(n.size == v.size && strcmp(n.tag.volume_id, v.id) == 0, "its size and volume (RS-13)");
    ok(n.crash_consistent == snapshots, "it says honestly whether it is one point in time (PVC-24)");
    json_t *j = native_to_json(&n);
    ok(j && native_from_json(&back, j, &e) == 0 && memcmp(&back, &n, sizeof n) == 0, "as a document and back");
    json_decref(j);
    if (!snapshots) {
        ok(strcmp(n.handle, v.name) == 0 && listed(n.tag.alias).all == 0, "nothing was made");
    } else {
        struct search s = listed(n.tag.alias);
        ok(s.hits == 1 && same_tag(&s.found.tag, &n.tag) && s.found.size == n.size,
           "the list shows it with all of its tag (RS-11, RS-27)");
        ok(write_pattern(name, 0, 4 * MIB, 2), "the volume changes");
        ok(d->snapshot(&own, &v, &n.tag, &again, &e) == 0 && strcmp(again.handle, n.handle) == 0,
           "asked again for the same alias it is the same snapshot (RS-20)");
        ok(listed(n.tag.alias).hits == 1, "and only one");
    }
    ok(d->find(&own, &v, n.tag.alias, n.handle, &again, &e) == 0 && again.size == n.size, "found with the right hint");
    ok(d->find(&own, &v, n.tag.alias, "", &again, &e) == 0 && strcmp(again.handle, n.handle) == 0, "and without");
    ok(d->find(&own, &v, n.tag.alias, "/nowhere/at/all", &again, &e) == 0, "and with a wrong one");
    if (can & DRIVER_NATIVE_RO) {
        ok(d->expose(&own, &n, &own, EXPOSE_NATIVE, true, "", &x, &e) == 0, "expose it as it is");
        ok(x.read_only && (ends || !x.handle[0]) && !x.alias[0] && x.size == n.size && strcmp(x.klass, own.name) == 0,
           "nothing was made for that");
        check_read_only(&own, &x, 1);
        ok(d->unexpose(&own, &x, &e) == 0 && d->find(&own, &v, n.tag.alias, n.handle, &again, &e) == 0,
           "unexpose leaves it alone");
        if (ends)
            refused(d->expose(&own, &n, &own, EXPOSE_NATIVE, true, "", &x, &e), ERR_NOT_FOUND,
                    "but its point in time has ended");
        int rc = d->expose(&own, &n, &own, EXPOSE_NATIVE, false, "", &x, &e);
        refused(rc, plugin && e.cls ? e.cls : ERR_USAGE, "it is never writable");
    }
    grown = v;
    snprintf(grown.id, sizeof grown.id, "reflink.another.volume");
    struct native_tag t = new_tag(&grown);
    if (plugin)
        not_of("another volume under that name is refused", "the daemon compares ids before it asks a plugin");
    else
        refused(d->snapshot(&own, &grown, &t, &again, &e), ERR_SOURCE, "another volume under that name is refused");
    drop(&n);
    if (snapshots) {
        ok(d->remove(&own, &n, &gone, &e) == 0 && gone, "removing it again: gone already (RS-21)");
        refused(d->find(&own, &v, n.tag.alias, n.handle, &again, &e), ERR_NOT_FOUND,
                "it is not found any more (RS-26)");
    }
}

/* What an administrator may do with the file of a snapshot. */
static void test_renamed(void)
{
    struct volume v;
    struct native n, now;
    char other[VOLUME_NAME_MAX], base[VOLUME_NAME_MAX];
    struct stat st;
    if (!snapshots || !take(name, &v, &n))
        return;
    if (lstat(n.handle, &st) < 0 || !S_ISREG(st.st_mode) || plugin) {
        not_of("renamed by an administrator", plugin ? "names are the plugin's" : "the snapshot is no file");
        drop(&n);
        return;
    }
    snprintf(base, sizeof base, "%s", n.handle);
    snprintf(other, sizeof other, "%s", path_in(dirname(base), "before the\nupgrade \xc3\xa4.img"));
    ok(rename(n.handle, other) == 0 && d->find(&own, &v, n.tag.alias, n.handle, &now, &e) == 0 &&
           strcmp(now.handle, other) == 0,
       "found under the name that an administrator gave it (RS-12)");
    ok(listed(n.tag.alias).hits == 1, "and listed");
    if (dir) {
        char beside[VOLUME_NAME_MAX];
        struct volume_search s = {.want = beside};
        snprintf(beside, sizeof beside, "%s", path_in(dir, "moved.img"));
        ok(rename(other, beside) == 0 && d->find(&own, &v, n.tag.alias, n.handle, &now, &e) == 0 &&
               strcmp(now.handle, beside) == 0,
           "found beside the volume");
        ok(d->volumes(&own, on_volume, &s, &e) == 0 && s.hits == 0, "and not taken for a volume there");
        refused(d->resolve(&own, beside, &v, &e), ERR_USAGE, "nor when it is named");
    }
    ok(drop(&n) && !exists(now.handle), "removed where it is");
}

static void test_foreign(void)
{
    struct volume v;
    struct native n, other, now;
    struct driver_class theirs = own;
    char file[VOLUME_NAME_MAX], copy[VOLUME_NAME_MAX];
    bool gone = true;
    if (!snapshots || !take(name, &v, &n))
        return;
    backup_ends(&n);
    theirs.node = "node2";
    struct native_tag t = new_tag(&v);
    ok(d->snapshot(&theirs, &v, &t, &other, &e) == 0, "a snapshot of another node on the same storage");
    ok(listed(other.tag.alias).hits == 0, "is not in our list");
    refused(d->find(&own, &v, other.tag.alias, other.handle, &now, &e), ERR_NOT_FOUND, "is not found by us");
    int rc = d->remove(&own, &other, &gone, &e);
    if (plugin && rc == 0)
        ok(gone, "is none of ours to remove");
    else
        refused(rc, ERR_PERMISSION, "is not removed by us");
    ok((logical || writer || exists(other.handle)) && d->find(&theirs, &v, other.tag.alias, "", &now, &e) == 0,
       "and stays");
    ok(d->remove(&theirs, &other, &gone, &e) == 0 && !gone, "its node removes it");
    if (!dir) {
        drop(&n);
        return;
    }
    /* A file in its place, and a copy of it with all its attributes. */
    snprintf(copy, sizeof copy, "%s", path_in(dir, "admins-copy.img"));
    char cmd[3 * VOLUME_NAME_MAX];
    snprintf(cmd, sizeof cmd, "cp -a --reflink=auto '%s' '%s'", n.handle, copy);
    ok(system(cmd) == 0 && exists(copy), "a copy that an administrator makes, attributes and all");
    ok(listed(n.tag.alias).hits == 1, "is not taken for ours");
    ok(d->resolve(&own, copy, &v, &e) == 0, "but for a volume of its own");
    snprintf(file, sizeof file, "%s", n.handle);
    drop(&n);
    ok(make_file(file, 4096, 9), "a foreign file under the name of a snapshot");
    refused(d->remove(&own, &n, &gone, &e), ERR_PERMISSION, "is not removed");
    ok(exists(file) && exists(copy), "both foreign files stay");
    unlink(file);
    unlink(copy);
}

static void check_gone(const struct driver_class *into, const struct exposure *x)
{
    const struct driver *maker = driver_by_name(into->driver);
    ok(maker->unexpose(into, x, &e) == 0 && unmade(x), "unexpose removes it (PVC-21)");
    ok(exposed(into, x->alias).hits == 0, "it is in no list any more");
    ok(maker->unexpose(into, x, &e) == 0, "again: gone already");
}

/* One mechanism into one class: where it lies, its mode, that it is gone afterwards (decisions 3). */
static void test_intermediate(const struct driver_class *into, enum expose_mechanism m, bool read_only)
{
    struct volume v;
    struct native n;
    struct exposure x, again, back;
    char alias[ALIAS_LEN + 1], where[64];
    snprintf(where, sizeof where, "%s %s into %s", read_only ? "read-only" : "writable", expose_mechanism_name(m),
             into->name);
    ok(write_pattern(name, 0, 4 * MIB, 3), "%s", where);
    if (!take(name, &v, &n))
        return;
    alias_new(alias);
    if (!ok(driver_expose(&own, &n, into, m, read_only, alias, 0, &x, &e) == 0, "%s", where)) {
        drop(&n);
        return;
    }
    ok(x.mechanism == m && x.read_only == read_only && x.size == n.size && strcmp(x.alias, alias) == 0 &&
           strcmp(x.klass, into->name) == 0 && x.handle[0] && made(&x),
       "it says what it made");
    ok(!(into->target && into->target[0] == '/') || strncmp(x.where, into->target, strlen(into->target)) == 0,
       "in the place of that class: %s", x.where);
    struct stat st;
    ok(stat(x.path, &st) == 0 &&
           (!S_ISREG(st.st_mode) || (plugin && m != EXPOSE_COPY) || (st.st_mode & 0777) == (read_only ? 0400 : 0600)),
       "with its mode");
    if (m == EXPOSE_COPY)
        ok(x.copied >= 4 * MIB && device_of(x.path) != device_of(n.handle), "on another file system");
    json_t *j = exposure_to_json(&x);
    ok(j && exposure_from_json(&back, j, &e) == 0 && memcmp(&back, &x, sizeof x) == 0, "as a document and back");
    json_decref(j);
    ok(driver_expose(&own, &n, into, m, read_only, alias, 0, &again, &e) == 0 && strcmp(again.handle, x.handle) == 0,
       "asked again for the same alias it is the same one");
    struct search s = exposed(into, alias);
    ok(s.hits == 1 && strcmp(s.x.handle, x.handle) == 0 && s.x.mechanism == m, "the list for the sweep shows it");
    if (read_only) {
        check_read_only(into, &x, 3);
    } else {
        CLEANUP_CLOSE int fd = -1, base = -1;
        struct exposure native;
        ok(open_it(into, &x, &fd) == 0 && has_pattern(fd, 0, 4 * MIB, 3) && pwrite(fd, "changed", 7, 4096) == 7,
           "it can be written to");
        if (can & DRIVER_NATIVE_RO) {
            ok(d->expose(&own, &n, &own, EXPOSE_NATIVE, true, "", &native, &e) == 0 &&
                   d->open(&own, &native, &base, &e) == 0 && has_pattern(base, 0, 4 * MIB, 3),
               "that does not change the snapshot");
        }
    }
    check_gone(into, &x);
    /* After a crash no more than the alias may be known. */
    alias_new(alias);
    struct exposure bare = {.mechanism = EXPOSE_NATIVE};
    ok(driver_expose(&own, &n, into, m, read_only, alias, 0, &x, &e) == 0, "made again");
    snprintf(bare.alias, sizeof bare.alias, "%s", alias);
    ok(driver_by_name(into->driver)->unexpose(into, &bare, &e) == 0 && unmade(&x), "and removed by its alias alone");
    drop(&n);
}

static void test_copy_limits(void)
{
    struct volume v;
    struct native n;
    struct exposure x;
    struct timespec t0, t1;
    char alias[ALIAS_LEN + 1];
    if (!far_class.name || plugin || !take(name, &v, &n)) /* a plugin's are copied by the same code */
        return;
    alias_new(alias);
    clock_gettime(CLOCK_MONOTONIC, &t0);
    uint64_t data = v.allocated < v.size ? v.allocated : v.size;
    ok(driver_expose(&own, &n, &far_class, EXPOSE_COPY, true, alias, data, &x, &e) == 0, "a copy at a second's rate");
    clock_gettime(CLOCK_MONOTONIC, &t1);
    double s = (double)(t1.tv_sec - t0.tv_sec) + (double)(t1.tv_nsec - t0.tv_nsec) / 1e9;
    ok(s > 0.3 * (double)x.copied / (double)data && s < 20, "takes its time: %.2f s for %" PRIu64 " bytes", s,
       x.copied);
    check_gone(&far_class, &x);
    if (tiny_class.name) {
        alias_new(alias);
        int rc = driver_expose(&own, &n, &tiny_class, EXPOSE_COPY, true, alias, 0, &x, &e);
        refused(rc, ERR_NO_SPACE, "a target without room is refused");
        ok(exposed(&tiny_class, alias).all == 0, "and nothing is left there");
    }
    drop(&n);
}

static void test_choice(void)
{
    struct volume v;
    enum expose_mechanism m;
    struct expose_request q = {.own = &own, .own_abilities = can, .read_only = true};
    if (d->resolve(&own, name, &v, &e) < 0)
        return;
    if (can & DRIVER_NATIVE_RO)
        ok(expose_choose(&q, &m, &e) == 0 && m == EXPOSE_NATIVE, "own class, read-only: native");
    q.read_only = false;
    if (can & (DRIVER_CLONE | DRIVER_OVERLAY))
        ok(expose_choose(&q, &m, &e) == 0 && m == ((can & DRIVER_CLONE) ? EXPOSE_CLONE : EXPOSE_OVERLAY),
           "own class, writable: clone, else overlay");
    else
        refused(expose_choose(&q, &m, &e), ERR_USAGE, "own class, writable: refused in words (PVC-10)");
    if (near_class.name && (can & DRIVER_CLONE)) {
        q.into = &near_class;
        q.same_pool = expose_same_pool(&own, &v, &near_class);
        ok(q.same_pool && expose_choose(&q, &m, &e) == 0 && m == EXPOSE_CLONE, "same pool: clone");
    }
    if (far_class.name) {
        q.into = &far_class;
        q.same_pool = expose_same_pool(&own, &v, &far_class);
        q.read_only = true;
        ok(driver_by_name(far_class.driver)->abilities(&far_class, &q.into_abilities, &e) == 0 && !q.same_pool &&
               expose_choose(&q, &m, &e) == 0 && m == EXPOSE_COPY,
           "elsewhere: copy");
    }
}

/* ---- restore ---- */

static bool fill_target(const struct restore_target *t, uint64_t seed)
{
    struct stat st;
    return stat(t->path, &st) == 0 && (S_ISBLK(st.st_mode) || (uint64_t)st.st_size == t->size) &&
           write_pattern(t->path, 0, 4 * MIB, seed);
}

static void test_target_in_place(void)
{
    struct volume v;
    struct restore_target t;
    char alias[ALIAS_LEN + 1];
    if (d->resolve(&own, name, &v, &e) < 0)
        return;
    alias_new(alias);
    ok(d->target(&own, name, v.size, alias, true, &t, &e) == 0 && strcmp(t.path, name) == 0, "restored in place");
    ok(fill_target(&t, 5) && d->target_commit(&own, &t, &e) == 0 && d->target_commit(&own, &t, &e) == 0,
       "committed, twice");
    CLEANUP_CLOSE int fd = open(name, O_RDONLY | O_CLOEXEC);
    ok(fd >= 0 && has_pattern(fd, 0, 4 * MIB, 5), "the volume holds it");
    refused(d->target(&own, name, v.size + 1, alias, true, &t, &e), ERR_TARGET, "a target that is too small");
    refused(d->target(&own, "/dev/no-such-device", v.size, alias, true, &t, &e), ERR_NOT_FOUND,
            "a target that is not there");
}

#include "driver_suite-exports.h"

static void test_target(void)
{
    struct restore_target t, again, back;
    struct volume v, now;
    struct stat st;
    char alias[ALIAS_LEN + 1], second[ALIAS_LEN + 1];
    char *file = path_in(dir, "restored \xe2\x82\xac.img");
    alias_new(alias);
    ok(d->target(&own, file, 5 * MIB + 1, alias, false, &t, &e) == 0 && strcmp(t.path, file) != 0, "a new volume");
    ok(!exists(file) && exists(t.path) && fill_target(&t, 6), "is made beside its name (CF-27)");
    struct volume_search s = {.want = t.path};
    ok(d->volumes(&own, on_volume, &s, &e) == 0 && s.hits == 0, "what is not complete is no volume");
    ok(exposed(&own, alias).hits == 1, "but seen by the sweep");
    ok(d->target(&own, file, 5 * MIB + 1, alias, false, &again, &e) == 0 && memcmp(&t, &again, sizeof t) == 0,
       "asked again it is the same");
    json_t *j = target_to_json(&t);
    ok(j && target_from_json(&back, j, &e) == 0 && memcmp(&back, &t, sizeof t) == 0, "as a document and back");
    json_decref(j);
    ok(d->target_commit(&own, &t, &e) == 0 && exists(file) && !exists(t.handle), "committed");
    ok(d->target_commit(&own, &t, &e) == 0, "committed again: nothing to do");
    ok(exposed(&own, alias).hits == 0, "nothing is left for the sweep");
    ok(d->resolve(&own, file, &v, &e) == 0 && v.size == 5 * MIB + 1, "it is a volume now");
    refused(d->target(&own, file, 4 * MIB, alias, false, &again, &e), ERR_TARGET, "an existing one is refused");
    ok(chmod(file, 0604) == 0 && (geteuid() != 0 || chown(file, 12, 34) == 0), "owner and mode");
    alias_new(second);
    ok(d->target(&own, file, 4 * MIB, second, true, &again, &e) == 0 && fill_target(&again, 7), "unless told");
    ok(stat(file, &st) == 0 && st.st_size == (off_t)(5 * MIB + 1), "it is whole until the commit");
    ok(d->target_commit(&own, &again, &e) == 0 && stat(file, &st) == 0 && st.st_size == (off_t)(4 * MIB), "replaced");
    ok((st.st_mode & 07777) == 0604 && (geteuid() != 0 || (st.st_uid == 12 && st.st_gid == 34)),
       "with its owner and mode");
    ok(d->resolve(&own, file, &now, &e) == 0 && strcmp(now.id, v.id) == 0, "it stays the volume that it was");
    alias_new(second);
    ok(d->target(&own, file, 4 * MIB, second, true, &again, &e) == 0 && d->target_abort(&own, &again, &e) == 0 &&
           !exists(again.handle) && exists(file),
       "aborted: the staging file goes, the volume stays");
    ok(d->target_abort(&own, &again, &e) == 0, "aborted again");
    refused(d->target_commit(&own, &again, &e), ERR_TARGET, "nothing is left to commit");
    alias_new(second);
    ok(d->target(&own, file, 4 * MIB, second, true, &again, &e) == 0 && fill_target(&again, 8), "once more");
    int lock = open(file, O_RDWR | O_CLOEXEC);
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    ok(lock >= 0 && fcntl(lock, F_OFD_SETLK, &l) == 0 && d->resolve(&own, file, &now, &e) == 0 && now.in_use,
       "a locked file is in use");
    ok(stat(file, &st) == 0, "it is there");
    const ino_t was = st.st_ino;
    refused(d->target_commit(&own, &again, &e), ERR_TARGET, "in use since: it is not replaced under its user");
    ok(stat(file, &st) == 0 && st.st_ino == was && exists(again.handle), "and all is as it was");
    close(lock);
    ok(d->target_commit(&own, &again, &e) == 0 && stat(file, &st) == 0 && st.st_ino != was, "in use no longer: it is");
    unlink(file);
}

#include "driver_suite-volumes.h"

static void test_target_from_native(void)
{
    struct volume v;
    struct native n;
    struct restore_target t;
    char alias[ALIAS_LEN + 1];
    char *file = path_in(dir, "rolled-back.img");
    ok(write_pattern(name, 0, 4 * MIB, 8), "restore from a native snapshot (RS-22)");
    if (!take(name, &v, &n))
        return;
    alias_new(alias);
    ok(d->target(&own, file, n.size, alias, false, &t, &e) == 0 &&
           d->target_from_native(&own, &n, &t, &unwatched, &e) == 0 && d->target_commit(&own, &t, &e) == 0,
       "filled and committed");
    CLEANUP_CLOSE int fd = open(file, O_RDONLY | O_CLOEXEC);
    struct stat st;
    ok(fd >= 0 && has_pattern(fd, 0, 4 * MIB, 8) && fstat(fd, &st) == 0 && (uint64_t)st.st_size == n.size,
       "it holds what the snapshot holds");
    unlink(file);
    drop(&n);
}

/* ---- files that come and go ---- */

static void test_sizes_and_names(void)
{
    static const struct {
        const char *file;
        uint64_t size;
    } cases[] = {{"empty.img", 0},
                 {"one.img", 1},
                 {"a sector less one.img", 511},
                 {"  spaces  .img", 4097},
                 {"new\nline.img", 12345},
                 {"\xc3\xbc\xf0\x9f\x92\xbe.img", MIB - 1},
                 {"-rf.img", MIB + 513},
                 {"quote'\"\\.img", 70001},
                 {"sparse.img", TIB},
                 {"sparse-odd.img", TIB - 513}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *file = path_in(dir, cases[i].file);
        struct volume_search s = {.want = file};
        struct volume v;
        struct native n;
        struct exposure x;
        CLEANUP_CLOSE int fd = -1;
        if (!make_file(file, cases[i].size, i) ||
            (cases[i].size >= TIB - 513 && !write_pattern(file, cases[i].size - 8192, 4096, 77))) {
            ok(false, "cannot make %s", cases[i].file);
            continue;
        }
        ok(d->volumes(&own, on_volume, &s, &e) == 0 && s.hits == 1, "%s is a volume", cases[i].file);
        if (take(file, &v, &n)) {
            ok(n.size == cases[i].size && listed(n.tag.alias).hits == 1, "its %" PRIu64 " bytes", cases[i].size);
            ok(d->expose(&own, &n, &own, EXPOSE_NATIVE, true, "", &x, &e) == 0 && d->open(&own, &x, &fd, &e) == 0 &&
                   (cases[i].size > MIB * 64 ? has_pattern(fd, cases[i].size - 8192, 4096, 77)
                                             : has_pattern(fd, 0, (size_t)cases[i].size, i)),
               "its contents");
            if (far_class.name && cases[i].size >= TIB - 513) {
                char alias[ALIAS_LEN + 1];
                struct stat st;
                alias_new(alias);
                ok(driver_expose(&own, &n, &far_class, EXPOSE_COPY, true, alias, 0, &x, &e) == 0 &&
                       stat(x.path, &st) == 0 && (uint64_t)st.st_size == n.size && x.copied < MIB &&
                       (uint64_t)st.st_blocks * 512 < MIB,
                   "a copy of it is sparse too: %" PRIu64 " bytes copied", x.copied);
                ok(driver_reflink.unexpose(&far_class, &x, &e) == 0, "removed");
            }
            drop(&n);
        }
        unlink(file);
    }
    char *odd = path_in(dir, "no\xfftext.img");
    struct volume v;
    ok(make_file(odd, 4096, 1), "a name that is no text");
    refused(d->resolve(&own, odd, &v, &e), ERR_USAGE, "is refused in words");
    unlink(odd);
}

static void test_replaced(void)
{
    struct volume v;
    struct native n;
    char *file = path_in(dir, "comes-and-goes.img"), *other = path_in(dir, "other.img");
    ok(make_file(file, MIB, 1) && make_file(other, MIB, 2) && d->resolve(&own, file, &v, &e) == 0, "a volume");
    ok(rename(other, file) == 0, "is replaced by another file");
    struct native_tag t = new_tag(&v);
    refused(d->snapshot(&own, &v, &t, &n, &e), ERR_SOURCE, "it is not taken for the volume that was looked up");
    ok(listed(t.alias).hits == 0, "nothing was made");
    unlink(file);
    refused(d->snapshot(&own, &v, &t, &n, &e), ERR_NOT_FOUND, "a volume that vanished");
    ok(symlink(name, file) == 0, "a symbolic link to a volume");
    struct volume_search s = {.want = file};
    refused(d->resolve(&own, file, &v, &e), ERR_USAGE, "is no volume");
    ok(d->volumes(&own, on_volume, &s, &e) == 0 && s.hits == 0, "and not listed as one");
    unlink(file);
    ok(mkfifo(file, 0600) == 0, "a pipe");
    refused(d->resolve(&own, file, &v, &e), ERR_USAGE, "is no volume, and nothing waits for it");
    unlink(file);
    ok(link(name, file) == 0, "a second name of a volume");
    s = (struct volume_search){.want = name};
    struct volume_search s2 = {.want = file};
    ok(d->volumes(&own, on_volume, &s, &e) == 0 && d->volumes(&own, on_volume, &s2, &e) == 0 && s.hits + s2.hits == 1,
       "one file is one volume");
    unlink(file);
    /* Snapshots outlive their volume and are found without it. */
    ok(make_file(file, MIB, 1), "a volume that is deleted");
    if (take(file, &v, &n)) {
        unlink(file);
        ok(listed(n.tag.alias).hits == 1 && d->find(&own, &v, n.tag.alias, "", &n, &e) == 0, "leaves its snapshot");
        drop(&n);
    }
}

static void test_pool(void)
{
    struct volume v;
    struct pool_usage u;
    if (!d->pool || !(can & DRIVER_POOL) || d->resolve(&own, name, &v, &e) < 0) {
        not_of("pool", "this driver knows none");
        return;
    }
    ok(d->pool(&own, &v, &u, &e) == 0 && u.size > 0 && u.free <= u.size && u.used_ratio >= 0 && u.used_ratio <= 1,
       "space of the pool (RS-30): %.1f %% used", 100 * u.used_ratio);
    ok(plugin || strcmp(u.name, v.pool) == 0, "it is the volume's pool");
}

static void test_nothing_left(void)
{
    ok(listed("").all == 0, "no native snapshot is left");
    ok(exposed(&own, "").all == 0, "no intermediate is left");
    if (near_class.name)
        ok(exposed(&near_class, "").all == 0, "nor in the class of the same pool");
    if (far_class.name)
        ok(exposed(&far_class, "").all == 0, "nor elsewhere");
}

static void test_intermediates(void)
{
    for (int ro = 1; ro >= 0; ro--) {
        if (can & DRIVER_CLONE)
            test_intermediate(&own, EXPOSE_CLONE, ro);
        if ((can & DRIVER_CLONE) && near_class.name)
            test_intermediate(&near_class, EXPOSE_CLONE, ro);
        if (can & DRIVER_OVERLAY)
            test_intermediate(&own, EXPOSE_OVERLAY, ro);
        if (far_class.name && (ro || !plugin))
            test_intermediate(&far_class, EXPOSE_COPY, ro);
    }
}

static int run(void)
{
    int rc = d->abilities(&own, &can, &e);
    if (!ok(rc == 0 && can, "abilities %#x", can))
        return 1;
    ends = !strcmp(own.driver, "qemu");
    snapshots = (can & DRIVER_SNAPSHOT) || ends;
    test_volumes();
    test_native();
    test_renamed();
    test_foreign();
    test_intermediates();
    test_copy_limits();
    test_choice();
    test_pool();
    if ((can & DRIVER_TARGET) && dir)
        test_target();
    else if ((can & DRIVER_TARGET) && !strcmp(own.driver, "device"))
        test_target_in_place();
    else if ((can & DRIVER_TARGET) && !strcmp(own.driver, "nbd"))
        test_target_export();
    else if ((can & DRIVER_TARGET) && logical)
        test_target_lv();
    else
        not_of("restore targets", "no directory for them was given, or the driver makes none");
    if ((can & DRIVER_TARGET) && dir && d->target_from_native)
        test_target_from_native();
    if (dir) {
        test_sizes_and_names();
        test_replaced();
    }
    test_nothing_left();
    printf("1..%d\n", number);
    return failures ? 1 : 0;
}

static void log_comment(enum log_level lvl, const char *line, void *arg)
{
    (void)arg;
    if (lvl >= LOG_LVL_INFO)
        printf("# %s\n", line);
}

static struct driver_class other_class(const char *class_name, const char *driver, const char *target)
{
    struct driver_class c = {.name = class_name, .driver = driver, .target = target, .match = no_match};
    return c;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"driver", 1, NULL, 'd'},      {"name", 1, NULL, 'n'},   {"match", 1, NULL, 'm'},  {"target", 1, NULL, 't'},
        {"node", 1, NULL, 'N'},        {"accept", 0, NULL, 'a'}, {"hook", 1, NULL, 'h'},   {"plugin", 1, NULL, 'p'},
        {"plugin-user", 1, NULL, 'u'}, {"volume", 1, NULL, 'v'}, {"dir", 1, NULL, 'D'},    {"near", 1, NULL, '1'},
        {"far", 1, NULL, '2'},         {"tiny", 1, NULL, '3'},   {"option", 1, NULL, 'o'}, {"write", 1, NULL, 'w'},
        {"absent", 1, NULL, 'A'},      {NULL, 0, NULL, 0}};
    int o, matches = 0;
    char *value;
    while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (o) {
        case 'd':
            own.driver = optarg;
            break;
        case 'o':
            if (!own.options)
                own.options = json_object();
            if ((value = strchr(optarg, '=')))
                *value++ = '\0';
            json_object_set_new(own.options, optarg, json_string(value ? value : ""));
            break;
        case 'w':
            writer = optarg;
            break;
        case 'A':
            absent = optarg;
            break;
        case 'n':
            own.name = optarg;
            break;
        case 'm':
            match[matches < 7 ? matches++ : matches] = optarg;
            break;
        case 't':
            own.target = optarg;
            break;
        case 'N':
            own.node = optarg;
            break;
        case 'a':
            own.accept_inconsistent = true;
            break;
        case 'h':
            own.overlay_hook = optarg;
            break;
        case 'p':
            own.plugin = optarg;
            break;
        case 'u':
            own.plugin_user = optarg;
            break;
        case 'v':
            name = optarg;
            break;
        case 'D':
            dir = optarg;
            break;
        case '1':
            near_class = other_class("near", own.driver, optarg);
            break;
        case '2':
            far_class = other_class("far", "reflink", optarg);
            break;
        case '3':
            tiny_class = other_class("tiny", "reflink", optarg);
            break;
        default:
            return 2;
        }
    }
    own.match = match;
    if (getenv("SNAPFERRY_RBD"))
        rbd_program_test(getenv("SNAPFERRY_RBD"));
    plugin = strncmp(own.driver, "plugin:", 7) == 0;
    zfs = strcmp(own.driver, "zfs") == 0;
    logical = zfs || strncmp(own.driver, "lvm", 3) == 0;
    near_class.node = far_class.node = tiny_class.node = own.node;
    near_class.plugin = own.plugin;
    near_class.plugin_user = own.plugin_user;
    log_to(log_comment, NULL);
    d = driver_by_name(own.driver);
    if (!d || !name) {
        fprintf(stderr, "usage: driver_suite --driver D --match PATTERN --volume NAME ...\n");
        return 2;
    }
    return run();
}
