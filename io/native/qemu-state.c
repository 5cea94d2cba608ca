/* SPDX-License-Identifier: GPL-2.0-or-later */
/* qemu-state.c - what a virtual machine has: block nodes, devices of the guest, bitmaps, exports */
#include "io/native/qemu.h"

#include "base/cleanup.h"
#include "base/json.h"
#include "proc/process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int malformed(const char *command, struct err *e)
{
    return err_plain(e, ERR_SOURCE, EPROTO, "QEMU answers %s with what is not of its protocol", command);
}

/* ---- reading answers ---- */

static int bitmaps_parse(struct qemu_node *n, json_t *list, struct err *e)
{
    const size_t count = json_array_size(list);
    if (list && !json_is_array(list))
        return malformed("query-named-block-nodes", e);
    if (count && !(n->bitmap = calloc(count, sizeof *n->bitmap)))
        return err_nomem(e);
    for (size_t i = 0; i < count; i++) {
        int recording, busy, persistent, inconsistent = 0;
        const char *name = NULL; /* those of filters have none */
        if (json_unpack(json_array_get(list, i), "{s?s,s:b,s:b,s:b,s?b}", "name", &name, "recording", &recording,
                        "busy", &busy, "persistent", &persistent, "inconsistent", &inconsistent) < 0)
            return malformed("query-named-block-nodes", e);
        if (name)
            n->bitmap[n->n_bitmaps++] = (struct qemu_bitmap){name, recording, busy, persistent, inconsistent};
    }
    return 0;
}

