//! How long a certificate takes while the signers are replaced: somebody asks for one each second.

use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::PostParams;
use kube::config::Kubeconfig;
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};
use test_kit::client;
use test_kit::request::mk_csr;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::TIMEOUT;

const PACE: Duration = Duration::from_secs(1);

pub(super) struct Signing {
    task: JoinHandle<(usize, Duration)>,
    stop: CancellationToken,
}

impl Signing {
    /// Asks in turn as the agents of these clusters.
    pub(super) fn start(clusters: Vec<(String, Kubeconfig)>) -> Self {
        let stop = CancellationToken::new();
        Self { task: tokio::spawn(ask_in_turn(clusters, stop.clone())), stop }
    }

    /// How many certificates there were, and the longest time from a request to its certificate. Each must come.
    pub(super) async fn stop(self) -> (usize, Duration) {
        self.stop.cancel();
        self.task.await.unwrap()
    }
}

async fn ask_in_turn(clusters: Vec<(String, Kubeconfig)>, stop: CancellationToken) -> (usize, Duration) {
    let (mut asked, mut paces) = (JoinSet::new(), interval(PACE));
    for (cluster, kubeconfig) in clusters.iter().cycle() {
        if stop.run_until_cancelled(paces.tick()).await.is_none() {
            break;
        }
        asked.spawn(ask(cluster.clone(), kubeconfig.clone()));
    }
    let times = asked.join_all().await;
    (times.len(), times.into_iter().max().unwrap_or_default())
}

async fn ask(cluster: String, kubeconfig: Kubeconfig) -> Duration {
    let requests: Api<CertificateSigningRequest> = Api::all(client(kubeconfig).await);
    let began = Instant::now();
    let name = requests.create(&PostParams::default(), &mk_csr(&cluster, "telemetry")).await.unwrap().name_any();
    let is_certified = |request: Option<&CertificateSigningRequest>| {
        request.and_then(|request| request.status.as_ref()?.certificate.as_ref()).is_some()
    };
    timeout(TIMEOUT, await_condition(requests, &name, is_certified)).await.unwrap().unwrap();
    began.elapsed()
}
