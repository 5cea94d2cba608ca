/* SPDX-License-Identifier: GPL-2.0-or-later */
/* lvm-lv.c - logical volumes for the other parts of the LVM drivers: names, what is a volume, pools, devices, objects
 * of ours */
#include "io/native/lvm.h"

#include "base/cleanup.h"
#include "io/blockdev.h"
#include "io/native/path.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define NAME_CHARS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+_.-"

bool lvm_thin_class(const struct driver_class *c)
{
    return strcmp(c->driver, LVM_THIN_NAME) == 0;
}

/* ---- names ---- */

static bool is_name(const char *s, size_t n)
{
    return n > 0 && n < LVM_NAME_MAX && *s != '-' && strspn(s, NAME_CHARS) >= n && !(n == 1 && *s == '.') &&
           !(n == 2 && s[0] == '.' && s[1] == '.');
}

int lvm_path_split(const char *path, char vg[LVM_NAME_MAX], char name[LVM_NAME_MAX], struct err *e)
{
    static const char dev[] = "/dev/";
    vg[0] = name[0] = '\0';
    if (path[0] != '/')
        return err_set(e, ERR_USAGE, EINVAL, "\"%.512s\" is not the path of a logical volume (/dev/GROUP/VOLUME)",
                       path);
    if (strncmp(path, "/dev/mapper/", 12) == 0) {
        err_set(e, ERR_USAGE, EINVAL, "%.512s is not how volumes of LVM are named here", path);
        return err_hint(e, "use the path /dev/GROUP/VOLUME, as `lvs -o lv_path` shows it");
    }
    if (path_plain(path, e) < 0)
        return -EINVAL;
    if (strncmp(path, dev, sizeof dev - 1) != 0 || !path[sizeof dev - 1])
        return err_set(e, ERR_USAGE, EINVAL, "%.512s is not the path of a logical volume (/dev/GROUP/VOLUME)", path);
    const char *at = path + sizeof dev - 1, *slash = strchr(at, '/');
    if (!slash)
        return err_plain(e, ERR_NOT_FOUND, ENOENT, "no logical volume %.512s", path);
    if (!is_name(at, (size_t)(slash - at)) || !is_name(slash + 1, strlen(slash + 1)))
        return err_set(e, ERR_USAGE, EINVAL, "%.512s is not the path of a logical volume (/dev/GROUP/VOLUME)", path);
    snprintf(vg, LVM_NAME_MAX, "%.*s", (int)(slash - at), at);
    snprintf(name, LVM_NAME_MAX, "%s", slash + 1);
    return 0;
}

int lvm_class_target(const struct driver_class *c, char vg[LVM_NAME_MAX], char pool[LVM_NAME_MAX], struct err *e)
{
    const char *t = c->target ? c->target : "", *slash = strchr(t, '/');
    const size_t n = slash ? (size_t)(slash - t) : strlen(t);
    vg[0] = pool[0] = '\0';
    if (!*t)
        return 0;
    if (!is_name(t, n) || (slash && !is_name(slash + 1, strlen(slash + 1))) || (slash && !lvm_thin_class(c)))
        return err_set(e, ERR_USAGE, EINVAL, "storage class \"%s\": target \"%.256s\" is not %s", c->name, t,
                       lvm_thin_class(c) ? "GROUP/POOL" : "the name of a volume group");
    if (!slash && lvm_thin_class(c))
        return err_set(e, ERR_USAGE, EINVAL, "storage class \"%s\": target \"%.256s\" names no thin pool: use %s/POOL",
                       c->name, t, t);
    snprintf(vg, LVM_NAME_MAX, "%.*s", (int)n, t);
    if (slash)
        snprintf(pool, LVM_NAME_MAX, "%s", slash + 1);
    return 0;
}

/* ---- volumes ---- */

static bool is_kind(const struct driver_class *c, const struct lvm_lv *lv)
{
    return (lvm_thin_class(c) ? lvm_is_thin(lv) : lvm_is_ordinary(lv)) && lv->path[0];
}

static uint32_t sector_of(const struct lvm_lv *lv)
{
    char dir[64], text[32];
    snprintf(dir, sizeof dir, "%s/dev/block/%u:%u/queue", blockdev_sysfs_root(), lv->major, lv->minor);
    long n = lv->active && sysfs_line(dir, "logical_block_size", text, sizeof text) ? strtol(text, NULL, 10) : 0;
    return n >= 512 && n <= 65536 ? (uint32_t)n : 512;
}

/* ---- labels ---- */

