/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_retention.c - retention reasons of 125 golden histories, the documented examples, time zones. */
#include "base/retention.h"
#include "base/time.h"
#include "base/zone.h"

#include "tests/unit/test.h"

#include <time.h>

#include <jansson.h>

/* Nanoseconds since 1970 reach from 1677 to 2262. The one history before that is moved by three times 400 years, after
 * which the calendar, with its weekdays, repeats. */
#define ERA (INT64_C(146097) * 86400)

static int64_t parse_time(const char *s)
{
    int y, mo, d, h, mi, used = 0;
    assert_int_equal(sscanf(s, "%d-%d-%dT%d:%d:%n", &y, &mo, &d, &h, &mi, &used), 5);
    char *end;
    long sec = strtol(s + used, &end, 10);
    int64_t ns = 0, scale = NS_PER_S / 10;
    if (*end == '.')
        for (end++; *end >= '0' && *end <= '9'; end++, scale /= 10)
            ns += (*end - '0') * scale;
    assert_string_equal(end, "Z");
    int64_t t = ((civil_days(y, mo, d) * 24 + h) * 60 + mi) * 60 + sec;
    if (y < 1700)
        t += 3 * ERA;
    return t * NS_PER_S + ns;
}

static int setting(json_t *policy, const char *key)
{
    json_t *v = json_object_get(policy, key);
    return json_is_integer(v) ? (int)json_integer_value(v) : -1;
}

static void check(json_t *j, const char *tz, bool reversed)
{
    json_t *policy = json_object_get(j, "policy"), *snapshots = json_object_get(j, "snapshots");
    struct retention_policy p = {setting(policy, "keepLatest"),  setting(policy, "keepHourly"),
                                 setting(policy, "keepDaily"),   setting(policy, "keepWeekly"),
                                 setting(policy, "keepMonthly"), setting(policy, "keepAnnual")};
    size_t n = json_array_size(snapshots);
    CLEANUP_FREE struct retention_item *items = calloc(n + 1, sizeof *items);
    assert_non_null(items);
    for (size_t i = 0; i < n; i++) {
        json_t *s = json_array_get(snapshots, i);
        struct retention_item *it = &items[reversed ? n - 1 - i : i];
        it->start_ns = parse_time(json_string_value(json_object_get(s, "start")));
        const char *end = json_string_value(json_object_get(s, "end"));
        it->end_ns = end ? parse_time(end) : it->start_ns;
        it->incomplete = json_object_get(s, "incomplete") != NULL;
        it->n_reasons = 77;
    }
    struct err e = ERR_INIT;
    assert_ok(retention_apply(&p, items, n, tz, &e), &e);
    for (size_t i = 0; i < n; i++) {
        const struct retention_item *it = &items[reversed ? n - 1 - i : i];
        json_t *want = json_object_get(json_array_get(snapshots, i), "reasons");
        char a[256] = "", b[256] = "";
        for (size_t k = 0; k < it->n_reasons; k++) {
            strcat(a, it->reasons[k]);
            strcat(a, " ");
        }
        for (size_t k = 0; k < json_array_size(want); k++) {
            strcat(b, json_string_value(json_array_get(want, k)));
            strcat(b, " ");
        }
        if (strcmp(a, b))
            fail_msg("%s, %s, snapshot %zu: got %swant %s", json_string_value(json_object_get(j, "name")), tz, i, a, b);
    }
}

enum how { BY_NAME, BY_LOCAL_ZONE, REVERSED };

static void golden(enum how how)
{
    CLEANUP_FCLOSE FILE *f = fopen(fixture_path("vectors/retention.jsonl"), "r");
    assert_non_null(f);
    CLEANUP_FREE char *line = NULL;
    size_t room = 0, n = 0;
    for (; getline(&line, &room, f) > 0; n++) {
        json_t *j = json_loads(line, 0, NULL);
        assert_non_null(j);
        const char *tz = json_string_value(json_object_get(j, "timeZone"));
        if (how == BY_LOCAL_ZONE) {
            setenv("TZ", tz, 1);
            tzset();
            check(j, NULL, false);
        } else if (how == BY_NAME || !strstr(json_string_value(json_object_get(j, "name")), "input order")) {
            check(j, tz, how == REVERSED);
        }
        json_decref(j);
    }
    assert_int_equal(n, 125);
}

static void golden_histories(void **state)
{
    (void)state;
    setenv("TZ", "Asia/Tokyo", 1); /* must not matter */
    tzset();
    golden(BY_NAME);
    assert_string_equal(getenv("TZ"), "Asia/Tokyo");
    assert_int_equal(timezone, -9 * 3600);
}

