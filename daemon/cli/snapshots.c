/* SPDX-License-Identifier: GPL-2.0-or-later */
/* snapshots.c - snapshot list and show, ls, cat */
#include "daemon/cli/daemon.h"

#include <errno.h>
#include <string.h>
#include <time.h>

static int source_filter(const struct options *o, struct snapshot_source *src, const struct snapshot_source **only,
                         struct err *e)
{
    *only = NULL;
    if (!o->as)
        return 0;
    *only = src;
    return snapshot_source_parse(src, o->as, e);
}

const char *cli_how(const struct options *o)
{
    static char text[300];
    snprintf(text, sizeof text, "snapferry -r %.120s%s%.120s", text_name(o->repo),
             o->password_file ? " --password-file " : "", o->password_file ? text_name(o->password_file) : "");
    return text;
}

int cli_find_snapshot(const struct options *o, struct repo *r, const char *what, const struct snapshot_source *only,
                      struct snapshot *ret, struct err *e)
{
    int rc = snapshot_find(r, what, only, ret, e);
    if (rc < 0 && e->cls == ERR_NOT_FOUND)
        err_hint(e, "%s snapshot list --all lists them", cli_how(o));
    return rc;
}

/* The entry of SNAPSHOT or SNAPSHOT/PATH. */
int cli_find(const struct options *o, struct repo *r, const char *arg, struct snapshot *snap, struct dir_entry *entry,
             const char **path, struct err *e)
{
    struct snapshot_source src;
    const struct snapshot_source *only;
    int rc = source_filter(o, &src, &only, e);
    if (rc < 0)
        return rc;
    const char *slash = strchr(arg, '/');
    char what[128];
    size_t n = slash ? (size_t)(slash - arg) : strlen(arg);
    if (!n || n >= sizeof what) {
        err_set(e, ERR_USAGE, 0, "\"%s\" is not a snapshot", text_name(arg));
        return err_hint(e, "a snapshot is a manifest id, a unique prefix of it, or \"latest\"; /PATH may follow");
    }
    memcpy(what, arg, n);
    what[n] = '\0';
    *path = slash ? slash + 1 : "";
    rc = cli_find_snapshot(o, r, what, only, snap, e);
    if (rc < 0)
        return rc;
    rc = dir_lookup(r, &snap->root, *path, entry, e);
    if (rc < 0)
        snapshot_clear(snap);
    return rc;
}

struct listing {
    const struct options *o;
    json_t *json;
    struct table *table;
    unsigned shown, hidden;
};

static int list_one(struct snapshot *s, void *arg)
{
    struct listing *l = arg;
    if (s->incomplete[0] && !l->o->all) {
        l->hidden++;
        return 0;
    }
    l->shown++;
    if (l->json)
        return json_array_append_new(l->json, snapshot_to_json(s)) < 0 ? -ENOMEM : 0;
    char src[4500], remarks[256];
    bool pinned = s->pins && json_array_size(s->pins);
    snprintf(remarks, sizeof remarks, "%s%.100s%s%s", s->incomplete[0] ? "incomplete: " : "", s->incomplete,
             s->error_count ? (s->incomplete[0] ? ", ERRORS" : "ERRORS") : "",
             pinned ? (s->incomplete[0] || s->error_count ? ", pinned" : "pinned") : "");
    table_cell(l->table, TINT_NONE, "%.16s", s->id);
    table_cell(l->table, TINT_NONE, "%s", text_local_time(s->start_ns));
    table_cell(l->table, TINT_NONE, "%s", s->total_size >= 0 ? text_bytes((uint64_t)s->total_size) : "-");
    /* The name of the volume if the daemon recorded it, else its id. */
    table_cell(l->table, TINT_NONE, "%s", *jstr(s->tags, "tag:volume") ? jstr(s->tags, "tag:volume") : s->source.path);
    table_cell(l->table, TINT_NONE, "%s", snapshot_source_text(&s->source, src, sizeof src));
    table_cell(l->table, s->error_count ? TINT_BAD : s->incomplete[0] ? TINT_WARN : TINT_NONE, "%s", remarks);
    return 0;
}

