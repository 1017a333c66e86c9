//! Whatever the programs advise exists: each sentence in their code that names a command, a flag, a role, a value of
//! the chart or a page is compared with the commands, the rendered chart, its values and `docs`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use addon_signer_api::{AddOnRoute, AddOnSigner};
use clap::Command;
use clap::error::ErrorKind;
use kube::CustomResourceExt;
use serde_json::Value;

use literals::{Literal, literals};

mod errors_page;
mod literals;

/// Programs of others whose flags sentences name.
const OTHERS: [&str; 5] = ["kubectl", "helm", "PgBouncer", "openssl", "kube-apiserver"];
/// What stands for the words that a program puts into a command: at least one of them must be read there.
const EXAMPLES: [&str; 4] = ["telemetry", "7", "2026-11-20T12:00:00Z", "sqlite:///var/lib/addon-signer/ledger.db"];

/// What may be advised.
struct Known {
    program: Command,
    agent: Command,
    /// All flags of both programs, with `--`.
    flags: BTreeSet<String>,
    /// The names of roles in the default rendering, and in that of all values.
    roles: [BTreeSet<String>; 2],
    /// The chart's values, and the fields of our objects.
    values: Vec<Value>,
}

impl Known {
    fn read() -> Self {
        let (mut program, mut agent) = (addon_signer::cli::command(), addon_signer_agent::cli::command());
        program.build();
        agent.build();
        let mut flags = BTreeSet::new();
        for command in [&program, &agent] {
            all_flags(command, &mut flags);
        }
        let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
        let roles = ["deploy/install.yaml", "tests/golden/chart/everything.yaml"].map(|path| roles(&read(path)));
        let schema: Value = serde_json::from_str(&read("deploy/chart/values.schema.json")).unwrap();
        let crds = [AddOnSigner::crd(), AddOnRoute::crd()].map(|crd| serde_json::to_value(crd).unwrap());
        let specs =
            crds.map(|crd| crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].clone());
        let values = [schema].into_iter().chain(specs).collect();
        Self { program, agent, flags, roles, values }
    }

    /// What a sentence names that does not exist.
    fn wrong(&self, text: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        for quoted in text.split('`').skip(1).step_by(2) {
            wrong.extend(self.wrong_command(quoted));
        }
        if !OTHERS.iter().any(|other| text.contains(other)) {
            // `-----BEGIN` is no flag.
            let flags = words(text).filter(|word| word.starts_with("--") && !word.starts_with("---") && word.len() > 2);
            wrong.extend(flags.filter(|flag| !self.flags.contains(*flag)).map(|flag| format!("no flag {flag}")));
        }
        for (at, _) in text.match_indices("Role ") {
            let role = words(&text[at + "Role ".len()..]).next().unwrap_or_default();
            let [default, all] = &self.roles;
            if role.starts_with("addon-signer-") && !default.contains(role) {
                let is_named = all.contains(role) && text.contains(".enabled");
                wrong.extend((!is_named).then(|| format!("no role {role} by default, and no value that adds it")));
            }
        }
        let pages = words(text).filter(|word| word.split('#').next().is_some_and(|page| page.ends_with(".md")));
        wrong.extend(pages.filter(|page| !is_page(page)).map(|page| format!("no page {page}")));
        let values = words(text).filter(|word| self.is_value_like(word));
        wrong.extend(values.filter(|value| !self.has_value(value)).map(|value| format!("no value {value}")));
        wrong
    }

    /// What is wrong with a command in backticks, if it is one of ours. A sentence may name a command without what it
    /// needs, such as `ca rotate`.
    fn wrong_command(&self, quoted: &str) -> Option<String> {
        let ours = quoted.rsplit(" -- /").next()?; // after `kubectl exec … --`
        let words: Vec<&str> = ours.split_whitespace().take_while(|word| !matches!(*word, ">" | "|" | "…")).collect();
        let (command, given) = match *words.first()? {
            "addon-signer" => (&self.program, &words[1..]),
            "addon-signer-agent" => (&self.agent, &words[1..]),
            first if words.len() > 1 && self.program.find_subcommand(first).is_some() => (&self.program, &words[..]),
            _ => return None,
        };
        let parsed = |example: &str| {
            let given = given.iter().filter_map(|word| with_example(word, example));
            match command.clone().try_get_matches_from(std::iter::once(command.get_name().to_owned()).chain(given)) {
                Err(error) if error.use_stderr() && error.kind() != ErrorKind::MissingRequiredArgument => Some(error),
                _ => None,
            }
        };
        let errors: Vec<_> = EXAMPLES.iter().map_while(|example| parsed(example)).collect();
        let first = errors.first().filter(|_| errors.len() == EXAMPLES.len())?;
        Some(format!("`{ours}`: {}", first.to_string().lines().next().unwrap_or_default()))
    }

    /// Whether it begins like one of the chart's values.
    fn is_value_like(&self, word: &str) -> bool {
        let Some((first, rest)) = word.split_once('.') else { return false };
        let is_name = !rest.is_empty() && rest.chars().all(|c| c.is_ascii_alphanumeric() || c == '.');
        is_name && (rest.ends_with("enabled") || self.values[0]["properties"].get(first).is_some())
    }

    fn has_value(&self, path: &str) -> bool {
        self.values.iter().any(|schema| {
            let mut at = Some(schema);
            for part in path.split('.') {
                at = at.and_then(|schema| schema["properties"].get(part));
            }
            at.is_some()
        })
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Words as commands, files and values have them.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-.#_/".contains(c);
    text.split(move |c| !is_part(c)).map(|word| word.trim_end_matches(['.', '/']))
}

