//! A real Vault on 127.0.0.1, with TLS, that keeps everything in memory. Dropping the value ends it.

use std::fs;
use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::PostParams;
use kube::{Api, Client};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::client;
use super::objects::{create, create_namespace};
use super::pki::{PemPair, TestCa};
use super::process::{Process, free_port};
use super::real::{RealHub, assets};
use super::wait::{PATIENCE, wait_or_explain};

/// The program beside kube-apiserver.
pub const PROGRAM: &str = "vault";
/// The audience of the tokens that log in.
pub const AUDIENCE: &str = "vault";
/// The namespace and the name of the account by which Vault reviews tokens.
const REVIEWER: [&str; 2] = ["vault", "reviewer"];

/// A server that is initialized and unsealed.
pub struct Vault {
    process: Process,
    port: u16,
    ca: TestCa,
    unseal_key: Value,
    root_token: String,
    _dir: TempDir,
}

/// What Vault answered.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Null if there was no body, a string if it was no JSON.
    pub body: Value,
}

impl Answer {
    /// The data of a call that must succeed.
    #[track_caller]
    pub fn data(self) -> Value {
        assert!((200..300).contains(&self.status), "{self:?}");
        self.body.get("data").cloned().unwrap_or_default()
    }
}

impl Vault {
    /// Starts it on a free port, initializes it with one key and unseals it.
    pub async fn start() -> Self {
        let dir = TempDir::new().unwrap();
        let ca = TestCa::named("vault-ca");
        let PemPair { cert, key } = ca.server();
        fs::write(dir.path().join("tls.crt"), cert).unwrap();
        fs::write(dir.path().join("tls.key"), key).unwrap();
        let port = free_port();
        let program = assets().expect("the real parts are there").join(PROGRAM);
        let process = Process::start(&program, &[format!("--listen=127.0.0.1:{port}")], dir.path());
        let mut vault = Self { process, port, ca, unseal_key: Value::Null, root_token: String::new(), _dir: dir };
        let listens = async || vault.try_call(Method::GET, "sys/seal-status", None, None).await.ok(); // asked again
        wait_or_explain(PATIENCE, "Vault to listen", listens, || vault.process.tail()).await;
        let shares = json!({ "secret_shares": 1, "secret_threshold": 1 });
        let Answer { status, body } = vault.call(Method::POST, "sys/init", None, Some(&shares)).await;
        assert_eq!(status, 200, "{body}");
        vault.unseal_key = body["keys"][0].clone();
        vault.root_token = body["root_token"].as_str().unwrap().to_owned();
        vault.unseal().await;
        vault
    }

