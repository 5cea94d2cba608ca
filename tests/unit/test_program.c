/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_program.c - programs are run without a shell, with a deadline, bounded, and nothing of them is left (AP-21) */
#include "tests/unit/test.h"

#include "proc/program-path.h"
#include "proc/program.h"
#include "proc/spawn.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char dir[] = "/tmp/snapferry-program.XXXXXX";
static char logged[65536];
static unsigned lines;

static void sink(enum log_level lvl, const char *line, void *arg)
{
    (void)lvl, (void)arg;
    lines++;
    if (strlen(logged) + strlen(line) + 2 < sizeof logged) {
        strcat(logged, line);
        strcat(logged, "\n");
    }
}

static int setup(void **state)
{
    (void)state;
    setenv("SNAPFERRY_NO_SYSTEMD", "1", 1);
    log_to(sink, NULL);
    return mkdtemp(dir) && chmod(dir, 0755) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

/* A script in the scratch directory; static buffer, four in turn. */
static const char *script(const char *name, const char *text)
{
    static char path[4][128];
    static unsigned turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    unlink(p);
    CLEANUP_FCLOSE FILE *f = fopen(p, "we");
    assert_non_null(f);
    fprintf(f, "#!/bin/sh\n%s\n", text);
    assert_int_equal(fchmod(fileno(f), 0755), 0);
    return p;
}

struct got {
    char *out;
    size_t len;
    int status, rc;
    double seconds;
    struct err e;
};

static void got_clear(struct got *g)
{
    free(g->out);
}
#define GOT CLEANUP(got_clear) struct got

static struct got run(struct program p)
{
    struct got g = {.e = ERR_INIT};
    struct timespec a, b;
    logged[0] = '\0';
    lines = 0;
    if (!p.timeout_s)
        p.timeout_s = 20;
    if (!p.label)
        p.label = "hook test";
    clock_gettime(CLOCK_MONOTONIC, &a);
    g.rc = program_run(&p, &g.out, &g.len, &g.status, &g.e);
    clock_gettime(CLOCK_MONOTONIC, &b);
    g.seconds = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
    return g;
}

static struct got run_script(const char *text)
{
    char *argv[] = {(char *)script("s", text), NULL};
    return run((struct program){.argv = argv});
}

static unsigned open_fds(void)
{
    unsigned n = 0;
    CLEANUP_CLOSEDIR DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    while (readdir(d))
        n++;
    return n;
}

static bool alive(pid_t pid)
{
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    CLEANUP_FCLOSE FILE *f = fopen(path, "re");
    if (!f || !fgets(line, sizeof line, f))
        return false;
    char *state = strrchr(line, ')');
    return state && state[2] != 'Z' && state[2] != 'X';
}

static pid_t pid_in(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    for (int i = 0; i < 500; i++) {
        CLEANUP_FCLOSE FILE *f = fopen(path, "re");
        int pid = 0;
        if (f && fscanf(f, "%d\n", &pid) == 1)
            return pid;
        usleep(10000);
    }
    fail_msg("no pid in %s", path);
    return 0;
}

static bool dies(pid_t pid)
{
    for (int i = 0; i < 300 && alive(pid); i++)
        usleep(10000);
    return !alive(pid);
}

static void test_output_input_status(void **state)
{
    (void)state;
    char *argv[] = {(char *)script("s", "cat; echo \"[$1]\"; echo hello >&2; exit 7"), (char *)"a $b; c", NULL};
    GOT g = run((struct program){.argv = argv, .input = "input\n", .input_len = 6});
    assert_ok(g.rc, &g.e);
    assert_int_equal(g.status, 7);
    assert_string_equal(g.out, "input\n[a $b; c]\n");
    assert_int_equal(g.len, strlen(g.out));
    assert_string_equal(logged, "hook test: hello\n");
    assert_non_null(strstr(g.e.msg, "ended with exit code 7: hello"));
    /* Without a place for the code, a code is an error. */
    struct program p = {.argv = argv, .timeout_s = 5, .label = "x"};
    struct err e = ERR_INIT;
    assert_int_equal(program_run(&p, NULL, NULL, NULL, &e), -EIO);
}

static void test_environment(void **state)
{
    (void)state;
    const char *env[] = {"ONE=1", "TWO=two words", NULL};
    char *argv[] = {(char *)"/usr/bin/env", NULL};
    setenv("SECRET", "x", 1);
    GOT g = run((struct program){.argv = argv, .env = env});
    assert_ok(g.rc, &g.e);
    assert_string_equal(g.out, "ONE=1\nTWO=two words\n");
    GOT d = run((struct program){.argv = argv});
    assert_ok(d.rc, &d.e);
    assert_null(strstr(d.out, "SECRET"));
    assert_non_null(strstr(d.out, "PATH="));
}

static void test_what_it_inherits(void **state)
{
    (void)state;
    CLEANUP_CLOSE int leak = open("/dev/null", O_RDONLY);
    assert_true(leak >= 0);
    sigset_t set, old;
    sigfillset(&set);
    sigprocmask(SIG_BLOCK, &set, &old);
    signal(SIGPIPE, SIG_IGN);
    GOT g =
        /* 32 and 33 are the C library's own: they cannot be set, and whoever started the tests may ignore them. */
        run_script("ls /proc/self/fd | tr '\\n' ' '; pwd; grep -E '^Sig(Blk|Ign)' /proc/self/status | "
                   "while read -r k v; do printf '%s%x\\n' $k $((0x$v & 0x7fffffff)); done");
    sigprocmask(SIG_SETMASK, &old, NULL);
    signal(SIGPIPE, SIG_DFL);
    assert_ok(g.rc, &g.e);
    assert_string_equal(g.out, "0 1 2 200 3 /\nSigBlk:0\nSigIgn:0\n"); /* 3: ls's own */
}

static void test_user(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("SKIP: changing the user needs root\n");
        skip();
    }
    char *argv[] = {(char *)script("s", "id -un; id -G; echo to-stderr >/dev/stderr; cat /dev/stdin >/dev/stdout"),
                    NULL};
    GOT g = run((struct program){.argv = argv, .user = "nobody", .input = "in", .input_len = 2});
    assert_ok(g.rc, &g.e);
    assert_string_equal(g.out, "nobody\n65534\nin");
    assert_non_null(strstr(logged, "to-stderr"));
    GOT n = run((struct program){.argv = argv, .user = "no-such-user-here"});
    assert_true(n.rc < 0);
    assert_non_null(strstr(n.e.msg, "unknown user \"no-such-user-here\""));
}

