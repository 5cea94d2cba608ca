/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * buzhash_avx2.c - Buzhash at eight positions in parallel
 *
 * The hash is linear: the contribution of the byte at position j of a block to the hash at position k >= j is
 * rotl(T[byte], k-j), independent of the other bytes. Each byte therefore has a row of T rotated by 0 to 7, with zeros
 * on one side; read at offset j, it is the contribution of the byte to all eight positions, and eight look-ups XORed
 * together are the contribution of the block, without a chain of dependent steps and without moves between lanes. The
 * byte that leaves the window 64 = 2 * 32 steps later has been rotated completely: its contribution is that of the
 * block eight blocks ago, kept in registers, so that each byte is looked up once. The contribution of bytes before the
 * block is the hash at its beginning, rotated by 1 to 8.
 */
#include "chunker/rolling.h"

#include <immintrin.h>
#include <pthread.h>
#include <string.h>

#define LANES 8
#define BLOCKS (ROLLING_WINDOW / LANES) /* blocks of a window; also the number of blocks between two tests */
#define ROW_SHIFT 6                     /* a row has 64 bytes, so that its loads do not cross cache lines */
#define ROW_INDEX (0xffU << ROW_SHIFT)

/* rows[b][i] = rotl(T[b], 7 - i) for i < 8, then zeros. Lanes are in reverse: lane 0 is the last position of a block.
 */
static uint32_t rows[256][1 << ROW_SHIFT >> 2] __attribute__((aligned(64)));
static pthread_once_t rows_once = PTHREAD_ONCE_INIT;

static void make_rows(void)
{
    for (unsigned b = 0; b < 256; b++) {
        uint32_t t = buzhash_table[b];
        for (unsigned i = LANES; i-- > 0; t = t << 1 | t >> 31)
            rows[b][i] = t;
    }
}

/*
 * Address of the row of byte j of `bytes`, offset for position j. The bytes are extracted from a register, because two
 * look-ups with loads of their own would slow each other down; the compiler, which would replace the rotation (one
 * instruction) and the mask by a move, a shift and a mask, is prevented from seeing both at once.
 */
static inline const void *row_address(const uint8_t *table, uint64_t bytes, unsigned j)
{
    const unsigned left = (64 + ROW_SHIFT - 8 * j) % 64;
    uint64_t index = bytes << left | bytes >> (64 - left);
    __asm__("" : "+r"(index));
    return table + ((uint32_t)index & ROW_INDEX) + sizeof(uint32_t) * j;
}

/* v ^ row as one instruction; paired instructions would need separate loads. */
static inline __m256i add_row(__m256i v, const void *row)
{
    v = _mm256_xor_si256(v, _mm256_loadu_si256(row));
    __asm__("" : "+x"(v));
    return v;
}

/* Contribution of the eight bytes at p to the hash at each of their positions. */
static inline __m256i block_share(const uint8_t *table, const uint8_t *p)
{
    uint64_t bytes;
    memcpy(&bytes, p, sizeof bytes);
    __m256i v = _mm256_loadu_si256(row_address(table, bytes, 0));
    v = add_row(v, row_address(table, bytes, 1));
    v = add_row(v, row_address(table, bytes, 2));
    v = add_row(v, row_address(table, bytes, 3));
    v = add_row(v, row_address(table, bytes, 4));
    v = add_row(v, row_address(table, bytes, 5));
    v = add_row(v, row_address(table, bytes, 6));
    return add_row(v, row_address(table, bytes, 7));
}

/* The hash (the same in all lanes) at the end of a block with the contribution `add`. A rotation by 8 is a byte
 * shuffle. */
static inline __m256i next_hash(__m256i hash, __m256i add)
{
    const __m256i rotl8 = _mm256_setr_epi8(3, 0, 1, 2, 7, 4, 5, 6, 11, 8, 9, 10, 15, 12, 13, 14, 3, 0, 1, 2, 7, 4, 5, 6,
                                           11, 8, 9, 10, 15, 12, 13, 14);
    return _mm256_xor_si256(_mm256_shuffle_epi8(hash, rotl8), _mm256_broadcastd_epi32(_mm256_castsi256_si128(add)));
}

static inline int any_zero(__m256i v)
{
    __m256i zero = _mm256_cmpeq_epi32(v, _mm256_setzero_si256());
    return !_mm256_testz_si256(zero, zero);
}

size_t buzhash_scan_avx2(const uint8_t *data, size_t from, size_t to, uint32_t mask)
{
    if (from > to)
        return 0;
    pthread_once(&rows_once, make_rows);
    const uint8_t *table = (const uint8_t *)rows;
    const __m256i left = _mm256_setr_epi32(8, 7, 6, 5, 4, 3, 2, 1),
                  right = _mm256_setr_epi32(24, 25, 26, 27, 28, 29, 30, 31), masks = _mm256_set1_epi32((int)mask);

    __m256i window[BLOCKS], hash = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (unsigned b = 0; b < BLOCKS; b++) {
        window[b] = block_share(table, data + from - ROLLING_WINDOW + LANES * b);
        hash = next_hash(hash, window[b]);
    }
    if (any_zero(_mm256_and_si256(hash, masks)))
        return from;

    for (; to - from >= ROLLING_WINDOW; from += ROLLING_WINDOW) {
        __m256i lowest = _mm256_set1_epi32(-1);
#pragma GCC unroll 8
        for (unsigned b = 0; b < BLOCKS; b++) {
            __m256i in = block_share(table, data + from + LANES * b);
            __m256i add = _mm256_xor_si256(in, window[b]);
            __m256i before = _mm256_xor_si256(_mm256_sllv_epi32(hash, left), _mm256_srlv_epi32(hash, right));
            __m256i here = _mm256_and_si256(_mm256_xor_si256(before, add), masks);
            lowest = _mm256_min_epu32(lowest, here);
            window[b] = in;
            hash = next_hash(hash, add);
        }
        /* Hits are rare: the position is determined by the scalar code. */
        if (__builtin_expect(any_zero(lowest), 0))
            return buzhash_scan_scalar(data, from + 1, from + ROLLING_WINDOW, mask);
    }
    return from < to ? buzhash_scan_scalar(data, from + 1, to, mask) : 0;
}
