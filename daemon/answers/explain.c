/* SPDX-License-Identifier: GPL-2.0-or-later */
/* explain.c - a volume's class, policy and protection, as documents and as sentences */
#include "daemon/answers/answers-impl.h"

#include <errno.h>
#include <string.h>

/* Where else its data is, once a copy has been made. */
static void explain_copies(const struct answer_facts *f, const char *repository, json_t *text)
{
    const struct cfg_copy *k;
    char place[CFG_PLACE_MAX];
    for (unsigned i = 0; (k = cfg_copy_at(f->cfg, i)); i++)
        if (!strcmp(k->repository, repository))
            add_text(text, "Copy \"%s\" of that repository is made in %s, %s%s.", k->name,
                     cfg_repository_place(&k->place, place), k->on_calendar[0] ? "by schedule: " : "on request",
                     k->on_calendar);
}

static void explain_class(const struct answer_facts *f, struct cfg_subject v, const struct answer_look *look,
                          const struct cfg_policy *p, json_t *answer, json_t *text, json_t *notes)
{
    const struct cfg_class *k = cfg_class_of(f->cfg, v), *c;
    if (v.labels && *v.labels)
        jset_str(answer, "labels", v.labels);
    if (!k) {
        add_text(notes, "no storage class matches %s: it is not backed up", v.name);
        for (unsigned n = 0; (c = cfg_class_at(f->cfg, n)); n++)
            for (unsigned m = 0; c->match && c->match[m]; m++)
                add_text(notes, "storage class \"%s\" (%s) matches %s", c->name, c->origin, c->match[m]);
        return;
    }
    json_object_set_new(answer, "class",
                        json_pack("{s:s,s:s,s:s}", "name", k->name, "driver", k->driver, "origin", k->origin));
    add_text(text, "Storage class \"%s\" (%s), driver %s.", k->name, k->origin, k->driver);
    if (v.labels && *v.labels)
        add_text(text, "Its storage reports: %s.", v.labels);
    jset_str(answer, "mechanism", look->mechanism);
    if (look->mechanism[0])
        add_text(text, "A backup reads it through: %s%s%s, %s.", look->mechanism,
                 p->backup_storage_class[0] ? " in class " : "", p->backup_storage_class,
                 p->backup_read_only ? "read-only" : "writable");
    else if (look->asked && look->obstacle[0])
        add_text(notes, "it cannot be exposed: %s", look->obstacle);
    if (look->doubt)
        add_text(notes, "not backed up: %s", look->missing);
    else if (!look->volume && look->asked)
        add_text(notes, "not found: %s", look->missing[0] ? look->missing : "the storage does not have it");
    if (p->exclude)
        add_text(text, "It is excluded (exclude = yes).");
    if (p->move_data)
        add_text(text, "Its data is moved to repository \"%s\"; %u native snapshot%s then retained.", p->repository,
                 p->snapshots_to_retain, p->snapshots_to_retain == 1 ? " is" : "s are");
    if (p->move_data)
        explain_copies(f, p->repository, text);
    else
        add_text(text, "Only native snapshots are kept (move-data = no), the newest %u.", p->snapshot_only_keep);
}

struct find_volume {
    struct records *records;
    const char *name;
    const struct volume_row *found;
};
static int match_name(const struct volume_row *v, void *arg)
{
    struct find_volume *x = arg;
    if (strcmp(v->volume->name, x->name) != 0)
        return 0;
    x->found = volume_row_peek(x->records, v->id);
    return 1;
}

/* By id, or the newest of that name. */
static const struct volume_row *recorded_volume(struct records *r, const char *name)
{
    static const struct volume_row_filter newest = {.newest_first = true};
    struct find_volume x = {r, name, volume_row_peek(r, name)};
    if (!x.found)
        volume_row_each(r, &newest, match_name, &x, NULL);
    return x.found;
}

static void explain_records(const struct answer_facts *f, struct cfg_subject s, const struct volume_row *v,
                            const struct answer_look *look, json_t *answer, json_t *text)
{
    const struct cfg_class *k = cfg_class_of(f->cfg, s);
    CLEANUP(volume_desc_unrefp) const struct volume_desc *desc = volume_desc_from_json(look->volume);
    json_object_set_new(answer, "natives", json_array());
    if (v)
        volume_desc_set(&desc, v->volume);
    if (!f->records || is_none(desc))
        return;
    struct volume_lines lines;
    volume_lines_init(&lines, f);
    const struct volume_line *l = volume_lines_add(&lines, v, desc, k ? k->name : "");
    if (l) {
        add_text(text, "%s%s",
                 l->state == VOLUME_PROTECTED  ? l->why[0] ? "It is protected " : "It is protected."
                 : l->state == VOLUME_EXCLUDED ? "It is not backed up: "
                                               : "It is not protected: ",
                 l->why);
        json_object_set_new(answer, "natives", natives_of_volume(f, desc->id, text));
        json_object_set(answer, "details", l->doc);
    }
    volume_lines_clear(&lines);
}

int answer_explain(const struct answer_facts *f, const char *volume, const struct answer_look *look, json_t **ret,
                   struct err *e)
{
    CLEANUP_JSON json_t *text = json_array(), *notes = json_array(), *answer = json_object();
    struct cfg_policy p = {.effective = NULL};
    const struct volume_row *known = f->records ? recorded_volume(f->records, volume) : NULL;
    CLEANUP(volume_desc_unrefp) const struct volume_desc *now = volume_desc_from_json(look->volume);
    const struct cfg_subject s = {volume, look->volume ? now->labels : known ? known->volume->labels : ""};
    int rc = cfg_policy(f->cfg, s, NULL, &p, e);
    /* [policy] sections and mover plugins may depend on the size. */
    if (rc >= 0 && look->volume)
        rc = cfg_policy_size(f->cfg, &p, s, (uint64_t)now->size, e);
    else if (rc >= 0 && known)
        rc = cfg_policy_size(f->cfg, &p, s, (uint64_t)known->volume->size, e);
    if (rc < 0) {
        cfg_policy_clear(&p);
        return rc;
    }
    if (!look->asked && look->silent[0])
        add_text(notes, "the storage does not answer (%s): shown from configuration and records", look->silent);
    jset_str(answer, "volume", volume);
    json_object_set_new(answer, "policy", cfg_policy_json(&p));
    explain_class(f, s, look, &p, answer, text, notes);
    explain_records(f, s, known, look, answer, text);
    const struct cfg_class *k = cfg_class_of(f->cfg, s);
    const int64_t size = look->volume ? now->size : known ? known->volume->size : 0;
    if (f->records && k && p.move_data && p.changed_blocks)
        splitter_advice(f->records, k->name, p.splitter, (double)size, answer, text);
    json_array_extend(text, notes);
    json_object_set(answer, "text", text);
    json_object_set(answer, "notes", notes);
    cfg_policy_clear(&p);
    *ret = json_incref(answer);
    return 0;
}
