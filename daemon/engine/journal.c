/* SPDX-License-Identifier: GPL-2.0-or-later */
/* engine-journal.c - what the journal says of an operation or a run: whose it is, and one line when it has ended */
#include "base/bytes.h"
#include "daemon/engine/engine-impl.h"

#include <stdio.h>
#include <string.h>

const char *operation_label(const struct operation *op)
{
    static char text[2][2048]; /* two in one line */
    static unsigned which;
    char *ret = text[which++ % 2];
    snprintf(ret, sizeof text[0], op->volume->name[0] ? "%s (%s)" : "%s", op->id, op->volume->name);
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

void journal_operation(const struct operation *op)
{
    const json_t *result = op->result;
    char amount[80] = "", took[40];
    const bool good = op->state == OP_COMPLETED;
    if (good)
        put_amount(amount, sizeof amount, jint(result, "totalBytes"), jint(result, "incrementalBytes"),
                   operation_is_restore(op));
    put_time(took, sizeof took, now_ns() - op->created_ns);
    log_info("%s: %s%s, %s%s", operation_label(op), op_state_name(op->state), amount, took,
             good && op->degraded ? ", with something missing: `snapferry describe` tells what" : "");
}

/* "; not vg0/db1, vg0/db2 and 3 more" */
static void put_names(char *out, size_t cap, const struct strs *names)
{
    const unsigned most = 3;
    size_t len = 0;
    out[0] = '\0';
    for (unsigned i = 0; i < names->n && i < most && len < cap; i++)
        len += (size_t)snprintf(out + len, cap - len, "%s%s", i ? ", " : "; not ", names->v[i]);
    if (names->n > most && len < cap)
        snprintf(out + len, cap - len, " and %u more", names->n - most);
}

void journal_run(const struct backup *b)
{
    char amount[80], took[40], names[700];
    put_amount(amount, sizeof amount, b->bytes.total, b->bytes.incremental, b->kind == KIND_RESTORE);
    put_time(took, sizeof took, b->completed_ns - b->created_ns);
    put_names(names, sizeof names, &b->failed_volumes);
    log_line(b->state == BACKUP_COMPLETED || b->state == BACKUP_CANCELED ? LOG_LVL_INFO : LOG_LVL_WARNING,
             "%s: %s: %lld of %lld volumes%s, %s%s", b->id, backup_state_name(b->state), (long long)b->counts.completed,
             (long long)b->counts.attempted, amount, took, names);
}
