//! `docs/reference.md` against the code: neither has a field, flag, metric, event, reason or name that the other lacks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use addon_signer::api::AddOnSigner;
use addon_signer::gateway::GatewayStats;
use addon_signer::hub::authorities::store::LineNames;
use addon_signer::hub::lease::LEASE_NAME;
use addon_signer::inventory::{API_SERVICE, BASE};
use addon_signer::telemetry::Metrics;
use hyper::StatusCode;
use kube::CustomResourceExt;
use serde_json::Value;

const DOCUMENT: &str = "docs/reference.md";
/// Flags that have a variable in every command.
const WITH_VARIABLE: [&str; 5] = ["--log-format", "--audit-log", "--kubeconfig", "--namespace", "--ledger"];
/// Words of the hub's code that look like a condition or a reason and are none.
const NO_REASONS: [&str; 10] = [
    "True",
    "False",
    "Registering",
    "AddOnSigners",
    "ManagedClusters",
    "ManagedClusterAddOn",
    "ManagedClusterAddOns",
    "ClusterManagementAddOn",
    "AddOnTemplate",
    "AddOnTemplates",
];

type Names = BTreeSet<String>;

fn read(file: impl AsRef<Path>) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

/// A file without its tests.
fn code(file: impl AsRef<Path>) -> String {
    read(file).split("#[cfg(test)]\nmod tests").next().unwrap().to_owned()
}

/// What follows each `before`, up to the next `after`.
fn between(text: &str, before: &str, after: &str) -> Vec<String> {
    text.split(before).skip(1).map(|rest| rest.split(after).next().unwrap().to_owned()).collect()
}

