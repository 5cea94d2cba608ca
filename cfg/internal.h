/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * internal.h - what the files of this room share: the table of keys, sections as read, complaints
 */
#ifndef SNAPFERRY_CFG_INTERNAL_H
#define SNAPFERRY_CFG_INTERNAL_H

#include "base/nearest.h"
#include "cfg/cfg.h"

#include <stdatomic.h>
#include <stddef.h>

#define SECTION_MAX 49     /* characters that inih keeps of a section's name */
#define LINE_MAX_LEN 198   /* characters of a line that inih does not split */
#define FILE_MAX (4 << 20) /* bytes of one configuration file */
#define COMPLAINTS_MAX 500
#define SECTIONS_MAX 5000 /* of all files; cross checks compare them with each other */
#define VALUES_MAX 1000   /* of one section */

enum kind {
    KIND_DAEMON,
    KIND_MOVER,
    KIND_METRICS,
    KIND_DRIVER,
    KIND_REPOSITORY,
    KIND_CLASS,
    KIND_VOLUME,
    KIND_JOB,
    KIND_PLUGIN,
    KIND_RULE,
    KIND_COPY,
    KIND_COUNT
};
extern const char *const kind_names[KIND_COUNT]; /* "daemon", ..., "storage-class", ... */

/* Where a value is stored. */
enum place {
    IN_DAEMON,
    IN_METRICS,
    IN_REPOSITORY,
    IN_CLASS,
    IN_VOLUME,
    IN_JOB,
    IN_PLUGIN,
    IN_RULE,
    IN_COPY,
    IN_POLICY,
    IN_NOTHING /* removed keys */
};

enum value_type {
    V_TEXT,       /* anything that fits */
    V_NAME,       /* one word: letters, digits, . _ - : / */
    V_PATH,       /* absolute */
    V_SECRET,     /* absolute path or cred:NAME */
    V_DRIVER,     /* name or plugin:NAME */
    V_MOVER,      /* plugin:NAME or builtin (stored as "") */
    V_WORD,       /* one of `choices`, stored as text */
    V_ENUM,       /* one of `choices`, stored as its number */
    V_YESNO,      /* bool */
    V_COUNT,      /* min..max */
    V_SHARE,      /* percent with up to four decimals, stored in millionths; min..max */
    V_KEEP,       /* count, -1 when not set */
    V_BYTES,      /* min..max */
    V_RATE,       /* bytes per second, 0 none */
    V_DURATION,   /* seconds, 0 refused */
    V_DURATION0,  /* seconds, 0 documented as "none" */
    V_MS,         /* milliseconds, 0 refused */
    V_TIME,       /* that has passed, stored as ns since 1970; "": 0 */
    V_LIST,       /* words */
    V_PATTERNS,   /* words that are fnmatch patterns */
    V_SLOTS,      /* PATTERN=NUMBER words */
    V_CPUS,       /* 0-3,8 */
    V_TIMES,      /* Mon..Fri 08:00-18:00, Sat 09:00-12:00 */
    V_LISTEN,     /* words for cfg_parse_listen(): the first is used, further ones are reported */
    V_PROPERTIES, /* Name=value words */
    V_OPTIONS,    /* KEY.* = value */
    V_REMOVED     /* anything; removed_keys says what it was */
};

/* A key as shown by help and documentation. */
struct cfg_key {
    const char *name;     /* "snapshots-to-retain", "backup-option.*" */
    const char *sections; /* space-separated: "daemon driver storage-class job volume" */
    const char *type;     /* "bytes", "duration", "yes|no", "count", "text", "path", "list", ... */
    const char *default_text;
    const char *text; /* one sentence */
};

struct key {
    struct cfg_key pub;
    enum place place;
    size_t offset, size;
    enum value_type type;
    int64_t min, max;
    const char *choices; /* space-separated */
};
extern const struct key key_table[];
extern const unsigned n_keys;

/* Whether the key may stand in sections of that kind. */
bool key_in(const struct key *k, enum kind kind);
/* By name as it is written ("backup-option.pool" finds backup-option.*), NULL: not in that kind of section. */
const struct key *key_find(enum kind kind, const char *name);
/* Any row with that name, wherever it may stand. */
const struct key *key_anywhere(const char *name);

/*
 * A key of an earlier version, so that a configuration still loads after an upgrade. Its value is read like any other
 * (a later file overrides it, an indented line continues it), not stored, and reported as a warning with `instead`.
 */
struct removed_key {
    struct key key;      /* name and sections; type V_REMOVED */
    const char *since;   /* version: "0.2" */
    const char *instead; /* hint of the complaint: what to use now */
    bool guards_metrics; /* restricted access to the metrics: the listener stays closed while it is set */
};
extern const struct removed_key removed_keys[];
extern const unsigned n_removed_keys;
/* NULL: no key of that kind of section was removed under that name. */
const struct removed_key *removed_find(enum kind kind, const char *name);
/* The row whose key is `k`, NULL: not a removed one. */
const struct removed_key *removed_of(const struct key *k);

struct value {
    const struct key *key;
    char *option; /* V_OPTIONS: the part for the asterisk */
    char *text;
    unsigned file, line;
};

struct section {
    enum kind kind;
    char name[SECTION_MAX + 1]; /* "" for daemon, mover and metrics */
    unsigned file, line;        /* first line of the section */
    struct value *values;
    unsigned n_values;
    bool broken; /* some lines were refused: a missing key may have been in them */
};

