/* SPDX-License-Identifier: GPL-2.0-or-later */
/* records.c - rows of the records: add, save, get, delete, walk. docs/records.md describes tables and documents. */
#include "daemon/records/records-impl.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DUMP_FLAGS (JSON_COMPACT | JSON_SORT_KEYS)

static const char *const kind_words[REC_KINDS] = {
    [REC_BACKUP] = "backup", [REC_OPERATION] = "operation", [REC_NATIVE] = "native snapshot", [REC_VOLUME] = "volume",
    [REC_JOB] = "job",
};

bool state_terminal(const char *state)
{
    static const char *const terminal[] = {"Completed", "PartiallyFailed", "Failed", "Canceled", "Skipped"};
    for (size_t i = 0; i < sizeof terminal / sizeof *terminal; i++)
        if (strcmp(state, terminal[i]) == 0)
            return true;
    return false;
}

void rec_clear(struct rec *r)
{
    json_decref(r->doc);
    *r = (struct rec)REC_INIT;
}

int rec_copy(struct rec *ret, const struct rec *r, struct err *e)
{
    json_t *doc = r->doc ? json_deep_copy(r->doc) : json_object();
    if (!doc)
        return err_nomem(e);
    *ret = *r;
    ret->doc = doc;
    return 0;
}

/* ---- documents ---- */

static int dump_doc(const json_t *doc, char **ret, struct err *e)
{
    *ret = NULL;
    if (!doc)
        return (*ret = strdup("{}")) ? 0 : err_nomem(e);
    if (!json_is_object(doc))
        return err_set(e, ERR_GENERIC, EINVAL, "the document of a record must be a JSON object");
    char *text = json_dumps(doc, DUMP_FLAGS);
    if (!text)
        return err_set(e, ERR_GENERIC, EINVAL, "the document of a record cannot be written as JSON");
    if (strlen(text) > RECORDS_DOC_MAX) {
        free(text);
        return err_set(e, ERR_GENERIC, E2BIG, "the document of a record is larger than %u bytes", RECORDS_DOC_MAX);
    }
    *ret = text;
    return 0;
}

/* Copies a text column; false: it does not fit or has a NUL in it. */
static bool text_column(sqlite3_stmt *st, int col, char *out, size_t cap)
{
    const char *t = (const char *)sqlite3_column_text(st, col);
    size_t n = (size_t)sqlite3_column_bytes(st, col);
    if (!t || n >= cap || memchr(t, '\0', n)) {
        out[0] = '\0';
        return false;
    }
    memcpy(out, t, n + 1);
    return true;
}

/* Takes the row that `st` stands on. NULL: good, else why it cannot be used (ret->seq is set in any case). */
static const char *take_row(sqlite3_stmt *st, struct rec *ret)
{
    *ret = (struct rec)REC_INIT;
    ret->seq = (uint64_t)sqlite3_column_int64(st, 0);
    ret->generation = (uint64_t)sqlite3_column_int64(st, 1);
    ret->created_ns = sqlite3_column_int64(st, 6);
    ret->updated_ns = sqlite3_column_int64(st, 7);
    ret->wake_ns = sqlite3_column_int64(st, 8);
    if (!text_column(st, 2, ret->id, sizeof ret->id) || !ret->id[0])
        return "its id is empty or too long";
    if (!text_column(st, 3, ret->parent, sizeof ret->parent) || !text_column(st, 4, ret->volume, sizeof ret->volume) ||
        !text_column(st, 5, ret->state, sizeof ret->state))
        return "its parent, volume or state is too long";
    const char *doc = (const char *)sqlite3_column_text(st, 9);
    size_t n = (size_t)sqlite3_column_bytes(st, 9);
    if (!doc || n > RECORDS_DOC_MAX)
        return "its document is missing or too large";
    ret->doc = json_loadb(doc, n, JSON_ALLOW_NUL, NULL);
    if (!ret->doc)
        return "its document is no JSON";
    if (!json_is_object(ret->doc)) {
        rec_clear(ret);
        ret->seq = (uint64_t)sqlite3_column_int64(st, 0);
        return "its document is no JSON object";
    }
    return NULL;
}

