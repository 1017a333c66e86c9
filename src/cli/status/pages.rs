//! Reads lists of objects that clusters write, in bounded memory.

use kube::Api;
use kube::api::ListParams;
use serde::de::DeserializeOwned;

/// How many objects the API server is asked for at a time. A cluster may pad each of its requests and addons to 1.5 MB,
/// and kube holds the text of a page up to three times while it reads it: 72 MB.
const PAGE: u32 = 16;

/// Gives `take` everything that an API lists, page after page, so that no more than one page is ever held.
pub(super) async fn each<K>(api: Api<K>, params: ListParams, mut take: impl FnMut(K)) -> kube::Result<()>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut params = params.limit(PAGE);
    loop {
        let page = api.list(&params).await?;
        page.items.into_iter().for_each(&mut take);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}
