/* SPDX-License-Identifier: GPL-2.0-or-later */
/* loop.h - loop devices for tests. They need root and losetup(8); without, a test is skipped and says why. */
#ifndef SNAPFERRY_TESTS_UNIT_LOOP_H
#define SNAPFERRY_TESTS_UNIT_LOOP_H

#include "tests/unit/test.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

/* First line of a shell command's output; false if the command failed. */
static inline bool shell_line(char *out, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static inline bool shell_line(char *out, size_t size, const char *fmt, ...)
{
    char cmd[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(cmd, sizeof cmd, fmt, ap);
    va_end(ap);
    FILE *p = popen(cmd, "re");
    if (!p)
        return false;
    *out = '\0';
    if (fgets(out, (int)size, p))
        out[strcspn(out, "\n")] = '\0';
    char rest[256];
    while (fgets(rest, sizeof rest, p))
        ;
    return pclose(p) == 0;
}

static inline bool shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static inline bool shell(const char *fmt, ...)
{
    char cmd[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(cmd, sizeof cmd, fmt, ap);
    va_end(ap);
    return system(cmd) == 0;
}

/* Skips the running test unless loop devices can be made here. */
static inline void need_loop(void)
{
    if (geteuid() != 0) {
        print_message("SKIP: loop devices need root\n");
        skip();
    }
    if (access("/dev/loop-control", R_OK | W_OK) != 0 || !shell("command -v losetup >/dev/null")) {
        print_message("SKIP: no /dev/loop-control or no losetup here\n");
        skip();
    }
}

static inline void need_tool(const char *name)
{
    if (!shell("command -v %s >/dev/null", name)) {
        print_message("SKIP: %s is not installed\n", name);
        skip();
    }
}

/* Makes a sparse file and a loop device on it: `dev` gets its path. */
static inline void loop_make(char *dev, size_t size, const char *file, unsigned long long bytes, const char *options)
{
    CLEANUP_CLOSE int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_return_code(ftruncate(fd, (off_t)bytes), errno);
    if (!shell_line(dev, size, "losetup -f --show %s %s", options, file))
        fail_msg("losetup %s %s failed", options, file);
}

static inline void loop_drop(const char *dev)
{
    assert_true(shell("losetup -d %s", dev));
}

/* For a group's teardown: what a failed test left behind on files in `dir`, then the directory itself. */
static inline int loop_clean(const char *dir)
{
    if (geteuid() == 0)
        shell("losetup -n -O NAME,BACK-FILE 2>/dev/null | awk -v p=%s/ 'index($2, p) == 1 {print $1}' |"
              " while read -r d; do umount -q $d; losetup -d $d; done",
              dir);
    return shell("rm -rf %s", dir) ? 0 : -1;
}

#endif
