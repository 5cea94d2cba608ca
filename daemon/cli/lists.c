/* SPDX-License-Identifier: GPL-2.0-or-later */
/* lists.c - operations, backups, volumes and native snapshots as tables */
#include "daemon/cli/confirm.h"
#include "base/units.h"
#include "daemon/cli/labels.h"
#include "daemon/cli/results.h"

#include "daemon/records/records.h"

#include <errno.h>
#include <string.h>

#define LIMIT_DEFAULT 50

static size_t limit_of(const struct options *o)
{
    return o->limit ? o->limit : o->all ? SIZE_MAX : LIMIT_DEFAULT;
}

static json_t *filter_of(const struct options *o)
{
    return json_pack("{s:b, s:s*, s:s*, s:s*}", "all", (int)o->all, "volume", o->volume, "backup", o->backup, "state",
                     o->state);
}

static void more_note(const json_t *answer)
{
    if (jbool(answer, "more"))
        puts("More exist: --all, --limit N");
}

static bool is_running(const json_t *op)
{
    return !strcmp(jstr(op, "state"), "Running");
}

/* "45%, 3 min left", the position in the queue, or the duration. */
static const char *progress_text(const json_t *s)
{
    static char buf[4][256];
    static unsigned turn;
    char *out = buf[turn++ % 4];
    const json_t *p = jobj(s, "progress");
    const json_t *eta = json_object_get(p, "eta_s");
    const int64_t to = jint(s, "ended_ns");
    const char *percent = text_percent(p), *took = doc_took(s);
    if (jint(s, "position") > 0)
        snprintf(out, sizeof buf[0], "position %lld", (long long)jint(s, "position"));
    else if (jint(s, "retry_ns") > 0)
        snprintf(out, sizeof buf[0], "attempt %lld %s", (long long)jint(s, "attempt"), text_in(jint(s, "retry_ns")));
    else if (p && !to && strcmp(jstr(s, "kind"), "admin") != 0) /* which has steps, not bytes */
        snprintf(out, sizeof buf[0], "%s%s%s", *percent ? percent : text_size(p, "done"),
                 json_is_number(eta) ? ", " : "", json_is_number(eta) ? text_left(json_number_value(eta)) : "");
    else
        snprintf(out, sizeof buf[0], "%s%s", *took ? "in " : "", took);
    return out;
}

/* The reason of a state, as a note. */
static void reason_note(struct table *t, const json_t *s)
{
    const json_t *error = jobj(s, "error");
    bool ended_well = !strcmp(jstr(s, "state"), "Completed");
    if (error && !ended_well)
        table_note(t, tint_of_state(jstr(s, "state")), jstr(error, "message"));
    else
        table_note(t, TINT_DIM, jstr(s, "why"));
    if (is_running(s))
        table_note(t, TINT_WARN, jstr(s, "config_kept"));
}

static void gone_note(struct table *t, const json_t *s)
{
    char text[1200];
    if (jint(s, "gone_ns"))
        table_note(t, TINT_BAD, gone_text(s, text, sizeof text));
}

/* A backup that ended well, and of which nothing is left. One that did not keeps its state, with a note. */
static bool has_expired(const json_t *b)
{
    return jbool(b, "expired") && !jint(b, "gone_ns") && !strcmp(jstr(b, "state"), "Completed");
}

static void lost_note(struct table *t, const json_t *b)
{
    char text[500];
    if (!has_expired(b))
        table_note(t, TINT_DIM, lost_text(b, text, sizeof text));
}

