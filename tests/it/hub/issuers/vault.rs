//! Vault signs the authorities of a line. It is a real one, so these tests need the real parts.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use addon_signer_api::authority::AuthoritySource;
use addon_signer_core::ca::authority::Authority;
use addon_signer_core::ca::chain::Roots;
use addon_signer_hub::authorities::supply::{ServingSource, Trusted, VaultOptions};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls_pki_types::pem::PemObject;
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::{NAMESPACE, PENDING, change, look, telemetry_of, wait_issued, wait_said};
use crate::hub::lines::{OnServer, issue, rotate};
use crate::hub::mk_served;
use test_kit::frozen::Frozen;
use test_kit::hub::{PATIENCE, RunningHub, RunningHubOptions, wait_ready};
use test_kit::needed::Needed;
use test_kit::pki::{PemPair, TestCa};
use test_kit::real::has_or_skip;
use test_kit::vault::{AUDIENCE, PROGRAM, Vault, token};
use test_kit::{TestHub, wait_until};

const ACCOUNT: [&str; 2] = [NAMESPACE, "addon-signer"];

/// A hub cluster with a signer whose authorities Vault signs; no hub runs yet.
struct World {
    hub: TestHub,
    admin: Client,
    vault: Vault,
    root: String,
    files: TempDir,
}

