/* SPDX-License-Identifier: GPL-2.0-or-later */
/* s2.c - decoder of S2 streams. Formats: see s2.h. */
#include "repo/s2.h"

#include "base/bytes.h"

#include <stdbool.h>
#include <string.h>

#include <isa-l/crc.h>

#define MAX_BLOCK ((size_t)4 << 20)

enum { CHUNK_COMPRESSED = 0x00, CHUNK_STORED = 0x01, CHUNK_SKIPPABLE = 0x80, CHUNK_IDENTIFIER = 0xff };

static int64_t damaged(struct err *e, const char *why)
{
    return err_set(e, ERR_DAMAGE, 0, "damaged S2 stream: %s", why);
}

/* Copies n bytes from `offset` back; what is copied may be part of what the copy makes. */
static void copy_back(uint8_t *to, size_t offset, size_t n)
{
    const uint8_t *from = to - offset;
    while (n > offset) { /* each round doubles the period that is there already */
        memcpy(to, from, offset);
        to += offset;
        n -= offset;
        offset *= 2;
    }
    memcpy(to, from, n);
}

int64_t s2_expand_block(const uint8_t *in, size_t in_len, uint8_t *out, size_t cap, struct err *e)
{
    const uint8_t *end = in + in_len;
    uint64_t total = 0;
    for (unsigned shift = 0;; shift += 7) {
        if (in == end || shift > 28)
            return damaged(e, "bad block length");
        total |= (uint64_t)(*in & 0x7f) << shift;
        if (!(*in++ & 0x80))
            break;
    }
    if (total > cap)
        return damaged(e, "block longer than expected");
    size_t done = 0, offset = 0; /* a block cannot begin with a repeat: no offset yet */
    while (in < end) {
        unsigned tag = *in++, v = tag >> 2;
        size_t left = (size_t)(end - in), n, extra;
        if ((tag & 3) == 0) {
            extra = v < 60 ? 0 : v - 59;
            if (left < extra)
                return damaged(e, "truncated literal");
            n = v;
            if (extra) {
                n = 0;
                for (size_t i = 0; i < extra; i++)
                    n |= (size_t)in[i] << (8 * i);
            }
            n++;
            in += extra;
            if (n > left - extra || n > total - done)
                return damaged(e, "literal too long");
            memcpy(out + done, in, n);
            in += n;
            done += n;
            continue;
        }
        if ((tag & 3) == 1) {
            if (left < 1)
                return damaged(e, "truncated copy");
            size_t back = (size_t)(tag & 0xe0) << 3 | *in++;
            left--;
            n = v & 7;
            if (back) {
                offset = back;
            } else if (n >= 5) { /* S2: repeat of the last offset, with 1 to 3 bytes of length */
                static const uint32_t base[3] = {4, 256, 65536};
                extra = n - 4;
                if (left < extra)
                    return damaged(e, "truncated repeat");
                n = base[extra - 1];
                for (size_t i = 0; i < extra; i++)
                    n += (size_t)in[i] << (8 * i);
                in += extra;
            }
            n += 4;
        } else {
            extra = (tag & 3) == 2 ? 2 : 4;
            if (left < extra)
                return damaged(e, "truncated copy");
            offset = extra == 2 ? get_le16(in) : get_le32(in);
            in += extra;
            n = v + 1;
        }
        if (!offset || offset > done)
            return damaged(e, "copy offset out of range");
        if (n > total - done)
            return damaged(e, "copy too long");
        copy_back(out + done, offset, n);
        done += n;
    }
    return done == total ? (int64_t)done : damaged(e, "truncated block");
}

static uint32_t masked_crc32c(const uint8_t *p, size_t n)
{
    uint32_t crc = ~crc32_iscsi((unsigned char *)(uintptr_t)p, (int)n, 0xffffffffu);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

int64_t s2_expand(const void *in, size_t in_len, void *out, size_t cap, struct err *e)
{
    const uint8_t *p = in, *end = p + in_len;
    uint8_t *to = out;
    size_t done = 0;
    bool begun = false;
    while (p < end) {
        if (end - p < 4)
            return damaged(e, "truncated chunk header");
        unsigned type = p[0];
        size_t n = get_le32(p) >> 8;
        p += 4;
        if (n > (size_t)(end - p))
            return damaged(e, "truncated chunk");
        if (type == CHUNK_IDENTIFIER) {
            if (n != 6 || (memcmp(p, "S2sTwO", 6) && memcmp(p, "sNaPpY", 6)))
                return damaged(e, "unknown stream identifier");
            begun = true;
        } else if (!begun) {
            return damaged(e, "missing stream identifier");
        } else if (type == CHUNK_COMPRESSED || type == CHUNK_STORED) {
            if (n < 4)
                return damaged(e, "chunk without checksum");
            size_t room = cap - done < MAX_BLOCK ? cap - done : MAX_BLOCK, made = n - 4;
            if (type == CHUNK_COMPRESSED) {
                int64_t m = s2_expand_block(p + 4, n - 4, to + done, room, e);
                if (m < 0)
                    return m;
                made = (size_t)m;
            } else if (made > room) {
                return damaged(e, "chunk longer than expected");
            } else {
                memcpy(to + done, p + 4, made);
            }
            if (masked_crc32c(to + done, made) != get_le32(p))
                return damaged(e, "wrong checksum");
            done += made;
        } else if (type < CHUNK_SKIPPABLE) {
            return damaged(e, "a chunk of unknown type");
        } /* the rest is padding, an index for seeking, or an extension */
        p += n;
    }
    return (int64_t)done;
}
