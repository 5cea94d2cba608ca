/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * schedule.c - which job is due: one look at all jobs, taken when the next is due, at least each minute, and whenever
 * the clock is set. What was missed is found from the records, so that it makes no difference whether the daemon was
 * down, the node off, or the clock wrong.
 *
 * Crash points: schedule-due (before the job is submitted), schedule-ran (its run is in the records).
 */
#include "daemon/schedule/schedule-impl.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "base/json.h"
#include "base/time.h"

#include <errno.h>
#include <fnmatch.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>

/* How late a timer of systemd may be before we run the job ourselves. */
#define PATIENCE_NS (2 * NS_PER_MIN)

struct schedule {
    struct schedule_opts o;
    char command[4096], runtime_dir[4096];
    struct sched_job *jobs;
    struct units *units; /* NULL: own clock */
    sd_event_source *timer, *clock_set;
    int clock_fd;
    int64_t units_looked_ns;
};

static void job_free(struct sched_job *j)
{
    calendar_free(j->calendar);
    json_decref(j->failed);
    json_decref(j->missing);
    free(j);
}

static struct sched_job *find_job(const struct schedule *s, const char *name)
{
    struct sched_job *j = s->jobs;
    while (j && strcmp(j->name, name) != 0)
        j = j->next;
    return j;
}

/* ---- records ---- */

/* What the record of a job says; a job without one has a document that is empty. */
static int read_record(struct schedule *s, const char *name, struct rec *rec, bool *found, struct err *e)
{
    struct err why = ERR_INIT;
    *rec = (struct rec)REC_INIT;
    int rc = records_get(s->o.records, REC_JOB, name, rec, &why);
    *found = rc == 0;
    if (rc == 0)
        return 0;
    if (why.cls != ERR_NOT_FOUND) {
        if (e)
            *e = why;
        return rc;
    }
    snprintf(rec->id, sizeof rec->id, "%s", name);
    rec->doc = json_object();
    return rec->doc ? 0 : err_nomem(e);
}

static int write_record(struct schedule *s, struct rec *rec, bool found, struct err *e)
{
    return found ? records_save(s->o.records, REC_JOB, rec, e) : records_add(s->o.records, REC_JOB, rec, e);
}

/* Takes over what is remembered of a job, and starts counting anew where it is new, was changed, paused or for others.
 */
static int remember(struct schedule *s, struct sched_job *j, struct err *e)
{
    CLEANUP(rec_clearp) struct rec rec;
    bool found;
    int rc = read_record(s, j->name, &rec, &found, e);
    if (rc < 0)
        return rc;
    bool same = found && !strcmp(jstr(rec.doc, "on_calendar"), j->on_calendar) && jbool(rec.doc, "active");
    j->last_planned_ns = jint(rec.doc, "last_planned_ns");
    j->last_run_ns = jint(rec.doc, "last_run_ns");
    j->known_ns = j->since_ns = same ? jint(rec.doc, "since_ns") : now_ns();
    j->failed = json_incref(jobj(rec.doc, "failed"));
    j->missing = json_incref(jarr(rec.doc, "missing"));
    if (!j->persistent)
        j->since_ns = now_ns();
    if (same == sched_job_active(j))
        return 0;
    rc = jset_str(rec.doc, "on_calendar", j->on_calendar) | jset_bool(rec.doc, "active", sched_job_active(j)) |
         jset_int(rec.doc, "since_ns", j->since_ns);
    return rc < 0 ? err_nomem(e) : write_record(s, &rec, found, e);
}

/* The clock went back: what was planned in a future that has not come is forgotten. */
static int forget(struct schedule *s, struct sched_job *j, struct err *e)
{
    CLEANUP(rec_clearp) struct rec rec;
    bool found;
    int rc = read_record(s, j->name, &rec, &found, e);
    if (rc < 0)
        return rc;
    rc = jset_int(rec.doc, "last_planned_ns", j->last_planned_ns) | jset_int(rec.doc, "since_ns", j->since_ns);
    return rc < 0 ? err_nomem(e) : write_record(s, &rec, found, e);
}

/* What a start did not find, in the document and in memory. */
static void note_missing(struct sched_job *j, json_t *doc, const json_t *missing)
{
    json_t *list = json_array_size(missing) ? (json_t *)(uintptr_t)missing : NULL;
    if (list)
        json_object_set(doc, "missing", list);
    else
        json_object_del(doc, "missing");
    if (!j)
        return;
    json_decref(j->missing);
    j->missing = json_incref(list);
}

