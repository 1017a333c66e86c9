//! The program as scripts and people use it: output, exit codes, and one clear sentence for each failure.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use addon_signer_core::ca::bundle::Bundle;
use hyper::Method;
use kube::config::Kubeconfig;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::gateway::backend;
use crate::hub::lineages::issue;
use crate::hub::mk_served;
use crate::people::ca_admin;
use crate::whole::ours::enrolled;
use crate::whole::{active, mk_whole, prepare};
use test_kit::hub::{RunningHub, RunningHubOptions, TIMEOUT, telemetry, wait_ready};
use test_kit::{TestHub, wait_for, wait_until};

pub(crate) struct Output {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs the program without any kubeconfig except one in the arguments.
pub(crate) async fn run(home: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_addon-signer"));
    command.env_clear().env("HOME", home).args(arguments).stdin(Stdio::null());
    let output = wait_for(Duration::from_secs(90), "the program to end", command.output()).await.unwrap();
    Output {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[tokio::test]
async fn output_that_finds_no_room_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_addon-signer"));
    let child = command.arg("crd").stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let output = child.wait_with_output().await.unwrap();
    let why = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{why}");
    assert!(why.contains("the output cannot be written: No space left on device"), "{why}");
}

pub(crate) fn write(home: &Path, kubeconfig: &Kubeconfig) -> PathBuf {
    let file = home.join("kubeconfig");
    std::fs::write(&file, serde_saphyr::to_string(kubeconfig).unwrap()).unwrap();
    file
}

#[tokio::test]
async fn the_limit_of_open_files_is_raised_and_said_if_it_is_too_low() {
    let home = tempfile::tempdir().unwrap();
    let hub = async |flags: &str| {
        let program = env!("CARGO_BIN_EXE_addon-signer");
        let script = format!("ulimit -Sn 100; ulimit -Hn 1000; exec {program} hub --gateway-name localhost {flags}");
        let mut shell = Command::new("sh");
        shell.env_clear().env("HOME", home.path()).arg("-c").arg(script).stdin(Stdio::null());
        let output = tokio::time::timeout(Duration::from_secs(90), shell.output()).await.unwrap().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let low = hub("--kubeconfig nowhere --inventory-listen 127.0.0.1:0").await;
    assert!(low.contains("limit=1000 needed=18624"), "with the inventory's listener: {low}");
    let low = hub("--kubeconfig nowhere").await;
    assert!(low.contains("raise the hard limit on open files"), "{low}");
    assert!(low.contains("limit=1000 needed=17920"), "{low}");
    // 932 files are more than the soft limit that the process began with.
    let enough = hub("--kubeconfig nowhere --gateway-connections 100").await;
    assert!(!enough.contains("open files"), "{enough}");
    assert!(enough.contains("nowhere"), "{enough}");
    let none = hub("--gateway-identity-connections 0").await;
    assert!(none.contains("there must be at least 1"), "{none}");
}

#[tokio::test]
async fn administrator_sees_and_rotates_authorities() {
    let (hub, admin, _whole) = mk_whole("127.0.0.1:9".parse().unwrap()).await;
    let first = test_kit::wait_until(TIMEOUT, "an authority", async || active(&admin).await).await;
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = ca_admin(&hub, home.path()).await;
    let ca = async |arguments: &[&str]| {
        let all: Vec<&str> = ["ca"].iter().chain(arguments).copied().chain(["--kubeconfig", &kubeconfig]).collect();
        run(home.path(), &all).await
    };

    let table = ca(&["status"]).await;
    assert_eq!(table.code, 0, "{}", table.stderr);
    let lines: Vec<&str> = table.stdout.lines().collect();
    assert!(lines[0].starts_with("LINEAGE    AUTHORITY         STATE   NOT AFTER"), "{}", table.stdout);
    assert!(lines[1].starts_with(&format!("telemetry  {first}  Active")), "{}", table.stdout);
    assert!(lines[2].starts_with("(serving)"), "{}", table.stdout);

    let json = ca(&["status", "telemetry", "--output", "json"]).await;
    let reports: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(reports[0]["authorities"][0]["id"], first);
    assert_eq!(reports[0]["authorities"][0]["state"], "Active");

    let bundle = ca(&["bundle", "telemetry"]).await;
    let anchors = Bundle::from_pem(bundle.stdout.as_bytes()).unwrap();
    assert_eq!(anchors.authorities()[0].id().as_str(), first);
    let json = ca(&["bundle", "--serving", "--output", "json"]).await;
    let anchors: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&anchors[0]["state"], anchors.as_array().map(Vec::len)), (&json!("Active"), Some(1)));

    let rotated = ca(&["rotate", "telemetry", "--watch"]).await;
    assert_eq!(rotated.code, 0, "{}", rotated.stderr);
    assert!(
        rotated.stderr.contains(&format!("Requested a rotation of telemetry; {first} is signing for now.")),
        "{}",
        rotated.stderr
    );
    let second = active(&admin).await.unwrap();
    assert_ne!(first, second);
    assert!(rotated.stdout.contains(&second), "{}", rotated.stdout);

    let serving = ca(&["rotate", "--serving"]).await;
    assert_eq!(serving.code, 0, "{}", serving.stderr);

    let unknown = ca(&["rotate", "nobody"]).await;
    assert_eq!((unknown.code, unknown.stdout.as_str()), (1, ""));
    assert!(unknown.stderr.contains("there is no AddOnSigner nobody"), "{}", unknown.stderr);
}

#[tokio::test]
async fn a_rollback_is_requested_and_watched() {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    let running = RunningHub::start_with(&hub, RunningHubOptions { follow: false, ..Default::default() }).await;
    wait_ready(&admin, "telemetry", "True").await;
    let first = wait_until(TIMEOUT, "an authority", async || active(&admin).await).await;
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = ca_admin(&hub, home.path()).await;
    let ca = async |command: &str, more: &[&str]| {
        let arguments = [&["ca", command, "telemetry", "--kubeconfig", &kubeconfig], more].concat();
        run(home.path(), &arguments).await
    };
    let authorities = async || {
        let status: Value = serde_json::from_str(&ca("status", &["--output", "json"]).await.stdout).unwrap();
        let state = |it: &Value| format!("{} {}", it["id"].as_str().unwrap(), it["state"].as_str().unwrap());
        status[0]["authorities"].as_array().unwrap().iter().map(state).collect::<Vec<_>>()
    };
    let nowhere = ca("rollback", &[]).await;
    assert_eq!((nowhere.code, nowhere.stdout.as_str()), (1, ""));
    let sentence = format!("{first} of telemetry cannot be rolled back: no older authority could sign.");
    assert!(nowhere.stderr.contains(&sentence), "{}", nowhere.stderr);

    // The gateway does not learn of the next one, so that it waits.
    assert_eq!(ca("rotate", &[]).await.code, 0);
    let next = wait_until(TIMEOUT, "the next authority", async || {
        authorities().await.into_iter().find_map(|it| it.strip_suffix(" Next").map(str::to_owned))
    })
    .await;
    let dropped = ca("rollback", &["--watch"]).await;
    assert_eq!(dropped.code, 0, "{}", dropped.stderr);
    assert!(
        dropped.stderr.contains(&format!("Asked the hub to drop {next}. {first} keeps signing.")),
        "{}",
        dropped.stderr
    );
    assert_eq!(authorities().await, [format!("{first} Active")]);

    running.follow_once();
    issue(&hub, &admin).await; // so that the first one becomes Old
    assert_eq!(ca("rotate", &[]).await.code, 0);
    wait_until(TIMEOUT, "the second authority to sign", async || {
        running.follow_once();
        active(&admin).await.filter(|active| *active != first)
    })
    .await;
    let back = ca("rollback", &["--watch"]).await;
    assert_eq!(back.code, 0, "{}", back.stderr);
    assert!(back.stderr.contains("Asked the hub to let the previous authority sign again"), "{}", back.stderr);
    let stale = format!("waiting for the last certificate of {first} to expire");
    assert!(!back.stderr.contains(&stale), "it signs now: {}", back.stderr);
    wait_until(TIMEOUT, "the other one to go, which has signed nothing", async || {
        (authorities().await == [format!("{first} Active")]).then_some(())
    })
    .await;
    assert!(back.stdout.contains(&first), "{}", back.stdout);
}

#[tokio::test]
async fn a_person_without_rights_is_told_which_are_missing() {
    let hub = TestHub::start().await;
    if !hub.is_real() {
        eprintln!("skipped: the stand-in has no RBAC");
        return;
    }
    prepare(&hub, "127.0.0.1:9".parse().unwrap(), "24h").await;
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = write(home.path(), &hub.kubeconfig("mallory", &[])).display().to_string();
    let refused = run(home.path(), &["ca", "rotate", "telemetry", "--kubeconfig", &kubeconfig]).await;
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("the AddOnSigner telemetry cannot be read"), "{}", refused.stderr);
    assert!(refused.stderr.contains("forbidden"), "{}", refused.stderr);
    let explain = ["gateway", "explain", "GET", "https://a/", "--cluster", "c1", "--addon", "telemetry"];
    for command in [&["status"][..], &explain] {
        let refused = run(home.path(), &[command, &["--kubeconfig", &kubeconfig]].concat()).await;
        let names_roles = refused.stderr.contains("the ClusterRole addon-signer-viewer with the Role");
        assert!(refused.code == 1 && names_roles, "{}", refused.stderr);
    }
}

