/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * reader.c - files to sections of values with file and line
 *
 * inih parses; it does not report line numbers, truncates section names at 49 characters, splits long lines, drops text
 * after a section's bracket and treats an indented key as a continuation of the previous value. Therefore lines are
 * passed to it by a reader that counts them, handles sections itself and refuses lines that would be truncated or lost.
 */
#include "cfg/internal.h"

#include "base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <openssl/evp.h>
#include <string.h>
#include <sys/stat.h>

struct parse {
    struct cfg *cfg;
    unsigned file, line;
    char *text, *next; /* of the file; where the next line begins */
    size_t len;
    long section;   /* index, -1: before any, -2: refused */
    bool elsewhere; /* in a section that is no repository's */
    bool continued; /* this line continues the list before it */
    long value;     /* index of the last value in the section, -1 */
    bool nomem;
    EVP_MD_CTX *hash;
};

#define COMPLAIN(p, hint, ...)                                                                                         \
    do {                                                                                                               \
        complain((p)->cfg, CFG_ERROR, (p)->file, (p)->line, (p)->elsewhere, hint, __VA_ARGS__);                        \
        if ((p)->section >= 0)                                                                                         \
            (p)->cfg->sections[(p)->section].broken = true;                                                            \
    } while (0)

static const char *kind_at(unsigned i, void *arg)
{
    (void)arg;
    return i < KIND_COUNT ? kind_names[i] : NULL;
}

static const char *key_of_kind_at(unsigned i, void *arg)
{
    enum kind kind = *(enum kind *)arg;
    for (unsigned k = 0; k < n_keys; k++)
        if (key_in(&key_table[k], kind) && i-- == 0)
            return key_table[k].pub.name;
    return NULL;
}

/* ---- sections ---- */

static void add_section(struct parse *p, enum kind kind, const char *name)
{
    struct cfg *c = p->cfg;
    p->section = -2;
    for (unsigned i = 0; i < c->n_sections; i++)
        if (c->sections[i].kind == kind && !strcmp(c->sections[i].name, name)) {
            p->section = i;
            return;
        }
    if (c->n_sections == SECTIONS_MAX) {
        COMPLAIN(p, "a pattern matches many volumes", "more than %d sections", SECTIONS_MAX);
        return;
    }
    struct section *grown = realloc(c->sections, (c->n_sections + 1) * sizeof *grown);
    if (!grown) {
        p->nomem = true;
        return;
    }
    c->sections = grown;
    p->section = c->n_sections++;
    grown[p->section] = (struct section){.kind = kind, .file = p->file, .line = p->line};
    snprintf(grown[p->section].name, sizeof grown[p->section].name, "%s", name);
}

/* The quoted name of a section; NULL and a complaint if malformed. */
static char *quoted_name(struct parse *p, const char *kind, char *rest)
{
    size_t len = strlen(rest);
    if (len < 3 || rest[0] != '"' || rest[len - 1] != '"' || memchr(rest + 1, '"', len - 2)) {
        COMPLAIN(p, NULL, "the header of a %s section is [%s \"NAME\"]", kind, kind);
        return NULL;
    }
    rest[len - 1] = '\0';
    return rest + 1;
}

static const char *name_invalid(enum kind kind, const char *name)
{
    if (kind == KIND_VOLUME)
        return NULL;
    if (strchr(name, '/'))
        return "must not contain a slash";
    return name[strcspn(name, " \t")] ? "must not contain white space" : NULL;
}

static void enter_section(struct parse *p, char *title)
{
    p->section = -2;
    p->value = -1;
    p->elsewhere = false;
    char *rest = title + strcspn(title, " \t"), word[64];
    snprintf(word, sizeof word, "%.*s", (int)(rest - title), title);
    rest += strspn(rest, " \t");
    enum kind kind = 0;
    while (kind < KIND_COUNT && strcmp(word, kind_names[kind]) != 0)
        kind++;
    if (kind == KIND_COUNT) {
        const char *near = nearest_meant(word, kind_at, NULL);
        if (near)
            COMPLAIN(p, NULL, "unknown section [%s]; the nearest known is [%s]", title, near);
        else
            COMPLAIN(p, "snapferry.ini(5) lists the sections", "unknown section [%s]", title);
        return;
    }
    p->elsewhere = kind != KIND_REPOSITORY;
    if (kind == KIND_DAEMON || kind == KIND_MOVER || kind == KIND_METRICS) {
        if (*rest)
            COMPLAIN(p, NULL, "[%s] is a single section without a name", word);
        else
            add_section(p, kind, "");
        return;
    }
    char *name = quoted_name(p, word, rest);
    const char *bad = name ? name_invalid(kind, name) : NULL;
    if (bad)
        COMPLAIN(p, NULL, "the name of a %s section %s: \"%s\"", word, bad, name);
    else if (name)
        add_section(p, kind, name);
}

