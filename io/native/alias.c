/* SPDX-License-Identifier: GPL-2.0-or-later */
/* alias.c - aliases: names of objects, chosen before the objects are created */
#include "io/native/driver.h"

#include "base/bytes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

void alias_new(char ret[ALIAS_LEN + 1])
{
    uint8_t b[16];
    char hex[33];
    /* For 16 bytes getrandom() can only fail before the kernel has its entropy; it waits for that. */
    while (getrandom(b, sizeof b, 0) != (ssize_t)sizeof b) {
        if (errno != EINTR)
            abort();
    }
    b[6] = (uint8_t)((b[6] & 0x0f) | 0x40); /* version 4: random */
    b[8] = (uint8_t)((b[8] & 0x3f) | 0x80); /* variant of RFC 9562 */
    hex_encode(hex, b, sizeof b);
    snprintf(ret, ALIAS_LEN + 1, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16, hex + 20);
}

bool alias_valid(const char *s)
{
    for (size_t i = 0; i < ALIAS_LEN; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? s[i] != '-' : !((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'f')))
            return false; /* a NUL ends it here too */
    }
    return s[ALIAS_LEN] == '\0';
}

int native_foreign(const char *path, const char *alias, const char *how, struct err *e)
{
    err_plain(e, ERR_PERMISSION, ESTALE, "%s does not have the tag of native snapshot %s of this node: not removed",
              path, alias);
    err_hint(e, "%s: the record of the native snapshot goes then", how);
    return -ESTALE;
}
