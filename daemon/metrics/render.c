/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * render.c - samples to the text format of Prometheus
 *
 * Whatever the samples are, the text is valid: what does not fit its family is omitted and counted. A scraper rejects
 * the whole page for one malformed line.
 */
#include "daemon/metrics/render.h"

#include "base/cleanup.h"
#include "base/err.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#define PREFIX "snapferry_"
#define DROPPED "metrics_dropped_samples"
#define SERIES_MAX 10000
#define EXACT 9007199254740992.0 /* 2^53 */

/* Text that grows; `failed` persists, so that it is checked only at the end. */
struct buffer {
    char *text;
    size_t len, cap;
    bool failed;
};

static void put(struct buffer *b, const char *s, size_t n)
{
    if (b->failed)
        return;
    if (b->len + n + 1 > b->cap) {
        size_t cap = (b->len + n + 1) * 2;
        char *grown = realloc(b->text, cap);
        if (!grown) {
            b->failed = true;
            return;
        }
        b->text = grown;
        b->cap = cap;
    }
    memcpy(b->text + b->len, s, n);
    b->len += n;
    b->text[b->len] = '\0';
}

static void puts_to(struct buffer *b, const char *s)
{
    put(b, s, strlen(s));
}

/* Backslash and quote; what acts on a terminal is written as \xNN, as in lists and logs, whose backslash is one more.
 */
static void put_label(struct buffer *b, const char *s)
{
    char text[8];
    while (*s) {
        const size_t acts = text_acts(s);
        if (!acts && (*s == '\\' || *s == '"'))
            put(b, "\\", 1);
        if (!acts)
            put(b, s++, 1);
        for (size_t i = 0; i < acts; i++) {
            snprintf(text, sizeof text, "\\\\x%02x", (unsigned char)*s++);
            puts_to(b, text);
        }
    }
}

/* Backslash and newline. */
static void put_help(struct buffer *b, const char *s)
{
    for (; *s; s++)
        *s == '\n' ? puts_to(b, "\\n") : *s == '\\' ? puts_to(b, "\\\\") : put(b, s, 1);
}

/* The fewest digits that read back as the same number; whole ones up to 2^53 without an exponent. */
static void put_number(struct buffer *b, const json_t *v)
{
    char text[64];
    double d = json_number_value(v);
    if (json_is_integer(v))
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(v));
    else if (fabs(d) <= EXACT && d == (double)(int64_t)d)
        snprintf(text, sizeof text, "%.0f", d == 0 ? 0.0 : d);
    else
        for (int digits = 15; digits <= 17; digits++) {
            snprintf(text, sizeof text, "%.*g", digits, d);
            if (strtod(text, NULL) == d)
                break;
        }
    puts_to(b, text);
}

/* ---- rows: samples that fit their family ---- */

enum part { PLAIN, BUCKET, SUM, COUNT };
static const char *const suffixes[] = {"", "_bucket", "_sum", "_count"};

struct row {
    unsigned family;
    enum part part;
    size_t labels; /* where in the text of labels; without le */
    const char *le;
    double bound;
    const json_t *value;
    size_t index; /* as given: of two equal ones the first is used */
    bool dropped;
};

struct render {
    const struct metric_family *table;
    struct row *rows;
    size_t n;
    struct buffer labels;
    struct buffer out;
    size_t dropped, series_max;
};

static bool find_family(const struct metric_family *table, const char *name, unsigned *family, enum part *part)
{
    for (unsigned i = 0; table[i].name; i++) {
        size_t n = strlen(table[i].name);
        if (strncmp(name, table[i].name, n) != 0)
            continue;
        bool histogram = table[i].type == METRIC_HISTOGRAM;
        for (enum part p = histogram ? BUCKET : PLAIN; p <= (histogram ? COUNT : PLAIN); p++)
            if (!strcmp(name + n, suffixes[p])) {
                *family = i;
                *part = p;
                return true;
            }
    }
    return false;
}

/* A label's value, NULL: absent, not text, or with a NUL, which the format cannot represent. */
static const char *label_value(const json_t *labels, const char *name)
{
    const json_t *v = json_object_get(labels, name);
    const char *s = json_string_value(v);
    return s && strlen(s) == json_string_length(v) ? s : NULL;
}

