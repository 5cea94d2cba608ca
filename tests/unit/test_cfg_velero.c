/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Import of node-agent ConfigMaps: the samples of Velero's own pages, and what must not be dropped in silence. */
#include "tests/unit/cfgdir.h"

#include "daemon/import/velero.h"

static char *import(const char *json)
{
    char *ini = NULL;
    struct err e = ERR_INIT;
    int rc = import_velero(json, &ini, &e);
    if (rc < 0)
        fail_msg("%s", e.msg);
    return ini;
}

/* Imports and loads, with `more` as a drop-in that tells what a cluster does not. */
static struct cfg *imported(const char *json, const char *more)
{
    char *ini = import(json);
    cfgdir_write("conf.d/90-here.ini", more);
    struct cfg *c = no_error(ini);
    cfgdir_write("conf.d/90-here.ini", "");
    free(ini);
    return c;
}

static void refused(const char *json, const char *words)
{
    char *ini = NULL;
    struct err e = ERR_INIT;
    if (import_velero(json, &ini, &e) >= 0)
        fail_msg("imported: %s", ini);
    assert_null(ini);
    assert_int_equal(e.cls, ERR_USAGE);
    if (!strstr(e.msg, words))
        fail_msg("\"%s\" does not say: %s", e.msg, words);
}

/* The sample of the page "BackupPVC Configuration for Data Movement Backup", with one empty entry more. */
static const char backup_pvc[] =
    "{\"backupPVC\": {\"storage-class-1\": {\"storageClass\": \"backupPVC-storage-class\", \"readOnly\": true},"
    "\"storage-class-2\": {\"storageClass\": \"backupPVC-storage-class\"},"
    "\"storage-class-3\": {\"readOnly\": true, \"annotations\": {\"some-csi.provider.io/readOnlyClone\": true}},"
    "\"storage-class-4\": {\"readOnly\": true, \"spcNoRelabeling\": true}, \"storage-class-5\": {},"
    "\"storage-class-6\": {\"storageClass\": \"\"}}}";

static void backup_pvc_means_the_same(void **state)
{
    (void)state; /* PVC-04, PVC-05, PVC-06, PVC-13, PVC-14; decisions, 3 */
    char more[1024] = "[repository \"m\"]\npath = /m\npassword-file = cred:m\n"
                      "[storage-class \"backupPVC-storage-class\"]\ndriver = reflink\n";
    for (int i = 1; i <= 6; i++)
        sprintf(more + strlen(more), "[storage-class \"storage-class-%d\"]\ndriver = reflink\nmatch = /v%d/*\n", i, i);
    struct cfg *c = imported(backup_pvc, more);
    static const struct {
        const char *into;
        bool read_only;
    } want[] = {{"backupPVC-storage-class", true},
                {"backupPVC-storage-class", false},
                {"", true},
                {"", true},
                {"", false}, /* Velero's default is writable, ours is not */
                {"", false}};
    for (int i = 0; i < 6; i++) {
        char volume[32];
        struct cfg_policy p;
        struct err e = ERR_INIT;
        snprintf(volume, sizeof volume, "/v%d/x", i + 1);
        assert_ok(cfg_policy(c, cfg_named(volume), NULL, &p, &e), &e);
        assert_string_equal(p.backup_storage_class, want[i].into);
        assert_int_equal(p.backup_read_only, want[i].read_only);
        if (i == 2) {
            assert_string_equal(p.options[0].key, "some-csi.provider.io/readOnlyClone");
            assert_string_equal(p.options[0].value, "true");
        } else {
            assert_null(p.options[0].key);
        }
        cfg_policy_clear(&p);
    }
    assert_null(cfg_class(c, "backupPVC-storage-class")->match[0]);
    cfg_free(c);
    char *ini = import(backup_pvc);
    assert_non_null(strstr(ini, "; spcNoRelabeling"));
    free(ini);
}

