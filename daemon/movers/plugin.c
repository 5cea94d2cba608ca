/* SPDX-License-Identifier: GPL-2.0-or-later */
/* plugin.c - any verb of a plugin as a step, and the progress documents of mover plugins */
#include "daemon/movers/plugin.h"
#include "base/cleanup.h"
#include "proc/plugin-answer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct plugin_program plugin_program_of(const struct cfg_plugin *p)
{
    return (struct plugin_program){.name = p->name,
                                   .path = p->program,
                                   .user = p->privileged ? "" : p->user,
                                   .max_timeout_s = p->max_timeout_s > 0 ? (unsigned)p->max_timeout_s : 0};
}

/* ---- steps ---- */

static enum plugin_kind kind_of(const struct cfg_plugin *p)
{
    return strcmp(p->kind, "driver") == 0 ? PLUGIN_DRIVER : PLUGIN_MOVER;
}

static unsigned limit_of(const struct cfg_plugin *p, enum plugin_verb v)
{
    bool begins = v == PV_START || v == PV_RESTORE;
    return begins && p->start_timeout_s > 0 ? (unsigned)p->start_timeout_s : plugin_verb_at(v)->timeout_s;
}

json_t *plugin_step_in(const struct cfg_plugin *p, enum plugin_verb v, const json_t *args)
{
    struct plugin_program q = plugin_program_of(p);
    json_t *none = args ? NULL : json_object();
    json_t *in = json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:O}", "name", q.name, "program", q.path, "user",
                           q.user, "max", (int)q.max_timeout_s, "kind", (int)kind_of(p), "verb", (int)v, "timeout",
                           (int)limit_of(p, v), "args", args ? (json_t *)args : none);
    json_decref(none);
    return in;
}

unsigned plugin_step_timeout(const struct cfg_plugin *p, enum plugin_verb v)
{
    unsigned own = limit_of(p, v), most = p->max_timeout_s > 0 ? (unsigned)p->max_timeout_s : 0;
    return plugin_verb_at(PV_DESCRIBE)->timeout_s + (own > most ? own : most) + 15;
}

static int lines_append(const json_t *line, bool act, void *arg, struct err *e)
{
    if (!act)
        return 0;
    return json_array_append(arg, (json_t *)line) < 0 ? err_nomem(e) : 0;
}

int plugin_step(const json_t *in, json_t **out, int *fd, struct err *e)
{
    (void)fd;
    struct plugin_program p = {.name = json_string_value(json_object_get(in, "name")),
                               .path = json_string_value(json_object_get(in, "program")),
                               .user = json_string_value(json_object_get(in, "user")),
                               .max_timeout_s = (unsigned)json_integer_value(json_object_get(in, "max"))};
    unsigned v = (unsigned)json_integer_value(json_object_get(in, "verb"));
    unsigned timeout = (unsigned)json_integer_value(json_object_get(in, "timeout"));
    if (!p.name || !p.path || v >= PV_COUNT)
        return err_set(e, ERR_GENERIC, EINVAL, "incomplete arguments of a plugin step");
    struct plugin_info info;
    int rc = plugin_describe(&p, &info, e);
    if (rc == 0)
        rc = plugin_can(&p, &info, (enum plugin_kind)json_integer_value(json_object_get(in, "kind")), v, e);
    if (rc < 0)
        return rc;
    if (info.timeouts[v] || !timeout)
        timeout = plugin_timeout(&p, &info, v);
    const json_t *args = json_object_get(in, "args");
    if (!plugin_verb_at(v)->lines)
        return plugin_call(&p, v, args, timeout, out, e);
    CLEANUP_PLUGIN_JSON json_t *lines = json_array();
    if (!lines)
        return err_nomem(e);
    rc = plugin_call_lines(&p, v, args, timeout, lines_append, lines, e);
    if (rc == 0 && !(*out = json_pack("{s:O}", "lines", lines)))
        rc = err_nomem(e);
    return rc;
}

/* ---- what movers say ---- */

/* Numbers are integers; a plugin that computes in floating point may write 1e9. */
static int number_member(const struct answer *a, const char *key, bool *there, uint64_t *ret, struct err *e)
{
    const json_t *v = json_object_get(a->o, key);
    *there = v && !json_is_null(v);
    if (json_is_real(v)) {
        double d = json_real_value(v);
        if (!(d >= 0 && d < 9e18))
            return plugin_lies(a->p, a->verb, e, "\"%s\" is not an amount", key);
        *ret = (uint64_t)d;
        return 0;
    }
    return answer_u64(a, key, 0, ret, e);
}

static int text_of(const struct answer *a, const char *key, char *ret, size_t cap, struct err *e)
{
    const json_t *v = json_object_get(a->o, key);
    ret[0] = '\0';
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_string(v))
        return plugin_lies(a->p, a->verb, e, "\"%s\" is not text", key);
    plugin_text(ret, cap, json_string_value(v));
    return 0;
}

