/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * plugin-check.h - whether a plugin keeps the protocol: one rule after the other against the real program (AP-23)
 *
 * A driver plugin takes, exposes and removes real snapshots of a volume that the caller names, a mover plugin backs a
 * scratch file up and restores it. What a check makes carries aliases and operation ids of its own and is removed at
 * the end, whatever failed before; nothing else is touched.
 */
#ifndef SNAPFERRY_DAEMON_PLUGIN_CHECK_H
#define SNAPFERRY_DAEMON_PLUGIN_CHECK_H

#include "proc/plugin-call.h"

struct plugin_check_opts {
    struct plugin_program p;
    const char *kind; /* "driver", "mover"; NULL: what it says */
    /* Object of strings, borrowed, may be NULL. driver: volume (required), match, target, node; mover: device, seconds.
     * All others are handed to the plugin as options of the class or the request. */
    json_t *options;
};

enum plugin_verdict { PLUGIN_PASS, PLUGIN_FAIL, PLUGIN_NOT_ASKED };
struct plugin_finding {
    const char *rule;     /* "driver.snapshot-twice" */
    const char *expected; /* one sentence */
    enum plugin_verdict verdict;
    const char *said; /* what was wrong, or why it was not asked; "" for PASS */
};
typedef void plugin_finding_fn(const struct plugin_finding *f, void *arg);

/* Runs all rules of the plugin's kind. Returns 0 if the check could be made at all; *failed counts FAIL. */
int plugin_check(const struct plugin_check_opts *o, plugin_finding_fn *fn, void *arg, unsigned *failed, struct err *e);

/* The rules one by one, for the manual and its test; NULL past the end. */
struct check;
struct plugin_rule {
    const char *name;
    unsigned kinds;   /* plugin_kind bits */
    unsigned ability; /* not asked unless the plugin has all of these */
    const char *expected;
    int (*run)(struct check *k, struct err *e); /* 0 PASS, negative FAIL, 1 not asked: e->msg says why */
};

#endif
