/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * control_server - the real control socket over a pretended engine, for tests of the command
 *
 * control_server DIR [ROWS] [TICKS]: socket DIR/control.sock, records in DIR/state, ROWS volumes and running operations
 * in `status`; backups take TICKS steps of 20 ms. SIGHUP: the next reload is refused. Ends with SIGTERM.
 */
#include "tests/unit/engine-standin.h"

#include "daemon/control/control.h"

#include <signal.h>
#include <sys/stat.h>

static void print_log(enum log_level lvl, const char *line, void *arg)
{
    (void)lvl, (void)arg;
    fprintf(stderr, "%s\n", line);
}

static int on_hup(sd_event_source *s, const struct signalfd_siginfo *si, void *arg)
{
    struct engine *g = arg;
    (void)s, (void)si;
    g->refuse_reload = !g->refuse_reload;
    return 0;
}

int main(int argc, char **argv)
{
    struct engine g;
    struct err e = ERR_INIT;
    struct control *c = NULL;
    sd_event *loop = NULL;
    char state[4096];
    sigset_t mask;
    if (argc < 2)
        return 2;
    snprintf(state, sizeof state, "%s/state", argv[1]);
    mkdir(state, 0700);
    log_to(print_log, NULL);
    sigemptyset(&mask);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGHUP);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    if (sd_event_default(&loop) < 0 || sd_event_add_signal(loop, NULL, SIGTERM, NULL, NULL) < 0 ||
        sd_event_add_signal(loop, NULL, SIGHUP, on_hup, &g) < 0)
        return 1;
    if (control_announce(argv[1], &e) < 0 || standin_new(&g, loop, state, &e) < 0 ||
        control_new(&c, loop, &g, argv[1], "snapferry-no-such-group", &e) < 0) {
        fprintf(stderr, "%s\n", e.msg);
        return (int)e.cls;
    }
    g.rows = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 3;
    g.ticks = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 5;
    g.late = true;
    puts("ready");
    fflush(stdout);
    sd_event_loop(loop);
    control_free(c);
    standin_free(&g);
    sd_event_unref(loop);
    return 0;
}
