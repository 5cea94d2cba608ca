/* SPDX-License-Identifier: GPL-2.0-or-later */
/* daemon.h - what the verbs that ask the daemon share */
#ifndef SNAPFERRY_DAEMON_CLI_DAEMON_H
#define SNAPFERRY_DAEMON_CLI_DAEMON_H

#include "daemon/cli/cli.h"
#include "base/json.h"
#include "base/time.h"

/* ---- the connection (client.c) ---- */

struct daemon;
/* ERR_NO_DAEMON: nobody listens, or nobody answers. ERR_PERMISSION: the socket is not for this user. */
int daemon_open(struct daemon **ret, const struct options *o, struct err *e);
void daemon_close(struct daemon *d);
static inline void daemon_closep(struct daemon **d)
{
    daemon_close(*d);
}

/* Called for each event of a request; non-zero ends it. */
typedef int daemon_event_fn(const json_t *event, void *arg);
/* One request. `args` is taken over (NULL: none). *answer is a new reference. timeout_s 0: as long as it takes. A
 * signal ends it with ERR_INTERRUPTED. The daemon's own errors keep their class. */
int daemon_call(struct daemon *d, const char *verb, json_t *args, unsigned timeout_s, daemon_event_fn *on_event,
                void *arg, json_t **answer, struct err *e);
/* daemon_open(), daemon_call(), daemon_close(). */
int daemon_ask(const struct options *o, const char *verb, json_t *args, json_t **answer, struct err *e);

/* ---- the same from files while the daemon is down (offline.c) ---- */

/* Answers `verb` from STATE-DIR and CONFIG-DIR as far as they tell. `why` is the error of daemon_open(), and is told;
 * `silent`: there is a daemon that did not answer. */
int offline_ask(const struct options *o, const char *verb, const json_t *args, const struct err *why, bool silent,
                json_t **answer, struct err *e);

/* ---- answers, from wherever they come (answer.c) ---- */

/* daemon_ask(), and offline_ask() if the daemon is down or does not answer. */
int ask_or_read(const struct options *o, const char *verb, json_t *args, json_t **answer, struct err *e);
/* Whether the answer of ask_or_read() is from files because there is a daemon that did not answer. */
bool daemon_silent(void);
/* With --json: the answer as the result of this verb. */
void print_answer(const struct options *o, const json_t *answer);
/* The beginning of each verb's output: with --json prints the answer and says true: that was all. Else tells where the
 * answer comes from if it is not the daemon. */
bool answered(const struct options *o, const json_t *answer);

/* ---- printing ---- */

enum tint { TINT_NONE, TINT_GOOD, TINT_WARN, TINT_BAD, TINT_DIM };
/* A table whose text columns shrink in the middle ("up-nightly…db1") until a line fits the screen. */
struct table;
/* `kinds` has a letter per column: l left, r right, s left and may shrink in the middle, e left and may lose its end. A
 * capital: is left out, and said to be, rightmost first, before names shrink so far that all look alike. heads NULL:
 * none. */
