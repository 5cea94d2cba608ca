/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * await_state - the state of a backup, an operation, a native snapshot or a volume, or the one that it comes to
 *
 * await_state SOCKET ID                  asks the daemon once
 * await_state SOCKET ID REGEX SECONDS    until the state matches as a whole, or has ended; exit 1: it does not match
 *
 * Prints the last state. Exit 3: there is no daemon that answers. A shell that asks by the command, and waits by
 * sleep(1), takes ten times the CPU time, for the processes that it starts.
 */
#include "base/time.h"

#include <jansson.h>
#include <poll.h>
#include <regex.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER_MAX (16 << 20)
#define ANSWER_MS 30000
#define PAUSE_MS 100
#define PAUSE_FINAL_MS 50 /* what has ended is not missed, and only what comes after it waits */

static char answer[ANSWER_MAX + 1];

static int dial(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (snprintf(a.sun_path, sizeof a.sun_path, "%s", path) >= (int)sizeof a.sun_path)
        return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* One line of request, one of answer. */
static json_t *describe(int fd, const char *id)
{
    json_t *request = json_pack("{s:i, s:s, s:{s:s}}", "id", 1, "verb", "describe", "args", "id", id);
    char *text = request ? json_dumps(request, JSON_COMPACT) : NULL;
    bool sent = false;
    json_decref(request);
    if (text) {
        const size_t len = strlen(text);
        text[len] = '\n';
        sent = send(fd, text, len + 1, MSG_NOSIGNAL) == (ssize_t)len + 1;
        free(text);
    }
    for (size_t n = 0; sent && n < ANSWER_MAX;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        const ssize_t got = poll(&p, 1, ANSWER_MS) > 0 ? recv(fd, answer + n, ANSWER_MAX - n, 0) : 0;
        if (got <= 0)
            return NULL;
        const char *end = memchr(answer + n, '\n', (size_t)got);
        n += (size_t)got;
        if (end)
            return json_loadb(answer, (size_t)(end - answer), 0, NULL);
    }
    return NULL;
}

/* "": there is none of that name; "null": it has no state. */
static const char *state_in(const json_t *said)
{
    static const char *const kinds[] = {"backup", "operation", "native", "volume"};
    const json_t *a = json_object_get(said, "answer");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const json_t *o = json_object_get(a, kinds[i]);
        const char *state = json_string_value(json_object_get(o, "state"));
        if (o)
            return state ? state : "null";
    }
    return "";
}

/* States of backups and operations that are the last one; an expression of these words alone waits for one. */
static const char *const final[] = {"Completed", "PartiallyFailed", "Failed", "Canceled", "Skipped", "Unknown"};

static bool is_final(const char *word, size_t len)
{
    for (size_t i = 0; i < sizeof final / sizeof *final; i++)
        if (strlen(final[i]) == len && !strncmp(final[i], word, len))
            return true;
    return false;
}

static bool all_final(const char *regex)
{
    for (const char *p = regex;; p++) {
        const size_t len = strcspn(p, "|");
        if (!is_final(p, len))
            return false;
        p += len;
        if (!*p)
            return true;
    }
}

int main(int argc, char **argv)
{
    const bool waits = argc == 5;
    const int64_t end_ns = mono_ns() + (waits ? atoll(argv[4]) : 0) * NS_PER_S;
    regex_t whole;
    char text[1024];
    int rc = 1;
    if (argc != 3 && !waits)
        return 2;
    const int pause_ms = waits && all_final(argv[3]) ? PAUSE_FINAL_MS : PAUSE_MS;
    snprintf(text, sizeof text, "^(%s)$", waits ? argv[3] : ".*");
    if (regcomp(&whole, text, REG_EXTENDED | REG_NOSUB) != 0)
        return 2;
    const int fd = dial(argv[1]);
    for (bool more = fd >= 0; more;) {
        json_t *said = describe(fd, argv[2]);
        const char *state = said ? state_in(said) : "";
        if (!said)
            break;
        rc = regexec(&whole, state, 0, NULL, 0) == 0 ? 0 : 1;
        more = waits && rc != 0 && !is_final(state, strlen(state)) && mono_ns() < end_ns;
        if (!more) {
            if (*state)
                puts(state);
            return rc;
        }
        json_decref(said);
        poll(NULL, 0, pause_ms);
    }
    return 3;
}
