/* SPDX-License-Identifier: GPL-2.0-or-later */
/* qemu-name.c - names of volumes, and of what belongs to a native snapshot in QEMU */
#include "io/native/qemu.h"

#include "base/json.h"
#include "io/volume-id.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 1

/* ---- volumes ---- */

int qemu_name_parse(struct qemu_name *ret, const char *text, struct err *e)
{
    const size_t n = sizeof QEMU_PREFIX - 1;
    const char *path = strncmp(text, QEMU_PREFIX, n) == 0 ? text + n : "", *slash = strrchr(path, '/');
    const size_t len = slash ? (size_t)(slash - path) : 0;
    memset(ret, 0, sizeof *ret);
    if (path[0] != '/' || len < 2 || !slash[1] || strstr(path, "//") || strstr(path, "/../")) {
        err_set(e, ERR_USAGE, EINVAL, "\"%.512s\" is not of the form " QEMU_PREFIX "/PATH/OF/QMP.sock/NODE", text);
        return err_hint(e, "NODE is the node-name of a drive of the machine, or a pattern of such names");
    }
    if (len >= sizeof ret->socket || strlen(slash + 1) >= sizeof ret->node)
        return err_set(e, ERR_USAGE, ENAMETOOLONG,
                       "%.512s: the path of a socket has at most %zu bytes, the name of a node %d", text,
                       sizeof ret->socket - 1, QEMU_NODE_MAX - 1);
    memcpy(ret->socket, path, len);
    strcpy(ret->node, slash + 1);
    return 0;
}

void qemu_name_text(const struct qemu_name *n, char out[VOLUME_NAME_MAX])
{
    snprintf(out, VOLUME_NAME_MAX, QEMU_PREFIX "%s/%s", n->socket, n->node);
}

void qemu_volume_id(const struct qemu_name *n, char out[VOLUME_ID_MAX])
{
    char stable[sizeof n->socket + sizeof n->node + 16];
    snprintf(stable, sizeof stable, "/qemu%s/%s", n->socket, n->node);
    device_id_text(stable, out);
}

/* Who runs a machine alone may change its block devices: it does not know of what others do there. */
static const struct manager {
    const char *name, *chardev, *nodes; /* of the machine's own monitor; how its nodes are named, NULL: not known */
    const char *instead;
    const char *sockets[4];
} managers[] = {
    {"libvirt",
     "charmonitor",
     "libvirt-",
     "make a point-in-time export of it with `virsh backup-begin` before each backup, and back that up by driver nbd "
     "(docs/nbd.md)",
     {"/var/lib/libvirt/", "/run/libvirt/", "/var/run/libvirt/", NULL}},
    {"Proxmox VE",
     "qmp-event",
     NULL,
     "back up its disks where they are stored: as image files, thin volumes of LVM, zvols or images of Ceph "
     "(docs/nbd.md)",
     {"/run/qemu-server/", "/var/run/qemu-server/", NULL}},
};

static int refuse(const struct manager *m, const char *socket, struct err *e)
{
    err_set(e, ERR_USAGE, ENOTSUP, "the machine of %s is run by %s, which alone may change its block devices", socket,
            m->name);
    return err_hint(e, "%s", m->instead);
}

int qemu_refuse_managed(const char *socket, struct err *e)
{
    for (size_t i = 0; i < sizeof managers / sizeof *managers; i++)
        for (const char *const *owned = managers[i].sockets; *owned; owned++)
            if (strncmp(socket, *owned, strlen(*owned)) == 0)
                return refuse(&managers[i], socket, e);
    return 0;
}

int qemu_refuse_monitored(const char *socket, const char *chardev, const char *node, struct err *e)
{
    for (size_t i = 0; i < sizeof managers / sizeof *managers; i++) {
        const struct manager *m = &managers[i];
        if ((chardev && strcmp(chardev, m->chardev) == 0) ||
            (node && m->nodes && strncmp(node, m->nodes, strlen(m->nodes)) == 0))
            return refuse(m, socket, e);
    }
    return 0;
}

