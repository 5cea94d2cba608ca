/* SPDX-License-Identifier: GPL-2.0-or-later */
/* values.c - parsing and validation of values */
#include "base/time.h"
#include "base/units.h"
#include "cfg/internal.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STARS_MAX 16 /* fnmatch(3) takes exponential time in them */

void *arena_take(struct arena *a, void *p)
{
    if (!p)
        return NULL;
    if (a->n == a->cap) {
        size_t cap = a->cap ? 2 * a->cap : 32;
        void **grown = realloc(a->items, cap * sizeof *grown);
        if (!grown) {
            free(p);
            return NULL;
        }
        a->items = grown;
        a->cap = cap;
    }
    return a->items[a->n++] = p;
}

char *arena_text(struct arena *a, const char *text)
{
    return arena_take(a, strdup(text));
}

void arena_clear(struct arena *a)
{
    for (size_t i = 0; i < a->n; i++)
        free(a->items[i]);
    free(a->items);
    *a = (struct arena){0};
}

/* Copies the word at *p (without quotes) to out, which has room for the rest of the text. */
static bool word_take(const char **p, char **out)
{
    const char *s = *p + strspn(*p, " \t");
    char *o = *out;
    if (!*s)
        return false;
    bool quoted = false;
    for (; *s && (quoted || (*s != ' ' && *s != '\t')); s++) {
        if (*s == '"')
            quoted = !quoted;
        else
            *o++ = *s;
    }
    *o++ = '\0';
    *p = s;
    *out = o;
    return true;
}

const char *const *words_split(struct arena *a, const char *text)
{
    size_t len = strlen(text), most = len / 2 + 2;
    char *buf = arena_take(a, malloc(len + 2));
    const char **words = arena_take(a, calloc(most + 1, sizeof *words));
    if (!buf || !words)
        return NULL;
    size_t n = 0;
    char *at = buf;
    for (const char *word = at; n < most && word_take(&text, &at); word = at)
        words[n++] = word;
    return words;
}

/* ---- parts of value_parse(): each fills `why` with a message that names the key ---- */

#define WHY(...) (snprintf(why, cap, __VA_ARGS__), -EINVAL)

static int parse_count(const struct key *k, const char *text, struct parsed *ret, char *why, size_t cap)
{
    const char *name = k->pub.name, *digits = text + (*text == '-' || *text == '+');
    if (!*digits || digits[strspn(digits, "0123456789")])
        return WHY("%s: integer from %lld to %lld expected, not \"%s\"", name, (long long)k->min, (long long)k->max,
                   text);
    if (*text == '-' && k->min >= 0)
        return WHY("%s must not be negative: %s", name, text);
    errno = 0;
    long long v = strtoll(text, NULL, 10);
    if (v == 0 && k->min == 1)
        return WHY("%s = 0: zero does not mean \"unlimited\" here; 1 to %lld allowed", name, (long long)k->max);
    if (errno || v < k->min || v > k->max)
        return WHY("%s = %s is out of range: %lld to %lld allowed", name, text, (long long)k->min, (long long)k->max);
    ret->number = v;
    return 0;
}

/* Percent with up to four decimals: millionths. */
static int parse_share(const struct key *k, const char *text, struct parsed *ret, char *why, size_t cap)
{
    const char *name = k->pub.name;
    const size_t whole = strspn(text, "0123456789");
    const size_t part = text[whole] == '.' ? strspn(text + whole + 1, "0123456789") : 0;
    int64_t v = 0;
    if (!whole || whole > 3 || (text[whole] == '.' && (!part || part > 4)) || text[whole + (text[whole] == '.') + part])
        return WHY("%s: percentage from 0 to 100 with up to four decimals expected, not \"%s\"", name, text);
    for (size_t i = 0; i < whole; i++)
        v = v * 10 + (text[i] - '0');
    for (size_t i = 0; i < 4; i++)
        v = v * 10 + (i < part ? text[whole + 1 + i] - '0' : 0);
    if (v < k->min || v > k->max)
        return WHY("%s = %s is out of range: 0 to 100 allowed", name, text);
    ret->number = v;
    return 0;
}

/* `least` and `most` as text, NULL for none. */
static int out_of_range(const char *name, const char *text, const char *least, const char *most, char *why, size_t cap)
{
    if (least && most)
        return WHY("%s = %s is out of range: %s to %s allowed", name, text, least, most);
    if (least)
        return WHY("%s = %s is out of range: at least %s", name, text, least);
    return WHY("%s = %s is out of range: at most %s", name, text, most);
}

