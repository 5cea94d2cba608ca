/* SPDX-License-Identifier: GPL-2.0-or-later */
/* repository.c - opening the repository of -r, and the verbs of `repo` */
#include "daemon/cli/cli.h"

#include "base/bytes.h"
#include "base/machine.h"
#include "base/nearest.h"
#include "base/units.h"
#include "cfg/cfg.h"
#include "daemon/cli/confirm.h"
#include "daemon/mover/maintain.h"
#include "repo/marker.h"
#include "repo/store.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The repository of the command line. */
struct meant {
    char dir[4096], password_file[4096];
    char splitter[40], compression[40]; /* of a section, otherwise "" */
    char mover_user[64];                /* likewise: user of the daemon's movers */
    bool insecure;                      /* others may be able to read the password file */
    bool s3;                            /* dir is "", and the next have the place */
    char endpoint[256], bucket[128], prefix[192], region[64], credentials[4096], ca_file[4096];
    bool virtual_host;
    unsigned parallel_puts;
    int64_t at_ns; /* 0: as it is now */
};

int cli_cfg(const struct options *o, struct cfg **ret, struct err *e)
{
    char file[4096];
    if (!o->config_dir_given)
        return cfg_load(ret, o->config, e);
    if ((size_t)snprintf(file, sizeof file, "%s/snapferry.ini", o->config_dir) >= sizeof file)
        return err_set(e, ERR_USAGE, ENAMETOOLONG, "configuration directory name too long");
    /* Without a main file conf.d alone is the configuration, as for the daemon. */
    return access(file, F_OK) < 0 && errno == ENOENT ? cfg_load_dir(ret, o->config_dir, e) : cfg_load(ret, file, e);
}

static void take_s3(struct meant *m, const struct cfg_repository *s)
{
    m->s3 = !strcmp(s->type, "s3");
    memcpy(m->endpoint, s->endpoint, sizeof m->endpoint);
    memcpy(m->bucket, s->bucket, sizeof m->bucket);
    memcpy(m->prefix, s->prefix, sizeof m->prefix);
    memcpy(m->region, s->region, sizeof m->region);
    memcpy(m->credentials, s->credentials, sizeof m->credentials);
    memcpy(m->ca_file, s->ca_file, sizeof m->ca_file);
    m->virtual_host = s->virtual_host;
    m->parallel_puts = s->parallel_puts;
    if (!m->at_ns)
        m->at_ns = s->at_ns;
}

/* Place and password file. A name without a slash is the section of the configuration if it exists; ./NAME is
 * always a directory. */
static int resolve_repository(const struct options *o, struct meant *m, struct err *e)
{
    *m = (struct meant){.dir = "", .insecure = o->insecure, .at_ns = o->at_ns};
    if (o->password_file)
        snprintf(m->password_file, sizeof m->password_file, "%s", o->password_file);
    const char *rest = strstr(o->repo, "://");
    if (rest) {
        if (strncmp(o->repo, "file://", 7) == 0 && o->repo[7] == '/') {
            snprintf(m->dir, sizeof m->dir, "%s", o->repo + 7);
            return 0;
        }
        err_set(e, ERR_USAGE, 0, "repository %s: only directories have a URL", text_name(o->repo));
        return err_hint(e, "use a directory, a file:///PATH URL or the name of a [repository] section, which can be of "
                           "type s3");
    }
    if (!strchr(o->repo, '/')) {
        CLEANUP(cfg_freep) struct cfg *c = NULL;
        if (cli_cfg(o, &c, e) < 0)
            return -EINVAL;
        const struct cfg_copy *copy = cfg_copy(c, o->repo);
        const struct cfg_repository *s = copy ? &copy->place : cfg_repository(c, o->repo);
        if (s) {
            memcpy(m->dir, s->path, sizeof m->dir);
            take_s3(m, s);
            if (!o->password_file) {
                memcpy(m->password_file, s->password_file, sizeof m->password_file);
                m->insecure |= s->insecure_password_file;
            }
            memcpy(m->splitter, s->splitter, sizeof m->splitter);
            memcpy(m->compression, s->compression, sizeof m->compression);
            memcpy(m->mover_user, cfg_mover(c)->user, sizeof m->mover_user);
            return 0;
        }
        struct stat st;
        if (o->verb != VERB_REPO_CREATE && stat(o->repo, &st) < 0) {
            err_set(e, ERR_NO_REPO, 0, "no directory and no [repository] or [copy] section \"%s\"", text_name(o->repo));
            char from[400];
            if (o->config_dir_given)
                snprintf(from, sizeof from, "sections are read from the configuration in %.300s", o->config_dir);
            else
                snprintf(from, sizeof from, "sections are read from %.300s and its conf.d",
                         o->config ? o->config : CFG_DEFAULT_FILE);
            return nearest_hint(e, cfg_near_repository(c, o->repo), from);
        }
    }
    if (!*o->repo)
        return err_set(e, ERR_USAGE, 0, "-r requires a repository");
    snprintf(m->dir, sizeof m->dir, "%s", o->repo);
    return 0;
}

