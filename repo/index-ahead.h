/* SPDX-License-Identifier: GPL-2.0-or-later */
/* index-ahead.h - index blobs fetched into the cache several at a time, where each is a request to a server */
#ifndef SNAPFERRY_REPO_INDEX_AHEAD_H
#define SNAPFERRY_REPO_INDEX_AHEAD_H

#include "repo/index-cache.h"

/*
 * ready[i] gets the map of b[i] where want[i], else it remains NULL; the caller owns them. What cannot be fetched, and
 * what is large, is left to the caller, who meets the same error. Stores of files: nothing. Memory: besides page cache
 * that can be written out, a stack for each of eight threads.
 */
void index_fetch_ahead(const struct index_cache *c, const struct blob_info *b, size_t n, const bool *want,
                       struct index_map **ready);

#endif
