/* SPDX-License-Identifier: GPL-2.0-or-later */
/* notify.c - messages to the service manager */
#include "proc/notify.h"

#include "base/time.h"

#include <stdio.h>
#include <systemd/sd-daemon.h>

void notify_ready(void)
{
    sd_notify(0, "READY=1");
}

void notify_reloading(void)
{
    sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%lld", (long long)(mono_ns() / NS_PER_US));
}

/* A newline would begin another assignment. */
void notify_status(const char *line)
{
    char text[2048];
    snprintf(text, sizeof text, "%s", line);
    for (char *s = text; *s; s++)
        if ((unsigned char)*s < ' ')
            *s = ' ';
    sd_notifyf(0, "STATUS=%s", text);
}

void notify_stopping(const char *status)
{
    sd_notify(0, "STOPPING=1");
    notify_status(status);
}

void notify_failed(const struct err *e)
{
    char text[sizeof e->msg + sizeof e->hint + 4];
    snprintf(text, sizeof text, "%s%s%s", e->msg, e->hint[0] ? "; " : "", e->hint);
    notify_status(text);
}