int cli_open_blobs(const struct options *o, enum blobs_open_mode mode, const int *shards, size_t n_shards,
                   struct blobs **ret, struct err *e)
{
    struct meant m;
    int rc = resolve_repository(o, &m, e);
    if (rc < 0)
        return rc;
    if (!m.s3 && m.at_ns) {
        err_set(e, ERR_USAGE, 0, "--at: repository %s is in a directory, which has no versions", text_name(o->repo));
        return err_hint(e, "snapshots of its file system are what a directory has instead");
    }
    if (!m.s3) {
        const struct store_place at = {.type = STORE_DIR, .dir = m.dir};
        return store_open(ret, &at, mode, shards, n_shards, e);
    }
    CLEANUP_FREE char *cache = NULL;
    rc = repo_cache_base(o->cache_dir, &cache, e);
    if (rc < 0)
        return rc;
    const struct store_place at = {.type = STORE_S3,
                                   .s3 = {.endpoint = m.endpoint,
                                          .bucket = m.bucket,
                                          .prefix = m.prefix,
                                          .region = m.region,
                                          .credentials = m.credentials,
                                          .ca_file = m.ca_file,
                                          .virtual_host = m.virtual_host,
                                          .uploads = m.parallel_puts,
                                          .at_ns = m.at_ns,
                                          .spool = cache}};
    return store_open(ret, &at, mode, NULL, 0, e);
}

int cli_password(const struct options *o, char **ret, struct err *e)
{
    struct meant m;
    int rc = resolve_repository(o, &m, e);
    if (rc < 0)
        return rc;
    if (!m.password_file[0]) {
        err_set(e, ERR_USAGE, 0, "no password is given for repository %s", text_name(o->repo));
        return err_hint(e,
                        "use --password-file FILE, or set password-file in the [repository] section; passwords are not "
                        "read from the command line or the environment");
    }
    return password_read(ret, m.password_file, m.insecure, e);
}

int cli_defaults(const struct options *o, char splitter[40], char compression[40], struct err *e)
{
    struct meant m;
    int rc = resolve_repository(o, &m, e);
    snprintf(splitter, 40, "%s", o->splitter ? o->splitter : m.splitter);
    snprintf(compression, 40, "%s", o->compression ? o->compression : m.compression);
    return rc;
}

static void wipe_password(char **p)
{
    password_free(*p);
}

/* Whether what was read before will do: who verifies, repairs or copies must see the store. */
static bool may_use_cache(enum verb v)
{
    return v != VERB_VERIFY && v != VERB_REPO_SYNC && v != VERB_REPO_REPAIR && v != VERB_REPO_STATUS;
}

int cli_open_repo(const struct options *o, struct repo **ret, struct err *e)
{
    CLEANUP(wipe_password) char *password = NULL;
    int rc = cli_password(o, &password, e);
    if (rc < 0)
        return rc;
    struct blobs *b;
    rc = cli_open_blobs(o, BLOBS_OPEN, NULL, 0, &b, e);
    if (rc < 0)
        return rc;
    const bool repairs = o->verb == VERB_REPO_REPAIR;
    const struct repo_opts ro = {.cache_dir = o->cache_dir,
                                 .cache_cap = o->cache_size,
                                 .mapped_cap = o->index_memory,
                                 .cached_metadata = may_use_cache(o->verb),
                                 .username = repairs ? REPAIR_USER : NULL,
                                 .damaged = repairs};
    return repo_open(ret, b, password, &ro, e);
}

