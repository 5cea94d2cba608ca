/* SPDX-License-Identifier: GPL-2.0-or-later */
/* restore-source.c - what may be asked of a restore, and whether it takes the native snapshot or the repository's
 * (RS-22, RS-26) */
#include "base/plain-path.h"
#include "daemon/decide/decide.h"

#include <errno.h>
#include <stdio.h>

const char *restore_only_of_repository(const struct request_args *req)
{
    return req->verify ? "--verify" : req->differential ? "--differential" : request_is_ranged(req) ? "a range" : NULL;
}

int restore_refused(const struct request_args *req, bool named, struct err *e)
{
    const char *only = restore_only_of_repository(req);
    if (!named && (req->target[0] || !req->class_map))
        return err_set(
            e, ERR_USAGE, 0,
            "the restore target \"%s\" must be an absolute path, the address of an NBD export, or POOL/IMAGE",
            req->target);
    if (!is_plain_path(req->target)) { /* no driver takes it */
        err_set(e, ERR_USAGE, EINVAL, "the restore target \"%s\" has \".\", \"..\" or \"//\" in its path", req->target);
        return err_hint(e, "use the path that `realpath -m` prints");
    }
    if (req->length == 0)
        return err_set(e, ERR_USAGE, EINVAL, "the length of a range is at least one byte");
    if (req->only_new && (req->differential || request_is_ranged(req)))
        return err_set(e, ERR_USAGE, EINVAL,
                       "--new cannot be combined with --differential or a range: a new target has no data to keep");
    if (req->from == FROM_NATIVE && only)
        return err_set(e, ERR_USAGE, EINVAL, "%s needs the repository's copy: it cannot be combined with --from native",
                       only);
    return 0;
}

bool restore_native_recorded(const struct native_row *n)
{
    /* A raw device has no snapshot: what it holds now is not the backup. */
    return n->state != NATIVE_REMOVING && n->state != NATIVE_CREATING && !is_none(n->native) &&
           !driver_is_raw(n->driver);
}

static bool in_repository(const struct operation *of)
{
    return of->state == OP_COMPLETED && (of->result.snapshot[0] || of->result.stored);
}

static enum restore_from source_chosen(enum restore_from f, char why[RESTORE_WHY], const char *text)
{
    snprintf(why, RESTORE_WHY, "%s", text);
    return f;
}

enum restore_from restore_source(const struct operation *of, const struct request_args *req,
                                 const struct native_offer *native, char why[RESTORE_WHY], struct err *e)
{
    const bool want_native = req->from == FROM_NATIVE, want_repository = req->from == FROM_REPOSITORY;
    const char *only = restore_only_of_repository(req), *name = of->volume->name;
    if (only && of->result.stored) {
        err_set(e, ERR_USAGE, ENOTSUP,
                "%s was stored by a mover plugin, which restores it as a whole: %s is not possible", name, only);
        return FROM_NONE;
    }
    if (native->usable && !want_repository && !only)
        return source_chosen(FROM_NATIVE, why,
                             want_native ? "--from native was given" : "the native snapshot exists and is healthy");
    if (want_native) {
        err_set(e, ERR_NOT_FOUND, 0, "%s cannot be restored from its native snapshot: %s", name, native->why);
        err_hint(e, "--from auto or --from repository takes the data from the repository");
        return FROM_NONE;
    }
    if (!in_repository(of)) {
        err_set(e, ERR_NOT_FOUND, 0, "%s of backup %s was %s and cannot be restored%s%s", name, of->parent,
                op_state_name(of->state), native->why[0] ? ": " : "", native->why);
        err_hint(e, "`snapferry backups` shows which backups of it are Completed");
        return FROM_NONE;
    }
    /* It is looked for all the same: what has expired is the word of the mover that removed it. */
    const char *expired = of->lost ? "; its snapshot is no longer in the repository, as far as is known" : "";
    if (!only || want_repository)
        snprintf(why, RESTORE_WHY, "%.500s%s", want_repository ? "--from repository was given" : native->why, expired);
    else
        snprintf(why, RESTORE_WHY, "%s is done with the repository's contents%s", only, expired);
    return FROM_REPOSITORY;
}
