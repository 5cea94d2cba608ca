/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * nbd-lib.h - libnbd, loaded when the first export is opened (internal to io)
 *
 * It brings GnuTLS and libxml2 into a process, which a mover that reads a device does not need; and a node without NBD
 * needs no libnbd.
 */
#ifndef SNAPFERRY_IO_NBD_LIB_H
#define SNAPFERRY_IO_NBD_LIB_H

#include "base/err.h"

#include <libnbd.h>

#define NBD_FUNCTIONS(X)                                                                                               \
    X(create)                                                                                                          \
    X(close)                                                                                                           \
    X(get_error)                                                                                                       \
    X(get_errno)                                                                                                       \
    X(set_export_name)                                                                                                 \
    X(add_meta_context)                                                                                                \
    X(set_opt_mode)                                                                                                    \
    X(set_request_structured_replies)                                                                                  \
    X(set_pread_initialize)                                                                                            \
    X(get_size)                                                                                                        \
    X(get_block_size)                                                                                                  \
    X(is_read_only)                                                                                                    \
    X(can_flush)                                                                                                       \
    X(can_zero)                                                                                                        \
    X(can_meta_context)                                                                                                \
    X(get_structured_replies_negotiated)                                                                               \
    X(aio_connect_socket)                                                                                              \
    X(aio_opt_abort)                                                                                                   \
    X(aio_opt_list)                                                                                                    \
    X(aio_opt_info)                                                                                                    \
    X(aio_pread_structured)                                                                                            \
    X(aio_block_status)                                                                                                \
    X(aio_pwrite)                                                                                                      \
    X(aio_zero)                                                                                                        \
    X(aio_flush)                                                                                                       \
    X(aio_get_fd)                                                                                                      \
    X(aio_get_direction)                                                                                               \
    X(aio_notify_read)                                                                                                 \
    X(aio_notify_write)                                                                                                \
    X(aio_is_ready)                                                                                                    \
    X(aio_is_negotiating)                                                                                              \
    X(aio_is_dead)                                                                                                     \
    X(aio_is_closed)

struct nbd_lib {
#define NBD_MEMBER(f) __typeof__(nbd_##f) *f;
    NBD_FUNCTIONS(NBD_MEMBER)
#undef NBD_MEMBER
};

/* NULL if it is not installed: ERR_USAGE, and how to install it. Thread-safe. */
const struct nbd_lib *nbd_lib(struct err *e);

#endif
