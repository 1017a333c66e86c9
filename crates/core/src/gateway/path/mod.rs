//! Reads request paths so that gateway and backend cannot understand them differently. Pure functions.
//!
//! Routes match decoded segments, but the backend gets the path as the client sent it. So an ambiguous path is refused:
//! dot segments in any spelling, encoded separators, empty segments, control characters, bytes that are not UTF-8. A
//! path that only *some* backends take for another one is compared in its normal form, which can refuse a request and
//! admits none: `docs/paths.md` has the rules.

mod normal;
mod pattern;

use std::borrow::Cow;

use normal::normal_form;
pub use pattern::{PathPattern, PatternError};

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
    /// The normal form of the path belongs to another route.
    #[error(
        "the path belongs to another route if its case, parameters (;), file extensions, trailing dots or spaces are \
         ignored, or if it is decoded twice"
    )]
    Route,
}

/// A path whose segments mean the same to every reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SafePath<'p>(Vec<Segment<'p>>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Segment<'p> {
    raw: &'p str,
    decoded: Cow<'p, str>,
    normal: Cow<'p, str>,
}

impl<'p> Segment<'p> {
    fn read(raw: &'p str) -> Result<Self, PathError> {
        let decoded = decode(raw, |_| None)?;
        let normal = match &decoded {
            Cow::Borrowed(text) => normal_form(text)?,
            Cow::Owned(text) => normal_form(text)?.into_owned().into(),
        };
        Ok(Self { raw, decoded, normal })
    }
}

impl<'p> SafePath<'p> {
    /// Reads an absolute path. A trailing slash makes an empty last segment; no other segment may be empty.
    ///
    /// # Errors
    /// The [`PathError`] of the first ambiguous segment.
    pub fn parse(path: &'p str) -> Result<Self, PathError> {
        let segments = path.strip_prefix('/').ok_or(PathError::NotAbsolute)?.split('/');
        let raw: Vec<&str> = segments.take(MOST_SEGMENTS + 1).collect();
        if raw.len() > MOST_SEGMENTS {
            return Err(PathError::TooManySegments);
        }
        if raw.iter().rev().skip(1).any(|segment| segment.is_empty()) {
            return Err(PathError::EmptySegment);
        }
        raw.into_iter().map(Segment::read).collect::<Result<_, _>>().map(Self)
    }

    /// The decoded segments.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(|segment| &*segment.decoded)
    }

    /// The path without its first `skip` segments.
    #[must_use]
    pub fn below(&self, skip: usize) -> PathBelow<'_> {
        PathBelow(self.0.get(skip..).unwrap_or_default())
    }
}

/// The end of a path: what the backend gets.
#[derive(Debug, Clone, Copy)]
pub struct PathBelow<'s>(&'s [Segment<'s>]);

impl PathBelow<'_> {
    /// As the client sent it, with a leading slash; empty if there are no segments.
    #[must_use]
    pub fn as_sent(&self) -> String {
        self.0.iter().fold(String::new(), |path, segment| path + "/" + segment.raw)
    }
}

/// Percent-decodes once (RFC 3986 section 2.1); `alone` gives what a percent sign without two digits becomes, or `None`
/// to refuse it.
fn decode(text: &str, alone: fn(u8) -> Option<u8>) -> Result<Cow<'_, str>, PathError> {
    if !text.contains('%') {
        return Ok(text.into());
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let digit = |at: usize| tail.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        let encoded = digit(0).zip(digit(1)).and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        let (byte, length) = match (first, encoded) {
            (b'%', Some(byte)) => (byte, 2),
            (b'%', None) => (alone(*first).ok_or(PathError::Encoding)?, 0),
            (byte, _) => (*byte, 0),
        };
        decoded.push(byte);
        rest = tail.get(length..).unwrap_or_default();
    }
    String::from_utf8(decoded).map(Cow::Owned).map_err(|_| PathError::NotUtf8)
}

#[cfg(test)]
mod tests;