struct labels {
    char *out;
    size_t n;
    bool full;
};

static void add_label(struct labels *l, const char *kind, const char *value)
{
    const size_t room = VOLUME_LABELS_MAX - l->n, need = strlen(kind) + strlen(value) + (l->n > 0);
    if (need >= room) {
        l->full = true;
        return;
    }
    l->n += (size_t)snprintf(l->out + l->n, room, "%s%s%s", l->n ? " " : "", kind, value);
}

static int add_tag(const char *tag, void *arg)
{
    if (!lvm_is_our_tag(tag))
        add_label(arg, "tag:", tag);
    return 0;
}

bool lvm_is_label(const char *word)
{
    return strncmp(word, "vg:", 3) == 0 || strncmp(word, "pool:", 5) == 0 || strncmp(word, "tag:", 4) == 0;
}

bool lvm_selects_labels(const struct driver_class *c)
{
    for (size_t i = 0; c->match && c->match[i]; i++)
        if (lvm_is_label(c->match[i]))
            return true;
    return false;
}

/* Whether one of the labels is matched by the word; labels have no blanks. */
static bool match_label(const char *word, const char *labels)
{
    char label[LVM_TAG_MAX + 8];
    while (*labels) {
        const size_t n = strcspn(labels, " ");
        if (n < sizeof label) {
            memcpy(label, labels, n);
            label[n] = '\0';
            if (fnmatch(word, label, FNM_PATHNAME) == 0)
                return true;
        }
        labels += n + (labels[n] == ' ');
    }
    return false;
}

bool lvm_is_matched(const struct driver_class *c, const struct volume *v)
{
    for (size_t i = 0; c->match && c->match[i]; i++)
        if (lvm_is_label(c->match[i]) ? match_label(c->match[i], v->labels)
                                      : fnmatch(c->match[i], v->name, FNM_PATHNAME) == 0)
            return true;
    return false;
}

bool lvm_describe(const struct lvm_lv *lv, struct volume *ret)
{
    struct labels l = {.out = ret->labels};
    memset(ret, 0, sizeof *ret);
    snprintf(ret->name, sizeof ret->name, "%s", lv->path);
    lvm_volume_id(lv, ret->id);
    if (lvm_is_thin(lv))
        snprintf(ret->pool, sizeof ret->pool, "%.120s/%.120s", lv->vg, lv->pool);
    else
        snprintf(ret->pool, sizeof ret->pool, "%s", lv->vg);
    add_label(&l, "vg:", lv->vg);
    if (lvm_is_thin(lv))
        add_label(&l, "pool:", ret->pool);
    lvm_each_tag(lv->tags, add_tag, &l);
    ret->size = lv->size;
    ret->allocated = UINT64_MAX;
    if (!lvm_is_thin(lv))
        ret->allocated = lv->size;
    else if (lv->data >= 0)
        ret->allocated = (uint64_t)((double)lv->size * (lv->data < 100 ? lv->data : 100) / 100);
    ret->sector = sector_of(lv);
    ret->block = true;
    ret->in_use = lv->open;
    return !l.full;
}

/* Two volumes with one id: the copy of a group that was imported without new UUIDs. */
static bool is_twin(const struct lvm_report *r, const struct lvm_lv *lv)
{
    for (size_t i = 0; i < r->n; i++)
        if (&r->lv[i] != lv && strcmp(r->lv[i].uuid, lv->uuid) == 0)
            return true;
    return false;
}

int lvm_refuse(const struct driver_class *c, const struct lvm_report *r, const struct lvm_lv *lv, struct err *e)
{
    CLEANUP_FREE struct lvm_tag *t = malloc(sizeof *t);
    if (!t)
        return err_nomem(e);
    if (lvm_tag_read(lv, t) == 0 && lvm_is_ours(lv, t))
        return err_set(e, ERR_USAGE, EINVAL, "%s is a volume of snapferry, not one to back up (it has an owner tag)",
                       lv->path);
    if (!is_kind(c, lv)) {
        const bool thin = lvm_is_thin(lv), ordinary = lvm_is_ordinary(lv) && lv->path[0];
        err_set(e, ERR_USAGE, EINVAL, "driver %s is not for %s: it is %s", c->driver, lv->path[0] ? lv->path : lv->name,
                thin              ? "a thin volume"
                : lvm_is_pool(lv) ? "a thin pool"
                : lvm_is_cow(lv)  ? "a snapshot"
                : ordinary        ? "not a thin volume"
                                  : "no volume that can be backed up");
        if (thin || ordinary)
            err_hint(e, "use a class of driver %s", thin ? LVM_THIN_NAME : LVM_THICK_NAME);
        return -EINVAL;
    }
    if (lv->merging)
        return err_plain(e, ERR_SOURCE, EBUSY, "a snapshot is being merged into %s: try again when that has ended",
                         lv->path);
    if (is_twin(r, lv)) {
        err_plain(e, ERR_SOURCE, ENOTUNIQ, "%s has the same UUID as another logical volume: neither is backed up",
                  lv->path);
        return err_hint(e, "one is in the copy of a volume group: vgimportclone(8) gives it other UUIDs");
    }
    return 0;
}

