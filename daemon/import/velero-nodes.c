/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * velero-nodes.c - node selectors of Kubernetes as only-on-node patterns
 *
 * All conditions of a selector must hold. What is about the node's name can be said here; any other label cannot, and
 * leaving one out would let movers run where they must not.
 */
#include "daemon/import/velero-impl.h"

#include <string.h>

static bool is_hostname(const char *label)
{
    return !strcmp(label, "kubernetes.io/hostname") || !strcmp(label, "metadata.name");
}

/* A set of node names: allowed ones (if `limited`) and excluded ones. */
struct nodes {
    json_t *allowed, *excluded; /* arrays of strings */
    bool limited;
};

static bool contains(const json_t *list, const char *name)
{
    size_t i;
    const json_t *v;
    json_array_foreach(list, i, v)
    {
        if (!strcmp(json_string_value(v), name))
            return true;
    }
    return false;
}

/* A node name that a pattern says exactly. */
static bool is_node_name(const char *s)
{
    return *s && !s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_")];
}

/* Both this and what was said before must hold. */
static void allow(struct nodes *n, json_t *names)
{
    if (!n->limited) {
        n->allowed = names;
        n->limited = true;
        return;
    }
    for (size_t i = json_array_size(n->allowed); i-- > 0;)
        if (!contains(names, json_string_value(json_array_get(n->allowed, i))))
            json_array_remove(n->allowed, i);
    json_decref(names);
}

static bool check_names(struct import *m, const json_t *names, const char *path)
{
    size_t i;
    const json_t *v;
    if (!json_is_array(names) || !json_array_size(names)) {
        import_refuse(m, "%s: no list of node names", path);
        return false;
    }
    json_array_foreach(names, i, v)
    {
        if (!json_is_string(v) || !is_node_name(json_string_value(v))) {
            import_refuse(m, "%s[%zu]: no node name", path, i);
            return false;
        }
    }
    return true;
}

static bool labels(struct import *m, const json_t *o, const char *path, struct nodes *n)
{
    const char *label;
    const json_t *v;
    bool good = true;
    if (o && !json_is_object(o)) {
        import_refuse(m, "%s.matchLabels: no object", path);
        return false;
    }
    json_object_foreach((json_t *)(uintptr_t)o, label, v)
    {
        if (!is_hostname(label)) {
            import_refuse(m, "%s.matchLabels.\"%s\": a node has no labels here, only its name", path, label);
            good = false;
        } else if (!json_is_string(v) || !is_node_name(json_string_value(v))) {
            import_refuse(m, "%s.matchLabels.\"%s\": no node name", path, label);
            good = false;
        } else {
            allow(n, json_pack("[s]", json_string_value(v)));
        }
    }
    return good;
}

static bool expression(struct import *m, const json_t *x, const char *path, struct nodes *n)
{
    const char *key = json_string_value(json_object_get(x, "key")),
               *op = json_string_value(json_object_get(x, "operator"));
    const json_t *values = json_object_get(x, "values");
    char where[512];
    snprintf(where, sizeof where, "%s.values", path);
    if (!key || !op) {
        import_refuse(m, "%s: no key or no operator", path);
    } else if (!is_hostname(key)) {
        import_refuse(m, "%s: label \"%s\": a node has no labels here, only its name", path, key);
    } else if (!strcmp(op, "Exists")) {
        return true; /* every node has a name */
    } else if (strcmp(op, "In") != 0 && strcmp(op, "NotIn") != 0) {
        import_refuse(m, "%s: operator \"%s\" of the node's name", path, op);
    } else if (check_names(m, values, where)) {
        if (!strcmp(op, "In"))
            allow(n, json_deep_copy(values));
        else
            json_array_extend(n->excluded, (json_t *)(uintptr_t)values);
        return true;
    }
    return false;
}

static bool expressions(struct import *m, const json_t *list, const char *path, struct nodes *n)
{
    size_t i;
    const json_t *x;
    bool good = true;
    if (list && !json_is_array(list)) {
        import_refuse(m, "%s.matchExpressions: no list", path);
        return false;
    }
    json_array_foreach(list, i, x)
    {
        char at[512];
        snprintf(at, sizeof at, "%s.matchExpressions[%zu]", path, i);
        good &= expression(m, x, at, n);
    }
    return good;
}

static bool put_names(const json_t *names, const char *before, const json_t *but, char *out, size_t cap)
{
    size_t i, n = strlen(out);
    const json_t *v;
    json_array_foreach(names, i, v)
    {
        if (but && contains(but, json_string_value(v)))
            continue;
        n += (size_t)snprintf(out + n, cap - n, "%s%s%s", n ? " " : "", before, json_string_value(v));
        if (n >= cap)
            return false;
    }
    return true;
}

static bool write_patterns(struct import *m, const struct nodes *n, const char *path, char *out, size_t cap)
{
    out[0] = '\0';
    bool fits =
        n->limited ? put_names(n->allowed, "", n->excluded, out, cap) : put_names(n->excluded, "!", NULL, out, cap);
    if (!fits)
        import_refuse(m, "%s: too many nodes", path);
    else if (n->limited && !*out)
        import_refuse(m, "%s: its conditions contradict each other, no node can match", path);
    return fits && (!n->limited || *out);
}

bool selector_patterns(struct import *m, const json_t *selector, const char *path, char *patterns, size_t cap)
{
    static const char *const known[] = {"matchLabels", "matchExpressions", NULL};
    struct nodes n = {.excluded = json_array()};
    if (!json_is_object(selector)) {
        import_refuse(m, "%s: no object", path);
        json_decref(n.excluded);
        return false;
    }
    unsigned before = m->n_refused;
    import_only(m, selector, path, known);
    bool good = labels(m, json_object_get(selector, "matchLabels"), path, &n);
    good &= expressions(m, json_object_get(selector, "matchExpressions"), path, &n);
    good = good && m->n_refused == before && write_patterns(m, &n, path, patterns, cap);
    json_decref(n.allowed);
    json_decref(n.excluded);
    return good;
}

const json_t *affinity_of(const struct import *m, const char *klass, size_t *index)
{
    const json_t *list = json_object_get(m->doc, "loadAffinity"), *x;
    size_t i;
    json_array_foreach(list, i, x)
    {
        const char *of = json_string_value(json_object_get(x, "storageClass"));
        if (klass ? of && !strcmp(of, klass) : !of || !*of) {
            *index = i;
            return x;
        }
    }
    return NULL;
}

void import_affinity(struct import *m, const char *klass)
{
    static const char *const known[] = {"nodeSelector", "storageClass", NULL};
    char path[128], inner[160], patterns[4096];
    size_t i;
    const json_t *x = affinity_of(m, klass, &i);
    if (!x)
        return;
    snprintf(path, sizeof path, "loadAffinity[%zu]", i);
    snprintf(inner, sizeof inner, "%s.nodeSelector", path);
    import_only(m, x, path, known);
    if (!selector_patterns(m, json_object_get(x, "nodeSelector"), inner, patterns, sizeof patterns))
        return;
    if (!*patterns) {
        import_comment(m, "%s: any node", path);
        return;
    }
    import_comment(m, "%s", path);
    import_value(m, inner, "only-on-node", patterns);
}