/* Moves a row that cannot be used to the table set_aside, so that it is met once and can be looked at. */
static int set_aside(struct records *r, enum rec_kind k, uint64_t seq, const char *reason, struct err *e)
{
    sqlite3_stmt *copy, *del, *trim;
    int rc = records_tx_begin(r, e);
    if (rc < 0)
        return rc;
    if ((rc = records_kind_stmt(r, k, KS_ASIDE_COPY, &copy, e)) < 0 ||
        (rc = records_kind_stmt(r, k, KS_ASIDE_DELETE, &del, e)) < 0 ||
        (rc = records_stmt(r, OS_ASIDE_TRIM, &trim, e)) < 0)
        return records_tx_end(r, rc, e);
    sqlite3_bind_int64(copy, 1, (sqlite3_int64)seq);
    sqlite3_bind_text(copy, 2, records_tables[k], -1, SQLITE_STATIC);
    sqlite3_bind_text(copy, 3, reason, -1, SQLITE_STATIC);
    sqlite3_bind_int64(copy, 4, records_clock());
    sqlite3_bind_int64(del, 1, (sqlite3_int64)seq);
    sqlite3_bind_int(trim, 1, RECORDS_SET_ASIDE_KEPT);
    if ((rc = records_step(r, copy, e, "write")) >= 0 && (rc = records_step(r, del, e, "write")) >= 0)
        rc = records_step(r, trim, e, "write");
    return records_tx_end(r, rc, e);
}

/* One row by a bound statement. -ENOENT without words if there is none. */
static int load(struct records *r, enum rec_kind k, sqlite3_stmt *st, struct rec *ret, struct err *e)
{
    int rc = sqlite3_step(st);
    const char *bad = NULL;
    *ret = (struct rec)REC_INIT;
    if (rc == SQLITE_ROW)
        bad = take_row(st, ret);
    int fail = rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : records_fail(r, rc, false, e, "read");
    sqlite3_reset(st);
    sqlite3_clear_bindings(st);
    if (fail < 0)
        return fail;
    if (rc == SQLITE_DONE)
        return -ENOENT;
    if (!bad)
        return 0;
    uint64_t seq = ret->seq;
    char id[sizeof ret->id];
    memcpy(id, ret->id, sizeof id);
    rec_clear(ret);
    r->set_aside++;
    struct err ae = ERR_INIT;
    int aside = set_aside(r, k, seq, bad, &ae);
    records_tell_gone(r, k, id);
    log_warning("record of %s %s (number %llu) cannot be used, %s: %s%s", kind_words[k], id, (unsigned long long)seq,
                bad, aside < 0 ? "it could not be set aside: " : "set aside", aside < 0 ? ae.msg : "");
    return err_set(e, ERR_DAMAGE, EBADMSG, "the record of %s %s cannot be used: %s", kind_words[k], id, bad);
}

static int not_found(enum rec_kind k, const char *id, struct err *e)
{
    return err_plain(e, ERR_NOT_FOUND, ENOENT, "there is no record of %s %s", kind_words[k], id);
}

int records_get(struct records *r, enum rec_kind k, const char *id, struct rec *ret, struct err *e)
{
    sqlite3_stmt *st;
    *ret = (struct rec)REC_INIT;
    int rc = records_ready(r, e);
    if (rc < 0 || (rc = records_kind_stmt(r, k, KS_BY_ID, &st, e)) < 0)
        return rc;
    sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
    rc = load(r, k, st, ret, e);
    return rc == -ENOENT ? not_found(k, id, e) : rc;
}

static int load_seq(struct records *r, enum rec_kind k, uint64_t seq, struct rec *ret, struct err *e)
{
    sqlite3_stmt *st;
    int rc = records_kind_stmt(r, k, KS_BY_SEQ, &st, e);
    if (rc < 0)
        return rc;
    sqlite3_bind_int64(st, 1, (sqlite3_int64)seq);
    return load(r, k, st, ret, e);
}

/* ---- writing ---- */