impl World {
    /// `None` without a real Vault.
    async fn start() -> Option<Self> {
        if !has_or_skip(PROGRAM, Needed::Issuers) {
            return None;
        }
        let hub = TestHub::start().await;
        let vault = Vault::start().await;
        let root = vault.make_root("corporate root").await;
        let admin = mk_served(&hub, telemetry_of(json!({ "type": "Vault", "vault": { "path": "pki" } }))).await;
        vault.let_sign(hub.real()?, "addon-signer", ACCOUNT, "10m").await;
        let files = TempDir::new().unwrap();
        std::fs::write(files.path().join("ca.crt"), vault.ca()).unwrap();
        std::fs::write(files.path().join("token"), token(&admin, ACCOUNT, &[AUDIENCE]).await).unwrap();
        Some(Self { hub, admin, vault, root, files })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    fn options(&self) -> VaultOptions {
        VaultOptions {
            address: self.vault.address().parse().unwrap(),
            ca: self.file("ca.crt"),
            role: "addon-signer".to_owned(),
            auth: "kubernetes".to_owned(),
            token: self.file("token"),
        }
    }

    async fn start_hub(&self, vault: Option<VaultOptions>) -> RunningHub {
        RunningHub::start_with(&self.hub, RunningHubOptions { vault, ..RunningHubOptions::default() }).await
    }

    /// How many certificates Vault has signed, its root included.
    async fn signed(&self) -> usize {
        let all = self.vault.read("pki/certs?list=true", Some(self.vault.root_token())).await.data();
        all["keys"].as_array().unwrap().len()
    }

    async fn pending(&self) -> Secret {
        Api::<Secret>::namespaced(self.admin.clone(), NAMESPACE).get(PENDING).await.unwrap()
    }
}

/// The ids of the keys in these certificates.
fn ids(pem: &[u8]) -> Vec<String> {
    CertificateDer::pem_slice_iter(pem)
        .map(|der| Authority::from_der(&der.unwrap()).unwrap().id().to_string())
        .collect()
}

#[tokio::test]
async fn vault_signs_each_authority_once() {
    let Some(world) = World::start().await else { return };
    let running = world.start_hub(Some(world.options())).await;
    let line = OnServer::client(&world.admin);
    let first = line.wait(&["Active"]).await;
    wait_ready(&world.admin, "telemetry", "True").await;
    issue(&world.hub, &world.admin).await;
    let root = ids(world.root.as_bytes());
    let chain = line.data().await.remove(&format!("{}.crt", first[0])).unwrap().0;
    assert_eq!(ids(&chain), [first.clone(), root].concat());
    assert_eq!(world.signed().await, 2);
    wait_until(PATIENCE, "the second copy of the key to go", async || {
        world.pending().await.data.is_none_or(|data| data.is_empty()).then_some(())
    })
    .await;

    // The hub's session has ended: it logs in again.
    world.vault.configure("sys/leases/revoke-prefix/auth/kubernetes/login", &json!({})).await;
    rotate(&world.admin, "r1").await;
    let both = line.wait(&["Active", "Old"]).await;
    assert_eq!(both[1..], first);
    line.wait_signs(&both).await;
    issue(&world.hub, &world.admin).await;
    assert_eq!(world.signed().await, 3);
    wait_issued(&line, "True", "Every authority").await;
    drop(running);
}

#[tokio::test]
async fn vault_that_does_not_sign_is_said_and_asked_again() {
    let Some(world) = World::start().await else { return };
    let admin = &world.admin;
    let running = world.start_hub(None).await;
    wait_said(admin, "This hub knows no Vault; start it with --vault-address.").await;
    running.stop().await;

    // Whoever accepts connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("https://{}", silent.local_addr().unwrap()).parse().unwrap();
    let running = world.start_hub(Some(VaultOptions { address, ..world.options() })).await;
    wait_said(admin, "as the role addon-signer failed: no answer within 4 seconds; the hub asks again.").await;
    running.stop().await;

    let running = world.start_hub(Some(VaultOptions { role: "another".to_owned(), ..world.options() })).await;
    wait_said(admin, "the login as the role another failed: invalid role name \"another\" (400)").await;
    running.stop().await;

    world.vault.seal().await;
    let running = world.start_hub(Some(world.options())).await;
    let said = wait_said(admin, "Vault is sealed").await;
    let engine = format!("{}/v1/pki", world.vault.address());
    let expected = format!(
        "There is no authority yet. {engine} has not signed an authority: the login as the role addon-signer failed: \
         Vault is sealed (503); the hub asks again."
    );
    assert_eq!(said, expected);
    world.vault.unseal().await;
    let policy = |path: &str| json!({ "policy": format!("path \"{path}\" {{ capabilities = [\"update\"] }}") });
    world.vault.configure("sys/policies/acl/addon-signer", &policy("pki/nothing")).await;
    look(admin, "1").await;
    wait_said(admin, "has not signed an authority: 1 error occurred: * permission denied (403); the hub asks").await;
    std::fs::write(world.file("token"), "no token").unwrap();
    world.vault.configure("sys/leases/revoke-prefix/auth/kubernetes/login", &json!({})).await;
    look(admin, "2").await;
    wait_said(admin, "failed: ").await;
    for (file, why) in [("ca.crt", ": it has no certificate in PEM"), ("token", " cannot be read: No such file")] {
        let path = world.file(file);
        let before = std::fs::read(&path).unwrap();
        if file == "ca.crt" { std::fs::write(&path, "hello") } else { std::fs::remove_file(&path) }.unwrap();
        look(admin, file).await;
        wait_said(admin, &format!("{}{why}", path.display())).await;
        std::fs::write(&path, before).unwrap();
    }
    std::fs::write(world.file("token"), token(admin, ACCOUNT, &[AUDIENCE]).await).unwrap();
    world.vault.configure("sys/policies/acl/addon-signer", &policy("pki/root/sign-intermediate")).await;
    look(admin, "3").await;
    wait_ready(admin, "telemetry", "True").await;
    assert_eq!(world.signed().await, 2);
    drop(running);
}

#[tokio::test]
async fn an_answer_of_vault_that_is_not_used_is_kept() {
    let Some(world) = World::start().await else { return };
    let admin = &world.admin;
    world.vault.configure("sys/mounts/pki/tune", &json!({ "max_lease_ttl": "24h" })).await;
    let running = world.start_hub(Some(world.options())).await;
    let said = wait_said(admin, " is not used: ").await;
    let advice = format!("; if that lasts, delete the Secret {PENDING}, and the hub asks for another one.");
    assert!(said.contains("/v1/pki is not used: ") && said.ends_with(&advice), "{said}");
    running.stop().await;
    let running = world.start_hub(Some(world.options())).await;
    // Another engine first, so that the sentence is that of a hub that has looked.
    for (at, path, said) in [("1", "pki2", "/v1/pki2 has not signed"), ("2", "pki", &*advice)] {
        change(admin, json!({ "authority": { "issuer": { "vault": { "path": path } } } })).await;
        look(admin, at).await;
        wait_said(admin, said).await;
    }
    assert_eq!(world.signed().await, 2, "Vault is not asked again, also by the next hub");

    world.vault.configure("sys/mounts/pki/tune", &json!({ "max_lease_ttl": "87600h" })).await;
    Api::<Secret>::namespaced(admin.clone(), NAMESPACE).delete(PENDING, &Default::default()).await.unwrap();
    wait_ready(admin, "telemetry", "True").await;
    assert_eq!(world.signed().await, 3);

    // Another engine is another issuer: the line goes on while it does not answer.
    change(admin, json!({ "authority": { "issuer": { "vault": { "path": "pki2" } } } })).await;
    let line = OnServer::client(admin);
    rotate(admin, "r1").await;
    wait_issued(&line, "False", "/v1/pki2 has not signed an authority: ").await;
    issue(&world.hub, admin).await;
    drop(running);
}

/// Nobody does anything: the line goes on by itself.
#[tokio::test]
async fn a_vault_that_did_not_answer_is_asked_again_after_its_pause() {
    let Some(world) = World::start().await else { return };
    let admin = &world.admin;
    // A hub whose time has been moved would lose its Lease.
    let options = RunningHubOptions { vault: Some(world.options()), lease: None, ..RunningHubOptions::default() };
    let _running = RunningHub::start_with(&world.hub, options).await;
    let line = OnServer::client(admin);
    line.wait(&["Active"]).await;
    let frozen = Frozen::with_children(world.vault.id());
    rotate(admin, "r1").await;
    // Whether there was no answer, or the hub has looked once more since.
    wait_issued(&line, "False", "/v1/pki has not signed an authority: ").await;
    drop(frozen);
    world.vault.read("sys/seal-status", None).await; // it runs again
    // The pause is that of one engine.
    for (path, said) in [
        ("pki2", "/v1/pki2 has not signed an authority: 1 error occurred: * permission denied (403)"),
        ("pki", "because it did not answer the last time"),
    ] {
        change(admin, json!({ "authority": { "issuer": { "vault": { "path": path } } } })).await;
        wait_issued(&line, "False", said).await;
    }
    issue(&world.hub, admin).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    let both = line.wait(&["Active", "Old"]).await;
    line.wait_signs(&both).await;
}

/// A Vault that lets everybody log in, and never says whether it has signed. Returns its address and CA, and counts.
async fn start_silent() -> (String, String, Arc<AtomicUsize>) {
    let ca = TestCa::named("vault-ca");
    let PemPair { cert, key } = ca.server();
    let chain = CertificateDer::pem_slice_iter(cert.as_bytes()).collect::<Result<_, _>>().unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
        .unwrap();
    let (acceptor, asked) = (TlsAcceptor::from(Arc::new(config)), Arc::<AtomicUsize>::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, count) = (format!("https://{}", listener.local_addr().unwrap()), Arc::clone(&asked));
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let (acceptor, count) = (acceptor.clone(), Arc::clone(&count));
            let answer = move |request: Request<Incoming>| {
                let is_login = request.uri().path() == "/v1/auth/kubernetes/login";
                count.fetch_add(usize::from(!is_login), Ordering::Relaxed);
                async move {
                    if !is_login {
                        std::future::pending::<()>().await;
                    }
                    Ok::<_, Infallible>(Response::new(r#"{"auth":{"client_token":"t"}}"#.to_owned()))
                }
            };
            tokio::spawn(async move {
                let Ok(tls) = acceptor.accept(tcp).await else { return };
                let serving = http1::Builder::new().serve_connection(TokioIo::new(tls), service_fn(answer));
                serving.await.ok(); // the hub ends the connection
            });
        }
    });
    (address, ca.pair().cert, asked)
}

