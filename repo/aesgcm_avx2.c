/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * aesgcm_avx2.c - AES-256-GCM with VAES and VPCLMULQDQ
 *
 * Counters. A register holds two counter blocks; eight registers, sixteen blocks, are encrypted side by side, so that
 * no round waits for the one before it.
 *
 * The tag is a polynomial over the blocks of ciphertext, in a field whose bits GCM counts the other way round than the
 * multiplication instruction. RFC 8452 (appendix A) shows the way out: with all bytes reversed, and the key multiplied
 * by x once, it is POLYVAL, whose product is that of the instruction times x^-128; and dividing by x^128 modulo
 * x^128 + x^127 + x^126 + x^121 + 1 takes two more multiplications (Montgomery's reduction, 64 bits at a time). Sixteen
 * blocks are multiplied by the sixteen powers of the key that they need, summed up, and divided together. A product of
 * two 128-bit values is made of three instead of four (Karatsuba).
 *
 * Nothing depends on data but data: no branch, no address.
 */
#include "repo/aesgcm.h"

#include "chunker/kernel.h"

#include <immintrin.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 14
#define BLOCK 16
#define PAIRS 8 /* registers of two blocks that are worked on together */
#define GROUP ((size_t)(PAIRS * 2 * BLOCK))

struct aesgcm {
    __m256i keys[ROUNDS + 1];            /* each twice */
    __m256i power[PAIRS], folded[PAIRS]; /* h^16 h^15, h^14 h^13 ... h^2 h^1; and both halves of each summed */
    __m256i counter;                     /* next two counter blocks, numbers in the CPU's order of bytes */
    __m128i hash, mask;                  /* sum so far, in POLYVAL's order; the mask of the tag */
    uint64_t aad_len, len;               /* bytes */
    uint8_t stream[BLOCK], part[BLOCK];  /* of an incomplete block: key stream, and its ciphertext */
};

bool aesgcm_usable(void)
{
    return kernel_level("AESGCM", KERNEL_AVX2) == KERNEL_AVX2;
}

struct aesgcm *aesgcm_new(void)
{
    struct aesgcm *g = aligned_alloc(64, (sizeof *g + 63) & ~(size_t)63);
    if (g)
        memset(g, 0, sizeof *g);
    return g;
}

void aesgcm_free(struct aesgcm *g)
{
    if (g)
        OPENSSL_cleanse(g, sizeof *g);
    free(g);
}

static inline __m128i load_block(const void *p)
{
    return _mm_loadu_si128(p);
}

static inline void store_block(void *p, __m128i v)
{
    _mm_storeu_si128(p, v);
}

/* ---- the field ---- */

/* Three partial products of 128 bits each, not divided yet. */
struct product {
    __m256i low, high, middle;
};

static inline __m256i fold(__m256i v)
{
    return _mm256_xor_si256(v, _mm256_shuffle_epi32(v, 0x4e));
}

static inline void add_product(struct product *sum, __m256i blocks, __m256i power, __m256i folded)
{
    sum->low = _mm256_xor_si256(sum->low, _mm256_clmulepi64_epi128(blocks, power, 0x00));
    sum->high = _mm256_xor_si256(sum->high, _mm256_clmulepi64_epi128(blocks, power, 0x11));
    sum->middle = _mm256_xor_si256(sum->middle, _mm256_clmulepi64_epi128(fold(blocks), folded, 0x00));
}

static inline __m128i both(__m256i v)
{
    return _mm_xor_si128(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}

/* Sums both lanes and divides by x^128. */
static inline __m128i divide(const struct product *p)
{
    const __m128i poly = _mm_set_epi64x((long long)0xc200000000000000, 1);
    __m128i low = both(p->low), high = both(p->high), middle = both(p->middle);
    middle = _mm_xor_si128(middle, _mm_xor_si128(low, high));
    low = _mm_xor_si128(low, _mm_slli_si128(middle, 8));
    high = _mm_xor_si128(high, _mm_srli_si128(middle, 8));
    for (int i = 0; i < 2; i++)
        low = _mm_xor_si128(_mm_shuffle_epi32(low, 0x4e), _mm_clmulepi64_si128(low, poly, 0x10));
    return _mm_xor_si128(high, low);
}

static inline __m128i multiply(__m128i a, __m128i b)
{
    struct product p = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
    __m256i wide = _mm256_zextsi128_si256(b);
    add_product(&p, _mm256_zextsi128_si256(a), wide, fold(wide));
    return divide(&p);
}

static inline __m128i reversed(__m128i v)
{
    return _mm_shuffle_epi8(v, _mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
}

static inline __m256i reversed2(__m256i v)
{
    return _mm256_shuffle_epi8(
        v, _mm256_broadcastsi128_si256(_mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)));
}

/* h * x. */
static __m128i times_x(__m128i h)
{
    const __m128i poly = _mm_set_epi64x((long long)0xc200000000000000, 1);
    __m128i carry = _mm_srli_epi64(h, 63);
    __m128i top = _mm_sub_epi64(_mm_setzero_si128(), _mm_unpackhi_epi64(carry, carry)); /* all ones on overflow */
    h = _mm_or_si128(_mm_slli_epi64(h, 1), _mm_slli_si128(carry, 8));
    return _mm_xor_si128(h, _mm_and_si128(top, poly));
}

static void make_powers(struct aesgcm *g, __m128i h)
{
    __m128i power[2 * PAIRS + 1];
    power[1] = times_x(reversed(h));
    for (unsigned i = 2; i <= 2 * PAIRS; i++)
        power[i] = multiply(power[i - 1], power[1]);
    for (unsigned i = 0; i < PAIRS; i++) {
        const unsigned first = 2 * PAIRS - 2 * i;
        g->power[i] = _mm256_set_m128i(power[first - 1], power[first]);
        g->folded[i] = fold(g->power[i]);
    }
    OPENSSL_cleanse(power, sizeof power);
}

/* One block, a whole one. */
static void hash_block(struct aesgcm *g, __m128i block)
{
    g->hash = multiply(_mm_xor_si128(g->hash, reversed(block)), _mm256_extracti128_si256(g->power[PAIRS - 1], 1));
}

static void hash_bytes(struct aesgcm *g, const uint8_t *p, size_t len)
{
    for (; len > 0;) {
        uint8_t block[BLOCK] = {0};
        size_t n = len < BLOCK ? len : BLOCK;
        memcpy(block, p, n);
        hash_block(g, load_block(block));
        p += n;
        len -= n;
    }
}

/* ---- the cipher ---- */

static inline __m128i next_key(__m128i before, __m128i word)
{
    before = _mm_xor_si128(before, _mm_slli_si128(before, 4));
    before = _mm_xor_si128(before, _mm_slli_si128(before, 8));
    return _mm_xor_si128(before, word);
}

/* Key schedule (FIPS 197, 5.2): keys in turn of a rotated and of a plain substituted word. */
static void make_keys(struct aesgcm *g, const uint8_t key[AESGCM_KEY])
{
    __m128i k[ROUNDS + 2];
    k[0] = load_block(key);
    k[1] = load_block(key + BLOCK);
#define PAIR(i, constant)                                                                                              \
    k[i] = next_key(k[(i)-2], _mm_shuffle_epi32(_mm_aeskeygenassist_si128(k[(i)-1], constant), 0xff));                 \
    k[(i) + 1] = next_key(k[(i)-1], _mm_shuffle_epi32(_mm_aeskeygenassist_si128(k[i], 0), 0xaa));
    PAIR(2, 0x01)
    PAIR(4, 0x02)
    PAIR(6, 0x04)
    PAIR(8, 0x08)
    PAIR(10, 0x10)
    PAIR(12, 0x20)
    PAIR(14, 0x40)
#undef PAIR
    for (unsigned i = 0; i <= ROUNDS; i++)
        g->keys[i] = _mm256_broadcastsi128_si256(k[i]);
    OPENSSL_cleanse(k, sizeof k);
}

static __m128i encrypt_block(const struct aesgcm *g, __m128i v)
{
    v = _mm_xor_si128(v, _mm256_castsi256_si128(g->keys[0]));
    for (unsigned r = 1; r < ROUNDS; r++)
        v = _mm_aesenc_si128(v, _mm256_castsi256_si128(g->keys[r]));
    return _mm_aesenclast_si128(v, _mm256_castsi256_si128(g->keys[ROUNDS]));
}

/* The number of a counter block is its last word, the most significant byte first. */
static inline __m256i as_blocks(__m256i counter)
{
    const __m128i order = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 15, 14, 13, 12);
    return _mm256_shuffle_epi8(counter, _mm256_broadcastsi128_si256(order));
}

/* The key stream of the next sixteen blocks. */
static inline void next_stream(struct aesgcm *g, __m256i v[PAIRS])
{
    const __m256i two = _mm256_setr_epi32(0, 0, 0, 2, 0, 0, 0, 2);
    __m256i counter = g->counter;
#pragma GCC unroll 8
    for (unsigned i = 0; i < PAIRS; i++) {
        v[i] = _mm256_xor_si256(as_blocks(counter), g->keys[0]);
        counter = _mm256_add_epi32(counter, two);
    }
    g->counter = counter;
#pragma GCC unroll 14
    for (unsigned r = 1; r < ROUNDS; r++) {
        const __m256i key = g->keys[r];
#pragma GCC unroll 8
        for (unsigned i = 0; i < PAIRS; i++)
            v[i] = _mm256_aesenc_epi128(v[i], key);
    }
#pragma GCC unroll 8
    for (unsigned i = 0; i < PAIRS; i++)
        v[i] = _mm256_aesenclast_epi128(v[i], g->keys[ROUNDS]);
}

/* Whole groups. The ciphertext is `out` when sealing, `in` when opening. */
static inline __attribute__((always_inline)) void groups(struct aesgcm *g, const uint8_t *in, size_t n, uint8_t *out,
                                                         bool seals)
{
    for (; n > 0; n--, in += GROUP, out += GROUP) {
        __m256i v[PAIRS];
        next_stream(g, v);
        struct product sum = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
        __m256i before = _mm256_zextsi128_si256(g->hash);
#pragma GCC unroll 8
        for (unsigned i = 0; i < PAIRS; i++) {
            __m256i read = _mm256_loadu_si256((const void *)(in + 2 * BLOCK * i)), write = _mm256_xor_si256(read, v[i]);
            __m256i cipher = reversed2(seals ? write : read);
            if (i == 0)
                cipher = _mm256_xor_si256(cipher, before);
            _mm256_storeu_si256((void *)(out + 2 * BLOCK * i), write);
            add_product(&sum, cipher, g->power[i], g->folded[i]);
        }
        g->hash = divide(&sum);
    }
}

/* The next counter block, encrypted. */
static __m128i stream_block(struct aesgcm *g)
{
    __m128i v = encrypt_block(g, _mm256_castsi256_si128(as_blocks(g->counter)));
    g->counter = _mm256_add_epi32(g->counter, _mm256_setr_epi32(0, 0, 0, 1, 0, 0, 0, 1));
    return v;
}

/* Up to the end of the current block, at most len; returns the number of bytes. */
static size_t crypt_bytes(struct aesgcm *g, const uint8_t *in, size_t len, uint8_t *out, bool seals)
{
    const size_t at = (size_t)(g->len % BLOCK);
    if (at == 0)
        store_block(g->stream, stream_block(g));
    size_t n = len < BLOCK - at ? len : BLOCK - at;
    for (size_t i = 0; i < n; i++) {
        const uint8_t read = in[i], write = read ^ g->stream[at + i];
        g->part[at + i] = seals ? write : read;
        out[i] = write;
    }
    g->len += n;
    if (at + n == BLOCK)
        hash_block(g, load_block(g->part));
    return n;
}

static inline __attribute__((always_inline)) void run(struct aesgcm *g, const uint8_t *in, size_t len, uint8_t *out,
                                                      bool seals)
{
    while (len > 0) {
        size_t n;
        if (g->len % BLOCK == 0 && len >= GROUP) {
            n = len - len % GROUP;
            groups(g, in, n / GROUP, out, seals);
            g->len += n;
        } else {
            n = crypt_bytes(g, in, len, out, seals);
        }
        in += n;
        out += n;
        len -= n;
    }
}

/* ---- messages ---- */

void aesgcm_aad(struct aesgcm *g, const uint8_t *aad, size_t len)
{
    g->aad_len += len;
    for (; len >= GROUP; len -= GROUP, aad += GROUP) {
        struct product sum = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
        const __m256i before = _mm256_zextsi128_si256(g->hash);
#pragma GCC unroll 8
        for (unsigned i = 0; i < PAIRS; i++) {
            __m256i blocks = reversed2(_mm256_loadu_si256((const void *)(aad + 2 * BLOCK * i)));
            add_product(&sum, i == 0 ? _mm256_xor_si256(blocks, before) : blocks, g->power[i], g->folded[i]);
        }
        g->hash = divide(&sum);
    }
    hash_bytes(g, aad, len);
}

void aesgcm_begin(struct aesgcm *g, const uint8_t key[AESGCM_KEY], const uint8_t nonce[AESGCM_NONCE],
                  const uint8_t *aad, size_t aad_len)
{
    uint8_t first[BLOCK] = {0};
    make_keys(g, key);
    make_powers(g, encrypt_block(g, _mm_setzero_si128()));
    memcpy(first, nonce, AESGCM_NONCE);
    __m256i zero = _mm256_broadcastsi128_si256(load_block(first));
    g->mask = encrypt_block(
        g, _mm256_castsi256_si128(as_blocks(_mm256_add_epi32(zero, _mm256_setr_epi32(0, 0, 0, 1, 0, 0, 0, 1)))));
    g->counter = _mm256_add_epi32(zero, _mm256_setr_epi32(0, 0, 0, 2, 0, 0, 0, 3));
    g->hash = _mm_setzero_si128();
    g->aad_len = 0;
    g->len = 0;
    aesgcm_aad(g, aad, aad_len);
}

void aesgcm_seal(struct aesgcm *g, const uint8_t *in, size_t len, uint8_t *out)
{
    run(g, in, len, out, true);
}

void aesgcm_open(struct aesgcm *g, const uint8_t *in, size_t len, uint8_t *out)
{
    run(g, in, len, out, false);
}

void aesgcm_end(struct aesgcm *g, uint8_t tag[AESGCM_TAG])
{
    hash_bytes(g, g->part, (size_t)(g->len % BLOCK));
    /* Both lengths in bits; reversed() makes the first the upper half. */
    __m128i lengths = _mm_set_epi64x((long long)(g->aad_len * 8), (long long)(g->len * 8));
    g->hash = multiply(_mm_xor_si128(g->hash, lengths), _mm256_extracti128_si256(g->power[PAIRS - 1], 1));
    store_block(tag, _mm_xor_si128(reversed(g->hash), g->mask));
    OPENSSL_cleanse(g, sizeof *g);
}
