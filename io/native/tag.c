/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tag.c - owner tags; creation and removal of tagged files
 *
 * Crash points, K being native, intermediate or staging: hidden-dir-made; K-filled (contents present, no tag, no name);
 * K-tagged (synced, no name: freed after a crash); K-linked (named, not yet durable); K-durable; K-unlinked (name
 * removed, not yet durable); K-removed.
 */
#include "io/native/tag.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "io/native/fsinfo.h"
#include "io/native/json-fields.h"
#include "io/native/path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#define TAG_VERSION 1
#define XATTR_MAX 65536

static const char *const kind_names[] = {"native", "intermediate", "staging"};
enum step { FILLED, TAGGED, LINKED, DURABLE, UNLINKED, REMOVED };

static void crash_after(enum tag_kind k, enum step s)
{
    static const char *const points[][6] = {
        {"native-filled", "native-tagged", "native-linked", "native-durable", "native-unlinked", "native-removed"},
        {"intermediate-filled", "intermediate-tagged", "intermediate-linked", "intermediate-durable",
         "intermediate-unlinked", "intermediate-removed"},
        {"staging-filled", "staging-tagged", "staging-linked", "staging-durable", "staging-unlinked",
         "staging-removed"}};
    crash_point(points[k][s]);
}

/* ---- extended attributes ---- */

static int xattr_put(int fd, const char *path, const char *name, json_t *j, struct err *e)
{
    CLEANUP_FREE char *text = j ? json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(j);
    if (!text)
        return err_nomem(e);
    char full[64];
    snprintf(full, sizeof full, "trusted.snapferry.%s", name);
    int rc = fsetxattr(fd, full, text, strlen(text), 0);
    if (rc < 0 && (errno == EPERM || errno == EACCES)) {
        snprintf(full, sizeof full, "user.snapferry.%s", name);
        rc = fsetxattr(fd, full, text, strlen(text), 0);
    }
    if (rc < 0 && (errno == EOPNOTSUPP || errno == ENOSPC || errno == E2BIG || errno == ERANGE)) {
        int sys = errno;
        err_set(e, ERR_TARGET, sys, "cannot tag %s with %zu bytes of extended attributes", path, strlen(text));
        err_hint(e, "use a file system that supports them: XFS, btrfs or ext4");
        return -sys;
    }
    return rc < 0 ? err_set(e, ERR_GENERIC, errno, "cannot tag %s", path) : 0;
}

static json_t *xattr_read(int fd, const char *full)
{
    CLEANUP_FREE char *buf = malloc(XATTR_MAX);
    ssize_t n = buf ? fgetxattr(fd, full, buf, XATTR_MAX) : -1;
    return n > 0 ? json_loadb(buf, (size_t)n, JSON_REJECT_DUPLICATES, NULL) : NULL;
}

/* The attribute's document if it was set on this very file, else NULL. */
static json_t *xattr_get(int fd, const char *name)
{
    char full[64], object[VOLUME_ID_MAX], here[VOLUME_ID_MAX];
    struct stat st;
    uint64_t version = 0;
    snprintf(full, sizeof full, "trusted.snapferry.%s", name);
    json_t *j = xattr_read(fd, full);
    if (!j && fstat(fd, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 022) == 0) {
        snprintf(full, sizeof full, "user.snapferry.%s", name);
        j = xattr_read(fd, full);
    }
    if (j && (!json_is_object(j) || field_u64(j, "tag", "version", &version, true, NULL) < 0 ||
              version != TAG_VERSION || field_text(j, "tag", "object", object, sizeof object, true, NULL) < 0 ||
              file_object_id(fd, "", here, NULL) < 0 || strcmp(object, here) != 0)) {
        json_decref(j);
        j = NULL;
    }
    return j;
}

static int xattr_drop(int fd, const char *path, const char *name, struct err *e)
{
    static const char *const spaces[] = {"trusted", "user"};
    for (int i = 0; i < 2; i++) {
        char full[64];
        snprintf(full, sizeof full, "%s.snapferry.%s", spaces[i], name);
        if (fremovexattr(fd, full) < 0 && errno != ENODATA && !(i == 0 && errno == EPERM) && errno != EOPNOTSUPP)
            return err_set(e, ERR_GENERIC, errno, "cannot remove the tag of %s", path);
    }
    return 0;
}

/* ---- tags ---- */

