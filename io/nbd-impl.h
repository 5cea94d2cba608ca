/* SPDX-License-Identifier: GPL-2.0-or-later */
/* nbd-impl.h - shared by the files of NBD: nbd-link.c uses nbd-dial.c. */
#ifndef SNAPFERRY_IO_NBD_IMPL_H
#define SNAPFERRY_IO_NBD_IMPL_H

#include "io/nbd-lib.h"
#include "io/nbd-link.h"

/* Waits up to `timeout_ms` for the connection, or for `wake` (-1: none) to be readable, and lets libnbd do what it can.
 * Negative: the connection is lost; nbd_get_error() may say why. */
int nbd_drive(const struct nbd_lib *lib, struct nbd_handle *h, int wake, int timeout_ms);

/* Negotiates over `fd`, which is taken, up to the export, with that metadata context (NULL: up to the choice of an
 * export). `stop`: as of nbd_dial(). `name` words errors. */
int nbd_handshake(const struct nbd_lib *lib, struct nbd_handle **ret, int fd, const struct nbd_uri *u,
                  const char *context, const _Atomic bool *stop, const char *name, struct err *e);
/* Lets libnbd work until done(arg), at most NBD_HANDSHAKE_S. */
int nbd_drive_until(const struct nbd_lib *lib, struct nbd_handle *h, bool (*done)(void *), void *arg,
                    const _Atomic bool *stop, const char *name, struct err *e);
/* Checks what the server says of the export. */
int nbd_facts_of(const struct nbd_lib *lib, struct nbd_handle *h, const char *name, struct nbd_facts *ret,
                 struct err *e);

#endif
