/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_parser.c - documents parsed beside the event loop: order, bounds, what cannot be read, dropped and abandoned
 * ones, and no thread */
#include "tests/unit/test.h"

#include "proc/parser.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* In place of the library's: a thread cannot be made while that is set. */
static bool no_thread;
static unsigned no_thread_asked;
int pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    typedef int create_fn(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (no_thread)
        return no_thread_asked++, EAGAIN;
    create_fn *real = (create_fn *)(uintptr_t)dlsym(RTLD_NEXT, "pthread_create");
    return real(ret, attr, fn, arg);
}

static const struct parse_limits limits = {.bytes = 1 << 20, .bounds = {1000, 8}};

struct heard {
    unsigned n, nothing;
    int64_t order[64];
    char why[256];
};

static void on_done(json_t *doc, const char *why, void *arg)
{
    struct heard *h = arg;
    if (doc)
        h->order[h->n % 64] = json_integer_value(json_object_get(doc, "n"));
    else
        h->nothing++;
    h->n++;
    snprintf(h->why, sizeof h->why, "%s", why);
    json_decref(doc);
}

static struct parser *begin(sd_event **loop)
{
    struct parser *p;
    struct err e = ERR_INIT;
    assert_true(sd_event_new(loop) >= 0);
    assert_ok(parser_new(&p, *loop, &e), &e);
    return p;
}

static void until(sd_event *loop, const unsigned *n, unsigned want)
{
    for (int i = 0; i < (getenv("SNAPFERRY_SANITIZED") ? 30000 : 6000) && *n < want; i++)
        assert_true(sd_event_run(loop, 10000) >= 0);
    assert_int_equal(*n, want);
}

static void end(struct parser *p, sd_event *loop)
{
    parser_free(p);
    sd_event_unref(loop);
}

static struct parse *numbered(struct parser *p, int n, struct heard *h)
{
    char *text = malloc(64);
    return parse_text(p, text, (size_t)snprintf(text, 64, "{\"n\":%d}", n), &limits, on_done, h);
}

static void documents_come_in_order(void **state)
{
    sd_event *loop;
    struct parser *p = begin(&loop);
    struct heard h = {.n = 0};
    (void)state;
    for (int i = 0; i < 50; i++)
        assert_non_null(numbered(p, i, &h));
    assert_int_equal(h.n, 0); /* never from within the function that began it */
    until(loop, &h.n, 50);
    for (int i = 0; i < 50; i++)
        assert_int_equal(h.order[i], i);
    assert_int_equal(h.nothing, 0);
    end(p, loop);
}

static void dropped_ones_are_not_heard_of(void **state)
{
    sd_event *loop;
    struct parser *p = begin(&loop);
    struct heard kept = {.n = 0}, dropped = {.n = 0};
    (void)state;
    for (int round = 0; round < 200; round++) {
        struct parse *x[8];
        for (int i = 0; i < 8; i++)
            x[i] = numbered(p, i, i % 2 ? &dropped : &kept);
        if (round % 3 == 0) /* some are to do, in the thread's hands, or finished */
            usleep((useconds_t)(round % 7 * 20));
        for (int i = 1; i < 8; i += 2)
            parse_drop(x[i]);
        if (round % 2)
            until(loop, &kept.n, 4 * ((unsigned)round + 1));
    }
    until(loop, &kept.n, 800);
    assert_int_equal(dropped.n, 0);
    parse_drop(NULL);
    /* Abandoned in the middle. */
    for (int i = 0; i < 8; i++)
        numbered(p, i, &dropped);
    end(p, loop);
    assert_int_equal(dropped.n, 0);
}

static void assert_refused(struct parser *p, sd_event *loop, struct parse *x, struct heard *h, const char *why)
{
    assert_non_null(x);
    until(loop, &h->n, h->n + 1);
    if (!strstr(h->why, why) || !*h->why != !*why)
        fail_msg("\"%s\" instead of \"%s\"", h->why, why);
    (void)p;
}

static struct parse *of_text(struct parser *p, const char *text, struct heard *h)
{
    return parse_text(p, strdup(text), strlen(text), &limits, on_done, h);
}

