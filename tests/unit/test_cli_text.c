/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Names, widths, cuts, sizes, ages and lines of progress, as the command prints them. */
#include "base/time.h"
#include "tests/unit/test.h"

/* A name of cmocka's, too. */
#define print_error print_error_of_the_command
#include "daemon/cli/live.h"
#undef print_error

#include <time.h>

static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
        unsigned width;
    } t[] = {
        {"vg0/db1", "vg0/db1", 7},
        {"", "", 0},
        {"\033[2J\007\r\n\t\x7f", "\\x1b[2J\\x07\\x0d\\x0a\\x09\\x7f", 27},
        {"c1 \xc2\x9b", "c1 \\xc2\\x9b", 11},
        {"\xff\xfe overlong \xc0\xaf", "\\xff\\xfe overlong \\xc0\\xaf", 26},
        {"half \xe6\x97", "half \\xe6\\x97", 13},
        {"surrogate \xed\xa0\x80", "surrogate \\xed\\xa0\\x80", 22},
        {"too large \xf4\x90\x80\x80", "too large \\xf4\\x90\\x80\\x80", 26},
        {"\xe2\x80\xae", "\\xe2\\x80\\xae", 12},          /* right to left */
        {"\xf3\xa0\x81\x81", "\\xf3\\xa0\\x81\\x81", 16}, /* a tag, not seen */
        {"日本", "日本", 4},
        {"e\xcc\x81", "e\xcc\x81", 1},
        {"\xcc\x81x", "\\xcc\\x81x", 9}, /* upon nothing */
        {"한글", "한글", 4},
        {"🎉", "🎉", 2},
        {"नमस्ते", "नमस्ते", 4},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        assert_string_equal(text_name(t[i].in), t[i].out);
        assert_int_equal(text_width(text_name(t[i].in)), t[i].width);
    }
    char heap[200] = "z";
    for (unsigned i = 0; i < 50; i++)
        strcat(heap, "\xcc\x81");
    assert_int_equal(text_width(text_name(heap)), 1 + 8 * (50 / 7)); /* each seventh is told instead of drawn */
}

/* Any bytes at all: what comes out is printable UTF-8, and cutting it gives as many columns as asked for, or fewer. */
static void test_any_bytes(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (unsigned round = 0; round < 20000; round++) {
        char in[80];
        size_t n = splitmix64(&seed) % 79;
        for (size_t i = 0; i < n; i++)
            in[i] = splitmix64(&seed) % 4 ? (char)(splitmix64(&seed) % 255 + 1) : "\xe6\x97\xa5\xcc\x81\033"[i % 6];
        in[n] = '\0';
        char name[600];
        snprintf(name, sizeof name, "%s", text_name(in));
        assert_string_equal(text_name(name), name); /* nothing is left to escape */
        for (const char *p = name; *p; p++)
            assert_true((unsigned char)*p >= 0x20 && *p != 0x7f);
        unsigned width = (unsigned)(splitmix64(&seed) % 90);
        const char *fit = text_fit(name, width), *cut = text_cut(name, width);
        assert_true(text_width(fit) <= width && text_width(cut) <= width);
        assert_string_equal(text_name(fit), fit);
        assert_string_equal(text_name(cut), cut);
        if (text_width(name) <= width)
            assert_string_equal(fit, name);
        else if (width > 3)
            assert_true(text_width(fit) + 2 >= width); /* a wide one may not fit on either side */
    }
}

static void test_cuts(void **state)
{
    (void)state;
    assert_string_equal(text_fit("0123456789", 10), "0123456789");
    assert_string_equal(text_fit("0123456789", 9), "0123…6789");
    assert_string_equal(text_fit("0123456789", 4), "01…9");
    assert_string_equal(text_fit("0123456789", 2), "01");
    assert_string_equal(text_fit("0123456789", 0), "");
    assert_string_equal(text_cut("0123456789", 4), "012…");
    assert_string_equal(text_cut("0123456789", 1), "0");
    assert_string_equal(text_fit("日本語の名前", 7), "日…前");
}

static void test_sizes(void **state)
{
    (void)state;
    json_t *j = json_pack("{s:I, s:I, s:I, s:I, s:s}", "none", (json_int_t)0, "minus", (json_int_t)-1, "most",
                          (json_int_t)INT64_MAX, "edge", (json_int_t)1048575, "text", "x");
    assert_string_equal(text_size(j, "none"), "0 B");
    assert_string_equal(text_size(j, "minus"), "-");
    assert_string_equal(text_size(j, "most"), "8.0 EiB");
    assert_string_equal(text_size(j, "edge"), "1.0 MiB");
    assert_string_equal(text_size(j, "text"), "-");
    assert_string_equal(text_size(j, "missing"), "-");
    assert_string_equal(text_bytes(1023), "1023 B");
    assert_string_equal(text_bytes(UINT64_MAX), "16.0 EiB");
    json_decref(j);
}

