/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_step.c - blocking work in children: results, descriptors, deadlines, crashes, children that cannot be killed */
#include "tests/unit/loop.h"

#include "proc/spawner.h"
#include "proc/step.h"

#include <stddef.h>
#include <sys/syscall.h>
#include <linux/seccomp.h>
#include <linux/sched.h>
#include <linux/filter.h>
#include <poll.h>
#include <signal.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

static sd_event *loop;
static struct steps *steps;
static char logged[8192];
static unsigned lines;

static void sink(enum log_level lvl, const char *line, void *arg)
{
    (void)lvl, (void)arg;
    lines++;
    snprintf(logged, sizeof logged, "%s", line);
}

/* What a callback saw. */
struct seen {
    int calls;
    json_t *out;
    int fd;
    bool timed_out, canceled;
    double seconds;
    struct err e;
};

static void done(struct step_result *r, void *arg)
{
    struct seen *s = arg;
    s->calls++;
    s->out = json_incref(r->out);
    s->fd = take_fd(&r->fd);
    s->timed_out = r->timed_out;
    s->canceled = r->canceled;
    s->seconds = r->seconds;
    s->e = r->err;
}

static void seen_clear(struct seen *s)
{
    json_decref(s->out);
    closep(&s->fd);
}
#define SEEN CLEANUP(seen_clear) struct seen

static int setup(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    log_to(sink, NULL);
    lines = 0;
    logged[0] = '\0';
    return sd_event_new(&loop) < 0 || steps_new(&steps, loop, &e) < 0 ? -1 : 0;
}

/* The same with a spawner, which forks each child. */
static int setup_spawned(void **state)
{
    struct err e = ERR_INIT;
    return spawner_start(&e) < 0 ? -1 : setup(state);
}

static int teardown(void **state)
{
    (void)state;
    steps_free(steps);
    spawner_stop();
    loop = sd_event_unref(loop);
    return waitpid(-1, NULL, WNOHANG) == -1 ? 0 : -1; /* nothing is left to be reaped */
}

static void until(const int *calls, double most)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    double end = (double)t.tv_sec + (double)t.tv_nsec / 1e9 + most;
    while (!*calls) {
        assert_return_code(sd_event_run(loop, 20000), errno);
        clock_gettime(CLOCK_MONOTONIC, &t);
        if ((double)t.tv_sec + (double)t.tv_nsec / 1e9 > end)
            fail_msg("the step did not end within %.1f s", most);
    }
}

static struct seen run(step_fn *fn, const json_t *in, unsigned timeout)
{
    struct seen s = {.fd = -1, .e = ERR_INIT};
    struct err e = ERR_INIT;
    assert_ok(step_start(steps, "snapshot vg0/db1", fn, in, timeout, done, &s, NULL, &e), &e);
    assert_int_equal(s.calls, 0);
    until(&s.calls, timeout + 5);
    assert_int_equal(s.calls, 1);
    return s;
}

/* ---- what children do ---- */

static int fn_echo(const json_t *in, json_t **out, int *fd, struct err *e)
{
    (void)fd, (void)e;
    *out = json_pack("{s:O, s:i}", "got", in, "pid", (int)getpid());
    return 0;
}

static int fn_nothing(const json_t *in, json_t **out, int *fd, struct err *e)
{
    (void)in, (void)out, (void)fd, (void)e;
    return 0;
}

static int fn_fail(const json_t *in, json_t **out, int *fd, struct err *e)
{
    (void)in;
    *out = json_pack("{s:s}", "partial", "yes");
    *fd = open("/dev/null", O_RDONLY);
    err_set(e, ERR_GENERIC, ENOSPC, "cannot write %s", "\xff\xfe x");
    return err_hint(e, "make room");
}

static int fn_mute(const json_t *in, json_t **out, int *fd, struct err *e)
{
    (void)in, (void)out, (void)fd, (void)e;
    return -ENODEV;
}

static int fn_fd(const json_t *in, json_t **out, int *fd, struct err *e)
{
    (void)in, (void)out;
    *fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    return *fd < 0 ? err_set(e, ERR_GENERIC, errno, "open") : 0;
}

