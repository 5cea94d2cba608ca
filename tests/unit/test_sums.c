/* SPDX-License-Identifier: GPL-2.0-or-later */
/* MD5 and SHA-256 of several bodies at a time, each kernel against OpenSSL, which computes one after the other. */
#include "tests/unit/levels.h"
#include "tests/unit/test.h"

#include "chunker/kernel.h"
#include "chunker/sums.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint8_t noise[600000];

/* A file of so many random bytes, and some behind them that are not to be summed. */
static int file_of(size_t len, const uint8_t **ret)
{
    int fd = memfd_create("body", MFD_CLOEXEC);
    assert_true(fd >= 0);
    *ret = noise + (size_t)rand() % 250000;
    assert_true(len + 100 <= 350000);
    assert_int_equal(write(fd, *ret, len + 100), len + 100);
    return fd;
}

static void expect_sums(const struct body_sums *got, const uint8_t *data, size_t len, bool sha)
{
    uint8_t want[EVP_MAX_MD_SIZE];
    assert_int_equal(EVP_Digest(data, len, want, NULL, EVP_md5(), NULL), 1);
    assert_memory_equal(got->md5, want, 16);
    if (!sha)
        return;
    assert_int_equal(EVP_Digest(data, len, want, NULL, EVP_sha256(), NULL), 1);
    assert_memory_equal(got->sha256, want, 32);
}

static void check_lengths(const size_t *lengths, size_t n, bool sha)
{
    struct sums_body all[SUMS_BODIES] = {0};
    const uint8_t *data[SUMS_BODIES];
    struct err e = ERR_INIT;
    for (size_t i = 0; i < n; i++)
        all[i] = (struct sums_body){.fd = file_of(lengths[i], &data[i]), .length = lengths[i]};
    assert_ok(sums_of_files(all, n, sha, &e), &e);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(all[i].rc, 0);
        expect_sums(&all[i].sums, data[i], lengths[i], sha);
        close(all[i].fd);
    }
}

/* RFC 1321, A.5, and FIPS 180-4. */
static void known_sums(void **state)
{
    (void)state;
    static const uint8_t md5[16] = {0x90, 0x01, 0x50, 0x98, 0x3c, 0xd2, 0x4f, 0xb0,
                                    0xd6, 0x96, 0x3f, 0x7d, 0x28, 0xe1, 0x7f, 0x72};
    static const uint8_t sha[8] = {0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea};
    struct body_sums m;
    struct err e = ERR_INIT;
    assert_ok(sums_of_memory("abc", 3, true, &m, &e), &e);
    assert_memory_equal(m.md5, md5, 16);
    assert_memory_equal(m.sha256, sha, 8);
    int fd = memfd_create("abc", MFD_CLOEXEC);
    assert_int_equal(write(fd, "abc", 3), 3);
    struct sums_body all[2] = {{.fd = fd, .length = 3}, {.fd = fd, .length = 0}};
    assert_ok(sums_of_files(all, 2, true, &e), &e);
    assert_memory_equal(all[0].sums.md5, md5, 16);
    assert_memory_equal(all[0].sums.sha256, sha, 8);
    expect_sums(&all[1].sums, (const uint8_t *)"", 0, true);
    close(fd);
}

/* Around the blocks, where the padding takes one or two, and around the pieces that are read. */
static void lengths_around_blocks_and_pieces(void **state)
{
    (void)state;
    static const size_t edges[] = {1,   54,    55,    56,    57,    63,    64,    65,    119,   120,
                                   128, 32767, 32768, 32769, 32823, 32824, 65535, 65536, 65537, 98304};
    const size_t n = sizeof edges / sizeof *edges;
    for (size_t i = 0; i < n; i++) {
        const size_t some[] = {edges[i], edges[(i + 7) % n], edges[(i + 3) % n]};
        check_lengths(some, 1, true);
        check_lengths(some, 3, true);
        check_lengths(some, 2, false);
    }
}

static void any_number_of_any_length(void **state)
{
    (void)state;
    srand(11);
    for (unsigned round = 0; round < 60; round++) {
        size_t lengths[SUMS_BODIES];
        const size_t n = 1 + (size_t)rand() % SUMS_BODIES;
        for (size_t i = 0; i < n; i++)
            lengths[i] = (size_t)rand() % (round % 3 ? 300000 : 300);
        check_lengths(lengths, n, round % 2);
    }
}

/* What cannot be read is told of that body alone. */
static void a_file_that_is_too_short(void **state)
{
    (void)state;
    static const size_t lengths[] = {200000, 70000, 200000};
    struct sums_body all[3];
    const uint8_t *data[3];
    struct err e = ERR_INIT;
    for (size_t i = 0; i < 3; i++)
        all[i] = (struct sums_body){.fd = file_of(lengths[i], &data[i]), .length = lengths[i] + (i == 1 ? 101 : 0)};
    all[2].fd = -1;
    assert_ok(sums_of_files(all, 3, true, &e), &e);
    assert_int_equal(all[0].rc, 0);
    expect_sums(&all[0].sums, data[0], lengths[0], true);
    assert_int_equal(all[1].rc, -ENODATA);
    assert_int_equal(all[2].rc, -EBADF);
    close(all[0].fd);
    close(all[1].fd);
}

static void several_gain_only_with_a_kernel(void **state)
{
    (void)state;
    assert_int_equal(sums_at_a_time(), kernel_level("MD5", KERNEL_AVX512) == KERNEL_SCALAR ? 1 : SUMS_BODIES);
}

static int run(void)
{
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (uint8_t)rand();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_sums),
        cmocka_unit_test(lengths_around_blocks_and_pieces),
        cmocka_unit_test(any_number_of_any_length),
        cmocka_unit_test(a_file_that_is_too_short),
        cmocka_unit_test(several_gain_only_with_a_kernel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    static const char *const kernels[] = {"MD5", "SHA256", NULL};
    return run_at_every_level(kernels, run);
}
