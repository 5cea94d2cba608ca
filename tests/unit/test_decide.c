/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_decide.c - scenarios for the engine's decisions, and what was decided in each
 *
 * tests/decide/NAME.txt is a scenario: lines that begin with "$ " are events and requests, played against daemon/decide
 * in the world of model.h; below each stands what was decided (transcript.h): rows with the members that changed,
 * intents, actions. Lines that begin with "| " are input of the line before, "#" begins a comment.
 *
 *   ACCEPT=1       writes what is decided now into the scenarios; read the difference before it is kept
 *   SCENARIO=NAME  plays only this one
 *   SCENARIOS=DIR  where they lie (default tests/decide)
 *   STOP=1         ends at the first that fails
 *
 * tests/README.md lists the commands.
 */
#include "daemon/decide/copies.h"
#include "daemon/decide/maintain.h"
#include "daemon/decide/verification.h"

#include "tests/unit/model-kept.h"
#include "tests/unit/rows.h"
#include "tests/unit/scenario-rows.h"
#include "tests/unit/scenario.h"
#include "tests/unit/transcript.h"

#include <glob.h>

#define TURNS_MAX 40

/* ---- faults ---- */

static unsigned gathers_that_fail;

int __real_natives_gather(struct records *r, const char *volume_id, struct native_facts **ret, size_t *n,
                          struct err *e);
int __wrap_natives_gather(struct records *r, const char *volume_id, struct native_facts **ret, size_t *n,
                          struct err *e);

int __wrap_natives_gather(struct records *r, const char *volume_id, struct native_facts **ret, size_t *n, struct err *e)
{
    if (!gathers_that_fail)
        return __real_natives_gather(r, volume_id, ret, n, e);
    gathers_that_fail--;
    return err_nomem(e);
}

/* gather-fails N: there is no memory the next N times the native snapshots of a volume are gathered. */
static void cmd_gather_fails(void)
{
    gathers_that_fail = (unsigned)atoi(word(1));
}

/* ---- turns ---- */

/* One for what is due by now, and more as long as something is to be decided. */
static void turns(void)
{
    show_rows(); /* of the request itself */
    for (unsigned i = 0; !i || decide_is_due(&m.d); i++) {
        if (i == TURNS_MAX) {
            out_line("... and goes on after %d turns", TURNS_MAX);
            return;
        }
        const bool fails = m.fail_commit;
        turn();
        if (fails)
            out_line("the commit failed");
        show_rows();
        show_intents();
    }
}

/* ---- the world ---- */

/* What does not speak of changed blocks has none: no native snapshot is kept for them. */
static void load_text(const char *text)
{
    char *ini = NULL;
    struct err e = ERR_INIT;
    struct cfg *c = NULL;
    const char *own = strstr(text, "[daemon]\n"), *rest = own ? own + strlen("[daemon]\n") : text;
    assert_true(
        asprintf(&ini, "%.*s[daemon]\n%s%s%s%s", own ? (int)(own - text) : 0, text, own ? "" : "node-name = n\n",
                 strstr(text, "changed-blocks") ? "" : "changed-blocks = no\n", rest,
                 strstr(text, "[repository \"main\"]")
                     ? ""
                     : "[repository \"main\"]\ntype = filesystem\npath = /srv/r\npassword-file = /etc/p\n") > 0);
    write_text(m.dir, ini);
    free(ini);
    if (cfg_load_dir(&c, m.dir, &e) < 0)
        wrong("%s", e.msg);
    for (unsigned i = 0; i < 3; i++)
        if (!m.cfg[i] || i == 1)
            m.cfg[i] = c;
    m.cfg_now = 1;
    m.d.world.cfg = c;
}

static void free_configurations(void)
{
    if (m.cfg[0] != m.cfg[1])
        cfg_free(m.cfg[1]);
    cfg_free(m.cfg[0]);
    memset(m.cfg, 0, sizeof m.cfg);
}

static void cmd_config(void)
{
    const bool first = !m.cfg[0];
    if (!first && m.cfg[1] != m.cfg[0])
        wrong("one reload is enough for a scenario");
    load_text(cmd.input);
    if (first) {
        daemon_start();
    } else {
        records_begin(m.records, NULL);
        const struct configured n = configure_waiting(&m.d);
        records_commit(m.records, NULL);
        if (n.changed || n.kept)
            out_line("%u taken over, %u in part or not", n.changed, n.kept);
    }
    show_counters(false);
}

