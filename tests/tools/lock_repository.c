/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lock_repository - makes a repository want object locks, as `kopia repository set-parameters --retention-mode` and
 * `kopia maintenance set --extend-object-locks` do
 *
 *   lock_repository REPO PASSWORD-FILE MODE HOURS
 */
#include "base/password.h"
#include "base/time.h"
#include "repo/format-parse.h"
#include "repo/manifest.h"
#include "repo/repo.h"

#include <inttypes.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Noreturn void die(const struct err *e)
{
    fprintf(stderr, "lock_repository: %s\n", e->msg);
    exit(1);
}

static int drop_old(const struct manifest *m, void *arg)
{
    struct err e = ERR_INIT;
    return manifest_batch_delete(arg, m->id, &e);
}

int main(int argc, char **argv)
{
    struct err e = ERR_INIT;
    struct blobs *b;
    struct repo *r;
    char *password, doc[200];
    if (argc != 5)
        return 2;
    if (password_read(&password, argv[2], false, &e) < 0 || blobs_open_dir(&b, argv[1], BLOBS_OPEN, NULL, 0, &e) < 0 ||
        repo_open(&r, b, password, &(struct repo_opts){0}, &e) < 0)
        die(&e);
    const struct repo_format *f = repo_format(r);
    snprintf(doc, sizeof doc, "{\"retentionMode\":\"%s\",\"retentionPeriod\":%" PRId64 "}", argv[3],
             (int64_t)atoll(argv[4]) * NS_PER_H);
    uint8_t sealed[sizeof doc + FORMAT_LAYER_OVERHEAD];
    if (format_layer_seal(f->format_key, f->unique_id, f->unique_id_len, doc, strlen(doc), sealed, &e) < 0 ||
        blobs_put(b, "kopia.blobcfg", sealed, strlen(doc) + FORMAT_LAYER_OVERHEAD, &e) < 0)
        die(&e);
    struct manifest_batch *batch;
    struct session *s;
    struct put_scratch *p;
    json_t *labels = json_pack("{s:s}", "type", "maintenance");
    json_t *params = json_pack("{s:s, s:{s:b, s:I}, s:b}", "owner", "snapferry-maintenance@n1", "full", "enabled", 1,
                               "interval", (json_int_t)NS_PER_DAY, "extendObjectLocks", 1);
    if (manifest_batch_new(&batch, &e) < 0 || manifests_each(r, "maintenance", drop_old, batch, &e) < 0 ||
        manifest_batch_add(batch, labels, params, NULL, &e) < 0 || session_new(&s, r, NULL, &e) < 0 ||
        put_scratch_new(&p, r, 0, (size_t)1 << 20, &e) < 0 || manifest_batch_put(batch, s, p, &e) < 0 ||
        session_flush(s, &e) < 0)
        die(&e);
    json_decref(labels);
    json_decref(params);
    manifest_batch_free(batch);
    put_scratch_free(p);
    session_free(s);
    repo_free(r);
    password_free(password);
    return 0;
}
