/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/loop.h"

#include "io/reader.h"
#include "io/target-impl.h"
#include "io/target.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define KIB ((size_t)1024)
#define MIB ((uint64_t)1 << 20)

static char dir[64];

static const char *in_dir(const char *name)
{
    static char path[4][256];
    static unsigned turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/snapferry-target-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return loop_clean(dir);
}

static void make_file(const char *path, uint64_t size, uint8_t byte)
{
    CLEANUP_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    assert_true(fd >= 0);
    CLEANUP_FREE uint8_t *buf = malloc(size + 1);
    assert_non_null(buf);
    memset(buf, byte, size);
    assert_int_equal(pwrite(fd, buf, size, 0), (ssize_t)size);
}

static void fill(uint8_t *buf, size_t len, uint64_t pos)
{
    for (size_t i = 0; i < len; i++) {
        uint64_t s = (pos + i) / 64;
        buf[i] = (uint8_t)((splitmix64(&s) >> ((pos + i) % 8 * 8)) | 1);
    }
}

/* ---- opening ---- */

static enum err_class class_of_open(const char *path, const struct target_opts *o)
{
    struct target *t;
    struct err e = ERR_INIT;
    if (target_open(&t, path, o, &e) == 0) {
        target_free(t);
        return ERR_NONE;
    }
    assert_true(e.msg[0] != '\0');
    return e.cls;
}

static void opens_files(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct target *t;
    struct stat st;
    struct target_opts o = {.size = 1234567};
    assert_ok(target_open(&t, in_dir("new"), &o, &e), &e);
    assert_true(t->is_new);
    assert_false(target_is_block(t));
    assert_ok(target_finish(t, &e), &e);
    target_free(t);
    assert_return_code(stat(in_dir("new"), &st), errno);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(st.st_size, 1234567);
    assert_int_equal(st.st_blocks, 0);

    make_file(in_dir("old"), 5000, 7);
    assert_int_equal(class_of_open(in_dir("old"), &o), ERR_TARGET);
    assert_return_code(stat(in_dir("old"), &st), errno);
    assert_int_equal(st.st_size, 5000); /* refused means untouched */
    uint8_t b[5000];

    struct target_opts keep = {.size = 6000, .keep_contents = true};
    assert_ok(target_open(&t, in_dir("old"), &keep, &e), &e);
    assert_false(t->is_new);
    assert_int_equal(t->size, 5000);
    assert_int_equal(target_read(t, b, 5000, 0, &e), 5000);
    assert_true(b[0] == 7 && b[4999] == 7);
    assert_int_equal(target_read(t, b, 5000, 4000, &e), 1000);
    assert_int_equal(target_read(t, b, 10, 5000, &e), 0);
    assert_ok(target_finish(t, &e), &e);
    target_free(t);
    assert_return_code(stat(in_dir("old"), &st), errno);
    assert_int_equal(st.st_size, 6000);

    struct target_opts resume = {.size = 4000, .resume = true};
    assert_ok(target_open(&t, in_dir("old"), &resume, &e), &e);
    assert_false(t->is_new);
    assert_ok(target_finish(t, &e), &e);
    target_free(t);
    assert_return_code(stat(in_dir("old"), &st), errno);
    assert_int_equal(st.st_size, 4000);

    struct target_opts force = {.size = 100, .force = true};
    assert_ok(target_open(&t, in_dir("old"), &force, &e), &e);
    assert_true(t->is_new);
    assert_int_equal(target_read(t, b, 100, 0, &e), 100);
    assert_true(zeros_only(b, 100));
    target_free(t);

    make_file(in_dir("empty"), 0, 0);
    assert_ok(target_open(&t, in_dir("empty"), &o, &e), &e);
    assert_true(t->is_new);
    target_free(t);

    struct target_opts none = {.size = 0};
    assert_ok(target_open(&t, in_dir("zero"), &none, &e), &e);
    assert_ok(target_finish(t, &e), &e);
    target_free(t);
    assert_return_code(stat(in_dir("zero"), &st), errno);
    assert_int_equal(st.st_size, 0);
}

