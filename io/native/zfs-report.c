/* SPDX-License-Identifier: GPL-2.0-or-later */
/* zfs-report.c - the output of `zfs get` and `zpool get` */
#include "io/native/zfs.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MAX 1000000

enum column {
    C_TYPE,
    C_GUID,
    C_TXG,
    C_SIZE,
    C_BLOCK,
    C_USED,
    C_AVAILABLE,
    C_REFERENCED,
    C_RESERVED,
    C_USERS,
    C_ORIGIN,
    C_CLONES,
    C_SNAPDEV,
    C_VOLMODE,
    C_KEYS,
    C_DEFER,
    C_OWNER,
    C_VOLUME,
    C_SNAPDEV_WAS,
    COLUMNS
};
static const char *const column_names[COLUMNS] = {
    "type",           "guid",     "createtxg", "volsize", "volblocksize", "used",    "available", "logicalreferenced",
    "refreservation", "userrefs", "origin",    "clones",  "snapdev",      "volmode", "keystatus", "defer_destroy",
    ZFS_OWNER,        ZFS_VOLUME, ZFS_SNAPDEV};
const char zfs_properties[] = "type,guid,createtxg,volsize,volblocksize,used,available,logicalreferenced,"
                              "refreservation,userrefs,origin,clones,snapdev,volmode,keystatus,defer_destroy," ZFS_OWNER
                              "," ZFS_VOLUME "," ZFS_SNAPDEV;

/* ---- names ---- */

static void cut(const char *s, size_t n, char ret[ZFS_NAME_MAX])
{
    snprintf(ret, ZFS_NAME_MAX, "%.*s", (int)n, s);
}

void zfs_pool_of(const char *dataset, char ret[ZFS_NAME_MAX])
{
    cut(dataset, strcspn(dataset, "/@#"), ret);
}

void zfs_dataset_of(const char *snapshot, char ret[ZFS_NAME_MAX])
{
    cut(snapshot, strcspn(snapshot, "@#"), ret);
}

void zfs_parent_of(const char *dataset, char ret[ZFS_NAME_MAX])
{
    const char *slash = strrchr(dataset, '/');
    cut(dataset, slash ? (size_t)(slash - dataset) : 0, ret);
}

void zfs_path(const char *dataset, char ret[VOLUME_NAME_MAX])
{
    snprintf(ret, VOLUME_NAME_MAX, ZFS_DEV "%s", dataset);
    for (char *p = ret; *p; p++)
        *p = *p == ' ' ? '+' : *p;
}

/* ---- volumes and snapshots ---- */

static int report_bad(const char *where, const char *why, struct err *e)
{
    err_set(e, ERR_GENERIC, EINVAL, "cannot read what zfs get reports: %.300s: %s", where, why);
    return err_hint(e, "`zfs version` must be 0.8 or later; if it is, this is a fault of snapferry");
}

/* Cuts the next field off: up to the tab, the last one up to the end of the line. */
static char *field_cut(char **at, char end)
{
    char *s = *at, *p = strchr(s, end);
    if (!p || (end == '\t' && memchr(s, '\n', (size_t)(p - s))))
        return NULL;
    *p = '\0';
    *at = p + 1;
    return s;
}

struct line {
    char *name, *property, *source, *value;
};

static bool line_cut(char **at, struct line *l)
{
    return (l->name = field_cut(at, '\t')) && (l->property = field_cut(at, '\t')) &&
           (l->source = field_cut(at, '\t')) && (l->value = field_cut(at, '\n'));
}

struct row_reading {
    const char *value[COLUMNS], *source[COLUMNS];
    struct err *e;
    const char *name;
    int rc;
};

static uint64_t number(struct row_reading *r, enum column c, bool required)
{
    const char *s = r->value[c];
    char *end;
    if (!required && (strcmp(s, "-") == 0 || strcmp(s, "none") == 0))
        return 0;
    errno = 0;
    unsigned long long n = strtoull(s, &end, 10);
    if (r->rc == 0 && (*s < '0' || *s > '9' || *end || errno)) {
        char why[300];
        snprintf(why, sizeof why, "%s is not a number: \"%.200s\"", column_names[c], s);
        r->rc = report_bad(r->name, why, r->e);
    }
    return n;
}

static const char *text(const struct row_reading *r, enum column c)
{
    return strcmp(r->value[c], "-") == 0 ? "" : r->value[c];
}

