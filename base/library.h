/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * library.h - a shared library that is loaded when it is first needed
 *
 * What brings many libraries into a process is no part of programs that mostly do without it. Whoever uses this has one
 * table of functions for each library, and calls library_load() once, by pthread_once().
 */
#ifndef SNAPFERRY_BASE_LIBRARY_H
#define SNAPFERRY_BASE_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

/* A member of the table: the symbol, and where its address goes. */
struct library_symbol {
    const char *name;
    size_t at; /* offset of the pointer in the table */
};

/* Loads `file` ("libcurl.so.4") for the rest of the process and fills `table`. False: `why` has the reason, the library
 * or the symbol that is missing. */
bool library_load(const char *file, const struct library_symbol *symbols, size_t n, void *table, char why[256]);

#endif
