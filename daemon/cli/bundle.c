/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bundle.c - information for a bug report in a tar file (CF-52): status, facts, records, configuration, logs; no
 * secrets
 *
 * Also works while the daemon is down. Everything is redacted (redact.c) before it is written to the archive.
 */
#include "base/time.h"
#include "daemon/cli/logs.h"
#include "daemon/cli/redact.h"

#include "daemon/records/records.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <zlib.h>

#define ROWS_MAX 2000 /* of each kind */
#define LOGS_MAX 20
#define FILE_MAX ((size_t)8 << 20)

struct bundle {
    gzFile gz;
    struct secrets *secrets;
    char top[64];
    int64_t now_ns;
    bool failed;
};

/* ---- tar ---- */

static void put_bytes(struct bundle *b, const void *data, size_t n)
{
    if (n && gzwrite(b->gz, data, (unsigned)n) != (int)n)
        b->failed = true;
}

/* One regular file with a ustar header. */
static void put_file(struct bundle *b, const char *name, const char *data, size_t n)
{
    char h[512] = {0}, path[160];
    snprintf(path, sizeof path, "%s/%s", b->top, name);
    snprintf(h, 100, "%.99s", path);
    snprintf(h + 100, 8, "%07o", 0600u);
    snprintf(h + 108, 8, "%07o", 0u);
    snprintf(h + 116, 8, "%07o", 0u);
    snprintf(h + 124, 12, "%011llo", (unsigned long long)n);
    snprintf(h + 136, 12, "%011llo", (unsigned long long)(b->now_ns / NS_PER_S));
    memset(h + 148, ' ', 8);
    h[156] = '0';
    memcpy(h + 257,
           "ustar\0"
           "00",
           8);
    unsigned sum = 0;
    for (size_t i = 0; i < sizeof h; i++)
        sum += (unsigned char)h[i];
    snprintf(h + 148, 8, "%06o", sum);
    h[155] = ' ';
    put_bytes(b, h, sizeof h);
    put_bytes(b, data, n);
    static const char zeros[512];
    put_bytes(b, zeros, (512 - n % 512) % 512);
}

static void put_text(struct bundle *b, const char *name, const char *text)
{
    CLEANUP_FREE char *clean = redact_text(b->secrets, text);
    if (clean)
        put_file(b, name, clean, strlen(clean));
    else
        b->failed = true;
}

static void put_json(struct bundle *b, const char *name, const json_t *v)
{
    CLEANUP_JSON json_t *clean = redact_json(b->secrets, v);
    CLEANUP_FREE char *text = clean ? json_dumps(clean, JSON_INDENT(2)) : NULL;
    if (text)
        put_file(b, name, text, strlen(text));
    else
        b->failed = true;
}

/* ---- contents ---- */

static void put_answer(struct bundle *b, const struct options *o, const char *verb, const char *name)
{
    CLEANUP_JSON json_t *answer = NULL;
    struct err e = ERR_INIT;
    if (ask_or_read(o, verb, NULL, &answer, &e) < 0)
        answer = json_pack("{s:s, s:s}", "error", e.msg, "hint", e.hint);
    put_json(b, name, answer);
}

static char *read_text(const char *path, struct err *e)
{
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    CLEANUP_FREE char *text = fd < 0 ? NULL : malloc(FILE_MAX + 1);
    size_t n = 0;
    if (fd < 0 || !text) {
        err_set(e, ERR_GENERIC, fd < 0 ? errno : ENOMEM, "cannot read %s", path);
        return NULL;
    }
    for (ssize_t r; n < FILE_MAX && (r = read(fd, text + n, FILE_MAX - n)) > 0;)
        n += (size_t)r;
    text[n] = '\0';
    for (size_t i = 0; i < n; i++)
        if (!text[i])
            text[i] = ' ';
    return take_ptr(&text);
}

static void put_ini(struct bundle *b, const char *path, const char *name)
{
    struct err e = ERR_INIT;
    size_t n = 0;
    CLEANUP_FREE char *text = read_text(path, &e);
    if (!text) {
        put_text(b, name, e.msg);
        return;
    }
    CLEANUP_FREE char *clean = redact_ini(b->secrets, text, &n);
    if (clean)
        put_file(b, name, clean, n);
    else
        b->failed = true;
}

