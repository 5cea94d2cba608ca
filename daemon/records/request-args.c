/* SPDX-License-Identifier: GPL-2.0-or-later */
/* request-args.c - see request-args.h */
#include "daemon/records/request-args.h"

#include "base/json.h"
#include "base/nearest.h"
#include "daemon/records/table-impl.h"

#include <errno.h>
#include <string.h>

NAMES(request_from, "", "native", "repository", "auto"); /* those of restore_from_names, and one more */
_Static_assert(COUNT(request_from_words) == FROMS + 1, "each value has a word");

#define S struct request_args
static const struct field_desc request_args_table[] = {
    STR(id),
    STR(backup),
    STR(volume),
    STR(native),
    STR(repository),
    STR(copy),
    STR(node),
    STR(job),
    FIELD(klass, "class", FIELD_STR),
    STR(state),
    STR(after),
    STR(target),
    STR(note),
    STR(description),
    FIELD(volumes, "volumes", FIELD_STRS),
    ENUM(from, request_from),
    BOOL(all),
    BOOL(recorded),
    BOOL(full),
    BOOL(debug),
    BOOL(from_timer),
    BOOL(overwrite),
    FIELD(only_new, "new", FIELD_BOOL),
    BOOL(allow_incomplete),
    BOOL(verify),
    BOOL(differential),
    BOOL(check),
    BOOL(dry_run),
    BOOL(gone),
    BOOL(explain),
    BOOL(replaced),
    BOOL(remove_stale),
    BOOL(force),
    BOOL(even_kept),
    BOOL(unsafe),
    BOOL(anew),
    FIELD(move_data, "move-data", FIELD_JSON),
    FIELD(wait, "wait", FIELD_JSON),
    INT(limit),
    INT(before),
    BYTES(offset, .unset = -1),
    BYTES(length, .unset = -1),
    FIELD(read_percent, "read_percent", FIELD_REAL, .unset = 100),
    FIELD(class_map, "class_map", FIELD_OBJECT),
};
TABLE(request_args, "arguments", .keep_text = false);
#undef S

static const char *type_text(enum field_type t)
{
    switch (t) {
    case FIELD_STR:
    case FIELD_ENUM:
        return "a text";
    case FIELD_INT:
        return "an integer";
    case FIELD_UINT:
        return "a non-negative integer";
    case FIELD_BOOL:
        return "true or false";
    case FIELD_REAL:
        return "a number";
    case FIELD_STRS:
    case FIELD_ARRAY:
    case FIELD_STRUCTS:
        return "a list";
    case FIELD_OBJECT:
    case FIELD_TEXT:
    case FIELD_STRUCT:
    case FIELD_SHARED:
        return "an object";
    case FIELD_JSON:
    case FIELD_ERR:
    case FIELD_REST:
        break;
    }
    return "a value";
}

static const char *argument_at(unsigned i, void *arg)
{
    const struct fields *t = arg;
    return i < t->n ? t->v[i].name : NULL;
}

/* One that the table does not have, or that has another type there. */
static int refuse(const char *key, struct err *e)
{
    const struct fields *t = &request_args_fields;
    for (unsigned i = 0; i < t->n; i++)
        if (!strcmp(t->v[i].name, key))
            return err_set(e, ERR_USAGE, EINVAL, "argument \"%s\" must be %s", key,
                           type_text((enum field_type)t->v[i].type));
    const char *near = nearest_meant(key, argument_at, (void *)(uintptr_t)t);
    err_set(e, ERR_USAGE, EINVAL, "argument \"%.64s\" is not known", key);
    return nearest_hint(e, near, "the arguments of each verb are in docs/control.md");
}

int request_args_load(struct request_args *a, const json_t *doc, struct err *e)
{
    request_args_init(a);
    if (fields_load(&request_args_fields, a, doc) < 0)
        return err_nomem(e);
    if (json_object_get(a->unknown, "from"))
        return err_set(e, ERR_USAGE, 0, "--from is auto, native or repository, not \"%.64s\"", jstr(doc, "from"));
    const char *key = json_object_iter_key(json_object_iter(a->unknown));
    return key ? refuse(key, e) : 0;
}

const char *request_class_for(const struct request_args *a, const char *own)
{
    return jstr(a->class_map, own);
}
