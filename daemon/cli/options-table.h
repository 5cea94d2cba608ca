/* SPDX-License-Identifier: GPL-2.0-or-later */
/* options-table.h - the table of verbs and options, for parsing, help and completion */
#ifndef SNAPFERRY_DAEMON_CLI_OPTIONS_TABLE_H
#define SNAPFERRY_DAEMON_CLI_OPTIONS_TABLE_H

#include "daemon/cli/cli.h"

/* Work on a repository in this process (-r), a request to the daemon, or neither. */
enum verb_form { FORM_REPO, FORM_DAEMON, FORM_LOCAL };

struct verb_info {
    enum verb verb;
    enum verb_form form;
    const char *words[2];
    const char *args; /* for the usage line */
    int min_args, max_args;
    const char *summary;
};

enum option_id {
    OPT_REPO = 'r',
    OPT_HELP = 'h',
    OPT_VERBOSE = 'v',
    OPT_YES = 'y',
    OPT_PASSWORD_FILE = 256,
    OPT_AT,
    OPT_CONFIG,
    OPT_CACHE_DIR,
    OPT_CACHE_SIZE,
    OPT_INDEX_MEMORY,
    OPT_JSON,
    OPT_PROGRESS,
    OPT_QUIET,
    OPT_DEBUG,
    OPT_VERSION,
    OPT_COMPLETION,
    OPT_COMPLETE,
    OPT_FORMAT_VERSION,
    OPT_BLOCK_HASH,
    OPT_ENCRYPTION,
    OPT_SPLITTER,
    OPT_ECC_PERCENT,
    OPT_PACK_SIZE,
    OPT_KEY_DERIVATION,
    OPT_OWNER,
    OPT_NEW_PASSWORD_FILE,
    OPT_INSECURE,
    OPT_MAKE_PASSWORD,
    OPT_AS,
    OPT_COMPRESSION,
    OPT_DESCRIPTION,
    OPT_TAG,
    OPT_MEMORY,
    OPT_WORKERS,
    OPT_READ_LIMIT,
    OPT_WRITE_LIMIT,
    OPT_QUEUE_DEPTH,
    OPT_CHECKPOINT_INTERVAL,
    OPT_BAD_READS,
    OPT_NO_IO_URING,
    OPT_NO_DIRECT,
    OPT_NO_PARENT,
    OPT_PARENT,
    OPT_CHANGED_RANGES,
    OPT_VERIFY_SAMPLE,
    OPT_FULL_SCAN,
    OPT_ALL,
    OPT_DIFFERENTIAL,
    OPT_VERIFY,
    OPT_OFFSET,
    OPT_LENGTH,
    OPT_FORCE,
    OPT_EVEN_KEPT,
    OPT_RESUME,
    OPT_READ_PERCENT,
    OPT_ANEW,
    OPT_CONFIG_DIR,
    OPT_STATE_DIR,
    OPT_RUNTIME_DIR,
    OPT_JOB,
    OPT_WAIT,
    OPT_FULL,
    OPT_MOVE_DATA,
    OPT_FROM_TIMER,
    OPT_REPLACED,
    OPT_NODE,
    OPT_NODE_NAME,
    OPT_REMOVE_PROVISIONAL,
    OPT_FROM,
    OPT_OVERWRITE,
    OPT_NEW,
    OPT_DELETE_MOST,
    OPT_WITHOUT_PASSWORD,
    OPT_RESTORE_FORMAT,
    OPT_ALLOW_INCOMPLETE,
    OPT_CLASS_MAP,
    OPT_VOLUME,
    OPT_BACKUP,
    OPT_STATE,
    OPT_CLASS,
    OPT_LIMIT,
    OPT_FOLLOW,
    OPT_LINES,
    OPT_NOTE,
    OPT_EXPLAIN,
    OPT_DRY_RUN,
    OPT_GONE,
    OPT_KIND,
    OPT_DEVICE,
    OPT_PIPELINE,
    OPT_DIR,
    OPT_QUICK,
    OPT_WIDE,
    OPT_CHECK,
    OPT_SECONDS,
    OPT_SIZE,
    OPT_SAFETY,
    OPT_PACKS,
    OPT_VOLUMES,
    OPT_TAKE_OWNERSHIP,
};

/* One option; rows may share id and name where verbs give it different meanings. */
struct option_info {
    enum option_id id;
    const char *name;
    const char *arg; /* NULL: none; "[=X]": optional */
    uint64_t verbs;
    const char *help;
};

/* More than the number of rows. */
#define OPTIONS_MAX 128

extern const struct verb_info verb_table[];
extern const size_t verb_table_len;
extern const struct option_info option_table[];
extern const size_t option_table_len;

const struct verb_info *verb_info(enum verb v);
/* True if the verb takes the option. */
bool option_for(enum option_id id, enum verb v);

/* The completion script for bash. */
void options_completion(FILE *f);

#endif