    /// Its URL without a path.
    pub fn address(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The certificate of the server's CA.
    pub fn ca(&self) -> String {
        self.ca.pair().cert
    }

    /// The token that may do everything.
    pub fn root_token(&self) -> &str {
        &self.root_token
    }

    /// Reads `/v1/<path>`, with a token or without one.
    pub async fn read(&self, path: &str, token: Option<&str>) -> Answer {
        self.call(Method::GET, path, token, None).await
    }

    /// Writes to `/v1/<path>`, with a token or without one.
    pub async fn write(&self, path: &str, token: Option<&str>, body: &Value) -> Answer {
        self.call(Method::POST, path, token, Some(body)).await
    }

    /// Writes with all rights; the call must succeed.
    pub async fn configure(&self, path: &str, body: &Value) -> Value {
        self.write(path, Some(&self.root_token), body).await.data()
    }

    /// Its process, for [`Frozen`](super::frozen::Frozen).
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Forgets the keys: every call but a few is answered with 503.
    pub async fn seal(&self) {
        self.configure("sys/seal", &json!({})).await;
    }

    pub async fn unseal(&self) {
        let answer = self.write("sys/unseal", None, &json!({ "key": self.unseal_key })).await;
        assert_eq!(answer.body["sealed"], false, "{answer:?}");
    }

    /// Mounts `pki` with a root of this name, valid for ten years, and returns its certificate.
    pub async fn make_root(&self, name: &str) -> String {
        let ttl = "87600h";
        self.configure("sys/mounts/pki", &json!({ "type": "pki", "config": { "max_lease_ttl": ttl } })).await;
        let wish = json!({ "common_name": name, "key_type": "ec", "key_bits": 256, "ttl": ttl });
        let root = self.configure("pki/root/generate/internal", &wish).await;
        root["certificate"].as_str().unwrap().to_owned()
    }

    /// Lets an account of the hub log in, as the role `role`, to sign intermediates by that root and do nothing else.
    /// The login lasts for `ttl`, such as `10m`.
    pub async fn let_sign(&self, hub: &RealHub, role: &str, [namespace, account]: [&str; 2], ttl: &str) {
        let admin = client(hub.kubeconfig("admin", &["system:masters"])).await;
        self.believe(hub, &admin).await;
        make_account(&admin, [namespace, account]).await;
        let policy = "path \"pki/root/sign-intermediate\" { capabilities = [\"update\"] }";
        self.configure(&format!("sys/policies/acl/{role}"), &json!({ "policy": policy })).await;
        let bound = json!({
            "bound_service_account_namespaces": [namespace],
            "bound_service_account_names": [account],
            "audience": AUDIENCE,
            "token_policies": [role],
            "token_ttl": ttl,
        });
        self.configure(&format!("auth/kubernetes/role/{role}"), &bound).await;
    }

    /// Enables logins by tokens of this API server, unless they are.
    async fn believe(&self, hub: &RealHub, admin: &Client) {
        let enabled = self.read("sys/auth", Some(&self.root_token)).await.data();
        if enabled.get("kubernetes/").is_some() {
            return;
        }
        make_account(admin, REVIEWER).await;
        let bindings: Api<ClusterRoleBinding> = Api::all(admin.clone());
        let [namespace, name] = REVIEWER;
        let binding = json!({
            "metadata": { "name": "vault-reviewer" },
            "roleRef":
                { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator" },
            "subjects": [{ "kind": "ServiceAccount", "namespace": namespace, "name": name }],
        });
        create(&bindings, binding).await;
        self.configure("sys/auth/kubernetes", &json!({ "type": "kubernetes" })).await;
        let config = json!({
            "kubernetes_host": hub.server("127.0.0.1"),
            "kubernetes_ca_cert": hub.ca().pair().cert,
            "token_reviewer_jwt": token(admin, REVIEWER, &[]).await,
            "disable_local_ca_jwt": true,
        });
        self.configure("auth/kubernetes/config", &config).await;
    }

    async fn call(&self, method: Method, path: &str, token: Option<&str>, body: Option<&Value>) -> Answer {
        self.try_call(method, path, token, body).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// One call on a connection of its own.
    async fn try_call(
        &self,
        method: Method,
        path: &str,
        token: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Answer, Box<dyn std::error::Error>> {
        let socket = TcpStream::connect(("127.0.0.1", self.port)).await?;
        let name = ServerName::try_from("127.0.0.1")?;
        let tls = TlsConnector::from(Arc::new(self.client_config())).connect(name, socket).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(tls)).await?;
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(format!("/v1/{path}")).header("Host", "127.0.0.1");
        if let Some(token) = token {
            request = request.header("X-Vault-Token", token);
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        let answer = sender.send_request(request.body(Full::new(Bytes::from(body)))?).await?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await?.to_bytes();
        let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
        let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap_or_else(|_| text()) };
        Ok(Answer { status, body })
    }

    fn client_config(&self) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.ca().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        builder.with_root_certificates(roots).with_no_client_auth()
    }
}

/// A token of a ServiceAccount for these audiences; without any, for the API server.
pub async fn token(admin: &Client, [namespace, account]: [&str; 2], audiences: &[&str]) -> String {
    let spec = TokenRequestSpec {
        audiences: Some(audiences.iter().map(|audience| (*audience).to_owned()).collect()),
        ..TokenRequestSpec::default()
    };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), namespace);
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await.unwrap();
    answer.status.unwrap().token.unwrap()
}

async fn make_account(admin: &Client, [namespace, account]: [&str; 2]) {
    create_namespace(admin, namespace).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), namespace);
    create(&accounts, json!({ "metadata": { "name": account } })).await;
}