int tag_write(int fd, const char *path, const struct file_tag *t, struct err *e)
{
    char object[VOLUME_ID_MAX];
    int rc = file_object_id(fd, path, object, e);
    if (rc < 0)
        return rc;
    json_t *j = native_tag_json(&t->tag);
    json_t *more = json_pack("{s:i, s:s, s:s, s:s, s:o}", "version", TAG_VERSION, "object", object, "kind",
                             kind_names[t->kind], "node", t->node, "size", u64_json(t->size));
    if (j && more && json_object_update(j, more) == 0 && t->kind != TAG_NATIVE) {
        json_decref(more);
        if (t->kind == TAG_INTERMEDIATE)
            more = json_pack("{s:s, s:b, s:s, s:s, s:o, s:f}", "mechanism", expose_mechanism_name(t->mechanism),
                             "read_only", (int)t->read_only, "class", t->klass, "native", t->native, "copied",
                             u64_json(t->copied), "seconds", t->seconds);
        else
            more = json_pack("{s:b, s:s}", "overwrite", (int)t->overwrite, "final", t->final);
        if (!more || json_object_update(j, more) < 0) {
            json_decref(j);
            j = NULL;
        }
    }
    json_decref(more);
    return xattr_put(fd, path, "tag", j, e);
}

static int kind_fields(struct file_tag *t, const json_t *j)
{
    static const char what[] = "tag";
    if (t->kind == TAG_STAGING)
        return field_bool(j, what, "overwrite", &t->overwrite, NULL) < 0 ||
                       field_text(j, what, "final", t->final, sizeof t->final, true, NULL) < 0
                   ? -ENODATA
                   : 0;
    if (t->kind == TAG_INTERMEDIATE && (field_mechanism(j, what, "mechanism", &t->mechanism, NULL) < 0 ||
                                        field_bool(j, what, "read_only", &t->read_only, NULL) < 0 ||
                                        field_text(j, what, "class", t->klass, sizeof t->klass, true, NULL) < 0 ||
                                        field_alias(j, what, "native", t->native, false, NULL) < 0 ||
                                        field_u64(j, what, "copied", &t->copied, true, NULL) < 0 ||
                                        field_real(j, what, "seconds", &t->seconds, NULL) < 0))
        return -ENODATA;
    return 0;
}

int tag_read(int fd, struct file_tag *ret)
{
    char kind[32];
    memset(ret, 0, sizeof *ret);
    json_t *j = xattr_get(fd, "tag");
    if (!j)
        return -ENODATA;
    int rc = -ENODATA;
    if (field_text(j, "tag", "kind", kind, sizeof kind, true, NULL) == 0 &&
        field_text(j, "tag", "node", ret->node, sizeof ret->node, true, NULL) == 0 &&
        field_u64(j, "tag", "size", &ret->size, true, NULL) == 0 &&
        native_tag_from_json(&ret->tag, j, "tag", NULL) == 0) {
        for (int k = TAG_NATIVE; k <= TAG_STAGING; k++) {
            if (strcmp(kind, kind_names[k]) == 0) {
                ret->kind = (enum tag_kind)k;
                rc = kind_fields(ret, j);
            }
        }
    }
    json_decref(j);
    return rc;
}

int tag_remove(int fd, const char *path, struct err *e)
{
    return xattr_drop(fd, path, "tag", e);
}

int volume_mark_write(int fd, const char *path, const char *id, const char *restored, struct err *e)
{
    char object[VOLUME_ID_MAX];
    int rc = file_object_id(fd, path, object, e);
    if (rc < 0)
        return rc;
    return xattr_put(
        fd, path, "volume",
        json_pack("{s:i, s:s, s:s, s:s}", "version", TAG_VERSION, "object", object, "id", id, "restored", restored), e);
}

