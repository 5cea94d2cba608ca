/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_metadata_cache.c - parts of metadata packs in a file with a limit, which anything may happen to */
#include "tests/unit/test.h"

#include "repo/metadata-cache.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOT 16384
#define PACK "q0123456789abcdef0123456789abcdef-s0123456789abcdef147"

static char dir[64], path[96];

static int set_up(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/snapferry-metadata.XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/metadata", dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir);
}

static uint64_t file_len(void)
{
    struct stat st;
    assert_return_code(stat(path, &st), errno);
    return (uint64_t)st.st_size;
}

/* A byte of a pack is known by its place. */
static void fill(uint8_t *to, const char *pack, uint64_t offset, size_t len)
{
    for (size_t i = 0; i < len; i++)
        to[i] = (uint8_t)((offset + i) * 31 + (offset + i) / 251 + strlen(pack) + (unsigned char)pack[1]);
}

static void put(struct metadata_cache *m, const char *pack, uint64_t offset, size_t len)
{
    uint8_t *data = malloc(len);
    fill(data, pack, offset, len);
    metadata_cache_put(m, pack, offset, data, len);
    free(data);
}

/* Whether it is there; if so, it is right. */
static bool has(struct metadata_cache *m, const char *pack, uint64_t offset, size_t len)
{
    uint8_t *data = calloc(1, len), *want = malloc(len);
    fill(want, pack, offset, len);
    const bool ret = metadata_cache_get(m, pack, offset, data, len);
    if (ret)
        assert_memory_equal(data, want, len);
    free(data);
    free(want);
    return ret;
}

static void parts(void **state)
{
    (void)state;
    struct metadata_cache *m = metadata_cache_open(dir, true, 1 << 20);
    assert_non_null(m);
    assert_false(has(m, PACK, 0, 1));
    put(m, PACK, 0, 1000); /* a small pack, whole */
    assert_true(has(m, PACK, 0, 1000) && has(m, PACK, 32, 300) && has(m, PACK, 999, 1));
    assert_false(has(m, PACK, 999, 2));
    assert_false(has(m, PACK "2", 0, 1000));
    assert_false(has(m, PACK, METADATA_BLOCK, 10));
    put(m, PACK, 0, METADATA_BLOCK); /* more of that block */
    assert_true(has(m, PACK, 0, METADATA_BLOCK));
    /* A long one, from the middle of a block to the middle of another. */
    put(m, PACK "3", 5000, 5 * METADATA_BLOCK);
    assert_true(has(m, PACK "3", 5000, 5 * METADATA_BLOCK) && has(m, PACK "3", METADATA_BLOCK - 7, 14));
    assert_false(has(m, PACK "3", 4999, 2) || has(m, PACK "3", 5000, 5 * METADATA_BLOCK + 1));
    metadata_cache_free(m);
    /* Another process. */
    m = metadata_cache_open(dir, true, 1 << 20);
    assert_true(has(m, PACK, 0, METADATA_BLOCK) && has(m, PACK "3", 5000, 5 * METADATA_BLOCK));
    struct metadata_cache *own = metadata_cache_open(dir, false, 1 << 20);
    assert_non_null(own);
    assert_false(has(own, PACK, 0, 1000));
    put(own, PACK "4", 0, 1000);
    assert_true(has(own, PACK "4", 0, 1000) && !has(m, PACK "4", 0, 1000));
    metadata_cache_free(own);
    metadata_cache_forget(m, PACK "3", 2 * METADATA_BLOCK, 10);
    assert_false(has(m, PACK "3", 2 * METADATA_BLOCK, 10));
    assert_true(has(m, PACK "3", METADATA_BLOCK, 10) && has(m, PACK, 0, METADATA_BLOCK));
    metadata_cache_drop(m);
    assert_int_equal(file_len(), 0);
    assert_false(has(m, PACK, 0, 1));
    put(m, PACK, 0, 1000);
    assert_int_equal(file_len(), 0);
    metadata_cache_free(m);
    struct stat st;
    assert_return_code(stat(path, &st), errno);
    assert_int_equal(st.st_mode & 0777, 0600);
}

