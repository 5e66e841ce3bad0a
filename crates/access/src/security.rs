//! Authentication, authorization and admission of a server, made from its configuration.

use std::path::PathBuf;
use std::sync::Arc;

use api::{FeatureGates, Gate, Schema, Text};
use component::Clock;

use crate::admission::{AdmissionConfig, AdmissionConfigError, Chain, ChainError};
use crate::auth::node::NodeAuthorizer;
use crate::auth::rbac::RbacIndex;
use crate::auth::token::{TokenService, Uses};
use crate::auth::{
    self, Auth, AuthenticationConfig, Authorities, AuthorizationMode, BearerTokens, ClientCaError, KeyError,
    RequestHeaders, Reviews, SigningKey, TokenFile, UnionAuthenticator, UnionAuthorizer, VerifyingKey,
};
use crate::reader::Reader;
use crate::webhook::Network;

/// The choices of a server about its callers; upstream's flags stand in brackets.
#[derive(Debug, Clone)]
pub struct SecurityConfig {
    /// More keys whose tokens are taken, PEM (`--service-account-key-file`).
    pub other_keys_pem: Vec<String>,
    /// The issuers whose tokens are taken, the one that issues first (`--service-account-issuer`).
    pub issuers: Vec<String>,
    /// The address of the keys that the issuer's document tells; the server's own if absent
    /// (`--service-account-jwks-uri`).
    pub jwks_uri: Option<String>,
    /// The audiences of this server; none for the issuers (`--api-audiences`).
    pub audiences: Vec<String>,
    /// Longest life of a token in seconds; 0 for no limit (`--service-account-max-token-expiration`).
    pub max_token_expiration: i64,
    /// Whether tokens of Pods live on for a year after the hour that was asked for
    /// (`--service-account-extend-token-expiration`).
    pub extend_token_expiration: bool,
    /// Whether a token of a Secret is taken only while the Secret and its account are there (`--service-account-lookup`).
    pub account_lookup: bool,
    /// Whether requests without credentials are `system:anonymous` (`--anonymous-auth`).
    pub anonymous: bool,
    /// The tokens of a file (`--token-auth-file`).
    pub token_file: TokenFile,
    /// The authorities of client certificates, PEM, in place of the server's own (`--client-ca-file`).
    pub client_authorities: Option<String>,
    /// The front proxies that may name users (`--requestheader-*`).
    pub request_headers: Option<RequestHeaders>,
    /// Whether bootstrap tokens authenticate (`--enable-bootstrap-token-auth`).
    pub bootstrap_tokens: bool,
    /// The authorizers, in the order in which they are asked (`--authorization-mode`).
    pub modes: Vec<AuthorizationMode>,
    /// Plugins to turn on (`--enable-admission-plugins`).
    pub enable_admission: Vec<String>,
    /// Plugins to turn off (`--disable-admission-plugins`).
    pub disable_admission: Vec<String>,
    /// The file of the plugins' configuration (`--admission-control-config-file`).
    pub admission_config: Option<PathBuf>,
    /// How many seconds a Pod stays on a node that is not ready, and on one that is unreachable, if it does not say
    /// (`--default-not-ready-toleration-seconds`, `--default-unreachable-toleration-seconds`).
    pub toleration_seconds: [i64; 2],
}

impl Default for SecurityConfig {
    fn default() -> Self {
        Self {
            other_keys_pem: Vec::new(),
            issuers: vec!["https://kubernetes.default.svc.cluster.local".into()],
            jwks_uri: None,
            audiences: Vec::new(),
            max_token_expiration: 0,
            extend_token_expiration: true,
            account_lookup: true,
            anonymous: true,
            token_file: TokenFile::default(),
            client_authorities: None,
            request_headers: None,
            bootstrap_tokens: false,
            modes: vec![AuthorizationMode::Node, AuthorizationMode::Rbac],
            enable_admission: Vec::new(),
            disable_admission: Vec::new(),
            admission_config: None,
            toleration_seconds: [300; 2],
        }
    }
}

/// The keys by which callers are known.
pub struct Keys {
    /// The authorities of client certificates.
    pub client_ca: Authorities,
    /// The authorities of front proxies; those of the configuration if absent.
    pub front_proxy_ca: Option<Authorities>,
    /// The key that signs tokens, PEM (`--service-account-signing-key-file`).
    pub signing_key_pem: String,
}

