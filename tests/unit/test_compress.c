/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_compress.c - codecs: golden streams, round trips, what is not worth compressing, hostile input, memory. */
#include "repo/compress.h"

#include "tests/unit/test.h"

#include <malloc.h>
#include <time.h>

#include <jansson.h>
#include <lz4frame.h>
#include <zlib.h>
#include <zstd.h>

/* Sanitizers and valgrind have an allocator and speeds of their own. */
static bool is_sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    return true;
#endif
#endif
    return getenv("SNAPFERRY_SANITIZED") != NULL;
}

static const uint32_t written[] = {0x1000, 0x1001, 0x1002, 0x1100, 0x1101, 0x1102, 0x1103,
                                   0x1300, 0x1301, 0x1302, 0x1500, 0x1501, 0x1502};
#define N_WRITTEN (sizeof written / sizeof written[0])

static struct compressor *new_compressor(void)
{
    struct err e = ERR_INIT;
    struct compressor *c;
    assert_ok(compressor_new(&c, &e), &e);
    return c;
}

static void *xmalloc(size_t n)
{
    void *p = malloc(n ? n : 1);
    assert_non_null(p);
    return p;
}

static uint8_t *unhex(const char *hex, size_t *len)
{
    *len = strlen(hex) / 2;
    uint8_t *p = xmalloc(*len);
    assert_int_equal(hex_decode(p, hex, strlen(hex)), 0);
    return p;
}

static void names_and_ids_are_kopias(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    assert_int_equal(compress_id_by_name("none", &e), 0);
    assert_int_equal(compress_id_by_name("", &e), 0);
    unsigned n = 0;
    for (; compress_writable(n); n++) {
        int64_t id = compress_id_by_name(compress_writable(n), &e);
        assert_ok(id, &e);
        assert_string_equal(compress_name((uint32_t)id), compress_writable(n));
    }
    assert_int_equal(n, N_WRITTEN);
    assert_int_equal(compress_id_by_name("zstd-fastest", &e), 0x1101);
    assert_int_equal(compress_id_by_name("s2-default", &e), -EINVAL);
    assert_int_equal(e.cls, ERR_USAGE);
    assert_non_null(strstr(e.msg, "is read-only"));
    assert_non_null(strstr(e.hint, "zstd-best-compression"));
    assert_non_null(strstr(e.hint, "deflate-best-compression"));
    assert_int_equal(compress_id_by_name("zip", &e), -EINVAL);
    assert_non_null(strstr(e.msg, "unknown"));
    assert_string_equal(compress_name(0x1400), "lz4");
    assert_null(compress_name(0x1600));
}

static void golden_streams_expand(void **state)
{
    (void)state;
    CLEANUP(compressor_freep) struct compressor *c = new_compressor();
    CLEANUP_FCLOSE FILE *f = fopen(fixture_path("vectors/compression.jsonl"), "r");
    assert_non_null(f);
    CLEANUP_FREE char *line = NULL;
    size_t room = 0, n_checked = 0;
    while (getline(&line, &room, f) > 0) {
        json_t *j = json_loads(line, 0, NULL);
        assert_non_null(j);
        const char *hex = json_string_value(json_object_get(j, "hex"));
        if (hex) { /* the others tell that Kopia does not write lz4 any more */
            uint32_t id = (uint32_t)strtoul(json_string_value(json_object_get(j, "headerID")), NULL, 16);
            assert_string_equal(compress_name(id), json_string_value(json_object_get(j, "compressor")));
            size_t len, want_len;
            CLEANUP_FREE uint8_t *in = unhex(hex, &len);
            CLEANUP_FREE uint8_t *want = recipe_expand(json_string_value(json_object_get(j, "input")), &want_len);
            CLEANUP_FREE uint8_t *out = xmalloc(want_len + 100);
            struct err e = ERR_INIT;
            assert_ok(compressor_expand(c, id, in, len, out, want_len, &e), &e);
            assert_memory_equal(out, want, want_len);
            memset(out, 0, want_len + 100);
            assert_int_equal(compressor_expand_upto(c, 0, in, len, out, want_len + 100, &e), want_len);
            assert_memory_equal(out, want, want_len);
            assert_int_equal(compressor_expand(c, id, in, len, out, want_len + 1, &e), -EIO);
            assert_int_equal(e.cls, ERR_DAMAGE);
            if (want_len) {
                assert_int_equal(compressor_expand(c, id, in, len, out, want_len - 1, &e), -EIO);
                assert_int_equal(e.cls, ERR_DAMAGE);
                assert_true(compressor_expand_upto(c, id, in, len, out, want_len / 2, &e) < 0);
            }
            n_checked++;
        }
        json_decref(j);
    }
    assert_int_equal(n_checked, 136);
}

