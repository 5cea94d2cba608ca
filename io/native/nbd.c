/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * nbd.c - driver nbd: exports of NBD servers, which are read as they are
 *
 * A volume is called by the address of its export (io/nbd-uri.h), in the one way that nbd_uri_text() writes it. Its id
 * is made of the server's address and the name of the export. There is no native snapshot: whether an export is of one
 * point in time is what whoever made it says (point-in-time = yes).
 */
#include "io/native/driver.h"
#include "io/native/intermediate.h"

#include "base/cleanup.h"
#include "io/nbd-link.h"
#include "io/source.h"
#include "io/target-nbd.h"
#include "io/volume-id.h"

#include <errno.h>
#include <fnmatch.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WILD "*?[\\"

static bool is_wild(const char *s)
{
    return strpbrk(s, WILD) != NULL;
}

/* ---- volumes ---- */

/* `uri` of a volume that exists; asks the server for its size. */
static int nbd_look(const struct nbd_uri *u, struct volume *ret, struct err *e)
{
    struct nbd_facts f;
    char id[VOLUME_NAME_MAX];
    struct nbd_uri server = *u;
    memset(ret, 0, sizeof *ret);
    nbd_uri_text(u, ret->name);
    int rc = nbd_export_facts(u, &f, e);
    if (rc < 0)
        return rc;
    server.export[0] = '\0';
    if (source_nbd_id(u, id, sizeof id) < 0)
        return err_set(e, ERR_USAGE, ENAMETOOLONG, "the address %.256s is too long for an id", ret->name);
    device_id_text(id, ret->id);
    if (source_nbd_id(&server, id, sizeof id) == 0)
        device_id_text(id, ret->pool);
    ret->size = f.size;
    ret->allocated = UINT64_MAX;
    ret->sector = f.min_block > 512 ? f.min_block : 512;
    ret->block = true;
    return 0;
}

/* An address in the one way to write it: another one would be another volume to patterns and records. */
static int address_of(const char *name, struct nbd_uri *u, struct err *e)
{
    char text[NBD_URI_MAX];
    int rc = nbd_uri_parse(u, name, e);
    if (rc < 0)
        return rc;
    nbd_uri_text(u, text);
    if (strcmp(text, name) == 0)
        return 0;
    err_set(e, ERR_USAGE, EINVAL, "\"%.512s\" is not the address as it is written here", name);
    err_hint(e, "write it as %.300s", text);
    return -EINVAL;
}

static int nbd_resolve(const struct driver_class *c, const char *name, struct volume *ret, struct err *e)
{
    struct nbd_uri u;
    (void)c;
    int rc = address_of(name, &u, e);
    return rc < 0 ? rc : nbd_look(&u, ret, e);
}

struct names {
    char **v;
    size_t n, room;
};

static int names_add(struct names *x, const struct nbd_uri *u, struct err *e)
{
    char text[NBD_URI_MAX];
    nbd_uri_text(u, text);
    if (x->n == x->room) {
        const size_t room = x->room ? 2 * x->room : 16;
        char **more = reallocarray(x->v, room, sizeof *more);
        if (!more)
            return err_nomem(e);
        x->v = more;
        x->room = room;
    }
    if (!(x->v[x->n] = strdup(text)))
        return err_nomem(e);
    x->n++;
    return 0;
}

