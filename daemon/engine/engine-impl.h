/* SPDX-License-Identifier: GPL-2.0-or-later */
/* engine-impl.h - what the engine's files share; nobody else includes it */
#ifndef SNAPFERRY_DAEMON_ENGINE_IMPL_H
#define SNAPFERRY_DAEMON_ENGINE_IMPL_H

#include "base/cleanup.h"
#include "daemon/decide/decide.h"
#include "daemon/decide/judge.h"
#include "daemon/engine/engine.h"
#include "base/json.h"
#include "base/time.h"
#include "base/pace.h"
#include "io/native/driver.h"

#include <limits.h>
#include <string.h>

struct waiter {
    struct waiter *next;
    enum row_kind kind;
    char id[512];
    engine_wait_fn *fn;
    void *arg;
    request_ended_fn *stopped; /* instead of fn, when the engine stops; NULL: the waiting client sees that itself */
    int64_t told_ns;
    int told_state;
    bool row_changed, part_changed; /* not yet told; part: progress, or one of its operations */
};

/* A turn that could not be recorded. */
struct failed_turn {
    bool probe;           /* whether the records can be written at all is to be found out */
    unsigned units, good; /* good: turns that were recorded since */
    struct err err;
};

/* Place in the queue of the backup that was asked for last (backup_position()), as of a turn; "": none. */
struct asked_position {
    char backup[256], by[192];
    uint64_t turn;
    unsigned n;
};

struct engine {
    struct decide d;
    struct ids ids;
    sd_event *loop;
    struct engine_paths paths;
    struct cfg *cfg;
    struct records *records;
    struct records_news news;
    struct steps *steps;
    struct movers *movers;
    struct schedule *schedule;
    struct facts *facts; /* facts.h */
    bool room_running;
    bool kept_running; /* intermediates that were kept for inspection are being removed */
    json_t *kept_out;  /* what that has answered */
    bool was_degraded; /* when it was last looked: the records could not be written */
    struct waiter *waiters;
    unsigned telling;         /* waiters are being told: none may be freed */
    struct class_look *looks; /* looks.c */
    struct repository_look *repository_looks;
    struct status_asked *status_asked; /* status-asked.c */
    struct recorded_parts *recorded;   /* backup-record.c */
    struct starting *starting;         /* movers whose jobs are being made (mover-jobs.c) */
    struct scan *scans;                /* scan.c */
    struct parser *parser;             /* of what scans found */
    struct other_node *others;         /* other-nodes.c */
    bool others_running;
    struct own_scan *own_scans; /* own-node.c */
    bool own_running;
    sd_event_source *kick, *sweep, *commit, *soon, *status_due;
    bool kicked, stopping;
    unsigned units;      /* at most, of the next turn; 0: as many as usual */
    bool jobs_wait;      /* what has changed of jobs is to be recorded */
    int64_t waits_ns;    /* CLOCK_MONOTONIC: since when a turn or the end of a commit waits; 0: none does */
    bool prune_wanted;   /* old records are to be removed */
    uint64_t prune_turn; /* number of the last turn before a part of them was */
    bool probing;        /* the commit under way is of no turn */
    struct failed_turn failed;
    int64_t next_ns;  /* CLOCK_MONOTONIC: no turn begins before, but for requests (turn.c); 0: at once */
    int64_t open_ns;  /* CLOCK_MONOTONIC: since when a turn goes on (decide_go_on()); 0: none does */
    int64_t retry_ns; /* CLOCK_MONOTONIC: no turn before, the records cannot be written; 0: none */
    int64_t clock_ns; /* how far the clock is ahead of boot_ns(): changes when it is set (clock.c) */
    int64_t armed_ns; /* CLOCK_MONOTONIC: when the next look at the clock comes; 0: it has come */
    int64_t started_ns, sweep_ns, orphans_ns;
    bool orphans_running;
    struct strs removed; /* native snapshots whose rows were removed since that began */
    bool storage_wanted; /* the storage is to be swept when nothing is being written */
    int64_t strays_ns;   /* when stray movers were looked for */
    bool results_wanted; /* result files of operations that have ended are to be looked for */
    bool strays_running, leftovers_running;
    enum { OLD_TIMERS_GONE, OLD_TIMERS_LEFT, OLD_TIMERS_STOPPING } old_timers;
    int64_t looked_ns;          /* when the look at the storage that runs, or ran last, began */
    unsigned recoveries;        /* of the records, as last seen */
    uint64_t write_errors_kept; /* of this life's failed writes of the records, those that their counter has */
    struct orphans *orphans;    /* orphans.c; NULL: none yet */
    json_t *pools;              /* volume id -> how full its pool is, as last seen (pools.c) */
    int64_t pools_ns;           /* boot_ns(): when the look that saw it began, 0: none yet */
    int64_t pools_began_ns, pools_took_ns; /* of the look for who asks that runs, or ran last */
    bool pools_running;
    bool pools_stale;                       /* one was removed since */
    const struct engine_observer *observer; /* NULL: none */
    struct overview *overview;              /* kept.c */
    struct asked_position asked;
    sd_event_source *behind;    /* volumes are to be looked at for it */
    int64_t kept_ns;            /* CLOCK_MONOTONIC: when it took over the configuration last */
    unsigned maintenance_waits; /* runs that are due and not recorded yet */
    /* the last reload */
    bool reload_ok;
    int64_t reload_ns;
    char reload_error[1200];
    bool reloading;
    /* of check-config, for the configuration in use */
    unsigned warnings;
    int64_t complaints_ns; /* when it was last checked */
    bool complaints_running;
};

