//! Container images made on the spot: no registry, no download.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The place of the binary in Debian's busybox-static.
pub const BUSYBOX: &str = "/bin/busybox";

/// The content of an image.
#[derive(Debug, Clone)]
pub struct Image {
    /// The image's reference, e.g. `test.local/app:1`.
    pub reference: String,
    /// Files: path inside, path outside, mode.
    pub files: Vec<(String, PathBuf, u32)>,
    /// Small files: path inside, content, mode.
    pub texts: Vec<(String, String, u32)>,
    /// Symbolic links: path inside, target.
    pub links: Vec<(String, String)>,
    /// The image configuration's `config` (Entrypoint, Cmd, Env, User, …).
    pub config: Value,
}

impl Image {
    /// Makes an image of busybox with all its applets as links.
    pub fn busybox(reference: &str) -> Result<Self> {
        let out = std::process::Command::new(BUSYBOX)
            .arg("--list")
            .output()
            .context("busybox-static is not installed")?;
        let applets = String::from_utf8_lossy(&out.stdout).into_owned();
        let links = applets
            .lines()
            .filter(|a| *a != "busybox")
            .map(|a| (format!("bin/{a}"), "/bin/busybox".to_owned()))
            .collect();
        Ok(Self {
            reference: reference.to_owned(),
            files: vec![("bin/busybox".into(), BUSYBOX.into(), 0o755)],
            texts: vec![
                (
                    "etc/passwd".into(),
                    "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n".into(),
                    0o644,
                ),
                ("etc/group".into(), "root:x:0:\nnogroup:x:65534:\n".into(), 0o644),
            ],
            links,
            config: json!({"Cmd": ["sh"], "Env": ["PATH=/bin:/usr/bin"]}),
        })
    }

    /// Makes the image of a sandbox's first process, which only waits.
    pub fn pause(reference: &str) -> Result<Self> {
        let mut image = Self::busybox(reference)?;
        image.links = vec![("bin/sleep".into(), "/bin/busybox".into())];
        image.config = json!({"Entrypoint": ["/bin/sleep", "2147483647"], "Env": ["PATH=/bin"]});
        Ok(image)
    }

    /// Writes the image as a tar in OCI layout, which `ctr images import` reads.
    pub fn write(&self, to: &Path) -> Result<()> {
        let layer = self.layer()?;
        let layer_digest = digest(&layer);
        let config = serde_json::to_vec(&json!({
            "architecture": arch(), "os": "linux", "created": "1970-01-01T00:00:00Z", "config": self.config,
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer_digest}")]},
            "history": [{"created_by": "testkit"}],
        }))?;
        let manifest = serde_json::to_vec(&json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json",
                       "digest": format!("sha256:{}", digest(&config)), "size": config.len()},
            "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar",
                        "digest": format!("sha256:{layer_digest}"), "size": layer.len()}],
        }))?;
        let index = serde_json::to_vec(&json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [{"mediaType": "application/vnd.oci.image.manifest.v1+json",
                           "digest": format!("sha256:{}", digest(&manifest)), "size": manifest.len(),
                           "platform": {"architecture": arch(), "os": "linux"},
                           "annotations": {"io.containerd.image.name": self.reference}}],
        }))?;
        let mut tar = tar::Builder::new(fs::File::create(to)?);
        entry(&mut tar, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#, 0o644)?;
        entry(&mut tar, "index.json", &index, 0o644)?;
        for blob in [&manifest, &config, &layer] {
            entry(&mut tar, &format!("blobs/sha256/{}", digest(blob)), blob, 0o644)?;
        }
        tar.finish()?;
        Ok(())
    }

    /// The only layer, as a plain tar.
    pub fn layer(&self) -> Result<Vec<u8>> {
        let mut tar = tar::Builder::new(Vec::new());
        for (dir, mode) in [
            ("bin", 0o755),
            ("etc", 0o755),
            ("dev", 0o755),
            ("proc", 0o755),
            ("sys", 0o755),
            ("root", 0o700),
            ("tmp", 0o1777),
        ] {
            let mut h = header(0, mode);
            h.set_entry_type(tar::EntryType::Directory);
            tar.append_data(&mut h, dir, std::io::empty())?;
        }
        for (inside, outside, mode) in &self.files {
            let data = fs::read(outside).with_context(|| format!("reading {}", outside.display()))?;
            entry(&mut tar, inside, &data, *mode)?;
        }
        for (inside, text, mode) in &self.texts {
            entry(&mut tar, inside, text.as_bytes(), *mode)?;
        }
        for (inside, target) in &self.links {
            let mut h = header(0, 0o777);
            h.set_entry_type(tar::EntryType::Symlink);
            tar.append_link(&mut h, inside, target)?;
        }
        Ok(tar.into_inner()?)
    }
}

fn arch() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

fn digest(data: &[u8]) -> String {
    format!("{:x}", Sha256::digest(data))
}

fn header(size: u64, mode: u32) -> tar::Header {
    let mut h = tar::Header::new_gnu();
    h.set_size(size);
    h.set_mode(mode);
    h.set_mtime(0);
    h
}

fn entry<W: std::io::Write>(tar: &mut tar::Builder<W>, path: &str, data: &[u8], mode: u32) -> Result<()> {
    tar.append_data(&mut header(data.len() as u64, mode), path, data)?;
    Ok(())
}
