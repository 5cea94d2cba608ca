/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "base/json-text.h"
#include "base/library.h"
#include "base/time.h"
#include "tests/unit/test.h"

static void errors_carry_class_errno_and_words(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    assert_int_equal(err_set(&e, ERR_GENERIC, ENOSPC, "cannot write %s", "p123"), -ENOSPC);
    assert_int_equal(e.cls, ERR_NO_SPACE);
    assert_string_equal(e.msg, "cannot write p123: No space left on device");
    assert_int_equal(err_wrap(&e, "repository %s", "/srv"), -ENOSPC);
    assert_string_equal(e.msg, "repository /srv: cannot write p123: No space left on device");
    assert_int_equal(err_hint(&e, "free %d bytes", 5), -ENOSPC);
    assert_string_equal(e.hint, "free 5 bytes");
    assert_int_equal(err_set(&e, ERR_DAMAGE, 0, "again: %s", e.msg), -EIO);
    assert_string_equal(e.msg, "again: repository /srv: cannot write p123: No space left on device");
    assert_string_equal(e.hint, "");
    assert_int_equal(err_set(NULL, ERR_GENERIC, EPERM, "x"), -EPERM);
}

static void integers_keep_their_byte_order(void **state)
{
    (void)state;
    uint8_t b[8];
    put_be32(b, 0x01020304);
    assert_int_equal(b[0], 1);
    assert_int_equal(get_be32(b), 0x01020304);
    assert_int_equal(get_le32(b), 0x04030201);
    put_le64(b, 0x1122334455667788u);
    assert_int_equal(b[0], 0x88);
    assert_true(get_le64(b) == 0x1122334455667788u);
    assert_true(get_be64(b) == 0x8877665544332211u);
    put_be16(b, 0xabcd);
    assert_int_equal(get_be16(b), 0xabcd);
    assert_int_equal(get_le16(b), 0xcdab);
}

static void hex_round_trips_and_refuses(void **state)
{
    (void)state;
    uint8_t in[3] = {0x00, 0xab, 0xff}, out[3];
    char text[7];
    assert_string_equal(hex_encode(text, in, 3), "00abff");
    assert_int_equal(hex_decode(out, "00ABff", 6), 0);
    assert_memory_equal(in, out, 3);
    assert_int_equal(hex_decode(out, "0", 1), -1);
    assert_int_equal(hex_decode(out, "0g", 2), -1);
}

static void recipes_match_their_published_start(void **state)
{
    (void)state;
    size_t n;
    CLEANUP_FREE uint8_t *p = recipe_expand("prng:1:32+fill:ff:2+str:a\\n", &n);
    char hex[80];
    assert_int_equal(n, 36);
    assert_string_equal(hex_encode(hex, p, n),
                        "c15c0289ec2d0a9167ec8e65a18debbe5e5532fbeea293f80bc942ee9086c171ffff610a");
}

static void times(void **state)
{
    (void)state;
    char text[TIME_TEXT], stamp[TIME_STAMP];
    int64_t ns, mono = mono_ns(), boot = boot_ns();
    assert_string_equal(time_text(INT64_C(1795226400) * NS_PER_S + 250 * NS_PER_MS, text), "2026-11-21T02:00:00.25Z");
    assert_string_equal(time_stamp(INT64_C(1795226400) * NS_PER_S, stamp), "20261121T020000");
    assert_int_equal(time_parse(&ns, "2026-11-21T03:00:00+01:00"), 0);
    assert_int_equal(ns, INT64_C(1795226400) * NS_PER_S);
    assert_int_equal(time_parse(&ns, ""), -EINVAL);
    const struct timespec t = ns_timespec(5 * NS_PER_S + 7);
    assert_true(t.tv_sec == 5 && t.tv_nsec == 7 && timespec_ns(t) == 5 * NS_PER_S + 7);
    /* What others have written: intervals can be added to any of it. */
    const struct timespec far = {.tv_sec = INT64_MAX, .tv_nsec = 999999999}, old = {.tv_sec = INT64_MIN};
    assert_true(ns_of_seconds(-3) == -3 * NS_PER_S && ns_of_seconds(INT64_C(1) << 32) == (INT64_C(1) << 32) * NS_PER_S);
    assert_true(ns_of_seconds(INT64_C(1) << 48) > NS_PER_S << 32 && ns_of_seconds(INT64_MAX) <= INT64_MAX / 2);
    assert_true(timespec_ns(far) < INT64_MAX - 100 * 365 * NS_PER_DAY && timespec_ns(far) > now_ns());
    assert_true(timespec_ns(old) < 0 && timespec_ns(old) > INT64_MIN / 2 - NS_PER_S);
    assert_true(mono_ns() >= mono && boot_ns() >= boot && boot_ns() >= mono);
    assert_true(now_ns() > INT64_C(1700000000) * NS_PER_S);
}