static int fn_large(const json_t *in, json_t **out, int *fd, struct err *e)
{
    (void)fd, (void)e;
    size_t n = (size_t)json_integer_value(in);
    CLEANUP_FREE char *s = malloc(n);
    memset(s, 'x', n);
    *out = json_stringn(s, n);
    return 0;
}

static int fn_sleep(const json_t *in, json_t **out, int *fd, struct err *e)
{
    (void)in, (void)out, (void)fd, (void)e;
    signal(SIGTERM, SIG_IGN);
    pause();
    return 0;
}

static int fn_signal(const json_t *in, json_t **out, int *fd, struct err *e)
{
    (void)out, (void)fd, (void)e;
    raise((int)json_integer_value(in));
    return 0;
}

static int fn_exit(const json_t *in, json_t **out, int *fd, struct err *e)
{
    (void)in, (void)out, (void)fd, (void)e;
    _exit(42);
}

static int fn_log(const json_t *in, json_t **out, int *fd, struct err *e)
{
    (void)out, (void)fd, (void)e;
    for (json_int_t i = 0; i < json_integer_value(in); i++)
        log_warning("line %d", (int)i);
    return 0;
}

static int fn_garbage(const json_t *in, json_t **out, int *fd, struct err *e)
{
    (void)out, (void)fd, (void)e;
    const uint32_t head[2] = {(uint32_t)json_integer_value(json_array_get(in, 0)),
                              (uint32_t)json_integer_value(json_array_get(in, 1))};
    send(3, head, sizeof head, 0);
    pause();
    return 0;
}

/* Each number up to `in`; among them what is too long, and what is none. */
static int fn_report(const json_t *in, json_t **out, int *fd, struct err *e)
{
    static char large[STEP_REPORT_MAX + 1];
    (void)out, (void)fd, (void)e;
    memset(large, 'x', sizeof large - 1);
    step_report(NULL);
    step_report(json_pack("{s:s}", "text", large));
    for (json_int_t i = 1; i <= json_integer_value(in); i++)
        step_report(json_pack("{s:I}", "done", i));
    return 0;
}

/* A result frame whose text is `in`. */
static int fn_forged(const json_t *in, json_t **out, int *fd, struct err *e)
{
    (void)out, (void)fd, (void)e;
    uint32_t head[2] = {2, (uint32_t)json_string_length(in)};
    send(3, head, sizeof head, 0);
    send(3, json_string_value(in), json_string_length(in), 0);
    _exit(0);
}

static int fn_look(const json_t *in, json_t **out, int *fd, struct err *e)
{
    (void)in, (void)fd, (void)e;
    int n = 0;
    for (int i = 0; i < 1024; i++)
        n += fcntl(i, F_GETFD) >= 0;
    sigset_t blocked;
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    struct sigaction pipe;
    sigaction(SIGPIPE, NULL, &pipe);
    *out = json_pack("{s:i, s:b, s:b}", "fds", n, "blocked", sigismember(&blocked, SIGTERM), "ignored",
                     pipe.sa_handler == SIG_IGN);
    return 0;
}

/* ---- tests ---- */

static void test_result(void **state)
{
    (void)state;
    json_t *in = json_pack("{s:s, s:i}", "volume", "vg0/db1 \xc3\xa4", "n", 7);
    SEEN s = run(fn_echo, in, 10);
    assert_ok(-(int)s.e.cls, &s.e);
    assert_true(json_equal(json_object_get(s.out, "got"), in));
    assert_int_not_equal(json_integer_value(json_object_get(s.out, "pid")), getpid());
    assert_int_equal(s.fd, -1);
    assert_int_equal(steps_running(steps), 0);
    json_decref(in);
    SEEN n = run(fn_nothing, NULL, 10);
    assert_int_equal(n.e.cls, ERR_NONE);
    assert_null(n.out);
}

static void test_error(void **state)
{
    (void)state;
    SEEN s = run(fn_fail, NULL, 10);
    assert_int_equal(s.e.cls, ERR_NO_SPACE);
    assert_int_equal(s.e.sys, ENOSPC);
    assert_string_equal(s.e.msg, "cannot write ?? x: No space left on device");
    assert_string_equal(s.e.hint, "make room");
    assert_string_equal(json_string_value(json_object_get(s.out, "partial")), "yes");
    assert_int_equal(s.fd, -1);
    SEEN m = run(fn_mute, NULL, 10);
    assert_int_equal(m.e.sys, ENODEV);
    assert_true(m.e.msg[0]);
}

