/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * schedule.c - due jobs, and their start
 *
 * Jobs wait in a heap for the time of their next evaluation; those whose time has come are evaluated, and each minute
 * and whenever the clock was set all of them, since clock and time zone may have changed. Due jobs are queued, and
 * STARTING_MAX at a time are started.
 *
 * Crash points: schedule-due (before the job is submitted), schedule-ran (its run is in the records).
 */
#include "daemon/schedule/schedule.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "base/json.h"
#include "base/time.h"
#include "daemon/records/opaque.h"
#include "daemon/schedule/memory.h"

#include <errno.h>
#include <string.h>
#include <sys/timerfd.h>

/* Each start examines the storage in a process of its own. */
#define STARTING_MAX 8
#define INTERVAL_FRESH_NS (10 * NS_PER_MIN) /* it changes with the seasons */

struct table {
    struct sched_job **job; /* in the order of the configuration */
    struct sched_job **by_name;
    struct sched_job **by_calendar; /* and by name */
    unsigned n;
};

struct schedule {
    struct schedule_opts o;
    struct table jobs;
    struct sched_job **heap; /* the one with the smallest look_ns first; room for all */
    unsigned n_heap;
    struct sched_job **queue; /* a ring with room for all: due jobs, in the order in which they became due */
    unsigned queue_at, n_queue;
    unsigned starting;
    uint64_t changes;         /* of what is recorded of jobs */
    uint64_t removed_change;  /* the last one by which jobs were removed and that is not recorded; 0: none */
    uint64_t written_changes; /* those that schedule_write() has seen */
    int64_t all_ns;           /* when all were last evaluated */
    sd_event_source *timer, *clock_set;
    int clock_fd;
};

/* ---- the table ---- */

static void table_clear(struct table *t)
{
    for (unsigned i = 0; i < t->n; i++)
        sched_job_free(t->job[i]);
    free(t->job);
    free(t->by_name);
    free(t->by_calendar);
    *t = (struct table){0};
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(struct sched_job *const *)a)->name, (*(struct sched_job *const *)b)->name);
}

static int by_calendar(const void *a, const void *b)
{
    const struct sched_job *x = *(struct sched_job *const *)a, *y = *(struct sched_job *const *)b;
    int order = strcmp(x->on_calendar, y->on_calendar);
    return order ? order : strcmp(x->name, y->name);
}

static int table_make(struct table *t, const struct cfg *c, struct err *e)
{
    unsigned n = 0;
    while (cfg_job_at(c, n))
        n++;
    t->job = calloc(n + 1, sizeof *t->job);
    t->by_name = calloc(n + 1, sizeof *t->by_name);
    t->by_calendar = calloc(n + 1, sizeof *t->by_calendar);
    if (!t->job || !t->by_name || !t->by_calendar)
        return err_nomem(e);
    for (unsigned i = 0; i < n; i++) {
        int rc = sched_job_new(&t->job[i], c, cfg_job_at(c, i), e);
        if (rc < 0)
            return rc;
        t->job[i]->index = i;
        t->by_calendar[i] = t->by_name[i] = t->job[i];
        t->n++;
    }
    qsort(t->by_name, n, sizeof(struct sched_job *), by_name);
    qsort(t->by_calendar, n, sizeof(struct sched_job *), by_calendar);
    for (unsigned i = 0; i < n; i++) {
        struct sched_job *j = t->by_calendar[i], *before = i ? t->by_calendar[i - 1] : NULL;
        j->same = before && !strcmp(before->on_calendar, j->on_calendar) ? before->same : j;
    }
    return 0;
}

static int name_order(const void *name, const void *job)
{
    return strcmp(name, (*(struct sched_job *const *)job)->name);
}

static struct sched_job *table_find(const struct table *t, const char *name)
{
    struct sched_job **at = t->n ? bsearch(name, t->by_name, t->n, sizeof(struct sched_job *), name_order) : NULL;
    return at ? *at : NULL;
}

static struct sched_job *find_job(const struct schedule *s, const char *name)
{
    return table_find(&s->jobs, name);
}

/* ---- heap and queue ---- */

static bool is_sooner(const struct sched_job *a, const struct sched_job *b)
{
    return a->look_ns != b->look_ns ? a->look_ns < b->look_ns : a->index < b->index;
}

