/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/gojson.h"

#include "base/cleanup.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <strings.h>

/* ---- modes ---- */

int go_parse_int32(const char *text, int32_t *ret)
{
    const char *p = text;
    bool minus = *p == '-';
    if (*p == '-' || *p == '+')
        p++;
    unsigned base = 10;
    bool digit_before = false; /* an underscore must follow a digit or a base prefix, and precede a digit */
    if (*p == '0') {
        char c = p[1] | 0x20;
        base = c == 'x' ? 16 : c == 'b' ? 2 : c == 'o' ? 8 : 0;
        if (base) {
            p += 2;
        } else {
            base = 8;
        }
        digit_before = true;
    }
    uint64_t v = 0;
    bool any = false, range = false;
    for (; *p; p++) {
        if (*p == '_') {
            if (!digit_before)
                return -EINVAL;
            digit_before = false;
            continue;
        }
        char c = *p | 0x20;
        unsigned d = *p >= '0' && *p <= '9' ? (unsigned)(*p - '0')
                     : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                                            : 99;
        if (d >= base)
            return -EINVAL;
        any = digit_before = true;
        v = v * base + d;
        if (v > (uint64_t)1 << 32)
            range = true, v = 0;
    }
    if (!any || !digit_before)
        return -EINVAL;
    if (range || v > (minus ? (uint64_t)1 << 31 : (uint64_t)INT32_MAX))
        return -ERANGE;
    *ret = (int32_t)(minus ? -(int64_t)v : (int64_t)v);
    return 0;
}

#define GO_SETUID (1 << 23)
#define GO_SETGID (1 << 22)
#define GO_STICKY (1 << 20)

uint32_t go_mode_to_unix(int32_t mode)
{
    return ((uint32_t)mode & 0777) | (mode & GO_SETUID ? 04000 : 0) | (mode & GO_SETGID ? 02000 : 0) |
           (mode & GO_STICKY ? 01000 : 0);
}

int32_t go_mode_from_unix(uint32_t mode)
{
    return (int32_t)(mode & 0777) | (mode & 04000 ? GO_SETUID : 0) | (mode & 02000 ? GO_SETGID : 0) |
           (mode & 01000 ? GO_STICKY : 0);
}

char *go_mode_text(uint32_t unix_mode, char out[GO_MODE_TEXT])
{
    snprintf(out, GO_MODE_TEXT, "0%o", (unsigned)go_mode_from_unix(unix_mode));
    return out;
}

/* ---- reading ---- */

json_t *go_parse(const char *text, size_t len)
{
    json_error_t err;
    return json_loadb(text, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &err);
}

static json_t *member_find(const json_t *obj, const char *key)
{
    if (!json_is_object(obj))
        return NULL;
    json_t *found = NULL;
    const char *k;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)obj, k, v)
    {
        if (!strcasecmp(k, key))
            found = v;
    }
    return found;
}

json_t *go_member(const json_t *obj, const char *key)
{
    json_t *v = member_find(obj, key);
    return json_is_null(v) ? NULL : v;
}

bool go_has(const json_t *obj, const char *key)
{
    return member_find(obj, key);
}

int go_string(const json_t *obj, const char *key, const char **ret)
{
    const json_t *v = go_member(obj, key);
    if (!v)
        return 0;
    if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
        return -EINVAL;
    *ret = json_string_value(v);
    return 0;
}

int go_int(const json_t *obj, const char *key, int64_t min, int64_t max, int64_t *ret)
{
    const json_t *v = go_member(obj, key);
    if (!v)
        return 0;
    if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max)
        return -EINVAL;
    *ret = json_integer_value(v);
    return 0;
}

int go_bool(const json_t *obj, const char *key, bool *ret)
{
    const json_t *v = go_member(obj, key);
    if (!v)
        return 0;
    if (!json_is_boolean(v))
        return -EINVAL;
    *ret = json_is_true(v);
    return 0;
}

int go_time(const json_t *obj, const char *key, int64_t *ret)
{
    const json_t *v = member_find(obj, key);
    if (!v)
        return 0;
    if (json_is_null(v)) {
        *ret = GO_ZERO_TIME_NS;
        return 0;
    }
    if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
        return -EINVAL;
    return time_parse(ret, json_string_value(v));
}

void go_copy_cut(char *out, size_t cap, const char *text)
{
    size_t n = strlen(text);
    if (n >= cap) {
        n = cap - 1;
        while (n && ((unsigned char)text[n] & 0xc0) == 0x80)
            n--;
    }
    memcpy(out, text, n);
    out[n] = '\0';
}

/* ---- writing ---- */

int go_set(json_t *obj, const char *key, json_t *value)
{
    return value ? json_object_set_new(obj, key, value) : -1;
}

