/* SPDX-License-Identifier: GPL-2.0-or-later */
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

static const char *in_dir(const char *name)
{
    static char path[4][128];
    static unsigned turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

/* Every 8 bytes of test data tell their own position, so that anything misplaced shows. Never zero. */
static uint64_t word_at(uint64_t pos)
{
    uint64_t s = pos / 8;
    return splitmix64(&s) | 1;
}

static uint8_t byte_at(uint64_t pos)
{
    return (uint8_t)(word_at(pos) >> (pos % 8 * 8));
}

static void fill(uint8_t *buf, size_t len, uint64_t pos)
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

static void write_data(int fd, uint64_t pos, size_t len)
{
    CLEANUP_FREE uint8_t *buf = malloc(len + 1);
    assert_non_null(buf);
    fill(buf, len, pos);
    assert_int_equal(pwrite(fd, buf, len, (off_t)pos), (ssize_t)len);
}

static struct source *make_file(const char *name, uint64_t size, bool sparse)
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

static void check_bytes(const uint8_t *got, size_t len, uint64_t pos, const struct expect *x)
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
static int consume(struct reader *r, uint64_t pos, uint64_t size, size_t window, size_t hold, uint64_t seed,
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

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/snapferry-reader-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return loop_clean(dir);
}

static void read_whole(struct source *s, const struct reader_opts *o, size_t hold, uint64_t seed,
                       const struct expect *x)
{
    struct err e = ERR_INIT;
    uint64_t end;
    struct reader *r;
    assert_ok(reader_new(&r, s, o, &e), &e);
    assert_ok(consume(r, o->start, source_info(s)->size, o->window, hold, seed, x, &end, &e), &e);
    reader_free(r);
}

static void odd_sizes(void **state)
{
    (void)state;
    static const size_t block = 64 * KIB;
    static const size_t sizes[] = {0,
                                   1,
                                   511,
                                   512,
                                   513,
                                   4095,
                                   4096,
                                   4097,
                                   64 * KIB - 1,
                                   64 * KIB,
                                   64 * KIB + 1,
                                   8 * 64 * KIB - 511,
                                   3 * MIB,
                                   3 * MIB + 4095,
                                   5 * MIB + 513};
    uint64_t seed = 1;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct source *s = make_file("odd", sizes[i], false);
        for (unsigned how = 0; how < 8; how++) {
            uint64_t start = how & 4 ? splitmix64(&seed) % (sizes[i] + 1) : 0;
            struct reader_opts o = {.start = start,
                                    .ring = 6 * block,
                                    .window = 2 * block - 100,
                                    .block = block,
                                    .no_uring = how & 1,
                                    .no_direct = how & 2};
            read_whole(s, &o, 0, seed, NULL);
        }
        source_free(s);
    }
}

static void random_shapes(void **state)
{
    (void)state;
    uint64_t seed = 42;
    for (unsigned round = 0; round < 120; round++) {
        size_t size = splitmix64(&seed) % (4 * MIB);
        struct source *s = make_file("random", size, false);
        size_t block = (size_t)4096 << splitmix64(&seed) % 7;
        size_t window = 1 + splitmix64(&seed) % (300 * KIB);
        struct reader_opts o = {.start = splitmix64(&seed) % (size + 1),
                                .ring = splitmix64(&seed) % MIB,
                                .window = window,
                                .block = block,
                                .depth = (unsigned)(splitmix64(&seed) % 20),
                                .no_uring = splitmix64(&seed) % 2,
                                .no_direct = splitmix64(&seed) % 2};
        read_whole(s, &o, splitmix64(&seed) % window, seed, NULL);
        source_free(s);
    }
}

static void sparse_shapes(void **state)
{
    (void)state;
    uint64_t seed = 7;
    for (unsigned round = 0; round < 60; round++) {
        struct range zero[64];
        size_t n = 0;
        uint64_t size = MIB + splitmix64(&seed) % (24 * MIB), pos = 0;
        struct source *s = make_file("sparse", size, true);
        CLEANUP_CLOSE int fd = open(in_dir("sparse"), O_RDWR | O_CLOEXEC);
        while (pos < size && n < 64) {
            uint64_t hole = 4096 * (splitmix64(&seed) % (round % 3 ? 600 : 40));
            uint64_t data = 1 + splitmix64(&seed) % (200 * KIB);
            uint64_t end = n == 63 || pos + hole > size ? size : pos + hole;
            zero[n++] = (struct range){pos, end};
            data = end + data > size ? size - end : data;
            if (data)
                write_data(fd, end, data);
            pos = end + data;
        }
        struct expect x = {zero, n};
        size_t window = 1 + splitmix64(&seed) % (round % 2 ? 300 * KIB : 9 * KIB);
        struct reader_opts o = {.start = splitmix64(&seed) % 4 ? 0 : splitmix64(&seed) % size,
                                .ring = splitmix64(&seed) % MIB,
                                .window = window,
                                .block = (size_t)4096 << splitmix64(&seed) % 6,
                                .no_uring = splitmix64(&seed) % 2,
                                .no_direct = splitmix64(&seed) % 2};
        read_whole(s, &o, splitmix64(&seed) % window, seed, &x);
        source_free(s);
    }
}

