/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * velero.c - a Velero node-agent ConfigMap as INI of the same meaning
 *
 * Defaults differ (Velero's intermediates are writable, its concurrency is 1), so what is not said there is said here.
 * What is about pods only becomes a comment; what would change where or how data moves and cannot be said here is
 * refused by name.
 */
#include "daemon/import/velero.h"

#include "base/cleanup.h"
#include "daemon/import/velero-impl.h"

#include <errno.h>
#include <string.h>

#define CLASS_NAME 33 /* characters of a class: the reader keeps 49 of [storage-class "NAME"] */
#define MIB (INT64_C(1) << 20)
#define MEMORY_LEAST (96 * MIB)   /* of a mover's budget */
#define MEMORY_BESIDE (128 * MIB) /* index pages and margin beside the budget */
#define MEMORY_TOTAL_DEFAULT (2048 * MIB)
#define MEMORY_DEFAULT (256 * MIB)

/* ---- loadConcurrency ---- */

/* A whole number, or refused. */
static bool take_number(struct import *m, const json_t *v, const char *path, long long *ret)
{
    if (!json_is_integer(v)) {
        import_refuse(m, "%s: no whole number", path);
        return false;
    }
    *ret = json_integer_value(v);
    return true;
}

static void global_slots(struct import *m, const json_t *o)
{
    const json_t *v = json_object_get(o, "globalConfig");
    long long n = 1;
    if (v && !take_number(m, v, "loadConcurrency.globalConfig", &n))
        return;
    if (n > 1024) {
        import_refuse(m, "loadConcurrency.globalConfig: %lld is more than 1024", n);
        return;
    }
    if (!v)
        import_comment(m, "loadConcurrency without globalConfig: Velero runs 1");
    else if (n < 1)
        import_comment(m, "loadConcurrency.globalConfig = %lld: Velero ignores numbers below 1 and runs 1", n);
    else
        import_comment(m, "loadConcurrency.globalConfig");
    m->slots = n < 1 ? 1 : (unsigned)n;
    import_number(m, "slots", n < 1 ? 1 : n);
}

static void one_node(struct import *m, const json_t *x, size_t i, char *words, size_t cap)
{
    static const char *const known[] = {"nodeSelector", "number", NULL};
    char path[128], patterns[4096];
    long long n;
    snprintf(path, sizeof path, "loadConcurrency.perNodeConfig[%zu]", i);
    import_only(m, x, path, known);
    if (!take_number(m, json_object_get(x, "number"), path, &n))
        return;
    if (n < 1) {
        import_comment(m, "%s: Velero ignores number = %lld", path, n);
        return;
    }
    if (n > 1024) {
        import_refuse(m, "%s: %lld is more than 1024", path, n);
        return;
    }
    snprintf(path, sizeof path, "loadConcurrency.perNodeConfig[%zu].nodeSelector", i);
    if (!selector_patterns(m, json_object_get(x, "nodeSelector"), path, patterns, sizeof patterns))
        return;
    if (!*patterns || *patterns == '!') {
        import_refuse(m, "%s: a number for all nodes but some", path);
        return;
    }
    if (n > m->slots)
        m->slots = (unsigned)n;
    size_t used = strlen(words);
    for (const char *s = patterns; *s && used < cap; s += strspn(s, " ")) {
        size_t len = strcspn(s, " ");
        used += (size_t)snprintf(words + used, cap - used, "%s%.*s=%lld", used ? " " : "", (int)len, s, n);
        s += len;
    }
    if (used >= cap)
        import_refuse(m, "%s: too many nodes", path);
}

static void per_node(struct import *m, const json_t *list)
{
    char words[8192] = "";
    size_t i;
    const json_t *x;
    if (list && !json_is_array(list)) {
        import_refuse(m, "loadConcurrency.perNodeConfig: no list");
        return;
    }
    json_array_foreach(list, i, x) one_node(m, x, i, words, sizeof words);
    if (!*words)
        return;
    import_comment(m, "loadConcurrency.perNodeConfig: the smallest number that matches counts");
    fprintf(m->out, "slots-on-node =\n");
    for (char *save, *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save))
        fprintf(m->out, "    %s\n", w);
}

