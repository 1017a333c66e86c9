//! What the ledger records: one kind of entry per kind of decision. `docs/ledger-format.md` has the details of each.

use std::collections::BTreeMap;

use data_encoding::BASE64;

use crate::ca::authority::AuthorityId;
use crate::ca::issuer::RecordFault;
use crate::ca::serial::Serial;
use crate::identity::{AddOnName, ClusterName, PeerIdentity, SignerName};
use crate::journal::CsrUid;
use crate::registry::Eligibility;
use crate::timestamp::Timestamp;

pub use super::AuthorityStep;

/// The decision to sign: everything that a certificate will say, before it is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// The UID of the CSR.
    pub uid: CsrUid,
    /// When the CSR was made: its `metadata.creationTimestamp`, which never changes; 0 if it has none.
    pub requested: Timestamp,
    /// The name of the CSR.
    pub request: String,
    /// The AddOnSigner, or `gateway-serving` or `gateway-client`.
    pub signer: String,
    /// The version of its specification that was applied (`metadata.generation`).
    pub generation: i64,
    /// `spec.signerName`.
    pub signer_name: SignerName,
    /// `spec.username`.
    pub requester: String,
    /// The user for whom the gRPC proxy made the CSR, if it did.
    pub csr_user: Option<String>,
    /// The holder of the certificate; `None` for the gateway's own.
    pub identity: Option<PeerIdentity>,
    /// The id of the authority that signs.
    pub issuer: AuthorityId,
    /// The serial number of the certificate.
    pub serial: Serial,
    /// The first second in which the certificate is valid.
    pub not_before: Timestamp,
    /// The last second in which it is valid.
    pub not_after: Timestamp,
    /// The time of the decision.
    pub prepared: Timestamp,
    /// SHA-256 over the bytes that will be signed, in hexadecimal.
    pub tbs: String,
    /// The CSR as it was sent.
    pub csr: String,
}

/// The outcome of recording an intent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intended {
    /// The intent is durable: the certificate may be signed.
    Recorded,
    /// Nothing was recorded, because the ledger already has a row for the CSR.
    Existing(Existing),
}

/// What the ledger already has for a CSR.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Existing {
    /// The intent to sign a certificate, which is not signed yet.
    Intent {
        /// The id of the authority that was to sign.
        issuer: AuthorityId,
        /// The serial number.
        serial: Serial,
        /// When the certificate was decided on.
        prepared: Timestamp,
        /// SHA-256 over the bytes to be signed, in hexadecimal.
        tbs: String,
    },
    /// A signed certificate.
    Signed {
        /// The entry that holds it.
        row: u64,
        /// The id of the authority that signed.
        issuer: AuthorityId,
        /// The serial number.
        serial: Serial,
        /// DER.
        certificate: Vec<u8>,
    },
    /// A row that cannot be read: the ledger was altered.
    Unreadable {
        /// The entry.
        row: u64,
        /// What cannot be read.
        fault: RecordFault,
    },
}

/// One decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// The first entry of a ledger.
    Opened {
        /// 32 random hexadecimal digits: which ledger this is.
        ledger: String,
    },
    /// This process writes from now on, under the entry's epoch.
    Leader,
    /// Checkpoints are signed with this key from now on.
    CheckpointKey {
        /// SubjectPublicKeyInfo, DER.
        key: Vec<u8>,
    },
    /// A certificate is about to be signed.
    Intent(Box<Intent>),
    /// A certificate was signed and checked.
    Signed {
        /// The UID of the CSR.
        uid: CsrUid,
        /// The serial number of the intent.
        serial: Serial,
        /// DER.
        certificate: Vec<u8>,
    },
    /// An intent was abandoned: its certificate is never issued.
    Abandoned {
        /// The UID of the CSR.
        uid: CsrUid,
        /// The serial number of the intent.
        serial: Serial,
        /// One sentence.
        reason: String,
    },
    /// A certificate was signed and could not be published.
    Unpublished {
        /// The UID of the CSR.
        uid: CsrUid,
        /// Its serial number.
        serial: Serial,
        /// One sentence.
        reason: String,
    },
    /// A step of a lineage of authorities.
    Authority {
        /// The AddOnSigner, `(serving)` or `(gateway-client)`.
        lineage: String,
        /// The authority.
        id: AuthorityId,
        /// Its new state.
        step: AuthorityStep,
        /// Its certificate, DER.
        certificate: Vec<u8>,
    },
    /// The anchors of a lineage were published in a ConfigMap.
    Anchors {
        /// The AddOnSigner, `(serving)` or `(gateway-client)`.
        lineage: String,
        /// The ids of the authorities.
        authorities: Vec<AuthorityId>,
        /// The name of the ConfigMap.
        config_map: String,
    },
    /// An AddOnSigner was made, changed or deleted.
    Signer {
        /// Its name.
        signer: String,
        /// `metadata.generation`.
        generation: i64,
        /// Its specification as JSON before; empty when it is new.
        before: String,
        /// Its specification as JSON after; empty when it was deleted.
        after: String,
    },
    /// An addon of a cluster lost or got back the right to its certificates.
    Eligibility {
        /// The cluster.
        cluster: ClusterName,
        /// The addon.
        addon: AddOnName,
        /// What changed.
        change: Eligibility,
    },
    /// Certificates of an addon of a cluster are revoked, or are valid again.
    Revocation {
        /// The cluster.
        cluster: ClusterName,
        /// The addon.
        addon: AddOnName,
        /// Certificates that begin before this time were revoked already; `None` if none was.
        before: Option<Timestamp>,
        /// Certificates that begin before this time are revoked now; `None` if none is.
        after: Option<Timestamp>,
    },
}

