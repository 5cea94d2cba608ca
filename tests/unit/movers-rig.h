/* SPDX-License-Identifier: GPL-2.0-or-later */
/* movers-rig.h - a daemon's half for tests of movers: an event loop, directories, a repository, and what was heard */
#ifndef SNAPFERRY_TESTS_UNIT_MOVERS_RIG_H
#define SNAPFERRY_TESTS_UNIT_MOVERS_RIG_H

#include "tests/unit/test.h"

#include "base/crash.h"
#include "daemon/movers/movers.h"
#include "repo/format.h"
#include "repo/repo.h"
#include "repo/snapshot.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RIG_PASSWORD "correct horse"

struct rig {
    char dir[64], program[4096], repo[128], cache[128];
    sd_event *loop;
    struct movers *m;
    struct mover_limits limits;
    bool no_go;     /* do not say "go" when it is ready */
    bool no_copy;   /* do not keep results */
    int changes_fd; /* goes with the job; 0: none */
    int listing_fd; /* likewise */
    int64_t go_timeout_s, stall_timeout_s, grace_s, max_duration_s;
    /* what was heard */
    unsigned ready, started, progress, ended;
    struct process_identity id;
    json_t *last; /* progress */
    enum mover_outcome outcome;
    struct err err;
    json_t *result;
    int status;
    bool looked_for;
    double cpu_seconds;
    uint64_t memory_peak;
};

static inline void rig_ready(const char *operation, const struct mover_ready *ready, void *arg)
{
    struct rig *r = arg;
    struct err e = ERR_INIT;
    r->ready++;
    r->id = *ready->identity;
    assert_string_equal(ready->plugin_id, "");
    if (!r->no_go)
        assert_ok(movers_go(r->m, operation, &e), &e);
}
static inline void rig_started(const char *operation, void *arg)
{
    (void)operation;
    ((struct rig *)arg)->started++;
}
static inline void rig_progress(const char *operation, const json_t *p, void *arg)
{
    struct rig *r = arg;
    (void)operation;
    r->progress++;
    json_decref(r->last);
    r->last = json_deep_copy(p);
}
static inline void rig_ended(const char *operation, const struct mover_end *end, void *arg)
{
    struct rig *r = arg;
    r->ended++;
    assert_false(movers_has(r->m, operation));
    r->outcome = end->outcome;
    r->err = end->err;
    r->status = end->status;
    r->looked_for = end->looked_for;
    r->cpu_seconds = end->cpu_seconds;
    r->memory_peak = end->memory_peak;
    json_decref(r->result);
    r->result = r->no_copy ? NULL : json_deep_copy(end->result);
}
static const struct movers_events rig_events = {rig_ready, rig_started, rig_progress, rig_ended, NULL};

static inline void rig_movers(struct rig *r)
{
    struct err e = ERR_INIT;
    char run[128], state[128];
    snprintf(run, sizeof run, "%s/run", r->dir);
    snprintf(state, sizeof state, "%s/state", r->dir);
    const struct movers_opts o = {.loop = r->loop,
                                  .runtime_dir = run,
                                  .state_dir = state,
                                  .program = r->program,
                                  .events = &rig_events,
                                  .arg = r};
    assert_ok(movers_new(&r->m, &o, &e), &e);
}

static inline void rig_log(enum log_level lvl, const char *line, void *arg)
{
    (void)arg;
    static const char *const names[] = {"debug", "info", "warning", "error"};
    fprintf(stderr, "# %s: %s\n", names[lvl], line);
}

/* A daemon without movers yet. `program` NULL: the real one, which derives each key once where that was built. */
static inline void rig_new(struct rig *r, const char *program)
{
    *r = (struct rig){.dir = "/tmp/snapferry-movers-XXXXXX", .stall_timeout_s = 60, .grace_s = 5, .go_timeout_s = 30};
    fields_init(&mover_limits_fields, &r->limits);
    const char *build = getenv("BUILD");
    log_to(rig_log, NULL);
    assert_non_null(mkdtemp(r->dir));
    assert_int_equal(chmod(r->dir, 0755), 0);
    char given[4096];
    snprintf(given, sizeof given, "%s/tests/snapferry/snapferry-mover", build ? build : "build");
    if (access(given, X_OK) < 0)
        snprintf(given, sizeof given, "%s/snapferry-mover", build ? build : "build");
    if (!program && !realpath(given, r->program))
        fail_msg("there is no %s: run make first, or set BUILD", given);
    if (program)
        snprintf(r->program, sizeof r->program, "%s", program);
    snprintf(r->repo, sizeof r->repo, "%s/repo", r->dir);
    snprintf(r->cache, sizeof r->cache, "%s/cache", r->dir);
    assert_true(sd_event_new(&r->loop) >= 0);
    rig_movers(r);
}

