/* SPDX-License-Identifier: GPL-2.0-or-later */
/* steps-impl.h - what the steps that call drivers share (internal to the engine; in their children only) */
#ifndef SNAPFERRY_DAEMON_ENGINE_STEPS_IMPL_H
#define SNAPFERRY_DAEMON_ENGINE_STEPS_IMPL_H

#include "daemon/engine/engine-impl.h"

/* A class document, its driver, and the end of both: opened by each step. */
struct step_place {
    struct class_view v;
    const struct driver *d;
};
/* Initializes `p` in any case. ERR_USAGE: this build has no such driver. */
int step_place_open(struct step_place *p, const json_t *doc, struct err *e);
void step_place_clear(struct step_place *p);

/* An error as part of an answer, where a step does several things and goes on. */
json_t *step_error_doc(const struct err *e);

#endif
