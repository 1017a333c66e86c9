//! What the hub passes to the gateway: whom to trust for what. Where calls go is in another snapshot,
//! [`RouteTable`](crate::gateway::route::RouteTable).
//!
//! The hub sends complete snapshots, and each one replaces the one before. The gateway reports back the snapshot that
//! is in effect. Only then may a new authority sign (invariant I5).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ca::authority::AuthorityId;
use crate::ca::bundle::Bundle;
use crate::gateway::attachment::Attachment;
use crate::identity::{AddOnName, Convention, SignerName};

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
    /// The anchors of its line: Next, Active and Old.
    pub client_anchors: Bundle,
    /// Which AddOnRoutes may attach to it.
    pub attachment: Attachment,
}

/// Everything the gateway trusts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    /// The AddOnSigners, by their names.
    pub signers: Vec<Arc<SignerTrust>>,
    /// The trust bundle of the gateway's line, for `GET /v1/bundle`; `None` before that line exists.
    pub serving_anchors: Option<Bundle>,
    /// The id of the Active authority of the gateway's line. A gateway whose certificate another authority signed
    /// requests a new one.
    pub serving_active: Option<AuthorityId>,
}

impl Trust {
    /// What the gateway knows about the AddOnSigner of that name.
    #[must_use]
    pub fn signer(&self, name: &str) -> Option<&Arc<SignerTrust>> {
        let at = self.signers.binary_search_by(|signer| signer.name.as_str().cmp(name)).ok()?;
        self.signers.get(at)
    }
}
