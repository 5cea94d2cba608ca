/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The effective policy of a volume: who wins, why, and what [policy] sections decide. */
#include "tests/unit/cfgdir.h"

#define BASE                                                                                                           \
    "[repository \"main\"]\npath = /srv/backup\npassword-file = cred:main\n"                                           \
    "[storage-class \"a\"]\ndriver = reflink\nmatch = /v/*\n"

static struct cfg_policy policy(const struct cfg *c, const char *volume, const char *job)
{
    struct cfg_policy p;
    struct err e = ERR_INIT;
    assert_ok(cfg_policy(c, cfg_named(volume), job, &p, &e), &e);
    /* Single values are those of the whole policy. */
    assert_int_equal(cfg_excluded(c, cfg_class_of(c, cfg_named(volume)), cfg_named(volume), UINT64_MAX), p.exclude);
    if (!job)
        assert_int_equal(cfg_pool_high_water(c, cfg_named(volume)), p.pool_high_water);
    return p;
}

static void precedence(void **state)
{
    (void)state; /* RS-04, RS-05, RS-09: volume > job > class > driver > daemon > default */
    static const char *const more[] = {
        "[daemon]\nsnapshots-to-retain = 1\n", "[driver \"reflink\"]\nsnapshots-to-retain = 2\n",
        "[storage-class \"a\"]\nsnapshots-to-retain = 3\n", "[job \"j\"]\nvolumes = /v/*\nsnapshots-to-retain = 4\n",
        "[volume \"/v/1\"]\nsnapshots-to-retain = 5\n"};
    static const char *const scopes[] = {"daemon", "driver", "storage-class", "job", "volume"};
    char text[4096] = BASE;
    for (unsigned i = 0; i <= 5; i++) {
        struct cfg *c = no_error(text);
        struct cfg_policy p = policy(c, "/v/1", "j");
        assert_int_equal(p.snapshots_to_retain, i);
        json_t *j = cfg_policy_json(&p), *k = json_object_get(j, "snapshots-to-retain");
        assert_string_equal(json_string_value(json_object_get(k, "scope")), i ? scopes[i - 1] : "default");
        assert_int_equal(json_array_size(json_object_get(k, "overrides")), i);
        if (i) {
            json_t *over = json_array_get(json_object_get(k, "overrides"), 0);
            assert_string_equal(json_string_value(json_object_get(over, "scope")), i > 1 ? scopes[i - 2] : "default");
            assert_non_null(strstr(json_string_value(json_object_get(k, "origin")), "snapferry.ini:"));
        }
        json_decref(j);
        cfg_policy_clear(&p);
        /* Another volume, and no job. */
        p = policy(c, "/v/2", NULL);
        assert_int_equal(p.snapshots_to_retain, i > 3 ? 3 : i);
        assert_string_equal(p.klass, "a");
        assert_string_equal(p.driver, "reflink");
        cfg_policy_clear(&p);
        cfg_free(c);
        if (i < 5)
            strcat(text, more[i]);
    }
}

