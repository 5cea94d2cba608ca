/* SPDX-License-Identifier: GPL-2.0-or-later */
/* plugin-tables.c - the words of the plugin protocol: verbs, abilities, exit codes */
#include "proc/plugin-call.h"

#include <errno.h>

#define TIMEOUT_CEILING 86400u

#define D PLUGIN_DRIVER
#define M PLUGIN_MOVER

static const struct plugin_verb_info verbs[PV_COUNT] = {
    [PV_DESCRIBE] = {"describe", D | M, 0, 30, false, "who the plugin is and what it can"},
    [PV_APPLIES] = {"applies", D | M, 0, 30, false, "whether it takes this volume"},
    [PV_VOLUMES] = {"volumes", D, 0, 120, true, "the volumes that the patterns match"},
    [PV_RESOLVE] = {"resolve", D, 0, 60, false, "one volume by name"},
    [PV_SNAPSHOT] = {"snapshot", D, PA_SNAPSHOT, 600, false, "takes a native snapshot"},
    [PV_FIND] = {"find", D, PA_SNAPSHOT, 60, false, "a native snapshot by its alias"},
    [PV_LIST] = {"list", D, PA_SNAPSHOT, 120, true, "the native snapshots with this node's tag"},
    [PV_REMOVE] = {"remove", D, PA_SNAPSHOT, 600, false, "removes a native snapshot"},
    [PV_EXPOSE] = {"expose", D, PA_NATIVE_RO | PA_CLONE | PA_OVERLAY | PA_COPY_TARGET, 86400, false,
                   "makes a native snapshot readable"},
    [PV_UNEXPOSE] = {"unexpose", D, PA_NATIVE_RO | PA_CLONE | PA_OVERLAY | PA_COPY_TARGET, 600, false, "undoes expose"},
    [PV_EXPOSURES] = {"exposures", D, PA_CLONE | PA_OVERLAY | PA_COPY_TARGET, 120, true,
                      "the intermediates with this node's tag"},
    [PV_ALLOCATED] = {"allocated", D, PA_ALLOCATED, 600, true, "the extents that hold data"},
    [PV_CHANGED] = {"changed", D, PA_CHANGED, 600, true, "the extents that differ between two native snapshots"},
    [PV_POOL] = {"pool", D, PA_POOL, 60, false, "space where the class keeps its objects"},
    [PV_TARGET] = {"target", D, PA_TARGET, 600, false, "makes a staging volume to restore into"},
    [PV_TARGET_COMMIT] = {"target-commit", D, PA_TARGET, 600, false, "puts a restored volume into place"},
    [PV_TARGET_ABORT] = {"target-abort", D, PA_TARGET, 600, false, "removes a staging volume"},
    [PV_TARGET_FROM_NATIVE] = {"target-from-native", D, PA_TARGET_FROM_NATIVE, 86400, false,
                               "fills a staging volume from a native snapshot"},
    [PV_START] = {"start", M, 0, 30, false, "starts a backup and returns its id"},
    [PV_RUN] = {"run", M, PA_RUN, 0, true, "is the mover of a backup or restore"},
    [PV_PROGRESS] = {"progress", M, PA_PROGRESS, 30, false, "how far an operation is"},
    [PV_WATCH] = {"watch", M, PA_WATCH, 0, true, "the same as a stream, until it has ended"},
    [PV_CANCEL] = {"cancel", M, PA_CANCEL, 30, false, "asks an operation to end"},
    [PV_RESULT] = {"result", M, PA_RESULT, 60, false, "what a completed operation stored"},
    [PV_LOGS] = {"logs", M, PA_LOGS, 60, false, "the operation's log"},
    [PV_CLEANUP] = {"cleanup", M, PA_CLEANUP, 120, false, "ends an operation and forgets its scratch data"},
    [PV_RESTORE] = {"restore", M, PA_RESTORE, 30, false, "starts a restore and returns its id"},
    [PV_DELETE] = {"delete", M, PA_DELETE, 3600, false, "deletes what an operation stored"},
    [PV_VERIFY] = {"verify", M, PA_VERIFY, 86400, false, "reads what an operation stored"},
};

