use kube::client::Body;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::*;
use crate::connection::connect_with;
use crate::contacts::Contacts;

/// A shell that runs this, and marks each run in the file `$MARKS`.
fn shell(script: &str, marks: &std::path::Path) -> Credentials {
    let exec = ExecConfig {
        command: Some("sh".to_owned()),
        args: Some(vec!["-c".to_owned(), format!("echo ran >> {}; {script}", marks.display())]),
        interactive_mode: Some(ExecInteractiveMode::Never),
        ..ExecConfig::default()
    };
    Credentials::new(Source::Program(Box::new(exec)), "users.ann")
}

fn printing(status: &str) -> String {
    format!("echo '{{\"kind\": \"ExecCredential\", \"status\": {{{status}}}}}'")
}

/// `status` of a token that expires in ten minutes.
fn token(token: &str) -> String {
    let expires = Clock::default().now().plus(Duration::from_secs(600));
    format!("\"token\": \"{token}\", \"expirationTimestamp\": \"{expires}\"")
}

async fn sent(credentials: &Credentials) -> Result<String, String> {
    let request = credentials.clone().add(Request::new(())).await.map_err(|error| error.to_string())?;
    Ok(request.headers().get(AUTHORIZATION).unwrap().to_str().unwrap().to_owned())
}

fn runs(marks: &std::path::Path) -> usize {
    std::fs::read_to_string(marks).unwrap().lines().count()
}

#[tokio::test]
async fn a_program_runs_once_until_its_token_expires() {
    let directory = tempfile::tempdir().unwrap();
    let marks = directory.path().join("marks");
    let next = format!("n=$(wc -l < {}); {}", marks.display(), printing(&token("t'$n'")));
    let credentials = shell(&next, &marks);
    assert!(credentials.begin().await.unwrap().is_none());
    for _ in 0..3 {
        assert_eq!(sent(&credentials).await.unwrap(), "Bearer t1");
    }
    tokio::task::yield_now().await;
    drop(credentials.turn.lock().await); // after any other run
    assert_eq!(runs(&marks), 1);
    credentials.clock.advance(Duration::from_secs(570));
    assert_eq!(sent(&credentials).await.unwrap(), "Bearer t1", "it is good for 30 s, and nobody waits");
    credentials.clone().fetch(Instant::now()).await.unwrap(); // in turn after that one
    credentials.clock.advance(Duration::from_secs(60));
    let (one, two) = tokio::join!(sent(&credentials), sent(&credentials));
    assert_eq!(one, two, "they share a run");
    assert_ne!(one.unwrap(), "Bearer t1");
}

#[tokio::test]
async fn a_refused_token_is_fetched_again_unless_it_is_new() {
    let directory = tempfile::tempdir().unwrap();
    let marks = directory.path().join("marks");
    let next = format!("n=$(wc -l < {}); {}", marks.display(), printing("\"token\": \"t'$n'\""));
    let credentials = shell(&next, &marks);
    credentials.begin().await.unwrap();
    credentials.refused();
    assert_eq!(sent(&credentials).await.unwrap(), "Bearer t1");
    *credentials.turn.lock().await = Some((Instant::now() - AGAIN, Ok(())));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = kube::Config::new(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
    tokio::spawn(refuse_t1(listener));
    let client = connect_with(config, Some(credentials), Contacts::default()).unwrap();
    for expected in [401, 200] {
        let request = Request::get("/").body(Body::empty()).unwrap();
        assert_eq!(client.send(request).await.unwrap().status().as_u16(), expected);
    }
}

/// An API server that knows the token t1 no longer.
async fn refuse_t1(listener: TcpListener) {
    while let Ok((mut connection, _)) = listener.accept().await {
        let mut head = vec![0; 4096];
        let length = connection.read(&mut head).await.unwrap();
        let status = if head[..length].windows(9).any(|it| it == b"Bearer t1") { "401 No" } else { "200 OK" };
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        connection.write_all(answer.as_bytes()).await.unwrap();
    }
}

#[tokio::test]
async fn a_program_that_hangs_is_ended_and_whoever_waits_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let marks = directory.path().join("marks");
    let child = directory.path().join("child");
    let script = format!("sleep 600 & echo $! > {}; wait", child.display());
    let credentials = Credentials { bound: Duration::from_millis(200), ..shell(&script, &marks) };
    credentials.now.lock().expires = Some(credentials.clock.now());
    let reported = Err("users.ann.exec: sh did not end and close its output within 0 s".to_owned());
    let all = tokio::join!(sent(&credentials), sent(&credentials), sent(&credentials));
    assert_eq!(all, (reported.clone(), reported.clone(), reported));
    assert_eq!(runs(&marks), 1, "they wait for one run");
    let child = std::fs::read_to_string(child).unwrap();
    let command = format!("/proc/{}/cmdline", child.trim());
    while std::fs::read(&command).is_ok_and(|command| !command.is_empty()) {
        tokio::time::sleep(Duration::from_millis(10)).await; // its children end too
    }
}