impl Record {
    /// The entry's kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Opened { .. } => "opened",
            Self::Leader => "leader",
            Self::CheckpointKey { .. } => "head-key",
            Self::Intent(_) => "intent",
            Self::Signed { .. } => "signed",
            Self::Abandoned { .. } => "abandoned",
            Self::Unpublished { .. } => "unpublished",
            Self::Authority { .. } => "authority",
            Self::Anchors { .. } => "anchors",
            Self::Signer { .. } => "signer",
            Self::Eligibility { .. } | Self::Revocation { .. } => "standing",
        }
    }

    /// The UID of the CSR that the record is about.
    pub fn uid(&self) -> Option<&CsrUid> {
        match self {
            Self::Intent(intent) => Some(&intent.uid),
            Self::Signed { uid, .. } | Self::Abandoned { uid, .. } | Self::Unpublished { uid, .. } => Some(uid),
            _ => None,
        }
    }

    /// What this record sets, if it is written only when that has changed.
    pub fn topic(&self) -> Option<Topic> {
        topic(self.kind(), &self.details())
    }

    /// Adds the value that this record replaces, as [`Self::topic`] has it. Only the records of a configuration and
    /// of a revocation have it.
    #[must_use]
    pub fn with_before(self, before: String) -> Self {
        match self {
            Self::Signer { signer, generation, after, .. } => Self::Signer { signer, generation, before, after },
            Self::Revocation { cluster, addon, after, .. } => {
                Self::Revocation { cluster, addon, before: Timestamp::from_display(&before), after }
            }
            other => other,
        }
    }

    /// The entry's details.
    pub fn details(&self) -> BTreeMap<String, String> {
        let pairs = match self {
            Self::Opened { ledger } => {
                vec![("format", "1".to_owned()), ("ledger", ledger.clone()), ("version", version())]
            }
            Self::Leader => vec![("version", version())],
            Self::CheckpointKey { key } => vec![("key", BASE64.encode(key))],
            Self::Intent(intent) => intent.details(),
            Self::Signed { uid, serial, certificate } => {
                let certificate = BASE64.encode(certificate);
                vec![("certificate", certificate), ("serial", serial.to_string()), ("uid", uid.to_string())]
            }
            Self::Abandoned { uid, serial, reason } | Self::Unpublished { uid, serial, reason } => {
                vec![("reason", reason.clone()), ("serial", serial.to_string()), ("uid", uid.to_string())]
            }
            Self::Authority { lineage, id, step, certificate } => vec![
                ("certificate", BASE64.encode(certificate)),
                ("id", id.to_string()),
                ("line", lineage.clone()),
                ("step", step.name().to_owned()),
            ],
            Self::Anchors { lineage, authorities, config_map } => {
                vec![("authorities", ids(authorities)), ("config-map", config_map.clone()), ("line", lineage.clone())]
            }
            Self::Signer { signer, generation, before, after } => vec![
                ("after", after.clone()),
                ("before", before.clone()),
                ("generation", generation.to_string()),
                ("signer", signer.clone()),
            ],
            Self::Eligibility { cluster, addon, change } => {
                vec![
                    ("addon", addon.to_string()),
                    ("change", change.name().to_owned()),
                    ("cluster", cluster.to_string()),
                ]
            }
            Self::Revocation { cluster, addon, before, after } => vec![
                ("addon", addon.to_string()),
                // A later time revokes more certificates; no time revokes none.
                ("change", if before < after { "revoked" } else { "unrevoked" }.to_owned()),
                ("cluster", cluster.to_string()),
                ("revoke-before", text(*after)),
                ("revoked-before", text(*before)),
            ],
        };
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// A topic, the name of something in it, and its value. They are recorded when the value changes.
pub type Topic = (&'static str, String, String);

/// What a record of this kind sets.
pub(super) fn topic(kind: &str, details: &BTreeMap<String, String>) -> Option<Topic> {
    let detail = |name| details.get(name).map_or("", String::as_str);
    let pair = || format!("{}/{}", detail("cluster"), detail("addon"));
    let (topic, name, value) = match kind {
        "opened" => ("ledger", String::new(), "ledger"),
        "head-key" => ("head-key", String::new(), "key"),
        "authority" => {
            let topic = if detail("step") == AuthorityStep::Tainted.name() { "tainted" } else { "authority" };
            (topic, format!("{}/{}", detail("line"), detail("id")), "step")
        }
        "anchors" => ("anchors", detail("line").to_owned(), "authorities"),
        "signer" => ("signer", detail("signer").to_owned(), "after"),
        // A separate topic, because an addon can be suspended and have revoked certificates at the same time.
        "standing" if details.contains_key("revoke-before") => ("revocation", pair(), "revoke-before"),
        "standing" => ("standing", pair(), "change"),
        _ => return None,
    };
    Some((topic, name, detail(value).to_owned()))
}

/// The time by RFC 3339, or an empty text.
fn text(time: Option<Timestamp>) -> String {
    time.map(|time| time.to_string()).unwrap_or_default()
}

fn ids(authorities: &[AuthorityId]) -> String {
    authorities.iter().map(AuthorityId::as_str).collect::<Vec<_>>().join(" ")
}

fn version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

impl Intent {
    /// The names of cluster, addon and agent; empty for the gateway's own certificate.
    pub fn names(&self) -> [&str; 3] {
        self.identity.as_ref().map_or([""; 3], |id| [id.cluster.as_str(), id.addon.as_str(), id.agent.as_str()])
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let [cluster, addon, agent] = self.names();
        let csr_user = self.csr_user.iter().map(|user| ("csr-user", user.clone()));
        let always = [
            ("addon", addon.to_owned()),
            ("agent", agent.to_owned()),
            ("cluster", cluster.to_owned()),
            ("csr", self.csr.clone()),
            ("generation", self.generation.to_string()),
            ("issuer", self.issuer.to_string()),
            ("not-after", self.not_after.to_string()),
            ("not-before", self.not_before.to_string()),
            ("prepared", self.prepared.to_string()),
            ("request", self.request.clone()),
            ("requested", self.requested.to_string()),
            ("requester", self.requester.clone()),
            ("serial", self.serial.to_string()),
            ("signer", self.signer.clone()),
            ("signer-name", self.signer_name.to_string()),
            ("tbs", self.tbs.clone()),
            ("uid", self.uid.to_string()),
        ];
        csr_user.chain(always).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revocation_says_which_way_its_time_moved() {
        let early = "2026-01-01T00:00:00Z";
        let late = "2026-02-02T00:00:00Z";
        for (before, after, change) in
            [("", early, "revoked"), (early, late, "revoked"), (late, early, "unrevoked"), (late, "", "unrevoked")]
        {
            let cluster = "c1".parse().unwrap();
            let addon = "a1".parse().unwrap();
            let record = Record::Revocation { cluster, addon, before: None, after: Timestamp::from_rfc3339(after) };
            assert_eq!(record.topic(), Some(("revocation", "c1/a1".to_owned(), after.to_owned())));
            let details = record.with_before(before.to_owned()).details();
            let expected = [
                ("addon", "a1"),
                ("change", change),
                ("cluster", "c1"),
                ("revoke-before", after),
                ("revoked-before", before),
            ];
            assert!(details.iter().map(|(name, value)| (name.as_str(), value.as_str())).eq(expected), "{details:?}");
        }
    }
}
