/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * format.h - kopia.repository and kopia.blobcfg: parameters of a repository, sealed with the password (Kopia repository
 * format, sections 3 and 15)
 */
#ifndef SNAPFERRY_REPO_FORMAT_H
#define SNAPFERRY_REPO_FORMAT_H

#include "base/password.h"
#include "repo/blob.h"

struct epoch_params {
    bool enabled;
    int64_t refresh_ns, cleanup_margin_ns, min_duration_ns;
    int full_checkpoint, advance_count, delete_parallelism;
    int64_t advance_bytes;
};

struct upgrade_lock {
    bool present;
    char owner[128];
    int64_t creation_ns, advance_notice_ns, drain_timeout_ns, poll_ns, clock_drift_ns;
};

#define FORMAT_ID_MAX 64

/* An opened format: plain values, immutable. */
struct repo_format {
    uint8_t unique_id[FORMAT_ID_MAX];
    size_t unique_id_len;
    char key_algo[32];      /* "scrypt-65536-8-1", "pbkdf2-sha256-600000" */
    uint8_t format_key[32]; /* from the password */
    char hash[40], encryption[48], splitter[40];
    unsigned ecc_percent; /* 0: none */
    uint8_t secret[FORMAT_ID_MAX], master_key[FORMAT_ID_MAX];
    size_t secret_len, master_key_len;
    unsigned version;       /* 1..3 */
    uint64_t max_pack_size; /* bytes, never 0 */
    unsigned index_version; /* 1 or 2 */
    struct epoch_params epochs;
    bool password_change; /* "enablePasswordChange" */
    struct upgrade_lock lock;
    char retention_mode[16]; /* of kopia.blobcfg, "" = none */
    int64_t retention_period_ns;
    uint8_t *blob; /* exact bytes of kopia.repository (recovery block of old repositories) */
    size_t blob_len;
    int64_t loaded_ns; /* wall clock when loaded: to be re-read within 15 minutes */
};

/*
 * Reads and opens both blobs and checks version, algorithms, required features (a warning is logged for those that only
 * warn) and the upgrade lock. Errors: ERR_NO_REPO, ERR_PASSWORD, ERR_DAMAGE (not JSON, blobcfg damaged, missing key),
 * ERR_FORMAT (newer version, unknown algorithm or feature: named), ERR_BUSY (upgrade lock: owner and since when).
 * `password` is used unchanged (password_read() has stripped it).
 */
int format_load(struct repo_format **ret, struct blobs *b, const char *password, struct err *e);
/* The same; `meanwhile` is called when the blobs have been read, before the key is derived from the password: to begin
 * what needs no key. A second time, if they have to be read again. */
int format_load_and(struct repo_format **ret, struct blobs *b, const char *password, void (*meanwhile)(void *),
                    void *arg, struct err *e);
void format_free(struct repo_format *f); /* wipes the keys */

/* Both blobs as they are stored; blobcfg NULL: there is none. */
struct format_blobs {
    const uint8_t *repository, *blobcfg;
    size_t repository_len, blobcfg_len;
};
/* Opens them without a store, and writes nothing anywhere. `whose`: for messages, "recovery kit /root/kit". Errors as
 * format_load(), without ERR_NO_REPO. */
int format_open(struct repo_format **ret, const char *whose, const struct format_blobs *stored, const char *password,
                struct err *e);

/* A derived format key, and the parameters of its derivation. */
struct format_key {
    char algo[32];
    uint8_t unique_id[FORMAT_ID_MAX];
    size_t unique_id_len;
    uint8_t key[32];
};
/* That of an open format. The caller wipes it. */
void format_key_of(const struct repo_format *f, struct format_key *ret);
/* format_load() without the password and the 0.13 s of CPU time of the derivation. ERR_PASSWORD (-ESTALE): the key
 * belongs to another repository or derivation; -EBADMSG: it does not open this one. */
int format_load_with_key(struct repo_format **ret, struct blobs *b, const struct format_key *k, struct err *e);

/*
 * Reads both blobs again with the key with which `old` was opened: without the password and the 64 MiB of the
 * derivation. `old` stays valid. Errors as format_load(); ERR_PASSWORD: the password has been changed since; ERR_DAMAGE
 * (-ESTALE): another repository is there now.
 */
int format_reload(struct repo_format **ret, const struct repo_format *old, struct blobs *b, struct err *e);

/* Locked = every operation by others must stop (section 15.3). */
bool upgrade_lock_locked(const struct upgrade_lock *l, int64_t now_ns);

struct format_create {
    unsigned version;                                    /* 1..3; 0: 3 */
    const char *hash, *encryption, *splitter, *key_algo; /* NULL: Kopia's default */
    unsigned ecc_percent;                                /* 0: none; > 0 only with version >= 2 */
    uint64_t pack_size;                                  /* 0: 20 MiB; 10..120 MiB */
    /* For reproducible tests only: NULL = random. 32 bytes each. */
    const uint8_t *unique_id, *secret, *master_key;
};

/* Writes kopia.blobcfg and kopia.repository into an empty store (blobs_open_dir(BLOBS_CREATE); for version 1 with
 * shards {3,3}). On failure the blobs written are deleted again. Errors: ERR_USAGE (unknown algorithm: the supported
 * ones are named; empty password), ERR_EXISTS. */
int format_create(struct blobs *b, const struct format_create *c, const char *password, struct err *e);

/*
 * Seals both blobs with a new password, preserving unknown members. Refused (ERR_FORMAT) where password change is
 * disabled, and ERR_BUSY under an upgrade lock. No other client may change the format at the same time; connected
 * clients fail at their next re-read. The two blobs cannot be replaced atomically, so copies of both (still sealed with
 * the old password) are first written to `backup_dir`, an existing directory outside the repository, as "<unique
 * id>-<UTC time>-kopia.repository" and "...-kopia.blobcfg", and removed when both new blobs have been read back. NULL:
 * no copies. After a crash between the two, format_load() fails with ERR_DAMAGE; this call, with the same passwords,
 * completes the change.
 */
int format_change_password(struct blobs *b, const char *old_password, const char *new_password, const char *backup_dir,
                           struct err *e);

/* Name number i of the ciphers for contents, of the error correction and of the key derivations; NULL past the end;
 * number 0 is the default. (The hashes: hash_name(), the splitters: splitter_name().) */
const char *encryption_name(unsigned i);
const char *ecc_name(unsigned i);
const char *key_algo_name(unsigned i);

/* Password -> format key. ERR_FORMAT: unknown algorithm. */
int format_derive_key(const char *algo, const char *password, const uint8_t *salt, size_t salt_len, uint8_t key[32],
                      struct err *e);

/* The 32-byte content key root K0 (section 5.1). */
int format_content_key(const struct repo_format *f, uint8_t key[32], struct err *e);
/* The key that authenticates files of decrypted indexes in a cache directory (file-mac.h): HKDF-SHA256 of the master
 * key with the unique id as the salt and a purpose that no stock client has. */
int format_cache_key(const struct repo_format *f, uint8_t key[32], struct err *e);

/* HKDF-SHA256 (RFC 5869). */
int hkdf_sha256(const uint8_t *ikm, size_t ikm_len, const uint8_t *salt, size_t salt_len, const char *info,
                uint8_t *out, size_t out_len, struct err *e);

#endif
