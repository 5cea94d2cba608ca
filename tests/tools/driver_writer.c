/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * driver_writer - writes an image in an order that can be checked in any copy of it
 *
 * driver_writer write IMAGE STATUS buffered|direct|mmap BLOCKS   writes until it is killed
 * driver_writer status STATUS                                    number of the last write that has returned
 * driver_writer check COPY LOW HIGH                              whether COPY is the image at one point in time
 * driver_writer pair A B [C]... STATUS sync|direct               writes to two or more images in turn until it is
 * killed driver_writer apart A B [C]...                                 how many writes each is behind the one before
 * it, in copies of them
 *
 * Write number i goes to the block that a generator makes of i and begins when write i-1 has returned; every 64th is
 * followed by fdatasync (msync). A block holds its number and a checksum. In an image of one moment all of writes 1..M
 * and none after M are to be seen, for one M; at most the one that was under way may be torn. LOW and HIGH are the last
 * writes that had returned before and after the copy was made: LOW <= M <= HIGH + 1.
 */
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK 4096
#define WORDS (BLOCK / 8)
#define IMAGES_MAX 8

static uint64_t mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Words: number, number of blocks, filling made of the number, checksum. */
static void make_block(uint64_t *b, uint64_t i, uint64_t blocks)
{
    uint64_t sum = 0;
    b[0] = i;
    b[1] = blocks;
    for (int k = 2; k < WORDS - 1; k++)
        b[k] = mix(i * WORDS + (uint64_t)k);
    for (int k = 0; k < WORDS - 1; k++)
        sum = mix(sum ^ b[k]);
    b[WORDS - 1] = sum;
}

static int intact(const uint64_t *b)
{
    uint64_t sum = 0;
    for (int k = 0; k < WORDS - 1; k++)
        sum = mix(sum ^ b[k]);
    return sum == b[WORDS - 1];
}

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    return 2;
}

static void *map(const char *path, size_t size, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0600);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || (st.st_size < (off_t)size && ftruncate(fd, (off_t)size) < 0))
        return MAP_FAILED;
    void *p = mmap(NULL, size, (flags & O_ACCMODE) == O_RDONLY ? PROT_READ : PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return p;
}

static int run(const char *image, const char *status_path, const char *mode, uint64_t blocks)
{
    int direct = strcmp(mode, "direct") == 0, mapped = strcmp(mode, "mmap") == 0;
    _Atomic uint64_t *status = map(status_path, sizeof *status, O_RDWR | O_CREAT);
    int fd = open(image, O_RDWR | O_CREAT | O_CLOEXEC | (direct ? O_DIRECT : 0), 0600);
    void *buf;
    if (status == MAP_FAILED || fd < 0 || posix_memalign(&buf, BLOCK, BLOCK) != 0)
        return failed(image);
    for (uint64_t b = 0; b < blocks; b++) {
        make_block(buf, 0, blocks);
        if (pwrite(fd, buf, BLOCK, (off_t)(b * BLOCK)) != BLOCK)
            return failed("the first filling");
    }
    if (fsync(fd) < 0)
        return failed("fsync");
    uint8_t *m = mapped ? map(image, (size_t)blocks * BLOCK, O_RDWR) : NULL;
    if (m == MAP_FAILED)
        return failed("mmap");
    for (uint64_t i = 1;; i++) {
        uint64_t at = mix(i) % blocks * BLOCK;
        make_block(buf, i, blocks);
        if (mapped)
            memcpy(m + at, buf, BLOCK);
        else if (pwrite(fd, buf, BLOCK, (off_t)at) != BLOCK)
            return failed("write");
        if (i % 64 == 0 && (mapped ? msync(m + at, BLOCK, MS_SYNC) : fdatasync(fd)) < 0)
            return failed("fdatasync");
        atomic_store(status, i);
    }
}

