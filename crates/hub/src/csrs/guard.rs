//! Whether the API server protects the annotation that names the user for whom OCM's gRPC server makes a CSR: without
//! the policy addon-signer-grpc-account, any account that may update the status of CSRs could rewrite it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, Error};
use ring::rand::SystemRandom;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use crate::authorities;
use crate::dry_run::{self, Asking, PolicyDryRun, PolicyProblem, Right};
use crate::tasks::send_news;
use addon_signer_core::csr::build::{BuildError, CsrParams};
use addon_signer_core::identity::GATEWAY_SERVING_SIGNER;
use addon_signer_core::keys::private::PrivateKey;
use addon_signer_core::keys::public::KeyKind;
use addon_signer_core::names::ANNOTATION_CSR_USER;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_platform::errors::explain;
use addon_signer_telemetry::pulse::Pulse;

/// How often the task gives a sign of life.
const ROUND: Duration = Duration::from_secs(15);
/// How much later than the policy was seen in force a CSR must be created. Both times have whole seconds, and with
/// several API servers, some may learn of the policy later or have slightly different clocks.
const LATER: Duration = Duration::from_secs(5);
/// The policy of `grpcAccount` in the chart.
pub(super) const POLICY: &str = "addon-signer-grpc-account";
/// The name and the annotation of the CSRs that the hub tries to create.
const NOBODY: &str = "addon-signer-probe";

/// What the hub knows of the policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Guarded {
    /// Nothing yet.
    #[default]
    Starting,
    /// It may not be in force.
    Not(PolicyProblem),
    /// It is in force: CSRs created since this time, by the API server's clock, are as they were created.
    Since(Timestamp),
}

/// What the hub knows of the policy, for all signers. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Guard(Arc<GuardState>);

#[derive(Debug, Default)]
struct GuardState {
    known: watch::Sender<Guarded>,
    refuted: Notify,
}

impl Guard {
    /// The present state of the policy.
    pub(crate) fn known(&self) -> Guarded {
        self.0.known.borrow().clone()
    }

    /// Watches that state.
    pub(crate) fn watch(&self) -> watch::Receiver<Guarded> {
        self.0.known.subscribe()
    }

    /// Notes that the API server accepted a change that the policy forbids.
    pub(super) fn refute(&self) {
        self.set(Guarded::Not(PolicyProblem::Missing));
        self.0.refuted.notify_one();
    }

    /// Asks the API server for as long as the hub runs.
    pub(crate) async fn keep(self, client: Client, pulse: Pulse) {
        let mut asking = Asking::new(CsrDryRun { client });
        loop {
            pulse.beat();
            if asking.is_due() {
                asking.ask().await;
                self.learn(&mut asking).await;
            }
            tokio::select! {
                () = self.0.refuted.notified() => {
                    asking.refute();
                    self.learn(&mut asking).await;
                }
                () = sleep_until(asking.at.min(Instant::now() + ROUND)) => {}
            }
        }
    }

    async fn learn(&self, asking: &mut Asking<CsrDryRun>) {
        let known = match &asking.last {
            None | Some(Right::Missing) => Guarded::Starting,
            Some(Right::Unguarded(problem)) => Guarded::Not(problem.clone()),
            Some(Right::Guarded) if matches!(self.known(), Guarded::Since(_)) => return,
            // The API server is asked after its refusal, so the time is not too early.
            Some(Right::Guarded) => match authorities::server_time(&asking.dry_run.client).await {
                Ok(Some(now)) => Guarded::Since(now.plus(LATER)),
                unknown => {
                    let error = unknown.err().map(|error| explain(&error));
                    warn!(error, "The API server does not report its time; the hub retries");
                    asking.ask_soon();
                    return;
                }
            },
        };
        self.set(known);
    }

    fn set(&self, now: Guarded) {
        send_news(&self.0.known, now);
    }
}

/// Why the hub does not answer CSRs of OCM's gRPC server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unproven<'d>(pub(super) &'d PolicyProblem);

impl fmt::Display for Unproven<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            PolicyProblem::Missing => f.write_str(
                "the ValidatingAdmissionPolicy addon-signer-grpc-account is not in force, so anyone could change \
                 whom the CSR is for. Install the chart again; the binding must deny",
            ),
            PolicyProblem::Unknown(message) | PolicyProblem::RefusesHub(message) => write!(
                f,
                "the hub cannot tell whether the ValidatingAdmissionPolicy addon-signer-grpc-account is in force. Its \
                 dry run of a change that this policy must refuse ended with: {message}. First check that \
                 the chart has grpcAccount.enabled. If it has and the hub lacks the right `approve` for this signer, \
                 grant it: the dry run of /approval needs it even with `approval: External`. If something else refuses \
                 the dry run, exempt the hub's account from it"
            ),
        }
    }
}

/// Tries to create a CSR in the name of another user.
struct CsrDryRun {
    client: Client,
}

impl PolicyDryRun for CsrDryRun {
    const POLICY: &'static str = POLICY;

    async fn attempt(&self) -> Result<Right, Error> {
        let probe = probe(ANNOTATION_CSR_USER).map_err(|error| Error::Service(Box::new(error)))?;
        let requests: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        dry_run::judge(POLICY, requests.create(&PostParams { dry_run: true, field_manager: None }, &probe).await)
    }