static void refuses_what_is_no_target(void **state)
{
    (void)state;
    struct target_opts o = {.size = 100};
    assert_int_equal(class_of_open(dir, &o), ERR_TARGET);
    assert_int_equal(class_of_open(in_dir("no/such/file"), &o), ERR_NOT_FOUND);
    assert_int_equal(class_of_open("/dev/null", &o), ERR_TARGET);
    assert_int_equal(class_of_open("/proc/snapferry", &o), ERR_NOT_FOUND);
    assert_return_code(mkfifo(in_dir("fifo"), 0600), errno);
    alarm(10);
    assert_int_equal(class_of_open(in_dir("fifo"), &o), ERR_TARGET);
    alarm(0);
    assert_return_code(symlink("nowhere", in_dir("dangling")), errno);
    assert_int_equal(class_of_open(in_dir("dangling"), &o), ERR_NOT_FOUND);
    /* More than any file system holds: refused at once, and no empty file is left. */
    struct target_opts huge = {.size = UINT64_MAX};
    assert_int_equal(class_of_open(in_dir("huge"), &huge), ERR_TARGET);
    assert_int_equal(access(in_dir("huge"), F_OK), -1);
}

/* ---- writing ---- */

struct job {
    struct target *t;
    unsigned part, parts;
    uint64_t size;
    struct err e;
    int rc;
};

/* Writes every parts-th piece, backwards, some through skip; every fifth piece is left to be zero. */
static void *write_part(void *arg)
{
    struct job *j = arg;
    enum { PIECE = 77777 };
    struct writer *w;
    j->rc = writer_new(&w, j->t, 3, 100000, &j->e);
    if (j->rc < 0)
        return NULL;
    uint64_t pieces = (j->size + PIECE - 1) / PIECE;
    for (uint64_t i = pieces; i-- > 0 && j->rc == 0;) {
        uint64_t pos = i * PIECE;
        size_t len = j->size - pos < PIECE ? (size_t)(j->size - pos) : PIECE;
        if (i % j->parts != j->part)
            continue;
        if (i % 5 == 0) {
            j->rc = target_zero(j->t, pos, len, NULL, &j->e);
            continue;
        }
        uint8_t *buf;
        size_t skip = i % 1000;
        uint64_t start = i % 3 ? pos - skip : 0; /* two of three lie in memory as on the device */
        j->rc = writer_buffer(w, start, &buf, &j->e);
        if (j->rc < 0)
            break;
        if (i % 7 == 0) {
            writer_return(w, buf);
            j->rc = writer_buffer(w, start, &buf, &j->e);
        }
        fill(buf + skip, len, pos);
        j->rc = writer_submit(w, buf, skip, len, pos, &j->e);
    }
    if (j->rc == 0)
        j->rc = writer_flush(w, &j->e);
    writer_free(w);
    return NULL;
}

static void write_all(struct target *t, uint64_t size)
{
    enum { PIECE = 77777 };
    struct job job[3];
    pthread_t th[3];
    for (unsigned i = 0; i < 3; i++) {
        job[i] = (struct job){.t = t, .part = i, .parts = 3, .size = size};
        assert_int_equal(pthread_create(&th[i], NULL, write_part, &job[i]), 0);
    }
    for (unsigned i = 0; i < 3; i++)
        pthread_join(th[i], NULL);
    for (unsigned i = 0; i < 3; i++)
        assert_ok(job[i].rc, &job[i].e);
    struct err e = ERR_INIT;
    assert_ok(target_finish(t, &e), &e);
    CLEANUP_FREE uint8_t *got = malloc(PIECE), *want = malloc(PIECE);
    assert_true(got && want);
    for (uint64_t pos = 0; pos < size; pos += PIECE) {
        size_t len = size - pos < PIECE ? (size_t)(size - pos) : PIECE;
        assert_int_equal(target_read(t, got, len, pos, &e), len);
        memset(want, 0, len);
        if (pos / PIECE % 5 != 0)
            fill(want, len, pos);
        if (memcmp(got, want, len) != 0)
            fail_msg("the piece at %" PRIu64 " differs", pos);
    }
}

