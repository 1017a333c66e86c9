//! Reads kubeconfigs: one function for hub, agent and commands. What it accepts makes no layer of kube panic, and each
//! fault names the file and the field, as `kubectl config set` writes it. No fault quotes a value that may be a secret.

mod checks;

use std::ffi::OsString;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use data_encoding::BASE64;
use http::Uri;
use kube::config::{self, AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::connection::connect_with;
use crate::contacts::Contacts;
use crate::credentials::{Credentials, Source};
use crate::errors::explain;
use crate::proxy::{Dialer, ProxyError};

/// Which cluster to talk to.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Access {
    /// The hub's kubeconfig [default: KUBECONFIG, ~/.kube/config, or the pod's account].
    #[arg(long, env = "ADDON_SIGNER_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context in the kubeconfig [default: its current-context].
    #[arg(long, env = "ADDON_SIGNER_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,
}

/// What to do with a user that has `exec`: a program that prints credentials (client-go's credential plugins), as EKS
/// and GKE require.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plugins {
    /// Run it.
    Run,
    /// Refuse the kubeconfig, because others may write it. They choose the server too, so a token is read only from a
    /// file beside the kubeconfig.
    Refuse,
}

/// Why there is no client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KubeconfigError {
    /// A file is unreadable, or it is no kubeconfig, or a field of it cannot be used.
    #[error("the kubeconfig {files} cannot be used: {cause}")]
    Unusable {
        /// The file, or all files of `KUBECONFIG`.
        files: String,
        /// Why.
        cause: String,
    },
    /// No file was named, and no default location has a kubeconfig.
    #[error("no kubeconfig can be used; give --kubeconfig, set KUBECONFIG, or run in a pod: {0}")]
    Missing(String),
    /// The environment names a proxy that cannot be used.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
}

/// A cluster, for people: the context and the API server's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterAddress {
    context: Option<String>,
    server: Uri,
}

impl fmt::Display for ClusterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = self.server.to_string();
        let server = server.trim_end_matches('/');
        match &self.context {
            Some(context) => write!(f, "context {} ({server})", context.escape_debug()),
            None => write!(f, "the pod's own cluster ({server})"),
        }
    }
}

/// The settings of a client, and where they are from.
pub struct ClientSettings {
    /// What kube sees of them.
    pub config: Config,
    credentials: Option<Credentials>,
    /// The cluster.
    pub target: ClusterAddress,
    files: String,
    user: String,
    cluster: String,
}

/// A field of a kubeconfig that cannot be used.
#[derive(Debug, PartialEq, Eq)]
struct Fault(String, String);

impl Fault {
    fn new(field: impl Into<String>, cause: impl fmt::Display) -> Self {
        Self(field.into(), cause.to_string())
    }
}

/// Reads the settings of a client: from the file that is named, else from the files of `KUBECONFIG`, else from
/// `~/.kube/config`. Without any of them they are those of the pod's own account.
pub async fn find(access: &Access, plugins: Plugins) -> Result<ClientSettings, KubeconfigError> {
    let files = files(access);
    let merged = merge(&files, access.kubeconfig.is_some(), plugins)?;
    if merged.contexts.is_empty() && merged.clusters.is_empty() && access.kubeconfig.is_none() {
        return in_pod(access, &files);
    }
    let files = shown(&files);
    let chosen = choose(merged, access.context.as_deref(), plugins).await.map_err(|Fault(field, cause)| {
        KubeconfigError::Unusable { files: files.clone(), cause: format!("{field}: {cause}") }
    });
    let mut found = ClientSettings { files, ..chosen? };
    if found.config.proxy_url.is_none() {
        found.config.proxy_url = Dialer::from_env().proxy_of_env(&found.target.server)?;
    }
    Ok(found)
}

impl ClientSettings {
    /// A client, which notes in `contacts` when it hears from the API server. Runs a credential plugin.
    pub(crate) async fn connect(&self, contacts: Contacts) -> Result<Client, KubeconfigError> {
        let mut config = self.config.clone();
        let mut from = self.user.clone();
        if let Some(credentials) = &self.credentials {
            let unusable = |error| KubeconfigError::Unusable { files: self.files.clone(), cause: format!("{error}") };
            if let Some(identity) = credentials.begin().await.map_err(unusable)? {
                config.auth_info.client_certificate_data = Some(BASE64.encode(identity.certificate.as_bytes()));
                config.auth_info.client_key_data = Some(BASE64.encode(identity.key.as_bytes()).into());
                from.push_str(".exec");
            }
        }
        let user = config.auth_info.clone();
        connect_with(config, self.credentials.clone(), contacts).map_err(|error| KubeconfigError::Unusable {
            files: self.files.clone(),
            cause: self.cause(&error, &user, &from),
        })
    }

