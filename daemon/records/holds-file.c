/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * holds-file.c - the file of holds (holds.c): its text, read and written
 *
 * Crash points: records-holds-new (the new file is durable), records-holds-named (it has its name).
 */
#include "daemon/records/records-impl.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_LINE "snapferry-holds 1 "
#define HOLDS_MAX ((off_t)64 << 20) /* bytes of a file that is read */

/* ---- the text: a line for each, fields between tabs, control characters and '%' as %XX ---- */

static void put_field(FILE *f, const char *s)
{
    fputc('\t', f);
    for (; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        if (c < 0x20 || c == 0x7f || c == '%')
            fprintf(f, "%%%02X", c);
        else
            fputc(c, f);
    }
}

static void put_hold(FILE *f, const struct native_row *n)
{
    const struct native_desc *d = n->native;
    fprintf(f, "hold\t%s\t%lld\t%llu\t%lld", n->id, (long long)n->hold.at_ns,
            (unsigned long long)(d->seq ? d->seq : n->seq), (long long)(d->created_ns ? d->created_ns : n->created_ns));
    put_field(f, n->parent);
    put_field(f, n->volume_id);
    put_field(f, n->volume->name);
    put_field(f, n->hold.note);
    fputc('\n', f);
}

/* Malloc()ed; NULL: no memory. */
static char *holds_text(const struct records *r, uint64_t number)
{
    char *text = NULL;
    size_t size, n = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    fprintf(f, FIRST_LINE "%llu\n", (unsigned long long)number);
    for (struct object *obj = image_first(&r->image, ROW_NATIVE, BY_AGE, NULL); obj; obj = obj->younger[BY_AGE]) {
        const struct native_row *row = obj->now ? (const struct native_row *)(const void *)obj->now->data : NULL;
        if (!row || !row->hold.held)
            continue;
        put_hold(f, row);
        n++;
    }
    fprintf(f, "end %zu\n", n);
    const bool bad = ferror(f);
    if (fclose(f) == 0 && !bad)
        return text;
    free(text);
    return NULL;
}

static bool decode(char *s)
{
    char *to = s;
    for (; *s; s++) {
        if (*s == '%') {
            char hex[3] = {s[1], s[1] ? s[2] : '\0'};
            if (!isxdigit((unsigned char)hex[0]) || !isxdigit((unsigned char)hex[1]) || !strcmp(hex, "00"))
                return false;
            *to++ = (char)strtoul(hex, NULL, 16);
            s += 2;
        } else {
            *to++ = *s;
        }
    }
    *to = '\0';
    return true;
}

static bool parse_number(const char *s, uint64_t *ret)
{
    char *end;
    errno = 0;
    *ret = strtoull(s, &end, 10);
    return isdigit((unsigned char)s[0]) && !*end && !errno && *ret < INT64_MAX;
}

static bool parse_line(char *line, struct held_line *ret)
{
    unsigned n = 0;
    char *field;
    while (n < HELD_FIELDS && (field = strsep(&line, "\t"))) {
        if (!decode(field))
            return false;
        ret->text[n++] = field;
    }
    return n == HELD_FIELDS && !line && !strcmp(ret->text[HELD_WORD], "hold") && ret->text[HELD_ALIAS][0] &&
           parse_number(ret->text[HELD_AT], &ret->at_ns) && parse_number(ret->text[HELD_SEQ], &ret->seq) &&
           parse_number(ret->text[HELD_CREATED], &ret->created_ns);
}

/* ---- reading the file ---- */

void held_file_clear(struct held_file *h)
{
    free(h->text);
    free(h->v);
}

char *records_holds_path(const struct records *r, const char *name, char path[PATH_MAX + 64])
{
    snprintf(path, PATH_MAX + 64, "%s/%s", r->dir, name);
    return path;
}

static void parse(struct held_file *h)
{
    char *rest = h->text, *line;
    uint64_t count;
    size_t lines = 1;
    bool ended = false;
    for (const char *s = h->text; *s; s++)
        lines += *s == '\n';
    h->v = calloc(lines, sizeof *h->v);
    line = strsep(&rest, "\n");
    h->damaged = !h->v || strncmp(line, FIRST_LINE, strlen(FIRST_LINE)) != 0 ||
                 !parse_number(line + strlen(FIRST_LINE), &h->number);
    while (h->v && rest && !ended && (line = strsep(&rest, "\n"))) {
        ended = !strncmp(line, "end ", 4);
        if (ended)
            h->damaged |= !parse_number(line + 4, &count) || count != h->n;
        else if (parse_line(line, &h->v[h->n]))
            h->n++;
        else
            h->damaged = true;
    }
    h->damaged |= !ended;
}

