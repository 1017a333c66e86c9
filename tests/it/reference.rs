//! Compares `docs/reference.md` with the code: both have the same fields, flags, metrics, events, reasons and names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use addon_signer::inventory::BASE;
use addon_signer_api::cluster_trust_bundle::TRUST_BUNDLE;
use addon_signer_api::route::{CONDITION_ACCEPTED, CONDITION_PROGRAMMED, CONDITION_RESOLVED_REFS, REASON_NO_ENDPOINT};
use addon_signer_api::{AddOnRoute, AddOnSigner};
use addon_signer_core::gateway::headers::rules::REQUEST_HEADERS;
use addon_signer_core::lease::LEASE_NAME;
use addon_signer_core::names::CONDITION_ADDON_REGISTERED;
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_hub::authorities::store::LineageNames;
use kube::CustomResourceExt;
use serde_json::Value;

const DOCUMENT: &str = "docs/reference.md";
/// Flags that have a variable in every command; those of `hub` and of the agent all have one.
const WITH_VARIABLE: [&str; 6] =
    ["--log-format", "--audit-log", "--kubeconfig", "--context", "--namespace", "--ledger"];
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

/// The fields of a schema that have no fields of their own, by their path, and whether they are required.
fn fields(schema: &Value, path: &str) -> BTreeMap<String, (Value, bool)> {
    let mut found = BTreeMap::new();
    for (name, field) in schema["properties"].as_object().unwrap() {
        let required = schema["required"].as_array().is_some_and(|names| names.contains(&Value::from(name.as_str())));
        let is_list = field["items"]["properties"].is_object();
        let path = format!("{path}{name}{}", if is_list { "[]" } else { "" });
        let object = if is_list { &field["items"] } else { field };
        let leaf = BTreeMap::from([(path.clone(), (field.clone(), required))]);
        found.extend(if object["properties"].is_object() { fields(object, &format!("{path}.")) } else { leaf });
    }
    found
}

