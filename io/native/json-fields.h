/* SPDX-License-Identifier: GPL-2.0-or-later */
/* json-fields.h - members of JSON documents, read strictly (internal to io/native) */
#ifndef SNAPFERRY_IO_NATIVE_JSON_FIELDS_H
#define SNAPFERRY_IO_NATIVE_JSON_FIELDS_H

#include "io/native/driver.h"

/* Each returns 0 or -EINVAL with ERR_GENERIC: "WHAT: member "KEY" is ...". */
int field_text(const json_t *j, const char *what, const char *key, char *out, size_t size, bool required,
               struct err *e); /* absent and not required: "" */
int field_u64(const json_t *j, const char *what, const char *key, uint64_t *ret, bool required,
              struct err *e); /* absent or null and not required: UINT64_MAX */
int field_i64(const json_t *j, const char *what, const char *key, int64_t *ret, struct err *e);
int field_bool(const json_t *j, const char *what, const char *key, bool *ret, struct err *e);
int field_real(const json_t *j, const char *what, const char *key, double *ret, struct err *e);
int field_mechanism(const json_t *j, const char *what, const char *key, enum expose_mechanism *ret, struct err *e);
int field_alias(const json_t *j, const char *what, const char *key, char out[ALIAS_LEN + 1], bool required,
                struct err *e);

/* Null for numbers that a JSON integer cannot hold: "unknown". */
json_t *u64_json(uint64_t v);

/* The error of the above: "WHAT: member "KEY" WHY". */
int field_bad(const char *what, const char *key, const char *why, struct err *e);

/* ---- driver-json.c ---- */

json_t *native_tag_json(const struct native_tag *t);
int native_tag_from_json(struct native_tag *t, const json_t *j, const char *what, struct err *e);

#endif
