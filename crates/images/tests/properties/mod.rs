//! Properties that hold for any bytes. The fuzz targets in `fuzz/` run these, too.

use std::fs;
use std::path::Path;

use images::layer::{Apply, Space, decompress};
use images::manifest::{self, Document};
use images::registry::{challenge, hosts};
use images::{Platform, Reference};

/// A property, and the name of its seeds and of its fuzz target.
pub type Property = (&'static str, fn(&[u8]));

/// All properties.
pub const ALL: [Property; 5] = [
    ("image_reference", image_reference),
    ("image_manifest", image_manifest),
    ("image_hosts", image_hosts),
    ("image_challenge", image_challenge),
    ("image_layer", image_layer),
];

/// A reference that is read means itself when it is written out, and its name is no path.
pub fn image_reference(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(reference) = Reference::parse(text) {
        assert_eq!(Reference::parse(&reference.to_string()).as_ref(), Ok(&reference));
        assert!(!reference.domain.contains(['/', '?', '#', '@', '\0']) && !reference.domain.starts_with('.'));
        assert!(!reference.path.split('/').any(|part| part.is_empty() || part.starts_with('.')));
    }
}

/// Documents are read or refused; their bounds hold.
pub fn image_manifest(data: &[u8]) {
    for media_type in
        ["", "application/vnd.oci.image.index.v1+json", "application/vnd.oci.image.manifest.v1+json"]
    {
        match manifest::parse(media_type, data) {
            Ok(Document::Manifest(found)) => {
                assert!(found.layers.len() <= manifest::MAX_LAYERS);
                for layer in &found.layers {
                    layer.content();
                }
            }
            Ok(Document::Index(list)) => {
                assert!(manifest::candidates(&Platform::host(), &list).len() <= list.len());
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    if let Ok(found) = manifest::configuration(data, 1) {
        assert_eq!(found.rootfs().diff_ids().len(), 1);
    }
}

/// A `hosts.toml` gives usable hosts or an error.
pub fn image_hosts(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(parsed) = hosts::parse(Path::new("/base"), text) {
        let (server, hosts) = parsed.hosts.split_last().unwrap_or_else(|| panic!("there is no server"));
        for host in hosts.iter().chain(Some(server).filter(|s| !s.host.is_empty())) {
            let url = format!("https://{}{}/x", host.host, host.path);
            assert!(url.parse::<http::Uri>().is_ok(), "{url}");
        }
    }
}

/// Challenges are read without end or panic.
pub fn image_challenge(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    assert!(challenge::parse(text).len() <= text.len() + 1);
}

/// A layer is applied or refused; nothing outside its root changes. The input is a tar, or describes one: a line an
/// entry, with its type, its name, and its content or target, separated by tabs.
pub fn image_layer(data: &[u8]) {
    apply(&described(data));
    if data.len() >= 512 {
        apply(data);
    }
}

/// The tar that a text describes, with checksums that are right.
fn described(data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in data.split(|b| *b == b'\n').take(64) {
        let mut fields = line.splitn(3, |b| *b == b'\t').map(|f| &f[..f.len().min(100)]);
        let mut next = || fields.next().unwrap_or_default();
        let (kind, name, rest) = (next().first().copied().unwrap_or(b'0'), next(), next());
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::new(kind));
        header.set_mode(0o755);
        let link = matches!(kind, b'1' | b'2');
        header.set_size(if link { 0 } else { rest.len() as u64 });
        if let Some(gnu) = header.as_gnu_mut() {
            gnu.name[..name.len()].copy_from_slice(name);
            gnu.linkname[..rest.len()].copy_from_slice(rest);
        }
        header.set_cksum();
        bytes.extend_from_slice(header.as_bytes());
        if !link {
            bytes.extend_from_slice(rest);
            bytes.resize(bytes.len().next_multiple_of(512), 0);
        }
    }
    bytes
}

fn apply(data: &[u8]) {
    let Ok(directory) = tempfile::tempdir() else { return };
    let (root, trash) = (directory.path().join("fs"), directory.path().join("trash"));
    let outside = directory.path().join("outside");
    for path in [&root, &trash, &outside] {
        assert!(fs::create_dir(path).is_ok());
    }
    assert!(fs::write(outside.join("victim"), "untouched").is_ok());
    let Ok(mut apply) = Apply::new(&root, &trash, "trusted.", Space::new(1)) else {
        panic!("it does not begin")
    };
    // The size of what a small input unpacks to is bounded, so that a run is short.
    let Ok(source) = decompress::decompress(data) else { return };
    let applied = apply.tar(std::io::Read::take(source, 1 << 20));
    if applied.is_ok() {
        let _ = apply.adapt(&[]);
        let _ = apply.finish();
    }
    let names: Vec<_> = fs::read_dir(directory.path()).into_iter().flatten().flatten().collect();
    assert_eq!(names.len(), 3);
    assert_eq!(fs::read(outside.join("victim")).ok().as_deref(), Some(&b"untouched"[..]));
    assert_eq!(fs::read_dir(&outside).into_iter().flatten().count(), 1);
}
