/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_format.c - format blobs: golden ones opened, own ones compared byte for byte, everything wrong refused. */
#include "repo/blob-ops.h"
#include "repo/format-parse.h"
#include "tests/unit/test.h"

#include <dirent.h>
#include <jansson.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HOUR 3600000000000

static char dir[64];

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/test_format.XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

static const char *in_dir(const char *name)
{
    static char buf[4][512];
    static unsigned turn;
    char *p = buf[turn++ % 4];
    snprintf(p, sizeof buf[0], "%s/%s", dir, name);
    return p;
}

static void write_bytes(const char *path, const void *data, size_t len)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static unsigned files_in(const char *path)
{
    DIR *d = opendir(path);
    assert_non_null(d);
    unsigned n = 0;
    for (const struct dirent *de; (de = readdir(d));)
        n += de->d_name[0] != '.';
    closedir(d);
    return n;
}

static const char *text_of(const json_t *v, const char *key)
{
    const char *s = json_string_value(json_object_get(v, key));
    if (!s)
        fail_msg("no text \"%s\" in the vector", key);
    return s;
}

static size_t hex_of(const json_t *v, const char *key, uint8_t *out, size_t cap)
{
    const char *s = text_of(v, key);
    size_t n = strlen(s) / 2;
    assert_true(n <= cap);
    assert_int_equal(hex_decode(out, s, 2 * n), 0);
    return n;
}

static unsigned each_vector(const char *file, void (*fn)(json_t *v))
{
    FILE *f = fopen(fixture_path(file), "r");
    assert_non_null(f);
    char *line = NULL;
    size_t cap = 0;
    unsigned n = 0;
    while (getline(&line, &cap, f) > 0) {
        json_t *v = json_loads(line, 0, NULL);
        assert_non_null(v);
        fn(v);
        json_decref(v);
        n++;
    }
    free(line);
    fclose(f);
    return n;
}

static struct blobs *store(enum blobs_open_mode mode)
{
    struct err e = ERR_INIT;
    struct blobs *b = NULL;
    assert_ok(blobs_open_dir(&b, dir, mode, NULL, 0, &e), &e);
    return b;
}

static void put(struct blobs *b, const char *name, const void *data, size_t len)
{
    struct err e = ERR_INIT;
    assert_ok(blobs_put(b, name, data, len, &e), &e);
}

static char last_log[2048];

static void keep_log(enum log_level lvl, const char *line, void *arg)
{
    (void)arg;
    if (lvl >= LOG_LVL_WARNING)
        snprintf(last_log, sizeof last_log, "%s", line);
}

/* ---- keys ---- */

static void check_kdf(json_t *v)
{
    uint8_t id[64], key[32], want[32];
    struct err e = ERR_INIT;
    size_t id_len = hex_of(v, "uniqueIDHex", id, sizeof id);
    int rc = format_derive_key(text_of(v, "keyAlgo"), text_of(v, "password"), id, id_len, key, &e);
    if (json_object_get(v, "error")) {
        assert_true(rc < 0);
        assert_int_equal(e.cls, strcmp(text_of(v, "keyAlgo"), "md5") == 0 ? ERR_FORMAT : ERR_DAMAGE);
        return;
    }
    assert_ok(rc, &e);
    hex_of(v, "formatKeyHex", want, sizeof want);
    assert_memory_equal(key, want, 32);
    if (!json_object_get(v, "fromFormatKey:AES"))
        return;
    static const char *const purposes[] = {"AES", "CHECKSUM", "local-cache-integrity", "maintenance schedule"};
    for (size_t i = 0; i < 4; i++) {
        char member[64];
        uint8_t out[32];
        snprintf(member, sizeof member, "fromFormatKey:%s", purposes[i]);
        size_t n = hex_of(v, member, want, sizeof want);
        assert_ok(hkdf_sha256(key, 32, id, id_len, purposes[i], out, n, &e), &e);
        assert_memory_equal(out, want, n);
    }
}

static void golden_keys(void **state)
{
    (void)state;
    assert_int_equal(each_vector("vectors/kdf.jsonl", check_kdf), 35);
}

static void hkdf_lengths(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    uint8_t want[32], out[255 * 32 + 1];
    hex_decode(want, "828769ee8969bc37f11dbaa32838f8db6c19daa6e3ae5f5eed2da2d94d8faddb", 64);
    assert_ok(hkdf_sha256((const uint8_t *)"ABCDEFGHIJKLMNOP", 16, (const uint8_t *)"0123456789012345", 16,
                          "the-test-purpose", out, 32, &e),
              &e);
    assert_memory_equal(out, want, 32);
    /* RFC 5869, test cases 2 (82 bytes) and 3 (no salt, no info). */
    uint8_t ikm[80], salt[80];
    char info[81] = "";
    for (int i = 0; i < 80; i++) {
        ikm[i] = (uint8_t)i;
        salt[i] = (uint8_t)(0x60 + i);
        info[i] = (char)(0xb0 + i);
    }
    uint8_t okm[82];
    hex_decode(
        okm,
        "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09da3275600"
        "c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87",
        164);
    assert_ok(hkdf_sha256(ikm, 80, salt, 80, info, out, 82, &e), &e);
    assert_memory_equal(out, okm, 82);
    memset(ikm, 0x0b, 22);
    hex_decode(okm, "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8", 84);
    assert_ok(hkdf_sha256(ikm, 22, NULL, 0, "", out, 42, &e), &e);
    assert_memory_equal(out, okm, 42);
    assert_ok(hkdf_sha256(ikm, 22, NULL, 0, "", out, 255 * 32, &e), &e);
    assert_true(hkdf_sha256(ikm, 22, NULL, 0, "", out, 255 * 32 + 1, &e) < 0);
}

static long resident_kib(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    long size, resident;
    assert_int_equal(fscanf(f, "%ld %ld", &size, &resident), 2);
    fclose(f);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void derivation_gives_memory_back(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    uint8_t id[32] = {1}, key[32];
    assert_ok(format_derive_key("scrypt-65536-8-1", "p", id, 32, key, &e), &e);
    long before = resident_kib();
    assert_ok(format_derive_key("scrypt-65536-8-1", "p", id, 32, key, &e), &e);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(resident_kib() - before < 4096);
#else
    (void)before;
#endif
}

/* ---- base64 ---- */

static void base64(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want; /* NULL: refused */
    } known[] = {
        {"", ""},
        {"TQ==", "M"},
        {"TWE=", "Ma"},
        {"TWFu", "Man"},
        {"TWFuTQ==", "ManM"},
        {"TW\r\nFu", "Man"},
        {"TQ=\n=\r\n", "M"},
        {"\nTWE=", "Ma"},
        {"+/+/", "\xfb\xff\xbf"},
        {"T", NULL},
        {"TQ", NULL},
        {"TQ=", NULL},
        {"TWE", NULL},
        {"=", NULL},
        {"====", NULL},
        {"TQ===", NULL},
        {"TWFu=", NULL},
        {"T===", NULL},
        {"TQ==TQ==", NULL},
        {"TW-u", NULL},
        {"TW u", NULL},
        {"TWF\xc3\xbc", NULL},
        {"TQ=x", NULL},
        {"TWE=TWFu", NULL},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint8_t *out = NULL;
        size_t len = 99;
        int rc = base64_decode(&out, &len, known[i].text, strlen(known[i].text));
        if (!known[i].want) {
            assert_int_equal(rc, -EINVAL);
            continue;
        }
        assert_int_equal(rc, 0);
        assert_int_equal(len, strlen(known[i].want));
        assert_memory_equal(out, known[i].want, len);
        free(out);
    }
}

