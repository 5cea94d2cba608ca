/* SPDX-License-Identifier: GPL-2.0-or-later */
/* requests.c - verbs that request an operation from the daemon */
#include "daemon/cli/restore-all.h"
#include "base/units.h"
#include "daemon/cli/confirm.h"
#include "daemon/cli/verdicts.h"
#include "daemon/records/records.h"
#include "io/nbd-uri.h"
#include "repo/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

static int add_text(json_t *args, const char *key, const char *value, struct err *e)
{
    if (value && json_object_set_new(args, key, json_string(value)) < 0)
        return err_set(e, ERR_USAGE, EINVAL, "\"%s\" is not UTF-8 text", text_name(value));
    return 0;
}

static void add_flag(json_t *args, const char *key, bool value)
{
    if (value)
        json_object_set_new(args, key, json_true());
}

/* "./x" and "../x" become absolute paths: the daemon has another working directory. So does a target without a slash.
 */
static int absolute_path(const char *name, bool bare_is_file, char out[4096], struct err *e)
{
    const char *rest = name;
    bool here = !strncmp(name, "./", 2) || !strncmp(name, "../", 3) || (bare_is_file && !strchr(name, '/'));
    char cwd[4096] = "";
    if (here && !getcwd(cwd, sizeof cwd))
        return err_set(e, ERR_GENERIC, errno, "cannot determine the working directory");
    if (!strcmp(cwd, "/"))
        cwd[0] = '\0';
    while (here && (!strncmp(rest, "./", 2) || !strncmp(rest, "../", 3))) {
        if (rest[1] == '.' && cwd[0])
            *strrchr(cwd, '/') = '\0'; /* it has no links in it */
        rest += strcspn(rest, "/");
        rest += strspn(rest, "/");
    }
    size_t n = (size_t)snprintf(out, 4096, "%s%s%s", cwd, here ? "/" : "", rest);
    if (n >= 4096)
        return err_set(e, ERR_USAGE, EINVAL, "\"%.64s...\" is too long", text_name(name));
    return 0;
}

/* ---- backup ---- */

static void print_skipped(const json_t *answer)
{
    size_t i;
    const json_t *s;
    json_array_foreach(jarr(answer, "skipped"), i, s)
        printf("  %s skipped: %s\n", text_name(jstr(s, "volume")), text_name(jstr(s, "reason")));
}

static int backup_args(const struct options *o, json_t *args, struct err *e)
{
    if (o->job) {
        if (add_text(args, "job", o->job, e) < 0)
            return -EINVAL;
    } else {
        json_t *list = json_array();
        json_object_set_new(args, "volumes", list);
        for (int i = 0; i < o->n_args; i++) {
            char name[4096];
            if (absolute_path(o->args[i], false, name, e) < 0)
                return -EINVAL;
            if (json_array_append_new(list, json_string(name)) < 0)
                return err_set(e, ERR_USAGE, EINVAL, "\"%s\" is not UTF-8 text", text_name(name));
        }
    }
    add_flag(args, "full", o->full);
    add_flag(args, "debug", o->debug);
    if (o->move_data >= 0)
        json_object_set_new(args, "move-data", json_boolean(o->move_data));
    return add_text(args, "description", o->description, e);
}

int ask_backup(const struct options *o, struct err *e)
{
    CLEANUP_JSON json_t *args = json_object(), *answer = NULL;
    if (!args)
        return err_nomem(e);
    if (o->from_timer) { /* of an earlier version, on its way out: the daemon runs the job */
        if (!o->quiet)
            fprintf(stderr, "snapferry: --from-timer: nothing is done, the daemon runs its jobs itself\n");
        return 0;
    }
    int rc = backup_args(o, args, e);
    if (rc >= 0)
        rc = daemon_ask(o, "submit-backup", json_incref(args), &answer, e);
    if (rc < 0)
        return rc;
    const char *id = jstr(answer, "backup");
    if (o->wait) {
        if (!o->json && !o->quiet)
            print_skipped(answer);
        return wait_for(o, id, e);
    }
    if (o->json) {
        print_answer(o, answer);
    } else if (!o->quiet) {
        size_t n = json_array_size(jarr(answer, "operations"));
        printf("Backup %s of %zu volume%s", text_name(id), n, n == 1 ? "" : "s");
        if (jint(answer, "position") > 0)
            printf(", position %lld in the queue", (long long)jint(answer, "position"));
        if (*jstr(answer, "blocked_by"))
            printf(", behind %s", text_name(jstr(answer, "blocked_by")));
        putchar('\n');
        print_skipped(answer);
        printf("Show progress: snapferry wait %s\n", text_name(id));
    }
    return 0;
}