static void test_descriptor(void **state)
{
    (void)state;
    SEEN s = run(fn_fd, NULL, 10);
    assert_true(s.fd >= 0);
    assert_true(fcntl(s.fd, F_GETFD) & FD_CLOEXEC);
    char b[5] = "";
    assert_int_equal(read(s.fd, b, 4), 4);
    assert_string_equal(b, "root");
    /* One that nobody takes is closed. */
    int before = dup(0);
    close(before);
    struct err e = ERR_INIT;
    struct seen t = {.fd = -1};
    assert_ok(step_start(steps, "x", fn_fd, NULL, 5, done, &t, NULL, &e), &e);
    until(&t.calls, 5);
    closep(&t.fd);
    int after = dup(0);
    close(after);
    assert_int_equal(before, after);
}

static void test_large_result(void **state)
{
    (void)state;
    json_t *n = json_integer(8 << 20);
    SEEN s = run(fn_large, n, 20);
    assert_int_equal(json_string_length(s.out), 8 << 20);
    json_integer_set(n, 17 << 20);
    SEEN big = run(fn_large, n, 20);
    assert_null(big.out);
    assert_int_equal(big.e.sys, EMSGSIZE);
    json_decref(n);
}

/* It is parsed in a thread: whatever happens meanwhile, its end is heard of once. */
static void test_large_result_canceled(void **state)
{
    (void)state;
    json_t *n = json_integer(4 << 20);
    unsigned whole = 0;
    for (int i = 0; i < 24; i++) {
        SEEN s = {.fd = -1};
        struct err e = ERR_INIT;
        struct step *t = NULL;
        assert_ok(step_start(steps, "large", fn_large, n, 20, done, &s, &t, &e), &e);
        if (i == 23)
            until(&s.calls, 20);
        for (int turns = 0; turns < 8 * i && !s.calls; turns++)
            sd_event_run(loop, 2000);
        if (!s.calls)
            step_cancel(t);
        until(&s.calls, 20);
        assert_int_equal(s.calls, 1);
        assert_true(s.canceled != (json_string_length(s.out) == 4 << 20));
        whole += !s.canceled;
    }
    assert_true(whole > 0 && whole < 24);
    json_decref(n);
}

static void test_timeout(void **state)
{
    (void)state;
    SEEN s = run(fn_sleep, NULL, 1);
    assert_true(s.timed_out);
    assert_int_equal(s.e.sys, ETIMEDOUT);
    assert_non_null(strstr(s.e.msg, "snapshot vg0/db1: timed out after 1 s"));
    assert_true(s.seconds >= 1 && s.seconds < 3);
    struct err e = ERR_INIT;
    assert_true(step_start(steps, "x", fn_sleep, NULL, 0, done, &s, NULL, &e) < 0);
}

static void test_cancel(void **state)
{
    (void)state;
    SEEN s = {.fd = -1};
    struct err e = ERR_INIT;
    struct step *t;
    assert_ok(step_start(steps, "x", fn_sleep, NULL, 100, done, &s, &t, &e), &e);
    assert_int_equal(steps_running(steps), 1);
    step_cancel(t);
    assert_int_equal(s.calls, 0);
    until(&s.calls, 3);
    assert_true(s.canceled && !s.timed_out);
    assert_int_equal(s.e.cls, ERR_INTERRUPTED);
}

static void test_crash(void **state)
{
    (void)state;
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    json_t *sig = json_integer(SIGSEGV);
    SEEN s = run(fn_signal, sig, 10);
    assert_non_null(strstr(s.e.msg, "snapshot vg0/db1: its process was killed by signal 11 (Segmentation fault)"));
    json_integer_set(sig, SIGKILL);
    SEEN k = run(fn_signal, sig, 10);
    assert_non_null(strstr(k.e.msg, "signal 9"));
    json_decref(sig);
    SEEN x = run(fn_exit, NULL, 10);
    assert_non_null(strstr(x.e.msg, "ended with code 42 without a result"));
}

