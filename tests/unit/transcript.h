/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * transcript.h - what was decided, as text: rows with the members that changed, intents, actions with their arguments
 *
 * Times are seconds since the scenario began (@90s), classes, policies, volumes and native snapshots show their names.
 * Include it behind model.h in one file of a program.
 */
#ifndef SNAPFERRY_TESTS_UNIT_TRANSCRIPT_H
#define SNAPFERRY_TESTS_UNIT_TRANSCRIPT_H

#include "tests/unit/model.h"

#define EPOCH_NS (INT64_C(1700000000) * NS_PER_S) /* when scenarios begin */
#define CHANGED_MAX 400
#define COLUMNS 116

/* ---- text ---- */

static struct text {
    char *v;
    size_t n, cap;
} out;

static void out_bytes(const char *s, size_t n)
{
    if (out.n + n + 1 > out.cap) {
        out.cap = 2 * (out.n + n + 1);
        out.v = realloc(out.v, out.cap);
        assert_non_null(out.v);
    }
    memcpy(out.v + out.n, s, n);
    out.v[out.n += n] = '\0';
}

static void out_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void out_text(const char *fmt, ...)
{
    char *s = NULL;
    va_list ap;
    va_start(ap, fmt);
    assert_true(vasprintf(&s, fmt, ap) >= 0);
    va_end(ap);
    out_bytes(s, strlen(s));
    free(s);
}