/* "20261121T020000-3f9a" for ids, and random aliases. */
void engine_ids(struct ids *ret);
/* Rows have to be looked at although they were not written. */
void engine_look_at_all(struct engine *g);
/* A row has changed (sweep.c). */
void sweep_row(struct engine *g, enum row_kind k, const char *id, const void *was, const void *now);
/* A turn of decisions, unless one is being written; its commit, and what follows from it. */
void engine_turn(struct engine *g);
/* In how many ns the next turn may begin; 0: now. */
int64_t engine_turn_waits(const struct engine *g);
/* A turn goes on no longer than this; engine_turn_end() ends it now. */
#define TURN_GOES_ON_NS (200 * NS_PER_MS)
void engine_turn_end(struct engine *g);
/* Something is written to disk: no turn begins before that has ended. */
bool engine_is_writing(const struct engine *g);
/* Rows that a request decides about, or reads from disk, before clients are served again: some milliseconds. */
#define ENGINE_PART 100
/* To be recorded in the next turn (struct request). */
void engine_request(struct engine *g, request_write_fn *write, request_ended_fn *ended, void *arg);

/* engine_scan() that the engine itself has asked for: how many volumes of backups were added to the records, or why it
 * failed (`e` NULL: it did not). */
typedef void scan_done_fn(unsigned added, const struct err *e, void *arg);
void scan_within(struct engine *g, const struct request_args *req, scan_done_fn *done, void *arg);
/* Where the mover of a scan's operation leaves what it lists; -1: it is of no scan. The descriptor stays the scan's. */
int scan_listing(const struct engine *g, const char *operation);
/* The engine stops: those that wait for nothing else end. */
void scans_stop(struct engine *g, const struct err *e);
/* The same for what nobody waits for: it will be found again if it cannot be recorded. `what` names it then, static.
 * Takes `doc` over. */
typedef int record_fn(struct engine *g, const json_t *doc, struct err *e);
void engine_record(struct engine *g, const char *what, record_fn *fn, json_t *doc);
/* What a step has removed is recorded; of one that failed as a whole nothing is known. */
void engine_record_removed(struct engine *g, const struct step_result *s);
/* What has changed of jobs is recorded. */
void jobs_record(struct engine *g);
/* A commit has ended. */
void engine_committed(struct engine *g);
/* An event for the next turn; never NULL. */
struct event *engine_event(enum event_kind kind, enum row_kind row, const char *id);
void engine_post(struct engine *g, struct event *ev);
/* The same for the end of a mover; takes over the reference to end->result. */
void engine_mover_ended(struct engine *g, const char *id, const struct mover_end *end);
/* Carries out what a turn has planned and is not done; its changes are durable. */
void engine_act(struct engine *g, const struct plan *p);
/* Carries out what can be done before that (decide_go_on()); ends it because the turn is undone. */
void engine_act_early(struct engine *g, struct plan *p);
void engine_act_undo(struct engine *g, const struct plan *p);
/* What moves the data of an operation has got on: its mover, or a driver that copies. */
void engine_progress(struct engine *g, const char *operation, const json_t *progress);
extern const struct movers_events engine_mover_events;
/* Somebody waits for the row: told at the end of the turn, or of this iteration of the loop. */
/* In how many ns one is to be told what waits to be told; INT64_MAX: there is nothing. */
int64_t waiters_due_ns(const struct engine *g);
void waiters_note(struct engine *g, const char *id, const char *parent);
/* What the engine itself waits for with `arg` ends so when it stops. */
void waiters_on_stop(struct engine *g, const void *arg, request_ended_fn *stopped);
void waiters_stop(struct engine *g, const struct err *e);
void waiters_tell(struct engine *g);
/* Those that were told nothing for a while are told how it stands. */
void waiters_remind(struct engine *g);
/* The mover of an operation has got on. */
void waiters_progress(struct engine *g, const struct operation *op);

