/* SPDX-License-Identifier: GPL-2.0-or-later */
/* plugin-shapes.c - reading and writing the objects of the plugin protocol */
#include "io/native/plugin-shapes.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- shapes ---- */

json_t *plugin_volume_json(const struct volume *v)
{
    json_t *j = json_pack("{s:s, s:s, s:s, s:I, s:I, s:b, s:b}", "name", v->name, "id", v->id, "pool", v->pool, "size",
                          (json_int_t)v->size, "sector", (json_int_t)v->sector, "block", v->block, "in-use", v->in_use);
    if (j && v->allocated != UINT64_MAX)
        json_object_set_new(j, "allocated", json_integer((json_int_t)v->allocated));
    if (j && v->labels[0])
        json_object_set_new(j, "labels", json_string(v->labels));
    return j;
}

/* Words KIND:VALUE with one blank between them. */
static bool labels_valid(const char *s)
{
    while (*s) {
        const size_t word = strcspn(s, " "), kind = strspn(s, "abcdefghijklmnopqrstuvwxyz-");
        for (size_t i = 0; i < word; i++)
            if ((unsigned char)s[i] < 0x21 || s[i] == 0x7f)
                return false;
        if (!kind || s[kind] != ':' || kind + 1 >= word || (s[word] && !s[word + 1]))
            return false;
        s += word + (s[word] != '\0');
    }
    return true;
}

int plugin_volume_read(const struct answer *a, struct volume *ret, struct err *e)
{
    struct volume v = {.allocated = UINT64_MAX};
    uint64_t sector = 512;
    int rc;
    if ((rc = answer_text(a, "name", ANSWER_REQUIRED, v.name, sizeof v.name, e)) < 0 ||
        (rc = answer_text(a, "id", ANSWER_REQUIRED | ANSWER_ID, v.id, sizeof v.id, e)) < 0 ||
        (rc = answer_text(a, "pool", 0, v.pool, sizeof v.pool, e)) < 0 ||
        (rc = answer_text(a, "labels", 0, v.labels, sizeof v.labels, e)) < 0 ||
        (rc = answer_u64(a, "size", ANSWER_REQUIRED, &v.size, e)) < 0 ||
        (rc = answer_u64(a, "allocated", 0, &v.allocated, e)) < 0 ||
        (rc = answer_u64(a, "sector", 0, &sector, e)) < 0 || (rc = answer_bool(a, "block", 0, &v.block, e)) < 0 ||
        (rc = answer_bool(a, "in-use", 0, &v.in_use, e)) < 0)
        return rc;
    if (sector < 512 || sector > 65536 || (sector & (sector - 1)))
        return plugin_lies(a->p, a->verb, e, "\"%ssector\" is not a power of two from 512 to 65536", a->at);
    if (v.allocated != UINT64_MAX && v.allocated > v.size)
        return plugin_lies(a->p, a->verb, e, "\"%sallocated\" is more than the size", a->at);
    if (!labels_valid(v.labels))
        return plugin_lies(a->p, a->verb, e, "\"%slabels\" is not words KIND:VALUE with blanks between them", a->at);
    v.sector = (uint32_t)sector;
    *ret = v;
    return 0;
}

/* The time is text: it has more digits than a floating-point number (as in jq) preserves. */
json_t *plugin_tag_json(const struct native_tag *t, const char *node)
{
    char created[24];
    snprintf(created, sizeof created, "%lld", (long long)t->created_ns);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I}", "node", node, "alias", t->alias, "volume-id",
                     t->volume_id, "volume-name", t->volume_name, "backup", t->backup, "operation", t->operation,
                     "repository", t->repository, "created-ns", created, "seq", (json_int_t)t->seq);
}

static int created_read(const struct answer *a, int64_t *ret, struct err *e)
{
    char text[24], *end;
    int rc = answer_text(a, "created-ns", 0, text, sizeof text, e);
    if (rc < 0 || !text[0])
        return rc;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno || *end || n < 0)
        return plugin_lies(a->p, a->verb, e, "\"%screated-ns\" is not a time in nanoseconds, as text", a->at);
    *ret = n;
    return 0;
}

