#!/usr/bin/env python3
"""Checks a ledger of addon-signer without addon-signer.

  check.py FILE... [--head HEAD.json] [--archives ARCHIVES.txt]

FILE is a SQLite ledger, or a text file with one entry per line: an archive, or what

  psql -AtX -c 'SELECT entry FROM entries ORDER BY seq' URL > entries.txt

prints of a ledger in PostgreSQL. Several files are one ledger, oldest first: archives, then what is left. If a ledger in PostgreSQL
has archives, name what this prints, too:

  psql -AtX -c "SELECT through, encode(hash, 'hex') FROM archives ORDER BY through" URL > archives.txt

Checked: the numbers of the entries, their one form, the hash of each in the next one, the hash stored beside each (SQLite),
times and epochs, where archives end, the index of certificates (SQLite), and with --head that the row which a published checkpoint
vouches for is in one of the files. Without a checkpoint a ledger that was rewritten, cut off or emptied as a whole looks good. Whose key
signed the checkpoint is for you to know: it is printed.

Exit code: 0 the ledger is good; 1 it is not, and one line names the first bad row; 2 the files cannot be read or the
arguments are wrong. Written against docs/ledger-format.md; needs Python 3.8 and nothing else.
"""

import argparse
import base64
import binascii
import contextlib
import datetime
import hashlib
import itertools
import json
import re
import sqlite3
import sys

ZERO = "0" * 64
MEMBERS = ["seq", "previous", "time", "kind", "epoch", "replica", "actor", "details"]
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)


class Bad(Exception):
    """A row that is not what it must be; `row` is None where the checkpoint itself is bad."""

    def __init__(self, row, problem):
        super().__init__(f"row {row}: {problem}" if row is not None else f"the checkpoint: {problem}")


class Unreadable(Exception):
    """A file that is not what it was given as."""


# ---- entries


def seconds(text):
    """Unix seconds of an RFC 3339 time in UTC without fractions; None for anything else."""
    if not TIME.fullmatch(text):
        return None
    try:
        parsed = datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        return None
    return int(parsed.replace(tzinfo=datetime.timezone.utc).timestamp())


def canonical(entry):
    """The one text of an entry."""
    ordered = {name: entry[name] for name in MEMBERS}
    ordered["details"] = dict(sorted(entry["details"].items()))
    return json.dumps(ordered, ensure_ascii=False, separators=(",", ":"))


def is_count(value):
    return type(value) is int and 0 <= value < 1 << 64


def parse(row, text):
    """The entry that a text is."""
    try:
        entry = json.loads(text)
    except ValueError as error:
        raise Bad(row, f"it is not an entry: {error}") from None
    if not isinstance(entry, dict) or set(entry) != set(MEMBERS) or not isinstance(entry["details"], dict):
        raise Bad(row, "it is not an entry: its members are not those of an entry")
    strings = [entry[name] for name in MEMBERS if name not in ("seq", "epoch", "details")]
    strings += entry["details"].values()
    if not all(isinstance(value, str) for value in strings) or not is_count(entry["seq"]) or not is_count(entry["epoch"]):
        raise Bad(row, "it is not an entry: a member has the wrong type")
    if canonical(entry) != text:
        raise Bad(row, "it is not in the canonical form of an entry")
    return entry


# ---- the chain


