/* SPDX-License-Identifier: GPL-2.0-or-later */
/* pattern.h - files that a class's patterns match (internal to io/native) */
#ifndef SNAPFERRY_IO_NATIVE_PATTERN_H
#define SNAPFERRY_IO_NATIVE_PATTERN_H

#include "io/native/driver.h"

/*
 * A pattern is an absolute path in which each component may be a pattern of fnmatch(3); an asterisk does not match a
 * slash. What a pattern (not a plain name) matches is never a symbolic link to a directory, and never HIDDEN_DIR.
 */

/* Calls fn for each existing directory that the pattern without its last component names, with that component. A value
 * other than 0 ends the walk and is returned. ERR_USAGE for a pattern that is not absolute. */
typedef int pattern_dir_fn(const char *dir, const char *last, void *arg);
int pattern_dirs(const char *pattern, pattern_dir_fn *fn, void *arg, struct err *e);

/* Paths that a class's patterns match, sorted, each once. */
struct paths {
    char **path;
    size_t n;
};
int pattern_paths(const char *const *patterns, struct paths *ret, struct err *e);
void paths_free(struct paths *p);

#endif
