/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * thin-xml.h - what thin_delta(8) and thin_dump(8) print (internal to io/native)
 *
 * Both write XML, of any length: it is parsed as it comes, and nothing of it is kept. What is read of it decides which
 * parts of a volume are not read at all, so the parser is strict: an element, a device or an order of ranges that it
 * does not know is an error, and so is a document that ends early. The format is that of thin-provisioning-tools 0.9.0
 * (thin-provisioning/xml_format.cc, thin_delta.cc); tests/fixtures/thin has what it printed.
 */
#ifndef SNAPFERRY_IO_NATIVE_THIN_XML_H
#define SNAPFERRY_IO_NATIVE_THIN_XML_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The kernel has 24 bits for the id of a thin device. */
#define THIN_ID_MAX ((1u << 24) - 1)

/* Blocks [begin, begin + blocks) of the device, in ascending order, blocks > 0; the end does not exceed 2^63 bytes. */
typedef int thin_range_fn(uint64_t begin, uint64_t blocks, uint64_t block_bytes, void *arg, struct err *e);

enum thin_print {
    THIN_DELTA, /* thin_delta: what differs between devices `id` (left) and `right` */
    THIN_DUMP   /* thin_dump --dev-id: what is mapped in device `id` */
};
struct thin_wanted {
    enum thin_print print;
    uint64_t id, right;
    uint64_t block_bytes; /* of the pool: the document must have the same */
    thin_range_fn *fn;    /* called for each range; its negative value ends the parsing */
    thin_range_fn *gone;  /* likewise, instead, for what only device `id` has mapped; NULL: `fn` is called */
    void *arg;
};

/* What thin_dump says of the device itself. */
struct thin_device {
    uint64_t transaction; /* of the pool when the device was created */
    uint64_t mapped;      /* blocks */
};

struct thin_parser;

/* -ENOMEM. `w` is copied. */
int thin_parser_new(struct thin_parser **ret, const struct thin_wanted *w, struct err *e);
void thin_parser_free(struct thin_parser *p); /* NULL allowed */
static inline void thin_parser_freep(struct thin_parser **p)
{
    thin_parser_free(*p);
}
/* The next part. ERR_GENERIC (-EBADMSG): malformed, with the line; or what fn returned. Not to be called again then. */
int thin_parser_feed(struct thin_parser *p, const char *part, size_t len, struct err *e);
/* No more comes. -EBADMSG: the document is not complete. THIN_DUMP: *ret (may be NULL) is the device. */
int thin_parser_end(struct thin_parser *p, struct thin_device *ret, struct err *e);

#endif
