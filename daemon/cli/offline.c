/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * offline.c - answers while the daemon is down (AO-21)
 *
 * From the records and the files of the configuration, by the builders that the daemon uses. Answers also have
 * "offline" and "offline_why"; the state of storage is that last recorded.
 */
#include "base/time.h"
#include "daemon/cli/daemon.h"

#include "cfg/cfg.h"
#include "daemon/answers/answers.h"

#include <errno.h>
#include <string.h>

static int list_rows(const struct answer_facts *f, enum row_kind k, const json_t *args, json_t **ret, struct err *e)
{
    const struct answer_query q = {.volume = jstr(args, "volume"),
                                   .backup = jstr(args, "backup"),
                                   .state = jstr(args, "state"),
                                   .before = (uint64_t)jint(args, "before"),
                                   .since_ns = answer_list_since(jbool(args, "all"), f->now_ns),
                                   .limit = (size_t)jint(args, "limit")};
    return answer_list(f, k, &q, ret, e);
}

static int list_natives(const struct answer_facts *f, const json_t *args, json_t **ret, struct err *e)
{
    const struct answer_query q = {
        .volume = jstr(args, "volume"), .before = (uint64_t)jint(args, "before"), .limit = (size_t)jint(args, "limit")};
    return answer_natives(f, &q, ret, e);
}

static int list_volumes(const struct answer_facts *f, const json_t *args, json_t **ret, struct err *e)
{
    const char *klass = jstr(args, "class");
    int rc = answer_class_known(f, klass, e);
    if (rc < 0)
        return rc;
    if (jbool(args, "recorded"))
        *ret = answer_volumes_recorded(f, klass, jstr(args, "after"), (size_t)jint(args, "limit"));
    else
        *ret = answer_volumes(f, klass, NULL, NULL);
    return *ret ? 0 : err_nomem(e);
}

static int describe_offline(const struct answer_facts *f, const char *name, json_t **ret, struct err *e)
{
    int rc = answer_describe(f, name, ret, e);
    if (rc >= 0 || e->cls != ERR_NOT_FOUND)
        return rc;
    CLEANUP_JSON json_t *volumes = answer_volume(f, name, NULL, NULL);
    *e = (struct err)ERR_INIT;
    return volumes ? answer_describe_volume(f, jarr(volumes, "volumes"), name, ret, e) : err_nomem(e);
}

static int explain_offline(const struct answer_facts *f, const char *volume, json_t **ret, struct err *e)
{
    static const struct answer_look none = {.silent = "", .missing = "", .mechanism = "", .obstacle = ""};
    return answer_explain(f, volume, &none, ret, e);
}

static int build_answer(const struct answer_facts *f, const char *verb, const json_t *args, json_t **ret, struct err *e)
{
    if (!strcmp(verb, "operations") || !strcmp(verb, "backups"))
        return list_rows(f, verb[0] == 'o' ? ROW_OPERATION : ROW_BACKUP, args, ret, e);
    if (!strcmp(verb, "natives"))
        return list_natives(f, args, ret, e);
    if (!strcmp(verb, "volumes"))
        return list_volumes(f, args, ret, e);
    if (!strcmp(verb, "describe"))
        return describe_offline(f, jstr(args, "id"), ret, e);
    if (!strcmp(verb, "explain"))
        return explain_offline(f, jstr(args, "volume"), ret, e);
    if (strcmp(verb, "status") != 0 && strcmp(verb, "jobs") != 0)
        return err_set(e, ERR_NO_DAEMON, 0, "%s requires the daemon", verb);
    *ret = verb[0] == 's' ? answer_status(f) : answer_jobs(f);
    return *ret ? 0 : err_nomem(e);
}

static void closep_records(struct records **r)
{
    if (*r)
        records_close(*r);
}

/* *looked: the records were read, so that what is not found does not exist. */
static int read_files(const struct options *o, const char *verb, const json_t *args, const struct err *why, bool silent,
                      json_t **ret, bool *looked, struct err *e)
{
    CLEANUP(closep_records) struct records *r = NULL;
    CLEANUP(cfg_freep) struct cfg *c = NULL;
    CLEANUP(answer_facts_clear) struct answer_facts f = {.records = NULL};
    struct err refused = ERR_INIT;
    const bool explains = !strcmp(verb, "explain"), ok = cfg_load_dir(&c, o->config_dir, &refused) >= 0;
    int rc = records_open_read_only(&r, o->state_dir, e);
    if (explains) { /* says what the configuration asks for, with or without records */
        *e = refused;
        rc = ok ? 0 : -EINVAL;
    }
    if (rc < 0)
        return rc;
    answer_facts_offline(&f, r, ok ? c : NULL, &refused, now_ns());
    f.down = silent               ? "the daemon does not answer"
             : daemon_elsewhere() ? "a daemon is running with another runtime directory"
                                  : "the daemon is not running";
    f.down_hint = why->hint;
    *looked = !explains;
    return build_answer(&f, verb, args, ret, e);
}

int offline_ask(const struct options *o, const char *verb, const json_t *args, const struct err *why, bool silent,
                json_t **answer, struct err *e)
{
    CLEANUP_JSON json_t *a = NULL;
    struct err own = ERR_INIT;
    bool looked = false;
    int rc = read_files(o, verb, args, why, silent, &a, &looked, &own);
    if (rc < 0) {
        /* Without records, the reason why the daemon is down; a name that does not exist is an error of its own. */
        *e = looked && (own.cls == ERR_NOT_FOUND || own.cls == ERR_USAGE) ? own : *why;
        if (e->cls == ERR_NO_DAEMON)
            err_hint(e, "%.150s (the records cannot be read: %.180s)", why->hint, own.msg);
        return -EIO;
    }
    char text[1200];
    snprintf(text, sizeof text, "%s; reading %s instead", why->msg,
             !strcmp(verb, "explain") ? o->config_dir : o->state_dir);
    json_object_set_new(a, "offline", json_true());
    json_object_set_new(a, "offline_why", json_string(text));
    *answer = json_incref(a);
    return 0;
}
