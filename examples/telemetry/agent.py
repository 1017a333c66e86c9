"""Pushes a line every few seconds. It uses nothing but the Secret that OCM's agent keeps (tls.crt, tls.key) and the
ConfigMap that a ManifestWork brings (ca.crt), and notices by itself when either has changed."""

import http.client
import os
import pathlib
import signal
import ssl
import sys
import time
from urllib.parse import urlsplit

url = urlsplit(os.environ["PUSH_URL"])  # https://GATEWAY/addons/ADDON/PATH
pair, trust = pathlib.Path(os.environ["CERTIFICATES"]), pathlib.Path(os.environ["TRUST"])
certificate, key, anchors = pair / "tls.crt", pair / "tls.key", trust / "ca.crt"

# The first process of a container ends only by signals that it handles.
signal.signal(signal.SIGTERM, lambda *_: sys.exit())


def reload(context, known):
    """Returns the TLS context for the present files, and what is in them. A context keeps what it was made from, and
    nobody says that this was renewed: kubelet swaps the mounted files, up to a minute after the Secret has changed."""
    try:
        found = [file.read_bytes() for file in (certificate, key, anchors)]
        if found == known:
            return context, known
        fresh = ssl.create_default_context(cafile=anchors)
        fresh.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # an anchor may be below a company's root
        fresh.load_cert_chain(certificate, key)
    except OSError:  # ssl.SSLError is one
        # The files were swapped between two reads, so key and certificate do not fit. The old ones are still good; the
        # next call tries again.
        if context is None:
            raise
        return context, known
    print("read the certificate and the trust bundle", flush=True)
    return fresh, found


def push(context):
    connection = http.client.HTTPSConnection(url.hostname, url.port or 443, context=context, timeout=10)
    try:
        connection.request("POST", url.path, "temperature 21.5\n")
        response = connection.getresponse()
        if response.status >= 300:  # the body says why
            raise OSError(f"{response.status} {response.read(65536).decode(errors='replace')}")
    finally:
        connection.close()


context, known = None, None
while True:
    try:
        context, known = reload(context, known)
        push(context)
        print("pushed", flush=True)
    except (OSError, http.client.HTTPException) as error:
        print(f"failed: {error}", flush=True)
    time.sleep(2)
