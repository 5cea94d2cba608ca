/* SPDX-License-Identifier: GPL-2.0-or-later */
/* options.c - the table of verbs and options: parsing and --help come from the same lines */
#include "daemon/cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <string.h>
#include <strings.h>

struct verb_info {
    enum verb verb;
    const char *words[2];
    const char *args; /* for the usage line */
    int min_args, max_args;
    const char *summary;
};

static const struct verb_info verbs[] = {
    {VERB_REPO_CREATE, {"repo", "create"}, "", 0, 0, "create a repository in an empty or new directory"},
    {VERB_REPO_STATUS, {"repo", "status"}, "", 0, 0, "show format, algorithms, sizes and state of a repository"},
    {VERB_REPO_CHANGE_PASSWORD, {"repo", "change-password"}, "", 0, 0, "seal the repository with a new password"},
    {VERB_BACKUP, {"backup", NULL}, "SOURCE", 1, 1, "back a block device or image file up as a new snapshot"},
    {VERB_SNAPSHOT_LIST, {"snapshot", "list"}, "", 0, 0, "list the snapshots"},
    {VERB_SNAPSHOT_SHOW, {"snapshot", "show"}, "SNAPSHOT", 1, 1, "show one snapshot in full"},
    {VERB_LS, {"ls", NULL}, "SNAPSHOT[/PATH]", 1, 1, "list a directory of a snapshot"},
    {VERB_CAT, {"cat", NULL}, "SNAPSHOT/PATH", 1, 1, "write a file of a snapshot to standard output"},
    {VERB_RESTORE,
     {"restore", NULL},
     "SNAPSHOT[/PATH] TARGET",
     2,
     2,
     "restore the volume (or another file) to a block device or file"},
    {VERB_VERIFY, {"verify", NULL}, "[SNAPSHOT...]", 0, 10000, "check index, packs and contents for damage"},
};

#define V(v) (1u << VERB_##v)
#define ALL_VERBS (~0u)
#define MOVES (V(BACKUP) | V(RESTORE) | V(VERIFY))
#define FINDS (V(SNAPSHOT_LIST) | V(SNAPSHOT_SHOW) | V(LS) | V(CAT) | V(RESTORE) | V(VERIFY))
#define OPENS (FINDS | V(BACKUP) | V(REPO_STATUS))

enum option_id {
    OPT_REPO = 'r',
    OPT_HELP = 'h',
    OPT_PASSWORD_FILE = 256,
    OPT_CONFIG,
    OPT_CACHE_DIR,
    OPT_CACHE_SIZE,
    OPT_INDEX_MEMORY,
    OPT_JSON,
    OPT_PROGRESS,
    OPT_QUIET,
    OPT_DEBUG,
    OPT_VERSION,
    OPT_FORMAT_VERSION,
    OPT_BLOCK_HASH,
    OPT_ENCRYPTION,
    OPT_SPLITTER,
    OPT_ECC_PERCENT,
    OPT_PACK_SIZE,
    OPT_KEY_DERIVATION,
    OPT_OWNER,
    OPT_NEW_PASSWORD_FILE,
    OPT_AS,
    OPT_COMPRESSION,
    OPT_DESCRIPTION,
    OPT_TAG,
    OPT_MEMORY,
    OPT_WORKERS,
    OPT_QUEUE_DEPTH,
    OPT_CHECKPOINT_INTERVAL,
    OPT_BAD_READS,
    OPT_NO_IO_URING,
    OPT_NO_DIRECT,
    OPT_NO_PARENT,
    OPT_FULL_SCAN,
    OPT_ALL,
    OPT_DIFFERENTIAL,
    OPT_VERIFY,
    OPT_OFFSET,
    OPT_LENGTH,
    OPT_FORCE,
    OPT_RESUME,
    OPT_READ_PERCENT,
};

struct option_info {
    enum option_id id;
    const char *name;
    const char *arg; /* NULL: none */
    unsigned verbs;
    const char *help;
};

