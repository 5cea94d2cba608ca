/* SPDX-License-Identifier: GPL-2.0-or-later */
/* format.c - opening, creating and re-sealing kopia.repository and kopia.blobcfg */
#include "repo/format.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/time.h"
#include "chunker/hash.h"
#include "chunker/splitter.h"
#include "repo/format-parse.h"
#include "repo/json-member.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define REPOSITORY "kopia.repository"
#define BLOBCFG "kopia.blobcfg"
#define FORMAT_BLOB_MAX (1u << 20)
#define PACK_SIZE_DEFAULT (20u << 20)

/* A buffer that held a secret is wiped before it is freed. */
struct secret {
    uint8_t *data;
    size_t len;
};

static void secret_clear(struct secret *s)
{
    if (s->data)
        OPENSSL_cleanse(s->data, s->len);
    free(s->data);
    *s = (struct secret){NULL, 0};
}

void format_free(struct repo_format *f)
{
    if (!f)
        return;
    free(f->blob);
    OPENSSL_cleanse(f, sizeof *f);
    free(f);
}

static void format_freep(struct repo_format **f)
{
    format_free(*f);
}

/* ---- upgrade lock ---- */

static int64_t add_sat(int64_t a, int64_t b)
{
    int64_t r;
    if (__builtin_add_overflow(a, b, &r))
        return a < 0 ? INT64_MIN : INT64_MAX;
    return r;
}

/* Time until all clients have noticed the lock and finished. */
static int64_t drain_ns(const struct upgrade_lock *l)
{
    return add_sat(l->clock_drift_ns, add_sat(l->drain_timeout_ns, l->drain_timeout_ns));
}

bool upgrade_lock_locked(const struct upgrade_lock *l, int64_t now)
{
    if (!l->present)
        return false;
    int64_t d = drain_ns(l);
    if (l->advance_notice_ns < d)
        return true;
    return now >= add_sat(add_sat(l->creation_ns, l->advance_notice_ns), d == INT64_MIN ? INT64_MAX : -d);
}

static int check_lock(const char *whose, const struct upgrade_lock *l, struct err *e)
{
    if (!l->present)
        return 0;
    char when[64];
    struct tm tm;
    time_t t = (time_t)(l->creation_ns / NS_PER_S);
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S UTC", gmtime_r(&t, &tm));
    if (!upgrade_lock_locked(l, now_ns())) {
        log_warning("%s: upgrade announced by \"%s\" on %s; it will be locked soon", whose, l->owner, when);
        return 0;
    }
    err_set(e, ERR_BUSY, 0, "%s is locked for an upgrade by \"%s\" since %s", whose, l->owner, when);
    if (e)
        e->sys = EBUSY;
    err_hint(e, "wait until the upgrade is committed or rolled back by its owner");
    return -EBUSY;
}

/* ---- opening ---- */

/* The blobs as stored. */
struct raw {
    char whose[320]; /* for messages: "repository /srv/backup" */
    uint8_t *repository, *blobcfg;
    size_t repository_len, blobcfg_len;
    bool has_blobcfg;
    struct format_outer outer;
};

static void raw_clear(struct raw *r)
{
    free(r->repository);
    free(r->blobcfg);
    format_outer_clear(&r->outer);
}

static int any_blob(const struct blob_info *info, void *arg)
{
    snprintf(arg, BLOB_NAME_MAX + 1, "%s", info->name);
    return 1;
}

static int no_repository(struct blobs *b, struct err *e)
{
    char other[BLOB_NAME_MAX + 1] = "";
    if (blobs_list(b, "p", any_blob, other, NULL) == 1) {
        err_set(e, ERR_NO_REPO, 0, "%s contains packs of a repository, but no blob " REPOSITORY, blobs_location(b));
        if (e)
            e->sys = ENOENT;
        err_hint(e, "restore " REPOSITORY " from a copy, or from a recovery kit (repo open-key --restore); where "
                    "password change is disabled, each pack starts with a "
                    "copy, found by stock `kopia repository repair`");
        return -ENOENT;
    }
    err_plain(e, ERR_NO_REPO, ENOENT, "no repository at %s", blobs_location(b));
    if (strstr(blobs_location(b), "://"))
        err_hint(e, "check bucket and prefix, or create one with `repo create`");
    else
        err_hint(e, "check the path, or create one with `snapferry -r %s repo create`", blobs_location(b));
    return -ENOENT;
}

