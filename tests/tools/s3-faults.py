#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""An S3 service that misbehaves on request, for tests; one bucket, "b" and also "bucket", in memory. It verifies
Content-MD5, dates and that all headers of S3 are signed, not signatures: swift-s3.py does.

usage: s3-faults.py PORT-FILE [TREE [CERTIFICATE KEY]]

With TREE the objects are files: those with the prefix R/ are the blobs of the repository in the directory TREE/R, as
snapferry and stock Kopia keep it there, and their times are those of the files. So the same repository can be used both
ways, and be aged and damaged as a directory. With a certificate it speaks TLS.

GET /_fault/KIND/N[/M]  M requests are answered, then N fail that way (see Handler.fault())
GET /_set/NAME/VALUE  skew: seconds of the clock; lag: 1: lists do not know what is put or deleted from now on;
                      full: puts are refused where they would make more bytes than that of all objects; 0: never;
                      slow: milliseconds by which the answer to a put of a pack is late; late: to a get of an index blob;
                      far: of a pack;
                      page: keys of a page; key: the only access key that is known; token: the only session
                      token; readonly: 1: whoever asks may read and list alone;
                      stale: so many answers to a HEAD of a session's marker have a Last-Modified of an hour before
GET /_hide/TEXT       lists leave out the keys that contain TEXT; without TEXT: none
GET /_lock            the object lock that the last put asked for: a number of seconds from now, and the mode
GET /_extended        how many objects had their lock extended since the last question; /_until: the last one, as /_lock
GET /_refuse/TEXT     locks of keys that contain TEXT cannot be extended; without TEXT: all can; object-lock:
                      whether there are locks is not told
GET /_requests        how many requests there were, and sets the numbers to 0; /_count: leaves them
GET /_puts            how many packs were put at once at most, since the last question
GET /_indexes         the same of gets of index blobs
GET /_reads           and of packs
GET /_deletes         how many blobs were deleted at once at most, since the last question
GET /_alone           how many gets of packs began when no other one was under way
GET /_packs           how many of them have read from packs of data
GET /_hold/TEXT       requests that contain TEXT, as "PUT /b/repository/s", wait for /_hold without it
GET /_held            how many are waiting
GET /_log             all requests since the last question, a line each, in the order in which they came
GET /_versions/STATE  Enabled or Suspended: the bucket keeps versions from now on (without TREE), and object locks, which
                      refuse the removal of a version until they end, also to whoever wants to bypass them (COMPLIANCE)
PUT /_put/KEY         stores the body as that object, whatever it is and whoever asks
GET /_class/KEY       the storage class of an object, "none" if its put named none; GLACIER and DEEP_ARCHIVE cannot be read
GET /_expire          removes noncurrent versions whose lock has ended and delete markers without versions, as a
                      lifecycle rule does; says how many