/// Why it cannot be put together.
#[derive(Debug, thiserror::Error)]
pub enum SecurityError {
    /// The authority of client certificates cannot be used.
    #[error(transparent)]
    ClientCa(#[from] ClientCaError),
    /// A key of service account tokens cannot be used.
    #[error("a key of service account tokens cannot be used")]
    Key(#[from] KeyError),
    /// The lists of admission plugins, or a plugin's configuration, are wrong.
    #[error(transparent)]
    Admission(#[from] ChainError),
    /// The file of the plugins' configuration is wrong.
    #[error(transparent)]
    AdmissionConfig(#[from] AdmissionConfigError),
}

/// The authentication, authorization and admission of the request pipe.
pub struct Security {
    /// Authentication and authorization.
    pub auth: Auth,
    /// The chain of admission plugins.
    pub admission: Arc<Chain>,
    /// Authorization by itself, which must be told of changes to stored objects.
    pub authorizer: Arc<UnionAuthorizer>,
    /// The uses of service account tokens.
    pub token_uses: Arc<Uses>,
}

impl Security {
    /// Puts it together over live objects and the network in which webhooks are.
    pub fn new(
        config: &SecurityConfig,
        keys: Keys,
        (gates, clock): (FeatureGates, Clock),
        (reader, network): (Arc<dyn Reader>, Arc<Network>),
    ) -> Result<Self, SecurityError> {
        let schema = Schema::builtin();
        let signer = SigningKey::from_pem(&keys.signing_key_pem)?;
        let mut others = Vec::new();
        for pem in &config.other_keys_pem {
            let own = |key: &VerifyingKey| key.id == signer.public().id;
            others.extend(VerifyingKey::all_from_pem(pem)?.into_iter().filter(|key| !own(key)));
        }
        let audiences: Vec<Text> = if config.audiences.is_empty() {
            config.issuers.iter().map(Text::from).collect()
        } else {
            config.audiences.iter().map(Text::from).collect()
        };
        let tokens = TokenService::new(&config.issuers, audiences, signer, others, reader.clone());
        let tokens = Arc::new(tokens.looking_up(config.account_lookup));
        let token_uses = Arc::clone(tokens.uses());
        let authorizer = Arc::new(UnionAuthorizer::new(
            &config.modes,
            Arc::new(NodeAuthorizer::new(
                gates.enabled(Gate::PodCertificateRequest),
                gates.enabled(Gate::ClusterTrustBundle),
            )),
            Arc::new(RbacIndex::default()),
        ));
        let uid = gates.enabled(Gate::RemoteRequestHeaderUID);
        let front_proxies = match (config.request_headers.clone(), keys.front_proxy_ca) {
            (Some(headers), Some(authorities)) => Some((authorities, headers, uid)),
            (Some(headers), None) => Some((Authorities::parse(&headers.authorities_pem)?, headers, uid)),
            (None, _) => None,
        };
        let authentication = AuthenticationConfig {
            client_ca: keys.client_ca,
            front_proxies,
            anonymous: config.anonymous,
            clock,
        };
        let mut bearers = BearerTokens::new(tokens, clock).with_file(config.token_file.clone());
        if config.bootstrap_tokens {
            bearers = bearers.with_bootstrap(reader.clone());
        }
        let tokens = Arc::new(bearers);
        let authenticator = UnionAuthenticator::new(authentication, tokens.clone(), authorizer.clone());
        let reviews = Reviews::new(
            schema,
            authorizer.clone(),
            tokens.clone(),
            reader.clone(),
            clock,
            config.max_token_expiration,
            config.anonymous.then(auth::nobody),
        )
        .keys_at(config.jwks_uri.clone())
        .extending(config.extend_token_expiration);
        let mut admission_config = match &config.admission_config {
            Some(file) => AdmissionConfig::from_file(file)?,
            None => AdmissionConfig::default(),
        };
        admission_config.toleration_seconds = config.toleration_seconds;
        let admission = Chain::new(
            schema,
            (reader, network),
            authorizer.clone(),
            (gates, clock),
            &config.enable_admission,
            &config.disable_admission,
            &admission_config,
        )?;
        let auth = Auth {
            authenticator: Arc::new(authenticator),
            authorizer: Arc::<UnionAuthorizer>::clone(&authorizer),
            reviewer: Arc::new(reviews),
        };
        Ok(Self { auth, admission: Arc::new(admission), authorizer, token_uses })
    }
}
