//! Flags about who issues authorities.

use std::path::PathBuf;

use addon_signer_api::authority::AuthoritySource;
use addon_signer_api::cert_manager::{CERT_MANAGER_GROUP, IssuerRef};
use addon_signer_hub::authorities::supply::VaultOptions;
use clap::Args;
use hyper::Uri;

/// The Vault that may be asked for authorities.
#[derive(Debug, Clone, Args)]
pub struct VaultArgs {
    /// The Vault that issues authorities where an AddOnSigner or --serving-issuer says so, as https://HOST[:PORT].
    #[arg(long, env = "ADDON_SIGNER_VAULT_ADDRESS", value_name = "URL", value_parser = address)]
    vault_address: Option<Uri>,
    /// The CA certificates, in PEM, that verify Vault's certificate.
    #[arg(long, env = "ADDON_SIGNER_VAULT_CA", value_name = "FILE", default_value = "/etc/vault/ca/ca.crt")]
    vault_ca: PathBuf,
    /// The role of Vault's Kubernetes auth method that the hub logs in as.
    #[arg(long, env = "ADDON_SIGNER_VAULT_ROLE", value_name = "NAME", default_value = "addon-signer")]
    vault_role: String,
    /// Where that auth method is mounted.
    #[arg(long, env = "ADDON_SIGNER_VAULT_AUTH", value_name = "PATH",
          default_value = "kubernetes", value_parser = path)]
    vault_auth: String,
    /// The token of the hub's ServiceAccount for Vault.
    #[arg(long, env = "ADDON_SIGNER_VAULT_TOKEN", value_name = "FILE", default_value = "/etc/vault/token/token")]
    vault_token: PathBuf,
}

impl VaultArgs {
    /// The options; `None` without an address.
    pub(super) fn options(self) -> Option<VaultOptions> {
        let Self { vault_address, vault_ca: ca, vault_role: role, vault_auth: auth, vault_token: token } = self;
        vault_address.map(|address| VaultOptions { address, ca, role, auth, token })
    }
}

/// Who issues authorities of the gateway's certificate.
pub(super) fn issuer(text: &str) -> Result<AuthoritySource, String> {
    match text.split_once(':') {
        None if text == "SelfSigned" => Some(AuthoritySource::Made),
        None if text == "Imported" => Some(AuthoritySource::Request),
        Some(("Imported", secret)) if !secret.is_empty() => Some(AuthoritySource::Secret(secret.to_owned())),
        Some(("CertManager", issuer)) => issuer_ref(issuer).map(AuthoritySource::CertManager),
        Some(("Vault", path)) if is_path(path) => Some(AuthoritySource::Vault(path.to_owned())),
        _ => None,
    }
    .ok_or_else(|| "not SelfSigned, Imported, Imported:SECRET, CertManager:KIND/NAME or Vault:PATH".to_owned())
}

/// The same as the schema of AddOnSigners permits.
fn is_path(text: &str) -> bool {
    let is_part = |part: &str| {
        let starts = part.starts_with(|first: char| first != '.');
        starts && part.chars().all(|it| it.is_ascii_alphanumeric() || matches!(it, '_' | '-' | '.'))
    };
    text.split('/').all(is_part)
}

fn path(text: &str) -> Result<String, String> {
    if is_path(text) { Ok(text.to_owned()) } else { Err("not a path such as pki or team/pki".to_owned()) }
}

fn address(text: &str) -> Result<Uri, String> {
    let uri: Option<Uri> = text.parse().ok(); // the sentence below says what is expected
    let is_address = |uri: &Uri| {
        let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        uri.scheme_str() == Some("https") && uri.path() == "/" && uri.query().is_none() && !has_user
    };
    uri.filter(is_address).ok_or_else(|| "not https://HOST[:PORT]".to_owned())
}

fn issuer_ref(text: &str) -> Option<IssuerRef> {
    let (kind, name) = text.split_once('/')?;
    let (kind, group) = kind.split_once('.').unwrap_or((kind, CERT_MANAGER_GROUP));
    let is_named = ![kind, group, name].contains(&"") && !name.contains('/');
    is_named.then(|| IssuerRef { name: name.to_owned(), kind: kind.to_owned(), group: group.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_vault_is_https_without_a_path() {
        assert_eq!(address("https://vault.example.com:8200").unwrap(), "https://vault.example.com:8200/");
        for bad in
            ["http://vault", "vault:8200", "https://vault/v1", "https://vault?x=y", "https://a@vault", "https://"]
        {
            assert!(address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_issuer_of_cert_manager_has_a_kind_and_a_name() {
        let read = |text: &str| match issuer(text) {
            Ok(AuthoritySource::CertManager(IssuerRef { name, kind, group })) => Some([kind, group, name]),
            _ => None,
        };
        let expected = |parts: [&str; 3]| Some(parts.map(str::to_owned));
        assert_eq!(read("CertManager:ClusterIssuer/a"), expected(["ClusterIssuer", "cert-manager.io", "a"]));
        assert_eq!(read("CertManager:X.example.com/a.b"), expected(["X", "example.com", "a.b"]));
        for bad in [
            "CertManager",
            "CertManager:",
            "CertManager:a",
            "CertManager:/a",
            "CertManager:Issuer/",
            "CertManager:Issuer./a",
            "CertManager:Issuer/a/b",
            "Imported:",
            "SelfSigned:a",
            "Vault",
            "Vault:",
            "Vault:/pki",
            "Vault:pki/../sys",
        ] {
            assert!(issuer(bad).is_err(), "{bad}");
        }
    }
}
