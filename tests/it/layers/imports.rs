//! Finds which file of a crate imports names from which other file, by reading the text.
//!
//! A file imports a name by a path that begins with `crate::`, `super::` or `self::`, in a `use` or in the middle of
//! the code. `mod b;` and re-exports (`pub use`) import nothing. Tests and comments are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A module's path inside its crate; empty for `lib.rs` and `main.rs`.
type Module = Vec<String>;

/// Every file under a directory whose name ends with `.rs`.
pub(super) fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The code of the program: without comments, without files of tests, and only up to the module `tests`.
fn shipped(file: &Path) -> String {
    if file.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("tests")) {
        return String::new();
    }
    let text = fs::read_to_string(file).unwrap();
    let body = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    body.lines().map(|line| line.split("//").next().unwrap_or_default()).map(|line| format!("{line}\n")).collect()
}

/// The module of a file in the source folder `src`.
fn module(src: &Path, file: &Path) -> Module {
    let relative = file.strip_prefix(src).unwrap().with_extension("");
    let mut parts: Module = relative.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

/// Every path, from the crate's root, by which the code of the module `of` imports names.
fn paths(code: &str, of: &[String]) -> BTreeSet<Module> {
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("::") {
        let (before, after) = code.split_at(at);
        let word_start = before.rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |index| index + 1);
        let (left, word) = before.split_at(word_start);
        // `super::super::x` is found at its first `super`.
        if left.ends_with("::") || is_re_export(left) {
            continue;
        }
        let base = match word {
            "crate" => Module::new(),
            "self" => of.to_vec(),
            "super" => of.split_last().map(|(_, parent)| parent.to_vec()).unwrap_or_default(),
            _ => continue,
        };
        follow(&after[2..], base, &mut found);
    }
    found
}

fn is_re_export(left: &str) -> bool {
    let statement = left.rsplit([';', '}', '\n']).next().unwrap_or_default().trim();
    statement.starts_with("pub") && statement.ends_with("use")
}

/// Reads the rest of a path, also inside braces; returns the code after it.
fn follow<'c>(code: &'c str, mut base: Module, found: &mut BTreeSet<Module>) -> &'c str {
    let code = code.trim_start();
    if let Some(mut inside) = code.strip_prefix('{') {
        while !inside.trim_start().starts_with('}') && !inside.is_empty() {
            inside = follow(inside, base.clone(), found).trim_start();
            inside = inside.strip_prefix(',').unwrap_or(inside);
        }
        return inside.trim_start().strip_prefix('}').unwrap_or_default();
    }
    let length = code.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(code.len());
    let (word, rest) = code.split_at(length);
    match word {
        "super" => drop(base.pop()),
        "self" => {}
        _ => base.push(word.to_owned()),
    }
    if let Some(rest) = rest.strip_prefix("::") {
        return follow(rest, base, found);
    }
    found.insert(base);
    rest.strip_prefix(" as ")
        .map_or(rest, |renamed| renamed.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_'))
        .strip_prefix('*')
        .unwrap_or(rest)
}

/// For each file of a crate the other files from which it imports names.
pub(super) fn imports(src: &Path) -> BTreeMap<PathBuf, BTreeSet<PathBuf>> {
    let files: BTreeMap<Module, PathBuf> = sources(src).into_iter().map(|file| (module(src, &file), file)).collect();
    let home = |path: &Module| (0..=path.len()).rev().find_map(|length| files.get(&path[..length]));
    let used = files.iter().map(|(of, file)| {
        let mut used: BTreeSet<PathBuf> = paths(&shipped(file), of).iter().filter_map(home).cloned().collect();
        used.remove(file);
        (file.clone(), used)
    });
    used.collect()
}

/// Removes every node that uses no remaining node, again and again. What remains are the circles, and the nodes that
/// lead into them.
pub(super) fn circles<N: Ord + Clone>(mut graph: BTreeMap<N, BTreeSet<N>>) -> BTreeMap<N, BTreeSet<N>> {
    loop {
        let known: BTreeSet<N> = graph.keys().cloned().collect();
        let before = graph.len();
        graph.retain(|_, used| used.iter().any(|used| known.contains(used)));
        if graph.len() == before {
            return graph;
        }
    }
}
