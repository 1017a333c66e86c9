//! Kubeconfigs as people and clouds write them: several files and contexts, credential plugins, proxies.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use addon_signer_platform::kubeconfig::Access;
use addon_signer_platform::kubernetes;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use kube::config::{ExecConfig, ExecInteractiveMode, Kubeconfig};
use serde_json::json;
use test_kit::built::agent_program;
use test_kit::hub::TIMEOUT;
use test_kit::{TestHub, accept_cluster, client, install_addon, wait_until};
use tokio::process::Command;

use crate::hub::mk_ready;

fn write(home: &Path, name: &str, kubeconfig: &Kubeconfig) -> PathBuf {
    let file = home.join(name);
    std::fs::write(&file, serde_saphyr::to_string(kubeconfig).unwrap()).unwrap();
    file
}

/// With another name for its context, cluster and user.
fn named(mut kubeconfig: Kubeconfig, name: &str) -> Kubeconfig {
    kubeconfig.clusters[0].name = name.to_owned();
    kubeconfig.auth_infos[0].name = name.to_owned();
    kubeconfig.contexts[0].name = name.to_owned();
    let context = kubeconfig.contexts[0].context.as_mut().unwrap();
    (context.cluster, context.user) = (name.to_owned(), Some(name.to_owned()));
    kubeconfig.current_context = Some(name.to_owned());
    kubeconfig
}

/// With a credential plugin that prints the token, and leaves a mark that it ran. A real API server believes the
/// client certificate, which stays.
fn with_plugin(mut kubeconfig: Kubeconfig, mark: &Path) -> Kubeconfig {
    let user = kubeconfig.auth_infos[0].auth_info.as_mut().unwrap();
    let token = serde_json::to_value(&*user).unwrap()["token"].as_str().unwrap_or("unused").to_owned();
    let printed = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": { "token": token },
    });
    let script = format!("echo ran | tee -a {} >&2; echo '{printed}'", mark.display());
    user.token = None;
    user.exec = Some(ExecConfig {
        api_version: Some("client.authentication.k8s.io/v1".to_owned()),
        command: Some("/bin/sh".to_owned()),
        args: Some(vec!["-c".to_owned(), script]),
        interactive_mode: Some(ExecInteractiveMode::Never),
        ..ExecConfig::default()
    });
    kubeconfig
}

fn server(kubeconfig: &Kubeconfig) -> String {
    kubeconfig.clusters[0].cluster.as_ref().unwrap().server.clone().unwrap()
}

struct Told {
    code: Option<i32>,
    stderr: String,
}

async fn tell(program: impl AsRef<std::ffi::OsStr>, variables: &[(&str, &str)], arguments: &str) -> Told {
    let mut command = Command::new(program);
    command.env_clear().env("HOME", "/nowhere").env("PATH", "/usr/bin:/bin").envs(variables.iter().copied());
    command.args(arguments.split(' ')).stdin(Stdio::null());
    let Output { status, stderr, .. } =
        tokio::time::timeout(Duration::from_secs(90), command.output()).await.unwrap().unwrap();
    Told { code: status.code(), stderr: String::from_utf8(stderr).unwrap() }
}

async fn hub(variables: &[(&str, &str)], arguments: &str) -> Told {
    tell(env!("CARGO_BIN_EXE_addon-signer"), variables, arguments).await
}

