/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * rabinkarp_avx2.c - the Rabin-Karp fingerprint in steps of eight bytes (AVX2 and PCLMULQDQ)
 *
 * One step of the rolling hash is v' = v * x^8 + in + out * x^512 - q * P, where the byte q is the quotient. Eight
 * steps are Z = v * x^64 + IN + OUT * (x^512 mod P), with eight bytes of data each in IN and OUT, followed by one
 * division of Z by P (Barrett's: two carry-less multiplications). Its remainder is the hash eight bytes later, and the
 * bytes of its quotient are those of the eight single steps, because the degree of later data is too low to change
 * them. Bits 0 to 15 of the hash at any position depend on v of the previous position, and on q, in and out by products
 * of bytes with constants, which are look-ups by nibbles: 32 positions at a time. Positions where these bits are 0
 * (under the mask) are rare, and are computed byte by byte from the nearest position whose hash was kept.
 *
 * The divisions are a chain of dependent steps; therefore STREAMS pieces of the range are divided in parallel.
 */
#include "chunker/rolling.h"

#include <immintrin.h>
#include <pthread.h>
#include <string.h>

#define STREAMS 2
#define PIECE 2048 /* bytes of a stream at a time */
#define GROUP 32   /* positions tested together; the hash at the beginning of each group is kept */

/* All values are shifted left by 64 - 53, so that a hash fills the upper end of a word and Z >> 53 is the upper word.
 */
#define SHIFT (64 - RABINKARP_DEGREE)

static struct {
    __m128i out_mu; /* x^512 mod P, shifted; x^117 / P without its highest term */
    __m128i poly;   /* P, shifted (without its highest term) */
} constants;

/* Products of a byte with P (quotient) and x^512 mod P (out): their bytes 0 and 1, by the low and high nibble. */
struct nibbles {
    __m256i low[2], high[2];
};
static struct nibbles by_quotient, by_out;
static pthread_once_t constants_once = PTHREAD_ONCE_INIT;

/* The low 64 bits of a product over GF(2). */
static uint64_t multiply_low(uint64_t a, uint64_t b)
{
    uint64_t r = 0;
    for (; b; b >>= 1, a <<= 1)
        if (b & 1)
            r ^= a;
    return r;
}

static void make_nibbles(struct nibbles *t, uint64_t factor)
{
    for (unsigned byte = 0; byte < 2; byte++) {
        uint8_t low[16], high[16];
        for (unsigned i = 0; i < 16; i++) {
            low[i] = (uint8_t)(multiply_low(factor, i) >> 8 * byte);
            high[i] = (uint8_t)(multiply_low(factor, i << 4) >> 8 * byte);
        }
        t->low[byte] = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)low));
        t->high[byte] = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)high));
    }
}

static void make_constants(void)
{
    const uint64_t top = UINT64_C(1) << RABINKARP_DEGREE;
    uint64_t out = 1; /* x^i mod P */
    for (unsigned i = 0; i < 8 * ROLLING_WINDOW; i++) {
        out <<= 1;
        if (out & top)
            out ^= RABINKARP_POLY;
    }
    uint64_t mu = 0, rest = top >> 1; /* long division of x^(53 + 64) */
    for (unsigned i = 0; i <= 64; i++) {
        rest <<= 1;
        mu <<= 1;
        if (rest & top) {
            rest ^= RABINKARP_POLY;
            mu |= 1;
        }
    }
    constants.out_mu = _mm_set_epi64x((long long)mu, (long long)(out << SHIFT));
    constants.poly = _mm_set_epi64x(0, (long long)(RABINKARP_POLY << SHIFT));
    make_nibbles(&by_quotient, RABINKARP_POLY);
    make_nibbles(&by_out, out);
}

/* Z / P for eight bytes: `v` (low word) is the shifted hash before them and is updated to the one after, `z` the
 * shifted sum of IN and OUT * (x^512 mod P). Returns the quotient (low word). */
static inline __m128i divide_by_p(__m128i *v, __m128i z, __m128i out_mu, __m128i poly)
{
    __m128i high = _mm_xor_si128(_mm_unpackhi_epi64(z, z), *v);
    __m128i t = _mm_clmulepi64_si128(high, out_mu, 0x10);
    __m128i quotient = _mm_xor_si128(high, _mm_unpackhi_epi64(t, t));
    *v = _mm_xor_si128(z, _mm_clmulepi64_si128(quotient, poly, 0x00));
    return quotient;
}

static inline __m128i load_swapped(const uint8_t *p)
{
    const __m128i swap = _mm_setr_epi8(7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8);
    return _mm_shuffle_epi8(_mm_loadu_si128((const void *)p), swap);
}

/* Sixteen steps; writes the bytes of the quotient to q; the bytes leaving the window are at p - 64 (or all zero). */
static inline void sixteen_steps(__m128i *v, const uint8_t *p, __m128i out, uint8_t *q)
{
    const __m128i out_mu = constants.out_mu, poly = constants.poly;
    __m128i in = load_swapped(p);
    __m128i low = _mm_slli_epi64(in, SHIFT), high = _mm_srli_epi64(in, 64 - SHIFT);
    __m128i z0 = _mm_xor_si128(_mm_unpacklo_epi64(low, high), _mm_clmulepi64_si128(out, out_mu, 0x00));
    __m128i z1 = _mm_xor_si128(_mm_unpackhi_epi64(low, high), _mm_clmulepi64_si128(out, out_mu, 0x01));
    __m128i q0 = divide_by_p(v, z0, out_mu, poly);
    __m128i q1 = divide_by_p(v, z1, out_mu, poly);
    const __m128i swap = _mm_setr_epi8(7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8);
    _mm_storeu_si128((void *)q, _mm_shuffle_epi8(_mm_unpacklo_epi64(q0, q1), swap));
}

