/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * replay.c - runs a fuzz target over files instead of under libFuzzer, so that every corpus is a plain test
 *
 * usage: PROGRAM [FILE|DIRECTORY]...   default: tests/fuzz/corpus/PROGRAM (the program's file name). Speaks TAP, one
 * line per file; a crash ends it with the name of the file on the last line of stderr.
 */
#include "tests/fuzz/fuzz.h"

#include "base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define INPUT_MAX (16 << 20)

static unsigned n_run, n_failed;

static void run_file(const char *path)
{
    CLEANUP_FCLOSE FILE *f = fopen(path, "re");
    CLEANUP_FREE uint8_t *data = malloc(INPUT_MAX);
    if (!f || !data) {
        printf("not ok %u - %s: %s\n", ++n_run, path, strerror(errno));
        n_failed++;
        return;
    }
    size_t len = fread(data, 1, INPUT_MAX, f);
    CLEANUP_FREE uint8_t *exact = malloc(len ? len : 1); /* reads beyond the input become visible to ASan */
    if (ferror(f) || !exact) {
        printf("not ok %u - %s: cannot be read\n", ++n_run, path);
        n_failed++;
        return;
    }
    memcpy(exact, data, len);
    fprintf(stderr, "# %s\n", path);
    LLVMFuzzerTestOneInput(exact, len);
    printf("ok %u - %s\n", ++n_run, path);
}

static int is_shown(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

static void run_path(const char *path)
{
    struct stat st;
    if (stat(path, &st) || !S_ISDIR(st.st_mode)) {
        run_file(path);
        return;
    }
    struct dirent **list;
    int n = scandir(path, &list, is_shown, alphasort);
    for (int i = 0; i < n; i++) {
        char file[8192];
        snprintf(file, sizeof file, "%s/%s", path, list[i]->d_name);
        run_file(file);
        free(list[i]);
    }
    if (n >= 0)
        free(list);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++)
        run_path(argv[i]);
    if (argc == 1) {
        char dir[4096];
        const char *slash = strrchr(argv[0], '/');
        snprintf(dir, sizeof dir, "tests/fuzz/corpus/%s", slash ? slash + 1 : argv[0]);
        run_path(dir);
    }
    printf("1..%u\n", n_run);
    if (!n_run)
        fprintf(stderr, "no input found: run it in the project's top directory, or name files\n");
    return n_failed || !n_run;
}
