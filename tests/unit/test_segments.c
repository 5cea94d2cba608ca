/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Packs in segments: filled by many threads at once, written in large pieces; short pools, failing stores, readers. */
#include "tests/unit/test.h"
#include "tests/unit/wrapped_store.h"

#include "repo/segments.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <unistd.h>

#define NAME "p00112233445566778899aabbccddeeff-s0123456789abcdef144"
#define SIZE ((size_t)8192) /* of a segment here */
#define THREADS 4
#define PIECES 400

static char scratch_dir[256];
static struct err err = ERR_INIT;

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static int group_setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(scratch_dir, sizeof scratch_dir, "%s/snapferry-segments-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(scratch_dir) ? 0 : -1;
}

static int group_teardown(void **state)
{
    (void)state;
    return nftw(scratch_dir, remove_one, 32, FTW_DEPTH | FTW_PHYS);
}

static struct blobs *store(const char *name)
{
    char dir[512];
    struct blobs *b;
    snprintf(dir, sizeof dir, "%s/%s", scratch_dir, name);
    assert_ok(blobs_open_dir(&b, dir, BLOBS_CREATE, NULL, 0, &err), &err);
    return b;
}

static uint8_t byte_at(uint64_t pos)
{
    return (uint8_t)(pos * 2654435761U >> 13 ^ pos);
}

/* Threads take ranges in turn, as workers reserve them, of lengths around the segment's. */
struct fill {
    struct segmented *f;
    pthread_mutex_t lock;
    uint64_t next;
    unsigned left;
    unsigned failed, read_wrong;
};

static bool reserve(struct fill *x, uint64_t *pos, size_t *len)
{
    static const size_t lengths[] = {1, 12, 16, 4095, 4096, 4097, 8191, 8192, 8193, 20000, 65536, 100003};
    pthread_mutex_lock(&x->lock);
    bool any = x->left > 0;
    if (any) {
        *len = lengths[x->left-- % (sizeof lengths / sizeof *lengths)];
        *pos = x->next;
        x->next += *len;
    }
    pthread_mutex_unlock(&x->lock);
    return any;
}

static void *fill_main(void *arg)
{
    struct fill *x = arg;
    uint64_t pos;
    size_t len;
    while (reserve(x, &pos, &len)) {
        struct err e = ERR_INIT;
        int rc = 0;
        for (uint64_t at = pos; rc == 0 && at < pos + len;) {
            uint8_t *to;
            size_t n;
            rc = segmented_span(x->f, at, (size_t)(pos + len - at), &to, &n, &e);
            if (rc < 0)
                break;
            for (size_t i = 0; i < n; i++)
                to[i] = byte_at(at + i);
            segmented_filled(x->f, at, n);
            at += n;
        }
        uint8_t *back = malloc(len);
        bool wrong = !back;
        /* A write that fails behind the last span is told here. */
        if (rc == 0 && back)
            rc = segmented_read(x->f, pos, back, len, &e);
        if (rc == 0 && back) {
            for (size_t i = 0; i < len && !wrong; i++)
                wrong = back[i] != byte_at(pos + i);
        }
        free(back);
        pthread_mutex_lock(&x->lock);
        x->failed += rc < 0;
        x->read_wrong += rc == 0 && wrong;
        pthread_mutex_unlock(&x->lock);
    }
    return NULL;
}

static void fill(struct fill *x, struct segmented *f)
{
    pthread_t t[THREADS];
    *x = (struct fill){.f = f, .lock = PTHREAD_MUTEX_INITIALIZER, .left = PIECES};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, fill_main, x), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
}

static void check_blob(struct blobs *b, uint64_t len)
{
    uint8_t *all;
    size_t n;
    assert_ok(blobs_get(b, NAME, 1 << 28, &all, &n, &err), &err);
    assert_int_equal(n, len);
    for (size_t i = 0; i < n; i++)
        if (all[i] != byte_at(i))
            fail_msg("byte %zu is wrong", i);
    free(all);
}

/* However few segments the pool has: threads that hold all of them get more instead of waiting for each other. */
static void many_threads(void **state)
{
    (void)state;
    for (unsigned count = 1; count <= 16; count *= 4) {
        char name[32];
        snprintf(name, sizeof name, "many%u", count);
        struct blobs *b = store(name);
        struct segments *s;
        struct blob_writer *w;
        struct segmented *f;
        struct fill x;
        assert_ok(segments_new(&s, SIZE, count, &err), &err);
        assert_ok(blob_writer_new(&w, b, NAME, &err), &err);
        assert_ok(segmented_new(&f, s, w, &err), &err);
        fill(&x, f);
        assert_int_equal(x.failed, 0);
        assert_int_equal(x.read_wrong, 0);
        assert_ok(segmented_end(f, x.next, &err), &err);
        segmented_free(f);
        assert_ok(blob_writer_commit(w, x.next, &err), &err);
        check_blob(b, x.next);
        uint64_t write_ns, wait_ns;
        segments_times(s, &write_ns, &wait_ns);
        assert_true(write_ns > 0);
        segments_free(s);
        blobs_free(b);
    }
}

