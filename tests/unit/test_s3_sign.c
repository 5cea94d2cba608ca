/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Signatures of S3 requests: the examples that AWS publishes for signature version 4, and files of keys. */
#include "repo/s3-sign.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define DAY "20130524T000000Z"
#define HOST "examplebucket.s3.amazonaws.com"

static const struct s3_keys keys = {.access = "AKIAIOSFODNN7EXAMPLE",
                                    .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};

static void expect(const struct s3_request *q, const char *signature)
{
    char got[S3_AUTHORIZATION];
    assert_int_equal(s3_sign(got, q, &keys, NULL), 0);
    assert_string_equal(strstr(got, ",Signature=") + 11, signature);
    assert_null(strstr(got, keys.secret));
}

static void test_get(void **state)
{
    (void)state;
    const struct s3_header h[] = {
        {"host", HOST}, {"range", "bytes=0-9"}, {"x-amz-content-sha256", EMPTY}, {"x-amz-date", DAY}};
    expect(&(struct s3_request){"GET", "us-east-1", "/test.txt", "", h, 4, EMPTY, DAY},
           "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

static void test_put(void **state)
{
    (void)state;
    static const char hash[] = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
    const struct s3_header h[] = {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
                                  {"host", HOST},
                                  {"x-amz-content-sha256", hash},
                                  {"x-amz-date", DAY},
                                  {"x-amz-storage-class", "REDUCED_REDUNDANCY"}};
    char path[64];
    assert_int_equal(s3_encode(path, sizeof path, "/test$file.text", true), 0);
    expect(&(struct s3_request){"PUT", "us-east-1", path, "", h, 5, hash, DAY},
           "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
}

static void test_queries(void **state)
{
    (void)state;
    const struct s3_header h[] = {{"host", HOST}, {"x-amz-content-sha256", EMPTY}, {"x-amz-date", DAY}};
    expect(&(struct s3_request){"GET", "us-east-1", "/", "lifecycle=", h, 3, EMPTY, DAY},
           "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    expect(&(struct s3_request){"GET", "us-east-1", "/", "max-keys=2&prefix=J", h, 3, EMPTY, DAY},
           "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

static void test_encode(void **state)
{
    (void)state;
    char out[16];
    assert_int_equal(s3_encode(out, sizeof out, "a/b +~\xc3", false), 0);
    assert_string_equal(out, "a%2Fb%20%2B~%C3");
    assert_int_equal(s3_encode(out, 4, "///", true), 0);
    assert_true(s3_encode(out, 3, "///", true) < 0);
    assert_true(s3_encode(out, 3, "+", true) < 0);
    char date[S3_DATE];
    assert_string_equal(s3_date(date, INT64_C(1369353600) * 1000000000), DAY);
}

static int read_text(const char *text, struct s3_keys *k, struct err *e)
{
    char file[] = "/tmp/test-s3-keys-XXXXXX";
    const int fd = mkstemp(file);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    *e = (struct err)ERR_INIT;
    const int rc = s3_keys_read(k, file, e);
    unlink(file);
    return rc;
}

static void test_keys(void **state)
{
    (void)state;
    struct s3_keys k;
    struct err e;
    assert_int_equal(read_text("# of the node\n\naccess-key = A\r\nsecret-key=b/+=\nsession-token = t==\n", &k, &e), 0);
    assert_string_equal(k.access, "A");
    assert_string_equal(k.secret, "b/+=");
    assert_string_equal(k.token, "t==");
    static const char *const bad[] = {"access-key = A\n",
                                      "secret-key = b\n",
                                      "access-key = A\nsecret-key = hid den\n",
                                      "access-key = A\naccess-key = B\nsecret-key = hidden\n",
                                      "hidden",
                                      "access-key = A\nsecret-key = hidden\nregion = x\n",
                                      "access-key =\nsecret-key = c"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        static const struct s3_keys none;
        assert_true(read_text(bad[i], &k, &e) < 0);
        assert_int_equal(e.cls, ERR_USAGE);
        assert_null(strstr(e.msg, "hid"));
        assert_memory_equal(&k, &none, sizeof k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_get), cmocka_unit_test(test_put),
                                       cmocka_unit_test(test_queries), cmocka_unit_test(test_encode),
                                       cmocka_unit_test(test_keys)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
