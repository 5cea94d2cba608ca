/* SPDX-License-Identifier: GPL-2.0-or-later */
/* step-answer.c - see step-answer.h */
#include "daemon/records/step-answer.h"

#include "base/json.h"
#include "daemon/records/table-impl.h"

#include <errno.h>
#include <string.h>

#define S struct step_item
static const struct field_desc step_item_table[] = {
    STR(operation),
    STR(alias),
    STR(volume_id),
    UINT(id),
    STRUCT(error, op_error),
    BOOL(gone),
    BOOL(there),
    BOOL(bookmark),
    STR(no_bookmark),
    SHARED(native, "native", native_desc),
    SHARED(volume, "volume", volume_desc),
    TIME(begin_ns),
    TIME(end_ns),
    UINT(instant),
    FIELD(used_ratio, "used_ratio", FIELD_REAL, .unset = -1),
};
static TABLE(step_item, "item", .keep_text = false);
#undef S

#define S struct step_answer
static const struct field_desc step_answer_table[] = {
    FIELD(items, "items", FIELD_STRUCTS, .of = &step_item_fields),
    FIELD(intents, "intents", FIELD_STRUCTS, .of = &step_item_fields),
    FIELD(natives, "natives", FIELD_STRUCTS, .of = &native_seen_fields),
    FIELD(aliases, "aliases", FIELD_STRS),
    BOOL(filled),
    BOOL(nothing_made),
    BOOL(kept),
    FIELD(target, "target", FIELD_OBJECT),
    BOOL(listed),
    ENUM(doubt, full_reason),
    STR(why),
    INT(ranges),
    BYTES(bytes),
};
TABLE(step_answer, "answer", .keep_text = false);
#undef S

#define S struct exposure_seen
static const struct field_desc exposure_seen_table[] = {STR(alias, ALWAYS), STR(handle, ALWAYS), TIME(created_ns)};
TABLE(exposure_seen, "exposure", .keep_text = false);
#undef S

#define S struct class_swept
static const struct field_desc class_swept_table[] = {
    SHARED(klass, "class", class_desc),
    FIELD(natives, "natives", FIELD_STRUCTS, .of = &native_desc_fields),
    FIELD(exposures, "exposures", FIELD_STRUCTS, .of = &exposure_seen_fields),
    FIELD(bookmarks, "bookmarks", FIELD_STRUCTS, .of = &native_desc_fields),
    STRUCT(error, op_error),
};
static TABLE(class_swept, "class", .keep_text = false);
#undef S

#define S struct storage_seen
static const struct field_desc storage_seen_table[] = {
    FIELD(classes, "classes", FIELD_STRUCTS, .of = &class_swept_fields)};
TABLE(storage_seen, "storage", .keep_text = false);
#undef S

#define S struct mover_process
static const struct field_desc mover_process_table[] = {INT(pid), UINT(start_time)};
static TABLE(mover_process, "process", .keep_text = false);
#undef S

#define S struct mover_listed
static const struct field_desc mover_listed_table[] = {
    STR(operation), FIELD(processes, "processes", FIELD_STRUCTS, .of = &mover_process_fields)};
static TABLE(mover_listed, "mover", .keep_text = false);
#undef S

#define S struct movers_listed
static const struct field_desc movers_listed_table[] = {
    FIELD(movers, "movers", FIELD_STRUCTS, .of = &mover_listed_fields)};
TABLE(movers_listed, "movers", .keep_text = false);
#undef S

const struct op_error *step_items_error(const struct list_of_structs *items)
{
    const struct step_item *v = items->v;
    for (unsigned i = 0; i < items->n; i++)
        if (v[i].error.code)
            return &v[i].error;
    return NULL;
}

struct volume_seen volume_seen_of(const json_t *volume)
{
    return (struct volume_seen){jstr(volume, "name"), jstr(volume, "id"), jstr(volume, "labels"), jint(volume, "size"),
                                jbool(volume, "same_pool")};
}

struct unseen unseen_of(const json_t *missing)
{
    return (struct unseen){.volume = jstr(missing, "volume"),
                           .id = jstr(missing, "id"),
                           .labels = jstr(missing, "labels"),
                           .class = (enum err_class)jint(missing, "class"),
                           .message = jstr(missing, "message"),
                           .hint = jstr(missing, "hint"),
                           .twice = jint(missing, "errno") == ENOTUNIQ};
}

static bool has_place(const json_t *missing)
{
    const json_t *m;
    size_t i;
    json_array_foreach(missing, i, m) if (!jstr(m, "id")[0]) return true;
    return false;
}

struct class_seen class_seen_of(const json_t *answer)
{
    const json_t *error = jobj(answer, "error");
    return (struct class_seen){.name = jstr(jobj(answer, "class"), "name"),
                               .volumes = jarr(answer, "volumes"),
                               .missing = jarr(answer, "missing"),
                               .passed = jarr(answer, "passed"),
                               .places = jobj(answer, "places"),
                               .all = jbool(answer, "all"),
                               .whole = jbool(answer, "all") && !has_place(jarr(answer, "missing")),
                               .abilities = (unsigned)jint(answer, "abilities"),
                               .failed = error != NULL,
                               .error = unseen_of(error)};
}

struct target_found target_found_of(const json_t *answer)
{
    return (struct target_found){jbool(answer, "exists"), jbool(answer, "block")};
}

struct config_checked config_checked_of(const json_t *answer)
{
    struct config_checked c = {
        .hash = jstr(answer, "hash"), .errors = (unsigned)jint(answer, "errors"), .where = "", .text = ""};
    const json_t *one;
    size_t i;
    json_array_foreach(jarr(answer, "complaints"), i, one)
    {
        const char *severity = jstr(one, "severity");
        c.warnings += !strcmp(severity, "warning");
        if (!c.text[0] && !strcmp(severity, "error")) {
            c.where = jstr(one, "where");
            c.text = jstr(one, "text");
        }
    }
    return c;
}

int64_t timers_stopped_of(const json_t *answer)
{
    return jint(answer, "stopped");
}

struct room_found room_found_of(const json_t *answer)
{
    return (struct room_found){jint(answer, "free"), jint(answer, "total")};
}

struct repository_found repository_found_of(const json_t *answer)
{
    return (struct repository_found){jint(answer, "free"), jint(answer, "total"), jbool(answer, "exposed"),
                                     jbool(answer, "read_only"), jstr(answer, "stamp")};
}