static int raw_parse(struct raw *r, struct err *e)
{
    const int rc = format_parse_outer(&r->outer, r->repository, r->repository_len, e);
    if (rc < 0)
        err_wrap(e, "%s", r->whose);
    return rc;
}

/* What is read beside kopia.repository, by a thread where each request waits for a network. */
struct beside {
    int (*read)(struct beside *x);
    struct blobs *b;
    uint8_t *data;
    size_t len;
    int rc;
    struct err err;
    bool by_thread;
    pthread_t thread;
};

static int read_blobcfg(struct beside *x)
{
    return blobs_get(x->b, BLOBCFG, FORMAT_BLOB_MAX, &x->data, &x->len, &x->err);
}

/* What the store has to know of itself. */
static int read_store(struct beside *x)
{
    return blobs_prepare(x->b, &x->err);
}

static void *beside_main(void *arg)
{
    struct beside *x = arg;
    x->rc = x->read(x);
    return NULL;
}

static void beside_begin(struct beside *x, struct blobs *b, int (*read)(struct beside *))
{
    *x = (struct beside){.b = b, .read = read};
    x->by_thread = !blobs_are_files(b) && pthread_create(&x->thread, NULL, beside_main, x) == 0;
}

static void beside_wait(struct beside *x)
{
    if (x->by_thread)
        pthread_join(x->thread, NULL);
    x->by_thread = false;
}

static void beside_clear(struct beside *x)
{
    beside_wait(x);
    free(x->data);
}

/* Waits for it, or reads it now. */
static int beside_end(struct beside *x, struct err *e)
{
    if (x->by_thread)
        beside_wait(x);
    else
        beside_main(x);
    if (x->rc < 0 && x->rc != -ENOENT && e)
        *e = x->err;
    return x->rc;
}

static int raw_read(struct raw *r, struct blobs *b, struct err *e)
{
    CLEANUP(beside_clear) struct beside cfg, store;
    snprintf(r->whose, sizeof r->whose, "repository %.300s", blobs_location(b));
    beside_begin(&cfg, b, read_blobcfg);
    beside_begin(&store, b, read_store);
    int rc = blobs_get(b, REPOSITORY, FORMAT_BLOB_MAX, &r->repository, &r->repository_len, e);
    if (rc == -ENOENT)
        return no_repository(b, e);
    if (rc < 0)
        return rc;
    rc = beside_end(&cfg, e);
    r->has_blobcfg = rc == 0;
    if (rc < 0 && rc != -ENOENT)
        return rc;
    r->blobcfg = take_ptr(&cfg.data);
    r->blobcfg_len = cfg.len;
    rc = beside_end(&store, e);
    return rc < 0 ? rc : raw_parse(r, e);
}

/* Opens sealed bytes with the format key. */
static int open_sealed(struct secret *ret, const struct format_outer *o, const uint8_t key[32], const uint8_t *data,
                       size_t len, struct err *e)
{
    ret->data = malloc(len + 1);
    ret->len = len;
    if (!ret->data)
        return err_nomem(e);
    int64_t n = format_layer_open(key, o->unique_id, o->unique_id_len, data, len, ret->data, e);
    if (n < 0)
        return (int)n;
    ret->len = (size_t)n;
    return 0;
}

static int blobcfg_damaged(const char *whose, struct err *e)
{
    err_set(e, ERR_DAMAGE, EBADMSG,
            "blob " BLOBCFG " of %s does not match " REPOSITORY
            ": a password change was interrupted, or the blob is damaged",
            whose);
    err_hint(e, "run `snapferry -r REPOSITORY repo change-password` again with the same old and new password, or "
                "restore " BLOBCFG " from the copy ...-" BLOBCFG " kept in its backup directory");
    return -EBADMSG;
}

/* The inner document could not be opened: wrong password, or an interrupted password change? */
static int wrong_password(const struct raw *r, const uint8_t key[32], struct err *e)
{
    CLEANUP(secret_clear) struct secret cfg = {NULL, 0};
    if (r->has_blobcfg && open_sealed(&cfg, &r->outer, key, r->blobcfg, r->blobcfg_len, NULL) == 0) {
        err_set(e, ERR_DAMAGE, EBADMSG,
                "the password opens " BLOBCFG " but not " REPOSITORY
                " (%s): a password change was interrupted, or the blob is damaged",
                r->whose);
        err_hint(e, "after an interrupted password change run `snapferry -r REPOSITORY repo change-password` again "
                    "with the same old and new password, otherwise restore " REPOSITORY " from a copy");
        return -EBADMSG;
    }
    err_set(e, ERR_PASSWORD, EBADMSG, "wrong password, or " REPOSITORY " is damaged (%s)", r->whose);
    err_hint(e, "check the password file; if the password is correct, restore " REPOSITORY " from a copy");
    return -EBADMSG;
}

