/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * kernel.h - which SIMD kernel runs on this CPU
 *
 * Chosen once by CPUID (and XGETBV: the operating system must save the registers). SNAPFERRY_KERNEL_<NAME>=scalar|avx2|
 * avx512 (NAME: BUZHASH, RABINKARP, BLAKE2B, BLAKE2S, BLAKE3, AESGCM, SHA256) overrides it; a level that the CPU cannot
 * run, that has no kernel of that name, or an unknown word is an error which kernels_check() reports, never a silent
 * fall-back.
 */
#ifndef SNAPFERRY_CHUNKER_KERNEL_H
#define SNAPFERRY_CHUNKER_KERNEL_H

#include "base/err.h"

enum kernel_level { KERNEL_SCALAR, KERNEL_AVX2, KERNEL_AVX512 };

/* The best level that this CPU and system can run (KERNEL_AVX512 means F, BW, VL, DQ and VBMI). */
enum kernel_level kernel_cpu_level(void);

/* Checks every SNAPFERRY_KERNEL_* variable of the environment. Programs call it first; ERR_USAGE. */
int kernels_check(struct err *e);

/* Level to use for kernel `name` ("BUZHASH"), of which levels up to `have` are built. Never above what the CPU can run.
 */
enum kernel_level kernel_level(const char *name, enum kernel_level have);

const char *kernel_level_name(enum kernel_level l);

#endif
