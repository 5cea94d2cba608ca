/* SPDX-License-Identifier: GPL-2.0-or-later */
/* turn.h - an engine with its event loop over records with a faulty disk, for tests of turns */
#ifndef SNAPFERRY_TESTS_UNIT_TURN_H
#define SNAPFERRY_TESTS_UNIT_TURN_H

#include "tests/unit/test.h"

#include "daemon/control/control.h"
#include "daemon/engine/engine-impl.h"
#include "daemon/records/records-impl.h"
#include "tests/unit/faulty_vfs.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

struct fixture {
    char dir[64];
    sd_event *loop;
    struct engine *g;
    struct records *r;
};

/* Time as everything here sees it passing: no test waits for a minute. */
static int64_t ahead_ns;
int clock_gettime(clockid_t clock, struct timespec *t)
{
    const int rc = (int)syscall(SYS_clock_gettime, clock, t);
    if (rc == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_BOOTTIME))
        *t = ns_timespec(timespec_ns(*t) + ahead_ns);
    return rc;
}

/* Answers, in their order. */
static struct answers {
    unsigned n, failed;
    struct err err;   /* of the last failure */
    char texts[2000]; /* of all failures */
    json_t *last;
} got;

static inline void on_reply(json_t *answer, const struct err *e, void *arg)
{
    (void)arg;
    got.n++;
    if (e && e->cls) {
        got.failed++;
        got.err = *e;
        snprintf(got.texts + strlen(got.texts), sizeof got.texts - strlen(got.texts), "%s\n", e->msg);
    } else {
        json_decref(got.last);
        got.last = json_incref(answer);
    }
}

static inline void forget_answers(void)
{
    json_decref(got.last);
    got = (struct answers){.n = 0};
}

static inline void run_ms(struct fixture *x, unsigned ms)
{
    const int64_t until = mono_ns() + ms * NS_PER_MS;
    do
        assert_true(sd_event_run(x->loop, 5000) >= 0);
    while (mono_ns() < until);
}

/* Until `fn` is true; fails after a minute. */
typedef bool until_fn(struct fixture *x);
static inline void run_until(struct fixture *x, until_fn *fn, const char *what)
{
    for (const int64_t until = mono_ns() + 60 * NS_PER_S; !fn(x);) {
        assert_true(sd_event_run(x->loop, 20000) >= 0);
        if (mono_ns() > until)
            fail_msg("%s: it does not come to that; %u answers, last error \"%s\"", what, got.n, got.err.msg);
    }
}

static inline bool is_held(struct fixture *x)
{
    (void)x;
    return faults.held;
}
static inline bool is_idle(struct fixture *x)
{
    return !engine_is_writing(x->g) && !x->g->kicked && !requests_wait(&x->g->d) && !steps_running(x->g->steps);
}
static unsigned wanted;
static inline bool has_answers(struct fixture *x)
{
    (void)x;
    return got.n >= wanted;
}

