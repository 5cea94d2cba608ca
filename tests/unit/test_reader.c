/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_reader.c - every byte of sources of all shapes, in order, within the ring. */
#include "tests/unit/reader.h"

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
        cmocka_unit_test(limits_are_kept),
        cmocka_unit_test(callers_mistakes_are_told),
        cmocka_unit_test(release_may_overtake_the_reader),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
