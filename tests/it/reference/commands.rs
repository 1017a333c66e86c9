//! The commands and flags of both programs, with their defaults, variables and help texts.

use std::collections::BTreeMap;

use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, Command};

use super::{as_table, code};

/// A flag that so many commands have alike is listed once.
const SHARED: usize = 3;

type Row = [String; 3];

pub(super) fn parts() -> [(&'static str, String); 4] {
    let mut program = addon_signer::cli::command();
    let mut agent = addon_signer_agent::cli::command();
    program.build();
    agent.build();
    let everywhere: Vec<&Arg> = program.get_arguments().collect();
    let commands = commands(&program, "addon-signer");
    let own = |command: &Command| {
        let is_own = |arg: &&Arg| !everywhere.iter().any(|other| other.get_id() == arg.get_id());
        command.get_arguments().filter(shown).filter(is_own).cloned().collect::<Vec<_>>()
    };
    let mut counted = BTreeMap::<Row, usize>::new();
    for (_, command) in &commands {
        own(command).iter().for_each(|arg| *counted.entry(row(arg)).or_default() += 1);
    }
    let shared: Vec<Row> = counted.into_iter().filter(|(_, count)| *count >= SHARED).map(|(row, _)| row).collect();
    let each = commands.iter().map(|(path, command)| section(path, command, &own(command), &shared));
    let sections = each.collect::<Vec<_>>().join("\n");
    let all = commands.iter().flat_map(|(path, command)| own(command).into_iter().map(move |arg| (path.as_str(), arg)));
    let common = everywhere.iter().map(|arg| row(arg)).chain(shared.iter().cloned());
    [
        ("variables", variables(&all.collect::<Vec<_>>(), &everywhere, &agent)),
        ("flags of several commands", flags(common)),
        ("commands", sections),
        ("agent", section("addon-signer-agent", &agent, &agent.get_arguments().cloned().collect::<Vec<_>>(), &[])),
    ]
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "a filter of references")]
fn shown(arg: &&Arg) -> bool {
    !arg.is_hide_set()
}

/// The commands below this one that have no subcommands, with their names as they are typed.
fn commands<'c>(command: &'c Command, path: &str) -> Vec<(String, &'c Command)> {
    let below = command.get_subcommands().filter(|command| command.get_name() != "help" && !command.is_hide_set());
    let below: Vec<_> = below.flat_map(|inner| commands(inner, &format!("{path} {}", inner.get_name()))).collect();
    if below.is_empty() { vec![(path.to_owned(), command)] } else { below }
}

/// One command: its help, what it requires, and its flags without the shared ones, which are only named.
fn section(path: &str, command: &Command, args: &[Arg], shared: &[Row]) -> String {
    let about = about(path, command);
    let heading = if path.contains(' ') { format!("### {}\n\n", code(path)) } else { String::new() };
    let groups = command.get_groups().filter(|group| group.is_required_set());
    let groups: String = groups.map(|group| required(&mut group.clone(), command)).collect();
    let (common, own): (Vec<Row>, Vec<Row>) = args.iter().filter(shown).map(row).partition(|row| shared.contains(row));
    let table = if own.is_empty() { String::new() } else { format!("\n{}", flags(own)) };
    let common: Vec<_> =
        common.iter().map(|[name, ..]| code(name.trim_matches('`').split(' ').next().unwrap())).collect();
    let common = if common.is_empty() { String::new() } else { format!("\nAlso: {}.\n", common.join(", ")) };
    format!("{heading}{about}{groups}\n{table}{common}")
}

/// The first paragraph of its help.
fn about(path: &str, command: &Command) -> String {
    let short = sentences(&command.get_about().unwrap().to_string());
    if command.get_long_about().is_some() { format!("{short} `{path} --help` says more.") } else { short }
}

fn required(group: &mut clap::ArgGroup, command: &Command) -> String {
    let one = if group.is_multiple() { "At least one" } else { "One" };
    let arguments = group.get_args().map(|id| command.get_arguments().find(|arg| arg.get_id() == id).unwrap());
    let names: Vec<_> =
        arguments.map(|arg| arg.get_long().map_or("`SIGNER`".to_owned(), |l| format!("`--{l}`"))).collect();
    format!("\n\n{one} of {} is required.", names.join(", "))
}

