/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * cli.h - the command snapferry: what its files share
 *
 * One table (options-table.c) has every option with its help text and the verbs that take it; parsing, --help, the bash
 * completion and the test of the man page use it.
 */
#ifndef SNAPFERRY_DAEMON_CLI_CLI_H
#define SNAPFERRY_DAEMON_CLI_CLI_H

#include "base/cleanup.h"
#include "chunker/splitter.h"
#include "daemon/mover/mover.h"

struct cfg;

/* A word such as "backup" may be two verbs: with -r it works on a repository in this process, without -r it is a
 * request to the daemon. */
enum verb {
    VERB_NONE,
    /* with -r */
    VERB_REPO_CREATE,
    VERB_REPO_STATUS,
    VERB_REPO_USAGE,
    VERB_REPO_SYNC,
    VERB_REPO_REPAIR,
    VERB_REPO_CHANGE_PASSWORD,
    VERB_REPO_EXPORT_KEY,
    VERB_REPO_OPEN_KEY,
    VERB_BACKUP,
    VERB_SNAPSHOT_LIST,
    VERB_SNAPSHOT_SHOW,
    VERB_LS,
    VERB_CAT,
    VERB_RESTORE,
    VERB_VERIFY,
    VERB_SNAPSHOT_EXPIRE,
    VERB_SNAPSHOT_PIN,
    VERB_SNAPSHOT_UNPIN,
    VERB_SNAPSHOT_DELETE,
    VERB_MAINTENANCE,
    /* without -r: the daemon's */
    VERB_ASK_BACKUP,
    VERB_ASK_RESTORE,
    VERB_ASK_VERIFY,
    VERB_ASK_EXPIRE,
    VERB_ASK_MAINTENANCE,
    VERB_ASK_COPY,
    VERB_STATUS,
    VERB_OPERATIONS,
    VERB_BACKUPS,
    VERB_VOLUMES,
    VERB_JOBS,
    VERB_DESCRIBE,
    VERB_LOGS,
    VERB_WAIT,
    VERB_CANCEL,
    VERB_DELETE,
    VERB_NATIVE_LIST,
    VERB_NATIVE_PRUNE,
    VERB_NATIVE_RELEASE,
    VERB_RETRY,
    VERB_HOLD,
    VERB_UNHOLD,
    VERB_EXPLAIN,
    VERB_SCAN,
    VERB_REPO_DETACH,
    VERB_FORGET,
    VERB_RELOAD,
    VERB_DEBUG_BUNDLE,
    /* without either */
    VERB_CHECK_CONFIG,
    VERB_IMPORT_VELERO,
    VERB_PLUGIN_CHECK,
    VERB_BENCH,
    VERB_HELP,
    VERB_COUNT
};

enum progress_mode { PROGRESS_AUTO, PROGRESS_ON, PROGRESS_OFF };

/* The command line, parsed and checked for form. Strings point into argv. */
struct options {
    enum verb verb;
    const char *group; /* --help: first word of verbs that have two, where the second is missing; or NULL */
    char **args;       /* positional arguments behind the verb */
    int n_args;
    const char *repo, *password_file, *config, *cache_dir;
    int64_t at_ns; /* the repository as it was then; 0: as it is */
    uint64_t cache_size, index_memory;
    bool json, help, version, completion, quiet, verbose, debug, yes;
    const char *complete; /* kinds of names for names_print(); NULL: not given */
    enum progress_mode progress;
    /* repo create, change-password */
    unsigned format_version, ecc_percent;
    const char *block_hash, *encryption, *splitter, *key_algo, *new_password_file, *owner;
    uint64_t pack_size;
    bool make_password;
    bool insecure;         /* others may be able to read password files */
    const char *node_name; /* NULL: as configured */
    /* backup */
    const char *as, *compression, *description;
    json_t *tags;
    uint64_t memory, read_limit, write_limit;
    unsigned workers, depth, checkpoint_s;
    bool no_uring, no_direct, no_parent, full_scan, map_bad;
    const char *parent, *changed_ranges; /* both or neither */
    double verify_sample;                /* percent */
    /* lists */
    bool all;
    const char *volume, *backup, *state, *class_name;
    unsigned limit;
    /* restore */
    bool differential, verify, force, even_kept, resume, ranged;
    uint64_t offset, length;
    /* verify */
    double read_percent;
    bool anew;
    /* directories of the daemon; never NULL after options_parse() */
    const char *config_dir, *state_dir, *runtime_dir;
    bool config_dir_given;
    /* the daemon's verbs */
    const char *job, *from, *note, *kind;
    json_t *class_map; /* {"OLD": "NEW"} or NULL */
    int move_data;     /* -1: as configured */
    unsigned lines;    /* logs: 0 all */
    bool wait, full, from_timer, replaced, overwrite, new_target, delete_most, allow_incomplete, follow,
        remove_provisional;
    bool restore_format, without_password;
    const char *node; /* of scan, of snapshot delete */
    /* bench */
    const char *device, *dir;
    bool quick, pipeline;
    double seconds; /* 0: as usual */
    uint64_t size;
    /* expire, native prune, maintenance */
    bool explain, dry_run, gone;
    bool volumes; /* repo usage */
    /* maintenance */
    bool unsafe, take_ownership;
    bool packs_missing; /* repo repair */
    /* tables and screens */
    bool wide, check;
};

/* Parses argv; ERR_USAGE on failure. options_free() afterwards in any case. */
int options_parse(struct options *o, int argc, char **argv, struct err *e);
void options_free(struct options *o);
/* What another program's verb, of one or two words, is called here, with -r or without; NULL: not known. */
const char *other_word(const char *word, bool repo);
const char *verb_name(enum verb v);
/* Help of o->verb, of the verbs of o->group, or of the whole command if neither is set, to `f`. */
void options_help(FILE *f, const struct options *o);

