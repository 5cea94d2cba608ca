/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_control.c - the control socket against friendly and hostile clients
 *
 * One thread plays both sides: the client's end is non-blocking, and the event loop runs between its actions.
 */
#include "tests/unit/engine-standin.h"
#include "tests/unit/test.h"

#include "daemon/control/control-impl.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

struct fixture {
    char dir[64];
    sd_event *loop;
    struct engine engine;
    struct control *control;
    struct sockaddr_un addr;
};

static int set_up_group(void **state, const char *group)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct err e = ERR_INIT;
    snprintf(f->dir, sizeof f->dir, "/tmp/snapferry-control.XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    assert_true(sd_event_new(&f->loop) >= 0);
    assert_ok(standin_new(&f->engine, f->loop, f->dir, &e), &e);
    assert_ok(control_new(&f->control, f->loop, &f->engine, f->dir, group, &e), &e);
    f->addr.sun_family = AF_UNIX;
    snprintf(f->addr.sun_path, sizeof f->addr.sun_path, "%s/control.sock", f->dir);
    *state = f;
    return 0;
}
static int set_up(void **state)
{
    return set_up_group(state, NULL);
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    char cmd[128];
    control_free(f->control);
    for (int i = 0; i < 20; i++)
        sd_event_run(f->loop, 10000);
    standin_free(&f->engine);
    sd_event_unref(f->loop);
    snprintf(cmd, sizeof cmd, "rm -rf %s", f->dir);
    assert_int_equal(system(cmd), 0);
    free(f);
    return 0;
}

static int64_t clock_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void spin(struct fixture *f, unsigned ms)
{
    for (int64_t until = clock_ms() + ms; clock_ms() < until;)
        sd_event_run(f->loop, 2000);
}

static int dial(struct fixture *f)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&f->addr, sizeof f->addr), 0);
    sd_event_run(f->loop, 100000);
    return fd;
}

static void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* The next line as JSON, running the loop for at most 10 s; NULL: the end of the connection. */
static json_t *hear(struct fixture *f, int fd)
{
    static char line[20u << 20];
    size_t n = 0;
    for (int64_t until = clock_ms() + 10000; clock_ms() < until;) {
        ssize_t r = recv(fd, line + n, sizeof line - n, MSG_PEEK);
        if (r < 0 && errno == EAGAIN) {
            sd_event_run(f->loop, 2000);
            continue;
        }
        if (r <= 0)
            return NULL;
        const char *nl = memchr(line + n, '\n', (size_t)r);
        r = recv(fd, line + n, nl ? (size_t)(nl - line) - n + 1 : (size_t)r, 0);
        assert_true(r > 0);
        n += (size_t)r;
        if (!nl)
            continue;
        json_t *j = json_loadb(line, n, 0, NULL);
        assert_non_null(j);
        return j;
    }
    fail_msg("no answer in 10 s");
    return NULL;
}

/* Reads as much as is there in big steps; returns how many bytes, stops at the end of the connection (*end). */
static size_t drain(struct fixture *f, int fd, bool *end, unsigned ms)
{
    static char buf[1 << 16];
    size_t n = 0;
    *end = false;
    for (int64_t until = clock_ms() + ms; clock_ms() < until;) {
        ssize_t r;
        while ((r = recv(fd, buf, sizeof buf, 0)) > 0)
            n += (size_t)r;
        if (r == 0 || (r < 0 && errno != EAGAIN)) {
            *end = true;
            return n;
        }
        sd_event_run(f->loop, 2000);
    }
    return n;
}

static json_t *ask(struct fixture *f, int fd, const char *line)
{
    say(fd, line);
    return hear(f, fd);
}

static const char *error_class(const json_t *answer)
{
    return jstr(jobj(answer, "error"), "class");
}

static void asks_and_answers(void **state)
{
    struct fixture *f = *state;
    int fd = dial(f);
    CLEANUP_JSON json_t *a = ask(f, fd, "{\"id\":7,\"verb\":\"ping\"}\n");
    assert_int_equal(jint(a, "id"), 7);
    assert_true(jbool(a, "ok"));
    assert_int_equal(jint(jobj(a, "answer"), "pid"), getpid());
    CLEANUP_JSON json_t *b = ask(f, fd, "{\"id\":8,\"verb\":\"status\"}\r\n");
    assert_string_equal(jstr(jobj(jobj(b, "answer"), "daemon"), "node"), "nas1");
    CLEANUP_JSON json_t *c = ask(f, fd, "{\"id\":9,\"verb\":\"fly\"}\n");
    assert_string_equal(error_class(c), "usage");
    assert_int_equal(jint(jobj(c, "error"), "code"), ERR_USAGE);
    close(fd);
}

/* Lines in pieces, several at once, and answers that come later than those of later requests. */
static void lines_in_any_cut(void **state)
{
    struct fixture *f = *state;
    int fd = dial(f);
    const char *text = "{\"id\":1,\"verb\":\"ping\"}\n{\"id\":2,\"verb\":\"ping\"}\n\n\n{\"id\":3,\"verb\":\"ping\"}\n";
    for (const char *s = text; *s; s++) {
        assert_int_equal(send(fd, s, 1, MSG_NOSIGNAL), 1);
        sd_event_run(f->loop, 0);
    }
    for (int i = 1; i <= 3; i++) {
        CLEANUP_JSON json_t *a = hear(f, fd);
        assert_int_equal(jint(a, "id"), i);
    }
    f->engine.late = true;
    say(fd, "{\"id\":4,\"verb\":\"volumes\"}\n{\"id\":5,\"verb\":\"ping\"}\n");
    CLEANUP_JSON json_t *first = hear(f, fd), *second = hear(f, fd);
    assert_int_equal(jint(first, "id"), 5);
    assert_int_equal(jint(second, "id"), 4);
    close(fd);
}