static void names_free(struct names *x)
{
    for (size_t i = 0; i < x->n; i++)
        free(x->v[i]);
    free(x->v);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

struct asked {
    struct names *names;
    const struct nbd_uri *pattern;
    const struct nbd_uri *server;
    struct err *e;
};

static int on_export(const char *name, void *arg)
{
    const struct asked *x = arg;
    struct nbd_uri u = *x->server;
    if (strlen(name) >= sizeof u.export || fnmatch(x->pattern->export, name, 0) != 0)
        return 0;
    for (const char *p = name; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return 0;
    snprintf(u.export, sizeof u.export, "%s", name);
    return names_add(x->names, &u, x->e);
}

/* The exports of one server. One that cannot be asked has none at present, and does not hide those of others. */
static int server_names(const struct driver_class *c, const struct nbd_uri *pattern, const struct nbd_uri *server,
                        struct names *names, struct err *e)
{
    struct err why = ERR_INIT;
    const struct asked x = {names, pattern, server, e};
    if (!is_wild(pattern->export)) {
        struct nbd_uri u = *server;
        memcpy(u.export, pattern->export, sizeof u.export);
        return names_add(names, &u, e);
    }
    int rc = nbd_each_export(server, on_export, (void *)&x, &why);
    if (rc == -ENOMEM)
        return err_nomem(e);
    if (rc < 0 && why.cls == ERR_USAGE) {
        *e = why;
        return rc;
    }
    if (rc < 0)
        log_warning("class \"%s\": ignored: %s", c->name, why.msg);
    return 0;
}

static int pattern_names(const struct driver_class *c, const char *word, struct names *names, struct err *e)
{
    struct nbd_uri pattern, server;
    glob_t found;
    int rc = nbd_uri_parse(&pattern, word, e);
    if (rc < 0)
        return rc;
    server = pattern;
    if (!pattern.socket[0] || !is_wild(pattern.socket))
        return server_names(c, &pattern, &server, names, e);
    const int sys = glob(pattern.socket, 0, NULL, &found);
    if (sys == GLOB_NOSPACE)
        return err_nomem(e);
    for (size_t i = 0; sys == 0 && rc == 0 && i < found.gl_pathc; i++) {
        if (strlen(found.gl_pathv[i]) >= sizeof server.socket)
            continue;
        snprintf(server.socket, sizeof server.socket, "%s", found.gl_pathv[i]);
        rc = server_names(c, &pattern, &server, names, e);
    }
    if (sys == 0)
        globfree(&found);
    return rc;
}

static int nbd_volumes(const struct driver_class *c, volume_fn *fn, void *arg, struct err *e)
{
    struct names names = {.v = NULL};
    CLEANUP_FREE struct volume *v = malloc(sizeof *v);
    int rc = v ? 0 : err_nomem(e);
    for (size_t i = 0; rc == 0 && c->match && c->match[i]; i++)
        rc = pattern_names(c, c->match[i], &names, e);
    if (names.n)
        qsort(names.v, names.n, sizeof *names.v, by_text);
    for (size_t i = 0; rc == 0 && i < names.n; i++) {
        struct err why = ERR_INIT;
        if (i > 0 && strcmp(names.v[i], names.v[i - 1]) == 0)
            continue;
        if (nbd_resolve(c, names.v[i], v, &why) == 0)
            rc = v->size > 0 ? fn(v, arg) : 0;
        else if (why.cls == ERR_USAGE) {
            *e = why;
            rc = -EINVAL;
        } else {
            log_warning("class \"%s\": ignored: %s", c->name, why.msg);
        }
    }
    names_free(&names);
    return rc;
}

/* A pattern selects by the text of addresses, so it must be written as they are. */
static int check_word(const struct driver_class *c, const char *word, struct err *e)
{
    struct nbd_uri u;
    char port[16];
    int rc = nbd_uri_parse(&u, word, e);
    if (rc == 0 && !is_wild(u.export) && !is_wild(u.socket)) {
        rc = address_of(word, &u, e);
    } else if (rc == 0 && !u.socket[0]) {
        snprintf(port, sizeof port, ":%s/", u.port);
        if (is_wild(u.host) || !strstr(word, port)) {
            err_set(e, ERR_USAGE, EINVAL, "\"%.512s\" has no port, or a pattern as its host", word);
            rc = err_hint(e, "nbd://HOST:PORT/PATTERN selects exports of one server");
        }
    }
    return rc < 0 ? err_wrap(e, "storage class \"%s\"", c->name) : 0;
}

static int nbd_abilities(const struct driver_class *c, unsigned *ret, struct err *e)
{
    *ret = 0;
    for (size_t i = 0; c->match && c->match[i]; i++) {
        int rc = check_word(c, c->match[i], e);
        if (rc < 0)
            return rc;
    }
    *ret = DRIVER_NATIVE_RO | DRIVER_SOCKET | DRIVER_TARGET;
    return 0;
}

/* ---- the pseudo native snapshot ---- */

static int same_export(const struct volume *now, const struct volume *v, struct err *e)
{
    if (strcmp(now->id, v->id) == 0)
        return 0;
    return err_set(e, ERR_SOURCE, ESTALE, "%s is no longer the export that was looked up (%s, now %s)", v->name, v->id,
                   now->id);
}

static void native_of_export(const struct driver_class *c, const struct volume *v, const struct native_tag *tag,
                             struct native *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->tag = *tag;
    memcpy(ret->tag.volume_id, v->id, sizeof ret->tag.volume_id);
    memcpy(ret->tag.volume_name, v->name, sizeof ret->tag.volume_name);
    memcpy(ret->handle, v->name, sizeof ret->handle);
    ret->size = v->size;
    ret->crash_consistent = c->point_in_time;
}

static int nbd_snapshot(const struct driver_class *c, const struct volume *v, const struct native_tag *tag,
                        struct native *ret, struct err *e)
{
    CLEANUP_FREE struct volume *now = malloc(sizeof *now);
    if (!now)
        return err_nomem(e);
    if (!alias_valid(tag->alias))
        return err_set(e, ERR_USAGE, EINVAL, "invalid alias \"%.64s\"", tag->alias);
    if (!c->point_in_time && !c->accept_inconsistent) {
        err_plain(e, ERR_SOURCE, EBUSY,
                  "NBD export %s may be written to while it is read: its image would be inconsistent", v->name);
        err_hint(e, "set point-in-time = yes if it is an export of a snapshot; or accept-inconsistent = yes");
        return -EBUSY;
    }
    int rc = nbd_resolve(c, v->name, now, e);
    if (rc == 0)
        rc = same_export(now, v, e);
    if (rc == 0)
        native_of_export(c, now, tag, ret);
    return rc;
}

static int nbd_find(const struct driver_class *c, const struct volume *v, const char *alias, const char *hint,
                    struct native *ret, struct err *e)
{
    struct native_tag tag = {.created_ns = 0};
    CLEANUP_FREE struct volume *now = malloc(sizeof *now);
    (void)hint;
    if (!now)
        return err_nomem(e);
    if (!alias_valid(alias) || !v)
        return err_set(e, ERR_USAGE, EINVAL, "invalid alias \"%.64s\"", alias);
    int rc = nbd_resolve(c, v->name, now, e);
    if (rc == 0)
        rc = same_export(now, v, e);
    if (rc < 0)
        return rc;
    memcpy(tag.alias, alias, sizeof tag.alias);
    native_of_export(c, now, &tag, ret);
    return 0;
}

static int nbd_list(const struct driver_class *c, native_fn *fn, void *arg, struct err *e)
{
    (void)c, (void)fn, (void)arg, (void)e;
    return 0; /* nothing was created */
}

static int nbd_remove(const struct driver_class *c, const struct native *n, bool *gone, struct err *e)
{
    (void)c, (void)n, (void)e;
    *gone = false;
    return 0;
}

static int nbd_exposures(const struct driver_class *into, exposure_fn *fn, void *arg, struct err *e)
{
    (void)into, (void)fn, (void)arg, (void)e;
    return 0;
}

/* ---- exposing ---- */

static int nbd_expose(const struct driver_class *c, const struct native *n, const struct driver_class *into,
                      enum expose_mechanism m, bool read_only, const char *alias, struct exposure *ret, struct err *e)
{
    CLEANUP_FREE struct volume *now = malloc(sizeof *now);
    (void)into, (void)alias;
    if (!now)
        return err_nomem(e);
    if (m != EXPOSE_NATIVE || !read_only)
        return err_set(e, ERR_USAGE, ENOTSUP, "driver nbd reads exports as they are (storage class \"%s\")", c->name);
    int rc = nbd_resolve(c, n->handle, now, e);
    if (rc < 0)
        return rc;
    if (now->size != n->size)
        return err_set(e, ERR_SOURCE, ESTALE,
                       "size of NBD export %s is %" PRIu64 " bytes, was %" PRIu64 " when it was looked up", n->handle,
                       now->size, n->size);
    memset(ret, 0, sizeof *ret);
    ret->mechanism = EXPOSE_NATIVE;
    ret->read_only = true;
    ret->size = n->size;
    memcpy(ret->path, n->handle, sizeof ret->path);
    memcpy(ret->where, n->handle, sizeof ret->where);
    snprintf(ret->klass, sizeof ret->klass, "%s", c->name);
    return 0;
}

/* A connected socket: the mover negotiates, and has no network of its own. */
static int nbd_open(const struct driver_class *c, const struct exposure *x, int *fd, struct err *e)
{
    struct nbd_uri u;
    (void)c;
    int rc = address_of(x->path, &u, e);
    return rc < 0 ? rc : nbd_dial(&u, fd, NULL, e);
}

/* ---- restore ---- */

/* Whether anything but zeros is at its begin or end. */
static int export_is_empty(struct nbd_target *t, const char *name, struct err *e)
{
    const size_t part = 1u << 20;
    const uint64_t size = nbd_target_size(t);
    CLEANUP_FREE uint8_t *buf = malloc(part);
    if (!buf)
        return err_nomem(e);
    for (unsigned i = 0; i < 2; i++) {
        const int64_t n = nbd_target_read(t, buf, part, i && size > part ? size - part : 0, e);
        if (n < 0)
            return (int)n;
        if (n == 0 || (buf[0] == 0 && !memcmp(buf, buf + 1, (size_t)n - 1)))
            continue;
        err_plain(e, ERR_TARGET, EEXIST, "restore target %s is not empty", name);
        err_hint(e, "use another export, or allow it to be overwritten (--overwrite)");
        return -EEXIST;
    }
    return 0;
}

/* An export is written in place. All that is wrong with it is ERR_TARGET: nothing of ours would be left there. */
static int nbd_target(const struct driver_class *c, const char *name, uint64_t size, const char *alias,
                      enum target_use use, struct restore_target *ret, struct err *e)
{
    struct nbd_target *t = NULL;
    (void)c, (void)alias;
    memset(ret, 0, sizeof *ret);
    int rc = strlen(name) < sizeof ret->final
                 ? nbd_target_open(&t, -1, name, size, NULL, e)
                 : err_set(e, ERR_TARGET, ENAMETOOLONG, "the address of the export is too long");
    if (rc == 0 && use == TARGET_NEW)
        rc = export_is_empty(t, name, e);
    nbd_target_free(t);
    if (rc < 0) {
        if (e->cls != ERR_MEMORY)
            e->cls = ERR_TARGET;
        return rc;
    }
    snprintf(ret->path, sizeof ret->path, "%s", name);
    snprintf(ret->final, sizeof ret->final, "%s", name);
    ret->size = size;
    return 0;
}

static int nbd_target_nothing(const struct driver_class *c, const struct restore_target *t, struct err *e)
{
    (void)c, (void)t, (void)e;
    return 0; /* the mover has flushed it; whether anything was written is known to whoever started the mover */
}

const struct driver driver_nbd = {
    .name = "nbd",
    .text =
        "exports of NBD servers (QEMU, qemu-nbd, nbdkit), read without a snapshot: of one point in time if they are",
    .traits = DRIVER_RAW,
    .abilities = nbd_abilities,
    .volumes = nbd_volumes,
    .resolve = nbd_resolve,
    .snapshot = nbd_snapshot,
    .find = nbd_find,
    .list = nbd_list,
    .remove = nbd_remove,
    .expose = nbd_expose,
    .unexpose = exposure_undo,
    .exposures = nbd_exposures,
    .open = nbd_open,
    .target = nbd_target,
    .target_commit = nbd_target_nothing,
    .target_abort = nbd_target_nothing,
};
