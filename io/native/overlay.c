/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * overlay.c - writable overlays over a device, created by a program of the administrator (docs/devices.md)
 *
 * The hook does what depends on the machine (dm-snapshot, a loop device over an overlay file); here it is called and
 * its result verified: it must be a block device of the origin's size that is not the origin.
 *
 * Crash points: overlay-asked (before the hook runs), overlay-made, overlay-removed.
 */
#include "io/native/overlay.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"
#include "io/blockdev.h"
#include "io/native/json-fields.h"
#include "proc/program.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#define PROTOCOL 1
#define HOOK_SECONDS 300
#define EX_UNKNOWN_VERB 64 /* EX_USAGE: unknown verb */

static int hook_run(const struct driver_class *c, const char *verb, json_t *request, json_t **answer, int *status,
                    struct err *e)
{
    CLEANUP_FREE char *in = request ? json_dumps(request, JSON_COMPACT) : NULL;
    CLEANUP_FREE char *out = NULL;
    json_decref(request);
    if (!in)
        return err_nomem(e);
    char label[256];
    size_t len = 0;
    snprintf(label, sizeof label, "overlay hook %s of class %s", verb, c->name);
    char *const argv[] = {(char *)(uintptr_t)c->overlay_hook, (char *)(uintptr_t)verb, NULL};
    const struct program p = {
        .argv = argv, .label = label, .input = in, .input_len = strlen(in), .timeout_s = HOOK_SECONDS};
    int rc = program_run(&p, &out, &len, status, e);
    if (rc < 0)
        return rc;
    *answer = out && len ? json_loadb(out, len, JSON_REJECT_DUPLICATES, NULL) : NULL;
    return 0;
}

static int hook_failed(const struct driver_class *c, const char *verb, int status, const json_t *answer, struct err *e)
{
    char why[512];
    if (!json_is_object(answer) || field_text(answer, "answer", "error", why, sizeof why, false, NULL) < 0)
        why[0] = '\0';
    return err_set(e, ERR_GENERIC, 0, "overlay hook %s %s failed with exit status %d%s%s", c->overlay_hook, verb,
                   status, *why ? ": " : "", why);
}

static bool has_hook(const struct driver_class *c)
{
    return c->overlay_hook && *c->overlay_hook;
}

/* Checks what the hook returned; the descriptor is only for checks. */
static int check_made(const struct native *n, const char *path, bool read_only, struct err *e)
{
    struct stat origin, st;
    uint64_t size = 0;
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return err_set(e, ERR_GENERIC, errno, "the overlay hook named %s, which cannot be opened", path);
    if (fstat(fd, &st) < 0 || !S_ISBLK(st.st_mode))
        return err_set(e, ERR_GENERIC, ENOTBLK, "%s, returned by the overlay hook, is not a block device", path);
    if (stat(n->handle, &origin) < 0 || origin.st_rdev == st.st_rdev)
        return err_set(e, ERR_GENERIC, EINVAL, "%s, returned by the overlay hook, is the volume itself", path);
    if (ioctl(fd, BLKGETSIZE64, &size) < 0 || size != n->size)
        return err_set(e, ERR_GENERIC, EINVAL, "the overlay %s has %" PRIu64 " bytes, the volume %" PRIu64, path, size,
                       n->size);
    char user[512];
    if (blockdev_user(st.st_rdev, user, sizeof user)) /* a new overlay has no users */
        return err_set(e, ERR_GENERIC, EBUSY, "the overlay hook named %s, which is in use (%s)", path, user);
    int ro = 0;
    /* Only checked: a flag set here would remain on a loop device after the hook has released it (PVC-07). */
    if (read_only && (ioctl(fd, BLKROGET, &ro) < 0 || !ro))
        return err_set(e, ERR_GENERIC, EINVAL, "the overlay %s is not read-only", path);
    return 0;
}

