/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hooks.h - the administrator's programs around a snapshot, a backup and a restore (CF-48, E-18)
 *
 * A hook is one absolute program, run without a shell with two arguments (phase and name of the volume), facts in the
 * environment and all of them as JSON on its standard input; docs/hooks.md is its contract. The phases are
 * "pre-snapshot", "post-snapshot", "prepare" (a writable intermediate may be fixed up), "post-backup" and
 * "post-restore".
 *
 * What a pre-snapshot hook stopped (a file system, a database) must go on even if the snapshot hangs or the daemon
 * dies. The engine notes an intent before the hook, and beside it runs a watchdog, a process of its own: it runs the
 * post-snapshot hook at a deadline, or at once when the daemon is gone, unless it was told that the hook has run. A
 * post-snapshot hook may therefore run twice.
 */
#ifndef SNAPFERRY_DAEMON_HOOKS_H
#define SNAPFERRY_DAEMON_HOOKS_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>

/*
 * step_fn that runs one hook. `in`, all strings unless said otherwise:
 *   program     absolute path; needed
 *   phase       needed
 *   volume      object {"name", "id", ...} (volume_to_json()), or the name alone; needed
 *   timeout_s   integer; default 30
 *   backup, operation, class, job, result, device (prepare: the intermediate; post-restore: the target)
 * Everything but `program` also goes to the hook's standard input, other members too.
 *
 * *out: {"program", "phase", "exit_code", "seconds", "output"} (output: standard output, at most 4 KiB). An exit code
 * other than 0, a signal and a timeout are errors that name phase, volume and program and end with its last words;
 * whether to go on after one (hook-on-error) is the caller's matter. Give the step itself timeout_s + 10.
 */
int hook_step(const json_t *in, json_t **out, int *fd, struct err *e);

/*
 * Starts the watchdog of in's "operation": `in` is the request of its post-snapshot hook, as for hook_step()
 * (borrowed). Call it when the intent is durable and before the pre-snapshot hook runs. deadline_s counts from now: it
 * bounds the time for which something may stand still, so a good value is the timeout of the pre-snapshot hook plus
 * that of the snapshot itself. A watchdog that the operation has already is kept. Never blocks. A request without
 * program starts none and is no error.
 */
int hook_watchdog_start(const json_t *in, unsigned deadline_s, struct err *e);
/* The post-snapshot hook has run: the watchdog ends without running it. Returns true if it had fired before, that is:
 * the hook ran at the deadline, and a snapshot that was finished after that is not what the hooks promised. False too
 * if there is none. */
bool hook_watchdog_stop(const char *operation);
/* How many there are. */
unsigned hook_watchdogs_test(void);

#endif
