/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/snapshot.h"

#include "base/cleanup.h"
#include "repo/docstream.h"
#include "repo/gojson.h"

#include <errno.h>
#include <string.h>

#define ENTRY_MAX ((size_t)1 << 20) /* text of one entry */

void dir_entry_clear(struct dir_entry *d)
{
    free(d->name);
    *d = (struct dir_entry){0};
}

/* ---- JSON form ---- */

static int parse_errors(const json_t *summ)
{
    const json_t *list = go_member(summ, "errors"), *x;
    const char *s;
    size_t i;
    if (list && !json_is_array(list))
        return -EINVAL;
    json_array_foreach(list, i, x)
    {
        if (!json_is_null(x) && (!json_is_object(x) || go_string(x, "path", &s) < 0 || go_string(x, "error", &s) < 0))
            return -EINVAL;
    }
    return 0;
}

static int parse_summary(struct dir_entry *d, const json_t *summ)
{
    const char *incomplete = "";
    if (!json_is_object(summ))
        return -EINVAL;
    if (go_int(summ, "size", INT64_MIN, INT64_MAX, &d->sum_size) < 0 ||
        go_int(summ, "files", INT64_MIN, INT64_MAX, &d->sum_files) < 0 ||
        go_int(summ, "symlinks", INT64_MIN, INT64_MAX, &d->sum_symlinks) < 0 ||
        go_int(summ, "dirs", INT64_MIN, INT64_MAX, &d->sum_dirs) < 0 ||
        go_time(summ, "maxTime", &d->sum_max_time_ns) < 0 || go_string(summ, "incomplete", &incomplete) < 0 ||
        go_int(summ, "numFailed", INT64_MIN, INT64_MAX, &d->sum_failed) < 0 ||
        go_int(summ, "numIgnoredErrors", INT64_MIN, INT64_MAX, &d->sum_ignored) < 0 || parse_errors(summ) < 0)
        return -EINVAL;
    go_copy_cut(d->sum_incomplete, sizeof d->sum_incomplete, incomplete);
    d->has_summary = true;
    return 0;
}

int dir_entry_parse(struct dir_entry *ret, const json_t *v)
{
    struct dir_entry d = {.type = '?', .size = -1};
    const char *name = "", *type = "", *mode = NULL, *obj = "";
    int64_t uid = 0, gid = 0;
    int32_t bits = 0;
    if (!json_is_object(v))
        return -EINVAL;
    if (go_string(v, "name", &name) < 0 || go_string(v, "type", &type) < 0 || go_string(v, "mode", &mode) < 0 ||
        go_int(v, "size", INT64_MIN, INT64_MAX, &d.size) < 0 || go_time(v, "mtime", &d.mtime_ns) < 0 ||
        go_int(v, "uid", 0, UINT32_MAX, &uid) < 0 || go_int(v, "gid", 0, UINT32_MAX, &gid) < 0 ||
        go_string(v, "obj", &obj) < 0)
        return -EINVAL;
    /* The mode is the one member for which null is not as good as absent. */
    if (go_has(v, "mode") && (!mode || go_parse_int32(mode, &bits) < 0))
        return -EINVAL;
    if (*obj && object_id_parse(&d.obj, obj, strlen(obj)) < 0)
        return -EINVAL;
    const json_t *summ = go_member(v, "summ");
    if (summ && parse_summary(&d, summ) < 0)
        return -EINVAL;
    if (type[0] && !type[1] && strchr("fds", type[0]))
        d.type = type[0];
    if (d.type != 'd' && !go_member(v, "size"))
        d.size = 0;
    d.mode = go_mode_to_unix(bits);
    d.uid = (uint32_t)uid;
    d.gid = (uint32_t)gid;
    d.name = strdup(name);
    if (!d.name)
        return -ENOMEM;
    *ret = d;
    return 0;
}

static json_t *time_json(int64_t ns)
{
    char text[TIME_TEXT];
    return json_string(time_text(ns, text));
}

json_t *dir_entry_to_json(const struct dir_entry *d)
{
    char mode[GO_MODE_TEXT], obj[OBJECT_ID_TEXT];
    const char type[2] = {d->type, '\0'};
    json_t *v = json_object();
    int rc = v ? 0 : -1;
    if (d->name && *d->name)
        rc |= go_set(v, "name", json_string(d->name));
    rc |= go_set(v, "type", json_string(type));
    if (d->mode)
        rc |= go_set(v, "mode", json_string(go_mode_text(d->mode, mode)));
    if (d->type != 'd' && d->size)
        rc |= go_set(v, "size", json_integer(d->size));
    if (d->mtime_ns)
        rc |= go_set(v, "mtime", time_json(d->mtime_ns));
    if (d->uid)
        rc |= go_set(v, "uid", json_integer(d->uid));
    if (d->gid)
        rc |= go_set(v, "gid", json_integer(d->gid));
    rc |= go_set(v, "obj", json_string(d->obj.content.len ? object_id_text(&d->obj, obj) : ""));
    if (d->has_summary) {
        json_t *s = json_object();
        rc |= s ? 0 : -1;
        rc |= go_set(s, "size", json_integer(d->sum_size));
        rc |= go_set(s, "files", json_integer(d->sum_files));
        rc |= go_set(s, "symlinks", json_integer(d->sum_symlinks));
        rc |= go_set(s, "dirs", json_integer(d->sum_dirs));
        rc |= go_set(s, "maxTime", time_json(d->sum_max_time_ns));
        if (*d->sum_incomplete)
            rc |= go_set(s, "incomplete", json_string(d->sum_incomplete));
        rc |= go_set(s, "numFailed", json_integer(d->sum_failed));
        if (d->sum_ignored)
            rc |= go_set(s, "numIgnoredErrors", json_integer(d->sum_ignored));
        rc |= go_set(v, "summ", s);
    }
    if (rc == 0)
        return v;
    json_decref(v);
    return NULL;
}