static int nodes_parse(struct qemu_state *s, struct err *e)
{
    const size_t count = json_array_size(s->nodes);
    if (!json_is_array(s->nodes))
        return malformed("query-named-block-nodes", e);
    if (count && !(s->node = calloc(count, sizeof *s->node)))
        return err_nomem(e);
    for (size_t i = 0; i < count; i++) {
        struct qemu_node *n = &s->node[s->n_nodes];
        json_int_t size;
        int read_only;
        json_t *bitmaps = NULL;
        if (json_unpack(json_array_get(s->nodes, i), "{s:s,s:s,s:b,s:{s:I},s?o}", "node-name", &n->name, "drv",
                        &n->driver, "ro", &read_only, "image", "virtual-size", &size, "dirty-bitmaps", &bitmaps) < 0 ||
            size < 0)
            return malformed("query-named-block-nodes", e);
        n->size = (uint64_t)size;
        n->read_only = read_only;
        s->n_nodes++;
        int rc = bitmaps_parse(n, bitmaps, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* A drive without medium, or one that no device of the guest has, is none. */
static int devices_parse(struct qemu_state *s, struct err *e)
{
    const size_t count = json_array_size(s->blocks);
    if (!json_is_array(s->blocks))
        return malformed("query-block", e);
    if (count && !(s->device = calloc(count, sizeof *s->device)))
        return err_nomem(e);
    for (size_t i = 0; i < count; i++) {
        const char *path = NULL, *root = NULL;
        json_t *entry = json_array_get(s->blocks, i), *inserted = NULL;
        if (json_unpack(entry, "{s?s,s?o}", "qdev", &path, "inserted", &inserted) < 0 ||
            (inserted && json_unpack(inserted, "{s?s}", "node-name", &root) < 0))
            return malformed("query-block", e);
        if (path && root)
            s->device[s->n_devices++] = (struct qemu_device){path, root};
    }
    return 0;
}

static int exports_parse(struct qemu_state *s, struct err *e)
{
    const size_t count = json_array_size(s->exports_doc);
    if (!json_is_array(s->exports_doc))
        return malformed("query-block-exports", e);
    if (count && !(s->export = calloc(count, sizeof *s->export)))
        return err_nomem(e);
    for (size_t i = 0; i < count; i++)
        if (json_unpack(json_array_get(s->exports_doc, i), "{s:s}", "id", &s->export[s->n_exports++]) < 0)
            return malformed("query-block-exports", e);
    return 0;
}

int qemu_state_parse(struct qemu_state *ret, json_t *nodes, json_t *blocks, json_t *exports, struct err *e)
{
    *ret = (struct qemu_state){.nodes = nodes, .blocks = blocks, .exports_doc = exports};
    int rc = nodes_parse(ret, e);
    if (rc == 0)
        rc = devices_parse(ret, e);
    if (rc == 0)
        rc = exports_parse(ret, e);
    if (rc < 0)
        qemu_state_free(ret);
    return rc;
}

void qemu_state_free(struct qemu_state *s)
{
    for (size_t i = 0; i < s->n_nodes; i++)
        free(s->node[i].bitmap);
    free(s->node);
    free(s->device);
    free(s->export);
    json_decref(s->nodes);
    json_decref(s->blocks);
    json_decref(s->exports_doc);
    memset(s, 0, sizeof *s);
}

int qemu_state_read(struct qmp *q, struct qemu_state *ret, struct err *e)
{
    json_t *nodes = NULL, *blocks = NULL, *exports = NULL;
    struct process_identity id;
    memset(ret, 0, sizeof *ret);
    int rc = qmp_call(q, "query-named-block-nodes", json_pack("{s:b}", "flat", 1), -1, &nodes, e);
    if (rc == 0)
        rc = qmp_call(q, "query-block", NULL, -1, &blocks, e);
    if (rc == 0)
        rc = qmp_call(q, "query-block-exports", NULL, -1, &exports, e);
    if (rc < 0) {
        json_decref(nodes);
        json_decref(blocks);
        json_decref(exports);
        return rc;
    }
    rc = qemu_state_parse(ret, nodes, blocks, exports, e);
    if (rc == 0 && qmp_peer(q) > 0 && process_identify(&id, qmp_peer(q)) == 0)
        process_id_text(&id, ret->run, sizeof ret->run);
    return rc;
}

/* ---- looking ---- */

const struct qemu_node *qemu_node_find(const struct qemu_state *s, const char *name)
{
    for (size_t i = 0; i < s->n_nodes; i++)
        if (strcmp(s->node[i].name, name) == 0)
            return &s->node[i];
    return NULL;
}

const struct qemu_bitmap *qemu_bitmap_find(const struct qemu_node *n, const char *name)
{
    for (size_t i = 0; i < n->n_bitmaps; i++)
        if (strcmp(n->bitmap[i].name, name) == 0)
            return &n->bitmap[i];
    return NULL;
}

bool qemu_export_exists(const struct qemu_state *s, const char *id)
{
    for (size_t i = 0; i < s->n_exports; i++)
        if (strcmp(s->export[i], id) == 0)
            return true;
    return false;
}

const struct qemu_device *qemu_device_of(const struct qemu_state *s, const struct qemu_node *n,
                                         char filter[QEMU_NODE_MAX])
{
    filter[0] = '\0';
    for (size_t i = 0; i < s->n_devices; i++)
        if (strcmp(s->device[i].root, n->name) == 0)
            return &s->device[i];
    for (size_t b = 0; b < n->n_bitmaps; b++) {
        struct qemu_tag t;
        if (qemu_tag_read(n->bitmap[b].name, &t) < 0)
            continue;
        for (const char *what = "cp"; *what; what++) {
            qemu_node_name(t.tag.alias, *what, filter);
            for (size_t i = 0; i < s->n_devices; i++)
                if (strcmp(s->device[i].root, filter) == 0)
                    return &s->device[i];
        }
    }
    filter[0] = '\0';
    return NULL;
}

const struct qemu_bitmap *qemu_ours(const struct qemu_state *s, const char *alias, const struct qemu_node **node,
                                    struct qemu_tag *t)
{
    for (size_t i = 0; i < s->n_nodes; i++)
        for (size_t b = 0; b < s->node[i].n_bitmaps; b++)
            if (qemu_tag_read(s->node[i].bitmap[b].name, t) == 0 && strcmp(t->tag.alias, alias) == 0) {
                *node = &s->node[i];
                return &s->node[i].bitmap[b];
            }
    return NULL;
}

/* ---- connecting ---- */

/* A second socket of a machine that another program runs can be given by its administrator. */
static int refuse_managed(struct qmp *q, const struct qemu_state *s, const char *socket, struct err *e)
{
    CLEANUP_JSON json_t *list = NULL;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->n_nodes; i++)
        rc = qemu_refuse_monitored(socket, NULL, s->node[i].name, e);
    if (rc == 0)
        rc = qmp_call(q, "query-chardev", NULL, -1, &list, e);
    for (size_t i = 0; rc == 0 && i < json_array_size(list); i++)
        rc = qemu_refuse_monitored(socket, json_string_value(json_object_get(json_array_get(list, i), "label")), NULL,
                                   e);
    return rc;
}

/* Older ones end by an assertion when a client leaves the export of a drive that is at home in an iothread (seen with
 * 7.2 of Debian 12): never risk a machine for its backup. */
#define IOTHREADS_MAJOR 9

static int refuse_iothreads(struct qmp *q, const char *socket, struct err *e)
{
    CLEANUP_JSON json_t *list = NULL;
    if (qmp_major(q) >= IOTHREADS_MAJOR)
        return 0;
    int rc = qmp_call(q, "query-iothreads", NULL, -1, &list, e);
    if (rc < 0 || json_array_size(list) == 0)
        return rc;
    err_set(e, ERR_USAGE, ENOTSUP,
            "the machine of %s has iothreads: exporting its drives is safe with QEMU %d.0 or newer only, this is %d",
            socket, IOTHREADS_MAJOR, qmp_major(q));
    return err_hint(e,
                    "run the machine with a newer QEMU or without iothreads, or back up its images by driver reflink "
                    "or lvm-thin");
}

int qemu_machine_open(struct qemu_machine *m, const char *socket, struct err *e)
{
    memset(m, 0, sizeof *m);
    int rc = qemu_refuse_managed(socket, e);
    if (rc == 0)
        rc = qmp_open(&m->q, socket, e);
    if (rc == 0)
        rc = qemu_state_read(m->q, &m->s, e);
    if (rc == 0)
        rc = refuse_managed(m->q, &m->s, socket, e);
    if (rc == 0)
        rc = refuse_iothreads(m->q, socket, e);
    if (rc < 0)
        qemu_machine_close(m);
    return rc;
}

int qemu_machine_again(struct qemu_machine *m, struct err *e)
{
    qemu_state_free(&m->s);
    return qemu_state_read(m->q, &m->s, e);
}

void qemu_machine_close(struct qemu_machine *m)
{
    qemu_state_free(&m->s);
    qmp_freep(&m->q);
    m->q = NULL;
}
