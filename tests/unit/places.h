/* SPDX-License-Identifier: GPL-2.0-or-later */
/* places.h - what a driver lists, as text: the names of volumes, and the places on which it has looked for them */
#ifndef SNAPFERRY_TESTS_UNIT_PLACES_H
#define SNAPFERRY_TESTS_UNIT_PLACES_H

#include "io/native/driver.h"

#include <stdio.h>
#include <string.h>

#define PLACES_TEXT 600

static int note_place(const struct volume *v, void *arg)
{
    char *out = arg;
    const size_t n = strlen(out);
    snprintf(out + n, PLACES_TEXT - n, "%s%s%s", n ? " " : "", v->id[0] ? v->name : "place:", v->id[0] ? "" : v->pool);
    return 0;
}

#endif
