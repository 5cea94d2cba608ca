/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * make_data - files for benchmarks, the same bytes from the same seed everywhere
 *
 *   make_data random   FILE MIB SEED              incompressible bytes
 *   make_data zeros    FILE MIB                   zeros that are really written, no holes
 *   make_data sparse   FILE MIB DATA-MIB SEED     holes, and DATA-MIB of random bytes in pieces of 8 MiB all over it
 *   make_data database FILE MIB SEED              8 KiB pages as a database has: header, line pointers, rows, some
 *                                                 empty
 *   make_data rewrite  FILE PERCENT SEED          so many of its 8 KiB pages get a new header and one new row, in
 *                                                 place
 *   make_data spread   FILE PIECES BYTES SEED     random bytes in so many places all over it: one at random in each
 *                                                 PIECESth part, at a multiple of BYTES
 *   make_data over     FILE PIECES BYTES SEED     the same where it has data, and no new ones in holes
 *   make_data within   FILE PIECES BYTES SEED OF-PIECES OF-BYTES OF-SEED
 *                                                 the same where "spread" with these three has written: for devices,
 *                                                 which do not say where they have data
 *
 * An existing file is written over in place. Prints the number of bytes written.
 */
#include "base/bytes.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define PAGE ((size_t)8192)
#define PAGE_HEADER 24
#define ROW_MIN 48
#define PIECE UINT64_C(8) /* MiB */

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void die(const char *what, const char *path)
{
    fprintf(stderr, "make_data: cannot %s %s: %s\n", what, path, strerror(errno));
    exit(1);
}

static void write_at(int fd, const char *path, const uint8_t *buf, size_t len, uint64_t at)
{
    while (len > 0) {
        ssize_t n = pwrite(fd, buf, len, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            die("write", path);
        buf += n;
        at += (uint64_t)n;
        len -= (size_t)n;
    }
}

static void fill_random(uint8_t *buf, size_t len, uint64_t seed)
{
    for (size_t i = 0; i < len; i += 8)
        put_le64(buf + i, next(&seed));
}

/* A row as tables have them: a number, a time that grows, a state of few values, a name made of few words, some bytes
 * that repeat nowhere. */
static size_t make_row(uint8_t *row, uint64_t id, uint64_t *seed)
{
    static const char *const words[16] = {"alpha",   "bridge",  "copper",  "delta",   "ember",  "forest",
                                          "granite", "harbour", "iron",    "juniper", "kettle", "lake",
                                          "meadow",  "north",   "orchard", "pine"};
    uint64_t r = next(seed);
    put_le64(row, id);
    put_le64(row + 8, UINT64_C(1700000000000) + id * 37 + r % 32);
    put_le64(row + 16, r % 5);
    put_le64(row + 24, next(seed));
    int n = snprintf((char *)row + 32, 64, "%s %s %s, %llu", words[r >> 8 & 15], words[r >> 12 & 15],
                     words[r >> 16 & 15], (unsigned long long)(r >> 40 & 1023));
    return ((size_t)(32 + n) + 8) & ~(size_t)7;
}

static void page_header(uint8_t *page, uint64_t lsn, size_t lower, size_t upper)
{
    put_le64(page, lsn);
    put_le32(page + 8, (uint32_t)(lsn * 2654435761u));
    put_le32(page + 12, (uint32_t)lower << 16 | (uint32_t)upper);
    put_le64(page + 16, PAGE);
}

/* Line pointers grow from the header upwards, rows from the end of the page downwards. One page in 16 is unused. */
static void make_page(uint8_t *page, uint64_t number, uint64_t seed)
{
    uint64_t state = seed ^ number * 0x2545f4914f6cdd1du;
    size_t lower = PAGE_HEADER, upper = PAGE;
    uint8_t row[128] = {0};
    memset(page, 0, PAGE);
    if (next(&state) % 16 == 0)
        return;
    size_t fill = PAGE - next(&state) % (PAGE / 4);
    for (uint64_t i = 0;; i++) {
        size_t len = make_row(row, number * 100 + i, &state);
        if (lower + 4 + len + (PAGE - upper) > fill)
            break;
        upper -= len;
        memcpy(page + upper, row, len);
        put_le32(page + lower, (uint32_t)upper << 16 | (uint32_t)len);
        lower += 4;
    }
    page_header(page, number * 8 + 1, lower, upper);
}

static uint64_t make_database(int fd, const char *path, uint64_t bytes, uint64_t seed)
{
    CLEANUP_FREE uint8_t *buf = malloc(MIB);
    if (!buf)
        die("make", path);
    for (uint64_t at = 0; at < bytes; at += MIB) {
        for (size_t i = 0; i < MIB; i += PAGE)
            make_page(buf + i, (at + i) / PAGE, seed);
        write_at(fd, path, buf, MIB, at);
    }
    return bytes;
}

/* Exactly PERCENT of the pages, by selection sampling: each subset of that size is equally likely. */
static uint64_t rewrite(int fd, const char *path, double percent, uint64_t seed)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        die("look at", path);
    uint64_t pages = (uint64_t)st.st_size / PAGE, wanted = (uint64_t)((double)pages * percent / 100 + 0.5), done = 0;
    uint8_t page[PAGE], row[128] = {0};
    for (uint64_t i = 0; i < pages && done < wanted; i++) {
        if (next(&seed) % (pages - i) >= wanted - done)
            continue;
        if (pread(fd, page, PAGE, (off_t)(i * PAGE)) != (ssize_t)PAGE)
            die("read", path);
        page_header(page, seed | 1, PAGE_HEADER + 4, PAGE - ROW_MIN);
        make_row(row, seed, &seed);
        memcpy(page + PAGE - ROW_MIN, row, ROW_MIN);
        write_at(fd, path, page, PAGE, i * PAGE);
        done++;
    }
    return done * PAGE;
}