static void writes_files(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    for (int i = 0; i < 4; i++) {
        struct target *t;
        struct target_opts o = {.size = 12 * MIB + 345, .no_uring = i & 1, .keep_contents = i & 2};
        unlink(in_dir("out"));
        if (i & 2)
            make_file(in_dir("out"), 13 * MIB, 0xaa);
        assert_ok(target_open(&t, in_dir("out"), &o, &e), &e);
        assert_int_equal(t->is_new, !(i & 2));
        write_all(t, o.size);
        struct target_stats st;
        target_stats(t, &st);
        assert_true(st.written > 9 * MIB && st.written < 11 * MIB);
        assert_true(i & 2 ? st.punched > 2 * MIB : st.punched == 0);
        assert_int_equal(st.zero_written, 0);
        target_free(t);
        struct stat fs;
        assert_return_code(stat(in_dir("out"), &fs), errno);
        assert_int_equal(fs.st_size, o.size);
        assert_true((uint64_t)fs.st_blocks * 512 < 11 * MIB);
    }
}

static void writes_devices(void **state)
{
    (void)state;
    need_loop();
    struct err e = ERR_INIT;
    static const unsigned ways[] = {WAY_PUNCH | WAY_ZEROOUT, WAY_ZEROOUT, WAY_DISCARD | WAY_ZEROOUT, WAY_DISCARD, 0};
    for (unsigned i = 0; i < 10; i++) {
        char dev[64];
        make_file(in_dir("disk"), 13 * MIB, 0xaa);
        loop_make(dev, sizeof dev, in_dir("disk"), 13 * MIB, i & 1 ? "--sector-size 4096" : "");
        struct target *t;
        struct target_opts o = {.size = 12 * MIB + 512 * (i % 3), .no_uring = i & 2};
        assert_ok(target_open(&t, dev, &o, &e), &e);
        assert_true(target_is_block(t) && !t->is_new);
        assert_int_equal(t->size, 13 * MIB);
        t->ways = ways[i % 5];
        t->discard = 4096;
        write_all(t, o.size);
        uint8_t b[512];
        assert_int_equal(target_read(t, b, 512, 13 * MIB - 512, &e), 512);
        assert_true(b[0] == 0xaa && b[511] == 0xaa); /* behind the image nothing is touched */
        struct target_stats st;
        target_stats(t, &st);
        bool zeroout = ways[i % 5] == WAY_ZEROOUT;
        bool punch = ways[i % 5] & (WAY_PUNCH | WAY_DISCARD);
        assert_true(punch ? st.punched > 2 * MIB : st.punched == 0);
        assert_true(zeroout ? st.zeroed_out > 2 * MIB : st.zeroed_out == 0);
        assert_true(punch || zeroout ? st.zero_written < MIB : st.zero_written > 2 * MIB);
        /* Not a byte beyond the end. */
        assert_true(target_zero(t, 13 * MIB - 100, 200, NULL, &e) < 0);
        struct writer *w;
        uint8_t *buf;
        assert_ok(writer_new(&w, t, 1, 4096, &e), &e);
        assert_ok(writer_buffer(w, 0, &buf, &e), &e);
        assert_true(writer_submit(w, buf, 0, 4096, 13 * MIB - 100, &e) < 0);
        assert_int_equal(e.cls, ERR_TARGET);
        writer_free(w);
        target_free(t);
        loop_drop(dev);
    }
}

