/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fields-read.c - structs by their table, from JSON text without a document in between
 *
 * Finished rows are read from disk again and again, and making a document of each was most of what that cost. What
 * fields_text() writes is read member by member; a member of another type than the table says, or that the table does
 * not know, is made a document and loaded as fields_load() does. Whatever is not plainly that form (a member twice, a
 * name with an escape, anything that is no JSON) is left to the parser of documents, whose word is the last.
 */
#include "daemon/records/fields-impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define UNUSUAL 1      /* left to the parser of documents */
#define DEPTH_MAX 32   /* of what is read here */
#define FIELDS_MAX 256 /* of one table: their numbers have a byte */

struct in {
    const char *at, *end;
    unsigned depth;
};

static void in_space(struct in *x)
{
    while (x->at < x->end && (*x->at == ' ' || *x->at == '\n' || *x->at == '\t' || *x->at == '\r'))
        x->at++;
}

/* What comes next, which is not taken; 0: nothing. */
static char in_next(struct in *x)
{
    in_space(x);
    return x->at < x->end ? *x->at : '\0';
}

static bool in_take(struct in *x, char c)
{
    if (in_next(x) != c)
        return false;
    x->at++;
    return true;
}

static bool in_word(struct in *x, const char *word)
{
    const size_t n = strlen(word);
    if ((size_t)(x->end - x->at) < n || memcmp(x->at, word, n) != 0)
        return false;
    x->at += n;
    return true;
}

/* A text without escapes, in plain ASCII; its quotes are taken, too. */
static int in_plain(struct in *x, const char **ret, size_t *n)
{
    if (!in_take(x, '"'))
        return UNUSUAL;
    const char *p = x->at;
    while (p < x->end && *p >= 0x20 && *p < 0x7f && *p != '"' && *p != '\\')
        p++;
    if (p == x->end || *p != '"')
        return UNUSUAL;
    *ret = x->at;
    *n = (size_t)(p - x->at);
    x->at = p + 1;
    return 0;
}

/* Over a value, whatever it is: only as far as its end is found. */
static int in_skip(struct in *x)
{
    const char first = in_next(x);
    unsigned depth = 0;
    bool quoted = false;
    for (; x->at < x->end; x->at++) {
        const char c = *x->at;
        if (quoted) {
            if (c == '\\')
                x->at++;
            else if (c == '"')
                quoted = false;
        } else if (c == '"') {
            quoted = true;
        } else if (c == '{' || c == '[') {
            depth++;
            continue;
        } else if (depth && (c == '}' || c == ']')) {
            depth--;
        } else if (!depth && (c == ',' || c == '}' || c == ']' || c == ' ' || c == '\n')) {
            return 0; /* behind a number or a word */
        } else {
            continue;
        }
        if (!depth && !quoted && (first == '"' || first == '{' || first == '[')) {
            x->at++;
            return 0;
        }
    }
    return UNUSUAL;
}

/* The value as a document. */
static int in_document(struct in *x, json_t **ret)
{
    in_space(x);
    const char *from = x->at;
    if (in_skip(x))
        return UNUSUAL;
    *ret = json_loadb(from, (size_t)(x->at - from), JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
    return *ret ? 0 : UNUSUAL;
}

/* ---- values ---- */

static int in_integer(struct in *x, int64_t *ret)
{
    const bool negative = in_next(x) == '-';
    const char *p = x->at + negative;
    int64_t n = 0;
    if (p == x->end || *p < '0' || *p > '9' || (*p == '0' && p + 1 < x->end && p[1] >= '0' && p[1] <= '9'))
        return UNUSUAL;
    for (; p < x->end && *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, *p - '0', &n))
            return UNUSUAL;
    if (p < x->end && (*p == '.' || *p == 'e' || *p == 'E'))
        return -EINVAL;
    *ret = negative ? -n : n;
    x->at = p;
    return 0;
}