/* A client that has said all it wants and closes its side still gets its answers (printf | nc -U). */
static void half_closed(void **state)
{
    struct fixture *f = *state;
    int fd = dial(f);
    f->engine.late = true;
    say(fd, "{\"id\":1,\"verb\":\"volumes\"}\n");
    shutdown(fd, SHUT_WR);
    CLEANUP_JSON json_t *a = hear(f, fd);
    assert_true(jbool(a, "ok"));
    assert_null(hear(f, fd));
    close(fd);
    spin(f, 20);
    assert_int_equal(control_clients(f->control), 0);
}

/* Every argument has a type; what the engine would have to doubt never reaches it. */
static void arguments_are_checked(void **state)
{
    struct fixture *f = *state;
    static const char *const bad[] = {
        "{\"id\":1,\"verb\":\"cancel\"}",
        "{\"id\":1,\"verb\":\"cancel\",\"args\":{\"id\":null}}",
        "{\"id\":1,\"verb\":\"cancel\",\"args\":{\"id\":5}}",
        "{\"id\":1,\"verb\":\"cancel\",\"args\":{\"id\":\"\"}}",
        "{\"id\":1,\"verb\":\"cancel\",\"args\":{\"id\":\"x\",\"more\":1}}",
        "{\"id\":1,\"verb\":\"submit-backup\",\"args\":{\"volumes\":\"vg0/db1\"}}",
        "{\"id\":1,\"verb\":\"submit-backup\",\"args\":{\"volumes\":[1]}}",
        "{\"id\":1,\"verb\":\"submit-restore\",\"args\":{\"target\":\"/t\"}}",
        "{\"id\":1,\"verb\":\"submit-restore\",\"args\":{\"backup\":\"b\",\"target\":\"t\",\"class_map\":{\"a\":1}}}",
        "{\"id\":1,\"verb\":\"operations\",\"args\":{\"limit\":-1}}",
        "{\"id\":1,\"verb\":\"operations\",\"args\":{\"limit\":1.5}}",
        "{\"id\":1,\"verb\":\"expire\",\"args\":{\"dry_run\":\"yes\"}}",
        "{\"id\":1,\"verb\":\"verify\",\"args\":{\"read_percent\":\"all\"}}",
    };
    int fd = dial(f);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char line[512];
        snprintf(line, sizeof line, "%s\n", bad[i]);
        CLEANUP_JSON json_t *a = ask(f, fd, line);
        if (strcmp(error_class(a), "usage") != 0)
            fail_msg("%s was not refused", bad[i]);
    }
    char line[8192];
    snprintf(line, sizeof line, "{\"id\":1,\"verb\":\"cancel\",\"args\":{\"id\":\"%0*d\"}}\n", 512, 0);
    CLEANUP_JSON json_t *a = ask(f, fd, line);
    assert_string_equal(error_class(a), "usage");
    snprintf(line, sizeof line, "{\"id\":1,\"verb\":\"explain\",\"args\":{\"volume\":\"%0*d\"}}\n", 4096, 0);
    CLEANUP_JSON json_t *b = ask(f, fd, line);
    assert_string_equal(error_class(b), "usage");
    CLEANUP_JSON json_t *c = ask(f, fd, "{\"id\":1,\"verb\":\"expire\",\"args\":{\"dry_rum\":true}}\n");
    assert_non_null(strstr(jstr(jobj(c, "error"), "hint"), "\"dry_run\"? its arguments are: volume dry_run explain"));
    assert_int_equal(f->engine.calls, 0);
    close(fd);
}

static void garbage_is_cut_off(void **state)
{
    struct fixture *f = *state;
    static const char *const lines[] = {"GET / HTTP/1.1\n", "[1,2,3]\n", "{\"verb\":\"ping\"}\n",
                                        "{\"id\":1,\"id\":2}\n"};
    int fd = dial(f), other = dial(f);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        CLEANUP_JSON json_t *a = ask(f, fd, lines[i]);
        assert_true(json_is_null(json_object_get(a, "id")));
        assert_string_equal(error_class(a), "usage");
    }
    assert_null(hear(f, fd));
    /* The other client has not noticed. */
    CLEANUP_JSON json_t *a = ask(f, other, "{\"id\":1,\"verb\":\"ping\"}\n");
    assert_true(jbool(a, "ok"));
    assert_int_equal(control_clients(f->control), 1);
    close(fd);
    close(other);
}

