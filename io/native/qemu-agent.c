/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qemu-agent.c - file systems of a guest: frozen at the instant of a snapshot, and thawed whatever happens
 *
 * Where the guest agent is: a virtserialport called org.qemu.guest_agent.0 has a character device, whose socket QEMU
 * tells. A process of its own waits from before the freeze on: it thaws when ours ends without having done so, or
 * after FROZEN_MAX_S. It has the same connection, since the agent may have only one.
 */
#include "io/native/qemu.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "base/json.h"
#include "base/time.h"
#include "proc/descriptors.h"
#include "proc/spawn.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define AGENT_PORT "org.qemu.guest_agent.0"
#define FROZEN_MAX_S 20
#define FREEZE_S 15
#define THAW_S 10
#define THAW_TRIES 6

struct qemu_frozen {
    struct qmp *agent;
    struct spawned watchdog;
    int channel;
    int64_t began_ns;
};

/* ---- finding the agent ---- */

static int text_of(struct qmp *q, const char *path, const char *property, char *out, size_t size)
{
    CLEANUP_JSON json_t *value = NULL;
    if (qmp_call(q, "qom-get", json_pack("{s:s,s:s}", "path", path, "property", property), -1, &value, NULL) < 0 ||
        !json_is_string(value))
        return -ENOENT;
    const int n = snprintf(out, size, "%s", json_string_value(value));
    return n > 0 && (size_t)n < size ? 0 : -ENOENT;
}

/* Label of its character device. */
static int port_find(struct qmp *q, const char *container, char *label, size_t size)
{
    CLEANUP_JSON json_t *list = NULL;
    if (qmp_call(q, "qom-list", json_pack("{s:s}", "path", container), -1, &list, NULL) < 0)
        return -ENOENT;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = NULL, *type = NULL;
        char path[512], port[128];
        if (json_unpack(json_array_get(list, i), "{s:s,s:s}", "name", &name, "type", &type) < 0 ||
            strcmp(type, "child<virtserialport>") != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", container, name);
        if (text_of(q, path, "name", port, sizeof port) == 0 && strcmp(port, AGENT_PORT) == 0)
            return text_of(q, path, "chardev", label, size);
    }
    return -ENOENT;
}

/* "unix:PATH,server=on", "disconnected:unix:PATH,server=on", "unix:PATH" */
static int socket_of(const char *filename, char *out, size_t size)
{
    const char *at = strncmp(filename, "disconnected:", 13) == 0 ? filename + 13 : filename;
    if (strncmp(at, "unix:", 5) != 0)
        return -ENOENT;
    const size_t n = strcspn(at + 5, ",");
    if (n == 0 || n >= size)
        return -ENOENT;
    memcpy(out, at + 5, n);
    out[n] = '\0';
    return 0;
}

static int agent_socket(struct qmp *q, char *out, size_t size)
{
    char label[256];
    CLEANUP_JSON json_t *list = NULL;
    if (port_find(q, "/machine/peripheral", label, sizeof label) < 0 &&
        port_find(q, "/machine/peripheral-anon", label, sizeof label) < 0)
        return -ENOENT;
    if (qmp_call(q, "query-chardev", NULL, -1, &list, NULL) < 0)
        return -ENOENT;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *of = NULL, *filename = NULL;
        if (json_unpack(json_array_get(list, i), "{s:s,s:s}", "label", &of, "filename", &filename) == 0 &&
            strcmp(of, label) == 0)
            return socket_of(filename, out, size);
    }
    return -ENOENT;
}

/* ---- the watchdog ---- */

/* Until it has succeeded, or nobody is there who could: a guest with frozen file systems stands still. */
static int thaw(struct qmp *agent, struct err *e)
{
    json_int_t n;
    int rc = 0;
    for (int i = 0; i < THAW_TRIES; i++) {
        rc = agent_call(agent, "guest-fsfreeze-thaw", THAW_S, &n, e);
        if (rc != -EREMOTEIO)
            return rc;
        usleep(500000);
    }
    return rc;
}

