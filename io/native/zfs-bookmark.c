/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * zfs-bookmark.c - bookmarks of native snapshots of zvols
 *
 * A bookmark has the guid and the transaction group of the snapshot that it was made of, and none of its blocks: `zfs
 * send -i` lists what was born since, also when the snapshot is gone. It cannot have properties of ours. So its name
 * has what an owner tag would: VOLUME#snapferry-ALIAS:POOL:NODE, POOL being the guid of the pool. Whether it is that of
 * a native snapshot its guid says.
 *
 * Crash points: zfs-bookmark-made, zfs-bookmark-removed.
 */
#include "io/native/zfs.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

static int bookmark_name(const char *dataset, const char *alias, uint64_t pool, const char *node,
                         char ret[ZFS_NAME_MAX], struct err *e)
{
    const int n = snprintf(ret, ZFS_NAME_MAX, "%s#" ZFS_PREFIX "%s:%" PRIu64 ":%s", dataset, alias, pool, node);
    return n < ZFS_NAME_MAX
               ? 0
               : err_set(e, ERR_USAGE, ENAMETOOLONG, "the name of a bookmark of %s would be longer than %d characters",
                         dataset, ZFS_NAME_MAX - 1);
}

bool zfs_bookmark_split(const char *name, char alias[ALIAS_LEN + 1], uint64_t *pool, const char **node)
{
    const char *s = strchr(name, '#');
    char *end;
    if (!s || strncmp(++s, ZFS_PREFIX, sizeof ZFS_PREFIX - 1) != 0)
        return false;
    s += sizeof ZFS_PREFIX - 1;
    snprintf(alias, ALIAS_LEN + 1, "%.*s", ALIAS_LEN, s);
    if (!alias_valid(alias) || s[ALIAS_LEN] != ':')
        return false;
    s += ALIAS_LEN + 1;
    errno = 0;
    *pool = strtoull(s, &end, 10);
    if (*s < '0' || *s > '9' || errno || *end != ':' || !end[1])
        return false;
    *node = end + 1;
    return true;
}

/* ---- looking ---- */

struct bookmark {
    char *name; /* of the output */
    char alias[ALIAS_LEN + 1];
    uint64_t guid, txg;
    int64_t created_ns;
};
typedef int bookmark_fn(const struct bookmark *b, void *arg);

static bool number(const char *s, uint64_t *ret)
{
    char *end;
    errno = 0;
    *ret = strtoull(s ? s : "", &end, 10);
    return s && *s >= '0' && *s <= '9' && !*end && !errno;
}

/* Whether it is in the pool in which it was made. */
static int is_at_home(const char *name, uint64_t pool, struct zfs_pool *last, bool *ret, struct err *e)
{
    char of[ZFS_NAME_MAX];
    zfs_pool_of(name, of);
    int rc = strcmp(of, last->name) == 0 ? 0 : zfs_pool_read(last, of, e);
    *ret = rc == 0 && last->guid == pool;
    return rc;
}

static int each_line(const struct driver_class *c, char *out, bookmark_fn *fn, void *arg, struct err *e)
{
    struct zfs_pool last = {.name = ""};
    int rc = 0;
    for (char *line; rc == 0 && (line = strsep(&out, "\n")) && *line;) {
        struct bookmark b = {.name = strsep(&line, "\t")};
        const char *guid = strsep(&line, "\t"), *txg = strsep(&line, "\t"), *made = line, *node;
        uint64_t pool, seconds;
        bool ours = false;
        if (!zfs_bookmark_split(b.name, b.alias, &pool, &node) || strcmp(node, c->node) != 0)
            continue;
        if (!number(guid, &b.guid) || !number(txg, &b.txg) || !number(made, &seconds) || strlen(b.name) >= ZFS_NAME_MAX)
            return err_set(e, ERR_GENERIC, EINVAL, "cannot read what zfs list reports of bookmark %.300s", b.name);
        b.created_ns = (int64_t)seconds * NS_PER_S;
        rc = is_at_home(b.name, pool, &last, &ours, e);
        if (rc == 0 && ours)
            rc = fn(&b, arg);
    }
    return rc;
}

/* Bookmarks of this node, of one volume or of all (NULL); a value other than 0 ends the walk and is returned. */
static int bookmarks_each(const struct driver_class *c, const char *dataset, bookmark_fn *fn, void *arg, struct err *e)
{
    const char *const all[] = {"list", "-Hp", "-t", "bookmark", "-o", "name,guid,createtxg,creation", NULL};
    const char *const one[] = {"list",  "-Hp", "-d", "1", "-t", "bookmark", "-o", "name,guid,createtxg,creation",
                               dataset, NULL};
    CLEANUP_FREE char *out = NULL;
    int rc = zfs_look(dataset ? one : all, &out, e);
    return rc == -ENOENT ? 0 : rc < 0 ? rc : each_line(c, out, fn, arg, e);
}

struct search {
    const char *alias;
    char name[ZFS_NAME_MAX];
    uint64_t guid, txg;
};

