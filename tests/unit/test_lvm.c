/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The drivers of LVM without LVM: real reports of lvs, owner tags, names, and the sentences of its errors. The rest is
 * tests/vm/11-lvm-thin.sh and 12-lvm.sh. */
#include "tests/unit/places.h"
#include "tests/unit/test.h"

#include "io/native/lvm.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

static char dir[] = "/tmp/snapferry-lvm-XXXXXX";

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
    snprintf(path, sizeof path, "%s/lvm", dir);
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

static struct lvm_report real_report(void)
{
    struct lvm_report r;
    struct err e = ERR_INIT;
    size_t len;
    char *text = fixture("lvm/lvs.json", &len);
    assert_int_equal(lvm_report_parse(&r, text, len, &e), 0);
    free(text);
    return r;
}

static void a_real_report(void **state)
{
    (void)state;
    struct lvm_report r = real_report();
    assert_int_equal(r.n, 8);
    const struct lvm_lv *thin = lvm_find(&r, "vg0", "db1"), *pool = lvm_find(&r, "vg0", "tp");
    assert_true(lvm_is_thin(thin) && !lvm_is_ordinary(thin) && !lvm_is_cow(thin) && !lvm_is_pool(thin));
    assert_true(thin->size == 32 << 20 && thin->active && !thin->open && thin->data > 14.4 && thin->data < 14.5);
    assert_string_equal(thin->pool, "tp");
    assert_string_equal(thin->tags, "admin");
    assert_true(lvm_is_pool(pool) && pool->metadata > 11 && pool->path[0] == '\0' && !pool->check_needed);
    const struct lvm_lv *cow = lvm_find_path(&r, "/dev/vg0/sn1");
    assert_true(lvm_is_cow(cow) && !cow->invalid && cow->size == 12 << 20 && cow->origin_size == 32 << 20);
    const struct lvm_lv *odd = lvm_find_path(&r, "/dev/vg0/odd--na.me_+x");
    assert_string_equal(odd->dm_path, "/dev/mapper/vg0-odd----na.me_+x");
    const struct lvm_lv *off = lvm_find_path(&r, "/dev/vg0/ofsnap");
    assert_true(!off->active && !off->open && off->data < 0 && !off->invalid && !off->suspended);
    assert_true(lvm_is_ordinary(lvm_find_path(&r, "/dev/vg-two/a-b")) && lvm_is_ordinary(lvm_find(&r, "vg0", "thick")));
    assert_null(lvm_find(&r, "vg0", "nosuch"));
    assert_null(lvm_find_path(&r, ""));
    for (size_t i = 1; i < r.n; i++)
        assert_true(strcmp(r.lv[i - 1].path, r.lv[i].path) <= 0);
    lvm_report_free(&r);
}

/* Cut off anywhere it is an error, never a report with less in it. */
static void a_report_that_is_cut_off(void **state)
{
    (void)state;
    struct lvm_report r;
    size_t len;
    char *text = fixture("lvm/lvs.json", &len);
    while (len && text[len - 1] != '}')
        len--;
    for (size_t n = 0; n < len; n += 7) {
        struct err e = ERR_INIT;
        assert_true(lvm_report_parse(&r, text, n, &e) < 0);
        assert_true(e.cls == ERR_GENERIC && r.n == 0 && !r.lv && !r.doc);
    }
    free(text);
}

