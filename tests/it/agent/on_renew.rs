//! The command of `--on-renew` runs after each change, sees it, and delays nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use addon_signer_agent::Agent;
use addon_signer_agent::on_renew::OnRenew;
use addon_signer_agent::store::Store;
use addon_signer_core::ca::bundle::Bundle;
use tokio::process::Command;
use tokio::task::AbortHandle;

use super::parts::{AgentWorld, Mood, NAMESPACE, SIGNER, SOON, identity};
use super::program::{run as run_program, text};
use test_kit::built::agent_program;
use test_kit::log::capture;
use test_kit::wait_until;

/// Longer than any test.
const AGES: Duration = Duration::from_secs(3600);

/// A running agent, which ends when this is dropped.
struct RunningAgent(AbortHandle);

impl Drop for RunningAgent {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn run(agent: Agent, on_renew: OnRenew) -> RunningAgent {
    RunningAgent(tokio::spawn(agent.with_on_renew(Some(on_renew)).run()).abort_handle())
}

/// A command that runs this script of a shell in the world's directory, where the agent's files are in `out`.
fn mk_command(world: &AgentWorld, script: &str) -> OnRenew {
    let file = world.dir.path().join("script");
    fs::write(&file, format!("cd {} || exit 9\n{script}\n", world.dir.path().display())).unwrap();
    let command = format!("sh {}", file.display()).parse().unwrap();
    OnRenew::new(command, AGES, identity(), Some(output(world))).with_first_pause(Duration::from_millis(50))
}

fn output(world: &AgentWorld) -> PathBuf {
    world.dir.path().join("out")
}

/// Keeps what it sees: the first run in `run-0`, the next one in `run-1`.
const KEEP: &str = r#"mkdir -p begun && cp "$ADDON_SIGNER_OUTPUT_DIR"/* begun && mv begun run-$(ls -d run-* | wc -l)"#;

/// Certificate and anchors that a run saw, once it has ended.
async fn seen(world: &AgentWorld, run: usize) -> [Vec<u8>; 2] {
    let path = world.dir.path().join(format!("run-{run}"));
    wait_until(SOON, "a run", async || path.exists().then_some(())).await;
    files(&path)
}

fn files(path: &Path) -> [Vec<u8>; 2] {
    ["tls.crt", "ca.crt"].map(|name| fs::read(path.join(name)).unwrap())
}

async fn stored(store: &Store) -> [Vec<u8>; 2] {
    let credentials = store.load().await.unwrap().unwrap();
    [credentials.certificate, credentials.bundle]
}

/// The gateway has two authorities now. Returns their anchors.
fn add_anchor(world: &AgentWorld) -> Bundle {
    let both = world.with_next();
    world.publish(&both);
    world.gateway.answers.lock().unwrap().bundle = both.clone();
    both
}

async fn sees_every_change(world: &AgentWorld, store: impl Fn() -> Store) {
    let running = run(world.agent(store()), mk_command(world, KEEP));
    let first = seen(world, 0).await;
    assert_eq!(first, stored(&store()).await);
    world.make_due();
    let second = seen(world, 1).await;
    assert_ne!(second[0], first[0], "the new certificate is there when the command runs");
    let anchors = add_anchor(world);
    let third = seen(world, 2).await;
    assert_ne!(third[0], second[0]);
    assert_eq!(third[1], anchors.pem().into_bytes());
    assert_eq!(stored(&store()).await, third);
    drop(running);
    let again = run(world.agent(store()), mk_command(world, KEEP));
    assert_eq!(seen(world, 3).await, third, "an earlier process may have ended before it ran the command");
    world.gateway.wait_for_connections(4).await; // some rounds
    assert!(!world.dir.path().join("run-4").exists());
    assert_eq!(world.requests().await.len(), 3);
    drop(again);
}

#[tokio::test]
async fn command_sees_each_change_in_the_directory() {
    let world = AgentWorld::start().await;
    sees_every_change(&world, || Store::directory(output(&world))).await;
}

#[tokio::test]
async fn command_sees_each_change_in_the_copy_of_the_secret() {
    let world = AgentWorld::start().await;
    sees_every_change(&world, || world.secret_store().copied_to(output(&world))).await;
}

#[tokio::test]
async fn a_restarted_pod_gets_its_files_from_the_secret() {
    let world = AgentWorld::start().await;
    world.agent(world.secret_store()).once().await.unwrap();
    let store = || world.secret_store().copied_to(output(&world));
    world.gateway.stop(); // not even the gateway is needed
    let _running = run(world.agent(store()), mk_command(&world, KEEP));
    assert_eq!(seen(&world, 0).await, stored(&store()).await);
    fs::write(output(&world).join("..data/ca.crt"), "damaged").unwrap();
    assert_eq!(seen(&world, 1).await, stored(&store()).await, "the Secret decides");
    assert_eq!(world.requests().await.len(), 1);
}

#[tokio::test]
async fn once_copies_a_good_secret_even_if_the_hub_refuses() {
    let world = AgentWorld::start().await;
    world.agent(world.secret_store()).once().await.unwrap();
    world.make_due();
    world.mood(Mood::Deny);
    world.agent(world.secret_store().copied_to(output(&world))).once().await.unwrap_err();
    assert_eq!(files(&output(&world)), stored(&world.secret_store()).await);
}

#[tokio::test]
async fn a_copy_that_cannot_be_written_is_said_and_tried_again() {
    let (log, _guard) = capture("info");
    let world = AgentWorld::start().await;
    fs::write(output(&world), "not a directory").unwrap();
    let store = || world.secret_store().copied_to(output(&world));
    let error = world.agent(store()).once().await.unwrap_err().to_string();
    assert!(error.starts_with("cannot make the directory"), "{error}");
    let _running = run(world.agent(store()), mk_command(&world, KEEP));
    let sentence = "Cannot copy the stored credentials to the directory";
    wait_until(SOON, "a warning", async || (log.text().matches(sentence).count() >= 3).then_some(())).await;
    fs::remove_file(output(&world)).unwrap();
    assert_eq!(seen(&world, 0).await, stored(&store()).await);
    assert_eq!(world.requests().await.len(), 1);
}

#[tokio::test]
async fn a_failure_is_said_and_tried_again() {
    let (log, _guard) = capture("info");
    let world = AgentWorld::start().await;
    let script = format!("test -e works || {{ echo no luck >&2; exit 3; }}\n{KEEP}");
    let _running = run(world.agent(Store::directory(output(&world))), mk_command(&world, &script));
    let sentence = "The command of --on-renew failed id=cluster1/telemetry/telemetry error=\"sh\" ended with exit code \
                    3, after it said: no luck retry_in=";
    wait_until(SOON, "two warnings", async || (log.text().matches(sentence).count() >= 2).then_some(())).await;
    fs::write(world.dir.path().join("works"), "").unwrap();
    seen(&world, 0).await;
    wait_until(SOON, "the success", async || log.text().contains("Ran the command").then_some(())).await;
}

#[tokio::test]
async fn a_renewal_ends_the_pause_after_a_failure() {
    let world = AgentWorld::start().await;
    let script = format!("test -e failed || {{ touch failed; exit 1; }}\n{KEEP}");
    let on_renew = mk_command(&world, &script).with_first_pause(AGES);
    let store = || Store::directory(output(&world));
    let _running = run(world.agent(store()), on_renew);
    let failed = world.dir.path().join("failed");
    wait_until(SOON, "a failure", async || failed.exists().then_some(())).await;
    world.make_due();
    world.wait_for_requests(2).await;
    assert_eq!(seen(&world, 0).await, stored(&store()).await);
}

#[tokio::test]
async fn a_command_that_hangs_delays_nothing_and_ends_with_us() {
    let world = AgentWorld::start().await;
    let script = "sleep 3600 &\necho $! > begun && mv begun child\nwait";
    let running = run(world.agent(world.secret_store()), mk_command(&world, script));
    let file = world.dir.path().join("child");
    let child = wait_until(SOON, "the command", async || fs::read_to_string(&file).ok()).await;
    let first = stored(&world.secret_store()).await;
    world.make_due();
    wait_until(SOON, "a renewal", async || (stored(&world.secret_store()).await[0] != first[0]).then_some(())).await;
    let anchors = add_anchor(&world).pem().into_bytes();
    wait_until(SOON, "anchors", async || (stored(&world.secret_store()).await[1] == anchors).then_some(())).await;
    assert!(is_running(&child), "it was running all the time");
    drop(running);
    wait_until(SOON, "the command's end", async || (!is_running(&child)).then_some(())).await;
}

/// The program's arguments for this world, and these.
fn arguments(world: &AgentWorld, more: &[&str]) -> Vec<String> {
    let (kubeconfig, directory) = (world.kubeconfig(), output(world));
    let ours = [
        "--cluster=cluster1".to_owned(),
        "--addon=telemetry".to_owned(),
        format!("--signer={SIGNER}"),
        format!("--gateway={}", world.gateway.url()),
        format!("--hub-kubeconfig={}", kubeconfig.display()),
        format!("--output-dir={}", directory.display()),
    ];
    ours.into_iter().chain(more.iter().map(|argument| (*argument).to_owned())).collect()
}

#[tokio::test]
async fn once_waits_for_the_command_and_fails_with_it() {
    let world = AgentWorld::start().await;
    let home = world.dir.path();
    let path = ("PATH", "/usr/local/bin:/usr/bin:/bin");
    let once = async |command: &str| {
        let arguments = arguments(&world, &["--once", "--on-renew", command]);
        run_program(home, &[path], &arguments.iter().map(String::as_str).collect::<Vec<_>>()).await
    };
    let failed = once("sh -c 'echo no such unit >&2; exit 5'").await;
    let message = text(&failed.stderr);
    assert_eq!(failed.status.code(), Some(1), "{message}");
    let sentence = "addon-signer-agent: the stored certificate is good, but the command of --on-renew failed: \"sh\" \
                    ended with exit code 5, after it said: no such unit\n";
    assert!(message.ends_with(sentence), "{message}");
    // Nothing is due any more, but the command has not succeeded yet.
    let file = home.join("arguments");
    let worked = once(&format!("sh -c 'cp \"$ADDON_SIGNER_OUTPUT_DIR/tls.crt\" {}'", file.display())).await;
    let message = text(&worked.stderr);
    assert!(worked.status.success() && message.contains("The stored certificate is valid"), "{message}");
    assert_eq!(fs::read(file).unwrap(), fs::read(output(&world).join("tls.crt")).unwrap());
    assert_eq!(world.requests().await.len(), 1);
    let wrong = once("sh -c 'exit").await;
    let message = text(&wrong.stderr);
    assert!(wrong.status.code() == Some(2) && message.contains("a quotation mark is not closed"), "{message}");
}

#[tokio::test]
async fn the_program_keeps_a_secret_and_its_copy() {
    let world = AgentWorld::start().await;
    let kubeconfig = world.dir.path().join("own.kubeconfig");
    let admin = serde_saphyr::to_string(&world.hub.kubeconfig("admin", &["system:masters"])).unwrap();
    fs::write(&kubeconfig, admin).unwrap();
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let arguments = arguments(&world, &["--once", &kubeconfig, &format!("--secret-namespace={NAMESPACE}")]);
    let once = run_program(world.dir.path(), &[], &arguments.iter().map(String::as_str).collect::<Vec<_>>()).await;
    assert!(once.status.success(), "{}", text(&once.stderr));
    assert_eq!(files(&output(&world)), stored(&world.secret_store()).await);
}

#[tokio::test]
async fn sigterm_ends_the_program_and_its_command() {
    for (once, code) in [(None, 0), (Some("--once"), 1)] {
        let world = AgentWorld::start().await;
        let file = world.dir.path().join("child");
        let script = format!("sh -c 'echo $$ > {0}.new && mv {0}.new {0}; sleep 3600; true'", file.display());
        let mut command = Command::new(agent_program());
        command.args(arguments(&world, &["--on-renew", &script])).args(once).kill_on_drop(true);
        let mut running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let child = wait_until(SOON, "the command", async || fs::read_to_string(&file).ok()).await;
        let number = running.id().unwrap().to_string();
        assert!(Command::new("kill").arg(number).status().await.unwrap().success());
        let ended = tokio::time::timeout(SOON, running.wait()).await.expect("it ends").unwrap();
        assert_eq!(ended.code(), Some(code), "{once:?}");
        wait_until(SOON, "the command's end", async || (!is_running(&child)).then_some(())).await;
    }
}

/// Whether a process with this number runs; a zombie does not.
fn is_running(process: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.trim()));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}