static int match(const struct bookmark *b, void *arg)
{
    struct search *s = arg;
    if (strcmp(b->alias, s->alias) != 0)
        return 0;
    snprintf(s->name, sizeof s->name, "%s", b->name);
    s->guid = b->guid;
    s->txg = b->txg;
    return 1;
}

int zfs_bookmark_row(const struct driver_class *c, const char *alias, const char *dataset, char name[ZFS_NAME_MAX],
                     struct zfs_row *ret, struct err *e)
{
    struct search s = {.alias = alias};
    int rc = bookmarks_each(c, dataset, match, &s, e);
    if (rc <= 0)
        return rc < 0 ? rc : -ENOENT;
    memcpy(name, s.name, sizeof s.name);
    *ret = (struct zfs_row){.name = name, .guid = s.guid, .txg = s.txg};
    return 0;
}

/* ---- the volume since then ---- */

/*
 * What is born after the bookmark is what has changed since only if nothing was put back meanwhile, and all that was
 * received since was born after it. `zfs rollback` destroys bookmarks that are newer than where it goes; `zfs receive
 * -F` does not, and what it receives is born while it runs, which may be before the bookmark was made. It always
 * leaves a snapshot that was not taken here, whose time of creation is that of its sender.
 */
#define CLOCKS_S 5 /* by which the clock of the sender may be ahead */

struct lineage {
    const struct zfs_row *mark, *newer;
    const struct zfs_report *of;
    uint64_t pool;
    uint64_t made;        /* the bookmark's snapshot, seconds */
    bool read_only;       /* the volume: nothing but `zfs receive` writes to it */
    const char *other;    /* a snapshot between both that snapferry has not taken */
    const char *received; /* one that is older than its place among the others */
};

/* Ours have a property of their own; one that was received has not. */
static bool is_taken_here(const struct lineage *x, const char *name)
{
    CLEANUP_FREE struct zfs_tag *t = malloc(sizeof *t);
    const struct zfs_row *row = zfs_find(x->of, name);
    return t && row && zfs_tag_read(row, x->pool, zfs_volume_guid(x->of, name), t) == 0;
}

/* Name, transaction group, creation, readonly; false: it cannot be read. */
static bool lineage_line(struct lineage *x, char *line, bool first)
{
    const char *name = strsep(&line, "\t"), *group = strsep(&line, "\t"), *made = strsep(&line, "\t");
    uint64_t txg, seconds;
    if (!number(group, &txg) || !number(made, &seconds) || !line)
        return false;
    if (first) {
        if (strcmp(name, x->mark->name) == 0)
            x->made = seconds;
        else if (!strpbrk(name, "@#"))
            x->read_only = strcmp(line, "on") == 0;
        return true;
    }
    if (!strchr(name, '@') || txg <= x->mark->txg || txg >= x->newer->txg || is_taken_here(x, name))
        return true;
    x->other = name;
    if (seconds <= x->made + CLOCKS_S)
        x->received = name;
    return true;
}

static int lineage_read(struct lineage *x, char *out, struct err *e)
{
    CLEANUP_FREE char *again = strdup(out);
    if (!again)
        return err_nomem(e);
    for (unsigned pass = 0; pass < 2; pass++)
        for (char *rest = pass ? out : again, *line; (line = strsep(&rest, "\n")) && *line;)
            if (!lineage_line(x, line, !pass))
                return err_set(e, ERR_GENERIC, EINVAL, "cannot read what zfs list reports of bookmark %.300s",
                               x->mark->name);
    return x->made ? 0 : err_plain(e, ERR_NOT_FOUND, ENOENT, "bookmark %.300s has disappeared", x->mark->name);
}

int zfs_bookmark_check(const struct native *base, const struct zfs_row *mark, const struct zfs_report *of,
                       const struct zfs_row *newer, struct changed_answer *a, struct err *e)
{
    char dataset[ZFS_NAME_MAX];
    const char *const args[] = {
        "list",  "-Hp", "-d", "1", "-t", "volume,snapshot,bookmark", "-o", "name,createtxg,creation,readonly",
        dataset, NULL};
    CLEANUP_FREE char *out = NULL;
    struct zfs_pool pool;
    struct lineage x = {.mark = mark, .newer = newer, .of = of};
    zfs_dataset_of(newer->name, dataset);
    int rc = zfs_pool_read(&pool, dataset, e);
    if (rc == 0)
        rc = zfs_look(args, &out, e);
    if (rc == -ENOENT)
        rc = err_plain(e, ERR_NOT_FOUND, ENOENT, "%s has disappeared", dataset);
    x.pool = rc == 0 ? pool.guid : 0;
    if (rc == 0)
        rc = lineage_read(&x, out, e);
    if (rc < 0)
        return rc;
    if (x.received)
        return changed_doubt(a, CHANGED_UNCERTAIN,
                             "%.200s came after native snapshot %s and is not younger: it was received (zfs receive "
                             "-F), and a bookmark does not tell what that has changed",
                             x.received, base->tag.alias);
    if (x.other && !base->removed && !x.read_only)
        return changed_doubt(a, CHANGED_UNCERTAIN,
                             "another program has destroyed native snapshot %s, and %.200s is newer: if that was "
                             "received (zfs receive -F) a bookmark does not tell what was put back",
                             base->tag.alias, x.other);
    return 0;
}

