/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * records-impl.h - what the files of the records share, and what their tests reach into
 *
 * From the lowest to the highest: sql.c (SQLite: connections, statements, errors), schema.c (tables, migrations),
 * image.c (what is in memory), counters.c, set-aside.c, load.c (from disk into memory), write.c (changes from memory to
 * disk), replace.c (a new database in the place of a damaged one), integrity.c (looks for damage beside the work),
 * database.c (opening, recovery), transactions.c, rows.c, walk.c, intents.c, counting.c, prune.c, lock.c, open.c,
 * copy.c.
 */
#ifndef SNAPFERRY_DAEMON_RECORDS_IMPL_H
#define SNAPFERRY_DAEMON_RECORDS_IMPL_H

#include "daemon/records/image.h"
#include "daemon/records/records.h"

#include <limits.h>
#include <sqlite3.h>

#define RECORDS_DB "records.db"
#define RECORDS_CORRUPT_KEPT 3      /* damaged databases set aside that are kept */
#define RECORDS_SET_ASIDE_KEPT 100  /* rows set aside that are kept */
#define RECORDS_DOC_MAX (16u << 20) /* bytes of one document */
#define RECORDS_COUNTERS_MAX 20000
#define WATCHERS_MAX 4
#define RECORDS_CHECK_MAX                                                                                              \
    (32 << 20) /* bytes of a database that is checked before it is used; a larger one is, later                        \
                */
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

/* Statements that exist once for each kind of row. */
enum kind_stmt {
    KS_BY_ID,
    KS_BY_SEQ,
    KS_HAS_ID,
    KS_INSERT,
    KS_UPDATE,
    KS_DELETE,
    KS_ASIDE_COPY,
    KS_ASIDE_DELETE,
    KS_N
};
/* Statements that exist once. */
enum one_stmt {
    OS_BEGIN,
    OS_COMMIT,
    OS_META_SET,
    OS_INTENT_ADD,
    OS_INTENT_UPDATE,
    OS_INTENT_RESOLVE,
    OS_COUNTER_SET,
    OS_COUNTER_DELETE,
    OS_ASIDE_TRIM,
    OS_N
};
#define LIST_SHAPES 32 /* parent, volume, state, terminal, count */

struct counter {
    char *name;
    char *labels;       /* canonical JSON text */
    double value, undo; /* undo: what it was before the hold */
    bool dirty, held, gone;
};

struct integrity;

struct records {
    sqlite3 *db;
    char dir[PATH_MAX], path[PATH_MAX + 16];
    int lock_fd;
    bool read_only; /* a private copy: callers may not write */
    const struct records_schema *schema;
    struct image image;
    unsigned depth;        /* of begin calls */
    bool doomed;           /* the transaction was undone inside */
    bool corrupt;          /* damage was met; the next call outside a transaction recovers */
    int64_t recover_after; /* CLOCK_MONOTONIC: not again before */
    unsigned recoveries, set_aside;
    uint64_t write_errors;
    bool degraded;
    uint64_t next_seq, seq_written;
    sqlite3_stmt *kind_stmts[ROW_KINDS][KS_N], *stmts[OS_N], *lists[ROW_KINDS][LIST_SHAPES];
    struct counter **counters;
    size_t counter_n, counter_cap;
    void *counter_tree; /* tsearch(3) over the same */
    bool counters_dirty;
    unsigned holds;
    int64_t counters_written;    /* CLOCK_MONOTONIC of the last write */
    struct integrity *integrity; /* a look for damage that is under way */
    struct watcher {
        rows_watch_fn *fn;
        void *arg;
    } watchers[WATCHERS_MAX];
    unsigned n_watchers;
};

/* CLOCK_REALTIME in ns; tests replace it. */
extern int64_t (*records_clock)(void);
/* Bytes of a database that is checked before it is used (RECORDS_CHECK_MAX); tests replace it. */
extern int64_t records_check_max;

/* records_open() with another schema: for the tests of migration. */
int records_open_with(struct records **ret, const char *state_dir, const struct records_schema *schema,
                      struct records_news *news, struct err *e);

/* ---- sql.c ---- */

