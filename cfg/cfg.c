/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * cfg.c - reading and checking the configuration
 *
 * inih parses; it tells no line numbers, cuts section names at 49 characters and splits long lines. So the lines are
 * handed to it by a reader that counts them and refuses what would be cut.
 */
#include "cfg/cfg.h"

#include "base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <ini.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#define SECTION_MAX 49 /* characters that inih keeps */
#define LINE_MAX_LEN 198

struct cfg {
    struct cfg_repository *repositories;
    unsigned n_repositories;
};

struct parse {
    struct cfg *cfg;
    const char *file;
    FILE *in;
    unsigned line, errors;
    char first[512];
    struct cfg_repository *current; /* NULL: section of another kind */
    char section[128];
    bool nomem;
};

static void complain(struct parse *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void complain(struct parse *p, const char *fmt, ...)
{
    char words[400], line[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(words, sizeof words, fmt, ap);
    va_end(ap);
    snprintf(line, sizeof line, "%s:%u: %s", p->file, p->line, words);
    if (!p->errors++)
        snprintf(p->first, sizeof p->first, "%s", line);
    log_line(LOG_LVL_ERROR, "%s", line);
}

static const char *const kinds[] = {"daemon", "repository", "storage-class", "volume", "job", "plugin", "mover"};
static const char *const repository_keys[] = {"type", "path", "password-file", "splitter", "compression"};

/* Length of the common prefix plus suffix: enough to find the word that was mistyped. */
static const char *nearest(const char *word, const char *const *known, size_t n)
{
    const char *best = known[0];
    size_t most = 0;
    for (size_t i = 0; i < n; i++) {
        size_t a = strlen(word), b = strlen(known[i]), same = 0;
        while (same < a && same < b && word[same] == known[i][same])
            same++;
        for (size_t k = 1; k <= a - same && k <= b - same && word[a - k] == known[i][b - k]; k++)
            same++;
        if (same > most) {
            most = same;
            best = known[i];
        }
    }
    return best;
}

static char *read_line(char *buf, int cap, void *stream)
{
    struct parse *p = stream;
    char line[4096];
    if (!fgets(line, sizeof line, p->in))
        return NULL;
    p->line++;
    size_t n = strcspn(line, "\r\n");
    const char *s = line + strspn(line, " \t");
    if (n > LINE_MAX_LEN || n + 2 > (size_t)cap) {
        complain(p, "the line is longer than %d characters", LINE_MAX_LEN);
        n = 0;
        int c = line[strlen(line) - 1];
        while (c != '\n' && c != EOF)
            c = fgetc(p->in);
    } else if (*s == '[' && strcspn(s + 1, "]") > SECTION_MAX) {
        complain(p, "the section name is longer than %d characters", SECTION_MAX);
        n = 0;
    }
    memcpy(buf, line, n);
    memcpy(buf + n, "\n", 2);
    return buf;
}

static void enter_section(struct parse *p, const char *section)
{
    snprintf(p->section, sizeof p->section, "%s", section);
    p->current = NULL;
    size_t n = strcspn(section, " \t");
    char kind[64];
    snprintf(kind, sizeof kind, "%.*s", (int)n, section);
    bool known = false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        known |= !strcmp(kind, kinds[i]);
    if (!known) {
        complain(p, "unknown section [%s]; the nearest known is [%s]", section,
                 nearest(kind, kinds, sizeof kinds / sizeof *kinds));
        return;
    }
    if (strcmp(kind, "repository") != 0)
        return;
    const char *name = section + n + strspn(section + n, " \t");
    size_t len = strlen(name);
    if (len < 3 || name[0] != '"' || name[len - 1] != '"' || memchr(name + 1, '/', len - 2)) {
        complain(p, "a repository section is named like [repository \"main\"], without a slash");
        return;
    }
    char bare[128];
    snprintf(bare, sizeof bare, "%.*s", (int)(len - 2), name + 1);
    for (unsigned i = 0; i < p->cfg->n_repositories; i++)
        if (!strcmp(p->cfg->repositories[i].name, bare))
            p->current = &p->cfg->repositories[i];
    if (p->current)
        return;
    struct cfg_repository *grown =
        realloc(p->cfg->repositories, (p->cfg->n_repositories + 1) * sizeof *p->cfg->repositories);
    if (!grown) {
        p->nomem = true;
        return;
    }
    p->cfg->repositories = grown;
    p->current = &grown[p->cfg->n_repositories++];
    *p->current = (struct cfg_repository){.type = "filesystem"};
    memcpy(p->current->name, bare, sizeof bare);
    snprintf(p->current->origin, sizeof p->current->origin, "%s:%u", p->file, p->line);
}

static void copy_value(struct parse *p, char *dst, size_t cap, const char *name, const char *value)
{
    if ((size_t)snprintf(dst, cap, "%s", value) >= cap)
        complain(p, "the value of %s is too long", name);
}

static void set_repository(struct parse *p, struct cfg_repository *r, const char *name, const char *value)
{
    if (!strcmp(name, "type")) {
        copy_value(p, r->type, sizeof r->type, name, value);
        if (strcmp(value, "filesystem") != 0)
            complain(p, "type = %s: this version knows filesystem only", value);
    } else if (!strcmp(name, "path")) {
        copy_value(p, r->path, sizeof r->path, name, value);
        if (value[0] != '/')
            complain(p, "path must be absolute, not \"%s\"", value);
    } else if (!strcmp(name, "password-file")) {
        copy_value(p, r->password_file, sizeof r->password_file, name, value);
        if (value[0] != '/' && strncmp(value, "cred:", 5) != 0)
            complain(p, "password-file must be an absolute path or cred:NAME, not \"%s\"", value);
    } else if (!strcmp(name, "splitter")) {
        copy_value(p, r->splitter, sizeof r->splitter, name, value);
    } else if (!strcmp(name, "compression")) {
        copy_value(p, r->compression, sizeof r->compression, name, value);
    } else {
        complain(p, "unknown key %s in [%s]; the nearest known is %s", name, p->section,
                 nearest(name, repository_keys, sizeof repository_keys / sizeof *repository_keys));
    }
}

static int on_value(void *arg, const char *section, const char *name, const char *value)
{
    struct parse *p = arg;
    if (strcmp(section, p->section) != 0)
        enter_section(p, section);
    if (!*section)
        complain(p, "key %s stands before any section", name);
    else if (p->current)
        set_repository(p, p->current, name, value);
    return !p->nomem;
}

static int parse_file(struct parse *p, const char *file, bool must_exist, struct err *e)
{
    CLEANUP_FCLOSE FILE *f = fopen(file, "re");
    if (!f) {
        if (errno == ENOENT && !must_exist)
            return 0;
        return err_set(e, ERR_USAGE, errno, "cannot read configuration %s: %s", file, strerror(errno));
    }
    p->file = file;
    p->in = f;
    p->line = 0;
    p->section[0] = '\0';
    p->current = NULL;
    int rc = ini_parse_stream(read_line, p, on_value, p);
    if (ferror(f))
        return err_set(e, ERR_GENERIC, EIO, "cannot read configuration %s", file);
    if (p->nomem)
        return err_nomem(e);
    if (rc > 0 && !p->errors) {
        p->line = (unsigned)rc;
        complain(p, "neither a [section] nor key = value");
    }
    return 0;
}

static int is_ini(const struct dirent *d)
{
    size_t n = strlen(d->d_name);
    return n > 4 && d->d_name[0] != '.' && !strcmp(d->d_name + n - 4, ".ini");
}

static int parse_drop_ins(struct parse *p, const char *main_file, struct err *e)
{
    char dir[4096];
    const char *slash = strrchr(main_file, '/');
    snprintf(dir, sizeof dir, "%.*sconf.d", slash ? (int)(slash - main_file + 1) : 0, main_file);
    struct dirent **list;
    int n = scandir(dir, &list, is_ini, alphasort);
    if (n < 0)
        return errno == ENOENT ? 0 : err_set(e, ERR_GENERIC, errno, "cannot read directory %s", dir);
    int rc = 0;
    for (int i = 0; i < n; i++) {
        char file[4400];
        snprintf(file, sizeof file, "%s/%s", dir, list[i]->d_name);
        if (rc >= 0)
            rc = parse_file(p, file, true, e);
        free(list[i]);
    }
    free(list);
    return rc;
}

int cfg_load(struct cfg **ret, const char *file, struct err *e)
{
    CLEANUP(cfg_freep) struct cfg *c = calloc(1, sizeof *c);
    if (!c)
        return err_nomem(e);
    struct parse p = {.cfg = c};
    int rc = parse_file(&p, file ? file : CFG_DEFAULT_FILE, file != NULL, e);
    if (rc >= 0)
        rc = parse_drop_ins(&p, file ? file : CFG_DEFAULT_FILE, e);
    if (rc < 0)
        return rc;
    for (unsigned i = 0; i < c->n_repositories; i++) {
        if (!c->repositories[i].path[0]) {
            log_line(LOG_LVL_ERROR, "%s: [repository \"%s\"] has no path", c->repositories[i].origin,
                     c->repositories[i].name);
            if (!p.errors++)
                snprintf(p.first, sizeof p.first, "%s: [repository \"%s\"] has no path", c->repositories[i].origin,
                         c->repositories[i].name);
        }
    }
    if (p.errors > 1)
        return err_set(e, ERR_USAGE, 0, "%s (and %u more errors in the configuration)", p.first, p.errors - 1);
    if (p.errors)
        return err_set(e, ERR_USAGE, 0, "%s", p.first);
    *ret = take_ptr(&c);
    return 0;
}

void cfg_free(struct cfg *c)
{
    if (!c)
        return;
    free(c->repositories);
    free(c);
}

const struct cfg_repository *cfg_repository(const struct cfg *c, const char *name)
{
    for (unsigned i = 0; i < c->n_repositories; i++)
        if (!strcmp(c->repositories[i].name, name))
            return &c->repositories[i];
    return NULL;
}

const struct cfg_repository *cfg_repository_at(const struct cfg *c, unsigned i)
{
    return i < c->n_repositories ? &c->repositories[i] : NULL;
}
