//! The ValidatingAdmissionPolicy of deploy/manifest-works, as far as its rule about names. Pure functions.
//!
//! It is in force while its binding is stored, and denies.

use serde_json::Value;

use super::objects::{self, text};
use super::resources::BINDING_PLURAL;
use super::status::ApiError;
use super::store::{Key, Store};
use super::write::Write;

/// The name of the policy, and of its binding.
const NAME: &str = "addon-signer-manifest-works";
/// What the hub's account is called, whatever its namespace.
const ACCOUNT: &str = "addon-signer";
const LABEL: &str = "addon-signer.io/hub-trust";

/// Refuses the hub's account a ManifestWork that is not the hub's own.
pub(super) fn check(store: &Store, w: &Write<'_>, object: &Value) -> Result<(), ApiError> {
    let account = w.user.name.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'));
    let is_by_the_hub = account.is_some_and(|(_, name)| name == ACCOUNT);
    if w.resource.plural != "manifestworks" || !is_by_the_hub || !is_in_force(store) {
        return Ok(());
    }
    let name = text(object, "metadata.name");
    let labels = objects::get(object, "metadata.labels");
    let addon = labels.and_then(|labels| labels.get(LABEL)).and_then(Value::as_str).unwrap_or_default();
    if !addon.is_empty() && name == format!("addon-signer-{addon}-trust") {
        return Ok(());
    }
    Err(ApiError::DeniedByPolicy {
        resource: w.resource,
        name: name.to_owned(),
        policy: NAME,
        message: "addon-signer may only write ManifestWorks addon-signer-ADDON-trust with the label \
                  addon-signer.io/hub-trust that names ADDON",
    })
}

fn is_in_force(store: &Store) -> bool {
    let key = Key { plural: BINDING_PLURAL, namespace: String::new(), name: NAME.to_owned() };
    store.get(&key).is_some_and(|binding| objects::texts(binding, "spec.validationActions").any(|it| it == "Deny"))
}
