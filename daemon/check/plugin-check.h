/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * plugin-check.h - whether a plugin conforms to the protocol: rules checked against the real program (AP-23)
 *
 * A driver plugin takes, exposes and removes real snapshots of a volume named by the caller, a mover plugin backs up
 * and restores a scratch file. Objects of a check have aliases and operation ids of their own and are removed at the
 * end, even after failures; nothing else is changed.
 */
#ifndef SNAPFERRY_DAEMON_PLUGIN_CHECK_H
#define SNAPFERRY_DAEMON_PLUGIN_CHECK_H

#include "proc/plugin-call.h"

struct plugin_check_opts {
    struct plugin_program p;
    const char *kind; /* "driver", "mover"; NULL: what it says */
    /* Object of strings, borrowed, may be NULL. driver: volume (required), match, target, node; mover: device,
     * seconds. All others are passed to the plugin as options of the class or the request. */
    json_t *options;
};

enum plugin_verdict { PLUGIN_PASS, PLUGIN_FAIL, PLUGIN_NOT_ASKED };
struct plugin_finding {
    const char *rule;     /* "driver.snapshot-twice" */
    const char *expected; /* one sentence */
    enum plugin_verdict verdict;
    const char *said; /* what failed, or why it was skipped; "" for PASS */
};
typedef void plugin_finding_fn(const struct plugin_finding *f, void *arg);

/* Runs all rules of the plugin's kind. Returns 0 if the check could be run; *failed counts FAIL. */
int plugin_check(const struct plugin_check_opts *o, plugin_finding_fn *fn, void *arg, unsigned *failed, struct err *e);

/* To be called by main() first: a call of a plugin under systemd runs in a unit, and executes this program there
 * (proc/program-path.h). Returns its exit code, or -1: it is not such a process. */
int plugin_check_unit_main(int argc, char **argv);

/* The rules, for the manual and its test; NULL past the end. */
struct check;
struct plugin_rule {
    const char *name;
    unsigned kinds;   /* plugin_kind bits */
    unsigned ability; /* skipped unless the plugin has all of these */
    const char *expected;
    int (*run)(struct check *k, struct err *e); /* 0 PASS, negative FAIL, 1 skipped: e->msg has the reason */
};

#endif