static double seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* ---- holes ---- */

static void read_huge(const char *path, uint64_t size, bool no_uring)
{
    static const uint64_t at[] = {0, 5 * TIB / 16 + 12345, TIB - 4097};
    struct err e = ERR_INIT;
    CLEANUP_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_return_code(ftruncate(fd, (off_t)size), errno);
    struct range zero[4];
    uint64_t pos = 0;
    for (size_t i = 0; i < 3; i++) {
        zero[i] = (struct range){pos, at[i]};
        write_data(fd, at[i], 3 * MIB + 77);
        pos = at[i] + 3 * MIB + 77;
    }
    zero[3] = (struct range){pos, size};
    struct expect x = {zero, 4};
    struct source *s;
    assert_ok(source_open(&s, path, &e), &e);
    struct reader_opts o = {.ring = 20 * MIB, .window = 8 * MIB, .no_uring = no_uring};
    struct reader *r;
    uint64_t end;
    double t = seconds();
    assert_ok(reader_new(&r, s, &o, &e), &e);
    assert_ok(consume(r, 0, size, o.window, 0, 1, &x, &end, &e), &e);
    struct reader_stats st;
    reader_stats(r, &st);
    reader_free(r);
    source_free(s);
    t = seconds() - t;
    if (!getenv("SNAPFERRY_SANITIZED") && t > 2)
        fail_msg("%.1f s for a sparse file of %" PRIu64 " bytes", t, size);
    assert_true(st.read_bytes < 12 * MIB);
    assert_true(st.hole_bytes > size - 12 * MIB);
}

static void huge_sparse_files(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        read_huge(in_dir("huge"), 2 * TIB, i);
    unlink(in_dir("huge"));
    /* ext4 ends at 16 TiB: tmpfs does not. */
    char path[64];
    snprintf(path, sizeof path, "/dev/shm/snapferry-reader-%d", (int)getpid());
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)(17 * TIB)) < 0) {
        unlink(path);
        print_message("SKIP: no file of 17 TiB is possible in /dev/shm\n");
        skip();
    }
    close(fd);
    read_huge(path, 17 * TIB + 511, false);
    unlink(path);
}

/* Small extents without end: the work for each must not depend on their number, nor the memory. */
static double read_speckled(unsigned n, uint64_t step)
{
    struct err e = ERR_INIT;
    /* In memory where possible: thousands of tiny reads measure the disk and not the reader. */
    char path[128];
    snprintf(path, sizeof path, "/dev/shm/snapferry-speckled-%d", (int)getpid());
    if (access("/dev/shm", W_OK) != 0)
        snprintf(path, sizeof path, "%s", in_dir("speckled"));
    CLEANUP_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_return_code(ftruncate(fd, (off_t)(n * step)), errno);
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(pwrite(fd, "x", 1, (off_t)(i * step)), 1);
    struct source *s;
    struct reader *r;
    assert_ok(source_open(&s, path, &e), &e);
    struct reader_opts o = {.ring = 20 * MIB, .window = 8 * MIB};
    double t = seconds();
    assert_ok(reader_new(&r, s, &o, &e), &e);
    uint64_t pos = 0;
    struct view v;
    for (;;) {
        assert_ok(reader_peek(r, pos, MIB, &v, &e), &e);
        if (v.avail == 0)
            break;
        for (uint64_t i = (pos + step - 1) / step * step; i < pos + v.avail; i += step)
            assert_int_equal(v.data[i - pos], 'x');
        pos += v.avail;
        reader_release(r, pos);
    }
    t = seconds() - t;
    unlink(path);
    assert_int_equal(pos, n * step);
    reader_free(r);
    source_free(s);
    return t;
}

static void many_small_extents(void **state)
{
    (void)state;
    read_speckled(20000, 8192); /* holes too short to be worth a request: read through */
    double one = read_speckled(4000, 128 * KIB), four = read_speckled(16000, 128 * KIB);
    if (!getenv("SNAPFERRY_SANITIZED") && four > 10 * one && four > 3)
        fail_msg("4000 extents: %.2f s, 16000: %.2f s", one, four);
}

