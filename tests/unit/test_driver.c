/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Drivers without storage: names, documents, and the choice of a mechanism (decisions 3; PVC-05, PVC-06, PVC-10). */
#include "tests/unit/test.h"

#include "daemon/records/driver-kind.h"
#include "io/volume-id.h"
#include "io/native/driver.h"
#include "io/native/json-fields.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_registry(void **state)
{
    (void)state;
    unsigned n = 0;
    for (; driver_at(n); n++) {
        assert_non_null(driver_at(n)->name);
        assert_true(strlen(driver_at(n)->text) > 10);
    }
    assert_int_equal(n, 9);
    assert_null(driver_at(n + 7));
    assert_ptr_equal(driver_by_name("reflink"), &driver_reflink);
    assert_ptr_equal(driver_by_name("device"), &driver_device);
    assert_ptr_equal(driver_by_name("lvm-thin"), &driver_lvm_thin);
    assert_ptr_equal(driver_by_name("lvm"), &driver_lvm);
    assert_ptr_equal(driver_by_name("zfs"), &driver_zfs);
    assert_ptr_equal(driver_by_name("nbd"), &driver_nbd);
    assert_ptr_equal(driver_by_name("qemu"), &driver_qemu);
    assert_ptr_equal(driver_by_name("plugin:nas"), &driver_plugin);
    assert_null(driver_by_name("plugin:"));
    assert_null(driver_by_name("plugin"));
    assert_null(driver_by_name(""));
    assert_null(driver_by_name(NULL));
    assert_ptr_equal(driver_by_name("rbd"), &driver_rbd);
    assert_null(driver_by_name("reflnik"));
}