static int configured_name(const struct options *o, char out[256], struct err *e)
{
    CLEANUP(cfg_freep) struct cfg *c = NULL;
    int rc = cli_cfg(o, &c, e);
    if (rc >= 0)
        rc = cfg_node_name(c, out, e);
    if (rc < 0)
        err_hint(e, "--node-name NAME sets the node's name regardless of the configuration");
    return rc;
}

int cli_node_name(const struct options *o, char out[256], struct err *e)
{
    struct snapshot_source s;
    char text[300];
    int rc = 0;
    if (o->node_name)
        snprintf(out, 256, "%s", o->node_name);
    else
        rc = configured_name(o, out, e);
    if (rc < 0)
        return rc;
    snprintf(text, sizeof text, "snapferry@%s:/", out);
    if (snapshot_source_parse(&s, text, NULL) < 0 || strcmp(s.host, out) != 0) {
        err_set(e, ERR_USAGE, 0, "\"%s\" cannot be the node's name in snapshot sources", text_name(out));
        return err_hint(e, "use --node-name with a name without colons and control characters");
    }
    return 0;
}

static json_t *format_json(const struct repo_format *f)
{
    char id[2 * FORMAT_ID_MAX + 1];
    return json_pack("{s:s, s:i, s:i, s:s, s:s, s:s, s:i, s:I, s:b, s:b, s:s}", "uniqueID",
                     hex_encode(id, f->unique_id, f->unique_id_len), "formatVersion", (int)f->version, "indexVersion",
                     (int)f->index_version, "hash", f->hash, "encryption", f->encryption, "splitter", f->splitter,
                     "eccPercent", (int)f->ecc_percent, "packSize", (json_int_t)f->max_pack_size, "epochs",
                     (int)f->epochs.enabled, "passwordChange", (int)f->password_change, "keyDerivation", f->key_algo);
}

/* The password, and a directory writable for movers. */
static int prepare_create(const struct options *o, struct err *e)
{
    struct meant m;
    int rc = resolve_repository(o, &m, e);
    if (rc >= 0 && o->make_password && m.password_file[0]) {
        rc = password_make(m.password_file, e);
        if (rc > 0 && !o->quiet && !o->json)
            printf("Created a password in %s. Keep a copy elsewhere.\n", text_name(m.password_file));
    }
    return rc < 0 || m.s3 ? rc : repository_dir_make(m.dir, m.mover_user, e);
}

static int owner_of_new(const struct options *o, char *out, size_t cap, struct err *e)
{
    char node[256];
    const int rc = o->owner ? 0 : cli_node_name(o, node, e);
    if (o->owner)
        snprintf(out, cap, "%s", o->owner);
    else if (rc >= 0)
        snprintf(out, cap, MAINTAIN_OWNER "%s", node);
    return rc;
}

int cli_repo_create(const struct options *o, struct err *e)
{
    CLEANUP(wipe_password) char *password = NULL;
    char owner[300];
    int rc = owner_of_new(o, owner, sizeof owner, e);
    if (rc >= 0)
        rc = prepare_create(o, e);
    if (rc >= 0)
        rc = cli_password(o, &password, e);
    if (rc < 0)
        return rc;
    static const int v1_shards[] = {3, 3};
    bool v1 = o->format_version == 1;
    char splitter[40], compression[40];
    rc = cli_defaults(o, splitter, compression, e);
    if (rc < 0)
        return rc;
    CLEANUP(blobs_freep) struct blobs *b = NULL;
    rc = cli_open_blobs(o, BLOBS_CREATE, v1 ? v1_shards : NULL, v1 ? 2 : 0, &b, e);
    if (rc < 0)
        return rc;
    const struct format_create c = {
        .version = o->format_version,
        .hash = o->block_hash,
        .encryption = o->encryption,
        .splitter = splitter[0] ? splitter : NULL,
        .key_algo = o->key_algo,
        .ecc_percent = o->ecc_percent,
        .pack_size = o->pack_size,
    };
    rc = format_create(b, &c, password, e);
    if (rc < 0)
        return rc;
    CLEANUP(repo_freep) struct repo *r = NULL;
    const struct repo_opts ro = {.cache_dir = o->cache_dir};
    rc = repo_open(&r, take_ptr(&b), password, &ro, e);
    if (rc >= 0)
        rc = manifests_initialise(r, owner, o->owner ? "" : machine_text(), e);
    if (rc < 0) {
        err_wrap(e, "the format was written, but not the default policies");
        err_hint(e, "the repository is usable; a stock client adds the policies when needed");
        return rc;
    }
    blobs_reserve(repo_blobs(r));
    const struct repo_format *f = repo_format(r);
    if (o->json) {
        print_json(json_pack("{s:s, s:s, s:s, s:s, s:o}", "type", "result", "verb", "repo create", "repository",
                             blobs_location(repo_blobs(r)), "owner", owner, "format", format_json(f)));
    } else if (!o->quiet) {
        printf("Created a repository in %s: format %u, %s, %s, %s", blobs_location(repo_blobs(r)), f->version, f->hash,
               f->encryption, f->splitter);
        if (f->ecc_percent)
            printf(", %u %% error correction", f->ecc_percent);
        printf(".\nKeep the password safe: without it this repository cannot be read.\n");
    }
    return 0;
}

