/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * target.c - images to restore into (commands.h)
 *
 * Whoever opens an image of these writes the number of its client into the metadata KEY.writers first: the watch of one
 * that was killed stays for half a minute, and is waited for. Clients that are not in that list are others, and are
 * never written over.
 */
#include "io/rbd/commands.h"

#include "base/cleanup.h"
#include "base/crash.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define META_MAX 65536
#define WRITERS_MAX 4096
#define OURS_MS 90000  /* a server that hangs ends after 40 s, and Ceph drops it after 30 s more */
#define OTHERS_MS 5000 /* a command that looks at the image, or changes a setting */
#define POLL_MS 250

/* An image that is open for writing, and what its tag says. */
struct target {
    struct image x;
    const char *key;
    char writers_key[128];
    json_t *tag; /* NULL: none */
    bool staged; /* has a name of ours: all its clients are */
};

/* ---- metadata ---- */

/* *ret: of malloc(). -ENOENT without a message: there is none. */
static int meta_get(const struct image *x, const char *key, char **ret, struct err *e)
{
    size_t n = META_MAX;
    CLEANUP_FREE char *text = calloc(1, META_MAX + 1);
    if (!text)
        return err_nomem(e);
    const int rc = x->cluster->lib->rbd_metadata_get(x->rbd, key, text, &n);
    if (rc < 0)
        return rc == -ENOENT ? rc : ceph_error(e, rc, "cannot read metadata of image %s", x->name);
    *ret = take_ptr(&text);
    return 0;
}

static int meta_set(const struct image *x, const char *key, const char *value, struct err *e)
{
    const int rc = x->cluster->lib->rbd_metadata_set(x->rbd, key, value);
    return rc < 0 ? ceph_error(e, rc, "cannot set metadata of image %s", x->name) : 0;
}

static int tag_read(struct target *t, struct err *e)
{
    CLEANUP_FREE char *text = NULL;
    json_decref(t->tag);
    t->tag = NULL;
    int rc = meta_get(&t->x, t->key, &text, e);
    if (rc < 0)
        return rc == -ENOENT ? 0 : rc;
    t->tag = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    return json_is_object(t->tag)
               ? 0
               : err_set(e, ERR_SOURCE, EINVAL, "metadata %s of image %s are no object", t->key, t->x.name);
}

static int tag_note(struct target *t, const char *member, json_t *value, struct err *e)
{
    return json_object_set_new(t->tag, member, value) < 0 ? err_nomem(e) : ceph_tag_set(&t->x, t->key, t->tag, e);
}

static uint64_t tag_number(const struct target *t, const char *member)
{
    const json_int_t n = json_integer_value(json_object_get(t->tag, member));
    return n > 0 ? (uint64_t)n : 0;
}

static bool tag_is(const struct target *t, const char *member)
{
    return json_is_true(json_object_get(t->tag, member));
}

/* ---- opening ---- */

static void target_init(struct target *t, const char *key)
{
    *t = (struct target){.key = key};
    snprintf(t->writers_key, sizeof t->writers_key, "%s.writers", key);
}

static void name_read(struct target *t)
{
    char name[192];
    size_t n = sizeof name;
    char *slash = strrchr(t->x.name, '/');
    if (slash && t->x.cluster->lib->rbd_get_name(t->x.rbd, name, &n) >= 0)
        snprintf(slash + 1, sizeof t->x.name - (size_t)(slash + 1 - t->x.name), "%s", name);
}

/* By its id; to be closed also after an error. */
static int target_open(struct target *t, const struct cluster *c, const char *const image[3], const char *key,
                       struct err *e)
{
    target_init(t, key);
    int rc = ceph_image_open(&t->x, c, image[0], image[1], image[2], true, e);
    if (rc < 0)
        return rc;
    name_read(t);
    return tag_read(t, e);
}

static void target_close(struct target *t)
{
    json_decref(t->tag);
    ceph_image_close(&t->x);
    t->tag = NULL;
}

