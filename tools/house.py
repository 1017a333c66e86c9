#!/usr/bin/env python3
"""Counts what makes the code hard to take over: wide structs, small files, imports against the order of modules.

    tools/house.py            the table
    tools/house.py -v         and which structs, files and imports are counted

Lines of tests are those of tests/, crates/test-kit, files `tests.rs` or under `tests/`, what only tests declare, and what
follows `#[cfg(test)]`.
Fields are those of structs with named fields; "arguments" are structs that derive clap's Args or Parser.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HUB = ROOT / "crates/hub/src"
SMALL = 60


def sources():
    """All files of the product and of its tests, with whether they are tests."""
    for folder in [ROOT / "src", ROOT / "tests", *sorted((ROOT / "crates").iterdir())]:
        for path in sorted(folder.rglob("*.rs")):
            parts = path.relative_to(ROOT).parts
            is_test = "tests" in parts or path.name == "tests.rs" or "test-kit" in parts
            yield path, is_test or is_only_for_tests(path)


def is_only_for_tests(path):
    """Whether a module above declares the file, or the folder that it is in, with `#[cfg(test)]`."""
    if path.name in ("lib.rs", "main.rs"):
        return False
    of = path.parent if path.name == "mod.rs" else path
    above = [of.parent / "mod.rs", of.parent / "lib.rs"]
    declared = re.compile(rf"#\[cfg\(test\)\]\n(?:pub(?:\(.*?\))? )?mod {of.stem};")
    there = [file for file in above if file.exists()]
    return any(declared.search(file.read_text()) or is_only_for_tests(file) for file in there)


def split(path, is_test):
    """The text of the product and that of tests in a file."""
    text = path.read_text()
    if is_test:
        return "", text
    at = re.search(r"^#\[cfg\(test\)\]\n(?!.*;$)", text, re.M)
    return (text, "") if at is None else (text[: at.start()], text[at.start() :])


def structs(text):
    """Each struct with named fields: its name, how many fields it has, and whether it is for arguments."""
    name, count, attributes = None, 0, ""
    for line in text.splitlines():
        begins = re.match(r"(?:pub(?:\(.*?\))? )?struct (\w+).*\{$", line)
        if begins:
            name, count = begins.group(1), 0
        elif name and line == "}":
            yield name, count, bool(re.search(r"derive\(.*\b(Args|Parser)\b", attributes))
            name = None
        elif name:
            count += bool(re.match(r"    (?:pub(?:\(.*?\))? )?(?:r#)?\w+: ", line))
        else:
            attributes = attributes + line if line.startswith(("#[", "//")) else ""


def imports_of_hub():
    """The imports between the modules of the hub, and those against the order of the modules in lib.rs."""
    order = re.findall(r"^(?:pub )?mod (\w+);", (HUB / "lib.rs").read_text(), re.M)
    found = defaultdict(list)
    for path, is_test in sources():
        if HUB not in path.parents or path.name == "lib.rs":
            continue
        module = path.relative_to(HUB).parts[0].removesuffix(".rs")
        for other in re.findall(r"\bcrate::(\w+)", split(path, is_test)[0]):
            if other in order and other != module:
                found[module, other].append(path.relative_to(HUB))
    against = {edge: paths for edge, paths in found.items() if order.index(edge[0]) < order.index(edge[1])}
    return found, against


def main():
    product, tests, hub, small, wide, hub_files = 0, 0, 0, [], [], 0
    fields = {}
    for path, is_test in sources():
        text, test = split(path, is_test)
        lines = text.count("\n")
        product += lines
        tests += test.count("\n")
        if HUB in path.parents:
            hub += lines
            hub_files += 1
        if text and lines < SMALL:
            small.append((lines, path.relative_to(ROOT)))
        for name, count, is_arguments in structs(text):
            if name in ("Supervisor", "LineageReconciler"):
                fields[name] = count
            if not is_arguments:
                wide.append((count, name, path.relative_to(ROOT)))
    imports, against = imports_of_hub()
    wide.sort(reverse=True, key=lambda it: it[0])
    rows = [
        ("fields of Supervisor, LineageReconciler", f"{fields.get('Supervisor', '-')}, {fields.get('LineageReconciler', '-')}"),
        ("largest struct outside of arguments", f"{wide[0][0]} ({wide[0][1]})"),
        ("product lines of crates/hub", f"{hub:,}"),
        ("files in crates/hub/src", hub_files),
        (f"product files under {SMALL} lines", len(small)),
        ("imports inside crates/hub against the order of its modules", f"{len(against)} of {len(imports)}"),
        ("product lines", f"{product:,}"),
        ("test lines", f"{tests:,}"),
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")
    if "-v" in sys.argv[1:]:
        print("\nwide structs")
        for count, name, path in wide[:12]:
            print(f"  {count:>3}  {name:<24} {path}")
        print("\nimports against the order")
        for (one, other), paths in sorted(against.items()):
            print(f"  {one} -> {other}: {', '.join(sorted({str(path) for path in paths}))}")
        print("\nsmall files")
        for lines, path in sorted(small):
            print(f"  {lines:>3}  {path}")


if __name__ == "__main__":
    main()
