/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * records_internal.h - what the files of the records share, and what their tests reach into
 *
 * records.c: rows. records_tx.c: transactions, errors, statements. records_db.c: opening and recovery.
 * records_schema.c: tables and migrations. records_salvage.c: reading a damaged database. records_copy.c: the read-only
 * view. records_small.c: intents, counters, small values. records_histogram.c: distributions. records_watch.c: who is
 * told of writes. records_prune.c: what is old.
 */
#ifndef SNAPFERRY_DAEMON_RECORDS_INTERNAL_H
#define SNAPFERRY_DAEMON_RECORDS_INTERNAL_H

#include "daemon/records/records.h"

#include <limits.h>
#include <sqlite3.h>

#define RECORDS_DB "records.db"
#define RECORDS_CORRUPT_KEPT 3      /* damaged databases set aside that are kept */
#define RECORDS_SET_ASIDE_KEPT 100  /* rows set aside that are kept */
#define RECORDS_DOC_MAX (16u << 20) /* bytes of one document */
#define RECORDS_COUNTERS_MAX 20000
#define RECORDS_TERMINAL_SQL "('Completed','PartiallyFailed','Failed','Canceled','Skipped')"

/* One step of the schema; they run in order of `from`. */
struct records_migration {
    unsigned from; /* makes from + 1 of it */
    const char *sql;
};
struct records_schema {
    unsigned version;
    const struct records_migration *migrations;
    size_t n;
};
extern const struct records_schema records_schema_shipped;

/* Statements that exist once for each kind of row; "%s" in their text is the table. */
enum kind_stmt { KS_BY_ID, KS_BY_SEQ, KS_INSERT, KS_UPDATE, KS_DELETE, KS_ASIDE_COPY, KS_ASIDE_DELETE, KS_N };
/* Statements that exist once. */
enum one_stmt {
    OS_BEGIN,
    OS_COMMIT,
    OS_ROLLBACK,
    OS_META_SET,
    OS_META_DELETE,
    OS_META_GET,
    OS_INTENT_ADD,
    OS_INTENT_UPDATE,
    OS_INTENT_RESOLVE,
    OS_INTENT_IDS,
    OS_INTENT_IDS_OF,
    OS_INTENT_GET,
    OS_COUNTER_SET,
    OS_COUNTER_DELETE,
    OS_ASIDE_TRIM,
    OS_N
};
#define LIST_SHAPES 64 /* parent, volume, state, live, newest first, count */

struct counter {
    char *name;
    char *labels;       /* canonical JSON text */
    double value, undo; /* undo: what it was before the hold */
    bool dirty, held, gone;
};

struct records {
    sqlite3 *db;
    char dir[PATH_MAX], path[PATH_MAX + 16];
    int lock_fd;
    bool read_only; /* a private copy: callers may not write */
    const struct records_schema *schema;
    unsigned depth; /* of begin calls */
    bool doomed;    /* the transaction was rolled back inside */
    sqlite3_int64 changes_before;
    bool corrupt;          /* damage was met; the next call outside a transaction recovers */
    int64_t recover_after; /* CLOCK_MONOTONIC: not again before */
    unsigned recoveries, set_aside;
    uint64_t write_errors;
    bool degraded;
    uint64_t next_seq;
    sqlite3_stmt *kind_stmts[REC_KINDS][KS_N], *stmts[OS_N], *lists[REC_KINDS][LIST_SHAPES];
    struct counter **counters;
    size_t counter_n, counter_cap;
    void *counter_tree; /* tsearch(3) over the same */
    bool counters_dirty;
    unsigned holds;
    records_watch_fn *watch;
    rows_watch_fn *rows_watch;
    void *rows_watch_arg;
    void *watch_arg;
    bool told;                /* of rows of the present transaction */
    int64_t counters_written; /* CLOCK_MONOTONIC of the last write */
};

extern const char *const records_tables[REC_KINDS];

/* CLOCK_REALTIME in ns; tests replace it. */
extern int64_t (*records_clock)(void);

/* records_open() with another schema: for the tests of migration. */
int records_open_with(struct records **ret, const char *state_dir, const struct records_schema *schema,
                      struct records_news *news, struct err *e);

/* ---- records_tx.c ---- */
/* Words an SQLite failure: class, errno. `what`: "write the records". Never NULL text. */
int records_sqlite_fail(sqlite3 *db, int rc, const char *path, struct err *e, const char *what);
/* The same for an open store: notes damage, degradation and a lost transaction. */
int records_fail(struct records *r, int rc, bool writing, struct err *e, const char *what);
int records_stmt(struct records *r, enum one_stmt which, sqlite3_stmt **ret, struct err *e);
int records_kind_stmt(struct records *r, enum rec_kind k, enum kind_stmt which, sqlite3_stmt **ret, struct err *e);
int records_prepare(struct records *r, sqlite3_stmt **slot, const char *sql, struct err *e);
void records_finalize(struct records *r);
/* Steps a statement that returns no row, and resets it. */
int records_step(struct records *r, sqlite3_stmt *st, struct err *e, const char *what);
/* First thing in every public call: recovers from damage met before. */
int records_ready(struct records *r, struct err *e);
/* begin/commit/rollback without the check for a read-only view. records_tx_end() commits if rc >= 0, else undoes:
 * returns rc or the commit's error. */
int records_tx_begin(struct records *r, struct err *e);
int records_tx_end(struct records *r, int rc, struct err *e);
int records_refuse_read_only(const struct records *r, struct err *e);

/* ---- records.c ---- */
int records_next_seq(struct records *r, uint64_t *ret, struct err *e);
/* All numbers in the first column of a bound statement, which is reset; *ret is malloc()ed. */
int records_collect(struct records *r, sqlite3_stmt *st, uint64_t **ret, size_t *n, struct err *e);

/* ---- records_db.c ---- */
int records_open_database(struct records *r, bool check, struct records_news *news, struct err *e);
void records_close_database(struct records *r);
int records_recover(struct records *r, struct err *e);
int records_connect(sqlite3 **ret, const char *path, struct err *e);
int records_exec(sqlite3 *db, const char *path, const char *sql, struct err *e, const char *what);
int records_sync_dir(const char *dir, struct err *e);
void records_free(struct records *r);

/* ---- records_watch.c ---- */
void records_tell(struct records *r, enum rec_kind k, const struct rec *rec);
void records_tell_gone(struct records *r, enum rec_kind k, const char *id);
void records_tell_all(struct records *r);
/* After a transaction: what was told in it is true, or not. */
void records_tell_end(struct records *r, bool undone);

/* ---- records_schema.c ---- */
/* Makes the tables, with the version, in an empty database. */
int records_schema_create(sqlite3 *db, const char *path, unsigned version, struct err *e);
int records_migrate(struct records *r, unsigned from, struct err *e);

/* ---- records_salvage.c ---- */
/* Builds a new database of what can be read of the old one and puts it in its place. */
int records_salvage(struct records *r, const char *why, struct records_news *news, struct err *e);
/* Ends a salvage that was interrupted after the new database was whole. *done: there was one. */
int records_finish_swap(const char *dir, bool *done, char *kept, size_t cap, struct err *e);

/* ---- records_small.c ---- */
int records_counters_load(struct records *r, struct err *e);
int records_counters_write(struct records *r, struct err *e);
void records_counters_written(struct records *r);
void records_counters_free(struct records *r);
/* Malloc()ed canonical text of labels, NULL for no memory. */
char *records_labels_text(const json_t *labels);

#endif
