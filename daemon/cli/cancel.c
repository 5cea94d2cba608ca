/* SPDX-License-Identifier: GPL-2.0-or-later */
/* cancel.c - snapferry cancel ID..., and --all */
#include "daemon/cli/daemon.h"

#include "daemon/records/records.h"

#include <string.h>

/* Jobs may start more while others are canceled; limits the number of rounds. */
#define PASSES 20

/* One of them; its answer is added to `all`. */
static int cancel_one(const struct options *o, const char *name, json_t *all, struct err *e)
{
    CLEANUP_JSON json_t *answer = NULL;
    int rc = daemon_ask(o, "cancel", json_pack("{s:s}", "id", name), &answer, e);
    if (rc < 0)
        return rc;
    const char *id = *jstr(answer, "id") ? jstr(answer, "id") : name;
    if (!o->json && !o->quiet)
        printf(jbool(answer, "already") ? "%s has already ended: %s\n" : "%s is being canceled (%s)\n", text_name(id),
               text_name(jstr(answer, "state")));
    return json_array_append(all, answer) < 0 ? err_nomem(e) : 0;
}

/* Canceled is success. */
static int wait_canceled(const struct options *o, const char *id, struct err *e)
{
    struct err ended = ERR_INIT;
    int rc = wait_for(o, id, &ended);
    if (rc >= 0 || ended.cls == ERR_CANCELED)
        return 0;
    *e = ended;
    return rc;
}

/* ---- all of them ---- */

/* It writes what became of backups into the repository. Whoever wants everything to stop does not want that to be lost;
 * it can be canceled by its id. */
static bool records_outcome(const json_t *row)
{
    return !strcmp(jstr(row, "kind"), "admin") && !strncmp(jstr(row, "id"), "record-", strlen("record-"));
}

/* A deletion that has begun asks the repository by it, and would ask again a minute later. */
static bool asks_for_deletion(const json_t *row)
{
    return !strcmp(jstr(row, "kind"), "admin") && !strncmp(jstr(row, "id"), "admin-delete-", strlen("admin-delete-"));
}

static bool deletes(const char *id)
{
    return !strncmp(id, "delete-", strlen("delete-"));
}

/* Ids of those that have not ended: of the backup or restore if the operation belongs to one. Those that are left to
 * run go into `left`: also deletions that have begun. */
static int add_live(const json_t *list, json_t *ids, json_t *left, struct err *e)
{
    size_t i;
    const json_t *row;
    json_array_foreach(list, i, row)
    {
        const char *id = *jstr(row, "backup") ? jstr(row, "backup") : jstr(row, "id");
        const bool begun = !strcmp(jstr(row, "kind"), "delete") && strcmp(jstr(row, "state"), "Queued") != 0;
        json_t *to = records_outcome(row) || begun ? left : ids;
        if (asks_for_deletion(row))
            continue; /* the deletion itself is in the list */
        /* A backup that is deleted has ended; its deletion is in the other lists. */
        if (!state_terminal(jstr(row, "state")) && strcmp(jstr(row, "state"), "Deleting") != 0 && *id &&
            json_object_set_new(to, id, json_true()) < 0)
            return err_nomem(e);
    }
    return 0;
}

static int live_ids(const struct options *o, json_t *ids, json_t *left, struct err *e)
{
    CLEANUP_JSON json_t *status = NULL, *backups = NULL;
    int rc = daemon_ask(o, "status", NULL, &status, e);
    if (rc >= 0)
        rc = add_live(jarr(status, "running"), ids, left, e);
    if (rc >= 0)
        rc = add_live(jarr(status, "queue"), ids, left, e);
    /* Those without operations, or with ended ones only. */
    if (rc >= 0)
        rc = daemon_ask(o, "backups", json_pack("{s:i}", "limit", 1000), &backups, e);
    return rc < 0 ? rc : add_live(jarr(backups, "backups"), ids, left, e);
}

