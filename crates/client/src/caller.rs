//! The credentials that a client shows: a certificate, an `Authorization`, and the user whom it acts as.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use tokio::time::Instant;

use crate::certificate::Certificate;
use crate::exec::{Given, Plugin};
use crate::kubeconfig::User;
use crate::material::{ConfigError, Token, certificates, material, read};

/// How long a token file is trusted before it is read again: client-go's minute, less its ten seconds of leeway.
const TOKEN_AGE: Duration = Duration::from_secs(50);
/// How long the files of a certificate are trusted before they are looked at again. DIFFERENCE: upstream reads them with
/// each connection, and every five minutes.
const FILES_AGE: Duration = Duration::from_secs(10);

/// The credentials that a client shows; none by default.
#[derive(Debug, Default)]
pub struct Caller {
    certificate: Option<Certificate>,
    files: Option<Files>,
    authorization: Authorization,
    impersonation: Vec<(HeaderName, HeaderValue)>,
}

#[derive(Debug, Default)]
enum Authorization {
    #[default]
    None,
    Fixed(HeaderValue),
    Token(Bearer),
    Program(Arc<Plugin>),
}

/// The files of a certificate, which may be renewed.
struct Files {
    chain: PathBuf,
    key: PathBuf,
    looked: parking_lot::Mutex<(Instant, Vec<u8>, Vec<u8>)>,
}

struct Bearer {
    source: Token,
    read: parking_lot::Mutex<Option<(HeaderValue, Instant)>>,
}

impl fmt::Debug for Files {
    /// Without what they hold.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Files").field(&self.chain).field(&self.key).finish()
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

/// The credentials of one request.
#[derive(Debug, Clone, Default)]
pub struct Shown {
    authorization: Option<HeaderValue>,
    impersonation: Vec<(HeaderName, HeaderValue)>,
    given: Option<Given>,
}

impl Shown {
    /// Writes them into a request's headers.
    pub fn write(&self, headers: &mut HeaderMap) {
        if let Some(value) = &self.authorization {
            headers.insert(AUTHORIZATION, value.clone());
        }
        for (name, value) in &self.impersonation {
            headers.append(name, value.clone());
        }
    }
}

impl Caller {
    /// The credentials of a kubeconfig's user, by client-go's precedence; `program` makes the one that the user's program
    /// is run by.
    ///
    /// # Errors
    /// Where they cannot be used.
    pub fn of(
        user: &User,
        program: impl FnOnce() -> Result<Option<Arc<Plugin>>, String>,
    ) -> Result<Self, ConfigError> {
        let wrong = |why: &str| ConfigError::Credentials(why.to_owned());
        if user.auth_provider.is_some() {
            return Err(wrong("auth provider not supported"));
        }
        let program = program().map_err(ConfigError::Credentials)?;
        let mut caller = Self { impersonation: impersonation(user)?, ..Self::default() };
        caller.certificate_of(user)?;
        let basic = !user.username.is_empty();
        let token = !user.token.is_empty() || !user.token_file.as_os_str().is_empty();
        if basic && token {
            return Err(wrong("username/password or bearer token may be set, but not both"));
        }
        if token {
            caller = caller.with_token(token_of(user)?);
        } else if basic {
            let login = STANDARD.encode(format!("{}:{}", user.username, user.password));
            caller.authorization = Authorization::Fixed(secret(&format!("Basic {login}"))?);
        } else if caller.certificate.is_none()
            && let Some(program) = program
        {
            caller.certificate = Some(program.certificate().clone());
            caller.authorization = Authorization::Program(program);
        }
        Ok(caller)
    }

    /// With a client certificate that may be exchanged later.
    pub fn with_certificate(mut self, certificate: Certificate) -> Self {
        self.certificate = Some(certificate);
        self.files = None;
        self
    }

    /// With a bearer token.
    pub fn with_token(mut self, token: Token) -> Self {
        self.authorization =
            Authorization::Token(Bearer { source: token, read: parking_lot::Mutex::new(None) });
        self
    }

    fn certificate_of(&mut self, user: &User) -> Result<(), ConfigError> {
        let chain = material(&user.client_certificate_data, &user.client_certificate)?;
        let key = material(&user.client_key_data, &user.client_key)?;
        let (Some(chain), Some(key)) = (chain, key) else { return Ok(()) };
        let certificate = Certificate::default();
        exchange(&certificate, &chain, &key)?;
        self.certificate = Some(certificate);
        if user.client_certificate_data.is_empty() && user.client_key_data.is_empty() {
            let looked = parking_lot::Mutex::new((Instant::now(), chain, key));
            let (chain, key) = (user.client_certificate.clone(), user.client_key.clone());
            self.files = Some(Files { chain, key, looked });
        }
        Ok(())
    }

    /// The place of the client certificate that connections show.
    pub fn certificate(&self) -> Option<&Certificate> {
        self.certificate.as_ref()
    }

    /// The version of the client certificate: a connection made at another one has another certificate.
    pub fn version(&self) -> u64 {
        self.certificate.as_ref().map_or(0, Certificate::version)
    }

    /// The credentials of a request that is about to be made. A certificate that belongs to it is in its place then.
    ///
    /// # Errors
    /// There are none: a program or a source of tokens failed. The text is for people.
    pub async fn prepare(&self) -> Result<Shown, String> {
        if let (Some(files), Some(certificate)) = (&self.files, &self.certificate) {
            files.look_again(certificate);
        }
        let mut shown = Shown { impersonation: self.impersonation.clone(), ..Shown::default() };
        match &self.authorization {
            Authorization::None => {}
            Authorization::Fixed(value) => shown.authorization = Some(value.clone()),
            Authorization::Token(bearer) => shown.authorization = Some(bearer.header().await?),
            Authorization::Program(program) => {
                let given =
                    program.credentials().await.map_err(|why| format!("getting credentials: {why}"))?;
                shown.authorization.clone_from(&given.bearer);
                shown.given = Some(given);
            }
        }
        Ok(shown)
    }

