//! Rules of the architecture that the compiler does not check: which crates a crate may be built from, and that no
//! files form a circle. Also, files and lines are short, documents name only tests that exist, their links lead
//! somewhere, and every long form of a test is run.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use imports::{circles, imports, sources};
use test_kit::built::cargo;

mod imports;
mod invariants;
mod pages;

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

#[test]
fn no_files_form_a_circle() {
    for src in source_folders() {
        let found = circles(imports(&src));
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
    let found = || circles(imports(dir.path())).len();
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
    let folders = [
        "src",
        "crates",
        "tests",
        "tools/bench",
        "tools/load",
        "examples/telemetry/agent",
        "examples/telemetry/backend",
        "fuzz/src",
        "fuzz/fuzz_targets",
    ];
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

/// Otherwise the long form of a test would run nowhere.
#[test]
fn every_long_form_is_run_by_the_step_soak() {
    let script = fs::read_to_string(root().join(".ci/run")).unwrap();
    let step = script.split("\nstep_soak() {\n").nth(1).unwrap().split("\n}\n").next().unwrap();
    let tests = root().join("tests/it");
    let mut modules = Vec::new();
    for file in sources(&tests) {
        if fs::read_to_string(&file).unwrap().lines().any(|line| line.starts_with("use test_kit::soak::")) {
            let path = file.strip_prefix(&tests).unwrap().with_extension("").display().to_string();
            modules.push(path.trim_end_matches("/mod").replace('/', "::"));
        }
    }
    assert!(!modules.is_empty());
    for module in modules {
        let is_run = step.split_whitespace().any(|word| word.len() > 4 && format!("{module}::").contains(word));
        assert!(is_run, "step_soak of .ci/run names no tests of {module}");
    }
}

/// All code of the packages and of their tests.
fn all_code() -> String {
    let folders = source_folders().into_iter().chain([root().join("tests")]);
    folders.flat_map(|folder| sources(&folder)).map(|file| fs::read_to_string(file).unwrap()).collect()
}

/// Test names in a document are sentences in backquotes: lower case with at least three words.
fn named_tests(text: &str) -> impl Iterator<Item = &str> {
    let names = text.split('`').skip(1).step_by(2).map(|word| word.rsplit("::").next().unwrap());
    names.filter(|name| {
        name.matches('_').count() >= 3 && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    })
}

/// Those of the invariants are in [`invariants`].
#[test]
fn every_test_that_the_map_and_the_threat_model_name_exists() {
    let code = all_code();
    let mut named = 0;
    for document in ["SECURITY.md", "ARCHITECTURE.md", "docs/limits.md", "docs/paths.md"] {
        let text = fs::read_to_string(root().join(document)).unwrap();
        for name in named_tests(&text) {
            named += 1;
            assert!(code.contains(&format!("fn {name}(")), "{document} names the test {name}, which does not exist");
        }
    }
    assert!(named >= 1, "docs/paths.md names the test that reads its rows");
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
fn core_knows_no_runtime_kubernetes_log_or_database() {
    let crates = crates_of("addon-signer-core", &[]);
    has_none_of(
        "the core",
        &crates,
        &["tokio", "kube", "kube-client", "k8s-openapi", "hyper", "tracing", "sqlx", "axum"],
    );
}

/// They share values, which the process hands from one to the other.
#[test]
fn hub_and_gateway_know_nothing_of_each_other() {
    has_none_of("the hub", &crates_of("addon-signer-hub", &[]), &["addon-signer-gateway", "addon-signer"]);
    let forbidden = ["addon-signer-hub", "addon-signer-api", "addon-signer-ledger", "sqlx", "addon-signer"];
    has_none_of("the gateway", &crates_of("addon-signer-gateway", &[]), &forbidden);
    let forbidden = ["addon-signer-hub", "addon-signer-api", "addon-signer-gateway"];
    has_none_of("the ledger", &crates_of("addon-signer-ledger", &[]), &forbidden);
}

/// An image has a build without the demo.
#[test]
fn an_image_has_no_stand_in_and_no_agent() {
    let others = ["addon-signer-stand-in", "addon-signer-agent"];
    assert!(others.iter().all(|name| crates_of("addon-signer", &[]).contains(*name)), "the demo has them");
    has_none_of("the image", &crates_of("addon-signer", &["--no-default-features"]), &others);
}

/// The agent shares only the core and the platform with the hub's program.
#[test]
fn the_agent_has_no_database_and_no_signer() {
    let crates = crates_of("addon-signer-agent", &[]);
    has_none_of(
        "the agent",
        &crates,
        &["sqlx", "sqlx-core", "axum", "addon-signer", "addon-signer-stand-in", "comfy-table", "criterion"],
    );
    assert!(crates.len() <= 220, "the agent is built from {} crates", crates.len());
}

/// The names of tests that are longer than this many characters, where the module can say the rest.
fn long_test_names(text: &str, most: usize) -> Vec<String> {
    let functions = text.split("#[test]").chain(text.split("#[tokio::test")).filter_map(|after| {
        let (_, rest) = after.split_once("fn ")?;
        rest.split_once('(').map(|(name, _)| name.to_owned())
    });
    functions.filter(|name| name.len() > most).collect()
}

#[test]
fn names_of_tests_have_at_most_60_characters() {
    let folders = source_folders().into_iter().chain([root().join("tests")]);
    let long: Vec<String> = folders
        .flat_map(|folder| sources(&folder))
        .flat_map(|file| long_test_names(&fs::read_to_string(file).unwrap(), 60))
        .collect();
    assert_eq!(long, [""; 0]);
    assert_eq!(long_test_names("#[test]\nfn abc() {}\n#[tokio::test(x)]\nasync fn defg() {}\n", 3), ["defg"]);
}
