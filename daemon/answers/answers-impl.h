/* SPDX-License-Identifier: GPL-2.0-or-later */
/* answers-impl.h - shared by the files of daemon/answers */
#ifndef SNAPFERRY_DAEMON_ANSWERS_IMPL_H
#define SNAPFERRY_DAEMON_ANSWERS_IMPL_H

#include "base/cleanup.h"
#include "base/json.h"
#include "daemon/answers/answers.h"
#include "daemon/decide/natives-plan.h"

#include <string.h>

/* ---- documents ---- */

/* A member under another name; nothing if it is missing, null or "". */
void copy_member(json_t *to, const char *key, const json_t *from, const char *member);
/* Nothing if it is 0 or less; if it is "". */
void put_ns(json_t *to, const char *key, int64_t ns);
void put_text(json_t *to, const char *key, const char *text);
/* Of how many volumes the repository does not have what was backed up, since when that is known, and why. */
void put_gone(json_t *to, const struct backup *b);
/* Nothing if it is null; if there was none. */
void put_json(json_t *to, const char *key, json_t *v);
/* An array, if there are any. */
void put_error(json_t *to, const struct op_error *e);
/* Adds a text to an array. */
void add_text(json_t *list, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- overview ---- */

/* What the facts have; else one made from the records, to be freed after the last use of `f->overview`. NULL: no
 * memory. */
struct overview *overview_of_facts(struct answer_facts *f);
static inline void overview_freep(struct overview **s)
{
    overview_free(*s);
}

/* ---- native snapshots ---- */

/* Whether the next backup prunes it: the removal of others has begun, or they are gone. */
static inline bool native_is_next(const struct native_facts *f)
{
    return f->prune && !f->removing && !f->missing;
}

/* ---- problems ---- */

/* "less than an hour", "1 hour", "12 hours": a text of problems is not another one with each minute. */
const char *hours_words(int64_t ns, char out[24]);
#define PROBLEMS_MAX 40 /* more than a person reads */
/* Adds {"severity", "text", "hint"} to the list; severity is "error" or "warning", hint "": none. */
void add_problem(json_t *list, const char *severity, const char *hint, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void add_general_problems(const struct answer_facts *f, json_t *list);
/* Native snapshots that the storage could not remove. */
void add_native_problems(const struct answer_facts *f, json_t *problems);
void add_pool_problems(const struct answer_facts *f, json_t *list);
void add_look_problems(const struct answer_facts *f, json_t *list);

/* ---- runs ---- */

/* As in lists: without `details`, which are a document of the whole row. */
json_t *operation_line(const struct answer_facts *f, const struct operation *op);
json_t *backup_line(const struct answer_facts *f, const struct backup *b);
/* One that is Completed is shown as Expired then. */
bool backup_has_expired(const struct answer_facts *f, const struct backup *b);
/* Whether it takes a slot. */
static inline bool is_move(const struct operation *op)
{
    return op->kind == KIND_BACKUP || op->kind == KIND_RESTORE;
}

/* ---- repositories ---- */

/* NULL: it was not looked at. */
const struct answer_repository *find_repository(const struct answer_facts *f, const char *name);
/* [{"name", "path", ...}]; adds what is wrong with them to `problems`. */
json_t *list_repositories(const struct answer_facts *f, json_t *problems);
json_t *list_copies(const struct answer_facts *f, json_t *problems); /* likewise */

/* ---- jobs ---- */

json_t *list_jobs(const struct answer_facts *f);

/* ---- native snapshots ---- */

/* Of one volume, as answer_native() gives each; adds a sentence for each to `text`. */
json_t *natives_of_volume(const struct answer_facts *f, const char *volume_id, json_t *text);
/* {"count", "used", "next", "next_ns", "text"} */
json_t *natives_summary(const struct answer_facts *f);

/* ---- splitters ---- */

/* Adds "splitter" to the answer, and sentences, once there were some incremental backups in the class: what they have
 * stored for what had changed, and which splitter would store less than half. `splitter`: the configured one, "" for
 * the repository's; `volume`: bytes, 0: not known. */
void splitter_advice(struct records *r, const char *klass, const char *splitter, double volume, json_t *answer,
                     json_t *text);

/* ---- volumes ---- */

struct volume_line {
    json_t *doc;
    enum volume_state state;
    int64_t good_ns;
    int64_t next_ns;      /* of a job that has it; 0: none */
    char *name, *why;     /* why: it is in that state */
    char *failure, *hint; /* of its last backup; "": it did not fail */
    bool unscheduled;     /* protected by what a job has backed up, and none does any more */
    bool failed;          /* its last backup */
    const char *half;     /* the restore that has left it incomplete; NULL: none. Valid as long as the row */
};
struct volume_lines {
    const struct answer_facts *facts;
    const struct cfg_job **jobs; /* of facts->jobs, in that order */
    struct volume_line *line;
    size_t n, cap;
    bool failed; /* no memory */
};
void volume_lines_init(struct volume_lines *x, const struct answer_facts *f);
void volume_lines_clear(struct volume_lines *x);
/* `row` NULL: nothing is recorded of it. The line is valid until the next one is added; NULL: no memory. */
const struct volume_line *volume_lines_add(struct volume_lines *x, const struct volume_row *row,
                                           const struct volume_desc *volume, const char *klass);
/* Unprotected ones first, then the oldest backup; those that do not count at the end. */
void volume_lines_sort(struct volume_lines *x);
/* Next run of a job that has the volume; 0: none. */
int64_t volume_next_ns(const struct answer_facts *f, const char *volume_id);
/* A new array of the documents. */
json_t *volume_lines_list(const struct volume_lines *x);

#endif
