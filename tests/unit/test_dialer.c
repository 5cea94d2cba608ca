/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The process that makes the connections of a mover: where it connects to, what it says, and when it ends. */
#include "tests/unit/test.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "daemon/mover/agent/dial-connect.h"
#include "daemon/mover/agent/dialer.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

static struct err e;
static char why[256];

static int64_t within(int64_t ms)
{
    return mono_ns() + ms * NS_PER_MS;
}

/* A port of this machine: with `backlog` < 0 nothing listens there; with 0 it takes one connection, and what comes
 * later is not answered. */
struct port {
    int fd, filler[4];
    struct sockaddr_in a;
    struct s3_target target;
};

static struct port port_make(int backlog)
{
    struct port p = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .a = {.sin_family = AF_INET}};
    socklen_t len = sizeof p.a;
    p.a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(p.fd, (struct sockaddr *)&p.a, sizeof p.a), 0);
    assert_int_equal(getsockname(p.fd, (struct sockaddr *)&p.a, &len), 0);
    if (backlog >= 0)
        assert_int_equal(listen(p.fd, backlog), 0);
    for (size_t i = 0; i < sizeof p.filler / sizeof *p.filler; i++) {
        p.filler[i] = backlog == 0 ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
        if (backlog == 0)
            connect(p.filler[i], (struct sockaddr *)&p.a, sizeof p.a);
    }
    snprintf(p.target.host, sizeof p.target.host, "127.0.0.1");
    p.target.port = ntohs(p.a.sin_port);
    return p;
}

static void port_close(struct port *p)
{
    for (size_t i = 0; i < sizeof p->filler / sizeof *p->filler; i++)
        closep(&p->filler[i]);
    close(p->fd);
}

static void passes_bytes(int client, int listener)
{
    char byte = 0;
    assert_true(client >= 0);
    CLEANUP_CLOSE int server = accept(listener, NULL, NULL);
    assert_true(server >= 0);
    assert_int_equal(write(server, "x", 1), 1);
    poll(&(struct pollfd){.fd = client, .events = POLLIN}, 1, 2000);
    assert_int_equal(read(client, &byte, 1), 1);
    assert_int_equal(byte, 'x');
    close(client);
}

static struct dialer *dialer_of(const struct s3_target *t, unsigned n, const char *daemon)
{
    struct dialer *d = NULL;
    e = (struct err)ERR_INIT;
    assert_ok(dialer_start(&d, t, n, daemon, &e), &e);
    return d;
}

/* ---- where to ---- */

static void it_hands_over_a_connection(void **state)
{
    (void)state;
    struct port p = port_make(5);
    struct s3_target t[2] = {p.target, p.target};
    snprintf(t[1].host, sizeof t[1].host, "localhost");
    struct dialer *d = dialer_of(t, 2, "/nonexistent/socket");
    for (unsigned i = 0; i < 2; i++) {
        const int fd = dialer_connect(d, &t[i], within(5000), NULL, NULL, why);
        assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
        assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
        passes_bytes(fd, p.fd);
    }
    dialer_end(d);
    port_close(&p);
}

static void another_place_is_refused(void **state)
{
    (void)state;
    struct port p = port_make(5);
    struct s3_target other = p.target;
    struct dialer *d = dialer_of(&p.target, 1, "/nonexistent/socket");
    other.port++;
    assert_int_equal(dialer_connect(d, &other, within(5000), NULL, NULL, why), -EPERM);
    other = p.target;
    snprintf(other.host, sizeof other.host, "127.0.0.2");
    assert_int_equal(dialer_connect(d, &other, within(5000), NULL, NULL, why), -EPERM);
    dialer_end(d);
    port_close(&p);
}

static void it_connects_to_the_daemon(void **state)
{
    (void)state;
    char dir[] = "/tmp/snapferry-dialer.XXXXXX";
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    assert_non_null(mkdtemp(dir));
    snprintf(a.sun_path, sizeof a.sun_path, "%s/socket", dir);
    struct dialer *d = dialer_of(NULL, 0, a.sun_path);
    assert_int_equal(dialer_connect_daemon(d), -ENOENT);
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(dialer_connect_daemon(d), -ECONNREFUSED);
    assert_int_equal(listen(s, 5), 0);
    passes_bytes(dialer_connect_daemon(d), s);
    dialer_end(d);
    close(s);
    unlink(a.sun_path);
    rmdir(dir);
}

/* ---- what goes wrong ---- */