/* From stored blobs and key to a verified format. */
static int open_format(struct repo_format **ret, struct raw *r, const uint8_t key[32], struct err *e)
{
    CLEANUP(format_freep) struct repo_format *f = calloc(1, sizeof *f);
    if (!f)
        return err_nomem(e);
    f->loaded_ns = now_ns();
    memcpy(f->unique_id, r->outer.unique_id, sizeof f->unique_id);
    f->unique_id_len = r->outer.unique_id_len;
    snprintf(f->key_algo, sizeof f->key_algo, "%s", r->outer.key_algo);
    memcpy(f->format_key, key, 32);

    CLEANUP(secret_clear) struct secret inner = {NULL, 0};
    int rc = open_sealed(&inner, &r->outer, key, r->outer.sealed, r->outer.sealed_len, e);
    if (rc == -EBADMSG)
        return wrong_password(r, key, e);
    if (rc == 0)
        rc = format_parse_inner(f, inner.data, inner.len, e);
    if (rc < 0) {
        err_wrap(e, "%s", r->whose);
        return rc;
    }
    if (r->has_blobcfg) {
        CLEANUP(secret_clear) struct secret cfg = {NULL, 0};
        rc = open_sealed(&cfg, &r->outer, key, r->blobcfg, r->blobcfg_len, e);
        if (rc == -EBADMSG)
            return blobcfg_damaged(r->whose, e);
        if (rc == 0)
            rc = format_parse_blobcfg(f, cfg.data, cfg.len, e);
        if (rc < 0) {
            err_wrap(e, "%s", r->whose);
            return rc;
        }
    }
    rc = check_lock(r->whose, &f->lock, e);
    if (rc < 0)
        return rc;
    f->blob = take_ptr(&r->repository);
    f->blob_len = r->repository_len;
    *ret = take_ptr(&f);
    return 0;
}

static int raw_open(struct repo_format **ret, struct raw *r, const char *password, struct err *e)
{
    uint8_t key[32];
    int rc = format_derive_key(r->outer.key_algo, password, r->outer.unique_id, r->outer.unique_id_len, key, e);
    if (rc < 0) {
        err_wrap(e, "%s", r->whose);
        return rc;
    }
    rc = open_format(ret, r, key, e);
    OPENSSL_cleanse(key, sizeof key);
    return rc;
}

static int load_once(struct repo_format **ret, struct blobs *b, const char *password, void (*meanwhile)(void *),
                     void *arg, struct err *e)
{
    CLEANUP(raw_clear) struct raw r = {.repository = NULL};
    const int rc = raw_read(&r, b, e);
    if (rc == 0)
        meanwhile(arg);
    return rc < 0 ? rc : raw_open(ret, &r, password, e);
}

int format_load_and(struct repo_format **ret, struct blobs *b, const char *password, void (*meanwhile)(void *),
                    void *arg, struct err *e)
{
    struct err own = ERR_INIT;
    int rc = load_once(ret, b, password, meanwhile, arg, &own);
    /* Both blobs were read at a time: another client may have replaced them meanwhile, one after the other. */
    if (rc == -EBADMSG && own.cls == ERR_DAMAGE && !blobs_are_files(b)) {
        own = (struct err)ERR_INIT;
        rc = load_once(ret, b, password, meanwhile, arg, &own);
    }
    if (rc < 0 && e)
        *e = own;
    return rc;
}

static void nothing(void *arg)
{
    (void)arg;
}

int format_load(struct repo_format **ret, struct blobs *b, const char *password, struct err *e)
{
    return format_load_and(ret, b, password, nothing, NULL, e);
}

static int copy_bytes(uint8_t **ret, size_t *ret_len, const void *data, size_t len, struct err *e)
{
    if (!(*ret = malloc(len + 1)))
        return err_nomem(e);
    memcpy(*ret, data, len);
    (*ret)[len] = '\0';
    *ret_len = len;
    return 0;
}

