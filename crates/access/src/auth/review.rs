//! Reviews of users and of access, asked for through the API; and new tokens.

use std::sync::Arc;

use api::view::{Edit, View, strings};
use api::{Map, Schema, Status, Struct, Text};
use component::Clock;
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::access_review::{check_access_review, invalid, print, selectors};
use super::authenticator::bearer_of;
use super::bearer::BearerTokens;
use super::rbac::Rule;
use super::token::{Authenticated, Bound, Claims, Ref};
use super::{Access, Authorizer, Decision, Reviewer, UnionAuthorizer};
use crate::UserInfo;
use crate::notes::Notes;
use crate::reader::{Reader, read};

const AUTHORIZATION: &str = "authorization.k8s.io";
const AUTHENTICATION: &str = "authentication.k8s.io";
/// The lifetime that client-go's projected volumes ask for; upstream gives such tokens a year, so that clients which
/// never read the file again go on working.
const WARN_ONLY: i64 = 3607;
const EXTENDED: i64 = 365 * 24 * 60 * 60;

/// Answers reviews and issues tokens.
pub struct Reviews {
    schema: &'static Schema,
    authorizer: Arc<UnionAuthorizer>,
    tokens: Arc<BearerTokens>,
    reader: Arc<dyn Reader>,
    clock: Clock,
    /// `--service-account-max-token-expiration`, in seconds; 0 for none.
    max_lifetime: i64,
    /// The anonymous user; `None` if requests without credentials are refused.
    anonymous: Option<Arc<UserInfo>>,
    /// The address of the keys that the issuer's document tells (`--service-account-jwks-uri`).
    jwks_uri: Option<String>,
    /// Whether tokens of Pods live on for a year.
    extend: bool,
}

impl Reviews {
    /// Makes the reviews from their parts.
    pub fn new(
        schema: &'static Schema,
        authorizer: Arc<UnionAuthorizer>,
        tokens: Arc<BearerTokens>,
        reader: Arc<dyn Reader>,
        clock: Clock,
        max_lifetime: i64,
        anonymous: Option<Arc<UserInfo>>,
    ) -> Self {
        Self {
            schema,
            authorizer,
            tokens,
            reader,
            clock,
            max_lifetime,
            anonymous,
            jwks_uri: None,
            extend: true,
        }
    }

    /// With another address of the keys than the server's own.
    #[must_use]
    pub fn keys_at(self, jwks_uri: Option<String>) -> Self {
        Self { jwks_uri, ..self }
    }
    /// Whether tokens of Pods live on for a year after the hour that was asked for, so that clients that never read the
    /// file again are told before they fail (`--service-account-extend-token-expiration`).
    #[must_use]
    pub fn extending(self, extend: bool) -> Self {
        Self { extend, ..self }
    }

    fn token_review(&self, namespace: &str, review: &mut Struct, notes: &Notes) -> Result<(), Status> {
        if !namespace.is_empty() {
            return Err(Status::bad_request(format!("namespace is not allowed on this type: {namespace}")));
        }
        let spec = View::new(self.schema, review).st("spec");
        let token = spec.str("token");
        if token.is_empty() {
            return Err(Status::bad_request("token is required for TokenReview in authentication"));
        }
        let audiences: Vec<Text> = spec.strs("audiences").map(Text::from).collect();
        // The token is tried like one of a request; without a token, a request comes from the anonymous user.
        let answer = match bearer_of(format!("Bearer {token}").as_bytes()) {
            Some(Ok(token)) => self.tokens.authenticate(&token, &audiences, notes),
            Some(Err(())) => Ok(None),
            None => Ok(self.anonymous.clone().map(|user| {
                let own = || self.tokens.accounts().audiences().to_vec();
                let audiences = if audiences.is_empty() { own() } else { audiences.clone() };
                Authenticated { user, audiences }
            })),
        };
        let mut edit = Edit::new(self.schema, review);
        let Some(mut status) = edit.make("status") else { return Ok(()) };
        match answer {
            Ok(Some(who)) => {
                status.set("authenticated", true);
                status.set("audiences", strings(who.audiences.iter().map(Text::as_str)));
                if let Some(mut user) = status.make("user") {
                    write_user(&mut user, &who.user);
                }
            }
            Ok(None) => {
                status.remove("authenticated");
                status.set("error", "invalid bearer token");
            }
            Err(error) => {
                status.remove("authenticated");
                status.set("error", error.to_string());
            }
        }
        Ok(())
    }