/* ---- values ---- */

static void unknown_key(struct parse *p, const struct section *s, const char *name)
{
    char title[80], hint[256] = "";
    if (p->cfg->n_complaints == COMPLAINTS_MAX) { /* only counted: no need to search for the nearest */
        COMPLAIN(p, NULL, "unknown key %s", name);
        return;
    }
    section_title(s, title, sizeof title);
    enum kind kind = s->kind;
    const struct key *other = key_anywhere(name);
    if (other)
        snprintf(hint, sizeof hint, "it is a key of sections: %s", other->pub.sections);
    else
        snprintf(hint, sizeof hint, "snapferry.ini(5) lists the keys");
    const char *near = nearest_meant(name, key_of_kind_at, &kind);
    if (near)
        COMPLAIN(p, other ? hint : NULL, "unknown key %s in %s; the nearest known is %s", name, title, near);
    else
        COMPLAIN(p, hint, "unknown key %s in %s", name, title);
}

static void check_value(struct parse *p, const struct key *k, const char *text)
{
    struct parsed v;
    char why[512];
    struct arena a = {0};
    int rc = value_parse(k, text, &a, &v, why, sizeof why);
    if (rc == -ENOMEM)
        p->nomem = true;
    else if (rc < 0)
        COMPLAIN(p, k->pub.text, "%s", why);
    arena_clear(&a);
}

static struct value *find_value(struct section *s, const struct key *k, const char *option)
{
    for (unsigned i = 0; i < s->n_values; i++)
        if (s->values[i].key == k && (!option || !strcmp(s->values[i].option, option)))
            return &s->values[i];
    return NULL;
}

static void set_text(struct parse *p, struct value *v, const char *text)
{
    char *copy = strdup(text);
    if (!copy) {
        p->nomem = true;
        return;
    }
    free(v->text);
    v->text = copy;
    v->file = p->file;
    v->line = p->line;
}

static void add_value(struct parse *p, struct section *s, const struct key *k, const char *option, const char *text)
{
    if (s->n_values == VALUES_MAX) {
        COMPLAIN(p, NULL, "more than %d keys in this section", VALUES_MAX);
        return;
    }
    struct value *grown = realloc(s->values, (s->n_values + 1) * sizeof *grown);
    if (!grown) {
        p->nomem = true;
        return;
    }
    s->values = grown;
    struct value *v = &grown[s->n_values];
    *v = (struct value){.key = k};
    if (option && !(v->option = strdup(option))) {
        p->nomem = true;
        return;
    }
    s->n_values++;
    set_text(p, v, text);
    if (!v->text) {
        free(v->option);
        s->n_values--;
    }
}

/* An indented line: more words of the list before it. */
static void continue_value(struct parse *p, struct section *s, const char *text)
{
    struct value *v = p->value >= 0 ? &s->values[p->value] : NULL;
    if (!v || !type_is_list(v->key->type)) {
        COMPLAIN(p, "only lists can be continued in an indented line",
                 "an indented line continues the previous key, but %s%s is not a list", v ? "" : "there ",
                 v ? v->key->pub.name : "that");
        return;
    }
    check_value(p, v->key, text);
    size_t n = strlen(v->text), m = strlen(text);
    if (n + m > 1 << 16) {
        COMPLAIN(p, NULL, "list of %s too long", v->key->pub.name);
        return;
    }
    char *joined = realloc(v->text, n + m + 2);
    if (!joined) {
        p->nomem = true;
        return;
    }
    v->text = joined;
    joined[n] = ' ';
    memcpy(joined + n + 1, text, m + 1);
}