/* ---- movers (mover-jobs.c) ---- */

/* Starts the mover of an operation, or adopts the plugin that moves it already. *transient: a failure may pass. */
int mover_start(struct engine *g, const struct operation *op, int device, int changes, bool *transient, struct err *e);
/* The mover of an operation that records outcomes is started when its job is complete, of which this makes the next
 * part. False: there is none. If it cannot be started then, that is an event. */
bool mover_start_part(struct engine *g);
/* Such a mover is not to be started any more. False: it is none, or it is there. */
bool mover_start_drop(struct engine *g, const char *id);
void movers_start_free(struct engine *g);
void engine_post_not_started(struct engine *g, const char *id, bool transient, const struct err *e);
/* 0: adopted, or gone and its result is read: its end is an event. < 0: it cannot be asked. */
int mover_adopt(struct engine *g, const struct operation *op, struct err *e);
/* The configuration was read again: limits of reads and writes of movers that work follow it. */
void movers_limit_again(struct engine *g);
/* The plugin that moves its data, NULL: the built-in mover, or it is not configured any more. */
const struct cfg_plugin *operation_plugin(struct engine *g, const struct operation *op);

/* ---- what status says of all volumes (kept.c) ---- */

/* After the schedule: intervals of jobs are those of now. */
int kept_new(struct engine *g, struct err *e);
void kept_free(struct engine *g);
/* A row has changed. */
void kept_row(struct engine *g, enum row_kind k, const char *id, const void *was, const void *now);
/* There is another configuration. */
void kept_configure(struct engine *g);
/* With each sweep: what changes with the calendar. */
void kept_refresh(struct engine *g);
/* For an answer: with a few of what was noted looked at. */
const struct overview *kept_now(struct engine *g);

/* ---- outcomes of backups for their repositories (backup-record.c) ---- */

/*
 * The beginning of the job of a mover that writes the final records of an operation's backups: {"do":[...], as text in
 * a memory file. part: reads ENGINE_PART operations at most and adds them. 1: there are more; 0: it is complete. The
 * descriptor stays the text's.
 */
struct records_text;
int records_text_new(struct records_text **ret, struct engine *g, const struct operation *op, struct err *e);
int records_text_part(struct records_text *t, struct err *e);
int records_text_fd(const struct records_text *t);
void records_text_free(struct records_text *t);
/* What the mover of an operation writes with its first snapshot; NULL: it is written already. */
json_t *record_provisional(struct engine *g, const struct operation *op);
/* A mover reports that it is. */
void record_written(struct engine *g, const struct operation *op);
void recorded_free(struct engine *g);
/* An id of this machine, derived from its machine id. */
const char *record_machine(void);

/* ---- the journal ---- */

/* The line of an operation of a volume, and of a backup or restore, that has ended. */
void journal_operation(const struct operation *op);
void journal_run(const struct backup *b);

/* ---- what drivers and movers get (class-view.c) ---- */

/* The borrowed view of a class document; class_view_clear() frees the arrays. */
struct class_view {
    struct driver_class c;
    const struct class_desc *desc; /* NULL: none */
    const char **match, **peers;
};
/* With a NULL behind the last one; the texts are borrowed. NULL: no memory. */
const char **texts_of(const struct strs *list);
int class_view(struct class_view *ret, const json_t *doc, struct err *e);
void class_view_clear(struct class_view *v);
/* What a mover gets beside its job, read from the files of now; each malloc()ed, cleared by repository_secrets_clear().
 */
struct repository_secrets {
    char *password;    /* stripped of white space at both ends */
    char *credentials; /* the text of the file of S3 keys; NULL: none is needed */
    char *authorities; /* that of ca-file (no secret); NULL: those of the system */
};
int repository_secrets(const struct cfg *c, const char *name, struct repository_secrets *ret, struct err *e);
void repository_secrets_clear(struct repository_secrets *s);
/* All but the password, of the place of a repository or of a copy; `ret` is empty. */
int place_secrets(const struct cfg_repository *r, struct repository_secrets *ret, struct err *e);
/* The credentials alone, for password_free(). */
int place_credentials(const struct cfg_repository *r, char **ret, struct err *e);
/* Certificates in PEM; *ret for free(). */
int authorities_read(const char *file, char **ret, struct err *e);

