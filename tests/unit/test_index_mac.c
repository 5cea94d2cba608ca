/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Files of the index cache are authenticated: what is not of this repository, of this name and unchanged is made again
 * from the blob. */
#include "tests/unit/test.h"

#include "repo/aesgcm.h"
#include "repo/epoch.h"
#include "repo/file-mac.h"
#include "repo/index-cache.h"

#include <fcntl.h>
#include <ftw.h>
#include <isa-l/crc64.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/stat.h>
#include <unistd.h>

static const char session[] = "s0123456789abcdef144";

struct repo {
    char dir[64], store[96], cache[96];
    struct blobs *b;
    struct repo_format *f;
    struct sealer *s;
    struct index_cache c;
};

static unsigned warnings;

static void count_warning(enum log_level level, const char *line, void *arg)
{
    (void)arg;
    warnings += level == LOG_LVL_WARNING && strstr(line, "discarded");
}

static void make_repo(struct repo *r, const uint8_t master_key[32])
{
    struct err e = ERR_INIT;
    static const uint8_t secret[32] = "a secret that both have: 123456";
    memset(r, 0, sizeof *r);
    assert_non_null(scratch_new(r->dir, sizeof r->dir));
    snprintf(r->store, sizeof r->store, "%s/store", r->dir);
    snprintf(r->cache, sizeof r->cache, "%s/cache", r->dir);
    assert_ok(blobs_open_dir(&r->b, r->store, BLOBS_CREATE, NULL, 0, &e), &e);
    struct format_create c = {.unique_id = test_unique_id, .secret = secret, .master_key = master_key};
    assert_ok(format_create(r->b, &c, "password", &e), &e);
    assert_ok(format_load(&r->f, r->b, "password", &e), &e);
    assert_ok(sealer_new(&r->s, r->f, &e), &e);
    assert_ok(index_cache_open(&r->c, r->cache, 1 << 30, r->b, r->s, false, &e), &e);
    warnings = 0;
    log_to(count_warning, NULL);
}

static int unlink_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static void drop_repo(struct repo *r)
{
    log_to(NULL, NULL);
    index_cache_close(&r->c);
    sealer_free(r->s);
    format_free(r->f);
    blobs_free(r->b);
    nftw(r->dir, unlink_one, 16, FTW_DEPTH | FTW_PHYS);
}

static uint8_t *make_table(unsigned n, uint64_t seed, size_t *len)
{
    struct err e = ERR_INIT;
    uint8_t *data = NULL;
    struct index_entry *x = calloc(n, sizeof *x);
    assert_non_null(x);
    for (unsigned i = 0; i < n; i++) {
        x[i] = (struct index_entry){
            .id = {.len = 16}, .offset = 32, .packed = 128, .length = 100, .time = 1, .format_version = 3};
        put_le64(x[i].id.hash, splitmix64(&seed));
        put_le64(x[i].id.hash + 8, splitmix64(&seed));
        snprintf(x[i].pack, sizeof x[i].pack, "p%032u-%s", i / 100, session);
    }
    n = (unsigned)index_sort(x, n);
    assert_ok(index_build(x, n, 2, false, &data, len, &e), &e);
    free(x);
    return data;
}

/* Writes a table as an index blob, whose file is then in the cache. */
static void write_blob(struct repo *r, const uint8_t *table, size_t len, struct blob_info *b, char path[512])
{
    struct err e = ERR_INIT;
    struct index_shard_data d = {.data = table, .len = len};
    char name[1][BLOB_NAME_MAX + 1];
    struct index_map *m;
    assert_ok(epoch_write_indexes(r->b, r->s, r->f, session, &d, 1, name, &e), &e);
    assert_ok(blobs_stat(r->b, name[0], b, &e), &e);
    assert_ok(index_cache_get(&m, &r->c, b, &e), &e);
    index_map_free(m);
    snprintf(path, 512, "%s/%s", r->cache, b->name);
}

/* It gives what the blob has, and whether it had to read the blob for that. */
static bool was_made_again(struct repo *r, const struct blob_info *b, const uint8_t *table, size_t len)
{
    struct err e = ERR_INIT;
    struct blob_stats before, after;
    struct index_map *m;
    blobs_stats(r->b, &before);
    assert_ok(index_cache_get(&m, &r->c, b, &e), &e);
    blobs_stats(r->b, &after);
    assert_memory_equal(m->base, table, len);
    index_map_free(m);
    return after.get_bytes > before.get_bytes;
}