/* ---- sources that change ---- */

static void shrinking_sources(void **state)
{
    (void)state;
    for (int how = 0; how < 8; how++) {
        struct err e = ERR_INIT;
        struct source *s = make_file("shrink", 8 * MIB, how & 4);
        struct reader *r;
        struct view v;
        uint64_t end;
        /* With holes the ring takes all at once, unless the first peek comes after the cut. */
        struct reader_opts o = {
            .ring = MIB, .window = 256 * KIB, .block = 64 * KIB, .no_uring = how & 1, .no_direct = how & 2};
        if (!(how & 4)) {
            assert_ok(reader_new(&r, s, &o, &e), &e);
            assert_ok(reader_peek(r, 0, 1000, &v, &e), &e);
        }
        assert_return_code(truncate(in_dir("shrink"), 5000001), errno);
        if (how & 4)
            assert_ok(reader_new(&r, s, &o, &e), &e);
        int rc = consume(r, 0, 8 * MIB, o.window, 0, 1, NULL, &end, &e);
        assert_true(rc < 0);
        assert_int_equal(e.cls, ERR_SOURCE);
        assert_non_null(strstr(e.msg, in_dir("shrink")));
        assert_non_null(strstr(e.msg, "8388608"));
        assert_non_null(strstr(e.msg, "5000001"));
        assert_true(end <= 5000001);
        reader_free(r);
        source_free(s);
    }
}

static void growing_sources(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct source *s = make_file("grow", 1000001, false);
    struct reader_opts o = {.ring = MIB, .window = 64 * KIB, .block = 64 * KIB};
    assert_return_code(truncate(in_dir("grow"), 2000000), errno);
    read_whole(s, &o, 0, 1, NULL); /* the size is that of the opening */
    bool grown;
    assert_ok(source_recheck(s, &grown, NULL, &e), &e);
    assert_true(grown);
    source_free(s);
}

/* ---- faults ---- */

struct faults {
    pthread_mutex_t mu;
    uint64_t seed;
    unsigned short_every, again_every, eio_every; /* one in n results; 0: none */
    int hard;                                     /* errno of the ranges below */
    struct range bad[8];
    size_t n_bad;
    unsigned calls, made;
};

static int64_t spoil(void *arg, uint64_t pos, void *buf, size_t len, int64_t res)
{
    struct faults *f = arg;
    pthread_mutex_lock(&f->mu);
    f->calls++;
    uint64_t dice = splitmix64(&f->seed);
    for (size_t i = 0; i < f->n_bad && res > 0; i++) {
        if (f->bad[i].start < pos + (uint64_t)res && f->bad[i].end > pos) {
            res = -f->hard;
            /* Sometimes what lies before the bad sector still comes. */
            if (f->bad[i].start > pos && dice % 2)
                res = (int64_t)(f->bad[i].start - pos);
            memset(buf, 0xee, len);
            if (res > 0)
                fill(buf, (size_t)res, pos);
            f->made++;
        }
    }
    if (res > 0 && f->again_every && dice % f->again_every == 0) {
        res = dice / 1000 % 2 ? -EINTR : -EAGAIN;
        memset(buf, 0xee, len);
        f->made++;
    } else if (res > 0 && f->eio_every && dice % f->eio_every == 1) {
        res = -EIO;
        memset(buf, 0xee, len);
        f->made++;
    } else if (res > 0 && f->short_every && dice % f->short_every == 2) {
        uint64_t unit = dice / 1000 % 3 == 0 ? 4096 : dice / 1000 % 3 == 1 ? 512 : 1;
        int64_t n = (int64_t)(splitmix64(&f->seed) % (uint64_t)res / unit * unit);
        if (n > 0) {
            memset((uint8_t *)buf + n, 0xee, len - (size_t)n);
            res = n;
            f->made++;
        }
    }
    pthread_mutex_unlock(&f->mu);
    return res;
}

struct bad_list {
    struct range r[32];
    size_t n;
    int sys;
};

static void note_bad(uint64_t pos, uint64_t len, int sys, void *arg)
{
    struct bad_list *l = arg;
    assert_true(l->n < 32);
    l->r[l->n++] = (struct range){pos, pos + len};
    l->sys = sys;
}