/* BACKUP[/VOLUME]: no backup id has a slash. */
static int add_backup_volume(const char *what, json_t *args, struct err *e)
{
    const char *slash = strchr(what, '/');
    char backup[512];
    size_t n = slash ? (size_t)(slash - what) : strlen(what);
    if (!n || n >= sizeof backup)
        return err_set(e, ERR_USAGE, EINVAL, "\"%.64s\" does not begin with a backup id", text_name(what));
    snprintf(backup, sizeof backup, "%.*s", (int)n, what);
    int rc = add_text(args, "backup", backup, e);
    return rc < 0 ? rc : add_text(args, "volume", slash ? slash + 1 : NULL, e);
}

int ask_retry(const struct options *o, struct err *e)
{
    CLEANUP_JSON json_t *args = json_object(), *answer = NULL;
    size_t i;
    const json_t *op;
    if (!args)
        return err_nomem(e);
    int rc = add_backup_volume(o->args[0], args, e);
    if (rc >= 0)
        rc = daemon_ask(o, "retry", json_incref(args), &answer, e);
    if (rc < 0)
        return rc;
    const char *id = jstr(answer, "backup");
    if (!o->json && !o->quiet) {
        printf("Backup %s, from the native snapshots of %s:\n", text_name(id), text_name(jstr(answer, "retry_of")));
        json_array_foreach(jarr(answer, "operations"), i, op)
            printf("  %s, native snapshot %s\n", text_name(jstr(op, "volume")), text_name(jstr(op, "native")));
        print_skipped(answer);
        if (!o->wait)
            printf("Show progress: snapferry wait %s\n", text_name(id));
    }
    if (o->wait)
        return wait_for(o, id, e);
    if (o->json)
        print_answer(o, answer);
    return 0;
}

/* ---- restore ---- */

static int restore_args(const struct options *o, json_t *args, struct err *e)
{
    char target[4096];
    if (o->n_args < 2 && !o->class_map) {
        err_set(e, ERR_USAGE, EINVAL, "restore requires a target");
        return err_hint(e, "give a file or device, or --class-map OLD=NEW for the same name in another class");
    }
    if (absolute_path(o->n_args > 1 ? o->args[1] : "", o->n_args > 1, target, e) < 0 ||
        add_backup_volume(o->args[0], args, e) < 0 || add_text(args, "target", o->n_args > 1 ? target : NULL, e) < 0 ||
        add_text(args, "from", o->from, e) < 0)
        return -EINVAL;
    add_flag(args, "overwrite", o->overwrite);
    add_flag(args, "new", o->new_target);
    add_flag(args, "allow_incomplete", o->allow_incomplete);
    add_flag(args, "verify", o->verify);
    add_flag(args, "differential", o->differential);
    if (o->offset > INT64_MAX || o->length > INT64_MAX)
        return err_set(e, ERR_USAGE, EINVAL, "--offset and --length are at most %" PRId64, INT64_MAX);
    if (o->ranged)
        json_object_set_new(args, "offset", json_integer((json_int_t)o->offset));
    if (o->length)
        json_object_set_new(args, "length", json_integer((json_int_t)o->length));
    if (o->class_map)
        json_object_set(args, "class_map", o->class_map);
    return 0;
}

/* Nothing is lost on a path that does not exist or a device or export without data. A target that is neither is a
 * volume. */
