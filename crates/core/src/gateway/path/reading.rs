//! How else a segment of a path could be read, by backends that fold its case, normalise it (NFKC), decode it twice,
//! cut its parameters, its trailing dots and spaces, or its extension.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization;

use super::{PathError, decode_with};

/// A segment as the most forgiving backend reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reading {
    /// With everything but its extension folded and cut.
    whole: String,
    /// Without its last extension; `None` if there is none.
    stem: Option<String>,
}

impl Reading {
    /// Reads a decoded segment.
    ///
    /// # Errors
    /// Some reading of it is a dot segment, is empty, or has a separator.
    pub(super) fn of(segment: &str) -> Result<Self, PathError> {
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_~$&'()*+,=:@!".contains(&byte);
        if segment.bytes().all(is_plain) {
            return Ok(Self { whole: segment.to_owned(), stem: None }); // nearly all segments
        }
        check(segment)?;
        // A second decoder may keep a percent sign without two digits.
        let twice = decode_with(nfkc(segment).as_bytes(), Some).unwrap_or_default();
        let twice = String::from_utf8(twice).map_err(|_| PathError::NotUtf8)?;
        let twice = nfkc(&twice);
        check(&twice)?;
        // Both directions, because some characters have a capital in ASCII and are not its small letter, such as ſ.
        let folded = without_parameters(&twice).to_uppercase().to_lowercase();
        let whole = trim(&folded).to_owned();
        let stem = whole.rsplit_once('.').map(|(stem, _)| trim(stem).to_owned());
        Ok(Self { whole, stem })
    }

    /// Reads a segment of a route, which has no other meaning than itself.
    pub(super) fn of_route(segment: &str) -> Self {
        Self { whole: trim(&segment.to_lowercase()).to_owned(), stem: None }
    }

    /// Whether some backend could take this segment for that of a route. An extension is cut only to compare with one
    /// that has none.
    pub(super) fn may_be(&self, of_route: &Self) -> bool {
        let without = || !of_route.whole.contains('.') && self.stem.as_ref() == Some(&of_route.whole);
        self.whole == of_route.whole || without()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.whole.is_empty()
    }
}

/// What is ASCII is normalised already, such as the service of a gRPC call.
fn nfkc(text: &str) -> Cow<'_, str> {
    if text.is_ascii() { text.into() } else { text.nfkc().collect() }
}

/// Windows' file names have no trailing dots and spaces.
fn trim(segment: &str) -> &str {
    segment.trim_end_matches(['.', ' '])
}

/// The part of a segment before its parameters (RFC 3986 section 3.3), or before a query or fragment that was encoded.
fn without_parameters(segment: &str) -> &str {
    segment.split([';', '?', '#']).next().unwrap_or_default()
}

fn check(segment: &str) -> Result<(), PathError> {
    if segment.contains(|char: char| matches!(char, '/' | '\\') || char.is_control()) {
        return Err(PathError::Separator);
    }
    let name = without_parameters(segment);
    if name.is_empty() && !segment.is_empty() {
        Err(PathError::EmptySegment)
    } else if trim(name).is_empty() && !name.is_empty() {
        Err(PathError::DotSegment)
    } else {
        Ok(())
    }
}