static void test_ages(void **state)
{
    (void)state;
    const int64_t s = 1000000000, now = now_ns();
    assert_string_equal(text_ago(0), "never");
    assert_string_equal(text_ago(INT64_MIN), "never");
    assert_string_equal(text_ago(now), "0 s ago");
    assert_string_equal(text_ago(now + 2 * s), "0 s ago"); /* clocks are not that exact */
    assert_string_equal(text_ago(now + 3601 * s), "1 h ahead");
    assert_string_equal(text_ago(now - 59 * s), "59 s ago");
    assert_string_equal(text_ago(now - 60 * s), "1 min ago");
    assert_string_equal(text_ago(now - 47 * 3600 * s), "47 h ago");
    assert_string_equal(text_ago(now - 48 * 3600 * s), "2 d ago");
    assert_string_equal(text_ago(1), now / s > 1700000000 ? text_ago(2) : "");
    assert_string_equal(text_ago(INT64_MAX), text_ago(INT64_MAX - 1));
    assert_string_equal(text_in(0), "-");
    assert_string_equal(text_in(now - 30 * s), "now");
    assert_string_equal(text_in(now - 7205 * s), "2 h late");
    assert_string_equal(text_in(now + 3605 * s), "in 1 h");
    assert_string_equal(text_took(now, now + 70 * s), "1 min 10 s");
    assert_string_equal(text_took(now, now - 1), "");
    assert_string_equal(text_took(0, now), "");
}

/* The hour that comes twice is told apart by the name of the zone. */
static void test_zone(void **state)
{
    (void)state;
    setenv("TZ", "Europe/Berlin", 1);
    tzset();
    assert_string_equal(text_local_time(INT64_C(1792888200000000000)), "2026-10-25 02:30:00 CEST");
    assert_string_equal(text_local_time(INT64_C(1792891800000000000)), "2026-10-25 02:30:00 CET");
    assert_string_equal(text_took(INT64_C(1792888200000000000), INT64_C(1792891800000000000)), "1 h 00 min");
    assert_true(*text_local_time(INT64_MAX) && *text_local_time(INT64_MIN));
}

static void test_left(void **state)
{
    (void)state;
    assert_string_equal(text_left(0), "0 s left");
    assert_string_equal(text_left(0.2), "1 s left");
    assert_string_equal(text_left(11.5), "12 s left");
    assert_string_equal(text_left(21), "22 s left");
    assert_string_equal(text_left(58), "58 s left");
    assert_string_equal(text_left(151), "2 min 40 s left");
    assert_string_equal(text_left(7300), "2 h 01 min left");
}

static struct shown course(void)
{
    return (struct shown){.what = "vg0/a-volume",
                          .phase = "moving",
                          .total = INT64_C(27) << 30,
                          .done = INT64_C(27) << 30,
                          .zero = 1 << 30,
                          .skipped = 1 << 20,
                          .duplicate = 1 << 21,
                          .rate = 104857600,
                          .left = 33,
                          .rest = "",
                          .errors = 2};
}

static void test_line(void **state)
{
    (void)state;
    struct shown s = course();
    char line[1024];
    progress_line(&s, 1000, line, sizeof line);
    assert_string_equal(line,
                        "vg0/a-volume: moving 99% [=================== ], 27.0 GiB of 27.0 GiB, 100.0 MiB/s, 34 s "
                        "left, 2 ERRORS, 1.0 GiB zero, 1.0 MiB skipped, 2.0 MiB duplicate");
    progress_line(&s, 99, line, sizeof line); /* no room for a bar */
    assert_null(strchr(line, '['));
    s.stalled = 20;
    progress_line(&s, 1000, line, sizeof line);
    assert_non_null(strstr(line, "no progress for 20 s"));
    assert_null(strstr(line, "left"));
    s.total = 0;
    progress_line(&s, 1000, line, sizeof line);
    assert_non_null(strstr(line, "moving, 27.0 GiB, "));
    assert_null(strchr(line, '%'));
}

/* At every width: it fits as long as there is room for what must be told, and that is told. */
static void test_narrow(void **state)
{
    (void)state;
    static const char *const names[] = {"vg0/a-volume", "x", "日本語のボリューム名は幅が二倍になります", "\033[2J",
                                        "/srv/vm/a-very-long-name/that-goes-on-and-on/and-on.img"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        struct shown s = course();
        s.what = names[n];
        for (unsigned width = 20; width < 200; width++) {
            char line[1024];
            progress_line(&s, width, line, sizeof line);
            assert_non_null(strstr(line, "moving 99%"));
            assert_non_null(strstr(line, "left"));
            assert_non_null(strstr(line, "2 ERRORS"));
            assert_null(strchr(line, 033));
            if (width >= 50)
                assert_true(text_width(line) <= width);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names), cmocka_unit_test(test_any_bytes), cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_sizes), cmocka_unit_test(test_ages),      cmocka_unit_test(test_zone),
        cmocka_unit_test(test_left),  cmocka_unit_test(test_line),      cmocka_unit_test(test_narrow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