static void cmd_clock(void)
{
    const char *s = word(1);
    const int64_t by = s[0] == '-' ? -duration(s + 1) : duration(s + (s[0] == '+'));
    m.now += by;
    if (strcmp(cmd.word[0], "clock-set") != 0)
        return;
    records_begin(m.records, NULL);
    m.d.world.now_ns = m.now;
    out_line("%u operations are changed", clock_was_set(&m.d, by));
    records_commit(m.records, NULL);
}

static void cmd_wait(void)
{
    const int64_t wake = decide_wake(&m.d);
    if (!wake) {
        out_line("nothing has a time");
        return;
    }
    if (wake > m.now)
        m.now = wake;
    out_line("it is @%llds", (long long)((m.now - EPOCH_NS) / NS_PER_S));
}

static enum err_class class_named(const char *name)
{
    for (int i = ERR_GENERIC; i <= ERR_INTERRUPTED; i++)
        if (!strcmp(err_class_name((enum err_class)i), name))
            return (enum err_class)i;
    wrong("%s is no class of errors", name);
}

/* why="..." class=no-space errno=1 hint="..." */
static void error_of_command(struct err *e)
{
    const char *why = option("why"), *cls = option("class"), *sys = option("errno"), *hint = option("hint");
    *e = (struct err)ERR_INIT;
    e->cls = cls ? class_named(cls) : ERR_GENERIC;
    e->sys = sys ? atoi(sys) : 0;
    snprintf(e->msg, sizeof e->msg, "%s", why ? why : "it does not work");
    snprintf(e->hint, sizeof e->hint, "%s", hint ? hint : "");
}

static void cmd_repository(void)
{
    struct repo_health *h = repository_health(&m.d, word(1));
    const char *why = option("why"), *room = option("free"), *size = option("size"), *cls = option("class");
    h->free_bytes = room ? atoll(room) : -1;
    h->size_bytes = size ? atoll(size) : -1;
    h->known = !has_word("unknown");
    h->up = has_word("up");
    snprintf(h->why, sizeof h->why, "%s", why ? why : "");
    snprintf(h->hint, sizeof h->hint, "%s", option("hint") ? option("hint") : "");
    h->cls = cls ? class_named(cls) : ERR_NONE;
    if (!strcmp(word(1), "main"))
        m.repo_up = h->up;
    queue_mark_down(&m.d);
}

/* commit-fails [blame] [why=...] [errno=N]: the next one; "blame": for what the one unit of its turn has changed */
static void cmd_commit(void)
{
    m.fail_commit = true;
    if (has_word("blame"))
        error_of_command(&m.blame);
}

/* ---- requests as the engine posts them ---- */

static const char *request_kind;

static int request_write(struct decide *d, void *arg, struct err *e)
{
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    if (operation_read(d, arg, &op) < 0)
        return err_set(e, ERR_NOT_FOUND, 0, "there is no %s", (const char *)arg);
    str_set(&op.description, "requested");
    operation_write(d, &op);
    if (!strcmp(request_kind, "refused"))
        return err_set(e, ERR_USAGE, 0, "it is too late for that");
    return strcmp(request_kind, "fails") ? 0 : -EIO;
}

static void request_ended(const struct err *e, void *arg)
{
    out_line("the request for %s has ended: %s", (const char *)arg, e->cls ? e->msg : "recorded");
}

/* request ID ok|refused|fails: changes its description */
static void cmd_request(void)
{
    static char id[BOARD_ID_MAX];
    snprintf(id, sizeof id, "%s", word(1));
    request_kind = strcmp(word(2), "refused") == 0 ? "refused" : strcmp(word(2), "fails") == 0 ? "fails" : "ok";
    const struct request q = {request_write, request_ended, id};
    request_post(&m.d, &q);
    if (has_word("nothing-recorded")) {
        struct err e;
        error_of_command(&e);
        requests_refuse(&m.d, &e);
    }
}

static void cmd_writable(void)
{
    m.d.world.writable = has_word("yes");
}

static void cmd_sweep(void)
{
    decide_look_at_all(&m.d);
}

static void cmd_restart(void)
{
    restart(!strcmp(cmd.word[0], "reboot"));
}

/* ---- requests ---- */

