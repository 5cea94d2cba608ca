/* SPDX-License-Identifier: GPL-2.0-or-later */
/* daemon.h - declarations for the verbs of the daemon */
#ifndef SNAPFERRY_DAEMON_CLI_DAEMON_H
#define SNAPFERRY_DAEMON_CLI_DAEMON_H

#include "daemon/cli/cli.h"
#include "base/json.h"
#include "base/time.h"

/* ---- the connection (client.c) ---- */

struct daemon;
/* ERR_NO_DAEMON: not running, or no answer. ERR_PERMISSION: this user may not use the socket. */
int daemon_open(struct daemon **ret, const struct options *o, struct err *e);
/* Whether a daemon is there, without a connection to its socket: that would start a stopped one. *e is then why not. */
bool daemon_is_there(const struct options *o, struct err *e);
void daemon_close(struct daemon *d);
static inline void daemon_closep(struct daemon **d)
{
    daemon_close(*d);
}

/* Called for each event of a request; non-zero ends it. */
typedef int daemon_event_fn(const json_t *event, void *arg);
/* One request. Takes the reference to `args` (NULL: none). *answer is a new reference. timeout_s 0: no limit. A signal
 * ends it with ERR_INTERRUPTED. Errors of the daemon keep their class. */
int daemon_call(struct daemon *d, const char *verb, json_t *args, unsigned timeout_s, daemon_event_fn *on_event,
                void *arg, json_t **answer, struct err *e);
/* daemon_open(), daemon_call(), daemon_close(). */
int daemon_ask(const struct options *o, const char *verb, json_t *args, json_t **answer, struct err *e);

/* ---- answers from files while the daemon is down (offline.c) ---- */

/* Answers `verb` from STATE-DIR and CONFIG-DIR as far as possible. `why`: the error of daemon_open(); `silent`: a
 * daemon is running and did not answer. */
int offline_ask(const struct options *o, const char *verb, const json_t *args, const struct err *why, bool silent,
                json_t **answer, struct err *e);

/* ---- answers, from wherever they come (answer.c) ---- */

/* daemon_ask(), and offline_ask() if the daemon is down or does not answer. */
int ask_or_read(const struct options *o, const char *verb, json_t *args, json_t **answer, struct err *e);
/* The same, but a stopped daemon is not started: for who asks again while he waits. */
int ask_again(const struct options *o, const char *verb, json_t *args, json_t **answer, struct err *e);
/* All pages of a list (member `name` of the answers), up to `limit` entries, as one answer. */
int ask_pages(const struct options *o, const char *verb, const char *name, const json_t *filter, size_t limit,
              json_t **ret, struct err *e);
/* All operations of a backup or restore: {"operations": [...]}, newest first. */
int ask_operations_of(const struct options *o, const char *backup, json_t **ret, struct err *e);
/* Whether the answer of ask_or_read() is from files because there is a daemon that did not answer. */
bool daemon_silent(void);
/* Whether a daemon has the records open, and does not listen where daemon_open() has looked last. */
bool daemon_elsewhere(void);
/* The answer as the JSON result of this verb. */
void print_answer(const struct options *o, const json_t *answer);
/* Called first by each verb: with --json prints the answer and returns true. Otherwise warns if the answer is not from
 * the daemon. */
bool answered(const struct options *o, const json_t *answer);

/* ---- output ---- */

enum tint { TINT_NONE, TINT_GOOD, TINT_WARN, TINT_BAD, TINT_DIM };
/* A table; text columns are shortened in the middle ("up-nightly…db1") until a line fits the screen. */
struct table;
/* `kinds` has a letter per column: l left, r right, s left, shortened in the middle, e left, truncated. Capital:
 * omitted with a note, rightmost first, before names are shortened too far. heads NULL: none. */