static void reports_with_faults(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *said;
    } cases[] = {{"\"lv_size\":\"33554432\"", "\"lv_size\":\"32m\"", "lv_size is not a number"},
                 {"\"lv_size\":\"33554432\"", "\"lv_size\":33554432", "lv_size is not a string"},
                 {"\"lv_size\":", "\"lv_sizE\":", "lv_size is missing"},
                 {"\"data_percent\":\"14.45\"", "\"data_percent\":\"nan\"", "data_percent is not a percentage"},
                 {"\"lv_attr\":\"-wi-a-----\"", "\"lv_attr\":\"-\"", "lv_attr is too short"},
                 {"\"lv\": [", "\"lv\": 7, \"x\": [", "lv is not an array"},
                 {"\"thin_id\":\"1\"", "\"thin_id\":\"x\"", "thin_id is not a number"},
                 {"\"transaction_id\":", "\"transaction-id\":", "transaction_id is missing"},
                 {"\"report\"", "\"reports\"", "report is missing"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct lvm_report r;
        struct err e = ERR_INIT;
        size_t len;
        char *text = fixture("lvm/lvs.json", &len), *at = strstr(text, cases[i].from), *changed = calloc(1, len + 100);
        assert_non_null(at);
        sprintf(changed, "%.*s%s%s", (int)(at - text), text, cases[i].to, at + strlen(cases[i].from));
        assert_true(lvm_report_parse(&r, changed, strlen(changed), &e) < 0);
        if (!strstr(e.msg, cases[i].said))
            fail_msg("case %zu: %s", i, e.msg);
        free(text);
        free(changed);
    }
}

static struct lvm_tag some_tag(const struct lvm_lv *lv)
{
    struct lvm_tag t = {.kind = LVM_NATIVE, .size = 12345};
    strcpy(t.node, "node 1, \"odd\"+");
    strcpy(t.vg_uuid, lv->vg_uuid);
    alias_new(t.tag.alias);
    strcpy(t.tag.volume_id, "lvm:FxNAuv-5tZ1");
    strcpy(t.tag.volume_name, "/dev/vg0/odd--na.me_+x");
    strcpy(t.tag.backup, "manual-20261121T020000-3f9a");
    strcpy(t.tag.operation, "up-manual-20261121T020000-3f9a.lvm:FxNAuv-5tZ1");
    strcpy(t.tag.repository, "M\xc3\xa4in=,&#");
    t.tag.created_ns = INT64_C(1700000000000000001);
    t.tag.seq = 77;
    return t;
}

static bool allowed_in_tags(const char *s)
{
    return s[0] && s[0] != '-' &&
           strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+.-/=!:&#") == strlen(s);
}

static void tagged(struct lvm_lv *lv, const struct lvm_tags *t, char *joined, size_t size)
{
    size_t n = (size_t)snprintf(joined, size, "admin,");
    for (unsigned i = t->n; i-- > 0;) /* LVM may have another order */
        n += (size_t)snprintf(joined + n, size - n, "%s,", t->text[i]);
    snprintf(joined + n, size - n, "zz");
    lv->tags = joined;
}

static void tags_there_and_back(void **state)
{
    (void)state;
    static char joined[LVM_TAGS_MAX * LVM_TAG_MAX];
    struct lvm_report r = real_report();
    struct lvm_lv lv = *lvm_find(&r, "vg0", "db1");
    for (int kind = LVM_NATIVE; kind <= LVM_REPLACED; kind++)
        for (int odd = 0; odd < 2; odd++) {
            struct lvm_tags *text = malloc(sizeof *text);
            struct err e = ERR_INIT;
            struct lvm_tag t = some_tag(&lv), back;
            t.kind = (enum lvm_kind)kind;
            if (odd) /* of several pieces */
                for (size_t i = 0; i < sizeof t.tag.operation - 1; i++)
                    t.tag.operation[i] = (char)(1 + i % 255);
            if (kind == LVM_INTERMEDIATE) {
                strcpy(t.klass, "scratch class");
                t.read_only = true;
            }
            if (kind == LVM_STAGING || kind == LVM_REPLACED) {
                strcpy(t.final, "/dev/vg0/final");
                t.overwrite = odd;
            }
            assert_int_equal(lvm_tag_write(&t, text, &e), 0);
            assert_true(odd ? text->n > 1 : text->n == 1);
            for (unsigned i = 0; i < text->n; i++)
                assert_true(allowed_in_tags(text->text[i]) && strlen(text->text[i]) <= 1000);
            tagged(&lv, text, joined, sizeof joined);
            assert_int_equal(lvm_tag_read(&lv, &back), 0);
            assert_memory_equal(&back, &t, sizeof t);
            if (text->n > 1) { /* a piece is missing */
                text->n--;
                tagged(&lv, text, joined, sizeof joined);
                assert_int_equal(lvm_tag_read(&lv, &back), -ENODATA);
            }
            free(text);
        }
    lvm_report_free(&r);
}

