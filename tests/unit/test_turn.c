/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_turn.c - the engine with its event loop over records whose disk is slow, full or partly bad
 *
 * What is judged are order and numbers: who was answered while a sync did not end, and which rows are written.
 */
#include "tests/unit/turn.h"

/* ---- a disk that does not end a sync ---- */

/* Clients are answered when what they asked for is durable, and not before; everything else goes on. */
static void nobody_waits_for_a_sync(void **state)
{
    struct fixture *x = *state;
    char id[512];
    queued(x, id);
    add_native(x, "alias-1", "b-1", NATIVE_PRESENT);
    add_backup(x, "b-1");
    run_until(x, is_idle, "what was added");
    faults.main_syncs = 0;
    forget_answers();
    faults.hold = true;
    verify(x);
    run_until(x, is_held, "the sync");
    /* All of them wait for the next turn. */
    verify(x);
    cancel(x, id);
    request(x, engine_hold, json_pack("{s:s,s:b,s:s}", "native", "alias-1", "hold", 1, "note", "why"));
    request(x, engine_delete, json_pack("{s:s}", "id", "b-1"));
    request(x, engine_delete, json_pack("{s:s,s:b}", "id", "b-1", "even_kept", 1));
    request(x, engine_expire, json_object());
    request(x, engine_forget, json_pack("{s:s}", "volume", "nobody"));
    request(x, engine_detach, json_pack("{s:s}", "repository", "main"));
    request(x, scan, json_object());
    request(x, engine_native_prune, json_object());
    request(x, engine_submit_backup, json_pack("{s:[s]}", "volumes", "nowhere"));
    request(x, engine_submit_backup, json_pack("{s:s}", "job", "j"));
    request(x, engine_submit_restore, json_pack("{s:s,s:s}", "backup", "b-1", "target", "/x"));
    sweep_now(x);
    run_ms(x, 500);
    assert_true(x->g->sweep_ns > 0);
    const unsigned before = got.n;
    for (unsigned i = 0; i < 50; i++) {
        CLEANUP_JSON json_t *status = engine_status(x->g);
        CLEANUP_JSON json_t *facts = engine_debug_json(x->g);
        assert_true(json_object_size(status) > 0 && json_object_size(facts) > 0);
        sd_event_run(x->loop, 0);
    }
    /* Answered so far are only requests that nothing has to be recorded of. */
    assert_true(before <= 2 && got.n == before);
    assert_true(engine_is_writing(x->g) && faults.held == 1);
    assert_null(operation_peek(x->r, id)->cancel ? "canceled" : NULL);
    const unsigned long syncs = faults.syncs;
    faults.hold = false;
    wanted = 13; /* all but the scan, which waits for its repository */
    run_until(x, has_answers, "the answers");
    assert_true(faults.syncs - syncs <= 12); /* the requests share commits */
    assert_int_equal(faults.main_syncs, 0);
    run_until(x, is_idle, "the rest");
    assert_int_equal(faults.main_syncs, 0);
}

static bool recorded;
static int see_recorded(const char *name, const json_t *labels, double value, void *arg)
{
    (void)labels, (void)value, (void)arg;
    recorded |= !strcmp(name, "repository_recorded_timestamp_seconds");
    return 0;
}
static bool is_recorded(struct fixture *x)
{
    recorded = false;
    records_counters(x->r, see_recorded, NULL, NULL);
    return recorded;
}
static bool is_forgotten(struct fixture *x)
{
    return !repository_id(x->g, "main")[0];
}

