/* SPDX-License-Identifier: GPL-2.0-or-later */
/* names.c - names that can be typed, for the completion of the shell: what there is, at once and without a word */
#include "cfg/cfg.h"
#include "chunker/kernel.h"
#include "daemon/cli/daemon.h"
#include "daemon/records/records.h"

#include <signal.h>
#include <string.h>

/* Who pressed a key looks at a screen that does nothing. */
#define PATIENCE_S 2
#define ROWS_MAX 1000

static void give_up(int sig)
{
    (void)sig;
    _exit(0);
}

static void say_nothing(enum log_level lvl, const char *line, void *arg)
{
    (void)lvl;
    (void)line;
    (void)arg;
}

/* A name that a line cannot hold, or a terminal should not get, is not offered. */
static void print_name(const char *name)
{
    if (*name && !strcmp(name, text_name(name)))
        puts(name);
}

/* ---- from the daemon or its records ---- */

/* A member of each row of a list; `live`: of those alone that have not ended. */
static void print_rows(const struct options *o, const char *verb, const char *list, const char *member, bool live)
{
    struct err e = ERR_INIT;
    bool paged = !strcmp(verb, "backups") || !strcmp(verb, "operations");
    json_t *args = paged ? json_pack("{s:b, s:i}", "all", 1, "limit", ROWS_MAX) : json_object();
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

static void backups(const struct options *o)
{
    print_rows(o, "backups", "backups", "id", false);
}

static void operations(const struct options *o)
{
    print_rows(o, "operations", "operations", "id", false);
}

static void running(const struct options *o)
{
    print_rows(o, "backups", "backups", "id", true);
    print_rows(o, "operations", "operations", "id", true);
}

static void natives(const struct options *o)
{
    print_rows(o, "natives", "natives", "alias", false);
}

/* The volumes that the records know: `volumes` would look at storage, and storage may be slow. */
static void volumes(const struct options *o)
{
    print_rows(o, "status", "volumes", "name", false);
}

/* ---- from the configuration ---- */

/* Also one with errors has names. */
static struct cfg *configuration(const struct options *o)
{
    struct cfg *c = NULL;
    struct err e = ERR_INIT;
    if (o->config)
        cfg_load(&c, o->config, &e);
    else
        cfg_load_dir(&c, o->config_dir, &e);
    return c;
}

static void jobs(const struct options *o)
{
    CLEANUP(cfg_freep) struct cfg *c = configuration(o);
    const struct cfg_job *j;
    for (unsigned i = 0; c && (j = cfg_job_at(c, i)); i++)
        print_name(j->name);
}

static void classes(const struct options *o)
{
    CLEANUP(cfg_freep) struct cfg *c = configuration(o);
    const struct cfg_class *k;
    for (unsigned i = 0; c && (k = cfg_class_at(c, i)); i++)
        print_name(k->name);
}

static void repositories(const struct options *o)
{
    CLEANUP(cfg_freep) struct cfg *c = configuration(o);
    const struct cfg_repository *r;
    for (unsigned i = 0; c && (r = cfg_repository_at(c, i)); i++)
        print_name(r->name);
}

/* ---- from a repository ---- */

static int print_snapshot(struct snapshot *s, void *arg)
{
    (void)arg;
    print_name(s->id);
    return 0;
}

static void snapshots(const struct options *o)
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
        {"backups", backups},           {"operations", operations}, {"running", running},
        {"natives", natives},           {"volumes", volumes},       {"jobs", jobs},
        {"repositories", repositories}, {"classes", classes},       {"snapshots", snapshots},
    };
    log_to(say_nothing, NULL);
    signal(SIGALRM, give_up);
    alarm(PATIENCE_S);
    for (const char *at = o->complete; *at; at += strspn(at, ",")) {
        size_t n = strcspn(at, ",");
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            if (strlen(kinds[i].kind) == n && !strncmp(kinds[i].kind, at, n))
                kinds[i].print(o);
        at += n;
    }
    alarm(0);
}
