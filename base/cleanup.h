/* SPDX-License-Identifier: GPL-2.0-or-later */
/* cleanup.h - release what a scope owns when the scope ends (gcc and clang's cleanup attribute). */
#ifndef SNAPFERRY_BASE_CLEANUP_H
#define SNAPFERRY_BASE_CLEANUP_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CLEANUP(fn) __attribute__((cleanup(fn)))

static inline void freep(void *p)
{
    free(*(void **)p);
}
static inline void closep(const int *fd)
{
    if (*fd >= 0)
        close(*fd);
}
static inline void fclosep(FILE **f)
{
    if (*f)
        fclose(*f);
}
static inline void closedirp(DIR **d)
{
    if (*d)
        closedir(*d);
}

#define CLEANUP_FREE CLEANUP(freep)         /* any malloc()ed pointer, NULL allowed */
#define CLEANUP_CLOSE CLEANUP(closep)       /* int fd, -1 allowed */
#define CLEANUP_FCLOSE CLEANUP(fclosep)     /* FILE *, NULL allowed */
#define CLEANUP_CLOSEDIR CLEANUP(closedirp) /* DIR *, NULL allowed */

/* Passes a pointer out of a scope that would free it: `return take_ptr(&p);` */
static inline void *take_ptr_(void **p)
{
    void *r = *p;
    *p = NULL;
    return r;
}
#define take_ptr(p) ((__typeof__(*(p)))take_ptr_((void **)(p)))

/* The same for a descriptor. */
static inline int take_fd(int *fd)
{
    int r = *fd;
    *fd = -1;
    return r;
}

#endif