    fn self_subject_review(&self, caller: &UserInfo, review: &mut Struct) {
        let now = self.clock.now();
        let mut edit = Edit::new(self.schema, review);
        edit.remove("metadata");
        edit.remove("status");
        if let Some(mut meta) = edit.make("metadata") {
            meta.set("creationTimestamp", time(now));
        }
        if let Some(mut status) = edit.make("status")
            && let Some(mut user) = status.make("userInfo")
        {
            write_user(&mut user, caller);
        }
    }

    async fn access_review(
        &self,
        resource: &str,
        caller: &UserInfo,
        namespace: &str,
        review: &mut Struct,
    ) -> Result<(), Status> {
        let view = View::new(self.schema, review);
        let errors = check_access_review(&view, resource);
        if !errors.is_empty() {
            // Upstream names no kind here.
            return Err(Status::invalid(AUTHORIZATION, "", "", &errors));
        }
        if resource == "localsubjectaccessreviews" && namespace != view.st("metadata").str("namespace") {
            return Err(Status::bad_request(format!(
                "spec.resourceAttributes.namespace must match namespace: {namespace}"
            )));
        }
        let spec = view.st("spec");
        let asked;
        let user = if resource == "selfsubjectaccessreviews" {
            caller
        } else {
            asked = UserInfo {
                name: spec.str("user").into(),
                uid: spec.str("uid").into(),
                groups: spec.strs("groups").map(Text::from).collect(),
                extra: spec
                    .entries("extra")
                    .map(|(k, v)| (k.into(), v.as_list().iter().map(|n| n.as_str().into()).collect()))
                    .collect(),
            };
            &asked
        };
        let attributes = spec.st("resourceAttributes");
        let other = spec.st("nonResourceAttributes");
        let (fields, ignored) = selectors(&attributes);
        let access = if spec.has("resourceAttributes") {
            Access {
                is_resource: true,
                verb: attributes.str("verb"),
                group: attributes.str("group"),
                resource: attributes.str("resource"),
                subresource: attributes.str("subresource"),
                namespace: attributes.str("namespace"),
                name: attributes.str("name"),
                path: "",
                field_selector: &fields,
            }
        } else {
            Access { verb: other.str("verb"), path: other.str("path"), ..Access::default() }
        };
        let decision = self.authorizer.authorize(user, &access).get().await;
        let mut edit = Edit::new(self.schema, review);
        edit.remove("status");
        let Some(mut status) = edit.make("status") else { return Ok(()) };
        let (allowed, denied, reason) = match decision {
            Decision::Allow(reason) => (true, false, reason),
            Decision::Deny(reason) => (false, true, reason),
            Decision::NoOpinion(reason) => (false, false, reason),
        };
        status.set("allowed", allowed);
        if denied {
            status.set("denied", true);
        }
        if !reason.is_empty() {
            status.set("reason", reason);
        }
        if !ignored.is_empty() {
            status.set("evaluationError", ignored);
        }
        Ok(())
    }

    fn rules_review(&self, caller: &UserInfo, review: &mut Struct) -> Result<(), Status> {
        let namespace: Text = View::new(self.schema, review).st("spec").str("namespace").into();
        if namespace.is_empty() {
            return Err(Status::bad_request("no namespace on request"));
        }
        let (rules, error) = self.authorizer.rules_for(caller, &namespace);
        let mut edit = Edit::new(self.schema, review);
        // Upstream answers with the status alone.
        for field in ["metadata", "spec", "status"] {
            edit.remove(field);
        }
        let Some(mut status) = edit.make("status") else { return Ok(()) };
        let mut resource_rules = Vec::new();
        let mut other_rules = Vec::new();
        for rule in &rules {
            if !rule.resources.is_empty()
                && let Some(made) = rule_tree(&status, "resourceRules", rule)
            {
                resource_rules.push(made.into());
            }
            if !rule.non_resource_urls.is_empty()
                && let Some(made) = rule_tree(&status, "nonResourceRules", rule)
            {
                other_rules.push(made.into());
            }
        }
        status.set("resourceRules", resource_rules);
        status.set("nonResourceRules", other_rules);
        let incomplete = super::node::node_name(caller).is_some();
        status.set("incomplete", incomplete);
        if let Some(error) = error {
            status.set("evaluationError", error);
        }
        Ok(())
    }

