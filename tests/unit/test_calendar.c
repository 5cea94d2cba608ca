/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_calendar.c - calendar events (CF-45): the examples of systemd.time(7), changes of clocks in several zones,
 * random events against a second way of finding their times, what is refused, hostile text
 */
#include "base/time.h"
#include "daemon/schedule/calendar.h"

#include "tests/unit/test.h"

#include <stdbool.h>
#include <time.h>

static int64_t utc(const char *text)
{
    struct tm tm = {0};
    const char *end = strptime(text, "%Y-%m-%d %H:%M:%S", &tm);
    assert_non_null(end);
    return timegm(&tm) * NS_PER_S;
}

static struct calendar *parse(const char *text)
{
    struct calendar *c = NULL;
    struct err e = ERR_INIT;
    assert_ok(calendar_parse(&c, text, &e), &e);
    return c;
}

static void zone(const char *tz)
{
    setenv("TZ", tz, 1);
    tzset();
}

struct example {
    const char *text, *after, *next; /* UTC; next NULL: never */
};

static void check_examples(const struct example *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct calendar *c = parse(x[i].text);
        int64_t want = x[i].next ? utc(x[i].next) : INT64_MAX, got = calendar_next(c, utc(x[i].after));
        if (got != want)
            fail_msg("%s after %s: %lld, not %s", x[i].text, x[i].after, (long long)(got / NS_PER_S),
                     x[i].next ? x[i].next : "never");
        calendar_free(c);
    }
}
#define CHECK(list) check_examples(list, sizeof list / sizeof *list)