static int on_value(void *arg, const char *section, const char *name, const char *text)
{
    struct parse *p = arg;
    (void)section; /* entered by the reader */
    if (p->section == -1)
        COMPLAIN(p, NULL, "key %s before the first section", name);
    if (p->section < 0 || p->nomem)
        return !p->nomem;
    struct section *s = &p->cfg->sections[p->section];
    if (p->continued) {
        continue_value(p, s, text);
        return !p->nomem;
    }
    p->value = -1;
    const struct removed_key *removed = removed_find(s->kind, name);
    const struct key *k = removed ? &removed->key : key_find(s->kind, name);
    if (!k) {
        unknown_key(p, s, name);
        return 1;
    }
    const char *option = k->type == V_OPTIONS ? name + strlen(k->pub.name) - 1 : NULL;
    check_value(p, k, text);
    struct value *v = find_value(s, k, option);
    if (v && v->file == p->file)
        COMPLAIN(p, "to continue a list, indent the line; a later file may override a key",
                 "%s is set twice in this section, first in line %u", name, v->line);
    else if (v)
        set_text(p, v, text);
    else
        add_value(p, s, k, option, text);
    v = find_value(s, k, option);
    p->value = v ? v - s->values : -1;
    return !p->nomem;
}

/* ---- lines ---- */

/* Where inih would see one of `chars`, or a comment behind white space; the end if neither. */
static const char *find_end(const char *s, const char *chars)
{
    bool blank = false;
    for (; *s && !strchr(chars, *s) && !(blank && *s == ';'); s++)
        blank = *s == ' ' || *s == '\t';
    return s;
}

static bool is_text(const char *line, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (((unsigned char)line[i] < 0x20 && line[i] != '\t') || line[i] == 0x7f)
            return false;
    json_t *v = json_stringn(line, n); /* knows UTF-8 */
    json_decref(v);
    return v != NULL;
}

static void section_line(struct parse *p, char *s)
{
    p->section = -2; /* keys of a refused section are not reported in addition */
    p->value = -1;
    char *end = s + (find_end(s + 1, "]") - s);
    const char *rest = end + (*end == ']');
    rest += strspn(rest, " \t");
    if (*end != ']') {
        COMPLAIN(p, NULL, "missing ] in the section header");
    } else if (*rest && *rest != ';' && *rest != '#') {
        COMPLAIN(p, "a section name must not contain ]", "text after the section header: %s", rest);
    } else if (end - (s + 1) > SECTION_MAX) {
        COMPLAIN(p, "give a volume section a short name, and set the volume's name with name = ",
                 "section name longer than %d characters", SECTION_MAX);
    } else {
        *end = '\0';
        enter_section(p, s + 1);
    }
}

/* Whether inih may process this line. `indented` lines are continued lists, or keys that happen to be indented. */
static bool key_line(struct parse *p, const char *s, bool indented)
{
    const char *eq = find_end(s, "=:");
    char name[128] = "";
    if (*eq == '=' || *eq == ':') {
        size_t n = (size_t)(eq - s);
        while (n && (s[n - 1] == ' ' || s[n - 1] == '\t'))
            n--;
        snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : 0), s);
    }
    bool removed = p->section >= 0 && removed_find(p->cfg->sections[p->section].kind, name);
    bool known = name[0] && (removed || key_anywhere(name));
    p->continued = indented && !known && p->value >= 0;
    if (p->continued || name[0])
        return true;
    COMPLAIN(p, NULL, "[section] or key = value expected");
    return false;
}

/* Checks one line; true: passed to inih, its text begins at *start. */
static bool line_take(struct parse *p, char *line, size_t n, const char **start)
{
    p->continued = false;
    bool indented = *line == ' ' || *line == '\t';
    char *s = line + strspn(line, " \t");
    if (n > LINE_MAX_LEN) {
        COMPLAIN(p, "to continue a list, indent the line", "line longer than %d characters", LINE_MAX_LEN);
        if (*s == '[')
            p->section = -2;
        return false;
    }
    if (!*s || *s == ';' || *s == '#')
        return false;
    if (!is_text(line, n)) {
        COMPLAIN(p, NULL, "line is not plain UTF-8 text");
        return false;
    }
    if (*s == '[') {
        section_line(p, s);
        return false;
    }
    /* An indented line is passed unchanged only when it continues a list: inih treats indentation that way. */
    *start = key_line(p, s, indented) ? s : NULL;
    return *start != NULL;
}