static int parse_size(const struct key *k, const char *text, struct parsed *ret, char *why, size_t cap)
{
    const char *name = k->pub.name;
    uint64_t v;
    if (*text == '-')
        return WHY("%s must not be negative: %s", name, text);
    if (parse_bytes(&v, text) < 0)
        return WHY("%s: size such as 512MiB or 2GiB expected, not \"%s\"", name, text);
    int64_t max = k->max ? k->max : INT64_MAX;
    if (!v && k->type == V_RATE) {
        ret->number = 0;
        return 0;
    }
    if (!v && k->min)
        return WHY("%s = 0: zero does not mean \"unlimited\" here; at least %s", name, bytes_text(k->min));
    if (v > INT64_MAX)
        return WHY("%s = %s is out of range: less than 8EiB", name, text);
    if ((int64_t)v > max || (int64_t)v < k->min)
        return out_of_range(name, text, k->min ? bytes_text(k->min) : NULL, max < INT64_MAX ? bytes_text(max) : NULL,
                            why, cap);
    ret->number = (int64_t)v;
    return 0;
}

static int parse_span(const struct key *k, const char *text, struct parsed *ret, char *why, size_t cap)
{
    const char *name = k->pub.name;
    int64_t v;
    if (*text == '-')
        return WHY("%s must not be negative: %s", name, text);
    int rc = k->type == V_MS ? parse_duration_ms(&v, text) : parse_duration(&v, text);
    if (rc < 0)
        return WHY("%s: duration such as 90s, 30min or 1h 30min expected, not \"%s\"", name, text);
    if (!v && k->type != V_DURATION0)
        return WHY("%s = 0: zero does not mean \"unlimited\" here; duration such as %s expected", name,
                   k->pub.default_text[0] ? k->pub.default_text : "30min");
    int64_t ms = k->type == V_MS ? 1 : 1000;
    if (v && (v < k->min || v > k->max))
        return out_of_range(name, text, k->min ? duration_text(k->min * ms) : NULL, duration_text(k->max * ms), why,
                            cap);
    ret->number = v;
    return 0;
}

static int parse_past(const struct key *k, const char *text, struct parsed *ret, char *why, size_t cap)
{
    if (!*text)
        return 0;
    if (time_read(&ret->number, text) < 0 || ret->number <= 0)
        return WHY("%s: time such as 2026-11-20T02:00:00Z or 2026-11-20 02:00 expected, not \"%s\"", k->pub.name, text);
    return ret->number <= now_ns() ? 0 : WHY("%s: %s has not come yet", k->pub.name, text);
}

static int parse_yesno(const struct key *k, const char *text, struct parsed *ret, char *why, size_t cap)
{
    static const char *const words[] = {"no", "yes", "false", "true", "off", "on", "0", "1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(text, words[i])) {
            ret->number = i & 1;
            return 0;
        }
    return WHY("%s: yes or no expected, not \"%s\"", k->pub.name, text);
}

#define CHOICES_SHOWN 120 /* longer lists are in the manual */

static int parse_choice(const struct key *k, const char *text, struct parsed *ret, char *why, size_t cap)
{
    if (k->type == V_WORD && !*text && (!*k->pub.default_text || *k->pub.default_text == '('))
        return 0;
    int n = 0;
    for (const char *w = k->choices; *w; w += strspn(w, " "), n++) {
        size_t len = strcspn(w, " ");
        if (len == strlen(text) && !memcmp(w, text, len)) {
            ret->number = n;
            return 0;
        }
        w += len;
    }
    if (strlen(k->choices) <= CHOICES_SHOWN)
        return WHY("%s: one of %s expected, not \"%s\"", k->pub.name, k->choices, text);
    char near[64];
    nearest_listed(text, k->choices, near, sizeof near);
    if (!nearest_is_slip(text, near))
        return WHY("unknown %s %s: snapferry.ini(5) lists them", k->pub.name, text);
    return WHY("unknown %s %s; the nearest known is %s", k->pub.name, text, near);
}

static bool is_name(const char *s)
{
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && !strchr("._-:/@+", *s))
            return false;
    return true;
}

