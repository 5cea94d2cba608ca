/* SPDX-License-Identifier: GPL-2.0-or-later */
/* main.c - main() of snapferry: verbs, errors, signals */
#include "daemon/cli/live.h"
#include "daemon/cli/options-table.h"

#include "base/fault.h"
#include "chunker/kernel.h"
#include "daemon/check/plugin-check.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static void print_log(enum log_level lvl, const char *line, void *arg)
{
    const struct options *o = arg;
    static const char *const names[] = {"debug", "info", "warning", "error"};
    if (lvl == LOG_LVL_DEBUG && !o->debug)
        return;
    if (lvl == LOG_LVL_INFO && o->quiet)
        return;
    char text[4600];
    snprintf(text, sizeof text, "snapferry: %s: %s", names[lvl], text_name(line));
    live_print(text);
}

static int run_verb(const struct options *o, struct err *e)
{
    switch (o->verb) {
    case VERB_REPO_CREATE:
        return cli_repo_create(o, e);
    case VERB_REPO_STATUS:
        return cli_repo_status(o, e);
    case VERB_REPO_USAGE:
        return cli_repo_usage(o, e);
    case VERB_REPO_SYNC:
        return cli_repo_sync(o, e);
    case VERB_REPO_REPAIR:
        return cli_repo_repair(o, e);
    case VERB_REPO_CHANGE_PASSWORD:
        return cli_repo_change_password(o, e);
    case VERB_BACKUP:
        return cli_backup(o, e);
    case VERB_SNAPSHOT_LIST:
        return cli_snapshot_list(o, e);
    case VERB_SNAPSHOT_SHOW:
        return cli_snapshot_show(o, e);
    case VERB_LS:
        return cli_ls(o, e);
    case VERB_CAT:
        return cli_cat(o, e);
    case VERB_RESTORE:
        return cli_restore(o, e);
    case VERB_VERIFY:
        return cli_verify(o, e);
    case VERB_SNAPSHOT_EXPIRE:
        return cli_snapshot_expire(o, e);
    case VERB_SNAPSHOT_PIN:
    case VERB_SNAPSHOT_UNPIN:
        return cli_snapshot_pin(o, e);
    case VERB_SNAPSHOT_DELETE:
        return cli_snapshot_delete(o, e);
    case VERB_REPO_EXPORT_KEY:
        return cli_repo_export_key(o, e);
    case VERB_REPO_OPEN_KEY:
        return cli_repo_open_key(o, e);
    case VERB_MAINTENANCE:
        return cli_maintenance(o, e);
    case VERB_CHECK_CONFIG:
        return cli_check_config(o, e);
    case VERB_IMPORT_VELERO:
        return cli_config_import(o, e);
    case VERB_PLUGIN_CHECK:
        return cli_plugin_check(o, e);
    case VERB_BENCH:
        return cli_bench(o, e);
    case VERB_NONE:
    case VERB_HELP:
    case VERB_COUNT:
        return err_set(e, ERR_USAGE, 0, "no verb is given");
    default:
        return cli_ask(o, e);
    }
}

/* Passwords and keys pass through: none of them gets into a core dump. A pattern that is a pipe is not bound by the
 * limit; and nobody but root reads this memory while the process runs. */
static void no_core_dumps(void)
{
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    prctl(PR_SET_DUMPABLE, 0);
}

int main(int argc, char **argv)
{
    struct err e = ERR_INIT;
    struct options o;
    const int of_unit = plugin_check_unit_main(argc, argv);
    if (of_unit >= 0)
        return of_unit;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is an error of the write */
    fault_report("snapferry", ERR_GENERIC);
    log_to(print_log, &o);
    int rc = options_parse(&o, argc, argv, &e);
    if (rc >= 0 && (o.repo || o.verb == VERB_CHECK_CONFIG))
        no_core_dumps();
    screen_set_wide(rc >= 0 && o.wide);
    if (rc >= 0 && o.version) {
        puts("snapferry " SNAPFERRY_VERSION);
    } else if (rc >= 0 && o.completion) {
        options_completion(stdout);
    } else if (rc >= 0 && o.complete) {
        names_print(&o);
    } else if (rc >= 0 && o.help) {
        options_help(stdout, &o);
    } else if (rc >= 0) {
        rc = o.repo ? kernels_check(&e) : 0;
        if (rc >= 0)
            rc = run_verb(&o, &e);
    }
    if (rc >= 0 && (fflush(stdout) || ferror(stdout)))
        rc = err_set(&e, ERR_GENERIC, errno, "cannot write to standard output");
    if (rc < 0)
        print_error(&o, &e);
    options_free(&o);
    return rc < 0 ? (e.cls ? (int)e.cls : ERR_GENERIC) : rc;
}
