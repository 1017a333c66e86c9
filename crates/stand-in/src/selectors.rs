//! Label and field selectors of lists and watches. Pure functions.

use serde_json::Value;

use super::fields;
use super::resources::Resource;

/// The selector cannot be read; the text names the wrong part.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SelectorError {
    #[error("unable to parse requirement: {0:?}")]
    Syntax(String),
    #[error("field label not supported: {0}")]
    UnsupportedField(String),
}

/// The label and field selectors of a list or watch.
#[derive(Debug, Default)]
pub(super) struct Selector {
    labels: Vec<LabelRule>,
    fields: Vec<FieldRule>,
}

#[derive(Debug, PartialEq, Eq)]
enum LabelRule {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

#[derive(Debug, PartialEq, Eq)]
struct FieldRule {
    path: String,
    value: String,
    equal: bool,
}

impl Selector {
    /// Reads the `labelSelector` and `fieldSelector` of a request for `resource`.
    pub(super) fn parse(resource: &Resource, labels: &str, fields: &str) -> Result<Self, SelectorError> {
        Ok(Self {
            labels: split_outside_parentheses(labels).map(parse_label).collect::<Result<_, _>>()?,
            fields: fields
                .split(',')
                .filter(|part| !part.trim().is_empty())
                .map(|part| parse_field(resource, part))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Whether it selects every object.
    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether it selects an object, in the form in which the object is shown.
    pub(super) fn matches(&self, object: &Value) -> bool {
        let labels = fields::get(object, "metadata.labels");
        self.labels.iter().all(|rule| rule.matches(labels)) && self.fields.iter().all(|rule| rule.matches(object))
    }
}

impl LabelRule {
    fn matches(&self, labels: Option<&Value>) -> bool {
        let value = |key: &str| labels.and_then(|l| l.get(key)).and_then(Value::as_str);
        match self {
            Self::In(key, values) => value(key).is_some_and(|v| values.iter().any(|x| x == v)),
            Self::NotIn(key, values) => !value(key).is_some_and(|v| values.iter().any(|x| x == v)),
            Self::Exists(key) => value(key).is_some(),
            Self::Absent(key) => value(key).is_none(),
        }
    }
}

impl FieldRule {
    fn matches(&self, object: &Value) -> bool {
        let found = match fields::get(object, &self.path) {
            Some(Value::String(text)) => *text == self.value,
            Some(Value::Null) | None => self.value.is_empty(),
            Some(Value::Bool(flag)) => self.value == if *flag { "true" } else { "false" },
            Some(Value::Number(number)) => self.value.parse().is_ok_and(|n: i64| number.as_i64() == Some(n)),
            Some(Value::Array(_) | Value::Object(_)) => false,
        };
        found == self.equal
    }
}

/// Splits at the commas between requirements, but not at those inside `in (a,b)`.
fn split_outside_parentheses(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|part| !part.is_empty())
}

fn parse_label(part: &str) -> Result<LabelRule, SelectorError> {
    let wrong = || SelectorError::Syntax(part.to_owned());
    if let Some((head, tail)) = part.split_once('(') {
        let values = tail.strip_suffix(')').ok_or_else(wrong)?;
        let values = values.split(',').map(|v| v.trim().to_owned()).collect();
        let mut words = head.split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(key), Some("in"), None) => Ok(LabelRule::In(key.into(), values)),
            (Some(key), Some("notin"), None) => Ok(LabelRule::NotIn(key.into(), values)),
            _ => Err(wrong()),
        };
    }
    if let Some((key, value)) = part.split_once("!=") {
        return Ok(LabelRule::NotIn(label_key(key, part)?, one(value)));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Ok(LabelRule::In(label_key(key, part)?, one(value)));
    }
    match part.strip_prefix('!') {
        Some(key) => Ok(LabelRule::Absent(label_key(key, part)?)),
        None => Ok(LabelRule::Exists(label_key(part, part)?)),
    }
}

fn one(value: &str) -> Vec<String> {
    vec![value.trim().to_owned()]
}

fn label_key(key: &str, part: &str) -> Result<String, SelectorError> {
    let key = key.trim();
    let known = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if key.is_empty() || !key.chars().all(known) {
        return Err(SelectorError::Syntax(part.to_owned()));
    }
    Ok(key.to_owned())
}

fn parse_field(resource: &Resource, part: &str) -> Result<FieldRule, SelectorError> {
    let (path, value, equal) = if let Some((path, value)) = part.split_once("!=") {
        (path, value, false)
    } else if let Some((path, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        (path, value, true)
    } else {
        return Err(SelectorError::Syntax(part.to_owned()));
    };
    let path = path.trim();
    let known = path == "metadata.name"
        || (path == "metadata.namespace" && resource.namespaced)
        || resource.fields.contains(&path);
    if !known {
        return Err(SelectorError::UnsupportedField(path.to_owned()));
    }
    Ok(FieldRule { path: path.to_owned(), value: value.trim().to_owned(), equal })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn csr() -> &'static Resource {
        Resource::find("certificates.k8s.io", "v1", "certificatesigningrequests").unwrap()
    }

    fn selects(labels: &str, fields: &str) -> bool {
        let object = json!({
            "metadata": { "name": "a", "labels": { "app": "x", "tier": "front" } },
            "spec": { "signerName": "example.com/one" },
        });
        Selector::parse(csr(), labels, fields).unwrap().matches(&object)
    }

    #[test]
    fn label_requirements_mean_what_kubernetes_means() {
        for yes in [
            "",
            "app=x",
            "app==x",
            "app!=y",
            "missing!=y",
            "app in (x, y)",
            "app notin (y),tier",
            "!missing",
            "missing notin (y)",
        ] {
            assert!(selects(yes, ""), "{yes}");
        }
        for no in ["app=y", "app!=x", "missing", "!app", "app in (y,z)", "app=x,tier=back", "missing in (y)"] {
            assert!(!selects(no, ""), "{no}");
        }
    }

    #[test]
    fn field_requirements_compare_the_value_at_the_path() {
        assert!(selects("", "spec.signerName=example.com/one,metadata.name=a"));
        assert!(selects("", "metadata.name!=b"));
        assert!(!selects("", "spec.signerName=example.com/two"));
    }

    #[test]
    fn an_unsupported_field_is_refused_as_by_the_api_server() {
        let error = Selector::parse(csr(), "", "spec.username=x").unwrap_err();
        assert_eq!(error, SelectorError::UnsupportedField("spec.username".into()));
        assert!(Selector::parse(csr(), "a b", "").is_err());
        assert!(Selector::parse(csr(), "a in (b", "").is_err());
    }
}
