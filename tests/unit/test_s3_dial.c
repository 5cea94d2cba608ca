/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The S3 store whose connections somebody else makes: which place is wanted, by name, by address and by a proxy, that
 * names are not resolved, and what becomes of failures. */
#include "tests/unit/s3-store.h"

#include "daemon/mover/agent/dialer.h"
#include "repo/s3-target.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static struct dialer *real; /* of a mover */
static struct s3_target service;

static struct {
    _Atomic unsigned calls;
    struct s3_target last;
    int fail; /* what it returns; 0: a connection to the service, whatever was wanted */
    bool hangs;
} dialer;

static int fake_dial(void *arg, const struct s3_target *to, int64_t until_ns, bool (*given_up)(void *),
                     void *given_up_arg, char why[256])
{
    assert_ptr_equal(arg, &dialer);
    atomic_fetch_add(&dialer.calls, 1);
    dialer.last = *to;
    while (dialer.hangs) {
        usleep(20000);
        if (given_up(given_up_arg) || mono_ns() > until_ns) {
            snprintf(why, 256, "it hangs");
            return mono_ns() > until_ns ? -ETIMEDOUT : -ECANCELED;
        }
    }
    if (dialer.fail) {
        snprintf(why, 256, "the reason of %s", to->host);
        return dialer.fail;
    }
    return dialer_connect(real, &service, until_ns, given_up, given_up_arg, why);
}

/* As that of a mover: no socket of the network, and connect() that only seems to begin. */
static int no_network(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_connect, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINPROGRESS),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog prog = {sizeof code / sizeof *code, code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) ? -1 : 0;
}

static int start(void **state)
{
    service_start(state);
    snprintf(service.host, sizeof service.host, "127.0.0.1");
    service.port = (uint16_t)atoi(strrchr(endpoint, ':') + 1);
    assert_int_equal(dialer_start(&real, &service, 1, "/nonexistent/socket", &e), 0);
    return no_network();
}

static int end(void **state)
{
    dialer_end(real);
    return service_end(state);
}

static const struct s3_dial dial = {fake_dial, &dialer};

static struct blobs *store_at(const char *at)
{
    struct s3_place p = place();
    struct blobs *s = NULL;
    p.endpoint = at;
    p.dial = &dial;
    p.tries = 2;
    p.connect_s = 1;
    e = (struct err)ERR_INIT;
    OK(blobs_open_s3(&s, &p, BLOBS_OPEN, &e));
    blobs_stop(s, &stop);
    return s;
}

static int calm(void **state)
{
    (void)state;
    memset(&dialer, 0, sizeof dialer);
    atomic_store(&stop, false);
    unsetenv("http_proxy");
    unsetenv("no_proxy");
    unsetenv("all_proxy");
    return 0;
}

static void put_and_get(struct blobs *s)
{
    uint8_t *data;
    size_t len;
    OK(blobs_put(s, "p1", "0123456789", 10, &e));
    OK(blobs_get(s, "p1", 10, &data, &len, &e));
    assert_memory_equal(data, "0123456789", 10);
    free(data);
    OK(blobs_delete(s, "p1", &e));
}

static void wanted(const char *host, unsigned port)
{
    assert_string_equal(dialer.last.host, host);
    assert_int_equal(dialer.last.port, port);
}

static void a_place_of_any_form_is_asked_for(void **state)
{
    static const struct {
        const char *endpoint, *host;
        unsigned port;
    } forms[] = {{"http://no-such-host.invalid", "no-such-host.invalid", 80},
                 {"http://No-Such-Host.invalid:9000", "No-Such-Host.invalid", 9000},
                 {"http://192.0.2.99:81", "192.0.2.99", 81},
                 {"http://192.0.2.1:81", "192.0.2.1", 81},
                 {"http://[2001:db8::9]:82", "2001:db8::9", 82},
                 {"http://[2001:db8::9]", "2001:db8::9", 80}};
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct blobs *s = store_at(forms[i].endpoint);
        dialer.last.port = 0;
        put_and_get(s);
        wanted(forms[i].host, forms[i].port);
        blobs_free(s);
    }
    assert_true(dialer.calls >= 6);
}

static void a_connection_is_used_again(void **state)
{
    (void)state;
    struct blobs *s = store_at("http://no-such-host.invalid");
    for (int i = 0; i < 5; i++)
        put_and_get(s);
    assert_int_equal(dialer.calls, 1);
    blobs_free(s);
}

static void a_proxy_is_asked_for_unless_the_host_is_excepted(void **state)
{
    (void)state;
    setenv("http_proxy", "http://user:p%40ss@proxy.invalid:3128/", 1);
    struct blobs *s = store_at("http://no-such-host.invalid:9000");
    dialer.fail = -ECONNREFUSED;
    FAILS(blobs_put(s, "p1", "x", 1, &e), ERR_GENERIC, "the reason of proxy.invalid");
    wanted("proxy.invalid", 3128);
    blobs_free(s);
    setenv("no_proxy", "no-such-host.invalid", 1);
    s = store_at("http://no-such-host.invalid:9000");
    FAILS(blobs_put(s, "p1", "x", 1, &e), ERR_GENERIC, "the reason of no-such-host.invalid");
    wanted("no-such-host.invalid", 9000);
    blobs_free(s);
}

