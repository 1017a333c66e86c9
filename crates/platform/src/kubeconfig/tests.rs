use std::fmt::Write;

use super::*;

const SECRET: &str = "s3cr3t";

/// A kubeconfig with these fields of the cluster `hub` and the user `ann`.
fn mk(cluster: &str, user: &str) -> String {
    format!(
        "contexts: [{{name: one, context: {{cluster: hub, user: ann}}}}, {{name: two, context: {{cluster: other}}}}]\n\
         clusters: [{{name: hub, cluster: {{{cluster}}}}}]\nusers: [{{name: ann, user: {{{user}}}}}]\n\
         current-context: one\n"
    )
}

const GOOD: &str = "server: 'https://127.0.0.1:6443'";

async fn read(text: impl AsRef<[u8]>, context: Option<&str>, plugins: Plugins) -> Result<ClientSettings, String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config");
    std::fs::write(&file, text).unwrap();
    let access = Access { kubeconfig: Some(file.clone()), context: context.map(str::to_owned) };
    let begins = format!("the kubeconfig {} cannot be used: ", file.display());
    let reported = |error: KubeconfigError| error.to_string().strip_prefix(&begins).unwrap().to_owned();
    let found = find(&access, plugins).await.map_err(reported)?;
    found.connect(Contacts::default()).await.map_err(reported)?;
    Ok(found)
}

async fn refused(cluster: &str, user: &str) -> String {
    let reported = read(mk(cluster, user), None, Plugins::Refuse).await.err().unwrap();
    assert!(!reported.contains(SECRET), "{reported}");
    reported
}

#[tokio::test]
async fn a_field_that_cannot_be_used_is_named() {
    crate::crypto::install_provider();
    for (cluster, user, expected) in [
        ("", "", "clusters.hub.server: it is missing"),
        ("server: ''", "", "clusters.hub.server: it is missing"),
        ("server: '127.0.0.1:6443'", "", "clusters.hub.server: it begins with neither https:// nor http://"),
        ("server: hub", "", "clusters.hub.server: it begins with neither"),
        ("server: /x", "", "clusters.hub.server: it begins with neither"),
        ("server: 'ftp://hub'", "", "clusters.hub.server: it begins with neither"),
        ("server: 'https://'", "", "clusters.hub.server: it is no URL"),
        ("server: 'https://:6443'", "", "clusters.hub.server: it has no host"),
        ("server: 'https://hub:99999'", "", "clusters.hub.server: its port"),
        ("server: 'https://ann:s3cr3t@hub'", "", "clusters.hub.server: it has a user name or password"),
        ("server: 'https://hub?x=y'", "", "clusters.hub.server: it has a query"),
        (&format!("server: 'https://hub/{}'", "a".repeat(1024)), "", "clusters.hub.server: it is longer than"),
        (&format!("{GOOD}, tls-server-name: 'a b'"), "", "clusters.hub.tls-server-name: "),
        (&format!("{GOOD}, proxy-url: 'http://s3cr3t ['"), "", "clusters.hub.proxy-url: it is no URL"),
        (&format!("{GOOD}, proxy-url: 'socks5://s3cr3t'"), "", "the proxy that proxy-url of the kubeconfig names"),
        (&format!("{GOOD}, certificate-authority-data: '!'"), "", "clusters.hub.certificate-authority: "),
        (&format!("{GOOD}, certificate-authority-data: aGVsbG8="), "", "clusters.hub.certificate-authority: it has no"),
        (&format!("{GOOD}, certificate-authority: nowhere"), "", "clusters.hub.certificate-authority: "),
        (GOOD, "token: \"s3cr3t\\n\"", "users.ann.token: the token has a character"),
        (GOOD, "tokenFile: nowhere", "users.ann.tokenFile: "),
        (
            GOOD,
            "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token",
            "users.ann.tokenFile: it is in another",
        ),
        (GOOD, "tokenFile: a/../../token", "users.ann.tokenFile: it is in another"),
        (GOOD, "token: a, tokenFile: ../token", "users.ann.tokenFile: it is in another"),
        (GOOD, "tokenFile: config", "users.ann.tokenFile: the token has a character"),
        (GOOD, "as: \"a\\u0007\"", "users.ann.as: "),
        (GOOD, "as-uid: \"a\\u0007\"", "users.ann.as-uid: "),
        (GOOD, "as: a, as-groups: [b, \"s3cr3t\\n\"]", "users.ann.as-groups: "),
        (GOOD, "as: a, as-user-extra: {x: [\"s3cr3t\\n\"]}", "users.ann.as-user-extra: "),
        (GOOD, "client-certificate: config", "users.ann.client-key: it is missing"),
        (GOOD, "exec: {command: s3cr3t}", "users.ann.exec: a program would print the credentials"),
        (GOOD, "token: a, exec: {command: s3cr3t}", "users.ann.exec: a program"),
        (GOOD, "auth-provider: {name: oidc}", "users.ann.auth-provider: authentication providers are not supported"),
    ] {
        let reported = refused(cluster, user).await;
        assert!(reported.starts_with(expected), "{cluster} {user}: {reported}");
    }
    let reported = read(mk(GOOD, "exec: {command: ''}"), None, Plugins::Run).await.err().unwrap();
    assert_eq!(reported, "users.ann.exec.command: it is missing");
}

