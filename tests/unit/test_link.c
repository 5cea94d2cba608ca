/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_link.c - a mover's connection to the daemon: limits that come by it, and what is malformed */
#include "tests/unit/malformed-limits.h"
#include "tests/unit/test.h"

#include "daemon/mover/agent/link.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct link_rig {
    char dir[64];
    int listener, fd;
    struct mover_cancel cancel;
    struct mover_progress progress;
    struct link *link;
    _Atomic unsigned ignored, again, other; /* lines of its log */
};

static void count_line(enum log_level lvl, const char *line, void *arg)
{
    struct link_rig *r = arg;
    if (lvl == LOG_LVL_WARNING && strstr(line, IGNORED))
        atomic_fetch_add(&r->ignored, 1);
    else if (lvl == LOG_LVL_WARNING && strstr(line, AGAIN))
        atomic_fetch_add(&r->again, 1);
    else
        atomic_fetch_add(&r->other, 1);
}

/* The next message of that type, NULL: the connection was closed. */
static json_t *hear(const struct link_rig *r, const char *type)
{
    for (;;) {
        char text[WIRE_MAX];
        assert_int_equal(poll(&(struct pollfd){.fd = r->fd, .events = POLLIN}, 1, 30000), 1);
        const ssize_t n = recv(r->fd, text, sizeof text, 0);
        if (n <= 0)
            return NULL;
        json_t *m = json_loadb(text, (size_t)n, 0, NULL);
        if (!strcmp(json_string_value(json_object_get(m, "type")), type))
            return m;
        json_decref(m);
    }
}

/* It connects, and greets. */
static void accept_it(struct link_rig *r, bool resumed)
{
    assert_int_equal(poll(&(struct pollfd){.fd = r->listener, .events = POLLIN}, 1, 30000), 1);
    r->fd = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(r->fd >= 0);
    json_t *m = hear(r, WIRE_HELLO);
    assert_non_null(m);
    assert_int_equal(json_is_true(json_object_get(m, "resumed")), resumed);
    json_decref(m);
}

static void say(const struct link_rig *r, const char *text)
{
    assert_int_equal(send(r->fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static void until_u(const _Atomic unsigned *counter, unsigned n)
{
    for (int i = 0; i < 3000 && atomic_load(counter) < n; i++)
        poll(NULL, 0, 10);
    assert_int_equal(atomic_load(counter), n);
}

static void until_rates(const struct link_rig *r, uint64_t read, uint64_t write)
{
    for (int i = 0;
         i < 3000 && (atomic_load(&r->cancel.read_limit) != read || atomic_load(&r->cancel.write_limit) != write); i++)
        poll(NULL, 0, 10);
    assert_int_equal(atomic_load(&r->cancel.read_limit), read);
    assert_int_equal(atomic_load(&r->cancel.write_limit), write);
}

static void link_rig_new(struct link_rig *r)
{
    struct err e = ERR_INIT;
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    *r = (struct link_rig){.dir = "/tmp/snapferry-link-XXXXXX"};
    assert_non_null(mkdtemp(r->dir));
    snprintf(sa.sun_path, sizeof sa.sun_path, "%s/mover.sock", r->dir);
    r->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(r->listener, (struct sockaddr *)&sa, sizeof sa), 0);
    assert_int_equal(listen(r->listener, 4), 0);
    log_to(count_line, r);
    assert_ok(link_dial(&r->link, sa.sun_path, "up-1", &r->cancel, &e), &e);
    accept_it(r, false);
    assert_ok(link_detach(r->link, &r->progress, &e), &e);
}

static void link_rig_free(struct link_rig *r)
{
    link_free(r->link);
    log_to(NULL, NULL);
    close(r->fd);
    close(r->listener);
    char path[96];
    snprintf(path, sizeof path, "%s/mover.sock", r->dir);
    unlink(path);
    rmdir(r->dir);
}

static void limits_are_taken(void **state)
{
    struct link_rig r;
    (void)state;
    link_rig_new(&r);
    say(&r, "{\"type\":\"LIMITS\",\"read_limit\":1048576,\"write_limit\":2097152}");
    until_rates(&r, 1 << 20, 2 << 20);
    /* What a later daemon has besides. */
    say(&r, "{\"type\":\"LIMITS\",\"operation\":\"up-1\",\"read_limit\":0,\"write_limit\":1048576,\"burst\":[]}");
    until_rates(&r, THROTTLE_NONE, 1 << 20);
    say(&r, "{\"type\":\"LIMITS\",\"read_limit\":9223372036854775807,\"write_limit\":1}");
    until_rates(&r, INT64_MAX, THROTTLE_MIN);
    say(&r, "{\"type\":\"LIMITS\",\"read_limit\":1048576,\"write_limit\":0}");
    until_rates(&r, 1 << 20, THROTTLE_NONE);
    assert_int_equal(r.ignored + r.again + r.other, 0);
    link_rig_free(&r);
}

static void malformed_limits_are_ignored(void **state)
{
    struct link_rig r;
    (void)state;
    link_rig_new(&r);
    say(&r, "{\"type\":\"LIMITS\",\"read_limit\":1048576,\"write_limit\":2097152}");
    until_rates(&r, 1 << 20, 2 << 20);
    for (unsigned i = 0; i < N(ignored); i++) {
        say(&r, ignored[i]);
        until_u(&r.ignored, i + 1);
        until_rates(&r, 1 << 20, 2 << 20);
    }
    assert_int_equal(r.again + r.other, 0);
    assert_int_equal(poll(&(struct pollfd){.fd = r.listener, .events = POLLIN}, 1, 0), 0); /* still connected */
    say(&r, "{\"type\":\"LIMITS\",\"read_limit\":2097152,\"write_limit\":0}");
    until_rates(&r, 2 << 20, THROTTLE_NONE);
    link_rig_free(&r);
}

static void what_is_no_message_breaks_the_connection(void **state)
{
    struct link_rig r;
    (void)state;
    link_rig_new(&r);
    say(&r, "{\"type\":\"LIMITS\",\"read_limit\":1048576,\"write_limit\":2097152}");
    until_rates(&r, 1 << 20, 2 << 20);
    for (unsigned i = 0; i < N(refused); i++) {
        say(&r, refused[i]);
        assert_null(hear(&r, "nothing"));
        close(r.fd);
        accept_it(&r, true);
        until_u(&r.again, i + 1);
        until_rates(&r, 1 << 20, 2 << 20);
        assert_false(atomic_load(&r.cancel.requested));
    }
    assert_int_equal(r.ignored + r.other, 0);
    json_t *m = hear(&r, WIRE_PROGRESS);
    assert_non_null(m);
    json_decref(m);
    say(&r, "{\"type\":\"LIMITS\",\"read_limit\":2097152,\"write_limit\":0}");
    until_rates(&r, 2 << 20, THROTTLE_NONE);
    say(&r, "{\"type\":\"CANCEL\"}");
    m = hear(&r, WIRE_CANCELLING);
    assert_non_null(m);
    json_decref(m);
    assert_true(atomic_load(&r.cancel.requested));
    link_rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_are_taken),
        cmocka_unit_test(malformed_limits_are_ignored),
        cmocka_unit_test(what_is_no_message_breaks_the_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
