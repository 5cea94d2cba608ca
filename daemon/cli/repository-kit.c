/* SPDX-License-Identifier: GPL-2.0-or-later */
/* repository-kit.c - `repo export-key` and `repo open-key`: the page from which a repository can be opened again */
#include "daemon/cli/cli.h"

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"
#include "repo/format-parse.h"
#include "repo/kit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FORMAT_BLOB "kopia.repository"
#define CONFIG_BLOB "kopia.blobcfg"
#define BLOB_MAX ((size_t)64 << 10)
#define KIT_MAX ((size_t)1 << 20) /* bytes of the text */

static void secret_wipe(char **p)
{
    password_free(*p);
}

/* The blob of the configuration first: with a format, a repository is there. */
static int put_format(struct blobs *b, const struct kit *k, struct err *e)
{
    int rc = k->blobcfg ? blobs_put(b, CONFIG_BLOB, k->blobcfg, k->blobcfg_len, e) : 0;
    return rc == 0 ? blobs_put(b, FORMAT_BLOB, k->format, k->format_len, e) : rc;
}

/* Whether the password opens what is in the kit, without looking at any repository. `whose`: for messages. */
static int kit_open(const struct kit *k, const char *password, const char *whose, struct repo_format **ret,
                    struct err *e)
{
    const struct format_blobs stored = {
        .repository = k->format, .repository_len = k->format_len, .blobcfg = k->blobcfg, .blobcfg_len = k->blobcfg_len};
    const int rc = format_open(ret, whose, &stored, password, e);
    crash_point("kit-opened");
    return rc;
}

/* ---- export ---- */

static bool is_plain(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || (unsigned char)*s > 0x7e)
            return false;
    return true;
}

static int print_page(FILE *f, const struct blobs *b, const struct repo_format *fmt, const struct kit *k, struct err *e)
{
    char id[2 * FORMAT_ID_MAX + 1], when[TIME_TEXT];
    fprintf(f, "SNAPFERRY RECOVERY KIT\n\n%s\n\n",
            k->password
                ? "Whoever has this page and a copy of the repository can read all of it: keep it as you keep a "
                  "key."
                : "This page opens the repository together with its password, which is not on it.");
    fprintf(f, "Repository  %s\n", blobs_location(b));
    fprintf(f, "Unique id   %s\n", hex_encode(id, fmt->unique_id, fmt->unique_id_len));
    fprintf(f, "Format      %u, %s, %s, %s, %s\n", fmt->version, fmt->hash, fmt->encryption, fmt->splitter,
            fmt->key_algo);
    fprintf(f, "Made        %s by snapferry %s\n", time_text(now_ns(), when), SNAPFERRY_VERSION);
    if (k->password)
        fprintf(f, "Password    %s\n",
                is_plain(k->password) ? k->password : "(has other characters than ASCII: it is in the lines below)");
    fprintf(f, "\nTo check it, and that it opens the repository:\n"
               "    snapferry -r REPOSITORY repo open-key FILE\n"
               "If the blob " FORMAT_BLOB " of the repository is lost, --restore writes it again, and any\n"
               "Kopia client opens the repository. Of a page on paper type in the lines below: 0 and O,\n"
               "and 1, I and L, are the same, and so are small letters; each line has a checksum. Make a\n"
               "new kit after a change of the password or of the parameters of the repository.\n\n");
    int rc = kit_write(f, k, e);
    return rc == 0 && ferror(f) ? err_set(e, ERR_GENERIC, EIO, "cannot write the kit") : rc;
}

static int open_parent(const char *file, int flags)
{
    char dir[PATH_MAX];
    const char *slash = strrchr(file, '/');
    if (slash)
        snprintf(dir, sizeof dir, "%.*s", slash == file ? 1 : (int)(slash - file), file);
    else
        snprintf(dir, sizeof dir, ".");
    return open(dir, flags | O_CLOEXEC, 0600);
}

/*
 * A file without a name until all of it is written, so that what is killed leaves no part of a kit; where the file
 * system knows none (vfat), it has its name from the start.
 */
static int open_file(const char *file, bool *unnamed, struct err *e)
{
    struct stat st;
    int fd = -1;
    if (lstat(file, &st) < 0)
        fd = open_parent(file, O_TMPFILE | O_WRONLY);
    *unnamed = fd >= 0;
    if (!*unnamed) {
        fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    }
    if (fd < 0)
        err_set(e, errno == EEXIST ? ERR_EXISTS : ERR_GENERIC, errno, "cannot create %s", text_name(file));
    return fd;
}

static int open_output(const struct options *o, FILE **ret, bool *unnamed, struct err *e)
{
    const char *file = o->args[0];
    if (!strcmp(file, "-")) {
        if (isatty(STDOUT_FILENO) && !o->yes) {
            err_set(e, ERR_USAGE, 0, "the kit is not printed on a terminal, which may be logged");
            return err_hint(e, "name a new file, or use --yes");
        }
        *ret = stdout;
        return 0;
    }
    const int fd = open_file(file, unnamed, e);
    if (fd < 0)
        return -EIO;
    *ret = fdopen(fd, "w");
    if (!*ret)
        close(fd);
    return *ret ? 0 : err_nomem(e);
}

