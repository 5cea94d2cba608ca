/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * rolling.h - the rolling hashes of splitter.h, one scan function per kernel (internal to the chunker)
 *
 * A scan searches for the smallest n in [from, to] for which the hash of data[n-64 .. n-1] is 0 modulo mask+1, and
 * returns it, or 0 if there is none. 64 <= from; data has `to` bytes. The window depends only on those 64 bytes, so
 * that a scan can start anywhere and ranges can be divided into pieces that are processed in parallel.
 */
#ifndef SNAPFERRY_CHUNKER_ROLLING_H
#define SNAPFERRY_CHUNKER_ROLLING_H

#include <stddef.h>
#include <stdint.h>

#define ROLLING_WINDOW 64

typedef size_t rolling_scan_fn(const uint8_t *data, size_t from, size_t to, uint32_t mask);

extern const uint32_t buzhash_table[256];

rolling_scan_fn buzhash_scan_scalar;
rolling_scan_fn buzhash_scan_avx2;
rolling_scan_fn buzhash_scan_avx512;
rolling_scan_fn rabinkarp_scan_scalar;
rolling_scan_fn rabinkarp_scan_avx2;

#define RABINKARP_POLY UINT64_C(0x2e3e3e4a305605)
#define RABINKARP_DEGREE 53

/* Residue of data[0..len-1], read as a polynomial, modulo the Rabin-Karp modulus. */
uint64_t rabinkarp_residue(const uint8_t *data, size_t len);

/* Rolls byte by byte: the smallest n in [from + 1, to] whose hash is 0 modulo mask+1, or 0, given the hash `v` at
 * `from`. */
size_t rabinkarp_roll(const uint8_t *data, size_t from, size_t to, uint32_t mask, uint64_t v);

#endif