void records_holds_read(const struct records *r, struct held_file *h)
{
    char path[PATH_MAX + 64];
    struct stat st;
    *h = (struct held_file){.there = true, .damaged = true};
    CLEANUP_CLOSE int fd = open(records_holds_path(r, HOLDS, path), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT) {
        h->there = h->damaged = false;
        return;
    }
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > HOLDS_MAX ||
        !(h->text = malloc((size_t)st.st_size + 1))) {
        log_warning("%s cannot be read: %s", path, fd < 0 ? strerror(errno) : "it is no regular file of its size");
        return;
    }
    size_t n = 0;
    ssize_t k;
    while (n < (size_t)st.st_size && (k = read(fd, h->text + n, (size_t)st.st_size - n)) > 0)
        n += (size_t)k;
    h->text[n] = '\0';
    if (strlen(h->text) == n)
        parse(h);
}

/* ---- writing it ---- */

static bool is_held(const struct version *v)
{
    return v && ((const struct native_row *)(const void *)v->data)->hold.held;
}

/* Whether the transaction changes what the file has; *more: it holds what was not held. */
static bool holds_change(const struct image *m, bool *more)
{
    bool changes = false;
    *more = false;
    for (const struct object *obj = m->changed; obj; obj = obj->next_changed) {
        const struct version *v = obj->now ? obj->now : obj->was;
        if (!v || v->kind != ROW_NATIVE || (!is_held(obj->now) && !is_held(obj->was)))
            continue;
        changes = true;
        *more |= is_held(obj->now) && !is_held(obj->was);
    }
    return changes;
}

int records_holds_take(struct records *r, struct holds_write *ret, struct err *e)
{
    bool more, changes = holds_change(&r->image, &more);
    *ret = (struct holds_write){.dir = r->dir,
                                .number = r->holds.number + 1,
                                .must = more && !r->holds.taken_over,
                                .unknown = r->holds.unknown};
    if (records_volatile || (!changes && !r->holds.stale))
        return 0;
    if (!(ret->text = holds_text(r, ret->number)))
        return err_nomem(e);
    return 0;
}

static int write_new(const char *path, const char *text, struct err *e)
{
    const size_t len = strlen(text);
    size_t n = 0;
    CLEANUP_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    while (fd >= 0 && n < len) {
        const ssize_t k = write(fd, text + n, len - n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            break;
        n += (size_t)k;
    }
    if (fd >= 0 && n == len && fsync(fd) == 0)
        return 0;
    return err_set(e, errno == ENOSPC || errno == EDQUOT ? ERR_NO_SPACE : ERR_GENERIC, errno, "cannot write %s", path);
}

int records_holds_prepare(struct holds_write *w, struct err *e)
{
    char path[PATH_MAX + 64];
    if (!w->text)
        return 0;
    snprintf(path, sizeof path, "%s/" HOLDS_NEW, w->dir);
    if (write_new(path, w->text, &w->err) < 0) {
        unlink(path);
        if (w->must && e)
            *e = w->err;
        return w->must ? w->err.sys ? -w->err.sys : -EIO : 0;
    }
    crash_point("records-holds-new");
    w->prepared = true;
    return 0;
}

void records_holds_finish(struct holds_write *w, bool committed)
{
    char from[PATH_MAX + 64], to[PATH_MAX + 64];
    if (!w->prepared)
        return;
    snprintf(from, sizeof from, "%s/" HOLDS_NEW, w->dir);
    snprintf(to, sizeof to, "%s/" HOLDS, w->dir);
    if (!committed) {
        unlink(from);
        return;
    }
    if (rename(from, to) < 0)
        err_set(&w->err, ERR_GENERIC, errno, "cannot rename %s to %s", from, to);
    else if (records_sync_dir(w->dir, &w->err) == 0)
        w->named = true;
    crash_point("records-holds-named");
}

void records_holds_ended(struct records *r, struct holds_write *w, bool committed)
{
    struct holds *h = &r->holds;
    if (w->text && committed) {
        h->number = w->number;
        h->stale = !w->named;
        if (h->stale && strcmp(h->why, w->err.msg) != 0)
            log_warning("the file of what is held is not up to date, retrying: %s", w->err.msg);
        snprintf(h->why, sizeof h->why, "%s", h->stale ? w->err.msg : "");
    }
    free(w->text);
    *w = (struct holds_write){.text = NULL};
}

void records_holds_rewrite(struct records *r)
{
    struct holds_write w = {.dir = r->dir, .number = r->holds.number, .text = holds_text(r, r->holds.number)};
    struct err e = ERR_INIT;
    if (!w.text) {
        r->holds.stale = true;
        return;
    }
    records_holds_prepare(&w, &e);
    records_holds_finish(&w, true);
    records_holds_ended(r, &w, true);
}

bool records_holds_current(const struct records *r)
{
    char path[PATH_MAX + 64];
    struct stat st;
    CLEANUP_FREE char *text = holds_text(r, r->holds.number);
    CLEANUP_FREE char *there = NULL;
    CLEANUP_CLOSE int fd = open(records_holds_path(r, HOLDS, path), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (!text || fd < 0 || fstat(fd, &st) < 0 || st.st_size != (off_t)strlen(text))
        return false;
    there = malloc(strlen(text) + 1);
    return there && read(fd, there, strlen(text)) == st.st_size && !memcmp(there, text, strlen(text));
}
