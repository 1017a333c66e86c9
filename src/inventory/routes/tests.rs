use axum::body::{Body, to_bytes};
use axum::extract::Path;
use tower::ServiceExt;

use super::*;

async fn ask(method: &str, uri: &str, user: &str) -> (u16, Value) {
    let resources = Router::new()
        .route("/certificates", get(|| async { Json(json!({ "items": [] })) }))
        .route("/certificates/{serial}", get(|Path(serial): Path<String>| async move { Json(json!(serial)) }));
    let request = Request::builder().method(method).uri(uri).header(REMOTE_USER, user).body(Body::empty()).unwrap();
    let answer = router(resources, Audit::default()).oneshot(request).await.unwrap();
    let code = answer.status().as_u16();
    let body = to_bytes(answer.into_body(), 10_000).await.unwrap();
    (code, if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() })
}

#[tokio::test]
async fn discovery_names_what_is_served() {
    let (code, list) = ask("GET", "/apis/ledger.addon-signer.io/v1alpha1", "").await;
    assert_eq!(code, 200);
    assert_eq!(list["groupVersion"], "ledger.addon-signer.io/v1alpha1");
    let verbs: Vec<_> = list["resources"].as_array().unwrap().iter().map(|r| (&r["name"], &r["verbs"])).collect();
    assert_eq!(verbs, [(&json!("certificates"), &json!(["get", "list"])), (&json!("entries"), &json!(["list"]))]);
    let (code, group) = ask("GET", "/apis/ledger.addon-signer.io", "").await;
    assert_eq!((code, &group["kind"]), (200, &json!("APIGroup")));
}

#[tokio::test]
async fn resources_answer_whom_the_api_server_names() {
    let certificates = format!("{BASE}/certificates");
    assert_eq!(ask("GET", &certificates, "alice").await, (200, json!({ "items": [] })));
    assert_eq!(ask("HEAD", &certificates, "alice").await, (200, Value::Null));
    assert_eq!(ask("GET", &format!("{certificates}/0a1b?x=1&watch=false"), "alice").await, (200, json!("0a1b")));
    let (code, status) = ask("GET", &certificates, "").await;
    assert_eq!((code, &status["kind"], &status["reason"]), (401, &json!("Status"), &json!("Unauthorized")));
}

#[tokio::test]
async fn what_was_authorized_as_something_narrower_is_refused() {
    let certificates = format!("{BASE}/certificates");
    for (method, uri, expected) in [
        ("GET", format!("{certificates}?fieldSelector=metadata.name%3Da"), 400),
        ("GET", format!("{certificates}?signer=x&labelSelector=a"), 400),
        ("GET", format!("{certificates}?field%53elector=metadata.name%3Da"), 400),
        ("GET", format!("{certificates}?watch=true"), 405),
        ("GET", format!("{certificates}?watch"), 405),
        ("POST", certificates.clone(), 405),
        ("DELETE", format!("{certificates}/a"), 405),
        ("GET", format!("{BASE}/watch/certificates"), 404),
        ("GET", format!("{BASE}/namespaces/default/certificates"), 404),
        ("GET", format!("{certificates}/a/status"), 404),
        ("GET", format!("{BASE}//certificates"), 404),
        ("GET", format!("{BASE}/secrets"), 404),
        ("GET", "/apis".to_owned(), 404),
        ("GET", "/metrics".to_owned(), 404),
    ] {
        let (code, status) = ask(method, &uri, "alice").await;
        assert_eq!(
            (code, &status["kind"], &status["code"]),
            (expected, &json!("Status"), &json!(expected)),
            "{method} {uri}"
        );
    }
}
