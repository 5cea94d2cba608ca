/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/movers/keys.h"

#include "base/cleanup.h"
#include "base/json.h"
#include "daemon/protocol/mover-key.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEYS_MAX 32 /* repositories; the oldest is dropped */
#define SALT_LEN 32
#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

struct key {
    struct key *next; /* newest first */
    struct key_id id;
    int fd;
    const struct mover_key *map; /* keeps its page in memory */
};

struct keys {
    uint8_t *salt; /* SALT_LEN random bytes; NULL: nothing is kept */
    struct key *first;
};

/* Not swapped, not in core dumps, not inherited by children. */
static bool page_protect(void *p, size_t len)
{
    return mlock(p, len) == 0 && madvise(p, len, MADV_DONTDUMP) == 0 && madvise(p, len, MADV_DONTFORK) == 0;
}

int keys_new(struct keys **ret, struct err *e)
{
    struct keys *k = calloc(1, sizeof *k);
    if (!k)
        return err_nomem(e);
    void *p = mmap(NULL, SALT_LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p != MAP_FAILED && page_protect(p, SALT_LEN) && getrandom(p, SALT_LEN, 0) == SALT_LEN) {
        k->salt = p;
    } else {
        log_debug("cannot lock memory (%s): each mover derives its repository's key itself", strerror(errno));
        if (p != MAP_FAILED)
            munmap(p, SALT_LEN);
    }
    *ret = k;
    return 0;
}

static void key_free(struct key *key)
{
    if (key->map)
        munmap((void *)(uintptr_t)key->map, sizeof *key->map);
    closep(&key->fd);
    free(key);
}

void keys_forget(struct keys *k)
{
    while (k->first) {
        struct key *key = k->first;
        k->first = key->next;
        key_free(key);
    }
}

void keys_free(struct keys *k)
{
    if (!k)
        return;
    keys_forget(k);
    if (k->salt) {
        OPENSSL_cleanse(k->salt, SALT_LEN);
        munmap(k->salt, SALT_LEN);
    }
    free(k);
}

bool keys_id(const struct keys *k, const json_t *repository, const char *password, struct key_id *ret)
{
    /* Without the id that is expected of it, which is not known at first: a mover compares the key's format itself. */
    CLEANUP_JSON json_t *place = json_copy((json_t *)(uintptr_t)repository);
    json_object_del(place, "unique_id");
    CLEANUP_FREE char *text = json_dumps(place, JSON_COMPACT | JSON_SORT_KEYS);
    static EVP_MD *sha256; /* looking for it takes longer than the hash */
    unsigned len = 0;
    if (!sha256)
        sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    if (!k->salt || !text || !password || !sha256)
        return false;
    /* The second hash is keyed with the first and the salt, so that neither allows a test of passwords by itself. */
    uint8_t both[SALT_LEN + sizeof ret->repository];
    bool ok = HMAC(sha256, k->salt, SALT_LEN, (const uint8_t *)text, strlen(text), ret->repository, &len);
    memcpy(both, k->salt, SALT_LEN);
    memcpy(both + SALT_LEN, ret->repository, sizeof ret->repository);
    ok = ok && HMAC(sha256, both, sizeof both, (const uint8_t *)password, strlen(password), ret->secret, &len);
    OPENSSL_cleanse(both, sizeof both);
    return ok;
}

/* The link to the key of that repository; to NULL if there is none. */
static struct key **key_find_slot(struct keys *k, const struct key_id *id)
{
    struct key **at = &k->first;
    while (*at && memcmp((*at)->id.repository, id->repository, sizeof id->repository) != 0)
        at = &(*at)->next;
    return at;
}

static void key_drop(struct key **at)
{
    struct key *key = *at;
    *at = key->next;
    key_free(key);
}

int keys_find(struct keys *k, const struct key_id *id)
{
    struct key **at = key_find_slot(k, id);
    if (!*at)
        return -1;
    if (memcmp((*at)->id.secret, id->secret, sizeof id->secret) == 0)
        return (*at)->fd;
    key_drop(at);
    return -1;
}

/* Only the head is read: the format that it opened. */
static const struct mover_key *map_key(int fd)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) < 0 || st.st_size != sizeof(struct mover_key))
        return NULL;
    void *p = mmap(NULL, sizeof(struct mover_key), PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return NULL;
    const struct mover_key *key = p;
    if (!page_protect(p, sizeof *key) || memcmp(key->magic, MOVER_KEY_MAGIC, sizeof key->magic) != 0) {
        munmap(p, sizeof *key);
        return NULL;
    }
    return key;
}

bool keys_put(struct keys *k, const struct key_id *id, int fd)
{
    CLEANUP_CLOSE int mine = fd;
    const struct mover_key *map = map_key(fd);
    if (!map)
        return false;
    struct key **at = key_find_slot(k, id);
    /* Several movers started at the same time derived the same key. */
    const bool same = *at && !memcmp((*at)->id.secret, id->secret, sizeof id->secret) &&
                      !memcmp((*at)->map->format_hash, map->format_hash, sizeof map->format_hash);
    struct key *key = same ? NULL : calloc(1, sizeof *key);
    if (!key) {
        munmap((void *)(uintptr_t)map, sizeof *map);
        return true;
    }
    if (*at)
        key_drop(at);
    *key = (struct key){.next = k->first, .id = *id, .fd = take_fd(&mine), .map = map};
    k->first = key;
    unsigned n = 1;
    for (at = &key->next; *at && n < KEYS_MAX; at = &(*at)->next)
        n++;
    while (*at)
        key_drop(at);
    return true;
}
