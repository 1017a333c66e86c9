//! An authority whose key the hub makes, and whose certificate Vault signs, once a step of the line needs an authority.
//!
//! The answer is kept beside the key: Vault is asked once for each, also if the hub ends meanwhile or does not use what
//! Vault has signed.

mod client;

use ring::rand::SystemRandom;

use super::pending::{IssuerAnswer, Kept, Pending};
use super::{Question, Supply, not_used};
use crate::authorities::store::{AuthorityStore, StoreError};
use crate::lease::Leads;
use addon_signer_core::encoding::pem;

pub use client::{Vault, VaultOptions};

const NOT_CONFIGURED: &str = "This hub knows no Vault; start it with --vault-address";

impl Question<'_> {
    /// The authority that the PKI secrets engine at `path` has signed, or signs if an authority is wanted.
    pub(super) async fn by_vault(
        &self,
        store: &AuthorityStore,
        leads: &Leads,
        vault: Option<&Vault>,
        path: &str,
    ) -> Result<Supply, StoreError> {
        let Some(vault) = vault else { return Ok(Supply::Refused(NOT_CONFIGURED.to_owned())) };
        let issuer = vault.engine(path);
        let Kept { mut version, pending } = match self.kept(store).await? {
            Ok(kept) => kept,
            Err(why) => return Ok(Supply::Refused(why)),
        };
        let waits = match pending {
            Some(taken) if self.had(&taken.id()) => {
                version = self.forget(store, leads, version).await?;
                None
            }
            waits => waits,
        };
        let asked = waits.as_ref().and_then(|pending| Some((pending, pending.answer.as_ref()?)));
        if let Some((pending, answer)) = asked.filter(|(_, answer)| answer.issuer == issuer) {
            return Ok(self.examine_answer(pending, answer));
        }
        if !self.wanted {
            return Ok(Supply::Nothing(format!("{issuer} to be asked")));
        }
        let (pending, version) = match waits {
            Some(pending) => (pending, version),
            None => match self.new_pending(store, leads, version).await? {
                Ok(new) => new,
                Err(why) => return Ok(Supply::Refused(why)),
            },
        };
        leads.still()?;
        match self.signed(vault, path, &pending).await {
            Ok(chain) => {
                let answer = IssuerAnswer { chain, issuer };
                let supply = self.examine_answer(&pending, &answer);
                self.keep(store, leads, version, &Pending { answer: Some(answer), ..pending }).await?;
                Ok(supply)
            }
            Err(why) => Ok(Supply::Refused(format!("{issuer} has not signed an authority: {why}; the hub asks again"))),
        }
    }

    async fn signed(&self, vault: &Vault, path: &str, pending: &Pending) -> Result<String, String> {
        // Vault refuses a request that says that it is for a CA: it decides that itself.
        let request = self.wish(&pending.key).sign(&pending.key, &SystemRandom::new());
        vault.sign(path, &request.map_err(|error| error.to_string())?, self.authority.duration, self.now).await
    }

    fn examine_answer(&self, pending: &Pending, answer: &IssuerAnswer) -> Supply {
        let origin = format!("the answer of {}", answer.issuer);
        let supply = match pem::certificates(answer.chain.as_bytes()) {
            Ok(chain) => self.examine(&origin, (&chain, &[]), (pending.key.public_key_der(), pending.pkcs8.clone())),
            Err(error) => not_used(&origin, &error),
        };
        match supply {
            Supply::Refused(why) => {
                let secret = self.names.pending();
                Supply::Refused(format!(
                    "{why}; if that lasts, delete the Secret {secret}, and the hub asks for another one"
                ))
            }
            supply => supply,
        }
    }
}
