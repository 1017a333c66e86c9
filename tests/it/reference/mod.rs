//! `docs/reference.md` is rendered from the code: fields from the CRDs, commands and flags from clap, metrics from
//! their registry, and names from the tables that the code uses. The rest is in `page.md`, where each of these parts is
//! a comment with its name.
//!
//! `UPDATE_GOLDEN=1 cargo test --locked --test it -- reference` writes the page.

mod commands;
mod fields;
mod tables;

use std::path::Path;

const PAGE: &str = "docs/reference.md";

/// The parts that the code has, by their names in `page.md`.
fn parts() -> Vec<(&'static str, String)> {
    fields::parts().into_iter().chain(commands::parts()).chain(tables::parts()).collect()
}

/// A table in Markdown: the names of its columns, and its rows.
fn as_table<const N: usize>(columns: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head = line(&columns.map(str::to_owned)) + &format!("|{}\n", "---|".repeat(N));
    head + &rows.into_iter().map(|row| line(&row.map(cell))).collect::<String>()
}

/// A text as it is in a cell of a table: one line, in which neither `|` nor `<` means something to Markdown, and pages
/// are links. In code, only `|` has a meaning.
fn cell(text: String) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
    let parts = text.split('`').enumerate();
    let parts = parts.map(|(at, part)| if at % 2 == 0 { links(&part.replace('<', "\\<")) } else { part.to_owned() });
    parts.collect::<Vec<_>>().join("`")
}

/// The text with a link for each page that it names, such as `trust.md` or `trust.md#trust-in-csrs`.
fn links(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-.#_".contains(c);
    let words = text.split_inclusive(|c| !is_part(c)).map(|word| {
        let name = word.trim_end_matches(|c| !is_part(c)).trim_end_matches('.');
        let page = name.split('#').next().unwrap();
        let after = &word[name.len()..];
        if page.ends_with(".md") { format!("[{page}]({}){after}", target(page, name)) } else { word.to_owned() }
    });
    words.collect()
}

/// Where the page is, from the reference. It has the heading.
fn target(page: &str, name: &str) -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let folders = ["", "runbooks/", "../"];
    let folder = folders.iter().find(|folder| docs.join(folder).join(page).exists());
    let folder = folder.unwrap_or_else(|| panic!("there is no page {page}"));
    let text = std::fs::read_to_string(docs.join(folder).join(page)).unwrap();
    let anchor = |line: &str| {
        let kept = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        kept.replace(|c: char| !c.is_alphanumeric() && c != '-' && c != '_', "")
    };
    if let Some((_, heading)) = name.split_once('#') {
        assert!(text.lines().filter(|line| line.starts_with('#')).any(|line| anchor(line) == heading), "{name}");
    }
    format!("{folder}{name}")
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

fn rendered() -> String {
    let fill = |page: String, (name, text): (&str, String)| {
        let place = format!("<!-- {name} -->\n");
        assert_eq!(page.matches(&place).count(), 1, "page.md has one place for {name}");
        page.replace(&place, &text)
    };
    let page = parts().into_iter().fold(include_str!("page.md").to_owned(), fill);
    let left: Vec<_> = page.lines().filter(|line| line.starts_with("<!--")).skip(1).collect();
    assert_eq!(left, [""; 0], "page.md has a place for what the code does not have");
    page
}

#[test]
fn the_page_is_what_the_code_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let rendered = rendered();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &rendered).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap();
    let differs = page.lines().zip(rendered.lines()).find(|(page, rendered)| page != rendered);
    assert_eq!(differs, None, "{PAGE} is stale: run UPDATE_GOLDEN=1 cargo test --locked --test it -- reference");
    assert!(page == rendered, "{PAGE} has more or fewer lines");
}
