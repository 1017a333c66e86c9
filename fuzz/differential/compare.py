"""Compares what our parser read with what Go, OpenSSL and Python's cryptography read.

Arguments: the lines of `differential`, those of `read.go`, the CA's certificate. Ends with status 1 if one of them
cannot read a request or a certificate, or reads something else.
"""

import base64
import collections
import concurrent.futures
import ipaddress
import json
import re
import subprocess
import sys
import warnings

import cryptography
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

# Names of the convention are longer than RFC 5280's 64 characters, which OCM has always ignored.
warnings.filterwarnings("ignore", message="Attribute's length must be")

FIELDS = ("cn", "o", "ou", "key", "dns", "ip")
OIDS = {"cn": NameOID.COMMON_NAME, "o": NameOID.ORGANIZATION_NAME, "ou": NameOID.ORGANIZATIONAL_UNIT_NAME}


def with_python(thing):
    """What Python's cryptography reads of a request or a certificate."""
    read = {name: [a.value for a in thing.subject.get_attributes_for_oid(oid)] for name, oid in OIDS.items()}
    key = thing.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    read["key"] = base64.b64encode(key).decode()
    for extension in thing.extensions:
        extension.value  # Reads it.
    try:
        names = thing.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return read | {"dns": [], "ip": []}
    dns = names.get_values_for_type(x509.DNSName)
    return read | {"dns": dns, "ip": [str(ip) for ip in names.get_values_for_type(x509.IPAddress)]}


def python_request(text):
    request = x509.load_pem_x509_csr(text)
    if not request.is_signature_valid:
        raise ValueError("the signature is not valid")
    return with_python(request)


def python_certificate(der, anchor):
    leaf = x509.load_der_x509_certificate(der)
    leaf.verify_directly_issued_by(anchor)
    return with_python(leaf)


def openssl(arguments, text):
    done = subprocess.run(["openssl", *arguments], input=text, capture_output=True, check=False)
    if done.returncode != 0 or b"verify failure" in done.stderr.lower():
        raise ValueError(done.stderr.decode(errors="replace").strip())
    return done.stdout.decode()


def with_openssl(kind, text):
    """What `openssl req` or `openssl x509` prints."""
    forms = ["-nameopt", "oid,sep_multiline,utf8", "-noout", "-subject", "-pubkey", "-text"]
    forms += ["-certopt", "no_header,no_validity,no_issuer,no_sigdump"] if kind == "x509" else ["-verify"]
    printed = openssl([kind, *forms], text)
    subject = re.search(r"^subject=(.*(?:\n    .*)*)", printed, re.MULTILINE).group(1)
    pairs = [pair.strip().split("=", 1) for line in subject.splitlines() for pair in line.split(" + ") if pair.strip()]
    read = {name: [value for oid, value in pairs if oid == wanted.dotted_string] for name, wanted in OIDS.items()}
    key = re.search(r"-----BEGIN PUBLIC KEY-----\n(.*?)-----END", printed, re.DOTALL).group(1)
    read["key"] = key.replace("\n", "")
    names = re.search(r"Subject Alternative Name:.*\n\s*(.*)", printed)
    names = [name.strip().split(":", 1) for name in names.group(1).split(",")] if names else []
    read["dns"] = [value for kind, value in names if kind == "DNS"]
    read["ip"] = [str(ipaddress.ip_address(value)) for kind, value in names if kind == "IP Address"]
    return read


def attempt(reader, *arguments):
    """What a reader read, or its error."""
    try:
        return reader(*arguments)
    except Exception as error:  # pylint: disable=broad-except  # Any error of a reader is a result.
        # Without what is quoted of the input, so that the same errors count together.
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        return {"error": re.sub(r'"[^"]*"?|https://\S*', "…", text)[:200]}


def difference(expected, read):
    """What differs, in a few words."""
    if read.get("error"):
        return f"cannot read it: {read['error']}"
    differing = [field for field in FIELDS if expected[field] != read[field]]
    return f"reads another {', '.join(differing)}" if differing else None


def compare(line, go, anchor):
    """All differences about one mutant."""
    request = base64.b64decode(line["request"])
    der = base64.b64decode(line["certificate"])
    issued = dict(line["read"])
    # The names of the certificate are those of the convention, and it has each once.
    serving = line["serving"]
    name = "gateway.addon-signer.example.com" if serving else "telemetry.addon.open-cluster-management.io"
    issued["dns"] = [name]
    issued["ip"] = ["192.0.2.10"] if serving else []
    pem = b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(der) + b"-----END CERTIFICATE-----\n"
    readings = [
        ("Go", "request", line["read"], go["request"]),
        ("Go", "certificate", issued, go["certificate"]),
        ("Python", "request", line["read"], attempt(python_request, request)),
        ("Python", "certificate", issued, attempt(python_certificate, der, anchor)),
        ("OpenSSL", "request", line["read"], attempt(with_openssl, "req", request)),
        ("OpenSSL", "certificate", issued, attempt(with_openssl, "x509", pem)),
    ]
    found = [(who, what, difference(expected, read)) for who, what, expected, read in readings]
    return [(who, what, text) for who, what, text in found if text]


def main():
    mutants, answers, ca = sys.argv[1:]
    with open(mutants, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    with open(answers, encoding="utf-8") as file:
        go = [json.loads(line) for line in file]
    with open(ca, "rb") as file:
        anchor = x509.load_pem_x509_certificate(file.read())
    assert len(lines) == len(go), "Go answered about every mutant"
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda pair: compare(*pair, anchor), zip(lines, go)))
    kinds = collections.defaultdict(list)
    for line, differences in zip(lines, results):
        for kind in differences:
            kinds[kind].append(line)
    for (who, what, text), examples in sorted(kinds.items(), key=lambda item: -len(item[1])):
        example = examples[0]
        last = collections.Counter(line["changes"][-1] for line in examples).most_common(4)
        print(f"{len(examples)} x {who}, {what}: {text}")
        print(f"  e.g. mutant {example['number']} of {example['of']}; last changes: "
              f"{', '.join(f'{name} ({count})' for name, count in last)}")
    version = openssl(["version"], b"").split()[1]
    print(f"{len(lines)} approved mutants, {sum(1 for found in results if found)} of them with a difference "
          f"(OpenSSL {version}, cryptography {cryptography.__version__})")
    sys.exit(1 if kinds else 0)


if __name__ == "__main__":
    main()