/* One indented line; what is longer goes on with more indentation, at blanks. */
static void out_line(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void out_line(const char *fmt, ...)
{
    char *s = NULL;
    va_list ap;
    va_start(ap, fmt);
    assert_true(vasprintf(&s, fmt, ap) >= 0);
    va_end(ap);
    const char *rest = s;
    for (size_t indent = 4;; indent = 10) {
        size_t n = strlen(rest);
        if (n > COLUMNS - indent) {
            n = COLUMNS - indent;
            while (n > 40 && rest[n] != ' ')
                n--;
            if (rest[n] != ' ')
                n = strcspn(rest, " ");
        }
        out_text("%*s", (int)indent, "");
        out_bytes(rest, n);
        out_bytes("\n", 1);
        if (!rest[n])
            break;
        rest += n + 1;
    }
    free(s);
}

/* ---- values ---- */

static void put_value(FILE *f, const json_t *v);

static bool put_time(FILE *f, json_int_t v)
{
    const int64_t ms = (v - EPOCH_NS) / NS_PER_MS;
    if (v < EPOCH_NS - INT64_C(400) * 86400 * NS_PER_S || v > EPOCH_NS + INT64_C(4000) * 86400 * NS_PER_S)
        return false;
    fprintf(f, "@%lld", (long long)(ms / 1000));
    if (ms % 1000)
        fprintf(f, ".%03lld", (long long)(ms % 1000));
    return fputs("s", f) >= 0;
}

static bool put_error(FILE *f, const json_t *o)
{
    if (!json_object_get(o, "message") || !json_object_get(o, "at_ns"))
        return false;
    fprintf(f, "%s: \"%s\" (%s %lld, attempt %lld, ", jstr(o, "stage"), jstr(o, "message"), jstr(o, "class"),
            (long long)jint(o, "errno"), (long long)jint(o, "attempt"));
    put_time(f, jint(o, "at_ns"));
    fprintf(f, jstr(o, "hint")[0] ? "; %s)" : ")", jstr(o, "hint"));
    return true;
}

/* What the configuration gives is shown by its name. */
static bool put_named(FILE *f, const json_t *o)
{
    if (json_object_get(o, "snapshots_to_retain"))
        fprintf(f, "policy(%s, retries %lld)", jstr(o, "repository"), (long long)jint(o, "retries"));
    else if (json_object_get(o, "driver") && json_object_get(o, "name"))
        fprintf(f, "class(%s)", jstr(o, "name"));
    else if (json_object_get(o, "pool") && json_object_get(o, "name"))
        fprintf(f, "%s", jstr(o, "name"));
    else if (json_object_get(o, "handle") && json_object_get(o, "volume_id"))
        fprintf(f, "native(%s, %lld bytes%s)", jstr(o, "alias"), (long long)jint(o, "used"),
                jbool(o, "removed") ? ", removed"
                : jbool(o, "gone")  ? ", gone"
                                    : "");
    else
        return false;
    return true;
}

static void put_object(FILE *f, const json_t *o)
{
    const char *key, *between = "";
    json_t *v;
    if (put_named(f, o) || put_error(f, o))
        return;
    fputc('{', f);
    json_object_foreach((json_t *)(uintptr_t)o, key, v)
    {
        fprintf(f, "%s%s ", between, key);
        put_value(f, v);
        between = ", ";
    }
    fputc('}', f);
}

static void put_value(FILE *f, const json_t *v)
{
    const json_t *item;
    size_t i;
    if (json_is_object(v)) {
        put_object(f, v);
    } else if (json_is_array(v)) {
        fputc('[', f);
        json_array_foreach(v, i, item)
        {
            fputs(i ? ", " : "", f);
            put_value(f, item);
        }
        fputc(']', f);
    } else if (json_is_string(v)) {
        const char *s = json_string_value(v);
        if (json_string_length(v) > 2000)
            fprintf(f, "(%zu bytes)", json_string_length(v));
        else
            fprintf(f, s[0] && !strchr(s, ' ') ? "%s" : "\"%s\"", s);
    } else if (json_is_integer(v)) {
        const json_int_t n = json_integer_value(v), first = EPOCH_NS / NS_PER_S;
        if (n > first && n < first + 100000) /* a number of the one sequence, which begins so */
            fprintf(f, "#%lld", (long long)(n - first));
        else if (!put_time(f, n))
            fprintf(f, "%lld", (long long)json_integer_value(v));
    } else if (json_is_real(v)) {
        fprintf(f, "%.4g", json_real_value(v));
    } else {
        fputs(json_is_true(v) ? "yes" : json_is_false(v) ? "no" : "none", f);
    }
}

/* malloc()ed. */
static char *value_text(const json_t *v)
{
    char *s = NULL;
    size_t n;
    FILE *f = open_memstream(&s, &n);
    assert_non_null(f);
    put_value(f, v);
    fclose(f);
    return s;
}

/* ---- rows ---- */

/* A row as it was at a time: what is beside its document, and that as text, of which few are shown. */
struct row_text {
    json_t *beside; /* NULL: there was none, there is none */
    char *text;
    size_t len;
};
static struct changed_row {
    enum row_kind kind;
    char id[BOARD_ID_MAX];
    struct row_text before, after;
    json_t *was, *now; /* of these while they are shown */
} changed[CHANGED_MAX];
static unsigned n_changed;

static void row_text_free(struct row_text *x)
{
    json_decref(x->beside);
    free(x->text);
    *x = (struct row_text){.text = NULL};
}

static struct row_text row_text(enum row_kind k, const void *p)
{
    const struct row *row = p;
    struct row_text ret = {.text = NULL};
    if (!p)
        return ret;
    ret.text = fields_text(row_types[k].fields, p, &ret.len);
    assert_non_null(ret.text);
    ret.beside = json_object();
    jset_str(ret.beside, "", enum_name(row_types[k].states, row_state(k, p)));
    if (row->parent[0])
        jset_str(ret.beside, "parent", row->parent);
    if (row->volume_id[0] && k != ROW_VOLUME)
        jset_str(ret.beside, "volume_id", row->volume_id);
    if (row->wake_ns)
        jset_int(ret.beside, "wake_ns", row->wake_ns);
    return ret;
}

static bool row_text_equal(const struct row_text *a, const struct row_text *b)
{
    return a->len == b->len && json_equal(a->beside, b->beside) && memcmp(a->text, b->text, a->len) == 0;
}

/* The document with what is beside it in the row. */
static json_t *row_doc(const struct row_text *x)
{
    if (!x->beside)
        return NULL;
    json_t *doc = json_copy(x->beside), *members = json_loadb(x->text, x->len, JSON_ALLOW_NUL, NULL);
    assert_non_null(members);
    json_object_update(doc, members);
    json_decref(members);
    return doc;
}

static void note_changed(enum row_kind k, const char *id, const void *was, const void *now)
{
    struct changed_row *x = NULL;
    for (unsigned i = 0; i < n_changed && !x; i++)
        if (changed[i].kind == k && !strcmp(changed[i].id, id))
            x = &changed[i];
    if (!x) {
        assert_true(n_changed < CHANGED_MAX);
        x = &changed[n_changed++];
        *x = (struct changed_row){.kind = k, .before = row_text(k, was)};
        snprintf(x->id, sizeof x->id, "%s", id);
    }
    row_text_free(&x->after);
    x->after = row_text(k, now);
}

/* When a state began follows from the change of state; only where it does not it is shown. */
static bool is_expected(const struct changed_row *x, const char *key, const json_t *now)
{
    if (!key[0] || !strcmp(key, "created_ns") || !strcmp(key, "updated_ns"))
        return true;
    return !strcmp(key, "state_since_ns") && strcmp(jstr(x->was, ""), jstr(x->now, "")) != 0 &&
           json_integer_value(now) == m.now;
}

static void show_row(const struct changed_row *x)
{
    static const char *const kinds[ROW_KINDS] = {"backup", "operation", "native", "volume", "job"};
    char *line = NULL;
    const char *key, *between = ": ";
    size_t n;
    json_t *v;
    FILE *f = open_memstream(&line, &n);
    assert_non_null(f);
    fprintf(f, "%s%s %s", x->was ? "" : "new ", kinds[x->kind], x->id);
    if (!x->now)
        fputs(" is removed", f);
    else if (!x->was)
        fprintf(f, " %s", jstr(x->now, ""));
    else if (strcmp(jstr(x->was, ""), jstr(x->now, "")) != 0)
        fprintf(f, " %s -> %s", jstr(x->was, ""), jstr(x->now, ""));
    const bool moved = x->was && x->now && strcmp(jstr(x->was, ""), jstr(x->now, "")) != 0 && x->kind != ROW_VOLUME;
    if (moved && jint(x->now, "state_since_ns") != m.now &&
        json_equal(json_object_get(x->was, "state_since_ns"), json_object_get(x->now, "state_since_ns")))
        fprintf(f, "%sstate_since_ns is not that", between);
    json_object_foreach(x->now, key, v)
    {
        if (json_equal(v, json_object_get(x->was, key)) || is_expected(x, key, v))
            continue;
        fprintf(f, "%s%s ", between, key);
        put_value(f, v);
        between = "; ";
    }
    json_object_foreach(x->now ? x->was : NULL, key, v)
    {
        if (json_object_get(x->now, key))
            continue;
        fprintf(f, "%sno %s", between, key);
        between = "; ";
    }
    fclose(f);
    out_line("%s", line);
    free(line);
}

static void forget_changed(void)
{
    for (unsigned i = 0; i < n_changed; i++) {
        row_text_free(&changed[i].before);
        row_text_free(&changed[i].after);
    }
    n_changed = 0;
}

static void show_rows(void)
{
    for (unsigned i = 0; i < n_changed; i++) {
        struct changed_row *x = &changed[i];
        if ((!x->before.beside && !x->after.beside) || row_text_equal(&x->before, &x->after))
            continue;
        x->was = row_doc(&x->before);
        x->now = row_doc(&x->after);
        if (!json_equal(x->was, x->now))
            show_row(x);
        json_decref(x->was);
        json_decref(x->now);
    }
    forget_changed();
}

/* ---- intents ---- */

static json_t *intents_seen; /* number -> text */

static int note_intent(struct intent *i, void *arg)
{
    char key[32];
    char *doc = value_text(i->doc);
    char *text = NULL;
    assert_true(asprintf(&text, "%s %s of %s %s", i->kind, i->name, i->owner, doc) >= 0);
    snprintf(key, sizeof key, "%llu", (unsigned long long)i->id);
    json_object_set_new(arg, key, json_string(text));
    free(doc);
    free(text);
    return 0;
}

static void show_intents(void)
{
    json_t *now = json_object(), *v;
    const char *key;
    records_intents(m.records, NULL, note_intent, now, NULL);
    json_object_foreach(intents_seen, key, v) if (!json_object_get(now, key))
        out_line("intent resolved: %s", json_string_value(v));
    json_object_foreach(now, key, v) if (!json_equal(v, json_object_get(intents_seen, key)))
        out_line("intent: %s", json_string_value(v));
    json_decref(intents_seen);
    intents_seen = now;
}

/* ---- counters ---- */

static json_t *counters_seen; /* name{labels} -> value */

static int note_counter(const char *name, const json_t *labels, double value, void *arg)
{
    char *text = NULL, *key = value_text(labels);
    assert_true(asprintf(&text, "%s %s", name, key) >= 0);
    if (!strstr(name, "_bucket"))
        json_object_set_new(arg, text, json_real(value));
    free(text);
    free(key);
    return 0;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* What was counted since this was last asked. */
static void show_counters(bool print)
{
    json_t *now = json_object(), *v;
    const char *key, **keys;
    size_t n = 0;
    records_counters(m.records, note_counter, now, NULL);
    keys = calloc(json_object_size(now) + 1, sizeof *keys);
    json_object_foreach(now, key, v) keys[n++] = key;
    qsort(keys, n, sizeof *keys, by_key);
    for (size_t i = 0; print && i < n; i++) {
        const double was = json_number_value(json_object_get(counters_seen, keys[i])),
                     is = json_number_value(json_object_get(now, keys[i]));
        if (!json_object_get(counters_seen, keys[i]) || was != is)
            out_line("%s %.10g%s", keys[i], is, strstr(keys[i], "timestamp") ? "" : was != 0 ? " now" : "");
    }
    free(keys);
    json_decref(counters_seen);
    counters_seen = now;
}

/* ---- actions ---- */

static void show_natives(const struct act *a)
{
    char reasons[200];
    for (size_t i = 0; i < a->n_natives; i++) {
        const struct native_facts *f = &a->natives[i];
        out_line("plan: %s %s%s%s", f->alias, f->why, f->reasons ? "; reasons: " : "",
                 native_reasons_text(f->reasons, reasons, sizeof reasons));
    }
}

static void show_log(enum log_level level, const char *line, void *arg)
{
    static const char *const levels[] = {"debug", "info", "warning", "error"};
    (void)arg;
    out_line("log %s: %s", levels[level], line);
}

static void show_act(const struct act *a)
{
    show_rows();
    show_intents();
    char *doc = a->doc ? value_text(a->doc) : NULL;
    switch (a->kind) {
    case ACT_WORK:
        out_line("do: %s %s, %lld s: %s", work_name(a->work), a->id, (long long)a->timeout_s, doc);
        break;
    case ACT_WORK_CANCEL:
        out_line("do: end the work of %s", a->id);
        break;
    case ACT_MOVER_START:
        out_line("do: start a mover of %s%s", a->id, a->fd >= 0 ? " with a descriptor" : "");
        break;
    case ACT_MOVER_GO:
        out_line("do: the mover of %s may begin", a->id);
        break;
    case ACT_MOVER_ADOPT:
        out_line("do: adopt the mover of %s", a->id);
        break;
    case ACT_MOVER_CANCEL:
        out_line("do: ask the mover of %s to end", a->id);
        break;
    case ACT_MOVER_FORGET:
        out_line("do: forget the mover of %s%s%s%s%s", a->id, a->text ? " of plugin " : "", a->text ? a->text : "",
                 doc ? ", id " : "", doc ? doc : "");
        break;
    case ACT_LIVE_DROP:
        out_line("do: drop what is known of %s", a->id);
        break;
    case ACT_LOG:
        show_log(a->level, a->text, NULL);
        break;
    case ACT_JOURNAL_OPERATION:
        out_line("journal: %s %s", a->id, op_state_name(a->op->state));
        break;
    case ACT_JOURNAL_RUN:
        out_line("journal: %s %s", a->id, backup_state_name(a->backup->state));
        break;
    case ACT_NATIVES:
        show_natives(a);
        break;
    case ACT_SWEEP_KEPT:
        out_line("do: remove what was kept for inspection and is released");
        break;
    case ACT_REQUEST_ENDED: /* which writes a line itself */
    case ACT_CRASH_POINT:   /* places where the shell tests kill the daemon */
        break;
    }
    free(doc);
}

#endif