static void failures_say_what_happened(void **state)
{
    (void)state;
    struct port p = port_make(-1), full = port_make(0);
    struct s3_target t[3] = {{.host = "no-such-host.invalid", .port = 80}, p.target, full.target};
    struct dialer *d = dialer_of(t, 3, "/nonexistent/socket");
    assert_int_equal(dialer_connect(d, &t[0], within(60000), NULL, NULL, why), -ENOENT);
    assert_non_null(strstr(why, "Could not resolve host: no-such-host.invalid ("));
    assert_int_equal(dialer_connect(d, &t[1], within(5000), NULL, NULL, why), -ECONNREFUSED);
    assert_non_null(strstr(why, "Failed to connect to 127.0.0.1 port "));
    assert_non_null(strstr(why, ": Connection refused"));
    const int64_t since = mono_ns();
    assert_int_equal(dialer_connect(d, &t[2], within(600), NULL, NULL, why), -ETIMEDOUT);
    assert_true(mono_ns() - since > 500 * NS_PER_MS && mono_ns() - since < 5 * NS_PER_S);
    dialer_end(d);
    port_close(&p);
    port_close(&full);
}

static bool flag_is_set(void *arg)
{
    return atomic_load((_Atomic bool *)arg);
}

struct hanging {
    struct dialer *d;
    const struct s3_target *t;
    _Atomic bool give_up;
    int rc;
};

static void *hang_main(void *arg)
{
    struct hanging *h = arg;
    char text[256];
    h->rc = dialer_connect(h->d, h->t, within(60000), flag_is_set, &h->give_up, text);
    return NULL;
}

/* Threads do not wait for each other, and each can give up. */
static void what_hangs_holds_up_nothing_else(void **state)
{
    (void)state;
    struct port full = port_make(0), p = port_make(64);
    struct s3_target t[2] = {full.target, p.target};
    struct dialer *d = dialer_of(t, 2, "/nonexistent/socket");
    struct hanging h[20];
    pthread_t thread[20];
    for (unsigned i = 0; i < 20; i++) {
        h[i] = (struct hanging){.d = d, .t = &t[0]};
        assert_int_equal(pthread_create(&thread[i], NULL, hang_main, &h[i]), 0);
    }
    usleep(200000);
    const int64_t since = mono_ns();
    for (unsigned i = 0; i < 10; i++)
        passes_bytes(dialer_connect(d, &t[1], within(5000), NULL, NULL, why), p.fd);
    assert_true(mono_ns() - since < 5 * NS_PER_S);
    for (unsigned i = 0; i < 20; i++)
        atomic_store(&h[i].give_up, true);
    const int64_t given_up = mono_ns();
    for (unsigned i = 0; i < 20; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(h[i].rc, -ECANCELED);
    }
    assert_true(mono_ns() - given_up < 5 * NS_PER_S);
    dialer_end(d);
    port_close(&p);
    port_close(&full);
}

/* ---- several addresses ---- */

static int to_both(struct port *first, struct port *second, int64_t ms)
{
    struct addrinfo b = {.ai_family = AF_INET,
                         .ai_addr = (struct sockaddr *)&second->a,
                         .ai_addrlen = sizeof second->a},
                    a = {.ai_family = AF_INET,
                         .ai_addr = (struct sockaddr *)&first->a,
                         .ai_addrlen = sizeof first->a,
                         .ai_next = &b};
    return dial_addresses(&a, &first->target, within(ms), -1, why);
}

static void a_dead_first_address_costs_little(void **state)
{
    (void)state;
    struct port full = port_make(0), closed = port_make(-1), p = port_make(5);
    int64_t since = mono_ns();
    passes_bytes(to_both(&full, &p, 20000), p.fd);
    assert_true(mono_ns() - since > 200 * NS_PER_MS && mono_ns() - since < 3 * NS_PER_S);
    since = mono_ns();
    passes_bytes(to_both(&closed, &p, 20000), p.fd);
    assert_true(mono_ns() - since < 3 * NS_PER_S);
    passes_bytes(to_both(&p, &full, 20000), p.fd);
    assert_int_equal(to_both(&closed, &closed, 20000), -ECONNREFUSED);
    assert_int_equal(to_both(&closed, &full, 700), -ETIMEDOUT);
    /* Of several errors the one that tells most: TCP has no way to a group of hosts. */
    struct port nowhere = {.fd = -1, .a = closed.a, .target = closed.target};
    nowhere.a.sin_addr.s_addr = htonl(0xe0000001);
    assert_int_equal(to_both(&nowhere, &nowhere, 20000), -ENETUNREACH);
    assert_int_equal(to_both(&nowhere, &closed, 20000), -ECONNREFUSED);
    assert_int_equal(to_both(&closed, &nowhere, 20000), -ECONNREFUSED);
    port_close(&full);
    port_close(&closed);
    port_close(&p);
}

static void it_stops_when_nobody_wants_it(void **state)
{
    (void)state;
    struct port full = port_make(0);
    int pair[2];
    const struct addrinfo a = {
        .ai_family = AF_INET, .ai_addr = (struct sockaddr *)&full.a, .ai_addrlen = sizeof full.a};
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    close(pair[1]);
    const int64_t since = mono_ns();
    assert_int_equal(dial_addresses(&a, &full.target, within(30000), pair[0], why), -ECANCELED);
    assert_true(mono_ns() - since < 5 * NS_PER_S);
    close(pair[0]);
    port_close(&full);
}

/* ---- what it is, and its end ---- */