static int not_a_target(const struct target *t, struct err *e)
{
    return err_plain(e, ERR_NOT_FOUND, ENOENT, "image %s is no longer a restore target", t->x.name);
}

static int image_size(const struct target *t, uint64_t *ret, struct err *e)
{
    const int rc = t->x.cluster->lib->rbd_get_size(t->x.rbd, ret);
    return rc < 0 ? ceph_error(e, rc, "cannot read the size of image %s", t->x.name) : 0;
}

static int resize(const struct target *t, uint64_t size, struct err *e)
{
    const int rc = t->x.cluster->lib->rbd_resize(t->x.rbd, size);
    return rc < 0 ? ceph_error(e, rc, "cannot set the size of image %s to %" PRIu64 " bytes", t->x.name, size) : 0;
}

/* ---- the fence ---- */

struct clients {
    bool ours, others;
    char who[128]; /* the address of another one */
};

/* `writers`: numbers with blanks around them. */
static int clients_read(const struct target *t, const char *writers, struct clients *ret, struct err *e)
{
    const struct ceph_lib *lib = t->x.cluster->lib;
    struct rbd_image_watcher w[64];
    char number[32];
    size_t n = sizeof w / sizeof *w;
    const uint64_t me = lib->rados_get_instance_id(t->x.cluster->rados);
    *ret = (struct clients){.ours = false};
    const int rc = lib->rbd_watchers_list(t->x.rbd, w, &n);
    if (rc == -ERANGE) {
        ret->others = true;
        snprintf(ret->who, sizeof ret->who, "%zu clients", n);
        return 0;
    }
    if (rc < 0)
        return ceph_error(e, rc, "cannot list the clients of image %s", t->x.name);
    for (size_t i = 0; i < n; i++) {
        if ((uint64_t)w[i].id == me)
            continue;
        snprintf(number, sizeof number, " %" PRId64 " ", w[i].id);
        if (t->staged || strstr(writers, number)) {
            ret->ours = true;
        } else {
            ret->others = true;
            snprintf(ret->who, sizeof ret->who, "client.%" PRId64 " at %.80s", w[i].id, w[i].addr);
        }
    }
    lib->rbd_watchers_list_cleanup(w, n);
    return 0;
}

static int in_use(const struct target *t, const struct clients *c, struct err *e)
{
    if (!c->others) {
        err_plain(e, ERR_BUSY, EBUSY, "an earlier writer of image %s has not ended yet", t->x.name);
        return err_hint(e, "Ceph drops a client that has died after 30 s; see rbd status");
    }
    err_plain(e, ERR_TARGET, EBUSY, "restore target %s is in use by %s", t->x.name, c->who);
    return err_hint(e, "stop its user (rbd status shows the clients; one that has died is dropped after 30 s)");
}

static int is_locked(const struct target *t, int rc, struct err *e)
{
    err_plain(e, ERR_TARGET, EBUSY, "restore target %s cannot be locked: %s", t->x.name, strerror(-rc));
    return err_hint(e, "rbd lock ls %s shows whether it was locked by somebody else", t->x.name);
}

/* Until nobody else has the image open, and `note` (NULL: nothing) was written to the list of writers, which the lock
 * of another client may prevent. `writers`: ours, until now. */
static int wait_for_others(const struct target *t, const char *writers, const char *note, struct err *e)
{
    for (unsigned waited = 0;; waited += POLL_MS) {
        struct clients c;
        const int locked = note ? t->x.cluster->lib->rbd_metadata_set(t->x.rbd, t->writers_key, note) : 0;
        if (locked < 0 && locked != -EROFS && locked != -EBUSY)
            return ceph_error(e, locked, "cannot set metadata of image %s", t->x.name);
        if (locked >= 0)
            note = NULL;
        int rc = clients_read(t, writers, &c, e);
        if (rc < 0 || (!note && !c.ours && !c.others))
            return rc;
        if (waited >= (c.ours && !c.others ? OURS_MS : OTHERS_MS))
            return c.ours || c.others ? in_use(t, &c, e) : is_locked(t, locked, e);
        usleep(POLL_MS * 1000);
    }
}

