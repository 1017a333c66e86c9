//! What an AddOnRoute refers to: a Service or an address, and the CA of a backend that speaks TLS.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;

use super::RouteProblem;
use crate::conditions::{BACKEND_NOT_FOUND, INVALID_CA, REASON_PENDING, REF_NOT_PERMITTED, UNSUPPORTED_PROTOCOL};
use crate::gateway::backend;
use crate::gateway::route::{Backend, BackendAnchors, BackendTls, Protocol};

/// How many addresses of a Service are used: each new connection goes through them.
const MOST_ADDRESSES: usize = 1000;

/// Where an AddOnRoute sends its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendRef {
    /// What it names.
    pub target: BackendTarget,
    /// The protocol that the AddOnRoute sets; `None` leaves it to the Service.
    pub protocol: Option<Protocol>,
    /// The protocol if neither sets one: HTTP/2 for gRPC, otherwise HTTP/1.1.
    pub default_protocol: Protocol,
    /// How the backend proves its identity.
    pub tls: Option<TlsPlan>,
}

impl BackendRef {
    /// Whether the gateway shows its client certificate to it.
    #[must_use]
    pub fn is_shown_certificate(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.client_certificate)
    }

    /// The name of the ClusterTrustBundle that it needs.
    #[must_use]
    pub fn bundle(&self) -> Option<&str> {
        match &self.tls.as_ref()?.ca {
            CaRef::Bundle(name) => Some(name),
            CaRef::Inline(_) => None,
        }
    }
}

/// What a backend is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendTarget {
    /// A Service of the AddOnRoute's namespace.
    Service {
        /// Its name.
        name: String,
        /// The port of the Service.
        port: u16,
    },
    /// An address that the administrator allows.
    Address(SocketAddr),
}

/// How a backend that speaks TLS proves its identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsPlan {
    /// The CA that must have signed its certificate.
    pub ca: CaRef,
    /// The name in its certificate; by default that of the Service, `<name>.<namespace>.svc`.
    pub server_name: Option<String>,
    /// Whether the gateway shows its client certificate.
    pub client_certificate: bool,
}

impl TlsPlan {
    pub(super) fn without_ca(self) -> Self {
        Self { ca: CaRef::Inline(BackendAnchors::default()), ..self }
    }
}

/// The CA of a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaRef {
    /// These certificates.
    Inline(BackendAnchors),
    /// Those of the ClusterTrustBundle of that name.
    Bundle(String),
}

/// A Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceFacts {
    /// Whether it is only a name of something elsewhere.
    pub is_external_name: bool,
    /// Its TCP ports.
    pub ports: Vec<ServicePort>,
}

/// A port of a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServicePort {
    /// Its name, which EndpointSlices use; empty if it is the only one.
    pub name: String,
    /// Its number.
    pub port: u16,
    /// `appProtocol`.
    pub app_protocol: Option<String>,
}

/// An EndpointSlice: the ready addresses behind a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// The addresses.
    pub addresses: Vec<IpAddr>,
    /// The ports at these addresses, by the names of the Service's ports.
    pub ports: BTreeMap<String, u16>,
}

/// What was read of the Services that the AddOnRoutes of a namespace name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Backends {
    /// Those that were read; `None` for one that does not exist.
    pub services: BTreeMap<String, Option<ServiceFacts>>,
    /// The EndpointSlices of each, by the names of these.
    pub endpoints: BTreeMap<String, BTreeMap<String, Arc<Endpoints>>>,
    /// Why the API server does not let the hub read them: a part of a sentence.
    pub refusal: Option<String>,
}

/// Everything that accepted AddOnRoutes refer to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct References {
    /// The Services, by namespaces.
    pub backends: BTreeMap<String, Backends>,
    /// The certificates of ClusterTrustBundles, or why one cannot be used.
    pub bundles: BTreeMap<String, Result<BackendAnchors, String>>,
    /// The networks in which an AddOnRoute may name an address (`--backend-addresses`).
    pub networks: Vec<IpNet>,
}

