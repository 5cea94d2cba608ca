/* SPDX-License-Identifier: GPL-2.0-or-later */
/* QMP without QEMU: answers that are not of the protocol, silence, lost connections, what a machine has as it is
 * written in its answers, names and owner tags. The rest is tests/e2e/qemu.sh, with QEMU. */
#include "tests/unit/test.h"

#include "base/json.h"
#include "io/native/qemu.h"

#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>

#define ALIAS "11111111-2222-4333-8444-555555555555"
#define GREETING                                                                                                       \
    "{\"QMP\": {\"version\": {\"qemu\": {\"major\": 7, \"minor\": 2, \"micro\": 0}}, \"capabilities\": []}}\r\n"
#define READY GREETING "{\"return\": {}, \"id\": 1}\r\n"

/* ---- the protocol ---- */

/* Connects to what has sent `text` beforehand, and asks for `query-status`; the connection ends there if `over`. */
static int ask(const char *text, bool over, struct err *e)
{
    int pair[2];
    struct qmp *q = NULL;
    json_t *ret = NULL;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(write(pair[1], text, strlen(text)), (ssize_t)strlen(text));
    if (over)
        shutdown(pair[1], SHUT_WR);
    int rc = qmp_open_test(&q, pair[0], 1, e);
    if (rc == 0) {
        rc = qmp_call(q, "query-status", NULL, -1, &ret, e);
        json_decref(ret);
        if (rc < 0 && rc != -EREMOTEIO) { /* then it is over */
            struct err again = ERR_INIT;
            assert_int_equal(qmp_call(q, "query-status", NULL, -1, NULL, &again), -EPIPE);
        }
    }
    qmp_free(q);
    close(pair[1]);
    return rc;
}