static void bind_row(sqlite3_stmt *st, const struct rec *rec, const char *doc)
{
    sqlite3_bind_int64(st, 1, (sqlite3_int64)rec->seq);
    sqlite3_bind_int64(st, 2, (sqlite3_int64)rec->generation);
    sqlite3_bind_text(st, 3, rec->id, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 4, rec->parent, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 5, rec->volume, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 6, rec->state, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 8, rec->updated_ns);
    sqlite3_bind_int64(st, 9, rec->wake_ns);
    sqlite3_bind_text(st, 10, doc, -1, SQLITE_STATIC);
}

/* The next number of the sequence, durable with the transaction; a number of a transaction that is undone is lost, not
 * reused: the outside (tags of native snapshots) may have seen it. */
int records_next_seq(struct records *r, uint64_t *ret, struct err *e)
{
    sqlite3_stmt *st;
    int rc = records_stmt(r, OS_META_SET, &st, e);
    if (rc < 0)
        return rc;
    char text[24];
    uint64_t seq = r->next_seq;
    snprintf(text, sizeof text, "%llu", (unsigned long long)seq + 1);
    sqlite3_bind_text(st, 1, "seq", -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 2, text, -1, SQLITE_STATIC);
    if ((rc = records_step(r, st, e, "write")) < 0)
        return rc;
    r->next_seq = seq + 1;
    *ret = seq;
    return 0;
}

int records_seq_at_least(struct records *r, uint64_t seq, struct err *e)
{
    int rc = records_refuse_read_only(r, e);
    if (rc < 0 || seq < r->next_seq)
        return rc;
    if (seq >= INT64_MAX / 2)
        return err_set(e, ERR_GENERIC, ERANGE, "%llu is no number of a sequence", (unsigned long long)seq);
    if ((rc = records_tx_begin(r, e)) < 0)
        return rc;
    r->next_seq = seq + 1;
    uint64_t unused;
    rc = records_next_seq(r, &unused, e);
    return records_tx_end(r, rc, e);
}

static int insert_row(struct records *r, enum rec_kind k, struct rec *n, const char *doc, struct err *e)
{
    sqlite3_stmt *st;
    int rc = records_next_seq(r, &n->seq, e);
    if (rc < 0 || (rc = records_kind_stmt(r, k, KS_INSERT, &st, e)) < 0)
        return rc;
    bind_row(st, n, doc);
    sqlite3_bind_int64(st, 7, n->created_ns);
    rc = sqlite3_step(st);
    int ret = 0;
    if (rc == SQLITE_CONSTRAINT_UNIQUE)
        ret = err_plain(e, ERR_EXISTS, EEXIST, "a record of %s %s exists already", kind_words[k], n->id);
    else if (rc != SQLITE_DONE)
        ret = records_fail(r, rc, true, e, "write");
    sqlite3_reset(st);
    sqlite3_clear_bindings(st);
    return ret;
}

int records_add(struct records *r, enum rec_kind k, struct rec *rec, struct err *e)
{
    CLEANUP_FREE char *doc = NULL;
    int rc = records_refuse_read_only(r, e);
    if (rc < 0)
        return rc;
    if (!rec->id[0])
        return err_set(e, ERR_GENERIC, EINVAL, "a record of a %s needs an id", kind_words[k]);
    if (!rec->doc && !(rec->doc = json_object()))
        return err_nomem(e);
    if ((rc = dump_doc(rec->doc, &doc, e)) < 0 || (rc = records_tx_begin(r, e)) < 0)
        return rc;
    struct rec n = *rec;
    n.generation = 1;
    n.created_ns = n.updated_ns = records_clock();
    rc = records_tx_end(r, insert_row(r, k, &n, doc, e), e);
    if (rc >= 0) {
        *rec = n;
        records_tell(r, k, rec);
    }
    return rc;
}

/* "Deleting" is the way out of a finished backup (RS-23); it ends with the record. */
static bool may_become(enum rec_kind k, const char *from, const char *to)
{
    if (strcmp(from, to) == 0)
        return true;
    if (k == REC_BACKUP && strcmp(from, "Deleting") == 0)
        return false;
    return !state_terminal(from) || (k == REC_BACKUP && strcmp(to, "Deleting") == 0);
}

