/* SPDX-License-Identifier: GPL-2.0-or-later */
/* movers.c - built-in movers and plugins behind one interface */
#include "daemon/movers/movers.h"

#include "daemon/movers/builtin.h"
#include "daemon/movers/plugin-movers.h"

#include <errno.h>
#include <stdlib.h>

struct movers {
    struct builtin_movers *builtin;
    struct plugin_movers *plugins;
};

int movers_new(struct movers **ret, const struct movers_opts *o, struct err *e)
{
    struct movers *m = calloc(1, sizeof *m);
    if (!m)
        return err_nomem(e);
    int rc = builtin_new(&m->builtin, o, e);
    if (rc == 0)
        rc = plugin_movers_new(&m->plugins, o, e);
    if (rc < 0) {
        movers_free(m);
        return rc;
    }
    *ret = m;
    return 0;
}

void movers_free(struct movers *m)
{
    if (!m)
        return;
    plugin_movers_free(m->plugins);
    builtin_free(m->builtin);
    free(m);
}

static int check_free(const struct movers *m, const struct mover_spec *s, struct err *e)
{
    if (s->operation && movers_has(m, s->operation))
        return err_plain(e, ERR_BUSY, EEXIST, "operation %s already has a mover", s->operation);
    return 0;
}

int movers_start(struct movers *m, const struct mover_spec *s, struct err *e)
{
    int rc = check_free(m, s, e);
    if (rc < 0)
        return rc;
    return s->plugin ? plugin_movers_start(m->plugins, s, e) : builtin_start(m->builtin, s, e);
}

int movers_go(struct movers *m, const char *operation, struct err *e)
{
    return plugin_movers_has(m->plugins, operation) ? 0 : builtin_go(m->builtin, operation, e);
}

int movers_adopt(struct movers *m, const struct process_identity *identity, const struct mover_spec *s, struct err *e)
{
    int rc = check_free(m, s, e);
    if (rc < 0)
        return rc;
    return s->plugin ? plugin_movers_adopt(m->plugins, s, e) : builtin_adopt(m->builtin, identity, s, e);
}

int movers_result(struct movers *m, const char *operation, struct err *e)
{
    return builtin_result(m->builtin, operation, e);
}

int movers_cancel(struct movers *m, const char *operation, int64_t deadline_ns, struct err *e)
{
    return plugin_movers_has(m->plugins, operation) ? plugin_movers_cancel(m->plugins, operation, deadline_ns, e)
                                                    : builtin_cancel(m->builtin, operation, deadline_ns, e);
}

int movers_forget(struct movers *m, const char *operation, const struct cfg_plugin *plugin, const char *plugin_id,
                  struct err *e)
{
    if (movers_has(m, operation))
        return err_set(e, ERR_BUSY, EBUSY, "mover of %s is running", operation);
    return plugin ? plugin_movers_forget(m->plugins, operation, plugin, plugin_id, e)
                  : builtin_forget(m->builtin, operation, e);
}

int movers_sync(const struct movers *m, struct err *e)
{
    return builtin_sync(m->builtin, e);
}

void movers_limit(struct movers *m, const char *operation, const struct mover_limits *l)
{
    builtin_limit(m->builtin, operation, l);
}

void movers_forget_keys(struct movers *m)
{
    builtin_forget_keys(m->builtin);
}

bool movers_has(const struct movers *m, const char *operation)
{
    return builtin_has(m->builtin, operation) || plugin_movers_has(m->plugins, operation);
}

unsigned movers_count(const struct movers *m)
{
    return builtin_count(m->builtin) + plugin_movers_count(m->plugins);
}

json_t *movers_to_json(const struct movers *m, const char *operation)
{
    json_t *j = builtin_to_json(m->builtin, operation);
    return j ? j : plugin_movers_to_json(m->plugins, operation);
}

int movers_end_stray(struct movers *m, const struct mover_listed *stray, struct err *e)
{
    if (movers_has(m, stray->operation))
        return err_set(e, ERR_BUSY, EBUSY, "mover of %s is not a stray: it is supervised", stray->operation);
    const int killed = stray_kill(stray);
    const int rc = builtin_forget(m->builtin, stray->operation, e);
    return rc < 0 ? rc : killed;
}

struct left_results *movers_left_results(const struct movers *m)
{
    return builtin_left_results(m->builtin);
}
