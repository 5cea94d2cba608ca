/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench_scale.c - what an operation costs the daemon, against how many there are, without the time of movers
 *
 *   bench_scale [N...]       volumes of one job; default 10 100 1000 5000 10000
 *   SLOTS=32                 movers at once
 *   FSYNC_MS=0               each sync of the records takes so much longer
 *   STATUS_MS=100            how often `status` is asked meanwhile, in a run of its own; 0: not at all
 *   DIR=/var/tmp             where the records lie
 *   JSON=FILE                the same figures as JSON lines, and what was done, counted: see `work` below
 *   VERBOSE=1                iterations of the event loop over 50 ms, and answers at the end; 2: the log as well
 *
 * The engine, its decisions, the records in a real file and the control socket are the daemon's. What is not: steps and
 * movers, which answer at the next turn of the event loop and do nothing (this file has their functions, so that those
 * of the libraries are not linked). A run is a process of its own; CPU time is that of all its threads from the
 * submission of the job to its end, commits are synced transactions.
 */
#include "base/cleanup.h"
#include "base/json.h"
#include "base/time.h"
#include "daemon/answers/answers.h"
#include "daemon/control/control.h"
#include "daemon/engine/engine-impl.h"
#include "daemon/movers/movers.h"
#include "daemon/records/image.h"
#include "proc/step.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned volumes_n;
static int null_fd = -1;
static sd_event *event_loop;

static void die(const char *what)
{
    fprintf(stderr, "bench_scale: %s: %s\n", what, strerror(errno));
    exit(1);
}

static unsigned setting(const char *name, unsigned otherwise)
{
    const char *s = getenv(name);
    return s && *s ? (unsigned)strtoul(s, NULL, 10) : otherwise;
}

/* ---- syncs: those of libsqlite3, too, come here ---- */

static atomic_uint commits;
static unsigned fsync_ms;

static int sync_file(long call, int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    if (strstr(path, "records.db-wal")) {
        atomic_fetch_add(&commits, 1);
        usleep(fsync_ms * 1000);
    }
    return (int)syscall(call, fd);
}
int fsync(int fd)
{
    return sync_file(SYS_fsync, fd);
}
int fdatasync(int fd)
{
    return sync_file(SYS_fdatasync, fd);
}

/* ---- what is done, counted: figures that no load of the machine changes ---- */

static struct {
    atomic_ullong walked; /* rows that a walk has come to */
    atomic_ullong texts;  /* records, and parts of them, made to text */
    atomic_ullong reads;  /* the same read from their text */
    atomic_ullong sql;    /* steps of SQL statements */
    atomic_ullong values; /* of JSON that were made */
} work;

/* The linker calls these in the place of the functions (--wrap, see the Makefile). */
struct object *__real_image_find_seq(const struct image *m, enum row_kind k, uint64_t seq);
struct object *__wrap_image_find_seq(const struct image *m, enum row_kind k, uint64_t seq);
struct object *__wrap_image_find_seq(const struct image *m, enum row_kind k, uint64_t seq)
{
    atomic_fetch_add(&work.walked, 1);
    return __real_image_find_seq(m, k, seq);
}
char *__real_fields_text(const struct fields *t, const void *s, size_t *len);
char *__wrap_fields_text(const struct fields *t, const void *s, size_t *len);
char *__wrap_fields_text(const struct fields *t, const void *s, size_t *len)
{
    atomic_fetch_add(&work.texts, 1);
    return __real_fields_text(t, s, len);
}
int __real_fields_read(const struct fields *t, void *s, const char *text, size_t n);
int __wrap_fields_read(const struct fields *t, void *s, const char *text, size_t n);
int __wrap_fields_read(const struct fields *t, void *s, const char *text, size_t n)
{
    atomic_fetch_add(&work.reads, 1);
    return __real_fields_read(t, s, text, n);
}
int __real_sqlite3_step(sqlite3_stmt *st);
int __wrap_sqlite3_step(sqlite3_stmt *st);
int __wrap_sqlite3_step(sqlite3_stmt *st)
{
    atomic_fetch_add(&work.sql, 1);
    return __real_sqlite3_step(st);
}

/* Values of JSON are what Jansson allocates; texts and tables of objects, too. */
static void *counted_malloc(size_t n)
{
    atomic_fetch_add(&work.values, 1);
    return malloc(n);
}

