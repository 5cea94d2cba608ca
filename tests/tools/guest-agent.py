#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
# A guest agent at a socket, in place of one in a guest: guest-agent.py SOCKET LOG. Commands that it gets go to LOG. While
# LOG.refuse exists it refuses to freeze, while LOG.mute exists it answers nothing.
import json
import os
import socket
import sys
import threading

path, log = sys.argv[1:]


def write(connection, answer):
    if not os.path.exists(log + ".mute"):
        connection.sendall(answer)


def serve(connection):
    buffer = b""
    while True:
        part = connection.recv(65536)
        if not part:
            return
        buffer = (buffer + part).replace(b"\xff", b"")
        while b"\n" in buffer:
            line, buffer = buffer.split(b"\n", 1)
            command = json.loads(line)
            name = command["execute"]
            if name == "guest-sync-delimited":
                write(connection, b"\xff" + json.dumps({"return": command["arguments"]["id"]}).encode() + b"\n")
                continue
            with open(log, "a") as f:
                f.write(name + "\n")
            if name == "guest-fsfreeze-freeze" and os.path.exists(log + ".refuse"):
                write(connection, b'{"error": {"class": "GenericError", "desc": "no"}}\n')
            else:
                write(connection, b'{"return": 2}\n')


listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