static void tags_that_are_not_ours(void **state)
{
    (void)state;
    static const char *const none[] = {
        "",
        "admin",
        "snapferry",
        "snapferry+",
        "snapferry+x",
        "snapferry+1/1+1+native",
        "snapferry+6f1c2a30-0000-4000-8000-000000000001+1/1+2+native+n+u+i+n+b+o+r+1+1+1",
        "snapferry+6f1c2a30-0000-4000-8000-000000000001+1/99+1",
        "snapferry+6f1c2a30-0000-4000-8000-000000000001+2/1+1",
        "snapferry+6f1c2a30-0000-4000-8000-000000000001+1/1+1+native+=+="};
    struct lvm_report r = real_report();
    struct lvm_tag back;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        struct lvm_lv lv = *lvm_find(&r, "vg0", "db1");
        lv.tags = none[i];
        assert_int_equal(lvm_tag_read(&lv, &back), -ENODATA);
    }
    /* The copy of a group: vgimportclone(8) gives it another UUID, and leaves the tags. */
    static char joined[2 * LVM_TAG_MAX];
    struct lvm_tags *text = malloc(sizeof *text);
    struct lvm_lv lv = *lvm_find(&r, "vg0", "db1");
    struct lvm_tag t = some_tag(&lv);
    assert_int_equal(lvm_tag_write(&t, text, NULL), 0);
    tagged(&lv, text, joined, sizeof joined);
    lv.vg_uuid = "another";
    assert_int_equal(lvm_tag_read(&lv, &back), -ENODATA);
    free(text);
    lvm_report_free(&r);
}

static void the_other_tags(void **state)
{
    (void)state;
    char tag[LVM_TAG_MAX], id[VOLUME_ID_MAX], restored[ALIAS_LEN + 1];
    struct lvm_exposed x = {.created_ns = 5}, back;
    alias_new(x.alias);
    strcpy(x.node, "a node");
    assert_int_equal(lvm_exposed_write(&x, tag, NULL), 0);
    assert_true(allowed_in_tags(tag) && lvm_is_our_tag(tag) && lvm_exposed_read(tag, &back));
    assert_string_equal(back.node, "a node");
    assert_true(back.created_ns == 5 && strcmp(back.alias, x.alias) == 0 && !lvm_exposed_read("admin", &back));
    assert_int_equal(lvm_inherited_write("lvm:abc", "vg", x.alias, tag, NULL), 0);
    assert_true(allowed_in_tags(tag) && lvm_is_our_tag(tag) && lvm_inherited_read(tag, "vg", id, restored));
    assert_string_equal(id, "lvm:abc");
    assert_false(lvm_inherited_read(tag, "another", id, restored));
    assert_false(lvm_is_our_tag("admin"));
    struct lvm_report r = real_report();
    struct lvm_lv lv = *lvm_find(&r, "vg0", "db1");
    lvm_volume_id(&lv, id);
    assert_string_equal(id, "lvm:FxNAuv-5tZ1-Xx9f-3DDr-U02Z-S5V3-JSwxjB");
    assert_int_equal(lvm_inherited_write("lvm:abc", lv.vg_uuid, x.alias, tag, NULL), 0);
    lv.tags = tag;
    lvm_volume_id(&lv, id);
    assert_string_equal(id, "lvm:abc");
    assert_true(lvm_restored_by(&lv, x.alias) && !lvm_restored_by(&lv, "another"));
    lvm_report_free(&r);
}