static void work_reset(void)
{
    atomic_store(&work.walked, 0);
    atomic_store(&work.texts, 0);
    atomic_store(&work.reads, 0);
    atomic_store(&work.sql, 0);
    atomic_store(&work.values, 0);
}

/* ---- what comes at the next turn of the loop ---- */

struct later {
    struct later *next;
    void (*fn)(struct later *l);
    /* of a step */
    struct step *step;
    step_done_fn *done;
    void *arg;
    json_t *out;
    int fd;
    /* of a mover */
    char operation[512];
};
static struct later *later_first, **later_end = &later_first;
static sd_event_source *later_source;

static int on_later(sd_event_source *s, void *arg)
{
    (void)s, (void)arg;
    struct later *l = later_first;
    later_first = NULL;
    later_end = &later_first;
    for (struct later *next; l; l = next) {
        next = l->next;
        l->fn(l);
        free(l);
    }
    return 0;
}

static struct later *later(void (*fn)(struct later *l))
{
    struct later *l = calloc(1, sizeof *l);
    if (!l)
        die("memory");
    l->fn = fn;
    l->fd = -1;
    *later_end = l;
    later_end = &l->next;
    if (!later_source && sd_event_add_defer(event_loop, &later_source, on_later, NULL) < 0)
        die("event loop");
    sd_event_source_set_enabled(later_source, SD_EVENT_ONESHOT);
    return l;
}

/* ---- steps ---- */

struct step {
    struct later *later;
    bool canceled;
};

static void deliver(struct later *l)
{
    struct step_result r = {.out = l->out, .fd = l->fd, .err = ERR_INIT};
    if (l->step->canceled) {
        r.canceled = true;
        err_set(&r.err, ERR_INTERRUPTED, ECANCELED, "canceled");
    }
    l->done(&r, l->arg);
    if (r.fd >= 0)
        close(r.fd);
    json_decref(l->out);
    free(l->step);
}

static json_t *one_volume(unsigned i)
{
    static struct volume v;
    v = (struct volume){.size = 65536, .allocated = 65536, .sector = 512};
    snprintf(v.name, sizeof v.name, "/srv/vm/%05u.img", i);
    snprintf(v.id, sizeof v.id, "reflink.126bb282-6a95-4734-9cee-dd2c57b3de07.%u.cb7971fd", i);
    return volume_to_json(&v);
}

static json_t *volumes_answer(const json_t *in)
{
    json_t *classes = json_array();
    const json_t *q, *name;
    size_t i, k;
    json_array_foreach(json_object_get(in, "classes"), i, q)
    {
        json_t *list = json_array();
        if (jarr(q, "names"))
            json_array_foreach(jarr(q, "names"), k, name) json_array_append_new(
                list, one_volume((unsigned)strtoul(json_string_value(name) + strlen("/srv/vm/"), NULL, 10)));
        else
            for (unsigned n = 0; n < volumes_n; n++)
                json_array_append_new(list, one_volume(n));
        json_array_append_new(classes,
                              json_pack("{s:O,s:o,s:[],s:[],s:i,s:b}", "class", json_object_get(q, "class"), "volumes",
                                        list, "missing", "passed", "abilities",
                                        DRIVER_SNAPSHOT | DRIVER_NATIVE_RO | DRIVER_POOL, "all", !jarr(q, "names")));
    }
    return json_pack("{s:o}", "classes", classes);
}

static json_t *answer_snapshot(const json_t *in)
{
    json_t *items = json_array(), *native;
    const json_t *q;
    size_t i;
    json_array_foreach(json_object_get(in, "items"), i, q)
    {
        native = json_deep_copy(jobj(q, "tag"));
        jset_str(native, "handle", "/srv/vm/.snapferry/native");
        jset_int(native, "size", 65536);
        jset_bool(native, "crash_consistent", true);
        json_array_append_new(items, json_pack("{s:s,s:I,s:I,s:o,s:O}", "operation", jstr(q, "operation"), "begin_ns",
                                               (json_int_t)now_ns(), "end_ns", (json_int_t)now_ns(), "native", native,
                                               "volume", jobj(q, "volume")));
    }
    return json_pack("{s:o}", "items", items);
}

/* The same members of each item, which has been dealt with. */
static json_t *answer_items(const json_t *in, const char *list, const char *member)
{
    json_t *out = json_array();
    const json_t *q;
    size_t i;
    json_array_foreach(json_object_get(in, list), i, q)
        json_array_append_new(out, json_pack("{s:O}", member, json_object_get(q, member)));
    return json_pack("{s:o}", list, out);
}

