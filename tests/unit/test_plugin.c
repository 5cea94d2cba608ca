/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Plugins that tell the truth, and plugins that lie, hang, flood, die or say nothing (AP-05, AP-21..23, RS-27). */
#include "proc/program.h"
#include "io/native/driver.h"
#include "io/native/plugin-shapes.h"
#include "proc/plugin-call.h"
#include "tests/unit/test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char dir[256];
static const char *real_driver;

/* The example is run from a copy that starts gojq, where it is installed, as in tests/lib.sh. */
static int make_dir(void **state)
{
    (void)state;
    static char path[sizeof dir + 16];
    char cmd[1024];
    setenv("SNAPFERRY_NO_SYSTEMD", "1", 1);
    snprintf(dir, sizeof dir, "%s/snapferry-plugin.XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(dir))
        return -1;
    chmod(dir, 0755);
    snprintf(cmd, sizeof cmd,
             "set -e; cd '%s'; jq=$(command -v gojq) || jq=$(command -v jq); mkdir bin; ln -s \"$jq\" bin/jq\n"
             "sed \"2i PATH=$PWD/bin:\\$PATH\" \"$OLDPWD/examples/plugins/driver-dir\" >driver-dir\n"
             "chmod 755 bin driver-dir",
             dir);
    snprintf(path, sizeof path, "%s/driver-dir", dir);
    real_driver = path;
    return system(cmd);
}
static int remove_dir(void **state)
{
    (void)state;
    char cmd[600];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    return system(cmd);
}

/* A script as a plugin; its path is static, four in turn. */
static const char *script(const char *name, const char *text)
{
    static char path[4][512];
    static unsigned turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    unlink(p);
    FILE *f = fopen(p, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(chmod(p, 0755), 0);
    return p;
}
static struct plugin_program program(const char *text)
{
    return (struct plugin_program){.name = "test", .path = script("plugin", text)};
}
static int call(const char *text, struct err *e)
{
    struct plugin_program p = program(text);
    json_t *answer = NULL;
    *e = (struct err)ERR_INIT;
    int rc = plugin_call(&p, PV_APPLIES, NULL, 2, &answer, e);
    json_decref(answer);
    return rc;
}
static void assert_says(const struct err *e, const char *text)
{
    if (!strstr(e->msg, text))
        fail_msg("\"%s\" is not in \"%s\"", text, e->msg);
}

/* ---- one call ---- */

static void test_request(void **state)
{
    (void)state;
    struct plugin_program p =
        program("#!/bin/sh\nprintf '{\"protocol\":1,\"verb\":\"%s\",\"request\":' \"$1\"\n"
                "cat\nprintf ',\"env\":\"%s\"}' \"$(env | cut -d= -f1 | sort | tr '\\n' ' ')\"\n");
    struct err e = ERR_INIT;
    CLEANUP_PLUGIN_JSON json_t *args = json_pack("{s:s, s:i}", "name", "x", "protocol", 99), *answer = NULL;
    setenv("SNAPFERRY_SECRET", "s", 1);
    assert_ok(plugin_call(&p, PV_RESOLVE, args, 0, &answer, &e), &e);
    assert_string_equal(json_string_value(json_object_get(answer, "verb")), "resolve");
    const json_t *q = json_object_get(answer, "request");
    assert_int_equal(json_integer_value(json_object_get(q, "protocol")), PLUGIN_PROTOCOL);
    assert_string_equal(json_string_value(json_object_get(q, "verb")), "resolve");
    assert_string_equal(json_string_value(json_object_get(q, "name")), "x");
    /* MS-15: nothing of our environment but what is listed. */
    const char *env = json_string_value(json_object_get(answer, "env"));
    assert_null(strstr(env, "SECRET"));
    assert_non_null(strstr(env, "SNAPFERRY_PROTOCOL"));
}

static void test_nonsense_answers(void **state)
{
    (void)state;
    static const struct {
        const char *print, *says;
        int rc;
    } t[] = {
        {"", "no answer", -EBADMSG},
        {"garbage", "not JSON", -EBADMSG},
        {"{\"protocol\":1,\"applies\":tr", "not JSON", -EBADMSG},
        {"{\"protocol\":1} {\"protocol\":1}", "not JSON", -EBADMSG},
        {"{\"protocol\":1,\"a\":1,\"a\":2}", "not JSON", -EBADMSG},
        {"[1]", "not a JSON object", -EBADMSG},
        {"{\"applies\":true}", "no protocol version", -EBADMSG},
        {"{\"protocol\":\"1\"}", "no protocol version", -EBADMSG},
        {"{\"protocol\":2}", "version 2", -EPROTO},
        {"{\"protocol\":0}", "version 0", -EPROTO},
        {"{\"protocol\":-1}", "version -1", -EPROTO},
        {"{\"protocol\":99999999999999999999999}", "not JSON", -EBADMSG},
        {"{\"protocol\":1,\"x\":\"\\u0000\"}", "not JSON", -EBADMSG},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        char text[400];
        struct err e;
        snprintf(text, sizeof text, "#!/bin/sh\ncat <<'E'\n%s\nE\n", t[i].print);
        if (!*t[i].print)
            snprintf(text, sizeof text, "#!/bin/sh\nexit 0\n");
        assert_int_equal(call(text, &e), t[i].rc);
        assert_says(&e, t[i].says);
        assert_says(&e, ", plugin: test"); /* AO-26 */
    }
    struct err e;
    assert_int_equal(call("#!/bin/sh\nprintf '{\"protocol\":1,\"x\":\"\\377\\376\"}'\n", &e), -EBADMSG);
    assert_int_equal(call("#!/bin/sh\nhead -c 900000 /dev/zero | tr '\\0' '['\n", &e), -EBADMSG);
}

/* N and N-1 are spoken, nothing before 1 ever was. */
static void test_versions(void **state)
{
    (void)state;
    assert_true(plugin_protocol_ok(1, 1));
    assert_false(plugin_protocol_ok(0, 1));
    assert_false(plugin_protocol_ok(2, 1));
    assert_true(plugin_protocol_ok(1, 2));
    assert_true(plugin_protocol_ok(2, 2));
    assert_false(plugin_protocol_ok(1, 3));
    assert_false(plugin_protocol_ok(4, 3));
}

static void test_exit_codes(void **state)
{
    (void)state;
    char text[400];
    struct err e;
    const struct plugin_exit_info *x;
    for (unsigned i = 0; (x = plugin_exit_at(i)); i++) {
        snprintf(text, sizeof text, "#!/bin/sh\necho '{\"error\":\"my words\",\"hint\":\"do that\"}'\nexit %d\n",
                 x->code);
        assert_int_equal(call(text, &e), -x->sys);
        assert_int_equal(e.cls, x->cls);
        assert_string_equal(e.msg, "applies: my words, plugin: test");
        assert_string_equal(e.hint, "do that");
    }
    assert_int_equal(call("#!/bin/sh\necho 'from stderr' >&2\nexit 7\n", &e), -EIO);
    assert_says(&e, "exit code 7");
    assert_says(&e, "from stderr");
    assert_int_equal(call("#!/bin/sh\nexit 64\n", &e), -ENOTSUP);
    assert_says(&e, "verb not supported");
    /* What it says is cleaned before a terminal sees it. */
    assert_int_equal(call("#!/bin/sh\nprintf '{\"error\":\"a\\\\u001b[31mb\\\\nc\"}'\nexit 1\n", &e), -EIO);
    assert_string_equal(e.msg, "applies: a [31mb c, plugin: test");
}

/* A program that is gone is not a snapshot that is gone. */
static void test_not_installed(void **state)
{
    (void)state;
    struct plugin_program p = {.name = "test", .path = "/nonexistent/plugin"};
    struct err e = ERR_INIT;
    assert_int_equal(plugin_call(&p, PV_FIND, NULL, 0, NULL, &e), -ENOPKG);
    assert_int_not_equal(e.cls, ERR_NOT_FOUND);
    assert_says(&e, "plugin test not installed"); /* AO-24 */
    assert_int_equal(call("#!/nonexistent/interpreter\n", &e), -ENOPKG);
    assert_int_not_equal(e.cls, ERR_NOT_FOUND);
    p = program("#!/bin/sh\necho '{\"protocol\":1}'\n");
    p.user = "snapferry-no-such-user";
    if (geteuid() == 0) {
        assert_true(plugin_call(&p, PV_FIND, NULL, 0, NULL, &e) < 0);
        assert_int_not_equal(e.cls, ERR_NOT_FOUND);
    }
    p.path = "relative/plugin";
    assert_int_equal(plugin_call(&p, PV_FIND, NULL, 0, NULL, &e), -EINVAL);
}

/* AP-21 */
static void test_program_owner_and_mode(void **state)
{
    (void)state;
    struct plugin_program p = program("#!/bin/sh\necho '{\"protocol\":1}'\n");
    struct err e = ERR_INIT;
    assert_ok(plugin_installed(&p, &e), &e);
    chmod(p.path, 0775);
    assert_int_equal(plugin_installed(&p, &e), -EPERM);
    chmod(p.path, 0757);
    assert_int_equal(plugin_call(&p, PV_APPLIES, NULL, 0, NULL, &e), -EPERM);
    chmod(p.path, 0644);
    assert_int_equal(plugin_installed(&p, &e), -EACCES);
    chmod(p.path, 0755);
    if (geteuid() == 0) {
        assert_int_equal(chown(p.path, 65534, 65534), 0);
        assert_int_equal(plugin_installed(&p, &e), -EPERM);
    }
    p.path = dir;
    assert_int_equal(plugin_installed(&p, &e), -EINVAL);
}

static void test_user(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    struct plugin_program p = program("#!/bin/sh\necho \"{\\\"protocol\\\":1,\\\"uid\\\":$(id -u)}\"\n");
    p.user = "nobody";
    struct err e = ERR_INIT;
    CLEANUP_PLUGIN_JSON json_t *answer = NULL;
    assert_ok(plugin_call(&p, PV_APPLIES, NULL, 0, &answer, &e), &e);
    assert_int_equal(json_integer_value(json_object_get(answer, "uid")), 65534);
}

static bool process_there(const char *file)
{
    char path[512];
    int pid = 0;
    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *f = fopen(path, "r");
    if (!f || fscanf(f, "%d", &pid) != 1)
        fail_msg("no pid in %s", path);
    fclose(f);
    for (int i = 0; i < 100; i++) {
        char stat[64], line[256] = "";
        snprintf(stat, sizeof stat, "/proc/%d/stat", pid);
        FILE *s = fopen(stat, "r");
        if (!s)
            return false;
        char *got = fgets(line, sizeof line, s);
        fclose(s);
        if (!got || strstr(line, ") Z "))
            return false;
        usleep(20000);
    }
    return true;
}

static void test_hang_and_leftovers(void **state)
{
    (void)state;
    char text[1200];
    struct err e;
    struct timespec a, b;
    /* It hangs, and so do its children, deaf to SIGTERM. */
    snprintf(text, sizeof text,
             "#!/bin/sh\ntrap '' TERM\nsh -c 'trap \"\" TERM; echo $$ >%s/child; sleep 1000' &\nsleep 1000\n", dir);
    clock_gettime(CLOCK_MONOTONIC, &a);
    assert_int_equal(call(text, &e), -ETIMEDOUT);
    clock_gettime(CLOCK_MONOTONIC, &b);
    assert_true(b.tv_sec - a.tv_sec < 8);
    assert_says(&e, "2 s");
    assert_false(process_there("child"));
    /* It answers and ends well, but leaves children that hold its output open: a fork bomb's remains. */
    snprintf(text, sizeof text,
             "#!/bin/sh\nfor i in 1 2 3 4 5 6 7 8; do sleep 1000 & done\nsh -c 'echo $$ >%s/child2; sleep 1000' &\n"
             "while [ ! -s %s/child2 ]; do sleep 0.05; done\necho '{\"protocol\":1}'\n",
             dir, dir);
    clock_gettime(CLOCK_MONOTONIC, &a);
    assert_int_equal(call(text, &e), 0);
    clock_gettime(CLOCK_MONOTONIC, &b);
    assert_true(b.tv_sec - a.tv_sec < 4);
    assert_false(process_there("child2"));
    /* A good answer that comes after the deadline is none. */
    assert_int_equal(call("#!/bin/sh\nsleep 3\necho '{\"protocol\":1}'\n", &e), -ETIMEDOUT);
    /* It answers at once and never ends. */
    assert_int_equal(call("#!/bin/sh\necho '{\"protocol\":1}'\nsleep 1000\n", &e), -ETIMEDOUT);
}

static void test_death_and_flood(void **state)
{
    (void)state;
    struct err e;
    assert_true(call("#!/bin/sh\necho '{\"protocol\":1}'\nkill -9 $$\n", &e) < 0);
    assert_says(&e, "signal 9");
    assert_true(call("#!/bin/sh\nkill -SEGV $$\n", &e) < 0);
    /* 100 MB of answer, and without end. */
    assert_int_equal(call("#!/bin/sh\nhead -c 100000000 /dev/zero | tr '\\0' ' '\n", &e), -EFBIG);
    assert_int_equal(call("#!/bin/sh\nexec yes\n", &e), -EFBIG);
    assert_true(call("#!/bin/sh\nexec yes >&2\n", &e) < 0);
}

/* ---- lines ---- */

static int count_line(const json_t *line, bool act, void *arg, struct err *e)
{
    (void)line;
    (void)e;
    ((int *)arg)[act]++;
    return 0;
}
static int call_lines(const char *print, int n[2], struct err *e)
{
    char text[600];
    snprintf(text, sizeof text, "#!/bin/sh\ncat <<'E'\n%s\nE\n", print);
    struct plugin_program p = program(text);
    *e = (struct err)ERR_INIT;
    n[0] = n[1] = 0;
    return plugin_call_lines(&p, PV_ALLOCATED, NULL, 2, count_line, n, e);
}
static void test_lines(void **state)
{
    (void)state;
    struct err e;
    int n[2];
    assert_int_equal(call_lines("{\"a\":1}\n\n{\"a\":2}\n{\"protocol\":1,\"count\":2}", n, &e), 0);
    assert_int_equal(n[0], 2);
    assert_int_equal(n[1], 2);
    static const struct {
        const char *print, *says;
    } bad[] = {{"{\"a\":1}\n{\"a\":2}", "truncated"},
               {"{\"a\":1}\n{\"protocol\":1,\"count\":2}", "counts 2 lines"},
               {"{\"a\":1}\n{\"protocol\":1,\"count\":-1}", "counts -1"},
               {"{\"a\":1}\n{\"protocol\":1,\"count\":\"1\"}", "counts"},
               {"{\"protocol\":1,\"count\":0}\n{\"a\":1}", "output after"},
               {"{\"protocol\":2,\"count\":0}", "version 2"},
               {"{\"a\":1}\n{\"a\":\n{\"protocol\":1,\"count\":2}", "not JSON"},
               {"[1]\n{\"protocol\":1,\"count\":1}", "not a JSON object"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_true(call_lines(bad[i].print, n, &e) < 0);
        assert_says(&e, bad[i].says);
        assert_int_equal(n[1], 0); /* nobody acted */
    }
    struct plugin_program p =
        program("#!/bin/sh\nprintf '{\"a\":\"'\nhead -c 70000 /dev/zero | tr '\\0' x\nprintf '\"}\\n"
                "{\"protocol\":1,\"count\":1}'\n");
    assert_int_equal(plugin_call_lines(&p, PV_ALLOCATED, NULL, 5, count_line, n, &e), -EBADMSG);
    assert_says(&e, "longer than");
}

/* ---- describe ---- */

static int describe(const char *answer, struct plugin_info *i, struct err *e)
{
    char text[900];
    snprintf(text, sizeof text, "#!/bin/sh\ncat <<'E'\n%s\nE\n", answer);
    struct plugin_program p = program(text);
    *e = (struct err)ERR_INIT;
    return plugin_describe(&p, i, e);
}
static void test_describe(void **state)
{
    (void)state;
    struct plugin_info i;
    struct err e;
    assert_ok(
        describe("{\"protocol\":1,\"name\":\"n\",\"version\":\"2\",\"kind\":\"driver\",\"abilities\":[\"snapshot\","
                 "\"pool\",\"from-the-future\"],\"max-retain\":7,\"timeouts\":{\"snapshot\":1200}}",
                 &i, &e),
        &e);
    assert_int_equal(i.abilities, PA_SNAPSHOT | PA_POOL);
    assert_int_equal(i.unknown_abilities, 1);
    assert_int_equal(i.max_retain, 7); /* RS-08 */
    /* AP-15: a plugin may ask for more or less time, up to plugin-max-timeout. */
    struct plugin_program p = {.name = "x", .max_timeout_s = 700};
    assert_int_equal(plugin_timeout(&p, &i, PV_SNAPSHOT), 700);
    p.max_timeout_s = 0;
    assert_int_equal(plugin_timeout(&p, &i, PV_SNAPSHOT), 1200);
    assert_int_equal(plugin_timeout(&p, &i, PV_POOL), plugin_verb_at(PV_POOL)->timeout_s);
    assert_int_equal(plugin_can(&p, &i, PLUGIN_DRIVER, PV_EXPOSE, &e), -ENOTSUP);
    assert_int_equal(plugin_can(&p, &i, PLUGIN_MOVER, PV_APPLIES, &e), -ENOTSUP);
    assert_int_equal(plugin_can(&p, &i, PLUGIN_DRIVER, PV_POOL, &e), 0);
    static const char *const bad[] = {
        "{\"protocol\":1,\"name\":\"n\",\"version\":\"2\",\"kind\":\"virus\",\"abilities\":[]}",
        "{\"protocol\":1,\"name\":\"n\",\"version\":\"2\",\"abilities\":[]}",
        "{\"protocol\":1,\"name\":5,\"version\":\"2\",\"kind\":\"driver\",\"abilities\":[]}",
        "{\"protocol\":1,\"version\":\"2\",\"kind\":\"driver\",\"abilities\":[]}",
        "{\"protocol\":1,\"name\":\"n\",\"version\":\"2\",\"kind\":\"driver\"}",
        "{\"protocol\":1,\"name\":\"n\",\"version\":\"2\",\"kind\":\"driver\",\"abilities\":{}}",
        "{\"protocol\":1,\"name\":\"n\",\"version\":\"2\",\"kind\":\"driver\",\"abilities\":[5]}",
        "{\"protocol\":1,\"name\":\"n\",\"version\":\"2\",\"kind\":\"driver\",\"abilities\":[\"cancel\"]}",
        "{\"protocol\":1,\"name\":\"n\",\"version\":\"2\",\"kind\":\"driver\",\"abilities\":[],\"max-retain\":-1}",
        "{\"protocol\":1,\"name\":\"n\",\"version\":\"2\",\"kind\":\"driver\",\"abilities\":[],\"max-retain\":1e99}",
        "{\"protocol\":1,\"name\":\"n\",\"version\":\"2\",\"kind\":\"driver\",\"abilities\":[],\"timeouts\":[]}",
        "{\"protocol\":1,\"name\":\"n\",\"version\":\"2\",\"kind\":\"driver\",\"abilities\":[],"
        "\"timeouts\":{\"list\":0}}",
        "{\"protocol\":1,\"name\":\"n\",\"version\":\"2\",\"kind\":\"driver\",\"abilities\":[],"
        "\"timeouts\":{\"list\":\"60\"}}"};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        if (describe(bad[k], &i, &e) != -EBADMSG)
            fail_msg("accepted or refused otherwise: %s (%s)", bad[k], e.msg);
}

/* ---- a real driver ---- */

static char data[512], store[512], image[600];
static const char *match[] = {NULL, NULL};
static struct driver_class klass;

static void *open_store(void)
{
    static char pattern[600];
    static unsigned n;
    char cmd[2000];
    snprintf(data, sizeof data, "%s/data%u", dir, ++n);
    snprintf(store, sizeof store, "%s/.store", data);
    snprintf(image, sizeof image, "%s/one.img", data);
    snprintf(pattern, sizeof pattern, "%s/*.img", data);
    snprintf(cmd, sizeof cmd,
             "mkdir -p '%s' && head -c 300000 /dev/urandom >'%s' && truncate -s 1M '%s' && cp '%s' '%s/two words.img'",
             store, image, image, image, data);
    assert_int_equal(system(cmd), 0);
    match[0] = pattern;
    klass = (struct driver_class){.name = "images",
                                  .driver = "plugin:dir",
                                  .match = match,
                                  .target = store,
                                  .node = "node1",
                                  .plugin = real_driver};
    return NULL;
}

static void tag_for(struct native_tag *t, const struct volume *v)
{
    memset(t, 0, sizeof *t);
    alias_new(t->alias);
    snprintf(t->volume_id, sizeof t->volume_id, "%s", v->id);
    snprintf(t->volume_name, sizeof t->volume_name, "%s", v->name);
    snprintf(t->backup, sizeof t->backup, "manual-1");
    t->seq = 5;
    t->created_ns = 1234567890123456789;
}

static int count_volume(const struct volume *v, void *arg)
{
    (void)v;
    ++*(int *)arg;
    return 0;
}
static int keep_native(const struct native *n, void *arg)
{
    struct native **at = arg;
    *(*at)++ = *n;
    return 0;
}
static int count_exposure(const struct exposure *x, const struct native_tag *t, void *arg)
{
    assert_true(x->alias[0] && t->alias[0] && t->volume_id[0]);
    ++*(int *)arg;
    return 0;
}

static void test_driver_cycle(void **state)
{
    (void)state;
    const struct driver *d = &driver_plugin;
    struct err e = ERR_INIT;
    unsigned abilities = 0;
    int n = 0;
    open_store();
    assert_ok(d->abilities(&klass, &abilities, &e), &e);
    assert_int_equal(abilities, DRIVER_SNAPSHOT | DRIVER_NATIVE_RO | DRIVER_CLONE | DRIVER_TARGET | DRIVER_POOL);
    assert_ok(d->volumes(&klass, count_volume, &n, &e), &e);
    assert_int_equal(n, 2);
    struct volume *v = calloc(1, sizeof *v);
    struct native *s = calloc(4, sizeof *s), *at = s + 1;
    struct exposure *x = calloc(2, sizeof *x);
    struct restore_target *t = calloc(1, sizeof *t);
    struct native_tag tag;
    assert_int_equal(d->resolve(&klass, "/nonexistent.img", v, &e), -ENOENT);
    assert_int_equal(e.cls, ERR_NOT_FOUND);
    assert_ok(d->resolve(&klass, image, v, &e), &e);
    tag_for(&tag, v);
    assert_ok(d->snapshot(&klass, v, &tag, s, &e), &e);
    assert_int_equal(s->size, 1 << 20);
    assert_memory_equal(&s->tag, &tag, sizeof tag);
    assert_ok(d->snapshot(&klass, v, &tag, s, &e), &e); /* idempotent */
    /* RS-27: alias and volume id come back from the storage alone. */
    assert_ok(d->list(&klass, keep_native, &at, &e), &e);
    assert_int_equal(at - s, 2);
    assert_string_equal(s[1].tag.alias, tag.alias);
    assert_string_equal(s[1].tag.volume_id, v->id);
    assert_int_equal(s[1].tag.seq, 5);
    assert_int_equal(s[1].tag.created_ns, tag.created_ns);
    struct driver_class other = klass;
    other.node = "node2";
    at = s + 1;
    assert_ok(d->list(&other, keep_native, &at, &e), &e);
    assert_int_equal(at - s, 1); /* another node's */
    assert_ok(d->find(&klass, v, tag.alias, "/stale/handle", s + 1, &e), &e);
    /* native and clone */
    CLEANUP_CLOSE int fd = -1;
    assert_ok(d->expose(&klass, s, &klass, EXPOSE_NATIVE, true, "", x, &e), &e);
    assert_string_equal(x->handle, "");
    assert_string_equal(x->klass, "images");
    assert_ok(d->open(&klass, x, &fd, &e), &e);
    assert_int_equal(lseek(fd, 0, SEEK_END), 1 << 20);
    assert_ok(d->unexpose(&klass, x, &e), &e);
    char alias[ALIAS_LEN + 1];
    alias_new(alias);
    assert_ok(d->expose(&klass, s, &klass, EXPOSE_CLONE, false, alias, x, &e), &e);
    assert_ok(d->expose(&klass, s, &klass, EXPOSE_CLONE, false, alias, x, &e), &e);
    n = 0;
    assert_ok(d->exposures(&klass, count_exposure, &n, &e), &e);
    assert_int_equal(n, 1);
    assert_ok(d->unexpose(&klass, x, &e), &e);
    assert_ok(d->unexpose(&klass, x, &e), &e);
    /* What is known of an intermediate after a crash: its alias. */
    assert_ok(d->expose(&klass, s, &klass, EXPOSE_CLONE, false, alias, x, &e), &e);
    snprintf(x[1].alias, sizeof x[1].alias, "%s", alias);
    assert_ok(d->unexpose(&klass, x + 1, &e), &e);
    n = 0;
    assert_ok(d->exposures(&klass, count_exposure, &n, &e), &e);
    assert_int_equal(n, 0);
    assert_int_equal(d->expose(&klass, s, &klass, EXPOSE_OVERLAY, false, alias, x, &e), -ENOTSUP);
    assert_int_equal(d->allocated(&klass, x, NULL, NULL, &e), -ENOTSUP);
    struct changed_answer changed = {.state = CHANGED_LISTED};
    assert_int_equal(d->changed(&klass, s, s, NULL, &changed, &e), 0);
    assert_int_equal(changed.state, CHANGED_UNSUPPORTED);
    struct pool_usage u;
    assert_ok(d->pool(&klass, v, &u, &e), &e);
    assert_true(u.size > u.free && u.used_ratio > 0 && u.used_ratio <= 1);
    /* restore */
    assert_int_equal(d->target(&klass, image, 1 << 20, alias, false, t, &e), -EEXIST);
    assert_int_equal(e.cls, ERR_TARGET);
    /* A plugin makes its volumes as a whole: there is no clone to write differences or a range into. */
    assert_int_equal(d->target(&klass, image, 1 << 20, alias, TARGET_UPDATE, t, &e), -ENOTSUP);
    assert_int_equal(e.cls, ERR_USAGE);
    assert_int_equal(d->target(&klass, image, 1 << 20, alias, TARGET_PATCH, t, &e), -ENOTSUP);
    e = (struct err)ERR_INIT;
    assert_ok(d->target(&klass, image, 1 << 20, alias, true, t, &e), &e);
    assert_ok(d->target(&klass, image, 1 << 20, alias, true, t, &e), &e);
    assert_ok(d->target_abort(&klass, t, &e), &e);
    assert_ok(d->target_abort(&klass, t, &e), &e);
    assert_ok(d->target(&klass, image, 1 << 20, alias, true, t, &e), &e);
    assert_ok(d->target_from_native(&klass, s, t, &(struct fill){.rate = 0}, &e), &e);
    assert_ok(d->target_commit(&klass, t, &e), &e);
    assert_ok(d->target_commit(&klass, t, &e), &e);
    /* RS-21 */
    bool gone = true;
    assert_ok(d->remove(&klass, s, &gone, &e), &e);
    assert_false(gone);
    assert_ok(d->remove(&klass, s, &gone, &e), &e);
    assert_true(gone);
    assert_int_equal(d->find(&klass, v, tag.alias, "", s + 1, &e), -ENOENT);
    assert_int_equal(e.cls, ERR_NOT_FOUND);
    free(v);
    free(s);
    free(x);
    free(t);
}

/* ---- liars: the real driver with one answer bent by a filter ---- */

/* The real driver answers each request once: what it says is kept and bent again and again. */
static void bend(const char *verb, const char *filter)
{
    char text[1500];
    snprintf(text, sizeof text,
             "#!/bin/bash\nrequest=$(cat)\nkept=%s/kept.$(cksum <<<\"$1$request\" | tr ' ' -)\n"
             "[ -e $kept ] || '%s' \"$1\" <<<\"$request\" >$kept || { rc=$?; cat $kept; rm $kept; exit $rc; }\n"
             "if [ \"$1\" = '%s' ]; then %s/bin/jq -c '%s' <$kept; else cat $kept; fi\n",
             dir, real_driver, verb, dir, filter);
    klass.plugin = script("liar", text);
}

/* A snapshot and a clone that the honest driver made. */
static struct volume bent_volume;
static struct native bent_native;
static struct exposure bent_clone;
static char bent_alias[ALIAS_LEN + 1];

static void prepare_bent(void)
{
    const struct driver *d = &driver_plugin;
    struct err e = ERR_INIT;
    struct native_tag tag;
    open_store();
    alias_new(bent_alias);
    assert_ok(d->resolve(&klass, image, &bent_volume, &e), &e);
    tag_for(&tag, &bent_volume);
    assert_ok(d->snapshot(&klass, &bent_volume, &tag, &bent_native, &e), &e);
    assert_ok(d->expose(&klass, &bent_native, &klass, EXPOSE_CLONE, false, bent_alias, &bent_clone, &e), &e);
}

/* What a verb of the driver does with a bent answer. */
static int with_bent(const char *verb, const char *filter, struct err *e)
{
    const struct driver *d = &driver_plugin;
    const struct native_tag *tag = &bent_native.tag;
    CLEANUP_FREE struct native *s = calloc(4, sizeof *s);
    CLEANUP_FREE struct exposure *x = calloc(1, sizeof *x);
    CLEANUP_FREE struct restore_target *t = calloc(1, sizeof *t);
    CLEANUP_FREE struct volume *v = calloc(1, sizeof *v);
    struct native *at = s;
    struct pool_usage u;
    bool clone = strstr(filter, "clone");
    int n = 0, rc;
    *e = (struct err)ERR_INIT;
    bend(verb, filter);
    if (strcmp(verb, "volumes") == 0)
        rc = d->volumes(&klass, count_volume, &n, e);
    else if (strcmp(verb, "resolve") == 0)
        rc = d->resolve(&klass, image, v, e);
    else if (strcmp(verb, "snapshot") == 0)
        rc = d->snapshot(&klass, &bent_volume, tag, s, e);
    else if (strcmp(verb, "find") == 0)
        rc = d->find(&klass, &bent_volume, tag->alias, "", s, e);
    else if (strcmp(verb, "list") == 0)
        rc = d->list(&klass, keep_native, &at, e);
    else if (strcmp(verb, "expose") == 0)
        rc = d->expose(&klass, &bent_native, &klass, clone ? EXPOSE_CLONE : EXPOSE_NATIVE, !clone, bent_alias, x, e);
    else if (strcmp(verb, "exposures") == 0)
        rc = d->exposures(&klass, count_exposure, &n, e);
    else if (strcmp(verb, "pool") == 0)
        rc = d->pool(&klass, &bent_volume, &u, e);
    else if (strcmp(verb, "applies") == 0)
        rc = d->abilities(&klass, &(unsigned){0}, e);
    else
        rc = d->target(&klass, image, 1 << 20, bent_alias, true, t, e);
    assert_true((n == 0 && at == s) || rc == 0); /* nobody acted on half a list */
    return rc;
}

static void test_liars(void **state)
{
    (void)state;
    static const struct {
        const char *verb, *filter, *says;
    } t[] = {
        {"volumes", "if .id then .id = \"same\" else . end", "comes twice"},
        {"volumes", "if .id then .name = \"same\" else . end", "comes twice"},
        {"volumes", "if .id then .size = -1 else . end", "negative"},
        {"volumes", "if .id then .size = \"1\" else . end", "not an integer"},
        {"volumes", "if .id then .size = 1.5 else . end", "not an integer"},
        {"volumes", "if .id then .id = \"a b\" else . end", "characters"},
        {"volumes", "if .id then .id = (\"x\" * 300) else . end", "too long"},
        {"volumes", "if .id then .name = \"a\\nb\" else . end", "control"},
        {"volumes", "if .id then .sector = 1000 else . end", "power of two"},
        {"volumes", "if .id then .labels = \"tag\" else . end", "words KIND:VALUE"},
        {"volumes", "if .id then .labels = \"tag:a  tag:b\" else . end", "words KIND:VALUE"},
        {"volumes", "if .id then .labels = \"Tag:a\" else . end", "words KIND:VALUE"},
        {"volumes", "if .id then .labels = \"tag:a \" else . end", "words KIND:VALUE"},
        {"volumes", "if .id then .labels = (\"tag:\" + \"x\" * 5000) else . end", "too long"},
        {"volumes", "if .id then .allocated = 99999999 else . end", "more than the size"},
        {"volumes", "if .id then del(.id) | .protocol = 1 else . end", "no \"id\""},
        {"volumes", "if .count then .count = 1 else . end", "counts 1"},
        {"volumes", "if .count then empty else . end", "truncated"},
        {"resolve", ".volume.name = \"/other\"", "answers with /other"},
        {"resolve", ".volume = []", "not an object"},
        {"resolve", "del(.volume)", "no \"volume\""},
        {"snapshot", ".snapshot.tag.alias = \"00000000-0000-4000-8000-000000000000\"", "asked for alias"},
        {"snapshot", ".snapshot.tag.alias = \"../../etc\"", "UUID"},
        {"snapshot", ".snapshot.tag[\"volume-id\"] = \"other\"", "asked for volume id"},
        {"snapshot", ".snapshot.tag.node = \"other\"", "this node is"},
        {"snapshot", "del(.snapshot.tag)", "no \"snapshot.tag\""},
        {"snapshot", ".snapshot.size = 4096", "4096 bytes, and the volume"},
        {"snapshot", ".snapshot.size = 0", "no size"},
        {"snapshot", ".snapshot.handle = \"\"", "is empty"},
        {"snapshot", ".snapshot.handle = \"/a/../../etc/passwd\"", "\"..\""},
        {"snapshot", ".snapshot[\"crash-consistent\"] = \"yes\"", "neither true nor false"},
        {"find", ".snapshot.tag.alias = \"00000000-0000-4000-8000-000000000000\"", "asked for alias"},
        {"find", ".snapshot.tag[\"volume-id\"] = \"other\"", "is of volume id"},
        {"list", "if .tag then del(.tag.alias) else . end", "no \"tag.alias\""},
        {"list", "if .tag then del(.tag[\"volume-id\"]) else . end", "no \"tag.volume-id\""},
        {"list", "if .tag then ., . else .count = 2 end", "comes twice"},
        {"list", "if .tag then .tag.node = \"n\" else . end", "this node is"},
        {"list", "if .tag then .size = -5 else . end", "negative"},
        {"expose", ".exposure.path = \"/etc/shadow\"", "outside"},
        {"expose", ".exposure.path = \"relative\"", "absolute path"},
        {"expose", ".exposure.path |= sub(\"/[^/]*$\"; \"/../../../etc/shadow\")", "absolute path"},
        {"expose", ".exposure.path |= . + \".nothing\"", "cannot open"},
        {"expose", ".exposure.size = 5", "exposes 5 bytes"},
        {"expose", ".exposure.mechanism = \"teleport\"", "not one of"},
        {"expose",
         ".exposure.mechanism = \"overlay\" | .exposure.handle = \"x\" | .exposure.alias = "
         "\"00000000-0000-4000-8000-000000000000\"",
         "it made overlay"},
        {"expose", ".exposure[\"read-only\"] = false", "made it writable"},
        {"expose", ".exposure.alias = \"00000000-0000-4000-8000-000000000000\" # clone", "asked for alias"},
        {"expose", "del(.exposure.alias) # clone", "no \"exposure.alias\""},
        {"exposures", "if .tag then del(.tag) else . end", "has no \"tag\""},
        {"exposures", "if .tag then .path = \"/etc/passwd\" else . end", "outside"},
        {"exposures", "if .tag then ., . else .count = 2 end", "comes twice"},
        {"pool", ".free = 9000000000000000", "more than \"size\""},
        {"pool", ".[\"used-ratio\"] = 7", "between 0 and 1"},
        {"pool", "del(.size)", "no \"size\""},
        {"target", ".target.size = 7", "asked for 1048576 bytes"},
        {"target", ".target.final = \"/etc/passwd\"", "it prepares /etc/passwd"},
        {"target", ".target.path = .target.final", "the volume"},
        {"target", ".target.path = \"/etc/passwd\"", "outside"},
        {"applies", ".applies = false | .reason = \"no luck\"", "no luck"},
        {"applies", ".applies = 1", "neither true nor false"},
    };
    prepare_bent();
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct err e;
        if (with_bent(t[i].verb, t[i].filter, &e) >= 0)
            fail_msg("%s: %s was believed", t[i].verb, t[i].filter);
        assert_says(&e, t[i].says);
        assert_says(&e, ", plugin: dir");
        assert_int_not_equal(e.cls, ERR_NOT_FOUND);
    }
}

/* It says that it did, and did not. */
static void test_empty_words(void **state)
{
    (void)state;
    const struct driver *d = &driver_plugin;
    struct err e = ERR_INIT;
    char text[1500];
    struct volume *v = calloc(1, sizeof *v);
    struct native *s = calloc(1, sizeof *s);
    struct exposure *x = calloc(1, sizeof *x);
    struct restore_target *t = calloc(1, sizeof *t);
    struct native_tag tag;
    char alias[ALIAS_LEN + 1];
    bool gone = true;
    open_store();
    alias_new(alias);
    assert_ok(d->resolve(&klass, image, v, &e), &e);
    tag_for(&tag, v);
    assert_ok(d->snapshot(&klass, v, &tag, s, &e), &e);
    assert_ok(d->expose(&klass, s, &klass, EXPOSE_CLONE, false, alias, x, &e), &e);
    assert_ok(d->target(&klass, image, 1 << 20, alias, true, t, &e), &e);
    snprintf(text, sizeof text,
             "#!/bin/sh\ncase $1 in remove|unexpose|target-abort) echo '{\"protocol\":1,\"gone\":true}';;\n"
             "*) exec '%s' \"$1\";; esac\n",
             real_driver);
    klass.plugin = script("idler", text);
    assert_int_equal(d->remove(&klass, s, &gone, &e), -EBADMSG);
    assert_says(&e, "still finds it");
    assert_int_equal(d->unexpose(&klass, x, &e), -EBADMSG);
    assert_says(&e, "still there");
    assert_int_equal(d->target_abort(&klass, t, &e), -EBADMSG);
    assert_says(&e, "still there");
    free(v);
    free(s);
    free(x);
    free(t);
}

/* What a plugin copies by itself is told how fast it may write. */
static void test_rate(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    char text[1500], said[300], path[300];
    struct native *s = calloc(1, sizeof *s);
    struct restore_target *t = calloc(1, sizeof *t);
    open_store();
    snprintf(said, sizeof said, "%s.said", image);
    snprintf(text, sizeof text,
             "#!/bin/sh\ncase $1 in target-from-native) cat >'%s'; echo '{\"protocol\":1}';;\n"
             "*) exec '%s' \"$1\";; esac\n",
             said, real_driver);
    klass.plugin = script("listener", text);
    snprintf(t->path, sizeof t->path, "%s", image);
    assert_ok(driver_plugin.target_from_native(&klass, s, t, &(struct fill){.rate = 4711}, &e), &e);
    snprintf(path, sizeof path, "grep -q '\"rate\": *4711[,}]' '%s'", said);
    assert_int_equal(system(path), 0);
    unlink(said);
    free(s);
    free(t);
}

/* ---- extents ---- */

static int add_extent(uint64_t start, uint64_t len, void *arg)
{
    (void)start;
    *(uint64_t *)arg += len;
    return 0;
}
static int extents(const char *lines, uint64_t *sum, struct err *e)
{
    char text[900];
    snprintf(
        text, sizeof text,
        "#!/bin/sh\ncase $1 in describe) echo '{\"protocol\":1,\"name\":\"n\",\"version\":\"1\",\"kind\":\"driver\","
        "\"abilities\":[\"allocated\",\"changed\"]}';;\n*) cat <<'E'\n%s\nE\n;; esac\n",
        lines);
    open_store();
    klass.plugin = script("extents", text);
    struct exposure *x = calloc(1, sizeof *x);
    x->size = 1000;
    *sum = 0;
    *e = (struct err)ERR_INIT;
    int rc = driver_plugin.allocated(&klass, x, add_extent, sum, e);
    free(x);
    return rc;
}
static void test_extents(void **state)
{
    (void)state;
    struct err e;
    uint64_t sum;
    assert_ok(
        extents("{\"start\":0,\"length\":10}\n{\"start\":10,\"length\":990}\n{\"protocol\":1,\"count\":2}", &sum, &e),
        &e);
    assert_int_equal(sum, 1000);
    static const struct {
        const char *lines, *says;
    } bad[] = {
        {"{\"start\":0,\"length\":1001}\n{\"protocol\":1,\"count\":1}", "behind the volume"},
        {"{\"start\":1,\"length\":9223372036854775807}\n{\"protocol\":1,\"count\":1}", "behind the volume"},
        {"{\"start\":2000,\"length\":1}\n{\"protocol\":1,\"count\":1}", "behind the volume"},
        {"{\"start\":5,\"length\":10}\n{\"start\":14,\"length\":1}\n{\"protocol\":1,\"count\":2}", "before the end"},
        {"{\"start\":5,\"length\":0}\n{\"protocol\":1,\"count\":1}", "without length"},
        {"{\"start\":-5,\"length\":1}\n{\"protocol\":1,\"count\":1}", "negative"},
        {"{\"start\":5,\"length\":1}", "truncated"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_true(extents(bad[i].lines, &sum, &e) < 0);
        assert_says(&e, bad[i].says);
        assert_int_equal(sum, 0);
    }
}

/* ---- paths ---- */

static void test_paths(void **state)
{
    (void)state;
    open_store();
    char path[700], out[600];
    struct plugin_program p = {.name = "dir", .path = real_driver};
    struct err e = ERR_INIT;
    CLEANUP_CLOSE int fd = -1;
    assert_ok(plugin_path_open(&klass, &p, PV_EXPOSE, image, 1 << 20, O_RDONLY, &fd, &e), &e);
    assert_int_equal(plugin_path_open(&klass, &p, PV_EXPOSE, image, 1, O_RDONLY, &fd, &e), -EBADMSG);
    snprintf(path, sizeof path, "%s/link.img", data);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_int_equal(plugin_path_open(&klass, &p, PV_EXPOSE, path, 1, O_RDONLY, &fd, &e), -EBADMSG);
    snprintf(path, sizeof path, "%s/linkdir", data);
    assert_int_equal(symlink("/etc", path), 0);
    snprintf(path, sizeof path, "%s/linkdir/passwd", data);
    assert_int_equal(plugin_path_open(&klass, &p, PV_EXPOSE, path, 1, O_RDONLY, &fd, &e), -EBADMSG);
    snprintf(path, sizeof path, "%s/fifo", data);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(plugin_path_open(&klass, &p, PV_EXPOSE, path, 0, O_RDONLY, &fd, &e), -EBADMSG); /* never waits */
    assert_int_equal(plugin_path_open(&klass, &p, PV_EXPOSE, data, 0, O_RDONLY, &fd, &e), -EBADMSG);
    assert_int_equal(plugin_path_open(&klass, &p, PV_EXPOSE, "/dev/null", 0, O_RDONLY, &fd, &e), -EBADMSG);
    assert_string_not_equal(e.hint, "");
    /* A pattern at the root, or none, opens nothing; backup-option.paths does. */
    snprintf(out, sizeof out, "%s/outside", dir);
    FILE *f = fopen(out, "w");
    assert_non_null(f);
    fclose(f);
    static const char *root[] = {"/*", "vg0/*", NULL};
    struct driver_class c = {.name = "x", .match = root, .target = ""};
    assert_false(plugin_path_inside(&c, out));
    assert_false(plugin_path_inside(&c, "/etc/passwd"));
    c.options = json_pack("{s:s+}", "paths", "/nowhere:", dir);
    assert_true(plugin_path_inside(&c, out));
    assert_false(plugin_path_inside(&c, dir));
    assert_false(plugin_path_inside(&c, "/nowhereelse/x"));
    assert_ok(plugin_path_open(&c, &p, PV_EXPOSE, out, 0, O_RDONLY, &fd, &e), &e);
    json_decref(c.options);
    static const char *const ugly[] = {"", "/", "a", "/a/", "/a//b", "/a/./b", "/a/../b", "/a/..", "/.."};
    struct driver_class any = {.name = "x", .target = "/a"};
    for (size_t i = 0; i < sizeof ugly / sizeof *ugly; i++)
        assert_false(plugin_path_inside(&any, ugly[i]));
}

static void test_text(void **state)
{
    (void)state;
    char out[8];
    plugin_text(out, sizeof out,
                "a\tb\x7f"
                "c  ");
    assert_string_equal(out, "a b c");
    plugin_text(out, sizeof out, "12345\xc3\xa4\xc3\xa4");
    assert_string_equal(out, "12345\xc3\xa4");
    plugin_text(out, sizeof out, "123456\xc3\xa4");
    assert_string_equal(out, "123456");
    plugin_text(out, sizeof out, "");
    assert_string_equal(out, "");
}

/* A class without a [plugin] section, and one whose program does not answer: an error of the class, no crash. */
static void test_no_plugin(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    unsigned abilities;
    open_store();
    klass.plugin = NULL;
    assert_int_equal(driver_plugin.abilities(&klass, &abilities, &e), -EINVAL);
    assert_int_equal(e.cls, ERR_USAGE);
    klass.plugin = "/nonexistent";
    assert_int_equal(driver_plugin.abilities(&klass, &abilities, &e), -ENOPKG);
    klass.plugin =
        script("mover", "#!/bin/sh\necho '{\"protocol\":1,\"name\":\"n\",\"version\":\"1\",\"kind\":\"mover\","
                        "\"abilities\":[]}'\n");
    assert_int_equal(driver_plugin.abilities(&klass, &abilities, &e), -ENOTSUP);
    assert_says(&e, "it is a mover plugin");
}

/* The manual has every verb, ability, exit code and default timeout of the code. */
static void test_manual(void **state)
{
    (void)state;
    static char page[1 << 16];
    FILE *f = fopen("docs/man/snapferry-plugin.7.pod", "r");
    assert_non_null(f);
    page[fread(page, 1, sizeof page - 1, f)] = '\0';
    fclose(f);
    char text[128];
    const struct plugin_verb_info *v;
    for (unsigned i = 0; (v = plugin_verb_at(i)); i++) {
        snprintf(text, sizeof text, "=item B<%s>\n", v->name);
        if (!strstr(page, text))
            fail_msg("verb %s is not in the manual", v->name);
    }
    const struct plugin_ability_info *a;
    for (unsigned i = 0; (a = plugin_ability_at(i)); i++) {
        snprintf(text, sizeof text, "C<%s>", a->name);
        if (!strstr(page, text))
            fail_msg("ability %s is not in the manual", a->name);
    }
    const struct plugin_exit_info *x;
    for (unsigned i = 0; (x = plugin_exit_at(i)); i++) {
        snprintf(text, sizeof text, "=item Z<>%d\n", x->code);
        if (!strstr(page, text))
            fail_msg("exit code %d is not in the manual", x->code);
    }
    /* "...: describe, applies 30; resolve 60; ..." */
    char *list = strstr(page, "Defaults in seconds:");
    assert_non_null(list);
    *strstr(list, "B<run>") = '\0';
    for (unsigned i = 0; (v = plugin_verb_at(i)); i++) {
        bool found = v->timeout_s == 0;
        char *copy = strdup(list + strlen("Defaults in seconds:")), *save = NULL;
        for (char *group = strtok_r(copy, ";.", &save); group; group = strtok_r(NULL, ";.", &save)) {
            char *save2 = NULL;
            bool here = false;
            for (char *word = strtok_r(group, " ,\n", &save2); word; word = strtok_r(NULL, " ,\n", &save2)) {
                here |= strcmp(word, v->name) == 0;
                found |= here && strtoul(word, NULL, 10) == v->timeout_s;
            }
        }
        free(copy);
        if (!found)
            fail_msg("the manual gives another default timeout for %s", v->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request),
        cmocka_unit_test(test_nonsense_answers),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_exit_codes),
        cmocka_unit_test(test_not_installed),
        cmocka_unit_test(test_program_owner_and_mode),
        cmocka_unit_test(test_user),
        cmocka_unit_test(test_hang_and_leftovers),
        cmocka_unit_test(test_death_and_flood),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_describe),
        cmocka_unit_test(test_driver_cycle),
        cmocka_unit_test(test_liars),
        cmocka_unit_test(test_empty_words),
        cmocka_unit_test(test_rate),
        cmocka_unit_test(test_extents),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_no_plugin),
        cmocka_unit_test(test_manual),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