/* Held until the image is closed: other clients can open the image, and not write to it. */
static int lock(const struct target *t, struct err *e)
{
    const struct ceph_lib *lib = t->x.cluster->lib;
    uint64_t features = 0;
    int rc = lib->rbd_get_features(t->x.rbd, &features);
    if (rc < 0)
        return ceph_error(e, rc, "cannot read the features of image %s", t->x.name);
    if (!(features & RBD_FEATURE_EXCLUSIVE_LOCK)) {
        if (t->staged)
            return 0;
        err_plain(e, ERR_TARGET, ENOTSUP,
                  "restore target %s does not have the feature exclusive-lock: others could write to it meanwhile",
                  t->x.name);
        return err_hint(e, "rbd feature enable %s exclusive-lock; or restore to a new image", t->x.name);
    }
    rc = lib->rbd_lock_acquire(t->x.rbd, RBD_LOCK_EXCLUSIVE);
    return rc < 0 ? is_locked(t, rc, e) : 0;
}

/* Nobody else has the image open, and nobody else can write to it from now on. The writers before this one were ours.
 */
static int enter(struct target *t, bool locked, struct err *e)
{
    char writers[WRITERS_MAX], me[32];
    CLEANUP_FREE char *before = NULL;
    const struct cluster *c = t->x.cluster;
    snprintf(me, sizeof me, " %" PRIu64 " ", c->lib->rados_get_instance_id(c->rados));
    int rc = meta_get(&t->x, t->writers_key, &before, e);
    if (rc < 0 && rc != -ENOENT)
        return rc;
    snprintf(writers, sizeof writers, "%s%.*s", me, (int)(WRITERS_MAX - sizeof me), before ? before : "");
    rc = wait_for_others(t, before ? before : "", writers, e);
    if (rc == 0 && locked)
        rc = lock(t, e);
    /* One that came between. */
    if (rc == 0 && locked)
        rc = wait_for_others(t, before ? before : "", NULL, e);
    return rc < 0 ? rc : meta_set(&t->x, t->writers_key, me, e);
}

/* Nothing is left of a target: its tag last. */
static int forget(const struct target *t, struct err *e)
{
    int rc = ceph_meta_drop(&t->x, t->writers_key, e);
    return rc < 0 ? rc : ceph_meta_drop(&t->x, t->key, e);
}

/* ---- making ---- */

static int create(const struct cluster *c, rados_ioctx_t io, const char *pool, const char *name, struct err *e)
{
    rbd_image_options_t options;
    c->lib->rbd_image_options_create(&options);
    const int rc = c->lib->rbd_create4(io, name, 0, options);
    c->lib->rbd_image_options_destroy(options);
    if (rc == -ENOENT)
        return err_plain(e, ERR_NOT_FOUND, ENOENT, "cannot make an image in %s: there is no such namespace", pool);
    return rc < 0 && rc != -EEXIST ? ceph_error(e, rc, "cannot make image %s in pool %s", name, pool) : 0;
}

/* By its name. To be closed also after an error. -ENOENT without a message. */
static int staged_open(struct target *t, const struct cluster *c, const char *const image[3], const char *key,
                       struct err *e)
{
    target_init(t, key);
    t->staged = true;
    t->x.cluster = c;
    snprintf(t->x.name, sizeof t->x.name, "%s/%s%s%s", image[0], image[1], *image[1] ? "/" : "", image[2]);
    int rc = cluster_pool(c, image[0], image[1], &t->x.io, e);
    if (rc < 0)
        return rc;
    rc = c->lib->rbd_open(t->x.io, image[2], &t->x.rbd, NULL);
    if (rc < 0) {
        t->x.rbd = NULL;
        return rc == -ENOENT ? rc : ceph_error(e, rc, "cannot open image %s", t->x.name);
    }
    return tag_read(t, e);
}