static void answers(void **state)
{
    static const struct {
        const char *text;
        bool over;
        int rc;
        const char *says;
    } t[] = {
        {READY "{\"return\": {\"a\": 1}, \"id\": 2}\r\n", false, 0, NULL},
        {READY "{\"timestamp\": {}, \"event\": \"STOP\"}\r\n{\n  \"return\": {},\n  \"id\": 2\n}\n", false, 0, NULL},
        {READY "{\"error\": {\"class\": \"GenericError\", \"desc\": \"no space\"}, \"id\": 2}\r\n", false, -EREMOTEIO,
         "refuses query-status: no space"},
        {READY "{\"error\": {\"class\": \"GenericError\"}, \"id\": 2}\r\n", false, -EIO, "neither a result nor"},
        {READY "{\"return\": {}, \"id\": 3}\r\n", false, -EIO, "not that to our command"},
        {READY "{\"return\": {}}\r\n", false, -EIO, "not that to our command"},
        {READY "{\"id\": 2}\r\n", false, -EIO, "neither a result nor"},
        {READY "[]\r\n", false, -EIO, "not an object"},
        {READY "hello\r\n", false, -EIO, "not JSON"},
        {READY "{\"return\": {}, \"return\": {}, \"id\": 2}\r\n", false, -EIO, "not JSON"},
        {READY "{\"return\": {}, \"id\"", true, -EIO, "the connection is lost"},
        {READY, true, -EIO, "the connection is lost"},
        {READY "{\"return\": {}, \"id\"", false, -ETIMEDOUT, "has not answered for 1 s"},
        {"", false, -EBUSY, "another program is connected"},
        {"", true, -EIO, "the connection is lost"},
        {"SSH-2.0-OpenSSH\r\n", false, -EIO, "not JSON"},
        {"{\"QMP\": {}}\r\n", false, -EIO, "does not greet"},
        {"{\"QMP\": {\"version\": {\"qemu\": {\"major\": 7, \"minor\": 0, \"micro\": 0}}}}\r\n", false, -ENOTSUP,
         "version 7.0: 7.1 or newer"},
        {GREETING "{\"error\": {\"class\": \"E\", \"desc\": \"no\"}, \"id\": 1}\r\n", false, -EREMOTEIO,
         "refuses qmp_capabilities"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct err e = ERR_INIT;
        int rc = ask(t[i].text, t[i].over, &e);
        if (rc != t[i].rc || (t[i].says && !strstr(e.msg, t[i].says)))
            fail_msg("%zu: %d, \"%s\"", i, rc, e.msg);
    }
}

static void *flood(void *arg)
{
    const int fd = *(int *)arg;
    char part[65536];
    memset(part, ' ', sizeof part);
    part[0] = '\n';
    if (write(fd, READY "{", sizeof READY) < 0)
        return NULL;
    while (send(fd, part, sizeof part, MSG_NOSIGNAL) > 0)
        ;
    return NULL;
}

static void an_endless_answer(void **state)
{
    int pair[2];
    pthread_t t;
    struct qmp *q = NULL;
    struct err e = ERR_INIT;
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(pthread_create(&t, NULL, flood, &pair[1]), 0);
    assert_int_equal(qmp_open_test(&q, pair[0], 60, &e), 0);
    assert_true(qmp_call(q, "query-status", NULL, -1, NULL, &e) < 0);
    qmp_free(q);
    pthread_join(t, NULL);
    close(pair[1]);
}

/* ---- what a machine has ---- */

#define NODE(name, size, bitmaps)                                                                                      \
    "{\"node-name\": \"" name "\", \"drv\": \"qcow2\", \"ro\": false, \"image\": {\"virtual-size\": " size "}" bitmaps \
    "}"

static int parse(const char *nodes, const char *blocks, const char *exports, struct qemu_state *s, struct err *e)
{
    json_t *n = json_loads(nodes, 0, NULL), *b = json_loads(blocks, 0, NULL), *x = json_loads(exports, 0, NULL);
    assert_true(n && b && x);
    return qemu_state_parse(s, n, b, x, e);
}

static void malformed_machines(void **state)
{
    static const char *const bad[][3] = {
        {"{}", "[]", "[]"},
        {"[]", "{}", "[]"},
        {"[]", "[]", "{}"},
        {"[1]", "[]", "[]"},
        {"[{\"node-name\": \"a\"}]", "[]", "[]"},
        {"[" NODE("a", "-1", "") "]", "[]", "[]"},
        {"[" NODE("a", "\"1\"", "") "]", "[]", "[]"},
        {"[" NODE("a", "1", ", \"dirty-bitmaps\": {}") "]", "[]", "[]"},
        {"[" NODE("a", "1", ", \"dirty-bitmaps\": [{\"name\": \"b\"}]") "]", "[]", "[]"},
        {"[]", "[{\"qdev\": 1}]", "[]"},
        {"[]", "[{\"qdev\": \"/m\", \"inserted\": {\"node-name\": 1}}]", "[]"},
        {"[]", "[]", "[{\"id\": 1}]"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct qemu_state s;
        struct err e = ERR_INIT;
        if (parse(bad[i][0], bad[i][1], bad[i][2], &s, &e) != -EPROTO || !strstr(e.msg, "not of its protocol"))
            fail_msg("%zu: \"%s\"", i, e.msg);
    }
}

static void a_machine(void **state)
{
    struct qemu_state s;
    struct err e = ERR_INIT;
    char filter[QEMU_NODE_MAX];
    (void)state;
    assert_int_equal(
        parse("[" NODE(
                  "a", "1048576",
                  ", \"dirty-bitmaps\": [{\"name\": \"b\", \"recording\": false, \"busy\": false, \"persistent\": "
                  "true, \"inconsistent\": true}, {\"recording\": false, \"busy\": false, \"persistent\": false}]") "]",
              "[{\"device\": \"cd\"}, {\"qdev\": \"/m/d\", \"inserted\": {\"node-name\": \"a\"}}]", "[{\"id\": \"x\"}]",
              &s, &e),
        0);
    const struct qemu_node *n = qemu_node_find(&s, "a");
    assert_non_null(n);
    assert_int_equal(n->size, 1048576);
    assert_int_equal(n->n_bitmaps, 1);
    assert_true(qemu_bitmap_find(n, "b")->inconsistent && !qemu_bitmap_find(n, "b")->recording);
    assert_string_equal(qemu_device_of(&s, n, filter)->path, "/m/d");
    assert_string_equal(filter, "");
    assert_true(qemu_export_exists(&s, "x") && !qemu_export_exists(&s, "y"));
    qemu_state_free(&s);
}

/* ---- names ---- */

static void names(void **state)
{
    static const char *const bad[] = {"/run/vm/a.qmp/vda",
                                      "qemu:///vda",
                                      "qemu://run/a.qmp/vda",
                                      "qemu:///run/a.qmp/",
                                      "qemu:///run//a.qmp/vda",
                                      "qemu:///run/../a.qmp/vda",
                                      "qemu:///run/a.qmp/a-name-of-a-node-that-is-too-long-for-qemu"};
    struct qemu_name n;
    struct err e = ERR_INIT;
    char text[VOLUME_NAME_MAX], id[VOLUME_ID_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (qemu_name_parse(&n, bad[i], &e) == 0 || e.cls != ERR_USAGE)
            fail_msg("%s", bad[i]);
    e = (struct err)ERR_INIT;
    assert_int_equal(qemu_name_parse(&n, "qemu:///run/vm/web1.qmp/vda", &e), 0);
    assert_string_equal(n.socket, "/run/vm/web1.qmp");
    assert_string_equal(n.node, "vda");
    qemu_name_text(&n, text);
    assert_string_equal(text, "qemu:///run/vm/web1.qmp/vda");
    qemu_volume_id(&n, id);
    assert_string_equal(id, "device:qemu:run:vm:web1.qmp:vda");
    assert_int_equal(qemu_refuse_managed(n.socket, &e), 0);
    assert_true(qemu_refuse_managed("/var/lib/libvirt/qemu/domain-1-web/monitor.sock", &e) < 0);
    assert_true(e.cls == ERR_USAGE && strstr(e.msg, "libvirt"));
    assert_true(qemu_refuse_managed("/run/qemu-server/100.qmp", &e) < 0);
    assert_true(e.cls == ERR_USAGE && strstr(e.msg, "Proxmox VE"));
}

static void tags(void **state)
{
    static const char *const bad[] = {"bitmap0",
                                      "snapferry:",
                                      "snapferry:[]",
                                      "snapferry:[1,\"x\"]",
                                      "snapferry:[2,\"" ALIAS "\",\"n\",\"r\",\"b\",\"\",\"m\",1,2,3]",
                                      "snapferry:[1,\"" ALIAS "\",\"n\",\"r\",\"b\",\"\",\"m\",1,2,-3]",
                                      "snapferry:[1,\"" ALIAS "\",\"n\",\"r\",\"b\",\"\",\"m\",1,2,3,4]",
                                      "snapferry:[1,\"../../x\",\"n\",\"r\",\"b\",\"\",\"m\",1,2,3]"};
    struct qemu_tag t = {.tag = {.alias = ALIAS,
                                 .backup = "b-1",
                                 .operation = "up-b-1.device:qemu:s:vda",
                                 .repository = "main",
                                 .volume_id = "device:qemu:s:vda",
                                 .created_ns = -5,
                                 .seq = 7},
                         .node = "n\"1",
                         .run = "run:1:2:x",
                         .size = 4096},
                    r;
    const struct qemu_name n = {.socket = "/s", .node = "vda"};
    char text[QEMU_BITMAP_MAX], node[QEMU_NODE_MAX];
    struct err e = ERR_INIT;
    (void)state;
    assert_int_equal(qemu_tag_write(&t, text, &e), 0);
    assert_int_equal(qemu_tag_read(text, &r), 0);
    qemu_tag_of(&r, &n);
    assert_string_equal(r.tag.alias, ALIAS);
    assert_string_equal(r.tag.operation, t.tag.operation);
    assert_string_equal(r.tag.volume_name, "qemu:///s/vda");
    assert_string_equal(r.node, t.node);
    assert_string_equal(r.run, t.run);
    assert_true(r.size == 4096 && r.tag.seq == 7 && r.tag.created_ns == -5);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (qemu_tag_read(bad[i], &r) != -ENODATA)
            fail_msg("%s", bad[i]);
    memset(t.tag.operation, 'o', sizeof t.tag.operation - 1);
    memset(t.node, '"', sizeof t.node - 1);
    assert_int_equal(qemu_tag_write(&t, text, &e), -E2BIG);
    qemu_node_name(ALIAS, 'c', node);
    assert_string_equal(node, "snapferry-1111111122224333-c");
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(answers),
        cmocka_unit_test(an_endless_answer),
        cmocka_unit_test(malformed_machines),
        cmocka_unit_test(a_machine),
        cmocka_unit_test(names),
        cmocka_unit_test(tags),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
