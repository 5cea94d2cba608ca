/* SPDX-License-Identifier: GPL-2.0-or-later */
/* zfs-volume.c - volumes of ZFS for the other parts of the driver: names, pools, devices, objects of ours */
#include "io/native/zfs.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "io/blockdev.h"
#include "io/in-use.h"
#include "io/native/path.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#define NAME_CHARS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:- "
#define DEVICE_SECONDS 60 /* udev makes links of new devices; an emulated machine is slow */
#define POLL_MS 20
/* Name of the dataset of a zvol's device: include/os/linux/spl/sys/ and zvol_os.c of OpenZFS. */
#define BLKZNAME _IOR(0x12, 125, char[ZFS_NAME_MAX])

/* ---- names ---- */

static bool is_dataset(const char *s)
{
    const size_t n = strlen(s);
    if (n == 0 || n >= ZFS_NAME_MAX || s[0] == '/' || s[n - 1] == '/' || strstr(s, "//"))
        return false;
    for (; *s; s += strspn(s, "/")) {
        const size_t part = strcspn(s, "/");
        if (strspn(s, NAME_CHARS) < part || (part == 1 && *s == '.') || (part == 2 && s[0] == '.' && s[1] == '.'))
            return false;
        s += part;
    }
    return true;
}

int zfs_path_split(const char *path, char dataset[ZFS_NAME_MAX], struct err *e)
{
    static const char dev[] = ZFS_DEV;
    const size_t n = sizeof dev - 1;
    dataset[0] = '\0';
    if (path[0] == '/' && strlen(path) < VOLUME_NAME_MAX && path_plain(path, e) < 0)
        return -EINVAL;
    if (strncmp(path, "/dev/", 5) == 0 && path[5] && strncmp(path, dev, n) != 0)
        return err_plain(e, ERR_NOT_FOUND, ENOENT, "%.512s is no volume of ZFS (" ZFS_DEV "POOL/PATH)", path);
    if (strncmp(path, dev, n) == 0 && strchr(path + n, '/') && strlen(path + n) < ZFS_NAME_MAX) {
        snprintf(dataset, ZFS_NAME_MAX, "%s", path + n);
        for (char *p = dataset; *p; p++) /* as the links of udev have it */
            *p = *p == '+' ? ' ' : *p;
        if (is_dataset(dataset))
            return 0;
    }
    dataset[0] = '\0';
    err_set(e, ERR_USAGE, EINVAL, "\"%.512s\" is not the path of a volume of ZFS (" ZFS_DEV "POOL/PATH)", path);
    return path[0] != '/' && strchr(path, '/') ? err_hint(e, "use " ZFS_DEV "%.256s", path) : -EINVAL;
}

int zfs_class_target(const struct driver_class *c, char dataset[ZFS_NAME_MAX], struct err *e)
{
    const char *t = c->target ? c->target : "";
    dataset[0] = '\0';
    if (*t && !is_dataset(t)) {
        err_set(e, ERR_USAGE, EINVAL, "storage class \"%s\": target \"%.256s\" is not the name of a pool or dataset",
                c->name, t);
        return err_hint(e, "as `zfs list` shows it: POOL or POOL/PATH");
    }
    snprintf(dataset, ZFS_NAME_MAX, "%s", t);
    return 0;
}

/* ---- labels ---- */

bool zfs_is_label(const char *word)
{
    return strncmp(word, "dataset:", 8) == 0 || strncmp(word, "pool:", 5) == 0 || strncmp(word, "tag:", 4) == 0;
}

bool zfs_selects_labels(const struct driver_class *c)
{
    for (size_t i = 0; c->match && c->match[i]; i++)
        if (zfs_is_label(c->match[i]))
            return true;
    return false;
}

static bool match_label(const char *word, const char *labels)
{
    char label[VOLUME_LABELS_MAX];
    while (*labels) {
        const size_t n = strcspn(labels, " ");
        memcpy(label, labels, n);
        label[n] = '\0';
        if (fnmatch(word, label, FNM_PATHNAME) == 0)
            return true;
        labels += n + (labels[n] == ' ');
    }
    return false;
}

bool zfs_is_matched(const struct driver_class *c, const struct volume *v)
{
    for (size_t i = 0; c->match && c->match[i]; i++)
        if (zfs_is_label(c->match[i]) ? match_label(c->match[i], v->labels)
                                      : fnmatch(c->match[i], v->name, FNM_PATHNAME) == 0)
            return true;
    return false;
}

/* ---- volumes ---- */

