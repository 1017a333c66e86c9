//! The Lease that tells OCM's registration agent that an addon's agent is healthy: it has the addon's name and is in
//! the addon's install namespace, and five minutes without a renewal make the addon unavailable (ocm
//! `pkg/registration/spoke/addon/lease_controller.go`).

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

use crate::api_error::{ApiError, Attempt};
use crate::owner::{Owner, OwnerName};
use addon_signer_core::identity::AddOnName;
use addon_signer_core::timestamp::Timestamp;

/// What OCM's own agents write (addon-framework `pkg/lease/lease_controller.go`).
const DURATION_SECONDS: i32 = 60;

/// The health Lease of an addon.
pub struct HealthLease {
    leases: Api<Lease>,
    name: String,
    owner: Option<Owner>,
}

impl HealthLease {
    /// The Lease of this addon in this namespace. One that the agent creates belongs to `owner`.
    pub fn new(client: Client, namespace: &str, addon: &AddOnName, owner: Option<OwnerName>) -> Self {
        let owner = owner.map(|name| Owner::new(client.clone(), namespace, name));
        Self { leases: Api::namespaced(client, namespace), name: addon.to_string(), owner }
    }

    /// Reports that the addon's agent is healthy.
    pub(crate) async fn renew(&self, now: Timestamp) -> Result<(), ApiError> {
        let attempt = |verb| Attempt { server: "the managed cluster", verb, resource: "leases" };
        let found = self.leases.get_opt(&self.name).await.map_err(|error| attempt("get").failed(&error))?;
        let (verb, written) = match found {
            Some(mut lease) => {
                fill(&mut lease, now);
                ("update", self.leases.replace(&self.name, &PostParams::default(), &lease).await)
            }
            None => {
                let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
                let mut lease = Lease { metadata, ..Lease::default() };
                fill(&mut lease, now);
                if let Some(owner) = &self.owner {
                    owner.own(&mut lease.metadata.owner_references).await;
                }
                ("create", self.leases.create(&PostParams::default(), &lease).await)
            }
        };
        written.map(drop).map_err(|error| attempt(verb).failed(&error))
    }
}

fn fill(lease: &mut Lease, now: Timestamp) {
    let renewed = jiff::Timestamp::from_second(now.unix()).ok().map(MicroTime);
    lease.spec = Some(LeaseSpec {
        lease_duration_seconds: Some(DURATION_SECONDS),
        renew_time: renewed,
        ..lease.spec.take().unwrap_or_default()
    });
}
