/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_bookmarks.c - what steps of the engine do with bookmarks: made with a native snapshot, left or removed with it,
 * listed for the sweep
 *
 * Driver zfs; a script is zfs(8) and zpool(8), with snapshots and bookmarks in files.
 */
#include "tests/unit/test.h"

#include "base/json.h"
#include "daemon/engine/engine-impl.h"
#include "io/native/zfs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define ALIAS "11111111-2222-4333-8444-555555555555"
#define SNAPSHOT "tank/vm/d1@snapferry-" ALIAS
#define MARK "tank/vm/d1#snapferry-" ALIAS ":4711:n"
#define VOLUME_GUID "10282077169542838889"

static char dir[] = "/tmp/snapferry-bookmarks-XXXXXX";
static const char *const files[] = {"zfs", "snapshots", "marks", "new", "none"};

static const char script[] =
    "tab=$(printf '\\t')\n"
    "p() { printf '%s\\t%s\\t%s\\t%s\\n' \"$name\" \"$1\" \"${3:--}\" \"$2\"; }\n"
    "object() { # TYPE GUID TXG OWNER\n"
    "    p type $1; p guid $2; p createtxg $3; p volsize 33554432; p volblocksize 16384; p used 0; p available 1\n"
    "    p logicalreferenced 1; p refreservation 0; p userrefs 0; p origin -; p clones -; p snapdev hidden default\n"
    "    p volmode default; p keystatus -; p defer_destroy off; p snapferry:owner \"$4\" local\n"
    "    p snapferry:volume -; p snapferry:snapdev -\n"
    "}\n"
    "volume() { name=tank/vm/d1; object volume " VOLUME_GUID " 10 -; }\n"
    "snapshots() { while IFS=$tab read -r name guid txg owner; do object snapshot $guid $txg \"$owner\"; done "
    "<snapshots; }\n"
    "drop() { grep -q \"^$2$tab\" $1 || { echo \"$3\" >&2; exit 1; }; grep -v \"^$2$tab\" $1 >new; mv new $1; }\n"
    "case \"$*\" in\n"
    "*local,inherited*) ;;\n"
    "'get -Hp -d 1 '*) volume; snapshots ;;\n"
    "'get -Hp -t volume '*) volume ;;\n"
    "*property,source,value*) snapshots ;;\n"
    "'get -Hp -o name,property,value'*)\n"
    "    for v in 'guid\\t4711' 'size\\t1000' 'allocated\\t1' 'freeing\\t0' 'health\\tONLINE' 'readonly\\toff'; do\n"
    "        printf \"tank\\t$v\\n\"; done ;;\n"
    "'snapshot -o '*) printf '%s\\t77\\t20\\t%s\\n' \"$4\" \"${3#*=}\" >>snapshots ;;\n"
    "bookmark*) [ ! -e none ] || { echo \"cannot create bookmark '$3': bookmark feature not enabled\" >&2; exit 1; }\n"
    "    printf '%s\\t77\\t20\\t1764400000\\n' \"$3\" >>marks ;;\n"
    "destroy*#*) drop marks \"$2\" \"bookmark '$2' does not exist.\" ;;\n"
    "destroy*) drop snapshots \"$2\" 'could not find any snapshots to destroy; check snapshot names.' ;;\n"
    "list*) cat marks ;;\n"
    "*) echo \"unexpected: $*\" >&2; exit 1 ;;\n"
    "esac\n";

static char *path_of(const char *name)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void write_file(const char *name, const char *text)
{
    FILE *f = fopen(path_of(name), "w");
    assert_true(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static int setup(void **state)
{
    (void)state;
    setenv("SNAPFERRY_NO_SYSTEMD", "1", 1);
    assert_true(mkdtemp(dir) && chmod(dir, 0755) == 0);
    char text[sizeof script + 100];
    snprintf(text, sizeof text, "#!/bin/sh\ncd %s\n%s", dir, script);
    write_file("zfs", text);
    assert_int_equal(chmod(path_of("zfs"), 0755), 0);
    static char program[300];
    memcpy(program, path_of("zfs"), sizeof program);
    zfs_programs_test(program, program);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        unlink(path_of(files[i]));
    return rmdir(dir);
}

/* Names of objects in the file. */
static bool holds(const char *file, const char *name)
{
    char line[4000];
    bool found = false;
    FILE *f = fopen(path_of(file), "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\t\n")] = '\0';
        found |= !*name || strcmp(line, name) == 0;
    }
    fclose(f);
    return found;
}

#define assert_there(snapshot, mark)                                                                                   \
    do {                                                                                                               \
        assert_int_equal(holds("snapshots", SNAPSHOT), snapshot);                                                      \
        assert_int_equal(holds("marks", MARK), mark);                                                                  \
    } while (0)

/* ---- steps ---- */

static json_t *zvols_doc(void)
{
    return json_pack("{s:s,s:s,s:s,s:[s]}", "name", "zvols", "driver", "zfs", "node", "n", "match",
                     "dataset:tank/vm/*");
}

static json_t *volume_doc(void)
{
    return json_pack("{s:s,s:s,s:I}", "name", "/dev/zvol/tank/vm/d1", "id", "zfs:" VOLUME_GUID, "size",
                     (json_int_t)33554432);
}

static json_t *tag_doc(void)
{
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:I,s:I}", "alias", ALIAS, "volume_id", "zfs:" VOLUME_GUID,
                     "volume_name", "/dev/zvol/tank/vm/d1", "backup", "b1", "operation", "up-b1.v", "repository",
                     "main", "created_ns", (json_int_t)1764400000000000000, "seq", (json_int_t)7);
}

