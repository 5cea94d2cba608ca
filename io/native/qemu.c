/* SPDX-License-Identifier: GPL-2.0-or-later */
/* qemu.c - driver qemu: disks of running virtual machines, at a point in time and by what changed (qemu.h) */
#include "io/native/qemu.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "io/nbd-link.h"

#include <errno.h>
#include <fnmatch.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DIRTY 1u /* flag of the context qemu:dirty-bitmap:NAME */

#define CLEANUP_MACHINE CLEANUP(qemu_machine_close)

/* ---- volumes ---- */

static void describe(const struct qemu_name *n, const struct qemu_node *node, struct volume *ret)
{
    struct qemu_name machine = *n;
    memset(ret, 0, sizeof *ret);
    snprintf(machine.node, sizeof machine.node, "-");
    qemu_name_text(n, ret->name);
    qemu_volume_id(n, ret->id);
    qemu_volume_id(&machine, ret->pool);
    ret->size = node->size;
    ret->allocated = UINT64_MAX;
    ret->sector = 512;
    ret->block = true;
}

static int qemu_resolve(const struct driver_class *c, const char *name, struct volume *ret, struct err *e)
{
    CLEANUP_MACHINE struct qemu_machine m = {.q = NULL};
    const struct qemu_node *node;
    struct qemu_name n;
    (void)c;
    int rc = qemu_name_parse(&n, name, e);
    if (rc == 0)
        rc = qemu_machine_open(&m, n.socket, e);
    if (rc == 0)
        rc = qemu_drive_find(&m.s, &n, &node, e);
    if (rc == 0)
        describe(&n, node, ret);
    return rc;
}

static bool is_wild(const char *s)
{
    return strpbrk(s, "*?[\\") != NULL;
}

/* Sockets that the words of `match` name, sorted, each once. */
struct sockets {
    char (*v)[108];
    size_t n;
};

static void sockets_free(struct sockets *x)
{
    free(x->v);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int sockets_of(const struct driver_class *c, struct sockets *ret, struct err *e)
{
    for (size_t i = 0; c->match && c->match[i]; i++) {
        struct qemu_name n;
        glob_t found = {.gl_pathc = 0};
        int rc = qemu_name_parse(&n, c->match[i], e);
        if (rc < 0)
            return rc;
        const int sys = glob(n.socket, is_wild(n.socket) ? 0 : GLOB_NOCHECK, NULL, &found);
        void *more = found.gl_pathc ? reallocarray(ret->v, ret->n + found.gl_pathc, sizeof *ret->v) : NULL;
        if (sys == GLOB_NOSPACE || (found.gl_pathc && !more)) {
            globfree(&found);
            return err_nomem(e);
        }
        if (more)
            ret->v = more;
        for (size_t k = 0; k < found.gl_pathc; k++) {
            struct stat st;
            const char *path = found.gl_pathv[k];
            if (strlen(path) < sizeof *ret->v && (!is_wild(n.socket) || (stat(path, &st) == 0 && S_ISSOCK(st.st_mode))))
                strcpy(ret->v[ret->n++], path);
        }
        globfree(&found);
    }
    if (ret->n)
        qsort(ret->v, ret->n, sizeof *ret->v, by_text);
    size_t k = 0;
    for (size_t i = 0; i < ret->n; i++)
        if (k == 0 || strcmp(ret->v[k - 1], ret->v[i]) != 0)
            memmove(ret->v[k++], ret->v[i], sizeof *ret->v);
    ret->n = k;
    return 0;
}

static bool is_matched(const struct driver_class *c, const struct qemu_name *n)
{
    char name[VOLUME_NAME_MAX];
    qemu_name_text(n, name);
    for (size_t i = 0; c->match && c->match[i]; i++)
        if (fnmatch(c->match[i], name, FNM_PATHNAME) == 0)
            return true;
    return false;
}

/* A drive whose node has no name of its own has another one after each start of the machine. */
static void warn_nameless(const struct driver_class *c, const char *socket, const struct qemu_device *d)
{
    log_warning("class \"%s\": ignored: the drive of %s in %s has no node-name of its own", c->name, d->path, socket);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct qemu_name *)a)->node, ((const struct qemu_name *)b)->node);
}