static void examples(void **state)
{
    (void)state;
    static const struct example list[] = {
        {"minutely", "2026-11-21 14:03:20", "2026-11-21 14:04:00"},
        {"hourly", "2026-11-21 14:00:00", "2026-11-21 15:00:00"},
        {"daily", "2026-12-31 00:00:00", "2027-01-01 00:00:00"},
        {"weekly", "2026-11-21 14:00:00", "2026-11-23 00:00:00"},
        {"monthly", "2026-01-01 00:00:00", "2026-02-01 00:00:00"},
        {"quarterly", "2026-01-01 00:00:00", "2026-04-01 00:00:00"},
        {"SemiAnnually", "2026-11-21 14:00:00", "2027-01-01 00:00:00"},
        {"yearly", "2026-11-21 14:00:00", "2027-01-01 00:00:00"},
        {"annually", "2026-11-21 14:00:00", "2027-01-01 00:00:00"},
        {"Sat,Thu,Mon-Wed,Sat-Sun", "2026-11-20 00:00:00", "2026-11-21 00:00:00"},
        {"Mon,Sun 2026-*-* 2,1:23", "2026-11-21 00:00:00", "2026-11-22 01:23:00"},
        {"Wed *-1", "2026-11-21 00:00:00", "2027-09-01 00:00:00"}, /* month *, day 1 */
        {"Wed..Wed,Wed *-1", "2026-11-21 00:00:00", "2027-09-01 00:00:00"},
        {"Wed, 17:48", "2026-11-21 00:00:00", "2026-11-25 17:48:00"},
        {"Wed..Sat,Tue 12-10-15 1:2:3", "2011-01-01 00:00:00", NULL}, /* a Monday */
        {"10-15", "2026-11-21 00:00:00", "2027-10-15 00:00:00"},
        {"monday *-12-* 17:00", "2026-11-21 00:00:00", "2026-12-07 17:00:00"},
        {"Mon,Fri *-*-3,1,2 *:30:45", "2026-11-21 00:00:00", "2027-01-01 00:30:45"},
        {"12,14,13,12:20,10,30", "2026-11-21 12:30:00", "2026-11-21 13:10:00"},
        {"12..14:10,20,30", "2026-11-21 14:30:00", "2026-11-22 12:10:00"},
        {"03-05 08:05:40", "2026-11-21 00:00:00", "2027-03-05 08:05:40"},
        {"08:05:40", "2026-11-21 08:05:40", "2026-11-22 08:05:40"},
        {"Sat,Sun 12-05 08:05:40", "2026-11-21 00:00:00", "2026-12-05 08:05:40"},
        {"2003-03-05 05:40", "2003-03-05 05:39:59", "2003-03-05 05:40:00"},
        {"2003-03-05 05:40", "2003-03-05 05:40:00", NULL},
        {"03-05", "2026-11-21 00:00:00", "2027-03-05 00:00:00"},
        {"*:20/15", "2026-11-21 00:21:00", "2026-11-21 00:35:00"},
        {"*:20/15", "2026-11-21 00:50:00", "2026-11-21 01:20:00"},
        {"*:0/17", "2026-11-21 00:51:00", "2026-11-21 01:00:00"},
        {"*-*-7,17,27 00:00:00", "2026-11-21 00:00:00", "2026-11-27 00:00:00"},
        {"0/6:15", "2026-11-21 07:00:00", "2026-11-21 12:15:00"},
        {"*-*-* 22..23,0..5/5:00", "2026-11-21 00:00:00", "2026-11-21 05:00:00"},
        {"26-11-25", "2026-11-21 00:00:00", "2026-11-25 00:00:00"}, /* years of two digits */
        {"99-11-25", "1999-01-01 00:00:00", "1999-11-25 00:00:00"},
        {"*-02-29", "2026-11-21 00:00:00", "2028-02-29 00:00:00"},
        {"*-02-29", "2096-02-29 00:00:00", "2104-02-29 00:00:00"}, /* 2100 is no leap year */
        {"Mon *-02-29", "2026-11-21 00:00:00", "2044-02-29 00:00:00"},
        {"*-02-30", "2026-11-21 00:00:00", NULL},
        {"*-04-31", "2026-11-21 00:00:00", NULL},
        {"*-*-31", "2026-01-31 00:00:00", "2026-03-31 00:00:00"},
        {"*-02~1", "2026-11-21 00:00:00", "2027-02-28 00:00:00"},
        {"*-02~01", "2027-11-21 00:00:00", "2028-02-29 00:00:00"},
        {"*-*~1", "2026-11-21 00:00:00", "2026-11-30 00:00:00"},
        {"*~1 23:00", "2026-11-30 23:00:00", "2026-12-31 23:00:00"},
        {"*-05~07/1", "2026-05-26 00:00:00", "2026-05-27 00:00:00"},     /* the last seven days */
        {"Mon *-05~07/1", "2026-01-01 00:00:00", "2026-05-25 00:00:00"}, /* the last Monday */
        {"*-*~1..3", "2026-11-27 12:00:00", "2026-11-28 00:00:00"},
        {"*-*~3..14/10", "2031-01-01 00:00:00", "2031-01-19 00:00:00"}, /* counted from the nearer end */
        {"Mon..Fri 02:00", "2026-11-20 02:00:00", "2026-11-23 02:00:00"},
        {"2030-01-01..02", "2026-11-21 00:00:00", "2030-01-01 00:00:00"},
        {"2199-12-31 23:59:59", "2026-11-21 00:00:00", "2199-12-31 23:59:59"},
        {"daily", "2199-12-31 00:00:00", NULL},
        {"daily", "1960-05-01 00:00:00", "1970-01-01 00:00:00"},
        {"daily UTC", "2026-11-21 00:00:00", "2026-11-22 00:00:00"},
        {"Sat 03:00 Europe/Berlin", "2026-11-21 00:00:00", "2026-11-21 02:00:00"},
        {"12:00 Asia/Kolkata", "2026-11-21 00:00:00", "2026-11-21 06:30:00"},
        {"weekly America/New_York", "2026-11-21 00:00:00", "2026-11-23 05:00:00"},
        {"monthly utc", "2026-11-21 00:00:00", "2026-12-01 00:00:00"},
    };
    zone("UTC");
    CHECK(list);
    struct calendar *c = parse("*:*:10.5,20/0.25");
    int64_t t = utc("2026-11-21 00:00:00");
    static const int64_t ms[] = {10500, 20000, 20250, 20500};
    int64_t at = t;
    for (int i = 0; i < 4; i++) {
        at = calendar_next(c, at);
        assert_int_equal((at - t) / 1000000, ms[i]);
    }
    /* Strictly after, to the nanosecond. */
    assert_int_equal(calendar_next(c, t + 10500 * INT64_C(1000000) - 1), t + 10500 * INT64_C(1000000));
    assert_int_equal(calendar_next(c, t + 10500 * INT64_C(1000000) + 1), t + 20 * NS_PER_S);
    calendar_free(c);
}

