/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * calendar.c - calendar events of systemd.time(7): parsing, and their occurrences
 *
 * Local times are searched as dates of the civil calendar; only a result is converted to a moment, because a local time
 * may exist once, twice or not at all. Seconds have fractions of down to a microsecond, as systemd's.
 */
#include "daemon/schedule/calendar.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "base/zone.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SECOND 1000000 /* microseconds */
#define DAY_US (S_PER_DAY * SECOND)
#define FIRST_YEAR 1970
#define LAST_YEAR 2199
#define TEXT_MAX 1024
#define PARTS_MAX 240 /* of one list */
#define SHORTEST_MONTH 28

enum field { YEAR, MONTH, DAY, HOUR, MINUTE, MICROSECOND, FIELDS };

static const struct {
    const char *name;
    int from, to;
} fields[FIELDS] = {
    {"year", FIRST_YEAR, LAST_YEAR}, {"month", 1, 12}, {"day", 1, 31}, {"hour", 0, 23}, {"minute", 0, 59},
    {"second", 0, 60 * SECOND - 1}};

/* start, start+repeat, ... up to stop (-1: to the end of the field); repeat 0: start alone. */
struct part {
    int start, stop, repeat;
};

/* NULL: any value. */
struct list {
    struct part *parts;
    size_t n;
};

struct calendar {
    uint8_t weekdays; /* bit 0: Monday; 0: any */
    bool from_end;    /* days count from the end of the month */
    struct list field[FIELDS];
    struct zone *zone;
};

void calendar_free(struct calendar *c)
{
    if (!c)
        return;
    for (int i = 0; i < FIELDS; i++)
        free(c->field[i].parts);
    zone_free(c->zone);
    free(c);
}

/* ---- reading ---- */

struct reader {
    const char *text; /* the whole of it, for messages */
    const char *p;
    struct err *e;
};

