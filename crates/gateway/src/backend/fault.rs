//! Why a backend failed: in full for the audit log, and as one of few sentences for the caller.

use std::error::Error;
use std::io::{self, ErrorKind};

use rustls::{AlertDescription, CertificateError, Error as TlsError};

use addon_signer_core::named;

named! {
    /// What a caller learns of a failure. None has an address, a name, or text of the backend.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Fault {
        Unreachable = "the backend could not be reached",
        PortRefused = "the backend's port refused the connection",
        Expired = "the backend's certificate has expired",
        AnotherName = "the backend's certificate is for another name",
        UnknownAuthority = "the backend's certificate is of another CA than the AddOnRoute's",
        BadCertificate = "the backend's certificate is not valid",
        Refused = "the backend refused the gateway by a TLS alert",
        NotTls = "the backend does not speak TLS",
        Protocol = "the backend does not speak the protocol of the AddOnRoute",
        Closed = "the backend ended the connection or stream without a response",
        Other = "for another reason, which the gateway's audit log has",
    }
    /// The detail of the problem.
    pub(crate) fn as_str(self) -> &'static str;
}

/// A failure of a backend.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) fault: Fault,
    pub(crate) cause: String,
}

impl Fault {
    pub(crate) fn because(self, cause: impl Into<String>) -> Failure {
        Failure { fault: self, cause: cause.into() }
    }

    /// `None` if only the source of the error says more.
    fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            let tls = error.get_ref().and_then(|inner| inner.downcast_ref());
            return tls.map(Self::of_tls).or_else(|| Self::of_socket(error.kind()));
        }
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            // h2 keeps no more of an error of TLS than its kind.
            let is_tls = error.get_io().is_some_and(|error| error.kind() == ErrorKind::InvalidData);
            let remote = if is_tls { Self::Refused } else { Self::Closed };
            return Some(if error.is_library() { Self::Protocol } else { remote });
        }
        let http1 = error.downcast_ref::<hyper::Error>()?;
        let closed = http1.is_incomplete_message().then_some(Self::Closed);
        if http1.is_parse() { Some(Self::Protocol) } else { closed }
    }

    fn of_socket(kind: ErrorKind) -> Option<Self> {
        use ErrorKind as Kind;
        match kind {
            Kind::ConnectionRefused => Some(Self::PortRefused),
            Kind::HostUnreachable | Kind::NetworkUnreachable | Kind::TimedOut => Some(Self::Unreachable),
            Kind::BrokenPipe | Kind::ConnectionReset | Kind::UnexpectedEof => Some(Self::Closed),
            _ => None,
        }
    }

    fn of_tls(error: &TlsError) -> Self {
        use CertificateError as Bad;
        match error {
            TlsError::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }) => Self::Expired,
            TlsError::InvalidCertificate(Bad::NotValidForName | Bad::NotValidForNameContext { .. }) => {
                Self::AnotherName
            }
            TlsError::InvalidCertificate(Bad::UnknownIssuer) => Self::UnknownAuthority,
            TlsError::InvalidCertificate(_) => Self::BadCertificate,
            TlsError::AlertReceived(AlertDescription::NoApplicationProtocol) => Self::Protocol,
            TlsError::AlertReceived(_) => Self::Refused,
            TlsError::InvalidMessage(_) => Self::NotTls,
            _ => Self::Other,
        }
    }
}

impl<E: Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let error: &(dyn Error + 'static) = &error;
        let all = || std::iter::successors(Some(error), |cause: &&(dyn Error + 'static)| (*cause).source());
        let causes: Vec<String> = all().map(ToString::to_string).collect();
        all().find_map(Fault::of).unwrap_or(Fault::Other).because(causes.join(": "))
    }
}