static void defaults(void **state)
{
    (void)state;
    struct cfg *c = no_error(BASE);
    struct cfg_policy p = policy(c, "/v/1", NULL);
    assert_string_equal(p.repository, "main");                         /* the only one */
    assert_true(p.move_data && p.backup_read_only && !p.prune_before); /* PVC-06, RS-17 */
    assert_false(p.exclude || p.keep_on_failure || p.full || p.map_bad_reads || p.accept_inconsistent);
    assert_int_equal(p.snapshots_to_retain, 0);
    assert_int_equal(p.max_snapshots_per_volume, 64);
    assert_int_equal(p.pool_high_water, 85);
    assert_int_equal(p.snapshot_only_keep, 3);
    assert_int_equal(p.prepare_timeout_s, 1800); /* PVC-20 */
    assert_int_equal(p.snapshot_timeout_s, 60);
    assert_int_equal(p.stall_timeout_s, 900);
    assert_int_equal(p.go_timeout_s, 60);
    assert_int_equal(p.cancel_grace_s, 30);
    assert_int_equal(p.repo_outage_max_s, 6 * 3600);
    assert_int_equal(p.max_duration_s, 0);
    assert_int_equal(p.retries, 5);
    assert_int_equal(p.retry_max_s, 3600);
    assert_int_equal(p.hook_timeout_s, 30);
    assert_int_equal(p.hook_on_error, ON_ERROR_FAIL);
    assert_int_equal(p.keep_daily, -1);
    assert_int_equal(p.keep_latest, -1);
    assert_int_equal(p.max_per_device, 1);
    assert_int_equal(p.group_max_skew_ms, 1000);
    assert_string_equal(p.mover, "");
    assert_null(p.options[0].key);
    assert_null(cfg_policy_where(&p, "retries"));
    cfg_policy_clear(&p);
    cfg_policy_clear(&p); /* twice does no harm */
    /* A volume of no class still has the daemon's words. */
    p = policy(c, "/elsewhere", NULL);
    assert_string_equal(p.klass, "");
    assert_string_equal(p.driver, "");
    cfg_policy_clear(&p);
    struct err e = ERR_INIT;
    assert_true(cfg_policy_of_class(c, "nobody", &p, &e) < 0);
    assert_int_equal(e.cls, ERR_NOT_FOUND);
    cfg_free(c);
    c = no_error("[repository \"a\"]\npath = /a\n[repository \"b\"]\npath = /b\n");
    p = policy(c, "/x", NULL);
    assert_string_equal(p.repository, "");
    cfg_policy_clear(&p);
    cfg_free(c);
}

static void every_key_reaches_its_place(void **state)
{
    (void)state;
    struct cfg *c = no_error(
        BASE "[storage-class \"b\"]\ndriver = device\nmatch = /w\n[daemon]\nper-device = 4\n[volume \"/v/1\"]\n"
             "group = g\ngroup-consistency = strict\ngroup-max-skew = 250ms\nretain-max-age = 2d\n"
             "keep-on-failure = yes\nprune = before\nbackup-storage-class = b\nbackup-read-only = no\n"
             "expose-keep-on-failure = on\ncopy-limit = 10MiB\naccept-inconsistent = true\nmax-duration = 1d\n"
             "point-in-time = yes\n"
             "splitter = FIXED-1M\ncompression = zstd\nbad-reads = map\ntype = full\nhook-prepare = /h/p\n"
             "hook-on-error = continue\nkeep-latest = 0\nkeep-annual = 3\npriority = 90\nmemory = 128MiB\n"
             "read-limit = 1MiB\n[volume \"short\"]\nname = /v/a/very/long/name/that/does/not/fit/into/the/section\n"
             "class = b\nmove-data = no\nexclude = yes\n");
    struct cfg_policy p = policy(c, "/v/1", NULL);
    assert_string_equal(p.group, "g");
    assert_int_equal(p.group_consistency, GROUP_STRICT);
    assert_int_equal(p.group_max_skew_ms, 250);
    assert_int_equal(p.retain_max_age_s, 2 * 86400);
    assert_true(p.keep_on_failure && p.prune_before && !p.backup_read_only && p.expose_keep_on_failure);
    assert_true(p.accept_inconsistent && p.point_in_time && p.map_bad_reads && p.full);
    assert_string_equal(p.backup_storage_class, "b");
    assert_int_equal(p.copy_limit, 10 << 20);
    assert_int_equal(p.max_duration_s, 86400);
    assert_string_equal(p.splitter, "FIXED-1M");
    assert_string_equal(p.hook_prepare, "/h/p");
    assert_int_equal(p.hook_on_error, ON_ERROR_CONTINUE);
    assert_int_equal(p.keep_latest, 0);
    assert_int_equal(p.keep_annual, 3);
    assert_int_equal(p.keep_daily, -1);
    assert_int_equal(p.priority, 90);
    assert_int_equal(p.limits.memory, 128 << 20);
    assert_int_equal(p.limits.read_limit, 1 << 20);
    assert_int_equal(p.max_per_device, 4); /* [daemon] per-device */
    assert_string_equal(p.limits.user, "snapferry-mover");
    cfg_policy_clear(&p);
    p = policy(c, "/v/a/very/long/name/that/does/not/fit/into/the/section", NULL); /* PVC-04: by name */
    assert_string_equal(p.klass, "b");
    assert_true(!p.move_data && p.exclude);
    assert_non_null(strstr(p.exclude_reason, "[volume \"short\"]"));
    cfg_policy_clear(&p);
    cfg_free(c);
}