static uint32_t sector_of(const char *path)
{
    char dir[PATH_MAX], queue[PATH_MAX + 8], text[32];
    struct stat st;
    long n = 0;
    if (stat(path, &st) == 0 && S_ISBLK(st.st_mode) && blockdev_sysfs(st.st_rdev, dir, sizeof dir)) {
        snprintf(queue, sizeof queue, "%s/queue", dir);
        if (sysfs_line(queue, "logical_block_size", text, sizeof text))
            n = strtol(text, NULL, 10);
    }
    return n >= 512 && n <= 65536 ? (uint32_t)n : 512;
}

static bool is_claimed(const char *path)
{
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_EXCL | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    return fd < 0 && errno == EBUSY;
}

bool zfs_used(const char *dataset, char *by, size_t size)
{
    char path[VOLUME_NAME_MAX];
    struct stat st;
    zfs_path(dataset, path);
    snprintf(by, size, "held by the kernel or another program");
    if (stat(path, &st) < 0)
        return false;
    return in_use(&st, by, size) != USE_NONE || is_claimed(path);
}

void zfs_describe(const struct zfs_row *row, struct volume *ret)
{
    char pool[ZFS_NAME_MAX], user[256];
    struct stat st;
    memset(ret, 0, sizeof *ret);
    zfs_path(row->name, ret->name);
    zfs_volume_id(row, ret->id);
    zfs_pool_of(row->name, pool);
    snprintf(ret->pool, sizeof ret->pool, "%s", pool);
    if (!strchr(row->name, ' '))
        snprintf(ret->labels, sizeof ret->labels, "dataset:%s pool:%s", row->name, pool);
    ret->size = row->size;
    ret->allocated = row->referenced < row->size ? row->referenced : row->size;
    ret->sector = sector_of(ret->name);
    ret->block = true;
    /* Without opening it: who claims a volume at that moment must not be refused. */
    ret->in_use = stat(ret->name, &st) == 0 && blockdev_user(st.st_rdev, user, sizeof user);
}

int zfs_refuse(const struct zfs_row *row, struct err *e)
{
    struct zfs_pool pool;
    CLEANUP_FREE struct zfs_tag *t = malloc(sizeof *t);
    if (!t)
        return err_nomem(e);
    if (!row->owner[0])
        return 0;
    int rc = zfs_pool_read(&pool, row->name, e);
    if (rc == 0 && zfs_tag_read(row, pool.guid, 0, t) == 0 && zfs_is_ours(row, t))
        rc = err_set(e, ERR_USAGE, EINVAL, ZFS_DEV "%s is a volume of snapferry, not one to back up (%s)", row->name,
                     ZFS_OWNER);
    return rc;
}

/* ---- pools ---- */

int zfs_pool_check(const struct zfs_pool *p, const char *what, struct err *e)
{
    if (strcmp(p->health, "ONLINE") != 0 && strcmp(p->health, "DEGRADED") != 0) {
        err_plain(e, ERR_SOURCE, EIO, "%s: pool %s is %s", what, p->name, p->health);
        return err_hint(e, "see zpool status");
    }
    if (p->read_only)
        return err_plain(e, ERR_PERMISSION, EROFS, "%s: pool %s is imported read-only", what, p->name);
    const double used = p->size ? 100.0 * (double)p->allocated / (double)p->size : 0;
    if (used >= ZFS_POOL_FULL) {
        err_plain(e, ERR_NO_SPACE, ENOSPC, "%s: pool %s is %.1f %% full", what, p->name, used);
        return err_hint(e, "remove what is not needed, or add disks");
    }
    return 0;
}

/* ---- devices ---- */

static bool is_device_of(int fd, const char *dataset)
{
    char name[ZFS_NAME_MAX + 1] = "";
    return ioctl(fd, BLKZNAME, name) == 0 && strcmp(name, dataset) == 0;
}

void zfs_settle(const char *dataset, bool there)
{
    char path[VOLUME_NAME_MAX];
    struct stat st;
    const double end = mono_s() + DEVICE_SECONDS;
    zfs_path(dataset, path);
    /* A link that leads nowhere is not gone yet. */
    while ((there ? stat(path, &st) != 0 : lstat(path, &st) == 0) && mono_s() < end)
        usleep(POLL_MS * 1000);
}