static void soft_faults_are_mended(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 700, 3 * MIB + 777, 6 * MIB};
    for (int how = 0; how < 16; how++) {
        struct faults f = {.mu = PTHREAD_MUTEX_INITIALIZER,
                           .seed = (uint64_t)how + 99,
                           .short_every = 3,
                           .again_every = 5,
                           .eio_every = how & 8 ? 40 : 0};
        struct reader_fault rf = {.on_result = spoil, .arg = &f, .lower_flags = (unsigned)how % 3};
        struct err e = ERR_INIT;
        struct source *s = make_file("soft", sizes[how / 2 % 4], false);
        struct reader_opts o = {.ring = 2 * MIB,
                                .window = 300 * KIB,
                                .block = 64 * KIB,
                                .no_uring = how & 1,
                                .no_direct = splitmix64(&f.seed) % 2,
                                .retries = 6};
        struct reader *r;
        uint64_t end;
        assert_ok(reader_new_faulty(&r, s, &o, &rf, &e), &e);
        assert_ok(consume(r, 0, source_info(s)->size, o.window, 0, 5, NULL, &end, &e), &e);
        assert_true(source_info(s)->size < MIB || f.made > 5);
        reader_free(r);
        source_free(s);
    }
}

static void bad_sectors_fail_by_default(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        struct faults f = {.mu = PTHREAD_MUTEX_INITIALIZER,
                           .hard = EIO,
                           .bad = {{2 * MIB + 3 * 4096, 2 * MIB + 4 * 4096}},
                           .n_bad = 1};
        struct reader_fault rf = {.on_result = spoil, .arg = &f};
        struct err e = ERR_INIT;
        struct source *s = make_file("hard", 4 * MIB, false);
        struct reader_opts o = {
            .ring = 2 * MIB, .window = 100 * KIB, .block = 256 * KIB, .no_uring = how & 1, .no_direct = how & 2};
        struct reader *r;
        uint64_t end;
        char want[64];
        assert_ok(reader_new_faulty(&r, s, &o, &rf, &e), &e);
        assert_int_equal(consume(r, 0, 4 * MIB, o.window, 0, 5, NULL, &end, &e), -EIO);
        assert_int_equal(e.cls, ERR_SOURCE);
        assert_non_null(strstr(e.msg, in_dir("hard")));
        snprintf(want, sizeof want, "bytes %zu to %zu of", 2 * MIB + 3 * 4096,
                 2 * MIB + 3 * 4096 + source_info(s)->sector - 1);
        if (!strstr(e.msg, want))
            fail_msg("%s: expected %s", e.msg, want);
        /* It was tried again before. */
        assert_true(f.made >= 5);
        reader_free(r);
        source_free(s);
    }
}

static void bad_sectors_can_be_mapped(void **state)
{
    (void)state;
    for (int how = 0; how < 8; how++) {
        struct faults f = {.mu = PTHREAD_MUTEX_INITIALIZER,
                           .seed = (uint64_t)how,
                           .hard = EIO,
                           .bad = {{0, 512},
                                   {70000 / 512 * 512, 70000 / 512 * 512 + 1024},
                                   {256 * KIB - 1024, 256 * KIB + 512},
                                   {512 * KIB, 1024 * KIB + 512},
                                   {3 * MIB - 512, 3 * MIB + 100}},
                           .n_bad = 5};
        struct reader_fault rf = {.on_result = spoil, .arg = &f};
        struct err e = ERR_INIT;
        struct bad_list l = {.n = 0};
        struct source *s = make_file("map", 3 * MIB + 100, false);
        uint32_t sector = source_info(s)->sector;
        struct reader_opts o = {.start = how & 4 ? 100 : 0,
                                .ring = MIB,
                                .window = 100 * KIB,
                                .block = 64 * KIB,
                                .no_uring = how & 1,
                                .no_direct = how & 2,
                                .bad_read = BAD_READ_MAP,
                                .retries = 1,
                                .on_bad = note_bad,
                                .on_bad_arg = &l};
        struct range zero[5];
        uint64_t sum = 0;
        for (size_t i = 0; i < 5; i++) {
            zero[i] = (struct range){f.bad[i].start / sector * sector, (f.bad[i].end + sector - 1) / sector * sector};
            if (zero[i].start < o.start)
                zero[i].start = o.start;
            if (zero[i].end > 3 * MIB + 100)
                zero[i].end = 3 * MIB + 100;
            sum += zero[i].end - zero[i].start;
        }
        struct expect x = {zero, 5};
        struct reader *r;
        struct reader_stats st;
        uint64_t end;
        assert_ok(reader_new_faulty(&r, s, &o, &rf, &e), &e);
        assert_ok(consume(r, o.start, 3 * MIB + 100, o.window, 0, 5, &x, &end, &e), &e);
        reader_stats(r, &st);
        reader_free(r);
        assert_int_equal(l.n, 5);
        assert_int_equal(l.sys, EIO);
        for (size_t i = 0; i < 5; i++) {
            assert_int_equal(l.r[i].start, zero[i].start);
            assert_int_equal(l.r[i].end, zero[i].end);
        }
        assert_int_equal(st.bad_bytes, sum);
        source_free(s);
    }
}

