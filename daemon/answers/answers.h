/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * answers.h - the documents of docs/control.md, from the records and from facts
 *
 * One builder for the daemon and for the command that works on the files while the daemon is down. Pure: the same
 * records and facts give the same answer; nothing is asked of storage, clock or processes. Facts that only a running
 * daemon has may be unknown, and the members that they would fill are left out then.
 *
 * Answers are new references, NULL: no memory. Nothing may be written to the records while one is made.
 */
#ifndef SNAPFERRY_DAEMON_ANSWERS_H
#define SNAPFERRY_DAEMON_ANSWERS_H

#include "daemon/answers/overview.h"
#include "daemon/decide/board.h"
#include "daemon/decide/judge.h"
#include "daemon/decide/natives-plan.h"
#include "daemon/records/records.h"
#include "daemon/schedule/schedule.h"

/* ---- facts ---- */

/* What the daemon has in memory of an operation that is not finished. */
struct answer_live {
    const json_t *progress; /* last message of its mover; NULL: none in this life of the daemon */
    int64_t progress_ns;
    double rate, left_s; /* bytes per second; seconds, < 0: unknown */
    const char *doing;   /* the step that runs; NULL: none */
    double doing_s;
};
struct answer_source {
    bool (*live)(const struct operation *op, struct answer_live *ret, void *arg); /* false: nothing */
    json_t *(*mover)(const struct operation *op, void *arg); /* new reference, NULL: it has none that runs */
    /* What it waits for; "": nothing. */
    void (*waits)(const struct operation *op, char *why, size_t cap, void *arg);
    /* Place of a queued backup in the order, from 1, and the backup with the same volumes that goes first ("": none) */
    unsigned (*position)(const struct backup *b, char by[192], void *arg);
    /* Whether all others of its class were recorded before: a volume without a record is new. */
    bool (*is_new)(const char *klass, void *arg);
    /* Its operations that have ended; false: to be read from the records. */
    bool (*ended)(const struct backup *b, struct board_ended *ret, void *arg);
};

/* Storage of a repository, as last looked at. */
struct answer_repository {
    const char *name, *why, *hint;
    bool up, full, exposed;                   /* exposed: others can read its password file, as allowed */
    bool read_only;                           /* its file system is mounted so */
    bool unscanned;                           /* what it has of this node may not be in the records yet */
    int64_t since_ns, free_bytes, size_bytes; /* sizes: -1 unknown */
    int64_t seen_ns;                          /* its state, last; 0: not yet */
};

/* What the daemon knows of itself. */
struct answer_daemon {
    const char *version, *state_dir;
    const char *news; /* of opening the records, "" none */
    int pid;
    int64_t started_ns;
    bool degraded, detached, recovered;
    bool looked; /* every storage class was looked at under this configuration */
    unsigned stuck;
    json_t *steps;   /* running ones, owned; NULL: not asked for */
    json_t *looks;   /* [{"severity", "text", "hint"}]: what could not be told of volumes, owned; NULL: nothing */
    json_t *metrics; /* of the endpoint, owned; NULL: none */
    json_t *metrics_problems; /* as `looks`, owned; NULL: none */
};

/* The configuration in force, and whether the last one that was read is it. */
struct answer_config {
    bool ok;
    const char *error; /* "": none */
    int64_t loaded_ns;
    unsigned warnings; /* of check-config */
};

/* What has the tag of this node on the storage and is in no record. */
struct answer_orphan {
    const char *kind, *alias, *klass; /* kind: "native", "bookmark", "intermediate" */
    const char *volume, *handle;      /* "": not known */
    const char *error, *hint;         /* why it could not be removed; "": nothing of it */
    bool in_use;                      /* an operation is making or removing it */
    bool stale;                       /* the last look at its class has failed: as it was before */
    int64_t created_ns, due_ns;       /* due: when it is removed by itself; 0: with the next sweep */
};
json_t *answer_orphan(const struct answer_orphan *x);
json_t *answer_orphans(const struct answer_orphan *v, unsigned n);

struct answer_facts {
    struct records *records; /* NULL: they cannot be read (explain only) */
    const struct cfg *cfg;   /* NULL: it cannot be read */
    int64_t now_ns;
    const struct answer_source *source; /* NULL: there is no daemon */
    void *arg;                          /* of its functions */
    struct jobs_now jobs;               /* v NULL: unknown */
    /* Jobs that could not be started, and the first of them: of the headline. */
    unsigned failing;
    const char *failing_job, *failing_why;
    struct answer_repository *repositories; /* those that were looked at; owned */
    unsigned n_repositories;
    struct answer_orphan *orphans; /* owned, not its texts */
    unsigned n_orphans;
    const json_t *pools; /* volume id -> how full its pool is, 0 to 1; NULL: unknown */
    struct answer_config config;
    const struct answer_daemon *daemon; /* NULL: there is none, and `down` is why */
    const char *down, *down_hint;
    const struct overview *overview; /* kept while the daemon runs; NULL: it is made where it is needed */
    /* behind the above */
    struct answer_daemon own;
    struct schedule *schedule;
};
/* Of the files alone: records, configuration (NULL: it cannot be read, `refused` says why) and time. */
void answer_facts_offline(struct answer_facts *f, struct records *r, const struct cfg *c, const struct err *refused,
                          int64_t now_ns);
