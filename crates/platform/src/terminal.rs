//! Foreign text, such as the message of a condition, may reach a terminal. Control characters in it could move the
//! cursor or pass for lines of ours, and direction marks could reorder it.

use std::borrow::Cow;

/// One line, in which each control character and each direction mark is escaped as in JSON.
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, is_active)
}

/// Several lines; only their line ends are not escaped.
#[must_use]
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |char| char != '\n' && is_active(char))
}

fn escaped(text: &str, is_active: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_active) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::new();
    for char in text.chars() {
        if is_active(char) {
            shown.push_str(&format!("\\u{:04x}", u32::from(char)));
        } else {
            shown.push(char);
        }
    }
    Cow::Owned(shown)
}

fn is_active(char: char) -> bool {
    let is_mark =
        matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    char.is_control() || is_mark || matches!(char, '\u{2028}' | '\u{2029}') // ends of lines to some
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        let text = "a\x1b[2K\rb\u{9b}1A\u{202e}c\td\ne\u{2028} é 漢";
        assert_eq!(line(text), r"a\u001b[2K\u000db\u009b1A\u202ec\u0009d\u000ae\u2028 é 漢");
        assert_eq!(lines("a\nb\r\n"), "a\nb\\u000d\n");
        let json = lines(&serde_json::to_string_pretty(&["a\u{9b}\u{202e}\n"]).unwrap()).into_owned();
        assert_eq!(serde_json::from_str::<[String; 1]>(&json).unwrap(), ["a\u{9b}\u{202e}\n"]);
        assert!(matches!(line("plain"), Cow::Borrowed(_)));
    }
}
