/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * zfs-target.c - zvols to restore into
 *
 * A new volume is made under a name of ours beside its final name, filled, and renamed. A volume that exists is
 * replaced in the same way: it stays as it is until the new one is complete. A differential restore, or that of a
 * range, fills a clone of a snapshot that is taken for it; a restore from a native snapshot is a clone of that. Then
 * both change their names; the new one inherits the volume's id and all properties that were set on the old one. A
 * clone is promoted, by which its origin, and all older snapshots, become its own.
 *
 * The old volume is destroyed if it has no snapshots left: others' snapshots are never destroyed, and neither are
 * retained native ones. Else it stays, under its name of ours, and goes with the last of them (zfs_native_remove(), or
 * the next sweep).
 *
 * The order of a replacement: the old volume is tagged as replaced; gets a name of ours; the new one gets its final
 * name; is promoted; the old one is destroyed; the new one loses its owner tag. zfs_target_undo() takes back what came
 * before the new one had its name, and completes what came after.
 *
 * Crash points: zfs-target-base, zfs-target-made, zfs-target-marked, zfs-target-moved-away, zfs-target-renamed,
 * zfs-target-promoted, zfs-target-removed, zfs-target-untagged.
 */
#include "io/native/zfs.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OLD_SUFFIX "-old"
#define PROPERTIES_MAX 60
#define BLOCK_MAX ((uint64_t)128 << 10) /* whatever the default block size is, this is a multiple of it */

/* ---- what is there ---- */

/* Of one restore. Rows belong to `r`, of volumes; empty names: not there. */
struct found {
    struct zfs_report r;
    struct zfs_pool pool;
    const struct zfs_row *staging, *replaced, *final;
    struct zfs_tag staging_tag, replaced_tag;
    char base[ZFS_NAME_MAX];    /* a snapshot that was taken to be cloned */
    char dataset[ZFS_NAME_MAX]; /* with the final name */
};

static void found_freep(struct found **f)
{
    if (*f)
        zfs_report_free(&(*f)->r);
    free(*f);
}

struct looking {
    const char *alias;
    char staging[ZFS_NAME_MAX], replaced[ZFS_NAME_MAX], base[ZFS_NAME_MAX];
    struct zfs_tag staging_tag, replaced_tag;
};

static int look_one(const struct zfs_row *row, const struct zfs_row *volume, const struct zfs_tag *t, void *arg)
{
    struct looking *l = arg;
    (void)volume;
    if (strcmp(t->tag.alias, l->alias) != 0)
        return 0;
    if (t->kind == ZFS_STAGING && row->snapshot) {
        snprintf(l->base, sizeof l->base, "%s", row->name);
        if (!l->staging[0])
            l->staging_tag = *t;
    } else if (t->kind == ZFS_STAGING) {
        snprintf(l->staging, sizeof l->staging, "%s", row->name);
        l->staging_tag = *t;
    } else if (t->kind == ZFS_REPLACED && !row->snapshot) {
        snprintf(l->replaced, sizeof l->replaced, "%s", row->name);
        l->replaced_tag = *t;
    }
    return 0;
}

/* `final`: its path, or NULL: what the tags say. */
static int look(const struct driver_class *c, struct found **ret, const char *alias, const char *final, struct err *e)
{
    struct found *f = *ret ? *ret : calloc(1, sizeof *f);
    CLEANUP_FREE struct looking *l = calloc(1, sizeof *l);
    if (!f || !l) {
        if (!*ret)
            free(f);
        return err_nomem(e);
    }
    *ret = f;
    zfs_report_free(&f->r);
    *f = (struct found){.r = ZFS_REPORT_INIT};
    l->alias = alias;
    int rc = zfs_each(c, look_one, l, e);
    if (rc == 0)
        rc = zfs_report_read(&f->r, NULL, e);
    if (rc < 0)
        return rc;
    f->staging = l->staging[0] ? zfs_find(&f->r, l->staging) : NULL;
    f->replaced = l->replaced[0] ? zfs_find(&f->r, l->replaced) : NULL;
    f->staging_tag = l->staging_tag;
    f->replaced_tag = l->replaced_tag;
    memcpy(f->base, l->base, sizeof f->base);
    if (!final)
        final = f->staging_tag.final[0] ? f->staging_tag.final : f->replaced_tag.final;
    if (*final && (rc = zfs_path_split(final, f->dataset, e)) < 0)
        return rc;
    f->final = f->dataset[0] ? zfs_find(&f->r, f->dataset) : NULL;
    return f->dataset[0] ? zfs_pool_read(&f->pool, f->dataset, e) : 0;
}

