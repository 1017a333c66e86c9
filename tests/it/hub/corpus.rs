//! Creates every CSR of the corpus on an API server, as the user that the case names and on the hub that its
//! fixture describes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use addon_signer_api::ocm;
use addon_signer_core::ca::bundle::{Bundle, Purpose};
use addon_signer_core::csr::CertificateRequest;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::json;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::grpc_account::{self, guard_annotation, wait_believed};
use super::stage::{stage, unstageable};
use crate::requests::{Case, Fixture, Profile, Verdict, corpus};
use test_kit::hub::{
    RunningHub, RunningHubOptions, apply_route, certificate, change_signer, condition, create_signer, deploy,
    telemetry, wait_csr, wait_ready,
};
use test_kit::objects::managed_cluster_addons;
use test_kit::{TestHub, client, crds};

/// Whether the API server itself may refuse a case at creation: Go's parser refuses its encoding (the real server
/// refuses 69 of the corpus; the stand-in refuses fewer, because its parser accepts more), or `expirationSeconds` is
/// below Kubernetes' own minimum. Every case whose only fault is in what it asks for reaches the hub.
fn may_be_refused_at_creation(name: &str, message: &str) -> bool {
    let encoding = ["rule4-", "rule2-common-name-not-", "rule3-duplicate-", "rule3-malformed-", "rule3-name-"];
    let lifetime = ["rule6-lifetime-", "rule6-serving-too-short"];
    let about = |prefixes: &[&str], field: &str| {
        prefixes.iter().any(|prefix| name.starts_with(prefix)) && message.contains(&format!("{field}: Invalid value"))
    };
    about(&encoding, "spec.request") || about(&lifetime, "spec.expirationSeconds")
}

#[derive(Default, Debug)]
struct Outcome {
    signed: Vec<String>,
    denied: Vec<String>,
    at_creation: BTreeMap<String, String>,
    wrong: Vec<String>,
}

#[tokio::test(flavor = "multi_thread")]
async fn every_corpus_request_gets_its_verdict_on_an_api_server() {
    let hub = TestHub::start().await;
    deploy(&hub).await;
    let admin = hub.admin().await;
    if hub.is_real() {
        let rules = serde_json::json!([{ "apiGroups": ["certificates.k8s.io"],
            "resources": ["certificatesigningrequests"], "verbs": ["create"] }]);
        // The hub must refuse the CSRs, not RBAC.
        crds::grant(&admin, "everybody-may-ask", "system:authenticated", rules).await;
    }
    create_signer(&admin, "telemetry", telemetry()).await;
    need_client_certificate(&admin).await;
    let mut by_fixture: BTreeMap<String, (Fixture, Vec<Case>)> = BTreeMap::new();
    for case in corpus() {
        let entry = by_fixture.entry(format!("{:?}", case.fixture)).or_insert((case.fixture, Vec::new()));
        entry.1.push(case);
    }
    let mut outcome = Outcome::default();
    let mut skipped = Vec::new();
    let mut run = Run { hub: &hub, admin: admin.clone(), clients: HashMap::new() };
    let [late, proxied] = [Fixture::GrpcProxyLate, Fixture::GrpcProxy].map(|it| by_fixture.remove(&format!("{it:?}")));
    let options = RunningHubOptions { gateway: Fixture::gateway_rules(), ..RunningHubOptions::default() };
    let running = RunningHub::start_with(&hub, options).await;
    wait_ready(&admin, "telemetry", "True").await;
    for (fixture, cases) in by_fixture.into_values() {
        if let Some(reason) = unstageable(fixture) {
            skipped.extend(cases.iter().map(|case| format!("{}: {reason}", case.name)));
            continue;
        }
        stage(&admin, &running, fixture).await;
        let created = run.create(&cases, &mut outcome).await;
        run.check(created, &running, &mut outcome).await;
    }
    drop(running);
    guard_annotation(&hub, &admin).await;
    let created = run.create(&late.unwrap().1, &mut outcome).await;
    let running = RunningHub::start_with(&hub, grpc_account::options()).await;
    run.check(created, &running, &mut outcome).await;
    stage(&admin, &running, Fixture::GrpcProxy).await;
    wait_believed(&hub, &admin).await;
    let created = run.create(&proxied.unwrap().1, &mut outcome).await;
    run.check(created, &running, &mut outcome).await;
    report(&hub, &outcome, &skipped);
    assert!(outcome.wrong.is_empty(), "{}", outcome.wrong.join("\n"));
    run.nothing_else_is_signed(&outcome).await;
    for (name, message) in &outcome.at_creation {
        assert!(may_be_refused_at_creation(name, message), "{name}: {message}");
    }
    assert!(outcome.at_creation.len() < 80, "most of the corpus reaches the hub");
    assert!(outcome.denied.len() > 180, "most of the corpus reaches the hub");
    assert_eq!(skipped.len(), 3, "{skipped:?}");
}

