/* SPDX-License-Identifier: GPL-2.0-or-later */
/* plugin-check-impl.h - what the files of plugin-check share (internal) */
#ifndef SNAPFERRY_DAEMON_PLUGIN_CHECK_IMPL_H
#define SNAPFERRY_DAEMON_PLUGIN_CHECK_IMPL_H

#include "base/cleanup.h"
#include "daemon/check/plugin-check.h"
#include "io/native/driver.h"

/* All that the rules know of each other. */
struct check {
    const struct plugin_check_opts *o;
    struct plugin_program p;
    struct plugin_info info;
    bool described;
    json_t *options; /* for the plugin */
    /* driver */
    struct driver_class c;
    const char *match[2];
    char tag_text[64]; /* part of all names that this run makes */
    struct volume volume;
    struct native native, second;
    struct exposure exposure, clone;
    struct restore_target target;
    bool resolved, taken, taken_second, exposed, cloned, target_made;
    /* mover */
    char dir[256], device[4096], back[300];
    uint64_t size;
    unsigned seconds; /* time limit of a whole operation */
    char operation[128], id[PLUGIN_ID_MAX + 1], canceled_operation[128], canceled_id[PLUGIN_ID_MAX + 1];
    char restore_operation[128], restore_id[PLUGIN_ID_MAX + 1];
    bool begun, completed;
    json_t *stored;
};

/* ---- plugin-check-common.c ---- */

/* FAIL with a message of the check. */
int check_fails(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Not asked. */
int check_skips(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *check_option(const struct check *k, const char *key);

extern const struct plugin_rule check_common_rules[];
extern const unsigned check_n_common_rules;

/* ---- plugin-check-driver.c, plugin-check-mover.c ---- */

extern const struct plugin_rule check_driver_rules[], check_mover_rules[];
extern const unsigned check_n_driver_rules, check_n_mover_rules;
int check_driver_begin(struct check *k, struct err *e);
void check_driver_end(struct check *k);
int check_mover_begin(struct check *k, struct err *e);
void check_mover_end(struct check *k);

#endif
