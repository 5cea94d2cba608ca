/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * records-impl.h - what the files of the records share, and what their tests reach into
 *
 * From the lowest to the highest: sql.c (SQLite: connections, statements, errors), schema.c (tables, migrations),
 * image.c (what is in memory), counters.c, load.c (from disk into memory), write.c (changes from memory to disk),
 * replace.c (a new database in the place of a damaged one), integrity.c (looks for damage beside the work),
 * holds-file.c, database.c (opening, recovery), watch.c, commit.c (a transaction goes to disk), transactions.c, rows.c,
 * walk.c, intents.c, counting.c, holds.c (what is held), prune.c, lock.c, open.c, copy.c.
 *
 * The writing connection is that of the event loop's thread, and of the commit's thread while a commit is under way.
 * The reading one is always the event loop's.
 */
#ifndef SNAPFERRY_DAEMON_RECORDS_IMPL_H
#define SNAPFERRY_DAEMON_RECORDS_IMPL_H

#include "daemon/records/image.h"
#include "daemon/records/records.h"

#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
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
/* Whether a row is finished. Compared one by one: for a list in IN SQLite makes a table whenever it writes a row. */
#define RECORDS_ENDED_SQL(state)                                                                                       \
    "(" state "='Completed' OR " state "='PartiallyFailed' OR " state "='Failed' OR " state "='Canceled' OR " state    \
    "='Skipped')"
#define RECORDS_LIVE_SQL(state)                                                                                        \
    "(" state "<>'Completed' AND " state "<>'PartiallyFailed' AND " state "<>'Failed' AND " state                      \
    "<>'Canceled' AND " state "<>'Skipped')"

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
    KS_BY_PART,
    KS_INSERT,
    KS_UPDATE,
    KS_UPDATE_PLACE, /* parent and volume, too */
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
    OS_COUNTER_NAME,
    OS_COUNTER_DELETE,
    OS_COUNTER_VALUES,
    OS_ASIDE_TRIM,
    OS_N
};
#define LIST_SHAPES 32 /* parent, volume, state, terminal, count */

/* What failed, and is not made up for yet. */
struct failures {
    bool corrupt;          /* damage was met */
    bool degraded;         /* the last write failed */
    int sys;               /* why: errno; 0: of a kind that has none */
    uint64_t write_errors; /* so far */
};

struct connection {
    sqlite3 *db;
    const char *path;       /* of the records */
    struct failures *noted; /* where its failures are noted */
    sqlite3_stmt *kind_stmts[ROW_KINDS][KS_N], *stmts[OS_N], *lists[ROW_KINDS][LIST_SHAPES];
};

#define COUNTERS_OF_PAGE 32 /* values in one row: those that are counted together are made together */
#define COUNTER_WIDTH 25    /* characters of each, with spaces behind it */

/* Of a name and labels: they are looked for some hundred times for an operation, and many begin alike. */
static inline uint32_t counter_hash(const char *name, const char *labels)
{
    uint32_t h = 2166136261u;
    for (const char *p = name; *p; p++)
        h = (h ^ (unsigned char)*p) * 16777619u;
    for (const char *p = labels; *p; p++)
        h = (h ^ (unsigned char)*p) * 16777619u;
    return h;
}

struct counter {
    char *name;
    char *labels;       /* canonical JSON text */
    uint32_t hash;      /* counter_hash() */
    uint64_t n;         /* its number on disk: page and place */
    double value, undo; /* undo: what it was before the hold */
    bool dirty, held, gone;
    bool kept;                         /* it is, or is about to be, on disk */
    bool named;                        /* its name is on disk */
    bool in_doubt, undo_in_doubt;      /* value, undo: a commit under way may take something off again */
    const struct histogram *histogram; /* whose bucket it is, NULL: of none */
    size_t bucket;
};

/*
 * The counters of a histogram, found once. Each bucket counts what lies between the bound below and its own, under the
 * name NAME_in: a value changes one of them. They are added up when they are read, as NAME_bucket.
 */
struct histogram {
    char *name, *labels;
    uint32_t hash; /* counter_hash() */
    size_t n;      /* bounds */
    struct counter *sum, *count, *buckets[];
};
static inline void histogram_free(void *histogram)
{
    struct histogram *h = histogram;
    free(h->name);
    free(h->labels);
    free(h);
}

/* A counter before a change since the savepoint. */
struct counter_before {
    struct counter *counter;
    double value;
    bool gone;
};
struct counters_before {
    bool set;
    struct counter_before *v;
    size_t n, cap;
};