/* ---- golden blobs ---- */

static void check_blob(json_t *v)
{
    struct err e = ERR_INIT;
    const char *repository = text_of(v, "kopia.repository");
    uint8_t cfg[256], key[32];
    size_t cfg_len = hex_of(v, "kopia.blobcfg.hex", cfg, sizeof cfg);
    struct blobs *b = store(BLOBS_OPEN);
    put(b, "kopia.repository", repository, strlen(repository));
    put(b, "kopia.blobcfg", cfg, cfg_len);

    struct format_outer o;
    assert_ok(format_parse_outer(&o, repository, strlen(repository), &e), &e);
    hex_of(v, "formatKeyHex", key, sizeof key);
    uint8_t plain[4096];
    int64_t n = format_layer_open(key, o.unique_id, o.unique_id_len, o.sealed, o.sealed_len, plain, &e);
    assert_int_equal(n, strlen(text_of(v, "inner")));
    assert_memory_equal(plain, text_of(v, "inner"), (size_t)n);
    n = format_layer_open(key, o.unique_id, o.unique_id_len, cfg, cfg_len, plain, &e);
    assert_int_equal(n, strlen(text_of(v, "blobcfg")));
    assert_memory_equal(plain, text_of(v, "blobcfg"), (size_t)n);

    struct repo_format *f = NULL;
    int rc = format_load(&f, b, text_of(v, "password"), &e);
    if (strstr(text_of(v, "inner"), "upgradeLock")) {
        assert_int_equal(rc, -EBUSY);
        assert_int_equal(e.cls, ERR_BUSY);
        assert_non_null(strstr(e.msg, "\"owner\""));
        assert_non_null(strstr(e.msg, "2026-01-02 03:04:05 UTC"));
        struct repo_format raw = {.version = 0};
        assert_ok(format_parse_inner(&raw, text_of(v, "inner"), strlen(text_of(v, "inner")), &e), &e);
        assert_true(raw.lock.present);
        assert_string_equal(raw.lock.owner, "owner");
        assert_int_equal(raw.lock.creation_ns, 1767323045000000678);
        assert_int_equal(raw.lock.advance_notice_ns, HOUR);
        assert_int_equal(raw.lock.drain_timeout_ns, HOUR / 4);
        assert_int_equal(raw.lock.poll_ns, HOUR / 60);
        assert_int_equal(raw.lock.clock_drift_ns, HOUR / 12);
        assert_ok(format_parse_blobcfg(&raw, text_of(v, "blobcfg"), strlen(text_of(v, "blobcfg")), &e), &e);
        assert_string_equal(raw.retention_mode, "GOVERNANCE");
        assert_int_equal(raw.retention_period_ns, 48 * HOUR);
    } else {
        assert_ok(rc, &e);
        assert_int_equal(f->blob_len, strlen(repository));
        assert_memory_equal(f->blob, repository, f->blob_len);
        assert_memory_equal(f->format_key, key, 32);
        assert_memory_equal(f->unique_id, o.unique_id, 32);
        assert_int_equal(f->version, 3);
        assert_int_equal(f->index_version, 2);
        assert_int_equal(f->max_pack_size, 20 << 20);
        assert_string_equal(f->hash, "BLAKE2B-256-128");
        assert_string_equal(f->encryption, "AES256-GCM-HMAC-SHA256");
        assert_string_equal(f->splitter, "DYNAMIC-4M-BUZHASH");
        assert_int_equal(f->secret_len, 32);
        assert_int_equal(f->master_key_len, 32);
        assert_true(f->epochs.enabled && f->password_change && !f->lock.present);
        assert_int_equal(f->epochs.refresh_ns, HOUR / 3);
        assert_int_equal(f->epochs.full_checkpoint, 7);
        assert_int_equal(f->epochs.cleanup_margin_ns, 4 * HOUR);
        assert_int_equal(f->epochs.min_duration_ns, 24 * HOUR);
        assert_int_equal(f->epochs.advance_count, 20);
        assert_int_equal(f->epochs.advance_bytes, 10 << 20);
        assert_int_equal(f->epochs.delete_parallelism, 4);
        assert_string_equal(f->retention_mode, "");
        format_free(f);
    }
    format_outer_clear(&o);
    blobs_free(b);
}

static void golden_blobs(void **state)
{
    (void)state;
    assert_int_equal(each_vector("vectors/format-blob.jsonl", check_blob), 3);
}

/* Sections 16.2 and 16.2b: written by a stock client for the password "testpassword". */
static const char stock_inner[] =
    "{\"format\":{\"hash\":\"BLAKE2B-256-128\",\"encryption\":\"AES256-GCM-HMAC-SHA256\","
    "\"secret\":\"QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=\","
    "\"masterKey\":\"ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=\",\"version\":3,\"maxPackSize\":20971520,"
    "\"indexVersion\":2,\"epochParameters\":{\"Enabled\":true,\"EpochRefreshFrequency\":1200000000000,"
    "\"FullCheckpointFrequency\":7,\"CleanupSafetyMargin\":14400000000000,\"MinEpochDuration\":86400000000000,"
    "\"EpochAdvanceOnCountThreshold\":20,\"EpochAdvanceOnTotalSizeBytesThreshold\":10485760,\"DeleteParallelism\":4},"
    "\"enablePasswordChange\":true,\"splitter\":\"DYNAMIC-4M-BUZHASH\"}}";

static void sequence(uint8_t *out, unsigned from)
{
    for (unsigned i = 0; i < 32; i++)
        out[i] = (uint8_t)(from + i);
}

static void known_answers(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    uint8_t id[32], key[32], want[32], sealed[64], out[64];
    sequence(id, 0);
    assert_ok(format_derive_key("pbkdf2-sha256-600000", "testpassword", id, 32, key, &e), &e);
    hex_decode(want, "5e52995b93d40d3759bab3e1b37dfc91f61bdfe26195d4f69f37ca2bfe0527ac", 64);
    assert_memory_equal(key, want, 32);
    assert_ok(format_derive_key("scrypt-65536-8-1", "testpassword", id, 32, key, &e), &e);
    hex_decode(want, "6a3af8a2fca718514f45e6074653c5b8a0947ce2e6e09e2342a46d491520d839", 64);
    assert_memory_equal(key, want, 32);
    hex_decode(sealed, "000102030405060708090a0b0dcfcc89c40407d5600d3caa779e830409dd", 60);
    assert_int_equal(format_layer_open(key, id, 32, sealed, 30, out, &e), 2);
    assert_memory_equal(out, "{}", 2);
    hex_decode(sealed, "0960db0c80fcfc357749b95f8f05991691361acd0f7ec2a87fa960fac6bc", 60);
    assert_int_equal(format_layer_open(key, id, 32, sealed, 30, out, &e), 2);
    struct repo_format f = {.password_change = true, .unique_id_len = 32, .master_key_len = 32};
    memcpy(f.unique_id, id, 32);
    sequence(f.master_key, 0x20);
    assert_ok(format_content_key(&f, key, &e), &e);
    hex_decode(want, "49cbbd8ec38e25389b29de48aa0a383cb3aa37e0e2aa4e02e75c7894aebfacce", 64);
    assert_memory_equal(key, want, 32);
}

