//! Makes the head of a backend's response one that clients of HTTP/1.1 and HTTP/2 read alike.

use http::StatusCode;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderValue, TRANSFER_ENCODING};

/// How many headers a request or a response may have: each takes a few hundred bytes, however small it is. hyper allows
/// as many with HTTP/1.1.
pub const MOST_HEADERS: usize = 100;

/// How many bytes the headers of either may have, with 32 for each as HTTP/2 counts (RFC 9113 section 6.5.2).
pub const MOST_BYTES: u32 = 32 * 1024;

/// Why the gateway does not pass on a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadAnswer {
    /// It has more than [`MOST_HEADERS`].
    #[error("its answer has more than {MOST_HEADERS} headers")]
    Headers,
    /// It has more than [`MOST_BYTES`].
    #[error("the headers of its answer have more than {MOST_BYTES} bytes")]
    Bytes,
    /// Its lengths differ, or one is not a number (RFC 9110 section 8.6).
    #[error("the Content-Length of its answer is not one number")]
    Length,
    /// Its content has another coding than `chunked`. The gateway asks for none (RFC 9112 section 7.4).
    #[error("the Transfer-Encoding of its answer is not chunked")]
    Coding,
    /// Two fields define where it ends (RFC 9112 section 6.3).
    #[error("its answer has both Content-Length and Transfer-Encoding")]
    Both,
}

/// Checks the fields that define where a response ends, and writes them once. HTTP/2 has no `Transfer-Encoding`, and
/// its clients accept no second `Content-Length`, none with 204, and no space around a value (RFC 9113 section 8.2.1).
///
/// # Errors
/// The client could read the response otherwise than the gateway, or it has too many headers.
pub fn normalise(status: StatusCode, headers: &mut HeaderMap) -> Result<(), BadAnswer> {
    if headers.len() > MOST_HEADERS {
        return Err(BadAnswer::Headers);
    }
    // hyper's own limit is that of a buffer, which may become twice as large.
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum();
    if bytes > MOST_BYTES as usize {
        return Err(BadAnswer::Bytes);
    }
    let codings: Vec<&[u8]> = headers.get_all(TRANSFER_ENCODING).iter().map(HeaderValue::as_bytes).collect();
    let is_chunked = match codings.as_slice() {
        [] => false,
        [coding] if coding.eq_ignore_ascii_case(b"chunked") => true,
        _ => return Err(BadAnswer::Coding),
    };
    if headers.contains_key(CONTENT_LENGTH) {
        if is_chunked {
            return Err(BadAnswer::Both);
        }
        let length = length(headers).ok_or(BadAnswer::Length)?;
        headers.insert(CONTENT_LENGTH, length.into());
    }
    if status.is_informational() || status == StatusCode::NO_CONTENT {
        headers.remove(CONTENT_LENGTH); // RFC 9110 section 8.6
    }
    trim(headers);
    Ok(())
}

/// The length, if all fields have the same number.
fn length(headers: &HeaderMap) -> Option<u64> {
    let mut lengths =
        headers.get_all(CONTENT_LENGTH).iter().flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
    let number = |text: &[u8]| {
        let digits = text.trim_ascii();
        let digits = str::from_utf8(digits).ok().filter(|_| digits.iter().all(u8::is_ascii_digit))?; // no sign
        digits.parse::<u64>().ok()
    };
    let first = number(lengths.next()?)?;
    lengths.all(|other| number(other) == Some(first)).then_some(first)
}

/// Removes space around values.
pub(super) fn trim(headers: &mut HeaderMap) {
    for value in headers.values_mut() {
        let trimmed = value.as_bytes().trim_ascii();
        if trimmed.len() < value.len()
            && let Ok(trimmed) = HeaderValue::from_bytes(trimmed)
        {
            *value = trimmed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalised(status: u16, fields: &[(&'static str, &str)]) -> Result<Vec<String>, BadAnswer> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        normalise(StatusCode::from_u16(status).unwrap(), &mut headers)?;
        Ok(headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect())
    }

    #[test]
    fn an_answer_has_one_length_or_none() {
        const CL: &str = "content-length";
        const TE: &str = "transfer-encoding";
        let four = || Ok(vec!["content-length: 4".to_owned()]);
        assert_eq!(normalised(200, &[(CL, "4")]), four());
        assert_eq!(normalised(200, &[(CL, "4"), (CL, "4")]), four());
        assert_eq!(normalised(200, &[(CL, "4 ,\t04"), (CL, " 4")]), four());
        assert_eq!(normalised(304, &[(CL, "4"), (CL, "4")]), four());
        assert_eq!(normalised(204, &[(CL, "0")]), Ok(vec![]));
        assert_eq!(normalised(101, &[(CL, "4")]), Ok(vec![]));
        for bad in ["", "+4", "-4", "4,", "4,5", "0x4", "4.0", "4 4", "18446744073709551616", "four"] {
            assert_eq!(normalised(200, &[(CL, bad)]), Err(BadAnswer::Length), "{bad}");
        }
        assert_eq!(normalised(200, &[(CL, "4"), (CL, "5")]), Err(BadAnswer::Length));
        assert_eq!(normalised(200, &[(TE, "Chunked")]), Ok(vec!["transfer-encoding: Chunked".to_owned()]));
        for bad in ["", "gzip", "gzip, chunked", "chunked, chunked", "identity", "chunked;q=1"] {
            assert_eq!(normalised(200, &[(TE, bad)]), Err(BadAnswer::Coding), "{bad}");
        }
        assert_eq!(normalised(200, &[(TE, "chunked"), (TE, "chunked")]), Err(BadAnswer::Coding));
        assert_eq!(normalised(200, &[(TE, "chunked"), (CL, "4")]), Err(BadAnswer::Both));
    }

    #[test]
    fn values_of_an_answer_have_no_space_around_them() {
        assert_eq!(
            normalised(200, &[("x-a", "\t a b "), ("x-b", " ")]),
            Ok(vec!["x-a: a b".to_owned(), "x-b: ".to_owned()])
        );
    }

    #[test]
    fn an_answer_has_a_hundred_headers_and_32_kib_at_most() {
        let fits = MOST_BYTES as usize - "x-a".len() - 32;
        assert!(normalised(200, &[("x-a", &"x".repeat(fits))]).is_ok());
        assert_eq!(normalised(200, &[("x-a", &"x".repeat(fits + 1))]), Err(BadAnswer::Bytes));
        assert!(normalised(200, &[("x-a", "1"); MOST_HEADERS]).is_ok());
        assert_eq!(normalised(200, &[("x-a", "1"); MOST_HEADERS + 1]), Err(BadAnswer::Headers));
    }
}
