/* SPDX-License-Identifier: GPL-2.0-or-later */
/* s3-xml.h - the XML documents of S3: pages of lists, and errors. Memory is bounded whatever comes (internal to repo/).
 */
#ifndef SNAPFERRY_REPO_S3_XML_H
#define SNAPFERRY_REPO_S3_XML_H

#include "repo/blob.h"

#define S3_TOKEN_MAX 2048
#define S3_PAGE_MAX 1000 /* keys of a page, what every server gives at most */

/* A page of a list. */
struct s3_page {
    const char *prefix; /* of all keys, the configured one; what has another is left out */
    struct blob_info *blobs;
    size_t n, cap;
    bool truncated;
    char token[S3_TOKEN_MAX + 1]; /* of the next page */
    bool listed;                  /* it was a list */
};
void s3_page_free(struct s3_page *p);

struct s3_parser;
/* Empties the page, which must outlive the parser. */
int s3_parser_new(struct s3_parser **ret, struct s3_page *p, struct err *e);
void s3_parser_free(struct s3_parser *x);
static inline void s3_parser_freep(struct s3_parser **x)
{
    s3_parser_free(*x);
}
/* 0, or -EBADMSG: no list of S3, or one that exceeds the bounds; -ENOMEM. */
int s3_parser_feed(struct s3_parser *x, const void *data, size_t len);
int s3_parser_end(struct s3_parser *x);

struct s3_error {
    char code[64]; /* "NoSuchKey"; "": the document is no error of S3 */
    char message[256], region[64];
};
void s3_error_parse(struct s3_error *ret, const char *xml, size_t len);

#endif
