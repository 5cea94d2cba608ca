/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Who may go next: slots, the restore lane, device groups, memory, order (CF-20..22, AO-47, AO-50, E-16). */
#include "tests/unit/test.h"

#include "base/time.h"
#include "daemon/decide/decide.h"
#include "rows.h"

#include <sys/stat.h>

struct fixture {
    char dir[64];
    struct decide d;
    struct repo_health repo;
    struct cfg *cfg;
};

static void write_text(const char *dir, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void open_with(struct fixture *x, const char *daemon_keys)
{
    char ini[2048];
    struct err e = ERR_INIT;
    struct records_news news;
    memset(x, 0, sizeof *x);
    strcpy(x->dir, "/tmp/snapferry-queue.XXXXXX");
    assert_non_null(mkdtemp(x->dir));
    snprintf(
        ini, sizeof ini,
        "[daemon]\nnode-name = n\n%s\n[repository \"main\"]\ntype = filesystem\npath = /srv/r\npassword-file = /etc/p\n"
        "[storage-class \"c\"]\ndriver = reflink\nmatch = /srv/*.img\nrepository = main\n",
        daemon_keys);
    write_text(x->dir, "snapferry.ini", ini);
    if (cfg_load_dir(&x->cfg, x->dir, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(records_open(&x->d.records, x->dir, &news, &e), 0);
    x->d.board = board_new();
    x->d.live = calloc(LIVE_BUCKETS, sizeof *x->d.live);
    assert_non_null(x->d.board);
    assert_non_null(x->d.live);
    x->d.world = (struct world){.clock = now_ns, .cfg = x->cfg, .writable = true};
    snprintf(x->repo.name, sizeof x->repo.name, "main");
    x->repo.known = x->repo.up = true;
    x->d.repos = &x->repo;
}

static void close_it(struct fixture *x)
{
    char command[128];
    board_free(x->d.board);
    free(x->d.live);
    records_close(x->d.records);
    cfg_free(x->cfg);
    snprintf(command, sizeof command, "rm -rf %s", x->dir);
    assert_int_equal(system(command), 0);
}

/* An operation with a native snapshot that waits (or is in `state`). */
static void add(struct fixture *x, const char *id, const char *kind, const char *state, const char *pool, int priority,
                struct operation *ret)
{
    json_t *doc = json_pack("{s:s,s:{s:s,s:s},s:{s:s,s:i,s:s,s:{s:i,s:i}},s:{s:s},s:{s:s},s:{}}", "kind", kind,
                            "volume", "pool", pool, "name", id, "policy", "repository", "main", "priority", priority,
                            "mover", "", "limits", "memory", 256 << 20, "index_memory", 64 << 20, "own", "name", "c",
                            "native_doc", "alias", id, "exposure");
    struct err e = ERR_INIT;
    union any_row r;
    assert_non_null(doc);
    if (!strcmp(kind, "restore"))
        json_object_del(doc, "native_doc");
    row_from_doc(&r, ROW_OPERATION, id, "", "", state, doc);
    assert_int_equal(operation_add(x->d.records, &r.operation, &e), 0);
    assert_int_equal(board_operation(x->d.board, id, &r.operation), 0);
    if (ret)
        *ret = r.operation;
    else
        operation_clear(&r.operation);
}

static bool may(struct fixture *x, const struct operation *op, bool move, const char *because)
{
    char why[512] = "";
    bool ok = queue_may(&x->d, op, move, why, sizeof why);
    if (!ok && because && !strstr(why, because))
        fail_msg("\"%s\" does not say \"%s\"", why, because);
    if (!ok)
        assert_true(why[0]); /* whoever waits is told for what */
    return ok;
}

static void slots_and_restore_lane(void **s)
{
    (void)s;
    struct fixture x;
    struct operation b, r, r2;
    open_with(&x, "slots = 2\nrestore-reserved = 1");
    add(&x, "run1", "backup", "Running", "p1", 50, NULL);
    add(&x, "b", "backup", "Exposing", "p9", 50, &b);
    assert_true(may(&x, &b, true, NULL));
    add(&x, "run2", "backup", "Starting", "p2", 50, NULL);
    assert_false(may(&x, &b, true, "2 slots"));
    add(&x, "r", "restore", "Exposing", "p3", 50, &r);
    assert_true(may(&x, &r, true, NULL)); /* a slot that backups cannot take */
    add(&x, "run3", "restore", "Cancelling", "p4", 50, NULL);
    add(&x, "r2", "restore", "Exposing", "p5", 50, &r2);
    assert_false(may(&x, &r2, true, "3 slots"));
    operation_clear(&b);
    operation_clear(&r);
    operation_clear(&r2);
    close_it(&x);
}

static void one_per_device(void **s)
{
    (void)s;
    struct fixture x;
    struct operation same, other;
    open_with(&x, "slots = 4\nper-device = 1");
    add(&x, "run", "backup", "Running", "disk", 50, NULL);
    add(&x, "same", "backup", "Exposing", "disk", 50, &same);
    add(&x, "other", "backup", "Exposing", "disk2", 50, &other);
    assert_false(may(&x, &same, true, "disk"));
    assert_true(may(&x, &other, true, NULL));
    operation_clear(&same);
    operation_clear(&other);
    close_it(&x);
}

static void memory_total(void **s)
{
    (void)s;
    struct fixture x;
    struct operation b;
    /* Two movers of 384 MiB (256 + 64 + 64) fit into 800 MiB, a third does not. */
    open_with(&x, "slots = 8\nmemory-total = 800MiB");
    add(&x, "run1", "backup", "Running", "a", 50, NULL);
    add(&x, "b", "backup", "Exposing", "c", 50, &b);
    assert_true(may(&x, &b, true, NULL));
    add(&x, "run2", "backup", "Running", "b", 50, NULL);
    assert_false(may(&x, &b, true, "memory-total"));
    operation_clear(&b);
    close_it(&x);
}

static void order(void **s)
{
    (void)s;
    struct fixture x;
    struct operation first, second, urgent;
    open_with(&x, "slots = 1\nprepare-ahead = 1");
    add(&x, "first", "backup", "Queued", "a", 50, &first);
    add(&x, "second", "backup", "Queued", "b", 50, &second);
    assert_true(may(&x, &first, false, NULL));
    assert_false(may(&x, &second, false, "first")); /* by sequence: nobody starves */
    add(&x, "urgent", "backup", "Queued", "c", 90, &urgent);
    assert_false(may(&x, &first, false, "urgent"));
    assert_true(may(&x, &urgent, false, NULL));
    operation_clear(&first);
    operation_clear(&second);
    operation_clear(&urgent);
    close_it(&x);
}

/* One repository that is away holds nobody up who needs another. */
static void others_go_on(void **s)
{
    (void)s;
    struct fixture x;
    struct operation away, here;
    struct err e = ERR_INIT;
    open_with(&x, "slots = 1\nprepare-ahead = 1");
    add(&x, "away", "backup", "Queued", "a", 50, &away);
    add(&x, "here", "backup", "Queued", "b", 50, &here);
    assert_false(may(&x, &here, false, "away")); /* its turn, as long as it can go */
    struct policy other;
    policy_copy(&other, away.policy);
    str_set(&other.repository, "other");
    policy_take(&away.policy, policy_make(&other));
    assert_int_equal(operation_save(x.d.records, &away, &e), 0);
    assert_int_equal(board_operation(x.d.board, away.id, &away), 0);
    assert_true(may(&x, &here, false, NULL));
    assert_false(may(&x, &away, false, "other"));
    while (x.d.repos != &x.repo) { /* "other" was noted */
        struct repo_health *h = x.d.repos;
        x.d.repos = h->next;
        free(h);
    }
    operation_clear(&away);
    operation_clear(&here);
    close_it(&x);
}

static void prepared_ahead(void **s)
{
    (void)s;
    struct fixture x;
    struct operation b;
    open_with(&x, "slots = 1\nprepare-ahead = 2");
    add(&x, "run", "backup", "Running", "a", 50, NULL);
    add(&x, "b", "backup", "Queued", "b", 50, &b);
    assert_true(may(&x, &b, false, NULL));
    add(&x, "ready", "backup", "Exposing", "c", 50, NULL);
    assert_false(may(&x, &b, false, "prepare-ahead"));
    operation_clear(&b);
    close_it(&x);
}

static void maintenance_and_outage(void **s)
{
    (void)s;
    struct fixture x;
    struct operation b, r;
    open_with(&x, "slots = 0");
    add(&x, "b", "backup", "Queued", "a", 50, &b);
    assert_false(may(&x, &b, false, "maintenance"));
    operation_clear(&b);
    close_it(&x);

    open_with(&x, "slots = 2");
    x.repo.up = false;
    snprintf(x.repo.why, sizeof x.repo.why, "not mounted");
    add(&x, "b", "backup", "Queued", "a", 50, &b);
    assert_false(may(&x, &b, false, "not mounted"));
    /* What comes from a native snapshot needs no repository. */
    add(&x, "r", "restore", "Queued", "b", 50, &r);
    struct native_desc native;
    native_desc_init(&native);
    str_set(&native.alias, "r");
    native_desc_take(&r.native_doc, native_desc_make(&native));
    assert_true(may(&x, &r, false, NULL));
    operation_clear(&b);
    operation_clear(&r);
    close_it(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_and_restore_lane), cmocka_unit_test(one_per_device),
        cmocka_unit_test(memory_total),           cmocka_unit_test(order),
        cmocka_unit_test(prepared_ahead),         cmocka_unit_test(others_go_on),
        cmocka_unit_test(maintenance_and_outage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
