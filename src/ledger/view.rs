//! What is told of a certificate: the same to `certs --output json`, over HTTP, and to its client.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::connection::Cells;
use addon_signer_core::timestamp::Timestamp;

/// What an intent has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CertificateState {
    /// It was decided to sign; nothing was signed yet.
    Intent,
    /// It was signed, and is not known to have been handed over.
    Signed,
    /// It was handed over.
    Published,
    /// It was signed and could not be handed over.
    Unpublished,
    /// It was never signed.
    Abandoned,
}

impl CertificateState {
    const ALL: [Self; 5] = [Self::Intent, Self::Signed, Self::Published, Self::Unpublished, Self::Abandoned];

    /// As the ledger writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Intent => "intent",
            Self::Signed => "signed",
            Self::Published => "published",
            Self::Unpublished => "unpublished",
            Self::Abandoned => "abandoned",
        }
    }

    /// Whether nothing more is to be done.
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Intent | Self::Signed)
    }

    /// Whether there is a certificate.
    pub fn is_signed(self) -> bool {
        matches!(self, Self::Signed | Self::Published | Self::Unpublished)
    }
}

impl fmt::Display for CertificateState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CertificateState {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|state| state.name() == name).ok_or(())
    }
}

/// One certificate, or what was to become one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Certificate {
    /// The entry of its intent; a later one has a larger number.
    pub seq: u64,
    /// As [`Serial`](addon_signer_core::ca::serial::Serial) writes it.
    pub serial: String,
    /// What it has come to.
    pub state: CertificateState,
    /// The AddOnSigner, or `gateway-serving`.
    pub signer: String,
    /// Whose it is; empty for the gateway's own, as `addon` and `agent`.
    pub cluster: String,
    /// Of which addon.
    pub addon: String,
    /// Of which agent.
    pub agent: String,
    /// The id of the authority that signs.
    pub issuer: String,
    /// The name of the CSR.
    pub request: String,
    /// The UID of the CSR.
    pub uid: String,
    /// The first second of the certificate.
    pub not_before: Timestamp,
    /// Its last second.
    pub not_after: Timestamp,
    /// When it was known to have been handed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_at: Option<Timestamp>,
    /// When it was last used at the gateway, as far as is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Timestamp>,
    /// From which address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen_from: Option<String>,
}

/// The columns that [`Certificate::from_row`] reads, in its order.
pub(crate) const COLUMNS: &str = "seq, serial, state, signer, cluster, addon, agent, issuer, request, uid, not_before, \
                                  not_after, published_at, last_seen, last_seen_from";

impl Certificate {
    /// Reads a row of [`COLUMNS`]; `None` if its state is none.
    pub(crate) fn from_row(row: &Cells) -> Option<Self> {
        let time = |at: usize| row.int(at).map(Timestamp::from_unix);
        Some(Self {
            seq: row.count(0),
            serial: row.text(1),
            state: row.text(2).parse().ok()?, // the error says no more
            signer: row.text(3),
            cluster: row.text(4),
            addon: row.text(5),
            agent: row.text(6),
            issuer: row.text(7),
            request: row.text(8),
            uid: row.text(9),
            not_before: time(10)?,
            not_after: time(11)?,
            published_at: time(12),
            last_seen: time(13),
            last_seen_from: Some(row.text(14)).filter(|from| !from.is_empty()),
        })
    }

    /// Whether it has a certificate whose last second is past.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.state.is_signed() && self.not_after < now
    }
}

/// Who wrote an entry, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Written {
    /// The entry's number.
    pub seq: u64,
    /// When.
    pub time: String,
    /// Which process.
    pub replica: String,
    /// Under which epoch of the Lease.
    pub epoch: u64,
}

/// Everything that the ledger has about one certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// The row of the inventory.
    #[serde(flatten)]
    pub certificate: Certificate,
    /// Who asked, as Kubernetes names users.
    pub requester: String,
    /// `spec.signerName` of the request.
    pub signer_name: String,
    /// When the CSR was made.
    pub requested: String,
    /// `metadata.generation` of the AddOnSigner whose rules were applied.
    pub generation: String,
    /// When it was decided.
    pub prepared: String,
    /// SHA-256 over the bytes that were to be signed, in hexadecimal.
    pub tbs: String,
    /// The request as it was sent, PEM.
    pub csr: String,
    /// The decision to sign.
    pub decided: Written,
    /// The signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed: Option<Written>,
    /// The certificate, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pem: Option<String>,
    /// That it was abandoned, or could not be handed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Written>,
    /// Why it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The certificate of the authority, PEM, where the ledger has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer_pem: Option<String>,
}

/// A page of a list, as Kubernetes' lists are: who wants the next one asks with `continue`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<T> {
    /// What a list has besides its items.
    pub metadata: PageMetadata,
    /// The items.
    pub items: Vec<T>,
}

/// Where a list goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageMetadata {
    /// The number of the last item; `None` on the last page.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