static void load_concurrency(struct import *m)
{
    static const char *const known[] = {"globalConfig", "perNodeConfig", "prepareQueueLength", NULL};
    const json_t *o = json_object_get(m->doc, "loadConcurrency"), *v;
    long long n;
    if (!o)
        return;
    if (!json_is_object(o)) {
        import_refuse(m, "loadConcurrency: no object");
        return;
    }
    import_only(m, o, "loadConcurrency", known);
    global_slots(m, o);
    per_node(m, json_object_get(o, "perNodeConfig"));
    if (!(v = json_object_get(o, "prepareQueueLength")) || !take_number(m, v, "loadConcurrency.prepareQueueLength", &n))
        return;
    if (n < 1 || n > 4096) {
        import_comment(m, "loadConcurrency.prepareQueueLength = %lld: no limit there; prepare-ahead is always bounded",
                       n);
        return;
    }
    import_comment(m, "loadConcurrency.prepareQueueLength: of the whole cluster there, of this node here");
    import_number(m, "prepare-ahead", n);
}

/* ---- podResources ---- */

/* Thousandths of a member, 0 if it is not there or says "no limit". */
static int64_t quantity(struct import *m, const json_t *o, const char *name)
{
    const json_t *v = json_object_get(o, name);
    const char *text = json_string_value(v);
    int64_t q = 0;
    if (v && (!text || (*text && quantity_parse(text, &q) < 0)))
        import_refuse(m, "podResources.%s: no Kubernetes quantity%s%s", name, text ? ": " : "", text ? text : "");
    return q;
}

static bool within(struct import *m, const char *what, int64_t request, int64_t limit)
{
    if (!limit || request <= limit)
        return true;
    import_refuse(m, "podResources: %sRequest is larger than %sLimit (Velero ignores the whole section then)", what,
                  what);
    return false;
}

static void cpu(struct import *m, int64_t request, int64_t limit)
{
    if (!within(m, "cpu", request, limit))
        return;
    if (limit) {
        import_comment(m, "podResources.cpuLimit, in percent of one CPU");
        import_number(m, "cpu-quota", (limit + 9) / 10);
    }
    if (request) {
        int64_t weight = (request + 9) / 10;
        import_comment(m, "podResources.cpuRequest as a share: one CPU is the usual weight of 100");
        import_number(m, "cpu-weight", weight > 10000 ? 10000 : weight);
    }
}

static void put_mib(struct import *m, const char *key, int64_t bytes)
{
    if (bytes % MIB)
        fprintf(m->out, "%s = %lld\n", key, (long long)bytes);
    else
        fprintf(m->out, "%s = %lldMiB\n", key, (long long)(bytes / MIB));
}

/* The request is what a mover may count on, the limit what it is killed at. Returns what one mover needs. */
static int64_t memory(struct import *m, int64_t request, int64_t limit)
{
    if (!within(m, "memory", request, limit))
        return 0;
    if (limit && limit < MEMORY_LEAST + MEMORY_BESIDE) {
        import_refuse(m, "podResources.memoryLimit: %lld MiB, a mover needs %lld MiB", (long long)(limit / MIB),
                      (long long)((MEMORY_LEAST + MEMORY_BESIDE) / MIB));
        return 0;
    }
    int64_t budget = request ? request : MEMORY_DEFAULT;
    if (budget < MEMORY_LEAST) {
        import_comment(m, "podResources.memoryRequest: the least budget of a mover is 96MiB");
        budget = MEMORY_LEAST;
    }
    if (limit && budget + MEMORY_BESIDE > limit) {
        import_comment(m, "index pages and a margin must fit into the limit beside the budget");
        budget = limit - MEMORY_BESIDE;
    }
    if (request || budget != MEMORY_DEFAULT) {
        import_comment(m, "podResources.memoryRequest: the budget that a mover keeps to");
        put_mib(m, "memory", budget);
    }
    if (limit) {
        import_comment(m, "podResources.memoryLimit");
        put_mib(m, "memory-max", limit);
    }
    return limit ? limit : budget + MEMORY_BESIDE;
}

