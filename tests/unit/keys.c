/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * keys.c - each format key is derived once in a process, however often a test opens its repository: scrypt and PBKDF2
 * take 0.1 s by design. Linked by --wrap into all unit tests but those of the derivation itself.
 */
#include "tests/unit/test.h"

#include "repo/format.h"

#include <pthread.h>

int __real_format_derive_key(const char *algo, const char *password, const uint8_t *salt, size_t salt_len,
                             uint8_t key[32], struct err *e);
int __wrap_format_derive_key(const char *algo, const char *password, const uint8_t *salt, size_t salt_len,
                             uint8_t key[32], struct err *e);

struct derived {
    char algo[32], password[128];
    uint8_t salt[64], key[32];
    size_t salt_len;
};

int __wrap_format_derive_key(const char *algo, const char *password, const uint8_t *salt, size_t salt_len,
                             uint8_t key[32], struct err *e)
{
    static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
    static struct derived known[256];
    static size_t n, next;
    struct derived d = {.salt_len = salt_len};
    if (strlen(algo) >= sizeof d.algo || strlen(password) >= sizeof d.password || salt_len > sizeof d.salt)
        return __real_format_derive_key(algo, password, salt, salt_len, key, e);
    strcpy(d.algo, algo);
    strcpy(d.password, password);
    memcpy(d.salt, salt, salt_len);
    bool found = false;
    pthread_mutex_lock(&mu);
    for (size_t i = 0; i < n && !found; i++) {
        found = memcmp(&known[i], &d, offsetof(struct derived, key)) == 0 && known[i].salt_len == salt_len;
        if (found)
            memcpy(key, known[i].key, 32);
    }
    pthread_mutex_unlock(&mu);
    if (found)
        return 0;
    int rc = __real_format_derive_key(algo, password, salt, salt_len, key, e);
    if (rc < 0)
        return rc;
    memcpy(d.key, key, 32);
    pthread_mutex_lock(&mu);
    known[next++ % 256] = d;
    n = next < 256 ? next : 256;
    pthread_mutex_unlock(&mu);
    return rc;
}
