/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fuzz.h - what every fuzz target defines. It must take any bytes; a broken promise ends in abort(). */
#ifndef SNAPFERRY_TESTS_FUZZ_FUZZ_H
#define SNAPFERRY_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

#define MUST(what)                                                                                                     \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #what);                                       \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