static int update_row(struct records *r, enum rec_kind k, struct rec *n, const char *doc, struct err *e)
{
    sqlite3_stmt *st;
    struct rec old;
    int rc = records_kind_stmt(r, k, KS_BY_ID, &st, e);
    if (rc < 0)
        return rc;
    sqlite3_bind_text(st, 1, n->id, -1, SQLITE_STATIC);
    if ((rc = load(r, k, st, &old, e)) < 0)
        return rc == -ENOENT ? not_found(k, n->id, e) : rc;
    if (old.seq != n->seq || old.generation != n->generation)
        rc = err_set(e, ERR_BUSY, ESTALE, "the record of %s %s was changed meanwhile", kind_words[k], n->id);
    else if (!may_become(k, old.state, n->state))
        rc = err_set(e, ERR_GENERIC, EINVAL, "%s %s is %s and cannot become %s", kind_words[k], n->id, old.state,
                     n->state);
    rec_clear(&old);
    if (rc < 0 || (rc = records_kind_stmt(r, k, KS_UPDATE, &st, e)) < 0)
        return rc;
    n->generation++;
    bind_row(st, n, doc);
    return records_step(r, st, e, "write");
}

int records_save(struct records *r, enum rec_kind k, struct rec *rec, struct err *e)
{
    CLEANUP_FREE char *doc = NULL;
    int rc = records_refuse_read_only(r, e);
    if (rc < 0 || (rc = dump_doc(rec->doc, &doc, e)) < 0 || (rc = records_tx_begin(r, e)) < 0)
        return rc;
    struct rec n = *rec;
    n.updated_ns = records_clock();
    rc = records_tx_end(r, update_row(r, k, &n, doc, e), e);
    if (rc >= 0) {
        rec->generation = n.generation;
        rec->updated_ns = n.updated_ns;
        records_tell(r, k, rec);
    }
    return rc;
}

static int delete_row(struct records *r, enum rec_kind k, const char *id, struct err *e)
{
    sqlite3_stmt *st;
    int rc = records_kind_stmt(r, k, KS_DELETE, &st, e);
    if (rc < 0)
        return rc;
    sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
    if ((rc = records_step(r, st, e, "write")) < 0)
        return rc;
    return sqlite3_changes64(r->db) > 0 ? 0 : not_found(k, id, e);
}

int records_delete(struct records *r, enum rec_kind k, const char *id, struct err *e)
{
    int rc = records_refuse_read_only(r, e);
    if (rc < 0 || (rc = records_tx_begin(r, e)) < 0)
        return rc;
    rc = records_tx_end(r, delete_row(r, k, id, e), e);
    if (rc >= 0)
        records_tell_gone(r, k, id);
    return rc;
}

/* ---- walking ---- */

enum { SHAPE_PARENT = 1, SHAPE_VOLUME = 2, SHAPE_STATE = 4, SHAPE_LIVE = 8, SHAPE_NEWEST = 16, SHAPE_COUNT = 32 };

static const struct rec_filter no_filter;

static unsigned shape_of(const struct rec_filter *f, bool count)
{
    /* A state that is not terminal is looked for among the live rows, which have an index of their own. */
    bool live = f->live || (f->state && !state_terminal(f->state));
    return (f->parent ? SHAPE_PARENT : 0u) | (f->volume ? SHAPE_VOLUME : 0u) | (f->state ? SHAPE_STATE : 0u) |
           (live ? SHAPE_LIVE : 0u) | (f->newest_first && !count ? SHAPE_NEWEST : 0u) | (count ? SHAPE_COUNT : 0u);
}