/* Frees what is owned. */
void answer_facts_clear(struct answer_facts *f);

/* ---- rows ---- */

json_t *answer_operation(const struct answer_facts *f, const struct operation *op);
json_t *answer_backup(const struct answer_facts *f, const struct backup *b, bool with_operations);
/* With its operations, none of them with `details`: what is sent each second to those that wait for it. Of more than
 * ANSWER_OPERATIONS_MAX only those that are under way and the first queued ones, and the names of volumes that are not
 * finished. */
#define ANSWER_OPERATIONS_MAX 100
json_t *answer_backup_progress(const struct answer_facts *f, const struct backup *b);
json_t *answer_native(const struct answer_facts *f, const struct native_row *n);
/* With what a plan has found out about it (natives_plan()); NULL: nothing. */
json_t *answer_native_planned(const struct native_row *n, const struct native_facts *fact);

/* ---- lists ---- */

struct answer_query {
    const char *volume, *backup, *state; /* "": any */
    uint64_t before;                     /* as `next` of the page before; 0: the first page */
    int64_t since_ns;                    /* without those that ended before; INT64_MIN: all */
    size_t limit, max_bytes;             /* of a page; 0: none */
};
/* Without `all`: a week back. */
int64_t answer_list_since(bool all, int64_t now_ns);
/* Operations or backups: those that have not ended, then ended ones, each the newest first. An unknown volume, backup
 * or state is an error. */
int answer_list(const struct answer_facts *f, enum row_kind k, const struct answer_query *q, json_t **ret,
                struct err *e);
/* Newest first; of `q` only volume, before and limit. */
int answer_natives(const struct answer_facts *f, const struct answer_query *q, json_t **ret, struct err *e);
/* {"jobs": [...]}: last and next runs, and how the last backups ended. */
json_t *answer_jobs(const struct answer_facts *f);
/* A backup, operation or native snapshot by its id or what people call it; ERR_NOT_FOUND: maybe a volume. */
int answer_describe(const struct answer_facts *f, const char *name, json_t **ret, struct err *e);
/* A volume of the list in the answer `volumes`. */
int answer_describe_volume(const struct answer_facts *f, const json_t *volumes, const char *name, json_t **ret,
                           struct err *e);

/* ---- volumes ---- */

/* 0 if there is a storage class of that name, "" is any; else ERR_NOT_FOUND. */
int answer_class_known(const struct answer_facts *f, const char *klass, struct err *e);
/*
 * Volumes of a class ("": of all). `looked` is what the classes were found to have ({"class", "volumes", "passed",
 * "error"} of each), NULL: nobody looked, the records are all there is; `failed` why nobody could (NULL: it was not
 * tried).
 */
json_t *answer_volumes(const struct answer_facts *f, const char *klass, const json_t *looked, const char *failed);
/* The same of one volume, by its name or id. */
json_t *answer_volume(const struct answer_facts *f, const char *what, const json_t *looked, const char *failed);

/* The same of the records alone, in pages by id: those after the id `after` ("": the first ones), at most `limit`. With
 * "more" and "next". */
json_t *answer_volumes_recorded(const struct answer_facts *f, const char *klass, const char *after, size_t limit);

/* What a look at the storage of one volume has found. */
struct answer_look {
    bool asked;            /* the storage has answered */
    const char *silent;    /* why not; "": it was not asked */
    const json_t *volume;  /* as its driver describes it; NULL: not found, or unknown */
    const char *missing;   /* why it was not found; "" */
    bool doubt;            /* it is there, and `missing` is why it cannot be told from another one */
    const char *mechanism; /* of exposure; "": none, then `obstacle` is why */
    const char *obstacle;
};
int answer_explain(const struct answer_facts *f, const char *volume, const struct answer_look *look, json_t **ret,
                   struct err *e);

/* ---- the whole ---- */

/* Its length does not depend on how many volumes and operations there are. */
#define ANSWER_VOLUMES_MAX 100 /* in status: the most important ones; all are counted */
json_t *answer_status(const struct answer_facts *f);
/* One line: what runs, what waits, and the first problem. */
void answer_headline(const struct answer_facts *f, char *out, size_t cap);

#endif