int ask_operations(const struct options *o, struct err *e)
{
    CLEANUP_JSON json_t *filter = filter_of(o), *answer = NULL;
    int rc = filter ? ask_pages(o, "operations", "operations", filter, limit_of(o), &answer, e) : err_nomem(e);
    if (rc < 0)
        return rc;
    if (answered(o, answer))
        return 0;
    static const char *const heads[] = {"STATE", "BACKUP", "VOLUME", "AGE", "PROGRESS"};
    struct table *t = table_new(heads, "lssLE");
    size_t i;
    const json_t *op;
    for (int pass = 0; pass < 2; pass++) {
        json_array_foreach(jarr(answer, "operations"), i, op)
        {
            if (is_running(op) != (pass == 0))
                continue;
            int64_t when = jint(op, "ended_ns") ? jint(op, "ended_ns") : jint(op, "created_ns");
            table_cell(t, jint(op, "gone_ns") ? TINT_BAD : tint_of_state(jstr(op, "state")), "%s", jstr(op, "state"));
            table_cell(t, TINT_NONE, "%s", *jstr(op, "backup") ? jstr(op, "backup") : jstr(op, "id"));
            table_cell(t, TINT_NONE, "%s", *jstr(op, "volume") ? jstr(op, "volume") : result_task(op));
            table_cell(t, TINT_NONE, "%s", text_ago(when));
            table_cell(t, TINT_NONE, "%s", progress_text(op));
            reason_note(t, op);
            gone_note(t, op);
        }
    }
    if (!table_rows(t))
        puts("No operations.");
    table_print(t, stdout, "");
    more_note(answer);
    return 0;
}

/* The native snapshot that stays, of several their number. */
static void native_cell(struct table *t, const json_t *retained)
{
    const size_t n = json_array_size(retained);
    const char *first = n ? json_string_value(json_array_get(retained, 0)) : NULL;
    if (n > 1)
        table_cell(t, TINT_NONE, "%zu", n);
    else
        table_cell(t, TINT_NONE, "%.8s", first ? first : "");
}

/* Why all data was read and not what has changed: CF-10. */
static void full_note(struct table *t, const json_t *b)
{
    char note[600];
    const char *reason;
    const json_t *n;
    json_object_foreach((json_t *)jobj(b, "fullReasons"), reason, n)
    {
        const long long volumes = (long long)json_integer_value(n);
        snprintf(note, sizeof note, "all data of %lld volume%s was read, not only what changed: %s", volumes,
                 volumes == 1 ? "" : "s", full_reason_text(reason));
        table_note(t, TINT_DIM, note);
    }
}

int ask_backups(const struct options *o, struct err *e)
{
    CLEANUP_JSON json_t *filter = filter_of(o), *answer = NULL;
    int rc = filter ? ask_pages(o, "backups", "backups", filter, limit_of(o), &answer, e) : err_nomem(e);
    if (rc < 0)
        return rc;
    if (answered(o, answer))
        return 0;
    static const char *const heads[] = {"STATE", "ID", "VOLUMES", "NEW", "NATIVE", "AGE", "PROGRESS"};
    struct table *t = table_new(heads, "lsrRLLE");
    size_t i;
    const json_t *b;
    json_array_foreach(jarr(answer, "backups"), i, b)
    {
        int64_t when = jint(b, "ended_ns") ? jint(b, "ended_ns") : jint(b, "created_ns");
        const bool expired = has_expired(b);
        table_cell(t,
                   jint(b, "gone_ns") ? TINT_BAD
                   : expired          ? TINT_DIM
                                      : tint_of_state(jstr(b, "state")),
                   "%s", expired ? STATE_EXPIRED : jstr(b, "state"));
        table_cell(t, TINT_NONE, "%s", jstr(b, "id"));
        if (jint(b, "total") > 0)
            table_cell(t, jint(b, "failed") ? TINT_BAD : TINT_NONE, "%lld/%lld", (long long)jint(b, "completed"),
                       (long long)jint(b, "total"));
        else
            table_cell(t, TINT_NONE, "%zu", json_array_size(jarr(b, "volumes")));
        table_cell(t, TINT_NONE, "%s", json_object_get(b, "new") ? text_size(b, "new") : "");
        native_cell(t, jarr(b, "retainedSnapshots"));
        table_cell(t, TINT_NONE, "%s", text_ago(when));
        table_cell(t, TINT_NONE, "%s", progress_text(b));
        reason_note(t, b);
        gone_note(t, b);
        lost_note(t, b);
        full_note(t, b);
        if (*jstr(b, "node")) {
            char note[300];
            snprintf(note, sizeof note, "of node %.255s", jstr(b, "node"));
            table_note(t, TINT_DIM, note);
        }
        if (jbool(b, "degraded") && !state_terminal(jstr(b, "state")))
            table_note(t, TINT_BAD, "some operations have failed, the others continue; see snapferry describe");
    }
    if (!table_rows(t))
        puts("No backups.");
    table_print(t, stdout, "");
    more_note(answer);
    return 0;
}

