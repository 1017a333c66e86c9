//! What a test's etcd has, by etcd's own HTTP API (etcd's documentation, "gRPC gateway").

use std::collections::BTreeMap;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;

use crate::pki::base64;

/// All keys of Kubernetes begin so.
const FIRST: &str = "/registry/";
/// The first key after them.
const AFTER: &str = "/registry0";
/// How many operations etcd takes in a transaction.
const MOST: usize = 128;

/// A connection to an etcd on 127.0.0.1.
pub(super) struct Etcd {
    sender: http1::SendRequest<Full<Bytes>>,
    _connection: AbortOnDropHandle<hyper::Result<()>>,
}

impl Etcd {
    pub(super) async fn connect(port: u16) -> Self {
        let tcp = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(tcp)).await.unwrap();
        Self { sender, _connection: AbortOnDropHandle::new(tokio::spawn(connection)) }
    }

    /// Each key of Kubernetes, with the revision in which it was last written.
    pub(super) async fn revisions(&mut self) -> BTreeMap<String, String> {
        let range = json!({ "key": encoded(FIRST), "range_end": encoded(AFTER), "keys_only": true });
        let answer = self.call("range", &range).await;
        let all = answer["kvs"].as_array().expect("the API server has written something").iter();
        all.map(|pair| (decoded(&pair["key"]), pair["mod_revision"].as_str().unwrap().to_owned())).collect()
    }

    pub(super) async fn delete(&mut self, keys: impl Iterator<Item = &String>) {
        let keys: Vec<_> = keys.collect();
        for some in keys.chunks(MOST) {
            let delete = |key: &&String| json!({ "requestDeleteRange": { "key": encoded(key) } });
            self.call("txn", &json!({ "success": some.iter().map(delete).collect::<Vec<_>>() })).await;
        }
    }

    /// Gives back the room of what was deleted, for what is written next.
    pub(super) async fn compact(&mut self) {
        let now = self.call("range", &json!({ "key": encoded(FIRST) })).await["header"]["revision"].clone();
        self.call("compaction", &json!({ "revision": now, "physical": true })).await;
    }

    async fn call(&mut self, what: &str, body: &Value) -> Value {
        let request = Request::builder().method(Method::POST).uri(format!("/v3/kv/{what}")).header(HOST, "etcd");
        let request = request.body(Full::from(body.to_string())).unwrap();
        self.sender.ready().await.unwrap();
        let (head, body) = self.sender.send_request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        assert_eq!(head.status, StatusCode::OK, "{}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).unwrap()
    }
}

fn encoded(key: &str) -> String {
    base64(key.as_bytes())
}

fn decoded(key: &Value) -> String {
    let bytes: ByteString = serde_json::from_value(key.clone()).unwrap();
    String::from_utf8(bytes.0).unwrap()
}