/* Writes the labels of the family in its order; false: the sample has others. */
static bool take_labels(struct render *r, struct row *row, const json_t *labels)
{
    const char *want = r->table[row->family].labels;
    size_t n = row->part == BUCKET;
    row->labels = r->labels.len;
    for (const char *w = want ? want : ""; *w; w += *w == ',') {
        char name[64];
        size_t len = strcspn(w, ",");
        snprintf(name, sizeof name, "%.*s", (int)len, w);
        w += len;
        const char *value = label_value(labels, name);
        if (!value)
            return false;
        if (r->labels.len > row->labels)
            puts_to(&r->labels, ",");
        puts_to(&r->labels, name);
        puts_to(&r->labels, "=\"");
        put_label(&r->labels, value);
        puts_to(&r->labels, "\"");
        n++;
    }
    put(&r->labels, "", 1);
    return n == json_object_size(labels);
}

static bool take_bound(struct row *row, const json_t *labels)
{
    char *end;
    row->le = row->part == BUCKET ? label_value(labels, "le") : "";
    if (row->part != BUCKET)
        return true;
    if (!row->le || !*row->le)
        return false;
    row->bound = !strcmp(row->le, "+Inf") ? HUGE_VAL : strtod(row->le, &end);
    return row->bound == HUGE_VAL ? !strcmp(row->le, "+Inf") : !*end && isfinite(row->bound) && row->le[0] > ' ';
}

static bool take_value(const struct render *r, struct row *row, const json_t *value)
{
    row->value = value;
    if (!json_is_number(value) || !isfinite(json_number_value(value)))
        return false;
    return r->table[row->family].type == METRIC_GAUGE || row->part == SUM || json_number_value(value) >= 0;
}

static void take_sample(struct render *r, const json_t *sample, size_t index)
{
    struct row *row = &r->rows[r->n];
    const char *name = json_string_value(json_object_get(sample, "name"));
    const json_t *labels = json_object_get(sample, "labels");
    *row = (struct row){.index = index};
    size_t before = r->labels.len;
    if (name && strcmp(name, DROPPED) != 0 && find_family(r->table, name, &row->family, &row->part) &&
        take_labels(r, row, labels) && take_bound(row, labels) &&
        take_value(r, row, json_object_get(sample, "value"))) {
        r->n++;
        return;
    }
    r->labels.len = before;
    r->dropped++;
}

/* ---- order ---- */

static int compare_series(const struct render *r, const struct row *a, const struct row *b)
{
    if (a->family != b->family)
        return a->family < b->family ? -1 : 1;
    return strcmp(r->labels.text + a->labels, r->labels.text + b->labels);
}

static int compare_rows(const void *x, const void *y, void *arg)
{
    const struct row *a = x, *b = y;
    int c = compare_series(arg, a, b);
    if (c)
        return c;
    if (a->part != b->part)
        return a->part < b->part ? -1 : 1;
    if (a->part == BUCKET && a->bound != b->bound)
        return a->bound < b->bound ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

static void drop(struct render *r, struct row *row)
{
    r->dropped += !row->dropped;
    row->dropped = true;
}

/* Of equal samples the first one is used. */
static void drop_doubles(struct render *r)
{
    for (size_t i = 1, kept = 0; i < r->n; i++) {
        const struct row *a = &r->rows[kept], *b = &r->rows[i];
        if (compare_series(r, a, b) == 0 && a->part == b->part && (a->part != BUCKET || a->bound == b->bound))
            drop(r, &r->rows[i]);
        else
            kept = i;
    }
}

/* Whether rows [from, to), of one series, are a complete histogram: increasing buckets up to +Inf, which is the
 * count. */
static bool is_histogram(const struct render *r, size_t from, size_t to)
{
    double last = 0, inf = -1, count = -2;
    bool sum = false;
    for (size_t i = from; i < to; i++) {
        const struct row *row = &r->rows[i];
        double v = json_number_value(row->value);
        if (row->dropped)
            continue;
        if (row->part == BUCKET && v < last)
            return false;
        if (row->part == BUCKET) {
            last = v;
            inf = row->bound == HUGE_VAL ? v : inf;
        }
        sum |= row->part == SUM;
        count = row->part == COUNT ? v : count;
    }
    return sum && count == inf;
}

/* Series by series (a histogram is one): whole ones, and not more samples than a family may have. */
static void drop_series(struct render *r)
{
    size_t used = 0;
    for (size_t i = 0, to; i < r->n; i = to) {
        if (i == 0 || r->rows[i].family != r->rows[i - 1].family)
            used = 0;
        for (to = i + 1; to < r->n && compare_series(r, &r->rows[i], &r->rows[to]) == 0; to++)
            ;
        bool whole = r->table[r->rows[i].family].type != METRIC_HISTOGRAM || is_histogram(r, i, to);
        if (whole && used + (to - i) <= r->series_max)
            used += to - i;
        else
            for (size_t k = i; k < to; k++)
                drop(r, &r->rows[k]);
    }
}

/* ---- lines ---- */

static void put_head(struct buffer *b, const char *prefix, const char *name, const struct metric_family *f)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};
    const char *const pieces[] = {"# HELP ", prefix, name, " "};
    for (size_t i = 0; i < 4; i++)
        puts_to(b, pieces[i]);
    put_help(b, f->help);
    puts_to(b, "\n# TYPE ");
    puts_to(b, prefix);
    puts_to(b, name);
    puts_to(b, " ");
    puts_to(b, types[f->type]);
    puts_to(b, "\n");
}