static void our_name(const char *dataset, const char *alias, const char *suffix, char ret[2 * ZFS_NAME_MAX])
{
    char parent[ZFS_NAME_MAX];
    zfs_parent_of(dataset, parent);
    snprintf(ret, 2 * ZFS_NAME_MAX, "%s/" ZFS_PREFIX "%s%s", parent, alias, suffix);
}

static int rename_to(const char *from, const char *to, const char *what, struct err *e)
{
    const char *const args[] = {"rename", from, to, NULL};
    int rc = zfs_change(what, args, e);
    if (rc == 0) {
        zfs_settle(from, false);
        zfs_settle(to, true);
    }
    return rc;
}

static int drop_owner(const char *dataset, const char *what, struct err *e)
{
    const char *const args[] = {"inherit", ZFS_OWNER, dataset, NULL};
    return zfs_change(what, args, e);
}

/* ---- making ---- */

static int final_path(const struct driver_class *c, const char *name, char ret[VOLUME_NAME_MAX],
                      char dataset[ZFS_NAME_MAX], struct err *e)
{
    char target[ZFS_NAME_MAX];
    int rc = 0;
    if (name[0] == '/') {
        if (strlen(name) >= VOLUME_NAME_MAX)
            return err_set(e, ERR_USAGE, ENAMETOOLONG, "the name of the restore target is too long");
        snprintf(ret, VOLUME_NAME_MAX, "%s", name);
    } else {
        rc = zfs_class_target(c, target, e);
        if (rc == 0 && !target[0])
            rc = err_set(e, ERR_USAGE, EINVAL,
                         "storage class \"%s\" has no target: use the path of the volume, " ZFS_DEV "POOL/%.128s",
                         c->name, name);
        if (rc == 0)
            snprintf(ret, VOLUME_NAME_MAX, ZFS_DEV "%s/%.256s", target, name);
    }
    if (rc == 0)
        rc = zfs_path_split(ret, dataset, e);
    if (rc == 0 && zfs_has_our_name(dataset))
        rc = err_set(e, ERR_USAGE, EINVAL, "%s: names that begin with " ZFS_PREFIX " are reserved", ret);
    return rc;
}

static int owner_option(const struct driver_class *c, const struct found *f, const struct restore_target *t,
                        const char *alias, enum target_use use, char ret[ZFS_VALUE_MAX + 64], struct err *e)
{
    CLEANUP_FREE struct zfs_tag *tag = calloc(1, sizeof *tag);
    CLEANUP_FREE char *value = malloc(ZFS_VALUE_MAX);
    if (!tag || !value)
        return err_nomem(e);
    tag->kind = ZFS_STAGING;
    snprintf(tag->tag.alias, sizeof tag->tag.alias, "%s", alias);
    snprintf(tag->tag.volume_name, sizeof tag->tag.volume_name, "%s", t->final);
    snprintf(tag->tag.volume_id, sizeof tag->tag.volume_id, "zfs:0");
    tag->tag.created_ns = now_ns();
    tag->size = t->size;
    tag->overwrite = use == TARGET_REPLACE || (f->final && use != TARGET_NEW);
    tag->thick = f->final && f->final->reserved;
    tag->pool = f->pool.guid;
    snprintf(tag->node, sizeof tag->node, "%s", c->node);
    snprintf(tag->final, sizeof tag->final, "%s", t->final);
    int rc = zfs_tag_write(tag, value, e);
    if (rc == 0)
        snprintf(ret, ZFS_VALUE_MAX + 64, ZFS_OWNER "=%s", value);
    return rc;
}

/* ZFS takes multiples of the block size. */
static uint64_t zfs_size(uint64_t size, uint64_t block)
{
    return size ? (size + block - 1) / block * block : block;
}

