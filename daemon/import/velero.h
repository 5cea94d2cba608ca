/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * velero.h - import of a Velero node-agent ConfigMap as INI of the same meaning
 *
 * A tool beside the configuration, for the command only: it knows nothing of the files or of the daemon. Texts are
 * UTF-8, the result belongs to the caller, and it may be called from any thread.
 */
#ifndef SNAPFERRY_IMPORT_VELERO_H
#define SNAPFERRY_IMPORT_VELERO_H

#include "base/err.h"

/* Imports a Velero node-agent ConfigMap: `text` is its JSON document (the data of the ConfigMap, or a whole ConfigMap
 * object whose data has one JSON member). *ini gets INI text with comments that say where each line comes from
 * (free()). What has no meaning here is refused by name (ERR_USAGE listing each), never dropped in silence. */
int import_velero(const char *text, char **ini, struct err *e);

#endif