static void vanished_devices_are_not_mapped(void **state)
{
    (void)state;
    for (int how = 0; how < 2; how++) {
        struct faults f = {.mu = PTHREAD_MUTEX_INITIALIZER, .hard = ENODEV, .bad = {{MIB, 8 * MIB}}, .n_bad = 1};
        struct reader_fault rf = {.on_result = spoil, .arg = &f};
        struct err e = ERR_INIT;
        struct bad_list l = {.n = 0};
        struct source *s = make_file("vanish", 4 * MIB, false);
        struct reader_opts o = {.ring = MIB,
                                .window = 100 * KIB,
                                .block = 64 * KIB,
                                .no_uring = how & 1,
                                .bad_read = BAD_READ_MAP,
                                .on_bad = note_bad,
                                .on_bad_arg = &l};
        struct reader *r;
        uint64_t end;
        assert_ok(reader_new_faulty(&r, s, &o, &rf, &e), &e);
        assert_true(consume(r, 0, 4 * MIB, o.window, 0, 5, NULL, &end, &e) < 0);
        assert_int_equal(e.cls, ERR_SOURCE);
        assert_non_null(strstr(e.msg, "vanished"));
        assert_int_equal(l.n, 0);
        reader_free(r);
        source_free(s);
    }
}

/* A device that does not answer: reads finish only when `go` is posted. */
struct hang {
    sem_t arrived, go;
    atomic_bool on;
};

static int64_t hang_on(void *arg, uint64_t pos, void *buf, size_t len, int64_t res)
{
    struct hang *h = arg;
    (void)pos;
    (void)buf;
    (void)len;
    if (atomic_load(&h->on)) {
        sem_post(&h->arrived);
        sem_wait(&h->go);
    }
    return res;
}

static void *peek_thread(void *arg)
{
    struct view v;
    struct err e = ERR_INIT;
    int rc = reader_peek(arg, 0, 1000, &v, &e);
    return rc == -ECANCELED && e.cls == ERR_INTERRUPTED ? arg : NULL;
}

static void cancel_works_while_a_read_hangs(void **state)
{
    (void)state;
    for (int how = 0; how < 2; how++) {
        struct hang h;
        atomic_init(&h.on, true);
        sem_init(&h.arrived, 0, 0);
        sem_init(&h.go, 0, 0);
        struct reader_fault rf = {.on_result = hang_on, .arg = &h};
        struct err e = ERR_INIT;
        struct source *s = make_file("hang", 4 * MIB, false);
        struct reader_opts o = {.ring = MIB, .window = 100 * KIB, .block = 64 * KIB, .depth = 4, .no_uring = how & 1};
        struct reader *r;
        struct view v;
        pthread_t th;
        void *ret;
        assert_ok(reader_new_faulty(&r, s, &o, &rf, &e), &e);
        assert_int_equal(pthread_create(&th, NULL, peek_thread, r), 0);
        sem_wait(&h.arrived);
        reader_cancel(r);
        pthread_join(th, &ret); /* the read still hangs */
        assert_ptr_equal(ret, r);
        assert_int_equal(reader_peek(r, 0, 1, &v, &e), -ECANCELED);
        atomic_store(&h.on, false);
        for (int i = 0; i < 8; i++)
            sem_post(&h.go);
        reader_free(r);
        source_free(s);
        sem_destroy(&h.arrived);
        sem_destroy(&h.go);
    }
    /* A reader that waits for room, and one that is freed without a word. */
    for (int how = 0; how < 4; how++) {
        struct err e = ERR_INIT;
        struct source *s = make_file("full", 4 * MIB, false);
        struct reader_opts o = {.ring = MIB, .window = 100 * KIB, .block = 64 * KIB, .no_uring = how & 1};
        struct reader *r;
        struct view v;
        assert_ok(reader_new(&r, s, &o, &e), &e);
        if (how & 2)
            assert_ok(reader_peek(r, 0, 100 * KIB, &v, &e), &e);
        reader_free(r);
        source_free(s);
    }
    reader_free(NULL);
}

