/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ask.c - the verbs without -r: which function answers each */
#include "daemon/cli/daemon.h"

#include <errno.h>

int cli_ask(const struct options *o, struct err *e)
{
    static const struct {
        enum verb verb;
        int (*fn)(const struct options *o, struct err *e);
    } verbs[] = {
        {VERB_STATUS, ask_status},
        {VERB_OPERATIONS, ask_operations},
        {VERB_BACKUPS, ask_backups},
        {VERB_VOLUMES, ask_volumes},
        {VERB_JOBS, ask_jobs},
        {VERB_NATIVE_LIST, ask_natives},
        {VERB_NATIVE_PRUNE, ask_native_prune},
        {VERB_NATIVE_RELEASE, ask_native_release},
        {VERB_DESCRIBE, ask_describe},
        {VERB_EXPLAIN, ask_explain},
        {VERB_LOGS, ask_logs},
        {VERB_ASK_BACKUP, ask_backup},
        {VERB_ASK_RESTORE, ask_restore},
        {VERB_ASK_VERIFY, ask_verify},
        {VERB_ASK_EXPIRE, ask_expire},
        {VERB_ASK_MAINTENANCE, ask_maintenance},
        {VERB_ASK_COPY, ask_copy},
        {VERB_SCAN, ask_scan},
        {VERB_REPO_DETACH, ask_detach},
        {VERB_FORGET, ask_forget},
        {VERB_CANCEL, ask_cancel},
        {VERB_DELETE, ask_delete},
        {VERB_RETRY, ask_retry},
        {VERB_HOLD, ask_hold},
        {VERB_UNHOLD, ask_hold},
        {VERB_RELOAD, ask_reload},
        {VERB_DEBUG_BUNDLE, ask_debug_bundle},
    };
    if (o->verb == VERB_WAIT)
        return wait_for(o, o->args[0], e);
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (verbs[i].verb == o->verb)
            return verbs[i].fn(o, e);
    return err_set(e, ERR_USAGE, EINVAL, "%s is not a verb for the daemon", verb_name(o->verb));
}
