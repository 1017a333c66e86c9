//! Kubeconfigs, which others may write where an agent reads them: whatever is accepted makes a client, and neither that
//! nor its first call panics. No program runs, and nobody is called.
#![no_main]

use std::sync::LazyLock;

use addon_signer_platform::contacts::Contacts;
use addon_signer_platform::crypto;
use addon_signer_platform::kubeconfig::{Access, Plugins, find};
use addon_signer_platform::kubernetes::connected;
use futures::FutureExt;
use http::Request;
use kube::client::{Body, ConfigExt};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tower::{ServiceBuilder, ServiceExt, service_fn};

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    crypto::install_provider();
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
});
static HOME: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a directory"));

fuzz_target!(|bytes: &[u8]| {
    let file = HOME.path().join("config");
    std::fs::write(&file, bytes).expect("a file");
    RUNTIME.block_on(async {
        for plugins in [Plugins::Run, Plugins::Refuse] {
            let access = Access { kubeconfig: Some(file.clone()), context: None };
            let Ok(found) = find(&access, plugins).await else { continue };
            assert!(!found.target.to_string().contains(char::is_control), "it is printed");
            if plugins == Plugins::Run {
                continue; // the client would run the program
            }
            if connected(&access, plugins, Contacts::default()).await.is_ok() {
                call(&found.config);
            }
        }
    });
});

/// The layers of a client above its connections.
fn call(config: &kube::Config) {
    let answering = service_fn(|request: Request<Body>| async move {
        assert!(request.uri().host().is_some(), "{}", request.uri());
        Ok::<_, std::convert::Infallible>(())
    });
    let Ok(headers) = config.extra_headers_layer() else { return };
    let layers = ServiceBuilder::new().layer(config.base_uri_layer()).layer(headers).service(answering);
    let request = Request::get("/api/v1/namespaces?limit=1").body(Body::empty()).expect("a request");
    layers.oneshot(request).now_or_never().expect("no connection is made").ok();
}
