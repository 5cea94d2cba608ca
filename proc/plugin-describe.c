/* SPDX-License-Identifier: GPL-2.0-or-later */
/* plugin-describe.c - kind and abilities of a plugin, from its answer to `describe` */
#include "base/cleanup.h"
#include "proc/plugin-answer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define TIMEOUT_MAX (30u * 86400) /* seconds that a plugin may declare */

int plugin_can(const struct plugin_program *p, const struct plugin_info *info, enum plugin_kind kind,
               enum plugin_verb v, struct err *e)
{
    const struct plugin_verb_info *i = plugin_verb_at(v);
    char text[160];
    if (info->kind != kind)
        snprintf(text, sizeof text, "it is a %s plugin, a %s plugin is required", plugin_kind_name(info->kind),
                 plugin_kind_name(kind));
    else if (i->ability && !(info->abilities & i->ability))
        snprintf(text, sizeof text, "not among its abilities");
    else
        return 0;
    return plugin_fail(p, v, ERR_GENERIC, ENOTSUP, e, text);
}

static int read_abilities(const struct plugin_program *p, const json_t *answer, struct plugin_info *ret, struct err *e)
{
    const json_t *list = json_object_get(answer, "abilities"), *word;
    if (!json_is_array(list) || json_array_size(list) > 256)
        return plugin_lies(p, PV_DESCRIBE, e, "\"abilities\" is not a list of words");
    size_t i;
    json_array_foreach(list, i, word)
    {
        if (!json_is_string(word))
            return plugin_lies(p, PV_DESCRIBE, e, "\"abilities\" has a member that is not a word");
        const struct plugin_ability_info *a, *found = NULL;
        for (unsigned k = 0; (a = plugin_ability_at(k)); k++)
            if (strcmp(a->name, json_string_value(word)) == 0)
                found = a;
        if (!found)
            ret->unknown_abilities++;
        else if (found->kind != ret->kind)
            return plugin_lies(p, PV_DESCRIBE, e, "ability \"%s\" belongs to a %s, the plugin is a %s", found->name,
                               plugin_kind_name(found->kind), plugin_kind_name(ret->kind));
        else
            ret->abilities |= found->bit;
    }
    return 0;
}

static int read_timeouts(const struct plugin_program *p, const json_t *answer, struct plugin_info *ret, struct err *e)
{
    const json_t *o = json_object_get(answer, "timeouts");
    if (!o)
        return 0;
    if (!json_is_object(o))
        return plugin_lies(p, PV_DESCRIBE, e, "\"timeouts\" is not an object");
    for (unsigned v = 0; v < PV_COUNT; v++) {
        const json_t *t = json_object_get(o, plugin_verb_at(v)->name);
        if (!t)
            continue;
        if (!json_is_integer(t) || json_integer_value(t) < 1 || json_integer_value(t) > TIMEOUT_MAX)
            return plugin_lies(p, PV_DESCRIBE, e, "the timeout of \"%s\" is not a number of seconds",
                               plugin_verb_at(v)->name);
        ret->timeouts[v] = (unsigned)json_integer_value(t);
    }
    return 0;
}

static int read_kind(const struct plugin_program *p, const json_t *answer, struct plugin_info *ret, struct err *e)
{
    const char *kind = json_string_value(json_object_get(answer, "kind"));
    for (unsigned k = PLUGIN_DRIVER; kind && k <= PLUGIN_MOVER; k <<= 1)
        if (strcmp(kind, plugin_kind_name(k)) == 0)
            ret->kind = k;
    return ret->kind ? 0 : plugin_lies(p, PV_DESCRIBE, e, "\"kind\" is neither \"driver\" nor \"mover\"");
}

int plugin_describe(const struct plugin_program *p, struct plugin_info *ret, struct err *e)
{
    CLEANUP_PLUGIN_JSON json_t *answer = NULL;
    struct plugin_info i = {.max_retain = -1};
    int rc = plugin_call(p, PV_DESCRIBE, NULL, 0, &answer, e);
    if (rc < 0)
        return rc;
    struct answer a = {p, PV_DESCRIBE, answer, ""};
    uint64_t most = UINT64_MAX;
    i.protocol = (int)json_integer_value(json_object_get(answer, "protocol"));
    if ((rc = read_kind(p, answer, &i, e)) < 0 ||
        (rc = answer_text(&a, "name", ANSWER_REQUIRED, i.name, sizeof i.name, e)) < 0 ||
        (rc = answer_text(&a, "version", ANSWER_REQUIRED, i.version, sizeof i.version, e)) < 0 ||
        (rc = answer_text(&a, "text", 0, i.text, sizeof i.text, e)) < 0 ||
        (rc = answer_u64(&a, "max-retain", 0, &most, e)) < 0 || (rc = read_abilities(p, answer, &i, e)) < 0 ||
        (rc = read_timeouts(p, answer, &i, e)) < 0)
        return rc;
    if (most != UINT64_MAX && most > 1000000)
        return plugin_lies(p, PV_DESCRIBE, e, "\"max-retain\" is not a number of snapshots");
    i.max_retain = most == UINT64_MAX ? -1 : (int)most;
    *ret = i;
    return 0;
}
