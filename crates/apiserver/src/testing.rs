//! A server for tests, over a store in memory: everybody but `nobody` may do everything, and what admission does is the
//! test's affair.

use std::sync::Arc;

use access::admission::{Admission, AdmissionRequest};
use access::auth::{Access, Auth, Authenticator, Authorizer, Decision, Eventual, Reviewer};
use access::{Notes, UserInfo};
use api::{Status, Struct};
use bytes::Bytes;
use client::{Call, Resource, Transport, Verb};
use component::Shutdown;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::request;
use rustls_pki_types::CertificateDer;
use serde_json::{Value, json};
use storage::Store;

use crate::config::Config;
use crate::objects::Objects;
use crate::server::{Parts, Server};

struct Open;

impl Authenticator for Open {
    fn authenticate<'a>(
        &'a self,
        _: &'a request::Parts,
        _: Option<&'a [CertificateDer<'static>]>,
        _: &'a Notes,
    ) -> Eventual<'a, Result<Arc<UserInfo>, Status>> {
        Eventual::Now(Err(Status::unauthorized()))
    }
}

impl Authorizer for Open {
    /// Answers after others had their turn, as one does that asks somebody else.
    fn authorize<'a>(&'a self, user: &'a UserInfo, _: &'a Access<'a>) -> Eventual<'a, Decision> {
        Eventual::later(async {
            tokio::task::yield_now().await;
            let may = user.name != "nobody";
            if may { Decision::Allow(String::new()) } else { Decision::NoOpinion(String::new()) }
        })
    }
}

impl Reviewer for Open {
    fn review<'a>(
        &'a self,
        _: &'a str,
        _: &'a Arc<UserInfo>,
        _: &'a str,
        _: &'a mut Struct,
        _: &'a Notes,
    ) -> BoxFuture<'a, Result<(), Status>> {
        async { Ok(()) }.boxed()
    }
    fn issue_token(&self, _: &Arc<UserInfo>, _: &Struct, _: &mut Struct) -> Result<(), Status> {
        Ok(())
    }
}

impl Admission for Open {
    fn mutate<'a>(
        &'a self,
        _: &'a AdmissionRequest<'a>,
        _: &'a mut Struct,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async { Ok(()) })
    }
    fn validate<'a>(
        &'a self,
        _: &'a AdmissionRequest<'a>,
        _: Option<&'a Struct>,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async { Ok(()) })
    }
}

pub(crate) struct Cluster {
    pub(crate) server: Server,
    pub(crate) transport: Arc<dyn Transport>,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        Self::with(Arc::new(Open))
    }
    pub(crate) fn with(admission: Arc<dyn Admission>) -> Self {
        let objects = Objects::new(Store::in_memory(), &Config::new("")).unwrap();
        Self::made(objects, admission)
    }
    pub(crate) fn over(objects: Objects) -> Self {
        Self::made(objects, Arc::new(Open))
    }
    fn made(objects: Objects, admission: Arc<dyn Admission>) -> Self {
        let auth =
            Auth { authenticator: Arc::new(Open), authorizer: Arc::new(Open), reviewer: Arc::new(Open) };
        let parts = Parts {
            objects: Arc::new(objects),
            auth,
            admission,
            feeds: None,
            connect: None,
            shutdown: Shutdown::new(),
        };
        let server = Server::new(&Config::new(""), parts).unwrap();
        let user = UserInfo { name: "test".into(), ..UserInfo::default() };
        let transport = server.transport(user, "test");
        Self { server, transport }
    }
    pub(crate) async fn call(&self, verb: Verb, path: &str, body: Value) -> Result<Value, Status> {
        let bytes = self.transport.call(call(verb, path, &body)).await?;
        Ok(serde_json::from_slice(&bytes).unwrap())
    }
}

/// `group/version/plural[/namespace[/name[/subresource]]][?query]`, with `-` for what is empty.
pub(crate) fn call(verb: Verb, path: &str, body: &Value) -> Call {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let mut parts = path.split('/').map(|p| if p == "-" { "" } else { p });
    let mut next = || parts.next().unwrap_or_default();
    Call {
        verb,
        resource: Resource { group: next().into(), version: next().into(), plural: next().into() },
        namespace: next().into(),
        name: next().into(),
        subresource: next().into(),
        query: query
            .split('&')
            .filter_map(|p| p.split_once('='))
            .map(|(k, v)| (k.into(), v.to_owned()))
            .collect(),
        body: if body.is_null() { Bytes::new() } else { body.to_string().into() },
    }
}

pub(crate) fn config_map(name: &str, data: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"app": name}}, "data": {"k": data}})
}

pub(crate) fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}
