/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "proc/socket-program.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "proc/program-path.h"
#include "proc/program-unit.h"
#include "proc/spawn.h"
#include "proc/systemd.h"
#include "proc/unit-property.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <systemd/sd-id128.h>
#include <unistd.h>

#define MANAGER "org.freedesktop.systemd1"
#define MANAGER_PATH "/org/freedesktop/systemd1"

static void bus_freep(sd_bus **bus)
{
    sd_bus_flush_close_unref(*bus);
}

static void message_freep(sd_bus_message **m)
{
    sd_bus_message_unref(*m);
}

static void command_freep(char ***command)
{
    program_command_free(*command);
}

/* ---- as a unit ---- */

static void describe(struct unit_properties *u, const struct program *p, char *const *command, int in, int out)
{
    char text[512];
    snprintf(text, sizeof text, "snapferry: %s", p->label);
    unit_put_string(u, "Description", text);
    unit_put_string(u, "CollectMode", "inactive-or-failed");
    unit_put_string(u, "SyslogIdentifier", "snapferry");
    unit_put_bool(u, "NoNewPrivileges", true);
    unit_put_fd(u, "StandardInputFileDescriptor", in);
    unit_put_fd(u, "StandardOutputFileDescriptor", out);
    unit_put_command(u, (const char *const *)command);
}

static int unit_message(sd_bus *bus, const struct program *p, char *const *command, int in, int out,
                        sd_bus_message **ret)
{
    char name[128];
    sd_id128_t id;
    int rc = sd_id128_randomize(&id);
    if (rc < 0)
        return rc;
    snprintf(name, sizeof name, "snapferry-serve-" SD_ID128_FORMAT_STR ".service", SD_ID128_FORMAT_VAL(id));
    rc = sd_bus_message_new_method_call(bus, ret, MANAGER, MANAGER_PATH, MANAGER ".Manager", "StartTransientUnit");
    if (rc >= 0)
        rc = sd_bus_message_append(*ret, "ss", name, "fail");
    if (rc >= 0)
        rc = sd_bus_message_open_container(*ret, 'a', "(sv)");
    if (rc < 0)
        return rc;
    struct unit_properties u = {.m = *ret};
    describe(&u, p, command, in, out);
    rc = u.rc < 0 ? u.rc : sd_bus_message_close_container(*ret);
    return rc < 0 ? rc : sd_bus_message_append(*ret, "a(sa(sv))", 0);
}

static int start_unit(const struct program *p, int in, int out, struct err *e)
{
    CLEANUP(bus_freep) sd_bus *bus = NULL;
    CLEANUP(message_freep) sd_bus_message *m = NULL;
    CLEANUP(command_freep) char **command = NULL;
    sd_bus_error error = SD_BUS_ERROR_NULL;
    int rc = program_check(p->label, p->argv[0], e);
    if (rc == 0)
        rc = program_command_make(&command, p, p->env, e);
    if (rc < 0)
        return rc;
    rc = systemd_bus_open(&bus);
    if (rc >= 0)
        rc = unit_message(bus, p, command, in, out, &m);
    if (rc >= 0)
        rc = sd_bus_call(bus, m, 0, &error, NULL);
    if (rc < 0)
        err_set(e, ERR_GENERIC, -rc, "%s: systemd does not start it%s%s", p->label, error.message ? ": " : "",
                error.message ? error.message : "");
    sd_bus_error_free(&error);
    return rc < 0 ? rc : 0;
}

/* ---- as a child, which is not waited for ---- */

static int start_child(const struct program *p, int in, int out, struct err *e)
{
    struct spawn s = SPAWN_INIT;
    struct spawned child = SPAWNED_INIT;
    struct spawn_report r;
    const struct user nobody_else = {.change = false};
    CLEANUP_CLOSE int program = -1;
    int rc = program_open(p->label, p->argv[0], &program, e);
    if (rc < 0)
        return rc;
    s.argv = (const char *const *)p->argv;
    s.program = program;
    s.env = p->env;
    s.in = in;
    s.out = out;
    s.user = &nobody_else;
    rc = spawn_program(&child, &s, e);
    if (rc < 0)
        return err_wrap(e, "%s", p->label);
    rc = spawn_begun(&child, &r);
    if (rc < 0)
        err_set(e, ERR_GENERIC, -rc, "%s: cannot start %s", p->label, p->argv[0]);
    spawned_close(&child);
    return rc;
}

/* ---- both ---- */

static int hear(const struct program *p, int fd, char *said, size_t size, struct err *e)
{
    const int64_t end = mono_ns() + (int64_t)p->timeout_s * NS_PER_S;
    size_t n = 0;
    bool ended = false;
    /* systemd keeps the pipe open as long as the unit runs. */
    while (!ended) {
        char more[512];
        const int64_t left = (end - mono_ns()) / NS_PER_MS;
        struct pollfd f = {.fd = fd, .events = POLLIN};
        if (left <= 0)
            return err_plain(e, ERR_SOURCE, ETIMEDOUT, "%s: %s is not ready after %u s", p->label, p->argv[0],
                             p->timeout_s);
        if (poll(&f, 1, left > 60000 ? 60000 : (int)left) <= 0)
            continue;
        const ssize_t k = read(fd, more, sizeof more);
        ended = k == 0 || (k < 0 && errno != EINTR);
        for (ssize_t i = 0; i < k && !ended; i++) {
            ended = more[i] == '\n';
            if (!ended && n + 1 < size)
                said[n++] = more[i];
        }
    }
    said[n] = '\0';
    return 0;
}

int socket_program_start(const struct program *p, int *socket, char *said, size_t size, struct err *e)
{
    int pair[2], out[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(e, ERR_GENERIC, errno, "%s: cannot make a socket", p->label);
    CLEANUP_CLOSE int ours = pair[0], theirs = pair[1];
    if (pipe2(out, O_CLOEXEC) < 0)
        return err_set(e, ERR_GENERIC, errno, "%s: cannot create a pipe", p->label);
    CLEANUP_CLOSE int from = out[0], to = out[1];
    int rc = (systemd_runs() ? start_unit : start_child)(p, theirs, to, e);
    close(take_fd(&theirs));
    close(take_fd(&to));
    if (rc == 0)
        rc = hear(p, from, said, size, e);
    if (rc == 0)
        *socket = take_fd(&ours);
    return rc;
}