struct blob_sums {
    uint64_t packs, pack_bytes, indexes, index_bytes, others, other_bytes;
};

static int sum_blob(const struct blob_info *i, void *arg)
{
    struct blob_sums *s = arg;
    if (i->name[0] == 'p' || i->name[0] == 'q') {
        s->packs++;
        s->pack_bytes += i->length;
    } else if (i->name[0] == 'x' || i->name[0] == 'n') {
        s->indexes++;
        s->index_bytes += i->length;
    } else {
        s->others++;
        s->other_bytes += i->length;
    }
    return 0;
}

static int count_snapshot(struct snapshot *s, void *arg)
{
    uint64_t *n = arg;
    n[s->incomplete[0] ? 1 : 0]++;
    return 0;
}

int cli_repo_status(const struct options *o, struct err *e)
{
    CLEANUP(repo_freep) struct repo *r = NULL;
    int rc = cli_open_repo(o, &r, e);
    if (rc < 0)
        return rc;
    struct blob_sums sums = {0};
    rc = blobs_list(repo_blobs(r), "", sum_blob, &sums, e);
    if (rc < 0)
        return rc;
    uint64_t snapshots[2] = {0, 0};
    unsigned bad = 0;
    rc = snapshots_each(r, NULL, false, count_snapshot, snapshots, &bad, e);
    if (rc < 0)
        return rc;
    struct index_set_stats is;
    index_set_stats(repo_index(r), &is);
    const struct repo_format *f = repo_format(r);
    if (o->json) {
        print_json(json_pack("{s:s, s:s, s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i}", "type",
                             "result", "verb", "repo status", "repository", blobs_location(repo_blobs(r)), "format",
                             format_json(f), "snapshots", (json_int_t)snapshots[0], "incompleteSnapshots",
                             (json_int_t)snapshots[1], "packs", (json_int_t)sums.packs, "packBytes",
                             (json_int_t)sums.pack_bytes, "indexBlobs", (json_int_t)sums.indexes, "indexBytes",
                             (json_int_t)sums.index_bytes, "otherBlobs", (json_int_t)sums.others, "otherBytes",
                             (json_int_t)sums.other_bytes, "indexEntries", (json_int_t)is.entries, "writeEpoch",
                             (json_int_t)is.write_epoch, "unreadableSnapshots", (int)bad));
        return 0;
    }
    char id[2 * FORMAT_ID_MAX + 1];
    printf("Repository        %s\n", blobs_location(repo_blobs(r)));
    printf("Unique id         %s\n", hex_encode(id, f->unique_id, f->unique_id_len));
    printf("Format            %u, index version %u, %s\n", f->version, f->index_version,
           f->epochs.enabled ? "epochs" : "no epochs");
    printf("Hash              %s\n", f->hash);
    printf("Encryption        %s\n", f->encryption);
    printf("Key derivation    %s%s\n", f->key_algo, f->password_change ? "" : " (password cannot be changed)");
    printf("Splitter          %s\n", f->splitter);
    if (f->ecc_percent)
        printf("Error correction  %u %%\n", f->ecc_percent);
    else
        printf("Error correction  none\n");
    printf("Pack size         %s\n", text_bytes(f->max_pack_size));
    printf("Snapshots         %lu complete, %lu incomplete\n", (unsigned long)snapshots[0],
           (unsigned long)snapshots[1]);
    printf("Packs             %lu, %s\n", (unsigned long)sums.packs, text_bytes(sums.pack_bytes));
    printf("Index             %lu blob%s, %s, %lu %s in use", (unsigned long)sums.indexes, plural(sums.indexes),
           text_bytes(sums.index_bytes), (unsigned long)is.entries, is.entries == 1 ? "entry" : "entries");
    if (f->epochs.enabled)
        printf(", write epoch %ld", (long)is.write_epoch);
    printf("\nIndex cache       %s in %s\n", text_bytes(is.cache_bytes), repo_cache_dir(r));
    if (f->retention_mode[0])
        printf("Object lock       %s, %s\n", f->retention_mode, text_seconds((double)f->retention_period_ns * 1e-9));
    if (bad)
        printf("WARNING           %u snapshot manifest%s cannot be read\n", bad, plural(bad));
    return 0;
}