/* Whatever is put: the file keeps its limit, and most of what came last is there. */
static void a_limit(void **state)
{
    (void)state;
    enum { SLOTS = 64, PACKS = 1000 };
    struct metadata_cache *m = metadata_cache_open(dir, true, SLOTS * SLOT);
    char pack[96];
    unsigned there = 0;
    for (unsigned i = 0; i < PACKS; i++) {
        snprintf(pack, sizeof pack, "q%032x-s0123456789abcdef147", i * 7919u);
        put(m, pack, 0, 1500);
        assert_true(has(m, pack, 0, 1500));
        assert_true(file_len() <= SLOTS * SLOT);
    }
    for (unsigned i = 0; i < PACKS; i++) {
        snprintf(pack, sizeof pack, "q%032x-s0123456789abcdef147", i * 7919u);
        there += has(m, pack, 0, 1500);
    }
    assert_in_range(there, SLOTS / 2, SLOTS);
    metadata_cache_free(m);
    /* A smaller one: what is behind it goes. */
    m = metadata_cache_open(dir, true, 8 * SLOT);
    assert_int_equal(file_len(), 8 * SLOT);
    metadata_cache_free(m);
    assert_null(metadata_cache_open(dir, true, SLOT));
    assert_return_code(unlink(path), errno); /* no file of ours */
    assert_return_code(mkfifo(path, 0600), errno);
    assert_null(metadata_cache_open(dir, true, 1 << 20));
    assert_null(metadata_cache_open("/nonexistent", true, 1 << 20));
    char other[96];
    snprintf(other, sizeof other, "%s/other", dir);
    assert_return_code(link(path, other), errno); /* as somebody else's file would be */
    assert_null(metadata_cache_open(dir, true, 1 << 20));
    assert_return_code(unlink(other), errno);
    assert_null(metadata_cache_open("/nonexistent", false, 1 << 20));
}

/* Any byte that has changed, and any end: it is not there, and never wrong. */
static void a_damaged_file(void **state)
{
    (void)state;
    struct metadata_cache *m = metadata_cache_open(dir, true, 4 * SLOT);
    put(m, PACK, 100, 700);
    CLEANUP_CLOSE int fd = open(path, O_RDWR | O_CLOEXEC);
    uint8_t byte, magic[8];
    off_t at = 0;
    for (;; at += SLOT) {
        assert_true(at < 4 * SLOT);
        if (pread(fd, magic, 8, at) == 8 && !memcmp(magic, "snapmet1", 8))
            break;
    }
    const off_t end = at + SLOT - METADATA_BLOCK + 700;
    for (off_t i = at; i < end; i++) {
        assert_int_equal(pread(fd, &byte, 1, i), 1);
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, i), 1);
        assert_false(has(m, PACK, 100, 700));
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, i), 1);
        assert_true(has(m, PACK, 100, 700));
    }
    /* Lengths that lead out of it, with the rest as it was. */
    static const uint8_t far[4] = {0xff, 0xff, 0xff, 0xff};
    assert_int_equal(pwrite(fd, far, 4, at + 20), 4);
    assert_false(has(m, PACK, 100, 700));
    for (off_t len = end - 1; len >= at; len -= 97) {
        assert_return_code(ftruncate(fd, len), errno);
        assert_false(has(m, PACK, 100, 700));
    }
    put(m, PACK, 100, 700);
    assert_true(has(m, PACK, 100, 700));
    metadata_cache_free(m);
}

/* Whoever owns the directory has a file of his own, whoever made the one that is there. */
static void of_another_user(void **state)
{
    (void)state;
    struct stat st;
    int status;
    if (geteuid() != 0)
        skip();
    metadata_cache_free(metadata_cache_open(dir, true, 1 << 20));
    assert_return_code(chown(dir, 65534, 65534), errno);
    const pid_t pid = fork();
    if (pid == 0) {
        struct metadata_cache *m = setgid(65534) || setuid(65534) ? NULL : metadata_cache_open(dir, true, 1 << 20);
        _exit(m ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_return_code(stat(path, &st), errno);
    assert_int_equal(st.st_uid, 65534);
}

static void *writer(void *arg)
{
    struct metadata_cache *m = metadata_cache_open(dir, true, 4 * SLOT);
    char pack[96];
    for (unsigned i = 0; i < 400; i++) {
        snprintf(pack, sizeof pack, "q%032x-s0123456789abcdef147", (unsigned)(i * 3 + *(unsigned *)arg) % 13);
        put(m, pack, i % 7 * 100, 9000);
        has(m, pack, i % 7 * 100 + 5, 4000);
    }
    metadata_cache_free(m);
    return NULL;
}

/* Several that write to four slots at a time: what is found is right. */
static void several(void **state)
{
    (void)state;
    pthread_t t[4];
    unsigned n[4];
    for (unsigned i = 0; i < 4; i++) {
        n[i] = i;
        assert_int_equal(pthread_create(&t[i], NULL, writer, &n[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pthread_join(t[i], NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(parts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_damaged_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(of_another_user, set_up, tear_down),
        cmocka_unit_test_setup_teardown(several, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
