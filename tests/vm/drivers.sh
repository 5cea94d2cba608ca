#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The end of `make test-vm`: which drivers were covered in virtual machines, from the reports that tests/run.sh has
# left. If all tests were to run, each driver that needs the kernel must be among them. The others run without one.
# usage: tests/vm/drivers.sh REPORT TEST...
set -euo pipefail
report=$1 own=$(dirname "$0") wanted=(device lvm lvm-thin rbd reflink zfs) missing=()
shift
# covered DRIVER: how many cases have passed in the tests given that have a storage class of it, or call it.
covered() {
    local t n=0
    for t in "${tests[@]}"; do
        grep -qE "(^|[ '])(driver = |DRIVER=)$1(\$|[ '\\\\])" "$t" || continue
        n=$((n + $(grep -c '^passed' "$report/tests/${t##*tests/}" 2>/dev/null || true)))
    done
    echo $n
}
tests=("$@")
all=("$own"/[0-9]*.sh)
echo "drivers covered in virtual machines, with the cases that have passed in tests of each:"
for driver in "${wanted[@]}"; do
    n=$(covered "$driver")
    echo "  $driver: $n"
    [ "$n" -gt 0 ] || missing+=("$driver")
done
echo "  nbd, qemu, and rbd without the kernel: by make test, on real servers"
if [ ${#tests[@]} -ge ${#all[@]} ] && [ ${#missing[@]} -gt 0 ]; then
    echo "left out: ${missing[*]}" >&2
    exit 1
fi
