/* SPDX-License-Identifier: GPL-2.0-or-later */
/* options.c - the command line, parsed by the table and checked for form */
#include "base/nearest.h"
#include "base/time.h"
#include "base/units.h"
#include "daemon/cli/options-table.h"
#include "daemon/records/names.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <string.h>
#include <strings.h>

static int bad_value(const char *name, const char *value, const char *want, struct err *e)
{
    return err_set(e, ERR_USAGE, EINVAL, "--%s requires %s, not \"%s\"", name, want, value);
}

static int want_size(uint64_t *ret, const char *name, const char *value, struct err *e)
{
    if (parse_bytes(ret, value) < 0)
        return bad_value(name, value, "a size such as 4096, 256MiB or 2G", e);
    return 0;
}

static int want_rate(uint64_t *ret, const char *name, const char *value, struct err *e)
{
    if (parse_bytes(ret, value) < 0 || *ret < THROTTLE_MIN)
        return bad_value(name, value, "bytes per second, at least 256KiB, such as 200MiB", e);
    return 0;
}

static int want_percent(double *ret, const char *name, const char *v, struct err *e)
{
    char *end;
    *ret = strtod(v, &end);
    if (end == v || *end || !(*ret >= 0 && *ret <= 100))
        return bad_value(name, v, "a number from 0 to 100", e);
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

static int want_past(int64_t *ret, const char *name, const char *value, struct err *e)
{
    const int64_t now = now_ns();
    int64_t ago;
    if (parse_duration(&ago, value) == 0 && ago > 0 && ago <= now / NS_PER_S)
        *ret = now - ago * NS_PER_S;
    else if (time_read(ret, value) < 0 || *ret <= 0)
        return bad_value(name, value,
                         "a time such as 2026-11-20T02:00:00Z or \"2026-11-20 02:00\" (local), or how long ago, as 3d",
                         e);
    return *ret <= now ? 0 : bad_value(name, value, "a time that has passed", e);
}

/* "KEY:VALUE" or "OLD=NEW" into an object of strings. */
static int add_pair(json_t **to, const char *name, const char *value, char sep, const char *form, struct err *e)
{
    const char *at = strchr(value, sep);
    if (!at || at == value)
        return bad_value(name, value, form, e);
    char key[256];
    if ((size_t)(at - value) >= sizeof key)
        return bad_value(name, value, "a key of at most 255 bytes", e);
    memcpy(key, value, (size_t)(at - value));
    key[at - value] = '\0';
    if (!*to && !(*to = json_object()))
        return err_nomem(e);
    if (json_object_get(*to, key))
        return err_set(e, ERR_USAGE, EINVAL, "--%s %s is given twice", name, key);
    if (json_object_set_new(*to, key, json_string(at + 1)) < 0)
        return bad_value(name, value, "UTF-8 text", e);
    return 0;
}

/* Options of bench. */
static int set_bench_option(struct options *o, enum option_id id, const char *name, const char *v, struct err *e)
{
    char *end;
    switch (id) {
    case OPT_DEVICE:
        o->device = v;
        return 0;
    case OPT_PIPELINE:
        o->pipeline = true;
        return 0;
    case OPT_DIR:
        o->dir = v;
        return 0;
    case OPT_QUICK:
        o->quick = true;
        return 0;
    case OPT_SECONDS:
        o->seconds = strtod(v, &end);
        if (end == v || *end || !(o->seconds >= 0.01 && o->seconds <= 60))
            return bad_value(name, v, "a number from 0.01 to 60", e);
        return 0;
    case OPT_SIZE:
        return want_size(&o->size, name, v, e);
    default:
        return err_set(e, ERR_USAGE, EINVAL, "option --%s is not handled", name);
    }
}

/* Options of verbs that send requests to the daemon. */
static int set_daemon_option(struct options *o, enum option_id id, const char *name, const char *v, struct err *e)
{
    switch (id) {
    case OPT_RUNTIME_DIR:
        o->runtime_dir = v;
        return 0;
    case OPT_STATE_DIR:
        o->state_dir = v;
        return 0;
    case OPT_CONFIG_DIR:
        o->config_dir = v;
        o->config_dir_given = true;
        return 0;
    case OPT_JOB:
        o->job = v;
        return 0;
    case OPT_WAIT:
        o->wait = true;
        return 0;
    case OPT_FULL:
        o->full = true;
        return 0;
    case OPT_MOVE_DATA:
        o->move_data = !strcmp(v, "yes");
        return o->move_data || !strcmp(v, "no") ? 0 : bad_value(name, v, "yes or no", e);
    case OPT_FROM_TIMER:
        o->from_timer = true;
        return 0;
    case OPT_NODE:
        o->node = v;
        return 0;
    case OPT_REMOVE_PROVISIONAL:
        o->remove_provisional = true;
        return 0;
    case OPT_REPLACED:
        o->replaced = true;
        return 0;
    case OPT_FROM:
        o->from = v;
        if (strcmp(v, "auto") != 0 && strcmp(v, "native") != 0 && strcmp(v, "repository") != 0)
            return bad_value(name, v, "auto, native or repository", e);
        return 0;
    case OPT_OVERWRITE:
        o->overwrite = true;
        return 0;
    case OPT_WITHOUT_PASSWORD:
        o->without_password = true;
        return 0;
    case OPT_RESTORE_FORMAT:
        o->restore_format = true;
        return 0;
    case OPT_DELETE_MOST:
        o->delete_most = true;
        return 0;
    case OPT_NEW:
        o->new_target = true;
        return 0;
    case OPT_ALLOW_INCOMPLETE:
        o->allow_incomplete = true;
        return 0;
    case OPT_CLASS_MAP:
        return add_pair(&o->class_map, name, v, '=', "OLD=NEW", e);
    case OPT_VOLUME:
        o->volume = v;
        return 0;
    case OPT_BACKUP:
        o->backup = v;
        return 0;
    case OPT_STATE:
        o->state = v;
        return 0;
    case OPT_CLASS:
        o->class_name = v;
        return 0;
    case OPT_LIMIT:
        return want_number(&o->limit, name, v, 1, 1000000, e);
    case OPT_FOLLOW:
        o->follow = true;
        return 0;
    case OPT_LINES:
        return want_number(&o->lines, name, v, 1, 1000000, e);
    case OPT_NOTE:
        if (strlen(v) > 1000)
            return bad_value(name, v, "at most 1000 bytes", e);
        o->note = v;
        return 0;
    case OPT_EXPLAIN:
        o->explain = true;
        return 0;
    case OPT_DRY_RUN:
        o->dry_run = true;
        return 0;
    case OPT_GONE:
        o->gone = true;
        return 0;
    case OPT_SAFETY:
        o->unsafe = !strcmp(v, "none");
        return o->unsafe || !strcmp(v, "full") ? 0 : bad_value(name, v, "full or none", e);
    case OPT_PACKS:
        o->packs_missing = !strcmp(v, "missing");
        return o->packs_missing || !strcmp(v, "all") ? 0 : bad_value(name, v, "all or missing", e);
    case OPT_VOLUMES:
        o->volumes = true;
        return 0;
    case OPT_TAKE_OWNERSHIP:
        o->take_ownership = true;
        return 0;
    case OPT_WIDE:
        o->wide = true;
        return 0;
    case OPT_CHECK:
        o->check = true;
        return 0;
    case OPT_KIND:
        o->kind = v;
        if (strcmp(v, "driver") != 0 && strcmp(v, "mover") != 0)
            return bad_value(name, v, "driver or mover", e);
        return 0;
    default:
        return set_bench_option(o, id, name, v, e);
    }
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
    case OPT_VERBOSE:
        o->verbose = true;
        return 0;
    case OPT_YES:
        o->yes = true;
        return 0;
    case OPT_VERSION:
        o->version = true;
        return 0;
    case OPT_COMPLETION:
        o->completion = true;
        return 0;
    case OPT_COMPLETE:
        o->complete = v;
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
    case OPT_MAKE_PASSWORD:
        o->make_password = true;
        return 0;
    case OPT_AT:
        return want_past(&o->at_ns, name, v, e);
    case OPT_INSECURE:
        o->insecure = true;
        return 0;
    case OPT_NEW_PASSWORD_FILE:
        o->new_password_file = v;
        return 0;
    case OPT_AS:
        o->as = v;
        return 0;
    case OPT_NODE_NAME:
        if (!*v || strlen(v) > 255)
            return bad_value(name, v, "a name of 1 to 255 bytes", e);
        o->node_name = v;
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
        return add_pair(&o->tags, name, v, ':', "KEY:VALUE", e);
    case OPT_MEMORY:
        if (want_size(&o->memory, name, v, e) < 0)
            return -EINVAL;
        if (o->memory < MEMORY_MIN)
            return bad_value(name, v, "at least 96MiB", e);
        return 0;
    case OPT_READ_LIMIT:
        return want_rate(&o->read_limit, name, v, e);
    case OPT_WRITE_LIMIT:
        return want_rate(&o->write_limit, name, v, e);
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
    case OPT_CHANGED_RANGES:
        o->changed_ranges = v;
        return 0;
    case OPT_PARENT:
        if (!strcmp(v, "latest"))
            return bad_value(name, v, "the id of the snapshot since which the ranges changed", e);
        o->parent = v;
        return 0;
    case OPT_VERIFY_SAMPLE:
        return want_percent(&o->verify_sample, name, v, e);
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
    case OPT_EVEN_KEPT:
        o->even_kept = true;
        return 0;
    case OPT_FORCE:
        o->force = true;
        return 0;
    case OPT_RESUME:
        o->resume = true;
        return 0;
    case OPT_READ_PERCENT:
        return want_percent(&o->read_percent, name, v, e);
    case OPT_ANEW:
        o->anew = true;
        return 0;
    default:
        return set_daemon_option(o, id, name, v, e);
    }
}