static int machine_volumes(const struct driver_class *c, const char *socket, const struct qemu_state *s, volume_fn *fn,
                           void *arg, struct err *e)
{
    CLEANUP_FREE struct qemu_name *list = s->n_nodes ? calloc(s->n_nodes, sizeof *list) : NULL;
    CLEANUP_FREE struct volume *v = malloc(sizeof *v);
    size_t n = 0;
    if (!v || (s->n_nodes && !list))
        return err_nomem(e);
    for (size_t i = 0; i < s->n_devices; i++)
        if (s->device[i].root[0] == '#')
            warn_nameless(c, socket, &s->device[i]);
    for (size_t i = 0; i < s->n_nodes; i++) {
        struct qemu_name *x = &list[n];
        const struct qemu_node *node;
        snprintf(x->socket, sizeof x->socket, "%s", socket);
        snprintf(x->node, sizeof x->node, "%s", s->node[i].name);
        if (s->node[i].name[0] != '#' && strncmp(s->node[i].name, QEMU_EXPORT, sizeof QEMU_EXPORT - 1) != 0 &&
            is_matched(c, x) && qemu_drive_find(s, x, &node, NULL) == 0)
            n++;
    }
    if (n)
        qsort(list, n, sizeof *list, compare_names);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        describe(&list[i], qemu_node_find(s, list[i].node), v);
        rc = v->size ? fn(v, arg) : 0;
    }
    return rc;
}

/* A machine that cannot be asked has no volumes at present, and does not hide those of others. */
static int qemu_volumes(const struct driver_class *c, volume_fn *fn, void *arg, struct err *e)
{
    CLEANUP(sockets_free) struct sockets x = {.v = NULL};
    int rc = sockets_of(c, &x, e);
    for (size_t i = 0; rc == 0 && i < x.n; i++) {
        CLEANUP_MACHINE struct qemu_machine m = {.q = NULL};
        struct err why = ERR_INIT;
        if (qemu_machine_open(&m, x.v[i], &why) == 0)
            rc = machine_volumes(c, x.v[i], &m.s, fn, arg, e);
        else if (why.cls != ERR_NOT_FOUND) /* one that is off is no reason to warn */
            log_warning("class \"%s\": ignored: %s", c->name, why.msg);
    }
    return rc;
}

static int qemu_abilities(const struct driver_class *c, unsigned *ret, struct err *e)
{
    struct qemu_name n = {.socket = "/", .node = "x"};
    struct nbd_uri u;
    struct stat st;
    int rc = 0;
    *ret = 0;
    for (size_t i = 0; rc == 0 && c->match && c->match[i]; i++) {
        rc = qemu_name_parse(&n, c->match[i], e);
        if (rc == 0)
            rc = qemu_refuse_managed(n.socket, e);
    }
    if (rc == 0)
        rc = qemu_server_uri(c, &n, "00000000-0000-4000-8000-000000000000", &u, e);
    if (rc == 0 && (stat(c->target, &st) < 0 || !S_ISDIR(st.st_mode)))
        rc = err_set(e, ERR_USAGE, 0, "storage class \"%s\": target %s is not a directory", c->name, c->target);
    if (rc == 0)
        *ret = DRIVER_NATIVE_RO | DRIVER_CHANGED | DRIVER_SOCKET;
    return rc;
}

/* ---- native snapshots ---- */

static int list_machine(const struct driver_class *c, const char *socket, const struct qemu_state *s, native_fn *fn,
                        void *arg, struct err *e)
{
    CLEANUP_FREE struct qemu_tag *t = malloc(sizeof *t);
    CLEANUP_FREE struct native *n = malloc(sizeof *n);
    int rc = t && n ? 0 : err_nomem(e);
    for (size_t i = 0; rc == 0 && i < s->n_nodes; i++)
        for (size_t b = 0; rc == 0 && b < s->node[i].n_bitmaps; b++) {
            struct qemu_name name;
            if (qemu_tag_read(s->node[i].bitmap[b].name, t) < 0 || strcmp(t->node, c->node) != 0)
                continue;
            snprintf(name.socket, sizeof name.socket, "%s", socket);
            snprintf(name.node, sizeof name.node, "%s", s->node[i].name);
            qemu_tag_of(t, &name);
            qemu_native_of(t, s, &s->node[i].bitmap[b], &name, n);
            rc = fn(n, arg);
        }
    return rc;
}

