/* SPDX-License-Identifier: GPL-2.0-or-later */
/* plain-path.h - whether an absolute path, as text, names its file in the one plain way */
#ifndef SNAPFERRY_BASE_PLAIN_PATH_H
#define SNAPFERRY_BASE_PLAIN_PATH_H

#include <stdbool.h>

/* Whether no component is empty, "." or "..": others could match a pattern and yet refer to something else. A slash at
 * the end is left to the caller. What does not begin with a slash is no path, and plain. Thread-safe; cannot fail. */
bool is_plain_path(const char *path);

#endif
