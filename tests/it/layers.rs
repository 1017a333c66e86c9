//! The architecture, as far as the compiler does not keep it: hub and gateway meet only in values, no modules form a circle, the
//! core depends on nothing of the outside; and the map in `lib.rs` names tests that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Who must not import whom.
const APART: [(&str, &[&str]); 7] = [
    ("hub", &["gateway", "inventory", "cli", "app", "demo"]),
    ("gateway", &["hub", "inventory", "cli", "app", "demo", "api"]),
    ("inventory", &["hub", "gateway", "cli", "app", "demo"]),
    ("api", &["hub", "gateway", "inventory", "cli", "app", "demo"]),
    ("listener", &["hub", "gateway", "inventory", "cli", "app", "demo"]),
    ("telemetry", &["hub", "inventory", "cli", "app", "demo"]),
    ("ledger", &["hub", "gateway", "inventory", "cli", "app", "demo", "api"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// The module under `src` that a file belongs to.
fn module(file: &Path) -> String {
    let relative = file.strip_prefix(root().join("src")).unwrap();
    let first = relative.components().next().unwrap().as_os_str().to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

/// The code that ships: no comments, and nothing from the first `#[cfg(test)]` module with a body on.
fn shipped(file: &Path) -> String {
    let is_test = file.components().any(|part| part.as_os_str().to_string_lossy().contains("tests"));
    if is_test {
        return String::new();
    }
    let text = std::fs::read_to_string(file).unwrap();
    let body = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    body.lines().filter(|line| !line.trim_start().starts_with("//")).map(|line| format!("{line}\n")).collect()
}

/// Every `crate::name` in the code of each module.
fn imports() -> BTreeMap<String, BTreeSet<String>> {
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in sources(&root().join("src")) {
        let used = graph.entry(module(&file)).or_default();
        for part in shipped(&file).split("crate::").skip(1) {
            let name: String = part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if !name.is_empty() {
                used.insert(name);
            }
        }
    }
    for (name, used) in &mut graph {
        used.remove(name);
    }
    graph
}

#[test]
fn the_shells_parts_stay_apart() {
    let graph = imports();
    for (name, forbidden) in APART {
        let used = graph.get(name).unwrap_or_else(|| panic!("there is no module {name}"));
        let wrong: Vec<_> = forbidden.iter().filter(|other| used.contains(**other)).collect();
        assert!(wrong.is_empty(), "{name} imports {wrong:?}");
    }
}

#[test]
fn no_modules_form_a_circle() {
    let mut graph = imports();
    loop {
        let leaves: Vec<String> = graph
            .iter()
            .filter(|(_, used)| used.iter().all(|used| !graph.contains_key(used)))
            .map(|(name, _)| name.clone())
            .collect();
        if leaves.is_empty() {
            break;
        }
        for leaf in leaves {
            graph.remove(&leaf);
        }
    }
    assert!(graph.is_empty(), "these modules import each other in a circle: {graph:?}");
}

#[test]
fn files_and_functions_stay_small() {
    for file in [root().join("src"), root().join("crates")].iter().flat_map(|dir| sources(dir)) {
        let lines = std::fs::read_to_string(&file).unwrap().lines().count();
        assert!(lines <= 400, "{} has {lines} lines; split it", file.display());
    }
}

#[test]
fn every_test_that_the_map_and_the_threat_model_name_exists() {
    let code: String = [root().join("src"), root().join("crates"), root().join("tests")]
        .iter()
        .flat_map(|dir| sources(dir))
        .map(|file| std::fs::read_to_string(file).unwrap())
        .collect();
    let mut named = 0;
    for document in ["SECURITY.md", "ARCHITECTURE.md"] {
        let text = std::fs::read_to_string(root().join(document)).unwrap();
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
    let cargo =
        std::process::Command::new(env!("CARGO")).current_dir(root()).args(arguments).args(more).output().unwrap();
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    let tree = String::from_utf8(cargo.stdout).unwrap();
    tree.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[track_caller]
fn has_none_of(package: &str, crates: &BTreeSet<String>, forbidden: &[&str]) {
    let wrong: Vec<_> = forbidden.iter().filter(|name| crates.contains(**name)).collect();
    assert!(wrong.is_empty(), "{package} is built from {wrong:?}");
}

/// What std offers of the outside is banned by `crates/core/clippy.toml`.
#[test]
fn the_core_knows_no_runtime_no_kubernetes_no_log_and_no_database() {
    let crates = crates_of("addon-signer-core", &[]);
    has_none_of(
        "the core",
        &crates,
        &["tokio", "kube", "kube-client", "k8s-openapi", "hyper", "tracing", "sqlx", "axum"],
    );
}

/// What an image has: a build without the demo.
#[test]
fn an_image_has_no_stand_in_and_no_agent() {
    let others = ["stand-in", "addon-signer-agent"];
    assert!(others.iter().all(|name| crates_of("addon-signer", &[]).contains(*name)), "the demo has them");
    has_none_of("the image", &crates_of("addon-signer", &["--no-default-features"]), &others);
}

/// Of what it shares with the hub's program it links the core and the platform.
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