/* a/0 or a/0@POOL: volume "a0" of that pool, /srv/a/0.img */
static void cmd_backup(void)
{
    CLEANUP(backup_clear) struct backup b;
    const char *job = option("job");
    backup_init(&b);
    str_set(&b.id, word(1));
    str_set(&b.job, job ? job : "");
    b.state = BACKUP_QUEUED;
    b.kind = KIND_BACKUP;
    records_begin(m.records, NULL);
    for (unsigned i = 2; i < cmd.n; i++) {
        char class[64] = "", number[64] = "", pool[64] = "pool0", id[160], name[200];
        if (strchr(cmd.word[i], '='))
            continue;
        if (sscanf(cmd.word[i], "%63[^/]/%63[^@]@%63s", class, number, pool) < 2)
            wrong("%s is no volume", cmd.word[i]);
        snprintf(id, sizeof id, "%s%s", class, number);
        snprintf(name, sizeof name, "/srv/%s/%s.img", class, number);
        strs_add(&b.volume_ids, id);
        add_operation(m.cfg[m.cfg_now], b.id, id, name, pool, b.job);
    }
    backup_add(m.records, &b, NULL);
    if (records_commit(m.records, NULL) < 0)
        wrong("the backup cannot be recorded");
    forget_changed(); /* as the request made it */
}

/* restore r1 of up-b1.a0 [native] [to=/srv/out] [overwrite] [verify] [differential] [offset=N] [length=N] */
static void cmd_restore(void)
{
    CLEANUP(backup_clear) struct backup b;
    CLEANUP(operation_clear) struct operation op, of = ROW_INIT;
    CLEANUP(native_row_clear) struct native_row n = ROW_INIT;
    const char *to = option("to");
    struct err e = ERR_INIT;
    backup_init(&b);
    operation_init(&op);
    if (operation_get(m.records, word(3), &of, NULL) < 0)
        wrong("there is no %s", word(3));
    str_set(&b.id, word(1));
    b.state = BACKUP_QUEUED;
    b.kind = KIND_RESTORE;
    str_set(&b.of, of.parent);
    str_set(&b.of_job, of.job);
    str_setf(&op.id, "down-%s", b.id);
    str_set(&op.parent, b.id);
    str_set(&op.volume_id, of.volume_id);
    op.state = OP_QUEUED;
    op.kind = KIND_RESTORE;
    policy_set(&op.policy, of.policy);
    class_desc_set(&op.own, of.own);
    volume_desc_set(&op.volume, of.volume);
    str_set(&op.of, of.id);
    str_set(&b.target, to ? to : "/srv/out");
    str_set(&op.target_name, b.target);
    if (target_in_use(&m.d, b.target, op.in_place = has_word("in-place"), &e) < 0)
        return show_error(&e);
    op.size = option("size") ? atoll(option("size")) : 1 << 20;
    op.overwrite = has_word("overwrite");
    op.differential = has_word("differential");
    op.verify = has_word("verify");
    op.ranged = option("offset") || option("length");
    op.offset = option("offset") ? atoll(option("offset")) : 0;
    op.length = option("length") ? atoll(option("length")) : 0;
    if (has_word("native")) {
        if (native_row_get(m.records, of.native, &n, NULL) < 0)
            wrong("%s has no native snapshot", word(3));
        op.from = FROM_NATIVE;
        native_desc_set(&op.native_doc, n.native);
        str_set(&op.native, n.id);
        class_desc_set(&op.native_class, n.klass);
    } else {
        op.from = FROM_REPOSITORY;
        str_set(&op.snapshot, of.result.snapshot);
    }
    records_begin(m.records, NULL);
    backup_add(m.records, &b, NULL);
    operation_add(m.records, &op, NULL);
    if (records_commit(m.records, NULL) < 0)
        wrong("the restore cannot be recorded");
    forget_changed();
}

static void cmd_cancel(void)
{
    CLEANUP(backup_clear) struct backup b = ROW_INIT;
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    const char *why = option("why");
    if (backup_get(m.records, word(1), &b, NULL) == 0) {
        b.cancel = true;
        b.cancel_ns = m.now;
        if (backup_save(m.records, &b, NULL) < 0)
            wrong("%s cannot be canceled", b.id);
    } else if (operation_get(m.records, word(1), &op, NULL) == 0) {
        operation_ask_cancel(&m.d, &op, why ? why : "asked for");
    } else {
        wrong("there is no %s", word(1));
    }
}

static void cmd_delete(void)
{
    struct err e = ERR_INIT;
    json_t *answer = NULL;
    records_begin(m.records, NULL);
    const int rc = delete_submit(&m.d, word(1), has_word("force"), has_word("even-kept"), &answer, &e);
    records_commit(m.records, NULL);
    if (rc < 0)
        show_error(&e);
    else
        out_line("answer: %s", jstr(answer, "operation"));
    json_decref(answer);
}

