/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_reader_faults.c - faults of reads, devices that hang or vanish, and what the system refuses. */
#include "tests/unit/reader.h"

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
        assert_non_null(strstr(e.msg, "was removed during the read"));
        assert_int_equal(l.n, 0);
        reader_free(r);
        source_free(s);
    }
}

/* A COW snapshot that overflows: from `after` on, or from the first read of a single sector on (the search in a bad
 * range), every read fails. */
struct overflow {
    pthread_mutex_t mu;
    uint64_t after;
    struct range bad;
    bool when_searched, gone;
    unsigned refused;
};

static int64_t overflow(void *arg, uint64_t pos, void *buf, size_t len, int64_t res)
{
    struct overflow *o = arg;
    pthread_mutex_lock(&o->mu);
    o->gone |= o->when_searched ? len <= 4096 && pos + len > o->bad.start : pos >= o->after;
    if (o->gone || (o->bad.start < pos + len && o->bad.end > pos)) {
        memset(buf, 0xee, len);
        o->refused += o->gone;
        res = -EIO;
    }
    pthread_mutex_unlock(&o->mu);
    return res;
}

static void overflowed_snapshots_are_not_mapped(void **state)
{
    (void)state;
    for (int how = 0; how < 16; how++) {
        const bool searched = how & 4, map = !(how & 8);
        struct overflow f = {.mu = PTHREAD_MUTEX_INITIALIZER,
                             .after = 5 * MIB,
                             .bad = {searched ? 3 * MIB : 0, searched ? 3 * MIB + 512 : 0},
                             .when_searched = searched};
        struct reader_fault rf = {.on_result = overflow, .arg = &f};
        struct err e = ERR_INIT;
        struct bad_list l = {.n = 0};
        struct source *s = make_file("overflow", 16 * MIB, false);
        struct reader_opts o = {.ring = 2 * MIB,
                                .window = 100 * KIB,
                                .block = 256 * KIB,
                                .no_uring = how & 1,
                                .no_direct = how & 2,
                                .bad_read = map ? BAD_READ_MAP : BAD_READ_FAIL,
                                .retries = 1,
                                .on_bad = note_bad,
                                .on_bad_arg = &l};
        struct reader *r;
        uint64_t end;
        assert_ok(reader_new_faulty(&r, s, &o, &rf, &e), &e);
        assert_true(consume(r, 0, 16 * MIB, o.window, 0, 5, NULL, &end, &e) < 0);
        assert_int_equal(e.cls, ERR_SOURCE);
        if (map || !searched) /* else the sector itself is the error */
            assert_non_null(strstr(e.msg, "cannot be read any more"));
        assert_int_equal(l.n, 0);
        /* It gives up: within the block in which it began, not at the end of the source. */
        assert_true(f.gone);
        assert_true(f.refused < (searched ? 4 * 256 * KIB / 512 : 40));
        assert_true(end <= (searched ? 3 * MIB : 5 * MIB));
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
        /* The reader holds the device no more: it is detached, as soon as those that probe each new one let go. */
        loop_drop(dev);
        char sys[96];
        snprintf(sys, sizeof sys, "/sys/block/%s/loop/backing_file", dev + strlen("/dev/"));
        for (int k = 0; k < 250 && access(sys, F_OK) == 0; k++)
            usleep(20000);
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
        cmocka_unit_test(soft_faults_are_mended),
        cmocka_unit_test(bad_sectors_fail_by_default),
        cmocka_unit_test(bad_sectors_can_be_mapped),
        cmocka_unit_test(vanished_devices_are_not_mapped),
        cmocka_unit_test(overflowed_snapshots_are_not_mapped),
        cmocka_unit_test(cancel_works_while_a_read_hangs),
        cmocka_unit_test(io_uring_may_be_refused),
        cmocka_unit_test(locked_memory_may_be_refused),
        cmocka_unit_test(descriptors_that_cannot_be_opened_again),
        cmocka_unit_test(setup_flags_fall_back),
        cmocka_unit_test(loop_devices),
        cmocka_unit_test(real_io_errors),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