int format_open(struct repo_format **ret, const char *whose, const struct format_blobs *stored, const char *password,
                struct err *e)
{
    CLEANUP(raw_clear) struct raw r = {.has_blobcfg = stored->blobcfg != NULL};
    snprintf(r.whose, sizeof r.whose, "%s", whose);
    int rc = copy_bytes(&r.repository, &r.repository_len, stored->repository, stored->repository_len, e);
    if (rc == 0 && stored->blobcfg)
        rc = copy_bytes(&r.blobcfg, &r.blobcfg_len, stored->blobcfg, stored->blobcfg_len, e);
    if (rc == 0)
        rc = raw_parse(&r, e);
    return rc < 0 ? rc : raw_open(ret, &r, password, e);
}

void format_key_of(const struct repo_format *f, struct format_key *ret)
{
    *ret = (struct format_key){.unique_id_len = f->unique_id_len};
    memcpy(ret->algo, f->key_algo, sizeof ret->algo);
    memcpy(ret->unique_id, f->unique_id, sizeof ret->unique_id);
    memcpy(ret->key, f->format_key, sizeof ret->key);
}

int format_load_with_key(struct repo_format **ret, struct blobs *b, const struct format_key *k, struct err *e)
{
    CLEANUP(raw_clear) struct raw r = {.repository = NULL};
    int rc = raw_read(&r, b, e);
    if (rc < 0)
        return rc;
    if (strncmp(r.outer.key_algo, k->algo, sizeof k->algo) != 0 || r.outer.unique_id_len != k->unique_id_len ||
        memcmp(r.outer.unique_id, k->unique_id, k->unique_id_len) != 0)
        return err_plain(e, ERR_PASSWORD, ESTALE, "the key does not belong to the repository at %s", blobs_location(b));
    return open_format(ret, &r, k->key, e);
}

int format_reload(struct repo_format **ret, const struct repo_format *old, struct blobs *b, struct err *e)
{
    CLEANUP(raw_clear) struct raw r = {.repository = NULL};
    int rc = raw_read(&r, b, e);
    if (rc < 0)
        return rc;
    if (r.outer.unique_id_len != old->unique_id_len ||
        memcmp(r.outer.unique_id, old->unique_id, old->unique_id_len) != 0)
        return err_set(e, ERR_DAMAGE, ESTALE, "the repository at %s was replaced by another one", blobs_location(b));
    rc = open_format(ret, &r, old->format_key, e);
    if (rc < 0 && e && e->cls == ERR_PASSWORD) {
        rc = err_set(e, ERR_PASSWORD, EBADMSG, "the password of repository %s was changed while it was in use",
                     blobs_location(b));
        err_hint(e, "restart with the new password");
    }
    return rc;
}

/* ---- creating ---- */

static int unknown_algorithm(struct err *e, const char *what, const char *name, const char *(*list)(unsigned))
{
    char known[700] = "";
    for (unsigned i = 0; list(i); i++) {
        size_t at = strlen(known);
        snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "", list(i));
    }
    return err_set(e, ERR_USAGE, EINVAL, "unknown %s \"%.100s\" (supported: %s)", what, name, known);
}

static int algorithm_choose(char *out, size_t cap, const char *what, const char *name, const char *preset,
                            const char *(*list)(unsigned), struct err *e)
{
    if (!name)
        name = preset;
    for (unsigned i = 0; list(i); i++) {
        if (strcmp(list(i), name) == 0) {
            snprintf(out, cap, "%s", name);
            return 0;
        }
    }
    return unknown_algorithm(e, what, name, list);
}

static int new_key(uint8_t out[32], size_t *len, const uint8_t *given, struct err *e)
{
    *len = 32;
    if (given)
        memcpy(out, given, 32);
    else if (RAND_priv_bytes(out, 32) != 1)
        return err_set(e, ERR_GENERIC, 0, "cannot get random bytes for new keys");
    return 0;
}

