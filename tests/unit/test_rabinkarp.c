/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The Rabin-Karp scans, called as they are, against the definition bit by bit; test_splitter has Kopia's own cuts. */
#include "tests/unit/test.h"

#include "chunker/kernel.h"
#include "chunker/rolling.h"

static const struct {
    const char *name;
    enum kernel_level level;
    rolling_scan_fn *scan;
} kernels[] = {
    {"scalar", KERNEL_SCALAR, rabinkarp_scan_scalar},
    {"avx2", KERNEL_AVX2, rabinkarp_scan_avx2},
};
#define FOR_EACH_KERNEL(k)                                                                                             \
    for (size_t k = 0; k < sizeof kernels / sizeof kernels[0]; k++)                                                    \
        if (kernels[k].level <= kernel_cpu_level())

static uint64_t append_bits(uint64_t v, uint8_t b)
{
    for (int i = 7; i >= 0; i--) {
        v = v << 1 | (b >> i & 1);
        if (v >> 53 & 1)
            v ^= UINT64_C(0x2e3e3e4a305605);
    }
    return v;
}

/* The hash of the 64 bytes before p. */
static uint64_t hash_at(const uint8_t *p)
{
    uint64_t v = 0;
    for (int i = -ROLLING_WINDOW; i < 0; i++)
        v = append_bits(v, p[i]);
    return v;
}

/* hashes[n] for n in [64, len], by the definition. */
static uint64_t *all_hashes(const uint8_t *data, size_t len)
{
    uint64_t *h = calloc(len + 1, sizeof *h);
    assert_non_null(h);
    for (size_t n = ROLLING_WINDOW; n <= len; n++)
        h[n] = hash_at(data + n);
    return h;
}

static size_t first_by_definition(const uint64_t *hashes, size_t from, size_t to, uint32_t mask)
{
    for (size_t n = from; n <= to; n++)
        if (!(hashes[n] & mask))
            return n;
    return 0;
}

static void check_range(const uint8_t *data, const uint64_t *hashes, size_t from, size_t to, uint32_t mask)
{
    size_t want = first_by_definition(hashes, from, to, mask);
    FOR_EACH_KERNEL(k)
    {
        size_t got = kernels[k].scan(data, from, to, mask);
        if (got != want)
            fail_msg("%s: [%zu, %zu] & %#x: %zu, not %zu", kernels[k].name, from, to, mask, got, want);
    }
}

/* Any range of data that begins anywhere in memory and ends with its allocation, under masks of every width: small ones
 * hit often, at any place of a group, and those of more than 16 bits have false alarms. */
static void any_range_and_mask(void **state)
{
    (void)state;
    uint64_t seed = 53;
    for (int round = 0; round < 24; round++) {
        size_t offset = splitmix64(&seed) % 64, len = ROLLING_WINDOW + splitmix64(&seed) % 12000;
        uint8_t *mem = malloc(offset + len);
        assert_non_null(mem);
        uint8_t *data = mem + offset;
        for (size_t i = 0; i < len; i++)
            data[i] = (uint8_t)(round % 4 ? splitmix64(&seed) : i / 3 % (unsigned)(round + 2));
        uint64_t *hashes = all_hashes(data, len);
        for (unsigned bits = 0; bits <= 32; bits++) {
            uint32_t mask = (uint32_t)((UINT64_C(1) << bits) - 1);
            for (int i = 0; i < 12; i++) {
                size_t from = ROLLING_WINDOW + splitmix64(&seed) % (len - ROLLING_WINDOW + 1);
                size_t to = from + splitmix64(&seed) % (len - from + 1);
                check_range(data, hashes, i % 3 ? from : ROLLING_WINDOW, i % 2 ? to : len, mask);
            }
            check_range(data, hashes, len, len, mask);
        }
        check_range(data, hashes, ROLLING_WINDOW, len, 0xff00); /* no splitter's mask, but a mask */
        check_range(data, hashes, ROLLING_WINDOW, len, 0xffff0000);
        free(hashes);
        free(mem);
    }
}

/* One hit at every place of a range that has several rounds of pieces, borders and a tail. */
static void every_place(void **state)
{
    (void)state;
    enum { LEN = 64 + 3 * 4096 + 77 };
    uint64_t seed = 1;
    uint8_t *data = malloc(LEN);
    assert_non_null(data);
    for (size_t i = 0; i < LEN; i++)
        data[i] = (uint8_t)(splitmix64(&seed) | 1);
    for (size_t hit = ROLLING_WINDOW; hit <= LEN; hit++) {
        uint8_t saved[ROLLING_WINDOW];
        memcpy(saved, data + hit - ROLLING_WINDOW, ROLLING_WINDOW);
        memset(data + hit - ROLLING_WINDOW, 0, ROLLING_WINDOW);
        FOR_EACH_KERNEL(k)
        {
            assert_int_equal(kernels[k].scan(data, ROLLING_WINDOW, LEN, 0xffffffff), hit);
            if (hit > ROLLING_WINDOW)
                assert_int_equal(kernels[k].scan(data, ROLLING_WINDOW, hit - 1, 0xffffffff), 0);
            if (hit < LEN)
                assert_int_equal(kernels[k].scan(data, hit + 1, LEN, 0xffffffff), 0);
        }
        memcpy(data + hit - ROLLING_WINDOW, saved, ROLLING_WINDOW);
    }
    free(data);
}

/* Long ranges with the masks of all named splitters (17 to 23 bits): every hit of 8 MiB of noise. */
static void masks_of_the_splitters(void **state)
{
    (void)state;
    enum { LEN = 8 << 20 };
    uint64_t seed = 4;
    uint8_t *data = malloc(LEN);
    assert_non_null(data);
    for (size_t i = 0; i < LEN; i += 8) {
        uint64_t r = splitmix64(&seed);
        memcpy(data + i, &r, 8);
    }
    for (unsigned bits = 17; bits <= 23; bits++) {
        uint32_t mask = (1U << bits) - 1;
        size_t hits = 0;
        for (size_t at = ROLLING_WINDOW, cut; (cut = rabinkarp_scan_scalar(data, at, LEN, mask)) != 0; at = cut + 1) {
            FOR_EACH_KERNEL(k)
            assert_int_equal(kernels[k].scan(data, at, LEN, mask), cut);
            assert_true((hash_at(data + cut) & mask) == 0);
            hits++;
        }
        assert_true(bits > 20 || hits > 0);
    }
    FOR_EACH_KERNEL(k)
    {
        assert_int_equal(kernels[k].scan(data, 65, 64, 0), 0);
        assert_int_equal(kernels[k].scan(data, 64, 64, 0), 64);
    }
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_range_and_mask),
        cmocka_unit_test(every_place),
        cmocka_unit_test(masks_of_the_splitters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
