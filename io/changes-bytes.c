/* SPDX-License-Identifier: GPL-2.0-or-later */
/* changes-bytes.c - a list of changes as bytes, for passing it between processes of one machine */
#include "io/changes.h"

#include "base/bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "SFCHG\0"
#define HEADER 24 /* magic, kind, version, size of the volume, number of ranges */
#define VERSION 1

int changes_pack(const struct changes *c, enum changes_kind kind, uint64_t size, uint8_t **ret, size_t *len,
                 struct err *e)
{
    const size_t n = changes_count(c);
    struct change x;
    size_t cursor = 0;
    uint8_t *p = malloc(HEADER + 16 * n);
    if (!p)
        return err_nomem(e);
    memcpy(p, MAGIC, 6);
    p[6] = (uint8_t)kind;
    p[7] = VERSION;
    put_le64(p + 8, size);
    put_le64(p + 16, n);
    *ret = p;
    *len = HEADER + 16 * n;
    p += HEADER;
    for (uint64_t pos = 0; changes_after(c, &cursor, pos, &x); pos = x.start + x.len, p += 16) {
        put_le64(p, x.start);
        put_le64(p + 8, x.len);
    }
    return 0;
}

static int malformed(struct err *e, const char *what)
{
    return err_set(e, ERR_USAGE, EINVAL, "the list of ranges %s", what);
}

int changes_unpack(struct changes *c, enum changes_kind kind, const uint8_t *p, size_t len, uint64_t size,
                   struct err *e)
{
    if (len < HEADER || memcmp(p, MAGIC, 6) != 0 || p[7] != VERSION)
        return malformed(e, "is not one");
    if (p[6] != (uint8_t)kind)
        return malformed(e, "is a list of something else");
    if (get_le64(p + 8) != size)
        return malformed(e, "is of a volume of another size");
    const uint64_t n = get_le64(p + 16);
    if (n > CHANGES_MAX || len != HEADER + 16 * n)
        return malformed(e, "is cut off");
    uint64_t pos = 0;
    int rc = 0;
    p += HEADER;
    for (uint64_t i = 0; rc == 0 && i < n; i++, p += 16) {
        const uint64_t start = get_le64(p), length = get_le64(p + 8);
        if (length == 0 || start < pos || start > size || length > size - start)
            return malformed(e, "is not in order, or ends behind the volume");
        rc = changes_add(c, start, length, e);
        pos = start + length;
    }
    return rc;
}
