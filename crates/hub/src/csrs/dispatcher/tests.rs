//! Tests which waiting CSRs the dispatcher checks when eligibility changes, on a clock that the test moves.

use std::convert::Infallible;

use hyper::{Request, Response, StatusCode};
use kube::client::Body;
use kube::runtime::events::Recorder;
use rustls_pki_types::CertificateDer;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::authorities::state::LineageState;
use crate::conditions::reporter;
use crate::csrs::signer::{ClusterLimits, SignerKind, SignerShared};
use crate::csrs::unconfirmed::Unconfirmed;
use crate::lease;
use crate::links::mk_links;
use addon_signer_api::ocm::AddOnApi;
use addon_signer_core::ca::issuer::Issued;
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::policy::{GatewayCertificate, GatewayRules};
use addon_signer_core::rate::Rate;
use addon_signer_telemetry::pulse::Pulses;

const SIGNER: &str = "example.com/telemetry";

/// A server that never ends a list and has none of the CSRs. It reports which CSRs it is asked for.
fn mk_client() -> (Client, mpsc::UnboundedReceiver<String>) {
    let (asked, reads) = mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: Request<Body>| {
        let asked = asked.clone();
        async move {
            let path = request.uri().path();
            let Some((_, name)) = path.split_once("/certificatesigningrequests/") else {
                return std::future::pending().await;
            };
            asked.send(name.to_owned()).unwrap();
            let gone = Body::from(br#"{"kind":"Status","code":404,"reason":"NotFound"}"#.to_vec());
            Ok::<_, Infallible>(Response::builder().status(StatusCode::NOT_FOUND).body(gone).unwrap())
        }
    });
    (Client::new(service, "default"), reads)
}

fn mk_signer(client: &Client) -> Signer {
    let rules = GatewayRules {
        account: "hub".to_owned(),
        dns_names: Default::default(),
        ip_addresses: Default::default(),
        duration: LATE,
    };
    let shared = SignerShared {
        links: mk_links(client.clone(), lease::channel().1),
        addons: AddOnApi::V1Beta1.into(),
        retention: LATE,
        accounts: KnownAccounts::default(),
        recorder: Recorder::new(client.clone(), reporter()),
        limits: Arc::new(ClusterLimits::new(Rate { burst: 1, interval: LATE })),
    };
    let lineage = watch::channel(LineageState::Starting).1;
    let (reserve, _) = mpsc::channel(1);
    let kind = SignerKind::Gateway { certificate: GatewayCertificate::Serving, rules, inventory: None };
    Signer { kind, shared, lineage: lineage.clone(), reserve, serving: lineage, unconfirmed: Unconfirmed::default() }
}

/// A dispatcher with two waiting CSRs of each of two clusters.
fn mk_dispatcher(client: &Client) -> (Dispatcher, Signing, EligibilityWatch) {
    let eligibility = EligibilityWatch::default();
    let links = DispatcherLinks {
        eligibility: eligibility.clone(),
        forbidden: mpsc::channel(1).0,
        foreign: watch::channel(ForeignReport::new()).0,
        newest: Arc::default(),
    };
    let (mut dispatcher, signing) = Dispatcher::new(client, Clock::default(), KnownAccounts::default(), links);
    let served = ServedSigner { signer: Arc::new(mk_signer(client)), stop: CancellationToken::new() };
    dispatcher.served.insert(SIGNER.to_owned(), served);
    for name in ["spoke1-a", "spoke1-b", "spoke2-a", "spoke2-b"] {
        let mut csr = CertificateSigningRequest::default();
        csr.metadata.name = Some(name.to_owned());
        csr.spec.signer_name = SIGNER.to_owned();
        csr.spec.username = Some(format!("system:open-cluster-management:{}:agent", &name[..6]));
        dispatcher.known.put(name, &action::tenant_of(&csr, &KnownAccounts::default()), csr);
        let request = dispatcher.known.get_mut(name).unwrap();
        request.waits = true;
        request.object = None; // so that each check asks the API server
    }
    (dispatcher, signing, eligibility)
}

/// Its task might begin after the watch has shown the certificate, when nothing is known of it any more.
#[tokio::test(start_paused = true)]
async fn a_csr_that_was_just_published_begins_no_work() {
    let (client, _reads) = mk_client();
    let (mut dispatcher, ..) = mk_dispatcher(&client);
    let mut csr = CertificateSigningRequest::default();
    csr.metadata.name = Some("spoke1-a".to_owned());
    csr.metadata.uid = Some("1".to_owned());
    csr.spec.signer_name = SIGNER.to_owned();
    dispatcher.known.put("spoke1-a", "t", csr.clone());
    let signer = Arc::clone(&dispatcher.served[SIGNER].signer);
    let now = signer.shared.links.clock.now();
    let issued = Issued {
        certificate: CertificateDer::from(vec![1]),
        serial: Serial::from_hex(&"1".repeat(40)).unwrap(),
        issuer: "0123456789abcdef".into(),
        not_before: now,
        not_after: now,
    };
    signer.unconfirmed.remember(&csr, &issued, now);
    signer.unconfirmed.mark_published(&csr, now);
    for begun in [0, 1] {
        dispatcher.queue.wake("spoke1-a", "t");
        dispatcher.start_work();
        assert_eq!(dispatcher.work.len(), begun);
        signer.unconfirmed.forget(&csr);
    }
}

#[tokio::test(start_paused = true)]
async fn eligibility_change_rechecks_requests_of_that_cluster_only() {
    let (client, mut reads) = mk_client();
    let (dispatcher, _signing, eligibility) = mk_dispatcher(&client);
    eligibility.all_changed();
    eligibility.next().await; // from now on clusters are named
    let _running = AbortOnDropHandle::new(tokio::spawn(dispatcher.run(Pulses::default().start("requests"))));
    let change = |cluster: &str| eligibility.changed([cluster.parse().unwrap()].into_iter());
    assert_eq!(checked(&mut reads).await, [""; 0], "nothing has changed");
    change("spoke3");
    assert_eq!(checked(&mut reads).await, [""; 0]);
    change("spoke1");
    assert_eq!(checked(&mut reads).await, ["spoke1-a", "spoke1-b"]);
    change("spoke1");
    assert_eq!(checked(&mut reads).await, [""; 0], "they do not wait any more");
    change("spoke2");
    assert_eq!(checked(&mut reads).await, ["spoke2-a", "spoke2-b"]);
}

#[tokio::test(start_paused = true)]
async fn completed_registry_rechecks_all_waiting_requests() {
    let (client, mut reads) = mk_client();
    let (dispatcher, _signing, eligibility) = mk_dispatcher(&client);
    let _running = AbortOnDropHandle::new(tokio::spawn(dispatcher.run(Pulses::default().start("requests"))));
    assert_eq!(checked(&mut reads).await, [""; 0]);
    eligibility.changed(std::iter::once("spoke1".parse().unwrap()));
    let all = ["spoke1-a", "spoke1-b", "spoke2-a", "spoke2-b"];
    assert_eq!(checked(&mut reads).await, all, "nobody has taken what changed before");
}

/// The CSRs that the dispatcher checks until it is idle, sorted.
async fn checked(reads: &mut mpsc::UnboundedReceiver<String>) -> Vec<String> {
    let mut names = Vec::new();
    while let Ok(name) = tokio::time::timeout(2 * LAST_LIMITED, reads.recv()).await {
        names.extend(name);
    }
    names.sort();
    names
}
