/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_proc.c - starting processes and knowing them again: nothing of the caller is open in them, failures have a phase
 */
#include "tests/unit/test.h"

#include "proc/descriptors.h"
#include "proc/process.h"
#include "proc/spawn.h"
#include "proc/spawner.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const env[] = {"PATH=/usr/bin:/bin", NULL};

static int end_of(struct spawned *p)
{
    int status;
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    spawned_close(p);
    return status;
}

/* What `sh -c script` writes. */
static void output_of(const char *script, struct spawn *s, char *out, size_t cap)
{
    const char *const argv[] = {"/bin/sh", "-c", script, NULL};
    struct spawned p;
    struct spawn_report r;
    struct err e = ERR_INIT;
    int ends[2];
    assert_return_code(pipe2(ends, O_CLOEXEC), errno);
    s->argv = argv;
    s->env = env;
    s->out = ends[1];
    assert_ok(spawn_program(&p, s, &e), &e);
    assert_int_equal(spawn_begun(&p, &r), 0);
    close(ends[1]);
    size_t len = 0;
    for (ssize_t n; len < cap - 1 && (n = read(ends[0], out + len, cap - 1 - len)) > 0;)
        len += (size_t)n;
    out[len] = '\0';
    close(ends[0]);
    assert_int_equal(end_of(&p), 0);
}

static void test_identity(void **state)
{
    (void)state;
    struct process_identity i, other;
    char text[128];
    assert_int_equal(process_identify(&i, getpid()), 0);
    assert_true(i.start_time > 0 && strlen(i.boot_id) == 36);
    CLEANUP_CLOSE int fd = process_open(&i);
    assert_true(fd >= 0 && !process_ended(fd));
    process_id_text(&i, text, sizeof text);
    assert_int_equal(process_id_parse(&other, text), 0);
    assert_memory_equal(&i, &other, sizeof i);
    /* The same number of another start or boot is another process. */
    other = i;
    other.start_time++;
    assert_int_equal(process_open(&other), -ESRCH);
    other = i;
    other.boot_id[0] ^= 1;
    assert_int_equal(process_open(&other), -ESRCH);
    assert_true(process_cpu_ticks(getpid()) < 1000000 && process_rss(getpid()) > 4096);
    assert_int_equal(process_uid(getpid()), getuid());
    assert_int_equal(process_identify(&other, 0), -ESRCH);
}

static void test_zombie(void **state)
{
    (void)state;
    const char *const argv[] = {"/bin/true", NULL};
    struct spawn s = SPAWN_INIT;
    struct spawned p;
    struct process_identity i;
    struct err e = ERR_INIT;
    s.argv = argv;
    s.env = env;
    s.waits = true;
    assert_ok(spawn_program(&p, &s, &e), &e);
    assert_int_equal(process_identify(&i, p.pid), 0);
    CLEANUP_CLOSE int fd = process_open_running(&i);
    assert_true(fd >= 0);
    spawn_go(&p);
    assert_int_equal(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 10000), 1);
    assert_true(process_is_zombie(p.pid));
    assert_int_equal(process_open_running(&i), -ESRCH);
    CLEANUP_CLOSE int dead = process_open(&i);
    assert_true(dead >= 0);
    assert_int_equal(end_of(&p), 0);
    assert_int_equal(process_open(&i), -ESRCH);
}

/* Without a "go" nothing of the program runs, and its end leaves nothing waiting. */
static void test_no_go(void **state)
{
    (void)state;
    char path[] = "/tmp/snapferry-proc.XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    const char *const argv[] = {"/bin/rm", path, NULL};
    struct spawn s = SPAWN_INIT;
    struct spawned p;
    struct err e = ERR_INIT;
    s.argv = argv;
    s.env = env;
    s.waits = true;
    assert_ok(spawn_program(&p, &s, &e), &e);
    spawned_close(&p);
    assert_int_equal(WEXITSTATUS(end_of(&p)), 127);
    assert_int_equal(access(path, F_OK), 0);
    close(fd);
    unlink(path);
}

static void log_is(const char *path, const char *text)
{
    char seen[256] = "";
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, seen, sizeof seen - 1);
    assert_true(n >= 0);
    assert_string_equal(seen, text);
}

