/* SPDX-License-Identifier: GPL-2.0-or-later */
/* bytes.h - integers of a fixed byte order in byte strings, and hex. Used for every on-disk integer. */
#ifndef SNAPFERRY_BASE_BYTES_H
#define SNAPFERRY_BASE_BYTES_H

#include <stddef.h>
#include <stdint.h>

static inline uint16_t get_le16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}
static inline uint16_t get_be16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}
static inline uint32_t get_be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}
static inline uint32_t get_le32(const uint8_t *p)
{
    return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}
static inline uint64_t get_be64(const uint8_t *p)
{
    return (uint64_t)get_be32(p) << 32 | get_be32(p + 4);
}
static inline uint64_t get_le64(const uint8_t *p)
{
    return (uint64_t)get_le32(p + 4) << 32 | get_le32(p);
}
static inline void put_le16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}
static inline void put_be16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}
static inline void put_be32(uint8_t *p, uint32_t v)
{
    put_be16(p, (uint16_t)(v >> 16));
    put_be16(p + 2, (uint16_t)v);
}
static inline void put_le32(uint8_t *p, uint32_t v)
{
    put_le16(p, (uint16_t)v);
    put_le16(p + 2, (uint16_t)(v >> 16));
}
static inline void put_be64(uint8_t *p, uint64_t v)
{
    put_be32(p, (uint32_t)(v >> 32));
    put_be32(p + 4, (uint32_t)v);
}
static inline void put_le64(uint8_t *p, uint64_t v)
{
    put_le32(p, (uint32_t)v);
    put_le32(p + 4, (uint32_t)(v >> 32));
}

/* Writes 2*n lower-case hex digits and a terminating NUL: `out` has room for 2*n+1 bytes. Returns out. */
char *hex_encode(char *out, const uint8_t *in, size_t n);

/* Decodes exactly `digits` hex digits (either case, an even number) into digits/2 bytes. Returns 0, or -1 if any
 * character is no hex digit or the number is odd; `out` is then undefined. */
int hex_decode(uint8_t *out, const char *in, size_t digits);

#endif
