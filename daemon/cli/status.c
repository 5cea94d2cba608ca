/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * status.c - the state of everything on one screen
 *
 * Order: daemon, repositories, running and queued operations, jobs, volumes, native snapshots, problems. Five parts are
 * lists: rows are added to each in turn while the whole fits the screen, problems first; the verb that lists the
 * omitted ones is printed.
 */
#include "base/time.h"
#include "daemon/cli/daemon.h"

#include <stdarg.h>
#include <string.h>

#define LABEL 14
#define LISTED_MAX 100
#define FULL_WIDTH 60 /* columns; narrower screens omit the contents of repositories */
#define QUEUE_SHOWN 8
#define FINE_SHOWN 5

/* ---- single lines ---- */

static void print_label(FILE *f, const char *name)
{
    fprintf(f, "%s%-*s%s", tint_on(TINT_DIM), *name ? LABEL : 0, name, tint_off(TINT_DIM));
    if (!*name)
        fprintf(f, "%*s", LABEL, "");
}

static void print_tinted(FILE *f, enum tint t, const char *text)
{
    fprintf(f, "%s%s%s", tint_on(t), text, tint_off(t));
}

/* The number of omitted rows, and the verb that lists them. */
static void print_omitted(FILE *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void print_omitted(FILE *f, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fputs("  ", f);
    print_escaped(f, text, 2, 4);
}

/* A wrapped text after a label. */
static void print_labelled(FILE *f, const char *name, const char *text)
{
    print_label(f, name);
    print_paragraph(f, text, LABEL, LABEL);
}

static void show_daemon(FILE *f, const json_t *s)
{
    const json_t *d = jobj(s, "daemon"), *c = jobj(s, "config");
    char line[2048];
    if (jbool(s, "offline")) {
        print_label(f, "Daemon");
        print_tinted(f, TINT_BAD,
                     daemon_silent()      ? "NOT RESPONDING"
                     : daemon_elsewhere() ? "NOT REACHED"
                                          : "NOT RUNNING");
        fputs("; the following is from its records\n", f);
    } else {
        snprintf(line, sizeof line, "snapferryd %s on %s, up %s, pid %lld", jstr(d, "version"), jstr(d, "node"),
                 text_took(jint(d, "started_ns"), now_ns()), (long long)jint(d, "pid"));
        print_labelled(f, "Daemon", line);
        if (jbool(d, "degraded") || jbool(d, "maintenance")) {
            print_label(f, "");
            print_tinted(f, TINT_BAD, jbool(d, "degraded") ? "DEGRADED" : "");
            fputs(jbool(d, "degraded") && jbool(d, "maintenance") ? ", " : "", f);
            print_tinted(f, TINT_WARN, jbool(d, "maintenance") ? "MAINTENANCE" : "");
            fputs(": no operations are started\n", f);
        }
        if (*jstr(d, "news"))
            print_labelled(f, "", jstr(d, "news"));
        if (jint(d, "rebuilt_ns")) {
            snprintf(line, sizeof line,
                     "records rebuilt %s from storage and repositories: %sverifications of before are not known",
                     text_ago(jint(d, "rebuilt_ns")), jbool(d, "holds_unknown") ? "holds and " : "");
            print_labelled(f, "", line);
        }
    }
    print_label(f, "Configuration");
    if (!c || jbool(c, "ok")) {
        print_tinted(f, TINT_GOOD, "ok");
        if (jint(c, "loaded_ns"))
            fprintf(f, ", loaded %s", text_ago(jint(c, "loaded_ns")));
        if (jint(c, "warnings"))
            fprintf(f, "; %lld warning%s: snapferry check-config", (long long)jint(c, "warnings"),
                    jint(c, "warnings") == 1 ? "" : "s");
        fputc('\n', f);
        return;
    }
    print_tinted(f, TINT_BAD, "REFUSED");
    if (jint(c, "loaded_ns"))
        fprintf(f, "; the configuration of %s is in use", text_ago(jint(c, "loaded_ns")));
    fputc('\n', f);
    print_labelled(f, "", jstr(c, "error"));
}

/* True if a problem contains the text. */
static bool problem_contains(const json_t *s, const char *text)
{
    size_t i;
    const json_t *p;
    json_array_foreach(jarr(s, "problems"), i, p) if (strstr(jstr(p, "text"), text)) return true;
    return false;
}

/* "3.4 TiB of 7.3 TiB free" */
static void free_text(const json_t *r, char *out, size_t cap)
{
    if (jint(r, "size") > 0)
        snprintf(out, cap, "%s of %s free", text_size(r, "free"), text_size(r, "size"));
    else
        snprintf(out, cap, strstr(jstr(r, "path"), "://") ? "in S3" : "free space unknown");
}

/* Damage that an earlier verification than the last one found counts as long as its data has not been read again. */
static json_int_t damages_of(const json_t *r)
{
    const json_int_t last = jint(jobj(r, "verified"), "damages"), known = jint(jobj(r, "verification"), "damages");
    return last > known ? last : known;
}

/* What was not done as far as the records go back. */
static const char *since_rebuilt(const json_t *s, const char *never, const char * not, char *out, size_t cap)
{
    const json_int_t at_ns = jint(jobj(s, "daemon"), "rebuilt_ns");
    bool unscanned = false; /* then nobody knows yet whether the records are new, or were lost */
    const json_t *r;
    size_t i;
    json_array_foreach(jarr(s, "repositories"), i, r) unscanned |= jbool(r, "unscanned");
    if (!at_ns && unscanned)
        snprintf(out, cap, "%s since the records began", not );
    else if (at_ns)
        snprintf(out, cap, "%s since the records were rebuilt %s", not, text_ago(at_ns));
    else
        snprintf(out, cap, "%s", never);
    return out;
}

/* "1.2 TiB stored, dedup ratio 12.3; verified 3 h ago (3% read), no damage; all data since 33 d ago; next in 5 h" */
static void show_contents(FILE *f, const json_t *s, const json_t *r)
{
    const json_t *dedup = json_object_get(r, "dedup"), *v = jobj(r, "verified"), *by = jobj(r, "verification");
    const json_int_t damages = damages_of(r);
    const double share = json_number_value(json_object_get(v, "read_ratio"));
    char line[400], never[96], part[40] = "", damage[64] = "no damage";
    size_t n;
    if (json_object_get(r, "stored"))
        n = (size_t)snprintf(line, sizeof line, "%s stored, ", text_size(r, "stored"));
    else if (jint(r, "added") > 0)
        n = (size_t)snprintf(line, sizeof line, "%s stored by this node%s, ", text_size(r, "added"),
                             jint(jobj(s, "daemon"), "rebuilt_ns") ? " since the records were rebuilt" : "");
    else
        n = (size_t)snprintf(line, sizeof line, "stored size unknown, ");
    if (json_is_number(dedup))
        n += (size_t)snprintf(line + n, sizeof line - n, "dedup ratio %.1f; ", json_number_value(dedup));
    else
        n += (size_t)snprintf(line + n, sizeof line - n, "dedup ratio unknown; ");
    if (share < 1)
        snprintf(part, sizeof part, " (%.0f%% read)", share * 100);
    if (damages)
        snprintf(damage, sizeof damage, "%lld DAMAGED", (long long)damages);
    if (v)
        n += (size_t)snprintf(line + n, sizeof line - n, "verified %s%s, %s", text_ago(jint(v, "at_ns")), part, damage);
    else
        n += (size_t)snprintf(line + n, sizeof line - n, "%s",
                              since_rebuilt(s, "never verified", "not verified", never, sizeof never));
    if (v && share < 1 && jint(by, "all_began_ns"))
        n += (size_t)snprintf(line + n, sizeof line - n, "; all data since %s", text_ago(jint(by, "all_began_ns")));
    if (jint(by, "next_ns"))
        snprintf(line + n, sizeof line - n, "; next %s", text_in(jint(by, "next_ns")));
    print_label(f, "");
    fputs(tint_on(damages ? TINT_BAD : TINT_NONE), f);
    print_paragraph(f, line, LABEL, LABEL);
    fputs(tint_off(damages ? TINT_BAD : TINT_NONE), f);
}

/* "2 outcomes of backups not recorded in it yet, since 3 h"; "other nodes: nas2 (scanned 3 min ago)" */
static void show_records(FILE *f, const json_t *r)
{
    const json_t *owed = jobj(r, "owed"), *o;
    char line[1024] = "";
    size_t n = 0, i;
    if (owed) {
        snprintf(line, sizeof line,
                 jint(owed, "backups") == 1 ? "outcome of %lld backup not recorded in it yet, which ended %s"
                                            : "outcomes of %lld backups not recorded in it yet, the first ended %s",
                 (long long)jint(owed, "backups"), text_ago(jint(owed, "since_ns")));
        print_labelled(f, "", line);
    }
    json_array_foreach(jarr(r, "other_nodes"), i, o)
    {
        const bool scanned = jint(o, "scanned_ns");
        n += (size_t)snprintf(line + n, sizeof line - n, "%s%.255s (%s%s)",
                              n ? ", " : "other nodes: ", text_name(jstr(o, "node")),
                              scanned ? "scanned " : "not scanned yet", scanned ? text_ago(jint(o, "scanned_ns")) : "");
        if (n >= sizeof line - 320)
            break;
    }
    if (n)
        print_labelled(f, "", line);
}

/* "quick 12 min ago, full 5 h ago: freed 1.2 GiB; next full in 19 h" */
static size_t maintenance_text(const json_t *m, char *out, size_t cap)
{
    const json_t *quick = jobj(m, "quick"), *full = jobj(m, "full");
    size_t n = (size_t)snprintf(out, cap, "maintenance: ");
    if (jint(quick, "success_ns"))
        n += (size_t)snprintf(out + n, cap - n, "quick %s, ", text_ago(jint(quick, "success_ns")));
    if (jint(full, "success_ns"))
        n += (size_t)snprintf(out + n, cap - n, "full %s, freed %s", text_ago(jint(full, "success_ns")),
                              text_size(m, "freed"));
    else
        n += (size_t)snprintf(out + n, cap - n, "full not yet");
    if (jint(full, "next_ns"))
        n += (size_t)snprintf(out + n, cap - n, "; next full %s", text_in(jint(full, "next_ns")));
    return n;
}

/* When space comes back, or who sees to it. */
static void show_maintenance(FILE *f, const json_t *r)
{
    const json_t *m = jobj(r, "maintenance");
    const char *standing = jstr(m, "standing");
    char line[1400] = "";
    size_t n = 0;
    if (!strcmp(standing, "off"))
        snprintf(line, sizeof line, "maintenance: off (maintenance = no)");
    else if (!strcmp(standing, "other"))
        snprintf(line, sizeof line, "%.1200s", jstr(m, "why"));
    else if (!strcmp(standing, "own"))
        n = maintenance_text(m, line, sizeof line);
    if (n && n < sizeof line && jint(m, "reclaimable") > 0)
        snprintf(line + n, sizeof line - n, "; %s to come back%s%s", text_size(m, "reclaimable"),
                 jint(m, "back_from_ns") ? ", not before " : "",
                 jint(m, "back_from_ns") ? text_local_time(jint(m, "back_from_ns")) : "");
    if (*line)
        print_labelled(f, "", line);
}

#define SEEN_NOW_S 5 /* so long ago is now */

static void show_repositories(FILE *f, const json_t *s)
{
    size_t i;
    const json_t *r;
    json_array_foreach(jarr(s, "repositories"), i, r)
    {
        const json_t *up = json_object_get(r, "up");
        const bool full = jbool(r, "full");
        const char *state = json_is_false(up)       ? "DOWN"
                            : jbool(r, "read_only") ? "READ-ONLY"
                            : full                  ? "FULL"
                            : json_is_true(up)      ? "ok"
                                                    : "not checked yet";
        unsigned width = screen_width(), used = LABEL + 2;
        char more[4600] = "", room[100];
        size_t n = 0;
        if (json_is_false(up) && jint(r, "since_ns"))
            n = (size_t)snprintf(more, sizeof more, "since %s", text_ago(jint(r, "since_ns")));
        else if (jint(r, "seen_ns") && now_ns() - jint(r, "seen_ns") > SEEN_NOW_S * NS_PER_S)
            n = (size_t)snprintf(more, sizeof more, ", last seen %s", text_ago(jint(r, "seen_ns")));
        free_text(r, room, sizeof room);
        if (!json_is_false(up) && width >= FULL_WIDTH)
            n += (size_t)snprintf(more + n, sizeof more - n, ", %s", room);
        const char *name = text_fit(text_name(jstr(r, "name")), width > 60 ? width / 3 : 12);
        used += text_width(name) + (unsigned)strlen(state) + (unsigned)n;
        print_label(f, i ? "" : "Repository");
        fprintf(f, "%s ", name);
        print_tinted(f,
                     json_is_false(up) || full || jbool(r, "read_only") ? TINT_BAD
                     : json_is_true(up)                                 ? TINT_GOOD
                                                                        : TINT_DIM,
                     state);
        if (*jstr(r, "path") && width > used + 10)
            snprintf(more + n, sizeof more - n, ", %s", text_fit(text_name(jstr(r, "path")), width - used - 1));
        fputs(json_is_false(up) ? " " : "", f);
        print_escaped(f, more, used - (unsigned)n - 1, LABEL);
        if (json_is_false(up) && *jstr(r, "why") && !problem_contains(s, jstr(r, "why")))
            print_labelled(f, "", jstr(r, "why"));
        if (width >= FULL_WIDTH || damages_of(r))
            show_contents(f, s, r);
        show_records(f, r);
        if (width >= FULL_WIDTH)
            show_maintenance(f, r);
    }
}

/* "offsite of main: made 3 h ago, 1.2 TiB, copied 3.4 GiB; next in 5 h" */
static void show_copies(FILE *f, const json_t *s)
{
    size_t i;
    const json_t *c;
    json_array_foreach(jarr(s, "copies"), i, c)
    {
        const bool failed = !strcmp(jstr(c, "last_state"), "Failed"), made = jint(c, "done_ns");
        char line[5000], never[96];
        size_t n = (size_t)snprintf(line, sizeof line, "%.127s of %.127s: ", jstr(c, "name"), jstr(c, "repository"));
        if (made)
            n += (size_t)snprintf(line + n, sizeof line - n, "made %s, %s, copied %s", text_ago(jint(c, "done_ns")),
                                  text_size(c, "bytes"), text_size(c, "copied"));
        else
            n += (size_t)snprintf(line + n, sizeof line - n, "%s",
                                  since_rebuilt(s, "not made yet", "not made", never, sizeof never));
        if (failed)
            n += (size_t)snprintf(line + n, sizeof line - n, "; FAILED %s", text_ago(jint(c, "last_ns")));
        if (made && jint(c, "surplus") > 0)
            n += (size_t)snprintf(line + n, sizeof line - n, "; %s not in the repository any more",
                                  text_size(c, "surplus"));
        if (jint(c, "next_ns"))
            n += (size_t)snprintf(line + n, sizeof line - n, "; next %s", text_in(jint(c, "next_ns")));
        snprintf(line + n, sizeof line - n, "; %s", jstr(c, "path"));
        fputs(tint_on(failed ? TINT_BAD : TINT_NONE), f);
        print_labelled(f, i ? "" : "Copy", line);
        fputs(tint_off(failed ? TINT_BAD : TINT_NONE), f);
    }
}

/* The list has the first ones, `slots` counts all; a daemon of version 0.1 does not count what runs. */
static size_t count_all(const json_t *s, const char *list, const char *count)
{
    const size_t listed = json_array_size(jarr(s, list)), all = (size_t)jint(jobj(s, "slots"), count);
    return all > listed ? all : listed;
}

static void show_slots(FILE *f, const json_t *s)
{
    const json_t *slots = jobj(s, "slots");
    char line[512], reserved[64] = "";
    const size_t queued = count_all(s, "queue", "queued"), running = count_all(s, "running", "running");
    if (jint(slots, "restore_reserved"))
        snprintf(reserved, sizeof reserved, ", %lld reserved for restores", (long long)jint(slots, "restore_reserved"));
    if (jbool(s, "offline"))
        snprintf(line, sizeof line, "%zu running, %zu waiting, as last recorded", running, queued);
    else
        snprintf(line, sizeof line, "%lld of %lld used%s; %zu running, %zu waiting", (long long)jint(slots, "used"),
                 (long long)jint(slots, "total"), reserved, running, queued);
    print_labelled(f, "Slots", line);
}

/* Of a daemon of version 0.1, which does not say when: from the volume of the first one that is pruned. */
static int64_t next_of_first(const json_t *s, const json_t *natives)
{
    const json_t *first = json_array_get(jarr(natives, "next"), 0), *v;
    size_t i;
    json_array_foreach(jarr(s, "volumes"), i,
                       v) if (first && !strcmp(jstr(v, "name"), jstr(first, "volume"))) return jint(v, "next_ns");
    return 0;
}

/* Count, space, and what is pruned next. */
static void show_natives(FILE *f, const json_t *s)
{
    const json_t *n = jobj(s, "natives");
    char line[2048], when[80] = "";
    if (!n)
        return;
    const int64_t next_ns = jint(n, "next_ns") ? jint(n, "next_ns") : next_of_first(s, n);
    if (next_ns)
        snprintf(when, sizeof when, " (%s)", text_in(next_ns));
    bool used = jint(n, "used") > 0, some = jint(n, "count") > 0;
    snprintf(line, sizeof line, "%lld snapshot%s%s%s%s%s%s", (long long)jint(n, "count"),
             jint(n, "count") == 1 ? "" : "s", used ? ", " : "", used ? text_size(n, "used") : "",
             some && *jstr(n, "text") ? "; " : "", some ? jstr(n, "text") : "", when);
    print_labelled(f, "Native", line);
    const json_t *kept = jobj(n, "inspection");
    if (!kept)
        return;
    const long long k = (long long)jint(kept, "count"), made = (long long)jint(kept, "intermediates");
    used = jint(kept, "used") > 0;
    snprintf(
        line, sizeof line,
        "%lld snapshot%s of failed backups and %lld intermediate%s for inspection, since %s%s%s; `snapferry native "
        "list` shows them",
        k, k == 1 ? "" : "s", made, made == 1 ? "" : "s", text_ago(jint(kept, "since_ns")), used ? ", " : "",
        used ? text_size(kept, "used") : "");
    print_labelled(f, "Kept", line);
}

/* ---- lists ---- */

struct screen {
    const json_t *answer;
    const json_t *volumes; /* most important ones first, gone and excluded ones last */
    size_t n_volumes, bad; /* without gone and excluded ones */
    size_t standing[STANDINGS];
    json_t *problems; /* without those of unprotected volumes */
};

static const char *name_of(const json_t *op)
{
    return *jstr(op, "volume") ? jstr(op, "volume") : jstr(op, "id");
}

static size_t count_running(const struct screen *x)
{
    return json_array_size(jarr(x->answer, "running"));
}

static void draw_running(FILE *f, const struct screen *x, size_t shown)
{
    const json_t *list = jarr(x->answer, "running"), *op;
    size_t i;
    struct table *t = table_new(NULL, "lslrRL");
    json_array_foreach(list, i, op)
    {
        if (i == shown)
            break;
        const json_t *p = jobj(op, "progress"), *eta = json_object_get(p, "eta_s");
        double rate = json_number_value(json_object_get(p, "rate"));
        table_cell(t, TINT_NONE, "%s", jstr(op, "kind"));
        table_cell(t, TINT_NONE, "%s", name_of(op));
        table_cell(t, tint_of_state(jstr(op, "state")), "%s", jstr(op, "state"));
        table_cell(t, TINT_NONE, "%s", text_percent(p));
        table_cell(t, TINT_NONE, "%s", rate > 0 ? text_rate(rate) : "");
        table_cell(t, TINT_NONE, "%s",
                   json_is_number(eta)        ? text_left(json_number_value(eta))
                   : jint(op, "retry_ns") > 0 ? text_in(jint(op, "retry_ns"))
                                              : "");
    }
    table_print(t, f, "  ");
    const size_t all = count_all(x->answer, "running", "running");
    if (all > shown)
        print_omitted(f, "and %zu more: snapferry operations", all - shown);
}

static size_t count_queue(const struct screen *x)
{
    size_t n = json_array_size(jarr(x->answer, "queue"));
    return n < QUEUE_SHOWN ? n : QUEUE_SHOWN;
}

static void draw_queue(FILE *f, const struct screen *x, size_t shown)
{
    const json_t *list = jarr(x->answer, "queue"), *op;
    size_t i, n = json_array_size(list);
    int64_t all = jint(jobj(x->answer, "slots"), "queued");
    struct table *t = table_new(NULL, "rlse");
    json_array_foreach(list, i, op)
    {
        if (i == shown)
            break;
        const char *why = jstr(op, "why"), *by = jstr(op, "blocked_by");
        table_cell(t, TINT_DIM, "%lld.", (long long)(jint(op, "position") ? jint(op, "position") : (json_int_t)i + 1));
        table_cell(t, TINT_NONE, "%s", jstr(op, "kind"));
        table_cell(t, TINT_NONE, "%s", name_of(op));
        table_cell(t, TINT_NONE, "%s%s%s%s", *by ? "behind " : "", by, *by && *why ? ": " : "", why);
    }
    table_print(t, f, "  ");
    if (all > (int64_t)n)
        n = (size_t)all;
    if (n > shown)
        print_omitted(f, "and %zu more: snapferry operations", n - shown);
}

static bool job_failed(const json_t *job)
{
    const char *state = jstr(jobj(job, "last_result"), "state");
    return jobj(job, "failed") || jint(job, "gone_ns") || !strcmp(state, "Failed") || !strcmp(state, "PartiallyFailed");
}

static void job_cells(struct table *t, const json_t *job, bool offline)
{
    const json_t *last = jobj(job, "last_result"), *failed = jobj(job, "failed");
    char next[256];
    job_next(job, offline, next, sizeof next);
    table_cell(t, TINT_NONE, "%s", jstr(job, "job"));
    table_cell(t, jint(job, "next") || jbool(job, "paused") ? TINT_NONE : TINT_WARN, "%s", next);
    if (failed)
        table_cell(t, TINT_BAD, "not started, %s", text_ago(jint(failed, "at_ns")));
    else if (last)
        table_cell(t, jint(job, "gone_ns") ? TINT_BAD : tint_of_state(jstr(last, "state")), "%s %s%s",
                   jstr(last, "state"), text_ago(jint(last, "ended_ns")),
                   jint(job, "gone_ns") ? ", not whole in the repository" : "");
    else if (jint(job, "last") > 0) /* the first one runs */
        table_cell(t, TINT_NONE, "%s%sbegun %s", jstr(job, "last_state"), *jstr(job, "last_state") ? ", " : "",
                   text_ago(jint(job, "last")));
    else
        table_cell(t, TINT_DIM, jbool(job, "unknown") ? "no run known" : "never run");
}

static size_t count_jobs(const struct screen *x)
{
    return json_array_size(jarr(x->answer, "jobs"));
}

/* A table with its first row in the line of the label. */
static void print_beside_label(FILE *f, struct table *t)
{
    char *text = NULL, indent[LABEL + 1];
    size_t len = 0;
    FILE *m = open_memstream(&text, &len);
    snprintf(indent, sizeof indent, "%*s", LABEL, "");
    table_print(t, m ? m : f, indent);
    if (m && fclose(m) == 0 && len > LABEL)
        fputs(text + LABEL, f);
    free(text);
}

/* Those whose last run failed first. */
static void draw_jobs(FILE *f, const struct screen *x, size_t shown)
{
    const json_t *list = jarr(x->answer, "jobs"), *job, *first = NULL;
    size_t i, n = json_array_size(list), bad = 0, drawn = 0;
    const bool offline = jbool(x->answer, "offline");
    char text[64], next[256];
    if (!n)
        return;
    json_array_foreach(list, i, job)
    {
        bad += job_failed(job);
        if (jint(job, "next") > 0 && (!first || jint(job, "next") < jint(first, "next")))
            first = job;
    }
    print_label(f, "Jobs");
    if (!shown) {
        if (first)
            job_next(first, offline, next, sizeof next);
        snprintf(text, sizeof text, "%zu FAILED", bad);
        fprintf(f, "%zu%s%s%s", n, first ? ", next " : "", first ? next : "", bad ? ", " : "");
        print_tinted(f, TINT_BAD, bad ? text : "");
        fputc('\n', f);
        return;
    }
    struct table *t = table_new(NULL, "seL");
    for (int pass = 0; pass < 2; pass++) {
        json_array_foreach(list, i, job)
        {
            if (job_failed(job) != (pass == 0) || drawn == shown)
                continue;
            job_cells(t, job, offline);
            drawn++;
        }
    }
    print_beside_label(f, t);
    if (n > shown)
        print_omitted(f, "and %zu more: snapferry jobs", n - shown);
}

static size_t count_volumes(const struct screen *x)
{
    const size_t fine = x->n_volumes - x->bad, n = x->bad + (fine < FINE_SHOWN ? fine : FINE_SHOWN),
                 listed = json_array_size(x->volumes);
    return n < listed ? n : listed;
}

static void draw_volumes(FILE *f, const struct screen *x, size_t shown)
{
    size_t bad = x->bad, n = x->n_volumes;
    print_label(f, "Volumes");
    const char *apart = volumes_apart(x->standing);
    if (!n && !*apart)
        fputs("none found yet; see snapferry volumes\n", f);
    else if (!n)
        fprintf(f, "none%s\n", apart);
    else if (!bad)
        fprintf(f, "%zu, %sall protected%s%s\n", n, tint_on(TINT_GOOD), tint_off(TINT_GOOD), apart);
    else
        fprintf(f, "%zu, %s%zu NOT PROTECTED%s%s\n", n, tint_on(TINT_BAD), bad, tint_off(TINT_BAD), apart);
    static const char *const heads[] = {"PROTECTED", "VOLUME", "LAST SUCCESS", "NEXT"};
    struct table *t = table_new(heads, "lsLL");
    for (size_t i = 0; i < shown && i < n; i++)
        volume_cells(t, json_array_get(x->volumes, i));
    table_print(t, f, "  ");
    size_t bad_left = bad > shown ? bad - shown : 0, left = n > shown ? n - shown : 0, fine = left - bad_left;
    const char *more = shown ? " more" : "", *and = shown ? "and " : "";
    if (bad_left && fine)
        print_omitted(f, "%s%zu%s not protected, %zu protected: snapferry volumes", and, bad_left, more, fine);
    else if (bad_left)
        print_omitted(f, "%s%zu%s not protected: snapferry volumes", and, bad_left, more);
    else if (fine)
        print_omitted(f, "and %zu more protected: snapferry volumes", fine);
}

static size_t count_problems(const struct screen *x)
{
    return json_array_size(x->problems);
}

static void draw_problems(FILE *f, const struct screen *x, size_t shown)
{
    const json_t *p;
    size_t i, n = json_array_size(x->problems);
    print_label(f, "Problems");
    if (!n) {
        print_tinted(f, x->bad ? TINT_NONE : TINT_GOOD, x->bad ? "none besides volumes" : "none");
        fputc('\n', f);
        return;
    }
    fprintf(f, "%zu%s\n", n, x->bad ? " besides volumes" : "");
    json_array_foreach(x->problems, i, p)
    {
        if (i == shown)
            break;
        bool bad = strcmp(jstr(p, "severity"), "warning") != 0;
        fprintf(f, "  %s!%s ", tint_on(bad ? TINT_BAD : TINT_WARN), tint_off(TINT_BAD));
        print_paragraph(f, jstr(p, "text"), 4, 4);
        if (*jstr(p, "hint")) {
            fputs("    → ", f);
            print_paragraph(f, jstr(p, "hint"), 6, 6);
        }
    }
    if (n > shown)
        print_omitted(f, "and %zu more: snapferry status --json", n - shown);
}

/* ---- the screen ---- */

/* In the order of the screen; rows are given out by rank. */
static const struct part {
    size_t (*count)(const struct screen *x);
    void (*draw)(FILE *f, const struct screen *x, size_t shown);
    unsigned rank;
} parts[] = {
    {count_running, draw_running, 1}, {count_queue, draw_queue, 4},       {count_jobs, draw_jobs, 3},
    {count_volumes, draw_volumes, 2}, {count_problems, draw_problems, 0},
};
enum { PARTS = sizeof parts / sizeof *parts };

static void draw_screen(FILE *f, const struct screen *x, const size_t shown[PARTS])
{
    const json_t *s = x->answer;
    show_daemon(f, s);
    show_repositories(f, s);
    show_copies(f, s);
    show_slots(f, s);
    parts[0].draw(f, x, shown[0]);
    parts[1].draw(f, x, shown[1]);
    parts[2].draw(f, x, shown[2]);
    parts[3].draw(f, x, shown[3]);
    show_natives(f, s);
    parts[4].draw(f, x, shown[4]);
}

/* Number of lines; SIZE_MAX without memory. */
static size_t screen_height(const struct screen *x, const size_t shown[PARTS])
{
    char *text = NULL;
    size_t len = 0, lines = 0;
    FILE *f = open_memstream(&text, &len);
    if (!f)
        return SIZE_MAX;
    draw_screen(f, x, shown);
    if (fclose(f) == 0)
        for (size_t i = 0; i < len; i++)
            lines += text[i] == '\n';
    else
        lines = SIZE_MAX;
    free(text);
    return lines;
}

/* Gives each list one more row in turn while the whole fits. */
static void fit_screen(const struct screen *x, size_t shown[PARTS])
{
    unsigned rows = screen_rows();
    size_t room = rows > 1 ? rows - 1 : 1; /* one for the prompt */
    bool more = true;
    memset(shown, 0, PARTS * sizeof *shown);
    while (more) {
        more = false;
        for (unsigned rank = 0; rank < PARTS; rank++)
            for (unsigned i = 0; i < PARTS; i++) {
                if (parts[i].rank != rank || shown[i] >= parts[i].count(x) || shown[i] >= LISTED_MAX)
                    continue;
                shown[i]++;
                if (screen_height(x, shown) <= room)
                    more = true;
                else
                    shown[i]--;
            }
    }
}

/* "vg0/db1 is not protected: ..." is printed with the volume. */
static bool told_by_volume(const struct screen *x, const char *text)
{
    const json_t *v;
    size_t i;
    json_array_foreach(x->volumes, i, v)
    {
        const char *name = jstr(v, "name");
        size_t n = strlen(name);
        if (!jbool(v, "protected") && n && !strncmp(text, name, n) && !strncmp(text + n, " is not protected", 17))
            return true;
    }
    return false;
}

/* The list has the first ones, the counts are of all; a daemon of version 0.1 lists all. */
static void status_volumes(const json_t *s, size_t n[STANDINGS])
{
    const json_t *c = jobj(s, "volume_counts");
    if (!c) {
        volumes_count(jarr(s, "volumes"), n);
        return;
    }
    n[STANDING_PROTECTED] = (size_t)jint(c, "protected");
    n[STANDING_UNPROTECTED] = (size_t)jint(c, "unprotected");
    n[STANDING_GONE] = (size_t)jint(c, "gone");
    n[STANDING_EXCLUDED] = (size_t)jint(c, "excluded");
}

static int show_status(const struct options *o, const json_t *s, struct err *e)
{
    const json_t *list = jarr(s, "volumes"), *p;
    struct screen x = {.answer = s};
    CLEANUP_JSON json_t *problems = json_array();
    size_t i, shown[PARTS];
    if (!problems)
        return err_nomem(e);
    x.volumes = list;
    status_volumes(s, x.standing);
    x.bad = x.standing[STANDING_UNPROTECTED];
    x.n_volumes = x.bad + x.standing[STANDING_PROTECTED];
    x.problems = problems;
    json_array_foreach(jarr(s, "problems"), i, p) if (!told_by_volume(&x, jstr(p, "text")))
        json_array_append(problems, (json_t *)(uintptr_t)p);
    fit_screen(&x, shown);
    if (!o->quiet)
        draw_screen(stdout, &x, shown);
    return 0;
}

/* Exit code of --check: 0, ERR_PARTIAL with problems, ERR_NO_DAEMON if the daemon does not answer. */
static int check_status(const json_t *s)
{
    if (jbool(s, "offline"))
        return ERR_NO_DAEMON;
    size_t volumes[STANDINGS];
    status_volumes(s, volumes);
    return volumes[STANDING_UNPROTECTED] || json_array_size(jarr(s, "problems")) || !jbool(jobj(s, "config"), "ok")
               ? ERR_PARTIAL
               : 0;
}

int ask_status(const struct options *o, struct err *e)
{
    CLEANUP_JSON json_t *s = NULL;
    int rc = ask_or_read(o, "status", NULL, &s, e);
    if (rc < 0)
        return rc;
    if (!answered(o, s))
        rc = show_status(o, s, e);
    return rc < 0 || !o->check ? rc : check_status(s);
}
