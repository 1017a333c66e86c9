//! A password in a flag, a variable or a kubeconfig is in nothing that the programs print, wherever in a URL it is and
//! whatever is wrong with that URL.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures::{StreamExt, stream};
use tokio::process::Command;

use test_kit::built::agent_program;

/// Parts of the passwords below, also of those that are written with %XX.
const PARTS: [&str; 2] = ["3cr3t", "w0rd"];

/// URLs of a ledger with a password in each position. Nothing listens on 127.0.0.1:1.
const LEDGERS: [&str; 45] = [
    "postgres://me:s3cr3t@127.0.0.1:1/db",
    "postgres://me:s3cr3t@127.0.0.1:1/db\n",
    "postgres://me:%733cr3t@127.0.0.1:1/db",
    "postgres://me:s3cr3t%ZZ@127.0.0.1:1/db",
    "postgres://me:s3cr3t%ff@127.0.0.1:1/db",
    "postgres://me%3As3cr3t%40127.0.0.1:1/db",
    "postgres://me:s3cr3t@w0rd@127.0.0.1:1/db",
    "postgres://me:s3cr3t/w0rd@127.0.0.1:1/db",
    "postgres://me:12/s3cr3t@127.0.0.1/db",
    "postgres://me:s3cr3t?w0rd@127.0.0.1:1/db",
    "postgres://me:12?s3cr3t@127.0.0.1/db",
    "postgres://me:s3cr3t#w0rd@127.0.0.1:1/db",
    "postgres://me:12#s3cr3t@127.0.0.1/db",
    "postgres://me:s3cr3t w0rd@127.0.0.1:1/db",
    "postgres://me:s3cr3t\\w0rd@127.0.0.1:1/db",
    "postgres://me:s3cr3t:w0rd@127.0.0.1:1/db",
    "postgres://me:s3cr3t@127.0.0.1:99999/db",
    "postgres://me:s3cr3t@127.0.0.1:port/db",
    "postgres://me:s3cr3t@127.0.0.1:/db",
    "postgres://me:s3cr3t@[::1/db",
    "postgres://me:s3cr3t@[bad]/db",
    "postgres://me:s3cr3t",
    "postgres://me:s3cr3t/db",
    "postgres:///me:s3cr3t@127.0.0.1/db",
    "postgres:/me:s3cr3t@127.0.0.1:1/db",
    "postgres:me:s3cr3t@127.0.0.1:1/db",
    "postgres//me:s3cr3t@127.0.0.1:1/db",
    "POSTGRES://me:s3cr3t@127.0.0.1:1/db",
    "postgress://me:s3cr3t@127.0.0.1:1/db",
    " postgres://me:s3cr3t@127.0.0.1:1/db",
    "'postgres://me:s3cr3t@127.0.0.1:1/db'",
    "postgres://127.0.0.1:1/db?user=me&password=s3cr3t",
    "postgres://127.0.0.1:1/db?password=s3cr3t&w0rd",
    "postgres://127.0.0.1:1/db?password=s3cr3t&sslmode=w0rd",
    "postgres://127.0.0.1:1/db?password=s3cr3t#w0rd",
    "postgres://127.0.0.1:1/db?passwd=s3cr3t",
    "postgres://127.0.0.1:1/db?pass%77ord=s3cr3t&port=w0rd",
    "postgres://127.0.0.1:1/db?host=me:s3cr3t@127.0.0.1",
    "postgres://127.0.0.1:1/db?dbname=me:s3cr3t@w0rd",
    "mysql://me:s3cr3t@127.0.0.1/db",
    "me:s3cr3t@127.0.0.1/db",
    "sqlite://me:s3cr3t@127.0.0.1/db",
    "sqlite:///me:s3cr3t@127.0.0.1/db",
    "sqlite:///no/such.db?password=s3cr3t",
    "sqlite:///no/such.db#s3cr3t",
];

