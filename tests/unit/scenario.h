/* SPDX-License-Identifier: GPL-2.0-or-later */
/* scenario.h - the words of one line of a scenario; include it behind transcript.h in one file of a program */
#ifndef SNAPFERRY_TESTS_UNIT_SCENARIO_H
#define SNAPFERRY_TESTS_UNIT_SCENARIO_H

#include "tests/unit/transcript.h"

#define WORDS_MAX 24

/* ---- a command ---- */

static struct command {
    char *word[WORDS_MAX]; /* [0] is its name */
    unsigned n;
    char *input; /* lines behind "| " */
    const char *file;
    unsigned line;
} cmd;

#define wrong(...) violated("the scenario", __VA_ARGS__)

/* Words of a line: JSON and "text in quotes" are one word, also behind "name=". */
static void split_words(char *s)
{
    cmd.n = 0;
    while (*(s += strspn(s, " "))) {
        if (cmd.n == WORDS_MAX)
            wrong("too many words");
        char *end = s;
        int depth = 0;
        for (bool quoted = false; *end && (*end != ' ' || depth || quoted); end++) {
            quoted ^= *end == '"';
            depth += quoted ? 0 : (*end == '{' || *end == '[') - (*end == '}' || *end == ']');
        }
        cmd.word[cmd.n++] = s;
        s = end + (*end != '\0');
        *end = '\0';
    }
}

static const char *word(unsigned i)
{
    if (i >= cmd.n)
        wrong("\"%s\" needs more words", cmd.word[0]);
    return cmd.word[i];
}

static bool has_word(const char *w)
{
    for (unsigned i = 1; i < cmd.n; i++)
        if (!strcmp(cmd.word[i], w))
            return true;
    return false;
}

/* Value of "name=value", without its quotes; NULL: not given. */
static const char *option(const char *name)
{
    static char value[4][1024];
    static unsigned turn;
    const size_t len = strlen(name);
    for (unsigned i = 1; i < cmd.n; i++) {
        const char *w = cmd.word[i];
        if (strncmp(w, name, len) != 0 || w[len] != '=')
            continue;
        char *ret = value[turn++ % 4];
        w += len + 1;
        const size_t n = strlen(w);
        if (n >= 2 && w[0] == '"' && w[n - 1] == '"')
            snprintf(ret, sizeof value[0], "%.*s", (int)(n - 2), w + 1);
        else
            snprintf(ret, sizeof value[0], "%s", w);
        return ret;
    }
    return NULL;
}

/* "90s", "5m", "2h", "3d" */
static int64_t duration(const char *s)
{
    char *end;
    const double n = strtod(s, &end);
    const double unit = !strcmp(end, "ms")  ? 0.001
                        : !strcmp(end, "s") ? 1
                        : !strcmp(end, "m") ? 60
                        : !strcmp(end, "h") ? 3600
                        : !strcmp(end, "d") ? 86400
                                            : 0;
    if (unit == 0)
        wrong("\"%s\" is no time", s);
    return (int64_t)(n * unit * 1000) * NS_PER_MS;
}

/* JSON in which "@90s" is a time since the scenario began. */
static void resolve_times(json_t *v)
{
    const char *key;
    json_t *item;
    size_t i;
    json_array_foreach(v, i, item) if (json_is_string(item) && json_string_value(item)[0] == '@')
        json_array_set_new(v, i, json_integer(EPOCH_NS + duration(json_string_value(item) + 1)));
    else resolve_times(item);
    json_object_foreach(v, key, item) if (json_is_string(item) && json_string_value(item)[0] == '@')
        json_object_set_new(v, key, json_integer(EPOCH_NS + duration(json_string_value(item) + 1)));
    else resolve_times(item);
}

static json_t *parse_value(const char *text)
{
    json_error_t je;
    json_t *v = json_loads(text, JSON_DECODE_ANY, &je);
    if (!v)
        wrong("%s: %s", text, je.text);
    resolve_times(v);
    return v;
}

/* The word that is an object or array; NULL: none. */
static json_t *json_word(void)
{
    for (unsigned i = 1; i < cmd.n; i++)
        if (cmd.word[i][0] == '{' || cmd.word[i][0] == '[')
            return parse_value(cmd.word[i]);
    return NULL;
}

static json_t *need_json(void)
{
    json_t *v = json_word();
    if (!v)
        wrong("\"%s\" needs a document", cmd.word[0]);
    return v;
}

static void show_error(const struct err *e)
{
    out_line("refused: %s (%s)%s%s", e->msg, err_class_name(e->cls), e->hint[0] ? "; " : "", e->hint);
}

/* ---- the end ---- */

static bool directory_remove(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", m.dir);
    return system(command) == 0;
}

/* STOP=1: the first scenario that fails is the last. */
static void stop_if_asked(void)
{
    if (!getenv("STOP"))
        return;
    directory_remove();
    exit(1);
}

#endif
