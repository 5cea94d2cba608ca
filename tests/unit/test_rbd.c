/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Driver rbd without Ceph: names, what snapferry-rbd reports, owner tags, labels, what is mapped (RS-12, RS-13, CF-08).
 */
#include "tests/unit/test.h"

#include "base/cleanup.h"
#include "io/blockdev.h"
#include "io/native/rbd.h"

#include <errno.h>
#include <sys/stat.h>

#define FSID "11111111-2222-4333-8444-555555555555"
#define ALIAS "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"

static const struct driver_class gold = {.name = "gold", .driver = "rbd", .node = "n1", .target = ""};

static void names(void **state)
{
    (void)state;
    static const char *const good[] = {"vms/web1", "vms/lab/db", "a/b c", "*/*", "v?s/[ab]/*"};
    static const char *const bad[] = {"", "vms", "/vms", "vms/", "vms//x", "vms/a/", "a/b/c/d", "vms/a@b", "=vms/a"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(rbd_name_check(good[i], NULL), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_true(rbd_name_check(bad[i], NULL) < 0);
    assert_true(rbd_is_label("pool:vms") && rbd_is_label("tag:x=y") && !rbd_is_label("vms/x"));
}

static void patterns(void **state)
{
    (void)state;
    static const char *const match[] = {"vms/web*", "vms/db*", "vms/lab/*", "pool:ssd", "tag:x", NULL};
    struct driver_class c = gold;
    char **p;
    c.match = match;
    assert_int_equal(rbd_patterns(&c, false, &p, NULL), 0);
    static const char *const narrow[] = {"vms/web*", "vms/db*", "vms/lab/*", "ssd/*", "ssd/*/*", "*/*", "*/*/*"};
    for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++)
        assert_string_equal(p[i], narrow[i]);
    assert_null(p[sizeof narrow / sizeof *narrow]);
    rbd_patterns_free(&p);
    /* All images of their pools, each once. */
    assert_int_equal(rbd_patterns(&c, true, &p, NULL), 0);
    assert_string_equal(p[0], "vms/*");
    assert_string_equal(p[1], "vms/lab/*");
    assert_string_equal(p[2], "ssd/*");
    rbd_patterns_free(&p);
}

static void read_report(struct rbd_report *r, const char *snaps, const char *meta)
{
    char *text;
    struct err e = ERR_INIT;
    assert_true(asprintf(&text,
                         "{\"fsid\": \"" FSID "\", \"skipped\": [], \"images\": [{\"pool\": \"vms\", \"pool_id\": 2, "
                         "\"namespace\": \"\", \"name\": \"web1\", \"id\": \"10ab\", \"size\": 67108864, \"watched\": "
                         "true, \"snaps\": [%s], \"meta\": {%s}}]}",
                         snaps, meta) > 0);
    assert_int_equal(rbd_report_parse(r, &gold, text, &e), 0);
    assert_int_equal(r->n, 1);
}

static void reports(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"fsid\": \"x\", \"images\": []}",
        "{\"fsid\": \"" FSID "\", \"images\": [{}]}",
        "{\"fsid\": \"" FSID "\", \"images\": [{\"pool\": \"a\", \"pool_id\": -1, \"name\": \"b\", \"id\": \"c\", "
        "\"size\": 1, \"snaps\": [], \"meta\": {}}]}",
        "{\"fsid\": \"" FSID "\", \"images\": [{\"pool\": \"a\", \"pool_id\": 1, \"name\": \"b\", \"id\": \"../c\", "
        "\"size\": 1, \"snaps\": [], \"meta\": {}}]}"};
    struct rbd_report r;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err e = ERR_INIT;
        assert_true(rbd_report_parse(&r, &gold, strdup(bad[i]), &e) < 0);
        assert_non_null(strstr(e.msg, "snapferry-rbd"));
        rbd_report_free(&r);
    }
    struct volume v;
    read_report(&r, "",
                "\"snapferry.tag\": \"db, night\", \"owner\": \"jane\", \"note\": \"two words\", "
                "\"snapferry.native.x\": \"y\"");
    rbd_describe(&r, &r.image[0], &v);
    assert_string_equal(v.name, "vms/web1");
    assert_string_equal(v.id, "rbd:" FSID ":2:10ab");
    assert_string_equal(v.labels, "pool:vms tag:db tag:night tag:owner=jane");
    assert_true(v.in_use && v.block && v.size == 67108864);
    rbd_report_free(&r);
}

static int count_tag(const struct rbd_report *r, const struct rbd_image *i, const struct rbd_tag *t, void *arg)
{
    (void)r, (void)i, (void)t;
    ++*(int *)arg;
    return 0;
}

