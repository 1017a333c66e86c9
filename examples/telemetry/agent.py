"""Pushes a line every few seconds. It uses nothing but the Secret that OCM's agent keeps (tls.crt, tls.key) and the
ConfigMap that a ManifestWork brings (ca.crt), and reads both again for each push."""

import http.client
import os
import signal
import ssl
import sys
import time
from urllib.parse import urlsplit

url = urlsplit(os.environ["PUSH_URL"])  # https://GATEWAY/addons/ADDON/PATH
pair, trust = os.environ["CERTIFICATES"], os.environ["TRUST"]

# The first process of a container ends only by signals that it handles.
signal.signal(signal.SIGTERM, lambda *_: sys.exit())


def push():
    context = ssl.create_default_context(cafile=f"{trust}/ca.crt")
    context.load_cert_chain(f"{pair}/tls.crt", f"{pair}/tls.key")
    connection = http.client.HTTPSConnection(url.hostname, url.port or 443, context=context, timeout=10)
    try:
        connection.request("POST", url.path, "temperature 21.5\n")
        status = connection.getresponse().status
    finally:
        connection.close()
    if status >= 300:
        raise OSError(f"the gateway answered {status}")


while True:
    try:
        push()
        print("pushed", flush=True)
    except (OSError, http.client.HTTPException) as error:
        print(f"failed: {error}", flush=True)
    time.sleep(2)
