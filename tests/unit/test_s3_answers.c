/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Answers of S3 services, and of what stands before them, that are no answers: what is believed of them, what is asked
 * again, and that none is waited for without an end.
 */
#include "tests/unit/s3-store.h"

#include "repo/s3-xml.h"

static char seen[8192];
static int see(const struct blob_info *i, void *arg)
{
    (void)arg;
    snprintf(seen + strlen(seen), sizeof seen - strlen(seen), " %s:%d", i->name, (int)i->length);
    return 0;
}
static const char *list_of(struct blobs *of, const char *prefix)
{
    seen[0] = '\0';
    OK(blobs_list(of, prefix, see, NULL, &e));
    return seen;
}

static struct blobs *store_at(const char *prefix)
{
    struct s3_place p = place();
    struct blobs *ret;
    p.prefix = prefix;
    OK(blobs_open_s3(&ret, &p, BLOBS_OPEN, &e));
    return ret;
}

/* A status of success alone is none: a portal has such pages for everything. */
static void a_page_of_the_web_is_no_answer(void **state)
{
    (void)state;
    uint8_t *data = NULL, two[2];
    size_t len;
    struct blob_info i;
    OK(blobs_put(b, "p1", "0123456789", 10, &e));
    for (int whole = 0; whole < 2; whole++) { /* for each of the four tries, and for three of them */
        const int n = whole ? 3 : 100;
#define EACH(call)                                                                                                     \
    do {                                                                                                               \
        ask("_fault/page/%d", n);                                                                                      \
        if (whole)                                                                                                     \
            OK(call);                                                                                                  \
        else                                                                                                           \
            FAILS(call, ERR_GENERIC, "a document that is none of S3");                                                 \
    } while (0)
        EACH(blobs_put(b, "p1", "9876543210", 10, &e));
        EACH(blobs_get(b, "p1", 10000, &data, &len, &e));
        if (whole)
            assert_memory_equal(data, "9876543210", 10);
        EACH(blobs_read(b, "p1", 1, two, 2, &e));
        EACH(blobs_stat(b, "p1", &i, &e));
        EACH(blobs_list(b, "p", see, NULL, &e));
        EACH(blobs_delete(b, "p1", &e));
#undef EACH
    }
    free(data);
    assert_string_equal(list_of(b, "p"), "");
}

/* The status is sent before the server knows whether it succeeds. */
static void an_error_behind_a_success(void **state)
{
    (void)state;
    uint8_t *data;
    size_t len;
    ask("_fault/late-error/100");
    FAILS(blobs_put(b, "p1", "x", 1, &e), ERR_GENERIC, "answers with an error: of InternalError");
    assert_int_equal(e.sys, EREMOTEIO); /* worth another attempt */
    ask("_fault/late-error/3");
    OK(blobs_put(b, "p1", "yz", 2, &e));
    OK(blobs_get(b, "p1", 10, &data, &len, &e));
    assert_int_equal(len, 2);
    free(data);
    ask("_fault/late-error/100");
    FAILS(blobs_delete(b, "p1", &e), ERR_GENERIC, "of InternalError");
    ask("_fault/html/100"); /* of no type, in the place of an empty body */
    FAILS(blobs_put(b, "p1", "x", 1, &e), ERR_GENERIC, "a document that is none of S3");
    ask("_fault/none/0");
    OK(blobs_delete(b, "p1", &e));
}

