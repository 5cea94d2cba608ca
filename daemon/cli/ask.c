/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ask.c - the verbs without -r: which function, and how an answer becomes the result */
#include "daemon/cli/daemon.h"

#include <errno.h>
#include <string.h>

int cli_ask(const struct options *o, struct err *e)
{
    static const struct {
        enum verb verb;
        int (*fn)(const struct options *o, struct err *e);
    } verbs[] = {
        {VERB_STATUS, ask_status},       {VERB_OPERATIONS, ask_operations},
        {VERB_BACKUPS, ask_backups},     {VERB_VOLUMES, ask_volumes},
        {VERB_NATIVE_LIST, ask_natives}, {VERB_NATIVE_PRUNE, ask_native_prune},
        {VERB_DESCRIBE, ask_describe},   {VERB_EXPLAIN, ask_explain},
        {VERB_LOGS, ask_logs},           {VERB_ASK_BACKUP, ask_backup},
        {VERB_ASK_RESTORE, ask_restore}, {VERB_ASK_VERIFY, ask_verify},
        {VERB_ASK_EXPIRE, ask_expire},   {VERB_SCAN, ask_scan},
        {VERB_REPO_DETACH, ask_detach},  {VERB_FORGET, ask_forget},
        {VERB_CANCEL, ask_cancel},       {VERB_DELETE, ask_delete},
        {VERB_HOLD, ask_hold},           {VERB_UNHOLD, ask_hold},
        {VERB_RELOAD, ask_reload},       {VERB_DEBUG_BUNDLE, ask_debug_bundle},
    };
    if (o->verb == VERB_WAIT)
        return wait_for(o, o->args[0], e);
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (verbs[i].verb == o->verb)
            return verbs[i].fn(o, e);
    return err_set(e, ERR_USAGE, EINVAL, "%s is not a verb for the daemon", verb_name(o->verb));
}

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

/* Verbs that the daemon answers from its memory, at once: if it does not, something is wrong with it. The others look
 * at storage, and storage may be slow. */
static unsigned patience(const char *verb)
{
    static const char *const quick[] = {"status", "operations", "backups", "natives", "describe"};
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

int ask_or_read(const struct options *o, const char *verb, json_t *args, json_t **answer, struct err *e)
{
    CLEANUP_JSON json_t *owned = args;
    struct err down = ERR_INIT;
    CLEANUP(daemon_closep) struct daemon *d = NULL;
    int rc = daemon_open(&d, o, &down);
    if (rc >= 0)
        rc = daemon_call(d, verb, json_incref(owned), patience(verb), NULL, NULL, answer, &down);
    if (rc >= 0)
        return rc;
    if (down.cls != ERR_NO_DAEMON) {
        *e = down;
        return rc;
    }
    silent = d || down.sys == ETIMEDOUT;
    return offline_ask(o, verb, owned, &down, answer, e);
}