/* The shifted hash of the 64 bytes before p. */
static __m128i hash_before(const uint8_t *p)
{
    uint8_t q[16];
    __m128i v = _mm_setzero_si128();
    for (int i = -ROLLING_WINDOW; i < 0; i += 16)
        sixteen_steps(&v, p + i, _mm_setzero_si128(), q);
    return v;
}

static inline uint64_t unshift_hash(__m128i v)
{
    return (uint64_t)_mm_cvtsi128_si64(v) >> SHIFT;
}

/* The quotients of a piece and the hash before each of its groups. */
struct piece {
    uint8_t q[PIECE] __attribute__((aligned(32)));
    uint64_t v[PIECE / GROUP];
};

/* Divides n bytes (a multiple of GROUP) of every stream; stream k begins at data + k * n with the hash v[k]. */
static void divide_pieces(struct piece *s, const uint8_t *data, size_t n, __m128i *v)
{
    __m128i v0 = v[0], v1 = v[1];
    for (size_t i = 0; i < n; i += GROUP) {
        const uint8_t *p0 = data + i, *p1 = p0 + n;
        s[0].v[i / GROUP] = unshift_hash(v0);
        s[1].v[i / GROUP] = unshift_hash(v1);
        for (size_t k = 0; k < GROUP; k += 16) {
            sixteen_steps(&v0, p0 + k, load_swapped(p0 + k - ROLLING_WINDOW), s[0].q + i + k);
            sixteen_steps(&v1, p1 + k, load_swapped(p1 + k - ROLLING_WINDOW), s[1].q + i + k);
        }
    }
    v[0] = v0;
    v[1] = v1;
}

static inline __m256i nibble_product(const struct nibbles *t, unsigned byte, __m256i low, __m256i high)
{
    return _mm256_xor_si256(_mm256_shuffle_epi8(t->low[byte], low), _mm256_shuffle_epi8(t->high[byte], high));
}

/* The first cut among the n positions after data[0 .. n-1], as a number of bytes from there, or 0. */
static size_t first_cut(const struct piece *s, const uint8_t *data, size_t n, uint32_t mask)
{
    const __m256i nibble = _mm256_set1_epi8(15), zero = _mm256_setzero_si256();
    const __m256i mask0 = _mm256_set1_epi8((char)mask), mask1 = _mm256_set1_epi8((char)(mask >> 8));
    const struct nibbles tq = by_quotient, to = by_out;
    __m256i before =
        _mm256_set1_epi8((char)s->v[0]); /* byte 0 of the hash of the previous group; only its last position is used */
    for (size_t i = 0; i < n; i += GROUP) {
        __m256i q = _mm256_load_si256((const void *)(s->q + i));
        __m256i out = _mm256_loadu_si256((const void *)(data + i - ROLLING_WINDOW));
        __m256i ql = _mm256_and_si256(q, nibble), qh = _mm256_and_si256(_mm256_srli_epi16(q, 4), nibble);
        __m256i ol = _mm256_and_si256(out, nibble), oh = _mm256_and_si256(_mm256_srli_epi16(out, 4), nibble);
        __m256i byte0 = _mm256_xor_si256(nibble_product(&tq, 0, ql, qh), nibble_product(&to, 0, ol, oh));
        byte0 = _mm256_xor_si256(byte0, _mm256_loadu_si256((const void *)(data + i)));
        /* Byte 0 of one position becomes part of byte 1 of the next. */
        __m256i shifted = _mm256_alignr_epi8(byte0, _mm256_permute2x128_si256(before, byte0, 0x21), 15);
        __m256i byte1 = _mm256_xor_si256(nibble_product(&tq, 1, ql, qh), nibble_product(&to, 1, ol, oh));
        byte1 = _mm256_xor_si256(byte1, shifted);
        before = byte0;
        __m256i bits = _mm256_or_si256(_mm256_and_si256(byte0, mask0), _mm256_and_si256(byte1, mask1));
        if (__builtin_expect(_mm256_movemask_epi8(_mm256_cmpeq_epi8(bits, zero)) != 0, 0)) {
            size_t cut = rabinkarp_roll(data, i, i + GROUP, mask, s->v[i / GROUP]);
            if (cut)
                return cut;
        }
    }
    return 0;
}

size_t rabinkarp_scan_avx2(const uint8_t *data, size_t from, size_t to, uint32_t mask)
{
    if (from > to)
        return 0;
    pthread_once(&constants_once, make_constants);
    __m128i v[STREAMS] = {hash_before(data + from)};
    if (!(unshift_hash(v[0]) & mask))
        return from;
    struct piece s[STREAMS];
    while (to - from >= STREAMS * GROUP) {
        size_t n = (to - from) / STREAMS < PIECE ? (to - from) / STREAMS : PIECE;
        n -= n % GROUP;
        for (unsigned k = 1; k < STREAMS; k++)
            v[k] = hash_before(data + from + k * n);
        divide_pieces(s, data + from, n, v);
        for (unsigned k = 0; k < STREAMS; k++, from += n) {
            size_t cut = first_cut(&s[k], data + from, n, mask);
            if (cut)
                return from + cut;
        }
        v[0] = v[STREAMS - 1];
    }
    return rabinkarp_roll(data, from, to, mask, unshift_hash(v[0]));
}
