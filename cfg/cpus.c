/* SPDX-License-Identifier: GPL-2.0-or-later */
/* cpus.c - lists of CPUs */
#include "cfg/internal.h"

#include "base/units.h"

#include <errno.h>
#include <string.h>

static int parse_cpu(const char **p, uint64_t *ret, const char **why)
{
    *why = "a list such as 0-3,8 expected";
    if (parse_number(p, ret) < 0)
        return -EINVAL;
    *why = "CPU numbers are 0 to 1023";
    return *ret < CFG_CPUS_MAX ? 0 : -EINVAL;
}

int cfg_parse_cpus(uint8_t mask[CFG_CPUS_MAX / 8], const char *text, const char **why)
{
    memset(mask, 0, CFG_CPUS_MAX / 8);
    for (const char *p = text;; p++) {
        uint64_t first, last;
        if (parse_cpu(&p, &first, why) < 0)
            return -EINVAL;
        last = first;
        if (*p == '-' && (p++, parse_cpu(&p, &last, why) < 0))
            return -EINVAL;
        if (last < first) {
            *why = "range with end before start";
            return -EINVAL;
        }
        for (; first <= last; first++)
            mask[first / 8] |= (uint8_t)(1u << first % 8);
        if (!*p)
            return 0;
        *why = "a list such as 0-3,8 expected";
        if (*p != ',')
            return -EINVAL;
    }
}