    /// Why no client can be made for this user, whose fields are at `from`.
    fn cause(&self, error: &kube::Error, user: &AuthInfo, from: &str) -> String {
        let Fault(field, cause) = match error {
            kube::Error::Service(cause) => return explain(&**cause),
            kube::Error::RustlsTls(kube::client::RustlsTlsError::AddRootCertificate(_)) => {
                Fault::new(format!("{}.certificate-authority", self.cluster), explain(error))
            }
            error => checks::pair(user, from).unwrap_or_else(|| Fault::new(from, explain(error))),
        };
        format!("{field}: {cause}")
    }
}

fn files(access: &Access) -> Vec<PathBuf> {
    if let Some(file) = &access.kubeconfig {
        return vec![file.clone()];
    }
    let named = std::env::var_os("KUBECONFIG").unwrap_or_default();
    let listed: Vec<_> = std::env::split_paths(&named).filter(|file| !file.as_os_str().is_empty()).collect();
    if !listed.is_empty() {
        return listed;
    }
    let home = std::env::var_os("HOME").filter(|home: &OsString| !home.is_empty());
    home.map(|home| Path::new(&home).join(".kube/config")).into_iter().collect()
}

fn shown(files: &[PathBuf]) -> String {
    files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(":")
}

/// All files as one kubeconfig. As with kubectl, a missing file counts as empty, unless it alone was named.
fn merge(files: &[PathBuf], is_needed: bool, plugins: Plugins) -> Result<Kubeconfig, KubeconfigError> {
    let mut merged = Kubeconfig::default();
    for file in files {
        let unusable = |cause: String| KubeconfigError::Unusable { files: file.display().to_string(), cause };
        let bytes = match std::fs::read(file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound && !is_needed => continue,
            Err(error) => return Err(unusable(format!("it cannot be read: {error}"))),
        };
        let mut read = parse(&bytes).map_err(unusable)?;
        // As with kubectl, an empty name counts as none, so that the next file's counts.
        read.current_context.take_if(|name| name.is_empty());
        let directory = file.parent().unwrap_or(Path::new(""));
        resolve(&mut read, directory);
        if plugins == Plugins::Refuse {
            only_beside(&read, directory).map_err(|Fault(field, cause)| unusable(format!("{field}: {cause}")))?;
        }
        merged = merged.merge(read).map_err(|error| unusable(explain(&error)))?;
    }
    Ok(merged)
}

/// Reads a kubeconfig. The text of a YAML error would show the surrounding lines, with any tokens, keys and passwords
/// in them.
fn parse(bytes: &[u8]) -> Result<Kubeconfig, String> {
    let text = decode(bytes).ok_or("it is text neither in UTF-8 nor in UTF-16")?;
    Kubeconfig::from_yaml(&text).map_err(|error| match error {
        config::KubeconfigError::Parse(error) => match error.location() {
            Some(at) => format!("it is not a kubeconfig in YAML; see line {}, column {}", at.line(), at.column()),
            None => "it is not a kubeconfig in YAML".to_owned(),
        },
        error => explain(&error),
    })
}

/// The text of a file, which PowerShell may have written in UTF-16. kube's reader panics at half a character.
fn decode(bytes: &[u8]) -> Option<String> {
    let utf16 = |bytes: &[u8], read: fn([u8; 2]) -> u16| {
        let (pairs, rest) = bytes.as_chunks();
        let units: Vec<u16> = pairs.iter().map(|pair| read(*pair)).collect();
        String::from_utf16(&units).ok().filter(|_| rest.is_empty())
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] | rest => String::from_utf8(rest.to_vec()).ok(),
    }
}

/// Paths in a kubeconfig are relative to its own directory.
fn resolve(config: &mut Kubeconfig, directory: &Path) {
    let absolute = |file: &mut Option<String>| {
        if let Some(text) = file.as_mut().filter(|text| !text.is_empty())
            && let Some(joined) = directory.join(&text).to_str()
        {
            *text = joined.to_owned();
        }
    };
    for cluster in config.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        absolute(&mut cluster.certificate_authority);
    }
    for user in config.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        absolute(&mut user.client_certificate);
        absolute(&mut user.client_key);
        absolute(&mut user.token_file);
        // A name without a slash is looked up in PATH.
        if let Some(exec) = user.exec.as_mut().filter(|exec| exec.command.as_ref().is_some_and(|it| it.contains('/'))) {
            absolute(&mut exec.command);
        }
    }
}