/* All of it, in steps of which no unit that could be discarded is lost. */
static void zeroes_in_steps(void **state)
{
    (void)state;
    static const uint32_t units[] = {0, 4096, 192 << 10, 64 << 20, 96 << 20, 1 << 30};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        const struct target t = {.is_block = true, .discard = units[i]};
        const uint64_t unit = units[i] ? units[i] : 4 * MIB, begin = 5 * MIB + 4711, end = begin + (UINT64_C(9) << 30);
        unsigned steps = 0;
        for (uint64_t pos = begin; pos < end; steps++) {
            const uint64_t step = target_zero_step(&t, pos, end - pos);
            assert_true(step > 0 && step <= end - pos && (step <= 64 * MIB || step <= 2 * unit));
            pos += step;
            assert_true(pos == end || pos % unit == 0);
        }
        assert_true(steps > 1);
        assert_int_equal(target_zero_step(&t, 7, 4096), 4096);
        for (uint64_t pos = begin; pos < end;) { /* what is compared first */
            const uint64_t step = target_compare_step(&t, pos, end - pos);
            assert_true(step > 0 && step <= end - pos && (step <= MIB || step <= 2 * unit));
            pos += step;
            assert_true(pos == end || pos % unit == 0 || (!units[i] && step == MIB)); /* nothing is discarded */
        }
    }
    const struct target new = {.is_new = true}; /* there is nothing to do */
    assert_int_equal(target_zero_step(&new, 0, UINT64_C(1) << 50), UINT64_C(1) << 50);
}

/* From how many bytes on zeros among data are not written: whole units of a thin volume, nothing on a plain disk. */
static void zeros_among_data(void **state)
{
    (void)state;
    static const uint32_t units[] = {512, 64 << 10, 192 << 10, 1 << 30};
    static const uint64_t want[] = {64 << 10, 64 << 10, 192 << 10, 1 << 30};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        const struct target thin = {.is_block = true, .unmaps = true, .discard = units[i]};
        assert_int_equal(target_zero_unit(&thin), want[i]);
    }
    const struct target disk = {.is_block = true}, unmaps = {.is_block = true, .unmaps = true}, file = {.is_new = true};
    assert_int_equal(target_zero_unit(&disk), 0);
    assert_int_equal(target_zero_unit(&unmaps), MIB);
    assert_int_equal(target_zero_unit(&file), 64 << 10);
}

static void zeroes_any_range(void **state)
{
    (void)state;
    need_loop();
    static const unsigned ways[] = {WAY_PUNCH, WAY_ZEROOUT, WAY_DISCARD, WAY_DISCARD | WAY_ZEROOUT, 0};
    struct err e = ERR_INIT;
    uint64_t seed = 3;
    char dev[64];
    CLEANUP_FREE uint8_t *got = malloc(MIB);
    assert_non_null(got);
    make_file(in_dir("ranges"), MIB, 0x55);
    loop_make(dev, sizeof dev, in_dir("ranges"), MIB, "");
    for (unsigned i = 0; i < 100; i++) {
        struct target *t;
        struct writer *w;
        uint8_t *buf;
        enum target_zero_how how;
        struct target_opts o = {.size = MIB};
        assert_ok(target_open(&t, dev, &o, &e), &e);
        t->ways = ways[i % 5];
        t->discard = 4096u << i % 6;
        assert_ok(writer_new(&w, t, 1, MIB, &e), &e);
        assert_ok(writer_buffer(w, 0, &buf, &e), &e);
        memset(buf, 0x55, MIB);
        assert_ok(writer_submit(w, buf, 0, MIB, 0, &e), &e);
        assert_ok(writer_flush(w, &e), &e);
        writer_free(w);
        uint64_t pos = splitmix64(&seed) % MIB, len = splitmix64(&seed) % (MIB - pos + 1);
        if (i % 4 == 0) {
            pos &= ~(uint64_t)511;
            len &= ~(uint64_t)511;
        }
        assert_ok(target_zero(t, pos, len, &how, &e), &e);
        assert_int_equal(target_read(t, got, MIB, 0, &e), MIB);
        for (uint64_t k = 0; k < MIB; k++)
            if (got[k] != (k >= pos && k < pos + len ? 0 : 0x55))
                fail_msg("zeroing [%" PRIu64 ", +%" PRIu64 ") by way %u: byte %" PRIu64 " is %02x", pos, len,
                         ways[i % 5], k, got[k]);
        target_free(t);
    }
    loop_drop(dev);
}

