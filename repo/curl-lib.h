/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * curl-lib.h - libcurl, loaded when the first object store is opened (internal to repo)
 *
 * It brings some thirty libraries into a process, which are half of the time that a command or a mover needs to start;
 * a repository in a directory needs none of them.
 */
#ifndef SNAPFERRY_REPO_CURL_LIB_H
#define SNAPFERRY_REPO_CURL_LIB_H

#include "base/err.h"

#include <curl/curl.h>

#define CURL_FUNCTIONS(X)                                                                                              \
    X(global_init)                                                                                                     \
    X(getdate)                                                                                                         \
    X(slist_append)                                                                                                    \
    X(slist_free_all)                                                                                                  \
    X(easy_init)                                                                                                       \
    X(easy_cleanup)                                                                                                    \
    X(easy_reset)                                                                                                      \
    X(easy_setopt)                                                                                                     \
    X(easy_getinfo)                                                                                                    \
    X(easy_strerror)                                                                                                   \
    X(multi_init)                                                                                                      \
    X(multi_cleanup)                                                                                                   \
    X(multi_setopt)                                                                                                    \
    X(multi_add_handle)                                                                                                \
    X(multi_remove_handle)                                                                                             \
    X(multi_perform)                                                                                                   \
    X(multi_poll)                                                                                                      \
    X(multi_info_read)

struct curl_lib {
#define CURL_MEMBER(f) __typeof__(curl_##f) *f;
    CURL_FUNCTIONS(CURL_MEMBER)
#undef CURL_MEMBER
};

/* Initialised, for all threads and until the end of the process. NULL if it is not installed or cannot be initialised:
 * ERR_USAGE, and how to install it. Thread-safe. */
const struct curl_lib *curl_lib(struct err *e);

#endif
