#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A TCP proxy that behaves as a bad network does, for tests: late, slow, in odd pieces, with connections that break or
hang. The same seed gives each connection the same fate, by its number.

usage: tcp-proxy.py PORT-FILE HOST:PORT [SEED]

The first line of PORT-FILE is the port of the proxy, the second that of its control, which answers HTTP:

GET /set/NAME/VALUE...  any number of these:
                     delay: milliseconds until a byte that was read is passed on, in each direction
                     rate: bytes a second of each connection and direction; 0: without limit
                     pieces: bytes are passed on in pieces of 1 to so many; 0: as they come
                     resets: percent of the connections that are reset, after a number of bytes that is random
                     freezes: percent of those that stop passing on anything, likewise, for
                     frozen: milliseconds, and then go on; 0: they never do
                     most: the highest number of bytes after which either happens (1 to that, of both directions)
                     refuse: 1: new connections are reset at once
GET /reset           resets all connections there are now, and says how many
GET /freeze          freezes them, likewise (for "frozen")
GET /seen            connections, resets, freezes and bytes in each direction since the start, as JSON

A setting holds for what is passed on from now on; the fate of a connection is that of the settings it began with.
"""
import ctypes
import http.server
import json
import os
import random
import signal
import socket
import struct
import sys
import threading
import time
from collections import deque

ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
host, port = sys.argv[2].rsplit(":", 1)
seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
lock = threading.Lock()
setting = {"delay": 0, "rate": 0, "pieces": 0, "resets": 0, "freezes": 0, "frozen": 0, "most": 1000000, "refuse": 0}
seen = {"connections": 0, "resets": 0, "freezes": 0, "up": 0, "down": 0}
alive = set()
WINDOW = 1 << 20  # bytes on their way in one direction; who sends more waits


def count(what, n=1):
    with lock:
        seen[what] += n


class Connection:
    def __init__(self, client, number):
        self.random = random.Random(seed * 1000003 + number)
        self.sockets = [client]
        self.passed = 0
        self.over = False
        self.frozen_until = 0  # a time of the monotonic clock
        self.lock = threading.Lock()
        # All numbers are drawn, so that a setting changes no other fate.
        fate, after = self.random.random() * 100, self.random.random()
        self.end = None
        if fate < setting["resets"]:
            self.end = self.reset
        elif fate < setting["resets"] + setting["freezes"]:
            self.end = self.freeze
        self.after = 1 + int(after * setting["most"])

    def open(self):
        try:
            server = socket.create_connection((host, int(port)), 10)
        except OSError:
            return self.reset()
        server.settimeout(None)
        with self.lock:
            self.sockets.append(server)
        with lock:
            alive.add(self)
        client = self.sockets[0]
        for s in (client, server):
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ways = [Way(self, client, server, "up"), Way(self, server, client, "down")]
        for w in ways:
            w.join()
        with lock:
            alive.discard(self)
        with self.lock:
            self.over = True
            for s in (client, server):
                s.close()

    def reset(self):
        """Both sides see a connection that was reset by its peer."""
        with self.lock:
            if self.over:
                return False
            self.over = True
            for s in self.sockets:
                try:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    s.shutdown(socket.SHUT_RD)  # wakes who reads; the close below sends the reset
                except OSError:
                    pass
                if s.fileno() >= 0:
                    os.close(s.detach())
        count("resets")
        return True

    def freeze(self):
        if self.over:
            return False
        ms = setting["frozen"]
        self.frozen_until = time.monotonic() + ms / 1000 if ms else float("inf")
        count("freezes")
        return True

    def thaw(self):
        while not self.over and time.monotonic() < self.frozen_until:
            time.sleep(0.02)

    def piece(self, data):
        """How much of it is passed on next; what becomes of the connection at this byte happens before that."""
        n = len(data)
        with self.lock:
            if setting["pieces"]:
                n = min(n, self.random.randint(1, setting["pieces"]))
            if self.end and self.passed + n >= self.after:
                end, self.end = self.end, None
                n = max(self.after - self.passed, 0)
            else:
                end = None
            self.passed += n
        return n, end


class Way:
    """One direction of a connection: a thread reads, another one passes on when it is time."""

    def __init__(self, connection, source, target, name):
        self.c, self.source, self.target, self.name = connection, source, target, name
        self.waiting, self.size, self.ready = deque(), 0, threading.Condition()
        self.threads = [threading.Thread(target=t, daemon=True) for t in (self.read, self.write)]
        for t in self.threads:
            t.start()

    def join(self):
        for t in self.threads:
            t.join()

    def read(self):
        while True:
            try:
                data = self.source.recv(65536)
            except OSError:
                data = b""
            with self.ready:
                self.waiting.append((time.monotonic() + setting["delay"] / 1000, data))
                self.size += len(data)
                self.ready.notify()
                while self.size > WINDOW and not self.c.over:
                    self.ready.wait(0.1)
            if not data:
                return

    def write(self):
        try:
            while True:
                with self.ready:
                    while not self.waiting:
                        self.ready.wait()
                    when, data = self.waiting.popleft()
                    self.size -= len(data)
                    self.ready.notify()
                time.sleep(max(0, when - time.monotonic()))
                if not data:
                    self.c.thaw()
                    self.target.shutdown(socket.SHUT_WR)
                    return
                self.pass_on(memoryview(data))
        except OSError:
            self.c.over = True  # who reads finds out by itself
            for s in self.c.sockets:
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def pass_on(self, data):
        while data:
            self.c.thaw()
            n, end = self.c.piece(data)
            self.target.sendall(data[:n])
            count(self.name, n)
            data = data[n:]
            if setting["rate"]:
                time.sleep(n / setting["rate"])
            if end:
                end()


class Control(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        what, *rest = self.path.strip("/").split("/")
        status, text = 200, "ok"
        pairs = dict(zip(rest[::2], rest[1::2]))
        known = 2 * len(pairs) == len(rest) and all(n in setting and v.isdigit() for n, v in pairs.items())
        if what == "set" and known:
            setting.update((n, int(v)) for n, v in pairs.items())
        elif what in ("reset", "freeze"):
            with lock:
                now = list(alive)
            text = str(sum(getattr(c, what)() for c in now))
        elif what == "seen":
            with lock:
                text = json.dumps(seen)
        else:
            status, text = 404, "no such request"
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


def listen():
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.1", 0))
    s.listen(64)
    return s


def serve(listener):
    while True:
        client, _ = listener.accept()
        count("connections")
        c = Connection(client, seen["connections"])
        if setting["refuse"]:
            c.reset()
        else:
            threading.Thread(target=c.open, daemon=True).start()


proxy = listen()
control = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Control)
threading.Thread(target=control.serve_forever, daemon=True).start()
with open(sys.argv[1] + ".new", "w") as f:
    f.write(f"{proxy.getsockname()[1]}\n{control.server_port}\n")
os.rename(sys.argv[1] + ".new", sys.argv[1])
serve(proxy)