static json_t *answer_expose(void)
{
    return json_pack("{s:s,s:b,s:s,s:s,s:s,s:s,s:s,s:I,s:I,s:f,s:b}", "mechanism", "native", "read_only", 1, "path",
                     "/srv/vm/.snapferry/native", "handle", "", "alias", "", "class", "images", "where", "/srv/vm",
                     "size", (json_int_t)65536, "copied", (json_int_t)0, "seconds", 0.001, "nothing_made", 1);
}

static json_t *answer(step_fn *fn, const json_t *in)
{
    if (fn == step_volumes)
        return volumes_answer(in);
    if (fn == step_snapshot)
        return answer_snapshot(in);
    if (fn == step_expose)
        return answer_expose();
    if (fn == step_remove)
        return answer_items(in, "items", "alias");
    if (fn == step_undo)
        return answer_items(in, "intents", "id");
    if (fn == step_room || fn == step_repository)
        return json_pack("{s:I,s:I}", "free", (json_int_t)1 << 40, "total", (json_int_t)1 << 41);
    if (fn == movers_list_step)
        return json_pack("{s:{}}", "movers");
    return json_pack("{s:[]}", "items");
}

int steps_new(struct steps **ret, sd_event *loop, struct err *e)
{
    (void)loop, (void)e;
    *ret = NULL;
    return 0;
}
void steps_free(struct steps *s)
{
    (void)s;
}
int step_start(struct steps *s, const char *name, step_fn *fn, const json_t *in, unsigned timeout_s, step_done_fn *done,
               void *arg, struct step **ret, struct err *e)
{
    (void)s, (void)name, (void)timeout_s, (void)e;
    struct later *l = later(deliver);
    l->step = calloc(1, sizeof *l->step);
    l->done = done;
    l->arg = arg;
    l->out = answer(fn, in);
    l->fd = fn == step_open || (fn == step_expose && jbool(in, "open")) ? dup(null_fd) : -1;
    if (ret)
        *ret = l->step;
    return 0;
}
void step_watch(struct step *t, step_progress_fn *fn, void *arg)
{
    (void)t, (void)fn, (void)arg;
}
void step_report(json_t *doc)
{
    json_decref(doc);
}
void step_cancel(struct step *t)
{
    t->canceled = true;
}
unsigned steps_stuck(const struct steps *s)
{
    (void)s;
    return 0;
}
unsigned steps_running(const struct steps *s)
{
    (void)s;
    return 0;
}
json_t *steps_to_json(const struct steps *s)
{
    (void)s;
    return json_array();
}

/* ---- movers ---- */

static const struct movers_events *events;
static void *events_arg;
static unsigned movers_n;
static json_t *jobs; /* operation -> what it was asked */

static void mover_is_ready(struct later *l)
{
    const struct process_identity id = {.pid = 4711, .start_time = 1};
    const struct mover_ready r = {.identity = &id, .plugin_id = ""};
    events->ready(l->operation, &r, events_arg);
}

static int64_t fake_ns; /* CPU time of this thread that a real daemon's movers would take, not itself */

static int64_t thread_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * NS_PER_S + t.tv_nsec;
}

/* Numbers of the questions in the job of a mover that records outcomes, without making a document of it, which would be
 * the largest thing in memory. */
static json_t *numbers_asked(int fd)
{
    static const char check[] = "\"expect\":{", of[] = "\"of\":";
    json_t *numbers = json_array();
    struct stat st;
    if (fstat(fd, &st) < 0)
        die("job");
    char *text = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0), *at, *end;
    if (text == MAP_FAILED)
        die("job");
    end = text + st.st_size;
    at = memmem(text, (size_t)st.st_size, check, sizeof check - 1);
    while (at && (at = memmem(at, (size_t)(end - at), of, sizeof of - 1))) {
        at += sizeof of - 1;
        json_array_append_new(numbers, json_integer(strtoll(at, NULL, 10)));
    }
    munmap(text, (size_t)st.st_size);
    return numbers;
}

static json_t *result_of_record(json_t *numbers)
{
    return json_pack("{s:[{s:s},{s:s,s:O,s:{}}]}", "answers", "verb", "record", "verb", "check", "proven", numbers,
                     "refused");
}

