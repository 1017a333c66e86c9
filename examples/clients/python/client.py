"""Sends a request to the gateway with the addon's certificate, and prints the response. With --every it goes on, and
takes each new certificate and trust bundle without a restart.

    client.py --certificates DIR [--method POST --data BODY] [--every 2] https://GATEWAY/addons/ADDON/PATH
"""

import argparse
import http.client
import pathlib
import signal
import ssl
import sys
import time
from urllib.parse import urlsplit


class Credentials:
    """A TLS context of the files in a directory, such as the mounted Secret that addon-signer-agent keeps."""

    def __init__(self, directory):
        self.pair = [pathlib.Path(directory, name) for name in ("tls.crt", "tls.key")]
        self.anchors = pathlib.Path(directory, "ca.crt")
        self.known = self.context = None

    def current(self):
        """A context keeps what it was made from, so there is a new one once the files have changed."""
        try:
            found = [file.read_bytes() for file in (*self.pair, self.anchors)]
            if found != self.known:
                # It verifies the gateway's certificate and its host name. Whatever was replaced since the files were
                # read is seen by the next comparison.
                context = ssl.create_default_context(cafile=self.anchors)
                context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # an anchor may be below a company's root
                context.load_cert_chain(*self.pair)
                self.context, self.known = context, found
                print("read the certificate and the trust bundle", flush=True)
        except OSError as error:  # ssl.SSLError is one
            # Perhaps the files are being replaced, and the key is another certificate's. The old pair is still good.
            if self.context is None:
                raise
            print(f"cannot use the new files: {error}", file=sys.stderr, flush=True)
        return self.context


def send(url, method, data, context):
    """Sends one request on a new connection, and returns the response. A refusal's body is the problem: it says why."""
    connection = http.client.HTTPSConnection(url.hostname, url.port, context=context, timeout=30)
    try:
        connection.request(method, (url.path or "/") + ("?" + url.query if url.query else ""), data)
        # It fails if the gateway does not trust the certificate: in TLS 1.3 its alert comes after the handshake.
        response = connection.getresponse()
        text = f"{response.status} {response.read(65536).decode(errors='replace').strip()}"
    finally:
        connection.close()
    if response.status >= 400:
        raise OSError(text)
    return text


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--certificates", required=True, metavar="DIR", help="with tls.crt, tls.key and ca.crt")
    arguments.add_argument("--method", default="GET")
    arguments.add_argument("--data", metavar="BODY")
    arguments.add_argument("--every", type=float, default=0, metavar="SECONDS")
    arguments.add_argument("url", type=urlsplit)
    given = arguments.parse_args()
    # The first process of a container ends only by signals that it handles.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    credentials = Credentials(given.certificates)
    while True:
        failed = False
        try:
            print(send(given.url, given.method, given.data, credentials.current()), flush=True)
        except (OSError, http.client.HTTPException) as error:
            print(f"failed: {error}", flush=True)
            failed = True
        if not given.every:
            sys.exit(failed)
        time.sleep(given.every)


if __name__ == "__main__":
    main()