/* Encoders and decoders of the libraries' own, to see that both sides of ours are the standard's. */
static int64_t reference_expand(uint32_t id, const uint8_t *in, size_t len, uint8_t *out, size_t cap)
{
    if (id >> 8 == 0x11)
        return (int64_t)ZSTD_decompress(out, cap, in + 4, len - 4);
    z_stream z = {0};
    assert_int_equal(inflateInit2(&z, id >> 8 == 0x15 ? -15 : 31), Z_OK);
    z.next_in = (uint8_t *)(uintptr_t)in + 4;
    z.avail_in = (uInt)len - 4;
    z.next_out = out;
    z.avail_out = (uInt)cap;
    assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
    assert_int_equal(z.avail_in, 0);
    inflateEnd(&z);
    return (int64_t)(cap - z.avail_out);
}

static void contents_round_trip(void **state)
{
    (void)state;
    CLEANUP(compressor_freep) struct compressor *c = new_compressor();
    static const char *const recipes[] = {
        "lines:1:1",
        "lines:1:5",
        "fill:00:40",
        "lines:1:100",
        "lines:2:4095",
        "lines:2:4097",
        "count:256:65535",
        "lines:3:65537",
        "count:251:131071",
        "fill:ff:131073",
        "lines:4:1000003",
        "prng:5:70000+lines:5:70001",
        "prng:6:200000+fill:00:300000+lines:6:1",
        "fill:00:4194304",
        "lines:7:5242881",
    };
    for (size_t r = 0; r < sizeof recipes / sizeof recipes[0]; r++) {
        size_t len;
        CLEANUP_FREE uint8_t *in = recipe_expand(recipes[r], &len);
        size_t cap = len + 512;
        CLEANUP_FREE uint8_t *out = xmalloc(cap), *back = xmalloc(len);
        for (size_t i = 0; i < N_WRITTEN; i++) {
            if (written[i] % 0x100 == 2 && len > 1100000)
                continue; /* zlib's level 9 takes its time */
            struct err e = ERR_INIT;
            int64_t n = compressor_compress(c, written[i], in, len, out, cap, false, &e);
            assert_ok(n, &e);
            assert_true(n < (int64_t)len);
            if (len >= 4095)
                assert_true(n > 4);
            if (!n)
                continue;
            assert_int_equal(get_be32(out), written[i]);
            memset(back, 0xa5, len);
            assert_ok(compressor_expand(c, written[i], out, (size_t)n, back, len, &e), &e);
            assert_memory_equal(in, back, len);
            memset(back, 0xa5, len);
            assert_int_equal(reference_expand(written[i], out, (size_t)n, back, len), len);
            assert_memory_equal(in, back, len);
            /* one byte less of room must not be written to, and gives "store it" */
            uint8_t guard = out[n - 1];
            int64_t less = compressor_compress(c, written[i], in, len, out, (size_t)n - 1, true, &e);
            assert_ok(less, &e);
            assert_true(less < n);
            assert_int_equal(out[n - 1], guard);
        }
    }
}

