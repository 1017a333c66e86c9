use serde_json::json;

use super::*;

fn kept(text: &str, wanted: &'static Keep) -> (Value, bool) {
    let kept = read(&mut serde_json::Deserializer::from_str(text), wanted).unwrap();
    (kept.value, kept.is_cut)
}

/// The memory that a value needs at most.
fn memory(value: &Value) -> usize {
    match value {
        Value::String(text) => TEXT + text.len(),
        Value::Array(list) => list.iter().map(|element| ELEMENT + memory(element)).sum(),
        Value::Object(map) if map.is_empty() => 0,
        Value::Object(map) => {
            let of_texts = map.iter().map(|(key, value)| TEXT + key.len() + memory(value));
            NODE + (map.len() - 1) * ENTRY + of_texts.sum::<usize>()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

#[test]
fn what_is_not_wanted_is_skipped_and_what_is_of_another_kind() {
    static OF_ONE: Keep = Keep::Fields(&[("n", Keep::Scalar(9))]);
    static WANTED: Keep = Keep::Fields(&[
        ("text", Keep::Scalar(3)),
        ("all", Keep::All(10_000)),
        ("none", Keep::Fields(&[])),
        ("each", Keep::Each(2, &OF_ONE)),
    ]);
    let whole = json!({
        "other": [{ "deep": [1, 2, 3] }], "text": "abc", "all": [{ "a": [1, -2, 0.5, true, null, {}, []] }],
        "none": { "x": 1 }, "each": [{ "n": 1, "m": 2 }, { "m": 3 }],
    });
    let expected = json!({
        "text": "abc", "all": [{ "a": [1, -2, 0.5, true, null, {}, []] }], "none": {}, "each": [{ "n": 1 }, {}],
    });
    assert_eq!(kept(&whole.to_string(), &WANTED), (expected, false));
    let others = json!({ "text": ["x"], "none": 7, "each": { "n": 1 }, "all": null });
    assert_eq!(kept(&others.to_string(), &WANTED), (json!({}), false));
    assert_eq!(kept("7", &WANTED), (Value::Null, false));
}

#[test]
fn a_text_loses_its_end_and_a_list_its_last_elements() {
    static TEXT: Keep = Keep::Scalar(4);
    static LIST: Keep = Keep::Each(2, &TEXT);
    assert_eq!(kept("\"abcd\"", &TEXT), (json!("abcd"), false));
    assert_eq!(kept("\"abcde\"", &TEXT), (json!("abcd"), true));
    assert_eq!(kept("\"abc\u{e9}\"", &TEXT), (json!("abc"), true), "no half of a letter");
    assert_eq!(kept("[\"a\", 1]", &LIST), (json!(["a", 1]), false));
    assert_eq!(kept("[\"a\", 1, 2]", &LIST), (json!(["a", 1]), true));
}

#[test]
fn the_bound_is_exact() {
    static WANTED: Keep = Keep::All(3 * (ELEMENT + TEXT + 1));
    assert_eq!(kept("[\"a\", \"b\", \"c\"]", &WANTED), (json!(["a", "b", "c"]), false));
    assert_eq!(kept("[\"a\", \"b\", \"cc\"]", &WANTED), (json!(["a", "b"]), true));
    assert_eq!(kept("[\"a\", \"b\", \"c\", 1]", &WANTED), (json!(["a", "b", "c"]), true));
}

#[test]
fn whatever_fills_a_megabyte_little_of_it_is_kept() {
    static WANTED: Keep = Keep::All(20_000);
    let many = |one: &str| format!("[{}1]", format!("{one},").repeat(1_500_000 / (one.len() + 1)));
    let keys: Vec<String> = (0..100_000).map(|n| format!("\"k{n}\":{{\"a\":\"\"}}")).collect();
    let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    let texts = [
        many("\"a\""),
        many("1"),
        many("{}"),
        many("[]"),
        many("{\"a\":{\"a\":1}}"),
        format!("{{{}}}", keys.join(",")),
        format!("\"{}\"", "x".repeat(1_500_000)),
        format!("{{\"{}\":1}}", "x".repeat(1_500_000)),
        deep,
    ];
    for text in texts {
        let (value, is_cut) = kept(&text, &WANTED);
        let start = text.get(..20).unwrap();
        assert!(is_cut, "{start}: {}", memory(&value));
        assert!(memory(&value) <= 20_000, "{start}: {}", memory(&value));
    }
}

#[test]
fn a_text_counts_with_the_bytes_that_it_has_in_json() {
    static WANTED: Keep = Keep::All(1_000);
    for (character, bytes) in
        [("a", 1), ("\"", 2), ("\\", 2), ("\n", 2), ("\u{8}", 2), ("\u{1}", 6), ("\u{1f}", 6), ("é", 2)]
    {
        let most = (1_000 - TEXT) / bytes;
        let fits = Value::from(character.repeat(most));
        assert_eq!(kept(&fits.to_string(), &WANTED), (fits.clone(), false), "{character:?}");
        assert!(fits.to_string().len() <= 1_000, "{character:?}");
        let (_, is_cut) = kept(&Value::from(character.repeat(most + 1)).to_string(), &WANTED);
        assert!(is_cut, "{character:?}");
    }
}

#[test]
fn named_fields_are_kept_however_much_else_there_is() {
    static WANTED: Keep = Keep::FieldsAnd(&[("wanted", Keep::Scalar(9))], 10_000);
    let few = json!({ "a": "x", "b": { "c": 1 }, "wanted": "yes" });
    assert_eq!(kept(&few.to_string(), &WANTED), (few, false));
    let many: Map<String, Value> = (0..50_000).map(|n| (format!("a{n}"), json!("x"))).collect();
    let mut many = Value::Object(many);
    many["wanted"] = json!("yes");
    let (value, is_cut) = kept(&many.to_string(), &WANTED);
    assert!(is_cut, "{}", memory(&value));
    assert!(value["wanted"] == "yes", "{}", memory(&value));
    assert!(memory(&value) <= 10_000 + 2 * NODE, "{}", memory(&value));
}

#[test]
fn what_is_no_json_is_an_error() {
    static WANTED: Keep = Keep::Fields(&[]);
    for text in ["", "{", "{\"a\":[1,}", "[1 2]"] {
        assert!(read(&mut serde_json::Deserializer::from_str(text), &WANTED).is_err(), "{text}");
    }
}