/* Validates the options and fills in a format with the defaults of each version. */
static int format_plan(struct repo_format *f, const struct format_create *c, struct err *e)
{
    f->version = c->version ? c->version : 3;
    if (f->version > 3)
        return err_set(e, ERR_USAGE, EINVAL, "unsupported format version %u (supported: 1, 2, 3)", f->version);
    if (c->ecc_percent > 100)
        return err_set(e, ERR_USAGE, EINVAL, "invalid error correction of %u %% (0 to 100)", c->ecc_percent);
    if (c->ecc_percent && f->version < 2)
        return err_set(e, ERR_USAGE, EINVAL, "format version 1 does not support error correction");
    f->ecc_percent = c->ecc_percent;
    f->max_pack_size = c->pack_size ? c->pack_size : PACK_SIZE_DEFAULT;
    if (f->max_pack_size < 10u << 20 || f->max_pack_size > 120u << 20)
        return err_set(e, ERR_USAGE, EINVAL, "invalid pack size of %" PRIu64 " bytes (10 to 120 MiB)",
                       f->max_pack_size);
    int rc = algorithm_choose(f->hash, sizeof f->hash, "hash", c->hash, hash_name(0), hash_name, e);
    if (rc == 0)
        rc = algorithm_choose(f->encryption, sizeof f->encryption, "encryption", c->encryption, encryption_name(0),
                              encryption_name, e);
    if (rc == 0)
        rc = algorithm_choose(f->splitter, sizeof f->splitter, "splitter", c->splitter, "DYNAMIC-4M-BUZHASH",
                              splitter_name, e);
    if (rc == 0)
        rc = algorithm_choose(f->key_algo, sizeof f->key_algo, "key derivation", c->key_algo, key_algo_name(0),
                              key_algo_name, e);
    if (rc == 0)
        rc = new_key(f->unique_id, &f->unique_id_len, c->unique_id, e);
    if (rc == 0)
        rc = new_key(f->secret, &f->secret_len, c->secret, e);
    if (rc == 0)
        rc = new_key(f->master_key, &f->master_key_len, c->master_key, e);
    if (rc < 0)
        return rc;
    f->index_version = f->version == 1 ? 1 : 2;
    f->password_change = f->version != 1;
    if (f->version != 1)
        f->epochs = (struct epoch_params){.enabled = true,
                                          .refresh_ns = 1200000000000,
                                          .full_checkpoint = 7,
                                          .cleanup_margin_ns = 14400000000000,
                                          .min_duration_ns = 86400000000000,
                                          .advance_count = 20,
                                          .advance_bytes = 10485760,
                                          .delete_parallelism = 4};
    return 0;
}

/* The inner document as stock clients write it, members in their order. Every name in it comes from our lists. */
static int inner_document(const struct repo_format *f, char *out, size_t cap)
{
    char secret[96], master[96], ecc[96] = "";
    EVP_EncodeBlock((uint8_t *)secret, f->secret, (int)f->secret_len);
    EVP_EncodeBlock((uint8_t *)master, f->master_key, (int)f->master_key_len);
    if (f->ecc_percent)
        snprintf(ecc, sizeof ecc, "\"ecc\":\"%s\",\"eccOverheadPercent\":%u,", ecc_name(0), f->ecc_percent);
    const struct epoch_params *p = &f->epochs;
    int n = snprintf(out, cap,
                     "{\"format\":{\"hash\":\"%s\",\"encryption\":\"%s\",%s\"secret\":\"%s\",\"masterKey\":\"%s\","
                     "\"version\":%u,\"maxPackSize\":%" PRIu64 ",\"indexVersion\":%u,\"epochParameters\":{"
                     "\"Enabled\":%s,\"EpochRefreshFrequency\":%" PRId64 ",\"FullCheckpointFrequency\":%d,"
                     "\"CleanupSafetyMargin\":%" PRId64 ",\"MinEpochDuration\":%" PRId64
                     ",\"EpochAdvanceOnCountThreshold\":%d,\"EpochAdvanceOnTotalSizeBytesThreshold\":%" PRId64
                     ",\"DeleteParallelism\":%d},\"enablePasswordChange\":%s,\"splitter\":\"%s\"}}",
                     f->hash, f->encryption, ecc, secret, master, f->version, f->max_pack_size, f->index_version,
                     p->enabled ? "true" : "false", p->refresh_ns, p->full_checkpoint, p->cleanup_margin_ns,
                     p->min_duration_ns, p->advance_count, p->advance_bytes, p->delete_parallelism,
                     f->password_change ? "true" : "false", f->splitter);
    OPENSSL_cleanse(secret, sizeof secret);
    OPENSSL_cleanse(master, sizeof master);
    return n;
}

