/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lvm-changed.c - what differs between two thin snapshots, and what is mapped in one
 *
 * dm-thin never writes into a block that two devices of a pool share. So where both snapshots have the same block of
 * the pool, or none, they have the same data; thin_delta(8) lists all else, in chunks of the pool: blocks that differ,
 * and those that only one of them has (written for the first time, discarded). That both snapshots are what LVM calls
 * them is checked in the pool's metadata itself: ids of thin devices are reused, but the transaction of the pool in
 * which a device was created is not.
 *
 * The programs read the metadata snapshot of the pool (lvm-metadata.c), and run as all tools of LVM do.
 */
#include "io/native/lvm.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "io/native/thin-xml.h"
#include "proc/program.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PRINT_SECONDS 600
#define PRINT_MAX ((size_t)4 << 30) /* bytes of XML, which are not kept */

static const char thin_delta[] = "/usr/sbin/thin_delta";
static const char thin_dump[] = "/usr/sbin/thin_dump";
static const char dmsetup[] = "/usr/sbin/dmsetup";

/* ---- the programs ---- */

static int print_feed(const void *part, size_t len, void *parser, struct err *e)
{
    return thin_parser_feed(parser, part, len, e);
}

static int print_read(const char *const *argv, const struct thin_wanted *w, struct thin_device *ret, struct err *e)
{
    struct thin_parser *parser CLEANUP(thin_parser_freep) = NULL;
    int rc = thin_parser_new(&parser, w, e);
    if (rc < 0)
        return rc;
    const struct program p = {.argv = (char *const *)(uintptr_t)argv,
                              .env = lvm_environment,
                              .label = strrchr(argv[0], '/') + 1,
                              .out_max = PRINT_MAX,
                              .sink = print_feed,
                              .sink_arg = parser,
                              .timeout_s = PRINT_SECONDS};
    rc = program_run(&p, NULL, NULL, NULL, e);
    return rc < 0 ? rc : thin_parser_end(parser, ret, e);
}

static bool is_missing(const char *path, struct changed_answer *a)
{
    if (access(path, X_OK) == 0)
        return false;
    changed_doubt(a, CHANGED_UNSUPPORTED, "cannot run %s: %s; install thin-provisioning-tools", path, strerror(errno));
    return true;
}

/* Whether the device with that id in the pool's metadata is the one that LVM created. */
static int device_check(const struct lvm_metadata *m, const struct lvm_lv *lv, struct thin_device *ret,
                        struct changed_answer *a, struct err *e)
{
    const char *const argv[] = {thin_dump,         "--metadata-snap", "--dev-id", lv->thin_id,
                                "--skip-mappings", m->device,         NULL};
    const struct thin_wanted w = {
        .print = THIN_DUMP, .id = strtoull(lv->thin_id, NULL, 10), .block_bytes = m->block_bytes};
    int rc = print_read(argv, &w, ret, e);
    if (rc < 0 || ret->transaction == strtoull(lv->transaction, NULL, 10))
        return rc;
    return changed_doubt(a, CHANGED_BASE_OTHER,
                         "thin device %s of pool %s is not %s: it was created in transaction %" PRIu64
                         " of the pool, and not in %s",
                         lv->thin_id, m->pool, lv->path, ret->transaction, lv->transaction);
}

/* ---- what differs ---- */

void lvm_change_id(const struct lvm_report *r, const struct lvm_lv *lv, char ret[CHANGE_ID_MAX])
{
    const struct lvm_lv *pool = lvm_is_thin(lv) ? lvm_find(r, lv->vg, lv->pool) : NULL;
    ret[0] = '\0';
    if (pool && lv->thin_id[0] && lv->transaction[0])
        snprintf(ret, CHANGE_ID_MAX, "%.63s.%.20s.%.20s.%.63s", lv->uuid, lv->thin_id, lv->transaction, pool->uuid);
}

static int range_changed(uint64_t begin, uint64_t blocks, uint64_t block_bytes, void *list, struct err *e)
{
    return changes_add(list, begin * block_bytes, blocks * block_bytes, e);
}

/* "0 262144 thin 253:2 3": pool, id, and what is read where nothing is mapped, if that is not zeros. */
static int origin_check(const struct lvm_lv *lv, struct err *e)
{
    char uuid[LVM_DM_UUID_MAX], id[24] = "", origin[64] = "";
    lvm_dm_uuid(lv, "", uuid);
    const char *const argv[] = {dmsetup, "table", "--uuid", uuid, NULL};
    CLEANUP_FREE char *out = NULL;
    int rc = lvm_tool_run("dmsetup table", argv, false, &out, NULL, NULL, e);
    if (rc < 0)
        return rc;
    const int n = sscanf(out, "%*u %*u thin %*s %23s %63s", id, origin);
    if (n < 1 || strcmp(id, lv->thin_id) != 0)
        return err_plain(e, ERR_SOURCE, EIO, "the table of %s is not that of thin device %s", lv->path, lv->thin_id);
    if (n > 1)
        return err_plain(e, ERR_SOURCE, ENOTSUP, "%s has an external origin: what is not mapped is not zero", lv->path);
    return 0;
}