static void hostile_lines(void **state)
{
    struct fixture *f = *state;
    /* Deep nesting, NUL bytes, what is not UTF-8, huge numbers: an error each, no crash. */
    char deep[4000];
    memset(deep, '[', sizeof deep - 2);
    deep[sizeof deep - 2] = '\n';
    deep[sizeof deep - 1] = '\0';
    static const char nul[] = "{\"id\":1,\"verb\":\"pi\0ng\"}\n";
    int fd = dial(f);
    CLEANUP_JSON json_t *a = ask(f, fd, deep);
    assert_string_equal(error_class(a), "usage");
    assert_int_equal(send(fd, nul, sizeof nul - 1, MSG_NOSIGNAL), (ssize_t)sizeof nul - 1);
    CLEANUP_JSON json_t *b = hear(f, fd);
    assert_string_equal(error_class(b), "usage");
    CLEANUP_JSON json_t *c = ask(f, fd, "{\"id\":1,\"verb\":\"\xff\xfe\"}\n");
    assert_string_equal(error_class(c), "usage");
    close(fd);
    fd = dial(f);
    CLEANUP_JSON json_t *d = ask(f, fd, "{\"id\":99999999999999999999999,\"verb\":\"ping\"}\n");
    assert_string_equal(error_class(d), "usage");
    CLEANUP_JSON json_t *g = ask(f, fd, "{\"id\":1,\"verb\":\"ping\\u0000x\"}\n");
    assert_string_equal(error_class(g), "usage");
    CLEANUP_JSON json_t *h = ask(f, fd, "{\"id\":2,\"verb\":\"ping\"}\n");
    assert_true(jbool(h, "ok"));
    close(fd);
}

static void endless_line(void **state)
{
    struct fixture *f = *state;
    int fd = dial(f);
    static char chunk[65536];
    bool end = false;
    size_t sent = 0;
    memset(chunk, 'a', sizeof chunk);
    for (int i = 0; i < 1000 && !end; i++) {
        ssize_t n = send(fd, chunk, sizeof chunk, MSG_NOSIGNAL);
        if (n > 0)
            sent += (size_t)n;
        end = n < 0 && errno == EPIPE;
        sd_event_run(f->loop, 1000);
    }
    assert_true(end);
    assert_true(sent < 3u << 20);
    assert_int_equal(control_clients(f->control), 0);
    close(fd);
    /* One that is just short of the limit is served. */
    fd = dial(f);
    char *line = malloc(CONTROL_LINE_MAX + 2);
    memset(line, ' ', CONTROL_LINE_MAX);
    memcpy(line, "{\"id\":1,\"verb\":\"ping\"}", 22);
    line[CONTROL_LINE_MAX - 1] = '\n';
    for (size_t at = 0; at < CONTROL_LINE_MAX;) {
        ssize_t n = send(fd, line + at, CONTROL_LINE_MAX - at, MSG_NOSIGNAL);
        at += n > 0 ? (size_t)n : 0;
        sd_event_run(f->loop, 1000);
    }
    CLEANUP_JSON json_t *a = hear(f, fd);
    assert_true(jbool(a, "ok"));
    free(line);
    close(fd);
}

/* It asks and asks and takes nothing: not read from beyond a limit, then cut off; others are served meanwhile. */
static void client_that_never_reads(void **state)
{
    struct fixture *f = *state;
    int fd = dial(f), other = dial(f);
    static const char line[] = "{\"id\":1,\"verb\":\"status\"}\n";
    f->engine.rows = 200;
    f->control->stuck_s = 2;
    for (int i = 0; i < 3000; i++) {
        (void)!send(fd, line, sizeof line - 1, MSG_NOSIGNAL);
        sd_event_run(f->loop, 0);
    }
    assert_true(f->control->pending < 2u << 20);
    CLEANUP_JSON json_t *a = ask(f, other, "{\"id\":1,\"verb\":\"ping\"}\n");
    assert_true(jbool(a, "ok"));
    for (int i = 0; i < 250 && control_clients(f->control) == 2; i++)
        spin(f, 20);
    assert_int_equal(control_clients(f->control), 1);
    assert_int_equal(f->control->pending, 0);
    close(fd);
    close(other);
}

static void half_a_line_and_silence(void **state)
{
    struct fixture *f = *state;
    f->control->stuck_s = 1;
    f->control->idle_s = 1;
    int half = dial(f), silent = dial(f), waiting = dial(f);
    say(half, "{\"id\":1,");
    CLEANUP_JSON json_t *b =
        ask(f, waiting, "{\"id\":1,\"verb\":\"submit-backup\",\"args\":{\"volumes\":[\"hang\"]}}\n");
    char line[256];
    snprintf(line, sizeof line, "{\"id\":2,\"verb\":\"wait\",\"args\":{\"id\":\"%s\"}}\n",
             jstr(jobj(b, "answer"), "backup"));
    say(waiting, line);
    spin(f, 3500);
    /* Who waits for something may be silent. */
    assert_int_equal(control_clients(f->control), 1);
    assert_null(hear(f, half));
    assert_null(hear(f, silent));
    close(half);
    close(silent);
    close(waiting);
    spin(f, 50);
    assert_int_equal(standin_waits(&f->engine), 0);
}

static void too_many_connections(void **state)
{
    struct fixture *f = *state;
    int fds[CONTROL_CLIENTS_MAX];
    for (int i = 0; i < CONTROL_CLIENTS_MAX; i++)
        fds[i] = dial(f);
    for (int i = 0; i < 1000 && control_clients(f->control) < CONTROL_CLIENTS_MAX; i++)
        spin(f, 10); /* the tick may have come between */
    assert_int_equal(control_clients(f->control), CONTROL_CLIENTS_MAX);
    /* All of them are served, also when all ask before one is answered. */
    for (int i = 0; i < CONTROL_CLIENTS_MAX; i++)
        say(fds[i], "{\"id\":7,\"verb\":\"status\"}\n");
    for (int i = 0; i < CONTROL_CLIENTS_MAX; i++) {
        CLEANUP_JSON json_t *a = hear(f, fds[i]);
        assert_true(jbool(a, "ok"));
    }
    int more = dial(f);
    CLEANUP_JSON json_t *a = hear(f, more);
    assert_string_equal(error_class(a), "busy");
    assert_null(hear(f, more));
    close(more);
    close(fds[0]);
    spin(f, 20);
    fds[0] = dial(f);
    CLEANUP_JSON json_t *b = ask(f, fds[0], "{\"id\":1,\"verb\":\"ping\"}\n");
    assert_true(jbool(b, "ok"));
    for (int i = 0; i < CONTROL_CLIENTS_MAX; i++)
        close(fds[i]);
    spin(f, 2200);
    assert_int_equal(control_clients(f->control), 0);
    assert_null(f->control->clients);
}

