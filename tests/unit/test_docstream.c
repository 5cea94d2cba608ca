/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/test.h"

#include "repo/docstream.h"
#include "repo/gojson.h"

#include <inttypes.h>

/* A document in memory, handed out in pieces of at most `step` bytes. */
struct mem {
    const char *p;
    size_t n, step;
    int fail_at; /* call that fails, -1: none */
};

static int64_t mem_read(void *arg, void *buf, size_t len, struct err *e)
{
    struct mem *m = arg;
    if (m->fail_at >= 0 && m->fail_at-- == 0)
        return err_set(e, ERR_GENERIC, EIO, "injected");
    size_t n = m->n < len ? m->n : len;
    if (m->step && n > m->step)
        n = m->step;
    memcpy(buf, m->p, n);
    m->p += n;
    m->n -= n;
    return (int64_t)n;
}

/* The elements joined by '|', then "#summary"; or "!" and the error's class. `ret` is malloc()ed. */
static char *scan(const char *text, size_t len, const char *stream, size_t max_elem, size_t step)
{
    struct mem m = {text, len, step, -1};
    struct docstream *d CLEANUP(docstream_freep) = NULL;
    struct err e = ERR_INIT;
    char *out = NULL;
    size_t out_len = 0;
    FILE *f = open_memstream(&out, &out_len);
    assert_ok(docstream_new(&d, stream, max_elem, mem_read, &m, &e), &e);
    const char *elem;
    size_t n;
    int rc;
    while ((rc = docstream_next(d, &elem, &n, &e)) == 1)
        fprintf(f, "%.*s|", (int)n, elem);
    if (rc == 0) {
        const char *summary = docstream_summary(d, &n);
        if (summary)
            fprintf(f, "#%.*s", (int)n, summary);
        assert_int_equal(docstream_next(d, &elem, &n, &e), 0);
    } else {
        assert_int_equal(rc, -EBADMSG);
        assert_int_equal(e.cls, ERR_DAMAGE);
        assert_true(e.msg[0]);
        fprintf(f, "!");
    }
    fclose(f);
    return out;
}

static void expect_scan(const char *text, const char *stream, const char *want)
{
    for (size_t step = 0; step < 4; step++) {
        char *got CLEANUP_FREE = scan(text, strlen(text), stream, 1024, step);
        assert_string_equal(got, want);
    }
}

#define S "kopia:x"

static void test_shapes(void **state)
{
    (void)state;
    expect_scan("{\"stream\":\"kopia:x\",\"entries\":[{\"a\":1},{\"b\":[2,{}]}],\"summary\":{\"s\":1}}\n", S,
                "{\"a\":1}|{\"b\":[2,{}]}|#{\"s\":1}");
    expect_scan("{\"entries\":[{\"a\":\"}\\\"]\"}]}\n", NULL, "{\"a\":\"}\\\"]\"}|");
    expect_scan(" \n{ \"SUMMARY\" : { } ,\t\"Entries\" : [ 1 , \"x\" , null ] ,\r\n\"Stream\" : \"kopia:x\" } ", S,
                "1|\"x\"|null|#{ }");
    expect_scan("{\"\\u0065ntries\":[],\"stream\":\"kopia\\u003ax\"}", S, "");
    expect_scan("{\"stream\":\"kopia:x\",\"entries\":null,\"summary\":null}", S, "#null");
    expect_scan("{\"stream\":\"kopia:x\"}", S, "");
    expect_scan("{\"stream\":\"kopia:x\",\"other\":[1,2,{\"entries\":[5]}],\"x\":1e5,\"entries\":[7]}", S, "7|");
    expect_scan("{}", NULL, "");
    expect_scan("{\"entries\":[]}", NULL, "");
}