static const struct plugin_ability_info abilities[] = {
    {"snapshot", PA_SNAPSHOT, D, "takes, finds, lists and removes native snapshots"},
    {"native", PA_NATIVE_RO, D, "exposes the native snapshot itself, read-only"},
    {"clone", PA_CLONE, D, "exposes a clone of a native snapshot"},
    {"overlay", PA_OVERLAY, D, "exposes a writable overlay over a native snapshot"},
    {"copy-target", PA_COPY_TARGET, D, "holds a full copy of another class's snapshot"},
    {"allocated", PA_ALLOCATED, D, "knows which extents hold data"},
    {"changed", PA_CHANGED, D, "knows what changed between two native snapshots"},
    {"target", PA_TARGET, D, "makes volumes to restore into"},
    {"target-from-native", PA_TARGET_FROM_NATIVE, D, "fills such a volume from a native snapshot"},
    {"pool", PA_POOL, D, "knows the space of its storage"},
    {"run", PA_RUN, M, "its own process is the mover"},
    {"progress", PA_PROGRESS, M, "tells how far an operation is; without it start does all the work"},
    {"watch", PA_WATCH, M, "streams progress"},
    {"cancel", PA_CANCEL, M, "can be asked to end an operation"},
    {"result", PA_RESULT, M, "tells what an operation stored"},
    {"logs", PA_LOGS, M, "keeps a log of an operation"},
    {"cleanup", PA_CLEANUP, M, "ends an operation for good and removes its scratch data"},
    {"restore", PA_RESTORE, M, "restores what it stored"},
    {"delete", PA_DELETE, M, "deletes what it stored"},
    {"verify", PA_VERIFY, M, "checks what it stored"},
};

static const struct plugin_exit_info exits[] = {
    {1, ERR_GENERIC, EIO, "anything without a code of its own"},
    {2, ERR_USAGE, EINVAL, "the request or the class cannot work"},
    {14, ERR_BUSY, EBUSY, "something else holds what is needed"},
    {15, ERR_DAMAGE, EUCLEAN, "what was stored is damaged"},
    {PLUGIN_EXIT_NOT_FOUND, ERR_NOT_FOUND, ENOENT, "no such volume, native snapshot or operation"},
    {17, ERR_TARGET, EEXIST, "the restore target is refused: it exists, is in use, or too small"},
    {18, ERR_NO_SPACE, ENOSPC, "no space left"},
    {19, ERR_SOURCE, EIO, "the volume cannot be read"},
    {20, ERR_PERMISSION, EACCES, "permission denied"},
    {PLUGIN_EXIT_NO_VERB, ERR_GENERIC, ENOTSUP, "the plugin does not know this verb"},
    {PLUGIN_EXIT_PROTOCOL, ERR_FORMAT, EPROTO, "the plugin does not speak this version of the protocol"},
    {PLUGIN_EXIT_TEMPORARY, ERR_BUSY, EAGAIN, "not now: worth another attempt"},
};

#undef D
#undef M

const struct plugin_verb_info *plugin_verb_at(unsigned verb)
{
    return verb < PV_COUNT ? &verbs[verb] : NULL;
}

const struct plugin_ability_info *plugin_ability_at(unsigned i)
{
    return i < sizeof abilities / sizeof *abilities ? &abilities[i] : NULL;
}

const struct plugin_exit_info *plugin_exit_at(unsigned i)
{
    return i < sizeof exits / sizeof *exits ? &exits[i] : NULL;
}

const char *plugin_kind_name(enum plugin_kind k)
{
    return k == PLUGIN_DRIVER ? "driver" : k == PLUGIN_MOVER ? "mover" : "unknown";
}

unsigned plugin_timeout(const struct plugin_program *p, const struct plugin_info *info, enum plugin_verb v)
{
    unsigned ceiling = p->max_timeout_s ? p->max_timeout_s : TIMEOUT_CEILING, ours = verbs[v].timeout_s,
             theirs = info ? info->timeouts[v] : 0;
    return theirs ? (theirs < ceiling ? theirs : ceiling) : ours ? ours : ceiling;
}