/* retry BACKUP [VOLUME] */
static void cmd_retry(void)
{
    struct err e = ERR_INIT;
    CLEANUP_JSON json_t *answer = NULL;
    if (submit_retry(word(1), cmd.n > 2 ? word(2) : "", &answer, &e) < 0)
        show_error(&e);
    else
        out_line("answer: backup %s, %zu operations, %zu skipped%s%s", jstr(answer, "backup"),
                 json_array_size(jarr(answer, "operations")), json_array_size(jarr(answer, "skipped")),
                 json_array_size(jarr(answer, "skipped")) ? ": " : "",
                 jstr(json_array_get(jarr(answer, "skipped"), 0), "reason"));
}

/* gone ALIAS: a native snapshot, from the storage */
static void cmd_gone(void)
{
    if (json_object_del(m.natives, word(1)) < 0)
        wrong("there is no %s", word(1));
}

/* admin PREFIX [REPOSITORY] [{...}, ...]: steps */
static void cmd_admin(void)
{
    struct err e = ERR_INIT;
    char id[512];
    if (admin_submit(&m.d, cmd.n > 3 ? word(2) : "main", need_json(), NULL, word(1), id, &e) < 0)
        show_error(&e);
}

static void cmd_verify(void)
{
    CLEANUP(operation_clear) struct operation op;
    struct err e = ERR_INIT;
    char id[512];
    operation_init(&op);
    op.read_percent = 100;
    const char *what = cmd.n > 1 ? word(1) : "main";
    struct plugin_verify x = {.steps = NULL};
    int rc;
    if (strncmp(what, "plugin:", 7) != 0)
        rc = admin_add(&m.d, KIND_VERIFY, "verify", what, &op, NULL, id, &e);
    else
        while ((rc = plugin_verify_submit(&m.d, what, op.read_percent, 2, &x, id, &e)) > 0)
            ;
    plugin_verify_clear(&x);
    if (rc < 0)
        show_error(&e);
}

/* maintain REPOSITORY [full] [dry-run] [unsafe] [scheduled]: a run */
static void cmd_maintain(void)
{
    const struct maintain_order order = {.there = true,
                                         .full = has_word("full"),
                                         .dry_run = has_word("dry-run"),
                                         .unsafe = has_word("unsafe"),
                                         .scheduled = has_word("scheduled")};
    struct err e = ERR_INIT;
    char id[512];
    if (maintain_submit(&m.d, word(1), &order, id, &e) < 0)
        show_error(&e);
}

/* looked-after REPOSITORY: this node begins to look after it */
static void cmd_looked_after(void)
{
    struct err e = ERR_INIT;
    if (maintain_begin(&m.d, word(1), &e) < 0)
        show_error(&e);
}

static void show_when(const char *what, int64_t ns)
{
    if (ns && ns != INT64_MAX)
        out_line("%s @%llds", what, (long long)((ns - EPOCH_NS) / NS_PER_S));
}

/* maintenance REPOSITORY [JOB=1h]...: when it is due, and whether a run waits for a job that starts so much later */
static void cmd_maintenance(void)
{
    static const char *const standings[] = {"off", "not tried yet", "ours", "others'"};
    const struct cfg_repository *r = cfg_repository(m.cfg[m.cfg_now], word(1));
    struct job_view views[4] = {{.name = ""}};
    struct jobs_now jobs = {views, 0};
    struct maintain_times t;
    maintain_times(m.cfg[m.cfg_now], r, maintain_known(m.records, word(1)), m.now, &t);
    out_line("maintenance is %s", standings[t.standing]);
    show_when("next quick run", t.quick_ns);
    show_when("next full run", t.full_ns);
    show_when("quick runs are overdue since", t.quick_late_ns);
    show_when("full runs are overdue since", t.full_late_ns);
    show_when("its owner is silent since", t.silent_ns);
    for (unsigned i = 2; i < cmd.n && jobs.n < 4; i++) {
        char *at = strchr(cmd.word[i], '=');
        *at++ = '\0';
        views[jobs.n++] = (struct job_view){.name = cmd.word[i], .next_ns = m.now + duration(at)};
    }
    if (jobs.n)
        out_line("a run that is due %s",
                 maintain_gives_way(m.cfg[m.cfg_now], word(1), &jobs, t.quick_ns < m.now ? t.quick_ns : m.now, m.now)
                     ? "waits for the job"
                     : "begins");
}

