/* SPDX-License-Identifier: GPL-2.0-or-later */
/* table.c - tables that fit the screen, colour where it is wanted, ages and widths of texts */
#include "daemon/cli/daemon.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

#define TURNS 8
#define COLUMNS_MAX 12
#define SHRINK_MIN 8

/* ---- widths ---- */

/* One character of valid UTF-8 (text_name() lets nothing else through); *n is its length in bytes. */
static uint32_t next_char(const char *s, unsigned *n)
{
    unsigned char c = (unsigned char)*s;
    *n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    uint32_t u = c < 0x80 ? c : c & (0x7fu >> *n);
    for (unsigned i = 1; i < *n; i++) {
        if (((unsigned char)s[i] & 0xc0) != 0x80) {
            *n = i;
            return 0xfffd;
        }
        u = u << 6 | ((unsigned char)s[i] & 0x3f);
    }
    return u;
}

static unsigned char_width(uint32_t u)
{
    static const struct {
        uint32_t lo, hi;
        unsigned w;
    } ranges[] = {
        {0x300, 0x36f, 0},   {0x200b, 0x200f, 0}, {0xfe00, 0xfe0f, 0},   {0x1100, 0x115f, 2},
        {0x2e80, 0xa4cf, 2}, {0xac00, 0xd7a3, 2}, {0xf900, 0xfaff, 2},   {0xfe30, 0xfe6f, 2},
        {0xff00, 0xff60, 2}, {0xffe0, 0xffe6, 2}, {0x1f300, 0x1faff, 2}, {0x20000, 0x3fffd, 2},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (u >= ranges[i].lo && u <= ranges[i].hi)
            return ranges[i].w;
    return 1;
}

unsigned text_width(const char *s)
{
    unsigned w = 0, n;
    for (; *s; s += n)
        w += char_width(next_char(s, &n));
    return w;
}

/* Bytes of `s` that take at most `width` columns. */
static size_t head_bytes(const char *s, unsigned width)
{
    const char *at = s;
    unsigned n;
    while (*at) {
        unsigned w = char_width(next_char(at, &n));
        if (w > width)
            break;
        width -= w;
        at += n;
    }
    return (size_t)(at - s);
}

const char *text_fit(const char *s, unsigned width)
{
    static char buf[TURNS][1024];
    static unsigned turn;
    unsigned have = text_width(s);
    if (have <= width)
        return s;
    char *out = buf[turn++ % TURNS];
    if (width < 3) {
        snprintf(out, sizeof buf[0], "%.*s", (int)head_bytes(s, width), s);
        return out;
    }
    unsigned tail = (width - 1) / 2, head = width - 1 - tail;
    size_t hb = head_bytes(s, head), skip = head_bytes(s, have - tail);
    snprintf(out, sizeof buf[0], "%.*s…%s", (int)(hb < 480 ? hb : 480), s, s + skip);
    return out;
}

/* The same with "…" at the end. */
static const char *cut(const char *s, unsigned width)
{
    static char buf[4096];
    if (text_width(s) <= width || width < 2)
        return s;
    snprintf(buf, sizeof buf, "%.*s…", (int)head_bytes(s, width - 1), s);
    return buf;
}

unsigned screen_width(void)
{
    struct winsize ws;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) == 0 && ws.ws_col >= 40)
        return ws.ws_col;
    const char *c = getenv("COLUMNS");
    unsigned n = c ? (unsigned)strtoul(c, NULL, 10) : 0;
    return n >= 40 && n <= 10000 ? n : 80;
}

/* ---- colour ---- */

static bool colour(void)
{
    static int known = -1;
    if (known < 0) {
        const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
        known = isatty(STDOUT_FILENO) && !(no && *no) && term && strcmp(term, "dumb") != 0;
    }
    return known;
}

const char *tint_on(enum tint t)
{
    static const char *const codes[] = {[TINT_NONE] = "",
                                        [TINT_GOOD] = "\033[32m",
                                        [TINT_WARN] = "\033[33m",
                                        [TINT_BAD] = "\033[31m",
                                        [TINT_DIM] = "\033[2m"};
    return colour() ? codes[t] : "";
}

