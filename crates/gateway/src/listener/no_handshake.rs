//! Why a connection ended before it had a session. The number of causes is bounded.

use std::io;
use std::time::Duration;

use rustls::{CertificateError, Error, PeerIncompatible};

use addon_signer_core::named;

/// Why there was no session. The text goes into the audit log.
#[derive(Debug, thiserror::Error)]
pub enum NoHandshake {
    /// All permits for sessions are taken.
    #[error("there are already {0} sessions")]
    OverCapacity(usize),
    /// A handshake that came later took the permit.
    #[error("other connections have all the permits; there are {0} for handshakes")]
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
    #[error("{error}")]
    Tls {
        /// Why.
        error: Error,
        /// What the client's certificate says of itself, if rustls refused that; not verified.
        unverified: String,
    },
    /// The client sent no certificate.
    #[error("the client sent no certificate")]
    NoCertificate,
}

named! {
    /// Why a handshake failed, as metrics name it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum HandshakeFailure {
        /// The client sent no certificate.
        NoCertificate = "no_certificate",
        /// Its certificate has expired.
        Expired = "expired",
        /// No CA that is trusted has signed its certificate.
        UnknownAuthority = "unknown_authority",
        /// Its certificate is not valid for another reason.
        BadCertificate = "bad_certificate",
        /// It does not speak TLS.
        NotTls = "not_tls",
        /// It does not speak TLS 1.3.
        Version = "version",
        /// It refused: with an alert, for instance because it does not trust the gateway.
        Alert = "alert",
        /// It left.
        Closed = "closed",
        /// Anything else, such as no cipher suite in common.
        Other = "other",
    }
    /// The value of the label `cause`.
    pub fn as_str(self) -> &'static str;
}

impl NoHandshake {
    /// tokio-rustls wraps an error of rustls into an `io::Error`; any other `io::Error` comes from the socket.
    pub fn of(error: io::Error, unverified: String) -> Self {
        match error.downcast::<Error>() {
            Ok(Error::NoCertificatesPresented) => Self::NoCertificate,
            Ok(error) => Self::Tls { error, unverified },
            Err(socket) => Self::Closed(socket),
        }
    }

    /// What the client's certificate says of itself, if rustls refused that; not verified.
    pub fn unverified(&self) -> &str {
        if let Self::Tls { unverified, .. } = self { unverified } else { "" }
    }

    /// CamelCase name for the audit log.
    pub fn reason(&self) -> &'static str {
        self.names().0
    }

    /// Why the handshake failed; `None` if the gateway had no permit, time or configuration for it.
    pub fn failure(&self) -> Option<HandshakeFailure> {
        self.names().1
    }

    fn names(&self) -> (&'static str, Option<HandshakeFailure>) {
        match self {
            Self::OverCapacity(_) => ("OverCapacity", None),
            Self::Displaced(_) => ("HandshakeDisplaced", None),
            Self::NotConfigured => ("NotConfigured", None),
            Self::Slow(_) => ("HandshakeSlow", None),
            Self::Closed(_) => ("HandshakeClosed", Some(HandshakeFailure::Closed)),
            Self::NoCertificate => ("NoCertificate", Some(HandshakeFailure::NoCertificate)),
            Self::Tls { error, .. } => {
                let (reason, failure) = names_of_tls(error);
                (reason, Some(failure))
            }
        }
    }
}

fn names_of_tls(error: &Error) -> (&'static str, HandshakeFailure) {
    match error {
        Error::InvalidCertificate(error) => names_of_certificate(error),
        // Errors of a TLS 1.3 server about a client that offers only older versions.
        Error::PeerIncompatible(
            PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
        ) => ("PeerIncompatible", HandshakeFailure::Version),
        // No cipher suite in common, and the like.
        Error::PeerIncompatible(_) | Error::NoApplicationProtocol => ("PeerIncompatible", HandshakeFailure::Other),
        Error::AlertReceived(_) => ("AlertReceived", HandshakeFailure::Alert),
        // Not TLS, or bytes that TLS does not allow there.
        Error::InvalidMessage(_)
        | Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. }
        | Error::PeerMisbehaved(_)
        | Error::PeerSentOversizedRecord
        | Error::DecryptError => ("NotTLS", HandshakeFailure::NotTls),
        _ => ("HandshakeFailed", HandshakeFailure::Other),
    }
}

fn names_of_certificate(error: &CertificateError) -> (&'static str, HandshakeFailure) {
    use CertificateError as Bad;
    match error {
        Bad::UnknownIssuer => ("UnknownIssuer", HandshakeFailure::UnknownAuthority),
        Bad::Expired | Bad::ExpiredContext { .. } => ("CertificateExpired", HandshakeFailure::Expired),
        Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
            ("CertificateNotYetValid", HandshakeFailure::BadCertificate)
        }
        Bad::InvalidPurpose | Bad::InvalidPurposeContext { .. } => {
            ("CertificateNotForClients", HandshakeFailure::BadCertificate)
        }
        _ => ("CertificateInvalid", HandshakeFailure::BadCertificate),
    }
}

#[cfg(test)]
mod tests {
    use rustls::InvalidMessage;

    use super::*;

    #[test]
    fn every_failure_has_one_of_few_causes() {
        let tls =
            |error: Error| NoHandshake::of(io::Error::new(io::ErrorKind::InvalidData, error), String::new()).reason();
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
        assert_eq!(NoHandshake::of(io::ErrorKind::UnexpectedEof.into(), String::new()).reason(), "HandshakeClosed");
    }

    #[test]
    fn what_is_no_fault_of_the_handshake_is_counted_elsewhere() {
        let of = |error: Error| {
            NoHandshake::of(io::Error::new(io::ErrorKind::InvalidData, error), String::new()).failure().unwrap()
        };
        assert_eq!(of(Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon)), HandshakeFailure::Other);
        assert_eq!(of(Error::InvalidCertificate(CertificateError::NotValidYet)), HandshakeFailure::BadCertificate);
        assert_eq!(of(Error::PeerSentOversizedRecord), HandshakeFailure::NotTls);
        assert_eq!(NoHandshake::NotConfigured.failure(), None);
        assert_eq!(NoHandshake::Slow(Duration::from_secs(1)).failure(), None);
    }
}