static int wants_argument(const struct option_info *i)
{
    return !i->arg ? no_argument : i->arg[0] == '[' ? optional_argument : required_argument;
}

static const struct option_info *option_info(int id)
{
    for (size_t i = 0; i < option_table_len; i++)
        if ((int)option_table[i].id == id)
            return &option_table[i];
    return NULL;
}

/* The verb at the beginning of the words, in the form selected by -r if it exists; *used: number of words. */
static const struct verb_info *find_verb(char **words, int n, bool repo, int *used)
{
    const struct verb_info *found = NULL;
    for (size_t i = 0; i < verb_table_len; i++) {
        const struct verb_info *v = &verb_table[i];
        int want = v->words[1] ? 2 : 1;
        if (n < want || strcmp(words[0], v->words[0]) != 0 || (want == 2 && strcmp(words[1], v->words[1]) != 0))
            continue;
        if (!found || repo == (v->form == FORM_REPO))
            found = v;
        *used = want;
    }
    return found;
}

/* First word of verbs that have two. */
static bool is_group(const char *word)
{
    for (size_t i = 0; i < verb_table_len; i++)
        if (verb_table[i].words[1] && !strcmp(word, verb_table[i].words[0]))
            return true;
    return false;
}

/* ---- did you mean ---- */

static const char *option_name(unsigned i, void *arg)
{
    (void)arg;
    return i >= option_table_len ? NULL : option_table[i].verbs ? option_table[i].name : "";
}