static void flip(const char *path, off_t at, unsigned bit)
{
    CLEANUP_CLOSE int fd = open(path, O_RDWR);
    uint8_t c;
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &c, 1, at), 1);
    c ^= (uint8_t)(1 << bit);
    assert_int_equal(pwrite(fd, &c, 1, at), 1);
}

static void write_file(const char *path, const void *data, size_t len)
{
    CLEANUP_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), len);
}

static const uint8_t key_a[32] = "the master key of the repository";
static const uint8_t key_b[32] = "another key, of somebody else  !";

static void any_flipped_bit(void **state)
{
    (void)state;
    struct repo r;
    struct blob_info b;
    char path[512];
    struct stat st;
    size_t len;
    make_repo(&r, key_a);
    CLEANUP_FREE uint8_t *table = make_table(2, 1, &len);
    write_blob(&r, table, len, &b, path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, len + INDEX_FOOTER);
    assert_false(was_made_again(&r, &b, table, len));
    for (off_t at = 0; at < st.st_size; at++)
        for (unsigned bit = 0; bit < 8; bit++) {
            warnings = 0;
            flip(path, at, bit);
            assert_true(was_made_again(&r, &b, table, len));
            assert_int_equal(warnings, 1);
            assert_false(was_made_again(&r, &b, table, len));
        }
    drop_repo(&r);
}

/* A table with a filter, of many pieces: places of each part. */
static void a_large_file(void **state)
{
    (void)state;
    struct repo r;
    struct blob_info b;
    char path[512];
    struct stat st;
    size_t len;
    make_repo(&r, key_a);
    CLEANUP_FREE uint8_t *table = make_table(30000, 2, &len);
    write_blob(&r, table, len, &b, path);
    assert_int_equal(stat(path, &st), 0);
    const off_t filter = (off_t)((len + INDEX_WINDOW - 1) / INDEX_WINDOW * INDEX_WINDOW), end = st.st_size;
    assert_true(filter < end - INDEX_FOOTER);
    uint64_t seed = 7;
    const off_t fixed[] = {0,
                           1,
                           (off_t)len - 1,
                           (off_t)len,
                           filter - 1,
                           filter,
                           end - INDEX_FOOTER - 1,
                           end - INDEX_FOOTER,
                           end - 17,
                           end - 1,
                           256 << 10,
                           (256 << 10) - 1};
    for (unsigned i = 0; i < 60; i++) {
        const unsigned n = sizeof fixed / sizeof *fixed;
        const off_t at = i < n ? fixed[i] : (off_t)(splitmix64(&seed) % (uint64_t)end);
        flip(path, at, i % 8);
        if (!was_made_again(&r, &b, table, len))
            fail_msg("byte %lld of %lld is not authenticated", (long long)at, (long long)end);
        assert_int_equal(warnings, i + 1);
    }
    /* Another length of the table, with which the file is as long. */
    {
        CLEANUP_CLOSE int fd = open(path, O_RDWR);
        uint8_t other[8];
        put_le64(other, len + 1);
        assert_true((off_t)len < filter);
        assert_int_equal(pwrite(fd, other, 8, end - INDEX_FOOTER + 8), 8);
    }
    assert_true(was_made_again(&r, &b, table, len));
    assert_int_equal(truncate(path, end - INDEX_WINDOW), 0);
    assert_true(was_made_again(&r, &b, table, len));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, end);
    drop_repo(&r);
}

/* Of a repository that has all but the master key in common with this one: who writes to the directory may know the
 * unique id, names and tables, and make a file that is right in itself. */
