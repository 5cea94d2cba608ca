/* SPDX-License-Identifier: GPL-2.0-or-later */
/* labels.c - see labels.h */
#include "daemon/cli/labels.h"

#include <stdarg.h>

void print_label(const char *name)
{
    printf("%s%-*s%s", tint_on(TINT_DIM), LABEL_WIDTH, name, tint_off(TINT_DIM));
}

void print_line(const char *name, const char *fmt, ...)
{
    char text[4600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    print_label(name);
    print_paragraph(stdout, text, LABEL_WIDTH, LABEL_WIDTH);
}
