/* SPDX-License-Identifier: GPL-2.0-or-later */
/* redact.h - removal of secrets from a debug bundle */
#ifndef SNAPFERRY_DAEMON_CLI_REDACT_H
#define SNAPFERRY_DAEMON_CLI_REDACT_H

#include "cfg/cfg.h"
#include "daemon/cli/daemon.h"

struct secrets;
/* Reads the password files of a configuration (may be NULL), as far as possible. */
int secrets_new(struct secrets **ret, const struct cfg *c, struct err *e);
void secrets_free(struct secrets *s);
static inline void secrets_freep(struct secrets **s)
{
    secrets_free(*s);
}

/* Copies without secrets; NULL: no memory. */
char *redact_text(const struct secrets *s, const char *text);
json_t *redact_json(const struct secrets *s, const json_t *v);
char *redact_ini(const struct secrets *s, const char *text, size_t *len);

#endif