static void files_of_others(void **state)
{
    (void)state;
    struct repo r, other;
    struct err e = ERR_INIT;
    struct blob_info b, b2;
    char path[512], path2[512], from[512];
    size_t len, len2;
    make_repo(&other, key_b);
    make_repo(&r, key_a);
    CLEANUP_FREE uint8_t *table = make_table(3000, 3, &len), *forged = make_table(3000, 4, &len2);
    write_blob(&r, table, len, &b, path);
    struct index_map *m;
    assert_ok(index_cache_add(&m, &other.c, b.name, forged, len2, &e), &e);
    index_map_free(m);
    snprintf(from, sizeof from, "%s/%s", other.cache, b.name);
    assert_int_equal(rename(from, path), 0);
    assert_true(was_made_again(&r, &b, table, len));
    assert_int_equal(warnings, 1);
    /* Even with the right table. */
    assert_ok(index_cache_add(&m, &other.c, b.name, table, len, &e), &e);
    index_map_free(m);
    assert_int_equal(rename(from, path), 0);
    assert_true(was_made_again(&r, &b, table, len));
    assert_int_equal(warnings, 2);
    /* Of this repository, under another name. */
    write_blob(&r, forged, len2, &b2, path2);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(link(path2, path), 0);
    assert_true(was_made_again(&r, &b, table, len));
    assert_int_equal(warnings, 3);
    /* What this repository has made itself is taken. */
    assert_int_equal(unlink(path), 0);
    assert_ok(index_cache_add(&m, &r.c, b.name, table, len, &e), &e);
    index_map_free(m);
    assert_false(was_made_again(&r, &b, table, len));
    drop_repo(&other);
    drop_repo(&r);
}

static void a_forged_table_with_a_right_checksum(void **state)
{
    (void)state;
    struct repo r;
    struct blob_info b;
    char path[512];
    size_t len, len2;
    make_repo(&r, key_a);
    CLEANUP_FREE uint8_t *table = make_table(500, 5, &len), *forged = make_table(500, 6, &len2);
    write_blob(&r, table, len, &b, path);
    /* As versions before this one made and took it: it is made again, and that is no damage. */
    CLEANUP_FREE uint8_t *file = malloc(len2 + 64);
    assert_non_null(file);
    memcpy(file, forged, len2);
    memcpy(file + len2, "snapfix2", 8);
    put_le64(file + len2 + 8, len2);
    put_le64(file + len2 + 16, 0);
    uint64_t crc = crc64_ecma_refl(0, (const uint8_t *)b.name, strlen(b.name));
    crc = crc64_ecma_refl(crc64_ecma_refl(crc, file, len2), file + len2, 24);
    put_le64(file + len2 + 24, crc);
    write_file(path, file, len2 + 32);
    assert_true(was_made_again(&r, &b, table, len));
    assert_int_equal(warnings, 0);
    assert_false(was_made_again(&r, &b, table, len));
    /* With a footer of this version, whose code is that checksum twice, or nothing. */
    for (unsigned i = 0; i < 2; i++) {
        memset(file + len2, 0, INDEX_FOOTER);
        memcpy(file + len2, "snapfix3", 8);
        put_le64(file + len2 + 8, len2);
        crc = crc64_ecma_refl(0, (const uint8_t *)b.name, strlen(b.name));
        crc = crc64_ecma_refl(crc, file, len2 + INDEX_FOOTER - FILE_MAC_TAG);
        put_le64(file + len2 + INDEX_FOOTER - 16, i ? crc : 0);
        put_le64(file + len2 + INDEX_FOOTER - 8, i ? crc : 0);
        write_file(path, file, len2 + INDEX_FOOTER);
        assert_true(was_made_again(&r, &b, table, len));
        assert_int_equal(warnings, i + 1);
    }
    drop_repo(&r);
}

/* The same table has another nonce each time, and so another code. */
static void nonces_differ(void **state)
{
    (void)state;
    struct repo r;
    struct blob_info b;
    char path[512];
    size_t len;
    uint8_t footer[2][INDEX_FOOTER];
    make_repo(&r, key_a);
    CLEANUP_FREE uint8_t *table = make_table(5, 8, &len);
    write_blob(&r, table, len, &b, path);
    for (unsigned i = 0; i < 2; i++) {
        CLEANUP_CLOSE int fd = open(path, O_RDONLY);
        assert_int_equal(pread(fd, footer[i], INDEX_FOOTER, (off_t)len), INDEX_FOOTER);
        assert_int_equal(unlink(path), 0);
        assert_true(was_made_again(&r, &b, table, len));
    }
    assert_memory_equal(footer[0], footer[1], 24);
    assert_memory_not_equal(footer[0] + 24, footer[1] + 24, FILE_MAC_NONCE);
    assert_memory_not_equal(footer[0] + 24 + FILE_MAC_NONCE, footer[1] + 24 + FILE_MAC_NONCE, FILE_MAC_TAG);
    drop_repo(&r);
}

