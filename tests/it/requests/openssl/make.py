#!/usr/bin/env python3
"""Makes the requests of this directory. Needs Python 3.8 and OpenSSL 3; README.md says why and how."""

import base64
import os
import secrets
import subprocess
import tempfile

from weak_rsa import roca, small_factor

CONVENTION = "system:open-cluster-management"
ECDSA, RSA = "06082a8648ce3d0403", "06092a864886f70d0101"
ALGORITHMS = {  # DER content of the AlgorithmIdentifier, and the digest
    "ecdsa-sha1": ("06072a8648ce3d0401", "-sha1"),
    "ecdsa-sha256": (ECDSA + "02", "-sha256"),
    "ecdsa-sha384": (ECDSA + "03", "-sha384"),
    "ecdsa-sha512": (ECDSA + "04", "-sha512"),
    "rsa-sha1": (RSA + "050500", "-sha1"),
    "rsa-sha256": (RSA + "0b0500", "-sha256"),
    "rsa-sha384": (RSA + "0c0500", "-sha384"),
    "rsa-sha512": (RSA + "0d0500", "-sha512"),
    "rsa-pss": (RSA + "0a3034a00f300d06096086480165030402010500a11c301a06092a864886f70d010108300d0609608648016503040201"
                "0500a203020120", "-sha256"),
    "dsa-sha256": ("0609608648016503040302", "-sha256"),
    "ed448": ("06032b6571", None),
}


def tlv(tag, *parts):
    content = b"".join(parts)
    size = len(content)
    length = bytes([size]) if size < 128 else bytes([0x80 + (size.bit_length() + 7) // 8]) + size.to_bytes(
        (size.bit_length() + 7) // 8, "big")
    return bytes([tag]) + length + content


def unhex(text):
    return bytes.fromhex(text)


def attribute(kind, text):
    return tlv(0x30, unhex(kind), tlv(0x0C, text.encode()))


def content(public_key):
    groups = [f"{CONVENTION}:addon:telemetry", f"{CONVENTION}:cluster:spoke1:addon:telemetry"]
    subject = tlv(0x30, *[tlv(0x31, attribute("060355040a", group)) for group in groups],
                  tlv(0x31, attribute("0603550403", f"{CONVENTION}:cluster:spoke1:addon:telemetry:agent:telemetry")))
    names = tlv(0x30, tlv(0x82, b"telemetry.addon.open-cluster-management.io"))
    extension = tlv(0x30, unhex("0603551d11"), tlv(0x04, names))
    request = tlv(0x30, unhex("06092a864886f70d01090e"), tlv(0x31, tlv(0x30, extension)))
    return tlv(0x30, tlv(0x02, b"\0"), subject, public_key, tlv(0xA0, request))


def openssl(*arguments, data=None):
    return subprocess.run(["openssl", *arguments], input=data, capture_output=True, check=True).stdout


def sign(key, algorithm, data):
    _, digest = ALGORITHMS[algorithm]
    if digest is None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            return openssl("pkeyutl", "-sign", "-rawin", "-inkey", key, "-in", file.name)
    padding = ["-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:32"] if algorithm == "rsa-pss" else []
    return openssl("dgst", digest, *padding, "-sign", key, data=data)


def request(name, key, algorithm, *form):
    body = content(openssl("pkey", "-in", key, "-pubout", "-outform", "DER", *form))
    signature = tlv(0x03, b"\0", sign(key, algorithm, body))
    der = tlv(0x30, body, tlv(0x30, unhex(ALGORITHMS[algorithm][0])), signature)
    lines = base64.encodebytes(der).decode().replace("\n", "")
    text = "\n".join(lines[at:at + 64] for at in range(0, len(lines), 64))
    with open(f"{name}.pem", "w") as file:
        file.write(f"-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n")


def weak(primes, path):
    (p, q), e = primes, 65537
    d = pow(e, -1, (p - 1) * (q - 1))
    numbers = [0, p * q, e, d, p, q, d % (p - 1), d % (q - 1), pow(q, -1, p)]
    parts = [tlv(0x02, n.to_bytes(n.bit_length() // 8 + 1, "big")) for n in numbers]
    text = base64.encodebytes(tlv(0x30, *parts)).decode()
    with open(path, "w") as file:
        file.write(f"-----BEGIN RSA PRIVATE KEY-----\n{text}-----END RSA PRIVATE KEY-----\n")
    return path


def main():
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    with tempfile.TemporaryDirectory() as keys:
        def key(algorithm, *options):
            path = os.path.join(keys, secrets.token_hex(8))
            chosen = [word for option in options for word in ("-pkeyopt", option)]
            openssl("genpkey", "-quiet", "-algorithm", algorithm, *chosen, "-out", path)
            return path

        def ec(curve):
            return key("EC", f"ec_paramgen_curve:{curve}")

        def rsa(bits, *options):
            return key("RSA", f"rsa_keygen_bits:{bits}", *options)

        p256, rsa_2048 = ec("P-256"), rsa(2048)
        request("rsa-2048", rsa_2048, "rsa-sha256")
        request("rsa-3072", rsa(3072), "rsa-sha384")
        request("rsa-4096", rsa(4096), "rsa-sha512")
        request("p384-sha256", ec("P-384"), "ecdsa-sha256")
        request("p256-sha384", p256, "ecdsa-sha384")
        request("p256-sha512", p256, "ecdsa-sha512")
        request("p256-sha1", p256, "ecdsa-sha1")
        request("rsa-sha1", rsa_2048, "rsa-sha1")
        request("rsa-pss-signature", rsa_2048, "rsa-pss")
        request("p256-compressed", p256, "ecdsa-sha256", "-ec_conv_form", "compressed")
        request("p256-explicit", p256, "ecdsa-sha256", "-ec_param_enc", "explicit")
        request("p521", ec("P-521"), "ecdsa-sha512")
        request("secp256k1", ec("secp256k1"), "ecdsa-sha256")
        request("ed448", key("ED448"), "ed448")
        request("rsa-1024", rsa(1024), "rsa-sha256")
        request("rsa-2056", rsa(2056), "rsa-sha256")
        request("rsa-exponent-3", rsa(2048, "rsa_keygen_pubexp:3"), "rsa-sha256")
        request("rsa-pss-key", key("RSA-PSS", "rsa_keygen_bits:2048"), "rsa-pss")
        request("rsa-small-factor", weak(small_factor(), os.path.join(keys, "small")), "rsa-sha256")
        request("rsa-roca", weak(roca(), os.path.join(keys, "roca")), "rsa-sha256")
        dsa = os.path.join(keys, "dsa")
        openssl("dsaparam", "-genkey", "-out", dsa, "2048")
        request("dsa", dsa, "dsa-sha256")


main()