int lvm_describe_volume(const struct driver_class *c, const char *path, const struct lvm_report *r, struct volume *ret,
                        struct err *e)
{
    char vg[LVM_NAME_MAX], name[LVM_NAME_MAX];
    int rc = lvm_path_split(path, vg, name, e);
    const struct lvm_lv *lv = rc == 0 ? lvm_find(r, vg, name) : NULL;
    if (rc == 0 && !lv)
        rc = err_plain(e, ERR_NOT_FOUND, ENOENT, "no logical volume %s%s", path,
                       r->n ? "" : ": there is no such volume group, or it is empty");
    if (rc == 0)
        rc = lvm_refuse(c, r, lv, e);
    if (rc == 0)
        lvm_describe(lv, ret);
    return rc;
}

/* ---- pools ---- */

/* A pool that is read-only with metadata as full as that is read-only because of it, and sound. */
#define METADATA_FULL 89.0
#define EXTEND_METADATA "extend it: lvextend --poolmetadatasize +SIZE GROUP/POOL"

int lvm_pool_check(const struct lvm_report *r, const struct lvm_lv *pool, const char *what, struct err *e)
{
    (void)r;
    if (!pool)
        return err_plain(e, ERR_NOT_FOUND, ENOENT, "%s: its thin pool is missing", what);
    if (pool->check_needed) {
        err_plain(e, ERR_SOURCE, EIO, "%s: the metadata of thin pool %s/%s must be checked (needs_check)", what,
                  pool->vg, pool->name);
        return err_hint(e, "deactivate the pool and repair it: lvconvert --repair %.64s/%.64s, lvmthin(7)", pool->vg,
                        pool->name);
    }
    if (strcmp(pool->health, "metadata_read_only") == 0 && pool->metadata >= METADATA_FULL) {
        err_plain(e, ERR_NO_SPACE, ENOSPC, "%s: thin pool %s/%s is read-only: its metadata is %.1f %% full", what,
                  pool->vg, pool->name, pool->metadata);
        return err_hint(e, EXTEND_METADATA);
    }
    if (strcmp(pool->health, "metadata_read_only") == 0 || strcmp(pool->health, "failed") == 0 ||
        strcmp(pool->health, "out_of_data") == 0) {
        err_plain(e, strcmp(pool->health, "out_of_data") == 0 ? ERR_NO_SPACE : ERR_SOURCE, EROFS,
                  "%s: thin pool %s/%s is %s", what, pool->vg, pool->name,
                  pool->health[0] == 'o'   ? "out of data space"
                  : pool->health[0] == 'm' ? "read-only (its metadata could not be written)"
                                           : "failed");
        return err_hint(e, "%s",
                        pool->health[0] == 'o' ? "extend it: lvextend"
                                               : "see dmesg, and lvconvert --repair in lvmthin(7)");
    }
    if (pool->metadata >= LVM_POOL_FULL || pool->data >= LVM_POOL_FULL) {
        const bool metadata = pool->metadata >= LVM_POOL_FULL;
        err_plain(e, ERR_NO_SPACE, ENOSPC, "%s: %s of thin pool %s/%s is %.1f %% full", what,
                  metadata ? "the metadata" : "the data", pool->vg, pool->name, metadata ? pool->metadata : pool->data);
        return err_hint(e, metadata ? EXTEND_METADATA
                                    : "extend it: lvextend --size +SIZE GROUP/POOL, or remove snapshots");
    }
    return 0;
}

/* ---- devices ---- */

int lvm_activate(const struct lvm_lv *lv, const char *what, struct err *e)
{
    char full[2 * LVM_NAME_MAX + 2];
    if (lv->active)
        return 0;
    snprintf(full, sizeof full, "%s/%s", lv->vg, lv->name);
    const char *const args[] = {"lvchange", "--activate", "y", "--ignoreactivationskip", full, NULL};
    return lvm_change(what, args, e);
}