/*
 * Prints the names of the kinds in o->complete, one per line, for the completion of the shell: "backups", "operations",
 * "running" (backups and operations that have not ended), "natives", "volumes", "jobs", "classes", "repositories",
 * "snapshots" (with -r), separated by commas. From the daemon, or from its files if it is down. Ends after two seconds
 * at most; names that are not available are omitted silently.
 */
void names_print(const struct options *o);

/* The repository that -r and --password-file name: directory, URL or section of the configuration. cli_password():
 * free with password_free(). */
int cli_open_repo(const struct options *o, struct repo **ret, struct err *e);
int cli_open_blobs(const struct options *o, enum blobs_open_mode mode, const int *shards, size_t n_shards,
                   struct blobs **ret, struct err *e);
int cli_password(const struct options *o, char **ret, struct err *e);
/* The configuration of -r: of --config-dir or --config, otherwise the daemon's. To be freed in any case. */
int cli_cfg(const struct options *o, struct cfg **ret, struct err *e);
/* Name of this node in sources: --node-name, otherwise the daemon's, by the configuration of -r. ERR_USAGE if it is not
 * certain: snapshots under a wrong name would begin another history. */
int cli_node_name(const struct options *o, char out[256], struct err *e);
/* Splitter and compressor for new data: of the options, else of the section of the configuration, else "". */
int cli_defaults(const struct options *o, char splitter[40], char compression[40], struct err *e);

/* A password of 24 random bytes in base64 in a new file of mode 0600. 1 if it was created, 0 if the file exists (it is
 * not changed). */
int password_make(const char *file, struct err *e);
/* Creates the directory of a new repository and changes its owner to `user` (NULL or "": not changed) if it was created
 * here, or is empty and owned by root: movers write to it as that user. No effect unless run as root. */
int repository_dir_make(const char *dir, const char *user, struct err *e);

/* Verbs: 0 or a positive exit code (ERR_PARTIAL), or negative with e set. */
int cli_repo_create(const struct options *o, struct err *e);
int cli_repo_status(const struct options *o, struct err *e);
int cli_repo_change_password(const struct options *o, struct err *e);
int cli_backup(const struct options *o, struct err *e);
int cli_snapshot_list(const struct options *o, struct err *e);
int cli_snapshot_show(const struct options *o, struct err *e);
int cli_ls(const struct options *o, struct err *e);
int cli_cat(const struct options *o, struct err *e);
int cli_restore(const struct options *o, struct err *e);
int cli_verify(const struct options *o, struct err *e);
int cli_snapshot_expire(const struct options *o, struct err *e);
int cli_snapshot_pin(const struct options *o, struct err *e); /* pin and unpin, by o->verb */
int cli_snapshot_delete(const struct options *o, struct err *e);
int cli_snapshot_delete_node(const struct options *o, struct err *e); /* o->node */
int cli_maintenance(const struct options *o, struct err *e);
int cli_repo_export_key(const struct options *o, struct err *e);
int cli_repo_open_key(const struct options *o, struct err *e);
int cli_repo_usage(const struct options *o, struct err *e);
int cli_usage_volumes(const struct options *o, struct repo *r, struct err *e); /* --volumes, of an open one */
int cli_repo_sync(const struct options *o, struct err *e);
int cli_repo_repair(const struct options *o, struct err *e);
/* Neither daemon nor repository. */
int cli_check_config(const struct options *o, struct err *e);  /* o->config_dir */
int cli_config_import(const struct options *o, struct err *e); /* args[0]: file with a ConfigMap */
int cli_plugin_check(const struct options *o, struct err *e);  /* args[0]: program; o->kind or NULL */
int cli_bench(const struct options *o, struct err *e);         /* args: what to measure; none: all */
/* The daemon's verbs. */
int cli_ask(const struct options *o, struct err *e);

/* snapshot_find() with hints that name this repository, ready to be typed. */
int cli_find_snapshot(const struct options *o, struct repo *r, const char *what, const struct snapshot_source *only,
                      struct snapshot *ret, struct err *e);
/* "snapferry -r main --password-file p": the beginning of a command on this repository. Static buffer. */
const char *cli_how(const struct options *o);

/* SNAPSHOT[/PATH]: finds the snapshot and the entry. path "" = the root. Clear both afterwards. */
int cli_find(const struct options *o, struct repo *r, const char *arg, struct snapshot *snap, struct dir_entry *entry,
             const char **path, struct err *e);

/* The flag set by SIGINT and SIGTERM; the first call installs the handlers. A second signal exits with code 130
 * immediately. */
struct mover_cancel *cli_cancel(void);

/* Shows progress from a thread until progress_stop(). */
struct progress_view;
int progress_start(struct progress_view **ret, const struct options *o, const char *what, struct mover_progress *p,
                   struct err *e);
void progress_stop(struct progress_view *v);

/* Prints a JSON object on one line and flushes; takes the reference. */
void print_json(json_t *v);

/* Prints the error to standard error, and with --json as the last object unless a result has been printed. */
void print_error(const struct options *o, const struct err *e);

/* "1.5 GiB", "12.3 MiB/s", "1 h 02 min". Static buffers, eight in turn. */
const char *text_bytes(uint64_t n);
const char *text_rate(double bytes_per_second);
const char *text_seconds(double s);
const char *text_local_time(int64_t ns);
/* A name made safe for a terminal: control characters become \xNN. Static buffers, eight in turn. */
const char *text_name(const char *s);

#endif
