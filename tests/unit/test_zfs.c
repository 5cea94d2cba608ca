/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The driver zfs without ZFS: real output of zfs get and zpool get, owner tags, holds, names, a real send stream, and
 * the sentences of its errors. The rest is tests/vm/14-zfs.sh. */
#include "tests/unit/places.h"
#include "tests/unit/test.h"
#include "tests/unit/zfs-standin.h"

#include "base/throttle.h"
#include "base/time.h"
#include "io/native/zfs-stream.h"
#include "io/native/zfs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>

static int setup(void **state)
{
    (void)state;
    setenv("SNAPFERRY_NO_SYSTEMD", "1", 1);
    return mkdtemp(dir) && chmod(dir, 0755) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    char path[300];
    (void)state;
    snprintf(path, sizeof path, "%s/zfs", dir);
    unlink(path);
    return rmdir(dir);
}

static char *fixture(const char *name, size_t *len)
{
    FILE *f = fopen(fixture_path(name), "r");
    assert_non_null(f);
    char *text = calloc(1, 65536);
    *len = fread(text, 1, 65535, f);
    fclose(f);
    assert_true(*len > 100);
    return text;
}

static struct zfs_report real_report(void)
{
    struct zfs_report r;
    struct err e = ERR_INIT;
    size_t len;
    assert_int_equal(zfs_report_parse(&r, fixture("zfs/get", &len), &e), 0);
    return r;
}

/* ---- reports ---- */

static void a_real_report(void **state)
{
    (void)state;
    struct zfs_report r = real_report();
    assert_int_equal(r.n, 4);
    const struct zfs_row *v = zfs_find(&r, "tank/vm/d1"), *s = zfs_find(&r, "tank/vm/d1@s1");
    const struct zfs_row *c = zfs_find(&r, "tank/vm/c1");
    assert_true(v && s && c && !zfs_find(&r, "tank/vm") && !v->snapshot && s->snapshot);
    assert_true(v->guid == 10282077169542838889u && v->size == 32 << 20 && v->block == 16384 && !v->reserved);
    assert_true(v->referenced == 3160064 && v->used == 4257792 && v->txg == 10 && !v->owner[0] && !v->origin[0]);
    assert_string_equal(v->snapdev, "hidden");
    assert_string_equal(v->snapdev_from, "default");
    assert_true(s->guid == 10004321963652763769u && s->users == 1 && s->size == 32 << 20 && s->used == 1214464);
    assert_string_equal(s->owner, "[{\"a\":1}]");
    assert_string_equal(c->origin, "tank/vm/d1@s2");
    assert_string_equal(zfs_find(&r, "tank/vm/d1@s2")->clones, "tank/vm/c1");
    assert_true(zfs_volume_guid(&r, "tank/vm/d1@s1") == v->guid && zfs_volume_guid(&r, "tank/other@x") == 0);
    zfs_report_free(&r);
}

