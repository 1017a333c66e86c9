//! Converts an AddOnRoute to the core's types. What the schema could not check is checked here, and an error names the
//! field.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Service, ServicePort as CorePort};
use k8s_openapi::api::discovery::v1::{EndpointConditions, EndpointSlice};
use kube::ResourceExt;
use rustls_pki_types::ServerName;

use crate::kept::SERVICE_NAME;
use crate::ocm::created_at;
use crate::route::{
    AddOnRoute, AddOnRouteSpec, BackendProtocol, BackendSpec, BackendTlsSpec, GrpcMatch, HttpMatch, LimitsSpec, Method,
    RouteClusters, RouteMatch,
};
use crate::rules::{InvalidField, hosts};
use addon_signer_core::encoding::pem;
use addon_signer_core::gateway::path::{PathPattern, PatternError};
use addon_signer_core::gateway::route::{BackendAnchors, Clusters, Protocol, RouteLimits, RouteName};
use addon_signer_core::gateway::routing::{
    BackendRef, BackendTarget, CaRef, Endpoints, MOST_PATHS, PathPlan, RoutePlan, ServiceFacts, ServicePort, TlsPlan,
};
use addon_signer_core::identity::IdentityError;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_core::units::{parse_duration, parse_quantity};

/// The longest `connect`, as in the schema.
const MAX_CONNECT: Duration = Duration::from_secs(60);
/// The longest other times, as in the schema.
const MAX_TIME: Duration = Duration::from_secs(86_400);
/// `maxBody` of HTTP routes that do not set it: 64 MiB.
const MAX_BODY: u64 = 64 << 20;
/// `firstByte` of HTTP routes that do not set it.
const FIRST_BYTE: Duration = Duration::from_secs(30);