/* The child makes its log file, and appends to one that is there; no file is reached by a symbolic link. */
static void test_log(void **state)
{
    (void)state;
    char dir[] = "/tmp/snapferry-proc.XXXXXX", log[64], link[64], other[64];
    assert_non_null(mkdtemp(dir));
    snprintf(log, sizeof log, "%s/log", dir);
    snprintf(link, sizeof link, "%s/link", dir);
    snprintf(other, sizeof other, "%s/other", dir);
    assert_return_code(symlink(other, link), errno);
    const char *const argv[] = {"/bin/sh", "-c", "echo out; echo err >&2", NULL};
    const char *const lines[] = {log, "# first\n", NULL}, *const linked[] = {link, "# first\n", NULL};
    struct spawn s = SPAWN_INIT;
    struct spawned p;
    struct spawn_report r = {.phase = -1};
    struct err e = ERR_INIT;
    struct stat st;
    s.argv = argv;
    s.env = env;
    s.log = lines;
    for (unsigned i = 0; i < 2; i++) {
        assert_ok(spawn_program(&p, &s, &e), &e);
        assert_int_equal(spawn_begun(&p, &r), 0);
        assert_int_equal(end_of(&p), 0);
        log_is(log, i ? "# first\nout\nerr\n# first\nout\nerr\n" : "# first\nout\nerr\n");
    }
    assert_return_code(stat(log, &st), errno);
    assert_int_equal(st.st_mode & 0777, 0600);
    /* It runs without it, and says so. */
    s.log = linked;
    assert_ok(spawn_program(&p, &s, &e), &e);
    assert_int_equal(poll(&(struct pollfd){.fd = p.report, .events = POLLIN}, 1, 10000), 1);
    assert_int_equal(spawn_report_next(&p, &r), 1);
    assert_int_equal(r.phase, SPAWN_LOG);
    assert_int_equal(r.sys, ELOOP);
    assert_int_equal(r.fatal, 0);
    assert_int_equal(end_of(&p), 0);
    assert_int_equal(access(other, F_OK), -1);
    unlink(link);
    unlink(log);
    assert_return_code(rmdir(dir), errno);
}

static void test_phases(void **state)
{
    (void)state;
    const struct {
        const char *program;
        struct user user;
        int phase, sys;
    } all[] = {
        {"/nonexistent/program", {0}, SPAWN_EXEC, ENOENT},
        {"/etc", {0}, SPAWN_EXEC, EACCES},
        {"/bin/true", {.change = true, .uid = 65534, .gid = (gid_t)-1, .n_groups = -1}, SPAWN_USER, EINVAL},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *const argv[] = {all[i].program, NULL};
        struct spawn s = SPAWN_INIT;
        struct spawned p;
        struct spawn_report r = {0};
        struct err e = ERR_INIT;
        s.argv = argv;
        s.env = env;
        s.user = &all[i].user;
        assert_ok(spawn_program(&p, &s, &e), &e);
        const int why = spawn_begun(&p, &r);
        assert_int_equal(WEXITSTATUS(end_of(&p)), 127);
        if (all[i].phase == SPAWN_USER && geteuid() != 0)
            continue; /* EPERM instead: only root may become others */
        assert_int_equal(why, -all[i].sys);
        assert_int_equal(r.phase, all[i].phase);
        assert_true(r.fatal);
    }
    assert_string_equal(spawn_phase_text(SPAWN_USER), "becoming its user");
}

/* What signal() refuses: the two signals of glibc's own. Some callers start programs with them ignored. */
static void ignore_signal(int sig, bool ignored)
{
    unsigned long action[8] = {ignored ? (unsigned long)SIG_IGN : (unsigned long)SIG_DFL};
    assert_return_code(syscall(SYS_rt_sigaction, sig, action, NULL, (size_t)8), errno);
}

/* Neither descriptors nor signals nor the environment of the caller reach the program. */
static void test_nothing_inherited(void **state)
{
    (void)state;
    char out[4096];
    int zero = open("/dev/zero", O_RDONLY), leak = fcntl(zero, F_DUPFD, 10); /* without close-on-exec */
    assert_true(leak > 2);
    close(zero);
    setenv("LEAKED", "1", 1);
    signal(SIGUSR1, SIG_IGN);
    ignore_signal(32, true);
    ignore_signal(33, true);
    struct spawn s = SPAWN_INIT;
    output_of("readlink /proc/$$/fd/*; env; pwd; umask; grep SigIgn /proc/$$/status", &s, out, sizeof out);
    close(leak);
    signal(SIGUSR1, SIG_DFL);
    ignore_signal(32, false);
    ignore_signal(33, false);
    assert_null(strstr(out, "zero"));
    assert_null(strstr(out, "LEAKED"));
    assert_non_null(strstr(out, "\n/\n0022\nSigIgn:\t0000000000000000\n"));
}

static void test_limits(void **state)
{
    (void)state;
    char out[512];
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(sched_getcpu(), &cpus);
    const struct spawn_limits limits = {
        .memlock = 1 << 16, .files = 64, .data = UINT64_C(1) << 30, .oom_score_adj = 345, .nice = 7, .cpus = &cpus};
    struct spawn s = SPAWN_INIT;
    s.limits = &limits;
    s.no_new_privileges = true;
    output_of("ulimit -n; ulimit -d; ulimit -c; cat /proc/$$/oom_score_adj; nice; nproc; grep NoNew /proc/$$/status",
              &s, out, sizeof out);
    assert_string_equal(out, "64\n1048576\n0\n345\n7\n1\nNoNewPrivs:\t1\n");
}