/* A machine that is off has nothing of ours. One that does not answer may have. */
static int qemu_list(const struct driver_class *c, native_fn *fn, void *arg, struct err *e)
{
    CLEANUP(sockets_free) struct sockets x = {.v = NULL};
    int rc = sockets_of(c, &x, e);
    for (size_t i = 0; rc == 0 && i < x.n; i++) {
        CLEANUP_MACHINE struct qemu_machine m = {.q = NULL};
        struct err why = ERR_INIT;
        rc = qemu_machine_open(&m, x.v[i], &why);
        if (rc == 0)
            rc = list_machine(c, x.v[i], &m.s, fn, arg, e);
        else if (why.cls == ERR_NOT_FOUND || why.cls == ERR_USAGE)
            rc = 0;
        else if (e)
            *e = why;
    }
    return rc;
}

/* Ends the point in time (`all`: and removes what records changes) of a volume. */
static int end(const struct driver_class *c, const char *name, const char *alias, bool all, bool *gone, struct err *e)
{
    CLEANUP_MACHINE struct qemu_machine m = {.q = NULL};
    CLEANUP_FREE struct qemu_tag *t = malloc(sizeof *t);
    const struct qemu_node *node = NULL;
    struct err why = ERR_INIT;
    struct qemu_name n;
    if (!t)
        return err_nomem(e);
    int rc = qemu_name_parse(&n, name, e);
    if (rc < 0)
        return rc;
    rc = qemu_machine_open(&m, n.socket, &why);
    *gone = rc < 0 && why.cls == ERR_NOT_FOUND;
    if (*gone)
        return 0;
    if (rc < 0) {
        if (e)
            *e = why;
        return rc;
    }
    *gone = !qemu_ours(&m.s, alias, &node, t);
    if (!*gone && strcmp(t->node, c->node) != 0)
        return err_plain(e, ERR_PERMISSION, EPERM, "native snapshot %s of %s belongs to node %s", alias, name, t->node);
    return *gone ? 0 : qemu_unmake(c, m.q, &n, alias, all, e);
}

static int qemu_remove(const struct driver_class *c, const struct native *n, bool *gone, struct err *e)
{
    return end(c, n->handle[0] ? n->handle : n->tag.volume_name, n->tag.alias, true, gone, e);
}

/* ---- exposing ---- */

static int qemu_expose(const struct driver_class *c, const struct native *n, const struct driver_class *into,
                       enum expose_mechanism m, bool read_only, const char *alias, struct exposure *ret, struct err *e)
{
    struct nbd_uri u;
    struct nbd_facts f;
    struct qemu_name name;
    struct err why = ERR_INIT;
    (void)into, (void)alias;
    if (m != EXPOSE_NATIVE || !read_only)
        return err_set(e, ERR_USAGE, ENOTSUP, "driver qemu reads snapshots as they are (storage class \"%s\")",
                       c->name);
    int rc = qemu_name_parse(&name, n->handle, e);
    if (rc == 0)
        rc = qemu_server_uri(c, &name, n->tag.alias, &u, e);
    if (rc < 0)
        return rc;
    rc = nbd_export_facts(&u, &f, &why);
    if (rc < 0 && why.cls == ERR_USAGE) {
        *e = why;
        return rc;
    }
    if (rc < 0) {
        err_plain(e, ERR_NOT_FOUND, ENOENT, "the point in time of native snapshot %s of %s has ended: %.400s",
                  n->tag.alias, n->handle, why.msg);
        return err_hint(e, "it is kept no longer than its backup, so that the guest is not slowed down: back up the "
                           "volume again, which reads what has changed");
    }
    if (f.size != n->size)
        return err_set(e, ERR_SOURCE, ESTALE, "size of %s is %" PRIu64 " bytes, was %" PRIu64 " in its native snapshot",
                       n->handle, f.size, n->size);
    memset(ret, 0, sizeof *ret);
    ret->mechanism = EXPOSE_NATIVE;
    ret->read_only = true;
    ret->size = n->size;
    nbd_uri_text(&u, ret->path);
    snprintf(ret->handle, sizeof ret->handle, "%.*s#%s", (int)(sizeof ret->handle - ALIAS_LEN - 2), n->handle,
             n->tag.alias);
    snprintf(ret->where, sizeof ret->where, "%s", n->handle);
    snprintf(ret->klass, sizeof ret->klass, "%s", c->name);
    return 0;
}