/* What is missing, changed or twice is an error and never a guess. */
static void reports_are_read_strictly(void **state)
{
    (void)state;
    size_t len;
    char *text = fixture("zfs/get", &len);
    for (size_t n = 1; n < len; n += n < 700 ? 1 : 13) {
        struct zfs_report r = ZFS_REPORT_INIT;
        struct err e = ERR_INIT;
        int rc = zfs_report_parse(&r, strndup(text, n), &e);
        /* Cut between two objects it is a shorter report. */
        if (rc == 0)
            assert_true(text[n - 1] == '\n' && n < len && r.n < 4);
        else
            assert_true(e.cls == ERR_GENERIC && strstr(e.msg, "cannot read what zfs get reports"));
        zfs_report_free(&r);
    }
    free(text);
    static const struct {
        const char *from, *to, *says;
    } cases[] = {
        {"guid\t-\t10282077169542838889", "guid\t-\t-1", "guid is not a number"},
        {"guid\t-\t10282077169542838889", "guid\t-\t0", "has no guid"},
        {"volsize\tlocal\t33554432\ntank/vm/d1\tvolblock", "volsize\tlocal\t32M\ntank/vm/d1\tvolblock",
         "volsize is not a number"},
        {"tank/vm/d1\tcreatetxg", "tank/vm/d2\tcreatetxg", "not what was asked for"},
        {"tank/vm/d1\tcreatetxg", "tank/vm/d1\ttxg", "not what was asked for"},
        {"tank/vm/d1\tcreatetxg\t-", "tank/vm/d1\tcreatetxg ", "not complete"},
        {"[{\"a\":1}]", "x\ntank/vm/d1\tsnapferry:owner\tlocal\tforged", "not what was asked for"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct zfs_report r;
        struct err e = ERR_INIT;
        text = fixture("zfs/get", &len);
        char *at = strstr(text, cases[i].from), *changed = calloc(1, len + 200);
        assert_non_null(at);
        snprintf(changed, len + 200, "%.*s%s%s", (int)(at - text), text, cases[i].to, at + strlen(cases[i].from));
        assert_true(zfs_report_parse(&r, changed, &e) < 0);
        if (!strstr(e.msg, cases[i].says))
            fail_msg("case %zu: %s", i, e.msg);
        free(text);
    }
    struct zfs_report r;
    struct err e = ERR_INIT;
    text = fixture("zfs/get", &len);
    char *twice = calloc(2, len + 1);
    snprintf(twice, 2 * len + 1, "%s%s", text, text);
    free(text);
    assert_true(zfs_report_parse(&r, twice, &e) < 0 && strstr(e.msg, "twice"));
}

static void a_real_pool(void **state)
{
    (void)state;
    struct zfs_pool p;
    size_t len;
    char *text = fixture("zfs/pool", &len);
    assert_int_equal(zfs_pool_parse(&p, text, NULL), 0);
    assert_true(p.guid == 14735839334937578500u && p.size == 1342177280 && p.allocated == 4502528 && !p.read_only);
    assert_true(p.freeing == 0);
    assert_string_equal(p.name, "tank");
    for (size_t n = 0; n < len; n++) {
        struct err e = ERR_INIT;
        char *part = strndup(text, n);
        assert_true(zfs_pool_parse(&p, part, &e) < 0 && e.cls == ERR_GENERIC);
        free(part);
    }
    free(text);
    /* What a destroyed snapshot leaves is part of what is allocated, and never more than that. */
    static const char of_freeing[] = "tank\tguid\t1\ntank\tsize\t100\ntank\tallocated\t90\ntank\tfreeing\t%u\n"
                                     "tank\thealth\tONLINE\ntank\treadonly\toff\n";
    for (unsigned freeing = 40; freeing < 100; freeing += 55) {
        char own[200];
        snprintf(own, sizeof own, of_freeing, freeing);
        assert_int_equal(zfs_pool_parse(&p, own, NULL), 0);
        assert_int_equal(p.freeing, freeing < 90 ? freeing : 90);
    }
    static const struct {
        const char *health;
        uint64_t size, allocated;
        bool read_only;
        enum err_class cls;
        const char *says;
    } cases[] = {{"ONLINE", 100, 94, false, ERR_NONE, ""},
                 {"DEGRADED", 100, 10, false, ERR_NONE, ""},
                 {"ONLINE", 1000, 951, false, ERR_NO_SPACE, "pool tank is 95.1 % full"},
                 {"ONLINE", 100, 1, true, ERR_PERMISSION, "imported read-only"},
                 {"SUSPENDED", 100, 1, false, ERR_SOURCE, "pool tank is SUSPENDED"},
                 {"FAULTED", 0, 0, false, ERR_SOURCE, "pool tank is FAULTED"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = ERR_INIT;
        p = (struct zfs_pool){
            .name = "tank", .size = cases[i].size, .allocated = cases[i].allocated, .read_only = cases[i].read_only};
        snprintf(p.health, sizeof p.health, "%s", cases[i].health);
        int rc = zfs_pool_check(&p, "cannot do it", &e);
        assert_true((rc < 0) == (cases[i].cls != ERR_NONE) && e.cls == cases[i].cls && strstr(e.msg, cases[i].says));
    }
}

/* ---- labels ---- */

struct gathered {
    unsigned n;
    char text[400];
};

static int gather(const char *name, const char *labels, bool full, void *arg)
{
    struct gathered *g = arg;
    const size_t n = strlen(g->text);
    g->n++;
    snprintf(g->text + n, sizeof g->text - n, "%s=[%s]%s ", name, labels, full ? " full" : "");
    return 0;
}

static void labels_of_volumes(void **state)
{
    (void)state;
    struct gathered g = {0, ""};
    size_t len;
    char *text = fixture("zfs/labels", &len);
    assert_int_equal(zfs_labels_parse(text, gather, &g, NULL), 0);
    assert_string_equal(g.text, "tank/vm/c1=[tag:com.example:backup=yes] "
                                "tank/vm/d1=[tag:db tag:web tag:com.example:backup=yes] ");
    free(text);
    g = (struct gathered){0, ""};
    text = strdup(
        "t/a\tx:y\tlocal\tone\nrest of a value\n\nt/a\tx:blank\tlocal\ttwo words\nt/a\tsnapferry:owner\tlocal\tz\n"
        "t/b\tsnapferry:tag\tinherited from t\ta,b  c\n");
    assert_int_equal(zfs_labels_parse(text, gather, &g, NULL), 0);
    assert_string_equal(g.text, "t/a=[tag:x:y=one] t/b=[tag:a tag:b tag:c] ");
    free(text);
    /* A value with line ends that has a line of another volume in it. */
    struct err e = ERR_INIT;
    text = strdup("t/a\tx:y\tlocal\tone\nt/b\tx:y\tlocal\tforged\nt/a\tx:z\tlocal\tthree\nt/b\tx:y\tlocal\ttrue\n");
    assert_true(zfs_labels_parse(text, gather, &g, &e) < 0 && strstr(e.msg, "not in one place"));
    free(text);
    char *many = calloc(1, 200000);
    for (int i = 0; i < 300; i++)
        sprintf(many + strlen(many), "t/a\tx:property-%d\tlocal\tvalue-value-value\n", i);
    g = (struct gathered){0, ""};
    assert_int_equal(zfs_labels_parse(many, gather, &g, NULL), 0);
    free(many);
    assert_int_equal(g.n, 1);
}

static void what_selects(void **state)
{
    (void)state;
    static const struct {
        const char *match[3];
        bool is;
    } cases[] = {{{"/dev/zvol/tank/vm/*"}, true},
                 {{"/dev/zvol/tank/*"}, false},
                 {{"dataset:tank/vm/d?"}, true},
                 {{"dataset:tank/*"}, false},
                 {{"pool:tank"}, true},
                 {{"pool:ta"}, false},
                 {{"tag:db"}, true},
                 {{"tag:d"}, false},
                 {{"/x", "tag:org.x:b=*"}, true},
                 {{"tag:org.x:b=no"}, false}};
    struct volume *v = calloc(1, sizeof *v);
    strcpy(v->name, "/dev/zvol/tank/vm/d1");
    strcpy(v->labels, "dataset:tank/vm/d1 pool:tank tag:db tag:org.x:b=yes");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct driver_class c = {.name = "c", .driver = "zfs", .match = cases[i].match};
        if (zfs_is_matched(&c, v) != cases[i].is)
            fail_msg("case %zu", i);
    }
    free(v);
}

/* ---- tags ---- */

static struct zfs_tag some_tag(enum zfs_kind kind)
{
    struct zfs_tag t = {.kind = kind, .size = 12345, .pool = UINT64_MAX - 7, .volume = UINT64_MAX - 9, .node = "node1"};
    strcpy(t.tag.alias, ALIAS);
    strcpy(t.tag.volume_id, "zfs:10282077169542838889");
    strcpy(t.tag.volume_name, "/dev/zvol/tank/vm/d1");
    strcpy(t.tag.backup, "manual-20261121T020000-3f9a");
    strcpy(t.tag.operation, "up-manual-20261121T020000-3f9a.zfs:1");
    strcpy(t.tag.repository, "main \"x\"\t\n\xc3\xa4");
    t.tag.created_ns = 1700000000123456789;
    t.tag.seq = 77;
    if (kind == ZFS_INTERMEDIATE) {
        t.read_only = true;
        strcpy(t.klass, "scratch");
    } else if (kind != ZFS_NATIVE) {
        t.overwrite = t.thick = true;
        strcpy(t.final, "/dev/zvol/tank/vm/d1");
    }
    return t;
}

static void tags_there_and_back(void **state)
{
    (void)state;
    char value[ZFS_VALUE_MAX];
    for (int kind = ZFS_NATIVE; kind <= ZFS_REPLACED; kind++) {
        struct zfs_tag *t = malloc(sizeof *t), *back = malloc(sizeof *back);
        *t = some_tag((enum zfs_kind)kind);
        assert_int_equal(zfs_tag_write(t, value, NULL), 0);
        assert_null(strpbrk(value, "\t\n")); /* one line of a report */
        struct zfs_row row = {.name = "tank/snapferry-" ALIAS, .owner = value};
        assert_int_equal(zfs_tag_read(&row, t->pool, 0, back), 0);
        assert_memory_equal(t, back, sizeof *t);
        assert_true(zfs_is_ours(&row, back));
        row.name = "tank/vm/d1";
        assert_int_equal(zfs_is_ours(&row, back), kind == ZFS_NATIVE || kind == ZFS_INTERMEDIATE);
        assert_int_equal(zfs_tag_read(&row, t->pool + 1, 0, back), -ENODATA); /* a pool that was split off */
        row.owner = "";
        assert_int_equal(zfs_tag_read(&row, t->pool, 0, back), -ENODATA);
        for (size_t n = 0; n < strlen(value); n++) {
            char *part = strndup(value, n);
            row.owner = part;
            assert_int_equal(zfs_tag_read(&row, t->pool, 0, back), -ENODATA);
            free(part);
        }
        free(t);
        free(back);
    }
}

/* One command takes a group and sets one tag on all: by it each is ours until it has its own. */
static void tag_of_a_group(void **state)
{
    (void)state;
    char value[ZFS_VALUE_MAX];
    struct zfs_tag *t = malloc(sizeof *t), *other = malloc(sizeof *other), *back = malloc(sizeof *back);
    *t = *other = some_tag(ZFS_NATIVE);
    other->volume = 5;
    other->tag.alias[0] = 'f';
    const struct zfs_tag *both[] = {t, other};
    assert_int_equal(zfs_group_tag_write(both, 2, value, NULL), 0);
    assert_null(strpbrk(value, "\t\n"));
    struct zfs_row row = {.name = "tank/x y@moved", .snapshot = true, .size = 4096, .owner = value};
    assert_int_equal(zfs_tag_read(&row, t->pool, 5, back), 0);
    assert_true(back->unfinished && back->kind == ZFS_NATIVE && back->volume == 5 && back->size == 4096);
    assert_true(back->pool == t->pool && back->tag.created_ns == t->tag.created_ns);
    assert_string_equal(back->node, "node1");
    assert_string_equal(back->tag.alias, other->tag.alias);
    assert_string_equal(back->tag.volume_id, "zfs:5");
    assert_string_equal(back->tag.volume_name, "/dev/zvol/tank/x+y");
    assert_true(!back->tag.backup[0] && !back->tag.operation[0]);
    assert_int_equal(zfs_tag_read(&row, t->pool, t->volume, back), 0);
    assert_string_equal(back->tag.alias, ALIAS);
    assert_int_equal(zfs_tag_read(&row, t->pool, 6, back), -ENODATA); /* no member */
    assert_int_equal(zfs_tag_read(&row, t->pool, 0, back), -ENODATA);
    assert_int_equal(zfs_tag_read(&row, t->pool + 1, 5, back), -ENODATA);
    row.snapshot = false;
    assert_int_equal(zfs_tag_read(&row, t->pool, 5, back), -ENODATA);
    row.snapshot = true;
    for (size_t n = 0; n < strlen(value); n++) {
        char *part = strndup(value, n);
        row.owner = part;
        assert_int_equal(zfs_tag_read(&row, t->pool, 5, back), -ENODATA);
        free(part);
    }
    free(other);
    free(back);
    /* As many as a command takes, and more than a property has room for. */
    struct zfs_tag *many = calloc(200, sizeof *many);
    const struct zfs_tag *list[200];
    for (size_t i = 0; i < 200; i++) {
        many[i] = *t;
        many[i].volume = UINT64_MAX - i;
        list[i] = &many[i];
    }
    struct err e = ERR_INIT;
    assert_int_equal(zfs_group_tag_write(list, ZFS_NAMES_MAX, value, NULL), 0);
    assert_true(zfs_group_tag_write(list, 200, value, &e) == -E2BIG && e.cls == ERR_USAGE);
    memset(t->tag.volume_name, '\\', 4000);
    memset(t->tag.operation, '"', 500);
    e = (struct err)ERR_INIT;
    assert_true(zfs_tag_write(t, value, &e) == -E2BIG && e.cls == ERR_USAGE);
    row.owner = "[{\"version\":1},{\"version\":1}]";
    assert_int_equal(zfs_tag_read(&row, t->pool, 5, many), -ENODATA);
    free(many);
    free(t);
}

static void inherited_ids(void **state)
{
    (void)state;
    char value[ZFS_VALUE_MAX], id[VOLUME_ID_MAX];
    struct zfs_row row = {.name = "tank/d1", .guid = UINT64_MAX, .volume = ""};
    zfs_volume_id(&row, id);
    assert_string_equal(id, "zfs:18446744073709551615");
    zfs_inherited_write("zfs:7", UINT64_MAX, ALIAS, value);
    row.volume = value;
    zfs_volume_id(&row, id);
    assert_string_equal(id, "zfs:7");
    assert_true(zfs_restored_by(&row, ALIAS) && !zfs_restored_by(&row, "another"));
    row.guid--; /* a replica, or a clone that got the property in another way */
    zfs_volume_id(&row, id);
    assert_string_equal(id, "zfs:18446744073709551614");
    row.guid = 5;
    static const char *const bad[] = {"5",         "5 ",           "5 " ALIAS, "5 " ALIAS " ", "5 " ALIAS " a b",
                                      "5 x zfs:7", "6 " ALIAS " z"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        row.volume = bad[i];
        zfs_volume_id(&row, id);
        assert_string_equal(id, "zfs:5");
    }
}

static void holds(void **state)
{
    (void)state;
    struct zfs_hold h = {.node = "node-1.example.org", .created_ns = 1700000000123456789}, back;
    char tag[ZFS_NAME_MAX];
    strcpy(h.alias, ALIAS);
    assert_int_equal(zfs_hold_write(&h, tag, NULL), 0);
    assert_true(zfs_hold_read(tag, &back) && memcmp(&h, &back, sizeof h) == 0);
    static const char *const bad[] = {"",
                                      "keep",
                                      "snapferry:",
                                      "snapferry:" ALIAS,
                                      "snapferry:" ALIAS ":5",
                                      "snapferry:" ALIAS ":5:",
                                      "snapferry:" ALIAS "::n",
                                      "snapferry:" ALIAS ":x:n",
                                      "snapferry:x" ALIAS ":5:n",
                                      "Snapferry:" ALIAS ":5:n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(zfs_hold_read(bad[i], &back));
    memset(h.node, 'n', sizeof h.node - 1);
    assert_true(zfs_hold_write(&h, tag, NULL) < 0);
}

/* ---- names ---- */

static void names(void **state)
{
    (void)state;
    static const struct {
        const char *path, *dataset;
        enum err_class cls;
    } cases[] = {{"/dev/zvol/tank/d1", "tank/d1", ERR_NONE},
                 {"/dev/zvol/tank/vm/a+b", "tank/vm/a b", ERR_NONE},
                 {"/dev/zvol/tank/vm/-rf", "tank/vm/-rf", ERR_NONE},
                 {"/dev/zvol/tank", "", ERR_USAGE},
                 {"/dev/zvol/tank/", "", ERR_USAGE},
                 {"/dev/zvol/tank/d1@s1", "", ERR_USAGE},
                 {"/dev/zvol/tank/../x", "", ERR_USAGE},
                 {"/dev/zvol/tank//x", "", ERR_USAGE},
                 {"/dev/zvol/tank/\xc3\xa4", "", ERR_USAGE},
                 {"tank/d1", "", ERR_USAGE},
                 {"/srv/x.img", "", ERR_USAGE},
                 {"/dev", "", ERR_USAGE},
                 {"/dev/vg0/x", "", ERR_NOT_FOUND}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char dataset[ZFS_NAME_MAX], path[VOLUME_NAME_MAX];
        struct err e = ERR_INIT;
        int rc = zfs_path_split(cases[i].path, dataset, &e);
        if ((rc < 0) != (cases[i].cls != ERR_NONE) || e.cls != cases[i].cls || strcmp(dataset, cases[i].dataset) != 0)
            fail_msg("%s: %d, %s, %s", cases[i].path, rc, dataset, e.msg);
        if (rc == 0) {
            zfs_path(dataset, path);
            assert_string_equal(path, cases[i].path);
        }
    }
    char long_path[400] = "/dev/zvol/tank/", out[ZFS_NAME_MAX];
    memset(long_path + strlen(long_path), 'x', 300);
    assert_true(zfs_path_split(long_path, out, NULL) < 0);
    zfs_pool_of("tank/a@b", out);
    assert_string_equal(out, "tank");
    zfs_dataset_of("tank/a@b", out);
    assert_string_equal(out, "tank/a");
    zfs_parent_of("tank/a/b", out);
    assert_string_equal(out, "tank/a");
    zfs_parent_of("tank", out);
    assert_string_equal(out, "");
}

static void classes(void **state)
{
    (void)state;
    static const struct {
        const char *match, *target, *says;
    } cases[] = {{"tank/*", "", "not of the form /dev/zvol/POOL/PATH"},
                 {"/dev/zvol/*", "", "not of the form /dev/zvol/POOL/PATH"},
                 {"/dev/tank/x", "", "not of the form /dev/zvol/POOL/PATH"},
                 {"vg:tank", "", "not of the form /dev/zvol/POOL/PATH"},
                 {"pool:tank", "/tank", "is not the name of a pool or dataset"},
                 {"pool:tank", "tank/", "is not the name of a pool or dataset"},
                 {"pool:tank", "tank/vm", "cannot run /no/such/zfs"},
                 {"/dev/zvol/*/*", "tank", "cannot run /no/such/zfs"},
                 {"dataset:tank/*", "", "cannot run /no/such/zfs"},
                 {"tag:x", "", "cannot run /no/such/zfs"}};
    zfs_programs_test("/no/such/zfs", "/bin/true");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const match[] = {cases[i].match, NULL};
        const struct driver_class c = {.name = "c", .driver = "zfs", .match = match, .target = cases[i].target};
        struct err e = ERR_INIT;
        unsigned can;
        assert_true(driver_zfs.abilities(&c, &can, &e) < 0 && e.cls == ERR_USAGE && e.hint[0]);
        if (!strstr(e.msg, cases[i].says))
            fail_msg("case %zu: %s", i, e.msg);
    }
    struct err e = ERR_INIT;
    zfs_programs_test("/bin/true", "/no/such/zpool");
    assert_true(zfs_installed(&e) < 0 && strstr(e.msg, "/no/such/zpool"));
}

/* ---- a stand-in for zfs(8), to inject faults ---- */

static void what_zfs_says(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum err_class cls;
        const char *hint;
    } cases[] = {
        {"cannot create snapshot 'tank/d1@x': out of space", ERR_NO_SPACE, "refreservation=none"},
        {"cannot create 'tank/x': permission denied", ERR_PERMISSION, "as root"},
        {"cannot destroy 'tank/d1@s2': snapshot has dependent clones", ERR_BUSY, "zfs get clones"},
        {"cannot destroy 'tank/d1': volume has children", ERR_BUSY, "zfs list"},
        {"cannot create 'tank/x': dataset already exists", ERR_TARGET, ""},
        {"cannot open 'tank/x': dataset does not exist", ERR_NOT_FOUND, ""},
        {"could not find any snapshots to destroy; check snapshot names.", ERR_NOT_FOUND, ""},
        {"bookmark 'tank/d1#x' does not exist.", ERR_NOT_FOUND, ""},
        {"cannot create bookmark 'tank/d1#x': bookmark feature not enabled", ERR_USAGE, "feature@bookmarks"},
        {"cannot create bookmark 'tank/d1#x': permission denied", ERR_PERMISSION, "as root"},
        {"internal error: Bad file descriptor", ERR_GENERIC, ""},
    };
    const char *const args[] = {"snapshot", "tank/d1@x", NULL};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char script[600];
        struct err e = ERR_INIT;
        snprintf(script, sizeof script, "echo \"%s\" >&2; exit 1", cases[i].text);
        stand_in(script);
        int rc = zfs_change("cannot do it", args, &e);
        if (rc >= 0 || e.cls != cases[i].cls || !strstr(e.hint, cases[i].hint))
            fail_msg("case %zu: %d, %s, %s", i, rc, e.msg, e.hint);
        assert_true(strncmp(e.msg, "cannot do it: ", 14) == 0 && strstr(e.msg, cases[i].text));
    }
    struct zfs_report r;
    struct zfs_pool p;
    struct err e = ERR_INIT;
    stand_in("echo \"cannot open 'tank/nosuch': dataset does not exist\" >&2; exit 1");
    assert_true(zfs_report_read(&r, "tank/nosuch", &e) == 0 && r.n == 0);
    stand_in("echo \"cannot open 'nosuch': no such pool\" >&2; exit 1");
    assert_true(zfs_pool_read(&p, "nosuch/x", &e) < 0 && e.cls == ERR_NOT_FOUND);
    stand_in("echo \"The ZFS modules are not loaded.\" >&2; exit 1");
    assert_true(zfs_report_read(&r, NULL, &e) < 0 && e.cls == ERR_SOURCE && strstr(e.hint, "modprobe"));
    stand_in("echo rubbish");
    assert_true(zfs_report_read(&r, NULL, &e) < 0 && e.cls == ERR_GENERIC);
    stand_in("exit 0");
    assert_true(zfs_report_read(&r, NULL, &e) == 0 && r.n == 0);
    zfs_report_free(&r);
    /* udev has it open for a moment. */
    char script[600];
    snprintf(script, sizeof script, "[ -e %s/busy ] || { : >%s/busy; echo 'dataset is busy' >&2; exit 1; }; rm %s/busy",
             dir, dir, dir);
    stand_in(script);
    assert_int_equal(zfs_change("cannot do it", args, &e), 0);
}