class Chain:
    """What was checked so far."""

    def __init__(self, checkpoint, archives):
        self.seq, self.hash, self.time, self.epoch = 0, ZERO, 0, 0
        self.begun = 0  # rows up to this one are in files that are not here
        self.first = None
        self.ledger = None
        self.checkpoint = checkpoint
        self.archives = archives  # the last row of each archive -> its hash; None where nothing says so
        self.checkpoint_keys = []  # seq of a `head-key` entry, its key
        self.expected = {}  # intent's seq -> [state, seq of its `signed` entry]
        self.by_serial = {}  # serial number -> seq of the last intent that has it

    def through(self):
        """The last row that is in an archive, by the ledger's word."""
        return max(self.archives or {0: ZERO})

    def begins(self, first):
        """Checks the table of archives against the first row of what is left, which is None where nothing is."""
        for row, digest in sorted((self.archives or {}).items()):
            if len(digest) != len(ZERO):
                raise Bad(row, "an archive ends with it, but what the ledger recorded as the hash of that archive is not a hash")
        through = self.through()
        if first is None and through > 0:
            raise Bad(through + 1, f"it and all later rows are missing: the ledger is empty, and says that its rows up to {through} are in archives")
        if first is not None and first <= through:
            raise Bad(first, f"it is here, and the ledger says that its rows up to {through} are in archives")

    def begin_at(self, row):
        """The rows before `row` are in files that are not here, if the ledger says so."""
        if self.first is None and row > 1 and row - 1 in (self.archives or {}):
            self.begun = self.seq = row - 1
            self.hash = self.archives[self.seq]

    def ends_archive(self):
        if self.archives is not None and self.archives.get(self.seq) != self.hash:
            raise Bad(self.seq, "an archive ends with it, and the ledger knows no archive that does")

    def follow(self, seq, text, stored):
        """Checks the next row. `seq` and `stored` are None where the source has the texts alone."""
        expected = self.seq + 1
        row = expected if seq is None else seq
        if row != expected:
            raise Bad(expected, f"it is missing; after row {self.seq} comes row {row}")
        digest = hashlib.sha256(text).hexdigest()
        if stored is not None and stored != digest:
            raise Bad(row, "its text does not have the hash that is stored beside it")
        try:
            entry = parse(row, text.decode("utf-8"))
        except UnicodeDecodeError:
            raise Bad(row, "it is not an entry: it is not UTF-8") from None
        if entry["seq"] != row:
            if seq is None and entry["seq"] > row:
                raise Bad(row, f"it is missing; after row {self.seq} comes row {entry['seq']}")
            raise Bad(row, f"its text claims to be row {entry['seq']}")
        self.link(row, entry, digest)
        self.remember(row, entry)

    def link(self, row, entry, digest):
        if entry["previous"] != self.hash:
            if row == 1:
                raise Bad(1, "it is the first row, but names a row before it")
            raise Bad(self.seq, "it was altered: the row after it holds another hash of it")
        time = seconds(entry["time"])
        if time is None or time < self.time:
            raise Bad(row, f"its time {entry['time']!r} is not a time, or is earlier than that of the row before it")
        if entry["epoch"] < self.epoch:
            raise Bad(row, f"its epoch {entry['epoch']} is less than that of the row before it")
        if self.checkpoint and self.checkpoint["seq"] == row:
            self.compare(row, digest)
        self.first = self.first or row
        self.seq, self.hash, self.time, self.epoch = row, digest, time, entry["epoch"]

    def compare(self, row, digest):
        if self.checkpoint["hash"] != digest:
            raise Bad(row, f"it is not the row that the checkpoint of {self.checkpoint['time']} vouches for: "
                           "it or rows before it were rewritten")

    def remember(self, row, entry):
        kind, details = entry["kind"], entry["details"]
        serial = details.get("serial")
        if kind == "opened":
            self.ledger = details.get("ledger")
        elif kind == "head-key":
            self.checkpoint_keys.append((row, details.get("key")))
        elif kind == "intent":
            self.expected[row] = ["intent", None]
            self.by_serial[serial] = row
        elif kind in ("signed", "abandoned", "unpublished") and serial in self.by_serial:
            expected = self.expected[self.by_serial[serial]]
            expected[0] = kind
            if kind == "signed":
                expected[1] = row

    def end(self):
        checkpoint = self.checkpoint
        if not checkpoint:
            return
        if checkpoint["seq"] > self.seq:
            raise Bad(self.seq + 1, f"it and all later rows are missing: the ledger ends at row {self.seq}, "
                                    f"and the checkpoint vouches for row {checkpoint['seq']}")
        if checkpoint["seq"] <= self.begun:
            raise Bad(checkpoint["seq"], "the checkpoint vouches for it, but it is not here: the ledger says that its rows up to "
                                         f"{self.begun} are in archives; name the archive that has it, and all later ones, before the ledger")

    def judge_checkpoint(self):
        """Whether the checkpoint is of this ledger, and signed with the key that the ledger named last before it."""
        checkpoint = self.checkpoint
        if self.ledger not in (None, checkpoint["ledger"]):
            raise Bad(None, f"it is of ledger {checkpoint['ledger']}, and this one is {self.ledger}")
        named = [key for row, key in self.checkpoint_keys if row <= checkpoint["seq"]]
        unknown = checkpoint["key"] != named[-1] if named else self.first == 1
        if unknown:
            raise Bad(None, "it is signed with a key that the ledger does not name for it")


# ---- the index of certificates


