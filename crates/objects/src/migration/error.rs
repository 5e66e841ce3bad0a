//! Why something has no form of the other kind.

/// Why a volume or a class has no form of the other kind; upstream's texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MigrationError {
    /// It is not of the plugin.
    #[error("{0}")]
    Other(&'static str),
    /// No plugin has it.
    #[error("could not find {what} for {name}")]
    Unknown {
        /// The thing that is missing.
        what: &'static str,
        /// The name by which it was looked for.
        name: String,
    },
    /// The name of a volume is none that the driver knows.
    #[error("failed to translate Kubernetes ID to EBS Volume ID {0}")]
    Ebs(String),
    /// Only managed disks have a driver.
    #[error("kind({0}) is not supported in csi migration")]
    Kind(String),
    /// A class says twice where its volumes may be.
    #[error("cannot simultaneously set allowed topologies and zone/zones parameters")]
    Topologies,
    /// Zones say nothing of a region.
    #[error("{0}")]
    Zones(String),
    /// The zones of a volume say nothing of its region.
    #[error("failed to get region from zones: {0}")]
    Region(Box<Self>),
    /// The node's zone says nothing of its region.
    #[error("failed to get region from zone {zone}: {why}")]
    NodeRegion {
        /// The zone.
        zone: String,
        /// Why.
        why: Box<Self>,
    },
    /// The nodes of a volume cannot be named in the other form.
    ///
    /// DIFFERENCE: upstream's text has the whole volume as Go prints it, here it has the name.
    #[error(
        "failed to translate topology. PV:{volume}. Error:Failed to handle region topology. error: {why}"
    )]
    Topology {
        /// The volume's name.
        volume: String,
        /// Why.
        why: Box<Self>,
    },
    /// There are no zones.
    #[error("there are no valid zones to add to pv")]
    NoZones,
    /// The driver's name of a volume, or of a node, is of another form.
    #[error("{0}")]
    Handle(String),
    /// A partition is no number.
    #[error("{0} to convert partition {1} to integer: {2}")]
    Partition(&'static str, String, String),
    /// Nobody says in which namespace the Secret is.
    #[error("could not find a secret namespace in PersistentVolumeSource or ClaimRef")]
    NoNamespace,
}

/// The answer of a translation.
pub(super) type Result<T> = std::result::Result<T, MigrationError>;
