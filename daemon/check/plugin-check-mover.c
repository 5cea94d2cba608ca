/* SPDX-License-Identifier: GPL-2.0-or-later */
/* plugin-check-mover.c - the rules of a mover plugin: backup and restore of a scratch file */
#include "base/time.h"
#include "daemon/check/plugin-check-impl.h"
#include "proc/plugin-run.h"
#include "proc/service.h"
#include "proc/tail.h"
#include "daemon/movers/plugin.h"
#include "proc/plugin-answer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SCRATCH_SIZE (24u << 20)

/* ---- scratch ---- */

static int file_fill(const char *path, uint64_t size, bool random_bytes, struct err *e)
{
    static char buf[1 << 20];
    CLEANUP_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0 || fchmod(fd, 0666) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot create %s", path);
    for (uint64_t done = 0; random_bytes && done < size; done += sizeof buf) {
        size_t n = size - done < sizeof buf ? (size_t)(size - done) : sizeof buf;
        if (getrandom(buf, 256, 0) < 0)
            return err_set(e, ERR_GENERIC, errno, "cannot get random bytes");
        for (size_t i = 256; i < n; i++)
            buf[i] = (char)(buf[i - 256] * 5 + buf[i - 1] + 1);
        if (write(fd, buf, n) != (ssize_t)n)
            return err_set(e, ERR_GENERIC, errno, "cannot write %s", path);
    }
    return ftruncate(fd, (off_t)size) < 0 ? err_set(e, ERR_GENERIC, errno, "cannot create %s", path) : 0;
}

