/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * holds.c - holds of native snapshots, once more beside the database: STATE-DIR/holds
 *
 * What else is in the records is found again on the storage and in repositories. A hold is what somebody has asked for:
 * nothing but the records knows of it, and without it the snapshot would be pruned.
 *
 * The database is the truth, and the file a copy with a number, which each change of a hold makes greater in both. The
 * new file is made durable before the commit and gets its name after it: if the file cannot be written nothing is held,
 * and if the commit fails the file is as it was. At opening the greater number counts. The file's is greater only if
 * the database is new, or an older copy: then holds are as the file has them. A held snapshot that the database does
 * not have gets a row that waits for it (native_row_awaited()), until it is seen on the storage.
 *
 * A hold that is released needs no room: the file may stay as it is, and is written with the next commit. It has too
 * many holds then, never too few.
 */
#include "daemon/records/records-impl.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *records_holds_failing(const struct records *r)
{
    return r->holds.why;
}

bool records_holds_unknown(const struct records *r)
{
    return r->holds.unknown;
}

static int hold_row(struct records *r, const struct held_line *h, struct err *e)
{
    CLEANUP(native_row_clear) struct native_row n = ROW_INIT;
    const struct native_row *known = native_row_peek(r, h->text[HELD_ALIAS]);
    if (known && known->hold.held)
        return 0;
    if (known) {
        if (native_row_copy(&n, known) < 0)
            return err_nomem(e);
    } else {
        struct native_desc native;
        struct volume_desc volume;
        native_row_init(&n);
        n.state = NATIVE_MISSING;
        str_set(&n.id, h->text[HELD_ALIAS]);
        str_set(&n.parent, h->text[HELD_BACKUP]);
        str_set(&n.volume_id, h->text[HELD_VOLUME_ID]);
        native_desc_init(&native);
        str_set(&native.alias, h->text[HELD_ALIAS]);
        native.seq = h->seq;
        native.created_ns = (int64_t)h->created_ns;
        native_desc_take(&n.native, native_desc_make(&native));
        volume_desc_init(&volume);
        str_set(&volume.id, h->text[HELD_VOLUME_ID]);
        str_set(&volume.name, h->text[HELD_VOLUME_NAME]);
        volume_desc_take(&n.volume, volume_desc_make(&volume));
        n.adopted = true;
        n.state_since_ns = records_clock();
    }
    n.hold.held = true;
    n.hold.at_ns = (int64_t)h->at_ns;
    str_set(&n.hold.note, h->text[HELD_NOTE]);
    return known ? native_row_save(r, &n, e) : native_row_add(r, &n, e);
}

struct release {
    struct records *r;
    const struct held_file *h;
    struct err *e;
};
static int release_row(const struct native_row *row, void *arg)
{
    const struct release *x = arg;
    CLEANUP(native_row_clear) struct native_row n = ROW_INIT;
    for (size_t i = 0; row->hold.held && i < x->h->n; i++)
        if (!strcmp(x->h->v[i].text[HELD_ALIAS], row->id))
            return 0;
    if (!row->hold.held)
        return 0;
    if (native_row_copy(&n, row) < 0)
        return err_nomem(x->e);
    n.hold.held = false;
    n.hold.at_ns = 0;
    str_set(&n.hold.note, "");
    return native_row_save(x->r, &n, x->e);
}

/* As the file has them; of a damaged one what can be read is held, and nothing is released. */
static int take_over(struct records *r, const struct held_file *h, struct err *e)
{
    struct release x = {r, h, e};
    int rc = h->damaged ? 0 : native_row_each(r, NULL, release_row, &x, e);
    for (size_t i = 0; rc >= 0 && i < h->n; i++)
        rc = hold_row(r, &h->v[i], e);
    if (rc >= 0 && h->n)
        log_info("holds of %zu native snapshot%s are taken over from %s/" HOLDS, h->n, plural(h->n), r->dir);
    return rc;
}

/* It keeps its name until another one takes it: what is in it may be needed again. */
static void keep_damaged(const struct records *r)
{
    char from[PATH_MAX + 64], to[PATH_MAX + 64], name[64], stamp[TIME_STAMP];
    snprintf(name, sizeof name, HOLDS ".corrupt-%s", time_stamp(records_clock(), stamp));
    if (link(records_holds_path(r, HOLDS, from), records_holds_path(r, name, to)) == 0)
        log_warning("%s is damaged, and kept as %s", from, to);
}

/* The number of the database is kept for the next opening. */
static void begin_numbers(struct records *r)
{
    char sql[200];
    struct err e = ERR_INIT;
    r->holds.number = 1;
    snprintf(sql, sizeof sql,
             "INSERT INTO meta(key,value) VALUES('holds','1'),('holds_unknown','%d') "
             "ON CONFLICT(key) DO UPDATE SET value=excluded.value",
             (int)r->holds.unknown);
    if (records_exec(r->writer.db, r->path, sql, &e, "write") < 0)
        log_warning("holds are not numbered: %s", e.msg);
}

static int take_over_all(struct records *r, const struct held_file *h, struct err *e)
{
    int rc = records_begin(r, e);
    if (rc < 0)
        return rc;
    r->holds.stale = r->holds.taken_over = true;
    rc = take_over(r, h, e);
    if (rc >= 0)
        rc = records_commit(r, e);
    else
        records_rollback(r);
    r->holds.taken_over = false;
    return rc;
}

int records_holds_open(struct records *r, const struct records_news *news, struct err *e)
{
    struct holds *h = &r->holds;
    struct held_file file;
    char path[PATH_MAX + 64];
    double at;
    int rc = 0;
    if (records_volatile)
        return 0;
    unlink(records_holds_path(r, HOLDS_NEW, path));
    h->number = records_meta_number(r, "holds");
    h->unknown = records_meta_number(r, "holds_unknown") != 0;
    const bool first = h->number == 0;
    records_holds_read(r, &file);
    const bool takes = file.damaged ? first : file.there && file.number > h->number;
    if (first)
        h->unknown = (news->created || news->recovered || records_counter_get(r, RECORDS_REBUILT, NULL, &at)) &&
                     (!file.there || file.damaged);
    if (file.damaged)
        keep_damaged(r);
    if (takes) {
        h->number = file.damaged ? 0 : file.number;
        rc = take_over_all(r, &file, e);
    } else {
        if (first)
            begin_numbers(r);
        if (!records_holds_current(r))
            records_holds_rewrite(r);
    }
    held_file_clear(&file);
    return rc;
}
