/* SPDX-License-Identifier: GPL-2.0-or-later */
/* plugin.c - snapferry plugin-check */
#include "daemon/cli/cli.h"
#include "daemon/check/plugin-check.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct report {
    bool json, quiet;
    unsigned passed, failed, not_asked;
    json_t *rules;
};

static const char *const words[] = {[PLUGIN_PASS] = "PASS", [PLUGIN_FAIL] = "FAIL", [PLUGIN_NOT_ASKED] = "----"};
static const char *const json_words[] = {
    [PLUGIN_PASS] = "pass", [PLUGIN_FAIL] = "fail", [PLUGIN_NOT_ASKED] = "not-asked"};

static void print_rule(const struct plugin_finding *f, void *arg)
{
    struct report *r = arg;
    r->passed += f->verdict == PLUGIN_PASS;
    r->failed += f->verdict == PLUGIN_FAIL;
    r->not_asked += f->verdict == PLUGIN_NOT_ASKED;
    if (r->json) {
        json_array_append_new(r->rules, json_pack("{s:s, s:s, s:s, s:s}", "rule", f->rule, "verdict",
                                                  json_words[f->verdict], "expected", f->expected, "said", f->said));
        return;
    }
    if (r->quiet && f->verdict != PLUGIN_FAIL)
        return;
    printf("%s  %-24s  %s\n", words[f->verdict], f->rule, f->expected);
    if (f->verdict == PLUGIN_FAIL)
        printf("      %-24s  actual: %s\n", "", text_name(f->said));
    else if (f->verdict == PLUGIN_NOT_ASKED)
        printf("      %-24s  not tested: %s\n", "", text_name(f->said));
    fflush(stdout);
}

/* KEY=VALUE arguments as an object of strings. */
static json_t *options_of(const struct options *o, struct err *e)
{
    json_t *j = json_object();
    for (int i = 1; j && i < o->n_args; i++) {
        const char *eq = strchr(o->args[i], '=');
        if (!eq || eq == o->args[i]) {
            err_set(e, ERR_USAGE, EINVAL, "\"%s\" is not of the form KEY=VALUE", o->args[i]);
            json_decref(j);
            return NULL;
        }
        char key[128];
        snprintf(key, sizeof key, "%.*s", (int)(eq - o->args[i]), o->args[i]);
        if (json_object_set_new(j, key, json_string(eq + 1)) < 0) {
            err_set(e, ERR_USAGE, EINVAL, "the value of %s is not UTF-8", key);
            json_decref(j);
            return NULL;
        }
    }
    if (!j)
        err_nomem(e);
    return j;
}

int cli_plugin_check(const struct options *o, struct err *e)
{
    CLEANUP_FREE char *path = realpath(o->args[0], NULL);
    if (!path)
        return err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_GENERIC, errno, "cannot check %s", o->args[0]);
    json_t *opts = options_of(o, e);
    if (!opts)
        return -EINVAL;
    const char *base = strrchr(path, '/') + 1;
    struct plugin_check_opts c = {.p = {.name = base, .path = path}, .kind = o->kind, .options = opts};
    struct report r = {.json = o->json, .quiet = o->quiet, .rules = json_array()};
    unsigned failed = 0;
    int rc = plugin_check(&c, print_rule, &r, &failed, e);
    if (rc == 0 && o->json)
        print_json(json_pack("{s:s, s:s, s:O, s:i, s:i, s:i}", "plugin", base, "program", path, "rules", r.rules,
                             "passed", (int)r.passed, "failed", (int)r.failed, "not_asked", (int)r.not_asked));
    else if (rc == 0)
        printf("%u passed, %u failed, %u not tested\n", r.passed, r.failed, r.not_asked);
    json_decref(r.rules);
    json_decref(opts);
    return rc < 0 ? rc : failed ? ERR_GENERIC : 0;
}
