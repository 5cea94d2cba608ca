/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/docstream.h"

#include "base/bytes.h"
#include "repo/gojson.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define BUF_START ((size_t)64 << 10)
#define MAX_DEPTH 256
#define HEAD "{\"s\":" /* of an entry of an index document */
#define HEAD_LEN (sizeof HEAD - 1)
#define DIGITS_MAX 20
#define TAIL_MAX 256

/* Classes of bytes outside strings. */
enum { C_OTHER, C_OPEN, C_CLOSE, C_QUOTE, C_BAD };
static const uint8_t class_of[256] = {
    ['{'] = C_OPEN, ['['] = C_OPEN, ['}'] = C_CLOSE, [']'] = C_CLOSE, ['"'] = C_QUOTE, [0] = C_BAD,   [1] = C_BAD,
    [2] = C_BAD,    [3] = C_BAD,    [4] = C_BAD,     [5] = C_BAD,     [6] = C_BAD,     [7] = C_BAD,   [8] = C_BAD,
    [11] = C_BAD,   [12] = C_BAD,   [14] = C_BAD,    [15] = C_BAD,    ['\\'] = C_BAD,  [127] = C_BAD,
};

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Position behind the closing quote of the string that begins at p (its quote), or NULL if it does not end. */
static const char *string_end(const char *p, const char *end)
{
    for (p++; p < end; p++) {
        if (*p == '"')
            return p + 1;
        if (*p == '\\')
            p++;
    }
    return NULL;
}

/* Length of the value at p: > 0; 0: more bytes are needed; -1: no value begins here. */
static int64_t value_len(const char *p, size_t n, bool final)
{
    const char *end = p + n, *q = p;
    if (!n)
        return 0;
    if (*p == '"') {
        q = string_end(p, end);
        return q ? q - p : 0;
    }
    if (*p == '{' || *p == '[') {
        unsigned depth = 0;
        while (q < end) {
            switch (class_of[(unsigned char)*q]) {
            case C_OPEN:
                if (++depth > MAX_DEPTH)
                    return -1;
                q++;
                break;
            case C_CLOSE:
                q++;
                if (--depth == 0)
                    return q - p;
                break;
            case C_QUOTE:
                q = string_end(q, end);
                if (!q)
                    return 0;
                break;
            case C_BAD:
                return -1;
            default:
                q++;
            }
        }
        return 0;
    }
    while (q < end &&
           ((*q >= '0' && *q <= '9') || (*q >= 'a' && *q <= 'z') || *q == 'E' || *q == '+' || *q == '-' || *q == '.'))
        q++;
    if (q == p)
        return -1;
    return q < end || final ? q - p : 0;
}

/* ---- objects in memory ---- */

static void skip_space(struct json_cursor *c)
{
    while (c->at < c->end && is_space(*c->at))
        c->at++;
}

/* A key as a C string; "" for one that is too long or not a string. */
static void key_text(const char *p, size_t n, char key[JSON_KEY_MAX])
{
    key[0] = '\0';
    if (!memchr(p, '\\', n)) {
        if (n - 2 < JSON_KEY_MAX) {
            memcpy(key, p + 1, n - 2);
            key[n - 2] = '\0';
        }
        return;
    }
    json_t *v = go_parse(p, n);
    if (json_is_string(v) && json_string_length(v) < JSON_KEY_MAX)
        memcpy(key, json_string_value(v), json_string_length(v) + 1);
    json_decref(v);
}

int json_cursor_next(struct json_cursor *c, char key[JSON_KEY_MAX], const char **value, size_t *len)
{
    skip_space(c);
    if (c->at == c->end)
        return -EINVAL;
    char ch = *c->at++;
    if (c->state == 0) {
        if (ch != '{')
            return -EINVAL;
        skip_space(c);
        if (c->at == c->end)
            return -EINVAL;
        if (*c->at == '}')
            ch = *c->at++;
        c->state = 1;
    } else if (ch == ',') {
        skip_space(c);
    } else if (ch != '}') {
        return -EINVAL;
    }
    if (ch == '}') {
        skip_space(c);
        return c->at == c->end ? 0 : -EINVAL;
    }
    if (c->at == c->end || *c->at != '"')
        return -EINVAL;
    const char *q = string_end(c->at, c->end);
    if (!q)
        return -EINVAL;
    key_text(c->at, (size_t)(q - c->at), key);
    c->at = q;
    skip_space(c);
    if (c->at == c->end || *c->at++ != ':')
        return -EINVAL;
    skip_space(c);
    int64_t n = value_len(c->at, (size_t)(c->end - c->at), true);
    if (n <= 0)
        return -EINVAL;
    *value = c->at;
    *len = (size_t)n;
    c->at += n;
    return 1;
}