/* A counter as a commit writes it. */
struct counted {
    struct counter *counter;
    double value, undo;
    bool gone, held, named;
};
struct counter_page {
    uint64_t page;
    double values[COUNTERS_OF_PAGE];
};
struct counted_list {
    struct counted *v;
    struct counter_page *pages; /* that have one of them, with all their values */
    size_t n, n_pages;
};

/* Old rows go, a part at a time. */
enum prune_stage { PRUNE_DONE, PRUNE_FIRST, PRUNE_BACKUPS, PRUNE_OPERATIONS, PRUNE_LAST };
struct pruning {
    enum prune_stage stage;
    unsigned keep_n;
    int64_t before_ns;
    sqlite3_int64 below, from; /* numbers of rows */
    int removed;
};

/* Other work with the writing connection. */
typedef int beside_fn(struct connection *w, void *arg, struct err *e);

/* The file of holds as a commit writes it. */
struct holds_write {
    char *text; /* NULL: it stays as it is */
    const char *dir;
    uint64_t number;
    bool must;            /* without it there is no commit */
    bool prepared, named; /* it is durable; under its name */
    bool unknown;         /* records_holds_unknown() */
    struct err err;       /* why it is not */
};

/* A transaction on its way to the disk. What it writes does not change until it has ended. */
struct commit {
    struct connection *writer;
    const struct image *image;
    struct counted_list counters;
    struct holds_write holds;
    uint64_t next_seq;
    bool seq_changed;
    unsigned hold; /* the hold that was open */
    struct failures noted;
    struct err err;
    int rc;
    int fd; /* an eventfd, written at the end; -1: none */
    pthread_t thread;
    sem_t go, done;            /* it has something to do; that is done */
    bool there;                /* the thread was started, and waits or works */
    bool running;              /* it works, and nobody has waited for its end */
    bool ends;                 /* it is to end */
    records_before_fn *before; /* first; NULL: nothing */
    void *before_arg;
    beside_fn *work; /* what it does instead of writing a transaction; NULL: it writes one */
    void *work_arg;
};

struct integrity;

