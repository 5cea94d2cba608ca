/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * results.h - what movers and steps answer: documents on the wire, decoded here, once, into structs
 *
 * They are the word of other processes: a member of another type than the table says counts as missing, and is kept
 * with the unknown ones where the struct becomes part of a record. Strings and lists are owned by the struct. Not
 * thread-safe, as fields.h.
 */
#ifndef SNAPFERRY_DAEMON_RECORDS_RESULTS_H
#define SNAPFERRY_DAEMON_RECORDS_RESULTS_H

#include "daemon/records/fields.h"

/* ---- the part of a mover's result that is asked for again ---- */

struct mover_stage {
    char *name;
    double busy_s, stalled_s; /* -1: not reported */
    int64_t bytes;            /* likewise */
    json_t *unknown;
};

/* One that an operation of a mover plugin's retention or verification could not do. */
struct plugin_failure {
    char *operation, *volume, *error;
    json_t *unknown;
};

/* Of a backup that was given a list of changes. */
struct mover_incremental {
    bool there, used, distrusted;     /* the list was wrong */
    bool failed;                      /* the list could not be used at all */
    int64_t changed, cloned, sampled; /* bytes: in the list, taken over, compared */
    char *why;                        /* everything was read; "" if not */
    json_t *unknown;
};

/* Why a repository was not maintained, which is not a failure. */
enum maintain_refusal {
    REFUSED_NONE,
    REFUSED_OWNER,       /* another client does that, or nobody */
    REFUSED_UNSUPPORTED, /* snapferry cannot: no epochs, ... */
    REFUSED_BUSY,        /* another run is under way */
    REFUSED_MACHINE,     /* another machine does that, which has the name of this node */
    REFUSALS
};
extern const struct enum_names maintain_refusal_names;
static inline const char *maintain_refusal_name(enum maintain_refusal r)
{
    return enum_name(&maintain_refusal_names, (int)r);
}

/* Of maintenance. Bytes: -1 is not reported; those of a full run alone, but for `freed`. */
struct mover_maintenance {
    bool there, full, dry_run;
    enum maintain_refusal refused;
    char *owner; /* of maintenance, "": nobody */
    char *hint;
    int64_t quick_s, full_s; /* intervals that the repository's parameters have, 0: disabled; -1: not reported */
    double seconds;
    int64_t freed, packs;     /* bytes in packs that were deleted; in all of them before */
    int64_t reclaimable;      /* nothing needs them, they are kept for now */
    int64_t trapped, damaged; /* bytes in packs with needed contents; contents that cannot be read */
    int64_t renewed;          /* contents that error correction had to restore, and that were stored again */
    int64_t merged;           /* contents of manifests that were stored together */
    int64_t back_from_ns;     /* when the first of them can be freed; 0: there are none */
    int64_t silent_ns;        /* since when the owner, another one, has not run it; 0: it does */
    json_t *summary;          /* all numbers, as `snapferry maintenance --json` prints them */
    json_t *unknown;
};

/* Of a copy of a repository: blobs and bytes, 0 where not reported. */
struct mover_copy {
    bool there;
    int64_t copied, copied_bytes;   /* by this run */
    int64_t present, present_bytes; /* were there */
    int64_t surplus, surplus_bytes; /* are there, and not in the repository any more */
    int64_t deleted, deleted_bytes; /* of these */
    int64_t held_bytes;             /* were to be deleted, and are more than half of the copy */
    int64_t lost;                   /* likewise, packs that the repository has lost */
    int64_t extended;               /* object locks that were extended */
};

/* Numbers: -1 is not reported. Whether there is a result at all: `there`. */
struct mover_result {
    bool there;
    char *snapshot;                       /* id in the repository */
    char *as;                             /* source of that snapshot */
    char *skip;                           /* why a plugin did not take the volume */
    char *id;                             /* of a plugin: its own name for the operation */
    int64_t total, incremental, uploaded; /* bytes */
    struct mover_incremental incremental_run;
    json_t *stored;                /* of a plugin: opaque, NULL: none */
    struct list_of_structs stages; /* of struct mover_stage */
    json_t *answers;               /* of an admin operation: one document for each step, see check_of() */
    int64_t damages;               /* of a verification: damaged or missing pieces */
    int64_t since_ns; /* of a verification that may go on with an interrupted one: see results.c; 0: none */
    /* Of a verification: what error correction had to restore, so that nothing is lost. */
    int64_t corrected, corrected_packs, corrected_indexes;
    json_t *damage_list;                    /* the first 1,000 of them, see mover_result_damaged(); NULL: none */
    int64_t done, damaged, missing, failed; /* of a plugin's retention or verification: operations */
    char *plugin;
    struct list_of_structs failures; /* of struct plugin_failure */
    struct mover_maintenance maintenance;
    json_t *copy; /* see mover_copy_of(); NULL: it was none */
    /* Only shown, and more than all before: JSON, "": none. */
    char *repository; /* counted when it comes */
    char *rest;       /* other members */
    json_t *unknown;
};
extern const struct fields mover_stage_fields;
FIELDS_LIFE(mover_result)
/* Into an initialized one, whose contents are replaced; NULL: there is none. Fails for lack of memory only. */
int mover_result_load(struct mover_result *r, const json_t *doc);
/* `r` is initialized; its contents are replaced. */
int mover_result_copy(struct mover_result *r, const struct mover_result *from);
/* A new reference; NULL: there is none, or no memory. */
json_t *mover_result_to_json(const struct mover_result *r);
/* Of a number that may not have been reported: 0 then. */
static inline int64_t result_bytes(int64_t n)
{
    return n > 0 ? n : 0;
}
/* Adds it to a sum. It is the word of another process, and may be more than there can be. */
static inline void result_bytes_add(int64_t *sum, int64_t n)
{
    if (__builtin_add_overflow(*sum, result_bytes(n), sum))
        *sum = INT64_MAX;
}
/* Adds one to `failures`; fails for lack of memory. */
int mover_result_add_failure(struct mover_result *r, const char *operation, const char *volume, const char *error);

