/* SPDX-License-Identifier: GPL-2.0-or-later */
/* lockdown-parts.h - what the lock-down of a mover and that of its dialer have in common (internal to both) */
#ifndef SNAPFERRY_DAEMON_MOVER_AGENT_LOCKDOWN_PARTS_H
#define SNAPFERRY_DAEMON_MOVER_AGENT_LOCKDOWN_PARTS_H

#include "base/err.h"

#include <seccomp.h>
#include <stdbool.h>
#include <sys/socket.h>

#ifdef __SANITIZE_ADDRESS__
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

/* No core dump, not dumpable, no new privileges, no capability. *bounding: the bounding set is empty as well. */
int lockdown_privileges(bool *bounding, struct err *e);

/* A filter that refuses everything with EPERM, and lets these calls through; NULL: no memory. */
scmp_filter_ctx filter_new(const int *allowed, size_t n);
/* What every process needs, with its arguments: threads but no processes, signals to itself, reading limits. Returns
 * as seccomp_rule_add(). */
int filter_allow_self(scmp_filter_ctx f);
/* Loads and frees it; `rc` is what adding to it returned. */
int filter_load(scmp_filter_ctx f, int rc, struct err *e);

/* Conditions of an argument. */
static inline struct scmp_arg_cmp arg_equals(unsigned arg, scmp_datum_t value)
{
    return (struct scmp_arg_cmp){.arg = arg, .op = SCMP_CMP_EQ, .datum_a = value};
}
static inline struct scmp_arg_cmp arg_masked(unsigned arg, scmp_datum_t mask, scmp_datum_t value)
{
    return (struct scmp_arg_cmp){.arg = arg, .op = SCMP_CMP_MASKED_EQ, .datum_a = mask, .datum_b = value};
}

#endif