static uint64_t make_bytes(int fd, const char *path, uint64_t bytes, bool zeros, uint64_t seed)
{
    CLEANUP_FREE uint8_t *buf = calloc(1, MIB);
    if (!buf)
        die("make", path);
    for (uint64_t at = 0; at < bytes; at += MIB) {
        if (!zeros)
            fill_random(buf, MIB, seed ^ next(&(uint64_t){at + 1}));
        write_at(fd, path, buf, MIB, at);
    }
    return bytes;
}

static uint64_t make_sparse(int fd, const char *path, uint64_t mib, uint64_t data, uint64_t seed)
{
    CLEANUP_FREE uint8_t *buf = malloc(MIB);
    if (!buf || ftruncate(fd, 0) < 0 || ftruncate(fd, (off_t)(mib * MIB)) < 0)
        die("make", path);
    uint64_t pieces = (data + PIECE - 1) / PIECE, apart = mib / pieces;
    for (uint64_t i = 0; i < data; i++) {
        uint64_t piece = i / PIECE, at = (piece * apart + i % PIECE) * MIB;
        fill_random(buf, MIB, seed ^ next(&(uint64_t){i + 1}));
        /* On no round place where there is room for that. */
        at += apart > PIECE ? next(&(uint64_t){seed + piece}) % MIB / 4096 * 4096 : 0;
        write_at(fd, path, buf, MIB, at);
    }
    return data * MIB;
}

/* Where pieces may be: whole ones, one after the other. */
struct span {
    uint64_t start, pieces;
};

struct spans {
    struct span *span; /* of malloc() */
    size_t n, room;
};

static void spans_free(struct spans *s)
{
    free(s->span);
}

/* Of pieces of `len` bytes those that lie between two places, if any do. */
static void spans_add(struct spans *s, uint64_t start, uint64_t end, uint64_t len)
{
    const uint64_t first = (start + len - 1) / len, behind = end / len;
    if (behind <= first)
        return;
    if (s->n == s->room) {
        s->room = s->room ? 2 * s->room : 1024;
        s->span = realloc(s->span, s->room * sizeof *s->span);
        if (!s->span) {
            fputs("make_data: no memory\n", stderr);
            exit(1);
        }
    }
    s->span[s->n++] = (struct span){first * len, behind - first};
}

/* Of a device, too. */
static uint64_t size_of(int fd, const char *path)
{
    const off_t size = lseek(fd, 0, SEEK_END);
    if (size < 0)
        die("look at", path);
    return (uint64_t)size;
}

static void spans_of_data(struct spans *s, int fd, const char *path, uint64_t len)
{
    const off_t size = (off_t)size_of(fd, path);
    for (off_t end = 0, start; end < size;) {
        start = lseek(fd, end, SEEK_DATA);
        if (start < 0 && errno == ENXIO)
            break;
        end = lseek(fd, start, SEEK_HOLE);
        if (start < 0 || end < 0)
            die("look for data in", path);
        spans_add(s, (uint64_t)start, (uint64_t)end, len);
    }
}

/* The piece that lies in the i-th of so many equal parts. */
static uint64_t piece_choose(uint64_t total, uint64_t pieces, uint64_t i, uint64_t *seed)
{
    const uint64_t first = total / pieces * i + total % pieces * i / pieces, k = i + 1;
    const uint64_t behind = total / pieces * k + total % pieces * k / pieces;
    return first + next(seed) % (behind - first);
}