static void heap_add(struct schedule *s, struct sched_job *j)
{
    unsigned i = s->n_heap++;
    for (; i && is_sooner(j, s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = j;
}

static struct sched_job *heap_take(struct schedule *s)
{
    struct sched_job *first = s->heap[0], *last = s->heap[--s->n_heap];
    unsigned i = 0;
    for (unsigned next; (next = 2 * i + 1) < s->n_heap; i = next) {
        if (next + 1 < s->n_heap && is_sooner(s->heap[next + 1], s->heap[next]))
            next++;
        if (!is_sooner(s->heap[next], last))
            break;
        s->heap[i] = s->heap[next];
    }
    s->heap[i] = last;
    return first;
}

static void queue_add(struct schedule *s, struct sched_job *j)
{
    if (j->queued)
        return;
    j->queued = true;
    s->queue[(s->queue_at + s->n_queue++) % s->jobs.n] = j;
}

static struct sched_job *queue_take(struct schedule *s)
{
    struct sched_job *j = s->queue[s->queue_at];
    s->queue_at = (s->queue_at + 1) % s->jobs.n;
    s->n_queue--;
    j->queued = false;
    return j;
}

/* ---- what is due ---- */

static void wake_at(struct schedule *s, int64_t ns)
{
    if (!s->timer)
        return;
    sd_event_source_set_time(s->timer, (uint64_t)(ns / 1000 + 1));
    sd_event_source_set_enabled(s->timer, SD_EVENT_ONESHOT);
}

static void note_change(struct schedule *s, uint64_t *change)
{
    *change = ++s->changes;
    if (s->o.changed)
        s->o.changed(s->o.arg);
}

static void job_evaluate(struct schedule *s, struct sched_job *j, int64_t now)
{
    if (sched_job_judge(j, now)) {
        log_warning("job %s: its last run is in the future: the clock was set back; the schedule continues from now",
                    j->name);
        if (s->o.start)
            note_change(s, &j->keep_change);
    }
    if (j->due && j->retry_ns <= now)
        queue_add(s, j);
    if (j->look_ns != INT64_MAX)
        heap_add(s, j);
}

static void jobs_evaluate(struct schedule *s, int64_t now)
{
    tzset(); /* the node's zone may have been changed */
    s->all_ns = now;
    s->n_heap = 0;
    for (unsigned i = 0; i < s->jobs.n; i++)
        if (sched_job_active(s->jobs.job[i]))
            job_evaluate(s, s->jobs.job[i], now);
}

/* The callee may note the run, and so change the job, before it returns. */
static void start_job(struct schedule *s, struct sched_job *j)
{
    char when[TIME_TEXT];
    j->due = false;
    j->starting = true;
    j->starting_ns = j->planned_ns;
    j->noted = false;
    s->starting++;
    log_info("job %s is due%s (planned for %s)", j->name, j->caught_up ? ", late" : "",
             time_text(j->planned_ns / NS_PER_S * NS_PER_S, when));
    crash_point("schedule-due");
    s->o.start(j->name, j->planned_ns, j->caught_up, s->o.arg);
}

int64_t schedule_look(struct schedule *s, int64_t now)
{
    if (now - s->all_ns >= NS_PER_MIN || now < s->all_ns)
        jobs_evaluate(s, now);
    while (s->n_heap && s->heap[0]->look_ns <= now)
        job_evaluate(s, heap_take(s), now);
    for (unsigned n = s->n_queue; s->o.start && n && s->starting < STARTING_MAX; n--) {
        struct sched_job *j = queue_take(s);
        if (j->starting)
            queue_add(s, j); /* one run of a job at a time */
        else if (j->due && sched_job_active(j))
            start_job(s, j);
    }
    int64_t at = s->all_ns + NS_PER_MIN;
    if (s->n_heap && s->heap[0]->look_ns < at)
        at = s->heap[0]->look_ns;
    wake_at(s, at);
    return at;
}

static int is_on_time(sd_event_source *source, uint64_t usec, void *arg)
{
    (void)source, (void)usec;
    schedule_look(arg, now_ns());
    return 0;
}

/* ---- runs ---- */

static bool is_starting(const struct sched_job *j, int64_t planned_ns)
{
    return j->starting && planned_ns && j->starting_ns == planned_ns;
}

static void start_ended(struct schedule *s, struct sched_job *j, int64_t now)
{
    j->starting = false;
    s->starting--;
    wake_at(s, now); /* not from here: the caller may be in the middle of a transaction */
}

static void set_missing(struct job_run *m, const json_t *missing)
{
    json_decref(m->missing);
    m->missing = json_array_size(missing) ? json_incref((json_t *)(uintptr_t)missing) : NULL;
}

int schedule_ran(struct schedule *s, const char *job, int64_t planned_ns, const char *backup, const json_t *missing,
                 int64_t now, struct err *e)
{
    struct sched_job *j = find_job(s, job);
    CLEANUP(job_run_clear) struct job_run m;
    job_run_init(&m);
    if (j)
        sched_memory_copy(&m, &j->memory);
    else
        m.last_planned_ns = memory_last_planned(s->o.records, job);
    int64_t planned = planned_ns ? planned_ns : j && j->calendar ? calendar_latest(j->calendar, 0, now) : now;
    if (planned > m.last_planned_ns)
        m.last_planned_ns = planned;
    m.last_run_ns = now;
    m.failed.there = false;
    set_missing(&m, missing);
    int rc = str_set(&m.last_backup, backup) < 0 ? err_nomem(e) : memory_ran(s->o.records, job, &m, e);
    if (rc == 0 && j) {
        if (is_starting(j, planned_ns)) {
            start_ended(s, j, now);
            j->noted = true;
            sched_memory_copy(&j->before, &j->memory);
        }
        j->due = j->due && j->planned_ns > m.last_planned_ns;
        sched_memory_copy(&j->memory, &m);
    }
    crash_point("schedule-ran");
    return rc;
}

int schedule_failed(struct schedule *s, const char *job, int64_t planned_ns, const struct err *why, bool again,
                    const json_t *missing, int64_t now, struct err *e)
{
    struct sched_job *j = find_job(s, job);
    const bool noted = j && j->noted && planned_ns && j->starting_ns == planned_ns;
    if (noted || (j && is_starting(j, planned_ns))) {
        if (noted) /* the transaction with its run was rolled back */
            sched_memory_copy(&j->memory, &j->before);
        else
            start_ended(s, j, now);
        j->noted = false;
        if (again && j->persistent && sched_job_active(j))
            sched_job_retry(j, now);
    }
    if (!j)
        return 0; /* removed from the configuration meanwhile */
    struct job_run *to = &j->memory;
    to->failed.there = true;
    to->failed.at_ns = now;
    set_missing(to, missing);
    if (str_set(&to->failed.message, why->msg) < 0 || str_set(&to->failed.hint, why->hint) < 0)
        return err_nomem(e);
    note_change(s, &j->failed_change);
    return 0;
}

/* ---- configuration ---- */

/* Volumes that are no longer named by the job are not missing. */
static void still_named(struct sched_job *j, const struct cfg *c)
{
    const struct cfg_job *from = cfg_job(c, j->name);
    json_t *left = json_array();
    const json_t *m;
    size_t i;
    json_array_foreach(j->memory.missing, i, m)
    {
        const char *name = skipped_at(j->memory.missing, i).volume;
        const struct cfg_subject s = cfg_named(name);
        /* One without a class by its name may have one by its label: the next run finds out. */
        const bool open = !cfg_class_of(c, s) && cfg_matches_labels(c, NULL);
        if (from && (cfg_class(c, name) || open || cfg_job_has(c, from, s)))
            json_array_append(left, (json_t *)(uintptr_t)m);
    }
    json_decref(j->memory.missing);
    j->memory.missing = left;
}

/* The state of the job is kept; what was due before the configuration was read stays due. */
static void jobs_carry_over(struct schedule *s, struct sched_job *j, const struct sched_job *old, int64_t now)
{
    struct err e = ERR_INIT;
    bool changed;
    if (old && !strcmp(old->on_calendar, j->on_calendar) && sched_job_active(old) == sched_job_active(j)) {
        sched_memory_copy(&j->memory, &old->memory);
        j->asked_ns = old->asked_ns;
        j->keep_change = old->keep_change;
    } else if (memory_load(s->o.records, j, now, &changed, &e) < 0) {
        log_warning("job %s: %s", j->name, e.msg); /* degraded records do not prevent backups */
    } else if (changed && s->o.start) {
        j->keep_change = ++s->changes;
    }
    if (!old)
        return;
    j->failed_change = old->failed_change;
    if (!strcmp(old->on_calendar, j->on_calendar)) {
        j->same->interval_s = old->same->interval_s;
        j->same->interval_ns = old->same->interval_ns;
    }
    j->due = old->due && sched_job_active(j);
    j->caught_up = old->caught_up;
    j->planned_ns = old->planned_ns;
    j->retry_ns = old->retry_ns;
    j->tries = old->tries;
    j->starting = old->starting;
    j->starting_ns = old->starting_ns;
}

int schedule_apply(struct schedule *s, const struct cfg *c, int64_t now, struct err *e)
{
    struct table jobs CLEANUP(table_clear) = {0};
    int rc = table_make(&jobs, c, e);
    if (rc < 0)
        return rc;
    struct sched_job **heap CLEANUP_FREE = calloc(jobs.n + 1, sizeof *heap);
    struct sched_job **queue CLEANUP_FREE = calloc(jobs.n + 1, sizeof *queue);
    if (!heap || !queue)
        return err_nomem(e);
    if (s->o.start)
        jobs_evaluate(s, now); /* runs that became due until now did so under the old one */
    s->starting = 0;
    for (unsigned i = 0; i < jobs.n; i++) {
        struct sched_job *j = jobs.job[i];
        jobs_carry_over(s, j, find_job(s, j->name), now);
        still_named(j, c);
        s->starting += j->starting;
    }
    /* Queued jobs keep their place. */
    unsigned n = 0;
    for (; s->n_queue;) {
        struct sched_job *j = table_find(&jobs, queue_take(s)->name);
        if (j && j->due) {
            j->queued = true;
            queue[n++] = j;
        }
    }
    table_clear(&s->jobs);
    s->jobs = jobs;
    jobs = (struct table){0};
    free(s->heap);
    free(s->queue);
    s->heap = take_ptr(&heap);
    s->queue = take_ptr(&queue);
    s->queue_at = 0;
    s->n_queue = n;
    jobs_evaluate(s, now);
    wake_at(s, now);
    if (s->o.start)
        note_change(s, &s->removed_change);
    return 0;
}

/* ---- what is recorded ---- */

static int forget_removed(const char *job, void *arg)
{
    struct schedule *s = arg;
    return find_job(s, job) ? 0 : memory_forget(s->o.records, job, NULL);
}

int schedule_write(struct schedule *s, struct err *e)
{
    int rc = s->removed_change ? memory_each_active(s->o.records, forget_removed, s) : 0;
    for (unsigned i = 0; i < s->jobs.n && rc >= 0; i++) {
        const struct sched_job *j = s->jobs.job[i];
        if (j->keep_change)
            rc = memory_keep(s->o.records, j, e);
        if (j->failed_change && rc >= 0)
            rc = memory_failed(s->o.records, j->name, &j->memory, e);
    }
    s->written_changes = s->changes;
    return rc;
}

bool schedule_is_changed(const struct schedule *s)
{
    bool changed = s->removed_change;
    for (unsigned i = 0; i < s->jobs.n && !changed; i++)
        changed = s->jobs.job[i]->keep_change || s->jobs.job[i]->failed_change;
    return changed;
}

static void clear_written(const struct schedule *s, uint64_t *change)
{
    if (*change <= s->written_changes)
        *change = 0;
}

void schedule_written(struct schedule *s)
{
    clear_written(s, &s->removed_change);
    for (unsigned i = 0; i < s->jobs.n; i++) {
        clear_written(s, &s->jobs.job[i]->keep_change);
        clear_written(s, &s->jobs.job[i]->failed_change);
    }
}

/* ---- life ---- */

/* A timer without an expiry of interest, except its cancellation when the clock is set. */
static int watch_clock(struct schedule *s)
{
    struct itimerspec never = {.it_value = {.tv_sec = (time_t)1 << 40}};
    return timerfd_settime(s->clock_fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &never, NULL) < 0 ? -errno : 0;
}

static int on_clock_set(sd_event_source *source, int fd, uint32_t events, void *arg)
{
    struct schedule *s = arg;
    uint64_t n;
    (void)source, (void)events;
    if (read(fd, &n, sizeof n) < 0 && errno == ECANCELED) {
        log_info("clock was set: checking the schedules of all jobs");
        watch_clock(s);
        s->all_ns = 0;
        schedule_look(s, now_ns());
    }
    return 0;
}

static int watch_start(struct schedule *s, struct err *e)
{
    int rc = sd_event_add_time(s->o.loop, &s->timer, CLOCK_REALTIME, UINT64_MAX, 1, is_on_time, s);
    if (rc >= 0)
        rc = sd_event_source_set_enabled(s->timer, SD_EVENT_OFF);
    if (rc < 0)
        return err_set(e, ERR_GENERIC, -rc, "cannot set a timer for the schedules");
    s->clock_fd = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    rc = s->clock_fd < 0 ? -errno : watch_clock(s);
    if (rc == 0)
        rc = sd_event_add_io(s->o.loop, &s->clock_set, s->clock_fd, EPOLLIN, on_clock_set, s);
    return rc < 0 ? err_set(e, ERR_GENERIC, -rc, "cannot watch for clock changes") : 0;
}

int schedule_new(struct schedule **ret, const struct schedule_opts *o, struct err *e)
{
    struct schedule *s = calloc(1, sizeof *s);
    if (!s)
        return err_nomem(e);
    s->o = *o;
    s->clock_fd = -1;
    int rc = o->loop ? watch_start(s, e) : 0;
    if (rc < 0) {
        schedule_free(s);
        return rc;
    }
    *ret = s;
    return 0;
}

void schedule_free(struct schedule *s)
{
    if (!s)
        return;
    sd_event_source_disable_unref(s->timer);
    sd_event_source_disable_unref(s->clock_set);
    closep(&s->clock_fd);
    table_clear(&s->jobs);
    free(s->heap);
    free(s->queue);
    free(s);
}

/* ---- what is shown ---- */

/* That takes up to milliseconds: once for all jobs with the same calendar. */
static int64_t interval_s(struct sched_job *j, int64_t now)
{
    j = j->same;
    if (!j->calendar)
        return 0;
    if (!j->interval_ns || now < j->interval_ns || now - j->interval_ns > INTERVAL_FRESH_NS) {
        j->interval_s = calendar_interval_s(j->calendar, now);
        j->interval_ns = now;
    }
    return j->interval_s;
}

static void view_of(struct sched_job *j, int64_t now, struct job_view *v)
{
    bool due;
    const int64_t next = sched_job_next(j, now, &due);
    *v = (struct job_view){
        .name = j->name,
        .on_calendar = j->on_calendar,
        .last_backup = j->memory.last_backup,
        .idle_because = !j->calendar   ? "no on-calendar"
                        : j->paused    ? "paused"
                        : j->elsewhere ? "other nodes only (only-on-node)"
                                       : "",
        .next_ns = next == INT64_MAX ? 0 : next,
        .last_ns = j->memory.last_run_ns,
        .since_ns = j->memory.since_ns,
        .jitter_s = j->jitter_s,
        .interval_s = interval_s(j, now),
        .paused = j->paused,
        .elsewhere = j->elsewhere,
        .due = due,
        .failed = j->memory.failed.there ? &j->memory.failed : NULL,
        .missing = json_array_size(j->memory.missing) ? j->memory.missing : NULL,
    };
}

struct job_view *schedule_views(const struct schedule *s, int64_t now, unsigned *n)
{
    const unsigned jobs = s ? s->jobs.n : 0;
    struct job_view *v = calloc(jobs + 1, sizeof *v);
    *n = v ? jobs : 0;
    for (unsigned i = 0; i < *n; i++)
        view_of(s->jobs.job[i], now, &v[i]);
    return v;
}

unsigned schedule_active(const struct schedule *s)
{
    unsigned n = 0;
    for (unsigned i = 0; i < s->jobs.n; i++)
        n += sched_job_active(s->jobs.job[i]);
    return n;
}

unsigned schedule_failing(const struct schedule *s, const char **job, const char **why)
{
    unsigned n = 0;
    for (unsigned i = 0; i < s->jobs.n; i++) {
        const struct sched_job *j = s->jobs.job[i];
        if (!j->memory.failed.there || j->paused || j->elsewhere || n++)
            continue;
        *job = j->name;
        *why = j->memory.failed.message;
    }
    return n;
}
