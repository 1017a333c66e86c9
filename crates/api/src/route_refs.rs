//! What AddOnRoutes refer to, as the core reads it: Services and EndpointSlices.

use k8s_openapi::api::core::v1::{Service, ServicePort as CorePort};
use k8s_openapi::api::discovery::v1::{EndpointConditions, EndpointSlice};
use kube::ResourceExt;

use addon_signer_core::gateway::routing::{Endpoints, ServiceFacts, ServicePort};

/// The label that says whose an EndpointSlice is.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Selects the EndpointSlices of these Services.
#[must_use]
pub fn slices_of<'s>(services: impl IntoIterator<Item = &'s str>) -> String {
    format!("{SERVICE_NAME} in ({})", services.into_iter().collect::<Vec<_>>().join(","))
}

/// The Service of an EndpointSlice.
#[must_use]
pub fn service_of(slice: &EndpointSlice) -> Option<&str> {
    slice.labels().get(SERVICE_NAME).map(String::as_str)
}

/// A Service.
#[must_use]
pub fn service_facts(service: Service) -> ServiceFacts {
    let spec = service.spec.unwrap_or_default();
    let ports = spec.ports.unwrap_or_default().into_iter().filter(|port| is_tcp(port.protocol.as_deref()));
    let port = |port: CorePort| {
        let number = u16::try_from(port.port).ok()?;
        Some(ServicePort { name: port.name.unwrap_or_default(), port: number, app_protocol: port.app_protocol })
    };
    ServiceFacts {
        is_external_name: spec.type_.as_deref() == Some("ExternalName"),
        ports: ports.filter_map(port).collect(),
    }
}

/// The ready addresses. Whether an address is ready is unknown in the first moments, which counts as ready (Kubernetes,
/// `EndpointConditions`).
#[must_use]
pub fn endpoints(slice: EndpointSlice) -> Endpoints {
    let is_ready =
        |conditions: Option<EndpointConditions>| conditions.and_then(|conditions| conditions.ready) != Some(false);
    let ready =
        slice.endpoints.unwrap_or_default().into_iter().filter(|endpoint| is_ready(endpoint.conditions.clone()));
    // Only the first address of an endpoint means anything (Kubernetes, `Endpoint.addresses`).
    let addresses = ready.filter_map(|endpoint| endpoint.addresses.first()?.parse().ok());
    let ports = slice.ports.unwrap_or_default().into_iter().filter(|port| is_tcp(port.protocol.as_deref()));
    let ports = ports.filter_map(|port| Some((port.name.unwrap_or_default(), u16::try_from(port.port?).ok()?)));
    Endpoints { addresses: addresses.collect(), ports: ports.collect() }
}

fn is_tcp(protocol: Option<&str>) -> bool {
    protocol.unwrap_or("TCP") == "TCP"
}
