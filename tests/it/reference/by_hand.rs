//! Compares the parts of `docs/reference.md` that are written by hand with the code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use addon_signer::inventory::BASE;
use addon_signer_api::cluster_trust_bundle::TRUST_BUNDLE;
use addon_signer_api::route::{CONDITION_ACCEPTED, CONDITION_PROGRAMMED, CONDITION_RESOLVED_REFS, REASON_NO_ENDPOINT};
use addon_signer_core::gateway::headers::rules::REQUEST_HEADERS;
use addon_signer_core::lease::LEASE_NAME;
use addon_signer_core::names::CONDITION_ADDON_REGISTERED;
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_hub::authorities::store::LineNames;

const DOCUMENT: &str = "docs/reference.md";
/// Words in the hub's code that look like a condition or a reason, but are statuses, kinds, or names of tasks.
const NO_REASONS: &str = "True False Registering Reading AddOnSigners ManagedClusters ManagedClusterAddOn \
                          ManagedClusterAddOns ClusterManagementAddOn AddOnTemplate AddOnTemplates ManifestWork \
                          ConfigMap Succeeded AddOnRoutes";

pub(crate) type Names = BTreeSet<String>;

/// The text of a file without its tests.
fn text(file: impl AsRef<Path>) -> String {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    text.split("#[cfg(test)]\nmod tests").next().unwrap().to_owned()
}

/// The text after each `before`, up to the next `after`.
fn between(text: &str, before: &str, after: &str) -> Vec<String> {
    text.split(before).skip(1).map(|rest| rest.split(after).next().unwrap().to_owned()).collect()
}

/// The texts between two quotes.
pub(crate) fn quoted(text: &str, quote: char) -> Names {
    text.split(quote).skip(1).step_by(2).map(str::to_owned).collect()
}

fn section(heading: &str) -> String {
    let text = text(DOCUMENT);
    let level = heading.find(' ');
    let body = text.split(&format!("\n{heading}\n")).nth(1).unwrap_or_else(|| panic!("{DOCUMENT} lacks {heading}"));
    body.lines().take_while(|it| !it.starts_with('#') || it.find(' ') > level).map(|it| format!("{it}\n")).collect()
}

/// One sentence for each name that only the code or only the document has.
fn differences(code: &Names, document: &Names) -> Vec<String> {
    let missing = code.difference(document).map(|name| format!("{name} is not in {DOCUMENT}"));
    let made_up = document.difference(code).map(|name| format!("{DOCUMENT} has {name}, which does not exist"));
    missing.chain(made_up).collect()
}

/// The rows of a section's tables, by their first words. Checks that these words are exactly the names in the code.
#[track_caller]
pub(crate) fn table(heading: &str, code: impl IntoIterator<Item = String>) -> BTreeMap<String, Vec<String>> {
    let cells = |row: &str| row.replace("\\|", "\0").split('|').map(|cell| cell.trim().replace('\0', "|")).collect();
    let name = |row: &str| row.replace("\\|", "|").split(['`', ' ']).nth(2).unwrap().to_owned();
    let section = section(heading);
    let lines = section.lines().filter_map(|line| line.strip_prefix('|').filter(|row| row.starts_with(" `")));
    let rows: BTreeMap<_, _> = lines.map(|row| (name(row), cells(row))).collect();
    let found = differences(&code.into_iter().collect(), &rows.keys().cloned().collect());
    assert!(found.is_empty(), "{heading}: {found:#?}");
    rows
}

