//! The program on a cluster that reaches the hub only through a proxy.

use kube::config::Kubeconfig;

use super::parts::AgentWorld;
use super::program::{run, text};
use test_kit::tunnels::TunnelProxy;

/// Enrols, with these variables; returns what the program says.
async fn enrol(world: &AgentWorld, variables: &[(&str, &str)]) -> String {
    let (kubeconfig, output) = (world.kubeconfig(), world.dir.path().join("certs"));
    let gateway = world.gateway.url();
    let arguments = [
        "--cluster=cluster1",
        "--addon=telemetry",
        "--signer=example.com/telemetry",
        "--once",
        "--gateway",
        &gateway,
        "--hub-kubeconfig",
        kubeconfig.to_str().unwrap(),
        "--output-dir",
        output.to_str().unwrap(),
    ];
    text(&run(world.dir.path(), variables, &arguments).await.stderr)
}

/// HOST:PORT of the API server.
fn api_server(kubeconfig: &Kubeconfig) -> String {
    let server = kubeconfig.clusters[0].cluster.as_ref().unwrap().server.clone().unwrap();
    server.trim_start_matches("https://").trim_end_matches('/').to_owned()
}

#[tokio::test]
async fn environment_proxy_is_used_for_hub_and_gateway() {
    let world = AgentWorld::start().await;
    let proxy = TunnelProxy::start().await;
    let message = enrol(&world, &[("HTTPS_PROXY", &format!("http://{}", proxy.address))]).await;
    assert!(message.contains("Enrolled"), "{message}");
    let hub = api_server(&Kubeconfig::read_from(world.kubeconfig()).unwrap());
    assert!(proxy.was_asked_for(&hub));
    assert!(proxy.was_asked_for(world.gateway.url().trim_start_matches("https://")));
}

#[tokio::test]
async fn what_needs_no_proxy_is_reached_without_it() {
    let world = AgentWorld::start().await;
    let variables = [("HTTPS_PROXY", "http://127.0.0.1:9"), ("NO_PROXY", "127.0.0.0/8,localhost")];
    let message = enrol(&world, &variables).await;
    assert!(message.contains("Enrolled"), "{message}");
}

#[tokio::test]
async fn the_proxy_of_the_kubeconfig_is_for_the_hub_alone() {
    let world = AgentWorld::start().await;
    let proxy = TunnelProxy::start().await;
    let mut kubeconfig = Kubeconfig::read_from(world.kubeconfig()).unwrap();
    let hub = api_server(&kubeconfig);
    kubeconfig.clusters[0].cluster.as_mut().unwrap().proxy_url = Some(format!("http://{}", proxy.address));
    std::fs::write(world.kubeconfig(), serde_saphyr::to_string(&kubeconfig).unwrap()).unwrap();
    let message = enrol(&world, &[("NO_PROXY", "*")]).await;
    assert!(message.contains("Enrolled"), "{message}");
    assert!(proxy.was_asked_for(&hub));
    assert!(!proxy.was_asked_for(world.gateway.url().trim_start_matches("https://")));
}

#[tokio::test]
async fn a_proxy_that_cannot_be_used_is_said_without_its_password() {
    let world = AgentWorld::start().await;
    for (proxy, sentence) in [
        ("https://user:secret@127.0.0.1:9", "the proxy that HTTPS_PROXY names cannot be used"),
        ("http://user:secret@127.0.0.1:9", "the proxy 127.0.0.1:9 did not connect"),
    ] {
        let message = enrol(&world, &[("HTTPS_PROXY", proxy)]).await;
        assert!(message.contains(sentence), "{message}");
        assert!(!message.contains("secret"), "{message}");
    }
}
