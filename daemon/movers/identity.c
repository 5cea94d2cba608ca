/* SPDX-License-Identifier: GPL-2.0-or-later */
/* identity.c - the identity of a mover's process in an operation's record */
#include "daemon/movers/movers.h"

#include <errno.h>
#include <string.h>

json_t *mover_identity_to_json(const struct process_identity *i)
{
    return json_pack("{s:i, s:I, s:s, s:s}", "pid", (int)i->pid, "startTime", (json_int_t)i->start_time, "bootId",
                     i->boot_id, "unit", i->unit);
}

int mover_identity_from_json(struct process_identity *ret, const json_t *j, struct err *e)
{
    *ret = (struct process_identity){0};
    const json_t *pid = json_object_get(j, "pid"), *start = json_object_get(j, "startTime");
    const char *boot = json_string_value(json_object_get(j, "bootId"));
    const char *unit = json_string_value(json_object_get(j, "unit"));
    if (!json_is_integer(pid) || json_integer_value(pid) <= 1 || json_integer_value(pid) > INT32_MAX ||
        !json_is_integer(start) || json_integer_value(start) < 0 || !boot || strlen(boot) >= sizeof ret->boot_id ||
        !unit || strlen(unit) >= sizeof ret->unit)
        return err_set(e, ERR_GENERIC, EBADMSG, "no valid process identity in the record");
    ret->pid = (pid_t)json_integer_value(pid);
    ret->start_time = (uint64_t)json_integer_value(start);
    strcpy(ret->boot_id, boot);
    strcpy(ret->unit, unit);
    return 0;
}