/// The name of an AddOnRoute.
#[must_use]
pub fn route_name(object: &AddOnRoute) -> RouteName {
    RouteName { namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
}

/// Reads an AddOnRoute.
///
/// # Errors
/// The first [`InvalidField`].
pub fn route_plan(object: &AddOnRoute) -> Result<RoutePlan, InvalidField> {
    let AddOnRouteSpec { signer, add_ons, clusters, hostnames, matching, backend, limits } = &object.spec;
    let is_grpc = !matching.grpc.is_empty();
    Ok(RoutePlan {
        name: route_name(object),
        created: created_at(&object.metadata).unwrap_or(Timestamp::from_unix(i64::MAX)),
        signer: signer.clone(),
        addons: Arc::new(names("addOns", add_ons)?),
        clusters: Arc::new(read_clusters(clusters)?),
        hostnames: Arc::new(hosts("hostnames", hostnames)?),
        paths: paths(matching)?,
        backend: backend_ref(backend, is_grpc)?,
        limits: read_limits(limits, is_grpc)?,
    })
}

fn names<T: std::str::FromStr<Err = IdentityError> + Ord>(
    field: &'static str,
    listed: &[String],
) -> Result<BTreeSet<T>, InvalidField> {
    listed.iter().map(|name| name.parse().map_err(|error| invalid(field, &error))).collect()
}

fn read_clusters(clusters: &RouteClusters) -> Result<Clusters, InvalidField> {
    match (clusters.names.is_empty(), clusters.cluster_sets.is_empty()) {
        (true, true) => Ok(Clusters::All),
        (false, true) => Ok(Clusters::Names(names("clusters.names", &clusters.names)?)),
        (true, false) => Ok(Clusters::Sets(clusters.cluster_sets.iter().cloned().collect())),
        (false, false) => Err(invalid("clusters", &"it must have names or clusterSets, not both")),
    }
}

fn paths(matching: &RouteMatch) -> Result<Vec<PathPlan>, InvalidField> {
    let RouteMatch { http, grpc } = matching;
    if http.is_empty() == grpc.is_empty() {
        return Err(invalid("match", &"it must have http or grpc, not both"));
    }
    let http = http.iter().map(http_path).collect::<Result<Vec<_>, _>>()?;
    let grpc = grpc.iter().map(grpc_paths).collect::<Result<Vec<_>, _>>()?;
    let all: Vec<PathPlan> = http.into_iter().chain(grpc.into_iter().flatten()).collect();
    if all.len() > MOST_PATHS {
        return Err(invalid("match", &format!("it has {} paths, more than {MOST_PATHS}", all.len())));
    }
    let is_twice = |(at, plan): (usize, &PathPlan)| all.iter().take(at).any(|other| other.path.is_same_as(&plan.path));
    if let Some((_, twice)) = all.iter().enumerate().find(|pair| is_twice(*pair)) {
        return Err(invalid("match", &format!("no two entries may have the same path, such as {}", twice.path)));
    }
    Ok(all)
}

fn http_path(HttpMatch { path, methods, delete_with_content }: &HttpMatch) -> Result<PathPlan, InvalidField> {
    if methods.is_empty() {
        return Err(invalid("match.http", &"methods must name at least one"));
    }
    Ok(PathPlan {
        path: path.parse().map_err(|error: PatternError| invalid("match.http", &error))?,
        methods: methods.iter().copied().map(Method::as_str).map(str::to_owned).collect(),
        delete_with_content: *delete_with_content,
    })
}

/// gRPC requests are POSTs (gRPC over HTTP/2, "Requests").
fn grpc_paths(GrpcMatch { service, methods }: &GrpcMatch) -> Result<Vec<PathPlan>, InvalidField> {
    let patterns: Result<Vec<PathPattern>, PatternError> = if methods.is_empty() {
        PathPattern::grpc(service, None).map(|pattern| vec![pattern])
    } else {
        methods.iter().map(|method| PathPattern::grpc(service, Some(method))).collect()
    };
    let patterns = patterns.map_err(|error| invalid("match.grpc", &error))?;
    let plan = |path| PathPlan { path, methods: ["POST".to_owned()].into(), delete_with_content: false };
    Ok(patterns.into_iter().map(plan).collect())
}

fn backend_ref(spec: &BackendSpec, is_grpc: bool) -> Result<BackendRef, InvalidField> {
    let target = match (&spec.service, &spec.address) {
        (Some(service), None) => {
            let port = u16::try_from(service.port).ok().filter(|port| *port > 0);
            let port = port.ok_or_else(|| invalid("backend.service.port", &"it must be from 1 to 65535"))?;
            // The name becomes a part of a selector, even if the API server does not enforce the schema.
            let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            if !(1..=63).contains(&service.name.len()) || !service.name.bytes().all(is_name) {
                return Err(invalid("backend.service.name", &"it is not the name of a Service"));
            }
            BackendTarget::Service { name: service.name.clone(), port }
        }
        (None, Some(address)) => {
            let read = address.parse::<SocketAddr>().ok().filter(|address| address.port() > 0);
            let sentence = "it must be an IP address and a port, such as 192.0.2.7:9000";
            BackendTarget::Address(read.ok_or_else(|| invalid("backend.address", &sentence))?)
        }
        _ => return Err(invalid("backend", &"it must have service or address, not both")),
    };
    let protocol = spec.protocol.map(|protocol| match protocol {
        BackendProtocol::Http => Protocol::Http,
        BackendProtocol::Https => Protocol::Https,
        BackendProtocol::H2c => Protocol::H2c,
        BackendProtocol::H2 => Protocol::H2,
    });
    let default_protocol = if is_grpc { Protocol::H2c } else { Protocol::Http };
    let tls = spec.tls.as_ref().map(tls_plan).transpose()?;
    Ok(BackendRef { target, protocol, default_protocol, tls })
}

fn tls_plan(spec: &BackendTlsSpec) -> Result<TlsPlan, InvalidField> {
    let ca = match (&spec.ca, &spec.cluster_trust_bundle) {
        (Some(text), None) => CaRef::Inline(ca_certificates(text).map_err(|cause| invalid("backend.tls.ca", &cause))?),
        (None, Some(name)) if is_bundle_name(name) => CaRef::Bundle(name.clone()),
        (None, Some(_)) => {
            let sentence = "it must have lower case letters, digits, `-`, `.` and `:`, and begin and end with neither";
            return Err(invalid("backend.tls.clusterTrustBundle", &sentence));
        }
        _ => return Err(invalid("backend.tls", &"it must have ca or clusterTrustBundle, not both")),
    };
    if let Some(name) = &spec.server_name {
        let sentence = "it must be a DNS name or an IP address, without a port";
        ServerName::try_from(name.as_str()).map_err(|_| invalid("backend.tls.serverName", &sentence))?;
    }
    Ok(TlsPlan { ca, server_name: spec.server_name.clone(), client_certificate: spec.client_certificate })
}

/// Whether a ClusterTrustBundle may have the name: DNS labels, those of a signer with colons. It becomes part of a URL.
fn is_bundle_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_edge = |byte: Option<u8>| byte.is_some_and(is_inner);
    let mut bytes = name.bytes();
    is_edge(name.bytes().next()) && is_edge(name.bytes().last()) && bytes.all(|it| is_inner(it) || b"-.:".contains(&it))
}

