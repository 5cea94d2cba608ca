/* SPDX-License-Identifier: GPL-2.0-or-later */
/* complaints.c - errors and warnings of a configuration, in the order of its files and lines */
#include "cfg/internal.h"

#include "base/cleanup.h"

#include <stdarg.h>
#include <string.h>

static bool comes_before(const struct complaint *a, const struct complaint *b)
{
    return a->file != b->file ? a->file < b->file : a->line < b->line;
}

/* Takes ownership of x. A configuration full of errors must not use unlimited memory: the rest is counted. */
static void complaint_add(struct cfg *c, struct complaint *x)
{
    if (c->n_complaints == COMPLAINTS_MAX) {
        c->n_errors += x->pub.severity == CFG_ERROR;
        c->n_dropped++;
        free(x);
        return;
    }
    struct complaint **grown = realloc(c->complaints, (c->n_complaints + 1) * sizeof(void *));
    if (!grown) {
        c->n_errors += x->pub.severity == CFG_ERROR;
        free(x);
        return;
    }
    c->complaints = grown;
    unsigned i = c->n_complaints++;
    for (; i > 0 && comes_before(x, grown[i - 1]); i--)
        grown[i] = grown[i - 1];
    grown[i] = x;
    c->n_errors += x->pub.severity == CFG_ERROR;
}

/* Bytes of the UTF-8 character at s, 0 if there is none. */
static size_t utf8_length(const unsigned char *s)
{
    size_t n = *s < 0x80                 ? 1
               : *s >= 0xc2 && *s < 0xe0 ? 2
               : *s >= 0xe0 && *s < 0xf0 ? 3
               : *s >= 0xf0 && *s < 0xf5 ? 4
                                         : 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (*s == 0xe0 && s[1] < 0xa0) || (*s == 0xf0 && s[1] < 0x90);
    bool beyond = (*s == 0xed && s[1] >= 0xa0) || (*s == 0xf4 && s[1] >= 0x90);
    return n > 1 && (overlong || beyond) ? 0 : n;
}

/* Truncated texts, and names of files in another encoding, must still be valid in a document. */
static void make_utf8(char *text)
{
    for (unsigned char *s = (unsigned char *)text; *s;) {
        size_t n = utf8_length(s);
        if (!n)
            *s = '?';
        s += n ? n : 1;
    }
}

static struct complaint *complaint_make(enum cfg_severity s, const char *hint, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));
static struct complaint *complaint_make(enum cfg_severity s, const char *hint, const char *fmt, va_list ap)
{
    struct complaint *x = calloc(1, sizeof *x);
    if (!x)
        return NULL;
    x->pub.severity = s;
    snprintf(x->pub.hint, sizeof x->pub.hint, "%s", hint ? hint : "");
    vsnprintf(x->pub.text, sizeof x->pub.text, fmt, ap);
    make_utf8(x->pub.text);
    make_utf8(x->pub.hint);
    return x;
}

void complain(struct cfg *c, enum cfg_severity s, unsigned file, unsigned line, bool elsewhere, const char *hint,
              const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    struct complaint *x = complaint_make(s, hint, fmt, ap);
    va_end(ap);
    if (!x) {
        c->n_errors += s == CFG_ERROR;
        return;
    }
    x->file = file;
    x->line = line;
    x->elsewhere = elsewhere;
    origin_text(c, file, line, x->pub.where, sizeof x->pub.where);
    complaint_add(c, x);
}

void complain_value(struct cfg *c, enum cfg_severity s, const struct section *sec, const struct value *v,
                    const char *hint, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    struct complaint *x = complaint_make(s, hint, fmt, ap);
    va_end(ap);
    if (!x) {
        c->n_errors += s == CFG_ERROR;
        return;
    }
    x->file = v ? v->file : sec->file;
    x->line = v ? v->line : sec->line;
    x->elsewhere = sec->kind != KIND_REPOSITORY;
    origin_text(c, x->file, x->line, x->pub.where, sizeof x->pub.where);
    complaint_add(c, x);
}

/* File and line of "file:line"; others sort last. */
static void complaint_place(const struct cfg *c, struct complaint *x)
{
    const char *where = x->pub.where;
    x->file = c->n_files;
    for (unsigned i = 0; i < c->n_files; i++) {
        size_t n = strlen(c->files[i]);
        if (strncmp(where, c->files[i], n) != 0 || (where[n] && where[n] != ':'))
            continue;
        x->file = i;
        x->line = where[n] ? (unsigned)strtoul(where + n + 1, NULL, 10) : 0;
    }
}

void cfg_complain(struct cfg *c, enum cfg_severity s, const char *where, const char *hint, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    struct complaint *x = complaint_make(s, hint, fmt, ap);
    va_end(ap);
    if (!x) {
        c->n_errors += s == CFG_ERROR;
        return;
    }
    snprintf(x->pub.where, sizeof x->pub.where, "%s", where ? where : "");
    make_utf8(x->pub.where);
    complaint_place(c, x);
    complaint_add(c, x);
}

const struct cfg_complaint *cfg_complaint_at(const struct cfg *c, unsigned i)
{
    return i < c->n_complaints ? &c->complaints[i]->pub : NULL;
}

unsigned cfg_errors(const struct cfg *c)
{
    return c->n_errors;
}
