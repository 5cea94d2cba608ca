# SPDX-License-Identifier: GPL-2.0-or-later
# own-mounts.sh - sourced first, with the script's arguments, by a test whose mounts are its own: it goes on in a mount
# namespace where others are not, nor does it hold copies of theirs. A copy keeps a file system in use after it was
# unmounted: its loop device stays, and xfs mounts no other device with its UUID.
if [ -z "${OWN_MOUNTS-}" ] && unshare -m true 2>/dev/null; then
    OWN_MOUNTS=1 exec unshare -m --propagation private "$0" "$@"
fi
if [ -n "${OWN_MOUNTS-}" ]; then
    for at in $(awk '$2 ~ "/snapferry-(test|demo|demo-s3)\\." { print $2 }' /proc/self/mounts | tac); do
        umount -l "$at" 2>/dev/null
    done
fi