/// URLs of a proxy likewise.
const PROXIES: [&str; 16] = [
    "http://me:s3cr3t@127.0.0.1:1",
    "me:s3cr3t@127.0.0.1:1",
    "http://me:s3cr3t@w0rd@127.0.0.1:1",
    "http://me:s3cr3t/w0rd@127.0.0.1:1",
    "http://me:s3cr3t?w0rd@127.0.0.1:1",
    "http://me:s3cr3t#w0rd@127.0.0.1:1",
    "http://me:s3cr3t w0rd@127.0.0.1:1",
    "http://me%3As3cr3t%40127.0.0.1:1",
    "http://me:s3cr3t%ZZ@127.0.0.1:1",
    "http://me:s3cr3t@127.0.0.1:port",
    "http://me:s3cr3t@[bad",
    "http://me:s3cr3t",
    "http:/me:s3cr3t@127.0.0.1:1",
    "https://me:s3cr3t@127.0.0.1:1",
    "socks5://me:s3cr3t@127.0.0.1:1",
    "http://127.0.0.1:1/?password=s3cr3t",
];

/// Kubeconfigs that are not what they must be, near a password, a token or a key.
const KUBECONFIGS: [&str; 5] = [
    "clusters: [{ name: c, cluster: { proxy-url: 'http://me:s3cr3t@w0rd', insecure-skip-tls-verify: x } }]",
    "users:\n- name: u\n  user: { token: s3cr3t,\n    tokenFile: [w0rd] }",
    "users:\n- name: u\n  user: { client-key-data: s3cr3t } }",
    "users: s3cr3t",
    "current-context: c\nclusters:\n- cluster: { proxy-url: [http://me:s3cr3t@w0rd",
];

/// A run of a program.
struct SecretRun {
    program: PathBuf,
    arguments: Vec<OsString>,
    variables: Vec<(&'static str, OsString)>,
}

impl SecretRun {
    fn hub(arguments: &str) -> Self {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_addon-signer"));
        Self { program, arguments: arguments.split_whitespace().map(OsString::from).collect(), variables: Vec::new() }
    }

    fn agent(arguments: &str) -> Self {
        let fixed = "--cluster c --addon a --signer example.com/a --output-dir certs --once";
        Self { program: agent_program(), ..Self::hub(&format!("{fixed} {arguments}")) }
    }

    fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    fn variable(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    /// Runs the program with all its logs, and checks that it fails, or succeeds, and prints no part of a password.
    async fn check(self, home: &Path, succeeds: bool) {
        let mut command = Command::new(&self.program);
        command.env_clear().env("HOME", home).env("RUST_LOG", "trace").current_dir(home).stdin(Stdio::null());
        command.args(&self.arguments).envs(self.variables.iter().map(|(name, value)| (name, value)));
        let output = tokio::time::timeout(Duration::from_secs(90), command.output()).await.unwrap().unwrap();
        let message = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        let what = format!("{:?} with {:?}", self.arguments, self.variables);
        assert!(PARTS.iter().all(|part| !message.contains(part)), "{what} prints a password: {message}");
        assert_eq!(output.status.success(), succeeds, "{what}: {message}");
        assert!(!message.is_empty(), "{what}");
        assert!(output.status.code().is_some(), "{what}");
    }
}

async fn check_all(runs: impl IntoIterator<Item = SecretRun>, succeed: bool) {
    let home = tempfile::tempdir().unwrap();
    stream::iter(runs).for_each_concurrent(4, |run| run.check(home.path(), succeed)).await;
}

/// The commands that have `--ledger`, and what else they need.
const COMMANDS: [&str; 7] = [
    "hub --gateway-name localhost",
    "certs list",
    "certs show x",
    "certs verify",
    "certs archive --before 1h --to file --head head.json",
    "status",
    "check",
];

#[tokio::test]
async fn a_password_in_a_ledgers_url_is_never_printed() {
    let not_utf8 = OsString::from_vec(b"postgres://me:s3cr3t\xff@127.0.0.1:1/db".to_vec());
    let urls: Vec<OsString> = LEDGERS.iter().map(OsString::from).chain([not_utf8]).collect();
    let flags = |url: &OsStr| {
        let joined: OsString = [OsStr::new("--ledger="), url].into_iter().collect();
        COMMANDS.map(|command| SecretRun::hub(command).arg(&joined))
    };
    let variables = |url: &OsStr| COMMANDS.map(|command| SecretRun::hub(command).variable("ADDON_SIGNER_LEDGER", url));
    check_all(urls.iter().flat_map(|url| flags(url).into_iter().chain(variables(url))), false).await;
}

#[tokio::test]
async fn password_is_in_no_help_or_error_about_other_arguments() {
    let url = LEDGERS[0];
    let help = COMMANDS.map(|command| {
        let variables = [("ADDON_SIGNER_LEDGER", url), ("HTTPS_PROXY", PROXIES[0])];
        let run = SecretRun::hub(command).arg("--help");
        variables.into_iter().fold(run, |run, (name, value)| run.variable(name, value))
    });
    let of_agent = SecretRun::agent("--help").variable("ADDON_SIGNER_GATEWAY", "https://me:s3cr3t@gateway");
    check_all(help.into_iter().chain([of_agent]), true).await;
    let wrong = COMMANDS.into_iter().flat_map(|command| {
        [
            SecretRun::hub(command).arg(url).arg(url).arg(url),
            SecretRun::hub(command).arg(format!("--ledgr={url}")),
            SecretRun::hub(command).arg("--ledgr").arg(url),
            SecretRun::hub(command).arg("--ledger").arg(url).arg("--ledger").arg(url),
            SecretRun::hub(command).arg("--log-format").arg(url),
        ]
    });
    let of_agent = SecretRun::agent("").arg(url);
    check_all(wrong.chain([of_agent]), false).await;
}

#[tokio::test]
async fn a_password_in_a_gateways_url_is_never_printed() {
    let not_utf8 = OsString::from_vec(b"https://me:s3cr3t\xff@gateway".to_vec());
    let urls =
        ["https://me:s3cr3t@gateway", "me:s3cr3t@gateway", "https://gateway/?password=s3cr3t", "https://me:s3cr3t"];
    for url in urls.iter().map(OsString::from).chain([not_utf8]) {
        let flag = SecretRun::agent("--hub-kubeconfig none --gateway").arg(&url);
        let variable = SecretRun::agent("--hub-kubeconfig none").variable("ADDON_SIGNER_GATEWAY", &url);
        let check = |value: OsString| SecretRun::hub("check --kubeconfig none --gateway").arg(value);
        let second = [OsStr::new("https://gateway,"), &url].into_iter().collect();
        check_all([flag, variable, check(second), check(url)], false).await;
    }
}

#[tokio::test]
async fn a_password_in_a_proxys_url_is_never_printed() {
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = |name: String, proxy: Option<&str>| {
        let mut cluster = serde_json::json!({ "server": "https://192.0.2.1:6443" });
        cluster["proxy-url"] = proxy.into();
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": cluster }],
            "users": [{ "name": "u", "user": { "token": "x" } }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        });
        let file = dir.path().join(name);
        std::fs::write(&file, config.to_string()).unwrap();
        file.display().to_string()
    };
    let plain = kubeconfig("plain".to_owned(), None);
    let runs = PROXIES.iter().enumerate().flat_map(|(at, proxy)| {
        let own = kubeconfig(format!("own{at}"), Some(proxy));
        let programs = |kubeconfig: &str| {
            [
                SecretRun::hub("certs list --kubeconfig").arg(kubeconfig),
                SecretRun::hub("check --kubeconfig").arg(kubeconfig),
                SecretRun::agent("--gateway https://192.0.2.1 --hub-kubeconfig").arg(kubeconfig),
            ]
        };
        let by_variable = ["HTTPS_PROXY", "https_proxy"]
            .into_iter()
            .flat_map(|name| programs(&plain).map(|run| run.variable(name, *proxy)));
        by_variable.chain(programs(&own)).collect::<Vec<_>>()
    });
    check_all(runs, false).await;
}

#[tokio::test]
async fn what_is_wrong_with_a_kubeconfig_is_said_without_its_lines() {
    let dir = tempfile::tempdir().unwrap();
    let runs = KUBECONFIGS.iter().enumerate().flat_map(|(at, text)| {
        let file = dir.path().join(format!("kubeconfig{at}"));
        std::fs::write(&file, text).unwrap();
        [
            SecretRun::hub("hub --gateway-name localhost --kubeconfig").arg(&file),
            SecretRun::hub("certs list --kubeconfig").arg(&file),
            SecretRun::hub("certs list").variable("KUBECONFIG", &file),
            SecretRun::agent("--gateway https://192.0.2.1 --hub-kubeconfig").arg(&file),
        ]
    });
    check_all(runs, false).await;
}
