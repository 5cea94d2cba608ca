/* SPDX-License-Identifier: GPL-2.0-or-later */
/* scanned.c - see scanned.h */
#include "daemon/records/scanned.h"

#include "base/json.h"

struct scan_answer scan_answer_read(const json_t *answer)
{
    return (struct scan_answer){.pages = jarr(answer, "pages"),
                                .next = jstr(answer, "next"),
                                .unreadable = jint(answer, "unreadable"),
                                .other = jint(answer, "other"),
                                .stale = jint(answer, "stale"),
                                .removed = jint(answer, "removed"),
                                .malformed = jint(answer, "malformed")};
}

struct scan_page scan_page_read(const json_t *page)
{
    return (struct scan_page){.snapshots = jarr(page, "snapshots"), .records = jarr(page, "records")};
}

size_t scan_page_len(const struct scan_answer *a, size_t i)
{
    const json_int_t n = json_integer_value(json_array_get(a->pages, i));
    return n > 0 ? (size_t)n : 0;
}

struct scanned_snapshot scanned_snapshot_read(const json_t *snapshot)
{
    const json_t *tags = jobj(snapshot, "tags");
    return (struct scanned_snapshot){.id = jstr(snapshot, "id"),
                                     .as = jstr(snapshot, "as"),
                                     .ended = jstr(snapshot, "endTime"),
                                     .incomplete = jstr(snapshot, "incomplete"),
                                     .backup = jstr(tags, "tag:backup"),
                                     .operation = jstr(tags, "tag:operation"),
                                     .job = jstr(tags, "tag:job"),
                                     .klass = jstr(tags, "tag:class"),
                                     .volume = jstr(tags, "tag:volume"),
                                     .volume_id = jstr(tags, "tag:volume-id"),
                                     .native = jstr(tags, "tag:native"),
                                     .size = jstr(tags, "tag:size")};
}

int64_t scanned_record_modified_ns(const json_t *record)
{
    return jint(record, "modifiedNs");
}
