/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Send streams of ZFS: made here record by record, in both byte orders, and recorded ones of a real pool. */
#include "tests/unit/test.h"

#include "io/native/zfs-stream.h"

#include <errno.h>

#define RECORD 312
#define FROM 0x1122334455667788u
#define TO 0x99aabbccddeeff01u
#define MIB ((uint64_t)1 << 20)

/* ---- a stream ---- */

struct stream {
    uint8_t *data;
    size_t len;
    uint64_t sum[4];
    bool swapped;
};

static void put(struct stream *s, uint8_t *record, size_t at, uint64_t v, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        record[at + i] = (uint8_t)(v >> 8 * (s->swapped ? bytes - 1 - i : i));
}

static void add(struct stream *s, const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i += 4) {
        const uint32_t w = s->swapped
                               ? (uint32_t)p[i] << 24 | (uint32_t)p[i + 1] << 16 | (uint32_t)p[i + 2] << 8 | p[i + 3]
                               : (uint32_t)p[i + 3] << 24 | (uint32_t)p[i + 2] << 16 | (uint32_t)p[i + 1] << 8 | p[i];
        s->sum[0] += w;
        s->sum[1] += s->sum[0];
        s->sum[2] += s->sum[1];
        s->sum[3] += s->sum[2];
    }
    s->data = realloc(s->data, s->len + n);
    assert_non_null(s->data);
    memcpy(s->data + s->len, p, n);
    s->len += n;
}

static void add_record(struct stream *s, uint8_t record[RECORD], size_t payload)
{
    add(s, record, RECORD - 32);
    if (s->len > RECORD)
        for (size_t i = 0; i < 4; i++)
            put(s, record, RECORD - 32 + 8 * i, s->sum[i], 8);
    add(s, record + RECORD - 32, 32);
    uint8_t *p = calloc(1, payload + 1);
    for (size_t i = 0; i < payload; i++)
        p[i] = (uint8_t)(i * 7 + s->len);
    add(s, p, payload);
    free(p);
}

static void begin(struct stream *s, uint64_t features, uint64_t type)
{
    uint8_t r[RECORD] = {0};
    put(s, r, 8, 0x2F5bacbac, 8);
    put(s, r, 16, features << 2 | 1, 8);
    put(s, r, 32, type, 4);
    put(s, r, 40, TO, 8);
    put(s, r, 48, FROM, 8);
    add_record(s, r, 0);
}

/* type, object, and up to three numbers of the record's own. */
static void record(struct stream *s, unsigned type, uint64_t object, uint64_t offset, uint64_t len, uint64_t packed)
{
    uint8_t r[RECORD] = {0};
    size_t payload = 0;
    put(s, r, 0, type, 4);
    put(s, r, 8, object, 8);
    switch (type) {
    case 1: /* OBJECT: bonus length `len` */
        put(s, r, 28, len, 4);
        put(s, r, 40, TO, 8);
        payload = (len + 7) / 8 * 8;
        break;
    case 2: /* FREEOBJECTS */
        put(s, r, 16, len, 8);
        put(s, r, 24, TO, 8);
        break;
    case 3: /* WRITE */
        put(s, r, 24, offset, 8);
        put(s, r, 32, len, 8);
        put(s, r, 40, TO, 8);
        r[50] = packed ? 15 : 0;
        put(s, r, 96, packed, 8);
        payload = packed ? packed : len;
        break;
    case 4:  /* FREE */
    case 6:  /* WRITE_BYREF */
    case 10: /* REDACT */
        put(s, r, 16, offset, 8);
        put(s, r, 24, len, 8);
        put(s, r, 32, TO, 8);
        break;
    case 7: /* SPILL */
        put(s, r, 16, len, 8);
        put(s, r, 24, TO, 8);
        payload = len;
        break;
    case 8: /* WRITE_EMBEDDED */
        put(s, r, 16, offset, 8);
        put(s, r, 24, len, 8);
        put(s, r, 32, TO, 8);
        put(s, r, 52, packed, 4);
        payload = (packed + 7) / 8 * 8;
        break;
    default:
        put(s, r, 24, TO, 8);
    }
    add_record(s, r, payload > MIB ? 0 : payload);
}

static void end(struct stream *s)
{
    uint8_t r[RECORD] = {0};
    put(s, r, 0, 5, 4);
    for (size_t i = 0; i < 4; i++)
        put(s, r, 8 + 8 * i, s->sum[i], 8);
    put(s, r, 40, TO, 8);
    add_record(s, r, 0);
}

/* As begin(), of a whole snapshot. */
static void begin_whole(struct stream *s)
{
    uint8_t r[RECORD] = {0};
    put(s, r, 8, 0x2F5bacbac, 8);
    put(s, r, 16, 1, 8);
    put(s, r, 32, 3, 4);
    put(s, r, 40, TO, 8);
    add_record(s, r, 0);
}

