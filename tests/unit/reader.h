/* SPDX-License-Identifier: GPL-2.0-or-later */
/* reader.h - sources with known bytes, and a consumer that checks them, for the tests of the reader. */
#ifndef SNAPFERRY_TESTS_UNIT_READER_H
#define SNAPFERRY_TESTS_UNIT_READER_H

#include "tests/unit/loop.h"
#include "io/reader-test.h"
#include "io/reader.h"
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KIB ((size_t)1024)
#define MIB ((size_t)1 << 20)
#define TIB ((uint64_t)1 << 40)

static char dir[64];

static inline const char *in_dir(const char *name)
{
    static char path[4][128];
    static unsigned turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

/* Every 8 bytes of test data tell their own position, so that anything misplaced shows. Never zero. */
static inline uint64_t word_at(uint64_t pos)
{
    uint64_t s = pos / 8;
    return splitmix64(&s) | 1;
}

static inline uint8_t byte_at(uint64_t pos)
{
    return (uint8_t)(word_at(pos) >> (pos % 8 * 8));
}

static inline void fill(uint8_t *buf, size_t len, uint64_t pos)
{
    for (size_t i = 0; i < len;) {
        if ((pos + i) % 8 == 0 && len - i >= 8) {
            put_le64(buf + i, word_at(pos + i));
            i += 8;
        } else {
            buf[i] = byte_at(pos + i);
            i++;
        }
    }
}

static inline void write_data(int fd, uint64_t pos, size_t len)
{
    CLEANUP_FREE uint8_t *buf = malloc(len + 1);
    assert_non_null(buf);
    fill(buf, len, pos);
    assert_int_equal(pwrite(fd, buf, len, (off_t)pos), (ssize_t)len);
}

static inline struct source *make_file(const char *name, uint64_t size, bool sparse)
{
    const char *path = in_dir(name);
    struct err e = ERR_INIT;
    CLEANUP_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    if (sparse) {
        assert_return_code(ftruncate(fd, (off_t)size), errno);
    } else {
        write_data(fd, 0, size);
    }
    struct source *s;
    assert_ok(source_open(&s, path, &e), &e);
    assert_int_equal(source_info(s)->size, size);
    return s;
}

/* What is expected at a position: data, except in the holes and bad ranges of a list. */
struct range {
    uint64_t start, end;
};

struct expect {
    const struct range *zero;
    size_t n;
};

static inline void check_bytes(const uint8_t *got, size_t len, uint64_t pos, const struct expect *x)
{
    static const size_t most = 64 * KIB;
    static uint8_t want[64 * 1024];
    while (len) {
        size_t n = len < most ? len : most;
        fill(want, n, pos);
        for (size_t i = 0; x && i < x->n; i++) {
            uint64_t a = x->zero[i].start > pos ? x->zero[i].start : pos;
            uint64_t b = x->zero[i].end < pos + n ? x->zero[i].end : pos + n;
            if (a < b)
                memset(want + (a - pos), 0, b - a);
        }
        if (memcmp(got, want, n) != 0) {
            size_t i = 0;
            while (got[i] == want[i])
                i++;
            fail_msg("byte %" PRIu64 " is %02x, expected %02x", pos + i, got[i], want[i]);
        }
        got += n;
        pos += n;
        len -= n;
    }
}

/* Reads to the end as a chunker does: a window at a time, uneven steps, holding on to a part, jumping through holes.
 * Returns 0 or the error of peek. */
static inline int consume(struct reader *r, uint64_t pos, uint64_t size, size_t window, size_t hold, uint64_t seed,
                          const struct expect *x, uint64_t *end, struct err *e)
{
    struct view v;
    uint64_t first = pos;
    for (;;) {
        *end = pos;
        int rc = reader_peek(r, pos, window, &v, e);
        if (rc < 0)
            return rc;
        if (v.avail == 0) {
            assert_int_equal(pos, size);
            return 0;
        }
        uint64_t left = size - pos;
        if (v.avail < (left < window ? left : window))
            assert_true(v.zero_end > pos + v.avail);
        size_t n = v.avail < window ? v.avail : window;
        check_bytes(v.data, n, pos, x);
        if (v.zero_end > pos) {
            assert_true(zeros_only(v.data, v.zero_end - pos < v.avail ? v.zero_end - pos : v.avail));
            assert_true(v.zero_end <= size);
        }
        uint64_t step = 1 + splitmix64(&seed) % n;
        /* By arithmetic over the middle: what lies between what is there and the last window of the hole is not. */
        if (v.zero_end > pos + window && (step == v.avail || splitmix64(&seed) % 2))
            step = v.zero_end - window - pos;
        pos += step;
        reader_release(r, pos > first + hold ? pos - hold : first);
    }
}

static inline int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/snapferry-reader-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static inline int teardown(void **state)
{
    (void)state;
    return loop_clean(dir);
}

static inline void read_whole(struct source *s, const struct reader_opts *o, size_t hold, uint64_t seed,
                              const struct expect *x)
{
    struct err e = ERR_INIT;
    uint64_t end;
    struct reader *r;
    assert_ok(reader_new(&r, s, o, &e), &e);
    assert_ok(consume(r, o->start, source_info(s)->size, o->window, hold, seed, x, &end, &e), &e);
    reader_free(r);
}

static inline double seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static inline void *peek_thread(void *arg)
{
    struct view v;
    struct err e = ERR_INIT;
    int rc = reader_peek(arg, 0, 1000, &v, &e);
    return rc == -ECANCELED && e.cls == ERR_INTERRUPTED ? arg : NULL;
}

#endif
