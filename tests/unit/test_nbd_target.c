/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_nbd_target.c - restore targets behind NBD servers that keep to the protocol or do not */
#include "tests/unit/nbd-server.h"

#include "base/time.h"
#include "io/target-nbd.h"
#include "io/target.h"

#define NAME "nbd+unix:///t?socket=/x"
#define SIZE ((uint64_t)4 << 20)

static struct nbd_target *open_target(struct nbd_server *n, const _Atomic bool *stop)
{
    struct err e = ERR_INIT;
    struct nbd_target *t;
    n->size = SIZE;
    n->mem = calloc(1, SIZE);
    assert_non_null(n->mem);
    assert_ok(nbd_target_open(&t, nbd_server_start(n), NAME, SIZE - 1000, stop, &e), &e);
    return t;
}

static void close_target(struct nbd_server *n, struct nbd_target *t)
{
    nbd_target_free(t);
    pthread_join(n->thread, NULL);
    free(n->mem);
}

/* ---- writes of any length, and those that share a block ---- */

struct pending {
    struct nbd_write w;
    pthread_mutex_t mu;
    pthread_cond_t cv;
    bool done;
    int sys;
};

static void on_written(struct nbd_write *w, int sys)
{
    struct pending *p = w->arg;
    pthread_mutex_lock(&p->mu);
    p->done = true;
    p->sys = sys;
    pthread_cond_signal(&p->cv);
    pthread_mutex_unlock(&p->mu);
}

static void begin_write(struct nbd_target *t, struct pending *p, const uint8_t *buf, size_t len, uint64_t pos)
{
    *p = (struct pending){.w = {.buf = buf, .len = len, .pos = pos, .done = on_written, .arg = p},
                          .mu = PTHREAD_MUTEX_INITIALIZER,
                          .cv = PTHREAD_COND_INITIALIZER};
    nbd_target_write(t, &p->w);
}

static int end_write(struct pending *p)
{
    pthread_mutex_lock(&p->mu);
    while (!p->done)
        pthread_cond_wait(&p->cv, &p->mu);
    pthread_mutex_unlock(&p->mu);
    return p->sys;
}

static void any_position(void **state)
{
    (void)state;
    static const uint32_t blocks[] = {1, 512, 4096, 65536};
    uint8_t *want = malloc(SIZE), *have = malloc(SIZE);
    assert_true(want && have);
    for (unsigned how = 0; how < 8; how++) {
        struct nbd_server n = {.min_block = blocks[how / 2], .max_block = 128 << 10, .no_zero = how % 2};
        struct nbd_target *t = open_target(&n, NULL);
        struct err e = ERR_INIT;
        uint64_t seed = 7 + how;
        memset(n.mem, 0x5a, SIZE);
        memset(want, 0x5a, SIZE);
        for (unsigned i = 0; i < 60; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            const uint64_t pos = (seed >> 20) % SIZE;
            uint64_t len = 1 + (seed >> 33) % (i % 3 ? 300000 : 900), written = 0;
            len = len < SIZE - pos ? len : SIZE - pos;
            if (i % 4 == 3) {
                assert_ok(nbd_target_zero(t, pos, len, &written, &e), &e);
                assert_true(how % 2 ? written == len : written <= len && written < 2 * n.min_block);
                memset(want + pos, 0, len);
                continue;
            }
            /* Two halves at once, which may share a block. */
            struct pending a, b;
            fill(want + pos, len, seed);
            begin_write(t, &a, want + pos, len / 2, pos);
            begin_write(t, &b, want + pos + len / 2, len - len / 2, pos + len / 2);
            assert_int_equal(end_write(&a), 0);
            assert_int_equal(end_write(&b), 0);
            const int64_t got = nbd_target_read(t, have, len, pos, &e);
            assert_int_equal(got, len);
            assert_memory_equal(have, want + pos, len);
        }
        assert_ok(nbd_target_flush(t, &e), &e);
        assert_memory_equal(n.mem, want, SIZE);
        assert_int_equal(nbd_target_read(t, have, 100, SIZE - 40, &e), 40);
        assert_int_equal(nbd_target_read(t, have, 100, SIZE, &e), 0);
        assert_int_equal(n.odd, 0);
        assert_int_equal(n.flushes, 1);
        assert_true(how % 2 ? n.zeros == 0 : n.zeros > 0);
        close_target(&n, t);
    }
    free(want);
    free(have);
}

struct lane {
    struct nbd_target *t;
    const uint8_t *want;
    unsigned number;
};

