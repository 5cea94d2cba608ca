/* SPDX-License-Identifier: GPL-2.0-or-later */
/* program-unit.h - the systemd side of program_run(): the same program in a transient unit. Private to proc/. */
#ifndef SNAPFERRY_PROC_PROGRAM_UNIT_H
#define SNAPFERRY_PROC_PROGRAM_UNIT_H

#include "proc/program.h"

/* The command that runs p as a unit, and the one that ends the unit. Both are NULL-terminated, their strings and
 * arrays are malloc()ed: program_unit_free(). */
struct program_unit {
    char name[128];
    char **run, **stop;
};
int program_unit_make(struct program_unit *ret, const struct program *p, const char *const *env, struct err *e);
void program_unit_free(struct program_unit *u);

/* The command line of a unit's ExecStart that executes p with exactly this environment, as PROGRAM_RUN_OPTION does.
 * NULL-terminated, for program_command_free(). */
int program_command_make(char ***ret, const struct program *p, const char *const *env, struct err *e);
void program_command_free(char **command);

#endif
