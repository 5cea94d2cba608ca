/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * keys.c - programs for shell tests that derive the format key of a repository once, however often they are started:
 * scrypt takes 0.1 s and 64 MiB by design, which was a sixth of all CPU time of the tests. Linked by --wrap into
 * build/tests/snapferry/, beside the same objects as the programs of build/, and into the programs of build/tests/tools
 * that open a repository. What was derived is in the file build/tests/snapferry/keys (of programs that were copied
 * elsewhere: beside them), until there are too many; where it cannot be read or written, the key is derived as ever.
 *
 * A new repository has a salt of its own, which would be derived once in any case: those that a script makes are
 * numbered by the file SNAPFERRY_TEST_SALTS (tests/lib.sh), and the first of each script have the same one, the second
 * ones another, and so on. All other keys of theirs are random.
 */
#include "repo/format.h"

#include "base/cleanup.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int __real_format_derive_key(const char *algo, const char *password, const uint8_t *salt, size_t salt_len,
                             uint8_t key[32], struct err *e);
int __wrap_format_derive_key(const char *algo, const char *password, const uint8_t *salt, size_t salt_len,
                             uint8_t key[32], struct err *e);

int __real_format_create(struct blobs *b, const struct format_create *c, const char *password, struct err *e);
int __wrap_format_create(struct blobs *b, const struct format_create *c, const char *password, struct err *e);

#define KEYS_MAX 2000

struct derived {
    char algo[32], password[128];
    uint64_t salt_len;
    uint8_t salt[64], key[32];
};

static bool keys_path(char path[4096])
{
    ssize_t n = readlink("/proc/self/exe", path, 4080);
    path[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(path, '/');
    if (!slash)
        return false;
    strcpy(slash, "/keys");
    char *tools = strstr(path, "/tests/tools/keys");
    if (tools && strlen(path) < 4070)
        strcpy(tools, "/tests/snapferry/keys");
    return true;
}

static bool key_find(const char *path, struct derived *d)
{
    CLEANUP_FCLOSE FILE *f = fopen(path, "re");
    struct derived known;
    while (f && fread(&known, sizeof known, 1, f) == 1)
        if (memcmp(&known, d, offsetof(struct derived, key)) == 0) {
            *d = known;
            return true;
        }
    return false;
}

/* A record is written by one write(); tests that run side by side append to the same file. */
static void key_keep(const char *path, const struct derived *d)
{
    struct stat st;
    const bool full = stat(path, &st) == 0 && (size_t)st.st_size >= KEYS_MAX * sizeof *d;
    CLEANUP_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (full ? O_TRUNC : 0), 0644);
    if (fd >= 0 && write(fd, d, sizeof *d) != (ssize_t)sizeof *d)
        unlink(path);
}

int __wrap_format_derive_key(const char *algo, const char *password, const uint8_t *salt, size_t salt_len,
                             uint8_t key[32], struct err *e)
{
    char path[4096];
    struct derived d = {.salt_len = salt_len};
    if (strlen(algo) >= sizeof d.algo || strlen(password) >= sizeof d.password || salt_len > sizeof d.salt ||
        !keys_path(path))
        return __real_format_derive_key(algo, password, salt, salt_len, key, e);
    strcpy(d.algo, algo);
    strcpy(d.password, password);
    memcpy(d.salt, salt, salt_len);
    if (!key_find(path, &d)) {
        int rc = __real_format_derive_key(algo, password, salt, salt_len, d.key, e);
        if (rc < 0)
            return rc;
        key_keep(path, &d);
    }
    memcpy(key, d.key, sizeof d.key);
    return 0;
}

/* The number of a new repository among those of a script; -1: there is no such file. */
static int64_t salt_number(void)
{
    const char *path = getenv("SNAPFERRY_TEST_SALTS");
    CLEANUP_CLOSE int fd = path ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
    return fd >= 0 && write(fd, "\n", 1) == 1 ? lseek(fd, 0, SEEK_CUR) : -1;
}

int __wrap_format_create(struct blobs *b, const struct format_create *c, const char *password, struct err *e)
{
    struct format_create numbered = *c;
    uint8_t id[32] = "salt of a repository of a test";
    const int64_t n = c->unique_id ? -1 : salt_number();
    if (n > 0) {
        memcpy(id, &n, sizeof n);
        numbered.unique_id = id;
    }
    return __real_format_create(b, &numbered, password, e);
}