/* The same bytes as those of the library, which are those of the records, the control socket and golden files. */
static void documents_have_the_text_of_the_library(void **state)
{
    static const char *const texts[] = {
        "{}",
        "[]",
        "[[],{}]",
        "{\"a\":{\"b\":[1,-2,true,false,null]},\"\":\"\"}",
        "[0,9223372036854775807,-9223372036854775808]",
        "\"\"",
        "null",
        "[0.0,-0.0,1.0,0.1,1e300,1e-300,-2.5e20,1e20,123456789.125,1e-5,5e-324,1.7976931348623157e308]",
        "[\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\\u007f\\u00e4\\u20ac\\ud83d\\ude00x\",\"end\\n\"]",
        "[\"a\\u0000b\"]"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_t *v = json_loads(texts[i], JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        size_t n = 0;
        assert_non_null(v);
        char *want = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY), *got = json_text(v, &n);
        assert_string_equal(got, want);
        assert_int_equal(n, strlen(want));
        free(want);
        free(got);
        json_decref(v);
    }
    assert_null(json_text(NULL, NULL));
}

/* What is missing is named: the library, or a function that an older one has not. */
static void libraries_are_loaded(void **state)
{
    (void)state;
    struct {
        double (*cosine)(double), (*none)(double);
    } table = {NULL, NULL};
    const struct library_symbol symbols[] = {{"cos", 0}, {"cos_of_a_later_version", sizeof table.cosine}};
    char why[256];
    assert_true(library_load("libm.so.6", symbols, 1, &table, why));
    assert_true(table.cosine(0) == 1);
    assert_false(library_load("libm.so.6", symbols, 2, &table, why));
    assert_string_equal(why, "libm.so.6 has no cos_of_a_later_version");
    assert_false(library_load("libnone-of-this-name.so.9", symbols, 1, &table, why));
    assert_non_null(strstr(why, "libnone-of-this-name.so.9"));
}

static char logged[4096];
static void note_line(enum log_level lvl, const char *line, void *arg)
{
    (void)lvl;
    (void)arg;
    snprintf(logged, sizeof logged, "%s", line);
}

/* Issue 13, 19: a name in the log acts on no terminal, makes no line of its own, and reads as it is. */
static void log_lines_act_on_no_terminal(void **state)
{
    (void)state;
    log_to(note_line, NULL);
    log_info("%s", "a\x1b[31m\x7f\nb\tc \xc2\x9b"
                   "1m \xe2\x80\xae"
                   "d \xe2\x81\xa6 \xd8\x9c \xc3\xa4\xe2\x82\xac\xc2\xa0");
    log_to(NULL, NULL);
    assert_string_equal(logged, "a\\x1b[31m\\x7f\\x0ab\tc \\xc2\\x9b1m \\xe2\\x80\\xaed \\xe2\\x81\\xa6 \\xd8\\x9c "
                                "\xc3\xa4\xe2\x82\xac\xc2\xa0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_carry_class_errno_and_words),     cmocka_unit_test(log_lines_act_on_no_terminal),
        cmocka_unit_test(integers_keep_their_byte_order),         cmocka_unit_test(hex_round_trips_and_refuses),
        cmocka_unit_test(recipes_match_their_published_start),    cmocka_unit_test(times),
        cmocka_unit_test(documents_have_the_text_of_the_library), cmocka_unit_test(libraries_are_loaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