/* Of a pool that is imported its volumes may be gone; of one that is not told they have disappeared with it. */
static void pools_are_told(void **state)
{
    (void)state;
    static const char *const match[] = {"/dev/zvol/*/*/d*", NULL};
    const struct driver_class c = {.name = "c", .driver = "zfs", .match = match, .target = "", .node = "n"};
    char *CLEANUP_FREE report = realpath(fixture_path("zfs/get"), NULL);
    char script[1000], told[PLACES_TEXT] = "";
    struct err e = ERR_INIT;
    snprintf(script, sizeof script,
             "case \"$*\" in *local,inherited*) ;; *) sed '/^[^[:space:]]*@/d' %s; sed '/^[^[:space:]]*@/d; "
             "s:^tank/:other/:' %s ;; esac",
             report, report);
    stand_in(script);
    if (driver_zfs.volumes(&c, note_place, told, &e) < 0)
        fail_msg("%s", e.msg);
    assert_string_equal(told, "place:other place:tank /dev/zvol/other/vm/d1 /dev/zvol/tank/vm/d1");
}

/* Snapshots of another tool go first; one that this tool has removed meanwhile does not keep the volume. */
static void a_snapshot_that_is_gone_meanwhile(void **state)
{
    (void)state;
    char script[1000];
    char *CLEANUP_FREE report = realpath(fixture_path("zfs/get"), NULL); /* programs run elsewhere */
    struct err e = ERR_INIT;
    struct zfs_report r = real_report();
    assert_non_null(report);
    snprintf(script, sizeof script,
             "case \"$1 $2\" in get*) cat %s ;; *@*) : >%s/asked; echo 'could not find any snapshots to destroy' >&2; "
             "exit 1 ;; *) : >%s/destroyed ;; esac",
             report, dir, dir);
    stand_in(script);
    if (zfs_destroy(zfs_find(&r, "tank/vm/d1"), true, "cannot remove it", &e) < 0)
        fail_msg("%s", e.msg);
    for (unsigned i = 0; i < 2; i++) {
        char path[300];
        snprintf(path, sizeof path, "%s/%s", dir, i ? "destroyed" : "asked");
        assert_int_equal(unlink(path), 0);
    }
    zfs_report_free(&r);
}