/* Elements that differ in their number only are delivered like others, whatever comes at a time; or passed over. */
static void test_repeats(void **state)
{
    (void)state;
    enum { N = 2500 };
    static const char tail[] = ",\"l\":7,\"o\":\"x]}\"}";
    char *text CLEANUP_FREE = NULL, *want CLEANUP_FREE = NULL;
    size_t len = 0, want_len = 0;
    FILE *f = open_memstream(&text, &len), *w = open_memstream(&want, &want_len);
    fputs("{\"stream\":\"kopia:x\",\"entries\":[{\"l\":7,\"o\":\"x]}\"}", f);
    fputs("{\"l\":7,\"o\":\"x]}\"}|", w);
    for (unsigned i = 1; i < N; i++) {
        /* Some have other spaces, another number than follows, or something else behind it. */
        const char *form = i % 97 == 0 ? " " : i % 101 == 0 ? "1" : "";
        fputs(i % 89 == 0 ? " , " : ",", f);
        for (FILE *o = f; o; o = o == f ? w : NULL)
            fprintf(o, "{\"s\":%s%u%s", form, i * 7, i % 103 == 0 ? ",\"l\":7,\"o\":\"y\"}" : tail);
        fputs("|", w);
    }
    fputs("]}", f);
    fclose(f);
    fclose(w);
    for (size_t step = 0; step < 90; step += step < 3 ? 1 : 29) {
        char *got CLEANUP_FREE = scan(text, len, S, 1024, step);
        assert_string_equal(got, want);
    }
    struct mem m = {text, len, 0, -1};
    struct docstream *d CLEANUP(docstream_freep) = NULL;
    struct err e = ERR_INIT;
    const char *elem;
    size_t n;
    unsigned delivered = 0, passed = 0;
    int rc;
    assert_ok(docstream_new(&d, S, 1024, mem_read, &m, &e), &e);
    assert_int_equal(docstream_skip_repeats(d, 0, 7, 10), 0);
    while ((rc = docstream_next(d, &elem, &n, &e)) == 1) {
        const unsigned at = delivered + passed;
        delivered++;
        assert_int_equal(docstream_skip_repeats(d, (at + 1) * 7 + 1, 7, 10), 0); /* not those numbers */
        const uint64_t more = docstream_skip_repeats(d, (at + 1) * 7, 7, 40);
        assert_true(more <= 40);
        for (unsigned k = at + 1; k <= at + more; k++)
            assert_true(k % 97 && k % 101 && k % 103 && k % 89);
        passed += (unsigned)more;
    }
    assert_int_equal(rc, 0);
    assert_int_equal(delivered + passed, N);
    assert_true(passed > N / 2);
    assert_int_equal(docstream_skip_repeats(d, N * 7, 7, 10), 0);
}

