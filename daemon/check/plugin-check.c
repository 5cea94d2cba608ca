/* SPDX-License-Identifier: GPL-2.0-or-later */
/* plugin-check.c - running all rules over a plugin */
#include "daemon/check/plugin-check-impl.h"
#include "proc/program-path.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int plugin_check_unit_main(int argc, char **argv)
{
    return argc > 1 && !strcmp(argv[1], PROGRAM_RUN_OPTION) ? program_run_main(argc, argv) : -1;
}

static enum plugin_verdict run_rule(struct check *k, const struct plugin_rule *r, struct err *e)
{
    if (k->described && (r->ability & k->info.abilities) != r->ability) {
        check_skips(e, "ability missing");
        return PLUGIN_NOT_ASKED;
    }
    int rc = r->run(k, e);
    return rc < 0 ? PLUGIN_FAIL : rc == 0 ? PLUGIN_PASS : PLUGIN_NOT_ASKED;
}

static void run_rules(struct check *k, const struct plugin_rule *rules, unsigned n, plugin_finding_fn *fn, void *arg,
                      unsigned *failed)
{
    for (unsigned i = 0; i < n; i++) {
        struct err e = ERR_INIT;
        enum plugin_verdict v = run_rule(k, &rules[i], &e);
        struct plugin_finding f = {rules[i].name, rules[i].expected, v, v == PLUGIN_PASS ? "" : e.msg};
        *failed += v == PLUGIN_FAIL;
        fn(&f, arg);
        /* Without a description nothing else can be checked. */
        if (!k->described && rules == check_common_rules && i >= 1)
            return;
        if (rules == check_common_rules && i == 0 && v == PLUGIN_FAIL)
            return;
    }
}

int plugin_check(const struct plugin_check_opts *o, plugin_finding_fn *fn, void *arg, unsigned *failed, struct err *e)
{
    CLEANUP_FREE struct check *k = calloc(1, sizeof *k);
    if (!k)
        return err_nomem(e);
    if (o->kind && strcmp(o->kind, "driver") != 0 && strcmp(o->kind, "mover") != 0)
        return err_set(e, ERR_USAGE, EINVAL, "kind of a plugin must be \"driver\" or \"mover\", not \"%s\"", o->kind);
    k->o = o;
    k->p = o->p;
    char alias[ALIAS_LEN + 1];
    alias_new(alias);
    snprintf(k->tag_text, sizeof k->tag_text, "check-%.8s", alias);
    *failed = 0;
    run_rules(k, check_common_rules, check_n_common_rules, fn, arg, failed);
    if (!k->described || (o->kind && strcmp(o->kind, plugin_kind_name(k->info.kind)) != 0))
        return 0;
    bool driver = k->info.kind == PLUGIN_DRIVER;
    int rc = driver ? check_driver_begin(k, e) : check_mover_begin(k, e);
    if (rc == 0)
        run_rules(k, driver ? check_driver_rules : check_mover_rules,
                  driver ? check_n_driver_rules : check_n_mover_rules, fn, arg, failed);
    if (driver)
        check_driver_end(k);
    else
        check_mover_end(k);
    json_decref(k->options);
    json_decref(k->stored);
    return rc;
}
