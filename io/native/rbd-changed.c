/* SPDX-License-Identifier: GPL-2.0-or-later */
/* rbd-changed.c - what differs between two snapshots of an image, as snapferry-rbd prints it */
#include "io/native/rbd.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct reading {
    struct changes *list;
    struct changed_answer *answer;
    char line[1024];
    size_t n;
    uint64_t ranges;
    bool ended;
};

static int malformed(const struct reading *x, struct err *e)
{
    return err_set(e, ERR_SOURCE, EINVAL, "snapferry-rbd: malformed line \"%.100s\" among what has changed", x->line);
}

/* Digits only. */
static const char *number(const char *s, uint64_t *ret)
{
    const char *at = s;
    *ret = 0;
    for (; *at >= '0' && *at <= '9' && at - s < 20; at++)
        *ret = *ret * 10 + (uint64_t)(*at - '0');
    return at > s && at - s < 20 ? at : NULL;
}

static int line_read(struct reading *x, struct err *e)
{
    uint64_t a, b;
    const char *p;
    if (x->ended || x->answer->state != CHANGED_LISTED)
        return malformed(x, e);
    if (strncmp(x->line, "doubt ", 6) == 0)
        return changed_doubt(x->answer, CHANGED_UNCERTAIN, "%s", x->line + 6);
    if (strncmp(x->line, "lost ", 5) == 0)
        return changed_doubt(x->answer, CHANGED_BASE_LOST, "%s", x->line + 5);
    if (strncmp(x->line, "end ", 4) == 0) {
        p = number(x->line + 4, &a);
        x->ended = p && !*p && a == x->ranges;
        return x->ended ? 0 : malformed(x, e);
    }
    p = number(x->line, &a);
    p = p && *p == ' ' ? number(p + 1, &b) : NULL;
    if (!p || *p)
        return malformed(x, e);
    x->ranges++;
    return changes_add(x->list, a, b, e);
}

static int feed(const void *part, size_t len, void *arg, struct err *e)
{
    struct reading *x = arg;
    const char *p = part;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < len; i++) {
        if (p[i] != '\n') {
            if (x->n + 1 == sizeof x->line)
                rc = malformed(x, e);
            else
                x->line[x->n++] = p[i];
            continue;
        }
        x->line[x->n] = '\0';
        x->n = 0;
        if (x->line[0] != '{') /* the reason of its failure, which its caller reads */
            rc = line_read(x, e);
    }
    return rc;
}

/* "rbd:FSID:POOL:IMAGE:SNAPSHOT" */
static const char *snap_of(const struct native *n, char image[VOLUME_ID_MAX])
{
    const char *at = strncmp(n->change_id, "rbd:", 4) == 0 ? strrchr(n->change_id, ':') : NULL;
    if (!at || at == n->change_id + 3)
        return NULL;
    snprintf(image, VOLUME_ID_MAX, "%.*s", (int)(at - n->change_id), n->change_id);
    return at + 1;
}

int rbd_changed(const struct driver_class *c, const struct native *base, const struct native *n, struct changes *list,
                struct changed_answer *ret, struct err *e)
{
    char of_base[VOLUME_ID_MAX], of_new[VOLUME_ID_MAX], name[VOLUME_NAME_MAX];
    struct reading x = {.list = list, .answer = ret};
    const char *from = snap_of(base, of_base), *to = snap_of(n, of_new);
    if (!from || !to)
        return changed_doubt(ret, CHANGED_UNCERTAIN, "the numbers of the snapshots are not known");
    if (strcmp(of_base, of_new) != 0)
        return changed_doubt(ret, CHANGED_BASE_OTHER, "%s and %s are of different images", base->handle, n->handle);
    /* POOL[/NAMESPACE]/IMAGE@SNAPSHOT */
    snprintf(name, sizeof name, "%.*s", (int)strcspn(n->handle, "@"), n->handle);
    int rc = rbd_name_check(name, e);
    if (rc < 0)
        return rc;
    char *a = strchr(name, '/'), *b = strchr(a + 1, '/');
    *a = '\0';
    if (b)
        *b = '\0';
    const char *const args[] = {"changed", name, b ? a + 1 : "", strrchr(of_new, ':') + 1, from, to, NULL};
    rc = rbd_print(c, args, feed, &x, e);
    if (rc == 0 && ret->state == CHANGED_LISTED && !x.ended)
        rc = err_set(e, ERR_SOURCE, EPIPE, "snapferry-rbd: the list of what has changed is cut off");
    return rc;
}