static int unknown_option(const char *arg, struct err *e)
{
    const char *name = arg;
    while (*name == '-')
        name++;
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(name, "="), name);
    const char *near = nearest_meant(word, option_name, NULL);
    err_set(e, ERR_USAGE, EINVAL, "unknown option %s", text_name(arg));
    if (near)
        err_hint(e, "did you mean --%s?", near);
    return -EINVAL;
}

/* Verbs of *arg words; "" for the others. */
static const char *verb_of_words(unsigned i, void *arg)
{
    static char texts[VERB_COUNT][64];
    const int *words = arg;
    if (i >= verb_table_len)
        return NULL;
    const struct verb_info *v = &verb_table[i];
    if (!v->words[1] == (*words == 2))
        return "";
    snprintf(texts[v->verb], sizeof texts[0], "%s%s%s", v->words[0], v->words[1] ? " " : "",
             v->words[1] ? v->words[1] : "");
    return texts[v->verb];
}

static int unknown_verb(char **words, int n, bool repo, struct err *e)
{
    char known[256] = "", two[256];
    size_t len = 0;
    for (size_t i = 0; i < verb_table_len; i++)
        if (verb_table[i].words[1] && !strcmp(words[0], verb_table[i].words[0]) && len < sizeof known &&
            !strstr(known, verb_table[i].words[1]))
            len += (size_t)snprintf(known + len, sizeof known - len, "%s%s", len ? ", " : "", verb_table[i].words[1]);
    if (len && n == 1) {
        err_set(e, ERR_USAGE, EINVAL, "%s requires a second word: %s", words[0], known);
        return err_hint(e, "snapferry --help lists the verbs");
    }
    snprintf(two, sizeof two, "%.120s %.120s", words[0], n > 1 ? words[1] : "");
    const char *near = other_word(n > 1 ? two : words[0], repo);
    if (!near && n > 1)
        near = nearest_meant(two, verb_of_words, &(int){2});
    if (!near && !len)
        near = nearest_meant(words[0], verb_of_words, &(int){1});
    if (!near && n > 1 && !len) /* its arguments behind it */
        near = other_word(words[0], repo);
    err_set(e, ERR_USAGE, EINVAL, "unknown verb \"%s%s%s\"", text_name(words[0]), n > 1 ? " " : "",
            n > 1 ? text_name(words[1]) : "");
    if (near)
        return err_hint(e, "did you mean %s? snapferry --help lists the verbs", near);
    if (!strcmp(words[0], "mount"))
        return err_hint(e, "stock Kopia mounts the repository of snapferry: kopia mount");
    return len ? err_hint(e, "%s requires a second word: %s", words[0], known)
               : err_hint(e, "snapferry --help lists the verbs");
}