/* base64 of the sealed bytes; malloc()ed. */
static int seal_text(char **ret, const struct format_outer *o, const uint8_t key[32], const void *data, size_t len,
                     struct err *e)
{
    CLEANUP_FREE uint8_t *sealed = malloc(len + FORMAT_LAYER_OVERHEAD);
    CLEANUP_FREE char *text = malloc((len + FORMAT_LAYER_OVERHEAD + 2) / 3 * 4 + 1);
    if (!sealed || !text)
        return err_nomem(e);
    int rc = format_layer_seal(key, o->unique_id, o->unique_id_len, data, len, sealed, e);
    if (rc < 0)
        return rc;
    EVP_EncodeBlock((uint8_t *)text, sealed, (int)(len + FORMAT_LAYER_OVERHEAD));
    *ret = take_ptr(&text);
    return 0;
}

static int blobcfg_put(struct blobs *b, const struct format_outer *o, const uint8_t key[32], const void *doc,
                       size_t len, struct err *e)
{
    CLEANUP_FREE uint8_t *sealed = malloc(len + FORMAT_LAYER_OVERHEAD);
    if (!sealed)
        return err_nomem(e);
    int rc = format_layer_seal(key, o->unique_id, o->unique_id_len, doc, len, sealed, e);
    return rc < 0 ? rc : blobs_put(b, BLOBCFG, sealed, len + FORMAT_LAYER_OVERHEAD, e);
}

static int repository_put(struct blobs *b, const struct repo_format *f, const struct format_outer *o, struct err *e)
{
    char inner[2048], id[96], doc[4096];
    int n = inner_document(f, inner, sizeof inner);
    CLEANUP_FREE char *sealed = NULL;
    int rc = n < 0 || (size_t)n >= sizeof inner ? err_set(e, ERR_GENERIC, 0, "the format document is too long")
                                                : seal_text(&sealed, o, f->format_key, inner, (size_t)n, e);
    OPENSSL_cleanse(inner, sizeof inner);
    if (rc < 0)
        return rc;
    EVP_EncodeBlock((uint8_t *)id, o->unique_id, (int)o->unique_id_len);
    n = snprintf(doc, sizeof doc,
                 "{\n  \"tool\": \"https://github.com/kopia/kopia\",\n  \"buildVersion\": \"snapferry-%s\",\n"
                 "  \"buildInfo\": \"snapferry\",\n  \"uniqueID\": \"%s\",\n  \"keyAlgo\": \"%s\",\n"
                 "  \"encryption\": \"AES256_GCM\",\n  \"encryptedBlockFormat\": \"%s\"\n}\n",
                 SNAPFERRY_VERSION, id, f->key_algo, sealed);
    if (n < 0 || (size_t)n >= sizeof doc)
        return err_set(e, ERR_GENERIC, 0, "the format document is too long");
    return blobs_put(b, REPOSITORY, doc, (size_t)n, e);
}

static int must_be_empty(struct blobs *b, struct err *e)
{
    char found[BLOB_NAME_MAX + 1] = "";
    int rc = blobs_list(b, "", any_blob, found, e);
    if (rc <= 0)
        return rc;
    err_plain(e, ERR_EXISTS, EEXIST, "repository %s already exists (blob %s)", blobs_location(b), found);
    err_hint(e, "use an empty place");
    return -EEXIST;
}

int format_create(struct blobs *b, const struct format_create *c, const char *password, struct err *e)
{
    if (!password || !password[0])
        return err_set(e, ERR_USAGE, EINVAL, "empty password");
    CLEANUP(format_freep) struct repo_format *f = calloc(1, sizeof *f);
    if (!f)
        return err_nomem(e);
    int rc = format_plan(f, c, e);
    if (rc == 0)
        rc = must_be_empty(b, e);
    if (rc == 0)
        rc = blobs_prepare(b, e);
    if (rc == 0)
        rc = format_derive_key(f->key_algo, password, f->unique_id, f->unique_id_len, f->format_key, e);
    if (rc < 0)
        return rc;
    struct format_outer o = {.unique_id_len = f->unique_id_len};
    memcpy(o.unique_id, f->unique_id, sizeof o.unique_id);
    rc = blobcfg_put(b, &o, f->format_key, "{}", 2, e);
    if (rc == 0)
        rc = repository_put(b, f, &o, e);
    if (rc < 0) {
        blobs_delete(b, REPOSITORY, NULL);
        blobs_delete(b, BLOBCFG, NULL);
        err_wrap(e, "cannot create a repository");
    }
    return rc;
}

/* ---- changing the password ---- */