static int in_string(struct in *x, char **at)
{
    const char *text;
    size_t n;
    return in_plain(x, &text, &n) ? -EINVAL : str_set_plain(at, text, n);
}

static int in_enum(struct in *x, const struct enum_names *names, int *ret)
{
    const char *text;
    size_t n;
    if (in_plain(x, &text, &n))
        return -EINVAL;
    for (unsigned i = 0; i < names->n; i++)
        if (strlen(names->names[i]) == n && !memcmp(names->names[i], text, n)) {
            *ret = (int)i;
            return 0;
        }
    return -EINVAL;
}

static int in_strs(struct in *x, struct strs *s)
{
    if (!in_take(x, '['))
        return -EINVAL;
    if (in_take(x, ']'))
        return 0;
    do {
        char *one = str_empty;
        int rc = in_string(x, &one);
        if (rc == 0)
            rc = strs_take(s, one);
        if (rc)
            return rc;
    } while (in_take(x, ','));
    return in_take(x, ']') ? 0 : UNUSUAL;
}

static int in_fields(struct in *x, const struct fields *t, void *s);

static int in_structs(struct in *x, const struct fields *t, struct list_of_structs *l)
{
    unsigned cap = 0;
    if (!in_take(x, '['))
        return -EINVAL;
    if (in_take(x, ']'))
        return 0;
    do {
        if (in_next(x) != '{')
            return -EINVAL;
        if (l->n == cap) {
            cap = cap ? 2 * cap : 4;
            void *more = reallocarray(l->v, cap, t->size);
            if (!more)
                return strings_set_nomem();
            l->v = more;
        }
        void *one = (char *)l->v + l->n * t->size;
        fields_init(t, one);
        l->n++;
        const int rc = in_fields(x, t, one);
        if (rc)
            return rc;
        field_is_there(t, one);
    } while (in_take(x, ','));
    return in_take(x, ']') ? 0 : UNUSUAL;
}

/* ---- objects that stay text ---- */

static size_t in_digits(struct in *x)
{
    const char *from = x->at;
    while (x->at < x->end && *x->at >= '0' && *x->at <= '9')
        x->at++;
    return (size_t)(x->at - from);
}

/* -EINVAL: it is none, or one that may be too large. */
static int in_any_number(struct in *x)
{
    x->at += *x->at == '-';
    const bool zero = x->at < x->end && *x->at == '0';
    const size_t n = in_digits(x);
    if (n < 1 || n > 18 || (zero && n > 1))
        return -EINVAL;
    if (x->at < x->end && *x->at == '.') {
        x->at++;
        if (!in_digits(x))
            return -EINVAL;
    }
    if (x->at < x->end && (*x->at == 'e' || *x->at == 'E')) {
        x->at++;
        x->at += x->at < x->end && (*x->at == '-' || *x->at == '+');
        const size_t e = in_digits(x);
        return e < 1 || e > 2 ? -EINVAL : 0;
    }
    return 0;
}

static int in_any(struct in *x);

static int in_any_members(struct in *x)
{
    const char *text;
    size_t n;
    x->at++;
    if (in_take(x, '}'))
        return 0;
    do
        if (in_plain(x, &text, &n) || !in_take(x, ':') || in_any(x))
            return -EINVAL;
    while (in_take(x, ','));
    return in_take(x, '}') ? 0 : -EINVAL;
}

static int in_any_elements(struct in *x)
{
    x->at++;
    if (in_take(x, ']'))
        return 0;
    do
        if (in_any(x))
            return -EINVAL;
    while (in_take(x, ','));
    return in_take(x, ']') ? 0 : -EINVAL;
}

