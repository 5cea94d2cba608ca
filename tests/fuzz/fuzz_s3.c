/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fuzz_s3.c - byte 0: even: the rest is a page of a list, in pieces of byte 0 / 2 + 1 bytes; 3 modulo 4: likewise a
 * page of versions, and an answer about versioning; other: the body of an error. */
#include "tests/fuzz/fuzz.h"

#include "repo/s3-xml.h"

#include <string.h>

static void page(const uint8_t *data, size_t len, size_t piece)
{
    struct s3_page p = {.prefix = "nas/"};
    struct s3_parser *x = NULL;
    MUST(s3_parser_new(&x, &p, NULL) == 0);
    int rc = 0;
    for (size_t at = 0; rc == 0 && at < len; at += piece)
        rc = s3_parser_feed(x, data + at, len - at < piece ? len - at : piece);
    const int end = s3_parser_end(x);
    MUST(rc == 0 || end == rc);
    MUST(p.n <= S3_PAGE_MAX && strlen(p.token) <= S3_TOKEN_MAX);
    MUST(end < 0 || (p.listed && (!p.truncated || *p.token)));
    for (size_t i = 0; i < p.n; i++)
        MUST(p.blobs[i].name[0] && strlen(p.blobs[i].name) <= BLOB_NAME_MAX && p.blobs[i].length <= INT64_MAX);
    s3_parser_free(x);
    s3_page_free(&p);
}

static void versions(const uint8_t *data, size_t len, size_t piece)
{
    struct s3_versions v = {.prefix = "nas/"};
    struct s3_parser *x = NULL;
    char status[64];
    MUST(s3_versions_parser_new(&x, &v, NULL) == 0);
    int rc = 0;
    for (size_t at = 0; rc == 0 && at < len; at += piece)
        rc = s3_parser_feed(x, data + at, len - at < piece ? len - at : piece);
    const int end = s3_parser_end(x);
    MUST(rc == 0 || end == rc);
    MUST(v.n <= S3_PAGE_MAX && strlen(v.next_key) <= S3_KEY_MAX && strlen(v.next_id) <= S3_VERSION_MAX);
    MUST(end < 0 || (v.listed && (!v.truncated || *v.next_key)));
    for (size_t i = 0; i < v.n; i++)
        MUST(v.all[i].blob.name[0] && v.all[i].id[0] && strlen(v.all[i].id) <= S3_VERSION_MAX);
    s3_parser_free(x);
    s3_versions_free(&v);
    MUST(s3_versioning_parse(status, (const char *)data, len) < 0 || strlen(status) < sizeof status);
}

static void error(const uint8_t *data, size_t len)
{
    struct s3_error r;
    s3_error_parse(&r, (const char *)data, len);
    for (const char *c = r.message; *c; c++)
        MUST((unsigned char)*c >= ' ' && *c != 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len < 1)
        return 0;
    if ((data[0] & 3) == 3)
        versions(data + 1, len - 1, data[0] / 4 + 1);
    else if (data[0] & 1)
        error(data + 1, len - 1);
    else
        page(data + 1, len - 1, data[0] / 2 + 1);
    return 0;
}