/* HKDF-SHA256 of the master key, computed elsewhere. */
static void the_key(void **state)
{
    (void)state;
    struct repo r;
    char hex[65];
    make_repo(&r, key_a);
    assert_string_equal(hex_encode(hex, sealer_cache_key(r.s), 32),
                        "c7ab6ab7fb96ab3dc231e0dc399c7b64675f7389370142711bd94e2733e203a8");
    drop_repo(&r);
}

static void as_the_library(const uint8_t key[32], const char *name, const uint8_t nonce[12], const uint8_t *data,
                           size_t len, uint8_t tag[16])
{
    uint8_t own[32], iv[12];
    unsigned n;
    size_t tag_len;
    char cipher[] = "AES-256-GCM";
    memcpy(iv, nonce, sizeof iv);
    assert_non_null(HMAC(EVP_sha256(), key, 32, (const uint8_t *)name, strlen(name), own, &n));
    EVP_MAC *mac = EVP_MAC_fetch(NULL, "GMAC", NULL);
    EVP_MAC_CTX *c = EVP_MAC_CTX_new(mac);
    const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_CIPHER, cipher, 0),
                                 OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_IV, iv, sizeof iv),
                                 OSSL_PARAM_construct_end()};
    assert_int_equal(EVP_MAC_init(c, own, sizeof own, params), 1);
    assert_int_equal(EVP_MAC_update(c, data, len), 1);
    assert_int_equal(EVP_MAC_final(c, tag, &tag_len, 16), 1);
    assert_int_equal(tag_len, 16);
    EVP_MAC_CTX_free(c);
    EVP_MAC_free(mac);
}

static void own_code(const uint8_t key[32], const char *name, const uint8_t nonce[12], const uint8_t *data, size_t len,
                     uint64_t *seed, uint8_t tag[16])
{
    struct err e = ERR_INIT;
    struct file_mac *m;
    const uint64_t longest = 1 + splitmix64(seed) % (len + 40);
    assert_ok(file_mac_new(&m, key, name, nonce, &e), &e);
    for (size_t at = 0, n; at < len; at += n) {
        n = (size_t)(splitmix64(seed) % (longest + 1));
        n = n < len - at ? n : len - at;
        file_mac_add(m, data + at, n);
    }
    assert_ok(file_mac_end(m, tag, &e), &e);
    file_mac_free(m);
}

static void pieces_of_any_length(void **state)
{
    (void)state;
    static uint8_t data[20000];
    uint64_t seed = 9;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)splitmix64(&seed);
    for (unsigned kernel = 0; kernel < 2; kernel++) {
        if (kernel)
            setenv("SNAPFERRY_KERNEL_AESGCM", "scalar", 1);
        else
            print_message(aesgcm_usable() ? "with VAES\n" : "this CPU has no VAES: the library does it\n");
        for (unsigned i = 0; i < 1200; i++) {
            const size_t len = i < 600 ? i : (size_t)(splitmix64(&seed) % sizeof data);
            uint8_t want[16], got[16];
            as_the_library(data + i, "xn0_ab", data + 2 * i, data, len, want);
            own_code(data + i, "xn0_ab", data + 2 * i, data, len, &seed, got);
            assert_memory_equal(got, want, 16);
            own_code(data + i, "xn0_ac", data + 2 * i, data, len, &seed, got);
            assert_memory_not_equal(got, want, 16);
        }
    }
    unsetenv("SNAPFERRY_KERNEL_AESGCM");
}

/* Files that the other kernel has made are taken. */
static void kernels_agree(void **state)
{
    (void)state;
    struct repo r;
    struct blob_info b;
    char path[512];
    size_t len;
    make_repo(&r, key_a);
    CLEANUP_FREE uint8_t *table = make_table(30000, 10, &len);
    write_blob(&r, table, len, &b, path);
    setenv("SNAPFERRY_KERNEL_AESGCM", "scalar", 1);
    assert_false(was_made_again(&r, &b, table, len));
    flip(path, (off_t)len / 2, 0);
    assert_true(was_made_again(&r, &b, table, len));
    unsetenv("SNAPFERRY_KERNEL_AESGCM");
    assert_false(was_made_again(&r, &b, table, len));
    drop_repo(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_flipped_bit),      cmocka_unit_test(a_large_file),
        cmocka_unit_test(files_of_others),      cmocka_unit_test(a_forged_table_with_a_right_checksum),
        cmocka_unit_test(nonces_differ),        cmocka_unit_test(the_key),
        cmocka_unit_test(pieces_of_any_length), cmocka_unit_test(kernels_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