/* ---- documents ---- */

enum state {
    AT_START,   /* before the opening bracket */
    AT_MEMBER,  /* before a key or the closing bracket */
    AT_ELEMENT, /* inside the list, before an element */
    BEHIND_ELEMENT,
    BEHIND_MEMBER,
    AT_END
};

struct docstream {
    docstream_read_fn *read;
    void *arg;
    const char *stream;
    size_t max_elem;
    char *buf;
    size_t cap, at, fill;
    uint64_t base; /* position of buf[0] in the document */
    bool eof, any_member, any_element, saw_entries, saw_stream;
    enum state state;
    char tail[TAIL_MAX]; /* of the last element, what follows HEAD and a number; tail_len 0: it has another form */
    size_t tail_len;
    bool repeats;
    char *summary;
    size_t summary_len;
};

int docstream_new(struct docstream **ret, const char *stream, size_t max_elem, docstream_read_fn *read, void *arg,
                  struct err *e)
{
    struct docstream *d = calloc(1, sizeof *d);
    if (!d)
        return err_nomem(e);
    d->cap = BUF_START;
    d->buf = malloc(d->cap);
    if (!d->buf) {
        free(d);
        return err_nomem(e);
    }
    d->read = read;
    d->arg = arg;
    d->stream = stream;
    d->max_elem = max_elem;
    *ret = d;
    return 0;
}

void docstream_free(struct docstream *d)
{
    if (!d)
        return;
    free(d->buf);
    free(d->summary);
    free(d);
}

static int stream_damaged(const struct docstream *d, struct err *e, const char *why)
{
    return err_set(e, ERR_DAMAGE, EBADMSG, "%s at byte %llu of a %s document", why,
                   (unsigned long long)(d->base + d->at), d->stream ? d->stream : "manifest");
}

/* Makes room and reads more. Filling the buffer to its end keeps the repeated scans of a long element linear: each
 * one covers at least twice as much as the one before. */
static int buf_fill(struct docstream *d, struct err *e)
{
    if (d->at) {
        memmove(d->buf, d->buf + d->at, d->fill - d->at);
        d->base += d->at;
        d->fill -= d->at;
        d->at = 0;
    }
    if (d->fill == d->cap) {
        size_t limit = d->max_elem + BUF_START, cap = d->cap * 2 < limit ? d->cap * 2 : limit;
        if (cap <= d->cap)
            return stream_damaged(d, e, "element too long");
        char *p = realloc(d->buf, cap);
        if (!p)
            return err_nomem(e);
        d->buf = p;
        d->cap = cap;
    }
    while (d->fill < d->cap) {
        int64_t n = d->read(d->arg, d->buf + d->fill, d->cap - d->fill, e);
        if (n < 0)
            return (int)n;
        if (n == 0) {
            d->eof = true;
            break;
        }
        d->fill += (size_t)n;
    }
    return 0;
}

/* The next byte that is not white space, not consumed; 0 at the end of the document. */
static int next_byte(struct docstream *d, char *c, struct err *e)
{
    for (;;) {
        while (d->at < d->fill && is_space(d->buf[d->at]))
            d->at++;
        if (d->at < d->fill) {
            *c = d->buf[d->at];
            return 0;
        }
        if (d->eof) {
            *c = 0;
            return 0;
        }
        int rc = buf_fill(d, e);
        if (rc < 0)
            return rc;
    }
}

static int value_read(struct docstream *d, const char **p, size_t *len, struct err *e)
{
    for (;;) {
        int64_t n = value_len(d->buf + d->at, d->fill - d->at, d->eof);
        if (n < 0)
            return stream_damaged(d, e, "garbage");
        if ((uint64_t)n > d->max_elem)
            return stream_damaged(d, e, "element too long");
        if (n > 0) {
            *p = d->buf + d->at;
            *len = (size_t)n;
            d->at += (size_t)n;
            return 0;
        }
        if (d->eof)
            return stream_damaged(d, e, "truncation");
        int rc = buf_fill(d, e);
        if (rc < 0)
            return rc;
    }
}

/* Bytes of HEAD and the number that follows; 0: something else is there. */
static size_t head_len(const char *p, size_t n)
{
    if (n < HEAD_LEN || memcmp(p, HEAD, HEAD_LEN) != 0)
        return 0;
    size_t q = HEAD_LEN;
    while (q < n && q < HEAD_LEN + DIGITS_MAX && p[q] >= '0' && p[q] <= '9')
        q++;
    return q > HEAD_LEN ? q : 0;
}

