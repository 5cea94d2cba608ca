/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * splitter.h - chunk boundaries of objects, identical to Kopia's
 *
 * FIXED-n cuts after every n bytes. DYNAMIC-A-BUZHASH and -RABINKARP cut where a rolling hash of the last 64 bytes is 0
 * modulo A, never before A/2 and always at 2A bytes. Because A/2 is much larger than 64 for all named splitters, a cut
 * depends only on the bytes since the previous cut: each chunk can be found independently, given its start. Any run of
 * 64 equal bytes (Buzhash) or zero bytes (both) hashes to 0, so that a chunk that begins with `min` zeros is exactly
 * `min` long. (Facts: Kopia repository format, section 11.4.)
 *
 * All functions are pure and thread-safe.
 */
#ifndef SNAPFERRY_CHUNKER_SPLITTER_H
#define SNAPFERRY_CHUNKER_SPLITTER_H

#include <stddef.h>
#include <stdint.h>

enum splitter_kind { SPLITTER_FIXED, SPLITTER_BUZHASH, SPLITTER_RABINKARP };

struct splitter {
    enum splitter_kind kind;
    uint32_t min;  /* shortest chunk that ends in a cut, bytes; also the length of a chunk of zeros */
    uint32_t max;  /* longest chunk, bytes */
    uint32_t mask; /* average - 1 (dynamic kinds) */
    char name[32]; /* Kopia's name, as given */
};

/* Finds a splitter by Kopia's name ("DYNAMIC-4M-BUZHASH", "FIXED-1M", legacy "FIXED" = FIXED-4M, "DYNAMIC" =
 * DYNAMIC-4M-BUZHASH; "" means FIXED, as in a format block without the member). Returns 0, or -EINVAL if unknown. */
int splitter_by_name(struct splitter *s, const char *name);

/* Name number i of those that Kopia offers for new repositories, NULL after the last. */
const char *splitter_name(unsigned i);

/*
 * Length of the chunk that begins at data[0], or 0 if there is no cut within the first `len` bytes (then more data is
 * needed, or the object ends here and the rest is its last chunk). Never 0 for len >= s->max. `scanned` bytes are known
 * to contain no cut (0 initially; in the next call for the same chunk, the previous `len`).
 */
size_t splitter_cut(const struct splitter *s, const uint8_t *data, size_t len, size_t scanned);

/* Name of the kernel in use for a kind ("scalar", "avx2", "avx512"), selected once by CPUID; the environment variables
 * SNAPFERRY_KERNEL_BUZHASH and SNAPFERRY_KERNEL_RABINKARP override it, see kernel.h. */
const char *splitter_kernel(enum splitter_kind kind);

#endif
