//! Errors as one line of text.

use std::error::Error;
use std::io;

use kube::client::AuthError;
use rustls::CertificateError;

/// Added where this machine's clock may be the cause.
const CLOCK: &str = "; check this machine's clock";

/// The error and its chain of causes, because clients often report only "connection error" at the top and keep the
/// cause at the bottom. No text appears twice. A refusal by the API server appears as its message alone, because kube
/// would print the whole Status object; a failed credential plugin, without its output.
#[must_use]
pub fn explain(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(cause) = next {
        let refusal = match cause.downcast_ref::<kube::Error>() {
            Some(kube::Error::Api(status)) => Some(status.message.clone()),
            _ => None,
        };
        let plugin = cause.downcast_ref().and_then(without_output);
        if let Some(message) = &plugin {
            text = text.replace(&cause.to_string(), message); // those above may quote it
        }
        let end = refusal.or(plugin);
        let words = end.clone().unwrap_or_else(|| cause.to_string());
        if !text.contains(&words) {
            let separator = if text.is_empty() { "" } else { ": " };
            text.push_str(separator);
            text.push_str(&words);
        }
        // The cause of a refusal has the same message again.
        next = if end.is_some() { None } else { cause.source() };
    }
    if certificate_error(error).is_some_and(depends_on_time) {
        text.push_str(CLOCK);
    }
    text
}

/// What was wrong with the other end's certificate, if that made a TLS handshake fail.
fn certificate_error<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e CertificateError> {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    causes.find_map(|cause| {
        // The error in an `io::Error` is not returned by its `source`.
        let tls = match cause.downcast_ref::<io::Error>() {
            Some(error) => error.get_ref()?.downcast_ref(),
            None => cause.downcast_ref(),
        };
        match tls? {
            rustls::Error::InvalidCertificate(cause) => Some(cause),
            _ => None,
        }
    })
}

fn depends_on_time(cause: &CertificateError) -> bool {
    matches!(
        cause,
        CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. }
    )
}

/// What to report of a credential plugin in place of its arguments and its output, which may contain a token.
fn without_output(error: &AuthError) -> Option<String> {
    match error {
        AuthError::AuthExecRun { out, .. } => Some(format!("the credential plugin failed ({})", out.status)),
        AuthError::AuthExecParse(_) => Some("the credential plugin printed no ExecCredential".to_owned()),
        _ => None,
    }
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

    #[test]
    fn certificates_outside_their_time_hint_at_the_clock() {
        let text = |cause| {
            let error = io::Error::new(io::ErrorKind::InvalidData, rustls::Error::InvalidCertificate(cause));
            explain(&kube::Error::Service(Box::new(error)))
        };
        for cause in [CertificateError::Expired, CertificateError::NotValidYet] {
            assert!(text(cause).ends_with("; check this machine's clock"));
        }
        assert!(!text(CertificateError::UnknownIssuer).contains("clock"));
    }
}
