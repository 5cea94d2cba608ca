/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/s3-xml.h"

#include "base/time.h"

#include <errno.h>
#include <expat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 16
#define DOCUMENT_MAX ((size_t)32 << 20) /* a page of 1000 keys and prefixes has a tenth of it */
#define TOKEN_MAX ((size_t)256 << 10)   /* of markup; expat looks at all of one again with each piece that comes */
#define EMPTY_MAX 10000                 /* pages without a key one after another: millions that were deleted */
#define TEXT_MAX 4096                   /* a key has 1024 bytes, encoded three times as many */

struct s3_parser {
    XML_Parser xml;
    struct s3_page *page; /* one of these four is meant */
    struct s3_versions *versions;
    struct s3_error *error;
    char *status; /* of 64 bytes, of the answer to GetBucketVersioning */
    unsigned depth;
    char name[4][32]; /* of the open elements, outermost first; longer names are cut, and none of ours is */
    char text[TEXT_MAX + 1];
    size_t len, fed, since; /* bytes: of text, of the document, since the last token */
    uint64_t sum;
    bool empty;
    int rc;
    struct s3_version one; /* without versions: one.blob */
    bool has_key, has_size, has_time, has_id;
};

static void fail(struct s3_parser *x, int rc)
{
    x->rc = rc;
    XML_StopParser(x->xml, XML_FALSE);
}

static void on_start(void *arg, const char *name, const char **attributes)
{
    (void)attributes;
    struct s3_parser *x = arg;
    x->since = 0;
    if (x->depth >= DEPTH_MAX) {
        fail(x, -EBADMSG);
        return;
    }
    if (x->depth < 4)
        snprintf(x->name[x->depth], sizeof x->name[0], "%s", name);
    x->depth++;
    x->len = 0;
    if (x->depth == 2) {
        x->one.blob = (struct blob_info){.length = 0};
        x->one.id[0] = '\0';
        x->has_key = x->has_size = x->has_time = x->has_id = false;
    }
}

static void on_text(void *arg, const char *text, int len)
{
    struct s3_parser *x = arg;
    x->since = 0;
    if ((size_t)len > TEXT_MAX - x->len) {
        fail(x, -EBADMSG);
        return;
    }
    memcpy(x->text + x->len, text, (size_t)len);
    x->len += (size_t)len;
}

