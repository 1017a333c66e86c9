//! A fleet of five with one cluster of each state, as `addon-signer status` says with the chart's default values.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::Value;
use test_kit::real::RealHub;
use test_kit::request::mk_csr;
use test_kit::{accept_cluster, client, install_addon, objects, wait_until};

use super::lifecycle::check;
use super::soak::addon_signer;
use super::{TIMEOUT, kubectl};

const SPOKES: [&str; 5] = ["spoke1", "spoke2", "spoke3", "spoke4", "spoke5"];
const ROLE: &str = "fleet-of-five";

/// Agents of five clusters come to the installed hub: one is certified, one names a signer that does not exist, one is
/// not accepted, one asks for another cluster's name, and one is revoked. Without inventory and ledger `status` says
/// so, and `helm test` fails for none of them.
pub(super) async fn every_state_is_said(hub: &RealHub, admin: &Client) {
    kubectl(&["create", "clusterrole", ROLE, "--verb=create", "--resource=certificatesigningrequests"]);
    let group = "--group=system:open-cluster-management:managed-clusters";
    kubectl(&["create", "clusterrolebinding", ROLE, &format!("--clusterrole={ROLE}"), group]);
    for spoke in SPOKES {
        match spoke {
            "spoke3" => objects::create_namespace(admin, spoke).await,
            _ => accept_cluster(admin, spoke).await,
        }
        install_addon(admin, spoke, "telemetry").await;
    }
    let mut misnamed = mk_csr("spoke2", "telemetry");
    misnamed.spec.signer_name = "example.com/telemtery".to_owned();
    let good = |spoke| mk_csr(spoke, "telemetry");
    for (spoke, csr) in
        [("spoke1", good("spoke1")), ("spoke2", misnamed), ("spoke4", good("spoke1")), ("spoke5", good("spoke5"))]
    {
        let name = submit(hub, spoke, &csr).await;
        let expected = if spoke == "spoke4" { "Denied" } else { "Approved" };
        if spoke != "spoke2" {
            wait_until(TIMEOUT, "an answer", async || is_decided(admin, &name, expected).await.then_some(())).await;
        }
    }
    wait_reported("spoke5", "Certified", "").await;
    addon_signer(&["certs", "revoke", "--cluster", "spoke5", "--addon", "telemetry"]);
    for (spoke, state, waits_for) in [
        ("spoke1", "Certified", ""),
        ("spoke2", "NoCertificate", "the nearest that exists is example.com/telemetry"),
        ("spoke3", "NotEligible", "a ManagedCluster of that name"),
        ("spoke4", "Refused", "SubjectOfAnotherCluster"),
        ("spoke5", "Revoked", "OCM's agent makes one when its Secret on the cluster is deleted"),
    ] {
        wait_reported(spoke, state, waits_for).await;
    }
    let agents = "-o=jsonpath={.status.agents.summary}";
    let counted = async || (kubectl(&["get", "addonsigner/telemetry", agents]) == "1/4").then_some(());
    wait_until(TIMEOUT, "the count of agents", counted).await;
    let checked = check();
    let line = "?    addons on clusters: 3 of 4 have no valid certificate or had their last CSR refused: ";
    assert!(checked.contains(line) && checked.contains("Phase:          Succeeded"), "{checked}");
    clear();
}

async fn submit(hub: &RealHub, spoke: &str, csr: &CertificateSigningRequest) -> String {
    let of_cluster = format!("system:open-cluster-management:{spoke}");
    let groups = [&*of_cluster, "system:open-cluster-management:managed-clusters"];
    let agent = client(hub.kubeconfig(&format!("{of_cluster}:a1"), &groups)).await;
    let made = Api::<CertificateSigningRequest>::all(agent).create(&PostParams::default(), csr).await.unwrap();
    made.metadata.name.unwrap()
}

async fn is_decided(admin: &Client, name: &str, decision: &str) -> bool {
    let csr = Api::<CertificateSigningRequest>::all(admin.clone()).get(name).await.unwrap();
    let conditions = csr.status.and_then(|status| status.conditions).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == decision)
}

async fn wait_reported(spoke: &str, state: &str, waits_for: &str) {
    wait_until(TIMEOUT, &format!("{spoke} to be {state}"), async || {
        let rows = addon_signer(&["status", "--output", "json", "--cluster", spoke]);
        let rows: Vec<Value> = serde_json::from_str(&rows).unwrap();
        let message = rows[0]["waitsFor"].as_str().unwrap_or_default();
        (rows.len() == 1 && rows[0]["state"] == state && message.contains(waits_for)).then_some(())
    })
    .await;
}

fn clear() {
    kubectl(&["delete", "csr", "--all"]);
    for spoke in SPOKES {
        kubectl(&["delete", "managedclusteraddon", "-n", spoke, "telemetry"]);
        kubectl(&["delete", "managedcluster", spoke, "--ignore-not-found"]);
    }
    kubectl(&[&["delete", "namespace"], &SPOKES[..]].concat());
    kubectl(&["delete", &format!("clusterrole/{ROLE}"), &format!("clusterrolebinding/{ROLE}")]);
}
