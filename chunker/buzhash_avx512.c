/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * buzhash_avx512.c - Buzhash as a prefix sum of look-ups, 64 bytes at a time
 *
 * Number the bytes of the range from 0 and let b[i] be byte i. The hash after byte n is the sum (xor) of rotl(T[b[i]],
 * n - i) over the 64 bytes up to n. Rotated right by n, the contribution of a byte is R[i] = rotr(T[b[i]], i), which
 * does not depend on n. With S[n] = R[0] ^ ... ^ R[n],
 *
 *     rotr(hash, n) = S[n] ^ S[n-64].
 *
 * Each byte is therefore looked up and rotated once, and the mask is rotated instead of the hash: the hash is 0 under
 * `mask` where S[n] ^ S[n-64] is 0 under rotr(mask, n). A step is 64 bytes, twice the word size, so that all rotations
 * are constants of the position within the step, and S[n-64] is the value of the previous step at that position.
 *
 * Look-up: the table is 4 x 256 bytes, one plane for each byte of the words; a plane is four registers searched by
 * VPERMB with the low six bits of an index; the upper two select the register by merge masks. Two stages of unpacking
 * convert planes to words and place byte 16 L + 4 k + m in word 4 L + m of vector k; the bytes are shuffled first so
 * that this is byte 4 w + k of the step in word w of vector k. The sums within the four bytes of a word are then sums
 * over vectors, without a shuffle, and only those of whole words run across a vector, in four steps for all 64 bytes.
 *
 * Hits are tested once per GROUP steps, by the minimum of all masked values; the position is then determined by the
 * scalar code.
 */
#include "chunker/rolling.h"

#include <immintrin.h>
#include <stdbool.h>

#define STEP 64
#define GROUP 4 /* steps between two tests */

/* The table of the hash. */
struct tables {
    __m512i plane[4][4]; /* [byte of the word][upper two bits of the index] */
};

/* Constants of the positions within a step. */
struct places {
    __m512i mask[4]; /* rotr(mask, position), [k] for the positions 4 w + k */
    __m512i rotate[4];
    __m512i order;        /* of bytes in 16 */
    __m512i last_of_four; /* number of the word before each upper half of eight */
};

/* S of a step, [k] for its positions 4 w + k. */
struct sums {
    __m512i s[4];
};

static void make_tables(struct tables *t)
{
    uint8_t planes[4][256] __attribute__((aligned(64)));
    for (unsigned i = 0; i < 256; i++)
        for (unsigned byte = 0; byte < 4; byte++)
            planes[byte][i] = (uint8_t)(buzhash_table[i] >> 8 * byte);
    for (unsigned byte = 0; byte < 4; byte++)
        for (unsigned quarter = 0; quarter < 4; quarter++)
            t->plane[byte][quarter] = _mm512_load_si512(&planes[byte][64 * quarter]);
}

static void make_places(struct places *p, uint32_t mask)
{
    const __m512i words = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60);
    for (unsigned k = 0; k < 4; k++) {
        p->rotate[k] = _mm512_add_epi32(words, _mm512_set1_epi32((int)k)); /* VPRORVD takes them modulo 32 */
        p->mask[k] = _mm512_rorv_epi32(_mm512_set1_epi32((int)mask), p->rotate[k]);
    }
    p->order = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    p->last_of_four = _mm512_setr_epi32(3, 3, 3, 3, 3, 3, 3, 3, 11, 11, 11, 11, 11, 11, 11, 11);
}

/* One plane of 64 look-ups. */
static inline __m512i look_up(const __m512i plane[4], __m512i bytes, __mmask64 odd, __mmask64 third, __mmask64 fourth)
{
    __m512i v = _mm512_permutexvar_epi8(bytes, plane[0]);
    v = _mm512_mask_permutexvar_epi8(v, odd, bytes, plane[1]);
    v = _mm512_mask_permutexvar_epi8(v, third, bytes, plane[2]);
    return _mm512_mask_permutexvar_epi8(v, fourth, bytes, plane[3]);
}

static inline __m512i xor_vec(__m512i a, __m512i b)
{
    return _mm512_xor_si512(a, b);
}

