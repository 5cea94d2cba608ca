/* SPDX-License-Identifier: GPL-2.0-or-later */
/* changed-answer.c - what a driver answers when it is asked for changes */
#include "io/native/driver.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const names[CHANGED_STATES] = {
    [CHANGED_LISTED] = "listed",         [CHANGED_UNSUPPORTED] = "unsupported", [CHANGED_BASE_LOST] = "base-lost",
    [CHANGED_BASE_OTHER] = "base-other", [CHANGED_UNCERTAIN] = "uncertain",     [CHANGED_BUSY] = "busy",
    [CHANGED_FAILED] = "failed",
};

const char *changed_state_name(enum changed_state s)
{
    return s < CHANGED_STATES ? names[s] : names[CHANGED_FAILED];
}

enum changed_state changed_state_of(const char *name)
{
    for (unsigned i = 0; name && i < CHANGED_STATES; i++)
        if (strcmp(names[i], name) == 0)
            return (enum changed_state)i;
    return CHANGED_FAILED;
}

int changed_doubt(struct changed_answer *a, enum changed_state s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    a->state = s;
    vsnprintf(a->why, sizeof a->why, fmt, ap);
    va_end(ap);
    return 0;
}
