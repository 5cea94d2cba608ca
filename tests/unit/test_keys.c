/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_keys.c - keys that one mover derived, kept for the next ones: for whom, and where they are not (MS-58) */
#include "tests/unit/test.h"

#include "daemon/movers/keys.h"
#include "daemon/protocol/mover-key.h"
#include "proc/descriptors.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct mover_key example(uint8_t what)
{
    struct mover_key k = {.magic = MOVER_KEY_MAGIC, .algo = "scrypt-65536-8-1", .unique_id_len = 32};
    memset(k.key, what, sizeof k.key);
    memset(k.format_hash, what, sizeof k.format_hash);
    return k;
}

static int sealed(uint8_t what)
{
    struct mover_key k = example(what);
    struct err e = ERR_INIT;
    int fd = memory_sealed("key", &k, sizeof k, &e);
    assert_ok(fd, &e);
    return fd;
}

static struct key_id id_of(const struct keys *k, const char *path, const char *password)
{
    struct key_id id;
    json_t *repository = json_pack("{s:s, s:s, s:s}", "name", "main", "type", "filesystem", "path", path);
    assert_true(keys_id(k, repository, password, &id));
    json_decref(repository);
    return id;
}

/* The first byte of the key that is kept; -1: there is none. */
static int kept(struct keys *k, const struct key_id *id)
{
    struct mover_key got;
    int fd = keys_find(k, id);
    if (fd < 0)
        return -1;
    assert_int_equal(pread(fd, &got, sizeof got, 0), sizeof got);
    return got.key[0];
}

static unsigned descriptors(void)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    closedir(d);
    return n;
}

static struct keys *make(void)
{
    struct keys *k = NULL;
    struct err e = ERR_INIT;
    assert_ok(keys_new(&k, &e), &e);
    return k;
}

static void test_for_whom(void **state)
{
    (void)state;
    const unsigned before = descriptors();
    struct keys *k = make();
    const struct key_id a = id_of(k, "/a", "secret"), b = id_of(k, "/b", "secret"), other = id_of(k, "/a", "Secret");
    assert_int_equal(kept(k, &a), -1);
    assert_true(keys_put(k, &a, sealed(1)));
    assert_true(keys_put(k, &b, sealed(2)));
    assert_int_equal(kept(k, &a), 1);
    assert_int_equal(kept(k, &b), 2);
    /* A newer one takes the place; the same again changes nothing. */
    assert_true(keys_put(k, &a, sealed(3)));
    assert_true(keys_put(k, &a, sealed(3)));
    assert_int_equal(kept(k, &a), 3);
    /* Another password: it is not given, and is forgotten. */
    assert_int_equal(kept(k, &other), -1);
    assert_int_equal(kept(k, &a), -1);
    assert_int_equal(kept(k, &b), 2);
    keys_forget(k);
    assert_int_equal(kept(k, &b), -1);
    assert_true(keys_put(k, &b, sealed(4)));
    keys_free(k);
    assert_int_equal(descriptors(), before);
}

static void test_bounded(void **state)
{
    (void)state;
    struct keys *k = make();
    const unsigned before = descriptors();
    char path[32];
    for (int i = 0; i < 100; i++) {
        snprintf(path, sizeof path, "/repo/%d", i);
        const struct key_id id = id_of(k, path, "p");
        assert_true(keys_put(k, &id, sealed((uint8_t)i)));
    }
    assert_int_equal(descriptors(), before + 32);
    const struct key_id first = id_of(k, "/repo/0", "p"), last = id_of(k, "/repo/99", "p");
    assert_int_equal(kept(k, &first), -1);
    assert_int_equal(kept(k, &last), 99);
    keys_free(k);
}

/* Nothing that could be changed later, and nothing else than a key. */
static void test_refused(void **state)
{
    (void)state;
    struct keys *k = make();
    struct err e = ERR_INIT;
    struct mover_key key = example(9);
    const struct key_id id = id_of(k, "/a", "p");
    const unsigned before = descriptors();
    assert_false(keys_put(k, &id, open("/dev/zero", O_RDONLY)));
    assert_false(keys_put(k, &id, memory_input("key", &key, sizeof key, &e))); /* not sealed */
    assert_false(keys_put(k, &id, memory_sealed("key", &key, sizeof key - 1, &e)));
    assert_false(keys_put(k, &id, memory_sealed("key", "", 0, &e)));
    key.magic[0] = 'x';
    assert_false(keys_put(k, &id, memory_sealed("key", &key, sizeof key, &e)));
    assert_int_equal(kept(k, &id), -1);
    assert_int_equal(descriptors(), before);
    keys_free(k);
}