/* One without a tag has no size yet. */
static int check_staged(const struct target *t, struct err *e)
{
    uint64_t size = 0;
    int rc = t->tag ? 0 : image_size(t, &size, e);
    return rc == 0 && size ? err_set(e, ERR_PERMISSION, EPERM,
                                     "image %s has a name of ours, and is not the restore target %s", t->x.name, t->key)
                           : rc;
}

static int tag_complete(struct target *t, json_t *tag, struct err *e)
{
    char id[128];
    int rc = t->x.cluster->lib->rbd_get_id(t->x.rbd, id, sizeof id);
    if (rc < 0)
        return ceph_error(e, rc, "cannot read the id of image %s", t->x.name);
    const json_int_t pool = (json_int_t)t->x.cluster->lib->rados_ioctx_get_id(t->x.io);
    if (json_object_set_new(tag, "image", json_string(id)) < 0 ||
        json_object_set_new(tag, "pool_id", json_integer(pool)) < 0)
        return err_nomem(e);
    t->tag = json_incref(tag);
    return ceph_tag_set(&t->x, t->key, tag, e);
}

int target_make(const struct cluster *c, const char *const image[3], const char *key, json_t *tag, struct err *e)
{
    struct target t;
    rados_ioctx_t io;
    uint64_t size = 0;
    int rc = cluster_pool(c, image[0], image[1], &io, e);
    if (rc < 0)
        return rc;
    rc = create(c, io, image[0], image[2], e);
    c->lib->rados_ioctx_destroy(io);
    if (rc < 0)
        return rc;
    crash_point("rbd-target-created");
    rc = staged_open(&t, c, image, key, e);
    if (rc == 0)
        rc = check_staged(&t, e);
    if (rc == 0 && !t.tag)
        rc = tag_complete(&t, tag, e);
    crash_point("rbd-target-tagged");
    if (rc == 0)
        rc = image_size(&t, &size, e);
    if (rc == 0 && size != tag_number(&t, "size"))
        rc = resize(&t, tag_number(&t, "size"), e);
    crash_point("rbd-target-made");
    target_close(&t);
    return rc == -ENOENT && e && !e->cls
               ? err_set(e, ERR_SOURCE, ENOENT, "image %s disappeared after its creation", image[2])
               : rc;
}

int target_claim(const struct cluster *c, const char *const image[3], const char *key, json_t *tag, struct err *e)
{
    struct target t;
    int rc = target_open(&t, c, image, key, e);
    if (rc == 0 && !t.tag) {
        rc = enter(&t, true, e);
        if (rc == 0)
            rc = ceph_tag_set(&t.x, key, tag, e);
        else
            (void)ceph_meta_drop(&t.x, t.writers_key, NULL);
        crash_point("rbd-target-claimed");
    }
    target_close(&t);
    return rc;
}

/* ---- filling ---- */

/* What it was before, once. */
static int keep_before(struct target *t, const char *snap, struct err *e)
{
    uint64_t id = 0;
    if (!tag_is(t, "in_place") || tag_number(t, "snap"))
        return 0;
    int rc = ceph_snap_take(&t->x, snap, "rbd-target-snapped", &id, e);
    if (rc == 0)
        rc = tag_note(t, "snap", json_integer((json_int_t)id), e);
    crash_point("rbd-target-kept");
    return rc;
}

static int fill_begin(struct target *t, const char *snap, struct err *e)
{
    uint64_t size = 0;
    if (!t->tag)
        return not_a_target(t, e);
    t->staged = !tag_is(t, "in_place");
    int rc = enter(t, true, e);
    if (rc == 0) /* by the lock nobody has changed it since */
        rc = tag_read(t, e);
    if (rc == 0 && (!t->tag || tag_is(t, "committed"))) {
        (void)ceph_meta_drop(&t->x, t->writers_key, NULL);
        return not_a_target(t, e);
    }
    if (rc == 0)
        rc = keep_before(t, snap, e);
    if (rc == 0)
        rc = image_size(t, &size, e);
    if (rc == 0 && size < tag_number(t, "size")) {
        rc = resize(t, tag_number(t, "size"), e);
        crash_point("rbd-target-grown");
    }
    return rc;
}