static int confirm_restore(const struct options *o, const json_t *args, struct err *e)
{
    const char *target = jstr(args, "target");
    struct stat st;
    const bool export = nbd_uri_is(target), path = *target == '/';
    const bool device = export || (path && stat(target, &st) == 0 && S_ISBLK(st.st_mode));
    if (device || (path && (o->overwrite || o->differential || o->ranged)))
        return confirm_target(o, target, e);
    if (!o->overwrite && !o->differential && !o->ranged)
        return 0;
    return confirm(o, e, "The data on %s will be overwritten if it exists.",
                   *target ? target : "the volume of that name in the other class");
}

int ask_restore(const struct options *o, struct err *e)
{
    CLEANUP_JSON json_t *args = json_object(), *answer = NULL, *backup = NULL;
    if (!args)
        return err_nomem(e);
    int rc = restore_args(o, args, e);
    if (rc >= 0)
        rc = confirm_restore(o, args, e);
    if (rc >= 0 && o->class_map && o->n_args < 2 && !jstr(args, "volume")[0])
        rc = daemon_ask(o, "describe", json_pack("{s:s}", "id", jstr(args, "backup")), &backup, e);
    const json_t *b = jobj(backup, "backup");
    if (rc >= 0 && json_array_size(jarr(b, "operations")) > 1) {
        json_object_set(args, "backup", json_object_get(b, "id"));
        return restore_all(o, jstr(b, "id"), args, e);
    }
    if (rc >= 0)
        rc = daemon_ask(o, "submit-restore", json_incref(args), &answer, e);
    if (rc < 0)
        return rc;
    const char *id = jstr(answer, "restore");
    if (!o->json && !o->quiet) {
        printf("Restore %s from the %s", text_name(id),
               !strcmp(jstr(answer, "from"), "native") ? "native snapshot" : "repository");
        printf("%s%s\n", *jstr(answer, "why") ? ": " : "", text_name(jstr(answer, "why")));
        if (!o->wait)
            printf("Show progress: snapferry wait %s\n", text_name(id));
    }
    if (o->wait)
        return wait_for(o, id, e);
    if (o->json)
        print_answer(o, answer);
    return 0;
}

/* ---- delete, hold ---- */

/* "2 volumes (vg0/db1, vg0/db2)" */
static void volumes_text(const json_t *backup, char *out, size_t cap)
{
    const json_t *list = jarr(backup, "volumes"), *v;
    size_t i, n = json_array_size(list);
    size_t len = (size_t)snprintf(out, cap, "%zu volume%s", n, n == 1 ? "" : "s");
    json_array_foreach(list, i, v)
    {
        if (len > 300) {
            snprintf(out + len, cap - len, ", ...)");
            return;
        }
        len += (size_t)snprintf(out + len, cap - len, "%s%.200s", i ? ", " : " (", json_string_value(v));
    }
    if (n)
        snprintf(out + len, cap - len, ")");
}

/* Also replaces the id by the full one. */
static int confirm_backup(const struct options *o, json_t *args, struct err *e)
{
    CLEANUP_JSON json_t *answer = NULL;
    char volumes[700];
    if (!confirm_needed(o))
        return 0;
    int rc = daemon_ask(o, "describe", json_pack("{s:s}", "id", o->args[0]), &answer, e);
    const json_t *b = jobj(answer, "backup");
    if (rc < 0 || !b)
        return rc; /* not a backup: the request will fail */
    json_object_set(args, "id", json_object_get(b, "id"));
    if (!strcmp(jstr(b, "kind"), "restore"))
        return confirm(o, e, "The record of restore %s will be deleted.", jstr(b, "id"));
    volumes_text(b, volumes, sizeof volumes);
    return confirm(o, e,
                   "Backup %s of %s, %s, will be deleted: its snapshots in the repository, its native snapshots and "
                   "its records.%s",
                   jstr(b, "id"), volumes, text_ago(jint(b, "created_ns")),
                   state_terminal(jstr(b, "state")) ? "" : " It is still running and will be canceled first.");
}