/* ---- bookmarks ---- */

static void names_of_bookmarks(void **state)
{
    (void)state;
    static const char *const others[] = {
        "tank/vm/d1#snapferry-" ALIAS,
        "tank/vm/d1#snapferry-" ALIAS ":1",
        "tank/vm/d1#snapferry-" ALIAS ":1:",
        "tank/vm/d1#snapferry-" ALIAS "::n",
        "tank/vm/d1#snapferry-" ALIAS ":x:n",
        "tank/vm/d1#snapferry-" ALIAS ":99999999999999999999:n",
        "tank/vm/d1#snapferry-11111111-2222-4333-8444:1:n",
        "tank/vm/d1#zrepl_CURSOR_G_1",
        "tank/vm/d1@snapferry-" ALIAS ":1:n",
        "tank/vm/d1",
    };
    char alias[ALIAS_LEN + 1];
    const char *node;
    uint64_t pool;
    assert_true(zfs_bookmark_split(MARK, alias, &pool, &node));
    assert_string_equal(alias, ALIAS);
    assert_string_equal(node, "n");
    assert_true(pool == 14735839334937578500u);
    assert_true(zfs_bookmark_split("t/v#snapferry-" ALIAS ":1:a.b:c", alias, &pool, &node));
    assert_string_equal(node, "a.b:c");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (zfs_bookmark_split(others[i], alias, &pool, &node))
            fail_msg("%s", others[i]);
}

