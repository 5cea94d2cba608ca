/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "io/native/thin-xml.h"

#include <errno.h>
#include <expat.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECTOR 512
/* A block of a pool has 64 KiB to 1 GiB (dm-thin.c). */
#define BLOCK_MIN ((uint64_t)64 << 10)
#define BLOCK_MAX ((uint64_t)1 << 30)

struct thin_parser {
    XML_Parser xml;
    struct thin_wanted w;
    unsigned depth;
    bool has_top, has_device, is_complete;
    uint64_t next; /* first block behind the last range */
    uint64_t mapped;
    struct thin_device device;
    struct err *e;
    int rc;
};

static const char *program_of(const struct thin_parser *p)
{
    return p->w.print == THIN_DELTA ? "thin_delta" : "thin_dump";
}

static void stop(struct thin_parser *p, int rc)
{
    p->rc = rc;
    XML_StopParser(p->xml, XML_FALSE);
}

static void malformed(struct thin_parser *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void malformed(struct thin_parser *p, const char *fmt, ...)
{
    char why[200];
    va_list ap;
    if (p->rc < 0)
        return;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    err_plain(p->e, ERR_GENERIC, EBADMSG, "cannot use what %s prints: line %lu: %s", program_of(p),
              (unsigned long)XML_GetCurrentLineNumber(p->xml), why);
    stop(p, -EBADMSG);
}

/* ---- attributes ---- */

static bool attribute(struct thin_parser *p, const char *element, const char **all, const char *name, uint64_t *ret)
{
    for (size_t i = 0; all[i]; i += 2) {
        if (strcmp(all[i], name) != 0)
            continue;
        const char *text = all[i + 1];
        char *end;
        errno = 0;
        const unsigned long long n = strtoull(text, &end, 10);
        if (*text < '0' || *text > '9' || *end || errno) {
            malformed(p, "%.40s %.40s is not a number", element, name);
            return false;
        }
        *ret = n;
        return true;
    }
    malformed(p, "%.40s has no %.40s", element, name);
    return false;
}

/* ---- elements ---- */

static void start_superblock(struct thin_parser *p, const char **all)
{
    uint64_t sectors;
    if (!attribute(p, "superblock", all, "data_block_size", &sectors))
        return;
    p->has_top = true;
    if (sectors != p->w.block_bytes / SECTOR)
        malformed(p, "blocks of %" PRIu64 " sectors, the pool has chunks of %" PRIu64 " bytes", sectors,
                  p->w.block_bytes);
}

static void start_diff(struct thin_parser *p, const char **all)
{
    uint64_t left, right;
    if (!attribute(p, "diff", all, "left", &left) || !attribute(p, "diff", all, "right", &right))
        return;
    if (p->has_device || left != p->w.id || right != p->w.right)
        malformed(p, "devices %" PRIu64 " and %" PRIu64 " are not what was asked for", left, right);
    p->has_device = true;
}

static void start_device(struct thin_parser *p, const char **all)
{
    uint64_t id;
    if (!attribute(p, "device", all, "dev_id", &id) ||
        !attribute(p, "device", all, "transaction", &p->device.transaction) ||
        !attribute(p, "device", all, "mapped_blocks", &p->device.mapped))
        return;
    if (p->has_device || id != p->w.id)
        malformed(p, "device %" PRIu64 " is not what was asked for", id);
    p->has_device = true;
}

static void add_range(struct thin_parser *p, uint64_t begin, uint64_t blocks, thin_range_fn *fn)
{
    const uint64_t most = ((uint64_t)1 << 63) / p->w.block_bytes;
    if (!blocks || begin < p->next || begin >= most || blocks > most - begin) {
        malformed(p, "invalid range: %" PRIu64 " blocks at %" PRIu64, blocks, begin);
        return;
    }
    p->next = begin + blocks;
    p->mapped += blocks;
    int rc = fn ? fn(begin, blocks, p->w.block_bytes, p->w.arg, p->e) : 0;
    if (rc < 0)
        stop(p, rc);
}

static void start_difference(struct thin_parser *p, const char *name, const char **all)
{
    uint64_t begin, blocks;
    const bool same = strcmp(name, "same") == 0, gone = strcmp(name, "left_only") == 0;
    if (!same && !gone && strcmp(name, "different") != 0 && strcmp(name, "right_only") != 0)
        malformed(p, "unknown element %.40s", name);
    else if (attribute(p, name, all, "begin", &begin) && attribute(p, name, all, "length", &blocks))
        add_range(p, begin, blocks, same ? NULL : gone && p->w.gone ? p->w.gone : p->w.fn);
}

static void start_mapping(struct thin_parser *p, const char *name, const char **all)
{
    uint64_t begin, blocks = 1;
    if (strcmp(name, "single_mapping") == 0) {
        if (attribute(p, name, all, "origin_block", &begin))
            add_range(p, begin, 1, p->w.fn);
    } else if (strcmp(name, "range_mapping") == 0) {
        if (attribute(p, name, all, "origin_begin", &begin) && attribute(p, name, all, "length", &blocks))
            add_range(p, begin, blocks, p->w.fn);
    } else {
        malformed(p, "unknown element %.40s", name); /* such as <ref>, mappings that are printed elsewhere */
    }
}

static void on_start(void *arg, const char *name, const char **all)
{
    struct thin_parser *p = arg;
    const bool delta = p->w.print == THIN_DELTA;
    p->depth++;
    if (p->depth == 1 && strcmp(name, "superblock") == 0)
        start_superblock(p, all);
    else if (p->depth == 2 && strcmp(name, delta ? "diff" : "device") == 0)
        delta ? start_diff(p, all) : start_device(p, all);
    else if (p->depth == 3)
        delta ? start_difference(p, name, all) : start_mapping(p, name, all);
    else
        malformed(p, "unknown element %.40s", name);
}

static void on_end(void *arg, const char *name)
{
    struct thin_parser *p = arg;
    (void)name;
    p->depth--;
}

static void on_doctype(void *arg, const char *name, const char *system, const char *public, int subset)
{
    (void)name, (void)system, (void)public, (void)subset;
    malformed(arg, "a document type"); /* neither prints one, and entities would come with it */
}

/* ---- the parser ---- */

int thin_parser_new(struct thin_parser **ret, const struct thin_wanted *w, struct err *e)
{
    if (w->block_bytes < BLOCK_MIN || w->block_bytes > BLOCK_MAX || w->block_bytes % BLOCK_MIN)
        return err_set(e, ERR_GENERIC, EINVAL, "invalid chunk size of a thin pool: %" PRIu64 " bytes", w->block_bytes);
    struct thin_parser *p = calloc(1, sizeof *p);
    if (p)
        p->xml = XML_ParserCreate(NULL);
    if (!p || !p->xml) {
        free(p);
        return err_nomem(e);
    }
    p->w = *w;
    XML_SetUserData(p->xml, p);
    XML_SetElementHandler(p->xml, on_start, on_end);
    XML_SetStartDoctypeDeclHandler(p->xml, on_doctype);
    *ret = p;
    return 0;
}

void thin_parser_free(struct thin_parser *p)
{
    if (!p)
        return;
    XML_ParserFree(p->xml);
    free(p);
}

static int parse(struct thin_parser *p, const char *part, size_t len, bool last, struct err *e)
{
    p->e = e;
    while (p->rc == 0) {
        const int n = len < (1 << 20) ? (int)len : 1 << 20;
        if (XML_Parse(p->xml, part, n, last && (size_t)n == len) != XML_STATUS_OK && p->rc == 0)
            malformed(p, "%s", XML_ErrorString(XML_GetErrorCode(p->xml)));
        part += n;
        len -= (size_t)n;
        if (!len)
            break;
    }
    p->e = NULL;
    return p->rc;
}

int thin_parser_feed(struct thin_parser *p, const char *part, size_t len, struct err *e)
{
    return len ? parse(p, part, len, false, e) : p->rc;
}

int thin_parser_end(struct thin_parser *p, struct thin_device *ret, struct err *e)
{
    int rc = parse(p, "", 0, true, e);
    p->e = e;
    if (rc == 0 && !p->has_device) {
        malformed(p, "no device");
        rc = p->rc;
    }
    p->e = NULL;
    if (rc == 0 && ret)
        *ret = p->device;
    return rc;
}
