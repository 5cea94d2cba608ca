/* SPDX-License-Identifier: GPL-2.0-or-later */
/* names.c - rows by what people call them */
#include "daemon/records/names.h"

#include "base/cleanup.h"
#include "base/nearest.h"

#include <errno.h>
#include <string.h>

#define PREFIX_MIN 4
#define CANDIDATES 4
#define ELLIPSIS "\xe2\x80\xa6"

struct search {
    const char *head, *tail;
    size_t head_n, tail_n, found;
    const char *volume; /* BACKUP/VOLUME */
    bool rooted;
    struct rec rec;
    char named[300]; /* the first of several */
};

bool name_is_volume(const json_t *volume, const char *name, bool rooted)
{
    const char *have = jstr(volume, "name");
    return !strcmp(name, have) || !strcmp(name, jstr(volume, "id")) ||
           (rooted && *have == '/' && !strcmp(name, have + 1));
}

static int search_row(struct rec *r, void *arg)
{
    struct search *s = arg;
    size_t n = strlen(r->id);
    if (s->volume) {
        if (strcmp(s->volume, r->volume) != 0 && !name_is_volume(jobj(r->doc, "volume"), s->volume, s->rooted))
            return 0;
    } else if (n < s->head_n + s->tail_n || strncmp(r->id, s->head, s->head_n) != 0 ||
               strcmp(r->id + n - s->tail_n, s->tail) != 0) {
        return 0;
    }
    size_t len = strlen(s->named);
    if (s->found < CANDIDATES)
        snprintf(s->named + len, sizeof s->named - len, "%s%.90s", len ? ", " : "", r->id);
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
    const struct rec_filter f = {.parent = parent, .newest_first = true};
    s->found = 0;
    s->named[0] = '\0';
    int rc = records_each(r, k, &f, search_row, s, e);
    if (rc >= 0 && s->found > 1) {
        rc = err_set(e, ERR_USAGE, EINVAL, "\"%.128s\" may mean %zu things", name, s->found);
        err_hint(e, "name one: %s%s", s->named, s->found > CANDIDATES ? ", and older ones" : "");
    }
    if (rc < 0 || !s->found) {
        rec_clear(&s->rec);
        s->rec = (struct rec)REC_INIT;
        return rc;
    }
    *ret = s->rec;
    s->rec = (struct rec)REC_INIT;
    return 1;
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

static int by_volume(struct records *r, const char *name, struct rec *ret, struct err *e)
{
    const char *slash = strchr(name, '/');
    char backup[512];
    CLEANUP(rec_clearp) struct rec b = REC_INIT;
    enum rec_kind k;
    if (!slash || slash == name || (size_t)(slash - name) >= sizeof backup)
        return 0;
    snprintf(backup, sizeof backup, "%.*s", (int)(slash - name), name);
    if (records_get(r, REC_BACKUP, backup, &b, NULL) < 0) {
        int rc = by_part(r, backup, NAME_BACKUP, &k, &b, e);
        if (rc <= 0)
            return rc;
    }
    struct search s = {.volume = slash + 1, .rec = REC_INIT};
    int rc = search(r, REC_OPERATION, b.id, &s, ret, name, e);
    if (rc)
        return rc;
    s.rooted = true;
    return search(r, REC_OPERATION, b.id, &s, ret, name, e);
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
    err_plain(e, ERR_NOT_FOUND, ENOENT, "there is no %s%s%s \"%.256s\"", among & NAME_BACKUP ? "backup, restore" : "",
              among & NAME_OPERATION ? (among & NAME_BACKUP ? ", operation" : "operation") : "",
              among & NAME_NATIVE ? " or native snapshot" : "", name);
    return err_hint(e, "snapferry backups, operations and native list tell what there is");
}

/* ---- volumes and states ---- */

static int add_name(struct rec *v, void *arg)
{
    return json_array_append_new(arg, json_string(jstr(jobj(v->doc, "volume"), "name")));
}

static const char *listed_at(unsigned i, void *arg)
{
    return json_string_value(json_array_get(arg, i));
}

json_t *volume_near(struct records *r, const char *name)
{
    CLEANUP_JSON json_t *names = json_array();
    if (!names || records_each(r, REC_VOLUME, NULL, add_name, names, NULL) < 0)
        return NULL;
    const char *near = nearest_meant(name, listed_at, names);
    return near ? json_string(near) : NULL;
}

struct called {
    const char *name;
    bool found;
};
static int is_called(struct rec *v, void *arg)
{
    struct called *c = arg;
    c->found = !strcmp(c->name, v->id) || name_is_volume(jobj(v->doc, "volume"), c->name, false);
    return c->found;
}

int volume_known(struct records *r, const char *name, struct err *e)
{
    struct called c = {name, false};
    int rc = records_each(r, REC_VOLUME, NULL, is_called, &c, e);
    if (rc < 0 || c.found)
        return rc < 0 ? rc : 0;
    CLEANUP_JSON json_t *near = volume_near(r, name);
    rc = err_plain(e, ERR_NOT_FOUND, ENOENT, "no volume \"%.256s\" is known to the records", name);
    nearest_hint(e, json_string_value(near), "snapferry volumes lists them");
    return rc;
}

int state_known(const char *state, struct err *e)
{
    char near[64], list[] = RECORDS_STATES, *rest = list;
    for (char *one; (one = strsep(&rest, " "));)
        if (!strcmp(one, state))
            return 0;
    nearest_listed(state, RECORDS_STATES, near, sizeof near);
    err_set(e, ERR_USAGE, EINVAL, "there is no state \"%.64s\"", state);
    nearest_hint(e, nearest_is_slip(state, near) ? near : NULL, "states are " RECORDS_STATES);
    return -EINVAL;
}
