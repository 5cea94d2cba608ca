/* SPDX-License-Identifier: GPL-2.0-or-later */
/* class-view.c - what drivers and movers get of a class and of a repository */
#include "base/password.h"
#include "daemon/engine/engine-impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* With a NULL behind the last one. */
static const char **texts_of(const struct strs *list)
{
    const char **ret = calloc(list->n + 1, sizeof *ret);
    for (unsigned i = 0; ret && i < list->n; i++)
        ret[i] = list->v[i];
    return ret;
}

static const char *text_or_null(const char *s)
{
    return s[0] ? s : NULL;
}

int class_view(struct class_view *v, const json_t *doc, struct err *e)
{
    memset(v, 0, sizeof *v);
    const struct class_desc *k = v->desc = class_desc_from_json(doc);
    if (!k->driver[0]) {
        class_view_clear(v);
        return err_set(e, ERR_GENERIC, EINVAL, "a record names no storage class");
    }
    if (!(v->match = texts_of(&k->match)) || !(v->peers = texts_of(&k->peers))) {
        class_view_clear(v);
        return err_nomem(e);
    }
    v->c = (struct driver_class){.name = k->name,
                                 .driver = k->driver,
                                 .match = v->match,
                                 .peers = k->peers.n ? v->peers : NULL,
                                 .target = k->target,
                                 .node = k->node,
                                 .plugin = text_or_null(k->plugin),
                                 .plugin_user = text_or_null(k->plugin_user),
                                 .accept_inconsistent = k->accept_inconsistent,
                                 .cow_percent = (unsigned)k->cow_percent,
                                 .overlay_hook = text_or_null(k->overlay_hook),
                                 .options = k->options};
    return 0;
}

void class_view_clear(struct class_view *v)
{
    free(v->match);
    free(v->peers);
    class_desc_unref(v->desc);
    *v = (struct class_view){.match = NULL};
}

int repository_password(const struct cfg *c, const char *name, char **ret, struct err *e)
{
    const struct cfg_repository *r = cfg_repository(c, name);
    struct stat st;
    if (!r) {
        err_set(e, ERR_USAGE, 0, "there is no [repository \"%s\"] in the configuration", name);
        return err_hint(e, "add it, or change repository = in the class, job or volume, then `snapferry reload`");
    }
    if (!r->password_file[0])
        return err_set(e, ERR_USAGE, 0, "%s: repository \"%s\" has no password-file", r->origin, name);
    /* Reading a FIFO or a terminal would hold up the loop. */
    if (strncmp(r->password_file, "cred:", 5) && stat(r->password_file, &st) == 0 && !S_ISREG(st.st_mode))
        return err_set(e, ERR_USAGE, 0, "the password file %s is not a regular file", r->password_file);
    return password_read(ret, r->password_file, r->insecure_password_file, e);
}