/* Replays writes 1..M upon what the blocks should hold; M is the highest number that is there. */
static int check(const char *path, uint64_t low, uint64_t high)
{
    struct stat st;
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_size % BLOCK || st.st_size == 0)
        return failed(path);
    uint64_t blocks = (uint64_t)st.st_size / BLOCK, top = 0, torn = 0, torn_at = 0;
    CLEANUP_FREE uint64_t *have = calloc(blocks, 8);
    CLEANUP_FREE uint64_t *want = calloc(blocks, 8);
    uint64_t buf[WORDS];
    for (uint64_t b = 0; have && b < blocks; b++) {
        if (pread(fd, buf, BLOCK, (off_t)(b * BLOCK)) != BLOCK)
            return failed("read");
        if (!intact(buf) || buf[1] != blocks) {
            torn++;
            torn_at = b;
            continue;
        }
        have[b] = buf[0];
        top = buf[0] > top ? buf[0] : top;
    }
    for (uint64_t i = 1; want && i <= top; i++)
        want[mix(i) % blocks] = i;
    if (torn > 1 || (torn == 1 && torn_at != mix(top + 1) % blocks)) {
        printf("%" PRIu64 " torn blocks, the last is %" PRIu64 "; highest write %" PRIu64 "\n", torn, torn_at, top);
        return 1;
    }
    for (uint64_t b = 0; b < blocks; b++) {
        if (have[b] != want[b] && !(torn && b == torn_at)) {
            printf("block %" PRIu64 " has write %" PRIu64 ", should have %" PRIu64 " when %" PRIu64 " is there\n", b,
                   have[b], want[b], top);
            return 1;
        }
    }
    if (top < low || top > high + 1) {
        printf("it ends with write %" PRIu64 ": not between %" PRIu64 " and %" PRIu64 "\n", top, low, high + 1);
        return 1;
    }
    printf("one point in time: writes 1 to %" PRIu64 "%s\n", top, torn ? ", the next torn" : "");
    return 0;
}

/* The number to the first block of A, then of B, and so on, each durable before the next begins; another block of each
 * in between keeps the file system busy. */
static int run_pair(char *const *image, int n, const char *status_path, const char *mode)
{
    const int direct = strcmp(mode, "direct") == 0;
    _Atomic uint64_t *status = map(status_path, sizeof *status, O_RDWR | O_CREAT);
    uint64_t *buf = aligned_alloc(BLOCK, BLOCK);
    int fd[IMAGES_MAX];
    if (status == MAP_FAILED || !buf)
        return failed(status_path);
    memset(buf, 0, BLOCK);
    for (int k = 0; k < n; k++)
        if ((fd[k] = open(image[k], O_RDWR | O_CLOEXEC | (direct ? O_DIRECT : 0))) < 0)
            return failed(image[k]);
    for (uint64_t i = 1;; i++) {
        for (int k = 0; k < n; k++) {
            buf[0] = i;
            if (pwrite(fd[k], buf, BLOCK, 0) != BLOCK ||
                pwrite(fd[k], buf, BLOCK, (off_t)(1 + mix(i) % 1000) * BLOCK) != BLOCK || fdatasync(fd[k]) < 0)
                return failed(image[k]);
        }
        atomic_store(status, i);
    }
}

static int show_apart(char *const *image, int n)
{
    uint64_t last[IMAGES_MAX];
    for (int k = 0; k < n; k++) {
        CLEANUP_CLOSE int fd = open(image[k], O_RDONLY | O_CLOEXEC);
        if (fd < 0 || pread(fd, &last[k], sizeof last[k], 0) != (ssize_t)sizeof last[k])
            return failed(image[k]);
        if (k)
            printf("%" PRId64 "%c", (int64_t)(last[k - 1] - last[k]), k + 1 < n ? ' ' : '\n');
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "write") == 0)
        return run(argv[2], argv[3], argv[4], strtoull(argv[5], NULL, 10));
    if (argc == 5 && strcmp(argv[1], "check") == 0)
        return check(argv[2], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10));
    if (argc == 3 && strcmp(argv[1], "status") == 0) {
        _Atomic uint64_t *s = map(argv[2], sizeof *s, O_RDWR);
        if (s == MAP_FAILED)
            return failed(argv[2]);
        printf("%" PRIu64 "\n", atomic_load(s));
        return 0;
    }
    if (argc >= 6 && argc <= IMAGES_MAX + 4 && strcmp(argv[1], "pair") == 0)
        return run_pair(argv + 2, argc - 4, argv[argc - 2], argv[argc - 1]);
    if (argc >= 4 && argc <= IMAGES_MAX + 2 && strcmp(argv[1], "apart") == 0)
        return show_apart(argv + 2, argc - 2);
    fprintf(stderr, "usage: driver_writer write|check|status|pair|apart ...\n");
    return 2;
}
