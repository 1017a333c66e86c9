//! What commands print: text, tables, JSON.

use clap::ValueEnum;
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use serde::Serialize;

/// The output format of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// An aligned table for people.
    Table,
    /// One JSON document.
    Json,
}

/// Prints to standard output; a reader that has left is not an error.
pub(crate) fn print(text: &str) {
    use std::io::Write as _;
    // `addon-signer … | head` closes the pipe; nobody reads the rest, so the error can be ignored.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Prints one JSON document.
///
/// # Errors
/// An error of serde, which does not happen for our types.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), serde_json::Error> {
    print(&format!("{}\n", serde_json::to_string_pretty(value)?));
    Ok(())
}

/// A table without lines, two spaces between columns, as kubectl prints them.
pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.to_vec());
    table
}

/// A table as text: trailing blanks removed, a newline at the end.
pub(crate) fn render(table: &Table) -> String {
    table.lines().map(|line| format!("{}\n", line.trim_start_matches(' ').trim_end())).collect()
}

/// The arguments of the first container in a manifest.
#[cfg(test)]
pub(crate) fn container_arguments(manifest: &str) -> Vec<String> {
    let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(manifest).unwrap();
    let arguments = documents.into_iter().find_map(|document| {
        let args = document.pointer("/spec/template/spec/containers/0/args")?.as_array()?.clone();
        Some(args.iter().map(|arg| arg.as_str().unwrap().to_owned()).collect())
    });
    arguments.unwrap()
}
