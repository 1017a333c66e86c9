//! The agent's credentials as PEM: a certificate, its key, and the anchors of the gateway.

pub mod plan;

use std::fmt;

use zeroize::Zeroizing;

/// The name of the certificate in a Secret or a directory.
pub const CERTIFICATE: &str = "tls.crt";
/// The name of the private key.
pub const KEY: &str = "tls.key";
/// The name of the file with the anchors that the gateway's certificate must chain to.
pub const BUNDLE: &str = "ca.crt";

/// The three files, not checked yet. An absent file is empty.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// `tls.crt`: one PEM block CERTIFICATE; further blocks are ignored.
    pub certificate: Vec<u8>,
    /// `tls.key`: one PEM block PRIVATE KEY (PKCS#8).
    pub key: Zeroizing<Vec<u8>>,
    /// `ca.crt`: PEM blocks CERTIFICATE.
    pub bundle: Vec<u8>,
}

impl Credentials {
    /// Each file with its name.
    pub fn files(&self) -> [(&'static str, &[u8]); 3] {
        [(CERTIFICATE, &self.certificate), (KEY, &self.key), (BUNDLE, &self.bundle)]
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { certificate, key: _, bundle } = self;
        write!(f, "Credentials({} bytes of certificate, private key, {} bytes of CA)", certificate.len(), bundle.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_of_credentials_shows_no_key() {
        let key = Zeroizing::new(b"secret".to_vec());
        let credentials = Credentials { certificate: vec![1], key, bundle: vec![] };
        assert_eq!(format!("{credentials:?}"), "Credentials(1 bytes of certificate, private key, 0 bytes of CA)");
    }
}