    fn log(&self, right: &Right) {
        match right {
            Right::Guarded => info!("The hub answers CSRs of OCM's gRPC server"),
            Right::Unguarded(problem) => {
                warn!(error = %Unproven(problem), "The hub answers no CSR of OCM's gRPC server");
            }
            Right::Missing => {}
        }
    }
}

/// A CSR with this annotation, which only the policy refuses: the hub's account may make CSRs for this signer name.
pub(super) fn probe(annotation: &str) -> Result<CertificateSigningRequest, BuildError> {
    let rng = SystemRandom::new();
    let (key, _) = PrivateKey::generate(KeyKind::EcdsaP256, &rng)?;
    let request = CsrParams { common_name: NOBODY.to_owned(), ..CsrParams::default() }.sign(&key, &rng)?;
    let metadata = ObjectMeta {
        name: Some(NOBODY.to_owned()),
        annotations: Some([(annotation.to_owned(), NOBODY.to_owned())].into()),
        ..ObjectMeta::default()
    };
    let spec = CertificateSigningRequestSpec {
        signer_name: GATEWAY_SERVING_SIGNER.to_owned(),
        usages: Some(["digital signature", "key encipherment", "server auth"].map(str::to_owned).to_vec()),
        request: ByteString(request.into_bytes()),
        ..CertificateSigningRequestSpec::default()
    };
    Ok(CertificateSigningRequest { metadata, spec, status: None })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use hyper::{Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use crate::dry_run::{ASK_AGAIN, RIGHT_AGE};
    use addon_signer_telemetry::pulse::Pulses;

    const SOON: Duration = Duration::from_millis(1_500);
    const BY_THE_POLICY: &str =
        "ValidatingAdmissionPolicy 'addon-signer-grpc-account' with binding 'b' denied request: no";
    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    /// The refusal of each dry run, if any, and how many dry runs there were.
    type Server = Arc<Mutex<(Option<&'static str>, usize)>>;

    fn answer(server: &Server, request: &Request<Body>) -> Response<Body> {
        let mut answer = Response::builder().header("date", DATE);
        let mut body = json!({});
        if request.method() == hyper::Method::POST {
            assert!(request.uri().query().unwrap().contains("dryRun=All"), "{}", request.uri());
            let mut server = server.lock().unwrap();
            server.1 += 1;
            body = match server.0 {
                None => json!(probe(ANNOTATION_CSR_USER).unwrap()),
                Some(message) => {
                    answer = answer.status(StatusCode::UNPROCESSABLE_ENTITY);
                    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 422,
                            "message": message, "reason": "Invalid" })
                }
            };
        }
        answer.body(Body::from(body.to_string().into_bytes())).unwrap()
    }

    fn mk_guard(refusal: Option<&'static str>) -> (Guard, Server, tokio::task::JoinHandle<()>) {
        let server: Server = Arc::new(Mutex::new((refusal, 0)));
        let asked = Arc::clone(&server);
        let service = tower::service_fn(move |request| {
            let answer = answer(&asked, &request);
            async { Ok::<_, std::convert::Infallible>(answer) }
        });
        let guard = Guard::default();
        let pulse = Pulses::default().start("guard");
        let task = tokio::spawn(guard.clone().keep(Client::new(service, "default"), pulse));
        (guard, server, task)
    }

    async fn pass(time: Duration) {
        tokio::time::timeout(time, std::future::pending::<()>()).await.unwrap_err();
    }

    fn since() -> Guarded {
        Guarded::Since(Timestamp::from_unix(784_111_777 + 5))
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_believed_only_while_policy_refuses_the_dry_run() {
        let (guard, server, task) = mk_guard(None);
        assert_eq!(guard.known(), Guarded::Starting);
        pass(SOON).await;
        assert_eq!(guard.known(), Guarded::Not(PolicyProblem::Missing));
        server.lock().unwrap().0 = Some("admission webhook \"owners\" denied the request: no owner");
        pass(ASK_AGAIN).await;
        assert!(matches!(guard.known(), Guarded::Not(PolicyProblem::Unknown(message)) if message.contains("no owner")));
        server.lock().unwrap().0 = Some(BY_THE_POLICY);
        pass(ASK_AGAIN).await;
        assert_eq!(guard.known(), since());
        server.lock().unwrap().0 = None;
        pass(RIGHT_AGE).await;
        assert_eq!(guard.known(), Guarded::Not(PolicyProblem::Missing));
        task.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn policy_that_failed_a_request_is_retried_with_growing_pauses() {
        let (guard, server, task) = mk_guard(Some(BY_THE_POLICY));
        pass(SOON).await;
        let mut changes = guard.watch();
        for _ in 0..20 {
            assert_eq!(guard.known(), since());
            guard.refute();
            assert_eq!(guard.known(), Guarded::Not(PolicyProblem::Missing));
            changes.wait_for(|known| matches!(known, Guarded::Since(_))).await.unwrap();
        }
        let asked = server.lock().unwrap().1;
        guard.refute();
        pass(ASK_AGAIN / 2).await;
        assert_eq!((guard.known(), server.lock().unwrap().1), (Guarded::Not(PolicyProblem::Missing), asked));
        task.abort();
    }
}