static void talk(int channel, void *arg)
{
    char text[64];
    bool only = fcntl(channel + 1, F_GETFD) < 0 && fcntl(0, F_GETFD) < 0;
    snprintf(text, sizeof text, "%s %s", (const char *)arg, only ? "alone" : "not alone");
    if (write(channel, text, strlen(text)) < 0)
        _exit(1);
    raise(SIGTERM); /* ignored */
}

static void test_function(void **state)
{
    (void)state;
    int pair[2];
    char name[] = "hello", text[64];
    struct err e = ERR_INIT;
    struct spawned p;
    assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), errno);
    const struct spawn_function f = {.name = "a-test",
                                     .fn = talk,
                                     .arg = name,
                                     .arg_len = sizeof name,
                                     .channel = pair[1],
                                     .no_standard = true,
                                     .detached = true};
    assert_ok(spawn_function(&p, &f, &e), &e);
    close(pair[1]);
    ssize_t n = read(pair[0], text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    assert_string_equal(text, "hello alone");
    close(pair[0]);
    assert_int_equal(end_of(&p), 0);
}

static void test_descriptors(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    int pair[2], got[2], flags, sealed = memory_sealed("secret", "abc", 3, &e);
    char text[16];
    assert_true(sealed >= 0);
    assert_int_equal(pwrite(sealed, "x", 1, 0), -1);
    assert_int_equal(ftruncate(sealed, 0), -1);
    assert_return_code(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), errno);
    assert_int_equal(descriptors_receive(pair[1], text, sizeof text, got, 2, &flags), -EAGAIN);
    const int three[] = {sealed, sealed, sealed};
    assert_int_equal(descriptors_send(pair[0], "one", 3, &sealed, 1, 0), 3);
    assert_int_equal(descriptors_receive(pair[1], text, sizeof text, got, 2, &flags), 3);
    assert_true(got[0] >= 0 && got[1] == -1 && (fcntl(got[0], F_GETFD) & FD_CLOEXEC));
    assert_int_equal(pread(got[0], text, sizeof text, 0), 3);
    assert_memory_equal(text, "abc", 3);
    close(got[0]);
    /* More than wanted, and none wanted: nothing stays open. */
    const int next = dup(sealed);
    close(next);
    assert_int_equal(descriptors_send(pair[0], "three", 5, three, 3, 0), 5);
    assert_int_equal(descriptors_receive(pair[1], text, sizeof text, got, 1, &flags), 5);
    assert_true(flags & MSG_CTRUNC || got[0] >= 0);
    close(got[0]);
    assert_int_equal(descriptors_send(pair[0], "three", 5, three, 3, 0), 5);
    assert_int_equal(descriptors_receive(pair[1], text, sizeof text, NULL, 0, NULL), 5);
    const int again = dup(sealed);
    assert_int_equal(again, next);
    close(again);
    assert_int_equal(descriptors_send(pair[0], "", 0, three, DESCRIPTORS_MAX + 1, 0), -EINVAL);
    close(pair[0]);
    assert_int_equal(descriptors_receive(pair[1], text, sizeof text, got, 2, &flags), 0);
    close(pair[1]);
    close(sealed);
}

static void test_and_wait(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct spawn s = SPAWN_INIT;
    s.env = env;
    s.argv = (const char *const[]){"/bin/true", NULL};
    assert_ok(spawn_and_wait(&s, "it", &e), &e);
    s.argv = (const char *const[]){"/bin/false", NULL};
    assert_int_equal(spawn_and_wait(&s, "it", &e), -EIO);
    assert_non_null(strstr(e.msg, "it: /bin/false failed"));
    s.argv = (const char *const[]){"/nonexistent", NULL};
    assert_int_equal(spawn_and_wait(&s, "it", &e), -ENOENT);
    assert_non_null(strstr(e.msg, "it: cannot run /nonexistent"));
}

static int with_spawner(void **state)
{
    struct err e = ERR_INIT;
    (void)state;
    return spawner_start(&e);
}

static int without_spawner(void **state)
{
    const int pid = spawner_pid_test();
    (void)state;
    spawner_stop();
    return pid > 0 ? 0 : -1; /* it was there all the time */
}

int main(void)
{
#define BOTH(f)                                                                                                        \
    cmocka_unit_test(f),                                                                                               \
    {                                                                                                                  \
#f "_spawned", f, with_spawner, without_spawner, NULL                                                          \
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_identity),
        cmocka_unit_test(test_zombie),
        BOTH(test_no_go),
        BOTH(test_log),
        BOTH(test_phases),
        BOTH(test_nothing_inherited),
        BOTH(test_limits),
        BOTH(test_function),
        cmocka_unit_test(test_descriptors),
        BOTH(test_and_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