struct records {
    struct connection writer, reader;
    char dir[PATH_MAX], path[PATH_MAX + 16];
    int lock_fd;
    bool read_only; /* a private copy: callers may not write */
    const struct records_schema *schema;
    struct image image;
    unsigned depth;        /* of begin calls */
    bool doomed;           /* the transaction was undone inside */
    struct failures noted; /* corrupt: the next call outside a transaction recovers */
    int64_t recover_after; /* CLOCK_MONOTONIC: not again before */
    unsigned recoveries, set_aside;
    uint64_t next_seq, seq_written;
    uint64_t first_seq; /* lower numbers are of other records */
    int64_t began_ns;   /* 0: not known */
    struct commit commit;
    struct pruning pruning;
    bool ended; /* a commit, or a part of pruning, that was started has ended, and its result was not taken */
    int ended_rc;
    struct err ended_err;
    struct counter **counters; /* by their numbers */
    size_t counter_n, counter_cap;
    void *counter_tree;   /* tsearch(3) over the same */
    void *histogram_tree; /* of struct histogram */
    bool counters_dirty;
    struct counters_before save;
    bool counters_apart;          /* what is counted belongs neither to the savepoint nor to the hold */
    unsigned counter_holds, hold; /* how deep; number of the outermost one */
    struct holds {
        uint64_t number;         /* of the last change */
        bool stale;              /* the file has not what the database has */
        char why[1024];          /* it could not be written */
        bool unknown;            /* those of before these records */
        bool taken_over;         /* what is held is from the file */
    } holds;                     /* of native snapshots */
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
/* Databases that are opened need not survive the machine, have one connection, and are not searched for damage: for
 * tests that open thousands. What is committed is in the file all the same, for the next who opens it. */
extern bool records_volatile;

/* records_open() with another schema: for the tests of migration. */
int records_open_with(struct records **ret, const char *state_dir, const struct records_schema *schema,
                      struct records_news *news, struct err *e);

/* ---- sql.c ---- */

int records_connect(sqlite3 **ret, const char *path, struct err *e);
int records_exec(sqlite3 *db, const char *path, const char *sql, struct err *e, const char *what);
int records_sync_dir(const char *dir, struct err *e);
/* Words an SQLite failure: class, errno. `what`: "write the records". Never NULL text. */
int records_sqlite_fail(sqlite3 *db, int rc, const char *path, struct err *e, const char *what);
/* `db` (may be NULL) has the message of rc: a table that is missing is damage, too. */
bool records_is_damage(sqlite3 *db, int rc);
/* The same for an open store: notes damage and degradation. */
int records_fail(struct connection *c, int rc, bool writing, struct err *e, const char *what);
int records_prepare(struct connection *c, sqlite3_stmt **slot, const char *sql, struct err *e);
int records_stmt(struct connection *c, enum one_stmt which, sqlite3_stmt **ret, struct err *e);
int records_kind_stmt(struct connection *c, enum row_kind k, enum kind_stmt which, sqlite3_stmt **ret, struct err *e);
void records_finalize(struct connection *c);
void records_disconnect(struct connection *c);
/* Steps a statement that returns no row, and resets it. */
int records_step(struct connection *c, sqlite3_stmt *st, struct err *e, const char *what);
/* All numbers in the first column of a bound statement, which is reset; *ret is malloc()ed. */
int records_collect(struct connection *c, sqlite3_stmt *st, uint64_t **ret, size_t *n, struct err *e);
/* A transaction of SQLite's. end: commits if rc >= 0, else undoes; returns rc or the commit's error. */
int records_sql_begin(struct connection *c, struct err *e);
int records_sql_end(struct connection *c, int rc, struct err *e);
int records_refuse_read_only(const struct records *r, struct err *e);
/* A thread that gets no signals: those are the event loop's. Returns an errno. */
int records_thread(pthread_t *ret, void *(*fn)(void *), void *arg);
/* The connection that rows are read with. */
static inline struct connection *records_reader(struct records *r)
{
    return r->reader.db ? &r->reader : &r->writer;
}
/* The columns of a row. */
#define ROW_COLUMNS "seq,generation,id,parent,volume,state,created_ns,updated_ns,wake_ns,doc"

/* ---- schema.c ---- */

/* Makes the tables, with the version, in an empty database. */
int records_schema_create(sqlite3 *db, const char *path, unsigned version, struct err *e);
int records_migrate(struct records *r, unsigned from, struct err *e);
/* The index by which finished rows are listed, if it is not there: an earlier version has made the database. */
int records_schema_index(sqlite3 *db, const char *path, struct err *e);
/* Rows of values go of which all counters were removed. */
int records_schema_tidy(sqlite3 *db, const char *path, struct err *e);

/* ---- counters.c ---- */

int records_counters_load(struct records *r, struct err *e);
/* What a bucket shows: all values that are not above its bound, and under which name. */
#define RECORDS_BUCKET_NAME 160
double records_bucket_value(const struct counter *c, char name[RECORDS_BUCKET_NAME]);
/* What waits to be written (all: everything there is), for a commit. Until that has ended it is in doubt. */
int records_counters_take(struct records *r, bool all, struct counted_list *ret, struct err *e);
int records_counters_write(struct connection *c, const struct counted_list *l, struct err *e);
/* The commit has ended; what was held for it and failed is taken off again, unless that hold (a number) is still open.
 * Frees the list. */
void records_counters_ended(struct records *r, struct counted_list *l, bool written, unsigned hold);
void records_counters_free(struct records *r);
/* What was counted since records_counters_savepoint() stays or is taken back. */
void records_counters_savepoint(struct records *r);
void records_counters_savepoint_end(struct records *r, bool undo);
/* Makes it if there is none. */
int records_counter_find(struct records *r, const char *name, const char *labels, struct counter **ret, struct err *e);
/* NULL: it was never counted. One that was removed is known still (gone). */
struct counter *records_counter_known(const struct records *r, const char *name, const char *labels);
/* As records_counter_remove(). */
int records_counter_forget(struct records *r, struct counter *c, struct err *e);
/* Adds to one, or sets it. */
int records_counter_change(struct records *r, struct counter *c, double v, bool add, struct err *e);
/* Malloc()ed canonical text of labels, NULL for no memory. */
char *records_labels_text(const json_t *labels);

/* ---- histogram.c ---- */

/* After the counters: which of them are buckets of one. */
int records_histograms_load(struct records *r, struct err *e);

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
int records_write_changes(const struct commit *c, struct err *e);
int records_write_all(struct records *r, const struct counted_list *counters, struct err *e);

/* ---- replace.c ---- */

/* Makes a database of all that is in memory and puts it in the place of the damaged one, which is set aside. The
 * connections are closed before and after. */
int records_replace(struct records *r, const char *why, struct records_news *news, struct err *e);
/* Ends a replacement that was interrupted after the new database was whole. *done: there was one. */
int records_finish_swap(const char *dir, bool *done, char *kept, size_t cap, struct err *e);

/* ---- integrity.c ---- */

/* Starts to look for damage in a thread of its own; a failure to start is logged. */
void records_integrity_start(struct records *r);
/* Whether it has found damage; ends it if it is done. */
bool records_integrity_bad(struct records *r);
void records_integrity_stop(struct records *r);

/* ---- holds-file.c ---- */

#define HOLDS "holds"
#define HOLDS_NEW "holds.new"

/* A line of the file. */
enum held_field {
    HELD_WORD,
    HELD_ALIAS,
    HELD_AT,
    HELD_SEQ,
    HELD_CREATED,
    HELD_BACKUP,
    HELD_VOLUME_ID,
    HELD_VOLUME_NAME,
    HELD_NOTE,
    HELD_FIELDS
};
struct held_line {
    char *text[HELD_FIELDS];
    uint64_t at_ns, seq, created_ns;
};
struct held_file {
    bool there, damaged; /* damaged: what is in it is only a part, perhaps */
    uint64_t number;
    char *text; /* cut into lines */
    struct held_line *v;
    size_t n;
};
/* Of a file in the state directory; returns path. */
char *records_holds_path(const struct records *r, const char *name, char path[PATH_MAX + 64]);
void records_holds_read(const struct records *r, struct held_file *h);
void held_file_clear(struct held_file *h);
/* Whether the file has what it would be written with. */
bool records_holds_current(const struct records *r);
/* Without a commit: the database has its number already. */
void records_holds_rewrite(struct records *r);
/* What a commit has to write of it; nothing if no hold has changed. records_holds_ended() frees it. */
int records_holds_take(struct records *r, struct holds_write *ret, struct err *e);
/* In the thread of the commit. Before it: < 0: there must not be one. After it. */
int records_holds_prepare(struct holds_write *w, struct err *e);
void records_holds_finish(struct holds_write *w, bool committed);
void records_holds_ended(struct records *r, struct holds_write *w, bool committed);

/* ---- holds.c ---- */

/* Holds and their file are made equal: when the database has been opened, before it is used. */
int records_holds_open(struct records *r, const struct records_news *news, struct err *e);

/* ---- database.c ---- */

/* Of the table meta; 0: it is not there. */
uint64_t records_meta_number(struct records *r, const char *key);

int records_open_database(struct records *r, bool check, struct records_news *news, struct err *e);
void records_close_database(struct records *r);
int records_recover(struct records *r, struct err *e);

/* ---- watch.c ---- */

/* Reports to the watchers that `was` has become `now` in memory; one of them may be NULL. */
void records_report_change(const struct records *r, const char *id, const struct version *was,
                           const struct version *now);
/* Reports that the database was replaced. */
void records_report_replaced(const struct records *r);
/* The same of a row that becomes what it was (image_undo_fn). */
void records_report_undone(const struct object *obj, const struct version *from, const struct version *to, void *arg);
/* All of the transaction is undone, which is reported as well. */
void records_undo(struct records *r);

/* ---- commit.c ---- */

/* Writes what the transaction has changed. beside: in a thread; 1: it was started. Else 0, or < 0 and nothing is undone
 * yet. */
int records_write_out(struct records *r, bool beside, struct err *e);
/* Waits for the commit under way, if there is one: it is settled or undone then, and its result can be taken. */
void records_write_wait(struct records *r);
/* The same, and ends the thread of the commits. */
void records_commit_thread_end(struct records *r);

/* Other work in the place of a commit: in a thread if there can be one. It ends as a commit does. */
void records_beside(struct records *r, beside_fn *work, void *arg);

/* ---- transactions.c ---- */

/* Writes counters that wait now. */
int records_flush(struct records *r, struct err *e);
/* First thing in every public call: recovers from damage met before. */
int records_ready(struct records *r, struct err *e);
/* begin and commit without the check for a read-only view. records_tx_end() commits if rc >= 0: returns rc or the
 * commit's error. What failed within a transaction of the caller's has changed nothing. */
int records_tx_begin(struct records *r, struct err *e);
int records_tx_end(struct records *r, int rc, struct err *e);
uint64_t records_next_seq(struct records *r);

/* ---- rows.c ---- */

/* The row of a bound statement; one that cannot be used is set aside (-EBADMSG). -ENOENT without words: there is none.
 */
int records_fetch(struct records *r, enum row_kind k, sqlite3_stmt *st, struct version **ret, struct err *e);

/* ---- lock.c ---- */
int records_lock(struct records *r, struct err *e);
int records_make_dir(const char *dir, struct err *e);

/* ---- open.c ---- */
/* Not open yet; NULL: no memory. */
struct records *records_new(const struct records_schema *schema);
void records_free(struct records *r);

#endif