static void refuses_busy_devices(void **state)
{
    (void)state;
    need_loop();
    need_tool("mkfs.ext4");
    char dev[64];
    struct target *t;
    struct err e = ERR_INIT;
    loop_make(dev, sizeof dev, in_dir("busy"), 32 * MIB, "");
    assert_true(shell("mkfs.ext4 -q -F %s", dev));
    assert_return_code(mkdir(in_dir("mnt"), 0700), errno);
    assert_true(shell("mount %s %s", dev, in_dir("mnt")));
    struct target_opts o = {.size = 32 * MIB};
    int rc = target_open(&t, dev, &o, &e);
    struct target_opts force = {.size = 32 * MIB, .force = true};
    struct err e2 = ERR_INIT;
    int rc2 = target_open(&t, dev, &force, &e2);
    if (rc2 == 0)
        target_free(t);
    assert_true(shell("umount %s", in_dir("mnt")));
    assert_int_equal(rc, -EBUSY);
    assert_int_equal(e.cls, ERR_TARGET);
    assert_non_null(strstr(e.msg, in_dir("mnt")));
    assert_true(e.hint[0] != '\0');
    /* Where the kernel itself forbids it (CONFIG_BLK_DEV_WRITE_MOUNTED=n) force cannot help. */
    assert_true(rc2 == 0 || e2.sys == EBUSY || e2.sys == EPERM);

    CLEANUP_CLOSE int other = open(dev, O_RDONLY | O_EXCL | O_CLOEXEC);
    assert_true(other >= 0);
    assert_int_equal(class_of_open(dev, &o), ERR_TARGET);
    close(take_fd(&other));

    struct target_opts big = {.size = 32 * MIB + 1};
    assert_int_equal(class_of_open(dev, &big), ERR_TARGET);
    assert_int_equal(class_of_open(dev, &o), ERR_NONE);
    assert_true(shell("blockdev --setro %s", dev));
    enum err_class read_only = class_of_open(dev, &o);
    assert_true(shell("blockdev --setrw %s", dev)); /* it outlives the detaching */
    assert_int_equal(read_only, ERR_TARGET);
    loop_drop(dev);
}

/* ---- faults ---- */

static void full_file_systems_are_named(void **state)
{
    (void)state;
    need_loop(); /* root, to mount */
    struct err e = ERR_INIT;
    assert_return_code(mkdir(in_dir("small"), 0700), errno);
    assert_true(shell("mount -t tmpfs -o size=2m none %s", in_dir("small")));
    int rc[2] = {0, 0};
    enum err_class cls[2] = {ERR_NONE, ERR_NONE};
    for (int i = 0; i < 2; i++) {
        struct target *t;
        struct writer *w;
        struct target_opts o = {.size = 100 * MIB, .no_uring = i};
        unlink(in_dir("small/file"));
        assert_ok(target_open(&t, in_dir("small/file"), &o, &e), &e);
        assert_ok(writer_new(&w, t, 4, 300000, &e), &e);
        for (uint64_t pos = 0; pos < 20 && rc[i] == 0; pos++) {
            uint8_t *buf;
            rc[i] = writer_buffer(w, 0, &buf, &e);
            if (rc[i] == 0) {
                memset(buf, 1, 300000);
                rc[i] = writer_submit(w, buf, 0, 300000, pos * 300000, &e);
            }
        }
        if (rc[i] == 0)
            rc[i] = writer_flush(w, &e);
        cls[i] = e.cls;
        writer_free(w);
        target_free(t);
    }
    assert_true(shell("umount %s", in_dir("small")));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rc[i], -ENOSPC);
        assert_int_equal(cls[i], ERR_NO_SPACE);
    }
}

