//! Nodes with IPv4, with IPv6 and with both: what the chart renders for each.

use std::collections::BTreeSet;

use ipnet::IpNet;
use serde_json::{Value, json};

use super::on_api_server::prepared;
use super::{items, name, of_kind};
use test_kit::deploy::{everything, file, installed, params, patch};

const FAMILIES: [&str; 3] = ["ipv4", "ipv6", "both-families"];

/// The objects that depend on the families.
fn rendered(families: &str) -> Vec<Value> {
    file(&format!("tests/golden/chart/{families}.yaml"))
}

/// What the flags for listening say of each pod, without the port.
fn listens(objects: &[Value]) -> BTreeSet<&str> {
    let deployments = of_kind(objects, "Deployment").into_iter();
    let containers = deployments.flat_map(|deployment| items(deployment, "/spec/template/spec/containers"));
    let arguments = containers.flat_map(|container| items(container, "/args"));
    let addresses = arguments.filter_map(|argument| argument.as_str()?.split_once("-listen="));
    addresses.map(|(_, address)| address.rsplit_once(':').unwrap().0).collect()
}

fn gateway_service(objects: &[Value]) -> &Value {
    &of_kind(objects, "Service").into_iter().find(|service| name(service) == "addon-signer-gateway").unwrap()["spec"]
}

/// The networks that policies name.
fn networks(objects: &[Value]) -> Vec<IpNet> {
    let rules = of_kind(objects, "NetworkPolicy").into_iter().flat_map(|policy| {
        [("/spec/egress", "/to"), ("/spec/ingress", "/from")]
            .into_iter()
            .flat_map(|(rules, peers)| items(policy, rules).into_iter().flat_map(move |rule| items(rule, peers)))
    });
    rules.filter_map(|peer| peer.pointer("/ipBlock/cidr")?.as_str()?.parse().ok()).collect()
}

#[test]
fn defaults_serve_nodes_of_either_family() {
    for objects in [installed(), everything()] {
        assert_eq!(listens(&objects), ["[::]"].into());
        assert_eq!(networks(&objects), [], "a policy that names addresses names a family");
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            assert_eq!(gateway_service(&objects).get(field), None, "the cluster decides");
        }
    }
    assert_eq!(listens(&file("deploy/agent.yaml")), [].into());
}

#[test]
fn values_choose_the_families() {
    let [v4, v6, both] = FAMILIES.map(rendered);
    assert_eq!([&v4, &v6, &both].map(|objects| listens(objects)), [["0.0.0.0"], ["[::]"], ["[::]"]].map(Into::into));
    let families = [&v4, &v6, &both].map(|objects| gateway_service(objects)["ipFamilies"].clone());
    assert_eq!(families, [json!(["IPv4"]), json!(["IPv6"]), json!(["IPv6", "IPv4"])]);
    assert_eq!(gateway_service(&both)["ipFamilyPolicy"], "PreferDualStack");
    assert_eq!(gateway_service(&v6)["loadBalancerSourceRanges"], json!(["2001:db8:2::/48"]));
    // DNS at a node, the API server, backends, the database.
    let addresses = ["fd00:90::a/128", "2001:db8:4::1/128", "2001:db8:1::/64", "2001:db8:3::5/128"];
    assert_eq!(networks(&v6), addresses.map(|address| address.parse().unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn api_server_with_both_families_takes_each_choice() {
    let Some((_hub, admin)) = prepared().await else { return };
    let dry_run = params().dry_run();
    for families in FAMILIES {
        for object in rendered(families) {
            let taken = patch(&admin, &object, &dry_run).await;
            taken.unwrap_or_else(|error| panic!("{families}, {}: {error}", name(&object)));
        }
    }
}