/* Another repository is the right one from the moment on at which that is durable. */
static void a_replaced_repository_is_expected_when_durable(void **state)
{
    struct fixture *x = *state;
    struct err e = ERR_INIT;
    CLEANUP_JSON json_t *labels = json_pack("{s:s,s:s}", "repository", "main", "id", "0123456789abcdef");
    assert_ok(records_counter_set(x->r, "repository_recorded_timestamp_seconds", labels, 1, &e), &e);
    repositories_free(x->g);
    repositories_refresh(x->g, true);
    assert_string_equal(repository_id(x->g, "main"), "0123456789abcdef");
    verify(x);
    run_until(x, is_idle, "what was added");
    faults.hold = true;
    verify(x);
    run_until(x, is_held, "the sync");
    request(x, scan, json_pack("{s:b}", "replaced", 1));
    run_ms(x, 300);
    assert_true(faults.held == 1 && is_recorded(x));
    assert_string_equal(repository_id(x->g, "main"), "0123456789abcdef");
    faults.hold = false;
    run_until(x, is_forgotten, "the request");
    assert_false(is_recorded(x));
    run_until(x, is_idle, "the rest");
}

static int64_t old_clock(void)
{
    return now_ns() - INT64_C(4000) * 86400 * NS_PER_S;
}
static bool is_pruned(struct fixture *x)
{
    return !x->g->prune_wanted && is_idle(x);
}

/* Old records are removed beside the loop, and requests are recorded between two parts of it. */
static void nobody_waits_for_pruning(void **state)
{
    struct fixture *x = *state;
    struct err e = ERR_INIT;
    uint64_t n = 0;
    records_clock = old_clock;
    assert_ok(records_begin(x->r, &e), &e);
    for (unsigned i = 0; i < 1900; i++) {
        char id[32];
        snprintf(id, sizeof id, "old-%u", i);
        add_backup(x, id);
    }
    assert_ok(records_commit(x->r, &e), &e);
    records_clock = now_ns;
    faults.main_syncs = 0;
    faults.hold = true;
    x->g->prune_wanted = true;
    engine_kick(x->g);
    run_until(x, is_held, "pruning");
    assert_true(records_pruning(x->r));
    verify(x);
    run_ms(x, 100);
    assert_int_equal(got.n, 0);
    faults.hold = false;
    wanted = 1;
    run_until(x, has_answers, "the answer");
    assert_int_equal(got.failed, 0);
    assert_true(x->g->prune_wanted); /* it had not to wait for all of it */
    run_until(x, is_pruned, "the end of pruning");
    const struct backup_filter all = {.parent = NULL};
    assert_ok(backup_count(x->r, &all, &n, &e), &e);
    assert_int_equal(n, 200);
    assert_int_equal(faults.main_syncs, 0);
}

/* ---- a row that cannot be written ---- */

static bool all_but_one(struct fixture *x)
{
    const struct operation_filter live = {.live = true};
    uint64_t n = 0;
    operation_count(x->r, &live, &n, NULL);
    return n == 1 && x->g->d.asides;
}

static bool none_left(struct fixture *x)
{
    const struct operation_filter live = {.live = true};
    uint64_t n = 1;
    operation_count(x->r, &live, &n, NULL);
    return n == 0 && is_idle(x);
}

static void the_others_go_on(void **state)
{
    struct fixture *x = *state;
    char id[24][512], text[1024];
    for (unsigned i = 0; i < 24; i++)
        queued(x, id[i]);
    snprintf(text, sizeof text,
             "CREATE TRIGGER bad BEFORE UPDATE ON operations WHEN NEW.id='%s' AND NEW.state<>'Queued' "
             "BEGIN SELECT RAISE(ABORT,'a bad page'); END",
             id[7]);
    sql(x, text);
    forget_answers();
    for (unsigned i = 0; i < 24; i++)
        cancel(x, id[i]);
    run_until(x, all_but_one, "the others");
    assert_non_null(operation_peek(x->r, id[7]));
    wanted = 24;
    run_until(x, has_answers, "the answers");
    assert_int_equal(got.failed, 0); /* that it is to be canceled could be recorded */
    assert_true(operation_peek(x->r, id[7])->cancel);
    assert_string_equal(x->g->d.asides->id, id[7]);
    assert_null(x->g->d.asides->next);
    assert_true(problem(x, "a bad page") && problem(x, id[7]));
    assert_false(records_degraded(x->r));
    /* Others begin, and end. */
    forget_answers();
    char more[512];
    queued(x, more);
    cancel(x, more);
    run_until(x, all_but_one, "one more");
    /* Tried again when its time has come; not before. */
    const unsigned tries = x->g->d.asides->tries;
    engine_look_at_all(x->g);
    run_until(x, is_idle, "a look at all");
    assert_int_equal(x->g->d.asides->tries, tries);
    x->g->d.asides->until_ns = 1;
    engine_kick(x->g);
    run_ms(x, 300);
    assert_int_equal(x->g->d.asides->tries, tries + 1);
    assert_true(x->g->d.asides->until_ns > now_ns());
    sql(x, "DROP TRIGGER bad");
    x->g->d.asides->until_ns = 1;
    engine_kick(x->g);
    run_until(x, none_left, "the bad one");
    assert_null(x->g->d.asides);
    assert_false(problem(x, "recorded"));
}

