/* SPDX-License-Identifier: GPL-2.0-or-later */
/* output.c - JSON lines, errors, and signals */
#include "daemon/cli/live.h"

#include <signal.h>
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

void print_json(json_t *v)
{
    const char *type = json_string_value(json_object_get(v, "type"));
    result_printed |= type && !strcmp(type, "result");
    char *text = v ? json_dumps(v, JSON_COMPACT) : NULL;
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

void print_error(const struct options *o, const struct err *e)
{
    unsigned columns = SCREEN_ENDLESS, rows;
    if (isatty(STDERR_FILENO))
        live_size(&columns, &rows);
    fflush(stdout);
    fputs("snapferry: ", stderr);
    print_within(stderr, text_name(e->msg), 11, 11, columns);
    if (e->hint[0]) {
        fputs("snapferry: ", stderr);
        print_within(stderr, text_name(e->hint), 11, 11, columns);
    }
    if (o->json && !result_printed)
        print_json(json_pack("{s:s, s:s, s:s, s:s, s:i}", "type", "error", "class", err_class_name(e->cls), "message",
                             e->msg, "hint", e->hint, "exitCode", (int)e->cls));
}
