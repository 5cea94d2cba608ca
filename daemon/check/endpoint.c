/* SPDX-License-Identifier: GPL-2.0-or-later */
/* endpoint.c - checks of [metrics] against this machine */
#include "daemon/check/endpoint.h"

#include <grp.h>
#include <string.h>
#include <sys/stat.h>

static void where_of(const struct cfg *c, const char *key, char where[CFG_ORIGIN_MAX])
{
    cfg_where(c, "metrics", "", key, where);
}

static void check_group(struct cfg *c, const struct cfg_metrics *m)
{
    char buf[16384], where[CFG_ORIGIN_MAX];
    struct group g, *found = NULL;
    if (!m->unix_group[0] || (getgrnam_r(m->unix_group, &g, buf, sizeof buf, &found) == 0 && found))
        return;
    where_of(c, "unix-group", where);
    cfg_complain(c, CFG_ERROR, where, NULL, "unix-group: unknown group %s", m->unix_group);
}

/* A directory that must exist; the file in it is created by the daemon. */
static void check_directory(struct cfg *c, const char *key, const char *path)
{
    char dir[4096], where[CFG_ORIGIN_MAX];
    struct stat st;
    snprintf(dir, sizeof dir, "%s", path);
    *strrchr(dir, '/') = '\0';
    if (stat(dir[0] ? dir : "/", &st) == 0 && S_ISDIR(st.st_mode))
        return;
    where_of(c, key, where);
    cfg_complain(c, CFG_WARNING, where, "retried while the daemon runs", "%s: no directory %s", key, dir);
}

void check_endpoint(struct cfg *c)
{
    const struct cfg_metrics *m = cfg_metrics(c);
    check_group(c, m);
    if (m->listen && m->listen[0] && !strncmp(m->listen[0], "unix:/", 6))
        check_directory(c, "listen", m->listen[0] + 5);
    if (m->textfile[0] == '/')
        check_directory(c, "textfile", m->textfile);
}