static int parse_options(struct options *o, int argc, char **argv, unsigned char seen[OPTIONS_MAX], struct err *e)
{
    struct option longs[OPTIONS_MAX] = {{0}};
    for (size_t i = 0; i < option_table_len; i++)
        longs[i] =
            (struct option){option_table[i].name, wants_argument(&option_table[i]), NULL, (int)option_table[i].id};
    opterr = 0;
    optind = 0;
    for (;;) {
        int at = optind ? optind : 1;
        int c = getopt_long(argc, argv, ":r:hvy", longs, NULL);
        if (c < 0)
            return 0;
        if (c == ':') {
            err_set(e, ERR_USAGE, EINVAL, "option %s requires an argument", argv[at]);
            return -EINVAL;
        }
        if (c == '?')
            return unknown_option(argv[optind - 1], e);
        const struct option_info *i = option_info(c);
        if (!i)
            return unknown_option(argv[at], e);
        seen[i - option_table] = 1;
        if (set_option(o, i->id, i->name, optarg, e) < 0)
            return -EINVAL;
    }
}

/* -r and the verb must match: -r alone selects the mode. */
static int check_form(const struct options *o, const struct verb_info *v, struct err *e)
{
    if (v->form == FORM_REPO && !o->repo) {
        err_set(e, ERR_USAGE, EINVAL, "no repository is given");
        return err_hint(e, "use -r REPO: a directory, a file:// URL or the name of a [repository] section");
    }
    if (v->form != FORM_REPO && o->repo) {
        err_set(e, ERR_USAGE, EINVAL, "%s does not take -r: it %s", verb_name(v->verb),
                v->form == FORM_DAEMON ? "is a request to the daemon" : "does not use a repository");
        return err_hint(e, "see snapferry %s --help", verb_name(v->verb));
    }
    return 0;
}

