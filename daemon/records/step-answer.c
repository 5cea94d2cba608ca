/* SPDX-License-Identifier: GPL-2.0-or-later */
/* step-answer.c - see step-answer.h */
#include "daemon/records/step-answer.h"

#include "base/json.h"
#include "daemon/records/table-impl.h"

#define S struct step_item
static const struct field_desc step_item_table[] = {
    STR(operation),
    STR(alias),
    UINT(id),
    STRUCT(error, op_error),
    BOOL(gone),
    BOOL(there),
    SHARED(native, "native", native_desc),
    SHARED(volume, "volume", volume_desc),
    TIME(begin_ns),
    TIME(end_ns),
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
static TABLE(step_answer, "answer", .keep_text = false);
#undef S

int step_answer_load(struct step_answer *a, const json_t *doc)
{
    return fields_load(&step_answer_fields, a, doc);
}

void step_answer_init(struct step_answer *a)
{
    fields_init(&step_answer_fields, a);
}

void step_answer_clear(struct step_answer *a)
{
    fields_clear(&step_answer_fields, a);
}

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
    return (struct volume_seen){jstr(volume, "name"), jstr(volume, "id"), jstr(volume, "labels"), jint(volume, "size")};
}

struct unseen unseen_of(const json_t *missing)
{
    return (struct unseen){jstr(missing, "volume"), (enum err_class)jint(missing, "class"), jstr(missing, "message"),
                           jstr(missing, "hint")};
}

struct class_seen class_seen_of(const json_t *answer)
{
    const json_t *error = jobj(answer, "error");
    return (struct class_seen){.name = jstr(jobj(answer, "class"), "name"),
                               .volumes = jarr(answer, "volumes"),
                               .missing = jarr(answer, "missing"),
                               .passed = jarr(answer, "passed"),
                               .all = jbool(answer, "all"),
                               .failed = error != NULL,
                               .error = unseen_of(error)};
}

struct target_found target_found_of(const json_t *answer)
{
    return (struct target_found){jbool(answer, "exists"), jbool(answer, "block")};
}

struct repository_found repository_found_of(const json_t *answer)
{
    return (struct repository_found){jint(answer, "free"), jint(answer, "total"), jbool(answer, "exposed"),
                                     jstr(answer, "stamp")};
}