static void names(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        enum err_class cls;
    } cases[] = {{"/dev/vg0/db1", ERR_NONE},    {"/dev/v-g/a.b_c+d-", ERR_NONE},
                 {"vg0/db1", ERR_USAGE},        {"/dev", ERR_USAGE},
                 {"/dev/sda", ERR_NOT_FOUND},   {"/dev/mapper/vg0-db1", ERR_USAGE},
                 {"/dev/vg0/db1/x", ERR_USAGE}, {"/dev/vg0/../sda", ERR_USAGE},
                 {"/dev/vg0/-rf", ERR_USAGE},   {"/dev/--config/x", ERR_USAGE},
                 {"/dev/vg0/a b", ERR_USAGE},   {"/srv/vg0/db1", ERR_USAGE}};
    char vg[LVM_NAME_MAX], name[LVM_NAME_MAX];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = ERR_INIT;
        int rc = lvm_path_split(cases[i].path, vg, name, &e);
        if ((rc == 0) != (cases[i].cls == ERR_NONE) || e.cls != cases[i].cls)
            fail_msg("%s: %d %s", cases[i].path, rc, e.msg);
    }
}

static void classes(void **state)
{
    (void)state;
    static const struct {
        const char *driver, *match, *target, *said;
    } cases[] = {{"lvm-thin", "vg0/*", "", "not of the form /dev/GROUP/VOLUME"},
                 {"lvm-thin", "/dev/mapper/*", "", "not of the form /dev/GROUP/VOLUME"},
                 {"lvm-thin", "/dev/vg0/*", "vg0", "names no thin pool"},
                 {"lvm-thin", "/dev/vg0/*", "/dev/vg0", "is not GROUP/POOL"},
                 {"lvm", "/dev/vg0/*", "vg0/tp", "is not the name of a volume group"},
                 {"lvm-thin", "tags:x", "", "not of the form /dev/GROUP/VOLUME"},
                 {"lvm-thin", "pool:vg0", "", "not of the form pool:GROUP/POOL"},
                 {"lvm", "pool:vg0/tp", "", "volumes of driver lvm are in no thin pool"},
                 {"lvm-thin", "pool:vg0/tp", "", "cannot run /no/such/lvm"},
                 {"lvm", "vg:vg0", "", "cannot run /no/such/lvm"},
                 {"lvm", "tag:x", "", "cannot run /no/such/lvm"},
                 {"lvm", "/dev/*/*", "vg0", "cannot run /no/such/lvm"}};
    lvm_program_test("/no/such/lvm");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *match[] = {cases[i].match, NULL};
        struct driver_class c = {
            .name = "gold", .driver = cases[i].driver, .match = match, .target = cases[i].target, .node = "node1"};
        struct err e = ERR_INIT;
        unsigned can;
        assert_true(driver_by_name(c.driver)->abilities(&c, &can, &e) < 0);
        assert_int_equal(e.cls, ERR_USAGE);
        if (!strstr(e.msg, cases[i].said))
            fail_msg("case %zu: %s", i, e.msg);
    }
}