static json_t *result_of_check(const json_t *steps)
{
    json_t *answers = json_array(), *readable;
    const json_t *q, *s;
    size_t i, k;
    json_array_foreach(steps, i, q)
    {
        readable = json_object();
        json_array_foreach(json_object_get(q, "snapshots"), k, s)
            json_object_set_new(readable, json_string_value(s), json_true());
        json_array_append_new(answers, json_pack("{s:o,s:[]}", "readable", readable, "snapshots"));
    }
    return json_pack("{s:o}", "answers", answers);
}

/* As long as a real one. */
static json_t *result_of_backup(const char *operation)
{
    static const char *const stages[] = {"read", "hash", "compress", "write", "commit"};
    json_t *list = json_array(), *counts = json_array(), *r;
    char id[64];
    unsigned long h = 5381;
    for (const char *p = operation; *p; p++)
        h = h * 33 + (unsigned char)*p;
    snprintf(id, sizeof id, "%016lx%016lx", h, h * 31);
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        json_array_append_new(list, json_pack("{s:s,s:f,s:f,s:I}", "name", stages[i], "busySeconds", 0.01,
                                              "waitSeconds", 0.02, "bytes", (json_int_t)65536));
    for (size_t i = 0; i <= HISTOGRAM_BOUNDS; i++)
        json_array_append_new(counts, json_integer(i == 1));
    r = json_pack("{s:s,s:I,s:I,s:I,s:I,s:o,s:{s:I,s:I,s:I,s:{s:{s:{s:i},s:o,s:f}}}}", "snapshotID", id, "totalBytes",
                  (json_int_t)65536, "readBytes", (json_int_t)65536, "incrementalBytes", (json_int_t)65536,
                  "uploadedBytes", (json_int_t)66000, "stages", list, "repository", "uploadedBytes", (json_int_t)66000,
                  "downloadedBytes", (json_int_t)1000, "contents", (json_int_t)12, "requests", "put", "codes", "ok", 3,
                  "counts", counts, "seconds", 0.01);
    return r;
}

static void mover_has_ended(struct later *l)
{
    json_t *steps = json_incref(json_object_get(jobs, l->operation)), *numbers = json_object_get(steps, "numbers");
    json_t *progress = json_pack("{s:s,s:i,s:i}", "phase", "move", "total", 65536, "done", 65536);
    struct mover_end end = {.outcome = MOVER_OK, .cpu_seconds = 0.01, .memory_peak = 1 << 20, .err = ERR_INIT};
    end.result = numbers                ? result_of_record(numbers)
                 : json_is_array(steps) ? result_of_check(steps)
                                        : result_of_backup(l->operation);
    if (json_is_true(steps))
        json_object_set_new(end.result, "recorded", json_true()); /* the backup's provisional record, as a real one */
    json_object_del(jobs, l->operation);
    movers_n--;
    events->progress(l->operation, progress, events_arg);
    events->ended(l->operation, &end, events_arg);
    json_decref(progress);
    json_decref(end.result);
    json_decref(steps);
}

int movers_new(struct movers **ret, const struct movers_opts *o, struct err *e)
{
    (void)e;
    *ret = NULL;
    events = o->events;
    events_arg = o->arg;
    jobs = json_object();
    return 0;
}
void movers_free(struct movers *m)
{
    (void)m;
    json_decref(jobs);
}
int movers_start(struct movers *m, const struct mover_spec *s, struct err *e)
{
    (void)m, (void)e;
    json_t *steps = json_object_get(s->job, "do"), *job;
    const int64_t from = thread_cpu_ns();
    /* One that records outcomes has its steps in a file. */
    job = steps           ? json_incref(steps)
          : s->job_fd > 0 ? json_pack("{s:o}", "numbers", numbers_asked(s->job_fd))
                          : json_true();
    fake_ns += thread_cpu_ns() - from;
    json_object_set_new(jobs, s->operation, job);
    movers_n++;
    snprintf(later(mover_is_ready)->operation, sizeof((struct later *)0)->operation, "%s", s->operation);
    return 0;
}
int movers_go(struct movers *m, const char *operation, struct err *e)
{
    (void)m, (void)e;
    events->started(operation, events_arg);
    snprintf(later(mover_has_ended)->operation, sizeof((struct later *)0)->operation, "%s", operation);
    return 0;
}
int movers_adopt(struct movers *m, const struct process_identity *identity, const struct mover_spec *s, struct err *e)
{
    (void)m, (void)identity, (void)s;
    return err_set(e, ERR_NOT_FOUND, ESRCH, "there are no movers of an earlier daemon");
}
int movers_result(struct movers *m, const char *operation, struct err *e)
{
    (void)m, (void)operation;
    return err_set(e, ERR_NOT_FOUND, ENOENT, "there are no results of an earlier daemon");
}
int movers_cancel(struct movers *m, const char *operation, int64_t deadline_ns, struct err *e)
{
    (void)m, (void)operation, (void)deadline_ns, (void)e;
    return 0;
}
int movers_forget(struct movers *m, const char *operation, const struct cfg_plugin *plugin, const char *plugin_id,
                  struct err *e)
{
    (void)m, (void)operation, (void)plugin, (void)plugin_id, (void)e;
    return 0;
}
int movers_sync(const struct movers *m, struct err *e)
{
    (void)m, (void)e;
    return 0;
}
void movers_limit(struct movers *m, const char *operation, const struct mover_limits *l)
{
    (void)m, (void)operation, (void)l;
}

