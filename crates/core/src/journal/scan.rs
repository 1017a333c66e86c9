//! Reads an entry's text without copying it, for checks of many. It knows less than [`Entry::parse`] and never accepts more:
//! whatever it does not accept is for that to judge.
//!
//! [`Entry::parse`]: crate::journal::entry::Entry::parse

use std::cmp::Ordering;

use crate::timestamp::Timestamp;

/// Details that an entry may have here; an intent has 17.
const DETAILS: usize = 24;

/// An entry's members as they stand in its text, strings without their quotes and with their escapes.
#[derive(Debug, Clone, Copy)]
pub struct Scanned<'t> {
    /// Its number.
    pub seq: u64,
    /// The hash of the entry before, in hexadecimal if the entry is good.
    pub previous: &'t str,
    /// When it was written.
    pub time: Timestamp,
    /// What kind of decision it is.
    pub kind: &'t str,
    /// The epoch under which it was written.
    pub epoch: u64,
    details: [(&'t str, &'t str); DETAILS],
    count: usize,
}

impl<'t> Scanned<'t> {
    /// Reads what a text begins with: an entry in the one form that it has. Returns its length as well.
    pub fn read(text: &'t str) -> Option<(Self, usize)> {
        let mut rest = Rest { text, at: 0 };
        rest.expect("{\"seq\":")?;
        let seq = rest.number()?;
        rest.expect(",\"previous\":\"")?;
        let previous = rest.string()?;
        rest.expect(",\"time\":\"")?;
        let time = utc(rest.string()?)?;
        rest.expect(",\"kind\":\"")?;
        let kind = rest.string()?;
        rest.expect(",\"epoch\":")?;
        let epoch = rest.number()?;
        rest.expect(",\"replica\":\"")?;
        rest.string()?;
        rest.expect(",\"actor\":\"")?;
        rest.string()?;
        rest.expect(",\"details\":{")?;
        let mut entry = Self { seq, previous, time, kind, epoch, details: [("", ""); DETAILS], count: 0 };
        entry.read_details(&mut rest)?;
        rest.expect("}")?;
        Some((entry, rest.at))
    }

    /// A detail without escapes; `None` where it has any, or is not there.
    pub fn plain(&self, name: &str) -> Option<&'t str> {
        let (_, value) = self.details.iter().take(self.count).find(|(known, _)| *known == name)?;
        (!value.contains('\\')).then_some(value)
    }

    /// Its details, for whoever asks for them in the order of their names.
    pub fn in_order(&self) -> InOrder<'_, 't> {
        InOrder(self.details.get(..self.count).unwrap_or_default())
    }

    fn read_details(&mut self, rest: &mut Rest<'t>) -> Option<()> {
        if rest.expect("}").is_some() {
            return Some(());
        }
        let mut before = None;
        loop {
            rest.expect("\"")?;
            let name = rest.string()?;
            // Names are ordered by what they mean, which with escapes is not what they look like.
            if name.contains('\\') || before.is_some_and(|before| before >= name) {
                return None;
            }
            rest.expect(":\"")?;
            *self.details.get_mut(self.count)? = (name, rest.string()?);
            self.count += 1;
            before = Some(name);
            if rest.expect(",").is_none() {
                return rest.expect("}");
            }
        }
    }
}

/// Details that were not passed yet.
#[derive(Debug, Clone)]
pub struct InOrder<'e, 't>(&'e [(&'t str, &'t str)]);

impl<'t> InOrder<'_, 't> {
    /// As [`Scanned::plain`], and passes all names up to this one.
    pub fn plain(&mut self, name: &str) -> Option<&'t str> {
        while let [(known, value), after @ ..] = self.0 {
            match (*known).cmp(name) {
                Ordering::Less => self.0 = after,
                Ordering::Equal => return (!value.contains('\\')).then_some(value),
                Ordering::Greater => break,
            }
        }
        None
    }
}

/// What is left of a text.
struct Rest<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Rest<'t> {
    fn bytes(&self) -> &'t [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    fn expect(&mut self, what: &str) -> Option<()> {
        self.bytes().starts_with(what.as_bytes()).then(|| self.at += what.len())
    }

    /// A whole number without leading zeros.
    fn number(&mut self) -> Option<u64> {
        let digits = self.bytes().iter().take_while(|byte| byte.is_ascii_digit()).count();
        let text = self.text.get(self.at..self.at + digits)?;
        self.at += digits;
        if text.len() > 1 && text.starts_with('0') { None } else { text.parse().ok() } // or too large: not for us
    }

    /// A string after its first quote, and past its last.
    fn string(&mut self) -> Option<&'t str> {
        let start = self.at;
        loop {
            self.at += plain_length(self.bytes())?;
            let [first, after @ ..] = self.bytes() else { return None };
            match first {
                b'"' => break,
                b'\\' => self.at += escape(after)?,
                _ => return None, // below 0x20 and not escaped
            }
        }
        self.at += 1;
        self.text.get(start..self.at - 1)
    }
}

/// How many bytes come before the next that means something in a string; `None` if there is none.
fn plain_length(bytes: &[u8]) -> Option<usize> {
    // Without a branch per byte, so that 32 are looked at together: certificates and requests are most of every ledger.
    let any = |chunk: &&[u8]| chunk.iter().fold(false, |any, byte| any | means_something(*byte));
    let start = bytes.chunks_exact(32).take_while(|chunk| !any(chunk)).count() * 32;
    let rest = bytes.get(start..)?.iter().position(|byte| means_something(*byte))?;
    Some(start + rest)
}