static void test_large_both_ways(void **state)
{
    (void)state;
    size_t n = 8u << 20;
    CLEANUP_FREE char *in = malloc(n);
    assert_non_null(in);
    for (size_t i = 0; i < n; i++)
        in[i] = (char)('a' + i % 26);
    char *argv[] = {(char *)"/bin/cat", NULL};
    GOT g = run((struct program){.argv = argv, .input = in, .input_len = n, .out_max = n});
    assert_ok(g.rc, &g.e);
    assert_int_equal(g.len, n);
    assert_memory_equal(g.out, in, n);
    /* A program that does not read its input. */
    char *deaf[] = {(char *)"/bin/true", NULL};
    GOT d = run((struct program){.argv = deaf, .input = in, .input_len = n});
    assert_ok(d.rc, &d.e);
    assert_int_equal(d.status, 0);
}

static void test_flood(void **state)
{
    (void)state;
    char *argv[] = {(char *)script("s", "yes"), NULL};
    GOT g = run((struct program){.argv = argv, .out_max = 100000});
    assert_int_equal(g.rc, -EFBIG);
    assert_true(g.seconds < 10);
    assert_non_null(strstr(g.e.msg, "more than 100000 bytes"));
    GOT exact = run_script("head -c 1048576 /dev/zero");
    assert_ok(exact.rc, &exact.e);
    assert_int_equal(exact.len, 1048576);
    GOT over = run_script("head -c 1048577 /dev/zero");
    assert_int_equal(over.rc, -EFBIG);
    GOT err = run_script("yes >&2");
    assert_int_equal(err.rc, -EFBIG);
    assert_in_range(lines, 1000, 2001);
    assert_non_null(strstr(err.e.msg, "flooded"));
}

struct taking {
    uint64_t bytes, sum, give_up_at;
};

static int take_piece(const void *p, size_t n, void *arg, struct err *e)
{
    struct taking *t = arg;
    for (size_t i = 0; i < n; i++)
        t->sum += ((const uint8_t *)p)[i];
    t->bytes += n;
    return t->give_up_at && t->bytes > t->give_up_at ? err_set(e, ERR_DAMAGE, EBADMSG, "no more of it") : 0;
}

