/* SPDX-License-Identifier: GPL-2.0-or-later */
/* documents.c - members of answers, and the facts that the files alone give */
#include "daemon/answers/answers-impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void put_json(json_t *to, const char *key, json_t *v)
{
    if (v && !json_is_null(v) && !(json_is_string(v) && !json_string_value(v)[0]))
        json_object_set(to, key, v);
}

void copy_member(json_t *to, const char *key, const json_t *from, const char *member)
{
    put_json(to, key, json_object_get(from, member));
}

void put_error(json_t *to, const struct op_error *e)
{
    if (e->code != ERR_NONE)
        json_object_set_new(to, "error", op_error_to_json(e));
}

void put_ns(json_t *to, const char *key, int64_t ns)
{
    if (ns > 0)
        jset_int(to, key, ns);
}

void put_text(json_t *to, const char *key, const char *text)
{
    if (text[0])
        jset_str(to, key, text);
}

void add_text(json_t *list, const char *fmt, ...)
{
    char line[1400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    CLEANUP_JSON json_t *o = json_object();
    jset_str(o, "text", line);
    json_array_append(list, json_object_get(o, "text"));
}

void answer_facts_offline(struct answer_facts *f, struct records *r, const struct cfg *c, const struct err *refused,
                          int64_t now_ns)
{
    const struct schedule_opts o = {.records = r};
    *f = (struct answer_facts){.records = r,
                               .cfg = c,
                               .now_ns = now_ns,
                               .config = {.ok = c != NULL, .error = c ? "" : refused->msg},
                               .down = "",
                               .down_hint = ""};
    const struct cfg_complaint *x;
    for (unsigned i = 0; c && (x = cfg_complaint_at(c, i)); i++)
        f->config.warnings += x->severity == CFG_WARNING;
    if (r && c && schedule_new(&f->schedule, &o, NULL) == 0 && schedule_apply(f->schedule, c, now_ns, NULL) == 0)
        f->jobs.v = schedule_views(f->schedule, now_ns, &f->jobs.n);
}

struct overview *overview_of_facts(struct answer_facts *f)
{
    if (f->overview || !f->records)
        return NULL;
    struct overview *s = overview_new(f->records);
    if (s)
        overview_configure(s, (struct cfg *)(uintptr_t)f->cfg, &f->jobs);
    f->overview = s;
    return s;
}

void answer_facts_clear(struct answer_facts *f)
{
    free(f->jobs.v);
    free(f->repositories);
    free(f->orphans);
    json_decref(f->own.steps);
    json_decref(f->own.looks);
    json_decref(f->own.metrics);
    json_decref(f->own.metrics_problems);
    schedule_free(f->schedule);
    *f = (struct answer_facts){.records = NULL};
}
