//! `addon-signer certs revoke`: an annotation on the ManagedClusterAddOn, written with the caller's kubeconfig.
//!
//! The time is the API server's if it reports one, because the administrator's clock may be minutes off. Too early a
//! time would leave certificates valid; too late a time makes new CSRs wait. It is rounded up to the next full second,
//! so that certificates that began in the present second are revoked too. Certificates issued later are not revoked:
//! although certificates are backdated by 5 minutes, these begin at the revocation at the earliest.

use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde::Serialize;
use serde_json::json;

use crate::cli::caller::CommandUser;
use crate::output::{Format, print, print_json, tell};
use addon_signer_api::lenient::Lenient;
use addon_signer_api::ocm;
use addon_signer_core::identity::{AddOnName, ClusterName};
use addon_signer_core::names::{ANNOTATION_REVOKE_BEFORE, ANNOTATION_REVOKED_BY, ANNOTATION_SUSPENDED};
use addon_signer_core::registry::Revocation;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_hub::registrations::registry::discover;
use addon_signer_platform::clock::Clock;
use addon_signer_platform::kubeconfig::{Access, ClusterAddress};
use addon_signer_platform::kubernetes::{self, Connected};

/// How often the command retries after a write conflict.
const TRIES: u32 = 5;

/// Arguments of `certs revoke`.
#[derive(Debug, Clone, Args)]
pub struct RevokeArgs {
    /// The managed cluster.
    #[arg(long)]
    cluster: ClusterName,
    /// The addon on it.
    #[arg(long)]
    addon: AddOnName,
    /// Only certificates that began before this time, such as 2026-11-20T12:00:00Z; not in the future, and not earlier
    /// than the current revocation [default: all that exist now].
    #[arg(long, value_name = "TIME", value_parser = time)]
    before: Option<Timestamp>,
    /// The output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    output: Format,
    #[command(flatten)]
    access: Access,
}

/// What was done, as `--output json` prints it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Revoked<'r> {
    cluster: &'r str,
    addon: &'r str,
    revoke_before: Timestamp,
    /// The time before which certificates were revoked already.
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked_before: Option<Timestamp>,
    /// The user who asked, by the API server; empty if it does not report one.
    revoked_by: &'r str,
}

pub(super) async fn run(args: RevokeArgs) -> anyhow::Result<()> {
    let Connected { client, target } = kubernetes::connect(&args.access).await?;
    let caller = CommandUser::ask(&client).await;
    let now = caller.now.unwrap_or_else(|| Clock::default().now());
    let before = moment(args.before, now)?;
    let resource = discover(&client).await?.resource();
    let addons = Api::namespaced_with(client, args.cluster.as_str(), &resource);
    let (now, was) = write(&args, (&addons, &target), Revocation { before, by: caller.user }).await?;
    let RevokeArgs { cluster, addon, .. } = &args;
    match args.output {
        Format::Json => print_json(&Revoked {
            cluster: cluster.as_str(),
            addon: addon.as_str(),
            revoke_before: now.before,
            revoked_before: was,
            revoked_by: &now.by,
        })?,
        Format::Table => print(&words(cluster, addon, now.before)),
    }
    Ok(())
}

fn words(cluster: &ClusterName, addon: &AddOnName, before: Timestamp) -> String {
    format!(
        "Certificates of {addon} on {cluster} that begin before {before} are revoked. The gateway ends their \
         connections within 2 s.\naddon-signer-agent notices this at the gateway within minutes and enrols again. With \
         OCM's agent, delete the addon's client certificate Secret on {cluster}; the agent then requests a new one.\n"
    )
}

/// Reads a time of RFC 3339. A part of a second counts as a whole second, so that more is revoked.
fn time(text: &str) -> Result<Timestamp, String> {
    let time = Timestamp::from_rfc3339_rounded_up(text);
    time.ok_or_else(|| "write a time such as 2026-11-20T12:00:00Z".to_owned())
}

fn moment(wanted: Option<Timestamp>, now: Timestamp) -> anyhow::Result<Timestamp> {
    let next_second = now.plus(Duration::from_secs(1));
    match wanted {
        Some(wanted) if wanted > next_second => bail!(
            "--before {wanted} is in the future; by the API server's clock it is {now}. Until then no certificate of \
             the addon would be valid; to keep the addon out, suspend it (annotation {})",
            ANNOTATION_SUSPENDED
        ),
        Some(wanted) => Ok(wanted),
        None => Ok(next_second),
    }
}

