/* SPDX-License-Identifier: GPL-2.0-or-later */
/* restore-target.c - the storage class of what is restored into */
#include "base/cleanup.h"
#include "daemon/decide/decide.h"
#include "daemon/records/driver-kind.h"

#include <errno.h>
#include <string.h>

/* The class that knows how to reach the cluster of an image that no class selects: the volume's own, or the only one of
 * this driver. */
static const struct cfg_class *class_with_driver(const struct cfg *c, const char *own, const char *driver)
{
    const struct cfg_class *k = cfg_class(c, own), *found = NULL;
    if (k && !strcmp(k->driver, driver))
        return k;
    for (unsigned i = 0; (k = cfg_class_at(c, i)); i++) {
        if (strcmp(k->driver, driver) != 0)
            continue;
        if (found)
            return NULL;
        found = k;
    }
    return found;
}

const struct class_desc *class_of_target(const struct cfg *c, const struct target_named *t)
{
    const bool guessed = driver_kind_of(t->driver)->has_cluster && !cfg_class_of(c, t->subject);
    const struct cfg_class *k = guessed ? class_with_driver(c, t->own, t->driver) : NULL;
    struct cfg_policy p = {.effective = NULL};
    if (!k || cfg_policy_of_class(c, k->name, &p, NULL) < 0)
        return class_for_path(c, t->subject, t->driver);
    const struct class_desc *ret = class_from_cfg(c, k, &p);
    cfg_policy_clear(&p);
    return ret;
}

int target_refused(const struct cfg *c, const struct target_named *t, const struct operation *of, struct err *e)
{
    if (!driver_kind_of(t->driver)->has_cluster)
        return 0;
    CLEANUP(class_desc_unrefp) const struct class_desc *k = class_of_target(c, t);
    if (!strcmp(k->name, CLASS_OF_TARGET)) {
        err_set(e, ERR_USAGE, EINVAL, "%s is neither an absolute path nor an image of a storage class with driver %s",
                t->subject.name, t->driver);
        return err_hint(e, "if several classes have this driver, the one whose `match` selects the image counts");
    }
    if (of->policy->mover[0])
        return err_set(e, ERR_USAGE, ENOTSUP,
                       "%s was stored by a mover plugin, which restores it to a file or a device, not to an image",
                       of->volume->name);
    return 0;
}

int target_found_refused(const struct request_args *req, const struct target_found *found, struct err *e)
{
    const bool keeps = req->differential || request_is_ranged(req);
    if (!found->exists)
        return 0;
    if (req->only_new)
        return err_plain(e, ERR_TARGET, EEXIST, "%s exists, and --new was asked for", req->target);
    if (found->block || req->overwrite || keeps) /* a driver refuses a device that is in use */
        return 0;
    err_plain(e, ERR_TARGET, EEXIST, "%s exists", req->target);
    return err_hint(e, "--overwrite replaces it when the restore is complete, another name leaves it alone");
}