/* Output of any length, in pieces, up to the last byte. */
static void test_sink(void **state)
{
    (void)state;
    struct taking t = {0, 0, 0};
    char *argv[] = {(char *)script("s", "head -c 20000001 /dev/zero | tr '\\0' '\\1'; exit 3"), NULL};
    GOT all = run((struct program){.argv = argv, .sink = take_piece, .sink_arg = &t});
    assert_true(all.rc == 0 && all.status == 3 && !all.out && t.bytes == 20000001 && t.sum == t.bytes);
    t = (struct taking){0, 0, 5000000};
    char *endless[] = {(char *)script("s", "yes"), NULL};
    GOT some = run((struct program){.argv = endless, .sink = take_piece, .sink_arg = &t});
    assert_true(some.rc == -EBADMSG && some.e.cls == ERR_DAMAGE && t.bytes < 10000000);
    assert_string_equal(some.e.msg, "no more of it");
    t = (struct taking){0, 0, 0};
    GOT limited = run((struct program){.argv = endless, .sink = take_piece, .sink_arg = &t, .out_max = 3000000});
    assert_true(limited.rc == -EFBIG && t.bytes <= 3000000);
}

static void test_long_line(void **state)
{
    (void)state;
    GOT g = run_script("head -c 100000 /dev/zero | tr '\\0' x >&2; printf '\\001\\002 \\377' >&2; exit 1");
    assert_ok(g.rc, &g.e);
    assert_in_range(lines, 97, 99);
    assert_true(strlen(g.e.msg) > 500);
}

static void test_timeout_kills_the_group(void **state)
{
    (void)state;
    char text[512];
    snprintf(text, sizeof text, "trap '' TERM HUP INT; sleep 100 & echo $! >%s/child; echo waiting >&2; sleep 100",
             dir);
    char *argv[] = {(char *)script("s", text), NULL};
    GOT g = run((struct program){.argv = argv, .timeout_s = 1});
    assert_int_equal(g.rc, -ETIMEDOUT);
    assert_true(g.seconds < 4);
    assert_non_null(strstr(g.e.msg, "timed out after 1 s and was killed: waiting"));
    assert_true(dies(pid_in("child")));
}

static void test_leftovers(void **state)
{
    (void)state;
    char text[512];
    /* One that holds the output open, one that has left the group as well. */
    snprintf(text, sizeof text, "sleep 100 & echo $! >%s/child2; setsid sleep 3 & echo done", dir);
    GOT g = run_script(text);
    assert_ok(g.rc, &g.e);
    assert_string_equal(g.out, "done\n");
    assert_true(g.seconds < 3);
    assert_true(dies(pid_in("child2")));
}

static void test_signal(void **state)
{
    (void)state;
    GOT g = run_script("echo last words >&2; kill -SEGV $$");
    assert_true(g.rc < 0);
    assert_non_null(strstr(g.e.msg, "killed by signal 11"));
    assert_non_null(strstr(g.e.msg, "last words"));
}

/* Killed with its caller, to the last grandchild. */
static void test_caller_killed(void **state)
{
    (void)state;
    char text[512];
    snprintf(text, sizeof text, "sleep 100 & echo $! >%s/child3; echo $$ >%s/self; wait", dir, dir);
    char *argv[] = {(char *)script("s", text), NULL};
    pid_t caller = fork();
    if (caller == 0) {
        struct program p = {.argv = argv, .timeout_s = 100, .label = "x"};
        program_run(&p, NULL, NULL, NULL, NULL);
        _exit(0);
    }
    pid_t grandchild = pid_in("child3"), self = pid_in("self");
    assert_true(alive(self) && alive(grandchild));
    kill(caller, SIGKILL);
    waitpid(caller, NULL, 0);
    assert_true(dies(self));
    assert_true(dies(grandchild));
}

static void test_refused(void **state)
{
    (void)state;
    struct {
        const char *path;
        const char *word;
        int rc;
    } c[] = {{"bin/true", "not an absolute path", -EINVAL},
             {"", "not an absolute path", -EINVAL},
             {"/no/such/program", "cannot run", -ENOENT},
             {dir, "is not a file", -EINVAL}};
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        char *argv[] = {(char *)c[i].path, NULL};
        GOT g = run((struct program){.argv = argv});
        assert_int_equal(g.rc, c[i].rc);
        assert_non_null(strstr(g.e.msg, c[i].word));
    }
    char *argv[] = {(char *)script("s", "true"), NULL};
    struct err e = ERR_INIT;
    assert_int_equal(program_run(&(struct program){.argv = argv}, NULL, NULL, NULL, &e), -EINVAL);
    mode_t modes[] = {0775, 0757, 0644};
    for (size_t i = 0; i < 3; i++) {
        chmod(argv[0], modes[i]);
        GOT g = run((struct program){.argv = argv});
        assert_int_equal(g.e.cls, ERR_PERMISSION);
    }
    chmod(argv[0], 0755);
    if (geteuid() == 0) {
        assert_int_equal(chown(argv[0], 65534, (gid_t)-1), 0);
        GOT g = run((struct program){.argv = argv});
        assert_int_equal(g.rc, -EPERM);
    }
}

