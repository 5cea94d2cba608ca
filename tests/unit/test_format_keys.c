/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_format_keys.c - keys of format blobs, base64, passwords and their change. */
#include "tests/unit/format.h"

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

/* A key that was derived before opens its repository without the password, and nothing else. */
static void known_key(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct blobs *b = store(BLOBS_CREATE);
    const struct format_create c = {.version = 3};
    assert_ok(format_create(b, &c, "p", &e), &e);
    struct repo_format *f = NULL, *g = NULL;
    struct format_key key, bad;
    assert_ok(format_load(&f, b, "p", &e), &e);
    format_key_of(f, &key);
    assert_ok(format_load_with_key(&g, b, &key, &e), &e);
    assert_memory_equal(g->master_key, f->master_key, 32);
    assert_memory_equal(g->format_key, f->format_key, 32);
    format_free(g);
    g = NULL;
    bad = key;
    bad.key[31] ^= 1;
    assert_int_equal(format_load_with_key(&g, b, &bad, &e), -EBADMSG);
    assert_int_equal(e.cls, ERR_PASSWORD);
    bad = key;
    bad.unique_id[0] ^= 1;
    assert_int_equal(format_load_with_key(&g, b, &bad, &e), -ESTALE);
    bad = key;
    bad.unique_id_len--;
    assert_int_equal(format_load_with_key(&g, b, &bad, &e), -ESTALE);
    bad = key;
    snprintf(bad.algo, sizeof bad.algo, "pbkdf2-sha256-600000");
    assert_int_equal(format_load_with_key(&g, b, &bad, &e), -ESTALE);
    assert_null(g);
    /* Of the password before, after a change of it. */
    assert_ok(format_change_password(b, "p", "q", NULL, &e), &e);
    assert_int_equal(format_load_with_key(&g, b, &key, &e), -EBADMSG);
    format_free(f);
    blobs_free(b);
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
    write_bytes(file, "", 0);
    assert_int_equal(chmod(file, 0600), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_bytes(file, cases[i].text, strlen(cases[i].text));
        int rc = password_read(&p, file, false, &e);
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
    assert_int_equal(password_read(&p, file, false, &e), -EINVAL);
    assert_int_equal(e.cls, ERR_USAGE);
    assert_non_null(strstr(e.msg, "NUL"));
    static char big[65537];
    memset(big, 'x', sizeof big);
    write_bytes(file, big, 65536);
    assert_ok(password_read(&p, file, false, &e), &e);
    assert_int_equal(strlen(p), 65536);
    password_free(p);
    p = NULL;
    write_bytes(file, big, 65537);
    assert_int_equal(password_read(&p, file, false, &e), -EFBIG);
    assert_int_equal(e.cls, ERR_USAGE);
    assert_int_equal(password_read(&p, in_dir("none"), false, &e), -ENOENT);
    assert_int_equal(e.cls, ERR_USAGE);
    assert_int_equal(password_read(&p, dir, false, &e), -EINVAL);
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
    static const struct {
        mode_t mode;
        gid_t group; /* of the file, where this is root */
        bool refused;
    } cases[] = {{0600, 0, false}, {0400, 0, false}, {0640, 0, false}, {0611, 0, false},
                 {0640, 1, true},  {0644, 0, true},  {0604, 0, true},  {0440, 65534, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (cases[i].group && geteuid() != 0)
            continue;
        assert_int_equal(chmod(file, cases[i].mode), 0);
        assert_true(geteuid() != 0 || chown(file, 0, cases[i].group) == 0);
        last_log[0] = '\0';
        if (cases[i].refused) {
            assert_int_equal(password_read(&p, file, false, &e), -EINVAL);
            assert_int_equal(e.cls, ERR_USAGE);
            assert_non_null(strstr(e.msg, "is readable by others"));
            assert_non_null(strstr(e.hint, "chmod 600 "));
            assert_int_equal(password_check(file, false, &e), -EINVAL);
            assert_string_equal(last_log, "");
        }
        assert_ok(password_check(file, true, &e), &e);
        assert_string_equal(last_log, "");
        assert_ok(password_read(&p, file, cases[i].refused, &e), &e);
        password_free(p);
        assert_int_equal(strstr(last_log, file) != NULL, cases[i].refused);
    }
    /* systemd grants a service's user access to its credentials by a list: mode 0440. */
    assert_int_equal(chmod(file, 0444), 0);
    setenv("CREDENTIALS_DIRECTORY", dir, 1);
    assert_ok(password_read(&p, file, false, &e), &e);
    password_free(p);
    assert_ok(password_read(&p, "cred:pw", false, &e), &e);
    password_free(p);
    unsetenv("CREDENTIALS_DIRECTORY");
    assert_int_equal(chmod(file, 0600), 0);
    log_to(NULL, NULL);
}

static void credentials(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    char *p = NULL;
    write_bytes(in_dir("main-password"), "from systemd\n", 13);
    unsetenv("CREDENTIALS_DIRECTORY");
    assert_int_equal(password_read(&p, "cred:main-password", false, &e), -ENOENT);
    assert_int_equal(e.cls, ERR_USAGE);
    assert_true(e.hint[0] != '\0');
    setenv("CREDENTIALS_DIRECTORY", dir, 1);
    assert_ok(password_read(&p, "cred:main-password", false, &e), &e);
    assert_string_equal(p, "from systemd");
    password_free(p);
    static const char *const bad[] = {"cred:", "cred:..", "cred:.", "cred:../etc/passwd", "cred:/etc/passwd"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(password_read(&p, bad[i], false, &e), -EINVAL);
    assert_int_equal(password_read(&p, "cred:other", false, &e), -ENOENT);
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
        T(known_key),
        T(change_password),
        T(change_password_without_blobcfg),
        T(change_password_interrupted),
        T(passwords),
        T(password_permissions),
        T(credentials),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
