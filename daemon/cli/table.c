/* SPDX-License-Identifier: GPL-2.0-or-later */
/* table.c - tables that fit the screen */
#include "daemon/cli/daemon.h"

#include <ctype.h>
#include <stdarg.h>
#include <string.h>

#define COLUMNS_MAX 12
#define SHRINK_FIRST 16 /* while columns can be omitted */
#define SHRINK_MIN 8

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
    size_t n_notes, notes_cap;
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

/* Room for one more item of `size` bytes; false without memory. */
static bool grow_list(void **list, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return true;
    size_t more = *cap ? *cap * 2 : 64;
    void *p = reallocarray(*list, more, size);
    if (!p)
        return false;
    *list = p;
    *cap = more;
    return true;
}

void table_cell(struct table *t, enum tint tint, const char *fmt, ...)
{
    if (!t || t->failed)
        return;
    char text[4096];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    void *list = t->cells;
    struct cell c = {strdup(text_name(text)), tint};
    t->failed = !c.text || !grow_list(&list, t->n, &t->cap, sizeof *t->cells);
    t->cells = list;
    if (t->failed)
        free(c.text);
    else
        t->cells[t->n++] = c;
}

void table_note(struct table *t, enum tint tint, const char *text)
{
    if (!t || t->failed || !*text || t->n < t->columns)
        return;
    void *list = t->notes;
    struct note note = {strdup(text_name(text)), tint, t->n / t->columns - 1};
    t->failed = !note.text || !grow_list(&list, t->n_notes, &t->notes_cap, sizeof *t->notes);
    t->notes = list;
    if (t->failed)
        free(note.text);
    else
        t->notes[t->n_notes++] = note;
}

size_t table_rows(const struct table *t)
{
    return t ? t->n / t->columns : 0;
}

static char column_kind(const struct table *t, unsigned c)
{
    return (char)tolower((unsigned char)t->kinds[c]);
}

/* Width of a row; 0 is an omitted column. */
static unsigned row_width(const struct table *t, const unsigned *w)
{
    unsigned sum = 0;
    for (unsigned c = 0; c < t->columns; c++)
        sum += w[c] ? w[c] + (sum ? 2 : 0) : 0;
    return sum;
}

/* Shrinks the widest of the columns that may shrink, none below `least`, until the row fits; false if it does not. */
static bool shrink_columns(const struct table *t, unsigned *w, unsigned least, unsigned room)
{
    while (row_width(t, w) > room) {
        unsigned widest = COLUMNS_MAX;
        for (unsigned c = 0; c < t->columns; c++)
            if (strchr("se", column_kind(t, c)) && w[c] > least && (widest == COLUMNS_MAX || w[c] > w[widest]))
                widest = c;
        if (widest == COLUMNS_MAX)
            return false;
        w[widest]--;
    }
    return true;
}

/* Names are shortened to SHRINK_FIRST; then columns are omitted, rightmost first; then names are shortened further. */
static void fit_columns(const struct table *t, unsigned *w, unsigned room)
{
    unsigned full[COLUMNS_MAX];
    memcpy(full, w, sizeof full);
    for (;;) {
        memcpy(w, full, sizeof full);
        if (shrink_columns(t, w, SHRINK_FIRST, room))
            return;
        unsigned spare = COLUMNS_MAX;
        for (unsigned c = 0; c < t->columns; c++)
            if (full[c] && t->kinds[c] != column_kind(t, c))
                spare = c;
        if (spare == COLUMNS_MAX)
            break;
        full[spare] = 0;
    }
    shrink_columns(t, w, SHRINK_MIN, room);
}

/* No trailing blanks: separators are printed before the next text. */
static void print_row(const struct table *t, FILE *f, const char *indent, const unsigned *w, const struct cell *row)
{
    unsigned blanks = (unsigned)strlen(indent);
    for (unsigned c = 0; c < t->columns; c++) {
        if (!w[c])
            continue;
        const char *text = row ? row[c].text : t->heads[c];
        enum tint tint = row ? row[c].tint : TINT_DIM;
        if (column_kind(t, c) == 's')
            text = text_fit(text, w[c]);
        else if (column_kind(t, c) == 'e')
            text = text_cut(text, w[c]);
        unsigned have = text_width(text), pad = have < w[c] ? w[c] - have : 0;
        if (*text) {
            fprintf(f, "%*s%s%s%s", (int)(blanks + (column_kind(t, c) == 'r' ? pad : 0)), "", tint_on(tint), text,
                    tint_off(tint));
            blanks = 0;
        }
        blanks += (*text && column_kind(t, c) == 'r' ? 0 : pad) + 2;
    }
    fputc('\n', f);
}

/* The names of omitted columns. */
static void print_left_out(const struct table *t, FILE *f, const char *indent, const unsigned *w)
{
    char text[512] = "";
    for (unsigned c = 0; c < t->columns; c++) {
        size_t n = strlen(text);
        if (!w[c] && t->heads && *t->heads[c])
            snprintf(text + n, sizeof text - n, "%s%s", n ? ", " : "omitted (terminal too narrow): ", t->heads[c]);
    }
    if (!*text)
        return;
    fprintf(f, "%s%s", indent, tint_on(TINT_DIM));
    print_escaped(f, text, (unsigned)strlen(indent), (unsigned)strlen(indent));
    fputs(tint_off(TINT_DIM), f);
}

/* Width of the heading or the widest cell of each column; 0 for neither. */
static void natural_widths(const struct table *t, unsigned *w)
{
    for (unsigned c = 0; c < t->columns; c++)
        w[c] = t->heads ? text_width(t->heads[c]) : 0;
    for (size_t i = 0; i < t->n; i++) {
        unsigned have = text_width(t->cells[i].text);
        if (have > w[i % t->columns])
            w[i % t->columns] = have;
    }
}

void table_print(struct table *t, FILE *f, const char *indent)
{
    if (!t)
        return;
    unsigned w[COLUMNS_MAX] = {0}, screen = screen_width(), used = (unsigned)strlen(indent);
    natural_widths(t, w);
    fit_columns(t, w, screen > used ? screen - used : 1);
    if (t->heads && t->n)
        print_row(t, f, indent, w, NULL);
    size_t note = 0;
    for (size_t i = 0; i + t->columns <= t->n; i += t->columns) {
        print_row(t, f, indent, w, t->cells + i);
        for (; note < t->n_notes && t->notes[note].row == i / t->columns; note++) {
            fprintf(f, "%s    %s", indent, tint_on(t->notes[note].tint));
            print_escaped(f, t->notes[note].text, used + 4, used + 4);
            fputs(tint_off(t->notes[note].tint), f);
        }
    }
    if (t->n)
        print_left_out(t, f, indent, w);
    if (t->failed)
        fputs("(out of memory, output is incomplete)\n", f);
    for (size_t i = 0; i < t->n; i++)
        free(t->cells[i].text);
    for (size_t i = 0; i < t->n_notes; i++)
        free(t->notes[i].text);
    free(t->notes);
    free(t->cells);
    free(t);
}
