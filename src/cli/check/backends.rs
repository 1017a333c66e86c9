//! Checks the backends of routes.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::{Api, ResourceExt};

use super::{Finding, Inspection, Verdict, unknown};
use addon_signer_api::AddOnSigner;

/// The label of namespaces that the NetworkPolicy of deploy/ lets the gateway reach.
const BACKEND_LABEL: &str = "addon-signer.io/upstream";

/// What the host of a backend names.
#[derive(Debug, PartialEq, Eq)]
enum Host<'h> {
    /// A Service of the hub's cluster, as a pod of the hub would resolve the name.
    Service { name: &'h str, namespace: &'h str },
    /// An address.
    Address,
    /// A name outside the cluster.
    Outside,
}

impl<'h> Host<'h> {
    /// Reads `a`, `a.b`, `a.b.svc` or longer; the first one is a Service beside the hub.
    fn read(host: &'h str, own_namespace: &'h str) -> Self {
        if host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() {
            return Self::Address;
        }
        let mut parts = host.split('.');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(name), None, _) => Self::Service { name, namespace: own_namespace },
            (Some(name), Some(namespace), None | Some("svc")) => Self::Service { name, namespace },
            _ => Self::Outside,
        }
    }
}

impl Inspection {
    /// What the routes of an AddOnSigner name.
    pub(super) async fn backends(&self, about: &str, signer: &AddOnSigner) -> Vec<Finding> {
        let routes = signer.spec.gateway.routes.iter();
        let mut hosts: Vec<String> = routes.filter_map(|route| backend_host(&route.upstream)).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let mut found = Vec::new();
        for host in hosts {
            found.push(match Host::read(&host, &self.namespace) {
                Host::Service { name, namespace } => self.service(about, &host, (name, namespace)).await,
                Host::Address => unseen(about, &host, "an address"),
                Host::Outside => unseen(about, &host, "a name outside this cluster"),
            });
        }
        found
    }

    /// Whether there is the Service, and the gateway may reach it.
    async fn service(&self, about: &str, host: &str, (service, namespace): (&str, &str)) -> Finding {
        let services: Api<Service> = Api::namespaced(self.client.clone(), namespace);
        match services.get_opt(service).await {
            Ok(Some(_)) if namespace == self.namespace => {
                let sentence = format!(
                    "the backend {host} is in the hub's own namespace, to which the gateway connects only with \
                     --allow-loopback-upstreams; move the backend to another namespace"
                );
                Finding::new(Verdict::Unknown, about, sentence)
            }
            Ok(Some(_)) => self.reachable(about, host, namespace).await,
            Ok(None) => {
                let sentence = format!(
                    "the backend {host} has no Service {service} in the namespace {namespace}; it may be a name \
                     outside this cluster"
                );
                Finding::new(if host.contains(".svc") { Verdict::Bad } else { Verdict::Unknown }, about, sentence)
            }
            Err(error) => unknown(format!("{about}, backend {host}"), &error),
        }
    }

    /// Whether the NetworkPolicy of deploy/ lets the gateway reach the namespace.
    async fn reachable(&self, about: &str, host: &str, namespace: &str) -> Finding {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        match namespaces.get_metadata(namespace).await {
            Ok(found) if found.labels().get(BACKEND_LABEL).is_some_and(|value| value == "true") => {
                Finding::good(about, format!("the backend {host} has a Service"))
            }
            Ok(_) => Finding::new(
                Verdict::Unknown,
                about,
                format!(
                    "the NetworkPolicy of deploy/ blocks the gateway from the backend {host}, except on ports 443 and \
                     6443, until you `kubectl label namespace {namespace} {BACKEND_LABEL}=true`"
                ),
            ),
            Err(error) => unknown(format!("{about}, backend {host}"), &error),
        }
    }
}

/// What cannot be checked from here.
fn unseen(about: &str, host: &str, what: &str) -> Finding {
    let sentence = format!(
        "the backend {host} is {what}, which is not checked; the NetworkPolicy of deploy/ lets the gateway connect \
         only to ports 443 and 6443, and to pods in namespaces labelled {BACKEND_LABEL}=true"
    );
    Finding::new(Verdict::Unknown, about, sentence)
}

fn backend_host(backend: &str) -> Option<String> {
    backend.parse::<hyper::Uri>().ok()?.host().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_names_are_services_and_bare_label_is_beside_the_hub() {
        for inside in ["receive.observability", "receive.observability.svc", "receive.observability.svc.cluster.local"]
        {
            assert_eq!(Host::read(inside, "hub"), Host::Service { name: "receive", namespace: "observability" });
        }
        assert_eq!(Host::read("receive", "hub"), Host::Service { name: "receive", namespace: "hub" });
        assert_eq!(Host::read("receive.example.com", "hub"), Host::Outside);
        for address in ["10.0.0.1", "[fd00::1]"] {
            let backend = format!("http://{address}:80/a");
            assert_eq!(Host::read(&backend_host(&backend).unwrap(), "hub"), Host::Address, "{address}");
        }
    }
}