/* ---- creating ---- */

/* The opened inner document of the repository in b, as text. */
static char *inner_of(struct blobs *b, const char *password)
{
    struct err e = ERR_INIT;
    uint8_t *data;
    size_t len;
    struct format_outer o;
    uint8_t key[32];
    assert_ok(blobs_get(b, "kopia.repository", 1 << 20, &data, &len, &e), &e);
    assert_ok(format_parse_outer(&o, data, len, &e), &e);
    assert_ok(format_derive_key(o.key_algo, password, o.unique_id, o.unique_id_len, key, &e), &e);
    char *out = malloc(o.sealed_len + 1);
    int64_t n = format_layer_open(key, o.unique_id, o.unique_id_len, o.sealed, o.sealed_len, (uint8_t *)out, &e);
    assert_ok(n, &e);
    out[n] = '\0';
    format_outer_clear(&o);
    free(data);
    return out;
}

static void create_as_stock(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    uint8_t id[32], secret[32], master[32];
    sequence(id, 0);
    sequence(master, 0x20);
    sequence(secret, 0x40);
    struct blobs *b = store(BLOBS_CREATE);
    const struct format_create c = {.unique_id = id, .secret = secret, .master_key = master};
    assert_ok(format_create(b, &c, "testpassword", &e), &e);
    char *inner = inner_of(b, "testpassword");
    assert_string_equal(inner, stock_inner);
    free(inner);
    uint8_t *doc;
    size_t len;
    assert_ok(blobs_get(b, "kopia.repository", 1 << 20, &doc, &len, &e), &e);
    const char *begin = "{\n  \"tool\": \"https://github.com/kopia/kopia\",\n  \"buildVersion\": \"";
    assert_memory_equal(doc, begin, strlen(begin));
    assert_non_null(strstr((char *)doc, "\n  \"uniqueID\": \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\",\n"
                                        "  \"keyAlgo\": \"scrypt-65536-8-1\",\n  \"encryption\": \"AES256_GCM\",\n"
                                        "  \"encryptedBlockFormat\": \""));
    assert_string_equal((char *)doc + len - 4, "\"\n}\n");
    free(doc);
    struct repo_format *f = NULL;
    assert_ok(format_load(&f, b, "testpassword", &e), &e);
    assert_memory_equal(f->secret, secret, 32);
    assert_memory_equal(f->master_key, master, 32);
    format_free(f);
    assert_int_equal(format_create(b, &c, "testpassword", &e), -EEXIST);
    assert_int_equal(e.cls, ERR_EXISTS);
    blobs_free(b);
}

static void create_version_1(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct blobs *b = store(BLOBS_CREATE);
    const struct format_create c = {.version = 1, .key_algo = "pbkdf2-sha256-600000", .splitter = "FIXED-1M"};
    assert_ok(format_create(b, &c, "p", &e), &e);
    char *inner = inner_of(b, "p");
    assert_non_null(strstr(inner, "\"version\":1,\"maxPackSize\":20971520,\"indexVersion\":1,\"epochParameters\":{"
                                  "\"Enabled\":false,\"EpochRefreshFrequency\":0,\"FullCheckpointFrequency\":0,"
                                  "\"CleanupSafetyMargin\":0,\"MinEpochDuration\":0,\"EpochAdvanceOnCountThreshold\":0,"
                                  "\"EpochAdvanceOnTotalSizeBytesThreshold\":0,\"DeleteParallelism\":0},"
                                  "\"enablePasswordChange\":false,\"splitter\":\"FIXED-1M\"}}"));
    free(inner);
    struct repo_format *f = NULL;
    assert_ok(format_load(&f, b, "p", &e), &e);
    assert_int_equal(f->version, 1);
    assert_int_equal(f->index_version, 1);
    assert_false(f->epochs.enabled || f->password_change);
    format_free(f);
    assert_int_equal(format_change_password(b, "p", "q", NULL, &e), -ENOTSUP);
    assert_int_equal(e.cls, ERR_FORMAT);
    blobs_free(b);
}

static void create_with_everything(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct blobs *b = store(BLOBS_CREATE);
    const struct format_create c = {.version = 2,
                                    .hash = "BLAKE3-256",
                                    .encryption = "CHACHA20-POLY1305-HMAC-SHA256",
                                    .splitter = "DYNAMIC-1M-RABINKARP",
                                    .ecc_percent = 7,
                                    .pack_size = 120 << 20};
    assert_ok(format_create(b, &c, "p", &e), &e);
    struct repo_format *f = NULL;
    assert_ok(format_load(&f, b, "p", &e), &e);
    assert_int_equal(f->version, 2);
    assert_int_equal(f->ecc_percent, 7);
    assert_int_equal(f->max_pack_size, 120 << 20);
    assert_string_equal(f->hash, "BLAKE3-256");
    assert_string_equal(f->encryption, "CHACHA20-POLY1305-HMAC-SHA256");
    assert_string_equal(f->splitter, "DYNAMIC-1M-RABINKARP");
    assert_memory_not_equal(f->secret, f->master_key, 32);
    format_free(f);
    char *inner = inner_of(b, "p");
    assert_non_null(strstr(inner, "\"CHACHA20-POLY1305-HMAC-SHA256\",\"ecc\":\"REED-SOLOMON-CRC32\","
                                  "\"eccOverheadPercent\":7,\"secret\":\""));
    free(inner);
    blobs_free(b);
}