static bool give_name(FILE *f, const char *file)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(f));
    return linkat(AT_FDCWD, path, AT_FDCWD, file, AT_SYMLINK_FOLLOW) == 0;
}

static int close_output(FILE *f, const char *file, bool unnamed, int rc, struct err *e)
{
    bool ok = fflush(f) == 0;
    if (f == stdout)
        return rc == 0 && !ok ? err_set(e, ERR_GENERIC, errno, "cannot write the kit") : rc;
    ok = ok && fsync(fileno(f)) == 0;
    crash_point("kit-written");
    if (rc == 0 && ok && unnamed)
        ok = give_name(f, file);
    const int sys = errno;
    fclose(f);
    if (rc == 0 && ok) {
        CLEANUP_CLOSE int dir = open_parent(file, O_RDONLY | O_DIRECTORY);
        return dir >= 0 && fsync(dir) < 0 && errno != EINVAL
                   ? err_set(e, ERR_GENERIC, errno, "cannot write the directory of %s", text_name(file))
                   : 0;
    }
    if (!unnamed)
        unlink(file);
    return rc < 0 ? rc : err_set(e, sys == EEXIST ? ERR_EXISTS : ERR_GENERIC, sys, "cannot write %s", text_name(file));
}

static int read_format(struct blobs *b, struct kit *k, struct err *e)
{
    struct err none = ERR_INIT;
    int rc = blobs_get(b, FORMAT_BLOB, BLOB_MAX, &k->format, &k->format_len, e);
    if (rc < 0)
        return rc;
    rc = blobs_get(b, CONFIG_BLOB, BLOB_MAX, &k->blobcfg, &k->blobcfg_len, &none);
    if (rc < 0 && rc != -ENOENT)
        *e = none;
    return rc == -ENOENT ? 0 : rc;
}

static void print_exported(const struct options *o, const struct repo_format *f)
{
    char id[2 * FORMAT_ID_MAX + 1];
    hex_encode(id, f->unique_id, f->unique_id_len);
    if (o->json)
        print_json(json_pack("{s:s, s:s, s:s, s:s, s:b}", "type", "result", "verb", "repo export-key", "file",
                             o->args[0], "uniqueID", id, "password", (int)!o->without_password));
    else if (!o->quiet)
        printf("Wrote the recovery kit to %s. Print it, check the print with repo open-key, and delete the file.\n",
               text_name(o->args[0]));
}

int cli_repo_export_key(const struct options *o, struct err *e)
{
    CLEANUP(secret_wipe) char *password = NULL;
    CLEANUP(blobs_freep) struct blobs *b = NULL;
    CLEANUP(kit_clear) struct kit k = {.format = NULL};
    struct repo_format *f = NULL;
    FILE *out = NULL;
    bool unnamed = false;
    char whose[300] = "";
    int rc = cli_password(o, &password, e);
    if (rc >= 0)
        rc = cli_open_blobs(o, BLOBS_OPEN, NULL, 0, &b, e);
    if (rc >= 0)
        rc = read_format(b, &k, e);
    if (b)
        snprintf(whose, sizeof whose, "repository %.280s", blobs_location(b));
    if (rc >= 0)
        rc = kit_open(&k, password, whose, &f, e); /* what is exported, not what is read another time */
    if (rc >= 0 && !o->without_password && !(k.password = strdup(password)))
        rc = err_nomem(e);
    if (rc >= 0)
        rc = open_output(o, &out, &unnamed, e);
    if (rc >= 0)
        rc = close_output(out, o->args[0], unnamed, print_page(out, b, f, &k, e), e);
    if (rc >= 0 && out != stdout)
        print_exported(o, f);
    format_free(f);
    return rc;
}

/* ---- open ---- */

static int read_text(const char *file, char **ret, struct err *e)
{
    FILE *f = stdin;
    if (strcmp(file, "-") != 0) {
        CLEANUP_CLOSE int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        struct stat st;
        if (fd < 0 || fstat(fd, &st) < 0)
            return err_set(e, ERR_NOT_FOUND, errno, "cannot read %s", text_name(file));
        /* A FIFO waits for somebody; the pipe of `open-key <(COMMAND)` has its writer already. */
        if (!S_ISREG(st.st_mode) && !is_inherited_pipe(fd, &st))
            return err_set(e, ERR_USAGE, 0, "%s is not a regular file", text_name(file));
        fcntl(fd, F_SETFL, 0); /* O_NONBLOCK was for the opening */
        if (!(f = fdopen(fd, "r")))
            return err_nomem(e);
        take_fd(&fd);
    }
    char *text = calloc(1, KIT_MAX + 1);
    const size_t n = text ? fread(text, 1, KIT_MAX, f) : 0;
    const bool ok = text && !ferror(f) && n < KIT_MAX && strlen(text) == n;
    if (f != stdin)
        fclose(f);
    if (!text)
        return err_nomem(e);
    *ret = text;
    return ok ? 0 : err_set(e, ERR_USAGE, EINVAL, "%s is no text of a recovery kit", text_name(file));
}

