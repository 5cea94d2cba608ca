/* SPDX-License-Identifier: GPL-2.0-or-later */
/* program-path.h - the program at a path, checked and held: what was checked is what is executed */
#ifndef SNAPFERRY_PROC_PROGRAM_PATH_H
#define SNAPFERRY_PROC_PROGRAM_PATH_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/*
 * Opens the program at `path` for execution (O_PATH, close-on-exec) if it may be run (AP-21): absolute, a file, owned
 * by root (or this user if not root), not writable by group or others, executable, and not replaceable by others. The
 * path is walked component by component, without letting the kernel follow links: each directory and link belongs to
 * root (or this user), and others cannot write into the directory; one in which only the owner of a file may rename it
 * (mode 1777) counts as safe. Else an error that begins with `label`, with a hint; -ENOENT: it does not exist. Never
 * blocks.
 */
int program_open(const char *label, const char *path, int *ret, struct err *e);
/* The same without keeping it. */
int program_check(const char *label, const char *path, struct err *e);
/* Whether somebody else than root (or this user, if it is not root) could put another program at `path`. */
bool program_replaceable(const char *path, char *why, size_t cap);

/*
 * What a transient unit runs instead of the program: the manager knows only paths, so this program executes itself in
 * the unit with PROGRAM_RUN_OPTION LABEL NAME=VALUE... -- PROGRAM ARGUMENT..., as the user of the unit, checks the
 * program there (root's alone is accepted, whoever the user is) and executes what it has checked with exactly this
 * environment.
 */
#define PROGRAM_RUN_OPTION "--run-program"
/* The path of the running program; after an upgrade that of its successor. */
int program_self(char *out, size_t cap, struct err *e);
/* The exit code where it could not be executed: */
#define PROGRAM_RUN_FAILED 126
int program_run_main(int argc, char **argv);

/* execveat() of a program of program_open(). A script's interpreter opens it once more as /dev/fd/PROGRAM_FD; programs
 * use lower numbers for their own. Returns errno. Safe after fork(). */
#define PROGRAM_FD 200
int program_execute(int program, char *const *argv, char *const *env);

#endif