/* Options that require or exclude others. */
static int check_together(const struct options *o, struct err *e)
{
    if (o->state && state_known(o->verb == VERB_OPERATIONS ? ROW_OPERATION : ROW_BACKUP, o->state, e) < 0)
        return -EINVAL;
    if (o->verb == VERB_ASK_BACKUP) {
        if (!o->job == !o->n_args) {
            err_set(e, ERR_USAGE, EINVAL,
                    o->job ? "backup takes volumes or --job, not both" : "backup requires volumes or --job JOB");
            return err_hint(e, "snapferry volumes lists them; with -r REPO, backup takes a device or file");
        }
        if (o->from_timer && !o->job)
            return err_set(e, ERR_USAGE, EINVAL, "--from-timer requires --job JOB");
    }
    if (!o->parent != !o->changed_ranges) {
        err_set(e, ERR_USAGE, EINVAL, "--parent and --changed-ranges require each other");
        return err_hint(e, "snapshot list shows the ids of snapshots");
    }
    if (o->parent && (o->no_parent || o->full_scan))
        return err_set(e, ERR_USAGE, EINVAL, "--changed-ranges and --%s are mutually exclusive",
                       o->no_parent ? "no-parent" : "full-scan");
    if (o->config && o->config_dir_given)
        return err_set(e, ERR_USAGE, EINVAL, "--config and --config-dir are mutually exclusive");
    if (o->verb == VERB_CANCEL && o->all == (o->n_args > 0))
        return err_set(e, ERR_USAGE, EINVAL,
                       o->all ? "cancel takes ids or --all, not both" : "cancel requires ids or --all");
    if (o->verb == VERB_SNAPSHOT_DELETE && !o->node == !o->n_args)
        return err_set(e, ERR_USAGE, EINVAL,
                       o->node ? "snapshot delete takes snapshots or --node, not both"
                               : "snapshot delete requires snapshots or --node NAME");
    if (o->verb == VERB_SNAPSHOT_DELETE && o->node && o->as)
        return err_set(e, ERR_USAGE, EINVAL, "--node and --as are mutually exclusive");
    if (o->new_target && (o->differential || o->ranged))
        return err_set(e, ERR_USAGE, EINVAL, "--new and %s are mutually exclusive",
                       o->differential ? "--differential" : "--offset or --length");
    if (o->unsafe && !o->full)
        return err_set(e, ERR_USAGE, EINVAL, "--safety=none requires --full");
    if (o->take_ownership && (o->full || o->dry_run || o->explain))
        return err_set(e, ERR_USAGE, EINVAL, "--take-ownership and --%s are mutually exclusive",
                       o->full      ? "full"
                       : o->dry_run ? "dry-run"
                                    : "explain");
    if (o->overwrite && o->new_target)
        return err_set(e, ERR_USAGE, EINVAL, "--overwrite and --new are mutually exclusive");
    return 0;
}

/* An error is printed as JSON even if it occurs before --json is parsed. */
static bool asks_for_json(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (!strcmp(argv[i], "--json"))
            return true;
    return false;
}

int options_parse(struct options *o, int argc, char **argv, struct err *e)
{
    *o = (struct options){.read_percent = 100,
                          .verify_sample = 0.1,
                          .move_data = -1,
                          .config_dir = "/etc/snapferry",
                          .state_dir = "/var/lib/snapferry",
                          .runtime_dir = "/run/snapferry"};
    unsigned char seen[OPTIONS_MAX] = {0};
    if (parse_options(o, argc, argv, seen, e) < 0) {
        o->json = o->json || asks_for_json(argc, argv);
        return -EINVAL;
    }
    char **words = argv + optind;
    int n = argc - optind;
    if (o->version || o->completion || o->complete)
        return 0;
    int used = 0;
    const struct verb_info *v = n ? find_verb(words, n, o->repo, &used) : NULL;
    if (v && v->verb == VERB_HELP && !o->help) { /* `help VERB` is `VERB --help` */
        o->help = true;
        words++;
        v = --n ? find_verb(words, n, o->repo, &used) : NULL;
    }
    if (v)
        o->verb = v->verb;
    else if (o->help && n == 1 && is_group(words[0]))
        o->group = words[0];
    if (o->help && (v || o->group || !n))
        return 0;
    if (!n) {
        err_set(e, ERR_USAGE, EINVAL, "no verb is given");
        return err_hint(e, "snapferry --help lists the verbs");
    }
    if (!v)
        return unknown_verb(words, n, o->repo, e);
    o->args = words + used;
    o->n_args = n - used;
    if (o->n_args < v->min_args || o->n_args > v->max_args) {
        err_set(e, ERR_USAGE, EINVAL, "%s takes %s, but %d argument%s given", verb_name(v->verb),
                *v->args ? v->args : "no argument", o->n_args, o->n_args == 1 ? " is" : "s are");
        return err_hint(e, "see snapferry %s --help", verb_name(v->verb));
    }
    if (check_form(o, v, e) < 0)
        return -EINVAL;
    for (size_t i = 0; i < option_table_len; i++) {
        if (seen[i] && !option_for(option_table[i].id, v->verb)) {
            err_set(e, ERR_USAGE, EINVAL, "%s does not take --%s", verb_name(v->verb), option_table[i].name);
            return err_hint(e, "snapferry %s --help lists its options", verb_name(v->verb));
        }
    }
    return check_together(o, e);
}

void options_free(struct options *o)
{
    json_decref(o->tags);
    json_decref(o->class_map);
    o->tags = o->class_map = NULL;
}