/* What writes much has time for it, also on a busy machine under a sanitizer. */
static unsigned long_s(void)
{
    return getenv("SNAPFERRY_SANITIZED") ? 120 : 20;
}

static void test_log(void **state)
{
    (void)state;
    json_t *n = json_integer(2);
    SEEN s = run(fn_log, n, long_s());
    assert_int_equal(s.e.cls, ERR_NONE);
    assert_int_equal(lines, 2);
    assert_string_equal(logged, "snapshot vg0/db1: line 1");
    json_integer_set(n, 1000000);
    SEEN f = run(fn_log, n, long_s());
    assert_int_equal(f.e.cls, ERR_NONE);
    assert_int_equal(lines, 1002);
    assert_string_equal(logged, "snapshot vg0/db1: further lines dropped");
    json_decref(n);
}

static json_int_t reported;

static void on_report(const json_t *doc, void *arg)
{
    const struct seen *s = arg;
    assert_int_equal(s->calls, 0);
    const json_int_t now = json_integer_value(json_object_get(doc, "done"));
    assert_int_equal(now, reported + 1);
    reported = now;
}

static void test_progress(void **state)
{
    (void)state;
    json_t *n = json_integer(20000); /* more than one turn of the loop reads */
    struct err e = ERR_INIT;
    SEEN s = {.fd = -1};
    struct step *t;
    reported = 0;
    assert_ok(step_start(steps, "copy", fn_report, n, long_s(), done, &s, &t, &e), &e);
    step_watch(t, on_report, &s);
    until(&s.calls, long_s());
    assert_int_equal(s.e.cls, ERR_NONE);
    assert_int_equal(reported, 20000);
    SEEN alone = run(fn_report, n, long_s());
    assert_int_equal(alone.e.cls, ERR_NONE);
    assert_int_equal(lines, 0);
    json_decref(n);
    step_report(json_object()); /* no step: nothing happens */
}

static void test_nonsense(void **state)
{
    (void)state;
    /* Unknown type; log longer than allowed; a result of 4 GiB; an empty one; progress that is too long, or empty. */
    const uint32_t frames[][2] = {{9, 1}, {1, 4096}, {2, UINT32_MAX}, {2, 0}, {3, STEP_REPORT_MAX + 1}, {3, 0}};
    for (size_t i = 0; i < sizeof frames / sizeof *frames; i++) {
        json_t *in = json_pack("[I,I]", (json_int_t)frames[i][0], (json_int_t)frames[i][1]);
        SEEN s = run(fn_garbage, in, 10);
        assert_non_null(strstr(s.e.msg, "malformed"));
        assert_true(s.seconds < 5);
        json_decref(in);
    }
    static char large[100000];
    memset(large, '[', sizeof large - 1);
    const char *texts[] = {"not json", "[]", "{}", large,
                           "{\"class\": 1, \"errno\": \"x\", \"message\": \"\", \"hint\": \"\"}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_t *in = json_string(texts[i]);
        SEEN s = run(fn_forged, in, 10);
        assert_non_null(strstr(s.e.msg, "malformed"));
        json_decref(in);
    }
}

static void test_inherits_nothing(void **state)
{
    (void)state;
    CLEANUP_CLOSE int leak = open("/dev/null", O_RDONLY);
    assert_true(leak >= 0);
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, &old);
    signal(SIGPIPE, SIG_IGN);
    SEEN s = run(fn_look, NULL, 10);
    sigprocmask(SIG_SETMASK, &old, NULL);
    signal(SIGPIPE, SIG_DFL);
    assert_int_equal(json_integer_value(json_object_get(s.out, "fds")), 4); /* 0-2 and the channel */
    assert_true(json_is_false(json_object_get(s.out, "blocked")));
    assert_true(json_is_false(json_object_get(s.out, "ignored")));
}

