//! Rules in CEL of a CustomResourceDefinition's schema (`x-kubernetes-validations`): with `duration`, which cel has
//! only with chrono, and Kubernetes' `split`.

use std::sync::Arc;

use cel::extractors::This;
use cel::objects::Value as Cel;
use cel::{Context, ExecutionError, Program};
use serde_json::Value;

use super::fields::text;

/// Checks a value. A rule about the earlier value too holds unless there is one.
///
/// # Errors
/// The rule's message, or why it cannot be evaluated, which kube-apiserver refuses as well.
pub(super) fn check(rule: &Value, value: &Value, old: Option<&Value>) -> Result<(), String> {
    let (rule, message) = (text(rule, "rule"), text(rule, "message").trim());
    if rule.contains("oldSelf") && old.is_none() {
        return Ok(());
    }
    match evaluate(rule, value, old) {
        Ok(true) => Ok(()),
        Ok(false) => Err(message.to_owned()),
        Err(why) => Err(format!("{why} evaluating rule: {message}")),
    }
}

fn evaluate(rule: &str, value: &Value, old: Option<&Value>) -> Result<bool, String> {
    let program = Program::compile(rule).map_err(|error| error.to_string())?;
    let mut context = Context::default();
    context.add_function("duration", nanoseconds);
    context.add_function("split", split);
    context.add_variable("self", value).map_err(|error| error.to_string())?;
    if let Some(old) = old {
        context.add_variable("oldSelf", old).map_err(|error| error.to_string())?;
    }
    match program.execute(&context) {
        Ok(Cel::Bool(holds)) => Ok(holds),
        Ok(other) => Err(format!("{other:?} is neither true nor false")),
        Err(error) => Err(error.to_string()),
    }
}

fn split(This(text): This<Arc<String>>, separator: Arc<String>) -> Result<Cel, ExecutionError> {
    let parts = text.split(separator.as_str()).map(|part| Cel::String(Arc::new(part.to_owned())));
    Ok(Cel::List(Arc::new(parts.collect())))
}

/// A duration as Go writes it, such as `1h30m`.
fn nanoseconds(text: Arc<String>) -> Result<i64, ExecutionError> {
    parse(&text).ok_or_else(|| ExecutionError::function_error("duration", format!("{text} is no duration")))
}

fn parse(text: &str) -> Option<i64> {
    let (sign, mut rest) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let mut sum = 0.0;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|it: char| !it.is_ascii_digit() && it != '.')?);
        let (unit, after) =
            after.split_at(after.find(|it: char| it.is_ascii_digit() || it == '.').unwrap_or(after.len()));
        let nanoseconds = match unit {
            "ns" => 1.0,
            "us" | "µs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3_600e9,
            _ => return None,
        };
        sum += number.parse::<f64>().ok()? * nanoseconds;
        rest = after;
    }
    (!text.is_empty() && sum < i64::MAX as f64).then_some(sign * sum as i64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(rule: &str, value: Value, old: Option<&Value>) -> Option<String> {
        check(&json!({ "rule": rule, "message": "no" }), &value, old).err()
    }

    #[test]
    fn rules_compare_durations_and_parts_of_text() {
        let [holds, no] = [None, Some("no".to_owned())];
        for (text, expected) in [("90m", &holds), ("1h30m", &holds), ("5400s", &holds), ("1.5h", &holds), ("90s", &no)]
        {
            assert_eq!(&refused("duration(self) == duration('1h30m')", json!(text), None), expected, "{text}");
        }
        assert_eq!(refused("self.split('/')[0].endsWith('.io')", json!("a.io/b"), None), holds);
        assert_eq!(refused("self.all(it, size(it) < 3) && !has(self[0].a)", json!(["ab", "abc"]), None), no);
        assert_eq!(refused("self >= 1 && self <= 65535", json!(0), None), no);
    }

    #[test]
    fn a_rule_on_the_earlier_value_needs_one() {
        let rule = "self == oldSelf";
        assert_eq!(refused(rule, json!("a"), None), None);
        assert_eq!(refused(rule, json!("a"), Some(&json!("a"))), None);
        assert_eq!(refused(rule, json!("a"), Some(&json!("b"))), Some("no".to_owned()));
    }

    #[test]
    fn what_cannot_be_evaluated_is_refused() {
        for (rule, value) in [("self.missing == 1", json!({})), ("duration(self) > 0", json!("1x")), ("self", json!(1))]
        {
            let why = refused(rule, value, None).unwrap();
            assert!(why.ends_with(" evaluating rule: no"), "{why}");
        }
    }
}
