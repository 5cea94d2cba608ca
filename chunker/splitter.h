/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * splitter.h - where one chunk of an object ends, cut for cut as Kopia does it
 *
 * FIXED-n cuts after every n bytes. DYNAMIC-A-BUZHASH and -RABINKARP cut where a rolling hash of the last 64 bytes is 0
 * modulo A, never before A/2 and always at 2A bytes. Because A/2 is much more than 64 for every named splitter, a cut
 * depends only on the bytes since the previous cut: each chunk can be found on its own, given its start. Any run of 64
 * equal bytes (Buzhash) or zero bytes (both) hashes to 0, so a chunk that begins in zeros and has `min` of them is
 * exactly `min` long. (Facts: Kopia repository format, section 11.4.)
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

/* Looks a splitter up by Kopia's name ("DYNAMIC-4M-BUZHASH", "FIXED-1M", legacy "FIXED" = FIXED-4M, "DYNAMIC" =
 * DYNAMIC-4M-BUZHASH; "" means FIXED, as in a format block without the member). Returns 0, or -EINVAL if unknown. */
int splitter_by_name(struct splitter *s, const char *name);

/* Name number i of those that Kopia offers for new repositories, NULL past the end. */
const char *splitter_name(unsigned i);

/*
 * Length of the chunk that begins at data[0], or 0 if no cut lies within the first `len` bytes (then more data are
 * needed, or the object ends here and the rest is its last chunk). Never 0 for len >= s->max.
 * `scanned` bytes are known to hold no cut (0 at first; on the next call for the same chunk, the previous `len`).
 */
size_t splitter_cut(const struct splitter *s, const uint8_t *data, size_t len, size_t scanned);

/* Name of the kernel in use for a kind ("scalar", "avx2", "avx512"), chosen once by CPUID; the environment variables
 * SNAPFERRY_KERNEL_BUZHASH and SNAPFERRY_KERNEL_RABINKARP override it: see kernel.h. */
const char *splitter_kernel(enum splitter_kind kind);

#endif