static void zstd_frames_are_as_the_format_wants_them(void **state)
{
    (void)state;
    CLEANUP(compressor_freep) struct compressor *c = new_compressor();
    size_t len;
    CLEANUP_FREE uint8_t *in = recipe_expand("lines:1:16777216", &len);
    CLEANUP_FREE uint8_t *out = xmalloc(len + 512);
    struct err e = ERR_INIT;
    int64_t size[4];
    for (uint32_t i = 0; i < 4; i++) {
        size[i] = compressor_compress(c, 0x1100 + i, in, len, out, len + 512, false, &e);
        assert_ok(size[i], &e);
        assert_int_equal(ZSTD_getFrameContentSize(out + 4, (size_t)size[i] - 4), len);
        assert_int_equal(ZSTD_findFrameCompressedSize(out + 4, (size_t)size[i] - 4), size[i] - 4);
    }
    assert_true(size[1] < (int64_t)len / 3);
}

static void foreign_frames_expand(void **state)
{
    (void)state;
    CLEANUP(compressor_freep) struct compressor *c = new_compressor();
    size_t len;
    CLEANUP_FREE uint8_t *in = recipe_expand("lines:9:300007", &len);
    size_t cap = len + 4096;
    CLEANUP_FREE uint8_t *out = xmalloc(cap), *back = xmalloc(len);
    struct err e = ERR_INIT;
    for (int flags = 0; flags < 4; flags++) { /* zstd with and without size and checksum */
        ZSTD_CCtx *z = ZSTD_createCCtx();
        ZSTD_CCtx_setParameter(z, ZSTD_c_contentSizeFlag, flags & 1);
        ZSTD_CCtx_setParameter(z, ZSTD_c_checksumFlag, flags >> 1);
        put_be32(out, 0x1100);
        size_t n = ZSTD_compress2(z, out + 4, cap - 4, in, len);
        ZSTD_freeCCtx(z);
        assert_false(ZSTD_isError(n));
        memset(back, 0, len);
        assert_ok(compressor_expand(c, 0x1100, out, n + 4, back, len, &e), &e);
        assert_memory_equal(in, back, len);
        out[n + 4] = 0;
        assert_int_equal(compressor_expand(c, 0x1100, out, n + 5, back, len, &e), -EIO);
        if (flags & 2) {
            out[n + 3] ^= 1;
            assert_int_equal(compressor_expand(c, 0x1100, out, n + 4, back, len, &e), -EIO);
        }
    }
    for (int flags = 0; flags < 4; flags++) { /* lz4, blocks linked and independent, small and large */
        LZ4F_preferences_t p = {0};
        p.frameInfo.blockMode = flags & 1 ? LZ4F_blockLinked : LZ4F_blockIndependent;
        p.frameInfo.blockSizeID = flags & 2 ? LZ4F_max64KB : LZ4F_max4MB;
        p.frameInfo.contentChecksumFlag = LZ4F_contentChecksumEnabled;
        put_be32(out, 0x1400);
        size_t n = LZ4F_compressFrame(out + 4, cap - 4, in, len, &p);
        assert_false(LZ4F_isError(n));
        memset(back, 0, len);
        assert_ok(compressor_expand(c, 0x1400, out, n + 4, back, len, &e), &e);
        assert_memory_equal(in, back, len);
        assert_int_equal(compressor_expand(c, 0x1400, out, n + 4, back, len - 1, &e), -EIO);
        assert_int_equal(compressor_expand(c, 0x1400, out, n + 3, back, len, &e), -EIO);
        out[n + 4] = 0;
        assert_int_equal(compressor_expand(c, 0x1400, out, n + 5, back, len, &e), -EIO);
        out[n + 3] ^= 1;
        assert_int_equal(compressor_expand(c, 0x1400, out, n + 4, back, len, &e), -EIO);
        assert_int_equal(e.cls, ERR_DAMAGE);
    }
}

