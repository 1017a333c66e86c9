//! Compares the tables of objects and paths, which `page.md` has, with the code.

use std::collections::BTreeSet;
use std::path::Path;

use addon_signer::inventory::BASE;
use addon_signer_api::cluster_trust_bundle::TRUST_BUNDLE;
use addon_signer_core::lease::LEASE_NAME;
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_hub::authorities::store::LineNames;
use addon_signer_hub::recording::checkpoints::LEDGER_OBJECT;

/// The text of a file without its tests.
pub(super) fn text(file: impl AsRef<Path>) -> String {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    text.split("#[cfg(test)]\nmod tests").next().unwrap().to_owned()
}

/// The texts of a file after each `before`, up to a quote, with the names of variables as the page has them.
fn find(file: &str, before: &str) -> Vec<String> {
    let found = text(file).split(before).skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()).collect();
    let found: Vec<String> = found;
    found.iter().map(|name| name.replace("{addon}", "<addon>")).collect()
}

/// Compares the names at the beginning of a table's rows with those in the code.
#[track_caller]
fn compare(heading: &str, code: impl IntoIterator<Item = String>) {
    let section = include_str!("page.md").split(&format!("\n{heading}\n")).nth(1).unwrap().split("\n## ").next();
    let rows = section.unwrap().lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let page: BTreeSet<String> = rows.map(str::to_owned).collect();
    assert_eq!(page, code.into_iter().collect(), "{heading}");
}

#[test]
fn the_page_has_every_object() {
    let client = LineNames::client("<AddOnSigner>", "example.com/x");
    let serving = LineNames::gateway(GatewayCertificate::Serving);
    let backends = LineNames::gateway(GatewayCertificate::Client);
    let lines = [&client, &serving, &backends];
    let mut secrets: Vec<_> = lines.iter().map(|line| line.secret.clone()).collect();
    secrets.extend([&client, &serving].map(|line| format!("{}-pending", line.secret)));
    secrets.extend(find("crates/agent/src/store/secret.rs", "name: format!(\""));
    let mut config_maps: Vec<_> = lines.iter().map(|line| line.config_map.clone()).collect();
    let trust = find("crates/api/src/manifest_work.rs", "    format!(\"");
    config_maps.push(trust[1].clone());
    secrets.push(LEDGER_OBJECT.to_owned());
    config_maps.push(LEDGER_OBJECT.to_owned());
    let secrets = secrets.iter().map(|name| format!("secret/{name}"));
    let config_maps = config_maps.iter().map(|name| format!("configmap/{name}"));
    let others = [
        format!("lease/{LEASE_NAME}"),
        "lease/<pod>".to_owned(),
        format!("manifestwork/{}", trust[0]),
        format!("clustertrustbundle/{TRUST_BUNDLE}"),
    ];
    compare("## Objects", secrets.chain(config_maps).chain(others));
}

#[test]
fn the_page_has_every_path() {
    let mut paths = find("src/process/probe.rs", ".route(\"");
    paths.extend(find("src/inventory/resources.rs", ".route(\"").iter().map(|path| format!("{BASE}{path}")));
    let access = text("crates/core/src/gateway/access/mod.rs");
    let own = access.lines().filter_map(|line| line.trim().strip_prefix("[\"")?.split_once("\"] => Ok("));
    paths.extend(own.map(|(segments, _)| format!("/{}", segments.replace("\", \"", "/"))));
    paths.extend(["/addons/<addon>/...", "/..."].map(str::to_owned));
    compare("## Paths", paths);
}