static void too_many_requests(void **state)
{
    struct fixture *f = *state;
    f->engine.late = true;
    int fd = dial(f), refused = 0;
    for (int i = 0; i < CONTROL_REQUESTS_MAX + 4; i++)
        say(fd, "{\"id\":1,\"verb\":\"volumes\"}\n");
    for (int i = 0; i < CONTROL_REQUESTS_MAX + 4; i++) {
        CLEANUP_JSON json_t *a = hear(f, fd);
        refused += !strcmp(error_class(a), "busy");
    }
    assert_int_equal(refused, 4);
    close(fd);
}

/* Many connections cannot start more work at once than a few can: the rest waits for its turn, and is answered. */
static void too_many_requests_together(void **state)
{
    struct fixture *f = *state;
    f->engine.late = true;
    int fds[6], gone = dial(f);
    for (int i = 0; i < 6; i++)
        fds[i] = dial(f);
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < 10; k++)
            say(fds[i], "{\"id\":1,\"verb\":\"volumes\"}\n");
    say(gone, "{\"id\":1,\"verb\":\"volumes\"}\n");
    unsigned most = 0, queued = 0;
    for (int i = 0; i < 200 && queued < 61 - CONTROL_WORKING_MAX; i++) {
        sd_event_run(f->loop, 0);
        most = f->control->working > most ? f->control->working : most;
        queued = f->control->queued > queued ? f->control->queued : queued;
    }
    assert_int_equal(most, CONTROL_WORKING_MAX);
    assert_true(queued > 0);
    /* What needs no child is answered before those. */
    CLEANUP_JSON json_t *status = ask(f, gone, "{\"id\":2,\"verb\":\"status\"}\n");
    assert_int_equal(jint(status, "id"), 2);
    close(gone); /* with a request that waits or runs */
    for (int i = 0; i < 6; i++) {
        for (int k = 0; k < 10; k++) {
            CLEANUP_JSON json_t *a = hear(f, fds[i]);
            assert_true(jbool(a, "ok"));
        }
    }
    for (int i = 0; i < 6; i++)
        close(fds[i]);
    spin(f, 200);
    assert_int_equal(f->control->working, 0);
    assert_int_equal(f->control->queued, 0);
}

static void answer_too_long(void **state)
{
    struct fixture *f = *state;
    int fd = dial(f);
    f->engine.big = CONTROL_ANSWER_MAX + 1;
    CLEANUP_JSON json_t *a = ask(f, fd, "{\"id\":3,\"verb\":\"status\"}\n");
    assert_string_equal(error_class(a), "busy");
    f->engine.big = 4u << 20;
    CLEANUP_JSON json_t *b = ask(f, fd, "{\"id\":3,\"verb\":\"status\"}\n");
    assert_true(jbool(b, "ok"));
    close(fd);
}

/* Several clients that do not read cannot make the daemon hold more than its limit. */
static void unread_answers_are_bounded(void **state)
{
    struct fixture *f = *state;
    int fds[8];
    f->engine.big = 12u << 20;
    for (int i = 0; i < 8; i++) {
        fds[i] = dial(f);
        say(fds[i], "{\"id\":1,\"verb\":\"status\"}\n");
        spin(f, 100);
        assert_true(f->control->pending <= CONTROL_PENDING_MAX);
    }
    f->engine.big = 0;
    CLEANUP_JSON json_t *a = hear(f, fds[7]);
    assert_string_equal(error_class(a), "busy");
    for (int i = 0; i < 8; i++)
        close(fds[i]);
    spin(f, 50);
    assert_int_equal(f->control->pending, 0);
}

static void waits(void **state)
{
    struct fixture *f = *state;
    int fd = dial(f), events = 0;
    CLEANUP_JSON json_t *a =
        ask(f, fd, "{\"id\":1,\"verb\":\"submit-backup\",\"args\":{\"volumes\":[\"a\",\"failb\"]}}\n");
    const char *id = jstr(jobj(a, "answer"), "backup");
    char line[256];
    snprintf(line, sizeof line, "{\"id\":2,\"verb\":\"wait\",\"args\":{\"id\":\"%.20s\"}}\n", id);
    say(fd, line);
    json_t *j;
    while ((j = hear(f, fd)) && json_object_get(j, "event")) {
        assert_int_equal(jint(j, "id"), 2);
        events++;
        json_decref(j);
    }
    assert_true(events >= 2);
    assert_string_equal(jstr(jobj(j, "answer"), "state"), "PartiallyFailed");
    assert_int_equal(json_array_size(jarr(jobj(j, "answer"), "operations")), 2);
    json_decref(j);
    spin(f, 50);
    assert_int_equal(standin_waits(&f->engine), 0);
    /* What has ended is answered at once. */
    say(fd, line);
    j = hear(f, fd);
    assert_string_equal(jstr(jobj(j, "answer"), "state"), "PartiallyFailed");
    json_decref(j);
    CLEANUP_JSON json_t *none = ask(f, fd, "{\"id\":2,\"verb\":\"wait\",\"args\":{\"id\":\"nothing-like-this\"}}\n");
    assert_string_equal(error_class(none), "not-found");
    close(fd);
}

