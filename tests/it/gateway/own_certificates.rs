//! The gateway's own certificates, which it gets by CertificateSigningRequests on a hub.

use std::sync::Arc;
use std::time::Duration;

use addon_signer_core::policy::GatewayCertificate;
use addon_signer_core::trust::Trust;
use addon_signer_gateway::certificates::{CertificateOrder, ServingNames, is_current, keep_certificate};
use addon_signer_platform::clock::Clock;
use addon_signer_telemetry::pulse::Pulses;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use kube::api::{ListParams, PostParams};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use test_kit::gateway::LOCALHOST;
use test_kit::issue::Ca;
use test_kit::{TestHub, wait_until};

const SIGNER: &str = "addon-signer.io/gateway-serving";
const NAME: &str = "gateway.example";
const STEP: Duration = Duration::from_secs(20);

struct Kept {
    requests: Api<CertificateSigningRequest>,
    clock: Clock,
    trust: watch::Sender<Arc<Trust>>,
    pair: watch::Receiver<Option<Arc<CertifiedKey>>>,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

fn trust_in(anchors: &[&Ca], active: &Ca) -> Arc<Trust> {
    let authorities = anchors.iter().map(|ca| ca.authority().clone()).collect();
    Arc::new(Trust {
        serving_anchors: Some(addon_signer_core::ca::bundle::Bundle::new(authorities).unwrap()),
        serving_active: Some(active.authority().id().clone()),
        ..Trust::default()
    })
}

impl Kept {
    async fn start(hub: &TestHub) -> Self {
        let names = ServingNames { dns: [NAME.to_owned()].into(), ips: [LOCALHOST].into() };
        let wanted = CertificateOrder { certificate: GatewayCertificate::Serving, names };
        let clock = Clock::default();
        let stop = CancellationToken::new();
        let (trust, trust_receiver) = watch::channel(Arc::new(Trust::default()));
        let (out, pair) = watch::channel(None);
        let client = hub.admin().await;
        let requests = Api::all(client.clone());
        let pulse = Pulses::default().start("renewal");
        let keeping = keep_certificate(client, wanted, clock.clone(), trust_receiver, out, stop.clone(), pulse);
        Self { requests, clock, trust, pair, stop, running: tokio::spawn(keeping) }
    }

    /// Waits for an open request and returns it.
    async fn open_request(&self) -> CertificateSigningRequest {
        wait_until(STEP, "a request of the gateway", async || {
            let params = ListParams::default().fields(&format!("spec.signerName={SIGNER}"));
            let open = |request: &CertificateSigningRequest| {
                request.status.as_ref().is_none_or(|status| status.conditions.is_none())
            };
            self.requests.list(&params).await.unwrap().items.into_iter().find(open)
        })
        .await
    }

    async fn decide(&self, mut request: CertificateSigningRequest, decision: &str) -> CertificateSigningRequest {
        let status = serde_json::json!({ "conditions": [
            { "type": decision, "status": "True", "reason": "Because", "message": "it is a test" }
        ]});
        request.status = Some(serde_json::from_value(status).unwrap());
        let name = request.metadata.name.clone().unwrap();
        self.requests.replace_subresource("approval", &name, &PostParams::default(), &request).await.unwrap()
    }

    /// Approves and signs as the hub would.
    async fn sign(&self, request: CertificateSigningRequest, ca: &Ca) {
        let mut request = self.decide(request, "Approved").await;
        let pem = ca.serve(request.spec.request.0.clone(), &[NAME], &[LOCALHOST], self.clock.now());
        request.status.as_mut().unwrap().certificate = Some(ByteString(pem.into_bytes()));
        let name = request.metadata.name.clone().unwrap();
        self.requests.replace_status(&name, &PostParams::default(), &request).await.unwrap();
    }

    async fn next_pair(&mut self) -> Arc<CertifiedKey> {
        timeout(STEP, self.pair.changed()).await.unwrap().unwrap();
        self.pair.borrow_and_update().clone().unwrap()
    }
}

#[tokio::test]
async fn certificate_is_requested_renewed_and_replaced_on_rotation() {
    let hub = TestHub::start().await;
    let mut kept = Kept::start(&hub).await;
    let [first, second] = ["serving"; 2].map(|lineage| Ca::new(lineage, kept.clock.now()));
    kept.trust.send_replace(trust_in(&[&first], &first));
    let request = kept.open_request().await;
    assert!(request.metadata.name.as_ref().unwrap().starts_with("addon-signer-gateway-"));
    assert_eq!(request.spec.usages.as_deref().unwrap(), ["digital signature", "server auth"]);
    kept.sign(request, &first).await;
    let one = kept.next_pair().await;
    assert!(
        first.bundle().verify(&one.cert[0], addon_signer_core::ca::bundle::Purpose::Server, kept.clock.now()).is_ok()
    );
    // 2/3 of the 24 hours have passed.
    kept.clock.advance(Duration::from_secs(17 * 3600));
    let request = kept.open_request().await;
    assert!(!kept.pair.has_changed().unwrap(), "the old pair stays until the new one is complete");
    kept.sign(request, &first).await;
    let two = kept.next_pair().await;
    assert_ne!(one.cert, two.cert);
    // Another authority signs now: the old anchor is still trusted, and the certificate is replaced at once.
    kept.trust.send_replace(trust_in(&[&first, &second], &second));
    let request = kept.open_request().await;
    kept.sign(request, &second).await;
    let three = kept.next_pair().await;
    assert!(
        second
            .bundle()
            .verify(&three.cert[0], addon_signer_core::ca::bundle::Purpose::Server, kept.clock.now())
            .is_ok()
    );
    kept.stop.cancel();
    timeout(STEP, kept.running).await.unwrap().unwrap();
}

#[tokio::test]
async fn certificate_from_fast_clock_is_replaced_once_clock_is_right() {
    const AHEAD: Duration = Duration::from_secs(20 * 3600);
    let hub = TestHub::start().await;
    let mut kept = Kept::start(&hub).await;
    let ca = Ca::new("serving", kept.clock.now());
    kept.trust.send_replace(trust_in(&[&ca], &ca));
    kept.clock.advance(AHEAD);
    let request = kept.open_request().await;
    kept.sign(request, &ca).await;
    let ahead = kept.next_pair().await;
    assert!(is_current(Some(&ahead), kept.clock.now()));
    kept.clock.set_back(AHEAD);
    assert!(!is_current(Some(&ahead), kept.clock.now()), "agents with a right clock refuse it");
    let request = kept.open_request().await;
    kept.sign(request, &ca).await;
    let right = kept.next_pair().await;
    assert!(is_current(Some(&right), kept.clock.now()));
}

#[tokio::test]
async fn a_denied_request_is_kept_and_another_is_made() {
    let hub = TestHub::start().await;
    let mut kept = Kept::start(&hub).await;
    let ca = Ca::new("serving", kept.clock.now());
    kept.trust.send_replace(trust_in(&[&ca], &ca));
    let denied = kept.open_request().await;
    let name = denied.metadata.name.clone().unwrap();
    kept.decide(denied, "Denied").await;
    let again = kept.open_request().await;
    assert_ne!(again.metadata.name.as_ref(), Some(&name));
    assert!(kept.requests.get_opt(&name).await.unwrap().is_some(), "nothing is deleted");
    // A certificate of an authority that agents do not trust is not used either.
    kept.sign(again, &Ca::new("serving", kept.clock.now())).await;
    let third = kept.open_request().await;
    assert!(kept.pair.borrow().is_none());
    kept.sign(third, &ca).await;
    kept.next_pair().await;
}
