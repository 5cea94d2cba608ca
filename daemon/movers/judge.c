/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * judge.c - how a mover ended: result file compared with exit status, and the message
 *
 * Three cases are distinguished (MS-31): it never started, it died while running, it finished and its result cannot be
 * read. A result that contradicts the exit status is a failure whose message has both (MS-27).
 */
#include "daemon/movers/builtin-impl.h"

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/time.h"
#include "base/units.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* ---- words ---- */

static const char *phase_of(const struct mover *v)
{
    const char *p = json_string_value(json_object_get(v->progress, "phase"));
    return p ? p : "opening";
}

/* "; last progress: moving, 1.5 GiB of 8.0 GiB, 3 s before" */
static void last_progress(const struct mover *v, char *out, size_t cap)
{
    char done[32], total[32], ago[32];
    *out = '\0';
    if (!v->progress)
        return;
    const int64_t end = v->gone_ns ? v->gone_ns : mono_ns();
    const uint64_t of = (uint64_t)json_integer_value(json_object_get(v->progress, "total"));
    amount_text((double)json_integer_value(json_object_get(v->progress, "done")), done, sizeof done);
    snprintf(out, cap, "; last progress: %s, %s%s%s, %s before", phase_of(v), done, of ? " of " : "",
             of ? amount_text((double)of, total, sizeof total) : "",
             span_text((double)(end - v->progress_ns) / 1e9, ago, sizeof ago));
}

static void status_text(const struct mover *v, char *out, size_t cap)
{
    if (v->status < 0)
        snprintf(out, cap, "exit status unknown");
    else if (WIFSIGNALED(v->status))
        snprintf(out, cap, "killed by signal %d (%s)", WTERMSIG(v->status), strsignal(WTERMSIG(v->status)));
    else
        snprintf(out, cap, "exit status %d", WEXITSTATUS(v->status));
}

static void copy_text(char *out, size_t cap, const char *in)
{
    size_t n = 0;
    for (; in && in[n] && n + 1 < cap; n++)
        out[n] = (unsigned char)in[n] < 0x20 || in[n] == 0x7f ? '?' : in[n];
    /* Truncated inside a character: the whole character is removed. */
    if (in && in[n])
        while (n && ((unsigned char)in[n] & 0xc0) == 0x80)
            n--;
    out[n] = '\0';
}

/* "; its last words: ...": what it sent last, or wrote into its log file, where it left no result; "" if nothing. */
static void last_words(const struct mover *v, char *out, size_t cap)
{
    char path[4300], text[2048];
    const char *last = v->log_next ? v->log[(v->log_next - 1) % LOG_TAIL] : "";
    *out = '\0';
    if (!*last && mover_log_path(path, sizeof path, v->owner->state_dir, v->operation) == 0) {
        CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        const off_t end = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
        ssize_t n = fd < 0 ? 0 : pread(fd, text, sizeof text - 1, end > 2047 ? end - 2047 : 0);
        while (n > 0 && text[n - 1] == '\n')
            n--;
        text[n > 0 ? n : 0] = '\0';
        last = strrchr(text, '\n') ? strrchr(text, '\n') + 1 : text;
        if (*last == '#') /* the head of the file */
            return;
    }
    if (*last)
        snprintf(out, cap, "; its last words: ");
    copy_text(out + strlen(out), cap - strlen(out), last);
}

static void process_text(const struct mover *v, char *out, size_t cap)
{
    if (v->id.unit[0])
        snprintf(out, cap, "mover of %s (process %d, unit %s)", v->operation, (int)v->id.pid, v->id.unit);
    else if (v->id.pid)
        snprintf(out, cap, "mover of %s (process %d)", v->operation, (int)v->id.pid);
    else
        snprintf(out, cap, "mover of %s", v->operation);
}

static void end_set(struct mover_end *end, enum mover_outcome o, enum err_class cls, const struct mover *v,
                    const char *fmt, ...) __attribute__((format(printf, 5, 6)));