/* Who could put another program at the path decides what root runs. */
static void test_every_component(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    char in[200], at[240], link[240], through[280];
    snprintf(in, sizeof in, "%s/bin", dir);
    snprintf(at, sizeof at, "%s/hook", in);
    snprintf(link, sizeof link, "%s/link", dir);
    snprintf(through, sizeof through, "%s/hook", link);
    assert_int_equal(mkdir(in, 0755), 0);
    assert_int_equal(rename(script("made", "true"), at), 0);
    assert_int_equal(symlink(in, link), 0);
    assert_int_equal(program_check("hook", at, &e), 0);
    assert_int_equal(program_check("hook", through, &e), 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(chmod(in, i ? 0775 : 0757), 0);
        assert_int_equal(program_check("hook", at, &e), -EPERM);
        assert_non_null(strstr(e.msg, "/bin is writable by others"));
        assert_int_equal(program_check("hook", through, &e), -EPERM);
    }
    assert_int_equal(chmod(in, 01777), 0); /* only the owner of a file may replace it there */
    assert_int_equal(program_check("hook", at, &e), 0);
    assert_int_equal(chmod(in, 0755), 0);
    if (geteuid() == 0) {
        assert_int_equal(lchown(link, 65534, 65534), 0);
        assert_int_equal(program_check("hook", through, &e), -EPERM);
        assert_non_null(strstr(e.msg, "link"));
        assert_int_equal(chown(in, 65534, 65534), 0);
        assert_int_equal(program_check("hook", at, &e), -EPERM);
        assert_non_null(strstr(e.msg, "/bin is owned by user 65534"));
    }
    unlink(link);
}

/* Between check and execution the path names another program: what was checked runs, script or binary. */
static void test_swapped_after_the_check(void **state)
{
    (void)state;
    static const char *const env[] = {"A=1", NULL};
    for (unsigned binary = 0; binary < 2; binary++) {
        struct err e = ERR_INIT;
        struct spawned p;
        struct spawn_report r;
        char path[128], text[128] = "";
        int out[2], program = -1;
        snprintf(path, sizeof path, "%s/checked", dir);
        unlink(path);
        if (binary)
            assert_int_equal(link("/bin/echo", path) < 0 ? symlink("/bin/echo", path) : 0, 0);
        else
            assert_int_equal(rename(script("made", "echo checked \"$(realpath \"$0\")\" \"$1\""), path), 0);
        assert_ok(program_open("hook", path, &program, &e), &e);
        assert_int_equal(rename(script("swapped", "echo swapped"), path), 0);
        assert_int_equal(chmod(path, 0777), 0);
        assert_int_equal(pipe2(out, O_CLOEXEC), 0);
        struct spawn s = SPAWN_INIT;
        s.argv = (const char *const[]){path, "checked", NULL};
        s.env = env;
        s.out = out[1];
        s.program = program;
        assert_ok(spawn_program(&p, &s, &e), &e);
        assert_int_equal(spawn_begun(&p, &r), 0);
        close(out[1]);
        assert_true(read(out[0], text, sizeof text - 1) > 0);
        waitpid(p.pid, NULL, 0);
        assert_int_equal(strncmp(text, "checked", 7), 0);
        spawned_close(&p);
        close(out[0]);
        close(program);
        assert_int_equal(program_open("hook", path, &program, &e), -EPERM);
    }
}

struct swapper {
    char a[128], b[128];
    atomic_bool end;
};
static void *swap(void *arg)
{
    struct swapper *s = arg;
    while (!atomic_load(&s->end))
        renameat2(AT_FDCWD, s->a, AT_FDCWD, s->b, RENAME_EXCHANGE);
    return NULL;
}

