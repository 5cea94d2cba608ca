/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "proc/user.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <unistd.h>

int user_find(struct user *ret, const char *name, bool groups, struct err *e)
{
    *ret = (struct user){.uid = geteuid(), .gid = getegid()};
    if (!name || !*name || geteuid() != 0)
        return 0;
    char buf[16384];
    struct passwd pw, *found = NULL;
    int rc = getpwnam_r(name, &pw, buf, sizeof buf, &found);
    if (rc)
        return err_set(e, ERR_GENERIC, rc, "cannot look up user \"%s\"", name);
    if (!found)
        return -ENOENT;
    struct user u = {.change = true, .uid = pw.pw_uid, .gid = pw.pw_gid, .n_groups = groups ? USER_GROUPS_MAX : 0};
    if (groups && getgrouplist(name, pw.pw_gid, u.groups, &u.n_groups) < 0)
        return err_set(e, ERR_GENERIC, E2BIG, "user \"%s\" is in too many groups", name);
    *ret = u;
    return 0;
}

int user_become(const struct user *u)
{
    if (!u->change)
        return 0;
    if (setgroups((size_t)u->n_groups, u->groups) < 0 || setresgid(u->gid, u->gid, u->gid) < 0 ||
        setresuid(u->uid, u->uid, u->uid) < 0)
        return -errno;
    return 0;
}