static void options_are_joined(void **state)
{
    (void)state; /* PVC-14 */
    struct cfg *c = no_error(BASE "backup-option.pool = fast\nbackup-option.a/b.c = 1\n[volume \"/v/1\"]\n"
                                  "backup-option.pool = slow\nbackup-option.x = y\n[volume \"/v/2\"]\n"
                                  "backup-option.pool =\n");
    struct cfg_policy p = policy(c, "/v/1", NULL);
    unsigned seen = 0;
    for (const struct cfg_kv *kv = p.options; kv->key; kv++) {
        seen |= !strcmp(kv->key, "pool") && !strcmp(kv->value, "slow") ? 1u : 0;
        seen |= !strcmp(kv->key, "a/b.c") && !strcmp(kv->value, "1") ? 2u : 0;
        seen |= !strcmp(kv->key, "x") && !strcmp(kv->value, "y") ? 4u : 0;
    }
    assert_int_equal(seen, 7);
    json_t *j = cfg_policy_json(&p), *k = json_object_get(j, "backup-option.pool");
    assert_int_equal(json_array_size(json_object_get(k, "overrides")), 1);
    json_decref(j);
    cfg_policy_clear(&p);
    p = policy(c, "/v/2", NULL); /* an empty value takes it away */
    assert_string_equal(p.options[0].key, "a/b.c");
    assert_null(p.options[1].key);
    cfg_policy_clear(&p);
    cfg_free(c);
}

static void retention_belongs_to_the_volume(void **state)
{
    (void)state; /* decisions, 2 */
    struct cfg *c =
        no_error(BASE "[daemon]\nkeep-daily = 1\nkeep-annual = 1\n[job \"n\"]\nvolumes = /v/*\nkeep-daily = 14\n"
                      "keep-weekly = 8\n[job \"by-hand\"]\nvolumes = /v/*\n[volume \"/v/2\"]\nkeep-daily = 30\n");
    static const char *const jobs[] = {NULL, "n", "by-hand"};
    for (unsigned i = 0; i < 3; i++) {
        struct cfg_policy p = policy(c, "/v/1", jobs[i]);
        assert_int_equal(p.keep_daily, 14);
        assert_int_equal(p.keep_weekly, 8);
        assert_int_equal(p.keep_annual, 1);
        assert_int_equal(p.keep_hourly, -1);
        cfg_policy_clear(&p);
        p = policy(c, "/v/2", jobs[i]);
        assert_int_equal(p.keep_daily, 30);
        assert_int_equal(p.keep_weekly, 8);
        cfg_policy_clear(&p);
    }
    cfg_free(c);
}