/* An element of the list. One that is like the last has the same brackets and strings. */
static int element_read(struct docstream *d, const char **p, size_t *len, struct err *e)
{
    const char *at = d->buf + d->at;
    const size_t n = d->fill - d->at;
    size_t head = d->tail_len ? head_len(at, n) : 0;
    d->repeats = head && n - head >= d->tail_len && memcmp(at + head, d->tail, d->tail_len) == 0;
    if (d->repeats) {
        *p = at;
        *len = head + d->tail_len;
        d->at += *len;
        return 0;
    }
    int rc = value_read(d, p, len, e);
    if (rc < 0)
        return rc;
    head = head_len(*p, *len);
    d->tail_len = head && *len - head <= TAIL_MAX && (*p)[head] == ',' ? *len - head : 0;
    memcpy(d->tail, *p + head, d->tail_len);
    return 0;
}

static int byte_expect(struct docstream *d, char want, const char *why, struct err *e)
{
    char c;
    int rc = next_byte(d, &c, e);
    if (rc < 0)
        return rc;
    if (c != want)
        return stream_damaged(d, e, c ? why : "truncation");
    d->at++;
    return 0;
}

static int check_stream(struct docstream *d, const char *p, size_t n, struct err *e)
{
    json_t *v = go_parse(p, n);
    bool ok =
        json_is_string(v) && json_string_length(v) == strlen(d->stream) && !strcmp(json_string_value(v), d->stream);
    json_decref(v);
    if (!ok)
        return stream_damaged(d, e, "unexpected type of stream");
    d->saw_stream = true;
    return 0;
}

/* A member other than the list. */
static int other_member(struct docstream *d, const char *key, struct err *e)
{
    const char *p;
    size_t n;
    char c;
    int rc = next_byte(d, &c, e);
    if (rc < 0)
        return rc;
    rc = value_read(d, &p, &n, e);
    if (rc < 0)
        return rc;
    d->state = BEHIND_MEMBER;
    if (!d->stream)
        return stream_damaged(d, e, "unknown member");
    if (!strcasecmp(key, "stream"))
        return check_stream(d, p, n, e);
    json_t *v = go_parse(p, n);
    if (!v)
        return stream_damaged(d, e, "garbage");
    json_decref(v);
    if (strcasecmp(key, "summary"))
        return 0;
    char *copy = malloc(n + 1);
    if (!copy)
        return err_nomem(e);
    memcpy(copy, p, n);
    copy[n] = '\0';
    free(d->summary);
    d->summary = copy;
    d->summary_len = n;
    return 0;
}

static int member_read(struct docstream *d, struct err *e)
{
    const char *p;
    size_t n;
    char c, key[JSON_KEY_MAX];
    int rc = next_byte(d, &c, e);
    if (rc < 0)
        return rc;
    if (c != '"')
        return stream_damaged(d, e, c ? "garbage" : "truncation");
    rc = value_read(d, &p, &n, e);
    if (rc < 0)
        return rc;
    key_text(p, n, key);
    rc = byte_expect(d, ':', "garbage", e);
    if (rc < 0)
        return rc;
    if (strcasecmp(key, "entries"))
        return other_member(d, key, e);
    if (d->saw_entries)
        return stream_damaged(d, e, "second list of entries");
    d->saw_entries = true;
    rc = next_byte(d, &c, e);
    if (rc < 0)
        return rc;
    if (c == '[') {
        d->at++;
        d->state = AT_ELEMENT;
        return 0;
    }
    /* An empty list may be written as null. */
    rc = value_read(d, &p, &n, e);
    if (rc < 0)
        return rc;
    if (n != 4 || memcmp(p, "null", 4))
        return stream_damaged(d, e, "entries is not a list");
    d->state = BEHIND_MEMBER;
    return 0;
}

static int stream_finish(struct docstream *d, struct err *e)
{
    char c;
    int rc = next_byte(d, &c, e);
    if (rc < 0)
        return rc;
    if (d->at < d->fill)
        return stream_damaged(d, e, "trailing data");
    if (d->stream && !d->saw_stream)
        return stream_damaged(d, e, "missing type of stream");
    d->state = AT_END;
    return 0;
}