/* ---- steps (in the child) ---- */
int step_volumes(const json_t *in, json_t **out, int *fd,
                 struct err *e); /* {"classes":[{"class":doc,"names":[..]|absent}]} */
/* {"items":[{class,volume,tag,policy}],"unfrozen":[PATH]} */
int step_snapshot(const json_t *in, json_t **out, int *fd, struct err *e);
int step_remove(const json_t *in, json_t **out, int *fd, struct err *e); /* {"items":[{class,native}]} */
int step_expose(const json_t *in, json_t **out, int *fd,
                struct err *e); /* {own,into|null,native,volume,read_only,alias,...} */
int step_open(const json_t *in, json_t **out, int *fd, struct err *e); /* {own,exposure} */
/* {class,base,native} -> {listed,doubt,why,ranges,bytes}, and the list */
int step_changes(const json_t *in, json_t **out, int *fd, struct err *e);
int step_undo(const json_t *in, json_t **out, int *fd, struct err *e); /* {"intents":[{id,kind,name,doc}]} */
int step_target(const json_t *in, json_t **out, int *fd,
                struct err *e); /* {class,name,size,alias,overwrite,native|null} */
int step_target_open(const json_t *in, json_t **out, int *fd, struct err *e);
int step_target_commit(const json_t *in, json_t **out, int *fd, struct err *e);
int step_storage(const json_t *in, json_t **out, int *fd,
                 struct err *e); /* everything of ours on the classes' storage */
int step_repository(const json_t *in, json_t **out, int *fd, struct err *e); /* {"path"} */
int step_room(const json_t *in, json_t **out, int *fd, struct err *e);       /* {"path"}: {"free", "total"} */
int step_find(const json_t *in, json_t **out, int *fd, struct err *e);       /* {class,volume,alias,hint} */
int step_natives(const json_t *in, json_t **out, int *fd, struct err *e);    /* {"classes", "aliases"} */
int step_pool(const json_t *in, json_t **out, int *fd, struct err *e);       /* {"items":[{class,volume}]} */

/* Failed writes of the records, once they can be written again: until then the metric adds what is not counted yet. */
#define WRITE_ERRORS "record_write_errors_total"
void count_write_errors(struct engine *g);

void sweep_storage(struct engine *g);
/* Something that was kept for inspection was released: removes its intermediate, and what is due for pruning then. */
void sweep_released(struct engine *g);
void sweep_movers(struct engine *g);
void sweep_results(struct engine *g);
void sweep_room(struct engine *g);

/* ---- the clock (clock.c) ---- */

/* At the start: it may have been set back since the records were written. */
void clock_begin(struct engine *g);
/* If it was set since the last call: what is remembered as a time moves with it, deadlines in the next turn. */
void clock_look(struct engine *g);

/* ---- check-config of the configuration in use (complaints.c) ---- */

void complaints_look(struct engine *g);
/* What config_check_step() answered. */
void complaints_take(struct engine *g, const json_t *checked);

/* ---- repositories (repositories.c) ---- */

/* Looks at those that are due, `force`: at all. */
void repositories_refresh(struct engine *g, bool force);
/* Looks at those that cannot be used, if the last look was some seconds ago; asked: somebody has just asked for
 * something, who may have mended it: one second. */
void repositories_look_again(struct engine *g, bool asked);
/* Looks at those whose last look began before that time (boot_ns()), unless it still runs. */
void repositories_look_since(struct engine *g, int64_t since_ns);
/* Whether each has been seen by a look that began since, or hangs for so long. */
bool repositories_seen_since(const struct engine *g, int64_t since_ns, int64_t hangs_ns);
/* A timer: who has asked for the status gets it, or waits on (status-asked.c). Who still waits gets the error. */
/* Volumes that have native snapshots, for step_pool(). New reference. */
json_t *pools_to_ask(struct engine *g);
/* Takes over what it has answered (NULL: nothing) of a look that began then, by boot_ns(), unless a later one was seen.
 * Volume id -> how full its pool is; a new reference. */
