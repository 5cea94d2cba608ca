/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * same_bytes - whether two files have the same bytes, quick where both have holes
 *
 *   same_bytes A B
 *
 * Reads only what is data in one of them. Exit code 0: the same; 1: not, with the place; 2: trouble.
 */
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP ((size_t)1 << 20)

static void die(const char *path)
{
    fprintf(stderr, "same_bytes: %s: %s\n", path, strerror(errno));
    exit(2);
}

/* Where data starts at or after `at`; `end` if there is none. */
static off_t next_data(int fd, const char *path, off_t at, off_t end)
{
    off_t found = lseek(fd, at, SEEK_DATA);
    if (found < 0 && errno != ENXIO)
        die(path);
    return found < 0 ? end : found;
}

static void read_all(int fd, const char *path, uint8_t *buf, size_t len, off_t at)
{
    for (ssize_t n = 0; len > 0; buf += n, at += n, len -= (size_t)n)
        if ((n = pread(fd, buf, len, at)) <= 0)
            die(path);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fputs("usage: same_bytes A B\n", stderr);
        return 2;
    }
    int fd[2];
    struct stat st[2];
    static uint8_t buf[2][STEP];
    for (int i = 0; i < 2; i++)
        if ((fd[i] = open(argv[1 + i], O_RDONLY | O_CLOEXEC)) < 0 || fstat(fd[i], &st[i]) < 0)
            die(argv[1 + i]);
    off_t end = st[0].st_size, at = 0;
    if (st[1].st_size != end) {
        printf("the sizes differ\n");
        return 1;
    }
    while (at < end) {
        off_t a = next_data(fd[0], argv[1], at, end), b = next_data(fd[1], argv[2], at, end);
        at = a < b ? a : b;
        size_t len = end - at < (off_t)STEP ? (size_t)(end - at) : STEP;
        for (int i = 0; i < 2; i++)
            read_all(fd[i], argv[1 + i], buf[i], len, at);
        if (memcmp(buf[0], buf[1], len) != 0) {
            printf("they differ behind byte %lld\n", (long long)at);
            return 1;
        }
        at += (off_t)len;
    }
    return 0;
}
