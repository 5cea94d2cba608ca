/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qemu-snapshot.c - a point in time of a drive, or one of several: made and removed in QEMU
 *
 * No two of the commands that make one are at the same instant, nor need they be: the new bitmap records from before
 * the filter is put in, and what an earlier bitmap has recorded is copied afterwards. So each list of changes has too
 * much rather than too little. All the copies are one transaction.
 *
 * The instant of several drives is one command, blockdev-reopen, which stops the requests of all nodes that it names
 * before it changes the first of them, and lets them go on after the last. A device's drive cannot be changed by it,
 * only the child of a node: so each drive gets a node above it first, for as long as it takes.
 *
 * Crash points: qemu-bitmap-made, qemu-fleece-made, qemu-filter-made, qemu-filter-inserted, qemu-bases-made,
 * qemu-exported, of several also qemu-passing, qemu-group-inserted, qemu-passing-removed, and when it ends
 * qemu-export-deleted, qemu-passing-ended, qemu-filter-removed, qemu-ended.
 */
#include "io/native/qemu.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "base/json.h"
#include "base/time.h"
#include "io/native/tag.h"
#include "proc/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* A write of the guest waits no longer for the fleecing image: then the snapshot is given up. QEMU before 9.1 has the
 * nanoseconds in 32 bits: of more than 4 s it takes the remainder. */
#define COPY_TIMEOUT_S 4
#define DELETE_S 20 /* until clients of an export are disconnected */
#define STORAGE_S 5 /* in which the storage of fleecing images answers, or is taken for one that hangs */
#define POLL_MS 50
#define FULL_PERCENT 95 /* of the target: then no fleecing image is made */

static int call(struct qmp *q, const char *command, json_t *args, struct err *e)
{
    return args ? qmp_call(q, command, args, -1, NULL, e) : err_nomem(e);
}

/* ---- the NBD server of QEMU ---- */

static uint64_t text_hash(const char *text)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return h;
}

int qemu_server_uri(const struct driver_class *c, const struct qemu_name *n, const char *alias, struct nbd_uri *ret,
                    struct err *e)
{
    memset(ret, 0, sizeof *ret);
    if (!c->target || c->target[0] != '/') {
        err_set(e, ERR_USAGE, EINVAL, "storage class \"%s\": driver qemu needs a directory for fleecing images",
                c->name);
        return err_hint(e, "set target = DIRECTORY; what guests overwrite during a backup is kept there");
    }
    const int len = snprintf(ret->socket, sizeof ret->socket, "%s/" HIDDEN_DIR "/qemu-%016" PRIx64 ".nbd", c->target,
                             text_hash(n->socket));
    if (len < 0 || (size_t)len >= sizeof ret->socket)
        return err_set(e, ERR_USAGE, ENAMETOOLONG,
                       "storage class \"%s\": the path of target is too long for a socket in it: at most %d bytes",
                       c->name,
                       (int)(sizeof ret->socket - 1) - (int)strlen("/" HIDDEN_DIR "/qemu-0123456789abcdef.nbd"));
    snprintf(ret->export, sizeof ret->export, QEMU_EXPORT "%s", alias);
    /* QEMU before 8.2 declares to be zeros what the drive has zeros in now, in structured replies too. */
    ret->no_extents = true;
    return 0;
}

static int server_socket(const char *path, bool listening, int *fd, struct err *e)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    CLEANUP_CLOSE int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot make a socket");
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    if (!listening) {
        *fd = -1;
        return connect(s, (struct sockaddr *)&a, sizeof a) == 0 || errno == EAGAIN ? 1 : 0;
    }
    /* The directory is ours alone (mode 0700): nobody can connect before the mode is set. */
    if (bind(s, (struct sockaddr *)&a, sizeof a) < 0 || chmod(path, 0600) < 0 || listen(s, 64) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot listen at %s", path);
    *fd = take_fd(&s);
    return 0;
}

