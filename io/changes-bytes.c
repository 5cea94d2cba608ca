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
#define VERSION_ZEROS 2 /* lengths may have the bit ZEROS */
#define ZEROS ((uint64_t)1 << 63)
#define PARTS_MAX (2 * CHANGES_MAX)

int changes_pack(const struct changes *c, enum changes_kind kind, uint64_t size, uint8_t **ret, size_t *len,
                 struct err *e)
{
    struct changes_cursor count = {0}, cursor = {0};
    struct change x;
    bool zeros;
    size_t n = 0;
    for (uint64_t pos = 0; changes_part_after(c, &count, pos, &x, &zeros); pos = x.start + x.len)
        n++;
    uint8_t *p = malloc(HEADER + 16 * n);
    if (!p)
        return err_nomem(e);
    memcpy(p, MAGIC, 6);
    p[6] = (uint8_t)kind;
    p[7] = changes_zero_bytes(c) ? VERSION_ZEROS : VERSION;
    put_le64(p + 8, size);
    put_le64(p + 16, n);
    *ret = p;
    *len = HEADER + 16 * n;
    p += HEADER;
    for (uint64_t pos = 0; changes_part_after(c, &cursor, pos, &x, &zeros); pos = x.start + x.len, p += 16) {
        put_le64(p, x.start);
        put_le64(p + 8, zeros ? x.len | ZEROS : x.len);
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
    if (len < HEADER || memcmp(p, MAGIC, 6) != 0 || (p[7] != VERSION && p[7] != VERSION_ZEROS))
        return malformed(e, "is not one");
    const uint64_t flags = p[7] == VERSION_ZEROS && kind == CHANGES_DIFFER ? ZEROS : 0;
    if (p[6] != (uint8_t)kind)
        return malformed(e, "is a list of something else");
    if (get_le64(p + 8) != size)
        return malformed(e, "is of a volume of another size");
    const uint64_t n = get_le64(p + 16);
    if (n > PARTS_MAX || len != HEADER + 16 * n)
        return malformed(e, "is cut off");
    uint64_t pos = 0;
    int rc = 0;
    p += HEADER;
    for (uint64_t i = 0; rc == 0 && i < n; i++, p += 16) {
        const uint64_t start = get_le64(p), word = get_le64(p + 8), length = word & ~flags;
        if (length == 0 || start < pos || start > size || length > size - start)
            return malformed(e, "is not in order, or ends behind the volume");
        rc = word & flags ? changes_add_zeros(c, start, length, e) : changes_add(c, start, length, e);
        pos = start + length;
    }
    return rc;
}
