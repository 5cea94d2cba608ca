/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "base/resident.h"

#include "base/cleanup.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* "SIZE RESIDENT SHARED ...", in pages. */
uint64_t resident_shared(void)
{
    char text[128], *at = text;
    CLEANUP_CLOSE int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    strtoull(at, &at, 10);
    strtoull(at, &at, 10);
    return strtoull(at, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}
