//! Why a connection ended before it had a session. The number of causes is bounded.

use std::io;
use std::time::Duration;

use rustls::{CertificateError, Error};

/// Why there was no session. The text goes into the audit log.
#[derive(Debug, thiserror::Error)]
pub enum NoHandshake {
    /// All slots for sessions are taken.
    #[error("there are already {0} sessions")]
    OverCapacity(usize),
    /// A handshake that came later took the slot.
    #[error("other connections have all the slots; there are {0} for handshakes")]
    Displaced(usize),
    /// The listener has no certificate or no trust bundle yet.
    #[error("no configuration is in effect")]
    NotConfigured,
    /// The handshake took too long.
    #[error("the handshake took longer than {0:?}")]
    Slow(Duration),
    /// The socket failed, or the client closed it.
    #[error("the connection ended during the handshake: {0}")]
    Closed(io::Error),
    /// rustls refused the handshake.
    #[error("{0}")]
    Tls(Error),
    /// The client sent no certificate.
    #[error("the client sent no certificate")]
    NoCertificate,
}

impl NoHandshake {
    /// tokio-rustls wraps an error of rustls into an `io::Error`; any other `io::Error` comes from the socket.
    pub fn of(error: io::Error) -> Self {
        match error.downcast::<Error>() {
            Ok(Error::NoCertificatesPresented) => Self::NoCertificate,
            Ok(tls) => Self::Tls(tls),
            Err(socket) => Self::Closed(socket),
        }
    }

    /// CamelCase name for the audit log.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::OverCapacity(_) => "OverCapacity",
            Self::Displaced(_) => "HandshakeDisplaced",
            Self::NotConfigured => "NotConfigured",
            Self::Slow(_) => "HandshakeSlow",
            Self::Closed(_) => "HandshakeClosed",
            Self::NoCertificate => "NoCertificate",
            Self::Tls(error) => tls_reason(error),
        }
    }
}

fn tls_reason(error: &Error) -> &'static str {
    match error {
        Error::InvalidCertificate(error) => certificate_reason(error),
        // An old version of TLS, no cipher suite in common, and the like.
        Error::PeerIncompatible(_) | Error::NoApplicationProtocol => "PeerIncompatible",
        Error::AlertReceived(_) => "AlertReceived",
        // Not TLS, or bytes that TLS does not allow there.
        Error::InvalidMessage(_)
        | Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. }
        | Error::PeerMisbehaved(_)
        | Error::PeerSentOversizedRecord
        | Error::DecryptError => "NotTLS",
        _ => "HandshakeFailed",
    }
}

fn certificate_reason(error: &CertificateError) -> &'static str {
    match error {
        CertificateError::UnknownIssuer => "UnknownIssuer",
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "CertificateExpired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "CertificateNotYetValid",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => "CertificateNotForClients",
        _ => "CertificateInvalid",
    }
}

#[cfg(test)]
mod tests {
    use rustls::{InvalidMessage, PeerIncompatible};

    use super::*;

    #[test]
    fn every_failure_has_one_of_few_causes() {
        let tls = |error: Error| NoHandshake::of(io::Error::new(io::ErrorKind::InvalidData, error)).reason();
        let certificate = |error| tls(Error::InvalidCertificate(error));
        assert_eq!(tls(Error::NoCertificatesPresented), "NoCertificate");
        assert_eq!(tls(Error::PeerIncompatible(PeerIncompatible::Tls13RequiredForQuic)), "PeerIncompatible");
        assert_eq!(tls(Error::InvalidMessage(InvalidMessage::InvalidContentType)), "NotTLS");
        assert_eq!(tls(Error::AlertReceived(rustls::AlertDescription::UnknownCA)), "AlertReceived");
        assert_eq!(tls(Error::General("x".to_owned())), "HandshakeFailed");
        assert_eq!(certificate(CertificateError::UnknownIssuer), "UnknownIssuer");
        assert_eq!(certificate(CertificateError::Expired), "CertificateExpired");
        assert_eq!(certificate(CertificateError::NotValidYet), "CertificateNotYetValid");
        assert_eq!(certificate(CertificateError::InvalidPurpose), "CertificateNotForClients");
        assert_eq!(certificate(CertificateError::BadSignature), "CertificateInvalid");
        assert_eq!(NoHandshake::of(io::ErrorKind::UnexpectedEof.into()).reason(), "HandshakeClosed");
    }
}