/* What is read keeps to the limit, in pieces that suit it; holes cost nothing; waiting ends with a cancellation. */
static void limits_are_kept(void **state)
{
    (void)state;
    for (int how = 0; how < 2; how++) {
        struct throttle t = {.rate = MIB};
        struct source *s = make_file("limited", 768 * KIB + 100, false);
        struct reader_opts o = {.ring = 4 * MIB, .window = 100 * KIB, .limit = &t, .no_uring = how & 1};
        const double began = seconds();
        read_whole(s, &o, 0, 5, NULL);
        assert_true(seconds() - began >= 12.0 / 16); /* pieces of 128 KiB, the last one of the odd bytes */
        source_free(s);

        t = (struct throttle){.rate = THROTTLE_MIN};
        s = make_file("limited", TIB, true);
        CLEANUP_CLOSE int fd = open(in_dir("limited"), O_RDWR | O_CLOEXEC);
        write_data(fd, TIB / 2, 4096);
        const struct range zero[] = {{0, TIB / 2}, {TIB / 2 + 4096, TIB}};
        read_whole(s, &o, 0, 6, &(struct expect){zero, 2}); /* half a year, did the holes count */
        source_free(s);

        struct err e = ERR_INIT;
        struct reader *r;
        struct view v;
        pthread_t th;
        void *ret;
        s = make_file("limited", MIB, false);
        throttle_take(&t, 3600 * THROTTLE_MIN);
        assert_ok(reader_new(&r, s, &o, &e), &e);
        assert_int_equal(pthread_create(&th, NULL, peek_thread, r), 0);
        reader_cancel(r);
        pthread_join(th, &ret);
        assert_ptr_equal(ret, r);
        assert_int_equal(reader_peek(r, 0, 1, &v, &e), -ECANCELED);
        reader_free(r);
        source_free(s);
    }
}

static void callers_mistakes_are_told(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct source *s = make_file("calls", 64 * MIB, true);
    struct reader *r;
    struct view v;
    struct reader_opts o = {.start = 64 * MIB + 1, .ring = MIB, .window = MIB};
    assert_true(reader_new(&r, s, &o, &e) < 0);
    assert_int_equal(e.cls, ERR_USAGE);
    o.start = 0;
    o.block = 65535;
    assert_true(reader_new(&r, s, &o, &e) < 0);
    o.block = 64 * KIB;
    assert_ok(reader_new(&r, s, &o, &e), &e);
    assert_ok(reader_peek(r, 10, 5, &v, &e), &e);
    assert_int_equal(v.zero_end, 64 * MIB); /* a hole is known to its end at once */
    assert_int_equal(reader_peek(r, 0, MIB + 1, &v, &e), -EINVAL);
    assert_int_equal(reader_peek(r, 64 * MIB + 1, 1, &v, &e), -EINVAL);
    assert_int_equal(reader_peek(r, 32 * MIB, 1, &v, &e), -EINVAL); /* the skipped middle */
    assert_ok(reader_peek(r, 10, MIB, &v, &e), &e);
    assert_true(v.avail >= MIB - 10);
    /* Over the middle, without having seen anything of it; release may run ahead. */
    reader_release(r, 63 * MIB);
    assert_ok(reader_peek(r, 63 * MIB, MIB, &v, &e), &e);
    assert_int_equal(v.avail, MIB);
    assert_true(zeros_only(v.data, v.avail));
    assert_int_equal(reader_peek(r, 0, 1, &v, &e), -EINVAL);
    assert_ok(reader_peek(r, 64 * MIB, MIB, &v, &e), &e);
    assert_int_equal(v.avail, 0);
    reader_free(r);
    source_free(s);
}

/* The consumer knows a hole to its end while the reader is still in its first window, and releases up to behind the
 * middle: the reader must not lose the seam. */
static void release_may_overtake_the_reader(void **state)
{
    (void)state;
    for (int how = 0; how < 2; how++) {
        struct err e = ERR_INIT;
        struct source *s = make_file("overtake", 64 * MIB, true);
        CLEANUP_CLOSE int fd = open(in_dir("overtake"), O_RDWR | O_CLOEXEC);
        write_data(fd, 0, 512 * KIB);
        write_data(fd, 63 * MIB, MIB);
        struct reader *r;
        struct view v;
        struct reader_opts o = {.ring = 640 * KIB, .window = 256 * KIB, .block = 64 * KIB, .no_uring = how};
        assert_ok(reader_new(&r, s, &o, &e), &e);
        assert_ok(reader_peek(r, 512 * KIB, 128 * KIB, &v, &e), &e); /* the ring is full now */
        assert_int_equal(v.zero_end, 63 * MIB);
        reader_release(r, 63 * MIB - 100 * KIB);
        alarm(60);
        uint64_t end;
        struct range zero = {512 * KIB, 63 * MIB};
        struct expect x = {&zero, 1};
        assert_ok(consume(r, 63 * MIB - 100 * KIB, 64 * MIB, o.window, 0, 5, &x, &end, &e), &e);
        alarm(0);
        reader_free(r);
        source_free(s);
    }
}

/* ---- what the system refuses ---- */