"""
import base64
import calendar
import ctypes
import email.utils
import hashlib
import http.server
import json
import os
import re
import signal
import socket
import ssl
import struct
import sys
import threading
import time
import urllib.parse

ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
lock = threading.Lock()
hold = {"text": "", "held": 0, "log": []}
held = threading.Condition()
listed = {}  # what lists show, while they lag
classes = {}  # of the keys that were put with one
CLASSES = ("STANDARD", "STANDARD_IA", "ONEZONE_IA", "GLACIER_IR", "GLACIER", "DEEP_ARCHIVE")


class Memory:
    def __init__(self):
        self.all = {}  # key -> (bytes, time)

    def get(self, key):
        return self.all.get(key)

    def put(self, key, body, when):
        self.all[key] = (body, when)

    def delete(self, key):
        self.all.pop(key, None)

    def index(self, prefix):
        return {k: (len(v[0]), v[1]) for k, v in list(self.all.items()) if k.startswith(prefix)}


class Versions:
    """A bucket with versions. The newest of a key is the last one; a delete marker has no body."""

    def __init__(self, memory):
        self.state = "Enabled"
        self.number = 0
        self.all = {k: [(b, t, "null", 0)] for k, (b, t) in memory.all.items()}  # key -> (body, time, id, locked until)

    def get(self, key, version=None):
        found = [v for v in self.all.get(key, ()) if version in (None, v[2])]
        return (found[-1][0], found[-1][1]) if found and found[-1][0] is not None else None

    def add(self, key, body, when, until=0):
        self.number += 1
        name = f"v{self.number:06}" if self.state == "Enabled" else "null"
        kept = [v for v in self.all.get(key, ()) if name != "null" or v[2] != "null"]
        self.all[key] = kept + [(body, when, name, until)]

    put = add

    def delete(self, key):
        self.add(key, None, time.time() + state["skew"])

    def remove(self, key, version):
        """False: it is locked."""
        for v in self.all.get(key, ()):
            if v[2] == version and v[3] > time.time() + state["skew"]:
                return False
        self.all[key] = [v for v in self.all.get(key, ()) if v[2] != version]
        return True

    def extend(self, key, until):
        vs = self.all[key]
        vs[-1] = vs[-1][:3] + (max(until, vs[-1][3]),)

    def expire(self):
        n = 0
        for key, vs in list(self.all.items()):
            kept = [v for v in vs[:-1] if v[0] is not None and v[3] > time.time() + state["skew"]] + vs[-1:]
            if kept and kept[-1][0] is None and len(kept) == 1:
                kept = []
            n += len(vs) - len(kept)
            self.all[key] = kept
        return n

    def index(self, prefix):
        return {k: (len(v[-1][0]), v[-1][1]) for k, v in list(self.all.items())
                if k.startswith(prefix) and v and v[-1][0] is not None}


class Tree:
    """Directories of repositories, in the layout that .shards describes."""

    def __init__(self, root):
        self.root = root

    def path(self, key):
        where, name = key.rsplit("/", 1)
        top = os.path.join(self.root, where)
        try:
            with open(top + "/.shards") as f:
                shards = json.load(f)
        except FileNotFoundError:
            shards = {"default": [1, 3], "maxNonShardedLength": 20}
        parts = []
        if len(name) > shards["maxNonShardedLength"]:
            for n in shards["default"]:
                parts.append(name[:n])
                name = name[n:]
        return top, os.path.join(top, *parts, name + ".f"), shards

    def get(self, key):
        try:
            with open(self.path(key)[1], "rb") as f:
                return f.read(), os.fstat(f.fileno()).st_mtime
        except FileNotFoundError:
            return None

    def put(self, key, body, when):
        top, path, shards = self.path(key)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if not os.path.exists(top + "/.shards"):
            with open(top + "/.shards", "w") as f:
                json.dump(shards, f)
        with open(path + ".put", "wb") as f:
            f.write(body)
        os.utime(path + ".put", (when, when))
        os.rename(path + ".put", path)

    def delete(self, key):
        try:
            os.unlink(self.path(key)[1])
        except FileNotFoundError:
            pass

    def index(self, prefix):
        found = {}
        if "/" not in prefix:
            for where in os.listdir(self.root):
                if os.path.exists(os.path.join(self.root, where, ".shards")):
                    found.update(self.index(where + "/"))
            return found
        where = prefix.rsplit("/", 1)[0] + "/"
        for d, _, files in os.walk(os.path.join(self.root, where)):
            for name in files:
                path = os.path.join(d, name)
                key = where + os.path.relpath(path, os.path.join(self.root, where))[:-2].replace("/", "")
                if name.endswith(".f") and key.startswith(prefix):
                    try:
                        st = os.stat(path)
                    except FileNotFoundError:
                        continue
                    found[key] = (st.st_size, st.st_mtime)
        return found


objects = Tree(sys.argv[2]) if len(sys.argv) > 2 else Memory()
state = {"fault": "", "left": 0, "after": 0, "skew": 0, "lag": 0, "full": 0, "page": 1000, "key": "", "token": "",
         "requests": 0, "stale": 0, "slow": 0, "puts": 0, "most": 0, "late": 0, "gets": 0, "most_gets": 0, "far": 0, "reads": 0,
         "most_reads": 0, "alone": 0, "deletes": 0, "most_deletes": 0,
         "readonly": 0, "locked": ("", ""), "last": ("", ""), "hidden": "", "packs": 0, "extended": set(), "refused": ""}


def stamp(t, iso):
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(t)) if iso else email.utils.formatdate(t, usegmt=True)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def date_time_string(self, timestamp=None):
        return stamp(time.time() + state["skew"], False)

    def answer(self, status, body=b"", headers=(), cut=None):
        self.send_response(status)
        for k, v in headers:
            self.send_header(k, v)
        if status != 204 and not any(k == "Content-Length" for k, _ in headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body if cut is None else body[:cut])
        if cut is not None:
            self.wfile.flush()
            self.close_connection = True

    def error(self, status, code, more=""):
        self.answer(status, f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>of {code}</Message>{more}"
                            "</Error>".encode(), [("Content-Type", "application/xml")])

    def reset(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def fault(self, kind):
        """True: it was the answer."""
        if kind == "slowdown":
            self.error(503, "SlowDown")
        elif kind == "internal":
            self.error(500, "InternalError")
        elif kind == "gateway":  # of a proxy before the server
            self.answer(502, b"<html>Bad Gateway")
        elif kind == "reset":
            self.reset()
        elif kind == "stall":
            time.sleep(20)
            self.close_connection = True
        elif kind == "hang":
            time.sleep(600)
            self.close_connection = True
        elif kind == "garbage":
            self.wfile.write(b"\x00\x01\x02 no HTTP\r\n\r\n")
            self.close_connection = True
        elif kind == "nowhere":  # of a web server that is no S3
            self.answer(404, b"<html>not found</html>")
        elif kind == "html":
            self.answer(200, b"<html><body>Welcome!</body></html>")
        elif kind == "doctype":
            self.answer(200, b'<!DOCTYPE x [<!ENTITY a "aaaa">]><ListBucketResult>&a;</ListBucketResult>')
        elif kind == "page":  # of a portal or a proxy
            self.answer(200, b"<html><body>Please log in</body></html>", [("Content-Type", "text/html; charset=utf-8")])
        elif kind == "late-error":  # the status was sent before it failed
            self.error(200, "InternalError")
        elif kind == "moved":
            self.answer(301, b"<Error><Code>PermanentRedirect</Code></Error>", [("x-amz-bucket-region", "eu-9")])
        elif kind == "elsewhere":
            self.error(307, "TemporaryRedirect", "<Region>eu-9</Region>")
        elif kind == "skewed":
            self.error(403, "RequestTimeTooSkewed")
        elif kind == "busy":
            self.answer(429, b"", [("Retry-After", "1")])
        elif kind == "conflict":
            self.error(409, "OperationAborted")
        elif kind == "precondition":
            self.error(412, "PreconditionFailed")
        elif kind == "trickle":  # a byte every 0.2 s, for a minute, of the status line or of the body
            self.trickle(b"HTTP/1.1 200 OK\r\n" + b"X-Long: " + b"x" * 300)
        elif kind == "trickle-body":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 300\r\n\r\n")
            self.trickle(b"x" * 300)
        elif kind == "endless":  # one name of an attribute
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n<ListBucketResult ")
            for _ in range(200):
                self.wfile.write(b"a" * (1 << 20))
            self.close_connection = True
        elif kind == "denied":
            self.error(403, "AccessDenied")
        elif kind == "secret":
            self.error(403, "SignatureDoesNotMatch")
        elif kind == "expired":
            self.error(403, "ExpiredToken")
        elif kind == "bucket":
            self.error(404, "NoSuchBucket")
        elif kind == "region":
            self.error(400, "AuthorizationHeaderMalformed", "<Region>eu-9</Region>")
        elif kind == "quota":
            self.error(403, "QuotaExceeded")
        elif kind == "full":
            self.error(507, "InsufficientStorage")
        elif kind == "capacity":
            self.error(503, "InsufficientCapacity")
        else:
            return False
        return True

    def trickle(self, text):
        self.close_connection = True
        for i in range(len(text)):
            self.wfile.write(text[i:i + 1])
            time.sleep(0.2)

    def signs_enough(self):
        """What is signed is in order, and has all headers of S3."""
        signed = re.search(r"SignedHeaders=([a-z0-9;-]+)", self.headers.get("Authorization", ""))
        if not signed:
            return True  # by another version of the signature, or not at all
        names = signed[1].split(";")
        wanted = {k.lower() for k in self.headers if k.lower().startswith("x-amz-")}
        return names == sorted(names) and wanted <= set(names)

    def control(self, path):
        global objects
        what, *rest = path.strip("/").split("/")
        text = "ok"
        if what in ("_hold", "_held"):
            with held:
                if what == "_hold":
                    hold["text"] = urllib.parse.unquote("/".join(rest))
                    held.notify_all()
                return self.answer(200, str(hold["held"]).encode())
        with lock:
            if what == "_fault":
                state["fault"], state["left"] = rest[0], int(rest[1])
                state["after"] = int(rest[2]) if len(rest) > 2 else 0
            elif what == "_set":
                if rest[0] == "lag":
                    listed.clear()
                    listed.update(objects.index(""))
                state[rest[0]] = "/".join(rest[1:]) if rest[0] in ("key", "token") else int(rest[1])
            elif what == "_hide":
                state["hidden"] = "".join(rest)
            elif what in ("_lock", "_until"):
                until, mode = state["locked"] if what == "_lock" else state["last"]
                left = int(calendar.timegm(time.strptime(until, "%Y-%m-%dT%H:%M:%SZ")) - time.time()) if until else 0
                text = f"{left} {mode}"
            elif what in ("_requests", "_count"):
                text = str(state["requests"])
                state["requests"] *= what == "_count"
                state["packs"] *= what == "_count"
            elif what == "_extended":
                text = str(len(state["extended"]))
                state["extended"] = set()
            elif what == "_refuse":
                state["refused"] = "".join(rest)
            elif what == "_puts":
                text, state["most"] = str(state["most"]), 0
            elif what == "_indexes":
                text, state["most_gets"] = str(state["most_gets"]), 0
            elif what == "_reads":
                text, state["most_reads"] = str(state["most_reads"]), 0
            elif what == "_deletes":
                text, state["most_deletes"] = str(state["most_deletes"]), 0
            elif what == "_alone":
                text, state["alone"] = str(state["alone"]), 0
            elif what == "_packs":
                text = str(state["packs"])
            elif what == "_log":
                text, hold["log"] = "\n".join(hold["log"]), []
            elif what == "_versions":
                if not isinstance(objects, Versions):
                    objects = Versions(objects)
                objects.state = rest[0]
            elif what == "_put":
                objects.put("/".join(rest), self.rfile.read(int(self.headers.get("Content-Length") or 0)), time.time())
            elif what == "_class":
                text = classes.get(urllib.parse.unquote("/".join(rest)), "none")
            elif what == "_expire":
                text = str(objects.expire())
        self.answer(200, text.encode())

    def wait(self, request):
        with held:
            hold["log"].append(request)
            del hold["log"][:-10000]
            if hold["text"] and hold["text"] in request:
                hold["held"] += 1
                while hold["text"] and hold["text"] in request:
                    held.wait()
                hold["held"] -= 1

    def handle_any(self):
        url = urllib.parse.urlsplit(self.path)
        if url.path.startswith("/_"):
            return self.control(url.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with lock:
            state["requests"] += 1
            state["packs"] += self.command == "GET" and re.search(r"/p[0-9a-f]{32}-", url.path) is not None
            kind = state["fault"] if state["left"] and not state["after"] else ""
            state["left"] -= bool(kind)
            state["after"] -= bool(state["after"])
            if state["full"] and self.command == "PUT" and url.query != "retention=" and \
                    sum(size for size, _ in objects.index("").values()) + len(body) > state["full"]:
                kind = "quota"
            if state["readonly"] and self.command in ("PUT", "DELETE", "POST"):
                kind = "denied"
        self.wait(f"{self.command} {urllib.parse.unquote(self.path)}")
        if self.fault(kind):
            return None
        date = time.strptime(self.headers.get("x-amz-date", "19700101T000000Z"), "%Y%m%dT%H%M%SZ")
        if abs(calendar.timegm(date) - time.time() - state["skew"]) > 900:
            return self.error(403, "RequestTimeTooSkewed")
        if state["key"] and f"Credential={state['key']}/" not in self.headers.get("Authorization", ""):
            return self.error(403, "InvalidAccessKeyId")
        if not self.signs_enough():
            return self.error(403, "SignatureDoesNotMatch")
        if state["token"]:
            token = self.headers.get("x-amz-security-token")
            if token != state["token"]:
                return self.error(400 if token else 403, "ExpiredToken" if token else "AccessDenied")
        parts = urllib.parse.unquote(url.path).split("/", 2)
        if parts[1] not in ("b", "bucket"):  # stock Kopia allows no shorter name
            return self.error(404, "NoSuchBucket")
        q = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        if len(parts) < 3 or not parts[2]:
            if "versioning" in q:
                return self.versioning()
            if "object-lock" in q:
                return self.object_lock()
            return self.list_versions(q, kind) if "versions" in q else self.list(q, kind)
        if "versionId" in q:
            return self.one_version(parts[2], q["versionId"], kind)
        if self.command == "PUT" and url.query == "retention=":
            return self.extend(parts[2], body)
        return getattr(self, "on_" + self.command.lower())(parts[2], body, kind)

    do_GET = do_PUT = do_HEAD = do_DELETE = handle_any

    def extend(self, key, body):
        found = re.fullmatch(rb'<Retention xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Mode>(\w+)</Mode>'
                             rb"<RetainUntilDate>([0-9TZ:-]+)</RetainUntilDate></Retention>", body)
        if self.headers.get("x-amz-object-lock-mode"):
            return self.error(400, "InvalidArgument")
        if not found or self.headers.get("Content-MD5") != base64.b64encode(hashlib.md5(body).digest()).decode():
            return self.error(400, "MalformedXML")
        if not objects.get(key):
            return self.error(404, "NoSuchKey")
        if state["refused"] and state["refused"] in key:
            return self.error(403, "AccessDenied")
        with lock:
            state["extended"].add(key)
            if isinstance(objects, Versions):
                objects.extend(key, calendar.timegm(time.strptime(found[2].decode(), "%Y-%m-%dT%H:%M:%SZ")))
            state["last"] = (found[2].decode(), found[1].decode())
        return self.answer(200)

    def on_put(self, key, body, kind):
        state["locked"] = (self.headers.get("x-amz-object-lock-retain-until-date", ""),
                           self.headers.get("x-amz-object-lock-mode", ""))
        md5 = base64.b64encode(hashlib.md5(body).digest()).decode()
        stock = "MinIO" in self.headers.get("User-Agent", "")  # the library of stock Kopia: only if it is told to
        if kind == "digest" or self.headers.get("Content-MD5", md5 if stock else "") != md5:
            return self.error(400, "BadDigest")
        want = self.headers.get("x-amz-content-sha256")
        if want not in ("UNSIGNED-PAYLOAD", hashlib.sha256(body).hexdigest()):
            return self.error(400, "XAmzContentSHA256Mismatch")
        storage_class = self.headers.get("x-amz-storage-class")
        if storage_class and storage_class not in CLASSES:
            return self.error(400, "InvalidStorageClass")
        until = state["locked"][0]
        until = calendar.timegm(time.strptime(until, "%Y-%m-%dT%H:%M:%SZ")) if until else 0
        pack = re.search(r"/p[0-9a-f]{32}-", self.path) is not None
        with lock:
            state["puts"] += pack
            state["most"] = max(state["most"], state["puts"])
        if pack and state["slow"]:
            time.sleep(state["slow"] / 1000)
        with lock:
            state["puts"] -= pack
            if isinstance(objects, Versions):
                objects.add(key, body, time.time() + state["skew"], until)
            else:
                objects.put(key, body, time.time() + state["skew"])
            classes.pop(key, None)
            if storage_class:
                classes[key] = storage_class
        if kind == "lost-answer":  # done, and nobody hears of it
            return self.reset()
        tag = "0" * 32 if kind == "etag" else hashlib.md5(body).hexdigest()
        return self.answer(200, b"", [("ETag", f'"{tag}"'), ("Content-Type", "text/html; charset=UTF-8")])  # as Swift

    def on_delete(self, key, _body, _kind):
        with lock:
            state["deletes"] += 1
            state["most_deletes"] = max(state["most_deletes"], state["deletes"])
        if state["far"]:
            time.sleep(state["far"] / 1000)
        with lock:
            state["deletes"] -= 1
            objects.delete(key)
        self.answer(204)

    def on_head(self, key, _body, kind):
        self.on_get(key, b"", kind)

    def on_get(self, key, _body, kind):
        index = re.search(r"/x[nsr]\d", self.path) is not None
        pack = re.search(r"/[pq][0-9a-f]{3}", self.path) is not None
        with lock:
            state["gets"] += index
            state["most_gets"] = max(state["most_gets"], state["gets"])
            state["alone"] += pack and not state["reads"]
            state["reads"] += pack
            state["most_reads"] = max(state["most_reads"], state["reads"])
        late = state["late"] if index else state["far"] if pack else 0
        if late: # libfaketime cannot sleep for 0 s
            time.sleep(late / 1000)
        with lock:
            state["gets"] -= index
            state["reads"] -= pack
        found = objects.get(key)
        with lock:
            if found and self.command == "HEAD" and state["stale"] and re.search(r"/s[0-9a-f]{8}", self.path):
                state["stale"] -= 1
                found = found[0], found[1] - 3600
        if found and self.command == "GET" and classes.get(key) in ("GLACIER", "DEEP_ARCHIVE"):
            return self.error(403, "InvalidObjectState")
        return self.answer_with(found, kind) if found else self.error(404, "NoSuchKey")

    def one_version(self, key, version, kind):
        if not isinstance(objects, Versions):
            return self.error(400, "InvalidArgument")
        if self.command == "DELETE":
            with lock:
                return self.answer(204) if objects.remove(key, version) else self.error(403, "AccessDenied")
        found = objects.get(key, version)
        return self.answer_with(found, kind) if found else self.error(404, "NoSuchVersion")

    def answer_with(self, found, kind):
        body, when = found
        headers = [("Last-Modified", stamp(when, False)), ("ETag", '"lies"')]
        status, m = 200, re.match(r"bytes=(\d+)-(\d+)$", self.headers.get("Range", ""))
        if m and kind != "whole":
            first, last = int(m[1]), min(int(m[2]), len(body) - 1)
            if first >= len(body):
                return self.error(416, "InvalidRange")
            shift = 1 if kind == "shifted" else 0
            headers.append(("Content-Range", "bytes of it" if kind == "unranged" else
                            f"bytes {first + shift}-{last + shift}/{len(body) + shift}"))
            body, status = body[first:last + 1], 206
            body = body[:-1] if kind == "shorter" else body + b"x" if kind == "longer" else body
        elif kind == "part" and self.command == "GET":  # a cache answers with what it has
            headers.append(("Content-Range", f"bytes 0-{len(body) // 2 - 1}/{len(body)}"))
            body, status = body[:len(body) // 2], 206
        if kind in ("bare", "bare-cut", "chunked", "chunked-cut"):  # without a length, until the connection ends
            self.send_response(status)
            for k, v in headers + ([("Transfer-Encoding", "chunked")] if kind[0] == "c" else []):
                self.send_header(k, v)
            self.end_headers()
            half, cut = body[:len(body) // 2], kind.endswith("-cut")
            pieces = [half] if cut else [half, body[len(half):]]
            if self.command != "HEAD":
                self.wfile.write(b"".join(b"%x\r\n%s\r\n" % (len(x), x) for x in pieces) if kind[0] == "c" else
                                 b"".join(pieces))
                self.wfile.write(b"0\r\n\r\n" if kind == "chunked" else b"")
            self.close_connection = True
            return None
        if self.command == "HEAD":
            headers.append(("Content-Length", str(len(body))))
        return self.answer(status, body, headers, len(body) // 2 if kind == "truncate" else None)

    def versioning(self):
        status = f"<Status>{objects.state}</Status>" if isinstance(objects, Versions) else ""
        self.answer(200, f"<VersioningConfiguration xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>{status}"
                         "</VersioningConfiguration>".encode())

    def object_lock(self):
        if state["refused"] == "object-lock":
            return self.error(403, "AccessDenied")
        if not isinstance(objects, Versions):
            return self.error(404, "ObjectLockConfigurationNotFoundError")
        return self.answer(200, b"<ObjectLockConfiguration xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>"
                                b"<ObjectLockEnabled>Enabled</ObjectLockEnabled></ObjectLockConfiguration>")

    def list_versions(self, q, kind):
        """Of each key the newest first, and all keys in order; without versions each object is its version "null"."""
        prefix, after = q.get("prefix", ""), (q.get("key-marker", ""), q.get("version-id-marker", ""))
        with lock:
            if isinstance(objects, Versions):
                everything = {k: list(v) for k, v in objects.all.items()}
            else:
                everything = {k: [(b"x" * n, t, "null", 0)] for k, (n, t) in objects.index(prefix).items()}
        rows = [(k, v, i == 0) for k in sorted(everything) if k.startswith(prefix) and "/" not in k[len(prefix):]
                for i, v in enumerate(reversed(everything[k]))]
        if after[0]:
            past = [i for i, (k, v, _) in enumerate(rows) if k < after[0] or (k == after[0] and not after[1])]
            here = [i for i, (k, v, _) in enumerate(rows) if (k, v[2]) == after]
            rows = rows[max(past + here, default=-1) + 1:]
        n = min(int(q.get("max-keys", 1000)), state["page"])
        more = len(rows) > n
        text = ""
        for k, v, latest in rows[:n]:
            what = "DeleteMarker" if v[0] is None else "Version"
            size = "" if v[0] is None else f"<Size>{len(v[0])}</Size>"
            text += (f"<{what}><Key>{urllib.parse.quote(k)}</Key><VersionId>{v[2]}</VersionId><IsLatest>"
                     f"{'true' if latest else 'false'}</IsLatest><LastModified>{stamp(v[1], True)}</LastModified>{size}"
                     f"</{what}>")
        marker = ""
        if more:
            k, v, _ = rows[n - 1]
            k = rows[0][0][:-1] if kind == "backward" else k
            marker = f"<NextKeyMarker>{urllib.parse.quote(k)}</NextKeyMarker><NextVersionIdMarker>{v[2]}</NextVersionIdMarker>"
        self.answer(200, ("<?xml version='1.0' encoding='UTF-8'?><ListVersionsResult xmlns='http://s3.amazonaws.com/doc/"
                          f"2006-03-01/'><IsTruncated>{'true' if more else 'false'}</IsTruncated>{marker}{text}"
                          "<EncodingType>url</EncodingType></ListVersionsResult>").encode())

    def list(self, q, kind):
        with lock:
            prefix = q.get("prefix", "")
            now = dict(listed) if state["lag"] else objects.index(prefix)
            hidden = state["hidden"]
        after = q.get("continuation-token", "").split("/", 2)[-1] if kind == "tokens" else q.get("continuation-token", "")
        keys = sorted(k for k in now if k.startswith(prefix) and "/" not in k[len(prefix):] and k > after and
                      not (hidden and hidden in k))
        n = min(int(q.get("max-keys", 1000)), state["page"])
        more = len(keys) > n
        text = "".join(f"<Contents><Key>{urllib.parse.quote(k)}</Key><LastModified>{stamp(now[k][1], True)}"
                       f"</LastModified><Size>{now[k][0]}</Size></Contents>" for k in keys[:n])
        nxt = keys[n - 1] if more else ""
        if kind == "backward" and after and more:  # the first page, then the second, and so on
            nxt = keys[0][:-2]
        elif kind == "same":
            more, nxt = True, "same"
        elif kind == "tokens":  # always another one, and always the same page
            more, nxt = True, f"{time.time()}/x/{after}"
        elif kind == "empty":
            keys, n, more, nxt = [], 0, True, f"{time.time()}"
        token = f"<NextContinuationToken>{nxt}</NextContinuationToken>" if more else ""
        self.answer(200, ("<?xml version='1.0' encoding='UTF-8'?><ListBucketResult xmlns='http://s3.amazonaws.com/doc/"
                          f"2006-03-01/'><IsTruncated>{'true' if more else 'false'}</IsTruncated>{token}{text}"
                          "<EncodingType>url</EncodingType></ListBucketResult>").encode())


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_):
        pass


server = Server(("127.0.0.1", 0), Handler)
if len(sys.argv) > 3:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*sys.argv[3:5])
    server.socket = tls.wrap_socket(server.socket, server_side=True)
with open(sys.argv[1] + ".new", "w") as f:
    f.write(str(server.server_port))
os.rename(sys.argv[1] + ".new", sys.argv[1])
server.serve_forever()
