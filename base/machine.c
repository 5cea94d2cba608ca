/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "base/machine.h"

#include <stdbool.h>

#include <systemd/sd-id128.h>

static const sd_id128_t machine_key = SD_ID128_MAKE(5b, 1d, 0c, 5e, 3a, 7f, 4e, 3b, 9b, 0a, 6e, 62, 41, 95, c8, d7);

const char *machine_text(void)
{
    static char text[SD_ID128_STRING_MAX];
    static bool asked;
    sd_id128_t id;
    _Static_assert(sizeof text == MACHINE_TEXT, "an id and its NUL");
    if (!asked && sd_id128_get_machine_app_specific(machine_key, &id) >= 0)
        sd_id128_to_string(id, text);
    asked = true;
    return text;
}
