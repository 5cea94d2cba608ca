/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the endpoint is made of: addresses, the page between loop and threads, the text file.
 * tests/e2e/metrics.sh has the whole with a real daemon. */
#include "base/time.h"
#include "tests/unit/test.h"

#include "cfg/cfg.h"
#include "daemon/metrics/exchange.h"
#include "daemon/metrics/textfile.h"

#include <sys/stat.h>
#include <unistd.h>

/* ---- addresses ---- */

static void addresses(void **state)
{
    (void)state;
    static const struct {
        const char *word;
        int family; /* 0: none */
    } t[] = {
        {"127.0.0.1:9747", AF_INET},
        {"0.0.0.0:1", AF_INET},
        {"10.1.2.3:65535", AF_INET},
        {"127.9.9.9:80", AF_INET},
        {"[::1]:9747", AF_INET6},
        {"[::]:9747", AF_INET6},
        {"unix:/run/m.sock", AF_UNIX},
        {"127.0.0.1", 0},
        {"127.0.0.1:", 0},
        {"127.0.0.1:0", 0},
        {"127.0.0.1:65536", 0},
        {"127.0.0.1:99999999999", 0},
        {"127.0.0.1:80x", 0},
        {":9747", 0},
        {"localhost:9747", 0},
        {"::1:9747", 0},
        {"[::1]", 0},
        {"[::1:9747", 0},
        {"[127.0.0.1]:80", 0},
        {"unix:m.sock", 0},
        {"unix:", 0},
        {"", 0},
        {":", 0},
        {"[]:1", 0},
        {"127.0.0.1:+80", 0},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct sockaddr_storage a;
        socklen_t len;
        char why[160] = "";
        int rc = cfg_parse_listen(t[i].word, &a, &len, why, sizeof why);
        if ((rc == 0) != (t[i].family != 0) || (rc < 0 && !why[0]) || (rc == 0 && a.ss_family != t[i].family))
            fail_msg("%s: %d %s", t[i].word, rc, why);
    }
    char longest[200] = "unix:/";
    memset(longest + 6, 'x', 150);
    struct sockaddr_storage a;
    socklen_t len;
    char why[160];
    assert_true(cfg_parse_listen(longest, &a, &len, why, sizeof why) < 0);
    assert_non_null(strstr(why, "107"));
}

/* ---- the page between loop and threads ---- */

static struct page *some_page(unsigned movers)
{
    const struct metrics_options o = {.compat = false};
    return page_new(json_pack("[{s:s,s:i}]", "name", "movers", "value", (int)movers), &o);
}

static void assert_page(struct page *p, const char *line)
{
    size_t len, again;
    const char *text = page_text(p, &len);
    assert_non_null(text);
    assert_int_equal(strlen(text), len);
    assert_non_null(strstr(text, line));
    assert_null(p->samples); /* nobody needs them any more */
    assert_ptr_equal(page_text(p, &again), text);
}

static void *loop_answers(void *arg)
{
    struct exchange *x = arg;
    uint64_t asked = 0;
    for (int i = 0; i < 2000 && asked == 0; i++, usleep(1000))
        if (exchange_take(x, &asked))
            exchange_answer(x, asked, some_page(2), true, "");
    return NULL;
}

static void a_page_is_fresh_or_old_never_late(void **state)
{
    (void)state;
    struct exchange x;
    struct err e = ERR_INIT;
    int64_t age;
    pthread_t loop;
    assert_int_equal(exchange_init(&x, &e), 0);
    assert_null(exchange_last(&x));
    /* nobody answers: waited for once */
    int64_t t0 = mono_ns();
    assert_null(exchange_page(&x, &age));
    int64_t t1 = mono_ns();
    assert_true(t1 - t0 >= LOOP_WAIT_NS);
    for (int i = 0; i < 100; i++)
        assert_null(exchange_page(&x, &age));
    assert_true(mono_ns() - t1 < LOOP_WAIT_NS);
    /* it answers again */
    uint64_t asked;
    assert_true(exchange_take(&x, &asked));
    assert_int_equal(asked, 101);
    exchange_answer(&x, asked, some_page(1), false, "because");
    struct page *p = exchange_page(&x, &age);
    assert_page(p, "snapferry_movers 1\n"); /* fresh enough */
    assert_true(age < PAGE_FRESH_NS);
    char why[256];
    assert_false(exchange_ready(&x, why, sizeof why));
    assert_string_equal(why, "because");
    x.page->made_ns -= PAGE_FRESH_NS;
    pthread_create(&loop, NULL, loop_answers, &x);
    struct page *q = exchange_page(&x, &age);
    pthread_join(loop, NULL);
    assert_page(q, "snapferry_movers 2\n");
    assert_page(p, "snapferry_movers 1\n"); /* whoever holds it keeps it */
    assert_true(exchange_ready(&x, why, sizeof why));
    page_unref(p);
    page_unref(q);
    /* at the end nobody waits, and it is not ready */
    x.page->made_ns -= PAGE_FRESH_NS;
    x.turn_ns -= PAGE_FRESH_NS;
    exchange_close(&x, "the end");
    t0 = mono_ns();
    q = exchange_page(&x, &age);
    assert_true(mono_ns() - t0 < LOOP_WAIT_NS);
    assert_page(q, "snapferry_movers 2\n");
    page_unref(q);
    assert_false(exchange_ready(&x, why, sizeof why));
    assert_string_equal(why, "the end");
    exchange_clear(&x);
}

/* ---- the text file ---- */

static void the_text_file(void **state)
{
    (void)state;
    char dir[] = "/tmp/snapferry-textfile-XXXXXX", path[128], temp[128], text[64] = "";
    struct err e = ERR_INIT;
    struct stat st;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/x.prom", dir);
    snprintf(temp, sizeof temp, "%s.tmp", path);
    assert_int_equal(symlink("/etc/passwd-", temp), 0); /* what lies there is not written through */
    assert_int_equal(textfile_write(path, "one\n", 4, &e), 0);
    assert_int_equal(textfile_write(path, "two\n", 4, &e), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0644);
    FILE *f = fopen(path, "r");
    assert_non_null(fgets(text, sizeof text, f));
    fclose(f);
    assert_string_equal(text, "two\n");
    assert_int_not_equal(lstat(temp, &st), 0);
    unlink(path);
    rmdir(dir);
    assert_true(textfile_write(path, "one\n", 4, &e) < 0);
    assert_non_null(strstr(e.msg, path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses),
        cmocka_unit_test(a_page_is_fresh_or_old_never_late),
        cmocka_unit_test(the_text_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