static int make_new(const struct found *f, const struct restore_target *t, const char *staging, const char *option,
                    const char *what, struct err *e)
{
    char size[32], block[32];
    const uint64_t own = f->final ? f->final->block : 0;
    snprintf(size, sizeof size, "%" PRIu64, zfs_size(t->size, own ? own : BLOCK_MAX));
    snprintf(block, sizeof block, "volblocksize=%" PRIu64, own);
    const char *args[] = {"create", "-s", "-V", size, "-o", "volmode=dev", "-o", option, staging, NULL, NULL, NULL};
    if (own) { /* of the volume that it replaces */
        args[8] = "-o";
        args[9] = block;
        args[10] = staging;
    }
    int rc = zfs_change(what, args, e);
    crash_point("zfs-target-made");
    return rc;
}

static int make_clone(const char *of, const char *staging, const char *option, const char *what, struct err *e)
{
    const char *const args[] = {"clone", "-o", "volmode=dev", "-o", "readonly=off", "-o", option, of, staging, NULL};
    int rc = zfs_change(what, args, e);
    crash_point("zfs-target-made");
    return rc;
}

/* The state of the volume at this moment, to be cloned. */
static int make_base(struct found *f, const char *alias, const char *option, const char *what, struct err *e)
{
    char name[2 * ZFS_NAME_MAX];
    if (f->base[0])
        return 0;
    if (snprintf(name, sizeof name, "%s@" ZFS_PREFIX "%s", f->final->name, alias) >= ZFS_NAME_MAX)
        return err_set(e, ERR_USAGE, ENAMETOOLONG, "%s: the name of a snapshot would be too long", what);
    const char *const args[] = {"snapshot", "-o", option, name, NULL};
    int rc = zfs_change(what, args, e);
    crash_point("zfs-target-base");
    if (rc == 0)
        snprintf(f->base, sizeof f->base, "%.*s", ZFS_NAME_MAX - 1, name);
    return rc;
}

static int make(const struct driver_class *c, struct found *f, const struct restore_target *t, const char *alias,
                enum target_use use, const char *clone_of, const char *what, struct err *e)
{
    char staging[2 * ZFS_NAME_MAX];
    CLEANUP_FREE char *option = malloc(ZFS_VALUE_MAX + 64);
    if (!option)
        return err_nomem(e);
    int rc = zfs_pool_check(&f->pool, what, e);
    if (rc == 0)
        rc = owner_option(c, f, t, alias, use, option, e);
    our_name(f->dataset, alias, "", staging);
    if (rc == 0 && strlen(staging) + sizeof OLD_SUFFIX >= ZFS_NAME_MAX)
        rc = err_set(e, ERR_USAGE, ENAMETOOLONG, "%s: the name of its staging volume would be too long", what);
    if (rc < 0)
        return rc;
    if (clone_of)
        return make_clone(clone_of, staging, option, what, e);
    if (!f->final || (use != TARGET_UPDATE && use != TARGET_PATCH))
        return make_new(f, t, staging, option, what, e);
    rc = make_base(f, alias, option, what, e);
    return rc < 0 ? rc : make_clone(f->base, staging, option, what, e);
}

static int check_existing(const struct zfs_row *row, bool overwrite, struct err *e)
{
    char by[512];
    if (!overwrite) {
        err_plain(e, ERR_TARGET, EEXIST, "restore target " ZFS_DEV "%s exists (%" PRIu64 " bytes)", row->name,
                  row->size);
        err_hint(e, "use another name, or allow it to be overwritten");
        return -EEXIST;
    }
    if (!zfs_used(row->name, by, sizeof by))
        return 0;
    err_plain(e, ERR_TARGET, EBUSY, "restore target " ZFS_DEV "%s is in use: %s", row->name, by);
    err_hint(e, "unmount it, or stop its user");
    return -EBUSY;
}

/* A differential restore needs the size that is asked for. */
static int resize(const struct zfs_row *row, uint64_t size, const char *what, struct err *e)
{
    char text[64];
    if (row->size >= size)
        return 0;
    snprintf(text, sizeof text, "volsize=%" PRIu64, zfs_size(size, row->block ? row->block : 512));
    const char *const args[] = {"set", text, row->name, NULL};
    return zfs_change(what, args, e);
}

static int wait_for_device(const char *dataset, struct err *e)
{
    int fd = -1;
    int rc = zfs_open_device(dataset, O_RDONLY, &fd, e);
    if (fd >= 0)
        close(fd);
    return rc;
}