enum standing volume_standing(const json_t *v)
{
    const char *state = jstr(v, "state");
    return !strcmp(state, "gone")       ? STANDING_GONE
           : !strcmp(state, "excluded") ? STANDING_EXCLUDED
           : jbool(v, "protected")      ? STANDING_PROTECTED
                                        : STANDING_UNPROTECTED;
}

void volumes_count(const json_t *list, size_t n[STANDINGS])
{
    size_t i;
    const json_t *v;
    memset(n, 0, STANDINGS * sizeof *n);
    json_array_foreach(list, i, v) n[volume_standing(v)]++;
}

const char *volumes_apart(const size_t n[STANDINGS])
{
    static char out[100];
    int len = 0;
    out[0] = '\0';
    if (n[STANDING_GONE])
        len = snprintf(out, sizeof out, "; %zu gone", n[STANDING_GONE]);
    if (n[STANDING_EXCLUDED])
        snprintf(out + len, sizeof out - (size_t)len, "%s %zu excluded", len ? "," : ";", n[STANDING_EXCLUDED]);
    return out;
}

static void volume_note(struct table *t, const json_t *v)
{
    const json_t *error = jobj(v, "error");
    bool ok = volume_standing(v) != STANDING_UNPROTECTED;
    /* Of one that is protected a last attempt that failed is more than what shows the good one. */
    const bool attempt = error && (!*jstr(v, "why") || volume_standing(v) == STANDING_PROTECTED);
    table_note(t, ok ? TINT_DIM : TINT_BAD, attempt ? jstr(error, "message") : jstr(v, "why"));
    if (!ok && *jstr(error, "hint")) {
        char hint[1200];
        snprintf(hint, sizeof hint, "→ %.1100s", jstr(error, "hint"));
        table_note(t, TINT_NONE, hint);
    }
}

static void standing_cell(struct table *t, const json_t *v)
{
    static const struct {
        enum tint tint;
        const char *word;
    } words[STANDINGS] = {[STANDING_UNPROTECTED] = {TINT_BAD, "NO"},
                          [STANDING_PROTECTED] = {TINT_GOOD, "yes"},
                          [STANDING_GONE] = {TINT_DIM, "gone"},
                          [STANDING_EXCLUDED] = {TINT_DIM, "excluded"}};
    table_cell(t, words[volume_standing(v)].tint, "%s", words[volume_standing(v)].word);
}

void volume_cells(struct table *t, const json_t *v)
{
    standing_cell(t, v);
    table_cell(t, TINT_NONE, "%s", jstr(v, "name"));
    table_cell(t, TINT_NONE, "%s", text_ago(jint(v, "last_success_ns")));
    table_cell(t, TINT_NONE, "%s", text_in(jint(v, "next_ns")));
    volume_note(t, v);
}

int ask_volumes(const struct options *o, struct err *e)
{
    CLEANUP_JSON json_t *answer = NULL;
    int rc = ask_or_read(o, "volumes", json_pack("{s:s*}", "class", o->class_name), &answer, e);
    if (rc < 0)
        return rc;
    if (answered(o, answer))
        return 0;
    const json_t *list = jarr(answer, "volumes");
    size_t n = json_array_size(list);
    static const char *const heads[] = {"PROTECTED", "VOLUME", "LAST SUCCESS", "NEXT", "SIZE", "NATIVES"};
    struct table *t = table_new(heads, "lsLLRR");
    size_t i;
    const json_t *v;
    json_array_foreach(list, i, v)
    {
        standing_cell(t, v);
        table_cell(t, TINT_NONE, "%s", jstr(v, "name"));
        table_cell(t, TINT_NONE, "%s", text_ago(jint(v, "last_success_ns")));
        table_cell(t, TINT_NONE, "%s", text_in(jint(v, "next_ns")));
        table_cell(t, TINT_NONE, "%s", text_size(v, "size"));
        table_cell(t, TINT_NONE, "%lld", (long long)jint(v, "natives"));
        volume_note(t, v);
    }
    if (!n && !json_array_size(jarr(answer, "unsure")))
        puts(o->class_name ? "No volumes in this class." : "No volumes match a storage class.");
    table_print(t, stdout, "");
    size_t count[STANDINGS];
    volumes_count(list, count);
    size_t bad = count[STANDING_UNPROTECTED], in = bad + count[STANDING_PROTECTED];
    const json_t *unsure;
    size_t k;
    json_array_foreach(jarr(answer, "unsure"), k, unsure)
        fprintf(stderr, "snapferry: %s\n", text_name(json_string_value(unsure)));
    if (bad)
        printf("%zu volume%s, %s%zu NOT PROTECTED%s%s\n", in, in == 1 ? "" : "s", tint_on(TINT_BAD), bad,
               tint_off(TINT_BAD), volumes_apart(count));
    else if (n)
        printf("%zu volume%s%s%s\n", in, in == 1 ? "" : "s", in ? ", all protected" : "", volumes_apart(count));
    return 0;
}

