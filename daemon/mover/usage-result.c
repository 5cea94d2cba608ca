/* SPDX-License-Identifier: GPL-2.0-or-later */
/* usage-result.c - what volumes take as a document: of the command's --json */
#include "daemon/mover/usage.h"

#include "base/time.h"

static json_t *sum_json(const struct reach_sum *s)
{
    return json_pack("{s:I, s:I}", "count", (json_int_t)s->n, "bytes", (json_int_t)s->bytes);
}

static json_t *volume_json(const struct usage_volume *v)
{
    char text[TIME_TEXT];
    json_t *j =
        json_pack("{s:{s:s, s:s, s:s}, s:I, s:I, s:s, s:I, s:o, s:o, s:I, s:I, s:b}", "source", "host", v->host,
                  "userName", v->user, "path", v->path, "snapshots", (json_int_t)v->snapshots, "incompleteSnapshots",
                  (json_int_t)v->incomplete, "newest", time_text(v->newest_ns / NS_PER_S * NS_PER_S, text), "size",
                  (json_int_t)v->size, "exclusive", sum_json(&v->reach.exclusive), "shared", sum_json(&v->reach.shared),
                  "missingContents", (json_int_t)v->reach.missing, "unreadableObjects", (json_int_t)v->unreadable,
                  "lowerBound", (int)usage_volume_is_partial(v));
    if (j && v->name)
        json_object_set_new(j, "volume", json_string(v->name));
    return j;
}

json_t *usage_to_json(const struct usage_result *u)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < u->n; i++)
        if (json_array_append_new(list, volume_json(u->volumes[i])) < 0) {
            json_decref(list);
            return NULL;
        }
    return json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:b, s:I, s:I, s:f}", "volumes", list,
                     "snapshots", (json_int_t)u->snapshots, "incompleteSnapshots", (json_int_t)u->incomplete,
                     "malformedSnapshots", (json_int_t)u->malformed, "missingContents", (json_int_t)u->reach.missing,
                     "unreadableObjects", (json_int_t)u->unreadable, "exclusive", sum_json(&u->reach.exclusive),
                     "shared", sum_json(&u->reach.shared), "manifests", sum_json(&u->manifests), "unreached",
                     sum_json(&u->reach.unreached), "total", sum_json(&u->total), "lowerBounds",
                     (int)usage_is_partial(u), "blocksRead", (json_int_t)u->blocks_read, "blocksKnown",
                     (json_int_t)u->blocks_known, "seconds", u->seconds);
}
