/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * reader-test.h - a reader whose reads can be made to go wrong (internal to io/, for tests)
 *
 * io_uring reads do not go through libc, so no preloaded library can spoil them: the hook sits where results arrive.
 */
#ifndef SNAPFERRY_IO_READER_TEST_H
#define SNAPFERRY_IO_READER_TEST_H

#include "io/reader.h"

struct reader_fault {
    /*
     * Called for every finished read, whichever way it was done, in the thread that sees it finish (several at a time
     * in preadv mode): `len` bytes at `pos` were asked for, `res` came (bytes, or negative errno). What it returns is
     * taken for the result; it may spoil buf behind a result that it shortens.
     */
    int64_t (*on_result)(void *arg, uint64_t pos, void *buf, size_t len, int64_t res);
    void *arg;
    unsigned lower_flags; /* leaves out the n best sets of io_uring setup flags, as an old kernel would refuse them */
};

int reader_new_faulty(struct reader **ret, struct source *s, const struct reader_opts *o, const struct reader_fault *f,
                      struct err *e);

#endif