/* The intermediate that is kept for inspection with a native snapshot. */
static void note_kept(struct table *t, const json_t *kept)
{
    char line[1200];
    if (!kept || !*jstr(kept, "intermediate"))
        return;
    const bool bad = *jstr(kept, "error");
    snprintf(line, sizeof line, "intermediate %.40s%s%.800s%s%s%.200s", jstr(kept, "intermediate"),
             *jstr(kept, "path") ? ": " : "", text_name(jstr(kept, "path")),
             jbool(kept, "released") ? ", to be removed" : "", bad ? ": " : "",
             bad ? text_name(jstr(kept, "error")) : "");
    table_note(t, TINT_DIM, line);
}

static void print_natives(const json_t *list)
{
    static const char *const heads[] = {"ALIAS", "VOLUME", "AGE", "USED", "KEPT AS"};
    struct table *t = table_new(heads, "lsLRe");
    size_t i;
    const json_t *n;
    json_array_foreach(list, i, n)
    {
        const bool bookmark = jbool(n, "bookmark");
        bool present = !strcmp(jstr(n, "state"), "present") || !*jstr(n, "state") || bookmark;
        const char *kept = !present            ? jstr(n, "state")
                           : jbool(n, "prune") ? "nothing"
                           : bookmark          ? "bookmark"
                                               : jstr(n, "reasons");
        table_cell(t, TINT_NONE, "%.8s", jstr(n, "alias"));
        table_cell(t, TINT_NONE, "%s", jstr(n, "volume"));
        table_cell(t, TINT_NONE, "%s", text_ago(jint(n, "created_ns")));
        table_cell(t, TINT_NONE, "%s", text_size(n, "used"));
        table_cell(t, !present ? TINT_BAD : jbool(n, "prune") ? TINT_WARN : TINT_NONE, "%s", kept);
        table_note(t, TINT_DIM, jstr(n, "why"));
        note_kept(t, jobj(n, "kept"));
    }
    table_print(t, stdout, "");
}

/* What is on the storage and in no record; `ended`: what a release has done. */
static void print_orphans(const json_t *list, bool ended)
{
    static const char *const heads[] = {"ALIAS", "KIND", "OF", "AGE", "REMOVED"};
    struct table *t = table_new(heads, "lllRe");
    size_t i;
    const json_t *x;
    json_array_foreach(list, i, x)
    {
        const char *error = jstr(x, "error"), *hint = jstr(x, "hint");
        const bool native = !strcmp(jstr(x, "kind"), "native"), in_use = jbool(x, "in_use");
        char line[1600];
        table_cell(t, TINT_NONE, "%.8s", jstr(x, "alias"));
        table_cell(t, TINT_NONE, "%s", native ? "native snapshot" : jstr(x, "kind"));
        table_cell(t, TINT_NONE, "%s", *jstr(x, "volume") ? jstr(x, "volume") : jstr(x, "handle"));
        table_cell(t, TINT_NONE, "%s", jint(x, "created_ns") ? text_ago(jint(x, "created_ns")) : "");
        table_cell(t, *error && !in_use ? TINT_BAD : TINT_NONE, "%s",
                   in_use               ? "in use"
                   : *error             ? "cannot be"
                   : jbool(x, "stale")  ? "not known"
                   : ended              ? "yes"
                   : !jint(x, "due_ns") ? "soon"
                                        : text_in(jint(x, "due_ns")));
        snprintf(line, sizeof line, "%.1000s%s%.500s", error, *error && *hint ? "; " : "", *error ? hint : "");
        if (*error && !in_use)
            table_note(t, TINT_BAD, line);
        else if (jbool(x, "stale"))
            table_note(t, TINT_NONE, "its storage did not answer the last look");
    }
    table_print(t, stdout, "");
}