/* The samples of "Node-agent Concurrency" and "Node-agent Prepare Queue Length". */
static void load_concurrency(void **state)
{
    (void)state; /* CF-20, CF-21 */
    static const char json[] =
        "{\"loadConcurrency\": {\"globalConfig\": 2, \"prepareQueueLength\": 10, \"perNodeConfig\": "
        "[{\"nodeSelector\": "
        "{\"matchLabels\": {\"kubernetes.io/hostname\": \"node1\"}}, \"number\": 3}, {\"nodeSelector\": "
        "{\"matchExpressions\": [{\"key\": \"kubernetes.io/hostname\", \"operator\": \"In\", \"values\": [\"node1\", "
        "\"node2\"]}]}, \"number\": 1}]}}";
    static const struct {
        const char *node;
        unsigned slots;
    } want[] = {{"node0", 2}, {"node1", 1}, {"node2", 1}};
    for (size_t i = 0; i < 3; i++) {
        char more[64];
        snprintf(more, sizeof more, "[daemon]\nnode-name = %s\n", want[i].node);
        struct cfg *c = imported(json, more);
        assert_int_equal(cfg_daemon(c)->slots, want[i].slots);
        assert_int_equal(cfg_daemon(c)->prepare_ahead, 10);
        cfg_free(c);
    }
    struct cfg *c = imported("{\"loadConcurrency\": {\"globalConfig\": 0, \"prepareQueueLength\": 0}}", "");
    assert_int_equal(cfg_daemon(c)->slots, 1); /* Velero ignores numbers below 1 */
    assert_int_equal(cfg_daemon(c)->prepare_ahead, 2);
    cfg_free(c);
    refused("{\"loadConcurrency\": {\"globalConfig\": 2, \"perNodeConfig\": [{\"nodeSelector\": {\"matchLabels\": "
            "{\"beta.kubernetes.io/instance-type\": \"Standard_B4ms\"}}, \"number\": 5}]}}",
            "loadConcurrency.perNodeConfig[0].nodeSelector.matchLabels.\"beta.kubernetes.io/instance-type\"");
    refused("{\"loadConcurrency\": {\"globalConfig\": \"2\"}}", "loadConcurrency.globalConfig: no whole number");
    refused("{\"loadConcurrency\": {\"max\": 2}}", "loadConcurrency.\"max\": unknown");
    refused("{\"loadConcurrency\": []}", "no object");
}

#define SELECTOR(inner) "{\"loadAffinity\": [{\"nodeSelector\": {" inner "}}]}"
#define HOST(op, values) "{\"key\": \"kubernetes.io/hostname\", \"operator\": \"" op "\", \"values\": [" values "]}"

static bool runs_on(const char *json, const char *more, const char *klass, const char *node)
{
    char text[1024];
    snprintf(text, sizeof text, "[daemon]\nnode-name = %s\n%s", node, more);
    struct cfg *c = imported(json, text);
    bool here = klass ? cfg_class_here(c, cfg_class(c, klass))
                      : cfg_node_matches(cfg_daemon(c)->only_on_node, cfg_daemon(c)->node_name);
    cfg_free(c);
    return here;
}

static void load_affinity(void **state)
{
    (void)state; /* CF-23 */
    const char *in = SELECTOR("\"matchExpressions\": [" HOST("In", "\"node-1\", \"node-2\", \"node-3\"") "]");
    assert_true(runs_on(in, "", NULL, "node-2"));
    assert_false(runs_on(in, "", NULL, "node-4"));
    const char *not = SELECTOR("\"matchExpressions\": [" HOST("NotIn", "\"node-1\"") "]");
    assert_false(runs_on(not, "", NULL, "node-1"));
    assert_true(runs_on(not, "", NULL, "node-2"));
    /* All conditions must hold. */
    const char *both =
        SELECTOR("\"matchLabels\": {\"kubernetes.io/hostname\": \"node-1\"}, \"matchExpressions\": [" HOST(
            "In", "\"node-1\", \"node-2\"") "]");
    assert_true(runs_on(both, "", NULL, "node-1"));
    assert_false(runs_on(both, "", NULL, "node-2"));
    const char *minus = SELECTOR("\"matchExpressions\": [" HOST("In", "\"a\", \"b\"") ", " HOST("NotIn", "\"b\"") "]");
    assert_true(runs_on(minus, "", NULL, "a"));
    assert_false(runs_on(minus, "", NULL, "b"));
    refused(SELECTOR("\"matchExpressions\": [" HOST("In", "\"a\"") ", " HOST("In", "\"b\"") "]"), "no node can match");
    /* The sample of "Node Selection for Data Movement": labels that a plain machine does not have. */
    refused(
        SELECTOR("\"matchLabels\": {\"beta.kubernetes.io/instance-type\": \"Standard_B4ms\"}, \"matchExpressions\": "
                 "[" HOST("In", "\"node-1\"") ", {\"key\": \"xxx/critial-workload\", \"operator\": "
                                              "\"DoesNotExist\"}]"),
        "2 entries of the ConfigMap cannot be imported: "
        "loadAffinity[0].nodeSelector.matchLabels.\"beta.kubernetes.io/instance-type\"");
    refused(SELECTOR("\"matchExpressions\": [{\"key\": \"kubernetes.io/hostname\", \"operator\": \"DoesNotExist\"}]"),
            "operator \"DoesNotExist\"");
    refused(SELECTOR("\"matchFields\": []"), "\"matchFields\": unknown");
    refused("{\"loadAffinity\": {}}", "no list");
}