/* What LVM says of a volume, without our own tags. */
static void labels(void **state)
{
    (void)state;
    static char joined[2 * LVM_TAG_MAX], many[30 * 200];
    struct lvm_report r = real_report();
    struct lvm_tags *text = malloc(sizeof *text);
    struct volume *v = malloc(sizeof *v);
    assert_true(lvm_describe(lvm_find(&r, "vg0", "db1"), v));
    assert_string_equal(v->labels, "vg:vg0 pool:vg0/tp tag:admin");
    assert_true(lvm_describe(lvm_find(&r, "vg-two", "a-b"), v));
    assert_string_equal(v->labels, "vg:vg-two");
    struct lvm_lv lv = *lvm_find(&r, "vg0", "db1");
    struct lvm_tag t = some_tag(&lv);
    assert_int_equal(lvm_tag_write(&t, text, NULL), 0);
    tagged(&lv, text, joined, sizeof joined);
    lv.tags = joined;
    assert_true(lvm_describe(&lv, v));
    assert_null(strstr(v->labels, "snapferry"));
    /* More than fit: what does fit is whole. */
    for (size_t i = 0; i < 29; i++)
        snprintf(many + strlen(many), sizeof many - strlen(many), "%s%0180zu", i ? "," : "", i);
    lv.tags = many;
    assert_false(lvm_describe(&lv, v));
    assert_true(strlen(v->labels) > VOLUME_LABELS_MAX - 200 && strlen(strrchr(v->labels, ':') + 1) == 180);
    static const struct {
        const char *match[3];
        bool is;
    } cases[] = {{{"tag:admin"}, true},      {{"tag:adm"}, false},         {{"tag:adm*"}, true},
                 {{"vg:vg0"}, true},         {{"vg:vg"}, false},           {{"pool:vg0/tp"}, true},
                 {{"pool:vg0/*"}, true},     {{"pool:*"}, false},          {{"/dev/vg0/db*"}, true},
                 {{"/dev/vg1/*"}, false},    {{"tag:no", "vg:vg0"}, true}, {{"tag:vg0", "vg:admin"}, false},
                 {{"/dev/x/y", NULL}, false}};
    lvm_describe(lvm_find(&r, "vg0", "db1"), v);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct driver_class c = {.name = "c", .driver = "lvm-thin", .match = cases[i].match};
        if (lvm_is_matched(&c, v) != cases[i].is)
            fail_msg("case %zu: %s", i, cases[i].match[0]);
    }
    free(text);
    free(v);
    lvm_report_free(&r);
}

static void a_pool_that_cannot_be_used(void **state)
{
    (void)state;
    static const struct {
        const char *health;
        bool check;
        double data, metadata;
        enum err_class cls;
        const char *said, *hint;
    } cases[] = {{"", false, 50, 50, ERR_NONE, "", ""},
                 {"", false, -1, -1, ERR_NONE, "", ""}, /* not active: LVM activates it */
                 {"", true, 50, 50, ERR_SOURCE, "must be checked (needs_check)", ""},
                 {"metadata_read_only", false, 50, 50, ERR_SOURCE, "is read-only", "--repair"},
                 {"metadata_read_only", false, 50, 90, ERR_NO_SPACE, "is read-only: its metadata is 90.0 % full",
                  "--poolmetadatasize"},
                 {"metadata_read_only", true, 50, 90, ERR_SOURCE, "must be checked (needs_check)", ""},
                 {"failed", false, 50, 50, ERR_SOURCE, "is failed", ""},
                 {"out_of_data", false, 100, 50, ERR_NO_SPACE, "out of data space", ""},
                 {"", false, 97.3, 50, ERR_NO_SPACE, "the data of thin pool vg0/tp is 97.3 % full", ""},
                 {"", false, 50, 95, ERR_NO_SPACE, "the metadata of thin pool vg0/tp is 95.0 % full", ""}};
    struct lvm_report r = real_report();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct lvm_lv pool = *lvm_find(&r, "vg0", "tp");
        struct err e = ERR_INIT;
        pool.health = cases[i].health;
        pool.check_needed = cases[i].check;
        pool.data = cases[i].data;
        pool.metadata = cases[i].metadata;
        int rc = lvm_pool_check(&r, &pool, "cannot do it", &e);
        if ((rc == 0) != (cases[i].cls == ERR_NONE) || e.cls != cases[i].cls || !strstr(e.msg, cases[i].said) ||
            !strstr(e.hint, cases[i].hint))
            fail_msg("case %zu: %d %s (%s)", i, rc, e.msg, e.hint);
    }
    struct err e = ERR_INIT;
    assert_true(lvm_pool_check(&r, NULL, "cannot do it", &e) < 0 && e.cls == ERR_NOT_FOUND);
    lvm_report_free(&r);
}

/* ---- a stand-in for lvm(8), to inject faults ---- */