static void create_refused(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct blobs *b = store(BLOBS_CREATE);
    static const struct {
        struct format_create c;
        const char *says;
    } bad[] = {
        {{.version = 4}, "version 4"},
        {{.hash = "MD5"}, "BLAKE2B-256-128"},
        {{.encryption = "NONE"}, "AES256-GCM-HMAC-SHA256"},
        {{.splitter = "FIXED-3M"}, "DYNAMIC-4M-BUZHASH"},
        {{.splitter = ""}, "DYNAMIC-4M-BUZHASH"},
        {{.key_algo = "md5"}, "scrypt-65536-8-1"},
        {{.ecc_percent = 101}, "101"},
        {{.version = 1, .ecc_percent = 1}, "version 1"},
        {{.pack_size = (10 << 20) - 1}, "10 to 120 MiB"},
        {{.pack_size = (120 << 20) + 1}, "10 to 120 MiB"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(format_create(b, &bad[i].c, "p", &e), -EINVAL);
        assert_int_equal(e.cls, ERR_USAGE);
        if (!strstr(e.msg, bad[i].says))
            fail_msg("\"%s\" does not say \"%s\"", e.msg, bad[i].says);
    }
    const struct format_create c = {.version = 0};
    assert_int_equal(format_create(b, &c, "", &e), -EINVAL);
    assert_int_equal(e.cls, ERR_USAGE);
    assert_int_equal(format_create(b, &c, NULL, &e), -EINVAL);
    put(b, "xe7", "", 0);
    assert_int_equal(format_create(b, &c, "p", &e), -EEXIST);
    assert_int_equal(e.cls, ERR_EXISTS);
    assert_non_null(strstr(e.msg, "xe7"));
    blobs_free(b);
}

/* ---- a store whose n-th put fails ---- */

struct faulty {
    struct blobs base;
    struct blobs *real;
    unsigned puts, fail_at; /* 1: the first */
    bool after;             /* the blob is there, yet the put fails */
};

static int faulty_put(struct blobs *b, const char *name, const void *data, size_t len, struct err *e)
{
    struct faulty *f = (struct faulty *)b;
    bool fails = ++f->puts == f->fail_at;
    if (fails && !f->after)
        return err_set(e, ERR_GENERIC, ENOSPC, "cannot write %s", name);
    int rc = blobs_put(f->real, name, data, len, e);
    return fails ? err_set(e, ERR_GENERIC, EIO, "cannot write %s", name) : rc;
}

static int faulty_get(struct blobs *b, const char *name, size_t max, uint8_t **ret, size_t *len, struct err *e)
{
    return blobs_get(((struct faulty *)b)->real, name, max, ret, len, e);
}

static int faulty_del(struct blobs *b, const char *name, struct err *e)
{
    return blobs_delete(((struct faulty *)b)->real, name, e);
}

static int faulty_list(struct blobs *b, const char *prefix, blob_list_fn *fn, void *arg, struct err *e)
{
    return blobs_list(((struct faulty *)b)->real, prefix, fn, arg, e);
}

static const struct blobs_ops faulty_ops = {
    .put = faulty_put, .get = faulty_get, .del = faulty_del, .list = faulty_list};

static int count_blobs(const struct blob_info *info, void *arg)
{
    (void)info;
    ++*(unsigned *)arg;
    return 0;
}

static void create_fails_clean(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct faulty f = {.base = {.ops = &faulty_ops, .location = dir}, .real = store(BLOBS_CREATE)};
    const struct format_create c = {.version = 3};
    for (unsigned i = 0; i < 4; i++) {
        f.puts = 0;
        f.fail_at = 1 + i / 2;
        f.after = i % 2;
        assert_true(format_create(&f.base, &c, "p", &e) < 0);
        assert_int_equal(e.cls, f.after ? ERR_GENERIC : ERR_NO_SPACE);
        unsigned n = 0;
        assert_ok(blobs_list(f.real, "", count_blobs, &n, &e), &e);
        assert_int_equal(n, 0);
    }
    f.fail_at = 0;
    assert_ok(format_create(&f.base, &c, "p", &e), &e);
    blobs_free(f.real);
}

/* ---- opening what is wrong ---- */

static void wrong_password_and_damage(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct repo_format *f = NULL;
    struct blobs *b = store(BLOBS_CREATE);
    assert_int_equal(format_load(&f, b, "p", &e), -ENOENT);
    assert_int_equal(e.cls, ERR_NO_REPO);
    const struct format_create c = {.version = 3};
    assert_ok(format_create(b, &c, "p", &e), &e);

    assert_int_equal(format_load(&f, b, "P", &e), -EBADMSG);
    assert_int_equal(e.cls, ERR_PASSWORD);
    assert_non_null(strstr(e.msg, "wrong password, or kopia.repository is damaged"));
    assert_true(e.hint[0] != '\0');
    assert_int_equal(format_load(&f, b, "", &e), -EBADMSG);
    assert_int_equal(e.cls, ERR_PASSWORD);

    /* kopia.blobcfg: missing is as good as {}, damaged is not. */
    uint8_t *cfg;
    size_t len;
    assert_ok(blobs_get(b, "kopia.blobcfg", 1000, &cfg, &len, &e), &e);
    assert_ok(blobs_delete(b, "kopia.blobcfg", &e), &e);
    assert_ok(format_load(&f, b, "p", &e), &e);
    format_free(f);
    f = NULL;
    cfg[20] ^= 1;
    put(b, "kopia.blobcfg", cfg, len);
    assert_int_equal(format_load(&f, b, "p", &e), -EBADMSG);
    assert_int_equal(e.cls, ERR_DAMAGE);
    assert_non_null(strstr(e.msg, "kopia.blobcfg"));
    assert_non_null(strstr(e.hint, "change-password"));
    put(b, "kopia.blobcfg", "x", 1);
    assert_int_equal(format_load(&f, b, "p", &e), -EBADMSG);
    assert_int_equal(e.cls, ERR_DAMAGE);
    cfg[20] ^= 1;
    put(b, "kopia.blobcfg", cfg, len);
    free(cfg);

    put(b, "kopia.repository", "{", 1);
    assert_int_equal(format_load(&f, b, "p", &e), -EBADMSG);
    assert_int_equal(e.cls, ERR_DAMAGE);
    assert_ok(blobs_delete(b, "kopia.repository", &e), &e);
    put(b, "p00112233445566778899aabbccddeeff-s0123456789abcdef147", "x", 1);
    assert_int_equal(format_load(&f, b, "p", &e), -ENOENT);
    assert_int_equal(e.cls, ERR_NO_REPO);
    assert_non_null(strstr(e.msg, "packs"));
    assert_null(f);
    blobs_free(b);
}

/* The stock document with `from` replaced. */
static char *edited(const char *from, const char *to)
{
    const char *at = strstr(stock_inner, from);
    assert_non_null(at);
    char *out = malloc(strlen(stock_inner) + strlen(to) + 1);
    sprintf(out, "%.*s%s%s", (int)(at - stock_inner), stock_inner, to, at + strlen(from));
    return out;
}

static int parse_edited(struct repo_format *f, const char *from, const char *to, struct err *e)
{
    memset(f, 0, sizeof *f);
    char *doc = edited(from, to);
    int rc = format_parse_inner(f, doc, strlen(doc), e);
    free(doc);
    return rc;
}

static void inner_members(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct repo_format f;
    static const struct {
        const char *from, *to;
        enum err_class cls; /* ERR_NONE: accepted */
        const char *says;
    } cases[] = {
        {"\"version\":3", "\"version\":99", ERR_FORMAT, "version 99"},
        {"\"version\":3", "\"version\":4,\"hash\":17", ERR_FORMAT, "versions 1 to 3"},
        {"\"version\":3", "\"version\":0", ERR_FORMAT, "version 0"},
        {"\"version\":3,", "", ERR_FORMAT, "version 0"},
        {"\"version\":3", "\"version\":-1", ERR_FORMAT, "version -1"},
        {"\"version\":3", "\"version\":\"3\"", ERR_DAMAGE, "version"},
        {"\"version\":3", "\"version\":3.0", ERR_DAMAGE, "version"},
        {"\"version\":3", "\"Version\":2", ERR_NONE, ""},
        {"BLAKE2B-256-128", "BLAKE9-512", ERR_FORMAT, "BLAKE9-512"},
        {"BLAKE2B-256-128", "", ERR_DAMAGE, "hash"},
        {"AES256-GCM-HMAC-SHA256", "AES512", ERR_FORMAT, "AES512"},
        {"DYNAMIC-4M-BUZHASH", "DYNAMIC-5M", ERR_FORMAT, "DYNAMIC-5M"},
        {"\"DYNAMIC-4M-BUZHASH\"", "7", ERR_DAMAGE, "names"},
        {"\"indexVersion\":2", "\"indexVersion\":3", ERR_FORMAT, "index version 3"},
        {"\"indexVersion\":2", "\"indexVersion\":-1", ERR_FORMAT, "index version -1"},
        {"\"indexVersion\":2", "\"indexVersion\":99999999999", ERR_DAMAGE, "type or length"},
        {"20971520", "5", ERR_DAMAGE, "pack size"},
        {"20971520", "125829121", ERR_DAMAGE, "pack size"},
        {"20971520", "-20971520", ERR_DAMAGE, "pack size"},
        {"20971520", "92233720368547758080", ERR_DAMAGE, "JSON"},
        {"20971520", "125829120", ERR_NONE, ""},
        {"QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=", "QEFC!", ERR_DAMAGE, "type or length"},
        {"\"masterKey\":\"ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=\",", "", ERR_DAMAGE, "master key"},
        {"\"version\":3", "\"ecc\":\"REED-SOLOMON-CRC32\",\"eccOverheadPercent\":101,\"version\":3", ERR_FORMAT, "101"},
        {"\"version\":3", "\"ecc\":\"REED-SOLOMON-CRC32\",\"eccOverheadPercent\":-1,\"version\":3", ERR_FORMAT, "-1"},
        {"\"version\":3", "\"ecc\":\"TURBO\",\"eccOverheadPercent\":1,\"version\":3", ERR_FORMAT, "TURBO"},
        {"\"version\":3", "\"ecc\":\"TURBO\",\"eccOverheadPercent\":0,\"version\":3", ERR_NONE, ""},
        {"\"version\":3,\"maxPackSize\":20971520,\"indexVersion\":2",
         "\"ecc\":\"REED-SOLOMON-CRC32\",\"eccOverheadPercent\":5,\"version\":3,\"indexVersion\":1", ERR_FORMAT,
         "index version 1"},
        {"\"enablePasswordChange\":true", "\"enablePasswordChange\":1", ERR_DAMAGE, "type or length"},
        {"\"Enabled\":true", "\"Enabled\":\"yes\"", ERR_DAMAGE, "epoch"},
        {"\"FullCheckpointFrequency\":7", "\"FullCheckpointFrequency\":0", ERR_DAMAGE, "epoch"},
        {"\"EpochAdvanceOnCountThreshold\":20", "\"EpochAdvanceOnCountThreshold\":9", ERR_DAMAGE, "epoch"},
        {"\"EpochAdvanceOnCountThreshold\":20", "\"EpochAdvanceOnCountThreshold\":2147483648", ERR_DAMAGE, "epoch"},
        {"\"MinEpochDuration\":86400000000000", "\"MinEpochDuration\":3599999999999", ERR_DAMAGE, "epoch"},
        {"\"CleanupSafetyMargin\":14400000000000", "\"CleanupSafetyMargin\":3599999999999", ERR_DAMAGE, "epoch"},
        {"\"EpochRefreshFrequency\":1200000000000", "\"EpochRefreshFrequency\":-1", ERR_DAMAGE, "epoch"},
        {"10485760", "1048575", ERR_DAMAGE, "epoch"},
        {"\"version\":3", "\"requiredFeatures\":[{\"feature\":\"index-v1\"},{\"feature\":\"index-v2\"}],\"version\":3",
         ERR_NONE, ""},
        {"\"version\":3", "\"requiredFeatures\":null,\"upgradeLock\":null,\"version\":3", ERR_NONE, ""},
        {"\"version\":3",
         "\"requiredFeatures\":[{\"feature\":\"quantum\",\"ifNotUnderstood\":{\"message\":\"get new\",\"url\":\"U\"}}],"
         "\"version\":3",
         ERR_FORMAT, "\"quantum\", which this version does not know: get new"},
        {"\"version\":3", "\"requiredFeatures\":[7],\"version\":3", ERR_DAMAGE, "feature"},
        {"\"version\":3", "\"requiredFeatures\":{},\"version\":3", ERR_DAMAGE, "feature"},
        {"\"version\":3", "\"upgradeLock\":{\"creationTime\":\"yesterday\"},\"version\":3", ERR_DAMAGE, "lock"},
        {"\"version\":3", "\"upgradeLock\":7,\"version\":3", ERR_DAMAGE, "lock"},
        {"{\"format\":{", "{\"new\":[1,{\"x\":null}],\"FORMAT\":{\"unknown\":{},", ERR_NONE, ""},
        {"{\"format\":{", "{\"other\":{", ERR_DAMAGE, "format document"},
        {"}}", "}} x", ERR_DAMAGE, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        e = (struct err)ERR_INIT;
        int rc = parse_edited(&f, cases[i].from, cases[i].to, &e);
        if (e.cls != cases[i].cls || (rc == 0) != (cases[i].cls == ERR_NONE) || !strstr(e.msg, cases[i].says))
            fail_msg("%s: %d, class %d: \"%s\"", cases[i].to, rc, (int)e.cls, e.msg);
    }
    /* Defaults of absent members, also of those that old repositories have as 0. */
    assert_ok(parse_edited(&f, "\"version\":3,\"maxPackSize\":20971520,\"indexVersion\":2", "\"version\":3", &e), &e);
    assert_int_equal(f.index_version, 1);
    assert_int_equal(f.max_pack_size, 20 << 20);
    assert_ok(parse_edited(&f, ",\"splitter\":\"DYNAMIC-4M-BUZHASH\"", "", &e), &e);
    assert_string_equal(f.splitter, "FIXED");
    /* A feature that only warns. */
    log_to(keep_log, NULL);
    assert_ok(parse_edited(&f, "\"version\":3",
                           "\"requiredFeatures\":[{\"feature\":\"nice\",\"ifNotUnderstood\":{\"warn\":true}}],"
                           "\"version\":3",
                           &e),
              &e);
    log_to(NULL, NULL);
    assert_non_null(strstr(last_log, "nice"));
    assert_ok(parse_edited(&f, "\"version\":3", "\"upgradeLock\":{},\"version\":3", &e), &e);
    assert_true(f.lock.present);
    assert_true(upgrade_lock_locked(&f.lock, 0));
}

static void blobcfg_members(void **state)
{
    (void)state;
    static const struct {
        const char *doc;
        enum err_class cls;
    } cases[] = {
        {"{}", ERR_NONE},
        {"{\"new\":1}", ERR_NONE},
        {"{\"retentionMode\":\"COMPLIANCE\",\"retentionPeriod\":86400000000000}", ERR_NONE},
        {"{\"retentionMode\":\"COMPLIANCE\"}", ERR_DAMAGE},
        {"{\"retentionPeriod\":86400000000000}", ERR_FORMAT},
        {"{\"retentionMode\":\"GOVERNANCE\",\"retentionPeriod\":86399999999999}", ERR_DAMAGE},
        {"{\"retentionMode\":\"FOREVER\",\"retentionPeriod\":86400000000000}", ERR_FORMAT},
        {"{\"retentionMode\":1}", ERR_DAMAGE},
        {"{\"retentionPeriod\":-1}", ERR_DAMAGE},
        {"[]", ERR_DAMAGE},
        {"", ERR_DAMAGE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err e = ERR_INIT;
        struct repo_format f = {.version = 3};
        int rc = format_parse_blobcfg(&f, cases[i].doc, strlen(cases[i].doc), &e);
        if (e.cls != cases[i].cls || (rc == 0) != (cases[i].cls == ERR_NONE))
            fail_msg("%s: %d, class %d", cases[i].doc, rc, (int)e.cls);
    }
}

static void outer_members(void **state)
{
    (void)state;
    static const char good[] = "{\"UNIQUEID\":\"AAEC\\r\\nAwQFBgcICQoLDA0ODw==\",\"keyAlgo\":\"k\",\"encryption\":"
                               "\"AES256_GCM\",\"encryptedBlockFormat\":\"AAAA\",\"old\":{\"x\":[1,2.5,null]}}";
    struct err e = ERR_INIT;
    struct format_outer o;
    assert_ok(format_parse_outer(&o, good, strlen(good), &e), &e);
    assert_int_equal(o.unique_id_len, 16);
    assert_int_equal(o.unique_id[15], 15);
    assert_int_equal(o.sealed_len, 3);
    format_outer_clear(&o);
    static const struct {
        const char *doc;
        enum err_class cls;
    } bad[] = {
        {"", ERR_DAMAGE},
        {"null", ERR_DAMAGE},
        {"[]", ERR_DAMAGE},
        {"{}", ERR_DAMAGE},
        {"{\"uniqueID\":7}", ERR_DAMAGE},
        {"{\"uniqueID\":\"\"}", ERR_DAMAGE},
        {"{\"uniqueID\":\"AAAA\",\"keyAlgo\":{}}", ERR_DAMAGE},
        {"{\"uniqueID\":\"AAAA\"}", ERR_DAMAGE},
        {"{\"uniqueID\":\"AAAA\",\"encryptedBlockFormat\":\"!\"}", ERR_DAMAGE},
        {"{\"uniqueID\":\"AAAA\",\"encryptedBlockFormat\":\"AAAA\"}", ERR_FORMAT},
        {"{\"uniqueID\":\"AAAA\",\"encryptedBlockFormat\":\"AAAA\",\"encryption\":\"NONE\"}", ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        e = (struct err)ERR_INIT;
        assert_true(format_parse_outer(&o, bad[i].doc, strlen(bad[i].doc), &e) < 0);
        if (e.cls != bad[i].cls)
            fail_msg("%s: class %d", bad[i].doc, (int)e.cls);
    }
}

/* Every truncation and every flipped bit: no crash, and never another format than the one that was sealed. */
static void damaged_documents(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct blobs *b = store(BLOBS_CREATE);
    const struct format_create c = {.version = 3};
    assert_ok(format_create(b, &c, "p", &e), &e);
    struct repo_format *f = NULL;
    assert_ok(format_load(&f, b, "p", &e), &e);
    char *inner = inner_of(b, "p");
    uint8_t *doc = malloc(f->blob_len), out[4096];
    unsigned opened = 0;
    for (size_t i = 0; i < f->blob_len * 9; i++) {
        size_t len = f->blob_len;
        memcpy(doc, f->blob, len);
        if (i >= f->blob_len * 8)
            len = i - f->blob_len * 8;
        else
            doc[i / 8] ^= (uint8_t)(1u << i % 8);
        struct format_outer o;
        if (format_parse_outer(&o, doc, len, &e) < 0)
            continue;
        if (o.sealed_len <= sizeof out) {
            int64_t n = format_layer_open(f->format_key, o.unique_id, o.unique_id_len, o.sealed, o.sealed_len, out, &e);
            if (n >= 0) {
                assert_int_equal(n, strlen(inner));
                assert_memory_equal(out, inner, (size_t)n);
                opened++;
            }
        }
        format_outer_clear(&o);
    }
    assert_true(opened > 0); /* flips in members that do not matter */
    size_t inner_len = strlen(inner);
    for (size_t i = 0; i < inner_len * 9; i++) {
        uint8_t *copy = malloc(inner_len + 1); /* exact, so that a read behind it is seen */
        size_t len = i >= inner_len * 8 ? i - inner_len * 8 : inner_len;
        copy = realloc(copy, len ? len : 1);
        memcpy(copy, inner, len);
        if (i < inner_len * 8)
            copy[i / 8] ^= (uint8_t)(1u << i % 8);
        struct repo_format g = {.version = 0};
        int rc = format_parse_inner(&g, copy, len, &e);
        if (i >= inner_len * 8)
            assert_true(rc < 0);
        free(copy);
    }
    free(doc);
    free(inner);
    format_free(f);
    blobs_free(b);
}

/* ---- upgrade lock ---- */

static int64_t time_of(const char *text)
{
    struct tm tm = {.tm_sec = 0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    assert_non_null(end);
    assert_int_equal(*end, '\0');
    return timegm(&tm) * INT64_C(1000000000);
}

static void check_lock(json_t *v)
{
    struct err e = ERR_INIT;
    struct repo_format f;
    char *lock = json_dumps(json_object_get(v, "lock"), 0), to[2048];
    snprintf(to, sizeof to, "\"upgradeLock\":%s,\"version\":3", lock);
    free(lock);
    assert_ok(parse_edited(&f, "\"version\":3", to, &e), &e);
    int64_t now = time_of(text_of(v, "now"));
    assert_int_equal(upgrade_lock_locked(&f.lock, now), json_is_true(json_object_get(v, "locked")));
}

static void golden_locks(void **state)
{
    (void)state;
    assert_int_equal(each_vector("vectors/upgrade-lock.jsonl", check_lock), 56);
    const struct upgrade_lock none = {.present = false};
    assert_false(upgrade_lock_locked(&none, INT64_MAX));
    /* Durations from a hostile document do not overflow. */
    for (unsigned i = 0; i < 16; i++) {
        const struct upgrade_lock l = {.present = true,
                                       .creation_ns = i & 1 ? INT64_MAX : INT64_MIN,
                                       .advance_notice_ns = i & 2 ? INT64_MAX : INT64_MIN,
                                       .drain_timeout_ns = i & 4 ? INT64_MAX : INT64_MIN,
                                       .clock_drift_ns = i & 8 ? INT64_MAX : INT64_MIN};
        upgrade_lock_locked(&l, INT64_MIN);
        upgrade_lock_locked(&l, INT64_MAX);
    }
}

static void lock_times(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ns;
    } known[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"2026-01-02T04:04:05.5+01:00", 1767323045500000000},
        {"2026-01-01T21:34:05,000000001-05:30", 1767323045000000001},
        {"2024-02-29T23:59:59.9999999999Z", 1709251199999999999},
        {"0001-01-01T00:00:00Z", INT64_MIN},
        {"9999-12-31T23:59:59Z", INT64_MAX},
    };
    struct err e = ERR_INIT;
    struct repo_format f;
    char to[256];
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        snprintf(to, sizeof to, "\"upgradeLock\":{\"creationTime\":\"%s\"},\"version\":3", known[i].text);
        assert_ok(parse_edited(&f, "\"version\":3", to, &e), &e);
        assert_int_equal(f.lock.creation_ns, known[i].ns);
    }
    static const char *const bad[] = {"",
                                      "2026",
                                      "2026-01-02",
                                      "2026-01-02T03:04:05",
                                      "2026-01-02t03:04:05Z",
                                      "2026-01-02T03:04:05z",
                                      "2026-13-02T03:04:05Z",
                                      "2026-02-29T03:04:05Z",
                                      "2026-01-02T24:00:00Z",
                                      "2026-01-02T03:04:60Z",
                                      "2026-01-02T03:04:05.Z",
                                      "2026-01-02T03:04:05+1:00",
                                      "2026-01-02T03:04:05Zx",
                                      "2026-01-02T03:04:05+24:00"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(to, sizeof to, "\"upgradeLock\":{\"creationTime\":\"%s\"},\"version\":3", bad[i]);
        if (parse_edited(&f, "\"version\":3", to, &e) == 0)
            fail_msg("%s was accepted", bad[i]);
    }
}

/* ---- changing the password ---- */

/* Adds members that we do not know to both documents. */
static void add_unknown_members(struct blobs *b, const char *password)
{
    struct err e = ERR_INIT;
    uint8_t *data, key[32], sealed[4096];
    size_t len;
    struct format_outer o;
    char *inner = inner_of(b, password), more[4096];
    assert_ok(blobs_get(b, "kopia.repository", 1 << 20, &data, &len, &e), &e);
    assert_ok(format_parse_outer(&o, data, len, &e), &e);
    assert_ok(format_derive_key(o.key_algo, password, o.unique_id, 32, key, &e), &e);
    snprintf(more, sizeof more, "{\"future\": [1,2.50,\"\xc3\xbc\"], %s", inner + 1);
    assert_ok(format_layer_seal(key, o.unique_id, 32, more, strlen(more), sealed, &e), &e);
    char text[8192];
    json_t *doc = json_copy(o.doc);
    size_t n = strlen(more) + FORMAT_LAYER_OVERHEAD;
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t at = 0;
    for (size_t i = 0; i < n; i += 3) {
        uint32_t w = (uint32_t)sealed[i] << 16 | (i + 1 < n ? (uint32_t)sealed[i + 1] << 8 : 0) |
                     (i + 2 < n ? sealed[i + 2] : 0);
        for (int k = 0; k < 4; k++)
            text[at++] = i + (size_t)k > n ? '=' : digits[w >> (18 - 6 * k) & 63];
    }
    text[at] = '\0';
    /* As others might spell it. */
    json_object_del(doc, "encryptedBlockFormat");
    json_object_set_new(doc, "EncryptedBlockFormat", json_string(text));
    json_object_set_new(doc, "legacy", json_pack("{s:i,s:[n]}", "a", 17, "b"));
    char *out = json_dumps(doc, 0);
    put(b, "kopia.repository", out, strlen(out));
    assert_ok(format_layer_seal(key, o.unique_id, 32, "{ \"later\":true}", 15, sealed, &e), &e);
    put(b, "kopia.blobcfg", sealed, 15 + FORMAT_LAYER_OVERHEAD);
    free(out);
    json_decref(doc);
    format_outer_clear(&o);
    free(data);
    free(inner);
}

static void change_password(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct blobs *b = store(BLOBS_CREATE);
    const struct format_create c = {.version = 3};
    assert_ok(format_create(b, &c, "old", &e), &e);
    add_unknown_members(b, "old");
    char *before = inner_of(b, "old");
    struct repo_format *f = NULL, *g = NULL;
    assert_ok(format_load(&f, b, "old", &e), &e);
    assert_ok(format_reload(&g, f, b, &e), &e);
    assert_memory_equal(g->master_key, f->master_key, 32);
    format_free(g);
    g = NULL;
    char copies_dir[128];
    snprintf(copies_dir, sizeof copies_dir, "%s.copies", dir);
    assert_int_equal(mkdir(copies_dir, 0700), 0);

    assert_int_equal(format_change_password(b, "wrong", "new", copies_dir, &e), -EBADMSG);
    assert_int_equal(e.cls, ERR_PASSWORD);
    assert_int_equal(format_change_password(b, "old", "", copies_dir, &e), -EINVAL);
    assert_int_equal(e.cls, ERR_USAGE);
    assert_int_equal(format_change_password(b, "old", "new", "/nonexistent/dir", &e), -ENOENT);
    assert_int_equal(files_in(copies_dir), 0);
    assert_ok(format_change_password(b, "old", "new", copies_dir, &e), &e);
    assert_int_equal(files_in(copies_dir), 0);

    assert_int_equal(format_load(&g, b, "old", &e), -EBADMSG);
    assert_int_equal(e.cls, ERR_PASSWORD);
    assert_int_equal(format_reload(&g, f, b, &e), -EBADMSG);
    assert_int_equal(e.cls, ERR_PASSWORD);
    assert_non_null(strstr(e.msg, "changed while"));
    assert_ok(format_load(&g, b, "new", &e), &e);
    assert_memory_equal(g->master_key, f->master_key, 32);
    assert_memory_equal(g->unique_id, f->unique_id, 32);
    json_t *doc = json_loadb((const char *)g->blob, g->blob_len, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(doc, "legacy"), "a")), 17);
    assert_null(json_object_get(doc, "encryptedBlockFormat"));
    json_decref(doc);
    char *after = inner_of(b, "new");
    assert_string_equal(after, before);
    uint8_t *cfg, plain[64];
    size_t len;
    assert_ok(blobs_get(b, "kopia.blobcfg", 1000, &cfg, &len, &e), &e);
    assert_int_equal(format_layer_open(g->format_key, g->unique_id, 32, cfg, len, plain, &e), 15);
    assert_memory_equal(plain, "{ \"later\":true}", 15);
    free(cfg);
    free(before);
    free(after);
    format_free(f);
    format_free(g);

    /* Another repository at the same place. */
    assert_ok(format_load(&f, b, "new", &e), &e);
    assert_ok(blobs_delete(b, "kopia.repository", &e), &e);
    assert_ok(blobs_delete(b, "kopia.blobcfg", &e), &e);
    assert_ok(format_create(b, &c, "new", &e), &e);
    assert_int_equal(format_reload(&g, f, b, &e), -ESTALE);
    format_free(f);
    blobs_free(b);
    assert_int_equal(rmdir(copies_dir), 0);
}