/* The first item of its answer, a new reference. */
static json_t *play(step_fn *step, const char *member, json_t *item)
{
    CLEANUP_JSON json_t *in = json_pack("{s:[o]}", member, item), *out = NULL;
    struct err e = ERR_INIT;
    int fd = -1;
    if (step(in, &out, &fd, &e) < 0)
        fail_msg("%s", e.msg);
    json_t *a = json_array_get(jarr(out, member), 0);
    if (!a || jobj(a, "error"))
        fail_msg("%s", a ? jstr(jobj(a, "error"), "message") : "no answer");
    return json_incref(a);
}

/* *native: as it was described. */
static json_t *take(bool bookmark, json_t **native)
{
    json_t *item = json_pack("{s:s,s:o,s:o,s:o}", "operation", "up-b1.v", "class", zvols_doc(), "volume", volume_doc(),
                             "tag", tag_doc());
    if (bookmark)
        jset_bool(item, "bookmark", true);
    json_t *a = play(step_snapshot, "items", item);
    json_decref(*native);
    *native = json_incref(jobj(a, "native"));
    return a;
}

static json_t *removal(const json_t *native, const char *a, const char *b)
{
    json_t *item = json_pack("{s:s,s:o,s:O}", "alias", ALIAS, "class", zvols_doc(), "native", native);
    jset_bool(item, a, true);
    jset_bool(item, b, true);
    return play(step_remove, "items", item);
}

#define expect(answer, gone, left)                                                                                     \
    do {                                                                                                               \
        CLEANUP_JSON json_t *of = answer;                                                                              \
        assert_int_equal(jbool(of, "gone"), gone);                                                                     \
        assert_int_equal(jbool(of, "bookmark"), left);                                                                 \
    } while (0)

static void with_its_native_snapshot(void **state)
{
    (void)state;
    CLEANUP_JSON json_t *native = NULL;
    write_file("snapshots", "");
    write_file("marks", "");
    expect(take(false, &native), false, false);
    assert_there(true, false);
    expect(take(true, &native), false, true); /* again after a crash */
    assert_there(true, true);
    expect(removal(native, "bookmark", "bookmark"), false, false);
    assert_there(false, false);
    expect(removal(native, "bookmark", "bookmark"), true, false); /* again after a crash */
    write_file("none", "");
    CLEANUP_JSON json_t *a = take(true, &native);
    unlink(path_of("none"));
    assert_false(jbool(a, "bookmark"));
    assert_non_null(strstr(jstr(a, "no_bookmark"), "not enabled (zpool set feature@bookmarks"));
    assert_there(true, false);
    expect(removal(native, "bookmark", "bookmark"), false, false);
    assert_there(false, false);
}

static void without_its_native_snapshot(void **state)
{
    (void)state;
    CLEANUP_JSON json_t *native = NULL;
    write_file("snapshots", "");
    write_file("marks", "");
    expect(take(true, &native), false, true);
    expect(removal(native, "bookmark", "leave_bookmark"), false, true);
    assert_there(false, true);
    expect(removal(native, "bookmark", "leave_bookmark"), true, true); /* again after a crash */
    expect(removal(native, "bookmark", "only_bookmark"), true, false);
    assert_there(false, false);
    /* Missing, it is looked for: one that is there keeps its bookmark. */
    expect(take(true, &native), false, true);
    CLEANUP_JSON json_t *there = removal(native, "bookmark", "missing");
    assert_true(jbool(there, "there"));
    assert_there(true, true);
    write_file("snapshots", "");
    expect(removal(native, "bookmark", "missing"), true, false);
    assert_there(false, false);
    /* What a step that was killed has left. */
    expect(take(true, &native), false, true);
    json_decref(play(step_undo, "intents",
                     json_pack("{s:i,s:s,s:s,s:{s:o,s:o}}", "id", 1, "kind", "native", "name", ALIAS, "doc", "class",
                               zvols_doc(), "volume", volume_doc())));
    assert_there(false, false);
    write_file("marks", MARK "\t77\t20\t1764400000\n");
    json_decref(play(step_undo, "intents",
                     json_pack("{s:i,s:s,s:s,s:{s:o,s:o}}", "id", 1, "kind", "native", "name", ALIAS, "doc", "class",
                               zvols_doc(), "volume", volume_doc())));
    assert_there(false, false);
}

/* As the sweep gets them, and removes one that no record knows. */
static void listed(void **state)
{
    (void)state;
    CLEANUP(storage_seen_clear) struct storage_seen seen;
    CLEANUP_JSON json_t *in = json_pack("{s:[o]}", "classes", zvols_doc()), *out = NULL;
    struct err e = ERR_INIT;
    int fd = -1;
    write_file("snapshots", "");
    write_file("marks", "tank/vm/d1#cursor\t1\t5\t1764400000\n" MARK "\t77\t20\t1764400000\n");
    storage_seen_init(&seen);
    if (step_storage(in, &out, &fd, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(storage_seen_load(&seen, out), 0);
    const struct class_swept *k = seen.classes.v;
    assert_true(seen.classes.n == 1 && !k->error.code && !k->natives.n && k->bookmarks.n == 1);
    const struct native_desc *b = k->bookmarks.v;
    assert_string_equal(b->alias, ALIAS);
    assert_true(b->created_ns == 1764400000000000000);
    CLEANUP_JSON json_t *native = native_desc_to_json(b);
    expect(removal(native, "bookmark", "bookmark"), true, false);
    assert_there(false, false);
    assert_true(holds("marks", "tank/vm/d1#cursor"));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_its_native_snapshot),
        cmocka_unit_test(without_its_native_snapshot),
        cmocka_unit_test(listed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