#[test]
fn document_has_every_header_and_what_happens_to_it() {
    let rules = REQUEST_HEADERS.iter();
    for (name, row) in table("## Headers", rules.clone().map(|rule| rule.name.to_owned())) {
        let rule = rules.clone().find(|rule| rule.name == name).unwrap();
        let treatment = format!("{:?}", rule.treatment).to_lowercase();
        assert_eq!((row[1].as_str(), row[2].as_str()), (treatment.as_str(), rule.why), "{name}");
    }
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let paths = dir.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let product = paths.filter(|path| !path.ends_with("tests.rs") && !path.ends_with("tests"));
    product.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

#[test]
fn every_condition_and_reason_is_in_the_document() {
    let mut files = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/hub/src"));
    files.extend(["crates/api/src/status.rs", "crates/api/src/registrations/mod.rs"].map(PathBuf::from));
    files.extend(["mod.rs", "refs.rs"].map(|file| format!("crates/core/src/gateway/routing/{file}").into()));
    let is_reason = |w: &&str| w.len() > 3 && w.starts_with(char::is_uppercase) && w.chars().all(char::is_alphabetic);
    let pick = |text: &str, quote: char| text.split(quote).filter(is_reason).map(str::to_owned).collect::<Names>();
    let mut code: Names = files.iter().flat_map(|file| pick(&text(file), '"')).collect();
    let of_routes = [CONDITION_ACCEPTED, CONDITION_PROGRAMMED, CONDITION_RESOLVED_REFS, REASON_NO_ENDPOINT];
    code.extend(of_routes.map(str::to_owned));
    let others: Names = NO_REASONS.split(' ').map(str::to_owned).collect();
    assert!(others.is_subset(&code), "NO_REASONS has a word that is gone");
    let document = pick(&section("## Conditions"), '`');
    assert_eq!(differences(&(&code - &others), &(&document - &others)), Vec::<String>::new());
}

#[test]
fn every_name_that_others_rely_on_is_in_the_document() {
    let find = |file: &str, before: &str| between(&text(file), before, "\"");
    let audit = text("crates/telemetry/src/audit/mod.rs").replace("connection(\"", "event = \"");
    table("## Audit events", between(&audit, "event = \"", "\""));
    let programs = text("src/cli/mod.rs") + &text("crates/agent/src/cli/mod.rs");
    let codes = between(&programs, "ExitCode::from(", ")").into_iter();
    table("## Exit codes", codes.chain(["0", "2"].map(str::to_owned))); // clap's own is 2
    let mut labels = find("crates/core/src/names.rs", "= \"");
    labels.retain(|name| name.contains('/') && name != CONDITION_ADDON_REGISTERED);
    let deployed = text("deploy/chart/templates/network-policies.yaml");
    labels.extend(between(&deployed, "{ addon", ":").iter().map(|it| format!("addon{it}")));
    table("## Labels and annotations", labels);
    assert!(section("### Of a ManagedClusterAddOn").contains(&format!("| `{CONDITION_ADDON_REGISTERED}` |")));
    let client = LineNames::client("<AddOnSigner>", "example.com/x");
    let serving = LineNames::gateway(GatewayCertificate::Serving);
    let ledger = &find("crates/hub/src/recording/checkpoints.rs", "LEDGER_OBJECT: &str = \"")[0];
    let agent = &find("crates/agent/src/store/secret.rs", "name: format!(\"")[0].replace('{', "<").replace('}', ">");
    let mut objects = vec![format!("lease/{LEASE_NAME}"), "lease/<pod>".to_owned()];
    let backends = LineNames::gateway(GatewayCertificate::Client);
    objects.extend(
        [&client.secret, &serving.secret, &backends.secret, ledger, agent].map(|name| format!("secret/{name}")),
    );
    objects.extend(
        [&client.config_map, &serving.config_map, &backends.config_map, ledger].map(|name| format!("configmap/{name}")),
    );
    objects.extend([&client.secret, &serving.secret].map(|name| format!("secret/{name}-pending")));
    let trust = find("crates/api/src/manifest_work.rs", "    format!(\"");
    let trust: Vec<_> = trust.iter().map(|name| name.replace('{', "<").replace('}', ">")).collect();
    objects.extend([format!("manifestwork/{}", trust[0]), format!("configmap/{}", trust[1])]);
    objects.push(format!("clustertrustbundle/{TRUST_BUNDLE}"));
    table("## Objects", objects);
    let mut paths = find("src/process/probe.rs", ".route(\"");
    paths.extend(find("src/inventory/resources.rs", ".route(\"").iter().map(|path| format!("{BASE}{path}")));
    let access = text("crates/core/src/gateway/access/mod.rs");
    let own = access.lines().filter_map(|line| line.trim().strip_prefix("[\"")?.split_once("\"] => Ok("));
    paths.extend(own.map(|(segments, _)| format!("/{}", segments.replace("\", \"", "/"))));
    paths.extend(["/addons/<addon>/...", "/..."].map(str::to_owned));
    table("## Paths", paths);
    let problems = text("crates/gateway/src/problem.rs").replace("REVOKED, \"", "\"revoked\", \"");
    let kinds = between(&problems, "(StatusCode::", "\", ");
    table("## Problems", kinds.iter().map(|kind| kind.split('"').nth(1).unwrap().to_owned()));
}