static const struct driver_class class_n = {.name = "c", .driver = "zfs", .target = "", .node = "n"};

static struct native *native_of(const char *handle, const char *guid)
{
    struct native *n = calloc(1, sizeof *n);
    assert_non_null(n);
    snprintf(n->tag.alias, sizeof n->tag.alias, ALIAS);
    snprintf(n->tag.volume_id, sizeof n->tag.volume_id, "zfs:10282077169542838889");
    snprintf(n->tag.volume_name, sizeof n->tag.volume_name, "/dev/zvol/tank/vm/d1");
    snprintf(n->handle, sizeof n->handle, "%s", handle);
    snprintf(n->change_id, sizeof n->change_id, "zfs:%s", guid);
    n->size = 32 << 20;
    return n;
}

static int note_bookmark(const struct native *n, void *arg)
{
    char *text = arg;
    const size_t at = strlen(text);
    snprintf(text + at, 1000 - at, "%s %s %s %s %" PRId64 ";", n->tag.alias, n->handle, n->tag.volume_name,
             n->change_id, n->tag.created_ns);
    return 0;
}

/* Of another tool, of another node, of the pool from which this one was split off, of another snapshot. */
#define OTHERS                                                                                                         \
    "tank/vm/d1#zrepl_CURSOR_G_1\t1\t5\t1764400000\n"                                                                  \
    "tank/vm/d1#snapferry-" ALIAS ":" POOL_GUID ":n2\t2\t5\t1764400000\n"                                              \
    "tank/vm/d1#snapferry-" ALIAS ":4711:n\t3\t5\t1764400000\n"                                                        \
    "tank/vm/d1#snapferry-22222222-2222-4333-8444-555555555555:" POOL_GUID ":n\t4\t5\t1764400000\n"