int target_fill(const struct cluster *c, const char *const image[3], const char *key, const char *snap, int fd,
                void (*ready)(void), struct err *e)
{
    struct target t;
    int rc = target_open(&t, c, image, key, e);
    if (rc == 0)
        rc = fill_begin(&t, snap, e);
    if (rc == 0) {
        ready();
        rc = target_serve(&t.x, tag_number(&t, "size"), fd, e);
    }
    target_close(&t);
    return rc;
}

/* ---- into place ---- */

static int note_done(struct target *t, const char *done, struct err *e)
{
    int rc = meta_set(&t->x, done, t->key, e);
    crash_point("rbd-target-noted");
    return rc < 0 ? rc : forget(t, e);
}

static int rename_to(const struct cluster *c, const char *const image[3], const char *key, const char *name,
                     struct err *e)
{
    struct target t;
    char from[256];
    size_t n = sizeof from;
    uint64_t size = 0;
    int rc = target_open(&t, c, image, key, e);
    if (rc == 0 && (!t.tag || tag_is(&t, "in_place")))
        rc = not_a_target(&t, e);
    t.staged = true;
    if (rc == 0 && (rc = c->lib->rbd_get_name(t.x.rbd, from, &n)) < 0)
        ceph_error(e, rc, "cannot read the name of image %s", t.x.name);
    const bool there = rc >= 0 && strcmp(from, name) == 0;
    if (rc >= 0 && !there)
        rc = enter(&t, false, e);
    if (rc >= 0 && !there)
        rc = image_size(&t, &size, e);
    if (rc >= 0 && !there && size < tag_number(&t, "size"))
        rc = err_set(e, ERR_TARGET, 0, "image %s has %" PRIu64 " bytes, not %" PRIu64, t.x.name, size,
                     tag_number(&t, "size"));
    target_close(&t);
    if (rc < 0 || there)
        return rc < 0 ? rc : 0;
    rados_ioctx_t io;
    if ((rc = cluster_pool(c, image[0], image[1], &io, e)) < 0)
        return rc;
    rc = c->lib->rbd_rename(io, from, name);
    c->lib->rados_ioctx_destroy(io);
    if (rc == -EEXIST)
        return err_plain(e, ERR_TARGET, EEXIST, "another image has got the name %s/%s meanwhile", image[0], name);
    crash_point("rbd-target-renamed");
    return rc < 0 ? ceph_error(e, rc, "cannot rename image %s/%s to %s", image[0], from, name) : 0;
}

int target_place(const struct cluster *c, const char *const image[3], const char *key, const char *name,
                 const char *done, struct err *e)
{
    struct target t;
    int rc = rename_to(c, image, key, name, e);
    if (rc < 0)
        return rc;
    rc = target_open(&t, c, image, key, e);
    if (rc == 0)
        rc = note_done(&t, done, e);
    target_close(&t);
    return rc;
}

int target_settle(const struct cluster *c, const char *const image[3], const char *key, const char *snap,
                  const char *done, struct err *e)
{
    struct target t;
    uint64_t size = 0;
    int rc = target_open(&t, c, image, key, e);
    if (rc == 0 && !t.tag)
        rc = not_a_target(&t, e);
    if (rc == 0 && !tag_is(&t, "committed")) {
        rc = enter(&t, true, e);
        if (rc == 0)
            rc = image_size(&t, &size, e);
        if (rc == 0 && size > tag_number(&t, "size")) {
            rc = resize(&t, tag_number(&t, "size"), e);
            crash_point("rbd-target-shrunk");
        }
        if (rc == 0)
            rc = tag_note(&t, "committed", json_true(), e);
        crash_point("rbd-target-committed");
    }
    if (rc == 0)
        rc = ceph_snap_drop(&t.x, snap, e);
    crash_point("rbd-target-dropped");
    if (rc == 0)
        rc = note_done(&t, done, e);
    target_close(&t);
    return rc;
}

