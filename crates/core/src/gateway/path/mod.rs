//! Reads request paths so that gateway and backend cannot understand them differently. Pure functions.
//!
//! Routes match decoded segments, but the backend gets the path as it came. So a path that could mean anything is
//! refused: dot segments in any spelling, encoded separators, empty segments, control characters, bytes that are not
//! UTF-8. A path that only *some* backends read as another one (see `reading`) is refused if that one would meet
//! another route.

mod pattern;
mod reading;

pub use pattern::{PathPattern, PatternError};
use reading::Reading;

/// How many segments a path may have.
const MOST_SEGMENTS: usize = 128;

/// Why a path is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It does not start with `/`.
    #[error("the path does not start with /")]
    NotAbsolute,
    /// More segments than any backend needs. Each takes more memory than its text.
    #[error("the path has more than {MOST_SEGMENTS} segments")]
    TooManySegments,
    /// Two slashes with nothing between them.
    #[error("the path has an empty segment (//)")]
    EmptySegment,
    /// `.` or `..` in any spelling, or a segment of dots and spaces.
    #[error("the path has a segment of dots")]
    DotSegment,
    /// `%` without two hexadecimal digits.
    #[error("the path has a percent sign without two hexadecimal digits")]
    Encoding,
    /// Bytes that are not UTF-8, such as an overlong `.`.
    #[error("the path is not UTF-8 once it is decoded")]
    NotUtf8,
    /// An encoded `/` or `\\`, a backslash, or a control character.
    #[error("the path has an encoded separator, a backslash or a control character")]
    Separator,
    /// Another reading of the path belongs to another route.
    #[error(
        "the path belongs to another route if its case, parameters (;), file extensions, trailing dots or spaces are \
         ignored, or if it is decoded twice"
    )]
    Route,
}

/// A path whose segments mean the same to every reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SafePath<'p> {
    raw: Vec<&'p str>,
    decoded: Vec<String>,
    readings: Vec<Reading>,
}

impl<'p> SafePath<'p> {
    /// Reads an absolute path. A trailing slash makes an empty last segment; no other segment may be empty.
    ///
    /// # Errors
    /// The [`PathError`] of the first segment that could mean anything.
    pub fn parse(path: &'p str) -> Result<Self, PathError> {
        let segments = path.strip_prefix('/').ok_or(PathError::NotAbsolute)?.split('/');
        let raw: Vec<&str> = segments.take(MOST_SEGMENTS + 1).collect();
        if raw.len() > MOST_SEGMENTS {
            return Err(PathError::TooManySegments);
        }
        if raw.iter().rev().skip(1).any(|segment| segment.is_empty()) {
            return Err(PathError::EmptySegment);
        }
        let mut safe = Self { decoded: Vec::with_capacity(raw.len()), readings: Vec::with_capacity(raw.len()), raw };
        for segment in &safe.raw {
            let decoded = decode(segment).ok_or(PathError::Encoding)?;
            let decoded = String::from_utf8(decoded).map_err(|_| PathError::NotUtf8)?;
            safe.readings.push(Reading::of(&decoded)?);
            safe.decoded.push(decoded);
        }
        Ok(safe)
    }

    /// The decoded segments.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = &str> {
        self.decoded.iter().map(String::as_str)
    }

    /// The path without its first `skip` segments.
    #[must_use]
    pub fn below(&self, skip: usize) -> PathBelow<'_> {
        PathBelow {
            raw: self.raw.get(skip..).unwrap_or_default(),
            decoded: self.decoded.get(skip..).unwrap_or_default(),
            readings: self.readings.get(skip..).unwrap_or_default(),
        }
    }
}

/// The end of a path: what the backend gets.
#[derive(Debug, Clone, Copy)]
pub struct PathBelow<'s> {
    raw: &'s [&'s str],
    decoded: &'s [String],
    readings: &'s [Reading],
}

impl PathBelow<'_> {
    /// As it came, with a leading slash; empty if there are no segments.
    #[must_use]
    pub fn as_sent(&self) -> String {
        self.raw.iter().fold(String::new(), |path, segment| path + "/" + segment)
    }
}

/// Percent-decodes once (RFC 3986 section 2.1). `None` if a percent sign has no two digits.
fn decode(text: &str) -> Option<Vec<u8>> {
    decode_with(text.as_bytes(), |_| None)
}

/// Percent-decodes; `alone` gives what a percent sign without two digits becomes, or `None` to end.
fn decode_with(text: &[u8], alone: fn(u8) -> Option<u8>) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let digit = |at: usize| tail.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        let encoded = digit(0).zip(digit(1)).and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        let (byte, length) = match (first, encoded) {
            (b'%', Some(byte)) => (byte, 2),
            (b'%', None) => (alone(*first)?, 0),
            (byte, _) => (*byte, 0),
        };
        decoded.push(byte);
        rest = tail.get(length..).unwrap_or_default();
    }
    Some(decoded)
}

#[cfg(test)]
mod tests;
