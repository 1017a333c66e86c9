//! Durations and byte quantities as AddOnSigner writes them: a subset of Go's durations and of Kubernetes' quantities,
//! whole numbers only. The schema's patterns accept exactly these forms.

use std::time::Duration;

/// Why a duration or a quantity was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// Not hours, minutes and seconds in that order.
    #[error("`{0}` is not a duration: write hours, minutes and seconds in that order, such as 24h, 90m, 30s or 1h30m")]
    Duration(String),
    /// Not a whole number with a known suffix.
    #[error(
        "`{0}` is not a quantity: write a whole number and one of k, M, G, T, Ki, Mi, Gi, Ti or nothing, such as \
         64Mi or 1000"
    )]
    Quantity(String),
    /// More than 64 bits of bytes.
    #[error("the quantity `{0}` is too large: at most 18446744073709551615 bytes")]
    TooLarge(String),
}

/// The most digits before a unit of a duration: 999999h is 114 years, inside CEL's 292.
const MAX_DIGITS: usize = 6;

/// Reads a duration such as `24h`, `90m`, `30s` or `1h30m`.
///
/// # Errors
/// [`UnitError::Duration`] for everything else, including an empty text and fractions.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let malformed = || UnitError::Duration(text.to_owned());
    let mut rest = text;
    let mut seconds = 0_u64;
    for (unit, factor) in [('h', 3600), ('m', 60), ('s', 1)] {
        if let Some((number, after)) = rest.split_once(unit) {
            seconds += digits(number).ok_or_else(malformed)? * factor;
            rest = after;
        }
    }
    if text.is_empty() || !rest.is_empty() {
        return Err(malformed());
    }
    Ok(Duration::from_secs(seconds))
}

/// At most [`MAX_DIGITS`] decimal digits, so that no sum of three overflows.
fn digits(number: &str) -> Option<u64> {
    let plain = (1..=MAX_DIGITS).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| number.parse().ok())?
}

/// Suffixes of Kubernetes' quantities and their factors. The empty one is last, because every text ends with it.
const SUFFIXES: [(&str, u64); 9] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("", 1),
];

/// Reads a number of bytes such as `64Mi`, `1Gi`, `1000` or `1k`.
///
/// # Errors
/// [`UnitError::Quantity`] for fractions, signs and unknown suffixes; [`UnitError::TooLarge`] past 64 bits.
pub fn parse_quantity(text: &str) -> Result<u64, UnitError> {
    let (number, factor) = SUFFIXES
        .iter()
        .find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)))
        .ok_or_else(|| UnitError::Quantity(text.to_owned()))?;
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(UnitError::Quantity(text.to_owned()));
    }
    let number: Option<u64> = number.parse().ok(); // only digits, so the only possible failure is overflow
    number.and_then(|number| number.checked_mul(factor)).ok_or_else(|| UnitError::TooLarge(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_hours_minutes_seconds() {
        for (text, seconds) in [
            ("24h", 86_400),
            ("90m", 5_400),
            ("30s", 30),
            ("1h30m", 5_400),
            ("1h2m3s", 3_723),
            ("1h3s", 3_603),
            ("0s", 0),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
    }

    #[test]
    fn other_durations_are_refused_by_name() {
        for text in ["", "h", "24", "1.5h", "-1h", "+1h", "1d", "30m1h", "1h1h", " 1h", "1h ", "1000000h", "1ms", "١h"]
        {
            assert_eq!(parse_duration(text), Err(UnitError::Duration(text.to_owned())), "{text:?}");
        }
    }

    #[test]
    fn quantities_have_decimal_and_binary_suffixes() {
        for (text, bytes) in
            [("64Mi", 64 << 20), ("1Gi", 1 << 30), ("1000", 1_000), ("1k", 1_000), ("2M", 2_000_000), ("0", 0)]
        {
            assert_eq!(parse_quantity(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn other_quantities_are_refused_by_name() {
        for text in ["", "Mi", "1.5Mi", "-1", "+1", "1K", "1m", "1e3", "1 Mi", "64MB"] {
            assert_eq!(parse_quantity(text), Err(UnitError::Quantity(text.to_owned())), "{text:?}");
        }
        for text in ["18446744073709551616", "16777216Ti"] {
            assert_eq!(parse_quantity(text), Err(UnitError::TooLarge(text.to_owned())), "{text}");
        }
    }

    proptest! {
        #[test]
        fn duration_round_trip(seconds in 0_u64..3_600_000_000) {
            let text = format!("{}h{}m{}s", seconds / 3600, seconds / 60 % 60, seconds % 60);
            prop_assert_eq!(parse_duration(&text), Ok(Duration::from_secs(seconds)));
        }

        #[test]
        fn quantity_round_trip(number in 0_u64..1_000_000, index in 0..SUFFIXES.len()) {
            let (suffix, factor) = SUFFIXES[index];
            prop_assert_eq!(parse_quantity(&format!("{number}{suffix}")), Ok(number * factor));
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            // Any result is good, as long as nothing panics.
            let _ = parse_duration(&text);
            let _ = parse_quantity(&text);
        }
    }
}