static void put_config(struct bundle *b, const struct options *o, const struct cfg *c)
{
    char path[8192], name[128];
    snprintf(path, sizeof path, "%s/snapferry.ini", o->config_dir);
    put_ini(b, path, "config/snapferry.ini");
    snprintf(path, sizeof path, "%s/conf.d", o->config_dir);
    CLEANUP_CLOSEDIR DIR *d = opendir(path);
    for (const struct dirent *de; d && (de = readdir(d));) {
        size_t n = strlen(de->d_name);
        if (n < 5 || n > 60 || strcmp(de->d_name + n - 4, ".ini") != 0 || de->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/conf.d/%s", o->config_dir, de->d_name);
        snprintf(name, sizeof name, "config/conf.d/%s", de->d_name);
        put_ini(b, path, name);
    }
    if (c) {
        CLEANUP_JSON json_t *effective = cfg_json(c);
        if (effective)
            put_json(b, "config/effective.json", effective);
    }
}

struct rows {
    struct bundle *b;
    FILE *f;
    enum row_kind kind;
    json_t *failed; /* ids of operations whose logs are included */
};

static int put_row(const void *any, void *arg)
{
    const struct row *r = any;
    struct rows *w = arg;
    const int state = row_state(w->kind, any);
    CLEANUP_JSON json_t *row = json_pack(
        "{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:o}", "id", r->id, "parent", r->parent, "volume", r->volume_id, "state",
        enum_name(row_types[w->kind].states, state), "seq", (json_int_t)r->seq, "created_ns", (json_int_t)r->created_ns,
        "updated_ns", (json_int_t)r->updated_ns, "doc", fields_to_json(row_types[w->kind].fields, any));
    CLEANUP_JSON json_t *clean = row ? redact_json(w->b->secrets, row) : NULL;
    CLEANUP_FREE char *text = clean ? json_dumps(clean, JSON_COMPACT) : NULL;
    if (!text)
        return -ENOMEM;
    fprintf(w->f, "%s\n", text);
    if (w->failed && json_array_size(w->failed) < LOGS_MAX && state != OP_COMPLETED)
        json_array_append_new(w->failed, json_string(r->id));
    return 0;
}

static void put_records(struct bundle *b, const struct options *o, json_t *failed)
{
    static const char *const names[] = {[ROW_BACKUP] = "backups",
                                        [ROW_OPERATION] = "operations",
                                        [ROW_NATIVE] = "natives",
                                        [ROW_VOLUME] = "volumes",
                                        [ROW_JOB] = "jobs"};
    struct err e = ERR_INIT;
    struct records *r;
    if (records_open_read_only(&r, o->state_dir, &e) < 0) {
        put_text(b, "records/error.txt", e.msg);
        return;
    }
    for (enum row_kind k = 0; k < ROW_KINDS; k++) {
        const struct row_filter f = {.newest_first = true, .limit = ROWS_MAX};
        CLEANUP_FREE char *text = NULL;
        size_t n = 0;
        struct rows w = {
            .b = b, .f = open_memstream(&text, &n), .kind = k, .failed = k == ROW_OPERATION ? failed : NULL};
        if (!w.f)
            break;
        int rc = row_each(r, k, &f, put_row, &w, &e);
        if (fclose(w.f) != 0 || rc < 0)
            b->failed = rc == -ENOMEM;
        char name[64];
        snprintf(name, sizeof name, "records/%s.jsonl", names[k]);
        put_file(b, name, text ? text : "", n);
    }
    records_close(r);
}

static int put_line(int64_t at_ns, const char *level, const char *text, void *arg)
{
    FILE *f = arg;
    if (ftell(f) > (long)FILE_MAX)
        return 1;
    fprintf(f, "%s %s %s\n", at_ns ? text_local_time(at_ns) : "-", level, text_name(text));
    return 0;
}

static void put_logs(struct bundle *b, const struct options *o, const json_t *ids)
{
    size_t i;
    const json_t *id;
    json_array_foreach(ids, i, id)
    {
        struct err e = ERR_INIT;
        CLEANUP(logs_closep) struct logs *l = NULL;
        CLEANUP_FREE char *text = NULL;
        size_t n = 0;
        FILE *f = open_memstream(&text, &n);
        if (!f)
            return;
        fprintf(f, "%s\n", json_string_value(id));
        if (logs_open(&l, o, json_string_value(id), &e) < 0)
            fprintf(f, "%s\n", e.msg);
        else
            logs_read(l, put_line, f);
        char name[32];
        snprintf(name, sizeof name, "logs/%02zu.txt", i + 1);
        if (fclose(f) == 0 && text)
            put_text(b, name, text);
    }
}

static void put_system(struct bundle *b)
{
    struct utsname u;
    struct err e = ERR_INIT;
    char text[8192];
    uname(&u);
    CLEANUP_FREE char *os = read_text("/etc/os-release", &e), *memory = read_text("/proc/meminfo", &e);
    snprintf(text, sizeof text, "snapferry %s\n%s %s %s %s\n%ld processors\n\n%.4000s\n%.2000s", SNAPFERRY_VERSION,
             u.sysname, u.release, u.version, u.machine, sysconf(_SC_NPROCESSORS_ONLN), os ? os : "",
             memory ? memory : "");
    put_text(b, "system.txt", text);
}

static const char readme[] =
    "Information for a bug report, collected by `snapferry debug-bundle`.\n\n"
    "status.json, facts.json   state of the daemon, or of its files if it is down\n"
    "records/                  newest rows of the records\n"
    "config/                   configuration\n"
    "logs/                     logs of the newest operations that did not complete\n"
    "system.txt                release and machine\n\n"
    "Values with names of secrets, passwords in URLs, and the contents of the configured password files have been\n"
    "replaced by \"(removed)\". Names of volumes, paths and hosts are included: review them before you pass it on.\n";

static void put_everything(struct bundle *b, const struct options *o, const struct cfg *c)
{
    CLEANUP_JSON json_t *failed = json_array();
    put_text(b, "README", readme);
    put_system(b);
    put_answer(b, o, "status", "status.json");
    put_answer(b, o, "debug", "facts.json");
    put_config(b, o, c);
    put_records(b, o, failed);
    put_logs(b, o, failed);
    static const char end[1024];
    put_bytes(b, end, sizeof end);
}

static int create_bundle(const struct options *o, const struct bundle *b, char path[4096], struct err *e)
{
    if (o->n_args && !strcmp(o->args[0], "-")) {
        snprintf(path, 4096, "standard output");
        return dup(STDOUT_FILENO);
    }
    snprintf(path, 4096, "%s%s", o->n_args ? o->args[0] : b->top, o->n_args ? "" : ".tar.gz");
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 && errno == EEXIST)
        err_plain(e, ERR_EXISTS, EEXIST, "%s already exists", text_name(path));
    else if (fd < 0)
        err_set(e, ERR_GENERIC, errno, "cannot create %s", text_name(path));
    return fd;
}