/* Of this object itself: a property is inherited by what is below it, and received with a stream. */
static const char *own(const struct row_reading *r, enum column c)
{
    return strcmp(r->source[c], "local") == 0 ? r->value[c] : "";
}

static int row_make(struct row_reading *r, struct zfs_row *row)
{
    *row = (struct zfs_row){
        .name = r->name,
        .snapshot = strcmp(r->value[C_TYPE], "snapshot") == 0,
        .guid = number(r, C_GUID, true),
        .txg = number(r, C_TXG, true),
        .size = number(r, C_SIZE, true),
        .block = number(r, C_BLOCK, false),
        .used = number(r, C_USED, true),
        .available = number(r, C_AVAILABLE, false),
        .referenced = number(r, C_REFERENCED, false),
        .reserved = number(r, C_RESERVED, false),
        .users = number(r, C_USERS, false),
        .origin = text(r, C_ORIGIN),
        .clones = text(r, C_CLONES),
        .snapdev = text(r, C_SNAPDEV),
        .snapdev_from = r->source[C_SNAPDEV],
        .volmode = text(r, C_VOLMODE),
        .keys = text(r, C_KEYS),
        .defer = text(r, C_DEFER),
        .owner = own(r, C_OWNER),
        .volume = own(r, C_VOLUME),
        .snapdev_was = own(r, C_SNAPDEV_WAS),
    };
    if (r->rc == 0 && row->snapshot != (strchr(row->name, '@') != NULL))
        r->rc = report_bad(row->name, "its type does not suit its name", r->e);
    if (r->rc == 0 && (strlen(row->name) >= ZFS_NAME_MAX || !row->guid))
        r->rc = report_bad(row->name, "its name is too long, or it has no guid", r->e);
    return r->rc;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct zfs_row *)a)->name, ((const struct zfs_row *)b)->name);
}

static int rows_read(struct zfs_report *ret, struct err *e)
{
    char *at = ret->text;
    size_t room = 0;
    while (*at) {
        struct row_reading r = {.e = e};
        struct line l;
        for (enum column c = 0; c < COLUMNS; c++) {
            if (!line_cut(&at, &l))
                return report_bad(r.name ? r.name : "the end", "a line is not complete", e);
            if (!r.name)
                r.name = l.name;
            if (strcmp(l.name, r.name) != 0 || strcmp(l.property, column_names[c]) != 0)
                return report_bad(r.name, "its properties are not what was asked for", e);
            r.value[c] = l.value;
            r.source[c] = l.source;
        }
        if (strcmp(r.value[C_TYPE], "volume") != 0 && strchr(r.name, '@') == NULL)
            continue; /* a file system */
        if (strcmp(r.value[C_TYPE], "snapshot") == 0 && strcmp(r.value[C_SIZE], "-") == 0)
            continue; /* of a file system */
        if (ret->n == room) {
            room = room ? 2 * room : 64;
            struct zfs_row *grown = room > ROWS_MAX ? NULL : reallocarray(ret->row, room, sizeof *grown);
            if (!grown)
                return err_nomem(e);
            ret->row = grown;
        }
        int rc = row_make(&r, &ret->row[ret->n]);
        if (rc < 0)
            return rc;
        ret->n++;
    }
    return 0;
}

int zfs_report_parse(struct zfs_report *ret, char *in, struct err *e)
{
    *ret = (struct zfs_report){.text = in};
    int rc = rows_read(ret, e);
    if (rc == 0 && ret->n)
        qsort(ret->row, ret->n, sizeof *ret->row, by_name);
    for (size_t i = 1; rc == 0 && i < ret->n; i++)
        if (strcmp(ret->row[i - 1].name, ret->row[i].name) == 0)
            rc = report_bad(ret->row[i].name, "it is reported twice", e);
    if (rc < 0)
        zfs_report_free(ret);
    return rc;
}

void zfs_report_free(struct zfs_report *r)
{
    free(r->text);
    free(r->row);
    *r = (struct zfs_report)ZFS_REPORT_INIT;
}

const struct zfs_row *zfs_find(const struct zfs_report *r, const char *name)
{
    const struct zfs_row key = {.name = name};
    return r->n ? bsearch(&key, r->row, r->n, sizeof *r->row, by_name) : NULL;
}

/* ---- pools ---- */

