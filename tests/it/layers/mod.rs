//! Rules of the architecture that the compiler does not check: hub and gateway share only values, no files form a
//! circle, and the core depends on nothing outside. Also, a type's name has one meaning in a crate, files and lines are
//! short, and `SECURITY.md` and `ARCHITECTURE.md` name only tests that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::agent_program::cargo;
use imports::{circles, imports, sources};

mod imports;

/// Which module must not import which others.
const APART: [(&str, &[&str]); 7] = [
    ("hub", &["gateway", "inventory", "cli", "app", "demo"]),
    ("gateway", &["hub", "inventory", "cli", "app", "demo", "api"]),
    ("inventory", &["hub", "gateway", "cli", "app", "demo"]),
    ("api", &["hub", "gateway", "inventory", "cli", "app", "demo"]),
    ("listener", &["hub", "gateway", "inventory", "cli", "app", "demo"]),
    ("telemetry", &["hub", "gateway", "inventory", "cli", "app", "demo"]),
    ("ledger", &["hub", "gateway", "inventory", "cli", "app", "demo", "api"]),
];

/// How many lines a file may have.
const MAX_LINES: usize = 400;
/// How many characters a line may have, as in `rustfmt.toml`.
const MAX_COLUMNS: usize = 120;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// The source folders of all packages.
fn source_folders() -> Vec<PathBuf> {
    let crates = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path().join("src"));
    crates.chain([root().join("src")]).collect()
}

/// The module under `src` that a file belongs to.
fn module(src: &Path, file: &Path) -> String {
    let first = file.strip_prefix(src).unwrap().components().next().unwrap().as_os_str().to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

#[test]
fn the_shells_parts_stay_apart() {
    let src = root().join("src");
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, used) in imports(&src, true) {
        graph.entry(module(&src, &file)).or_default().extend(used.iter().map(|used| module(&src, used)));
    }
    for (name, forbidden) in APART {
        let used = graph.get(name).unwrap_or_else(|| panic!("there is no module {name}"));
        let wrong: Vec<_> = forbidden.iter().filter(|other| used.contains(**other)).collect();
        assert!(wrong.is_empty(), "{name} imports {wrong:?}");
    }
}

#[test]
fn no_files_form_a_circle() {
    for src in source_folders() {
        let found = circles(imports(&src, false));
        assert!(found.is_empty(), "these files import each other in a circle: {found:#?}");
    }
}

#[test]
fn a_circle_of_files_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let found = || circles(imports(dir.path(), false)).len();
    file("lib.rs", "mod a;\nmod b;\npub use b::{B, One};\n");
    file("a/mod.rs", "mod c;\nuse crate::b::{\n    B, deep::{self, Two},\n};\n");
    file(
        "a/c.rs",
        "use super::super::b::B;\n// use super::A;\n#[cfg(test)]\nmod tests {\n    use super::super::A;\n}\n",
    );
    file("b.rs", "pub struct B;\npub(crate) use crate::a::A;\n");
    assert_eq!(found(), 0, "a re-export, a comment and a test take nothing");
    file("b.rs", "fn b() {\n    super::a::c::call();\n}\n");
    assert_eq!(found(), 3, "b and c, and a, which leads into them");
    file("b.rs", "use self::nothing::X;\n");
    assert_eq!(found(), 0);
}

/// The names that a text defines: `struct Name`, `enum Name`, `trait Name`, `type Name =`, private ones included.
fn defined(text: &str) -> Vec<String> {
    let name = |line: &str| {
        // `pub(in crate::hub)` has a space inside.
        let line = line.strip_prefix("pub(").map_or(line, |rest| rest.split_once(") ").map_or("", |(_, rest)| rest));
        let (kind, rest) = line.strip_prefix("pub ").unwrap_or(line).split_once(' ')?;
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
        ["struct", "enum", "trait", "type"].contains(&kind).then_some(name)
    };
    text.lines().filter_map(name).collect()
}

/// The files of a bench, whose first file is `main`: its own and those of `tests/it` that it takes by `#[path]`.
fn files_of_bench(main: &Path) -> Vec<PathBuf> {
    let folder = main.parent().unwrap();
    let mut files = if main.ends_with("main.rs") { sources(folder) } else { vec![main.to_owned()] };
    let text = fs::read_to_string(main).unwrap();
    for path in text.lines().filter_map(|line| line.strip_prefix("#[path = \"")?.strip_suffix("\"]")) {
        let taken = folder.join(path);
        if taken.is_dir() {
            let modules = text.lines().filter_map(|line| line.strip_prefix("    pub(crate) mod ")?.strip_suffix(';'));
            files.extend(modules.flat_map(|name| sources(&taken.join(name))));
        } else {
            files.push(taken);
        }
    }
    files
}

/// The files of each crate: the packages, the integration tests, each bench, and what the fuzz targets share.
fn crates() -> Vec<Vec<PathBuf>> {
    let tests = [root().join("tests/it"), root().join("fuzz/src")];
    let mut crates: Vec<_> = source_folders().iter().chain(&tests).map(|folder| sources(folder)).collect();
    for entry in fs::read_dir(root().join("benches")).unwrap() {
        let path = entry.unwrap().path();
        crates.push(files_of_bench(&if path.is_dir() { path.join("main.rs") } else { path }));
    }
    crates
}

#[test]
fn a_types_name_occurs_once_in_a_crate() {
    for files in crates() {
        let mut homes: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        for file in &files {
            for name in defined(&fs::read_to_string(file).unwrap()) {
                homes.entry(name).or_default().push(file.clone());
            }
        }
        assert!(!homes.is_empty(), "these files define no type: {files:#?}");
        homes.retain(|_, files| files.len() > 1);
        assert!(homes.is_empty(), "one name for two things: {homes:#?}");
    }
}

