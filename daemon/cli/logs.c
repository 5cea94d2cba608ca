/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * logs.c - logs of operations
 *
 * With systemd, daemon and movers write to the journal with the field OPERATION; otherwise the lines of a mover are in
 * STATE-DIR/logs. The command reads both itself: it works while the daemon is down, and a large journal does not delay
 * the daemon.
 */
#include "daemon/cli/logs.h"

#include "base/time.h"
#include "daemon/protocol/mover-files.h"
#include "daemon/records/records.h"

#include <errno.h>
#include <string.h>
#include <systemd/sd-journal.h>
#include <time.h>

#define TEXT_MAX 8192

struct logs {
    char id[512];
    sd_journal *journal;
    bool journal_begun;
    bool any;
    FILE *file;
    char partial[TEXT_MAX];
    size_t partial_len;
};

static const char *level_name(int priority)
{
    return priority <= 3 ? "error" : priority == 4 ? "warning" : priority <= 6 ? "info" : "debug";
}

int logs_open(struct logs **ret, const struct options *o, const char *id, struct err *e)
{
    struct logs *l = calloc(1, sizeof *l);
    if (!l)
        return err_nomem(e);
    snprintf(l->id, sizeof l->id, "%s", id);
    char match[600], path[8192];
    int n = snprintf(match, sizeof match, "OPERATION=%s", id);
    if (sd_journal_open(&l->journal, SD_JOURNAL_LOCAL_ONLY | SD_JOURNAL_SYSTEM) < 0 ||
        sd_journal_add_match(l->journal, match, (size_t)n) < 0 || sd_journal_seek_head(l->journal) < 0) {
        sd_journal_close(l->journal);
        l->journal = NULL;
    }
    mover_log_path(path, sizeof path, o->state_dir, id);
    l->file = fopen(path, "re");
    if (!l->file && errno != ENOENT) {
        int rc = err_set(e, ERR_GENERIC, errno, "cannot read %s", path);
        err_hint(e, "only root may read logs, and the group systemd-journal those in the journal");
        logs_close(l);
        return rc;
    }
    *ret = l;
    return 0;
}

void logs_close(struct logs *l)
{
    if (!l)
        return;
    sd_journal_close(l->journal);
    if (l->file)
        fclose(l->file);
    free(l);
}

bool logs_in_journal(const struct logs *l)
{
    return l->journal && l->journal_begun;
}

static int journal_field(sd_journal *j, const char *name, char *out, size_t cap)
{
    const void *data;
    size_t n, skip = strlen(name) + 1;
    if (sd_journal_get_data(j, name, &data, &n) < 0 || n < skip)
        return -ENOENT;
    n -= skip;
    if (n >= cap)
        n = cap - 1;
    memcpy(out, (const char *)data + skip, n);
    out[n] = '\0';
    return 0;
}

static int from_journal(struct logs *l, log_entry_fn *fn, void *arg)
{
    if (!l->journal)
        return 0;
    sd_journal_process(l->journal);
    while (sd_journal_next(l->journal) > 0) {
        char text[TEXT_MAX], priority[16] = "6";
        uint64_t usec = 0;
        l->journal_begun = true;
        if (journal_field(l->journal, "MESSAGE", text, sizeof text) < 0)
            continue;
        journal_field(l->journal, "PRIORITY", priority, sizeof priority);
        sd_journal_get_realtime_usec(l->journal, &usec);
        int rc = fn((int64_t)usec * 1000, level_name((int)strtol(priority, NULL, 10)), text, arg);
        if (rc)
            return rc;
    }
    return 0;
}

/* "2026-11-21T02:00:00.123Z warning text"; other lines have neither time nor level. */
static int one_line(const char *line, log_entry_fn *fn, void *arg)
{
    static const char *const levels[] = {"debug ", "info ", "warning ", "error "};
    struct tm tm = {0};
    int ms = 0, used = 0;
    const char *rest = strptime(line, "%Y-%m-%dT%H:%M:%S", &tm);
    if (!rest || sscanf(rest, ".%3dZ %n", &ms, &used) != 1 || !used)
        return fn(0, "info", line, arg);
    int64_t at_ns = (int64_t)timegm(&tm) * NS_PER_S + ms * NS_PER_MS;
    rest += used;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        size_t n = strlen(levels[i]);
        if (!strncmp(rest, levels[i], n)) {
            char level[16];
            snprintf(level, sizeof level, "%.*s", (int)n - 1, levels[i]);
            return fn(at_ns, level, rest + n, arg);
        }
    }
    return fn(at_ns, "info", rest, arg);
}

static int from_file(struct logs *l, log_entry_fn *fn, void *arg)
{
    if (!l->file)
        return 0;
    clearerr(l->file);
    for (int c; (c = getc(l->file)) != EOF;) {
        if (c != '\n' && l->partial_len < sizeof l->partial - 1) {
            l->partial[l->partial_len++] = c ? (char)c : ' ';
            continue;
        }
        if (c != '\n')
            continue; /* truncated */
        l->partial[l->partial_len] = '\0';
        l->partial_len = 0;
        l->any = true;
        int rc = one_line(l->partial, fn, arg);
        if (rc)
            return rc;
    }
    return 0;
}