static void show_bad(unsigned number, const char *why, void *arg)
{
    (void)arg;
    if (number)
        fprintf(stderr, "line %03u: %s\n", number, why);
    else
        fprintf(stderr, "a line: %s\n", why);
}

static int no_format(const struct blobs *b, struct err *e)
{
    err_set(e, ERR_NO_REPO, 0, "the kit is right, and there is no blob " FORMAT_BLOB " in %s", blobs_location(b));
    return err_hint(e, "if that is the place of the repository, --restore writes it");
}

/* Another repository's data must not get this one's format. 1: the blob is there. */
static int check_there(struct blobs *b, const struct repo_format *f, struct err *e)
{
    CLEANUP_FREE uint8_t *data = NULL;
    CLEANUP(format_outer_clear) struct format_outer there = {.doc = NULL};
    struct err none = ERR_INIT;
    size_t len;
    int rc = blobs_get(b, FORMAT_BLOB, BLOB_MAX, &data, &len, &none);
    if (rc == -ENOENT)
        return 0;
    if (rc < 0) {
        *e = none;
        return rc;
    }
    rc = format_parse_outer(&there, data, len, e);
    if (rc < 0)
        return err_hint(e, "move the damaged blob away, and use --restore");
    if (there.unique_id_len != f->unique_id_len || memcmp(there.unique_id, f->unique_id, f->unique_id_len) != 0)
        return err_plain(e, ERR_EXISTS, EEXIST, "the kit is of another repository than the one in %s",
                         blobs_location(b));
    return 1;
}

static int count_one(struct snapshot *s, void *arg)
{
    (void)s;
    ++*(unsigned *)arg;
    return 0;
}

/* With the password, index and snapshots: what a person wants to know. */
static int open_all(const struct options *o, const char *password, unsigned *snapshots, struct err *e)
{
    CLEANUP(repo_freep) struct repo *r = NULL;
    struct blobs *b = NULL;
    unsigned unreadable = 0;
    const struct repo_opts ro = {.cache_dir = o->cache_dir, .username = "snapferry", .hostname = "localhost"};
    int rc = cli_open_blobs(o, BLOBS_OPEN, NULL, 0, &b, e);
    if (rc >= 0)
        rc = repo_open(&r, b, password, &ro, e);
    if (rc < 0 && e->cls == ERR_PASSWORD)
        err_hint(e, "its password was changed after the kit was made: use that one, and make a new kit");
    return rc < 0 ? rc : snapshots_each(r, NULL, true, count_one, snapshots, &unreadable, e);
}

static void print_opened(const struct options *o, const struct repo_format *f, bool restored, unsigned snapshots)
{
    char id[2 * FORMAT_ID_MAX + 1];
    hex_encode(id, f->unique_id, f->unique_id_len);
    if (o->json)
        print_json(json_pack("{s:s, s:s, s:s, s:b, s:i}", "type", "result", "verb", "repo open-key", "uniqueID", id,
                             "restored", (int)restored, "snapshots", (int)snapshots));
    else if (!o->quiet)
        printf("%sThe kit opens repository %s: %u snapshot%s.\n",
               restored ? "Wrote the blob " FORMAT_BLOB " again. " : "", id, snapshots, snapshots == 1 ? "" : "s");
}

static int open_with(const struct options *o, const struct kit *k, const char *password, struct err *e)
{
    CLEANUP(blobs_freep) struct blobs *b = NULL;
    struct repo_format *f = NULL;
    unsigned snapshots = 0;
    char whose[300];
    snprintf(whose, sizeof whose, "recovery kit %.280s", text_name(o->args[0]));
    int rc = kit_open(k, password, whose, &f, e);
    if (rc >= 0)
        rc = cli_open_blobs(o, BLOBS_OPEN, NULL, 0, &b, e);
    const int there = rc < 0 ? rc : check_there(b, f, e);
    if (there == 0)
        rc = o->restore_format ? put_format(b, k, e) : no_format(b, e);
    else if (there < 0)
        rc = there;
    if (rc >= 0)
        rc = open_all(o, password, &snapshots, e);
    if (rc >= 0)
        print_opened(o, f, there == 0, snapshots);
    format_free(f);
    return rc;
}

int cli_repo_open_key(const struct options *o, struct err *e)
{
    CLEANUP(secret_wipe) char *text = NULL;
    CLEANUP(secret_wipe) char *given = NULL;
    CLEANUP(kit_clear) struct kit k = {.format = NULL};
    int rc = read_text(o->args[0], &text, e);
    if (rc >= 0)
        rc = kit_read(&k, text, o->json ? NULL : show_bad, NULL, e);
    if (rc >= 0 && !k.password)
        rc = cli_password(o, &given, e);
    return rc < 0 ? rc : open_with(o, &k, k.password ? k.password : given, e);
}
