//! A lineage of authorities in the data of one Secret: `line.json` has the state of each authority, `<id>.crt` has its
//! certificate chain, and `<id>.key` its PKCS#8 key.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use ring::rand::SystemRandom;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::ca::chain::Certified;
use addon_signer_core::ca::issuer::Issuer;
use addon_signer_core::ca::lineage::{Lineage, Member};
use addon_signer_core::keys::private::PrivateKey;
use addon_signer_core::timestamp::Timestamp;

const LINEAGE_KEY: &str = "line.json";

/// A lineage with the keys of its authorities.
pub struct StoredLineage {
    /// The authorities and their states.
    pub lineage: Lineage,
    /// The authority that signs, with its key.
    pub issuer: Issuer,
    pub(super) secret: WipedSecret,
}

impl fmt::Debug for StoredLineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lineage, issuer: _, secret: _ } = self;
        write!(f, "StoredLineage({} authorities, keys private)", lineage.members().len())
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StoredState {
    /// The owner of the authorities. Secrets of earlier hubs lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    authorities: Vec<StoredMember>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    handled_request: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rolled_back: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gone: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StoredMember {
    id: String,
    state: String,
    since: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    leaves_expire: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    activate_after: Option<i64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    forced: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    tainted: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to_revoke: Option<String>,
    /// Whether others trust its root.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    by_root: bool,
}

impl StoredLineage {
    /// The `resourceVersion` of the Secret.
    pub(super) fn version(&self) -> Option<&str> {
        self.secret.0.metadata.resource_version.as_deref()
    }
}

/// The owner of the authorities, by the Secret's content; `None` if the content lacks it or cannot be read.
pub(super) fn owner(secret: &Secret) -> Option<String> {
    #[derive(Deserialize)]
    struct Owned {
        owner: Option<String>,
    }
    let state = secret.data.as_ref()?.get(LINEAGE_KEY)?;
    // Reading the whole content reports any other error.
    serde_json::from_slice::<Owned>(&state.0).ok()?.owner
}

/// The Secret's data for `lineage`, which belongs to `owner`: certificates from the lineage, keys from `keys`, and the
/// new key for the newest authority.
pub(super) fn data(
    owner: &str,
    lineage: &Lineage,
    keys: &BTreeMap<String, ByteString>,
    new_key: Option<&[u8]>,
) -> Result<BTreeMap<String, ByteString>, serde_json::Error> {
    let mut data = BTreeMap::new();
    let newest = lineage.next().or_else(|| lineage.active()).map(|member| member.authority.id());
    for member in lineage.members() {
        let id = member.authority.id();
        data.insert(format!("{id}.crt"), ByteString(member.certified.pem().into_bytes()));
        let name = format!("{id}.key");
        let key = match (keys.get(&name), new_key) {
            (Some(key), _) => key.clone(),
            (None, Some(pkcs8)) if newest == Some(id) => {
                ByteString(addon_signer_core::encoding::pem::encode_private(pkcs8).as_bytes().to_vec())
            }
            (None, _) => continue,
        };
        data.insert(name, key);
    }
    let authorities = lineage.members().iter().map(stored_member).collect();
    let handled_request = lineage.handled_request().map(str::to_owned);
    let rolled_back = lineage.rolled_back().map(ToString::to_string);
    let gone = lineage.gone().iter().map(ToString::to_string).collect();
    let owner = Some(owner.to_owned());
    let state = StoredState { owner, authorities, handled_request, rolled_back, gone };
    data.insert(LINEAGE_KEY.to_owned(), ByteString(serde_json::to_vec(&state)?));
    Ok(data)
}

fn stored_member(member: &Member) -> StoredMember {
    StoredMember {
        id: member.authority.id().to_string(),
        state: member.state.to_string(),
        since: member.since.unix(),
        leaves_expire: member.leaves_expire.map(Timestamp::unix),
        activate_after: member.activate_after.map(Timestamp::unix),
        forced: member.forced,
        tainted: member.tainted,
        to_revoke: member.to_revoke.clone(),
        by_root: member.certified.is_trusted_by_root(),
    }
}

