//! docs/rights.md has every rule of the roles of the chart and of deploy/agent.yaml, and no other. It says which rules
//! are there by default.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use super::{AGENT, items, name, of_kind};
use test_kit::deploy::{checkout, everything, file, installed};

/// One resource of one rule: kind and name of the role, resource with its group, names of objects, verbs.
type Rule = [String; 5];

fn sorted(texts: impl IntoIterator<Item = impl Into<String>>) -> String {
    let texts: BTreeSet<String> = texts.into_iter().map(Into::into).collect();
    texts.into_iter().collect::<Vec<_>>().join(", ")
}

fn granted(objects: &[Value]) -> BTreeSet<Rule> {
    let mut rules = BTreeSet::new();
    for kind in ["ClusterRole", "Role"] {
        for role in of_kind(objects, kind) {
            for rule in items(role, "/rules") {
                let texts = |field: &str| items(rule, field).into_iter().map(|text| text.as_str().unwrap().to_owned());
                for group in texts("/apiGroups") {
                    rules.extend(texts("/resources").map(|resource| {
                        let resource = if group.is_empty() { resource } else { format!("{group}/{resource}") };
                        let [names, verbs] = ["/resourceNames", "/verbs"].map(|field| sorted(texts(field)));
                        [kind.to_owned(), name(role).to_owned(), resource, names, verbs]
                    }));
                }
            }
        }
    }
    rules
}

/// The roles of a value that neither rendering has: the rules in this template need no value.
fn of_backend_namespaces() -> Vec<Value> {
    let text = fs::read_to_string(checkout().join("deploy/chart/templates/backend-namespaces.yaml")).unwrap();
    let text: String = text.lines().filter(|line| !line.contains("{{")).map(|line| format!("{line}\n")).collect();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    objects.into_iter().filter(|object| !object.is_null()).collect()
}

fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// What the page says: each rule, and whether it is there by default.
fn reported(page: &str) -> BTreeMap<Rule, bool> {
    let mut rules = BTreeMap::new();
    let mut role = None;
    for line in page.lines() {
        if line.starts_with('#') {
            let heading = line.strip_prefix("### ").and_then(|heading| heading.split_once(' '));
            role = heading.filter(|(kind, _)| ["ClusterRole", "Role"].contains(kind));
        }
        let (Some((kind, name)), [_, object, verbs, _, value, _]) = (role, &*line.split('|').collect::<Vec<_>>())
        else {
            continue;
        };
        let (resources, names) = object.split_once(" named ").unwrap_or((object, ""));
        for resource in quoted(resources) {
            let [names, verbs] = [sorted(quoted(names)), sorted(verbs.trim().split(", "))];
            let rule = [kind, name.trim_matches('`'), resource, &names, &verbs].map(str::to_owned);
            let before = rules.insert(rule, !value.contains("**"));
            assert_eq!(before, None, "twice: {line}");
        }
    }
    rules
}

#[test]
fn the_page_of_rights_has_every_rule_and_no_other() {
    let reported = reported(&fs::read_to_string(checkout().join("docs/rights.md")).unwrap());
    let by_default = granted(&[installed(), file(AGENT)].concat());
    let with_values = granted(&[everything(), of_backend_namespaces()].concat());
    let granted: BTreeMap<_, _> =
        by_default.union(&with_values).map(|rule| (rule.clone(), by_default.contains(rule))).collect();
    let unreported: Vec<_> = granted.iter().filter(|(rule, default)| reported.get(*rule) != Some(default)).collect();
    let false_ones: Vec<_> = reported.iter().filter(|(rule, default)| granted.get(*rule) != Some(default)).collect();
    assert!(unreported.is_empty() && false_ones.is_empty(), "granted: {unreported:#?}\non the page: {false_ones:#?}");
    assert!(granted.len() > 60, "{}", granted.len());
}
