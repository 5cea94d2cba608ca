/* SPDX-License-Identifier: GPL-2.0-or-later */
/* epoch-test.h - lets a test control the clock of epoch.c and indexset.c and act between their steps. */
#ifndef SNAPFERRY_REPO_EPOCH_TEST_H
#define SNAPFERRY_REPO_EPOCH_TEST_H

#include <stdint.h>

struct epoch_hooks {
    int64_t (*now_ns)(void *arg);                  /* NULL: the wall clock */
    void (*sleep_ns)(void *arg, int64_t duration); /* NULL: really sleeps */
    void (*step)(void *arg, const char *step);     /* "listed", "put", "written", "fetch", "link"; NULL: nothing */
    void *arg;
};

/* Not thread-safe: set before threads start. NULL: none. */
void epoch_set_hooks(const struct epoch_hooks *hooks);

int64_t epoch_now_ns(void);
void epoch_sleep_ns(int64_t duration);
void epoch_step(const char *step);

#endif