static inline int rig_rm(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static inline void rig_forget(struct rig *r)
{
    json_decref(r->last);
    json_decref(r->result);
    r->last = r->result = NULL;
    r->ready = r->started = r->progress = r->ended = 0;
    r->err = (struct err)ERR_INIT;
    r->status = -1;
}

static inline void rig_free(struct rig *r)
{
    rig_forget(r);
    movers_free(r->m);
    sd_event_unref(r->loop);
    fields_clear(&mover_limits_fields, &r->limits);
    nftw(r->dir, rig_rm, 16, FTW_DEPTH | FTW_PHYS);
}

/* How many files are in one of its directories. */
static inline unsigned files_in(struct rig *r, const char *name)
{
    char path[192];
    unsigned n = 0;
    snprintf(path, sizeof path, "%s/%s", r->dir, name);
    DIR *d = opendir(path);
    for (const struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static inline double rig_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Lets the loop run until *counter reaches `n`; fails the test after `seconds`. */
static inline void rig_until(struct rig *r, const unsigned *counter, unsigned n, double seconds)
{
    const double end = rig_now() + seconds * (getenv("SNAPFERRY_SANITIZED") ? 10 : 3);
    const unsigned ended = r->ended;
    while (*counter < n && rig_now() < end && (counter == &r->ended || r->ended == ended))
        assert_true(sd_event_run(r->loop, 100000) >= 0);
    if (*counter < n)
        fail_msg("nothing came in %.0f s (ready %u, started %u, progress %u, ended %u: %s)", seconds, r->ready,
                 r->started, r->progress, r->ended, r->err.msg);
}
static inline void rig_for(struct rig *r, double seconds)
{
    const double end = rig_now() + seconds;
    while (rig_now() < end)
        assert_true(sd_event_run(r->loop, 50000) >= 0);
}

static inline int rig_start(struct rig *r, const char *operation, const char *kind, const json_t *job, int fd,
                            const char *password, struct err *e)
{
    r->limits.read_limit = json_integer_value(json_object_get(job, "read_limit")); /* the policy's, as in the job */
    const struct mover_spec s = {.operation = operation,
                                 .kind = kind,
                                 .job = job,
                                 .device_fd = fd,
                                 .changes_fd = r->changes_fd,
                                 .listing_fd = r->listing_fd,
                                 .password = password,
                                 .limits = &r->limits,
                                 .times = {.go_timeout_s = r->go_timeout_s,
                                           .stall_timeout_s = r->stall_timeout_s,
                                           .cancel_grace_s = r->grace_s,
                                           .max_duration_s = r->max_duration_s}};
    return movers_start(r->m, &s, e);
}

static inline int64_t rig_realtime_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* What movers_list_step() has of an operation; NULL: nothing. Borrowed from `all`, which is initialized. */
static inline const struct mover_listed *rig_listed(const struct rig *r, const char *operation,
                                                    struct movers_listed *all)
{
    char dir[300];
    struct err e = ERR_INIT;
    json_t *out = NULL;
    snprintf(dir, sizeof dir, "%s/run", r->dir);
    json_t *in = json_pack("{s:s}", "path", dir);
    assert_ok(movers_list_step(in, &out, NULL, &e), &e);
    assert_int_equal(movers_listed_load(all, out), 0);
    json_decref(out);
    json_decref(in);
    const struct mover_listed *l = all->movers.v;
    for (unsigned i = 0; i < all->movers.n; i++)
        if (!strcmp(l[i].operation, operation))
            return &l[i];
    return NULL;
}

#endif