#[tokio::test]
async fn a_client_key_that_cannot_be_used_is_named() {
    crate::crypto::install_provider();
    let core = |name: &str| std::fs::read(format!("{}/../core/testdata/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let (chain, key) = (core("chains/p256-sha384.pem"), core("keys/p256-pkcs8.pem"));
    let marked = [b"\xef\xbb\xbf", key.as_slice()].concat();
    let encrypted = String::from_utf8(key.clone()).unwrap().replace(" PRIVATE", " ENCRYPTED PRIVATE").into_bytes();
    let at = |name: &str, cause: &str| format!("users.ann.client-{name}-data: {cause}");
    for (certificate, key, expected) in [
        (&chain, &encrypted, at("key", "the private key is encrypted: decrypt it first")),
        (&chain, &marked, at("key", "it begins with a byte order mark")),
        (&chain, &core("containers/chain.p12"), at("key", "it is PKCS#12")),
        (&chain, &core("containers/key.der"), at("key", "it is a private key in DER")),
        (&chain, &core("keys/rsa1024-pkcs8.pem"), at("key", "the private key is not of the kind")),
        (&chain, &chain, at("key", "it has no private key in PEM")),
        (&core("containers/chain.p7b"), &key, at("certificate", "it is PKCS#7")),
        (&b"s3cr3t".to_vec(), &key, at("certificate", "it has no certificate in PEM")),
    ] {
        let user =
            format!("client-certificate-data: {}, client-key-data: {}", BASE64.encode(certificate), BASE64.encode(key));
        let reported = refused(GOOD, &user).await;
        assert!(reported.starts_with(&expected), "{reported}, not {expected}");
    }
    for (user, expected) in [
        ("client-certificate-data: '!', client-key-data: '!'", at("key", "it is not Base64")),
        ("client-certificate: config, client-key: config", "users.ann.client-key: it has no private key".to_owned()),
        ("client-certificate: config, client-key: nowhere", "users.ann.client-key: ".to_owned()),
    ] {
        let reported = refused(GOOD, user).await;
        assert!(reported.starts_with(&expected), "{reported}, not {expected}");
    }
}

#[tokio::test]
async fn a_context_is_chosen_by_name_and_what_it_lacks_is_named() {
    crate::crypto::install_provider();
    let text = mk(GOOD, "")
        + "---\ncontexts: [{name: three, context: {cluster: hub, user: bob}}, {name: four, context: {cluster: hub}},\n\
           {name: five}]\n";
    let reported = async |context| match read(&text, context, Plugins::Refuse).await {
        Ok(found) => found.target.to_string(),
        Err(reported) => reported,
    };
    assert_eq!(reported(None).await, "context one (https://127.0.0.1:6443)");
    assert_eq!(reported(Some("four")).await, "context four (https://127.0.0.1:6443)", "nobody is a user too");
    assert_eq!(reported(Some("two")).await, "clusters.other: context two names it, and it is missing");
    assert_eq!(reported(Some("three")).await, "users.bob: context three names it, and it is missing");
    assert_eq!(reported(Some("none")).await, "contexts.none: there are only: one, two, three, four, five");
    assert_eq!(reported(Some("five")).await, "contexts.five: it is empty");
    let unset = text.replace("current-context: one", "current-context: ''");
    let reported = read(unset, None, Plugins::Refuse).await.err().unwrap();
    assert_eq!(reported, "current-context: it is not set; name a context by --context");
}

#[tokio::test]
async fn a_file_in_utf_16_is_read_unless_it_is_cut() {
    crate::crypto::install_provider();
    let bytes = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let whole = bytes(&format!("\u{feff}{}", mk(GOOD, "")));
    for text in [whole.clone(), format!("\u{feff}{}", mk(GOOD, "")).into_bytes()] {
        assert!(read(text, None, Plugins::Refuse).await.is_ok());
    }
    let cut = read(&whole[..whole.len() - 1], None, Plugins::Refuse).await.err().unwrap();
    assert_eq!(cut, "it is text neither in UTF-8 nor in UTF-16");
}

#[tokio::test]
async fn a_plugin_that_fails_is_named_without_what_it_printed() {
    crate::crypto::install_provider();
    let printing = |text: &str| {
        let mut arguments = String::new();
        write!(arguments, "exec: {{command: sh, interactiveMode: Never, args: [-c, 'echo ''{text}''; exit 1']}}")
            .unwrap();
        arguments
    };
    let status = |token: &str| format!("{{\"kind\":\"ExecCredential\",\"status\":{{\"token\":\"{token}\"}}}}");
    let succeeding = |text: &str| printing(text).replace("exit 1", "exit 0");
    let run = async |user: &str| read(mk(GOOD, user), None, Plugins::Run).await;
    assert!(run(&succeeding(&status("good"))).await.is_ok());
    for (user, expected) in [
        (printing(SECRET), "users.ann.exec: sh failed (exit status: 1)"),
        (succeeding(SECRET), "users.ann.exec: sh printed no ExecCredential"),
        (
            succeeding(&status("s3cr3t\\\\u000a")),
            "users.ann.exec: sh printed a token with a character that no header may have",
        ),
    ] {
        let reported = run(&user).await.err().unwrap();
        assert_eq!(reported, expected, "{user}");
    }
}

#[tokio::test]
async fn a_token_beside_its_kubeconfig_is_read_however_written() {
    crate::crypto::install_provider();
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    std::fs::create_dir(here.join("sub")).unwrap();
    std::fs::write(here.join("token"), "t").unwrap();
    let absolute = format!("tokenFile: '{}'", here.join("token").display());
    for user in [&*absolute, "tokenFile: token", "tokenFile: sub/../token"] {
        std::fs::write(here.join("config"), mk(GOOD, user)).unwrap();
        let access = Access { kubeconfig: Some(here.join("sub/../config")), context: None };
        assert!(find(&access, Plugins::Refuse).await.is_ok(), "{user}");
    }
}