static void first_policy_that_matches_wins(void **state)
{
    (void)state; /* CF-46 */
    struct cfg *c = no_error(
        BASE
        "[storage-class \"b\"]\ndriver = device\nmatch = /w/*\n"
        "[policy \"keep\"]\nmatch = /v/keep*\naction = backup\n[policy \"scratch\"]\nmatch = /v/tmp*\naction = skip\n"
        "[policy \"big\"]\nclass = a\nmin-size = 1TiB\naction = snapshot\n[policy \"raw\"]\ndriver = device\n"
        "max-size = 1GiB\naction = skip\n[volume \"/v/tmp-mine\"]\nexclude = no\n[daemon]\nmove-data = yes\n"
        "[job \"j\"]\nvolumes = /v/*\nmove-data = no\n");
    struct cfg_policy p = policy(c, "/v/tmp1", NULL);
    assert_true(p.exclude);
    assert_non_null(strstr(p.exclude_reason, "[policy \"scratch\"]"));
    json_t *j = cfg_policy_json(&p);
    assert_string_equal(json_string_value(json_object_get(json_object_get(j, "exclude"), "scope")), "policy");
    json_decref(j);
    cfg_policy_clear(&p);
    p = policy(c, "/v/tmp-mine", NULL); /* the volume's own word is higher */
    assert_false(p.exclude);
    cfg_policy_clear(&p);
    p = policy(c, "/v/keep1", "j"); /* and the job's is lower */
    assert_true(p.move_data);
    cfg_policy_clear(&p);
    /* What depends on the size waits for it. */
    struct err e = ERR_INIT;
    p = policy(c, "/v/other", NULL);
    assert_true(p.move_data && !p.exclude);
    assert_ok(cfg_policy_size(c, &p, cfg_named("/v/other"), UINT64_C(2) << 40, &e), &e);
    assert_false(p.move_data);
    assert_ok(cfg_policy_size(c, &p, cfg_named("/v/other"), 5, &e), &e); /* decided */
    assert_false(p.move_data);
    cfg_policy_clear(&p);
    p = policy(c, "/v/other", NULL);
    assert_ok(cfg_policy_size(c, &p, cfg_named("/v/other"), UINT64_C(1) << 30, &e), &e);
    assert_true(p.move_data);
    cfg_policy_clear(&p);
    p = policy(c, "/w/1", NULL);
    assert_false(p.exclude);
    assert_ok(cfg_policy_size(c, &p, cfg_named("/w/1"), (1 << 30) + 1, &e), &e);
    assert_false(p.exclude);
    cfg_policy_clear(&p);
    p = policy(c, "/w/1", NULL);
    assert_ok(cfg_policy_size(c, &p, cfg_named("/w/1"), 1 << 30, &e), &e);
    assert_true(p.exclude && strstr(p.exclude_reason, "[policy \"raw\"]"));
    cfg_policy_clear(&p);
    cfg_free(c);
}

static void nodes(void **state)
{
    (void)state; /* CF-23 */
    static const char *const list[] = {"node-*", "!node-3", NULL}, *const but[] = {"!a", NULL}, *const none[] = {NULL};
    assert_true(cfg_node_matches(list, "node-1"));
    assert_false(cfg_node_matches(list, "node-3"));
    assert_false(cfg_node_matches(list, "other"));
    assert_true(cfg_node_matches(but, "b"));
    assert_false(cfg_node_matches(but, "a"));
    assert_true(cfg_node_matches(none, "x") && cfg_node_matches(NULL, "x"));
    struct cfg *c = no_error(BASE "[daemon]\nnode-name = n1\nonly-on-node = n2\n[storage-class \"b\"]\n"
                                  "driver = device\nmatch = /w\nonly-on-node = n1\n");
    assert_false(cfg_class_here(c, cfg_class(c, "a")));
    assert_true(cfg_class_here(c, cfg_class(c, "b"))); /* a class's own word beats the daemon's */
    cfg_free(c);
}

/* Policies do not lean on the configuration that they came from. */
static void a_policy_outlives_its_configuration(void **state)
{
    (void)state;
    struct cfg *c = no_error(BASE "backup-option.a = b\nunit-property = MemoryLow=1G\n");
    struct cfg_policy p = policy(c, "/v/1", NULL);
    cfg_free(c);
    assert_string_equal(p.options[0].value, "b");
    assert_string_equal(p.limits.unit_properties[0], "MemoryLow=1G");
    assert_non_null(strstr(cfg_policy_where(&p, "backup-option.a"), "snapferry.ini:7"));
    cfg_policy_clear(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(precedence),
        cmocka_unit_test(defaults),
        cmocka_unit_test(every_key_reaches_its_place),
        cmocka_unit_test(options_are_joined),
        cmocka_unit_test(retention_belongs_to_the_volume),
        cmocka_unit_test(first_policy_that_matches_wins),
        cmocka_unit_test(nodes),
        cmocka_unit_test(a_policy_outlives_its_configuration),
    };
    return cmocka_run_group_tests(tests, cfgdir_make, cfgdir_remove);
}
