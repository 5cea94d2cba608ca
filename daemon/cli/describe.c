/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * describe.c - a backup, operation, native snapshot or volume, as far as people need it
 *
 * Everything that is recorded of it follows with --verbose (document.c), or is in --json.
 */
#include "daemon/cli/document.h"
#include "daemon/cli/labels.h"
#include "daemon/cli/live.h"
#include "daemon/cli/results.h"

#include <errno.h>
#include <string.h>

#define ATTEMPTS_SHOWN 4

/* A member that is a text. */
static void print_member(const char *label, const json_t *doc, const char *member)
{
    if (*jstr(doc, member))
        print_line(label, "%s", jstr(doc, member));
}

static void print_time(const char *label, const json_t *doc, const char *member)
{
    const int64_t ns = jint(doc, member);
    if (ns > 0)
        print_line(label, "%s (%s)", text_local_time(ns), text_ago(ns));
}

/* What has ended stays as it ended; what was found since counts. */
static void print_gone(const json_t *doc)
{
    char text[1200];
    if (!jint(doc, "gone_ns"))
        return;
    print_label("Missing");
    fputs(tint_on(TINT_BAD), stdout);
    print_paragraph(stdout, gone_text(doc, text, sizeof text), LABEL_WIDTH, LABEL_WIDTH);
    fputs(tint_off(TINT_BAD), stdout);
}

/* What is no longer in the repository, as it may be; and whether anything is left to restore. */
static void print_lost(const json_t *doc)
{
    char text[500];
    const char *lost = lost_text(doc, text, sizeof text);
    if (*lost)
        print_line("Expired", "%s", lost);
    else if (jbool(jobj(doc, "details"), "lost") && !jint(doc, "gone_ns"))
        print_line("Expired", "its snapshot is no longer in the repository");
}

/* "Completed in 2.6 s", "Retrying", with the reason if there is one. */
static void print_state(const json_t *doc)
{
    const char *state = jstr(doc, "state"), *why = jstr(doc, "why");
    const int64_t to = jint(doc, "ended_ns");
    char text[1600];
    print_label("State");
    printf("%s%s%s", tint_on(tint_of_state(state)), text_name(state), tint_off(tint_of_state(state)));
    const char *took = doc_took(doc);
    if (to > 0 && *took)
        printf(" in %s", took);
    snprintf(text, sizeof text, "%s%.1400s", *why ? ": " : "", why);
    print_paragraph(stdout, text, LABEL_WIDTH + text_width(text_name(state)), LABEL_WIDTH);
    print_gone(doc);
    print_lost(doc);
    if (jint(doc, "retry_ns") > 0)
        print_line("Next attempt", "%s (%s)", text_local_time(jint(doc, "retry_ns")), text_in(jint(doc, "retry_ns")));
    if (jint(doc, "position") > 0)
        print_line("Position", "%lld%s%s", (long long)jint(doc, "position"), *jstr(doc, "blocked_by") ? ", after " : "",
                   jstr(doc, "blocked_by"));
    if (jint(doc, "gives_up_ns") > 0)
        print_line("Gives up", "%s (%s)", text_local_time(jint(doc, "gives_up_ns")), text_in(jint(doc, "gives_up_ns")));
}

static void print_times(const json_t *doc)
{
    const int64_t recorded_ns = jint(doc, "recorded_ns");
    if (!recorded_ns) /* else its start is all that the repository has */
        print_time("Created", doc, "created_ns");
    print_time("Started", doc, "started_ns");
    print_time("Ended", doc, "ended_ns");
    if (recorded_ns)
        print_line("Recorded", "%s (%s), by a scan of the repository", text_local_time(recorded_ns),
                   text_ago(recorded_ns));
}

/* One line, as by wait. */
static void print_progress(const json_t *doc)
{
    struct shown s;
    char line[1024];
    if (!jobj(doc, "progress"))
        return;
    shown_from_json(&s, jobj(doc, "progress"));
    progress_line(&s, SCREEN_ENDLESS, line, sizeof line);
    print_label("Progress");
    print_escaped(stdout, line, LABEL_WIDTH, LABEL_WIDTH);
}

static void print_failure(const json_t *doc)
{
    const json_t *error = jobj(doc, "error");
    char text[2200];
    if (!error)
        return;
    snprintf(text, sizeof text, "%.1500s (%.60s%s%.60s)", jstr(error, "message"), jstr(error, "class"),
             *jstr(error, "stage") ? " in " : "", jstr(error, "stage"));
    print_label("Error");
    fputs(tint_on(TINT_BAD), stdout);
    print_paragraph(stdout, text, LABEL_WIDTH, LABEL_WIDTH);
    fputs(tint_off(TINT_BAD), stdout);
    if (*jstr(error, "hint")) {
        printf("%*s→ ", LABEL_WIDTH, "");
        print_paragraph(stdout, jstr(error, "hint"), LABEL_WIDTH + 2, LABEL_WIDTH + 2);
    }
}