const char *tint_off(enum tint t)
{
    return t != TINT_NONE && colour() ? "\033[0m" : "";
}

enum tint tint_of_state(const char *state)
{
    static const struct {
        const char *state;
        enum tint tint;
    } tints[] = {{"Completed", TINT_GOOD},  {"Failed", TINT_BAD},  {"PartiallyFailed", TINT_BAD},
                 {"Canceled", TINT_WARN},   {"Skipped", TINT_DIM}, {"Retrying", TINT_WARN},
                 {"Cancelling", TINT_WARN}, {"Queued", TINT_DIM},  {"missing", TINT_BAD},
                 {"removing", TINT_DIM}};
    for (size_t i = 0; i < sizeof tints / sizeof *tints; i++)
        if (!strcmp(state, tints[i].state))
            return tints[i].tint;
    return TINT_NONE;
}

/* ---- tables ---- */

struct cell {
    char *text;
    enum tint tint;
};

struct note {
    char *text;
    enum tint tint;
    size_t row; /* below this one */
};

struct table {
    const char *const *heads;
    const char *kinds;
    unsigned columns;
    struct cell *cells;
    size_t n, cap;
    struct note *notes;
    size_t n_notes;
    bool failed;
};

struct table *table_new(const char *const *heads, const char *kinds)
{
    struct table *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->heads = heads;
    t->kinds = kinds;
    t->columns = (unsigned)strlen(kinds);
    return t;
}

void table_cell(struct table *t, enum tint tint, const char *fmt, ...)
{
    if (!t || t->failed)
        return;
    if (t->n == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 64;
        struct cell *more = realloc(t->cells, cap * sizeof *more);
        if (!more) {
            t->failed = true;
            return;
        }
        t->cells = more;
        t->cap = cap;
    }
    char text[4096];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    struct cell c = {strdup(text_name(text)), tint};
    if (c.text)
        t->cells[t->n++] = c;
    else
        t->failed = true;
}

void table_note(struct table *t, enum tint tint, const char *text)
{
    if (!t || t->failed || !*text || t->n < t->columns)
        return;
    struct note *more = realloc(t->notes, (t->n_notes + 1) * sizeof *more);
    if (!more)
        return;
    t->notes = more;
    more[t->n_notes] = (struct note){strdup(text_name(text)), tint, t->n / t->columns - 1};
    if (more[t->n_notes].text)
        t->n_notes++;
}

/* A text that was escaped already. */
static void wrap(FILE *f, const char *text, unsigned column, unsigned indent)
{
    unsigned width = screen_width(), at = column;
    while (*text) {
        size_t n = strcspn(text, " ");
        char word[512];
        snprintf(word, sizeof word, "%.*s", (int)n, text);
        unsigned w = text_width(word);
        if (at > column && at + 1 + w > width) {
            fprintf(f, "\n%*s", (int)indent, "");
            at = column = indent;
        } else if (at > column) {
            fputc(' ', f);
            at++;
        }
        fputs(word, f);
        at += w;
        text += n + strspn(text + n, " ");
    }
    fputc('\n', f);
}

void print_paragraph(FILE *f, const char *text, unsigned column, unsigned indent)
{
    wrap(f, text_name(text), column, indent);
}

size_t table_rows(const struct table *t)
{
    return t ? t->n / t->columns : 0;
}

/* Takes columns away from the widest of those that may shrink. */
static void fit_columns(const struct table *t, unsigned w[COLUMNS_MAX], unsigned room)
{
    for (;;) {
        unsigned sum = 2 * (t->columns - 1), widest = COLUMNS_MAX;
        for (unsigned c = 0; c < t->columns; c++) {
            sum += w[c];
            if (strchr("se", t->kinds[c]) && w[c] > SHRINK_MIN && (widest == COLUMNS_MAX || w[c] > w[widest]))
                widest = c;
        }
        if (sum <= room || widest == COLUMNS_MAX)
            return;
        w[widest]--;
    }
}