/* Over a value. -EINVAL: it is not plainly JSON. */
static int in_any(struct in *x)
{
    const char *text;
    size_t n;
    int rc = -EINVAL;
    if (x->depth++ >= DEPTH_MAX)
        return -EINVAL;
    switch (in_next(x)) {
    case '{':
        rc = in_any_members(x);
        break;
    case '[':
        rc = in_any_elements(x);
        break;
    case '"':
        rc = in_plain(x, &text, &n) ? -EINVAL : 0;
        break;
    case 't':
        rc = in_word(x, "true") ? 0 : -EINVAL;
        break;
    case 'f':
        rc = in_word(x, "false") ? 0 : -EINVAL;
        break;
    case 'n':
        rc = in_word(x, "null") ? 0 : -EINVAL;
        break;
    case '\0':
        break;
    default:
        rc = in_any_number(x);
        break;
    }
    x->depth--;
    return rc;
}

static int in_text(struct in *x, char **at)
{
    if (in_next(x) != '{')
        return -EINVAL;
    const char *from = x->at;
    return in_any(x) ? -EINVAL : str_set_plain(at, from, (size_t)(x->at - from));
}

/* ---- shared structs ---- */

static int in_shared(struct in *x, const struct fields *t, const void **p)
{
    in_space(x);
    struct in value = *x;
    const char *text = x->at;
    if (in_skip(x))
        return UNUSUAL;
    const size_t n = (size_t)(x->at - text);
    const void *known = shared_by_text(t, text, n), *before = *p;
    if (known) { /* as most rows have them */
        *p = shared_ref(known);
        shared_unref(before);
        return 0;
    }
    void *s = malloc(t->size);
    if (!s)
        return strings_set_nomem();
    fields_init(t, s);
    value.end = x->at;
    int rc = in_fields(&value, t, s);
    if (rc == 0 && value.at != value.end)
        rc = UNUSUAL;
    if (rc == 0) {
        *p = shared_make(t, s);
        shared_unref(before);
        shared_note_text(*p, text, n);
    } else {
        fields_clear(t, s);
    }
    free(s);
    return rc;
}

/* ---- members ---- */

static int in_bool(struct in *x, bool *ret)
{
    const char c = in_next(x);
    if (c != 't' && c != 'f')
        return -EINVAL;
    *ret = c == 't';
    return in_word(x, c == 't' ? "true" : "false") ? 0 : UNUSUAL;
}

static int in_number(struct in *x, int64_t *ret)
{
    const char c = in_next(x);
    return c == '-' || (c >= '0' && c <= '9') ? in_integer(x, ret) : -EINVAL;
}

/* -EINVAL: not of the field's type, as far as it looks; it may have changed the field then, and have taken some of it.
 */
static int in_field(struct in *x, const struct field_desc *f, void *p)
{
    const char c = in_next(x);
    int64_t n;
    int rc;
    switch ((enum field_type)f->type) {
    case FIELD_STR:
        return in_string(x, p);
    case FIELD_INT:
        return in_number(x, p);
    case FIELD_UINT:
        if ((rc = in_number(x, &n)) == 0 && n >= 0)
            *(uint64_t *)p = (uint64_t)n;
        return rc == 0 && n < 0 ? -EINVAL : rc;
    case FIELD_BOOL:
        return in_bool(x, p);
    case FIELD_ENUM:
        return in_enum(x, f->names, p);
    case FIELD_ERR:
        if ((rc = in_number(x, &n)) == 0 && n >= 0 && n <= UINT8_MAX)
            *(enum err_class *)p = (enum err_class)n;
        return rc == 0 && (n < 0 || n > UINT8_MAX) ? -EINVAL : rc;
    case FIELD_STRS:
        return in_strs(x, p);
    case FIELD_STRUCT:
        if (c != '{')
            return -EINVAL;
        if ((rc = in_fields(x, f->of, p)) == 0)
            field_is_there(f->of, p);
        return rc;
    case FIELD_STRUCTS:
        return in_structs(x, f->of, p);
    case FIELD_SHARED:
        return c == '{' ? in_shared(x, f->of, p) : -EINVAL;
    case FIELD_TEXT:
        return in_text(x, p);
    case FIELD_REAL:
    case FIELD_JSON:
    case FIELD_OBJECT:
    case FIELD_ARRAY:
    case FIELD_REST:
        break;
    }
    return -EINVAL;
}