static int parse(const uint8_t *p, size_t n, size_t piece, uint64_t from, uint64_t to, struct changes **list,
                 struct err *e)
{
    struct zfs_stream *s;
    int rc = 0;
    assert_int_equal(changes_new(list, NULL), 0);
    assert_int_equal(zfs_stream_new(&s, from, to, *list, NULL), 0);
    for (size_t at = 0; rc == 0 && at < n; at += piece)
        rc = zfs_stream_feed(s, p + at, piece < n - at ? piece : n - at, e);
    if (rc == 0)
        rc = zfs_stream_end(s, e);
    if (rc == 0)
        assert_int_equal(zfs_stream_bytes(s), n);
    zfs_stream_free(s);
    changes_finish(*list);
    return rc;
}

static void usual(struct stream *s)
{
    begin(s, 1u << 16 | 1u << 17 | 1u << 22, 3);
    record(s, 1, 1, 0, 0, 0);
    record(s, 1, 2, 0, 320, 0);
    record(s, 2, 3, 0, 29, 0);                /* objects 3 and more are free */
    record(s, 3, 1, 0, 8192, 0);              /* [0, 8K) */
    record(s, 3, 1, 65536, 131072, 512);      /* [64K, 192K), compressed */
    record(s, 8, 1, 262144, 8192, 100);       /* embedded */
    record(s, 4, 1, MIB, 3 * MIB, 0);         /* discarded */
    record(s, 6, 1, 8 * MIB, 8192, 0);        /* deduplicated */
    record(s, 3, 2, 0, 1024, 0);              /* not the data of the volume */
    record(s, 7, 2, 0, 512, 0);               /* spill */
    record(s, 4, 2, 4096, UINT64_MAX, 0);     /* likewise */
    record(s, 4, 1, 16 * MIB, UINT64_MAX, 0); /* up to the end */
    end(s);
}

static void both_orders(void **state)
{
    (void)state;
    static const struct change want[] = {{0, 8192},      {65536, 131072}, {262144, 8192},
                                         {MIB, 3 * MIB}, {8 * MIB, 8192}, {16 * MIB, INT64_MAX - 16 * MIB}};
    for (int swapped = 0; swapped < 2; swapped++) {
        struct stream s = {.swapped = swapped};
        usual(&s);
        const size_t pieces[] = {s.len, 1, 3, 311, 312, 4096};
        for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
            struct changes *list;
            struct change x;
            struct err e = ERR_INIT;
            size_t cursor = 0, n = 0;
            assert_int_equal(parse(s.data, s.len, pieces[i], FROM, TO, &list, &e), 0);
            for (uint64_t pos = 0; changes_after(list, &cursor, pos, &x); pos = x.start + x.len, n++)
                assert_true(n < 6 && x.start == want[n].start && x.len == want[n].len);
            assert_int_equal(n, 6);
            assert_int_equal(changes_zero_bytes(list), 3 * MIB + (uint64_t)INT64_MAX - 16 * MIB); /* what was freed */
            changes_free(list);
        }
        free(s.data);
    }
}

/* A block is freed and written, in whatever order: its data count. */
static void freed_and_written(void **state)
{
    (void)state;
    static const unsigned writes[] = {3, 6, 8}; /* WRITE, WRITE_BYREF, WRITE_EMBEDDED */
    for (size_t i = 0; i < 2 * sizeof writes / sizeof *writes; i++) {
        struct stream s = {.swapped = false};
        struct changes *list;
        struct change x;
        struct err e = ERR_INIT;
        struct changes_cursor cursor = {0};
        bool zeros;
        begin(&s, 0, 3);
        if (i % 2)
            record(&s, 4, 1, MIB, 3 * MIB, 0);
        record(&s, writes[i / 2], 1, 2 * MIB, 8192, 8);
        if (!(i % 2))
            record(&s, 4, 1, MIB, 3 * MIB, 0);
        end(&s);
        assert_int_equal(parse(s.data, s.len, s.len, FROM, TO, &list, &e), 0);
        assert_true(changes_part_after(list, &cursor, 0, &x, &zeros));
        assert_true(zeros && x.start == MIB && x.len == MIB);
        assert_true(changes_part_after(list, &cursor, 2 * MIB, &x, &zeros));
        assert_true(!zeros && x.start == 2 * MIB && x.len == 2 * MIB);
        assert_int_equal(changes_count(list), 1);
        changes_free(list);
        free(s.data);
    }
}

/* The stream of a whole snapshot is not taken for what has changed, nor the other way round. */
static void whole_snapshots(void **state)
{
    (void)state;
    struct stream s = {.swapped = false};
    struct changes *list;
    struct err e = ERR_INIT;
    begin_whole(&s);
    record(&s, 3, 1, MIB, 8192, 0);
    record(&s, 4, 1, 2 * MIB, UINT64_MAX, 0);
    end(&s);
    assert_int_equal(parse(s.data, s.len, s.len, 0, TO, &list, &e), 0);
    assert_int_equal(changes_bytes(list) - changes_zero_bytes(list), 8192);
    changes_free(list);
    assert_int_equal(parse(s.data, s.len, s.len, FROM, TO, &list, &e), -ESTALE);
    changes_free(list);
    free(s.data);
    s = (struct stream){.swapped = false};
    usual(&s);
    assert_int_equal(parse(s.data, s.len, s.len, 0, TO, &list, &e), -ESTALE);
    changes_free(list);
    free(s.data);
}