static int tag_read(const struct answer *a, const char *node, struct native_tag *ret, struct err *e)
{
    struct native_tag t = {0};
    char of[256];
    int rc;
    /* RS-27: without alias and volume id the owner of a snapshot is unknown. */
    if ((rc = answer_text(a, "node", ANSWER_REQUIRED, of, sizeof of, e)) < 0 ||
        (rc = answer_text(a, "alias", ANSWER_REQUIRED | ANSWER_ALIAS, t.alias, sizeof t.alias, e)) < 0 ||
        (rc = answer_text(a, "volume-id", ANSWER_REQUIRED | ANSWER_ID, t.volume_id, sizeof t.volume_id, e)) < 0 ||
        (rc = answer_text(a, "volume-name", 0, t.volume_name, sizeof t.volume_name, e)) < 0 ||
        (rc = answer_text(a, "backup", 0, t.backup, sizeof t.backup, e)) < 0 ||
        (rc = answer_text(a, "operation", 0, t.operation, sizeof t.operation, e)) < 0 ||
        (rc = answer_text(a, "repository", 0, t.repository, sizeof t.repository, e)) < 0 ||
        (rc = created_read(a, &t.created_ns, e)) < 0 || (rc = answer_u64(a, "seq", 0, &t.seq, e)) < 0)
        return rc;
    if (strcmp(of, node) != 0)
        return plugin_lies(a->p, a->verb, e, "\"%snode\" is \"%.100s\", this node is \"%.100s\"", a->at, of, node);
    *ret = t;
    return 0;
}

json_t *plugin_native_json(const struct native *n, const char *node)
{
    json_t *j = json_pack("{s:o, s:s, s:I, s:b}", "tag", plugin_tag_json(&n->tag, node), "handle", n->handle, "size",
                          (json_int_t)n->size, "crash-consistent", n->crash_consistent);
    if (j && n->used != UINT64_MAX)
        json_object_set_new(j, "used", json_integer((json_int_t)n->used));
    if (j && n->change_id[0])
        json_object_set_new(j, "change-id", json_string(n->change_id));
    return j;
}

int plugin_native_read(const struct answer *a, const char *node, struct native *ret, struct err *e)
{
    struct native n = {.used = UINT64_MAX, .crash_consistent = true};
    struct answer tag;
    int rc;
    if ((rc = answer_object(a, "tag", "tag.", &tag, e)) < 0 || (rc = tag_read(&tag, node, &n.tag, e)) < 0 ||
        (rc = answer_text(a, "handle", ANSWER_REQUIRED, n.handle, sizeof n.handle, e)) < 0 ||
        (rc = answer_u64(a, "size", ANSWER_REQUIRED, &n.size, e)) < 0 ||
        (rc = answer_u64(a, "used", 0, &n.used, e)) < 0 ||
        (rc = answer_bool(a, "crash-consistent", 0, &n.crash_consistent, e)) < 0 ||
        (rc = answer_text(a, "change-id", ANSWER_ID, n.change_id, sizeof n.change_id, e)) < 0)
        return rc;
    if (n.handle[0] == '/' && !answer_is_path(n.handle))
        return plugin_lies(a->p, a->verb, e, "\"%shandle\" is a path with \"..\" or \"//\" in it", a->at);
    *ret = n;
    return 0;
}

json_t *plugin_exposure_json(const struct exposure *x, const char *node)
{
    return json_pack("{s:s, s:b, s:s, s:s, s:s, s:s, s:s, s:s, s:I}", "mechanism", expose_mechanism_name(x->mechanism),
                     "read-only", x->read_only, "path", x->path, "handle", x->handle, "alias", x->alias, "class",
                     x->klass, "where", x->where, "node", node, "size", (json_int_t)x->size);
}

static int mechanism_read(const struct answer *a, enum expose_mechanism *ret, struct err *e)
{
    char word[32];
    int rc = answer_text(a, "mechanism", ANSWER_REQUIRED, word, sizeof word, e);
    if (rc < 0)
        return rc;
    for (enum expose_mechanism m = EXPOSE_NATIVE; m <= EXPOSE_COPY; m++)
        if (strcmp(word, expose_mechanism_name(m)) == 0) {
            *ret = m;
            return 0;
        }
    return plugin_lies(a->p, a->verb, e, "\"%smechanism\" is \"%s\": not one of native, clone, overlay, copy", a->at,
                       word);
}