int cli_snapshot_list(const struct options *o, struct err *e)
{
    struct snapshot_source src;
    const struct snapshot_source *only;
    int rc = source_filter(o, &src, &only, e);
    if (rc < 0)
        return rc;
    CLEANUP(repo_freep) struct repo *r = NULL;
    rc = cli_open_repo(o, &r, e);
    if (rc < 0)
        return rc;
    struct listing l = {.o = o};
    static const char *const heads[] = {"SNAPSHOT", "STARTED", "SIZE", "VOLUME", "SOURCE", ""};
    if (o->json ? !(l.json = json_array()) : !(l.table = table_new(heads, "lLRsSe")))
        return err_nomem(e);
    unsigned bad = 0;
    rc = snapshots_each(r, only, true, list_one, &l, &bad, e);
    if (rc < 0) {
        json_decref(l.json);
        table_print(l.table, stdout, ""); /* those read so far */
        return e->cls ? rc : err_nomem(e);
    }
    table_print(l.table, stdout, "");
    if (o->json) {
        print_json(json_pack("{s:s, s:s, s:o, s:i, s:i}", "type", "result", "verb", "snapshot list", "snapshots",
                             l.json, "incompleteHidden", (int)l.hidden, "unreadable", (int)bad));
    } else if (!o->quiet) {
        if (!l.shown)
            printf("No %ssnapshots%s.\n", l.hidden ? "complete " : "", only ? " of that source" : "");
        if (l.hidden)
            printf("%u incomplete snapshot%s omitted (--all lists them).\n", l.hidden, l.hidden == 1 ? "" : "s");
    }
    if (bad)
        return err_set(e, ERR_DAMAGE, EBADMSG, "%u snapshot manifest%s cannot be read", bad, bad == 1 ? "" : "s");
    return 0;
}

int cli_snapshot_show(const struct options *o, struct err *e)
{
    CLEANUP(repo_freep) struct repo *r = NULL;
    int rc = cli_open_repo(o, &r, e);
    if (rc < 0)
        return rc;
    struct snapshot s;
    struct dir_entry entry;
    const char *path;
    rc = cli_find(o, r, o->args[0], &s, &entry, &path, e);
    if (rc < 0)
        return rc;
    dir_entry_clear(&entry);
    if (*path) {
        snapshot_clear(&s);
        return err_set(e, ERR_USAGE, 0, "snapshot show does not take a path; use ls");
    }
    if (o->json) {
        print_json(
            json_pack("{s:s, s:s, s:o}", "type", "result", "verb", "snapshot show", "snapshot", snapshot_to_json(&s)));
        snapshot_clear(&s);
        return 0;
    }
    char text[4500], root[OBJECT_ID_TEXT];
    printf("Snapshot     %s\n", s.id);
    printf("Source       %s\n", text_name(snapshot_source_text(&s.source, text, sizeof text)));
    if (s.description[0])
        printf("Description  %s\n", text_name(s.description));
    printf("Started      %s\n", text_local_time(s.start_ns));
    printf("Ended        %s (%s)\n", text_local_time(s.end_ns), text_seconds((double)(s.end_ns - s.start_ns) * 1e-9));
    printf("State        %s%s\n", s.incomplete[0] ? "incomplete: " : "complete", text_name(s.incomplete));
    printf("Size         %s in %ld file%s\n", text_bytes((uint64_t)s.total_size), (long)s.file_count,
           s.file_count == 1 ? "" : "s");
    if (s.error_count || s.ignored_errors)
        printf("Errors       %ld, ignored %ld\n", (long)s.error_count, (long)s.ignored_errors);
    printf("Root         %s\n", object_id_text(&s.root.obj, root));
    const char *key;
    json_t *value;
    json_object_foreach(s.tags, key, value)
        printf("Tag          %s = %s\n", text_name(strncmp(key, "tag:", 4) ? key : key + 4),
               text_name(json_string_value(value)));
    size_t i;
    json_array_foreach(s.pins, i, value) printf("Pin          %s\n", text_name(json_string_value(value)));
    snapshot_clear(&s);
    return 0;
}

static json_t *entry_json(const struct dir_entry *d)
{
    char type[2] = {d->type, '\0'}, mode[16], obj[OBJECT_ID_TEXT] = "", t[TIME_TEXT];
    snprintf(mode, sizeof mode, "%04o", d->mode);
    if (d->obj.content.len)
        object_id_text(&d->obj, obj);
    json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:s}", "name", d->name, "type", type, "mode", mode, "mtime",
                          time_text(d->mtime_ns, t), "uid", (int)d->uid, "gid", (int)d->gid, "object", obj);
    int64_t size = d->type == 'd' && d->has_summary ? d->sum_size : d->size;
    if (j && size >= 0)
        json_object_set_new(j, "size", json_integer(size));
    return j;
}