static int by_name(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

json_t *go_sorted_map(const json_t *obj)
{
    size_t n = json_object_size(obj), i = 0;
    const char **keys CLEANUP_FREE = calloc(n + 1, sizeof *keys);
    json_t *ret = keys ? json_object() : NULL;
    if (!ret)
        return NULL;
    const char *k;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)obj, k, v) keys[i++] = k;
    qsort(keys, n, sizeof *keys, by_name);
    for (i = 0; i < n; i++) {
        if (json_object_set(ret, keys[i], json_object_get(obj, keys[i])) < 0) {
            json_decref(ret);
            return NULL;
        }
    }
    return ret;
}

struct text {
    char *p;
    size_t len, cap;
    bool failed;
};

static void text_put(struct text *t, const char *p, size_t n)
{
    if (t->failed)
        return;
    if (n >= t->cap - t->len) {
        size_t cap = t->cap * 2 + n + 256;
        char *np = realloc(t->p, cap);
        if (!np) {
            t->failed = true;
            return;
        }
        t->p = np;
        t->cap = cap;
    }
    memcpy(t->p + t->len, p, n);
    t->len += n;
    t->p[t->len] = '\0';
}

static void put_str(struct text *t, const char *s)
{
    text_put(t, s, strlen(s));
}

static void put_string(struct text *t, const char *s, size_t n)
{
    text_put(t, "\"", 1);
    size_t from = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        char esc[8] = "";
        size_t used = 1;
        if (c == '"' || c == '\\')
            snprintf(esc, sizeof esc, "\\%c", c);
        else if (c == '\n' || c == '\r' || c == '\t' || c == '\b' || c == '\f')
            snprintf(esc, sizeof esc, "\\%c",
                     c == '\n'   ? 'n'
                     : c == '\r' ? 'r'
                     : c == '\t' ? 't'
                     : c == '\b' ? 'b'
                                 : 'f');
        else if (c < 0x20 || c == '<' || c == '>' || c == '&')
            snprintf(esc, sizeof esc, "\\u%04x", c);
        else if (c == 0xe2 && i + 2 < n && (unsigned char)s[i + 1] == 0x80 && ((unsigned char)s[i + 2] & ~1) == 0xa8) {
            snprintf(esc, sizeof esc, "\\u202%c", (unsigned char)s[i + 2] == 0xa8 ? '8' : '9');
            used = 3;
        }
        if (!esc[0])
            continue;
        text_put(t, s + from, i - from);
        put_str(t, esc);
        i += used - 1;
        from = i + 1;
    }
    text_put(t, s + from, n - from);
    text_put(t, "\"", 1);
}

/* The shortest decimal that reads back as v, without an exponent from 1e-6 up to 1e21. */
static void put_real(struct text *t, double v)
{
    char buf[64];
    if (v == 0) {
        put_str(t, signbit(v) ? "-0" : "0");
        return;
    }
    int prec = 0;
    while (prec < 17 && (snprintf(buf, sizeof buf, "%.*e", prec, v), strtod(buf, NULL) != v))
        prec++;
    char *exp = strchr(buf, 'e');
    int x = exp ? atoi(exp + 1) : 0;
    if (x < -6 || x >= 21) {
        if (exp)
            snprintf(exp, (size_t)(buf + sizeof buf - exp), "e%c%02d", x < 0 ? '-' : '+', abs(x));
        /* Go drops the zero of a negative exponent of one digit only ("1e-7", but "1e+21"). */
        if (exp && x < 0 && x > -10)
            snprintf(exp, (size_t)(buf + sizeof buf - exp), "e-%d", -x);
    } else {
        snprintf(buf, sizeof buf, "%.*f", prec > x ? prec - x : 0, v);
    }
    put_str(t, buf);
}

static void put_value(struct text *t, const json_t *v)
{
    char num[32];
    const char *k;
    json_t *m;
    size_t i, n = 0;
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        text_put(t, "{", 1);
        json_object_foreach((json_t *)(uintptr_t)v, k, m)
        {
            if (n++)
                text_put(t, ",", 1);
            put_string(t, k, strlen(k));
            text_put(t, ":", 1);
            put_value(t, m);
        }
        text_put(t, "}", 1);
        break;
    case JSON_ARRAY:
        text_put(t, "[", 1);
        json_array_foreach(v, i, m)
        {
            if (n++)
                text_put(t, ",", 1);
            put_value(t, m);
        }
        text_put(t, "]", 1);
        break;
    case JSON_STRING:
        put_string(t, json_string_value(v), json_string_length(v));
        break;
    case JSON_INTEGER:
        snprintf(num, sizeof num, "%lld", (long long)json_integer_value(v));
        put_str(t, num);
        break;
    case JSON_REAL:
        put_real(t, json_real_value(v));
        break;
    case JSON_TRUE:
        put_str(t, "true");
        break;
    case JSON_FALSE:
        put_str(t, "false");
        break;
    case JSON_NULL:
        put_str(t, "null");
        break;
    }
}

char *json_go_text(const json_t *v, bool newline, size_t *len)
{
    struct text t = {0};
    text_put(&t, "", 0);
    put_value(&t, v);
    if (newline)
        text_put(&t, "\n", 1);
    if (t.failed) {
        free(t.p);
        return NULL;
    }
    if (len)
        *len = t.len;
    return t.p;
}