def check_index(database, chain):
    """Each row of `certificates` against the entry that it was made from; what became of it is in later entries."""
    query = """SELECT c.seq, e.entry, c.uid, c.request, c.signer, c.cluster, c.addon, c.agent, c.issuer, c.serial,
        c.not_before, c.not_after, c.requested, c.state, c.signed_seq,
        EXISTS (SELECT 1 FROM unfinished WHERE unfinished.seq = c.seq) FROM certificates c LEFT JOIN entries e ON e.seq = c.seq
        ORDER BY c.seq"""
    begin = first_row(database)
    intents = [row for row in chain.expected if row >= begin]
    for intent, row in itertools.zip_longest(intents, database.execute(query)):
        if row is None or (intent is not None and intent < row[0]):
            raise Bad(intent, "it is an intent, and the index of certificates does not have it")
        seq, entry, *values = row
        if seq != intent:
            raise Bad(seq, "the index of certificates has it, and there is no such intent")
        check_index_row(seq, json.loads(entry)["details"], values)
        check_state(seq, chain.expected[seq], values[-3:])
    orphan = "SELECT seq FROM unfinished WHERE seq NOT IN (SELECT seq FROM certificates) ORDER BY seq"
    for (seq,) in database.execute(orphan):
        raise Bad(seq, "it is one of the unfinished, and no certificate")


def check_index_row(seq, details, values):
    names = ["uid", "request", "signer", "cluster", "addon", "agent", "issuer", "serial"]
    wanted = [details.get(name) for name in names]
    wanted += [seconds(details.get("not-before", "")), seconds(details.get("not-after", ""))]
    wanted += [seconds(details.get("requested", ""))]
    for name, want, have in zip(names + ["not_before", "not_after", "requested"], wanted, values):
        have = have.decode() if isinstance(have, bytes) else have
        if want != have:
            raise Bad(seq, f"the index of certificates says something else about it: {name} is {have!r}")


def check_state(seq, expected, found):
    (want, signed), (have, have_signed, unfinished) = expected, (found[0].decode(), *found[1:])
    # That a certificate was published is in the index alone.
    if have != want and (want, have) != ("signed", "published"):
        raise Bad(seq, f"the index of certificates says something else about it: its state is {have}, and not {want}")
    if bool(unfinished) != (have in ("intent", "signed")):
        listed = "one of" if unfinished else "none of"
        raise Bad(seq, f"the index of certificates says something else about it: its state is {have}, and it is {listed} the unfinished")
    if have_signed != signed:
        raise Bad(seq, f"the index of certificates says something else about it: signed_seq is {have_signed}")


def first_row(database):
    return database.execute("SELECT COALESCE(MIN(seq), 0) FROM entries").fetchone()[0]


# ---- checkpoints


