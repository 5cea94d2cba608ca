/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * manifests - manifests of any type in a repository, for tests of records of backups and of forged ones
 *
 *   manifests REPOSITORY PASSWORD-FILE list TYPE          one {"id","labels","data"} per line
 *   manifests REPOSITORY PASSWORD-FILE add                adds {"labels","data"} of each line of standard input
 *   manifests REPOSITORY PASSWORD-FILE put                the same with {"id"}, in place of one that has it
 *   manifests REPOSITORY PASSWORD-FILE remove ID...
 *   manifests REPOSITORY PASSWORD-FILE history            no manifest: the schedule and history of maintenance
 */
#include "base/cleanup.h"
#include "base/time.h"
#include "repo/compress.h"
#include "repo/maintenance.h"
#include "repo/manifest.h"
#include "repo/repo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int print(const struct manifest *m, void *arg)
{
    (void)arg;
    CLEANUP(json_decrefp)
    json_t *v = json_pack("{s:s,s:O,s:O}", "id", m->id, "labels", m->labels, "data", m->data);
    char *text = json_dumps(v, JSON_COMPACT | JSON_SORT_KEYS);
    puts(text ? text : "");
    free(text);
    return 0;
}

static int add_lines(struct manifest_batch *b, struct err *e)
{
    char *line = NULL;
    size_t cap = 0;
    int rc = 0;
    while (rc == 0 && getline(&line, &cap, stdin) > 0) {
        json_t *v CLEANUP(json_decrefp) = json_loads(line, JSON_DECODE_ANY, NULL);
        rc = v ? manifest_batch_add(b, json_object_get(v, "labels"), json_object_get(v, "data"), NULL, e)
               : err_set(e, ERR_USAGE, 0, "no JSON: %.100s", line);
    }
    free(line);
    return rc;
}

/* What the batch never does: a manifest under an id that there was before. The later one counts. */
static int put_lines(struct session *s, struct put_scratch *p, struct err *e)
{
    char *line = NULL, now[TIME_TEXT];
    size_t cap = 0, len;
    json_t *doc CLEANUP(json_decrefp) = json_pack("{s:[]}", "entries");
    CLEANUP_FREE uint8_t *gz = NULL;
    struct content_id id;
    while (getline(&line, &cap, stdin) > 0) {
        json_t *v = json_loads(line, JSON_DECODE_ANY, NULL);
        json_object_set_new(v, "modified", json_string(time_text(now_ns(), now)));
        json_array_append_new(json_object_get(doc, "entries"), v);
    }
    free(line);
    CLEANUP_FREE char *text = json_go_text(doc, true, &len);
    const int64_t n = text ? gzip_compress(text, len, &gz, e) : err_nomem(e);
    return n < 0 ? (int)n : session_put_bytes(s, p, MANIFEST_PREFIX, gz, (size_t)n, 0, &id, e);
}

/* NULL: what standard input has, under the ids that it has. */
static int commit(struct repo *r, struct manifest_batch *b, struct err *e)
{
    CLEANUP(session_freep) struct session *s = NULL;
    CLEANUP(put_scratch_freep) struct put_scratch *p = NULL;
    int rc = session_new(&s, r, NULL, e);
    if (rc == 0)
        rc = put_scratch_new(&p, r, 0, 64u << 20, e);
    if (rc == 0)
        rc = b ? manifest_batch_put(b, s, p, e) : put_lines(s, p, e);
    return rc == 0 ? session_flush(s, e) : rc;
}

static int print_history(struct repo *r, struct err *e)
{
    struct maintenance_schedule s;
    const int rc = maintenance_load(r, &s, e);
    if (rc < 0)
        return rc;
    CLEANUP_FREE char *text = json_dumps(s.doc, JSON_COMPACT | JSON_SORT_KEYS);
    puts(text ? text : "");
    maintenance_clear(&s);
    return 0;
}

static int run(struct repo *r, int argc, char **argv, struct err *e)
{
    CLEANUP(manifest_batch_freep) struct manifest_batch *b = NULL;
    if (!strcmp(argv[0], "list") && argc == 2)
        return manifests_each(r, argv[1], print, NULL, e);
    if (!strcmp(argv[0], "history") && argc == 1)
        return print_history(r, e);
    if (!strcmp(argv[0], "put") && argc == 1)
        return commit(r, NULL, e);
    int rc = manifest_batch_new(&b, e);
    if (rc == 0 && !strcmp(argv[0], "add"))
        rc = add_lines(b, e);
    else
        for (int i = 1; i < argc && rc == 0; i++)
            rc = manifest_batch_delete(b, argv[i], e);
    return rc == 0 ? commit(r, b, e) : rc;
}

int main(int argc, char **argv)
{
    struct err e = ERR_INIT;
    struct blobs *blobs = NULL;
    CLEANUP(repo_freep) struct repo *r = NULL;
    char password[256] = "";
    FILE *f = argc > 3 ? fopen(argv[2], "r") : NULL;
    if (!f || !fgets(password, sizeof password, f))
        return 2;
    fclose(f);
    password[strcspn(password, "\n")] = '\0';
    int rc = blobs_open_dir(&blobs, argv[1], BLOBS_OPEN, NULL, 0, &e);
    if (rc == 0)
        rc = repo_open(&r, blobs, password, &(struct repo_opts){.cache_dir = getenv("CACHE")}, &e);
    if (rc == 0)
        rc = run(r, argc - 3, argv + 3, &e);
    if (rc < 0)
        fprintf(stderr, "%s\n", e.msg);
    return rc < 0;
}
