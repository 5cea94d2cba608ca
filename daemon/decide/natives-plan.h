/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * natives-plan.h - which native snapshots stay, which go, and why (RS-01..30, decisions 4)
 *
 * The planner is a pure function over facts, so that `native list`, `native prune --explain --dry-run`, the engine
 * before each new snapshot, the high-water rule and the tests all get the same answer.
 */
#ifndef SNAPFERRY_DAEMON_DECIDE_NATIVES_PLAN_H
#define SNAPFERRY_DAEMON_DECIDE_NATIVES_PLAN_H

#include "cfg/cfg.h"
#include "daemon/records/records.h"

/* Why a native snapshot may stay: reasons are references, it goes when none is left (RS-16). */
enum native_reason {
    NATIVE_RETAINED = 1 << 0,      /* within snapshots-to-retain */
    NATIVE_IN_USE = 1 << 1,        /* an operation that is not finished needs it */
    NATIVE_CBT_PARENT = 1 << 2,    /* base of the next incremental */
    NATIVE_HOLD = 1 << 3,          /* `snapferry hold` */
    NATIVE_ONLY_COPY = 1 << 4,     /* nothing else of this point in time, or of the volume at all, exists */
    NATIVE_SNAPSHOT_ONLY = 1 << 5, /* within snapshot-only-keep */
    NATIVE_KEEP_ON_FAILURE = 1 << 6,
    NATIVE_INSPECTION = 1 << 7 /* of a backup that failed, with expose-keep-on-failure */
};

/* Facts about one native snapshot; one array holds those of ONE volume. */
struct native_facts {
    char alias[40];
    uint64_t seq;       /* order of age */
    int64_t created_ns; /* for max-age only, never for order */
    bool in_use, hold, cbt_parent;
    bool inspection;           /* kept as its backup failed, until it is released (PVC-11) */
    bool releasing;            /* it was released, and its intermediate is not removed yet */
    bool moved;                /* its data is Completed in the repository and its manifest was readable */
    bool failed;               /* its operation failed for good */
    bool snapshot_only;        /* taken with move-data = no */
    bool missing;              /* recorded but not on the storage */
    unsigned effective_retain; /* recorded when its backup was made (RS-10), UINT_MAX: use the policy's */
    char job[128];             /* a job's own number counts only its own (RS-29): that job; "": the volume's number */
    uint64_t used;             /* bytes it holds, UINT64_MAX unknown */
    bool running;              /* its backup is not finished: the recorded number holds, not the policy's (RS-10) */
    bool expired;              /* its backup was deleted or has expired (RS-24) */
    bool removing;             /* its removal was begun */
    bool foreign;              /* missing, and what is in its place does not have its tag */
    char backup[192], repository[128]; /* for the sentence; "" unknown */
    bool bookmark;                     /* there is one of it */
    bool job_ended; /* `job` no longer sets snapshots-to-retain: no newer ones will come that count with it */
    /* out */
    unsigned reasons; /* NATIVE_* */
    bool prune;
    bool for_pool;        /* only since the pool is over its high-water mark */
    bool leaves_bookmark; /* it is a base, and as one its bookmark will do */
    char why[256];        /* one sentence for people: why it stays or goes */
};

struct native_rules {
    unsigned retain; /* snapshots-to-retain (of the volume) */
    int64_t retain_max_age_s;
    unsigned max_per_volume; /* all reasons; 0: no limit */
    unsigned snapshot_only_keep;
    int64_t snapshot_only_max_age_s;
    bool keep_on_failure;
    bool keep_parent;       /* of the next incremental backup (changed-blocks = auto) */
    bool about_to_create;   /* one place is needed for the new one (RS-17) */
    bool prune_after;       /* prune = after: it may be over the limit until its data has moved */
    const char *ended;      /* volume_ended_why(): no newer ones will come. NULL: they will */
    bool prune_ended;       /* none of such a volume, or of a job that has ended, is retained (native prune --gone) */
    bool jobs_retain;       /* jobs of the volume have numbers of their own: what they take is not counted with it */
    bool snapshot_only;     /* move-data = no: the new one stays, and is refused at the high-water mark */
    char job[128];          /* `retain` is this job's own number (RS-29); "": the volume's */
    double pool_used_ratio; /* < 0: unknown */
    int64_t pool_ns;        /* when it began to be measured */
    double pool_high_water; /* 0..1 */
    int64_t now_ns;
};
struct native_verdict {
    bool may_create; /* false: max-snapshots-per-volume or the high-water mark refuses a new one */
    bool over_high_water;
    bool measure_again; /* natives_plan_prune(): the pool was measured before something else had been removed from it */
    char why[384];
};
/*
 * Decides. `f` may be in any order and keeps it. Never prunes what is in use, held, a cbt-parent, or the only copy:
 * what is not known to be complete in the repository, and of snapshots without a backup the newest. Age is by seq; the
 * clock is looked at for max-age only. Over the high-water mark the oldest retained one goes, one in each plan, since
 * what it frees is only seen afterwards. A plan that was carried out and is made again prunes nothing more (but for
 * that). Where creation is refused, nothing is pruned for it. docs/records.md explains the rules.
 */
void natives_plan(const struct native_rules *r, struct native_facts *f, size_t n, struct native_verdict *v);
/* "retained in-use" */
const char *native_reasons_text(unsigned reasons, char *out, size_t cap);

/* Bytes of what is kept for inspection, as far as is known: its native snapshot's own, and a copy of it. */
int64_t kept_used(const struct native_row *n);

/* The rules of a policy. `job`: in which the volume is backed up, "" none. `create`: one is about to be made. */
void native_rules(struct native_rules *r, const struct policy *policy, const char *job, double pool_ratio, bool create,
                  int64_t now_ns);

/* Why a volume will have no newer native snapshots: a look at the storage did not find it, or nothing backs it up.
 * Static text; NULL: it may have. `c` NULL: the configuration is not known. */
const char *volume_ended_why(struct records *r, const struct cfg *c, const char *volume_id);
/* Whether the number that one counts under was its job's own, which the configuration no longer has: it counts with
 * none that will come. `c` NULL: as above. */
bool native_job_ended(struct records *r, const struct cfg *c, const struct native_row *n);
/* Notes that of all of them, the natives of one volume, and in `rules` whether its jobs have numbers of their own. */
void natives_note_jobs(struct records *r, const struct cfg *c, struct native_rules *rules, struct native_facts *f,
                       size_t n);
/* By which a native snapshot is judged: the policy in force for the next backup of its job (`job` false: of the
 * volume), or the one that it was taken under, where there will be none. New reference. `c` NULL: as above. */
const struct policy *native_policy(struct records *r, const struct cfg *c, const struct native_row *n, bool job);

/* Its removal has found something without its tag in its place. */
bool native_is_foreign(const struct native_row *r);

/* Gathers the facts of one volume from the records (natives with their backups and operations). *ret is malloc()ed. */
int natives_gather(struct records *r, const char *volume_id, struct native_facts **ret, size_t *n, struct err *e);
/*
 * The same for all volumes in one pass: fn is called for each with its rows and their facts, the oldest first; the
 * volume with the oldest row first. Both are valid during the call, in which nothing may be written. A non-zero return
 * ends it and is returned.
 */
typedef int natives_fn(const struct native_row *const *rows, struct native_facts *f, size_t n, void *arg);
int natives_each(struct records *r, natives_fn *fn, void *arg, struct err *e);
#endif
