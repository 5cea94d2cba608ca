/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * s3-target.h - where the requests of a store in S3 connect to: its endpoint, or the proxy of the environment (internal
 * to repo/; blob-s3.h has what others use)
 *
 * Thread-safe while nobody changes the environment.
 */
#ifndef SNAPFERRY_REPO_S3_TARGET_H
#define SNAPFERRY_REPO_S3_TARGET_H

#include "repo/blob-s3.h"

/* ret[0]: the host of the URLs ("HOST[:PORT]", an IPv6 address in brackets) of `scheme`; ret[1]: the proxy that libcurl
 * takes for it, unless no_proxy has the host. Returns how many there are; what does not fit or is no port is left
 * out. */
unsigned s3_targets(struct s3_target ret[S3_TARGETS_MAX], const char *scheme, const char *host);
/* The variable of the environment that libcurl takes as the proxy for this scheme; NULL: none is set. */
const char *s3_proxy_variable(const char *scheme);
/* A proxy by SOCKS to which the client hands an address: the same, by the name, which a client that resolves none has
 * to do. "" for all others, and where there is no room. */
void s3_proxy_by_name(char *ret, size_t cap, const char *proxy);

#endif