/* A request that cannot be recorded is refused with the reason; those of the same turn are not. */
static void only_the_bad_request_is_refused(void **state)
{
    struct fixture *x = *state;
    sql(x, "CREATE TRIGGER bad BEFORE INSERT ON operations WHEN NEW.doc LIKE '%\"read_percent\":77%' "
           "BEGIN SELECT RAISE(ABORT,'a bad page'); END");
    faults.hold = true;
    verify(x);
    run_until(x, is_held, "the sync"); /* the others are of one turn */
    for (unsigned i = 0; i < 9; i++)
        request(x, engine_verify, json_pack("{s:i}", "read_percent", i == 4 ? 77 : (int)i));
    /* What a row of its own refuses undoes nothing of the others. */
    request(x, engine_verify, json_pack("{s:i}", "read_percent", 101));
    faults.hold = false;
    wanted = 11;
    run_until(x, has_answers, "the answers");
    assert_int_equal(got.failed, 2);
    if (!strstr(got.texts, "a bad page") || !strstr(got.texts, "between 0 and 100"))
        fail_msg("\"%s\"", got.texts);
    const struct operation_filter live = {.live = true};
    uint64_t n = 0;
    assert_int_equal(operation_count(x->r, &live, &n, NULL), 0);
    assert_int_equal(n, 9);
    assert_null(x->g->d.asides);
}

static void a_result_that_is_too_large(void **state)
{
    struct fixture *x = *state;
    CLEANUP(operation_clear) struct operation op;
    struct err e = ERR_INIT;
    operation_init(&op);
    str_set(&op.id, "up-large");
    str_set(&op.parent, "gone");
    op.kind = KIND_VERIFY;
    op.state = OP_RUNNING;
    assert_ok(operation_add(x->r, &op, &e), &e);
    live_get(&x->g->d, "up-large")->mover = true;
    char *text = malloc(RECORDS_DOC_MAX + 10);
    memset(text, 'x', RECORDS_DOC_MAX + 9);
    text[RECORDS_DOC_MAX + 9] = '\0';
    const struct mover_end end = {.outcome = MOVER_OK, .result = json_pack("{s:s}", "text", text)};
    free(text);
    engine_mover_ended(x->g, "up-large", &end);
    run_until(x, none_left, "its end");
    operation_clear(&op);
    assert_ok(operation_get(x->r, "up-large", &op, &e), &e);
    assert_int_equal(op.state, OP_FAILED);
    if (!strstr(op.error.message, "its result cannot be recorded"))
        fail_msg("\"%s\"", op.error.message);
    assert_null(x->g->d.asides);
}

/* ---- a full disk ---- */

static bool is_degraded(struct fixture *x)
{
    return records_degraded(x->r) && x->g->retry_ns;
}
static bool is_healthy(struct fixture *x)
{
    return !records_degraded(x->r) && is_idle(x);
}

