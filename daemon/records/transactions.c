/* SPDX-License-Identifier: GPL-2.0-or-later */
/* transactions.c - changes are made in memory and written together */
#include "daemon/records/records-impl.h"

#include "base/time.h"

#include <errno.h>
#include <sys/eventfd.h>

uint64_t records_next_seq(struct records *r)
{
    return r->next_seq++;
}

int records_ready(struct records *r, struct err *e)
{
    if (r->depth > 0)
        return 0;
    r->noted.corrupt |= records_integrity_bad(r);
    if (!r->noted.corrupt)
        return 0;
    if (mono_ns() < r->recover_after)
        return err_set(e, ERR_DAMAGE, EBADMSG, "%s is damaged and could not be replaced yet", r->path);
    records_write_wait(r);
    int rc = records_recover(r, e);
    if (rc >= 0)
        records_report_replaced(r);
    return rc;
}

static int refuse_doomed(struct err *e)
{
    return err_set(e, ERR_GENERIC, ECANCELED, "the transaction of the records was undone by an earlier failure in it");
}

int records_tx_begin(struct records *r, struct err *e)
{
    if (r->depth > 0 && (r->doomed || r->noted.corrupt))
        return refuse_doomed(e); /* what is written now would stand alone */
    records_write_wait(r);
    int rc = records_ready(r, e);
    if (rc < 0)
        return rc;
    r->depth++;
    return 0;
}

/* The outermost level has ended; rc < 0: it is not written. */
static int tx_write(struct records *r, int rc, bool beside, struct err *e)
{
    if (rc >= 0 && (r->doomed || r->noted.corrupt))
        rc = refuse_doomed(e);
    if (rc >= 0) {
        int fail = records_write_out(r, beside, e);
        rc = fail ? fail : rc;
    }
    if (rc < 0)
        records_undo(r);
    r->doomed = false;
    return rc;
}

int records_tx_end(struct records *r, int rc, struct err *e)
{
    if (--r->depth > 0)
        return rc >= 0 && r->doomed ? refuse_doomed(e) : rc;
    return tx_write(r, rc, false, e);
}

int records_begin(struct records *r, struct err *e)
{
    int rc = records_refuse_read_only(r, e);
    return rc < 0 ? rc : records_tx_begin(r, e);
}

int records_flush(struct records *r, struct err *e)
{
    int rc = records_refuse_read_only(r, e);
    if (rc < 0 || r->depth > 0 || !r->counters_dirty || (rc = records_tx_begin(r, e)) < 0)
        return rc;
    return records_tx_end(r, 0, e);
}

static int refuse_none(struct err *e)
{
    return err_set(e, ERR_GENERIC, EINVAL, "there is no transaction of the records to commit");
}

int records_commit(struct records *r, struct err *e)
{
    return r->depth == 0 ? refuse_none(e) : records_tx_end(r, 0, e);
}

int records_commit_start(struct records *r, struct err *e)
{
    if (r->depth != 1)
        return r->depth ? records_tx_end(r, 0, e) : refuse_none(e);
    r->depth = 0;
    return tx_write(r, r->ended ? err_set(e, ERR_BUSY, EBUSY, "the result of the commit before was not taken") : 0,
                    true, e);
}

int records_commit_fd(const struct records *r)
{
    return r->commit.fd;
}

bool records_committing(const struct records *r)
{
    return r->commit.running || r->ended;
}

int records_commit_end(struct records *r, struct err *e)
{
    eventfd_t n;
    records_write_wait(r);
    if (!r->ended)
        return err_set(e, ERR_GENERIC, EINVAL, "no commit of the records was started");
    eventfd_read(r->commit.fd, &n);
    r->ended = false;
    if (r->ended_rc < 0 && e)
        *e = r->ended_err;
    return r->ended_rc;
}

void records_rollback(struct records *r)
{
    if (r->depth == 0)
        return;
    records_undo(r);
    r->doomed = --r->depth > 0;
}

void records_probe(struct records *r)
{
    records_next_seq(r);
}

uint64_t records_write_errors(const struct records *r)
{
    return r->noted.write_errors;
}

bool records_degraded(const struct records *r)
{
    return r->noted.degraded;
}

int records_degraded_by(const struct records *r)
{
    return r->noted.degraded ? r->noted.sys : 0;
}

bool records_detached(struct records *r)
{
    int moved = 0;
    return r->reader.db && sqlite3_file_control(r->reader.db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK &&
           moved;
}
