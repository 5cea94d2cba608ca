/* SPDX-License-Identifier: GPL-2.0-or-later */
/* repository.c - the part of a mover's result about the repository: the daemon never opens it, and counts what
 * movers report */
#include "daemon/mover/agent/agent.h"

static json_t *request_json(const struct blob_request_stats *s, unsigned q)
{
    json_t *codes = json_object(), *counts = json_array();
    for (unsigned i = 0; i < BLOB_CODES; i++)
        if (s->of[q].codes[i])
            json_object_set_new(codes, blob_code_names[i], json_integer((json_int_t)s->of[q].codes[i]));
    for (unsigned i = 0; i <= BLOB_BOUNDS; i++)
        json_array_append_new(counts, json_integer((json_int_t)s->of[q].took[i]));
    return json_pack("{s:o, s:f, s:o}", "codes", codes, "seconds", (double)s->of[q].ns * 1e-9, "counts", counts);
}

void repository_result(json_t *result, struct repo *r)
{
    struct blob_request_stats s;
    struct blob_stats b;
    struct index_set_stats x;
    int64_t skew_ns;
    json_t *requests = json_object();
    blobs_request_stats(repo_blobs(r), &s);
    blobs_stats(repo_blobs(r), &b);
    index_set_stats(repo_index(r), &x);
    for (unsigned q = 0; q < BLOB_REQUESTS; q++)
        json_object_set_new(requests, blob_request_names[q], request_json(&s, q));
    json_t *o = json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:I}", "requests", requests, "retries", (json_int_t)s.retries,
                          "uploadedBytes", (json_int_t)b.put_bytes, "downloadedBytes", (json_int_t)b.get_bytes,
                          "contents", (json_int_t)x.entries, "indexBlobs", (json_int_t)x.blobs, "indexCacheBytes",
                          (json_int_t)x.mapped_bytes);
    if (repo_clock_skew(r, &skew_ns))
        json_object_set_new(o, "clockSkewSeconds", json_real((double)skew_ns * 1e-9));
    /* Only a verification reads the whole index. */
    if (json_is_integer(json_object_get(result, "indexBytes")))
        json_object_set(o, "storedBytes", json_object_get(result, "indexBytes"));
    json_object_set_new(result, "repository", o);
}
