/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * step-request.h - what a step is to do, decoded once into a struct
 *
 * A step is a child of the daemon. One table has the members of all requests, of their items and of the intents that
 * they undo; which of them a request has, its step says (daemon/engine/engine-impl.h). What a driver described is left
 * to the driver's own decoder. Not thread-safe, as fields.h.
 */
#ifndef SNAPFERRY_DAEMON_RECORDS_STEP_REQUEST_H
#define SNAPFERRY_DAEMON_RECORDS_STEP_REQUEST_H

#include "daemon/records/types.h"

/* What a restore keeps of its target: nothing, what is beyond the range, what is equal already. */
enum target_keep { TARGET_KEEP_NONE, TARGET_KEEP_REST, TARGET_KEEP_EQUAL, TARGET_KEEPS };
/* What an intent is about; those of other kinds leave nothing that a step could undo. */
enum intent_kind { INTENT_NONE, INTENT_NATIVE, INTENT_EXPOSURE, INTENT_TARGET, INTENT_HOOK_POST, INTENT_KINDS };

struct step_request {
    json_t *klass, *own, *into; /* documents of classes */
    json_t *volume, *native, *tag, *exposure, *target;
    json_t *kept;  /* an intent: the intermediate that was kept with a native snapshot */
    json_t *doc;   /* of an intent: members of this table, too */
    json_t *names; /* of volumes; NULL: all that the class has */
    struct strs aliases;
    struct strs unfrozen; /* paths whose file systems are not frozen for a snapshot */
    char *operation, *alias, *hint, *name, *path, *password_file, *credentials, *ca_file;
    uint64_t id, size, rate, pause_ms;
    bool read_only, again, open, overwrite, missing, unseen, insecure;
    bool allocated; /* if the driver lists what is allocated, that is done before it is opened */
    bool bookmark;  /* of a native snapshot, which is made, or removed, with it */
    bool leave_bookmark;
    bool only_bookmark; /* the native snapshot was removed before */
    enum target_keep keep;
    enum intent_kind kind;
    json_t *unknown;
};
FIELDS_LIFE(step_request)
/* `r` is uninitialized, and initialized in any case. Fails for lack of memory only. */
int step_request_load(struct step_request *r, const json_t *doc, struct err *e);
/* The operation of an item of a request; "": there are not so many. */
const char *step_request_operation(const json_t *request, size_t item);
/* Takes out what is to run if the post-snapshot hook has not run by a deadline: the request of that hook, a new
 * reference; NULL: none. */
json_t *step_request_watchdog(json_t *request, unsigned *deadline_s);

#endif