/* Sums over one step of bytes, continuing from `before`. */
static inline struct sums advance_sums(const struct tables *t, const struct places *p, const struct sums *before,
                                       __m512i bytes)
{
    bytes = _mm512_shuffle_epi8(bytes, p->order);
    __mmask64 upper = _mm512_movepi8_mask(bytes), odd = _mm512_movepi8_mask(_mm512_add_epi8(bytes, bytes));
    __mmask64 third = _kandn_mask64(odd, upper), fourth = _kand_mask64(odd, upper);
    __m512i b0 = look_up(t->plane[0], bytes, odd, third, fourth), b1 = look_up(t->plane[1], bytes, odd, third, fourth),
            b2 = look_up(t->plane[2], bytes, odd, third, fourth), b3 = look_up(t->plane[3], bytes, odd, third, fourth);
    __m512i low = _mm512_unpacklo_epi8(b0, b1), high = _mm512_unpackhi_epi8(b0, b1);
    __m512i low2 = _mm512_unpacklo_epi8(b2, b3), high2 = _mm512_unpackhi_epi8(b2, b3);
    __m512i r0 = _mm512_rorv_epi32(_mm512_unpacklo_epi16(low, low2), p->rotate[0]);
    __m512i r1 = _mm512_rorv_epi32(_mm512_unpackhi_epi16(low, low2), p->rotate[1]);
    __m512i r2 = _mm512_rorv_epi32(_mm512_unpacklo_epi16(high, high2), p->rotate[2]);
    __m512i r3 = _mm512_rorv_epi32(_mm512_unpackhi_epi16(high, high2), p->rotate[3]);
    r1 = xor_vec(r1, r0);
    r2 = xor_vec(r2, r1);
    r3 = xor_vec(r3, r2);

    /* Sums of words across the vector: the sum of the lower half is added to the upper half of every 2, 4, 8 and 16
     * words; then the sum of all bytes before the step. */
    __m512i w = xor_vec(r3, _mm512_slli_epi64(r3, 32));
    w = _mm512_mask_xor_epi32(w, 0xcccc, w, _mm512_shuffle_epi32(w, _MM_PERM_BBBB));
    w = _mm512_mask_xor_epi32(w, 0xf0f0, w, _mm512_permutexvar_epi32(p->last_of_four, w));
    w = _mm512_mask_xor_epi32(w, 0xff00, w, _mm512_permutexvar_epi32(_mm512_set1_epi32(7), w));
    w = xor_vec(w, _mm512_permutexvar_epi32(_mm512_set1_epi32(15), before->s[3]));
    __m512i base = _mm512_alignr_epi32(w, before->s[3], 15); /* S before each word */
    return (struct sums){{xor_vec(r0, base), xor_vec(r1, base), xor_vec(r2, base), w}};
}

/* Some word is 0 if and only if a position of the step hits. */
static inline __m512i step_hits(const struct places *p, const struct sums *now, const struct sums *before)
{
    enum { XOR_AND = 0x28 }; /* (a ^ b) & c */
    __m512i h0 = _mm512_ternarylogic_epi32(now->s[0], before->s[0], p->mask[0], XOR_AND);
    __m512i h1 = _mm512_ternarylogic_epi32(now->s[1], before->s[1], p->mask[1], XOR_AND);
    __m512i h2 = _mm512_ternarylogic_epi32(now->s[2], before->s[2], p->mask[2], XOR_AND);
    __m512i h3 = _mm512_ternarylogic_epi32(now->s[3], before->s[3], p->mask[3], XOR_AND);
    return _mm512_min_epu32(_mm512_min_epu32(h0, h1), _mm512_min_epu32(h2, h3));
}

/* Scans `n` whole groups after the window that ends at data[0]. Returns the start of the first group with a hit, or n
 * groups. */
static size_t scan_groups(const struct tables *t, const struct places *p, const struct sums *s, const uint8_t *data,
                          size_t n)
{
    size_t pos = 0;
    struct sums before = *s;
    for (; pos < n * GROUP * STEP; pos += GROUP * STEP) {
        __m512i least = _mm512_set1_epi32(-1);
#pragma GCC unroll 4
        for (unsigned i = 0; i < GROUP; i++) {
            struct sums now = advance_sums(t, p, &before, _mm512_loadu_si512(data + pos + i * STEP));
            least = _mm512_min_epu32(least, step_hits(p, &now, &before));
            before = now;
        }
        if (_mm512_testn_epi32_mask(least, least))
            break;
    }
    return pos;
}

size_t buzhash_scan_avx512(const uint8_t *data, size_t from, size_t to, uint32_t mask)
{
    if (from > to)
        return 0;
    /* The position `from` itself, which hits in runs of equal bytes. */
    size_t cut = buzhash_scan_scalar(data, from, from, mask);
    if (cut || to - from < 2 * GROUP * STEP)
        return cut || from == to ? cut : buzhash_scan_scalar(data, from + 1, to, mask);
    struct tables t;
    struct places p;
    make_tables(&t);
    make_places(&p, mask);
    struct sums s = {{_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()}};
    s = advance_sums(&t, &p, &s, _mm512_loadu_si512(data + from - ROLLING_WINDOW));
    size_t groups = (to - from) / (GROUP * STEP);
    size_t pos = from + scan_groups(&t, &p, &s, data + from, groups);
    /* The group with the hit, or the rest. */
    return pos < to ? buzhash_scan_scalar(data, pos + 1, to, mask) : 0;
}
