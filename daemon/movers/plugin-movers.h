/* SPDX-License-Identifier: GPL-2.0-or-later */
/* plugin-movers.h - movers.h for operations that a plugin carries out (internal to the room) */
#ifndef SNAPFERRY_DAEMON_MOVERS_PLUGIN_MOVERS_H
#define SNAPFERRY_DAEMON_MOVERS_PLUGIN_MOVERS_H

#include "daemon/movers/movers.h"

struct plugin_movers;

int plugin_movers_new(struct plugin_movers **ret, const struct movers_opts *o, struct err *e);
void plugin_movers_free(struct plugin_movers *pm);
int plugin_movers_start(struct plugin_movers *pm, const struct mover_spec *s, struct err *e);
int plugin_movers_adopt(struct plugin_movers *pm, const struct mover_spec *s, struct err *e);
int plugin_movers_cancel(struct plugin_movers *pm, const char *operation, int64_t deadline_ns, struct err *e);
int plugin_movers_forget(struct plugin_movers *pm, const char *operation, const struct cfg_plugin *p,
                         const char *plugin_id, struct err *e);
bool plugin_movers_has(const struct plugin_movers *pm, const char *operation);
unsigned plugin_movers_count(const struct plugin_movers *pm);
json_t *plugin_movers_to_json(const struct plugin_movers *pm, const char *operation);

#endif