/* ---- the driver's functions ---- */

static void change_id(uint64_t guid, char ret[CHANGE_ID_MAX])
{
    snprintf(ret, CHANGE_ID_MAX, "zfs:%" PRIu64, guid);
}

/* One that has the name is what an interrupted call has made, or of another snapshot. */
static int is_made(const struct driver_class *c, const struct native *n, const char *dataset, struct err *e)
{
    char name[ZFS_NAME_MAX], id[CHANGE_ID_MAX];
    struct zfs_row row;
    int rc = zfs_bookmark_row(c, n->tag.alias, dataset, name, &row, e);
    if (rc < 0)
        return rc;
    change_id(row.guid, id);
    return strcmp(id, n->change_id) == 0
               ? 0
               : err_set(e, ERR_TARGET, EEXIST, "there is a bookmark %s, and it is of another snapshot", name);
}

int zfs_bookmark(const struct driver_class *c, const struct native *n, struct err *e)
{
    char dataset[ZFS_NAME_MAX], name[ZFS_NAME_MAX], what[512];
    struct zfs_pool pool;
    struct err why = ERR_INIT;
    snprintf(what, sizeof what, "cannot make a bookmark of native snapshot %s", n->tag.alias);
    zfs_dataset_of(n->handle, dataset);
    int rc = zfs_pool_read(&pool, dataset, e);
    if (rc == 0)
        rc = bookmark_name(dataset, n->tag.alias, pool.guid, c->node, name, e);
    if (rc < 0)
        return rc;
    const char *const args[] = {"bookmark", n->handle, name, NULL};
    rc = zfs_change(what, args, &why);
    if (rc < 0 && strstr(why.msg, "bookmark exists"))
        return is_made(c, n, dataset, e);
    if (rc < 0 && e)
        *e = why;
    crash_point("zfs-bookmark-made");
    return rc;
}

int zfs_bookmark_find(const struct driver_class *c, const struct native *known, const struct native *newer,
                      struct native *ret, struct err *e)
{
    char dataset[ZFS_NAME_MAX], name[ZFS_NAME_MAX];
    struct zfs_row row;
    zfs_dataset_of(newer->handle, dataset);
    int rc = zfs_bookmark_row(c, known->tag.alias, dataset, name, &row, e);
    if (rc == -ENOENT)
        return err_plain(e, ERR_NOT_FOUND, ENOENT, "there is no bookmark of native snapshot %s", known->tag.alias);
    if (rc < 0)
        return rc;
    *ret = *known;
    ret->used = 0;
    memcpy(ret->handle, name, sizeof name);
    change_id(row.guid, ret->change_id);
    return 0;
}

/* Where the native snapshot was, else wherever its volume is by now. */
static int find(const struct driver_class *c, const struct native *n, char name[ZFS_NAME_MAX], struct err *e)
{
    char dataset[ZFS_NAME_MAX] = "";
    struct zfs_row row;
    if (n->handle[0])
        zfs_dataset_of(n->handle, dataset);
    else
        (void)zfs_path_split(n->tag.volume_name, dataset, NULL);
    int rc = dataset[0] ? zfs_bookmark_row(c, n->tag.alias, dataset, name, &row, e) : -ENOENT;
    return rc == -ENOENT ? zfs_bookmark_row(c, n->tag.alias, NULL, name, &row, e) : rc;
}

int zfs_bookmark_remove(const struct driver_class *c, const struct native *n, struct err *e)
{
    char name[ZFS_NAME_MAX], what[512];
    snprintf(what, sizeof what, "cannot remove the bookmark of native snapshot %s", n->tag.alias);
    int rc = find(c, n, name, e);
    if (rc == 0) {
        const char *const args[] = {"destroy", name, NULL};
        rc = zfs_change(what, args, e);
        crash_point("zfs-bookmark-removed");
    }
    return rc == -ENOENT ? 0 : rc;
}

struct listing {
    native_fn *fn;
    void *arg;
    struct native n;
};

static int list_one(const struct bookmark *b, void *arg)
{
    struct listing *l = arg;
    char dataset[ZFS_NAME_MAX];
    memset(&l->n, 0, sizeof l->n);
    zfs_dataset_of(b->name, dataset);
    snprintf(l->n.tag.alias, sizeof l->n.tag.alias, "%s", b->alias);
    zfs_path(dataset, l->n.tag.volume_name);
    l->n.tag.created_ns = b->created_ns;
    snprintf(l->n.handle, sizeof l->n.handle, "%s", b->name);
    change_id(b->guid, l->n.change_id);
    return l->fn(&l->n, l->arg);
}

int zfs_bookmarks(const struct driver_class *c, native_fn *fn, void *arg, struct err *e)
{
    CLEANUP_FREE struct listing *l = calloc(1, sizeof *l);
    if (!l)
        return err_nomem(e);
    l->fn = fn;
    l->arg = arg;
    return bookmarks_each(c, NULL, list_one, l, e);
}
