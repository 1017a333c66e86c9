//! The backends of AddOnRoutes, read once.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Context;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, Client, ResourceExt};

use addon_signer_api::Guarded;
use addon_signer_api::route_rules::{endpoints, service_facts, service_of, slices_of};
use addon_signer_core::gateway::routing::{BackendTarget, Backends, RoutePlan, WantedServices};
use addon_signer_platform::listing::{self, Selector};

/// The Services that AddOnRoutes name, by namespaces.
pub(super) fn named_services(plans: &[RoutePlan]) -> WantedServices {
    let mut named = WantedServices::new();
    for plan in plans {
        if let BackendTarget::Service { name, .. } = &plan.backend.target {
            named.entry(plan.name.namespace.clone()).or_default().insert(name.clone());
        }
    }
    named
}

/// These Services of a namespace with their endpoints, as the hub reads them.
pub(super) async fn backends(client: &Client, namespace: &str, names: BTreeSet<String>) -> anyhow::Result<Backends> {
    let mut found = Backends::default();
    let services: Api<Guarded<Service>> = Api::namespaced(client.clone(), namespace);
    let slices: Api<Guarded<EndpointSlice>> = Api::namespaced(client.clone(), namespace);
    let of_names = Selector::labels(&slices_of(names.iter().map(String::as_str)));
    for name in names {
        let named = Selector::fields(&format!("metadata.name={name}"));
        let service = listing::any(&services, &named).await;
        let service = service.with_context(|| format!("cannot list services in {namespace}"))?;
        let service = service.and_then(|service| service.object.0.ok()); // an unreadable Service counts as missing
        found.services.insert(name, service.map(service_facts));
    }
    let listed = listing::each(slices, of_names, |slice| {
        let (name, Ok(slice)) = (slice.name_any(), slice.object.0) else { return };
        let Some(service) = service_of(&slice).map(str::to_owned) else { return };
        found.endpoints.entry(service).or_default().insert(name, Arc::new(endpoints(slice)));
    });
    listed.await.with_context(|| format!("cannot list endpointslices in {namespace}"))?;
    Ok(found)
}