    /// Resolves the reference to the object to which a token is to be bound.
    fn bound(&self, namespace: &str, account: &str, reference: &View<'_>) -> Result<Bound, Status> {
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Spec {
            node_name: Text,
            service_account_name: Text,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Pod {
            spec: Spec,
        }
        let (version, kind) = (reference.str("apiVersion"), reference.str("kind"));
        let (name, uid) = (reference.str("name"), reference.str("uid"));
        let core = !version.contains('/');
        let (resource, of_namespace) = match kind {
            "Pod" if core => (("", "pods"), namespace),
            "Node" if core => (("", "nodes"), ""),
            "Secret" if core => (("", "secrets"), namespace),
            _ => {
                let (group, version) = version.split_once('/').unwrap_or(("", version));
                return Err(Status::bad_request(format!(
                    "cannot bind token to object of type {group}/{version}, Kind={kind}"
                )));
            }
        };
        let Some(object) = self.reader.get(resource, of_namespace, name) else {
            return Err(Status::not_found("", resource.1, name));
        };
        let found = Ref { name: name.into(), uid: object.data.uid.clone() };
        let bound = match kind {
            "Pod" => {
                let spec = read::<Pod>(&object).unwrap_or_default().spec;
                if spec.service_account_name != account {
                    return Err(Status::bad_request(format!(
                        "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
                    )));
                }
                let node = (!spec.node_name.is_empty()).then(|| {
                    let node = self.reader.get(("", "nodes"), "", &spec.node_name);
                    Ref { uid: node.map(|n| n.data.uid.clone()).unwrap_or_default(), name: spec.node_name }
                });
                Bound::Pod(found.clone(), node)
            }
            "Node" => Bound::Node(found.clone()),
            _ => Bound::Secret(found.clone()),
        };
        if !uid.is_empty() && uid != found.uid {
            return Err(Status::conflict(
                "",
                kind,
                name,
                format!(
                    "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
                ),
            ));
        }
        Ok(bound)
    }
}

impl Reviewer for Reviews {
    fn review<'a>(
        &'a self,
        resource: &'a str,
        caller: &'a Arc<UserInfo>,
        namespace: &'a str,
        review: &'a mut Struct,
        notes: &'a Notes,
    ) -> BoxFuture<'a, Result<(), Status>> {
        async move {
            match resource {
                "tokenreviews" => self.token_review(namespace, review, notes),
                "selfsubjectreviews" => {
                    self.self_subject_review(caller, review);
                    Ok(())
                }
                "selfsubjectrulesreviews" => self.rules_review(caller, review),
                "subjectaccessreviews" | "localsubjectaccessreviews" | "selfsubjectaccessreviews" => {
                    self.access_review(resource, caller, namespace, review).await
                }
                _ => Err(Status::no_such_resource()),
            }
        }
        .boxed()
    }

    fn issuer_document(&self, path: &str, server: &str) -> Option<(&'static str, Vec<u8>)> {
        const KEYS: &str = "/openid/v1/jwks";
        let accounts = self.tokens.accounts();
        let (media_type, document) = match path {
            // As upstream: an issuer that OpenID does not know has no documents.
            _ if !accounts.has_documents() => return None,
            KEYS => ("application/jwk-set+json", accounts.jwks()),
            "/.well-known/openid-configuration" => {
                let keys = self.jwks_uri.clone().unwrap_or_else(|| format!("{server}{KEYS}"));
                ("application/json", accounts.openid_configuration(&keys))
            }
            _ => return None,
        };
        Some((media_type, document.to_string().into_bytes()))
    }

    fn issue_token(
        &self,
        _caller: &Arc<UserInfo>,
        account: &Struct,
        request: &mut Struct,
    ) -> Result<(), Status> {
        let meta = View::new(self.schema, account).st("metadata");
        let (name, namespace, uid) = (meta.str("name"), meta.str("namespace"), meta.str("uid"));
        let view = View::new(self.schema, request);
        let asked = view.st("metadata");
        for (field, value, what) in
            [("name", name, "service account name"), ("namespace", namespace, "service account namespace")]
        {
            let given = asked.str(field);
            if !given.is_empty() && given != value {
                let error = invalid(
                    &format!("metadata.{field}"),
                    Some(print(given)),
                    format!("must match the {what} if specified"),
                );
                return Err(Status::invalid(AUTHENTICATION, "TokenRequest", name, &[error]));
            }
        }
        let given = asked.str("uid");
        if !given.is_empty() && given != uid {
            return Err(Status::conflict(
                AUTHENTICATION,
                "TokenRequest",
                name,
                format!(
                    "the UID in the token request ({given}) does not match the UID of the service account ({uid})"
                ),
            ));
        }
        let spec = view.st("spec");
        let mut lifetime = spec.opt_int("expirationSeconds").unwrap_or(3600);
        let error = |why: &str| {
            let error = invalid("spec.expirationSeconds", Some(lifetime.to_string()), why);
            Err(Status::invalid(AUTHENTICATION, "TokenRequest", "", &[error]))
        };
        if lifetime < 600 {
            return error("may not specify a duration less than 10 minutes");
        }
        if lifetime > 1 << 32 {
            return error("may not specify a duration larger than 2^32 seconds");
        }
        let mut audiences: Vec<Text> = spec.strs("audiences").map(Text::from).collect();
        if audiences.is_empty() {
            audiences = self.tokens.accounts().audiences().to_vec();
        }
        let bound = match spec.opt("boundObjectRef") {
            Some(reference) => self.bound(namespace, name, &reference)?,
            None => Bound::No,
        };
        if self.max_lifetime > 0 {
            lifetime = lifetime.min(self.max_lifetime);
        }
        let extend = self.extend
            && lifetime == WARN_ONLY
            && matches!(bound, Bound::Pod(..))
            && self.tokens.accounts().audiences().iter().all(|a| audiences.contains(a))
            && audiences.len() == self.tokens.accounts().audiences().len();
        let (valid, warn_after) = if extend { (EXTENDED, Some(lifetime)) } else { (lifetime, None) };
        let now = self.clock.now();
        let claims = Claims::new(
            self.tokens.accounts().issuer(),
            namespace,
            Ref { name: name.into(), uid: uid.into() },
            bound,
            audiences.clone(),
            now,
            valid,
            warn_after,
        );
        let token = self
            .tokens
            .accounts()
            .sign(&claims)
            .map_err(|e| Status::internal(format!("failed to generate token: {e}")))?;
        let expires = now.saturating_add(SignedDuration::from_secs(lifetime)).unwrap_or(Timestamp::MAX);
        let mut edit = Edit::new(self.schema, request);
        if let Some(mut meta) = edit.make("metadata") {
            meta.set("name", name);
            meta.set("namespace", namespace);
            meta.set("uid", uid);
            meta.set("creationTimestamp", time(now));
        }
        if let Some(mut spec) = edit.make("spec") {
            spec.set("audiences", strings(audiences.iter().map(Text::as_str)));
            spec.set("expirationSeconds", lifetime);
        }
        edit.remove("status");
        if let Some(mut status) = edit.make("status") {
            status.set("token", token);
            status.set("expirationTimestamp", time(expires));
        }
        Ok(())
    }
}

