//! Errors as one line of text.

use std::error::Error;

/// The error and its chain of causes, because clients often say only "connection error" at the top and keep the cause
/// at the bottom. No text appears twice. For a refusal by the API server only the message appears, because kube would
/// print the whole Status object.
#[must_use]
pub fn explain(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(cause) = next {
        let refusal = match cause.downcast_ref::<kube::Error>() {
            Some(kube::Error::Api(status)) => Some(status.message.clone()),
            _ => None,
        };
        let words = refusal.clone().unwrap_or_else(|| cause.to_string());
        if !text.contains(&words) {
            let separator = if text.is_empty() { "" } else { ": " };
            text.push_str(separator);
            text.push_str(&words);
        }
        // The cause of a refusal has the same message again.
        next = if refusal.is_some() { None } else { cause.source() };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("AddOnSigners cannot be listed")]
    struct NotListed(#[source] kube::Error);

    #[test]
    fn a_cause_is_said_once_and_without_the_status_object() {
        let status =
            kube::core::Status { code: 403, message: "User \"x\" cannot list".to_owned(), ..Default::default() };
        let refused = NotListed(kube::Error::Api(Box::new(status)));
        assert_eq!(explain(&refused), "AddOnSigners cannot be listed: User \"x\" cannot list");
    }
}
