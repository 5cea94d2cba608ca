/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * check.h - whether this machine supports a configuration
 *
 * cfg checks the text itself; here drivers, users, programs, directories and memory are checked. It accesses file
 * systems and runs driver plugins, so it may block: the daemon does it in a step.
 */
#ifndef SNAPFERRY_DAEMON_CHECK_H
#define SNAPFERRY_DAEMON_CHECK_H

#include "cfg/cfg.h"

/*
 * Adds complaints to c: drivers missing in this build (a warning: refused when used), abilities against the needs of
 * each class and volume (PVC-10), calendar expressions, memory (E-01, MS-43), hooks and plugins that are missing or
 * writable by others (AP-21), users, password files. With `storage` also what needs access to storage and repositories:
 * abilities of drivers there, existing volumes, existence of the repository (a missing mount). Returns 0, or -EINVAL
 * with the first error in e (those of the text count too).
 */
int config_check(struct cfg *c, bool storage, struct err *e);

/*
 * Memory of movers: {"total", "available" (of the machine), "slots", "restore_reserved", "movers": [{"who", "memory",
 * "index_memory", "margin", "need"}], "largest", "together" (largest times all slots), "at_once" (how many of the
 * largest fit)}; bytes (new reference).
 */
json_t *config_memory_json(const struct cfg *c);

/* step_fn (proc/step.h), in the daemon, whose credentials are checked as well: {"config_dir"} -> {"errors",
 * "warnings", "hash", "complaints": [{"severity", "where", "text", "hint"}], "memory": as above}. Fails only for
 * lack of memory: errors of the configuration are part of the answer. */
int config_check_step(const json_t *in, json_t **out, int *fd, struct err *e);

#endif
