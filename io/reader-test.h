/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * reader-test.h - a reader with injected faults (internal to io/, for tests)
 *
 * io_uring reads do not use libc, so that no preloaded library can modify them: the hook is called when results arrive.
 */
#ifndef SNAPFERRY_IO_READER_TEST_H
#define SNAPFERRY_IO_READER_TEST_H

#include "io/reader.h"

struct reader_fault {
    /*
     * Called for every finished read of any kind, in the thread that receives it (concurrently in preadv mode): `len`
     * bytes at `pos` were requested, `res` is the result (bytes, or negative errno). The return value replaces the
     * result; the hook may overwrite buf beyond a result that it shortens.
     */
    int64_t (*on_result)(void *arg, uint64_t pos, void *buf, size_t len, int64_t res);
    void *arg;
    unsigned lower_flags; /* omits the n best sets of io_uring setup flags, like an old kernel */
};

int reader_new_faulty(struct reader **ret, struct source *s, const struct reader_opts *o, const struct reader_fault *f,
                      struct err *e);

#endif