int ask_delete(const struct options *o, struct err *e)
{
    CLEANUP_JSON json_t *args = json_pack("{s:s, s:b, s:b}", "id", o->args[0], "force", (int)o->force, "even_kept",
                                          (int)o->even_kept),
                        *answer = NULL;
    int rc = args ? confirm_backup(o, args, e) : err_nomem(e);
    if (rc >= 0)
        rc = daemon_ask(o, "delete", json_incref(args), &answer, e);
    if (rc < 0)
        return rc;
    const char *op = jstr(answer, "operation");
    if (o->wait && *op)
        return wait_for(o, op, e);
    if (o->json)
        print_answer(o, answer);
    else if (!o->quiet)
        printf("Deleting %s%s%s\n", text_name(jstr(answer, "id")), *op ? "; show progress: snapferry wait " : "",
               text_name(op));
    return 0;
}

int ask_hold(const struct options *o, struct err *e)
{
    bool hold = o->verb == VERB_HOLD;
    CLEANUP_JSON json_t *args = json_pack("{s:s}", "native", o->args[0]), *answer = NULL;
    if (!args || add_text(args, "note", o->note, e) < 0)
        return args ? -EINVAL : err_nomem(e);
    int rc = daemon_ask(o, hold ? "hold" : "unhold", json_incref(args), &answer, e);
    if (rc < 0)
        return rc;
    if (o->json) {
        print_answer(o, answer);
    } else if (!o->quiet) {
        size_t i;
        const json_t *v;
        json_array_foreach(jarr(answer, "held"), i, v)
            printf("%s %s\n", text_name(json_string_value(v) ? json_string_value(v) : ""), hold ? "held" : "released");
    }
    return 0;
}

/* ---- admin runs ---- */

static int start_operation(const struct options *o, const char *verb, json_t *args, const char *what, struct err *e)
{
    CLEANUP_JSON json_t *answer = NULL;
    int rc = daemon_ask(o, verb, args, &answer, e);
    if (rc < 0)
        return rc;
    const char *op = jstr(answer, "operation");
    if (o->wait && *op)
        return wait_for(o, op, e);
    if (o->json)
        print_answer(o, answer);
    else if (!o->quiet)
        printf("%s: %s\nShow progress: snapferry wait %s\n", what, text_name(op), text_name(op));
    return 0;
}

int ask_verify(const struct options *o, struct err *e)
{
    CLEANUP_JSON json_t *args = json_pack("{s:f}", "read_percent", o->read_percent);
    if (args && o->anew)
        json_object_set_new(args, "anew", json_true());
    if (!args || add_text(args, "repository", o->n_args ? o->args[0] : NULL, e) < 0)
        return args ? -EINVAL : err_nomem(e);
    return start_operation(o, "verify", json_incref(args), "Verification", e);
}

int ask_copy(const struct options *o, struct err *e)
{
    CLEANUP_JSON json_t *args = json_pack("{s:b,s:b}", "new", (int)o->new_target, "force", (int)o->delete_most);
    if (!args || add_text(args, "copy", o->n_args ? o->args[0] : NULL, e) < 0)
        return args ? -EINVAL : err_nomem(e);
    if (o->delete_most) {
        int rc = confirm(o, e,
                         "What its repository does not have any more will be deleted from %s, also if that is more "
                         "than half of it.",
                         o->n_args ? o->args[0] : "each copy");
        if (rc < 0)
            return rc;
    }
    return start_operation(o, "copy", json_incref(args), "Copy", e);
}

