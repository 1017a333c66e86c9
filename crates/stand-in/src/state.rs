//! What all connections share: the objects, the known callers, and the signal that wakes the watches.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::{Mutex, RwLock};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::auth::User;
use super::resources::{RESOURCES, Resource};
use super::status::ApiError;
use super::store::{Stamp, Store, Write, definition_key};
use super::{fields, writes};

/// The alphabet of apimachinery's `rand.String`: no vowels, and no characters that look alike.
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

const NO_RANDOM: &str = "the system has no random numbers";

/// The state that all connections of one stand-in share.
#[derive(Debug)]
pub(super) struct Hub {
    store: Mutex<Store>,
    tokens: RwLock<HashMap<String, User>>,
    revision: watch::Sender<u64>,
    random: SystemRandom,
    /// A random key that bearer tokens are derived from.
    token_key: hmac::Key,
    /// How many seconds the clock that stamps objects is ahead of the machine's.
    pub(super) ahead: AtomicI64,
    /// Ends the watches when the hub is dropped.
    pub(super) stop: CancellationToken,
}

impl Hub {
    /// A hub with the namespaces that every cluster has.
    pub(super) fn new() -> Result<Self, ApiError> {
        let random = SystemRandom::new();
        let token_key =
            hmac::Key::generate(hmac::HMAC_SHA256, &random).map_err(|_| ApiError::Internal(NO_RANDOM.into()))?;
        let hub = Self {
            store: Mutex::default(),
            tokens: RwLock::default(),
            revision: watch::Sender::new(0),
            random,
            token_key,
            ahead: AtomicI64::new(0),
            stop: CancellationToken::new(),
        };
        let namespaces = Resource::find("", "v1", "namespaces").ok_or(ApiError::NoSuchPath)?;
        let user = User::new("system:apiserver", &["system:masters"]);
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            let write = Write {
                resource: namespaces,
                subresource: None,
                namespace: "",
                user: &user,
                stamp: hub.stamp()?,
                dry_run: false,
                strict: false,
            };
            let namespace = json!({ "metadata": { "name": name } });
            hub.write(|store| writes::create(store, &write, namespace))?;
        }
        Ok(hub)
    }

    /// The resources that are now served.
    pub(super) fn served(&self) -> Vec<&'static Resource> {
        let is_defined = |resource: &Resource| self.read(|store| store.get(&definition_key(resource)).is_some());
        RESOURCES.iter().filter(|resource| !resource.on_demand || is_defined(resource)).collect()
    }

    /// Calls `look` with the objects.
    pub(super) fn read<R>(&self, read: impl FnOnce(&Store) -> R) -> R {
        read(&self.store.lock())
    }

    /// Changes the objects in one step, and wakes the watches.
    pub(super) fn write<R>(&self, change: impl FnOnce(&mut Store) -> R) -> R {
        let mut store = self.store.lock();
        let result = change(&mut store);
        let revision = store.revision();
        drop(store);
        self.revision.send_if_modified(|seen| {
            let newer = revision > *seen;
            *seen = revision.max(*seen);
            newer
        });
        result
    }

    /// A receiver that is notified after each write.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// The caller of a request with these headers.
    pub(super) fn caller(&self, headers: &hyper::HeaderMap) -> Result<User, ApiError> {
        let tokens = self.tokens.read();
        super::auth::caller(headers, &tokens)
    }

    /// Makes a bearer token for a user. It cannot be guessed, and each call returns another one.
    pub(super) fn admit(&self, user: User) -> String {
        let mut tokens = self.tokens.write();
        let tag = hmac::sign(&self.token_key, &tokens.len().to_be_bytes());
        let token: String = tag.as_ref().iter().map(|b| format!("{b:02x}")).collect();
        tokens.insert(token.clone(), user);
        token
    }

    /// The time and the random parts for one write.
    pub(super) fn stamp(&self) -> Result<Stamp, ApiError> {
        let suffix = self.random_bytes::<5>()?;
        let letters = suffix.iter().filter_map(|byte| {
            let place = usize::from(*byte) % SUFFIX_ALPHABET.len();
            SUFFIX_ALPHABET.get(place).map(|letter| char::from(*letter))
        });
        let now = now().saturating_add(self.ahead.load(Ordering::Relaxed));
        Ok(Stamp { now: fields::timestamp(now), uid: self.uid()?, suffix: letters.collect() })
    }

    /// A random UUID (RFC 9562, version 4).
    fn uid(&self) -> Result<String, ApiError> {
        let number = u128::from_be_bytes(self.random_bytes()?);
        let version = number & !(0xf_u128 << 76) | 0x4_u128 << 76;
        let variant = version & !(0x3_u128 << 62) | 0x2_u128 << 62;
        let hex = format!("{variant:032x}");
        let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
        Ok(format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)))
    }

    fn random_bytes<const N: usize>(&self) -> Result<[u8; N], ApiError> {
        let mut bytes = [0_u8; N];
        self.random.fill(&mut bytes).map_err(|_| ApiError::Internal(NO_RANDOM.into()))?;
        Ok(bytes)
    }
}

/// Seconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "an API server stamps objects with its own clock; the core never sees it"
)]
pub(super) fn now() -> i64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}