/* Without a length of its own an answer may end anywhere. */
static void lengths_that_are_not_told(void **state)
{
    (void)state;
    static const struct {
        const char *kind;
        bool good;
    } cases[] = {{"bare", true}, {"bare-cut", false}, {"chunked", true}, {"chunked-cut", false}, {"part", false}};
    uint8_t *data, buffer[100];
    size_t len;
    struct blob_info i;
    memset(buffer, 'x', sizeof buffer);
    OK(blobs_put(b, "p1", buffer, sizeof buffer, &e));
    OK(blobs_put(b, "empty", "", 0, &e));
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        ask("_fault/%s/1", cases[c].kind);
        OK(blobs_get(b, "p1", 1000, &data, &len, &e));
        if (len != 100)
            fail_msg("%s: %zu bytes", cases[c].kind, len);
        assert_memory_equal(data, buffer, 100);
        free(data);
        ask("_fault/%s/1", cases[c].kind);
        uint8_t got[100] = {0};
        OK(blobs_read(b, "p1", 0, got, 100, &e));
        assert_memory_equal(got, buffer, 100);
        ask("_fault/%s/1", cases[c].kind);
        OK(blobs_stat(b, "p1", &i, &e));
        assert_int_equal(i.length, 100);
        ask("_fault/%s/1", cases[c].kind);
        OK(blobs_stat(b, "empty", &i, &e));
        assert_int_equal(i.length, 0);
        if (cases[c].good)
            continue;
        ask("_fault/%s/1000", cases[c].kind);
        e = (struct err)ERR_INIT;
        assert_true(blobs_get(b, "p1", 1000, &data, &len, &e) < 0);
        assert_int_equal(e.cls, ERR_GENERIC); /* nothing is damaged */
    }
    ask("_fault/none/0");
    OK(blobs_delete(b, "empty", &e));
    OK(blobs_delete(b, "p1", &e));
}

static void ranges_that_are_others(void **state)
{
    (void)state;
    static const char *const kinds[] = {"shifted", "unranged", "shorter", "longer", "whole", "chunked-cut"};
    uint8_t two[2];
    OK(blobs_put(b, "p1", "0123456789", 10, &e));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        ask("_fault/%s/2", kinds[i]);
        OK(blobs_read(b, "p1", 4, two, 2, &e));
        assert_memory_equal(two, "45", 2);
        ask("_fault/%s/1000", kinds[i]);
        e = (struct err)ERR_INIT;
        assert_true(blobs_read(b, "p1", 4, two, 2, &e) < 0);
        assert_int_equal(e.cls, ERR_GENERIC);
    }
    ask("_fault/none/0");
    OK(blobs_delete(b, "p1", &e));
}

/* A list that comes back to where it was would have no end. */
static void lists_without_an_end(void **state)
{
    (void)state;
    static const char *const kinds[] = {"same", "tokens", "backward"};
    struct blobs *many = store_at("endless/");
    char name[16];
    for (int i = 0; i < 25; i++) {
        snprintf(name, sizeof name, "n%02d", i);
        OK(blobs_put(many, name, "x", 1, &e));
    }
    ask("_set/page/4");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        ask("_fault/%s/1000", kinds[i]);
        ask("_requests");
        FAILS(blobs_list(many, "", see, NULL, &e), ERR_GENERIC, "repeats the same page");
        assert_in_range(ask("_requests"), 2, 10);
    }
    ask("_fault/none/0");
    blobs_free(many);
}

/* Neither by its length: memory is not filled with one name. */
static void a_document_without_an_end(void **state)
{
    (void)state;
    ask("_fault/endless/100");
    FAILS(blobs_list(b, "", see, NULL, &e), ERR_GENERIC, "no list of S3");
    ask("_fault/none/0");
}

/* 1 KiB/s is the least, of the head of an answer as well. */
static void what_trickles_is_given_up(void **state)
{
    (void)state;
    static const char *const kinds[] = {"trickle", "trickle-body"};
    uint8_t *data;
    size_t len;
    OK(blobs_put(b, "p1", "0123456789", 10, &e));
    for (int i = 0; i < 2; i++) {
        const int64_t from = mono_ns();
        ask("_fault/%s/1", kinds[i]);
        OK(blobs_get(b, "p1", 1000, &data, &len, &e));
        assert_int_equal(len, 10);
        free(data);
        assert_true(mono_ns() - from < 30 * NS_PER_S); /* a minute otherwise */
    }
    OK(blobs_delete(b, "p1", &e));
}