/* Whatever is changed or missing is noticed. */
static void damaged(void **state)
{
    (void)state;
    struct stream s = {.swapped = false};
    struct changes *list;
    usual(&s);
    for (size_t n = 0; n < s.len; n += n < 4000 ? 1 : 997) {
        struct err e = ERR_INIT;
        assert_true(parse(s.data, n, n + 1, FROM, TO, &list, &e) < 0 && e.cls == ERR_DAMAGE);
        changes_free(list);
    }
    for (size_t at = 0; at < s.len; at += at < 6000 ? 1 : 101) {
        struct err e = ERR_INIT;
        s.data[at] ^= 0x10;
        if (parse(s.data, s.len, s.len, FROM, TO, &list, &e) == 0)
            fail_msg("a changed byte at %zu is not noticed", at);
        s.data[at] ^= 0x10;
        changes_free(list);
    }
    uint8_t more[8] = {0};
    add(&s, more, sizeof more);
    struct err e = ERR_INIT;
    assert_true(parse(s.data, s.len, s.len, FROM, TO, &list, &e) < 0 && strstr(e.msg, "follows its end"));
    changes_free(list);
    free(s.data);
}

static void other_snapshots(void **state)
{
    (void)state;
    struct stream s = {.swapped = false};
    struct changes *list;
    usual(&s);
    for (int i = 0; i < 2; i++) {
        struct err e = ERR_INIT;
        assert_int_equal(parse(s.data, s.len, 512, FROM + !i, TO + i, &list, &e), -ESTALE);
        assert_true(e.cls == ERR_SOURCE && strstr(e.msg, "is from the snapshot with guid"));
        changes_free(list);
    }
    free(s.data);
}

static void refused(void **state)
{
    (void)state;
    static const struct {
        uint64_t features, objset;
        unsigned type;
        uint64_t object, offset, len, packed;
        int rc;
        const char *says;
    } cases[] = {
        {1u << 24, 3, 0, 0, 0, 0, 0, -ENOTSUP, "does not list all changes"},
        {1u << 21, 3, 0, 0, 0, 0, 0, -ENOTSUP, "does not list all changes"},
        {1u << 20, 3, 0, 0, 0, 0, 0, -ENOTSUP, "does not list all changes"},
        {0, 2, 0, 0, 0, 0, 0, -EBADMSG, "stream of a single volume"},
        {0, 3, 9, 0, 0, 0, 0, -ENOTSUP, "does not list all changes"},
        {0, 3, 10, 1, 0, 8192, 0, -ENOTSUP, "does not list all changes"},
        {0, 3, 2, 0, 0, 5, 0, -ENOTSUP, "was made anew"},
        {0, 3, 2, 1, 0, 1, 0, -ENOTSUP, "was made anew"},
        {0, 3, 11, 0, 0, 0, 0, -EBADMSG, "an unknown record"},
        {0, 3, 3, 1, 0, 0, 0, -EBADMSG, "the length of a block"},
        {0, 3, 3, 1, 0, 32 * MIB, 0, -EBADMSG, "the length of a block"},
        {0, 3, 3, 1, 0, 8192, 32 * MIB, -EBADMSG, "the length of a block"},
        {0, 3, 3, 1, 0, 8196, 0, -EBADMSG, "multiple of eight"},
        {0, 3, 3, 1, INT64_MAX - 100, 8192, 0, -EBADMSG, "behind the last possible byte"},
        {0, 3, 4, 1, UINT64_MAX - 5, 8192, 0, -EBADMSG, "behind the last possible byte"},
        {0, 3, 4, 1, 8, UINT64_MAX - 3, 0, -EBADMSG, "behind the last possible byte"},
        {0, 3, 8, 1, 0, 8192, 600, -EBADMSG, "the length of an embedded block"},
        {0, 3, 7, 2, 0, 32 * MIB, 0, -EBADMSG, "the length of a spill block"},
        {0, 3, 1, 2, 0, 32 * MIB, 0, -EBADMSG, "a bonus buffer is too long"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int swapped = 0; swapped < 2; swapped++) {
            struct stream s = {.swapped = swapped};
            struct changes *list;
            struct err e = ERR_INIT;
            begin(&s, cases[i].features, cases[i].objset);
            if (cases[i].type)
                record(&s, cases[i].type, cases[i].object, cases[i].offset, cases[i].len, cases[i].packed);
            end(&s);
            const int rc = parse(s.data, s.len, s.len, FROM, TO, &list, &e);
            if (rc != cases[i].rc || !strstr(e.msg, cases[i].says))
                fail_msg("case %zu: %d, %s", i, rc, e.msg);
            changes_free(list);
            free(s.data);
        }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_orders), cmocka_unit_test(freed_and_written), cmocka_unit_test(whole_snapshots),
        cmocka_unit_test(damaged),     cmocka_unit_test(other_snapshots),   cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