/* What exists twice runs once, the first time; what does not exist runs when the clock has gone over it. */
static void changes_of_clocks(void **state)
{
    (void)state;
    static const struct example berlin[] = {
        {"02:30", "2026-10-24 12:00:00", "2026-10-25 00:30:00"}, /* summer time still */
        {"02:30", "2026-10-25 00:30:00", "2026-10-26 01:30:00"}, /* not again an hour later */
        {"02:30", "2026-10-25 01:10:00", "2026-10-26 01:30:00"},
        {"hourly", "2026-10-25 00:00:00", "2026-10-25 02:00:00"},
        {"hourly", "2026-10-25 01:30:00", "2026-10-25 02:00:00"},
        {"*:0/30", "2026-10-25 00:30:00", "2026-10-25 02:00:00"},
        {"02:30", "2026-03-28 12:00:00", "2026-03-29 01:00:00"}, /* there is no 02:30: at 03:00 */
        {"02:30", "2026-03-29 01:00:00", "2026-03-30 00:30:00"},
        {"02:00", "2026-03-28 12:00:00", "2026-03-29 01:00:00"},
        {"*:0/30", "2026-03-29 00:30:00", "2026-03-29 01:00:00"},
        {"*:0/30", "2026-03-29 01:00:00", "2026-03-29 01:30:00"},
        {"hourly", "2026-03-29 00:00:00", "2026-03-29 01:00:00"},
        {"hourly", "2026-03-29 01:00:00", "2026-03-29 02:00:00"},
        {"2026-03-29 02:59:59", "2026-01-01 00:00:00", "2026-03-29 01:00:00"},
        {"2026-03-29 02:59:59", "2026-03-29 01:00:00", NULL},
        {"Sun 02:30 UTC", "2026-10-24 12:00:00", "2026-10-25 02:30:00"},
    };
    static const struct example new_york[] = {
        {"01:30", "2026-11-01 04:00:00", "2026-11-01 05:30:00"},
        {"01:30", "2026-11-01 05:30:00", "2026-11-02 06:30:00"},
        {"02:15", "2026-03-08 06:00:00", "2026-03-08 07:00:00"},
        {"daily", "2026-11-01 05:00:00", "2026-11-02 05:00:00"}, /* a day of 25 hours */
        {"daily", "2026-03-08 05:00:00", "2026-03-09 04:00:00"}, /* of 23 */
    };
    static const struct example lord_howe[] = {/* half an hour: 02:00 goes back to 01:30, on to 02:30 */
                                               {"01:45", "2026-04-04 14:00:00", "2026-04-04 14:45:00"},
                                               {"01:45", "2026-04-04 14:45:00", "2026-04-05 15:15:00"},
                                               {"02:10", "2026-10-03 15:00:00", "2026-10-03 15:30:00"},
                                               {"02:30", "2026-10-03 15:00:00", "2026-10-03 15:30:00"}};
    static const struct example apia[] = {/* 30 December 2011 did not exist */
                                          {"2011-12-30 12:00", "2011-01-01 00:00:00", "2011-12-30 10:00:00"},
                                          {"daily", "2011-12-29 10:00:00", "2011-12-30 10:00:00"},
                                          {"daily", "2011-12-30 10:00:00", "2011-12-31 10:00:00"}};
    static const struct example sao_paulo[] = {/* midnight did not exist */
                                               {"daily", "2018-11-03 12:00:00", "2018-11-04 03:00:00"},
                                               {"daily", "2018-11-04 03:00:00", "2018-11-05 02:00:00"}};
    zone("Europe/Berlin");
    CHECK(berlin);
    zone("America/New_York");
    CHECK(new_york);
    zone("Australia/Lord_Howe");
    CHECK(lord_howe);
    zone("Pacific/Apia");
    CHECK(apia);
    zone("America/Sao_Paulo");
    CHECK(sao_paulo);
    /* Every microsecond, from within the hour that comes twice: at once. */
    zone("Europe/Berlin");
    struct calendar *c = parse("*:*:0/0.000001");
    assert_int_equal(calendar_next(c, utc("2026-10-25 01:10:00")), utc("2026-10-25 02:00:00"));
    calendar_free(c);
    zone("UTC");
}

/* ---- random events, found a second way ---- */

