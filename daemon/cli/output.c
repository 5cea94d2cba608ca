/* SPDX-License-Identifier: GPL-2.0-or-later */
/* output.c - JSON lines, errors, and signals */
#include "daemon/cli/daemon.h"
#include "daemon/cli/live.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static struct mover_cancel cancel;

static void on_signal(int sig)
{
    (void)sig;
    if (atomic_exchange(&cancel.requested, true))
        _exit(ERR_INTERRUPTED);
}

struct mover_cancel *cli_cancel(void)
{
    static bool installed;
    if (!installed) {
        struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
        sigaction(SIGINT, &sa, NULL);
        sigaction(SIGTERM, &sa, NULL);
        installed = true;
    }
    return &cancel;
}

/* The result is the last line: an error after it (damage found, interrupted) is not printed as JSON. */
static bool result_printed;

/* A character of valid UTF-8; *n: its bytes. */
static uint32_t utf8_char(const char *s, unsigned *n)
{
    const unsigned char c = (unsigned char)*s;
    *n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    uint32_t u = c < 0x80 ? c : c & (0x7fu >> *n);
    for (unsigned i = 1; i < *n; i++)
        u = u << 6 | ((unsigned char)s[i] & 0x3f);
    return u;
}

/* Characters with an effect on a terminal that JSON allows in strings (DEL, C1 controls, direction marks and other
 * invisible ones) as \uXXXX. Takes over what json_dumps() has made; NULL: no memory. */
static char *json_escape(char *text)
{
    size_t above = 0, len = strlen(text);
    for (size_t i = 0; i < len; i++)
        above += (unsigned char)text[i] >= 0x7f;
    if (!above)
        return text;
    char *out = malloc(len + 6 * above + 1), *to = out;
    unsigned n;
    for (const char *p = text; out && *p; p += n) {
        const uint32_t u = utf8_char(p, &n);
        if (u < 0x7f || (u >= 0xa0 && !char_acts(u))) {
            memcpy(to, p, n);
            to += n;
        } else if (u < 0x10000) {
            to += sprintf(to, "\\u%04x", u);
        } else {
            to += sprintf(to, "\\u%04x\\u%04x", 0xd7c0 + (u >> 10), 0xdc00 | (u & 0x3ff));
        }
    }
    if (out)
        *to = '\0';
    free(text);
    return out;
}

void print_json(json_t *v)
{
    const char *type = json_string_value(json_object_get(v, "type"));
    result_printed |= type && !strcmp(type, "result");
    char *text = v ? json_dumps(v, JSON_COMPACT) : NULL;
    if (text)
        text = json_escape(text);
    if (!text)
        text = strdup(
            "{\"type\":\"error\",\"class\":\"error\",\"message\":\"cannot print the result as JSON: out of memory, or "
            "a name that is not UTF-8\",\"hint\":\"\",\"exitCode\":1}");
    if (text) {
        flockfile(stdout);
        puts(text);
        fflush(stdout);
        funlockfile(stdout);
    }
    free(text);
    json_decref(v);
}

static void error_lines(FILE *f, const struct err *e, unsigned columns)
{
    fputs("snapferry: ", f);
    print_within(f, text_name(e->msg), 11, 11, columns);
    if (!e->hint[0])
        return;
    fputs("snapferry: ", f);
    print_within(f, text_name(e->hint), 11, 11, columns);
}

void print_error(const struct options *o, const struct err *e)
{
    unsigned columns = SCREEN_ENDLESS, rows;
    char *text = NULL;
    size_t len;
    if (isatty(STDERR_FILENO))
        live_size(&columns, &rows);
    fflush(stdout);
    /* Whole: of several commands with one log the words would stand between each other's. */
    FILE *out = open_memstream(&text, &len);
    error_lines(out ? out : stderr, e, columns);
    if (out && fclose(out) == 0)
        fwrite(text, 1, len, stderr);
    free(text);
    if (o->json && !result_printed)
        print_json(json_pack("{s:s, s:s, s:s, s:s, s:i}", "type", "error", "class", err_class_name(e->cls), "message",
                             e->msg, "hint", e->hint, "exitCode", (int)e->cls));
}