#[tokio::test]
async fn a_command_says_which_cluster_it_changes_before_it_does() {
    let (one, _admin, _running) = mk_ready().await;
    let (two, home) = (TestHub::start().await, tempfile::tempdir().unwrap());
    let [first, second] = [&one, &two].map(|hub| hub.kubeconfig("ann", &["system:masters"]));
    let servers = [&first, &second].map(server);
    let both = named(second, "dev").merge(named(first, "prod")).unwrap();
    let file = write(home.path(), "both", &both).display().to_string();
    let reported = hub(&[], &format!("ca rotate telemetry --context prod --kubeconfig {file}")).await;
    let expected = format!("Changing telemetry on context prod ({})\nRequested a rotation of telemetry;", servers[0]);
    assert!(reported.code == Some(0) && reported.stderr.starts_with(&expected), "{}", reported.stderr);
    let reported = hub(&[("ADDON_SIGNER_CONTEXT", "prod")], &format!("ca status telemetry --kubeconfig {file}")).await;
    assert_eq!((reported.code, &*reported.stderr), (Some(0), ""), "it changes nothing");
    let reported = hub(&[], &format!("ca rotate telemetry --kubeconfig {file}")).await;
    assert!(
        reported.code == Some(1) && !reported.stderr.contains("Changing"),
        "the other has no signer: {}",
        reported.stderr
    );
    let dev = client(two.kubeconfig("admin", &["system:masters"])).await;
    accept_cluster(&dev, "c1").await;
    install_addon(&dev, "c1", "telemetry").await;
    let revoke = format!("certs revoke --cluster c1 --addon telemetry --kubeconfig {file}");
    let reported = hub(&[], &revoke).await;
    let expected = format!("Changing telemetry on c1, on context dev ({})\n", servers[1]);
    assert_eq!((reported.code, reported.stderr), (Some(0), expected));
    let reported = hub(&[], &format!("status --context other --kubeconfig {file}")).await;
    assert!(reported.stderr.contains("contexts.other: there are only: dev, prod"), "{}", reported.stderr);
}

#[tokio::test]
async fn a_missing_file_in_kubeconfig_is_passed_over() {
    let (hub_server, home) = (TestHub::start().await, tempfile::tempdir().unwrap());
    let file = write(home.path(), "good", &hub_server.kubeconfig("ann", &["system:masters"])).display().to_string();
    let reported = hub(&[("KUBECONFIG", &format!("/nowhere/config::{file}"))], "ca status").await;
    assert_eq!(reported.code, Some(0), "{}", reported.stderr);
    let empty = Kubeconfig { current_context: Some(String::new()), ..Kubeconfig::default() };
    let empty = write(home.path(), "empty", &empty);
    let reported = hub(&[("KUBECONFIG", &format!("{}:{file}", empty.display()))], "ca status").await;
    assert_eq!(reported.code, Some(0), "an empty context is none: {}", reported.stderr);
    let bad = home.path().join("bad");
    std::fs::write(&bad, "clusters: 7").unwrap();
    let reported = hub(&[("KUBECONFIG", &format!("{file}:{}", bad.display()))], "ca status").await;
    let expected =
        format!("the kubeconfig {} cannot be used: it is not a kubeconfig in YAML; see line 1", bad.display());
    assert!(reported.code == Some(1) && reported.stderr.contains(&expected), "{}", reported.stderr);
    let reported = hub(&[("KUBECONFIG", "/nowhere/config")], "ca status").await;
    assert!(reported.stderr.contains("no kubeconfig can be used"), "{}", reported.stderr);
    let reported = hub(&[], &format!("ca status --kubeconfig {file}.missing")).await;
    assert!(
        reported.stderr.contains("good.missing cannot be used: it cannot be read: No such file"),
        "{}",
        reported.stderr
    );
}

#[tokio::test]
async fn commands_run_credential_plugins_and_the_agent_only_by_a_flag() {
    let (hub_server, home) = (TestHub::start().await, tempfile::tempdir().unwrap());
    let mark = home.path().join("ran");
    let kubeconfig = with_plugin(hub_server.kubeconfig("ann", &["system:masters"]), &mark);
    let file = write(home.path(), "exec", &kubeconfig).display().to_string();
    let reported = hub(&[], &format!("ca status --kubeconfig {file}")).await;
    assert!(reported.code == Some(0) && mark.exists(), "{}", reported.stderr);
    let nobody = "no hub has been leading in the namespace addon-signer: check the hub's pods and their logs";
    assert_eq!(reported.stderr, format!("ran\n{nobody}\n"), "what it says is shown");
    assert_eq!(std::fs::read_to_string(&mark).unwrap(), "ran\n", "it ran once");
    std::fs::remove_file(&mark).unwrap();
    let arguments = format!(
        "--cluster=c1 --addon=telemetry --signer=example.com/telemetry --once --gateway=https://127.0.0.1:9 \
         --output-dir={}/certs --hub-kubeconfig={file}",
        home.path().display()
    );
    let reported = tell(agent_program(), &[], &arguments).await;
    let user = &kubeconfig.auth_infos[0].name;
    let expected =
        format!("users.{user}.exec: a program would print the credentials, which needs --allow-credential-plugins");
    assert!(reported.code == Some(1) && reported.stderr.contains(&expected), "{}", reported.stderr);
    assert!(!mark.exists(), "nothing ran");
    let mut agent = Command::new(agent_program());
    agent.env_clear().env("PATH", "/usr/bin:/bin").args(arguments.split(' ')).arg("--allow-credential-plugins");
    let _asks = agent.stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap();
    wait_until(TIMEOUT, "the program to run", async || mark.exists().then_some(())).await;
}