/* ---- operations ---- */

static void print_subject(const json_t *op)
{
    const char *kind = jstr(op, "kind"), *volume = jstr(op, "volume");
    if (!strcmp(kind, "backup") && *volume)
        print_line("Backup of", "%s", volume);
    else if (!strcmp(kind, "restore") && *volume)
        print_line("Restore of", "%s", volume);
    else
        print_line("Task", "%s", result_task(op));
    print_member(!strcmp(kind, "restore") ? "Restore" : "Backup", op, "backup");
    print_member("Storage class", op, "class");
    print_member("Repository", op, "repository");
}

/* Why all data was read, and not what changed; "": no reason is recorded. */
static const char *full_text(const json_t *op)
{
    return *jstr(op, "fullWhy") ? jstr(op, "fullWhy") : full_reason_text(jstr(op, "fullReason"));
}

/* Whether all data was read, or what changed since which snapshot, and why. */
static void print_reading(const json_t *op)
{
    const json_t *r = jobj(op, "result"), *incremental = jobj(r, "incremental");
    const char *parent = jstr(op, "parentSnapshot"), *fallback = jstr(r, "fallbackReason"), *full = full_text(op);
    char data[200] = "";
    if (json_object_get(r, "readBytes"))
        snprintf(data, sizeof data, "%s of %s read", text_size(r, "readBytes"), text_size(r, "totalBytes"));
    if (*parent && *fallback)
        print_line("Reading", "all data, the list of changes was not used: %s%s%s", fallback, *data ? "; " : "", data);
    else if (*parent && (!r || jbool(incremental, "used")))
        print_line("Reading", "incremental since snapshot %.16s, %s changed in %lld range%s%s%s", parent,
                   text_size(op, "listedBytes"), (long long)jint(op, "listedRanges"),
                   jint(op, "listedRanges") == 1 ? "" : "s", *data ? "; " : "", data);
    else if (*full)
        print_line("Reading", "all data: %s%s%s", full, *data ? "; " : "", data);
    else if (*data)
        print_line("Reading", "%s", data);
    if (jint(incremental, "sampledBytes") > 0)
        print_line("", "%s of what is unchanged read and compared (verify-sample)",
                   text_size(incremental, "sampledBytes"));
}

static void print_backup_result(const json_t *r)
{
    if (json_object_get(r, "incrementalBytes"))
        print_line("Stored", "%s new%s%s%s", text_size(r, "incrementalBytes"), jint(r, "uploadedBytes") > 0 ? ", " : "",
                   jint(r, "uploadedBytes") > 0 ? text_size(r, "uploadedBytes") : "",
                   jint(r, "uploadedBytes") > 0 ? " written" : "");
    if (jint(r, "badBytes") > 0)
        print_line("Unreadable", "%s, stored as zeros", text_size(r, "badBytes"));
    print_member("Snapshot", r, "snapshotID");
    print_member("Source", r, "as");
}

static void print_native_of(const json_t *op)
{
    const char *kept = jstr(op, "retainedSnapshot"), *taken = jstr(jobj(op, "details"), "native");
    const json_t *x = jobj(jobj(op, "details"), "exposure");
    if (*kept)
        print_line("Native snapshot", "%s, kept", kept);
    else if (*taken)
        print_line("Native snapshot", "%s%s", taken, jint(op, "ended_ns") > 0 ? ", no longer on the storage" : "");
    if (*jstr(x, "mechanism"))
        print_line("Exposed as", "%s, %s%s%s%s%s", jstr(x, "mechanism"),
                   jbool(x, "read_only") ? "read-only" : "writable", *jstr(x, "class") ? ", class " : "",
                   jstr(x, "class"), *jstr(x, "where") ? ", in " : "", jstr(x, "where"));
}

static void print_mover(const json_t *op)
{
    const json_t *m = jobj(op, "mover");
    const char *outcome = jstr(m, "outcome");
    char memory[64] = ""; /* of a short run under systemd it may not be known */
    if (jint(m, "memory_peak") > 0)
        snprintf(memory, sizeof memory, ", at most %s of memory", text_size(m, "memory_peak"));
    if (json_object_get(m, "memory_peak"))
        print_line("Mover", "%s of CPU%s%s%s", text_seconds(json_number_value(json_object_get(m, "cpu_seconds"))),
                   memory, *outcome && strcmp(outcome, "ok") != 0 ? ", ended by " : "",
                   strcmp(outcome, "ok") != 0 ? outcome : "");
}

