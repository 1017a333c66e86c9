//! The roots that agents may trust: whoever runs the hub names them, and nobody else.

use std::time::Duration;

use addon_signer_api::authority::AuthoritySource;
use addon_signer_core::ca::chain::Roots;
use addon_signer_hub::authorities::supply::{ServingSource, Trusted};
use addon_signer_ledger::Location;

use super::put_authority_in;
use super::requested::point;
use crate::cli::{run, write};
use crate::hub::lineages::{OnServer, report};
use crate::hub::mk_served;
use test_kit::company::{CompanyCa, ca_params, chain};
use test_kit::hub::{RunningHub, RunningHubOptions, TIMEOUT, fresh_ledger, telemetry, wait_ready};
use test_kit::{TestHub, wait_until};

const SIGNING: &str = "CSRs for this signer are validated and signed.";
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// A hub whose gateway's authorities come from there, and which may trust these roots.
async fn start(hub: &TestHub, ledger: &Location, source: AuthoritySource, roots: Option<Roots>) -> RunningHub {
    let serving_source = ServingSource { source, trusted: Trusted::Root(roots) };
    let ledger = Some(ledger.clone());
    RunningHub::start_with(hub, RunningHubOptions { serving_source, ledger, ..RunningHubOptions::default() }).await
}

fn secret() -> AuthoritySource {
    AuthoritySource::Secret("serving".to_owned())
}

/// Waits until the report of the gateway's authorities says why one is not used.
async fn wait_not_used(lineage: &OnServer, why: &str) {
    wait_until(TIMEOUT, &format!("the report to say {why:?}"), async || {
        report(lineage).await["notUsed"].as_str().filter(|text| text.contains(why)).map(drop)
    })
    .await;
}

#[tokio::test]
async fn an_import_below_another_root_reaches_no_agent() {
    let (hub, root, other) = (TestHub::start().await, CompanyCa::root(), CompanyCa::root());
    let admin = mk_served(&hub, telemetry()).await;
    let (_dir, ledger) = fresh_ledger();
    let running = start(&hub, &ledger, AuthoritySource::Request, Some(root.roots())).await;
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = write(home.path(), &hub.kubeconfig("ann", &["system:masters"])).display().to_string();
    let ca = async |arguments: &[&str]| {
        run(home.path(), &[&["ca"], arguments, &["--serving", "--kubeconfig", &kubeconfig]].concat()).await
    };
    let csr = wait_until(TIMEOUT, "the CSR", async || {
        let csr = ca(&["csr"]).await;
        (csr.code == 0).then_some(csr.stdout)
    })
    .await;
    let import = async |by: &CompanyCa| {
        let certificate = by.certifies(&point(&csr), &ca_params("Gateway CA", YEAR));
        let file = home.path().join("chain.pem");
        std::fs::write(&file, chain(&[&certificate, &by.der])).unwrap();
        ca(&["import", "--cert", &file.display().to_string(), "--watch"]).await
    };
    let output = import(&other).await;
    assert_eq!(output.code, 1, "{}", output.stderr);
    let both = format!("its root is {}, and --serving-roots names only {}", other.roots(), root.roots());
    assert!(output.stderr.contains(&both), "{}", output.stderr);
    let lineage = OnServer::serving(&admin);
    assert!(lineage.bundle().await.is_none(), "agents trust nothing yet");
    running.stop().await;

    // Whoever runs the hub names both, and then it is used: so one root replaces another.
    let both = Roots::from_pem(chain(&[&root.der, &other.der]).as_bytes()).unwrap();
    let running = start(&hub, &ledger, AuthoritySource::Request, Some(both)).await;
    lineage.wait(&["Active"]).await;
    lineage.wait_bundle(&[other.id()]).await;
    assert_eq!(wait_ready(&admin, "telemetry", "True").await.0, "Signing");
    running.stop().await;
}

/// An installation of a version that did not know `--serving-roots`.
#[tokio::test]
async fn without_named_roots_the_one_that_agents_trust_stays_alone() {
    let (hub, root, other) = (TestHub::start().await, CompanyCa::root(), CompanyCa::root());
    let admin = mk_served(&hub, telemetry()).await;
    let (_dir, ledger) = fresh_ledger();
    put_authority_in(&admin, "serving", &root.authority("Gateway CA 1"), &[], &root).await;
    let lineage = OnServer::serving(&admin);
    let running = start(&hub, &ledger, secret(), None).await;
    let text = format!("its root is {}, and --serving-roots must name each root of agents", root.roots());
    let (reason, message) = wait_ready(&admin, "telemetry", "False").await;
    assert!(message.contains(&text) || reason == "Starting", "{reason}: {message}");
    wait_until(TIMEOUT, "the refusal", async || {
        wait_ready(&admin, "telemetry", "False").await.1.contains(&text).then_some(())
    })
    .await;
    running.stop().await;

    let running = start(&hub, &ledger, secret(), Some(root.roots())).await;
    lineage.wait(&["Active"]).await;
    assert_eq!(wait_ready(&admin, "telemetry", "True").await.0, "Signing");
    running.stop().await;

    let running = start(&hub, &ledger, secret(), None).await;
    let sentence = format!(
        "Agents trust the root {}, which --serving-roots does not name. It must name each root that agents may trust; \
         others are refused.",
        root.roots()
    );
    wait_until(TIMEOUT, "the condition to say it", async || {
        let text = wait_ready(&admin, "telemetry", "True").await;
        (text == ("GatewayRootUnnamed".to_owned(), format!("{SIGNING} {sentence}"))).then_some(())
    })
    .await;
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = write(home.path(), &hub.kubeconfig("ann", &["system:masters"])).display().to_string();
    let checked = run(home.path(), &["check", "--kubeconfig", &kubeconfig]).await;
    for lineage in [
        format!("BAD  gateway's authority: {sentence}\n"),
        format!("BAD  AddOnSigner telemetry: Ready is True, GatewayRootUnnamed: {SIGNING} {sentence}\n"),
    ] {
        assert!(checked.stdout.contains(&lineage), "{lineage}{}", checked.stdout);
    }
    put_authority_in(&admin, "serving", &other.authority("Gateway CA 2"), &[], &other).await;
    let why = format!("and without --serving-roots agents trust no other than {}", root.roots());
    wait_not_used(&lineage, &format!("its root is {}, {why}", other.roots())).await;
    let third = root.authority("Gateway CA 3");
    put_authority_in(&admin, "serving", &third, &[], &root).await;
    wait_until(TIMEOUT, "the third authority to sign", async || {
        (lineage.wait(&["Active"]).await == [third.id()]).then_some(())
    })
    .await;
    lineage.wait_bundle(&[root.id()]).await;
    running.stop().await;
}