static void test_alias(void **state)
{
    (void)state;
    char a[64][ALIAS_LEN + 1];
    for (int i = 0; i < 64; i++) {
        alias_new(a[i]);
        assert_int_equal(strlen(a[i]), ALIAS_LEN);
        assert_true(alias_valid(a[i]));
        assert_int_equal(a[i][14], '4');
        assert_non_null(strchr("89ab", a[i][19]));
        for (int k = 0; k < i; k++)
            assert_string_not_equal(a[i], a[k]);
    }
    static const char *const bad[] = {"",
                                      "..",
                                      "../../../../../../../../etc/passwd12",
                                      "11111111-1111-4111-8111-11111111111",
                                      "11111111-1111-4111-8111-1111111111111",
                                      "11111111-1111-4111-8111-11111111111A",
                                      "11111111/1111-4111-8111-111111111111",
                                      "111111111111-4111-8111-1111-11111111"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(alias_valid(bad[i]));
}

/* ---- the table of decisions 3, cell by cell ---- */

#define NONE (-1)
#define ALL_OWN (DRIVER_NATIVE_RO | DRIVER_CLONE | DRIVER_OVERLAY)

static const struct {
    const char *what;
    unsigned own, into;
    bool other, same_pool, read_only;
    int want;
} cells[] = {
    {"own, read-only: native", ALL_OWN, 0, false, false, true, EXPOSE_NATIVE},
    {"own, read-only, native only", DRIVER_NATIVE_RO, 0, false, false, true, EXPOSE_NATIVE},
    {"own, read-only, no native but clones (PVC-02)", DRIVER_CLONE, 0, false, false, true, EXPOSE_CLONE},
    {"own, read-only, overlay is no way", DRIVER_OVERLAY, 0, false, false, true, NONE},
    {"own, read-only, nothing", DRIVER_SNAPSHOT, 0, false, false, true, NONE},
    {"own, writable: clone", ALL_OWN, 0, false, false, false, EXPOSE_CLONE},
    {"own, writable, no clones: overlay", DRIVER_NATIVE_RO | DRIVER_OVERLAY, 0, false, false, false, EXPOSE_OVERLAY},
    {"own, writable, neither", DRIVER_NATIVE_RO, 0, false, false, false, NONE},
    {"same pool, read-only: clone", ALL_OWN, DRIVER_COPY_TARGET, true, true, true, EXPOSE_CLONE},
    {"same pool, writable: clone", ALL_OWN, DRIVER_COPY_TARGET, true, true, false, EXPOSE_CLONE},
    {"same pool, no clones: copy", DRIVER_NATIVE_RO, DRIVER_COPY_TARGET, true, true, true, EXPOSE_COPY},
    {"elsewhere, read-only: copy", ALL_OWN, DRIVER_COPY_TARGET, true, false, true, EXPOSE_COPY},
    {"elsewhere, read-only, no room for copies", ALL_OWN, DRIVER_CLONE, true, false, true, NONE},
    {"elsewhere, writable: overlay", ALL_OWN, DRIVER_COPY_TARGET, true, false, false, EXPOSE_OVERLAY},
    {"elsewhere, writable, no overlay: copy", DRIVER_NATIVE_RO | DRIVER_CLONE, DRIVER_COPY_TARGET, true, false, false,
     EXPOSE_COPY},
    {"elsewhere, writable, nothing", DRIVER_NATIVE_RO | DRIVER_CLONE, DRIVER_CLONE, true, false, false, NONE},
};

static void test_choose(void **state)
{
    (void)state;
    struct driver_class own = {.name = "gold", .driver = "reflink", .target = ""};
    struct driver_class into = {.name = "scratch", .driver = "reflink", .target = "/srv/scratch"};
    for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++) {
        struct expose_request q = {.own = &own,
                                   .own_abilities = cells[i].own,
                                   .into = cells[i].other ? &into : NULL,
                                   .into_abilities = cells[i].into,
                                   .same_pool = cells[i].same_pool,
                                   .read_only = cells[i].read_only};
        enum expose_mechanism m = (enum expose_mechanism)77;
        struct err e = ERR_INIT;
        int rc = expose_choose(&q, &m, &e);
        if (cells[i].want == NONE) {
            if (rc >= 0 || e.cls != ERR_USAGE || !e.hint[0] || !strstr(e.msg, "gold"))
                fail_msg("%s: %d, %s", cells[i].what, rc, e.msg);
            if (cells[i].other)
                assert_non_null(strstr(e.msg, "scratch"));
        } else if (rc < 0 || (int)m != cells[i].want) {
            fail_msg("%s: %d, %s, %s", cells[i].what, rc, expose_mechanism_name(m), e.msg);
        }
    }
    /* A class that names itself is its own. */
    struct driver_class twin = own;
    struct expose_request q = {.own = &own, .own_abilities = ALL_OWN, .into = &twin, .read_only = true};
    enum expose_mechanism m;
    assert_ok(expose_choose(&q, &m, NULL), &(struct err){0});
    assert_int_equal(m, EXPOSE_NATIVE);
}

static void test_same_pool(void **state)
{
    (void)state;
    struct volume v = {.name = "/srv/vm/a.img", .pool = "tank"};
    struct driver_class own = {.name = "a", .driver = "reflink", .target = ""}, into = own;
    assert_true(expose_same_pool(&own, &v, NULL));
    assert_true(expose_same_pool(&own, &v, &own));
    into.name = "b";
    assert_false(expose_same_pool(&own, &v, &into)); /* no target: no place */
    into.target = "/no/such/directory";
    assert_false(expose_same_pool(&own, &v, &into));
    into.driver = "device";
    assert_false(expose_same_pool(&own, &v, &into));
    own.driver = "device";
    assert_false(expose_same_pool(&own, &v, &into)); /* devices never clone */
    own.driver = into.driver = "rbd";
    assert_false(expose_same_pool(&own, &v, &into)); /* images are read as they are */
    own.driver = into.driver = "nosuch";
    assert_false(expose_same_pool(&own, &v, &into)); /* not of this build */
    own.driver = "plugin:nas";
    into.driver = "plugin:san";
    into.target = "tank";
    assert_false(expose_same_pool(&own, &v, &into)); /* another plugin's words */
    into.driver = "plugin:nas";
    assert_true(expose_same_pool(&own, &v, &into));
}

