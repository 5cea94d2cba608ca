/* SPDX-License-Identifier: GPL-2.0-or-later */
/* AES-256-GCM on two blocks an instruction against the library's, and against the specification's test cases. */
#include "tests/unit/test.h"

#include "repo/aesgcm.h"

#include "base/bytes.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#define LEN_MAX 5000

static uint64_t seed = 7;

static uint64_t rnd(uint64_t below)
{
    seed += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = seed;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % below;
}

static void fill(uint8_t *p, size_t len)
{
    for (size_t i = 0; i < len; i++)
        p[i] = (uint8_t)rnd(256);
}

/* The twin. */
static void library(const uint8_t *key, const uint8_t *nonce, const uint8_t *aad, size_t aad_len, const uint8_t *in,
                    size_t len, uint8_t *out, uint8_t *tag)
{
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    int n;
    assert_non_null(c);
    assert_int_equal(EVP_EncryptInit_ex(c, EVP_aes_256_gcm(), NULL, key, nonce), 1);
    if (aad_len)
        assert_int_equal(EVP_EncryptUpdate(c, NULL, &n, aad, (int)aad_len), 1);
    if (len)
        assert_int_equal(EVP_EncryptUpdate(c, out, &n, in, (int)len), 1);
    assert_int_equal(EVP_EncryptFinal_ex(c, out + len, &n), 1);
    assert_int_equal(EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_GET_TAG, 16, tag), 1);
    EVP_CIPHER_CTX_free(c);
}

static void in_steps(struct aesgcm *g, bool seals, const uint8_t *in, size_t len, uint8_t *out, uint64_t longest)
{
    while (len > 0) {
        size_t n = 1 + rnd(longest);
        n = n < len ? n : len;
        (seals ? aesgcm_seal : aesgcm_open)(g, in, n, out);
        in += n;
        out += n;
        len -= n;
    }
}

static struct aesgcm *usable(void)
{
    if (!aesgcm_usable()) {
        print_message("this CPU has no VAES: the library does it\n");
        skip();
    }
    struct aesgcm *g = aesgcm_new();
    assert_non_null(g);
    return g;
}

static void as_the_library(void **state)
{
    (void)state;
    struct aesgcm *g = usable();
    static uint8_t in[LEN_MAX], want[LEN_MAX + 16], got[LEN_MAX + 32], back[LEN_MAX];
    for (unsigned i = 0; i < 6000; i++) {
        uint8_t key[32], nonce[12], aad[80], tag[16], own[16];
        size_t len = i < 600 ? i : rnd(LEN_MAX + 1), aad_len = i % 5 ? 16 : rnd(sizeof aad + 1), at = rnd(17);
        fill(key, sizeof key);
        fill(nonce, sizeof nonce);
        fill(aad, sizeof aad);
        fill(in, len);
        library(key, nonce, aad, aad_len, in, len, want, tag);
        uint64_t longest = i % 3 ? 1 + rnd(LEN_MAX) : 40;
        aesgcm_begin(g, key, nonce, aad, aad_len);
        in_steps(g, true, in, len, got + at, longest);
        aesgcm_end(g, own);
        assert_memory_equal(got + at, want, len);
        assert_memory_equal(own, tag, 16);
        aesgcm_begin(g, key, nonce, aad, aad_len);
        in_steps(g, false, got + at, len, i % 2 ? got + at : back, longest);
        aesgcm_end(g, own);
        assert_memory_equal(i % 2 ? got + at : back, in, len);
        assert_memory_equal(own, tag, 16);
    }
    aesgcm_free(g);
}

/* A content of the largest size, and lengths around what is worked on together. */
static void long_messages(void **state)
{
    (void)state;
    struct aesgcm *g = usable();
    static const size_t lens[] = {255, 256, 257, 511, 512, 513, 65535, 1 << 20, (8 << 20) - 1, 8 << 20};
    uint8_t *in = malloc(8 << 20), *want = malloc((8 << 20) + 16), *got = malloc(8 << 20);
    assert_true(in && want && got);
    fill(in, 8 << 20);
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        uint8_t key[32], nonce[12], tag[16], own[16];
        fill(key, sizeof key);
        fill(nonce, sizeof nonce);
        library(key, nonce, key, 16, in, lens[i], want, tag);
        aesgcm_begin(g, key, nonce, key, 16);
        aesgcm_seal(g, in, lens[i], got);
        aesgcm_end(g, own);
        assert_memory_equal(got, want, lens[i]);
        assert_memory_equal(own, tag, 16);
    }
    free(in);
    free(want);
    free(got);
    aesgcm_free(g);
}

/* The GCM specification (McGrew, Viega), test cases 13 to 16. */
static void specification(void **state)
{
    (void)state;
    struct aesgcm *g = usable();
    static const struct {
        const char *key, *nonce, *aad, *plain, *cipher, *tag;
    } cases[] = {
        {"0000000000000000000000000000000000000000000000000000000000000000", "000000000000000000000000", "", "", "",
         "530f8afbc74536b9a963b4f1c4cb738b"},
        {"0000000000000000000000000000000000000000000000000000000000000000", "000000000000000000000000", "",
         "00000000000000000000000000000000", "cea7403d4d606b6e074ec5d3baf39d18", "d0d1c8a799996bf0265b98b5d48ab919"},
        {"feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308", "cafebabefacedbaddecaf888", "",
         "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de"
         "6"
         "57ba637b391aafd255",
         "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7"
         "a"
         "0abcc9f662898015ad",
         "b094dac5d93471bdec1a502270e3cc6c"},
        {"feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308", "cafebabefacedbaddecaf888",
         "feedfacedeadbeeffeedfacedeadbeefabaddad2",
         "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de"
         "6"
         "57ba637b39",
         "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7"
         "a"
         "0abcc9f662",
         "76fc6ece0f4e1768cddf8853bb2d551b"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t key[32], nonce[12], aad[32], plain[64], cipher[64], tag[16], got[64], own[16];
        size_t len = strlen(cases[i].plain) / 2, aad_len = strlen(cases[i].aad) / 2;
        assert_int_equal(hex_decode(key, cases[i].key, 64), 0);
        assert_int_equal(hex_decode(nonce, cases[i].nonce, 24), 0);
        assert_int_equal(hex_decode(aad, cases[i].aad, 2 * aad_len), 0);
        assert_int_equal(hex_decode(plain, cases[i].plain, 2 * len), 0);
        assert_int_equal(hex_decode(cipher, cases[i].cipher, 2 * len), 0);
        assert_int_equal(hex_decode(tag, cases[i].tag, 32), 0);
        aesgcm_begin(g, key, nonce, aad, aad_len);
        aesgcm_seal(g, plain, len, got);
        aesgcm_end(g, own);
        assert_memory_equal(got, cipher, len);
        assert_memory_equal(own, tag, 16);
    }
    aesgcm_free(g);
    aesgcm_free(NULL);
}

static void the_environment_decides(void **state)
{
    (void)state;
    setenv("SNAPFERRY_KERNEL_AESGCM", "scalar", 1);
    assert_false(aesgcm_usable());
    unsetenv("SNAPFERRY_KERNEL_AESGCM");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_the_library),
        cmocka_unit_test(long_messages),
        cmocka_unit_test(specification),
        cmocka_unit_test(the_environment_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
