/* SPDX-License-Identifier: GPL-2.0-or-later */
/* confirm.c - confirmation of destructive verbs */
#include "daemon/cli/confirm.h"

#include "daemon/cli/live.h"
#include "io/target.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

bool confirm_needed(const struct options *o)
{
    return !o->yes && !o->dry_run && !o->json && isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
}

/* One line of standard input without blanks at its ends; empty at its end. */
static int read_reply(char *out, size_t cap, struct err *e)
{
    const struct mover_cancel *cancel = cli_cancel();
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    *out = '\0';
    while (poll(&p, 1, -1) < 0) {
        if (errno != EINTR)
            return err_set(e, ERR_GENERIC, errno, "cannot read the answer");
        if (atomic_load(&cancel->requested)) {
            fputc('\n', stderr);
            return err_set(e, ERR_INTERRUPTED, 0, "interrupted; nothing was changed");
        }
    }
    ssize_t n = read(STDIN_FILENO, out, cap - 1);
    if (n < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot read the answer");
    if (n == 0)
        fputc('\n', stderr);
    while (n > 0 && isspace((unsigned char)out[n - 1]))
        n--;
    out[n] = '\0';
    memmove(out, out + strspn(out, " \t"), strlen(out + strspn(out, " \t")) + 1);
    return 0;
}

int confirm(const struct options *o, struct err *e, const char *fmt, ...)
{
    char text[4096], reply[64];
    unsigned columns, rows;
    va_list ap;
    if (!confirm_needed(o))
        return 0;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fflush(stdout);
    live_size(&columns, &rows);
    print_within(stderr, text_name(text), 0, 0, columns);
    fputs("Continue? [y/N] ", stderr);
    fflush(stderr);
    int rc = read_reply(reply, sizeof reply, e);
    if (rc < 0)
        return rc;
    if (strcasecmp(reply, "y") != 0 && strcasecmp(reply, "yes") != 0)
        return err_set(e, ERR_GENERIC, 0, "not confirmed; nothing was changed");
    return 0;
}

int confirm_target(const struct options *o, const char *path, struct err *e)
{
    struct target_contents c;
    if (!confirm_needed(o) || !target_contents(path, &c))
        return 0;
    return confirm(o, e, "The data on %s (%s%s%s) will be overwritten.", path, text_bytes(c.size), *c.user ? ", " : "",
                   c.user);
}
