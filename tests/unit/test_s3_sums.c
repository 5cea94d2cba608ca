/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Packs that wait for each other: whoever takes whom along, each thread gets the sums of its own file. */
#include "tests/unit/levels.h"
#include "tests/unit/test.h"

#include "base/bytes.h"
#include "base/time.h"
#include "repo/s3-sums.h"

#include <errno.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define THREADS 11
#define LONGEST (3u << 20)

static uint8_t *noise;
static struct s3_summer *summer;
static _Atomic bool written_to;

static void sums_of_openssl(const uint8_t *data, size_t len, struct s3_sums *ret)
{
    uint8_t hash[EVP_MAX_MD_SIZE];
    assert_int_equal(EVP_Digest(data, len, hash, NULL, EVP_md5(), NULL), 1);
    EVP_EncodeBlock((uint8_t *)ret->md5, hash, 16);
    assert_int_equal(EVP_Digest(data, len, hash, NULL, EVP_sha256(), NULL), 1);
    hex_encode(ret->sha, hash, 32);
}

struct uploader {
    pthread_t thread;
    unsigned number;
    unsigned wrong;
};

/* Some of less than a mebibyte, which wait for nobody, and some that cannot be read. */
static void *upload(void *arg)
{
    struct uploader *u = arg;
    for (unsigned round = 0; round < 4; round++) {
        const size_t len = round == 1 ? 1000 * u->number : LONGEST - 70001 * u->number - round;
        const uint8_t *data = noise + 4099 * u->number + round;
        const bool broken = u->number == 3 && round == 2;
        struct s3_sums got = {0}, want;
        struct err e = ERR_INIT;
        int read = 1, fd = memfd_create("pack", MFD_CLOEXEC);
        if (fd < 0 || write(fd, data, len) != (ssize_t)len) {
            u->wrong++;
            continue;
        }
        const int rc = s3_summer_file(summer, fd, len + broken, &got, &read, &e);
        sums_of_openssl(data, len, &want);
        if (broken)
            u->wrong += rc != -ENODATA || read != -ENODATA;
        else
            u->wrong += rc != 0 || read != 0 || strcmp(got.md5, want.md5) || strcmp(got.sha, want.sha);
        close(fd);
    }
    return NULL;
}

static void *write_on(void *arg)
{
    while (atomic_load(&written_to)) {
        s3_summer_written(summer);
        usleep(1000);
    }
    return arg;
}

static void many_threads(bool written)
{
    struct uploader all[THREADS] = {0};
    pthread_t writer;
    atomic_store(&written_to, written);
    assert_int_equal(pthread_create(&writer, NULL, write_on, NULL), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        all[i].number = i;
        assert_int_equal(pthread_create(&all[i].thread, NULL, upload, &all[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(all[i].thread, NULL);
        assert_int_equal(all[i].wrong, 0);
    }
    atomic_store(&written_to, false);
    pthread_join(writer, NULL);
}

static void each_gets_its_own_sums(void **state)
{
    (void)state;
    many_threads(false);
}

static void also_while_others_are_written(void **state)
{
    (void)state;
    many_threads(true);
}

/* The last pack of all, while another one is written for ever, waits for half a second. */
static void nobody_waits_for_ever(void **state)
{
    (void)state;
    pthread_t writer;
    struct s3_sums got, want;
    struct err e = ERR_INIT;
    int read, fd = memfd_create("pack", MFD_CLOEXEC);
    assert_int_equal(write(fd, noise, LONGEST), LONGEST);
    sums_of_openssl(noise, LONGEST, &want);
    atomic_store(&written_to, true);
    assert_int_equal(pthread_create(&writer, NULL, write_on, NULL), 0);
    assert_ok(s3_summer_file(summer, fd, LONGEST, &got, &read, &e), &e);
    assert_string_equal(got.md5, want.md5);
    assert_string_equal(got.sha, want.sha);
    atomic_store(&written_to, false);
    pthread_join(writer, NULL);
    close(fd);
}

static void of_memory(void **state)
{
    (void)state;
    struct s3_sums got, want;
    struct err e = ERR_INIT;
    assert_ok(s3_summer_memory(summer, noise, 12345, &got, &e), &e);
    sums_of_openssl(noise, 12345, &want);
    assert_string_equal(got.md5, want.md5);
    assert_string_equal(got.sha, want.sha);
}

/* Over TLS the signature leaves the body out. */
static void without_sha(void **state)
{
    (void)state;
    struct s3_sums got, want;
    struct err e = ERR_INIT;
    int read, fd = memfd_create("pack", MFD_CLOEXEC);
    struct s3_summer *s = s3_summer_new(false, &e);
    assert_non_null(s);
    assert_int_equal(write(fd, noise, LONGEST), LONGEST);
    sums_of_openssl(noise, LONGEST, &want);
    assert_ok(s3_summer_file(s, fd, LONGEST, &got, &read, &e), &e);
    assert_string_equal(got.md5, want.md5);
    assert_string_equal(got.sha, "");
    s3_summer_free(s);
    close(fd);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_gets_its_own_sums),
        cmocka_unit_test(also_while_others_are_written),
        cmocka_unit_test(nobody_waits_for_ever),
        cmocka_unit_test(of_memory),
        cmocka_unit_test(without_sha),
    };
    struct err e = ERR_INIT;
    noise = malloc(2 * LONGEST);
    summer = s3_summer_new(true, &e);
    if (!noise || !summer)
        return 1;
    for (size_t i = 0; i < 2 * LONGEST; i++)
        noise[i] = (uint8_t)rand();
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    s3_summer_free(summer);
    free(noise);
    return rc;
}

int main(void)
{
    static const char *const kernels[] = {"MD5", "SHA256", NULL};
    return run_at_every_level(kernels, run);
}
