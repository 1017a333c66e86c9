//! Lines of authorities: what is stored, the step that the evidence allows, and what all lines look like together.
//!
//! `keeper` takes the steps of one line, `gate` has the evidence for the next, `store` reads and writes the Secret
//! (`stored`) and the ConfigMap, `state` is what is known of a line, `board` what the gateway is to trust, `report`
//! what people see.

pub mod board;
pub mod gate;
pub mod keeper;
pub mod report;
pub mod state;
pub mod store;
pub mod stored;

use std::time::Duration;

use crate::api::rules::AuthorityPlan;
use addon_signer_core::keys::public::KeyKind;

/// The gateway's serving CA lives this long and is replaced this long before its end.
pub(super) const SERVING_PLAN: AuthorityPlan = AuthorityPlan {
    key: KeyKind::EcdsaP256,
    duration: Duration::from_secs(365 * 86_400),
    renew_before: Duration::from_secs(90 * 86_400),
};