static void golden_histories_in_the_local_zone(void **state)
{
    (void)state;
    golden(BY_LOCAL_ZONE);
}

static void order_of_input_does_not_matter(void **state)
{
    (void)state;
    golden(REVERSED);
}

static void check_example(const char *json)
{
    json_t *j = json_loads(json, 0, NULL);
    assert_non_null(j);
    check(j, "UTC", false);
    json_decref(j);
}

static void documented_examples(void **state)
{
    (void)state;
    check_example(
        "{\"name\":\"daily\",\"policy\":{\"keepDaily\":3},\"snapshots\":["
        "{\"start\":\"2020-01-01T12:00:00Z\",\"reasons\":[]},{\"start\":\"2020-01-01T15:00:00Z\",\"reasons\":[]},"
        "{\"start\":\"2020-01-02T12:00:00Z\",\"reasons\":[]},"
        "{\"start\":\"2020-01-02T15:00:00Z\",\"reasons\":[\"daily-3\"]},"
        "{\"start\":\"2020-01-03T12:00:00Z\",\"reasons\":[]},"
        "{\"start\":\"2020-01-03T15:00:00Z\",\"reasons\":[\"daily-2\"]},"
        "{\"start\":\"2020-01-04T12:00:00Z\",\"reasons\":[]},"
        "{\"start\":\"2020-01-04T15:00:00Z\",\"reasons\":[\"daily-1\"]}]}");
    check_example("{\"name\":\"weekly\",\"policy\":{\"keepWeekly\":3},\"snapshots\":["
                  "{\"start\":\"2020-01-01T12:00:00Z\",\"reasons\":[]},"
                  "{\"start\":\"2020-01-01T15:00:00Z\",\"reasons\":[\"weekly-3\"]},"
                  "{\"start\":\"2020-01-08T12:00:00Z\",\"reasons\":[]},"
                  "{\"start\":\"2020-01-09T12:00:00Z\",\"reasons\":[\"weekly-2\"]},"
                  "{\"start\":\"2020-01-15T12:00:00Z\",\"reasons\":[\"weekly-1\"]}]}");
    check_example("{\"name\":\"incomplete\",\"policy\":{\"keepLatest\":3},\"snapshots\":["
                  "{\"start\":\"2020-04-02T15:00:00Z\",\"reasons\":[\"latest-1\"]},"
                  "{\"start\":\"2020-04-02T15:01:00Z\",\"incomplete\":\"checkpoint\",\"reasons\":[]},"
                  "{\"start\":\"2020-04-02T16:01:00Z\",\"incomplete\":\"checkpoint\",\"reasons\":[]},"
                  "{\"start\":\"2020-04-02T17:01:00Z\",\"incomplete\":\"checkpoint\",\"reasons\":[]},"
                  "{\"start\":\"2020-04-02T18:01:00Z\",\"incomplete\":\"checkpoint\",\"reasons\":[\"incomplete\"]},"
                  "{\"start\":\"2020-04-02T19:01:00Z\",\"incomplete\":\"checkpoint\",\"reasons\":[\"incomplete\"]},"
                  "{\"start\":\"2020-04-02T23:50:00Z\",\"incomplete\":\"checkpoint\",\"reasons\":[\"incomplete\"]}]}");
}

static void extreme_settings_and_times_do_no_harm(void **state)
{
    (void)state;
    static const int values[] = {-1, 0, 1, 1000, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < 6; i++)
        for (size_t k = 0; k < 6; k++) {
            struct retention_policy p = {values[k], values[i], values[i], values[i], values[i], values[i]};
            struct retention_item items[5] = {{.start_ns = INT64_MIN, .end_ns = INT64_MAX},
                                              {.start_ns = INT64_MAX, .end_ns = INT64_MIN},
                                              {.start_ns = 0},
                                              {.start_ns = INT64_MAX, .incomplete = true},
                                              {.start_ns = INT64_MIN, .incomplete = true}};
            struct err e = ERR_INIT;
            assert_ok(retention_apply(&p, items, 5, i % 2 ? "America/New_York" : NULL, &e), &e);
            if (values[i] == INT32_MAX) /* whoever asks for everything gets everything */
                assert_true(items[0].n_reasons && items[1].n_reasons && items[2].n_reasons);
            assert_int_equal(items[3].n_reasons, 1);
        }
}