static void pod_resources(struct import *m, int64_t *need)
{
    static const char *const known[] = {
        "cpuRequest", "cpuLimit", "memoryRequest", "memoryLimit", "ephemeralStorageRequest", "ephemeralStorageLimit",
        NULL};
    const json_t *o = json_object_get(m->doc, "podResources");
    *need = 0;
    if (!o)
        return;
    if (!json_is_object(o)) {
        import_refuse(m, "podResources: no object");
        return;
    }
    import_only(m, o, "podResources", known);
    fprintf(m->out, "\n[mover]\n");
    cpu(m, quantity(m, o, "cpuRequest"), quantity(m, o, "cpuLimit"));
    *need = memory(m, quantity(m, o, "memoryRequest") / 1000, quantity(m, o, "memoryLimit") / 1000);
    if (quantity(m, o, "ephemeralStorageRequest") || quantity(m, o, "ephemeralStorageLimit"))
        import_comment(m, "podResources.ephemeralStorage: a mover stores nothing of its own; caches are bounded by "
                          "cache-max in [daemon]");
}

/* ---- backupPVC ---- */

static void annotations(struct import *m, const json_t *o, const char *path)
{
    const char *name;
    const json_t *v;
    if (o && !json_is_object(o)) {
        import_refuse(m, "%s: no object", path);
        return;
    }
    json_object_foreach((json_t *)(uintptr_t)o, name, v)
    {
        char at[512], key[512], number[32];
        snprintf(at, sizeof at, "%s.\"%s\"", path, name);
        snprintf(key, sizeof key, "backup-option.%s", name);
        if (json_is_string(v)) {
            import_value(m, at, key, json_string_value(v));
        } else if (json_is_boolean(v)) { /* as in Velero's own sample */
            import_value(m, at, key, json_is_true(v) ? "true" : "false");
        } else if (json_is_integer(v)) {
            snprintf(number, sizeof number, "%lld", (long long)json_integer_value(v));
            import_value(m, at, key, number);
        } else {
            import_refuse(m, "%s: no text", at);
        }
    }
}

static bool take_bool(struct import *m, const json_t *o, const char *name, const char *path)
{
    const json_t *v = json_object_get(o, name);
    if (v && !json_is_boolean(v))
        import_refuse(m, "%s.%s: neither true nor false", path, name);
    return json_is_true(v);
}

static bool class_header(struct import *m, const char *klass, const char *path)
{
    if (!*klass || strlen(klass) > CLASS_NAME || strpbrk(klass, "\"/[] \t\r\n;")) {
        import_refuse(m, "%s: the name of a storage class has at most %d characters here", path, CLASS_NAME);
        return false;
    }
    fprintf(m->out, "\n[storage-class \"%s\"]\n", klass);
    return true;
}