static void failures_have_their_classes(void **state)
{
    (void)state;
    static const struct {
        int fail, sys;
        const char *text;
    } as[] = {{-ENOENT, EHOSTUNREACH, "the name of no-such-host.invalid has no address: the reason of"},
              {-ECONNREFUSED, ECONNREFUSED, "no connection to no-such-host.invalid: the reason of"},
              {-EHOSTUNREACH, ECONNREFUSED, "no connection to no-such-host.invalid: the reason of"},
              {-ETIMEDOUT, ETIMEDOUT, "no-such-host.invalid does not answer"},
              {-EPIPE, ECONNREFUSED, "no connection to no-such-host.invalid: the reason of"}};
    struct blobs *s = store_at("http://no-such-host.invalid");
    for (size_t i = 0; i < sizeof as / sizeof *as; i++) {
        dialer.calls = 0;
        dialer.fail = as[i].fail;
        FAILS(blobs_put(s, "p1", "x", 1, &e), ERR_GENERIC, as[i].text);
        assert_int_equal(e.sys, as[i].sys);
        assert_int_equal(dialer.calls, 2); /* repeated, as often as the store does */
    }
    dialer.fail = 0; /* none of them is remembered */
    put_and_get(s);
    blobs_free(s);
}

static void *stop_soon(void *arg)
{
    usleep(300000);
    atomic_store((_Atomic bool *)arg, true);
    return NULL;
}

static void a_stop_ends_a_connection_that_hangs(void **state)
{
    pthread_t t;
    (void)state;
    struct blobs *s = store_at("http://no-such-host.invalid");
    dialer.hangs = true;
    const int64_t since = mono_ns();
    FAILS(blobs_put(s, "p1", "x", 1, &e), ERR_GENERIC, "does not answer");
    assert_true(mono_ns() - since > NS_PER_S && mono_ns() - since < 6 * NS_PER_S);
    blobs_free(s);
    s = store_at("http://no-such-host.invalid");
    assert_int_equal(pthread_create(&t, NULL, stop_soon, &stop), 0);
    FAILS(blobs_put(s, "p1", "x", 1, &e), ERR_INTERRUPTED, "interrupted");
    pthread_join(t, NULL);
    assert_int_equal(dialer.calls, 3);
    blobs_free(s);
}

static void targets_are_what_libcurl_takes(void **state)
{
    static const struct {
        const char *proxy, *host;
        unsigned port;
    } proxies[] = {{"http://p:8080", "p", 8080},
                   {"p:8080", "p", 8080},
                   {"http://p", "p", 1080},
                   {"https://p", "p", 443},
                   {"http://u:a@b@p:81/x", "p", 81},
                   {"socks5://[::1]:99", "::1", 99},
                   {"http://[2001:db8::1]/", "2001:db8::1", 1080}};
    struct s3_target t[S3_TARGETS_MAX];
    char text[64];
    (void)state;
    assert_int_equal(s3_targets(t, "https", "h"), 1);
    assert_int_equal(t[0].port, 443);
    assert_int_equal(s3_targets(t, "https", "[::1"), 0);
    assert_int_equal(s3_targets(t, "https", "h:0"), 0);
    assert_int_equal(s3_targets(t, "https", "h:65536"), 0);
    for (size_t i = 0; i < sizeof proxies / sizeof *proxies; i++) {
        setenv("http_proxy", proxies[i].proxy, 1);
        assert_int_equal(s3_targets(t, "https", "h"), 1); /* not of that scheme */
        assert_int_equal(s3_targets(t, "http", "h:9000"), 2);
        assert_string_equal(t[0].host, "h");
        assert_int_equal(t[0].port, 9000);
        assert_string_equal(t[1].host, proxies[i].host);
        assert_int_equal(t[1].port, proxies[i].port);
    }
    setenv("http_proxy", "", 1);
    assert_int_equal(s3_targets(t, "http", "h"), 1);
    setenv("all_proxy", "socks5://p", 1);
    assert_int_equal(s3_targets(t, "http", "h"), 2);
    s3_proxy_by_name(text, sizeof text, s3_proxy_variable("http"));
    assert_string_equal(text, "socks5h://p");
    s3_proxy_by_name(text, sizeof text, "http://p");
    assert_string_equal(text, "");
    s3_proxy_by_name(text, sizeof text, NULL);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_place_of_any_form_is_asked_for, calm),
        cmocka_unit_test_setup(a_connection_is_used_again, calm),
        cmocka_unit_test_setup(a_proxy_is_asked_for_unless_the_host_is_excepted, calm),
        cmocka_unit_test_setup(failures_have_their_classes, calm),
        cmocka_unit_test_setup(a_stop_ends_a_connection_that_hangs, calm),
        cmocka_unit_test_setup(targets_are_what_libcurl_takes, calm),
    };
    unsetenv("ALL_PROXY");
    return cmocka_run_group_tests(tests, start, end);
}