static void test_many_at_once(void **state)
{
    (void)state;
    struct seen s[24] = {0};
    struct err e = ERR_INIT;
    for (int i = 0; i < 24; i++) {
        s[i].fd = -1;
        assert_ok(step_start(steps, "many", i % 3 ? fn_echo : fn_sleep, NULL, i % 3 ? 10 : 1, done, &s[i], NULL, &e),
                  &e);
    }
    assert_int_equal(steps_running(steps), 24);
    json_t *j = steps_to_json(steps);
    assert_int_equal(json_array_size(j), 24);
    assert_string_equal(json_string_value(json_object_get(json_array_get(j, 0), "name")), "many");
    json_decref(j);
    for (int i = 0; i < 24; i++) {
        until(&s[i].calls, 8);
        assert_int_equal(s[i].timed_out, i % 3 == 0);
        seen_clear(&s[i]);
    }
    assert_int_equal(steps_running(steps), 0);
}

/* The daemon is killed: its steps go with it. */
static void test_dies_with_the_daemon(void **state)
{
    (void)state;
    int p[2];
    assert_return_code(pipe(p), errno);
    pid_t daemon_pid = fork();
    if (daemon_pid == 0) {
        sd_event *l;
        struct steps *s;
        if (sd_event_new(&l) < 0 || steps_new(&s, l, NULL) < 0 ||
            step_start(s, "x", fn_sleep, NULL, 100, NULL, NULL, NULL, NULL) < 0)
            _exit(1);
        json_t *j = steps_to_json(s);
        int pid = (int)json_integer_value(json_object_get(json_array_get(j, 0), "pid"));
        if (write(p[1], &pid, sizeof pid) != sizeof pid)
            _exit(1);
        pause();
    }
    int pid = 0;
    assert_int_equal(read(p[0], &pid, sizeof pid), sizeof pid);
    close(p[0]);
    close(p[1]);
    usleep(50000);
    assert_int_equal(kill(pid, 0), 0);
    kill(daemon_pid, SIGKILL);
    waitpid(daemon_pid, NULL, 0);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    for (int i = 0; i < 300; i++, usleep(10000)) {
        char c = 'X', line[256] = "";
        CLEANUP_FCLOSE FILE *f = fopen(path, "re");
        if (f && fgets(line, sizeof line, f) && strrchr(line, ')'))
            c = strrchr(line, ')')[2];
        if (c == 'X' || c == 'Z')
            return;
    }
    fail_msg("process %d survived the daemon", pid);
}

static void free_in_callback(struct step_result *r, void *arg)
{
    done(r, arg);
    steps_free(steps);
    steps = NULL;
    struct err e = ERR_INIT;
    assert_ok(steps_new(&steps, loop, &e), &e);
}

static void test_freed_in_its_callback(void **state)
{
    (void)state;
    SEEN s = {.fd = -1}, other = {.fd = -1};
    struct err e = ERR_INIT;
    assert_ok(step_start(steps, "other", fn_sleep, NULL, 100, done, &other, NULL, &e), &e);
    assert_ok(step_start(steps, "x", fn_fd, NULL, 5, free_in_callback, &s, NULL, &e), &e);
    until(&s.calls, 5);
    assert_true(s.fd >= 0);
    assert_int_equal(other.calls, 0);
    SEEN large = {.fd = -1};
    json_t *n = json_integer(4 << 20);
    assert_ok(step_start(steps, "large", fn_large, n, 20, free_in_callback, &large, NULL, &e), &e);
    until(&large.calls, 20);
    assert_int_equal(json_string_length(large.out), 4 << 20);
    /* And with the daemon's end in between. */
    for (int i = 0; i < 8; i++) {
        SEEN unheard = {.fd = -1};
        assert_ok(step_start(steps, "large", fn_large, n, 20, done, &unheard, NULL, &e), &e);
        for (int turns = 0; turns < 20 * i && !unheard.calls; turns++)
            sd_event_run(loop, 2000);
        steps_free(steps);
        assert_ok(steps_new(&steps, loop, &e), &e);
    }
    json_decref(n);
}

/* ---- a child that SIGKILL does not end: it writes to a frozen file system ---- */

static char frozen_dir[64];