/* ---- documents ---- */

static struct native sample(void)
{
    struct native n = {.handle = "/srv/vm/.snapferry/x.native", .size = INT64_MAX, .used = UINT64_MAX};
    alias_new(n.tag.alias);
    strcpy(n.tag.volume_id, "reflink.u.1.2");
    strcpy(n.tag.volume_name, "/srv/vm/new\nline \xc3\xa4.img");
    strcpy(n.tag.backup, "manual-1");
    strcpy(n.change_id, "lv.4711.9");
    n.tag.created_ns = -5;
    n.tag.seq = 1;
    n.crash_consistent = true;
    return n;
}

static void test_documents(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct native n = sample(), back;
    json_t *j = native_to_json(&n);
    assert_non_null(j);
    assert_ok(native_from_json(&back, j, &e), &e);
    assert_memory_equal(&back, &n, sizeof n);
    assert_true(json_is_null(json_object_get(j, "used")));
    /* Every member that is missing, of the wrong type, or too long is named. */
    const char *key;
    json_t *value;
    json_t *keys = json_copy(j);
    json_object_foreach(keys, key, value)
    {
        json_t *wrong = json_deep_copy(j);
        json_object_set_new(wrong, key, json_is_array(value) ? json_true() : json_array());
        assert_int_equal(native_from_json(&back, wrong, &e), -EINVAL);
        assert_int_equal(e.cls, ERR_GENERIC);
        assert_non_null(strstr(e.msg, key));
        json_decref(wrong);
        if (!strcmp(key, "used") || !strcmp(key, "backup") || !strcmp(key, "operation") || !strcmp(key, "repository") ||
            !strcmp(key, "change_id"))
            continue;
        json_t *less = json_deep_copy(j);
        json_object_del(less, key);
        assert_int_equal(native_from_json(&back, less, &e), -EINVAL);
        assert_non_null(strstr(e.msg, key));
        json_decref(less);
    }
    char *huge = malloc(100000);
    memset(huge, 'a', 99999);
    huge[99999] = '\0';
    json_object_set_new(j, "handle", json_string(huge));
    assert_int_equal(native_from_json(&back, j, &e), -EINVAL);
    json_object_set_new(j, "handle", json_stringn("a\0b", 3));
    assert_int_equal(native_from_json(&back, j, &e), -EINVAL);
    json_object_set_new(j, "handle", json_string("/x"));
    json_object_set_new(j, "alias", json_string("../../etc/shadow"));
    assert_int_equal(native_from_json(&back, j, &e), -EINVAL);
    free(huge);
    json_decref(keys);
    json_decref(j);
    /* What is no text has no document, rather than a wrong one. */
    strcpy(n.handle, "/srv/\xff.img");
    assert_null(native_to_json(&n));
    json_t *array = json_array();
    struct volume v;
    struct exposure x;
    struct restore_target t;
    assert_int_equal(native_from_json(&back, NULL, &e), -EINVAL);
    assert_int_equal(volume_from_json(&v, array, &e), -EINVAL);
    assert_int_equal(exposure_from_json(&x, array, &e), -EINVAL);
    assert_int_equal(target_from_json(&t, array, &e), -EINVAL);
    json_decref(array);
}

static void test_exposures_documents(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct exposure x = {.mechanism = EXPOSE_OVERLAY,
                         .read_only = true,
                         .path = "/dev/dm-9",
                         .handle = "cow",
                         .klass = "scratch",
                         .where = "vg0",
                         .size = 4096,
                         .copied = 1,
                         .seconds = 0.25};
    struct exposure back;
    alias_new(x.alias);
    json_t *j = exposure_to_json(&x);
    assert_ok(exposure_from_json(&back, j, &e), &e);
    assert_memory_equal(&back, &x, sizeof x);
    json_object_set_new(j, "mechanism", json_string("teleport"));
    assert_int_equal(exposure_from_json(&back, j, &e), -EINVAL);
    assert_non_null(strstr(e.msg, "mechanism"));
    json_object_set_new(j, "mechanism", json_string("copy"));
    json_object_set_new(j, "size", json_integer(-1));
    assert_int_equal(exposure_from_json(&back, j, &e), -EINVAL);
    json_decref(j);
    /* A volume that is known by its native snapshot alone (RS-15). */
    struct volume v;
    j = json_pack("{s:s, s:s, s:i}", "id", "reflink.u.1.2", "name", "/srv/a.img", "size", 512);
    assert_ok(volume_from_json(&v, j, &e), &e);
    assert_true(v.allocated == UINT64_MAX && v.sector == 512 && !v.block && !v.in_use);
    json_object_set_new(j, "sector", json_integer(1LL << 40));
    assert_int_equal(volume_from_json(&v, j, &e), -EINVAL);
    json_decref(j);
}

