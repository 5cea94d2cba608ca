/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_kdf.c - scrypt against RFC 7914 and the library's own; too little memory is told. */
#include "repo/format.h"
#include "repo/scrypt.h"
#include "tests/unit/test.h"

#include <openssl/evp.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* RFC 7914, section 12: that of its vectors which has r = 8, p = 1 and does not take 1 GiB. */
static void rfc_vector(void **state)
{
    (void)state;
    static const char hex[] = "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2"
                              "d5432955613f0fcf62d49705242a9af9e61e85dc0d651e40dfcf017b45575887";
    struct err e = ERR_INIT;
    uint8_t want[64], got[64];
    assert_int_equal(hex_decode(want, hex, 128), 0);
    assert_ok(scrypt_r8_p1("pleaseletmein", (const uint8_t *)"SodiumChloride", 14, 16384, got, 64, &e), &e);
    assert_memory_equal(got, want, 64);
}

static void twin_of_the_library(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    uint8_t salt[100], want[200], got[200];
    char password[120];
    for (unsigned i = 0; i < sizeof salt; i++)
        salt[i] = (uint8_t)(i * 37 + 11);
    for (unsigned i = 0; i < 60; i++) {
        size_t pw_len = i * 2, salt_len = i * 5 % sizeof salt, out_len = 1 + i * 13 % sizeof got;
        uint32_t n = 2u << i % 11;
        memset(password, 'a' + (int)(i % 26), pw_len);
        password[pw_len] = '\0';
        assert_int_equal(EVP_PBE_scrypt(password, pw_len, salt, salt_len, n, 8, 1, 64 << 20, want, out_len), 1);
        memset(got, 0, sizeof got);
        assert_ok(scrypt_r8_p1(password, salt, salt_len, n, got, out_len, &e), &e);
        assert_memory_equal(got, want, out_len);
    }
    /* What the format uses. */
    assert_int_equal(EVP_PBE_scrypt("secret", 6, salt, 32, 65536, 8, 1, 80 << 20, want, 32), 1);
    assert_ok(format_derive_key("scrypt-65536-8-1", "secret", salt, 32, got, &e), &e);
    assert_memory_equal(got, want, 32);
}

static void refused(void **state)
{
    (void)state;
    static const uint32_t costs[] = {0, 1, 3, 65535, 1 << 25};
    struct err e = ERR_INIT;
    uint8_t salt[32] = {0}, key[32];
    for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++)
        assert_int_equal(scrypt_r8_p1("x", salt, 32, costs[i], key, 32, &e), -EINVAL);
    assert_true(format_derive_key("scrypt-65536-8-1", "x", salt, 15, key, &e) < 0);
    assert_int_equal(e.cls, ERR_DAMAGE);
    assert_true(format_derive_key("md5", "x", salt, 32, key, &e) < 0);
    assert_int_equal(e.cls, ERR_FORMAT);
}

/* With a limit below 64 MiB the derivation fails with its reason; with 72 MiB it succeeds. */
static void little_memory(void **state)
{
    (void)state;
    if (getenv("SNAPFERRY_SANITIZED")) {
        print_message("SKIP: sanitizers map more than the limit\n");
        skip();
    }
    for (unsigned mib = 32; mib <= 72; mib += 40) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            struct err e = ERR_INIT;
            uint8_t salt[32] = {0}, key[32];
            struct rlimit data = {(rlim_t)mib << 20, (rlim_t)mib << 20};
            setrlimit(RLIMIT_DATA, &data);
            int rc = format_derive_key("scrypt-65536-8-1", "x", salt, 32, key, &e);
            bool told = rc == -ENOMEM && e.cls == ERR_MEMORY && strstr(e.msg, "64 MiB");
            _exit((mib < 64 ? told : rc == 0) ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rfc_vector),
        cmocka_unit_test(twin_of_the_library),
        cmocka_unit_test(refused),
        cmocka_unit_test(little_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