int overlay_create(const struct driver_class *c, const struct native *n, const struct driver_class *into,
                   bool read_only, const char *alias, struct exposure *ret, struct err *e)
{
    json_t *answer = NULL;
    int status = 0;
    if (!has_hook(c))
        return err_set(e, ERR_USAGE, ENOTSUP, "storage class \"%s\" has no overlay hook", c->name);
    if (!alias_valid(alias))
        return err_set(e, ERR_USAGE, EINVAL, "invalid alias \"%.64s\"", alias);
    json_t *request =
        json_pack("{s:i, s:s, s:s, s:s, s:s, s:o, s:s, s:s, s:b, s:O?, s:o}", "version", PROTOCOL, "alias", alias,
                  "node", c->node, "device", n->handle, "volume_id", n->tag.volume_id, "size", u64_json(n->size),
                  "class", into->name, "target", into->target ? into->target : "", "read_only", (int)read_only,
                  "options", c->options, "tag", native_tag_json(&n->tag));
    const double began = mono_s();
    crash_point("overlay-asked");
    int rc = hook_run(c, "create", request, &answer, &status, e);
    if (rc < 0)
        return rc;
    crash_point("overlay-made");
    const double took = mono_s() - began;
    memset(ret, 0, sizeof *ret);
    if (status != 0)
        rc = hook_failed(c, "create", status, answer, e);
    else if (!json_is_object(answer))
        rc = err_set(e, ERR_GENERIC, EINVAL, "overlay hook %s create: answer is not a JSON object", c->overlay_hook);
    if (rc == 0 &&
        (rc = field_text(answer, "answer of the overlay hook", "device", ret->path, sizeof ret->path, true, e)) == 0 &&
        (rc = field_text(answer, "answer of the overlay hook", "handle", ret->handle, sizeof ret->handle, false, e)) ==
            0)
        rc = field_text(answer, "answer of the overlay hook", "where", ret->where, sizeof ret->where, false, e);
    json_decref(answer);
    if (rc == 0 && ret->path[0] != '/')
        rc = err_set(e, ERR_GENERIC, EINVAL, "the overlay hook's device \"%.512s\" is not an absolute path", ret->path);
    ret->mechanism = EXPOSE_OVERLAY;
    ret->read_only = read_only;
    ret->size = n->size;
    memcpy(ret->alias, alias, sizeof ret->alias);
    snprintf(ret->klass, sizeof ret->klass, "%s", into->name);
    if (!ret->handle[0])
        memcpy(ret->handle, ret->path, sizeof ret->handle);
    if (!ret->where[0])
        memcpy(ret->where, ret->path, sizeof ret->where);
    ret->seconds = took;
    if (rc == 0)
        rc = check_made(n, ret->path, read_only, e);
    if (rc < 0 && status == 0) { /* it created something unusable */
        struct err undo = ERR_INIT;
        if (overlay_remove(c, ret, &undo) < 0)
            log_warning("%s", undo.msg);
    }
    return rc;
}

int overlay_remove(const struct driver_class *into, const struct exposure *x, struct err *e)
{
    json_t *answer = NULL;
    int status = 0;
    if (!has_hook(into))
        return err_set(e, ERR_USAGE, ENOTSUP,
                       "the overlay %s was made by the overlay hook of a class, and class \"%s\" has none", x->handle,
                       into->name);
    json_t *request = json_pack("{s:i, s:s, s:s, s:s, s:s}", "version", PROTOCOL, "alias", x->alias, "node", into->node,
                                "device", x->path, "handle", x->handle);
    int rc = hook_run(into, "remove", request, &answer, &status, e);
    if (rc == 0 && status != 0)
        rc = hook_failed(into, "remove", status, answer, e);
    json_decref(answer);
    if (rc == 0)
        crash_point("overlay-removed");
    return rc;
}

int overlay_each(const struct driver_class *into, exposure_fn *fn, void *arg, struct err *e)
{
    json_t *answer = NULL, *one;
    int status = 0;
    size_t i;
    if (!has_hook(into))
        return 0;
    int rc =
        hook_run(into, "list", json_pack("{s:i, s:s}", "version", PROTOCOL, "node", into->node), &answer, &status, e);
    if (rc == 0 && status != 0 && status != EX_UNKNOWN_VERB)
        rc = hook_failed(into, "list", status, answer, e);
    json_t *all = rc == 0 && status == 0 ? json_object_get(answer, "overlays") : NULL;
    if (rc == 0 && status == 0 && !json_is_array(all))
        rc = err_set(e, ERR_GENERIC, EINVAL, "overlay hook %s list: answer without array \"overlays\"",
                     into->overlay_hook);
    json_array_foreach(all, i, one)
    {
        struct exposure x = {.mechanism = EXPOSE_OVERLAY};
        struct native_tag t = {.created_ns = 0};
        const char what[] = "overlay of the hook's list";
        if (rc != 0)
            break;
        if ((rc = field_alias(one, what, "alias", x.alias, true, e)) < 0 ||
            (rc = field_text(one, what, "device", x.path, sizeof x.path, false, e)) < 0 ||
            (rc = field_text(one, what, "handle", x.handle, sizeof x.handle, true, e)) < 0)
            break;
        memcpy(x.where, x.path, sizeof x.where);
        snprintf(x.klass, sizeof x.klass, "%s", into->name);
        const json_t *tag = json_object_get(one, "tag");
        if (!tag || native_tag_from_json(&t, tag, what, NULL) < 0)
            memset(&t, 0, sizeof t);
        memcpy(t.alias, x.alias, sizeof t.alias);
        rc = fn(&x, &t, arg);
    }
    json_decref(answer);
    return rc;
}
