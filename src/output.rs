//! What commands print: text, tables, JSON.

use std::io::{ErrorKind, Write as _};

use clap::ValueEnum;
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use serde::Serialize;

use addon_signer_platform::terminal;

/// The output format of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// An aligned table for people.
    Table,
    /// One JSON document.
    Json,
}

impl Format {
    /// Prints a value as JSON, or as the text for people.
    ///
    /// # Errors
    /// As [`print_json`].
    pub(crate) fn print<T: Serialize + ?Sized>(
        self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), serde_json::Error> {
        match self {
            Self::Table => print(&text(value)),
            Self::Json => print_json(&value)?,
        }
        Ok(())
    }
}

/// Prints to standard output; a closed pipe is not an error. If the text cannot be written, for instance because a disk
/// is full, the process ends with an error, so that nobody takes a part of it for all.
pub(crate) fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(terminal::lines(text).as_bytes()).and_then(|()| stdout.flush());
    // `addon-signer … | head` closes the pipe before the end.
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
    {
        tell(&format!("addon-signer: the output cannot be written: {error}"));
        std::process::exit(1);
    }
}

/// Prints lines to standard error.
pub(crate) fn tell(text: &str) {
    ask(&format!("{text}\n"));
}

/// Prints a question to standard error, behind which the cursor stays.
pub(crate) fn ask(text: &str) {
    // Without standard error there is nobody to tell.
    let _ = std::io::stderr().write_all(terminal::lines(text).as_bytes());
}

/// Prints one JSON document.
///
/// # Errors
/// An error of serde, which does not happen for our types.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), serde_json::Error> {
    print(&format!("{}\n", serde_json::to_string_pretty(value)?));
    Ok(())
}

/// A table without rules, two spaces between columns, as kubectl prints them. A row is one line.
pub(crate) struct Rows(Table);

impl Rows {
    /// A table with only a header.
    pub(crate) fn new(header: &[&str]) -> Self {
        let mut table = Table::new();
        table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(header.to_vec());
        Self(table)
    }

    /// Adds a row at the end.
    pub(crate) fn add<T: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let cells = cells.into_iter().map(|cell| terminal::line(cell.as_ref()).into_owned());
        self.0.add_row(cells.collect::<Vec<_>>());
    }

    /// The table as text: trailing blanks removed, a newline at the end.
    pub(crate) fn render(&self) -> String {
        self.0.lines().map(|line| format!("{}\n", line.trim_start_matches(' ').trim_end())).collect()
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_makes_no_line_and_moves_no_cursor() {
        let mut rows = Rows::new(&["CLUSTER", "STATE"]);
        rows.add(["a\nb  Valid", "\x1b[1A"]);
        assert_eq!(rows.render(), "CLUSTER          STATE\na\\u000ab  Valid  \\u001b[1A\n");
    }
}