struct left_results *movers_left_results(const struct movers *m)
{
    (void)m;
    return NULL;
}
void left_results_keep(struct left_results *l, const char *operation)
{
    (void)l, (void)operation;
}
unsigned left_results_remove(struct left_results *l)
{
    (void)l;
    return 0;
}
void left_results_free(struct left_results *l)
{
    (void)l;
}

void movers_forget_keys(struct movers *m)
{
    (void)m;
}
bool movers_has(const struct movers *m, const char *operation)
{
    (void)m;
    return json_object_get(jobs, operation) != NULL;
}
unsigned movers_count(const struct movers *m)
{
    (void)m;
    return movers_n;
}
json_t *movers_to_json(const struct movers *m, const char *operation)
{
    return movers_has(m, operation) ? json_object() : NULL;
}
int movers_end_stray(struct movers *m, const struct mover_listed *stray, struct err *e)
{
    (void)m, (void)stray, (void)e;
    return 0;
}

/* ---- who asks for the status meanwhile ---- */

struct latencies {
    double median_ms, p99_ms, most_ms;
    unsigned n;
};

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static volatile sig_atomic_t asked_to_end;
static void on_end(int sig)
{
    (void)sig;
    asked_to_end = 1;
}

static double ask_status(int fd)
{
    static const char request[] = "{\"id\": 1, \"verb\": \"status\"}\n";
    static char buf[1 << 16];
    const int64_t from = mono_ns();
    if (write(fd, request, sizeof request - 1) != (ssize_t)sizeof request - 1)
        return -1;
    for (;;) {
        const ssize_t n = read(fd, buf, sizeof buf);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        if (buf[n - 1] == '\n')
            return (double)(mono_ns() - from) / 1e6;
    }
}

static void __attribute__((noreturn)) asker(const char *socket_path, unsigned every_ms, int report)
{
    enum { MOST = 100000 };
    double *ms = calloc(MOST, sizeof *ms);
    struct latencies l = {.n = 0};
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%.100s", socket_path);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_end}, NULL);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!ms || fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
        die(socket_path);
    while (!asked_to_end && l.n < MOST) {
        const double t = ask_status(fd);
        if (t < 0)
            break;
        ms[l.n++] = t;
        usleep(every_ms * 1000);
    }
    qsort(ms, l.n, sizeof *ms, by_value);
    if (l.n) {
        l.median_ms = ms[l.n / 2];
        l.p99_ms = ms[(size_t)((double)l.n * 0.99)];
        l.most_ms = ms[l.n - 1];
    }
    _exit(write(report, &l, sizeof l) == (ssize_t)sizeof l ? 0 : 1);
}

/* ---- the event loop ---- */

/* CPU time of this thread in one iteration, and so what an answer waits for it at least: how many took so long. */
enum { STEPS_MS = 10, ITERATIONS = 1000 * STEPS_MS };
static unsigned iterations[ITERATIONS], iterations_n;
static double longest_ms;

static void iterations_reset(void)
{
    memset(iterations, 0, sizeof iterations);
    iterations_n = 0;
    longest_ms = 0;
}

/* The shortest time that this share of them does not exceed. */
static double iterations_within(double share)
{
    unsigned left = iterations_n - (unsigned)((double)iterations_n * share);
    for (unsigned i = ITERATIONS; i-- > 0; left -= iterations[i])
        if (iterations[i] > left || (iterations[i] && iterations[i] == left))
            return (double)(i + 1) / STEPS_MS;
    return 0;
}

