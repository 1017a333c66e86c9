//! What a command gets, how it ends, and that nothing stays behind.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, set_child_subreaper};
use tempfile::TempDir;

use super::*;

/// How long a test waits for an event.
const SOON: Duration = Duration::from_secs(30);
/// Longer than any test.
const AGES: Duration = Duration::from_secs(3600);

fn identity() -> PeerIdentity {
    PeerIdentity {
        cluster: "cluster1".parse().unwrap(),
        addon: "telemetry".parse().unwrap(),
        agent: "telemetry".parse().unwrap(),
    }
}

/// A command that runs this script of a shell.
fn mk_script(limit: Duration, script: &str) -> OnRenew {
    let command = CommandLine { program: "sh".to_owned(), arguments: vec!["-c".to_owned(), script.to_owned()] };
    OnRenew::new(command, limit, identity(), None)
}

async fn error(limit: Duration, script: &str) -> String {
    mk_script(limit, script).run().await.unwrap_err().to_string()
}

/// Waits for a file with a number of a process in it.
async fn process(file: &Path) -> Pid {
    let read = || fs::read_to_string(file).ok().and_then(|text| text.strip_suffix('\n')?.parse().ok());
    wait("a process", || read().and_then(Pid::from_raw)).await
}

async fn wait<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let polling = async {
        loop {
            match probe() {
                Some(value) => return value,
                None => sleep(Duration::from_millis(10)).await,
            }
        }
    };
    timeout(SOON, polling).await.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

