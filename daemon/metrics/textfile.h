/* SPDX-License-Identifier: GPL-2.0-or-later */
/* textfile.h - a page as a file of node_exporter's textfile collector */
#ifndef SNAPFERRY_DAEMON_METRICS_TEXTFILE_H
#define SNAPFERRY_DAEMON_METRICS_TEXTFILE_H

#include "base/err.h"

#include <jansson.h>

/* Writes text[0..len) to `path`, mode 0644, via a temporary file and a rename: a reader finds the old one or the new
 * one. May block: see textfile_step(). */
int textfile_write(const char *path, const char *text, size_t len, struct err *e);
/* step_fn (proc/step.h): {"path", "text"} */
int textfile_step(const json_t *in, json_t **out, int *fd, struct err *e);
/* step_fn: {"path"}, which need not exist */
int textfile_remove_step(const json_t *in, json_t **out, int *fd, struct err *e);

#endif