/* verification REPOSITORY [begin|run]: when it is due; the schedule is noted, a run begins */
static void cmd_verification(void)
{
    const struct cfg_repository *r = cfg_repository(m.cfg[m.cfg_now], word(1));
    struct verification_times t;
    struct err e = ERR_INIT;
    int rc = 0;
    if (has_word("begin"))
        rc = verification_begin(&m.d, r, &e);
    else if (has_word("run"))
        rc = verification_submit(&m.d, r, &e);
    if (rc < 0)
        show_error(&e);
    if (cmd.n > 2)
        return;
    verification_times(r, verification_known(m.records, word(1)), m.now, &t);
    out_line(t.next_ns == INT64_MAX ? "no verification by schedule" : t.next_ns <= m.now ? "due" : "not due");
    show_when("next", t.next_ns);
    show_when("overdue since", t.late_ns);
}

/* copy NAME [begin|run|new]: when it is due; the schedule is noted, a run begins, also where there is none any more */
static void cmd_copy(void)
{
    const struct cfg_copy *k = cfg_copy(m.cfg[m.cfg_now], word(1));
    struct copy_times t;
    struct err e = ERR_INIT;
    char id[512];
    int rc = 0;
    if (has_word("begin"))
        rc = copy_begin(&m.d, k, &e);
    else if (has_word("run") || has_word("new") || has_word("most"))
        rc = copy_submit(&m.d, k, (struct copy_allow){has_word("new"), has_word("most")}, id, &e);
    if (rc < 0)
        show_error(&e);
    if (cmd.n > 2)
        return;
    const struct copy_memory *known = copy_known(m.records, word(1));
    copy_times(k, known, m.now, &t);
    out_line(t.next_ns == INT64_MAX ? "no schedule" : t.next_ns <= m.now ? "due" : "not due");
    show_when("next", t.next_ns);
    show_when("overdue since", t.late_ns);
    if (copy_is_expected(k, known))
        out_line("one is expected");
}

/* check REPOSITORY SNAPSHOT=ALIAS ... */
static void cmd_check(void)
{
    CLEANUP_JSON json_t *check = json_object();
    struct err e = ERR_INIT;
    char id[512];
    const bool request = has_word("request");
    for (unsigned i = 2; i < cmd.n - request; i++) {
        char *alias = strchr(cmd.word[i], '=');
        if (!alias)
            wrong("%s is no SNAPSHOT=ALIAS", cmd.word[i]);
        *alias = '\0';
        jset_str(check, cmd.word[i], alias + 1);
    }
    if (natives_ask_repository(&m.d, word(1), check, request ? ASK_REQUEST : ASK_NOW, id, &e) < 0)
        show_error(&e);
    else
        out_line("asked: %s", id);
}

/* ---- ends of work and of movers ---- */

static struct event *last_event(void)
{
    struct event *ev = m.d.events;
    if (!ev)
        wrong("nobody sees the end of it");
    while (ev->next)
        ev = ev->next;
    return ev;
}

/* "items.1.end_ns=+5s" (added), "used_ratio=0.9", "items.0={...}": members of an answer. */
static void patch(json_t *doc, char *assignment)
{
    char *value = strchr(assignment, '=');
    json_t *v;
    *value++ = '\0';
    for (char *dot; (dot = strchr(assignment, '.')); assignment = dot + 1) {
        *dot = '\0';
        doc = json_is_array(doc) ? json_array_get(doc, (size_t)atoi(assignment)) : json_object_get(doc, assignment);
    }
    if (!strncmp(value, "bytes(", 6)) { /* text that is as long */
        const size_t n = strtoul(value + 6, NULL, 10);
        char *text = malloc(n);
        assert_non_null(text);
        memset(text, 'x', n);
        v = json_stringn(text, n);
        free(text);
    } else if (value[0] == '+')
        v = json_integer(jint(doc, assignment) + duration(value + 1));
    else
        v = parse_value(value);
    if (json_is_array(doc))
        json_array_set_new(doc, (size_t)atoi(assignment), v);
    else if (json_object_set_new(doc, assignment, v) < 0)
        wrong("the answer has no %s", assignment);
}

static void patch_all(json_t **doc)
{
    json_t *whole = json_word(), *own = whole ? whole : json_deep_copy(*doc);
    json_take(doc, own ? own : json_object());
    for (unsigned i = 2; i < cmd.n; i++)
        if (cmd.word[i][0] != '{' && strchr(cmd.word[i], '='))
            patch(*doc, cmd.word[i]);
}

static unsigned work_index(const char *id)
{
    const struct model_work *w = work_of(id);
    if (!w)
        wrong("no work of %s runs", id);
    return (unsigned)(w - m.works);
}

