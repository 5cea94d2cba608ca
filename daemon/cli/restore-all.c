/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * restore-all.c - all volumes of a backup into the classes of --class-map (CF-51)
 *
 * Each is a restore of its own. All are checked before the first one is submitted, so that a wrong map changes nothing;
 * what fails later is shown for its volume and does not end the others.
 */
#include "daemon/cli/restore-all.h"

#include "base/units.h"

#include <errno.h>
#include <string.h>

static void volume_failed(const struct options *o, json_t *row, const struct err *e)
{
    json_object_set_new(row, "error",
                        json_pack("{s:i, s:s, s:s}", "code", (int)e->cls, "message", e->msg, "hint", e->hint));
    if (!o->quiet && !o->json)
        log_warning("%s: %s", text_name(jstr(row, "volume")), e->msg);
}

static int restore_submit(const struct options *o, const json_t *args, json_t *row, bool check, struct err *e)
{
    CLEANUP_JSON json_t *own = json_deep_copy(args), *answer = NULL;
    if (!own)
        return err_nomem(e);
    json_object_set_new(own, "volume", json_string(jstr(row, "volume")));
    if (check)
        json_object_set_new(own, "check", json_true());
    int rc = daemon_ask(o, "submit-restore", json_incref(own), &answer, e);
    if (rc >= 0)
        json_object_update(row, answer);
    return rc;
}

/* Two volumes of one name would go into one file. */
static int target_taken(const json_t *rows, size_t n, struct err *e)
{
    const char *target = jstr(json_array_get(rows, n), "target");
    for (size_t i = 0; i < n; i++)
        if (!strcmp(jstr(json_array_get(rows, i), "target"), target))
            return err_set(e, ERR_USAGE, 0, "its target %s is that of %s, too", target,
                           jstr(json_array_get(rows, i), "volume"));
    return 0;
}

static int check_all(const struct options *o, const json_t *args, json_t *rows, struct err *e)
{
    struct err first = ERR_INIT;
    unsigned bad = 0;
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        struct err why = ERR_INIT;
        if (restore_submit(o, args, row, true, &why) >= 0 && target_taken(rows, i, &why) >= 0)
            continue;
        if (why.cls == ERR_NO_DAEMON || why.cls == ERR_INTERRUPTED) {
            *e = why;
            return -EIO;
        }
        volume_failed(o, row, &why);
        if (!bad++)
            first = why;
    }
    if (!bad)
        return 0;
    err_set(e, first.cls, 0, "%u of %zu volume%s cannot be restored; nothing was begun", bad, json_array_size(rows),
            plural(json_array_size(rows)));
    return err_hint(e, "restore the others one by one: %s/VOLUME", jstr(args, "backup"));
}

static void submit_all(const struct options *o, const json_t *args, json_t *rows)
{
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        struct err why = ERR_INIT;
        if (restore_submit(o, args, row, false, &why) < 0)
            volume_failed(o, row, &why);
        else if (!o->quiet && !o->json)
            printf("Restore %s of %s to %s\n", text_name(jstr(row, "restore")), text_name(jstr(row, "volume")),
                   text_name(jstr(row, "target")));
    }
}

static int wait_all(const struct options *o, json_t *rows, struct err *e)
{
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        CLEANUP_JSON json_t *ended = NULL;
        struct err why = ERR_INIT;
        if (jobj(row, "error"))
            continue;
        if (wait_until_ended(o, jstr(row, "restore"), &ended, e) < 0) {
            if (e->cls == ERR_INTERRUPTED)
                err_hint(e, "snapferry cancel ID cancels a restore; those that have not ended: snapferry operations");
            return -EIO;
        }
        json_object_set_new(row, "state", json_string(jstr(ended, "state")));
        if (exit_code_of(o, ended, &why) != 0) {
            if (!why.cls)
                err_set(&why, ERR_PARTIAL, 0, "%s is %s", jstr(row, "restore"), jstr(ended, "state"));
            volume_failed(o, row, &why);
        } else if (!o->quiet && !o->json) {
            printf("%s restored to %s\n", text_name(jstr(row, "volume")), text_name(jstr(row, "target")));
        }
    }
    return 0;
}

/* All, a part, or none. */
static int rows_verdict(const json_t *rows, struct err *e)
{
    size_t i, failed = 0, n = json_array_size(rows);
    const json_t *row;
    int64_t code = 0;
    json_array_foreach(rows, i, row)
    {
        if (!jobj(row, "error"))
            continue;
        failed++;
        code = code ? code : jint(jobj(row, "error"), "code");
    }
    if (!failed)
        return 0;
    return err_set(e, failed < n ? ERR_PARTIAL : (enum err_class)code, 0, "%zu of %zu volume%s %s not restored", failed,
                   n, plural(n), failed == 1 ? "was" : "were");
}

/* In the order of the backup. */
static int volumes_of(const struct options *o, const char *backup, json_t *rows, struct err *e)
{
    CLEANUP_JSON json_t *answer = NULL;
    const int rc = ask_operations_of(o, backup, &answer, e);
    const json_t *list = jarr(answer, "operations");
    for (size_t i = json_array_size(list); rc >= 0 && i-- > 0;) {
        const json_t *op = json_array_get(list, i);
        if (!strcmp(jstr(op, "kind"), "backup"))
            json_array_append_new(rows, json_pack("{s:s}", "volume", jstr(op, "volume")));
    }
    return rc;
}

int restore_all(const struct options *o, const char *backup, const json_t *args, struct err *e)
{
    CLEANUP_JSON json_t *rows = json_array(), *answer = NULL;
    int rc = rows ? volumes_of(o, backup, rows, e) : err_nomem(e);
    if (rc >= 0)
        rc = check_all(o, args, rows, e);
    if (rc >= 0) {
        submit_all(o, args, rows);
        rc = o->wait ? wait_all(o, rows, e) : 0;
    }
    if (rc >= 0)
        rc = rows_verdict(rows, e);
    answer = json_pack("{s:O}", "restores", rows);
    if (o->json && answer)
        print_answer(o, answer);
    return rc;
}
