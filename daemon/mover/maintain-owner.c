/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * maintain-owner.c - an owner of maintenance that does not run it any more
 *
 * A node that is lost would otherwise own it for ever, and no space would come back. Only what belongs to a snapferry
 * is taken: a stock client has no daemon that must run, and its owner may have switched it off elsewhere.
 */
#include "daemon/mover/maintain.h"

#include "base/time.h"
#include "repo/copy.h"

#include <string.h>

bool maintain_of_another_machine(const struct maintenance_params *p, const char *machine)
{
    return p->machine[0] && machine && *machine && strcmp(p->machine, machine) != 0;
}

int maintain_silent_since(struct repo *r, const struct maintenance_params *p, int64_t *ret, struct err *e)
{
    struct maintenance_schedule s;
    *ret = INT64_MIN;
    const int copy = copy_is_marked(repo_blobs(r), e);
    int rc = copy ? copy : maintenance_load(r, &s, e);
    if (rc < 0 || copy)
        return rc < 0 ? rc : 0;
    *ret = maintenance_silent_since(p, &s, now_ns());
    maintenance_clear(&s);
    return 0;
}

int maintain_take_over(struct repo *r, const struct maintenance_params *p, int64_t silent_ns, const char *owner,
                       const char *machine, struct err *e)
{
    if (silent_ns == INT64_MIN || strncmp(p->owner, MAINTAIN_OWNER, strlen(MAINTAIN_OWNER)) != 0 ||
        !repo_format(r)->epochs.enabled)
        return 0;
    const int rc = maintenance_take(r, owner, machine ? machine : "", e);
    return rc < 0 ? rc : 1;
}
