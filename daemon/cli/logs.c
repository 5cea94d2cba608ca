/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * logs.c - logs of operations, and of backups with all their operations
 *
 * With systemd, daemon and movers write to the journal with the field OPERATION; otherwise the lines of a mover are in
 * STATE-DIR/logs. The command reads both itself: it works while the daemon is down, and a large journal does not delay
 * the daemon. Where there is no journal the steps of a backup's operations are those that the records have: begin,
 * failed attempts, end.
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
#define HEAD "# operation " /* of each attempt in a mover's file, for those who read that */
#define FETCH_S 5           /* between questions for the log of a plugin that is followed */

struct log_text {
    FILE *file;
    char partial[TEXT_MAX];
    size_t partial_len;
};

struct logs {
    char id[512]; /* of the operation; of a journal of many: of the line that is read */
    sd_journal *journal;
    bool journal_begun, many;
    bool any;
    struct log_text mover, plugin; /* its own lines, and those that a plugin keeps */
};

static const char *level_name(int priority)
{
    return priority <= 3 ? "error" : priority == 4 ? "warning" : priority <= 6 ? "info" : "debug";
}

static int open_text(struct log_text *t, const char *path, struct err *e)
{
    t->file = fopen(path, "re");
    if (t->file || errno == ENOENT)
        return 0;
    err_set(e, ERR_GENERIC, errno, "cannot read %s", path);
    return err_hint(e, "only root may read logs, and the group systemd-journal those in the journal");
}