static void bounds_are_kept(void **state)
{
    sd_event *loop;
    struct parser *p = begin(&loop);
    struct heard h = {.n = 0};
    char wide[8000] = "[1";
    (void)state;
    for (int i = 0; i < 998; i++)
        strcat(wide, ",1");
    const size_t full = strlen(wide);
    strcpy(wide + full, "]");
    assert_refused(p, loop, of_text(p, wide, &h), &h, ""); /* 999 values and the list */
    assert_int_equal(h.nothing, 0);
    strcpy(wide + full, ",1]");
    assert_refused(p, loop, of_text(p, wide, &h), &h, "more than 1000 values");
    assert_refused(p, loop, of_text(p, "[[[[[[[[1]]]]]]]]", &h), &h, "");
    assert_refused(p, loop, of_text(p, "[[[[[[[[[1]]]]]]]]]", &h), &h, "nested deeper than 8");
    assert_refused(p, loop, of_text(p, "{\"a\":\"[[[[[[[[[[[\\\"[[[[[[\"}", &h), &h, "");
    assert_refused(p, loop, of_text(p, "\"[", &h), &h, "end of input");
    assert_refused(p, loop, of_text(p, "", &h), &h, "expected");
    assert_int_equal(h.nothing, 4);
    end(p, loop);
}

static void the_count_of_values_is_the_same_for_text_and_document(void **state)
{
    static const char *const texts[] = {"[]", "{\"a\":1}", "[1,2,[3,{}],\"x,[\"]", "{\"a\":[[ ],[],[\n]],\"b\":null}"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_t *j = json_loads(texts[i], 0, NULL);
        const struct json_bounds fits = {json_values(j), 8}, less = {json_values(j) - 1, 8};
        assert_non_null(j);
        assert_true(json_within(texts[i], strlen(texts[i]), &fits));
        assert_false(json_within(texts[i], strlen(texts[i]), &less));
        json_decref(j);
    }
}

static void files_that_are_none(void **state)
{
    sd_event *loop;
    struct parser *p = begin(&loop);
    struct heard h = {.n = 0};
    char dir[] = "/tmp/snapferry-parser-XXXXXX", path[64], to[64];
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/doc", dir);
    snprintf(to, sizeof to, "%s/link", dir);
    assert_refused(p, loop, parse_file(p, path, &limits, on_done, &h), &h, "missing");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_refused(p, loop, parse_file(p, path, &limits, on_done, &h), &h, "not a regular file"); /* nothing waits */
    unlink(path);
    int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_refused(p, loop, parse_file(p, path, &limits, on_done, &h), &h, "empty");
    assert_int_equal(write(fd, "{\"n\":7}", 7), 7);
    assert_refused(p, loop, parse_file(p, path, &limits, on_done, &h), &h, "");
    assert_int_equal(h.order[3], 7);
    assert_int_equal(symlink(path, to), 0);
    assert_refused(p, loop, parse_file(p, to, &limits, on_done, &h), &h, "symbolic links");
    assert_int_equal(ftruncate(fd, (1 << 20) + 1), 0);
    assert_refused(p, loop, parse_file(p, path, &limits, on_done, &h), &h, "size of 1048577 bytes");
    close(fd);
    unlink(path);
    unlink(to);
    rmdir(dir);
    end(p, loop);
}