static unsigned iterations_over(unsigned ms)
{
    unsigned n = 0;
    for (unsigned i = ms * STEPS_MS; i < ITERATIONS; i++)
        n += iterations[i];
    return n;
}

static void iterate(uint64_t at_most_us)
{
    const int64_t from = thread_cpu_ns() - fake_ns;
    if (sd_event_run(event_loop, at_most_us) < 0)
        die("event loop");
    const double ms = (double)(thread_cpu_ns() - fake_ns - from) / 1e6;
    longest_ms = ms > longest_ms ? ms : longest_ms;
    iterations[ms * STEPS_MS < ITERATIONS ? (unsigned)(ms * STEPS_MS) : ITERATIONS - 1]++;
    iterations_n++;
    if (ms > 50 && getenv("VERBOSE"))
        fprintf(stderr, "an iteration of %.0f ms at %.1f s\n", ms, (double)mono_ns() / 1e9);
}

/* ---- one run ---- */

struct figures {
    double seconds, cpu_s, longest_ms, p99_ms, p999_ms;
    unsigned commits, completed, proven, over_100ms;
    unsigned long long walked, texts, reads, sql, values;
    long rss_start_kib, rss_kib;
    struct latencies status;
};

static double cpu_now(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static long rss_peak(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    long kib = 0;
    while (f && fgets(line, sizeof line, f))
        sscanf(line, "VmHWM: %ld", &kib);
    if (f)
        fclose(f);
    return kib;
}

static char backup_id[512];

static void submitted(json_t *result, const struct err *e, void *arg)
{
    (void)arg;
    if (e) {
        fprintf(stderr, "bench_scale: the job is refused: %s\n", e->msg);
        exit(1);
    }
    snprintf(backup_id, sizeof backup_id, "%s", jstr(result, "backup"));
}

static void quiet_log(enum log_level lvl, const char *line, void *arg)
{
    (void)arg;
    const char *verbose = getenv("VERBOSE");
    if (lvl >= LOG_LVL_ERROR || (verbose && atoi(verbose) > 1))
        fprintf(stderr, "%s\n", line);
}

static void write_text(const char *dir, const char *name, const char *text)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f))
        die(path);
}

static void config(const char *dir, unsigned slots)
{
    char text[4096];
    snprintf(text, sizeof text,
             "[daemon]\nnode-name = bench\nslots = %u\nmemory-total = 1TiB\n[metrics]\nlisten =\n"
             "[repository \"main\"]\ntype = filesystem\npath = %.500s/repo\npassword-file = %.500s/pw\n"
             "[storage-class \"images\"]\ndriver = reflink\nmatch = /srv/vm/*.img\nmax-per-device = %u\n"
             "[job \"all\"]\nvolumes = /srv/vm/*.img\non-calendar = yearly\n",
             slots, dir, dir, slots);
    umask(077); /* a password file that others can read is refused */
    write_text(dir, "snapferry.ini", text);
    write_text(dir, "pw", "benchmark\n");
}

static void loop_for(double seconds)
{
    const int64_t end = mono_ns() + (int64_t)(seconds * 1e9);
    while (mono_ns() < end)
        iterate(50000);
}

/* ---- answers about a backup that has ended ---- */

static double longest_answer_ms;

static void answered_in(const char *what, json_t *answer, int64_t from)
{
    const double ms = (double)(thread_cpu_ns() - from) / 1e6;
    longest_answer_ms = ms > longest_answer_ms ? ms : longest_answer_ms;
    if (getenv("VERBOSE"))
        fprintf(stderr, "%s: %.1f ms, %zu bytes\n", what, ms, json_dumpb(answer, NULL, 0, JSON_COMPACT));
    json_decref(answer);
}