/* The records cannot be written for some time: requests are refused, with `cls`, and nothing else happens. */
static void unwritable(struct fixture *x, int code, enum err_class cls)
{
    char id[512];
    queued(x, id);
    forget_answers();
    faults.code = code;
    faults.after = 0;
    faults.count = 1000000;
    /* A request is refused at once, now and while it is known. */
    for (unsigned i = 1; i <= 3; i++) {
        wanted = i;
        verify(x);
        run_until(x, has_answers, "a refusal");
        assert_int_equal(got.failed, i);
        assert_int_equal(got.err.cls, cls);
        if (!strstr(got.err.msg, "records"))
            fail_msg("\"%s\"", got.err.msg);
    }
    run_until(x, is_degraded, "degraded");
    assert_true(
        problem(x, cls == ERR_NO_SPACE ? "cannot be written: No space left" : "cannot be written: Input/output"));
    cancel(x, id);
    wanted = 4;
    run_until(x, has_answers, "a refusal");
    assert_int_equal(got.failed, 4);
    const struct operation_filter live = {.live = true};
    uint64_t n = 0;
    assert_int_equal(operation_count(x->r, &live, &n, NULL), 0);
    assert_int_equal(n, 1); /* nothing is there that was not recorded */
    assert_int_equal(steps_running(x->g->steps), 0);
    assert_null(x->g->d.asides); /* none of them is to blame */
    /* They can be written again: it goes on by itself. */
    faults.count = 0;
    x->g->retry_ns = 1;
    engine_kick(x->g);
    run_until(x, is_healthy, "healthy");
    assert_false(problem(x, "cannot be written"));
    forget_answers();
    wanted = 1;
    cancel(x, id);
    run_until(x, none_left, "the end");
    assert_int_equal(got.failed, 0);
}

static void a_full_disk(void **state)
{
    unwritable(*state, SQLITE_FULL, ERR_NO_SPACE);
}

/* The kernel has made the file system read-only: each write of an open file fails (EROFS), and what is read is right.
 */
static void a_file_system_that_became_read_only(void **state)
{
    unwritable(*state, SQLITE_IOERR_WRITE, ERR_GENERIC);
}

/* ---- clients first ---- */

static struct control *listener;

static int dial(struct fixture *x)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    snprintf(a.sun_path, sizeof a.sun_path, "%s/control.sock", x->dir);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

/* Drops what there is to read; false: nothing. */
static bool heard(int fd)
{
    static char answer[1 << 20];
    ssize_t n = recv(fd, answer, sizeof answer, MSG_DONTWAIT);
    if (n > 0)
        assert_non_null(strstr(answer, "\"ok\":true"));
    return n > 0;
}

static void say(int fd, const char *verb)
{
    char line[64];
    const int n = snprintf(line, sizeof line, "{\"id\":1,\"verb\":\"%s\"}\n", verb);
    assert_int_equal(send(fd, line, (size_t)n, MSG_NOSIGNAL), n);
}

static bool is_admitted(struct fixture *x)
{
    (void)x;
    return control_clients(listener) == wanted;
}

/* The control socket is served before the engine's own work, but cannot keep it from its work. */
static void clients_come_first(void **state)
{
    struct fixture *x = *state;
    struct err e = ERR_INIT;
    int fds[8];
    assert_ok(control_new(&listener, x->loop, x->g, x->dir, "", &e), &e);
    for (unsigned i = 0; i < 8; i++)
        fds[i] = dial(x);
    wanted = 8;
    run_until(x, is_admitted, "eight clients");
    run_until(x, is_idle, "rest");
    for (unsigned round = 0; round < 5; round++) {
        const uint64_t turn = x->g->d.turn;
        const int64_t asked_ns = mono_ns();
        unsigned answers = 0;
        engine_look_at_all(x->g); /* a turn is due before anybody asks */
        for (unsigned i = 0; i < 8; i++)
            say(fds[i], "backups");
        for (unsigned runs = 0; answers < 8 && runs < 1000; runs++) {
            sd_event_run(x->loop, 0);
            for (unsigned i = 0; i < 8; i++)
                answers += heard(fds[i]);
            /* A turn waits for 200 ms at most, which a slow machine may need for eight answers. */
            assert_true(answers == 8 || x->g->d.turn == turn || mono_ns() - asked_ns >= 200 * NS_PER_MS);
        }
        assert_int_equal(answers, 8);
        run_until(x, is_idle, "the turn");
        assert_true(x->g->d.turn > turn);
    }
    /* They never stop: what is asked of the engine is done all the same. */
    wanted = got.n + 1;
    verify(x);
    unsigned asked = 0;
    for (const int64_t until = mono_ns() + 60 * NS_PER_S; got.n < wanted && mono_ns() < until;) {
        for (unsigned i = 0; i < 8; i++)
            if (!asked || heard(fds[i]))
                say(fds[i], "backups");
        asked++;
        sd_event_run(x->loop, 0);
    }
    assert_int_equal(got.n, wanted);
    assert_int_equal(got.failed, 0);
    for (unsigned i = 0; i < 8; i++)
        close(fds[i]);
    control_free(listener);
}

