//! What the hub passes to the gateway: whom to trust for what, and where requests go.
//!
//! The hub sends complete snapshots, and each one replaces the one before. The gateway reports back the snapshot that
//! is in effect. Only then may a new authority sign (invariant I5).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::ca::authority::AuthorityId;
use crate::ca::bundle::Bundle;
use crate::identity::{AddOnName, Convention, SignerName};

/// One route of an addon: `/addons/<addon><path>…` goes to `<backend><path>…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The path prefix below `/addons/<addon>`, in whole segments. It starts with `/`.
    pub path: String,
    /// `http://host[:port][/path]`. Everything after `/addons/<addon>` is appended, including the route's own path,
    /// because the backend serves that path.
    pub backend: String,
    /// The allowed methods, in upper case.
    pub methods: BTreeSet<String>,
    /// The largest request body, in bytes.
    pub max_body: u64,
    /// The longest time until the backend's response begins, and between two pieces of a body.
    pub timeout: Duration,
    /// Whether a DELETE may have content.
    pub delete_with_content: bool,
}

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
    /// The routes of its addons.
    pub routes: Vec<Route>,
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
