/* SPDX-License-Identifier: GPL-2.0-or-later */
/* plain-path.c - see plain-path.h */
#include "base/plain-path.h"

#include <string.h>

bool is_plain_path(const char *path)
{
    for (const char *p = path; *p == '/';) {
        const size_t n = strcspn(++p, "/");
        if ((n == 0 && *p) || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return false;
        p += n;
    }
    return true;
}