static void end_set(struct mover_end *end, enum mover_outcome o, enum err_class cls, const struct mover *v,
                    const char *fmt, ...)
{
    char who[700], what[800];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    process_text(v, who, sizeof who);
    end->outcome = o;
    end->err = (struct err)ERR_INIT;
    err_set(&end->err, cls, 0, "%s %s", who, what);
    err_hint(&end->err, "see `snapferry logs %s`", v->operation);
}

/* ---- the error in a result ---- */

static void copy_error(struct err *e, const json_t *j)
{
    json_int_t cls = json_integer_value(json_object_get(j, "exit"));
    json_int_t sys = json_integer_value(json_object_get(j, "errno"));
    const char *message = json_string_value(json_object_get(j, "message"));
    *e = (struct err)ERR_INIT;
    e->cls = cls > 0 && cls <= ERR_INTERRUPTED && strcmp(err_class_name((enum err_class)cls), "error") != 0
                 ? (enum err_class)cls
                 : ERR_GENERIC;
    e->sys = sys > 0 && sys < 4096 ? (int)sys : 0;
    copy_text(e->msg, sizeof e->msg, message && *message ? message : "no reason given by the mover");
    copy_text(e->hint, sizeof e->hint, json_string_value(json_object_get(j, "hint")));
}

/* ---- judging ---- */

static enum mover_outcome outcome_of_code(json_int_t code)
{
    static const enum mover_outcome of[RESULT_CODES] = {MOVER_OK, MOVER_FAILED, MOVER_CANCELED, MOVER_TRANSIENT,
                                                        MOVER_SOURCE_LOST};
    return code >= 0 && code < RESULT_CODES ? of[code] : MOVER_FAILED;
}

static bool was_oom(const struct mover *v)
{
    return v->oom || (v->oom_kills > 0 && v->status >= 0 && WIFSIGNALED(v->status) && WTERMSIG(v->status) == SIGKILL);
}

/* Killed by the daemon: the reason. */
static void judge_killed(const struct mover *v, struct mover_end *end)
{
    char last[200];
    last_progress(v, last, sizeof last);
    switch (v->killed) {
    case KILL_STALL:
        end_set(end, MOVER_HUNG, ERR_GENERIC, v, "stalled: no progress for %s in stage %s; it was killed%s",
                duration_words(v->stall_timeout_s), phase_of(v), last);
        break;
    case KILL_DURATION:
        end_set(end, MOVER_FAILED, ERR_GENERIC, v, "exceeded max-duration (%s) and was canceled%s",
                duration_words(v->max_duration_s), last);
        err_hint(&end->err, "stored data is kept and the next run resumes; or raise max-duration");
        break;
    case KILL_START:
        end_set(end, MOVER_NEVER_STARTED, ERR_GENERIC, v, "never started: not ready within %s; killed",
                duration_words(v->go_timeout_s));
        break;
    case KILL_PROTOCOL:
        end_set(end, MOVER_DIED, ERR_GENERIC, v, "was killed after repeated protocol violations: %s", v->violation);
        break;
    case KILL_VERSION:
        end_set(end, v->go ? MOVER_DIED : MOVER_NEVER_STARTED, ERR_GENERIC, v, "%s: %s, of another version",
                v->go ? "was killed" : "never started", v->violation);
        err_hint(&end->err, "both programs must be of one version: complete the upgrade, then `systemctl restart "
                            "snapferryd`; it is tried again until then");
        break;
    case KILL_CANCEL:
    case KILL_NONE:
        end_set(end, MOVER_CANCELED, ERR_INTERRUPTED, v, "did not end within cancel-grace and was killed%s", last);
        break;
    }
}

