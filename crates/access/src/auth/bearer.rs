//! Bearer tokens of all kinds.

use std::sync::Arc;

use api::Text;
use component::Clock;

use super::bootstrap::{BootstrapTokens, audiences_for};
use super::token::{Authenticated, TokenError, TokenService};
use super::token_file::TokenFile;
use crate::notes::Notes;
use crate::reader::Reader;

/// The kinds of bearer tokens that a server takes: those of service accounts, and perhaps bootstrap tokens.
pub struct BearerTokens {
    accounts: Arc<TokenService>,
    bootstrap: Option<BootstrapTokens>,
    file: TokenFile,
    clock: Clock,
}

impl BearerTokens {
    /// Makes it of the tokens of service accounts.
    pub fn new(accounts: Arc<TokenService>, clock: Clock) -> Self {
        Self { accounts, bootstrap: None, file: TokenFile::default(), clock }
    }
    /// Takes bootstrap tokens, too (`--enable-bootstrap-token-auth`).
    pub fn with_bootstrap(mut self, reader: Arc<dyn Reader>) -> Self {
        self.bootstrap = Some(BootstrapTokens::new(reader, self.clock, self.accounts.audiences()));
        self
    }
    /// Takes the tokens of a file, too (`--token-auth-file`).
    pub fn with_file(mut self, file: TokenFile) -> Self {
        self.file = file;
        self
    }
    /// The tokens of service accounts.
    pub fn accounts(&self) -> &TokenService {
        &self.accounts
    }
    /// Authenticates a token. `None` if nobody knows it, an error if it is known and is not good. With empty `wanted`,
    /// the audience must be the API server. Notes tell of tokens that should be replaced.
    ///
    /// # Errors
    /// Where the token of a service account is not good.
    pub fn authenticate(
        &self,
        token: &str,
        wanted: &[Text],
        notes: &Notes,
    ) -> Result<Option<Authenticated>, TokenError> {
        let audiences = self.accounts.audiences();
        if let Some(user) = self.file.user(token)
            && let Some(audiences) = audiences_for(wanted, audiences)
        {
            return Ok(Some(Authenticated { user: Arc::clone(user), audiences }));
        }
        // Neither is ever the other: a bootstrap token has one dot.
        if let Some(known) = self.bootstrap.as_ref().and_then(|tokens| tokens.authenticate(token, wanted)) {
            return Ok(Some(known));
        }
        self.accounts.authenticate(token, wanted, self.clock.now(), notes)
    }
}