static void count_answers(struct engine *g)
{
    CLEANUP(backup_clear) struct backup b = ROW_INIT;
    struct answer_facts f;
    struct err e = ERR_INIT;
    json_t *answer = NULL;
    int64_t from = thread_cpu_ns();
    if (backup_get(engine_records(g), backup_id, &b, &e) < 0)
        die(backup_id);
    answered_in("the end of a wait", engine_backup_json(g, &b, true), from);
    engine_facts(g, &f);
    from = thread_cpu_ns();
    answer_describe(&f, backup_id, &answer, &e);
    answered_in("describe BACKUP", answer, from);
    from = thread_cpu_ns();
    answer_natives(&f, &(struct answer_query){.volume = "", .limit = 500}, &answer, &e);
    answered_in("native list", answer, from);
    const struct answer_query q = {
        .volume = "", .backup = backup_id, .state = "", .since_ns = INT64_MIN, .limit = 1000, .max_bytes = 256 << 10};
    from = thread_cpu_ns();
    answer_list(&f, ROW_OPERATION, &q, &answer, &e);
    answered_in("operations", answer, from);
    answer_facts_clear(&f);
}

static int count_completed(const struct operation *op, void *arg)
{
    struct figures *x = arg;
    x->completed += op->kind == KIND_BACKUP && op->state == OP_COMPLETED;
    x->proven += op->verified_ns != 0;
    return 0;
}

static void __attribute__((noreturn)) run(const char *dir, unsigned n, unsigned slots, unsigned status_ms, int report)
{
    static struct engine_paths paths;
    struct figures x = {.seconds = 0};
    struct err e = ERR_INIT;
    struct engine *g;
    struct control *control;
    struct cfg *c = NULL;
    char socket_path[4200];
    pid_t who = 0;
    int ends[2];
    volumes_n = n;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* who measures was ended */
    log_to(quiet_log, NULL);
    signal(SIGPIPE, SIG_IGN);
    null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    snprintf(paths.config_dir, sizeof paths.config_dir, "%s", dir);
    snprintf(paths.state_dir, sizeof paths.state_dir, "%s", dir);
    snprintf(paths.runtime_dir, sizeof paths.runtime_dir, "%s", dir);
    snprintf(paths.cache_dir, sizeof paths.cache_dir, "%s", dir);
    config(dir, slots);
    if (cfg_load_dir(&c, dir, &e) < 0 || sd_event_default(&event_loop) < 0 ||
        engine_new(&g, event_loop, &paths, c, &e) < 0 || control_new(&control, event_loop, g, dir, "", &e) < 0) {
        fprintf(stderr, "bench_scale: %s\n", e.msg);
        exit(1);
    }
    loop_for(1.5); /* what a start looks at is not the job's */
    fsync_ms = setting("FSYNC_MS", 0);
    if (pipe2(ends, O_CLOEXEC) < 0)
        die("pipe");
    snprintf(socket_path, sizeof socket_path, "%s/control.sock", dir);
    if (status_ms && (who = fork()) == 0)
        asker(socket_path, status_ms, ends[1]);
    CLEANUP(request_args_clear) struct request_args req;
    request_args_init(&req);
    str_set(&req.job, "all");
    const double cpu = cpu_now();
    const int64_t from = mono_ns();
    const unsigned before = atomic_load(&commits);
    iterations_reset();
    work_reset();
    fake_ns = 0;
    x.rss_start_kib = rss_peak();
    engine_submit_backup(g, &req, submitted, NULL);
    while (!backup_id[0])
        iterate(50000);
    while (backup_peek(engine_records(g), backup_id)) /* it is live */
        iterate(50000);
    x.cpu_s = cpu_now() - cpu - (double)fake_ns / 1e9;
    x.seconds = (double)(mono_ns() - from) / 1e9;
    x.commits = atomic_load(&commits) - before;
    x.walked = work.walked;
    x.texts = work.texts;
    x.reads = work.reads;
    x.sql = work.sql;
    x.values = work.values;
    x.rss_kib = rss_peak();
    x.longest_ms = longest_ms;
    x.p99_ms = iterations_within(0.99);
    x.p999_ms = iterations_within(0.999);
    x.over_100ms = iterations_over(100);
    fsync_ms = 0;
    if (who > 0) {
        kill(who, SIGTERM);
        /* It may be waiting for an answer. */
        for (pid_t gone = 0; gone != who; gone = waitpid(who, NULL, WNOHANG))
            iterate(10000);
        if (read(ends[0], &x.status, sizeof x.status) != (ssize_t)sizeof x.status)
            die("nobody has measured the status");
    }
    count_answers(g);
    const struct operation_filter of_run = {.parent = backup_id};
    operation_each(engine_records(g), &of_run, count_completed, &x, NULL);
    _exit(write(report, &x, sizeof x) == (ssize_t)sizeof x ? 0 : 1);
}