/* A durable copy of a blob; path[] gets its path. */
static int copy_write(char *path, size_t cap, const char *dir, const char *stamp, const char *blob, const void *data,
                      size_t len, struct err *e)
{
    int n = snprintf(path, cap, "%s/%s-%s", dir, stamp, blob);
    if (n < 0 || (size_t)n >= cap) {
        path[0] = '\0';
        return err_set(e, ERR_USAGE, ENAMETOOLONG, "cannot write a copy of %s to %s", blob, dir);
    }
    CLEANUP_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        int sys = errno;
        err_set(e, ERR_GENERIC, sys, "cannot write a copy of %s to %s", blob, path);
        path[0] = '\0';
        return -sys;
    }
    for (const uint8_t *p = data; len > 0;) {
        ssize_t done = write(fd, p, len);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return err_set(e, ERR_GENERIC, done < 0 ? errno : EIO, "cannot write a copy of %s to %s", blob, path);
        p += done;
        len -= (size_t)done;
    }
    CLEANUP_CLOSE int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fsync(fd) < 0 || (dirfd >= 0 && fsync(dirfd) < 0 && errno != EINVAL && errno != ENOTSUP))
        return err_set(e, ERR_GENERIC, errno, "cannot write a copy of %s to %s", blob, path);
    return 0;
}

struct copies {
    char repository[4096], blobcfg[4096]; /* "": none */
};

static void copies_remove(const struct copies *c)
{
    if (c->repository[0])
        unlink(c->repository);
    if (c->blobcfg[0])
        unlink(c->blobcfg);
}

static int copies_write(struct copies *c, const struct raw *r, const char *dir, struct err *e)
{
    char stamp[64], when[TIME_STAMP];
    const int64_t now = now_ns();
    hex_encode(stamp, r->outer.unique_id, r->outer.unique_id_len < 8 ? r->outer.unique_id_len : 8);
    size_t at = strlen(stamp);
    snprintf(stamp + at, sizeof stamp - at, "-%s.%09ldZ", time_stamp(now, when), (long)(now % NS_PER_S));
    int rc =
        copy_write(c->repository, sizeof c->repository, dir, stamp, REPOSITORY, r->repository, r->repository_len, e);
    if (rc == 0 && r->has_blobcfg)
        rc = copy_write(c->blobcfg, sizeof c->blobcfg, dir, stamp, BLOBCFG, r->blobcfg, r->blobcfg_len, e);
    if (rc < 0)
        copies_remove(c);
    return rc;
}

/* kopia.repository with another sealed part and otherwise unchanged. */
static int reseal_outer(char **ret, const struct format_outer *o, const char *sealed, struct err *e)
{
    const char *key = "encryptedBlockFormat";
    json_member_key(o->doc, key, &key);
    json_t *doc = json_copy(o->doc);
    CLEANUP_FREE char *text = NULL;
    if (doc && json_object_set_new(doc, key, json_string(sealed)) == 0)
        text = json_dumps(doc, JSON_INDENT(2));
    json_decref(doc);
    size_t len = text ? strlen(text) : 0;
    *ret = text ? malloc(len + 2) : NULL;
    if (!*ret)
        return err_nomem(e);
    memcpy(*ret, text, len);
    memcpy(*ret + len, "\n", 2);
    return 0;
}

struct change {
    struct raw raw;
    uint8_t old_key[32], new_key[32];
    struct secret inner, cfg; /* opened */
    struct copies copies;
};

static void change_clear(struct change *c)
{
    raw_clear(&c->raw);
    secret_clear(&c->inner);
    secret_clear(&c->cfg);
    OPENSSL_cleanse(c->old_key, sizeof c->old_key);
    OPENSSL_cleanse(c->new_key, sizeof c->new_key);
}

