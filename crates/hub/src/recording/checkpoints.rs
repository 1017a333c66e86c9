//! Publishes signed checkpoints of the ledger for auditors and the next hub: after a thousand entries, or a minute
//! after an entry that no checkpoint covers.
//!
//! The ledger has a key of its own in a Secret: a CA's key signs only certificates, and is replaced in each rotation
//! (decision 0006).

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use ring::rand::SystemRandom;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{debug, error, info, warn};
use zeroize::Zeroizing;

use crate::HubLinks;
use crate::lease::{Leads, NotLeading, NotWritten};
use crate::metrics::Difference;
use addon_signer_api::Lenient;
use addon_signer_core::journal::checkpoint::{Checkpoint, CheckpointError};
use addon_signer_core::journal::entry::Tip;
use addon_signer_core::journal::record::Record;
use addon_signer_core::keys::private::{KeyError, PrivateKey};
use addon_signer_core::keys::public::KeyKind;
pub use addon_signer_core::names::LEDGER_OBJECT;
use addon_signer_ledger::{Health, LedgerError, Location};
use addon_signer_platform::errors::explain;

/// The key of the newest checkpoint in the ConfigMap.
pub const CHECKPOINT: &str = "head.json";
/// The key of a checkpoint that contradicts the ledger, kept as evidence.
pub(crate) const CONTRADICTED: &str = "contradicted-head.json";
/// The type of the Secret.
const SECRET_TYPE: &str = "addon-signer.io/ledger-key";
const KEY: &str = "ed25519.key";
/// A checkpoint is due after this many entries.
const ENTRIES: u64 = 1000;
/// A checkpoint is due this long after an entry that no checkpoint covers.
const AGE: Duration = Duration::from_secs(60);
/// How soon the hub retries publishing a checkpoint.
const RETRY: Duration = Duration::from_secs(5);

/// Why no checkpoint was published; the hub retries.
#[derive(Debug, thiserror::Error)]
enum CheckpointsError {
    #[error("the API server refused the request or did not answer: {}", explain(.0))]
    Api(#[from] kube::Error),
    #[error("the Secret {LEDGER_OBJECT} has no usable key; restore it, or delete it to begin with another key")]
    Secret,
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
}

impl From<NotWritten> for CheckpointsError {
    fn from(error: NotWritten) -> Self {
        match error {
            NotWritten::NotLeading(error) => error.into(),
            NotWritten::Api(error) => error.into(),
        }
    }
}

/// Signs and publishes checkpoints.
pub(crate) struct Checkpoints {
    secrets: Api<Secret>,
    config_maps: Api<Lenient<ConfigMap>>,
    location: Location,
    links: HubLinks,
}

impl Checkpoints {
    /// Checkpoints of the ledger at `location`, in the hub's namespace.
    pub(crate) fn new(links: &HubLinks, namespace: &str, location: Location) -> Self {
        let secrets = Api::namespaced(links.client.clone(), namespace);
        let config_maps = Api::namespaced(links.client.clone(), namespace);
        Self { secrets, config_maps, location, links: links.clone() }
    }

    /// Publishes checkpoints until the ledger's writer ends.
    pub(crate) async fn keep(self) {
        let mut health = self.links.ledger.health();
        let mut published = 0;
        let mut checked = false;
        while let Some(due) = next(&mut health, published).await {
            let Some((id, tip)) = due else { continue };
            match self.publish(&id, tip, &mut checked).await {
                Ok(seq) => published = seq,
                Err(CheckpointsError::Ledger(LedgerError::Stopped)) => return,
                Err(CheckpointsError::Ledger(error)) => {
                    // The ledger's writer has logged the error.
                    debug!(%error, "A checkpoint of the ledger waits for the ledger");
                    sleep(RETRY).await;
                }
                Err(error) => {
                    warn!(%error, "Could not publish a checkpoint of the ledger; the hub retries");
                    sleep(RETRY).await;
                }
            }
        }
    }

    async fn publish(&self, id: &str, tip: Tip, checked: &mut bool) -> Result<u64, CheckpointsError> {
        let key = self.key().await?;
        self.links.ledger.change(Record::CheckpointKey { key: key.public_key_der().to_vec() }, "").await?;
        // The checkpoint also covers the entry that names the key.
        let tip = of(&self.links.ledger.health().borrow(), tip.seq).map_or(tip, |(_, tip)| tip);
        let checkpoint = Checkpoint::sign(id, tip, self.links.clock.now(), &key, &SystemRandom::new())?;
        let found = self.config_maps.get_opt(LEDGER_OBJECT).await?;
        let missing = found.is_none();
        let mut map = found.unwrap_or_else(new_map);
        let data = map.object.data.get_or_insert_default();
        if !*checked && let Some(last) = data.get(CHECKPOINT).cloned() {
            self.compare(&last, id, data).await?;
        }
        data.insert(CHECKPOINT.to_owned(), checkpoint.json());
        self.write(&self.links.leading.leads()?, &map, missing).await?;
        *checked = true;
        Ok(tip.seq)
    }

