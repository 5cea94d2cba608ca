/* SPDX-License-Identifier: GPL-2.0-or-later */
/* plugin-check-common.c - the rules for every plugin, and code shared by all rules */
#include "daemon/check/plugin-check-impl.h"

#include "proc/plugin-answer.h"
#include "proc/program-path.h"
#include "proc/program.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int check_fails(struct err *e, const char *fmt, ...)
{
    char text[900];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(e, ERR_GENERIC, EBADMSG, "%s", text);
}

int check_skips(struct err *e, const char *fmt, ...)
{
    char text[900];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    err_set(e, ERR_GENERIC, EBADMSG, "%s", text);
    return 1;
}

const char *check_option(const struct check *k, const char *key)
{
    return json_string_value(json_object_get(k->o->options, key));
}

/* ---- rules for both kinds ---- */

static int rule_program(struct check *k, struct err *e)
{
    return plugin_installed(&k->p, e);
}

static int rule_describe(struct check *k, struct err *e)
{
    int rc = plugin_describe(&k->p, &k->info, e);
    k->described = rc == 0;
    return rc;
}

static int rule_same_twice(struct check *k, struct err *e)
{
    CLEANUP_PLUGIN_JSON json_t *a = NULL, *b = NULL;
    int rc = plugin_call(&k->p, PV_DESCRIBE, NULL, 0, &a, e);
    if (rc == 0)
        rc = plugin_call(&k->p, PV_DESCRIBE, NULL, 0, &b, e);
    if (rc < 0)
        return rc;
    return json_equal(a, b) ? 0 : check_fails(e, "two answers to describe differ");
}

static int rule_kind(struct check *k, struct err *e)
{
    const char *is = plugin_kind_name(k->info.kind);
    return !k->o->kind || strcmp(k->o->kind, is) == 0 ? 0 : check_fails(e, "its kind is %s", is);
}

static int rule_abilities(struct check *k, struct err *e)
{
    unsigned a = k->info.abilities;
    if (k->info.unknown_abilities)
        return check_fails(e, "%u unknown %s", k->info.unknown_abilities,
                           k->info.unknown_abilities == 1 ? "ability" : "abilities");
    if (k->info.kind == PLUGIN_DRIVER) {
        if (!(a & PA_SNAPSHOT))
            return check_fails(e, "a driver without \"snapshot\" cannot back up anything");
        if (!(a & (PA_NATIVE_RO | PA_CLONE | PA_OVERLAY | PA_COPY_TARGET)))
            return check_fails(e, "no mechanism to expose its snapshots");
        if ((a & PA_TARGET_FROM_NATIVE) && !(a & PA_TARGET))
            return check_fails(e, "\"target-from-native\" without \"target\"");
        return 0;
    }
    if ((a & PA_RUN) && (a & (PA_PROGRESS | PA_WATCH | PA_CANCEL)))
        return check_fails(e, "with \"run\" progress and cancel are handled by its process, not by verbs");
    if (!(a & PA_RUN) && (a & PA_WATCH) && !(a & PA_PROGRESS))
        return check_fails(e, "\"watch\" without \"progress\": needed if the stream breaks");
    if (!(a & PA_RUN) && (a & PA_PROGRESS) && !(a & PA_CLEANUP))
        return check_fails(e, "without \"cleanup\" an operation cannot be ended reliably");
    return 0;
}

/* Any bytes as the request; *status is the exit code. */
static int call_raw(struct check *k, const char *verb, const char *request, int *status, char **out, struct err *e)
{
    char *const argv[] = {(char *)k->p.path, (char *)verb, NULL};
    struct program p = {.argv = argv,
                        .env = plugin_environment(),
                        .user = k->p.user && *k->p.user ? k->p.user : NULL,
                        .label = verb,
                        .input = request,
                        .input_len = strlen(request),
                        .timeout_s = plugin_verb_at(PV_DESCRIBE)->timeout_s};
    size_t len;
    return program_run(&p, out, &len, status, e);
}

static int rule_unknown_verb(struct check *k, struct err *e)
{
    CLEANUP_FREE char *out = NULL;
    int status = 0;
    int rc = call_raw(k, "no-such-verb", "{\"protocol\":1,\"verb\":\"no-such-verb\"}", &status, &out, e);
    if (rc < 0)
        return rc;
    return status == PLUGIN_EXIT_NO_VERB ? 0 : check_fails(e, "exit code %d", status);
}

static int rule_newer_protocol(struct check *k, struct err *e)
{
    CLEANUP_FREE char *out = NULL;
    int status = 0;
    int rc = call_raw(k, "describe", "{\"protocol\":9999,\"verb\":\"describe\"}", &status, &out, e);
    if (rc < 0)
        return rc;
    return status == PLUGIN_EXIT_PROTOCOL ? 0 : check_fails(e, "exit code %d", status);
}

static int rule_garbage(struct check *k, struct err *e)
{
    static const char *const bad[] = {"", "garbage", "{\"protocol\":1,", "[]", "\"text\"", "{\"protocol\":\"1\"}"};
    const char *verb = k->info.kind == PLUGIN_DRIVER ? "resolve" : "applies";
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CLEANUP_FREE char *out = NULL;
        int status = 0;
        int rc = call_raw(k, verb, bad[i], &status, &out, e);
        if (rc < 0)
            return rc;
        if (status == 0)
            return check_fails(e, "%s accepts the request >%s<", verb, bad[i]);
    }
    return 0;
}

static int rule_lacking(struct check *k, struct err *e)
{
    const struct plugin_verb_info *v;
    for (unsigned i = 0; (v = plugin_verb_at(i)); i++) {
        bool begins = (k->info.abilities & PA_RUN) && (i == PV_START || i == PV_RESTORE);
        bool lacks = v->ability && !(v->ability & k->info.abilities);
        if (!(v->kinds & k->info.kind) || !(lacks || begins))
            continue;
        CLEANUP_FREE char *out = NULL;
        int status = 0;
        char request[200];
        snprintf(request, sizeof request,
                 "{\"protocol\":1,\"verb\":\"%s\",\"node\":\"\",\"class\":{\"target\":\"/x\"}}", v->name);
        int rc = call_raw(k, v->name, request, &status, &out, e);
        if (rc < 0)
            return rc;
        if (status != PLUGIN_EXIT_NO_VERB)
            return check_fails(e, "%s, which is not among its abilities, ends with exit code %d", v->name, status);
    }
    return 0;
}

#define BOTH (PLUGIN_DRIVER | PLUGIN_MOVER)
const struct plugin_rule check_common_rules[] = {
    {"program.safe", BOTH, 0, "the program is a file owned by root, executable, and not writable by others",
     rule_program},
    {"describe.answers", BOTH, 0, "describe returns protocol, name, version, kind and abilities", rule_describe},
    {"describe.same-twice", BOTH, 0, "describe returns the same again", rule_same_twice},
    {"describe.kind", BOTH, 0, "the kind is the expected one", rule_kind},
    {"describe.abilities", BOTH, 0, "the abilities are known and consistent", rule_abilities},
    {"protocol.unknown-verb", BOTH, 0, "an unknown verb ends with exit code 64", rule_unknown_verb},
    {"protocol.lacking-verbs", BOTH, 0, "verbs without the ability end with exit code 64", rule_lacking},
    {"protocol.newer", BOTH, 0, "a request of an unknown version ends with exit code 65", rule_newer_protocol},
    {"protocol.garbage", BOTH, 0, "a malformed request does not end with exit code 0", rule_garbage},
};
const unsigned check_n_common_rules = sizeof check_common_rules / sizeof *check_common_rules;
