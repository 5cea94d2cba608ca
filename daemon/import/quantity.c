/* SPDX-License-Identifier: GPL-2.0-or-later */
/* quantity.c - amounts as Kubernetes writes them: "500m", "1.5Gi", "2e3", "100M" */
#include "daemon/import/velero-impl.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS_MAX 18

/* Thousandths that one unit stands for; 0: no such suffix. */
static double thousandths(const char *suffix)
{
    static const struct {
        const char *suffix;
        double value;
    } known[] = {
        {"", 1e3},
        {"n", 1e-6},
        {"u", 1e-3},
        {"m", 1},
        {"k", 1e6},
        {"M", 1e9},
        {"G", 1e12},
        {"T", 1e15},
        {"P", 1e18},
        {"E", 1e21},
        {"Ki", 1024e3},
        {"Mi", 1048576e3},
        {"Gi", 1073741824e3},
        {"Ti", 1099511627776e3},
        {"Pi", 1125899906842624e3},
        {"Ei", 1152921504606846976e3},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].suffix, suffix))
            return known[i].value;
    if ((*suffix != 'e' && *suffix != 'E') || !suffix[1])
        return 0;
    const char *digits = suffix + 1 + (suffix[1] == '-' || suffix[1] == '+');
    if (!*digits || strlen(digits) > 2 || digits[strspn(digits, "0123456789")])
        return 0;
    double v = 1e3;
    for (int n = atoi(digits); n > 0; n--)
        v = suffix[1] == '-' ? v / 10 : v * 10;
    return v;
}

int quantity_parse(const char *text, int64_t *ret_thousandths)
{
    char number[DIGITS_MAX + 2];
    size_t n = strspn(text, "0123456789"), m = 0;
    if (text[n] == '.')
        m = 1 + strspn(text + n + 1, "0123456789");
    if (n + m > DIGITS_MAX || n + (m > 1 ? m - 1 : 0) == 0)
        return -EINVAL;
    memcpy(number, text, n + m);
    number[n + m] = '\0';
    /* The whole part exactly, the fraction as a double: an amount of bytes beyond 2^53 has no fraction worth keeping.
     */
    double unit = thousandths(text + n + m), fraction = m > 1 ? strtod(number + n, NULL) : 0;
    number[n] = '\0';
    double whole = n ? strtod(number, NULL) : 0, v = (whole + fraction) * unit;
    if (unit == 0 || v > 9.2e18)
        return -EINVAL;
    int64_t down = (int64_t)v;
    *ret_thousandths = (double)down < v ? down + 1 : down; /* rounded up, as Kubernetes does */
    return 0;
}
