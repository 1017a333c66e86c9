//! Certificates as readers of the ledger see them, in `certs --output json` and over HTTP.

use serde::{Deserialize, Serialize};

use super::connection::Cells;
use addon_signer_core::journal::CertificateState;
use addon_signer_core::query::{Cursor, Query, SortOrder};
use addon_signer_core::timestamp::Timestamp;

/// One certificate, or the intent to sign one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Certificate {
    /// The number of the entry of its intent; later certificates have larger numbers.
    pub seq: u64,
    /// The serial number, as [`Serial`](addon_signer_core::ca::serial::Serial) writes it.
    pub serial: String,
    /// Its state.
    pub state: CertificateState,
    /// The AddOnSigner, or `gateway-serving` or `gateway-client`.
    pub signer: String,
    /// The cluster of its identity. Empty for the gateway's own certificate, like `addon` and `agent`.
    pub cluster: String,
    /// The addon of its identity.
    pub addon: String,
    /// The agent of its identity.
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
    /// When it was known to be published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_at: Option<Timestamp>,
    /// When it was last used at the gateway, as far as the ledger knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Timestamp>,
    /// The address from which it was last used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen_from: Option<String>,
}

/// The columns that [`Certificate::from_row`] reads, in its order.
pub(crate) const COLUMNS: &str = "seq, serial, state, signer, cluster, addon, agent, issuer, request, uid, not_before, \
                                  not_after, published_at, last_seen, last_seen_from";

impl Certificate {
    /// The cursor of a page of `query` whose last certificate this is.
    pub fn cursor(&self, query: &Query) -> Cursor {
        let time = match query.filter.order() {
            SortOrder::Newest => None,
            SortOrder::LatestEnd | SortOrder::SoonestEnd => Some(self.not_after.unix()),
            SortOrder::LongestUnseen => Some(self.last_seen.map_or(0, Timestamp::unix)),
        };
        Cursor { time, seq: self.seq }
    }

    /// Reads a row of [`COLUMNS`]; `None` if its state is unknown or a time is missing.
    pub(crate) fn from_row(row: &Cells) -> Option<Self> {
        let time = |at: usize| row.int(at).map(Timestamp::from_unix);
        let text = |at: usize| Some(row.text(at)).filter(|text| !text.is_empty());
        Some(Self {
            seq: row.count(0),
            serial: row.text(1),
            state: row.text(2).parse().ok()?, // the error has no details
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
            last_seen_from: text(14),
        })
    }

    /// Whether it was signed and its last second has passed.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.state.is_signed() && self.not_after < now
    }
}

/// The process that wrote an entry, and the time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Written {
    /// The entry's number.
    pub seq: u64,
    /// When it was written.
    pub time: String,
    /// The process that wrote it.
    pub replica: String,
    /// The epoch of the Lease in which it was written.
    pub epoch: u64,
}

/// All that the ledger has about one certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// The row of the inventory.
    #[serde(flatten)]
    pub certificate: Certificate,
    /// The user who asked, by Kubernetes' name.
    pub requester: String,
    /// The user for whom OCM's gRPC server asked, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csr_user: Option<String>,
    /// `spec.signerName` of the CSR.
    pub signer_name: String,
    /// When the CSR was made.
    pub requested: String,
    /// `metadata.generation` of the AddOnSigner whose rules were applied.
    pub generation: String,
    /// When the certificate was decided on.
    pub prepared: String,
    /// SHA-256 over the bytes that were to be signed, in hexadecimal.
    pub tbs: String,
    /// The CSR as it was sent, PEM.
    pub csr: String,
    /// The process that recorded the intent, and the time.
    pub decided: Written,
    /// The process that recorded the signed certificate, and the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed: Option<Written>,
    /// The certificate, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pem: Option<String>,
    /// The process that recorded that it was abandoned or could not be published, and the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Written>,
    /// Why it was abandoned or could not be published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The certificate of the authority, PEM, if the ledger has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer_pem: Option<String>,
}

/// A page of a list, in the form of Kubernetes' lists: a query with `continue` gets the next page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<T> {
    /// Where the list continues.
    pub metadata: PageMetadata,
    /// The items.
    pub items: Vec<T>,
}

/// What a list has in addition to its items.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageMetadata {
    /// The cursor of the last item, for the next query; `None` on the last page.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
