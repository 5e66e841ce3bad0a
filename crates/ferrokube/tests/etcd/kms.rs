//! Secrets in etcd whose keys a KMS has: written, read by another server, and waited for while the KMS is away.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use kms::rpc::key_management_service_server::{KeyManagementService, KeyManagementServiceServer};
use kms::rpc::{
    DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse, StatusRequest, StatusResponse,
};
use testkit::{Etcd, Server, eventually};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use crate::{server, start_with};

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
        let service = KeyManagementServiceServer::new(self);
        Ok(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming).await?)
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

#[test]
fn secrets_under_keys_of_a_kms() -> Result<()> {
    let etcd = Etcd::start(1)?;
    let dir = tempfile::tempdir()?;
    let (socket, file) = (dir.path().join("kms.sock"), dir.path().join("encryption.yaml"));
    let text = format!(
        "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [secrets]\n  \
         providers:\n  - kms: {{apiVersion: v2, name: vault, endpoint: \"unix://{}\"}}\n  - identity: {{}}\n",
        socket.display()
    );
    std::fs::write(&file, text)?;
    let flag = format!("--encryption-provider-config={}", file.display());
    let plugin = Plugin::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let listening = plugin.clone();
    let at = socket.clone();
    runtime.spawn(async move { listening.listen(&at).await });

    let a = start_with(&etcd, &[&flag])?;
    let create = |s: &Server, name: &str| {
        s.kubectl(&["create", "secret", "generic", name, "--from-literal=a=plain-text"]).map(drop)
    };
    let raw = |name: &str| -> Result<String> {
        let key = format!("/registry/secrets/default/{name}");
        let escaped = etcd.etcdctl(&["get", "--hex", "--print-value-only", &key])?;
        let bytes = escaped.trim().split("\\x").skip(1).map(|hex| u8::from_str_radix(hex, 16));
        Ok(String::from_utf8_lossy(&bytes.collect::<Result<Vec<_>, _>>()?).into_owned())
    };
    let read = |s: &Server, name: &str| s.kubectl(&["get", "secret", name, "-o", "jsonpath={.data.a}"]);
    create(&a, "one")?;
    let value = raw("one")?;
    ensure!(value.contains("k8s:enc:kms:v2:vault:") && !value.contains("plain-text"), "{value}");
    ensure!(value.contains("key-0"), "{value}");

    // Another server has it decrypted, at its start and of what comes later.
    plugin.key.store(1, Ordering::Relaxed);
    let b = start_with(&etcd, &[&flag])?;
    let expected = "cGxhaW4tdGV4dA==";
    ensure!(read(&b, "one")? == expected, "at the start");
    create(&b, "two")?;
    ensure!(raw("two")?.contains("key-1"), "the plugin's new key");
    ensure!(read(&a, "two")? == expected, "of a key that came later");
    for s in [&a, &b] {
        ensure!(s.kubectl(&["get", "--raw", "/readyz/kms-providers"])? == "ok", "well");
    }

    // Nobody is told that there is nothing while the KMS is away, and all is there once it is back.
    plugin.away.store(true, Ordering::Relaxed);
    plugin.key.store(2, Ordering::Relaxed);
    eventually("the plugin's next key", || {
        // Whoever asks how the plugin is lets the server ask it, after some time.
        b.kubectl(&["get", "--raw", "/readyz/kms-providers"])?;
        b.kubectl(&["delete", "secret", "three", "--ignore-not-found"])?;
        create(&b, "three")?;
        Ok(raw("three")?.contains("key-2").then_some(()))
    })?;
    let why = read(&a, "three").err().context("it could be read without the KMS")?.to_string();
    ensure!(!why.contains("NotFound"), "{why}");
    ensure!(read(&b, "three")? == expected, "its own key it knows");
    let late = tempfile::tempdir()?;
    let out = server(late.path(), Some(&etcd.urls().join(",")))?.arg(&flag).output()?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(!out.status.success() && said.contains("does not answer (away): start it"), "{said}");
    plugin.away.store(false, Ordering::Relaxed);
    eventually("the KMS is back", || Ok(read(&a, "three").ok().filter(|v| v == expected)))?;

    // Without the configuration nothing is hidden.
    let out = server(late.path(), Some(&etcd.urls().join(",")))?.output()?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(!out.status.success() && said.contains("it is encrypted (k8s:enc:kms:v2:vault)"), "{said}");
    Ok(())
}