static void change_password_without_blobcfg(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct blobs *b = store(BLOBS_CREATE);
    const struct format_create c = {.version = 3};
    assert_ok(format_create(b, &c, "old", &e), &e);
    assert_ok(blobs_delete(b, "kopia.blobcfg", &e), &e);
    assert_ok(format_change_password(b, "old", "new", NULL, &e), &e);
    struct repo_format *f = NULL;
    assert_ok(format_load(&f, b, "new", &e), &e);
    format_free(f);
    struct blob_info info;
    assert_int_equal(blobs_stat(b, "kopia.blobcfg", &info, &e), -ENOENT);
    blobs_free(b);
}

/* Stopped between the two puts: both passwords say what is the matter, and a second run finishes. */
static void change_password_interrupted(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct faulty f = {.base = {.ops = &faulty_ops, .location = dir}, .real = store(BLOBS_CREATE)};
    const struct format_create c = {.version = 3};
    assert_ok(format_create(f.real, &c, "old", &e), &e);
    char copies[128];
    snprintf(copies, sizeof copies, "%s.copies", dir);
    assert_int_equal(mkdir(copies, 0700), 0);
    struct repo_format *r = NULL;

    f.fail_at = 1;
    assert_true(format_change_password(&f.base, "old", "new", copies, &e) < 0);
    assert_ok(format_load(&r, f.real, "old", &e), &e);
    format_free(r);
    r = NULL;

    f.puts = 0;
    f.fail_at = 2;
    assert_int_equal(format_change_password(&f.base, "old", "new", copies, &e), -ENOSPC);
    assert_int_equal(e.cls, ERR_NO_SPACE);
    assert_non_null(strstr(e.hint, copies));
    assert_int_equal(files_in(copies), 4);
    assert_int_equal(format_load(&r, f.real, "old", &e), -EBADMSG);
    assert_int_equal(e.cls, ERR_DAMAGE);
    assert_non_null(strstr(e.hint, "change-password"));
    assert_int_equal(format_load(&r, f.real, "new", &e), -EBADMSG);
    assert_int_equal(e.cls, ERR_DAMAGE);
    assert_non_null(strstr(e.hint, "change-password"));
    assert_int_equal(format_load(&r, f.real, "other", &e), -EBADMSG);
    assert_int_equal(e.cls, ERR_PASSWORD);
    /* Another new password does not fit what is half done. */
    assert_int_equal(format_change_password(f.real, "old", "other", copies, &e), -EBADMSG);
    assert_int_equal(e.cls, ERR_DAMAGE);
    assert_ok(format_change_password(f.real, "old", "new", copies, &e), &e);
    assert_ok(format_load(&r, f.real, "new", &e), &e);
    format_free(r);
    assert_int_equal(files_in(copies), 4); /* those of the failed runs stay, its own are gone */
    blobs_free(f.real);
    char cmd[160];
    snprintf(cmd, sizeof cmd, "rm -rf %s", copies);
    assert_int_equal(system(cmd), 0);
}