#[test]
fn a_bench_has_the_files_that_it_takes_from_the_tests() {
    let files = files_of_bench(&root().join("benches/gateway.rs"));
    let ledger = files_of_bench(&root().join("benches/ledger/main.rs"));
    let issue = files_of_bench(&root().join("benches/issue.rs"));
    assert!(files.contains(&root().join("benches/../tests/it/gateway/world.rs")), "{files:#?}");
    assert!(!files.contains(&root().join("benches/../tests/it/cli.rs")), "{files:#?}");
    assert!(ledger.contains(&root().join("benches/ledger/fill.rs")), "{ledger:#?}");
    assert_eq!(issue, [root().join("benches/issue.rs"), root().join("benches/../tests/it/support/rules.rs")]);
}

#[test]
fn types_of_all_kinds_are_seen() {
    let text = "pub struct A<T> {\npub(crate) enum B {\nstruct C;\ntype D = u8;\nimpl A {\n    type E = u8;\n";
    assert_eq!(defined(text), ["A", "B", "C", "D"]);
    assert_eq!(defined("pub(in crate::hub) struct F {\npub trait G {\n"), ["F", "G"]);
}

/// What is too big in a text.
fn too_big(text: &str) -> Vec<String> {
    let lines = text.lines().count();
    let long = (lines > MAX_LINES).then(|| format!("{lines} lines; split it"));
    let columns = text.lines().map(|line| line.chars().count()).zip(1..);
    let wide = columns.filter(|(columns, _)| *columns > MAX_COLUMNS);
    long.into_iter().chain(wide.map(|(columns, at)| format!("{columns} columns in line {at}; wrap it"))).collect()
}

/// rustfmt keeps lines this short only where they have no long string or comment.
#[test]
fn no_file_is_long_and_no_line_is_wide() {
    let folders = ["src", "crates", "tests", "benches", "fuzz/src", "fuzz/fuzz_targets"];
    let mut wrong = Vec::new();
    for file in folders.iter().flat_map(|folder| sources(&root().join(folder))) {
        let faults = too_big(&fs::read_to_string(&file).unwrap());
        wrong.extend(faults.iter().map(|fault| format!("{} has {fault}", file.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_long_file_and_a_wide_line_are_found() {
    let wide = "ä".repeat(MAX_COLUMNS);
    assert_eq!(too_big(&format!("{wide}\n").repeat(MAX_LINES)), Vec::<String>::new());
    assert_eq!(too_big(&format!("\n{wide}ä\n")), ["121 columns in line 2; wrap it"]);
    assert_eq!(too_big(&"\n".repeat(MAX_LINES + 1)), ["401 lines; split it"]);
}

#[test]
fn every_test_that_the_map_and_the_threat_model_name_exists() {
    let folders = source_folders().into_iter().chain([root().join("tests")]);
    let files = folders.flat_map(|folder| sources(&folder));
    let code: String = files.map(|file| fs::read_to_string(file).unwrap()).collect();
    let mut named = 0;
    for document in ["SECURITY.md", "ARCHITECTURE.md"] {
        let text = fs::read_to_string(root().join(document)).unwrap();
        // Test names are sentences in backquotes: lower case with at least three words.
        for word in text.split('`').skip(1).step_by(2) {
            let name = word.rsplit("::").next().unwrap();
            let is_sentence = name.matches('_').count() >= 3
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            if is_sentence {
                named += 1;
                assert!(
                    code.contains(&format!("fn {name}(")),
                    "{document} names the test {name}, which does not exist"
                );
            }
        }
    }
    assert!(named >= 10, "the invariants name their tests");
}

/// The crates that a package is built from, its own name included.
fn crates_of(package: &str, more: &[&str]) -> BTreeSet<String> {
    let arguments = ["tree", "--offline", "--locked", "--edges", "normal", "--prefix", "none", "--package", package];
    let cargo = std::process::Command::new(cargo()).current_dir(root()).args(arguments).args(more).output().unwrap();
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    let tree = String::from_utf8(cargo.stdout).unwrap();
    tree.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[track_caller]
fn has_none_of(package: &str, crates: &BTreeSet<String>, forbidden: &[&str]) {
    let wrong: Vec<_> = forbidden.iter().filter(|name| crates.contains(**name)).collect();
    assert!(wrong.is_empty(), "{package} is built from {wrong:?}");
}

/// The parts of std that reach outside are banned by `crates/core/clippy.toml`.
#[test]
fn the_core_knows_no_runtime_no_kubernetes_no_log_and_no_database() {
    let crates = crates_of("addon-signer-core", &[]);
    has_none_of(
        "the core",
        &crates,
        &["tokio", "kube", "kube-client", "k8s-openapi", "hyper", "tracing", "sqlx", "axum"],
    );
}

/// An image has a build without the demo.
#[test]
fn an_image_has_no_stand_in_and_no_agent() {
    let others = ["stand-in", "addon-signer-agent"];
    assert!(others.iter().all(|name| crates_of("addon-signer", &[]).contains(*name)), "the demo has them");
    has_none_of("the image", &crates_of("addon-signer", &["--no-default-features"]), &others);
}

/// The agent shares only the core and the platform with the hub's program.
#[test]
fn the_agent_has_no_database_no_server_and_no_signer() {
    let crates = crates_of("addon-signer-agent", &[]);
    has_none_of(
        "the agent",
        &crates,
        &["sqlx", "sqlx-core", "axum", "addon-signer", "stand-in", "comfy-table", "criterion"],
    );
    assert!(crates.len() <= 220, "the agent is built from {} crates", crates.len());
}