/* A waiting client that stops reading gets only the newest events, and the end for certain. */
static void slow_waiter(void **state)
{
    struct fixture *f = *state;
    f->engine.ticks = 40;
    int fd = dial(f), small = 4096;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    char volumes[8000] = "";
    for (int i = 0; i < 50; i++)
        snprintf(volumes + strlen(volumes), sizeof volumes - strlen(volumes), "%s\"vg0/volume-number-%d\"",
                 i ? "," : "", i);
    char line[9000];
    snprintf(line, sizeof line, "{\"id\":1,\"verb\":\"submit-backup\",\"args\":{\"volumes\":[%s]}}\n", volumes);
    CLEANUP_JSON json_t *a = ask(f, fd, line);
    snprintf(line, sizeof line, "{\"id\":2,\"verb\":\"wait\",\"args\":{\"id\":\"%s\"}}\n",
             jstr(jobj(a, "answer"), "backup"));
    say(fd, line);
    size_t most = 0;
    for (int i = 0; i < 4000; i++) {
        sd_event_run(f->loop, 1000);
        most = f->control->pending > most ? f->control->pending : most;
        CLEANUP(backup_clear) struct backup b;
        backup_init(&b);
        if (i % 50 == 0 && backup_get(f->engine.records, jstr(jobj(a, "answer"), "backup"), &b, NULL) >= 0 &&
            backup_state_terminal(b.state))
            break;
    }
    assert_true(most < 1u << 20);
    json_t *j;
    unsigned events = 0;
    while ((j = hear(f, fd)) && json_object_get(j, "event")) {
        events++;
        json_decref(j);
    }
    assert_non_null(j);
    assert_string_equal(jstr(jobj(j, "answer"), "state"), "Completed");
    assert_true(events < 30);
    json_decref(j);
    close(fd);
}

/* Clients that go away in the middle of everything leave nothing behind, and the engine's late answers find nobody. */
static void clients_that_vanish(void **state)
{
    struct fixture *f = *state;
    f->engine.late = true;
    for (int i = 0; i < 200; i++) {
        int fd = dial(f);
        say(fd, i % 3 == 0 ? "{\"id\":1,\"verb\":\"volumes\"}\n{\"id\":2,\"verb\":\"reload\"}\n"
                : i % 3 == 1
                    ? "{\"id\":1,\"verb\":\"submit-backup\",\"args\":{\"volumes\":[\"x\"]}}\n{\"id\":2,\"ver"
                    : "{\"id\":1,\"verb\":\"describe\",\"args\":{\"id\":\"no such\"}}\n{\"id\":2,\"verb\":\"reload\","
                      "\"args\":{\"wait\":false}}\n");
        if (i % 2)
            sd_event_run(f->loop, 1000);
        close(fd);
    }
    spin(f, 1500);
    assert_int_equal(control_clients(f->control), 0);
    assert_null(f->control->clients);
    assert_null(f->control->requests);
    assert_int_equal(f->control->pending, 0);
}

/* The daemon ends while the engine still owes answers: they go nowhere, and nothing is touched that is gone. */
static void end_with_requests_under_way(void **state)
{
    struct fixture *f = *state;
    f->engine.late = true;
    int fd = dial(f);
    say(fd, "{\"id\":1,\"verb\":\"volumes\"}\n{\"id\":2,\"verb\":\"describe\",\"args\":{\"id\":\"vg0/db0\"}}\n");
    sd_event_run(f->loop, 1000);
    control_free(f->control);
    f->control = NULL;
    for (int i = 0; i < 40; i++)
        sd_event_run(f->loop, 5000);
    close(fd);
    struct err e = ERR_INIT;
    assert_ok(control_new(&f->control, f->loop, &f->engine, f->dir, NULL, &e), &e);
}

static void canned(struct fixture *f, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        char id[64], op[128], volume[32];
        snprintf(id, sizeof id, "nightly-20261121T020000-%04x", i);
        snprintf(op, sizeof op, "up-%s.id-%u", id, i);
        snprintf(volume, sizeof volume, "vg0/db%u", i % 10);
        standin_add(&f->engine, ROW_BACKUP, id, "", "", i == 3 ? "Moving" : "Completed",
                    json_pack("{s:s,s:b}", "kind", "backup", "canned", 1));
        standin_add(&f->engine, ROW_OPERATION, op, id, "vid", i == 3 ? "Running" : "Completed",
                    json_pack("{s:s,s:{s:s,s:s}}", "kind", "backup", "volume", "name", volume, "id", "vid"));
    }
}

