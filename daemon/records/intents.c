/* SPDX-License-Identifier: GPL-2.0-or-later */
/* intents.c - names of objects, written before the objects are made (E-04) */
#include "daemon/records/records-impl.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void intent_clear(struct intent *i)
{
    json_decref(i->doc);
    memset(i, 0, sizeof *i);
}

static int doc_text(json_t *doc, char **ret, struct err *e)
{
    *ret = doc ? json_dumps(doc, JSON_COMPACT | JSON_SORT_KEYS) : strdup("{}");
    bool object = !doc || json_is_object(doc);
    json_decref(doc);
    if (!*ret)
        return err_nomem(e);
    if (object && strlen(*ret) <= RECORDS_DOC_MAX)
        return 0;
    free(*ret);
    *ret = NULL;
    return err_set(e, ERR_GENERIC, EINVAL, "the document of an intent must be a JSON object of at most %u bytes",
                   RECORDS_DOC_MAX);
}

int records_intent_add(struct records *r, const char *owner, const char *kind, const char *name, json_t *doc,
                       uint64_t *id, struct err *e)
{
    CLEANUP_FREE char *text = NULL;
    struct intent limits;
    int rc = doc_text(doc, &text, e);
    if (rc < 0 || (rc = records_refuse_read_only(r, e)) < 0)
        return rc;
    if (strlen(owner) >= sizeof limits.owner || strlen(kind) >= sizeof limits.kind ||
        strlen(name) >= sizeof limits.name)
        return err_set(e, ERR_GENERIC, ENAMETOOLONG, "the intent %s of %s cannot be recorded", name, owner);
    if ((rc = records_tx_begin(r, e)) < 0)
        return rc;
    uint64_t seq = records_next_seq(r);
    if (image_intent_add(&r->image, seq, owner, kind, name, records_clock(), take_ptr(&text), false) < 0)
        rc = err_nomem(e);
    if ((rc = records_tx_end(r, rc, e)) >= 0 && id)
        *id = seq;
    return rc;
}

/* text NULL: resolves it. */
static int intent_change(struct records *r, uint64_t id, char *text, struct err *e)
{
    int rc = records_refuse_read_only(r, e);
    if (rc < 0 || (rc = records_tx_begin(r, e)) < 0) {
        free(text);
        return rc;
    }
    struct noted *i = image_intent(&r->image, id);
    if (i && i->doc) {
        if (image_intent_change(&r->image, i, text) < 0)
            rc = err_nomem(e);
    } else {
        free(text);
        rc = err_plain(e, ERR_NOT_FOUND, ENOENT, "there is no intent %llu", (unsigned long long)id);
    }
    return records_tx_end(r, rc, e);
}

int records_intent_update(struct records *r, uint64_t id, json_t *doc, struct err *e)
{
    char *text = NULL;
    int rc = doc_text(doc, &text, e);
    return rc < 0 ? rc : intent_change(r, id, text, e);
}

int records_intent_resolve(struct records *r, uint64_t id, struct err *e)
{
    return intent_change(r, id, NULL, e);
}

static int show(const struct noted *i, intent_fn *fn, void *arg, struct err *e)
{
    struct intent it = {.id = i->id};
    snprintf(it.owner, sizeof it.owner, "%s", i->owner->id);
    snprintf(it.kind, sizeof it.kind, "%s", i->kind);
    snprintf(it.name, sizeof it.name, "%s", i->name);
    it.doc = json_loads(i->doc, JSON_ALLOW_NUL, NULL);
    /* An intent is never dropped: its kind and name are enough to find the object. */
    if (!json_is_object(it.doc)) {
        log_warning("the document of intent %llu (%s %s) cannot be used", (unsigned long long)it.id, it.kind, it.name);
        json_decref(it.doc);
        if (!(it.doc = json_object()))
            return err_nomem(e);
    }
    int rc = fn(&it, arg);
    intent_clear(&it);
    return rc;
}

int records_intents(struct records *r, const char *owner, intent_fn *fn, void *arg, struct err *e)
{
    CLEANUP_FREE uint64_t *ids = NULL;
    size_t n = 0, cap = 0;
    int rc = records_ready(r, e);
    if (rc < 0)
        return rc;
    for (const struct noted *i = image_intents(&r->image, owner); i; i = i->older[owner != NULL]) {
        if (!i->doc)
            continue;
        if (n == cap) {
            cap = cap ? 2 * cap : 16;
            uint64_t *more = reallocarray(ids, cap, sizeof *ids);
            if (!more)
                return err_nomem(e);
            ids = more;
        }
        ids[n++] = i->id;
    }
    for (size_t i = 0; i < n && rc == 0; i++) {
        const struct noted *it = image_intent(&r->image, ids[i]);
        if (it && it->doc) /* else resolved meanwhile */
            rc = show(it, fn, arg, e);
    }
    return rc;
}
