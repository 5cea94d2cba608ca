#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What Ceph's command rbd cannot do, by its libraries:

rbd.py CONFIG pools NAME...                      makes pools
rbd.py CONFIG mon JSON                           a command for the monitors; prints their answer
rbd.py CONFIG io POOL/IMAGE w:START:LENGTH...    writes random bytes; d: discards
rbd.py CONFIG put POOL/IMAGE START               writes the standard input
rbd.py CONFIG hold POOL/IMAGE FILE               writes a block each 10 ms as one client, as a virtual machine does, with
                                                 a number in it; appends the last number that is stored to FILE
rbd.py CONFIG watch POOL/IMAGE N FILE            has it open N times until it is killed; makes FILE then
rbd.py CONFIG meta POOL/IMAGE KEY VALUE          sets metadata; KEY*N: KEY followed by N times its last character
"""
import ctypes
import os
import sys
import time

rados, rbd = ctypes.CDLL("librados.so.2"), ctypes.CDLL("librbd.so.1")
rbd.rbd_write.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_char_p]
rbd.rbd_discard.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64]


def must(rc):
    if rc < 0:
        sys.exit(os.strerror(-rc))
    return rc


cluster = ctypes.c_void_p()
must(rados.rados_create2(ctypes.byref(cluster), b"ceph", b"client.admin", ctypes.c_uint64(0)))
must(rados.rados_conf_read_file(cluster, sys.argv[1].encode()))
must(rados.rados_connect(cluster))
verb, words = sys.argv[2], sys.argv[3:]
if verb == "pools":
    for name in words:
        must(rados.rados_pool_create(cluster, name.encode()))
    sys.exit(0)
if verb == "mon":
    command = (ctypes.c_char_p * 1)(words[0].encode())
    out, status = ctypes.c_char_p(), ctypes.c_char_p()
    n, m = ctypes.c_size_t(), ctypes.c_size_t()
    rc = rados.rados_mon_command(cluster, command, ctypes.c_size_t(1), None, ctypes.c_size_t(0), ctypes.byref(out),
                                 ctypes.byref(n), ctypes.byref(status), ctypes.byref(m))
    print(ctypes.string_at(out, n.value).decode())
    if rc < 0:
        sys.exit(ctypes.string_at(status, m.value).decode())
    sys.exit(0)
pool, _, rest = words[0].partition("/")
space, _, name = rest.rpartition("/")
io, image = ctypes.c_void_p(), ctypes.c_void_p()
must(rados.rados_ioctx_create(cluster, pool.encode(), ctypes.byref(io)))
rados.rados_ioctx_set_namespace(io, space.encode())
must(rbd.rbd_open(io, name.encode(), ctypes.byref(image), None))
if verb == "io":
    for word in words[1:]:
        what, start, length = word.split(":")
        start, length = int(start), int(length)
        if what == "w":
            must(rbd.rbd_write(image, start, length, os.urandom(length)))
        else:
            must(rbd.rbd_discard(image, start, length))
    must(rbd.rbd_flush(image))
elif verb == "put":
    data = sys.stdin.buffer.read()
    must(rbd.rbd_write(image, int(words[1]), len(data), data))
    must(rbd.rbd_flush(image))
elif verb == "watch":
    for _ in range(int(words[1]) - 1):
        must(rbd.rbd_open(io, name.encode(), ctypes.byref(ctypes.c_void_p()), None))
    with open(words[2], "w", encoding="ascii") as out:
        out.write("open")
    time.sleep(600)
elif verb == "meta":
    key, _, times = words[1].partition("*")
    must(rbd.rbd_metadata_set(image, (key + key[-1] * int(times or 0)).encode(), words[2].encode()))
else:
    number = 0
    with open(words[1], "w", encoding="ascii") as out:
        while True:
            number += 1
            must(rbd.rbd_write(image, number % 64 * 65536, 8, number.to_bytes(8, "little")))
            must(rbd.rbd_flush(image))
            print(number, file=out, flush=True)
            time.sleep(0.01)
must(rbd.rbd_close(image))
rados.rados_shutdown(cluster)
