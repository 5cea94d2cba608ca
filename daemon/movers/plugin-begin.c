/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * plugin-begin.c - the step that starts (or finds again) the operation of a mover plugin
 *
 * Idempotent by operation id: a step that was killed after the plugin had started is run again, and the plugin returns
 * the same id. Crash point: plugin-started (the plugin has started, its id is not recorded yet).
 */
#include "base/cleanup.h"
#include "base/crash.h"
#include "daemon/movers/plugin-movers-impl.h"
#include "proc/plugin-answer.h"

#include <errno.h>
#include <string.h>

struct beginning {
    const json_t *in;
    struct plugin_program p;
    struct plugin_info info;
    bool restore;
    const char *resume;
};

static int has_ability(struct beginning *b, struct err *e)
{
    int rc = plugin_can(&b->p, &b->info, PLUGIN_MOVER, PV_APPLIES, e);
    if (rc < 0 || !b->restore)
        return rc;
    return plugin_can(&b->p, &b->info, PLUGIN_MOVER, PV_RESTORE, e);
}

/* 1: it accepts the volume, 0: it declines, with the reason in `skip` (AP-04). */
static int call_applies(struct beginning *b, char *skip, size_t cap, struct err *e)
{
    CLEANUP_PLUGIN_JSON json_t *answer = NULL;
    bool yes = false;
    int rc = plugin_call(&b->p, PV_APPLIES, json_object_get(b->in, "args"), plugin_timeout(&b->p, &b->info, PV_APPLIES),
                         &answer, e);
    if (rc < 0)
        return rc;
    struct answer a = {&b->p, PV_APPLIES, answer, ""};
    if ((rc = answer_bool(&a, "applies", ANSWER_REQUIRED, &yes, e)) < 0 ||
        (rc = answer_text(&a, "reason", 0, skip, cap, e)) < 0)
        return rc;
    if (!yes && !*skip)
        plugin_text(skip, cap, "volume declined by the plugin without a reason");
    return yes;
}

static int call_start(struct beginning *b, json_t *ret, struct err *e)
{
    enum plugin_verb v = b->restore ? PV_RESTORE : PV_START;
    CLEANUP_PLUGIN_JSON json_t *answer = NULL;
    struct plugin_begun g;
    unsigned t = (unsigned)json_integer_value(json_object_get(b->in, "timeout"));
    if (b->info.timeouts[v] || !t)
        t = plugin_timeout(&b->p, &b->info, v);
    int rc = plugin_call(&b->p, v, json_object_get(b->in, "args"), t, &answer, e);
    crash_point("plugin-started");
    if (rc < 0 || (rc = plugin_begun_read(&b->p, v, answer, &g, e)) < 0)
        return rc;
    if (!g.skip[0] && !g.completed && !(b->info.abilities & PA_PROGRESS))
        return plugin_lies(&b->p, v, e,
                           "without the ability \"progress\" start must complete the work and return \"completed\"");
    json_object_set_new(ret, "id", json_string(g.id));
    json_object_set_new(ret, "skip", json_string(g.skip));
    json_object_set_new(ret, "completed", json_boolean(g.completed));
    if (g.error[0])
        json_object_set_new(ret, "error", json_string(g.error));
    if (json_is_object(json_object_get(answer, "result")))
        json_object_set(ret, "result", json_object_get(answer, "result"));
    return 0;
}

static int start_run(struct beginning *b, json_t *ret, struct err *e)
{
    CLEANUP_PLUGIN_JSON json_t *in = json_copy((json_t *)b->in);
    CLEANUP_PLUGIN_JSON json_t *out = NULL;
    int fd = -1;
    if (!in || json_object_set_new(in, "verb", json_integer(PV_RUN)) < 0)
        return err_nomem(e);
    int rc = plugin_run_step(in, &out, &fd, e);
    crash_point("plugin-started");
    if (rc == 0)
        json_object_set(ret, "id", json_object_get(out, "id"));
    return rc;
}

int pm_begin_step(const json_t *in, json_t **out, int *fd, struct err *e)
{
    (void)fd;
    struct beginning b = {
        .in = in,
        .p = {json_string_value(json_object_get(in, "name")), json_string_value(json_object_get(in, "program")),
              json_string_value(json_object_get(in, "user")), (unsigned)json_integer_value(json_object_get(in, "max"))},
        .restore = json_is_true(json_object_get(in, "restore")),
        .resume = json_string_value(json_object_get(in, "resume"))};
    char skip[256] = "";
    if (!b.p.name || !b.p.path)
        return err_set(e, ERR_GENERIC, EINVAL, "incomplete arguments of a plugin step");
    int rc = plugin_describe(&b.p, &b.info, e);
    if (rc == 0)
        rc = has_ability(&b, e);
    if (rc < 0)
        return rc;
    CLEANUP_PLUGIN_JSON json_t *ret = json_pack("{s:i}", "abilities", (int)b.info.abilities);
    if (!ret)
        return err_nomem(e);
    if (b.resume && *b.resume) {
        json_object_set_new(ret, "id", json_string(b.resume));
        *out = take_ptr(&ret);
        return 0;
    }
    rc = call_applies(&b, skip, sizeof skip, e);
    if (rc == 0)
        json_object_set_new(ret, "skip", json_string(skip));
    else if (rc > 0)
        rc = b.info.abilities & PA_RUN ? start_run(&b, ret, e) : call_start(&b, ret, e);
    if (rc < 0)
        return rc;
    *out = take_ptr(&ret);
    return 0;
}
