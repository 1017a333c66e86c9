//! Whether only the hub can set the trust bundle that agents take from their CSRs: without the policy
//! addon-signer-trust-bundle, any account that may update /approval or /status of a CSR chooses whom a new agent
//! trusts. The hub signs nevertheless, and reports it.

use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::PostParams;
use kube::{Api, Client, Error};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::guard::probe;
use crate::HubLinks;
use crate::conditions::{Report, Validity};
use crate::dry_run::{self, Asking, PolicyDryRun, PolicyProblem, Right};
use crate::tasks::send_news;
use addon_signer_api::status::ConditionValue;
use addon_signer_core::conditions::{POLICY_IN_FORCE, REFUSES_HUB};
use addon_signer_core::names::ANNOTATION_TRUST_BUNDLE;

/// How often the task gives a sign of life.
const ROUND: Duration = Duration::from_secs(15);
const POLICY: &str = "addon-signer-trust-bundle";
/// How the policy's message begins if it lets another account than the hub's set the annotation.
const ANOTHER_ACCOUNT: &str = "only the account ";

/// Asks the API server for as long as the hub runs.
pub(crate) async fn keep(links: HubLinks, report: watch::Sender<Report>) {
    let pulse = links.pulses.start("policy of the trust bundle");
    let mut asking = Asking::new(BundleDryRun { client: links.client.clone() });
    loop {
        pulse.beat();
        if asking.is_due() {
            asking.ask().await;
            if let Some(right) = &asking.last {
                links.metrics.bundle_protected(*right == Right::Guarded);
                send_news(&report, Report::ConditionValue(condition(right)));
            }
        }
        sleep_until(asking.at.min(Instant::now() + ROUND)).await;
    }
}

/// Whether certificates can be published: they cannot while the policy refuses the hub itself.
pub(crate) fn publishable(report: &Report) -> Validity {
    match report {
        Report::ConditionValue((_, REFUSES_HUB, message)) => Err((REFUSES_HUB, message.clone())),
        _ => Ok(()),
    }
}

fn condition(right: &Right) -> ConditionValue {
    let Right::Unguarded(problem) = right else {
        let sentence = "Only the hub can set the trust bundle that agents take from their CSRs.";
        return (true, POLICY_IN_FORCE, sentence.to_owned());
    };
    let (reason, sentence) = match problem {
        PolicyProblem::Missing => (
            problem.reason(),
            format!(
                "The ValidatingAdmissionPolicy {POLICY} is not in force, so whoever may update CSRs can choose whom \
                 a new agent trusts. Install the chart again; the binding must deny."
            ),
        ),
        PolicyProblem::RefusesHub(message) => (
            problem.reason(),
            format!(
                "No certificate can be given out, because the ValidatingAdmissionPolicy {POLICY} refuses the hub: \
                 {message}. Name the hub's account in the chart's value hubAccount."
            ),
        ),
        PolicyProblem::Unknown(message) => (
            problem.reason(),
            format!(
                "The hub cannot tell whether the ValidatingAdmissionPolicy {POLICY} is in force. Its dry run \
                 of a CSR that this policy must refuse ended with: {message}. If something else refuses the dry run, \
                 exempt the hub's account from it."
            ),
        ),
    };
    (false, reason, sentence)
}

/// Tries to create a CSR that has a trust bundle.
struct BundleDryRun {
    client: Client,
}

impl PolicyDryRun for BundleDryRun {
    const POLICY: &'static str = POLICY;

    async fn attempt(&self) -> Result<Right, Error> {
        let probe = probe(ANNOTATION_TRUST_BUNDLE).map_err(|error| Error::Service(Box::new(error)))?;
        let requests: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        let answer = requests.create(&PostParams { dry_run: true, field_manager: None }, &probe).await;
        if let Err(Error::Api(status)) = &answer
            && let Some(message) =
                dry_run::denial_of(POLICY, status).filter(|message| message.starts_with(ANOTHER_ACCOUNT))
        {
            return Ok(Right::Unguarded(PolicyProblem::RefusesHub(message.into())));
        }
        dry_run::judge(POLICY, answer)
    }

    fn log(&self, right: &Right) {
        match condition(right) {
            (true, _, sentence) => info!(policy = POLICY, "{sentence}"),
            (false, reason, sentence) => warn!(policy = POLICY, reason, "{sentence}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use hyper::{Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use crate::dry_run::RIGHT_AGE;
    use crate::lease;
    use crate::links::mk_links;
    use addon_signer_core::conditions::REFUSES_HUB;

    const LATE: &str = "ValidatingAdmissionPolicy 'addon-signer-trust-bundle' with binding 'b' denied request: later";
    const ANOTHER: &str = "ValidatingAdmissionPolicy 'addon-signer-trust-bundle' with binding 'b' denied request: only \
                           the account a may set it, and this is b";

    /// An API server that refuses each dry run with this message.
    fn mk_client(refusal: &Arc<Mutex<&'static str>>) -> Client {
        let refusal = Arc::clone(refusal);
        let service = tower::service_fn(move |_: Request<Body>| {
            let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 422,
                                 "message": *refusal.lock().unwrap(), "reason": "Invalid" });
            let answer = Response::builder().status(StatusCode::UNPROCESSABLE_ENTITY);
            let answer = answer.body(Body::from(status.to_string().into_bytes())).unwrap();
            async { Ok::<_, std::convert::Infallible>(answer) }
        });
        Client::new(service, "default")
    }

    fn is(report: &Report, reason: &str) -> bool {
        matches!(report, Report::ConditionValue((_, it, _)) if *it == reason)
    }

    #[tokio::test(start_paused = true)]
    async fn a_running_hub_notices_that_the_policy_refuses_it() {
        let refusal = Arc::new(Mutex::new(LATE));
        let (report, mut reported) = watch::channel(Report::AsBefore);
        let task = tokio::spawn(keep(mk_links(mk_client(&refusal), lease::channel().1), report));
        reported.wait_for(|report| is(report, "PolicyInForce")).await.unwrap();
        assert_eq!(publishable(&reported.borrow()), Ok(()));
        *refusal.lock().unwrap() = ANOTHER;
        let refused = reported.wait_for(|report| is(report, REFUSES_HUB));
        tokio::time::timeout(RIGHT_AGE + 2 * ROUND, refused).await.unwrap().unwrap();
        let (reason, message) = publishable(&reported.borrow()).unwrap_err();
        assert_eq!(reason, REFUSES_HUB);
        assert!(message.contains("refuses the hub: only the account a may set it, and this is b. Name"), "{message}");
        task.abort();
    }
}