int logs_read(struct logs *l, log_entry_fn *fn, void *arg)
{
    int rc = from_journal(l, fn, arg);
    l->any |= l->journal_begun;
    /* Logs of units are only in the journal; if both exist, the journal is complete. */
    return rc || logs_in_journal(l) ? rc : from_file(l, fn, arg);
}

/* ---- the verb ---- */

struct printing {
    const struct options *o;
    json_t *ring; /* the last lines; NULL: printed immediately */
    size_t max;
};

static json_t *entry_json(int64_t at_ns, const char *level, const char *text)
{
    json_t *j = json_pack("{s:s, s:s}", "level", level, "text", text);
    if (!j) /* not UTF-8 */
        j = json_pack("{s:s, s:s}", "level", level, "text", text_name(text));
    if (j && at_ns)
        json_object_set_new(j, "at_ns", json_integer(at_ns));
    return j;
}

static void print_entry(const json_t *j)
{
    const char *level = jstr(j, "level");
    enum tint t = !strcmp(level, "error") ? TINT_BAD : !strcmp(level, "warning") ? TINT_WARN : TINT_NONE;
    if (jint(j, "at_ns"))
        printf("%s ", text_local_time(jint(j, "at_ns")));
    printf("%s%s%s\n", tint_on(t), text_name(jstr(j, "text")), tint_off(t));
}

static int keep_line(int64_t at_ns, const char *level, const char *text, void *arg)
{
    struct printing *p = arg;
    CLEANUP_JSON json_t *j = entry_json(at_ns, level, text);
    if (!j)
        return -ENOMEM;
    if (!p->ring) {
        if (p->o->json)
            print_json(json_pack("{s:s, s:O}", "type", "log", "line", j));
        else
            print_entry(j);
        return 0;
    }
    if (p->max && json_array_size(p->ring) >= p->max)
        json_array_remove(p->ring, 0);
    return json_array_append(p->ring, j) < 0 ? -ENOMEM : 0;
}

/* The full id of BACKUP/VOLUME, a prefix or an id, and whether it has ended. */
static int find_operation(const struct options *o, bool again, char id[512], bool *ended, struct err *e)
{
    CLEANUP_JSON json_t *answer = NULL, *args = json_pack("{s:s}", "id", o->args[0]);
    int rc = again ? ask_again(o, "describe", json_incref(args), &answer, e)
                   : ask_or_read(o, "describe", json_incref(args), &answer, e);
    if (rc < 0)
        return rc;
    const json_t *doc = jobj(answer, jstr(answer, "kind")), *op;
    const json_t *ops = jarr(doc, "operations");
    if (!strcmp(jstr(answer, "kind"), "backup")) {
        if (json_array_size(ops) != 1) {
            err_set(e, ERR_USAGE, 0, "%s has %zu operations", jstr(doc, "id"), json_array_size(ops));
            return err_hint(e, "use %s/VOLUME; snapferry describe %s lists them", jstr(doc, "id"), jstr(doc, "id"));
        }
        op = json_array_get(ops, 0);
    } else {
        op = doc;
    }
    snprintf(id, 512, "%s", jstr(op, "id"));
    *ended = state_terminal(jstr(op, "state"));
    if (!*id)
        return err_set(e, ERR_USAGE, 0, "%s is not an operation", text_name(o->args[0]));
    return 0;
}

static int follow_log(const struct options *o, struct logs *l, struct printing *p, struct err *e)
{
    const struct mover_cancel *cancel = cli_cancel();
    char id[512];
    bool ended = false;
    json_decref(p->ring);
    p->ring = NULL;
    while (!atomic_load(&cancel->requested)) {
        /* The state is read first, so that no line before the end is missed. */
        int rc = find_operation(o, true, id, &ended, e);
        if (rc < 0)
            return rc;
        logs_read(l, keep_line, p);
        fflush(stdout);
        if (ended)
            return 0;
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    }
    return err_set(e, ERR_INTERRUPTED, 0, "interrupted");
}

int ask_logs(const struct options *o, struct err *e)
{
    char id[512];
    bool ended;
    int rc = find_operation(o, false, id, &ended, e);
    if (rc < 0)
        return rc;
    CLEANUP(logs_closep) struct logs *l = NULL;
    rc = logs_open(&l, o, id, e);
    if (rc < 0)
        return rc;
    bool at_once = !o->lines && (!o->json || o->follow);
    struct printing p = {.o = o, .ring = at_once ? NULL : json_array(), .max = o->lines};
    if (!p.ring && !at_once)
        return err_nomem(e);
    rc = logs_read(l, keep_line, &p) < 0 ? err_nomem(e) : 0;
    size_t i;
    const json_t *j;
    if (rc >= 0 && o->json && !o->follow) {
        CLEANUP_JSON json_t *answer =
            json_pack("{s:O, s:s}", "lines", p.ring, "source", logs_in_journal(l) ? "journal" : "file");
        print_answer(o, answer);
    } else if (rc >= 0) {
        json_array_foreach(p.ring, i, j)
        {
            if (o->json)
                print_json(json_pack("{s:s, s:O}", "type", "log", "line", j));
            else
                print_entry(j);
        }
        if (!l->any && !o->follow && !o->quiet)
            printf("No log of %s.\n", text_name(id));
        if (o->follow)
            rc = follow_log(o, l, &p, e);
    }
    json_decref(p.ring);
    return rc;
}