int schedule_ran(struct schedule *s, const char *job, int64_t planned_ns, const json_t *missing, struct err *e)
{
    struct sched_job *j = find_job(s, job);
    CLEANUP(rec_clearp) struct rec rec;
    int64_t now = now_ns();
    bool found;
    int rc = read_record(s, job, &rec, &found, e);
    if (rc < 0)
        return rc;
    if (!planned_ns)
        planned_ns = j && j->calendar ? calendar_latest(j->calendar, 0, now) : now;
    if (planned_ns < jint(rec.doc, "last_planned_ns"))
        planned_ns = jint(rec.doc, "last_planned_ns");
    rc = jset_int(rec.doc, "last_planned_ns", planned_ns) | jset_int(rec.doc, "last_run_ns", now);
    json_object_del(rec.doc, "failed");
    note_missing(j, rec.doc, missing);
    rc = rc < 0 ? err_nomem(e) : write_record(s, &rec, found, e);
    if (j) { /* also where it could not be written: it did run */
        j->last_planned_ns = planned_ns;
        j->last_run_ns = now;
        json_decref(j->failed);
        j->failed = NULL;
    }
    crash_point("schedule-ran");
    return rc;
}

int schedule_failed(struct schedule *s, const char *job, const struct err *why, const json_t *missing, struct err *e)
{
    struct sched_job *j = find_job(s, job);
    CLEANUP(rec_clearp) struct rec rec;
    CLEANUP_JSON json_t *failed = json_object();
    bool found;
    if (jset_str(failed, "message", why->msg) | jset_str(failed, "hint", why->hint) |
        jset_int(failed, "at_ns", now_ns()))
        return err_nomem(e);
    if (j) { /* also where it cannot be written: it did fail */
        json_decref(j->failed);
        j->failed = json_incref(failed);
    }
    int rc = read_record(s, job, &rec, &found, e);
    if (rc < 0)
        return rc;
    json_object_set(rec.doc, "failed", failed);
    note_missing(j, rec.doc, missing);
    return write_record(s, &rec, found, e);
}

unsigned schedule_failing(const struct schedule *s, const char **job, const char **why)
{
    unsigned n = 0;
    for (const struct sched_job *j = s->jobs; j; j = j->next) {
        if (!j->failed || j->paused || j->elsewhere || n++)
            continue;
        *job = j->name;
        *why = jstr(j->failed, "message");
    }
    return n;
}

bool schedule_claims(const struct schedule *s, const char *job, int64_t *planned_ns)
{
    const struct sched_job *j = find_job(s, job);
    if (!j || !sched_job_active(j))
        return false;
    *planned_ns = calendar_latest(j->calendar, 0, now_ns());
    return *planned_ns > j->last_planned_ns && *planned_ns > j->asked_ns;
}

/* ---- what is due ---- */

static void look(struct schedule *s);

static int on_time(sd_event_source *source, uint64_t usec, void *arg)
{
    (void)source;
    (void)usec;
    look(arg);
    return 0;
}

/* A timer that nobody waits for, but for its end when the clock is set. */
static int watch_clock(struct schedule *s)
{
    struct itimerspec never = {.it_value = {.tv_sec = (time_t)1 << 40}};
    return timerfd_settime(s->clock_fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &never, NULL) < 0 ? -errno : 0;
}

static int on_clock_set(sd_event_source *source, int fd, uint32_t events, void *arg)
{
    struct schedule *s = arg;
    uint64_t n;
    (void)source;
    (void)events;
    if (read(fd, &n, sizeof n) < 0 && errno == ECANCELED) {
        log_info("the clock was set: schedules are looked at again");
        watch_clock(s);
        look(s);
    }
    return 0;
}

/* Asks the owner to run a job. It may note the run, and so change the job's fields, before this returns. */
static void run_due(struct schedule *s, struct sched_job *j, const struct sched_verdict *v)
{
    char when[32] = "";
    time_t t = (time_t)(v->planned_ns / NS_PER_S);
    struct tm tm;
    if (gmtime_r(&t, &tm))
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &tm);
    log_info("job %s is due%s (planned for %s)", j->name, v->caught_up ? ", late" : "", when);
    crash_point("schedule-due");
    s->o.due(j->name, v->planned_ns, v->caught_up, s->o.arg);
}

