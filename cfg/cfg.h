/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * cfg.h - the configuration: INI files to validated values, each with its origin
 *
 * /etc/snapferry/snapferry.ini, then the *.ini files of conf.d beside it in name order; a later value overrides. One
 * reader serves the command with -r NAME (cfg_load: only [repository "NAME"] sections matter, so that an unrelated
 * error does not prevent access to a repository in an emergency) and the daemon (cfg_load_dir: everything). All errors
 * of all files are reported at once, each with file:line and, for unknown words, the known one that may be meant.
 */
#ifndef SNAPFERRY_CFG_CFG_H
#define SNAPFERRY_CFG_CFG_H

#include "base/err.h"
#include "daemon/protocol/mover-limits.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>

#define CFG_DEFAULT_FILE "/etc/snapferry/snapferry.ini"

struct cfg_repository {
    char name[128];
    char type[32];                      /* "filesystem" or "s3" */
    char path[4096];                    /* absolute; "" for s3 */
    char password_file[4096];           /* absolute path or cred:NAME; "" if not set */
    bool insecure_password_file;        /* others may be able to read it */
    char splitter[40], compression[40]; /* "" if not set */
    char origin[4224];                  /* file:line of the section */
    /* s3 */
    char endpoint[256], bucket[128], prefix[192], region[64]; /* "" if not set */
    char credentials[4096];                                   /* absolute path or cred:NAME */
    char ca_file[4096];                                       /* absolute path; "" if not set */
    bool virtual_host;                                        /* BUCKET.ENDPOINT instead of ENDPOINT/BUCKET */
    unsigned parallel_puts;                                   /* packs uploaded at a time */
    int64_t at_ns;                                            /* read only, as it was at that time; 0: as it is */
    bool maintenance;                                         /* by schedule */
    char maintenance_full[256];     /* calendar of full maintenance; "": by the repository's own interval */
    char verification[256];         /* calendar; "": on request only */
    unsigned verification_read_ppm; /* of the contents, in each run */
    const char *const *other_nodes; /* whose backups are listed here, too; NULL or NULL-terminated */
};

/* [copy "NAME"]: a second place with the blobs of a repository. */
struct cfg_copy {
    struct cfg_repository place; /* type, path and so on; its name and origin; the password is the repository's */
    char name[128];
    char repository[128];   /* section name of what is copied */
    char on_calendar[256];  /* "": on request only */
    bool verify;            /* what was copied is read back */
    int64_t delete_after_s; /* what the repository has not had for so long is deleted; 0: never */
    int64_t read_limit;     /* bytes per second, of the repository; 0: as [mover] has it */
    int64_t write_limit;    /* likewise, to the copy */
    char origin[4224];      /* file:line of the section */
};

struct cfg;

/* Reads `file` (NULL: the default) and its conf.d. A missing default file is an empty configuration; a missing named
 * one is ERR_USAGE. On errors e->msg has the first and the number of further ones; each was passed to log_line(). */
int cfg_load(struct cfg **ret, const char *file, struct err *e);
void cfg_free(struct cfg *c);
static inline void cfg_freep(struct cfg **c)
{
    cfg_free(*c);
}

/* NULL if there is no such section. The result belongs to c. */
const struct cfg_repository *cfg_repository(const struct cfg *c, const char *name);
/* Where it is, for people: "/srv/backup", "https://HOST/BUCKET/PREFIX". Returns `out`. */
#define CFG_PLACE_MAX 4096
const char *cfg_repository_place(const struct cfg_repository *r, char out[CFG_PLACE_MAX]);
/* Section number i, NULL past the end. */
const struct cfg_repository *cfg_repository_at(const struct cfg *c, unsigned i);
/* Bytes of the cache that each repository may use: an equal part of cache-max. */
uint64_t cfg_cache_part(const struct cfg *c);
/* Likewise of [copy] sections. */
const struct cfg_copy *cfg_copy(const struct cfg *c, const char *name);
const struct cfg_copy *cfg_copy_at(const struct cfg *c, unsigned i);

/* ---- the whole configuration (the daemon's) ---- */

/* Origin of a value: "file:line", "default", or "[storage-class gold] file:line". */
#define CFG_ORIGIN_MAX 4400

struct cfg_kv {
    const char *key, *value;
};