__attribute__((format(printf, 2, 3))) static int bad(const struct reader *r, const char *fmt, ...)
{
    char why[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    err_set(r->e, ERR_USAGE, EINVAL, "invalid calendar event \"%.200s\": %s", r->text, why);
    err_hint(r->e, "see systemd.time(7), and test it with `systemd-analyze calendar`");
    return -EINVAL;
}

static int unexpected_text(const struct reader *r)
{
    return *r->p ? bad(r, "unexpected \"%.40s\"", r->p) : bad(r, "incomplete");
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Up to six digits of a fraction count, the rest must be digits. */
static int read_fraction(struct reader *r, int64_t *v)
{
    if (!is_digit(*r->p))
        return unexpected_text(r);
    for (int64_t unit = SECOND / 10; is_digit(*r->p); r->p++, unit /= 10)
        *v += (*r->p - '0') * unit;
    return 0;
}

static int read_number(struct reader *r, enum field f, int *ret)
{
    if (!is_digit(*r->p))
        return unexpected_text(r);
    int64_t v = 0;
    const char *from = r->p;
    for (; is_digit(*r->p); r->p++) {
        v = v * 10 + (*r->p - '0');
        if (v > 9999)
            return bad(r, "number %.20s too large", from);
    }
    if (f == MICROSECOND) {
        v *= SECOND;
        if (r->p[0] == '.' && r->p[1] != '.') {
            r->p++;
            int rc = read_fraction(r, &v);
            if (rc < 0)
                return rc;
        }
    }
    if (v > INT_MAX)
        return bad(r, "number %.20s too large", from);
    *ret = (int)v;
    return 0;
}

static int add_part(struct list *l, const struct part *p, struct err *e)
{
    struct part *parts = realloc(l->parts, (l->n + 1) * sizeof *parts);
    if (!parts)
        return err_nomem(e);
    l->parts = parts;
    l->parts[l->n++] = *p;
    return 0;
}

static int read_part(struct reader *r, enum field f, struct part *p)
{
    *p = (struct part){.stop = -1};
    int rc = read_number(r, f, &p->start);
    if (rc == 0 && r->p[0] == '.' && r->p[1] == '.') {
        r->p += 2;
        rc = read_number(r, f, &p->stop);
        p->repeat = f == MICROSECOND ? SECOND : 1;
    }
    if (rc == 0 && *r->p == '/') {
        r->p++;
        rc = read_number(r, f, &p->repeat);
        if (rc == 0 && !p->repeat)
            return bad(r, "step must be greater than 0");
    } else if (rc == 0 && f == MICROSECOND && p->stop >= 0 && p->start + SECOND > p->stop) {
        return bad(r, "range of less than a second without a step");
    }
    if (rc == 0 && *r->p && !strchr(" ,-~:", *r->p))
        return unexpected_text(r);
    return rc;
}

/* "*", or numbers, ranges and steps with commas between them. */
static int read_list(struct reader *r, enum field f, struct list *l)
{
    if (*r->p == '*') {
        r->p++;
        return 0;
    }
    for (;;) {
        struct part p;
        int rc = read_part(r, f, &p);
        if (rc == 0 && l->n == PARTS_MAX)
            return bad(r, "list of more than %d parts", PARTS_MAX);
        if (rc == 0)
            rc = add_part(l, &p, r->e);
        if (rc < 0 || *r->p != ',')
            return rc;
        r->p++;
    }
}

static const char *const day_names[7] = {"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"};

/* Length of the name of a day at p, long or of three letters; 0: none. */
static size_t day_name(const char *p, int *day)
{
    for (*day = 0; *day < 7; (*day)++) {
        size_t n = strlen(day_names[*day]);
        if (!strncasecmp(p, day_names[*day], n))
            return n;
    }
    for (*day = 0; *day < 7; (*day)++) {
        if (!strncasecmp(p, day_names[*day], 3))
            return 3;
    }
    return 0;
}

static int read_weekdays(struct reader *r, struct calendar *c)
{
    int from = -1, day;
    for (bool first = true;; first = false) {
        size_t n = day_name(r->p, &day);
        if (!n)
            return first ? 0 : bad(r, "unknown day of the week \"%.40s\"", r->p);
        if (r->p[n] && !strchr("-., ", r->p[n]))
            return bad(r, "unknown day of the week \"%.40s\"", r->p);
        if (from > day)
            return bad(r, "range of days with end before start (weeks start on Monday)");
        for (int i = from < 0 ? day : from; i <= day; i++)
            c->weekdays |= (uint8_t)(1 << i);
        r->p += n;
        bool range = *r->p == '-' || (r->p[0] == '.' && r->p[1] == '.'), open = range || *r->p == ',';
        if (range && from >= 0)
            return unexpected_text(r);
        from = range ? day : -1;
        r->p += open ? (*r->p == '.' ? 2 : 1) : 0;
        if (*r->p == '.' && !range)
            return unexpected_text(r);
        if (!*r->p || *r->p == ' ') { /* a comma may be the last, a range must end */
            if (range)
                return unexpected_text(r);
            r->p += strspn(r->p, " ");
            return 0;
        }
        if (!open)
            return unexpected_text(r);
    }
}

static void move_list(struct list *to, struct list *from)
{
    *to = *from;
    *from = (struct list){0};
}

static void free_list(struct list *l)
{
    free(l->parts);
}

/* [YEAR-]MONTH-DAY, the last sign "~" for days from the end. 1: there is one, 0: it begins with a time. */
static int read_date(struct reader *r, struct calendar *c)
{
    const char *start = r->p;
    struct list first CLEANUP(free_list) = {0};
    if (!*r->p)
        return 0;
    int rc = read_list(r, YEAR, &first);
    if (rc < 0)
        return rc;
    if (!*r->p || *r->p == ':') {
        r->p = start;
        return 0;
    }
    if (*r->p != '-' && *r->p != '~')
        return unexpected_text(r);
    c->from_end = *r->p++ == '~';
    rc = read_list(r, MONTH, &c->field[MONTH]);
    if (rc < 0)
        return rc;
    if (!*r->p || *r->p == ' ') { /* two of them: month and day */
        move_list(&c->field[DAY], &c->field[MONTH]);
        move_list(&c->field[MONTH], &first);
    } else {
        if (c->from_end || (*r->p != '-' && *r->p != '~'))
            return unexpected_text(r);
        c->from_end = *r->p++ == '~';
        move_list(&c->field[YEAR], &first);
        rc = read_list(r, DAY, &c->field[DAY]);
        if (rc < 0)
            return rc;
        if (*r->p && *r->p != ' ')
            return unexpected_text(r);
    }
    r->p += strspn(r->p, " ");
    return 1;
}

static int set_zero(struct list *l, struct err *e)
{
    return add_part(l, &(struct part){.stop = -1}, e);
}

/* HOUR:MINUTE[:SECOND]; none: midnight. */
static int read_time(struct reader *r, struct calendar *c)
{
    int rc = 0;
    if (!*r->p) {
        for (enum field f = HOUR; f < FIELDS && rc == 0; f++)
            rc = set_zero(&c->field[f], r->e);
        return rc;
    }
    rc = read_list(r, HOUR, &c->field[HOUR]);
    if (rc < 0)
        return rc;
    if (*r->p++ != ':') {
        r->p--;
        return unexpected_text(r);
    }
    rc = read_list(r, MINUTE, &c->field[MINUTE]);
    if (rc < 0)
        return rc;
    if (!*r->p)
        return set_zero(&c->field[MICROSECOND], r->e);
    if (*r->p != ':')
        return unexpected_text(r);
    r->p++;
    if (*r->p == '*') {
        r->p++;
        rc = add_part(&c->field[MICROSECOND], &(struct part){.stop = -1, .repeat = SECOND}, r->e);
    } else {
        rc = read_list(r, MICROSECOND, &c->field[MICROSECOND]);
    }
    return rc == 0 && *r->p ? unexpected_text(r) : rc;
}

static int check_part(const struct reader *r, enum field f, struct part *p, bool from_end)
{
    const int from = fields[f].from, to = from_end ? SHORTEST_MONTH : fields[f].to;
    const double unit = f == MICROSECOND ? SECOND : 1;
    const char *name = fields[f].name;
    if (p->start < from || p->start > to || (p->stop >= 0 && (p->stop < from || p->stop > to)))
        return bad(r, "%s %g is not within %d to %d", name,
                   (p->start < from || p->start > to ? p->start : p->stop) / unit, from, f == MICROSECOND ? 59 : to);
    if (p->stop >= 0 && p->stop < p->start)
        return bad(r, "range of %ss with end before start", name);
    if (p->repeat > to - from)
        return bad(r, "step of %g %ss too long", p->repeat / unit, name);
    if (p->stop >= 0) { /* the last value that is reached: from the end, ranges are walked from there */
        p->stop -= (p->stop - p->start) % p->repeat;
        if (p->stop == p->start)
            *p = (struct part){.start = p->start, .stop = -1};
    } else if (p->repeat && (from_end ? p->start - p->repeat < from : p->start + p->repeat > to)) {
        return bad(r, "step of %g %ss has no second value", p->repeat / unit, name);
    }
    return 0;
}

static void fix_year(int *y)
{
    if (*y >= 0 && *y < 70)
        *y += 2000;
    else if (*y >= 70 && *y < 100)
        *y += 1900;
}

static int event_check(const struct reader *r, struct calendar *c)
{
    for (enum field f = 0; f < FIELDS; f++) {
        for (size_t i = 0; i < c->field[f].n; i++) {
            struct part *p = &c->field[f].parts[i];
            if (f == YEAR) {
                fix_year(&p->start);
                fix_year(&p->stop);
            }
            int rc = check_part(r, f, p, f == DAY && c->from_end);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

static const char *shorthand_expand(const char *text)
{
    static const struct {
        const char *word, *meaning;
    } words[] = {{"minutely", "*-*-* *:*:00"},     {"hourly", "*-*-* *:00:00"},     {"daily", "*-*-* 00:00:00"},
                 {"weekly", "Mon *-*-* 00:00:00"}, {"monthly", "*-*-01 00:00:00"},  {"quarterly", "*-01,04,07,10-01"},
                 {"semiannually", "*-01,07-01"},   {"semi-annually", "*-01,07-01"}, {"biannually", "*-01,07-01"},
                 {"bi-annually", "*-01,07-01"},    {"yearly", "*-01-01 00:00:00"},  {"annually", "*-01-01 00:00:00"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!strcasecmp(text, words[i].word))
            return words[i].meaning;
    }
    return text;
}

/* Takes a time zone off the end. */
static int read_zone(const struct reader *r, char *copy, struct calendar *c)
{
    char *space = strrchr(copy, ' ');
    int day;
    if (!space || !isalpha((unsigned char)space[1]) || day_name(space + 1, &day))
        return zone_load(&c->zone, NULL, r->e);
    int rc = zone_load(&c->zone, strcasecmp(space + 1, "UTC") ? space + 1 : "UTC", r->e);
    if (rc == -ENOMEM)
        return rc;
    if (rc < 0)
        return bad(r, "unknown time zone \"%.40s\"", space + 1);
    *space = '\0';
    return 0;
}

int calendar_parse(struct calendar **ret, const char *text, struct err *e)
{
    struct reader r = {.text = text, .e = e};
    char copy[TEXT_MAX];
    if (!*text)
        return bad(&r, "empty");
    if (strlen(text) >= sizeof copy)
        return bad(&r, "longer than %zu characters", sizeof copy - 1);
    memcpy(copy, text, strlen(text) + 1);
    struct calendar *c = calloc(1, sizeof *c);
    if (!c)
        return err_nomem(e);
    int rc = read_zone(&r, copy, c);
    r.p = shorthand_expand(copy);
    if (rc == 0)
        rc = *r.p ? read_weekdays(&r, c) : bad(&r, "only a time zone");
    if (rc == 0)
        rc = read_date(&r, c);
    if (rc >= 0)
        rc = read_time(&r, c);
    if (rc == 0)
        rc = event_check(&r, c);
    if (rc < 0) {
        calendar_free(c);
        return rc;
    }
    *ret = c;
    return 0;
}

/* ---- the next one ---- */

/* The smallest value of the list that is at least v and at most max; -1: none. */
static int next_value(const struct list *l, int v, int max)
{
    int best = -1;
    if (!l->parts)
        return v <= max ? v : -1;
    for (size_t i = 0; i < l->n; i++) {
        const struct part *p = &l->parts[i];
        int k = p->start;
        if (k < v && p->repeat)
            k += (int)(((int64_t)v - k + p->repeat - 1) / p->repeat) * p->repeat;
        if (k >= v && k <= max && (p->stop < 0 || k <= p->stop) && (best < 0 || k < best))
            best = k;
    }
    return best;
}

/* The same for days that are counted from the end of a month of `len` days: ~1 is its last. */
static int next_from_end(const struct list *l, int v, int len)
{
    int best = -1;
    for (size_t i = 0; i < l->n; i++) {
        const struct part *p = &l->parts[i];
        int from = len + 1 - (p->stop >= 0 ? p->stop : p->start), to = p->stop >= 0 ? len + 1 - p->start : len;
        int k = from;
        if (k < v && p->repeat)
            k += (v - k + p->repeat - 1) / p->repeat * p->repeat;
        if (k >= v && k <= to && k >= 1 && (best < 0 || k < best))
            best = k;
    }
    return best;
}

/* Time of day in microseconds, at least `from`; -1: none that day. */
static int64_t next_time(const struct calendar *c, int64_t from)
{
    int h0 = (int)(from / (3600 * (int64_t)SECOND)), m0 = (int)(from / (60 * (int64_t)SECOND) % 60),
        s0 = (int)(from % (60 * (int64_t)SECOND));
    for (int h = next_value(&c->field[HOUR], h0, 23); h >= 0; h = next_value(&c->field[HOUR], h + 1, 23)) {
        for (int m = next_value(&c->field[MINUTE], h == h0 ? m0 : 0, 59); m >= 0;
             m = next_value(&c->field[MINUTE], m + 1, 59)) {
            int s = next_value(&c->field[MICROSECOND], h == h0 && m == m0 ? s0 : 0, 60 * SECOND - 1);
            if (s >= 0)
                return (h * 60 + m) * 60 * (int64_t)SECOND + s;
        }
    }
    return -1;
}

static bool on_weekday(const struct calendar *c, int64_t day)
{
    int weekday = (int)((day + 3) % 7); /* 1970-01-01 was a Thursday; Monday = 0 */
    return !c->weekdays || c->weekdays >> (weekday < 0 ? weekday + 7 : weekday) & 1;
}

static int next_day(const struct calendar *c, int v, int len)
{
    return c->from_end && c->field[DAY].parts ? next_from_end(&c->field[DAY], v, len)
                                              : next_value(&c->field[DAY], v, len);
}

/* The first local time (microseconds of the civil calendar since 1970) that is at least `from`; INT64_MAX: none. */
static int64_t next_local(const struct calendar *c, int64_t from)
{
    int64_t first_day = civil_days(FIRST_YEAR, 1, 1) * DAY_US, y0;
    int m0, d0;
    from = from < first_day ? first_day : from;
    civil_date(from / DAY_US, &y0, &m0, &d0);
    if (y0 > LAST_YEAR)
        return INT64_MAX;
    for (int y = next_value(&c->field[YEAR], (int)y0, LAST_YEAR); y >= 0;
         y = next_value(&c->field[YEAR], y + 1, LAST_YEAR)) {
        for (int m = next_value(&c->field[MONTH], y == y0 ? m0 : 1, 12); m >= 0;
             m = next_value(&c->field[MONTH], m + 1, 12)) {
            int64_t month = civil_days(y, m, 1);
            int len = (int)(civil_days(y, m + 1, 1) - month), d = y == y0 && m == m0 ? d0 : 1;
            for (d = next_day(c, d, len); d >= 0; d = next_day(c, d + 1, len)) {
                int64_t day = month + d - 1;
                int64_t t = on_weekday(c, day) ? next_time(c, day == from / DAY_US ? from % DAY_US : 0) : -1;
                if (t >= 0)
                    return day * DAY_US + t;
            }
        }
    }
    return INT64_MAX;
}

/* The moment of a local time: the first one if there are two, *twice_until is then the time up to which local time
 * repeats; that of the change of clocks if there is none. Offsets are below a day and at least two days lie between
 * changes. */
static int64_t moment_of_local(const struct zone *z, int64_t local, int64_t *twice_until)
{
    int64_t sec = local / SECOND, lo = sec - S_PER_DAY, hi = sec + S_PER_DAY;
    int64_t before = zone_offset(z, lo), after = zone_offset(z, hi);
    *twice_until = local + 1;
    if (before == after)
        return local - before * SECOND;
    while (hi - lo > 1) { /* the change is after lo, not after hi */
        int64_t mid = lo + (hi - lo) / 2;
        if (zone_offset(z, mid) == before)
            lo = mid;
        else
            hi = mid;
    }
    if (sec - before < hi) {
        if (sec - after >= hi)
            *twice_until = (hi + before) * SECOND;
        return local - before * SECOND;
    }
    return sec - after < hi ? hi * SECOND : local - after * SECOND;
}

int64_t calendar_next(const struct calendar *c, int64_t after_ns)
{
    int64_t after = after_ns / 1000 - (after_ns % 1000 < 0);
    int64_t sec = after / SECOND - (after % SECOND < 0);
    int64_t local = after + zone_offset(c->zone, sec) * SECOND;
    for (local++;;) {
        local = next_local(c, local);
        if (local == INT64_MAX)
            return INT64_MAX;
        int64_t again, found = moment_of_local(c->zone, local, &again);
        if (found > after)
            return found * 1000;
        local = again; /* local time comes a second time, and this has run */
    }
}

/* ---- others than the next one ---- */

static int64_t max_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t calendar_latest(const struct calendar *c, int64_t from_ns, int64_t now_ns)
{
    /* Windows that grow, until one has an event in it; then the last of those few. */
    for (int64_t window = NS_PER_S / 1000;; window *= 8) {
        int64_t from = window > now_ns - from_ns ? from_ns : now_ns - window;
        int64_t t = calendar_next(c, from), last = 0;
        for (; t <= now_ns; t = calendar_next(c, t))
            last = t;
        if (last || from == from_ns)
            return last;
    }
}

#define LOOK_AHEAD_NS (32 * NS_PER_DAY) /* holds every week, and a month's first days as well as its others */
#define RUNS_MIN 10                     /* of rare ones so many, however far they are */

/*
 * Events each second are too many to enumerate. A distance longer than `step` is found by searching the first event at
 * least `step` after another: if it is in such a distance, it is its end. So the search may skip, and by more the
 * further it has advanced: what repeats each day or week is found early enough.
 */
int64_t calendar_interval_s(const struct calendar *c, int64_t now)
{
    int64_t longest = 0, before = calendar_latest(c, 0, now), t = before ? before : calendar_next(c, now);
    if (t == INT64_MAX)
        return 0;
    for (int runs = 0; t - now < LOOK_AHEAD_NS || runs < RUNS_MIN; runs++) {
        int64_t step = max_of((t - now) / 100, runs < RUNS_MIN ? 0 : longest);
        int64_t next = calendar_next(c, step > 0 ? t + step - 1 : t);
        if (next == INT64_MAX)
            break;
        /* Nothing in the `longest` before it: the distance that ends with it is the longest so far. */
        if (next - longest > t && calendar_next(c, next - longest - 1) == next)
            longest = next - calendar_latest(c, t - 1, next - 1);
        t = next;
    }
    return longest / NS_PER_S;
}

void calendar_due(const struct calendar_runs *runs, int overdue, int64_t now, int64_t *next_ns, int64_t *late_ns)
{
    struct calendar *c = NULL;
    struct err e = ERR_INIT;
    *next_ns = INT64_MAX;
    *late_ns = 0;
    if (!runs->on_calendar[0] || calendar_parse(&c, runs->on_calendar, &e) < 0)
        return; /* check-config refuses it */
    const int64_t since = runs->since_ns ? runs->since_ns : now, tried = max_of(runs->tried_ns, since),
                  done = max_of(runs->done_ns, since), late = overdue * calendar_interval_s(c, now);
    *next_ns = calendar_next(c, tried < now ? tried : now);
    if (late > 0 && now - done > late * NS_PER_S)
        *late_ns = done;
    calendar_free(c);
}