#[tokio::test]
async fn wrong_usage_exits_with_two() {
    let home = tempfile::tempdir().unwrap();
    for arguments in [
        &["frobnicate"][..],
        &["hub"],
        &["hub", "--gateway-name", "x", "--gateway-listen", "nowhere"],
        &["hub", "--gateway-name", "x", "--refused-retention", "soon"],
        &["hub", "--gateway-name", "x", "--lease-duration", "0s"],
        &["hub", "--gateway-name", "x", "--lease-duration", "61m"],
        &["hub", "--gateway-name", "x", "--ledger", "ledger.db"],
        &["certs", "verify", "--ledger", "postgres://host/ledger?passwd=x"],
        &["status", "--ledger", "ledger.db"],
        &["ca", "rotate"],
        &["ca", "rotate", "telemetry", "--serving"],
    ] {
        let refused = run(home.path(), arguments).await;
        assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{arguments:?}: {}", refused.stderr);
        assert!(!refused.stderr.is_empty());
    }
}

#[tokio::test]
async fn what_a_gateway_apart_cannot_be_is_said_by_its_flags() {
    let home = tempfile::tempdir().unwrap();
    let gateway = ["hub", "--roles", "gateway", "--gateway-name", "x"];
    for (more, sentence) in [
        (&["--inventory-listen", "127.0.0.1:0"][..], "--inventory-listen needs the role signer"),
        (&[], "--replica must be another name for each gateway"),
        (&["--replica", "a", "--registry-refuse-after", "25h"], "--registry-refuse-after must be at most 24h"),
    ] {
        let refused = run(home.path(), &[&gateway, more].concat()).await;
        assert_eq!(refused.code, 1, "{more:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(sentence), "{more:?}: {}", refused.stderr);
    }
}

#[tokio::test]
async fn a_signer_name_is_refused_where_an_addonsigner_is_meant() {
    let home = tempfile::tempdir().unwrap();
    let name = "example.com/telemetry";
    for arguments in
        [["certs", "list", "--signer", name], ["ca", "status", "--watch", name], ["ca", "rotate", "--watch", name]]
    {
        let refused = run(home.path(), &arguments).await;
        assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{arguments:?}: {}", refused.stderr);
        let sentence =
            "this is a signer name; give the name of the AddOnSigner, which `kubectl get ads` shows beside it";
        assert!(refused.stderr.contains(sentence), "{arguments:?}: {}", refused.stderr);
    }
}

#[tokio::test]
async fn the_crd_and_completions_are_printed() {
    let home = tempfile::tempdir().unwrap();
    let crd = run(home.path(), &["crd"]).await;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/chart/files/crds.yaml");
    assert_eq!((crd.code, crd.stdout), (0, std::fs::read_to_string(file).unwrap()));
    let bash = run(home.path(), &["completions", "bash"]).await;
    assert!(bash.code == 0, "{}", bash.stderr);
    assert!(bash.stdout.contains("addon-signer"), "{}", bash.stderr);
}

/// Starts `addon-signer hub` with the hub's account and these arguments.
async fn start_hub(hub: &TestHub, home: &Path, arguments: &[&str]) -> Child {
    let groups = test_kit::accounts::HUB_GROUPS;
    let kubeconfig = write(home, &hub.kubeconfig(test_kit::accounts::HUB_USER, &groups));
    let mut command = Command::new(env!("CARGO_BIN_EXE_addon-signer"));
    command.env_clear().env("HOME", home).arg("hub").arg("--kubeconfig").arg(kubeconfig).args(arguments).args([
        "--gateway-name=127.0.0.1",
        "--metrics-listen=127.0.0.1:0",
        &format!("--ledger=sqlite://{}/ledger.db", home.display()),
    ]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    crate::whole::serving_anchors(&hub.admin().await).await;
    child
}

/// Ends a process as Kubernetes does; returns what it has written.
async fn terminate(child: Child) -> (String, String) {
    let pid = child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
    let output = tokio::time::timeout(Duration::from_secs(20), child.wait_with_output()).await.unwrap().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    (String::from_utf8(output.stdout).unwrap(), stderr)
}

#[tokio::test]
async fn the_hub_ends_cleanly_on_sigterm() {
    let hub = TestHub::start().await;
    prepare(&hub, "127.0.0.1:9".parse().unwrap(), "24h").await;
    let home = tempfile::tempdir().unwrap();
    let (stdout, stderr) = terminate(start_hub(&hub, home.path(), &["--gateway-listen=127.0.0.1:0"]).await).await;
    // Only decisions go to standard output, and the log for people has none of them.
    let decisions: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(decisions.iter().any(|line| line["event"] == "authority" && line["lineage"] == "(serving)"), "{stdout}");
    assert!(stderr.contains(" INFO "), "{stderr}");
    assert!(!stderr.contains("\"authority\""), "{stderr}");
    let lease = test_kit::lease::leases(&hub.admin().await).get("addon-signer").await.unwrap();
    assert_eq!(lease.spec.unwrap().holder_identity.as_deref(), Some(""), "the next hub need not wait");
}

#[tokio::test]
async fn the_access_log_goes_to_standard_output() {
    let hub = TestHub::start().await;
    let admin = prepare(&hub, backend::start().await, "24h").await;
    let home = tempfile::tempdir().unwrap();
    let gateway = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap(); // free again at once
    let listen = format!("--gateway-listen={gateway}");
    let arguments = [&listen, "--backend-addresses=127.0.0.0/8", "--access-log", "--audit-log=off"];
    let child = start_hub(&hub, home.path(), &arguments).await;
    let pair = enrolled(&hub, &admin, home.path(), "spoke1", gateway).await;
    pair.call(gateway, Method::POST, "/addons/telemetry/api/v1/receive").await.unwrap();
    let (stdout, stderr) = terminate(child).await;
    let calls: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(calls.iter().all(|call| call["event"] == "access"), "{stdout}");
    assert!(calls.iter().any(|call| call["route"] == "default/receive" && call["status"] == 200), "{stdout}");
    assert!(!stderr.contains("default/receive"), "{stderr}");
}

#[tokio::test]
async fn the_audit_log_goes_where_it_is_told_or_nothing_starts() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("audit.log");
    let demo = run(home.path(), &["demo", "--audit-log", file.to_str().unwrap()]).await;
    assert_eq!(demo.code, 0, "{}", demo.stderr);
    let lines: Vec<Value> =
        std::fs::read_to_string(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |event: &str| lines.iter().filter(|line| line["event"] == event).count();
    assert!(of("granted") >= 7, "{lines:?}");
    assert!(of("eligibility") == 1, "{lines:?}");
    assert!(of("refused") == 1, "{lines:?}");
    assert!(of("admitted") <= 30 + 30, "{lines:?}");
    let nowhere = run(home.path(), &["hub", "--gateway-name", "x", "--audit-log", "/no/such/file"]).await;
    assert_eq!(nowhere.code, 1);
    assert!(nowhere.stderr.contains("the audit log /no/such/file cannot be opened"), "{}", nowhere.stderr);
}
