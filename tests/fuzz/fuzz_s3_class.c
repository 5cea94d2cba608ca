/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fuzz_s3_class.c - a document of storage classes (.storageconfig): the first line is the name of a blob, the rest the
 * document. Whatever it is, a class is a part of a header, nothing that must be readable gets into an archive, and one
 * that is refused changes nothing. */
#include "tests/fuzz/fuzz.h"

#include "repo/s3-class.h"

#include <string.h>
#include <strings.h>

static const char base[] = "{\"blobOptions\": [{\"prefix\": \"p\", \"storageClass\": \"BASE\"}]}";
static const char *const readable[] = {
    "q1",     "q0123456789abcdef-s1", "xn0_1", "xs1_1", "xe1", "n1", "kopia.repository", "kopia.blobcfg",
    "_log_1", "_snapferry.copy",      "s1",    "m1",    "l1"};

static void check_class(const struct s3_classes *c, const char *blob)
{
    const char *class = s3_classes_find(c, blob);
    MUST(strlen(class) <= S3_CLASS_MAX);
    for (; *class; class ++)
        MUST(strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.", *class));
}

static void check_readable(const struct s3_classes *c)
{
    for (size_t i = 0; i < sizeof readable / sizeof *readable; i++) {
        const char *class = s3_classes_find(c, readable[i]);
        check_class(c, readable[i]);
        MUST(strcasecmp(class, "GLACIER") != 0 && strcasecmp(class, "DEEP_ARCHIVE") != 0);
    }
}

static void check_refused(const struct s3_classes *c, const struct err *e)
{
    MUST(e->cls == ERR_USAGE && e->msg[0] && e->hint[0]);
    for (const char *m = e->msg; *m; m++)
        MUST(*m >= ' ' && *m <= '~');
    MUST(!strcmp(s3_classes_find(c, "p1"), "BASE") && !strcmp(s3_classes_find(c, "q1"), ""));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    const uint8_t *line = len ? memchr(data, '\n', len) : NULL;
    char blob[300] = "", first[S3_CLASS_MAX + 1];
    struct err e = ERR_INIT;
    if (!line || (size_t)(line - data) >= sizeof blob)
        return 0;
    memcpy(blob, data, (size_t)(line - data));
    const void *text = line + 1;
    len -= (size_t)(line + 1 - data);
    struct s3_classes *c = s3_classes_new(&e);
    MUST(c && s3_classes_parse(c, base, sizeof base - 1, "the base", &e) == 0);
    if (s3_classes_parse(c, text, len, "s3://b/nas/", &e) < 0) {
        check_refused(c, &e);
    } else {
        check_readable(c);
        check_class(c, blob);
        snprintf(first, sizeof first, "%s", s3_classes_find(c, blob));
        MUST(s3_classes_parse(c, text, len, "s3://b/nas/", &e) == 0 && !strcmp(s3_classes_find(c, blob), first));
    }
    s3_classes_free(c);
    return 0;
}
