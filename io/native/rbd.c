/* SPDX-License-Identifier: GPL-2.0-or-later */
/* rbd.c - driver rbd: images of Ceph (rbd.h) */
#include "io/native/rbd.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- classes ---- */

static int check_word(const struct driver_class *c, const char *word, struct err *e)
{
    if (rbd_is_label(word) || rbd_name_check(word, NULL) == 0)
        return 0;
    err_set(e, ERR_USAGE, EINVAL,
            "storage class \"%s\": pattern \"%s\" is not of the form POOL/IMAGE or POOL/NAMESPACE/IMAGE", c->name,
            word);
    return err_hint(e, "or pool:POOL, and tag:NAME for images with NAME in the metadata " RBD_WORDS
                       ", tag:KEY=VALUE for any metadata");
}

static bool rbd_takes_option(const struct driver_class *c, const char *key)
{
    (void)c;
    return strcmp(key, "ceph-config") == 0 || strcmp(key, "ceph-user") == 0;
}

static int check_options(const struct driver_class *c, struct err *e)
{
    const char *key;
    json_t *value;
    json_object_foreach(c->options, key, value)
    {
        const bool config = strcmp(key, "ceph-config") == 0;
        const char *text = json_string_value(value);
        if (!rbd_takes_option(c, key))
            return err_set(e, ERR_USAGE, EINVAL,
                           "storage class \"%s\": driver rbd has no option backup-option.%s, but ceph-config and "
                           "ceph-user",
                           c->name, key);
        if (config && text && text[0] != '/')
            return err_set(e, ERR_USAGE, EINVAL,
                           "storage class \"%s\": backup-option.ceph-config is an absolute path, not \"%s\"", c->name,
                           text);
        if (!config && text && strncmp(text, "client.", 7) == 0)
            return err_set(e, ERR_USAGE, EINVAL,
                           "storage class \"%s\": backup-option.ceph-user is %s, without \"client.\"", c->name,
                           text + 7);
    }
    return 0;
}

static int rbd_abilities(const struct driver_class *c, unsigned *ret, struct err *e)
{
    int rc = 0;
    *ret = 0;
    for (size_t i = 0; rc == 0 && c->match && c->match[i]; i++)
        rc = check_word(c, c->match[i], e);
    if (rc == 0)
        rc = check_options(c, e);
    if (rc == 0 && (rc = rbd_installed(e)) < 0)
        err_wrap(e, "storage class \"%s\"", c->name);
    if (rc == 0)
        *ret = DRIVER_SNAPSHOT | DRIVER_NATIVE_RO | DRIVER_CHANGED | DRIVER_TARGET | DRIVER_SOCKET;
    return rc;
}

/* ---- volumes ---- */

static int rbd_resolve(const struct driver_class *c, const char *name, struct volume *ret, struct err *e)
{
    CLEANUP(rbd_report_free) struct rbd_report r = {.doc = NULL};
    memset(ret, 0, sizeof *ret);
    int rc = rbd_report_of(&r, c, name, e);
    if (rc == 0)
        rbd_describe(&r, &r.image[0], ret);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct volume *)a)->name, ((const struct volume *)b)->name);
}

static bool selects_labels(const struct driver_class *c)
{
    bool any = false;
    for (size_t i = 0; c->match && c->match[i]; i++)
        any = any || rbd_is_label(c->match[i]);
    return any;
}

/* A name with a character that no list of names can have is none. */
static bool has_odd_name(const struct volume *v)
{
    for (const char *p = v->name; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f || *p == '@')
            return true;
    return false;
}

static int rbd_volumes(const struct driver_class *c, volume_fn *fn, void *arg, struct err *e)
{
    CLEANUP(rbd_report_free) struct rbd_report r = {.doc = NULL};
    CLEANUP(rbd_patterns_free) char **patterns = NULL;
    CLEANUP_FREE struct volume *v = NULL;
    const bool labels = selects_labels(c);
    size_t n = 0;
    int rc = rbd_patterns(c, false, &patterns, e);
    if (rc < 0 || !patterns[0])
        return rc;
    rc = rbd_report_read(&r, c, (const char *const *)patterns, e);
    if (rc == 0 && !(v = calloc(r.n + 1, sizeof *v)))
        rc = err_nomem(e);
    for (size_t i = 0; rc == 0 && i < r.n; i++) {
        rbd_describe(&r, &r.image[i], &v[n]);
        if (has_odd_name(&v[n]))
            log_warning("class \"%s\": ignored: an image with the id %s has a name that cannot be written", c->name,
                        r.image[i].id);
        else if (!rbd_is_staged(r.image[i].name) && (labels || rbd_is_matched(c, &v[n])) && v[n].size)
            n++;
    }
    if (rc == 0 && n)
        qsort(v, n, sizeof *v, by_name);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = fn(&v[i], arg);
    return rc;
}

const struct driver driver_rbd = {
    .name = "rbd",
    .text = "images of Ceph (RBD); a native snapshot is a snapshot of the image",
    .traits = DRIVER_CLUSTER,
    .abilities = rbd_abilities,
    .takes_option = rbd_takes_option,
    .volumes = rbd_volumes,
    .resolve = rbd_resolve,
    .snapshot = rbd_snapshot,
    .group_domain = rbd_group_domain,
    .group = rbd_group,
    .find = rbd_native_find,
    .list = rbd_native_list,
    .remove = rbd_native_remove,
    .untagged = rbd_native_untagged,
    .expose = rbd_expose,
    .unexpose = rbd_unexpose,
    .exposures = rbd_exposures,
    .open = rbd_open,
    .changed = rbd_changed,
    .target = rbd_target,
    .target_open = rbd_target_open,
    .target_commit = rbd_target_commit,
    .target_abort = rbd_target_abort,
    .target_kept = rbd_target_kept,
    .target_from_native = rbd_target_from_native,
};
