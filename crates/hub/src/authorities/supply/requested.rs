//! An authority whose key the hub makes, and whose certificate an administrator brings days later: `ca csr`, `ca
//! import`. The key waits in a Secret of its own and never leaves it.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use ring::rand::SystemRandom;
use zeroize::Zeroizing;

use super::{Answer, Question, Supply, not_used};
use crate::authorities::store::{AuthorityStore, StoreError};
use crate::lease::Leads;
use addon_signer_core::ca::authority::{Authority, AuthorityId};
use addon_signer_core::csr::build::CsrParams;
use addon_signer_core::encoding::pem;
use addon_signer_core::keys::private::PrivateKey;

const KEY: &str = "tls.key";
const REQUEST: &str = "request.csr";
const ORIGIN: &str = "the certificate of `ca import`";
/// What a rotation waits for.
const NEXT: &str = "the certificate of the request that `ca csr` prints (`ca import`)";

/// A key that waits for its certificate.
struct Pending {
    key: PrivateKey,
    pkcs8: Zeroizing<Vec<u8>>,
    request: String,
}

impl Question<'_> {
    /// The request of the next authority, and the authority if its certificate was brought.
    pub(super) async fn requested(&self, store: &AuthorityStore, leads: &Leads) -> Result<Answer, StoreError> {
        let pending = match self.pending(store, leads).await? {
            Ok(pending) => pending,
            Err(why) => return Ok(Supply::Refused(why).into()),
        };
        let supply = match self.brought {
            None => Supply::Nothing(NEXT.to_owned()),
            Some(text) => self.answer(text, &pending),
        };
        Ok(Answer { supply, request: Some(pending.request) })
    }

    /// What became of the certificate that was brought last.
    fn answer(&self, text: &str, pending: &Pending) -> Supply {
        let Some(chain) = pem::certificates(text.as_bytes()) else {
            return not_used(ORIGIN, &"it has something other than certificates in PEM");
        };
        let first = chain.first().and_then(|der| Authority::from_der(der).ok());
        if first.as_ref().is_some_and(|first| self.had(first.id())) {
            return Supply::Nothing(NEXT.to_owned());
        }
        let id = first.map_or_else(String::new, |first| format!(" ({})", first.id()));
        self.examine(&format!("{ORIGIN}{id}"), (&chain, &[]), (pending.key.public_key_der(), pending.pkcs8.clone()))
    }

    /// Whether the line has this authority, or has given it up.
    fn had(&self, id: &AuthorityId) -> bool {
        self.line.is_some_and(|line| {
            [line.rolled_back(), line.dropped()].contains(&Some(id))
                || line.members().iter().any(|member| member.authority.id() == id)
        })
    }

    /// The key that waits. A new one is made if there is none, or if the line has taken it.
    async fn pending(&self, store: &AuthorityStore, leads: &Leads) -> Result<Result<Pending, String>, StoreError> {
        let name = self.names.pending();
        let found = store.secret(&name).await?;
        if let Some(secret) = &found {
            let data = secret.0.data.clone().unwrap_or_default();
            match read(&data) {
                Some(pending) if !self.had(&AuthorityId::of(pending.key.public_key_der())) => return Ok(Ok(pending)),
                Some(_) => {}
                None => return Ok(Err(format!("The Secret {name} has no readable key: delete it for a new request"))),
            }
        }
        let pending = match self.make() {
            Ok(pending) => pending,
            Err(why) => return Ok(Err(why)),
        };
        let key = pem::encode_private(&pending.pkcs8);
        let data = BTreeMap::from([
            (KEY.to_owned(), ByteString(key.as_bytes().to_vec())),
            (REQUEST.to_owned(), ByteString(pending.request.clone().into_bytes())),
        ]);
        store.keep_pending(leads, self.names, found, data).await?;
        Ok(Ok(pending))
    }

    fn make(&self) -> Result<Pending, String> {
        let rng = SystemRandom::new();
        let (key, pkcs8) = PrivateKey::generate(self.authority.key, &rng).map_err(|error| error.to_string())?;
        let common_name = format!("{} {}", self.names.authority, AuthorityId::of(key.public_key_der()));
        let wish = CsrParams { common_name, ..CsrParams::default() };
        let request = wish.sign_for_authority(&key, &rng).map_err(|error| error.to_string())?;
        Ok(Pending { key, pkcs8, request })
    }
}

fn read(data: &BTreeMap<String, ByteString>) -> Option<Pending> {
    let (key, pkcs8) = PrivateKey::from_pem(&data.get(KEY)?.0, &SystemRandom::new()).ok()?;
    let request = String::from_utf8(data.get(REQUEST)?.0.clone()).ok()?;
    Some(Pending { key, pkcs8, request })
}
