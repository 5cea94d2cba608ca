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
    uint64_t sum;                 /* of all its keys and prefixes, also those that are left out */
    bool empty;                   /* it has none */
};
void s3_page_free(struct s3_page *p);

/* A page of a list of versions (ListObjectVersions). */
#define S3_VERSION_MAX 1024 /* what S3 allows of a version's id */
#define S3_KEY_MAX 1024
struct s3_version {
    struct blob_info blob; /* of a delete marker: without a length */
    bool deleted;          /* a delete marker: from then on there was no such object */
    char id[S3_VERSION_MAX + 1];
};
struct s3_versions {
    const char *prefix; /* as of struct s3_page */
    struct s3_version *all;
    size_t n, cap;
    bool truncated;
    char next_key[S3_KEY_MAX + 1], next_id[S3_VERSION_MAX + 1]; /* markers of the next page; next_id may be "" */
    bool listed;
    uint64_t sum; /* these two as of struct s3_page */
    bool empty;
};
void s3_versions_free(struct s3_versions *v);

/* Pages of a list that has not ended, by their sums. True: one is there again, or there are too many empty ones. Starts
 * as all zeros. */
struct s3_turns {
    uint64_t pages, kept_at, kept, empty;
};
bool s3_turns(struct s3_turns *t, uint64_t sum, bool empty);

struct s3_parser;
/* Empties the page, which must outlive the parser. */
int s3_parser_new(struct s3_parser **ret, struct s3_page *p, struct err *e);
int s3_versions_parser_new(struct s3_parser **ret, struct s3_versions *v, struct err *e); /* likewise */
void s3_parser_free(struct s3_parser *x);
static inline void s3_parser_freep(struct s3_parser **x)
{
    s3_parser_free(*x);
}
/* 0, or -EBADMSG: no list of S3, or one that exceeds the bounds; -ENOMEM. */
int s3_parser_feed(struct s3_parser *x, const void *data, size_t len);
int s3_parser_end(struct s3_parser *x);

/* The text of the element Status in an answer to GetBucketVersioning: "Enabled", "Suspended"; "": it has none. 0, or
 * -EBADMSG: no such answer. */
int s3_versioning_parse(char ret[64], const char *xml, size_t len);

struct s3_error {
    char code[64]; /* "NoSuchKey"; "": the document is no error of S3 */
    char message[256], region[64];
};
void s3_error_parse(struct s3_error *ret, const char *xml, size_t len);

#endif