/* The tag that was written, with the number of a snapshot; `edit`: what stands in place of `what` in it. */
static void with_tag(struct rbd_report *ret, const char *snaps, const char *what, const char *edit)
{
    struct rbd_report r;
    struct native_tag tag = {.alias = ALIAS, .volume_id = "rbd:x", .volume_name = "vms/web1", .seq = 7};
    CLEANUP_FREE char *text = NULL;
    char meta[8192], edited[4096] = "";
    read_report(&r, "", "");
    assert_int_equal(rbd_tag_write(&gold, &r, &r.image[0], &tag, &text, NULL), 0);
    rbd_report_free(&r);
    char *at = strstr(text, what);
    assert_non_null(at);
    snprintf(edited, sizeof edited, "%.*s%s%s", (int)(at - text), text, edit, at + strlen(what));
    json_t *j = json_string(edited);
    CLEANUP_FREE char *quoted = json_dumps(j, JSON_ENCODE_ANY);
    json_decref(j);
    snprintf(meta, sizeof meta, "\"snapferry.native." ALIAS "\": %s", quoted);
    read_report(ret, snaps, meta);
}

#define SNAP "{\"id\": 9, \"name\": \"snapferry-" ALIAS "\", \"size\": 4096}"

static void tags(void **state)
{
    (void)state;
    struct rbd_report r;
    struct rbd_tag t;
    struct native n;
    struct driver_class other = gold;
    int found = 0;
    with_tag(&r, SNAP, "\"version\":1", "\"version\":1,\"snap\":9");
    assert_int_equal(rbd_tag_read(&gold, &r, &r.image[0], ALIAS, &t), 0);
    assert_true(rbd_native_of(&r, &r.image[0], &t, &n));
    assert_string_equal(n.handle, "vms/web1@snapferry-" ALIAS);
    assert_string_equal(n.change_id, "rbd:" FSID ":2:10ab:9");
    assert_true(n.size == 4096 && n.tag.seq == 7 && n.crash_consistent);
    assert_int_equal(rbd_tags(&gold, &r, count_tag, &found, NULL), 0);
    assert_int_equal(found, 1);
    other.node = "n2";
    assert_true(rbd_tag_read(&other, &r, &r.image[0], ALIAS, &t) < 0);
    rbd_report_free(&r);
    /* Incomplete; of another number; without its snapshot. */
    with_tag(&r, SNAP, "\"version\":1", "\"version\":1");
    assert_int_equal(rbd_tag_read(&gold, &r, &r.image[0], ALIAS, &t), 0);
    assert_false(rbd_native_of(&r, &r.image[0], &t, &n));
    rbd_report_free(&r);
    with_tag(&r, SNAP, "\"version\":1", "\"version\":1,\"snap\":8");
    assert_int_equal(rbd_tag_read(&gold, &r, &r.image[0], ALIAS, &t), 0);
    assert_false(rbd_native_of(&r, &r.image[0], &t, &n));
    rbd_report_free(&r);
    with_tag(&r, "", "\"version\":1", "\"version\":1,\"snap\":9");
    assert_int_equal(rbd_tag_read(&gold, &r, &r.image[0], ALIAS, &t), 0);
    assert_false(rbd_native_of(&r, &r.image[0], &t, &n));
    assert_true(n.size == 0 && !n.change_id[0]);
    rbd_report_free(&r);
    /* Copied with an image: of another image, pool or cluster; of another version. */
    static const char *const changes[][2] = {{"\"image\":\"10ab\"", "\"image\":\"10ac\""},
                                             {"\"pool_id\":2", "\"pool_id\":3"},
                                             {FSID, "99999999-2222-4333-8444-555555555555"},
                                             {"\"version\":1", "\"version\":2"}};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        with_tag(&r, SNAP, changes[i][0], changes[i][1]);
        assert_true(rbd_tag_read(&gold, &r, &r.image[0], ALIAS, &t) < 0);
        rbd_report_free(&r);
    }
}

