/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * nbd-uri.h - addresses of NBD exports
 *
 *     nbd+unix:///EXPORT?socket=PATH[&extents=no]
 *     nbd://HOST[:PORT]/EXPORT
 *
 * extents=no is ours: what the server declares to be zeros is not relied upon. The rest as in
 * https://github.com/NetworkBlockDevice/nbd/blob/master/doc/uri.md; %XX stands for a byte. TLS (nbds) is refused.
 */
#ifndef SNAPFERRY_IO_NBD_URI_H
#define SNAPFERRY_IO_NBD_URI_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define NBD_EXPORT_MAX 1024
#define NBD_URI_MAX 4096
#define NBD_POINT_IN_TIME "snapferry-" /* exports of driver qemu begin with it */

struct nbd_uri {
    char socket[108]; /* absolute path of a Unix socket; "": TCP */
    char host[256];   /* name or address, without brackets */
    char port[6];     /* decimal */
    char export[NBD_EXPORT_MAX];
    bool no_extents; /* neither extents nor structured replies, in which a server leaves out what it takes for zeros */
};

/* Whether the text begins as an address of NBD of any kind, also of one that is refused. Such a text is never a path of
 * a file that is meant: "./nbd:x" is one. */
bool nbd_uri_is(const char *text);
/* ERR_USAGE and what is wrong. */
int nbd_uri_parse(struct nbd_uri *ret, const char *text, struct err *e);
/* The one way to write the address: what parses to the same export gives the same text. Characters that have a meaning
 * in patterns of fnmatch(3), and slashes of the export, are written as %XX. */
void nbd_uri_text(const struct nbd_uri *u, char out[NBD_URI_MAX]);

#endif