/* The errors of earlier attempts, the last ones. */
static void print_attempts(const json_t *op)
{
    const json_t *list = jarr(jobj(op, "details"), "attempts"), *a;
    const int64_t last = jint(jobj(op, "error"), "at_ns");
    const size_t n = json_array_size(list);
    size_t i;
    if (jint(op, "attempt") > 1)
        print_line("Attempt", "%lld", (long long)jint(op, "attempt"));
    json_array_foreach(list, i, a)
    {
        if (i + ATTEMPTS_SHOWN >= n && jint(a, "at_ns") != last)
            print_line("Earlier error", "%s (%s): %s", text_local_time(jint(a, "at_ns")), text_ago(jint(a, "at_ns")),
                       jstr(a, "message"));
    }
}

static void describe_operation(const json_t *op)
{
    const char *kind = jstr(op, "kind");
    const json_t *details = jobj(op, "details");
    print_subject(op);
    print_state(op);
    print_progress(op);
    print_times(op);
    print_attempts(op);
    print_member("Configuration", op, "config_kept");
    if (!strcmp(kind, "backup")) {
        print_reading(op);
        print_backup_result(jobj(op, "result"));
        print_native_of(op);
    } else {
        print_member("Target", details, "target_name");
        print_member("Target state", op, "target_state");
        print_member("Restored from", details, "from");
        result_print_labelled(op);
        if (!strcmp(kind, "maintain"))
            maintenance_print(op, true);
    }
    print_mover(op);
    print_failure(op);
    print_member("Id", op, "id");
}

/* ---- backups ---- */

/* Below the line of an operation. */
static void note_full(struct table *t, const json_t *op)
{
    const char *fallback = jstr(jobj(op, "result"), "fallbackReason");
    char text[1300];
    snprintf(text, sizeof text, "all data, not only what changed: %.1200s", *fallback ? fallback : full_text(op));
    if (*fallback || *full_text(op))
        table_note(t, TINT_DIM, text);
}

static void print_operations(const json_t *list)
{
    static const char *const heads[] = {"STATE", "VOLUME", "DONE", "SIZE", "NEW", "ID"};
    struct table *t = table_new(heads, "lsrRRS");
    size_t i;
    const json_t *op;
    json_array_foreach(list, i, op)
    {
        const bool completed = !strcmp(jstr(op, "state"), "Completed");
        table_cell(t, tint_of_state(jstr(op, "state")), "%s", jstr(op, "state"));
        table_cell(t, TINT_NONE, "%s", *jstr(op, "volume") ? jstr(op, "volume") : result_task(op));
        table_cell(t, TINT_NONE, "%s", completed ? "100%" : text_percent(jobj(op, "progress")));
        table_cell(t, TINT_NONE, "%s", result_size(op));
        table_cell(t, TINT_NONE, "%s", result_new(op));
        table_cell(t, TINT_NONE, "%s", jstr(op, "id"));
        note_full(t, op);
    }
    if (table_rows(t))
        puts("\nOperations");
    table_print(t, stdout, "  ");
    json_array_foreach(list, i, op)
    {
        if (!jobj(op, "error"))
            continue;
        printf("\n%s\n", text_name(*jstr(op, "volume") ? jstr(op, "volume") : jstr(op, "id")));
        print_failure(op);
    }
}

/* "4: 1 completed, 1 failed" */
static void print_volumes(const json_t *b)
{
    const long long total = jint(b, "total"), canceled = jint(b, "canceled");
    char text[200];
    int n = snprintf(text, sizeof text, "%lld: %lld completed", total, (long long)jint(b, "completed"));
    if (jint(b, "failed") > 0)
        n += snprintf(text + n, sizeof text - (size_t)n, ", %lld failed", (long long)jint(b, "failed"));
    if (canceled > 0)
        snprintf(text + n, sizeof text - (size_t)n, ", %lld canceled", canceled);
    print_line("Volumes", "%s", text);
    if (jint(b, "size") > 0)
        print_line("Data", "%s%s%s%s", text_size(b, "size"), json_object_get(b, "new") ? ", " : "",
                   json_object_get(b, "new") ? text_size(b, "new") : "", json_object_get(b, "new") ? " new" : "");
}

/* Repositories that have its outcome, those that do not have it yet, and those that will not get it. */
static void print_recorded(const json_t *recorded, const json_t *given_up)
{
    const char *name;
    const json_t *v;
    json_object_foreach((json_t *)(uintptr_t)recorded, name, v)
    {
        const char *why = jstr(given_up, name);
        if (*why)
            print_line("Outcome", "not recorded in repository %s: %s", name, why);
        else
            print_line("Outcome", "%s in repository %s", json_is_true(v) ? "recorded" : "not yet recorded", name);
    }
}

/* Native snapshots that the end of the backup did not find. */
static void print_missing(const json_t *seen)
{
    const char *alias;
    size_t i;
    const json_t *v;
    json_array_foreach(seen, i, v)
    {
        alias = jstr(v, "alias");
        if (strcmp(jstr(v, "state"), "present") != 0)
            print_line("Native snapshot", "%s was %s when the backup finished", alias, jstr(v, "state"));
    }
}

