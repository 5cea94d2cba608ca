#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A proxy for tests, for http (requests with whole URLs) and for https (CONNECT).

usage: http-proxy.py PORT-FILE MODE-FILE LOG-FILE

Each request and each CONNECT is a line of the log. Names that end in .invalid, which no name service knows, are this
machine: what asks for them cannot have gone another way. The mode is read anew for each request: "ok", "403" (refused),
or "407" (whoever does not give the user u with the password p is).
"""
import base64
import ctypes
import http.client
import http.server
import os
import select
import signal
import socket
import sys
import urllib.parse

ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
port_file, mode_file, log_file = sys.argv[1:4]


def address(name):
    return "127.0.0.1" if name.endswith(".invalid") else name


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def refused(self):
        with open(mode_file) as f:
            mode = f.read().strip()
        given = self.headers.get("Proxy-Authorization", "")
        wanted = "Basic " + base64.b64encode(b"u:p").decode()
        with open(log_file, "a") as f:
            f.write(f"{mode} {self.command} {self.path}\n")
        if mode == "ok" or (mode == "407" and given == wanted):
            return False
        self.send_response(int(mode))
        if mode == "407":
            self.send_header("Proxy-Authenticate", 'Basic realm="tests"')
        self.send_header("Content-Length", "0")
        self.end_headers()
        return True

    def do_CONNECT(self):
        if self.refused():
            return
        host, port = self.path.rsplit(":", 1)
        try:
            there = socket.create_connection((address(host), int(port)))
        except OSError:
            self.send_error(502)
            return
        self.close_connection = True
        self.send_response(200)
        self.end_headers()
        ends = {self.connection: there, there: self.connection}
        while True:
            for s in select.select(list(ends), [], [])[0]:
                try:
                    data = s.recv(65536)
                    ends[s].sendall(data)
                except OSError:
                    data = b""
                if not data:
                    there.close()
                    return

    def forward(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.refused():
            return
        url = urllib.parse.urlsplit(self.path)
        there = http.client.HTTPConnection(address(url.hostname), url.port or 80)
        there.putrequest(self.command, url.path + (f"?{url.query}" if url.query else ""), True, True)
        for name, value in self.headers.items():
            if not name.lower().startswith("proxy-"):
                there.putheader(name, value)
        there.endheaders(body)
        answer = there.getresponse()
        data = answer.read()
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
        there.close()

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = forward


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass


server = Server(("127.0.0.1", 0), Handler)
with open(port_file + ".new", "w") as out:
    out.write(str(server.server_address[1]))
os.rename(port_file + ".new", port_file)
server.serve_forever()
