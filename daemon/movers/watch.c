/* SPDX-License-Identifier: GPL-2.0-or-later */
/* watch.c - look-up of movers, and the end of their processes */
#include "daemon/movers/builtin-impl.h"

#include <string.h>
#include <unistd.h>

struct mover *mover_find(const struct builtin_movers *m, const char *operation)
{
    for (struct mover *v = m->list; v; v = v->next)
        if (!strcmp(v->operation, operation))
            return v;
    return NULL;
}

static int on_pid(sd_event_source *s, int fd, uint32_t events, void *arg)
{
    struct mover *v = arg;
    (void)s;
    (void)fd;
    (void)events;
    v->owner->ops->gone(v);
    return 0;
}

int mover_watch(struct mover *v, pid_t pid, struct err *e)
{
    if (v->id.pid)
        return 0;
    int fd = process_open_pid(pid);
    if (fd < 0)
        return err_set(e, ERR_GENERIC, -fd, "cannot watch the mover of %s (process %d)", v->operation, (int)pid);
    uint64_t start;
    int rc = process_start_time(pid, &start);
    if (rc == 0)
        rc = sd_event_add_io(v->owner->loop, &v->pid_source, fd, EPOLLIN, on_pid, v);
    if (rc < 0) {
        close(fd);
        return err_set(e, ERR_GENERIC, -rc, "cannot watch the mover of %s (process %d)", v->operation, (int)pid);
    }
    v->pidfd = fd;
    v->id.pid = pid;
    v->id.start_time = start;
    if (!v->id.boot_id[0])
        boot_id(v->id.boot_id);
    return 0;
}
