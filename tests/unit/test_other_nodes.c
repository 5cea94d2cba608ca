/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_other_nodes.c - when the backups of other nodes are listed: at once, each hour, five minutes after a failure,
 * after a reload, one node at a time, and only while the repository is available (AO-18)
 *
 * The clock, the scan and the state of the repository are the test's; linked by --wrap.
 */
#include "tests/unit/cfgdir.h"

#include "base/json.h"
#include "base/time.h"
#include "daemon/engine/engine-impl.h"

#define MIN (60 * NS_PER_S)

static int64_t now;
static struct repo_health health;
static unsigned scans;
static char scanned_node[64];
static scan_done_fn *reply;
static void *reply_arg;

/* Of the types of what they stand for: the linker would not notice another one. */
__typeof__(mono_ns) __wrap_mono_ns;
__typeof__(repository_health) __wrap_repository_health;
__typeof__(scan_within) __wrap_scan_within;

int64_t __wrap_mono_ns(void)
{
    return now;
}

struct repo_health *__wrap_repository_health(struct decide *d, const char *name)
{
    (void)d;
    assert_string_equal(name, "main"); /* the other repository has no nodes to list */
    return &health;
}

void __wrap_scan_within(struct engine *g, const struct request_args *req, scan_done_fn *fn, void *arg)
{
    (void)g;
    assert_string_equal(req->repository, "main");
    assert_true(req->periodic);
    assert_null(reply); /* one at a time */
    snprintf(scanned_node, sizeof scanned_node, "%s", req->node);
    scans++;
    reply = fn;
    reply_arg = arg;
}

static void answer(bool good)
{
    struct err e = ERR_INIT;
    scan_done_fn *fn = reply;
    if (!good)
        err_set(&e, ERR_NO_REPO, 0, "it does not answer");
    reply = NULL;
    fn(good ? 1 : 0, good ? NULL : &e, reply_arg);
}

/* The node that is scanned when it is looked at this time; "": none is. */
static const char *looked_at(struct engine *g, int64_t at)
{
    const unsigned before = scans;
    now = at;
    other_nodes_look(g);
    return scans == before ? "" : scanned_node;
}

static bool listed(struct engine *g, const char *node)
{
    CLEANUP_JSON json_t *labels = json_pack("{s:s,s:s}", "repository", "main", "node", node);
    double at;
    return records_counter_get(g->records, "other_node_scan_timestamp_seconds", labels, &at);
}

/* Since when it is named, in seconds; 0: it is not recorded. */
static double named_since(struct engine *g, const char *node)
{
    CLEANUP_JSON json_t *labels = json_pack("{s:s,s:s}", "repository", "main", "node", node);
    double at = 0;
    return records_counter_get(g->records, "other_node_since_timestamp_seconds", labels, &at) ? at : 0;
}

static struct cfg *load(const char *nodes)
{
    char ini[512];
    snprintf(ini, sizeof ini,
             "[daemon]\nnode-name = nas1\n[metrics]\nlisten =\n"
             "[repository \"main\"]\ntype = filesystem\npath = /srv/r\npassword-file = /etc/p\nother-nodes = %s\n"
             "[repository \"alone\"]\ntype = filesystem\npath = /srv/s\npassword-file = /etc/p\n",
             nodes);
    struct cfg *c = cfgdir_load(ini);
    assert_int_equal(cfg_errors(c), 0);
    return c;
}

static void each_hour(void **state)
{
    (void)state;
    static struct engine g;
    struct records_news news;
    struct err e = ERR_INIT;
    char dir[128];
    snprintf(dir, sizeof dir, "%s/state", cfgdir);
    assert_ok(records_open(&g.records, dir, &news, &e), &e);
    g.cfg = load("nas2 nas3");
    other_nodes_changed(&g);
    const double at_first = named_since(&g, "nas3");
    assert_true(at_first > 0); /* one that is never listed is told by that time */
    assert_true(named_since(&g, "nas2") > 0);
    int64_t t = 1000 * MIN;                    /* a machine that has been up for a while */
    assert_string_equal(looked_at(&g, t), ""); /* nobody has looked at the repository */
    health.known = true;
    assert_string_equal(looked_at(&g, t), ""); /* it is not available */
    health.up = true;
    assert_string_equal(looked_at(&g, t), "nas2");
    assert_string_equal(looked_at(&g, t), ""); /* the second waits for the end of the first */
    answer(true);
    assert_true(listed(&g, "nas2"));
    assert_string_equal(looked_at(&g, t), "nas3");
    answer(false);
    assert_false(listed(&g, "nas3"));
    assert_string_equal(looked_at(&g, t + 5 * MIN - 1), "");
    assert_string_equal(looked_at(&g, t + 5 * MIN), "nas3"); /* a failure is tried again soon */
    answer(true);
    assert_true(listed(&g, "nas3"));
    assert_string_equal(looked_at(&g, t + 60 * MIN - 1), "");
    assert_string_equal(looked_at(&g, t + 60 * MIN), "nas2");
    answer(true);
    assert_string_equal(looked_at(&g, t + 65 * MIN - 1), "");
    assert_string_equal(looked_at(&g, t + 65 * MIN), "nas3");
    answer(true);

    /* A reload: at once, and what is not named any more is forgotten. */
    cfg_free(g.cfg);
    g.cfg = load("nas3");
    other_nodes_changed(&g);
    assert_false(listed(&g, "nas2"));
    assert_true(named_since(&g, "nas2") == 0);
    assert_true(named_since(&g, "nas3") == at_first); /* not since the reload */
    assert_true(listed(&g, "nas3"));
    assert_string_equal(looked_at(&g, t + 66 * MIN), "nas3");
    answer(true);
    health.up = false;
    assert_string_equal(looked_at(&g, t + 300 * MIN), "");
    health.up = true;
    assert_string_equal(looked_at(&g, t + 301 * MIN), "nas3");

    /* The daemon stops while one is scanned. */
    g.stopping = true;
    answer(true);
    other_nodes_free(&g);
    records_close(g.records);
    cfg_free(g.cfg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_hour)};
    return cmocka_run_group_tests(tests, cfgdir_make, cfgdir_remove);
}