struct wish {
    char text[320];
    uint8_t weekdays;
    uint32_t months, days, hours;
    uint64_t minutes;
    bool from_end;
};

/* A list of some values, as single numbers, ranges or steps. */
static uint64_t random_list(uint64_t *seed, int from, int to, char *out)
{
    if (splitmix64(seed) % 3 == 0) {
        strcpy(out, "*");
        return ~UINT64_C(0);
    }
    uint64_t set = 0;
    char *p = out;
    for (int n = 1 + (int)(splitmix64(seed) % 2); n; n--) {
        int a = from + (int)(splitmix64(seed) % (uint64_t)(to - from + 1)), b = a, step = 1;
        switch (splitmix64(seed) % 3) {
        case 0:
            p += sprintf(p, "%02d", a);
            break;
        case 1:
            b = a + (int)(splitmix64(seed) % (uint64_t)(to - a + 1));
            p += sprintf(p, "%d..%d", a, b);
            break;
        default:
            step = 1 + (int)(splitmix64(seed) % 5);
            b = to;
            if (a + step > to) {
                b = a;
                p += sprintf(p, "%d", a);
            } else {
                p += sprintf(p, "%d/%d", a, step);
            }
        }
        for (; a <= b; a += step)
            set |= UINT64_C(1) << a;
        if (n > 1)
            *p++ = ',';
    }
    *p = '\0';
    return set;
}

static void random_wish(struct wish *w, uint64_t *seed)
{
    static const char *const days[] = {"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"};
    char months[64], mdays[64], hours[64], minutes[64], weekday[16] = "";
    *w = (struct wish){.weekdays = 127};
    if (splitmix64(seed) % 3 == 0) {
        int d = (int)(splitmix64(seed) % 7);
        w->weekdays = (uint8_t)(1 << d);
        sprintf(weekday, "%s ", days[d]);
    }
    w->from_end = splitmix64(seed) % 4 == 0;
    w->months = (uint32_t)random_list(seed, 1, 12, months);
    if (w->from_end) {
        int d = 1 + (int)(splitmix64(seed) % 28);
        w->days = UINT32_C(1) << d;
        sprintf(mdays, "%d", d);
    } else {
        w->days = (uint32_t)random_list(seed, 1, 31, mdays);
    }
    w->hours = (uint32_t)random_list(seed, 0, 23, hours);
    w->minutes = random_list(seed, 0, 59, minutes);
    sprintf(w->text, "%s*-%s%c%s %s:%s", weekday, months, w->from_end ? '~' : '-', mdays, hours, minutes);
}

static bool matches(const struct wish *w, int64_t sec)
{
    time_t t = sec;
    struct tm tm;
    localtime_r(&t, &tm);
    int weekday = (tm.tm_wday + 6) % 7, day = tm.tm_mday;
    if (w->from_end) { /* how many days from here to the first of the next month */
        struct tm next = {.tm_year = tm.tm_year, .tm_mon = tm.tm_mon + 1, .tm_mday = 1, .tm_hour = 12, .tm_isdst = -1};
        struct tm here = {
            .tm_year = tm.tm_year, .tm_mon = tm.tm_mon, .tm_mday = tm.tm_mday, .tm_hour = 12, .tm_isdst = -1};
        day = (int)((timegm(&next) - timegm(&here)) / 86400);
    }
    return w->weekdays >> weekday & 1 && w->months >> (tm.tm_mon + 1) & 1 && w->days >> day & 1 &&
           w->hours >> tm.tm_hour & 1 && w->minutes >> tm.tm_min & 1 && tm.tm_sec == 0;
}

/* No change of clocks within two days. */
static bool quiet_time(int64_t sec)
{
    time_t a = sec - 172800, b = sec + 172800;
    struct tm x, y;
    localtime_r(&a, &x);
    localtime_r(&b, &y);
    return x.tm_gmtoff == y.tm_gmtoff;
}