int check_mover_begin(struct check *k, struct err *e)
{
    static const char *const own[] = {"device", "seconds"};
    const char *device = check_option(k, "device"), *seconds = check_option(k, "seconds"),
               *tmp = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    snprintf(k->dir, sizeof k->dir, "%.200s/snapferry-plugin-check.XXXXXX", tmp);
    if (!mkdtemp(k->dir))
        return err_set(e, ERR_GENERIC, errno, "cannot create a directory in %s", tmp);
    chmod(k->dir, 0755); /* for a plugin of another user */
    k->seconds = seconds && atoi(seconds) > 0 ? (unsigned)atoi(seconds) : 120;
    k->options = k->o->options ? json_deep_copy(k->o->options) : json_object();
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        json_object_del(k->options, own[i]);
    snprintf(k->operation, sizeof k->operation, "up-%s.scratch", k->tag_text);
    snprintf(k->canceled_operation, sizeof k->canceled_operation, "up-%s.canceled", k->tag_text);
    snprintf(k->restore_operation, sizeof k->restore_operation, "down-%s.scratch", k->tag_text);
    snprintf(k->back, sizeof k->back, "%s/back.img", k->dir);
    if (device) {
        struct stat st;
        CLEANUP_CLOSE int fd = open(device, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        off_t end = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
        if (end < 0 || fstat(fd, &st) < 0)
            return err_set(e, ERR_SOURCE, errno, "cannot read device=%s", device);
        snprintf(k->device, sizeof k->device, "%s", device);
        k->size = (uint64_t)end;
    } else {
        snprintf(k->device, sizeof k->device, "%s/scratch.img", k->dir);
        /* Not a multiple of anything: a mover must preserve the exact size. */
        k->size = SCRATCH_SIZE + 513;
        int rc = file_fill(k->device, k->size, true, e);
        if (rc < 0)
            return rc;
    }
    return file_fill(k->back, k->size, false, e);
}

static json_t *args_of(struct check *k, const char *operation, const char *id, bool restore)
{
    json_t *a = json_pack("{s:s, s:s, s:s, s:s, s:I, s:s, s:o, s:O}", "operation", operation, "id", id, "direction",
                          restore ? "restore" : "backup", "device", restore ? k->back : k->device, "size",
                          (json_int_t)k->size, "node", "snapferry-plugin-check", "volume",
                          json_pack("{s:s, s:s, s:I}", "name", k->device, "id", "scratch", "size", (json_int_t)k->size),
                          "options", k->options);
    if (a && k->stored)
        json_object_set(a, "stored", k->stored);
    return a;
}

static int verb_call(struct check *k, enum plugin_verb v, const char *operation, const char *id, json_t **answer,
                     struct err *e)
{
    CLEANUP_PLUGIN_JSON json_t *args = args_of(k, operation, id, strcmp(operation, k->restore_operation) == 0);
    return plugin_call(&k->p, v, args, plugin_timeout(&k->p, &k->info, v), answer, e);
}

/* ---- style (b): a process ---- */

static json_t *run_in(struct check *k, enum plugin_verb v, const char *operation, const char *id)
{
    CLEANUP_PLUGIN_JSON json_t *args = args_of(k, operation, id, strcmp(operation, k->restore_operation) == 0);
    return json_pack("{s:s, s:s, s:s, s:i, s:s, s:s, s:O}", "name", k->p.name, "program", k->p.path, "user",
                     k->p.user ? k->p.user : "", "verb", (int)v, "dir", k->dir, "operation", operation, "args", args);
}

/* The last output of a process. */
struct told {
    struct check *k;
    enum plugin_verb verb;
    struct plugin_progress last;
    unsigned lines;
    uint64_t most;
    json_t *result;
    struct err err;
};
static void told_clear(struct told *t)
{
    json_decref(t->result);
}

/* A progress document compared with the one before. */
static int progress_check(struct told *t, const json_t *doc, struct err *e)
{
    struct plugin_progress g;
    int rc = plugin_progress_read(&t->k->p, t->verb, doc, &g, e);
    if (rc < 0)
        return rc;
    if (!g.completed && g.done < t->most)
        return check_fails(e, "nCompleted decreased from %llu to %llu", (unsigned long long)t->most,
                           (unsigned long long)g.done);
    t->most = g.done > t->most ? g.done : t->most;
    t->lines++;
    t->last = g;
    const json_t *r = json_object_get(doc, "result");
    if (json_is_object(r) && !t->result)
        t->result = json_incref((json_t *)r);
    return 0;
}
static void line_check(const char *line, size_t len, void *arg)
{
    struct told *t = arg;
    if (t->err.cls)
        return;
    CLEANUP_PLUGIN_JSON json_t *doc = plugin_parse(&t->k->p, t->verb, line, len, &t->err);
    if (doc)
        progress_check(t, doc, &t->err);
}
static void line_ignore(const char *line, size_t len, void *arg)
{
    (void)arg;
    log_info("%.*s", (int)(len > 500 ? 500 : len), line);
}

/* Reads until the process ends; after `term_after` lines it gets SIGTERM (0: never). */
static int process_listen(struct told *t, const char *operation, unsigned term_after, struct err *e)
{
    CLEANUP_PLUGIN_JSON json_t *in = run_in(t->k, t->verb, operation, t->k->id);
    CLEANUP_PLUGIN_JSON json_t *out = NULL;
    struct process_identity i;
    struct tail *tail = NULL, *log = NULL;
    char path[600];
    int fd = -1;
    int rc = in ? plugin_run_step(in, &out, &fd, e) : err_nomem(e);
    if (rc < 0)
        return rc;
    if (process_id_parse(&i, json_string_value(json_object_get(out, "id"))) < 0)
        return check_fails(e, "no identity of its process");
    plugin_run_path(path, sizeof path, t->k->dir, operation, t->verb, "out");
    rc = tail_open(&tail, path, e);
    plugin_run_path(path, sizeof path, t->k->dir, operation, t->verb, "log");
    if (rc == 0)
        rc = tail_open(&log, path, e);
    int64_t end = mono_ns() + t->k->seconds * NS_PER_S;
    bool alive = true, sent = false;
    while (rc == 0 && alive) {
        CLEANUP_CLOSE int pidfd = process_open_running(&i);
        alive = pidfd >= 0;
        if (alive && mono_ns() > end) {
            service_signal(&i, pidfd, SIGKILL);
            rc = check_fails(e, "it did not end within %u s", t->k->seconds);
        }
        if (alive && !sent && term_after && t->lines >= term_after) {
            service_signal(&i, pidfd, SIGTERM);
            sent = true;
            end = mono_ns() + 30 * NS_PER_S;
        }
        if (alive)
            usleep(50000);
        int more;
        do
            more = tail_read(tail, !alive, line_check, t);
        while (more == 1);
        tail_read(log, !alive, line_ignore, NULL);
        if (more < 0) {
            service_signal(&i, pidfd, SIGKILL);
            rc = check_fails(e, "output flood");
        }
    }
    tail_free(tail);
    tail_free(log);
    service_kill_group(&i);
    waitpid(i.pid, NULL, 0); /* a child, unless it is a unit */
    plugin_run_forget(t->k->dir, operation, t->verb);
    if (rc == 0 && t->err.cls) {
        *e = t->err;
        rc = -EBADMSG;
    }
    return rc;
}

/* ---- style (a): questions ---- */

/* Polls until it has completed. */
static int wait_for(struct told *t, const char *operation, const char *id, struct err *e)
{
    int64_t end = mono_ns() + t->k->seconds * NS_PER_S;
    for (;;) {
        CLEANUP_PLUGIN_JSON json_t *answer = NULL;
        int rc = verb_call(t->k, PV_PROGRESS, operation, id, &answer, e);
        if (rc == 0)
            rc = progress_check(t, answer, e);
        if (rc < 0 || t->last.completed || t->last.canceled)
            return rc;
        if (mono_ns() > end)
            return check_fails(e, "it did not complete within %u s (%llu of %llu)", t->k->seconds,
                               (unsigned long long)t->last.done, (unsigned long long)t->last.total);
        usleep(200000);
    }
}

static int operation_begin(struct check *k, enum plugin_verb v, const char *operation, char id[PLUGIN_ID_MAX + 1],
                           struct err *e)
{
    CLEANUP_PLUGIN_JSON json_t *answer = NULL;
    struct plugin_begun b;
    int rc = verb_call(k, v, operation, "", &answer, e);
    if (rc == 0)
        rc = plugin_begun_read(&k->p, v, answer, &b, e);
    if (rc < 0)
        return rc;
    if (b.skip[0])
        return check_fails(e, "scratch file skipped: %s", b.skip);
    memcpy(id, b.id, sizeof b.id);
    return 0;
}

static bool style_run(const struct check *k)
{
    return k->info.abilities & PA_RUN;
}
static int only_start(const struct check *k, struct err *e)
{
    return style_run(k) ? check_skips(e, "the plugin's process is the mover") : 0;
}

static int completed_well(const struct told *t, struct err *e)
{
    if (!t->last.completed)
        return check_fails(e, "ended without \"completed\"");
    if (t->last.error[0] || t->last.canceled)
        return check_fails(e, "failed: %s", t->last.error[0] ? t->last.error : "canceled");
    return 0;
}

/* ---- rules ---- */

static int rule_applies(struct check *k, struct err *e)
{
    CLEANUP_PLUGIN_JSON json_t *answer = NULL;
    bool yes = false;
    char why[256] = "";
    int rc = verb_call(k, PV_APPLIES, k->operation, "", &answer, e);
    struct answer a = {&k->p, PV_APPLIES, answer, ""};
    if (rc < 0 || (rc = answer_bool(&a, "applies", ANSWER_REQUIRED, &yes, e)) < 0 ||
        (rc = answer_text(&a, "reason", 0, why, sizeof why, e)) < 0)
        return rc;
    return yes ? 0 : check_fails(e, "declined: %s", *why ? why : "no reason given");
}

static int rule_start(struct check *k, struct err *e)
{
    int rc = only_start(k, e);
    if (rc)
        return rc;
    k->begun = true;
    return operation_begin(k, PV_START, k->operation, k->id, e);
}
static int rule_start_twice(struct check *k, struct err *e)
{
    char again[PLUGIN_ID_MAX + 1];
    int rc = only_start(k, e);
    if (rc)
        return rc;
    if (!k->id[0])
        return check_skips(e, "nothing started");
    rc = operation_begin(k, PV_START, k->operation, again, e);
    return rc == 0 && strcmp(again, k->id) != 0 ? check_fails(e, "the id is %s, was %s", again, k->id) : rc;
}

static int rule_backup(struct check *k, struct err *e)
{
    CLEANUP(told_clear) struct told t = {.k = k, .verb = style_run(k) ? PV_RUN : PV_PROGRESS};
    int rc;
    k->begun = true;
    if (style_run(k))
        rc = process_listen(&t, k->operation, 0, e);
    else if (!(k->info.abilities & PA_PROGRESS))
        return check_skips(e, "start does all the work");
    else if (!k->id[0])
        return check_skips(e, "nothing started");
    else
        rc = wait_for(&t, k->operation, k->id, e);
    if (rc == 0)
        rc = completed_well(&t, e);
    k->completed = rc == 0;
    if (t.result && !k->stored)
        k->stored = json_incref(t.result);
    return rc;
}

static int rule_watch(struct check *k, struct err *e)
{
    CLEANUP(told_clear) struct told t = {.k = k, .verb = PV_WATCH};
    if (!k->completed)
        return check_skips(e, "no backup completed");
    int rc = process_listen(&t, k->operation, 0, e);
    return rc == 0 && !t.last.completed ? check_fails(e, "ended although its last line is not completed") : rc;
}

static int rule_after_end(struct check *k, struct err *e)
{
    CLEANUP(told_clear) struct told t = {.k = k, .verb = PV_PROGRESS};
    CLEANUP_PLUGIN_JSON json_t *answer = NULL;
    if (!k->completed)
        return check_skips(e, "no backup completed");
    int rc = verb_call(k, PV_PROGRESS, k->operation, k->id, &answer, e);
    if (rc == 0)
        rc = progress_check(&t, answer, e);
    return rc == 0 ? completed_well(&t, e) : rc;
}

static int rule_cancel_late(struct check *k, struct err *e)
{
    CLEANUP_PLUGIN_JSON json_t *answer = NULL;
    enum plugin_ack ack;
    if (!k->completed)
        return check_skips(e, "no backup completed");
    int rc = verb_call(k, PV_CANCEL, k->operation, k->id, &answer, e);
    if (rc == 0)
        rc = plugin_ack_read(&k->p, answer, &ack, e);
    return rc == 0 && ack != PLUGIN_ALREADY_DONE ? check_fails(e, "ack is not \"already-done\"") : rc;
}

static int rule_result(struct check *k, struct err *e)
{
    CLEANUP_PLUGIN_JSON json_t *answer = NULL;
    if (!k->completed)
        return check_skips(e, "no backup completed");
    int rc = verb_call(k, PV_RESULT, k->operation, k->id, &answer, e);
    json_t *r = json_object_get(answer, "result");
    if (rc == 0 && !json_is_object(r))
        return check_fails(e, "answer without object \"result\"");
    if (rc == 0 && !k->stored)
        k->stored = json_incref(r);
    return rc;
}

static int rule_logs(struct check *k, struct err *e)
{
    CLEANUP_PLUGIN_JSON json_t *answer = NULL;
    if (!k->completed)
        return check_skips(e, "no backup completed");
    int rc = verb_call(k, PV_LOGS, k->operation, k->id, &answer, e);
    return rc == 0 && !json_is_string(json_object_get(answer, "text")) ? check_fails(e, "answer without \"text\"") : rc;
}

static int rule_unknown(struct check *k, struct err *e)
{
    CLEANUP_PLUGIN_JSON json_t *answer = NULL;
    int rc = verb_call(k, PV_PROGRESS, "up-no-such-operation", "no-such-id", &answer, e);
    if (rc == 0)
        return check_fails(e, "an operation that never existed is known");
    return e->cls == ERR_NOT_FOUND ? (*e = (struct err)ERR_INIT, 0) : rc;
}

static int rule_verify(struct check *k, struct err *e)
{
    return k->completed ? verb_call(k, PV_VERIFY, k->operation, k->id, NULL, e) : check_skips(e, "no backup completed");
}

static int files_compare(const char *a, const char *b, struct err *e)
{
    static char x[65536], y[65536];
    CLEANUP_CLOSE int fa = open(a, O_RDONLY | O_CLOEXEC), fb = open(b, O_RDONLY | O_CLOEXEC);
    uint64_t at = 0;
    for (;;) {
        ssize_t n = fa < 0 ? -1 : read(fa, x, sizeof x), m = fb < 0 ? -1 : read(fb, y, sizeof y);
        if (n < 0 || m < 0)
            return err_set(e, ERR_GENERIC, errno, "cannot compare %s with %s", a, b);
        if (n != m)
            return check_fails(e, "the sizes differ after %llu bytes", (unsigned long long)at);
        if (memcmp(x, y, (size_t)n) != 0)
            return check_fails(e, "the restored data differs at or after byte %llu", (unsigned long long)at);
        if (n == 0)
            return 0;
        at += (uint64_t)n;
    }
}

static int rule_restore(struct check *k, struct err *e)
{
    CLEANUP(told_clear) struct told t = {.k = k, .verb = style_run(k) ? PV_RUN : PV_PROGRESS};
    int rc;
    if (!k->completed)
        return check_skips(e, "no backup completed");
    if (style_run(k))
        rc = process_listen(&t, k->restore_operation, 0, e);
    else
        rc = operation_begin(k, PV_RESTORE, k->restore_operation, k->restore_id, e);
    if (rc == 0 && !style_run(k) && (k->info.abilities & PA_PROGRESS))
        rc = wait_for(&t, k->restore_operation, k->restore_id, e);
    if (rc == 0 && (style_run(k) || (k->info.abilities & PA_PROGRESS)))
        rc = completed_well(&t, e);
    return rc == 0 ? files_compare(k->device, k->back, e) : rc;
}

/* It may have completed before the cancel: then what it stored must be deleted. */
static void drop_completed(struct check *k, const struct told *t)
{
    json_t *wanted = k->stored;
    if (!t->result || !(k->info.abilities & PA_DELETE))
        return;
    k->stored = t->result;
    verb_call(k, PV_DELETE, k->canceled_operation, k->canceled_id, NULL, NULL);
    k->stored = wanted;
}

/* AO-35: progress after a cancel must work, and report that it ended. */
static int rule_cancel(struct check *k, struct err *e)
{
    CLEANUP(told_clear) struct told t = {.k = k, .verb = style_run(k) ? PV_RUN : PV_PROGRESS};
    CLEANUP_PLUGIN_JSON json_t *answer = NULL;
    enum plugin_ack ack;
    if (style_run(k)) {
        int rc = process_listen(&t, k->canceled_operation, 1, e);
        drop_completed(k, &t);
        return rc == 0 && !t.last.completed ? check_fails(e, "ended after SIGTERM without a last line") : rc;
    }
    if (!(k->info.abilities & PA_CANCEL))
        return check_skips(e, "ability missing");
    int rc = operation_begin(k, PV_START, k->canceled_operation, k->canceled_id, e);
    if (rc == 0)
        rc = verb_call(k, PV_CANCEL, k->canceled_operation, k->canceled_id, &answer, e);
    if (rc == 0)
        rc = plugin_ack_read(&k->p, answer, &ack, e);
    if (rc == 0 && ack == PLUGIN_IMPOSSIBLE)
        return check_fails(e, "reported as impossible");
    if (rc == 0)
        rc = wait_for(&t, k->canceled_operation, k->canceled_id, e);
    drop_completed(k, &t);
    return rc;
}

static int rule_cleanup(struct check *k, struct err *e)
{
    const struct {
        const char *operation, *id;
    } all[] = {{k->canceled_operation, k->canceled_id},
               {k->restore_operation, k->restore_id},
               {k->operation, k->id},
               {k->operation, ""},
               {"up-no-such-operation", ""}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int rc = verb_call(k, PV_CLEANUP, all[i].operation, all[i].id, NULL, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int rule_kept(struct check *k, struct err *e)
{
    return k->completed ? verb_call(k, PV_VERIFY, k->operation, k->id, NULL, e) : check_skips(e, "no backup completed");
}

static int rule_delete(struct check *k, struct err *e)
{
    if (!k->completed)
        return check_skips(e, "no backup completed");
    int rc = verb_call(k, PV_DELETE, k->operation, k->id, NULL, e);
    if (rc == 0)
        rc = verb_call(k, PV_DELETE, k->operation, k->id, NULL, e);
    if (rc < 0 || !(k->info.abilities & PA_VERIFY))
        return rc;
    rc = verb_call(k, PV_VERIFY, k->operation, k->id, NULL, e);
    if (rc == 0)
        return check_fails(e, "verify still finds it");
    return e->cls == ERR_NOT_FOUND ? (*e = (struct err)ERR_INIT, 0) : rc;
}

/* After any failure: what was started is ended and deleted. */
void check_mover_end(struct check *k)
{
    static const char *const files[] = {"scratch.img", "back.img", "plugins", ""};
    char path[600];
    if (k->begun && (k->info.abilities & PA_CLEANUP))
        rule_cleanup(k, NULL);
    if (k->begun && k->stored && (k->info.abilities & PA_DELETE))
        verb_call(k, PV_DELETE, k->operation, k->id, NULL, NULL);
    for (size_t i = 0; k->dir[0] && i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", k->dir, files[i]);
        if (unlink(path) < 0)
            rmdir(path);
    }
}

#define M PLUGIN_MOVER
const struct plugin_rule check_mover_rules[] = {
    {"mover.applies", M, 0, "applies accepts the scratch file", rule_applies},
    {"mover.start", M, 0, "start answers in time with an id of at most 128 characters", rule_start},
    {"mover.start-twice", M, 0, "start for the same operation returns the same id", rule_start_twice},
    {"mover.backup", M, 0, "the backup completes, its progress is well-formed and never decreases", rule_backup},
    {"mover.watch", M, PA_WATCH, "watch streams progress and ends with a completed line", rule_watch},
    {"mover.progress-after-end", M, PA_PROGRESS, "progress answers after the end", rule_after_end},
    {"mover.progress-unknown", M, PA_PROGRESS, "progress of an unknown operation ends with exit code 16", rule_unknown},
    {"mover.cancel-after-end", M, PA_CANCEL, "cancel after the end is acknowledged as already-done", rule_cancel_late},
    {"mover.result", M, PA_RESULT, "result describes what was stored", rule_result},
    {"mover.logs", M, PA_LOGS, "logs returns text", rule_logs},
    {"mover.verify", M, PA_VERIFY, "verify finds the backup intact", rule_verify},
    {"mover.restore", M, PA_RESTORE, "restore returns the same data", rule_restore},
    {"mover.cancel", M, 0, "after a cancel (SIGTERM with run) progress reports the end", rule_cancel},
    {"mover.cleanup", M, PA_CLEANUP, "cleanup works, twice, by operation alone, and for unknown operations",
     rule_cleanup},
    {"mover.kept", M, PA_VERIFY | PA_CLEANUP, "the backup still exists after cleanup", rule_kept},
    {"mover.delete", M, PA_DELETE, "delete works, twice, and then verify ends with exit code 16", rule_delete},
};
#undef M
const unsigned check_n_mover_rules = sizeof check_mover_rules / sizeof *check_mover_rules;