static void judge_without_result(const struct mover *v, struct mover_end *end, const char *why)
{
    char status[128], last[200], peak[32], words[320];
    status_text(v, status, sizeof status);
    last_progress(v, last, sizeof last);
    last_words(v, words, sizeof words);
    const bool exited = v->status >= 0 && WIFEXITED(v->status);
    if (was_oom(v)) {
        end_set(end, MOVER_OOM, ERR_MEMORY, v, "was killed: memory limit of %s reached%s",
                amount_text((double)v->memory_max, peak, sizeof peak), last);
        err_hint(&end->err, "raise memory-max, or lower memory, index-memory or workers in [mover]");
    } else if (v->canceled) {
        end_set(end, MOVER_CANCELED, ERR_INTERRUPTED, v, "was canceled without a result: %s%s", status, last);
    } else if (!v->start_seen && !(v->adopted || v->progress)) {
        if (json_is_object(v->refused)) {
            struct err r;
            copy_error(&r, v->refused);
            end_set(end, MOVER_NEVER_STARTED, r.cls, v, "never started: job refused: %.600s", r.msg);
        } else {
            /* It knows whether another attempt would help (may it enter the runtime directory?), and could not tell. */
            const bool refused = exited && !v->begin_error[0] && WEXITSTATUS(v->status) == RESULT_FAILED;
            end_set(end, refused ? MOVER_FAILED : MOVER_NEVER_STARTED, ERR_GENERIC, v, "never started: %s%s",
                    v->begin_error[0] ? v->begin_error : status, v->begin_error[0] ? "" : words);
        }
    } else if (exited) {
        end_set(end, MOVER_MISMATCH, ERR_GENERIC, v, "finished but its result is unreadable: %s; %s%s", why, status,
                words);
    } else {
        const bool left = strcmp(why, "missing") != 0 && strcmp(why, "empty") != 0;
        end_set(end, MOVER_DIED, ERR_GENERIC, v, "died while running: %s%s%s%s%s", status,
                left ? "; its result is unreadable: " : "", left ? why : "", last, words);
        const int sig = v->status >= 0 ? WTERMSIG(v->status) : 0;
        if (sig == SIGKILL)
            err_hint(
                &end->err,
                "killed externally, or by the kernel for lack of memory: see the kernel log, and `snapferry logs %s`",
                v->operation);
        else if (sig == SIGBUS)
            err_hint(&end->err,
                     "a file of the cache directory was truncated, or its disk failed: see the kernel log, "
                     "and `snapferry logs %s`",
                     v->operation);
    }
}

static void judge_result(const struct mover *v, struct mover_end *end)
{
    const json_int_t code = json_integer_value(json_object_get(end->result, "code"));
    const json_t *error = json_object_get(end->result, "error");
    const bool agrees = v->status < 0 || (WIFEXITED(v->status) && WEXITSTATUS(v->status) == code) || v->killed_now;
    char status[128];
    if (!agrees) {
        status_text(v, status, sizeof status);
        end_set(end, MOVER_MISMATCH, ERR_GENERIC, v, "result mismatch: result file has code %lld, process: %s",
                (long long)code, status);
        return;
    }
    end->outcome = outcome_of_code(code);
    if (code != RESULT_OK)
        copy_error(&end->err, error);
    /* It did not begin: a retry costs nothing. Its own error is the best reason. */
    if (code != RESULT_OK && code != RESULT_CANCELED && json_is_false(json_object_get(end->result, "started"))) {
        struct err r = end->err;
        end_set(end, MOVER_NEVER_STARTED, r.cls, v, "never started: %.700s", r.msg);
        if (r.hint[0])
            err_hint(&end->err, "%s", r.hint);
    }
    if (v->killed == KILL_DURATION && code == RESULT_CANCELED)
        judge_killed(v, end);
    /* Terminated externally. */
    if (end->outcome == MOVER_CANCELED && !v->canceled && v->killed == KILL_NONE && v->status >= 0)
        err_hint(&end->err,
                 "terminated externally (systemctl stop, shutdown); the next attempt resumes from its checkpoint");
}

void mover_judge(const struct mover *v, json_t *result, const char *why, struct mover_end *end)
{
    const char *fault = result ? result_fault(result, v->operation, v->kind, v->id.pid) : why;
    *end = (struct mover_end){.status = v->status,
                              .memory_peak = v->memory_peak,
                              .oom_kills = v->oom_kills,
                              .cpu_seconds = v->cpu_seconds,
                              .looked_for = v->looked_for};
    end->result = fault ? NULL : json_incref(result);
    if (end->result)
        judge_result(v, end);
    else if (v->killed_now)
        judge_killed(v, end);
    else
        judge_without_result(v, end, fault);
}