static void mode_text(char type, uint32_t mode, char out[11])
{
    static const char rwx[] = "rwxrwxrwx";
    out[0] = type == 'd' ? 'd' : type == 's' ? 'l' : type == 'f' ? '-' : '?';
    for (int i = 0; i < 9; i++)
        out[1 + i] = mode & 0400u >> i ? rwx[i] : '-';
    if (mode & 04000)
        out[3] = mode & 0100 ? 's' : 'S';
    if (mode & 02000)
        out[6] = mode & 010 ? 's' : 'S';
    if (mode & 01000)
        out[9] = mode & 01 ? 't' : 'T';
    out[10] = '\0';
}

static int ls_one(struct dir_entry *d, void *arg)
{
    json_t *list = arg;
    if (list)
        return json_array_append_new(list, entry_json(d)) < 0 ? -ENOMEM : 0;
    char mode[11];
    mode_text(d->type, d->mode, mode);
    int64_t size = d->type == 'd' && d->has_summary ? d->sum_size : d->size;
    printf("%s %6u %6u %14ld %s %s%s\n", mode, d->uid, d->gid, (long)(size < 0 ? 0 : size),
           text_local_time(d->mtime_ns), text_name(d->name ? d->name : ""), d->type == 'd' ? "/" : "");
    return 0;
}

int cli_ls(const struct options *o, struct err *e)
{
    CLEANUP(repo_freep) struct repo *r = NULL;
    int rc = cli_open_repo(o, &r, e);
    if (rc < 0)
        return rc;
    struct snapshot s;
    struct dir_entry entry;
    const char *path;
    rc = cli_find(o, r, o->args[0], &s, &entry, &path, e);
    if (rc < 0)
        return rc;
    json_t *list = o->json ? json_array() : NULL;
    rc = entry.type == 'd' ? dir_each(r, &entry.obj, ls_one, list, e) : ls_one(&entry, list);
    if (rc < 0 && e->cls == ERR_NONE)
        err_nomem(e);
    if (rc >= 0 && o->json)
        print_json(json_pack("{s:s, s:s, s:s, s:s, s:O}", "type", "result", "verb", "ls", "snapshot", s.id, "path",
                             path, "entries", list));
    json_decref(list);
    dir_entry_clear(&entry);
    snapshot_clear(&s);
    return rc;
}

static int write_all(int fd, const uint8_t *p, size_t n, struct err *e)
{
    while (n) {
        ssize_t w = write(fd, p, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return err_set(e, ERR_GENERIC, errno, "cannot write to standard output");
        p += w;
        n -= (size_t)w;
    }
    return 0;
}

static int copy_object(struct repo *r, const struct dir_entry *d, struct err *e)
{
    struct mover_cancel *cancel = cli_cancel();
    CLEANUP(object_reader_freep) struct object_reader *in = NULL;
    int rc = object_reader_open(&in, r, &d->obj, e);
    if (rc < 0)
        return rc;
    const size_t cap = 1u << 20;
    CLEANUP_FREE uint8_t *buf = malloc(cap);
    if (!buf)
        return err_nomem(e);
    for (;;) {
        if (atomic_load(&cancel->requested))
            return err_set(e, ERR_INTERRUPTED, ECANCELED, "interrupted");
        int64_t n = object_reader_read(in, buf, cap, e);
        if (n < 0)
            return (int)n;
        if (n == 0)
            return 0;
        rc = write_all(STDOUT_FILENO, buf, (size_t)n, e);
        if (rc < 0)
            return rc;
    }
}

int cli_cat(const struct options *o, struct err *e)
{
    CLEANUP(repo_freep) struct repo *r = NULL;
    int rc = cli_open_repo(o, &r, e);
    if (rc < 0)
        return rc;
    struct snapshot s;
    struct dir_entry entry;
    const char *path;
    rc = cli_find(o, r, o->args[0], &s, &entry, &path, e);
    if (rc < 0)
        return rc;
    if (entry.type == 'd') {
        rc = err_set(e, ERR_USAGE, 0, "\"%s\" is a directory", text_name(*path ? path : o->args[0]));
        err_hint(e, "give a file in it; %s ls %s lists them", cli_how(o), text_name(o->args[0]));
    } else if (entry.type != 'f' && entry.type != 's') {
        rc = err_set(e, ERR_USAGE, 0, "\"%s\" is neither a file nor a symbolic link", text_name(path));
    } else {
        rc = copy_object(r, &entry, e);
    }
    dir_entry_clear(&entry);
    snapshot_clear(&s);
    return rc;
}
