/* SPDX-License-Identifier: GPL-2.0-or-later */
/* outcome-record.c - see outcome-record.h */
#include "daemon/records/outcome-record.h"

#include "base/json.h"

#include <stdio.h>
#include <string.h>

#define TEXT_MAX 1023

/* ---- writing ---- */

static json_t *to_json(const struct backup_record *r)
{
    char part[24];
    snprintf(part, sizeof part, "%lld", (long long)r->part);
    return json_pack("{s:{s:s,s:s,s:s,s:s,s:s},s:o}", "labels", RECORD_LABEL_BACKUP, r->backup, RECORD_LABEL_NODE,
                     r->node, RECORD_LABEL_MACHINE, r->machine, RECORD_LABEL_PART, part, RECORD_LABEL_STATE,
                     enum_name(&record_state_names, (int)r->state), "data", fields_to_json(&backup_record_fields, r));
}

static void reasons_clear(struct backup_record *r)
{
    struct record_volume *v = r->volumes.v;
    for (unsigned i = 0; i < r->volumes.n; i++) {
        str_clear(&v[i].failure);
        str_clear(&v[i].skipped_reason);
    }
}

json_t *backup_record_to_json(struct backup_record *r)
{
    json_t *doc = to_json(r);
    /* Names of 4 KiB each would make it larger than its readers take it. */
    if (!doc || json_dumpb(jobj(doc, "data"), NULL, 0, JSON_COMPACT) <= RECORD_BYTES_MAX)
        return doc;
    json_decref(doc);
    reasons_clear(r);
    return to_json(r);
}

void backup_record_clear(struct backup_record *r)
{
    fields_clear(&backup_record_fields, r);
}

/* ---- reading ---- */

bool record_is_text(const char *s, size_t max)
{
    size_t n = 0;
    for (; s[n]; n++)
        if ((unsigned char)s[n] < 0x20 || s[n] == 0x7f || n >= max)
            return false;
    return n > 0;
}

static bool is_empty_or_text(const char *s, size_t max)
{
    return !*s || record_is_text(s, max);
}

/* A file may have any name: it is made printable where it is logged or shown. Reasons have names in them. */
static bool is_short(const char *s, size_t max)
{
    return strlen(s) <= max;
}

static bool volume_is_right(const struct backup_record *r, const struct record_volume *v)
{
    char id[RECORD_ID_MAX + 300];
    if (!is_short(v->name, RECORD_NAME_MAX) || !is_empty_or_text(v->id, 255) || !is_short(v->path, 4500) ||
        !is_empty_or_text(v->klass, 255) || !is_empty_or_text(v->driver, 63) || !is_short(v->failure, TEXT_MAX) ||
        !is_empty_or_text(v->stage, 63) || !is_short(v->skipped_reason, TEXT_MAX) ||
        !is_empty_or_text(v->movement.repository, 127) || (!v->name[0] && !v->id[0]) || v->size < 0 ||
        v->movement.size < 0 || v->natives.n > 1 ||
        (v->natives.n && !is_empty_or_text(((const struct record_native *)v->natives.v)->alias, RECORD_ALIAS_MAX)))
        return false;
    if (!v->movement.operation[0])
        return v->skipped || r->state == RECORD_STATE_PROVISIONAL;
    /* No row of anything else can be meant. */
    snprintf(id, sizeof id, "up-%s.%s", r->backup, v->id);
    if (strcmp(v->movement.operation, id) != 0)
        return false;
    if (v->moved && (strlen(v->movement.snapshot) != 32 || strspn(v->movement.snapshot, "0123456789abcdef") != 32 ||
                     v->outcome != OUTCOME_COMPLETED))
        return false;
    return v->outcome != OUTCOME_NONE || r->state == RECORD_STATE_PROVISIONAL;
}

static bool counts_are_right(const struct backup_counts *c)
{
    const int64_t list[] = {c->attempted, c->completed, c->failed, c->canceled, c->skipped};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i] < 0 || list[i] > RECORD_PARTS_MAX * RECORD_VOLUMES)
            return false;
    return true;
}

/* As strict as what is written, whatever the mover has let pass. */
static bool record_is_right(const struct backup_record *r, const char *node)
{
    if (r->version != RECORD_VERSION || r->state == RECORD_STATE_NONE || strcmp(r->node, node) != 0 ||
        !record_is_text(r->backup, RECORD_ID_MAX) || !is_empty_or_text(r->job, 127) ||
        !is_empty_or_text(r->repository, 127) || !is_short(r->failure, TEXT_MAX) ||
        !is_empty_or_text(r->description, TEXT_MAX) || r->volumes.n > RECORD_VOLUMES || r->part < 0 ||
        r->part >= r->parts || r->parts > RECORD_PARTS_MAX || !counts_are_right(&r->counts) ||
        (r->state == RECORD_STATE_FINAL) != (r->outcome != OUTCOME_NONE))
        return false;
    for (unsigned i = 0; i < r->volumes.n; i++)
        if (!volume_is_right(r, (const struct record_volume *)r->volumes.v + i))
            return false;
    return true;
}

bool backup_record_from_json(struct backup_record *ret, const json_t *record, const char *node)
{
    const json_t *labels = jobj(record, "labels");
    char part[24];
    fields_init(&backup_record_fields, ret);
    if (fields_load(&backup_record_fields, ret, jobj(record, "data")) < 0)
        return false;
    snprintf(part, sizeof part, "%lld", (long long)ret->part);
    return record_is_right(ret, node) && !strcmp(jstr(labels, RECORD_LABEL_BACKUP), ret->backup) &&
           !strcmp(jstr(labels, RECORD_LABEL_PART), part) &&
           !strcmp(jstr(labels, RECORD_LABEL_STATE), enum_name(&record_state_names, (int)ret->state));
}