int plugin_exposure_read(const struct answer *a, const char *node, struct exposure *ret, struct native_tag *t,
                         struct err *e)
{
    struct exposure x = {.read_only = true};
    struct answer tag;
    int rc;
    memset(t, 0, sizeof *t);
    if ((rc = mechanism_read(a, &x.mechanism, e)) < 0 ||
        (rc = answer_bool(a, "read-only", ANSWER_REQUIRED, &x.read_only, e)) < 0 ||
        (rc = answer_text(a, "path", ANSWER_REQUIRED | ANSWER_PATH, x.path, sizeof x.path, e)) < 0 ||
        (rc = answer_text(a, "handle", 0, x.handle, sizeof x.handle, e)) < 0 ||
        (rc = answer_text(a, "alias", ANSWER_ALIAS, x.alias, sizeof x.alias, e)) < 0 ||
        (rc = answer_text(a, "where", 0, x.where, sizeof x.where, e)) < 0 ||
        (rc = answer_u64(a, "size", ANSWER_REQUIRED, &x.size, e)) < 0 ||
        (rc = answer_u64(a, "copied", 0, &x.copied, e)) < 0)
        return rc;
    if (x.mechanism != EXPOSE_NATIVE && (!*x.handle || !*x.alias))
        return plugin_lies(a->p, a->verb, e, "an intermediate has no \"%s%s\"", a->at, *x.handle ? "alias" : "handle");
    if (json_object_get(a->o, "tag") &&
        ((rc = answer_object(a, "tag", "tag.", &tag, e)) < 0 || (rc = tag_read(&tag, node, t, e)) < 0))
        return rc;
    *ret = x;
    return 0;
}

json_t *plugin_target_json(const struct restore_target *t)
{
    return json_pack("{s:s, s:s, s:s, s:I}", "path", t->path, "handle", t->handle, "final", t->final, "size",
                     (json_int_t)t->size);
}

int plugin_target_read(const struct answer *a, struct restore_target *ret, struct err *e)
{
    struct restore_target t = {0};
    int rc;
    if ((rc = answer_text(a, "path", ANSWER_REQUIRED | ANSWER_PATH, t.path, sizeof t.path, e)) < 0 ||
        (rc = answer_text(a, "handle", ANSWER_REQUIRED, t.handle, sizeof t.handle, e)) < 0 ||
        (rc = answer_text(a, "final", ANSWER_REQUIRED, t.final, sizeof t.final, e)) < 0 ||
        (rc = answer_u64(a, "size", ANSWER_REQUIRED, &t.size, e)) < 0)
        return rc;
    *ret = t;
    return 0;
}

int plugin_pool_read(const struct answer *a, struct pool_usage *ret, struct err *e)
{
    struct pool_usage u = {0};
    int rc;
    if ((rc = answer_text(a, "name", ANSWER_REQUIRED, u.name, sizeof u.name, e)) < 0 ||
        (rc = answer_u64(a, "size", ANSWER_REQUIRED, &u.size, e)) < 0 ||
        (rc = answer_u64(a, "free", ANSWER_REQUIRED, &u.free, e)) < 0)
        return rc;
    if (u.free > u.size)
        return plugin_lies(a->p, a->verb, e, "\"free\" is more than \"size\"");
    u.used_ratio = u.size ? 1.0 - (double)u.free / (double)u.size : 0;
    rc = answer_ratio(a, "used-ratio", 0, &u.used_ratio, e);
    if (rc == 0)
        *ret = u;
    return rc;
}

int plugin_extent_read(const struct answer *a, uint64_t *start, uint64_t *len, bool *zeros, struct err *e)
{
    int rc;
    if ((rc = answer_u64(a, "start", ANSWER_REQUIRED, start, e)) < 0 ||
        (rc = answer_u64(a, "length", ANSWER_REQUIRED, len, e)) < 0 ||
        (zeros && (rc = answer_bool(a, "zeros", 0, zeros, e)) < 0))
        return rc;
    if (*len == 0)
        return plugin_lies(a->p, a->verb, e, "extent at %llu without length", (unsigned long long)*start);
    return 0;
}

/* ---- paths ---- */

/* Length of `root` without trailing slashes if `path` is below it, else 0. "/" never counts. */
static size_t below_root(const char *root, size_t len, const char *path)
{
    while (len && root[len - 1] == '/')
        len--;
    return len && root[0] == '/' && strncmp(path, root, len) == 0 && path[len] == '/' ? len : 0;
}

/* Part of a pattern that is the same for all volumes it matches: directories before the first wildcard. */
static size_t fixed_part(const char *pattern)
{
    size_t n = strcspn(pattern, "*?[\\");
    while (n && pattern[n - 1] != '/')
        n--;
    return n;
}