static const struct option_info table[] = {
    {OPT_REPO, "repo", "REPO", ALL_VERBS, "repository: a directory, file:// URL or [repository] section"},
    {OPT_PASSWORD_FILE, "password-file", "FILE", ALL_VERBS, "file with the password (cred:NAME: a systemd credential)"},
    {OPT_CONFIG, "config", "FILE", ALL_VERBS, "configuration (default /etc/snapferry/snapferry.ini)"},
    {OPT_CACHE_DIR, "cache-dir", "DIR", ALL_VERBS, "where decrypted indexes are cached"},
    {OPT_CACHE_SIZE, "cache-size", "SIZE", OPENS, "limit of the index cache on disk (default 5GiB)"},
    {OPT_INDEX_MEMORY, "index-memory", "SIZE", OPENS, "limit of mapped index pages in memory (default 64MiB)"},
    {OPT_JSON, "json", NULL, ALL_VERBS, "print JSON objects, the result last on a line of its own"},
    {OPT_PROGRESS, "progress", "[=WHEN]", MOVES, "auto (default: live on a terminal, else lines), yes or no"},
    {OPT_QUIET, "quiet", NULL, ALL_VERBS, "print nothing but results and errors"},
    {OPT_DEBUG, "debug", NULL, ALL_VERBS, "tell on standard error what is going on inside"},
    {OPT_FORMAT_VERSION, "format-version", "N", V(REPO_CREATE), "1, 2 or 3 (default 3)"},
    {OPT_BLOCK_HASH, "block-hash", "NAME", V(REPO_CREATE), "content hash (default BLAKE2B-256-128)"},
    {OPT_ENCRYPTION, "encryption", "NAME", V(REPO_CREATE), "cipher (default AES256-GCM-HMAC-SHA256)"},
    {OPT_SPLITTER, "splitter", "NAME", V(REPO_CREATE) | V(BACKUP),
     "splitter (default DYNAMIC-4M-BUZHASH; backup: the repository's)"},
    {OPT_ECC_PERCENT, "ecc-percent", "N", V(REPO_CREATE), "error correction overhead, 1 to 100 (default none)"},
    {OPT_PACK_SIZE, "pack-size", "SIZE", V(REPO_CREATE), "pack size, 10MiB to 120MiB (default 20MiB)"},
    {OPT_KEY_DERIVATION, "key-derivation", "NAME", V(REPO_CREATE),
     "scrypt-65536-8-1 (default) or pbkdf2-sha256-600000"},
    {OPT_OWNER, "owner", "USER@HOST", V(REPO_CREATE), "maintenance owner (default snapferry-maintenance@NODE)"},
    {OPT_NEW_PASSWORD_FILE, "new-password-file", "FILE", V(REPO_CHANGE_PASSWORD), "file with the new password"},
    {OPT_AS, "as", "USER@HOST:/PATH", V(BACKUP) | FINDS, "name of the source in the repository"},
    {OPT_COMPRESSION, "compression", "NAME", V(BACKUP), "compressor, for example zstd-fastest (default none)"},
    {OPT_DESCRIPTION, "description", "TEXT", V(BACKUP), "description of the snapshot"},
    {OPT_TAG, "tag", "KEY:VALUE", V(BACKUP), "tag of the snapshot; may be repeated"},
    {OPT_MEMORY, "memory", "SIZE", MOVES, "memory budget (default 256MiB, at least 96MiB)"},
    {OPT_WORKERS, "workers", "N", MOVES, "worker threads (default: one per CPU)"},
    {OPT_QUEUE_DEPTH, "queue-depth", "N", V(BACKUP), "reads in flight (default: by kind of device)"},
    {OPT_CHECKPOINT_INTERVAL, "checkpoint-interval", "SECONDS", V(BACKUP),
     "seconds between checkpoints (default 1800, at most 2700)"},
    {OPT_BAD_READS, "bad-reads", "POLICY", V(BACKUP), "fail (default), or map: zeros, recorded, exit code 3"},
    {OPT_NO_IO_URING, "no-io-uring", NULL, V(BACKUP) | V(RESTORE), "use ordinary reads and writes"},
    {OPT_NO_DIRECT, "no-direct", NULL, V(BACKUP), "read through the page cache"},
    {OPT_NO_PARENT, "no-parent", NULL, V(BACKUP), "do not use an earlier snapshot's chunk boundaries"},
    {OPT_FULL_SCAN, "full-scan", NULL, V(BACKUP), "find every chunk boundary by scanning"},
    {OPT_ALL, "all", NULL, V(SNAPSHOT_LIST), "incomplete snapshots (checkpoints) too"},
    {OPT_DIFFERENTIAL, "differential", NULL, V(RESTORE), "write only what differs from the target"},
    {OPT_VERIFY, "verify", NULL, V(RESTORE), "read the target back and compare"},
    {OPT_OFFSET, "offset", "N", V(RESTORE), "first byte to restore (same place in the target)"},
    {OPT_LENGTH, "length", "N", V(RESTORE), "number of bytes to restore"},
    {OPT_FORCE, "force", NULL, V(RESTORE), "allow a target that is in use or not empty"},
    {OPT_RESUME, "resume", NULL, V(RESTORE), "take a non-empty file for an interrupted restore"},
    {OPT_READ_PERCENT, "read-percent", "N", V(VERIFY), "share of contents to read and hash (default 100)"},
    {OPT_HELP, "help", NULL, ALL_VERBS, "this text; behind a verb, the verb's"},
    {OPT_VERSION, "version", NULL, ALL_VERBS, "print the version"},
};
#define N_OPTIONS (sizeof table / sizeof *table)
#define N_VERBS (sizeof verbs / sizeof *verbs)

