/* SPDX-License-Identifier: GPL-2.0-or-later */
/* hooks.c - hooks as steps, and the watchdog that runs the post-snapshot hook when nobody else does */
#include "daemon/engine/hooks.h"
#include "base/cleanup.h"
#include "base/time.h"
#include "proc/program.h"
#include "proc/spawn.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMEOUT_DEFAULT 30u
#define OUTPUT_MAX 4096u /* of what a hook printed, in the record */
#define STDOUT_MAX (256u << 10)
#define THAW_TRIES 5u /* what is stopped must go on: the watchdog does not give up at once */
#define ENV_MAX 12u

/* ---- one hook ---- */

static const char *text(const json_t *in, const char *key)
{
    const char *s = json_string_value(json_object_get(in, key));
    return s ? s : "";
}

static const char *volume_part(const json_t *in, const char *key)
{
    const json_t *v = json_object_get(in, "volume");
    if (json_is_object(v))
        return text(v, key);
    return strcmp(key, "name") == 0 ? text(in, "volume") : "";
}

struct environment {
    const char *v[ENV_MAX + 1];
    char *owned[ENV_MAX];
    unsigned n, n_owned;
};

static void environment_clear(struct environment *env)
{
    for (unsigned i = 0; i < env->n_owned; i++)
        free(env->owned[i]);
}

static int environment_add(struct environment *env, const char *name, const char *value)
{
    char *s = NULL;
    if (env->n == ENV_MAX || asprintf(&s, "%s=%s", name, value) < 0)
        return -ENOMEM;
    env->owned[env->n_owned++] = s;
    env->v[env->n++] = s;
    return 0;
}

static int environment_make(struct environment *env, const json_t *in, struct err *e)
{
    env->v[env->n++] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    env->v[env->n++] = "LANG=C.UTF-8";
    if (environment_add(env, "SNAPFERRY_PHASE", text(in, "phase")) < 0 ||
        environment_add(env, "SNAPFERRY_BACKUP", text(in, "backup")) < 0 ||
        environment_add(env, "SNAPFERRY_OPERATION", text(in, "operation")) < 0 ||
        environment_add(env, "SNAPFERRY_VOLUME", volume_part(in, "name")) < 0 ||
        environment_add(env, "SNAPFERRY_VOLUME_ID", volume_part(in, "id")) < 0 ||
        environment_add(env, "SNAPFERRY_CLASS", text(in, "class")) < 0 ||
        environment_add(env, "SNAPFERRY_JOB", text(in, "job")) < 0 ||
        environment_add(env, "SNAPFERRY_RESULT", text(in, "result")) < 0 ||
        environment_add(env, "SNAPFERRY_DEVICE", text(in, "device")) < 0)
        return err_nomem(e);
    return 0;
}

static char *facts_text(const json_t *in)
{
    json_t *all = json_copy((json_t *)in);
    json_object_del(all, "program");
    json_object_set_new(all, "version", json_integer(1));
    char *s = all ? json_dumps(all, JSON_COMPACT) : NULL;
    json_decref(all);
    return s;
}

static json_t *outcome(const struct program *p, const char *phase, int status, double seconds, char *output, size_t len)
{
    if (len > OUTPUT_MAX)
        len = OUTPUT_MAX;
    while (len && output[len - 1] && strchr(" \r\n\t", output[len - 1]))
        len--;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)output[i] >= 0x80 || output[i] == '\0')
            output[i] = '?';
    return json_pack("{s:s, s:s, s:i, s:f, s:s#}", "program", p->argv[0], "phase", phase, "exit_code", status,
                     "seconds", seconds, "output", len ? output : "", len);
}

/* What is wrong with a program of theirs only they can find out. */
static int hint_of(const json_t *in, const char *program, int rc, struct err *e)
{
    if (!e->hint[0])
        err_hint(e, "`snapferry logs %s` has its output; correct %s and try again, or set hook-on-error = continue",
                 text(in, "backup"), program);
    return rc;
}

int hook_step(const json_t *in, json_t **out, int *fd, struct err *e)
{
    (void)fd;
    const char *program = text(in, "program"), *phase = text(in, "phase"), *volume = volume_part(in, "name");
    if (!*program || !*phase || !*volume)
        return err_set(e, ERR_GENERIC, EINVAL, "a hook needs a program, a phase and a volume");
    json_int_t timeout = json_integer_value(json_object_get(in, "timeout_s"));
    char label[512];
    snprintf(label, sizeof label, "%s hook of %s", phase, volume);
    CLEANUP(environment_clear) struct environment env = {.n = 0};
    CLEANUP_FREE char *input = facts_text(in);
    if (!input)
        return err_nomem(e);
    int rc = environment_make(&env, in, e);
    if (rc < 0)
        return rc;
    char *argv[] = {(char *)program, (char *)phase, (char *)volume, NULL};
    struct program p = {.argv = argv,
                        .env = env.v,
                        .label = label,
                        .input = input,
                        .input_len = strlen(input),
                        .out_max = STDOUT_MAX,
                        .timeout_s = timeout > 0 && timeout < 86400 ? (unsigned)timeout : TIMEOUT_DEFAULT};
    CLEANUP_FREE char *said = NULL;
    size_t len = 0;
    int status = -1;
    double began = (double)boot_ns() / 1e9;
    rc = program_run(&p, &said, &len, &status, e);
    if (rc < 0)
        return hint_of(in, program, rc, e);
    if (out)
        *out = outcome(&p, phase, status, (double)boot_ns() / 1e9 - began, said, len);
    return status == 0 ? 0 : hint_of(in, program, -EIO, e); /* the sentence is in e already */
}