static void headers_are_checked(void **state)
{
    (void)state;
    CLEANUP(compressor_freep) struct compressor *c = new_compressor();
    struct err e = ERR_INIT;
    uint8_t out[64];
    assert_int_equal(compressor_expand(c, 0, "\0\0\x16\0abc", 7, out, 3, &e), -EPROTONOSUPPORT);
    assert_int_equal(e.cls, ERR_FORMAT);
    assert_int_equal(compressor_expand(c, 0x1101, "\0\0\x11\0abc", 7, out, 3, &e), -EIO);
    assert_int_equal(e.cls, ERR_DAMAGE);
    for (size_t n = 0; n < 4; n++)
        assert_int_equal(compressor_expand(c, 0x1100, "\0\0\x11\0", n, out, 3, &e), -EIO);
    assert_true(compressor_expand(c, 0x1100, "\0\0\x11\0", 4, out, 0, &e) < 0);
    assert_int_equal(compressor_compress(c, 0x1200, "abc", 3, out, sizeof out, false, &e), -EINVAL);
    assert_int_equal(compressor_compress(c, 0x1100, "", 0, out, sizeof out, false, &e), 0);
}

/* Plain gzip as a content has it, behind the id of its compressor. */
static int64_t gzip_expand(const void *in, size_t len, uint8_t **out, size_t cap, struct err *e)
{
    CLEANUP(compressor_freep) struct compressor *c = NULL;
    uint8_t *with_id = xmalloc(len + 4);
    *out = NULL;
    assert_ok(compressor_new(&c, e), e);
    put_be32(with_id, 0x1000);
    memcpy(with_id + 4, in, len);
    uint8_t *p = xmalloc(cap);
    int64_t n = compressor_expand_upto(c, 0x1000, with_id, len + 4, p, cap, e);
    free(with_id);
    if (n < 0)
        free(p);
    else
        *out = p;
    return n;
}

static void gzip_members_follow_each_other(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    for (size_t len = 0; len < 300000; len = len * 3 + 1) {
        char recipe[64];
        snprintf(recipe, sizeof recipe, "lines:%zu:%zu", len, len);
        size_t in_len;
        CLEANUP_FREE uint8_t *in = recipe_expand(recipe, &in_len);
        CLEANUP_FREE uint8_t *gz = NULL, *back = NULL, *twice = NULL;
        int64_t n = gzip_compress(in, in_len, &gz, &e);
        assert_ok(n, &e);
        assert_int_equal(gzip_expand(gz, (size_t)n, &back, in_len, &e), in_len);
        assert_memory_equal(in, back, in_len);
        free(take_ptr(&back));
        if (in_len) {
            assert_true(gzip_expand(gz, (size_t)n, &back, in_len - 1, &e) < 0);
            assert_int_equal(e.cls, ERR_DAMAGE);
            assert_null(back);
        }
        twice = xmalloc(2 * (size_t)n + 1);
        memcpy(twice, gz, (size_t)n);
        memcpy(twice + n, gz, (size_t)n);
        assert_int_equal(gzip_expand(twice, 2 * (size_t)n, &back, 2 * in_len + 1, &e), 2 * in_len);
        assert_memory_equal(in, back + in_len, in_len);
        free(take_ptr(&back));
        twice[2 * n] = 7;
        assert_true(gzip_expand(twice, 2 * (size_t)n + 1, &back, 1 << 20, &e) < 0);
        assert_true(gzip_expand(twice, 2 * (size_t)n - 1, &back, 1 << 20, &e) < 0);
        if (in_len > 3) {
            twice[n - 6] ^= 0x10; /* CRC32 of the first member */
            assert_true(gzip_expand(twice, (size_t)n, &back, 1 << 20, &e) < 0);
            assert_non_null(strstr(e.msg, "checksum"));
        }
    }
    uint8_t *out;
    assert_true(gzip_expand("", 0, &out, 10, &e) < 0);
    size_t n;
    CLEANUP_FREE uint8_t *noise = recipe_expand("prng:3:200000", &n);
    CLEANUP_FREE uint8_t *gz = NULL, *back = NULL;
    int64_t m = gzip_compress(noise, n, &gz, &e);
    assert_ok(m, &e);
    assert_int_equal(gzip_expand(gz, (size_t)m, &back, n, &e), n);
    assert_memory_equal(noise, back, n);
}