static bool server_listens(const char *path)
{
    int fd;
    return server_socket(path, false, &fd, NULL) > 0;
}

static int hidden_made(const char *target, struct err *e)
{
    CLEANUP_CLOSE int dir = open(target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return err_set(e, errno == EACCES ? ERR_PERMISSION : ERR_USAGE, errno, "cannot open the target %s", target);
    const int hidden = hidden_open(dir, target, true, e);
    if (hidden < 0)
        return hidden;
    close(hidden);
    return 0;
}

/* The server has one address: if somebody else has started it, our export cannot be reached by a socket of ours. */
static int server_start(const struct driver_class *c, struct qmp *q, const struct nbd_uri *u, struct err *e)
{
    struct err why = ERR_INIT;
    int fd = -1, rc = hidden_made(c->target, e);
    if (rc < 0 || server_listens(u->socket))
        return rc;
    unlink(u->socket);
    rc = server_socket(u->socket, true, &fd, e);
    if (rc == 0)
        rc = qmp_call(q, "getfd", json_pack("{s:s}", "fdname", "snapferry-nbd"), fd, NULL, e);
    if (rc == 0) {
        rc = call(q, "nbd-server-start",
                  json_pack("{s:{s:s,s:{s:s}}}", "addr", "type", "fd", "data", "str", "snapferry-nbd"), &why);
        if (rc < 0 && e)
            *e = why;
        if (rc == -EREMOTEIO)
            err_hint(e, "if another program has started the NBD server of this machine, it has to stop it "
                        "(nbd-server-stop): there is one per machine");
    }
    if (fd >= 0)
        close(fd);
    if (rc < 0)
        unlink(u->socket);
    return rc;
}

static void server_stop(struct qmp *q, const struct qemu_state *s, const struct nbd_uri *u)
{
    struct err why = ERR_INIT;
    if (s->n_exports || !u->socket[0] || access(u->socket, F_OK) < 0)
        return;
    if (server_listens(u->socket) && qmp_call(q, "nbd-server-stop", NULL, -1, NULL, &why) < 0)
        log_warning("%s", why.msg);
    unlink(u->socket);
}

/* ---- making ---- */

struct making {
    const struct driver_class *c;
    struct qmp *q;
    const struct qemu_state *s;
    const struct qemu_name *name;
    const struct qemu_node *node;
    const struct qemu_device *device;
    const struct qemu_tag *tag;
    struct nbd_uri uri;
    char fleece[QEMU_NODE_MAX], filter[QEMU_NODE_MAX], access[QEMU_NODE_MAX], passing[QEMU_NODE_MAX];
    struct err *e;
    bool begun; /* something may have been made */
};

/* What a guest overwrites would soon fill it, for all others that use it, and the backup would fail. */
static int fleece_room(const struct making *m, int fd)
{
    struct statvfs fs;
    if (fstatvfs(fd, &fs) < 0 || fs.f_blocks == 0) /* one that does not say: found out when it is written to */
        return 0;
    const double full = 100 - 100.0 * (double)fs.f_bavail / (double)fs.f_blocks;
    if (full < FULL_PERCENT)
        return 0;
    err_plain(
        m->e, ERR_NO_SPACE, ENOSPC,
        "cannot make a fleecing image in %s: its file system is %.0f %% full, and what the guest overwrites during "
        "the backup would be kept there",
        m->c->target, full);
    return err_hint(m->e, "free space there, or set another target in the class");
}

/* Unnamed: whatever happens, the kernel frees it with the last descriptor, that of QEMU. */
static int fleece_file(const struct making *m, int *fd)
{
    struct err *e = m->e;
    CLEANUP_CLOSE int f = open(m->c->target, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (f < 0)
        return err_set(e,
                       errno == EACCES   ? ERR_PERMISSION
                       : errno == ENOENT ? ERR_USAGE
                                         : ERR_GENERIC,
                       errno, "cannot make a fleecing image in %s", m->c->target);
    int rc = fleece_room(m, f);
    if (rc < 0)
        return rc;
    if (ftruncate(f, (off_t)m->node->size) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot make a fleecing image of %" PRIu64 " bytes in %s", m->node->size,
                       m->c->target);
    *fd = take_fd(&f);
    return 0;
}

static int fleece_make(const struct making *m)
{
    CLEANUP_JSON json_t *set = NULL;
    CLEANUP_CLOSE int fd = -1;
    char path[64], mark[64];
    json_int_t id;
    int rc = fleece_file(m, &fd);
    snprintf(mark, sizeof mark, QEMU_EXPORT "%s", m->tag->tag.alias);
    if (rc == 0)
        rc = qmp_call(m->q, "add-fd", json_pack("{s:s}", "opaque", mark), fd, &set, m->e);
    if (rc == 0 && json_unpack(set, "{s:I}", "fdset-id", &id) < 0)
        rc = err_plain(m->e, ERR_SOURCE, EPROTO, "QEMU answers add-fd with what is not of its protocol");
    if (rc < 0)
        return rc;
    snprintf(path, sizeof path, "/dev/fdset/%d", (int)id);
    /* Without no-flush QEMU would write all of it to the disk when the node is deleted, and stand still meanwhile. */
    return call(m->q, "blockdev-add",
                json_pack("{s:s,s:s,s:s,s:s,s:{s:b}}", "driver", "file", "node-name", m->fleece, "filename", path,
                          "discard", "unmap", "cache", "no-flush", 1),
                m->e);
}

static int filter_make(const struct making *m)
{
    return call(m->q, "blockdev-add",
                json_pack("{s:s,s:s,s:s,s:s,s:s,s:i}", "driver", "copy-before-write", "node-name", m->filter, "file",
                          m->node->name, "target", m->fleece, "on-cbw-error", "break-snapshot", "cbw-timeout",
                          COPY_TIMEOUT_S),
                m->e);
}

static int device_set(struct qmp *q, const struct qemu_device *d, const char *node, struct err *e)
{
    return call(q, "qom-set", json_pack("{s:s,s:s,s:s}", "path", d->path, "property", "drive", "value", node), e);
}

static void thaw_late(const struct making *m)
{
    log_warning("%s/%s: the guest's file systems were frozen for too long and thawed: the snapshot is as of a crash",
                m->name->socket, m->name->node);
}

/* The instant. */
static int filter_insert(const struct making *m)
{
    struct qemu_frozen *frozen = qemu_freeze(m->q, m->name->socket);
    int rc = device_set(m->q, m->device, m->filter, m->e);
    if (!qemu_thaw(frozen))
        thaw_late(m);
    return rc;
}

static int bases_add(const struct making *m, json_t *actions, json_t *exported)
{
    for (size_t i = 0; i < m->node->n_bitmaps; i++) {
        const struct qemu_bitmap *b = &m->node->bitmap[i];
        struct qemu_tag t;
        char copy[QEMU_BITMAP_MAX];
        /* One that is not as it was made is of no use: the next backup reads everything. */
        if (qemu_tag_read(b->name, &t) < 0 || b->inconsistent || !b->recording || strcmp(t.node, m->c->node) != 0)
            continue;
        qemu_base_name(t.tag.alias, m->tag->tag.alias, copy);
        if (json_array_append_new(actions, json_pack("{s:s,s:{s:s,s:s,s:b}}", "type", "block-dirty-bitmap-add", "data",
                                                     "node", m->node->name, "name", copy, "disabled", 1)) < 0 ||
            json_array_append_new(actions,
                                  json_pack("{s:s,s:{s:s,s:s,s:[s]}}", "type", "block-dirty-bitmap-merge", "data",
                                            "node", m->node->name, "target", copy, "bitmaps", b->name)) < 0 ||
            json_array_append_new(exported, json_pack("{s:s,s:s}", "node", m->node->name, "name", copy)) < 0)
            return err_nomem(m->e);
    }
    return 0;
}

static int bases_make(const struct making *m, json_t *exported)
{
    CLEANUP_JSON json_t *actions = json_array();
    int rc = actions ? bases_add(m, actions, exported) : err_nomem(m->e);
    if (rc == 0 && json_array_size(actions))
        rc = call(m->q, "transaction", json_pack("{s:O}", "actions", actions), m->e);
    return rc;
}

static int export_make(const struct making *m, json_t *bitmaps)
{
    int rc =
        call(m->q, "blockdev-add",
             json_pack("{s:s,s:s,s:s}", "driver", "snapshot-access", "node-name", m->access, "file", m->filter), m->e);
    if (rc == 0)
        rc = server_start(m->c, m->q, &m->uri, m->e);
    if (rc == 0)
        rc = call(m->q, "block-export-add",
                  json_pack("{s:s,s:s,s:s,s:s,s:b,s:O}", "type", "nbd", "id", m->uri.export, "node-name", m->access,
                            "name", m->uri.export, "writable", 0, "bitmaps", bitmaps),
                  m->e);
    return rc;
}

/* All but `q`, `s`, `c`, `name`, `node`, `tag`, `e`. */
static int making_init(struct making *m)
{
    char other[QEMU_NODE_MAX];
    struct err *e = m->e;
    m->device = qemu_device_of(m->s, m->node, other);
    if (!m->device)
        return err_plain(e, ERR_SOURCE, ENODEV, "no device of the guest has the drive %s of %s", m->name->node,
                         m->name->socket);
    if (other[0]) {
        err_plain(e, ERR_BUSY, EBUSY, "a native snapshot of %s/%s that was taken before is still being read",
                  m->name->socket, m->name->node);
        return err_hint(e, "guests are not slowed down by two at a time: it is tried again when the other backup has "
                           "ended");
    }
    qemu_node_name(m->tag->tag.alias, 'f', m->fleece);
    qemu_node_name(m->tag->tag.alias, 'c', m->filter);
    qemu_node_name(m->tag->tag.alias, 'a', m->access);
    qemu_node_name(m->tag->tag.alias, 'p', m->passing);
    return qemu_server_uri(m->c, m->name, m->tag->tag.alias, &m->uri, e);
}

static int make_before(struct making *m)
{
    char bitmap[QEMU_BITMAP_MAX];
    int rc = qemu_tag_write(m->tag, bitmap, m->e);
    if (rc < 0)
        return rc;
    m->begun = true;
    rc = call(m->q, "block-dirty-bitmap-add",
              json_pack("{s:s,s:s,s:b}", "node", m->node->name, "name", bitmap, "persistent", 0), m->e);
    crash_point("qemu-bitmap-made");
    if (rc == 0)
        rc = fleece_make(m);
    crash_point("qemu-fleece-made");
    if (rc == 0)
        rc = filter_make(m);
    crash_point("qemu-filter-made");
    return rc;
}

static int make_after(const struct making *m)
{
    CLEANUP_JSON json_t *exported = json_array();
    int rc = exported ? bases_make(m, exported) : err_nomem(m->e);
    crash_point("qemu-bases-made");
    if (rc == 0)
        rc = export_make(m, exported);
    crash_point("qemu-exported");
    return rc;
}

static void give_up(struct making *m)
{
    struct err undo = ERR_INIT;
    if (m->begun && qemu_unmake(m->c, m->q, m->name, m->tag->tag.alias, true, &undo) < 0)
        log_warning("%s; it is removed later", undo.msg);
    m->begun = false;
}

int qemu_make(const struct driver_class *c, struct qmp *q, const struct qemu_state *s, const struct qemu_name *n,
              const struct qemu_node *node, const struct qemu_tag *t, struct err *e)
{
    struct making m = {.c = c, .q = q, .s = s, .name = n, .node = node, .tag = t, .e = e};
    int rc = making_init(&m);
    if (rc == 0)
        rc = make_before(&m);
    if (rc == 0)
        rc = filter_insert(&m);
    crash_point("qemu-filter-inserted");
    if (rc == 0)
        rc = make_after(&m);
    if (rc < 0)
        give_up(&m);
    return rc;
}

/* ---- several at one instant ---- */

static int passing_insert(const struct making *m)
{
    int rc = call(m->q, "blockdev-add",
                  json_pack("{s:s,s:s,s:s}", "driver", "raw", "node-name", m->passing, "file", m->node->name), m->e);
    if (rc == 0)
        rc = device_set(m->q, m->device, m->passing, m->e);
    crash_point("qemu-passing");
    return rc;
}

static int passing_remove(const struct making *m)
{
    int rc = device_set(m->q, m->device, m->filter, m->e);
    if (rc == 0)
        rc = call(m->q, "blockdev-del", json_pack("{s:s}", "node-name", m->passing), m->e);
    crash_point("qemu-passing-removed");
    return rc;
}

static json_t *passing_over(const char *passing, const char *node)
{
    return json_pack("{s:s,s:s,s:s}", "driver", "raw", "node-name", passing, "file", node);
}

/* The instant. All are of one machine. */
static int filters_insert(const struct making *m, size_t n, struct err *e)
{
    CLEANUP_JSON json_t *nodes = json_array();
    for (size_t i = 0; i < n; i++)
        if (m[i].begun && json_array_append_new(nodes, passing_over(m[i].passing, m[i].filter)) < 0)
            return err_nomem(e);
    struct qemu_frozen *frozen = qemu_freeze(m->q, m->name->socket);
    int rc = call(m->q, "blockdev-reopen", json_pack("{s:O}", "options", nodes), e);
    if (!qemu_thaw(frozen))
        thaw_late(m);
    crash_point("qemu-group-inserted");
    return rc == -EREMOTEIO ? -ENOTSUP : rc;
}

static int make_group(struct making *m, size_t n, struct err *e)
{
    size_t begun = 0;
    for (size_t i = 0; i < n; i++) {
        int rc = making_init(&m[i]);
        if (rc == 0)
            rc = make_before(&m[i]);
        if (rc == 0)
            rc = passing_insert(&m[i]);
        if (rc < 0)
            give_up(&m[i]);
        begun += m[i].begun;
    }
    int rc = begun ? filters_insert(m, n, e) : 0;
    for (size_t i = 0; i < n; i++) {
        if (!m[i].begun)
            continue;
        if (rc < 0 || passing_remove(&m[i]) < 0 || make_after(&m[i]) < 0)
            give_up(&m[i]);
    }
    return rc;
}

int qemu_make_group(struct qmp *q, const struct qemu_state *s, const struct qemu_member *of, size_t n, struct err *e)
{
    CLEANUP_FREE struct making *m = calloc(n, sizeof *m);
    if (!m)
        return err_nomem(e);
    for (size_t i = 0; i < n; i++)
        m[i] = (struct making){
            .c = of[i].c, .q = q, .s = s, .name = of[i].name, .node = of[i].node, .tag = of[i].tag, .e = of[i].err};
    return make_group(m, n, e);
}

/* ---- removing ---- */

static int state_again(struct qmp *q, struct qemu_state *s, struct err *e)
{
    qemu_state_free(s);
    return qemu_state_read(q, s, e);
}

static int export_delete(struct qmp *q, struct qemu_state *s, const char *id, struct err *e)
{
    const int64_t deadline = mono_ns() + DELETE_S * NS_PER_S;
    int rc = 0;
    if (!qemu_export_exists(s, id))
        return 0;
    rc = call(q, "block-export-del", json_pack("{s:s,s:s}", "id", id, "mode", "hard"), e);
    /* One that is shutting down already is refused, and gone soon. */
    if (rc == -EREMOTEIO)
        rc = 0;
    while (rc == 0 && (rc = state_again(q, s, e)) == 0 && qemu_export_exists(s, id)) {
        if (mono_ns() > deadline)
            return err_plain(e, ERR_BUSY, EBUSY, "QEMU does not end the export %s", id);
        usleep(POLL_MS * 1000);
    }
    return rc;
}

static int node_delete(struct qmp *q, const struct qemu_state *s, const char *node, struct err *e)
{
    return qemu_node_find(s, node) ? call(q, "blockdev-del", json_pack("{s:s}", "node-name", node), e) : 0;
}

static void storage_write(int channel, void *arg)
{
    const char *target = arg;
    (void)channel;
    CLEANUP_CLOSE int fd = open(target, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0 && pwrite(fd, "", 1, 0) == 1)
        fdatasync(fd);
}

/* Whether what begins to write to the target ends in time, well or not: in a process that may hang in place of ours. */
static int storage_probe(const char *target, bool *answers, struct err *e)
{
    int ends[2];
    struct spawned p;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot make a pipe");
    const struct spawn_function f = {.name = "snapferry-probe",
                                     .fn = storage_write,
                                     .arg = (void *)target,
                                     .channel = ends[1],
                                     .no_standard = true,
                                     .dies_with_parent = true};
    int rc = spawn_function(&p, &f, e);
    close(ends[1]);
    if (rc == 0) {
        struct pollfd end = {.fd = ends[0]};
        *answers = poll(&end, 1, STORAGE_S * 1000) > 0;
        kill(p.pid, SIGKILL);
        if (*answers) /* else it ends when the storage lets it, and whoever adopts it waits for it */
            waitpid(p.pid, NULL, 0);
        spawned_close(&p);
    }
    close(ends[0]);
    return rc;
}

/* QEMU removes a filter only when all that it was copying has ended, and does nothing else until then, nor while it
 * removes the socket of its NBD server: if the storage of the target hangs, so would the machine. With all in place its
 * guest goes on. */
static int storage_check(const struct driver_class *c, struct err *e)
{
    bool answers = true;
    int rc = c->target && c->target[0] == '/' ? storage_probe(c->target, &answers, e) : 0;
    if (rc < 0 || answers)
        return rc;
    err_plain(
        e, ERR_BUSY, EBUSY,
        "the storage of its fleecing image (%s) does not answer: to remove it now would stop the machine until it "
        "does",
        c->target);
    return err_hint(e, "it is removed when %s answers again; until then the guest goes on with it", c->target);
}

/* Puts the drive back under its device. */
static int filter_remove(struct qmp *q, const struct qemu_state *s, const struct qemu_name *n, const char *filter,
                         struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->n_devices; i++)
        if (strcmp(s->device[i].root, filter) == 0)
            rc = device_set(q, &s->device[i], n->node, e);
    return rc < 0 ? rc : node_delete(q, s, filter, e);
}

/* One that was not removed at once. If the filter is below it, QEMU refuses to give the drive to the device as long as
 * that has a parent. */
static int passing_end(struct qmp *q, const struct qemu_state *s, const struct qemu_name *n, const char *passing,
                       struct err *e)
{
    struct err why = ERR_INIT;
    int rc = filter_remove(q, s, n, passing, &why);
    if (rc == 0)
        return 0;
    rc = call(q, "blockdev-reopen", json_pack("{s:[o]}", "options", passing_over(passing, n->node)), e);
    return rc < 0 ? rc : filter_remove(q, s, n, passing, e);
}

static int descriptors_close(struct qmp *q, const char *alias, struct err *e)
{
    CLEANUP_JSON json_t *sets = NULL;
    char mark[64];
    snprintf(mark, sizeof mark, QEMU_EXPORT "%s", alias);
    int rc = qmp_call(q, "query-fdsets", NULL, -1, &sets, e);
    for (size_t i = 0; rc == 0 && i < json_array_size(sets); i++) {
        json_int_t id;
        json_t *fds;
        const char *opaque = NULL;
        if (json_unpack(json_array_get(sets, i), "{s:I,s:o}", "fdset-id", &id, "fds", &fds) == 0 &&
            json_unpack(json_array_get(fds, 0), "{s:s}", "opaque", &opaque) == 0 && strcmp(opaque, mark) == 0)
            rc = call(q, "remove-fd", json_pack("{s:I}", "fdset-id", id), e);
    }
    return rc;
}

/* Those of other snapshots are in use while they are exported, and are removed with them. */
static bool is_of(const struct qemu_bitmap *b, const char *alias)
{
    const size_t n = sizeof QEMU_BASE - 1;
    if (strncmp(b->name, QEMU_BASE, n) != 0 || strlen(b->name) != n + 2 * ALIAS_LEN + 1)
        return false;
    return strcmp(b->name + n + ALIAS_LEN + 1, alias) == 0 || (!b->busy && strncmp(b->name + n, alias, ALIAS_LEN) == 0);
}

static int bitmaps_remove(struct qmp *q, const struct qemu_node *node, const char *alias, bool all, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < node->n_bitmaps; i++) {
        const struct qemu_bitmap *b = &node->bitmap[i];
        if (is_of(b, alias))
            rc = call(q, "block-dirty-bitmap-remove", json_pack("{s:s,s:s}", "node", node->name, "name", b->name), e);
    }
    for (size_t i = 0; rc == 0 && all && i < node->n_bitmaps; i++) {
        struct qemu_tag t;
        const struct qemu_bitmap *b = &node->bitmap[i];
        if (qemu_tag_read(b->name, &t) == 0 && strcmp(t.tag.alias, alias) == 0)
            rc = call(q, "block-dirty-bitmap-remove", json_pack("{s:s,s:s}", "node", node->name, "name", b->name), e);
    }
    return rc;
}

