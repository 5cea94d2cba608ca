/* SPDX-License-Identifier: GPL-2.0-or-later */
/* opaque.c - see opaque.h */
#include "daemon/records/opaque.h"

#include "base/json.h"
#include "daemon/records/table-impl.h"

#include <string.h>

NAMES(exposed_as, "", "native", "clone", "overlay", "copy");
_Static_assert(COUNT(exposed_as_words) == EXPOSED_AS, "each value has a word");
NAMES(plugin_ask, "", "delete", "verify");
_Static_assert(COUNT(plugin_ask_words) == PLUGIN_ASKS, "each value has a word");

struct exposed exposure_read(const json_t *exposure)
{
    return (struct exposed){.path = jstr(exposure, "path"),
                            .as = (enum exposed_as)enum_value(&exposed_as_names, jstr(exposure, "mechanism")),
                            .size = jint(exposure, "size"),
                            .read_only = jbool(exposure, "read_only"),
                            .allocated = jbool(exposure, "allocated")};
}

struct target_paths target_paths_read(const json_t *target)
{
    return (struct target_paths){jstr(target, "path"), jstr(target, "final"), jstr(target, "device"),
                                 jint(target, "size")};
}

struct mover_progress progress_read(const json_t *progress)
{
    return (struct mover_progress){jstr(progress, "phase"), jint(progress, "read"),    jint(progress, "done"),
                                   jint(progress, "total"), jint(progress, "skipped"), jint(progress, "zero")};
}

bool progress_has_moved(const json_t *before, const json_t *now)
{
    const char *member;
    json_t *v;
    if (strcmp(jstr(before, "phase"), jstr(now, "phase")) != 0)
        return true;
    json_object_foreach((json_t *)(uintptr_t)now, member, v)
    {
        if (json_is_integer(v) && json_integer_value(v) != jint(before, member))
            return true;
    }
    return false;
}

struct check_step check_step_read(const json_t *steps)
{
    const json_t *step = json_array_get(steps, 0);
    return (struct check_step){json_object_get(step, "snapshots"), json_object_get(step, "expect")};
}

struct plugin_step plugin_step_read(const json_t *steps, int64_t i)
{
    const json_t *step = json_array_get(steps, (size_t)i);
    return (struct plugin_step){(enum plugin_ask)enum_value(&plugin_ask_names, jstr(step, "verb")),
                                jstr(step, "operation")};
}

struct plugin_work plugin_work_read(const json_t *work)
{
    return (struct plugin_work){(enum plugin_ask)enum_value(&plugin_ask_names, jstr(work, "verb")),
                                jstr(work, "plugin"), jobj(work, "args")};
}

const char *identity_boot(const json_t *identity)
{
    return jstr(identity, "bootId");
}

struct exposure_intent exposure_intent_read(const json_t *doc)
{
    return (struct exposure_intent){jobj(doc, "into"), jobj(doc, "exposure")};
}

struct count_labels count_labels_read(const json_t *labels)
{
    return (struct count_labels){jstr(labels, "class"), jstr(labels, "result"), jstr(labels, "repository"),
                                 jstr(labels, "node")};
}

struct skipped skipped_at(const json_t *list, size_t i)
{
    const json_t *one = json_array_get(list, i);
    return (struct skipped){jstr(one, "volume"), jstr(one, "reason")};
}

const char *counter_label(const json_t *labels, const char *name)
{
    return jstr(labels, name);
}

const char *asked_alias(const json_t *aliases, const char *snapshot)
{
    return jstr(aliases, snapshot);
}
