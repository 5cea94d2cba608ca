/* SPDX-License-Identifier: GPL-2.0-or-later */
/* names.c - see names.h */
#include "daemon/records/names.h"

#include "base/cleanup.h"
#include "base/nearest.h"

#include <errno.h>
#include <string.h>

#define PREFIX_MIN 4
#define CANDIDATES 4
#define FOUND_MAX 50 /* finished rows that are read for one name */
#define ELLIPSIS "\xe2\x80\xa6"

struct search {
    size_t found;
    const char *volume; /* BACKUP/VOLUME */
    bool rooted;
    char id[NAME_ID_MAX];
    char named[300]; /* the first of several */
};

bool name_is_volume(const struct volume_desc *volume, const char *name, bool rooted)
{
    const char *have = volume->name;
    return !strcmp(name, have) || !strcmp(name, volume->id) || (rooted && *have == '/' && !strcmp(name, have + 1));
}

static void found(struct search *s, const char *id)
{
    const size_t len = strlen(s->named);
    if (s->found < CANDIDATES)
        snprintf(s->named + len, sizeof s->named - len, "%s%.90s", len ? ", " : "", id);
    if (s->found++ == 0)
        snprintf(s->id, sizeof s->id, "%s", id);
}

static int search_id(const void *row, void *arg)
{
    found(arg, ((const struct row *)row)->id);
    return 0;
}

static int search_volume(const struct operation *op, void *arg)
{
    struct search *s = arg;
    if (!strcmp(s->volume, op->volume_id) || name_is_volume(op->volume, s->volume, s->rooted))
        found(s, op->id);
    return 0;
}

/* 1: found. 0: not. */
static int verdict(struct search *s, char id[NAME_ID_MAX], const char *name, struct err *e)
{
    if (s->found > 1) {
        int rc = err_set(e, ERR_USAGE, EINVAL, "\"%.128s\" may mean %s%zu things", name,
                         s->found > FOUND_MAX ? "more than " : "", s->found > FOUND_MAX ? FOUND_MAX : s->found);
        err_hint(e, "name one: %s%s", s->named, s->found > CANDIDATES ? ", and others" : "");
        return rc;
    }
    if (s->found)
        memcpy(id, s->id, sizeof s->id);
    return s->found == 1;
}

static int by_part(struct records *r, const char *name, unsigned among, enum row_kind *kind, char id[NAME_ID_MAX],
                   struct err *e)
{
    const char *cut = strstr(name, ELLIPSIS), *tail = cut ? cut + strlen(ELLIPSIS) : "";
    struct search s = {.found = 0};
    char head[NAME_ID_MAX];
    if (strlen(name) >= sizeof head)
        return 0;
    snprintf(head, sizeof head, "%.*s", (int)(cut ? (size_t)(cut - name) : strlen(name)), name);
    if (strlen(head) + strlen(tail) < PREFIX_MIN)
        return 0;
    for (enum row_kind k = 0; k <= ROW_NATIVE; k++) {
        if (!(among & 1u << k))
            continue;
        int rc = row_each_part(r, k, head, tail, FOUND_MAX + 1, search_id, &s, e);
        if (rc >= 0)
            rc = verdict(&s, id, name, e);
        if (rc > 0)
            *kind = k;
        if (rc)
            return rc;
    }
    return 0;
}

static bool exists(struct records *r, enum row_kind k, const char *id)
{
    union {
        struct backup backup;
        struct operation operation;
        struct native_row native;
    } row;
    if (row_get(r, k, id, &row, NULL) < 0)
        return false;
    row_clear(row_types[k].fields, &row);
    return true;
}