int zfs_target(const struct driver_class *c, const char *name, uint64_t size, const char *alias, enum target_use use,
               struct restore_target *ret, struct err *e)
{
    char what[512], dataset[ZFS_NAME_MAX];
    CLEANUP(found_freep) struct found *f = NULL;
    memset(ret, 0, sizeof *ret);
    ret->size = size;
    if (!alias_valid(alias))
        return err_set(e, ERR_USAGE, EINVAL, "invalid alias \"%.64s\"", alias);
    int rc = final_path(c, name, ret->final, dataset, e);
    if (rc == 0)
        rc = look(c, &f, alias, ret->final, e);
    if (rc < 0)
        return rc;
    snprintf(what, sizeof what, "cannot make restore target %.300s", ret->final);
    if (f->final && f->final != f->staging && (rc = check_existing(f->final, use != TARGET_NEW, e)) < 0)
        return rc;
    if (use == TARGET_PATCH && f->final && f->final->size > size)
        ret->size = f->final->size;
    if (!f->staging) {
        rc = make(c, f, ret, alias, use, NULL, what, e);
        if (rc == 0)
            rc = look(c, &f, alias, ret->final, e);
        if (rc == 0 && !f->staging)
            rc = err_set(e, ERR_GENERIC, ENOENT, "restore target %s disappeared after its creation", ret->final);
    }
    if (rc == 0)
        rc = resize(f->staging, ret->size, what, e);
    if (rc == 0)
        rc = wait_for_device(f->staging->name, e);
    if (rc < 0)
        return rc;
    zfs_path(f->staging->name, ret->path);
    char handle[2 * ZFS_NAME_MAX];
    our_name(dataset, alias, "", handle);
    zfs_path(handle, ret->handle);
    return 0;
}

/* ---- into place ---- */

static int alias_of(const struct restore_target *t, char ret[ALIAS_LEN + 1], struct err *e)
{
    const size_t n = strlen(t->handle);
    if (n > ALIAS_LEN && alias_valid(t->handle + n - ALIAS_LEN)) {
        memcpy(ret, t->handle + n - ALIAS_LEN, ALIAS_LEN + 1);
        return 0;
    }
    return err_set(e, ERR_USAGE, EINVAL, "\"%.512s\" is not a staging volume of a restore", t->handle);
}

static int sync_device(const struct zfs_row *row, struct err *e)
{
    int fd = -1;
    int rc = zfs_open_device(row->name, O_RDWR, &fd, e);
    if (rc == 0 && fsync(fd) < 0)
        rc = err_set(e, ERR_TARGET, errno, "cannot sync restore target " ZFS_DEV "%s", row->name);
    if (fd >= 0)
        close(fd);
    return rc;
}

static int mark_replaced(const struct found *f, const struct zfs_row *old, const char *what, struct err *e)
{
    CLEANUP_FREE struct zfs_tag *t = malloc(sizeof *t);
    CLEANUP_FREE char *value = malloc(ZFS_VALUE_MAX), *option = malloc(ZFS_VALUE_MAX + 64);
    if (!t || !value || !option)
        return err_nomem(e);
    *t = f->staging_tag;
    t->kind = ZFS_REPLACED;
    t->size = old->size;
    int rc = zfs_tag_write(t, value, e);
    if (rc == 0) {
        snprintf(option, ZFS_VALUE_MAX + 64, ZFS_OWNER "=%s", value);
        const char *const args[] = {"set", option, old->name, NULL};
        rc = zfs_change(what, args, e);
    }
    crash_point("zfs-target-marked");
    return rc;
}

/* Not to be copied from one volume to another: what the new one has, and what is ours. */
static bool is_own_affair(const char *property)
{
    static const char *const own[] = {"volsize",     "volblocksize", "refreservation", "reservation",
                                      "keylocation", "keyformat",    "pbkdf2iters",    "encryption",
                                      "readonly",    "snapdev",      "mlslabel"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(property, own[i]) == 0)
            return true;
    return strncmp(property, "snapferry:", 10) == 0 && strcmp(property, ZFS_WORDS) != 0;
}

