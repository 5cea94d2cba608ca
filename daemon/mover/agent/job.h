/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * job.h - the job of a mover (docs/mover.md): read from a sealed memfd, validated member by member
 *
 * Internal to the mover process. All strings belong to `doc`.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_AGENT_JOB_H
#define SNAPFERRY_DAEMON_MOVER_AGENT_JOB_H

#include "base/err.h"
#include "daemon/protocol/mover-limits.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum job_kind { JOB_BACKUP, JOB_RESTORE, JOB_VERIFY, JOB_ADMIN, JOB_LOOK, JOB_MAINTAIN, JOB_COPY };

/* Repository retention; -1: not set. */
struct job_keep {
    int latest, hourly, daily, weekly, monthly, annual;
};

/* A bucket; strings as in struct s3_place. */
struct job_s3 {
    const char *endpoint, *bucket, *prefix, *region, *ca; /* ca: certificates as text, NULL: the system's */
    bool virtual_host;
    unsigned parallel_puts; /* 0: as the store does without being told */
    int64_t at_ns;
};

/* A store. */
struct job_place {
    const char *name; /* of its section; NULL: not told */
    bool remote;      /* reached over the network: */
    struct job_s3 s3; /* then */
    const char *path; /* NULL for remote */
};

struct job {
    json_t *doc;
    bool remote; /* a store is reached over the network */
    enum job_kind kind;
    const char *operation, *backup, *node, *cache_dir;
    struct job_place repository;
    const char *repository_id; /* its unique id in hexadecimal; NULL: any */
    struct job_limits limits;
    uint64_t cache_size; /* 0: default */
    bool debug;
    json_t *ignored; /* names of unknown members; owned */

    /* backup */
    const char *as, *splitter, *compression, *description; /* NULL: default */
    const json_t *source;
    const char *source_name;
    const char *source_address; /* of the NBD export that it is read from; NULL: its name is one, or it is none */
    int64_t source_size;        /* -1: not told */
    json_t *tags;
    json_t *record; /* provisional record of its backup; NULL: none */
    bool map_bad, full;
    const char *parent;       /* snapshot that the list of changes refers to; NULL: there is no list */
    const char *parent_state; /* the change id that the snapshot must have been made of */
    const char *tracker;      /* who has made the list */
    bool allocated;           /* there is a list of what is allocated; then there is no parent */
    int64_t sample_ppm, sample_s;
    bool has_keep;
    struct job_keep keep;

    /* restore */
    const char *snapshot, *path, *target_name;
    int64_t size;           /* -1: not told */
    int64_t offset, length; /* -1: not told */
    bool overwrite, verify, differential, allow_incomplete;

    /* verify */
    const json_t *snapshots;        /* NULL: all */
    double read_percent, read_from; /* as in struct verify_opts */
    int64_t anew_ns;                /* likewise */

    /* admin */
    const json_t *steps;

    /* maintain; and `full` */
    bool dry_run, unsafe;
    bool take_over;      /* from a snapferry that is the owner and has been silent */
    const char *machine; /* this one (base/machine.h); NULL: not told */

    /* copy; and `verify` */
    struct job_place copy;
    bool expected; /* one was made there */
    int64_t delete_after_s;
    bool delete_most;
};

/* Reads and validates; `operation` is the one that the process was started for. The descriptor is owned by the
 * caller. Errors are of class ERR_USAGE and name the member. */
int job_read(struct job *ret, int fd, const char *operation, struct err *e);
void job_clear(struct job *j);
const char *job_kind_name(enum job_kind k);

/* Members of admin steps are validated in the same way: a required or optional string, a list of manifest ids, ... */
int job_keep_parse(struct job_keep *ret, const json_t *j, const char *where, struct err *e);
int job_ids(const json_t *list, const char *where, char (**ret)[33], size_t *n, struct err *e);

#endif