/* Headers with every combination of optional fields, and with each of them damaged. */
static void gzip_headers_are_read(void **state)
{
    (void)state;
    static const char text[] = "the same text, the same text, the same text";
    for (unsigned flags = 0; flags < 256; flags++) {
        uint8_t gz[200] = {0x1f, 0x8b, 8, (uint8_t)flags, 1, 2, 3, 4, 0, 255};
        size_t n = 10;
        if (flags & 4) {
            memcpy(gz + n, "\x05\0extra", 7);
            n += 7;
        }
        for (unsigned f = 8; f <= 16; f *= 2)
            if (flags & f) {
                memcpy(gz + n, "volume", 7);
                n += 7;
            }
        if (flags & 2) {
            put_le16(gz + n, (uint16_t)crc32(0, gz, (uInt)n));
            n += 2;
        }
        size_t header = n;
        z_stream z = {.next_in = (uint8_t *)(uintptr_t)text, .avail_in = sizeof text};
        assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY), Z_OK);
        z.next_out = gz + n;
        z.avail_out = (uInt)(sizeof gz - n);
        assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
        n = sizeof gz - z.avail_out;
        deflateEnd(&z);
        put_le32(gz + n, (uint32_t)crc32(0, (const uint8_t *)text, sizeof text));
        put_le32(gz + n + 4, sizeof text);
        n += 8;
        struct err e = ERR_INIT;
        CLEANUP_FREE uint8_t *out = NULL;
        int64_t got = gzip_expand(gz, n, &out, 1000, &e);
        if (flags & 0xe0) {
            assert_int_equal(got, -EIO);
            assert_int_equal(e.cls, ERR_DAMAGE);
            continue;
        }
        assert_int_equal(got, sizeof text);
        assert_memory_equal(out, text, sizeof text);
        for (size_t cut = 0; cut < n; cut++) {
            CLEANUP_FREE uint8_t *exact = xmalloc(cut), *none = NULL;
            memcpy(exact, gz, cut);
            assert_true(gzip_expand(exact, cut, &none, 1000, &e) < 0);
        }
        for (size_t at = n - 8; at < n; at++) { /* the CRC and the length */
            CLEANUP_FREE uint8_t *none = NULL;
            gz[at] ^= 4;
            assert_true(gzip_expand(gz, n, &none, 1000, &e) < 0);
            gz[at] ^= 4;
        }
        if (flags & 2) {
            CLEANUP_FREE uint8_t *none = NULL;
            gz[header - 1] ^= 1;
            assert_true(gzip_expand(gz, n, &none, 1000, &e) < 0);
        }
    }
}

static void incompressible_contents_are_stored(void **state)
{
    (void)state;
    CLEANUP(compressor_freep) struct compressor *c = new_compressor();
    static const size_t lens[] = {1, 5, 64, 100, 1000, 4096, 65536, 131071, 131072, 131073, 1000000, 5000001};
    for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++) {
        char recipe[64];
        snprintf(recipe, sizeof recipe, "prng:%zu:%zu", i + 1, lens[i]);
        size_t len;
        CLEANUP_FREE uint8_t *in = recipe_expand(recipe, &len);
        CLEANUP_FREE uint8_t *out = xmalloc(len + 512);
        for (size_t k = 0; k < N_WRITTEN; k++)
            for (int hard = 0; hard < 2; hard++) {
                if (written[k] % 0x100 == 2 && len > 1100000)
                    continue;
                struct err e = ERR_INIT;
                int64_t n = compressor_compress(c, written[k], in, len, out, len + 512, hard, &e);
                assert_ok(n, &e);
                assert_int_equal(n, 0);
            }
    }
}

