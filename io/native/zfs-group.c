/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * zfs-group.c - native snapshots of several volumes of a pool at one instant
 *
 * One command takes all of them in one transaction group, and sets one property on all of them: the tag of the group,
 * which has the alias of each by the guid of its volume. Then each gets the tag of its own. By the tag of the group is
 * found, and removed, what a kill leaves between both.
 *
 * Crash points: zfs-group-made, zfs-group-tagged (after each).
 */
#include "io/native/zfs.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "io/native/freeze.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char what[] = "cannot take the native snapshots of several volumes";

int zfs_group_domain(const struct driver_class *c, const struct volume *v, char ret[VOLUME_ID_MAX], struct err *e)
{
    char dataset[ZFS_NAME_MAX];
    struct zfs_pool pool;
    (void)c;
    ret[0] = '\0';
    int rc = zfs_path_split(v->name, dataset, e);
    if (rc == 0)
        rc = zfs_pool_read(&pool, dataset, e);
    if (rc == 0)
        snprintf(ret, VOLUME_ID_MAX, "zfs:%" PRIu64, pool.guid);
    return rc;
}

/* A volume among those of one instant. */
struct one {
    struct group_member *m;
    struct zfs_tag tag;
    char dataset[ZFS_NAME_MAX], snapshot[ZFS_NAME_MAX];
};

struct group {
    struct one *v;
    size_t n;
    struct zfs_pool pool;
};

/* ---- before ---- */

/* What an interrupted call has left of another instant. */
static int left_remove(const struct group_member *m, const char *dataset, struct err *e)
{
    CLEANUP_FREE struct native *n = malloc(sizeof *n);
    bool unfinished, gone;
    if (!n)
        return err_nomem(e);
    int rc = zfs_native_taken(m->c, dataset, m->tag->alias, n, &unfinished, e);
    if (rc == 0)
        rc = zfs_native_remove(m->c, n, &gone, e);
    return rc == -ENOENT ? 0 : rc;
}

static int one_prepare(struct group *g, struct group_member *m, struct err *e)
{
    struct one *x = &g->v[g->n];
    struct zfs_report r = ZFS_REPORT_INIT;
    const struct zfs_row *row;
    CLEANUP_FREE struct volume *now = malloc(sizeof *now);
    if (!now)
        return err_nomem(e);
    if (!alias_valid(m->tag->alias))
        return err_set(e, ERR_USAGE, EINVAL, "invalid alias \"%.64s\"", m->tag->alias);
    int rc = zfs_path_split(m->v->name, x->dataset, e);
    if (rc == 0)
        rc = left_remove(m, x->dataset, e);
    if (rc == 0)
        rc = zfs_volume_now(m->v, &r, &row, now, e);
    if (rc == 0)
        rc = zfs_native_name(x->dataset, m->tag->alias, m->v->name, x->snapshot, e);
    if (rc == 0 && !g->n)
        rc = zfs_pool_read(&g->pool, x->dataset, e);
    if (rc == 0) {
        zfs_native_tag(m->c, row, now, m->tag, g->pool.guid, &x->tag);
        x->m = m;
        g->n++;
    }
    zfs_report_free(&r);
    return rc;
}

/* ---- taking ---- */

static bool names(const char *message, const struct one *x)
{
    char quoted[ZFS_NAME_MAX + 2];
    snprintf(quoted, sizeof quoted, "'%s'", x->snapshot);
    if (strstr(message, quoted))
        return true;
    snprintf(quoted, sizeof quoted, "'%s'", x->dataset);
    return strstr(message, quoted) != NULL;
}

/* ZFS takes all or none, and names those for which it took none. False: it named none, or all. */
static bool leave_out(struct group *g, const struct err *why)
{
    size_t kept = 0;
    for (size_t i = 0; i < g->n; i++)
        kept += !names(why->msg, &g->v[i]);
    if (!kept || kept == g->n)
        return false;
    kept = 0;
    for (size_t i = 0; i < g->n; i++) {
        if (names(why->msg, &g->v[i]))
            g->v[i].m->err = *why;
        else if (kept++ != i)
            g->v[kept - 1] = g->v[i];
    }
    g->n = kept;
    return true;
}

static int group_option(const struct group *g, char *option, struct err *e)
{
    const struct zfs_tag *tags[ZFS_NAMES_MAX];
    CLEANUP_FREE char *value = malloc(ZFS_VALUE_MAX);
    if (!value)
        return err_nomem(e);
    for (size_t i = 0; i < g->n; i++)
        tags[i] = &g->v[i].tag;
    int rc = zfs_group_tag_write(tags, g->n, value, e);
    if (rc == 0)
        snprintf(option, ZFS_VALUE_MAX + 64, ZFS_OWNER "=%s", value);
    return rc == -E2BIG ? -ENOTSUP : rc;
}