static void affinity_goes_by_the_class_of_the_intermediate(void **state)
{
    (void)state; /* PVC-17 */
    static const char json[] =
        "{\"loadAffinity\": [{\"nodeSelector\": {\"matchLabels\": {\"kubernetes.io/hostname\": \"n0\"}}},"
        "{\"nodeSelector\": {\"matchLabels\": {\"kubernetes.io/hostname\": \"n1\"}}, \"storageClass\": \"source\"},"
        "{\"nodeSelector\": {\"matchLabels\": {\"kubernetes.io/hostname\": \"n2\"}}, \"storageClass\": \"worker\"},"
        "{\"nodeSelector\": {\"matchLabels\": {\"kubernetes.io/hostname\": \"n3\"}}, \"storageClass\": \"worker\"}],"
        "\"backupPVC\": {\"source\": {\"storageClass\": \"worker\"}, \"plain\": {\"readOnly\": true}}}";
    static const char more[] = "[repository \"m\"]\npath = /m\npassword-file = cred:m\n"
                               "[storage-class \"source\"]\ndriver = reflink\nmatch = /a/*\n"
                               "[storage-class \"plain\"]\ndriver = reflink\nmatch = /b/*\n"
                               "[storage-class \"worker\"]\ndriver = reflink\n";
    static const struct {
        const char *klass, *node;
        bool here;
    } want[] = {{"source", "n2", true}, {"source", "n1", false}, {"source", "n0", false}, {"source", "n3", false},
                {"plain", "n0", true},  {"plain", "n2", false},  {"worker", "n2", true},  {"worker", "n3", false}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        if (runs_on(json, more, want[i].klass, want[i].node) != want[i].here)
            fail_msg("class %s on %s: not %d", want[i].klass, want[i].node, want[i].here);
}

/* The sample of "Data Movement Pod Resource Configuration". */
static void pod_resources(void **state)
{
    (void)state; /* MS-40, MS-41 */
    struct cfg *c =
        imported("{\"podResources\": {\"cpuRequest\": \"1000m\", \"cpuLimit\": \"2000m\", \"memoryRequest\": "
                 "\"512Mi\", \"memoryLimit\": \"1Gi\"}, \"priorityClassName\": \"high-priority\"}",
                 "");
    const struct cfg_mover *m = cfg_mover(c);
    assert_int_equal(m->cpu_quota, 200);
    assert_int_equal(m->cpu_weight, 100);
    assert_int_equal(m->memory, 512 << 20);
    assert_int_equal(m->memory_max, 1 << 30);
    assert_true(cfg_daemon(c)->memory_total >= UINT64_C(3) << 30); /* two slots and one for restores */
    cfg_free(c);
    c = imported("{\"podResources\": {\"memoryRequest\": \"1Gi\", \"memoryLimit\": \"1Gi\", \"cpuLimit\": \"0.5\"}}",
                 "");
    assert_int_equal(cfg_mover(c)->memory, (1 << 30) - (128 << 20));
    assert_int_equal(cfg_mover(c)->cpu_quota, 50);
    cfg_free(c);
    c = imported("{\"podResources\": {\"memoryRequest\": \"10M\", \"cpuRequest\": \"1e3\"}}", "");
    assert_int_equal(cfg_mover(c)->memory, 96 << 20);
    assert_int_equal(cfg_mover(c)->cpu_weight, 10000);
    cfg_free(c);
    refused("{\"podResources\": {\"memoryRequest\": \"2Gi\", \"memoryLimit\": \"1Gi\"}}",
            "memoryRequest is larger than memoryLimit");
    refused("{\"podResources\": {\"cpuRequest\": \"2\", \"cpuLimit\": \"1500m\"}}",
            "cpuRequest is larger than cpuLimit");
    refused("{\"podResources\": {\"memoryLimit\": \"128Mi\"}}", "a mover needs 224 MiB");
    refused("{\"podResources\": {\"memoryLimit\": \"1Gb\"}}", "no Kubernetes quantity: 1Gb");
    refused("{\"podResources\": {\"memoryLimit\": \"-1Gi\"}}", "no Kubernetes quantity");
    refused("{\"podResources\": {\"memoryLimit\": 5}}", "no Kubernetes quantity");
}

static void what_is_about_pods_becomes_a_comment(void **state)
{
    (void)state;
    char *ini = import("{\"restorePVC\": {\"ignoreDelayBinding\": true}, \"cachePVC\": {\"thresholdInGB\": 1, "
                       "\"storageClass\": \"c\"}, \"priorityClassName\": \"low\", \"privilegedFsBackup\": true,"
                       "\"podLabels\": {\"a\": \"b\"}}");
    static const char *const told[] = {"; restorePVC.ignoreDelayBinding", "; cachePVC", "; priorityClassName \"low\"",
                                       "; privilegedFsBackup", "; podLabels"};
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        assert_non_null(strstr(ini, told[i]));
    cfg_free(no_error(ini));
    free(ini);
}

static void a_configmap_object_is_unpacked(void **state)
{
    (void)state;
    struct cfg *c =
        imported("{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {\"name\": \"x\"}, \"data\": "
                 "{\"node-agent-config.json\": \"{\\\"loadConcurrency\\\": {\\\"globalConfig\\\": 4}}\"}}",
                 "");
    assert_int_equal(cfg_daemon(c)->slots, 4);
    cfg_free(c);
    refused("{\"data\": {\"a\": \"{}\", \"b\": \"{}\"}}", "2 members");
    refused("{\"data\": {\"a\": 3}}", "no text");
    refused("{\"data\": {\"a\": \"nonsense\"}}", "a is no JSON");
}

static void hostile_documents(void **state)
{
    (void)state;
    refused("", "no JSON");
    refused("[]", "no JSON object");
    refused("{\"a\": 1, \"a\": 2}", "no JSON");
    refused("{\"nonsense\": {}}", "\"nonsense\": unknown");
    refused("{\"backupPVC\": {\"x\": {\"readOnly\": \"true\"}}}", "backupPVC.\"x\".readOnly: neither true nor false");
    refused("{\"backupPVC\": {\"x\": []}}", "no object");
    refused("{\"backupPVC\": {\"x\": {\"color\": 1}}}", "\"color\": unknown");
    refused("{\"backupPVC\": {\"x\": {\"annotations\": {\"a\": \"line\\n[daemon]\"}}}}", "cannot be written");
    refused("{\"backupPVC\": {\"x\": {\"annotations\": {\"a\": \"b ; c\"}}}}", "cannot be written");
    refused("{\"backupPVC\": {\"x\": {\"annotations\": {\"a=b\": \"c\"}}}}", "cannot be written");
    refused("{\"backupPVC\": {\"x\\\"]\\n[daemon\": {}}}", "at most 33 characters");
    refused("{\"backupPVC\": {\"x\": {\"storageClass\": \"y\\nslots = 9\"}}}", "cannot be written");
    char json[1024];
    snprintf(json, sizeof json, "{\"backupPVC\": {\"%060d\": {}}}", 1);
    refused(json, "at most 33 characters");
    snprintf(json, sizeof json, "{\"backupPVC\": {\"x\": {\"annotations\": {\"a\": \"%0300d\"}}}}", 1);
    refused(json, "longer than a line");
    /* A name in a comment cannot become a line of its own. */
    char *ini = import("{\"priorityClassName\": \"a\\n[daemon]\\nslots = 9\"}");
    struct cfg *c = no_error(ini);
    assert_int_equal(cfg_daemon(c)->slots, 2);
    cfg_free(c);
    free(ini);
}

/* More nodes than fit into a line. */
static void long_lists_are_wrapped(void **state)
{
    (void)state;
    char json[8192] = "{\"loadAffinity\": [{\"nodeSelector\": {\"matchExpressions\": [{\"key\": "
                      "\"kubernetes.io/hostname\", \"operator\": \"In\", \"values\": [";
    for (int i = 0; i < 100; i++)
        sprintf(json + strlen(json), "%s\"node-%03d.example.org\"", i ? "," : "", i);
    strcat(json, "]}]}}]}");
    assert_true(runs_on(json, "", NULL, "node-099.example.org"));
    assert_false(runs_on(json, "", NULL, "node-100.example.org"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backup_pvc_means_the_same),
        cmocka_unit_test(load_concurrency),
        cmocka_unit_test(load_affinity),
        cmocka_unit_test(affinity_goes_by_the_class_of_the_intermediate),
        cmocka_unit_test(pod_resources),
        cmocka_unit_test(what_is_about_pods_becomes_a_comment),
        cmocka_unit_test(a_configmap_object_is_unpacked),
        cmocka_unit_test(hostile_documents),
        cmocka_unit_test(long_lists_are_wrapped),
    };
    return cmocka_run_group_tests(tests, cfgdir_make, cfgdir_remove);
}