/* Wherever in random data a stretch of twice the stride is text, the whole content is compressed. */
static void a_compressible_stretch_is_never_missed(void **state)
{
    (void)state;
    CLEANUP(compressor_freep) struct compressor *c = new_compressor();
    size_t len, text_len;
    CLEANUP_FREE uint8_t *noise = recipe_expand("prng:77:3145728", &len);
    CLEANUP_FREE uint8_t *text = recipe_expand("lines:1:270336", &text_len);
    CLEANUP_FREE uint8_t *in = xmalloc(len), *out = xmalloc(len);
    uint64_t seed = 5;
    for (int i = 0; i < 60; i++) {
        size_t at = splitmix64(&seed) % (len - text_len + 1);
        memcpy(in, noise, len);
        memcpy(in + at, text, text_len);
        struct err e = ERR_INIT;
        int64_t n = compressor_compress(c, 0x1101, in, len, out, len, false, &e);
        assert_ok(n, &e);
        assert_true(n > 0 && n < (int64_t)(len - text_len / 2));
    }
}

/* The test program itself is machine code with its tables and symbols. */
static void programs_are_compressed(void **state)
{
    (void)state;
    CLEANUP(compressor_freep) struct compressor *c = new_compressor();
    CLEANUP_FCLOSE FILE *f = fopen("/proc/self/exe", "r");
    assert_non_null(f);
    size_t room = 64 << 20;
    CLEANUP_FREE uint8_t *in = xmalloc(room);
    size_t len = fread(in, 1, room, f);
    assert_true(len > 20000);
    CLEANUP_FREE uint8_t *out = xmalloc(len);
    for (size_t piece = 4096; piece <= 1 << 20; piece *= 2)
        for (size_t at = 0; at + piece <= len; at += piece) {
            struct err e = ERR_INIT;
            int64_t n = compressor_compress(c, 0x1101, in + at, piece, out, len, false, &e);
            int64_t hard = compressor_compress(c, 0x1101, in + at, piece, out, len, true, &e);
            assert_ok(n, &e);
            assert_int_equal(n, hard);
        }
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* The rule says 1/32 of an attempt; the bound leaves room for what else the machine does. */
static void recognising_costs_far_less_than_trying(void **state)
{
    (void)state;
    CLEANUP(compressor_freep) struct compressor *c = new_compressor();
    size_t len;
    CLEANUP_FREE uint8_t *in = recipe_expand("prng:8:16777216", &len);
    CLEANUP_FREE uint8_t *out = xmalloc(len + 512);
    double best[2] = {1e9, 1e9};
    for (int round = 0; round < 5; round++)
        for (int hard = 0; hard < 2; hard++) {
            struct err e = ERR_INIT;
            double t = seconds();
            assert_int_equal(compressor_compress(c, 0x1100, in, len, out, len + 512, hard, &e), 0);
            t = seconds() - t;
            if (t < best[hard])
                best[hard] = t;
        }
    print_message("# 16 MiB of random data: recognised in %.2f ms, tried in %.2f ms\n", best[0] * 1e3, best[1] * 1e3);
    assert_true(is_sanitized() || best[0] < best[1] / 3);
}

/* What compressor_memory() promises, against what the allocator says; in pieces that zstd has own parameters for. */
static void memory_stays_below_the_promise(void **state)
{
    (void)state;
    if (is_sanitized()) {
        print_message("# memory is measured without sanitizers only\n");
        skip();
    }
    size_t len;
    CLEANUP_FREE uint8_t *in = recipe_expand("lines:1:16777216", &len);
    CLEANUP_FREE uint8_t *out = xmalloc(len + 512);
    mallopt(M_MMAP_THRESHOLD, 64 << 10);
    for (size_t k = 0; k < N_WRITTEN; k++) {
        static const size_t lens[] = {1000, 20000, 140000, 300000, 1500000, 5 << 20, 16 << 20};
        for (size_t m = 0; m < sizeof lens / sizeof lens[0]; m++) {
            if (written[k] % 0x100 == 2 && lens[m] > 1 << 20)
                continue;
            size_t promise = compressor_memory(written[k], lens[m]);
            struct mallinfo2 before = mallinfo2();
            struct compressor *c = new_compressor();
            for (size_t i = 0; i <= m; i++) {
                struct err e = ERR_INIT;
                assert_ok(compressor_compress(c, written[k], in, lens[i], out, len + 512, false, &e), &e);
                struct mallinfo2 now = mallinfo2();
                size_t used = now.uordblks + now.hblkhd - before.uordblks - before.hblkhd;
                if (used > promise)
                    fail_msg("0x%x up to %zu: %zu bytes used, %zu promised", written[k], lens[m], used, promise);
                if (i == m && lens[m] >= 1 << 20)
                    assert_true(used > promise / 2); /* an honest bound is not a wild one */
            }
            compressor_free(c);
        }
    }
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    assert_true(compressor_memory(0x1103, 16 << 20) < 64 << 20);
}

/* Every truncation and every single flipped bit gives an error or bytes within bounds; a container with a checksum
 * must notice, or give the right bytes. */
static void damaged_streams_are_refused_or_harmless(void **state)
{
    (void)state;
    CLEANUP(compressor_freep) struct compressor *c = new_compressor();
    static const char *const recipes[] = {"str:hello hello hello hello!", "lines:1:700", "prng:1:90", "fill:00:3000"};
    for (size_t r = 0; r < sizeof recipes / sizeof recipes[0]; r++) {
        size_t len;
        CLEANUP_FREE uint8_t *in = recipe_expand(recipes[r], &len);
        CLEANUP_FREE uint8_t *out = xmalloc(2000 + len), *back = xmalloc(len);
        for (size_t k = 0; k <= N_WRITTEN; k++) {
            uint32_t id = k < N_WRITTEN ? written[k] : 0x1400;
            struct err e = ERR_INIT;
            int64_t n;
            if (id == 0x1400) {
                LZ4F_preferences_t p = {0};
                p.frameInfo.contentChecksumFlag = LZ4F_contentChecksumEnabled;
                put_be32(out, id);
                n = (int64_t)LZ4F_compressFrame(out + 4, 1996 + len, in, len, &p) + 4;
            } else {
                n = compressor_compress(c, id, in, len, out, 2000 + len, true, &e);
            }
            assert_ok(n, &e);
            for (size_t cut = 0; cut < (size_t)n; cut++) {
                CLEANUP_FREE uint8_t *exact = xmalloc(cut); /* so that ASan sees reads beyond */
                memcpy(exact, out, cut);
                assert_true(compressor_expand(c, id, exact, cut, back, len, &e) < 0);
            }
            bool checked = id >> 8 == 0x10 || id >> 8 == 0x13 || id == 0x1400;
            for (size_t bit = 0; bit < (size_t)n * 8; bit++) {
                CLEANUP_FREE uint8_t *exact = xmalloc((size_t)n);
                memcpy(exact, out, (size_t)n);
                exact[bit / 8] ^= (uint8_t)(1 << bit % 8);
                if (!compressor_expand(c, id, exact, (size_t)n, back, len, &e) && checked)
                    assert_memory_equal(back, in, len);
            }
            assert_ok(n == 0 ? 0 : compressor_expand(c, id, out, (size_t)n, back, len, &e),
                      &e); /* context still fine */
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_ids_are_kopias),
        cmocka_unit_test(golden_streams_expand),
        cmocka_unit_test(contents_round_trip),
        cmocka_unit_test(zstd_frames_are_as_the_format_wants_them),
        cmocka_unit_test(foreign_frames_expand),
        cmocka_unit_test(headers_are_checked),
        cmocka_unit_test(gzip_members_follow_each_other),
        cmocka_unit_test(gzip_headers_are_read),
        cmocka_unit_test(incompressible_contents_are_stored),
        cmocka_unit_test(a_compressible_stretch_is_never_missed),
        cmocka_unit_test(programs_are_compressed),
        cmocka_unit_test(recognising_costs_far_less_than_trying),
        cmocka_unit_test(memory_stays_below_the_promise),
        cmocka_unit_test(damaged_streams_are_refused_or_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