static int wants_argument(const struct option_info *i)
{
    return !i->arg ? no_argument : i->arg[0] == '[' ? optional_argument : required_argument;
}

static const struct verb_info *verb_info(enum verb v)
{
    for (size_t i = 0; i < N_VERBS; i++)
        if (verbs[i].verb == v)
            return &verbs[i];
    return NULL;
}

const char *verb_name(enum verb v)
{
    static char buf[64];
    const struct verb_info *i = verb_info(v);
    if (!i)
        return "";
    snprintf(buf, sizeof buf, "%s%s%s", i->words[0], i->words[1] ? " " : "", i->words[1] ? i->words[1] : "");
    return buf;
}

void options_help(FILE *f, enum verb v)
{
    const struct verb_info *vi = verb_info(v);
    if (vi) {
        fprintf(f, "usage: snapferry -r REPO --password-file FILE %s%s%s [OPTION...]\n\n%c%s.\n\noptions:\n",
                verb_name(v), *vi->args ? " " : "", vi->args, toupper((unsigned char)vi->summary[0]), vi->summary + 1);
    } else {
        fputs("usage: snapferry -r REPO --password-file FILE VERB [ARGUMENT...] [OPTION...]\n\n"
              "Backs block volumes up into a Kopia repository and brings them back.\n\nverbs:\n",
              f);
        for (size_t i = 0; i < N_VERBS; i++) {
            char left[80];
            snprintf(left, sizeof left, "%s%s%s", verb_name(verbs[i].verb), *verbs[i].args ? " " : "", verbs[i].args);
            fprintf(f, "  %-32s %s\n", left, verbs[i].summary);
        }
        fputs("\noptions (of which each verb takes those that `snapferry VERB --help` lists):\n", f);
    }
    for (size_t i = 0; i < N_OPTIONS; i++) {
        if (vi && !(table[i].verbs & 1u << v))
            continue;
        char left[64];
        snprintf(left, sizeof left, "%s--%s%s%s",
                 table[i].id == OPT_REPO   ? "-r, "
                 : table[i].id == OPT_HELP ? "-h, "
                                           : "",
                 table[i].name, wants_argument(&table[i]) == required_argument ? " " : "",
                 table[i].arg ? table[i].arg : "");
        fprintf(f, "  %-30s %s\n", left, table[i].help);
    }
    if (!vi)
        fputs("\nEverything else is in snapferry(8).\n", f);
}