/* The same while somebody swaps all the time: either what is there is refused, or it is the program that may be run. */
static void test_swapped_all_the_time(void **state)
{
    (void)state;
    struct swapper s = {.end = false};
    snprintf(s.a, sizeof s.a, "%s/hook", dir);
    snprintf(s.b, sizeof s.b, "%s/other", dir);
    unlink(s.a);
    assert_int_equal(rename(script("made", "echo good"), s.a), 0);
    assert_int_equal(rename(script("made", "echo evil"), s.b), 0);
    assert_int_equal(chmod(s.b, 0777), 0);
    pthread_t thread;
    unsigned ran = 0, refused = 0;
    assert_int_equal(pthread_create(&thread, NULL, swap, &s), 0);
    for (unsigned i = 0; i < 3000 && (ran < 50 || refused < 50); i++) {
        char *argv[] = {s.a, NULL};
        GOT g = run((struct program){.argv = argv});
        if (g.rc == 0)
            assert_string_equal(g.out, "good\n");
        else
            assert_int_equal(g.e.cls, ERR_PERMISSION);
        ran += g.rc == 0;
        refused += g.rc < 0;
    }
    atomic_store(&s.end, true);
    pthread_join(thread, NULL);
    assert_true(ran > 0 && refused > 0);
}

/* In a unit of its own the manager knows only a path: this program checks it there, as the unit's user. */
static void test_as_in_a_unit(void **state)
{
    (void)state;
    char path[128], self[300], command[1400];
    struct err e = ERR_INIT;
    assert_ok(program_self(self, sizeof self, &e), &e);
    snprintf(path, sizeof path, "%s",
             script("unit", "echo \"$A $B $1 $2 $(env | grep -vcE '^(PWD|SHLVL|_)=')\"; exit 7"));
    snprintf(command, sizeof command,
             "%s " PROGRAM_RUN_OPTION " 'hook x' A=1 B='2 3' -- %s one 'two 2' >%s/out 2>&1; test $? = 7 && "
             "test \"$(cat %s/out)\" = '1 2 3 one two 2 2'",
             self, path, dir, dir);
    assert_int_equal(system(command), 0);
    assert_int_equal(chmod(path, 0775), 0);
    snprintf(command, sizeof command,
             "%s " PROGRAM_RUN_OPTION " 'hook x' A=1 -- %s one >%s/out 2>&1; test $? = 126 && "
             "grep -q 'hook x: .* is writable by others and is not run' %s/out",
             self, path, dir, dir);
    assert_int_equal(system(command), 0);
    if (geteuid() == 0) { /* what belongs to the unit's user is not root's */
        assert_int_equal(chmod(path, 0755), 0);
        assert_int_equal(chown(path, 65534, 65534), 0);
        snprintf(
            command, sizeof command,
            "cp %s %s/self && chmod 755 %s/self && setpriv --reuid 65534 --clear-groups %s/self " PROGRAM_RUN_OPTION
            " 'hook x' A=1 -- %s one >%s/out 2>&1; test $? = 126 && grep -q 'owned by user 65534' %s/out",
            self, dir, dir, dir, path, dir, dir);
        assert_int_equal(system(command), 0);
    }
    snprintf(command, sizeof command, "%s " PROGRAM_RUN_OPTION " 2>/dev/null; test $? = 126", self);
    assert_int_equal(system(command), 0);
}

static void test_bad_interpreter(void **state)
{
    (void)state;
    const char *p = script("s", "");
    FILE *f = fopen(p, "we");
    fputs("#!/no/such/interpreter\n", f);
    fclose(f);
    char *argv[] = {(char *)p, NULL};
    GOT g = run((struct program){.argv = argv});
    assert_int_equal(g.rc, -ENOENT);
    assert_non_null(strstr(g.e.msg, "cannot start"));
    assert_true(g.e.hint[0]);
}

static void test_no_leaks(void **state)
{
    (void)state;
    unsigned before = open_fds();
    for (int i = 0; i < 20; i++) {
        GOT g = run_script(i % 2 ? "echo x" : "kill -9 $$");
        (void)g;
    }
    assert_int_equal(open_fds(), before);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no zombies */
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], PROGRAM_RUN_OPTION))
        return program_run_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_output_input_status),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_what_it_inherits),
        cmocka_unit_test(test_user),
        cmocka_unit_test(test_large_both_ways),
        cmocka_unit_test(test_flood),
        cmocka_unit_test(test_sink),
        cmocka_unit_test(test_long_line),
        cmocka_unit_test(test_timeout_kills_the_group),
        cmocka_unit_test(test_leftovers),
        cmocka_unit_test(test_signal),
        cmocka_unit_test(test_caller_killed),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_every_component),
        cmocka_unit_test(test_swapped_after_the_check),
        cmocka_unit_test(test_swapped_all_the_time),
        cmocka_unit_test(test_as_in_a_unit),
        cmocka_unit_test(test_bad_interpreter),
        cmocka_unit_test(test_no_leaks),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