static void random_events(void **state)
{
    (void)state;
    static const char *const zones[] = {"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe",
                                        "Asia/Kolkata"};
    uint64_t seed = 20261121;
    unsigned walked = 0;
    for (int i = 0; i < 1500; i++) {
        struct wish w;
        random_wish(&w, &seed);
        zone(zones[i % 5]);
        struct calendar *c = parse(w.text);
        int64_t after = (INT64_C(1577836800) + (int64_t)(splitmix64(&seed) % 500000000)) * NS_PER_S;
        for (int k = 0; k < 3; k++) {
            int64_t next = calendar_next(c, after);
            if (next == INT64_MAX)
                break;
            assert_true(next > after);
            if (quiet_time(next / NS_PER_S) && !matches(&w, next / NS_PER_S))
                fail_msg("\"%s\" in %s: %lld does not match", w.text, zones[i % 5], (long long)(next / NS_PER_S));
            /* Nothing in between: minute by minute, as far as that is not too far. */
            int64_t from = after / NS_PER_S + 1, to = next / NS_PER_S;
            if (to - from > 2 * 86400)
                from = to - 2 * 86400;
            for (int64_t m = from - from % 60 + 60; m < to; m += 60) {
                if (m > from && quiet_time(m) && matches(&w, m))
                    fail_msg("\"%s\" in %s after %lld: %lld was passed over", w.text, zones[i % 5],
                             (long long)(after / NS_PER_S), (long long)m);
                walked++;
            }
            after = next;
        }
        calendar_free(c);
    }
    assert_true(walked > 1000);
    zone("UTC");
}

/* Forward and never twice: a year of hours in zones whose clocks change. */
static void time_only_goes_on(void **state)
{
    (void)state;
    static const char *const zones[] = {"Europe/Berlin", "America/New_York", "Australia/Lord_Howe",
                                        "Africa/Casablanca"};
    for (unsigned i = 0; i < 4; i++) {
        zone(zones[i]);
        struct calendar *c = parse("*:0/20");
        int64_t t = utc("2026-01-01 00:00:00"), end = utc("2027-01-01 00:00:00");
        unsigned n = 0, odd = 0;
        char last[32] = "", text[32];
        while ((t = calendar_next(c, t)) < end) {
            time_t s = (time_t)(t / NS_PER_S);
            struct tm tm;
            localtime_r(&s, &tm);
            strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &tm);
            assert_true(strcmp(text, last) > 0); /* no local time comes twice */
            odd += tm.tm_min % 20 != 0;
            memcpy(last, text, sizeof last);
            n++;
        }
        assert_true(odd <= 1); /* Lord Howe's 02:30, for 02:00 and 02:20 */
        assert_in_range(n, 365 * 72 - 4, 365 * 72);
        calendar_free(c);
    }
    zone("UTC");
}

/* ---- refused ---- */

static void refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "empty"},
        {"2", ""},
        {"daily daily", ""},
        {"bla", ""},
        {"Mon..Frx 10:00", "Frx"},
        {"Fri..Mon", "end before start"},
        {"Mon..", "incomplete"},
        {"Mon.Tue", ""},
        {"Mon..Wed..Fri", ""},
        {",Mon", ""},
        {"Mon, bla", "bla"},
        {"*-13-01", "month 13 is not"},
        {"*-00-01", "month 0 is not"},
        {"*-*-32", "day 32 is not"},
        {"*-*-0", "day 0 is not"},
        {"*-*~29", "within 1 to 28"},
        {"2200-01-01", "year 2200 is not"},
        {"1969-01-01", "year 1969 is not"},
        {"24:00", "hour 24 is not within 0 to 23"},
        {"12:60", "minute 60 is not"},
        {"12:00:60", "second 60 is not"},
        {"12:00:00:00", "\":00\""},
        {"12", ""},
        {"12:", "incomplete"},
        {"1..0:00", "end before start"},
        {"*:0/0", "step"},
        {"*:0/60", "step"},
        {"*:30/45", "has no second value"},
        {"*:*/5", "\"/5\""},
        {"*:5..5..6", ""},
        {"*-*~1-1", ""},
        {"*-*-*-*", ""},
        {"02:00 ", "unexpected"},
        {" daily", ""},
        {"daily Europe/Nowhere", "Europe/Nowhere"},
        {"daily ../../etc/passwd", ""},
        {" UTC", ""},
        {"*:*:0.", ""},
        {"*:*:1..1.5", "less than a second"},
        {"99999999999999999999:00", "too large"},
        {"*-*-1,,2", ""},
        {"*-*-1,", "incomplete"},
        {"--", ""},
        {"~", ""},
        {":", ""},
        {"*", ""},
        {"@1234567890", ""},
        {"*-*-* 10:00\n", ""},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct calendar *c = NULL;
        struct err e = ERR_INIT;
        if (calendar_parse(&c, bad[i].text, &e) >= 0)
            fail_msg("\"%s\" was taken", bad[i].text);
        assert_null(c);
        assert_int_equal(e.cls, ERR_USAGE);
        if (!strstr(e.msg, bad[i].says) || !e.hint[0])
            fail_msg("\"%s\": %s", bad[i].text, e.msg);
    }
}

