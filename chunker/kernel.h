/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * kernel.h - selection of SIMD kernels
 *
 * Selected once by CPUID (and XGETBV: the operating system must save the registers).
 * SNAPFERRY_KERNEL_<NAME>=scalar|avx2| avx512 (NAME: BUZHASH, RABINKARP, BLAKE2B, BLAKE2S, BLAKE3, AESGCM, SHA256, MD5)
 * overrides it; a level that the CPU does not support, a level without a kernel, or an unknown word is an error
 * reported by kernels_check(), never a silent fallback.
 */
#ifndef SNAPFERRY_CHUNKER_KERNEL_H
#define SNAPFERRY_CHUNKER_KERNEL_H

#include "base/err.h"

enum kernel_level { KERNEL_SCALAR, KERNEL_AVX2, KERNEL_AVX512 };

/* The highest level supported by CPU and system (KERNEL_AVX512 means F, BW, VL, DQ and VBMI). */
enum kernel_level kernel_cpu_level(void);

/* Checks all variables SNAPFERRY_KERNEL_* of the environment. Programs must call it first. ERR_USAGE. */
int kernels_check(struct err *e);

/* Level to use for kernel `name` ("BUZHASH"), which is built for levels up to `have`. Never above what the CPU
 * supports. */
enum kernel_level kernel_level(const char *name, enum kernel_level have);

const char *kernel_level_name(enum kernel_level l);

#endif
