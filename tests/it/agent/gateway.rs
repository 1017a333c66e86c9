//! A gateway in tests of the agent, with the crate's own CA.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use addon_signer_core::ca::bundle::Bundle;
use addon_signer_core::ca::issuer::Issuer;
use addon_signer_core::csr::build::CsrParams;
use addon_signer_core::keys::private::PrivateKey;
use addon_signer_core::keys::public::KeyKind;
use addon_signer_core::policy::{self, GatewayRules, Submission};
use addon_signer_platform::clock::Clock;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use ring::rand::SystemRandom;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::parts::{SOON, YEAR, bundle, issue};
use test_kit::wait_until;

/// Which certificates (DER) are meant.
type Which = Box<dyn Fn(&[u8]) -> bool + Send>;

/// How the gateway answers.
pub(super) struct Answers {
    pub(super) refuse: bool,
    pub(super) revoked: Which,
    pub(super) bundle: Bundle,
    /// Whose holders it tells to renew at once.
    pub(super) must_renew: Which,
    acceptor: TlsAcceptor,
    /// Whether it ends each connection without a word.
    pub(super) away: bool,
    /// How many connections there were.
    pub(super) connections: u32,
}

/// An mTLS server with `/v1/whoami` and `/v1/bundle`.
pub(super) struct GatewayStandIn {
    pub(super) answers: Arc<Mutex<Answers>>,
    address: SocketAddr,
    pub(super) task: tokio::task::JoinHandle<()>,
}

impl GatewayStandIn {
    pub(super) async fn start(clients: &Bundle, serving: &Issuer, clock: &Clock) -> Self {
        let acceptor = TlsAcceptor::from(Arc::new(server_config(clients, serving, clock)));
        let answers = Answers {
            refuse: false,
            revoked: Box::new(|_| false),
            bundle: bundle(serving),
            must_renew: Box::new(|_| false),
            acceptor,
            away: false,
            connections: 0,
        };
        let answers = Arc::new(Mutex::new(answers));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(serve(listener, answers.clone()));
        Self { answers, address, task }
    }

    pub(super) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// It has a certificate of this authority from now on.
    pub(super) fn replace(&self, clients: &Bundle, serving: &Issuer, clock: &Clock) {
        let mut answers = self.answers.lock().unwrap();
        answers.acceptor = TlsAcceptor::from(Arc::new(server_config(clients, serving, clock)));
        answers.bundle = bundle(serving);
    }

    /// It gives no answer from now on.
    pub(super) fn stop(&self) {
        self.answers.lock().unwrap().away = true;
    }

    /// Waits until the agent has connected so many times more.
    pub(super) async fn wait_for_connections(&self, more: u32) {
        let connections = || self.answers.lock().unwrap().connections;
        let before = connections();
        wait_until(SOON, "connections", async || (connections() >= before + more).then_some(())).await;
    }
}

async fn serve(listener: TcpListener, answers: Arc<Mutex<Answers>>) {
    loop {
        let (tcp, _) = listener.accept().await.unwrap();
        tcp.set_nodelay(true).unwrap();
        let acceptor = {
            let mut answers = answers.lock().unwrap();
            answers.connections += 1;
            if answers.away {
                continue;
            }
            answers.acceptor.clone()
        };
        // Ignore a failed handshake here: the test of the client sees its error.
        let Ok(tls) = acceptor.accept(tcp).await else { continue };
        let peer = tls.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned();
        let service = hyper::service::service_fn(|request| {
            let answer = answer(&mut answers.lock().unwrap(), &peer, &request);
            std::future::ready(Ok::<_, std::convert::Infallible>(answer))
        });
        // Ignore a client that goes away, for the same reason.
        let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(tls), service).await;
    }
}

fn answer(answers: &mut Answers, peer: &CertificateDer<'_>, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let reply = |status: u16, body: String| Response::builder().status(status).body(Full::from(body)).unwrap();
    if answers.refuse {
        return reply(403, json!({ "status": 403, "detail": "the cluster is not accepted" }).to_string());
    }
    if (answers.revoked)(peer) {
        return reply(403, json!({ "type": "https://addon-signer.io/problems/revoked" }).to_string());
    }
    let tag = format!("\"{}\"", answers.bundle.digest());
    match request.uri().path() {
        "/v1/whoami" => {
            let (_, leaf) = X509Certificate::from_der(peer).unwrap();
            let user = leaf.subject().iter_common_name().next().unwrap().as_str().unwrap();
            reply(200, json!({ "user": user }).to_string())
        }
        "/v1/bundle" if (answers.must_renew)(peer) => {
            let builder = Response::builder().status(304).header("x-addon-signer-renew-within", "0");
            builder.body(Full::default()).unwrap()
        }
        "/v1/bundle" if request.headers().get("if-none-match").is_some_and(|known| known == tag.as_str()) => {
            reply(304, String::new())
        }
        "/v1/bundle" => reply(200, answers.bundle.pem()),
        _ => reply(404, String::new()),
    }
}

fn server_config(clients: &Bundle, serving: &Issuer, clock: &Clock) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = RootCertStore { roots: clients.anchors().to_vec() };
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
    let (certificate, key) = serving_pair(serving, clock);
    ServerConfig::builder_with_details(provider, Arc::new(clock.clone()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate], key.into())
        .unwrap()
}

fn serving_pair(serving: &Issuer, clock: &Clock) -> (CertificateDer<'static>, PrivatePkcs8KeyDer<'static>) {
    let rng = SystemRandom::new();
    let (key, pkcs8) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
    let here = "127.0.0.1".parse().unwrap();
    let wish = CsrParams {
        common_name: policy::GATEWAY_COMMON_NAME.to_owned(),
        ip_addresses: vec![here],
        ..CsrParams::default()
    };
    let rules = GatewayRules {
        account: "gateway".to_owned(),
        dns_names: [].into(),
        ip_addresses: [here].into(),
        duration: YEAR / 2,
    };
    let submission = Submission {
        username: "gateway".to_owned(),
        usages: vec!["server auth".to_owned()],
        request: wish.sign(&key, &rng).unwrap().into_bytes(),
        ..Submission::default()
    };
    let approved = policy::evaluate_gateway(&rules, policy::GatewayCertificate::Serving, &submission).unwrap();
    (issue(serving, approved, clock), PrivatePkcs8KeyDer::from(pkcs8.to_vec()))
}
