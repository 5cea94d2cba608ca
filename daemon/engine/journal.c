/* SPDX-License-Identifier: GPL-2.0-or-later */
/* engine-journal.c - what the journal says of an operation or a run: whose it is, and one line when it has ended */
#include "base/bytes.h"
#include "daemon/engine/engine-impl.h"

#include <stdio.h>
#include <string.h>

const char *rec_label(const struct rec *r)
{
    static char text[2][2048]; /* two in one line */
    static unsigned which;
    const char *volume = jstr(jobj(r->doc, "volume"), "name");
    char *ret = text[which++ % 2];
    snprintf(ret, sizeof text[0], volume[0] ? "%s (%s)" : "%s", r->id, volume);
    return ret;
}

/* "2.3 s", "4 min 10 s", "3 h 20 min" */
static void put_time(char *out, size_t cap, int64_t ns)
{
    const int64_t s = ns > 0 ? ns / NS_PER_S : 0;
    if (s < 60)
        snprintf(out, cap, "%.1f s", ns > 0 ? (double)ns / 1e9 : 0.0);
    else if (s < 3600)
        snprintf(out, cap, "%lld min %lld s", (long long)(s / 60), (long long)(s % 60));
    else
        snprintf(out, cap, "%lld h %lld min", (long long)(s / 3600), (long long)(s / 60 % 60));
}

/* ", 12.0 GiB, 234.0 MiB new": of a backup also what was not in the repository before. */
static void put_amount(char *out, size_t cap, int64_t total, int64_t fresh, bool restore)
{
    char all[32], new[32];
    out[0] = '\0';
    if (total <= 0)
        return;
    amount_text((uint64_t)total, all, sizeof all);
    amount_text((uint64_t)(fresh > 0 ? fresh : 0), new, sizeof new);
    snprintf(out, cap, restore ? ", %s" : ", %s, %s new", all, new);
}

void journal_operation(const struct rec *op)
{
    const json_t *result = jobj(op->doc, "result");
    char amount[80] = "", took[40];
    const bool good = !strcmp(op->state, "Completed");
    if (good)
        put_amount(amount, sizeof amount, jint(result, "totalBytes"), jint(result, "incrementalBytes"),
                   operation_is_restore(op));
    put_time(took, sizeof took, now_ns() - op->created_ns);
    log_info("%s: %s%s, %s%s", rec_label(op), op->state, amount, took,
             good && jbool(op->doc, "degraded") ? ", with something missing: `snapferry describe` tells what" : "");
}

/* "; not vg0/db1, vg0/db2 and 3 more" */
static void put_names(char *out, size_t cap, const json_t *names)
{
    const size_t n = json_array_size(names), most = 3;
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < n && i < most && len < cap; i++)
        len += (size_t)snprintf(out + len, cap - len, "%s%s", i ? ", " : "; not ",
                                json_string_value(json_array_get(names, i)));
    if (n > most && len < cap)
        snprintf(out + len, cap - len, " and %zu more", n - most);
}

void journal_run(const struct rec *b)
{
    const json_t *counts = jobj(b->doc, "counts"), *bytes = jobj(b->doc, "bytes");
    char amount[80], took[40], names[700];
    put_amount(amount, sizeof amount, jint(bytes, "total"), jint(bytes, "incremental"),
               !strcmp(jstr(b->doc, "kind"), "restore"));
    put_time(took, sizeof took, jint(b->doc, "completed_ns") - b->created_ns);
    put_names(names, sizeof names, jarr(b->doc, "failed_volumes"));
    log_line(!strcmp(b->state, "Completed") || !strcmp(b->state, "Canceled") ? LOG_LVL_INFO : LOG_LVL_WARNING,
             "%s: %s: %lld of %lld volumes%s, %s%s", b->id, b->state, (long long)jint(counts, "completed"),
             (long long)jint(counts, "attempted"), amount, took, names);
}