static void a_bookmark(void **state)
{
    (void)state;
    struct native *CLEANUP_FREE s1 = native_of("tank/vm/d1@s1", S1_GUID),
                                *s2 CLEANUP_FREE = native_of("tank/vm/d1@s2", "2");
    struct native *CLEANUP_FREE found = calloc(1, sizeof *found);
    struct err e = ERR_INIT;
    char text[1000] = "";
    file_in_dir("owner", "-");
    stand_in_with_bookmarks(OTHERS);
    assert_true(driver_zfs.bookmark_find(&class_n, s1, s2, found, &e) < 0 && e.cls == ERR_NOT_FOUND);
    for (unsigned i = 0; i < 2; i++) { /* a call that was interrupted is repeated */
        assert_int_equal(driver_zfs.bookmark(&class_n, s1, &e), 0);
        assert_marks(OTHERS MARK "\t" S1_GUID "\t19\t1764400000\n");
    }
    assert_int_equal(driver_zfs.bookmark_find(&class_n, s1, s2, found, &e), 0);
    assert_string_equal(found->handle, MARK);
    assert_string_equal(found->change_id, "zfs:" S1_GUID);
    assert_true(found->size == s1->size && strcmp(found->tag.volume_id, s1->tag.volume_id) == 0);
    assert_int_equal(driver_zfs.bookmarks(&class_n, note_bookmark, text, &e), 0);
    assert_string_equal(text, "22222222-2222-4333-8444-555555555555 "
                              "tank/vm/d1#snapferry-22222222-2222-4333-8444-555555555555:" POOL_GUID ":n "
                              "/dev/zvol/tank/vm/d1 zfs:4 1764400000000000000;" ALIAS " " MARK
                              " /dev/zvol/tank/vm/d1 zfs:" S1_GUID " 1764400000000000000;");
    /* What was removed is removed; of a volume that was renamed since it is found. */
    snprintf(s1->handle, sizeof s1->handle, "tank/vm/before@s1");
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(driver_zfs.bookmark_remove(&class_n, s1, &e), 0);
        assert_marks(OTHERS);
    }
    /* One of that name that was made of another snapshot is no base. */
    stand_in_with_bookmarks(MARK "\t77\t19\t1764400000\n");
    assert_int_equal(driver_zfs.bookmark_find(&class_n, s1, s2, found, &e), 0);
    assert_string_equal(found->change_id, "zfs:77");
    snprintf(s1->handle, sizeof s1->handle, "tank/vm/d1@s1");
    assert_true(driver_zfs.bookmark(&class_n, s1, &e) < 0 && e.cls == ERR_TARGET && strstr(e.msg, "another snapshot"));
    stand_in_with_bookmarks(MARK "\tx\t19\t1764400000\n");
    assert_true(driver_zfs.bookmark_remove(&class_n, s1, &e) < 0 && strstr(e.msg, "cannot read"));
    files_removed();
}

