/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

static const char *name = "";
static int exit_code;

static void text_write(const char *text, size_t n)
{
    while (n) {
        const ssize_t w = write(STDERR_FILENO, text, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return;
        text += w;
        n -= (size_t)w;
    }
}

/* A hexadecimal number at *p, which is moved behind it. */
static uintptr_t hex(const char **p)
{
    uintptr_t v = 0;
    for (;; ++*p) {
        const char c = **p;
        if (c >= '0' && c <= '9')
            v = v << 4 | (uintptr_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            v = v << 4 | (uintptr_t)(c - 'a' + 10);
        else
            return v;
    }
}

/* Whether a line of /proc/self/maps is of the mapping of `at`; *path: its file, "" if none. */
static bool line_maps(const char *line, uintptr_t at, const char **path)
{
    const uintptr_t from = hex(&line);
    if (*line++ != '-')
        return false;
    const uintptr_t to = hex(&line);
    const char *slash = strchr(line, '/');
    *path = slash ? slash : "";
    return at >= from && at < to;
}

/* Only calls that are safe in a signal handler. A locked-down mover may not open the list: then there is no name. */
static void mapped_file(uintptr_t at, char *ret, size_t cap)
{
    char buf[8192];
    const char *path;
    size_t have = 0;
    *ret = '\0';
    const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    for (ssize_t n; (n = read(fd, buf + have, sizeof buf - 1 - have)) > 0;) {
        char *line = buf, *end;
        have += (size_t)n;
        buf[have] = '\0';
        for (; (end = strchr(line, '\n')); line = end + 1) {
            *end = '\0';
            if (!line_maps(line, at, &path) || strlen(path) >= cap)
                continue;
            memcpy(ret, path, strlen(path) + 1);
            close(fd);
            return;
        }
        have -= (size_t)(line - buf);
        memmove(buf, line, have);
        if (have == sizeof buf - 1)
            break;
    }
    close(fd);
}

static void on_bus(int sig, siginfo_t *si, void *context)
{
    char file[4200];
    (void)context;
    if (si->si_code == BUS_ADRERR) {
        mapped_file((uintptr_t)si->si_addr, file, sizeof file);
        const char *const said[] = {name,
                                    ": a mapped file of the cache directory cannot be read any more: it was "
                                    "truncated, or its disk failed",
                                    *file ? ": " : "",
                                    file,
                                    "\n",
                                    name,
                                    ": retry, files of the cache are checked when they are opened; for a failing disk "
                                    "see the kernel's log\n"};
        for (size_t i = 0; i < sizeof said / sizeof *said; i++)
            text_write(said[i], strlen(said[i]));
        if (exit_code)
            _exit(exit_code);
    }
    signal(sig, SIG_DFL); /* the access is repeated */
}

void fault_report(const char *program, int code)
{
    struct sigaction a = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
    name = program;
    exit_code = code;
    sigaction(SIGBUS, &a, NULL);
}