/* end ID [{...}] [MEMBER=...] [closed]: its work succeeds; "closed": the descriptor that it answers is lost */
static void cmd_end(void)
{
    end_work(work_index(word(1)), 0, false);
    patch_all(&last_event()->result.out);
    if (has_word("closed") && last_event()->result.fd >= 0) {
        close(last_event()->result.fd);
        last_event()->result.fd = -1;
    }
    last_event()->result.fired = has_word("fired");
    if (has_word("opened"))
        last_event()->result.fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* fail ID [done] [timeout] [not-started] [canceled] [kept] [why=...]: its work fails; "done": after it had done it;
 * "kept": what it was to replace is as it was */
static void cmd_fail(void)
{
    end_work(work_index(word(1)), has_word("done") ? 2 : has_word("timeout") ? 3 : 1, has_word("canceled"));
    struct event *ev = last_event();
    error_of_command(&ev->result.err);
    ev->result.not_started = has_word("not-started");
    if (has_word("kept") && !ev->result.out)
        ev->result.out = json_pack("{s:b}", "kept", 1);
}

static struct model_mover *need_mover(const char *id)
{
    struct model_mover *v = mover_of(id);
    if (!v)
        wrong("%s has no mover", id);
    return v;
}

static void cmd_ready(void)
{
    const char *plugin_id = option("id");
    ready_mover(need_mover(word(1)));
    snprintf(last_event()->plugin_id, sizeof last_event()->plugin_id, "%s", plugin_id ? plugin_id : "");
}

static void cmd_moved(void)
{
    struct model_mover *v = need_mover(word(1));
    const bool here = v->here;
    end_mover(v, MOVER_OK);
    if (here && last_event()->report.outcome == MOVER_OK)
        patch_all(&last_event()->report.result);
}

static bool has_come_to(const char *id, const char *state)
{
    const struct operation *op = operation_peek(m.records, id);
    const struct backup *b = backup_peek(m.records, id);
    if (op)
        return !strcmp(op_state_name(op->state), state) || !strcmp(op_stage_name(op->stage), state);
    return b ? !strcmp(backup_state_name(b->state), state) : !strcmp(state, "end");
}

/* Whether what goes on for operation `of` is of the operation or backup `id` (NULL: of any). */
static bool is_of(const char *of, const char *id)
{
    const struct operation *op = operation_peek(m.records, of);
    for (unsigned i = 0; id && op && i < op->records.n; i++)
        if (!strcmp(op->records.v[i], id))
            return true;
    return !id || !strcmp(of, id) || (op && !strcmp(op->parent, id));
}

/* Lets one thing succeed. */
static bool play_on(const char *id)
{
    for (unsigned i = 0; i < m.n_works; i++)
        if (is_of(m.works[i].id, id)) {
            end_work(i, 0, false);
            return true;
        }
    for (unsigned i = 0; i < m.n_movers; i++) {
        struct model_mover *v = &m.movers[i];
        if (!v->here || !is_of(v->id, id) || (v->told && !v->go && !v->cancel))
            continue;
        if (!v->told)
            ready_mover(v);
        else
            end_mover(v, v->cancel ? MOVER_CANCELED : MOVER_OK);
        return true;
    }
    return false;
}

/* until ID STATE: everything succeeds until it is in that state or stage ("end": it has ended); what is of others only
 * where it waits for them. Nothing is shown. */
static void cmd_until(void)
{
    const size_t shown = out.n;
    turns();
    for (unsigned i = 0; !has_come_to(word(1), word(2)); i++) {
        if (i == 200)
            wrong("%s does not come to %s", word(1), word(2));
        if (!play_on(word(1)) && !play_on(NULL) && decide_wake(&m.d) > m.now)
            m.now = decide_wake(&m.d);
        turns();
    }
    out.v[out.n = shown] = '\0';
}

/* What wait(2) and the cgroup told of it. */
static void usage_of_command(struct mover_report *r)
{
    const char *cpu = option("cpu"), *memory = option("memory"), *kills = option("kills"), *status = option("status");
    r->cpu_seconds = cpu ? atof(cpu) : 0;
    r->memory_peak = memory ? strtoull(memory, NULL, 10) : 0;
    r->oom_kills = kills ? strtoull(kills, NULL, 10) : 0;
    if (status)
        r->status = atoi(status);
}

/* died ID OUTCOME [why=...] [{...}]: its mover ends otherwise */
static void cmd_died(void)
{
    struct model_mover *v = need_mover(word(1));
    const bool here = v->here;
    enum mover_outcome o = MOVER_OK;
    while (strcmp(mover_outcome_name(o), word(2)) != 0)
        if (++o > 40)
            wrong("%s is no outcome of a mover", word(2));
    end_mover(v, o);
    if (!here)
        return;
    struct mover_report *r = &last_event()->report;
    if (option("why"))
        error_of_command(&r->err);
    if (has_word("silent"))
        r->err = (struct err)ERR_INIT;
    usage_of_command(r);
    json_take(&r->result, json_word());
}

static void cmd_not_started(void)
{
    struct event *ev = event_new(EVENT_NOT_STARTED, ROW_OPERATION, word(1));
    struct model_mover *v = mover_of(word(1));
    if (v)
        drop_mover(v);
    ev->transient = has_word("transient");
    error_of_command(&ev->err);
    event_post(&m.d, ev);
}

static void cmd_progress(void)
{
    struct live *l = live_get(&m.d, word(1));
    json_take(&l->progress, need_json());
    patch_all(&l->progress);
    event_post(&m.d, event_new(EVENT_PROGRESS, ROW_OPERATION, word(1)));
}

/* The mover does not take the request to end. */
static void cmd_deaf(void)
{
    struct live *l = live_find(&m.d, word(1));
    if (!l)
        wrong("nothing is known of %s", word(1));
    l->cancel_failed = true;
}

/* ---- scenarios ---- */

static const struct {
    const char *name;
    void (*fn)(void);
} commands[] = {
    {"config", cmd_config},
    {"clock", cmd_clock},
    {"clock-set", cmd_clock},
    {"wait", cmd_wait},
    {"repository", cmd_repository},
    {"commit-fails", cmd_commit},
    {"gather-fails", cmd_gather_fails},
    {"writable", cmd_writable},
    {"sweep", cmd_sweep},
    {"restart", cmd_restart},
    {"reboot", cmd_restart},
    {"backup", cmd_backup},
    {"restore", cmd_restore},
    {"cancel", cmd_cancel},
    {"delete", cmd_delete},
    {"retry", cmd_retry},
    {"release", cmd_release},
    {"sweep-kept", cmd_sweep_kept},
    {"gone", cmd_gone},
    {"admin", cmd_admin},
    {"verify", cmd_verify},
    {"check", cmd_check},
    {"maintain", cmd_maintain},
    {"looked-after", cmd_looked_after},
    {"maintenance", cmd_maintenance},
    {"verification", cmd_verification},
    {"copy", cmd_copy},
    {"end", cmd_end},
    {"fail", cmd_fail},
    {"ready", cmd_ready},
    {"moved", cmd_moved},
    {"until", cmd_until},
    {"died", cmd_died},
    {"not-started", cmd_not_started},
    {"progress", cmd_progress},
    {"deaf", cmd_deaf},
    {"add", cmd_add},
    {"set", cmd_set},
    {"drop", cmd_drop},
    {"lost", cmd_lost},
    {"kept", cmd_kept},
    {"show", cmd_show},
    {"why", cmd_why},
    {"position", cmd_position},
    {"counters", cmd_counters},
    {"counter", cmd_counter},
    {"migrate", cmd_migrate},
    {"begun", cmd_begun},
    {"start-failed", cmd_start_failed},
    {"intents", cmd_intents},
    {"policy", cmd_policy},
    {"limits", cmd_limits},
    {"native-policy", cmd_native_policy},
    {"class", cmd_class},
    {"volume", cmd_volume},
    {"found", cmd_found},
    {"judge", cmd_judge},
    {"note", cmd_note},
    {"request", cmd_request},
    {"health", cmd_health},
};

static void run_command(void)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(commands[i].name, cmd.word[0])) {
            if (!m.cfg[0] && strcmp(cmd.word[0], "config") != 0)
                wrong("\"$ config\" comes first");
            commands[i].fn();
            if (m.cfg[0] && commands[i].fn != cmd_commit && !has_word("unseen")) /* which are about the next turn */
                turns();
            return;
        }
    wrong("there is no command \"%s\"", cmd.word[0]);
}

