//! The string literals of a program's own code: without comments, docstrings and tests.

use std::fs;
use std::path::Path;

/// One literal and the line where it begins.
pub(super) struct Literal {
    pub(super) line: usize,
    pub(super) text: String,
}

/// The literals of a file, with escapes resolved as far as sentences use them.
pub(super) fn literals(file: &Path) -> Vec<Literal> {
    if file.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("tests")) {
        return Vec::new();
    }
    let text = fs::read_to_string(file).unwrap();
    read(text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default())
}

fn read(code: &str) -> Vec<Literal> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find(['"', '/', '\'', 'r']) {
        let line = code[..code.len() - rest.len() + at].matches('\n').count() + 1;
        let after = &rest[at..];
        rest = if let Some(comment) = after.strip_prefix("//") {
            comment.split_once('\n').map_or("", |(_, next)| next)
        } else if let Some(string) = after.strip_prefix("r#\"") {
            let (text, next) = string.split_once("\"#").unwrap_or((string, ""));
            found.push(Literal { line, text: text.to_owned() });
            next
        } else if let Some(string) = after.strip_prefix('"') {
            let (text, next) = string_of(string);
            found.push(Literal { line, text });
            next
        } else {
            // A quote that is a character, not a lifetime: `'"'` and `'\''`.
            let character = ["'\"'", "'\\''", "'/'"].iter().find(|quoted| after.starts_with(**quoted));
            &after[character.map_or(1, |quoted| quoted.len())..]
        };
    }
    found
}

/// The string up to its closing quote, and what follows.
fn string_of(code: &str) -> (String, &str) {
    let mut text = String::new();
    let mut rest = code;
    loop {
        let Some(at) = rest.find(['"', '\\']) else { return (text, "") };
        text.push_str(&rest[..at]);
        if rest[at..].starts_with('"') {
            return (text, &rest[at + 1..]);
        }
        let escaped = &rest[at + 1..];
        let next = escaped.chars().next().unwrap_or(' ');
        rest = &escaped[next.len_utf8().min(escaped.len())..];
        match next {
            '\n' => rest = rest.trim_start(), // the string continues in the next line
            'n' => text.push('\n'),
            other => text.push(other),
        }
    }
}

#[test]
fn literals_are_found_beside_comments_and_characters() {
    let code =
        "// \"no\"\nlet a = 'x' == '\"'; f(\"one \\\n     two \\\"three\\\"\"); g::<'a>(r#\"ra\"w\"#, \"last\");";
    let texts: Vec<(usize, String)> = read(code).into_iter().map(|found| (found.line, found.text)).collect();
    let expected = [(2, "one two \"three\""), (3, "ra\"w"), (3, "last")];
    assert_eq!(texts, expected.map(|(line, text)| (line, text.to_owned())));
}