static bool is_there(pid_t pid)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    const bool read = f && fgets(text, sizeof text, f);
    if (f)
        fclose(f);
    return read && !strstr(text, ") Z ");
}

static bool is_gone_soon(pid_t pid)
{
    for (int i = 0; i < 500 && is_there(pid); i++)
        usleep(10000);
    return !is_there(pid);
}

static char *proc_text(pid_t pid, const char *file)
{
    static char text[8192];
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    const size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    fclose(f);
    return text;
}

static void it_has_nothing_of_the_mover(void **state)
{
    (void)state;
    char path[64];
    setenv("http_proxy", "http://user:hidden-word@proxy.invalid", 1);
    const int secret = open("/dev/zero", O_RDONLY); /* without close-on-exec, as a descriptor of the job */
    struct dialer *d = dialer_of(NULL, 0, "/nonexistent/socket");
    const pid_t pid = dialer_pid_for_test(d);
    assert_string_equal(proc_text(pid, "comm"), "snapferry-dial\n");
    assert_null(strstr(proc_text(pid, "cmdline"), "test_dialer"));
    char *status = proc_text(pid, "status");
    assert_non_null(strstr(status, "Seccomp:\t2"));
    assert_non_null(strstr(status, "NoNewPrivs:\t1"));
    assert_non_null(strstr(status, "CapPrm:\t0000000000000000"));
    assert_non_null(strstr(status, "CapEff:\t0000000000000000"));
    if (geteuid() == 0) {
        snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
        DIR *dir = opendir(path);
        unsigned n = 0;
        for (struct dirent *x; dir && (x = readdir(dir));)
            n += x->d_name[0] != '.' && atoi(x->d_name) > 2;
        closedir(dir);
        assert_int_equal(n, 1); /* its channel */
    }
    close(secret);
    dialer_end(d);
    unsetenv("http_proxy");
}

static void it_ends_with_its_channel(void **state)
{
    (void)state;
    struct port full = port_make(0);
    struct dialer *d = dialer_of(&full.target, 1, "/nonexistent/socket");
    const pid_t pid = dialer_pid_for_test(d);
    assert_int_equal(kill(pid, SIGTERM), 0); /* as systemd sends it to all of a unit: it is still needed */
    usleep(100000);
    assert_true(is_there(pid));
    /* While a connection hangs. */
    assert_int_equal(dialer_connect(d, &full.target, within(300), NULL, NULL, why), -ETIMEDOUT);
    dialer_end(d);
    assert_int_equal(kill(pid, 0), -1); /* waited for */
    port_close(&full);
}

static void that_it_was_killed_is_an_error(void **state)
{
    (void)state;
    struct port p = port_make(5);
    struct dialer *d = dialer_of(&p.target, 1, "/nonexistent/socket");
    assert_int_equal(kill(dialer_pid_for_test(d), SIGKILL), 0);
    assert_true(is_gone_soon(dialer_pid_for_test(d)));
    assert_int_equal(dialer_connect(d, &p.target, within(5000), NULL, NULL, why), -EPIPE);
    assert_non_null(strstr(why, "has ended"));
    assert_int_equal(dialer_connect_daemon(d), -EPIPE);
    dialer_end(d);
    port_close(&p);
}

static void it_is_killed_with_the_mover(void **state)
{
    (void)state;
    int out[2], keep[2];
    pid_t dialer = 0;
    assert_int_equal(pipe(out), 0);
    assert_int_equal(pipe(keep), 0);
    const pid_t mover = fork();
    if (mover == 0) {
        struct dialer *d = NULL;
        char c;
        close(keep[1]);
        if (dialer_start(&d, NULL, 0, "/nonexistent/socket", &e) < 0)
            _exit(1);
        dialer = dialer_pid_for_test(d);
        if (write(out[1], &dialer, sizeof dialer) < 0 || read(keep[0], &c, 1) < 0)
            _exit(1);
        _exit(0);
    }
    assert_int_equal(read(out[0], &dialer, sizeof dialer), sizeof dialer);
    /* Stopped: it cannot see the end of its channel. */
    assert_int_equal(kill(dialer, SIGSTOP), 0);
    assert_true(is_there(dialer));
    assert_int_equal(kill(mover, SIGKILL), 0);
    waitpid(mover, NULL, 0);
    assert_true(is_gone_soon(dialer));
    for (int i = 0; i < 2; i++) {
        close(out[i]);
        close(keep[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_hands_over_a_connection),       cmocka_unit_test(another_place_is_refused),
        cmocka_unit_test(it_connects_to_the_daemon),        cmocka_unit_test(failures_say_what_happened),
        cmocka_unit_test(what_hangs_holds_up_nothing_else), cmocka_unit_test(a_dead_first_address_costs_little),
        cmocka_unit_test(it_stops_when_nobody_wants_it),    cmocka_unit_test(it_has_nothing_of_the_mover),
        cmocka_unit_test(it_ends_with_its_channel),         cmocka_unit_test(that_it_was_killed_is_an_error),
        cmocka_unit_test(it_is_killed_with_the_mover),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
