#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
# A guest that writes to several drives in turn, each time the next number (modulo 251) to the first block of each:
# qemu-counter.py SOCKET STATUS DEVICE... until it is killed; the last number that all of them have goes to STATUS.
import os
import sys

sys.dont_write_bytecode = True
from qmp import connect

path, status, devices = sys.argv[1], sys.argv[2], sys.argv[3:]
call = connect(path)
n = 0
while True:
    n += 1
    for device in devices:
        line = 'qemu-io -d %s "write -P %d 0 4k"' % (device, n % 251)
        said = call("human-monitor-command", {"command-line": line})
        if "rror" in said or "ailed" in said:
            sys.exit(said)
    with open(status + ".new", "w") as out:
        out.write("%d\n" % n)
    os.rename(status + ".new", status)
