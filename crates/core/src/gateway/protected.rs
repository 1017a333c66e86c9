//! Decides whether a connection to a backend has reached this hub, or something that runs beside it. Pure functions.
//!
//! This checks the address that was reached, so it does not matter what the name of a backend resolves to, or how often
//! that changes. The ports of the hub's own pod and of its Services are not backends, nor are those of another replica.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::backend::{RefusedAddress, inner};

/// The addresses of objects of one kind, by their names.
pub type Addresses = BTreeMap<String, Vec<IpAddr>>;

/// The addresses of what is in the hub's namespace; each kind is `None` until it has been listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProtectedAddresses {
    /// Those of pods, including the hub's own.
    pub pods: Option<Addresses>,
    /// Those of Services: of the cluster, external, of load balancers.
    pub services: Option<Addresses>,
}

impl ProtectedAddresses {
    /// Whether both kinds were listed.
    #[must_use]
    pub fn are_listed(&self) -> bool {
        self.pods.is_some() && self.services.is_some()
    }
}

/// Why a connection to a backend must not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoBackend {
    /// The address belongs to the hub's namespace.
    #[error(transparent)]
    Refused(#[from] RefusedAddress),
    /// The address may belong to the hub's namespace.
    #[error("the hub has not listed the pods and Services of its namespace yet")]
    NotListed,
}

/// Checks the address that a connection has reached. `is_own` is whether it is one of the machine's own.
///
/// # Errors
/// It belongs to the hub's namespace, or that is not known yet.
pub fn check(reached: IpAddr, is_own: bool, protected: &ProtectedAddresses) -> Result<(), NoBackend> {
    let refused = |kind| Err(RefusedAddress { address: reached, kind }.into());
    if is_own {
        return refused("an address of the hub itself");
    }
    let (Some(pods), Some(services)) = (&protected.pods, &protected.services) else {
        return Err(NoBackend::NotListed);
    };
    let has = |known: &Addresses| known.values().flatten().any(|address| inner(*address) == inner(reached));
    if has(pods) {
        refused("the address of a pod in the hub's namespace")
    } else if has(services) {
        refused("the address of a Service in the hub's namespace")
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_addresses(addresses: &[&str]) -> Option<Addresses> {
        let one = |address: &&str| (format!("at-{address}"), vec![address.parse().unwrap()]);
        Some(addresses.iter().map(one).collect())
    }

    #[test]
    fn hub_namespace_addresses_are_refused_in_any_notation() {
        let protected = ProtectedAddresses {
            pods: mk_addresses(&["10.0.0.7", "fd00::7"]),
            services: mk_addresses(&["10.96.0.7", "::ffff:10.96.0.8"]),
        };
        let pod = Some("the address of a pod in the hub's namespace");
        let service = Some("the address of a Service in the hub's namespace");
        for (address, expected) in [
            ("10.0.0.7", pod),
            ("::ffff:10.0.0.7", pod),
            ("64:ff9b::10.0.0.7", pod),
            ("fd00::7", pod),
            ("10.96.0.7", service),
            ("10.96.0.8", service),
            ("10.0.0.8", None),
            ("fd00::8", None),
        ] {
            let address = address.parse().unwrap();
            let refused = |kind| NoBackend::Refused(RefusedAddress { address, kind });
            assert_eq!(check(address, false, &protected).err(), expected.map(refused), "{address}");
            let own = refused("an address of the hub itself");
            assert_eq!(check(address, true, &ProtectedAddresses::default()), Err(own), "{address}");
        }
    }

    #[test]
    fn nothing_is_a_backend_before_pods_and_services_are_listed() {
        let reached = "10.0.0.8".parse().unwrap();
        for (pods, services, expected) in [
            (None, None, Err(NoBackend::NotListed)),
            (None, mk_addresses(&[]), Err(NoBackend::NotListed)),
            (mk_addresses(&[]), None, Err(NoBackend::NotListed)),
            (mk_addresses(&[]), mk_addresses(&[]), Ok(())),
        ] {
            assert_eq!(check(reached, false, &ProtectedAddresses { pods, services }), expected);
        }
    }
}