static int bad_value(const char *name, const char *value, const char *want, struct err *e)
{
    return err_set(e, ERR_USAGE, EINVAL, "--%s wants %s, not \"%s\"", name, want, value);
}

static int want_size(uint64_t *ret, const char *name, const char *value, struct err *e)
{
    if (size_parse(ret, value) < 0)
        return bad_value(name, value, "a size such as 4096, 256MiB or 2G", e);
    return 0;
}

static int want_number(unsigned *ret, const char *name, const char *value, unsigned lo, unsigned hi, struct err *e)
{
    char *end;
    errno = 0;
    unsigned long n = strtoul(value, &end, 10);
    if (!isdigit((unsigned char)value[0]) || *end || errno || n < lo || n > hi) {
        char want[64];
        snprintf(want, sizeof want, "a number from %u to %u", lo, hi);
        return bad_value(name, value, want, e);
    }
    *ret = (unsigned)n;
    return 0;
}

static int add_tag(struct options *o, const char *value, struct err *e)
{
    const char *colon = strchr(value, ':');
    if (!colon || colon == value)
        return bad_value("tag", value, "KEY:VALUE", e);
    char key[256];
    if ((size_t)(colon - value) >= sizeof key)
        return bad_value("tag", value, "a key of at most 255 bytes", e);
    memcpy(key, value, (size_t)(colon - value));
    key[colon - value] = '\0';
    if (!o->tags && !(o->tags = json_object()))
        return err_nomem(e);
    if (json_object_get(o->tags, key))
        return err_set(e, ERR_USAGE, EINVAL, "--tag %s is given twice", key);
    if (json_object_set_new(o->tags, key, json_string(colon + 1)) < 0)
        return bad_value("tag", value, "UTF-8 text", e);
    return 0;
}

