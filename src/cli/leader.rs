//! Whether a hub is leading: without one, what the hub has reported gets old, and nothing is signed.

use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, ResourceExt};

use super::caller::CommandUser;
use addon_signer_core::lease::{self, LEASE_NAME};
use addon_signer_core::names::ANNOTATION_VERSION;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_platform::clock::Clock;

/// How much the clocks of the hub and of the API server may differ, in seconds.
pub(super) const CLOCKS: u64 = 60;

/// The longest time between two renewals.
const RENEWAL: Duration = Duration::from_secs(6);

/// The hub that leads, or a sentence that none does.
pub(super) type Leader = Result<Holder, String>;

/// The hub that leads.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Holder {
    /// The name of its process.
    pub(super) name: String,
    /// Its version; builds before 0.1.0 do not say it.
    pub(super) version: Option<String>,
}

/// Reads the Lease in the hub's namespace, and judges it by the API server's clock.
///
/// # Errors
/// The API server did not answer, or the caller may not read it.
pub(super) async fn leader(client: &Client, namespace: &str) -> anyhow::Result<Leader> {
    let read = async || {
        let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
        let lease = leases.get_opt(LEASE_NAME).await;
        lease.with_context(|| format!("the Lease {LEASE_NAME} in the namespace {namespace} cannot be read"))
    };
    let Some(lease) = read().await? else { return Ok(Err(none(namespace, None))) };
    let now = CommandUser::ask(client).await.now.unwrap_or_else(|| Clock::default().now());
    let leader = of(&lease, namespace, now);
    if leader.is_err() && holder(&lease).is_some() {
        // Its clock may be wrong. Whoever renews the Lease is leading.
        tokio::time::sleep(RENEWAL).await;
        let later = read().await?.filter(|later| later.metadata.resource_version != lease.metadata.resource_version);
        return Ok(later.as_ref().and_then(holder).map_or(leader, Ok));
    }
    Ok(leader)
}

fn holder(lease: &Lease) -> Option<Holder> {
    let name = lease.spec.as_ref()?.holder_identity.clone().filter(|holder| !holder.is_empty())?;
    // A build before 0.1.0 that takes the Lease over keeps the annotation of the hub before it.
    let version = lease.annotations().get(ANNOTATION_VERSION).and_then(|of| of.strip_suffix(&name)?.strip_suffix(' '));
    Some(Holder { version: version.map(str::to_owned), name })
}

fn of(lease: &Lease, namespace: &str, now: Timestamp) -> Leader {
    let Some(spec) = &lease.spec else { return Err(none(namespace, None)) };
    let renewed = spec.renew_time.as_ref().map(|renewed| Timestamp::from_unix(renewed.0.as_second()));
    let within = u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or_default();
    let within = within.min(lease::LONGEST.as_secs());
    let is_new = renewed.is_some_and(|renewed| renewed.until(now).as_secs() <= within + CLOCKS);
    holder(lease).filter(|_| is_new).ok_or_else(|| none(namespace, renewed))
}

fn none(namespace: &str, since: Option<Timestamp>) -> String {
    let since = since.map(|since| format!(" since {since}")).unwrap_or_default();
    format!("no hub has been leading in the namespace {namespace}{since}: check the hub's pods and their logs")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lease_says_who_leads_or_since_when_nobody_does() {
        let judge_of = |holder: &str, now: i64, seconds: i32| {
            let spec = json!({
                "holderIdentity": holder, "renewTime": "1970-01-01T00:01:40.000000Z", "leaseDurationSeconds": seconds,
            });
            let metadata = json!({ "annotations": { "addon-signer.io/version": "1.2.3 hub-1" } });
            let lease = serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap();
            of(&lease, "here", Timestamp::from_unix(now))
        };
        let judge = |holder: &str, now| judge_of(holder, now, 15);
        let leads = Ok(Holder { name: "hub-1".to_owned(), version: Some("1.2.3".to_owned()) });
        assert_eq!(judge("hub-1", 175), leads);
        assert_eq!(judge("hub-1", 50), leads, "the clocks differ");
        assert_eq!(judge("hub-2", 175).unwrap().version, None, "it is that of another");
        for gone in [judge("hub-1", 176), judge("", 100)] {
            let why = gone.unwrap_err();
            assert!(why.contains("no hub has been leading in the namespace here since 1970-01-01T00:01:40Z"), "{why}");
        }
        assert!(judge_of("hub-1", 3_761, i32::MAX).is_err(), "other hubs believe it for an hour at most");
        assert!(of(&Lease::default(), "here", Timestamp::from_unix(0)).is_err());
    }
}