int zfs_open_device(const char *dataset, int flags, int *fd, struct err *e)
{
    char path[VOLUME_NAME_MAX];
    const double end = mono_s() + DEVICE_SECONDS;
    int sys;
    zfs_path(dataset, path);
    for (;;) {
        CLEANUP_CLOSE int f = open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        sys = f < 0 ? errno : ESTALE;
        if (f >= 0 && is_device_of(f, dataset)) {
            *fd = take_fd(&f);
            return 0;
        }
        if ((f < 0 && sys != ENOENT && sys != ENXIO && sys != EBUSY) || mono_s() > end)
            break;
        usleep(POLL_MS * 1000);
    }
    if (sys == ESTALE)
        return err_plain(e, ERR_SOURCE, ESTALE, "%s is not the device of %s", path, dataset);
    err_set(e, sys == ENOENT ? ERR_NOT_FOUND : ERR_SOURCE, sys, "cannot open %s", path);
    return sys == ENOENT
               ? err_hint(e, "volmode=none has no device; otherwise udev did not make its link in %d s", DEVICE_SECONDS)
               : -sys;
}

/* ---- objects of ours ---- */

int zfs_native_healthy(const struct zfs_row *row, const struct zfs_tag *t, struct err *e)
{
    if (row->size != t->size)
        return err_set(e, ERR_DAMAGE, 0, "native snapshot %s has %" PRIu64 " bytes, %" PRIu64 " when it was taken",
                       row->name, row->size, t->size);
    if (strcmp(row->keys, "unavailable") == 0) {
        err_plain(e, ERR_SOURCE, ENOKEY, "native snapshot %s cannot be read: its encryption key is not loaded",
                  row->name);
        return err_hint(e, "zfs load-key");
    }
    return 0;
}

uint64_t zfs_volume_guid(const struct zfs_report *r, const char *snapshot)
{
    char volume[ZFS_NAME_MAX];
    zfs_dataset_of(snapshot, volume);
    const struct zfs_row *v = zfs_find(r, volume);
    return v ? v->guid : 0;
}

/* Snapshots of it were taken after it was made: by tools that take them of all that is below a dataset. */
static int destroy_snapshots(const struct zfs_row *row, const char *what, struct err *e)
{
    struct zfs_report r = ZFS_REPORT_INIT;
    int rc = zfs_report_read(&r, row->name, e);
    for (size_t i = 0; rc == 0 && i < r.n; i++) {
        const struct zfs_row *s = &r.row[i];
        const char *const args[] = {"destroy", s->name, NULL};
        if (!s->snapshot || s->txg < row->txg || s->owner[0])
            continue;
        log_info("%s: destroying %s, a snapshot that another tool took of it", what, s->name);
        rc = zfs_change(what, args, e);
        if (rc == -ENOENT) /* that tool was faster; the volume is still there */
            rc = 0;
    }
    zfs_report_free(&r);
    return rc;
}

int zfs_destroy(const struct zfs_row *row, bool snapshots, const char *what, struct err *e)
{
    const char *const args[] = {"destroy", row->name, NULL};
    int rc = snapshots ? destroy_snapshots(row, what, e) : 0;
    if (rc == 0)
        rc = zfs_change(what, args, e);
    if (rc == -ENOENT)
        rc = 0;
    if (rc == 0)
        zfs_settle(row->name, false);
    return rc;
}

/* Pools of one walk. */
struct pools {
    struct zfs_pool *pool;
    size_t n;
};

static int pool_guid(struct pools *p, const char *dataset, uint64_t *ret, struct err *e)
{
    char name[ZFS_NAME_MAX];
    zfs_pool_of(dataset, name);
    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->pool[i].name, name) == 0) {
            *ret = p->pool[i].guid;
            return 0;
        }
    struct zfs_pool *grown = reallocarray(p->pool, p->n + 1, sizeof *grown);
    if (!grown)
        return err_nomem(e);
    p->pool = grown;
    int rc = zfs_pool_read(&p->pool[p->n], name, e);
    if (rc == 0)
        *ret = p->pool[p->n++].guid;
    return rc;
}

/* A walk over what is ours in reports, one after the other. */
struct walk {
    const struct driver_class *c;
    struct pools pools;
    struct zfs_tag tag;
    zfs_ours_fn *fn;
    void *arg;
};

static int walk_report(struct walk *w, const struct zfs_report *r, bool snapshots, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < r->n; i++) {
        const struct zfs_row *row = &r->row[i], *volume = NULL;
        char of[ZFS_NAME_MAX];
        uint64_t pool = 0;
        if (row->snapshot != snapshots || !row->owner[0])
            continue;
        rc = pool_guid(&w->pools, row->name, &pool, e);
        if (rc == 0 && row->snapshot) {
            zfs_dataset_of(row->name, of);
            volume = zfs_find(r, of);
        }
        if (rc == 0 && zfs_tag_read(row, pool, volume ? volume->guid : 0, &w->tag) == 0 &&
            strcmp(w->tag.node, w->c->node) == 0)
            rc = w->fn(row, volume, &w->tag, w->arg);
    }
    return rc;
}

