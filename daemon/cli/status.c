/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * status.c - how things are, on one screen
 *
 * Order: what is wrong with the daemon, what runs and waits, which volumes are not protected, what is wrong and what to
 * do. Each part shows a few lines and tells which verb lists the rest.
 */
#include "daemon/cli/daemon.h"

#include <string.h>

#define RUNNING_SHOWN 4
#define QUEUE_SHOWN 3
#define VOLUMES_SHOWN 5
#define PROBLEMS_SHOWN 5

static void label(const char *name)
{
    printf("%s%-14s%s", tint_on(TINT_DIM), name, tint_off(TINT_DIM));
}

static void tinted(enum tint t, const char *text)
{
    printf("%s%s%s", tint_on(t), text, tint_off(t));
}

static void show_daemon(const json_t *s)
{
    const json_t *d = jobj(s, "daemon"), *c = jobj(s, "config");
    label("Daemon");
    if (jbool(s, "offline")) {
        tinted(TINT_BAD, "NOT RUNNING");
        puts("; what follows is read from its files");
    } else {
        printf("snapferryd %s on %s, up %s, pid %lld", text_name(jstr(d, "version")), text_name(jstr(d, "node")),
               text_seconds((double)(clock_ns() - jint(d, "started_ns")) * 1e-9), (long long)jint(d, "pid"));
        if (jbool(d, "maintenance"))
            tinted(TINT_WARN, ", MAINTENANCE: nothing new is started");
        if (jbool(d, "degraded"))
            tinted(TINT_BAD, ", DEGRADED: records cannot be written");
        putchar('\n');
    }
    label("Configuration");
    if (!c || jbool(c, "ok")) {
        tinted(TINT_GOOD, "ok");
        if (jint(c, "loaded_ns"))
            printf(", loaded %s", text_ago(jint(c, "loaded_ns")));
        if (jint(c, "warnings"))
            printf(", %lld warnings: snapferry check-config", (long long)jint(c, "warnings"));
        putchar('\n');
    } else {
        tinted(TINT_BAD, "REFUSED");
        printf(" %s; the one before is in force\n", text_ago(jint(c, "loaded_ns")));
        printf("%14s", "");
        print_paragraph(stdout, jstr(c, "error"), 14, 14);
    }
}

static void show_repositories(const json_t *s)
{
    size_t i;
    const json_t *r;
    json_array_foreach(jarr(s, "repositories"), i, r)
    {
        const json_t *up = json_object_get(r, "up");
        label(i ? "" : "Repository");
        printf("%s ", text_fit(text_name(jstr(r, "name")), 20));
        tinted(json_is_false(up)  ? TINT_BAD
               : json_is_true(up) ? TINT_GOOD
                                  : TINT_DIM,
               json_is_false(up)  ? "DOWN"
               : json_is_true(up) ? "ok"
                                  : "not looked at yet");
        if (json_is_false(up) && jint(r, "since_ns"))
            printf(" since %s", text_ago(jint(r, "since_ns")));
        printf(" %s\n", text_fit(text_name(jstr(r, "path")), 36));
        if (json_is_false(up) && *jstr(r, "why")) {
            printf("%14s", "");
            print_paragraph(stdout, jstr(r, "why"), 14, 14);
        }
    }
}

static const char *volume_of(const json_t *op)
{
    return *jstr(op, "volume") ? jstr(op, "volume") : jstr(op, "id");
}

static void show_running(const json_t *s)
{
    const json_t *list = jarr(s, "running"), *slots = jobj(s, "slots"), *op;
    size_t i, n = json_array_size(list);
    label("Slots");
    printf("%lld of %lld used", (long long)jint(slots, "used"), (long long)jint(slots, "total"));
    if (jint(slots, "restore_reserved"))
        printf(", %lld for restores only", (long long)jint(slots, "restore_reserved"));
    printf("; %zu at work, %zu waiting\n", n, json_array_size(jarr(s, "queue")));
    struct table *t = table_new(NULL, "lslrrl");
    json_array_foreach(list, i, op)
    {
        if (i == RUNNING_SHOWN)
            break;
        const json_t *p = jobj(op, "progress"), *eta = json_object_get(p, "eta_s");
        double rate = json_number_value(json_object_get(p, "rate"));
        table_cell(t, TINT_NONE, "%s", jstr(op, "kind"));
        table_cell(t, TINT_NONE, "%s", volume_of(op));
        table_cell(t, tint_of_state(jstr(op, "state")), "%s", jstr(op, "state"));
        table_cell(t, TINT_NONE, "%s", text_percent(p));
        table_cell(t, TINT_NONE, "%s", rate > 0 ? text_rate(rate) : "");
        table_cell(t, TINT_NONE, "%s%s", json_is_number(eta) ? text_seconds(json_number_value(eta)) : "",
                   json_is_number(eta) ? " left" : "");
    }
    table_print(t, stdout, "  ");
    if (n > RUNNING_SHOWN)
        printf("  and %zu more: snapferry operations\n", n - RUNNING_SHOWN);
}