/// Sets the time. Returns the present revocation, and the time that was set before. The write fails if the object has
/// changed since it was read, so that two administrators who revoke at the same time cannot set each other's time back.
async fn write(
    args: &RevokeArgs,
    (addons, target): (&Api<Lenient<DynamicObject>>, &ClusterAddress),
    wanted: Revocation,
) -> anyhow::Result<(Revocation, Option<Timestamp>)> {
    let RevokeArgs { cluster, addon, .. } = args;
    for tries in 0..TRIES {
        let read = addons.get_opt(addon.as_str()).await;
        let read = read.with_context(|| {
            format!("the addon {addon} on {cluster} cannot be read; the ClusterRole addon-signer-revoker allows it")
        })?;
        let Some(Lenient { object, .. }) = read else {
            bail!(
                "there is no ManagedClusterAddOn {addon} in the namespace {cluster}, so no certificate of it is valid"
            );
        };
        let was = match already_set(&object, wanted.before, args.before.is_some())? {
            Set::Enough(found) => return Ok((found.clone(), Some(found.before))),
            Set::Less(was) => was,
        };
        if tries == 0 {
            tell(&format!("Changing {addon} on {cluster}, on {target}"));
        }
        match addons.patch(addon.as_str(), &PatchParams::default(), &Patch::Merge(patch(&object, &wanted))).await {
            Ok(_) => return Ok((wanted, was)),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => {
                let refused = format!(
                    "the addon {addon} on {cluster} cannot be changed; the ClusterRole addon-signer-revoker allows it"
                );
                return Err(anyhow::Error::new(error).context(refused));
            }
        }
    }
    bail!("the addon {addon} on {cluster} keeps changing; try again")
}

/// What is already revoked.
#[derive(Debug, PartialEq, Eq)]
enum Set {
    /// Everything that should be revoked.
    Enough(Revocation),
    /// Certificates from before this time, or none.
    Less(Option<Timestamp>),
}

/// A later time stays, because an earlier one would make some certificates valid again. That is an error only with
/// `--before`; without it, a later time means that everything is already revoked.
fn already_set(object: &DynamicObject, wanted: Timestamp, named: bool) -> anyhow::Result<Set> {
    // An unreadable annotation admits no client, and has no time that could be set back.
    match ocm::revocation(object).unwrap_or_default() {
        Some(set) if set.before > wanted && named => bail!(
            "certificates from before {} are already revoked; {wanted} would make some of them valid again. If you \
             want that, edit the annotation {ANNOTATION_REVOKE_BEFORE}",
            set.before
        ),
        Some(set) if set.before >= wanted => Ok(Set::Enough(set)),
        less => Ok(Set::Less(less.map(|set| set.before))),
    }
}

fn patch(object: &DynamicObject, revocation: &Revocation) -> serde_json::Value {
    let Revocation { before, by } = revocation;
    let annotations = json!({
        ANNOTATION_REVOKE_BEFORE: before.to_string(),
        // Begins with the time it refers to, so that it is not attributed to a later revocation.
        ANNOTATION_REVOKED_BY: format!("{before} {by}").trim_end(),
    });
    json!({ "metadata": { "resourceVersion": object.resource_version(), "annotations": annotations } })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_unix(1_800_000_000);

    fn mk_addon(annotations: &[(&str, &str)]) -> DynamicObject {
        let mut object = DynamicObject::new("telemetry", &ocm::AddOnApi::V1Beta1.resource());
        let pairs = annotations.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        object.metadata.annotations = Some(pairs.collect());
        object
    }

    #[test]
    fn default_revokes_everything_up_to_end_of_this_second() {
        assert_eq!(moment(None, NOW).unwrap(), NOW.plus(Duration::from_secs(1)));
        assert_eq!(moment(Some(NOW.minus(Duration::from_secs(60))), NOW).unwrap(), NOW.minus(Duration::from_secs(60)));
        let future = moment(Some(NOW.plus(Duration::from_secs(2))), NOW).unwrap_err().to_string();
        assert!(future.contains("is in the future"), "{future}");
        assert!(future.contains("suspend"), "{future}");
    }

    #[test]
    fn a_time_is_never_set_back() {
        let text = NOW.to_string();
        let set = mk_addon(&[(ANNOTATION_REVOKE_BEFORE, &text)]);
        let earlier = NOW.minus(Duration::from_secs(1));
        let later = NOW.plus(Duration::from_secs(1));
        let found = Revocation { before: NOW, by: String::new() };
        assert_eq!(already_set(&set, NOW, true).unwrap(), Set::Enough(found.clone()));
        assert_eq!(already_set(&set, later, true).unwrap(), Set::Less(Some(NOW)));
        let refused = already_set(&set, earlier, true).unwrap_err().to_string();
        assert!(refused.contains("valid again"), "{refused}");
        assert_eq!(already_set(&set, earlier, false).unwrap(), Set::Enough(found), "somebody was quicker");
        assert_eq!(already_set(&mk_addon(&[]), NOW, true).unwrap(), Set::Less(None));
        assert_eq!(already_set(&mk_addon(&[(ANNOTATION_REVOKE_BEFORE, "soon")]), NOW, true).unwrap(), Set::Less(None));
    }

    #[test]
    fn what_is_written_is_read_back_with_who_asked() {
        let revocation = Revocation { before: NOW, by: "system:admin".to_owned() };
        let mut read = mk_addon(&[]);
        read.metadata.resource_version = Some("7".to_owned());
        let written = patch(&read, &revocation);
        assert_eq!(written["metadata"]["resourceVersion"], "7", "not over what somebody else has written since");
        let annotations = &written["metadata"]["annotations"];
        let value = |name: &str| annotations[name].as_str().unwrap();
        let names = [ANNOTATION_REVOKE_BEFORE, ANNOTATION_REVOKED_BY];
        let object = mk_addon(&names.map(|name| (name, value(name))));
        assert_eq!(ocm::revocation(&object), Ok(Some(revocation)));
    }
}
