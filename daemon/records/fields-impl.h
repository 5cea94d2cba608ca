/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fields-impl.h - what loading and storing share */
#ifndef SNAPFERRY_DAEMON_RECORDS_FIELDS_IMPL_H
#define SNAPFERRY_DAEMON_RECORDS_FIELDS_IMPL_H

#include "daemon/records/fields.h"

/* NULL: the table has none of that name. */
const struct field_desc *field_find(const struct fields *t, const char *name);
/* Whether the field of `s` differs from its unset value. */
bool field_is_set(const struct field_desc *f, const void *s);

#endif