/* Where "spread" with these numbers has written. */
static void spans_of_spread(struct spans *s, int fd, const char *path, const uint64_t of[3], uint64_t len)
{
    const uint64_t size = size_of(fd, path);
    uint64_t seed = of[2];
    errno = ENOSPC;
    if (size / of[1] < of[0])
        die("have so many pieces in", path);
    for (uint64_t i = 0; i < of[0]; i++) {
        const uint64_t start = piece_choose(size / of[1], of[0], i, &seed) * of[1];
        next(&seed); /* what it is filled with */
        spans_add(s, start, start + of[1], len);
    }
}

static uint64_t make_pieces(int fd, const char *path, const struct spans *in, uint64_t pieces, uint64_t len,
                            uint64_t seed)
{
    CLEANUP_FREE uint8_t *buf = malloc(len);
    uint64_t total = 0, before = 0;
    size_t at = 0;
    for (size_t i = 0; i < in->n; i++)
        total += in->span[i].pieces;
    errno = ENOSPC;
    if (!buf || total < pieces)
        die("find enough places in", path);
    for (uint64_t i = 0; i < pieces; i++) {
        const uint64_t piece = piece_choose(total, pieces, i, &seed);
        for (; piece >= before + in->span[at].pieces; at++)
            before += in->span[at].pieces;
        fill_random(buf, len, next(&seed));
        write_at(fd, path, buf, len, in->span[at].start + (piece - before) * len);
    }
    return pieces * len;
}

static int usage(void)
{
    fputs("usage: make_data random FILE MIB SEED | zeros FILE MIB | sparse FILE MIB DATA-MIB SEED |\n"
          "       database FILE MIB SEED | rewrite FILE PERCENT SEED |\n"
          "       spread|over FILE PIECES BYTES SEED      (BYTES: a multiple of 8) |\n"
          "       within FILE PIECES BYTES SEED OF-PIECES OF-BYTES OF-SEED\n",
          stderr);
    return 2;
}

enum kind { RANDOM, ZEROS, SPARSE, DATABASE, REWRITE, SPREAD, OVER, WITHIN, KINDS };
static const struct {
    const char *name;
    int numbers; /* behind the file */
} kinds[KINDS] = {{"random", 2},  {"zeros", 1},  {"sparse", 3}, {"database", 2},
                  {"rewrite", 2}, {"spread", 3}, {"over", 3},   {"within", 6}};

static bool number(const char *text, uint64_t *ret)
{
    char *end;
    errno = 0;
    *ret = strtoull(text, &end, 10);
    return !errno && end != text && !*end;
}

int main(int argc, char **argv)
{
    int kind = 0;
    while (argc > 1 && kind < KINDS && strcmp(argv[1], kinds[kind].name) != 0)
        kind++;
    uint64_t n[6] = {0};
    if (argc < 3 || kind == KINDS || argc != 3 + kinds[kind].numbers)
        return usage();
    for (int i = 0; i < kinds[kind].numbers; i++)
        if (!(kind == REWRITE && i == 0) && !number(argv[3 + i], &n[i]))
            return usage();
    if (kind == SPARSE && (n[1] == 0 || n[0] < n[1]))
        return usage();
    const bool pieces = kind == SPREAD || kind == OVER || kind == WITHIN, in_place = kind == REWRITE || pieces;
    if (pieces && (n[0] == 0 || n[1] == 0 || n[1] % 8 != 0))
        return usage();
    if (kind == WITHIN && (n[3] == 0 || n[4] == 0))
        return usage();
    const char *path = argv[2];
    int fd = open(path, O_RDWR | O_CLOEXEC | (in_place ? 0 : O_CREAT), 0644);
    if (fd < 0)
        die("open", path);
    uint64_t done = 0;
    if (kind == RANDOM || kind == ZEROS)
        done = make_bytes(fd, path, n[0] * MIB, kind == ZEROS, n[1]);
    else if (kind == SPARSE)
        done = make_sparse(fd, path, n[0], n[1], n[2]);
    else if (kind == DATABASE)
        done = make_database(fd, path, n[0] * MIB, n[1]);
    else if (pieces) {
        struct spans in CLEANUP(spans_free) = {.n = 0};
        if (kind == OVER)
            spans_of_data(&in, fd, path, n[1]);
        else if (kind == WITHIN)
            spans_of_spread(&in, fd, path, n + 3, n[1]);
        else
            spans_add(&in, 0, size_of(fd, path), n[1]);
        done = make_pieces(fd, path, &in, n[0], n[1], n[2]);
    } else
        done = rewrite(fd, path, strtod(argv[3], NULL), n[1]);
    if (close(fd) < 0)
        die("write", path);
    printf("%llu\n", (unsigned long long)done);
    return 0;
}