/* Reads the file "refused" in a child in which `what` was done first; its stats must match. */
enum refusal { NO_URING, NO_MEMLOCK, NO_REOPEN };

static int refused_child(enum refusal what)
{
    struct err e = ERR_INIT;
    struct source *s;
    struct reader *r;
    struct reader_stats st;
    uint64_t end, size = 3 * MIB + 777;
    int fd = open(in_dir("refused"), O_RDONLY | O_CLOEXEC);
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = {4, code};
    struct rlimit lim = {256 * KIB, 256 * KIB};
    if (what == NO_URING &&
        (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog)))
        return 2;
    if (what == NO_MEMLOCK && setrlimit(RLIMIT_MEMLOCK, &lim))
        return 3;
    if (what != NO_URING && geteuid() == 0 && (setgid(65534) || setuid(65534)))
        return 4;
    if (source_from_fd(&s, fd, "refused", "/x", &e) < 0)
        return 5;
    struct reader_opts o = {.ring = 2 * MIB, .window = 300 * KIB, .block = 64 * KIB};
    if (reader_new(&r, s, &o, &e) < 0 || consume(r, 0, size, o.window, 0, 5, NULL, &end, &e) < 0 || end != size)
        return 6;
    reader_stats(r, &st);
    reader_free(r);
    fprintf(stderr, "uring %d direct %d fixed %d: %s\n", st.uring, st.direct, st.fixed_buffers, st.fallback);
    if ((fcntl(fd, F_GETFL) & O_DIRECT) != 0)
        return 7; /* the descriptor is given back as it was */
    source_free(s);
    switch (what) {
    case NO_URING:
        return !st.uring && !st.fixed_buffers && strstr(st.fallback, "io_uring") ? 0 : 20;
    case NO_MEMLOCK:
        return st.uring && !st.fixed_buffers && strstr(st.fallback, "RLIMIT_MEMLOCK") ? 0 : 21;
    case NO_REOPEN:
        return st.direct ? 0 : 22;
    }
    return 1;
}

