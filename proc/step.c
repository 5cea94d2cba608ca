/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * step.c - blocking work in child processes, supervised by the event loop
 *
 * The channel is a stream socket with frames (type, length, bytes): log lines and progress as they come, one result at
 * the end, with the descriptor beside its header. Frames are untrusted. A step ends when its process has ended (pidfd);
 * the result alone is not the end, so that no step is reported as done while part of it still runs. Only a process that
 * does not end on SIGKILL is abandoned, and stays on the list of the stuck.
 */
#include "proc/step.h"
#include "base/json-text.h"
#include "base/cleanup.h"
#include "base/time.h"
#include "proc/descriptors.h"
#include "proc/parser.h"
#include "proc/process.h"
#include "proc/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RESULT_MAX (16u << 20)   /* bytes of JSON */
#define DEPTH_MAX 2048           /* of JSON, as jansson has it */
#define IN_PLACE_MAX (16u << 10) /* larger ones are parsed in a thread */
#define LOG_MAX 2048u
#define LOG_LINES_MAX 1000u /* of one step */
#define READ_AT_ONCE 65536u /* the loop has others to serve */
#define DIE_USEC 2000000u   /* how long SIGKILL may take before the step is called stuck */
#define FREE_WAIT_MS 500    /* the same when the daemon ends */

enum frame_type { FRAME_LOG = 1, FRAME_RESULT = 2, FRAME_PROGRESS = 3 };
struct frame {
    uint32_t type, len;
};

struct step {
    struct steps *owner;
    struct step *next, **prev;
    char name[256];
    pid_t pid;
    int pidfd, channel;
    sd_event_source *on_exit, *on_data, *on_time;
    uint64_t started_usec;
    unsigned timeout_s;
    step_done_fn *done;
    void *arg;
    step_progress_fn *progress; /* NULL: nobody watches */
    void *progress_arg;
    /* incoming */
    struct frame head;
    size_t head_len, body_len;
    char *body;
    bool has_result;       /* a frame of it was received */
    struct parse *parsing; /* it is parsed */
    json_t *result;        /* its document */
    int fd;
    bool nonsense, no_memory;
    /* how it ends */
    bool timed_out, canceled, killed;
    bool stuck; /* done was called, the process still exists */
    bool exited;
    siginfo_t exit; /* if it has, and its result is still parsed */
};

struct steps {
    sd_event *loop;
    struct step *first;
    unsigned running, stuck;
    struct parser *parser;
};

static void step_free(struct step *t)
{
    if (t->prev) {
        *t->prev = t->next;
        if (t->next)
            t->next->prev = t->prev;
    }
    sd_event_source_disable_unref(t->on_exit);
    sd_event_source_disable_unref(t->on_data);
    sd_event_source_disable_unref(t->on_time);
    closep(&t->pidfd);
    closep(&t->channel);
    closep(&t->fd);
    parse_drop(t->parsing);
    json_decref(t->result);
    free(t->body);
    free(t);
}

/* ---- the child ---- */

struct child {
    int channel;
    unsigned lines; /* logged */
};

/* What the child gets: bytes, since it may be forked by the spawner, which has none of the daemon's memory. */
struct task {
    step_fn *fn;
    char in[]; /* JSON text; "": none */
};

/* All of it, with a descriptor (-1: none) beside the first byte. */
static int send_all(int channel, const void *data, size_t n, int fd)
{
    const char *p = data;
    while (n) {
        ssize_t w = descriptors_send(channel, p, n, &fd, fd >= 0, 0);
        if (w <= 0)
            return -EPIPE;
        p += w;
        n -= (size_t)w;
        fd = -1;
    }
    return 0;
}

