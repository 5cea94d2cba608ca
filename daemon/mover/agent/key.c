/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/agent/key.h"

#include "daemon/protocol/mover-key.h"
#include "proc/descriptors.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>
#include <unistd.h>

bool key_read(struct format_key *ret, int fd)
{
    struct mover_key k;
    *ret = (struct format_key){.unique_id_len = 0};
    const bool whole = pread(fd, &k, sizeof k, 0) == (ssize_t)sizeof k &&
                       !memcmp(k.magic, MOVER_KEY_MAGIC, sizeof k.magic) && k.unique_id_len <= sizeof ret->unique_id &&
                       memchr(k.algo, 0, sizeof k.algo);
    if (whole) {
        memcpy(ret->algo, k.algo, sizeof ret->algo);
        memcpy(ret->unique_id, k.unique_id, sizeof ret->unique_id);
        memcpy(ret->key, k.key, sizeof ret->key);
        ret->unique_id_len = k.unique_id_len;
    }
    OPENSSL_cleanse(&k, sizeof k);
    return whole;
}

int key_sealed(const struct repo_format *f, struct err *e)
{
    struct format_key from;
    struct mover_key k = {.magic = MOVER_KEY_MAGIC};
    format_key_of(f, &from);
    memcpy(k.algo, from.algo, sizeof k.algo);
    memcpy(k.unique_id, from.unique_id, sizeof k.unique_id);
    memcpy(k.key, from.key, sizeof k.key);
    k.unique_id_len = (uint32_t)from.unique_id_len;
    EVP_Digest(f->blob, f->blob_len, k.format_hash, NULL, EVP_sha256(), NULL);
    int fd = memory_sealed("key", &k, sizeof k, e);
    OPENSSL_cleanse(&k, sizeof k);
    OPENSSL_cleanse(&from, sizeof from);
    return fd;
}