/* Precedence: volume, policy (conditions by [policy]), job, storage-class, driver, daemon (with mover), default. */
enum cfg_scope {
    SCOPE_DAEMON,
    SCOPE_DRIVER,
    SCOPE_CLASS,
    SCOPE_JOB,
    SCOPE_VOLUME,
    SCOPE_DEFAULT,
    SCOPE_RULE,
    SCOPE_REPOSITORY
};
const char *cfg_scope_name(enum cfg_scope s);

/* Limits and rights of a mover process, from [mover] and, key by key, the policy (MS-02, MS-40, MS-44). */
#define CFG_TEXT(name, size) char name[size];
#define CFG_NUMBER(name, ...) int64_t name;
#define CFG_LIST(name) const char *const *name; /* NULL-terminated */
struct cfg_mover {
    MOVER_LIMITS(CFG_TEXT, CFG_NUMBER, CFG_NUMBER, CFG_LIST)
};
#undef CFG_TEXT
#undef CFG_NUMBER
#undef CFG_LIST

enum cfg_on_error { ON_ERROR_FAIL, ON_ERROR_CONTINUE };
enum cfg_group_consistency { GROUP_BEST_EFFORT, GROUP_STRICT };

/* The effective policy of one volume: precedence volume > job > storage-class > driver > daemon > default. */
struct cfg_policy {
    char klass[128], driver[64]; /* "" if no class matches the volume */
    char repository[128];        /* section name */
    bool exclude;                /* listed as skipped, with the reason */
    char exclude_reason[384];    /* the section that excludes it; "" if not excluded */
    char group[64];              /* "" none (CF-47) */
    enum cfg_group_consistency group_consistency;
    unsigned group_max_skew_ms; /* strict: refused above */
    /* native snapshots (RS) */
    bool move_data;
    unsigned snapshots_to_retain;
    int64_t retain_max_age_s; /* 0: none */
    bool keep_on_failure;
    bool prune_before;                 /* prune = before | after */
    unsigned max_snapshots_per_volume; /* all reasons; default 64 */
    unsigned pool_high_water;          /* percent, default 85 */
    unsigned snapshot_only_keep;       /* default 3 */
    int64_t snapshot_only_max_age_s;   /* 0: none */
    /* exposing (PVC) */
    char backup_storage_class[128]; /* "" own */
    bool backup_read_only;          /* default yes */
    const struct cfg_kv *options;   /* backup-option.KEY = VALUE, ends with key NULL */
    bool expose_keep_on_failure;
    uint64_t copy_limit; /* bytes/s of EXPOSE_COPY; 0 none */
    bool accept_inconsistent;
    bool point_in_time;   /* of driver nbd */
    unsigned cow_percent; /* cow-size: of driver lvm; default 20 */
    /* times, in seconds */
    int64_t snapshot_timeout_s, prepare_timeout_s, go_timeout_s, stall_timeout_s, max_duration_s /* 0: none */,
        cancel_grace_s, repo_outage_max_s;
    unsigned retries;
    int64_t retry_first_s, retry_max_s;
    /* data path */
    char mover[128];                    /* "" built in, or "plugin:NAME" */
    char splitter[40], compression[40]; /* "" the repository's */
    bool map_bad_reads;                 /* bad-reads = map | fail */
    bool full;                          /* type = full */
    bool changed_blocks;                /* changed-blocks = auto */
    int64_t full_every_s;               /* 0: never */
    unsigned verify_sample_ppm;         /* millionths */
    struct cfg_mover limits;
    /* hooks: argv[0] absolute; "" none */
    char hook_pre_snapshot[4096], hook_post_snapshot[4096], hook_post_backup[4096], hook_overlay[4096],
        hook_prepare[4096], hook_post_restore[4096], hook_pre_backup[4096], hook_pre_restore[4096];
    int64_t hook_timeout_s;
    enum cfg_on_error hook_on_error;
    /* repository retention (Kopia's), -1 = not set: inherit */
    int keep_latest, keep_hourly, keep_daily, keep_weekly, keep_monthly, keep_annual;
    unsigned max_per_class, max_per_device; /* slots */
    unsigned priority;
    /* for explain */
    struct cfg_effective *effective; /* cfg_effective_*(); owned by the policy */
};
void cfg_policy_clear(struct cfg_policy *p);