fn time(t: Timestamp) -> String {
    t.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Writes a `UserInfo` of the authentication group.
fn write_user(user: &mut Edit<'_>, who: &UserInfo) {
    for field in ["username", "uid", "groups", "extra"] {
        user.remove(field);
    }
    if !who.name.is_empty() {
        user.set("username", who.name.clone());
    }
    if !who.uid.is_empty() {
        user.set("uid", who.uid.clone());
    }
    if !who.groups.is_empty() {
        user.set("groups", strings(who.groups.iter().map(Text::as_str)));
    }
    if !who.extra.is_empty() {
        let entries = who.extra.iter().map(|(k, v)| (k.clone(), strings(v.iter().map(Text::as_str))));
        user.set("extra", Map::from_entries(entries.collect()));
    }
}

fn rule_tree(status: &Edit<'_>, list: &str, rule: &Rule) -> Option<Struct> {
    let mut made = status.fresh(list)?;
    let mut edit = Edit::new(status.schema, &mut made);
    let mut put = |name: &str, of: &[Text]| {
        if !of.is_empty() {
            edit.set(name, strings(of.iter().map(Text::as_str)));
        }
    };
    put("verbs", &rule.verbs);
    if list == "resourceRules" {
        put("apiGroups", &rule.api_groups);
        put("resources", &rule.resources);
        put("resourceNames", &rule.resource_names);
    } else {
        put("nonResourceURLs", &rule.non_resource_urls);
    }
    Some(made)
}