static void stand_in(const char *script)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/lvm", dir);
    unlink(path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "#!/bin/sh\n%s\n", script);
    fclose(f);
    assert_int_equal(chmod(path, 0755), 0);
    lvm_program_test(path);
}

static void what_lvm_says(void **state)
{
    (void)state;
    static const struct {
        const char *script;
        enum err_class cls;
        const char *said, *hint;
    } cases[] = {{"echo '  Volume group \"vg0\" has insufficient free space (3 extents): 5 required.' >&2; exit 5",
                  ERR_NO_SPACE, "insufficient free space", ""},
                 {"echo '  WARNING: Remaining free space in metadata of thin pool vg0/tp is too low (77% >= 75%). '"
                  "'Resize is recommended.' >&2; "
                  "echo '  Cannot create new thin volume, free space in thin pool vg0/tp reached threshold.' >&2; "
                  "exit 5",
                  ERR_NO_SPACE, "metadata of thin pool vg0/tp", "--poolmetadatasize"},
                 {"echo '  Cannot create new thin volume, free space in thin pool vg0/tp reached threshold.' >&2; "
                  "exit 5",
                  ERR_NO_SPACE, "reached threshold", "extend the thin pool"},
                 {"echo '  Logical volume vg0/x in use.' >&2; exit 5", ERR_BUSY, "in use", ""},
                 {"echo '  /usr/sbin/thin_check: execvp failed: No such file or directory' >&2; "
                  "echo '  Check of pool vg0/tp failed (status:2).' >&2; exit 5",
                  ERR_SOURCE, "Check of pool", ""},
                 {"echo nothing known >&2; exit 5", ERR_GENERIC, "nothing known", ""},
                 {"kill -9 $$", ERR_GENERIC, "killed by signal 9", ""}};
    static const char *const args[] = {"lvcreate", "x", NULL};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = ERR_INIT;
        stand_in(cases[i].script);
        int rc = lvm_change("cannot take a native snapshot of /dev/vg0/db1", args, &e);
        if (rc >= 0 || e.cls != cases[i].cls || !strstr(e.msg, cases[i].said) || !strstr(e.msg, "cannot take") ||
            !strstr(e.hint, cases[i].hint))
            fail_msg("case %zu: %d class %d: %s (%s)", i, rc, (int)e.cls, e.msg, e.hint);
    }
}

/* Of a group or thin pool that is there its volumes may be gone; of one that is not told they have disappeared with it.
 */
static void groups_and_pools_are_told(void **state)
{
    (void)state;
    static const char *const match[] = {"/dev/*/*", NULL};
    const struct driver_class thin = {.name = "c", .driver = "lvm-thin", .match = match, .target = "", .node = "n"};
    char *CLEANUP_FREE report = realpath(fixture_path("lvm/lvs.json"), NULL);
    char script[600], told[PLACES_TEXT] = "";
    struct err e = ERR_INIT;
    snprintf(script, sizeof script, "cat %s", report);
    stand_in(script);
    if (driver_lvm_thin.volumes(&thin, note_place, told, &e) < 0)
        fail_msg("%s", e.msg);
    assert_string_equal(told, "place:vg0 place:vg0/tp place:vg-two place:vg0 /dev/vg0/db1 /dev/vg0/odd--na.me_+x "
                              "/dev/vg0/ofsnap /dev/vg0/snapferry-6f1c2a30-0000-4000-8000-000000000001");
}

/* A report that fails is never an empty one: what is not listed would be taken for removed. */
static void reports_that_fail(void **state)
{
    (void)state;
    static const char *const scripts[] = {
        "echo '{\"report\": [{\"lv\": []}]}'; echo '  WARNING: Device for PV x not found' >&2; exit 5", "exit 0",
        "echo '{\"report\": [{\"lv\": ['", "kill -9 $$", "echo nonsense"};
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        struct lvm_report r;
        struct err e = ERR_INIT;
        stand_in(scripts[i]);
        int rc = lvm_report_read(&r, NULL, &e);
        if (rc >= 0 || !e.msg[0])
            fail_msg("case %zu", i);
        lvm_report_free(&r);
    }
    struct lvm_report r;
    struct err e = ERR_INIT;
    stand_in("echo '{\"report\": [{\"lv\": []}]}'; echo '  Volume group \"vg9\" not found' >&2; exit 5");
    assert_int_equal(lvm_report_read(&r, "vg9", &e), 0);
    assert_int_equal(r.n, 0);
    lvm_report_free(&r);
    assert_true(lvm_report_read(&r, "vg8", &e) < 0);
}