static int fn_write_frozen(const json_t *in, json_t **out, int *fd, struct err *e)
{
    (void)out, (void)fd;
    int f = open(json_string_value(in), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (f < 0 || write(f, "x", 1) != 1)
        return err_set(e, ERR_GENERIC, errno, "write");
    return 0;
}

static void test_stuck_in_the_kernel(void **state)
{
    (void)state;
    need_loop();
    need_tool("mkfs.xfs");
    need_tool("fsfreeze");
    strcpy(frozen_dir, "/tmp/snapferry-step.XXXXXX");
    assert_non_null(mkdtemp(frozen_dir));
    char img[64], dev[64], mnt[64], file[80];
    snprintf(img, sizeof img, "%s/img", frozen_dir);
    snprintf(mnt, sizeof mnt, "%s/mnt", frozen_dir);
    snprintf(file, sizeof file, "%s/mnt/file", frozen_dir);
    loop_make(dev, sizeof dev, img, 320ull << 20, "");
    assert_true(shell("mkfs.xfs -q %s && mkdir %s && mount %s %s && touch %s && fsfreeze -f %s", dev, mnt, dev, mnt,
                      file, mnt));
    json_t *in = json_string(file);
    struct seen s = {.fd = -1}, t = {.fd = -1};
    struct err e = ERR_INIT;
    struct step *step = NULL;
    int rc = step_start(steps, "write", fn_write_frozen, in, 1, done, &s, NULL, &e);
    int rc2 = step_start(steps, "write too", fn_write_frozen, in, 100, done, &t, &step, &e);
    for (int i = 0; i < 40 && rc == 0; i++) /* 6 s at most; never leave it frozen */
        if (sd_event_run(loop, 150000) < 0 || (i == 3 && (step_cancel(step), 0)) || (s.calls && t.calls))
            break;
    unsigned stuck = steps_stuck(steps), running = steps_running(steps);
    json_t *j = steps_to_json(steps);
    bool thawed = shell("fsfreeze -u %s", mnt);
    for (int i = 0; i < 40 && steps_stuck(steps); i++)
        sd_event_run(loop, 100000);
    shell("umount %s", mnt);
    loop_drop(dev);
    loop_clean(frozen_dir);
    json_decref(in);
    assert_true(thawed);
    assert_ok(rc, &e);
    assert_ok(rc2, &e);
    assert_int_equal(s.calls, 1);
    assert_true(s.timed_out);
    assert_non_null(strstr(s.e.msg, "hangs in the kernel"));
    assert_non_null(strstr(s.e.hint, "/stack"));
    assert_true(s.seconds < 5);
    assert_int_equal(t.calls, 1);
    assert_true(t.canceled);
    assert_int_equal(stuck, 2);
    assert_int_equal(running, 0);
    assert_true(json_is_true(json_object_get(json_array_get(j, 0), "stuck")));
    json_decref(j);
    assert_int_equal(steps_stuck(steps), 0); /* noticed when it ended after all, and not reported again */
    assert_int_equal(s.calls, 1);
}

/* ---- the spawner ---- */

static int fn_parents(const json_t *in, json_t **out, int *fd, struct err *e)
{
    char name[17] = "";
    (void)in, (void)fd, (void)e;
    prctl(PR_GET_NAME, name);
    *out = json_pack("{s:i,s:i,s:s}", "parent", (int)getppid(), "group", (int)getpgrp(), "name", name);
    return 0;
}

static long spawner_pages(void)
{
    char path[64];
    long size = 0, resident = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", spawner_pid_test());
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%ld %ld", &size, &resident), 2);
    fclose(f);
    return size;
}

/* Its children are the daemon's own, and have none of the memory that it has allocated since. */
static void test_spawned_is_a_child_of_the_daemon(void **state)
{
    (void)state;
    const size_t much = (size_t)256 << 20;
    const long before = spawner_pages();
    char *memory = malloc(much);
    assert_non_null(memory);
    memset(memory, 1, much);
    SEEN s = run(fn_parents, NULL, 10);
    free(memory);
    assert_int_equal(s.e.cls, ERR_NONE);
    assert_int_equal(json_integer_value(json_object_get(s.out, "parent")), getpid());
    assert_int_equal(json_integer_value(json_object_get(s.out, "group")), getpgrp());
    assert_string_equal(json_string_value(json_object_get(s.out, "name")), "snapferryd-step");
    assert_true(spawner_pages() - before < (long)(much / 4096 / 4));
}

/* Larger than what a socket holds at once. */
static void test_spawned_with_large_input(void **state)
{
    (void)state;
    const size_t len = (size_t)6 << 20;
    char *text = malloc(len + 1);
    memset(text, 'x', len);
    text[len] = '\0';
    json_t *in = json_pack("{s:s}", "text", text);
    SEEN s = run(fn_echo, in, 20);
    assert_int_equal(s.e.cls, ERR_NONE);
    assert_true(json_equal(json_object_get(s.out, "got"), in));
    json_decref(in);
    free(text);
}

static void kill_spawner(void)
{
    const int pid = spawner_pid_test();
    siginfo_t si;
    assert_true(pid > 0);
    assert_return_code(kill(pid, SIGKILL), errno);
    assert_return_code(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT), errno);
}

