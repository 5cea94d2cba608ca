/* SPDX-License-Identifier: GPL-2.0-or-later */
/* velero-write.c - what an import writes: lines of INI that the reader takes as they are, comments, refusals */
#include "daemon/import/velero-impl.h"

#include "base/err.h"

#include <stdarg.h>
#include <string.h>

#define KEY_LINE 190 /* characters of a line, below the reader's limit */

void import_refuse(struct import *m, const char *fmt, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    log_line(LOG_LVL_ERROR, "not imported: %s", line);
    size_t n = strlen(m->refused);
    snprintf(m->refused + n, sizeof m->refused - n, "%s%s", n ? "; " : "", line);
    m->n_refused++;
}

void import_comment(struct import *m, const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    for (char *s = line; *s; s++) /* names of the document must not begin a line of their own */
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            *s = '?';
    for (const char *s = line; *s;) { /* words into lines of at most 100 characters */
        size_t n = strlen(s) > 100 ? 100 : strlen(s), cut = n;
        while (s[n] && cut > 1 && s[cut] != ' ')
            cut--;
        n = s[n] && cut > 1 ? cut : n;
        while (n > 1 && ((unsigned char)s[n] & 0xc0) == 0x80) /* not within a character */
            n--;
        fprintf(m->out, "; %.*s\n", (int)n, s);
        s += n + (s[n] == ' ');
    }
}

/* Whether the reader gives the value back as it is: one line, no comment in it, no white space at its ends. */
static bool plain(const char *s)
{
    size_t n = strlen(s);
    if (!n || s[0] == ' ' || s[n - 1] == ' ' || s[0] == ';')
        return n == 0;
    for (const char *p = s; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f || (*p == ';' && p[-1] == ' '))
            return false;
    return true;
}

void import_value(struct import *m, const char *path, const char *key, const char *value)
{
    if (!plain(value) || strpbrk(key, "=: \t\r\n;#[]")) {
        import_refuse(m, "%s: cannot be written as a line of INI", path);
        return;
    }
    if (strlen(key) + strlen(value) + 3 <= KEY_LINE) {
        fprintf(m->out, "%s = %s\n", key, value);
        return;
    }
    if (strcmp(key, "only-on-node") != 0) {
        import_refuse(m, "%s: longer than a line of INI", path);
        return;
    }
    fprintf(m->out, "%s =\n", key); /* a list goes on in indented lines */
    for (const char *s = value; *s; s += strspn(s, " ")) {
        size_t n = strcspn(s, " ");
        if (n > KEY_LINE)
            import_refuse(m, "%s: longer than a line of INI", path);
        fprintf(m->out, "    %.*s\n", (int)n, s);
        s += n;
    }
}

void import_number(struct import *m, const char *key, long long value)
{
    fprintf(m->out, "%s = %lld\n", key, value);
}

void import_only(struct import *m, const json_t *o, const char *path, const char *const *known)
{
    const char *name;
    const json_t *v;
    json_object_foreach((json_t *)(uintptr_t)o, name, v)
    {
        bool found = false;
        for (const char *const *k = known; *k && !found; k++)
            found = !strcmp(*k, name);
        if (!found)
            import_refuse(m, "%s%s\"%s\": unknown", path, *path ? "." : "", name);
    }
}