/* ---- the watchdog ---- */

struct watchdog {
    struct watchdog *next;
    char operation[512];
    pid_t pid;
    int channel;
    bool fired, stopped;
};

static struct watchdog *watchdogs;

/* Its own lines go where the daemon's standard error goes; the daemon's own log may need descriptors that are closed.
 */
static void plain_log(enum log_level lvl, const char *line, void *arg)
{
    (void)arg;
    static const int priority[] = {7, 6, 4, 3};
    fprintf(stderr, "<%d>%s\n", priority[lvl], line);
}

/* Waits until it is told that all is well (true), the daemon is gone or the deadline has come. */
static bool told_in_time(int channel, double deadline, const char **why)
{
    for (;;) {
        double left = deadline - (double)boot_ns() / 1e9;
        struct pollfd f = {channel, POLLIN, 0};
        int n = left > 0 ? poll(&f, 1, left > 3600 ? 3600000 : (int)(left * 1000) + 1) : 0;
        if (n < 0 && errno != EINTR)
            left = 0;
        char c;
        ssize_t got = n > 0 ? read(channel, &c, 1) : -1;
        if (got == 1)
            return true;
        if (got == 0 || (n > 0 && errno != EINTR && errno != EAGAIN)) {
            *why = "the daemon is gone";
            return false;
        }
        if (left <= 0) {
            *why = "its time is over";
            return false;
        }
    }
}

/* Bytes, see spawn.h. */
struct watchdog_task {
    double deadline;
    char in[]; /* JSON text */
};

/* In a process of its own, which the end of the daemon does not end. */
static void watchdog_main(int channel, void *arg)
{
    const struct watchdog_task *task = arg;
    json_t *in = json_loads(task->in, 0, NULL);
    const char *why = "";
    log_to(plain_log, NULL);
    if (!in)
        _exit(1);
    if (told_in_time(channel, task->deadline, &why))
        return;
    log_warning("%s: the post-snapshot hook of %s is run by its watchdog: %s", text(in, "operation"),
                volume_part(in, "name"), why);
    (void)!write(channel, "f", 1);
    for (unsigned i = 0; i < THAW_TRIES; i++) {
        struct err e = ERR_INIT;
        json_t *out = NULL;
        int fd = -1;
        if (hook_step(in, &out, &fd, &e) == 0)
            return;
        log_line(LOG_LVL_ERROR, "%s", e.msg);
        sleep(i + 1);
    }
    _exit(1);
}

/* Those that have ended are no zombies for long: each call looks. */
static void watchdogs_reap(void)
{
    for (struct watchdog **p = &watchdogs; *p;) {
        struct watchdog *w = *p;
        if (w->stopped && waitpid(w->pid, NULL, WNOHANG) != 0) {
            *p = w->next;
            free(w);
        } else {
            p = &w->next;
        }
    }
}

static struct watchdog *watchdog_find(const char *operation)
{
    for (struct watchdog *w = watchdogs; w; w = w->next)
        if (!w->stopped && strcmp(w->operation, operation) == 0)
            return w;
    return NULL;
}

int hook_watchdog_start(const json_t *in, unsigned deadline_s, struct err *e)
{
    const char *operation = text(in, "operation");
    watchdogs_reap();
    if (!*text(in, "program") || watchdog_find(operation))
        return 0;
    CLEANUP_FREE char *copy = json_dumps(in, JSON_COMPACT);
    const size_t len = sizeof(struct watchdog_task) + (copy ? strlen(copy) : 0) + 1;
    CLEANUP_FREE struct watchdog_task *task = copy ? malloc(len) : NULL;
    struct watchdog *w = task ? calloc(1, sizeof *w) : NULL;
    if (!w)
        return err_nomem(e);
    task->deadline = (double)boot_ns() / 1e9 + deadline_s;
    strcpy(task->in, copy);
    snprintf(w->operation, sizeof w->operation, "%s", operation);
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        free(w);
        return err_set(e, ERR_GENERIC, errno, "%s: cannot make the channel of the hooks' watchdog", operation);
    }
    const struct spawn_function f = {.name = "snapferryd-thaw",
                                     .fn = watchdog_main,
                                     .arg = task,
                                     .arg_len = len,
                                     .channel = pair[1],
                                     .detached = true};
    struct spawned p;
    int rc = spawn_function(&p, &f, e);
    close(pair[1]);
    if (rc < 0) {
        close(pair[0]);
        free(w);
        return err_wrap(e, "%s: the hooks' watchdog", operation);
    }
    w->pid = p.pid;
    spawned_close(&p);
    w->channel = pair[0];
    w->next = watchdogs;
    watchdogs = w;
    return 0;
}

static void watchdog_look(struct watchdog *w)
{
    char c;
    if (!w->fired && recv(w->channel, &c, 1, MSG_DONTWAIT) == 1)
        w->fired = true;
}

bool hook_watchdog_stop(const char *operation)
{
    struct watchdog *w = watchdog_find(operation);
    bool fired = false;
    if (w) {
        (void)!send(w->channel, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        watchdog_look(w);
        fired = w->fired;
        close(w->channel);
        w->stopped = true;
    }
    watchdogs_reap();
    return fired;
}

unsigned hook_watchdogs_test(void)
{
    unsigned n = 0;
    watchdogs_reap();
    for (const struct watchdog *w = watchdogs; w; w = w->next)
        n += !w->stopped;
    return n;
}