/* What the administrator has set on the old volume is set on the new one; a value with line ends is not copied. */
static int copy_properties(const struct zfs_row *old, const struct zfs_row *new, const char *what, struct err *e)
{
    CLEANUP_FREE char *out = NULL;
    static char verb[] = "set";
    char *set[PROPERTIES_MAX + 3] = {verb, NULL};
    const char *const get[] = {"get", "-Hp", "-s", "local,received", "-o", "property,value", "all", old->name, NULL};
    struct err why = ERR_INIT;
    size_t n = 1;
    int rc = zfs_look(get, &out, e);
    if (rc == -ENOENT)
        return err_plain(e, ERR_NOT_FOUND, ENOENT, "%s: %s has disappeared", what, old->name);
    for (char *rest = out, *line; rc == 0 && rest && (line = strsep(&rest, "\n"));) {
        const char *property = strsep(&line, "\t");
        if (!line || !*property || is_own_affair(property) || n > PROPERTIES_MAX)
            continue;
        if (asprintf(&set[n], "%s=%s", property, line) < 0)
            rc = err_nomem(e);
        else
            n++;
    }
    set[n] = (char *)(uintptr_t) new->name;
    set[n + 1] = NULL;
    if (rc == 0 && n > 1 && zfs_change(what, (const char *const *)set, &why) < 0)
        log_warning("the properties of %s are not set on the volume that replaces it: %s", old->name, why.msg);
    while (n > 1)
        free(set[--n]);
    return rc;
}

static int inherit(const struct found *f, const struct zfs_row *old, const char *alias, const char *what, struct err *e)
{
    char id[VOLUME_ID_MAX];
    CLEANUP_FREE char *value = malloc(ZFS_VALUE_MAX), *option = malloc(ZFS_VALUE_MAX + 64);
    if (!value || !option)
        return err_nomem(e);
    zfs_volume_id(old ? old : f->staging, id);
    zfs_inherited_write(id, f->staging->guid, alias, value);
    snprintf(option, ZFS_VALUE_MAX + 64, ZFS_VOLUME "=%s", value);
    const char *const set[] = {"set", option, f->staging->name, NULL};
    const char *const volmode[] = {"inherit", "volmode", f->staging->name, NULL};
    int rc = zfs_change(what, set, e);
    if (rc == 0)
        rc = zfs_change(what, volmode, e);
    return rc == 0 && old ? copy_properties(old, f->staging, what, e) : rc;
}

static bool has_snapshots(const char *dataset, bool *ret, struct err *e)
{
    struct zfs_report r = ZFS_REPORT_INIT;
    const bool known = zfs_report_read(&r, dataset, e) == 0;
    *ret = r.n > 1;
    zfs_report_free(&r);
    return known;
}

static int promote(const struct found *f, const struct zfs_row *new, struct err *e)
{
    struct err why = ERR_INIT;
    char origin[ZFS_NAME_MAX], what[512];
    const char *const args[] = {"promote", new->name, NULL};
    zfs_dataset_of(new->origin, origin);
    if (!f->replaced || strcmp(origin, f->replaced->name) != 0)
        return 0;
    snprintf(what, sizeof what, "cannot promote %.300s", new->name);
    if (zfs_change(what, args, &why) < 0) /* two snapshots of one name: the old volume has to stay then */
        log_warning("%s; %s stays", why.msg, f->replaced->name);
    (void)e;
    crash_point("zfs-target-promoted");
    return 0;
}

/* The new volume has its final name: what is left to do, at once or by whoever finds it. */
static int complete(const struct driver_class *c, struct found **at, const char *alias, const char *what, struct err *e)
{
    struct found *f = *at;
    const struct zfs_row *new = f->staging ? f->staging : f->final;
    struct err why = ERR_INIT;
    bool kept = false;
    int rc = new &&new->origin[0] ? promote(f, new, e) : 0;
    if (rc == 0)
        rc = look(c, at, alias, NULL, e);
    if (rc < 0)
        return rc;
    f = *at;
    if (f->replaced && zfs_has_our_name(f->replaced->name)) {
        if (!has_snapshots(f->replaced->name, &kept, e))
            return -EIO;
        if (!kept)
            rc = zfs_destroy(f->replaced, false, what, e);
        else
            log_info("%s has snapshots and stays until they are removed: it is what %s was before the restore",
                     f->replaced->name, f->replaced_tag.final);
        crash_point("zfs-target-removed");
    }
    if (rc == 0 && f->base[0]) {
        const char *const args[] = {"destroy", f->base, NULL};
        /* Not promoted: the new volume depends on it. */
        if (zfs_change(what, args, &why) < 0)
            log_warning("%s", why.msg);
    }
    if (rc == 0 && f->staging && f->staging_tag.thick) {
        const char *const args[] = {"set", "refreservation=auto", f->staging->name, NULL};
        if (zfs_change(what, args, &why) < 0)
            log_warning("%s: it is thin now", why.msg);
    }
    if (rc == 0 && f->staging)
        rc = drop_owner(f->staging->name, what, e);
    crash_point("zfs-target-untagged");
    return rc;
}

