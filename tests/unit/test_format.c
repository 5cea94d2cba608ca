/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_format.c - format blobs: golden ones opened, own ones compared byte for byte, everything wrong refused. */
#include "tests/unit/format.h"

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
        {"\"version\":3", "\"version\":4,\"hash\":17", ERR_FORMAT, "supports 1 to 3"},
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
         ERR_FORMAT, "\"quantum\", which this version does not support: get new"},
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

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