/* Those that have ended or been deleted meanwhile are no error, nor is a deletion that has begun meanwhile. */
static int cancel_new(const struct options *o, const json_t *ids, json_t *seen, json_t *all, json_t *left, bool *any,
                      struct err *e)
{
    const char *id;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)ids, id, v)
    {
        struct err one = ERR_INIT;
        if (json_object_get(seen, id))
            continue;
        if (json_object_set(seen, id, v) < 0)
            return err_nomem(e);
        *any = true;
        int rc = cancel_one(o, id, all, &one);
        if (rc < 0 && one.cls == ERR_BUSY && deletes(id)) {
            json_object_set_new(left, id, json_true());
            continue;
        }
        if (rc < 0 && one.cls != ERR_NOT_FOUND) {
            *e = one;
            return rc;
        }
    }
    return 0;
}

static int wait_all(const struct options *o, const json_t *all, struct err *e)
{
    /* One result at the end, not one for each. */
    struct options silent = *o;
    silent.quiet = silent.quiet || o->json;
    silent.json = false;
    size_t i;
    const json_t *c;
    int rc = 0;
    json_array_foreach(all, i, c)
    {
        struct err one = ERR_INIT;
        /* Any outcome will do: it has ended. */
        int got = jbool(c, "already") ? 0 : wait_canceled(&silent, jstr(c, "id"), &one);
        if (got < 0 && (one.cls == ERR_NO_DAEMON || one.cls == ERR_INTERRUPTED)) {
            *e = one;
            return got;
        }
    }
    return rc;
}

static json_t *key_list(const json_t *keys)
{
    json_t *list = json_array(), *v;
    const char *key;
    json_object_foreach((json_t *)(uintptr_t)keys, key, v) json_array_append_new(list, json_string(key));
    return list;
}

static void print_left(const json_t *left, size_t canceled)
{
    const char *id;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)left, id, v) if (deletes(id))
        printf("%s is left to run: a deletion that has begun cannot be canceled\n", text_name(id));
    else printf("%s is left to run: it records the outcomes of backups in the repository (`snapferry cancel %s` gives "
                "them up)\n",
                text_name(id), text_name(id));
    if (!canceled && !json_object_size(left))
        puts("No running or waiting operations.");
}

static int cancel_all(const struct options *o, struct err *e)
{
    CLEANUP_JSON json_t *all = json_array(), *seen = json_object(), *left = json_object();
    int rc = all && seen && left ? 0 : err_nomem(e);
    bool any = true;
    for (int pass = 0; rc >= 0 && any && pass < PASSES; pass++) {
        CLEANUP_JSON json_t *ids = json_object();
        any = false;
        json_object_clear(left);
        rc = ids ? live_ids(o, ids, left, e) : err_nomem(e);
        if (rc >= 0)
            rc = cancel_new(o, ids, seen, all, left, &any, e);
        if (rc >= 0 && any && o->wait)
            rc = wait_all(o, all, e);
    }
    if (rc < 0)
        return rc;
    if (o->json) {
        CLEANUP_JSON json_t *result = json_pack("{s:O,s:o}", "canceled", all, "left", key_list(left));
        print_answer(o, result);
    } else if (!o->quiet) {
        print_left(left, json_array_size(all));
    }
    return 0;
}

int ask_cancel(const struct options *o, struct err *e)
{
    if (o->all)
        return cancel_all(o, e);
    CLEANUP_JSON json_t *all = json_array();
    int rc = all ? 0 : err_nomem(e);
    for (int i = 0; i < o->n_args && all; i++) {
        struct err one = ERR_INIT;
        int got = cancel_one(o, o->args[i], all, &one);
        const json_t *answer = got < 0 ? NULL : json_array_get(all, json_array_size(all) - 1);
        if (answer && o->wait && !jbool(answer, "already"))
            got = wait_canceled(o, *jstr(answer, "id") ? jstr(answer, "id") : o->args[i], &one);
        if (got >= 0)
            continue;
        /* The others are canceled all the same. */
        if (rc >= 0)
            *e = one;
        else
            log_warning("%s", one.msg);
        rc = got;
        if (one.cls == ERR_NO_DAEMON || one.cls == ERR_INTERRUPTED)
            break;
    }
    if (rc >= 0 && o->json && !(o->wait && o->n_args == 1)) {
        CLEANUP_JSON json_t *result = json_pack("{s:O}", "canceled", all);
        print_answer(o, result);
    }
    return rc;
}