/* A reset leaves the tag of an exposure and not its device: what is opened then is activated again, and nothing of
 * which the tag is gone. */
static void a_device_that_a_reset_took(void **state)
{
    (void)state;
    static const char name[] = "snapferry-6f1c2a30-0000-4000-8000-000000000001";
    static const struct driver_class thin = {.name = "c", .driver = "lvm-thin", .node = "node1"};
    char *CLEANUP_FREE report = realpath(fixture_path("lvm/lvs.json"), NULL);
    char script[900], called[300], said[300], want[200];
    for (unsigned tagged = 0; tagged < 2; tagged++) {
        struct exposure x = {.mechanism = EXPOSE_NATIVE, .read_only = true, .size = 33554432, .where = "vg0/tp"};
        struct err e = ERR_INIT;
        int fd = -1;
        snprintf(called, sizeof called, "%s/called", dir);
        snprintf(script, sizeof script,
                 "case $1 in lvs) sed '/6f1c2a30/s/\"lv_active\": *\"active\"/\"lv_active\":\"\"/' %s ;; "
                 "*) echo \"$*\" >>%s ;; esac",
                 report, called);
        stand_in(script);
        snprintf(x.path, sizeof x.path, "/dev/mapper/vg0-snapferry--6f1c2a30--0000--4000--8000--000000000001");
        snprintf(x.alias, sizeof x.alias, "%s", tagged ? name + 10 : "77777777-0000-4000-8000-000000000001");
        assert_true(driver_lvm_thin.open(&thin, &x, &fd, &e) < 0); /* there is no device mapper here */
        assert_true(e.cls == ERR_NOT_FOUND && fd == -1);
        FILE *f = fopen(called, "r");
        snprintf(want, sizeof want, "lvchange --activate y --ignoreactivationskip vg0/%s\n", name);
        assert_true(tagged ? f && fgets(said, sizeof said, f) && strcmp(said, want) == 0 : !f);
        if (f)
            fclose(f);
        unlink(called);
    }
}

/* What is recorded of a metadata snapshot: the intent, and the number that the shell puts in the place of "-". */
static void tags_of_pools(void **state)
{
    (void)state;
    char tag[LVM_TAG_MAX], with[LVM_TAG_MAX];
    struct lvm_report r = real_report();
    const struct lvm_lv *pool = lvm_find(&r, "vg0", "tp");
    struct lvm_reserved x = {.created_ns = 1700000000000000001, .owner = {.pid = 4711, .start_time = 123456}}, back;
    struct err e = ERR_INIT;
    alias_new(x.alias);
    strcpy(x.node, "node 1, \"odd\"+");
    strcpy(x.vg_uuid, pool->vg_uuid);
    strcpy(x.owner.boot_id, "0a1b2c3d-0000-4000-8000-000000000001");
    assert_int_equal(lvm_reserved_write(&x, tag, &e), 0);
    assert_true(allowed_in_tags(tag) && lvm_is_our_tag(tag) && strlen(tag) < 1000);
    assert_true(lvm_reserved_read(tag, pool->vg_uuid, &back));
    assert_true(strcmp(back.alias, x.alias) == 0 && strcmp(back.node, x.node) == 0 && back.root == 0);
    assert_true(back.created_ns == x.created_ns && back.owner.pid == 4711 && back.owner.start_time == 123456);
    assert_string_equal(back.owner.boot_id, x.owner.boot_id);
    assert_string_equal(tag + strlen(tag) - 2, "+-");
    tag[strlen(tag) - 1] = '\0';
    snprintf(with, sizeof with, "%.900s%d", tag, 4242);
    assert_true(lvm_reserved_read(with, pool->vg_uuid, &back) && back.root == 4242);
    x.root = 4242;
    assert_int_equal(lvm_reserved_write(&x, tag, &e), 0);
    assert_string_equal(tag, with);
    assert_false(lvm_reserved_read(with, "another-group", &back));
    static const char *const bad[] = {"", "0", "-1", "4x", "18446744073709551616", "-+1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(with, sizeof with, "%.*s%s", (int)(strrchr(tag, '+') + 1 - tag), tag, bad[i]);
        if (lvm_reserved_read(with, pool->vg_uuid, &back))
            fail_msg("%s", with);
    }
    lvm_report_free(&r);
}

