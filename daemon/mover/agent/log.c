/* SPDX-License-Identifier: GPL-2.0-or-later */
/* log.c - where a mover's log lines go */
#include "base/time.h"
#include "base/units.h"
#include "daemon/mover/agent/agent.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A damaged device may cause a line per sector: a burst, then a rate per second. */
#define BURST 500
#define PER_SECOND 20

static struct {
    pthread_mutex_t mu;
    bool debug, journal;
    struct link *link;
    double tokens;
    double filled;
    unsigned long cut;
} log_state = {.mu = PTHREAD_MUTEX_INITIALIZER, .tokens = BURST};

static const char *const names[] = {"debug", "info", "warning", "error"};

static bool may_pass(void)
{
    const double now = mono_s();
    if (log_state.filled > 0)
        log_state.tokens += PER_SECOND * (now - log_state.filled);
    if (log_state.tokens > BURST)
        log_state.tokens = BURST;
    log_state.filled = now;
    if (log_state.tokens < 1) {
        log_state.cut++;
        return false;
    }
    log_state.tokens--;
    return true;
}

static void write_line(enum log_level lvl, const char *text)
{
    static const int priority[] = {7, 6, 4, 3};
    char line[1700];
    int n;
    if (log_state.journal) {
        n = snprintf(line, sizeof line, "<%d>%s\n", priority[lvl], text);
    } else {
        const struct timespec t = ns_timespec(now_ns());
        struct tm tm;
        char when[32];
        gmtime_r(&t.tv_sec, &tm);
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm);
        n = snprintf(line, sizeof line, "%s.%03ldZ %s %s\n", when, t.tv_nsec / 1000000, names[lvl], text);
    }
    /* One write: lines of several threads are not mixed. A full log is not a failure. */
    if (n > 0 && write(STDERR_FILENO, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1) < 0)
        return;
}

static void take_line(enum log_level lvl, const char *line, void *arg)
{
    (void)arg;
    char text[1600];
    size_t n = 0;
    for (; line[n] && n + 1 < sizeof text; n++)
        text[n] = (unsigned char)line[n] < 0x20 || line[n] == 0x7f ? '?' : line[n];
    text[n] = '\0';
    if (lvl == LOG_LVL_DEBUG && !log_state.debug)
        return;
    pthread_mutex_lock(&log_state.mu);
    const bool pass = may_pass();
    unsigned long cut = 0;
    if (pass) {
        cut = log_state.cut;
        log_state.cut = 0;
        if (cut) {
            char told[64];
            snprintf(told, sizeof told, "%lu log line%s suppressed", cut, plural(cut));
            write_line(LOG_LVL_WARNING, told);
        }
        write_line(lvl, text);
    }
    struct link *l = log_state.link;
    if (pass && l && lvl > LOG_LVL_DEBUG)
        link_post(l, WIRE_LOG, json_pack("{s:s, s:s}", "level", names[lvl], "line", text));
    pthread_mutex_unlock(&log_state.mu);
}

void agent_log_start(bool debug)
{
    log_state.debug = debug;
    log_state.journal = getenv("JOURNAL_STREAM") != NULL;
    log_to(take_line, NULL);
}

void agent_log_link(struct link *l)
{
    pthread_mutex_lock(&log_state.mu);
    log_state.link = l;
    pthread_mutex_unlock(&log_state.mu);
}