/* ---- passwords ---- */

static void passwords(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *want; /* NULL: refused */
    } cases[] = {
        {"secret", "secret"},
        {"secret\n", "secret"},
        {" \t\r\n\v\fpadded secret \r\n\n", "padded secret"},
        {"tab\tinside\n", "tab\tinside"},
        {"\xc2\xa0\xe3\x80\x80\xe2\x80\x8a x \xe2\x80\xa8\xc2\x85\xe1\x9a\x80\n", "x"},
        {"\xe2\x80\x8bx\xe2\x80\x8b", "\xe2\x80\x8bx\xe2\x80\x8b"}, /* zero width space is none */
        {"\xef\xbb\xbfx", "\xef\xbb\xbfx"},
        {"Zw\xc3\xb6lf", "Zw\xc3\xb6lf"},
        {"x\xc3\x85", "x\xc3\x85"}, /* ends in the second byte of a space */
        {"\xff\xfe", "\xff\xfe"},
        {"", NULL},
        {" \n\xc2\xa0\t", NULL},
    };
    struct err e = ERR_INIT;
    char *p = NULL;
    const char *file = in_dir("pw");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_bytes(file, cases[i].text, strlen(cases[i].text));
        int rc = password_read(&p, file, &e);
        if (!cases[i].want) {
            assert_int_equal(rc, -EINVAL);
            assert_int_equal(e.cls, ERR_USAGE);
            continue;
        }
        assert_ok(rc, &e);
        assert_string_equal(p, cases[i].want);
        password_free(p);
        p = NULL;
    }
    write_bytes(file, "a\0b", 3);
    assert_int_equal(password_read(&p, file, &e), -EINVAL);
    assert_int_equal(e.cls, ERR_USAGE);
    assert_non_null(strstr(e.msg, "NUL"));
    static char big[65537];
    memset(big, 'x', sizeof big);
    write_bytes(file, big, 65536);
    assert_ok(password_read(&p, file, &e), &e);
    assert_int_equal(strlen(p), 65536);
    password_free(p);
    p = NULL;
    write_bytes(file, big, 65537);
    assert_int_equal(password_read(&p, file, &e), -EFBIG);
    assert_int_equal(e.cls, ERR_USAGE);
    assert_int_equal(password_read(&p, in_dir("none"), &e), -ENOENT);
    assert_int_equal(e.cls, ERR_USAGE);
    assert_int_equal(password_read(&p, dir, &e), -EISDIR);
    assert_null(p);
    password_free(NULL);
}