/* A new file beside it, with its owner and mode, takes its place. */
static int password_file_replace(const char *file, const char *password, struct err *e)
{
    char tmp[4200];
    struct stat st;
    snprintf(tmp, sizeof tmp, "%s.new", file);
    if (stat(file, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(e, ERR_GENERIC, EINVAL, "%s is not a regular file", file);
    CLEANUP_CLOSE int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    const size_t len = strlen(password);
    const bool ok = fd >= 0 && write(fd, password, len) == (ssize_t)len && write(fd, "\n", 1) == 1 &&
                    fchown(fd, st.st_uid, st.st_gid) == 0 && fchmod(fd, st.st_mode & 0777) == 0 && fsync(fd) == 0 &&
                    rename(tmp, file) == 0;
    const int sys = errno;
    if (!ok && fd >= 0)
        unlink(tmp);
    return ok ? 0 : err_set(e, ERR_GENERIC, sys, "cannot replace the password file %s", file);
}

/* The file that has the old password: the next backup would fail. Replaced with --yes, or if a person agrees. */
static void password_file_offer(const struct options *o, const char *password)
{
    struct meant m;
    struct err e = ERR_INIT;
    if (resolve_repository(o, &m, &e) < 0 || !m.password_file[0] || !strncmp(m.password_file, "cred:", 5) ||
        !strcmp(m.password_file, o->new_password_file))
        return;
    const bool asked = confirm_needed(o), wanted = asked || o->yes;
    if (wanted && confirm(o, &e, "%s still has the old password. It can be replaced with the new one now.",
                          m.password_file) >= 0) {
        if (password_file_replace(m.password_file, password, &e) == 0) {
            if (!o->quiet && !o->json)
                printf("%s has the new password now. Other nodes need it in theirs.\n", text_name(m.password_file));
            return;
        }
        log_warning("%s", e.msg);
    }
    if (!o->json)
        fprintf(stderr,
                "%s still has the old password: on each node that uses it, before the next backup,\n"
                "    install -m 600 %s %s\n",
                text_name(m.password_file), text_name(o->new_password_file), text_name(m.password_file));
}

int cli_repo_change_password(const struct options *o, struct err *e)
{
    if (!o->new_password_file)
        return err_set(e, ERR_USAGE, 0, "repo change-password requires --new-password-file FILE");
    CLEANUP(wipe_password) char *old = NULL;
    CLEANUP(wipe_password) char *new = NULL;
    int rc = cli_password(o, &old, e);
    if (rc >= 0)
        rc = password_read(&new, o->new_password_file, o->insecure, e);
    if (rc < 0)
        return rc;
    /* Only the blobs are opened: after an interrupted change the format cannot be opened; this verb repairs it. */
    CLEANUP(blobs_freep) struct blobs *b = NULL;
    rc = cli_open_blobs(o, BLOBS_OPEN, NULL, 0, &b, e);
    CLEANUP_FREE char *dir = NULL;
    if (rc >= 0)
        rc = repo_cache_base(o->cache_dir, &dir, e);
    if (rc >= 0)
        rc = format_change_password(b, old, new, dir, e);
    if (rc < 0)
        return rc;
    if (o->json)
        print_json(json_pack("{s:s, s:s, s:s}", "type", "result", "verb", "repo change-password", "repository",
                             blobs_location(b)));
    else if (!o->quiet)
        printf("Changed the password of %s. Connected clients continue until they read the format again (within 15 "
               "minutes) and then need the new password.\n",
               blobs_location(b));
    password_file_offer(o, new);
    return 0;
}