static void lists_in_pages(void **state)
{
    struct fixture *f = *state;
    canned(f, 130);
    int fd = dial(f);
    size_t seen = 0;
    CLEANUP_JSON json_t *ids = json_object();
    char line[256] = "{\"id\":1,\"verb\":\"operations\"}\n";
    for (int page = 0; page < 10; page++) {
        CLEANUP_JSON json_t *a = ask(f, fd, line), *answer = json_incref(jobj(a, "answer"));
        const json_t *list = jarr(answer, "operations"), *op;
        size_t i;
        if (page == 0) /* what still runs comes first */
            assert_string_equal(jstr(json_array_get(list, 0), "state"), "Running");
        json_array_foreach(list, i, op)
        {
            assert_null(json_object_get(ids, jstr(op, "id")));
            json_object_set_new(ids, jstr(op, "id"), json_true());
            assert_null(json_object_get(op, "details"));
        }
        seen += json_array_size(list);
        if (!jbool(answer, "more"))
            break;
        assert_int_equal(json_array_size(list), 50);
        snprintf(line, sizeof line, "{\"id\":1,\"verb\":\"operations\",\"args\":{\"before\":%lld}}\n",
                 (long long)jint(answer, "next"));
    }
    assert_int_equal(seen, 130);
    CLEANUP_JSON json_t *v = ask(f, fd, "{\"id\":1,\"verb\":\"operations\",\"args\":{\"volume\":\"vg0/db7\"}}\n");
    assert_int_equal(json_array_size(jarr(jobj(v, "answer"), "operations")), 13);
    CLEANUP_JSON json_t *s = ask(f, fd, "{\"id\":1,\"verb\":\"backups\",\"args\":{\"state\":\"Moving\"}}\n");
    assert_int_equal(json_array_size(jarr(jobj(s, "answer"), "backups")), 1);
    CLEANUP_JSON json_t *l = ask(f, fd, "{\"id\":1,\"verb\":\"backups\",\"args\":{\"limit\":3}}\n");
    assert_int_equal(json_array_size(jarr(jobj(l, "answer"), "backups")), 3);
    close(fd);
}

static json_t *describe(struct fixture *f, int fd, const char *name)
{
    CLEANUP_JSON json_t *req = json_pack("{s:i,s:s,s:{s:s}}", "id", 1, "verb", "describe", "args", "id", name);
    CLEANUP_FREE char *text = json_dumps(req, JSON_COMPACT);
    say(fd, text);
    return ask(f, fd, "\n");
}

