/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * program-unit.c - a program in a transient unit of its own
 *
 * The unit gets the standard descriptors of its caller (`--pipe`), its end is the exit status of systemd-run
 * (`--wait`), and `--collect` removes a failed unit. RuntimeMaxSec is a fallback: if this process and its guard are
 * both killed, the manager terminates the program.
 */
#include "proc/program-unit.h"
#include "proc/program-path.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SYSTEMD_RUN "/usr/bin/systemd-run"
#define SYSTEMCTL "/usr/bin/systemctl"

static void free_list(char **list)
{
    for (size_t i = 0; list && list[i]; i++)
        free(list[i]);
    free(list);
}

void program_unit_free(struct program_unit *u)
{
    free_list(u->run);
    free_list(u->stop);
    u->run = u->stop = NULL;
}

static size_t count(const char *const *list)
{
    size_t n = 0;
    while (list && list[n])
        n++;
    return n;
}

/* The manager expands $NAME in the arguments of a unit: "$$" is the character itself. */
static char *escape_dollars(const char *s)
{
    char *ret = malloc(2 * strlen(s) + 1), *w = ret;
    if (!ret)
        return NULL;
    for (; *s; s++) {
        if (*s == '$')
            *w++ = '$';
        *w++ = *s;
    }
    *w = '\0';
    return ret;
}

struct list {
    char **v;
    size_t n;
    bool failed;
};

static void args_add(struct list *l, char *s)
{
    if (!s)
        l->failed = true;
    else
        l->v[l->n++] = s;
}

static void args_add_pair(struct list *l, const char *name, const char *value)
{
    char *s = NULL;
    args_add(l, asprintf(&s, "%s%s", name, value) < 0 ? NULL : s);
}

static void args_add_options(struct list *l, const struct program_unit *u, const struct program *p)
{
    char number[24];
    args_add(l, strdup(SYSTEMD_RUN));
    args_add(l, strdup("--quiet"));
    args_add(l, strdup("--pipe"));
    args_add(l, strdup("--wait"));
    args_add(l, strdup("--collect"));
    args_add_pair(l, "--unit=", u->name);
    args_add_pair(l, "--description=snapferry: ", p->label ? p->label : p->argv[0]);
    if (p->finish) {
        args_add(l, strdup("--property=SendSIGKILL=no"));
    } else {
        snprintf(number, sizeof number, "%u", p->timeout_s);
        args_add_pair(l, "--property=RuntimeMaxSec=", number);
        args_add(l, strdup("--property=TimeoutStopSec=5"));
    }
    args_add(l, strdup("--property=KillMode=control-group"));
    if (p->user && *p->user)
        args_add_pair(l, "--property=User=", p->user);
    args_add(l, strdup("--"));
}

/* Exactly this environment, without variables that the manager sets in its units. */
static void args_add_command(struct list *l, const char *self, const struct program *p, const char *const *env)
{
    args_add(l, escape_dollars(self));
    args_add(l, strdup(PROGRAM_RUN_OPTION));
    args_add(l, escape_dollars(p->label ? p->label : p->argv[0]));
    for (size_t i = 0; env && env[i]; i++)
        args_add(l, escape_dollars(env[i]));
    args_add(l, strdup("--"));
    for (size_t i = 0; p->argv[i]; i++)
        args_add(l, escape_dollars(p->argv[i]));
}

int program_command_make(char ***ret, const struct program *p, const char *const *env, struct err *e)
{
    char self[PATH_MAX];
    int rc = program_self(self, sizeof self, e);
    if (rc < 0)
        return rc;
    struct list l = {calloc(count(env) + count((const char *const *)p->argv) + 5, sizeof(char *)), 0, false};
    if (l.v)
        args_add_command(&l, self, p, env);
    if (!l.v || l.failed) {
        free_list(l.v);
        return err_nomem(e);
    }
    *ret = l.v;
    return 0;
}

void program_command_free(char **command)
{
    free_list(command);
}

int program_unit_make(struct program_unit *ret, const struct program *p, const char *const *env, struct err *e)
{
    static atomic_uint serial;
    char self[PATH_MAX];
    memset(ret, 0, sizeof *ret);
    int rc = program_self(self, sizeof self, e);
    if (rc < 0)
        return rc;
    snprintf(ret->name, sizeof ret->name, "snapferry-run-%d-%u.service", (int)getpid(), atomic_fetch_add(&serial, 1));
    size_t room = 18 + count(env) + count((const char *const *)p->argv) + 4;
    struct list run = {calloc(room, sizeof(char *)), 0, false}, stop = {calloc(4, sizeof(char *)), 0, false};
    ret->run = run.v;
    ret->stop = stop.v;
    if (!run.v || !stop.v) {
        program_unit_free(ret);
        return err_nomem(e);
    }
    args_add_options(&run, ret, p);
    args_add_command(&run, self, p, env);
    if (!p->finish) {
        args_add(&stop, strdup(SYSTEMCTL));
        args_add(&stop, strdup("stop"));
        args_add(&stop, strdup(ret->name));
    }
    if (run.failed || stop.failed) {
        program_unit_free(ret);
        return err_nomem(e);
    }
    if (!stop.n) {
        free_list(ret->stop);
        ret->stop = NULL;
    }
    return 0;
}