/// Refuses tokens from elsewhere, such as that of the pod's own account.
fn only_beside(config: &Kubeconfig, directory: &Path) -> Result<(), Fault> {
    let resolved = |path: &Path| std::fs::canonicalize(if path.as_os_str().is_empty() { Path::new(".") } else { path });
    let is_beside = |file: &str| {
        let of_file = Path::new(file).parent().and_then(|parent| resolved(parent).ok());
        of_file.zip(resolved(directory).ok()).is_some_and(|(file, own)| file.starts_with(own))
    };
    for user in &config.auth_infos {
        let file = user.auth_info.as_ref().and_then(|it| it.token_file.as_deref());
        if file.is_some_and(|file| !file.is_empty() && !is_beside(file)) {
            let field = format!("{}.tokenFile", field("users", &user.name));
            return Err(Fault::new(field, "it is in another directory than the kubeconfig"));
        }
    }
    Ok(())
}

fn in_pod(access: &Access, files: &[PathBuf]) -> Result<ClientSettings, KubeconfigError> {
    let nothing = format!("{} has nothing", shown(files));
    if let Some(context) = &access.context {
        return Err(KubeconfigError::Missing(format!(
            "{nothing}, so not the context {} either",
            context.escape_debug()
        )));
    }
    let config = Config::incluster()
        .map_err(|error| KubeconfigError::Missing(format!("{nothing}; not in a pod: {}", explain(&error))))?;
    let target = ClusterAddress { context: None, server: config.cluster_url.clone() };
    let account = "the pod's own account".to_owned();
    let files = "of the pod".to_owned();
    Ok(ClientSettings { config, credentials: None, target, files, user: account.clone(), cluster: account })
}

/// The settings of one context.
async fn choose(mut all: Kubeconfig, wanted: Option<&str>, plugins: Plugins) -> Result<ClientSettings, Fault> {
    let name = wanted.filter(|name| !name.is_empty()).map(str::to_owned).or_else(|| all.current_context.clone());
    let name = name.ok_or_else(|| Fault::new("current-context", "it is not set; name a context by --context"))?;
    let names = || all.contexts.iter().map(|it| it.name.escape_debug().to_string()).collect::<Vec<_>>().join(", ");
    let context = all.contexts.iter().find(|it| it.name == name);
    let context =
        context.ok_or_else(|| Fault::new(field("contexts", &name), format!("there are only: {}", names())))?;
    let context = context.context.as_ref().ok_or_else(|| Fault::new(field("contexts", &name), "it is empty"))?;
    let (cluster_name, user_name) = (context.cluster.clone(), context.user.clone().filter(|user| !user.is_empty()));
    let missing =
        |field: &str| Fault::new(field, format!("context {} names it, and it is missing", name.escape_debug()));
    let cluster_field = field("clusters", &cluster_name);
    let cluster = all.clusters.iter_mut().find(|it| it.name == cluster_name).and_then(|it| it.cluster.as_mut());
    let cluster = cluster.ok_or_else(|| missing(&cluster_field))?;
    let (server, own_proxy) = checks::cluster(&cluster_field, cluster)?;
    let user_field = field("users", user_name.as_deref().unwrap_or_default());
    if let Some(user_name) = user_name {
        let user = all.auth_infos.iter_mut().find(|it| it.name == user_name).and_then(|it| it.auth_info.as_mut());
        checks::user(&user_field, user.ok_or_else(|| missing(&user_field))?, plugins)?;
    }
    let options = KubeConfigOptions { context: Some(name.clone()), ..KubeConfigOptions::default() };
    let authority = |cause: String| Fault::new(format!("{cluster_field}.certificate-authority"), cause);
    // Everything else was checked before.
    let mut config = Config::from_custom_kubeconfig(all, &options).await.map_err(|error| authority(explain(&error)))?;
    if config.root_cert.as_ref().is_some_and(Vec::is_empty) {
        return Err(authority("it has no certificate in PEM".to_owned()));
    }
    config.proxy_url = own_proxy;
    let has_own = config.proxy_url.is_some();
    if let Some(cluster) = config.auth_info.exec.as_mut().and_then(|exec| exec.cluster.as_mut()).filter(|_| !has_own) {
        cluster.proxy_url = None; // ours of `checks::cluster`
    }
    let target = ClusterAddress { context: Some(name), server };
    let credentials = take_credentials(&mut config.auth_info, &user_field);
    Ok(ClientSettings { config, credentials, target, files: String::new(), user: user_field, cluster: cluster_field })
}

/// Takes the credentials that kube must not see, because it would run the program and read the file itself. As with
/// kube, all other credentials of the user come first.
fn take_credentials(user: &mut AuthInfo, field: &str) -> Option<Credentials> {
    let (exec, file) = (user.exec.take(), user.token_file.take());
    let has_password = user.username.is_some() && user.password.is_some();
    if user.token.is_some() || has_password {
        return None;
    }
    let source = match file {
        Some(file) => Source::File(file.into()),
        None => Source::Program(Box::new(exec?)),
    };
    Some(Credentials::new(source, field))
}

fn field(list: &str, name: &str) -> String {
    format!("{list}.{}", name.escape_debug())
}

#[cfg(test)]
mod tests;