static void password_permissions(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    char *p;
    const char *file = in_dir("pw");
    write_bytes(file, "x", 1);
    log_to(keep_log, NULL);
    last_log[0] = '\0';
    assert_int_equal(chmod(file, 0600), 0);
    assert_ok(password_read(&p, file, &e), &e);
    password_free(p);
    assert_string_equal(last_log, "");
    assert_int_equal(chmod(file, 0644), 0);
    assert_ok(password_read(&p, file, &e), &e);
    password_free(p);
    assert_non_null(strstr(last_log, file));
    log_to(NULL, NULL);
}

static void credentials(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    char *p = NULL;
    write_bytes(in_dir("main-password"), "from systemd\n", 13);
    unsetenv("CREDENTIALS_DIRECTORY");
    assert_int_equal(password_read(&p, "cred:main-password", &e), -ENOENT);
    assert_int_equal(e.cls, ERR_USAGE);
    assert_true(e.hint[0] != '\0');
    setenv("CREDENTIALS_DIRECTORY", dir, 1);
    assert_ok(password_read(&p, "cred:main-password", &e), &e);
    assert_string_equal(p, "from systemd");
    password_free(p);
    static const char *const bad[] = {"cred:", "cred:..", "cred:.", "cred:../etc/passwd", "cred:/etc/passwd"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(password_read(&p, bad[i], &e), -EINVAL);
    assert_int_equal(password_read(&p, "cred:other", &e), -ENOENT);
    unsetenv("CREDENTIALS_DIRECTORY");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_keys),
        cmocka_unit_test(hkdf_lengths),
        cmocka_unit_test(derivation_gives_memory_back),
        cmocka_unit_test(base64),
        T(golden_blobs),
        cmocka_unit_test(known_answers),
        T(create_as_stock),
        T(create_version_1),
        T(create_with_everything),
        T(create_refused),
        T(create_fails_clean),
        T(wrong_password_and_damage),
        cmocka_unit_test(inner_members),
        cmocka_unit_test(blobcfg_members),
        cmocka_unit_test(outer_members),
        T(damaged_documents),
        cmocka_unit_test(golden_locks),
        cmocka_unit_test(lock_times),
        T(change_password),
        T(change_password_without_blobcfg),
        T(change_password_interrupted),
        T(passwords),
        T(password_permissions),
        T(credentials),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