/// `R` for running, `Z` for a zombie; `None` if there is no such process.
fn state(process: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

async fn wait_for_end(process: Pid) {
    wait("the end of a process", || state(process).is_none_or(|state| state == 'Z').then_some(())).await;
}

#[test]
fn a_command_is_split_as_a_shell_splits_it() {
    let words = |text: &str| text.parse::<CommandLine>().map(|line| (line.program, line.arguments));
    let expected = |program: &str, arguments: &[&str]| {
        Ok((program.to_owned(), arguments.iter().map(|word| (*word).to_owned()).collect()))
    };
    assert_eq!(words("systemctl reload nginx"), expected("systemctl", &["reload", "nginx"]));
    assert_eq!(words(r#" sh  -c 'kill -HUP "$1"' \  "" # note"#), expected("sh", &["-c", "kill -HUP \"$1\"", " ", ""]));
    assert_eq!(words("a | b > $c"), expected("a", &["|", "b", ">", "$c"]), "no shell reads it");
    for (text, error) in [
        ("", CommandLineError::Empty),
        (" \n", CommandLineError::Empty),
        ("'' a", CommandLineError::Empty),
        ("a 'b", CommandLineError::Unbalanced),
        ("a \"b", CommandLineError::Unbalanced),
        ("a \\", CommandLineError::Unbalanced),
    ] {
        assert_eq!(words(text), Err(error), "{text:?}");
    }
}

#[tokio::test]
async fn a_command_learns_its_identity_and_little_else() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("environment");
    let script = format!("env > {}", file.display());
    let mut on_renew = mk_script(AGES, &script);
    on_renew.directory = Some("/certificates".into());
    on_renew.run().await.unwrap();
    let text = fs::read_to_string(file).unwrap();
    let shells_own = ["PWD", "SHLVL", "_", "OLDPWD"];
    let variables = text.lines().filter_map(|line| line.split_once('='));
    let variables: Vec<_> =
        variables.filter(|(name, _)| !PASSED_ON.contains(name) && !shells_own.contains(name)).collect();
    let mut sorted = variables.clone();
    sorted.sort_unstable();
    let expected = [
        ("ADDON_SIGNER_ADDON", "telemetry"),
        ("ADDON_SIGNER_CLUSTER", "cluster1"),
        ("ADDON_SIGNER_OUTPUT_DIR", "/certificates"),
    ];
    assert_eq!(sorted, expected);
    let is_left_out = |name: &std::ffi::OsString| PASSED_ON.iter().all(|passed| name != passed);
    assert!(std::env::vars_os().any(|(name, _)| is_left_out(&name)), "there was something to leave out");
}

#[tokio::test]
async fn a_failure_says_how_it_ended_and_the_last_line() {
    assert_eq!(error(AGES, "exit 3").await, "\"sh\" ended with exit code 3");
    let message = error(AGES, "echo one >&2; echo 'no such unit' >&2; echo unread; exit 5").await;
    assert_eq!(message, "\"sh\" ended with exit code 5, after it said: no such unit");
    assert_eq!(error(AGES, "kill -KILL $$").await, "\"sh\" ended with signal 9");
    let command = "/no/such/program".parse().unwrap();
    let message = OnRenew::new(command, AGES, identity(), None).run().await.unwrap_err().to_string();
    assert!(message.starts_with("\"/no/such/program\" cannot be run: No such file"), "{message}");
    mk_script(AGES, "echo only a warning >&2").run().await.unwrap();
}

/// More than a pipe holds.
#[tokio::test]
async fn a_command_that_writes_much_is_read_to_its_end() {
    let message = error(AGES, "head -c 1000000 /dev/zero | tr '\\0' x >&2; echo >&2; echo the cause >&2; exit 1").await;
    assert_eq!(message, "\"sh\" ended with exit code 1, after it said: the cause");
}

#[tokio::test]
async fn a_child_that_stays_is_neither_waited_for_nor_killed() {
    let dir = TempDir::new().unwrap();
    let [go, alive] = ["go", "alive"].map(|name| dir.path().join(name));
    let child = format!("while ! test -e {}; do sleep 0.05; done; touch {}", go.display(), alive.display());
    let message = error(AGES, &format!("({child}) & echo left >&2; exit 1")).await;
    assert_eq!(message, "\"sh\" ended with exit code 1, after it said: left");
    assert!(!alive.exists());
    fs::write(go, "").unwrap();
    wait("a sign of life", || alive.exists().then_some(())).await;
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_killed_with_its_children() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("child");
    let script = format!("echo waiting >&2; sleep 3600 & echo $! > {}; wait", file.display());
    let mut message = error(Duration::from_millis(300), &script).await;
    while !file.exists() {
        message = error(Duration::from_secs(1), &script).await; // this machine was too slow to start the child
    }
    assert!(message.starts_with("\"sh\" did not end within "), "{message}");
    assert!(message.ends_with(" s and was killed, after it said: waiting; see --on-renew-timeout"), "{message}");
    wait_for_end(process(&file).await).await;
}

#[tokio::test]
async fn a_command_whose_run_is_dropped_is_killed_with_its_children() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("child");
    let mut on_renew = mk_script(AGES, &format!("sleep 3600 & echo $! > {}; wait", file.display()));
    let child = tokio::select! {
        ended = on_renew.run() => panic!("it ended: {ended:?}"),
        child = process(&file) => child,
    };
    wait_for_end(child).await;
}

/// As the first process of a container, to which the children of ended processes go.
#[tokio::test]
async fn no_zombies_of_killed_commands_stay() {
    set_child_subreaper(Some(Pid::INIT)).unwrap(); // any number: this process adopts from now on
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("child");
    let mut on_renew = mk_script(AGES, &format!("sleep 3600 & echo $! > {}; wait", file.display()));
    let child = tokio::select! {
        ended = on_renew.run() => panic!("it ended: {ended:?}"),
        child = process(&file) => child,
    };
    wait_for_end(child).await;
    on_renew.command = "true".parse().unwrap();
    let later_runs = async {
        while state(child).is_some() {
            on_renew.run().await.unwrap(); // at the first one its parent may still be ending
        }
    };
    timeout(SOON, later_runs).await.expect("a later run waits for the zombie");
}

#[tokio::test]
async fn a_newer_change_ends_the_pause_after_a_failure() {
    let dir = TempDir::new().unwrap();
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    let script = format!("test -e {0} && touch {1}; touch {0}; test -e {1}", first.display(), second.display());
    let on_renew = mk_script(AGES, &script).with_first_pause(AGES);
    let changes = watch::Sender::new(0);
    let probe = Probe::new(addon_signer_platform::clock::Clock::default());
    let following = on_renew.follow(changes.subscribe(), probe);
    let steps = async {
        assert!(!first.exists(), "nothing has changed");
        changes.send_replace(1);
        wait("the failure", || first.exists().then_some(())).await;
        changes.send_replace(2);
        wait("another run", || second.exists().then_some(())).await;
    };
    tokio::select! {
        never = following => match never {},
        () = steps => {}
    }
}

async fn output(written: &[u8]) -> String {
    let mut last_line = LastLine::default();
    last_line.read(Some(written)).await;
    assert!(last_line.0.len() <= KEPT);
    last_line.output()
}

#[tokio::test]
async fn of_what_was_written_the_last_line_is_said() {
    assert_eq!(output(b"").await, "");
    assert_eq!(output(b" \n\n").await, "");
    assert_eq!(output(b"first\nthe cause \n\n").await, ", after it said: the cause");
    let much = "a line\n".repeat(10_000) + "the cause";
    assert_eq!(output(much.as_bytes()).await, ", after it said: the cause");
}

#[tokio::test]
async fn a_long_line_is_cut_and_odd_characters_are_replaced() {
    let line = output("ä".repeat(300).as_bytes()).await;
    assert_eq!(line, format!(", after it said: {}…", "ä".repeat(256)));
    assert_eq!(output("\u{1b}[31mred\u{202e}\0\rx".as_bytes()).await, ", after it said: ?[31mred???x");
    assert_eq!(output(b"\xff!").await, ", after it said: \u{fffd}!");
}