static bool is_restored_by(const struct zfs_row *row, const char *alias)
{
    return row && zfs_restored_by(row, alias);
}

static int put_into_place(const struct driver_class *c, struct found **at, const struct restore_target *t,
                          const char *alias, const char *what, struct err *e)
{
    char old_name[2 * ZFS_NAME_MAX];
    struct found *f = *at;
    const struct zfs_row *old = f->replaced ? f->replaced : f->final;
    int rc = 0;
    if (strcmp(f->staging_tag.final, t->final) != 0)
        return err_set(e, ERR_USAGE, EINVAL, "%s was made for %s, not for %s", t->handle, f->staging_tag.final,
                       t->final);
    if (f->staging->size < t->size)
        return err_set(e, ERR_TARGET, 0, "%s has %" PRIu64 " bytes, not %" PRIu64, t->handle, f->staging->size,
                       t->size);
    if (f->final && f->final != f->replaced && f->replaced)
        return err_plain(e, ERR_TARGET, EEXIST, "%s: another volume has got that name meanwhile", what);
    if (f->final)
        rc = check_existing(f->final, f->replaced || f->staging_tag.overwrite, e);
    if (rc == 0)
        rc = inherit(f, old, alias, what, e);
    if (rc == 0 && old && !f->replaced)
        rc = mark_replaced(f, old, what, e);
    if (rc == 0 && f->final) {
        our_name(f->dataset, alias, OLD_SUFFIX, old_name);
        rc = rename_to(f->final->name, old_name, what, e);
        crash_point("zfs-target-moved-away");
    }
    if (rc == 0) {
        rc = rename_to(f->staging->name, f->dataset, what, e);
        crash_point("zfs-target-renamed");
    }
    if (rc == 0)
        rc = look(c, at, alias, t->final, e);
    return rc < 0 ? rc : complete(c, at, alias, what, e);
}

int zfs_target_commit(const struct driver_class *c, const struct restore_target *t, struct err *e)
{
    char what[512], alias[ALIAS_LEN + 1];
    CLEANUP(found_freep) struct found *f = NULL;
    snprintf(what, sizeof what, "cannot put restore target %.300s into place", t->final);
    int rc = alias_of(t, alias, e);
    if (rc == 0)
        rc = look(c, &f, alias, t->final, e);
    /* That may take minutes: whether the volume is in use is looked at afterwards. */
    if (rc == 0 && f->staging && zfs_has_our_name(f->staging->name)) {
        rc = sync_device(f->staging, e);
        if (rc == 0)
            rc = look(c, &f, alias, t->final, e);
    }
    if (rc < 0)
        return rc;
    if (f->staging && zfs_has_our_name(f->staging->name))
        return put_into_place(c, &f, t, alias, what, e);
    if (is_restored_by(f->final, alias))
        return complete(c, &f, alias, what, e);
    return err_plain(e, ERR_NOT_FOUND, ENOENT, "no staging volume %s", t->handle);
}

/* Before the new volume had its name: the old one gets it back. */
static int take_back(const struct found *f, const char *what, struct err *e)
{
    const char *name = f->replaced ? f->replaced->name : "";
    int rc = 0;
    if (f->replaced && zfs_has_our_name(name) && !f->final) {
        rc = rename_to(name, f->dataset, what, e);
        name = f->dataset;
    }
    /* Under a name of ours only if somebody else has taken the volume's: then it stays for the administrator. */
    if (rc == 0 && f->replaced && zfs_has_our_name(name))
        log_warning("%s is the volume that was %s, a name that another volume has got: it is left alone", name,
                    f->replaced_tag.final);
    if (rc == 0 && f->replaced)
        rc = drop_owner(name, what, e);
    if (rc == 0 && f->staging)
        rc = zfs_destroy(f->staging, true, what, e);
    return rc;
}