static void watchdog_main(int channel, void *arg)
{
    int fd = -1, flags;
    char c = 0;
    struct qmp *agent = NULL;
    struct pollfd p = {.fd = channel, .events = POLLIN};
    (void)arg;
    if (poll(&p, 1, FROZEN_MAX_S * 1000) < 1 || descriptors_receive(channel, &c, 1, &fd, 1, &flags) != 1 || fd < 0)
        return; /* it has ended before it froze anything */
    if (poll(&p, 1, FROZEN_MAX_S * 1000) > 0 && recv(channel, &c, 1, 0) == 1)
        return; /* thawed */
    /* What our process had asked for may be answered only now: the answers are read one after the other. */
    if (agent_adopt(&agent, fd, NULL) == 0)
        thaw(agent, NULL);
    qmp_free(agent);
}

static int watchdog_start(struct qemu_frozen *f, struct err *e)
{
    int pair[2];
    const int fd = agent_fd(f->agent);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot make the channel of the watchdog that thaws a guest");
    const struct spawn_function w = {
        .name = "snapferry-thaw", .fn = watchdog_main, .channel = pair[1], .detached = true};
    int rc = spawn_function(&f->watchdog, &w, e);
    close(pair[1]);
    if (rc == 0 && descriptors_send(pair[0], "", 1, &fd, 1, 0) != 1)
        rc = err_set(e, ERR_GENERIC, EPIPE, "the watchdog that thaws a guest has ended");
    if (rc < 0)
        close(pair[0]);
    else
        f->channel = pair[0];
    return rc;
}

static void watchdog_end(struct qemu_frozen *f)
{
    if (f->channel >= 0) {
        (void)!send(f->channel, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        close(f->channel);
    }
    if (f->watchdog.pid > 0) {
        waitpid(f->watchdog.pid, NULL, 0);
        spawned_close(&f->watchdog);
    }
}

static void frozen_free(struct qemu_frozen *f)
{
    watchdog_end(f);
    qmp_free(f->agent);
    free(f);
}

/* ---- freezing ---- */

struct qemu_frozen *qemu_freeze(struct qmp *q, const char *socket)
{
    char path[128];
    struct err why = ERR_INIT;
    json_int_t n = 0;
    if (agent_socket(q, path, sizeof path) < 0)
        return NULL; /* the machine has no port for an agent */
    struct qemu_frozen *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->channel = -1;
    f->watchdog = (struct spawned)SPAWNED_INIT;
    int rc = agent_open(&f->agent, path, &why);
    if (rc == 0)
        rc = watchdog_start(f, &why);
    f->began_ns = mono_ns();
    if (rc == 0)
        rc = agent_call(f->agent, "guest-fsfreeze-freeze", FREEZE_S, &n, &why);
    crash_point("qemu-frozen");
    if (rc == 0) {
        log_debug("%s: %d file systems of the guest are frozen", socket, (int)n);
        return f;
    }
    log_warning("%s: the guest's file systems are not frozen, the snapshot is as of a crash: %s", socket, why.msg);
    /* What is refused is not frozen, or by somebody else. Without an answer they may be, or will be: the watchdog
     * thaws.
     */
    if (f->channel >= 0 && rc != -EREMOTEIO) {
        close(f->channel);
        f->channel = -1;
    }
    frozen_free(f);
    return NULL;
}

bool qemu_thaw(struct qemu_frozen *f)
{
    struct err why = ERR_INIT;
    if (!f)
        return true;
    const bool late = mono_ns() - f->began_ns > FROZEN_MAX_S * NS_PER_S;
    const int rc = late ? -ETIMEDOUT : thaw(f->agent, &why);
    if (rc < 0 && !late)
        log_warning("the guest is thawed by the watchdog: %s", why.msg);
    if (rc < 0) { /* its end of the channel is closed: the watchdog thaws */
        close(f->channel);
        f->channel = -1;
    }
    frozen_free(f);
    return !late;
}
