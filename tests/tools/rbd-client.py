#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A client of `snapferry-rbd serve` or `fill` that cannot be trusted, as a mover: rbd-client.py SEED SIZE PROGRAM
ARGUMENT...

Malformed options and requests must end the server or be refused, never kill it, and never bring more than was asked
for. Prints what was wrong, at last "done".
"""
import random
import socket
import struct
import subprocess
import sys

seed, size, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
rng = random.Random(seed)
OPT = 0x49484156454F5054
writable = "fill" in command


class Server:
    def __init__(self):
        self.s, theirs = socket.socketpair()
        self.s.settimeout(20)
        self.p = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        theirs.close()
        if self.p.stdout.readline() != b"ready\n":
            sys.exit("the server is not ready")
        self.get(18)
        self.s.sendall(struct.pack(">I", 3))

    def get(self, n):
        data = b""
        while len(data) < n:
            more = self.s.recv(n - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def option(self, number, data=b""):
        self.s.sendall(struct.pack(">QII", OPT, number, len(data)) + data)
        while True:
            _, _, kind, n = struct.unpack(">QIII", self.get(20))
            body = self.get(n)
            if kind == 1 or kind & 0x80000000:
                return kind, body

    def go(self):
        self.option(8)
        self.option(10, struct.pack(">III", 0, 1, 15) + b"base:allocation")
        return self.option(7, struct.pack(">IH", 0, 0))

    def request(self, kind, pos, length, flags=0, magic=0x25609513):
        self.s.sendall(struct.pack(">IHHQQI", magic, flags, kind, 7, pos, length))

    def chunk(self):
        _, flags, kind, cookie, n = struct.unpack(">IHHQI", self.get(20))
        return kind, cookie, self.get(n)

    def end(self):
        self.s.close()
        return self.p.wait(20)


def refused(server, *request):
    server.request(*request)
    if request[0] == 1:
        server.s.sendall(bytes(request[2]))
    kind, cookie, body = server.chunk()
    if kind != 0x8001 or cookie != 7:
        print("not refused:", request, kind)


server = Server()
server.go()
server.request(0, 4096, 4096)
if server.chunk()[0] != 1:
    print("a read is refused")
if writable:
    data = rng.randbytes(5000)
    server.request(1, 4097, 5000)
    server.s.sendall(data)
    if server.chunk()[0] != 0:
        print("a write is refused")
    server.request(0, 4096, 5002)
    kind, _, body = server.chunk()
    if body[9:5009] != data:
        print("what was written is not read")
    server.request(6, 4098, 4998)
    server.chunk()
    server.request(0, 4096, 5002)
    if server.chunk()[2][9:5009] != data[:1] + bytes(4998) + data[-1:]:
        print("what was zeroed is not, or more")
    for pos, length in ((size, 1), (size - 1, 2), (1 << 63, 4096), ((1 << 64) - 1, 2)):
        refused(server, 1, pos, length)
        refused(server, 6, pos, length)
    refused(server, 6, size - 1, 0xFFFFFFFF)
    server.request(3, 0, 0)
    if server.chunk()[0] != 0:
        print("a flush is refused")
else:
    for kind in (1, 3, 6):
        refused(server, kind, 0, 4096)
    refused(server, 1, 0, 0)  # WRITE, of nothing
for pos, length in ((size, 1), (size - 1, 2), (1 << 63, 4096), (0, 0), (0, (4 << 20) + 1), ((1 << 64) - 1, 2)):
    refused(server, 0, pos, length)
refused(server, 7, 0, 0)
refused(server, 7, size, 4096)
refused(server, 9, 0, 4096)
# One extent only, of an image that has more.
server.request(7, 0, size, 8)
kind, _, body = server.chunk()
if kind != 5 or len(body) != 12 or not 0 < struct.unpack(">III", body)[1] <= size:
    print("no single extent:", kind, body)
server.request(7, 0, size)
kind, _, body = server.chunk()
if kind != 5 or sum(x[0] for x in struct.iter_unpack(">II", body[4:])) != size:
    print("not all extents:", kind, len(body))
if server.end() != 0:
    print("its end is no error")
for case in range(12 if writable else 40):
    server = Server()
    try:
        for _ in range(rng.randrange(6)):
            data = rng.choice((rng.randbytes(rng.randrange(40)), struct.pack(">III", rng.randrange(20), 1 << 31, 15),
                               struct.pack(">II", 0xFFFFFFFF, 9), struct.pack(">IIII", 0, 3, 0xFFFFFFF0, 1)))
            server.option(rng.choice((2, 3, 6, 8, 9, 10, 10, 99)), data)
        if rng.random() < 0.2:
            server.s.sendall(struct.pack(">QII", OPT, 10, 0xFFFFFFFF))
            server.get(1)
        server.go()
        for _ in range(rng.randrange(20)):
            kind, length = rng.choice((0, 0, 3, 4, 7, 7) + (1, 6) * writable), rng.randrange(1 << 16)
            server.request(kind, rng.randrange(size * 2), length, rng.randrange(1 << 16))
            if kind == 1:
                server.s.sendall(rng.randbytes(length))
            server.chunk()
        if rng.random() < 0.3:
            server.request(1, 0, rng.choice((4096, 0xFFFFFFFF)))  # and less than that, or too much
            server.s.sendall(bytes(100))
            server.s.shutdown(socket.SHUT_WR)
            server.get(1)
            print(case, "goes on after a write without its data")
        server.request(0, 0, 1, magic=rng.getrandbits(32))
        server.get(1)
        print(case, "goes on after a malformed request")
    except (EOFError, ConnectionError):
        pass
    if (rc := server.end()) != 0:
        print(case, "ended with", rc)
print("done")
