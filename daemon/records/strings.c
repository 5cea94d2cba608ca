/* SPDX-License-Identifier: GPL-2.0-or-later */
/* strings.c - see strings.h */
#include "daemon/records/strings.h"
#include "daemon/records/records-test.h"

#include <errno.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct str {
    struct str *next; /* of the same bucket */
    uint32_t refs, hash;
    char text[];
};

/* Read-only under a name that is not: whoever writes into it ends at once. */
static const char str_nothing[1] __attribute__((used)) = "";
extern char str_empty[1] __attribute__((alias("str_nothing")));

static struct str **buckets;
static size_t n_buckets, n_strings;
static bool nomem;

bool strings_nomem(void)
{
    bool was = nomem;
    nomem = false;
    return was;
}

int strings_set_nomem(void)
{
    nomem = true;
    return -ENOMEM;
}

static uint32_t hash_text(const char *s, size_t n)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (uint8_t)s[i]) * 16777619u;
    return h;
}

static struct str *str_of(char *s)
{
    return (struct str *)(void *)(s - offsetof(struct str, text));
}

/* A table that cannot grow is only slower. */
static void grow(void)
{
    size_t n = n_buckets ? 2 * n_buckets : 256;
    struct str **fresh = calloc(n, sizeof *fresh);
    if (!fresh)
        return;
    for (size_t i = 0; i < n_buckets; i++) {
        for (struct str *s = buckets[i], *next; s; s = next) {
            next = s->next;
            s->next = fresh[s->hash & (n - 1)];
            fresh[s->hash & (n - 1)] = s;
        }
    }
    free(buckets);
    buckets = fresh;
    n_buckets = n;
}

/* Of `text` the first n bytes, none of which is 0. */
static char *intern(const char *text, size_t n)
{
    uint32_t h = hash_text(text, n);
    if (n_strings >= n_buckets)
        grow();
    if (!n_buckets)
        return NULL;
    for (struct str *s = buckets[h & (n_buckets - 1)]; s; s = s->next) {
        if (s->hash == h && !strncmp(s->text, text, n) && !s->text[n]) {
            s->refs++;
            return s->text;
        }
    }
    struct str *s = malloc(sizeof *s + n + 1);
    if (!s)
        return NULL;
    s->refs = 1;
    s->hash = h;
    memcpy(s->text, text, n);
    s->text[n] = '\0';
    s->next = buckets[h & (n_buckets - 1)];
    buckets[h & (n_buckets - 1)] = s;
    n_strings++;
    return s->text;
}

char *str_ref(char *s)
{
    if (!s || s == str_empty)
        return str_empty;
    str_of(s)->refs++;
    return s;
}

static void unref(char *text)
{
    if (!text || text == str_empty)
        return;
    struct str *s = str_of(text);
    if (--s->refs)
        return;
    struct str **at = &buckets[s->hash & (n_buckets - 1)];
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    n_strings--;
    free(s);
}

void str_clear(char **at)
{
    unref(*at);
    *at = str_empty;
}

uint32_t str_hash(const char *s)
{
    return *s ? str_of((char *)(uintptr_t)s)->hash : 0;
}

size_t str_count(void)
{
    return n_strings;
}

/* Bytes of the UTF-8 sequence at `s` (which ends with NUL), 0: it is none. */
static size_t sequence(const unsigned char *s)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;
    uint32_t c = n < 2 ? s[0] : s[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if (s[i] >> 6 != 2)
            return 0;
        c = c << 6 | (s[i] & 0x3fu);
    }
    return n && c >= least[n] && c <= 0x10ffff && (c < 0xd800 || c > 0xdfff) ? n : 0;
}

static bool is_utf8(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t n;
    for (; *s; s += n)
        if (!(n = sequence(s)))
            return false;
    return true;
}

/* As jset_str(): each byte above 0x7f is written out. */
static char *escaped(const char *text)
{
    char *ret = malloc(4 * strlen(text) + 1), *p = ret;
    for (; ret && *text; text++) {
        if ((unsigned char)*text < 0x80)
            *p++ = *text;
        else
            p += snprintf(p, 5, "\\x%02x", (unsigned char)*text);
    }
    if (ret)
        *p = '\0';
    return ret;
}

int str_set(char **at, const char *text)
{
    char *made = NULL, *fresh = str_empty;
    if (text && text[0]) {
        if (!is_utf8(text) && !(made = escaped(text)))
            return strings_set_nomem();
        if (made)
            text = made;
        fresh = intern(text, strlen(text));
        free(made);
        if (!fresh)
            return strings_set_nomem();
    }
    unref(*at); /* after it: `text` may be the old one */
    *at = fresh;
    return 0;
}

int str_set_plain(char **at, const char *text, size_t n)
{
    char *fresh = n ? intern(text, n) : str_empty;
    if (!fresh)
        return strings_set_nomem();
    unref(*at);
    *at = fresh;
    return 0;
}

int str_setf(char **at, const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0)
        return strings_set_nomem();
    int rc = str_set(at, text);
    free(text);
    return rc;
}

/* ---- lists ---- */

/* In front of the array: a list with more than one owner is never written into. */
struct strs_head {
    alignas(16) size_t refs;
};

static struct strs_head *head_of(const struct strs *s)
{
    return (struct strs_head *)(void *)s->v - 1;
}

/* An array of its own for `s`, with room for `n`, which are at least as many as it has. */
static int strs_own(struct strs *s, unsigned n)
{
    const bool own = s->v && head_of(s)->refs == 1;
    struct strs_head *h = realloc(own ? head_of(s) : NULL, sizeof *h + n * sizeof *s->v);
    if (!h)
        return strings_set_nomem();
    char **v = (char **)(void *)(h + 1);
    for (unsigned i = 0; !own && i < s->n; i++)
        v[i] = str_ref(s->v[i]);
    if (!own && s->v)
        head_of(s)->refs--;
    h->refs = 1;
    s->v = v;
    return 0;
}

int strs_take(struct strs *s, char *one)
{
    if (strs_own(s, s->n + 1) < 0) {
        str_clear(&one);
        return -ENOMEM;
    }
    s->v[s->n++] = one;
    return 0;
}

int strs_add(struct strs *s, const char *text)
{
    char *one = str_empty;
    return str_set(&one, text) < 0 ? -ENOMEM : strs_take(s, one);
}

void strs_copy(struct strs *ret, const struct strs *s)
{
    *ret = *s;
    if (s->v)
        head_of(s)->refs++;
}

int strs_from_json(struct strs *s, const json_t *array)
{
    const json_t *v;
    size_t i;
    int rc = 0;
    strs_clear(s);
    json_array_foreach(array, i, v)
    {
        if (json_is_string(v) && rc == 0)
            rc = strs_add(s, json_string_value(v));
    }
    return rc;
}

bool strs_equal(const struct strs *a, const struct strs *b)
{
    if (a->n != b->n)
        return false;
    for (unsigned i = 0; a->v != b->v && i < a->n; i++)
        if (a->v[i] != b->v[i])
            return false;
    return true;
}

void strs_clear(struct strs *s)
{
    if (s->v && --head_of(s)->refs == 0) {
        for (unsigned i = 0; i < s->n; i++)
            str_clear(&s->v[i]);
        free(head_of(s));
    }
    *s = (struct strs){NULL, 0};
}