static void print_scan(const struct options *o, const json_t *answer)
{
    static const struct {
        const char *member, *text;
    } kinds[] = {{"known", "recorded before"},
                 {"recorded", "recorded now"},
                 {"incomplete", "of interrupted backups"},
                 {"untagged", "made without the daemon"},
                 {"passed", "passed over (see the journal)"}};
    char whose[300] = "this node";
    if (o->node)
        snprintf(whose, sizeof whose, "node %.255s", text_name(o->node));
    printf("%lld snapshot%s of %s in the repository", (long long)jint(answer, "snapshots"),
           plural((uint64_t)jint(answer, "snapshots")), whose);
    for (size_t i = 0, n = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (jint(answer, kinds[i].member))
            printf("%s%lld %s", n++ ? ", " : ": ", (long long)jint(answer, kinds[i].member), kinds[i].text);
    putchar('\n');
    const int64_t outcomes = jint(answer, "outcomes"), without = jint(answer, "added") - jint(answer, "recorded");
    if (outcomes)
        printf("The outcome%s of %lld backup%s taken over from the repository\n", plural((uint64_t)outcomes),
               (long long)outcomes, outcomes == 1 ? " was" : "s were");
    if (without > 0)
        printf("%lld volume%s of backups recorded that %s no snapshot there: failed, skipped, or deleted since\n",
               (long long)without, plural((uint64_t)without), without == 1 ? "has" : "have");
    if (jint(answer, "malformed"))
        printf("%lld malformed record%s of backups in the repository passed over\n",
               (long long)jint(answer, "malformed"), plural((uint64_t)jint(answer, "malformed")));
    if (jint(answer, "elsewhere"))
        printf(
            "Another machine has recorded %lld backup%s under this node's name since this daemon knows the repository. "
            "Two machines must not have the same node-name; unfinished backups of the other one are left alone "
            "until provisional-ttl.\n",
            (long long)jint(answer, "elsewhere"), plural((uint64_t)jint(answer, "elsewhere")));
    if (jint(answer, "removed"))
        printf("%lld record%s of other nodes' unfinished backups removed\n", (long long)jint(answer, "removed"),
               plural((uint64_t)jint(answer, "removed")));
    if (jint(answer, "stale"))
        printf("%lld record%s of other nodes' unfinished backups %s older than provisional-ttl; "
               "--remove-provisional removes %s\n",
               (long long)jint(answer, "stale"), plural((uint64_t)jint(answer, "stale")),
               jint(answer, "stale") == 1 ? "is" : "are", jint(answer, "stale") == 1 ? "it" : "them");
}

int ask_scan(const struct options *o, struct err *e)
{
    CLEANUP_JSON json_t *args = json_object(), *answer = NULL;
    if (!args || add_text(args, "repository", o->n_args ? o->args[0] : NULL, e) < 0)
        return args ? -EINVAL : err_nomem(e);
    if (o->replaced)
        jset_bool(args, "replaced", true);
    if (o->remove_provisional)
        jset_bool(args, "remove_stale", true);
    if (o->node && add_text(args, "node", o->node, e) < 0)
        return -EINVAL;
    int rc = ask_shown(o, "scan", json_incref(args), &answer, e);
    if (rc < 0)
        return rc;
    if (o->json)
        print_answer(o, answer);
    else if (!o->quiet)
        print_scan(o, answer);
    if (!o->json && !o->quiet && jint(answer, "lost"))
        printf("%lld recorded snapshot%s\n", (long long)jint(answer, "lost"),
               jint(answer, "lost") == 1 ? " is missing and no longer counts as a backup"
                                         : "s are missing and no longer count as backups");
    if (!o->json && jint(answer, "unreadable"))
        log_warning("%lld snapshot%s of the repository cannot be read: whether recorded ones are missing is not known",
                    (long long)jint(answer, "unreadable"), plural((uint64_t)jint(answer, "unreadable")));
    return 0;
}

int ask_detach(const struct options *o, struct err *e)
{
    CLEANUP_JSON json_t *args = json_object(), *answer = NULL;
    if (!args || add_text(args, "repository", o->args[0], e) < 0)
        return args ? -EINVAL : err_nomem(e);
    int rc = confirm(o, e,
                     "The backups in repository %s will be removed from the records and no longer protect their "
                     "volumes. The data in the repository are kept.",
                     o->args[0]);
    if (rc >= 0)
        rc = daemon_ask(o, "detach", json_incref(args), &answer, e);
    if (rc < 0)
        return rc;
    if (o->json)
        print_answer(o, answer);
    else if (!o->quiet)
        printf("Repository %s detached: %lld backup%s removed from the records; its data are kept\n",
               text_name(jstr(answer, "repository")), (long long)jint(answer, "backups"),
               plural((uint64_t)jint(answer, "backups")));
    return 0;
}

int ask_forget(const struct options *o, struct err *e)
{
    CLEANUP_JSON json_t *args = json_object(), *answer = NULL;
    if (!args || add_text(args, "volume", o->args[0], e) < 0)
        return args ? -EINVAL : err_nomem(e);
    int rc = confirm(o, e,
                     "Volume %s will be removed from the records. Its backups and native snapshots are kept "
                     "(`snapferry native prune --gone` removes the latter).",
                     o->args[0]);
    if (rc >= 0)
        rc = daemon_ask(o, "forget", json_incref(args), &answer, e);
    if (rc < 0)
        return rc;
    if (o->json)
        print_answer(o, answer);
    else if (!o->quiet)
        printf("%s removed from the records; its backups are kept\n", text_name(jstr(answer, "volume")));
    return 0;
}

/* "latest 10, daily 7": the policy of a source. */
static void keeps_text(const json_t *policy, char *out, size_t cap)
{
    static const char *const kinds[] = {"latest", "hourly", "daily", "weekly", "monthly", "annual"};
    size_t n = 0;
    *out = '\0';
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (json_is_integer(json_object_get(policy, kinds[i])) && n < cap)
            n += (size_t)snprintf(out + n, cap - n, "%s%s %lld", n ? ", " : "", kinds[i],
                                  (long long)jint(policy, kinds[i]));
}

/* What keep-* counts, whether it is asked or done. */
static void print_which_policies(void)
{
    puts("By the policies in the repository: a keep-* that was changed in the configuration is put there by the\n"
         "next backup of its volume, which then deletes what they no longer keep.");
}

/* The decision of retention on each snapshot. */
static void print_verdicts(const struct options *o, const json_t *ended)
{
    const json_t *answer = json_array_get(jarr(jobj(ended, "result"), "answers"), 0), *v;
    char last[5000] = "", keeps[256];
    size_t i;
    json_array_foreach(jarr(answer, "snapshots"), i, v)
    {
        struct verdict_line line = {.source = jstr(v, "source"),
                                    .volume = jstr(v, "volume"),
                                    .policy = keeps,
                                    .id = jstr(v, "id"),
                                    .why = jstr(v, "why"),
                                    .keep = jbool(v, "keep"),
                                    .explain = o->explain};
        keeps_text(jobj(v, "policy"), keeps, sizeof keeps);
        if (time_parse(&line.start_ns, jstr(v, "startTime")) < 0)
            line.start_ns = 0;
        verdict_print(&line, last);
    }
    if (jint(answer, "omitted"))
        printf("%s%lld more not listed: too many\n", *last ? "\n" : "", (long long)jint(answer, "omitted"));
    print_leftovers((uint64_t)jint(answer, "leftovers"), (uint64_t)jint(answer, "leftoverBytes"), o->dry_run);
    const long long all = jint(answer, "expired") + jint(answer, "kept");
    printf("%s%lld of %lld snapshot%s %s\n", *last ? "\n" : "", (long long)jint(answer, "expired"), all,
           plural((uint64_t)all), o->dry_run ? "would be deleted; nothing was changed" : "deleted");
    print_which_policies();
}

/* A dry run first, for the counts. */
static int confirm_expire(const struct options *o, struct err *e)
{
    CLEANUP_JSON json_t *args = json_pack("{s:b}", "dry_run", 1), *answer = NULL, *ended = NULL;
    if (!confirm_needed(o))
        return 0;
    if (!args || add_text(args, "volume", o->volume, e) < 0)
        return args ? -EINVAL : err_nomem(e);
    int rc = daemon_ask(o, "expire", json_incref(args), &answer, e);
    if (rc >= 0)
        rc = wait_until_ended(o, jstr(answer, "operation"), &ended, e);
    if (rc >= 0)
        rc = exit_code_of(o, ended, e);
    const json_t *plan = json_array_get(jarr(jobj(ended, "result"), "answers"), 0);
    const long long expired = jint(plan, "expired"), all = expired + jint(plan, "kept");
    if (rc < 0 || expired <= 0)
        return rc;
    return confirm(
        o, e,
        "%lld of %lld snapshot%s in the repository %s expired and will be deleted (--dry-run --explain lists "
        "%s).",
        expired, all, plural((uint64_t)all), expired == 1 ? "has" : "have", expired == 1 ? "it" : "them");
}

int ask_expire(const struct options *o, struct err *e)
{
    CLEANUP_JSON json_t *args = json_object(), *ended = NULL, *answer = NULL;
    if (!args || add_text(args, "volume", o->volume, e) < 0)
        return args ? -EINVAL : err_nomem(e);
    if (confirm_expire(o, e) < 0)
        return -ECANCELED;
    add_flag(args, "dry_run", o->dry_run);
    add_flag(args, "explain", o->explain);
    if (!o->dry_run && !o->explain) {
        int ended_rc = start_operation(o, "expire", json_incref(args), "Expiry", e);
        if (ended_rc >= 0 && !o->json && !o->quiet)
            print_which_policies();
        return ended_rc;
    }
    /* Reasons are printed when it has ended. */
    int rc = daemon_ask(o, "expire", json_incref(args), &answer, e);
    if (rc >= 0)
        rc = wait_until_ended(o, jstr(answer, "operation"), &ended, e);
    if (rc >= 0)
        rc = exit_code_of(o, ended, e);
    if (ended && o->json)
        print_answer(o, ended);
    else if (rc >= 0)
        print_verdicts(o, ended);
    return rc;
}

/* Prints the line of a file that "FILE:LINE: ..." names. */
static void print_line_of(const char *message)
{
    char path[4096], *text = NULL;
    size_t cap = 0;
    unsigned line = 0;
    int used = 0;
    if (sscanf(message, "%4095[^:]:%u:%n", path, &line, &used) != 2 || !used || path[0] != '/')
        return;
    CLEANUP_FCLOSE FILE *f = fopen(path, "re");
    ssize_t n = -1;
    for (unsigned i = 0; f && i < line; i++)
        if ((n = getline(&text, &cap, f)) < 0)
            break;
    if (n > 0) {
        text[strcspn(text, "\n")] = '\0';
        fprintf(stderr, "%u: %.200s\n", line, text_name(text));
    }
    free(text);
}

int ask_reload(const struct options *o, struct err *e)
{
    CLEANUP_JSON json_t *answer = NULL;
    /* The outcome is wanted in any case: a line that is refused is told to whoever has just written it. */
    int rc = daemon_ask(o, "reload", json_pack("{s:b}", "wait", 1), &answer, e);
    if (rc < 0 && e->cls == ERR_USAGE && !o->quiet && !o->json)
        print_line_of(e->msg);
    if (rc < 0)
        return rc;
    if (o->json) {
        print_answer(o, answer);
    } else if (!o->quiet) {
        const json_t *ops = jobj(answer, "operations");
        const int64_t changed = jint(ops, "changed"), kept = jint(ops, "kept");
        puts("Configuration reloaded");
        if (changed)
            printf("%lld waiting operation%s taken it over\n", (long long)changed, changed == 1 ? " has" : "s have");
        if (kept)
            printf("%lld waiting operation%s not taken over all of it: see snapferry operations\n", (long long)kept,
                   kept == 1 ? " has" : "s have");
        size_t i;
        const json_t *c;
        json_array_foreach(jarr(answer, "complaints"), i, c)
        {
            printf("%s: %s: %s%s", text_name(jstr(c, "where")), text_name(jstr(c, "severity")),
                   text_name(jstr(c, "text")), jstr(c, "hint")[0] ? "; " : "");
            puts(text_name(jstr(c, "hint")));
        }
    }
    return 0;
}
