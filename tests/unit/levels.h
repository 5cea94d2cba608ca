/* SPDX-License-Identifier: GPL-2.0-or-later */
/* levels.h - runs a test program once for each kernel level that this CPU has (kernels are chosen once per process). */
#ifndef SNAPFERRY_TESTS_UNIT_LEVELS_H
#define SNAPFERRY_TESTS_UNIT_LEVELS_H

#include "tests/unit/test.h"

#include "chunker/kernel.h"

#include <sys/wait.h>
#include <unistd.h>

/* Sets SNAPFERRY_KERNEL_<name> to the level; returns 0 if there is such a kernel, else unsets it again. */
static inline int level_set(const char *name, enum kernel_level level)
{
    char var[64];
    snprintf(var, sizeof var, "SNAPFERRY_KERNEL_%s", name);
    setenv(var, kernel_level_name(level), 1);
    if (kernels_check(NULL) == 0)
        return 0;
    unsetenv(var);
    return -1;
}

/* Runs `run` in a process of its own for each level that at least one of the kernels (NULL-terminated names) has; the
 * others then use the scalar one. Returns what main() shall return. */
static inline int run_at_every_level(const char *const *names, int (*run)(void))
{
    int failed = 0;
    for (enum kernel_level l = KERNEL_SCALAR; l <= kernel_cpu_level(); l++) {
        int kernels = 0;
        for (const char *const *n = names; *n; n++) {
            if (level_set(*n, l) == 0)
                kernels++;
            else
                level_set(*n, KERNEL_SCALAR);
        }
        if (kernels == 0)
            continue;
        fprintf(stderr, "kernels: %s\n", kernel_level_name(l));
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0)
            exit(run());
        int status = 0;
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
            failed = 1;
    }
    return failed;
}

#endif
