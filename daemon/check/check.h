/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * check.h - whether this machine can do what a configuration asks
 *
 * cfg tells what the text itself gets wrong; here the drivers, users, programs, directories and the memory are asked.
 * It looks at file systems and runs driver plugins, so it may block: the daemon does it in a step.
 */
#ifndef SNAPFERRY_DAEMON_CHECK_H
#define SNAPFERRY_DAEMON_CHECK_H

#include "cfg/cfg.h"

/*
 * Adds complaints to c: drivers that this build lacks (a warning: refused when used), abilities against what each class
 * and volume asks (PVC-10), calendar expressions, memory (E-01, MS-43), hooks and plugins that are missing or could be
 * changed by others (AP-21), users, password files. With `storage` also what needs a look at storage and repositories:
 * what drivers can do there, which volumes there are, whether the repository is there at all (a missing mount).
 * Returns 0, or -EINVAL with the first error in e (those of the text count too).
 */
int config_check(struct cfg *c, bool storage, struct err *e);

/*
 * What movers may need: {"total", "available" (of the machine), "slots", "restore_reserved", "movers": [{"who",
 * "memory", "index_memory", "margin", "need"}], "largest", "together" (largest times all slots), "at_once" (how many of
 * the largest fit)}; bytes (new reference).
 */
json_t *config_memory_json(const struct cfg *c);

/* step_fn (proc/step.h), in the daemon, whose credentials are looked at as well: {"config_dir"} -> {"errors",
 * "warnings", "hash", "complaints": [{"severity", "where", "text", "hint"}], "memory": as above}. Fails only where
 * there is no memory: a bad configuration is an answer. */
int config_check_step(const json_t *in, json_t **out, int *fd, struct err *e);

#endif