static size_t root_of(const struct driver_class *c, const char *path)
{
    size_t n = below_root(c->target ? c->target : "", strlen(c->target ? c->target : ""), path);
    for (size_t i = 0; !n && c->match && c->match[i]; i++)
        n = below_root(c->match[i], fixed_part(c->match[i]), path);
    const char *dirs = json_string_value(json_object_get(c->options, "paths"));
    while (!n && dirs && *dirs) {
        size_t len = strcspn(dirs, ":");
        n = below_root(dirs, len, path);
        dirs += len + (dirs[len] == ':');
    }
    return n;
}

bool plugin_path_inside(const struct driver_class *c, const char *path)
{
    return answer_is_path(path) && root_of(c, path);
}

/* Like openat2() below, step by step, where a filter on system calls that cannot check its argument forbids it
 * (RestrictSUIDSGID= of the daemon's unit). */
static int walk_beneath(int at, const char *path)
{
    CLEANUP_CLOSE int dir = fcntl(at, F_DUPFD_CLOEXEC, 0);
    while (dir >= 0) {
        char name[NAME_MAX + 1];
        struct stat st;
        const size_t n = strcspn(path, "/"), next = n + strspn(path + n, "/");
        if (n > NAME_MAX)
            return -ENAMETOOLONG;
        memcpy(name, path, n);
        name[n] = '\0';
        if (!n || !strcmp(name, ".."))
            return -EXDEV;
        int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            return -errno;
        close(dir);
        dir = fd;
        if (fstat(fd, &st) < 0)
            return -errno;
        if (S_ISLNK(st.st_mode))
            return -ELOOP;
        if (!path[next])
            return take_fd(&dir);
        path += next;
    }
    return -errno;
}

static int open_beneath(int at, const char *path)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH};
    int fd = (int)syscall(SYS_openat2, at, path, &how, sizeof how);
    return fd >= 0 ? fd : errno == ENOSYS || errno == EPERM ? walk_beneath(at, path) : -errno;
}

/* O_PATH: opens nothing yet, so that a FIFO or a dead device cannot block. */
static int find_object(const char *path, size_t root, struct stat *st)
{
    char dir[VOLUME_NAME_MAX];
    snprintf(dir, sizeof dir, "%.*s", (int)root, path);
    CLEANUP_CLOSE int at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (at < 0)
        return -errno;
    CLEANUP_CLOSE int fd = open_beneath(at, path + root + 1);
    bool link = fd == -ELOOP;
    if (fd < 0 && !link)
        return fd;
    if (link) /* device names are links (/dev/vg0/lv): allowed if they lead to a block device */
        fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0 || fstat(fd, st) < 0)
        return -errno;
    if (link && !S_ISBLK(st->st_mode))
        return -ELOOP;
    return take_fd(&fd);
}

static int size_of(int fd, const struct stat *st, uint64_t *ret)
{
    if (S_ISREG(st->st_mode)) {
        *ret = (uint64_t)st->st_size;
        return 0;
    }
    return ioctl(fd, BLKGETSIZE64, ret) < 0 ? -errno : 0;
}

int plugin_path_open(const struct driver_class *c, const struct plugin_program *p, enum plugin_verb v, const char *path,
                     uint64_t size, int flags, int *ret, struct err *e)
{
    size_t root = answer_is_path(path) ? root_of(c, path) : 0;
    if (!root) {
        plugin_lies(p, v, e, "%.500s is outside the directories of [storage-class \"%s\"]", path, c->name);
        return err_hint(e, "if this is intended, allow it: backup-option.paths = DIRECTORY[:DIRECTORY] in the class");
    }
    struct stat st;
    CLEANUP_CLOSE int found = find_object(path, root, &st);
    if (found < 0)
        return plugin_lies(p, v, e, "cannot open %.500s: %s", path, strerror(-found));
    if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
        return plugin_lies(p, v, e, "%.500s is neither a regular file nor a block device", path);
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", found);
    CLEANUP_CLOSE int fd = open(self, flags | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_set(e, ERR_SOURCE, errno, "cannot open %.500s, plugin: %s", path, p->name);
    uint64_t real = 0;
    int rc = size_of(fd, &st, &real);
    if (rc < 0)
        return err_set(e, ERR_SOURCE, -rc, "cannot determine the size of %.500s, plugin: %s", path, p->name);
    if (real != size)
        return plugin_lies(p, v, e, "%.500s has %llu bytes, %llu reported by the plugin", path,
                           (unsigned long long)real, (unsigned long long)size);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    *ret = take_fd(&fd);
    return 0;
}
