//! Secrets in etcd whose keys a KMS has: they are written, read by another server, and waited for while the KMS is
//! away.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use kms::rpc::key_management_service_server::{KeyManagementService, KeyManagementServiceServer};
use kms::rpc::v1beta1::key_management_service_server as v1_server;
use kms::rpc::{
    DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse, StatusRequest, StatusResponse,
    v1beta1 as v1,
};
use testkit::{Etcd, Server, eventually};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use crate::etcd::{server, start_with};

/// A plugin that encrypts by changing every byte.
#[derive(Clone, Default)]
struct Plugin {
    /// The number of its key.
    key: Arc<AtomicUsize>,
    away: Arc<AtomicBool>,
}

fn turned(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|b| b ^ 0x5a).collect()
}

impl Plugin {
    fn key_id(&self) -> String {
        format!("key-{}", self.key.load(Ordering::Relaxed))
    }
    async fn listen(self, at: &Path) -> Result<()> {
        let incoming = UnixListenerStream::new(UnixListener::bind(at)?);
        let server = tonic::transport::Server::builder()
            .add_service(KeyManagementServiceServer::new(self.clone()))
            .add_service(v1_server::KeyManagementServiceServer::new(self));
        Ok(server.serve_with_incoming(incoming).await?)
    }
}

#[tonic::async_trait]
impl KeyManagementService for Plugin {
    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        let (version, healthz) = ("v2".into(), "ok".into());
        Ok(Response::new(StatusResponse { version, healthz, key_id: self.key_id() }))
    }
    async fn decrypt(&self, r: Request<DecryptRequest>) -> Result<Response<DecryptResponse>, Status> {
        if self.away.load(Ordering::Relaxed) {
            return Err(Status::unavailable("away"));
        }
        Ok(Response::new(DecryptResponse { plaintext: turned(&r.get_ref().ciphertext) }))
    }
    async fn encrypt(&self, r: Request<EncryptRequest>) -> Result<Response<EncryptResponse>, Status> {
        let (ciphertext, key_id) = (turned(&r.get_ref().plaintext), self.key_id());
        Ok(Response::new(EncryptResponse { ciphertext, key_id, annotations: BTreeMap::new() }))
    }
}

#[tonic::async_trait]
impl v1_server::KeyManagementService for Plugin {
    async fn version(&self, _: Request<v1::VersionRequest>) -> Result<Response<v1::VersionResponse>, Status> {
        let version = "v1beta1".into();
        Ok(Response::new(v1::VersionResponse { version, ..Default::default() }))
    }
    async fn decrypt(&self, r: Request<v1::DecryptRequest>) -> Result<Response<v1::DecryptResponse>, Status> {
        Ok(Response::new(v1::DecryptResponse { plain: turned(&r.get_ref().cipher) }))
    }
    async fn encrypt(&self, r: Request<v1::EncryptRequest>) -> Result<Response<v1::EncryptResponse>, Status> {
        Ok(Response::new(v1::EncryptResponse { cipher: turned(&r.get_ref().plain) }))
    }
}

/// An etcd, a plugin, and the flag by which Secrets are encrypted under its keys.
struct Kms {
    etcd: Etcd,
    plugin: Plugin,
    flag: String,
    _dir: tempfile::TempDir,
    _runtime: tokio::runtime::Runtime,
}

impl Kms {
    fn start(version: &str) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let (socket, file) = (dir.path().join("kms.sock"), dir.path().join("encryption.yaml"));
        let text = format!(
            "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: \
             [secrets]\n  providers:\n  - kms: {{apiVersion: {version}, name: vault, endpoint: \"unix://{}\"}}\n  - \
             identity: {{}}\n",
            socket.display()
        );
        std::fs::write(&file, text)?;
        let flag = format!("--encryption-provider-config={}", file.display());
        let plugin = Plugin::default();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listening = plugin.clone();
        runtime.spawn(async move { listening.listen(&socket).await });
        Ok(Self { etcd: Etcd::start(1)?, plugin, flag, _dir: dir, _runtime: runtime })
    }

    /// The value of a Secret in etcd.
    fn raw(&self, name: &str) -> Result<String> {
        let key = format!("/registry/secrets/default/{name}");
        let escaped = self.etcd.etcdctl(&["get", "--hex", "--print-value-only", &key])?;
        let bytes = escaped.trim().split("\\x").skip(1).map(|hex| u8::from_str_radix(hex, 16));
        Ok(String::from_utf8_lossy(&bytes.collect::<Result<Vec<_>, _>>()?).into_owned())
    }

    /// The error of a server that does not start.
    fn refused(&self, flags: &[&str]) -> Result<String> {
        let dir = tempfile::tempdir()?;
        let out = server(dir.path(), Some(&self.etcd.urls().join(",")))?.args(flags).output()?;
        ensure!(!out.status.success(), "it starts");
        Ok(String::from_utf8_lossy(&out.stderr).into_owned())
    }
}

