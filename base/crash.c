/* SPDX-License-Identifier: GPL-2.0-or-later */
/* crash.c - places where a test may kill the process. */
#include "base/crash.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void crash_point(const char *name)
{
    static atomic_ulong passed;
    const char *at = getenv("SNAPFERRY_CRASH_AT");
    if (!at)
        return;
    size_t len = strcspn(at, ":");
    if (strlen(name) != len || strncmp(at, name, len) != 0)
        return;
    unsigned long want = at[len] == ':' ? strtoul(at + len + 1, NULL, 10) : 1;
    if (atomic_fetch_add(&passed, 1) + 1 == want) {
        kill(getpid(), SIGKILL);
        for (;;)
            pause(); /* the signal may reach another thread first */
    }
}