impl References {
    /// The backend of an AddOnRoute in `namespace`. It may have no address now.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn find(&self, namespace: &str, named: &BackendRef) -> Result<Arc<Backend>, RouteProblem> {
        match &named.target {
            BackendTarget::Address(address) => self.address(*address, named),
            BackendTarget::Service { name, port } => self.service((namespace, name), *port, named),
        }
        .map(Arc::new)
    }

    fn address(&self, address: SocketAddr, named: &BackendRef) -> Result<Backend, RouteProblem> {
        if !self.networks.iter().any(|network| network.contains(&address.ip())) {
            let cause =
                format!("{} is in no network of the hub's --backend-addresses (spec.backend.address)", address.ip());
            return Err(RouteProblem::new(REF_NOT_PERMITTED, cause));
        }
        let protocol = protocol(named, None)?;
        Ok(Backend {
            authority: address.to_string(),
            addresses: vec![address],
            is_by_address: true,
            protocol,
            tls: self.tls(named, protocol, &address.ip().to_string())?,
        })
    }

    fn service(&self, (namespace, name): (&str, &str), port: u16, named: &BackendRef) -> Result<Backend, RouteProblem> {
        let known = self.backends.get(namespace);
        let service = match known.and_then(|known| known.services.get(name)) {
            Some(Some(service)) => service,
            Some(None) => {
                let cause = format!("there is no Service {name} in the namespace {namespace} (spec.backend.service)");
                return Err(RouteProblem::new(BACKEND_NOT_FOUND, cause));
            }
            None => return Err(unread(namespace, name, known.and_then(|known| known.refusal.as_deref()))),
        };
        if service.is_external_name {
            let cause =
                format!("the Service {name} is an ExternalName, which could lead anywhere (spec.backend.service)");
            return Err(RouteProblem::new(REF_NOT_PERMITTED, cause));
        }
        let Some(found) = service.ports.iter().find(|known| known.port == port) else {
            let cause = format!("the Service {name} has no TCP port {port} (spec.backend.service.port)");
            return Err(RouteProblem::new(BACKEND_NOT_FOUND, cause));
        };
        let protocol = protocol(named, found.app_protocol.as_deref())?;
        Ok(Backend {
            authority: format!("{name}.{namespace}.svc:{port}"),
            addresses: addresses(name, known.and_then(|known| known.endpoints.get(name)), &found.name)?,
            is_by_address: false,
            protocol,
            tls: self.tls(named, protocol, &format!("{name}.{namespace}.svc"))?,
        })
    }

    fn tls(&self, named: &BackendRef, protocol: Protocol, own_name: &str) -> Result<Option<BackendTls>, RouteProblem> {
        let invalid = |cause: String| RouteProblem::new(INVALID_CA, cause);
        let plan = match &named.tls {
            Some(plan) if protocol.is_tls() => plan,
            None if !protocol.is_tls() => return Ok(None),
            Some(_) => {
                let cause = "spec.backend.tls is set, but the backend's protocol has no TLS: set \
                             spec.backend.protocol to HTTPS or H2";
                return Err(RouteProblem::new(UNSUPPORTED_PROTOCOL, cause));
            }
            None => {
                return Err(invalid("the backend speaks TLS, but spec.backend.tls does not say whom to trust".into()));
            }
        };
        let anchors = match &plan.ca {
            CaRef::Inline(anchors) => anchors.clone(),
            CaRef::Bundle(name) => match self.bundles.get(name) {
                Some(Ok(anchors)) => anchors.clone(),
                Some(Err(cause)) => return Err(invalid(format!("ClusterTrustBundle {name}: {cause}"))),
                None => {
                    let cause = format!("the ClusterTrustBundle {name} has not been read yet");
                    return Err(RouteProblem::new(REASON_PENDING, cause));
                }
            },
        };
        let server_name = plan.server_name.clone().unwrap_or_else(|| own_name.to_owned());
        Ok(Some(BackendTls { anchors, server_name, client_certificate: plan.client_certificate }))
    }
}

/// Why nothing is known of a Service.
fn unread(namespace: &str, name: &str, refusal: Option<&str>) -> RouteProblem {
    match refusal {
        Some(why) => RouteProblem::new(REF_NOT_PERMITTED, format!("the hub cannot read the Service {name}: {why}")),
        None => {
            let cause = format!("the Service {name} of the namespace {namespace} has not been read yet");
            RouteProblem::new(REASON_PENDING, cause)
        }
    }
}

/// The addresses behind a port of a Service. The author of EndpointSlices may name any address (CVE-2021-25740).
fn addresses(
    service: &str,
    slices: Option<&BTreeMap<String, Arc<Endpoints>>>,
    port: &str,
) -> Result<Vec<SocketAddr>, RouteProblem> {
    let all = slices.into_iter().flat_map(BTreeMap::values).flat_map(|slice| {
        let port = slice.ports.get(port).copied();
        slice.addresses.iter().filter_map(move |address| Some(SocketAddr::new(*address, port?)))
    });
    let mut addresses: Vec<SocketAddr> = all.collect();
    for address in &addresses {
        if let Err(refused) = backend::check(address.ip()) {
            let cause = format!("an endpoint of the Service {service}: {refused} (spec.backend.service)");
            return Err(RouteProblem::new(REF_NOT_PERMITTED, cause));
        }
    }
    addresses.sort_unstable();
    addresses.dedup();
    addresses.truncate(MOST_ADDRESSES);
    Ok(addresses)
}

/// The protocol, which is HTTP/2 for gRPC.
fn protocol(named: &BackendRef, app_protocol: Option<&str>) -> Result<Protocol, RouteProblem> {
    let protocol = named_protocol(named, app_protocol)?;
    if named.default_protocol == Protocol::H2c && matches!(protocol, Protocol::Http | Protocol::Wss) {
        let cause = "gRPC needs HTTP/2, which the backend's protocol is not: set spec.backend.protocol to H2C or H2";
        return Err(RouteProblem::new(UNSUPPORTED_PROTOCOL, cause));
    }
    Ok(protocol)
}

/// The AddOnRoute's protocol, else the Service's, else the default.
fn named_protocol(named: &BackendRef, app_protocol: Option<&str>) -> Result<Protocol, RouteProblem> {
    if let Some(protocol) = named.protocol {
        return Ok(protocol);
    }
    // Kubernetes' own names (KEP-3726), IANA's, and that of several meshes.
    match app_protocol {
        None if named.tls.is_some() && named.default_protocol == Protocol::H2c => Ok(Protocol::H2),
        None if named.tls.is_some() => Ok(Protocol::Https),
        None => Ok(named.default_protocol),
        Some("http" | "kubernetes.io/ws") => Ok(Protocol::Http),
        Some("https") => Ok(Protocol::Https),
        Some("grpc") if named.tls.is_some() => Ok(Protocol::H2),
        Some("kubernetes.io/h2c" | "grpc") => Ok(Protocol::H2c),
        Some("kubernetes.io/wss") => Ok(Protocol::Wss),
        Some(other) => {
            let cause = format!("the Service's appProtocol {other:?} is not supported; set spec.backend.protocol");
            Err(RouteProblem::new(UNSUPPORTED_PROTOCOL, cause))
        }
    }
}