static int by_volume(struct records *r, const char *name, char id[NAME_ID_MAX], struct err *e)
{
    const char *slash = strchr(name, '/');
    char backup[NAME_ID_MAX];
    enum row_kind k;
    if (!slash || slash == name || (size_t)(slash - name) >= sizeof backup)
        return 0;
    snprintf(backup, sizeof backup, "%.*s", (int)(slash - name), name);
    if (!exists(r, ROW_BACKUP, backup)) {
        char part[NAME_ID_MAX];
        memcpy(part, backup, sizeof part);
        int rc = by_part(r, part, NAME_BACKUP, &k, backup, e);
        if (rc <= 0)
            return rc;
    }
    const struct operation_filter f = {.parent = backup, .newest_first = true};
    for (int rooted = 0; rooted < 2; rooted++) {
        struct search s = {.volume = slash + 1, .rooted = rooted};
        int rc = operation_each(r, &f, search_volume, &s, e);
        if (rc >= 0)
            rc = verdict(&s, id, name, e);
        if (rc)
            return rc;
    }
    return 0;
}

int name_find(struct records *r, const char *name, unsigned among, enum row_kind *kind, char id[NAME_ID_MAX],
              struct err *e)
{
    id[0] = '\0';
    for (enum row_kind k = 0; k <= ROW_NATIVE; k++) {
        if (among & 1u << k && exists(r, k, name)) {
            *kind = k;
            snprintf(id, NAME_ID_MAX, "%s", name);
            return 0;
        }
    }
    int rc = 0;
    if (among & NAME_OPERATION && (rc = by_volume(r, name, id, e)) > 0)
        *kind = ROW_OPERATION;
    if (rc == 0)
        rc = by_part(r, name, among, kind, id, e);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    const bool natives = among & NAME_NATIVE, operations = among & NAME_OPERATION, backups = among & NAME_BACKUP;
    err_plain(e, ERR_NOT_FOUND, ENOENT, "there is no %s%s%s \"%.256s\"",
              !backups               ? ""
              : natives | operations ? "backup, restore"
                                     : "backup or restore",
              !operations ? ""
              : !backups  ? "operation"
              : natives   ? ", operation"
                          : " or operation",
              natives ? " or native snapshot" : "", name);
    return err_hint(e, "snapferry backups, operations and native list tell what there is");
}

/* ---- volumes and states ---- */

static int add_name(const struct volume_row *v, void *arg)
{
    return json_array_append_new(arg, json_string(v->volume->name));
}

static const char *listed_at(unsigned i, void *arg)
{
    return json_string_value(json_array_get(arg, i));
}

json_t *volume_near(struct records *r, const char *name)
{
    CLEANUP_JSON json_t *names = json_array();
    if (!names || volume_row_each(r, NULL, add_name, names, NULL) < 0)
        return NULL;
    const char *near = nearest_meant(name, listed_at, names);
    return near ? json_string(near) : NULL;
}

struct called {
    const char *name;
    bool found;
};
static int is_called(const struct volume_row *v, void *arg)
{
    struct called *c = arg;
    c->found = !strcmp(c->name, v->id) || name_is_volume(v->volume, c->name, false);
    return c->found;
}

int volume_known(struct records *r, const char *name, struct err *e)
{
    struct called c = {name, false};
    int rc = volume_row_each(r, NULL, is_called, &c, e);
    if (rc < 0 || c.found)
        return rc < 0 ? rc : 0;
    CLEANUP_JSON json_t *near = volume_near(r, name);
    rc = err_plain(e, ERR_NOT_FOUND, ENOENT, "no volume \"%.256s\" is known to the records", name);
    nearest_hint(e, json_string_value(near), "snapferry volumes lists them");
    return rc;
}

int state_known(enum row_kind k, const char *state, struct err *e)
{
    const char *words = k == ROW_OPERATION ? OPERATION_STATES_SHOWN : BACKUP_STATES_SHOWN;
    const char *of = k == ROW_OPERATION ? "operations" : "backups";
    char near[64], list[sizeof BACKUP_STATES_SHOWN + sizeof OPERATION_STATES_SHOWN], *rest = list, hint[400];
    snprintf(list, sizeof list, "%s", words);
    for (char *one; (one = strsep(&rest, " "));)
        if (!strcmp(one, state))
            return 0;
    nearest_listed(state, words, near, sizeof near);
    err_set(e, ERR_USAGE, EINVAL, "%s have no state \"%.64s\"", of, state);
    snprintf(hint, sizeof hint, "states of %s are %s", of, words);
    nearest_hint(e, nearest_is_slip(state, near) ? near : NULL, hint);
    return -EINVAL;
}
