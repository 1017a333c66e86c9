//! Looks at the objects of the Kubernetes API.

use anyhow::{Context, bail};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::ListParams;
use kube::core::DeserializeGuard;
use kube::{Api, ResourceExt};

use super::{Finding, Inspection, Verdict};
use crate::api::AddOnSigner;
use crate::api::status::{
    AuthorityState, AuthorityStatus, CONDITION_AUTHORITY_HEALTHY, CONDITION_FOREIGN, CONDITION_READY,
    CONDITION_REGISTERED, CONDITION_TRUST_DISTRIBUTED,
};
use crate::hub::authorities::report::ServingReport;
use crate::hub::authorities::store::{SERVING_CONFIG_MAP, STATUS_KEY};
use crate::hub::registrations::registry::discover;
use crate::inventory::API_SERVICE;
use addon_signer_core::ca::authority::LAST_CALL;
use addon_signer_core::lease::LEASE_NAME;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_platform::errors::explain;

/// The label of namespaces that the NetworkPolicy of deploy/ lets the gateway reach.
const UPSTREAM_LABEL: &str = "addon-signer.io/upstream";
/// Reasons of conditions that are true although an authority was activated without evidence.
const FORCED: [&str; 2] = ["Forced", "GatewayAuthorityForced"];

/// How much the clocks of the hub and of the API server may differ, in seconds.
const CLOCKS: u64 = 60;

impl Inspection {
    /// The APIs that the hub needs. Without them there is nothing else to look at.
    pub(super) async fn apis(&self) -> anyhow::Result<Vec<Finding>> {
        let signers: Api<AddOnSigner> = Api::all(self.client.clone());
        match signers.list_metadata(&ListParams::default().limit(1)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {
                bail!("the API server does not know AddOnSigner: apply deploy/ first (`kubectl apply -k deploy/`)")
            }
            Err(error) => return Err(error).context("AddOnSigners cannot be listed"),
        }
        let mut found = vec![Finding::good("API", "the API server serves AddOnSigner v1alpha1")];
        found.push(match discover(&self.client).await {
            Ok(api) => Finding::good("API", format!("the API server serves ManagedClusterAddOn {}", api.version())),
            Err(error) => Finding::bad("API", explain(&error)),
        });
        Ok(found)
    }

    /// Whether a hub leads.
    pub(super) async fn lease(&self) -> Vec<Finding> {
        let about = format!("Lease {LEASE_NAME}");
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let spec = match leases.get_opt(LEASE_NAME).await {
            Ok(lease) => lease.and_then(|lease| lease.spec).unwrap_or_default(),
            Err(error) => return vec![unknown(about, &error)],
        };
        let holder = spec.holder_identity.filter(|holder| !holder.is_empty());
        let Some((holder, renewed)) = holder.zip(spec.renew_time) else {
            let namespace = &self.namespace;
            let sentence = format!("no hub leads in the namespace {namespace}: look at the hub's pods and their logs");
            return vec![Finding::bad(about, sentence)];
        };
        let ago = Timestamp::from_unix(renewed.0.as_second()).until(self.now).as_secs();
        let within = u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or_default();
        vec![if ago > within + CLOCKS {
            Finding::bad(about, format!("{holder} last renewed it {ago} s ago: look at the hub's pods and their logs"))
        } else {
            Finding::good(about, format!("{holder} leads"))
        }]
    }