static int group_try(struct group *g, struct err *e)
{
    CLEANUP_FREE char *option = malloc(ZFS_VALUE_MAX + 64);
    if (!option)
        return err_nomem(e);
    for (;;) {
        const char *args[ZFS_NAMES_MAX + 4] = {"snapshot", "-o", option};
        struct err why = ERR_INIT;
        int rc = group_option(g, option, e);
        if (rc < 0)
            return rc;
        for (size_t i = 0; i < g->n; i++)
            args[3 + i] = g->v[i].snapshot;
        rc = zfs_change(what, args, &why);
        if (rc == 0 || !leave_out(g, &why)) {
            if (rc < 0 && e)
                *e = why;
            return rc;
        }
    }
}

/* What is mounted from any of them is frozen when the first one is taken, and thaws when all are. */
static int group_take(struct group *g, struct err *e)
{
    const char *devices[ZFS_NAMES_MAX];
    for (size_t i = 0; i < g->n; i++)
        devices[i] = g->v[i].tag.tag.volume_name;
    struct frozen *frozen = freeze_devices(devices, g->n, g->v[0].m->c->unfrozen);
    int rc = group_try(g, e);
    frozen_thaw(frozen);
    crash_point("zfs-group-made");
    return rc;
}

/* ---- after ---- */

static void one_remove(const struct one *x)
{
    CLEANUP_FREE struct native *n = calloc(1, sizeof *n);
    struct err why = ERR_INIT;
    bool gone;
    if (!n)
        return;
    n->tag = x->tag.tag;
    memcpy(n->handle, x->snapshot, sizeof x->snapshot);
    if (zfs_native_remove(x->m->c, n, &gone, &why) < 0)
        log_warning("%s; the next sweep finds it", why.msg);
}

static int one_finish(const struct zfs_report *r, const struct one *x, struct err *e)
{
    const struct zfs_row *row = zfs_find(r, x->snapshot);
    CLEANUP_FREE char *value = malloc(ZFS_VALUE_MAX), *property = malloc(ZFS_VALUE_MAX + 64);
    if (!value || !property)
        return err_nomem(e);
    if (!row)
        return err_set(e, ERR_GENERIC, ENOENT, "native snapshot %s disappeared after its creation", x->tag.tag.alias);
    int rc = zfs_tag_write(&x->tag, value, e);
    if (rc < 0)
        return rc;
    snprintf(property, ZFS_VALUE_MAX + 64, ZFS_OWNER "=%s", value);
    const char *const args[] = {"set", property, x->snapshot, NULL};
    rc = zfs_change("cannot tag a native snapshot", args, e);
    crash_point("zfs-group-tagged");
    if (rc == 0)
        zfs_native_describe(row, &x->tag, x->m->ret);
    return rc;
}

static int group_finish(const struct group *g, struct err *e)
{
    const char *datasets[ZFS_NAMES_MAX];
    struct zfs_report r = ZFS_REPORT_INIT;
    for (size_t i = 0; i < g->n; i++)
        datasets[i] = g->v[i].dataset;
    int rc = zfs_report_snapshots(&r, datasets, g->n, e);
    for (size_t i = 0; i < g->n; i++)
        if (rc < 0 || one_finish(&r, &g->v[i], &g->v[i].m->err) < 0)
            one_remove(&g->v[i]);
    zfs_report_free(&r);
    return rc;
}

int zfs_group(struct group_member *m, size_t n, struct err *e)
{
    struct group g = {.n = 0};
    if (n > ZFS_NAMES_MAX) {
        err_plain(e, ERR_USAGE, ENOTSUP, "they are more than %d", ZFS_NAMES_MAX);
        return -ENOTSUP;
    }
    CLEANUP_FREE struct one *v = calloc(n, sizeof *v);
    if (!v)
        return err_nomem(e);
    g.v = v;
    for (size_t i = 0; i < n; i++)
        if (!m[i].err.cls)
            one_prepare(&g, &m[i], &m[i].err);
    if (!g.n)
        return 0;
    int rc = zfs_pool_check(&g.pool, what, e);
    if (rc == 0)
        rc = group_take(&g, e);
    if (rc == 0)
        rc = group_finish(&g, e);
    for (size_t i = 0; rc < 0 && i < n; i++)
        m[i].err = (struct err)ERR_INIT;
    return rc;
}
