/* SPDX-License-Identifier: GPL-2.0-or-later */
/* lvm-report.c - the report of lvs(8) */
#include "io/native/lvm.h"

#include "base/cleanup.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MAX 100000

/* The last two are columns of segments: a volume has a row of each of its segments, a thin volume or pool only one.
 */
const char lvm_columns[] = "vg_name,vg_uuid,vg_attr,vg_free,vg_size,lv_name,lv_uuid,lv_attr,lv_size,lv_tags,pool_lv,"
                           "origin,data_percent,metadata_percent,snap_percent,lv_active,lv_device_open,lv_suspended,"
                           "lv_health_status,lv_path,lv_dm_path,lv_kernel_major,lv_kernel_minor,lv_snapshot_invalid,"
                           "lv_merging,lv_check_needed,origin_size,thin_id,transaction_id";

static int column_bad(const char *name, const char *why, struct err *e)
{
    err_set(e, ERR_GENERIC, EINVAL, "cannot read the report of lvs: column %s %s", name, why);
    return err_hint(e, "`lvm version` must be 2.02.158 or later; if it is, this is a fault of snapferry");
}

struct row {
    const json_t *doc;
    struct err *e;
    int rc;
};

static const char *text(struct row *r, const char *name)
{
    const json_t *v = json_object_get(r->doc, name);
    if (!json_is_string(v)) {
        if (r->rc == 0)
            r->rc = column_bad(name, v ? "is not a string" : "is missing", r->e);
        return "";
    }
    return json_string_value(v);
}

static uint64_t number(struct row *r, const char *name)
{
    const char *s = text(r, name);
    char *end;
    errno = 0;
    unsigned long long n = strtoull(s, &end, 10);
    if (r->rc == 0 && (*s < '0' || *s > '9' || *end || errno))
        r->rc = column_bad(name, "is not a number", r->e);
    return n;
}

/* Empty for what is not thin. */
static const char *digits(struct row *r, const char *name)
{
    const char *s = text(r, name);
    if (r->rc == 0 && (s[strspn(s, "0123456789")] || strlen(s) > 20))
        r->rc = column_bad(name, "is not a number", r->e);
    return s;
}

/* Empty for what is not active. */
static double percent(struct row *r, const char *name)
{
    const char *s = text(r, name);
    char *end;
    if (!*s)
        return -1;
    double n = strtod(s, &end);
    if (r->rc == 0 && (*end || !isfinite(n)))
        r->rc = column_bad(name, "is not a percentage", r->e);
    return n;
}

/* -1 for what is not active. */
static unsigned kernel_number(struct row *r, const char *name)
{
    return strcmp(text(r, name), "-1") == 0 ? 0 : (unsigned)number(r, name);
}

static int read_row(const json_t *doc, struct lvm_lv *lv, struct err *e)
{
    struct row r = {doc, e, 0};
    *lv = (struct lvm_lv){
        .vg = text(&r, "vg_name"),
        .vg_uuid = text(&r, "vg_uuid"),
        .vg_attr = text(&r, "vg_attr"),
        .vg_free = number(&r, "vg_free"),
        .vg_size = number(&r, "vg_size"),
        .name = text(&r, "lv_name"),
        .uuid = text(&r, "lv_uuid"),
        .attr = text(&r, "lv_attr"),
        .size = number(&r, "lv_size"),
        .tags = text(&r, "lv_tags"),
        .pool = text(&r, "pool_lv"),
        .origin = text(&r, "origin"),
        .data = percent(&r, "data_percent"),
        .metadata = percent(&r, "metadata_percent"),
        .cow = percent(&r, "snap_percent"),
        .active = strcmp(text(&r, "lv_active"), "active") == 0,
        .open = strcmp(text(&r, "lv_device_open"), "open") == 0,
        .suspended = strcmp(text(&r, "lv_suspended"), "suspended") == 0,
        .health = text(&r, "lv_health_status"),
        .path = text(&r, "lv_path"),
        .dm_path = text(&r, "lv_dm_path"),
        .major = kernel_number(&r, "lv_kernel_major"),
        .minor = kernel_number(&r, "lv_kernel_minor"),
        .invalid = strcmp(text(&r, "lv_snapshot_invalid"), "snapshot invalid") == 0,
        .merging = strcmp(text(&r, "lv_merging"), "merging") == 0,
        .check_needed = strcmp(text(&r, "lv_check_needed"), "check needed") == 0,
        .origin_size = *text(&r, "origin_size") ? number(&r, "origin_size") : 0,
        .thin_id = digits(&r, "thin_id"),
        .transaction = digits(&r, "transaction_id"),
    };
    if (r.rc == 0 && (strlen(lv->attr) < 6 || strlen(lv->vg_attr) < 4))
        r.rc = column_bad("lv_attr", "is too short", e);
    if (r.rc == 0 && (strlen(lv->vg) >= LVM_NAME_MAX || strlen(lv->name) >= LVM_NAME_MAX || strlen(lv->uuid) >= 64 ||
                      strlen(lv->vg_uuid) >= 64))
        r.rc = column_bad("lv_name", "is too long", e);
    return r.rc;
}