/* A step that runs goes on, the next one is forked by the daemon, and the one after it by another spawner. */
static void test_spawner_killed(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    SEEN s = {.fd = -1, .e = ERR_INIT};
    const int first = spawner_pid_test();
    struct step *running;
    assert_ok(step_start(steps, "x", fn_sleep, NULL, 100, done, &s, &running, &e), &e);
    kill_spawner();
    SEEN next = run(fn_parents, NULL, 10);
    assert_int_equal(json_integer_value(json_object_get(next.out, "parent")), getpid());
    assert_non_null(strstr(logged, "starts programs for the daemon has ended"));
    assert_int_equal(spawner_pid_test(), 0);
    SEEN after = run(fn_parents, NULL, 10);
    assert_int_equal(json_integer_value(json_object_get(after.out, "parent")), getpid());
    assert_true(spawner_pid_test() > 0 && spawner_pid_test() != first);
    assert_int_equal(s.calls, 0);
    step_cancel(running);
    until(&s.calls, 5);
    assert_true(s.canceled);
}

static void stall(void)
{
    for (;;)
        pause();
}
static void die(void)
{
    _exit(0);
}

/* Appends a byte to a file: so often the work was done. */
static int fn_work(const json_t *in, json_t **out, int *ret_fd, struct err *e)
{
    const int fd =
        open(json_string_value(json_object_get(in, "file")), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    (void)ret_fd;
    if (fd < 0 || write(fd, "x", 1) != 1)
        return err_set(e, ERR_GENERIC, errno, "cannot work");
    close(fd);
    *out = json_object();
    return 0;
}
static off_t work_done(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? st.st_size : 0;
}

/* It has forked, and then stalls or dies before it answers: what it forked is ended before the work is done again. */
static void test_spawner_that_stalls(void **state)
{
    (void)state;
    static void (*const ways[])(void) = {stall, die};
    char path[64] = "/tmp/snapferry-step-XXXXXX";
    const int fd = mkstemp(path);
    assert_return_code(fd, errno);
    close(fd);
    for (unsigned i = 0; i < 2; i++) {
        struct err e = ERR_INIT;
        spawner_stop();
        spawner_test = (struct spawner_test){ways[i], 1000};
        assert_ok(spawner_start(&e), &e);
        spawner_test.forked = NULL;
        json_t *in = json_pack("{s:s}", "file", path);
        SEEN s = run(fn_work, in, 30);
        assert_int_equal(s.e.cls, ERR_NONE);
        assert_non_null(strstr(logged, "was ended before it did anything"));
        logged[0] = '\0';
        /* Nobody is left, at the gate or as a zombie. */
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
        assert_int_equal(errno, ECHILD);
        assert_int_equal(work_done(path), i + 1);
        /* The next one is forked by another spawner, which answers. */
        SEEN next = run(fn_work, in, 30);
        assert_int_equal(next.e.cls, ERR_NONE);
        assert_int_equal(work_done(path), i + 2);
        json_decref(in);
        assert_return_code(truncate(path, i + 1), errno);
    }
    spawner_test = (struct spawner_test){NULL, 0};
    unlink(path);
}

/* A machine on which none stays alive: each request is carried out all the same, in the end without one. */
static void test_spawner_that_is_killed_again_and_again(void **state)
{
    (void)state;
    for (int i = 0; i < 30 && spawner_pid_test(); i++) {
        kill_spawner();
        for (int k = 0; k < 2; k++) {
            SEEN s = run(fn_parents, NULL, 10);
            assert_int_equal(json_integer_value(json_object_get(s.out, "parent")), getpid());
        }
    }
    assert_int_equal(spawner_pid_test(), 0); /* given up: the daemon forks itself */
}

/* It ends with the process that started it, however that ends. */
static void test_spawner_ends_with_the_daemon(void **state)
{
    (void)state;
    int ends[2];
    assert_return_code(pipe(ends), errno);
    const pid_t pid = fork();
    if (pid == 0) {
        struct err e = ERR_INIT;
        /* The spawner closes all that it inherits, so it cannot be the pipe that is waited for. */
        const int rc = spawner_start(&e), spawner = spawner_pid_test();
        if (rc < 0 || spawner <= 0 || write(ends[1], &spawner, sizeof spawner) != sizeof spawner)
            _exit(1);
        pause();
    }
    int spawner = 0;
    assert_int_equal(read(ends[0], &spawner, sizeof spawner), sizeof spawner);
    close(ends[0]);
    close(ends[1]);
    CLEANUP_CLOSE int pidfd = pidfd_open(spawner, 0);
    assert_return_code(pidfd, errno);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(poll(&(struct pollfd){.fd = pidfd, .events = POLLIN}, 1, 10000), 1);
}

/* System call `nr` fails with `sys` from now on, if its first argument has a bit of `flags`; 0: always. */
static void refuse_call(uint32_t nr, uint32_t flags, int sys)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, flags ? flags : UINT32_MAX, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)sys),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        _exit(99);
}

