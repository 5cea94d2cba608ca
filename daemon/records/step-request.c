/* SPDX-License-Identifier: GPL-2.0-or-later */
/* step-request.c - see step-request.h */
#include "daemon/records/step-request.h"

#include "base/json.h"
#include "daemon/records/table-impl.h"

NAMES(target_keep, "", "rest", "equal");
NAMES(intent_kind, "", "native", "exposure", "target", "hook-post");
_Static_assert(COUNT(target_keep_words) == TARGET_KEEPS && COUNT(intent_kind_words) == INTENT_KINDS,
               "each value has a word");

#define S struct step_request
#define OBJECT(member) FIELD(member, #member, FIELD_OBJECT)
static const struct field_desc step_request_table[] = {
    FIELD(klass, "class", FIELD_OBJECT),
    OBJECT(own),
    OBJECT(into),
    OBJECT(volume),
    OBJECT(native),
    OBJECT(tag),
    OBJECT(exposure),
    OBJECT(target),
    OBJECT(kept),
    OBJECT(doc),
    FIELD(names, "names", FIELD_ARRAY),
    FIELD(aliases, "aliases", FIELD_STRS),
    FIELD(unfrozen, "unfrozen", FIELD_STRS),
    STR(operation),
    STR(alias),
    STR(hint),
    STR(name),
    STR(path),
    STR(password_file),
    STR(credentials),
    STR(ca_file),
    UINT(id),
    UINT(size, .unit = "bytes"),
    UINT(rate, .unit = "bytes/s"),
    UINT(pause_ms, .unit = "ms"),
    BOOL(read_only),
    BOOL(again),
    BOOL(open),
    BOOL(overwrite),
    BOOL(missing),
    BOOL(unseen),
    BOOL(insecure),
    BOOL(allocated),
    BOOL(bookmark),
    BOOL(leave_bookmark),
    BOOL(only_bookmark),
    ENUM(keep, target_keep),
    ENUM(kind, intent_kind),
};
TABLE(step_request, "request", .keep_text = false);
#undef S

int step_request_load(struct step_request *r, const json_t *doc, struct err *e)
{
    step_request_init(r);
    return fields_load(&step_request_fields, r, doc) < 0 ? err_nomem(e) : 0;
}

const char *step_request_operation(const json_t *request, size_t item)
{
    return jstr(json_array_get(jarr(request, "items"), item), "operation");
}

json_t *step_request_watchdog(json_t *request, unsigned *deadline_s)
{
    const json_t *w = jobj(request, "watchdog");
    json_t *hook = json_incref(jobj(w, "hook"));
    *deadline_s = (unsigned)jint(w, "deadline_s");
    json_object_del(request, "watchdog");
    return hook;
}