fn flags(rows: impl IntoIterator<Item = Row>) -> String {
    as_table(["flag", "default", "meaning"], rows)
}

fn row(arg: &Arg) -> Row {
    let help = arg.get_long_help().or(arg.get_help()).unwrap_or_else(|| panic!("{arg} has no help")).to_string();
    let (help, message) = match help.split_once(" [default: ") {
        Some((help, default)) => (help.to_owned(), Some(default.trim_end_matches(['.', ']']).to_owned())),
        None => (help, None),
    };
    let known = arg.get_default_values().iter().map(|value| code(value.to_str().unwrap()));
    let known = known.collect::<Vec<_>>().join(", ");
    let takes_value = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let default = match message {
        _ if arg.is_required_set() => "required".to_owned(),
        Some(message) => message,
        None if !takes_value || arg.is_positional() => String::new(),
        None if known.is_empty() => "none".to_owned(),
        None => known,
    };
    [code(&name(arg)), default, sentences(&help) + &values(arg)]
}

/// clap drops the last period of a help text.
fn sentences(help: &str) -> String {
    if help.ends_with('.') { help.to_owned() } else { format!("{help}.") }
}

/// `--flag VALUE`, `<REQUIRED>` or `[OPTIONAL]`.
fn name(arg: &Arg) -> String {
    let value = arg.get_value_names().map(|names| names[0].to_string()).unwrap_or_default();
    let takes_value = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    match arg.get_long() {
        Some(long) if takes_value => format!("--{long} {value}"),
        Some(long) => arg.get_short().map_or(format!("--{long}"), |short| format!("--{long}, -{short}")),
        None if arg.is_required_set() => format!("<{value}>"),
        None => format!("[{value}]"),
    }
}

/// The values that the flag may have.
fn values(arg: &Arg) -> String {
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        return String::new();
    }
    let with_help = |value: &PossibleValue| match value.get_help() {
        Some(help) => format!("`{}` ({})", value.get_name(), help.to_string().trim_end_matches('.')),
        None => code(value.get_name()),
    };
    let values: Vec<_> = arg.get_possible_values().iter().map(with_help).collect();
    if values.is_empty() { String::new() } else { format!(" One of {}.", values.join(", ")) }
}

/// Which flags have a variable, and which take several values with commas.
fn variables(all: &[(&str, Arg)], everywhere: &[&Arg], agent: &Command) -> String {
    let others = all.iter().filter(|(path, _)| *path != "addon-signer hub").map(|(_, arg)| arg);
    let mut some: Vec<_> = others.chain(everywhere.iter().copied()).filter(|arg| has_variable(arg)).map(flag).collect();
    some.sort();
    some.dedup();
    let of_hub = all.iter().filter(|(path, _)| *path == "addon-signer hub").map(|(_, arg)| arg);
    let all_have =
        of_hub.chain(agent.get_arguments()).filter(|arg| !["help", "version"].contains(&arg.get_id().as_str()));
    all_have.for_each(|arg| assert!(has_variable(arg), "every flag of hub and of the agent has a variable: {arg}"));
    let everything = all.iter().map(|(_, arg)| arg).chain(agent.get_arguments());
    let mut lists: Vec<_> = everything.filter(|arg| arg.get_value_delimiter().is_some()).map(flag).collect();
    lists.sort();
    lists.dedup();
    format!(
        "Every flag of `hub` and of `addon-signer-agent` has one; of the other commands only {}. Flags that take \
         several values with commas between them: {}.\n",
        some.join(", "),
        lists.join(", ")
    )
}

fn flag(arg: &Arg) -> String {
    format!("`--{}`", arg.get_long().unwrap())
}

/// Checks that the variable of a flag has the name that the page says.
fn has_variable(arg: &Arg) -> bool {
    let Some(variable) = arg.get_env() else { return false };
    let expected = arg.get_long().unwrap().to_uppercase().replace('-', "_");
    assert_eq!(variable.to_str(), Some(format!("ADDON_SIGNER_{expected}").as_str()), "{arg}");
    true
}