static struct figures measure(const char *where, unsigned n, unsigned slots, unsigned status_ms)
{
    char dir[600], command[700];
    struct figures x;
    int ends[2];
    snprintf(dir, sizeof dir, "%.500s/snapferry-scale.XXXXXX", where);
    if (!mkdtemp(dir) || pipe2(ends, O_CLOEXEC) < 0)
        die(dir);
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0)
        run(dir, n, slots, status_ms, ends[1]);
    close(ends[1]);
    const bool whole = read(ends[0], &x, sizeof x) == (ssize_t)sizeof x;
    close(ends[0]);
    waitpid(pid, NULL, 0);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    if (system(command) || !whole)
        exit(1);
    return x;
}

int main(int argc, char **argv)
{
    static const char *const standard[] = {"10", "100", "1000", "5000", "10000"};
    const char *const *list = argc > 1 ? (const char *const *)argv + 1 : standard;
    const int count = argc > 1 ? argc - 1 : (int)(sizeof standard / sizeof *standard);
    const char *where = getenv("DIR") ? getenv("DIR") : "/var/tmp", *json = getenv("JSON");
    const unsigned slots = setting("SLOTS", 32), status_ms = setting("STATUS_MS", 100), delay = setting("FSYNC_MS", 0);
    setenv("SNAPFERRY_NO_SYSTEMD", "1", 1);
    setvbuf(stdout, NULL, _IOLBF, 0);
    json_set_alloc_funcs(counted_malloc, free);
    printf("%u slots, %u ms added to each sync; status asked each %u ms in a second run\n", slots, delay, status_ms);
    printf("%7s %9s %7s %8s %9s %8s %10s %8s %9s | %s | %s\n", "volumes", "completed", "proven", "seconds", "CPU ms/op",
           "commits", "commits/op", "RSS MiB", "limit MiB", "iterations: 99 %  99.9 %  longest ms  >100 ms",
           "status:    n   median     99 %   longest ms");
    for (int i = 0; i < count; i++) {
        const unsigned n = (unsigned)strtoul(list[i], NULL, 10);
        if (!n) {
            fprintf(stderr, "bench_scale: \"%s\" is no number of volumes\n", list[i]);
            return 2;
        }
        const struct figures x = measure(where, n, slots, 0);
        struct figures s = {.status = {.n = 0}};
        if (status_ms)
            s = measure(where, n, slots, status_ms);
        const double limit = 24 + (double)n * (5 + 1 + 1) / 1024;
        printf("%7u %9u %7u %8.1f %9.2f %8u %10.2f %8.1f %9.1f | %16.1f %7.1f %11.1f %8u | %12u %8.1f %8.1f %12.1f\n",
               n, x.completed, x.proven, x.seconds, x.cpu_s * 1000 / n, x.commits, (double)x.commits / n,
               (double)x.rss_kib / 1024, limit, x.p99_ms, x.p999_ms, x.longest_ms, x.over_100ms, s.status.n,
               s.status.median_ms, s.status.p99_ms, s.status.most_ms);
        FILE *f = json ? fopen(json, "a") : NULL;
        if (f) {
            fprintf(f,
                    "{\"volumes\":%u,\"completed\":%u,\"proven\":%u,\"seconds\":%.3f,\"cpuMsPerOperation\":%.3f,"
                    "\"commits\":%u,"
                    "\"rowsWalked\":%llu,\"rowsWritten\":%llu,\"rowsRead\":%llu,\"sqlSteps\":%llu,\"jsonValues\":%llu,"
                    "\"rssStartKiB\":%ld,\"rssKiB\":%ld,\"iterationP99Ms\":%.1f,\"iterationP999Ms\":%.1f,"
                    "\"longestIterationMs\":%.1f,"
                    "\"iterationsOver100Ms\":%u,\"fsyncMs\":%u,\"slots\":%u,\"statusAsked\":%u,"
                    "\"statusMedianMs\":%.2f,"
                    "\"statusP99Ms\":%.2f,\"statusMaxMs\":%.2f}\n",
                    n, x.completed, x.proven, x.seconds, x.cpu_s * 1000 / n, x.commits, x.walked, x.texts, x.reads,
                    x.sql, x.values, x.rss_start_kib, x.rss_kib, x.p99_ms, x.p999_ms, x.longest_ms, x.over_100ms, delay,
                    slots, s.status.n, s.status.median_ms, s.status.p99_ms, s.status.most_ms);
            fclose(f);
        }
    }
    return 0;
}