#[tokio::test]
async fn a_program_without_credentials_is_named_with_its_field() {
    let marks = std::path::Path::new("/dev/null");
    let certificate = "\"clientCertificateData\": \"c\"";
    for (script, expected) in [
        (printing(""), "printed neither a token nor a client certificate"),
        (printing("\"token\": \"\""), "printed neither a token nor a client certificate"),
        (printing(certificate), "printed a client certificate or its key, and not both"),
        (printing("\"token\": \"s3cr3t\\u0007\""), "printed a token with a character that no header may have"),
        (printing("\"token\": \"a\", \"expirationTimestamp\": \"soon\""), "printed an expirationTimestamp that is"),
        ("echo '{}'".to_owned(), "printed an ExecCredential without a status"),
        ("true".to_owned(), "printed nothing"),
        ("yes".to_owned(), "printed more than 1048576 bytes"),
        ("echo s3cr3t".to_owned(), "printed no ExecCredential"),
        ("echo s3cr3t; exit 3".to_owned(), "failed (exit status: 3)"),
    ] {
        let reported = shell(&script, marks).begin().await.err().unwrap().to_string();
        assert!(reported.starts_with(&format!("users.ann.exec: sh {expected}")), "{script}: {reported}");
    }
    let both = shell(&printing(&format!("{certificate}, \"clientKeyData\": \"k\"")), marks);
    let identity = both.begin().await.unwrap().unwrap();
    assert_eq!((&*identity.certificate, &*identity.key), ("c", "k"));
}

#[tokio::test]
async fn a_program_that_is_missing_is_named_with_its_hint() {
    for (install_hint, expected) in [(Some("Get it at x.".to_owned()), "; Get it at x."), (None, "")] {
        let exec = ExecConfig { command: Some("no-such".to_owned()), install_hint, ..ExecConfig::default() };
        let credentials = Credentials::new(Source::Program(Box::new(exec)), "users.ann");
        let reported = credentials.begin().await.err().unwrap().to_string();
        assert_eq!(reported, format!("users.ann.exec: no-such does not exist{expected}"));
    }
}

#[tokio::test]
async fn a_token_file_is_trimmed_and_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, " one\r\n").unwrap();
    let credentials = Credentials::new(Source::File(file.clone()), "users.ann");
    credentials.begin().await.unwrap();
    assert_eq!(sent(&credentials).await.unwrap(), "Bearer one");
    std::fs::write(&file, "\u{feff}two\n").unwrap();
    credentials.clock.advance(Duration::from_secs(180));
    assert_eq!(sent(&credentials).await.unwrap(), "Bearer two");
    std::fs::write(&file, "\n").unwrap();
    let empty = credentials.clone().fetch(Instant::now()).await.unwrap_err().to_string();
    assert_eq!(empty, format!("users.ann.tokenFile: {} is empty", file.display()));
    std::fs::remove_file(&file).unwrap();
    credentials.clock.advance(Duration::from_secs(180));
    assert_eq!(sent(&credentials).await.unwrap(), "Bearer two", "the last one stays");
}