/* ---- owner tags ---- */

/* Usual and long: not written twice. */
static void usual_operation(const struct native_tag *t, const char *id, char *out, size_t size)
{
    snprintf(out, size, "up-%s.%s", t->backup, id);
}

int qemu_tag_write(const struct qemu_tag *t, char out[QEMU_BITMAP_MAX], struct err *e)
{
    char usual[sizeof t->tag.operation];
    usual_operation(&t->tag, t->tag.volume_id, usual, sizeof usual);
    json_t *j = json_pack("[i,s,s,s,s,s,s,I,I,I]", VERSION, t->tag.alias, t->node, t->run, t->tag.backup,
                          strcmp(usual, t->tag.operation) ? t->tag.operation : "", t->tag.repository,
                          (json_int_t)t->tag.created_ns, (json_int_t)t->tag.seq, (json_int_t)t->size);
    char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
    json_decref(j);
    if (!text)
        return err_set(e, ERR_USAGE, EINVAL, "the owner tag of %.256s cannot be written", t->tag.volume_name);
    const int n = snprintf(out, QEMU_BITMAP_MAX, QEMU_OWNER "%s", text);
    free(text);
    if (n < QEMU_BITMAP_MAX)
        return 0;
    return err_set(e, ERR_USAGE, E2BIG, "the owner tag of %.256s is too long for the name of a bitmap",
                   t->tag.volume_name);
}

static bool copy_text(char *out, size_t size, const char *text)
{
    const int n = snprintf(out, size, "%s", text);
    return n >= 0 && (size_t)n < size;
}

int qemu_tag_read(const char *bitmap, struct qemu_tag *ret)
{
    const size_t n = sizeof QEMU_OWNER - 1;
    const char *alias, *node, *run, *backup, *operation, *repository;
    json_int_t version, created, seq, size;
    memset(ret, 0, sizeof *ret);
    json_t *j = strncmp(bitmap, QEMU_OWNER, n) == 0 ? json_loads(bitmap + n, 0, NULL) : NULL;
    const bool good = j &&
                      json_unpack(j, "[I,s,s,s,s,s,s,I,I,I!]", &version, &alias, &node, &run, &backup, &operation,
                                  &repository, &created, &seq, &size) == 0 &&
                      version == VERSION && alias_valid(alias) && size >= 0 && seq >= 0 &&
                      copy_text(ret->tag.alias, sizeof ret->tag.alias, alias) &&
                      copy_text(ret->node, sizeof ret->node, node) && copy_text(ret->run, sizeof ret->run, run) &&
                      copy_text(ret->tag.backup, sizeof ret->tag.backup, backup) &&
                      copy_text(ret->tag.operation, sizeof ret->tag.operation, operation) &&
                      copy_text(ret->tag.repository, sizeof ret->tag.repository, repository);
    if (good) {
        ret->tag.created_ns = created;
        ret->tag.seq = (uint64_t)seq;
        ret->size = (uint64_t)size;
    }
    json_decref(j);
    return good ? 0 : -ENODATA;
}

void qemu_tag_of(struct qemu_tag *t, const struct qemu_name *n)
{
    qemu_volume_id(n, t->tag.volume_id);
    qemu_name_text(n, t->tag.volume_name);
    if (!t->tag.operation[0])
        usual_operation(&t->tag, t->tag.volume_id, t->tag.operation, sizeof t->tag.operation);
}

void qemu_node_name(const char *alias, char what, char out[QEMU_NODE_MAX])
{
    /* 60 of the alias's random bits: names of nodes are short. */
    snprintf(out, QEMU_NODE_MAX, "snapferry-%.8s%.4s%.4s-%c", alias, alias + 9, alias + 14, what);
}

void qemu_base_name(const char *base, const char *alias, char out[QEMU_BITMAP_MAX])
{
    snprintf(out, QEMU_BITMAP_MAX, QEMU_BASE "%s:%s", base, alias);
}
