/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "base/bytes.h"

#include <stdio.h>

char *hex_encode(char *out, const uint8_t *in, size_t n)
{
    static const char digit[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digit[in[i] >> 4];
        out[2 * i + 1] = digit[in[i] & 15];
    }
    out[2 * n] = '\0';
    return out;
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

int hex_decode(uint8_t *out, const char *in, size_t digits)
{
    if (digits % 2)
        return -1;
    for (size_t i = 0; i < digits / 2; i++) {
        int hi = digit_value(in[2 * i]), lo = digit_value(in[2 * i + 1]);
        if (hi < 0 || lo < 0)
            return -1;
        out[i] = (uint8_t)(hi << 4 | lo);
    }
    return 0;
}