static int range_gone(uint64_t begin, uint64_t blocks, uint64_t block_bytes, void *list, struct err *e)
{
    return changes_add_zeros(list, begin * block_bytes, blocks * block_bytes, e);
}

/* What was discarded since is zeros, but for an external origin. */
static thin_range_fn *zeros_known(const struct lvm_lv *new)
{
    struct err why = ERR_INIT;
    if (origin_check(new, &why) == 0)
        return range_gone;
    log_debug("%s: what was discarded is read, too: %s", new->path, why.msg);
    return NULL;
}

static int delta_read(const struct lvm_metadata *m, const struct lvm_lv *base, const struct lvm_lv *new,
                      struct changes *list, struct changed_answer *ret, struct err *e)
{
    const char *const argv[] = {thin_delta, "--metadata-snap", "--snap1", base->thin_id,
                                "--snap2",  new->thin_id,      m->device, NULL};
    const struct thin_wanted w = {.print = THIN_DELTA,
                                  .id = strtoull(base->thin_id, NULL, 10),
                                  .right = strtoull(new->thin_id, NULL, 10),
                                  .block_bytes = m->block_bytes,
                                  .fn = range_changed,
                                  .gone = zeros_known(new),
                                  .arg = list};
    struct thin_device d;
    int rc = device_check(m, base, &d, ret, e);
    if (rc == 0 && ret->state == CHANGED_LISTED)
        rc = device_check(m, new, &d, ret, e);
    if (rc == 0 && ret->state == CHANGED_LISTED)
        rc = print_read(argv, &w, NULL, e);
    crash_point("lvm-metadata-read");
    return rc < 0 || ret->state != CHANGED_LISTED ? rc : lvm_metadata_check(m, ret, e);
}

/* With the metadata snapshot, which is released in any case. */
static int delta_list(const struct driver_class *c, const struct lvm_lv *base, const struct lvm_lv *new,
                      struct changes *list, struct changed_answer *ret, struct err *e)
{
    struct lvm_metadata m;
    struct err after = ERR_INIT;
    if (is_missing(thin_delta, ret) || is_missing(thin_dump, ret))
        return 0;
    int rc = lvm_metadata_reserve(c, new->vg, new->pool, &m, ret, e);
    if (rc < 0 || ret->state != CHANGED_LISTED)
        return rc;
    rc = delta_read(&m, base, new, list, ret, e);
    /* What was listed is right all the same; the next sweep releases it. */
    if (lvm_metadata_release(&m, &after) < 0)
        log_warning("%s", after.msg);
    return rc;
}

static int pair_check(const struct lvm_lv *base, const struct lvm_lv *new, struct changed_answer *a)
{
    if (!lvm_is_thin(base) || !lvm_is_thin(new) || !base->thin_id[0] || !new->thin_id[0])
        return changed_doubt(a, CHANGED_UNSUPPORTED, "%s and %s are not both thin snapshots", base->path, new->path);
    if (strcmp(base->vg_uuid, new->vg_uuid) != 0 || strcmp(base->pool, new->pool) != 0)
        return changed_doubt(a, CHANGED_BASE_OTHER, "%s and %s are in different thin pools", base->path, new->path);
    if ((base->attr[1] != 'r' && base->attr[1] != 'R') || (new->attr[1] != 'r' && new->attr[1] != 'R'))
        return changed_doubt(a, CHANGED_BASE_OTHER, "%s has been made writable",
                             base->attr[1] == 'w' ? base->path : new->path);
    return 0;
}

int lvm_changed(const struct driver_class *c, const struct native *base, const struct native *n, struct changes *list,
                struct changed_answer *ret, struct err *e)
{
    struct lvm_report ra = LVM_REPORT_INIT, rb = LVM_REPORT_INIT;
    const struct lvm_lv *old = NULL, *new = NULL;
    CLEANUP_FREE struct lvm_tag *t = malloc(sizeof *t);
    if (!t)
        return err_nomem(e);
    int rc = lvm_find_ours(c, &ra, base->handle, LVM_NATIVE, base->tag.alias, &old, t, e);
    if (rc == -ENOENT)
        rc = changed_doubt(ret, CHANGED_BASE_LOST, "the parent's native snapshot %s is no longer on the storage",
                           base->tag.alias);
    if (rc == 0 && ret->state == CHANGED_LISTED)
        rc = lvm_find_ours(c, &rb, n->handle, LVM_NATIVE, n->tag.alias, &new, t, e);
    if (rc == -ENOENT)
        rc = err_plain(e, ERR_NOT_FOUND, ENOENT, "native snapshot %s is no longer on the storage", n->tag.alias);
    if (rc == 0 && ret->state == CHANGED_LISTED)
        rc = pair_check(old, new, ret);
    if (rc == 0 && ret->state == CHANGED_LISTED)
        rc = delta_list(c, old, new, list, ret, e);
    lvm_report_free(&ra);
    lvm_report_free(&rb);
    return rc;
}

