/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "proc/plugin-run.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "proc/service.h"

#include <errno.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define NAME_TEXT 64

/* ---- files ---- */

static void name_of(char out[NAME_TEXT], const char *operation, enum plugin_verb v, const char *separator)
{
    uint8_t h[SHA256_DIGEST_LENGTH];
    char hash[33];
    SHA256((const uint8_t *)operation, strlen(operation), h);
    hex_encode(hash, h, 16);
    const char *verb = plugin_verb_at(v)->name;
    if (*separator == '.')
        snprintf(out, NAME_TEXT, "%s.%s", hash, verb);
    else
        snprintf(out, NAME_TEXT, "%s-%s", verb, hash);
}

static void files_of(char out[4200], char name[NAME_TEXT], const char *dir, const char *operation, enum plugin_verb v)
{
    snprintf(out, 4200, "%s/plugins", dir);
    name_of(name, operation, v, ".");
}

void plugin_run_path(char *out, size_t cap, const char *dir, const char *operation, enum plugin_verb v,
                     const char *suffix)
{
    char in[4200], name[NAME_TEXT];
    files_of(in, name, dir, operation, v);
    service_path(out, cap, in, name, suffix);
}

void plugin_run_forget(const char *dir, const char *operation, enum plugin_verb v)
{
    char in[4200], name[NAME_TEXT];
    files_of(in, name, dir, operation, v);
    service_forget(in, name);
}

/* ---- steps ---- */

struct launch {
    struct plugin_program p;
    enum plugin_verb verb;
    char dir[4200], name[NAME_TEXT], unit[128], label[160];
    const char *argv[3];
    struct service s; /* borrows from here */
};

static int launch_from(struct launch *l, const json_t *in, struct err *e)
{
    const char *dir = json_string_value(json_object_get(in, "dir")),
               *operation = json_string_value(json_object_get(in, "operation"));
    char name[NAME_TEXT];
    memset(l, 0, sizeof *l);
    l->p.name = json_string_value(json_object_get(in, "name"));
    l->p.path = json_string_value(json_object_get(in, "program"));
    l->p.user = json_string_value(json_object_get(in, "user"));
    l->verb = (enum plugin_verb)json_integer_value(json_object_get(in, "verb"));
    if (!dir || !operation || !l->p.name || !l->p.path || (l->verb != PV_RUN && l->verb != PV_WATCH))
        return err_set(e, ERR_GENERIC, EINVAL, "incomplete arguments of a plugin step");
    files_of(l->dir, l->name, dir, operation, l->verb);
    name_of(name, operation, l->verb, "-");
    snprintf(l->unit, sizeof l->unit, "snapferry-plugin-%s.service", name);
    snprintf(l->label, sizeof l->label, "plugin %.140s", l->p.name);
    l->argv[0] = l->p.path;
    l->argv[1] = plugin_verb_at(l->verb)->name;
    l->s = (struct service){.dir = l->dir,
                            .name = l->name,
                            .unit = l->unit,
                            .label = l->label,
                            .argv = l->argv,
                            .env = plugin_environment(),
                            .user = l->p.user};
    return 0;
}

int plugin_run_step(const json_t *in, json_t **out, int *fd, struct err *e)
{
    (void)fd;
    struct launch l;
    struct process_identity i;
    char text[PLUGIN_ID_MAX + 1];
    int rc = launch_from(&l, in, e);
    if (rc == 0)
        rc = plugin_installed(&l.p, e);
    if (rc < 0)
        return rc;
    if (mkdir(l.dir, 0700) < 0 && errno != EEXIST)
        return err_set(e, ERR_GENERIC, errno, "cannot create %s", l.dir);
    CLEANUP_PLUGIN_JSON json_t *q = plugin_request(l.verb, json_object_get(in, "args"));
    CLEANUP_FREE char *request = q ? json_dumps(q, JSON_COMPACT) : NULL;
    if (!request)
        return err_nomem(e);
    l.s.input = request;
    rc = service_start(&l.s, &i, e);
    if (rc < 0)
        return rc;
    process_id_text(&i, text, sizeof text);
    *out = json_pack("{s:s}", "id", text);
    return *out ? 0 : err_nomem(e);
}

int plugin_run_stop_step(const json_t *in, json_t **out, int *fd, struct err *e)
{
    (void)out;
    (void)fd;
    struct launch l;
    int rc = launch_from(&l, in, e);
    return rc < 0 ? rc : service_stop(&l.s, e);
}