static void one_class(struct import *m, const char *klass, const json_t *o)
{
    static const char *const known[] = {"storageClass", "readOnly", "spcNoRelabeling", "annotations", NULL};
    char path[512], at[640];
    snprintf(path, sizeof path, "backupPVC.\"%s\"", klass);
    if (!json_is_object(o)) {
        import_refuse(m, "%s: no object", path);
        return;
    }
    import_only(m, o, path, known);
    if (!class_header(m, klass, path))
        return;
    import_comment(m, "%s: say which driver and which volumes it is on this node", path);
    const json_t *into = json_object_get(o, "storageClass");
    if (into && !json_is_string(into))
        import_refuse(m, "%s.storageClass: no text", path);
    const char *name = json_string_value(into);
    snprintf(at, sizeof at, "%s.storageClass", path);
    if (name && *name && strcmp(name, klass) != 0)
        import_value(m, at, "backup-storage-class", name);
    import_value(m, path, "backup-read-only", take_bool(m, o, "readOnly", path) ? "yes" : "no");
    if (take_bool(m, o, "spcNoRelabeling", path))
        import_comment(m, "spcNoRelabeling: nothing is mounted here, so nothing is relabeled");
    snprintf(at, sizeof at, "%s.annotations", path);
    annotations(m, json_object_get(o, "annotations"), at);
    /* Velero looks the affinity up by the class of the intermediate. */
    import_affinity(m, name && *name ? name : klass);
}

static bool has_class(const struct import *m, const char *klass)
{
    return json_object_get(json_object_get(m->doc, "backupPVC"), klass) != NULL;
}

/* Classes that are named only as somebody's intermediates. */
static void intermediate_classes(struct import *m, const json_t *map)
{
    const char *klass;
    const json_t *o;
    json_t *done = json_object();
    json_object_foreach((json_t *)(uintptr_t)map, klass, o)
    {
        const char *into = json_string_value(json_object_get(o, "storageClass"));
        if (!into || !*into || has_class(m, into) || json_object_get(done, into))
            continue;
        json_object_set_new(done, into, json_true());
        if (!class_header(m, into, "backupPVC.*.storageClass"))
            continue;
        import_comment(m, "for intermediates only: say which driver it is on this node, and its target");
        fprintf(m->out, "match =\n");
    }
    json_decref(done);
}

/* Classes of which only loadAffinity speaks. */
static void affinity_classes(struct import *m)
{
    const json_t *list = json_object_get(m->doc, "loadAffinity"), *x;
    size_t i, first;
    bool global = false;
    if (list && !json_is_array(list)) {
        import_refuse(m, "loadAffinity: no list");
        return;
    }
    json_array_foreach(list, i, x)
    {
        const char *klass = json_string_value(json_object_get(x, "storageClass"));
        if (!klass || !*klass) {
            if (global)
                import_comment(m, "loadAffinity[%zu]: Velero uses the first entry without a storage class only", i);
            global = true;
        } else if (affinity_of(m, klass, &first) != x) {
            import_comment(m, "loadAffinity[%zu]: Velero uses the first entry of class %s only", i, klass);
        } else if (!has_class(m, klass) && class_header(m, klass, "loadAffinity[].storageClass")) {
            import_comment(m, "say which driver and which volumes it is on this node");
            import_affinity(m, klass);
        }
    }
}

/* ---- what is about pods only ---- */

static void of_pods(struct import *m)
{
    const json_t *o = m->doc, *v;
    if ((v = json_object_get(o, "restorePVC"))) {
        static const char *const known[] = {"ignoreDelayBinding", NULL};
        if (!json_is_object(v))
            import_refuse(m, "restorePVC: no object");
        import_only(m, v, "restorePVC", known);
        import_comment(m, "restorePVC.ignoreDelayBinding: restore targets are always made at once");
    }
    if ((v = json_object_get(o, "cachePVC")))
        import_comment(m, "cachePVC: the cache lies in cache-dir of [daemon] and never grows beyond cache-max");
    if ((v = json_object_get(o, "priorityClassName")))
        import_comment(m,
                       "priorityClassName \"%s\": weigh movers with cpu-weight, io-weight, nice and slice in [mover]",
                       json_is_string(v) ? json_string_value(v) : "");
    static const char *const pods[] = {"privilegedFsBackup", "podAnnotations", "podLabels"};
    for (size_t i = 0; i < sizeof pods / sizeof *pods; i++)
        if (json_object_get(o, pods[i]))
            import_comment(m, "%s: there are no pods here", pods[i]);
}

/* ---- the whole ---- */

