//! The normal form of a segment: what it is to a backend that folds its case, normalises it (NFKC), decodes it twice,
//! and cuts its parameters, its trailing dots and spaces, and its extension. `docs/paths.md` defines what it decides.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization;

use super::{PathError, decode};

/// The normal form of a decoded segment, with its extension.
///
/// # Errors
/// For some backend it is a dot segment, is empty, or has a separator.
pub(super) fn normal_form(segment: &str) -> Result<Cow<'_, str>, PathError> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_~$&'()*+,=:@!".contains(&byte);
    if segment.bytes().all(is_plain) && !segment.ends_with('.') {
        return Ok(segment.into()); // nearly all segments
    }
    check(segment)?;
    // A second decoder may keep a percent sign without two digits.
    let normalised = nfkc(segment);
    let twice = decode(&normalised, Some)?;
    let twice = nfkc(&twice);
    check(&twice)?;
    // Both directions, because some characters have a capital in ASCII and are not its small letter, such as ſ.
    let folded = without_parameters(&twice).to_uppercase().to_lowercase();
    Ok(trim(&folded).to_owned().into())
}

/// Whether some backend could take a segment for that of a route, by their normal forms. An extension is cut only to
/// compare with a segment that has none.
pub(super) fn is_alike(segment: &str, of_route: &str) -> bool {
    let stem = || segment.rsplit_once('.').map(|(stem, _)| trim(stem));
    segment == of_route || !of_route.contains('.') && stem() == Some(of_route)
}

/// What is ASCII is normalised already, such as the service of a gRPC request.
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