/// Reads CA certificates in PEM, for a backend.
///
/// # Errors
/// One sentence without a period.
pub fn ca_certificates(text: &str) -> Result<BackendAnchors, String> {
    let found = pem::certificates(text.as_bytes())
        .map_err(|error| format!("it must have CERTIFICATE PEM blocks and nothing else: {error}"))?;
    for certificate in &found {
        webpki::anchor_from_trusted_cert(certificate)
            .map_err(|error| format!("a certificate in it cannot be an anchor: {error}"))?;
    }
    Ok(found.into())
}

fn read_limits(spec: &LimitsSpec, is_grpc: bool) -> Result<RouteLimits, InvalidField> {
    let time = |field: &'static str, text: &str, longest: Duration| {
        let read = parse_duration(text).map_err(|error| invalid(field, &error))?;
        let is_good = !read.is_zero() && read <= longest;
        is_good.then_some(read).ok_or_else(|| invalid(field, &format!("it must be from 1s to {}s", longest.as_secs())))
    };
    let idle = time("limits.idle", &spec.idle, MAX_TIME)?;
    let default_first = if is_grpc { idle } else { FIRST_BYTE };
    let first_byte = spec.first_byte.as_ref().map(|text| time("limits.firstByte", text, MAX_TIME)).transpose()?;
    let requests = spec.requests_per_identity.or(spec.calls_per_identity);
    let requests = requests.map(|most| usize::try_from(most).ok().filter(|most| *most > 0));
    let requests =
        requests.map(|most| most.ok_or_else(|| invalid("limits.requestsPerIdentity", &"it must be at least 1")));
    let max_body = spec.max_body.as_ref().map(|text| parse_quantity(text)).transpose();
    let default_body = if is_grpc { u64::MAX } else { MAX_BODY };
    Ok(RouteLimits {
        max_body: max_body.map_err(|error| invalid("limits.maxBody", &error))?.unwrap_or(default_body),
        connect: time("limits.connect", &spec.connect, MAX_CONNECT)?,
        first_byte: first_byte.unwrap_or(default_first),
        idle,
        requests_per_identity: requests.transpose()?,
    })
}

fn invalid(field: &'static str, cause: &dyn std::fmt::Display) -> InvalidField {
    InvalidField { field, cause: cause.to_string() }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_per_identity_is_read_as_requests_per_identity() {
        let most = |spec: serde_json::Value| {
            let spec: LimitsSpec = serde_json::from_value(spec).unwrap();
            read_limits(&spec, false).map(|limits| limits.requests_per_identity).map_err(|error| error.to_string())
        };
        assert_eq!(most(serde_json::json!({})), Ok(None));
        assert_eq!(most(serde_json::json!({ "callsPerIdentity": 3 })), Ok(Some(3)));
        assert_eq!(most(serde_json::json!({ "callsPerIdentity": 3, "requestsPerIdentity": 2 })), Ok(Some(2)));
        assert!(most(serde_json::json!({ "callsPerIdentity": 0 })).unwrap_err().contains("it must be at least 1"));
    }
}
