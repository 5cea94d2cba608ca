/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * redact.c - removal of secrets from texts and documents
 *
 * In three ways: values of members and keys with names of secrets are removed (paths of files with secrets are kept),
 * so are user and password in URLs, and the contents of all configured password files wherever they occur.
 */
#include "daemon/cli/redact.h"

#include "base/bytes.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>

#define REMOVED "(removed)"
#define KNOWN_MAX 64
#define SECRET_MIN 4 /* shorter ones would match everywhere */
#define SECRET_MAX 4096

struct secrets {
    char *known[KNOWN_MAX];
    size_t n;
};

static bool secret_name(const char *name, size_t n)
{
    static const char *const words[] = {"password", "passphrase", "passwd", "secret",  "token",      "credential",
                                        "private",  "api-key",    "apikey", "api_key", "access-key", "access_key"};
    for (size_t w = 0; w < sizeof words / sizeof *words; w++)
        for (size_t len = strlen(words[w]), i = 0; i + len <= n; i++)
            if (!strncasecmp(name + i, words[w], len))
                return true;
    return false;
}

/* The path of a secret, not the secret itself. */
static bool place_of_secret(const char *name, size_t n, const char *value)
{
    bool file = n > 5 && (!strncasecmp(name + n - 5, "-file", 5) || !strncasecmp(name + n - 5, "_file", 5));
    return file && (value[0] == '/' || !strncmp(value, "cred:", 5));
}

static int add_known(struct secrets *s, const char *text, size_t n)
{
    while (n && isspace((unsigned char)text[n - 1]))
        n--;
    while (n && isspace((unsigned char)*text))
        text++, n--;
    if (n < SECRET_MIN || s->n == KNOWN_MAX)
        return 0;
    s->known[s->n] = strndup(text, n);
    return s->known[s->n] ? (s->n++, 0) : -ENOMEM;
}

static void add_file(struct secrets *s, const char *path)
{
    char buf[SECRET_MAX];
    CLEANUP_CLOSE int fd = path[0] == '/' ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof buf);
    if (n > 0)
        (void)add_known(s, buf, (size_t)n);
    explicit_bzero(buf, sizeof buf);
}

int secrets_new(struct secrets **ret, const struct cfg *c, struct err *e)
{
    struct secrets *s = calloc(1, sizeof *s);
    if (!s)
        return err_nomem(e);
    for (unsigned i = 0; c && cfg_repository_at(c, i); i++)
        add_file(s, cfg_repository_at(c, i)->password_file);
    *ret = s;
    return 0;
}

void secrets_free(struct secrets *s)
{
    for (size_t i = 0; s && i < s->n; i++) {
        explicit_bzero(s->known[i], strlen(s->known[i]));
        free(s->known[i]);
    }
    free(s);
}

/* Replaces [at, at + n) of a text of `len` bytes in a buffer of `cap`. False: too long. */
static bool replace_secret(char *text, size_t *len, size_t cap, size_t at, size_t n)
{
    size_t with = sizeof REMOVED - 1;
    if (*len - n + with >= cap)
        return false;
    memmove(text + at + with, text + at + n, *len - at - n + 1);
    memcpy(text + at, REMOVED, with);
    *len = *len - n + with;
    return true;
}

/* "://user:password@" */
static void redact_urls(char *text, size_t *len, size_t cap)
{
    for (size_t at = 0; at < *len;) {
        char *scheme = strstr(text + at, "://");
        if (!scheme)
            return;
        size_t from = (size_t)(scheme - text) + 3, n = strcspn(text + from, "/ \t\n\"'?#@");
        at = from;
        if (text[from + n] == '@' && n && !replace_secret(text, len, cap, from, n))
            return;
    }
}

char *redact_text(const struct secrets *s, const char *text)
{
    size_t len = strlen(text), cap = 2 * len + 4096;
    char *out = malloc(cap);
    if (!out)
        return NULL;
    memcpy(out, text, len + 1);
    redact_urls(out, &len, cap);
    for (size_t i = 0; i < s->n; i++) {
        for (char *hit = out; (hit = strstr(hit, s->known[i]));) {
            size_t at = (size_t)(hit - out);
            if (!replace_secret(out, &len, cap, at, strlen(s->known[i]))) {
                out[at] = '\0'; /* truncated */
                len = at;
                break;
            }
            hit = out + at + sizeof REMOVED - 1;
        }
    }
    return out;
}

json_t *redact_json(const struct secrets *s, const json_t *v)
{
    const char *key;
    json_t *item, *out;
    size_t i;
    if (json_is_string(v)) {
        CLEANUP_FREE char *text = redact_text(s, json_string_value(v));
        return text ? json_string(text) : NULL;
    }
    if (json_is_array(v)) {
        out = json_array();
        json_array_foreach(v, i, item) json_array_append_new(out, redact_json(s, item));
        return out;
    }
    if (!json_is_object(v))
        return json_deep_copy(v);
    out = json_object();
    json_object_foreach((json_t *)(uintptr_t)v, key, item)
    {
        bool secret = secret_name(key, strlen(key));
        const char *text = json_string_value(json_is_object(item) ? json_object_get(item, "value") : item);
        bool place = !text || !*text || place_of_secret(key, strlen(key), text);
        json_object_set_new(out, key, secret && !place ? json_string(REMOVED) : redact_json(s, item));
    }
    return out;
}

/* One line of INI; *in_secret: an indented line continues the value of the line before. */
static void ini_line(const struct secrets *s, const char *line, size_t n, bool *in_secret, FILE *f)
{
    size_t at = strspn(line, " \t");
    bool indented = at > 0 && at < n && line[at] != ';' && line[at] != '#';
    if (indented && *in_secret) {
        fputs("  " REMOVED "\n", f);
        return;
    }
    while (at < n && strchr(";# \t", line[at])) /* comments may contain secrets, too */
        at++;
    size_t eq = at;
    while (eq < n && line[eq] != '=' && line[eq] != ':')
        eq++;
    size_t end = eq;
    while (end > at && isspace((unsigned char)line[end - 1]))
        end--;
    size_t value = eq < n ? eq + 1 : n;
    while (value < n && isspace((unsigned char)line[value]))
        value++;
    *in_secret = eq < n && secret_name(line + at, end - at);
    CLEANUP_FREE char *copy = strndup(line, n);
    if (!copy)
        return;
    if (*in_secret && value < n && !place_of_secret(line + at, end - at, copy + value)) {
        fprintf(f, "%.*s " REMOVED "\n", (int)(eq + 1), copy);
        return;
    }
    *in_secret = *in_secret && value == n; /* its value begins on the next line */
    CLEANUP_FREE char *text = redact_text(s, copy);
    fprintf(f, "%s\n", text ? text : "");
}

char *redact_ini(const struct secrets *s, const char *text, size_t *len)
{
    char *out = NULL;
    FILE *f = open_memstream(&out, len);
    if (!f)
        return NULL;
    bool in_secret = false;
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, "\n");
        ini_line(s, at, n, &in_secret, f);
        at += n + (at[n] == '\n');
    }
    if (fclose(f) != 0) {
        free(out);
        return NULL;
    }
    return out;
}