/* The backup has ended, well or not: from now on only changes are recorded. */
static int qemu_unexpose(const struct driver_class *into, const struct exposure *x, struct err *e)
{
    char name[VOLUME_NAME_MAX];
    bool gone;
    const char *mark = strrchr(x->handle, '#');
    if (!mark)
        return 0; /* of what has only an alias nothing was made */
    if (!alias_valid(mark + 1))
        return err_set(e, ERR_GENERIC, EINVAL, "the record of an exposure names no native snapshot of driver qemu");
    snprintf(name, sizeof name, "%.*s", (int)(mark - x->handle), x->handle);
    return end(into, name, mark + 1, false, &gone, e);
}

static int qemu_exposures(const struct driver_class *into, exposure_fn *fn, void *arg, struct err *e)
{
    (void)into, (void)fn, (void)arg, (void)e;
    return 0; /* all that there is belongs to native snapshots */
}

/* A connected socket: the mover negotiates. */
static int qemu_open_export(const struct driver_class *c, const struct exposure *x, int *fd, struct err *e)
{
    struct nbd_uri u;
    (void)c;
    int rc = nbd_uri_parse(&u, x->path, e);
    return rc < 0 ? rc : nbd_dial(&u, fd, NULL, e);
}

/* ---- what has changed ---- */

struct listing {
    struct changes *list;
    struct err *e;
};

static int add_range(uint64_t start, uint64_t len, void *arg)
{
    const struct listing *x = arg;
    return changes_add(x->list, start, len, x->e);
}

static int qemu_changed(const struct driver_class *c, const struct native *base, const struct native *n,
                        struct changes *list, struct changed_answer *ret, struct err *e)
{
    CLEANUP_MACHINE struct qemu_machine m = {.q = NULL};
    const struct listing into = {list, e};
    struct qemu_name name;
    struct nbd_uri u;
    char bitmap[QEMU_BITMAP_MAX], context[QEMU_BITMAP_MAX + 32];
    uint64_t size = 0;
    if (strcmp(base->handle, n->handle) != 0)
        return changed_doubt(ret, CHANGED_BASE_OTHER, "%s is not a snapshot of %s", base->handle, n->handle);
    int rc = qemu_name_parse(&name, n->handle, e);
    if (rc == 0)
        rc = qemu_server_uri(c, &name, n->tag.alias, &u, e);
    if (rc == 0)
        rc = qemu_machine_open(&m, name.socket, e);
    if (rc < 0)
        return rc;
    qemu_base_name(base->tag.alias, n->tag.alias, bitmap);
    const struct qemu_node *node = qemu_node_find(&m.s, name.node);
    const struct qemu_bitmap *b = node ? qemu_bitmap_find(node, bitmap) : NULL;
    if (!b)
        return changed_doubt(ret, CHANGED_BASE_LOST, "there is no bitmap of what was written between the snapshots");
    if (b->recording || b->inconsistent)
        return changed_doubt(ret, CHANGED_UNCERTAIN,
                             "the bitmap of what was written between the snapshots is not as it "
                             "was made");
    qemu_machine_close(&m);
    snprintf(context, sizeof context, "qemu:dirty-bitmap:%s", bitmap);
    rc = nbd_each_flagged(&u, context, DIRTY, add_range, (void *)&into, &size, e);
    if (rc == 0 && size != n->size)
        changed_doubt(ret, CHANGED_UNCERTAIN, "the export of the snapshot has %" PRIu64 " bytes instead of %" PRIu64,
                      size, n->size);
    return rc;
}

const struct driver driver_qemu = {
    .name = "qemu",
    .text = "disks of running virtual machines of QEMU, at a point in time, by what its dirty bitmaps have",
    .abilities = qemu_abilities,
    .volumes = qemu_volumes,
    .resolve = qemu_resolve,
    .snapshot = qemu_snapshot,
    .group_domain = qemu_group_domain,
    .group = qemu_group,
    .find = qemu_find,
    .list = qemu_list,
    .remove = qemu_remove,
    .expose = qemu_expose,
    .unexpose = qemu_unexpose,
    .exposures = qemu_exposures,
    .open = qemu_open_export,
    .changed = qemu_changed,
};