/* Both in memory and, past the page cache where the file system can, on disk: a length that is a multiple of the
 * segment's, one that is not, and one that ends in the first. */
static void lengths(void **state)
{
    (void)state;
    static const size_t lens[] = {1, SIZE - 1, SIZE, SIZE + 1, 5 * SIZE, 5 * SIZE + 4096, 5 * SIZE + 77};
    struct blobs *b = store("lengths");
    struct segments *s;
    assert_ok(segments_new(&s, SIZE, 3, &err), &err);
    uint8_t *data = malloc(6 * SIZE);
    assert_non_null(data);
    for (size_t i = 0; i < 6 * SIZE; i++)
        data[i] = byte_at(i);
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        struct blob_writer *w;
        struct segmented *f;
        assert_ok(blob_writer_new(&w, b, NAME, &err), &err);
        assert_ok(segmented_new(&f, s, w, &err), &err);
        assert_ok(segmented_put(f, 0, data, lens[i], &err), &err);
        assert_ok(segmented_end(f, lens[i], &err), &err);
        segmented_free(f);
        assert_ok(blob_writer_commit(w, lens[i], &err), &err);
        check_blob(b, lens[i]);
    }
    free(data);
    segments_free(s);
    blobs_free(b);
}

/* A gap is a mistake of ours that must not become a pack. */
static void gaps(void **state)
{
    (void)state;
    struct blobs *b = store("gaps");
    struct segments *s;
    struct blob_writer *w;
    struct segmented *f;
    uint8_t data[100] = {0};
    assert_ok(segments_new(&s, SIZE, 3, &err), &err);
    assert_ok(blob_writer_new(&w, b, NAME, &err), &err);
    assert_ok(segmented_new(&f, s, w, &err), &err);
    assert_ok(segmented_put(f, 0, data, sizeof data, &err), &err);
    assert_ok(segmented_put(f, SIZE + 10, data, sizeof data, &err), &err);
    assert_true(segmented_end(f, SIZE + 10 + sizeof data, &err) < 0);
    segmented_free(f);
    blob_writer_abort(w);

    /* Within the last segment. */
    assert_ok(blob_writer_new(&w, b, NAME, &err), &err);
    assert_ok(segmented_new(&f, s, w, &err), &err);
    assert_ok(segmented_put(f, 0, data, sizeof data, &err), &err);
    assert_ok(segmented_put(f, sizeof data + 1, data, sizeof data, &err), &err);
    assert_int_equal(segmented_end(f, 2 * sizeof data + 1, &err), -EINVAL);
    segmented_free(f);
    blob_writer_abort(w);
    segments_free(s);
    blobs_free(b);
}

/* The store fails at its third write: fillers and the end are told, nothing waits for ever. */
static void failing_store(void **state)
{
    (void)state;
    struct wrap_control c = WRAP_INIT;
    struct blobs *b = wrap_store_new(store("failing"), &c);
    struct segments *s;
    struct blob_writer *w;
    struct segmented *f;
    struct fill x;
    assert_ok(segments_new(&s, SIZE, 4, &err), &err);
    assert_ok(blob_writer_new(&w, b, NAME, &err), &err);
    assert_ok(segmented_new(&f, s, w, &err), &err);
    c.fail_at = c.changes + 3;
    fill(&x, f);
    assert_true(x.failed > 0);
    assert_int_equal(x.read_wrong, 0);
    assert_int_equal(segmented_end(f, x.next, &err), -ENOSPC);
    assert_int_equal(err.sys, ENOSPC);
    segmented_free(f);
    blob_writer_abort(w);

    /* The pool is as good as before. */
    assert_ok(blob_writer_new(&w, b, NAME, &err), &err);
    assert_ok(segmented_new(&f, s, w, &err), &err);
    fill(&x, f);
    assert_int_equal(x.failed, 0);
    /* Dropped in the middle: what is queued is forgotten, what is being written is waited for. */
    segmented_free(f);
    blob_writer_abort(w);
    segmented_free(NULL);
    segments_free(s);
    segments_free(NULL);
    blobs_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_threads),
        cmocka_unit_test(lengths),
        cmocka_unit_test(gaps),
        cmocka_unit_test(failing_store),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