int ask_natives(const struct options *o, struct err *e)
{
    CLEANUP_JSON json_t *filter = json_pack("{s:s*}", "volume", o->volume), *answer = NULL;
    int rc = filter ? ask_pages(o, "natives", "natives", filter, SIZE_MAX, &answer, e) : err_nomem(e);
    if (rc < 0)
        return rc;
    if (answered(o, answer))
        return 0;
    if (json_array_size(jarr(answer, "natives")))
        print_natives(jarr(answer, "natives"));
    else
        puts("No native snapshots.");
    const json_t *orphans = jarr(answer, "orphans");
    if (json_array_size(orphans)) {
        puts("\nOf this node on the storage, and in no record (`snapferry native release` removes it now):");
        print_orphans(orphans, false);
    }
    return 0;
}

static json_t *prune_args(const struct options *o, bool dry_run)
{
    return json_pack("{s:s*, s:b, s:b}", "volume", o->volume, "gone", (int)o->gone, "dry_run", (int)dry_run);
}

/* A dry run first, for the counts. */
static int confirm_prune(const struct options *o, struct err *e)
{
    CLEANUP_JSON json_t *answer = NULL;
    if (!confirm_needed(o))
        return 0;
    int rc = daemon_ask(o, "native-prune", prune_args(o, true), &answer, e);
    const json_t *list = jarr(answer, "natives"), *n;
    size_t i, go = 0;
    int64_t used = 0;
    bool full = false;
    json_array_foreach(list, i, n)
    {
        full |= jbool(n, "for_pool");
        go += jbool(n, "prune");
        used += jbool(n, "prune") && jint(n, "used") > 0 ? jint(n, "used") : 0;
    }
    if (rc < 0 || !go)
        return rc;
    return confirm(o, e, "%zu of %zu native snapshot%s%s%s%s will be removed (--dry-run --explain lists %s)%s.", go,
                   json_array_size(list), plural(json_array_size(list)), used ? " (" : "",
                   used ? text_bytes((uint64_t)used) : "", used ? ")" : "", go == 1 ? "it" : "them",
                   full ? ", and more, one at a time, while their pool is over pool-high-water" : "");
}

int ask_native_prune(const struct options *o, struct err *e)
{
    CLEANUP_JSON json_t *answer = NULL;
    int rc = confirm_prune(o, e);
    if (rc < 0)
        return rc;
    rc = daemon_ask(o, "native-prune", prune_args(o, o->dry_run), &answer, e);
    if (rc < 0)
        return rc;
    if (o->json) {
        print_answer(o, answer);
        return 0;
    }
    const json_t *list = jarr(answer, "natives"), *n;
    size_t i, go = 0;
    CLEANUP_JSON json_t *going = json_array();
    json_array_foreach(list, i, n)
    {
        if (jbool(n, "prune")) {
            go++;
            json_array_append(going, (json_t *)(uintptr_t)n);
        }
    }
    const json_t *shown = o->explain ? list : going;
    if (json_array_size(shown) && !o->quiet)
        print_natives(shown);
    printf("%zu of %zu native snapshot%s %s\n", go, json_array_size(list), plural(json_array_size(list)),
           o->dry_run ? "would be removed" : "will be removed");
    return 0;
}

static json_t *release_args(const struct options *o, bool dry_run)
{
    return json_pack("{s:s*, s:b, s:b}", "native", o->n_args ? o->args[0] : NULL, "all", (int)o->all, "dry_run",
                     (int)dry_run);
}

