/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_movers_hostile.c - movers that lie, flood, break the protocol or leave nonsense: each is contained (MS-24..31)
 *
 * This program is its own false mover: started with --socket PATH --operation WHAT it behaves as WHAT says.
 */
#include "tests/unit/movers-rig.h"

#include "proc/descriptors.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

/* ---- the false mover ---- */

static const char *me;
static int sock = -1, result_fd = -1;
static int seq;

static void dial(const char *path)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    snprintf(sa.sun_path, sizeof sa.sun_path, "%s", path);
    sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (connect(sock, (struct sockaddr *)&sa, sizeof sa) < 0)
        _exit(99);
}

static int say_raw(const void *p, size_t n)
{
    return send(sock, p, n, MSG_NOSIGNAL) < 0 ? -errno : 0;
}
static int say(const char *type, const char *more)
{
    char text[2048];
    int n = snprintf(text, sizeof text, "{\"type\":\"%s\",\"operation\":\"%s\",\"seq\":%d%s%s}", type, me, ++seq,
                     *more ? "," : "", more);
    return say_raw(text, (size_t)n);
}

/* Waits for a message; takes the result file when it comes (always second). */
static void hear(void)
{
    char text[4096];
    union {
        char buf[CMSG_SPACE(4 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {text, sizeof text};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    if (recvmsg(sock, &h, MSG_CMSG_CLOEXEC) <= 0)
        _exit(98);
    struct cmsghdr *c = CMSG_FIRSTHDR(&h);
    if (c)
        memcpy(&result_fd, CMSG_DATA(c) + sizeof(int), sizeof result_fd);
}

static void begin(const char *path)
{
    dial(path);
    say("HELLO", "\"protocol\":1,\"pid\":1,\"resumed\":false");
    hear(); /* JOB */
    say("READY", "");
    hear(); /* GO */
    say("START", "");
}

static void leave(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void leave(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vdprintf(result_fd, fmt, ap);
    va_end(ap);
}
/* In few writes. */
static void leave_often(const char *text, unsigned n)
{
    FILE *f = fdopen(dup(result_fd), "w");
    while (f && n--)
        fputs(text, f);
    if (!f || fclose(f))
        _exit(96);
}
static void leave_good(const char *operation, int code)
{
    leave("{\"operation\":\"%s\",\"kind\":\"backup\",\"code\":%d,\"pid\":%d,\"started\":true,\"error\":%s,"
          "\"snapshotID\":\"0123456789abcdef0123456789abcdef\"}",
          operation, code, (int)getpid(),
          code ? "{\"class\":\"no-space\",\"exit\":18,\"errno\":28,\"message\":\"full\",\"hint\":\"\"}" : "null");
}

static void leave_slow(void)
{
    static char text[(1 << 20) - 512];
    memset(text, 'x', sizeof text);
    for (size_t i = 0; i + 6 <= sizeof text; i += 6)
        memcpy(text + i, "\\u00e4", 6);
    leave("{\"operation\":\"%s\",\"kind\":\"backup\",\"code\":0,\"pid\":%d,\"snapshotID\":\"%032d\",\"x\":\"%.*s\"}",
          me, (int)getpid(), 1, (int)(sizeof text / 6 * 6), text);
}

static void wait_for_death(void)
{
    for (;;)
        pause();
}

static void break_again_and_again(const char *path, const void *text, size_t n)
{
    for (;;) {
        dial(path);
        if (n > 60000)
            setsockopt(sock, SOL_SOCKET, SO_SNDBUFFORCE, &(int){1 << 20}, sizeof(int));
        say_raw(text, n);
        char byte;
        while (recv(sock, &byte, 1, 0) > 0)
            ;
        close(sock);
    }
}

#define PROGRESS                                                                                                       \
    "\"phase\":\"moving\",\"total\":%s,\"done\":%s,\"read\":1,\"zero\":0,\"skipped\":0,\"duplicate\":0,"               \
    "\"fresh\":0,\"stored\":0,\"errors\":0"
static void progress(const char *total, const char *done)
{
    char text[512];
    snprintf(text, sizeof text, PROGRESS, total, done);
    say("PROGRESS", text);
}

static void protocol_breakers(const char *path)
{
    static char big[200000];
    if (!strcmp(me, "garbage"))
        break_again_and_again(path, "\x00\xff\xfe{{{", 6);
    if (!strcmp(me, "array"))
        break_again_and_again(path, "[]", 2);
    if (!strcmp(me, "huge")) {
        memset(big, 'x', sizeof big);
        break_again_and_again(path, big, sizeof big);
    }
    if (!strcmp(me, "deep")) {
        memset(big, '[', 60000);
        break_again_and_again(path, big, 60000);
    }
    if (!strcmp(me, "many-values")) {
        memset(big, ',', 3000);
        memcpy(big, "{\"a\":[0", 7);
        for (int i = 8; i < 3000; i += 2)
            big[i] = '0';
        memcpy(big + 2998, "]}", 2);
        break_again_and_again(path, big, 3000);
    }
    if (!strcmp(me, "other-operation"))
        break_again_and_again(path, "{\"type\":\"HELLO\",\"operation\":\"up-1\",\"seq\":1,\"protocol\":1}", 56);
    if (!strcmp(me, "no-hello")) {
        for (;;) {
            dial(path);
            say("PROGRESS", "");
            char byte;
            if (recv(sock, &byte, 1, 0) <= 0)
                close(sock);
        }
    }
    if (!strcmp(me, "protocol-9") || !strcmp(me, "becomes-9")) {
        if (!strcmp(me, "becomes-9"))
            begin(path);
        dial(path);
        say("HELLO", "\"protocol\":9,\"resumed\":false");
        wait_for_death(); /* one is enough */
    }
    if (!strcmp(me, "protocol-0")) { /* the version before */
        dial(path);
        say("HELLO", "\"protocol\":0,\"pid\":1,\"resumed\":false");
        hear();
        say("READY", "");
        hear();
        say("START", "");
        leave_good(me, 0);
        _exit(0);
    }
    if (!strcmp(me, "resumed")) {
        for (;;) {
            dial(path);
            say("HELLO", "\"protocol\":1,\"resumed\":true");
            char byte;
            if (recv(sock, &byte, 1, 0) <= 0)
                close(sock);
        }
    }
    if (!strcmp(me, "early")) {
        for (;;) {
            dial(path);
            say("HELLO", "\"protocol\":1,\"resumed\":false");
            say("START", "");
            char byte;
            while (recv(sock, &byte, 1, 0) > 0)
                ;
            close(sock);
        }
    }
}

static void talkers(const char *path)
{
    if (!strcmp(me, "flood")) {
        begin(path);
        for (;;) {
            for (int rc = 0; rc == 0;)
                rc = say("LOG", "\"level\":\"info\",\"line\":\"x\"");
            close(sock);
            dial(path);
            say("HELLO", "\"protocol\":1,\"resumed\":true");
        }
    }
    if (!strcmp(me, "lies")) {
        begin(path);
        progress("100", "50");
        progress("100", "1000"); /* more than all */
        usleep(300000);
        leave_good(me, 0);
        _exit(0);
    }
    if (!strcmp(me, "negative")) {
        begin(path);
        progress("100", "-1");
        wait_for_death();
    }
    if (!strcmp(me, "standstill")) { /* talks, and does nothing */
        begin(path);
        for (;;) {
            progress("100", "50");
            usleep(200000);
        }
    }
    if (!strcmp(me, "requests")) { /* no counter of bytes changes, but it works */
        begin(path);
        for (int i = 0; i < 16; i++) {
            char text[512];
            snprintf(text, sizeof text, PROGRESS ",\"requests\":%d", "0", "0", i);
            say("PROGRESS", text);
            usleep(200000);
        }
        leave_good(me, 0);
        _exit(0);
    }
    if (!strcmp(me, "descriptors")) {
        begin(path);
        int many[100];
        union {
            char buf[CMSG_SPACE(sizeof many)];
            struct cmsghdr align;
        } control = {.buf = {0}};
        static char text[] =
            "{\"type\":\"LOG\",\"operation\":\"descriptors\",\"seq\":99,\"level\":\"info\",\"line\":\"x\"}";
        struct iovec iov = {text, sizeof text - 1};
        struct msghdr h = {
            .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.buf};
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        *c = (struct cmsghdr){CMSG_LEN(sizeof many), SOL_SOCKET, SCM_RIGHTS};
        for (int i = 0; i < 100; i++)
            many[i] = 0;
        memcpy(CMSG_DATA(c), many, sizeof many);
        for (int i = 0; i < 20; i++)
            sendmsg(sock, &h, MSG_NOSIGNAL);
        leave_good(me, 0);
        _exit(0);
    }
    if (!strcmp(me, "keys")) { /* what is no key, or comes unasked for: three times are enough */
        begin(path);
        const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
        const int all[] = {file, zero, -1};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            char text[128];
            const int n =
                snprintf(text, sizeof text, "{\"type\":\"KEY\",\"operation\":\"keys\",\"seq\":%d}", 1000 + ++seq);
            descriptors_send(sock, text, (size_t)n, &all[i], all[i] >= 0, 0);
            usleep(200000);
            close(sock);
            dial(path);
            say("HELLO", "\"protocol\":1,\"resumed\":true");
        }
        wait_for_death();
    }
    if (!strcmp(me, "redials")) {
        begin(path);
        for (;;) {
            close(sock);
            dial(path);
            say("HELLO", "\"protocol\":1,\"resumed\":true");
        }
    }
    if (!strcmp(me, "deaf")) { /* never reads, hears no signal */
        signal(SIGTERM, SIG_IGN);
        begin(path);
        wait_for_death();
    }
    if (!strcmp(me, "holds")) { /* somebody else keeps the connection open */
        begin(path);
        if (fork() == 0) {
            setsid();
            wait_for_death();
        }
        leave_good(me, 0);
        _exit(0);
    }
}

static void leavers(const char *path)
{
    begin(path);
    if (!strcmp(me, "r-none"))
        _exit(0);
    if (!strcmp(me, "r-none-3"))
        _exit(3);
    if (!strcmp(me, "r-words")) {
        dprintf(2, "one line\nlibzstd.so.1: cannot open shared object file\n");
        _exit(1);
    }
    if (!strcmp(me, "r-other"))
        leave_good("up-1", 0);
    if (!strcmp(me, "r-exit-1")) {
        leave_good(me, 0);
        _exit(1);
    }
    if (!strcmp(me, "r-says-2")) {
        leave_good(me, 2);
        _exit(0);
    }
    if (!strcmp(me, "r-code-9"))
        leave_good(me, 9);
    if (!strcmp(me, "r-pid"))
        leave("{\"operation\":\"%s\",\"kind\":\"backup\",\"code\":0,\"pid\":1}", me);
    if (!strcmp(me, "r-no-snapshot"))
        leave("{\"operation\":\"%s\",\"kind\":\"backup\",\"code\":0,\"pid\":%d}", me, (int)getpid());
    if (!strcmp(me, "r-text"))
        leave("all went well");
    if (!strcmp(me, "r-half"))
        leave("{\"operation\":\"%s\",\"kind\":\"backup\",\"co", me);
    if (!strcmp(me, "r-huge") && ftruncate(result_fd, (off_t)1 << 40) < 0)
        _exit(97);
    if (!strcmp(me, "r-large")) { /* valid, and too large to be parsed in the loop */
        leave("{\"operation\":\"%s\",\"kind\":\"backup\",\"code\":0,\"pid\":%d,\"snapshotID\":\"%032d\",\"x\":[0", me,
              (int)getpid(), 1);
        leave_often(",0", 1 << 20);
        leave("]}");
    }
    if (!strcmp(me, "r-wide")) {
        leave("{\"operation\":\"%s\",\"kind\":\"backup\",\"code\":0,\"pid\":%d,\"snapshotID\":\"%032d\",\"x\":[[]", me,
              (int)getpid(), 1);
        leave_often(",[]", 300000);
        leave("]}");
    }
    if (!strncmp(me, "r-slow", 6)) /* valid, and what a parser can have to do with 1 MiB */
        leave_slow();
    if (!strcmp(me, "r-deep"))
        leave_often("[", 100000);
    if (!strcmp(me, "r-controls")) {
        leave(
            "{\"operation\":\"%s\",\"kind\":\"backup\",\"code\":1,\"pid\":%d,\"error\":{\"class\":\"x\",\"exit\":9999,"
            "\"errno\":-4,\"message\":\"a\\u001b[31m\\nb",
            me, (int)getpid());
        for (int i = 0; i < 3000; i++)
            leave("\\u00e4");
        leave("\"}}");
        _exit(1);
    }
    _exit(0);
}

static int false_mover(const char *path, const char *operation)
{
    me = operation;
    if (!strcmp(me, "silent")) {
        dial(path);
        wait_for_death();
    }
    if (!strcmp(me, "absent"))
        wait_for_death();
    protocol_breakers(path);
    talkers(path);
    leavers(path);
    return 0;
}

/* ---- the daemon's half ---- */

static char own_path[4096];

static unsigned descriptors(void)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    closedir(d);
    return n;
}

static void begin_with(struct rig *r, const char *operation)
{
    struct err e = ERR_INIT;
    json_t *job = json_pack("{s:s, s:{s:s}}", "kind", "backup", "repository", "path", "/nowhere");
    rig_forget(r);
    assert_ok(rig_start(r, operation, "backup", job, -1, "x", &e), &e);
    json_decref(job);
}

static void expect(struct rig *r, const char *operation, enum mover_outcome outcome, const char *says, double seconds)
{
    const unsigned before = descriptors();
    begin_with(r, operation);
    rig_until(r, &r->ended, 1, seconds);
    if (r->outcome != outcome || !strstr(r->err.msg, says))
        fail_msg("%s: %s, \"%s\"; not %s, \"%s\"", operation, mover_outcome_name(r->outcome), r->err.msg,
                 mover_outcome_name(outcome), says);
    assert_int_equal(movers_count(r->m), 0);
    assert_int_equal(descriptors(), before);
}

static void test_protocol_breakers(void **state)
{
    static const struct {
        const char *what, *says;
    } list[] = {
        {"garbage", "not a JSON object"},
        {"array", "not a JSON object"},
        {"huge", "more than 64 KiB"},
        {"deep", "more than 256 values"},
        {"many-values", "more than 256 values"},
        {"no-hello", "first message is not HELLO"},
        {"other-operation", "another operation"},
        {"resumed", "without GO"},
    };
    struct rig r;
    (void)state;
    rig_new(&r, own_path);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        expect(&r, list[i].what, MOVER_DIED, list[i].says, 10);
        assert_int_equal(r.ready, 0);
    }
    expect(&r, "early", MOVER_DIED, "protocol violations", 10);
    assert_int_equal(r.started, 0);
    rig_free(&r);
}

/* MS-54: of the version before one may be; any other ends at once, and it is said what to do. */
static void test_other_versions(void **state)
{
    struct rig r;
    (void)state;
    rig_new(&r, own_path);
    expect(&r, "protocol-0", MOVER_OK, "", 10);
    assert_int_equal(r.started, 1);
    expect(&r, "protocol-9", MOVER_NEVER_STARTED,
           "never started: it has protocol 9, this snapferryd has 1, of another version", 10);
    assert_int_equal(r.ready, 0);
    assert_non_null(strstr(r.err.hint, "both programs must be of one version"));
    expect(&r, "becomes-9", MOVER_DIED, "was killed: it has protocol 9, this snapferryd has 1, of another version", 10);
    assert_non_null(strstr(r.err.hint, "systemctl restart snapferryd"));
    rig_free(&r);
}

static void test_never_ready(void **state)
{
    struct rig r;
    (void)state;
    rig_new(&r, own_path);
    r.go_timeout_s = 1;
    expect(&r, "silent", MOVER_NEVER_STARTED, "not ready within 1 s", 5);
    expect(&r, "absent", MOVER_NEVER_STARTED, "not ready within 1 s", 5);
    rig_free(&r);
}

static void test_talkers(void **state)
{
    struct rig r;
    (void)state;
    rig_new(&r, own_path);
    expect(&r, "flood", MOVER_DIED, "400 messages a second", 10);
    expect(&r, "lies", MOVER_OK, "", 10);
    assert_int_equal(json_integer_value(json_object_get(r.last, "done")), 100);
    expect(&r, "descriptors", MOVER_OK, "", 10);
    expect(&r, "keys", MOVER_DIED, "key out of order", 10);
    expect(&r, "redials", MOVER_DIED, "too many connections", 20);
    expect(&r, "holds", MOVER_OK, "", 8); /* MS-28: at most 5 s */
    r.stall_timeout_s = 1;
    expect(&r, "standstill", MOVER_HUNG, "no progress for 1 s in stage moving", 10);
    expect(&r, "requests", MOVER_OK, "", 10);
    expect(&r, "negative", MOVER_HUNG, "no progress", 10);
    assert_int_equal(r.progress, 0);
    rig_free(&r);
}

static void test_deaf(void **state)
{
    struct rig r;
    struct err e = ERR_INIT;
    (void)state;
    rig_new(&r, own_path);
    begin_with(&r, "deaf");
    rig_until(&r, &r.started, 1, 5);
    for (int i = 0; i < 1000; i++)
        assert_ok(movers_cancel(r.m, "deaf", rig_realtime_ns() + 2000000000, &e), &e);
    rig_until(&r, &r.ended, 1, 6);
    assert_int_equal(r.outcome, MOVER_CANCELED);
    rig_free(&r);
}

static void test_results(void **state)
{
    static const struct {
        const char *what;
        enum mover_outcome outcome;
        const char *says;
    } list[] = {
        {"r-none", MOVER_MISMATCH, "finished but its result is unreadable: empty; exit status 0"},
        {"r-none-3", MOVER_MISMATCH, "exit status 3"},
        {"r-words", MOVER_MISMATCH, "exit status 1; its last words: libzstd.so.1: cannot open shared object file"},
        {"r-other", MOVER_MISMATCH, "belongs to another operation"},
        {"r-exit-1", MOVER_MISMATCH, "result file has code 0, process: exit status 1"},
        {"r-says-2", MOVER_MISMATCH, "result file has code 2, process: exit status 0"},
        {"r-code-9", MOVER_MISMATCH, "code not in 0 to 4"},
        {"r-pid", MOVER_MISMATCH, "written by another process"},
        {"r-no-snapshot", MOVER_MISMATCH, "success without a snapshot"},
        {"r-text", MOVER_MISMATCH, "result is unreadable"},
        {"r-half", MOVER_MISMATCH, "result is unreadable"},
        {"r-huge", MOVER_MISMATCH, "size of 1099511627776 bytes"},
        {"r-large", MOVER_MISMATCH, "size of 2097"},
        {"r-deep", MOVER_MISMATCH, "nested deeper than 64"},
        {"r-wide", MOVER_MISMATCH, "more than 131072 values"},
        {"r-controls", MOVER_FAILED, "a?[31m?b"},
    };
    struct rig r;
    (void)state;
    rig_new(&r, own_path);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        expect(&r, list[i].what, list[i].outcome, list[i].says, 10);
    /* A class and an errno that there are not, and a text that is cut between characters. */
    assert_int_equal(r.err.cls, ERR_GENERIC);
    assert_int_equal(r.err.sys, 0);
    json_t *valid = json_string(r.err.msg);
    assert_non_null(valid);
    json_decref(valid);
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    if (!getenv("SNAPFERRY_SANITIZED"))
        assert_true(u.ru_maxrss < 64 << 10); /* KiB: the daemon stays small */
    rig_free(&r);
}

static double cpu_of(int who)
{
    struct rusage u;
    getrusage(who, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* Many of them at once: the event loop has the smaller part of it, though it starts the movers and does all else. */
static void test_slow_results(void **state)
{
    enum { N = 24 };
    static const char *const last = "r-slow-23";
    struct rig r;
    struct err e = ERR_INIT;
    char name[16];
    (void)state;
    rig_new(&r, own_path);
    r.no_copy = true;
    json_t *job = json_pack("{s:s, s:{s:s}}", "kind", "backup", "repository", "path", "/nowhere");
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "r-slow-%d", i);
        assert_ok(rig_start(&r, name, "backup", job, -1, "x", &e), &e);
    }
    json_decref(job);
    const double all = cpu_of(RUSAGE_SELF), mine = cpu_of(RUSAGE_THREAD);
    for (unsigned n = 1; n <= N; n++)
        rig_until(&r, &r.ended, n, 20);
    assert_int_equal(r.outcome, MOVER_OK);
    const double own = cpu_of(RUSAGE_THREAD) - mine, beside = cpu_of(RUSAGE_SELF) - all - own;
    if (own > beside)
        fail_msg("%.3f s of CPU in the loop, %.3f s beside it", own, beside);
    /* It ends while some are read. */
    job = json_pack("{s:s, s:{s:s}}", "kind", "backup", "repository", "path", "/nowhere");
    assert_ok(rig_start(&r, last, "backup", job, -1, "x", &e), &e);
    json_decref(job);
    rig_until(&r, &r.started, N + 1, 10);
    for (int i = 0; i < 8; i++) {
        snprintf(name, sizeof name, "r-slow-%d", i);
        assert_ok(movers_result(r.m, name, &e), &e);
        assert_true(movers_has(r.m, name));
        assert_int_equal(movers_forget(r.m, name, NULL, NULL, &e), -EBUSY);
        assert_ok(movers_cancel(r.m, name, 0, &e), &e);
    }
    rig_free(&r);
}

int main(int argc, char **argv)
{
    if (argc == 5 && !strcmp(argv[1], "--socket"))
        return false_mover(argv[2], argv[4]);
    if (!realpath("/proc/self/exe", own_path))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_protocol_breakers),
        cmocka_unit_test(test_other_versions),
        cmocka_unit_test(test_never_ready),
        cmocka_unit_test(test_talkers),
        cmocka_unit_test(test_deaf),
        cmocka_unit_test(test_results),
        cmocka_unit_test(test_slow_results),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