/* Numbers of any length, whose sums carry anywhere; one that is another ends it. */
static void test_repeats_by_any_step(void **state)
{
    (void)state;
    enum { N = 1200 };
    static const uint64_t steps[] = {1,        9,        10,        4096,      131072,         1048576,
                                     99999999, 10000001, 100000000, 999999999, 12345678901234, 11111111};
    static const uint64_t from[] = {1, 5, 95, 9999990, 99999989, 12345678, 99999999999989, 18014398509481984};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        for (size_t k = 0; k < sizeof from / sizeof *from; k++) {
            char *text CLEANUP_FREE = NULL;
            size_t len = 0, n;
            const unsigned other = 1 + (unsigned)(i * 97 + k * 13) % (N - 1);
            FILE *f = open_memstream(&text, &len);
            fputs("{\"stream\":\"kopia:x\",\"entries\":[", f);
            for (uint64_t j = 0; j < N; j++)
                fprintf(f, "%s{\"s\":%" PRIu64 ",\"l\":7,\"o\":\"x\"}", j ? "," : "",
                        from[k] + j * steps[i] + (j == other ? 1 : 0));
            fputs("]}", f);
            fclose(f);
            struct mem m = {text, len, 0, -1};
            struct docstream *d CLEANUP(docstream_freep) = NULL;
            struct err e = ERR_INIT;
            const char *elem;
            assert_ok(docstream_new(&d, S, 1 << 20, mem_read, &m, &e), &e);
            uint64_t at = 0, delivered = 0;
            for (int rc; (rc = docstream_next(d, &elem, &n, &e)) != 0;) {
                assert_int_equal(rc, 1);
                at++;
                delivered++;
                for (uint64_t more = 1; more && at != other;) {
                    const bool before = at < other;
                    more = docstream_skip_repeats(d, from[k] + at * steps[i], steps[i], N);
                    at += more;
                    assert_true(!before || at <= other);
                }
                assert_int_equal(docstream_skip_repeats(d, from[k] + at * steps[i], steps[i], N), 0);
            }
            assert_int_equal(at, N);
            assert_true(delivered < 40);
        }
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *stream, *want;
    } cases[] = {
        {"", S, "!"},
        {" ", NULL, "!"},
        {"[]", NULL, "!"},
        {"null", NULL, "!"},
        {"{}", S, "!"}, /* no type */
        {"{\"stream\":\"kopia:y\",\"entries\":[1]}", S, "!"},
        {"{\"stream\":5,\"entries\":[1]}", S, "!"},
        {"{\"entries\":[1]}", S, "1|!"},
        {"{\"entries\":[1],\"stream\":\"kopia:y\"}", S, "1|!"},
        {"{\"entries\":[1],\"x\":1}", NULL, "1|!"}, /* stock fails on unknown members of collections */
        {"{\"stream\":\"kopia:x\",\"entries\":[1]}", NULL, "!"},
        {"{\"entries\":[1],\"entries\":[2]}", NULL, "1|!"},
        {"{\"entries\":{}}", NULL, "!"},
        {"{\"entries\":5}", NULL, "!"},
        {"{\"entries\":nul}", NULL, "!"},
        {"{\"entries\":[1,]}", NULL, "1|!"},
        {"{\"entries\":[,1]}", NULL, "!"},
        {"{\"entries\":[1 2]}", NULL, "1|!"},
        {"{\"entries\":[1}", NULL, "1|!"},
        {"{\"entries\":[1]]", NULL, "1|!"},
        {"{\"entries\":[1]},", NULL, "1|!"},
        {"{\"entries\":[1]}{}", NULL, "1|!"},
        {"{\"entries\":[1],}", NULL, "1|!"},
        {"{,\"entries\":[1]}", NULL, "!"},
        {"{\"entries\" [1]}", NULL, "!"},
        {"{entries:[1]}", NULL, "!"},
        {"{\"entries\":[\x01]}", NULL, "!"},
        {"{\"entries\":[{\x01}]}", NULL, "!"},
        {"{\"stream\":\"kopia:x\",\"summary\":{\"a\"},\"entries\":[]}", S, "!"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_scan(cases[i].text, cases[i].stream, cases[i].want);
}

/* A document cut anywhere is an error, never less of the same. */
static void test_truncated(void **state)
{
    (void)state;
    static const char text[] =
        "{\"stream\":\"kopia:x\",\"entries\":[{\"s\":1,\"o\":\"ab\\\"c\"},{\"x\":[[]]}],\"summary\":{\"q\":1}}";
    for (size_t n = 0; n < sizeof text - 1; n++) {
        char *copy CLEANUP_FREE = malloc(n + 1); /* exactly sized for the address sanitizer */
        memcpy(copy, text, n);
        for (size_t step = 0; step < 3; step++) {
            char *got CLEANUP_FREE = scan(copy, n, S, 1024, step);
            assert_non_null(strchr(got, '!'));
        }
    }
    char *got CLEANUP_FREE = scan(text, sizeof text - 1, S, 1024, 0);
    assert_null(strchr(got, '!'));
}

static void test_flipped(void **state)
{
    (void)state;
    static const char text[] =
        "{\"stream\":\"kopia:x\",\"entries\":[{\"s\":1,\"o\":\"ab\\\"c\"}],\"summary\":{\"q\":1}}";
    char copy[sizeof text];
    for (size_t i = 0; i < (sizeof text - 1) * 8; i++) {
        memcpy(copy, text, sizeof text);
        copy[i / 8] = (char)(copy[i / 8] ^ 1 << i % 8);
        free(scan(copy, sizeof text - 1, S, 1024, 0));
        free(scan(copy, sizeof text - 1, NULL, 1024, 1));
    }
}

static void test_limits(void **state)
{
    (void)state;
    /* Elements longer than the first buffer, up to the limit and one byte over it. */
    const size_t max = 300000;
    char *text CLEANUP_FREE = malloc(max + 64);
    for (size_t extra = 0; extra < 2; extra++) {
        size_t n = (size_t)sprintf(text, "{\"entries\":[\"");
        memset(text + n, 'x', max - 2 + extra);
        n += max - 2 + extra;
        n += (size_t)sprintf(text + n, "\",1]}");
        for (size_t step = 0; step < 3; step++) {
            char *got CLEANUP_FREE = scan(text, n, NULL, max, step * 1000);
            if (extra) {
                assert_string_equal(got, "!");
            } else {
                assert_int_equal(strlen(got), max + 3);
                assert_string_equal(got + max, "|1|");
            }
        }
    }
    /* Nesting. */
    for (size_t depth = 256; depth <= 257; depth++) {
        size_t n = (size_t)sprintf(text, "{\"entries\":[");
        memset(text + n, '[', depth);
        memset(text + n + depth, ']', depth);
        n += 2 * depth;
        n += (size_t)sprintf(text + n, "]}");
        char *got CLEANUP_FREE = scan(text, n, NULL, max, 0);
        assert_int_equal(got[0] == '!', depth == 257);
    }
    /* An element that never ends takes no more memory than the limit. */
    memset(text, '{', max);
    memcpy(text, "{\"entries\":[\"", 13);
    memset(text + 13, 'x', max - 13);
    char *got CLEANUP_FREE = scan(text, max, NULL, 1000, 0);
    assert_string_equal(got, "!");
}

static void test_read_error(void **state)
{
    (void)state;
    const char text[] = "{\"entries\":[1,2,3]}";
    for (int fail = 0;; fail++) {
        struct mem m = {text, sizeof text - 1, 4, fail};
        struct docstream *d CLEANUP(docstream_freep) = NULL;
        struct err e = ERR_INIT;
        assert_ok(docstream_new(&d, NULL, 100, mem_read, &m, &e), &e);
        const char *elem;
        size_t n;
        int rc;
        while ((rc = docstream_next(d, &elem, &n, &e)) == 1)
            ;
        if (rc == 0) {
            assert_true(fail > 4);
            break;
        }
        assert_int_equal(rc, -EIO);
        assert_int_equal(e.cls, ERR_GENERIC);
    }
}

static void test_cursor(void **state)
{
    (void)state;
    const char text[] = " { \"a\" : 1 , \"b\\u0043\":[1,{\"x\":\"}\"}],\"c\":\"q\\\"\" } ";
    struct json_cursor c = {text, text + sizeof text - 1, 0};
    char key[JSON_KEY_MAX];
    const char *v;
    size_t n;
    assert_int_equal(json_cursor_next(&c, key, &v, &n), 1);
    assert_string_equal(key, "a");
    assert_int_equal(n, 1);
    assert_int_equal(json_cursor_next(&c, key, &v, &n), 1);
    assert_string_equal(key, "bC");
    assert_memory_equal(v, "[1,{\"x\":\"}\"}]", n);
    assert_int_equal(n, 13);
    assert_int_equal(json_cursor_next(&c, key, &v, &n), 1);
    assert_string_equal(key, "c");
    assert_int_equal(json_cursor_next(&c, key, &v, &n), 0);

    static const char *const bad[] = {"",           "[]",         "{",
                                      "{\"a\"",     "{\"a\":",    "{\"a\":1",
                                      "{\"a\":1,",  "{\"a\":1,}", "{\"a\":1{\"b\":2}",
                                      "{\"a\":1}x", "{,}",        "{\"a\" 1}",
                                      "{a:1}",      "{\"a\":}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t len = strlen(bad[i]);
        char *copy CLEANUP_FREE = malloc(len + 1);
        memcpy(copy, bad[i], len);
        struct json_cursor b = {copy, copy + len, 0};
        int rc;
        while ((rc = json_cursor_next(&b, key, &v, &n)) == 1)
            ;
        assert_int_equal(rc, -EINVAL);
    }
    char longkey[200];
    memset(longkey, 'k', sizeof longkey);
    memcpy(longkey, "{\"", 2);
    memcpy(longkey + 100, "\":1}", 4);
    struct json_cursor l = {longkey, longkey + 104, 0};
    assert_int_equal(json_cursor_next(&l, key, &v, &n), 1);
    assert_string_equal(key, "");
    assert_int_equal(json_cursor_next(&l, key, &v, &n), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),  cmocka_unit_test(test_refused), cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_flipped), cmocka_unit_test(test_limits),  cmocka_unit_test(test_read_error),
        cmocka_unit_test(test_cursor),  cmocka_unit_test(test_repeats), cmocka_unit_test(test_repeats_by_any_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