    /// Every AddOnSigner: its conditions, its authorities, its upstreams.
    pub(super) async fn signers(&self) -> Vec<Finding> {
        let signers: Api<DeserializeGuard<AddOnSigner>> = Api::all(self.client.clone());
        let signers = match signers.list(&ListParams::default()).await {
            Ok(signers) => signers.items,
            Err(error) => return vec![unknown("AddOnSigners".to_owned(), &error)],
        };
        if signers.is_empty() {
            let sentence = "there is none, so no addon gets certificates: see deploy/example";
            return vec![Finding::new(Verdict::Unknown, "AddOnSigners", sentence)];
        }
        let mut found = Vec::new();
        for signer in signers {
            let about = format!("AddOnSigner {}", signer.name_any());
            let signer = match signer.0 {
                Ok(signer) => signer,
                Err(error) => {
                    found.push(Finding::bad(&about, format!("it cannot be read: {}", error.error)));
                    continue;
                }
            };
            let status = signer.status.clone().unwrap_or_default();
            let bad = status.conditions.iter().filter(|condition| is_bad(condition));
            let bad: Vec<_> = bad.map(|condition| Finding::bad(&about, told(condition))).collect();
            let ready = status.conditions.iter().find(|condition| condition.type_ == CONDITION_READY);
            match ready {
                None => found.push(Finding::bad(&about, "no hub has reported about it: is one running?")),
                Some(ready) if bad.is_empty() => found.push(Finding::good(&about, ready.message.as_str())),
                Some(_) => found.extend(bad),
            }
            found.push(self.authorities(&about, &status.authorities));
            found.extend(self.upstreams(&about, &signer).await);
        }
        found
    }

    /// The authority that signs for a line, and its end.
    fn authorities(&self, about: &str, authorities: &[AuthorityStatus]) -> Finding {
        let Some(active) = authorities.iter().find(|authority| authority.state == AuthorityState::Active) else {
            return Finding::bad(about, "no authority signs");
        };
        let end = Timestamp::from_unix(active.not_after.0.as_second());
        let sentence = format!("the authority {} signs, and ends at {end}", active.id);
        if self.now.until(end) > LAST_CALL {
            return Finding::good(about, sentence);
        }
        Finding::bad(about, format!("{sentence}, and none has replaced it: see docs/runbooks/rotate-a-ca.md"))
    }

    /// The gateway's own authorities.
    pub(super) async fn serving(&self) -> Vec<Finding> {
        let about = "gateway's authority";
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let map = match maps.get_opt(SERVING_CONFIG_MAP).await {
            Ok(map) => map,
            Err(error) => return vec![unknown(about.to_owned(), &error)],
        };
        let text = map.and_then(|map| map.data?.remove(STATUS_KEY)).unwrap_or_default();
        let report: ServingReport = serde_json::from_str(&text).unwrap_or_default();
        let waits = report.rotation.as_ref().and_then(|rotation| rotation.waiting_for.as_ref());
        let problem = report.problem.filter(|problem| waits.is_none_or(|waits| !problem.contains(waits.as_str())));
        let problem = problem.map(|problem| Finding::bad(about, problem));
        problem.into_iter().chain([self.authorities(about, &report.authorities)]).collect()
    }

    /// Services that routes name inside the hub's cluster.
    async fn upstreams(&self, about: &str, signer: &AddOnSigner) -> Vec<Finding> {
        let mut found = Vec::new();
        let routes = signer.spec.gateway.routes.iter();
        let mut hosts: Vec<String> = routes.filter_map(|route| upstream_host(&route.upstream)).collect();
        hosts.sort_unstable();
        hosts.dedup();
        for host in hosts {
            let Some((service, namespace)) = service_of(&host) else { continue };
            let services: Api<Service> = Api::namespaced(self.client.clone(), namespace);
            found.push(match services.get_opt(service).await {
                Ok(Some(_)) => self.reachable(about, &host, namespace).await,
                Ok(None) => {
                    let sentence = format!(
                        "the upstream {host} has no Service {service} in the namespace {namespace}; it may be a name \
                         outside of this cluster"
                    );
                    Finding::new(if host.contains(".svc") { Verdict::Bad } else { Verdict::Unknown }, about, sentence)
                }
                Err(error) => unknown(format!("{about}, upstream {host}"), &error),
            });
        }
        found
    }