/* ---- what is refused ---- */

static void hold(struct fixture *x, const char *what, bool held)
{
    wanted = got.n + 1;
    request(x, engine_hold, json_pack("{s:s,s:b,s:s}", "native", what, "hold", (int)held, "note", "n"));
    run_until(x, has_answers, "hold");
}

static void a_hold_that_comes_too_late(void **state)
{
    struct fixture *x = *state;
    add_native(x, "alias-going", "b-1", NATIVE_REMOVING);
    add_native(x, "alias-there", "b-1", NATIVE_PRESENT);
    add_native(x, "alias-alone", "b-2", NATIVE_REMOVING);
    hold(x, "alias-going", true);
    assert_int_equal(got.failed, 1);
    assert_int_equal(got.err.cls, ERR_BUSY);
    assert_string_equal(got.err.msg, "native snapshot alias-going cannot be held: its removal has begun");
    assert_string_equal(got.err.hint, "`snapferry native list` shows what is left");
    assert_false(native_row_peek(x->r, "alias-going")->hold.held);
    /* Of a backup that which can be held is. */
    hold(x, "b-1", true);
    assert_int_equal(got.failed, 1);
    assert_int_equal(json_array_size(jarr(got.last, "held")), 1);
    assert_true(native_row_peek(x->r, "alias-there")->hold.held);
    assert_false(native_row_peek(x->r, "alias-going")->hold.held);
    hold(x, "b-2", true);
    assert_int_equal(got.failed, 2);
    assert_int_equal(got.err.cls, ERR_BUSY);
    /* An end of a hold is possible in any state. */
    hold(x, "b-1", false);
    assert_int_equal(got.failed, 2);
    assert_int_equal(json_array_size(jarr(got.last, "held")), 2);
    hold(x, "nobody", true);
    assert_int_equal(got.failed, 3);
    assert_int_equal(got.err.cls, ERR_NOT_FOUND);
}

