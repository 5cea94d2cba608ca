/* SPDX-License-Identifier: GPL-2.0-or-later */
/* control-names.c - see control-names.h */
#include "daemon/control-names.h"

#include "base/cleanup.h"
#include "daemon/json.h"

#include <errno.h>
#include <string.h>

#define PREFIX_MIN 4
#define ELLIPSIS "\xe2\x80\xa6"

struct search {
    const char *head, *tail;
    size_t head_n, tail_n, found;
    const char *volume; /* BACKUP/VOLUME */
    struct rec rec;
};

static int search_row(struct rec *r, void *arg)
{
    struct search *s = arg;
    size_t n = strlen(r->id);
    if (s->volume) {
        if (strcmp(s->volume, r->volume) != 0 && strcmp(s->volume, jstr(jobj(r->doc, "volume"), "name")) != 0)
            return 0;
    } else if (n < s->head_n + s->tail_n || strncmp(r->id, s->head, s->head_n) != 0 ||
               strcmp(r->id + n - s->tail_n, s->tail) != 0) {
        return 0;
    }
    if (s->found++ == 0) {
        s->rec = *r;
        r->doc = NULL;
    }
    return 0;
}

/* 1: found. 0: not. */
static int search(struct records *r, enum rec_kind k, const char *parent, struct search *s, struct rec *ret,
                  const char *name, struct err *e)
{
    const struct rec_filter f = {.parent = parent};
    s->found = 0;
    int rc = records_each(r, k, &f, search_row, s, e);
    if (rc >= 0 && s->found > 1)
        rc = err_set(e, ERR_USAGE, EINVAL, "\"%.128s\" may mean %zu things", name, s->found);
    if (rc < 0 || !s->found) {
        rec_clear(&s->rec);
        s->rec = (struct rec)REC_INIT;
        return rc;
    }
    *ret = s->rec;
    s->rec = (struct rec)REC_INIT;
    return 1;
}

static int by_volume(struct records *r, const char *name, struct rec *ret, struct err *e)
{
    const char *slash = strchr(name, '/');
    char backup[512];
    if (!slash || slash == name || (size_t)(slash - name) >= sizeof backup)
        return 0;
    snprintf(backup, sizeof backup, "%.*s", (int)(slash - name), name);
    struct search s = {.volume = slash + 1, .rec = REC_INIT};
    return search(r, REC_OPERATION, backup, &s, ret, name, e);
}

static int by_part(struct records *r, const char *name, unsigned among, enum rec_kind *kind, struct rec *ret,
                   struct err *e)
{
    const char *cut = strstr(name, ELLIPSIS);
    struct search s = {.head = name, .head_n = cut ? (size_t)(cut - name) : strlen(name), .tail = "", .rec = REC_INIT};
    if (cut) {
        s.tail = cut + strlen(ELLIPSIS);
        s.tail_n = strlen(s.tail);
    }
    if (s.head_n + s.tail_n < PREFIX_MIN)
        return 0;
    for (enum rec_kind k = 0; k <= REC_NATIVE; k++) {
        if (!(among & 1u << k))
            continue;
        int rc = search(r, k, NULL, &s, ret, name, e);
        if (rc > 0)
            *kind = k;
        if (rc)
            return rc;
    }
    return 0;
}

int name_find(struct records *r, const char *name, unsigned among, enum rec_kind *kind, struct rec *ret, struct err *e)
{
    for (enum rec_kind k = 0; k <= REC_NATIVE; k++) {
        if (among & 1u << k && records_get(r, k, name, ret, NULL) >= 0) {
            *kind = k;
            return 0;
        }
    }
    int rc = 0;
    if (among & NAME_OPERATION && (rc = by_volume(r, name, ret, e)) > 0)
        *kind = REC_OPERATION;
    if (rc == 0)
        rc = by_part(r, name, among, kind, ret, e);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    err_set(e, ERR_NOT_FOUND, ENOENT, "there is no %s%s%s \"%.256s\"", among & NAME_BACKUP ? "backup, restore" : "",
            among & NAME_OPERATION ? (among & NAME_BACKUP ? ", operation" : "operation") : "",
            among & NAME_NATIVE ? " or native snapshot" : "", name);
    return err_hint(e, "snapferry backups, operations and native list tell what there is");
}