/* There is none in S3, and entities would come with it. */
static void on_doctype(void *arg, const char *name, const char *system, const char *public, int subset)
{
    (void)name, (void)system, (void)public, (void)subset;
    fail(arg, -EBADMSG);
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* In place; the text of encoding-type=url. */
static void url_decode(char *text)
{
    char *to = text;
    for (const char *p = text; *p; p++) {
        if (*p == '%' && digit_of(p[1]) >= 0 && digit_of(p[2]) >= 0) {
            *to++ = (char)(digit_of(p[1]) << 4 | digit_of(p[2]));
            p += 2;
        } else {
            *to++ = *p == '+' ? ' ' : *p;
        }
    }
    *to = '\0';
}

/* A server may ignore that keys are wanted encoded. Names of blobs are the same either way; the prefix may not be. */
static void key_decode(struct s3_parser *x, const char *prefix)
{
    if (strncmp(x->text, prefix, strlen(prefix)) != 0)
        url_decode(x->text);
}

/* What a service must not list, since it was asked for no keys behind a slash; or nobody could be shown. */
static bool is_foreign(const char *name)
{
    for (const char *p = name; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f || *p == '/')
            return true;
    return strstr(name, "..") != NULL;
}

static void take_key(struct s3_parser *x)
{
    const char *prefix = x->page ? x->page->prefix : x->versions->prefix;
    const size_t n = strlen(prefix);
    key_decode(x, prefix);
    const size_t len = strlen(x->text);
    x->has_key = !strncmp(x->text, prefix, n) && len > n && len - n <= BLOB_NAME_MAX;
    if (x->has_key && is_foreign(x->text + n))
        x->has_key = false;
    if (x->has_key)
        memcpy(x->one.blob.name, x->text + n, len - n + 1);
}

static void take_size(struct s3_parser *x)
{
    char *end;
    errno = 0;
    const unsigned long long n = strtoull(x->text, &end, 10);
    x->has_size = errno == 0 && x->text[0] >= '0' && x->text[0] <= '9' && !*end && n <= INT64_MAX;
    x->one.blob.length = n;
}

static void take_blob(struct s3_parser *x)
{
    struct s3_page *p = x->page;
    if (!x->has_key)
        return; /* none of the repository */
    /* Of unknown age it would be taken for very old, and left out for lost. */
    if (!x->has_size || !x->has_time || p->n >= S3_PAGE_MAX) {
        fail(x, -EBADMSG);
        return;
    }
    if (p->n == p->cap) {
        const size_t cap = p->cap ? 2 * p->cap : 64;
        struct blob_info *all = realloc(p->blobs, cap * sizeof *all);
        if (!all) {
            fail(x, -ENOMEM);
            return;
        }
        p->blobs = all;
        p->cap = cap;
    }
    p->blobs[p->n++] = x->one.blob;
}

/* What an object of a list and a version have. */
static void member_end(struct s3_parser *x, const char *name)
{
    if (!strcmp(name, "Key"))
        take_key(x);
    else if (!strcmp(name, "Size"))
        take_size(x);
    else if (!strcmp(name, "LastModified"))
        x->has_time = time_parse(&x->one.blob.mtime_ns, x->text) == 0;
}

static void page_end(struct s3_parser *x, const char *name)
{
    struct s3_page *p = x->page;
    if (x->depth == 1) {
        p->listed = !strcmp(name, "ListBucketResult");
        p->sum = x->sum;
        p->empty = x->empty;
    } else if (x->depth == 2) {
        if (!strcmp(name, "Contents"))
            take_blob(x);
        else if (!strcmp(name, "IsTruncated"))
            p->truncated = !strcmp(x->text, "true");
        else if (!strcmp(name, "NextContinuationToken") && x->len > S3_TOKEN_MAX)
            fail(x, -EBADMSG);
        else if (!strcmp(name, "NextContinuationToken"))
            memcpy(p->token, x->text, x->len + 1);
    } else if (x->depth == 3 && !strcmp(x->name[1], "Contents")) {
        member_end(x, name);
    }
}

/* ---- versions ---- */

static void take_version(struct s3_parser *x, bool deleted)
{
    struct s3_versions *v = x->versions;
    if (!x->has_key)
        return;
    if (!x->has_time || !x->has_id || (!x->has_size && !deleted) || v->n >= S3_PAGE_MAX) {
        fail(x, -EBADMSG);
        return;
    }
    if (v->n == v->cap) {
        const size_t cap = v->cap ? 2 * v->cap : 16;
        struct s3_version *all = realloc(v->all, cap * sizeof *all);
        if (!all) {
            fail(x, -ENOMEM);
            return;
        }
        v->all = all;
        v->cap = cap;
    }
    v->all[v->n] = x->one;
    v->all[v->n++].deleted = deleted;
}

static void take_marker(struct s3_parser *x, char *to, size_t max)
{
    if (strlen(x->text) > max)
        fail(x, -EBADMSG);
    else
        memcpy(to, x->text, strlen(x->text) + 1);
}

static void versions_end(struct s3_parser *x, const char *name)
{
    struct s3_versions *v = x->versions;
    if (x->depth == 1) {
        v->listed = !strcmp(name, "ListVersionsResult");
        v->sum = x->sum;
        v->empty = x->empty;
    } else if (x->depth == 2) {
        if (!strcmp(name, "Version")) {
            take_version(x, false);
        } else if (!strcmp(name, "DeleteMarker")) {
            take_version(x, true);
        } else if (!strcmp(name, "IsTruncated")) {
            v->truncated = !strcmp(x->text, "true");
        } else if (!strcmp(name, "NextKeyMarker")) {
            key_decode(x, v->prefix);
            take_marker(x, v->next_key, S3_KEY_MAX);
        } else if (!strcmp(name, "NextVersionIdMarker")) {
            take_marker(x, v->next_id, S3_VERSION_MAX);
        }
    } else if (x->depth == 3 && (!strcmp(x->name[1], "Version") || !strcmp(x->name[1], "DeleteMarker"))) {
        if (strcmp(name, "VersionId") != 0) {
            member_end(x, name);
        } else if (x->len > 0) {
            take_marker(x, x->one.id, S3_VERSION_MAX);
            x->has_id = x->rc == 0;
        }
    }
}

static void status_end(struct s3_parser *x, const char *name)
{
    if (x->depth == 2 && !strcmp(x->name[0], "VersioningConfiguration") && !strcmp(name, "Status"))
        snprintf(x->status, 64, "%.63s", x->text);
}

static void error_end(struct s3_parser *x, const char *name)
{
    struct s3_error *r = x->error;
    if (x->depth != 2 || strcmp(x->name[0], "Error") != 0)
        return;
    if (!strcmp(name, "Code"))
        snprintf(r->code, sizeof r->code, "%s", x->text);
    else if (!strcmp(name, "Message"))
        snprintf(r->message, sizeof r->message, "%s", x->text);
    else if (!strcmp(name, "Region"))
        snprintf(r->region, sizeof r->region, "%s", x->text);
}

/* FNV-1a. */
static void sum_add(struct s3_parser *x)
{
    for (size_t i = 0; i <= x->len; i++)
        x->sum = (x->sum ^ (uint8_t)x->text[i]) * 0x100000001b3u;
    x->empty = false;
}

static void on_end(void *arg, const char *name)
{
    struct s3_parser *x = arg;
    x->since = 0;
    x->text[x->len] = '\0';
    if (x->depth == 3 && (!strcmp(name, "Key") || !strcmp(name, "Prefix") || !strcmp(name, "VersionId")))
        sum_add(x);
    if (x->page)
        page_end(x, name);
    else if (x->versions)
        versions_end(x, name);
    else if (x->status)
        status_end(x, name);
    else
        error_end(x, name);
    x->depth--;
    x->len = 0;
}

static bool parser_init(struct s3_parser *x)
{
    x->xml = XML_ParserCreate("UTF-8");
    if (!x->xml)
        return false;
    x->sum = 0xcbf29ce484222325u;
    x->empty = true;
    XML_SetUserData(x->xml, x);
    XML_SetElementHandler(x->xml, on_start, on_end);
    XML_SetCharacterDataHandler(x->xml, on_text);
    XML_SetStartDoctypeDeclHandler(x->xml, on_doctype);
    return true;
}

/* NULL: no memory. */
static struct s3_parser *parser_make(void)
{
    struct s3_parser *x = calloc(1, sizeof *x);
    if (x && parser_init(x))
        return x;
    free(x);
    return NULL;
}

int s3_parser_new(struct s3_parser **ret, struct s3_page *p, struct err *e)
{
    struct s3_parser *x = parser_make();
    if (!x)
        return err_nomem(e);
    x->page = p;
    p->n = 0;
    p->truncated = p->listed = false;
    p->token[0] = '\0';
    *ret = x;
    return 0;
}

int s3_versions_parser_new(struct s3_parser **ret, struct s3_versions *v, struct err *e)
{
    struct s3_parser *x = parser_make();
    if (!x)
        return err_nomem(e);
    x->versions = v;
    v->n = 0;
    v->truncated = v->listed = false;
    v->next_key[0] = v->next_id[0] = '\0';
    *ret = x;
    return 0;
}

void s3_parser_free(struct s3_parser *x)
{
    if (!x)
        return;
    XML_ParserFree(x->xml);
    free(x);
}

static int parse(struct s3_parser *x, const void *data, size_t len, bool last)
{
    if (x->rc == 0 && XML_Parse(x->xml, data, (int)len, last) != XML_STATUS_OK && x->rc == 0)
        x->rc = XML_GetErrorCode(x->xml) == XML_ERROR_NO_MEMORY ? -ENOMEM : -EBADMSG;
    return x->rc;
}

int s3_parser_feed(struct s3_parser *x, const void *data, size_t len)
{
    x->fed += len;
    x->since += len;
    const int rc = len > 1 << 20 || x->fed > DOCUMENT_MAX ? -EBADMSG : parse(x, data, len, false);
    return rc == 0 && x->since > TOKEN_MAX ? -EBADMSG : rc;
}

/* Brent's search for a cycle: one page is kept, and exchanged for a later one ever more seldom. */
bool s3_turns(struct s3_turns *t, uint64_t sum, bool empty)
{
    if (empty)
        return ++t->empty > EMPTY_MAX;
    t->empty = 0;
    if (t->pages > 0 && sum == t->kept)
        return true;
    if (t->pages++ >= 2 * t->kept_at) {
        t->kept = sum;
        t->kept_at = t->pages;
    }
    return false;
}

int s3_parser_end(struct s3_parser *x)
{
    const int rc = parse(x, "", 0, true);
    if (rc < 0)
        return rc;
    const struct s3_versions *v = x->versions;
    const bool whole = v ? v->listed && (!v->truncated || v->next_key[0])
                         : x->page->listed && (!x->page->truncated || x->page->token[0]);
    return whole ? 0 : -EBADMSG;
}

void s3_page_free(struct s3_page *p)
{
    free(p->blobs);
    p->blobs = NULL;
    p->n = p->cap = 0;
}

void s3_versions_free(struct s3_versions *v)
{
    free(v->all);
    v->all = NULL;
    v->n = v->cap = 0;
}

int s3_versioning_parse(char ret[64], const char *xml, size_t len)
{
    struct s3_parser *x = parser_make();
    if (!x)
        return -ENOMEM;
    ret[0] = '\0';
    x->status = ret;
    int rc = parse(x, xml, len, true);
    if (rc == 0 && strcmp(x->name[0], "VersioningConfiguration") != 0)
        rc = -EBADMSG;
    s3_parser_free(x);
    return rc;
}

/* What becomes part of a message has no control characters. */
static void printable(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = ' ';
}

void s3_error_parse(struct s3_error *ret, const char *xml, size_t len)
{
    struct s3_parser *x = calloc(1, sizeof *x);
    *ret = (struct s3_error){.code = ""};
    if (x && parser_init(x)) {
        x->error = ret;
        parse(x, xml, len, true);
        XML_ParserFree(x->xml);
    }
    free(x);
    printable(ret->code);
    printable(ret->message);
    printable(ret->region);
}