static void print_skipped(const json_t *b)
{
    size_t i;
    const json_t *v;
    json_array_foreach(jarr(jobj(b, "details"), "skipped"), i, v)
        print_line(i ? "" : "Skipped", "%s: %s", jstr(v, "volume"), jstr(v, "reason"));
}

static void describe_backup(const json_t *b)
{
    const bool restore = !strcmp(jstr(b, "kind"), "restore");
    const size_t kept = json_array_size(jarr(b, "retainedSnapshots"));
    print_member(restore ? "Restore" : "Backup", b, "id");
    print_state(b);
    if (strcmp(jstr(b, "velero"), jstr(b, "state")) != 0)
        print_member("Velero's name", b, "velero");
    print_progress(b);
    print_member("Job", b, "job");
    print_member("Description", b, "description");
    print_member("Retry of", b, "retry_of");
    print_member("Node", b, "node");
    print_times(b);
    print_volumes(b);
    print_member("Target", b, "target");
    if (restore)
        print_member("Target state", json_array_get(jarr(b, "operations"), 0), "target_state");
    print_member("Restored from", b, "from");
    if (kept)
        print_line("Natives", "%zu kept: snapferry native list", kept);
    print_missing(jarr(b, "natives_seen"));
    print_recorded(jobj(b, "recorded"), jobj(b, "not_recorded"));
    print_skipped(b);
    print_failure(b);
    print_operations(jarr(b, "operations"));
    if (jint(jobj(b, "omitted"), "operations") > 0)
        printf("  and %lld more: snapferry operations --all --backup %s\n",
               (long long)jint(jobj(b, "omitted"), "operations"), text_name(jstr(b, "id")));
}

/* ---- native snapshots and volumes ---- */

static void describe_native(const json_t *n)
{
    const json_t *d = jobj(n, "details"), *kept = jobj(n, "kept");
    print_member("Native snapshot", n, "alias");
    print_member("Volume", n, "volume");
    print_member("Storage class", n, "class");
    print_member("State", n, "state");
    print_time("Taken", n, "created_ns");
    print_line("Size", "%s%s%s%s", text_size(n, "size"), jint(n, "used") > 0 ? ", " : "",
               jint(n, "used") > 0 ? text_size(n, "used") : "", jint(n, "used") > 0 ? " held by it alone" : "");
    print_member("Backup", n, "backup");
    if (jbool(d, "moved"))
        print_line("Data", "in snapshot %.16s of the repository", jstr(d, "snapshot"));
    else
        print_line("Data", "not known to be complete in a repository");
    print_member("Kept as", n, "reasons");
    print_member("", n, "why");
    if (jbool(n, "hold"))
        print_line("Hold", "%s", *jstr(n, "note") ? jstr(n, "note") : "yes");
    if (kept)
        print_line("Inspection", "kept since %s: %s", text_ago(jint(kept, "since_ns")), jstr(kept, "why"));
    print_member("Intermediate", kept, "path");
    print_member("Stored as", n, "handle");
}

static void describe_volume(const json_t *v)
{
    print_line("Volume", "%s%s%s", jstr(v, "name"), jint(v, "size") > 0 ? ", " : "",
               jint(v, "size") > 0 ? text_size(v, "size") : "");
    print_member("Storage class", v, "class");
    print_jobs(v);
    print_protection(v);
    if (*jstr(v, "last_backup"))
        print_line("Last backup", "%s, %s", jstr(v, "last_backup"), jstr(v, "last_state"));
    print_line("Natives", "%lld%s%s", (long long)jint(v, "natives"), jint(v, "used") > 0 ? ", " : "",
               jint(v, "used") > 0 ? text_size(v, "used") : "");
    print_failure(v);
    print_member("Id", v, "id");
    print_line("Settings", "snapferry explain %s", jstr(v, "name"));
}

int ask_describe(const struct options *o, struct err *e)
{
    static const struct {
        const char *kind;
        void (*print)(const json_t *doc);
    } pages[] = {{"backup", describe_backup},
                 {"operation", describe_operation},
                 {"native", describe_native},
                 {"volume", describe_volume}};
    CLEANUP_JSON json_t *answer = NULL;
    int rc = ask_or_read(o, "describe", json_pack("{s:s}", "id", o->args[0]), &answer, e);
    if (rc < 0)
        return rc;
    if (answered(o, answer))
        return 0;
    const char *kind = jstr(answer, "kind");
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
        if (!strcmp(kind, pages[i].kind))
            pages[i].print(jobj(answer, kind));
    if (o->verbose) {
        puts("\nRecord");
        print_document(jobj(answer, kind));
    }
    return 0;
}
