/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * plugin-answer.h - validated members of a plugin's answer
 *
 * Each reader refuses wrong types, negative numbers, control characters, text that is too long, and names the member.
 * Unknown members are ignored, so that a newer plugin can add some.
 */
#ifndef SNAPFERRY_PROC_PLUGIN_ANSWER_H
#define SNAPFERRY_PROC_PLUGIN_ANSWER_H

#include "proc/plugin-call.h"

/* An object in an answer; `at` is its path for messages: "", "snapshot.tag.". Borrowed. */
struct answer {
    const struct plugin_program *p;
    enum plugin_verb verb;
    const json_t *o;
    const char *at;
};

enum answer_flags {
    ANSWER_REQUIRED = 1 << 0, /* must be there, and not be "" */
    ANSWER_ID = 1 << 1,       /* [A-Za-z0-9._:-] only */
    ANSWER_ALIAS = 1 << 2,    /* a UUID in lower case */
    ANSWER_PATH = 1 << 3      /* absolute, without empty, "." and ".." components */
};

/* Missing optional members leave *ret unchanged (text: ""). */
int answer_text(const struct answer *a, const char *key, unsigned flags, char *ret, size_t cap, struct err *e);
int answer_u64(const struct answer *a, const char *key, unsigned flags, uint64_t *ret, struct err *e);
int answer_bool(const struct answer *a, const char *key, unsigned flags, bool *ret, struct err *e);
/* 0..1 */
int answer_ratio(const struct answer *a, const char *key, unsigned flags, double *ret, struct err *e);
/* An object; `into->at` becomes `at`. */
int answer_object(const struct answer *a, const char *key, const char *at, struct answer *into, struct err *e);

/* Absolute and normalized, so that paths can be compared as text. */
bool answer_is_path(const char *s);

#endif