static void look(struct schedule *s)
{
    int64_t now = now_ns(), wake = now + NS_PER_MIN;
    tzset(); /* the node's zone may have been changed */
    if (s->units && now - s->units_looked_ns >= NS_PER_MIN / 2) {
        s->units_looked_ns = now;
        units_look(s->units);
    }
    for (struct sched_job *j = s->jobs; j; j = j->next) {
        struct sched_verdict v;
        bool forgotten = false;
        if (!sched_job_active(j))
            continue;
        const char *problem;
        bool theirs = s->units && units_has(s->units, j->name, &problem);
        sched_judge(j, now, theirs ? PATIENCE_NS + (j->jitter_s * NS_PER_S - j->offset_ns) : 0, &v, &forgotten);
        if (forgotten) {
            struct err e = ERR_INIT;
            log_warning("job %s was run for a time that has not come: the clock went back, and it goes on from now",
                        j->name);
            if (forget(s, j, &e) < 0)
                log_warning("job %s: %s", j->name, e.msg);
        }
        if (v.due)
            run_due(s, j, &v);
        wake = v.look_ns < wake ? v.look_ns : wake;
    }
    sd_event_source_set_time(s->timer, (uint64_t)(wake / 1000 + 1));
    sd_event_source_set_enabled(s->timer, SD_EVENT_ONESHOT);
}

/* ---- configuration ---- */

static bool names(const char *const *patterns, const char *node)
{
    if (!patterns || !patterns[0])
        return true;
    for (size_t i = 0; patterns[i]; i++) {
        if (fnmatch(patterns[i], node, 0) == 0)
            return true;
    }
    return false;
}

static int job_new(struct sched_job **ret, const struct cfg *c, const struct cfg_job *from, struct err *e)
{
    const struct cfg_daemon *d = cfg_daemon(c);
    struct sched_job *j = calloc(1, sizeof *j);
    if (!j)
        return err_nomem(e);
    snprintf(j->name, sizeof j->name, "%s", from->name);
    snprintf(j->on_calendar, sizeof j->on_calendar, "%s", from->on_calendar);
    j->persistent = from->persistent;
    j->paused = from->paused;
    j->elsewhere = !names(from->only_on_node, d->node_name) || !names(d->only_on_node, d->node_name);
    j->jitter_s = from->jitter_s;
    j->offset_ns = sched_offset_ns(d->node_name, j->name, j->jitter_s);
    int rc = *j->on_calendar ? calendar_parse(&j->calendar, j->on_calendar, e) : 0;
    if (rc < 0) {
        err_wrap(e, "%s: [job \"%s\"]", from->origin, from->name);
        job_free(j);
        return rc;
    }
    *ret = j;
    return 0;
}

static void free_jobs(struct sched_job **list)
{
    for (struct sched_job *j = *list, *next; j; j = next) {
        next = j->next;
        job_free(j);
    }
    *list = NULL;
}

static bool unchanged(const struct sched_job *a, const struct sched_job *b)
{
    return !strcmp(a->on_calendar, b->on_calendar) && a->persistent == b->persistent &&
           sched_job_active(a) == sched_job_active(b);
}

/* What the job does not name any more is not missing. */
static void still_named(struct sched_job *j, const struct cfg *c)
{
    const struct cfg_job *from = cfg_job(c, j->name);
    json_t *left = json_array();
    const json_t *m;
    size_t i;
    json_array_foreach(j->missing, i, m)
    {
        const char *name = jstr(m, "volume");
        if (from && (cfg_class(c, name) || cfg_job_has(c, from, name)))
            json_array_append(left, (json_t *)(uintptr_t)m);
    }
    json_decref(j->missing);
    j->missing = left;
}

int schedule_apply(struct schedule *s, const struct cfg *c, struct err *e)
{
    struct sched_job *list CLEANUP(free_jobs) = NULL, **end = &list;
    const struct cfg_job *from;
    for (unsigned i = 0; (from = cfg_job_at(c, i)); i++) {
        int rc = job_new(end, c, from, e);
        if (rc < 0)
            return rc;
        end = &(*end)->next;
    }
    for (struct sched_job *j = list; j; j = j->next) {
        const struct sched_job *old = find_job(s, j->name);
        struct err why = ERR_INIT;
        if (old && unchanged(old, j)) {
            j->since_ns = old->since_ns;
            j->known_ns = old->known_ns;
            j->failed = json_incref(old->failed);
            j->missing = json_incref(old->missing);
            j->last_planned_ns = old->last_planned_ns;
            j->last_run_ns = old->last_run_ns;
            j->asked_ns = old->asked_ns;
        } else if (remember(s, j, &why) < 0) { /* degraded records are no reason to make no backups */
            log_warning("job %s: %s", j->name, why.msg);
        }
        still_named(j, c);
    }
    free_jobs(&s->jobs);
    s->jobs = take_ptr(&list);
    int rc = s->units ? units_want(s->units, s->jobs, e) : 0;
    sd_event_source_set_time(s->timer, (uint64_t)(now_ns() / 1000));
    sd_event_source_set_enabled(s->timer, SD_EVENT_ONESHOT);
    return rc;
}

/* ---- life ---- */