/* What of /proc/self/smaps concerns `p`: its VmFlags. */
static void flags_of(const void *p, char *out, size_t cap)
{
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[1024];
    bool here = false;
    *out = '\0';
    while (f && fgets(line, sizeof line, f)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2 && strchr(line, '-') < strchr(line, ' '))
            here = (unsigned long)p >= from && (unsigned long)p < to;
        else if (here && !strncmp(line, "VmFlags:", 8))
            snprintf(out, cap, "%s", line);
    }
    fclose(f);
}

struct found {
    unsigned unprotected, protected;
};

/* Where those 32 bytes lie in our memory, as a core dump would have it. The needle itself is inverted. */
static struct found look_for(const uint8_t inverted[32])
{
    struct found found = {0};
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[1024];
    unsigned long from = 0, to = 0;
    bool readable = false;
    while (f && fgets(line, sizeof line, f)) {
        char rights[8], path[512] = "";
        unsigned long a, b;
        if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %511[^\n]", &a, &b, rights, path) >= 3 && strchr(line, '-')) {
            from = a;
            to = b;
            readable = rights[0] == 'r' && !strstr(path, "[v");
        } else if (readable && !strncmp(line, "VmFlags:", 8)) {
            unsigned n = 0;
            for (const uint8_t *p = (const uint8_t *)from; p + 32 <= (const uint8_t *)to; p++) {
                unsigned i = 0;
                while (i < 32 && (p[i] ^ inverted[i]) == 0xff)
                    i++;
                n += i == 32;
            }
            *(strstr(line, " dd") ? &found.protected : &found.unprotected) += n;
        }
    }
    fclose(f);
    return found;
}

static void test_protected(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    print_message("SKIP: the sanitizer's shadow is terabytes of memory\n");
    skip();
#endif
    uint8_t inverted[32];
    struct keys *k = make();
    const struct key_id id = id_of(k, "/a", "p");
    struct err e = ERR_INIT;
    for (size_t i = 0; i < sizeof inverted; i++)
        inverted[i] = (uint8_t)(i * 37 + 11);
    struct mover_key *key = calloc(1, sizeof *key);
    *key = example(0);
    for (size_t i = 0; i < sizeof inverted; i++)
        key->key[i] = (uint8_t)~inverted[i];
    int fd = memory_sealed("key", key, sizeof *key, &e);
    explicit_bzero(key, sizeof *key);
    free(key);
    assert_true(keys_put(k, &id, fd));
    const struct found found = look_for(inverted);
    assert_int_equal(found.protected, 1);
    assert_int_equal(found.unprotected, 0);
    /* Its page, found by its descriptor: locked, and not in a child. */
    char flags[256], map[4200], link[64], target[4200] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", keys_find(k, &id));
    assert_true(readlink(link, target, sizeof target - 1) > 0);
    FILE *f = fopen("/proc/self/maps", "r");
    unsigned long at = 0;
    while (!at && fgets(map, sizeof map, f))
        if (strstr(map, "memfd:snapferry-key"))
            at = strtoul(map, NULL, 16);
    fclose(f);
    assert_true(at);
    flags_of((void *)at, flags, sizeof flags);
    assert_non_null(strstr(flags, " lo")); /* locked */
    assert_non_null(strstr(flags, " dc")); /* not copied by fork() */
    assert_non_null(strstr(flags, " dd")); /* not dumped */
    pid_t pid = fork();
    if (pid == 0) { /* the descriptor was inherited, the memory was not */
        FILE *m = fopen("/proc/self/maps", "r");
        while (m && fgets(map, sizeof map, m))
            if (strstr(map, "memfd:snapferry-key"))
                _exit(1);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    keys_free(k);
}

/* What is remembered of the password is of no use without the salt, which is another in each daemon. */
static void test_ids(void **state)
{
    (void)state;
    struct keys *k = make(), *l = make();
    const struct key_id a = id_of(k, "/a", "p"), again = id_of(k, "/a", "p"), b = id_of(k, "/b", "p"),
                        other = id_of(l, "/a", "p");
    struct key_id none;
    assert_memory_equal(&a, &again, sizeof a);
    assert_memory_not_equal(a.repository, b.repository, sizeof a.repository);
    assert_memory_not_equal(a.secret, b.secret, sizeof a.secret);
    assert_memory_not_equal(a.repository, other.repository, sizeof a.repository);
    assert_memory_not_equal(a.secret, other.secret, sizeof a.secret);
    assert_false(keys_id(k, NULL, "p", &none));
    keys_free(k);
    keys_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_for_whom),  cmocka_unit_test(test_bounded), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_protected), cmocka_unit_test(test_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
