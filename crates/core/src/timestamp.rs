//! A point in time in whole seconds. The core takes it as an argument and never reads a clock.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Seconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The time at these Unix seconds.
    pub const fn from_unix(seconds: i64) -> Self {
        Self(seconds)
    }

    /// Its Unix seconds.
    pub const fn unix(self) -> i64 {
        self.0
    }

    /// `duration` after this time; at most the latest time that can be represented.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)))
    }

    /// `duration` before this time.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)))
    }

    /// The time from this time until `later`; zero if `later` is earlier.
    pub fn until(self, later: Self) -> Duration {
        Duration::from_secs(u64::try_from(later.0.saturating_sub(self.0)).unwrap_or(0))
    }

    /// Reads RFC 3339, and rounds a fraction of a second up. `None` for any other text.
    pub fn from_rfc3339_rounded_up(text: &str) -> Option<Self> {
        let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
        Some(Self(time.unix_timestamp().saturating_add(i64::from(time.nanosecond() > 0))))
    }

    /// Reads what `Display` wrote. `None` for any other text.
    pub fn from_display(text: &str) -> Option<Self> {
        match text.strip_prefix('@') {
            Some(seconds) => seconds.parse().ok().map(Self),
            None => Self::from_rfc3339(text),
        }
        .filter(|time| time.to_string() == text)
    }

    /// Reads RFC 3339, and drops a fraction of a second. `None` for any other text.
    pub fn from_rfc3339(text: &str) -> Option<Self> {
        OffsetDateTime::parse(text, &Rfc3339).ok().map(|time| Self(time.unix_timestamp()))
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC; `@` and Unix seconds if the year has more than four digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = OffsetDateTime::from_unix_timestamp(self.0).ok().and_then(|time| time.format(&Rfc3339).ok());
        match text {
            Some(text) => f.write_str(&text),
            None => write!(f, "@{}", self.0),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::from_rfc3339(&text).ok_or_else(|| de::Error::custom(format!("{text:?} is not an RFC 3339 time")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_and_reads_rfc3339() {
        let time = Timestamp::from_unix(1_795_000_000);
        assert_eq!(time.to_string(), "2026-11-18T11:06:40Z");
        assert_eq!(Timestamp::from_rfc3339("2026-11-18T12:06:40+01:00"), Some(time));
        assert_eq!(Timestamp::from_rfc3339("yesterday"), None);
        assert_eq!(Timestamp::from_rfc3339_rounded_up("2026-11-18T11:06:40Z"), Some(time));
        assert_eq!(Timestamp::from_rfc3339_rounded_up("2026-11-18T11:06:39.001Z"), Some(time));
        assert_eq!(Timestamp::from_rfc3339_rounded_up("2026-11-18"), None);
        assert_eq!(time.plus(Duration::from_secs(5)).until(time), Duration::ZERO);
        assert_eq!(Timestamp::from_unix(i64::MAX).to_string(), format!("@{}", i64::MAX));
        for time in [time, Timestamp::from_unix(253_402_300_800), Timestamp::from_unix(i64::MIN)] {
            assert_eq!(Timestamp::from_display(&time.to_string()), Some(time));
        }
        assert_eq!(Timestamp::from_display("2026-11-18T12:06:40+01:00"), None);
    }
}