static void child_log(enum log_level lvl, const char *line, void *arg)
{
    struct child *c = arg;
    if (++c->lines > LOG_LINES_MAX)
        return;
    char text[LOG_MAX];
    int n = c->lines == LOG_LINES_MAX
                ? snprintf(text, sizeof text, "%c%s", '0' + LOG_LVL_WARNING, "further lines dropped")
                : snprintf(text, sizeof text, "%c%s", '0' + (int)lvl, line);
    if (n >= (int)sizeof text)
        n = (int)sizeof text - 1;
    struct frame f = {FRAME_LOG, (uint32_t)n};
    if (send_all(c->channel, &f, sizeof f, -1) == 0)
        send_all(c->channel, text, (size_t)n, -1);
}

/* The channel of this process, which is a step; -1: it is none. */
static int own_channel = -1;

void step_report(json_t *doc)
{
    CLEANUP_FREE char *text = own_channel >= 0 && doc ? json_text(doc, NULL) : NULL;
    const size_t n = text ? strlen(text) : 0;
    const struct frame f = {FRAME_PROGRESS, (uint32_t)n};
    json_decref(doc);
    if (n && n <= STEP_REPORT_MAX && send_all(own_channel, &f, sizeof f, -1) == 0)
        send_all(own_channel, text, n, -1);
}

/* Text that may not be UTF-8 (output of a program) as JSON. */
static json_t *text_json(const char *s)
{
    json_t *j = json_string(s);
    if (j)
        return j;
    char copy[sizeof((struct err *)NULL)->msg];
    snprintf(copy, sizeof copy, "%s", s);
    for (char *p = copy; *p; p++)
        if ((unsigned char)*p >= 0x80)
            *p = '?';
    return json_string(copy);
}

/* The header, with the descriptor if there is one, and the text: at once, so that the other side wakes up once. */
static int send_result(int channel, const char *text, size_t n, int fd)
{
    const struct frame f = {FRAME_RESULT, (uint32_t)n};
    CLEANUP_FREE char *all = malloc(sizeof f + n);
    if (!all)
        return send_all(channel, &f, sizeof f, fd) < 0 ? -EPIPE : send_all(channel, text, n, -1);
    memcpy(all, &f, sizeof f);
    memcpy(all + sizeof f, text, n);
    return send_all(channel, all, sizeof f + n, fd);
}

static json_t *result_json(json_t *out, const struct err *e)
{
    return json_pack("{s:o?, s:i, s:i, s:o, s:o}", "out", out, "class", (int)e->cls, "errno", e->sys, "message",
                     text_json(e->msg), "hint", text_json(e->hint));
}

static int child_report(int channel, json_t *out, int fd, const struct err *e)
{
    json_t *j = result_json(json_incref(out), e);
    char *text = j ? json_text(j, NULL) : NULL;
    size_t n = text ? strlen(text) : 0;
    json_decref(j);
    if (n && n <= RESULT_MAX)
        return send_result(channel, text, n, fd);
    free(text);
    struct err mine = ERR_INIT;
    if (n)
        err_set(&mine, ERR_GENERIC, EMSGSIZE, "result longer than %u bytes", RESULT_MAX);
    else
        err_nomem(&mine);
    j = result_json(NULL, &mine);
    text = j ? json_text(j, NULL) : NULL;
    return text ? send_result(channel, text, strlen(text), -1) : -ENOMEM;
}