static void calendar_is_gregorian(void **state)
{
    (void)state;
    int64_t expect_days = civil_days(-801, 1, 1);
    static const int len[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    for (int64_t y = -801; y < 3000; y++) {
        bool leap = ((y % 4) == 0 && (y % 100) != 0) || (y % 400) == 0;
        for (int m = 1; m <= 12; m++)
            for (int d = 1; d <= len[m - 1] + (m == 2 && leap); d++, expect_days++) {
                if (d > 2 && d < 27 && m != 2)
                    continue;
                int64_t year;
                int month, day;
                assert_int_equal(civil_days(y, m, d), expect_days);
                civil_date(expect_days, &year, &month, &day);
                assert_int_equal(year, y);
                assert_int_equal(month, m);
                assert_int_equal(day, d);
            }
    }
    assert_int_equal(civil_days(1970, 1, 1), 0);
    assert_int_equal(civil_days(2026, 13, 0), civil_days(2026, 12, 31));
    assert_int_equal(civil_days(2026, -11, 1), civil_days(2025, 1, 1));
    assert_int_equal(civil_days(2026, 2, 31), civil_days(2026, 3, 3));
}

/* Our reading of TZif against the C library's, from before the first change until long after the last one listed. */
static void zones_agree_with_the_c_library(void **state)
{
    (void)state;
    static const char *const names[] = {"America/New_York",  "America/St_Johns",
                                        "Europe/Berlin",     "Europe/Dublin",
                                        "Asia/Kolkata",      "Pacific/Auckland",
                                        "Africa/Casablanca", "Asia/Gaza",
                                        "Antarctica/Troll",  "Australia/Lord_Howe",
                                        "Pacific/Apia",      "America/Nuuk",
                                        "Asia/Tehran",       "UTC",
                                        "Etc/GMT+5",         "EST5EDT"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct err e = ERR_INIT;
        CLEANUP(zone_freep) struct zone *z = NULL;
        assert_ok(zone_load(&z, names[i], &e), &e);
        setenv("TZ", names[i], 1);
        tzset();
        for (int64_t t = INT64_C(-2000000000); t < INT64_C(7000000000); t += 86400 * 3 + 3571) {
            struct tm tm;
            time_t tt = t;
            assert_non_null(localtime_r(&tt, &tm));
            if (tm.tm_gmtoff != zone_offset(z, t))
                fail_msg("%s at %lld: %ld, we say %lld", names[i], (long long)t, tm.tm_gmtoff,
                         (long long)zone_offset(z, t));
        }
    }
    unsetenv("TZ");
    tzset();
}

static void unknown_zones_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"Mars/Olympus",        "",       "/etc/passwd",
                                        "../../../etc/passwd", "Europe", "tzdata.zi"};
    struct retention_policy p = {1, 1, 1, 1, 1, 1};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct err e = ERR_INIT;
        assert_true(retention_apply(&p, NULL, 0, names[i], &e) < 0);
        assert_int_equal(e.cls, ERR_USAGE);
        assert_true(retention_apply(&p, NULL, 0, names[i], NULL) < 0);
    }
}

static void damaged_zones_are_refused_or_harmless(void **state)
{
    (void)state;
    CLEANUP_FCLOSE FILE *f = fopen("/usr/share/zoneinfo/America/New_York", "r");
    assert_non_null(f);
    uint8_t data[8192];
    size_t len = fread(data, 1, sizeof data, f);
    assert_true(len > 1000 && len < sizeof data);
    struct err e = ERR_INIT;
    for (size_t cut = 0; cut < len; cut++) {
        CLEANUP_FREE uint8_t *exact = malloc(cut + 1);
        memcpy(exact, data, cut);
        CLEANUP(zone_freep) struct zone *z = NULL;
        if (!zone_parse(&z, exact, cut, &e))
            zone_offset(z, INT64_C(4000000000));
    }
    for (size_t bit = 0; bit < len * 8; bit++) {
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CLEANUP(zone_freep) struct zone *z = NULL;
        if (!zone_parse(&z, data, len, &e))
            for (int64_t t = INT64_C(-9000000000); t < INT64_C(9000000000); t += INT64_C(1000000007))
                zone_offset(z, t);
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_histories),
        cmocka_unit_test(golden_histories_in_the_local_zone),
        cmocka_unit_test(order_of_input_does_not_matter),
        cmocka_unit_test(documented_examples),
        cmocka_unit_test(extreme_settings_and_times_do_no_harm),
        cmocka_unit_test(calendar_is_gregorian),
        cmocka_unit_test(zones_agree_with_the_c_library),
        cmocka_unit_test(unknown_zones_are_refused),
        cmocka_unit_test(damaged_zones_are_refused_or_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
