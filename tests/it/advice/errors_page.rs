//! docs/addon-errors.md says what to do about every problem of the gateway and every reason of a refused CSR; and what
//! docs/writing-an-addon.md shows of the example is there.

use std::collections::BTreeSet;
use std::fs;

use super::root;

/// The words in backticks of a text.
fn quoted(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// What is between two texts of a page.
fn between(page: &str, from: &str, to: &str) -> String {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let rest = text.split_once(from).unwrap_or_else(|| panic!("{page} has no {from:?}")).1;
    rest.split_once(to).unwrap_or_else(|| panic!("{page} has no {to:?} after it")).0.to_owned()
}

/// What the first cells of the tables in a section name.
fn first_cells(section: &str) -> BTreeSet<String> {
    section.lines().filter_map(|line| line.strip_prefix("| ")?.split('|').next()).flat_map(quoted).collect()
}

/// The code is that of the example, but for the indentation.
#[test]
fn the_page_for_authors_shows_the_backends_own_check() {
    let lines = |text: &str| text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>().join("\n");
    let shown = lines(&between("docs/writing-an-addon.md", "```rust\n", "```"));
    let backend = lines(&fs::read_to_string(root().join("examples/telemetry/backend/main.rs")).unwrap());
    assert!(backend.contains(&shown), "{shown}");
}

#[test]
fn the_page_of_errors_has_every_problem() {
    let problems = first_cells(&between("docs/reference.md", "\n## Problems\n", "\n[gateway.md]"));
    assert!(problems.len() > 20, "{problems:?}");
    let reported = first_cells(&between("docs/addon-errors.md", "\n## The gateway refuses a request\n", "\n## "));
    assert_eq!(reported, problems);
}

/// Those of addons that are not eligible are the reasons of eligibility; two of these only make a CSR wait.
#[test]
fn the_page_of_errors_has_every_refused_csr() {
    let causes = between("docs/audit.md", "`refused` has the reason", "; and the causes");
    let eligibility = between("docs/audit.md", "because the addon is not eligible:", ".\n");
    let mut reasons: BTreeSet<_> = quoted(&causes).union(&quoted(&eligibility)).cloned().collect();
    assert!(reasons.remove("RegistryNotReady") && reasons.remove("RegistryOutdated"));
    reasons.insert("CertificateOutdated".to_owned()); // it is only on the CSR
    let reported =
        first_cells(&between("docs/addon-errors.md", "\n## The hub refuses a CSR\n", "A CSR that is neither"));
    assert_eq!(reported, reasons);
}
