#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""An S3 service for tests: OpenStack Swift's s3api of Debian (python3-swift), all its servers in one process.

usage: swift-s3.py DIRECTORY PORT-FILE [CERTIFICATE KEY]

Objects are in memory, accounts and containers below DIRECTORY. Signatures of requests are verified. The user test:tester
has the secret "testing". Listens on a free port of 127.0.0.1, which is written into PORT-FILE when requests are
answered. With a certificate it speaks TLS. Ends with its parent.
"""
import ctypes
import os
import signal
import sys

ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
import eventlet  # noqa: E402

import eventlet.hubs.poll  # noqa: E402


class Clock:
    """The module time for eventlet's loop: under libfaketime the real sleep() fails (EINVAL) when its end has passed
    before it begins, as happens on a busy machine."""

    def __getattr__(self, name):
        return getattr(eventlet.patcher.original("time"), name)

    @staticmethod
    def sleep(seconds):
        eventlet.patcher.original("select").select([], [], [], max(seconds, 0))


eventlet.hubs.poll.time = Clock()
eventlet.monkey_patch(thread=False)
from eventlet import wsgi  # noqa: E402

where, port_file = sys.argv[1:3]
os.makedirs(where + "/devices/d1", exist_ok=True)


def write(name, text):
    with open(os.path.join(where, name), "w") as f:
        f.write(text)


write("swift.conf", "[swift-hash]\nswift_hash_path_suffix = s\nswift_hash_path_prefix = p\n"
      "[storage-policy:0]\nname = only\ndefault = yes\n")
os.environ["SWIFT_TEST_CONFIG"] = where
import swift.common.utils as utils  # noqa: E402

utils.SWIFT_CONF_FILE = where + "/swift.conf"
import swift.common.storage_policy as storage_policy  # noqa: E402

storage_policy.SWIFT_CONF_FILE = where + "/swift.conf"
utils.validate_hash_conf()
storage_policy.reload_storage_policies()
from swift.common.ring import RingBuilder  # noqa: E402
from swift.common.wsgi import loadapp  # noqa: E402


class Quiet:
    def __getattr__(self, _):
        return lambda *a, **k: None


def serve(app, sock):
    eventlet.spawn(wsgi.server, sock, app, log=Quiet(), log_output=False, socket_timeout=300,
                   minimum_chunk_size=65536)


def server(kind, use):
    """Starts a server of `kind`; makes the ring that leads to it."""
    sock = eventlet.listen(("127.0.0.1", 0))
    write(kind + ".conf", f"""[DEFAULT]
swift_dir = {where}
devices = {where}/devices
mount_check = false
log_level = CRITICAL
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{use}
""")
    builder = RingBuilder(4, 1, 1)
    builder.add_dev({"region": 1, "zone": 1, "ip": "127.0.0.1", "port": sock.getsockname()[1], "device": "d1",
                     "weight": 1.0})
    builder.rebalance()
    builder.get_ring().save(f"{where}/{kind}.ring.gz")
    return kind, sock


servers = [server("account", "account"), server("container", "container"), server("object", "mem_object")]
for name, listening in servers:
    serve(loadapp(f"{where}/{name}.conf"), listening)
write("proxy.conf", f"""[DEFAULT]
swift_dir = {where}
log_level = CRITICAL
[pipeline:main]
pipeline = catch_errors cache s3api tempauth copy bulk slo versioned_writes symlink proxy-server
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:cache]
use = egg:swift#memcache
[filter:s3api]
use = egg:swift#s3api
s3_acl = no
location = us-east-1
storage_domain = localhost
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
user_other_reader = reading .admin
[filter:bulk]
use = egg:swift#bulk
[filter:copy]
use = egg:swift#copy
[filter:symlink]
use = egg:swift#symlink
[filter:versioned_writes]
use = egg:swift#versioned_writes
allow_object_versioning = true
[filter:slo]
use = egg:swift#slo
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
allow_account_management = true
client_chunk_size = 262144
object_chunk_size = 262144
""")
front = eventlet.listen(("127.0.0.1", 0))
port = front.getsockname()[1]
if len(sys.argv) > 4:
    front = eventlet.wrap_ssl(front, certfile=sys.argv[3], keyfile=sys.argv[4], server_side=True)
serve(loadapp(where + "/proxy.conf"), front)
eventlet.sleep(0)
write(os.path.abspath(port_file) + ".new", str(port))
os.rename(os.path.abspath(port_file) + ".new", port_file)
while True:
    eventlet.sleep(3600)
