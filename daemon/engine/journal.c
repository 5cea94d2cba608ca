/* SPDX-License-Identifier: GPL-2.0-or-later */
/* journal.c - what the journal says of an operation or a run: whose it is, and one line when it has ended */
#include "base/bytes.h"
#include "base/units.h"
#include "daemon/engine/engine-impl.h"

#include <stdio.h>
#include <string.h>

/* ", 12.0 GiB, 234.0 MiB new": of a backup also what was not in the repository before. */
static void put_amount(char *out, size_t cap, int64_t total, int64_t fresh, bool restore)
{
    char all[32], new[32];
    out[0] = '\0';
    if (total <= 0)
        return;
    amount_text((double)total, all, sizeof all);
    amount_text(fresh > 0 ? (double)fresh : 0, new, sizeof new);
    snprintf(out, cap, restore ? ", %s" : ", %s, %s new", all, new);
}

void journal_operation(const struct operation *op)
{
    char amount[80] = "", took[40];
    const bool good = op->state == OP_COMPLETED;
    if (good)
        put_amount(amount, sizeof amount, result_bytes(op->result.total), result_bytes(op->result.incremental),
                   operation_is_restore(op));
    span_text((double)(now_ns() - op->created_ns - op->clock_ns) / 1e9, took, sizeof took);
    log_info("%s: %s%s, %s%s", operation_label(op), op_state_name(op->state), amount, took,
             good && op->degraded ? ", incomplete: `snapferry describe` shows what is missing" : "");
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
    span_text((double)(b->completed_ns - b->created_ns - b->clock_ns) / 1e9, took, sizeof took);
    put_names(names, sizeof names, &b->failed_volumes);
    log_line(b->state == BACKUP_COMPLETED || b->state == BACKUP_CANCELED ? LOG_LVL_INFO : LOG_LVL_WARNING,
             "%s: %s: %lld of %lld volume%s%s, %s%s", b->id, backup_state_name(b->state),
             (long long)b->counts.completed, (long long)b->counts.attempted, plural((uint64_t)b->counts.attempted),
             amount, took, names);
}