/// Reads and checks a lineage: one authority that cannot be read makes the whole lineage unreadable.
pub(super) fn read(secret: WipedSecret) -> Result<StoredLineage, String> {
    let empty = BTreeMap::new();
    let data = secret.0.data.as_ref().unwrap_or(&empty);
    let field = |name: &str| field(data, name);
    let state: StoredState =
        serde_json::from_slice(field(LINEAGE_KEY)?).map_err(|error| format!("{LINEAGE_KEY}: {error}"))?;
    let mut members = Vec::new();
    for stored in &state.authorities {
        let pem = field(&format!("{}.crt", stored.id))?;
        let mut member = read_member(stored, pem).map_err(|cause| format!("{}.crt: {cause}", stored.id))?;
        member.has_key = issuer(data, &member).is_ok(); // an Old's key is needed only for a rollback
        members.push(member);
    }
    let rolled_back = state.rolled_back.as_deref().map(AuthorityId::from);
    let lineage = Lineage::restore(members, state.handled_request, rolled_back);
    let lineage = lineage.map_err(|error| format!("{LINEAGE_KEY}: {error}"))?;
    let lineage = lineage.with_gone(state.gone.iter().map(|id| AuthorityId::from(id.as_str())).collect());
    let active = issuer(data, lineage.active().ok_or_else(|| format!("{LINEAGE_KEY}: it names no active authority"))?)?;
    // Check the key of Next while Active still signs: later it would be too late.
    lineage.next().map(|next| issuer(data, next)).transpose()?;
    Ok(StoredLineage { lineage, issuer: active, secret })
}

fn field<'d>(data: &'d BTreeMap<String, ByteString>, name: &str) -> Result<&'d [u8], String> {
    data.get(name).map(|bytes| bytes.0.as_slice()).ok_or_else(|| format!("{name} is missing"))
}

/// The authority with its key.
fn issuer(data: &BTreeMap<String, ByteString>, member: &Member) -> Result<Issuer, String> {
    let name = format!("{}.key", member.authority.id());
    let named = |cause: &dyn fmt::Display| format!("{name}: {cause}");
    let key = read_key(field(data, &name)?).map_err(|cause| named(&cause))?;
    Issuer::new(member.authority.clone(), key).map_err(|error| named(&error))
}

fn read_member(stored: &StoredMember, pem: &[u8]) -> Result<Member, String> {
    let certified = Certified::read(pem).map_err(|error| error.to_string())?;
    let certified = if stored.by_root { certified.trusted_by_root() } else { Ok(certified) };
    let certified = certified.map_err(|error| error.to_string())?;
    let authority = certified.authority().clone();
    if authority.id().as_str() != stored.id {
        return Err(format!("it belongs to the authority {}", authority.id()));
    }
    Ok(Member {
        authority,
        certified,
        state: stored.state.parse().map_err(|error: addon_signer_core::ca::lineage::UnknownState| error.to_string())?,
        since: Timestamp::from_unix(stored.since),
        leaves_expire: stored.leaves_expire.map(Timestamp::from_unix),
        activate_after: stored.activate_after.map(Timestamp::from_unix),
        forced: stored.forced,
        has_key: true,
        tainted: stored.tainted,
        to_revoke: stored.to_revoke.clone(),
    })
}

fn read_key(pem: &[u8]) -> Result<PrivateKey, String> {
    use rustls_pki_types::PrivatePkcs8KeyDer;
    use rustls_pki_types::pem::PemObject;
    let der = PrivatePkcs8KeyDer::from_pem_slice(pem)
        .map_err(|_| "it is not a PEM block of the type PRIVATE KEY".to_owned())?;
    let der = Zeroizing::new(der);
    PrivateKey::from_pkcs8(der.secret_pkcs8_der(), &SystemRandom::new()).map_err(|error| error.to_string())
}

/// A Secret whose keys are overwritten in memory when it is dropped.
pub(super) struct WipedSecret(pub(super) Secret);

impl Drop for WipedSecret {
    fn drop(&mut self) {
        for bytes in self.0.data.iter_mut().flat_map(|data| data.values_mut()) {
            bytes.0.zeroize();
        }
    }
}