/* The words of a list of names and patterns, made for asking whether it has a name: a list may name thousands. */
struct word_index {
    const char **names; /* those without special characters, sorted */
    unsigned n_names;
    const char **others; /* NULL ends them */
    const char **labels; /* those that are compared with labels, which are among the others, too; NULL ends them */
};

struct klass {
    struct cfg_class pub; /* first: what is asked of a class finds the rest */
    unsigned section;
    struct word_index match;
};
struct job {
    struct cfg_job pub; /* first */
    unsigned section;
    struct word_index words;
    char keep[256];  /* its keep-* as one text */
    bool keeps_told; /* a conflict of retention with an earlier job was reported */
};
struct plugin {
    struct cfg_plugin pub;
    unsigned section;
};
struct volume_section {
    struct cfg_volume pub;
    unsigned section;
};
struct rule {
    struct cfg_rule pub;
    unsigned section;
};
struct repository {
    struct cfg_repository pub;
    unsigned section;
};
struct copy {
    struct cfg_copy pub;
    unsigned section;
};

/* A complaint with its place in the order of files and lines. */
struct complaint {
    struct cfg_complaint pub;
    unsigned file, line;
    bool elsewhere; /* not about repositories: `-r NAME` works regardless */
};

/* Allocations that live as long as their owner. */
struct arena {
    void **items;
    size_t n, cap;
};
void *arena_take(struct arena *a, void *p); /* p is freed if there is no memory */
char *arena_text(struct arena *a, const char *text);
void arena_clear(struct arena *a);

struct cfg {
    _Atomic unsigned refs;
    char **files;
    unsigned n_files;
    char hash[65];
    struct section *sections;
    unsigned n_sections;
    struct repository *repositories;
    struct klass *classes;
    struct job *jobs;
    struct plugin *plugins;
    struct volume_section *volumes;
    const struct volume_section **volumes_by_name;
    struct rule *rules;
    struct copy *copies;
    unsigned n_repositories, n_classes, n_jobs, n_plugins, n_volumes, n_rules, n_copies;
    struct cfg_daemon daemon;
    struct cfg_mover mover;
    struct cfg_metrics metrics;
    struct complaint **complaints;
    unsigned n_complaints, n_errors, n_dropped;
    struct arena arena;
};

/* ---- values.c: text to values of the structs ---- */

struct parsed {
    int64_t number;           /* numbers, yes/no, enums, durations; bytes up to INT64_MAX */
    const char *text;         /* borrowed from the input */
    const char *const *words; /* lists, from the arena */
};
/* 0, -EINVAL with `why` (a message that names the key), or -ENOMEM. */
int value_parse(const struct key *k, const char *text, struct arena *a, struct parsed *ret, char *why, size_t cap);
/* Whether a value of that type is a list of words. */
bool type_is_list(enum value_type t);
/* "PATTERN=NUMBER": the number, and the pattern in out (size cap); -EINVAL. */
int parse_slots_word(const char *word, char *out, size_t cap, unsigned *number);
/* Stores at base + offset. Text is known to fit: value_parse() checked it. */
void value_put(const struct key *k, const struct parsed *v, void *base);
/* Parses and stores what was checked before; -ENOMEM only. */
int value_store(const struct key *k, const char *text, struct arena *a, void *base);
/* Stores the defaults of all keys of a place. */
int defaults_store(enum place place, struct arena *a, void *base);
/* Splits at white space; "double quotes" group words. NULL-terminated array in the arena, NULL: no memory. */
const char *const *words_split(struct arena *a, const char *text);

/* ---- reader.c ---- */

/* Reads the file and its conf.d into sections. `must_exist`: 0 no, 1 yes, 2 unless conf.d has a file. */
int cfg_read(struct cfg *c, const char *main_file, int must_exist, struct err *e);

/* ---- build.c: sections into typed structs ---- */
int cfg_build(struct cfg *c, struct err *e);

/* ---- rules.c: what only the whole tells ---- */
void cfg_cross_check(struct cfg *c);
/* Keys that are set and were removed. */
void cfg_check_removed(struct cfg *c);
/* Repositories only: as needed by `-r NAME`. */
void cfg_check_repositories(struct cfg *c);

/* ---- sections.c ---- */
const struct value *section_value(const struct section *s, const char *key);
const struct section *section_find(const struct cfg *c, enum kind kind, const char *name);
/* "file:line" */
void origin_text(const struct cfg *c, unsigned file, unsigned line, char *out, size_t cap);
/* [storage-class "gold"] */
void section_title(const struct section *s, char *out, size_t cap);

/* ---- complaints.c ---- */
void complain(struct cfg *c, enum cfg_severity s, unsigned file, unsigned line, bool elsewhere, const char *hint,
              const char *fmt, ...) __attribute__((format(printf, 7, 8)));
/* At a value of a section, or at the section where the value is NULL. */
void complain_value(struct cfg *c, enum cfg_severity s, const struct section *sec, const struct value *v,
                    const char *hint, const char *fmt, ...) __attribute__((format(printf, 6, 7)));
/* ---- lookup.c ---- */
/* Indexes of what was built; by them lists are asked. */
int lookup_index(struct cfg *c);

/* Whether any of the patterns (NULL: none) matches a name. */
bool pattern_match(const char *const *patterns, const char *name);
/* ... a volume's name or one of its labels. */
bool subject_match(const char *const *patterns, struct cfg_subject v);
bool is_pattern(const char *text);
/* [volume "..."] of that volume, NULL. */
const struct volume_section *volume_section(const struct cfg *c, const char *volume);

#endif