static int parse_text(const struct key *k, const char *text, struct parsed *ret, char *why, size_t cap)
{
    const char *name = k->pub.name;
    (void)ret;
    if (strlen(text) >= k->size)
        return WHY("value of %s too long: at most %zu characters", name, k->size - 1);
    if (!*text)
        return 0;
    switch (k->type) {
    case V_NAME:
        return is_name(text) ? 0 : WHY("%s: one word expected, not \"%s\"", name, text);
    case V_PATH:
        return *text == '/' ? 0 : WHY("%s: absolute path expected, not \"%s\"", name, text);
    case V_SECRET:
        if (*text == '/' || (!strncmp(text, "cred:", 5) && text[5] && !strchr(text, '/') && is_name(text)))
            return 0;
        return WHY("%s: absolute path or cred:NAME expected, not \"%s\"", name, text);
    case V_MOVER:
        if (!strcmp(text, "builtin") || (!strncmp(text, "plugin:", 7) && text[7] && is_name(text)))
            return 0;
        return WHY("%s: builtin or plugin:NAME expected, not \"%s\"", name, text);
    case V_DRIVER:
        return is_name(text) ? 0 : WHY("%s: name of a driver or plugin:NAME expected, not \"%s\"", name, text);
    case V_CPUS: {
        uint8_t mask[CFG_CPUS_MAX / 8];
        const char *part;
        return cfg_parse_cpus(mask, text, &part) == 0 ? 0 : WHY("%s = %s: %s", name, text, part);
    }
    case V_TIMES: {
        struct cfg_times times;
        const char *part;
        return cfg_parse_times(&times, text, &part) == 0 ? 0 : WHY("%s = %s: %s", name, text, part);
    }
    default:
        return 0;
    }
}

/* Unit properties that have a key, or that would break the mover. */
static const struct {
    const char *property, *instead;
} own_properties[] = {
    {"MemoryMax", "memory-max"},
    {"CPUQuota", "cpu-quota"},
    {"CPUQuotaPerSecUSec", "cpu-quota"},
    {"CPUWeight", "cpu-weight"},
    {"IOWeight", "io-weight"},
    {"TasksMax", "tasks-max"},
    {"Nice", "nice"},
    {"Slice", "slice"},
    {"AllowedCPUs", "cpus"},
    {"IOSchedulingClass", "ioclass"},
    {"User", "user"},
    {"Group", "user"},
    {"Type", NULL},
    {"ExecStart", NULL},
    {"ExecStartPre", NULL},
    {"ExecStartPost", NULL},
    {"ExecStop", NULL},
    {"ExecStopPost", NULL},
    {"Environment", NULL},
    {"RemainAfterExit", NULL},
};

static int check_property(const char *word, const char *name, char *why, size_t cap)
{
    size_t n = strcspn(word, "=");
    if (!n || word[n] != '=' || !isupper((unsigned char)word[0]))
        return WHY("%s: Name=value expected, not \"%s\"", name, word);
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)word[i]))
            return WHY("%s: Name=value expected, not \"%s\"", name, word);
    for (size_t i = 0; i < sizeof own_properties / sizeof *own_properties; i++)
        if (strlen(own_properties[i].property) == n && !memcmp(own_properties[i].property, word, n)) {
            if (own_properties[i].instead)
                return WHY("%s: %.*s is set by the key %s", name, (int)n, word, own_properties[i].instead);
            return WHY("%s: %.*s cannot be set", name, (int)n, word);
        }
    return 0;
}

bool type_is_list(enum value_type t)
{
    return t == V_LIST || t == V_LISTEN || t == V_PATTERNS || t == V_PROPERTIES || t == V_SLOTS || t == V_REMOVED;
}

int parse_slots_word(const char *word, char *out, size_t cap, unsigned *number)
{
    const char *eq = strrchr(word, '=');
    if (!eq || eq == word || !eq[1] || strlen(eq + 1) > 4 || eq[1 + strspn(eq + 1, "0123456789")])
        return -EINVAL;
    if ((size_t)snprintf(out, cap, "%.*s", (int)(eq - word), word) >= cap)
        return -EINVAL;
    *number = (unsigned)strtoul(eq + 1, NULL, 10);
    return *number <= 1024 ? 0 : -EINVAL;
}

static int check_slots(const char *word, const char *name, char *why, size_t cap)
{
    char pattern[256];
    unsigned n;
    if (parse_slots_word(word, pattern, sizeof pattern, &n) < 0)
        return WHY("%s: PATTERN=NUMBER with a number up to 1024 expected, not \"%s\"", name, word);
    return 0;
}

static int check_pattern(const char *word, const char *name, char *why, size_t cap)
{
    unsigned stars = 0;
    for (const char *s = word; *s; s++)
        stars += *s == '*';
    if (stars > STARS_MAX)
        return WHY("%s: the pattern \"%s\" has more than %d stars", name, word, STARS_MAX);
    return 0;
}

static int check_listen(const char *word, const char *name, char *why, size_t cap)
{
    struct sockaddr_storage a;
    socklen_t len;
    char part[160];
    if (cfg_parse_listen(word, &a, &len, part, sizeof part) < 0)
        return WHY("%s: invalid address \"%s\": %s", name, word, part);
    return 0;
}

