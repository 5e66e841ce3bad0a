//! The settings of containerd.

use std::path::Path;

/// The reference of the sandbox image in containerd's configuration.
pub const PAUSE: &str = "test.local/pause:1";

/// A configuration of containerd that keeps everything below `dir`: its socket `containerd.sock`, and `cni` and
/// `cni-bin`, the directories of the pod network's configuration and plugin; Debian's plugins are there for tests that
/// bring a network of their own.
pub fn containerd_config(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        r#"version = 3
root = "{dir}/containerd"
state = "{dir}/containerd-state"
[grpc]
  address = "{dir}/containerd.sock"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{dir}/cni-bin", "/usr/lib/cni"]
  conf_dir = "{dir}/cni"
"#
    )
}

/// The settings of the containerds of nodes on one host, beside those that FerroKube gives them.
pub fn nodes_containerd_config() -> String {
    format!(
        r#"version = 3
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
"#
    )
}