static inline int set_up(void **state)
{
    struct fixture *x = calloc(1, sizeof *x);
    char path[128];
    struct err e = ERR_INIT;
    struct cfg *c = NULL;
    snprintf(x->dir, sizeof x->dir, "%s/snapferry-turn.XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    assert_non_null(mkdtemp(x->dir));
    snprintf(path, sizeof path, "%s/snapferry.ini", x->dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f,
            "[daemon]\nnode-name = n\nsweep = 5s\n[metrics]\nlisten =\n"
            "[repository \"main\"]\ntype = filesystem\npath = %s/none\npassword-file = %s/none\n"
            "[storage-class \"c\"]\ndriver = reflink\nmatch = %s/*.img\nrepository = main\n"
            "[job \"j\"]\nvolumes = %s/a.img\non-calendar = yearly\n",
            x->dir, x->dir, x->dir, x->dir);
    assert_int_equal(fclose(f), 0);
    assert_ok(cfg_load_dir(&c, x->dir, &e), &e);
    assert_true(sd_event_new(&x->loop) >= 0);
    ahead_ns = 0;
    struct engine_paths p = {.mover_program = "/bin/false"};
    snprintf(p.config_dir, sizeof p.config_dir, "%s", x->dir);
    snprintf(p.state_dir, sizeof p.state_dir, "%s", x->dir);
    snprintf(p.runtime_dir, sizeof p.runtime_dir, "%s", x->dir);
    snprintf(p.cache_dir, sizeof p.cache_dir, "%s", x->dir);
    assert_ok(engine_new(&x->g, x->loop, &p, c, &e), &e);
    cfg_free(c);
    x->g->news.created = false; /* nothing is to be found again in a repository */
    x->r = engine_records(x->g);
    run_until(x, is_idle, "the start");
    run_ms(x, 200); /* the first sweep */
    run_until(x, is_idle, "the start");
    forget_answers();
    faults.count = 0;
    faults.main_syncs = 0;
    *state = x;
    return 0;
}

static inline int tear_down(void **state)
{
    struct fixture *x = *state;
    char text[200];
    faults.hold = false;
    faults.count = 0;
    engine_stop(x->g, text, sizeof text);
    engine_free(x->g);
    sd_event_unref(x->loop);
    forget_answers();
    snprintf(text, sizeof text, "rm -rf %s", x->dir);
    assert_int_equal(system(text), 0);
    free(x);
    return 0;
}

/* A sweep, with all that it looks at. */
static inline void sweep_now(struct fixture *x)
{
    x->g->sweep_ns = 0;
    sd_event_source_set_time_relative(x->g->sweep, 0);
    sd_event_source_set_enabled(x->g->sweep, SD_EVENT_ONESHOT);
}

/* ---- requests ---- */

/* New reference is freed by the callee's caller: requests are copied. */
static inline void request(struct fixture *x,
                           void (*verb)(struct engine *, const struct request_args *, engine_reply_fn *, void *),
                           json_t *req)
{
    CLEANUP(request_args_clear) struct request_args args;
    const bool held = jbool(req, "hold"); /* which of the verbs, and no argument */
    json_object_del(req, "hold");
    assert_int_equal(request_args_load(&args, req, NULL), 0);
    args.hold = held;
    verb(x->g, &args, on_reply, NULL);
    json_decref(req);
}

static inline void scan(struct engine *g, const struct request_args *args, engine_reply_fn *reply, void *arg)
{
    engine_scan(g, args, NULL, reply, arg);
}

static inline void verify(struct fixture *x)
{
    request(x, engine_verify, json_pack("{s:i}", "read_percent", 1));
}

/* One that waits, since its repository is not there; its id. */
static inline void queued(struct fixture *x, char id[512])
{
    wanted = got.n + 1;
    verify(x);
    run_until(x, has_answers, "verify");
    if (got.failed)
        fail_msg("%s", got.texts);
    snprintf(id, 512, "%s", jstr(got.last, "operation"));
    assert_non_null(operation_peek(x->r, id));
}

static inline void cancel(struct fixture *x, const char *id)
{
    request(x, engine_cancel, json_pack("{s:s}", "id", id));
}

static inline void add_native(struct fixture *x, const char *alias, const char *backup, enum native_state state)
{
    CLEANUP(native_row_clear) struct native_row n;
    struct native_desc native;
    struct err e = ERR_INIT;
    native_row_init(&n);
    native_desc_init(&native);
    str_set(&n.id, alias);
    str_set(&n.parent, backup);
    str_set(&n.volume_id, "v");
    n.state = state;
    native.created_ns = now_ns();
    native_desc_take(&n.native, native_desc_make(&native));
    assert_ok(native_row_add(x->r, &n, &e), &e);
}

static inline void add_backup(struct fixture *x, const char *id)
{
    CLEANUP(backup_clear) struct backup b;
    struct err e = ERR_INIT;
    backup_init(&b);
    str_set(&b.id, id);
    b.state = BACKUP_COMPLETED;
    b.kind = KIND_BACKUP;
    assert_ok(backup_add(x->r, &b, &e), &e);
}

static inline bool problem(struct fixture *x, const char *text)
{
    CLEANUP_JSON json_t *status = engine_status(x->g);
    const json_t *p;
    size_t i;
    assert_non_null(status);
    json_array_foreach(jarr(status, "problems"), i, p) if (strstr(jstr(p, "text"), text)) return true;
    return false;
}

static inline void sql(struct fixture *x, const char *text)
{
    char *msg = NULL;
    if (sqlite3_exec(x->r->writer.db, text, NULL, NULL, &msg) != SQLITE_OK)
        fail_msg("%s: %s", text, msg);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

#endif