static char *read_text(const char *path)
{
    FILE *f = fopen(path, "r");
    char *s = NULL;
    size_t n = 0;
    if (!f)
        fail_msg("%s: %s", path, strerror(errno));
    if (getdelim(&s, &n, '\0', f) < 0)
        fail_msg("%s is empty", path);
    fclose(f);
    return s;
}

/* Plays it; `out` is the scenario with what was decided now. */
static void play_lines(char *text)
{
    char *next;
    for (char *line = text; *line; line = next) {
        next = line + strcspn(line, "\n");
        next += *next == '\n';
        cmd.line++;
        if (line[0] != '#' && line[0] != '$' && line[0] != '|' && line[0] != '\n')
            continue; /* what was decided then */
        out_bytes(line, (size_t)(next - line));
        if (line[0] != '$')
            continue;
        char *copy = strndup(line + 1, (size_t)(next - line - 2)), *input = NULL;
        size_t n;
        FILE *f = open_memstream(&input, &n);
        while (*next == '|') {
            char *end = next + strcspn(next, "\n");
            fprintf(f, "%.*s\n", (int)(end - next > 2 ? end - next - 2 : 0), next + (end - next > 2 ? 2 : 1));
            end += *end == '\n';
            out_bytes(next, (size_t)(end - next));
            next = end;
            cmd.line++;
        }
        fclose(f);
        split_words(copy);
        free(cmd.input);
        cmd.input = input;
        run_command();
        free(copy);
    }
}

