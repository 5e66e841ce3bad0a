//! Makes the Rust code of the protocols of container runtimes, of a node's plugins, of etcd and of KMS plugins. It is
//! committed, so that a build of the project needs no compiler of protobuf, which would be a tenth of the first build.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tonic_prost_build::Builder;

/// A generated file: its path in the checkout and its text.
pub type File = (PathBuf, String);

/// A protocol of a crate.
struct Protocol {
    /// The crate's directory.
    of: &'static str,
    /// The file in its `proto/`.
    proto: &'static str,
    /// The protobuf package, by which the generator names its file.
    package: &'static str,
    /// The generated file in the crate's `generated/`.
    file: &'static str,
    /// The settings.
    with: fn(Builder) -> Builder,
}

const PROTOCOLS: &[Protocol] = &[
    Protocol {
        of: "crates/cri",
        proto: "runtime.proto",
        package: "runtime.v1",
        file: "runtime.rs",
        with: |all| all.build_client(false).build_server(true).generate_default_stubs(true),
    },
    // The clients lie apart: only the crate's own ones, which bound each call, are public.
    Protocol {
        of: "crates/cri",
        proto: "runtime.proto",
        package: "runtime.v1",
        file: "clients.rs",
        with: |all| all.build_client(true).build_server(false).extern_path(".runtime.v1", "crate::runtime"),
    },
    Protocol {
        of: "crates/etcd",
        proto: "rpc.proto",
        package: "etcdserverpb",
        file: "rpc.rs",
        with: |all| all.build_server(false).bytes("."),
    },
    Protocol {
        of: "crates/kms",
        proto: "v1beta1.proto",
        package: "v1beta1",
        file: "v1beta1.rs",
        with: |all| all.btree_map("."),
    },
    Protocol {
        of: "crates/kms",
        proto: "v2.proto",
        package: "v2",
        file: "v2.rs",
        with: |all| all.btree_map("."),
    },
    plugin("registration.proto", "pluginregistration", "registration.rs"),
    plugin("device.proto", "v1beta1", "device.rs"),
    plugin("resources.proto", "v1", "resources.rs"),
    plugin("resources_v1alpha1.proto", "v1alpha1", "resources_v1alpha1.rs"),
    plugin("dra.proto", "k8s.io.kubelet.pkg.apis.dra.v1", "dra.rs"),
    plugin("dra_v1beta1.proto", "k8s.io.kubelet.pkg.apis.dra.v1beta1", "dra_v1beta1.rs"),
    plugin("dra_health.proto", "v1alpha1", "dra_health.rs"),
    plugin("csi.proto", "csi.v1", "csi.rs"),
];

/// A protocol of plugins: the kubelet is a client or a server of it, and tests are the other side.
const fn plugin(proto: &'static str, package: &'static str, file: &'static str) -> Protocol {
    Protocol { of: "crates/plugins", proto, package, file, with: |all| all.btree_map(".") }
}

/// Makes all files from the `.proto` files below `root`.
pub fn generate(root: &Path) -> Result<Vec<File>> {
    let out = tempfile::tempdir()?;
    let mut files = Vec::new();
    for protocol in PROTOCOLS {
        let directory = root.join(protocol.of);
        let described = protox::compile([protocol.proto], [directory.join("proto")])
            .with_context(|| format!("{}/proto/{} cannot be compiled", protocol.of, protocol.proto))?;
        (protocol.with)(tonic_prost_build::configure()).out_dir(out.path()).compile_fds(described)?;
        let made = fs::read_to_string(out.path().join(format!("{}.rs", protocol.package)))?;
        let path = Path::new(protocol.of).join("generated").join(protocol.file);
        files.push((
            path,
            format!("// `cargo xtask protocols` writes this file from proto/{}.\n{made}", protocol.proto),
        ));
    }
    Ok(files)
}
