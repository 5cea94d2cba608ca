/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fuzz_zfs_stream.c - send streams of ZFS; the guids are those of the first record. Checksums of zero count as absent,
 * so that they are in nobody's way. */
#include "tests/fuzz/fuzz.h"

#include "io/native/zfs-stream.h"

#include <string.h>

struct outcome {
    int rc;
    uint64_t bytes;
    size_t ranges;
};

static struct outcome parse(const uint8_t *data, size_t len, size_t piece)
{
    struct zfs_stream *s;
    struct changes *list;
    struct err e = ERR_INIT;
    struct outcome o = {0, 0, 0};
    uint64_t to = 0, from = 0;
    struct change x;
    size_t cursor = 0;
    if (len >= 56) {
        memcpy(&to, data + 40, 8);
        memcpy(&from, data + 48, 8);
    }
    if (len > 8 && data[8] == 0) { /* the most significant byte of the magic number first */
        to = __builtin_bswap64(to);
        from = __builtin_bswap64(from);
    }
    MUST(changes_new(&list, &e) == 0 && zfs_stream_new(&s, from, to, list, &e) == 0);
    for (size_t at = 0; o.rc == 0 && at < len; at += piece)
        o.rc = zfs_stream_feed(s, data + at, piece < len - at ? piece : len - at, &e);
    if (o.rc == 0)
        o.rc = zfs_stream_end(s, &e);
    else
        MUST(zfs_stream_feed(s, data, 1, NULL) < 0 && zfs_stream_end(s, NULL) < 0);
    MUST(o.rc == 0 || e.cls == ERR_DAMAGE || e.cls == ERR_SOURCE);
    changes_finish(list);
    o.bytes = changes_bytes(list);
    o.ranges = changes_count(list);
    for (uint64_t pos = 0; changes_after(list, &cursor, pos, &x); pos = x.start + x.len)
        MUST(x.len > 0 && x.start + x.len <= (uint64_t)INT64_MAX);
    zfs_stream_free(s);
    changes_free(list);
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    const struct outcome a = parse(data, len, len ? len : 1), b = parse(data, len, 1), c = parse(data, len, 313);
    MUST(a.rc == b.rc && a.bytes == b.bytes && a.ranges == b.ranges);
    MUST(a.rc == c.rc && a.bytes == c.bytes && a.ranges == c.ranges);
    return 0;
}
