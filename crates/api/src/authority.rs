//! The certificate authority of a signer, as its AddOnSigner describes it.
#![expect(unreachable_pub, reason = "KubeSchema copies each struct into a function body")]

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cert_manager::IssuerRef;

/// The certificate authority of a signer.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(
    validation = Rule::new("duration(self.renewBefore) < duration(self.duration)")
        .message("authority.renewBefore must be shorter than authority.duration").field_path(".renewBefore"),
    validation = Rule::new("duration(self.renewBefore) >= duration('1h')")
        .message("authority.renewBefore must be at least 1h: the next one needs time").field_path(".renewBefore")
)]
// By its path: the copies that KubeSchema makes have no `Default`.
#[serde(rename_all = "camelCase", default = "AuthoritySpec::default")]
pub struct AuthoritySpec {
    /// Kind of the key of the next authority. The present authority keeps its key.
    pub key: AuthorityKeyKind,
    /// Where the hub keeps the keys of authorities.
    pub key_store: KeyStoreSpec,
    /// Who issues the certificates of authorities.
    pub issuer: IssuerSpec,
    /// Lifetime of an authority. Longer than certificate.maxDuration.
    #[schemars(length(min = 2, max = 20), regex(pattern = r"^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$"))]
    pub duration: String,
    /// How long before its end the hub replaces an authority. At least 1h.
    #[schemars(length(min = 2, max = 20), regex(pattern = r"^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$"))]
    pub renew_before: String,
}

/// Where the hub keeps the keys of authorities.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyStoreSpec {
    /// Where the hub keeps the keys. Secret: a Secret in its namespace.
    #[serde(default, rename = "type")]
    pub kind: KeyStoreType,
}

/// Kinds of stores of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum KeyStoreType {
    /// A Secret in the hub's namespace.
    #[default]
    Secret,
}

/// Who issues the certificates of authorities.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(
    validation = Rule::new("!has(self.secretName) || self.type == 'Imported'")
        .message("authority.issuer.secretName is for the type Imported").field_path(".secretName"),
    validation = Rule::new("has(self.issuerRef) == (self.type == 'CertManager')")
        .message("authority.issuer.issuerRef is for the type CertManager, which needs it").field_path(".issuerRef"),
    validation = Rule::new("has(self.vault) == (self.type == 'Vault')")
        .message("authority.issuer.vault is for the type Vault, which needs it").field_path(".vault")
)]
#[serde(rename_all = "camelCase")]
pub struct IssuerSpec {
    /// Who issues the authorities' certificates. SelfSigned: each authority itself. Imported: a CA of yours.
    /// CertManager: an issuer of cert-manager. Vault: no longer supported; the AddOnSigner keeps its authorities until
    /// their end; use CertManager, with an issuer that is a Vault.
    #[serde(default, rename = "type")]
    pub kind: IssuerType,
    /// For Imported: the Secret in the hub's namespace that has the authority (tls.crt with its chain), its key
    /// (tls.key) and the root (ca.crt), as cert-manager writes them, and the annotation addon-signer.io/authority-of. A
    /// new pair in it is a rotation. Without secretName, `ca csr` prints a CSR, and `ca import` brings its certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: Option<String>,
    /// For CertManager, which needs it: the issuer that signs the hub's CertificateRequests, which are in the hub's
    /// namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer_ref: Option<IssuerRef>,
    /// For Vault, which needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vault: Option<VaultSpec>,
}

/// A PKI secrets engine of Vault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VaultSpec {
    /// Where it is mounted, such as pki. The type Vault needs it.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$")
    )]
    pub path: String,
}

/// Kinds of issuers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum IssuerType {
    /// Each authority signs its own certificate.
    #[default]
    SelfSigned,
    /// Somebody outside issues it.
    Imported,
    /// An issuer of cert-manager signs the hub's request, after somebody has approved that.
    CertManager,
    /// An earlier version asked a PKI secrets engine of Vault. The lineage keeps its authorities until their end; use
    /// CertManager, with an issuer that is a Vault.
    Vault,
}

/// Kinds of keys of authorities: those that ring generates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AuthorityKeyKind {
    /// ECDSA on NIST P-256.
    #[default]
    #[serde(rename = "ECDSA-P256")]
    EcdsaP256,
    /// ECDSA on NIST P-384.
    #[serde(rename = "ECDSA-P384")]
    EcdsaP384,
    /// EdDSA on Curve25519.
    Ed25519,
}

impl Default for AuthoritySpec {
    fn default() -> Self {
        Self {
            key: AuthorityKeyKind::default(),
            key_store: KeyStoreSpec::default(),
            issuer: IssuerSpec::default(),
            duration: "8760h".to_owned(),
            renew_before: "2160h".to_owned(),
        }
    }
}

impl AuthorityKeyKind {
    /// The core's kind.
    pub fn kind(self) -> addon_signer_core::keys::public::KeyKind {
        use addon_signer_core::keys::public::KeyKind as Core;
        match self {
            Self::EcdsaP256 => Core::EcdsaP256,
            Self::EcdsaP384 => Core::EcdsaP384,
            Self::Ed25519 => Core::Ed25519,
        }
    }
}

impl IssuerSpec {
    /// The source of authorities that this describes.
    ///
    /// # Errors
    /// The field that its type needs is missing; this names it.
    pub fn source(&self) -> Result<AuthoritySource, &'static str> {
        Ok(match (self.kind, &self.secret_name) {
            (IssuerType::SelfSigned, _) => AuthoritySource::SelfSigned,
            (IssuerType::Imported, Some(name)) => AuthoritySource::Secret(name.clone()),
            (IssuerType::Imported, None) => AuthoritySource::Request,
            (IssuerType::CertManager, _) => {
                AuthoritySource::CertManager(self.issuer_ref.clone().ok_or("authority.issuer.issuerRef")?)
            }
            (IssuerType::Vault, _) => {
                self.vault.as_ref().ok_or("authority.issuer.vault")?;
                AuthoritySource::Vault
            }
        })
    }
}

/// Where the authorities of a lineage come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AuthoritySource {
    /// The hub makes them; each signs its own certificate.
    #[default]
    SelfSigned,
    /// An administrator puts them with their keys into this Secret of the hub's namespace.
    Secret(String),
    /// The hub makes the key and a CSR, and an administrator brings the certificate.
    Request,
    /// The hub makes the key and a CertificateRequest, which this issuer signs.
    CertManager(IssuerRef),
    /// There are no new ones: the hub no longer sends requests to Vault.
    Vault,
}