/* The value of one that the table does not know, of a table that keeps these as text. */
static int in_rest(struct in *x, struct text_buf *rest, const char *name, size_t n)
{
    field_rest_name(rest, name, n);
    in_space(x);
    const struct in before = *x;
    if (in_any(x) == 0) {
        text_put(rest, before.at, (size_t)(x->at - before.at));
        return 0;
    }
    json_t *v;
    *x = before;
    if (in_document(x, &v))
        return UNUSUAL;
    text_put_json(rest, v);
    json_decref(v);
    return 0;
}

/* One that is not as it was expected, or is kept as a document. */
static int in_other(struct in *x, const struct fields *t, void *s, const struct field_desc *f, const char *name)
{
    json_t *v;
    if (in_document(x, &v))
        return UNUSUAL;
    const int rc = field_load_member(t, s, f, name, v);
    json_decref(v);
    return rc;
}

struct members {
    const struct fields *t;
    void *s;
    uint64_t seen[FIELDS_MAX / 64];
    json_t *class;
    char **rest_at;
    struct text_buf rest;
};

static int in_member(struct in *x, struct members *m)
{
    const struct fields *t = m->t;
    void *s = m->s;
    const char *text;
    char name[64];
    size_t n;
    if (in_plain(x, &text, &n) || n >= sizeof name || !in_take(x, ':'))
        return UNUSUAL;
    memcpy(name, text, n);
    name[n] = '\0';
    if (t->v[0].type == FIELD_ERR && !strcmp(name, "class"))
        return m->class ? UNUSUAL : in_document(x, &m->class);
    const struct field_desc *f = field_find(t, name);
    if (!f)
        return m->rest_at ? in_rest(x, &m->rest, text, n) : in_other(x, t, s, NULL, name);
    const unsigned i = (unsigned)(f - t->v);
    if (m->seen[i / 64] >> i % 64 & 1)
        return UNUSUAL;
    m->seen[i / 64] |= UINT64_C(1) << i % 64;
    if (in_next(x) == 'n')
        return in_word(x, "null") ? 0 : UNUSUAL;
    const struct in before = *x;
    int rc = in_field(x, f, (char *)s + f->offset);
    if (rc != -EINVAL)
        return rc;
    *x = before;
    field_reset(f, (char *)s + f->offset);
    return in_other(x, t, s, f, name);
}

/* Into an initialized struct. */
static int in_fields(struct in *x, const struct fields *t, void *s)
{
    struct members m = {.t = t, .s = s, .rest_at = field_rest(t, s)};
    int rc = x->depth++ < DEPTH_MAX && t->n && in_take(x, '{') ? 0 : UNUSUAL;
    if (rc == 0 && !in_take(x, '}')) {
        do
            rc = in_member(x, &m);
        while (rc == 0 && in_take(x, ','));
        if (rc == 0 && !in_take(x, '}'))
            rc = UNUSUAL;
    }
    if (rc == 0)
        rc = field_load_class(t, s, m.class);
    if (rc == 0 && m.rest_at)
        rc = field_rest_end(m.rest_at, &m.rest);
    free(m.rest.v);
    json_decref(m.class);
    x->depth--;
    return rc;
}

int fields_read(const struct fields *t, void *s, const char *text, size_t n)
{
    struct in x = {.at = text, .end = text + n};
    fields_clear(t, s);
    int rc = in_fields(&x, t, s);
    if (rc == 0 && !in_next(&x) && x.at == x.end)
        return 0;
    if (rc < 0)
        return rc;
    json_t *doc = json_loadb(text, n, JSON_ALLOW_NUL, NULL);
    rc = json_is_object(doc) ? fields_load(t, s, doc) : -EINVAL;
    json_decref(doc);
    return rc;
}
