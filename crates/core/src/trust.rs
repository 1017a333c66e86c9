//! The value that the hub hands to the gateway: whom to trust for what, and where requests go.
//!
//! One snapshot is complete in itself and is swapped whole. The gateway answers with the snapshot that it has put into
//! effect; only then may a new authority sign (invariant I5).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::ca::bundle::Bundle;
use crate::identity::{AddOnName, Convention};

/// One route of an addon: `/addons/<addon><path>…` goes to `<upstream><path>…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Path prefix below `/addons/<addon>`, in whole segments; starts with `/`.
    pub path: String,
    /// `http://host[:port][/path]`: everything after `/addons/<addon>` is appended, the route's own path included, because
    /// the backend knows itself by that path.
    pub upstream: String,
    /// Allowed methods, upper case.
    pub methods: BTreeSet<String>,
    /// The largest request body, in bytes.
    pub max_body: u64,
    /// The longest time until the upstream's response begins, and between two pieces of a body.
    pub timeout: Duration,
}

/// What the gateway knows of one AddOnSigner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignerTrust {
    /// `metadata.name` of the AddOnSigner.
    pub name: String,
    /// `spec.signerName`.
    pub signer_name: String,
    /// The addons whose identities its CA may certify (invariant I14).
    pub addons: BTreeSet<AddOnName>,
    /// How identities are written.
    pub convention: Convention,
    /// Its client CAs: Next, Active and Old.
    pub client_anchors: Bundle,
    /// Where requests go.
    pub routes: Vec<Route>,
}

/// Everything the gateway trusts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    /// By AddOnSigner.
    pub signers: Vec<Arc<SignerTrust>>,
    /// The serving anchors, for `GET /v1/bundle`; `None` before the serving CA exists.
    pub serving_anchors: Option<Bundle>,
    /// The id of the serving authority that signs: a gateway whose certificate is of another one asks for a new one.
    pub serving_active: Option<String>,
}