static void test_device_ids(void **state)
{
    (void)state;
    static const char *const names[] = {"/fs-uuid/0B2F-11",  "/fs:uuid/0B2F-11",       "/loop/srv/a b.img",
                                        "/loop/srv/a_b.img", "/loop/srv/a_20b.img",    "/loop/srv/a:b.img",
                                        "/loop/srv/a/b.img", "/loop/srv/\xc3\xa4.img", "/loop/srv/a.img@512",
                                        "/serial/X"};
    char id[24][VOLUME_ID_MAX];
    size_t n = sizeof names / sizeof names[0];
    for (size_t i = 0; i < n; i++)
        device_id_text(names[i], id[i]);
    /* Long ones that differ at their ends only. */
    char name[5000];
    for (size_t k = 0; k < 3; k++) {
        memset(name, k < 2 ? 'a' : '/', sizeof name);
        name[sizeof name - 2] = (char)('x' + k);
        name[sizeof name - 1] = '\0';
        device_id_text(name, id[n++]);
    }
    for (size_t i = 0; i < n; i++) {
        assert_true(strlen(id[i]) < VOLUME_ID_MAX);
        for (const char *p = id[i]; *p; p++)
            assert_true(isalnum((unsigned char)*p) || strchr("._:-", *p));
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(id[i], id[k]);
    }
    assert_string_equal(id[0], "device:fs-uuid:0B2F-11");
}

