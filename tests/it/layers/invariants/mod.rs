//! The invariants, what the boundaries of `SECURITY.md` rest on, and for each the tests that fail when its check is
//! removed. `docs/invariants.md` is made of these tables: `UPDATE_GOLDEN=1 cargo test --test it layers::invariants`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use super::{all_code, named_tests, root};

mod gateway;
mod hub;
mod program;
mod store;

const DOCUMENT: &str = "docs/invariants.md";
/// More tests than this for one row say less.
const MOST_TESTS: usize = 4;

const TOP: &str = "\
# Invariants

Made from the tables in `tests/it/layers/invariants`; do not edit it. The tests named in a row fail when what the row
says no longer holds. `cargo test --test it layers::invariants` checks that they exist, and that this page and
[SECURITY.md](../SECURITY.md), which refers to the numbers, agree with the tables. [limits.md](limits.md) has the
numbers of limits.
";

/// One sentence that must hold, and the tests that fail when it does not.
pub(super) struct Row {
    number: &'static str,
    holds: &'static str,
    tests: &'static [&'static str],
}

pub(super) const fn row(number: &'static str, holds: &'static str, tests: &'static [&'static str]) -> Row {
    Row { number, holds, tests }
}

/// The headings, each with its rows.
const TABLES: [(&str, &[Row]); 4] = [
    ("Invariants of the program", &program::ROWS),
    ("Boundaries: what the hub signs and whom it trusts", &hub::ROWS),
    ("Boundaries: what passes the gateway", &gateway::ROWS),
    ("Boundaries: the ledger, the API server and other programs", &store::ROWS),
];

fn rows() -> impl Iterator<Item = &'static Row> {
    TABLES.into_iter().flat_map(|(_, rows)| rows)
}

fn document() -> String {
    let mut text = TOP.to_owned();
    for (heading, rows) in TABLES {
        writeln!(text, "\n## {heading}\n\n| | holds | tests |\n|---|---|---|").unwrap();
        for Row { number, holds, tests } in rows {
            let named: Vec<String> = tests.iter().map(|name| format!("`{name}`")).collect();
            let tests =
                if named.is_empty() { "none: the types allow nothing else".to_owned() } else { named.join(", ") };
            writeln!(text, "| {number} | {holds} | {tests} |").unwrap();
        }
    }
    text + program::NOTES
}

/// The numbers of rows that a text refers to, such as `B7`.
fn numbers_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let is_number = |word: &&str| {
        let digits = word.strip_prefix(['B', 'I']);
        digits.is_some_and(|it| !it.is_empty() && it.chars().all(|c| c.is_ascii_digit()))
    };
    words.filter(is_number).map(str::to_owned).collect()
}

#[test]
fn the_page_of_invariants_is_made_from_the_tables() {
    let path = root().join(DOCUMENT);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, document()).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap();
    let again = "UPDATE_GOLDEN=1 cargo test --test it layers::invariants";
    assert!(committed == document(), "{DOCUMENT} is stale: run `{again}`");
}

#[test]
fn every_test_of_an_invariant_exists() {
    let code = all_code();
    for Row { number, holds, tests } in rows() {
        assert!(tests.len() <= MOST_TESTS, "{number} names {} tests; keep those that matter", tests.len());
        assert!(!tests.is_empty() || *number == "I2", "{number} names no test");
        assert!(holds.ends_with('.') && !holds.contains('|'), "{number} is a sentence in a table");
        let distinct: BTreeSet<_> = tests.iter().collect();
        assert_eq!(distinct.len(), tests.len(), "{number} names a test twice");
        for name in *tests {
            assert!(code.contains(&format!("fn {name}(")), "{number} names the test {name}, which does not exist");
        }
    }
    assert!(named_tests(program::NOTES).all(|name| code.contains(&format!("fn {name}("))));
}

#[test]
fn invariants_are_numbered_and_security_refers_to_each() {
    let numbers: Vec<&str> = rows().map(|row| row.number).collect();
    let count = |letter: char| numbers.iter().filter(|number| number.starts_with(letter)).count();
    let invariants = (1..=count('I')).map(|number| format!("I{number}"));
    let expected: Vec<String> = invariants.chain((1..=count('B')).map(|number| format!("B{number}"))).collect();
    assert_eq!(numbers, expected);
    let referred = numbers_in(&fs::read_to_string(root().join("SECURITY.md")).unwrap());
    let known: BTreeSet<String> = expected.into_iter().collect();
    assert_eq!(referred.difference(&known).collect::<Vec<_>>(), [""; 0], "SECURITY.md refers to these in vain");
    let unused: Vec<_> = known.difference(&referred).filter(|number| number.starts_with('B')).collect();
    assert_eq!(unused, [""; 0], "SECURITY.md does not refer to these");
    assert_eq!(numbers_in("(B7, I12) IPv6 BIO B B_1").into_iter().collect::<Vec<_>>(), ["B7", "I12"]);
}