/* What is printed of changes by a program in place of snapferry-rbd. */
static void changed(void **state)
{
    (void)state;
    static const struct {
        const char *out;
        int rc; /* of the driver */
        enum changed_state state;
        uint64_t bytes;
    } cases[] = {{"0 4096\n8192 1\nend 2\n", 0, CHANGED_LISTED, 4097},
                 {"end 0\n", 0, CHANGED_LISTED, 0},
                 {"0 4096\n", -1, CHANGED_LISTED, 0},
                 {"0 4096\nend 2\n", -1, CHANGED_LISTED, 0},
                 {"end 0\n0 4096\n", -1, CHANGED_LISTED, 0},
                 {"0 x\nend 1\n", -1, CHANGED_LISTED, 0},
                 {"-1 4096\nend 1\n", -1, CHANGED_LISTED, 0},
                 {"0 99999999999999999999999\nend 1\n", -1, CHANGED_LISTED, 0},
                 {"doubt the map is invalid\n", 0, CHANGED_UNCERTAIN, 0},
                 {"lost it is gone\n", 0, CHANGED_BASE_LOST, 0}};
    char path[] = "/tmp/snapferry-test_rbd.XXXXXX";
    const int fd = mkstemp(path);
    struct native base = {.handle = "vms/web1@snapferry-a", .change_id = "rbd:" FSID ":2:10ab:8"}, n = base;
    snprintf(n.change_id, sizeof n.change_id, "rbd:" FSID ":2:10ab:9");
    assert_true(fd >= 0);
    close(fd);
    rbd_program_test(path);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct changes *list CLEANUP(changes_freep) = NULL;
        struct changed_answer a = {.state = CHANGED_LISTED};
        struct err e = ERR_INIT;
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fprintf(f, "#!/bin/sh\n[ \"$*\" = 'changed vms  10ab 8 9' ] || exit 3\ncat <<'END'\n%sEND\n", cases[i].out);
        fclose(f);
        assert_int_equal(chmod(path, 0700), 0);
        assert_int_equal(changes_new(&list, NULL), 0);
        const int rc = rbd_changed(&gold, &base, &n, list, &a, &e);
        assert_int_equal(rc < 0 ? -1 : 0, cases[i].rc);
        assert_int_equal(a.state, cases[i].state);
        changes_finish(list);
        if (rc == 0 && a.state == CHANGED_LISTED)
            assert_int_equal(changes_bytes(list), cases[i].bytes);
    }
    struct changed_answer a = {.state = CHANGED_LISTED};
    snprintf(n.change_id, sizeof n.change_id, "rbd:" FSID ":2:10ac:9");
    assert_int_equal(rbd_changed(&gold, &base, &n, NULL, &a, NULL), 0);
    assert_int_equal(a.state, CHANGED_BASE_OTHER);
    rbd_program_test(NULL);
    unlink(path);
}

/* ---- restore targets ---- */

static void with_target(struct rbd_report *ret, const char *what, const char *edit)
{
    static const char text[] = "{\"version\":1,\"node\":\"n1\",\"cluster\":\"" FSID "\",\"alias\":\"" ALIAS
                               "\",\"final\":\"vms/x\",\"size\":4096,\"created_ns\":7,\"in_place\":true,\"pool_id\":2,"
                               "\"image\":\"10ab\",\"snap\":5}";
    char edited[1024], meta[4096];
    const char *at = strstr(text, what);
    assert_non_null(at);
    snprintf(edited, sizeof edited, "%.*s%s%s", (int)(at - text), text, edit, at + strlen(what));
    json_t *j = json_string(edited);
    CLEANUP_FREE char *quoted = json_dumps(j, JSON_ENCODE_ANY);
    json_decref(j);
    snprintf(meta, sizeof meta, "\"snapferry.restore." ALIAS "\": %s", quoted);
    read_report(ret, "", meta);
}

static void targets(void **state)
{
    (void)state;
    struct rbd_report r;
    struct rbd_target_tag t;
    struct driver_class other = gold;
    struct volume v;
    with_target(&r, "\"version\":1", "\"version\":1");
    assert_int_equal(rbd_target_tag_read(&gold, &r, &r.image[0], ALIAS, &t), 0);
    assert_string_equal(t.final, "vms/x");
    assert_true(t.size == 4096 && t.created_ns == 7 && t.in_place && !t.committed);
    other.node = "n2";
    assert_true(rbd_target_tag_read(&other, &r, &r.image[0], ALIAS, &t) < 0);
    rbd_describe(&r, &r.image[0], &v);
    assert_string_equal(v.labels, "pool:vms"); /* it is no label */
    rbd_report_free(&r);
    with_target(&r, "\"snap\":5", "\"committed\":true");
    assert_int_equal(rbd_target_tag_read(&gold, &r, &r.image[0], ALIAS, &t), 0);
    assert_true(t.committed);
    rbd_report_free(&r);
    /* Of another image, pool, cluster, version, alias; incomplete. */
    static const char *const changes[][2] = {{"\"10ab\"", "\"10ac\""},
                                             {"\"pool_id\":2", "\"pool_id\":3"},
                                             {FSID, "99999999-2222-4333-8444-555555555555"},
                                             {"\"version\":1", "\"version\":2"},
                                             {ALIAS, "bbbbbbbb-bbbb-4ccc-8ddd-eeeeeeeeeeee"},
                                             {"\"size\":4096,", ""},
                                             {"\"in_place\":true,", ""},
                                             {"{", "["}};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        with_target(&r, changes[i][0], changes[i][1]);
        assert_true(rbd_target_tag_read(&gold, &r, &r.image[0], ALIAS, &t) < 0);
        rbd_report_free(&r);
    }
    assert_true(rbd_is_staged("snapferry-" ALIAS));
    assert_false(rbd_is_staged("snapferry-x") || rbd_is_staged("web1") || rbd_is_staged("snapferry-" ALIAS "x"));
}