/* No process can be made: the request fails, and the run of a job is tried again. */
static void a_step_that_cannot_be_started(void **state)
{
    struct fixture *x = *state;
    struct rlimit was, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    run_until(x, is_idle, "rest");
    none = (struct rlimit){3, was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    request(x, engine_submit_backup, json_pack("{s:s}", "job", "j"));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_int_equal(got.failed, 1);
    if (!strstr(got.err.msg, "look for volumes"))
        fail_msg("\"%s\"", got.err.msg);
    run_until(x, is_idle, "what is recorded of it");
    CLEANUP(job_run_clear) struct job_run j = ROW_INIT;
    assert_int_equal(job_run_get(x->r, "j", &j, NULL), 0);
    assert_true(j.failed.there);
    assert_string_equal(j.failed.message, got.err.msg);
    assert_true(problem(x, "job \"j\" could not be started"));
}

/* ---- progress ---- */

/* One that waits for its backup's phase 1, which never comes: nothing is decided of it. */
static void add_waiting(struct fixture *x, const char *id)
{
    CLEANUP(operation_clear) struct operation op;
    struct err e = ERR_INIT;
    operation_init(&op);
    str_set(&op.id, id);
    str_set(&op.volume_id, "v");
    op.state = OP_QUEUED;
    op.kind = KIND_BACKUP;
    assert_ok(operation_add(x->r, &op, &e), &e);
    assert_non_null(live_get(&x->g->d, id));
    run_until(x, is_idle, "what was added");
}

static int64_t stored_progress(struct fixture *x, const char *id)
{
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    struct err e = ERR_INIT;
    assert_ok(operation_get(x->r, id, &op, &e), &e);
    return jint(op.progress, "done");
}

static void report(struct fixture *x, const char *id, int64_t done)
{
    CLEANUP_JSON json_t *p = json_pack("{s:s,s:I,s:I}", "phase", "moving", "total", INT64_C(1) << 30, "done", done);
    engine_mover_events.progress(id, p, x->g);
}

/* Two messages a second: in memory each of them, in the records one in half a minute and the one before the state
 * changes (AO-19). */
static void progress_is_kept_in_memory(void **state)
{
    struct fixture *x = *state;
    const char *id = "up-b-1.v";
    unsigned saves = 0;
    int64_t saved = 0, saved_ns = now_ns();
    struct mover_end end = {.outcome = MOVER_FAILED, .status = -1};
    add_waiting(x, id);
    for (int64_t half = 1; half <= 200; half++) {
        ahead_ns += NS_PER_S / 2;
        report(x, id, half);
        assert_int_equal(jint(live_find(&x->g->d, id)->progress, "done"), half);
        run_until(x, is_idle, "what is saved of it");
        const int64_t now = stored_progress(x, id);
        if (now == saved)
            continue;
        assert_int_equal(now, half);
        assert_true(now_ns() - saved_ns > 30 * NS_PER_S); /* a slow machine adds its own time */
        saves++;
        saved = half;
        saved_ns = now_ns();
    }
    assert_true(saves >= 3); /* in 100 s */
    report(x, id, 777);
    run_until(x, is_idle, "the last message");
    assert_int_equal(stored_progress(x, id), saved);
    err_set(&end.err, ERR_SOURCE, EIO, "Input/output error");
    engine_mover_events.ended(id, &end, x->g);
    run_until(x, is_idle, "the end");
    assert_int_equal(stored_progress(x, id), 777);
}

/* ---- sweeps ---- */

static bool is_canceled(struct fixture *x)
{
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    return operation_get(x->r, "up-b-1.v", &op, NULL) == 0 && op.state == OP_CANCELED;
}

/* What no event has told of is found by the sweep, each minute by default and not before; what one tells of is looked
 * at now (AO-23). */
static void a_sweep_finds_what_no_event_told(void **state)
{
    struct fixture *x = *state;
    const struct operation *op;
    add_waiting(x, "up-b-1.v");
    assert_non_null(op = operation_peek(x->r, "up-b-1.v"));
    ((struct operation *)(uintptr_t)op)->cancel = true; /* without a mark on the board */
    for (unsigned i = 0; i < 3; i++) {
        verify(x); /* turns with other work */
        run_until(x, is_idle, "a verification");
    }
    assert_false(is_canceled(x));
    const int64_t before = x->g->sweep_ns, period = cfg_daemon(x->g->cfg)->sweep_s * NS_PER_S;
    run_until(x, is_canceled, "the sweep");
    assert_true(x->g->sweep_ns - before >= period && x->g->sweep_ns - before < 2 * period);
    /* And at once, when told. */
    char id[512];
    queued(x, id);
    x->g->sweep_ns = now_ns();
    cancel(x, id);
    run_until(x, is_idle, "a cancel");
    assert_null(operation_peek(x->r, id));
    assert_true(now_ns() - x->g->sweep_ns < period);
}

static bool removes_kept(struct fixture *x)
{
    return x->g->kept_running;
}

/* However quickly one turn follows another. */
static void turns_do_not_put_a_sweep_off(void **state)
{
    struct fixture *x = *state;
    x->g->sweep_ns = 0; /* it is due */
    for (const int64_t until = mono_ns() + 5 * NS_PER_S; !x->g->sweep_ns && mono_ns() < until;) {
        engine_kick(x->g);
        run_ms(x, 10);
    }
    assert_true(x->g->sweep_ns > 0);
}

/* What was kept for inspection is removed when its release is durable, also by a sweep that comes meanwhile. */
static void a_sweep_waits_for_a_commit(void **state)
{
    struct fixture *x = *state;
    CLEANUP(native_row_clear) struct native_row n = ROW_INIT;
    add_native(x, "alias-1", "b-1", NATIVE_PRESENT);
    assert_int_equal(native_row_get(x->r, "alias-1", &n, NULL), 0);
    n.kept.there = true;
    n.kept.at_ns = now_ns();
    str_set(&n.kept.alias, "alias-2");
    assert_int_equal(native_row_save(x->r, &n, NULL), 0);
    run_until(x, is_idle, "what was added");
    faults.hold = true;
    request(x, engine_hold, json_pack("{s:s,s:b}", "native", "alias-1", "hold", 0));
    run_until(x, is_held, "its commit");
    assert_true(native_row_peek(x->r, "alias-1")->kept.released);
    sweep_now(x);
    run_ms(x, 500);
    assert_true(x->g->sweep_ns > 0);
    assert_false(removes_kept(x));
    faults.hold = false;
    run_until(x, removes_kept, "its removal");
}

/* Sweeps do not wait for storage, and what is to be removed is removed by one of them at a time. */
static void one_removal_at_a_time(void **state)
{
    struct fixture *x = *state;
    struct err e = ERR_INIT;
    assert_ok(records_begin(x->r, &e), &e);
    add_native(x, "alias-1", "b-1", NATIVE_REMOVING);
    assert_ok(records_commit(x->r, &e), &e);
    run_until(x, is_idle, "the row");
    x->g->orphans_ns = now_ns();
    sweep_storage(x->g);
    const unsigned n = steps_running(x->g->steps);
    assert_int_equal(n, 1);
    sweep_storage(x->g);
    assert_int_equal(steps_running(x->g->steps), n);
    run_until(x, is_idle, "the removal");
    sweep_storage(x->g);
    assert_int_equal(steps_running(x->g->steps), n);
    run_until(x, is_idle, "another one");
}

/* However many operations begin in one second, and whatever the clock does. */
static void names_of_one_second_differ(void **state)
{
    struct fixture *x = *state;
    static bool seen[65536];
    struct ids *ids = &x->g->ids;
    char first[32], stamp[32];
    const int64_t now = now_ns();
    ids->stamp(ids, now, first);
    for (unsigned i = 0; i < 65536; i++) {
        const bool later = i % 3 == 1;
        ids->stamp(ids, later ? now + NS_PER_S : now, stamp);
        assert_true(later || !strncmp(stamp, first, strlen(first) - 4));
        const unsigned long n = strtoul(stamp + strlen(stamp) - 4, NULL, 16);
        assert_false(seen[n]);
        seen[n] = true;
    }
}

int main(void)
{
    faulty_vfs_install();
    const struct CMUnitTest tests[] = {
        T(nobody_waits_for_a_sync),
        T(a_replaced_repository_is_expected_when_durable),
        T(nobody_waits_for_pruning),
        T(the_others_go_on),
        T(only_the_bad_request_is_refused),
        T(a_result_that_is_too_large),
        T(a_full_disk),
        T(a_file_system_that_became_read_only),
        T(clients_come_first),
        T(a_hold_that_comes_too_late),
        T(a_step_that_cannot_be_started),
        T(progress_is_kept_in_memory),
        T(a_sweep_finds_what_no_event_told),
        T(turns_do_not_put_a_sweep_off),
        T(a_sweep_waits_for_a_commit),
        T(one_removal_at_a_time),
        T(names_of_one_second_differ),
    };
    return cmocka_run_group_tests_name("turn", tests, NULL, NULL);
}