struct table *table_new(const char *const *heads, const char *kinds);
/* A cell of the current row; the text is copied and escaped. A row is complete with its last cell. */
void table_cell(struct table *t, enum tint tint, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* A line below the last complete row; escaped and wrapped. Nothing for "". */
void table_note(struct table *t, enum tint tint, const char *text);
/* Prints (nothing without rows) and frees the table. No line has trailing blanks. */
void table_print(struct table *t, FILE *f, const char *indent);
size_t table_rows(const struct table *t);

/* Escapes and wraps a text: the first line begins at the cursor, in `column`, the others at `indent`. Words longer than
 * a line are broken. */
void print_paragraph(FILE *f, const char *text, unsigned column, unsigned indent);
/* The same for an escaped text. */
void print_escaped(FILE *f, const char *text, unsigned column, unsigned indent);
/* The same in lines of `width` columns. */
void print_within(FILE *f, const char *text, unsigned column, unsigned indent, unsigned width);

#define SCREEN_MIN 20
#define SCREEN_ENDLESS 1000000
/* Columns of standard output: of the terminal; else $COLUMNS; else 80 on a terminal and SCREEN_ENDLESS in a pipe or
 * file. SCREEN_ENDLESS with --wide. */
unsigned screen_width(void);
void screen_set_wide(bool on);
/* Lines of standard output: of the terminal, else $LINES, else 24. */
unsigned screen_rows(void);

/* ---- width of text (width.c); of texts escaped by text_name() ---- */

/* Columns of a character: 0 (combining), 1 or 2. */
unsigned char_width(uint32_t u);
/* Invisible characters with an effect: direction marks, line separators, tags. */
bool char_acts(uint32_t u);
/* Columns of a text. */
unsigned text_width(const char *s);
/* Length in bytes of the prefix that fits `width` columns. */
size_t text_head(const char *s, unsigned width);
/* Shortened to `width` columns with "…" in the middle, or at the end. Static buffers, eight in turn. */
const char *text_fit(const char *s, unsigned width);
const char *text_cut(const char *s, unsigned width);

/* Escape sequences if standard output is coloured, else "". */
const char *tint_on(enum tint t);
const char *tint_off(enum tint t);
enum tint tint_of_state(const char *state);

/* ---- ages and shares (ages.c). Static buffers, eight in turn ---- */

/* "5 h ago", "never"; "3 h ahead" for a time in the future. */
const char *text_ago(int64_t ns);
/* "in 3 min", "now", "2 h late", "-" for none. */
const char *text_in(int64_t ns);
/* Duration, "1 min 10 s"; "" if `to` is before `from`. */
const char *text_took(int64_t from, int64_t to);
/* Of an operation or backup that has ended: without what its clock was set by meanwhile. "": it has not, or that is not
 * known. */
const char *doc_took(const json_t *doc);
/* "45%", never 100; "" if unknown. */
const char *text_percent(const json_t *progress);
/* "1 min 10 s left", in steps of 5 s or more. */
const char *text_left(double seconds);
/* A member in bytes; "-" if missing or negative. */
const char *text_size(const json_t *doc, const char *member);

/* State of a volume, in the order of lists; the last two are counted separately. */
enum standing { STANDING_UNPROTECTED, STANDING_PROTECTED, STANDING_GONE, STANDING_EXCLUDED, STANDINGS };
enum standing volume_standing(const json_t *volume);
void volumes_count(const json_t *list, size_t n[STANDINGS]);
/* "; 1 gone, 2 excluded", or "". Static buffer. */
const char *volumes_apart(const size_t n[STANDINGS]);
/* When a job runs next: "in 5 h", "paused", "not scheduled: ..."; offline: the daemon does not run. */
void job_next(const json_t *job, bool offline, char *out, size_t cap);
/* Four cells: protected, name, last success, next run; the reason as a note. */
void volume_cells(struct table *t, const json_t *v);
/* Of a page about a volume (labels.h): whether it is protected, why not, or since when; when its next backup is due. */
void print_protection(const json_t *volume);
/* The names of its jobs. */
void print_jobs(const json_t *volume);

/* ---- waiting (wait.c) ---- */

/* Shows progress until a backup, restore or operation has ended, prints the result and returns its exit code; negative
 * with e set. */
int wait_for(const struct options *o, const char *id, struct err *e);
/* A request that is answered when it is done: what it waits for and how far it is are shown meanwhile, with --json if
 * --progress is given. Takes the reference to `args`. A signal ends the wait, not the request. */
int ask_shown(const struct options *o, const char *verb, json_t *args, json_t **answer, struct err *e);
/* Only waits: *ended is a new reference. */
int wait_until_ended(const struct options *o, const char *id, json_t **ended, struct err *e);
/* Exit code of an ended backup or operation: 0, ERR_PARTIAL, ERR_CANCELED, or the class of its error. The error does
 * not repeat the reasons of volumes that print_ended() prints. */
int exit_code_of(const struct options *o, const json_t *ended, struct err *e);

/* What a run of maintenance has done (maintenance.c): an operation as of `describe`, which has ended. Nothing if it
 * left no numbers. */
void maintenance_print(const json_t *op, bool explained);

/* ---- the verbs ---- */
int ask_status(const struct options *o, struct err *e);
int ask_operations(const struct options *o, struct err *e);
int ask_backups(const struct options *o, struct err *e);
int ask_volumes(const struct options *o, struct err *e);
int ask_jobs(const struct options *o, struct err *e);
int ask_natives(const struct options *o, struct err *e);
int ask_describe(const struct options *o, struct err *e);
int ask_explain(const struct options *o, struct err *e);
int ask_logs(const struct options *o, struct err *e);
int ask_backup(const struct options *o, struct err *e);
int ask_restore(const struct options *o, struct err *e);
int ask_cancel(const struct options *o, struct err *e);
int ask_delete(const struct options *o, struct err *e);
int ask_hold(const struct options *o, struct err *e);
int ask_retry(const struct options *o, struct err *e);
int ask_native_prune(const struct options *o, struct err *e);
int ask_native_release(const struct options *o, struct err *e);
int ask_expire(const struct options *o, struct err *e);
int ask_verify(const struct options *o, struct err *e);
int ask_copy(const struct options *o, struct err *e);
int ask_maintenance(const struct options *o, struct err *e);
int ask_scan(const struct options *o, struct err *e);
int ask_detach(const struct options *o, struct err *e);
int ask_forget(const struct options *o, struct err *e);
int ask_reload(const struct options *o, struct err *e);
int ask_debug_bundle(const struct options *o, struct err *e);

#endif