    /// Whether the NetworkPolicy of deploy/ lets the gateway reach the namespace.
    async fn reachable(&self, about: &str, host: &str, namespace: &str) -> Finding {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        match namespaces.get_metadata(namespace).await {
            Ok(found) if found.labels().get(UPSTREAM_LABEL).is_some_and(|value| value == "true") => {
                Finding::good(about, format!("the upstream {host} has a Service"))
            }
            Ok(_) => Finding::new(
                Verdict::Unknown,
                about,
                format!(
                    "the NetworkPolicy of deploy/ keeps the gateway from the upstream {host}, except on the ports 443 \
                     and 6443, until you `kubectl label namespace {namespace} {UPSTREAM_LABEL}=true`"
                ),
            ),
            Err(error) => unknown(format!("{about}, upstream {host}"), &error),
        }
    }

    /// The APIService of the inventory, if it is installed.
    pub(super) async fn inventory(&self) -> Vec<Finding> {
        let about = "inventory";
        let services: Api<APIService> = Api::all(self.client.clone());
        let service = match services.get_opt(API_SERVICE).await {
            Ok(Some(service)) => service,
            Ok(None) => return vec![Finding::good(about, "it is not installed (deploy/inventory)")],
            Err(error) => return vec![unknown(about.to_owned(), &error)],
        };
        let conditions = service.status.and_then(|status| status.conditions).unwrap_or_default();
        let available = conditions.into_iter().find(|condition| condition.type_ == "Available");
        vec![match available {
            Some(condition) if condition.status == "True" => Finding::good(about, "the API server reaches it"),
            Some(condition) => Finding::bad(about, condition.message.unwrap_or_default()),
            None => Finding::bad(about, format!("`kubectl get apiservice {API_SERVICE}` has no state yet")),
        }]
    }
}

pub(super) fn unknown(about: String, error: &kube::Error) -> Finding {
    Finding::new(Verdict::Unknown, about, format!("it cannot be looked at: {}", explain(error)))
}

fn is_bad(condition: &Condition) -> bool {
    let holds = condition.status == "True";
    match condition.type_.as_str() {
        CONDITION_READY | CONDITION_AUTHORITY_HEALTHY | CONDITION_REGISTERED | CONDITION_TRUST_DISTRIBUTED
            if !holds =>
        {
            true
        }
        CONDITION_FOREIGN => holds,
        _ => FORCED.contains(&condition.reason.as_str()),
    }
}

fn told(condition: &Condition) -> String {
    let Condition { type_, status, reason, message, .. } = condition;
    format!("{type_} is {status}, {reason}: {message}")
}

fn upstream_host(upstream: &str) -> Option<String> {
    upstream.parse::<hyper::Uri>().ok()?.host().map(str::to_owned)
}

/// Name and namespace of the Service whose DNS name inside the cluster this is: `a.b`, `a.b.svc` or longer.
fn service_of(host: &str) -> Option<(&str, &str)> {
    let mut parts = host.split('.');
    let (service, namespace) = (parts.next()?, parts.next()?);
    let is_inside = parts.next().is_none_or(|third| third == "svc");
    (is_inside && host.parse::<std::net::IpAddr>().is_err()).then_some((service, namespace))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_inside_the_cluster_are_services() {
        for inside in ["receive.observability", "receive.observability.svc", "receive.observability.svc.cluster.local"]
        {
            assert_eq!(service_of(inside), Some(("receive", "observability")));
        }
        for outside in ["receive", "receive.example.com", "10.0.0.1"] {
            assert_eq!(service_of(outside), None, "{outside}");
        }
    }

    #[test]
    fn conditions_that_need_somebody_are_bad() {
        let is = |kind: &str, status: &str, reason: &str| {
            let at = "2026-11-23T00:00:00Z";
            let condition =
                json!({ "type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": at });
            is_bad(&serde_json::from_value(condition).unwrap())
        };
        assert!(is("Ready", "False", "LedgerAway") && is("Registered", "False", "TakenAway"));
        assert!(is("Ready", "True", "GatewayAuthorityForced") && is("Rotating", "True", "Forced"));
        assert!(is("ForeignCertificates", "True", "SignedByAnother"));
        assert!(!is("Ready", "True", "Signing") && !is("Rotating", "True", "Waiting"));
        assert!(!is("Rotating", "False", "Settled") && !is("Registered", "True", "Written"));
    }
}