int zfs_pool_parse(struct zfs_pool *ret, const char *in, struct err *e)
{
    CLEANUP_FREE char *copy = strdup(in);
    static const char *const names[] = {"guid", "size", "allocated", "freeing", "health", "readonly"};
    enum { NUMBERS = 4, HEALTH = NUMBERS };
    uint64_t n[NUMBERS];
    if (!copy)
        return err_nomem(e);
    char *at = copy;
    memset(ret, 0, sizeof *ret);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *name = field_cut(&at, '\t'), *property = name ? field_cut(&at, '\t') : NULL;
        char *value = property ? field_cut(&at, '\n') : NULL, *end = NULL;
        if (!value || strcmp(property, names[i]) != 0 || strlen(name) >= sizeof ret->name ||
            (*ret->name && strcmp(name, ret->name) != 0))
            return report_bad(*ret->name ? ret->name : "a pool", "its properties are not what was asked for", e);
        snprintf(ret->name, sizeof ret->name, "%s", name);
        if (i < NUMBERS) {
            errno = 0;
            n[i] = strtoull(value, &end, 10);
            if (errno || *value < '0' || *value > '9' || *end) {
                if (strcmp(value, "-") != 0 || i == 0)
                    return report_bad(ret->name, "a number is none", e);
                n[i] = 0; /* of a pool that cannot be read */
            }
        } else if (i == HEALTH) {
            snprintf(ret->health, sizeof ret->health, "%s", value);
        } else {
            ret->read_only = strcmp(value, "on") == 0;
        }
    }
    ret->guid = n[0];
    ret->size = n[1];
    ret->allocated = n[2];
    ret->freeing = n[3] < n[2] ? n[3] : n[2];
    return 0;
}

/* ---- labels ---- */

struct label_writer {
    char out[VOLUME_LABELS_MAX];
    size_t n;
    bool full;
};

static void label_add(struct label_writer *w, const char *property, const char *is, const char *value, size_t n)
{
    const size_t room = sizeof w->out - w->n, need = strlen("tag:") + strlen(property) + strlen(is) + n + 2;
    if (need > room) {
        w->full = true;
        return;
    }
    w->n += (size_t)snprintf(w->out + w->n, room, "%stag:%s%s%.*s", w->n ? " " : "", property, is, (int)n, value);
}

static void words_add(struct label_writer *w, const char *value)
{
    while (*value) {
        const size_t n = strcspn(value, " ,");
        if (n)
            label_add(w, "", "", value, n);
        value += n + (value[n] != '\0');
    }
}

static bool is_single_word(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s <= ' ' || *s == 0x7f)
            return false;
    return true;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A value may contain line ends, and who may set properties could so make lines of a volume that is not his: the lines
 * of each volume are in one place. */
static int blocks_check(const struct line *l, size_t n, struct err *e)
{
    CLEANUP_FREE const char **name = calloc(n + 1, sizeof *name);
    size_t blocks = 0;
    if (!name)
        return err_nomem(e);
    for (size_t i = 0; i < n; i++)
        if (!i || strcmp(l[i].name, l[i - 1].name) != 0)
            name[blocks++] = l[i].name;
    qsort(name, blocks, sizeof *name, by_text);
    for (size_t i = 1; i < blocks; i++)
        if (strcmp(name[i - 1], name[i]) == 0)
            return report_bad(name[i], "its properties are not in one place: a value has line ends", e);
    return 0;
}

static void property_add(struct label_writer *w, const struct line *l)
{
    if (strcmp(l->property, ZFS_WORDS) == 0)
        words_add(w, l->value);
    else if (strchr(l->property, ':') && strncmp(l->property, "snapferry:", 10) != 0 && is_single_word(l->value))
        label_add(w, l->property, "=", l->value, strlen(l->value));
}

int zfs_labels_parse(char *in, zfs_labels_fn *fn, void *arg, struct err *e)
{
    size_t n = 0, lines = 0;
    for (const char *p = in; *p; p++)
        lines += *p == '\n';
    CLEANUP_FREE struct label_writer *w = calloc(1, sizeof *w);
    CLEANUP_FREE struct line *l = calloc(lines + 1, sizeof *l);
    if (!w || !l)
        return err_nomem(e);
    for (char *at = in, *next; (next = strchr(at, '\n')); at = next + 1) {
        char *cursor = at;
        if (line_cut(&cursor, &l[n])) /* else the rest of a value with line ends */
            n++;
    }
    int rc = blocks_check(l, n, e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        property_add(w, &l[i]);
        if (i + 1 == n || strcmp(l[i].name, l[i + 1].name) != 0) {
            rc = fn(l[i].name, w->out, w->full, arg);
            memset(w, 0, sizeof *w);
        }
    }
    return rc;
}
