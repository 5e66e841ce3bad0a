//! The flags of the container runtime alone, and of the work on images.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

/// The flags of the container runtime alone.
#[derive(Debug, Args, Clone)]
pub(crate) struct CriRuntime {
    /// Socket at which to serve CRI
    #[arg(long, value_name = "SOCK", default_value = "/run/ferrokube/cri.sock")]
    pub(crate) listen: PathBuf,
    /// Directory in which the runtime keeps everything
    #[arg(long, value_name = "DIR", default_value = "/var/lib/ferrokube-runtime")]
    pub(crate) root: PathBuf,
    /// Pod network: plugins of CNI, or loopback alone
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = PodNetwork::Cni)]
    pub(crate) network: PodNetwork,
    /// Directory of the Pod network's configuration
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    pub(crate) cni_conf_dir: PathBuf,
    /// Directories of network plugins, separated by commas
    #[arg(long, value_name = "DIRS", value_delimiter = ',', default_value = "/opt/cni/bin")]
    pub(crate) cni_bin_dir: Vec<PathBuf>,
    /// Directories with the settings of registries, as containerd's `config_path`, separated by commas
    #[arg(long, value_name = "DIRS", value_delimiter = ',', default_value = "/etc/containerd/certs.d")]
    pub(crate) registry_config_dir: Vec<PathBuf>,
    /// OCI runtime (such as runc or crun) for the Pods of a RuntimeClass with this handler, and arguments for it; may be
    /// repeated
    #[arg(long, value_name = "NAME=PROGRAM[ ARGUMENTS]")]
    pub(crate) runtime_handler: Vec<runtime::Handler>,
    /// Maker of the cgroups of containers: `cgroupfs`, by directories, or `systemd`, which is asked for slices and scopes;
    /// the kubelet asks the runtime which it is
    #[arg(long, value_name = "DRIVER", value_enum, default_value_t = CgroupDriver::Cgroupfs)]
    pub(crate) cgroup_driver: CgroupDriver,
    /// Directory of archives of images that the runtime has, also those that are put there later
    #[arg(long, value_name = "DIR")]
    pub(crate) images: Option<PathBuf>,
}

/// The maker of the cgroups of containers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CgroupDriver {
    /// The runtime, by directories
    #[default]
    Cgroupfs,
    /// systemd, which is asked for slices and scopes
    Systemd,
}

impl From<CgroupDriver> for runtime::CgroupDriver {
    fn from(driver: CgroupDriver) -> Self {
        match driver {
            CgroupDriver::Cgroupfs => Self::Cgroupfs,
            CgroupDriver::Systemd => Self::Systemd,
        }
    }
}

/// The Pod network of the runtime alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PodNetwork {
    /// Plugins of CNI
    Cni,
    /// Pods have loopback alone
    None,
}

/// The work on images.
#[derive(Debug, Subcommand, Clone)]
pub(crate) enum Image {
    /// List the images
    List(StoreOf),
    /// Pull images
    Pull {
        /// The images
        #[arg(required = true)]
        names: Vec<String>,
        /// Credentials for the registry, as `USER:PASSWORD`
        #[arg(long, value_name = "CREDENTIALS")]
        creds: Option<String>,
        #[command(flatten)]
        of: StoreOf,
    },
    /// Remove images
    Rm {
        /// The images, by name or id
        #[arg(required = true)]
        names: Vec<String>,
        #[command(flatten)]
        of: StoreOf,
    },
    /// Import the images of archives (docker-archive or OCI layout)
    Import {
        /// The archives
        #[arg(required = true)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        of: StoreOf,
    },
    /// Export images to an archive
    Export {
        /// The images
        #[arg(required = true)]
        names: Vec<String>,
        /// The archive
        #[arg(long, short, value_name = "FILE")]
        output: PathBuf,
        #[command(flatten)]
        of: StoreOf,
    },
}

/// The store of images.
#[derive(Debug, Args, Clone)]
pub(crate) struct StoreOf {
    /// The node's data directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/ferrokube")]
    pub(crate) data_dir: PathBuf,
}