int plugin_progress_read(const struct plugin_program *p, enum plugin_verb v, const json_t *doc,
                         struct plugin_progress *ret, struct err *e)
{
    struct answer a = {p, v, doc, ""};
    struct plugin_progress g = {0};
    bool total;
    int rc;
    if ((rc = answer_bool(&a, "completed", 0, &g.completed, e)) < 0 ||
        (rc = answer_bool(&a, "canceled", 0, &g.canceled, e)) < 0 ||
        (rc = answer_bool(&a, "transient", 0, &g.transient, e)) < 0 ||
        (rc = number_member(&a, "nCompleted", &g.has_done, &g.done, e)) < 0 ||
        (rc = number_member(&a, "nTotal", &total, &g.total, e)) < 0 ||
        (rc = text_of(&a, "operationUnits", g.units, sizeof g.units, e)) < 0 ||
        (rc = text_of(&a, "error", g.error, sizeof g.error, e)) < 0 ||
        (rc = text_of(&a, "description", g.description, sizeof g.description, e)) < 0 ||
        (rc = text_of(&a, "stage", g.stage, sizeof g.stage, e)) < 0 ||
        (rc = text_of(&a, "started", g.started, sizeof g.started, e)) < 0 ||
        (rc = text_of(&a, "updated", g.updated, sizeof g.updated, e)) < 0 ||
        (rc = text_of(&a, "eta", g.eta, sizeof g.eta, e)) < 0 ||
        (rc = text_of(&a, "skip", g.skip, sizeof g.skip, e)) < 0)
        return rc;
    if (!g.completed && !g.canceled && !g.skip[0] && !json_object_get(doc, "nCompleted") &&
        !json_object_get(doc, "description") && !json_object_get(doc, "stage") && !json_object_get(doc, "completed"))
        return plugin_lies(p, v, e, "no progress: neither \"completed\" nor \"nCompleted\" nor \"stage\"");
    if (total && g.total && g.done > g.total)
        return plugin_lies(p, v, e, "\"nCompleted\" is %llu, more than \"nTotal\", which is %llu",
                           (unsigned long long)g.done, (unsigned long long)g.total);
    *ret = g;
    return 0;
}

json_t *plugin_progress_json(const struct plugin_progress *g)
{
    json_t *j = json_pack("{s:s, s:I, s:I, s:s}", "phase", g->stage[0] ? g->stage : "plugin", "total",
                          (json_int_t)g->total, "done", (json_int_t)g->done, "units", g->units[0] ? g->units : "Bytes");
    const struct {
        const char *key, *text;
    } more[] = {{"description", g->description}, {"started", g->started}, {"updated", g->updated}, {"eta", g->eta}};
    for (size_t i = 0; j && i < sizeof more / sizeof *more; i++)
        if (more[i].text[0])
            json_object_set_new(j, more[i].key, json_string(more[i].text));
    return j;
}

int plugin_ack_read(const struct plugin_program *p, const json_t *doc, enum plugin_ack *ret, struct err *e)
{
    static const char *const words[] = {
        [PLUGIN_ACCEPTED] = "accepted", [PLUGIN_ALREADY_DONE] = "already-done", [PLUGIN_IMPOSSIBLE] = "impossible"};
    struct answer a = {p, PV_CANCEL, doc, ""};
    char word[32];
    int rc = answer_text(&a, "ack", ANSWER_REQUIRED, word, sizeof word, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i]) == 0) {
            *ret = (enum plugin_ack)i;
            return 0;
        }
    return plugin_lies(p, PV_CANCEL, e, "\"ack\" is \"%s\": not one of accepted, already-done, impossible", word);
}

int plugin_begun_read(const struct plugin_program *p, enum plugin_verb v, const json_t *doc, struct plugin_begun *ret,
                      struct err *e)
{
    struct answer a = {p, v, doc, ""};
    struct plugin_begun b = {0};
    const json_t *id = json_object_get(doc, "id");
    int rc;
    if (json_is_string(id) && json_string_length(id) > PLUGIN_ID_MAX)
        return plugin_lies(p, v, e, "id of %zu characters, at most %d allowed", json_string_length(id), PLUGIN_ID_MAX);
    if ((rc = answer_text(&a, "id", 0, b.id, sizeof b.id, e)) < 0 ||
        (rc = text_of(&a, "skip", b.skip, sizeof b.skip, e)) < 0 ||
        (rc = answer_bool(&a, "completed", 0, &b.completed, e)) < 0 ||
        (rc = text_of(&a, "error", b.error, sizeof b.error, e)) < 0)
        return rc;
    if (!b.skip[0] && !json_is_string(id))
        return plugin_lies(p, v, e, "neither \"id\" nor \"skip\" in the answer");
    if (b.skip[0] && b.id[0])
        return plugin_lies(p, v, e, "both \"id\" and \"skip\" in the answer");
    if (!b.skip[0] && !b.id[0])
        snprintf(b.skip, sizeof b.skip, "no reason given by the plugin");
    *ret = b;
    return 0;
}