    async fn write(&self, leads: &Leads, map: &Lenient<ConfigMap>, missing: bool) -> Result<(), CheckpointsError> {
        let params = PostParams::default();
        if missing {
            leads.write(self.config_maps.create(&params, map)).await?;
        } else {
            leads.write(self.config_maps.replace(LEDGER_OBJECT, &params, map)).await?;
        }
        Ok(())
    }

    /// Compares the last published checkpoint with the ledger that was opened. If they contradict each other, the
    /// checkpoint is kept as evidence.
    async fn compare(&self, last: &str, id: &str, data: &mut BTreeMap<String, String>) -> Result<(), CheckpointsError> {
        let contradiction = match Checkpoint::read(last) {
            Ok(checkpoint) if checkpoint.ledger != id => Some("it belongs to another ledger".to_owned()),
            Ok(checkpoint) => self.location.contradicts(&checkpoint).await?,
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = contradiction {
            error!(
                why,
                kept = CONTRADICTED,
                "The ledger contradicts the checkpoint that was published last: it was replaced, restored, cut or \
                 emptied. See \"Restoring a backup\" in docs/operations.md"
            );
            self.links.metrics.differs(Difference::Checkpoint, 1);
            data.entry(CONTRADICTED.to_owned()).or_insert_with(|| last.to_owned());
        }
        Ok(())
    }

    /// Reads the ledger's key, or creates it if there is none. A key that cannot be read is never replaced.
    async fn key(&self) -> Result<PrivateKey, CheckpointsError> {
        let rng = SystemRandom::new();
        if let Some(mut secret) = self.secrets.get_opt(LEDGER_OBJECT).await? {
            let bytes = secret.data.as_mut().and_then(|data| data.remove(KEY)).map(|bytes| Zeroizing::new(bytes.0));
            let key = bytes.and_then(|bytes| PrivateKey::from_pkcs8(&bytes, &rng).ok());
            return key.filter(|key| key.kind() == KeyKind::Ed25519).ok_or(CheckpointsError::Secret);
        }
        let (key, pkcs8) = PrivateKey::generate(KeyKind::Ed25519, &rng)?;
        self.store_key(&self.links.leading.leads()?, &pkcs8).await?;
        Ok(key)
    }

    async fn store_key(&self, leads: &Leads, pkcs8: &[u8]) -> Result<(), CheckpointsError> {
        let secret = Secret {
            metadata: metadata(),
            type_: Some(SECRET_TYPE.to_owned()),
            data: Some(BTreeMap::from([(KEY.to_owned(), ByteString(pkcs8.to_vec()))])),
            ..Secret::default()
        };
        leads.write(self.secrets.create(&PostParams::default(), &secret)).await?;
        info!(secret = LEDGER_OBJECT, "The hub created the key that signs checkpoints of the ledger");
        Ok(())
    }
}

/// Waits until a checkpoint is due; `None` if the writer has ended, `Some(None)` if the ledger is down when it is due.
async fn next(health: &mut watch::Receiver<Health>, published: u64) -> Option<Option<(String, Tip)>> {
    health.wait_for(|health| of(health, published + 1).is_some()).await.ok()?;
    // The first checkpoint of a process is due soon, so that administrators can check that it works.
    let deadline = Instant::now() + if published == 0 { Duration::from_secs(1) } else { AGE };
    let many = async { health.wait_for(|health| of(health, published + ENTRIES).is_some()).await.is_ok() };
    // Either there are many entries, or the time has come.
    match timeout_at(deadline, many).await {
        Ok(false) => None,
        Ok(true) | Err(_) => Some(of(&health.borrow(), 0)),
    }
}

/// The ledger and its tip, if the tip's number is at least `least`.
fn of(health: &Health, least: u64) -> Option<(String, Tip)> {
    match health {
        Health::Up { ledger, tip } if tip.seq >= least => Some((ledger.clone(), *tip)),
        _ => None,
    }
}

fn metadata() -> ObjectMeta {
    let labels = BTreeMap::from([("app.kubernetes.io/managed-by".to_owned(), "addon-signer".to_owned())]);
    ObjectMeta { name: Some(LEDGER_OBJECT.to_owned()), labels: Some(labels), ..ObjectMeta::default() }
}

fn new_map() -> Lenient<ConfigMap> {
    Lenient::from(ConfigMap { metadata: metadata(), ..ConfigMap::default() })
}
