/* SPDX-License-Identifier: GPL-2.0-or-later */
/* names.c - names for the completion of the shell, within two seconds, without messages */
#include "cfg/cfg.h"
#include "chunker/kernel.h"
#include "daemon/cli/daemon.h"
#include "daemon/records/records.h"

#include <signal.h>
#include <string.h>

#define TIME_LIMIT_S 2
#define ROWS_MAX 1000

static void exit_on_alarm(int sig)
{
    (void)sig;
    _exit(0);
}

static void ignore_log(enum log_level lvl, const char *line, void *arg)
{
    (void)lvl;
    (void)line;
    (void)arg;
}

/* Names with control characters are not offered. */
static void print_name(const char *name)
{
    if (*name && !strcmp(name, text_name(name)))
        puts(name);
}

/* ---- from the daemon or its records ---- */

/* A member of each row of a list; `live`: only of those that have not ended. */
static void print_rows(const struct options *o, const char *verb, const char *list, const char *member, bool live)
{
    struct err e = ERR_INIT;
    bool paged = !strcmp(verb, "backups") || !strcmp(verb, "operations");
    json_t *args = paged                      ? json_pack("{s:b, s:i}", "all", 1, "limit", ROWS_MAX)
                   : !strcmp(verb, "volumes") ? json_pack("{s:b, s:i}", "recorded", 1, "limit", ROWS_MAX)
                                              : json_object();
    CLEANUP_JSON json_t *answer = NULL;
    if (ask_or_read(o, verb, args, &answer, &e) < 0)
        return;
    size_t i;
    const json_t *row;
    json_array_foreach(jarr(answer, list), i, row)
    {
        if (!live || !state_terminal(jstr(row, "state")))
            print_name(jstr(row, member));
    }
}

static void complete_backups(const struct options *o)
{
    print_rows(o, "backups", "backups", "id", false);
}

static void complete_operations(const struct options *o)
{
    print_rows(o, "operations", "operations", "id", false);
}

static void complete_running(const struct options *o)
{
    print_rows(o, "backups", "backups", "id", true);
    print_rows(o, "operations", "operations", "id", true);
}

static void complete_natives(const struct options *o)
{
    print_rows(o, "natives", "natives", "alias", false);
}

static void complete_orphans(const struct options *o)
{
    print_rows(o, "natives", "orphans", "alias", false);
}

/* Recorded ones: without an access to storage, which may be slow. */
static void complete_volumes(const struct options *o)
{
    print_rows(o, "volumes", "volumes", "name", false);
}

/* ---- from the configuration ---- */

/* Also with errors. */
static struct cfg *load_configuration(const struct options *o)
{
    struct cfg *c = NULL;
    struct err e = ERR_INIT;
    if (o->config)
        cfg_load(&c, o->config, &e);
    else
        cfg_load_dir(&c, o->config_dir, &e);
    return c;
}

static void complete_jobs(const struct options *o)
{
    CLEANUP(cfg_freep) struct cfg *c = load_configuration(o);
    const struct cfg_job *j;
    for (unsigned i = 0; c && (j = cfg_job_at(c, i)); i++)
        print_name(j->name);
}

static void complete_classes(const struct options *o)
{
    CLEANUP(cfg_freep) struct cfg *c = load_configuration(o);
    const struct cfg_class *k;
    for (unsigned i = 0; c && (k = cfg_class_at(c, i)); i++)
        print_name(k->name);
}

static void complete_repositories(const struct options *o)
{
    CLEANUP(cfg_freep) struct cfg *c = load_configuration(o);
    const struct cfg_repository *r;
    for (unsigned i = 0; c && (r = cfg_repository_at(c, i)); i++)
        print_name(r->name);
}

static void complete_copies(const struct options *o)
{
    CLEANUP(cfg_freep) struct cfg *c = load_configuration(o);
    const struct cfg_copy *k;
    for (unsigned i = 0; c && (k = cfg_copy_at(c, i)); i++)
        print_name(k->name);
}

/* ---- from a repository ---- */

static int print_snapshot(struct snapshot *s, void *arg)
{
    (void)arg;
    print_name(s->id);
    return 0;
}

static void complete_snapshots(const struct options *o)
{
    struct err e = ERR_INIT;
    CLEANUP(repo_freep) struct repo *r = NULL;
    unsigned unreadable = 0;
    if (!o->repo || kernels_check(&e) < 0 || cli_open_repo(o, &r, &e) < 0)
        return;
    puts("latest");
    snapshots_each(r, NULL, true, print_snapshot, NULL, &unreadable, &e);
}

void names_print(const struct options *o)
{
    static const struct {
        const char *kind;
        void (*print)(const struct options *o);
    } kinds[] = {
        {"backups", complete_backups},           {"operations", complete_operations},
        {"running", complete_running},           {"natives", complete_natives},
        {"volumes", complete_volumes},           {"jobs", complete_jobs},
        {"repositories", complete_repositories}, {"classes", complete_classes},
        {"snapshots", complete_snapshots},       {"copies", complete_copies},
        {"orphans", complete_orphans},
    };
    log_to(ignore_log, NULL);
    signal(SIGALRM, exit_on_alarm);
    alarm(TIME_LIMIT_S);
    for (const char *at = o->complete; *at; at += strspn(at, ",")) {
        size_t n = strcspn(at, ",");
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            if (strlen(kinds[i].kind) == n && !strncmp(kinds[i].kind, at, n))
                kinds[i].print(o);
        at += n;
    }
    alarm(0);
}