int ask_debug_bundle(const struct options *o, struct err *e)
{
    struct bundle b = {.now_ns = now_ns()};
    char path[4096], stamp[TIME_STAMP];
    struct cfg *c = NULL;
    struct err ignored = ERR_INIT;
    snprintf(b.top, sizeof b.top, "snapferry-debug-%s", time_stamp(b.now_ns, stamp));
    CLEANUP_CLOSE int fd = create_bundle(o, &b, path, e);
    if (fd < 0)
        return -EIO;
    (void)cfg_load_dir(&c, o->config_dir, &ignored);
    int rc = secrets_new(&b.secrets, c, e);
    if (rc >= 0) {
        b.gz = gzdopen(fd, "wb");
        rc = b.gz ? (take_fd(&fd), 0) : err_nomem(e);
    }
    if (rc >= 0) {
        put_everything(&b, o, c);
        if (gzclose(b.gz) != Z_OK || b.failed)
            rc = err_set(e, ERR_GENERIC, errno, "cannot write %s", text_name(path));
    }
    secrets_free(b.secrets);
    cfg_free(c);
    if (rc < 0)
        return rc;
    bool to_stdout = o->n_args && !strcmp(o->args[0], "-");
    if (o->json && !to_stdout) {
        CLEANUP_JSON json_t *answer = json_pack("{s:s}", "file", path);
        print_answer(o, answer);
    } else if (!o->quiet && !to_stdout) {
        printf("%s\nSecrets have been removed; review it before you pass it on.\n", text_name(path));
    }
    return 0;
}