static void labels_of_names(void **state)
{
    (void)state;
    static const struct {
        const char *name, *want; /* NULL: none */
    } cases[] = {
        {"/dev/zvol/tank/vm/new", "dataset:tank/vm/new pool:tank"},
        {"/dev/zvol/tank/new", "dataset:tank/new pool:tank"},
        {"/dev/zvol/tank", NULL},
        {"/dev/zvol//new", NULL},
        {"/dev/zvol/tank/a b", NULL},
        {"/dev/vg0/new", "vg:vg0"},
        {"/dev/vg0/", NULL},
        {"/dev//new", NULL},
        {"/dev/sda", NULL},
        {"/dev/disk/by-id/x", NULL},
        {"/srv/vg0/new", NULL},
        {"vms/new", "pool:vms"},
        {"vms/lab/new", "pool:vms"},
        {"vms/a b", NULL},
        {"vms", NULL},
        {"./vms/new", NULL},
        {"nbd://host/x", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char labels[VOLUME_LABELS_MAX];
        assert_int_equal(driver_target_labels(cases[i].name, labels), cases[i].want != NULL);
        if (cases[i].want)
            assert_string_equal(labels, cases[i].want);
    }
}

static void drivers_of_names(void **state)
{
    (void)state;
    static const struct {
        const char *name, *driver;
        bool remote;
    } cases[] = {
        {"/srv/vm/a.img", "reflink", false}, {"nbd://host/x", "nbd", true}, {"nbd+unix:///x?socket=/s", "nbd", true},
        {"vms/web1", "rbd", true},           {"vms/lab/db", "rbd", true},   {"./vms/web1", "reflink", false},
        {"../web1", "reflink", false},       {"web1", "reflink", false},    {"a/b/c/d", "reflink", false},
        {"vms/web1@x", "reflink", false},    {"vms/", "reflink", false},    {"", "reflink", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_string_equal(driver_of_target(cases[i].name, false), cases[i].driver);
        assert_int_equal(driver_target_is_remote(cases[i].name), cases[i].remote);
    }
    assert_string_equal(driver_of_target("/dev/sda", true), "device");
}

/* Which of the options of a class a driver obeys. */
static void options(void **state)
{
    (void)state;
    struct driver_class c = {.name = "gold", .driver = "device"};
    for (unsigned i = 0; driver_at(i); i++) {
        const struct driver *d = driver_at(i);
        const bool some = d == &driver_rbd || d == &driver_device || d == &driver_plugin;
        assert_int_equal(d->takes_option != NULL, some);
    }
    assert_true(driver_rbd.takes_option(&c, "ceph-user") && driver_rbd.takes_option(&c, "ceph-config"));
    assert_false(driver_rbd.takes_option(&c, "user"));
    assert_false(driver_device.takes_option(&c, "ceph-user"));
    c.overlay_hook = "/x";
    assert_true(driver_device.takes_option(&c, "ceph-user") && driver_plugin.takes_option(&c, "x"));
}

/* What is decided by the name of a driver is what the driver states. */
static void kinds(void **state)
{
    (void)state;
    for (unsigned i = 0; driver_at(i); i++) {
        const struct driver *d = driver_at(i);
        const struct driver_kind *k = driver_kind_of(d->name);
        assert_int_equal(k->raw != NULL, (d->traits & DRIVER_RAW) != 0);
        assert_int_equal(k->has_peers, (d->traits & DRIVER_PEERS) != 0);
        assert_int_equal(k->has_cow, (d->traits & DRIVER_COW_SIZE) != 0);
        assert_int_equal(k->has_cluster, (d->traits & DRIVER_CLUSTER) != 0);
        assert_int_equal(k->has_bookmarks, (d->traits & DRIVER_BOOKMARKS) != 0);
        assert_int_equal(k->has_bookmarks, d->bookmark && d->bookmark_find && d->bookmark_remove && d->bookmarks);
    }
    assert_int_equal(driver_device.traits | driver_nbd.traits | driver_lvm.traits | driver_rbd.traits |
                         driver_zfs.traits,
                     DRIVER_RAW | DRIVER_PEERS | DRIVER_COW_SIZE | DRIVER_CLUSTER | DRIVER_BOOKMARKS);
}

/* What is in the place of a native snapshot that is not seen stays, and is told: its tag may be there again (RS-11). */
static void test_untagged(void **state)
{
    struct err e = ERR_INIT;
    struct driver_class c = {.name = "images", .driver = "reflink", .node = "n"};
    struct native *n = calloc(1, sizeof *n);
    struct stat st;
    (void)state;
    assert_non_null(n);
    snprintf(n->handle, sizeof n->handle, "/tmp/snapferry-untagged.XXXXXX");
    int fd = mkstemp(n->handle);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(driver_reflink.untagged(&c, n, &e), -ESTALE);
    assert_int_equal(e.cls, ERR_PERMISSION);
    assert_int_equal(stat(n->handle, &st), 0);
    assert_int_equal(unlink(n->handle), 0);
    assert_int_equal(driver_reflink.untagged(&c, n, &e), 0);
    n->handle[0] = '\0';
    assert_int_equal(driver_reflink.untagged(&c, n, &e), 0);
    free(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_registry),
                                       cmocka_unit_test(test_untagged),
                                       cmocka_unit_test(test_alias),
                                       cmocka_unit_test(test_choose),
                                       cmocka_unit_test(test_same_pool),
                                       cmocka_unit_test(test_documents),
                                       cmocka_unit_test(test_exposures_documents),
                                       cmocka_unit_test(test_device_ids),
                                       cmocka_unit_test(labels_of_names),
                                       cmocka_unit_test(drivers_of_names),
                                       cmocka_unit_test(options),
                                       cmocka_unit_test(kinds)};
    return cmocka_run_group_tests_name("drivers", tests, NULL, NULL);
}
