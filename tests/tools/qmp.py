#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
# Commands for QEMU: qmp.py SOCKET COMMAND [JSON] [COMMAND [JSON]]... prints what each returned.
import json
import socket
import sys


def connect(path):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    f = s.makefile("r")
    f.readline()

    def call(command, arguments):
        s.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        while True:
            answer = json.loads(f.readline())
            if "error" in answer:
                sys.exit(command + ": " + answer["error"]["desc"])
            if "return" in answer:
                return answer["return"]

    call("qmp_capabilities", {})
    return call


if __name__ == "__main__":
    call = connect(sys.argv[1])
    words = sys.argv[2:]
    while words:
        command = words.pop(0)
        arguments = json.loads(words.pop(0)) if words and words[0].startswith("{") else {}
        print(json.dumps(call(command, arguments)))