static void a_part_of_a_file(void **state)
{
    static const char text[] = "{\"n\":1}\n{\"n\":22}\n";
    static const struct parse_limits few = {.bytes = 8, .bounds = {1000, 8}};
    sd_event *loop;
    struct parser *p = begin(&loop);
    struct heard h = {.n = 0};
    (void)state;
    int fd = memfd_create("part", MFD_CLOEXEC);
    assert_int_equal(pwrite(fd, text, sizeof text - 1, 0), sizeof text - 1);
    assert_refused(p, loop, parse_part(p, fd, 0, 8, &few, on_done, &h), &h, "");
    assert_int_equal(h.order[0], 1);
    assert_refused(p, loop, parse_part(p, fd, 8, 9, &limits, on_done, &h), &h, "");
    assert_int_equal(h.order[1], 22);
    assert_refused(p, loop, parse_part(p, fd, 8, 9, &few, on_done, &h), &h, "size of 9 bytes");
    assert_refused(p, loop, parse_part(p, fd, 0, 0, &limits, on_done, &h), &h, "size of 0 bytes");
    assert_refused(p, loop, parse_part(p, fd, 8, 99, &limits, on_done, &h), &h, "truncated while it was read");
    assert_refused(p, loop, parse_part(p, fd, UINT64_MAX / 2 - 4, 9, &limits, on_done, &h), &h, "cannot read it");
    assert_refused(p, loop, parse_part(p, fd, 1, 7, &limits, on_done, &h), &h, "expected");
    /* The descriptor is its own: the caller's may be closed meanwhile. */
    struct parse *x = parse_part(p, fd, 0, 8, &few, on_done, &h);
    close(fd);
    assert_refused(p, loop, x, &h, "");
    assert_null(parse_part(p, fd, 0, 8, &few, on_done, &h));
    end(p, loop);
}

/* Where no thread can be made (a limit, no memory) the loop does the work, and a later document finds one again. */
static void without_a_thread(void **state)
{
    sd_event *loop;
    struct parser *p = begin(&loop);
    struct heard h = {.n = 0};
    (void)state;
    no_thread = true;
    for (int i = 0; i < 3; i++)
        assert_non_null(numbered(p, i, &h));
    assert_int_equal(h.n, 0); /* also now not from within */
    parse_drop(numbered(p, 3, &h));
    assert_non_null(of_text(p, "[", &h));
    until(loop, &h.n, 4);
    assert_true(no_thread_asked >= 5);
    no_thread = false;
    assert_non_null(numbered(p, 4, &h));
    until(loop, &h.n, 5);
    for (int i = 0; i < 3; i++)
        assert_int_equal(h.order[i], i);
    assert_int_equal(h.order[4], 4);
    assert_int_equal(h.nothing, 1);
    end(p, loop);
    p = begin(&loop);
    no_thread = true;
    assert_non_null(numbered(p, 5, &h)); /* abandoned: nobody hears of it */
    no_thread = false;
    end(p, loop);
    assert_int_equal(h.n, 5);
}

static double cpu_of(int who)
{
    struct rusage u;
    getrusage(who, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* A text of one string: it takes long to parse and nothing to free. */
static void the_loop_has_no_part_in_it(void **state)
{
    static const struct parse_limits much = {.bytes = 32 << 20, .bounds = {1000, 8}};
    sd_event *loop;
    struct parser *p = begin(&loop);
    struct heard h = {.n = 0};
    const size_t len = 1 << 20;
    (void)state;
    const double all = cpu_of(RUSAGE_SELF), mine = cpu_of(RUSAGE_THREAD);
    double made = 0;
    for (int i = 0; i < 16; i++) {
        const double before = cpu_of(RUSAGE_THREAD);
        char *text = malloc(len);
        memset(text, 'x', len);
        memcpy(text, "{\"a\":\"", 6);
        memcpy(text + len - 2, "\"}", 2);
        made += cpu_of(RUSAGE_THREAD) - before;
        assert_non_null(parse_text(p, text, len, &much, on_done, &h));
    }
    until(loop, &h.n, 16);
    assert_int_equal(h.nothing, 0);
    const double own = cpu_of(RUSAGE_THREAD) - mine - made, other = cpu_of(RUSAGE_SELF) - all - own - made;
    if (own > other / 2)
        fail_msg("%.3f s of CPU in the loop, %.3f s beside it", own, other);
    end(p, loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_come_in_order),
        cmocka_unit_test(dropped_ones_are_not_heard_of),
        cmocka_unit_test(bounds_are_kept),
        cmocka_unit_test(the_count_of_values_is_the_same_for_text_and_document),
        cmocka_unit_test(files_that_are_none),
        cmocka_unit_test(a_part_of_a_file),
        cmocka_unit_test(without_a_thread),
        cmocka_unit_test(the_loop_has_no_part_in_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