/* ---- reading ---- */

static int64_t read_object(void *arg, void *buf, size_t len, struct err *e)
{
    return object_reader_read(arg, buf, len, e);
}

int dir_each(struct repo *r, const struct object_id *dir, dir_fn *fn, void *arg, struct err *e)
{
    return dir_each_ahead(r, NULL, dir, fn, arg, e);
}

int dir_each_ahead(struct repo *r, struct content_ahead *ahead, const struct object_id *dir, dir_fn *fn, void *arg,
                   struct err *e)
{
    char id[OBJECT_ID_TEXT];
    struct object_reader *o CLEANUP(object_reader_freep) = NULL;
    struct docstream *d CLEANUP(docstream_freep) = NULL;
    int rc = object_reader_open_ahead(&o, r, ahead, dir, e);
    if (rc == 0)
        rc = docstream_new(&d, "kopia:directory", ENTRY_MAX, read_object, o, e);
    if (rc < 0)
        return rc;
    const char *text;
    size_t n;
    while ((rc = docstream_next(d, &text, &n, e)) == 1) {
        rc = blobs_stopped(repo_blobs(r), e);
        if (rc < 0)
            return rc;
        json_t *v = go_parse(text, n);
        struct dir_entry entry;
        rc = dir_entry_parse(&entry, v);
        json_decref(v); /* fn may go into directories below: what each level keeps is small */
        if (rc == -ENOMEM)
            return err_nomem(e);
        if (rc < 0)
            return err_set(e, ERR_DAMAGE, EBADMSG, "directory %s has a malformed entry", object_id_text(dir, id));
        rc = fn(&entry, arg);
        dir_entry_clear(&entry);
        if (rc)
            return rc;
    }
    return rc < 0 ? err_wrap(e, "directory %s", object_id_text(dir, id)) : 0;
}

/* ---- paths ---- */

struct lookup {
    const char *path; /* remaining part */
    size_t used;      /* bytes of it that the best match so far covers */
    struct dir_entry found;
};

/* Names are matched as stored: some clients create entries whose name is a path ("/dev/sdb"), so a name may cover
 * several components, and the longest match is used. A leading slash is ignored unless a name has it too. */
static int component_match(struct dir_entry *d, void *arg)
{
    struct lookup *l = arg;
    const size_t n = strlen(d->name), slash = l->path[0] == '/';
    for (size_t skip = 0; skip <= slash; skip++) {
        const char *p = l->path + skip;
        if (!n || n + skip <= l->used || strncmp(p, d->name, n) != 0 || (p[n] && p[n] != '/'))
            continue;
        l->used = n + skip;
        dir_entry_clear(&l->found);
        l->found = *d;
        d->name = NULL; /* moved */
        break;
    }
    return 0;
}

static bool bad_component(const char *path)
{
    for (const char *p = path;; p++) {
        size_t n = strcspn(p, "/");
        if ((n == 0 && p != path && *p) || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return true;
        p += n;
        if (!*p)
            return false;
    }
}

static int copy_entry(struct dir_entry *ret, const struct dir_entry *d, struct err *e)
{
    char *name = strdup(d->name ? d->name : "");
    if (!name)
        return err_nomem(e);
    *ret = *d;
    ret->name = name;
    return 0;
}

int dir_lookup(struct repo *r, const struct dir_entry *root, const char *path, struct dir_entry *ret, struct err *e)
{
    if (*path && bad_component(path))
        return err_set(e, ERR_USAGE, EINVAL, "invalid path \"%s\": empty component, \".\" or \"..\"", path);
    struct dir_entry at CLEANUP(dir_entry_clear) = {0};
    int rc = copy_entry(&at, root, e);
    if (rc < 0)
        return rc;
    const char *rest = path;
    while (*rest) {
        if (at.type != 'd')
            return err_set(e, ERR_NOT_FOUND, ENOTDIR, "\"%.*s\" not found in the snapshot", (int)(rest - path), path);
        if (!at.obj.content.len)
            return err_set(e, ERR_DAMAGE, EBADMSG, "the directory \"%.*s\" in the snapshot has no object",
                           (int)(rest - path), path);
        struct lookup l = {.path = rest};
        rc = dir_each(r, &at.obj, component_match, &l, e);
        if (rc < 0) {
            dir_entry_clear(&l.found);
            return rc;
        }
        if (!l.used)
            return err_plain(e, ERR_NOT_FOUND, ENOENT, "\"%.*s\" not found in the snapshot",
                             (int)(rest - path + (int)strcspn(rest + 1, "/") + 1), path);
        dir_entry_clear(&at);
        at = l.found;
        rest += l.used;
        rest += *rest == '/';
    }
    *ret = at;
    at = (struct dir_entry){0};
    return 0;
}