static int walk_snapshots(struct walk *w, const char *const *names, size_t n, struct err *e)
{
    struct zfs_report r = ZFS_REPORT_INIT;
    int rc = zfs_report_snapshots(&r, names, n, e);
    if (rc == 0 && r.n == 0 && n > 1) { /* one of them has disappeared meanwhile */
        for (size_t i = 0; rc == 0 && i < n; i++)
            rc = walk_snapshots(w, names + i, 1, e);
        return rc;
    }
    if (rc == 0)
        rc = walk_report(w, &r, true, e);
    zfs_report_free(&r);
    return rc;
}

int zfs_each(const struct driver_class *c, zfs_ours_fn *fn, void *arg, struct err *e)
{
    struct zfs_report all = ZFS_REPORT_INIT;
    struct walk *w = calloc(1, sizeof *w);
    const char *names[ZFS_NAMES_MAX];
    size_t n = 0;
    if (!w)
        return err_nomem(e);
    *w = (struct walk){.c = c, .fn = fn, .arg = arg};
    int rc = zfs_report_read(&all, NULL, e);
    if (rc == 0)
        rc = walk_report(w, &all, false, e);
    for (size_t i = 0; rc == 0 && i < all.n; i++) {
        names[n++] = all.row[i].name;
        if (n == ZFS_NAMES_MAX || i + 1 == all.n) {
            rc = walk_snapshots(w, names, n, e);
            n = 0;
        }
    }
    zfs_report_free(&all);
    free(w->pools.pool);
    free(w);
    return rc;
}

struct finding {
    const char *alias;
    enum zfs_kind kind;
    bool snapshot;
    char name[ZFS_NAME_MAX];
    struct zfs_tag *tag;
};

static int match_ours(const struct zfs_row *row, const struct zfs_row *volume, const struct zfs_tag *t, void *arg)
{
    struct finding *f = arg;
    (void)volume;
    if (t->kind != f->kind || row->snapshot != f->snapshot || strcmp(t->tag.alias, f->alias) != 0)
        return 0;
    snprintf(f->name, sizeof f->name, "%s", row->name);
    *f->tag = *t;
    return 1;
}

/* Where the hint says. */
static int find_near(const struct driver_class *c, const char *hint, struct finding *f, struct err *e)
{
    struct zfs_report r = ZFS_REPORT_INIT;
    char dataset[ZFS_NAME_MAX];
    struct walk *w = calloc(1, sizeof *w);
    int rc = w ? 0 : err_nomem(e);
    if (hint[0] == '/')
        (void)zfs_path_split(hint, dataset, NULL);
    else
        zfs_dataset_of(hint, dataset);
    if (rc == 0 && is_dataset(dataset) && strchr(dataset, '/')) {
        *w = (struct walk){.c = c, .fn = match_ours, .arg = f};
        rc = zfs_report_read(&r, dataset, e);
        if (rc == 0)
            rc = walk_report(w, &r, f->snapshot, e);
        free(w->pools.pool);
    }
    zfs_report_free(&r);
    free(w);
    return rc;
}

int zfs_find_ours(const struct driver_class *c, struct zfs_report *r, const char *hint, enum zfs_kind kind,
                  const char *alias, const struct zfs_row **row, struct zfs_tag *tag, struct err *e)
{
    struct finding f = {.alias = alias, .kind = kind, .snapshot = kind == ZFS_NATIVE, .tag = tag};
    char dataset[ZFS_NAME_MAX];
    *r = (struct zfs_report)ZFS_REPORT_INIT;
    if (!alias_valid(alias))
        return err_set(e, ERR_USAGE, EINVAL, "invalid alias \"%.64s\"", alias);
    int rc = hint && *hint ? find_near(c, hint, &f, e) : 0;
    if (rc == 0)
        rc = zfs_each(c, match_ours, &f, e);
    if (rc <= 0)
        return rc < 0 ? rc : -ENOENT;
    zfs_dataset_of(f.name, dataset);
    rc = zfs_report_read(r, dataset, e);
    *row = rc == 0 ? zfs_find(r, f.name) : NULL;
    return rc < 0 ? rc : *row ? 0 : -ENOENT;
}