/* Its file may come later than the reader. */
static int logs_open_plugin(struct logs *l, const struct options *o, struct err *e)
{
    char path[8192];
    plugin_log_path(path, sizeof path, o->state_dir, l->id);
    return l->plugin.file ? 0 : open_text(&l->plugin, path, e);
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
    int rc = open_text(&l->mover, path, e);
    if (rc == 0)
        rc = logs_open_plugin(l, o, e);
    if (rc < 0) {
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
    if (l->mover.file)
        fclose(l->mover.file);
    if (l->plugin.file)
        fclose(l->plugin.file);
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
        if (l->many && journal_field(l->journal, "OPERATION", l->id, sizeof l->id) < 0)
            l->id[0] = '\0';
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

static int from_file(struct logs *l, struct log_text *t, log_entry_fn *fn, void *arg)
{
    if (!t->file)
        return 0;
    clearerr(t->file);
    for (int c; (c = getc(t->file)) != EOF;) {
        if (c != '\n' && t->partial_len < sizeof t->partial - 1) {
            t->partial[t->partial_len++] = c ? (char)c : ' ';
            continue;
        }
        if (c != '\n')
            continue; /* truncated */
        t->partial[t->partial_len] = '\0';
        t->partial_len = 0;
        l->any = true;
        if (!strncmp(t->partial, HEAD, sizeof HEAD - 1))
            continue;
        int rc = one_line(t->partial, fn, arg);
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
    if (rc == 0 && !logs_in_journal(l))
        rc = from_file(l, &l->mover, fn, arg);
    return rc ? rc : from_file(l, &l->plugin, fn, arg);
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
    /* Lines of the daemon begin with it. */
    const char *operation = jstr(j, "operation");
    if (*operation && strncmp(jstr(j, "text"), operation, strlen(operation)) != 0)
        printf("%s: ", text_name(operation));
    printf("%s%s%s\n", tint_on(t), text_name(jstr(j, "text")), tint_off(t));
}

static int keep_entry(struct printing *p, const json_t *j)
{
    if (!p->ring) {
        if (p->o->json)
            print_json(json_pack("{s:s, s:O}", "type", "log", "line", j));
        else
            print_entry(j);
        return 0;
    }
    if (p->max && json_array_size(p->ring) >= p->max)
        json_array_remove(p->ring, 0);
    return json_array_append(p->ring, (json_t *)(uintptr_t)j) < 0 ? -ENOMEM : 0;
}

static int keep_line(int64_t at_ns, const char *level, const char *text, void *arg)
{
    struct printing *p = arg;
    CLEANUP_JSON json_t *j = entry_json(at_ns, level, text);
    if (!j)
        return -ENOMEM;
    return keep_entry(p, j);
}

/* ---- of a backup ---- */

/* The lines of all operations since the last look, to be put in order. */
struct merging {
    struct printing *out;
    const char *operation; /* NULL: that of `from` */
    const struct logs *from;
    int64_t last_ns; /* of the source: for lines without a time */
    json_t *batch;
};

static int merge_line(int64_t at_ns, const char *level, const char *text, void *arg)
{
    struct merging *m = arg;
    json_t *j = entry_json(at_ns ? at_ns : m->last_ns, level, text);
    const char *operation = m->operation ? m->operation : m->from->id;
    if (!j)
        return -ENOMEM;
    if (at_ns)
        m->last_ns = at_ns;
    if (*operation)
        json_object_set_new(j, "operation", json_string(operation));
    return json_array_append_new(m->batch, j) < 0 ? -ENOMEM : 0;
}

struct sorted_line {
    const json_t *line;
    size_t at;
};
static int by_time(const void *a, const void *b)
{
    const struct sorted_line *x = a, *y = b;
    const int64_t s = jint(x->line, "at_ns"), t = jint(y->line, "at_ns");
    return s != t ? (s < t ? -1 : 1) : x->at < y->at ? -1 : x->at > y->at;
}

static int print_batch(struct merging *m)
{
    size_t n = json_array_size(m->batch);
    CLEANUP_FREE struct sorted_line *v = calloc(n + 1, sizeof *v);
    int rc = v ? 0 : -ENOMEM;
    for (size_t i = 0; v && i < n; i++)
        v[i] = (struct sorted_line){json_array_get(m->batch, i), i};
    if (v && n)
        qsort(v, n, sizeof *v, by_time);
    for (size_t i = 0; v && i < n && rc == 0; i++)
        rc = keep_entry(m->out, v[i].line);
    json_array_clear(m->batch);
    return rc;
}

/* What was opened of a backup; operations that it gets later are added. */
struct merged {
    const struct options *o;
    char id[512];
    struct logs *journal;
    json_t *seen;      /* operation -> number of its file + 1 */
    json_t *milestone; /* operation -> lines of the records that were printed */
    struct logs **files;
    size_t n;
    bool begun, ended;
};

static void merged_clear(struct merged *g)
{
    logs_close(g->journal);
    for (size_t i = 0; i < g->n; i++)
        logs_close(g->files[i]);
    free(g->files);
    json_decref(g->seen);
    json_decref(g->milestone);
}

/* One journal for all, so that it is searched once. */
static int merged_match(struct merged *g, const char *field, const char *id)
{
    char match[700];
    int n = snprintf(match, sizeof match, "%s=%s", field, id);
    return g->journal->journal && (sd_journal_add_disjunction(g->journal->journal) < 0 ||
                                   sd_journal_add_match(g->journal->journal, match, (size_t)n) < 0)
               ? -ENOMEM
               : 0;
}

static int merged_add(struct merged *g, const char *operation, struct err *e)
{
    char path[8192];
    if (json_object_get(g->seen, operation))
        return 0;
    struct logs **more = reallocarray(g->files, g->n + 1, sizeof *more), *l = calloc(1, sizeof *l);
    if (more)
        g->files = more;
    if (!more || !l || merged_match(g, "OPERATION", operation) < 0) {
        free(l);
        return err_nomem(e);
    }
    snprintf(l->id, sizeof l->id, "%s", operation);
    mover_log_path(path, sizeof path, g->o->state_dir, operation);
    const int rc = open_text(&l->mover, path, e);
    if (rc < 0) {
        logs_close(l);
        return rc;
    }
    g->files[g->n++] = l;
    json_object_set_new(g->seen, operation, json_integer((json_int_t)g->n));
    return 0;
}

/* The steps of an operation that the records have, each once. */
static int merge_milestones(struct merged *g, struct merging *m, const json_t *op)
{
    const json_t *details = jobj(op, "details"), *a;
    const char *id = jstr(op, "id");
    char text[TEXT_MAX];
    json_int_t printed = (json_int_t)jint(g->milestone, id), n = 0;
    size_t i;
    m->operation = id;
    m->last_ns = 0;
    if (!jint(op, "recorded_ns") && ++n > printed)
        merge_line(jint(op, "created_ns"), "info", "submitted", m);
    if (jint(op, "started_ns") && ++n > printed)
        merge_line(jint(op, "started_ns"), "info", "begun", m);
    json_array_foreach(jarr(details, "attempts"), i, a)
    {
        snprintf(text, sizeof text, "%s: %s", jstr(a, "stage"), jstr(a, "message"));
        if (++n > printed)
            merge_line(jint(a, "at_ns"), "warning", text, m);
    }
    if (jint(op, "ended_ns") && ++n > printed) {
        const json_t *error = jobj(op, "error");
        snprintf(text, sizeof text, "%s%s%s", jstr(op, "state"), error ? ": " : "", jstr(error, "message"));
        merge_line(jint(op, "ended_ns"), !strcmp(jstr(op, "state"), "Failed") ? "error" : "info", text, m);
    }
    json_object_set_new(g->milestone, id, json_integer(n));
    return 0;
}

static int merged_read(struct merged *g, const json_t *backup, struct printing *out, struct err *e)
{
    struct merging m = {.out = out, .batch = json_array()};
    const json_t *op;
    size_t i;
    int rc = m.batch ? 0 : err_nomem(e);
    json_array_foreach(jarr(backup, "operations"), i, op) if (rc >= 0) rc = merged_add(g, jstr(op, "id"), e);
    m.from = g->journal;
    if (!g->begun && g->journal->journal)
        sd_journal_seek_head(g->journal->journal);
    g->begun = true;
    if (rc >= 0 && from_journal(g->journal, merge_line, &m) < 0)
        rc = err_nomem(e);
    for (size_t k = 0; k < g->n && rc >= 0; k++) {
        struct logs *l = g->files[k];
        m.from = l;
        m.operation = NULL;
        m.last_ns = 0;
        rc = logs_open_plugin(l, g->o, e);
        if (rc >= 0 && ((!logs_in_journal(g->journal) && from_file(l, &l->mover, merge_line, &m) < 0) ||
                        from_file(l, &l->plugin, merge_line, &m) < 0))
            rc = err_nomem(e);
    }
    if (!logs_in_journal(g->journal))
        json_array_foreach(jarr(backup, "operations"), i, op) if (rc >= 0) merge_milestones(g, &m, op);
    g->journal->any |= json_array_size(m.batch) > 0;
    if (rc >= 0 && print_batch(&m) < 0)
        rc = err_nomem(e);
    json_decref(m.batch);
    return rc;
}

static int merged_open(struct merged *g, const struct options *o, const char *id, struct err *e)
{
    *g = (struct merged){.o = o, .seen = json_object(), .milestone = json_object()};
    snprintf(g->id, sizeof g->id, "%s", id);
    g->journal = calloc(1, sizeof *g->journal);
    if (!g->journal || !g->seen || !g->milestone)
        return err_nomem(e);
    g->journal->many = true;
    if (sd_journal_open(&g->journal->journal, SD_JOURNAL_LOCAL_ONLY | SD_JOURNAL_SYSTEM) < 0)
        g->journal->journal = NULL;
    return merged_match(g, "BACKUP", id) < 0 ? err_nomem(e) : 0;
}

static int describe_again(const struct options *o, bool again, json_t **answer, struct err *e)
{
    CLEANUP_JSON json_t *args = json_pack("{s:s}", "id", o->args[0]);
    return again ? ask_again(o, "describe", json_incref(args), answer, e)
                 : ask_or_read(o, "describe", json_incref(args), answer, e);
}

/* Retention runs in operations of its own, and those of a large backup are not all described: NULL if they are not
 * known. Who follows needs the newest ones. */
static json_t *other_operations(const struct options *o, const char *backup, bool follows)
{
    struct err ignored = ERR_INIT;
    json_t *answer = NULL;
    if (follows)
        ask_again(o, "operations", json_pack("{s:s, s:b, s:i}", "backup", backup, "all", 1, "limit", 1000), &answer,
                  &ignored);
    else
        ask_operations_of(o, backup, &answer, &ignored);
    return answer;
}

/* Those that are not described are added to the others, in the order of the backup. */
static void add_omitted(const json_t *backup, const json_t *others)
{
    json_t *described = jarr(backup, "operations");
    CLEANUP_JSON json_t *seen = json_object();
    const json_t *list = jarr(others, "operations"), *op;
    size_t i;
    if (!described || !json_object_get(jobj(backup, "omitted"), "operations"))
        return;
    json_array_foreach(described, i, op) json_object_set_new(seen, jstr(op, "id"), json_true());
    for (i = json_array_size(list); i-- > 0;) {
        op = json_array_get(list, i);
        if (!strcmp(jstr(op, "kind"), jstr(backup, "kind")) && !json_object_get(seen, jstr(op, "id")))
            json_array_append(described, (json_t *)(uintptr_t)op);
    }
}

/* The lines of a backup since the last call, and whether it has ended. */
static int backup_lines(const struct options *o, struct merged *g, const json_t *backup, struct printing *p,
                        struct err *e)
{
    CLEANUP_JSON json_t *others = other_operations(o, jstr(backup, "id"), g->begun);
    const json_t *op;
    size_t i;
    int rc = 0;
    g->ended = state_terminal(jstr(backup, "state"));
    add_omitted(backup, others);
    json_array_foreach(jarr(others, "operations"), i, op) if (rc >= 0) rc = merged_add(g, jstr(op, "id"), e);
    return rc < 0 ? rc : merged_read(g, backup, p, e);
}

static int follow_backup(const struct options *o, struct merged *g, struct printing *p, struct err *e)
{
    const struct mover_cancel *cancel = cli_cancel();
    while (!g->ended && !atomic_load(&cancel->requested)) {
        CLEANUP_JSON json_t *answer = NULL;
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
        int rc = describe_again(o, true, &answer, e);
        if (rc >= 0)
            rc = backup_lines(o, g, jobj(answer, "backup"), p, e);
        if (rc < 0)
            return rc;
        fflush(stdout);
    }
    return g->ended ? 0 : err_set(e, ERR_INTERRUPTED, 0, "interrupted");
}

static void print_ring(struct printing *p)
{
    CLEANUP_JSON json_t *ring = p->ring;
    const json_t *j;
    size_t i;
    p->ring = NULL;
    json_array_foreach(ring, i, j) keep_entry(p, j);
}

static int logs_of_backup(const struct options *o, const json_t *backup, struct err *e)
{
    CLEANUP(merged_clear) struct merged g;
    const bool at_once = !o->lines && (!o->json || o->follow);
    struct printing p = {.o = o, .ring = at_once ? NULL : json_array(), .max = o->lines};
    int rc = merged_open(&g, o, jstr(backup, "id"), e);
    if (rc >= 0)
        rc = backup_lines(o, &g, backup, &p, e);
    if (rc >= 0 && o->json && !o->follow) {
        CLEANUP_JSON json_t *answer =
            json_pack("{s:O, s:s}", "lines", p.ring, "source", logs_in_journal(g.journal) ? "journal" : "file");
        print_answer(o, answer);
    } else if (rc >= 0) {
        print_ring(&p);
        if (!g.journal->any && !o->follow && !o->quiet)
            printf("No log of %s.\n", text_name(jstr(backup, "id")));
        if (o->follow)
            rc = follow_backup(o, &g, &p, e);
    }
    json_decref(p.ring);
    return rc;
}

/* The full id of BACKUP/VOLUME, a prefix or an id, and whether it has ended. */
static int operation_of(const struct options *o, const json_t *answer, char id[512], bool *ended, struct err *e)
{
    const json_t *op = jobj(answer, jstr(answer, "kind"));
    snprintf(id, 512, "%s", jstr(op, "id"));
    *ended = state_terminal(jstr(op, "state"));
    if (!*id)
        return err_set(e, ERR_USAGE, 0, "%s is not an operation", text_name(o->args[0]));
    return 0;
}

/* A plugin that still works has its log itself: the daemon asks for it. */
static void fetch_log(const struct options *o, const char *id)
{
    CLEANUP_JSON json_t *answer = NULL;
    struct err e = ERR_INIT;
    if (daemon_ask(o, "logs", json_pack("{s:s}", "id", id), &answer, &e) < 0 && e.cls != ERR_NO_DAEMON)
        log_warning("%s", e.msg);
}

static int follow_log(const struct options *o, struct logs *l, struct printing *p, struct err *e)
{
    const struct mover_cancel *cancel = cli_cancel();
    char id[512];
    bool ended = false;
    unsigned seconds = 1; /* asked for just now */
    json_decref(p->ring);
    p->ring = NULL;
    while (!atomic_load(&cancel->requested)) {
        /* The state is read first, so that no line before the end is missed. */
        CLEANUP_JSON json_t *answer = NULL;
        int rc = describe_again(o, true, &answer, e);
        if (rc >= 0)
            rc = operation_of(o, answer, id, &ended, e);
        if (rc < 0)
            return rc;
        if (!ended && seconds++ % FETCH_S == 0)
            fetch_log(o, id);
        if ((rc = logs_open_plugin(l, o, e)) < 0)
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
    CLEANUP_JSON json_t *described = NULL;
    int rc = describe_again(o, false, &described, e);
    if (rc >= 0 && jobj(described, "backup"))
        return logs_of_backup(o, jobj(described, "backup"), e);
    if (rc >= 0)
        rc = operation_of(o, described, id, &ended, e);
    if (rc < 0)
        return rc;
    CLEANUP(logs_closep) struct logs *l = NULL;
    if (!ended)
        fetch_log(o, id);
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
