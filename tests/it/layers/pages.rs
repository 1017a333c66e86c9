//! Links of the pages to files of this tree: the file exists, and so does the heading.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::root;

/// Where the pages are. `tests/it/reference/page.md` is a part of `docs/reference.md`.
const FOLDERS: [&str; 8] =
    ["", "certs", "certs/profiles", "certs/requests", "docs", "docs/decisions", "docs/runbooks", "fuzz"];
const FOLDERS_OF_TESTS: [&str; 3] = ["tests/it/requests/openssl", "tests/real", "tests/upgrade"];

fn pages() -> Vec<PathBuf> {
    let folders = FOLDERS.iter().chain(&FOLDERS_OF_TESTS).map(|folder| root().join(folder));
    let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
    files.filter(|file| file.extension().is_some_and(|extension| extension == "md")).collect()
}

/// What is no block of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// The targets of the links to this tree.
fn links(text: &str) -> Vec<String> {
    let outside = |line: &str| line.split('`').step_by(2).collect::<String>();
    let text = prose(text).map(outside).collect::<Vec<_>>().join("\n");
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains(':')).map(str::to_owned).collect()
}

/// The anchors of the headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen = BTreeMap::<String, usize>::new();
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let named = headings.map(|line| {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>()
    });
    let unique = named.map(|name| {
        let earlier = seen.entry(name.clone()).or_default();
        *earlier += 1;
        if *earlier == 1 { name } else { format!("{name}-{}", *earlier - 1) }
    });
    unique.collect()
}

/// What is wrong with the links of a page.
fn broken(page: &Path, text: &str) -> Vec<String> {
    let is_broken = |link: &String| {
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let file = if file.is_empty() { page.to_owned() } else { page.parent().unwrap().join(file) };
        let has_anchor = || fs::read_to_string(&file).is_ok_and(|text| anchors(&text).contains(anchor));
        !file.exists() || !anchor.is_empty() && !has_anchor()
    };
    links(text).into_iter().filter(is_broken).map(|link| format!("{}: {link}", page.display())).collect()
}

#[test]
fn every_link_of_a_page_leads_to_a_file_and_its_heading() {
    let read = |page: &PathBuf| fs::read_to_string(page).unwrap();
    let all = pages();
    let broken: Vec<String> = all.iter().flat_map(|page| broken(page, &read(page))).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(all.iter().map(|page| links(&read(page)).len()).sum::<usize>() > 500, "the links are found");
}

#[test]
fn a_link_to_a_missing_file_or_heading_is_found() {
    let page = root().join("docs/page.md");
    let text = "# A page\n```\n# code\n```\n## `x` and y_z: it's one\n## A page\n";
    assert_eq!(anchors(text), ["a-page", "a-page-1", "x-and-y_z-its-one"].map(str::to_owned).into());
    let links = "[no](none.md) [`no`](install.md#none) [far](https://example.com/none.md) `[code](none.md)`\n\
                 ```\n[code](none.md)\n```\n[yes](../README.md#try-it)\n";
    let found = broken(&page, links);
    assert_eq!(found.len(), 2, "{found:?}");
}