    /// Takes note that a server answered 401 to these: a program is run anew, for the next request.
    pub async fn refused(&self, shown: &Shown) {
        if let (Authorization::Program(program), Some(given)) = (&self.authorization, &shown.given) {
            program.refused(given).await;
        }
    }
}

fn secret(text: &str) -> Result<HeaderValue, ConfigError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| {
        ConfigError::Credentials("net/http: invalid header field value for \"Authorization\"".to_owned())
    })?;
    value.set_sensitive(true);
    Ok(value)
}

fn exchange(place: &Certificate, chain: &[u8], key: &[u8]) -> Result<(), ConfigError> {
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|e| ConfigError::Pem { what: "client key", reason: e.to_string() })?;
    Ok(place.exchange(certificates("client certificate", chain)?, key)?)
}

/// The token of a user; one in a file must be there from the start, or nothing would work, and the reason would come late.
fn token_of(user: &User) -> Result<Token, ConfigError> {
    if user.token_file.as_os_str().is_empty() {
        return Ok(Token::Value(user.token.clone()));
    }
    // A token beside the file counts until the file can be read.
    if user.token.is_empty() {
        read(&user.token_file)?;
        return Ok(Token::File(user.token_file.clone()));
    }
    Ok(Token::FileOr(user.token_file.clone(), user.token.clone()))
}

/// The headers of acting as somebody else.
fn impersonation(user: &User) -> Result<Vec<(HeaderName, HeaderValue)>, ConfigError> {
    let mut headers = Vec::new();
    if user.impersonate.is_empty() {
        return Ok(headers);
    }
    let wrong = |what: &str| ConfigError::Credentials(format!("net/http: invalid header field {what}"));
    let mut put = |name: &str, value: &str| {
        let header = HeaderName::from_bytes(name.to_ascii_lowercase().as_bytes());
        let header = header.map_err(|_| wrong(&format!("name {}", api::go::quote(name))))?;
        let value = HeaderValue::from_bytes(value.as_bytes());
        headers.push((header, value.map_err(|_| wrong(&format!("value for {}", api::go::quote(name))))?));
        Ok::<_, ConfigError>(())
    };
    put("Impersonate-User", &user.impersonate)?;
    if !user.impersonate_uid.is_empty() {
        put("Impersonate-Uid", &user.impersonate_uid)?;
    }
    for group in &user.impersonate_groups {
        put("Impersonate-Group", group)?;
    }
    for (key, values) in &user.impersonate_extra {
        let name = format!("Impersonate-Extra-{}", api::go::header_key(key));
        for value in values.iter().flatten() {
            put(&name, value)?;
        }
    }
    Ok(headers)
}

impl Files {
    /// Puts the certificate into its place if the files have another one. Files that are being exchanged do not fit each
    /// other; then the certificate stays until they do.
    fn look_again(&self, place: &Certificate) {
        let mut looked = self.looked.lock();
        if looked.0.elapsed() < FILES_AGE {
            return;
        }
        looked.0 = Instant::now();
        let (Ok(chain), Ok(key)) = (read(&self.chain), read(&self.key)) else { return };
        if looked.1 == chain && looked.2 == key {
            return;
        }
        match exchange(place, &chain, &key) {
            Ok(()) => *looked = (looked.0, chain, key),
            Err(error) => {
                tracing::warn!(file = %self.chain.display(), %error, "a client certificate is not renewed");
            }
        }
    }
}

impl Bearer {
    async fn header(&self) -> Result<HeaderValue, String> {
        let age = match self.source {
            Token::Value(_) => Duration::MAX,
            Token::File(_) | Token::FileOr(..) => TOKEN_AGE,
            // It keeps its tokens itself.
            Token::Source(_) => Duration::ZERO,
        };
        if let Some((value, read)) = &*self.read.lock()
            && read.elapsed() < age
        {
            return Ok(value.clone());
        }
        let token = match &self.source {
            Token::Value(token) => Ok(token.clone()),
            Token::File(path) => of_file(path).await,
            Token::FileOr(path, token) => Ok(of_file(path).await.unwrap_or_else(|_| token.clone())),
            Token::Source(source) => source.token().await.map_err(|status| status.message),
        };
        let token = match token {
            Ok(token) => token,
            // An older one may be good still.
            Err(why) => match (&self.source, &*self.read.lock()) {
                (Token::File(_), Some((old, _))) => {
                    tracing::error!(error = why, "Unable to rotate token");
                    return Ok(old.clone());
                }
                _ => return Err(why),
            },
        };
        let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
            .map_err(|_| "the bearer token has characters that no header may have".to_owned())?;
        value.set_sensitive(true);
        *self.read.lock() = Some((value.clone(), Instant::now()));
        Ok(value)
    }
}

async fn of_file(path: &PathBuf) -> Result<String, String> {
    let shown = api::go::quote(&path.to_string_lossy());
    let text = tokio::fs::read_to_string(path).await;
    let text = text.map_err(|e| {
        format!("failed to read token file {shown}: {}", crate::material::file_error(path, &e))
    })?;
    let token = text.trim();
    if token.is_empty() {
        return Err(format!("read empty token from file {shown}"));
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests;
