/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * complaints.c - what check-config says of the configuration in use: at the start, at a reload, and from time to time,
 * since storage, users and programs change without it
 */
#include "base/time.h"
#include "daemon/check/check.h"
#include "daemon/engine/engine-impl.h"

#include <string.h>

#define PERIOD_S 600

static void checked(struct step_result *s, void *arg)
{
    struct engine *g = arg;
    g->complaints_running = false;
    if (s->err.cls)
        log_debug("the configuration in use cannot be checked: %s", s->err.msg);
    else
        complaints_take(g, s->out);
}

void complaints_take(struct engine *g, const json_t *checked)
{
    const struct config_checked c = config_checked_of(checked);
    /* Files that were edited since are not in use before a reload. */
    if (strcmp(c.hash, cfg_hash(g->cfg)) != 0)
        return;
    g->warnings = c.warnings;
    g->complaints_ns = now_ns();
}

void complaints_look(struct engine *g)
{
    CLEANUP_JSON json_t *in = json_pack("{s:s}", "config_dir", g->paths.config_dir);
    const int64_t now = now_ns();
    if (g->complaints_running ||
        (g->complaints_ns && now >= g->complaints_ns && now - g->complaints_ns < PERIOD_S * NS_PER_S))
        return;
    if (step_start(g->steps, "check the configuration in use", config_check_step, in, 120, checked, g, NULL, NULL) < 0)
        return;
    g->complaints_running = true;
    g->complaints_ns = now;
}