/// What stands in backquotes.
fn words(cell: &str) -> Names {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The rows of the tables below a heading, as cells.
fn rows(heading: &str) -> Vec<Vec<String>> {
    let (text, level) = (read(DOCUMENT), heading.find(' ').unwrap());
    let body = text.split(&format!("\n{heading}\n")).nth(1).unwrap_or_else(|| panic!("{DOCUMENT} lacks {heading}"));
    let is_over = |line: &str| line.starts_with('#') && line.find(' ').is_some_and(|other| other <= level);
    let cells = |row: &str| row.replace("\\|", "\0").split('|').map(|cell| cell.trim().replace('\0', "|")).collect();
    let lines = body.lines().take_while(|line| !is_over(line)).filter(|line| line.starts_with("| `"));
    lines.map(|row| cells(row.trim_matches('|'))).collect()
}

/// What a row is about: the first word of its first cell.
fn name(row: &[String]) -> String {
    row[0].split(['`', ' ']).nth(1).unwrap().to_owned()
}

fn names(heading: &str) -> Names {
    rows(heading).iter().map(|row| name(row)).collect()
}

/// What only one of them has, a sentence each.
fn differences(code: &Names, document: &Names) -> Vec<String> {
    let missing = code.difference(document).map(|name| format!("{name} is not in {DOCUMENT}"));
    let made_up = document.difference(code).map(|name| format!("{DOCUMENT} has {name}, which does not exist"));
    missing.chain(made_up).collect()
}

#[track_caller]
fn same(what: &str, code: impl IntoIterator<Item = String>, document: impl IntoIterator<Item = String>) {
    let found = differences(&code.into_iter().collect(), &document.into_iter().collect());
    assert!(found.is_empty(), "{what}: {found:#?}");
}

/// The fields of a schema that have no fields themselves, by their path, and whether they are required.
fn fields(schema: &Value, path: &str) -> BTreeMap<String, (Value, bool)> {
    let mut found = BTreeMap::new();
    for (name, field) in schema["properties"].as_object().unwrap() {
        let required = schema["required"].as_array().is_some_and(|names| names.contains(&Value::from(name.as_str())));
        let is_list = field["items"]["properties"].is_object();
        let path = format!("{path}{name}{}", if is_list { "[]" } else { "" });
        let object = if is_list { &field["items"] } else { field };
        match object["properties"].is_object() {
            true => found.extend(fields(object, &format!("{path}."))),
            false => drop(found.insert(path, (field.clone(), required))),
        }
    }
    found
}

/// The texts of a default or of an enumeration.
fn texts(value: &Value) -> Names {
    let items = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[test]
fn every_field_is_in_the_document_with_its_default_and_its_values() {
    let crd = serde_json::to_value(AddOnSigner::crd()).unwrap();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    for (part, heading) in [("spec", "### Spec"), ("status", "### Status")] {
        let fields = fields(&schema[part], "");
        same(part, fields.keys().cloned(), names(heading));
        for row in rows(heading) {
            let (field, required) = &fields[&name(&row)];
            let values = &texts(&field["enum"]) | &texts(&field["items"]["enum"]);
            assert!(values.is_subset(&words(&row.join(" "))), "{row:?} lacks one of {values:?}");
            if part == "spec" {
                assert_eq!((row[1] == "required", words(&row[1])), (*required, texts(&field["default"])), "{row:?}");
            }
        }
    }
}

/// The flags and arguments of a help text (`--flag`, `<NEEDED>`, `[OPTIONAL]`), each with what is said of it.
fn flags(help: &str) -> BTreeMap<String, String> {
    let (mut found, mut current) = (BTreeMap::<String, String>::new(), None);
    for line in help.lines().map(str::trim_start) {
        let long = if line.starts_with('-') { line.find("--").map_or(line, |at| &line[at..]) } else { line };
        let is_argument = long.starts_with(['<', '[']) && long[1..].starts_with(char::is_uppercase);
        if long.starts_with("--") || is_argument {
            current = long.split_whitespace().next();
        }
        if let Some(name) = current {
            found.entry(name.to_owned()).or_default().push_str(&format!("{line}\n"));
        }
    }
    found
}

fn help(command: &[String]) -> String {
    let mut program = Command::new(env!("CARGO_BIN_EXE_addon-signer"));
    let output = program.env_clear().args(command).arg("--help").output().unwrap();
    assert!(output.status.success(), "{command:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The commands at and below this one that do something, with their help.
fn commands(command: &[String]) -> BTreeMap<String, String> {
    let help = help(command);
    let listed = help.split("\nCommands:\n").nth(1).and_then(|rest| rest.split("\n\n").next()).unwrap_or_default();
    let below = listed.lines().filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    let below: BTreeMap<_, _> = below.flat_map(|name| commands(&[command, &[name.to_owned()]].concat())).collect();
    if below.is_empty() { BTreeMap::from([(command.join(" "), help)]) } else { below }
}

fn variable(flag: &str) -> String {
    format!("ADDON_SIGNER_{}", flag.trim_start_matches('-').to_uppercase().replace('-', "_"))
}

/// The rows below a heading against a help text: names, which are required, defaults, values and variables.
fn check(heading: &str, help: &str, flags: &BTreeMap<String, String>) {
    same(heading, flags.keys().cloned(), names(heading));
    let usage = help.lines().find(|line| line.starts_with("Usage:")).unwrap();
    for row in rows(heading) {
        let (name, default) = (name(&row), &row[1]);
        let text = &flags[&name];
        let required = name.starts_with('<') || usage.contains(&format!(" {name} "));
        assert_eq!(default == "required", required, "{heading}: {row:?}");
        assert!(words(default).iter().all(|word| text.contains(word)), "{heading}: {row:?} and {text}");
        for known in between(text, "[default: ", "]") {
            let is_sentence = known.contains(' ') && !default.is_empty();
            assert!(is_sentence || default.contains(&known), "{heading}: {name} is {known} by default");
        }
        let listed = between(text, "[possible values: ", "]").join(", ");
        let explained = text.lines().filter_map(|line| line.strip_prefix("- ")?.split(':').next());
        for value in listed.split(", ").chain(explained).filter(|value| !value.is_empty()) {
            assert!(words(&row[2]).contains(value), "{heading}: {name} may be {value}");
        }
        let has_variable = heading.ends_with(" hub`") || WITH_VARIABLE.contains(&name.as_str());
        let found = between(text, "[env: ", "]").first().map(|shown| shown.trim_end_matches('=').to_owned());
        assert_eq!(found, has_variable.then(|| variable(&name)), "{heading}: {name}");
    }
}

#[test]
fn every_command_and_flag_is_in_the_document_with_its_default_and_its_values() {
    let everywhere = flags(&help(&[]));
    check("### Every command", &help(&[]), &everywhere);
    let commands = commands(&[]);
    same("commands", commands.keys().cloned(), between(&read(DOCUMENT), "\n### `addon-signer ", "`"));
    for (command, help) in &commands {
        let own = flags(help).into_iter().filter(|(flag, _)| !everywhere.contains_key(flag)).collect();
        check(&format!("### `addon-signer {command}`"), help, &own);
    }
}

#[test]
fn every_flag_of_the_agent_is_in_the_document() {
    let code = code("crates/agent/src/cli/mod.rs");
    let split = |argument: &str| -> (String, String) {
        let (attribute, field) = argument.split_once(")]\n").unwrap();
        let (name, kind) = field.lines().next().unwrap().trim().split_once(": ").unwrap();
        (format!("--{}", name.replace('_', "-")), format!("{kind} {attribute}"))
    };
    let flags: BTreeMap<_, _> = code.split("#[arg(long").skip(1).map(split).collect();
    assert_eq!(code.matches("#[arg(").count(), flags.len(), "all have names");
    same("the agent", flags.keys().cloned(), names("## addon-signer-agent"));
    for row in rows("## addon-signer-agent") {
        let text = &flags[&name(&row)];
        let required = !text.contains("default_value") && !["Option<", "bool"].iter().any(|kind| text.starts_with(kind));
        assert_eq!(row[1] == "required", required, "{row:?}");
        assert!(text.contains(&format!("env = \"{}\"", variable(&name(&row)))), "{text}");
    }
    let sources = [code, self::code("src/cli/mod.rs")];
    let codes = sources.iter().flat_map(|code| between(code, "ExitCode::from(", ")"));
    same("exit codes", codes.chain(["0".to_owned(), "2".to_owned()]), names("## Exit codes")); // clap's is 2
}

#[test]
fn a_flag_that_is_missing_or_made_up_is_reported() {
    let help = "Usage: a\n\nArguments:\n  [NAME]  A name\n\nOptions:\n      --known <N>  [default: 1]\n  -n, --new  Not yet\n";
    let document = ["[NAME]", "--known", "--made-up"].map(str::to_owned).into();
    assert_eq!(
        differences(&flags(help).into_keys().collect(), &document),
        ["--new is not in docs/reference.md", "docs/reference.md has --made-up, which does not exist"]
    );
}