static void show_queue(const json_t *s)
{
    const json_t *list = jarr(s, "queue"), *op;
    size_t i, n = json_array_size(list);
    struct table *t = table_new(NULL, "rlse");
    json_array_foreach(list, i, op)
    {
        if (i == QUEUE_SHOWN)
            break;
        const char *why = jstr(op, "why"), *by = jstr(op, "blocked_by");
        table_cell(t, TINT_DIM, "%lld.", (long long)(jint(op, "position") ? jint(op, "position") : (json_int_t)i + 1));
        table_cell(t, TINT_NONE, "%s", jstr(op, "kind"));
        table_cell(t, TINT_NONE, "%s", volume_of(op));
        table_cell(t, TINT_NONE, "%s%s%s%s", *by ? "behind " : "", by, *by && *why ? ": " : "", why);
    }
    table_print(t, stdout, "  ");
    if (n > QUEUE_SHOWN)
        printf("  and %zu more: snapferry operations --state Queued\n", n - QUEUE_SHOWN);
}

static int show_volumes(const json_t *s)
{
    const json_t *list = jarr(s, "volumes");
    size_t n = json_array_size(list), bad = 0;
    CLEANUP_FREE const json_t **sorted = calloc(n + 1, sizeof *sorted);
    if (!sorted)
        return -1;
    sort_volumes(list, sorted);
    for (size_t i = 0; i < n; i++)
        bad += !jbool(sorted[i], "protected");
    label("Volumes");
    if (!n)
        puts("none known yet: snapferry volumes looks for them");
    else if (!bad)
        printf("%s%zu, all protected%s\n", tint_on(TINT_GOOD), n, tint_off(TINT_GOOD));
    else
        printf("%zu, %s%zu NOT PROTECTED%s\n", n, tint_on(TINT_BAD), bad, tint_off(TINT_BAD));
    static const char *const heads[] = {"PROTECTED", "VOLUME", "LAST SUCCESS", "NEXT"};
    struct table *t = table_new(heads, "lsll");
    for (size_t i = 0; i < n && i < VOLUMES_SHOWN; i++)
        volume_cells(t, sorted[i]);
    table_print(t, stdout, "  ");
    if (n > VOLUMES_SHOWN)
        printf("  and %zu more: snapferry volumes\n", n - VOLUMES_SHOWN);
    return 0;
}

static void show_natives(const json_t *s)
{
    const json_t *n = jobj(s, "natives");
    if (!n)
        return;
    label("Native");
    char line[1024];
    snprintf(line, sizeof line, "%lld snapshots%s%s%s%s", (long long)jint(n, "count"), jint(n, "used") > 0 ? ", " : "",
             jint(n, "used") > 0 ? text_bytes((uint64_t)jint(n, "used")) : "", *jstr(n, "text") ? "; " : "",
             jstr(n, "text"));
    print_paragraph(stdout, line, 14, 14);
}

static void show_problems(const json_t *s)
{
    const json_t *list = jarr(s, "problems"), *p;
    size_t i, n = json_array_size(list);
    label("Problems");
    if (!n) {
        tinted(TINT_GOOD, "none");
        putchar('\n');
        return;
    }
    printf("%zu\n", n);
    json_array_foreach(list, i, p)
    {
        if (i == PROBLEMS_SHOWN) {
            printf("  and %zu more: snapferry status --json\n", n - PROBLEMS_SHOWN);
            break;
        }
        bool bad = strcmp(jstr(p, "severity"), "warning") != 0;
        printf("  %s!%s ", tint_on(bad ? TINT_BAD : TINT_WARN), tint_off(TINT_BAD));
        print_paragraph(stdout, jstr(p, "text"), 4, 4);
        if (*jstr(p, "hint")) {
            fputs("    → ", stdout);
            print_paragraph(stdout, jstr(p, "hint"), 6, 6);
        }
    }
}

int ask_status(const struct options *o, struct err *e)
{
    CLEANUP_JSON json_t *s = NULL;
    int rc = ask_or_read(o, "status", NULL, &s, e);
    if (rc < 0)
        return rc;
    if (o->json) {
        print_answer(o, s);
        return 0;
    }
    if (jbool(s, "offline") && !o->quiet)
        log_warning("%s", jstr(s, "offline_why"));
    show_daemon(s);
    show_repositories(s);
    show_running(s);
    show_queue(s);
    if (show_volumes(s) < 0)
        return err_nomem(e);
    show_natives(s);
    show_problems(s);
    return 0;
}