#[tokio::test]
async fn an_unusable_proxy_stops_nobody_whom_no_proxy_excludes() {
    let (hub_server, home) = (TestHub::start().await, tempfile::tempdir().unwrap());
    let file = write(home.path(), "good", &hub_server.kubeconfig("ann", &["system:masters"])).display().to_string();
    for proxy in ["socks5://127.0.0.1:9", "http://a b"] {
        let status = format!("ca status --kubeconfig {file}");
        let reported = hub(&[("HTTPS_PROXY", proxy), ("NO_PROXY", "127.0.0.1,localhost")], &status).await;
        assert_eq!(reported.code, Some(0), "{proxy}: {}", reported.stderr);
        let reported = hub(&[("HTTPS_PROXY", proxy)], &status).await;
        let expected = "addon-signer: the proxy that HTTPS_PROXY names cannot be used";
        assert!(reported.stderr.starts_with(expected), "{proxy}: {}", reported.stderr);
    }
}

/// A token of a ServiceAccount that ends with this Secret.
async fn token_until_deleted(admin: &Client, secret: &str) -> String {
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), "default");
    let object =
        Secret { metadata: ObjectMeta { name: Some(secret.to_owned()), ..ObjectMeta::default() }, ..Secret::default() };
    secrets.create(&PostParams::default(), &object).await.unwrap();
    let bound = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {},
        "spec": { "audiences": [], "boundObjectRef": { "kind": "Secret", "apiVersion": "v1", "name": secret } },
    });
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), "default");
    let request = serde_json::from_value(bound).unwrap();
    let answer = accounts.create_token_request("hub", &PostParams::default(), &request).await.unwrap();
    answer.status.unwrap().token.unwrap()
}

/// A cloud may withdraw a token that says nothing of its end.
#[tokio::test]
async fn a_token_that_was_withdrawn_is_fetched_again() {
    let hub = TestHub::start().await;
    if !hub.is_real() {
        return; // the stand-in withdraws no token; the client has its unit test
    }
    let (admin, home) = (hub.admin().await, tempfile::tempdir().unwrap());
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), "default");
    let metadata = ObjectMeta { name: Some("hub".to_owned()), ..ObjectMeta::default() };
    accounts.create(&PostParams::default(), &ServiceAccount { metadata, ..Default::default() }).await.unwrap();
    let token = home.path().join("token");
    std::fs::write(&token, token_until_deleted(&admin, "first").await).unwrap();
    let mut kubeconfig = hub.kubeconfig("nobody", &[]);
    let printed = r#"{"kind":"ExecCredential","status":{"token":"%s"}}"#;
    let script = format!("printf '{printed}' $(cat {})", token.display());
    kubeconfig.auth_infos[0].auth_info = serde_json::from_value(json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": ["-c", script],
        "interactiveMode": "Never",
    } }))
    .unwrap();
    let access = Access { kubeconfig: Some(write(home.path(), "exec", &kubeconfig)), context: None };
    let client = kubernetes::client(&access).await.unwrap();
    let who = async || {
        let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
        reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await
    };
    let name = |review: SelfSubjectReview| review.status.unwrap().user_info.unwrap().username.unwrap();
    assert_eq!(name(who().await.unwrap()), "system:serviceaccount:default:hub");
    std::fs::write(&token, token_until_deleted(&admin, "second").await).unwrap();
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), "default");
    secrets.delete("first", &DeleteParams::default()).await.unwrap();
    let is_refused = |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.code == 401);
    // The API server believes a token for ten seconds more.
    wait_until(TIMEOUT, "the token to be refused", async || {
        who().await.is_err_and(|error| is_refused(&error)).then_some(())
    })
    .await;
    assert_eq!(name(who().await.unwrap()), "system:serviceaccount:default:hub");
}
