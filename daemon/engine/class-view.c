/* SPDX-License-Identifier: GPL-2.0-or-later */
/* class-view.c - what drivers and movers get of a class and of a repository */
#include "base/cleanup.h"
#include "base/password.h"
#include "base/s3-keys.h"
#include "daemon/engine/engine-impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define AUTHORITIES_MAX (1 << 20)

const char **texts_of(const struct strs *list)
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
                                 .point_in_time = k->point_in_time,
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

static int not_configured(const char *name, struct err *e)
{
    err_set(e, ERR_USAGE, 0, "there is no [repository \"%s\"] in the configuration", name);
    return err_hint(e, "add it, or change repository = in the class, job or volume, then `snapferry reload`");
}

static int password_of(const struct cfg_repository *r, char **ret, struct err *e)
{
    struct stat st;
    if (!r->password_file[0])
        return err_set(e, ERR_USAGE, 0, "%s: repository \"%s\" has no password-file", r->origin, r->name);
    /* Reading a FIFO or a terminal would hold up the loop. */
    if (strncmp(r->password_file, "cred:", 5) && stat(r->password_file, &st) == 0 && !S_ISREG(st.st_mode))
        return err_set(e, ERR_USAGE, 0, "the password file %s is not a regular file", r->password_file);
    return password_read(ret, r->password_file, r->insecure_password_file, e);
}

int authorities_read(const char *file, char **ret, struct err *e)
{
    struct stat st;
    CLEANUP_CLOSE int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_set(e, ERR_USAGE, errno, "cannot read ca-file %s", file);
    if (!S_ISREG(st.st_mode) || st.st_size > AUTHORITIES_MAX)
        return err_set(e, ERR_USAGE, 0, "ca-file %s is no regular file of at most 1 MiB", file);
    CLEANUP_FREE char *text = malloc((size_t)st.st_size + 1);
    if (!text)
        return err_nomem(e);
    const ssize_t n = read(fd, text, (size_t)st.st_size);
    if (n < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot read ca-file %s", file);
    text[n] = '\0';
    if (!strstr(text, "-----BEGIN "))
        return err_set(e, ERR_USAGE, 0, "ca-file %s has no certificate in the format PEM", file);
    *ret = take_ptr(&text);
    return 0;
}

int place_credentials(const struct cfg_repository *r, char **ret, struct err *e)
{
    struct s3_keys k;
    if (!r->credentials[0])
        return err_set(e, ERR_USAGE, 0, "%s: \"%s\" has no credentials", r->origin, r->name);
    int rc = secret_read(ret, "credentials", r->credentials, e);
    if (rc < 0)
        return rc;
    rc = s3_keys_parse(&k, *ret, r->credentials, e);
    s3_keys_wipe(&k);
    if (rc < 0) {
        password_free(*ret);
        *ret = NULL;
    }
    return rc;
}

int place_secrets(const struct cfg_repository *r, struct repository_secrets *ret, struct err *e)
{
    const bool remote = !strcmp(r->type, "s3");
    int rc = remote ? place_credentials(r, &ret->credentials, e) : 0;
    if (rc >= 0 && remote && r->ca_file[0])
        rc = authorities_read(r->ca_file, &ret->authorities, e);
    return rc;
}

int repository_secrets(const struct cfg *c, const char *name, struct repository_secrets *ret, struct err *e)
{
    const struct cfg_repository *r = cfg_repository(c, name);
    *ret = (struct repository_secrets){.password = NULL};
    if (!r)
        return not_configured(name, e);
    int rc = password_of(r, &ret->password, e);
    if (rc >= 0)
        rc = place_secrets(r, ret, e);
    if (rc < 0)
        repository_secrets_clear(ret);
    return rc;
}

void repository_secrets_clear(struct repository_secrets *s)
{
    password_free(s->password);
    password_free(s->credentials);
    free(s->authorities);
    *s = (struct repository_secrets){.password = NULL};
}