/* A dry run first: what it would be. */
static int confirm_release(const struct options *o, struct err *e)
{
    CLEANUP_JSON json_t *answer = NULL;
    if (!confirm_needed(o))
        return 0;
    int rc = daemon_ask(o, "native-release", release_args(o, true), &answer, e);
    const json_t *list = jarr(answer, "objects"), *x;
    size_t i, n = 0;
    json_array_foreach(list, i, x) n += !*jstr(x, "error");
    if (rc < 0 || !n)
        return rc;
    print_orphans(list, false);
    return confirm(o, e, "%zu object%s will be removed from the storage.", n, plural(n));
}

int ask_native_release(const struct options *o, struct err *e)
{
    CLEANUP_JSON json_t *answer = NULL;
    if (!o->n_args == !o->all) {
        err_set(e, ERR_USAGE, 0, "native release needs the alias of one, or --all");
        return err_hint(e, "`snapferry native list` shows what is in no record");
    }
    int rc = confirm_release(o, e);
    if (rc < 0)
        return rc;
    rc = daemon_ask(o, "native-release", release_args(o, o->dry_run), &answer, e);
    if (rc < 0)
        return rc;
    const json_t *list = jarr(answer, "objects"), *x, *failed = NULL;
    size_t i, done = 0, in_use = 0;
    json_array_foreach(list, i, x)
    {
        in_use += jbool(x, "in_use");
        done += o->dry_run ? !*jstr(x, "error") : jbool(x, "released");
        if (*jstr(x, "error") && !jbool(x, "in_use") && !failed)
            failed = x;
    }
    const size_t all = json_array_size(list) - in_use;
    if (o->json)
        print_answer(o, answer);
    else if (json_array_size(list) && !o->quiet)
        print_orphans(list, !o->dry_run);
    if (!o->json && (o->dry_run || !o->quiet || !failed))
        printf("%zu of %zu object%s %s\n", done, all, plural(all), o->dry_run ? "would be removed" : "removed");
    if (!o->json && in_use && !o->quiet)
        printf("%zu in use by an operation: left alone\n", in_use);
    if (!failed)
        return 0;
    if (jbool(failed, "stale")) /* says all of it */
        return err_plain(e, ERR_SOURCE, EAGAIN, "%s", jstr(failed, "error"));
    err_plain(e, ERR_SOURCE, EIO, "%s %.40s cannot be removed: %s", jstr(failed, "kind"), jstr(failed, "alias"),
              jstr(failed, "error"));
    return *jstr(failed, "hint") ? err_hint(e, "%s", jstr(failed, "hint")) : -EIO;
}

/* ---- one volume ---- */

void print_protection(const json_t *volume)
{
    static const struct {
        enum tint tint;
        const char *word;
    } words[STANDINGS] = {[STANDING_UNPROTECTED] = {TINT_BAD, "NO"},
                          [STANDING_PROTECTED] = {TINT_GOOD, "yes"},
                          [STANDING_GONE] = {TINT_DIM, "gone"},
                          [STANDING_EXCLUDED] = {TINT_DIM, "excluded"}};
    const enum standing s = volume_standing(volume);
    const char *why = jstr(volume, "why");
    char text[1600];
    print_label("Protected");
    printf("%s%s%s", tint_on(words[s].tint), words[s].word, tint_off(words[s].tint));
    if (*why && s != STANDING_PROTECTED)
        snprintf(text, sizeof text, ": %.1400s", why);
    else
        snprintf(text, sizeof text, ", last success %s%s%.1400s", text_ago(jint(volume, "last_success_ns")),
                 *why ? "; " : "", why);
    const unsigned column = LABEL_WIDTH + (unsigned)strlen(words[s].word);
    print_paragraph(stdout, text, column, LABEL_WIDTH);
    if (jint(volume, "next_ns"))
        print_line("Next run", "%s", text_in(jint(volume, "next_ns")));
}

void print_jobs(const json_t *volume)
{
    char names[1000] = "";
    size_t i, n = 0;
    const json_t *name;
    json_array_foreach(jarr(volume, "jobs"), i, name)
    {
        if (n < 900)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%.64s", i ? ", " : "", json_string_value(name));
    }
    print_line("Jobs", "%s", *names ? names : "none");
}