int records_connect(sqlite3 **ret, const char *path, struct err *e);
int records_exec(sqlite3 *db, const char *path, const char *sql, struct err *e, const char *what);
int records_sync_dir(const char *dir, struct err *e);
/* Words an SQLite failure: class, errno. `what`: "write the records". Never NULL text. */
int records_sqlite_fail(sqlite3 *db, int rc, const char *path, struct err *e, const char *what);
bool records_is_damage(int rc);
/* The same for an open store: notes damage and degradation. */
int records_fail(struct records *r, int rc, bool writing, struct err *e, const char *what);
int records_prepare(struct records *r, sqlite3_stmt **slot, const char *sql, struct err *e);
int records_stmt(struct records *r, enum one_stmt which, sqlite3_stmt **ret, struct err *e);
int records_kind_stmt(struct records *r, enum row_kind k, enum kind_stmt which, sqlite3_stmt **ret, struct err *e);
void records_finalize(struct records *r);
/* Steps a statement that returns no row, and resets it. */
int records_step(struct records *r, sqlite3_stmt *st, struct err *e, const char *what);
/* All numbers in the first column of a bound statement, which is reset; *ret is malloc()ed. */
int records_collect(struct records *r, sqlite3_stmt *st, uint64_t **ret, size_t *n, struct err *e);
/* A transaction of SQLite's. end: commits if rc >= 0, else undoes; returns rc or the commit's error. */
int records_sql_begin(struct records *r, struct err *e);
int records_sql_end(struct records *r, int rc, struct err *e);
int records_refuse_read_only(const struct records *r, struct err *e);
/* The columns of a row. */
#define ROW_COLUMNS "seq,generation,id,parent,volume,state,created_ns,updated_ns,wake_ns,doc"

/* ---- schema.c ---- */

/* Makes the tables, with the version, in an empty database. */
int records_schema_create(sqlite3 *db, const char *path, unsigned version, struct err *e);
int records_migrate(struct records *r, unsigned from, struct err *e);

/* ---- counters.c ---- */

int records_counters_load(struct records *r, struct err *e);
int records_counters_write(struct records *r, struct err *e);
void records_counters_written(struct records *r);
void records_counters_free(struct records *r);
/* Makes it if there is none. */
int records_counter_find(struct records *r, const char *name, const char *labels, struct counter **ret, struct err *e);
/* Malloc()ed canonical text of labels, NULL for no memory. */
char *records_labels_text(const json_t *labels);

/* ---- load.c ---- */

/* "native snapshot": for sentences. */
extern const char *const records_kind_words[ROW_KINDS];
/* The row that `st` stands on, as a new version. NULL: it cannot be used, for the reason *why (NULL: no memory). */
struct version *records_take_row(enum row_kind k, sqlite3_stmt *st, const char **why);
/* Moves a row that cannot be used to the table set_aside, so that it is met once and can be looked at. */
void records_set_row_aside(struct records *r, enum row_kind k, uint64_t seq, const char *id, const char *why);
/* All that is kept in memory. */
int records_load(struct records *r, struct err *e);

/* ---- write.c ---- */

/* Inside a transaction of SQLite's: what the transaction has changed, counters and the sequence; everything. */
int records_write_changes(struct records *r, struct err *e);
int records_write_all(struct records *r, struct err *e);

/* ---- replace.c ---- */

/* Makes a database of all that is in memory and puts it in the place of the damaged one, which is set aside. r->db is
 * closed before and after. */
int records_replace(struct records *r, const char *why, struct records_news *news, struct err *e);
/* Ends a replacement that was interrupted after the new database was whole. *done: there was one. */
int records_finish_swap(const char *dir, bool *done, char *kept, size_t cap, struct err *e);

/* ---- integrity.c ---- */

/* Starts to look for damage in a thread of its own; a failure to start is logged. */
void records_integrity_start(struct records *r);
/* Whether it has found damage; ends it if it is done. */
bool records_integrity_bad(struct records *r);
void records_integrity_stop(struct records *r);

/* ---- database.c ---- */

int records_open_database(struct records *r, bool check, struct records_news *news, struct err *e);
void records_close_database(struct records *r);
int records_recover(struct records *r, struct err *e);

/* ---- transactions.c ---- */

/* First thing in every public call: recovers from damage met before. */
int records_ready(struct records *r, struct err *e);
/* begin and commit without the check for a read-only view. records_tx_end() commits if rc >= 0: returns rc or the
 * commit's error. What failed within a transaction of the caller's has changed nothing. */
int records_tx_begin(struct records *r, struct err *e);
int records_tx_end(struct records *r, int rc, struct err *e);
uint64_t records_next_seq(struct records *r);
/* Reports to the watchers that `was` has become `now` in memory; one of them may be NULL. */
void records_report_change(const struct records *r, const char *id, const struct version *was,
                           const struct version *now);

/* ---- rows.c ---- */

/* The row of a bound statement; one that cannot be used is set aside (-EBADMSG). -ENOENT without words: there is none.
 */
int records_fetch(struct records *r, enum row_kind k, sqlite3_stmt *st, struct version **ret, struct err *e);

/* ---- lock.c ---- */
int records_lock(struct records *r, struct err *e);
int records_make_dir(const char *dir, struct err *e);

/* ---- open.c ---- */
void records_free(struct records *r);

#endif