/* Thin ids are reused, LV UUIDs are not: both are in it, the transaction of the creation, and the pool. */
static void change_ids(void **state)
{
    (void)state;
    char id[CHANGE_ID_MAX], other[CHANGE_ID_MAX];
    struct lvm_report r = real_report();
    struct lvm_lv lv = *lvm_find(&r, "vg0", "db1");
    const struct lvm_lv *pool = lvm_find(&r, "vg0", "tp");
    lvm_change_id(&r, &lv, id);
    snprintf(other, sizeof other, "%s.1.0.%s", lv.uuid, pool->uuid);
    assert_string_equal(id, other);
    assert_int_equal(strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-"), strlen(id));
    lv.transaction = "7";
    lvm_change_id(&r, &lv, other);
    assert_string_not_equal(id, other);
    lv.transaction = ""; /* an LVM that does not say it */
    lvm_change_id(&r, &lv, other);
    assert_string_equal(other, "");
    lvm_change_id(&r, lvm_find(&r, "vg0", "sn1"), other); /* a COW snapshot has no such list */
    assert_string_equal(other, "");
    lvm_report_free(&r);
}

/* A volume of several segments has as many rows. */
static void rows_of_segments(void **state)
{
    (void)state;
    size_t len;
    char *text = fixture("lvm/lvs.json", &len), *row = strstr(text, "{\"vg_name\""), *end = strstr(row, "},");
    char *twice = calloc(1, 2 * len);
    struct lvm_report r;
    struct err e = ERR_INIT;
    assert_non_null(end);
    sprintf(twice, "%.*s%.*s%s", (int)(end + 2 - text), text, (int)(end + 2 - row), row, end + 2);
    assert_int_equal(lvm_report_parse(&r, twice, strlen(twice), &e), 0);
    assert_int_equal(r.n, 8);
    lvm_report_free(&r);
    /* Another group with the same UUIDs, a copy, is not the same volume. */
    char *vg = strstr(twice, "\"vg-two\"");
    memcpy(vg, "\"vg-twx\"", 8);
    if (lvm_report_parse(&r, twice, strlen(twice), &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(r.n, 9);
    lvm_report_free(&r);
    free(twice);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_real_report),
        cmocka_unit_test(a_report_that_is_cut_off),
        cmocka_unit_test(reports_with_faults),
        cmocka_unit_test(tags_there_and_back),
        cmocka_unit_test(tags_that_are_not_ours),
        cmocka_unit_test(the_other_tags),
        cmocka_unit_test(tags_of_pools),
        cmocka_unit_test(change_ids),
        cmocka_unit_test(rows_of_segments),
        cmocka_unit_test(names),
        cmocka_unit_test(labels),
        cmocka_unit_test(classes),
        cmocka_unit_test(a_pool_that_cannot_be_used),
        cmocka_unit_test(what_lvm_says),
        cmocka_unit_test(reports_that_fail),
        cmocka_unit_test(groups_and_pools_are_told),
        cmocka_unit_test(a_device_that_a_reset_took),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