static void hostile(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct calendar *c = NULL;
    char *big CLEANUP_FREE = malloc(1 << 20);
    memset(big, ',', 1 << 20);
    for (int i = 0; i < 1 << 20; i += 2)
        big[i] = '1';
    big[(1 << 20) - 1] = '\0';
    assert_int_equal(calendar_parse(&c, big, &e), -EINVAL);
    char many[1000] = "*-*-1";
    for (int i = 0; i < 250; i++)
        strcat(many, ",1");
    e = (struct err)ERR_INIT;
    assert_int_equal(calendar_parse(&c, many, &e), -EINVAL);
    assert_non_null(strstr(e.msg, "240"));
    static const char *const seeds[] = {"Mon..Fri *-*-1..7,9/3 02:00/15:30.5 Europe/Berlin", "*-02~1..3/2 0/3:0/7:0/9",
                                        "Sat,Sun 2026..2030/2-01-01", "semiannually UTC"};
    static const char letters[] = "0123456789*-~:,./. MonTueSatUTC@";
    uint64_t seed = 7;
    unsigned taken = 0;
    for (int i = 0; i < 60000; i++) {
        char text[64];
        strcpy(text, seeds[i % 4]);
        for (uint64_t k = splitmix64(&seed) % 4 + 1; k; k--)
            text[splitmix64(&seed) % strlen(text)] = letters[splitmix64(&seed) % (sizeof letters - 1)];
        if (splitmix64(&seed) % 4 == 0)
            text[splitmix64(&seed) % strlen(text)] = '\0';
        c = NULL;
        if (calendar_parse(&c, text, &e) < 0)
            continue;
        int64_t t = (int64_t)(splitmix64(&seed) % 2000000000) * NS_PER_S;
        for (int k = 0; k < 3 && t != INT64_MAX; k++) {
            int64_t next = calendar_next(c, t);
            assert_true(next > t);
            t = next;
        }
        calendar_free(c);
        taken++;
    }
    assert_true(taken > 500);
    c = parse("*:*");
    assert_int_equal(calendar_next(c, INT64_MIN), 0); /* 1970 */
    assert_int_equal(calendar_next(c, INT64_MAX - 1), INT64_MAX);
    calendar_free(c);
}

/* Of copies, and of verification. */
static void due_and_overdue(void **state)
{
    (void)state;
    const int64_t day = 86400 * NS_PER_S, now = 20000 * day + 1;
    struct calendar_runs r = {"*-*-* 00:00 UTC", 0, 0, 0};
    int64_t next, late;
    calendar_due(&r, 3, now, &next, &late);
    assert_true(next == 20001 * day && late == 0); /* it counts from when it is seen */
    r.since_ns = now - 4 * day;
    calendar_due(&r, 3, now, &next, &late);
    assert_true(next == 19997 * day && late == r.since_ns);
    r.tried_ns = now - 1;
    calendar_due(&r, 3, now, &next, &late);
    assert_true(next == 20000 * day || next == 20001 * day);
    assert_true(late == r.since_ns); /* none of them counts */
    r.done_ns = now - day;
    calendar_due(&r, 3, now, &next, &late);
    assert_int_equal(late, 0);
    r.tried_ns = now + 5 * day; /* the clock was set back */
    calendar_due(&r, 3, now, &next, &late);
    assert_true(next == 20001 * day);
    for (unsigned i = 0; i < 2; i++) {
        r.on_calendar = i ? "often" : "";
        calendar_due(&r, 3, now, &next, &late);
        assert_true(next == INT64_MAX && late == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(examples),          cmocka_unit_test(changes_of_clocks), cmocka_unit_test(random_events),
        cmocka_unit_test(time_only_goes_on), cmocka_unit_test(refused),           cmocka_unit_test(hostile),
        cmocka_unit_test(due_and_overdue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