/* The statement of a filter, with its values bound: ?1 parent, ?2 volume, ?3 state, ?4 limit. */
static int list_stmt(struct records *r, enum rec_kind k, const struct rec_filter *f, bool count, sqlite3_stmt **ret,
                     struct err *e)
{
    unsigned s = shape_of(f, count);
    sqlite3_stmt **slot = &r->lists[k][s];
    const char *t = records_tables[k];
    char sql[512];
    bool by_live = (s & SHAPE_LIVE) && !(s & (SHAPE_PARENT | SHAPE_VOLUME));
    snprintf(sql, sizeof sql, "SELECT %s FROM %s%s%s%s WHERE 1%s%s%s%s%s", count ? "count(*)" : "seq", t,
             by_live ? " INDEXED BY " : "", by_live ? t : "", by_live ? "_live" : "",
             s & SHAPE_PARENT ? " AND parent=?1" : "", s & SHAPE_VOLUME ? " AND volume=?2" : "",
             s & SHAPE_STATE ? " AND state=?3" : "", s & SHAPE_LIVE ? " AND state NOT IN " RECORDS_TERMINAL_SQL : "",
             count              ? ""
             : s & SHAPE_NEWEST ? " ORDER BY seq DESC LIMIT ?4"
                                : " ORDER BY seq LIMIT ?4");
    int rc = records_prepare(r, slot, sql, e);
    if (rc < 0)
        return rc;
    *ret = *slot;
    if (f->parent)
        sqlite3_bind_text(*slot, 1, f->parent, -1, SQLITE_STATIC);
    if (f->volume)
        sqlite3_bind_text(*slot, 2, f->volume, -1, SQLITE_STATIC);
    if (f->state)
        sqlite3_bind_text(*slot, 3, f->state, -1, SQLITE_STATIC);
    if (!count)
        sqlite3_bind_int64(*slot, 4, f->limit ? (sqlite3_int64)f->limit : -1);
    return 0;
}

/* All numbers that a bound statement yields: eight bytes a row, so that no statement stays open while the caller's
 * function writes. */
int records_collect(struct records *r, sqlite3_stmt *st, uint64_t **ret, size_t *n, struct err *e)
{
    size_t cap = 0;
    int rc, fail = 0;
    *ret = NULL;
    *n = 0;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        if (*n == cap) {
            cap = cap ? 2 * cap : 64;
            uint64_t *more = reallocarray(*ret, cap, sizeof **ret);
            if (!more) {
                fail = err_nomem(e);
                break;
            }
            *ret = more;
        }
        (*ret)[(*n)++] = (uint64_t)sqlite3_column_int64(st, 0);
    }
    if (!fail && rc != SQLITE_DONE)
        fail = records_fail(r, rc, false, e, "read");
    sqlite3_reset(st);
    sqlite3_clear_bindings(st);
    if (fail < 0) {
        free(*ret);
        *ret = NULL;
        *n = 0;
    }
    return fail;
}

static bool matches(const struct rec_filter *f, const struct rec *rec)
{
    return (!f->parent || strcmp(f->parent, rec->parent) == 0) && (!f->volume || strcmp(f->volume, rec->volume) == 0) &&
           (!f->state || strcmp(f->state, rec->state) == 0) && (!f->live || !state_terminal(rec->state));
}

int records_each(struct records *r, enum rec_kind k, const struct rec_filter *f, rec_fn *fn, void *arg, struct err *e)
{
    sqlite3_stmt *st;
    CLEANUP_FREE uint64_t *seqs = NULL;
    size_t n = 0;
    if (!f)
        f = &no_filter;
    int rc = records_ready(r, e);
    if (rc < 0 || (rc = list_stmt(r, k, f, false, &st, e)) < 0 || (rc = records_collect(r, st, &seqs, &n, e)) < 0)
        return rc;
    for (size_t i = 0; i < n; i++) {
        struct rec rec;
        rc = load_seq(r, k, seqs[i], &rec, e);
        if (rc == -ENOENT || (rc == -EBADMSG && !r->corrupt))
            continue; /* gone meanwhile, or set aside */
        if (rc < 0)
            return rc;
        rc = matches(f, &rec) ? fn(&rec, arg) : 0;
        rec_clear(&rec);
        if (rc)
            return rc;
    }
    return 0;
}

int records_count(struct records *r, enum rec_kind k, const struct rec_filter *f, uint64_t *ret, struct err *e)
{
    sqlite3_stmt *st;
    CLEANUP_FREE uint64_t *one = NULL;
    size_t n = 0;
    *ret = 0;
    if (!f)
        f = &no_filter;
    int rc = records_ready(r, e);
    if (rc < 0 || (rc = list_stmt(r, k, f, true, &st, e)) < 0 || (rc = records_collect(r, st, &one, &n, e)) < 0)
        return rc;
    if (n)
        *ret = f->limit && one[0] > f->limit ? f->limit : one[0];
    return 0;
}