/// Makes an AddOnRoute that needs the gateway's client certificate, so that the hub has a CA for it.
async fn need_client_certificate(admin: &Client) {
    change_signer(admin, json!({ "spec": { "gateway": { "routesFrom": { "namespaces": ["default"] } } } })).await;
    let tls = json!({ "clusterTrustBundle": "backends", "clientCertificate": true });
    let backend = json!({ "service": { "name": "receive", "port": 443 }, "protocol": "HTTPS", "tls": tls });
    let matching = json!({ "http": [{ "path": "/" }] });
    apply_route(admin, "default", "receive", json!({ "signer": "telemetry", "match": matching, "backend": backend }))
        .await;
}

fn report(hub: &TestHub, outcome: &Outcome, skipped: &[String]) {
    let server = if hub.is_real() { "real API server" } else { "stand-in" };
    let Outcome { signed, denied, at_creation, wrong } = outcome;
    eprintln!(
        "corpus on the {server}: {} signed, {} denied by the hub, {} refused at creation, {} not staged, {} wrong",
        signed.len(),
        denied.len(),
        at_creation.len(),
        skipped.len(),
        wrong.len()
    );
    eprintln!("  at creation: {}", at_creation.keys().cloned().collect::<Vec<_>>().join(" "));
    skipped.iter().for_each(|line| eprintln!("  not staged: {line}"));
}

struct Run<'h> {
    hub: &'h TestHub,
    admin: Client,
    clients: HashMap<(String, Vec<String>), Client>,
}