/* ---- what is mapped ---- */

struct mapped {
    driver_extent_fn *fn;
    void *arg;
    uint64_t size, blocks;
};

static int range_mapped(uint64_t begin, uint64_t blocks, uint64_t block_bytes, void *arg, struct err *e)
{
    struct mapped *m = arg;
    const uint64_t start = begin * block_bytes, len = blocks * block_bytes;
    (void)e;
    m->blocks += blocks;
    if (start >= m->size)
        return 0;
    return m->fn(start, len < m->size - start ? len : m->size - start, m->arg);
}

static int mapped_read(const struct lvm_metadata *m, const struct lvm_lv *lv, struct mapped *into,
                       struct changed_answer *a, struct err *e)
{
    const char *const argv[] = {thin_dump, "--metadata-snap", "--dev-id", lv->thin_id, m->device, NULL};
    const struct thin_wanted w = {.print = THIN_DUMP,
                                  .id = strtoull(lv->thin_id, NULL, 10),
                                  .block_bytes = m->block_bytes,
                                  .fn = range_mapped,
                                  .arg = into};
    struct thin_device d = {0};
    int rc = print_read(argv, &w, &d, e);
    if (rc == 0 && d.transaction != strtoull(lv->transaction, NULL, 10))
        rc = err_plain(e, ERR_SOURCE, ESTALE, "thin device %s of pool %s is not %s", lv->thin_id, m->pool, lv->path);
    if (rc == 0 && d.mapped != into->blocks)
        rc = err_plain(e, ERR_SOURCE, EIO, "thin_dump lists %" PRIu64 " blocks of %s, which has %" PRIu64 " blocks",
                       into->blocks, lv->path, d.mapped);
    return rc < 0 ? rc : lvm_metadata_check(m, a, e);
}

static int mapped_list(const struct driver_class *c, const struct lvm_lv *lv, struct mapped *into, struct err *e)
{
    struct changed_answer a = {.state = CHANGED_LISTED};
    struct lvm_metadata m;
    struct err after = ERR_INIT;
    int rc = 0;
    if (!is_missing(thin_dump, &a))
        rc = lvm_metadata_reserve(c, lv->vg, lv->pool, &m, &a, e);
    if (rc == 0 && a.state == CHANGED_LISTED) {
        rc = mapped_read(&m, lv, into, &a, e);
        if (lvm_metadata_release(&m, &after) < 0)
            log_warning("%s", after.msg);
    }
    if (rc == 0 && a.state != CHANGED_LISTED)
        rc = err_plain(e, a.state == CHANGED_BUSY ? ERR_BUSY : ERR_SOURCE, EBUSY, "%s", a.why);
    return rc;
}

int lvm_allocated(const struct driver_class *c, const struct exposure *x, driver_extent_fn *fn, void *arg,
                  struct err *e)
{
    char vg[LVM_NAME_MAX];
    struct lvm_report r = LVM_REPORT_INIT;
    const struct lvm_lv *lv = NULL;
    struct mapped into = {fn, arg, x->size, 0};
    snprintf(vg, sizeof vg, "%.*s", (int)strcspn(x->where, "/") % LVM_NAME_MAX, x->where);
    int rc = lvm_report_read(&r, vg[0] ? vg : NULL, e);
    for (size_t i = 0; rc == 0 && !lv && i < r.n; i++)
        if (strcmp(r.lv[i].dm_path, x->path) == 0)
            lv = &r.lv[i];
    if (rc == 0 && (!lv || !lvm_is_thin(lv) || !lv->thin_id[0] || lv->size != x->size))
        rc = err_plain(e, ERR_NOT_FOUND, ENOENT, "%s is not the thin volume that was exposed", x->path);
    /* While a writable one is in use its metadata are older than its data. */
    if (rc == 0 && lv->attr[1] == 'w')
        rc = err_plain(e, ERR_SOURCE, EBUSY, "%s is writable: what is mapped in it may change", x->path);
    if (rc == 0)
        rc = origin_check(lv, e);
    if (rc == 0)
        rc = mapped_list(c, lv, &into, e);
    lvm_report_free(&r);
    return rc;
}