static void child_main(int channel, void *arg)
{
    const struct task *task = arg;
    struct child c = {.channel = channel};
    struct err e = ERR_INIT;
    json_t *out = NULL;
    log_to(child_log, &c);
    own_channel = channel;
    json_t *in = task->in[0] ? json_loads(task->in, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
    int fd = -1, rc = !in && task->in[0] ? err_nomem(&e) : task->fn(in, &out, &fd, &e);
    if (rc >= 0)
        e = (struct err)ERR_INIT;
    else if (e.cls == ERR_NONE)
        err_set(&e, ERR_GENERIC, -rc, "failed without an error");
    _exit(child_report(channel, out, rc < 0 ? -1 : fd, &e) < 0 ? 126 : 0);
}

/* ---- the end of a step, in the daemon ---- */

/* The contents of the result frame, into r; a malformed one is an error. */
static void take_result(struct step *t, struct step_result *r)
{
    json_t *cls = json_object_get(t->result, "class"), *sys = json_object_get(t->result, "errno");
    const char *msg = json_string_value(json_object_get(t->result, "message"));
    const char *hint = json_string_value(json_object_get(t->result, "hint"));
    if (!json_is_integer(cls) || !json_is_integer(sys) || !msg || !hint) {
        err_set(&r->err, ERR_GENERIC, EBADMSG, "%s: malformed result of its process", t->name);
        return;
    }
    r->out = json_object_get(t->result, "out");
    if (json_is_null(r->out))
        r->out = NULL;
    r->fd = take_fd(&t->fd);
    if (json_integer_value(cls) == ERR_NONE)
        return;
    r->err.cls = (enum err_class)json_integer_value(cls);
    r->err.sys = (int)json_integer_value(sys);
    snprintf(r->err.msg, sizeof r->err.msg, "%s", msg);
    snprintf(r->err.hint, sizeof r->err.hint, "%s", hint);
}

/* `si` NULL: the process still exists although it was killed. */
static void ended_without_result(struct step *t, const siginfo_t *si, struct step_result *r)
{
    if (t->canceled) {
        r->canceled = true;
        err_set(&r->err, ERR_INTERRUPTED, ECANCELED, "%s: canceled after %.1f s%s", t->name, r->seconds,
                si ? "" : "; its process hangs in the kernel and was abandoned");
    } else if (t->result) {
        take_result(t, r);
    } else if (t->timed_out) {
        r->timed_out = true;
        err_set(&r->err, ERR_GENERIC, 0, "%s: timed out after %u s%s", t->name, t->timeout_s,
                si ? "" : "; its process hangs in the kernel and does not end");
        r->err.sys = ETIMEDOUT; /* whose own text speaks of connections */
        if (!si)
            err_hint(&r->err, "the storage does not answer: see dmesg and /proc/%d/stack", (int)t->pid);
    } else if (t->nonsense) {
        err_set(&r->err, ERR_GENERIC, EBADMSG, "%s: malformed message of its process", t->name);
    } else if (t->no_memory) {
        err_nomem(&r->err);
    } else if (si && si->si_code != CLD_EXITED) {
        err_set(&r->err, ERR_GENERIC, 0, "%s: its process was killed by signal %d (%s)", t->name, si->si_status,
                strsignal(si->si_status));
        log_warning("%s", r->err.msg); /* unexpected: worth a warning whatever the caller does with it */
    } else {
        err_set(&r->err, ERR_GENERIC, 0, "%s: its process ended with code %d without a result", t->name,
                si ? si->si_status : -1);
    }
}

static void step_deliver(struct step *t, const siginfo_t *si)
{
    struct step_result r = {
        .fd = -1, .seconds = (double)((uint64_t)mono_ns() / 1000 - t->started_usec) / 1e6, .err = ERR_INIT};
    ended_without_result(t, si, &r);
    step_done_fn *done = t->done;
    void *arg = t->arg;
    json_t *keep = json_incref(t->result);
    t->owner->running--;
    if (si) {
        step_free(t);
    } else {
        t->stuck = true;
        t->owner->stuck++;
        t->on_data = sd_event_source_disable_unref(t->on_data);
        t->on_time = sd_event_source_disable_unref(t->on_time);
        log_warning("%s: process %d does not end on SIGKILL", t->name, (int)t->pid);
    }
    /* From here on the callback may free all of it. */
    if (done)
        done(&r, arg);
    closep(&r.fd);
    json_decref(keep);
}

/* ---- incoming ---- */

static void kill_now(struct step *t);

static ssize_t message_receive(struct step *t, void *to, size_t n)
{
    int fd;
    ssize_t got = descriptors_receive(t->channel, to, n, &fd, 1, NULL);
    if (fd >= 0 && t->fd >= 0)
        close(fd);
    else if (fd >= 0)
        t->fd = fd;
    return got;
}

static bool head_sane(const struct step *t)
{
    if (t->head.type == FRAME_LOG)
        return t->head.len > 0 && t->head.len <= LOG_MAX;
    if (t->head.type == FRAME_PROGRESS)
        return t->head.len > 0 && t->head.len <= STEP_REPORT_MAX;
    return t->head.type == FRAME_RESULT && t->head.len > 0 && t->head.len <= RESULT_MAX && !t->has_result;
}

/* Its process is expected to have ended, or to end next. */
static void result_set(struct step *t, json_t *doc)
{
    t->nonsense = !json_is_object(doc);
    if (t->nonsense)
        json_decref(doc);
    else
        t->result = doc;
}

static int on_exited(sd_event_source *s, void *arg)
{
    struct step *t = arg;
    (void)s;
    step_deliver(t, &t->exit);
    return 0;
}

static void on_parsed(json_t *doc, const char *why, void *arg)
{
    struct step *t = arg;
    (void)why;
    t->parsing = NULL;
    result_set(t, doc);
    if (!t->exited && t->nonsense)
        kill_now(t);
    /* Not from here: its callback may free everything. */
    if (t->exited && sd_event_add_defer(t->owner->loop, &t->on_exit, on_exited, t) < 0)
        step_deliver(t, &t->exit);
}

static void parse_result(struct step *t)
{
    static const struct parse_limits limits = {.bytes = RESULT_MAX, .bounds = {RESULT_MAX, DEPTH_MAX}};
    t->has_result = true;
    if (t->body_len <= IN_PLACE_MAX) {
        result_set(t, json_loadb(t->body, t->body_len, 0, NULL));
        return;
    }
    t->parsing = parse_text(t->owner->parser, t->body, t->body_len, &limits, on_parsed, t);
    t->no_memory = !t->parsing;
    t->body = NULL;
}

static void take_progress(struct step *t)
{
    json_t *doc = json_loadb(t->body, t->body_len, 0, NULL);
    t->nonsense = !json_is_object(doc);
    if (!t->nonsense && t->progress && !t->canceled)
        t->progress(doc, t->progress_arg);
    json_decref(doc);
}

static void take_frame(struct step *t)
{
    t->body[t->body_len] = '\0';
    if (t->head.type == FRAME_LOG) {
        int lvl = t->body[0] - '0';
        if (lvl < LOG_LVL_DEBUG || lvl > LOG_LVL_ERROR)
            lvl = LOG_LVL_WARNING;
        log_line((enum log_level)lvl, "%s: %s", t->name, t->body + 1);
    } else if (t->head.type == FRAME_PROGRESS) {
        take_progress(t);
    } else {
        parse_result(t);
    }
    free(t->body);
    t->body = NULL;
    t->head_len = t->body_len = 0;
}

/* Reads up to `most` bytes. False: there is no more, for now or for ever. */
static bool read_some(struct step *t, size_t most)
{
    for (size_t sum = 0; sum < most && !t->nonsense && !t->no_memory;) {
        bool head = t->head_len < sizeof t->head;
        char *to = head ? (char *)&t->head + t->head_len : t->body + t->body_len;
        size_t want = head ? sizeof t->head - t->head_len : t->head.len - t->body_len;
        ssize_t n = message_receive(t, to, want);
        if (n <= 0) {
            if (n != -EAGAIN)
                t->on_data = sd_event_source_disable_unref(t->on_data);
            return false;
        }
        sum += (size_t)n;
        if (!head) {
            t->body_len += (size_t)n;
        } else if ((t->head_len += (size_t)n) == sizeof t->head) {
            t->nonsense = !head_sane(t);
            t->body = t->nonsense ? NULL : malloc((size_t)t->head.len + 1);
            t->no_memory = !t->nonsense && !t->body;
        }
        if (t->body && t->body_len == t->head.len) {
            take_frame(t);
            if (t->has_result)
                return false;
        }
    }
    return !t->nonsense && !t->no_memory;
}

static int on_data(sd_event_source *s, int fd, uint32_t events, void *arg)
{
    (void)s, (void)fd, (void)events;
    struct step *t = arg;
    read_some(t, READ_AT_ONCE);
    if (t->nonsense || t->no_memory || t->has_result)
        /* Nothing more is expected: its end is next. What it sends nevertheless is read then; left enabled, a broken
         * channel would keep the loop from seeing it. */
        t->on_data = sd_event_source_disable_unref(t->on_data);
    if (t->nonsense || t->no_memory)
        kill_now(t);
    return 0;
}

static int on_exit_(sd_event_source *s, int fd, uint32_t events, void *arg)
{
    (void)s, (void)fd, (void)events;
    struct step *t = arg;
    siginfo_t si = {0};
    int rc;
    do
        rc = waitid(P_PIDFD, (id_t)t->pidfd, &si, WEXITED | WNOHANG);
    while (rc < 0 && errno == EINTR);
    if (rc == 0 && si.si_pid == 0)
        return 0;
    if (t->stuck) {
        log_warning("%s: process %d, which was stuck, has ended", t->name, (int)t->pid);
        t->owner->stuck--;
        step_free(t);
        return 0;
    }
    while (read_some(t, READ_AT_ONCE))
        ;
    if (!t->parsing) {
        step_deliver(t, &si);
        return 0;
    }
    t->exited = true;
    t->exit = si;
    t->on_exit = sd_event_source_disable_unref(t->on_exit);
    t->on_time = sd_event_source_disable_unref(t->on_time);
    return 0;
}

static int on_time(sd_event_source *s, uint64_t usec, void *arg)
{
    struct step *t = arg;
    if (t->killed && t->parsing) { /* its result is a fact, as soon as it is parsed */
        sd_event_source_set_time(s, usec + DIE_USEC / 10);
        return sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
    }
    if (t->killed) {
        step_deliver(t, NULL);
        return 0;
    }
    t->timed_out = true;
    kill_now(t);
    return 0;
}

/* The process is sent SIGKILL; from now on it has DIE_USEC. */
static void kill_now(struct step *t)
{
    if (t->killed || t->exited)
        return;
    t->killed = true;
    process_signal(t->pidfd, SIGKILL);
    if (sd_event_source_set_time(t->on_time, (uint64_t)mono_ns() / 1000 + DIE_USEC) < 0 ||
        sd_event_source_set_enabled(t->on_time, SD_EVENT_ONESHOT) < 0)
        log_warning("%s: cannot set its last deadline", t->name);
}

/* ---- public ---- */

int steps_new(struct steps **ret, sd_event *loop, struct err *e)
{
    struct steps *s = calloc(1, sizeof *s);
    if (!s)
        return err_nomem(e);
    int rc = parser_new(&s->parser, loop, e);
    if (rc < 0) {
        free(s);
        return rc;
    }
    s->loop = sd_event_ref(loop);
    *ret = s;
    return 0;
}

void steps_free(struct steps *s)
{
    if (!s)
        return;
    for (struct step *t = s->first; t; t = t->next)
        process_signal(t->pidfd, SIGKILL);
    uint64_t end = (uint64_t)mono_ns() / 1000 + FREE_WAIT_MS * 1000;
    while (s->first) {
        /* Killed children end at once; one that is stuck must not hold up the daemon's own end. */
        siginfo_t si = {0};
        while (waitid(P_PIDFD, (id_t)s->first->pidfd, &si, WEXITED | WNOHANG) == 0 && si.si_pid == 0 &&
               (uint64_t)mono_ns() / 1000 < end)
            usleep(1000);
        step_free(s->first);
    }
    parser_free(s->parser);
    sd_event_unref(s->loop);
    free(s);
}

static int watch(struct step *t, struct err *e)
{
    sd_event *loop = t->owner->loop;
    uint64_t deadline = t->started_usec + (uint64_t)t->timeout_s * 1000000;
    int rc = sd_event_add_io(loop, &t->on_exit, t->pidfd, EPOLLIN, on_exit_, t);
    if (rc >= 0)
        rc = sd_event_add_io(loop, &t->on_data, t->channel, EPOLLIN, on_data, t);
    if (rc >= 0)
        rc = sd_event_add_time(loop, &t->on_time, CLOCK_MONOTONIC, deadline, 10000, on_time, t);
    /* Data before the end of the process, so that a result is not read in a hurry. */
    if (rc >= 0)
        rc = sd_event_source_set_priority(t->on_data, SD_EVENT_PRIORITY_NORMAL - 1);
    return rc < 0 ? err_set(e, ERR_GENERIC, -rc, "%s: cannot watch its process", t->name) : 0;
}

static int step_fork(struct step *t, step_fn *fn, const json_t *in, struct err *e)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(e, ERR_GENERIC, errno, "%s: cannot make a channel", t->name);
    t->channel = pair[0];
    CLEANUP_CLOSE int theirs = pair[1];
    CLEANUP_FREE char *text = in ? json_text(in, NULL) : NULL;
    const size_t n = text ? strlen(text) : 0, len = sizeof(struct task) + n + 1;
    CLEANUP_FREE struct task *task = in && !text ? NULL : malloc(len);
    if (!task)
        return err_nomem(e);
    task->fn = fn;
    memcpy(task->in, text ? text : "", n + 1);
    const struct spawn_function f = {.name = "snapferryd-step",
                                     .fn = child_main,
                                     .arg = task,
                                     .arg_len = len,
                                     .channel = theirs,
                                     .dies_with_parent = true};
    struct spawned p;
    int rc = spawn_function(&p, &f, e);
    if (rc < 0)
        return err_wrap(e, "%s", t->name);
    t->pid = p.pid;
    t->pidfd = p.pidfd;
    return 0;
}

