//! Finds the addresses of backends.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::vec;

use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tower::Service;

use addon_signer_core::gateway::backend;

/// How many lookups of one name may be under way. Each takes one of tokio's 512 threads for blocking work, for as long
/// as the system waits for silent nameservers; other names and files need some of them.
const LOOKUPS: usize = 8;

/// Resolves names as the system does, and fails if one of the addresses is refused. The connection goes to the very
/// addresses that were checked, so that a name whose answers change gains nothing.
#[derive(Debug, Clone)]
pub(super) struct CheckedResolver {
    inner: GaiResolver,
    allow_loopback: bool,
    lookups: Lookups,
}

impl CheckedResolver {
    pub(super) fn new(allow_loopback: bool) -> Self {
        Self { inner: GaiResolver::new(), allow_loopback, lookups: Lookups::default() }
    }
}

impl Service<Name> for CheckedResolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<Self::Response, io::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (mut resolver, lookups, allow_loopback) = (self.inner.clone(), self.lookups.clone(), self.allow_loopback);
        Box::pin(async move {
            let resolving = lookups.run(name.as_str().to_owned(), async move { resolver.call(name).await });
            let addresses: Vec<SocketAddr> = resolving.await??.collect();
            for address in &addresses {
                backend::check(address.ip(), allow_loopback)
                    .map_err(|refused| io::Error::new(io::ErrorKind::PermissionDenied, refused))?;
            }
            Ok(addresses.into_iter())
        })
    }
}

/// The lookups under way, by name.
#[derive(Debug, Clone, Default)]
struct Lookups(Arc<Mutex<HashMap<String, Arc<Semaphore>>>>);

impl Lookups {
    /// Waits for a slot among the lookups of this name, and then for the lookup. One that has begun keeps its slot
    /// until it ends, even if nobody waits for it any more, because it keeps its thread.
    async fn run<T: Send + 'static>(
        &self,
        name: String,
        lookup: impl Future<Output = T> + Send + 'static,
    ) -> io::Result<T> {
        let slot = self.of(name).acquire_owned().await.map_err(io::Error::other)?;
        let task = tokio::spawn(async move {
            let _slot = slot;
            lookup.await
        });
        task.await.map_err(io::Error::other)
    }

    fn of(&self, name: String) -> Arc<Semaphore> {
        let mut names = self.0.lock(); // no change of it panics
        names.retain(|_, slots| Arc::strong_count(slots) > 1); // held only by the map: nobody looks it up
        Arc::clone(names.entry(name).or_insert_with(|| Arc::new(Semaphore::new(LOOKUPS))))
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures::future::join_all;
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn silent_nameserver_ties_up_at_most_eight_threads() {
        let lookups = Lookups::default();
        let (begun, mut seen) = mpsc::unbounded_channel();
        let calls: Vec<_> = (0..3 * LOOKUPS)
            .map(|_| {
                let (lookups, begun) = (lookups.clone(), begun.clone());
                let silent = async move {
                    begun.send(()).unwrap();
                    pending::<()>().await
                };
                tokio::spawn(async move { lookups.run("silent.example".to_owned(), silent).await.unwrap() })
            })
            .collect();
        for _ in 0..LOOKUPS {
            seen.recv().await.unwrap();
        }
        for call in &calls {
            call.abort(); // nobody waits any more, and the threads are still taken
        }
        join_all(calls).await;
        let one_more = {
            let (lookups, begun) = (lookups.clone(), begun.clone());
            tokio::spawn(async move { lookups.run("silent.example".to_owned(), async move { begun.send(()) }).await })
        };
        assert_eq!(lookups.run("other.example".to_owned(), async { 7 }).await.unwrap(), 7);
        assert!(seen.try_recv().is_err(), "no ninth lookup began");
        assert!(!one_more.is_finished());
        lookups.of("a-third.example".to_owned());
        assert!(!lookups.0.lock().contains_key("other.example"), "names that nobody looks up are forgotten");
    }
}