fn means_something(byte: u8) -> bool {
    (byte == b'"') | (byte == b'\\') | (byte < 0x20)
}

/// The length of an escape that stands after its backslash in `after`, if it is the one that an entry has.
fn escape(after: &[u8]) -> Option<usize> {
    match after {
        [b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't', ..] => Some(2),
        [b'u', b'0', b'0', high @ (b'0' | b'1'), low, ..] => {
            let digit = matches!(low, b'0'..=b'9' | b'a'..=b'f');
            let has_a_letter = *high == b'0' && matches!(low, b'8' | b'9' | b'a' | b'c' | b'd');
            (digit && !has_a_letter).then_some(6)
        }
        _ => None,
    }
}

/// `YYYY-MM-DDThh:mm:ssZ` from 1970 on, and nothing else.
pub fn utc(text: &str) -> Option<Timestamp> {
    let bytes: &[u8; 20] = text.as_bytes().try_into().ok()?;
    let [_, _, _, _, b'-', _, _, b'-', _, _, b'T', _, _, b':', _, _, b':', _, _, b'Z'] = bytes else { return None };
    let number = |from: usize, to: usize| {
        let mut digits = bytes.get(from..to)?.iter();
        digits.try_fold(0_i64, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0')))
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if year < 1970 || !(1..=days).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    Some(Timestamp::from_unix(((days_since_1970(year, month, day) * 24 + hour) * 60 + minute) * 60 + second))
}

/// Of the Gregorian calendar, with years that begin in March, so that the leap day is the last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let before_the_year = year * 365 + year / 4 - year / 100 + year / 400;
    let before_the_month = (153 * month + 2) / 5;
    before_the_year + before_the_month + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::entry::Entry;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn entries() -> impl Strategy<Value = Entry> {
        let text = || prop_oneof!["[a-z0-9 -]{0,12}", "[ -~]{0,99}", "[\\x00-\\x7f\u{e9}\u{1f600}]{0,8}"];
        let details = prop::collection::btree_map("[a-z-]{0,6}", text(), 0..6);
        (any::<u64>(), text(), 0_i64..253_402_300_799, text(), any::<u64>(), text(), text(), details).prop_map(
            |(seq, previous, time, kind, epoch, replica, actor, details)| Entry {
                seq,
                previous,
                time: Timestamp::from_unix(time).to_string(),
                kind,
                epoch,
                replica,
                actor,
                details,
            },
        )
    }

    fn is_plain(text: &str) -> bool {
        !text.contains(|c: char| c < ' ' || c == '"' || c == '\\')
    }

    proptest! {
        #[test]
        fn reads_what_is_written(entry in entries()) {
            let text = entry.text();
            let more = format!("{text}\n");
            let (read, length) = Scanned::read(&more).unwrap();
            prop_assert_eq!(length, text.len());
            prop_assert_eq!((read.seq, read.time.to_string(), read.epoch), (entry.seq, entry.time.clone(), entry.epoch));
            let mut in_order = read.in_order();
            for (name, value) in &entry.details {
                prop_assert_eq!(read.plain(name), is_plain(value).then_some(value.as_str()));
                prop_assert_eq!(in_order.plain(name), read.plain(name));
                prop_assert_eq!(in_order.clone().plain("~"), None, "comes after all");
            }
            prop_assert_eq!(read.plain("not there"), None);
        }

        #[test]
        fn never_accepts_what_is_no_entry(entry in entries(), at in any::<prop::sample::Index>(), with in "[\\x00-\\x7f]{0,2}") {
            let mut text = entry.text();
            let at = at.index(text.len());
            if text.is_char_boundary(at) && text.is_char_boundary(at + 1) {
                text.replace_range(at..=at, &with);
            }
            if let Some((read, length)) = Scanned::read(&text) {
                let parsed = Entry::parse(&text[..length]).unwrap();
                prop_assert_eq!((read.seq, read.time.to_string(), read.epoch), (parsed.seq, parsed.time, parsed.epoch));
            }
        }

        #[test]
        fn times_are_those_of_the_calendar(seconds in 0_i64..253_402_300_799) {
            let time = Timestamp::from_unix(seconds);
            prop_assert_eq!(utc(&time.to_string()), Some(time));
        }
    }

    #[test]
    fn other_forms_are_left_to_the_parser() {
        let details = BTreeMap::from([("a".to_owned(), "\u{1f}".to_owned()), ("b".to_owned(), String::new())]);
        let (previous, time) = (String::new(), "2026-11-20T23:10:11Z".to_owned());
        let (kind, replica, actor) = ("k".to_owned(), "r".to_owned(), String::new());
        let text = Entry { seq: 1, previous, time, kind, epoch: 3, replica, actor, details }.text();
        let is_read = |text: &str| Scanned::read(text).is_some_and(|(_, length)| length == text.len());
        assert!(is_read(&text));
        for (from, to) in [
            (":1,", ":01,"),
            (":1,", ": 1,"),
            ("\\u001f", "\\u001F"),
            ("\\u001f", "\\u0009"),
            ("\\u001f", "\\/"),
            ("\\u001f", "\t"),
            ("\"a\"", "\"c\""),
            ("\"a\"", "\"b\""),
            ("}}", "}} "),
            ("}}", "}"),
            ("11-20T", "11-31T"),
            ("10:11Z", "10:60Z"),
            ("10:11Z", "10:11+00:00"),
        ] {
            let other = text.replacen(from, to, 1);
            assert_ne!(other, text);
            assert!(!is_read(&other), "{other}");
        }
    }
}