static void names_of_things(void **state)
{
    struct fixture *f = *state;
    canned(f, 20);
    standin_add(&f->engine, ROW_NATIVE, "0b5e1234-0000-4000-8000-000000000001", "b", "vid", "present",
                json_pack("{s:{s:s}}", "volume", "name", "vg0/db1"));
    f->engine.rows = 3;
    int fd = dial(f);
    static const struct {
        const char *name, *kind, *id;
    } cases[] = {
        {"nightly-20261121T020000-0004", "backup", "nightly-20261121T020000-0004"},
        {"up-nightly-20261121T020000-0004.id-4", "operation", "up-nightly-20261121T020000-0004.id-4"},
        {"nightly-20261121T020000-0004/vg0/db4", "operation", "up-nightly-20261121T020000-0004.id-4"},
        {"nightly-20261121T020000-0004/vid", "operation", "up-nightly-20261121T020000-0004.id-4"},
        {"nightly-20…-0004", "backup", "nightly-20261121T020000-0004"},
        {"up-night….id-12", "operation", "up-nightly-20261121T020000-000c.id-12"},
        {"0b5e", "native", "0b5e1234-0000-4000-8000-000000000001"},
        {"vg0/db1", "volume", "vg0/db1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CLEANUP_JSON json_t *a = describe(f, fd, cases[i].name);
        const json_t *answer = jobj(a, "answer"), *doc = jobj(answer, cases[i].kind);
        const char *id = *jstr(doc, "id") ? jstr(doc, "id") : jstr(doc, "alias");
        if (strcmp(jstr(answer, "kind"), cases[i].kind) != 0 || strcmp(id, cases[i].id) != 0)
            fail_msg("%s: %s %s", cases[i].name, jstr(answer, "kind"), id);
    }
    CLEANUP_JSON json_t *many = describe(f, fd, "nightly-2026");
    assert_string_equal(error_class(many), "usage");
    CLEANUP_JSON json_t *none = describe(f, fd, "nothing");
    assert_string_equal(error_class(none), "not-found");
    CLEANUP_JSON json_t *shortest = describe(f, fd, "n");
    assert_string_equal(error_class(shortest), "not-found");
    /* Verbs that change something get the whole id. */
    CLEANUP_JSON json_t *c = ask(f, fd, "{\"id\":1,\"verb\":\"hold\",\"args\":{\"native\":\"0b5e\"}}\n");
    assert_true(jbool(c, "ok"));
    assert_string_equal(f->engine.last.native, "0b5e1234-0000-4000-8000-000000000001");
    assert_true(f->engine.last.hold);
    close(fd);
}

static void reload_with_and_without_wait(void **state)
{
    struct fixture *f = *state;
    f->engine.late = f->engine.refuse_reload = true;
    int fd = dial(f);
    CLEANUP_JSON json_t *a = ask(f, fd, "{\"id\":1,\"verb\":\"reload\",\"args\":{\"wait\":false}}\n");
    assert_true(jbool(jobj(a, "answer"), "requested"));
    CLEANUP_JSON json_t *b = ask(f, fd, "{\"id\":2,\"verb\":\"reload\"}\n");
    assert_string_equal(error_class(b), "usage");
    assert_non_null(strstr(jstr(jobj(b, "error"), "message"), "snapferry.ini:7"));
    spin(f, 60);
    assert_null(f->control->requests);
    close(fd);
}

/* In a child as another user: what it hears from the socket; "" if it cannot even connect. */
static void as_user(struct fixture *f, uid_t uid, gid_t gid, gid_t group, char out[256])
{
    int p[2];
    assert_int_equal(pipe(p), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        char buf[256] = "";
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (setgroups(group ? 1 : 0, &group) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
            _exit(1);
        if (connect(fd, (struct sockaddr *)&f->addr, sizeof f->addr) == 0) {
            static const char ping[] = "{\"id\":1,\"verb\":\"ping\"}\n";
            (void)!send(fd, ping, sizeof ping - 1, MSG_NOSIGNAL);
            (void)!recv(fd, buf, sizeof buf - 1, 0);
        }
        (void)!write(p[1], buf, strlen(buf));
        _exit(0);
    }
    close(p[1]);
    for (int i = 0; i < 300; i++) {
        sd_event_run(f->loop, 5000);
        if (waitpid(pid, NULL, WNOHANG) == pid)
            break;
    }
    ssize_t n = read(p[0], out, 255);
    out[n > 0 ? n : 0] = '\0';
    close(p[0]);
}

/* MS-08's socket: root, the daemon's user, members of the group; nobody else, whatever the file's mode says. */
static void who_may(void **state)
{
    struct fixture *f = *state;
    char heard[256];
    struct stat st;
    const struct group *g = getgrnam("games");
    if (geteuid() != 0 || !g) {
        print_message("# SKIP needs root and the group games\n");
        skip();
    }
    assert_int_equal(stat(f->addr.sun_path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0660);
    assert_int_equal(st.st_gid, g->gr_gid);
    assert_int_equal(chmod(f->dir, 0755), 0);
    as_user(f, 65534, 65534, 0, heard);
    assert_string_equal(heard, ""); /* the mode of the socket */
    assert_int_equal(chmod(f->addr.sun_path, 0666), 0);
    as_user(f, 65534, 65534, 0, heard);
    assert_non_null(strstr(heard, "\"permission\"")); /* the credentials */
    as_user(f, 65534, g->gr_gid, 0, heard);
    assert_non_null(strstr(heard, "\"ok\":true"));
    as_user(f, 65534, 65534, g->gr_gid, heard);
    assert_non_null(strstr(heard, "\"ok\":true"));
    as_user(f, 0, 0, 0, heard);
    assert_non_null(strstr(heard, "\"ok\":true"));
}

static int set_up_games(void **state)
{
    return set_up_group(state, "games");
}

/* Members of the group cannot take the connections that root needs. */
static void places_for_root(void **state)
{
    struct fixture *f = *state;
    f->control->n_others = CONTROL_CLIENTS_MAX - CONTROL_CLIENTS_RESERVED;
    char heard[256];
    const struct group *g = getgrnam("games");
    if (geteuid() != 0 || !g) {
        print_message("# SKIP needs root and the group games\n");
        skip();
    }
    assert_int_equal(chmod(f->dir, 0755), 0);
    as_user(f, 65534, g->gr_gid, 0, heard);
    assert_non_null(strstr(heard, "\"busy\""));
    as_user(f, 0, 0, 0, heard);
    assert_non_null(strstr(heard, "\"ok\":true"));
    f->control->n_others = 0;
}

static void old_sockets(void **state)
{
    struct fixture *f = *state;
    struct err e = ERR_INIT;
    struct control *second = NULL;
    /* One that lives. */
    assert_true(control_new(&second, f->loop, &f->engine, f->dir, NULL, &e) < 0);
    assert_int_equal(e.cls, ERR_BUSY);
    assert_int_equal(access(f->addr.sun_path, F_OK), 0);
    /* One that a dead daemon left. */
    control_free(f->control);
    assert_int_not_equal(access(f->addr.sun_path, F_OK), 0);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&f->addr, sizeof f->addr), 0);
    close(fd);
    assert_ok(control_new(&f->control, f->loop, &f->engine, f->dir, NULL, &e), &e);
    int client = dial(f);
    CLEANUP_JSON json_t *a = ask(f, client, "{\"id\":1,\"verb\":\"ping\"}\n");
    assert_true(jbool(a, "ok"));
    close(client);
    /* Something that is no socket is not removed. */
    control_free(f->control);
    f->control = NULL;
    fclose(fopen(f->addr.sun_path, "w"));
    assert_true(control_new(&second, f->loop, &f->engine, f->dir, NULL, &e) < 0);
    assert_int_equal(e.cls, ERR_EXISTS);
    unlink(f->addr.sun_path);
    assert_ok(control_new(&f->control, f->loop, &f->engine, f->dir, NULL, &e), &e);
}

/* In a child whose descriptor 3 is the listening socket, as systemd passes it. */
static int with_passed_socket(struct fixture *f)
{
    struct err e = ERR_INIT;
    char pid[32];
    if (close_range(3, ~0U, 0) < 0 || socket(AF_UNIX, SOCK_STREAM, 0) != 3 ||
        bind(3, (struct sockaddr *)&f->addr, sizeof f->addr) < 0 || listen(3, 8) < 0)
        return 10;
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("LISTEN_PID", pid, 1);
    setenv("LISTEN_FDS", "1", 1);
    setenv("LISTEN_FDNAMES", "control", 1);
    char dir[128];
    snprintf(dir, sizeof dir, "%s/other", f->dir);
    struct fixture g = {.addr = f->addr};
    if (mkdir(dir, 0700) < 0 || sd_event_new(&g.loop) < 0 || standin_new(&g.engine, g.loop, dir, &e) < 0 ||
        control_new(&g.control, g.loop, &g.engine, dir, NULL, &e) < 0)
        return 11;
    int client = dial(&g);
    CLEANUP_JSON json_t *a = ask(&g, client, "{\"id\":1,\"verb\":\"ping\"}\n");
    if (!jbool(a, "ok"))
        return 12;
    control_free(g.control);
    return access(f->addr.sun_path, F_OK) == 0 ? 0 : 13;
}

/* systemd's socket is taken over, and not removed at the end. */
static void passed_socket_is_used(void **state)
{
    struct fixture *f = *state;
    struct err e = ERR_INIT;
    int status = 0;
    control_free(f->control);
    f->control = NULL;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(with_passed_socket(f));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_ok(control_new(&f->control, f->loop, &f->engine, f->dir, NULL, &e), &e);
}

/* A runtime directory whose path does not fit into sun_path. */
static void long_path(void **state)
{
    struct fixture *f = *state;
    struct err e = ERR_INIT;
    char dir[300];
    struct control *c = NULL;
    snprintf(dir, sizeof dir, "%s/%0*d", f->dir, 150, 0);
    assert_int_equal(mkdir(dir, 0700), 0);
    assert_ok(control_new(&c, f->loop, &f->engine, dir, NULL, &e), &e);
    char path[400];
    snprintf(path, sizeof path, "%s/control.sock", dir);
    assert_int_equal(access(path, F_OK), 0);
    control_free(c);
    assert_int_not_equal(access(path, F_OK), 0);
}

/* No descriptor left: no busy loop, and service goes on when there are some again. */
static void out_of_descriptors(void **state)
{
    struct fixture *f = *state;
    struct rlimit old, low;
    int fd = dial(f), waiting = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_int_equal(connect(waiting, (struct sockaddr *)&f->addr, sizeof f->addr), 0);
    getrlimit(RLIMIT_NOFILE, &old);
    low = old;
    low.rlim_cur = 4;
    setrlimit(RLIMIT_NOFILE, &low);
    unsigned rounds = 0;
    for (int i = 0; i < 50; i++)
        rounds += sd_event_run(f->loop, 10000) > 0;
    setrlimit(RLIMIT_NOFILE, &old);
    assert_true(rounds < 45); /* the pretended engine ticks every 20 ms */
    CLEANUP_JSON json_t *a = ask(f, fd, "{\"id\":1,\"verb\":\"ping\"}\n");
    assert_true(jbool(a, "ok"));
    CLEANUP_JSON json_t *b = ask(f, waiting, "{\"id\":1,\"verb\":\"ping\"}\n");
    assert_true(jbool(b, "ok"));
    close(fd);
    close(waiting);
}

/* Random bytes, random cuts of good requests, random closings: the daemon lives and holds nothing afterwards. */
static void fuzzed(void **state)
{
    struct fixture *f = *state;
    static const char *const parts[] = {"{\"id\":1,\"verb\":\"",
                                        "operations",
                                        "\",\"args\":{",
                                        "\"limit\":",
                                        "\"id\":\"x\"",
                                        "}}\n",
                                        "\n",
                                        "\0\0",
                                        "[[[[",
                                        "1e999",
                                        "\xff",
                                        "\"before\":9223372036854775807",
                                        "wait",
                                        "describe",
                                        "{\"id\":1,\"verb\":\"status\"}\n",
                                        "{\"id\":2,\"verb\":\"debug\"}\n"};
    uint64_t seed = 20261121;
    f->engine.late = true;
    for (int round = 0; round < 400; round++) {
        int fd = dial(f);
        for (int i = 0; i < 12; i++) {
            const char *p = parts[splitmix64(&seed) % (sizeof parts / sizeof *parts)];
            (void)!send(fd, p, strlen(p) + (*p == '\0'), MSG_NOSIGNAL);
        }
        sd_event_run(f->loop, 500);
        if (splitmix64(&seed) % 2) {
            bool end;
            (void)drain(f, fd, &end, 4);
        }
        close(fd);
    }
    spin(f, 2500);
    assert_int_equal(control_clients(f->control), 0);
    assert_null(f->control->requests);
    assert_int_equal(f->control->pending, 0);
    assert_int_equal(standin_waits(&f->engine), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    /* Both ends of all connections. */
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < 4 * CONTROL_CLIENTS_MAX) {
        files.rlim_cur = 4 * CONTROL_CLIENTS_MAX;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    const struct CMUnitTest tests[] = {
        TEST(asks_and_answers),
        TEST(lines_in_any_cut),
        TEST(half_closed),
        TEST(arguments_are_checked),
        TEST(garbage_is_cut_off),
        TEST(hostile_lines),
        TEST(endless_line),
        TEST(client_that_never_reads),
        TEST(half_a_line_and_silence),
        TEST(too_many_connections),
        TEST(too_many_requests),
        TEST(too_many_requests_together),
        TEST(answer_too_long),
        TEST(unread_answers_are_bounded),
        TEST(waits),
        TEST(slow_waiter),
        TEST(clients_that_vanish),
        TEST(end_with_requests_under_way),
        TEST(lists_in_pages),
        TEST(names_of_things),
        TEST(reload_with_and_without_wait),
        cmocka_unit_test_setup_teardown(who_may, set_up_games, tear_down),
        cmocka_unit_test_setup_teardown(places_for_root, set_up_games, tear_down),
        TEST(old_sockets),
        TEST(passed_socket_is_used),
        TEST(long_path),
        TEST(out_of_descriptors),
        TEST(fuzzed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
