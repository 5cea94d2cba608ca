/* SPDX-License-Identifier: GPL-2.0-or-later */
/* service.c - notifications to the service manager and lines for the journal */
#include "daemon/main/service.h"
#include "proc/notify.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#define SD_JOURNAL_SUPPRESS_LOCATION
#include <systemd/sd-journal.h>
#include <unistd.h>

#define LOOK_USEC UINT64_C(1000000)
#define STATUS_MAX 1024

struct service {
    struct engine *engine;
    sd_event_source *timer;
    char said[STATUS_MAX];
};

static void look(struct service *s)
{
    char line[STATUS_MAX];
    engine_headline(s->engine, line, sizeof line);
    if (!strcmp(line, s->said))
        return;
    snprintf(s->said, sizeof s->said, "%s", line);
    notify_status(line);
}

static int on_time(sd_event_source *src, uint64_t usec, void *arg)
{
    (void)usec;
    look(arg);
    sd_event_source_set_time_relative(src, LOOK_USEC);
    return sd_event_source_set_enabled(src, SD_EVENT_ONESHOT);
}

int service_new(struct service **ret, sd_event *loop, struct engine *g, struct err *e)
{
    if (!getenv("NOTIFY_SOCKET"))
        return 0;
    struct service *s = calloc(1, sizeof *s);
    if (!s)
        return err_nomem(e);
    s->engine = g;
    int rc = sd_event_add_time_relative(loop, &s->timer, CLOCK_MONOTONIC, LOOK_USEC, 500000, on_time, s);
    if (rc < 0) {
        free(s);
        return err_set(e, ERR_GENERIC, -rc, "no timer can be made");
    }
    /* What waits on storage or hooks goes first: a status line can be late. */
    sd_event_source_set_priority(s->timer, SD_EVENT_PRIORITY_IDLE);
    notify_ready();
    look(s);
    *ret = s;
    return 0;
}

void service_free(struct service *s)
{
    if (!s)
        return;
    sd_event_source_unref(s->timer);
    free(s);
}

/* ---- the journal ---- */

bool service_has_journal(void)
{
    const char *text = getenv("JOURNAL_STREAM");
    unsigned long long dev, ino;
    struct stat st;
    return text && sscanf(text, "%llu:%llu", &dev, &ino) == 2 && fstat(STDERR_FILENO, &st) == 0 && st.st_dev == dev &&
           st.st_ino == ino;
}

/* "20261121T020000-3f9a": the end of every backup's id, and what stands before the volume in an operation's. */
static bool is_stamp(const char *s)
{
    static const char form[] = "dddddddd"
                               "T"
                               "dddddd"
                               "-"
                               "xxxx";
    for (size_t i = 0; form[i]; i++) {
        bool digit = s[i] >= '0' && s[i] <= '9', hex = digit || (s[i] >= 'a' && s[i] <= 'f');
        if (form[i] == 'd' ? !digit : form[i] == 'x' ? !hex : s[i] != form[i])
            return false;
    }
    return true;
}

/* The subject of a line: its operation, the backup that this belongs to, and its volume ("ID (VOLUME): ...", see
 * rec_label(); length 0: none); false if it begins with no id. */
static bool subject(const char *line, size_t *operation, const char **backup, size_t *backup_len, size_t *volume_len)
{
    const char *end = line + strcspn(line, " "), *close = strstr(end, "): "), *p = line, *stamp = NULL;
    const bool named = end[0] && end[1] == '(' && close;
    if (!named && (end == line || *--end != ':'))
        return false;
    *volume_len = named ? (size_t)(close - end - 2) : 0;
    if (end - line > 600)
        return false;
    for (; p < end && !stamp; p++)
        if (is_stamp(p))
            stamp = p;
    if (!stamp || (stamp[20] != '.' && stamp + 20 != end))
        return false;
    *operation = (size_t)(end - line);
    *backup = !strncmp(line, "up-", 3) ? line + 3 : !strncmp(line, "down-", 5) ? line + 5 : line;
    *backup_len = (size_t)(stamp + 20 - *backup);
    return true;
}

int service_log(enum log_level lvl, const char *line)
{
    static const char priority[] = {'7', '6', '4', '3'};
    char level[] = "PRIORITY=6", operation[700], backup[700], volume[2100], message[4096];
    struct iovec v[6] = {{(char[]){"SYSLOG_IDENTIFIER=snapferryd"}, sizeof "SYSLOG_IDENTIFIER=snapferryd" - 1}};
    size_t op_len, backup_len, volume_len;
    const char *b;
    int n = 1;
    const bool named = subject(line, &op_len, &b, &backup_len, &volume_len);
    /* Without fields of its own a line goes by the stream that systemd has opened: the journal knows whose that is. Of
     * a message by itself it looks up who sent it, and the last words of a process that has ended meanwhile are
     * nobody's. Not so where the name of a file would make two lines of one. */
    if (!named && !strpbrk(line, "\r\n"))
        return fprintf(stderr, "<%c>%s\n", priority[lvl], line) < 0 || fflush(stderr) < 0 ? -errno : 0;
    level[sizeof level - 2] = priority[lvl];
    v[n++] = (struct iovec){level, sizeof level - 1};
    snprintf(message, sizeof message, "MESSAGE=%s", line);
    v[n++] = (struct iovec){message, strlen(message)};
    if (!named)
        return sd_journal_sendv(v, n);
    snprintf(operation, sizeof operation, "OPERATION=%.*s", (int)op_len, line);
    snprintf(backup, sizeof backup, "BACKUP=%.*s", (int)backup_len, b);
    v[n++] = (struct iovec){operation, strlen(operation)};
    v[n++] = (struct iovec){backup, strlen(backup)};
    if (volume_len) {
        snprintf(volume, sizeof volume, "VOLUME=%.*s", (int)volume_len, line + op_len + 2);
        v[n++] = (struct iovec){volume, strlen(volume)};
    }
    return sd_journal_sendv(v, n);
}
