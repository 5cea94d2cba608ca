/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * snapferryd.c - the daemon: options, directories, signals, the event loop; everything else is the engine's
 */
#include "base/cleanup.h"
#include "base/time.h"
#include "daemon/control/control.h"
#include "daemon/engine/engine.h"
#include "daemon/metrics/endpoint.h"
#include "daemon/main/service.h"
#include "proc/notify.h"
#include "proc/program-path.h"
#include "proc/spawner.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#define DESCRIPTORS 8192

struct server {
    struct engine_paths paths;
    bool debug, journal;
    sd_event *loop;
    struct engine *engine;
    struct control *control;
    struct endpoint *endpoint;
    struct engine_observer observer;
    struct service *service;
};

static void usage(FILE *f)
{
    fputs(
        "Usage: snapferryd [OPTIONS]\n"
        "\n"
        "Backs up volumes to Kopia repositories: takes native snapshots, moves their data, prunes them.\n"
        "Normally started by systemd as snapferryd.service; controlled with snapferry(8), configured in\n"
        "snapferry.ini(5).\n"
        "\n"
        "  --foreground         run without systemd; log to standard error\n"
        "  --config-dir DIR     directory of snapferry.ini and conf.d/ (default /etc/snapferry)\n"
        "  --state-dir DIR      directory of the records (default /var/lib/snapferry, or state-dir in [daemon])\n"
        "  --runtime-dir DIR    directory of the control socket (default /run/snapferry)\n"
        "  --cache-dir DIR      cache of repository indexes (default /var/cache/snapferry, or cache-dir in [daemon])\n"
        "  --debug              log debug messages, too\n"
        "  --version            print the version\n"
        "  --help               print this help\n",
        f);
}

static void log_stderr(enum log_level lvl, const char *line, void *arg)
{
    const struct server *s = arg;
    static const char *const word[] = {"debug: ", "", "warning: ", "error: "};
    if (lvl < (s->debug ? LOG_LVL_DEBUG : log_least()))
        return;
    if (s->journal && service_log(lvl, line) >= 0)
        return;
    const struct timespec t = ns_timespec(now_ns());
    struct tm tm;
    char at[32];
    localtime_r(&t.tv_sec, &tm);
    strftime(at, sizeof at, "%Y-%m-%d %H:%M:%S", &tm);
    fprintf(stderr, "%s.%03ld %s%s\n", at, t.tv_nsec / 1000000, word[lvl], line);
}

static int options(struct server *s, int argc, char **argv)
{
    enum { FOREGROUND = 256, CONFIG, STATE, RUNTIME, CACHE, DEBUG, VERSION, HELP };
    static const struct option table[] = {
        {"foreground", no_argument, NULL, FOREGROUND},
        {"config-dir", required_argument, NULL, CONFIG},
        {"state-dir", required_argument, NULL, STATE},
        {"runtime-dir", required_argument, NULL, RUNTIME},
        {"cache-dir", required_argument, NULL, CACHE},
        {"debug", no_argument, NULL, DEBUG},
        {"version", no_argument, NULL, VERSION},
        {"help", no_argument, NULL, HELP},
        {NULL, 0, NULL, 0},
    };
    int c;
    s->journal = service_has_journal();
    while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
        char *into = c == CONFIG    ? s->paths.config_dir
                     : c == STATE   ? s->paths.state_dir
                     : c == RUNTIME ? s->paths.runtime_dir
                     : c == CACHE   ? s->paths.cache_dir
                                    : NULL;
        if (into && (optarg[0] != '/' || strlen(optarg) > 3000)) {
            fprintf(stderr, "snapferryd: %s must be an absolute path: \"%s\"\n", argv[optind - 2], optarg);
            return ERR_USAGE;
        }
        if (into)
            snprintf(into, 4096, "%s", optarg);
        else if (c == FOREGROUND)
            s->journal = false;
        else if (c == DEBUG)
            s->debug = true;
        else if (c == VERSION || c == HELP) {
            if (c == HELP)
                usage(stdout);
            else
                puts("snapferryd " SNAPFERRY_VERSION);
            return -1;
        } else {
            fputs("Try \"snapferryd --help\".\n", stderr);
            return ERR_USAGE;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "snapferryd: unexpected argument \"%s\"\n", argv[optind]);
        return ERR_USAGE;
    }
    return 0;
}

/* It lies beside this program (a build directory), or under the prefix where that is installed. */
static void find_mover(char out[4096])
{
    char self[2048];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = '\0';
    snprintf(out, 4096, "%s/snapferry-mover", self);
    if (access(out, X_OK) == 0)
        return;
    slash = strrchr(self, '/');
    if (slash)
        *slash = '\0';
    snprintf(out, 4096, "%s/libexec/snapferry/snapferry-mover", slash ? self : "/usr");
}

static int make_dir(const char *path, mode_t mode, struct err *e)
{
    char parent[4096];
    /* Parents as others make them: only the last one is ours. */
    snprintf(parent, sizeof parent, "%s", path);
    for (char *p = parent + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        if (mkdir(parent, 0755) < 0 && errno != EEXIST)
            break;
        *p = '/';
    }
    if (mkdir(path, mode) == 0 || errno == EEXIST)
        return 0;
    err_set(e, ERR_GENERIC, errno, "the directory %s cannot be made", path);
    return err_hint(e, "make it, or name another one with --state-dir, --runtime-dir or --cache-dir");
}

static void default_path(char path[4096], const char *configured, const char *fallback)
{
    if (!path[0])
        snprintf(path, 4096, "%s", configured && configured[0] ? configured : fallback);
}