static void begin_as_new(void)
{
    forget_all();
    m.rng = 1;
    m.serial = m.aliases = m.stamps = m.moves = 0;
    m.boot = 1;
    m.now = EPOCH_NS;
    m.repo_up = m.quiet = m.blamed = true;
    m.narrow = false;
    m.blame = (struct err)ERR_INIT;
    m.fail_commit = false;
    m.acting = show_act;
    m.changing = note_changed;
    out.n = 0;
    out_bytes("", 0);
    json_decref(intents_seen);
    json_decref(counters_seen);
    intents_seen = json_object();
    counters_seen = json_object();
    forget_changed();
    cmd.line = 0;
}

/* The first line that differs. */
static void show_difference(const char *path, const char *kept, const char *now)
{
    unsigned line = 1;
    while (*kept && *now) {
        const size_t k = strcspn(kept, "\n"), n = strcspn(now, "\n");
        if (k != n || memcmp(kept, now, n) != 0)
            break;
        kept += k + (kept[k] == '\n');
        now += n + (now[n] == '\n');
        line++;
    }
    printf("# %s:%u:\n# kept: %.*s\n# now:  %.*s\n", path, line, (int)strcspn(kept, "\n"), kept,
           (int)strcspn(now, "\n"), now);
}

/* As after a violation: what comes next begins as new. */
static void give_up(void)
{
    if (m.records) {
        rows_undone = true;
        records_rollback(m.records);
        rows_undone = false;
        m.d.in_turn = m.d.in_flight = false;
        daemon_end(false);
    }
    free_configurations();
}

static void scenario(void **state)
{
    const char *path = *state;
    char *kept = read_text(path);
    cmd.file = path;
    begin_as_new();
    if (setjmp(violation)) {
        printf("%s# %s:%u: %s\n", getenv("SCENARIO") ? out.v : "", path, cmd.line, violated_what);
        give_up();
        stop_if_asked();
        fail_msg("%s:%u: %s", path, cmd.line, violated_what);
    }
    play_lines(kept);
    daemon_end(false);
    free_configurations();
    if (strcmp(kept, out.v) != 0 && getenv("ACCEPT")) {
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(out.v, f);
        fclose(f);
    } else if (strcmp(kept, out.v) != 0) {
        show_difference(path, kept, out.v);
        stop_if_asked();
        fail_msg("%s: something else was decided; ACCEPT=1 takes it for right", path);
    }
    free(kept);
}

int main(void)
{
    const char *dir = getenv("SCENARIOS"), *only = getenv("SCENARIO");
    char pattern[1024];
    struct CMUnitTest *tests;
    glob_t found;
    m.ids = (struct ids){.stamp = model_stamp, .alias = model_alias};
    records_clock = model_clock;
    log_to(show_log, NULL);
    snprintf(m.dir, sizeof m.dir, "%s/snapferry-decide.XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    snprintf(pattern, sizeof pattern, "%s/%s.txt", dir ? dir : "tests/decide", only ? only : "*");
    if (!mkdtemp(m.dir) || glob(pattern, 0, NULL, &found) != 0) {
        fprintf(stderr, "%s: no scenarios\n", pattern);
        return 1;
    }
    tests = calloc(found.gl_pathc, sizeof *tests);
    assert_non_null(tests);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char *name = strdup(strrchr(found.gl_pathv[i], '/') + 1);
        name[strlen(name) - 4] = '\0';
        tests[i] = (struct CMUnitTest){name, scenario, NULL, NULL, found.gl_pathv[i]};
    }
    const int failed = _cmocka_run_group_tests("decide", tests, found.gl_pathc, NULL, NULL);
    for (size_t i = 0; i < found.gl_pathc; i++)
        free((char *)(uintptr_t)tests[i].name);
    free(tests);
    globfree(&found);
    sets_new();
    return !directory_remove() || failed;
}
