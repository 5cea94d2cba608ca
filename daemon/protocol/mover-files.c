/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/protocol/mover-files.h"

#include "base/bytes.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

void operation_hash(char out[OPERATION_HASH_TEXT], const char *operation)
{
    static EVP_MD *sha256; /* looking for it takes longer than the hash */
    uint8_t digest[EVP_MAX_MD_SIZE] = {0};
    if (!sha256)
        sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    EVP_Digest(operation, strlen(operation), digest, NULL, sha256 ? sha256 : EVP_sha256(), NULL);
    hex_encode(out, digest, (OPERATION_HASH_TEXT - 1) / 2);
}

static int path_of(char *out, size_t cap, const char *state_dir, const char *dir, const char *operation,
                   const char *suffix)
{
    char hash[OPERATION_HASH_TEXT];
    operation_hash(hash, operation);
    return snprintf(out, cap, "%s/%s/%s%s", state_dir, dir, hash, suffix) < (int)cap ? 0 : -ENAMETOOLONG;
}

int mover_result_path(char *out, size_t cap, const char *state_dir, const char *operation)
{
    return path_of(out, cap, state_dir, MOVER_RESULTS, operation, ".json");
}

int mover_log_path(char *out, size_t cap, const char *state_dir, const char *operation)
{
    return path_of(out, cap, state_dir, MOVER_LOGS, operation, ".log");
}

int plugin_log_path(char *out, size_t cap, const char *state_dir, const char *operation)
{
    return path_of(out, cap, state_dir, MOVER_LOGS, operation, ".plugin.log");
}