int lvm_deactivate(const struct lvm_lv *lv, const char *what, struct err *e)
{
    char full[2 * LVM_NAME_MAX + 2];
    if (!lv->active)
        return 0;
    snprintf(full, sizeof full, "%s/%s", lv->vg, lv->name);
    const char *const args[] = {"lvchange", "--activate", "n", full, NULL};
    return lvm_change(what, args, e);
}

/* By UUID, which LVM compares under its lock: never another volume that has got the name meanwhile. */
int lvm_remove_lv(const struct lvm_lv *lv, const char *what, struct err *e)
{
    char select[128];
    snprintf(select, sizeof select, "lv_uuid=%.64s", lv->uuid);
    const char *const args[] = {"lvremove", "--yes", "--select", select, lv->vg, NULL};
    return lvm_change(what, args, e);
}

/* Both UUIDs without their dashes. */
void lvm_dm_uuid(const struct lvm_lv *lv, const char *suffix, char out[LVM_DM_UUID_MAX])
{
    size_t n = (size_t)snprintf(out, 8, "LVM-");
    for (const char *s = lv->vg_uuid; *s && n < 150; s++)
        if (*s != '-')
            out[n++] = *s;
    for (const char *s = lv->uuid; *s && n < 150; s++)
        if (*s != '-')
            out[n++] = *s;
    snprintf(out + n, LVM_DM_UUID_MAX - n, "%.20s", suffix);
}

int lvm_open_device(const struct lvm_lv *lv, int flags, int *fd, struct err *e)
{
    struct stat st;
    char want[LVM_DM_UUID_MAX], have[256], dir[PATH_MAX];
    CLEANUP_CLOSE int f = open(lv->dm_path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (f < 0)
        return err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_SOURCE, errno, "cannot open %s", lv->dm_path);
    lvm_dm_uuid(lv, "", want);
    if (fstat(f, &st) < 0 || !S_ISBLK(st.st_mode) || !blockdev_sysfs(st.st_rdev, dir, sizeof dir) ||
        !sysfs_line(dir, "dm/uuid", have, sizeof have) || strcmp(have, want) != 0)
        return err_plain(e, ERR_SOURCE, ESTALE, "%s is not the device of logical volume %s/%s", lv->dm_path, lv->vg,
                         lv->name);
    *fd = take_fd(&f);
    return 0;
}

/* ---- objects of ours ---- */

static int find_in(const struct driver_class *c, const struct lvm_report *r, enum lvm_kind kind, const char *alias,
                   const struct lvm_lv **lv, struct lvm_tag *tag)
{
    for (size_t i = 0; i < r->n; i++)
        if (strstr(r->lv[i].tags, alias) && lvm_tag_read(&r->lv[i], tag) == 0 && tag->kind == kind &&
            strcmp(tag->tag.alias, alias) == 0 && strcmp(tag->node, c->node) == 0) {
            *lv = &r->lv[i];
            return 0;
        }
    return -ENOENT;
}

int lvm_find_ours_in(const struct driver_class *c, struct lvm_report *r, const char *path, enum lvm_kind kind,
                     const char *alias, const struct lvm_lv **lv, struct lvm_tag *tag, struct err *e)
{
    char vg[LVM_NAME_MAX], name[LVM_NAME_MAX];
    int rc = lvm_path_split(path, vg, name, e);
    if (rc == 0)
        rc = lvm_report_read(r, vg, e);
    return rc < 0 ? rc : find_in(c, r, kind, alias, lv, tag);
}

int lvm_find_ours(const struct driver_class *c, struct lvm_report *r, const char *hint, enum lvm_kind kind,
                  const char *alias, const struct lvm_lv **lv, struct lvm_tag *tag, struct err *e)
{
    char vg[LVM_NAME_MAX], name[LVM_NAME_MAX];
    if (!alias_valid(alias))
        return err_set(e, ERR_USAGE, EINVAL, "invalid alias \"%.64s\"", alias);
    if (hint && *hint && lvm_path_split(hint, vg, name, NULL) == 0) {
        int rc = lvm_report_read(r, vg, e);
        if (rc < 0)
            return rc;
        if (find_in(c, r, kind, alias, lv, tag) == 0)
            return 0;
        lvm_report_free(r);
    }
    /* The group was renamed, or there was no hint. */
    int rc = lvm_report_read(r, NULL, e);
    return rc < 0 ? rc : find_in(c, r, kind, alias, lv, tag);
}
