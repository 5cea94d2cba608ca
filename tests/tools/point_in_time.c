/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * point_in_time.c - a writer whose file tells whether a copy of it is one point in time
 *
 *   point_in_time write FILE BLOCKS   writes for ever: number n goes to block n * STEP mod BLOCKS, one write after
 * another point_in_time check FILE          "state after N writes", or exit code 1 and what contradicts it
 *
 * A copy is consistent if there is an N such that each block holds the last number up to N that belongs to it. Only the
 * write that was under way may be there in part: its block holds the old number in some sectors and the new in others.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 4096u
#define WORDS (BLOCK / sizeof(uint64_t))
#define STEP 7919u /* a prime: with BLOCKS no multiple of it every block has its turn */

static void fill(uint64_t *b, uint64_t n)
{
    for (size_t i = 0; i < WORDS; i++)
        b[i] = n;
}

static int write_for_ever(const char *path, uint64_t blocks)
{
    uint64_t b[WORDS];
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || ftruncate(fd, (off_t)(blocks * BLOCK)) < 0) {
        perror(path);
        return 2;
    }
    for (uint64_t n = 1;; n++) {
        fill(b, n);
        if (pwrite(fd, b, sizeof b, (off_t)(n * STEP % blocks * BLOCK)) != (ssize_t)sizeof b) {
            perror(path);
            return 2;
        }
        if (n % 64 == 0) /* a pace that leaves the machine to others: some 20 MiB/s */
            nanosleep(&(struct timespec){.tv_nsec = 12000000}, NULL);
        if (n % 4096 == 0)
            fdatasync(fd);
    }
}

/* The last number up to n that belongs to block i, 0 if none. `inverse` * STEP = 1 mod blocks. */
static uint64_t expected(uint64_t i, uint64_t n, uint64_t blocks, uint64_t inverse)
{
    uint64_t first = i * inverse % blocks;
    if (first == 0)
        first = blocks;
    return n < first ? 0 : first + (n - first) / blocks * blocks;
}

/* Whether each word of the block is `now` or, where the write was under way, `before`. */
static int holds(const uint64_t *b, uint64_t now, uint64_t before, int partly)
{
    for (size_t i = 0; i < WORDS; i++)
        if (b[i] != now && !(partly && b[i] == before))
            return 0;
    return 1;
}

static int check(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_size < (off_t)BLOCK) {
        fprintf(stderr, "%s cannot be read or is empty\n", path);
        return 2;
    }
    uint64_t blocks = (uint64_t)st.st_size / BLOCK, max = 0, inverse = 1;
    uint64_t *all = malloc((size_t)st.st_size);
    if (!all || pread(fd, all, blocks * BLOCK, 0) != (ssize_t)(blocks * BLOCK)) {
        fprintf(stderr, "%s cannot be read\n", path);
        return 2;
    }
    while (inverse * STEP % blocks != 1 % blocks)
        if (++inverse > blocks)
            return fprintf(stderr, "%" PRIu64 " blocks are no good\n", blocks), 2;
    for (uint64_t i = 0; i < blocks * WORDS; i++)
        max = all[i] > max ? all[i] : max;
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t want = expected(i, max, blocks, inverse), before = want > blocks ? want - blocks : 0;
        if (!holds(all + i * WORDS, want, before, want == max)) {
            printf("not one point in time: after %" PRIu64 " writes block %" PRIu64 " must hold %" PRIu64
                   ", and holds %" PRIu64 "\n",
                   max, i, want, all[i * WORDS]);
            return 1;
        }
    }
    printf("state after %" PRIu64 " writes\n", max);
    free(all);
    close(fd);
    return max == 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "write") == 0)
        return write_for_ever(argv[2], strtoull(argv[3], NULL, 10));
    if (argc == 3 && strcmp(argv[1], "check") == 0)
        return check(argv[2]);
    fprintf(stderr, "usage: point_in_time write FILE BLOCKS | check FILE\n");
    return 2;
}