static int set_option(struct options *o, enum option_id id, const char *name, const char *v, struct err *e)
{
    switch (id) {
    case OPT_REPO:
        o->repo = v;
        return 0;
    case OPT_PASSWORD_FILE:
        o->password_file = v;
        return 0;
    case OPT_CONFIG:
        o->config = v;
        return 0;
    case OPT_CACHE_DIR:
        o->cache_dir = v;
        return 0;
    case OPT_CACHE_SIZE:
        return want_size(&o->cache_size, name, v, e);
    case OPT_INDEX_MEMORY:
        return want_size(&o->index_memory, name, v, e);
    case OPT_JSON:
        o->json = true;
        return 0;
    case OPT_PROGRESS:
        if (v && !strcmp(v, "auto"))
            o->progress = PROGRESS_AUTO;
        else if (!v || !strcmp(v, "yes"))
            o->progress = PROGRESS_ON;
        else if (!strcmp(v, "no"))
            o->progress = PROGRESS_OFF;
        else
            return bad_value(name, v, "auto, yes or no", e);
        return 0;
    case OPT_QUIET:
        o->quiet = true;
        return 0;
    case OPT_DEBUG:
        o->debug = true;
        return 0;
    case OPT_HELP:
        o->help = true;
        return 0;
    case OPT_VERSION:
        o->version = true;
        return 0;
    case OPT_FORMAT_VERSION:
        return want_number(&o->format_version, name, v, 1, 3, e);
    case OPT_BLOCK_HASH:
        o->block_hash = v;
        return 0;
    case OPT_ENCRYPTION:
        o->encryption = v;
        return 0;
    case OPT_SPLITTER:
        o->splitter = v;
        return 0;
    case OPT_ECC_PERCENT:
        return want_number(&o->ecc_percent, name, v, 0, 100, e);
    case OPT_PACK_SIZE:
        return want_size(&o->pack_size, name, v, e);
    case OPT_KEY_DERIVATION:
        o->key_algo = v;
        return 0;
    case OPT_OWNER:
        if (!strchr(v, '@') || v[0] == '@' || !strchr(v, '@')[1])
            return bad_value(name, v, "USER@HOST", e);
        o->owner = v;
        return 0;
    case OPT_NEW_PASSWORD_FILE:
        o->new_password_file = v;
        return 0;
    case OPT_AS:
        o->as = v;
        return 0;
    case OPT_COMPRESSION:
        o->compression = v;
        return 0;
    case OPT_DESCRIPTION:
        if (strlen(v) > 1000)
            return bad_value(name, v, "at most 1000 bytes", e);
        o->description = v;
        return 0;
    case OPT_TAG:
        return add_tag(o, v, e);
    case OPT_MEMORY:
        if (want_size(&o->memory, name, v, e) < 0)
            return -EINVAL;
        if (o->memory < MEMORY_MIN)
            return bad_value(name, v, "at least 96MiB", e);
        return 0;
    case OPT_WORKERS:
        return want_number(&o->workers, name, v, 1, 256, e);
    case OPT_QUEUE_DEPTH:
        return want_number(&o->depth, name, v, 1, 256, e);
    case OPT_CHECKPOINT_INTERVAL:
        return want_number(&o->checkpoint_s, name, v, 1, 2700, e);
    case OPT_BAD_READS:
        if (!strcmp(v, "map"))
            o->map_bad = true;
        else if (strcmp(v, "fail") != 0)
            return bad_value(name, v, "fail or map", e);
        return 0;
    case OPT_NO_IO_URING:
        o->no_uring = true;
        return 0;
    case OPT_NO_DIRECT:
        o->no_direct = true;
        return 0;
    case OPT_NO_PARENT:
        o->no_parent = true;
        return 0;
    case OPT_FULL_SCAN:
        o->full_scan = true;
        return 0;
    case OPT_ALL:
        o->all = true;
        return 0;
    case OPT_DIFFERENTIAL:
        o->differential = true;
        return 0;
    case OPT_VERIFY:
        o->verify = true;
        return 0;
    case OPT_OFFSET:
        o->ranged = true;
        return want_size(&o->offset, name, v, e);
    case OPT_LENGTH:
        o->ranged = true;
        if (want_size(&o->length, name, v, e) < 0)
            return -EINVAL;
        if (!o->length)
            return bad_value(name, v, "at least one byte", e);
        return 0;
    case OPT_FORCE:
        o->force = true;
        return 0;
    case OPT_RESUME:
        o->resume = true;
        return 0;
    case OPT_READ_PERCENT: {
        char *end;
        o->read_percent = strtod(v, &end);
        if (end == v || *end || !(o->read_percent >= 0 && o->read_percent <= 100))
            return bad_value(name, v, "a number from 0 to 100", e);
        return 0;
    }
    }
    return 0;
}

static const struct option_info *option_info(int id)
{
    for (size_t i = 0; i < N_OPTIONS; i++)
        if ((int)table[i].id == id)
            return &table[i];
    return NULL;
}

/* The verb that the words begin with; *used tells how many of them. */
static const struct verb_info *find_verb(char **words, int n, int *used)
{
    for (size_t i = 0; i < N_VERBS; i++) {
        const struct verb_info *v = &verbs[i];
        int want = v->words[1] ? 2 : 1;
        if (n >= want && !strcmp(words[0], v->words[0]) && (want == 1 || !strcmp(words[1], v->words[1]))) {
            *used = want;
            return v;
        }
    }
    return NULL;
}