int zfs_target_undo(const struct driver_class *c, const char *alias, struct err *e)
{
    char what[512];
    CLEANUP(found_freep) struct found *f = NULL;
    int rc = look(c, &f, alias, NULL, e);
    if (rc < 0 || (!f->staging && !f->replaced && !f->base[0]))
        return rc;
    snprintf(what, sizeof what, "cannot remove the restore target of %s", alias);
    if ((f->staging && !zfs_has_our_name(f->staging->name)) || is_restored_by(f->final, alias))
        return complete(c, &f, alias, what, e); /* it has its final name */
    rc = take_back(f, what, e);
    if (rc == 0)
        rc = look(c, &f, alias, NULL, e); /* the snapshot has got another name with its volume */
    if (rc == 0 && f->base[0]) {
        const char *const args[] = {"destroy", f->base, NULL};
        rc = zfs_change(what, args, e);
    }
    return rc;
}

int zfs_target_abort(const struct driver_class *c, const struct restore_target *t, struct err *e)
{
    char alias[ALIAS_LEN + 1];
    int rc = alias_of(t, alias, e);
    return rc < 0 ? rc : zfs_target_undo(c, alias, e);
}

/* ---- from a native snapshot ---- */

int zfs_target_from_native(const struct driver_class *c, const struct native *n, const struct restore_target *t,
                           const struct fill *how, struct err *e)
{
    (void)how; /* it is a clone */
    char alias[ALIAS_LEN + 1], what[512], pool[ZFS_NAME_MAX];
    CLEANUP(found_freep) struct found *f = NULL;
    struct zfs_report r = ZFS_REPORT_INIT;
    const struct zfs_row *of = NULL;
    CLEANUP_FREE struct zfs_tag *tag = malloc(sizeof *tag);
    if (!tag)
        return err_nomem(e);
    snprintf(what, sizeof what, "cannot fill restore target %.300s", t->final);
    int rc = alias_of(t, alias, e);
    if (rc == 0)
        rc = look(c, &f, alias, t->final, e);
    if (rc < 0)
        return rc;
    if (!f->staging)
        return err_plain(e, ERR_NOT_FOUND, ENOENT, "no staging volume %s", t->handle);
    rc = zfs_find_ours(c, &r, n->handle, ZFS_NATIVE, n->tag.alias, &of, tag, e);
    if (rc == -ENOENT)
        rc = err_plain(e, ERR_NOT_FOUND, ENOENT, "native snapshot %s of %s is no longer on the storage", n->tag.alias,
                       n->tag.volume_name);
    if (rc == 0)
        rc = zfs_native_healthy(of, tag, e);
    zfs_pool_of(f->dataset, pool);
    if (rc == 0 && (strncmp(of->name, pool, strlen(pool)) != 0 || of->name[strlen(pool)] != '/')) {
        err_set(e, ERR_USAGE, ENOTSUP, "%s from native snapshot %s: that is in another pool", what, n->tag.alias);
        rc = err_hint(e, "restore from the repository: --from repository");
    }
    if (rc == 0 && tag->size != t->size)
        rc = err_set(e, ERR_USAGE, EINVAL, "native snapshot %s has %" PRIu64 " bytes, the target %" PRIu64, of->name,
                     tag->size, t->size);
    if (rc == 0 && strcmp(f->staging->origin, of->name) != 0) { /* else done by an earlier call */
        rc = zfs_destroy(f->staging, true, what, e);
        if (rc == 0)
            rc = make(c, f, t, alias, f->staging_tag.overwrite ? TARGET_REPLACE : TARGET_NEW, of->name, what, e);
        if (rc == 0)
            rc = look(c, &f, alias, t->final, e);
        if (rc == 0 && !f->staging)
            rc = err_set(e, ERR_GENERIC, ENOENT, "restore target %s disappeared after its creation", t->final);
    }
    if (rc == 0)
        rc = wait_for_device(f->staging->name, e);
    zfs_report_free(&r);
    return rc;
}