/* inih's reader: one line at a time, an empty one in place of a line that must not be parsed. */
static char *read_line(char *buf, int cap, void *stream)
{
    struct parse *p = stream;
    char *end = p->text + p->len;
    if (p->next >= end || cap < LINE_MAX_LEN + 2)
        return NULL;
    p->line++;
    char *line = p->next, *nl = memchr(line, '\n', (size_t)(end - line));
    size_t n = (size_t)((nl ? nl : end) - line);
    p->next = line + n + (nl != NULL);
    if (n && line[n - 1] == '\r')
        n--;
    line[n] = '\0';
    if (p->line == 1 && n >= 3 && !memcmp(line, "\xef\xbb\xbf", 3)) {
        line += 3;
        n -= 3;
    }
    const char *start = NULL;
    bool nul = strlen(line) != n;
    if (nul)
        COMPLAIN(p, NULL, "line is not plain UTF-8 text");
    if (nul || !line_take(p, line, n, &start))
        start = "";
    snprintf(buf, (size_t)cap, "%s%s\n", p->continued && *start ? " " : "", start);
    return buf;
}

/* ---- files ---- */

static int load_text(struct parse *p, const char *file, int fd, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_set(e, ERR_USAGE, errno, "cannot read configuration %s: %s", file, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_USAGE, EINVAL, "configuration %s is not a regular file", file);
    if (st.st_size > FILE_MAX)
        return err_set(e, ERR_USAGE, EFBIG, "configuration %s is larger than %d MiB", file, FILE_MAX >> 20);
    size_t cap = (size_t)st.st_size + 1; /* one more byte detects growth */
    p->text = malloc(cap + 1);
    if (!p->text)
        return err_nomem(e);
    p->len = 0;
    ssize_t n = 0;
    while (p->len < cap && (n = read(fd, p->text + p->len, cap - p->len)) > 0)
        p->len += (size_t)n;
    if (n < 0)
        return err_set(e, ERR_USAGE, errno, "cannot read configuration %s: %s", file, strerror(errno));
    if (p->len == cap)
        return err_set(e, ERR_USAGE, EBUSY, "configuration %s changed while it was read", file);
    p->text[p->len] = '\0';
    if (geteuid() == 0 && (st.st_mode & (S_IWGRP | S_IWOTH) || st.st_uid != 0))
        complain(p->cfg, CFG_WARNING, p->file, 0, true, "chown it to root, and chmod go-w it",
                 "the file is writable by others than root, who could control what root runs");
    return 0;
}

static int add_file(struct cfg *c, const char *file, unsigned *ret)
{
    char **grown = realloc(c->files, (c->n_files + 1) * sizeof *grown);
    if (!grown)
        return -ENOMEM;
    c->files = grown;
    if (!(grown[c->n_files] = strdup(file)))
        return -ENOMEM;
    *ret = c->n_files++;
    return 0;
}

static int parse_open_file(struct parse *p, const char *file, int fd, struct err *e)
{
    struct err why = ERR_INIT;
    int rc = load_text(p, file, fd, &why);
    if (rc == -ENOMEM)
        return err_nomem(e);
    if (rc < 0) { /* a bad file does not hide errors of the others */
        complain(p->cfg, CFG_ERROR, p->file, 0, false, why.hint, "%s", why.msg);
        return 0;
    }
    EVP_DigestUpdate(p->hash, file, strlen(file) + 1);
    EVP_DigestUpdate(p->hash, p->text, p->len);
    p->next = p->text;
    p->line = 0;
    p->section = -1;
    p->value = -1;
    p->elsewhere = false;
    ini_parse_stream(read_line, p, on_value, p);
    return p->nomem ? err_nomem(e) : 0;
}

/* A dangling link was meant to be read. */
static void check_dangling(struct cfg *c, const char *path)
{
    char target[4096];
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 0)
        return;
    target[n] = '\0';
    cfg_complain(c, CFG_WARNING, path, "restore its target, or remove the link", "file skipped: dangling link to %s",
                 is_text(target, strlen(target)) ? target : "something");
}