int qemu_unmake(const struct driver_class *c, struct qmp *q, const struct qemu_name *n, const char *alias, bool all,
                struct err *e)
{
    char name[QEMU_NODE_MAX], export[64];
    struct nbd_uri u = {.socket = ""};
    struct qemu_state s;
    snprintf(export, sizeof export, QEMU_EXPORT "%s", alias);
    if (qemu_server_uri(c, n, alias, &u, NULL) < 0) /* of a class whose target was taken away */
        u.socket[0] = '\0';
    int rc = qemu_state_read(q, &s, e);
    if (rc < 0)
        return rc;
    qemu_node_name(alias, 'f', name);
    if (qemu_node_find(&s, name))
        rc = storage_check(c, e);
    if (rc == 0)
        rc = export_delete(q, &s, export, e);
    if (rc == 0)
        server_stop(q, &s, &u);
    crash_point("qemu-export-deleted");
    qemu_node_name(alias, 'a', name);
    if (rc == 0)
        rc = node_delete(q, &s, name, e);
    qemu_node_name(alias, 'p', name);
    if (rc == 0)
        rc = passing_end(q, &s, n, name, e);
    crash_point("qemu-passing-ended");
    qemu_node_name(alias, 'c', name);
    if (rc == 0)
        rc = filter_remove(q, &s, n, name, e);
    crash_point("qemu-filter-removed");
    qemu_node_name(alias, 'f', name);
    if (rc == 0)
        rc = node_delete(q, &s, name, e);
    if (rc == 0)
        rc = descriptors_close(q, alias, e);
    if (rc == 0)
        rc = state_again(q, &s, e);
    const struct qemu_node *node = rc == 0 ? qemu_node_find(&s, n->node) : NULL;
    if (node)
        rc = bitmaps_remove(q, node, alias, all, e);
    crash_point("qemu-ended");
    qemu_state_free(&s);
    return rc < 0 ? err_wrap(e, "native snapshot %s of %s/%s", alias, n->socket, n->node) : 0;
}