int volume_mark_read(int fd, char id[VOLUME_ID_MAX], char restored[ALIAS_LEN + 1])
{
    char a[VOLUME_ID_MAX], b[ALIAS_LEN + 1];
    json_t *j = xattr_get(fd, "volume");
    int rc = j && field_text(j, "mark", "id", a, sizeof a, true, NULL) == 0 && a[0] &&
                     a[strspn(a, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-")] == '\0' &&
                     field_alias(j, "mark", "restored", b, true, NULL) == 0
                 ? 0
                 : -ENODATA;
    json_decref(j);
    if (rc == 0 && id)
        memcpy(id, a, sizeof a);
    if (rc == 0 && restored)
        memcpy(restored, b, sizeof b);
    return rc;
}

/* ---- files ---- */

void tagged_close(struct tagged *f)
{
    closep(&f->fd);
    closep(&f->dir);
    f->fd = f->dir = -1;
}

#define STAGING ".snapferry-"

void staging_name(const char *final_name, const char *alias, char ret[NAME_MAX + 1])
{
    if (strlen(final_name) + sizeof STAGING - 1 + ALIAS_LEN <= NAME_MAX)
        snprintf(ret, NAME_MAX + 1, "%s" STAGING "%s", final_name, alias);
    else
        snprintf(ret, NAME_MAX + 1, STAGING "%s", alias);
}

bool staging_named(const char *name, const char *alias)
{
    size_t n = strlen(name), suffix = sizeof STAGING - 1 + ALIAS_LEN;
    return n >= suffix && strncmp(name + n - suffix, STAGING, sizeof STAGING - 1) == 0 &&
           strcmp(name + n - ALIAS_LEN, alias) == 0;
}

int hidden_open(int dir, const char *path, bool create, struct err *e)
{
    struct stat st;
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    CLEANUP_CLOSE int fd = openat(dir, HIDDEN_DIR, flags);
    if (fd < 0 && errno == ENOENT && !create)
        return -ENOENT;
    if (fd < 0 && errno == ENOENT) {
        if (mkdirat(dir, HIDDEN_DIR, 0700) < 0 && errno != EEXIST)
            return err_set(e, ERR_GENERIC, errno, "cannot create directory %s/%s", path, HIDDEN_DIR);
        crash_point("hidden-dir-made");
        if (fsync(dir) < 0)
            return err_set(e, ERR_GENERIC, errno, "cannot sync the directory %s", path);
        fd = openat(dir, HIDDEN_DIR, flags);
    }
    if (fd < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot open the directory %s/%s", path, HIDDEN_DIR);
    if (fstat(fd, &st) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot stat %s/%s", path, HIDDEN_DIR);
    if (st.st_uid != geteuid() || (st.st_mode & 022) != 0) {
        err_set(e, ERR_PERMISSION, EPERM, "%s/%s is accessible to others (owner %u, mode %03o)", path, HIDDEN_DIR,
                (unsigned)st.st_uid, (unsigned)st.st_mode & 0777);
        err_hint(e, "check who created it; then remove it, or chown it to uid %u and chmod it 0700",
                 (unsigned)geteuid());
        return -EPERM;
    }
    return take_fd(&fd);
}

static int tmpfile_error(const char *path, int sys, struct err *e)
{
    err_set(e, ERR_GENERIC, sys, "cannot create a file in %s", path);
    if (sys == EOPNOTSUPP || sys == EISDIR)
        err_hint(e, "its file system does not support unnamed files (O_TMPFILE): use XFS, btrfs, ext4 or tmpfs");
    return -sys;
}

int tagged_create(int dir, const char *dir_path, const char *name, mode_t mode, struct file_tag *t,
                  tagged_fill_fn *fill, void *arg, struct err *e)
{
    char path[VOLUME_NAME_MAX], self[64];
    int rc = path_join(path, dir_path, name, e);
    if (rc < 0)
        return rc;
    CLEANUP_CLOSE int fd = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return tmpfile_error(dir_path, errno, e);
    if ((rc = fill(fd, path, t, arg, e)) < 0)
        return rc;
    crash_after(t->kind, FILLED);
    if ((rc = tag_write(fd, path, t, e)) < 0)
        return rc;
    /* Before it has a name: a file whose tag cannot be read back would never be removed. */
    if (tag_read(fd, t) < 0)
        return err_set(e, ERR_GENERIC, EIO, "the tag of %s does not read back as written", path);
    if (fchmod(fd, mode) < 0 || fsync(fd) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot sync %s", path);
    crash_after(t->kind, TAGGED);
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    if (linkat(AT_FDCWD, self, dir, name, AT_SYMLINK_FOLLOW) < 0)
        return err_set(e, errno == EEXIST ? ERR_EXISTS : ERR_GENERIC, errno, "cannot link %s", path);
    crash_after(t->kind, LINKED);
    /* The second fsync is for btrfs: it does not log an inode that has no name yet. */
    if (fsync(fd) < 0 || fsync(dir) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot sync %s", path);
    crash_after(t->kind, DURABLE);
    return 0;
}

int tagged_unlink(const struct tagged *f, struct err *e)
{
    struct stat st;
    if (fstatat(f->dir, f->name, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
        return 0;
    if (st.st_dev != f->st.st_dev || st.st_ino != f->st.st_ino)
        return err_set(e, ERR_PERMISSION, EPERM, "%s was replaced meanwhile: not removed", f->path);
    if (unlinkat(f->dir, f->name, 0) < 0 && errno != ENOENT)
        return err_set(e, ERR_GENERIC, errno, "cannot remove %s", f->path);
    crash_after(f->tag.kind, UNLINKED);
    if (fsync(f->dir) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot sync the directory of %s", f->path);
    crash_after(f->tag.kind, REMOVED);
    return 0;
}