static void import_all(struct import *m)
{
    static const char *const known[] = {"loadConcurrency",
                                        "loadAffinity",
                                        "backupPVC",
                                        "restorePVC",
                                        "podResources",
                                        "priorityClassName",
                                        "privilegedFsBackup",
                                        "cachePVC",
                                        "podAnnotations",
                                        "podLabels",
                                        NULL};
    int64_t need;
    import_only(m, m->doc, "", known);
    import_comment(m, "Imported from the node-agent ConfigMap of Velero. Storage classes need a driver and their "
                      "volumes (match): they are not in the ConfigMap.");
    of_pods(m);
    fprintf(m->out, "\n[daemon]\n");
    load_concurrency(m);
    import_affinity(m, NULL);
    pod_resources(m, &need);
    int64_t all = need * (1 + (m->slots ? m->slots : 2)); /* one more is reserved for restores */
    if (need && all > MEMORY_TOTAL_DEFAULT) {
        fprintf(m->out, "\n[daemon]\n");
        import_comment(m, "room for all slots");
        put_mib(m, "memory-total", all);
    }
    const json_t *map = json_object_get(m->doc, "backupPVC"), *o;
    const char *klass;
    if (map && !json_is_object(map))
        import_refuse(m, "backupPVC: no object");
    json_object_foreach((json_t *)(uintptr_t)map, klass, o) one_class(m, klass, o);
    intermediate_classes(m, map);
    affinity_classes(m);
}

static json_t *parse(const char *text, const char *what, struct err *e)
{
    json_error_t je;
    json_t *doc = json_loads(text, JSON_REJECT_DUPLICATES, &je);
    if (!doc)
        err_set(e, ERR_USAGE, EINVAL, "%s is no JSON: line %d: %s", what, je.line, je.text);
    else if (!json_is_object(doc)) {
        err_set(e, ERR_USAGE, EINVAL, "%s is no JSON object", what);
        json_decref(doc);
        doc = NULL;
    }
    return doc;
}

/* The document itself: a ConfigMap object carries it as text. */
static json_t *open_document(const char *text, struct err *e)
{
    json_t *doc = parse(text, "the ConfigMap", e);
    const json_t *data = json_object_get(doc, "data"), *v;
    if (!doc || !data)
        return doc;
    json_t *inner = NULL;
    const char *name;
    if (!json_is_object(data) || json_object_size(data) != 1) {
        err_set(e, ERR_USAGE, EINVAL, "the data of the ConfigMap has %zu members, not one JSON document",
                json_object_size(data));
    } else {
        json_object_foreach((json_t *)(uintptr_t)data, name, v)
        {
            if (json_is_string(v))
                inner = parse(json_string_value(v), name, e);
            else
                err_set(e, ERR_USAGE, EINVAL, "\"%s\" in the data of the ConfigMap is no text", name);
        }
    }
    json_decref(doc);
    return inner;
}

int import_velero(const char *text, char **ini, struct err *e)
{
    struct err why = ERR_INIT;
    CLEANUP_FREE char *out = NULL;
    size_t len = 0;
    json_t *doc = open_document(text, &why);
    if (!doc) {
        if (e)
            *e = why;
        return -EINVAL;
    }
    struct import m = {.out = open_memstream(&out, &len), .doc = doc};
    if (!m.out) {
        json_decref(doc);
        return err_nomem(e);
    }
    import_all(&m);
    bool failed = ferror(m.out);
    if (fclose(m.out) != 0 || failed || !out) {
        json_decref(doc);
        return err_nomem(e);
    }
    json_decref(doc);
    if (m.n_refused) {
        err_set(e, ERR_USAGE, EINVAL, "%u %s of the ConfigMap cannot be imported: %s", m.n_refused,
                m.n_refused == 1 ? "entry" : "entries", m.refused);
        err_hint(e, "take them out, and say in the INI file what they meant");
        return -EINVAL;
    }
    *ini = take_ptr(&out);
    return 0;
}