/* What a copy has done, as far as it came. */
struct mover_copy mover_copy_of(const struct mover_result *r);

/* Whether it has written the provisional record of its backup; `doc`: what the mover left. */
bool mover_result_recorded(const json_t *doc);

/* The unique id of the repository that it opened; "": not reported. Borrowed from `doc`, what the mover left. */
const char *mover_result_repository(const json_t *doc);

/* What a step of an admin operation, a check, found of a snapshot. */
enum checked { CHECKED_NONE, CHECKED_READABLE, CHECKED_UNREADABLE }; /* NONE: it was not looked at */
/* The number that the question about it had ("of" of its "expect"); -1: none, or it was not looked at. */
int64_t mover_result_checked_of(const struct mover_result *r, const char *snapshot);
/* *why is borrowed from `r`; "": no reason was given. */
enum checked mover_result_checked(const struct mover_result *r, const char *snapshot, const char **why);
/* What is wrong with one that is not readable. UNKNOWN: there is nothing, or the mover is of a version that does not
 * report it. */
enum unfit { UNFIT_UNKNOWN, UNFIT_ABSENT, UNFIT_DAMAGED, UNFIT_OTHER };
enum unfit mover_result_unfit(const struct mover_result *r, const char *snapshot);
/* As mover_result_checked(), of a question by its number, where the answer has numbers. A refusal counts more than a
 * proof. */
enum checked mover_result_checked_number(const struct mover_result *r, int64_t number, const char **why);

/* The snapshots that a verification has found damaged, each with what is wrong with one of its pieces: an object of the
 * caller's; NULL: none. Their sources become members of `sources`. */
json_t *mover_result_damaged(const struct mover_result *r, json_t *sources);
/* The snapshots that its steps have expired ("removed"), as members of an object of the caller's, each with the
 * operation that made it, as it is tagged ("": without a tag); NULL: none. */
json_t *mover_result_expired(const struct mover_result *r);

/* ---- the rest of a mover's result: counted when it ends, and then only passed on ---- */

/* Requests to a repository, by kind; how they ended; how long they took. */
enum request_kind { REQUEST_GET, REQUEST_PUT, REQUEST_LIST, REQUEST_DELETE, REQUEST_STAT, REQUESTS };
extern const char *const request_kinds[REQUESTS];
#define REQUEST_CODES 6
extern const char *const request_codes[REQUEST_CODES];
#define REQUEST_TIMES 13 /* histogram_bounds_short, and what took longer */
struct request_figures {
    int64_t codes[REQUEST_CODES];
    int64_t times[REQUEST_TIMES];
    bool has_times;
    double seconds;
};

/* Numbers: -1 is not reported. */
struct repository_figures {
    bool there;
    int64_t uploaded, downloaded, retries, stored, contents, index_blobs, index_cache, unreferenced;
    json_t *clock_skew_s; /* a number, which may be negative; NULL: not measured */
    json_t *requests_doc;
    json_t *unknown;
};
struct reader_figures {
    bool there;
    int64_t skipped, inflight_max;
    json_t *unknown;
};
struct mover_figures {
    bool there;
    struct mover_result result;
    char *bottleneck, *policy_error;
    bool partial;   /* unreadable ranges were stored as zeros */
    bool recorded;  /* it has written the provisional record of its backup */
    bool untouched; /* a restore that ended before it began to write */
    int64_t read, zero, hole, chunks, deduped, bad, written;
    int64_t contents, contents_read, damages; /* of a verification */
    json_t *bad_ranges;
    struct reader_figures reader;
    struct repository_figures repository;
    struct request_figures requests[REQUESTS];
    json_t *unknown;
};
/* Of an uninitialized one; NULL: there is none. */
int mover_figures_load(struct mover_figures *f, const json_t *doc);
void mover_figures_clear(struct mover_figures *f);

#endif