struct cfg_daemon {
    char node_name[256];              /* default: the host's name */
    uint64_t memory_total;            /* all movers together; default 2 GiB */
    unsigned slots;                   /* max operations moving data at once, default 2; 0 = maintenance mode (CF-20) */
    const char *const *slots_on_node; /* "PATTERN=NUMBER": `slots` is the smallest that matches node_name (CF-20) */
    unsigned restore_reserved;        /* slots only restores may use, default 1 */
    unsigned concurrent_backups;      /* default 2 */
    unsigned prepare_ahead;           /* exposed but not running, default slots + 1 */
    unsigned per_device;              /* default 1 */
    int64_t sweep_s;                  /* level-triggered sweep, default 60 */
    int64_t orphan_grace_s;           /* age before an orphan is removed, default 1 h */
    int64_t keep_records_s;           /* default 90 d */
    int64_t provisional_ttl_s;        /* default 7 d (AO-17) */
    char socket_group[64];            /* default snapferry */
    char state_dir[4096], cache_dir[4096];
    uint64_t cache_max; /* hard limit of the cache directory (CF-30) */
    enum { ON_RESTART_RESUME, ON_RESTART_FAIL } on_restart;
    char log_level[16];
    const char *const *only_on_node; /* patterns; NULL or empty: everywhere (loadAffinity) */
    char origin[CFG_ORIGIN_MAX];
};

/* [metrics]: how metrics are served. */
struct cfg_metrics {
    const char *const *listen; /* one address for cfg_parse_listen(), empty: nowhere; further ones are not served */
    char closed[128];          /* why they are not served there: the removed key that restricted access; "" */
    char unix_group[64];       /* of unix:PATH; "": root only */
    char textfile[4096];       /* "" none */
    int64_t textfile_period_s;
    bool compat;         /* the names that Velero uses, too */
    unsigned series_max; /* samples of one family */
};

struct cfg_class {
    char name[128], driver[64];
    const char *const *match; /* NULL-terminated */
    char target[4096];
    char plugin[128]; /* driver = plugin:NAME */
    const char *const *only_on_node;
    unsigned max; /* slots of this class, 0: no own limit */
    char origin[CFG_ORIGIN_MAX];
};

struct cfg_job {
    char name[128];
    const char *const *volumes; /* names and patterns; also "class:NAME" */
    char on_calendar[256];      /* systemd calendar expression; "" by hand only */
    bool persistent;            /* missed runs are caught up, default yes */
    int64_t jitter_s;           /* RandomizedDelaySec */
    bool paused;
    const char *const *only_on_node;
    char origin[CFG_ORIGIN_MAX];
};

struct cfg_plugin {
    char name[128], kind[16]; /* "driver" or "mover" */
    char program[4096];       /* absolute */
    char user[64];            /* default snapferry-plugin or nobody; "" with privileged = yes */
    bool privileged;
    const char *const *match_class, *const *match_path;
    uint64_t min_size, max_size; /* of the volume (AP-03); UINT64_MAX: no limit */
    unsigned priority;
    int64_t start_timeout_s, poll_s, max_timeout_s;
    unsigned progress_retry;
    char origin[CFG_ORIGIN_MAX];
};

/* [volume "NAME"]: its own keys are in the policy. */
struct cfg_volume {
    char name[4096];
    char klass[128]; /* class = NAME: explicit assignment; "" by pattern */
    char origin[CFG_ORIGIN_MAX];
};

/* [policy "NAME"] (CF-46): conditions that must all hold, and the action; the first match wins. */
enum cfg_action {
    ACTION_SKIP,     /* listed as skipped, with the name of the policy */
    ACTION_SNAPSHOT, /* native snapshot only: move-data = no */
    ACTION_BACKUP    /* move-data = yes */
};
struct cfg_rule {
    char name[128];
    const char *const *match;    /* patterns of volume names; NULL: any */
    const char *const *classes;  /* storage classes; NULL: any */
    const char *const *drivers;  /* NULL: any */
    uint64_t min_size, max_size; /* inclusive; 0 and UINT64_MAX: no limit */
    enum cfg_action action;
    char origin[CFG_ORIGIN_MAX];
};

/*
 * A volume as the configuration sees it: its name, and what its storage says of it. Labels are words with blanks
 * between them, KIND:VALUE each ("vg:vg0 tag:db"); they are carried with the volume by who lists the storage
 * (io/native: struct volume) and recorded with it, so that a class is found without asking the storage again. NULL or
 * "": nothing known.
 */
struct cfg_subject {
    const char *name, *labels;
};
static inline struct cfg_subject cfg_named(const char *name)
{
    return (struct cfg_subject){name, NULL};
}