fn create(server: &Server, name: &str) -> Result<()> {
    server.kubectl(&["create", "secret", "generic", name, "--from-literal=a=plain-text"]).map(drop)
}

fn read(server: &Server, name: &str) -> Result<String> {
    server.kubectl(&["get", "secret", name, "-o", "jsonpath={.data.a}"])
}

/// The result of [`read`] for a Secret of [`create`].
const READ: &str = "cGxhaW4tdGV4dA==";

#[test]
fn secrets_under_keys_of_the_first_version() -> Result<()> {
    let kms = Kms::start("v1")?;
    let gate = "--feature-gates=KMSv1=true";
    let said = kms.refused(&[&kms.flag])?;
    ensure!(said.contains("Set --feature-gates=KMSv1=true"), "{said}");
    let a = start_with(&kms.etcd, &[&kms.flag, gate])?;
    create(&a, "one")?;
    let value = kms.raw("one")?;
    ensure!(value.contains("k8s:enc:kms:v1:vault:") && !value.contains("plain-text"), "{value}");
    let b = start_with(&kms.etcd, &[&kms.flag, gate])?;
    ensure!(read(&b, "one")? == READ, "at the start");
    create(&b, "two")?;
    ensure!(read(&a, "two")? == READ, "of a key that came later");
    ensure!(a.kubectl(&["get", "--raw", "/readyz/kms-providers"])? == "ok", "well");
    Ok(())
}

#[test]
fn secrets_under_keys_of_a_kms() -> Result<()> {
    let kms = Kms::start("v2")?;
    let Kms { etcd, plugin, flag, .. } = &kms;
    let a = start_with(etcd, &[flag])?;
    create(&a, "one")?;
    let value = kms.raw("one")?;
    ensure!(value.contains("k8s:enc:kms:v2:vault:") && !value.contains("plain-text"), "{value}");
    ensure!(value.contains("key-0"), "{value}");

    // The plugin decrypts for another server, at its start and for later values.
    plugin.key.store(1, Ordering::Relaxed);
    let b = start_with(etcd, &[flag])?;
    ensure!(read(&b, "one")? == READ, "at the start");
    create(&b, "two")?;
    ensure!(kms.raw("two")?.contains("key-1"), "the plugin's new key");
    ensure!(read(&a, "two")? == READ, "of a key that came later");
    for s in [&a, &b] {
        ensure!(s.kubectl(&["get", "--raw", "/readyz/kms-providers"])? == "ok", "well");
    }

    // No reader gets a wrong answer while the KMS is away, and all is there once it is back.
    plugin.away.store(true, Ordering::Relaxed);
    plugin.key.store(2, Ordering::Relaxed);
    eventually("the plugin's next key", || {
        // A request for the plugin's health lets the server ask the plugin, after some time.
        b.kubectl(&["get", "--raw", "/readyz/kms-providers"])?;
        b.kubectl(&["delete", "secret", "three", "--ignore-not-found"])?;
        create(&b, "three")?;
        Ok(kms.raw("three")?.contains("key-2").then_some(()))
    })?;
    let why = read(&a, "three").err().context("it could be read without the KMS")?.to_string();
    ensure!(!why.contains("NotFound"), "{why}");
    ensure!(read(&b, "three")? == READ, "its own key it knows");
    let said = kms.refused(&[flag])?;
    ensure!(said.contains("does not answer (away): start it"), "{said}");
    plugin.away.store(false, Ordering::Relaxed);
    eventually("the KMS is back", || Ok(read(&a, "three").ok().filter(|v| v == READ)))?;

    // Without the configuration no value is hidden.
    let said = kms.refused(&[])?;
    ensure!(said.contains("it is encrypted (k8s:enc:kms:v2:vault)"), "{said}");
    Ok(())
}