struct table *table_new(const char *const *heads, const char *kinds);
/* A cell of the current row; the text is copied and escaped. A row is complete with its last cell. */
void table_cell(struct table *t, enum tint tint, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* A line below the row that was completed last; escaped and wrapped. Nothing for "". */
void table_note(struct table *t, enum tint tint, const char *text);
/* Prints (nothing if there is no row) and frees. No line ends with a blank. */
void table_print(struct table *t, FILE *f, const char *indent);
size_t table_rows(const struct table *t);

/* A sentence, escaped, in lines that fit: the first begins in `column`, which the cursor has reached, the others in
 * `indent`. A word that is longer than a line is broken. */
void print_paragraph(FILE *f, const char *text, unsigned column, unsigned indent);
/* The same for a text that was escaped already. */
void print_escaped(FILE *f, const char *text, unsigned column, unsigned indent);
/* The same in lines of `width` columns, where f is not standard output. */
void print_within(FILE *f, const char *text, unsigned column, unsigned indent, unsigned width);

#define SCREEN_MIN 20
#define SCREEN_ENDLESS 1000000
/* Columns of standard output: the terminal's; $COLUMNS if it is none or does not say; else 80 on a terminal and
 * SCREEN_ENDLESS for a pipe or file, and always with --wide. */
unsigned screen_width(void);
void screen_set_wide(bool on);
/* Lines of standard output: the terminal's, $LINES or 24. */
unsigned screen_rows(void);

/* ---- width of text (width.c); of texts that text_name() has let through ---- */

/* Columns that a character takes: 0 (drawn over the one before), 1 or 2. */
unsigned char_width(uint32_t u);
/* It is not drawn, but does something: marks of direction, separators of lines, tags. */
bool char_acts(uint32_t u);
/* Columns that a text takes. */
unsigned text_width(const char *s);
/* Bytes at the beginning that take at most `width` columns. */
size_t text_head(const char *s, unsigned width);
/* At most `width` columns, "…" in the middle; or at the end. Static buffers, eight in turn. */
const char *text_fit(const char *s, unsigned width);
const char *text_cut(const char *s, unsigned width);

/* Escape sequences if standard output wants colour, else "". */
const char *tint_on(enum tint t);
const char *tint_off(enum tint t);
enum tint tint_of_state(const char *state);

/* ---- ages and shares (ages.c). Static buffers, eight in turn ---- */

/* "5 h ago", "never"; "3 h ahead" if it is in the future, where it cannot be. */
const char *text_ago(int64_t ns);
/* "in 3 min", "now", "2 h late", "-" for none. */
const char *text_in(int64_t ns);
/* "1 min 10 s" from one moment to another, "" if they are not in that order. */
const char *text_took(int64_t from, int64_t to);
/* "45%" of what has not ended: never 100; "" if it cannot be told. */
const char *text_percent(const json_t *progress);
/* "1 min 10 s left", in steps of 5 s and more. */
const char *text_left(double seconds);
/* A member with bytes, "-" if it is missing or negative. */
const char *text_size(const json_t *doc, const char *member);

/* Volumes by need: unprotected first, then the longest without success. `sorted` has room for all. */
void sort_volumes(const json_t *list, const json_t **sorted);
/* How a volume counts, in the order in which volumes are listed: the last two are counted apart. */
enum standing { STANDING_UNPROTECTED, STANDING_PROTECTED, STANDING_GONE, STANDING_EXCLUDED, STANDINGS };
enum standing volume_standing(const json_t *volume);
void volumes_count(const json_t *list, size_t n[STANDINGS]);
/* "; 1 gone, 2 excluded", or "". Static buffer. */
const char *volumes_apart(const size_t n[STANDINGS]);
/* When a job runs next: "in 5 h", "paused", "not scheduled: ..."; offline: the daemon does not run. */
void job_next(const json_t *job, bool offline, char *out, size_t cap);
/* Protected, name, last success, next run: four cells, and why not as a note. */
void volume_cells(struct table *t, const json_t *v);

/* ---- waiting (wait.c) ---- */

/* Shows progress until backup, restore or operation `id` has ended, prints the result and returns its exit code; or
 * negative with e set. */
int wait_for(const struct options *o, const char *id, struct err *e);
/* The waiting alone: *ended is a new reference. */
int wait_until_ended(const struct options *o, const char *id, json_t **ended, struct err *e);
/* Exit code of an ended backup or operation: 0, ERR_PARTIAL, ERR_CANCELED, or the class of its error. Where the reasons
 * of several volumes are printed anyway, the error does not repeat one of them. */
int exit_code_of(const struct options *o, const json_t *ended, struct err *e);

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
int ask_native_prune(const struct options *o, struct err *e);
int ask_expire(const struct options *o, struct err *e);
int ask_verify(const struct options *o, struct err *e);
int ask_scan(const struct options *o, struct err *e);
int ask_detach(const struct options *o, struct err *e);
int ask_forget(const struct options *o, struct err *e);
int ask_reload(const struct options *o, struct err *e);
int ask_debug_bundle(const struct options *o, struct err *e);

#endif
