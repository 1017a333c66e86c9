//! Reads lists of objects that clusters write, in bounded memory.

use std::time::Duration;

use kube::Api;
use kube::api::ListParams;
use kube::core::ObjectList;
use serde::de::DeserializeOwned;
use tokio::time::sleep;

/// How many objects the API server is asked for at a time. A cluster may pad each of its requests and addons to 1.5 MB,
/// and kube holds the text of a page up to three times while it reads it: 72 MB.
const PAGE: u32 = 16;
/// How often to ask an API server that says "later" because it is overloaded or only beginning to serve such objects.
const TRIES: u32 = 10;
/// The pause that it asks for (`Retry-After` of kube-apiserver).
const LATER: Duration = Duration::from_secs(1);

/// Gives `take` everything that an API lists, page after page, so that no more than one page is ever held.
pub(in crate::cli) async fn each<K>(api: Api<K>, params: ListParams, mut take: impl FnMut(K)) -> kube::Result<()>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut params = params.limit(PAGE);
    loop {
        let page = page(&api, &params).await?;
        page.items.into_iter().for_each(&mut take);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}

async fn page<K>(api: &Api<K>, params: &ListParams) -> kube::Result<ObjectList<K>>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    for _ in 1..TRIES {
        match api.list(params).await {
            Err(kube::Error::Api(status)) if status.code == 429 => sleep(LATER).await,
            answered => return answered,
        }
    }
    api.list(params).await
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use hyper::{Request, Response};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::Body;
    use kube::{Client, ResourceExt};
    use serde_json::json;

    use super::*;

    /// Answers "later" the first `busy` times, then with two pages.
    async fn names(busy: u32) -> Result<Vec<String>, u16> {
        let asked = Arc::<AtomicU32>::default();
        let service = tower::service_fn(move |request: Request<Body>| {
            let is_busy = asked.fetch_add(1, Ordering::Relaxed) < busy;
            let query = request.uri().query().unwrap_or_default().to_owned();
            assert!(query.contains("limit=16"), "{query}");
            let (name, next) = if query.contains("continue=more") { ("b", "") } else { ("a", "more") };
            let later = json!({ "kind": "Status", "status": "Failure", "code": 429, "message": "", "reason": "" });
            let page = json!({ "metadata": { "continue": next }, "items": [{ "metadata": { "name": name } }] });
            let (code, answer) = if is_busy { (429, later) } else { (200, page) };
            async move {
                let body = Body::from(answer.to_string().into_bytes());
                Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        let api: Api<ConfigMap> = Api::all(Client::new(service, "default"));
        let mut found = Vec::new();
        match each(api, ListParams::default(), |map| found.push(map.name_any())).await {
            Ok(()) => Ok(found),
            Err(kube::Error::Api(status)) => Err(status.code),
            Err(error) => panic!("{error}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_pages_are_read_and_busy_server_is_asked_again() {
        for busy in [0, 1, TRIES - 1] {
            assert_eq!(names(busy).await, Ok(vec!["a".to_owned(), "b".to_owned()]), "{busy}");
        }
        assert_eq!(names(TRIES).await, Err(429));
    }
}