json_t *pools_note(struct engine *g, const json_t *out, int64_t began_ns);
/* Looks for who asks for the status, if that is due. */
void pools_look(struct engine *g);
/* A row was changed: what a native snapshot has freed is to be measured for the next one who asks. */
void pools_row(struct engine *g, enum row_kind k, const void *now);
int status_asked_due(sd_event_source *s, uint64_t usec, void *arg);
void status_asked_stop(struct engine *g, const struct err *e);
/* Nanoseconds until the next such look; INT64_MAX: all can be used. */
int64_t repositories_due_ns(const struct engine *g);
/* One of them (NULL: each) is opened again although nothing of it has changed. */
void repositories_reopen(struct engine *g, const char *name);
/* The clock was set by so much. */
void repositories_clock_set(struct engine *g, int64_t by_ns);
void repositories_free(struct engine *g);
/* Its recorded unique id, "": none yet. */
const char *repository_id(struct engine *g, const char *name);
/* Another one at its place is the one that is meant from now on. */
int repository_forget_id(struct engine *g, const char *name, struct err *e); /* in the records */
void repository_replaced(struct engine *g, const char *name);                /* when that is durable */
/* Of a mover that belongs to no operation, but to a look at a repository; false: it does not. */
bool repository_mover_ready(struct engine *g, const char *operation);
bool repository_mover_ended(struct engine *g, const char *operation, const struct mover_end *end);
/* Those of the repository of a mover, as they are now; for password_free(). */
int repository_mover_credentials(struct engine *g, const char *operation, bool copy, char **ret, struct err *e);
/* Member "repository" of a mover's job; NULL: it is not configured. The certificates are added to the job later. */
json_t *repository_job(struct engine *g, const char *name);
/* The same of any place. */
json_t *place_job(const struct cfg_repository *r);
/* `member`: of the job, which is a place. */
void place_job_authorities(json_t *job, const char *member, const struct repository_secrets *s);

/* When its unique id was recorded here; 0: not yet. */
int64_t repository_recorded_ns(struct engine *g, const char *name);

/* ---- backups of other nodes (other-nodes.c) ---- */

/* Starts the scan of one that is due. */
void other_nodes_look(struct engine *g);
/* The configuration is another: all are due. */
void other_nodes_changed(struct engine *g);
void other_nodes_free(struct engine *g);

/* ---- backups of this node that the records do not have (own-node.c) ---- */

/* Starts the scan of a repository that is due. */
void own_scans_look(struct engine *g);
/* Rows may be missing: all are due. */
void own_scans_again(struct engine *g);
void own_scans_free(struct engine *g);
/* Unix time in seconds of the last scan that succeeded. Part of the records: exported as a metric, too. */
#define OWN_SCANNED "own_scan_timestamp_seconds"
static inline json_t *own_scan_labels(const struct engine *g, const char *repository)
{
    return json_pack("{s:s,s:s}", "repository", repository, "node", cfg_daemon(g->cfg)->node_name);
}
/* What the repository has of this node may not be in the records yet. */
static inline bool own_scan_is_due(const struct engine *g, const char *repository)
{
    CLEANUP_JSON json_t *labels = own_scan_labels(g, repository);
    double at;
    return !records_counter_get(g->records, OWN_SCANNED, labels, &at);
}
/* Something of before these records was found again. */
void records_are_rebuilt(struct engine *g);

/* ---- maintenance and verification by schedule (maintenance.c) ---- */

/* Starts what is due. */
void maintenance_look(struct engine *g);

/* ---- jobs ---- */

/* The jobs of the configuration as they are now, in its order. */
struct jobs_now jobs_now(const struct engine *g);
static inline void jobs_now_clear(struct jobs_now *j)
{
    free(j->v);
}

/* ---- looking ---- */

/* A volume as it was last recorded; one that is not has a name only. Borrowed until the records are written. */
struct cfg_subject recorded_subject(const struct engine *g, const char *name);
/*
 * Answer of step_volumes(): volumes that are new or have changed are recorded, those that their class no longer lists
 * are gone until they are seen again. Only classes that were asked for all they have (member "all") tell.
 */
void volumes_listed(struct engine *g, const json_t *classes);
/*
 * Starts a look (a step of its own for each class) where it is time: as often as the daemon sweeps, not more often than
 * every 30 s, and so that looking takes about a hundredth of the time of a class whose driver is slow (every 10 minutes
 * at the latest). Records of volumes that are long gone are removed here.
 */
void sweep_volumes(struct engine *g);
/* The next sweep looks at all classes: the configuration is another. */
void volumes_look_again(struct engine *g);
/* What the looks could not tell: classes that cannot be listed, files that are passed over. fn per line of text. */
/* Whether every class was looked at since the start or the last reload. */
bool volumes_looked(const struct engine *g);
/* Whether all volumes of a class had been recorded before the list of it that is at hand: what is not recorded yet is
 * new. */
bool volumes_listed_before(const struct engine *g, const char *klass);
typedef void volumes_problem_fn(const char *severity, const char *text, const char *hint, void *arg);
void volumes_problems(struct engine *g, volumes_problem_fn *fn, void *arg);
void volumes_free(struct engine *g);

#endif