static int by_path(const void *a, const void *b)
{
    const struct lvm_lv *x = a, *y = b;
    int rc = strcmp(x->path, y->path);
    return rc ? rc : strcmp(x->uuid, y->uuid);
}

static int read_rows(struct lvm_report *r, const json_t *rows, struct err *e)
{
    const size_t n = json_array_size(rows);
    if (n > ROWS_MAX)
        return err_set(e, ERR_GENERIC, E2BIG, "lvs reports more than %d logical volumes", ROWS_MAX);
    if (!n)
        return 0;
    struct lvm_lv *grown = reallocarray(r->lv, r->n + n, sizeof *grown);
    if (!grown)
        return err_nomem(e);
    r->lv = grown;
    for (size_t i = 0; i < n; i++) {
        int rc = read_row(json_array_get(rows, i), &r->lv[r->n], e);
        if (rc < 0)
            return rc;
        r->n++;
    }
    return 0;
}

static bool is_same_volume(const struct lvm_lv *a, const struct lvm_lv *b)
{
    return strcmp(a->uuid, b->uuid) == 0 && strcmp(a->vg_uuid, b->vg_uuid) == 0 && strcmp(a->vg, b->vg) == 0 &&
           strcmp(a->name, b->name) == 0;
}

/* Of several segments of a volume the first row counts: they differ in columns of segments alone. */
static void rows_unite(struct lvm_report *r)
{
    size_t n = r->n ? 1 : 0;
    for (size_t i = 1; i < r->n; i++)
        if (!is_same_volume(&r->lv[n - 1], &r->lv[i]))
            r->lv[n++] = r->lv[i];
    r->n = n;
}

int lvm_report_parse(struct lvm_report *ret, const char *in, size_t len, struct err *e)
{
    json_error_t why;
    const json_t *report;
    size_t i;
    int rc = 0;
    *ret = (struct lvm_report)LVM_REPORT_INIT;
    ret->doc = json_loadb(in, len, JSON_REJECT_DUPLICATES, &why);
    if (!ret->doc)
        return err_set(e, ERR_GENERIC, EINVAL, "cannot read the report of lvs: %s (line %d)", why.text, why.line);
    const json_t *reports = json_object_get(ret->doc, "report");
    if (!json_is_array(reports))
        rc = column_bad("report", "is missing", e);
    json_array_foreach(reports, i, report)
    {
        const json_t *rows = json_object_get(report, "lv");
        if (rc == 0 && rows)
            rc = json_is_array(rows) ? read_rows(ret, rows, e) : column_bad("lv", "is not an array", e);
    }
    if (rc < 0)
        lvm_report_free(ret);
    if (rc == 0 && ret->n) {
        qsort(ret->lv, ret->n, sizeof *ret->lv, by_path);
        rows_unite(ret);
    }
    return rc;
}

void lvm_report_free(struct lvm_report *r)
{
    json_decref(r->doc);
    free(r->lv);
    *r = (struct lvm_report)LVM_REPORT_INIT;
}

/* ---- looking up ---- */

const struct lvm_lv *lvm_find(const struct lvm_report *r, const char *vg, const char *name)
{
    for (size_t i = 0; i < r->n; i++)
        if (strcmp(r->lv[i].name, name) == 0 && strcmp(r->lv[i].vg, vg) == 0)
            return &r->lv[i];
    return NULL;
}

const struct lvm_lv *lvm_find_path(const struct lvm_report *r, const char *path)
{
    for (size_t i = 0; *path && i < r->n; i++)
        if (strcmp(r->lv[i].path, path) == 0)
            return &r->lv[i];
    return NULL;
}

/* The first letter of the attributes, lvs(8). */
bool lvm_is_thin(const struct lvm_lv *lv)
{
    return lv->attr[0] == 'V';
}

bool lvm_is_pool(const struct lvm_lv *lv)
{
    return lv->attr[0] == 't';
}

bool lvm_is_cow(const struct lvm_lv *lv)
{
    return lv->attr[0] == 's' || lv->attr[0] == 'S';
}

bool lvm_is_ordinary(const struct lvm_lv *lv)
{
    return strchr("-omMrRC", lv->attr[0]) != NULL;
}
