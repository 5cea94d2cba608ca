/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * index-ahead.h - index blobs read several at a time, where each is a request to a server
 *
 * A thousand nodes write thousands of them in a day: one after the other each would cost the delay of an answer. Large
 * ones, of which the bytes take longer than the request, and those in stores of files are left to the caller. Memory:
 * besides page cache that can be written out, a stack for each of eight threads.
 */
#ifndef SNAPFERRY_REPO_INDEX_AHEAD_H
#define SNAPFERRY_REPO_INDEX_AHEAD_H

#include "repo/index-cache.h"

/*
 * As index_cache_get(): ready[i] gets the map of b[i] where want[i], else it remains NULL; the caller owns them. What
 * cannot be fetched is left to the caller, too, who meets the same error.
 */
void index_fetch_ahead(const struct index_cache *c, const struct blob_info *b, size_t n, const bool *want,
                       struct index_map **ready);

/* As index_cache_check(). What was not checked is not `done`. */
struct index_checked {
    bool done, corrected;
    int rc;
    struct err why;
};
void index_check_ahead(const struct index_cache *c, const struct blob_info *b, size_t n, struct index_checked *ret);

#endif
