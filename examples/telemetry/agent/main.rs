//! An agent that pushes a line every few seconds through addon-signer's gateway. Before that, it asks the backend by
//! gRPC whether it takes pushes. It reads its certificate and the trust bundle again each time, so it notices when they
//! are renewed.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Request, Uri};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

type Failure = Box<dyn Error + Send + Sync>;

const PAUSE: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer that is printed.
const LONGEST: usize = 65_536;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let url = std::env::var("PUSH_URL").map_err(|_| "PUSH_URL is not set: https://GATEWAY/addons/ADDON/PATH")?;
    let certificates = PathBuf::from(std::env::var("CERTIFICATES").map_err(|_| "CERTIFICATES names no directory")?);
    // The first process of a container ends only by signals that it handles; else Kubernetes waits half a minute.
    let mut terminate = signal(SignalKind::terminate())?;
    loop {
        // addon-signer-agent writes the three files at once, after the certificate has proven itself at the gateway.
        if certificates.join("tls.crt").exists() {
            match timeout(TIMEOUT, push(&url, &certificates)).await {
                Ok(Ok(())) => println!("pushed"),
                Ok(Err(error)) => println!("failed: {error}"),
                Err(_) => println!("failed: no answer within {TIMEOUT:?}"),
            }
        }
        tokio::select! {
            () = sleep(PAUSE) => {}
            _ = terminate.recv() => return Ok(()),
        }
    }
}

async fn push(url: &str, certificates: &Path) -> Result<(), Failure> {
    // The files may be replaced between two reads; then key and certificate do not match, and a second read gets both.
    let config = config(certificates).or_else(|_| config(certificates))?;
    takes_pushes(url.parse()?, config.clone()).await?;
    let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http1().build();
    let request = Request::post(url).body(Full::new(Bytes::from("temperature 21.5\n")))?;
    let response = Client::builder(TokioExecutor::new()).build(connector).request(request).await?;
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let problem = Limited::new(response.into_body(), LONGEST).collect().await?.to_bytes();
    Err(format!("{status}: {}", String::from_utf8_lossy(&problem)).into()) // it says why
}

/// Asks the backend by gRPC. The clients of gRPC cannot put anything before a path, so the URL is the gateway's alone.
async fn takes_pushes(push_url: Uri, config: ClientConfig) -> Result<(), Failure> {
    let gateway = push_url.authority().ok_or("PUSH_URL names no gateway")?;
    let origin = Uri::builder().scheme("https").authority(gateway.clone()).path_and_query("/").build()?;
    let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http2().build();
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build(connector);
    let answer = HealthClient::with_origin(client, origin).check(HealthCheckRequest::default()).await;
    match answer.map(|answer| answer.into_inner().status) {
        Ok(status) if status == ServingStatus::Serving as i32 => Ok(()),
        Ok(_) => Err("the backend takes no pushes now".into()),
        Err(status) => Err(format!("the gRPC request failed: {}", status.message()).into()),
    }
}

fn config(certificates: &Path) -> Result<ClientConfig, Failure> {
    let mut roots = RootCertStore::empty();
    for anchor in CertificateDer::pem_file_iter(certificates.join("ca.crt"))? {
        roots.add(anchor?)?;
    }
    let chain = CertificateDer::pem_file_iter(certificates.join("tls.crt"))?.collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_file(certificates.join("tls.key"))?;
    let provider = rustls::crypto::ring::default_provider().into();
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots).with_client_auth_cert(chain, key)?)
}
