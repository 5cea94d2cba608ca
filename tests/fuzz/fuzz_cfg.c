/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fuzz_cfg.c - byte 0: even: the rest is snapferry.ini; odd: the rest is a node-agent ConfigMap to import. What an
 * import gives is a file that the reader takes. */
#include "tests/fuzz/fuzz.h"

#include "cfg/cfg.h"
#include "daemon/import/velero.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *directory(void)
{
    static char dir[64];
    if (!*dir) {
        snprintf(dir, sizeof dir, "/tmp/snapferry-fuzz-cfg-XXXXXX");
        MUST(mkdtemp(dir));
    }
    return dir;
}

static void remove_directory(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/snapferry.ini", directory());
    unlink(path);
    rmdir(directory());
}

static void write_ini(const void *data, size_t len)
{
    static int registered;
    char path[128];
    if (!registered++)
        atexit(remove_directory);
    snprintf(path, sizeof path, "%s/snapferry.ini", directory());
    FILE *f = fopen(path, "w");
    MUST(f);
    MUST(fwrite(data, 1, len, f) == len);
    MUST(fclose(f) == 0);
}

/* Whatever it says, all of it can be asked for. */
static void use(const struct cfg *c)
{
    static const char *const volumes[] = {"vg0/db1", "/srv/vm/a.img", ""};
    for (unsigned i = 0; i < 3; i++) {
        struct cfg_policy p;
        MUST(cfg_policy(c, cfg_named(volumes[i]), "nightly", &p, NULL) == 0);
        MUST(cfg_policy_size(c, &p, cfg_named(volumes[i]), 1 << 30, NULL) == 0);
        json_t *j = cfg_policy_json(&p);
        MUST(j && json_object_size(j) > 50);
        json_decref(j);
        cfg_policy_clear(&p);
    }
    json_t *j = cfg_json(c);
    MUST(j);
    const unsigned n = (unsigned)json_array_size(json_object_get(j, "complaints"));
    MUST((!n || cfg_complaint_at(c, n - 1)) && !cfg_complaint_at(c, n));
    json_decref(j);
    for (unsigned i = 0; cfg_job_at(c, i); i++)
        cfg_job_has(c, cfg_job_at(c, i), cfg_named("/srv/vm/a.img"));
}

static void load(const void *data, size_t len, int must_parse)
{
    struct cfg *c = NULL;
    struct err e = ERR_INIT;
    write_ini(data, len);
    int rc = cfg_load_dir(&c, directory(), &e);
    MUST(c);
    MUST((rc < 0) == (cfg_errors(c) > 0));
    MUST(rc == 0 || e.msg[0]);
    use(c);
    const struct cfg_complaint *x;
    for (unsigned i = 0; (x = cfg_complaint_at(c, i)); i++) {
        MUST(x->text[0]);
        /* Drivers are what an import leaves to people. */
        MUST(!must_parse || x->severity == CFG_WARNING || strstr(x->text, "has no driver") ||
             strstr(x->text, "has no volumes of its own") || strstr(x->text, "memory-max"));
    }
    cfg_free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (!len)
        return 0;
    if (!(data[0] & 1)) {
        load(data + 1, len - 1, 0);
        return 0;
    }
    char *text = malloc(len), *ini = NULL;
    MUST(text);
    memcpy(text, data + 1, len - 1);
    text[len - 1] = '\0';
    struct err e = ERR_INIT;
    if (import_velero(text, &ini, &e) == 0) {
        load(ini, strlen(ini), 1);
        free(ini);
    } else {
        MUST(e.msg[0]);
    }
    free(text);
    return 0;
}
