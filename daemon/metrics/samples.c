/* SPDX-License-Identifier: GPL-2.0-or-later */
/* samples.c - samples with their labels, and zeros for possible ones */
#include "daemon/metrics/samples.h"

#include <stdlib.h>

static json_t *labels_of(va_list ap)
{
    const char *label;
    json_t *labels = json_object();
    while (labels && (label = va_arg(ap, const char *)))
        jset_str(labels, label, va_arg(ap, const char *));
    return labels;
}

void sample_append(struct samples *s, const char *name, json_t *labels, double value)
{
    json_t *o = json_object();
    json_object_set_new(o, "name", json_string(name));
    if (json_object_size(labels))
        json_object_set(o, "labels", labels);
    json_object_set_new(o, "value", json_real(value));
    json_array_append_new(s->list, o);
}

void sample(struct samples *s, const char *name, double value, ...)
{
    va_list ap;
    va_start(ap, value);
    CLEANUP_JSON json_t *labels = labels_of(ap);
    va_end(ap);
    sample_append(s, name, labels, value);
}

char *sample_key(const char *name, const json_t *labels)
{
    char *text = json_dumps(labels, JSON_COMPACT | JSON_SORT_KEYS), *key = NULL;
    if (text && asprintf(&key, "%s%s", name, text) < 0)
        key = NULL;
    free(text);
    return key;
}

static void zero(struct samples *s, const char *name, json_t *labels)
{
    CLEANUP_FREE char *key = sample_key(name, labels);
    if (key && !json_object_get(s->seen, key))
        sample_append(s, name, labels, 0);
}

void sample_zero(struct samples *s, const char *name, ...)
{
    va_list ap;
    va_start(ap, name);
    CLEANUP_JSON json_t *labels = labels_of(ap);
    va_end(ap);
    zero(s, name, labels);
}

void sample_zero_histogram(struct samples *s, const char *name, const double *bounds, ...)
{
    char part[160], text[32];
    va_list ap;
    va_start(ap, bounds);
    CLEANUP_JSON json_t *labels = labels_of(ap);
    va_end(ap);
    snprintf(part, sizeof part, "%s_count", name);
    CLEANUP_FREE char *key = sample_key(part, labels);
    if (!key || json_object_get(s->seen, key))
        return;
    sample_append(s, part, labels, 0);
    snprintf(part, sizeof part, "%s_sum", name);
    sample_append(s, part, labels, 0);
    snprintf(part, sizeof part, "%s_bucket", name);
    for (size_t i = 0; i <= HISTOGRAM_BOUNDS; i++) {
        CLEANUP_JSON json_t *own = json_copy(labels);
        jset_str(own, "le", i < HISTOGRAM_BOUNDS ? records_bound_text(bounds[i], text) : "+Inf");
        sample_append(s, part, own, 0);
    }
}