/* 1: there is no such file. */
static int parse_file(struct parse *p, const char *file, struct err *e)
{
    if (!is_text(file, strlen(file)))
        return err_set(e, ERR_USAGE, EINVAL, "name of a configuration file is not plain UTF-8 text");
    CLEANUP_CLOSE int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && errno == ENOENT) {
        check_dangling(p->cfg, file);
        return 1;
    }
    int sys = errno;
    if (add_file(p->cfg, file, &p->file) < 0)
        return err_nomem(e);
    if (fd < 0) {
        complain(p->cfg, CFG_ERROR, p->file, 0, false, NULL, "cannot read configuration %s: %s", file, strerror(sys));
        return 0;
    }
    int rc = parse_open_file(p, file, fd, e);
    free(p->text);
    p->text = NULL;
    return rc;
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n > m && !strcmp(name + n - m, end);
}

static int is_shown(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

/* Suffixes of backup copies made by editors and package managers, which nobody expects to be read. */
static bool is_backup_copy(const char *name)
{
    static const char *const ends[] = {"~",         ".bak",       ".old",      ".orig",    ".disabled", ".dpkg-new",
                                       ".dpkg-old", ".dpkg-dist", ".dpkg-tmp", ".ucf-old", ".ucf-dist", ".ucf-new"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(name, ends[i]))
            return true;
    return !strncmp(name, "README", 6);
}

static void warn_ignored(struct cfg *c, const char *dir, const char *name, const char *file)
{
    bool text = is_text(name, strlen(name));
    if (!is_backup_copy(name))
        cfg_complain(c, CFG_WARNING, text ? file : dir, "rename it, or move it out of conf.d",
                     "%s is ignored: its name does not end in .ini", text ? "the file" : "a file in it");
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Number of files read, or an error. */
static int parse_drop_ins(struct parse *p, const char *main_file, struct err *e)
{
    char dir[4096];
    const char *slash = strrchr(main_file, '/');
    snprintf(dir, sizeof dir, "%.*sconf.d", slash ? (int)(slash - main_file + 1) : 0, main_file);
    struct dirent **list;
    int n = scandir(dir, &list, is_shown, by_name);
    if (n < 0 && errno == ENOENT) {
        check_dangling(p->cfg, dir);
        return 0;
    }
    if (n < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot read directory %s", dir);
    int rc = 0, were_read = 0;
    for (int i = 0; i < n; i++) {
        char file[4400];
        const char *name = list[i]->d_name;
        snprintf(file, sizeof file, "%s/%s", dir, name);
        if (rc >= 0 && !ends_with(name, ".ini")) {
            warn_ignored(p->cfg, dir, name, file);
        } else if (rc >= 0) {
            rc = parse_file(p, file, e);
            were_read += rc == 0;
        }
        free(list[i]);
    }
    free(list);
    return rc < 0 ? rc : were_read;
}

static int read_files(struct parse *p, const char *main_file, int must_exist, struct err *e)
{
    int missing = parse_file(p, main_file, e);
    int drop_ins = missing < 0 ? missing : parse_drop_ins(p, main_file, e);
    if (drop_ins < 0)
        return drop_ins;
    if (missing && (must_exist == 1 || (must_exist == 2 && !drop_ins))) {
        err_set(e, ERR_USAGE, ENOENT, "cannot read configuration %s: %s", main_file, strerror(ENOENT));
        return err_hint(e, "see snapferry.ini(5)");
    }
    return 0;
}

int cfg_read(struct cfg *c, const char *main_file, int must_exist, struct err *e)
{
    struct parse p = {.cfg = c, .hash = EVP_MD_CTX_new()};
    if (!p.hash || !EVP_DigestInit_ex(p.hash, EVP_sha256(), NULL)) {
        EVP_MD_CTX_free(p.hash);
        return err_nomem(e);
    }
    int rc = read_files(&p, main_file, must_exist, e);
    unsigned char md[32];
    if (rc >= 0 && !EVP_DigestFinal_ex(p.hash, md, NULL))
        rc = err_nomem(e);
    for (int i = 0; rc >= 0 && i < 32; i++)
        snprintf(c->hash + 2 * i, 3, "%02x", md[i]);
    EVP_MD_CTX_free(p.hash);
    return rc;
}
