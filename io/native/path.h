/* SPDX-License-Identifier: GPL-2.0-or-later */
/* path.h - paths of files as text (internal to io/native) */
#ifndef SNAPFERRY_IO_NATIVE_PATH_H
#define SNAPFERRY_IO_NATIVE_PATH_H

#include "io/native/driver.h"

/* Path "DIR/NAME"; -ENAMETOOLONG. */
int path_join(char out[VOLUME_NAME_MAX], const char *dir, const char *name, struct err *e);
/* Splits an absolute path; `name` points into `path`. ERR_USAGE for a path that is not absolute or names no file. */
int path_split(const char *path, char dir[VOLUME_NAME_MAX], const char **name, struct err *e);
/* Refuses a path with an empty, "." or ".." component: it could match a pattern and yet refer to something else. */
int path_plain(const char *path, struct err *e);
/* Whether the bytes are UTF-8: other names cannot be recorded. */
bool name_is_text(const char *name);

#endif