/* A server that is busy says for how long. */
static void a_pause_is_as_long_as_is_asked_for(void **state)
{
    (void)state;
    const int64_t from = mono_ns();
    ask("_fault/busy/2");
    OK(blobs_put(b, "p1", "x", 1, &e));
    assert_true(mono_ns() - from >= 2 * NS_PER_S);
    ask("_fault/busy/100");
    FAILS(blobs_put(b, "p1", "x", 1, &e), ERR_GENERIC, "status 429");
    ask("_fault/none/0");
    OK(blobs_delete(b, "p1", &e));
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *kind;
        enum err_class cls;
        const char *text;
        int requests;
    } all[] = {{"moved", ERR_USAGE, "set region = eu-9", 1},
               {"elsewhere", ERR_USAGE, "set region = eu-9", 1},
               {"skewed", ERR_CLOCK, "the clock of this machine is wrong", 2},
               {"conflict", ERR_GENERIC, "of OperationAborted", 4},
               {"precondition", ERR_GENERIC, "of PreconditionFailed", 1}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ask("_fault/%s/1000", all[i].kind);
        ask("_requests");
        FAILS(blobs_put(b, "p1", "x", 1, &e), all[i].cls, all[i].text);
        assert_int_equal(ask("_requests"), all[i].requests);
        FAILS(blobs_list(b, "", see, NULL, &e), all[i].cls, all[i].text);
    }
    ask("_fault/none/0");
}

/* What is none of the repository's is neither listed nor in the way. */
static void prefixes_and_foreign_objects(void **state)
{
    (void)state;
    static const char *const prefixes[] = {"a b/",       "a+b/",      "a%20b/",  "a%2520b/",    "\xc3\xbc\xe2\x82\xac/",
                                           "q?x=1&y#z/", "no slash-", "~'()*!/", "a;b:c@d,e$/", ""};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        struct blobs *s = store_at(prefixes[i]);
        uint8_t *data;
        size_t len;
        struct blob_info info;
        OK(blobs_put(s, "xyz_1", "01", 2, &e));
        OK(blobs_put(s, "xyz-2", "012", 3, &e));
        OK(blobs_get(s, "xyz_1", 10, &data, &len, &e));
        assert_int_equal(len, 2);
        free(data);
        OK(blobs_stat(s, "xyz-2", &info, &e));
        assert_int_equal(info.length, 3);
        blobs_free(s);
        s = store_at(prefixes[i]); /* which has not put them */
        assert_string_equal(list_of(s, "xyz"), " xyz-2:3 xyz_1:2");
        OK(blobs_delete(s, "xyz_1", &e));
        assert_string_equal(list_of(s, "xyz"), " xyz-2:3");
        blobs_free(s);
    }
    /* The others are folders now, as lists without a prefix have them. */
    struct blobs *s = store_at("");
    assert_string_equal(list_of(s, "a"), "");
    assert_string_equal(list_of(s, "x"), " xyz-2:3");
    blobs_free(s);
}

/* ---- documents ---- */

static int page_of(struct s3_page *p, const char *text, size_t len)
{
    struct s3_parser *x = NULL;
    assert_int_equal(s3_parser_new(&x, p, NULL), 0);
    int rc = 0;
    for (size_t at = 0; rc == 0 && at < len; at += 65536)
        rc = s3_parser_feed(x, text + at, len - at < 65536 ? len - at : 65536);
    rc = rc == 0 ? s3_parser_end(x) : rc;
    s3_parser_free(x);
    return rc;
}

#define CONTENT(key)                                                                                                   \
    "<Contents><Key>" key "</Key><Size>8</Size><LastModified>2026-11-24T04:50:39Z</LastModified></Contents>"
#define PAGE(text) "<ListBucketResult>" text "</ListBucketResult>"

