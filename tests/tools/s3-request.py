#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""One signed request to an S3 service, for tests: s3-request.py METHOD URL [FILE [NAME:VALUE...]]

The body is FILE's, the response goes to stdout; each NAME:VALUE is a header.

The keys are those of swift-s3.py. Exits with 1 if the status is not 2xx.
"""
import datetime
import hashlib
import hmac
import ssl
import sys
import urllib.error
import urllib.parse
import urllib.request

method, url = sys.argv[1:3]
body = open(sys.argv[3], "rb").read() if len(sys.argv) > 3 else b""
access, secret, region = "test:tester", "testing", "us-east-1"
u = urllib.parse.urlsplit(url)
now = datetime.datetime.utcnow().strftime("%Y%m%dT%H%M%SZ")
digest = hashlib.sha256(body).hexdigest()
scope = f"{now[:8]}/{region}/s3/aws4_request"
query = "&".join(sorted(urllib.parse.urlencode([p], quote_via=urllib.parse.quote, safe="-_.~")
                        for p in urllib.parse.parse_qsl(u.query, keep_blank_values=True)))
headers = {"host": u.netloc, "x-amz-content-sha256": digest, "x-amz-date": now,
           **dict(h.split(":", 1) for h in sys.argv[4:])}
names = ";".join(sorted(headers))
canonical = f"{method}\n{u.path}\n{query}\n" + "".join(f"{n}:{headers[n]}\n" for n in sorted(headers)) + f"\n{names}\n{digest}"
text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
key = ("AWS4" + secret).encode()
for part in scope.split("/"):
    key = hmac.new(key, part.encode(), hashlib.sha256).digest()
sign = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
request = urllib.request.Request(url, data=body if method == "PUT" else None, method=method, headers={
    **{n: v for n, v in headers.items() if n != "host"}, "Content-Type": "application/octet-stream",
    "Authorization": f"AWS4-HMAC-SHA256 Credential={access}/{scope},SignedHeaders={names},Signature={sign}"})
unchecked = ssl.create_default_context()
unchecked.check_hostname = False
unchecked.verify_mode = ssl.CERT_NONE
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=unchecked))
try:
    sys.stdout.buffer.write(opener.open(request, timeout=30).read())
except urllib.error.HTTPError as e:
    sys.exit(f"{method} {url}: {e.code}: {e.read().decode(errors='replace')[:400]}")
