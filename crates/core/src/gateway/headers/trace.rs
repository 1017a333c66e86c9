//! Reads the trace that a request belongs to: <https://www.w3.org/TR/trace-context/#traceparent-header>.

use http::header::HeaderMap;

/// The trace-id of the one valid `traceparent`: 32 hexadecimal digits.
#[must_use]
pub fn trace_id(headers: &HeaderMap) -> Option<&str> {
    let mut fields = headers.get_all("traceparent").iter();
    let (Some(field), None) = (fields.next(), fields.next()) else { return None };
    let mut parts = field.to_str().ok()?.split('-'); // what is no text is not valid
    let [version, trace, parent, flags] = [parts.next()?, parts.next()?, parts.next()?, parts.next()?];
    // Later versions may have more parts; ff is none (section 3.2.2.1).
    let is_known = version != "ff" && (version != "00" || parts.next().is_none());
    let is_hex = |part: &str| part.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let is_hex = [(version, 2), (trace, 32), (parent, 16), (flags, 2)]
        .iter()
        .all(|(part, length)| part.len() == *length && is_hex(part));
    let is_set = [trace, parent].iter().all(|id| id.bytes().any(|digit| digit != b'0'));
    (is_known && is_hex && is_set).then_some(trace)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn mk_headers(fields: &[&str]) -> HeaderMap {
        let name = http::HeaderName::from_static("traceparent");
        fields.iter().map(|field| (name.clone(), HeaderValue::from_str(field).unwrap())).collect()
    }

    #[test]
    fn a_trace_is_read_from_a_valid_header_only() {
        let read = |field: &str| trace_id(&mk_headers(&[field])).map(str::to_owned);
        let valid = format!("00-{TRACE}-00f067aa0ba902b7-01");
        assert_eq!(read(&valid), Some(TRACE.to_owned()));
        assert_eq!(read(&format!("cc-{TRACE}-00f067aa0ba902b7-01-what")), Some(TRACE.to_owned()));
        for wrong in [
            String::new(),
            TRACE.to_owned(),
            format!("ff-{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{TRACE}-00f067aa0ba902b7-01-what"),
            format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{TRACE}0-00f067aa0ba902b7-01"),
            format!("00-{TRACE}-00f067aa0ba902b-01"),
            format!("00-{TRACE}-00f067aa0ba902b7-1"),
        ] {
            assert_eq!(read(&wrong), None, "{wrong}");
        }
        assert_eq!(trace_id(&mk_headers(&[&valid, &valid])), None, "nobody knows which one");
        assert_eq!(trace_id(&HeaderMap::new()), None);
    }
}
