//! The object that the agent's Secret and Lease belong to, so that Kubernetes deletes them with the addon.

use std::fmt;
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use tracing::warn;

use crate::api_error::Attempt;

/// Kinds that can be an owner: as they are written, group, kind, and plural.
const KINDS: [(&str, &str, &str, &str); 4] = [
    ("deployment", "apps", "Deployment", "deployments"),
    ("daemonset", "apps", "DaemonSet", "daemonsets"),
    ("statefulset", "apps", "StatefulSet", "statefulsets"),
    ("serviceaccount", "", "ServiceAccount", "serviceaccounts"),
];

/// The text does not name an owner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an owner; use KIND/NAME with one of deployment, daemonset, statefulset and serviceaccount")]
pub struct OwnerNameError(String);

/// Kind and name of an owner, in the namespace of what it owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerName {
    resource: ApiResource,
    plural: &'static str,
    name: String,
}

impl FromStr for OwnerName {
    type Err = OwnerNameError;

    fn from_str(text: &str) -> Result<Self, OwnerNameError> {
        let refused = || OwnerNameError(text.to_owned());
        let (kind, name) = text.split_once('/').filter(|(_, name)| !name.is_empty()).ok_or_else(refused)?;
        let known = KINDS.into_iter().find(|known| known.0 == kind);
        let (_, group, kind, plural) = known.ok_or_else(refused)?;
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural);
        Ok(Self { resource, plural, name: name.to_owned() })
    }
}

impl fmt::Display for OwnerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.plural, self.name)
    }
}

/// An owner on an API server.
#[derive(Clone)]
pub(crate) struct Owner {
    api: Api<DynamicObject>,
    name: OwnerName,
}

impl Owner {
    pub(crate) fn new(client: Client, namespace: &str, name: OwnerName) -> Self {
        Self { api: Api::namespaced_with(client, namespace, &name.resource), name }
    }

    /// Makes the owner own a new object. Without the owner the object is created anyway: a certificate left behind is
    /// better than none. The owners of an existing object are never changed, because that may need more rights
    /// (Kubernetes, admission plugin `OwnerReferencesPermissionEnforcement`).
    pub(crate) async fn own(&self, owners: &mut Option<Vec<OwnerReference>>) {
        let attempt = Attempt { server: "the managed cluster", verb: "get", resource: self.name.plural };
        let unknown = |error: &kube::Error| {
            warn!(owner = %self.name, error = %attempt.failed(error), "Cannot read the owner of the agent's objects");
        };
        let uid = match self.api.get_metadata_opt(&self.name.name).await {
            Ok(Some(found)) => found.metadata.uid.unwrap_or_default(),
            Ok(None) => return warn!(owner = %self.name, "The owner of the agent's objects does not exist"),
            Err(error) => return unknown(&error),
        };
        let ours = OwnerReference {
            api_version: self.name.resource.api_version.clone(),
            kind: self.name.resource.kind.clone(),
            name: self.name.name.clone(),
            uid,
            ..OwnerReference::default()
        };
        *owners = Some(vec![ours]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_a_known_kind_and_a_name() {
        let owner: OwnerName = "deployment/telemetry-agent".parse().unwrap();
        assert_eq!((owner.resource.api_version.as_str(), owner.name.as_str()), ("apps/v1", "telemetry-agent"));
        assert_eq!("serviceaccount/a".parse::<OwnerName>().unwrap().resource.api_version, "v1");
        for bad in ["", "deployment", "deployment/", "node/a", "Deployment/a"] {
            assert_eq!(bad.parse::<OwnerName>(), Err(OwnerNameError(bad.to_owned())));
        }
    }
}