#[test]
fn document_has_every_field_with_default_and_values() {
    let texts = |value: &Value| quoted(&value.to_string(), '"');
    for (crd, part, heading) in [
        (AddOnSigner::crd(), "spec", "### Spec"),
        (AddOnSigner::crd(), "status", "### Status"),
        (AddOnRoute::crd(), "spec", "### AddOnRoute spec"),
        (AddOnRoute::crd(), "status", "### AddOnRoute status"),
    ] {
        let crd = serde_json::to_value(crd).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        let fields = fields(&schema[part], "");
        for (name, row) in table(heading, fields.keys().cloned()) {
            let (field, required) = &fields[&name];
            let values = &texts(&field["enum"]) | &texts(&field["items"]["enum"]);
            assert!(values.is_subset(&quoted(&row.concat(), '`')), "{name} may be {values:?}");
            let default = (row[1] == "required", quoted(&row[1], '`'));
            assert!(part == "status" || default == (*required, texts(&field["default"])), "the default of {name}");
        }
    }
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

/// The flags and arguments of a help text (`--flag`, `<NEEDED>`, `[OPTIONAL]`), each with its description.
fn flags(help: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::<String, String>::new();
    let mut current = "";
    for line in help.lines().map(str::trim_start) {
        let long = if line.starts_with('-') { line.find("--").map_or(line, |at| &line[at..]) } else { line };
        if long.starts_with("--") || long.starts_with(['<', '[']) && long[1..].starts_with(char::is_uppercase) {
            current = long.split_whitespace().next().unwrap();
        }
        found.entry(current.to_owned()).or_default().push_str(line);
    }
    found.into_iter().filter(|(name, _)| !name.is_empty()).collect()
}

fn help(command: &str) -> String {
    let mut program = Command::new(env!("CARGO_BIN_EXE_addon-signer"));
    let output = program.env_clear().args(command.split_whitespace()).arg("--help").output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The commands below this one that have no subcommands, or this one itself.
fn commands(command: &str) -> Names {
    let listed = between(&help(command), "\nCommands:\n", "\n\n").concat();
    let below = listed.lines().filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    let below: Names = below.flat_map(|name| commands(format!("{command} {name}").trim())).collect();
    if below.is_empty() { [command.to_owned()].into() } else { below }
}

fn variable(flag: &str) -> String {
    format!("ADDON_SIGNER_{}", flag.trim_start_matches('-').to_uppercase().replace('-', "_"))
}

/// Compares the table of a command with its help text: names, which of them are required, defaults and variables.
fn check(heading: &str, command: &str, without: &BTreeMap<String, String>) {
    let mut flags = flags(&help(command));
    let help = help(command);
    flags.retain(|name, _| !without.contains_key(name));
    let usage = help.lines().find(|line| line.starts_with("Usage:")).unwrap();
    for (name, row) in table(heading, flags.keys().cloned()) {
        let text = &flags[&name];
        let default = &row[1];
        let required = name.starts_with('<') || usage.contains(&format!(" {name} "));
        assert_eq!(default == "required", required, "{heading}: {name}");
        assert!(quoted(default, '`').iter().all(|word| text.contains(word)), "{heading}: the default in: {text}");
        let known = between(text, "[default: ", "]").concat();
        let is_sentence = known.contains(' ') && !default.is_empty();
        assert!(is_sentence || default.contains(&known), "{heading}: {name} is {known} by default");
        let has_variable = heading.ends_with(" hub`") || WITH_VARIABLE.contains(&name.as_str());
        let shown = between(text, "[env: ", "]").concat();
        assert_eq!(shown.trim_end_matches('='), if has_variable { variable(&name) } else { String::new() });
    }
}

#[test]
fn every_command_and_flag_is_in_the_document_with_its_default() {
    let everywhere = flags(&help(""));
    check("### Every command", "", &BTreeMap::new());
    let documented = between(&text(DOCUMENT), "\n### `addon-signer ", "`").into_iter().collect();
    assert_eq!(differences(&commands(""), &documented), Vec::<String>::new());
    for command in documented {
        check(&format!("### `addon-signer {command}`"), &command, &everywhere);
    }
}

#[test]
fn every_flag_of_the_agent_is_in_the_document() {
    let code = text("crates/agent/src/cli/mod.rs");
    let read = |argument: &str| -> (String, String) {
        let (attribute, field) = argument.split_once(")]\n").unwrap();
        let (name, kind) = field.lines().next().unwrap().trim().split_once(": ").unwrap();
        (format!("--{}", name.replace('_', "-")), format!("{kind} {attribute}"))
    };
    let flags: BTreeMap<_, _> = code.split("#[arg(long").skip(1).map(read).collect();
    assert_eq!(code.matches("#[arg(").count(), flags.len(), "all have names");
    for (name, row) in table("## addon-signer-agent", flags.keys().cloned()) {
        let optional = ["default_value", "Option<", "bool"].iter().any(|word| flags[&name].contains(word));
        assert_eq!(row[1] == "required", !optional, "{name}");
        assert!(flags[&name].contains(&format!("env = \"{}\"", variable(&name))), "{name}");
    }
}

#[test]
fn a_flag_that_is_missing_or_made_up_is_reported() {
    let help = "Arguments:\n  [NAME]  A name\n\nOptions:\n      --known <N>  A number\n  -n, --new  Not yet\n";
    let document = ["[NAME]", "--known", "--made-up"].map(str::to_owned).into();
    let expected = ["--new is not in docs/reference.md", "docs/reference.md has --made-up, which does not exist"];
    assert_eq!(differences(&flags(help).into_keys().collect(), &document), expected);
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
    let client = LineageNames::client("<AddOnSigner>", "example.com/x");
    let serving = LineageNames::gateway(GatewayCertificate::Serving);
    let ledger = &find("crates/hub/src/recording/checkpoints.rs", "LEDGER_OBJECT: &str = \"")[0];
    let agent = &find("crates/agent/src/store/secret.rs", "name: format!(\"")[0].replace('{', "<").replace('}', ">");
    let mut objects = vec![format!("lease/{LEASE_NAME}"), "lease/<pod>".to_owned()];
    let backends = LineageNames::gateway(GatewayCertificate::Client);
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
