#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
# Between a client and the QMP socket of QEMU, to inject faults: qmp-proxy.py LISTEN SOCKET COMMAND. COMMAND is refused,
# all else is passed on, descriptors too. A client at a time.
import json
import socket
import sys
import threading

listen, path, command = sys.argv[1:]


def answers(qemu, client):
    while True:
        data = qemu.recv(65536)
        if not data:
            client.shutdown(socket.SHUT_RDWR)
            return
        client.sendall(data)


def commands(client, qemu):
    buffer = b""
    while True:
        data, fds, _, _ = socket.recv_fds(client, 65536, 16)
        if not data:
            qemu.shutdown(socket.SHUT_RDWR)
            return
        buffer += data
        while buffer.strip():
            try:
                request, end = json.JSONDecoder().raw_decode(buffer.decode().lstrip())
            except ValueError:
                break
            skipped = len(buffer) - len(buffer.lstrip())
            part, buffer = buffer[: skipped + end], buffer[skipped + end :]
            if request.get("execute") == command:
                answer = {"error": {"class": "GenericError", "desc": "not here"}, "id": request.get("id")}
                client.sendall(json.dumps(answer).encode() + b"\r\n")
            else:
                socket.send_fds(qemu, [part + b"\n"], fds)
                fds = []


listener = socket.socket(socket.AF_UNIX)
listener.bind(listen)
listener.listen()
while True:
    client = listener.accept()[0]
    qemu = socket.socket(socket.AF_UNIX)
    qemu.connect(path)
    threading.Thread(target=answers, args=(qemu, client), daemon=True).start()
    commands(client, qemu)
    client.close()
    qemu.close()