static void refused(enum refusal what)
{
    struct source *s = make_file("refused", 3 * MIB + 777, false);
    source_free(s);
    pid_t pid = fork();
    if (pid == 0)
        _exit(refused_child(what));
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static bool have(bool direct)
{
    struct err e = ERR_INIT;
    struct source *s = make_file("have", 2 * MIB, false);
    struct reader *r;
    struct view v;
    struct reader_stats st;
    struct reader_opts o = {.ring = MIB, .window = 4096};
    assert_ok(reader_new(&r, s, &o, &e), &e);
    assert_ok(reader_peek(r, 0, 1, &v, &e), &e);
    reader_stats(r, &st);
    reader_free(r);
    source_free(s);
    return direct ? st.direct : st.uring;
}

static void io_uring_may_be_refused(void **state)
{
    (void)state;
    refused(NO_URING);
}

static void locked_memory_may_be_refused(void **state)
{
    (void)state;
    if (!have(false)) {
        print_message("SKIP: io_uring is refused here anyway\n");
        skip();
    }
    refused(NO_MEMLOCK);
}

static void descriptors_that_cannot_be_opened_again(void **state)
{
    (void)state;
    if (geteuid() != 0 || !have(true)) {
        print_message("SKIP: needs root, and O_DIRECT on the file system of /tmp\n");
        skip();
    }
    refused(NO_REOPEN);
}

static void setup_flags_fall_back(void **state)
{
    (void)state;
    for (unsigned n = 0; n < 4; n++) {
        struct reader_fault rf = {.lower_flags = n};
        struct err e = ERR_INIT;
        struct source *s = make_file("flags", 3 * MIB, false);
        struct reader_opts o = {.ring = MIB, .window = 100 * KIB, .block = 64 * KIB};
        struct reader *r;
        struct reader_stats st;
        uint64_t end;
        assert_ok(reader_new_faulty(&r, s, &o, &rf, &e), &e);
        assert_ok(consume(r, 0, 3 * MIB, o.window, 0, 5, NULL, &end, &e), &e);
        reader_stats(r, &st);
        assert_true(n < 3 || !st.uring);
        reader_free(r);
        source_free(s);
    }
}

/* ---- devices ---- */

static void loop_devices(void **state)
{
    (void)state;
    need_loop();
    static const char *const options[] = {"", "--sector-size 4096", "--offset 1024", "--direct-io=on"};
    struct err e = ERR_INIT;
    for (size_t i = 0; i < 8; i++) {
        char dev[64];
        struct source *s = make_file("disk", 9 * MIB + (i % 4 == 1 ? 0 : 512 * 3), false);
        source_free(s);
        if (!shell_line(dev, sizeof dev, "losetup -f --show %s %s", options[i % 4], in_dir("disk")))
            fail_msg("losetup %s failed", options[i % 4]);
        if (i % 4 == 2) { /* positions in the device are 1024 less than in the data */
            uint8_t *b = malloc(9 * MIB + 512);
            assert_non_null(b);
            CLEANUP_CLOSE int fd = open(dev, O_WRONLY | O_CLOEXEC);
            fill(b, 9 * MIB + 512, 0);
            assert_int_equal(pwrite(fd, b, 9 * MIB + 512, 0), 9 * MIB + 512);
            free(b);
        }
        assert_ok(source_open(&s, dev, &e), &e);
        struct reader_opts o = {
            .start = i & 1 ? 12345 : 0, .ring = 4 * MIB, .window = MIB + 1, .block = 256 * KIB, .no_uring = i >= 4};
        struct reader *r;
        struct reader_stats st;
        uint64_t end, size = source_info(s)->size;
        assert_ok(reader_new(&r, s, &o, &e), &e);
        assert_ok(consume(r, o.start, size, o.window, 0, 5, NULL, &end, &e), &e);
        reader_stats(r, &st);
        assert_true(st.direct);
        reader_free(r);
        source_free(s);
        /* Nothing holds the device any more: it is detached at once, and not when its last user lets go. */
        loop_drop(dev);
        char sys[96];
        snprintf(sys, sizeof sys, "/sys/block/%s/loop/backing_file", dev + strlen("/dev/"));
        assert_int_equal(access(sys, F_OK), -1);
    }
}

/* A loop device whose file was cut off behind its back: real I/O errors from the kernel. */
static void real_io_errors(void **state)
{
    (void)state;
    need_loop();
    struct err e = ERR_INIT;
    char dev[64];
    struct source *s = make_file("cut", 4 * MIB, false);
    source_free(s);
    if (!shell_line(dev, sizeof dev, "losetup -f --show --direct-io=on %s", in_dir("cut"))) {
        print_message("SKIP: no loop devices with direct I/O on the file system of /tmp\n");
        skip();
    }
    assert_return_code(truncate(in_dir("cut"), (off_t)(3 * MIB)), errno);
    for (int how = 0; how < 4; how++) {
        struct bad_list l = {.n = 0};
        struct range zero = {3 * MIB, 4 * MIB};
        struct expect x = {&zero, 1};
        struct reader_opts o = {.ring = MIB,
                                .window = 100 * KIB,
                                .block = 256 * KIB,
                                .no_uring = how & 1,
                                .retries = 1,
                                .bad_read = how & 2 ? BAD_READ_MAP : BAD_READ_FAIL,
                                .on_bad = note_bad,
                                .on_bad_arg = &l};
        struct reader *r;
        uint64_t end;
        assert_ok(source_open(&s, dev, &e), &e);
        assert_ok(reader_new(&r, s, &o, &e), &e);
        int rc = consume(r, 0, 4 * MIB, o.window, 0, 5, &x, &end, &e);
        reader_free(r);
        source_free(s);
        if (how & 2) {
            assert_ok(rc, &e);
            assert_int_equal(l.n, 1);
            assert_true(l.r[0].start == 3 * MIB && l.r[0].end == 4 * MIB);
        } else {
            assert_int_equal(rc, -EIO);
            assert_int_equal(e.cls, ERR_SOURCE);
            assert_non_null(strstr(e.msg, "bytes 3145728 to 3146239"));
        }
    }
    loop_drop(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_sizes),
        cmocka_unit_test(random_shapes),
        cmocka_unit_test(sparse_shapes),
        cmocka_unit_test(huge_sparse_files),
        cmocka_unit_test(many_small_extents),
        cmocka_unit_test(shrinking_sources),
        cmocka_unit_test(growing_sources),
        cmocka_unit_test(soft_faults_are_mended),
        cmocka_unit_test(bad_sectors_fail_by_default),
        cmocka_unit_test(bad_sectors_can_be_mapped),
        cmocka_unit_test(vanished_devices_are_not_mapped),
        cmocka_unit_test(cancel_works_while_a_read_hangs),
        cmocka_unit_test(limits_are_kept),
        cmocka_unit_test(callers_mistakes_are_told),
        cmocka_unit_test(release_may_overtake_the_reader),
        cmocka_unit_test(io_uring_may_be_refused),
        cmocka_unit_test(locked_memory_may_be_refused),
        cmocka_unit_test(descriptors_that_cannot_be_opened_again),
        cmocka_unit_test(setup_flags_fall_back),
        cmocka_unit_test(loop_devices),
        cmocka_unit_test(real_io_errors),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
