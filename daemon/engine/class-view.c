/* SPDX-License-Identifier: GPL-2.0-or-later */
/* class-view.c - what drivers and movers get of a class and of a repository */
#include "base/password.h"
#include "daemon/engine/engine-impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char **texts_of(const json_t *list)
{
    const size_t n = json_array_size(list);
    const char **ret = calloc(n + 1, sizeof *ret);
    for (size_t i = 0, k = 0; ret && i < n; i++)
        if (json_is_string(json_array_get(list, i)))
            ret[k++] = json_string_value(json_array_get(list, i));
    return ret;
}

static const char *text_or_null(const char *s)
{
    return s[0] ? s : NULL;
}

int class_view(struct class_view *v, const json_t *doc, struct err *e)
{
    memset(v, 0, sizeof *v);
    if (!jstr(doc, "driver")[0])
        return err_set(e, ERR_GENERIC, EINVAL, "a record names no storage class");
    if (!(v->match = texts_of(jarr(doc, "match"))) || !(v->peers = texts_of(jarr(doc, "peers")))) {
        class_view_clear(v);
        return err_nomem(e);
    }
    v->c.name = jstr(doc, "name");
    v->c.driver = jstr(doc, "driver");
    v->c.match = v->match;
    v->c.peers = v->peers[0] ? v->peers : NULL;
    v->c.target = jstr(doc, "target");
    v->c.node = jstr(doc, "node");
    v->c.plugin = text_or_null(jstr(doc, "plugin"));
    v->c.plugin_user = text_or_null(jstr(doc, "plugin_user"));
    v->c.accept_inconsistent = jbool(doc, "accept_inconsistent");
    v->c.cow_percent = (unsigned)jint(doc, "cow_percent");
    v->c.overlay_hook = text_or_null(jstr(doc, "overlay_hook"));
    v->c.options = jobj(doc, "options");
    return 0;
}

void class_view_clear(struct class_view *v)
{
    free(v->match);
    free(v->peers);
    v->match = v->peers = NULL;
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