#define LANES 4
#define STRIPE 1000

static void *lane_main(void *arg)
{
    const struct lane *l = arg;
    for (uint64_t pos = l->number * STRIPE; pos + STRIPE <= SIZE; pos += LANES * STRIPE) {
        struct pending p;
        begin_write(l->t, &p, l->want + pos, STRIPE, pos);
        if (end_write(&p) != 0)
            return arg;
    }
    return NULL;
}

/* Each block of 4 KiB is shared by writes of several threads. */
static void shared_blocks(void **state)
{
    (void)state;
    struct nbd_server n = {.min_block = 4096, .max_block = 1 << 20};
    struct nbd_target *t = open_target(&n, NULL);
    uint8_t *want = calloc(1, SIZE);
    struct lane lanes[LANES];
    pthread_t threads[LANES];
    assert_non_null(want);
    fill(want, SIZE / STRIPE * STRIPE, 99);
    for (unsigned i = 0; i < LANES; i++) {
        lanes[i] = (struct lane){t, want, i};
        assert_int_equal(pthread_create(&threads[i], NULL, lane_main, &lanes[i]), 0);
    }
    for (unsigned i = 0; i < LANES; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_memory_equal(n.mem, want, SIZE);
    assert_int_equal(n.odd, 0);
    close_target(&n, t);
    free(want);
}

/* ---- servers that fail ---- */

static void errors(void **state)
{
    (void)state;
    static const uint8_t data[65536] = {1};
    static const struct {
        enum nbd_fault fault;
        uint32_t error;
        int sys;
        enum err_class cls; /* of nbd_target_check(); ERR_NONE: the connection goes on */
        const char *text;
    } cases[] = {
        {NBD_WRITE_ERROR, 28, ENOSPC, ERR_NONE, ""},
        {NBD_WRITE_ERROR, 5, EIO, ERR_NONE, ""},
        {NBD_WRITE_ERROR, 108, ESHUTDOWN, ERR_TARGET, "being shut down"},
        {NBD_WRITE_CLOSE, 0, ESHUTDOWN, ERR_TARGET, "connection is lost"},
        {NBD_WRONG_COOKIE, 0, ESHUTDOWN, ERR_TARGET, "cannot be written any more"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct nbd_server n = {.fault = cases[i].fault, .error = cases[i].error, .at = 100000};
        struct nbd_target *t = open_target(&n, NULL);
        struct pending p;
        struct err e = ERR_INIT;
        begin_write(t, &p, data, sizeof data, 65536);
        assert_int_equal(end_write(&p), cases[i].sys);
        const int rc = nbd_target_check(t, &e);
        assert_int_equal(e.cls, cases[i].cls);
        if (cases[i].cls != ERR_NONE) {
            assert_true(rc < 0 && strstr(e.msg, cases[i].text) && e.sys == ESHUTDOWN);
            assert_non_null(strstr(e.hint, "resumes"));
            assert_true(nbd_target_flush(t, &e) < 0);
        }
        close_target(&n, t);
    }
    /* No flush, no success. */
    struct nbd_server n = {.fault = NBD_FLUSH_ERROR, .error = 28};
    struct nbd_target *t = open_target(&n, NULL);
    struct err e = ERR_INIT;
    assert_true(nbd_target_flush(t, &e) < 0);
    assert_int_equal(e.cls, ERR_NO_SPACE);
    close_target(&n, t);
}

/* One that refuses to zero much at once, or at all. */
static void zeroing_is_limited(void **state)
{
    (void)state;
    static const struct {
        uint64_t at;
        uint32_t error;
        bool written;
    } cases[] = {{1 << 20, 22, false}, {0, 95, true}, {0, 22, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct nbd_server n = {.fault = NBD_ZERO_ERROR,
                               .at = cases[i].at,
                               .error = cases[i].error,
                               .min_block = 512,
                               .max_block = 1 << 20};
        struct nbd_target *t = open_target(&n, NULL);
        struct err e = ERR_INIT;
        uint64_t written;
        memset(n.mem, 1, SIZE);
        assert_ok(nbd_target_zero(t, 100, SIZE - 200, &written, &e), &e);
        assert_true(cases[i].written ? written == SIZE - 200 : written < 1024);
        for (uint64_t k = 0; k < SIZE; k++)
            if (n.mem[k] != (k < 100 || k >= SIZE - 100))
                fail_msg("byte %llu", (unsigned long long)k);
        close_target(&n, t);
    }
}

/* A server that has fallen silent is given up some seconds after a cancel, wherever it is waited for. */
static void a_cancel_ends_waits(void **state)
{
    (void)state;
    static const uint8_t data[4096] = {1};
    _Atomic bool stop = false;
    struct nbd_server n = {.fault = NBD_WRITE_SILENT, .at = 0};
    struct nbd_target *t = open_target(&n, &stop);
    struct pending p;
    struct err e = ERR_INIT;
    begin_write(t, &p, data, sizeof data, 0);
    usleep(100000);
    assert_false(p.done);
    atomic_store(&stop, true);
    assert_int_equal(end_write(&p), ESHUTDOWN);
    assert_true(nbd_target_flush(t, &e) < 0);
    assert_int_equal(e.cls, ERR_INTERRUPTED);
    close_target(&n, t);
    /* While it is negotiated with. */
    struct nbd_server silent = {.fault = NBD_SILENT_HANDSHAKE};
    e = (struct err)ERR_INIT;
    assert_true(nbd_target_open(&t, nbd_server_start(&silent), NAME, 1, &stop, &e) < 0);
    assert_int_equal(e.cls, ERR_INTERRUPTED);
    pthread_join(silent.thread, NULL);
}

/* Without a cancel after a time, which is longer for a flush. */
static void silence_is_an_end(void **state)
{
    (void)state;
    static const uint8_t data[4096] = {1};
    struct nbd_server n = {.fault = NBD_WRITE_SILENT, .at = 0, .size = SIZE, .mem = calloc(1, SIZE)};
    const struct nbd_link_opts o = {.stall_s = 1, .target = true};
    struct nbd_link *l;
    struct nbd_uri u;
    struct err e = ERR_INIT;
    assert_ok(nbd_uri_parse(&u, NAME, &e), &e);
    assert_ok(nbd_link_open(&l, nbd_server_start(&n), &u, &o, &e), &e);
    assert_int_equal(nbd_link_obey(l, NBD_WRITE, data, sizeof data, 0), -ESHUTDOWN);
    assert_int_equal(nbd_link_check(l, &e), -ESHUTDOWN);
    assert_non_null(strstr(e.msg, "has not answered for 1 s"));
    nbd_link_free(l);
    pthread_join(n.thread, NULL);
    free(n.mem);
}

static void what_is_refused(void **state)
{
    (void)state;
    struct nbd_server n = {.size = SIZE};
    struct nbd_target *t;
    struct err e = ERR_INIT;
    assert_true(nbd_target_open(&t, nbd_server_start(&n), NAME, SIZE, NULL, &e) < 0);
    assert_int_equal(e.cls, ERR_PERMISSION);
    pthread_join(n.thread, NULL);
    n.mem = calloc(1, SIZE);
    e = (struct err)ERR_INIT;
    assert_int_equal(nbd_target_open(&t, nbd_server_start(&n), NAME, SIZE + 1, NULL, &e), -ENOSPC);
    assert_int_equal(e.cls, ERR_TARGET);
    pthread_join(n.thread, NULL);
    n.fault = NBD_NO_EXPORT;
    e = (struct err)ERR_INIT;
    assert_true(nbd_target_open(&t, nbd_server_start(&n), NAME, 1, NULL, &e) < 0);
    assert_int_equal(e.cls, ERR_NOT_FOUND);
    pthread_join(n.thread, NULL);
    free(n.mem);
}

/* What the server declares to be zeros is asked for again after a flush. */
static void declared_zeros(void **state)
{
    (void)state;
    static const uint32_t map[] = {1 << 20, 0, 1 << 20, 3, 2 << 20, 2, 0, 0};
    struct nbd_server n = {.map = map};
    struct nbd_target *t = open_target(&n, NULL);
    struct err e = ERR_INIT;
    assert_true(nbd_target_is_zero(t, 1 << 20, 3 << 20));
    assert_true(nbd_target_is_zero(t, 3 << 20, 100));
    assert_false(nbd_target_is_zero(t, (1 << 20) - 1, 2));
    const unsigned asked = n.maps;
    assert_false(nbd_target_is_zero(t, 0, 100));
    assert_ok(nbd_target_flush(t, &e), &e);
    assert_true(nbd_target_is_zero(t, 1 << 20, 100));
    assert_true(n.maps > asked);
    close_target(&n, t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_position),
        cmocka_unit_test(shared_blocks),
        cmocka_unit_test(errors),
        cmocka_unit_test(zeroing_is_limited),
        cmocka_unit_test(a_cancel_ends_waits),
        cmocka_unit_test(silence_is_an_end),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(declared_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
