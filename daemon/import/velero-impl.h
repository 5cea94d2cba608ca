/* SPDX-License-Identifier: GPL-2.0-or-later */
/* velero-impl.h - what the files of the import share */
#ifndef SNAPFERRY_IMPORT_VELERO_IMPL_H
#define SNAPFERRY_IMPORT_VELERO_IMPL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* A Kubernetes quantity in thousandths of its unit (bytes, CPUs), rounded up; -EINVAL. */
int quantity_parse(const char *text, int64_t *ret_thousandths);

/* The document on its way into INI. */
struct import {
    FILE *out;
    const json_t *doc;
    char refused[900]; /* names with reasons, as far as they fit */
    unsigned n_refused;
    unsigned slots; /* the most on any node, 0: not said */
};

/* ---- velero-write.c ---- */

/* Something that cannot be imported, by its path in the document. */
void import_refuse(struct import *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "; text", wrapped into lines that the reader takes. */
void import_comment(struct import *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "key = value"; refuses what the reader would not give back as it is. */
void import_value(struct import *m, const char *path, const char *key, const char *value);
void import_number(struct import *m, const char *key, long long value);
/* Refuses members of `o` that are not in the NULL-terminated list. `path`: of the object. */
void import_only(struct import *m, const json_t *o, const char *path, const char *const *known);

/* ---- velero-nodes.c ---- */

/* Node selectors as only-on-node patterns. True and `patterns` (space-separated), or false after it has refused. */
bool selector_patterns(struct import *m, const json_t *selector, const char *path, char *patterns, size_t cap);
/* The loadAffinity entry in force for volumes of `klass` (NULL: for everything); *index is its number. */
const json_t *affinity_of(const struct import *m, const char *klass, size_t *index);
/* Writes only-on-node of a section, if there is an entry for it. */
void import_affinity(struct import *m, const char *klass);

#endif