static void pages_that_are_too_much(void **state)
{
    (void)state;
    struct s3_page p = {.prefix = "r/"};
    static const size_t lengths[] = {4097, 1 << 20};
    for (size_t i = 0; i < 2; i++) { /* a key of that length */
        char *text = calloc(1, lengths[i] + 200);
        assert_non_null(text);
        strcpy(text, "<ListBucketResult><Contents><Key>");
        memset(text + strlen(text), 'k', lengths[i]);
        strcat(text, "</Key></Contents></ListBucketResult>");
        assert_int_equal(page_of(&p, text, strlen(text)), -EBADMSG);
        free(text);
    }
    /* One that is too long for a blob is none, and neither is one that leads elsewhere or cannot be printed. */
    static char long_one[1200];
    snprintf(long_one, sizeof long_one, PAGE("<Contents><Key>r/%0300d</Key></Contents>"), 0);
    assert_int_equal(page_of(&p, long_one, strlen(long_one)), 0);
    assert_int_equal(p.n, 0);
    static const char foreign[] = PAGE(CONTENT("r/a/b") CONTENT("r/a/../../b") CONTENT("r/..") CONTENT(
        "r/a..b") CONTENT("r/a&#10;b") CONTENT("r%2Fa%1B%5Bm") CONTENT("r/") CONTENT("r/good"));
    assert_int_equal(page_of(&p, foreign, sizeof foreign - 1), 0);
    assert_int_equal(p.n, 1);
    assert_string_equal(p.blobs[0].name, "good");
    static const char *const bad[] = {"<!DOCTYPE l [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;'>]>" PAGE("&b;"),
                                      PAGE("&b;"),
                                      "<ListBucketResult>" CONTENT("r/x"),
                                      PAGE("<IsTruncated>true</IsTruncated>"),
                                      PAGE("") PAGE(""),
                                      "\xff\xfe<\0",
                                      "<Error><Code>x</Code></Error>"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(page_of(&p, bad[i], strlen(bad[i])), -EBADMSG);
    s3_page_free(&p);
    /* More than any page has, of what is left out. */
    static const size_t sizes[] = {(size_t)20 << 20, (size_t)40 << 20};
    for (size_t i = 0; i < 2; i++) {
        char *huge = malloc(sizes[i]);
        assert_non_null(huge);
        for (size_t at = 0; at < sizes[i]; at += 4)
            memcpy(huge + at, "<a/>", 4);
        memcpy(huge, "<ListBucketResult>  ", 20);
        memcpy(huge + sizes[i] - 20, "</ListBucketResult> ", 20);
        assert_int_equal(page_of(&p, huge, sizes[i]), i ? -EBADMSG : 0);
        free(huge);
    }
    s3_page_free(&p);
}

static void turns(void **state)
{
    (void)state;
    /* Cycles of any length, behind a beginning of any length. */
    for (unsigned begin = 0; begin < 20; begin++)
        for (unsigned cycle = 1; cycle < 20; cycle++) {
            struct s3_turns t = {.pages = 0};
            unsigned n = 0;
            while (!s3_turns(&t, n < begin ? n : begin + (n - begin) % cycle, false))
                assert_true(n++ < 200);
            assert_true(n >= begin + cycle);
        }
    struct s3_turns t = {.pages = 0};
    for (unsigned i = 0; i < 100000; i++)
        assert_false(s3_turns(&t, i, false));
    t = (struct s3_turns){.pages = 0};
    unsigned n = 0;
    while (!s3_turns(&t, 7, true))
        assert_true(n++ < 100000);
    assert_true(n >= 5000);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_page_of_the_web_is_no_answer),
        T(an_error_behind_a_success),
        T(lengths_that_are_not_told),
        T(ranges_that_are_others),
        T(lists_without_an_end),
        T(a_document_without_an_end),
        T(what_trickles_is_given_up),
        T(a_pause_is_as_long_as_is_asked_for),
        T(refusals),
        T(prefixes_and_foreign_objects),
        cmocka_unit_test(pages_that_are_too_much),
        cmocka_unit_test(turns),
    };
    return cmocka_run_group_tests(tests, service_start, service_end);
}
