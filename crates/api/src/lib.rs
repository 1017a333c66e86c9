//! AddOnSigner and AddOnRoute, and the parts of OCM's types that we use. Types and pure functions only: nothing here
//! talks to an API server.

pub mod addon_template;
pub mod authority;
pub mod cert_manager;
pub mod cluster_trust_bundle;
pub mod identity;
pub mod kept;
pub mod lenient;
pub mod manifest_work;
pub mod ocm;
pub mod registrations;
pub mod request;
pub mod route;
pub mod route_rules;
pub mod rules;
mod schemas;
pub mod signer;
pub mod status;
pub mod trust;

pub use lenient::{Guarded, GuardedSigner, Lenient};
pub use route::{AddOnRoute, AddOnRouteSpec, AddOnRouteStatus};
pub use signer::{AddOnSigner, AddOnSignerSpec};
pub use status::AddOnSignerStatus;

use kube::CustomResourceExt;

/// First lines of the generated manifest.
const CRD_HEADER: &str = "# Generated from crates/api by `addon-signer crd`; a test compares them.\n";

/// The CustomResourceDefinitions of [`AddOnSigner`] and [`AddOnRoute`] as YAML: schema, defaults, CEL rules and printer
/// columns, the same bytes on every call. `deploy/chart/files/crds.yaml` is this text.
///
/// # Errors
/// When a definition cannot be written as YAML.
pub fn crd_yaml() -> Result<String, serde_saphyr::SerializeError> {
    let [signers, routes] = [AddOnSigner::crd(), AddOnRoute::crd()].map(|mut crd| {
        let labels = [("app.kubernetes.io/name", "addon-signer"), ("app.kubernetes.io/component", "crds")];
        crd.metadata.labels = Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        // Otherwise an uninstall of the chart would delete every AddOnSigner and AddOnRoute with them.
        crd.metadata.annotations = Some([("helm.sh/resource-policy".to_owned(), "keep".to_owned())].into());
        serde_saphyr::to_string(&crd)
    });
    Ok(format!("{CRD_HEADER}{}---\n{}", signers?, routes?))
}

#[cfg(test)]
mod tests {
    /// `UPDATE_GOLDEN=1 cargo test -p addon-signer-api crd_manifest` regenerates the file.
    #[test]
    fn crd_manifest_is_what_the_types_say() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/chart/files/crds.yaml");
        let generated = super::crd_yaml().unwrap();
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(path, &generated).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap();
        assert!(committed == generated, "{path} is stale: run `addon-signer crd > deploy/chart/files/crds.yaml`");
        assert_eq!(generated, super::crd_yaml().unwrap(), "the output is stable");
    }
}