int step_start(struct steps *s, const char *name, step_fn *fn, const json_t *in, unsigned timeout_s, step_done_fn *done,
               void *arg, struct step **ret, struct err *e)
{
    if (!timeout_s)
        return err_set(e, ERR_GENERIC, EINVAL, "%s: a step needs a time limit", name);
    struct step *t = calloc(1, sizeof *t);
    if (!t)
        return err_nomem(e);
    *t = (struct step){
        .owner = s, .pidfd = -1, .channel = -1, .fd = -1, .timeout_s = timeout_s, .done = done, .arg = arg};
    snprintf(t->name, sizeof t->name, "%s", name);
    t->started_usec = (uint64_t)mono_ns() / 1000;
    int rc = step_fork(t, fn, in, e);
    if (rc == 0 && (rc = watch(t, e)) < 0) {
        process_signal(t->pidfd, SIGKILL);
        waitid(P_PIDFD, (id_t)t->pidfd, &(siginfo_t){0}, WEXITED);
    }
    if (rc < 0) {
        step_free(t);
        return rc;
    }
    t->next = s->first;
    t->prev = &s->first;
    if (t->next)
        t->next->prev = &t->next;
    s->first = t;
    s->running++;
    if (ret)
        *ret = t;
    return 0;
}

void step_watch(struct step *t, step_progress_fn *fn, void *arg)
{
    t->progress = fn;
    t->progress_arg = arg;
}

void step_cancel(struct step *t)
{
    if (t->stuck)
        return;
    t->canceled = true;
    kill_now(t);
}

unsigned steps_stuck(const struct steps *s)
{
    return s->stuck;
}
unsigned steps_running(const struct steps *s)
{
    return s->running;
}

json_t *steps_to_json(const struct steps *s)
{
    json_t *all = json_array();
    for (const struct step *t = s->first; all && t; t = t->next) {
        json_t *one = json_pack("{s:s, s:i, s:f, s:b}", "name", t->name, "pid", (int)t->pid, "seconds",
                                (double)((uint64_t)mono_ns() / 1000 - t->started_usec) / 1e6, "stuck", t->stuck);
        if (json_array_append_new(all, one) < 0) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}