static void put_row(struct render *r, const struct row *row, const char *prefix, const char *name)
{
    struct buffer *b = &r->out;
    const char *labels = r->labels.text + row->labels;
    puts_to(b, prefix);
    puts_to(b, name);
    puts_to(b, suffixes[row->part]);
    if (*labels || row->part == BUCKET) {
        puts_to(b, "{");
        puts_to(b, labels);
        if (row->part == BUCKET) {
            puts_to(b, *labels ? ",le=\"" : "le=\"");
            put_label(b, row->le);
            puts_to(b, "\"");
        }
        puts_to(b, "}");
    }
    puts_to(b, " ");
    put_number(b, row->value);
    puts_to(b, "\n");
}

static void put_dropped(struct render *r)
{
    char line[96];
    snprintf(line, sizeof line, PREFIX DROPPED " %zu\n", r->dropped);
    puts_to(&r->out, line);
}

static void put_family(struct render *r, unsigned family, const char *prefix, const char *name, size_t from, size_t to)
{
    put_head(&r->out, prefix, name, &r->table[family]);
    for (size_t i = from; i < to; i++)
        if (!r->rows[i].dropped)
            put_row(r, &r->rows[i], prefix, name);
}

/* An alias that an earlier family already has cannot be repeated. */
static bool alias_free(const struct metric_family *table, unsigned family)
{
    for (unsigned i = 0; i < family; i++)
        if (table[i].alias && !strcmp(table[i].alias, table[family].alias))
            return false;
    return true;
}

static void put_all(struct render *r, bool compat)
{
    bool told = false;
    size_t at = 0, to;
    for (unsigned f = 0; r->table[f].name; f++, at = to) {
        for (to = at; to < r->n && r->rows[to].family == f; to++)
            ;
        put_family(r, f, PREFIX, r->table[f].name, at, to);
        if (!strcmp(r->table[f].name, DROPPED)) {
            put_dropped(r);
            told = true;
        }
        if (compat && r->table[f].alias && alias_free(r->table, f))
            put_family(r, f, "", r->table[f].alias, at, to);
    }
    if (!told) {
        const struct metric_family own = {DROPPED, METRIC_GAUGE, "", "Samples that this page had to leave out.", NULL};
        put_head(&r->out, PREFIX, own.name, &own);
        put_dropped(r);
    }
}

char *metrics_render(const struct metric_family *table, const json_t *samples, const struct metrics_options *o,
                     size_t *len)
{
    size_t n = json_array_size(samples), i;
    const json_t *sample;
    struct render r = {.table = table, .series_max = o && o->series_max ? o->series_max : SERIES_MAX};
    r.rows = calloc(n + 1, sizeof *r.rows);
    if (!r.rows)
        return NULL;
    json_array_foreach(samples, i, sample) take_sample(&r, sample, i);
    if (!r.labels.failed) {
        qsort_r(r.rows, r.n, sizeof *r.rows, compare_rows, &r);
        drop_doubles(&r);
        drop_series(&r);
        put_all(&r, o && o->compat);
    }
    bool failed = r.labels.failed || r.out.failed;
    free(r.labels.text);
    free(r.rows);
    if (failed) {
        free(r.out.text);
        return NULL;
    }
    *len = r.out.len;
    return r.out.text;
}