static void changes_since_a_bookmark(void **state)
{
    (void)state;
    struct native *CLEANUP_FREE s1 = native_of("tank/vm/d1@s1", S1_GUID);
    struct native *CLEANUP_FREE s2 = native_of("tank/vm/d1@s2", "758286736453163206");
    struct native *CLEANUP_FREE base = calloc(1, sizeof *base);
    struct changed_answer answer = {.state = CHANGED_LISTED};
    struct changes *list;
    struct err e = ERR_INIT;
    zfs_module_test(dir);
    file_in_dir("send_holes_without_birth_time", "1");
    file_in_dir("owner", "-");
    stand_in_with_bookmarks(MARK "\t" S1_GUID "\t19\t1764400000\n");
    assert_int_equal(changes_new(&list, NULL), 0);
    assert_int_equal(driver_zfs.bookmark_find(&class_n, s1, s2, base, &e), 0);
    if (driver_zfs.changed(&class_n, base, s2, list, &answer, &e) < 0)
        fail_msg("%s", e.msg);
    if (answer.state != CHANGED_LISTED)
        fail_msg("%s", answer.why);
    changes_finish(list);
    assert_int_equal(changes_count(list), 3);
    changes_free(list);
    /* It is gone by now; of a clone, or of a newer snapshot, it is no base. */
    static const struct {
        const char *marks, *handle;
        enum changed_state state;
    } cases[] = {{"", MARK, CHANGED_BASE_LOST},
                 {MARK "\t" S1_GUID "\t28\t1764400000\n", MARK, CHANGED_BASE_OTHER},
                 {"tank/vm/c1#snapferry-" ALIAS ":" POOL_GUID ":n\t" S1_GUID "\t19\t1\n",
                  "tank/vm/c1#snapferry-" ALIAS ":" POOL_GUID ":n", CHANGED_BASE_OTHER}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stand_in_with_bookmarks(cases[i].marks);
        snprintf(base->handle, sizeof base->handle, "%s", cases[i].handle);
        assert_int_equal(changes_new(&list, NULL), 0);
        answer.state = CHANGED_LISTED;
        assert_int_equal(driver_zfs.changed(&class_n, base, s2, list, &answer, &e), 0);
        assert_int_equal(answer.state, cases[i].state);
        changes_free(list);
    }
    files_removed();
}

/* `zfs receive -F` puts a volume back and leaves bookmarks: with one whose snapshot is gone nothing is listed where
 * that may have happened. */
static void a_bookmark_of_a_replica(void **state)
{
    (void)state;
    static const struct {
        const char *read_only, *snapshots;
        bool removed, ours; /* the base by us; the other one is ours */
        const char *says;   /* NULL: listed */
    } cases[] = {
        {"off", "", false, false, NULL},
        /* older than the bookmark, newer than the new snapshot */
        {"off", "tank/vm/d1@auto\t18\t1764399000\t-", false, false, NULL},
        {"off", "tank/vm/d1@auto\t29\t1764499000\t-", false, false, NULL},
        {"off", "tank/vm/d1@auto\t25\t1764480000\t-", false, false, "tank/vm/d1@auto is newer: if that was received"},
        {"off", "tank/vm/d1@auto\t25\t1764480000\t-", true, false, NULL},
        {"on", "tank/vm/d1@auto\t25\t1764480000\t-", false, false, NULL},
        /* sent before the bookmark was made, complete after it */
        {"on", "tank/vm/d1@sync\t25\t1764399000\t-", false, false, "tank/vm/d1@sync came after native snapshot " ALIAS},
        {"on", "tank/vm/d1@sync\t25\t1764400005\t-", true, false, "it was received"},
        {"on", "tank/vm/d1@sync\t25\t1764400006\t-", true, false, NULL},
        {"off", "tank/vm/d1@s2\t25\t1764399000\t-", false, true, NULL},
        {"off", "tank/vm/d1@auto\t25\tx\t-", false, false, "cannot read what zfs list reports"},
        {"off", "tank/vm/d1@auto\t25", false, false, "cannot read what zfs list reports"},
    };
    struct native *CLEANUP_FREE s2 = native_of("tank/vm/d1@s2", "758286736453163206");
    struct native *CLEANUP_FREE base = native_of(MARK, S1_GUID);
    zfs_module_test(dir);
    file_in_dir("send_holes_without_birth_time", "1");
    stand_in_with_bookmarks(OTHERS MARK "\t" S1_GUID "\t19\t1764400000\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct changed_answer answer = {.state = CHANGED_LISTED};
        struct changes *list;
        struct err e = ERR_INIT;
        cases[i].ours ? own_s2(s2) : file_in_dir("owner", "-");
        lineage(cases[i].read_only, cases[i].snapshots);
        base->removed = cases[i].removed;
        assert_int_equal(changes_new(&list, NULL), 0);
        const int rc = driver_zfs.changed(&class_n, base, s2, list, &answer, &e);
        const char *says = rc < 0 ? e.msg : answer.why;
        if (cases[i].says ? !strstr(says, cases[i].says) || (rc == 0 && answer.state != CHANGED_UNCERTAIN)
                          : rc < 0 || answer.state != CHANGED_LISTED)
            fail_msg("case %zu: %s: %s", i, changed_state_name(answer.state), says);
        changes_free(list);
    }
    files_removed();
}

/* The stream is read at the rate that is set, as long as it holds. */
static void a_list_at_a_rate(void **state)
{
    (void)state;
    struct native *CLEANUP_FREE s2 = native_of("tank/vm/d1@s2", "758286736453163206");
    struct native *CLEANUP_FREE base = native_of(MARK, S1_GUID);
    zfs_module_test(dir);
    file_in_dir("send_holes_without_birth_time", "1");
    file_in_dir("owner", "-");
    stand_in_with_bookmarks(MARK "\t" S1_GUID "\t19\t1764400000\n");
    for (unsigned i = 0; i < 2; i++) {
        _Atomic uint64_t passed = 0;
        struct throttle reads = {.rate = 1 << 20, .passed = &passed};
        struct driver_class c = class_n;
        struct changed_answer answer = {.state = CHANGED_LISTED};
        struct changes *list;
        struct err e = ERR_INIT;
        c.list_reads = &reads;
        c.list_reads_until = mono_ns() + (i ? -1 : 600 * NS_PER_S);
        assert_int_equal(changes_new(&list, NULL), 0);
        assert_int_equal(driver_zfs.changed(&c, base, s2, list, &answer, &e), 0);
        assert_int_equal(answer.state, CHANGED_LISTED);
        assert_int_equal(passed, i ? 0 : 6632);
        changes_free(list);
    }
    files_removed();
}

static int note_extent(uint64_t start, uint64_t len, void *arg)
{
    (void)start;
    (void)len;
    ++*(unsigned *)arg;
    return 0;
}