/// The word of a command with an example in place of a value that the program puts in, or of a name in capitals. What
/// it adds to another word may be empty, and which flag it puts in is not known.
fn with_example(word: &str, example: &str) -> Option<String> {
    let is_name = word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase());
    match word.split_once('{') {
        Some(("", _)) => Some(example.to_owned()),
        Some((before, _)) if before.ends_with('=') => Some(format!("{before}{example}")),
        Some((before, _)) => (before != "--").then(|| before.to_owned()),
        None if is_name => Some(example.to_owned()),
        None => Some(word.to_owned()),
    }
}

fn all_flags(command: &Command, flags: &mut BTreeSet<String>) {
    flags.extend(command.get_arguments().filter_map(|arg| Some(format!("--{}", arg.get_long()?))));
    command.get_subcommands().for_each(|inner| all_flags(inner, flags));
}

/// The names of the roles in a rendered chart.
fn roles(rendered: &str) -> BTreeSet<String> {
    let is_role = |object: &&str| ["ClusterRole", "Role"].iter().any(|it| object.contains(&format!("\nkind: {it}\n")));
    let objects = rendered.split("\n---").filter(is_role);
    let names = objects.filter_map(|object| object.lines().find_map(|line| line.strip_prefix("  name: ")));
    names.map(str::to_owned).collect()
}

/// Whether the page exists, with its heading.
fn is_page(name: &str) -> bool {
    let (page, heading) = name.split_once('#').map_or((name, None), |(page, heading)| (page, Some(heading)));
    let places = ["", "docs/", "docs/runbooks/", "certs/requests/"].map(|folder| root().join(folder).join(page));
    let Some(text) = places.iter().find_map(|place| fs::read_to_string(place).ok()) else { return false };
    let anchor = |line: &str| {
        let kept = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        kept.replace(|c: char| !c.is_alphanumeric() && c != '-' && c != '_', "")
    };
    let mut headings = text.lines().filter(|line| line.starts_with('#'));
    heading.is_none_or(|heading| headings.any(|line| anchor(line) == heading))
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let entries = entries.filter(|path| !path.ends_with("tests"));
    let nested = entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    nested.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

#[test]
fn whatever_the_programs_advise_exists() {
    let known = Known::read();
    let own = ["agent", "api", "core", "gateway", "hub", "ledger", "platform", "telemetry"];
    let folders = own.iter().map(|name| root().join("crates").join(name).join("src")).chain([root().join("src")]);
    let mut wrong = Vec::new();
    let mut commands = 0;
    for file in folders.flat_map(|folder| sources(&folder)) {
        for Literal { line, text } in literals(&file) {
            commands += text.matches("`addon-signer ").count();
            wrong.extend(known.wrong(&text).iter().map(|what| format!("{}:{line}: {what}", file.display())));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(commands > 10, "the search finds advice: {commands}");
}

#[test]
fn false_advice_is_found() {
    let known = Known::read();
    for good in [
        "run `addon-signer ca rotate telemetry --watch`, or `certs list`",
        "`kubectl exec -n addon-signer deployment/addon-signer -- /addon-signer certs list` shows them",
        "see docs/runbooks/lost-ca.md, or trust.md#trust-in-csrs",
        "ask for the ClusterRole addon-signer-viewer",
    ] {
        assert_eq!(known.wrong(good), [""; 0], "{good}");
    }
    for bad in [
        "run `addon-signer ca plan --ledger URL`",
        "run `addon-signer ca turn`",
        "run `addon-signer certs list --limit none`",
        "run `addon-signer ca rotate {} {}`",
        "`kubectl exec deployment/addon-signer -- /addon-signer certs lst` shows them",
        "or name it with --no-such-flag",
        "see lost-keys.md",
        "see trust.md#no-such-heading",
        "ask for the ClusterRole addon-signer-ledger-reader",
        "install the chart with inventry.enabled: true",
    ] {
        assert_eq!(known.wrong(bad).len(), 1, "{bad}");
    }
}