int docstream_next(struct docstream *d, const char **elem, size_t *len, struct err *e)
{
    char c;
    int rc;
    for (;;) {
        switch (d->state) {
        case AT_START:
            rc = byte_expect(d, '{', "garbage", e);
            if (rc < 0)
                return rc;
            d->state = AT_MEMBER;
            break;
        case AT_MEMBER:
            rc = next_byte(d, &c, e);
            if (rc < 0)
                return rc;
            if (c == '}' && !d->any_member) {
                d->at++;
                rc = stream_finish(d, e);
            } else {
                d->any_member = true;
                rc = member_read(d, e);
            }
            if (rc < 0)
                return rc;
            break;
        case AT_ELEMENT:
            rc = next_byte(d, &c, e);
            if (rc < 0)
                return rc;
            if (c == ']' && !d->any_element) {
                d->at++;
                d->state = BEHIND_MEMBER;
                break;
            }
            rc = element_read(d, elem, len, e);
            if (rc < 0)
                return rc;
            d->any_element = true;
            d->state = BEHIND_ELEMENT;
            return 1;
        case BEHIND_ELEMENT:
        case BEHIND_MEMBER:
            rc = next_byte(d, &c, e);
            if (rc < 0)
                return rc;
            if (c != ',' && c != (d->state == BEHIND_ELEMENT ? ']' : '}'))
                return stream_damaged(d, e, c ? "garbage" : "truncation");
            d->at++;
            if (c == ',') {
                d->state = d->state == BEHIND_ELEMENT ? AT_ELEMENT : AT_MEMBER;
            } else if (c == ']') {
                d->state = BEHIND_MEMBER;
            } else {
                rc = stream_finish(d, e);
                if (rc < 0)
                    return rc;
            }
            break;
        case AT_END:
            return 0;
        }
    }
}

bool docstream_repeats(const struct docstream *d)
{
    return d->repeats;
}

/* Decimal digits, right-aligned; the last eight also as the bytes of a number. */
struct addend {
    char text[DIGITS_MAX + 1];
    size_t n;
    uint64_t low;
};

#define ONE_EACH UINT64_C(0x0101010101010101)
#define ZEROS ('0' * ONE_EACH)

static void addend_set(struct addend *b, uint64_t value)
{
    uint8_t last[8];
    b->n = (size_t)snprintf(b->text, sizeof b->text, "%llu", (unsigned long long)value);
    for (size_t i = 0; i < 8; i++)
        last[7 - i] = i < b->n ? (uint8_t)(b->text[b->n - 1 - i] - '0') : 0;
    b->low = get_be64(last);
}

/* Eight digits at once. Each byte that is 10 or more with 0xf6 added carries into the next one, and has what it should;
 * the others have 0xf6 too much, and so their highest bit. True: there is a carry. */
static bool decimal_add8(char *a, uint64_t b)
{
    uint64_t sum;
    const bool carry = __builtin_add_overflow(get_be64((uint8_t *)a) - ZEROS, b + 0xf6 * ONE_EACH, &sum);
    sum -= (sum >> 7 & ONE_EACH) * 0xf6;
    put_be64((uint8_t *)a, sum + ZEROS);
    return carry;
}

/* Adds to a decimal number of `n` digits one that has at most as many. False: the sum has a digit more. */
static bool decimal_add(char *a, size_t n, const struct addend *b)
{
    bool carry = false;
    size_t i = 1;
    if (n >= 8) {
        carry = decimal_add8(a + n - 8, b->low);
        i = 9;
    }
    for (; i <= n && (i <= b->n || carry); i++) {
        const char sum = (char)(a[n - i] + (i <= b->n ? b->text[b->n - i] - '0' : 0) + (carry ? 1 : 0));
        carry = sum > '9';
        a[n - i] = (char)(carry ? sum - 10 : sum);
    }
    return !carry;
}

uint64_t docstream_skip_repeats(struct docstream *d, uint64_t first, uint64_t step, uint64_t most)
{
    char want[1 + HEAD_LEN + DIGITS_MAX + 1 + TAIL_MAX];
    struct addend add;
    uint64_t n = 0;
    if (d->state != BEHIND_ELEMENT || !d->tail_len)
        return 0;
    addend_set(&add, step);
    while (n < most) {
        size_t digits =
            (size_t)snprintf(want, sizeof want, "," HEAD "%llu", (unsigned long long)(first + n * step)) - 1 - HEAD_LEN;
        const size_t len = 1 + HEAD_LEN + digits + d->tail_len;
        memcpy(want + 1 + HEAD_LEN + digits, d->tail, d->tail_len);
        do {
            if (d->fill - d->at < len || memcmp(d->buf + d->at, want, len) != 0)
                return n;
            d->at += len;
            n++;
        } while (n < most && add.n <= digits && decimal_add(want + 1 + HEAD_LEN, digits, &add));
    }
    return n;
}

const char *docstream_summary(const struct docstream *d, size_t *len)
{
    if (len)
        *len = d->summary_len;
    return d->summary;
}