static int start(struct schedule *s, struct err *e)
{
    int rc = sd_event_add_time(s->o.loop, &s->timer, CLOCK_REALTIME, UINT64_MAX, 1, on_time, s);
    if (rc >= 0)
        rc = sd_event_source_set_enabled(s->timer, SD_EVENT_OFF);
    if (rc < 0)
        return err_set(e, ERR_GENERIC, -rc, "cannot set a timer for the schedules");
    s->clock_fd = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    rc = s->clock_fd < 0 ? -errno : watch_clock(s);
    if (rc == 0)
        rc = sd_event_add_io(s->o.loop, &s->clock_set, s->clock_fd, EPOLLIN, on_clock_set, s);
    return rc < 0 ? err_set(e, ERR_GENERIC, -rc, "cannot watch for changes of the clock") : 0;
}

int schedule_new(struct schedule **ret, const struct schedule_opts *o, struct err *e)
{
    struct schedule *s = calloc(1, sizeof *s);
    struct err why = ERR_INIT;
    if (!s)
        return err_nomem(e);
    s->o = *o;
    s->clock_fd = -1;
    snprintf(s->command, sizeof s->command, "%s", o->command ? o->command : "");
    snprintf(s->runtime_dir, sizeof s->runtime_dir, "%s", o->runtime_dir ? o->runtime_dir : "");
    int rc = start(s, e);
    if (rc < 0) {
        schedule_free(s);
        return rc;
    }
    if (o->systemd && units_new(&s->units, o->loop, s->command, s->runtime_dir, &why) < 0)
        log_warning("%s: jobs run by the daemon's own clock", why.msg);
    *ret = s;
    return 0;
}

void schedule_free(struct schedule *s)
{
    if (!s)
        return;
    units_free(s->units);
    sd_event_source_disable_unref(s->timer);
    sd_event_source_disable_unref(s->clock_set);
    if (s->clock_fd >= 0)
        close(s->clock_fd);
    free_jobs(&s->jobs);
    free(s);
}

int schedule_clear(struct schedule *s, struct err *e)
{
    return s->units ? units_clear(s->units, e) : 0;
}

/* ---- telling ---- */

static json_t *time_json(int64_t ns)
{
    char text[32];
    time_t t = (time_t)(ns / NS_PER_S);
    struct tm tm;
    if (ns <= 0 || ns == INT64_MAX || !gmtime_r(&t, &tm) || !strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm))
        return json_null();
    return json_string(text);
}

#define INTERVAL_FRESH_NS                                                                                              \
    (10 * NS_PER_MIN) /* working it out takes up to milliseconds, and it changes with the seasons */

static int64_t interval_s(struct sched_job *j, int64_t now)
{
    if (!j->calendar)
        return 0;
    if (!j->interval_ns || now < j->interval_ns || now - j->interval_ns > INTERVAL_FRESH_NS) {
        j->interval_s = sched_interval_s(j->calendar, now);
        j->interval_ns = now;
    }
    return j->interval_s;
}

static json_t *job_json(const struct schedule *s, struct sched_job *j, int64_t now)
{
    struct sched_job copy = *j;
    struct sched_verdict v = {.next_ns = INT64_MAX};
    bool forgotten;
    const char *problem = "";
    bool theirs = s->units && units_has(s->units, j->name, &problem);
    if (sched_job_active(j))
        sched_judge(&copy, now, 0, &v, &forgotten);
    json_t *o =
        json_pack("{s:s, s:s, s:o, s:o, s:b, s:b, s:s, s:I, s:I, s:I, s:s, s:s}", "job", j->name, "on_calendar",
                  j->on_calendar, "next", time_json(v.next_ns == INT64_MAX ? 0 : v.next_ns + j->offset_ns), "last",
                  time_json(j->last_run_ns), "paused", (int)j->paused, "elsewhere", (int)j->elsewhere, "idle_because",
                  !j->calendar   ? "it has no on-calendar"
                  : j->paused    ? "it is paused"
                  : j->elsewhere ? "it is for other nodes (only-on-node)"
                                 : "",
                  "since_ns", (json_int_t)j->known_ns, "interval_s", (json_int_t)interval_s(j, now), "jitter_s",
                  (json_int_t)j->jitter_s, "runs_by", theirs ? "systemd" : "daemon", "problem", problem);
    if (o && j->failed)
        json_object_set(o, "failed", j->failed);
    if (o && json_array_size(j->missing))
        json_object_set(o, "missing", j->missing);
    return o;
}

json_t *schedule_to_json(const struct schedule *s)
{
    json_t *list = json_array();
    int64_t now = now_ns();
    for (struct sched_job *j = s->jobs; list && j; j = j->next)
        json_array_append_new(list, job_json(s, j, now));
    return list;
}