/* 0: a step's parent is this process, and a spawner is there or not, as it should be. */
static int one_under_a_filter(bool spawner)
{
    void *state = NULL;
    struct err e = ERR_INIT;
    if (spawner_start(&e) < 0 || setup(&state) < 0)
        return 1;
    SEEN s = run(fn_parents, NULL, 10);
    if (s.e.cls || json_integer_value(json_object_get(s.out, "parent")) != getpid())
        return 2;
    if ((spawner_pid_test() > 0) != spawner)
        return 3;
    if (!spawner && !strstr(logged, "the daemon starts them itself"))
        return 4;
    return teardown(&state) < 0 ? 5 : 0;
}

static int filtered(uint32_t nr, uint32_t flags, int sys, bool spawner)
{
    int status = -1;
    const pid_t pid = fork();
    if (pid == 0) {
        refuse_call(nr, flags, sys);
        _exit(one_under_a_filter(spawner));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* RestrictNamespaces= of the unit refuses clone3(), whose flags it cannot see. A filter that lets no process be made
 * for another one leaves a daemon that forks itself. */
static void test_spawner_under_filters(void **state)
{
    (void)state;
    assert_int_equal(filtered(SYS_clone3, 0, ENOSYS, true), 0);
    assert_int_equal(filtered(SYS_clone, CLONE_PARENT, EPERM, false), 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define S(f) cmocka_unit_test_setup_teardown(f, setup_spawned, teardown)
#define BOTH(f)                                                                                                        \
    T(f),                                                                                                              \
    {                                                                                                                  \
#f "_spawned", f, setup_spawned, teardown, NULL                                                                \
    }
    const struct CMUnitTest tests[] = {
        BOTH(test_result),
        BOTH(test_error),
        BOTH(test_descriptor),
        BOTH(test_large_result),
        T(test_large_result_canceled),
        BOTH(test_timeout),
        BOTH(test_cancel),
        BOTH(test_crash),
        BOTH(test_log),
        BOTH(test_progress),
        BOTH(test_nonsense),
        BOTH(test_inherits_nothing),
        BOTH(test_many_at_once),
        T(test_dies_with_the_daemon),
        BOTH(test_freed_in_its_callback),
        BOTH(test_stuck_in_the_kernel),
        S(test_spawned_is_a_child_of_the_daemon),
        S(test_spawned_with_large_input),
        S(test_spawner_killed),
        S(test_spawner_that_stalls),
        S(test_spawner_that_is_killed_again_and_again),
        T(test_spawner_ends_with_the_daemon),
        T(test_spawner_under_filters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