/* For "did you mean": edit distance, small words only. */
static unsigned distance(const char *a, const char *b)
{
    unsigned row[64];
    size_t nb = strlen(b);
    if (strlen(a) >= 64 || nb >= 63)
        return 99;
    for (size_t j = 0; j <= nb; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; a[i - 1]; i++) {
        unsigned diag = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= nb; j++) {
            unsigned keep = row[j], best = diag + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
            diag = keep;
        }
    }
    return row[nb];
}

static int unknown_option(const char *arg, struct err *e)
{
    const char *name = arg;
    while (*name == '-')
        name++;
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(name, "="), name);
    const char *best = NULL;
    unsigned least = 4;
    for (size_t i = 0; i < N_OPTIONS; i++) {
        unsigned d = distance(word, table[i].name);
        if (d < least) {
            least = d;
            best = table[i].name;
        }
    }
    err_set(e, ERR_USAGE, EINVAL, "unknown option %s", text_name(arg));
    if (best)
        err_hint(e, "did you mean --%s?", best);
    return -EINVAL;
}

int options_parse(struct options *o, int argc, char **argv, struct err *e)
{
    *o = (struct options){.read_percent = 100};
    struct option longs[N_OPTIONS + 1];
    for (size_t i = 0; i < N_OPTIONS; i++)
        longs[i] = (struct option){table[i].name, wants_argument(&table[i]), NULL, (int)table[i].id};
    longs[N_OPTIONS] = (struct option){0};
    unsigned char seen[N_OPTIONS] = {0};
    opterr = 0;
    optind = 0;
    for (;;) {
        int at = optind ? optind : 1;
        int c = getopt_long(argc, argv, ":r:h", longs, NULL);
        if (c < 0)
            break;
        if (c == ':') {
            err_set(e, ERR_USAGE, EINVAL, "option %s wants an argument", argv[at]);
            return -EINVAL;
        }
        if (c == '?')
            return unknown_option(argv[optind - 1], e);
        const struct option_info *i = option_info(c);
        if (!i)
            return unknown_option(argv[at], e);
        seen[i - table] = 1;
        if (set_option(o, i->id, i->name, optarg, e) < 0)
            return -EINVAL;
    }
    char **words = argv + optind;
    int n = argc - optind;
    if (o->version)
        return 0;
    int used = 0;
    const struct verb_info *v = n ? find_verb(words, n, &used) : NULL;
    if (v)
        o->verb = v->verb;
    if (o->help)
        return 0;
    if (!n) {
        err_set(e, ERR_USAGE, EINVAL, "no verb is given");
        return err_hint(e, "snapferry --help lists the verbs");
    }
    if (!v) {
        err_set(e, ERR_USAGE, EINVAL, "unknown verb \"%s%s%s\"", text_name(words[0]), n > 1 ? " " : "",
                n > 1 ? text_name(words[1]) : "");
        return err_hint(e, "snapferry --help lists the verbs");
    }
    o->args = words + used;
    o->n_args = n - used;
    if (o->n_args < v->min_args || o->n_args > v->max_args) {
        err_set(e, ERR_USAGE, EINVAL, "%s takes %s, but %d argument%s given", verb_name(v->verb),
                *v->args ? v->args : "no argument", o->n_args, o->n_args == 1 ? " is" : "s are");
        return err_hint(e, "snapferry %s --help tells more", verb_name(v->verb));
    }
    for (size_t i = 0; i < N_OPTIONS; i++) {
        if (seen[i] && !(table[i].verbs & 1u << v->verb)) {
            err_set(e, ERR_USAGE, EINVAL, "%s does not take --%s", verb_name(v->verb), table[i].name);
            return err_hint(e, "snapferry %s --help lists its options", verb_name(v->verb));
        }
    }
    if (!o->repo) {
        err_set(e, ERR_USAGE, EINVAL, "no repository is given");
        return err_hint(e, "say -r REPO: a directory, a file:// URL or the name of a [repository] section");
    }
    return 0;
}

void options_free(struct options *o)
{
    json_decref(o->tags);
    o->tags = NULL;
}