/* Opens and validates the present blobs. blobcfg may already have the new password, after an interrupted change. */
static int change_prepare(struct change *c, struct blobs *b, const char *old_password, const char *new_password,
                          struct err *e)
{
    struct raw *r = &c->raw;
    const struct format_outer *o = &r->outer;
    int rc = raw_read(r, b, e);
    if (rc == 0)
        rc = format_derive_key(o->key_algo, old_password, o->unique_id, o->unique_id_len, c->old_key, e);
    if (rc == 0)
        rc = format_derive_key(o->key_algo, new_password, o->unique_id, o->unique_id_len, c->new_key, e);
    if (rc == 0) {
        rc = open_sealed(&c->inner, o, c->old_key, o->sealed, o->sealed_len, e);
        if (rc == -EBADMSG) {
            err_set(e, ERR_PASSWORD, EBADMSG, "wrong old password, or " REPOSITORY " is damaged (repository %s)",
                    blobs_location(b));
            err_hint(e, "check the file of the old password");
            return rc;
        }
    }
    if (rc == 0 && r->has_blobcfg) {
        rc = open_sealed(&c->cfg, o, c->old_key, r->blobcfg, r->blobcfg_len, e);
        if (rc == -EBADMSG) {
            secret_clear(&c->cfg);
            rc = open_sealed(&c->cfg, o, c->new_key, r->blobcfg, r->blobcfg_len, e);
        }
        if (rc == -EBADMSG)
            return blobcfg_damaged(r->whose, e);
    }
    if (rc < 0)
        return rc;
    CLEANUP(format_freep) struct repo_format *f = calloc(1, sizeof *f);
    if (!f)
        return err_nomem(e);
    rc = format_parse_inner(f, c->inner.data, c->inner.len, e);
    if (rc == 0 && r->has_blobcfg)
        rc = format_parse_blobcfg(f, c->cfg.data, c->cfg.len, e);
    if (rc == 0)
        rc = check_lock(r->whose, &f->lock, e);
    if (rc == 0 && !f->password_change) {
        rc = err_set(e, ERR_FORMAT, ENOTSUP, "repository %s does not support a change of its password",
                     blobs_location(b));
        err_hint(e, "it has format version 1, in which other keys depend on the password");
    }
    return rc;
}

/* Reads both blobs back and opens them with the new key. */
static int change_verify(const struct change *c, struct blobs *b, struct err *e)
{
    CLEANUP(raw_clear) struct raw r = {.repository = NULL};
    CLEANUP(secret_clear) struct secret inner = {NULL, 0}, cfg = {NULL, 0};
    int rc = raw_read(&r, b, e);
    if (rc == 0)
        rc = open_sealed(&inner, &r.outer, c->new_key, r.outer.sealed, r.outer.sealed_len, e);
    if (rc == 0 && r.has_blobcfg)
        rc = open_sealed(&cfg, &r.outer, c->new_key, r.blobcfg, r.blobcfg_len, e);
    if (rc < 0)
        return rc;
    if (inner.len != c->inner.len || memcmp(inner.data, c->inner.data, inner.len) != 0 ||
        r.has_blobcfg != c->raw.has_blobcfg || cfg.len != c->cfg.len ||
        (cfg.len && memcmp(cfg.data, c->cfg.data, cfg.len) != 0))
        return err_set(e, ERR_BUSY, EBUSY, "another client changed the format of repository %s at the same time",
                       blobs_location(b));
    return 0;
}

static int change_write(const struct change *c, struct blobs *b, struct err *e)
{
    const struct format_outer *o = &c->raw.outer;
    CLEANUP_FREE char *sealed = NULL, *doc = NULL;
    int rc = seal_text(&sealed, o, c->new_key, c->inner.data, c->inner.len, e);
    if (rc == 0)
        rc = reseal_outer(&doc, o, sealed, e);
    if (rc == 0 && c->raw.has_blobcfg)
        rc = blobcfg_put(b, o, c->new_key, c->cfg.data, c->cfg.len, e);
    if (rc == 0)
        rc = blobs_put(b, REPOSITORY, doc, strlen(doc), e);
    return rc == 0 ? change_verify(c, b, e) : rc;
}

int format_change_password(struct blobs *b, const char *old_password, const char *new_password, const char *backup_dir,
                           struct err *e)
{
    if (!new_password || !new_password[0])
        return err_set(e, ERR_USAGE, EINVAL, "empty password");
    CLEANUP(change_clear) struct change c = {.inner = {NULL, 0}};
    int rc = change_prepare(&c, b, old_password, new_password, e);
    if (rc == 0 && backup_dir)
        rc = copies_write(&c.copies, &c.raw, backup_dir, e);
    if (rc < 0)
        return rc;
    rc = change_write(&c, b, e);
    if (rc == 0) {
        copies_remove(&c.copies);
        return 0;
    }
    err_wrap(e, "password change of repository %s incomplete", blobs_location(b));
    if (c.copies.repository[0])
        err_hint(e, "run it again with the same passwords; copies of both original blobs: %.120s and %.120s",
                 c.copies.repository, c.copies.blobcfg[0] ? c.copies.blobcfg : "(none)");
    else
        err_hint(e, "run it again with the same old and new password");
    return rc;
}