static void attribute(const char *device, const char *name, const char *value)
{
    char path[400];
    snprintf(path, sizeof path, "%s/bus/rbd/devices/%s", blockdev_sysfs_root(), device);
    assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
    snprintf(path, sizeof path, "%s/bus/rbd/devices/%s/%s", blockdev_sysfs_root(), device, name);
    CLEANUP_FCLOSE FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fprintf(f, "%s\n", value) > 0);
}

static void device(const char *name, const char *fsid, const char *pool, const char *image, const char *snap)
{
    attribute(name, "cluster_fsid", fsid);
    attribute(name, "pool_id", pool);
    attribute(name, "image_id", image);
    attribute(name, "current_snap", snap);
}

/* Only the image itself, by its ids: not a snapshot, nor an image of another pool or cluster. */
static void mapped(void **state)
{
    (void)state;
    static char root[] = "/tmp/snapferry-rbd.XXXXXX";
    struct rbd_report r;
    char found[4][RBD_DEVICE_MAX], path[200];
    read_report(&r, "", "");
    assert_non_null(mkdtemp(root));
    blockdev_sysfs_test(root);
    assert_int_equal(rbd_mapped(FSID, &r.image[0], found, 4), 0); /* there is no module rbd */
    for (const char *const *p = (const char *const[]){"/bus", "/bus/rbd", "/bus/rbd/devices", NULL}; *p; p++) {
        snprintf(path, sizeof path, "%s%s", root, *p);
        assert_return_code(mkdir(path, 0755), errno);
    }
    assert_int_equal(rbd_mapped(FSID, &r.image[0], found, 4), 0);
    device("0", FSID, "2", "10ab", "night");
    device("1", FSID, "3", "10ab", "-");
    device("2", FSID, "2", "10abc", "-");
    device("3", "21111111-2222-4333-8444-555555555555", "2", "10ab", "-");
    device("x", FSID, "2", "10ab", "-");
    attribute("4", "pool_id", "2");
    assert_int_equal(rbd_mapped(FSID, &r.image[0], found, 4), 0);
    device("17", FSID, "2", "10ab", "-");
    assert_int_equal(rbd_mapped(FSID, &r.image[0], found, 4), 1);
    assert_string_equal(found[0], "/dev/rbd17");
    device("5", FSID, "2", "10ab", "-");
    assert_int_equal(rbd_mapped(FSID, &r.image[0], found, 4), 2);
    assert_int_equal(rbd_mapped(FSID, &r.image[0], found, 1), 1);
    blockdev_sysfs_test("/sys");
    rbd_report_free(&r);
    snprintf(path, sizeof path, "rm -rf '%s'", root);
    assert_int_equal(system(path), 0);
}

/* What its id says of a volume. */
static void ids(void **state)
{
    (void)state;
    struct rbd_report r;
    struct rbd_image i;
    struct volume v;
    const char *fsid;
    char id[VOLUME_ID_MAX];
    read_report(&r, "", "");
    rbd_describe(&r, &r.image[0], &v);
    memcpy(id, v.id, sizeof id);
    assert_true(rbd_id_split(id, &i, &fsid));
    assert_string_equal(fsid, FSID);
    assert_true(i.pool_id == r.image[0].pool_id && strcmp(i.id, r.image[0].id) == 0);
    static const char *const none[] = {
        "", "rbd", "rbd:" FSID, "rbd:" FSID ":2", "rbd:" FSID ":2:", "rbd:" FSID ":x:10ab", "zfs:" FSID ":2:10ab"};
    for (size_t k = 0; k < sizeof none / sizeof *none; k++) {
        snprintf(id, sizeof id, "%s", none[k]);
        assert_false(rbd_id_split(id, &i, &fsid));
    }
    rbd_report_free(&r);
}

int main(void)
{
    setenv("SNAPFERRY_NO_SYSTEMD", "1", 1);
    const struct CMUnitTest all[] = {cmocka_unit_test(names),  cmocka_unit_test(patterns), cmocka_unit_test(reports),
                                     cmocka_unit_test(tags),   cmocka_unit_test(changed),  cmocka_unit_test(targets),
                                     cmocka_unit_test(mapped), cmocka_unit_test(ids)};
    return cmocka_run_group_tests(all, NULL, NULL);
}