/* A limit on the file size cuts a write short, and refuses the rest: the error must come out, at its position. */
static void short_writes_are_continued(void **state)
{
    (void)state;
    for (int no_uring = 0; no_uring < 2; no_uring++) {
        unlink(in_dir("limited"));
        pid_t pid = fork();
        if (pid == 0) {
            struct err e = ERR_INIT;
            struct target *t;
            struct writer *w;
            uint8_t *buf;
            struct target_opts o = {.size = 90000, .no_uring = no_uring};
            struct rlimit lim = {100000, 100000};
            signal(SIGXFSZ, SIG_IGN);
            if (target_open(&t, in_dir("limited"), &o, &e) < 0 || setrlimit(RLIMIT_FSIZE, &lim) < 0 ||
                writer_new(&w, t, 2, 65536, &e) < 0 || writer_buffer(w, 0, &buf, &e) < 0)
                _exit(10);
            memset(buf, 0x77, 65536);
            int rc = writer_submit(w, buf, 0, 65536, 65536, &e);
            if (rc == 0)
                rc = writer_flush(w, &e);
            if (rc != -EFBIG || e.cls != ERR_TARGET || !strstr(e.msg, "bytes 100000 to 131071"))
                _exit(11);
            /* It stays failed. */
            _exit(writer_buffer(w, 0, &buf, &e) == -EFBIG && writer_flush(w, &e) == -EFBIG ? 0 : 12);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        struct stat st;
        assert_return_code(stat(in_dir("limited"), &st), errno);
        assert_int_equal(st.st_size, 100000); /* the first part of it was written */
    }
}

/* A device whose medium fails only when the page cache is written back. */
static void late_write_errors_are_reported(void **state)
{
    (void)state;
    need_loop();
    struct err e = ERR_INIT;
    assert_return_code(mkdir(in_dir("tiny"), 0700), errno);
    assert_true(shell("mount -t tmpfs -o size=1m none %s", in_dir("tiny")));
    char dev[64];
    loop_make(dev, sizeof dev, in_dir("tiny/disk"), 200 * MIB, "");
    struct target *t;
    struct writer *w;
    struct target_opts o = {.size = 200 * MIB};
    assert_ok(target_open(&t, dev, &o, &e), &e);
    assert_ok(writer_new(&w, t, 2, MIB, &e), &e);
    int rc = 0;
    for (uint64_t pos = 0; pos < 150 * MIB && rc == 0; pos += MIB) {
        uint8_t *buf;
        rc = writer_buffer(w, 0, &buf, &e);
        if (rc == 0) {
            memset(buf, 1, MIB);
            rc = writer_submit(w, buf, 0, MIB, pos, &e);
        }
    }
    if (rc == 0)
        rc = writer_flush(w, &e);
    writer_free(w);
    int fin = rc < 0 ? rc : target_finish(t, &e);
    target_free(t);
    loop_drop(dev);
    bool unmounted = shell("umount %s || { sleep 1; umount %s; }", in_dir("tiny"), in_dir("tiny"));
    assert_true(unmounted);
    assert_true(fin < 0);
    assert_true(e.cls == ERR_TARGET || e.cls == ERR_NO_SPACE);
    assert_non_null(strstr(e.msg, dev));
}

static int write_mib(struct writer *w, uint64_t from, uint64_t to, struct err *e)
{
    int rc = 0;
    for (uint64_t pos = from; pos < to && rc == 0; pos += MIB) {
        uint8_t *buf;
        rc = writer_buffer(w, 0, &buf, e);
        if (rc == 0) {
            memset(buf, 1, MIB);
            rc = writer_submit(w, buf, 0, MIB, pos, e);
        }
    }
    return rc < 0 ? rc : writer_flush(w, e);
}

/* The kernel tells a lost write once to each who waits for it. Whoever waits on the way must pass it on to the end, and
 * to what is recorded on the way: a position whose data is lost must not be. */
static void early_write_errors_are_kept(void **state)
{
    (void)state;
    need_loop();
    struct err e = ERR_INIT;
    assert_return_code(mkdir(in_dir("early"), 0700), errno);
    assert_true(shell("mount -t tmpfs -o size=1m none %s", in_dir("early")));
    char dev[64];
    loop_make(dev, sizeof dev, in_dir("early/disk"), 200 * MIB, "");
    struct target *t;
    struct writer *w;
    struct target_opts o = {.size = 200 * MIB};
    assert_ok(target_open(&t, dev, &o, &e), &e);
    assert_ok(writer_new(&w, t, 2, MIB, &e), &e);
    int rc = write_mib(w, 0, 3 * MIB, &e);
    int other = open(dev, O_RDONLY | O_CLOEXEC);
    fsync(other); /* the loss has happened when this returns; that it is told here too does not matter */
    close(other);
    bool grown = shell("mount -o remount,size=300m %s", in_dir("early"));
    if (rc == 0)
        rc = write_mib(w, 10 * MIB, 100 * MIB, &e);
    writer_free(w);
    int sync = rc < 0 ? rc : target_sync(t, &e), again = rc < 0 ? rc : target_sync(t, &e);
    int fin = rc < 0 ? rc : target_finish(t, &e);
    target_free(t);
    loop_drop(dev);
    bool unmounted = shell("umount %s || { sleep 1; umount %s; }", in_dir("early"), in_dir("early"));
    assert_true(grown && unmounted);
    assert_true(sync < 0 && again < 0);
    assert_true(fin < 0);
    assert_true(e.cls == ERR_TARGET || e.cls == ERR_NO_SPACE);
}

static void writers_mind_their_buffers(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct target *t;
    struct writer *w;
    uint8_t *a, *b, *c;
    struct target_opts o = {.size = MIB};
    assert_ok(target_open(&t, in_dir("buffers"), &o, &e), &e);
    assert_true(writer_new(&w, t, 0, 4096, &e) < 0);
    assert_true(writer_new(&w, t, 1, 0, &e) < 0);
    assert_ok(writer_new(&w, t, 2, 1000, &e), &e);
    assert_ok(writer_buffer(w, 0, &a, &e), &e);
    assert_ok(writer_buffer(w, 0, &b, &e), &e);
    assert_ptr_not_equal(a, b);
    assert_int_equal(writer_buffer(w, 0, &c, &e), -EBUSY); /* instead of waiting for itself */
    writer_return(w, b);
    assert_ok(writer_buffer(w, 0, &c, &e), &e);
    assert_ptr_equal(c, b);
    assert_true(writer_submit(w, a, 1, 4096, 0, &e) < 0); /* a buffer is rounded up to 4096 */
    assert_ok(writer_submit(w, c, 0, 0, 0, &e), &e);      /* nothing is fine */
    assert_ok(writer_flush(w, &e), &e);
    assert_ok(writer_buffer(w, 0, &a, &e), &e);
    assert_ok(writer_buffer(w, 0, &b, &e), &e);
    writer_free(w);
    target_free(t);
    writer_free(NULL);
    target_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_files),
        cmocka_unit_test(refuses_what_is_no_target),
        cmocka_unit_test(writes_files),
        cmocka_unit_test(writes_devices),
        cmocka_unit_test(zeroes_in_steps),
        cmocka_unit_test(zeros_among_data),
        cmocka_unit_test(zeroes_any_range),
        cmocka_unit_test(refuses_busy_devices),
        cmocka_unit_test(full_file_systems_are_named),
        cmocka_unit_test(short_writes_are_continued),
        cmocka_unit_test(late_write_errors_are_reported),
        cmocka_unit_test(early_write_errors_are_kept),
        cmocka_unit_test(writers_mind_their_buffers),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
