/* SPDX-License-Identifier: GPL-2.0-or-later */
/* cfgdir.h - a configuration directory of a test: write files, load, look for complaints */
#ifndef SNAPFERRY_TESTS_UNIT_CFGDIR_H
#define SNAPFERRY_TESTS_UNIT_CFGDIR_H

#include "tests/unit/test.h"

#include "cfg/cfg.h"

#include <sys/stat.h>

static char cfgdir[64];

static inline int cfgdir_make(void **state)
{
    (void)state;
    char sub[128];
    snprintf(cfgdir, sizeof cfgdir, "/tmp/snapferry-cfg-XXXXXX");
    if (!mkdtemp(cfgdir))
        return -1;
    snprintf(sub, sizeof sub, "%s/conf.d", cfgdir);
    return mkdir(sub, 0755);
}

static inline int cfgdir_remove(void **state)
{
    (void)state;
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf %s", cfgdir);
    return system(cmd);
}

static inline void cfgdir_write(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", cfgdir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* Loads TEXT as the main file, whatever is in conf.d; the caller frees. */
static inline struct cfg *cfgdir_load(const char *text)
{
    struct cfg *c = NULL;
    struct err e = ERR_INIT;
    cfgdir_write("snapferry.ini", text);
    int rc = cfg_load_dir(&c, cfgdir, &e);
    assert_non_null(c);
    assert_int_equal(rc<0, cfg_errors(c)> 0);
    if (rc < 0)
        assert_int_equal(e.cls, ERR_USAGE);
    return c;
}

/* Whether there is a complaint of that severity at "file:line" (the file's name in the directory) that says `words`. */
static inline bool complains(const struct cfg *c, enum cfg_severity s, const char *where, const char *words)
{
    const struct cfg_complaint *x;
    char full[256];
    snprintf(full, sizeof full, "%s/%s", cfgdir, where);
    for (unsigned i = 0; (x = cfg_complaint_at(c, i)); i++)
        if (x->severity == s && !strcmp(x->where, full) && strstr(x->text, words))
            return true;
    return false;
}

static inline unsigned complaints(const struct cfg *c)
{
    unsigned n = 0;
    while (cfg_complaint_at(c, n))
        n++;
    return n;
}

static inline void show_complaints(const struct cfg *c)
{
    const struct cfg_complaint *x;
    for (unsigned i = 0; (x = cfg_complaint_at(c, i)); i++)
        fprintf(stderr, "# %s %s: %s\n", x->severity == CFG_ERROR ? "error" : "warning", x->where, x->text);
}

#define assert_complains(c, severity, where, words)                                                                    \
    do {                                                                                                               \
        if (!complains(c, severity, where, words)) {                                                                   \
            show_complaints(c);                                                                                        \
            fail_msg("no complaint at %s that says: %s", where, words);                                                \
        }                                                                                                              \
    } while (0)

/* Loads and must find exactly one error, there. */
static inline void one_error(const char *text, const char *where, const char *words)
{
    struct cfg *c = cfgdir_load(text);
    assert_complains(c, CFG_ERROR, where, words);
    if (cfg_errors(c) != 1) {
        show_complaints(c);
        fail_msg("%u errors, not one", cfg_errors(c));
    }
    cfg_free(c);
}

/* Loads and must find no error; returns it. */
static inline struct cfg *no_error(const char *text)
{
    struct cfg *c = cfgdir_load(text);
    if (cfg_errors(c)) {
        show_complaints(c);
        fail_msg("%u errors", cfg_errors(c));
    }
    return c;
}

#endif