impl Run<'_> {
    /// Makes the CSRs; returns those that the API server took.
    async fn create(&mut self, cases: &[Case], outcome: &mut Outcome) -> Vec<Case> {
        let mut created = Vec::new();
        for case in cases {
            let api: Api<CertificateSigningRequest> = Api::all(self.impersonate(case).await);
            match api.create(&PostParams::default(), &object(case)).await {
                Ok(_) => created.push(case.clone()),
                Err(error) if matches!(case.verdict, Verdict::Refused { .. }) => {
                    outcome.at_creation.insert(case.name.clone(), error.to_string());
                }
                Err(error) => outcome.wrong.push(format!("{}: not created: {error}", case.name)),
            }
        }
        created
    }

    async fn check(&self, created: Vec<Case>, running: &RunningHub, outcome: &mut Outcome) {
        for case in created {
            let csr = wait_csr(&self.admin, &case.name, "answered", |csr| {
                let answered = certificate(csr).is_some() || condition(csr, "Denied").is_some();
                answered.then(|| csr.clone())
            })
            .await;
            match self.judge(&case, &csr, running).await {
                Ok(()) if certificate(&csr).is_some() => outcome.signed.push(case.name.clone()),
                Ok(()) => outcome.denied.push(case.name.clone()),
                Err(why) => outcome.wrong.push(format!("{}: {why}", case.name)),
            }
        }
    }

    async fn impersonate(&mut self, case: &Case) -> Client {
        let key = (case.username.clone(), case.groups.clone());
        if !self.clients.contains_key(&key) {
            let mut kubeconfig = self.hub.kubeconfig("admin", &["system:masters"]);
            let auth = kubeconfig.auth_infos[0].auth_info.as_mut().unwrap();
            auth.impersonate = Some(case.username.clone());
            auth.impersonate_groups = Some(case.groups.clone());
            self.clients.insert(key.clone(), client(kubeconfig).await);
        }
        self.clients[&key].clone()
    }

    async fn judge(&self, case: &Case, csr: &CertificateSigningRequest, running: &RunningHub) -> Result<(), String> {
        let lifetime = match (&case.verdict, certificate(csr), condition(csr, "Denied")) {
            (Verdict::Refused { reason, .. }, None, Some((text, message))) => {
                let sentence = message.ends_with('.') && !message.is_empty();
                return if text == *reason && sentence { Ok(()) } else { Err(format!("{text}: {message}")) };
            }
            (Verdict::Good { lifetime_seconds }, Some(_), None) => i64::try_from(*lifetime_seconds).unwrap(),
            (_, signed, denied) => return Err(format!("signed: {}, denied: {denied:?}", signed.is_some())),
        };
        let der = CertificateDer::from_pem_slice(certificate(csr).unwrap().as_bytes()).unwrap();
        let (map, purpose) = match case.profile {
            Profile::Client => ("telemetry-client-ca", Purpose::Client),
            Profile::Serving => ("addon-signer-trust", Purpose::Server),
            Profile::GatewayClient => ("addon-signer-backend-trust", Purpose::Client),
        };
        let maps: Api<ConfigMap> = Api::namespaced(self.admin.clone(), "addon-signer");
        let bundle = Bundle::from_pem(maps.get(map).await.unwrap().data.unwrap()["ca.crt"].as_bytes()).unwrap();
        bundle.verify(&der, purpose, running.clock.now()).map_err(|error| error.to_string())?;
        let (_, leaf) = X509Certificate::from_der(&der).unwrap();
        let request = CertificateRequest::from_pem(&case.request).unwrap();
        let times = leaf.validity();
        // A certificate begins 5 minutes before it is issued, an agent's not before its addon was made.
        let addons = managed_cluster_addons(&self.admin, "spoke1").await;
        let made = ocm::created(&addons.get("telemetry").await.unwrap()).unwrap().unix();
        let backdated = times.not_after.timestamp() - lifetime - 300;
        let begins = if case.profile == Profile::Client { backdated.max(made) } else { backdated };
        let same = [
            (leaf.subject().as_raw() == request.subject_der(), "subject"),
            (leaf.public_key().raw == request.public_key_der(), "key"),
            (times.not_before.timestamp() == begins, "lifetime"),
            (!leaf.is_ca(), "role"),
        ];
        same.iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, what)| Err(format!("differs in its {what}")))
    }

    async fn nothing_else_is_signed(&self, outcome: &Outcome) {
        let api: Api<CertificateSigningRequest> = Api::all(self.admin.clone());
        let all = api.list(&ListParams::default()).await.unwrap();
        let signed: BTreeSet<String> =
            all.items.iter().filter(|csr| certificate(csr).is_some()).map(ResourceExt::name_any).collect();
        assert_eq!(signed, outcome.signed.iter().cloned().collect());
    }
}

fn object(case: &Case) -> CertificateSigningRequest {
    let signer_name = match case.profile {
        Profile::Client => "example.com/telemetry",
        Profile::Serving => "addon-signer.io/gateway-serving",
        Profile::GatewayClient => "addon-signer.io/gateway-client",
    };
    CertificateSigningRequest {
        metadata: ObjectMeta {
            name: Some(case.name.clone()),
            labels: Some(case.labels.clone()),
            annotations: Some(case.annotations.clone()),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            signer_name: signer_name.to_owned(),
            usages: Some(case.usages.clone()),
            expiration_seconds: case.expiration_seconds,
            request: ByteString(case.request.clone()),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    }
}