/* What was exposed may be gone, or another one, by the time it is listed: then nothing is said of it. */
static void what_is_allocated_is_not_known(void **state)
{
    (void)state;
    static const struct {
        const char *path, *says;
        uint64_t size;
        bool writable;
    } cases[] = {
        {"/dev/zvol/tank/vm/d1@gone", "tank/vm/d1@gone is no longer what was exposed", 32 << 20, false},
        {"/dev/zvol/tank/vm/d1@s2", "tank/vm/d1@s2 is no longer what was exposed", 16 << 20, false},
        {"/dev/zvol/tank/vm/c1", "tank/vm/d1@s2 is no longer what was exposed", 16 << 20, false},
        {"/dev/zvol/tank/vm/gone", "is not the clone that was exposed", 32 << 20, false},
        {"/dev/zvol/tank/vm/d1", "is not the clone that was exposed", 32 << 20, false},
        {"/dev/zvol/tank/vm/c1", "/dev/zvol/tank/vm/c1 is writable", 32 << 20, true},
        {"/dev/zvol/tank/vm/c1", "the send stream is from", 32 << 20, false}, /* not the whole: from s1 */
    };
    file_in_dir("owner", "-");
    stand_in_with_bookmarks(MARK "\t" S1_GUID "\t19\t1764400000\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct exposure *x CLEANUP_FREE = calloc(1, sizeof *x);
        unsigned n = 0;
        struct err e = ERR_INIT;
        assert_non_null(x);
        snprintf(x->path, sizeof x->path, "%s", cases[i].path);
        x->size = cases[i].size;
        x->read_only = !cases[i].writable;
        if (driver_zfs.allocated(&class_n, x, note_extent, &n, &e) >= 0 || !strstr(e.msg, cases[i].says) || n)
            fail_msg("case %zu: %u extents, %s", i, n, e.msg);
    }
    files_removed();
}

/* It need not be known that the snapshot is gone, but then all volumes are searched for it. */
static void a_base_that_is_gone(void **state)
{
    (void)state;
    static const char other[] = "22222222-2222-4333-8444-555555555555";
    struct native *CLEANUP_FREE s1 = native_of("tank/vm/d1@s1", S1_GUID);
    struct native *CLEANUP_FREE s2 = native_of("tank/vm/d1@s2", "758286736453163206");
    static const struct {
        const char *marks;
        enum changed_state state;
    } cases[] = {{MARK "\t" S1_GUID "\t19\t1764400000\n", CHANGED_LISTED},
                 {MARK "\t77\t19\t1764400000\n", CHANGED_BASE_OTHER},
                 {"", CHANGED_BASE_LOST}};
    zfs_module_test(dir);
    file_in_dir("send_holes_without_birth_time", "1");
    memcpy(s2->tag.alias, other, sizeof other);
    own_s2(s2);
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        struct changed_answer answer;
        struct changes *list;
        struct err e = ERR_INIT;
        s1->gone = i % 2;
        stand_in_with_bookmarks(cases[i / 2].marks);
        assert_int_equal(changes_new(&list, NULL), 0);
        assert_int_equal(driver_changed(&class_n, s1, s2, list, &answer, &e), 0);
        if (answer.state != cases[i / 2].state)
            fail_msg("case %zu: %s: %s", i, changed_state_name(answer.state), answer.why);
        assert_true(answer.state != CHANGED_LISTED || changes_count(list) == 3);
        assert_true((searches() > 0) == (!s1->gone || answer.state == CHANGED_BASE_LOST));
        assert_true(answer.state != CHANGED_BASE_LOST || strstr(answer.why, "nor its bookmark"));
        changes_free(list);
    }
    files_removed();
}

/* ---- a real send stream ---- */

static void a_real_stream(void **state)
{
    (void)state;
    static const struct change want[] = {{1048576, 131072}, {2097152, 1048576}, {4194304, INT64_MAX - 4194304}};
    struct zfs_stream *s;
    struct changes *list;
    struct change x;
    size_t len, cursor = 0, n = 0;
    char *data = fixture("zfs/embedded.stream", &len);
    struct err e = ERR_INIT;
    assert_int_equal(changes_new(&list, NULL), 0);
    assert_int_equal(zfs_stream_new(&s, 10004321963652763769u, 758286736453163206u, list, NULL), 0);
    assert_int_equal(zfs_stream_feed(s, data, len, &e), 0);
    assert_int_equal(zfs_stream_end(s, &e), 0);
    changes_finish(list);
    for (uint64_t pos = 0; changes_after(list, &cursor, pos, &x); pos = x.start + x.len, n++)
        assert_true(n < 3 && x.start == want[n].start && x.len == want[n].len);
    assert_int_equal(n, 3);
    assert_int_equal(changes_zero_bytes(list), 1048576 + (uint64_t)INT64_MAX - 4194304);
    zfs_stream_free(s);
    changes_free(list);
    free(data);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_real_report),
        cmocka_unit_test(reports_are_read_strictly),
        cmocka_unit_test(a_real_pool),
        cmocka_unit_test(labels_of_volumes),
        cmocka_unit_test(what_selects),
        cmocka_unit_test(tags_there_and_back),
        cmocka_unit_test(tag_of_a_group),
        cmocka_unit_test(inherited_ids),
        cmocka_unit_test(holds),
        cmocka_unit_test(names),
        cmocka_unit_test(classes),
        cmocka_unit_test(what_zfs_says),
        cmocka_unit_test(pools_are_told),
        cmocka_unit_test(a_snapshot_that_is_gone_meanwhile),
        cmocka_unit_test(a_real_stream),
        cmocka_unit_test(names_of_bookmarks),
        cmocka_unit_test(a_bookmark),
        cmocka_unit_test(changes_since_a_bookmark),
        cmocka_unit_test(a_bookmark_of_a_replica),
        cmocka_unit_test(a_list_at_a_rate),
        cmocka_unit_test(what_is_allocated_is_not_known),
        cmocka_unit_test(a_base_that_is_gone),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