static int parse_list(const struct key *k, const char *text, struct arena *a, struct parsed *ret, char *why, size_t cap)
{
    unsigned quotes = 0;
    for (const char *s = text; *s; s++)
        quotes += *s == '"';
    if (quotes & 1)
        return WHY("%s: missing closing quote: %s", k->pub.name, text);
    ret->words = words_split(a, text);
    if (!ret->words)
        return -ENOMEM;
    int rc = 0;
    for (size_t i = 0; ret->words[i] && rc == 0; i++) {
        if (!*ret->words[i])
            rc = WHY("%s: empty word in quotes", k->pub.name);
        else if (!strcmp(ret->words[i], "="))
            rc = WHY("%s: list with the word \"=\": an unknown key in an indented line?", k->pub.name);
        else if (k->type == V_PATTERNS)
            rc = check_pattern(ret->words[i], k->pub.name, why, cap);
        else if (k->type == V_LISTEN)
            rc = check_listen(ret->words[i], k->pub.name, why, cap);
        else if (k->type == V_SLOTS)
            rc = check_slots(ret->words[i], k->pub.name, why, cap);
        else if (k->type == V_PROPERTIES)
            rc = check_property(ret->words[i], k->pub.name, why, cap);
    }
    return rc;
}

int value_parse(const struct key *k, const char *text, struct arena *a, struct parsed *ret, char *why, size_t cap)
{
    *ret = (struct parsed){.text = text};
    switch (k->type) {
    case V_YESNO:
        return parse_yesno(k, text, ret, why, cap);
    case V_WORD:
    case V_ENUM:
        return parse_choice(k, text, ret, why, cap);
    case V_KEEP:
        if (!*text) {
            ret->number = -1;
            return 0;
        }
        return parse_count(k, text, ret, why, cap);
    case V_COUNT:
        return parse_count(k, text, ret, why, cap);
    case V_SHARE:
        return parse_share(k, text, ret, why, cap);
    case V_BYTES:
    case V_RATE:
        return parse_size(k, text, ret, why, cap);
    case V_DURATION:
    case V_DURATION0:
    case V_MS:
        return parse_span(k, text, ret, why, cap);
    case V_TIME:
        return parse_past(k, text, ret, why, cap);
    case V_LIST:
    case V_LISTEN:
    case V_PATTERNS:
    case V_SLOTS:
    case V_PROPERTIES:
        return parse_list(k, text, a, ret, why, cap);
    case V_OPTIONS:
    case V_REMOVED:
        return 0;
    case V_MOVER: {
        int rc = parse_text(k, text, ret, why, cap);
        if (rc == 0 && !strcmp(text, "builtin"))
            ret->text = "";
        return rc;
    }
    default:
        return parse_text(k, text, ret, why, cap);
    }
}

static void put_number(const struct key *k, int64_t number, void *at)
{
    if (k->size == sizeof(bool)) {
        bool v = number != 0;
        memcpy(at, &v, sizeof v);
    } else if (k->size == sizeof(int32_t)) {
        int32_t v = (int32_t)number;
        memcpy(at, &v, sizeof v);
    } else {
        memcpy(at, &number, sizeof number);
    }
}

void value_put(const struct key *k, const struct parsed *v, void *base)
{
    char *at = (char *)base + k->offset;
    switch (k->type) {
    case V_TEXT:
    case V_NAME:
    case V_PATH:
    case V_SECRET:
    case V_DRIVER:
    case V_MOVER:
    case V_WORD:
    case V_CPUS:
    case V_TIMES:
        snprintf(at, k->size, "%s", v->text);
        break;
    case V_LIST:
    case V_LISTEN:
    case V_PATTERNS:
    case V_SLOTS:
    case V_PROPERTIES:
        memcpy(at, &v->words, sizeof v->words);
        break;
    case V_OPTIONS:
    case V_REMOVED:
        break;
    default:
        put_number(k, v->number, at);
    }
}

int value_store(const struct key *k, const char *text, struct arena *a, void *base)
{
    struct parsed v;
    char why[512];
    int rc = value_parse(k, text, a, &v, why, sizeof why);
    if (rc == -ENOMEM)
        return rc;
    if (rc == 0) /* a value with a complaint leaves the default */
        value_put(k, &v, base);
    return 0;
}

int defaults_store(enum place place, struct arena *a, void *base)
{
    for (unsigned i = 0; i < n_keys; i++) {
        const struct key *k = &key_table[i];
        if (k->place != place || k->pub.default_text[0] == '(' || k->type == V_OPTIONS)
            continue;
        if (!k->pub.default_text[0] && (k->type == V_ENUM || k->type == V_WORD))
            continue; /* required, or "" */
        if (value_store(k, k->pub.default_text, a, base) < 0)
            return -ENOMEM;
    }
    return 0;
}