def read_checkpoint(path):
    """A checkpoint whose signature is good."""
    try:
        with open(path, encoding="utf-8") as file:
            checkpoint = json.load(file)
    except (OSError, ValueError) as error:
        raise Unreadable(f"{path}: {error}") from None
    names = {"ledger", "seq", "hash", "time", "key", "signature"}
    if not isinstance(checkpoint, dict) or set(checkpoint) != names or not is_count(checkpoint["seq"]):
        raise Bad(None, "it has not the members of a checkpoint")
    try:
        key = base64.b64decode(checkpoint["key"], validate=True)
        signature = base64.b64decode(checkpoint["signature"], validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise Bad(None, "its key or its signature is not base64") from None
    if len(key) != 44 or not key.startswith(ED25519_SPKI):
        raise Bad(None, "its key is not an Ed25519 key")
    message = f"addon-signer ledger head v1\n{checkpoint['ledger']}\n{checkpoint['seq']}\n{checkpoint['hash']}\n{checkpoint['time']}\n"
    if not verify(key[len(ED25519_SPKI):], message.encode(), signature):
        raise Bad(None, "its signature is not valid")
    return checkpoint


# Ed25519 (RFC 8032 section 5.1). Points are (X, Y, Z, T) with x = X/Z, y = Y/Z, x*y = T/Z (section 5.1.4).

ED25519_SPKI = bytes.fromhex("302a300506032b6570032100")  # RFC 8410: all of a SubjectPublicKeyInfo but the key
P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
ROOT_OF_MINUS_ONE = pow(2, (P - 1) // 4, P)


def add(p, q):
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def times(scalar, point):
    product = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            product = add(product, point)
        point, scalar = add(point, point), scalar >> 1
    return product


def same(p, q):
    return (p[0] * q[2] - q[0] * p[2]) % P == 0 and (p[1] * q[2] - q[1] * p[2]) % P == 0


def decode(encoded):
    """The point of 32 bytes (section 5.1.3); None if there is none."""
    y = int.from_bytes(encoded, "little")
    sign, y = y >> 255, y & ((1 << 255) - 1)
    if y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * ROOT_OF_MINUS_ONE % P
    if x * x % P != square or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = P - x
    return x, y, 1, x * y % P


BASE = decode((4 * pow(5, -1, P) % P).to_bytes(32, "little"))


def verify(key, message, signature):
    """Section 5.1.7."""
    if len(signature) != 64:
        return False
    public, r, s = decode(key), decode(signature[:32]), int.from_bytes(signature[32:], "little")
    if public is None or r is None or s >= ORDER:
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % ORDER
    return same(times(s, BASE), add(r, times(k, public)))


# ---- files


def is_sqlite(path):
    with open(path, "rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def lines(path):
    with open(path, "rb") as file:
        yield from (line.rstrip(b"\n") for line in file)


def first_of_lines(path):
    """The number of the first entry in a file; None if the file is empty. What is none is found when it is followed."""
    for line in lines(path):
        try:
            entry = json.loads(line)
            return entry["seq"] if is_count(entry["seq"]) else 1
        except (ValueError, TypeError, KeyError):
            return 1
    return None


def check_lines(path, chain):
    chain.begin_at(first_of_lines(path) or 1)
    for line in lines(path):
        chain.follow(None, line, None)


def open_database(path):
    place = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    database = sqlite3.connect(f"file:{place}?mode=ro", uri=True)
    database.text_factory = bytes
    database.execute("BEGIN")  # one moment of a ledger that is written to
    return database


def check_rows(database, chain):
    chain.begin_at(chain.through() + 1)
    rows = "SELECT seq, CAST(entry AS BLOB), CAST(hash AS BLOB) FROM entries WHERE seq > ? ORDER BY seq"
    for seq, text, digest in database.execute(rows, (chain.seq,)):
        chain.follow(seq, text, digest.hex())


def read_archives(path):
    """The table `archives` of a ledger in PostgreSQL."""
    rows = (line.decode("utf-8", "replace").split("|") for line in lines(path))
    try:
        return {int(through): digest for through, digest in rows}
    except ValueError:
        raise Unreadable(f"{path}: a line is not THROUGH|HASH") from None


def check(options):
    """Checks all files; returns the chain."""
    *archives, last = options.files
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(contextlib.closing(open_database(last))) if is_sqlite(last) else None
        table = read_archives(options.archives) if options.archives else None
        if database:
            table = {through: digest.hex() for through, digest in database.execute("SELECT through, hash FROM archives")}
        chain = Chain(read_checkpoint(options.checkpoint) if options.checkpoint else None, table)
        chain.begins(database.execute("SELECT MIN(seq) FROM entries").fetchone()[0] if database else first_of_lines(last))
        for path in archives:
            check_lines(path, chain)
            chain.ends_archive()
        if archives and chain.seq < chain.through():
            raise Bad(chain.seq + 1, f"it and the rows up to {chain.through()} are in a later archive; name that one, too")
        check_rows(database, chain) if database else check_lines(last, chain)
        chain.end()
        if database:
            check_index(database, chain)
        if chain.checkpoint:
            chain.judge_checkpoint()
        return chain


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", metavar="FILE", nargs="+", help="a SQLite ledger, or entries line by line")
    parser.add_argument("--head", dest="checkpoint", metavar="HEAD.json", help="a published checkpoint; its signature is checked")
    parser.add_argument("--archives", metavar="ARCHIVES.txt", help="where the archives of a ledger in PostgreSQL end")
    options = parser.parse_args(arguments)
    try:
        chain = check(options)
    except Bad as bad:
        print(f"bad: {bad}")
        return 1
    except (OSError, sqlite3.Error, Unreadable) as error:
        print(f"check.py: {error}", file=sys.stderr)
        return 2
    print(f"good: rows {chain.first or 0} to {chain.seq}, the last has the hash {chain.hash}")
    if chain.begun:
        print(f"rows 1 to {chain.begun} are in archives and were not checked: name these before the ledger")
    if chain.checkpoint:
        checkpoint = chain.checkpoint
        print(f"good: the checkpoint of {checkpoint['time']} vouches for the rows up to {checkpoint['seq']}; its key is {checkpoint['key']}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
