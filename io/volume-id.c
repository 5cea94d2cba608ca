/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "io/volume-id.h"

#include "base/bytes.h"

#include <openssl/sha.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define ID_PREFIX "device"
#define ID_PLAIN 200 /* longer ones end in a hash */

void device_id_text(const char *stable, char ret[DEVICE_ID_MAX])
{
    size_t n = sizeof ID_PREFIX - 1;
    memcpy(ret, ID_PREFIX, sizeof ID_PREFIX);
    for (const char *s = stable; *s; s++) {
        unsigned char ch = (unsigned char)*s;
        bool plain =
            (ch >= '0' && ch <= '9') || (ch >= 'A' && ch <= 'Z') || (ch >= 'a' && ch <= 'z') || ch == '.' || ch == '-';
        if (n + 3 > ID_PLAIN) {
            uint8_t hash[SHA256_DIGEST_LENGTH];
            char hex[33];
            SHA256((const uint8_t *)stable, strlen(stable), hash);
            hex_encode(hex, hash, 16);
            snprintf(ret + n, DEVICE_ID_MAX - n, "_%s", hex);
            return;
        }
        if (plain)
            ret[n++] = (char)ch;
        else if (ch == '/')
            ret[n++] = ':';
        else
            n += (size_t)snprintf(ret + n, DEVICE_ID_MAX - n, "_%02x", ch);
    }
    ret[n] = '\0';
}
