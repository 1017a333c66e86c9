//! What the hub passes to the gateway: whom to trust for what. Where requests go is in another snapshot,
//! [`RouteTable`](crate::gateway::route::RouteTable).
//!
//! The hub sends complete snapshots, and each one replaces the one before. The gateway reports back the snapshot that
//! is in effect. Only then may a new authority sign (invariant I5).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ca::authority::AuthorityId;
use crate::ca::bundle::Bundle;
use crate::gateway::attachment::Attachment;
use crate::identity::{AddOnName, Convention, SignerName};
use crate::policy::GatewayCertificate;

/// What the gateway knows about one AddOnSigner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignerTrust {
    /// `metadata.name` of the AddOnSigner.
    pub name: String,
    /// `spec.signerName`.
    pub signer_name: SignerName,
    /// The addons whose identities its CA may certify (invariant I14).
    pub addons: BTreeSet<AddOnName>,
    /// The convention of its identities.
    pub convention: Convention,
    /// The anchors of its lineage: Next, Active and Old.
    pub client_anchors: Bundle,
    /// The authorities whose certificates should be renewed, and within how many seconds.
    pub renew_within: BTreeMap<AuthorityId, u32>,
    /// Which AddOnRoutes may attach to it.
    pub attachment: Attachment,
}

/// Everything the gateway trusts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    /// The AddOnSigners, by their names.
    pub signers: Vec<Arc<SignerTrust>>,
    /// The trust bundle of the gateway's lineage, for `GET /v1/bundle`; `None` before that lineage exists.
    pub serving_anchors: Option<Bundle>,
    /// The id of the Active authority of the gateway's lineage. A gateway whose certificate another authority signed
    /// requests a new one.
    pub serving_active: Option<AuthorityId>,
    /// The anchors of the gateway's client certificate, for backends; `None` before that lineage exists.
    pub client_anchors: Option<Bundle>,
    /// The id of the Active authority of that lineage.
    pub client_active: Option<AuthorityId>,
}

impl Trust {
    /// The anchors of a certificate of the gateway.
    #[must_use]
    pub fn anchors(&self, of: GatewayCertificate) -> Option<&Bundle> {
        match of {
            GatewayCertificate::Serving => self.serving_anchors.as_ref(),
            GatewayCertificate::Client => self.client_anchors.as_ref(),
        }
    }

    /// The authority that signs a certificate of the gateway now.
    #[must_use]
    pub fn active(&self, of: GatewayCertificate) -> Option<&AuthorityId> {
        match of {
            GatewayCertificate::Serving => self.serving_active.as_ref(),
            GatewayCertificate::Client => self.client_active.as_ref(),
        }
    }

    /// The authorities of all AddOnSigners.
    #[must_use]
    pub fn authorities(&self) -> BTreeSet<AuthorityId> {
        let authorities = self.signers.iter().flat_map(|signer| signer.client_anchors.authorities());
        authorities.map(|authority| authority.id().clone()).collect()
    }

    /// What the gateway knows about the AddOnSigner of that name.
    #[must_use]
    pub fn signer(&self, name: &str) -> Option<&Arc<SignerTrust>> {
        let at = self.signers.binary_search_by(|signer| signer.name.as_str().cmp(name)).ok()?;
        self.signers.get(at)
    }
}