static void print_row(const struct table *t, FILE *f, const char *indent, const unsigned *w, const struct cell *row)
{
    fputs(indent, f);
    for (unsigned c = 0; c < t->columns; c++) {
        const char *text = row ? row[c].text : t->heads[c];
        enum tint tint = row ? row[c].tint : TINT_DIM;
        if (t->kinds[c] == 's')
            text = text_fit(text, w[c]);
        else if (t->kinds[c] == 'e')
            text = cut(text, w[c]);
        unsigned have = text_width(text), pad = have < w[c] ? w[c] - have : 0;
        bool last = c + 1 == t->columns;
        fprintf(f, "%*s%s%s%s%*s%s", t->kinds[c] == 'r' ? (int)pad : 0, "", tint_on(tint), text, tint_off(tint),
                t->kinds[c] != 'r' && !last ? (int)pad : 0, "", last ? "\n" : "  ");
    }
}

void table_print(struct table *t, FILE *f, const char *indent)
{
    if (!t)
        return;
    unsigned w[COLUMNS_MAX] = {0};
    for (unsigned c = 0; c < t->columns; c++)
        w[c] = t->heads ? text_width(t->heads[c]) : 0;
    for (size_t i = 0; i < t->n; i++) {
        unsigned have = text_width(t->cells[i].text);
        if (have > w[i % t->columns])
            w[i % t->columns] = have;
    }
    unsigned screen = screen_width(), used = (unsigned)strlen(indent);
    fit_columns(t, w, screen > used ? screen - used : 1);
    if (t->heads && t->n)
        print_row(t, f, indent, w, NULL);
    size_t note = 0;
    for (size_t i = 0; i + t->columns <= t->n; i += t->columns) {
        print_row(t, f, indent, w, t->cells + i);
        for (; note < t->n_notes && t->notes[note].row == i / t->columns; note++) {
            fprintf(f, "%s    %s", indent, tint_on(t->notes[note].tint));
            wrap(f, t->notes[note].text, used + 4, used + 4);
            fputs(tint_off(t->notes[note].tint), f);
        }
    }
    if (t->failed)
        fputs("(there is no memory for the rest)\n", f);
    for (size_t i = 0; i < t->n; i++)
        free(t->cells[i].text);
    for (size_t i = 0; i < t->n_notes; i++)
        free(t->notes[i].text);
    free(t->notes);
    free(t->cells);
    free(t);
}

/* ---- ages ---- */

int64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* One unit is enough to see how old something is; two where the first is small. */
static const char *span(double s)
{
    static char buf[TURNS][32];
    static unsigned turn;
    char *out = buf[turn++ % TURNS];
    if (s < 60)
        snprintf(out, sizeof buf[0], "%.0f s", floor(s));
    else if (s < 3600)
        snprintf(out, sizeof buf[0], "%.0f min", floor(s / 60));
    else if (s < 48 * 3600)
        snprintf(out, sizeof buf[0], "%.0f h", floor(s / 3600));
    else
        snprintf(out, sizeof buf[0], "%.0f d", floor(s / 86400));
    return out;
}

const char *text_ago(int64_t ns)
{
    static char buf[TURNS][40];
    static unsigned turn;
    if (ns <= 0)
        return "never";
    double s = (double)(clock_ns() - ns) * 1e-9;
    if (s < -5)
        return text_in(ns);
    char *out = buf[turn++ % TURNS];
    snprintf(out, sizeof buf[0], "%s ago", span(s < 0 ? 0 : s));
    return out;
}

const char *text_in(int64_t ns)
{
    static char buf[TURNS][40];
    static unsigned turn;
    if (ns <= 0)
        return "-";
    double s = (double)(ns - clock_ns()) * 1e-9;
    char *out = buf[turn++ % TURNS];
    if (s <= 0)
        snprintf(out, sizeof buf[0], "now");
    else
        snprintf(out, sizeof buf[0], "in %s", span(s));
    return out;
}

const char *text_percent(const json_t *progress)
{
    static char buf[TURNS][16];
    static unsigned turn;
    int64_t total = jint(progress, "total"), done = jint(progress, "done");
    if (total <= 0 || done < 0)
        return "";
    char *out = buf[turn++ % TURNS];
    snprintf(out, sizeof buf[0], "%.0f%%", done >= total ? 100.0 : floor(100.0 * (double)done / (double)total));
    return out;
}
