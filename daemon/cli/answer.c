/* SPDX-License-Identifier: GPL-2.0-or-later */
/* answer.c - answers of the daemon, or from its files, as results */
#include "daemon/cli/daemon.h"

#include <errno.h>
#include <string.h>

void print_answer(const struct options *o, const json_t *answer)
{
    json_t *j = json_pack("{s:s, s:s}", "type", "result", "verb", verb_name(o->verb));
    if (j)
        json_object_update(j, (json_t *)(uintptr_t)answer);
    print_json(j);
}

bool answered(const struct options *o, const json_t *answer)
{
    if (o->json)
        print_answer(o, answer);
    else if (jbool(answer, "offline") && !o->quiet) {
        fflush(stdout);
        log_warning("%s", jstr(answer, "offline_why"));
    }
    return o->json;
}

/* Seconds to wait for an answer. Verbs answered from memory have a short limit; the others access storage, which may be
 * slow. */
static unsigned answer_timeout(const char *verb)
{
    static const char *const quick[] = {"status", "operations", "backups", "jobs", "natives", "describe"};
    for (size_t i = 0; i < sizeof quick / sizeof *quick; i++)
        if (!strcmp(verb, quick[i]))
            return 15;
    return 600;
}

static bool silent;

bool daemon_silent(void)
{
    return silent;
}

static int ask_if(const struct options *o, bool start, const char *verb, json_t *args, json_t **answer, struct err *e)
{
    CLEANUP_JSON json_t *owned = args;
    struct err down = ERR_INIT;
    CLEANUP(daemon_closep) struct daemon *d = NULL;
    int rc = start || daemon_is_there(o, &down) ? daemon_open(&d, o, &down) : -ENOTCONN;
    if (rc >= 0)
        rc = daemon_call(d, verb, json_incref(owned), answer_timeout(verb), NULL, NULL, answer, &down);
    if (rc >= 0)
        return rc;
    if (down.cls != ERR_NO_DAEMON) {
        *e = down;
        return rc;
    }
    silent = d || down.sys == ETIMEDOUT;
    return offline_ask(o, verb, owned, &down, silent, answer, e);
}

int ask_or_read(const struct options *o, const char *verb, json_t *args, json_t **answer, struct err *e)
{
    return ask_if(o, true, verb, args, answer, e);
}

int ask_again(const struct options *o, const char *verb, json_t *args, json_t **answer, struct err *e)
{
    return ask_if(o, false, verb, args, answer, e);
}

int ask_pages(const struct options *o, const char *verb, const char *name, const json_t *filter, size_t limit,
              json_t **ret, struct err *e)
{
    json_t *list = json_array();
    CLEANUP_JSON json_t *all = json_pack("{s:o}", name, list);
    json_t *before = NULL;
    CLEANUP_JSON json_t *page = NULL;
    if (!all)
        return err_nomem(e);
    for (;;) {
        CLEANUP_JSON json_t *args = json_deep_copy(filter);
        size_t left = limit - json_array_size(list);
        json_object_set_new(args, "limit", json_integer(left < INT32_MAX ? (json_int_t)left : INT32_MAX));
        if (before)
            json_object_set(args, "before", before);
        json_decref(page);
        page = NULL;
        int rc = ask_or_read(o, verb, json_incref(args), &page, e);
        if (rc < 0)
            return rc;
        json_array_extend(list, jarr(page, name));
        if (!before && jarr(page, "orphans")) /* of native snapshots, in the first page */
            json_object_set(all, "orphans", json_object_get(page, "orphans"));
        before = json_object_get(page, "next");
        if (!jbool(page, "more") || !before || json_array_size(list) >= limit || !json_array_size(jarr(page, name)))
            break;
    }
    if (jbool(page, "more"))
        json_object_set_new(all, "more", json_true());
    if (jbool(page, "offline")) {
        json_object_set(all, "offline", json_object_get(page, "offline"));
        json_object_set(all, "offline_why", json_object_get(page, "offline_why"));
    }
    *ret = json_incref(all);
    return 0;
}

int ask_operations_of(const struct options *o, const char *backup, json_t **ret, struct err *e)
{
    CLEANUP_JSON json_t *filter = json_pack("{s:s, s:b}", "backup", backup, "all", 1);
    return filter ? ask_pages(o, "operations", "operations", filter, SIZE_MAX, ret, e) : err_nomem(e);
}
