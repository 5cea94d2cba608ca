/* SPDX-License-Identifier: GPL-2.0-or-later */
/* builtin.h - the built-in movers: movers.h for processes of snapferry-mover (internal to the room) */
#ifndef SNAPFERRY_DAEMON_MOVERS_BUILTIN_H
#define SNAPFERRY_DAEMON_MOVERS_BUILTIN_H

#include "daemon/movers/movers.h"

struct builtin_movers;

int builtin_new(struct builtin_movers **ret, const struct movers_opts *o, struct err *e);
void builtin_free(struct builtin_movers *m);
int builtin_start(struct builtin_movers *m, const struct mover_spec *s, struct err *e);
int builtin_go(struct builtin_movers *m, const char *operation, struct err *e);
int builtin_adopt(struct builtin_movers *m, const struct process_identity *id, const struct mover_spec *s,
                  struct err *e);
int builtin_result(struct builtin_movers *m, const char *operation, struct err *e);
int builtin_cancel(struct builtin_movers *m, const char *operation, int64_t deadline_ns, struct err *e);
int builtin_forget(struct builtin_movers *m, const char *operation, struct err *e);
bool builtin_has(const struct builtin_movers *m, const char *operation);
unsigned builtin_count(const struct builtin_movers *m);
int builtin_sync(const struct builtin_movers *m, struct err *e);
struct left_results *builtin_left_results(const struct builtin_movers *m);
void builtin_limit(struct builtin_movers *m, const char *operation, const struct mover_limits *l);
void builtin_forget_keys(struct builtin_movers *m);
json_t *builtin_to_json(const struct builtin_movers *m, const char *operation);

/* ---- stray.c, with movers_list_step() ---- */
/* SIGKILL to those of its processes whose identity is unchanged; how many. */
int stray_kill(const struct mover_listed *stray);

#endif