/*
 * Reads CONFIG-DIR/snapferry.ini and CONFIG-DIR/conf.d/ *.ini (a missing main file is an error unless conf.d has one).
 * All errors of all files are collected: cfg_complaint_at(). On errors *ret is still set (for check-config to show the
 * rest) and -EINVAL is returned; free it in any case.
 */
int cfg_load_dir(struct cfg **ret, const char *config_dir, struct err *e);

/* A configuration is immutable and counted: the daemon swaps it on reload while operations keep theirs. */
struct cfg *cfg_ref(struct cfg *c);

enum cfg_severity { CFG_WARNING, CFG_ERROR };
struct cfg_complaint {
    enum cfg_severity severity;
    char where[CFG_ORIGIN_MAX]; /* file:line */
    char text[1024], hint[384];
};
/* Complaint number i, NULL past the end: errors and warnings in order of file and line. */
const struct cfg_complaint *cfg_complaint_at(const struct cfg *c, unsigned i);
/* For checks that need the drivers or the machine (added by the daemon and check-config after loading). */
void cfg_complain(struct cfg *c, enum cfg_severity s, const char *where, const char *hint, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
unsigned cfg_errors(const struct cfg *c);
/* file:line of a key in a section ("job", "nightly", "on-calendar"), or of the section where it lacks the key or `key`
 * is NULL; "" if there is no such section. */
void cfg_where(const struct cfg *c, const char *kind, const char *name, const char *key, char out[CFG_ORIGIN_MAX]);
/* Errors about an existing volume: two jobs with different retention. */
void cfg_check_volume(struct cfg *c, struct cfg_subject v);
/* SHA-256 of the files' text (hex): to see whether it changed. */
const char *cfg_hash(const struct cfg *c);

const struct cfg_daemon *cfg_daemon(const struct cfg *c);
/* The node's name for new snapshot sources: as the daemon has it. -EINVAL if it is not certain: a configuration loaded
 * with errors (cfg_load()) sets none in a line that could be read. */
int cfg_node_name(const struct cfg *c, char out[256], struct err *e);
const struct cfg_mover *cfg_mover(const struct cfg *c);
const struct cfg_metrics *cfg_metrics(const struct cfg *c);
/* Section number i in file order, NULL past the end; and by name. */
const struct cfg_class *cfg_class_at(const struct cfg *c, unsigned i);
const struct cfg_class *cfg_class(const struct cfg *c, const char *name);
const struct cfg_job *cfg_job_at(const struct cfg *c, unsigned i);
const struct cfg_job *cfg_job(const struct cfg *c, const char *name);
/* The name of a section that was probably meant; NULL: none is near. */
const char *cfg_near_class(const struct cfg *c, const char *name);
const char *cfg_near_job(const struct cfg *c, const char *name);
const char *cfg_near_repository(const struct cfg *c, const char *name);
const char *cfg_near_copy(const struct cfg *c, const char *name);
const struct cfg_plugin *cfg_plugin_at(const struct cfg *c, unsigned i);
const struct cfg_plugin *cfg_plugin(const struct cfg *c, const char *name);
const struct cfg_volume *cfg_volume_at(const struct cfg *c, unsigned i);

/* Whether `node` matches one of the patterns; true for NULL or an empty list (loadAffinity). "!PATTERN" excludes. */
bool cfg_node_matches(const char *const *only_on_node, const char *node);
/* Whether volumes of a class are backed up on this node: the class's only-on-node, or [daemon]'s where it has none. */
bool cfg_class_here(const struct cfg *c, const struct cfg_class *k);

/* Whether a word of a list of patterns is compared with labels, too: lower-case letters and a colon, not class:NAME. */
bool cfg_is_label(const char *word);
/* Whether `match` of a class, of any class if `k` is NULL, has such a word. */
bool cfg_matches_labels(const struct cfg *c, const struct cfg_class *k);

/* The class of a volume: [volume] class=, else the first class in file order with a matching pattern; NULL: none.
 * Patterns: fnmatch(3) with FNM_PATHNAME against the volume's name, KIND:PATTERN against its labels. */
const struct cfg_class *cfg_class_of(const struct cfg *c, struct cfg_subject v);
/* Whether a word (name, pattern or label) means this volume. */
bool cfg_word_matches(const char *word, struct cfg_subject v);
/* Whether the patterns of a class match, whatever class the volume belongs to. */
bool cfg_class_selects(const struct cfg_class *k, struct cfg_subject v);
/* Whether a job names this volume (name, pattern, label or class:NAME). */
bool cfg_job_has(const struct cfg *c, const struct cfg_job *j, struct cfg_subject v);
/* The same for one whose class (NULL: none) is known. */
bool cfg_job_names(const struct cfg_job *j, const struct cfg_class *k, struct cfg_subject v);

/* Effective policy of a volume in job `job` (NULL: none). Never fails but for memory. */
int cfg_policy(const struct cfg *c, struct cfg_subject v, const char *job, struct cfg_policy *ret, struct err *e);
/* Members `exclude` and `pool_high_water` of that policy (job NULL), without making the whole of it: what a list of
 * thousands of volumes asks of each. `k` is the class of the volume; size UINT64_MAX: not known, then nothing that
 * depends on it counts. */
bool cfg_excluded(const struct cfg *c, const struct cfg_class *k, struct cfg_subject v, uint64_t size);
unsigned cfg_pool_high_water(const struct cfg *c, struct cfg_subject v);
/* Whether a job that names the volume keeps native snapshots of it by a snapshots-to-retain of its own. */
bool cfg_jobs_retain(const struct cfg *c, struct cfg_subject v);
/* The policy of a class by itself, for a volume without a section and without a job; ERR_NOT_FOUND. */
int cfg_policy_of_class(const struct cfg *c, const char *klass, struct cfg_policy *ret, struct err *e);
/*
 * Settings that depend on the volume's size, once it is known: the first [policy] that matches sets `exclude` or
 * `move_data` (unless [volume] does), and a mover plugin assigned to such volumes sets `mover` (unless the
 * configuration names one). cfg_policy() has done so already where no size matters; a second call changes nothing.
 */
int cfg_policy_size(const struct cfg *c, struct cfg_policy *p, struct cfg_subject v, uint64_t size, struct err *e);
/* file:line of the effective value of a key; NULL: it is the default. Belongs to the policy. */
const char *cfg_policy_where(const struct cfg_policy *p, const char *key);
/* Where it is set. */
enum cfg_scope cfg_policy_scope(const struct cfg_policy *p, const char *key);
/* The policy as JSON: {"key": {"value": "...", "origin": "...", "scope": "storage-class", "overrides": [...]}, ...}
 * (new reference). */
json_t *cfg_policy_json(const struct cfg_policy *p);

/* The effective configuration: {"files": [...], "hash": "...", "sections": [{"kind", "name", "origin", "keys": {"k":
 * {"value", "origin"}}}], "complaints": [{"severity","where","text","hint"}]} (new reference; secrets are never in it:
 * passwords are file names). */
json_t *cfg_json(const struct cfg *c);

#define CFG_CPUS_MAX 1024
/* A list of CPUs such as "0-3,8" into a mask: CPU n is bit n % 8 of byte n / 8. 0, or -EINVAL with *why, a part of a
 * sentence ("a range ends before ..."). */
int cfg_parse_cpus(uint8_t mask[CFG_CPUS_MAX / 8], const char *text, const char **why);

/* Times of the week, of limit-times. */
#define CFG_TIMES_MAX 16
struct cfg_time_span {
    uint8_t days;      /* on which they begin: bit 0 is Monday */
    uint16_t from, to; /* minutes of the day, `to` not included; to < from: of the next day */
};
struct cfg_times {
    unsigned n;
    struct cfg_time_span v[CFG_TIMES_MAX];
};
/* "Mon..Fri 08:00-18:00, Sat 22:00-06:00", "08:00-18:00". 0, or -EINVAL with *why, a part of a sentence. */
int cfg_parse_times(struct cfg_times *ret, const char *text, const char **why);
/* Is this local time in one of them? Of none, always. */
bool cfg_times_hold(const struct cfg_times *t, const struct tm *local);
/* The same of a time, by the clock of this node's time zone. */
bool cfg_times_hold_at(const struct cfg_times *t, time_t when);

/* "127.0.0.1:9747", "[::1]:9747", "unix:/run/snapferry/metrics.sock": an address to listen on, without asking any name
 * service. 0, or -EINVAL with `why` (a part of a sentence: "the port ..."). */
int cfg_parse_listen(const char *word, struct sockaddr_storage *ret, socklen_t *len, char *why, size_t cap);

#endif
