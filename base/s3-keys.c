/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "base/s3-keys.h"

#include "base/cleanup.h"
#include "base/password.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

void s3_keys_wipe(struct s3_keys *k)
{
    explicit_bzero(k, sizeof *k);
}

static void wipe(char **p)
{
    password_free(*p);
}

/* A value of printable characters without blanks: it becomes part of a header. Never shown. */
static int set_value(char *to, size_t cap, const char *from, size_t len)
{
    if (len == 0 || len >= cap || to[0])
        return -EINVAL;
    for (size_t i = 0; i < len; i++)
        if (!isgraph((unsigned char)from[i]))
            return -EINVAL;
    memcpy(to, from, len);
    to[len] = '\0';
    return 0;
}

static int parse_line(struct s3_keys *k, const char *line, size_t len)
{
    const char *equals = memchr(line, '=', len);
    if (!equals)
        return -EINVAL;
    size_t name = (size_t)(equals - line), value = len - name - 1;
    const char *from = equals + 1;
    while (name > 0 && strchr(" \t", line[name - 1]))
        name--;
    while (value > 0 && strchr(" \t", *from))
        from++, value--;
    while (value > 0 && strchr(" \t\r", from[value - 1]))
        value--;
    if (name == 10 && !memcmp(line, "access-key", name))
        return set_value(k->access, sizeof k->access, from, value);
    if (name == 10 && !memcmp(line, "secret-key", name))
        return set_value(k->secret, sizeof k->secret, from, value);
    if (name == 13 && !memcmp(line, "session-token", name))
        return set_value(k->token, sizeof k->token, from, value);
    return -EINVAL;
}

static int bad_keys(struct s3_keys *k, struct err *e)
{
    s3_keys_wipe(k);
    return err_hint(e, "it has the lines `access-key = ...`, `secret-key = ...` and, for temporary keys, "
                       "`session-token = ...`, each once");
}

int s3_keys_parse(struct s3_keys *ret, const char *text, const char *file, struct err *e)
{
    *ret = (struct s3_keys){.access = ""};
    unsigned number = 1;
    for (const char *line = text; *line; number++) {
        const size_t len = strcspn(line, "\n"), blank = strspn(line, " \t\r");
        if (blank < len && line[blank] != '#' && parse_line(ret, line + blank, len - blank) < 0) {
            err_set(e, ERR_USAGE, EINVAL, "%s:%u is no valid line of S3 credentials", file, number);
            return bad_keys(ret, e);
        }
        line += len + (line[len] == '\n');
    }
    if (ret->access[0] && ret->secret[0])
        return 0;
    err_set(e, ERR_USAGE, EINVAL, "the S3 credentials in %s have no %s", file,
            ret->access[0] ? "secret-key" : "access-key");
    return bad_keys(ret, e);
}

int s3_keys_read(struct s3_keys *ret, const char *file, struct err *e)
{
    CLEANUP(wipe) char *text = NULL;
    const int rc = secret_read(&text, "credentials", file, e);
    if (rc < 0) {
        *ret = (struct s3_keys){.access = ""};
        return rc;
    }
    return s3_keys_parse(ret, text, file, e);
}

int s3_keys_check(const char *file, struct err *e)
{
    struct s3_keys k;
    const int rc = s3_keys_read(&k, file, e);
    s3_keys_wipe(&k);
    return rc;
}
