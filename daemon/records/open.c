/* SPDX-License-Identifier: GPL-2.0-or-later */
/* open.c - the records of a state directory are opened and closed */
#include "daemon/records/records-impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct records *records_new(const struct records_schema *schema)
{
    struct records *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->lock_fd = r->commit.fd = -1;
    r->schema = schema;
    r->writer.path = r->reader.path = r->path;
    r->writer.noted = r->reader.noted = &r->noted;
    image_init(&r->image);
    return r;
}

void records_free(struct records *r)
{
    if (!r)
        return;
    records_close_database(r);
    if (r->lock_fd >= 0)
        close(r->lock_fd);
    if (r->commit.fd >= 0)
        close(r->commit.fd);
    image_free(&r->image);
    records_counters_free(r);
    free(r);
}

static int open_locked(struct records *r, struct records_news *news, struct err *e)
{
    int rc = records_lock(r, e);
    r->commit.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (rc >= 0 && r->commit.fd < 0)
        rc = err_set(e, ERR_GENERIC, errno, "eventfd");
    rc = rc < 0 ? rc : records_open_database(r, true, news, e);
    return rc < 0 ? rc : records_holds_open(r, news, e);
}

int records_open_with(struct records **ret, const char *state_dir, const struct records_schema *schema,
                      struct records_news *news, struct err *e)
{
    struct records_news unused;
    if (!news)
        news = &unused;
    *news = (struct records_news){0};
    int rc = records_make_dir(state_dir, e);
    if (rc < 0)
        return rc;
    struct records *r = records_new(schema);
    if (!r)
        return err_nomem(e);
    snprintf(r->dir, sizeof r->dir, "%s", state_dir);
    snprintf(r->path, sizeof r->path, "%s/%s", r->dir, RECORDS_DB);
    if ((rc = open_locked(r, news, e)) < 0) {
        records_free(r);
        return rc;
    }
    *ret = r;
    return 0;
}

int records_open(struct records **ret, const char *state_dir, struct records_news *news, struct err *e)
{
    return records_open_with(ret, state_dir, &records_schema_shipped, news, e);
}

void records_close(struct records *r)
{
    if (!r)
        return;
    struct err e = ERR_INIT;
    records_commit_thread_end(r);
    if (r->ended && r->ended_rc < 0)
        log_warning("the last changes of the records could not be saved: %s", r->ended_err.msg);
    if (r->depth > 0) {
        r->depth = 1;
        records_rollback(r);
    }
    if (!r->read_only && !r->noted.corrupt && r->counters_dirty && records_flush(r, &e) < 0)
        log_warning("the counters could not be saved: %s", e.msg);
    if (r->noted.corrupt && r->writer.db)
        sqlite3_db_config(r->writer.db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    records_free(r);
}
