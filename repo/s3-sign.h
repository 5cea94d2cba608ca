/* SPDX-License-Identifier: GPL-2.0-or-later */
/* s3-sign.h - AWS signature version 4 of requests to S3. No state; any thread. */
#ifndef SNAPFERRY_REPO_S3_SIGN_H
#define SNAPFERRY_REPO_S3_SIGN_H

#include "base/err.h"
#include "base/s3-keys.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define S3_UNSIGNED "UNSIGNED-PAYLOAD"
#define S3_DATE 17 /* "20130524T000000Z" */
#define S3_AUTHORIZATION 1024

struct s3_header {
    const char *name, *value; /* lower-case; without white space at either end */
};

struct s3_request {
    const char *method, *region;
    const char *path;                /* encoded, begins with a slash */
    const char *query;               /* encoded and sorted, "" or "a=b&c="; without the question mark */
    const struct s3_header *headers; /* to be signed, sorted by name: at least host and x-amz-date */
    size_t n_headers;
    const char *payload_hash; /* hex SHA-256 of the body, or S3_UNSIGNED */
    const char *date;         /* s3_date() */
};

/* The value of x-amz-date. */
char *s3_date(char out[S3_DATE], int64_t ns);
/* The value of the header Authorization. */
int s3_sign(char out[S3_AUTHORIZATION], const struct s3_request *q, const struct s3_keys *k, struct err *e);
/* Encodes all but the unreserved characters of RFC 3986 and, in a path, slashes. 0, or -ENAMETOOLONG. */
int s3_encode(char *out, size_t cap, const char *text, bool path);

#endif
