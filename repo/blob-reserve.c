/* SPDX-License-Identifier: GPL-2.0-or-later */
/* blob-reserve.c - room that a repository directory keeps for maintenance */
#include "repo/blob-reserve.h"

#include "base/cleanup.h"
#include "repo/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define SMALLEST ((uint64_t)1 << 20)
#define LARGEST ((uint64_t)8 << 20)
#define SHARE 4096 /* of the file system */
#define FREE_FOR 8 /* times its size is free when it is made */
/* Blocks of the directories that a blob may need, and what file systems round up. */
#define BESIDE ((uint64_t)256 << 10)
#define CHUNK ((size_t)64 << 10)

static int reserve_open(int root, int flags)
{
    struct stat st;
    CLEANUP_CLOSE int fd = beneath_open(root, RESERVE_FILE, flags | O_NONBLOCK | O_NOCTTY, 0600);
    if (fd < 0)
        return fd;
    /* Not what somebody has linked there. */
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1)
        return -EEXIST;
    return take_fd(&fd);
}

static uint64_t size_of(int fd)
{
    struct stat st;
    return fstat(fd, &st) < 0 ? 0 : (uint64_t)st.st_size;
}

uint64_t reserve_left(int root)
{
    CLEANUP_CLOSE int fd = reserve_open(root, O_RDONLY);
    return fd < 0 ? 0 : size_of(fd);
}

int reserve_release(int root, uint64_t bytes)
{
    CLEANUP_CLOSE int fd = reserve_open(root, O_RDWR);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    const uint64_t left = size_of(fd), give = bytes + BESIDE;
    if (left == 0)
        return 0;
    if (ftruncate(fd, left > give ? (off_t)(left - give) : 0) < 0) {
        /* Where copies are made on write, shortening may need room, and removing not. */
        const int rc = beneath_unlink(root, RESERVE_FILE);
        if (rc < 0)
            return rc;
    }
    /* Some file systems give blocks back with the next transaction only. */
    (void)syncfs(fd);
    return 1;
}

int reserve_fill(int root, int *ret)
{
    struct statvfs fs;
    uint8_t data[CHUNK];
    *ret = -1;
    if (fstatvfs(root, &fs) < 0)
        return -errno;
    uint64_t size = (uint64_t)fs.f_blocks * fs.f_frsize / SHARE;
    size = size < SMALLEST ? SMALLEST : size > LARGEST ? LARGEST : size;
    size -= size % CHUNK;
    const uint64_t has = reserve_left(root);
    if (has >= size || (uint64_t)fs.f_bavail * fs.f_frsize < FREE_FOR * size)
        return 0;
    CLEANUP_CLOSE int fd = reserve_open(root, O_RDWR | O_CREAT);
    if (fd < 0)
        return fd;
    int rc = 0;
    for (uint64_t at = has; rc == 0 && at < size;) {
        const size_t part = size - at < CHUNK ? (size_t)(size - at) : CHUNK;
        ssize_t n = RAND_bytes(data, (int)part) == 1 ? pwrite(fd, data, part, (off_t)at) : (errno = EIO, -1);
        if (n > 0)
            at += (uint64_t)n;
        else if (n == 0 || errno != EINTR)
            rc = n < 0 ? -errno : -EIO;
    }
    if (rc == 0 && fsync(fd) < 0)
        rc = -errno;
    if (rc < 0) {
        (void)!ftruncate(fd, (off_t)has);
        return rc;
    }
    *ret = take_fd(&fd);
    return 0;
}