static int load(struct server *s, struct cfg **c, struct err *e)
{
    const struct cfg_complaint *m;
    default_path(s->paths.config_dir, NULL, "/etc/snapferry");
    int rc = cfg_load_dir(c, s->paths.config_dir, e);
    for (unsigned i = 0; *c && (m = cfg_complaint_at(*c, i)); i++)
        if (m->where[0]) /* else it is about the directory as a whole, and the error says it */
            log_line(m->severity == CFG_ERROR ? LOG_LVL_ERROR : LOG_LVL_WARNING, "%s: %s%s%s", m->where, m->text,
                     m->hint[0] ? "; " : "", m->hint);
    if (rc < 0)
        return rc;
    const struct cfg_daemon *d = cfg_daemon(*c);
    default_path(s->paths.state_dir, d->state_dir, "/var/lib/snapferry");
    default_path(s->paths.cache_dir, d->cache_dir, "/var/cache/snapferry");
    default_path(s->paths.runtime_dir, NULL, "/run/snapferry");
    find_mover(s->paths.mover_program);
    if ((rc = make_dir(s->paths.state_dir, 0700, e)) < 0 || (rc = make_dir(s->paths.runtime_dir, 0755, e)) < 0 ||
        (rc = make_dir(s->paths.cache_dir, 0755, e)) < 0)
        return rc;
    return 0;
}

static int on_hup(sd_event_source *src, const struct signalfd_siginfo *si, void *arg)
{
    struct server *s = arg;
    (void)src, (void)si;
    engine_reload(s->engine, NULL, NULL);
    return 0;
}

/* Movers go on; the next daemon takes them over. */
static int on_term(sd_event_source *src, const struct signalfd_siginfo *si, void *arg)
{
    struct server *s = arg;
    char line[160];
    (void)src;
    control_withdraw();
    engine_stop(s->engine, line, sizeof line);
    notify_stopping(line);
    log_info("signal %u: %s", si->ssi_signo, line);
    endpoint_stopping(s->endpoint);
    return sd_event_exit(s->loop, 0);
}

static void on_configured(struct cfg *c, void *arg)
{
    endpoint_configured(((struct server *)arg)->endpoint, c);
}

static json_t *on_status(json_t *problems, void *arg)
{
    return endpoint_status(((struct server *)arg)->endpoint, problems);
}

static int set_up(struct server *s, struct cfg *c, struct err *e)
{
    sigset_t mask;
    int rc = sd_event_default(&s->loop);
    if (rc < 0)
        return err_set(e, ERR_GENERIC, -rc, "no event loop can be made");
    sigemptyset(&mask);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGINT);
    sigaddset(&mask, SIGHUP);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    signal(SIGPIPE, SIG_IGN);
    if ((rc = sd_event_add_signal(s->loop, NULL, SIGTERM, on_term, s)) < 0 ||
        (rc = sd_event_add_signal(s->loop, NULL, SIGINT, on_term, s)) < 0 ||
        (rc = sd_event_add_signal(s->loop, NULL, SIGHUP, on_hup, s)) < 0)
        return err_set(e, ERR_GENERIC, -rc, "signals cannot be watched");
    sd_event_set_watchdog(s->loop, true);
    rc = control_announce(s->paths.runtime_dir, e);
    if (rc < 0)
        return rc;
    rc = engine_new(&s->engine, s->loop, &s->paths, c, e);
    if (rc < 0)
        return rc;
    rc = control_new(&s->control, s->loop, s->engine, s->paths.runtime_dir, cfg_daemon(c)->socket_group, e);
    if (rc == 0)
        rc = endpoint_new(&s->endpoint, s->loop, s->engine, e);
    s->observer = (struct engine_observer){on_configured, on_status, s};
    if (rc == 0)
        engine_observe(s->engine, &s->observer);
    return rc;
}

int main(int argc, char **argv)
{
    static struct server s;
    struct err e = ERR_INIT;
    struct cfg *c = NULL;
    if (argc > 1 && !strcmp(argv[1], PROGRAM_RUN_OPTION))
        return program_run_main(argc, argv);
    int rc = options(&s, argc, argv);
    if (rc != 0)
        return rc < 0 ? 0 : rc;
    umask(027);
    setvbuf(stderr, NULL, _IOLBF, 0);
    log_to(log_stderr, &s);
    /* Each client and each child needs descriptors; children get a limit of their own. */
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < DESCRIPTORS) {
        files.rlim_cur = files.rlim_max < DESCRIPTORS ? files.rlim_max : DESCRIPTORS;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    /* Passwords pass through: no core dumps. */
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    prctl(PR_SET_DUMPABLE, 0);
    /* While there is one thread and little memory. */
    if (spawner_start(&e) < 0)
        log_warning("%s; the daemon forks itself", e.msg);
    e = (struct err)ERR_INIT;
    rc = load(&s, &c, &e);
    if (rc == 0)
        rc = set_up(&s, c, &e);
    if (rc == 0) {
        log_info("snapferryd " SNAPFERRY_VERSION " is ready (node %s, state in %s)", cfg_daemon(c)->node_name,
                 s.paths.state_dir);
        rc = service_new(&s.service, s.loop, s.engine, &e);
    }
    if (rc == 0 && (rc = sd_event_loop(s.loop)) < 0)
        err_set(&e, ERR_GENERIC, -rc, "the event loop ended");
    if (e.cls) {
        notify_failed(&e);
        if (!s.control)
            control_refuse(&e);
        log_line(LOG_LVL_ERROR, "%s%s%s", e.msg, e.hint[0] ? "; " : "", e.hint);
    }
    service_free(s.service);
    control_free(s.control);
    if (s.engine)
        engine_observe(s.engine, NULL);
    endpoint_free(s.endpoint);
    engine_free(s.engine);
    spawner_stop();
    cfg_free(c);
    sd_event_unref(s.loop);
    return e.cls ? (int)e.cls : 0;
}