/* ---- taking back ---- */

/* Somebody uses the image since the restore has failed: what he writes is not to be lost. */
static int leave(const struct target *t, const char *snap, struct err *e)
{
    err_plain(e, ERR_BUSY, EBUSY,
              "image %s was in use after the restore into it had ended: it is left as it is, incomplete", t->x.name);
    return err_hint(e,
                    "rbd snap rollback %.100s@%.60s makes it what it was before; then, or to keep what it has, rbd "
                    "snap rm the same, and rbd image-meta rm %.100s %.60s",
                    t->x.name, snap, t->x.name, t->key);
}

int target_revert(const struct cluster *c, const char *const image[3], const char *key, const char *snap, struct err *e)
{
    struct target t;
    struct err why = ERR_INIT;
    int rc = target_open(&t, c, image, key, e);
    if (rc == 0 && !t.tag) { /* by the administrator's decision */
        rc = ceph_meta_drop(&t.x, t.writers_key, e);
    } else if (rc == 0) {
        rc = tag_is(&t, "used") ? leave(&t, snap, e) : enter(&t, true, &why);
        if (why.cls && e)
            *e = why;
        if (why.cls == ERR_TARGET && why.sys == EBUSY && tag_number(&t, "snap")) {
            rc = tag_note(&t, "used", json_true(), e);
            if (rc == 0)
                rc = leave(&t, snap, e);
        }
        if (rc == 0)
            rc = tag_read(&t, e);
        if (rc == 0 && tag_number(&t, "snap")) {
            rc = c->lib->rbd_snap_rollback(t.x.rbd, snap);
            if (rc < 0)
                ceph_error(e, rc, "cannot roll image %s back to what it was before the restore", t.x.name);
            crash_point("rbd-target-reverted");
            if (rc >= 0)
                rc = tag_note(&t, "snap", json_integer(0), e);
        }
        if (rc == 0)
            rc = ceph_snap_drop(&t.x, snap, e);
        crash_point("rbd-target-dropped");
        if (rc == 0)
            rc = forget(&t, e);
    }
    target_close(&t);
    return rc;
}

/* In a full cluster librbd may say that there is no such image, when it could not make its trash. */
static int removed(const struct cluster *c, const char *const image[3], const char *key, struct err *e)
{
    struct target t;
    const int rc = staged_open(&t, c, image, key, e);
    target_close(&t);
    if (rc == -ENOENT)
        return 0;
    if (rc < 0)
        return rc;
    err_plain(e, ERR_NO_SPACE, ENOSPC, "Ceph does not remove image %s/%s: is the cluster full?", image[0], image[2]);
    return err_hint(e, "see ceph df and ceph health detail");
}

int target_discard(const struct cluster *c, const char *const image[3], const char *key, struct err *e)
{
    struct target t;
    rados_ioctx_t io;
    int rc = staged_open(&t, c, image, key, e);
    const bool there = rc == 0;
    if (there)
        rc = check_staged(&t, e);
    if (there && rc == 0)
        rc = wait_for_others(&t, "", NULL, e);
    target_close(&t);
    if (rc < 0 && rc != -ENOENT)
        return rc;
    /* Also what an interrupted removal has left, which cannot be opened. */
    if ((rc = cluster_pool(c, image[0], image[1], &io, e)) < 0)
        return rc;
    rc = c->lib->rbd_remove(io, image[2]);
    c->lib->rados_ioctx_destroy(io);
    crash_point("rbd-target-discarded");
    if (rc == -ENOTEMPTY) {
        err_plain(e, ERR_BUSY, ENOTEMPTY, "image %s/%s has snapshots of others: it is not removed", image[0], image[2]);
        return err_hint(e, "rbd snap ls shows them");
    }
    if (rc == -ENOENT && there)
        return removed(c, image, key, e);
    return rc < 0 && rc != -ENOENT ? ceph_error(e, rc, "cannot remove image %s/%s", image[0], image[2]) : 0;
}