#[tokio::test]
async fn a_vault_that_may_have_signed_is_not_asked_at_once() {
    let hub = TestHub::start().await;
    let (address, ca, asked) = start_silent().await;
    let files = TempDir::new().unwrap();
    std::fs::write(files.path().join("ca.crt"), &ca).unwrap();
    std::fs::write(files.path().join("token"), "a token").unwrap();
    let admin = mk_served(&hub, telemetry_of(json!({ "type": "Vault", "vault": { "path": "pki" } }))).await;
    let vault = Some(VaultOptions {
        address: address.parse().unwrap(),
        ca: files.path().join("ca.crt"),
        role: "addon-signer".to_owned(),
        auth: "kubernetes".to_owned(),
        token: files.path().join("token"),
    });
    let _running = RunningHub::start_with(&hub, RunningHubOptions { vault, ..RunningHubOptions::default() }).await;
    wait_until(PATIENCE, "Vault to be asked", async || (asked.load(Ordering::Relaxed) > 0).then_some(())).await;
    let file = files.path().join("ca.crt");
    for at in ["1", "2"] {
        // Something else in between, so that the sentence is that of a hub that has looked.
        for (content, said) in
            [("hello", "has no certificate in PEM"), (&*ca, "because it did not answer the last time")]
        {
            std::fs::write(&file, content).unwrap();
            look(&admin, &format!("{at} {content:.5}")).await;
            wait_said(&admin, said).await;
        }
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1, "it may have signed");
}

#[tokio::test]
async fn vault_signs_the_gateways_authorities_too() {
    let Some(world) = World::start().await else { return };
    let trusted = Trusted::Root(Some(Roots::from_pem(world.root.as_bytes()).unwrap()));
    let serving_source = ServingSource { source: AuthoritySource::Vault("pki".to_owned()), trusted };
    let options = RunningHubOptions { serving_source, vault: Some(world.options()), ..RunningHubOptions::default() };
    let _running = RunningHub::start_with(&world.hub, options).await;
    let line = OnServer::serving(&world.admin);
    line.wait(&["Active"]).await;
    let anchors = wait_until(PATIENCE, "the anchors", async || line.bundle().await).await;
    let anchors: Vec<_> = anchors.authorities().iter().map(|anchor| anchor.id().to_string()).collect();
    assert_eq!(anchors, ids(world.root.as_bytes()));
}
